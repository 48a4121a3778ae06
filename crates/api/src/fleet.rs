//! State of a running fleet for the dashboard and `fleet watch`: data only.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run, as of a moment; counters since it began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetProgress {
    pub label: String,
    pub pid: u32,
    pub updated_unix_ms: u64,
    pub measure_from_unix_ms: u64,
    pub ends_unix_ms: u64,
    pub nodes: BTreeMap<String, FleetNode>,
}

/// A node's workers together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetNode {
    pub workers: u64,
    /// Processes that have opened their files.
    pub ready: u64,
    pub processes: u64,
    pub operations: u64,
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
