//! Message identifiers and the credits of large requests.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

#[test]
fn an_identifier_used_twice_or_never_granted_ends_the_connection() {
    for wrong in [0_u64, 1 << 40] {
        let mut world = World::new();
        let mut client = Client::ready(&mut world);
        client.message_id = wrong;
        let echo = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
        world.deliver(client.connection, &echo);
        assert!(world.is_closing(client.connection));
    }
}

#[test]
fn a_request_larger_than_its_credits_is_invalid() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 65537));
    assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER);
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 65536));
    assert_eq!(status(&answer), NtStatus::END_OF_FILE);
}

#[test]
fn a_large_request_takes_as_many_identifiers_as_it_pays() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let mut message = client.build(Command::Read, Client::read_body(file, 2 << 16));
    Header::in_place(&mut message).unwrap().credit_charge = 2.into();
    client.message_id += 1;
    client.send(&mut world, message);
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::END_OF_FILE);
    let answer = client.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

#[test]
fn credits_asked_for_are_granted_up_to_the_limit() {
    let mut world = World::with(|config| config.limits.credits = 128);
    let mut client = Client::ready(&mut world);
    let mut granted = Vec::new();
    for _ in 0..10 {
        let mut message = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
        Header::in_place(&mut message).unwrap().credits = 1000.into();
        client.send(&mut world, message);
        let answer = client.receive(&mut world).unwrap();
        granted.push(Header::parse(&answer).unwrap().credits.get());
    }
    // Full: used credits come back, and no more.
    assert!(granted[1..].iter().all(|granted| *granted == 1), "{granted:?}");
}
