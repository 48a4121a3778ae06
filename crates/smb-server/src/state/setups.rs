//! SESSION_SETUP exchanges in progress, for unauthenticated peers.
//!
//! Owns the state of every exchange: of logons, of repeated logons, and of further channels. Promises:
//! a connection, a host and all hosts together hold a bounded number of them, each for a bounded time
//! from its beginning under all circumstances; beginning one never fails. When no place is free, an
//! idle exchange ends: of the host with the most of them, by the connection that began the most without
//! ending one well, the oldest. So a client that continues its logon finishes it, though others begin
//! as many as they can.

use super::bindings::Challenge;
use super::connections::ConnectionId;
use super::keys::SessionKey;
use crate::config::Limits;
use smb::auth::Acceptor;
use smb::crypto::PreauthHash;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use types::{Monotonic, PeerHost};

/// Names an exchange: a connection has one for a session at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SetupId {
    pub connection: ConnectionId,
    pub session: SessionKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetupPurpose {
    /// A new session, made when the logon has succeeded; until then nothing but the exchange bears the
    /// session's identifier.
    New,
    Reauthentication,
    /// One more channel of a session that another connection carries.
    Binding,
}

/// One exchange.
pub(crate) struct Setup {
    pub acceptor: Acceptor,
    pub preauth: PreauthHash,
    pub purpose: SetupPurpose,
    /// Challenge shared with other bindings of the session. `None`: the logon has its own.
    pub challenge: Option<Challenge>,
    /// The last request of a binding may be a repeated one.
    pub is_repeated: bool,
    /// Whether its last request waits until its password may be checked.
    pub is_held: bool,
}

/// A place among the exchanges, and its holder.
struct Place {
    id: SetupId,
    host: PeerHost,
    began_at: Monotonic,
    /// Exchanges begun on the connection, this one included, since its last successful one.
    attempt: u32,
}

pub(crate) struct Setups {
    found: HashMap<SetupId, Setup>,
    /// Oldest first.
    places: VecDeque<Place>,
    by_host: HashMap<PeerHost, usize>,
    per_connection_max: usize,
    per_host_max: usize,
    all_max: usize,
    lasts_for: Duration,
}

impl Setups {
    pub fn new(limits: &Limits) -> Self {
        Self {
            found: HashMap::new(),
            places: VecDeque::new(),
            by_host: HashMap::new(),
            per_connection_max: limits.setups_per_connection.max(1),
            per_host_max: limits.setups_per_host.max(1),
            all_max: limits.setups.max(1),
            lasts_for: limits.setup_timeout,
        }
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    pub fn get_mut(&mut self, id: SetupId) -> Option<&mut Setup> {
        self.found.get_mut(&id)
    }

    pub fn get(&self, id: SetupId) -> Option<&Setup> {
        self.found.get(&id)
    }

    /// Whether an exchange bears the identifier of this session.
    pub fn names_session(&self, session: SessionKey) -> bool {
        self.places.iter().any(|place| place.id.session == session)
    }

    /// Begins an exchange that is not begun yet. True: another one had to go for it.
    pub fn begin(&mut self, id: SetupId, host: PeerHost, attempt: u32, setup: Setup, now: Monotonic) -> bool {
        assert!(self.get(id).is_none(), "an exchange is begun once");
        let evicted = self.make_room(id.connection, host);
        self.found.insert(id, setup);
        self.places.push_back(Place { id, host, began_at: now, attempt });
        *self.by_host.entry(host).or_default() += 1;
        evicted
    }

    fn make_room(&mut self, connection: ConnectionId, host: PeerHost) -> bool {
        let of_connection = self.places.iter().filter(|place| place.id.connection == connection);
        let evicted = if of_connection.count() >= self.per_connection_max {
            self.places.iter().find(|place| place.id.connection == connection).map(|place| place.id)
        } else if self.by_host.get(&host).is_some_and(|count| *count >= self.per_host_max) {
            self.worst_of(host)
        } else if self.found.len() >= self.all_max {
            let most = self.by_host.iter().max_by_key(|(_, count)| **count);
            most.map(|(host, _)| *host).and_then(|host| self.worst_of(host))
        } else {
            None
        };
        evicted.and_then(|id| self.end(id)).is_some()
    }

    fn worst_of(&self, host: PeerHost) -> Option<SetupId> {
        // The last of equals is the oldest.
        let newest_first = self.places.iter().rev().filter(|place| place.host == host);
        newest_first.max_by_key(|place| place.attempt).map(|place| place.id)
    }

    /// Ends an exchange, done or not.
    pub fn end(&mut self, id: SetupId) -> Option<Setup> {
        let setup = self.found.remove(&id)?;
        let at = self.places.iter().position(|place| place.id == id);
        let place = at.and_then(|at| self.places.remove(at)).expect("an exchange has a place");
        self.leave(place.host);
        Some(setup)
    }

    fn leave(&mut self, host: PeerHost) {
        let count = self.by_host.get_mut(&host).expect("a place is counted");
        *count -= 1;
        if *count == 0 {
            self.by_host.remove(&host);
        }
    }

    /// Ends the exchanges of a lost connection.
    pub fn end_connection(&mut self, connection: ConnectionId) {
        while let Some(place) = self.places.iter().find(|place| place.id.connection == connection) {
            self.end(place.id);
        }
    }

    /// The time at which [`Self::expire`] has something to do.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        Some(self.places.front()?.began_at.after(self.lasts_for))
    }

