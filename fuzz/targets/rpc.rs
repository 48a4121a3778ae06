//! DCE/RPC: bytes written to each pipe, bound and unbound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::auth::NtHash;
use smb::rpc::{
    AccountEntry, AccountKind, ConnectionEntry, Directory, FileEntry, Files, GroupEntry, Pipe, RpcCaller,
    RpcDone, RpcRefusal, ServerEntry, SessionEntry, ShareEntry, ShareKind, UserEntry,
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
        vec![SessionEntry {
            id: 1,
            client: "10.0.0.9".into(),
            user: "ana".into(),
            open_files: 1,
            active_s: 2,
            idle_s: 3,
            is_guest: false,
        }]
    }
    fn connections(&self) -> Vec<ConnectionEntry> {
        vec![ConnectionEntry {
            id: 1,
            share: "demo".into(),
            is_pipe: false,
            client: "10.0.0.9".into(),
            user: "ana".into(),
            open_files: 1,
            active_s: 2,
        }]
    }
    fn files(&self, from: u32) -> Files {
        Files { list: self.file(from).into_iter().collect(), more_at: from.checked_add(1) }
    }
    fn file(&self, id: u32) -> Option<FileEntry> {
        Some(FileEntry {
            id,
            open: 7,
            place: id,
            path: "C:\\demo\\plan".into(),
            user: "ana".into(),
            permissions: 1,
            locks: 0,
        })
    }
    fn users(&self) -> Vec<UserEntry> {
        self.domain_sid()
            .child(1000)
            .into_iter()
            .map(|sid| UserEntry {
                sid,
                name: "ana".into(),
                full_name: "Ana".into(),
                enabled: true,
                password_set: FileTime(7),
            })
            .collect()
    }
    fn groups(&self) -> Vec<GroupEntry> {
        vec![GroupEntry {
            sid: Sid::administrators(),
            name: "Administrators".into(),
            members: vec![Sid::users()],
        }]
    }
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
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

/// Interfaces by pipe, as BIND names them: UUID, version, and the operation that opens a handle with
/// its parameters.
const INTERFACES: [(&str, u128, u8, Option<(u8, usize)>); 10] = [
    ("srvsvc", 0x4b324fc8_1670_01d3_1278_5a47bf6ee188, 3, None),
    ("wkssvc", 0x6bffd098_a112_3610_9833_46c3f87e345a, 1, None),
    ("lsarpc", 0x12345778_1234_abcd_ef00_0123456789ab, 0, Some((44, 0))),
    ("samr", 0x12345778_1234_abcd_ef00_0123456789ac, 1, Some((57, 8))),
    ("lsarpc", 0x3919286a_b10c_11d0_9ba8_00c04fd92ef5, 0, None),
    ("winreg", 0x338cd001_2244_31f1_aaaa_900038001003, 1, Some((2, 8))),
    ("svcctl", 0x367abb81_9844_35f1_ad32_98f038001003, 2, Some((15, 12))),
    ("epmapper", 0xe1af8308_5d1f_11c9_91a4_08002b14a0fa, 3, None),
    ("srvsvc", 0xafa8bd80_7d8a_11c9_bef4_08002b102989, 1, None),
    // Handles of a domain.
    ("samr", 0x12345778_1234_abcd_ef00_0123456789ac, 1, Some((7, 0))),
];

fn syntax(uuid: u128, version: u8) -> Vec<u8> {
    let mut out = uuid.to_be_bytes().to_vec();
    out[..4].reverse();
    out[4..6].reverse();
    out[6..8].reverse();
    out.extend_from_slice(&[version, 0, 0, 0]);
    out
}

fn handle(pipe: &mut Pipe, operation: u8, stub: &[u8]) -> Option<Vec<u8>> {
    let request = [&[0, 0, 0, 0, 0, 0, operation, 0], stub].concat();
    let opened = pipe.transact(&pdu(0, &request), 4280, &Filer).expect("a request is fine");
    let bytes = opened.expect("an answer").bytes;
    bytes.get(24..44).map(<[u8]>::to_vec)
}

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
    let (name, uuid, version, opener) = INTERFACES[usize::from(*choice) % INTERFACES.len()];
    let caller = RpcCaller {
        user: "ana".into(),
        domain: "FILER".into(),
        is_administrator: choice & 0x80 == 0,
        nt_hash: Some(NtHash::from_bytes([7; 16])),
    };
    let Some(mut pipe) = Pipe::open(name, caller) else { return };
    if choice & 0x40 != 0 {
        // Whole PDUs of the fuzzer's own making.
        for part in input.chunks(64) {
            let _ = pipe.write(part, &Filer);
        }
        return;
    }
    // A stub for one operation; stubs of some interfaces start with a handle, which is opened before.
    let mut body = vec![0xB8, 0x10, 0xB8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    body.extend(syntax(uuid, version));
    body.extend_from_slice(&NDR);
    pipe.write(&pdu(11, &body), &Filer).expect("a bind is fine");
    let _ = pipe.read(4280);
    let mut stub = Vec::new();
    if let Some((opener, zeros)) = opener
        && choice & 0x20 != 0
    {
        let found = if opener == 7 {
            handle(&mut pipe, 57, &[0; 8]).and_then(|server| {
                let domain = [&[0, 0, 0, 0, 4, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 5][..]].concat();
                let numbers: Vec<u8> =
                    [21_u32, 1, 2, 3].iter().flat_map(|number| number.to_le_bytes()).collect();
                handle(&mut pipe, 7, &[server, domain, numbers].concat())
            })
        } else {
            handle(&mut pipe, opener, &vec![0; zeros])
        };
        stub.extend(found.unwrap_or_default());
    }
    stub.extend_from_slice(&input[..input.len().min(60_000)]);
    let request = [&[0, 0, 0, 0, 0, 0, *operation % 90, 0], &stub[..]].concat();
    pipe.write(&pdu(0, &request), &Filer).expect("a request is fine, whatever its stub");
    if pipe.take_change().is_some() {
        let outcome = match choice & 0x10 {
            0 => Ok(RpcDone::SecurityDescriptor(vec![1, 0, 4, 128])),
            _ => Err(RpcRefusal::NotFound),
        };
        pipe.finish(outcome);
    }
    while pipe.read(1000).is_some() {}
});
