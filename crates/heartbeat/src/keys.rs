//! The key of the heartbeats, and for a while those before it.
//!
//! When a server leaves, the others get another key from the records, at slightly different times.
//! Promises: no two of them stop hearing each other meanwhile; a peer heard by one key is never again
//! heard by an earlier one, and no peer is after [`OVERLAP`].

use super::datagram::{Heartbeat, HeartbeatKey, Refused};
use std::collections::VecDeque;
use std::time::Duration;
use types::Monotonic;

/// For how long a key is good after the next one. Servers read a changed record within milliseconds; one that has not after this time does not reach
/// the cluster's state either.
pub const OVERLAP: Duration = Duration::from_secs(30);

/// Most keys that are good beside the present one: one for each server that leaves within [`OVERLAP`]. A datagram by each of them goes to
/// a server that has not shown yet which it has.
const EARLIER_MAX: usize = 8;

/// The place of a key in their order: the first one has 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyNumber(u64);

pub(super) struct Keys {
    current: HeartbeatKey,
    number: KeyNumber,
    /// The keys before, the last one first, and until when each is good.
    earlier: VecDeque<(HeartbeatKey, Monotonic)>,
}

impl Keys {
    pub fn new(current: HeartbeatKey) -> Self {
        Self { current, number: KeyNumber::default(), earlier: VecDeque::new() }
    }

    pub fn replace(&mut self, key: HeartbeatKey, now: Monotonic) {
        let before = std::mem::replace(&mut self.current, key);
        self.number.0 += 1;
        self.earlier.retain(|(_, until)| now < *until);
        self.earlier.truncate(EARLIER_MAX - 1);
        self.earlier.push_front((before, now.after(OVERLAP)));
    }

    /// Number of the present key.
    pub fn number(&self) -> KeyNumber {
        self.number
    }

    /// The keys that are good, the present one first.
    fn good(&self, now: Monotonic) -> impl Iterator<Item = (KeyNumber, &HeartbeatKey)> {
        let numbers = (0..self.number.0).rev().map(KeyNumber);
        let earlier = numbers.zip(&self.earlier).filter(move |(_, (_, until))| now < *until);
        std::iter::once((self.number, &self.current)).chain(earlier.map(|(number, (key, _))| (number, key)))
    }

    /// Parses a datagram; with the number of the key by which it is signed.
    ///
    /// # Errors
    /// As [`Heartbeat::parse`].
    pub fn parse(
        &self,
        datagram: &[u8],
        cluster: u64,
        now: Monotonic,
    ) -> Result<(Heartbeat, KeyNumber), Refused> {
        for (number, key) in self.good(now) {
            match Heartbeat::parse(datagram, cluster, key) {
                Err(Refused::Signature) => {}
                parsed => return parsed.map(|heartbeat| (heartbeat, number)),
            }
        }
        Err(Refused::Signature)
    }

    /// The datagrams of a heartbeat: to a receiver that has `shown` this key it goes by that and all later ones, of which it takes one.
    pub fn encode(
        &self,
        heartbeat: &Heartbeat,
        cluster: u64,
        shown: KeyNumber,
        now: Monotonic,
    ) -> Vec<Vec<u8>> {
        let known = self.good(now).filter(|(number, _)| *number >= shown);
        known.map(|(_, key)| heartbeat.encode(cluster, key)).collect()
    }
}
