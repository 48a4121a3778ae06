//! Requests that take long: marked as pending, cancelled, finished (MS-SMB2 3.3.4.2, 3.3.5.16).

use crate::fixture::*;
use crate::raw::{Asked, DIRECTORY};
use smb::wire::*;
use sys::Buf;
use types::NtStatus;
use volume::backend::Event;

fn lock(client: &mut Client, file_id: FileId) -> Vec<u8> {
    client.build(Command::Lock, |out| {
        let element =
            LockElement { length: 1.into(), flags: LOCK_FLAG_EXCLUSIVE.into(), ..Default::default() };
        write_lock_request(out, LockRequestBody { file_id, ..Default::default() }, &[element]);
    })
}

/// Makes a waiting lock, and receives its STATUS_PENDING.
fn waiting(world: &mut World, client: &mut Client) -> (Header, Header) {
    let file = client.create(world, "file");
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let request = lock(client, file);
    let asked = *Header::parse(&request).unwrap();
    client.send(world, request);
    let operation = world.layer.0.borrow().asked[0].0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.run_until_idle();
    let interim = client.receive(world).unwrap();
    assert_eq!(status(&interim), NtStatus::PENDING);
    (asked, *Header::parse(&interim).unwrap())
}

#[test]
fn a_waiting_request_is_answered_twice_under_one_async_id() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let (asked, interim) = waiting(&mut world, &mut client);
    assert_eq!(interim.message_id, asked.message_id);
    assert!(interim.flags().contains(HeaderFlags::ASYNC_COMMAND));
    assert!(interim.credits.get() > 0, "the credit comes back at once");
    world.layer.release(0);
    world.run_until_idle();
    let answer = client.receive(&mut world).unwrap();
    let last = Header::parse(&answer).unwrap();
    assert_eq!((last.status(), last.async_id()), (NtStatus::SUCCESS, interim.async_id()));
    assert_eq!(last.credits.get(), 0, "and not a second time");
}

#[test]
fn cancel_by_async_id_ends_it_and_has_no_answer_itself() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let (asked, interim) = waiting(&mut world, &mut client);
    let mut cancel = Header::new(Command::Cancel);
    cancel.message_id = asked.message_id;
    cancel.session_id = client.session.into();
    cancel.set_async_id(interim.async_id());
    let mut message = Vec::new();
    message.put(&cancel);
    message.put(&EmptyBody::default());
    world.deliver(client.connection, &message);
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(status(&answer), NtStatus::CANCELLED);
    assert!(client.receive(&mut world).is_none());
    assert_eq!(world.server.gauges().requests_in_work, 0);
}

#[test]
fn cancel_of_nothing_has_no_effect() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut message = Vec::new();
    message.put(&Header::new(Command::Cancel));
    message.put(&EmptyBody::default());
    world.deliver(client.connection, &message);
    assert!(client.receive(&mut world).is_none());
    let answer = client.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

/// Bodies of requests that may wait for another client, on an open that an earlier CREATE of the chain
/// made.
fn waiting_bodies() -> Vec<(Command, Vec<u8>)> {
    let body = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    let element = LockElement { length: 1.into(), flags: LOCK_FLAG_EXCLUSIVE.into(), ..Default::default() };
    vec![
        (Command::SetInfo, body(&|out| write_set_info_request(out, disposition(), &[1]))),
        (
            Command::Lock,
            body(&|out| {
                let lock = LockRequestBody { file_id: FileId::RELATED, ..Default::default() };
                write_lock_request(out, lock, &[element]);
            }),
        ),
        (Command::Read, body(&|out| Client::read_body(FileId::RELATED, 5)(out))),
        (
            Command::Flush,
            body(&|out| out.put(&FlushRequestBody { file_id: FileId::RELATED, ..Default::default() })),
        ),
    ]
}

fn disposition() -> SetInfoRequestBody {
    SetInfoRequestBody {
        info_type: INFO_FILE,
        file_info_class: class::DISPOSITION,
        file_id: FileId::RELATED,
        ..Default::default()
    }
}

