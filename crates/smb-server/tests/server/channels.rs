//! Sessions over several connections: keys, limits, and the state after one of them dies.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;
use volume::backend::{Event, LeaseState, OpenId, Operation, OplockLevel, SessionId};

const CLIENT_GUID: Guid = [5; 16];

/// A further channel of the session of `first`.
pub fn channel(world: &mut World, first: &Client) -> Client {
    let mut client = Client::new(world);
    client.negotiate(world, &Wishes { dialects: vec![first.dialect as u16], ..Wishes::default() });
    assert_eq!(client.bind(world, first), NtStatus::SUCCESS);
    client
}

/// A CREATE that the client could replay.
fn durable_create(name: &str) -> impl FnOnce(&mut Vec<u8>) {
    let mut contexts = CreateContextWriter::default();
    let durable = DurableRequestV2 { create_guid: [8; 16], ..Default::default() };
    contexts.push_struct(CONTEXT_DURABLE_REQUEST_V2, &durable);
    Client::create_body_with(name, 0x001F_01FF, FILE_OPEN_IF, contexts.finish())
}

/// A request with this ChannelSequence, as a replay or not.
fn in_sequence(mut message: Vec<u8>, sequence: u16, replay: bool) -> Vec<u8> {
    let header = Header::in_place(&mut message).unwrap();
    header.status = u32::from(sequence).into();
    if replay {
        header.flags = (header.flags() | HeaderFlags::REPLAY_OPERATION).bits().into();
    }
    message
}

#[test]
fn every_dialect_from_3_0_binds_channels_with_keys_of_their_own() {
    for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
        let mut world = World::new();
        let mut first = Client::new(&mut world);
        first.negotiate(&mut world, &Wishes { dialects: vec![dialect as u16], ..Wishes::default() });
        assert_eq!(first.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
        assert_eq!(first.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
        let mut second = channel(&mut world, &first);
        assert_eq!(world.server.gauges().sessions, 1, "{dialect:?}");
        let file = first.create(&mut world, "file");
        second.sign = true;
        let answer = second.call(&mut world, Command::Write, Client::write_body(file, b"hello"));
        assert_eq!(status(&answer), NtStatus::SUCCESS, "{dialect:?}");
        assert!(second.is_signed(&answer));
        assert!(!first.is_signed(&answer), "the first channel has another key");
    }
}

#[test]
fn a_channel_signed_with_the_key_of_another_is_refused() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let mut second = channel(&mut world, &first);
    let file = first.create(&mut world, "file");
    second.sign = true;
    second.signing = first.signing.take();
    let answer = second.call(&mut world, Command::Write, Client::write_body(file, b"hello"));
    assert_eq!(status(&answer), NtStatus::ACCESS_DENIED);
}

#[test]
fn a_session_has_thirty_two_channels_and_no_more() {
    let mut world = World::new();
    let first = Client::ready(&mut world);
    for _ in 1..32 {
        channel(&mut world, &first);
    }
    let mut late = Client::new(&mut world);
    late.negotiate(&mut world, &Wishes::default());
    assert_eq!(late.bind(&mut world, &first), NtStatus::INSUFFICIENT_RESOURCES);
}

#[test]
fn a_session_of_2_1_has_one_channel() {
    let mut world = World::new();
    let mut first = Client::new(&mut world);
    let wishes = || Wishes { dialects: vec![Dialect::Smb210 as u16], ..Wishes::default() };
    first.negotiate(&mut world, &wishes());
    assert_eq!(first.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    let mut second = Client::new(&mut world);
    second.negotiate(&mut world, &wishes());
    assert_eq!(second.bind(&mut world, &first), NtStatus::REQUEST_NOT_ACCEPTED);
}

#[test]
fn a_replayable_create_outlives_its_channel() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let second = channel(&mut world, &first);
    world.layer.0.borrow_mut().hold = true;
    let create = first.build(Command::Create, durable_create("file"));
    first.send(&mut world, create);
    world.server.connection_closed(first.connection, world.now);
    assert!(world.layer.0.borrow().cancelled.is_empty());
    world.layer.release(0);
    world.run_until_idle();
    assert_eq!(world.server.gauges().opens, 1);
    world.server.connection_closed(second.connection, world.now);
    assert_eq!((world.server.gauges().opens, world.server.gauges().sessions), (0, 0));
}

#[test]
fn a_create_whose_tree_its_client_has_ended_is_closed_and_not_kept_for_a_replay() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    world.layer.0.borrow_mut().hold = true;
    let create = client.build(Command::Create, durable_create("file"));
    client.send(&mut world, create);
    client.call(&mut world, Command::TreeDisconnect, |out| out.put(&EmptyBody::default()));
    world.layer.release(0);
    world.run_until_idle();
    let layer = world.layer.0.borrow();
    assert!(
        layer.asked.iter().any(|(_, asked)| matches!(asked, Operation::Close { .. })),
        "{:?}",
        layer.asked
    );
}

