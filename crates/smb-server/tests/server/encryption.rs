//! What is encrypted, and what happens to what is not.

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
    let answer = first.receive(&mut world).unwrap();
    assert_eq!(status(&answer), NtStatus::USER_SESSION_DELETED);
}
