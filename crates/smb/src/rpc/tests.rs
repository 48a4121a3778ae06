//! The pipe as clients use it: bind, call, fragments, and calls that must end in a fault.

mod changes;
mod interfaces;
mod protection;
mod rights;

use super::*;
use types::NtStatus;

struct Filer {
    shares: usize,
}

const OWN: &str = "S-1-5-21-11-22-33";

impl Directory for Filer {
    fn server(&self) -> ServerEntry {
        ServerEntry {
            name: "FILER".into(),
            comment: "Cenote".into(),
            domain: "WORKGROUP".into(),
            version_major: 10,
            version_minor: 0,
        }
    }
    fn shares(&self) -> Vec<ShareEntry> {
        let share = |name: &str, kind, is_special| ShareEntry {
            name: name.into(),
            kind,
            is_special,
            comment: format!("{name} comment"),
            path: "C:\\demo".into(),
            current_uses: 3,
            flags: 0x30,
            security_descriptor: Some(vec![1, 0, 4, 128]),
        };
        let ipc = share("IPC$", ShareKind::Pipe, true);
        (0..self.shares).map(|i| share(&format!("demo{i}"), ShareKind::Disk, false)).chain([ipc]).collect()
    }
    fn sessions(&self) -> Vec<SessionEntry> {
        vec![SessionEntry {
            id: 77,
            client: "10.0.0.9".into(),
            user: "ana".into(),
            open_files: 2,
            active_s: 60,
            idle_s: 5,
            is_guest: false,
        }]
    }
    fn connections(&self) -> Vec<ConnectionEntry> {
        vec![ConnectionEntry {
            id: 3,
            share: "demo0".into(),
            is_pipe: false,
            client: "10.0.0.9".into(),
            user: "ana".into(),
            open_files: 2,
            active_s: 60,
        }]
    }
    fn files(&self, from: u32) -> Files {
        let all = (1..=5).map(|place| FileEntry {
            id: 100 + place,
            open: 0x10_0000_0000 + u64::from(place),
            place,
            path: format!("C:\\demo0\\plan{place}"),
            user: if place == 5 { "bob".into() } else { "ana".into() },
            permissions: 3,
            locks: 0,
        });
        Files { list: all.filter(|file| file.place >= from).collect(), more_at: None }
    }
    fn file(&self, id: u32) -> Option<FileEntry> {
        self.files(0).list.into_iter().find(|file| file.id == id)
    }
    fn users(&self) -> Vec<UserEntry> {
        let user = |rid, name: &str, enabled| UserEntry {
            sid: self.domain_sid().child(rid).unwrap(),
            name: name.into(),
            full_name: format!("{name} Full"),
            enabled,
            password_set: FileTime(7),
        };
        vec![user(1000, "ana", true), user(1001, "bob", false)]
    }
    fn groups(&self) -> Vec<GroupEntry> {
        let group = |sid: Sid, name: &str| GroupEntry {
            sid,
            name: name.into(),
            members: vec![self.domain_sid().child(1000).unwrap()],
        };
        vec![
            group(Sid::administrators(), "Administrators"),
            group(self.domain_sid().child(1100).unwrap(), "drawers"),
        ]
    }
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(9);
    }
    fn domain_sid(&self) -> Sid {
        OWN.parse().unwrap()
    }
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        (sid.to_string() == format!("{OWN}-1000")).then(|| AccountEntry {
            sid: sid.clone(),
            name: "ana".into(),
            kind: AccountKind::User,
        })
    }
    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        self.account_by_sid(&self.domain_sid().child(1000)?)
            .filter(|account| account.name.eq_ignore_ascii_case(name))
    }
    fn now(&self) -> FileTime {
        FileTime::from_unix_nanos(1_795_219_200_000_000_000)
    }
}

const FILER: Filer = Filer { shares: 1 };

fn caller(is_administrator: bool) -> RpcCaller {
    let nt_hash = Some(NtHash::from_password("secret"));
    RpcCaller { user: "ana".into(), domain: "FILER".into(), is_administrator, nt_hash }
}

fn pdu(kind: u8, flags: u8, call_id: u8, body: &[u8]) -> Vec<u8> {
    let len = (16 + body.len()) as u16;
    let mut out = vec![5, 0, kind, flags, 0x10, 0, 0, 0, len as u8, (len >> 8) as u8, 0, 0, call_id, 0, 0, 0];
    out.extend_from_slice(body);
    out
}

