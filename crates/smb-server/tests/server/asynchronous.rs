//! Requests that take long: told so, cancelled, finished (MS-SMB2 3.3.4.2, 3.3.5.16).

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

/// A lock that waits: the client has been told.
fn waiting(world: &mut World, client: &mut Client) -> (Header, Header) {
    let file = client.create(world, "file");
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let request = lock(client, file);
    let asked = *Header::parse(&request).unwrap();
    client.send(world, request);
    let operation = world.layer.0.borrow().asked[0].0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.settle();
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
    world.settle();
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

#[test]
fn in_the_middle_of_a_compound_only_create_may_wait() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let requests =
        vec![lock(&mut client, file), client.build(Command::Echo, |out| out.put(&EmptyBody::default()))];
    client.send(&mut world, join(requests, false));
    let operation = world.layer.0.borrow().asked[0].0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.settle();
    let found: Vec<_> =
        split(&client.receive(&mut world).unwrap()).iter().map(|answer| status(answer)).collect();
    assert_eq!(found, [NtStatus::INTERNAL_ERROR, NtStatus::SUCCESS]);
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
    world.settle();
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::INSUFFICIENT_RESOURCES);
}

/// The ends that an open may come to, each with what tells the server so.
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
        // They arrive together: the first is answered when the volume is asked what it has to say.
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
