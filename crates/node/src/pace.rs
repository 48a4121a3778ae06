//! Latencies of disks, compared with their peers'.
//!
//! Each durable write waits for the slowest of its copies. So one disk that takes a third of a
//! second for a request, and never fails, slows a whole pool down. The mean latencies of a disk
//! within windows of [`WINDOW`], by kind of operation, are compared with the median of the disk's
//! peers: present disks of the same pool and kind of medium, on any server (each reports once a
//! second the latencies of its own disks, so that the network does not count). Promises: equally
//! slow disks are not reported. A disk counts as slow after two windows in a row, and as recovered
//! after three.

use crate::metered_disk::Counters;
use std::time::Duration;

/// Length of a window: long enough to average out a burst of large requests.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
/// Least operations for a meaningful mean.
const OPERATIONS_MIN: u64 = 10;
/// Ratio to the peers' mean at which a disk counts as slow; below half of that it has recovered.
const TIMES: u32 = 8;
/// Least mean of a slow disk: of flash, and of spinning disks, which take longer with a deep queue.
const LEAST: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];
/// Windows in a row after which a disk counts as slow, and after which it no longer does.
const WINDOWS_SLOW: u8 = 2;
const WINDOWS_WELL: u8 = 3;

/// Kinds of operations of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Reads of any length.
    Read,
    /// Writes of any length.
    Write,
    /// Flushes of the disk's cache.
    Flush,
}

impl Asked {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];
}

/// A disk that is much slower than its peers, by the last window that showed that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slow {
    /// Kind of operation that is slow.
    pub asked: Asked,
    /// Mean time of the disk's operations of that kind in the window.
    pub mean: Duration,
    /// The median of its peers' means.
    pub peers: Duration,
    /// Unix seconds at which the disk began to count as slow.
    pub since_unix_s: u64,
}

/// Mean times of one window, by kind; `None`: too few operations.
pub(crate) type Means = [Option<Duration>; 3];

/// Latencies of one disk.
#[derive(Debug, Default)]
pub struct Pace {
    /// Operations and their times, by kind, when the last window ended.
    seen: [(u64, Duration); 3],
    /// Means of the last window.
    last: Means,
    /// Windows in a row that contradicted `slow`.
    contrary: u8,
    slow: Option<Slow>,
}

impl Pace {
    pub fn slow(&self) -> Option<&Slow> {
        self.slow.as_ref()
    }

    /// Returns the mean latencies of the last window.
    pub(crate) fn last(&self) -> Means {
        self.last
    }

    /// Ends a window.
    pub(crate) fn measure(&mut self, counters: &Counters) -> Means {
        let histograms = [&counters.read_latency, &counters.write_latency, &counters.flush_latency];
        self.last = std::array::from_fn(|kind| {
            let histogram = histograms[kind].borrow();
            let now = (histogram.count(), histogram.sum());
            let before = std::mem::replace(&mut self.seen[kind], now);
            let (count, sum) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
            (count >= OPERATIONS_MIN).then(|| sum / u32::try_from(count).unwrap_or(u32::MAX))
        });
        self.last
    }

    /// Judges the disk by the last window.
    pub(crate) fn judge(&mut self, own: &Means, peers: &[Means], is_rotational: bool, unix_s: u64) {
        let found = slowest(own, peers, is_rotational, TIMES);
        let is_contrary = match &mut self.slow {
            None => found.is_some(),
            Some(slow) => match &found {
                Some((asked, mean, peers)) => {
                    (slow.asked, slow.mean, slow.peers) = (*asked, *mean, *peers);
                    false
                }
                // A window without anything to compare proves nothing.
                None if own.iter().all(Option::is_none) => return,
                None => slowest(own, peers, is_rotational, TIMES / 2).is_none(),
            },
        };
        self.contrary = if is_contrary { self.contrary + 1 } else { 0 };
        match found {
            Some((asked, mean, peers)) if self.slow.is_none() && self.contrary >= WINDOWS_SLOW => {
                self.slow = Some(Slow { asked, mean, peers, since_unix_s: unix_s });
                self.contrary = 0;
            }
            None if self.slow.is_some() && self.contrary >= WINDOWS_WELL => {
                (self.slow, self.contrary) = (None, 0);
            }
            _ => {}
        }
    }
}

