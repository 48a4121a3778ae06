//! The key of the heartbeats, and for a while the one before it.
//!
//! When a server leaves, the others get another key from the records, one a little later than the other. Promises: no two of them stop hearing
//! each other meanwhile; whoever was heard by the new key is not heard by the old one any more, and nobody is after [`OVERLAP`].

use super::datagram::{Heartbeat, HeartbeatKey, Refused};
use std::time::Duration;
use types::Monotonic;

/// For how long the key before is good. Servers read a changed record within milliseconds; one that has not after this time does not reach
/// the cluster's state either.
pub const OVERLAP: Duration = Duration::from_secs(30);

pub(super) struct Keys {
    current: HeartbeatKey,
    /// The key before, and until when it is good.
    earlier: Option<(HeartbeatKey, Monotonic)>,
}

impl Keys {
    pub fn new(current: HeartbeatKey) -> Self {
        Self { current, earlier: None }
    }

    pub fn replace(&mut self, key: HeartbeatKey, now: Monotonic) {
        let before = std::mem::replace(&mut self.current, key);
        self.earlier = Some((before, now.after(OVERLAP)));
    }

    fn earlier(&self, now: Monotonic) -> Option<&HeartbeatKey> {
        self.earlier.as_ref().filter(|(_, until)| now < *until).map(|(key, _)| key)
    }

    /// Parses a datagram; whether it is signed by the present key.
    ///
    /// # Errors
    /// As [`Heartbeat::parse`].
    pub fn parse(&self, datagram: &[u8], cluster: u64, now: Monotonic) -> Result<(Heartbeat, bool), Refused> {
        match (Heartbeat::parse(datagram, cluster, &self.current), self.earlier(now)) {
            (Err(Refused::Signature), Some(earlier)) => {
                Heartbeat::parse(datagram, cluster, earlier).map(|heartbeat| (heartbeat, false))
            }
            (parsed, _) => parsed.map(|heartbeat| (heartbeat, true)),
        }
    }

    /// The datagrams of a heartbeat: to a receiver that may not have the present key yet it goes by both, of which it takes one.
    pub fn encode(
        &self,
        heartbeat: &Heartbeat,
        cluster: u64,
        has_current: bool,
        now: Monotonic,
    ) -> Vec<Vec<u8>> {
        let earlier = self.earlier(now).filter(|_| !has_current);
        std::iter::once(&self.current).chain(earlier).map(|key| heartbeat.encode(cluster, key)).collect()
    }
}
