//! The lease by which this node may answer for its volumes, if several nodes may open one.
//!
//! A majority of the nodes grants the lease, counted from when the node *sent* the heartbeat that
//! they received, and stops once it considers the node dead. A coordinator that opens the volume of
//! a dead node waits for that lease to end before its first answer. So no client reads from a cache
//! data that another node has changed since. Writes do not depend on the lease (I2, I3).
//!
//! Invariant: `valid_until` never goes back.

use super::context::Context;
use crate::planted::Planted;
use types::Monotonic;

#[derive(Default)]
pub(super) struct Lease {
    valid_until: Monotonic,
}

impl Lease {
    pub fn is_valid(&self, context: &Context) -> bool {
        context.config.lease.is_none() || context.now < self.valid_until || Planted::LeaseSkipped.is_planted()
    }

    /// Extends the lease to this time.
    pub fn extend(&mut self, valid_until: Monotonic) {
        self.valid_until = self.valid_until.max(valid_until);
    }
}
