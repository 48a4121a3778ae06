//! Logons that begin and do not end: they hold little, and take nobody's place.

use crate::fixture::*;
use smb::wire::*;
use std::time::Duration;
use types::NtStatus;

#[test]
fn one_connection_holds_few_half_logons_and_still_logs_on() {
    let mut world = World::new();
    let mut client = Client::from(&mut world, "10.0.0.2");
    for _ in 0..1000 {
        assert_eq!(client.begin_log_on(&mut world), NtStatus::MORE_PROCESSING_REQUIRED);
    }
    assert_eq!(world.server.gauges().setups, world.server.config().limits.setups_per_connection);
    assert_eq!(world.server.gauges().sessions, 0, "nobody has proved anything");
    assert_eq!(world.server.counters().setups_evicted, 1000 - 16);
    client.session = 0;
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}

#[test]
fn hosts_that_begin_logons_without_end_shut_nobody_out() {
    let mut world = World::with(|config| {
        config.limits.setups = 512;
        config.limits.setups_per_host = 64;
    });
    let limits = world.server.config().limits.clone();
    let mut begun = 0;
    // Twelve hosts of 5 connections with 16 half logons each: more than there are places.
    for host in 0..12 {
        for _ in 0..5 {
            let mut client = Client::from(&mut world, &format!("10.1.0.{host}"));
            for _ in 0..16 {
                assert_eq!(client.begin_log_on(&mut world), NtStatus::MORE_PROCESSING_REQUIRED);
                begun += 1;
            }
        }
    }
    assert!(begun > limits.setups);
    assert_eq!(world.server.gauges().setups, limits.setups);
    // From elsewhere, and from one of those hosts.
    for from in ["10.0.0.9", "10.1.0.3"] {
        let mut client = Client::from(&mut world, from);
        assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS, "{from}");
    }
    assert_eq!(world.server.gauges().sessions, 2);
}

#[test]
fn a_half_logon_of_a_good_client_outlives_a_flood_of_its_own_host() {
    let mut world = World::with(|config| config.limits.setups_per_host = 64);
    let mut good = Client::from(&mut world, "10.0.0.2");
    let flood = |world: &mut World| {
        for _ in 0..6 {
            let mut bad = Client::from(world, "10.0.0.2");
            for _ in 0..50 {
                bad.begin_log_on(world);
            }
        }
    };
    flood(&mut world);
    // More of it comes between the two halves.
    assert_eq!(good.log_on_with(&mut world, PASSWORD, flood), NtStatus::SUCCESS);
}

#[test]
fn a_half_logon_ends_after_its_time_and_nothing_prolongs_it() {
    let mut world = World::new();
    // Of a client that is logged on, whose connection therefore stays.
    let mut client = Client::ready(&mut world);
    client.begin_log_on(&mut world);
    let half = client.session;
    for _ in 0..4 {
        world.wait(Duration::from_secs(10));
        client.begin_log_on(&mut world);
    }
    assert_eq!(world.server.gauges().setups, 5);
    world.wait(Duration::from_secs(6));
    assert_eq!(world.server.gauges().setups, 4);
    client.session = half;
    let answer = client.call(&mut world, Command::SessionSetup, |out| {
        write_session_setup_request(out, SessionSetupRequestBody::default(), b"late");
    });
    assert_eq!(status(&answer), NtStatus::USER_SESSION_DELETED);
    world.wait(Duration::from_secs(46));
    assert_eq!(world.server.gauges().setups, 0);
}

#[test]
fn exchanges_of_sessions_that_exist_count_and_end_too() {
    let mut world = World::new();
    let mut first = Client::ready(&mut world);
    let session = first.session;
    first.begin_log_on_in(&mut world, session);
    assert_eq!(world.server.gauges().setups, 1, "a logon anew");
    world.wait(Duration::from_secs(46));
    assert_eq!(world.server.gauges().setups, 0);
    assert_eq!(world.server.gauges().sessions, 1, "the session goes on");
    first.session = session;
    assert_eq!(first.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
}

#[test]
fn a_lost_connection_takes_its_half_logons_along() {
    let mut world = World::new();
    let mut client = Client::from(&mut world, "10.0.0.2");
    client.begin_log_on(&mut world);
    world.server.connection_closed(client.connection, world.now);
    assert_eq!(world.server.gauges().setups, 0);
}

#[test]
fn a_session_setup_within_a_compound_is_refused() {
    let mut world = World::new();
    let mut client = Client::from(&mut world, "10.0.0.2");
    let setup = client.session_setup(b"token", None);
    let rest = vec![0; 100_000];
    let message = join(vec![setup, rest], false);
    client.send(&mut world, message);
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::INVALID_PARAMETER);
    assert_eq!((world.server.gauges().setups, world.server.gauges().requests_in_work), (0, 0));
}

#[test]
fn who_has_not_logged_on_gets_one_credit_at_a_time() {
    let mut world = World::new();
    let mut client = Client::from(&mut world, "10.0.0.2");
    let answer = client.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(Header::parse(&answer).unwrap().credits.get(), 1);
    client.begin_log_on(&mut world);
    client.session = 0;
    let answer = client.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(Header::parse(&answer).unwrap().credits.get(), 1);
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    let answer = client.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(Header::parse(&answer).unwrap().credits.get(), 64);
}

#[test]
fn one_user_takes_half_of_the_sessions_and_others_still_log_on() {
    let mut world = World::with(|config| config.limits.sessions = 16);
    let mut clients = Vec::new();
    for host in 0..20 {
        let mut client = Client::from(&mut world, &format!("10.0.1.{host}"));
        clients.push((client.log_on(&mut world, PASSWORD), client.connection));
    }
    let let_in = clients.iter().filter(|(status, _)| *status == NtStatus::SUCCESS).count();
    let refused = clients.iter().filter(|(status, _)| *status == NtStatus::INSUFFICIENT_RESOURCES).count();
    assert_eq!((let_in, refused), (8, 12));
    let mut other = Client::from(&mut world, "10.0.0.9");
    other.user = "second".to_owned();
    assert_eq!(other.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    // A refused user gets in once another session of his has ended.
    world.server.connection_closed(clients[0].1, world.now);
    world.server.connection_closed(clients[1].1, world.now);
    let mut late = Client::from(&mut world, "10.0.1.99");
    assert_eq!(late.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}

#[test]
fn who_has_not_logged_on_and_reads_no_answers_is_not_heard_for_long() {
    let mut world = World::new();
    let mut client = Client::from(&mut world, "10.0.0.2");
    let mut heard = 0;
    while world.server.wants_messages(client.connection) {
        let echo = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
        client.send(&mut world, echo);
        heard += 1;
        assert!(heard < 2000, "64 KiB are a thousand answers");
    }
    while client.receive(&mut world).is_some() {}
    assert!(world.server.wants_messages(client.connection));
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}
