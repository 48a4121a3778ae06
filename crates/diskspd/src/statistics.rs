//! Counts operations completed inside the measured span, their latency as a bounded histogram, their rate by interval.
//!
//! Latency is kept exactly to 1 us up to 2 ms and with a relative error of at most 1/1024 above. Histograms of threads, targets and machines
//! add up.

/// Values under this many units are kept one by one.
const LINEAR: u64 = 2048;
/// Sub-buckets of each power of two above.
const SUB_BITS: u32 = 10;
const SUB: u64 = 1 << SUB_BITS;
/// Powers of two above the linear part: up to 2^42 us, 50 days.
const POWERS: usize = 32;

/// Latencies in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    sum_squared_ns2: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Vec::new(), count: 0, sum_ns: 0, sum_squared_ns2: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Histogram {
    /// Memory of a histogram in bytes, however many values it holds.
    pub const BYTES_MAX: usize = (LINEAR as usize + POWERS * SUB as usize) * 8;

    fn bucket(us: u64) -> usize {
        if us < LINEAR {
            return us as usize;
        }
        let power = us.ilog2() - LINEAR.ilog2();
        let sub = (us >> (power + 1)) - SUB;
        (LINEAR as usize + power as usize * SUB as usize + sub as usize)
            .min(LINEAR as usize + POWERS * SUB as usize - 1)
    }

    /// The lowest value of a bucket in microseconds, and the bucket's width.
    fn value(bucket: usize) -> (u64, u64) {
        let bucket = bucket as u64;
        if bucket < LINEAR {
            return (bucket, 1);
        }
        let (power, sub) = ((bucket - LINEAR) / SUB, (bucket - LINEAR) % SUB);
        ((SUB + sub) << (power + 1), 1 << (power + 1))
    }

    pub fn record(&mut self, latency_ns: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; Self::BYTES_MAX / 8];
        }
        let us = latency_ns / 1000;
        self.counts[Self::bucket(us)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(latency_ns);
        self.sum_squared_ns2 += u128::from(latency_ns) * u128::from(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Adds a latency that occurred `count` times; `None` if the count does not fit.
    pub fn record_many(&mut self, latency_ns: u64, count: u64) -> Option<()> {
        let Some(more) = count.checked_sub(1) else { return Some(()) };
        let total = self.count.checked_add(count)?;
        let sum_ns = self.sum_ns.checked_add(u128::from(latency_ns) * u128::from(count))?;
        let square = u128::from(latency_ns) * u128::from(latency_ns);
        let sum_squared =
            square.checked_mul(u128::from(count)).and_then(|all| self.sum_squared_ns2.checked_add(all))?;
        self.record(latency_ns);
        self.counts[Self::bucket(latency_ns / 1000)] += more;
        (self.count, self.sum_ns, self.sum_squared_ns2) = (total, sum_ns, sum_squared);
        Some(())
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.counts = vec![0; Self::BYTES_MAX / 8];
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_squared_ns2 += other.sum_squared_ns2;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn min_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min_ns as f64 / 1e6)
    }

    pub fn max_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max_ns as f64 / 1e6)
    }

    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e6)
    }

    /// Of the population.
    pub fn std_dev_ms(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let n = self.count as f64;
        let mean = self.sum_ns as f64 / n;
        Some((self.sum_squared_ns2 as f64 / n - mean * mean).max(0.0).sqrt() / 1e6)
    }

    /// The first value whose cumulative count is at least `share` (0 to 1) of all; in milliseconds.
    pub fn percentile_ms(&self, share: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (low, width) = Self::value(bucket);
                let middle = low as f64 + (width - 1) as f64 / 2.0;
                let exact = middle / 1e3;
                return Some(exact.clamp(self.min_ns as f64 / 1e6, self.max_ns as f64 / 1e6));
            }
        }
        self.max_ms()
    }

    /// (value in microseconds, count) of every value that occurred, in order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (Self::value(bucket).0, *count))
    }
}

/// Completions by interval, for the deviation of IOPS, and their latency if it is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    pub bucket_ms: u32,
    pub counts: Vec<u64>,
    /// As many as counts, or none.
    pub latencies: Vec<Moments>,
}

/// Smallest, largest, sum and sum of squares of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    pub count: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u128,
    pub sum_squared_ns2: u128,
}

impl Moments {
    fn add(&mut self, latency_ns: u64) {
        let one = Self {
            count: 1,
            min_ns: latency_ns,
            max_ns: latency_ns,
            sum_ns: u128::from(latency_ns),
            sum_squared_ns2: u128::from(latency_ns) * u128::from(latency_ns),
        };
        self.merge(&one);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.sum_squared_ns2 += other.sum_squared_ns2;
    }