    /// Ends exchanges that have lasted too long.
    pub fn expire(&mut self, now: Monotonic) {
        while self.next_timeout().is_some_and(|at| at <= now)
            && let Some(place) = self.places.front()
        {
            self.end(place.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Setup, SetupId, SetupPurpose, Setups};
    use crate::config::Limits;
    use crate::state::connections::ConnectionId;
    use crate::state::keys::SessionKey;
    use smb::auth::Acceptor;
    use smb::auth::ServerNames;
    use smb::crypto::PreauthHash;
    use std::time::Duration;
    use types::{Monotonic, PeerHost};

    fn host(number: u8) -> PeerHost {
        std::net::IpAddr::from([10, 0, 0, number]).into()
    }

    fn begin(setups: &mut Setups, connection: u64, session: u64, from: u8, attempt: u32) -> SetupId {
        let id = SetupId {
            connection: ConnectionId(connection),
            session: SessionKey::from_number(session).unwrap(),
        };
        let setup = Setup {
            acceptor: Acceptor::new(ServerNames::standalone("server")),
            preauth: PreauthHash::default(),
            purpose: SetupPurpose::New,
            challenge: None,
            is_repeated: false,
            is_held: false,
        };
        setups.begin(id, host(from), attempt, setup, Monotonic(session));
        id
    }

    fn bounded(per_connection: usize, per_host: usize, all: usize) -> Setups {
        Setups::new(&Limits {
            setups_per_connection: per_connection,
            setups_per_host: per_host,
            setups: all,
            ..Limits::default()
        })
    }

    #[test]
    fn a_connection_loses_its_own_oldest_exchange_first() {
        let mut setups = bounded(3, 100, 100);
        let other = begin(&mut setups, 1, 1, 7, 1);
        let own: Vec<_> = (0..5).map(|at| begin(&mut setups, 2, 10 + at, 7, 1)).collect();
        assert_eq!(
            own.iter().map(|id| setups.get(*id).is_some()).collect::<Vec<_>>(),
            [false, false, true, true, true]
        );
        assert!(setups.get(other).is_some());
    }

    #[test]
    fn of_a_host_those_go_first_that_began_most_and_ended_none() {
        let mut setups = bounded(100, 4, 100);
        let patient = begin(&mut setups, 1, 1, 7, 1);
        // A connection that begins one after the other.
        for at in 0..50 {
            begin(&mut setups, 2, 10 + at, 7, 1 + at as u32);
        }
        assert!(setups.get(patient).is_some());
        assert_eq!(setups.len(), 4);
    }

    #[test]
    fn when_all_places_are_taken_the_host_with_the_most_makes_room() {
        let mut setups = bounded(100, 100, 10);
        let alone = begin(&mut setups, 1, 1, 1, 1);
        for at in 0..9 {
            begin(&mut setups, 2 + at, 10 + at, 2, 1);
        }
        for at in 0..5 {
            let id = begin(&mut setups, 100 + at, 100 + at, 3 + at as u8, 1);
            assert!(setups.get(id).is_some() && setups.get(alone).is_some());
            assert_eq!(setups.len(), 10);
        }
    }

    #[test]
    fn an_exchange_ends_by_itself_and_a_later_one_does_not_prolong_it() {
        let mut setups = bounded(10, 10, 10);
        let first = begin(&mut setups, 1, 1, 1, 1);
        let minute = Duration::from_secs(60);
        let second = begin(&mut setups, 1, minute.as_nanos() as u64, 1, 2);
        let lasts_for = Limits::default().setup_timeout;
        assert_eq!(setups.next_timeout(), Some(Monotonic(1).after(lasts_for)));
        setups.expire(Monotonic(1).after(minute));
        assert_eq!((setups.get(first).is_some(), setups.get(second).is_some()), (false, true));
        setups.end_connection(ConnectionId(1));
        assert_eq!((setups.len(), setups.next_timeout()), (0, None));
        assert!(setups.by_host.is_empty());
    }
}
