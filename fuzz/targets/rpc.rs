//! DCE/RPC: bytes written to each pipe, bound and unbound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::rpc::{
    AccountEntry, AccountKind, Directory, Pipe, RpcCaller, ServerEntry, SessionEntry, ShareEntry, ShareKind,
};
use types::{FileTime, Sid};

struct Filer;

impl Directory for Filer {
    fn server(&self) -> ServerEntry {
        ServerEntry {
            name: "FILER".into(),
            comment: String::new(),
            domain: "WORKGROUP".into(),
            version_major: 10,
            version_minor: 0,
        }
    }
    fn shares(&self) -> Vec<ShareEntry> {
        let share = ShareEntry {
            name: "demo".into(),
            kind: ShareKind::Disk,
            is_special: false,
            comment: "a share".into(),
            path: "C:\\demo".into(),
            current_uses: 1,
            flags: 0,
            security_descriptor: None,
        };
        vec![share; 3]
    }
    fn sessions(&self) -> Vec<SessionEntry> {
        Vec::new()
    }
    fn domain_sid(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).unwrap_or_else(|_| Sid::everyone())
    }
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        Some(AccountEntry { sid: sid.clone(), name: "ana".into(), kind: AccountKind::User })
    }
    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        Some(AccountEntry { sid: self.domain_sid().child(1000)?, name: name.into(), kind: AccountKind::User })
    }
    fn now(&self) -> FileTime {
        FileTime(133_000_000_000_000_000)
    }
}

/// Interfaces by pipe, as BIND names them.
const INTERFACES: [(&str, [u8; 20]); 3] = [
    (
        "srvsvc",
        [
            0xC8, 0x4F, 0x32, 0x4B, 0x70, 0x16, 0xD3, 1, 0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1, 0x88, 3,
            0, 0, 0,
        ],
    ),
    (
        "wkssvc",
        [
            0x98, 0xD0, 0xFF, 0x6B, 0x12, 0xA1, 0x10, 0x36, 0x98, 0x33, 0x46, 0xC3, 0xF8, 0x7E, 0x34, 0x5A,
            1, 0, 0, 0,
        ],
    ),
    (
        "lsarpc",
        [
            0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xCD, 0xAB, 0xEF, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0, 0,
            0, 0,
        ],
    ),
];
const NDR: [u8; 20] =
    [4, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 8, 0, 0x2B, 0x10, 0x48, 0x60, 2, 0, 0, 0];

fn pdu(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (16 + body.len()) as u16;
    let mut out = vec![5, 0, kind, 3, 0x10, 0, 0, 0, len as u8, (len >> 8) as u8, 0, 0, 1, 0, 0, 0];
    out.extend_from_slice(body);
    out
}

fuzz_target!(|input: &[u8]| {
    let [choice, operation, input @ ..] = input else { return };
    let (name, interface) = &INTERFACES[usize::from(*choice) % INTERFACES.len()];
    let caller =
        RpcCaller { user: "ana".into(), domain: "FILER".into(), is_administrator: choice & 0x80 != 0 };
    let Some(mut pipe) = Pipe::open(name, caller) else { return };
    if choice & 0x40 != 0 {
        // Whole PDUs of the fuzzer's own making.
        for part in input.chunks(64) {
            let _ = pipe.write(part, &Filer);
        }
        return;
    }
    // A stub for one operation; lsarpc's start with a handle, which is opened before.
    let mut body = vec![0xB8, 0x10, 0xB8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    body.extend_from_slice(interface);
    body.extend_from_slice(&NDR);
    pipe.write(&pdu(11, &body), &Filer).expect("a bind is fine");
    let _ = pipe.read(4280);
    let mut stub = Vec::new();
    if *name == "lsarpc" && choice & 0x20 != 0 {
        let opened =
            pipe.transact(&pdu(0, &[0, 0, 0, 0, 0, 0, 44, 0]), 4280, &Filer).expect("a request is fine");
        stub.extend_from_slice(&opened.expect("an answer").bytes[24..44]);
    }
    stub.extend_from_slice(&input[..input.len().min(60_000)]);
    let request = [&[0, 0, 0, 0, 0, 0, *operation % 90, 0], &stub[..]].concat();
    pipe.write(&pdu(0, &request), &Filer).expect("a request is fine, whatever its stub");
    while pipe.read(1000).is_some() {}
});
