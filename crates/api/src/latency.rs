//! Percentiles of times that were counted in buckets.

use serde::{Deserialize, Serialize};
use types::LatencyHistogram;
use utoipa::ToSchema;

/// Times in microseconds; `None`: no measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    /// Number of times that were measured.
    pub count: u64,
    /// Mean of all.
    pub mean_us: Option<f64>,
    /// Median: half of the times are at most this.
    pub p50_us: Option<f64>,
    /// Bound of 90 % of the times.
    pub p90_us: Option<f64>,
    /// Bound of 99 % of the times.
    pub p99_us: Option<f64>,
    /// Bound of 99.9 % of the times.
    pub p999_us: Option<f64>,
}

/// Latencies of one client's reads and writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClientLatency {
    /// The server of a cluster that measured it, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Address of the client; for IPv6 the network of 64 bits. `None`: all clients without their own entry.
    pub client: Option<String>,
    /// Current sessions of the client.
    pub sessions: usize,
    /// Times of reads and writes that did not wait for another client.
    #[serde(flatten)]
    pub latency: Percentiles,
}

impl Percentiles {
    /// Computes percentiles of the latencies measured between two readings of one histogram.
    pub fn between(before: &LatencyHistogram, after: &LatencyHistogram) -> Self {
        Self::of_all(&[(*before, *after)])
    }

    /// The same of several histograms together. Percentiles are made from counts, and never from other percentiles.
    pub fn of_all(looks: &[(LatencyHistogram, LatencyHistogram)]) -> Self {
        let bounds = LatencyHistogram::default();
        let mut counts: Vec<(Option<f64>, u64)> =
            bounds.buckets().map(|(bound, _)| (bound.map(|bound| bound.as_secs_f64() * 1e6), 0)).collect();
        let mut sum_us = 0.0;
        for (before, after) in looks {
            for ((_, sum), ((_, after), (_, before))) in
                counts.iter_mut().zip(after.buckets().zip(before.buckets()))
            {
                *sum = u64::saturating_add(*sum, after.saturating_sub(before));
            }
            sum_us += after.sum().saturating_sub(before.sum()).as_secs_f64() * 1e6;
        }
        let count = counts.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
        if count == 0 {
            return Self::default();
        }
        let at = |share: f64| Some(percentile(&counts, count, share));
        Self {
            count,
            mean_us: Some(sum_us / count as f64),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
        }
    }
}

/// The time below which this share of all lies: within its bucket as if the times in it were spread evenly.
fn percentile(counts: &[(Option<f64>, u64)], count: u64, share: f64) -> f64 {
    let wanted = count as f64 * share;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bound, in_bucket) in counts {
        // Beyond the last bound the value is unknown.
        let Some(upper) = bound else { return lower };
        let in_bucket = *in_bucket as f64;
        if below + in_bucket >= wanted && in_bucket > 0.0 {
            return lower + (upper - lower) * (wanted - below) / in_bucket;
        }
        (below, lower) = (below + in_bucket, *upper);
    }
    lower
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn histogram(times_us: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        times_us.iter().for_each(|us| histogram.record(Duration::from_micros(*us)));
        histogram
    }

    #[test]
    fn percentiles_are_those_of_the_time_between_two_looks() {
        let before = histogram(&[5_000_000; 100]);
        let mut after = before;
        for _ in 0..99 {
            after.record(Duration::from_micros(80));
        }
        after.record(Duration::from_millis(20));
        let found = Percentiles::between(&before, &after);
        assert_eq!(found.count, 100);
        let [p50, p99, p999] = [found.p50_us, found.p99_us, found.p999_us].map(Option::unwrap);
        assert!((50.0..=100.0).contains(&p50) && (50.0..=100.0).contains(&p99), "{found:?}");
        assert!((10_000.0..=25_000.0).contains(&p999), "{found:?}");
        assert!((found.mean_us.unwrap() - 279.2).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn nothing_measured_has_no_percentiles() {
        let histogram = histogram(&[7]);
        assert_eq!(Percentiles::between(&histogram, &histogram), Percentiles::default());
    }

    #[test]
    fn times_beyond_the_last_bound_are_at_least_that() {
        let found = Percentiles::between(&LatencyHistogram::default(), &histogram(&[60_000_000]));
        assert_eq!(found.p50_us, Some(10_000_000.0));
    }
}
