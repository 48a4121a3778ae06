//! Encrypted messages, and the fate of plain ones.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

#[test]
fn encrypted_requests_get_encrypted_answers() {
    for dialect in [0x0300, 0x0302, 0x0311] {
        let mut world = World::new();
        let mut client = Client::new(&mut world);
        client.negotiate(&mut world, &Wishes { dialects: vec![dialect], ..Default::default() });
        client.log_on(&mut world, PASSWORD);
        client.seal = true;
        assert_eq!(client.tree_connect(&mut world, "secret"), NtStatus::SUCCESS);
        let file = client.create(&mut world, "file");
        client.call(&mut world, Command::Write, Client::write_body(file, &[3; 4096]));
        let read = client.build(Command::Read, Client::read_body(file, 4096));
        let read = client.protect(read);
        world.deliver(client.connection, &read);
        let raw = world.sent(client.connection).unwrap();
        assert!(raw.starts_with(&PROTOCOL_TRANSFORM));
    }
}

#[test]
fn the_payload_of_an_encrypted_write_lies_at_a_page_boundary() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.seal = true;
    let file = client.create(&mut world, "file");
    client.call(&mut world, Command::Write, Client::write_body(file, &[3; 4096]));
    let layer = world.layer.0.borrow();
    let Some((_, volume::backend::Operation::Write { data, .. })) = layer.asked.last() else {
        panic!("a write");
    };
    assert!(data.parts()[0].is_aligned());
}

#[test]
fn an_encrypted_share_is_reached_only_encrypted() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    assert_eq!(client.tree_connect(&mut world, "secret"), NtStatus::SUCCESS);
    let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::ACCESS_DENIED);
    client.seal = true;
    client.create(&mut world, "file");
}

#[test]
fn a_client_that_cannot_encrypt_is_refused_by_an_encrypted_share() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes { dialects: vec![0x0210], ..Default::default() });
    client.log_on(&mut world, PASSWORD);
    assert_eq!(client.tree_connect(&mut world, "secret"), NtStatus::ACCESS_DENIED);
}

#[test]
fn where_encryption_is_required_everything_else_is_refused() {
    let mut world = World::with(|config| config.require_encryption = true);
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes::default());
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::ACCESS_DENIED);
    client.seal = true;
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);

    let mut old = Client::new(&mut world);
    old.negotiate(&mut world, &Wishes { dialects: vec![0x0210], ..Default::default() });
    assert_eq!(old.log_on(&mut world, PASSWORD), NtStatus::ACCESS_DENIED);
}

#[test]
fn a_message_changed_on_its_way_ends_the_connection() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.seal = true;
    let message = client.build(Command::Create, Client::create_body("file"));
    let mut message = client.protect(message);
    let last = message.len() - 1;
    message[last] ^= 1;
    world.deliver(client.connection, &message);
    assert!(world.is_closing(client.connection));
    assert!(world.layer.0.borrow().asked.is_empty());
}

#[test]
fn one_session_cannot_speak_under_the_encryption_of_another() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let second = Client::ready(&mut world);
    // Encrypted by the first session, but naming the second in the header inside.
    let own = first.session;
    first.session = second.session;
    let inner = first.build(Command::Create, Client::create_body("file"));
    first.session = own;
    first.seal = true;
    let message = first.protect(inner);
    world.deliver(first.connection, &message);
    assert!(world.is_closing(first.connection), "MS-SMB2 3.3.5.2.1.1");
    assert!(world.layer.0.borrow().asked.is_empty());
}

#[test]
fn a_logon_anew_is_not_protected_by_the_encryption_of_another_session() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let own = first.session;
    first.session = 0;
    assert_eq!(first.log_on(&mut world, PASSWORD), NtStatus::SUCCESS, "a second session of the connection");
    let second = std::mem::replace(&mut first.session, own);
    assert_ne!(second, own);
    // The keys are those of the second session now: it names the first one inside.
    let inner = first.build(Command::SessionSetup, |out| {
        write_session_setup_request(out, SessionSetupRequestBody::default(), b"token");
    });
    let mut message = vec![0; TRANSFORM_HEADER_BYTES + inner.len()];
    first.sealing.as_mut().unwrap().0.seal_parts(&[&inner], &mut message, second).unwrap();
    world.deliver(first.connection, &message);
    assert!(world.is_closing(first.connection));
    assert!(first.receive(&mut world).is_none());
}

/// Whether a break of the client's own comes encrypted.
fn is_told_encrypted(world: &mut World, client: &Client, event: volume::backend::Event) -> bool {
    world.layer.0.borrow_mut().events.push_back(event);
    world.run_until_idle();
    let raw = world.sent(client.connection).expect("the break");
    let header = *Header::parse(&client.open(&raw)).unwrap();
    assert_eq!(header.command(), Some(Command::OplockBreak));
    raw.starts_with(&PROTOCOL_TRANSFORM)
}

#[test]
fn breaks_of_oplocks_and_leases_are_encrypted_where_the_share_is() {
    use volume::backend::{Event, LeaseState, OpenId, OplockLevel, SessionId};
    for (share, encrypted) in [("share", false), ("secret", true)] {
        let mut world = World::new();
        let mut client = Client::ready(&mut world);
        client.seal = encrypted;
        client.tree_connect(&mut world, share);
        let mut contexts = CreateContextWriter::default();
        contexts.push_struct(CONTEXT_LEASE, &LeaseV2 { key: [1; 16], ..Default::default() });
        for (level, contexts) in [(OPLOCK_LEVEL_BATCH, vec![]), (OPLOCK_LEVEL_LEASE, contexts.finish())] {
            let answer = client.call(&mut world, Command::Create, |out| {
                let body = CreateRequestBody {
                    requested_oplock_level: level,
                    impersonation_level: 2.into(),
                    desired_access: 0x001F_01FF.into(),
                    create_disposition: FILE_OPEN_IF.into(),
                    ..Default::default()
                };
                write_create_request(out, body, &wide_from_str("file"), &contexts);
            });
            assert_eq!(status(&answer), NtStatus::SUCCESS);
        }
        let oplock = Event::BreakOplock { open: OpenId(1), session: SessionId(0), to: OplockLevel::LevelII };
        assert_eq!(is_told_encrypted(&mut world, &client, oplock), encrypted, "{share}");
        let lease = Event::BreakLease {
            client: [5; 16],
            key: [1; 16],
            from: LeaseState::all(),
            to: LeaseState::READ,
            acknowledge: true,
            epoch: 1,
        };
        assert_eq!(is_told_encrypted(&mut world, &client, lease), encrypted, "{share}");
    }
}
