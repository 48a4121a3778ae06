//! Logons that succeed, logons that fail, and the cost of each.

use crate::fixture::*;
use smb::wire::*;
use std::time::Duration;
use types::NtStatus;
use volume::backend::{OpenId, Operation};

#[test]
fn a_wrong_password_is_refused_late_and_others_do_not_wait() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes::default());
    assert!(client.try_log_on(&mut world, "wrong").is_none(), "the refusal waits");
    let other = Client::ready(&mut world);
    assert_ne!(other.session, 0);
    world.wait(Duration::from_secs(1));
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(status(&answer), NtStatus::LOGON_FAILURE);
    client.session = 0;
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}

#[test]
fn refusals_come_later_each_time_though_each_try_has_a_connection_of_its_own() {
    let mut world = World::new();
    let mut late = Vec::new();
    for _ in 0..3 {
        let mut client = Client::new(&mut world);
        client.negotiate(&mut world, &Wishes::default());
        assert!(client.try_log_on(&mut world, "wrong").is_none());
        let mut waited_ms = 0;
        while client.receive(&mut world).is_none() {
            world.wait(Duration::from_millis(50));
            waited_ms += 50;
        }
        late.push(waited_ms);
        world.server.connection_closed(client.connection, world.now);
    }
    assert_eq!(late, [250, 500, 1000]);
    // The right password is not held up.
    Client::ready(&mut world);
}

#[test]
fn the_volume_is_asked_for_the_same_open_after_a_start_of_the_server_as_before() {
    let mut first = World::new();
    let mut second = World::seeded(77);
    let reconnect = |world: &mut World, file_id: FileId| {
        let mut client = Client::ready(world);
        let mut contexts = CreateContextWriter::default();
        contexts.push_struct(CONTEXT_DURABLE_RECONNECT, &file_id);
        let contexts = contexts.finish();
        let name = wide_from_str("file");
        client.call(world, Command::Create, |out| {
            let body = CreateRequestBody { impersonation_level: 2.into(), ..Default::default() };
            write_create_request(out, body, &name, &contexts);
        });
        let layer = world.layer.0.borrow();
        match layer.asked.last() {
            Some((_, Operation::Reconnect(asked))) => asked.open,
            other => panic!("{other:?}"),
        }
    };
    let mut client = Client::ready(&mut first);
    let file_id = client.create(&mut first, "file");
    first.server.connection_closed(client.connection, first.now);
    // A volume never gives an identifier twice.
    assert_eq!(reconnect(&mut first, file_id), OpenId(1));
    assert_eq!(reconnect(&mut second, file_id), OpenId(1));
}

#[test]
fn requests_without_a_session_tree_or_file_are_told_which() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let (session, tree) = (client.session, client.tree);
    client.session = 77;
    let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::USER_SESSION_DELETED);
    client.session = session;
    client.tree = 77;
    let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
    assert_eq!(status(&answer), NtStatus::NETWORK_NAME_DELETED);
    client.tree = tree;
    let nothing = FileId { persistent: 1.into(), volatile: 1.into() };
    let answer = client.call(&mut world, Command::Read, Client::read_body(nothing, 1));
    assert_eq!(status(&answer), NtStatus::FILE_CLOSED);
}

#[test]
fn shares_that_are_not_there_or_not_allowed_are_refused() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    assert_eq!(client.tree_connect(&mut world, "nothing"), NtStatus::BAD_NETWORK_NAME);
    assert_eq!(client.tree_connect(&mut world, "forbidden"), NtStatus::ACCESS_DENIED);
}

#[test]
fn where_signing_is_required_unsigned_and_wrongly_signed_requests_are_refused() {
    let mut world = World::with(|config| config.require_signing = true);
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes::default());
    client.log_on(&mut world, PASSWORD);
    let answer = client.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&answer), NtStatus::ACCESS_DENIED);
    client.sign = true;
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    let message = client.build(Command::Create, Client::create_body("file"));
    let mut message = client.protect(message);
    message[100] ^= 1;
    world.deliver(client.connection, &message);
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(status(&answer), NtStatus::ACCESS_DENIED);
    assert!(world.layer.0.borrow().asked.is_empty(), "nothing was asked of the file layer");
}

