//! A guesser, good users around him, and their hosts, in virtual time.

use super::*;
use std::net::IpAddr;

struct World {
    guard: LogonGuard,
    now: Monotonic,
}

fn host(text: &str) -> PeerHost {
    text.parse::<IpAddr>().unwrap().into()
}

fn attempt(user: &str, from: &str) -> Attempt {
    Attempt { user: user.into(), host: host(from), in_own_session: false }
}

impl World {
    fn new() -> Self {
        Self { guard: LogonGuard::default(), now: Monotonic(1) }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// `None`: refused unchecked; else the delay.
    fn end(&mut self, attempt: Attempt, outcome: Outcome) -> Option<Duration> {
        match self.guard.admit(attempt, self.now) {
            Admission::Now(ticket) => {
                self.guard.end_attempt(&ticket, outcome, self.now);
                Some(Duration::ZERO)
            }
            Admission::At(due, ticket) => {
                let held = due.since(self.now);
                self.guard.end_attempt(&ticket, outcome, due);
                Some(held)
            }
            Admission::Refused => None,
        }
    }

    fn guess(&mut self, user: &str, from: &str) -> Option<Duration> {
        self.end(attempt(user, from), Outcome::Wrong)
    }

    fn log_on(&mut self, user: &str, from: &str) -> Option<Duration> {
        self.end(attempt(user, from), Outcome::Right)
    }

    /// Guesses sequentially, as fast as the guard allows. Returns the time taken.
    fn guess_often(&mut self, count: u32, user: impl Fn(u32) -> String, from: &str) -> Duration {
        let began = self.now;
        for at in 0..count {
            match self.guess(&user(at), from) {
                Some(held) => self.pass(held),
                None => self.pass(HELD_FOR_MAX),
            }
        }
        self.now.since(began)
    }
}

const SOON: Option<Duration> = Some(Duration::ZERO);

#[test]
fn three_hundred_guesses_of_one_host_take_far_more_than_a_minute() {
    let one_user = |_| "anna".to_owned();
    let many_users = |at| format!("user{at}");
    for from in ["10.0.0.1", "127.0.0.1", "fd00::1"] {
        assert!(World::new().guess_often(300, one_user, from) > Duration::from_secs(20 * 60), "{from}");
        assert!(World::new().guess_often(300, many_users, from) > Duration::from_secs(20 * 60), "{from}");
    }
}

#[test]
fn guesses_side_by_side_come_no_sooner_and_few_are_held() {
    let mut world = World::new();
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..300 {
        match world.guard.admit(attempt("anna", "10.0.0.1"), world.now) {
            Admission::Now(_) => {}
            Admission::At(due, _) => held.push(due.since(world.now).as_secs()),
            Admission::Refused => refused += 1,
        }
    }
    assert_eq!((held, refused), (vec![5, 10, 15], 287));
}

#[test]
fn addresses_of_one_ipv6_network_are_one_host() {
    let mut world = World::new();
    for at in 0..10 {
        assert_eq!(world.guess("anna", &format!("fd00::{at}")), SOON);
    }
    assert_ne!(world.guess("anna", "fd00::77"), SOON);
    assert_eq!(world.guess("bob", "fd00:0:0:1::77"), SOON);
}

#[test]
fn own_successes_between_guesses_at_others_change_nothing() {
    let mut world = World::new();
    let began = world.now;
    let mut seen = 0;
    while world.now.since(began) < Duration::from_secs(60) {
        world.log_on("mallory", "10.0.0.1");
        if let Some(held) = world.guess("anna", "10.0.0.1") {
            seen += 1;
            world.pass(held);
        } else {
            world.pass(Duration::from_secs(1));
        }
    }
    assert!(seen <= 10 + 60 / 5 + 1, "{seen}");
}

#[test]
fn who_guesses_keeps_a_user_out_neither_elsewhere_nor_for_good() {
    let mut world = World::new();
    // A thousand hosts guess at one user for an hour.
    for round in 0..6 {
        for at in 0..1000 {
            world.guess("anna", &format!("10.1.{}.{}", at / 250, at % 250));
        }
        world.pass(Duration::from_secs(600));
        assert_eq!(world.log_on("anna", "10.0.0.9"), SOON, "round {round}: from where she logged on before");
        world.guard.known = KnownHosts::default();
    }
    for at in 0..1000 {
        world.guess("anna", &format!("10.1.{}.{}", at / 250, at % 250));
    }
    let held = world.log_on("anna", "10.0.0.9").expect("from an address that is new she is held");
    assert!(held <= MILD_WAIT_MAX, "{held:?}");
    assert_eq!(world.log_on("anna", "10.0.0.9"), SOON, "and from then on not");
    // At an address that guesses itself she waits until its debt is paid off.
    world.guess_often(50, |_| "anna".into(), "10.1.0.1");
    world.pass(Duration::from_secs(120));
    assert!(world.log_on("anna", "10.1.0.1").is_some_and(|held| held <= HELD_FOR_MAX));
}

#[test]
fn neighbours_of_one_who_guesses_log_on_as_ever() {
    let mut world = World::new();
    assert_eq!(world.log_on("bob", "10.0.0.1"), SOON);
    for _ in 0..100 {
        world.guess("anna", "10.0.0.1");
        assert_eq!(world.log_on("bob", "10.0.0.1"), SOON);
    }
    // Except for a user whose password is guessed from his own address, as nothing distinguishes him from
    // the guesser.
    let mut seen = 0;
    for _ in 0..300 {
        seen += u32::from(world.guess("bob", "10.0.0.1") == SOON);
    }
    assert_eq!(seen, OF_KNOWN_HOST.free);
    assert_eq!(world.log_on("bob", "10.0.0.2"), SOON);
}

#[test]
fn a_logon_within_a_session_of_its_own_user_does_not_pay_for_its_address() {
    let mut world = World::new();
    world.guess_often(30, |_| "anna".into(), "10.0.0.1");
    assert_ne!(world.log_on("carol", "10.0.0.1"), SOON);
    let anew = Attempt { in_own_session: true, ..attempt("dave", "10.0.0.1") };
    assert_eq!(world.end(anew.clone(), Outcome::Right), SOON);
    // Nor for those who guess that user's password there.
    world.guess_often(30, |_| "dave".into(), "10.0.0.1");
    assert_eq!(world.end(anew.clone(), Outcome::Right), SOON);
    // The holder of a user's session does not guess that user's password in it faster.
    let seen = (0..300).filter(|_| world.end(anew.clone(), Outcome::Wrong) == SOON).count();
    assert_eq!(seen, OF_OWN_SESSION.free as usize);
}

#[test]
fn what_was_not_looked_at_costs_nothing() {
    let mut world = World::new();
    for _ in 0..1000 {
        assert_eq!(world.end(attempt("anna", "10.0.0.1"), Outcome::Unseen), SOON);
        assert_eq!(world.log_on("anna", "10.0.0.1"), SOON);
    }
    assert!(world.guard.hosts.found.is_empty() && world.guard.users.found.is_empty());
}

#[test]
fn memory_is_bounded_and_who_owes_most_is_not_forgotten() {
    let mut world = World::new();
    world.guess_often(40, |_| "anna".into(), "10.0.0.1");
    let owed = world.guard.hosts.of(&host("10.0.0.1"), world.now).owed(OF_HOST, world.now);
    assert!(owed >= OF_HOST.free);
    for at in 0..40_000_u32 {
        let from = IpAddr::from((0x0B00_0000 + at).to_be_bytes()).to_string();
        world.guess(&format!("user{at}"), &from);
        assert!(world.guard.hosts.found.len() <= DEBTS_MAX);
        assert!(world.guard.users.found.len() <= DEBTS_MAX);
    }
    assert_ne!(world.guess("anna", "10.0.0.1"), SOON, "it still owes");
    assert!(world.guard.held.len() <= HELD_MAX);
    for at in 0..40_000_u32 {
        let from = IpAddr::from((0x0C00_0000 + at).to_be_bytes()).to_string();
        world.log_on(&format!("user{}", at % 500), &from);
        assert!(world.guard.known.count <= KNOWN_HOSTS_MAX);
    }
    let of_users = world.guard.known.by_user.values().map(Vec::len);
    assert_eq!(of_users.clone().sum::<usize>(), world.guard.known.count);
    assert!(of_users.max() <= Some(KNOWN_HOSTS_PER_USER_MAX));
}

#[test]
fn a_name_is_the_same_in_any_case_and_bounded() {
    assert_eq!(UserName::from("Anna"), UserName::from("aNNA"));
    assert!(UserName::from("x".repeat(100_000).as_str()).0.len() <= NAME_CHARACTERS_MAX);
}

#[test]
fn refusals_come_later_up_to_eight_times() {
    let first = Duration::from_millis(250);
    let late: Vec<u128> = (0..6).map(|failures| lateness(first, failures).as_millis()).collect();
    assert_eq!(late, [250, 250, 500, 1000, 2000, 2000]);
    assert_eq!(lateness(first, u32::MAX).as_millis(), 2000);
}
