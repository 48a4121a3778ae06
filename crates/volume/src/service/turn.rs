//! Limit of the work that one turn of the loop's thread does.
//!
//! The service counts steps, not time: one is some tens of nanoseconds. Promises: clients' work takes
//! about [`STEPS_PER_TURN`] steps between two calls of
//! [`Backend::poll`](crate::backend::Backend::poll), even if many ask; the rest continues in the next
//! turn, in rotation among the users ([`super::ready`]). Reads and writes are not counted: each is
//! bounded by its size.

/// Steps of a turn: they take five to ten milliseconds, short enough for others to be served between, and long enough that the cost of
/// beginning a turn does not count.
pub const STEPS_PER_TURN: u32 = 200_000;

/// Steps of any operation, beside those of its work.
pub const OPERATION_STEPS: u32 = 64;
/// Steps of a lookup, or of a step of a walk through metadata.
pub const METADATA_STEPS: u32 = 16;
/// Steps of a directory entry, beside that: it is decoded, and its name copied.
pub const ENTRY_STEPS: u32 = 16;

/// The steps left in a turn.
#[derive(Debug)]
pub struct Turn {
    left: u32,
    #[cfg(test)]
    pub spent: u64,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            left: STEPS_PER_TURN,
            #[cfg(test)]
            spent: 0,
        }
    }
}

impl Turn {
    pub fn begin(&mut self) {
        self.left = STEPS_PER_TURN;
    }

    /// Spends the steps of a number of lookups in metadata.
    pub fn spend_metadata(&mut self, looked_at: u32) {
        self.spend(looked_at.saturating_mul(METADATA_STEPS));
    }

    /// Spends steps. They may exceed the rest: the last piece of work is done whole.
    pub fn spend(&mut self, steps: u32) {
        self.left = self.left.saturating_sub(steps);
        #[cfg(test)]
        {
            self.spent += u64::from(steps);
        }
    }

    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}
