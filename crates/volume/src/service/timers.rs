//! Events that come with time.

use super::open::LeaseName;
use crate::backend::OpenId;
use std::collections::BTreeSet;
use types::Monotonic;

/// An event at a time, unless it is cancelled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The holder of a lease has not acknowledged its break.
    Lease(LeaseName),
    /// The holder of an oplock has not acknowledged its break.
    Oplock(OpenId),
    /// The client of a durable open has not returned.
    Disconnected(OpenId),
    /// A write becomes visible in the file's times.
    WriteTime(OpenId),
    /// The next try of a failed close; the open may be gone by then.
    CloseAgain(OpenId),
    /// Opens that outlived a start could not be read.
    Restore,
}

/// The timers that run, the next one first.
///
/// Invariant: each open that is disconnected, and each whose write time is due, has its timer here
/// until it is closed. Timers of breaks stay after the holder has acknowledged: they count only if the
/// break still has their deadline.
#[derive(Debug, Default)]
pub struct Timers(BTreeSet<(Monotonic, Timer)>);

impl Timers {
    pub fn set(&mut self, at: Monotonic, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub fn clear(&mut self, at: Monotonic, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    /// Returns the time of the next one.
    pub fn next(&self) -> Option<Monotonic> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes and returns the next one due by `now`.
    pub fn take_due(&mut self, now: Monotonic) -> Option<(Monotonic, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first()
    }
}
