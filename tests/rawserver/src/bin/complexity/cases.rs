//! The cases: each prepares a server so that one message is expensive, and measures that message.

use super::Bench;
use super::bodies::*;
use rawserver::{Client, User, join, sign, status};
use smb::wire::{Command, FILE_OPEN_IF, FileId};
use types::NtStatus;

/// The largest payload (`Limits::write_bytes`) and its surroundings.
const PAYLOAD_BYTES: usize = 8 << 20;
const OVERHEAD_BYTES: usize = 60 << 10;
/// Largest message of a connection without a logon.
const FIRST_BYTES: usize = 60 << 10;
/// Requests of one compound that the server works on at most.
const COMPOUND_REQUESTS: usize = 64;
/// Requests that fit into one message.
const COMPOUND_ECHOES: usize = PAYLOAD_BYTES / 72;
const FILE_DIRECTORY_FILE: u32 = 1;
const CREATE_NEW_OR_OPEN: usize = FILE_OPEN_IF as usize;
/// Credits that a message of the largest size costs.
const LARGE_CHARGE: u16 = 128;

pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Bench),
    /// Not in the bounded set, as the set has one like it.
    pub full_only: bool,
}

const fn case(name: &'static str, run: fn(&mut Bench)) -> Case {
    Case { name, run, full_only: false }
}

const fn full(name: &'static str, run: fn(&mut Bench)) -> Case {
    Case { full_only: true, ..case(name, run) }
}

