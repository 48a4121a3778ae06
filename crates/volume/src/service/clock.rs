//! The time as the service knows it.

use types::{FileTime, Monotonic};

/// The time of the loop, and by it that of the wall clock.
///
/// Invariant: the loop's time never decreases; the wall clock may, when it is set.
#[derive(Debug)]
pub struct Clock {
    now: Monotonic,
    /// The wall clock's time at a time of the loop.
    wall: (Monotonic, FileTime),
}

impl Clock {
    /// Makes a clock that shows `wall` at `now`.
    pub const fn new(now: Monotonic, wall: FileTime) -> Self {
        Self { now, wall: (now, wall) }
    }

    pub const fn now(&self) -> Monotonic {
        self.now
    }

    pub fn advance(&mut self, now: Monotonic) {
        self.now = self.now.max(now);
    }

    /// Sets the wall clock: it shows `wall` at `now`.
    pub fn set_wall(&mut self, now: Monotonic, wall: FileTime) {
        self.wall = (now, wall);
    }

    /// Returns the wall clock's time, for stored times.
    pub fn time(&self) -> FileTime {
        let passed = self.now.since(self.wall.0).as_nanos() / 100;
        FileTime(self.wall.1.0.saturating_add(passed as u64))
    }
}