#[test]
fn a_create_that_nobody_could_find_again_ends_with_its_channel() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let _second = channel(&mut world, &first);
    world.layer.0.borrow_mut().hold = true;
    world.layer.0.borrow_mut().cannot_cancel = true;
    let create = first.build(Command::Create, Client::create_body("file"));
    first.send(&mut world, create);
    world.server.connection_closed(first.connection, world.now);
    assert_eq!(world.layer.0.borrow().cancelled.len(), 1);
    world.layer.release(0);
    world.run_until_idle();
    assert_eq!(world.server.gauges().opens, 0);
    let layer = world.layer.0.borrow();
    assert!(layer.asked.iter().any(|(_, asked)| matches!(asked, Operation::Close { .. })), "it is closed");
}

#[test]
fn a_write_in_flight_on_a_dead_channel_is_waited_for_by_its_replay() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let mut second = channel(&mut world, &first);
    let file = first.create(&mut world, "file");
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    world.layer.0.borrow_mut().cannot_cancel = true;
    let write = first.build(Command::Write, Client::write_body(file, b"once"));
    first.send(&mut world, write);
    world.server.connection_closed(first.connection, world.now);
    let mut replay = |world: &mut World| {
        let write = second.build(Command::Write, Client::write_body(file, b"once"));
        second.send(world, in_sequence(write, 1, true));
        second.receive(world)
    };
    let early = replay(&mut world).expect("a refusal");
    assert_eq!(status(&early), NtStatus::FILE_NOT_AVAILABLE, "the first may still be written");
    world.layer.release(0);
    world.run_until_idle();
    world.layer.0.borrow_mut().hold = false;
    let late = replay(&mut world).expect("an answer");
    assert_eq!(status(&late), NtStatus::SUCCESS);
    // Anything that the dead channel sends from here on is too late.
    let write = second.build(Command::Write, Client::write_body(file, b"stale"));
    second.send(&mut world, in_sequence(write, 0, false));
    assert_eq!(status(&second.receive(&mut world).unwrap()), NtStatus::FILE_NOT_AVAILABLE);
}

#[test]
fn lease_breaks_go_to_the_oldest_channel_that_is_left() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let mut second = channel(&mut world, &first);
    let mut contexts = CreateContextWriter::default();
    contexts.push_struct(CONTEXT_LEASE, &LeaseV2 { key: [1; 16], state: 7.into(), ..Default::default() });
    let contexts = contexts.finish();
    let answer = first.call(&mut world, Command::Create, |out| {
        let body = CreateRequestBody {
            requested_oplock_level: OPLOCK_LEVEL_LEASE,
            create_disposition: FILE_OPEN.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str("file"), &contexts);
    });
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    let broken = || Event::BreakLease {
        client: CLIENT_GUID,
        key: [1; 16],
        from: LeaseState::all(),
        to: LeaseState::READ,
        acknowledge: true,
        epoch: 1,
    };
    world.layer.0.borrow_mut().events.push_back(broken());
    world.run_until_idle();
    assert!(second.receive(&mut world).is_none());
    let told = first.receive(&mut world).expect("the break");
    assert_eq!(Header::parse(&told).unwrap().command(), Some(Command::OplockBreak));
    world.server.connection_closed(first.connection, world.now);
    world.layer.0.borrow_mut().events.push_back(broken());
    world.run_until_idle();
    assert!(second.receive(&mut world).is_some());
}

#[test]
fn a_break_is_told_again_where_its_channel_dies_before_it_is_acknowledged() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let mut second = channel(&mut world, &first);
    let name = wide_from_str("file");
    let answer = first.call(&mut world, Command::Create, |out| {
        let body = CreateRequestBody {
            requested_oplock_level: OPLOCK_LEVEL_BATCH,
            impersonation_level: 2.into(),
            desired_access: 0x001F_01FF.into(),
            create_disposition: FILE_OPEN_IF.into(),
            ..Default::default()
        };
        write_create_request(out, body, &name, &[]);
    });
    let file_id = CreateResponse::parse(&answer).unwrap().file_id;
    let broken = Event::BreakOplock { open: OpenId(1), session: SessionId(0), to: OplockLevel::LevelII };
    world.layer.0.borrow_mut().events.push_back(broken);
    world.run_until_idle();
    assert!(first.receive(&mut world).is_some());
    world.server.connection_closed(first.connection, world.now);
    let told = second.receive(&mut world).expect("the break again");
    assert_eq!(Header::parse(&told).unwrap().command(), Some(Command::OplockBreak));
    // The session's first key proves it, though the first channel is lost.
    let mut third = channel(&mut world, &first);
    let body = OplockBreakBody { oplock_level: OPLOCK_LEVEL_II, file_id, ..Default::default() };
    second.call(&mut world, Command::OplockBreak, |out| out.put(&body));
    world.server.connection_closed(second.connection, world.now);
    assert!(third.receive(&mut world).is_none(), "it was acknowledged");
}
