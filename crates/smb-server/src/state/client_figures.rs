//! Latencies of each client's requests.
//!
//! Promises: at most [`CLIENTS_MAX`] clients have separate figures, for any number of clients; noting
//! an answer costs an index into a table; no answer is lost from the sum of all figures.

use types::{LatencyHistogram, PeerHost};

/// Those of further clients are counted together. A client without a session keeps its place until another one needs it.
pub const CLIENTS_MAX: usize = 256;

/// The place of a client's figures; that of further clients comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientSlot(u16);

impl ClientSlot {
    /// Figures of other servers of the cluster: they pass on clients' requests, and are no clients.
    pub const SERVERS: Self = Self(1);
    /// Follows the place of clients without their own.
    const FIRST: usize = 2;
}

/// Totals of one client since it got its place.
#[derive(Debug, Clone, Default)]
pub struct ClientFigures {
    /// The host of its sessions; `None`: all clients without a place.
    pub host: Option<PeerHost>,
    /// Those that it has now.
    pub sessions: usize,
    /// Of reads and writes that did not wait for another client.
    pub latency: LatencyHistogram,
    /// Number of its last session's end: the lowest is the longest absent client's.
    left: u64,
}

pub(crate) struct AllClientFigures {
    clients: Vec<ClientFigures>,
    ends: u64,
}

impl Default for AllClientFigures {
    fn default() -> Self {
        Self { clients: vec![ClientFigures::default(); ClientSlot::FIRST], ends: 0 }
    }
}

impl AllClientFigures {
    /// Begins a session of this host. Figures of the client whose place it takes go to those without a
    /// place.
    pub fn enter(&mut self, host: PeerHost) -> ClientSlot {
        let place = match self.clients.iter().position(|client| client.host == Some(host)) {
            Some(place) => place,
            None if self.clients.len() < ClientSlot::FIRST + CLIENTS_MAX => {
                self.clients.push(ClientFigures { host: Some(host), ..ClientFigures::default() });
                self.clients.len() - 1
            }
            None => self.freed().map_or(0, |place| {
                let client = ClientFigures { host: Some(host), ..ClientFigures::default() };
                let gone = std::mem::replace(&mut self.clients[place], client);
                self.clients[0].latency.add(&gone.latency);
                place
            }),
        };
        self.clients[place].sessions += 1;
        ClientSlot(u16::try_from(place).expect("there are fewer places than numbers"))
    }

    /// A session of another server of the cluster has begun.
    pub fn enter_server(&mut self) -> ClientSlot {
        self.of(ClientSlot::SERVERS).sessions += 1;
        ClientSlot::SERVERS
    }

    /// The place of the client that has been without a session for longest.
    fn freed(&self) -> Option<usize> {
        let places = ClientSlot::FIRST..self.clients.len();
        places
            .filter(|place| self.clients[*place].sessions == 0)
            .min_by_key(|place| self.clients[*place].left)
    }

    /// Notes the end of a session in this place.
    pub fn leave(&mut self, slot: ClientSlot) {
        self.ends += 1;
        let client = &mut self.clients[usize::from(slot.0)];
        assert!(client.sessions > 0, "a session leaves once");
        client.sessions -= 1;
        client.left = self.ends;
    }

    /// An answer that is noted when its session has just ended may count for the client that took the place meanwhile.
    #[inline]
    pub fn of(&mut self, slot: ClientSlot) -> &mut ClientFigures {
        &mut self.clients[usize::from(slot.0)]
    }

    /// Those without their own place first; no other servers.
    pub fn all(&self) -> impl Iterator<Item = &ClientFigures> {
        self.clients.iter().take(1).chain(&self.clients[ClientSlot::FIRST..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::time::Duration;

    fn host(number: u32) -> PeerHost {
        IpAddr::from(number.to_be_bytes()).into()
    }

    fn counts(all: &AllClientFigures) -> u64 {
        all.all().map(|client| client.latency.count()).sum()
    }

    #[test]
    fn sessions_of_one_host_share_its_place_and_it_keeps_that_when_they_end() {
        let mut all = AllClientFigures::default();
        let slot = all.enter(host(1));
        assert_eq!(all.enter(host(1)), slot);
        assert_ne!(all.enter(host(2)), slot);
        all.of(slot).latency.record(Duration::from_micros(80));
        all.leave(slot);
        all.leave(slot);
        assert_eq!(all.enter(host(1)), slot);
        assert_eq!((all.of(slot).sessions, all.of(slot).latency.count()), (1, 1));
    }

    #[test]
    fn further_clients_are_counted_together_and_those_that_left_first_make_room() {
        let mut all = AllClientFigures::default();
        let slots: Vec<ClientSlot> = (1..=CLIENTS_MAX as u32).map(|number| all.enter(host(number))).collect();
        slots.iter().for_each(|slot| all.of(*slot).latency.record(Duration::from_micros(80)));
        let without = all.enter(host(100_000));
        assert_eq!((without, all.all().count()), (ClientSlot::default(), CLIENTS_MAX + 1));
        all.leave(slots[7]);
        all.leave(slots[3]);
        assert_eq!(all.enter(host(100_001)), slots[7]);
        assert_eq!(all.of(slots[7]).latency.count(), 0, "the new client has asked nothing yet");
        assert_eq!((all.of(without).latency.count(), counts(&all)), (1, CLIENTS_MAX as u64));
        all.leave(without);
        assert_eq!(all.of(without).sessions, 0);
    }

    #[test]
    fn other_servers_are_no_clients() {
        let mut all = AllClientFigures::default();
        let slot = all.enter_server();
        all.of(slot).latency.record(Duration::from_micros(80));
        assert_eq!(counts(&all), 0);
        all.leave(slot);
    }
}
