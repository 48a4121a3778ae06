//! Cost of one message: requests of a client that demands the most work, counted in turns of the loop
//! and in refusals.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

/// A list of extended attributes with these names, each of one byte.
fn attributes(names: impl Iterator<Item = String>) -> Vec<u8> {
    let (mut list, mut last) = (Vec::new(), None);
    for name in names {
        put_full_ea(&mut list, &mut last, FullEa { flags: 0, name: name.as_bytes(), value: b"x" });
    }
    list
}

fn create_with(name: &str, list: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_EXTENDED_ATTRIBUTES, list);
    Client::create_body_with(name, 0x001F_01FF, FILE_OPEN_IF, contexts.finish())
}

fn set_attributes(file_id: FileId, list: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
    let list = list.to_vec();
    move |out| {
        let body = SetInfoRequestBody {
            info_type: INFO_FILE,
            file_info_class: class::FULL_EA,
            file_id,
            ..Default::default()
        };
        write_set_info_request(out, body, &list);
    }
}

fn query_attributes(file_id: FileId, names: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
    let names = names.to_vec();
    move |out| {
        let body = QueryInfoRequestBody {
            info_type: INFO_FILE,
            file_info_class: class::FULL_EA,
            output_buffer_length: (1 << 20).into(),
            file_id,
            ..Default::default()
        };
        write_query_info_request(out, body, &names);
    }
}

/// A message that pays for all of its bytes.
fn charged(client: &mut Client, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = client.build(command, body);
    let charge = message.len().div_ceil(65_536).max(16) as u16;
    Header::in_place(&mut message).unwrap().credit_charge = charge.into();
    client.message_id += u64::from(charge) - 1;
    message
}

fn call(
    world: &mut World,
    client: &mut Client,
    command: Command,
    body: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let message = charged(client, command, body);
    client.send(world, message);
    client.receive(world).expect("an answer")
}

#[test]
fn a_create_with_65536_extended_attributes_is_refused_before_the_volume_hears_of_it() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let list = attributes((0..65_536).map(|number| format!("{number:04X}")));
    assert!(list.len() > 1_000_000);
    let asked = world.layer.asked();
    let answer = call(&mut world, &mut client, Command::SetInfo, set_attributes(file, &list));
    assert_eq!(status(&answer), NtStatus::EA_TOO_LARGE);
    // No CREATE is that long.
    let message = charged(&mut client, Command::Create, create_with("other", &list));
    client.send(&mut world, message);
    assert!(world.is_closing(client.connection));
    assert_eq!(world.layer.asked(), asked);
}

#[test]
fn as_many_extended_attributes_as_a_file_can_have_are_stored_and_found_and_one_more_is_refused() {
    let mut world = World::with_volume();
    let mut client = Client::ready(&mut world);
    let names = |count: usize| (0..count).map(|number| format!("{number:04X}"));
    // Each takes 16 bytes of 65,536, but the last, which ends unpadded.
    let list = attributes(names(4096));
    let answer = call(&mut world, &mut client, Command::Create, create_with("file", &list));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    let file = CreateResponse::parse(&answer).unwrap().file_id;
    let answer = call(&mut world, &mut client, Command::QueryInfo, query_attributes(file, &[]));
    let found = OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec();
    assert_eq!(FullEas::new(&found).count(), 4096);
    let mut asked = Vec::new();
    for number in [9_u32, 4095, 5000] {
        let name = format!("{number:04x}");
        asked.extend_from_slice(&(if number == 5000 { 0_u32 } else { 12 }).to_le_bytes());
        asked.push(name.len() as u8);
        asked.extend_from_slice(name.as_bytes());
        asked.resize(asked.len().next_multiple_of(4), 0);
    }
    let answer = call(&mut world, &mut client, Command::QueryInfo, query_attributes(file, &asked));
    let found = OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec();
    let values: Vec<_> = FullEas::new(&found).map(|ea| ea.unwrap().value.len()).collect();
    assert_eq!(values, [1, 1, 0]);
    let answer =
        call(&mut world, &mut client, Command::SetInfo, set_attributes(file, &attributes(names(4097))));
    assert_eq!(status(&answer), NtStatus::EA_TOO_LARGE);
    let answer =
        call(&mut world, &mut client, Command::Create, create_with("other", &attributes(names(4097))));
    assert_eq!(status(&answer), NtStatus::EA_TOO_LARGE);
    let answer = client.call(&mut world, Command::Create, open_body("other"));
    assert_eq!(status(&answer), NtStatus::OBJECT_NAME_NOT_FOUND, "it was not made");
}