#[test]
fn a_request_in_the_middle_of_a_compound_waits_and_what_follows_waits_for_it() {
    for (command, body) in waiting_bodies() {
        let mut world = World::new();
        let mut client = Client::ready(&mut world);
        let requests = vec![
            client.build(Command::Create, Client::create_body("file")),
            client.build(command, |out| out.extend_from_slice(&body)),
            client.build(Command::Close, Client::close_body(FileId::RELATED)),
        ];
        let ids: Vec<_> = requests.iter().map(|request| Header::parse(request).unwrap().message_id).collect();
        world.layer.0.borrow_mut().content = b"hello".to_vec();
        world.layer.0.borrow_mut().hold = true;
        client.send(&mut world, join(requests, true));
        world.layer.release(0);
        world.run_until_idle();
        assert_eq!(world.layer.asked(), 1, "{command:?}");
        let operation = world.layer.0.borrow().asked[0].0;
        world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
        world.run_until_idle();
        let first = split(&client.receive(&mut world).expect("what was done, and that the next waits"));
        let found: Vec<_> = first.iter().map(|answer| status(answer)).collect();
        assert_eq!(found, [NtStatus::SUCCESS, NtStatus::PENDING], "{command:?}");
        let interim = *Header::parse(&first[1]).unwrap();
        assert_eq!(interim.message_id, ids[1]);
        assert!(client.receive(&mut world).is_none(), "CLOSE waits for it");
        world.layer.0.borrow_mut().hold = false;
        world.layer.release(0);
        world.run_until_idle();
        let last = client.receive(&mut world).expect("the answer");
        let header = Header::parse(&last).unwrap();
        assert_eq!((header.status(), header.async_id()), (NtStatus::SUCCESS, interim.async_id()));
        assert_eq!((header.message_id, header.next_command.get()), (ids[1], 0));
        let closed = client.receive(&mut world).expect("what followed");
        let header = Header::parse(&closed).unwrap();
        assert_eq!((header.status(), header.message_id), (NtStatus::SUCCESS, ids[2]), "{command:?}");
        assert_eq!(world.server.gauges().requests_in_work, 0);
        assert_eq!(world.server.gauges().opens, 0);
    }
}

#[test]
fn a_read_of_a_pipe_in_the_middle_waits_until_it_is_cancelled_and_what_follows_is_done() {
    let mut world = World::over_volume();
    let mut client = Client::ready_at(&mut world, "IPC$");
    let create = Client::create_body_with("srvsvc", 0x0012_019F, FILE_OPEN, Vec::new());
    let requests = vec![
        client.build(Command::Create, create),
        client.build(Command::Read, Client::read_body(FileId::RELATED, 64)),
        client.build(Command::Close, Client::close_body(FileId::RELATED)),
    ];
    client.send(&mut world, join(requests, true));
    let first = split(&client.receive(&mut world).expect("what was done"));
    let found: Vec<_> = first.iter().map(|answer| status(answer)).collect();
    assert_eq!(found, [NtStatus::SUCCESS, NtStatus::PENDING]);
    let mut cancel = Header::new(Command::Cancel);
    cancel.session_id = client.session.into();
    cancel.set_async_id(Header::parse(&first[1]).unwrap().async_id());
    let mut message = Vec::new();
    message.put(&cancel);
    message.put(&EmptyBody::default());
    world.deliver(client.connection, &message);
    let ended = client.receive(&mut world).expect("the cancelled one");
    assert_eq!(status(&ended), NtStatus::CANCELLED);
    let closed = client.receive(&mut world).expect("what followed");
    assert_eq!(status(&closed), NtStatus::SUCCESS);
    assert_eq!(world.server.gauges().opens, 0);
}

