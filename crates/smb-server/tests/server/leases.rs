//! Leases and oplocks of several users: client and key of a lease are no secret, and give nobody a part in it.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;
use volume::backend::{Event, LeaseState};

const KEY: [u8; 16] = [8; 16];
const VICTIM: [u8; 16] = [5; 16];
/// READ, WRITE and HANDLE (MS-SMB2 2.2.13.2.8).
const RWH: u32 = 7;
const RH: u32 = 3;

fn client(world: &mut World, user: &str, guid: [u8; 16]) -> Client {
    let mut client = Client::new(world);
    client.user = user.to_owned();
    client.guid = guid;
    client.negotiate(world, &Wishes::default());
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(world, "share"), NtStatus::SUCCESS);
    client
}

/// A CREATE of `file` for reading and writing, under a lease if there is a key.
fn open(client: &mut Client, key: Option<[u8; 16]>, oplock: u8) -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    if let Some(key) = key {
        contexts.push_struct(CONTEXT_LEASE, &LeaseV2 { key, state: RWH.into(), ..Default::default() });
    }
    let contexts = contexts.finish();
    client.build(Command::Create, |out| {
        let body = CreateRequestBody {
            requested_oplock_level: if key.is_some() { OPLOCK_LEVEL_LEASE } else { oplock },
            impersonation_level: 2.into(),
            desired_access: 0x0012_019F.into(),
            share_access: 7.into(),
            create_disposition: FILE_OPEN_IF.into(),
            ..Default::default()
        };
        write_create_request(out, body, &wide_from_str("file"), &contexts);
    })
}

/// The level granted; `None`: it waits.
fn opened(client: &mut Client, world: &mut World) -> Option<u8> {
    let answer = client.receive(world)?;
    if status(&answer) == NtStatus::PENDING {
        return None;
    }
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    Some(CreateResponse::parse(&answer).unwrap().oplock_level)
}

fn acknowledge(client: &mut Client, world: &mut World, state: u32) -> NtStatus {
    let answer = client.call(world, Command::OplockBreak, |out| {
        out.put(&LeaseBreakBody { lease_key: KEY, lease_state: state.into(), ..Default::default() });
    });
    status(&answer)
}

/// Makes a victim that holds a lease, and a client that named the victim's ClientGuid before.
fn held() -> (World, Client, Client) {
    let mut world = World::over_volume();
    let mallory = client(&mut world, "second", VICTIM);
    let mut victim = client(&mut world, "user", VICTIM);
    let request = open(&mut victim, Some(KEY), 0);
    victim.send(&mut world, request);
    assert_eq!(opened(&mut victim, &mut world), Some(OPLOCK_LEVEL_LEASE));
    (world, mallory, victim)
}

#[test]
fn a_break_is_told_to_the_sessions_that_have_the_lease_and_acknowledged_by_them_alone() {
    let (mut world, mut mallory, mut victim) = held();
    let mut third = client(&mut world, "third", [6; 16]);
    let request = open(&mut third, None, OPLOCK_LEVEL_NONE);
    third.send(&mut world, request);
    assert_eq!(opened(&mut third, &mut world), None, "it waits for what the victim caches");
    assert!(mallory.receive(&mut world).is_none(), "a ClientGuid is no proof");
    let told = victim.receive(&mut world).expect("the break");
    assert_eq!(LeaseBreakNotification::parse(&told).unwrap().lease_key, KEY);
    assert_eq!(acknowledge(&mut mallory, &mut world, 0), NtStatus::OBJECT_NAME_NOT_FOUND);
    world.run_until_idle();
    assert!(third.receive(&mut world).is_none(), "the victim has not written back yet");
    assert_eq!(acknowledge(&mut victim, &mut world, RH), NtStatus::SUCCESS);
    assert!(opened(&mut third, &mut world).is_some());
}

