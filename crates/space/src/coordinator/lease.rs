//! Until when this node may answer for its volumes, if several nodes may open one.
//!
//! A majority of the nodes lets a node answer for a while, counted from when the node *sent* what they heard, and lets it no longer once it
//! takes the node for dead. A coordinator that opens the volume of a dead node waits that time out before its first answer. So nobody reads
//! from a cache what another node has changed since. Writes do not depend on it (I2, I3).
//!
//! Invariant: `valid_until` never goes back.

use super::setting::Setting;
use crate::planted::Planted;
use types::Monotonic;

#[derive(Default)]
pub(super) struct Lease {
    valid_until: Monotonic,
}

impl Lease {
    pub fn is_valid(&self, setting: &Setting) -> bool {
        setting.config.lease.is_none() || setting.now < self.valid_until || Planted::LeaseSkipped.is_planted()
    }

    /// Notes that answers may be given until then.
    pub fn extend(&mut self, valid_until: Monotonic) {
        self.valid_until = self.valid_until.max(valid_until);
    }
}
