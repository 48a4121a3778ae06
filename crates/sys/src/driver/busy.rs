//! Busy polling, on request: searching for work for a while before sleeping, if work keeps coming.
//!
//! Sleeping and being woken costs more than a short wait. Promises: searches for no longer than was
//! asked for at a time. If that found nothing it sleeps at once the next time, then twice, four times
//! and so on, until something is found again: an idle thread does not poll. Never reads a clock.

use std::time::Duration;

/// Most sleeps without a search, after searches that found nothing.
const PASSED_MAX: u32 = 1024;

#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    limit: Duration,
    /// Sleeps to come without a search before them.
    to_pass: u32,
    /// The same after the next look that finds nothing.
    next: u32,
}

impl BusyPoll {
    pub fn new(limit: Duration) -> Self {
        Self { limit, to_pass: 0, next: 1 }
    }

    /// How long to look before a sleep that begins now.
    pub fn before_sleep(&mut self) -> Duration {
        if self.limit.is_zero() {
            return Duration::ZERO;
        }
        match self.to_pass.checked_sub(1) {
            Some(left) => {
                self.to_pass = left;
                Duration::ZERO
            }
            None => self.limit,
        }
    }

    /// Notes whether the look found work.
    pub fn looked(&mut self, found: bool) {
        if found {
            self.next = 1;
        } else {
            self.to_pass = self.next;
            self.next = (self.next * 2).min(PASSED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    /// Counts the searches that precede this many sleeps and find nothing.
    fn looks(busy: &mut BusyPoll, sleeps: usize) -> usize {
        let looks = |_: &usize| {
            let looks = !busy.before_sleep().is_zero();
            if looks {
                busy.looked(false);
            }
            looks
        };
        (0..sleeps).filter(looks).count()
    }

    #[test]
    fn nobody_looks_who_was_not_asked_to() {
        assert_eq!(looks(&mut BusyPoll::default(), 1000), 0);
    }

    #[test]
    fn what_is_idle_looks_ever_more_seldom() {
        let mut busy = BusyPoll::new(LIMIT);
        assert_eq!(looks(&mut busy, 1), 1);
        // A thousandth of all, in the end.
        assert!((64..80).contains(&looks(&mut busy, 1 << 16)));
    }

    #[test]
    fn what_is_busy_looks_each_time_and_soon_again_after_a_pause() {
        let mut busy = BusyPoll::new(LIMIT);
        for _ in 0..100 {
            assert_eq!(busy.before_sleep(), LIMIT);
            busy.looked(true);
        }
        looks(&mut busy, 5000);
        while busy.before_sleep().is_zero() {}
        busy.looked(true);
        assert_eq!(busy.before_sleep(), LIMIT);
        busy.looked(false);
        assert!(busy.before_sleep().is_zero());
        assert_eq!(busy.before_sleep(), LIMIT);
    }
}