fn open_body(name: &str) -> impl FnOnce(&mut Vec<u8>) {
    Client::create_body_with(name, 0x0012_0089, FILE_OPEN, Vec::new())
}

fn directory_query(file_id: FileId, pattern: &str) -> impl FnOnce(&mut Vec<u8>) {
    let pattern = wide_from_str(pattern);
    move |out| {
        let body = QueryDirectoryRequestBody {
            file_information_class: 37,
            flags: QUERY_DIRECTORY_RESTART_SCANS | QUERY_DIRECTORY_REOPEN,
            file_id,
            output_buffer_length: 65_536.into(),
            ..Default::default()
        };
        write_query_directory_request(out, body, &pattern);
    }
}

/// A directory with files of long names that nearly match [`costly_pattern`].
fn costly_directory(world: &mut World, client: &mut Client, files: usize) -> FileId {
    for number in 0..files {
        let file = client.create(world, &format!("{}{number:05}", "a".repeat(245)));
        client.call(world, Command::Close, Client::close_body(file));
    }
    let answer = client.call(world, Command::Create, open_body(""));
    CreateResponse::parse(&answer).unwrap().file_id
}

fn costly_pattern() -> String {
    "<a".repeat(127)
}

#[test]
fn a_pattern_of_64_kib_is_refused_and_one_of_255_units_is_not() {
    let mut world = World::with_volume();
    let mut client = Client::ready(&mut world);
    let root = costly_directory(&mut world, &mut client, 100);
    let answer =
        client.call(&mut world, Command::QueryDirectory, directory_query(root, &"*a".repeat(16_000)));
    assert_eq!(status(&answer), NtStatus::OBJECT_NAME_INVALID);
    let answer = client.call(&mut world, Command::QueryDirectory, directory_query(root, &"*".repeat(256)));
    assert_eq!(status(&answer), NtStatus::OBJECT_NAME_INVALID);
    let answer = client.call(&mut world, Command::QueryDirectory, directory_query(root, &"*".repeat(255)));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

#[test]
fn a_listing_that_finds_nothing_yields_and_others_are_served_between() {
    let mut world = World::with_volume();
    let mut client = Client::ready(&mut world);
    let root = costly_directory(&mut world, &mut client, 100);
    let mut other = Client::ready(&mut world);
    let file = other.create(&mut world, "file");
    let message = client.build(Command::QueryDirectory, directory_query(root, &costly_pattern()));
    world.server.handle_message(client.connection, sys::Buf::from(&message[..]), world.now);
    let mut turns = 0;
    let answer = loop {
        if let Some(answer) = client.receive(&mut world) {
            break answer;
        }
        assert_eq!(world.server.next_timeout(), Some(world.now), "the loop does not sleep meanwhile");
        let read = other.build(Command::Write, Client::write_body(file, b"content"));
        world.server.handle_message(other.connection, sys::Buf::from(&read[..]), world.now);
        world.server.poll(world.now);
        let answer = other.receive(&mut world).expect("an answer in the same turn");
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        turns += 1;
        let open = other.build(Command::Create, Client::create_body("file"));
        world.server.handle_message(other.connection, sys::Buf::from(&open[..]), world.now);
        world.server.poll(world.now);
        let answer = other.receive(&mut world).expect("an answer in the next turn");
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        turns += 1;
    };
    assert_eq!(status(&answer), NtStatus::NO_SUCH_FILE);
    // 100 names of 250 units against 254 of a pattern: more than a million steps, of which a turn has 200,000.
    assert!((5..100).contains(&turns), "{turns} turns");
}

#[test]
fn a_listing_that_yielded_can_be_cancelled_and_its_directory_closed() {
    let mut world = World::with_volume();
    let mut client = Client::ready(&mut world);
    let root = costly_directory(&mut world, &mut client, 100);
    let start = |world: &mut World, client: &mut Client| {
        let message = client.build(Command::QueryDirectory, directory_query(root, &costly_pattern()));
        world.server.handle_message(client.connection, sys::Buf::from(&message[..]), world.now);
        world.server.poll(world.now);
        assert!(client.receive(world).is_none(), "it goes on");
        Header::parse(&message).unwrap().message_id
    };
    let id = start(&mut world, &mut client);
    let mut cancel = client.build(Command::Cancel, |out| out.put(&EmptyBody::default()));
    client.message_id -= 1;
    Header::in_place(&mut cancel).unwrap().message_id = id;
    client.send(&mut world, cancel);
    let answer = client.receive(&mut world).expect("an answer");
    assert_eq!(status(&answer), NtStatus::CANCELLED);
    start(&mut world, &mut client);
    let close = client.build(Command::Close, Client::close_body(root));
    client.send(&mut world, close);
    let answers: Vec<_> = std::iter::from_fn(|| client.receive(&mut world)).collect();
    let mut statuses: Vec<_> = answers.iter().map(|answer| status(answer).0).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [NtStatus::SUCCESS.0, NtStatus::FILE_CLOSED.0]);
}

