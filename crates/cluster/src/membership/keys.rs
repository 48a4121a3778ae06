//! The key of the heartbeats, and for a while those before it.
//!
//! When a server leaves, the others get another key from the records, one a little later than the other. Promises: no two of them stop hearing
//! each other meanwhile; whoever was heard by the new key is not heard by the old one any more, and nobody is after [`OVERLAP`].

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

pub(super) struct Keys {
    current: HeartbeatKey,
    /// The keys before, the last one first, and until when each is good.
    earlier: VecDeque<(HeartbeatKey, Monotonic)>,
}

impl Keys {
    pub fn new(current: HeartbeatKey) -> Self {
        Self { current, earlier: VecDeque::new() }
    }

    pub fn replace(&mut self, key: HeartbeatKey, now: Monotonic) {
        let before = std::mem::replace(&mut self.current, key);
        self.earlier.retain(|(_, until)| now < *until);
        self.earlier.truncate(EARLIER_MAX - 1);
        self.earlier.push_front((before, now.after(OVERLAP)));
    }

    fn earlier(&self, now: Monotonic) -> impl Iterator<Item = &HeartbeatKey> {
        self.earlier.iter().filter(move |(_, until)| now < *until).map(|(key, _)| key)
    }

    /// Parses a datagram; whether it is signed by the present key.
    ///
    /// # Errors
    /// As [`Heartbeat::parse`].
    pub fn parse(&self, datagram: &[u8], cluster: u64, now: Monotonic) -> Result<(Heartbeat, bool), Refused> {
        let mut parsed =
            Heartbeat::parse(datagram, cluster, &self.current).map(|heartbeat| (heartbeat, true));
        for key in self.earlier(now) {
            if !matches!(parsed, Err(Refused::Signature)) {
                break;
            }
            parsed = Heartbeat::parse(datagram, cluster, key).map(|heartbeat| (heartbeat, false));
        }
        parsed
    }

    /// The datagrams of a heartbeat: to a receiver that may not have the present key yet it goes by all, of which it takes one.
    pub fn encode(
        &self,
        heartbeat: &Heartbeat,
        cluster: u64,
        has_current: bool,
        now: Monotonic,
    ) -> Vec<Vec<u8>> {
        let earlier = self.earlier(now).filter(move |_| !has_current);
        std::iter::once(&self.current).chain(earlier).map(|key| heartbeat.encode(cluster, key)).collect()
    }
}
