//! Persistent handles on the wire: of continuously available shares, over a start of the server.

use crate::channels::channel;
use crate::fixture::*;
use smb::wire::*;
use smb_server::Directory;
use sys::Buf;
use types::{NtStatus, VolumeId};

const GUID: Guid = [8; 16];
const KEY: Guid = [5; 16];
const RWH: u32 = 7;

/// Makes the share continuously available.
fn lasting(world: &mut World) {
    let mut share = (*world.people.share("share").expect("a share")).clone();
    share.options.continuously_available = true;
    world.people.0.borrow_mut().shares.insert("share".into(), Some(share));
    world.server.directory_changed(world.now);
}

fn lease(contexts: &mut CreateContextWriter) {
    let lease = LeaseV2 { key: KEY, state: RWH.into(), ..Default::default() };
    contexts.push_struct(CONTEXT_LEASE, &lease);
}

/// A CREATE with a lease, made anew, again, or back from a lost connection.
fn create_with(
    client: &mut Client,
    world: &mut World,
    flags: HeaderFlags,
    contexts: CreateContextWriter,
) -> Vec<u8> {
    let message = create_message(client, flags, contexts);
    client.send(world, message);
    client.receive(world).expect("an answer")
}

fn create_message(client: &mut Client, flags: HeaderFlags, contexts: CreateContextWriter) -> Vec<u8> {
    let body = CreateRequestBody {
        impersonation_level: 2.into(),
        desired_access: 0x001F_01FF.into(),
        requested_oplock_level: OPLOCK_LEVEL_LEASE,
        create_disposition: FILE_CREATE.into(),
        ..Default::default()
    };
    let (name, contexts) = (wide_from_str("file"), contexts.finish());
    let mut message = client.build(Command::Create, |out| write_create_request(out, body, &name, &contexts));
    let at = std::mem::offset_of!(Header, flags);
    let all =
        HeaderFlags::from_bits_retain(u32::from_le_bytes(message[at..at + 4].try_into().unwrap())) | flags;
    message[at..at + 4].copy_from_slice(&all.bits().to_le_bytes());
    client.protect(message)
}

fn wanted() -> CreateContextWriter {
    let mut contexts = CreateContextWriter::default();
    let durable =
        DurableRequestV2 { flags: DURABLE_FLAG_PERSISTENT.into(), create_guid: GUID, ..Default::default() };
    contexts.push_struct(CONTEXT_DURABLE_REQUEST_V2, &durable);
    lease(&mut contexts);
    contexts
}

fn lost(file_id: FileId, flags: u32) -> CreateContextWriter {
    let mut contexts = CreateContextWriter::default();
    let durable = DurableReconnectV2 { file_id, create_guid: GUID, flags: flags.into() };
    contexts.push_struct(CONTEXT_DURABLE_RECONNECT_V2, &durable);
    lease(&mut contexts);
    contexts
}

/// The granted lease state, and the flags of the durable handle if the answer has any.
fn granted(answer: &[u8]) -> (u32, Option<u32>) {
    let answer = CreateResponse::parse(answer).expect("a CREATE's answer");
    let (mut state, mut flags) = (0, None);
    for context in answer.contexts().expect("contexts") {
        let context = context.expect("a context");
        match context.name {
            CONTEXT_LEASE => state = u32::from_le_bytes(context.data[16..20].try_into().unwrap()),
            CONTEXT_DURABLE_REQUEST_V2 => {
                flags = Some(u32::from_le_bytes(context.data[4..8].try_into().unwrap()));
            }
            _ => {}
        }
    }
    (state, flags)
}