#[test]
fn a_watch_in_the_middle_is_refused_as_by_windows_since_its_wait_has_no_end() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    let create = Client::create_body_with("", 0x0012_0089, FILE_OPEN, Vec::new());
    let requests = vec![
        client.build(Command::Create, create),
        client.build(Command::ChangeNotify, |out| {
            out.put(&ChangeNotifyRequestBody {
                output_buffer_length: 4096.into(),
                file_id: FileId::RELATED,
                completion_filter: 1.into(),
                ..Default::default()
            });
        }),
        client.build(Command::Close, Client::close_body(FileId::RELATED)),
    ];
    client.send(&mut world, join(requests, true));
    let answers = split(&client.receive(&mut world).expect("all three"));
    let found: Vec<_> = answers.iter().map(|answer| status(answer)).collect();
    assert_eq!(found, [NtStatus::SUCCESS, NtStatus::INTERNAL_ERROR, NtStatus::SUCCESS]);
}

/// A client with a share of a volume in memory, and its GUID.
fn on_volume(world: &mut World, guid: u8) -> Client {
    let mut client = Client::new(world);
    client.guid = [guid; 16];
    client.negotiate(world, &Wishes::default());
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(world, "share"), NtStatus::SUCCESS);
    client
}

/// CREATE, SET_INFO, CLOSE, as Linux renames, links and deletes.
fn change_by_compound(client: &mut Client, name: &str, number: u8, buffer: &[u8]) -> Vec<u8> {
    const DELETE_AND_READ_ATTRIBUTES: u32 = 0x0001_0080;
    let body = SetInfoRequestBody { file_info_class: number, ..disposition() };
    let create = Client::create_body_with(name, DELETE_AND_READ_ATTRIBUTES, FILE_OPEN, Vec::new());
    let requests = vec![
        client.build(Command::Create, create),
        client.build(Command::SetInfo, |out| write_set_info_request(out, body, buffer)),
        client.build(Command::Close, Client::close_body(FileId::RELATED)),
    ];
    join(requests, true)
}

/// FileRenameInformation or FileLinkInformation that replaces an existing file.
fn to_name(name: &str) -> Vec<u8> {
    let name = wide_from_str(name);
    let mut buffer = vec![0; 16];
    buffer[0] = 1;
    buffer.extend_from_slice(&(2 * name.len() as u32).to_le_bytes());
    buffer.extend(name.iter().flat_map(|unit| unit.to_le_bytes()));
    buffer
}

