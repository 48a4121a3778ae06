//! Decides which connections stay when there are more of them than places.
//!
//! A connection is a guest until its client has proven who it is, then a member. Promises: no host and no number of guests keeps others out;
//! when places are short, the oldest guest of the host with most guests makes room, and never a member; a host's members are bounded, so that
//! one client cannot take all places. Keeps no time and no socket: the owner closes those who have to go.

use crate::PeerHost;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Bounds of an [`Admission`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Most connections, those of members and guests together.
    pub connections: usize,
    /// Members and guests of one host.
    pub connections_per_host: usize,
    /// Most connections of guests, to which no client has logged on.
    pub guests: usize,
    /// Most connections of guests of one host.
    pub guests_per_host: usize,
}

impl AdmissionLimits {
    /// Half of `connections` may be guests, and of one host an eighth.
    pub fn new(connections: usize, connections_per_host: usize) -> Self {
        Self {
            connections,
            connections_per_host,
            guests: (connections / 2).max(1),
            guests_per_host: (connections / 8).max(1),
        }
    }
}

/// Why a connection was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionRefused {
    /// Host without a guest that could make room.
    #[error("its host has as many connections of logged-on clients as one host may have")]
    Host,
    /// All places taken by members.
    #[error("there are as many connections of logged-on clients as there may be")]
    All,
}

struct Place {
    host: PeerHost,
    /// Of a guest: its place in the order of arrival. `None`: a member.
    arrival: Option<u64>,
}

struct Host<K> {
    /// By arrival.
    guests: BTreeMap<u64, K>,
    members: usize,
}

impl<K> Host<K> {
    /// How it stands in line to lose a guest: hosts with most guests come last, of these the one whose guest is oldest.
    fn rank(&self, host: PeerHost) -> Option<(usize, Reverse<u64>, PeerHost)> {
        let (&oldest, _) = self.guests.first_key_value()?;
        Some((self.guests.len(), Reverse(oldest), host))
    }
}

/// See the module. `K` names a connection.
pub struct Admission<K> {
    limits: AdmissionLimits,
    places: HashMap<K, Place>,
    hosts: HashMap<PeerHost, Host<K>>,
    /// Hosts that have guests, by [`Host::rank`].
    ranks: BTreeSet<(usize, Reverse<u64>, PeerHost)>,
    guests: usize,
    arrivals: u64,
}