#[test]
fn a_handle_its_lease_and_its_file_id_outlive_the_server() {
    let disk = LastingDisk::default();
    let mut world = World::over_disk(&disk);
    lasting(&mut world);
    let mut client = Client::ready(&mut world);
    let answer = create_with(&mut client, &mut world, HeaderFlags::empty(), wanted());
    assert_eq!(granted(&answer), (RWH, Some(DURABLE_FLAG_PERSISTENT)));
    let file_id = CreateResponse::parse(&answer).unwrap().file_id;
    drop((client, world));

    let mut world = World::started_again(&disk);
    lasting(&mut world);
    let mut intruder = Client::new(&mut world);
    intruder.guid = [99; 16];
    intruder.negotiate(&mut world, &Wishes::default());
    assert_eq!(intruder.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(intruder.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    let answer = intruder.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::FILE_NOT_AVAILABLE);
    let mut client = Client::ready(&mut world);
    let without = create_with(&mut client, &mut world, HeaderFlags::empty(), lost(file_id, 0));
    assert_eq!(status(&without), NtStatus::OBJECT_NAME_NOT_FOUND, "the flag says which handle is meant");
    let answer =
        create_with(&mut client, &mut world, HeaderFlags::empty(), lost(file_id, DURABLE_FLAG_PERSISTENT));
    assert_eq!((status(&answer), granted(&answer).0), (NtStatus::SUCCESS, RWH));
    let found = CreateResponse::parse(&answer).unwrap().file_id;
    assert_eq!(found.persistent, file_id.persistent);
    let answer = client.call(&mut world, Command::Write, Client::write_body(found, b"mine"));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

#[test]
fn a_handle_whose_reconnect_was_answered_to_a_dead_channel_can_be_had_by_another() {
    let disk = LastingDisk::default();
    let mut world = World::over_disk(&disk);
    lasting(&mut world);
    let mut client = Client::ready(&mut world);
    let answer = create_with(&mut client, &mut world, HeaderFlags::empty(), wanted());
    let file_id = CreateResponse::parse(&answer).unwrap().file_id;
    drop((client, world));

    let mut world = World::started_again(&disk);
    lasting(&mut world);
    let mut first = Client::ready(&mut world);
    let mut second = channel(&mut world, &first);
    second.sign = true;
    let back = || lost(file_id, DURABLE_FLAG_PERSISTENT);
    let message = create_message(&mut first, HeaderFlags::empty(), back());
    world.server.handle_message(first.connection, Buf::from(&message[..]), world.now);
    world.server.connection_closed(first.connection, world.now);
    world.run_until_idle();
    assert_eq!((world.opens_in_volume(), world.server.gauges().opens), (1, 0), "it waits for its client");
    let answer = create_with(&mut second, &mut world, HeaderFlags::empty(), back());
    assert_eq!((status(&answer), granted(&answer).0), (NtStatus::SUCCESS, RWH));
    let found = CreateResponse::parse(&answer).unwrap().file_id;
    let answer = second.call(&mut world, Command::Write, Client::write_body(found, b"mine"));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

#[test]
fn a_create_said_again_after_a_start_is_answered_as_the_first_time() {
    let disk = LastingDisk::default();
    let mut world = World::over_disk(&disk);
    lasting(&mut world);
    let mut client = Client::ready(&mut world);
    create_with(&mut client, &mut world, HeaderFlags::empty(), wanted());
    drop((client, world));

    let mut world = World::started_again(&disk);
    lasting(&mut world);
    let mut client = Client::ready(&mut world);
    let fresh = create_with(&mut client, &mut world, HeaderFlags::empty(), wanted());
    assert_eq!(status(&fresh), NtStatus::DUPLICATE_OBJECTID);
    let answer = create_with(&mut client, &mut world, HeaderFlags::REPLAY_OPERATION, wanted());
    assert_eq!(
        (status(&answer), granted(&answer)),
        (NtStatus::SUCCESS, (RWH, Some(DURABLE_FLAG_PERSISTENT)))
    );
}

#[test]
fn a_client_that_does_not_know_persistent_handles_gets_durable_ones() {
    let disk = LastingDisk::default();
    let mut world = World::over_disk(&disk);
    lasting(&mut world);
    let mut client = Client::new(&mut world);
    let capabilities = 0x7F & !Capabilities::PERSISTENT_HANDLES.bits();
    let wishes = Wishes { capabilities, ..Wishes::default() };
    client.negotiate(&mut world, &wishes);
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    client.sign = true;
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    let answer = create_with(&mut client, &mut world, HeaderFlags::empty(), wanted());
    assert_eq!(granted(&answer), (RWH, Some(0)));
    drop((client, world));
    assert_eq!(World::started_again(&disk).opens_in_volume(), 0);
}

#[test]
fn a_handle_whose_share_is_gone_after_a_start_goes_with_it() {
    let disk = LastingDisk::default();
    let mut world = World::over_disk(&disk);
    lasting(&mut world);
    let mut client = Client::ready(&mut world);
    create_with(&mut client, &mut world, HeaderFlags::empty(), wanted());
    drop((client, world));

    let mut world = World::started_again(&disk);
    lasting(&mut world);
    world.run_until_idle();
    assert_eq!(world.opens_in_volume(), 1);
    world.people.0.borrow_mut().shares.insert("share".into(), None);
    world.server.directory_changed(world.now);
    world.run_until_idle();
    assert_eq!(world.opens_in_volume(), 0);
}

/// A client of the share with a persistent handle, and another with a handle that is none.
fn two_clients(world: &mut World) -> (Client, FileId, Client, FileId) {
    lasting(world);
    let mut lasting = Client::ready(world);
    let answer = create_with(&mut lasting, world, HeaderFlags::empty(), wanted());
    let held = CreateResponse::parse(&answer).unwrap().file_id;
    let mut other = Client::ready(world);
    let passing = other.create(world, "other");
    (lasting, held, other, passing)
}

#[test]
fn a_volume_that_is_taken_away_ends_the_connection_of_a_persistent_handle_and_answers_nothing_on_it() {
    let mut world = World::over_disk(&LastingDisk::default());
    let (mut lasting, held, mut other, passing) = two_clients(&mut world);
    for (client, file) in [(&mut lasting, held), (&mut other, passing)] {
        let write = client.build(Command::Write, Client::write_body(file, b"late"));
        let write = client.protect(write);
        world.server.handle_message(client.connection, Buf::from(&write[..]), world.now);
    }
    assert_eq!(world.server.requests_in_work(), 2);
    world.server.remove_volume(VolumeId::from_bytes([9; 16]), world.now);
    assert_eq!(world.sent(lasting.connection), None, "an application takes that for the end of its handle");
    let answer = other.receive(&mut world).expect("an answer");
    assert_eq!(status(&answer), NtStatus::FILE_FORCED_CLOSED);
    let mut closing = Vec::new();
    world.server.take_closing(&mut closing);
    assert_eq!(closing, [lasting.connection], "and the other client goes on");
    assert_eq!(world.server.requests_in_work(), 0);
}

#[test]
fn a_server_that_stops_answers_what_it_was_asked_before_nothing_after_and_closes_the_connections() {
    let mut world = World::over_disk(&LastingDisk::default());
    let (mut lasting, held, _other, _) = two_clients(&mut world);
    let mut write = |world: &mut World| {
        let message = lasting.build(Command::Write, Client::write_body(held, b"some"));
        let message = lasting.protect(message);
        world.server.handle_message(lasting.connection, Buf::from(&message[..]), world.now);
    };
    write(&mut world);
    world.server.drain(None);
    assert!(world.server.owes_answers());
    write(&mut world);
    world.run_until_idle();
    assert!(!world.server.owes_answers(), "what comes too late is not taken into work");
    world.server.part_from_clients();
    let answer = lasting.receive(&mut world).expect("the answer to the first");
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert_eq!(world.sent(lasting.connection), None);
    assert!(world.is_closing(lasting.connection) && world.server.has_clients());
    assert!(world.connect().is_none(), "nobody is let in");
}