const NDR: [u8; 20] =
    [4, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 8, 0, 0x2B, 0x10, 0x48, 0x60, 2, 0, 0, 0];
const SRVSVC: [u8; 20] =
    [0xC8, 0x4F, 0x32, 0x4B, 0x70, 0x16, 0xD3, 1, 0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1, 0x88, 3, 0, 0, 0];
const LSARPC: [u8; 20] =
    [0x78, 0x57, 0x34, 0x12, 0x34, 0x12, 0xCD, 0xAB, 0xEF, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0, 0, 0, 0];

fn bind(interface: &[u8; 20], transfer: &[u8; 20]) -> Vec<u8> {
    let mut body = vec![0xB8, 0x10, 0xB8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    body.extend_from_slice(interface);
    body.extend_from_slice(transfer);
    pdu(11, 3, 1, &body)
}

fn request(operation: u16, stub: &[u8]) -> Vec<u8> {
    let mut body = vec![stub.len() as u8, 0, 0, 0, 0, 0, operation as u8, (operation >> 8) as u8];
    body.extend_from_slice(stub);
    pdu(0, 3, 7, &body)
}

fn bound_as(name: &str, is_administrator: bool) -> Pipe {
    let (_, served) = interface::find(name).unwrap();
    bound_to(served[0], name, is_administrator)
}

fn bound_to(interface: interface::Interface, name: &str, is_administrator: bool) -> Pipe {
    let mut pipe = Pipe::open(name, caller(is_administrator)).unwrap();
    let syntax = interface.syntax();
    let interface = [&syntax.uuid[..], &syntax.version.to_le_bytes()].concat().try_into().unwrap();
    let ack = pipe.transact(&bind(&interface, &NDR), 4280, &FILER).unwrap().unwrap();
    assert_eq!(ack.bytes[2], 12);
    // The result of the one context: accepted, with NDR.
    assert_eq!(ack.bytes[ack.bytes.len() - 24..ack.bytes.len() - 20], [0; 4]);
    assert_eq!(ack.bytes[ack.bytes.len() - 20..], NDR);
    pipe
}

fn bound(name: &str) -> Pipe {
    bound_as(name, false)
}

/// The stub of the answer to one call, put together from its fragments.
fn call(pipe: &mut Pipe, directory: &dyn Directory, operation: u16, stub: &[u8]) -> Vec<u8> {
    pipe.write(&request(operation, stub), directory).unwrap();
    let mut whole = Vec::new();
    loop {
        let fragment = pipe.read(65536).unwrap().bytes;
        assert_eq!(fragment[2], 2, "a fault: {fragment:X?}");
        assert!(fragment.len() <= 4280);
        whole.extend_from_slice(&fragment[24..]);
        if fragment[3] & 2 != 0 {
            return whole;
        }
    }
}

fn fault_of(pipe: &mut Pipe, operation: u16, stub: &[u8]) -> u32 {
    let fault = pipe.transact(&request(operation, stub), 4280, &FILER).unwrap().unwrap().bytes;
    assert_eq!(fault[2], 3);
    u32::from_le_bytes(fault[24..28].try_into().unwrap())
}

fn wide(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut out = Vec::new();
    for value in [units.len() as u32 + 1, 0, units.len() as u32 + 1] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    units.iter().chain([&0]).for_each(|unit| out.extend_from_slice(&unit.to_le_bytes()));
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn share_enum(level: u32, bytes_max: u32, resume: Option<u32>) -> Vec<u8> {
    let mut stub = words(&[1]);
    stub.extend(wide("\\\\filer"));
    stub.extend(words(&[level, level, 1, 0, 0, bytes_max]));
    match resume {
        Some(at) => stub.extend(words(&[1, at])),
        None => stub.extend(words(&[0])),
    }
    stub
}

fn last_word(stub: &[u8]) -> u32 {
    u32::from_le_bytes(stub[stub.len() - 4..].try_into().unwrap())
}

fn contains(stub: &[u8], text: &str) -> bool {
    let wanted: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    stub.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn shares_are_listed_at_every_level_a_user_may_ask_for() {
    for level in [0, 1, 501] {
        let stub = call(&mut bound("srvsvc"), &FILER, 15, &share_enum(level, u32::MAX, Some(0)));
        assert_eq!(last_word(&stub), 0, "level {level}");
        assert!(contains(&stub, "demo0\0") && contains(&stub, "IPC$\0"));
        assert_eq!(contains(&stub, "demo0 comment\0"), level != 0);
        assert!(!contains(&stub, "C:\\demo"));
    }
}

#[test]
fn paths_of_shares_are_for_administrators() {
    for level in [2, 502] {
        let refused = call(&mut bound("srvsvc"), &FILER, 15, &share_enum(level, u32::MAX, None));
        assert_eq!(last_word(&refused), 5);
        let stub = call(&mut bound_as("srvsvc", true), &FILER, 15, &share_enum(level, u32::MAX, None));
        assert_eq!(last_word(&stub), 0);
        assert!(contains(&stub, "C:\\demo\0"));
    }
    assert_eq!(last_word(&call(&mut bound("srvsvc"), &FILER, 15, &share_enum(77, u32::MAX, None))), 124);
}

#[test]
fn the_answer_at_level_1_is_byte_for_byte_what_ndr_says() {
    let stub = call(&mut bound("srvsvc"), &Filer { shares: 0 }, 15, &share_enum(1, u32::MAX, Some(0)));
    let mut expected = words(&[1, 1, 0x20004, 1, 0x20008, 1, 0x2000C, 0x8000_0003, 0x20010]);
    expected.extend(wide("IPC$"));
    expected.extend(wide("IPC$ comment"));
    expected.extend(words(&[1, 0x20014, 0, 0]));
    assert_eq!(stub, expected);
}

#[test]
fn a_long_list_comes_in_fragments_and_resumes_where_it_stopped() {
    let many = Filer { shares: 500 };
    let mut pipe = bound("srvsvc");
    let whole = call(&mut pipe, &many, 15, &share_enum(1, u32::MAX, Some(0)));
    assert!(whole.len() > 3 * 4280 && contains(&whole, "demo499\0"));

    let (mut resume, mut seen) = (0, 0);
    for _ in 0..600 {
        let stub = call(&mut pipe, &many, 15, &share_enum(1, 1000, Some(resume)));
        seen += u32::from_le_bytes(stub[12..16].try_into().unwrap());
        if last_word(&stub) == 0 {
            break;
        }
        assert_eq!(last_word(&stub), 234);
        resume = u32::from_le_bytes(stub[stub.len() - 8..stub.len() - 4].try_into().unwrap());
        assert_eq!(resume, seen);
    }
    assert_eq!(seen, 501);
}

#[test]
fn one_share_is_found_without_regard_to_case() {
    let ask = |name: &str, level| {
        let mut stub = words(&[0]);
        stub.extend(wide(name));
        stub.extend(words(&[level]));
        call(&mut bound_as("srvsvc", true), &FILER, 16, &stub)
    };
    for level in [0, 1, 2, 501, 502] {
        assert!(contains(&ask("DEMO0", level), "demo0\0"), "level {level}");
    }
    assert_eq!(ask("demo0", 1005), words(&[1005, 0x20004, 0x30, 0]));
    assert_eq!(ask("nothing", 1), words(&[1, 0, 2310]));
    assert_eq!(ask("demo0", 9), words(&[9, 0, 124]));
}

#[test]
fn server_and_workstation_tell_their_names() {
    for level in [100, 101, 102] {
        let stub = call(&mut bound("srvsvc"), &FILER, 21, &words(&[0, level]));
        assert!(contains(&stub, "FILER\0") && last_word(&stub) == 0);
        let stub = call(&mut bound("wkssvc"), &FILER, 0, &words(&[0, level]));
        assert!(contains(&stub, "WORKGROUP\0") && last_word(&stub) == 0);
    }
    assert_eq!(call(&mut bound("srvsvc"), &FILER, 21, &words(&[0, 5])), words(&[5, 0, 124]));
}

#[test]
fn the_time_of_day_is_broken_down_in_utc() {
    let stub = call(&mut bound("srvsvc"), &FILER, 28, &words(&[0]));
    // 2026-11-21 00:00:00, a Saturday.
    let fields: Vec<u32> =
        stub[4..].chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(fields[0], 1_795_219_200);
    assert_eq!(fields[2..], [0, 0, 0, 0, 0, 310, 21, 11, 2026, 6, 0]);
}

#[test]
fn sessions_are_for_administrators() {
    let mut stub = words(&[0, 0, 0]);
    stub.extend(words(&[10, 10, 1, 0, 0, u32::MAX, 0]));
    assert_eq!(last_word(&call(&mut bound("srvsvc"), &FILER, 12, &stub)), 5);
    let answer = call(&mut bound_as("srvsvc", true), &FILER, 12, &stub);
    assert!(contains(&answer, "10.0.0.9\0") && contains(&answer, "ana\0"));
}

fn open_policy(pipe: &mut Pipe) -> Vec<u8> {
    let stub = call(pipe, &FILER, 44, &words(&[0, 24, 0, 0, 0, 0, 0, 0x800]));
    assert_eq!(last_word(&stub), 0);
    stub[..20].to_vec()
}

fn sid_bytes(text: &str) -> Vec<u8> {
    let sid: Sid = text.parse().unwrap();
    let mut out = words(&[sid.sub_authorities().len() as u32]);
    sid.write_to(&mut out);
    out
}

#[test]
fn sids_become_names() {
    let mut pipe = bound("lsarpc");
    let mut stub = open_policy(&mut pipe);
    stub.extend(words(&[3, 1, 3, 1, 1, 1]));
    for sid in ["S-1-5-32-544", &format!("{OWN}-1000"), "S-1-5-21-9-9-9-9"] {
        stub.extend(sid_bytes(sid));
    }
    stub.extend(words(&[0, 0, 1, 0]));
    let answer = call(&mut pipe, &FILER, 15, &stub);
    for text in ["BUILTIN", "Administrators", "FILER", "ana", "S-1-5-21-9-9-9-9"] {
        assert!(contains(&answer, text), "{text}");
    }
    // Two of three: STATUS_SOME_NOT_MAPPED.
    assert_eq!(answer[answer.len() - 8..], words(&[2, 0x107]));
}

#[test]
fn names_become_sids() {
    let mut pipe = bound("lsarpc");
    let handle = open_policy(&mut pipe);
    let ask = |pipe: &mut Pipe, name: &str, operation| {
        let mut stub = if operation == 77 { Vec::new() } else { handle.clone() };
        let len = 2 * name.len() as u32;
        stub.extend(words(&[1, 1, len << 16 | len, 1, name.len() as u32, 0, name.len() as u32]));
        name.encode_utf16().for_each(|unit| stub.extend_from_slice(&unit.to_le_bytes()));
        stub.resize(stub.len().next_multiple_of(4), 0);
        stub.extend(words(&[0, 0, 1, 0, 0, 2]));
        call(pipe, &FILER, operation, &stub)
    };
    for name in ["ana", "ANA", "FILER\\ana", "ana@filer"] {
        for operation in [68, 77] {
            let answer = ask(&mut pipe, name, operation);
            let sid = sid_bytes(&format!("{OWN}-1000"));
            assert!(answer.windows(sid.len()).any(|window| window == sid), "{name}");
            assert_eq!(last_word(&answer), 0);
        }
        let answer = ask(&mut pipe, name, 14);
        // User, relative identifier 1000, first domain; one mapped; success.
        assert_eq!(answer[answer.len() - 20..], words(&[1, 1000, 0, 1, 0]));
    }
    for name in ["BUILTIN\\administrators", "administrators"] {
        let answer = ask(&mut pipe, name, 58);
        assert!(contains(&answer, "BUILTIN") && !contains(&answer, "FILER"));
        assert_eq!(last_word(&answer), 0);
    }
    assert_eq!(last_word(&ask(&mut pipe, "OTHER\\ana", 68)), NtStatus::NONE_MAPPED.0);
}

#[test]
fn the_caller_is_told_who_it_is() {
    let answer = call(&mut bound("lsarpc"), &FILER, 45, &words(&[0, 0, 1, 0]));
    assert!(contains(&answer, "ana") && contains(&answer, "FILER"));
    assert_eq!(last_word(&answer), 0);
}

#[test]
fn a_policy_handle_that_was_closed_or_invented_is_invalid() {
    let mut pipe = bound("lsarpc");
    let handle = open_policy(&mut pipe);
    let query = [handle.clone(), vec![5, 0]].concat();
    let answer = call(&mut pipe, &FILER, 46, &query);
    assert!(contains(&answer, "FILER") && last_word(&answer) == 0);
    assert_eq!(last_word(&call(&mut pipe, &FILER, 0, &handle)), 0);
    for operation in [0, 7, 11, 46] {
        assert_eq!(fault_of(&mut pipe, operation, &query), 0x1C00_001A);
    }
}

#[test]
fn handles_run_out_instead_of_memory() {
    let mut pipe = bound("lsarpc");
    for _ in 0..64 {
        open_policy(&mut pipe);
    }
    let refused = call(&mut pipe, &FILER, 44, &[]);
    assert_eq!(last_word(&refused), NtStatus::INSUFFICIENT_RESOURCES.0);
}

#[test]
fn pipes_are_found_by_name_and_others_are_not() {
    for name in ["srvsvc", "SRVSVC", "\\lsarpc", "lsass", "wkssvc", "samr", "winreg", "svcctl", "epmapper"] {
        assert!(Pipe::open(name, caller(false)).is_some(), "{name}");
    }
    for name in ["", "spoolss", "srvsvc\\x", "..", "netlogon"] {
        assert!(Pipe::open(name, caller(false)).is_none(), "{name}");
    }
}

#[test]
fn a_bind_to_another_interface_or_syntax_is_rejected_by_its_result() {
    let results = |bytes: &[u8]| bytes[bytes.len() - 24..bytes.len() - 20].to_vec();
    let ndr64 = [
        0x33, 5, 0x71, 0x71, 0xBA, 0xBE, 0x37, 0x49, 0x83, 0x19, 0xB5, 0xDB, 0xEF, 0x9C, 0xCC, 0x36, 1, 0, 0,
        0,
    ];
    for (interface, transfer, expected) in [(LSARPC, NDR, [2, 0, 1, 0]), (SRVSVC, ndr64, [2, 0, 2, 0])] {
        let mut pipe = Pipe::open("srvsvc", caller(false)).unwrap();
        let ack = pipe.transact(&bind(&interface, &transfer), 4280, &FILER).unwrap().unwrap();
        assert_eq!(results(&ack.bytes), expected);
        assert_eq!(fault_of(&mut pipe, 15, &[]), 0x1C01_0003);
    }
}

#[test]
fn unknown_operations_and_senseless_stubs_are_faults_and_the_pipe_goes_on() {
    let mut pipe = bound("srvsvc");
    assert_eq!(fault_of(&mut pipe, 999, &[]), 0x1C01_0002);
    assert_eq!(fault_of(&mut pipe, 15, &[]), 0x6F7);
    let good = share_enum(1, u32::MAX, Some(0));
    for len in 0..good.len() {
        assert_eq!(fault_of(&mut pipe, 15, &good[..len]), 0x6F7, "{len} bytes");
    }
    assert_eq!(last_word(&call(&mut pipe, &FILER, 15, &good)), 0);
}

#[test]
fn a_request_may_come_in_fragments_and_those_in_single_bytes() {
    let stub = share_enum(1, u32::MAX, Some(0));
    let expected = call(&mut bound("srvsvc"), &FILER, 15, &stub);
    let fragment = |flags, part: &[u8]| pdu(0, flags, 9, &[&[0, 0, 0, 0, 0, 0, 15, 0], part].concat());
    let bytes = [fragment(1, &stub[..8]), fragment(0, &stub[8..20]), fragment(2, &stub[20..])].concat();
    for size in [1, 7, bytes.len()] {
        let mut pipe = bound("srvsvc");
        for part in bytes.chunks(size) {
            pipe.write(part, &FILER).unwrap();
        }
        assert_eq!(pipe.read(65536).unwrap().bytes[24..], expected);
    }
}

#[test]
fn a_read_smaller_than_the_answer_gets_it_in_parts() {
    let mut pipe = bound("srvsvc");
    let whole = call(&mut pipe, &FILER, 21, &words(&[0, 101]));
    pipe.write(&request(21, &words(&[0, 101])), &FILER).unwrap();
    let mut parts = Vec::new();
    loop {
        let read = pipe.read(10).unwrap();
        parts.extend_from_slice(&read.bytes);
        if !read.is_partial {
            break;
        }
        assert_eq!(read.bytes.len(), 10);
    }
    assert_eq!(parts[24..], whole);
    assert_eq!(pipe.read(10), None);
    assert_eq!(pipe.waiting_bytes(), 0);
}

#[test]
fn a_bind_with_authentication_of_its_own_is_refused_and_others_follow() {
    let mut pipe = Pipe::open("srvsvc", caller(false)).unwrap();
    let mut authenticated = bind(&SRVSVC, &NDR);
    authenticated[10] = 8;
    assert_eq!(pipe.transact(&authenticated, 4280, &FILER).unwrap().unwrap().bytes[2], 13);
    assert_eq!(pipe.transact(&bind(&SRVSVC, &NDR), 4280, &FILER).unwrap().unwrap().bytes[2], 12);
}

#[test]
fn bytes_that_are_no_pdu_close_the_pipe() {
    for bad in
        [&[0; 16][..], &[5, 0, 0, 3, 0x20, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut pipe = bound("srvsvc");
        assert_eq!(pipe.write(bad, &FILER), Err(PipeError::Protocol));
        assert_eq!(pipe.write(&request(21, &words(&[0, 101])), &FILER), Err(PipeError::Protocol));
    }
}

#[test]
fn fragments_out_of_order_close_the_pipe() {
    for flags in [0, 2] {
        let mut pipe = bound("srvsvc");
        assert_eq!(pipe.write(&pdu(0, flags, 9, &[0; 8]), &FILER), Err(PipeError::Protocol));
    }
}

#[test]
fn a_stub_without_end_is_refused_at_a_limit() {
    let mut pipe = bound("srvsvc");
    let part = [[0, 0, 0, 0, 0, 0, 15, 0].to_vec(), vec![0; 60_000]].concat();
    pipe.write(&pdu(0, 1, 9, &part), &FILER).unwrap();
    let refused = (0..10).find_map(|_| pipe.write(&pdu(0, 0, 9, &part), &FILER).err());
    assert_eq!(refused, Some(PipeError::Protocol));
}

#[test]
fn answers_that_nobody_reads_stop_the_writing() {
    let many = Filer { shares: 1000 };
    let mut pipe = bound("srvsvc");
    let ask = request(15, &share_enum(1, u32::MAX, Some(0)));
    let refused = (0..100).find_map(|_| pipe.write(&ask, &many).err());
    assert_eq!(refused, Some(PipeError::Full));
    while pipe.read(65536).is_some() {}
    pipe.write(&ask, &many).unwrap();
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_pipe_panic(
        junk: Vec<u8>, operation in 0_u16..80, stub: Vec<u8>, flags: u8, kind in 0_u8..20, name in 0_usize..8
    ) {
        let name = interface::PIPES[name].0;
        let _ = Pipe::open(name, caller(true)).unwrap().write(&junk, &FILER);
        let mut pipe = bound_as(name, true);
        let _ = pipe.write(&request(operation, &stub), &FILER);
        let _ = pipe.write(&pdu(kind, flags, 3, &stub), &FILER);
        if name == "lsarpc" {
            let mut pipe = bound("lsarpc");
            let handle = open_policy(&mut pipe);
            let _ = pipe.write(&request(operation, &[handle, stub].concat()), &FILER);
        }
    }
}

#[test]
fn one_write_makes_four_calls_and_no_more() {
    for (calls, taken) in [(4, Ok(())), (5, Err(PipeError::Protocol))] {
        let mut pipe = bound("srvsvc");
        let many = request(21, &[1; 12]).repeat(calls);
        assert_eq!(pipe.write(&many, &FILER), taken, "{calls} calls");
    }
}

#[test]
fn a_long_write_leaves_no_capacity_behind() {
    let mut pipe = bound("srvsvc");
    // Calls that are orphaned, and the beginning of one more PDU.
    let mut many = pdu(19, 3, 1, &[]).repeat(20_000);
    many.extend_from_slice(&pdu(0, 3, 1, &[0; 100])[..50]);
    pipe.write(&many, &FILER).unwrap();
    assert!((50..1000).contains(&pipe.held_bytes()), "{}", pipe.held_bytes());
}
