//! State that the threads of a run share with the watching one: when to measure, when to stop, how far
//! the run is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The run's times, in nanoseconds of one monotonic clock. Set before the threads start; only ever made earlier afterwards.
#[derive(Debug, Default)]
pub struct Control {
    measure_from_ns: AtomicU64,
    measure_to_ns: AtomicU64,
    end_ns: AtomicU64,
    is_failed: AtomicBool,
}

impl Control {
    /// A run that starts at `start_ns`.
    pub fn new(start_ns: u64, warm_up_ns: u64, duration_ns: u64, cool_down_ns: u64) -> Arc<Self> {
        let control = Self::default();
        control.set(start_ns, warm_up_ns, duration_ns, cool_down_ns);
        Arc::new(control)
    }

    pub fn set(&self, start_ns: u64, warm_up_ns: u64, duration_ns: u64, cool_down_ns: u64) {
        let from = start_ns.saturating_add(warm_up_ns);
        let to = from.saturating_add(duration_ns);
        self.measure_from_ns.store(from, Ordering::Relaxed);
        self.measure_to_ns.store(to, Ordering::Relaxed);
        self.end_ns.store(to.saturating_add(cool_down_ns), Ordering::Relaxed);
    }

    pub fn measure_from_ns(&self) -> u64 {
        self.measure_from_ns.load(Ordering::Relaxed)
    }

    pub fn measure_to_ns(&self) -> u64 {
        self.measure_to_ns.load(Ordering::Relaxed)
    }

    /// When nothing more is issued.
    pub fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Relaxed)
    }

    /// Ends measuring and issuing at once.
    pub fn stop(&self, now_ns: u64) {
        self.measure_to_ns.fetch_min(now_ns, Ordering::Relaxed);
        self.end_ns.fetch_min(now_ns, Ordering::Relaxed);
    }

    /// As [`Self::stop`], because of an error.
    pub fn fail(&self, now_ns: u64) {
        self.is_failed.store(true, Ordering::Relaxed);
        self.stop(now_ns);
    }

    pub fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::Relaxed)
    }

    /// Nanoseconds measured; 0 if it was stopped before.
    pub fn measured_ns(&self) -> u64 {
        self.measure_to_ns().saturating_sub(self.measure_from_ns())
    }
}

/// One thread's totals since its start, for the display of progress. Written by that thread alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Live {
    operations: AtomicU64,
    bytes: AtomicU64,
    latency_ns: AtomicU64,
}

/// A sum of [`Live`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub operations: u64,
    pub bytes: u64,
    pub latency_ns: u64,
}

impl Live {
    pub fn publish(&self, totals: Totals) {
        self.operations.store(totals.operations, Ordering::Relaxed);
        self.bytes.store(totals.bytes, Ordering::Relaxed);
        self.latency_ns.store(totals.latency_ns, Ordering::Relaxed);
    }

    pub fn add_to(&self, sum: &mut Totals) {
        sum.operations += self.operations.load(Ordering::Relaxed);
        sum.bytes += self.bytes.load(Ordering::Relaxed);
        sum.latency_ns += self.latency_ns.load(Ordering::Relaxed);
    }
}
