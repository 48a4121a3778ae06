//! When the next operation may go: `-g` rates, and `-i` bursts with `-j` think time. Time is an argument.

use crate::profile::{Target, Throughput};

/// A thread that fell behind its rate catches up this much and no more.
const CATCH_UP_NS: u64 = 1_000_000_000;
const NS_PER_S: u128 = 1_000_000_000;

/// The pace of one thread on one target.
#[derive(Debug, Clone)]
pub struct Pace {
    rate: Option<Rate>,
    burst: u32,
    think_ns: u64,
    issued_in_burst: u32,
    /// After a burst: not before this.
    rest_until_ns: u64,
}

#[derive(Debug, Clone)]
struct Rate {
    /// Operations or bytes in `per_ns`.
    amount: u64,
    per_ns: u64,
    counts_bytes: bool,
    /// The schedule's origin, and the amount issued since.
    origin_ns: u64,
    issued: u64,
}

impl Pace {
    /// `start_ns` is where the schedule begins.
    pub fn new(target: &Target, start_ns: u64) -> Self {
        let rate = target.throughput.map(|throughput| {
            let (amount, per_ns, counts_bytes) = match throughput {
                Throughput::BytesPerMillisecond(bytes) => (bytes, 1_000_000, true),
                Throughput::Iops(operations) => (operations, 1_000_000_000, false),
            };
            Rate { amount: u64::from(amount.max(1)), per_ns, counts_bytes, origin_ns: start_ns, issued: 0 }
        });
        Self {
            rate,
            burst: target.burst_size.max(1),
            think_ns: u64::from(target.think_time_ms) * 1_000_000,
            issued_in_burst: 0,
            rest_until_ns: 0,
        }
    }

    /// Whether nothing is held back ever.
    pub fn is_free(&self) -> bool {
        self.rate.is_none() && self.think_ns == 0
    }

    /// When the next operation may go.
    pub fn ready_at_ns(&self) -> u64 {
        let by_rate = self.rate.as_ref().map_or(0, |rate| {
            let due = u128::from(rate.issued) * u128::from(rate.per_ns) / u128::from(rate.amount);
            rate.origin_ns.saturating_add(u64::try_from(due).unwrap_or(u64::MAX))
        });
        by_rate.max(self.rest_until_ns)
    }

    /// An operation goes.
    pub fn issued(&mut self, now_ns: u64, bytes: u32) {
        if let Some(rate) = &mut self.rate {
            rate.issued += if rate.counts_bytes { u64::from(bytes) } else { 1 };
            let due = u128::from(rate.issued) * u128::from(rate.per_ns) / u128::from(rate.amount);
            let due = rate.origin_ns.saturating_add(u64::try_from(due).unwrap_or(u64::MAX));
            let behind = now_ns.saturating_sub(due);
            if behind > CATCH_UP_NS {
                rate.origin_ns += behind - CATCH_UP_NS;
            }
            // The products stay small however long the run.
            if u128::from(rate.issued) * u128::from(rate.per_ns) > NS_PER_S * 1_000_000_000_000 {
                let whole = rate.issued / rate.amount;
                rate.issued -= whole * rate.amount;
                rate.origin_ns += whole * rate.per_ns;
            }
        }
        if self.think_ns > 0 {
            self.issued_in_burst += 1;
            if self.issued_in_burst >= self.burst {
                self.issued_in_burst = 0;
                self.rest_until_ns = now_ns + self.think_ns;
            }
        }
    }
}