/// Returns the kind of operation in which the disk exceeds its peers most, if it is that much
/// slower: its mean and theirs.
fn slowest(
    own: &Means,
    peers: &[Means],
    is_rotational: bool,
    times: u32,
) -> Option<(Asked, Duration, Duration)> {
    let least = LEAST[usize::from(is_rotational)];
    let of_kind = Asked::ALL.into_iter().enumerate().filter_map(|(kind, asked)| {
        let mean = own[kind].filter(|mean| *mean >= least)?;
        let mut others: Vec<Duration> = peers.iter().filter_map(|means| means[kind]).collect();
        others.sort_unstable();
        let median = *others.get(others.len() / 2)?;
        (mean >= median.saturating_mul(times)).then_some((asked, mean, median))
    });
    of_kind.max_by_key(|(_, mean, _)| *mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Makes means of writes alone.
    fn writes(mean_ms: u64) -> Means {
        [None, Some(millis(mean_ms)), None]
    }

    fn after(windows: &[(u64, u64)], is_rotational: bool) -> Option<Slow> {
        let mut pace = Pace::default();
        for (at, (own, peers)) in windows.iter().enumerate() {
            pace.judge(&writes(*own), &[writes(*peers), writes(*peers)], is_rotational, at as u64);
        }
        pace.slow().cloned()
    }

    #[test]
    fn a_disk_is_slow_after_two_windows_and_well_after_three() {
        assert_eq!(after(&[(300, 2)], false), None);
        let slow = after(&[(300, 2), (310, 3)], false).expect("slow");
        assert_eq!((slow.asked, slow.mean, slow.peers), (Asked::Write, millis(310), millis(3)));
        assert_eq!(after(&[(300, 2), (2, 2), (300, 2)], false), None, "one good window between");
        assert!(after(&[(300, 2), (300, 2), (2, 2), (2, 2)], false).is_some());
        assert_eq!(after(&[(300, 2), (300, 2), (2, 2), (2, 2), (2, 2)], false), None);
        let since = after(&[(2, 2), (300, 2), (300, 2), (400, 2)], false).expect("slow").since_unix_s;
        assert_eq!(since, 2, "it tells of its beginning and of its last window");
    }

    #[test]
    fn disks_that_are_all_slow_or_a_little_slower_are_no_news() {
        assert_eq!(after(&[(300, 280); 5], false), None);
        assert_eq!(after(&[(300, 60); 5], false), None, "five times as long");
        assert_eq!(after(&[(40, 1); 5], false), None, "nobody notices");
        assert_eq!(after(&[(120, 5); 5], true), None, "a spinning disk with a deep queue");
        assert!(after(&[(300, 5); 5], true).is_some());
    }

    #[test]
    fn a_disk_without_work_or_without_peers_is_judged_by_nothing() {
        let mut pace = Pace::default();
        for _ in 0..5 {
            pace.judge(&writes(300), &[], false, 0);
            pace.judge(&writes(300), &[[None; 3]], false, 0);
        }
        assert_eq!(pace.slow(), None);
        pace.judge(&writes(300), &[writes(1)], false, 0);
        pace.judge(&writes(300), &[writes(1)], false, 0);
        assert!(pace.slow().is_some());
        for _ in 0..5 {
            pace.judge(&[None; 3], &[writes(1)], false, 0);
        }
        assert!(pace.slow().is_some(), "nothing was seen since");
    }

    #[test]
    fn a_window_counts_what_was_asked_within_it() {
        let (counters, mut pace) = (Counters::default(), Pace::default());
        let record = |times: u64, taken: u64| {
            for _ in 0..times {
                counters.write_latency.borrow_mut().record(millis(taken));
            }
        };
        record(20, 1);
        assert_eq!(pace.measure(&counters), writes(1));
        record(20, 300);
        assert_eq!(pace.measure(&counters), writes(300));
        record(5, 300);
        assert_eq!(pace.measure(&counters), [None; 3]);
    }
}
