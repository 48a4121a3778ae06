//! Pauses between tries to reach a server.
//!
//! Promises: each is twice as long as the one before, up to the longest; after a connection that lasted
//! they begin with the first again. Never reads a clock.

use std::time::Duration;
use types::Monotonic;

/// Time after which a connection counts as good.
const STEADY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// Since when there is what was tried for.
    since: Option<Monotonic>,
    due_at: Monotonic,
}

impl Pauses {
    /// The first try is due at once.
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, since: None, due_at: Monotonic(0) }
    }

    /// A try has failed, or what there was is lost. How long to wait.
    pub(super) fn failed(&mut self, now: Monotonic) -> Duration {
        if self.since.take().is_some_and(|since| now.since(since) >= STEADY) {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        self.due_at = now.after(pause);
        pause
    }

    /// A try has succeeded.
    pub(super) fn succeeded(&mut self, now: Monotonic) {
        self.since = Some(now);
    }

    /// When the next try may begin.
    pub(super) fn due_at(&self) -> Monotonic {
        self.due_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(1).after(Duration::from_secs(seconds))
    }

    fn millis(pauses: &mut Pauses, tries: usize) -> Vec<u128> {
        (0..tries).map(|_| pauses.failed(at(0)).as_millis()).collect()
    }

    #[test]
    fn a_server_that_stays_away_is_asked_ever_less_often() {
        let mut pauses = Pauses::new(Duration::from_millis(200), Duration::from_secs(1));
        assert_eq!(pauses.due_at(), Monotonic(0));
        assert_eq!(millis(&mut pauses, 6), [200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(pauses.due_at(), at(1));
    }

    #[test]
    fn one_that_takes_a_connection_and_loses_it_at_once_is_not_rushed_either() {
        let mut pauses = Pauses::new(Duration::from_millis(500), Duration::from_secs(5));
        for pause in [500, 1000, 2000, 4000, 5000, 5000] {
            pauses.succeeded(at(0));
            assert_eq!(pauses.failed(at(1)).as_millis(), pause);
        }
    }

    #[test]
    fn a_connection_that_lasted_is_made_anew_soon() {
        let mut pauses = Pauses::new(Duration::from_millis(500), Duration::from_secs(5));
        millis(&mut pauses, 10);
        pauses.succeeded(at(0));
        assert_eq!(pauses.failed(at(10)).as_millis(), 500);
    }
}
