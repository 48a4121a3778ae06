//! Files: payload by reference, identity of opens, breaks, limits.

use crate::fixture::*;
use smb::wire::*;
use sys::Buf;
use types::NtStatus;
use volume::backend::{Event, LeaseState, OpenId, Operation, OplockLevel, SessionId};

#[test]
fn what_is_written_is_read_back() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Write, Client::write_body(file, &[7; 5000]));
    assert_eq!(WriteResponse::parse(&answer).unwrap().count.get(), 5000);
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 9000));
    assert_eq!(ReadResponse::parse(&answer).unwrap().data().unwrap(), [7; 5000]);
    let answer = client.call(&mut world, Command::Close, Client::close_body(file));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 1));
    assert_eq!(status(&answer), NtStatus::FILE_CLOSED);
}

#[test]
fn payload_of_a_write_stays_in_the_message_that_brought_it() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let message = Buf::from(&client.build(Command::Write, Client::write_body(file, &[7; 4096]))[..]);
    world.server.handle_message(client.connection, message.clone(), world.now);
    let layer = world.layer.0.borrow();
    let Some((_, Operation::Write { data, .. })) = layer.asked.last() else { panic!("a write") };
    assert_eq!(data.parts()[0].as_ptr(), message[WRITE_REQUEST_DATA_OFFSET..].as_ptr());
}

#[test]
fn payload_of_a_read_is_sent_from_where_the_file_layer_has_it() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().content = vec![1; 65536];
    let read = client.build(Command::Read, Client::read_body(file, 65536));
    client.send(&mut world, read);
    let sent = world.server.poll_transmit(client.connection).unwrap();
    assert_eq!(sent.parts().len(), 2, "a head, and the payload as it came");
    assert_eq!(sent.parts()[1].len(), 65536);
}

#[test]
fn a_read_behind_the_end_says_so() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 10));
    assert_eq!(status(&answer), NtStatus::END_OF_FILE);
}

#[test]
fn a_slow_request_holds_up_nobody() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().content = b"content".to_vec();
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let slow = client.build(Command::Read, Client::read_body(file, 3));
    let fast = client.build(Command::Read, Client::read_body(file, 7));
    let fast_id = Header::parse(&fast).unwrap().message_id.get();
    client.send(&mut world, slow);
    client.send(&mut world, fast);
    assert_eq!(world.layer.asked(), 2);
    world.layer.release(1);
    world.run_until_idle();
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(Header::parse(&answer).unwrap().message_id.get(), fast_id);
    assert!(client.receive(&mut world).is_none());
    world.layer.release(0);
    world.run_until_idle();
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(ReadResponse::parse(&answer).unwrap().data().unwrap(), b"con");
}

#[test]
fn an_oplock_break_reaches_its_holder_and_its_acknowledgment_the_file_layer() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().events.push_back(Event::BreakOplock {
        open: OpenId(1),
        session: SessionId(client.session),
        to: OplockLevel::LevelII,
    });
    world.run_until_idle();
    let notification = client.receive(&mut world).unwrap();
    assert_eq!(Header::parse(&notification).unwrap().message_id.get(), u64::MAX);
    let told = OplockBreak::parse(&notification).unwrap();
    assert_eq!((told.file_id, told.oplock_level), (file, OPLOCK_LEVEL_II));
    let answer = client.call(&mut world, Command::OplockBreak, |out| {
        out.put(&OplockBreakBody { oplock_level: OPLOCK_LEVEL_II, file_id: file, ..Default::default() });
    });
    assert_eq!(OplockBreak::parse(&answer).unwrap().oplock_level, OPLOCK_LEVEL_II);
}

