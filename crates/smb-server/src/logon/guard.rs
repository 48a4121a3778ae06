//! Limits the rate of password checks: makes guessing slow.
//!
//! Owns the cost of failed logons. Every attempt is charged before its password is checked, and paid
//! back only if the password was right. A debtor waits for the *attempt*, not for its refusal: until
//! then nothing distinguishes a right password from a wrong one. An attempt that would wait longer than
//! [`HELD_FOR_MAX`] is refused unchecked.
//!
//! Four debts, each of which time alone pays off, so that nobody is locked out for good:
//!
//! - of a **host**, for all users that it tries. No success lessens it: a guesser may have an account,
//!   or share one address with good users.
//! - of a **user**, from anywhere. It delays hosts with recent failures by up to [`HELD_FOR_MAX`],
//!   others by at most [`MILD_WAIT_MAX`]. So a guesser cannot lock out the user at other addresses.
//! - of a user **at a host from which that user has logged on** before. It replaces the other two
//!   there: neighbours behind one address, and guesses from elsewhere, do not delay the user.
//! - of a user **in a session of that user**, for repeated logons and further channels, which the
//!   session's key protects: nobody else's guesses delay them.
//!
//! Existing users and others are treated alike. Memory is bounded; when it is full the smallest debts
//! are forgotten, never the largest, and of users' known hosts the oldest of the user with the most.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use types::{Monotonic, PeerHost};

/// A host's failures: 10 are free, and one is paid off every 5 seconds, so that 300 guesses take 24 minutes.
const OF_HOST: Terms = Terms { free: 10, each: Duration::from_secs(5) };
/// A user's failures, from all hosts together.
const OF_USER: Terms = Terms { free: 20, each: Duration::from_secs(2) };
/// A user's failures at a host from which that user has logged on. Few are free: one address may have many of these.
const OF_KNOWN_HOST: Terms = Terms { free: 5, each: Duration::from_secs(5) };
/// A user's failures within sessions of that user, wherever they are.
const OF_OWN_SESSION: Terms = Terms { free: 5, each: Duration::from_secs(5) };
/// Longest delay of an attempt: smbclient gives up after 20 seconds.
const HELD_FOR_MAX: Duration = Duration::from_secs(15);
/// Longest delay by others' failures of a host without its own.
const MILD_WAIT_MAX: Duration = Duration::from_secs(2);
/// The time for which a host counts as one that has failed.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Attempts that are held at a time.
const HELD_MAX: usize = 256;
const HELD_PER_HOST_MAX: usize = 4;
/// Hosts, and users, whose debts are remembered.
const DEBTS_MAX: usize = 8192;
/// Hosts that users have logged on from.
const KNOWN_HOSTS_MAX: usize = 16_384;
const KNOWN_HOSTS_PER_USER_MAX: usize = 64;
/// Characters of a user's name that are compared: longer than any account's.
const NAME_CHARACTERS_MAX: usize = 128;
/// Doublings of the first refusal's lateness.
const LATENESS_DOUBLED_MAX: u32 = 3;

/// How a debt grows and is paid off.
#[derive(Debug, Clone, Copy)]
struct Terms {
    free: u32,
    each: Duration,
}

/// Attempts that are not paid off yet.
#[derive(Debug, Clone, Copy)]
struct Debt {
    /// Time at which the debt is paid off, if nothing is added.
    paid_at: Monotonic,
    /// The last failure.
    failed_at: Option<Monotonic>,
}

impl Debt {
    fn none(now: Monotonic) -> Self {
        Self { paid_at: now, failed_at: None }
    }

    /// Returns the time until one more attempt is within the terms.
    fn wait(&self, terms: Terms, now: Monotonic) -> Duration {
        self.paid_at.since(now).saturating_sub(terms.each * (terms.free - 1))
    }

    /// Adds an attempt. The debt is bounded: no wait grows past [`HELD_FOR_MAX`] and one attempt more.
    fn charge(&mut self, terms: Terms, now: Monotonic) {
        let most = now.after(terms.each * terms.free + HELD_FOR_MAX);
        self.paid_at = self.paid_at.max(now).after(terms.each).min(most);
    }

    fn pay_back(&mut self, terms: Terms) {
        self.paid_at = Monotonic(self.paid_at.0.saturating_sub(terms.each.as_nanos() as u64));
    }

    /// Returns the number of attempts not paid off, the last perhaps in part.
    fn owed(&self, terms: Terms, now: Monotonic) -> u32 {
        let owed = self.paid_at.since(now).as_nanos().div_ceil(terms.each.as_nanos());
        u32::try_from(owed).unwrap_or(u32::MAX)
    }

    fn failed_lately(&self, now: Monotonic) -> bool {
        self.failed_at.is_some_and(|at| now.since(at) < REMEMBERED_FOR)
    }

    fn is_worth_keeping(&self, now: Monotonic) -> bool {
        self.paid_at > now || self.failed_lately(now)
    }
}

/// Debts of hosts, or of users.
struct Debts<K> {
    terms: Terms,
    found: HashMap<K, Debt>,
}

