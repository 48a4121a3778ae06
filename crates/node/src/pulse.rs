//! Heartbeat of the data plane's loop, for threads that must know that it is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of turns that the loop has ended. Cheap to clone; any thread may read it.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// Counts a turn. Called by the loop's thread alone, so that no locked instruction is needed.
    pub fn beat(&self) {
        self.0.store(self.turns().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of turns so far; two readings show whether the loop turns.
    pub fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
