//! Pauses between attempts to connect: each twice as long as the one before, from the first to the longest.

use std::time::Duration;
use types::Monotonic;

/// Life of a connection that counts as good: the next pause is the first again.
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

    pub fn first(&self) -> Duration {
        self.first
    }

    /// An attempt has failed, or a connection is lost: when the next attempt may begin, and whether the connection had lasted.
    pub fn after_failure(&mut self, now: Monotonic) -> (Monotonic, bool) {
        let had_lasted = self.ready_since.take().is_some_and(|since| now.since(since) >= STEADY);
        if had_lasted {
            self.next = self.first;
        }
        let until = now.after(self.next);
        self.next = (self.next * 2).min(self.longest);
        (until, had_lasted)
    }

    pub fn succeeded(&mut self, now: Monotonic) {
        self.ready_since = Some(now);
    }

    /// Something was heard of the other end: no reason to wait for long.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew_after_a_connection_that_lasted() {
        let millis = Duration::from_millis;
        let mut pauses = Pauses::new((millis(50), millis(150)));
        let now = Monotonic(1);
        let tried: Vec<_> = (0..4).map(|_| pauses.after_failure(now).0.since(now)).collect();
        assert_eq!(tried, [millis(50), millis(100), millis(150), millis(150)]);
        pauses.succeeded(now);
        assert_eq!(pauses.after_failure(now.after(millis(10))), (now.after(millis(160)), false));
        pauses.succeeded(now);
        let late = now.after(STEADY);
        assert_eq!(pauses.after_failure(late), (late.after(millis(50)), true));
    }
}
