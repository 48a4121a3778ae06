//! The time of day.

use types::{FileTime, Monotonic};

/// The wall clock, set by the owner of the server and continued by the monotonic clock.
pub(crate) struct WallClock {
    wall: FileTime,
    /// The monotonic time at which it was `wall`.
    set_at: Monotonic,
}

impl WallClock {
    pub fn new(now: Monotonic, wall: FileTime) -> Self {
        Self { wall, set_at: now }
    }

    pub fn set(&mut self, now: Monotonic, wall: FileTime) {
        *self = Self::new(now, wall);
    }

    pub fn at(&self, now: Monotonic) -> FileTime {
        FileTime(self.wall.0 + (now.since(self.set_at).as_nanos() / 100) as u64)
    }

    /// Returns when the clock was set last: the latest time known to callers without one.
    pub fn set_at(&self) -> Monotonic {
        self.set_at
    }
}