#[test]
fn an_open_by_another_user_under_the_same_client_and_key_breaks_the_lease_and_gets_none() {
    let (mut world, mut mallory, mut victim) = held();
    let request = open(&mut mallory, Some(KEY), 0);
    mallory.send(&mut world, request);
    assert_eq!(opened(&mut mallory, &mut world), None);
    assert!(victim.receive(&mut world).is_some(), "the break");
    assert_eq!(acknowledge(&mut victim, &mut world, RH), NtStatus::SUCCESS);
    assert_eq!(opened(&mut mallory, &mut world), Some(OPLOCK_LEVEL_NONE));
}

#[test]
fn a_break_whose_acknowledgment_was_refused_is_told_again_when_its_connection_is_lost() {
    let (mut world, _, mut victim) = held();
    let mut further = Client::new(&mut world);
    further.guid = VICTIM;
    further.negotiate(&mut world, &Wishes::default());
    assert_eq!(further.bind(&mut world, &victim), NtStatus::SUCCESS);
    let mut third = client(&mut world, "third", [6; 16]);
    let request = open(&mut third, None, OPLOCK_LEVEL_NONE);
    third.send(&mut world, request);
    assert!(victim.receive(&mut world).is_some(), "the break");
    assert_eq!(acknowledge(&mut victim, &mut world, RWH), NtStatus::REQUEST_NOT_ACCEPTED);
    world.server.connection_closed(victim.connection, world.now);
    world.run_until_idle();
    assert!(further.receive(&mut world).is_some(), "the break, again");
}

#[test]
fn a_break_that_comes_before_the_answer_to_its_leases_create_is_told_with_it() {
    let mut world = World::new();
    let mut first = client(&mut world, "user", VICTIM);
    world.layer.0.borrow_mut().hold = true;
    world.layer.0.borrow_mut().breaking = true;
    let request = open(&mut first, Some(KEY), 0);
    first.send(&mut world, request);
    let (from, to) = (LeaseState::all(), LeaseState::READ);
    let event = Event::BreakLease { client: VICTIM, key: KEY, from, to, acknowledge: true, epoch: 2 };
    world.layer.0.borrow_mut().events.push_back(event);
    world.run_until_idle();
    assert!(first.receive(&mut world).is_none(), "nobody has the lease yet");
    world.layer.release(0);
    world.run_until_idle();
    let mut commands = Vec::new();
    while let Some(message) = first.receive(&mut world) {
        commands.push(Header::parse(&message).unwrap().command());
    }
    assert_eq!(commands, [Some(Command::OplockBreak), Some(Command::Create)]);
}

#[test]
fn an_oplock_ends_with_a_wrong_acknowledgment_and_the_other_client_goes_on_at_once() {
    for level in [OPLOCK_LEVEL_LEASE, OPLOCK_LEVEL_BATCH, OPLOCK_LEVEL_EXCLUSIVE, 0x55] {
        let mut world = World::over_volume();
        let mut first = client(&mut world, "user", [1; 16]);
        let request = open(&mut first, None, OPLOCK_LEVEL_BATCH);
        first.send(&mut world, request);
        let answer = first.receive(&mut world).unwrap();
        let created = CreateResponse::parse(&answer).unwrap();
        assert_eq!(created.oplock_level, OPLOCK_LEVEL_BATCH);
        let file_id = created.file_id;
        let mut second = client(&mut world, "user", [2; 16]);
        let request = open(&mut second, None, OPLOCK_LEVEL_NONE);
        second.send(&mut world, request);
        assert_eq!(opened(&mut second, &mut world), None);
        assert!(first.receive(&mut world).is_some(), "the break");
        let answer = first.call(&mut world, Command::OplockBreak, |out| {
            out.put(&OplockBreakBody { oplock_level: level, file_id, ..Default::default() });
        });
        assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER, "{level:#x}");
        assert!(opened(&mut second, &mut world).is_some(), "{level:#x}: it waits");
    }
}