impl<K: Hash + Eq + Clone> Debts<K> {
    fn new(terms: Terms) -> Self {
        Self { terms, found: HashMap::new() }
    }

    fn of(&self, key: &K, now: Monotonic) -> Debt {
        self.found.get(key).copied().unwrap_or_else(|| Debt::none(now))
    }

    fn wait(&self, key: &K, now: Monotonic) -> Duration {
        self.of(key, now).wait(self.terms, now)
    }

    fn charge(&mut self, key: &K, now: Monotonic) {
        if self.found.len() >= DEBTS_MAX && !self.found.contains_key(key) {
            self.make_room(now);
        }
        self.found.entry(key.clone()).or_insert_with(|| Debt::none(now)).charge(self.terms, now);
    }

    /// Forgets debts that are paid off, or else the smallest eighth of all: so rarely that it costs little
    /// each time.
    fn make_room(&mut self, now: Monotonic) {
        self.found.retain(|_, debt| debt.is_worth_keeping(now));
        if self.found.len() < DEBTS_MAX {
            return;
        }
        let mut due: Vec<Monotonic> = self.found.values().map(|debt| debt.paid_at).collect();
        let (_, bound, _) = due.select_nth_unstable(DEBTS_MAX / 8);
        let bound = *bound;
        let mut to_go = DEBTS_MAX / 8;
        self.found.retain(|_, debt| {
            let goes = to_go > 0 && debt.paid_at <= bound;
            to_go -= usize::from(goes);
            !goes
        });
    }

    fn pay_back(&mut self, key: &K, now: Monotonic) {
        let Some(debt) = self.found.get_mut(key) else { return };
        debt.pay_back(self.terms);
        if !debt.is_worth_keeping(now) {
            self.found.remove(key);
        }
    }

    fn failed(&mut self, key: &K, now: Monotonic) -> u32 {
        let Some(debt) = self.found.get_mut(key) else { return 1 };
        debt.failed_at = Some(now);
        debt.owed(self.terms, now)
    }
}

/// A user's name as debts know it, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UserName(Box<str>);

impl From<&str> for UserName {
    fn from(name: &str) -> Self {
        Self(name.chars().take(NAME_CHARACTERS_MAX).flat_map(char::to_lowercase).collect())
    }
}

/// A host from which a user has logged on.
struct KnownHost {
    host: PeerHost,
    seen_at: Monotonic,
    debt: Debt,
}

/// Hosts that users have logged on from, each with its debt.
#[derive(Default)]
struct KnownHosts {
    by_user: HashMap<UserName, Vec<KnownHost>>,
    count: usize,
}

impl KnownHosts {
    fn get_mut(&mut self, user: &UserName, host: PeerHost) -> Option<&mut KnownHost> {
        self.by_user.get_mut(user)?.iter_mut().find(|known| known.host == host)
    }

    fn remember(&mut self, user: &UserName, host: PeerHost, now: Monotonic) -> &mut KnownHost {
        if self.get_mut(user, host).is_none() {
            self.make_room(user);
            let known = KnownHost { host, seen_at: now, debt: Debt::none(now) };
            self.by_user.entry(user.clone()).or_default().push(known);
            self.count += 1;
        }
        let known = self.get_mut(user, host).expect("it is there by now");
        known.seen_at = now;
        known
    }

    fn make_room(&mut self, user: &UserName) {
        let of_user = self.by_user.get(user).map_or(0, Vec::len);
        if of_user >= KNOWN_HOSTS_PER_USER_MAX {
            self.forget_oldest(user);
        } else if self.count >= KNOWN_HOSTS_MAX {
            let most = self.by_user.iter().max_by_key(|(_, hosts)| hosts.len());
            if let Some(user) = most.map(|(user, _)| user.clone()) {
                self.forget_oldest(&user);
            }
        }
    }

    fn forget_oldest(&mut self, user: &UserName) {
        let Some(hosts) = self.by_user.get_mut(user) else { return };
        if let Some(oldest) = (0..hosts.len()).min_by_key(|at| hosts[*at].seen_at) {
            hosts.swap_remove(oldest);
            self.count -= 1;
        }
        if hosts.is_empty() {
            self.by_user.remove(user);
        }
    }
}

/// An attempt to log on, from a host, as a user.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub user: UserName,
    pub host: PeerHost,
    /// A session of this user protects the request.
    pub in_own_session: bool,
}

/// An attempt that was admitted and charged. [`LogonGuard::end_attempt`] takes it back; one that is dropped stays charged.
#[derive(Debug)]
pub(crate) struct Ticket {
    attempt: Attempt,
    debtor: Debtor,
}

/// The debtor of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Debtor {
    /// The holder of sessions of the user.
    OwnSession,
    /// The user, at this host.
    KnownHost,
    /// The host and the user, each.
    Stranger,
}

/// The guard's decision on an attempt.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The password may be checked.
    Now(Ticket),
    /// The password may be checked from this time on.
    At(Monotonic, Ticket),
    /// The password is not checked.
    Refused,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Right,
    Wrong,
    /// The logon ended before the password was checked, and revealed nothing of it.
    Unseen,
}