#[test]
fn a_logon_that_was_meant_for_another_server_is_refused_unless_signing_makes_it_useless_to_others() {
    let log_on = |signing: bool, refuse: bool, target: &str| {
        let mut world = World::with(|config| {
            config.require_signing = signing;
            config.refuse_other_names = refuse;
            config.further_names = vec!["alias".to_owned()];
        });
        let mut client = Client::new(&mut world);
        client.negotiate(&mut world, &Wishes::default());
        client.target = target.to_owned();
        client.log_on(&mut world, PASSWORD)
    };
    for target in ["", "cifs/server", "cifs/10.0.0.1", "cifs/alias"] {
        for signing in [false, true] {
            assert_eq!(log_on(signing, true, target), NtStatus::SUCCESS, "{target}");
        }
    }
    for target in ["cifs/elsewhere", "http/server", "cifs/10.0.0.9"] {
        assert_eq!(log_on(false, false, target), NtStatus::ACCESS_DENIED, "{target}");
        assert_eq!(log_on(true, true, target), NtStatus::ACCESS_DENIED, "{target}");
        assert_eq!(log_on(true, false, target), NtStatus::SUCCESS, "{target}: it is told in the log");
    }
}

#[test]
fn signed_requests_get_signed_answers() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.sign = true;
    let file = client.create(&mut world, "file");
    let answer = client.call(&mut world, Command::Write, Client::write_body(file, b"hello"));
    assert!(client.is_signed(&answer));
    let answer = client.call(&mut world, Command::Read, Client::read_body(file, 5));
    assert!(client.is_signed(&answer));
    assert_eq!(ReadResponse::parse(&answer).unwrap().data().unwrap(), b"hello");
}

#[test]
fn logoff_ends_the_session_and_all_its_opens() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.create(&mut world, "file");
    assert_eq!(world.server.gauges().opens, 1);
    let answer = client.call(&mut world, Command::Logoff, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert_eq!((world.server.gauges().sessions, world.server.gauges().opens), (0, 0));
    let layer = world.layer.0.borrow();
    let (_, last) = layer.asked.last().unwrap();
    assert!(matches!(last, Operation::EndSession { .. }));
}

#[test]
fn a_lost_connection_keeps_durable_opens_and_cancels_what_is_in_work() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().hold = true;
    let read = client.build(Command::Read, Client::read_body(file, 5));
    client.send(&mut world, read);
    world.server.connection_closed(client.connection, world.now);
    let layer = world.layer.0.borrow();
    assert_eq!(layer.cancelled.len(), 1);
    assert!(layer.asked.iter().any(|(_, asked)| matches!(asked, Operation::EndSession { .. })));
    assert_eq!(world.server.gauges().requests_in_work, 0);
}

#[test]
fn a_new_session_of_the_same_user_ends_the_one_it_replaces() {
    let mut world = World::new();
    let first = Client::ready(&mut world);
    let mut second = Client::new(&mut world);
    second.negotiate(&mut world, &Wishes::default());
    assert_eq!(second.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(world.server.gauges().sessions, 2);
    assert!(world.server.close_session(first.session));
    assert_eq!(world.server.gauges().sessions, 1);
    assert!(!world.server.close_session(first.session));
}

#[test]
fn limits_of_connections_and_sessions_hold() {
    let mut world = World::with(|config| {
        config.limits.connections = 2;
        config.limits.sessions = 1;
    });
    let _first = Client::ready(&mut world);
    let mut second = Client::new(&mut world);
    assert!(world.connect().is_none());
    second.negotiate(&mut world, &Wishes::default());
    assert_eq!(second.log_on(&mut world, PASSWORD), NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(world.server.gauges().sessions, 1);
}

#[test]
fn a_connection_that_never_logs_on_is_closed() {
    let mut world = World::new();
    let client = Client::new(&mut world);
    world.wait(Duration::from_secs(60));
    assert!(world.is_closing(client.connection));
}