#[test]
fn a_lease_break_reaches_the_client_and_its_acknowledgment_the_file_layer() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut contexts = CreateContextWriter::default();
    let lease = LeaseV2 { key: [8; 16], state: 7.into(), epoch: 1.into(), ..Default::default() };
    contexts.push_struct(CONTEXT_LEASE, &lease);
    let contexts = contexts.finish();
    let answer = client.call(&mut world, Command::Create, |out| {
        let body = CreateRequestBody {
            requested_oplock_level: OPLOCK_LEVEL_LEASE,
            create_disposition: FILE_OPEN.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str("file"), &contexts);
    });
    let created = CreateResponse::parse(&answer).unwrap();
    assert_eq!(created.oplock_level, OPLOCK_LEVEL_LEASE);
    let granted = created.contexts().unwrap().next().unwrap().unwrap();
    let Lease::V2(granted) = Lease::parse(granted.data).unwrap() else { panic!("version 2") };
    assert_eq!((granted.key, granted.state.get()), ([8; 16], 7));

    world.layer.0.borrow_mut().events.push_back(Event::BreakLease {
        client: [5; 16],
        key: [8; 16],
        from: LeaseState::all(),
        to: LeaseState::READ,
        acknowledge: true,
        epoch: 2,
    });
    world.run_until_idle();
    let notification = client.receive(&mut world).unwrap();
    let told = LeaseBreakNotification::parse(&notification).unwrap();
    assert_eq!((told.lease_key, told.new_epoch.get(), told.new_lease_state.get()), ([8; 16], 2, 1));
    let answer = client.call(&mut world, Command::OplockBreak, |out| {
        out.put(&LeaseBreakBody { lease_key: [8; 16], lease_state: 1.into(), ..Default::default() });
    });
    assert_eq!(LeaseBreak::parse(&answer).unwrap().lease_state.get(), 1);
    let answer = client.call(&mut world, Command::OplockBreak, |out| {
        out.put(&LeaseBreakBody { lease_key: [1; 16], ..Default::default() });
    });
    assert_eq!(status(&answer), NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn an_unknown_fsctl_is_an_invalid_device_request() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file_id = client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Ioctl, |out| {
        let body = IoctlRequestBody {
            control_code: 0x0009_FFFC.into(),
            file_id,
            flags: IOCTL_IS_FSCTL.into(),
            ..Default::default()
        };
        write_ioctl_request(out, body, &[]);
    });
    assert_eq!(status(&answer), NtStatus::INVALID_DEVICE_REQUEST);
}

#[test]
fn an_administrator_can_close_an_open() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let listed = world.server.opens(world.now);
    assert_eq!((listed.len(), &listed[0].share[..], &listed[0].user[..]), (1, "share", "user"));
    assert!(world.server.close_open(listed[0].id, world.now));
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 1));
    assert_eq!(status(&answer), NtStatus::FILE_CLOSED);
}

#[test]
fn more_opens_than_allowed_are_refused() {
    let mut world = World::with(|config| config.limits.opens = 1);
    let mut client = Client::ready(&mut world);
    client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::TOO_MANY_OPENED_FILES);
}

#[test]
fn a_client_with_too_much_unsent_is_not_listened_to() {
    let mut world = World::with(|config| config.limits.bytes_in_flight_per_connection = 100_000);
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().content = vec![1; 65536];
    for _ in 0..2 {
        assert!(world.server.wants_messages(client.connection));
        let read = client.build(Command::Read, Client::read_body(file, 65536));
        client.send(&mut world, read);
    }
    assert!(!world.server.wants_messages(client.connection));
    while client.receive(&mut world).is_some() {}
    assert!(world.server.wants_messages(client.connection));
}

#[test]
fn a_removed_volume_takes_its_opens_along() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().hold = true;
    let read = client.build(Command::Read, Client::read_body(file, 1));
    client.send(&mut world, read);
    world.server.remove_volume(types::VolumeId::from_bytes([9; 16]), world.now).unwrap();
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(status(&answer), NtStatus::FILE_FORCED_CLOSED);
    let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::NETWORK_NAME_DELETED);
}