impl<K: Copy + Eq + Hash> Admission<K> {
    /// Begins without connections.
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            limits,
            places: HashMap::new(),
            hosts: HashMap::new(),
            ranks: BTreeSet::new(),
            guests: 0,
            arrivals: 0,
        }
    }

    /// Connections that have a place.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no connection has a place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the connections of guests.
    pub fn guest_count(&self) -> usize {
        self.guests
    }

    /// Gives a new connection of `host` a place as a guest. The guest that had to make room for it, if one had to, has none any more: the
    /// caller closes it.
    ///
    /// # Errors
    /// There is no place, and no guest that could make room: see [`AdmissionRefused`].
    pub fn admit(&mut self, key: K, host: PeerHost) -> Result<Option<K>, AdmissionRefused> {
        debug_assert!(!self.places.contains_key(&key), "a connection is admitted once");
        let (guests, members) =
            self.hosts.get(&host).map_or((0, 0), |host| (host.guests.len(), host.members));
        let is_host_full =
            guests >= self.limits.guests_per_host || guests + members >= self.limits.connections_per_host;
        let is_full = self.places.len() >= self.limits.connections || self.guests >= self.limits.guests;
        let evicted = if is_host_full {
            Some(self.oldest_guest(host).ok_or(AdmissionRefused::Host)?)
        } else if is_full {
            Some(self.evict().ok_or(AdmissionRefused::All)?)
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.remove(evicted);
        }
        self.places.insert(key, Place { host, arrival: None });
        self.become_guest(key, host);
        Ok(evicted)
    }

    /// The guest that would be first to make room, if there is one; it has no place any more.
    pub fn evict(&mut self) -> Option<K> {
        let &(_, _, host) = self.ranks.last()?;
        let evicted = self.oldest_guest(host)?;
        self.remove(evicted);
        Some(evicted)
    }

    /// The client has proven who it is.
    pub fn prove(&mut self, key: K) {
        let Some(place) = self.places.get_mut(&key) else { return };
        let Some(arrival) = place.arrival.take() else { return };
        let host = place.host;
        self.guests -= 1;
        self.change(host, |host| {
            host.guests.remove(&arrival);
            host.members += 1;
        });
    }

    /// The client has logged off: it is a guest that came just now.
    pub fn unprove(&mut self, key: K) {
        let Some(place) = self.places.get(&key) else { return };
        let host = place.host;
        if place.arrival.is_none() {
            self.change(host, |host| host.members -= 1);
            self.become_guest(key, host);
        }
    }

    /// The connection is gone.
    pub fn remove(&mut self, key: K) {
        let Some(Place { host, arrival }) = self.places.remove(&key) else { return };
        self.guests -= usize::from(arrival.is_some());
        self.change(host, |host| match arrival {
            Some(arrival) => {
                host.guests.remove(&arrival);
            }
            None => host.members -= 1,
        });
    }

    fn oldest_guest(&self, host: PeerHost) -> Option<K> {
        self.hosts.get(&host)?.guests.first_key_value().map(|(_, &key)| key)
    }

    fn become_guest(&mut self, key: K, host: PeerHost) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        if let Some(place) = self.places.get_mut(&key) {
            place.arrival = Some(arrival);
        }
        self.guests += 1;
        self.change(host, |host| {
            host.guests.insert(arrival, key);
        });
    }

    /// Changes what is known of a host, and its place in line.
    fn change(&mut self, name: PeerHost, work: impl FnOnce(&mut Host<K>)) {
        let host = self.hosts.entry(name).or_insert_with(|| Host { guests: BTreeMap::new(), members: 0 });
        let before = host.rank(name);
        work(host);
        let after = host.rank(name);
        if host.members == 0 && host.guests.is_empty() {
            self.hosts.remove(&name);
        }
        if before != after {
            if let Some(before) = before {
                self.ranks.remove(&before);
            }
            self.ranks.extend(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn host(number: u8) -> PeerHost {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)).into()
    }

    fn limits() -> AdmissionLimits {
        AdmissionLimits { connections: 10, connections_per_host: 6, guests: 8, guests_per_host: 4 }
    }

    #[test]
    fn a_host_with_too_many_guests_loses_its_own_oldest() {
        let mut admission = Admission::new(limits());
        assert_eq!(admission.admit(100, host(2)), Ok(None));
        for key in 0..4 {
            assert_eq!(admission.admit(key, host(1)), Ok(None));
        }
        assert_eq!(admission.admit(4, host(1)), Ok(Some(0)));
        assert_eq!(admission.admit(5, host(1)), Ok(Some(1)));
        assert_eq!((admission.len(), admission.guest_count()), (5, 5));
    }

    #[test]
    fn a_newcomer_gets_in_at_the_cost_of_the_most_crowded_host() {
        let mut admission = Admission::new(limits());
        assert_eq!(admission.admit(0, host(9)), Ok(None));
        for key in 1..4 {
            assert_eq!(admission.admit(key, host(1)), Ok(None));
        }
        for key in 4..8 {
            assert_eq!(admission.admit(key, host(2)), Ok(None));
        }
        assert_eq!(admission.admit(8, host(3)), Ok(Some(4)), "of the host with most");
        assert_eq!(admission.admit(9, host(4)), Ok(Some(1)), "of two with as many, the oldest");
        assert_eq!(admission.guest_count(), 8);
    }

    #[test]
    fn members_are_never_evicted_and_bounded_by_host() {
        let mut admission = Admission::new(limits());
        for key in 0..6 {
            assert_eq!(admission.admit(key, host(1)), Ok(None));
            admission.prove(key);
        }
        assert_eq!(admission.admit(6, host(1)), Err(AdmissionRefused::Host));
        for key in 10..14 {
            assert_eq!(admission.admit(key, host(2)), Ok(None));
            admission.prove(key);
        }
        assert_eq!(admission.admit(20, host(3)), Err(AdmissionRefused::All));
        admission.unprove(3);
        assert_eq!(admission.admit(20, host(3)), Ok(Some(3)), "who logged off is a guest again");
        admission.remove(12);
        assert_eq!(admission.admit(21, host(1)), Ok(None));
    }

    #[test]
    fn who_logs_on_makes_room_for_guests() {
        let mut admission = Admission::new(limits());
        for key in 0..4 {
            assert_eq!(admission.admit(key, host(1)), Ok(None));
        }
        admission.prove(0);
        admission.prove(0);
        assert_eq!(admission.guest_count(), 3);
        assert_eq!(admission.admit(4, host(1)), Ok(None));
        assert_eq!(admission.admit(5, host(1)), Ok(Some(1)));
    }

    #[test]
    fn nothing_is_remembered_of_who_has_gone() {
        let mut admission = Admission::new(limits());
        for round in 0..50 {
            for key in 0..20 {
                let _ = admission.admit(key, host((key + round) as u8));
                if key % 3 == 0 {
                    admission.prove(key);
                }
            }
            for key in 0..20 {
                admission.remove(key);
                admission.remove(key);
            }
        }
        assert!(admission.is_empty() && admission.hosts.is_empty() && admission.ranks.is_empty());
        assert_eq!(admission.guest_count(), 0);
    }
}
