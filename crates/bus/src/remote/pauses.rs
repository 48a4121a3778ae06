//! Pauses between attempts to connect: each twice as long as the one before, from the first to the longest.

use std::time::Duration;
use types::Monotonic;

/// A connection that lasted so long went well: the next pause is the first again.
const STEADY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
    ready_since: Option<Monotonic>,
}

impl Pauses {
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        Self { first, longest, next: first, ready_since: None }
    }

    /// The next attempt may begin then.
    pub fn after_failure(&mut self, now: Monotonic) -> Monotonic {
        if self.ready_since.take().is_some_and(|since| now.since(since) >= STEADY) {
            self.next = self.first;
        }
        let until = now.after(self.next);
        self.next = (self.next * 2).min(self.longest);
        until
    }

    pub fn succeeded(&mut self, now: Monotonic) {
        self.ready_since = Some(now);
    }

    /// Something was heard of the other end: no reason to wait for long.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}