/// The debts for all failed logons, and the attempts that they delay.
pub(crate) struct LogonGuard {
    hosts: Debts<PeerHost>,
    users: Debts<UserName>,
    known: KnownHosts,
    /// Of attempts within a user's own sessions.
    own_sessions: Debts<UserName>,
    /// Attempts that are held, and when they come due.
    held: Vec<(PeerHost, Monotonic)>,
}

impl Default for LogonGuard {
    fn default() -> Self {
        Self {
            hosts: Debts::new(OF_HOST),
            users: Debts::new(OF_USER),
            known: KnownHosts::default(),
            own_sessions: Debts::new(OF_OWN_SESSION),
            held: Vec::new(),
        }
    }
}

impl LogonGuard {
    /// Decides on an attempt, and charges it unless it is refused.
    pub fn admit(&mut self, attempt: Attempt, now: Monotonic) -> Admission {
        let Attempt { user, host, .. } = &attempt;
        let debtor = self.debtor(&attempt);
        let (wait, may_skip) = match debtor {
            Debtor::OwnSession => (self.own_sessions.wait(user, now), false),
            Debtor::KnownHost => {
                let known = self.known.get_mut(user, *host);
                (known.map_or(Duration::ZERO, |known| known.debt.wait(OF_KNOWN_HOST, now)), false)
            }
            Debtor::Stranger => self.wait_of_strangers(user, *host, now),
        };
        let at = now.after(wait);
        if wait > HELD_FOR_MAX {
            return Admission::Refused;
        }
        let has_place = wait.is_zero() || self.take_place(*host, at, now);
        if !has_place && !may_skip {
            return Admission::Refused;
        }
        match debtor {
            Debtor::OwnSession => self.own_sessions.charge(user, now),
            Debtor::KnownHost => {
                if let Some(known) = self.known.get_mut(user, *host) {
                    known.debt.charge(OF_KNOWN_HOST, now);
                }
            }
            Debtor::Stranger => {
                self.hosts.charge(host, now);
                self.users.charge(user, now);
            }
        }
        let ticket = Ticket { attempt, debtor };
        if wait.is_zero() || !has_place { Admission::Now(ticket) } else { Admission::At(at, ticket) }
    }

    fn debtor(&mut self, attempt: &Attempt) -> Debtor {
        if attempt.in_own_session {
            Debtor::OwnSession
        } else if self.known.get_mut(&attempt.user, attempt.host).is_some() {
            Debtor::KnownHost
        } else {
            Debtor::Stranger
        }
    }

    /// Returns the wait of an attempt from a host unknown for the user; true: only others' failures make it
    /// wait.
    fn wait_of_strangers(&self, user: &UserName, host: PeerHost, now: Monotonic) -> (Duration, bool) {
        let own = self.hosts.wait(&host, now);
        let failed_lately = self.hosts.of(&host, now).failed_lately(now);
        let most = if failed_lately { HELD_FOR_MAX } else { MILD_WAIT_MAX };
        let of_user = self.users.wait(user, now).min(most);
        (own.max(of_user), own.is_zero() && !failed_lately)
    }

    fn take_place(&mut self, host: PeerHost, at: Monotonic, now: Monotonic) -> bool {
        self.held.retain(|(_, due)| *due > now);
        let of_host = self.held.iter().filter(|(held, _)| *held == host).count();
        let has_room = self.held.len() < HELD_MAX && of_host < HELD_PER_HOST_MAX;
        if has_room {
            self.held.push((host, at));
        }
        has_room
    }

    /// Ends an attempt. Returns the number of failures not paid off by then.
    pub fn end_attempt(&mut self, ticket: &Ticket, outcome: Outcome, now: Monotonic) -> u32 {
        let Attempt { user, host, .. } = &ticket.attempt;
        if outcome == Outcome::Right {
            self.known.remember(user, *host, now);
        }
        if outcome != Outcome::Wrong {
            self.pay_back(ticket, now);
            return 0;
        }
        match ticket.debtor {
            Debtor::OwnSession => self.own_sessions.failed(user, now),
            Debtor::KnownHost => {
                let known = self.known.get_mut(user, *host);
                known.map_or(1, |known| known.debt.owed(OF_KNOWN_HOST, now))
            }
            Debtor::Stranger => self.hosts.failed(host, now).max(self.users.failed(user, now)),
        }
    }

    fn pay_back(&mut self, ticket: &Ticket, now: Monotonic) {
        let Attempt { user, host, .. } = &ticket.attempt;
        match ticket.debtor {
            Debtor::OwnSession => self.own_sessions.pay_back(user, now),
            Debtor::KnownHost => {
                if let Some(known) = self.known.get_mut(user, *host) {
                    known.debt.pay_back(OF_KNOWN_HOST);
                }
            }
            Debtor::Stranger => {
                self.hosts.pay_back(host, now);
                self.users.pay_back(user, now);
            }
        }
    }
}

/// Says how late a refusal is answered after this many failures; `first` is the delay after one.
pub(crate) fn lateness(first: Duration, failures: u32) -> Duration {
    first * (1 << failures.saturating_sub(1).min(LATENESS_DOUBLED_MAX))
}

#[cfg(test)]
mod tests;
