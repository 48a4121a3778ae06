//! Pauses between attempts at operations that keep failing: on disks, volumes, records.
//!
//! Promises: each pause is twice as long as the one before, up to the longest. Only an attempt that
//! worked for a while resets the pause: an operation that fails at first use is no better than one
//! that cannot begin. Never reads a clock.

use std::time::Duration;
use types::Monotonic;

/// The pauses of one operation that may fail.
///
/// Invariant: `first <= pause <= longest`.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Time after which an attempt has succeeded.
    steady: Duration,
    pause: Duration,
    tried_at: Option<Monotonic>,
    due_at: Monotonic,
}

impl Backoff {
    /// Begins with a first attempt that is due at once.
    pub const fn new(first: Duration, longest: Duration, steady: Duration) -> Self {
        Self { first, longest, steady, pause: first, tried_at: None, due_at: Monotonic(0) }
    }

    /// Notes that an attempt begins. Unless [`Backoff::ended`] follows, the next one is due after a
    /// pause.
    pub fn tried(&mut self, now: Monotonic) {
        if self.tried_at.is_some() {
            self.pause = (self.pause * 2).min(self.longest);
        }
        self.tried_at = Some(now);
        self.due_at = now.after(self.pause);
    }

    /// Notes that the last attempt failed. Returns the time of the next.
    pub fn ended(&mut self, now: Monotonic) -> Monotonic {
        self.due_at = now.after(self.pause);
        self.due_at
    }

    /// Notes a failure after the last attempt had worked. Returns the time of the next.
    pub fn broke(&mut self, now: Monotonic) -> Monotonic {
        if self.tried_at.is_none_or(|at| now.since(at) >= self.steady) {
            (self.pause, self.tried_at) = (self.first, None);
        }
        self.ended(now)
    }

    pub fn is_due(&self, now: Monotonic) -> bool {
        now >= self.due_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn backoff() -> Backoff {
        Backoff::new(SECOND * 2, SECOND * 60, SECOND * 10)
    }

    /// Tries whenever an attempt is due, from `from_s` to `to_s`; each lasts for `lasts` and then
    /// breaks. Returns when attempts began, in seconds.
    fn tries(backoff: &mut Backoff, from_s: u64, to_s: u64, lasts: Duration) -> Vec<u64> {
        let mut began = Vec::new();
        let mut running: Option<Monotonic> = None;
        for tenth in from_s * 10..to_s * 10 {
            let now = Monotonic(1).after(Duration::from_millis(tenth * 100));
            if running.is_some_and(|until| now >= until) {
                running = None;
                backoff.broke(now);
            }
            if running.is_none() && backoff.is_due(now) {
                backoff.tried(now);
                began.push(tenth / 10);
                running = Some(now.after(lasts));
            }
        }
        began
    }

    #[test]
    fn what_fails_as_soon_as_it_is_begun_is_tried_with_pauses_that_double_up_to_the_longest() {
        let began = tries(&mut backoff(), 0, 600, SECOND);
        assert_eq!(began[..6], [0, 3, 8, 17, 34, 67]);
        let longest = began.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert_eq!((longest, began.len()), (Some(61), 14));
    }

    #[test]
    fn what_went_well_for_a_while_is_tried_soon_again() {
        let mut backoff = backoff();
        tries(&mut backoff, 0, 300, SECOND);
        let began = tries(&mut backoff, 300, 500, SECOND * 15);
        let pauses: Vec<u64> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(!pauses.is_empty() && pauses.iter().all(|pause| *pause == 17), "{pauses:?}");
    }

    #[test]
    fn a_try_that_takes_long_to_fail_is_followed_by_a_pause_all_the_same() {
        let mut backoff = backoff();
        backoff.tried(Monotonic(1));
        let failed_at = Monotonic(1).after(SECOND * 30);
        assert!(backoff.ended(failed_at) >= failed_at.after(SECOND * 2));
        assert!(!backoff.is_due(failed_at));
    }
}