pub const CASES: &[Case] = &[
    // Nobody has logged on.
    full("negotiate-dialects", |bench| first(bench, Command::Negotiate, &negotiate(30_000, 0, &[]))),
    case("negotiate-contexts", |bench| {
        let contexts = [0xEE, 0, 0, 0, 0, 0, 0, 0].repeat(FIRST_BYTES / 8 - 20);
        first(bench, Command::Negotiate, &negotiate(1, contexts.len() / 8, &contexts));
    }),
    case("cancels-first", |bench| {
        let mut client = Client::new(&mut bench.world).expect("a connection");
        let message = join(cancels(&mut client, FIRST_BYTES / 64), false);
        bench.measure_at(client.connection, message);
    }),
    full("setup-nested", |bench| setup(bench, &[0x60, 0x82, 0xFF, 0xF0].repeat(14_000))),
    full("setup-random", |bench| setup(bench, &seeded(1, 60_000))),
    case("setup-ntlm-pairs", |bench| {
        for pairs in [500, 3500, 14_000] {
            setup_pairs(bench, pairs);
        }
    }),
    // Names, and contexts of a CREATE.
    full("tree-connect-path", |bench| {
        let path = wide(&r"\".repeat(30_000));
        let body = Body::default().u16(9).u16(0).u16(72).u16(path.len()).bytes(&path).0;
        let mut message = bench.client.build(Command::TreeConnect, &body, 1);
        sign(&bench.client.keys.as_ref().expect("a user has keys").signing, &mut message);
        bench.measure(message);
    }),
    case("create-contexts", |bench| {
        let count = (PAYLOAD_BYTES - 4096) / 24;
        let mut contexts = create_context(b"ZzZz", &[], 24).repeat(count);
        contexts.extend(create_context(b"ZzZz", &[], 0));
        one(bench, Command::Create, &create(&wide("file"), CREATE_NEW_OR_OPEN, 0, &contexts), LARGE_CHARGE);
    }),
    case("create-path", |bench| {
        one(bench, Command::Create, &create(&wide(&r"a\".repeat(16_000)), CREATE_NEW_OR_OPEN, 0, &[]), 1);
    }),
    full("create-path-random", |bench| {
        one(bench, Command::Create, &create(&seeded(2, 65_000), CREATE_NEW_OR_OPEN, 0, &[]), 1);
    }),
    case("create-security", |bench| {
        let contexts = create_context(b"SecD", &security_descriptor(), 0);
        one(bench, Command::Create, &create(&wide("secured"), CREATE_NEW_OR_OPEN, 0, &contexts), 2);
    }),
    case("create-attributes", |bench| {
        let contexts = create_context(b"ExtA", &attributes(65_536), 0);
        one(bench, Command::Create, &create(&wide("attributes"), CREATE_NEW_OR_OPEN, 0, &contexts), 17);
    }),
    case("set-attributes-largest", |bench| {
        let file = bench.file("attributes");
        one(bench, Command::SetInfo, &set_info(file, 1, 15, &attributes(PAYLOAD_BYTES / 16)), LARGE_CHARGE);
    }),
    case("set-attributes", |bench| {
        let file = bench.file("attributes");
        one(bench, Command::SetInfo, &set_info(file, 1, 15, &attributes(65_536)), 17);
    }),
    case("query-attributes", |bench| {
        let file = bench.file("attributes");
        bench.send(Command::SetInfo, &set_info(file, 1, 15, &attributes(2000)), 1);
        let names = attribute_names(PAYLOAD_BYTES / 12);
        one(bench, Command::QueryInfo, &query_info(file, 1, 15, &names, PAYLOAD_BYTES), LARGE_CHARGE);
    }),
    // Compounds.
    case("cancels-beside-waiting", |bench| {
        let directory = bench.directory("watched");
        for _ in 0..500 {
            let body = Body::default().u16(32).u16(0).u32(4096).file(directory).u32(1).u32(0).0;
            bench.send(Command::ChangeNotify, &body, 1);
        }
        let message = join(cancels(&mut bench.client, PAYLOAD_BYTES / 64), false);
        bench.measure(message);
    }),
    case("echoes", |bench| {
        compound_of(bench, Command::Echo, vec![Body::default().u16(4).u16(0).0; COMPOUND_ECHOES]);
    }),
    case("compound-creates", |bench| {
        compound(bench, Command::Create, &create(&wide("file"), CREATE_NEW_OR_OPEN, 0, &[]));
    }),
    full("compound-new-files", |bench| {
        let bodies = (0..COMPOUND_REQUESTS)
            .map(|nth| create(&wide(&format!("new-{nth}")), CREATE_NEW_OR_OPEN, 0, &[]))
            .collect();
        compound_of(bench, Command::Create, bodies);
    }),
    case("compound-reads", |bench| {
        let file = bench.file("file");
        bench.send(Command::Write, &write(file, 0, &seeded(3, 65_536)), 1);
        compound(bench, Command::Read, &read(file, 0, 65_536));
    }),
    full("compound-writes", |bench| {
        let file = bench.file("file");
        let bodies =
            (0..COMPOUND_REQUESTS as u64).map(|nth| write(file, nth * 8192 + 1, &[7; 1500])).collect();
        compound_of(bench, Command::Write, bodies);
    }),
    case("compound-listings", |bench| {
        let directory = bench.directory("many");
        bench.fill("many", 100, "");
        compound(bench, Command::QueryDirectory, &query_directory(directory, "*", 65_536));
    }),
    // Data.
    case("write-largest", |bench| {
        let file = bench.file("file");
        one(bench, Command::Write, &write(file, 1, &seeded(4, PAYLOAD_BYTES)), LARGE_CHARGE);
    }),
    case("read-largest", |bench| {
        let file = bench.file("file");
        bench.send(Command::Write, &write(file, 0, &seeded(5, PAYLOAD_BYTES)), LARGE_CHARGE);
        one(bench, Command::Read, &read(file, 1, PAYLOAD_BYTES - 1), LARGE_CHARGE);
    }),
    case("locks-of-one-request", |bench| {
        let file = bench.file("file");
        one(bench, Command::Lock, &lock(file, 0, 65_535), 24);
        one(bench, Command::Lock, &lock(file, 0, 4000), 2);
    }),
    case("locks-after-many", |bench| {
        let file = bench.file("file");
        bench.fill_locks(file);
        one(bench, Command::Lock, &lock(file, 1 << 40, 1000), 1);
    }),
    full("read-and-write-beside-locks", |bench| {
        let file = bench.file("file");
        bench.fill_locks(file);
        one(bench, Command::Write, &write(file, 1 << 30, &[7; 4096]), 1);
        one(bench, Command::Read, &read(file, 0, 4096), 1);
    }),
    // Listings and information.
    case("pattern-stars", |bench| pattern(bench, &("*a".repeat(16_000) + "b"))),
    case("pattern-dos-stars", |bench| pattern(bench, &("<a".repeat(16_000) + "b"))),
    case("pattern-255", |bench| pattern(bench, &("*a".repeat(127) + "b"))),
    full("pattern-dos-255", |bench| pattern(bench, &("<a".repeat(127) + "b"))),
    full("listing-largest", |bench| {
        let directory = bench.directory("many");
        bench.fill("many", 3000, &"n".repeat(200));
        one(bench, Command::QueryDirectory, &query_directory(directory, "*", PAYLOAD_BYTES), LARGE_CHARGE);
    }),
    full("listing-of-nothing", |bench| {
        let directory = bench.directory("many");
        bench.fill("many", 3000, "");
        one(
            bench,
            Command::QueryDirectory,
            &query_directory(directory, "*none", PAYLOAD_BYTES),
            LARGE_CHARGE,
        );
    }),
    full("query-streams", |bench| {
        for nth in 0..500 {
            bench.file(&format!("file:stream{nth}"));
        }
        let file = bench.file("file");
        one(bench, Command::QueryInfo, &query_info(file, 1, 22, &[], PAYLOAD_BYTES), LARGE_CHARGE);
    }),
    case("set-security", |bench| {
        let file = bench.file("file");
        one(bench, Command::SetInfo, &set_info(file, 3, 0, &security_descriptor()), 2);
        one(bench, Command::QueryInfo, &query_info(file, 3, 0, &[], PAYLOAD_BYTES), LARGE_CHARGE);
    }),
    case("set-sizes", |bench| {
        let file = bench.file("file");
        for level in [19, 20] {
            for size in [i64::MAX as u64, 1 << 44, 1 << 27, 0] {
                one(bench, Command::SetInfo, &set_info(file, 1, level, &size.to_le_bytes()), 1);
            }
        }
    }),
    full("rename-long", |bench| {
        let file = bench.file("file");
        for level in [10, 11] {
            one(bench, Command::SetInfo, &set_info(file, 1, level, &new_name(&r"a\".repeat(15_000))), 1);
        }
    }),
    full("set-info-random", |bench| {
        let file = bench.file("file");
        for level in 0..60 {
            one(bench, Command::SetInfo, &set_info(file, 1, level, &seeded(level.into(), 1 << 20)), 17);
        }
    }),
    // Controls and pipes.
    case("copy-chunks", copy_chunks),
    case("zero-data", |bench| {
        let file = bench.file("file");
        bench.send(Command::Write, &write(file, 0, &seeded(6, PAYLOAD_BYTES)), LARGE_CHARGE);
        let range = Body::default().u64(0).u64(1 << 62).0;
        one(bench, Command::Ioctl, &ioctl(file, 0x0009_80C8, &range, 0), 1);
    }),
    case("allocated-ranges", |bench| {
        let file = bench.file("file");
        bench.send(Command::Ioctl, &ioctl(file, 0x0009_00C4, &[], 0), 1);
        for nth in 0..2000 {
            bench.send(Command::Write, &write(file, nth << 17, &[7; 16]), 1);
        }
        let range = Body::default().u64(0).u64(1 << 62).0;
        one(bench, Command::Ioctl, &ioctl(file, 0x0009_40CF, &range, PAYLOAD_BYTES), LARGE_CHARGE);
    }),
    full("controls-random", |bench| {
        let file = bench.file("file");
        for nth in 0..40 {
            let known =
                [0x0014_01FC, 0x0009_80A4, 0x0014_0204, 0x0011_C017, 0x0009_8344, 0x0014_0078, 0x0006_0194];
            let code = known[nth % known.len()];
            one(bench, Command::Ioctl, &ioctl(file, code, &seeded(nth as u64, 1 << 20), 65_536), 17);
        }
    }),
    case("pipe-bind", |bench| {
        let mut other = Client::ready(&mut bench.world, User::Ana, "IPC$");
        let pipe = other.create(&mut bench.world, "srvsvc", 0).expect("a pipe");
        // The largest bind ends its pipe; the least one is accepted, and then come fragments of a request.
        for contexts in [90, 1] {
            let pipe = other.create(&mut bench.world, "srvsvc", 0).expect("a pipe");
            let message = other.build(Command::Write, &write(pipe, 0, &rpc_bind(contexts)), 1);
            bench.measure_at(other.connection, message);
        }
        let fragments =
            [5, 0, 0, 1, 0x10, 0, 0, 0, 24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 15, 0].repeat(30_000);
        let message = other.build(Command::Write, &write(pipe, 0, &fragments), 12);
        bench.measure_at(other.connection, message);
    }),
    // Anything at all.
    full("random-bodies", |bench| {
        for command in (2..19_u16).filter_map(Command::from_wire) {
            for seed in 0..4 {
                // Each on a connection of its own, as a damaged message may end it.
                let mut client = Client::ready(&mut bench.world, User::Ana, "both");
                let body = seeded(u64::from(command as u16) << 8 | seed, 1 << 20);
                let mut message = client.build(command, &body, 17);
                sign(&client.keys.as_ref().expect("a user has keys").signing, &mut message);
                bench.measure_at(client.connection, message);
                bench.world.disconnect(client.connection);
            }
        }
    }),
];

impl Bench {
    /// Sends a message that is not counted, and that has to succeed, or to wait, for the case to mean
    /// anything.
    fn send(&mut self, command: Command, body: &[u8], charge: u16) {
        let done = self.try_send(command, body, charge);
        assert!(matches!(done, Some(NtStatus::SUCCESS | NtStatus::PENDING)), "{command:?}: {done:?}");
    }

    /// As [`Self::send`], though it may be refused.
    fn try_send(&mut self, command: Command, body: &[u8], charge: u16) -> Option<NtStatus> {
        let message = self.client.build(command, body, charge);
        assert!(self.world.takes(self.client.connection, message.len()));
        self.world.deliver(self.client.connection, &message);
        let mut done = None;
        while let Some(answer) = self.world.sent(self.client.connection) {
            done = done.or(status(&answer));
        }
        done
    }

    /// Takes as many locks on one open as the server allows, every second byte.
    fn fill_locks(&mut self, file: FileId) {
        for request in 0..64 {
            if self.try_send(Command::Lock, &lock(file, request * 2048, 1000), 1) != Some(NtStatus::SUCCESS) {
                return;
            }
        }
    }

    fn file(&mut self, name: &str) -> FileId {
        self.client.create(&mut self.world, name, 0).expect("a file")
    }

    fn directory(&mut self, name: &str) -> FileId {
        self.client.create(&mut self.world, name, FILE_DIRECTORY_FILE).expect("a directory")
    }

    /// Files in a directory, with numbers after `prefix`.
    fn fill(&mut self, directory: &str, count: usize, prefix: &str) {
        for nth in 0..count {
            let file = self.file(&format!(r"{directory}\{prefix}{nth}"));
            let body = Body::default().u16(24).u16(0).u32(0).file(file).0;
            self.send(Command::Close, &body, 1);
        }
    }
}

fn one(bench: &mut Bench, command: Command, body: &[u8], charge: u16) {
    assert!(body.len() <= PAYLOAD_BYTES + OVERHEAD_BYTES);
    let message = bench.client.build(command, body, charge);
    bench.measure(message);
}

/// On a connection if nothing was said before.
fn first(bench: &mut Bench, command: Command, body: &[u8]) {
    let mut client = Client::new(&mut bench.world).expect("a connection");
    let message = client.build(command, body, 0);
    bench.measure_at(client.connection, message);
}

fn setup(bench: &mut Bench, token: &[u8]) {
    let mut client = Client::new(&mut bench.world).expect("a connection");
    client.negotiate(&mut bench.world);
    let message = client.build(Command::SessionSetup, &session_setup(token), 1);
    bench.measure_at(client.connection, message);
}

/// An AUTHENTICATE whose response has `pairs` pairs of target information.
fn setup_pairs(bench: &mut Bench, pairs: usize) {
    let mut client = Client::new(&mut bench.world).expect("a connection");
    client.negotiate(&mut bench.world);
    let negotiate = Body::default().bytes(b"NTLMSSP\0").u32(1).u32(0x2088_8215).bytes(&[0; 24]).0;
    let message = client.build(Command::SessionSetup, &session_setup(&negotiate), 1);
    bench.world.deliver(client.connection, &message);
    let challenge = bench.world.sent(client.connection).expect("a challenge");
    client.session = smb::wire::Header::parse(&challenge).expect("a header").session_id.get();
    let mut response = Body::default().bytes(&[7; 16]).bytes(&[1, 1]).bytes(&[0; 26]).0;
    response.extend([0xEE, 0xEE, 0, 0].repeat(pairs));
    let user = wide("ana");
    let mut fields = Body::default().bytes(b"NTLMSSP\0").u32(3);
    let mut at = 88;
    for len in [0, response.len(), 0, user.len(), 0, 0] {
        fields = fields.u16(len).u16(len).u32(at);
        at += len;
    }
    let token = fields.u32(0x2088_8215).bytes(&[0; 24]).bytes(&response).bytes(&user).0;
    let message = client.build(Command::SessionSetup, &session_setup(&token), 1);
    bench.measure_at(client.connection, message);
}

fn cancels(client: &mut Client, count: usize) -> Vec<Vec<u8>> {
    let mut header = client.build(Command::Cancel, &[], 1);
    client.message_id -= 1;
    if let Some(header) = smb::wire::Header::in_place(&mut header) {
        header.message_id = 0x7FFF_FFFF.into();
    }
    vec![header; count]
}

fn compound(bench: &mut Bench, command: Command, body: &[u8]) {
    compound_of(bench, command, vec![body.to_vec(); COMPOUND_REQUESTS]);
}

fn compound_of(bench: &mut Bench, command: Command, bodies: Vec<Vec<u8>>) {
    let requests = bodies.iter().map(|body| bench.client.build(command, body, 1)).collect();
    let message = join(requests, false);
    bench.measure(message);
}

/// A pattern over a hundred names that it matches up to their end.
fn pattern(bench: &mut Bench, pattern: &str) {
    let directory = bench.directory("names");
    bench.fill("names", 100, &"a".repeat(200));
    one(bench, Command::QueryDirectory, &query_directory(directory, pattern, 65_536), 1);
}

/// FSCTL_SRV_COPYCHUNK_WRITE with as many chunks, and bytes, as are allowed.
fn copy_chunks(bench: &mut Bench) {
    let from = bench.file("from");
    bench.send(Command::Write, &write(from, 0, &seeded(7, PAYLOAD_BYTES)), LARGE_CHARGE);
    let message = bench.client.build(Command::Ioctl, &ioctl(from, 0x0014_0078, &[], 32), 1);
    bench.world.deliver(bench.client.connection, &message);
    let answer = bench.world.sent(bench.client.connection).expect("a resume key");
    let key = answer.get(64 + 48..64 + 72).expect("24 bytes").to_vec();
    let to = bench.file("to");
    let mut body = Body::default().bytes(&key).u32(256).u32(0);
    for nth in 0..256_u64 {
        body = body.u64(nth % 127 * 65_536).u64(nth * 65_536 + 1).u32(65_535).u32(0);
    }
    one(bench, Command::Ioctl, &ioctl(to, 0x0014_80F2, &body.0, 32), 1);
}
