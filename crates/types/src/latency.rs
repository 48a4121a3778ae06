//! How long operations took, in buckets.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Upper bounds of the buckets in nanoseconds, inclusive: 10 us to 10 s, in steps of at least twice. The last bucket has none.
const BOUNDS_NS: [u64; LatencyHistogram::BUCKETS - 1] = {
    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;
    [
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        MS,
        2_500_000,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        2_500 * MS,
        5 * S,
        10 * S,
    ]
};

/// By the position of a duration's highest bit: the first bucket that it may belong to. As bounds are at least twice as large as
/// those before them, it belongs there or into the next one.
const FIRST: [u8; 64] = {
    let mut first = [0; 64];
    let mut bit = 0;
    while bit < 64 {
        let mut bucket = 0;
        while bucket < BOUNDS_NS.len() && BOUNDS_NS[bucket] < 1 << bit {
            bucket += 1;
        }
        first[bit] = bucket as u8;
        bit += 1;
    }
    first
};

/// Durations counted in buckets. Recording one costs two look-ups in tables and three additions.
///
/// Invariant: the buckets together have counted as many durations as went into the sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    counts: [u64; Self::BUCKETS],
    sum_ns: u64,
}

impl LatencyHistogram {
    pub const BUCKETS: usize = 20;

    #[inline]
    pub const fn record(&mut self, taken: Duration) {
        let taken_ns = taken.as_nanos() as u64;
        self.counts[bucket_of(taken_ns)] += 1;
        // An overflow would take 584 years of waiting.
        self.sum_ns = self.sum_ns.wrapping_add(taken_ns);
    }

    /// Counts what `other` has counted, too.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            // Another server's counts may hold any numbers.
            *count = count.saturating_add(more);
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Returns the durations counted since `before`, an earlier state of the same histogram.
    pub fn since(&self, before: &Self) -> Self {
        let mut grown = *self;
        for (count, then) in grown.counts.iter_mut().zip(before.counts) {
            *count = count.saturating_sub(then);
        }
        grown.sum_ns = grown.sum_ns.saturating_sub(before.sum_ns);
        grown
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all durations.
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Gives each bucket's upper bound, inclusive, and the durations counted in it alone. `None`: there is no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = BOUNDS_NS.iter().map(|bound| Some(Duration::from_nanos(*bound)));
        bounds.chain([None]).zip(self.counts)
    }
}

#[inline]
const fn bucket_of(taken_ns: u64) -> usize {
    // The highest bit of zero counts as that of one.
    let first = FIRST[(taken_ns | 1).ilog2() as usize] as usize;
    if first < BOUNDS_NS.len() && taken_ns > BOUNDS_NS[first] { first + 1 } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the bucket by comparing all bounds.
    fn bucket_by_search(taken_ns: u64) -> usize {
        BOUNDS_NS.iter().position(|bound| taken_ns <= *bound).unwrap_or(BOUNDS_NS.len())
    }

    #[test]
    fn each_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let around_bounds = BOUNDS_NS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        let around_powers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for taken_ns in around_bounds.chain(around_powers).chain([0, 1, u64::MAX]) {
            assert_eq!(bucket_of(taken_ns), bucket_by_search(taken_ns), "{taken_ns} ns");
        }
    }

    #[test]
    fn bounds_are_at_least_twice_as_large_as_those_before_them() {
        assert!(BOUNDS_NS.windows(2).all(|pair| pair[1] >= 2 * pair[0]));
    }

    #[test]
    fn what_is_recorded_is_in_its_bucket_and_in_the_sum() {
        let mut histogram = LatencyHistogram::default();
        for taken_us in [7, 10, 11, 30_000_000] {
            histogram.record(Duration::from_micros(taken_us));
        }
        let counts: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!((counts[0], counts[1], counts[19], counts.iter().sum()), (2, 1, 1, 4_u64));
        assert_eq!(histogram.sum(), Duration::from_micros(30_000_028));
        assert_eq!(histogram.buckets().next().unwrap().0, Some(Duration::from_micros(10)));
        assert_eq!(histogram.buckets().last().unwrap().0, None);
        let one = histogram;
        assert_eq!(histogram.since(&one), LatencyHistogram::default());
        histogram.add(&one);
        assert_eq!(histogram.since(&one), one);
        assert_eq!((histogram.count(), histogram.sum()), (2 * one.count(), 2 * one.sum()));
    }
}