fn lock_body(file_id: FileId, offsets: impl Iterator<Item = u64>, flags: u32) -> impl FnOnce(&mut Vec<u8>) {
    let locks: Vec<_> = offsets
        .map(|offset| LockElement {
            offset: offset.into(),
            length: 1.into(),
            flags: flags.into(),
            ..Default::default()
        })
        .collect();
    move |out| write_lock_request(out, LockRequestBody { file_id, ..Default::default() }, &locks)
}

const TAKE: u32 = LOCK_FLAG_EXCLUSIVE | LOCK_FLAG_FAIL_IMMEDIATELY;

#[test]
fn forty_requests_of_1638_locks_leave_an_open_with_no_more_than_its_limit() {
    let mut world = World::with_volume();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let mut granted = 0;
    for request in 0..40 {
        let offsets = (0..1638).map(|at| 2 * (request * 1638 + at));
        let answer = call(&mut world, &mut client, Command::Lock, lock_body(file, offsets, TAKE));
        match status(&answer) {
            NtStatus::SUCCESS => granted += 1638,
            refused => assert_eq!(refused, NtStatus::INSUFFICIENT_RESOURCES),
        }
    }
    assert_eq!(granted, 2 * 1638, "of 4,096");
    let volume = world.layer.0.borrow();
    let opens = volume.volume.as_ref().unwrap().list_opens();
    assert_eq!(opens.iter().map(|open| open.locks).max(), Some(2 * 1638));
}

#[test]
fn a_lock_that_waits_counts_against_the_limit_of_its_open() {
    let mut world = World::with_volume();
    let mut client = Client::ready(&mut world);
    let holder = client.create(&mut world, "file");
    let file = client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Lock, lock_body(holder, 0..1, TAKE));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    for first in [100, 2148] {
        let answer = call(&mut world, &mut client, Command::Lock, lock_body(file, first..first + 2047, TAKE));
        assert_eq!(status(&answer), NtStatus::SUCCESS);
    }
    for expected in [NtStatus::PENDING, NtStatus::PENDING, NtStatus::INSUFFICIENT_RESOURCES] {
        let answer = client.call(&mut world, Command::Lock, lock_body(file, 0..1, LOCK_FLAG_EXCLUSIVE));
        assert_eq!(status(&answer), expected);
    }
    let answer = client.call(&mut world, Command::Lock, lock_body(holder, 0..1, LOCK_FLAG_UNLOCK));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    let answer = client.receive(&mut world).expect("the first is granted");
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert!(client.receive(&mut world).is_none(), "the second waits for the first");
}

/// Turns of the loop after which the volume has this many opens.
fn turns_until_open(world: &mut World, opens: usize) -> usize {
    let mut turns = 0;
    while world.layer.0.borrow().volume.as_ref().unwrap().open_count() != opens {
        assert!(turns < 100, "it ends");
        world.server.poll(world.now);
        turns += 1;
    }
    turns
}

#[test]
fn the_end_of_a_tree_or_a_session_with_many_opens_is_split_over_turns() {
    for command in [Command::TreeDisconnect, Command::Logoff] {
        let mut world = World::with_volume();
        let mut other = Client::ready(&mut world);
        other.create(&mut world, "other");
        let mut client = Client::ready(&mut world);
        for number in 0..6000 {
            client.create(&mut world, &format!("f{}", number % 1000));
        }
        let message = client.build(command, |out| out.put(&EmptyBody::default()));
        world.server.handle_message(client.connection, sys::Buf::from(&message[..]), world.now);
        let open = other.build(Command::Create, Client::create_body("other"));
        world.server.handle_message(other.connection, sys::Buf::from(&open[..]), world.now);
        // Each takes at least 64 steps of 200,000, and those of the turn in which the message came are used up first.
        let left = world.layer.0.borrow().volume.as_ref().unwrap().open_count();
        assert!(left > 2500, "{left} are open at the end of the turn in which the message came");
        let turns = turns_until_open(&mut world, 2);
        assert!((1..50).contains(&turns), "{turns} turns");
        assert_eq!(status(&other.receive(&mut world).expect("an answer")), NtStatus::SUCCESS);
    }
}