/// Opens a file for reading under a lease by which its client may keep the handle when its user has closed it.
fn keep(world: &mut World, client: &mut Client, name: &str) -> FileId {
    let mut contexts = CreateContextWriter::default();
    let lease = LeaseV2 { key: [8; 16], state: 3.into(), ..Default::default() };
    contexts.push_struct(CONTEXT_LEASE, &lease);
    let contexts = contexts.finish();
    let answer = client.call(world, Command::Create, |out| {
        let body = CreateRequestBody {
            requested_oplock_level: OPLOCK_LEVEL_LEASE,
            impersonation_level: 2.into(),
            desired_access: 0x0012_0089.into(),
            share_access: 7.into(),
            create_disposition: FILE_OPEN.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str(name), &contexts);
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    CreateResponse::parse(&answer).unwrap().file_id
}

#[test]
fn a_rename_a_link_and_a_deletion_by_compound_outlast_the_break_of_a_handle_that_another_client_keeps() {
    for (number, buffer, kept) in [
        (class::RENAME, to_name("moved"), "file"),
        (class::RENAME_EX, to_name("moved"), "file"),
        (class::DISPOSITION, vec![1], "file"),
        (class::DISPOSITION_EX, vec![1, 0, 0, 0], "file"),
        (class::LINK, to_name("other"), "other"),
    ] {
        let mut world = World::over_volume();
        let mut keeper = on_volume(&mut world, 1);
        for name in ["file", "other"] {
            let made = keeper.create(&mut world, name);
            keeper.call(&mut world, Command::Close, Client::close_body(made));
        }
        let handle = keep(&mut world, &mut keeper, kept);
        let mut other = on_volume(&mut world, 2);
        let chain = change_by_compound(&mut other, "file", number, &buffer);
        other.send(&mut world, chain);
        let first = split(&other.receive(&mut world).expect("what was done"));
        let found: Vec<_> = first.iter().map(|answer| status(answer)).collect();
        assert_eq!(found, [NtStatus::SUCCESS, NtStatus::PENDING], "class {number}");
        let told = keeper.receive(&mut world).expect("the break");
        assert_eq!(Header::parse(&told).unwrap().command(), Some(Command::OplockBreak));
        keeper.call(&mut world, Command::Close, Client::close_body(handle));
        for command in [Command::SetInfo, Command::Close] {
            let answer = other.receive(&mut world).expect("what followed");
            let header = Header::parse(&answer).unwrap();
            assert_eq!(
                (header.command(), header.status()),
                (Some(command), NtStatus::SUCCESS),
                "class {number}"
            );
        }
        assert_eq!(world.opens_in_volume(), 0);
    }
}

#[test]
fn more_waiting_requests_than_allowed_are_refused() {
    let mut world = World::with(|config| config.limits.pending_per_connection = 1);
    let mut client = Client::ready(&mut world);
    waiting(&mut world, &mut client);
    world.layer.0.borrow_mut().hold = false;
    let file = client.create(&mut world, "other");
    world.layer.0.borrow_mut().hold = true;
    let second = lock(&mut client, file);
    client.send(&mut world, second);
    let operation = world.layer.0.borrow().asked.last().unwrap().0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.run_until_idle();
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::INSUFFICIENT_RESOURCES);
}

/// Ways in which an open may end, each with the message that ends it.
fn ends(client: &mut Client, file: FileId) -> [Vec<u8>; 3] {
    let empty = |out: &mut Vec<u8>| out.put(&EmptyBody::default());
    [
        client.build(Command::Close, Client::close_body(file)),
        client.build(Command::TreeDisconnect, empty),
        client.build(Command::Logoff, empty),
    ]
}

/// The statuses of the requests' last answers; each of `asked` requests has one.
fn answers(world: &mut World, client: &mut Client, asked: usize) -> Vec<NtStatus> {
    let received = std::iter::from_fn(|| client.receive(world)).map(|answer| status(&answer));
    let found: Vec<NtStatus> = received.filter(|status| *status != NtStatus::PENDING).collect();
    assert_eq!(found.len(), asked, "{found:?}");
    assert!(!world.server.owes_answers());
    assert_eq!(world.server.gauges().requests_in_work, 0);
    found
}

#[test]
fn reads_that_wait_for_a_pipe_are_answered_however_it_ends() {
    for end in 0..3 {
        let mut world = World::new();
        let mut client = Client::ready_at(&mut world, "IPC$");
        let pipe = client.create(&mut world, "srvsvc");
        for _ in 0..2 {
            let read = client.build(Command::Read, Client::read_body(pipe, 100));
            client.send(&mut world, read);
        }
        let message = ends(&mut client, pipe)[end].clone();
        client.send(&mut world, message);
        let found = answers(&mut world, &mut client, 3);
        assert_eq!(found.iter().filter(|status| **status == NtStatus::FILE_CLOSED).count(), 2, "{found:?}");
    }
}

#[test]
fn requests_of_an_enumeration_are_answered_however_the_directory_ends() {
    for end in 0..3 {
        let mut world = World::with_volume();
        let mut client = Client::ready(&mut world);
        let asked = Asked { options: DIRECTORY, ..Asked::default() };
        let directory = client.open_as(&mut world, "", asked).unwrap();
        // The requests arrive together: the first is answered when the volume has its operation.
        for _ in 0..4 {
            let list = client.build(Command::QueryDirectory, |out| {
                let body = QueryDirectoryRequestBody {
                    file_information_class: 37,
                    file_id: directory,
                    output_buffer_length: 4096.into(),
                    ..Default::default()
                };
                write_query_directory_request(out, body, &wide_from_str("*"));
            });
            let list = client.protect(list);
            world.server.handle_message(client.connection, Buf::from(&list[..]), world.now);
        }
        let message = ends(&mut client, directory)[end].clone();
        client.send(&mut world, message);
        let found = answers(&mut world, &mut client, 5);
        assert!(found.contains(&NtStatus::FILE_CLOSED), "{found:?}");
    }
}
