//! State of a running fleet for the dashboard and `fleet watch`: data only.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run, as of a moment; counters since it began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetProgress {
    /// Name of the run, as its results carry it.
    pub label: String,
    /// Process id of the program that runs the fleet.
    pub pid: u32,
    /// Time of this report, in milliseconds since 1970-01-01 00:00 UTC.
    pub updated_unix_ms: u64,
    /// End of the warm-up, from which operations count, in the same clock.
    pub measure_from_unix_ms: u64,
    /// End of the run, cool-down included, in the same clock.
    pub ends_unix_ms: u64,
    /// Totals by the name of the node that runs the workers.
    pub nodes: BTreeMap<String, FleetNode>,
}

/// A node's workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetNode {
    /// Workers, each with its own target.
    pub workers: u64,
    /// Processes that have opened their files.
    pub ready: u64,
    /// Processes that carry the workers.
    pub processes: u64,
    /// Operations that were completed.
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Sum over the operations.
    pub latency_ns: u64,
}

impl FleetNode {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            workers: self.workers.saturating_add(other.workers),
            ready: self.ready.saturating_add(other.ready),
            processes: self.processes.saturating_add(other.processes),
            operations: self.operations.saturating_add(other.operations),
            bytes: self.bytes.saturating_add(other.bytes),
            latency_ns: self.latency_ns.saturating_add(other.latency_ns),
        }
    }
}