    /// 0 if there are none.
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1e6 }
    }

    /// Of the population; 0 if there are none.
    pub fn std_dev_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let n = self.count as f64;
        let mean = self.sum_ns as f64 / n;
        (self.sum_squared_ns2 as f64 / n - mean * mean).max(0.0).sqrt() / 1e6
    }
}

impl Intervals {
    pub fn new(bucket_ms: u32, duration_ms: u64, measure_latency: bool) -> Self {
        let buckets = duration_ms.div_ceil(u64::from(bucket_ms.max(1))) as usize;
        let latencies = if measure_latency { vec![Moments::default(); buckets] } else { Vec::new() };
        Self { bucket_ms: bucket_ms.max(1), counts: vec![0; buckets], latencies }
    }

    pub fn record(&mut self, at_ns: u64, latency_ns: u64) {
        let bucket = (at_ns / 1_000_000 / u64::from(self.bucket_ms)) as usize;
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        if let Some(latency) = self.latencies.get_mut(bucket) {
            latency.add(latency_ns);
        }
    }

    /// Forgets everything behind this many intervals.
    pub fn truncate(&mut self, intervals: usize) {
        self.counts.truncate(intervals);
        self.latencies.truncate(intervals);
    }

    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
            self.bucket_ms = other.bucket_ms;
        }
        if self.latencies.len() < other.latencies.len() {
            self.latencies.resize(other.latencies.len(), Moments::default());
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
    }

    /// Population deviation of the buckets' counts by the buckets' seconds.
    pub fn iops_std_dev(&self) -> f64 {
        if self.counts.is_empty() {
            return 0.0;
        }
        let n = self.counts.len() as f64;
        let mean = self.counts.iter().sum::<u64>() as f64 / n;
        let variance = self.counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum::<f64>() / n;
        variance.sqrt() / (f64::from(self.bucket_ms) / 1000.0)
    }
}

/// One direction of one thread on one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    pub bytes: u64,
    pub operations: u64,
    pub latency: Histogram,
    pub intervals: Intervals,
}

impl Direction {
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.latency.merge(&other.latency);
        self.intervals.merge(&other.intervals);
    }
}

/// A part of a target, and its share of the random operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectiveRange {
    /// Of the sum of all shares.
    pub share: u32,
    pub offset: u64,
    pub len_bytes: u64,
}

/// How a thread spent its waits (`-vs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitStatistics {
    /// Waits for a completion alone.
    pub completion_waits: u64,
    /// Waits that a throttle or think time bounds, and those of them of more than 1 ms.
    pub throttle_waits: u64,
    pub throttle_sleeps: u64,
    /// Completions that were there beside the one waited for.
    pub batched_completions: u64,
}

/// A thread's sessions, and their work while the run measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmbUse {
    pub server: String,
    pub is_rdma: bool,
    /// Why SMB Direct was not used though it was hoped for.
    pub fallback: Option<String>,
    pub dialect: String,
    pub channels: u32,
    pub is_signed: bool,
    /// The cipher, if messages are encrypted.
    pub cipher: Option<String>,
    pub counters: smb_client::Counters,
}

/// One thread on one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetResult {
    pub path: String,
    pub file_bytes: u64,
    /// The effective ranges of `-rd` on this target.
    pub distribution: Vec<EffectiveRange>,
    pub read: Direction,
    pub write: Direction,
}

impl TargetResult {
    pub fn total(&self) -> Direction {
        let mut total = self.read.clone();
        total.merge(&self.write);
        total
    }
}

/// Where a processor sits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorPlace {
    /// The system's number of it.
    pub processor: u32,
    pub socket: u32,
    pub node: u32,
    pub core: u32,
    /// 0: the slowest kind.
    pub class: u32,
}

/// Share of the time of one processor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessorUse {
    pub group: u16,
    pub number: u32,
    pub user_percent: f64,
    /// Without idle time.
    pub kernel_percent: f64,
    pub idle_percent: f64,
}

/// Result of one time span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanResult {
    pub seconds: f64,
    pub thread_count: u32,
    pub request_count: u32,
    pub processors: Vec<ProcessorUse>,
    /// By thread, then by target.
    pub threads: Vec<Vec<TargetResult>>,
    /// By thread.
    pub waits: Vec<WaitStatistics>,
    /// User and kernel time of this process while it measured.
    pub process_cpu_ns: u64,
    /// Sessions at SMB servers, by thread.
    pub smb_sessions: Vec<SmbUse>,
}

/// The machine that ran it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemInformation {
    pub computer_name: String,
    /// As `2024/06/03 10:00:00 UTC`.
    pub start_time: String,
    pub processors: u32,
    pub cores: u32,
    pub groups: u32,
    pub nodes: u32,
    pub sockets: u32,
    pub heterogeneous: bool,
    pub places: Vec<ProcessorPlace>,
    pub power_scheme: String,
    pub tool_version: String,
    pub tool_date: String,
}
