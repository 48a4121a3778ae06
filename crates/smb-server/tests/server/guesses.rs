//! Guessing passwords: slow for guessers, not for others, and in the audit log.

use crate::fixture::*;
use smb_server::LogonAction;
use std::time::Duration;
use types::NtStatus;

const GUESSER: &str = "10.0.0.7";

/// Sends one wrong password over its own connection, without waiting for the answer.
fn guess(world: &mut World, user: &str, from: &str) -> Client {
    let mut client = Client::from(world, from);
    client.user = user.to_owned();
    assert_eq!(client.log_on(world, "wrong"), NtStatus::PENDING, "no wrong password is answered at once");
    client
}

/// Makes enough guesses that the next one is held.
fn use_up_free_guesses(world: &mut World, from: &str) {
    for _ in 0..10 {
        guess(world, "third", from);
    }
}

#[test]
fn after_three_hundred_guesses_at_once_the_right_password_is_refused_like_a_wrong_one() {
    let mut world = World::new();
    let mut guesses: Vec<Client> = (0..300).map(|_| guess(&mut world, "user", GUESSER)).collect();
    let counters = world.server.counters();
    assert_eq!((counters.logons_failed, counters.logons_delayed, counters.logons_refused), (10, 3, 287));
    let mut right = Client::from(&mut world, GUESSER);
    assert_eq!(right.log_on(&mut world, PASSWORD), NtStatus::PENDING);
    let late = right.wait_for_status(&mut world);
    assert_eq!(late.1, NtStatus::ACCOUNT_LOCKED_OUT);
    let mut wrong = guesses.pop().unwrap();
    assert_eq!(wrong.wait_for_status(&mut world).1, NtStatus::ACCOUNT_LOCKED_OUT);
    assert_eq!(world.server.gauges().sessions, 0);
    // The user can log on elsewhere immediately, and there too once the debt is paid off.
    let mut elsewhere = Client::from(&mut world, "10.0.0.9");
    assert_eq!(elsewhere.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    world.wait(Duration::from_secs(90));
    let mut again = Client::from(&mut world, GUESSER);
    assert_eq!(again.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}

#[test]
fn three_hundred_guesses_one_after_the_other_take_far_more_than_a_minute() {
    let mut world = World::new();
    let began = world.now;
    let mut seen = 0;
    while seen < 300 {
        let (_, told) = guess(&mut world, "user", GUESSER).wait_for_status(&mut world);
        seen += u32::from(told == NtStatus::LOGON_FAILURE);
    }
    assert!(world.now.since(began) > Duration::from_secs(20 * 60));
}

#[test]
fn a_held_logon_succeeds_when_its_time_has_come_and_not_before() {
    let mut world = World::new();
    use_up_free_guesses(&mut world, GUESSER);
    let mut right = Client::from(&mut world, GUESSER);
    let mut wrong = Client::from(&mut world, GUESSER);
    assert_eq!(right.log_on(&mut world, PASSWORD), NtStatus::PENDING);
    assert_eq!(wrong.log_on(&mut world, "wrong"), NtStatus::PENDING);
    world.wait(Duration::from_millis(4900));
    assert!(right.receive(&mut world).is_none() && wrong.receive(&mut world).is_none());
    let (_, told) = right.wait_for_status(&mut world);
    assert_eq!(told, NtStatus::SUCCESS);
    assert_eq!(right.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    assert_eq!(wrong.wait_for_status(&mut world).1, NtStatus::LOGON_FAILURE);
    assert_eq!(world.server.counters().logons_delayed, 2);
}

#[test]
fn a_held_logon_takes_no_second_token_and_goes_with_its_connection() {
    let mut world = World::new();
    use_up_free_guesses(&mut world, GUESSER);
    let mut client = Client::from(&mut world, GUESSER);
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::PENDING);
    let in_work = world.server.gauges().requests_in_work;
    world.server.connection_closed(client.connection, world.now);
    assert_eq!(world.server.gauges().requests_in_work, in_work - 1);
    world.wait(Duration::from_secs(60));
    assert_eq!((world.server.gauges().sessions, world.server.gauges().requests_in_work), (0, 0));
}

#[test]
fn a_neighbour_who_has_logged_on_before_does_not_wait_and_other_addresses_do_not_either() {
    let mut world = World::new();
    let mut neighbour = Client::from(&mut world, GUESSER);
    neighbour.user = "second".to_owned();
    assert_eq!(neighbour.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    for _ in 0..100 {
        guess(&mut world, "user", GUESSER);
    }
    let mut neighbour = Client::from(&mut world, GUESSER);
    neighbour.user = "SECOND".to_owned();
    assert_eq!(neighbour.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    let mut other = Client::from(&mut world, "10.0.0.8");
    assert_eq!(other.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    // The neighbour's success does not help the guesser.
    assert_eq!(
        guess(&mut world, "user", GUESSER).wait_for_status(&mut world).1,
        NtStatus::ACCOUNT_LOCKED_OUT
    );
}

#[test]
fn channels_and_logons_anew_of_a_session_do_not_wait_at_an_address_that_guesses() {
    let mut world = World::new();
    let first = Client::ready(&mut world);
    use_up_free_guesses(&mut world, GUESSER);
    let mut second = Client::from(&mut world, GUESSER);
    assert_eq!(second.try_bind_with(&mut world, &first, PASSWORD), Some(NtStatus::SUCCESS));
    assert_eq!(second.log_on(&mut world, PASSWORD), NtStatus::SUCCESS, "anew, in the session");
}

#[test]
fn a_session_of_ones_own_is_no_way_to_guess_others_passwords_faster() {
    let mut world = World::new();
    let first = Client::ready(&mut world);
    for _ in 0..300 {
        let mut channel = Client::from(&mut world, GUESSER);
        channel.user = "second".to_owned();
        assert_eq!(channel.try_bind_with(&mut world, &first, "wrong"), None);
    }
    let counters = world.server.counters();
    assert_eq!((counters.logons_failed, counters.logons_delayed, counters.logons_refused), (10, 3, 287));
}

#[test]
fn a_user_who_does_not_exist_is_refused_as_one_who_does() {
    let told = |user: &str| {
        let mut world = World::new();
        let mut guesses: Vec<Client> = (0..20).map(|_| guess(&mut world, user, GUESSER)).collect();
        guesses.iter_mut().map(|client| client.wait_for_status(&mut world)).collect::<Vec<_>>()
    };
    assert_eq!(told("user"), told("nobody"));
}

#[test]
fn who_names_nobody_is_refused_and_it_counts_as_no_guess() {
    let mut world = World::new();
    for _ in 0..50 {
        let mut client = Client::from(&mut world, GUESSER);
        client.begin_log_on(&mut world);
        let answer = client.session_setup(b"no token", None);
        client.send(&mut world, answer);
        assert_eq!(client.wait_for_status(&mut world).1, NtStatus::INVALID_PARAMETER);
    }
    let mut client = Client::from(&mut world, GUESSER);
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}

#[test]
fn failed_and_held_logons_are_lines_for_the_audit_log_and_many_of_them_few() {
    let mut world = World::new();
    guess(&mut world, "user", GUESSER);
    guess(&mut world, "no\nbody", GUESSER);
    let lines = world.server.take_logon_lines();
    let shown: Vec<_> =
        lines.iter().map(|line| (line.action, &*line.user, &*line.source, &*line.detail)).collect();
    assert_eq!(
        shown,
        [
            (LogonAction::Failed, "user", "10.0.0.7:50000", "wrong password"),
            (
                LogonAction::Failed,
                r"no\nbody",
                "10.0.0.7:50000",
                "there is no such user, or it may not log on"
            ),
        ]
    );
    // Held, refused, and then too many for their own entries.
    for _ in 0..8 {
        guess(&mut world, "user", "10.0.0.8");
        guess(&mut world, "user", GUESSER);
    }
    for _ in 0..500 {
        guess(&mut world, "user", GUESSER);
    }
    assert_eq!(world.server.take_logon_lines().len(), 8 + 8);
    world.wait(Duration::from_secs(61));
    let lines = world.server.take_logon_lines();
    assert_eq!((lines.len(), lines[0].action), (1, LogonAction::LeftOut));
    assert_eq!((&*lines[0].source, &*lines[0].detail), (GUESSER, "500 more in the same minute"));
    assert!(world.server.next_timeout().is_none_or(|at| at > world.now), "nothing is due for ever");
}

#[test]
fn a_held_and_a_refused_logon_are_told_as_such() {
    let mut world = World::new();
    // The free guesses have their entries in the minute before.
    world.wait(Duration::from_millis(59_900));
    use_up_free_guesses(&mut world, GUESSER);
    world.wait(Duration::from_millis(200));
    world.server.take_logon_lines();
    for _ in 0..5 {
        guess(&mut world, "user", GUESSER);
    }
    let told: Vec<_> = world.server.take_logon_lines().iter().map(|line| line.action).collect();
    let [delayed, refused] = [LogonAction::Delayed, LogonAction::Refused];
    assert_eq!(told, [delayed, delayed, delayed, refused, refused]);
}

#[test]
fn a_request_beside_a_held_logon_of_the_same_exchange_is_refused() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let session = client.session;
    for _ in 0..10 {
        guess(&mut world, "third", "10.0.0.2");
    }
    // In a session there are credits for a second request.
    client.session = 0;
    client.user = "third".to_owned();
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::PENDING);
    let second = client.session_setup(b"token", None);
    client.send(&mut world, second);
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::REQUEST_NOT_ACCEPTED);
    assert_eq!(client.wait_for_status(&mut world).1, NtStatus::SUCCESS);
    assert_ne!(client.session, session);
}
