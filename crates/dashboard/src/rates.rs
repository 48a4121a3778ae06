//! A server's rates between two readings of its counters.

use crate::machine::MachineTotals;
use api::latency::Percentiles;
use api::model::{Disk, Latency, Performance, ShareFigures, Snapshot};
use api::printed::{OperationSample, PerformanceSample};
use api::seconds::MachineSecond;
use serde::Serialize;
use std::collections::BTreeMap;
use types::{DiskId, LatencyHistogram, VolumeId};

/// A reading of the server's counters, which count from its start.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub performance: Performance,
    /// Histograms of clients' reads, writes, and all else.
    pub requests: [LatencyHistogram; 3],
    pub disk_operations: [u64; 3],
    pub rdma_bytes: u64,
    /// Reads, writes, bytes read and written by session.
    pub sessions: BTreeMap<u64, [u64; 4]>,
    pub shares: BTreeMap<(String, VolumeId), ShareTotals>,
    /// Times by client; `None`: all clients that are not kept apart.
    pub clients: BTreeMap<Option<String>, LatencyHistogram>,
    pub disks: BTreeMap<DiskId, DiskTotals>,
    pub session_count: usize,
    /// Allocation of all pools; `None`: there is none, or one is unknown.
    pub allocated_bytes: Option<u64>,
    /// Empty if made of a snapshot alone.
    pub machine: MachineTotals,
}

/// The same of a disk: reads, writes, flushes.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskTotals {
    pub operations: [u64; 3],
    pub bytes: [u64; 2],
    pub times: [LatencyHistogram; 3],
}

/// The same of a share.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShareTotals {
    /// Reads, writes, bytes read and written.
    pub counts: [u64; 4],
    pub others: u64,
    pub times: LatencyHistogram,
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Operations {
    pub operations_per_s: f64,
    pub bytes_per_s: f64,
    pub errors_per_s: f64,
    /// Times of requests that did not wait for another client.
    #[serde(flatten)]
    pub latency: Percentiles,
}

/// Rates in an interval.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Sample {
    pub interval_s: f64,
    pub read: Operations,
    pub write: Operations,
    pub metadata: Operations,
    /// Share of the bytes that clients read without any disk.
    pub cache_hit_ratio: Option<f64>,
    pub disk_read_bytes_per_s: f64,
    pub disk_write_bytes_per_s: f64,
    pub disk_reads_per_s: f64,
    pub disk_writes_per_s: f64,
    pub disk_flushes_per_s: f64,
    /// Moved by SMB Direct, in messages and by RDMA.
    pub rdma_bytes_per_s: f64,
    pub sessions: usize,
    /// Allocation of all pools to volumes; `null`: there is no pool, or one is unknown.
    pub allocated_bytes: Option<u64>,
    pub machine: MachineSecond,
}

const KINDS: [&str; 3] = ["read", "write", "metadata"];
const DISK_KINDS: [&str; 3] = ["read", "write", "flush"];

fn label<'a>(latency: &'a Latency, name: &str) -> &'a str {
    latency.labels.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
}

impl Totals {
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut requests = [LatencyHistogram::default(); 3];
        let mut disks: BTreeMap<DiskId, DiskTotals> =
            snapshot.disks.iter().map(|disk| (disk.id, of_disk(disk))).collect();
        for latency in &snapshot.latencies {
            let operation = label(latency, "operation");
            if latency.name == "smb_request"
                && let Some(kind) = KINDS.iter().position(|kind| *kind == operation)
            {
                requests[kind] = latency.histogram;
            }
            if latency.name == "disk_io"
                && let Some(kind) = DISK_KINDS.iter().position(|kind| *kind == operation)
                && let Ok(id) = label(latency, "disk").parse()
                && let Some(disk) = disks.get_mut(&id)
            {
                disk.times[kind] = latency.histogram;
            }
        }
        let direct = &snapshot.rdma.counters;
        let sum = |kind: usize| disks.values().map(|disk| disk.operations[kind]).sum();
        let sessions = snapshot.sessions.iter();
        Self {
            performance: snapshot.performance,
            requests,
            disk_operations: [sum(0), sum(1), sum(2)],
            rdma_bytes: direct.bytes_received
                + direct.bytes_sent
                + direct.bytes_rdma_read
                + direct.bytes_rdma_written,
            sessions: sessions
                .map(|session| {
                    (session.id, [session.reads, session.writes, session.read_bytes, session.written_bytes])
                })
                .collect(),
            shares: snapshot.shares.iter().map(of_share).collect(),
            clients: snapshot.clients.iter().map(|client| (client.client.clone(), client.latency)).collect(),
            disks,
            session_count: snapshot.sessions.len(),
            allocated_bytes: snapshot
                .pools
                .iter()
                .map(|pool| pool.allocated_bytes)
                .reduce(|sum, next| Some(sum?.saturating_add(next?)))
                .flatten(),
            machine: MachineTotals::default(),
        }
    }

    /// Reads, writes, bytes read and written by a session since `before`.
    pub fn session_counts(&self, before: &Self, session: u64) -> [u64; 4] {
        let now = self.sessions.get(&session).copied().unwrap_or_default();
        let then = before.sessions.get(&session).copied().unwrap_or_default();
        std::array::from_fn(|kind| now[kind].saturating_sub(then[kind]))
    }
}

fn of_share(share: &ShareFigures) -> ((String, VolumeId), ShareTotals) {
    let totals = ShareTotals {
        counts: [share.reads, share.writes, share.read_bytes, share.written_bytes],
        others: share.others,
        times: share.latency,
    };
    ((share.name.clone(), share.volume), totals)
}

fn of_disk(disk: &Disk) -> DiskTotals {
    let counters = disk.counters.unwrap_or_default();
    DiskTotals {
        operations: [counters.reads, counters.writes, counters.flushes],
        bytes: [counters.read_bytes, counters.write_bytes],
        times: Default::default(),
    }
}

impl Sample {
    pub fn between(before: &Totals, after: &Totals) -> Self {
        let plain = PerformanceSample::between(&before.performance, &after.performance);
        let operations = |kind: usize, sample: &OperationSample| Operations {
            operations_per_s: sample.operations_per_s,
            bytes_per_s: sample.bytes_per_s,
            errors_per_s: sample.errors_per_s,
            latency: Percentiles::between(&before.requests[kind], &after.requests[kind]),
        };
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / plain.interval_s;
        let disk = |kind: usize| rate(before.disk_operations[kind], after.disk_operations[kind]);
        Self {
            interval_s: plain.interval_s,
            read: operations(0, &plain.read),
            write: operations(1, &plain.write),
            metadata: operations(2, &plain.metadata),
            cache_hit_ratio: plain.cache_hit_ratio,
            disk_read_bytes_per_s: plain.disk_read_bytes_per_s,
            disk_write_bytes_per_s: plain.disk_write_bytes_per_s,
            disk_reads_per_s: disk(0),
            disk_writes_per_s: disk(1),
            disk_flushes_per_s: disk(2),
            rdma_bytes_per_s: rate(before.rdma_bytes, after.rdma_bytes),
            sessions: after.session_count,
            allocated_bytes: after.allocated_bytes,
            machine: after.machine.since(&before.machine, plain.interval_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::OperationCounters;
    use std::time::Duration;

    fn snapshot(operations: u64, uptime_us: u64) -> Snapshot {
        let read = OperationCounters { operations, bytes: operations * 4096, ..OperationCounters::default() };
        let mut histogram = LatencyHistogram::default();
        (0..operations).for_each(|_| histogram.record(Duration::from_micros(70)));
        let latency = Latency {
            name: "smb_request".into(),
            help: String::new(),
            labels: vec![("operation".into(), "read".into())],
            histogram,
        };
        Snapshot {
            performance: Performance { uptime_us, read, ..Performance::default() },
            latencies: vec![latency],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_sample_has_the_rates_and_times_of_its_interval() {
        let (before, after) = (Totals::of(&snapshot(10, 1_000_000)), Totals::of(&snapshot(210, 3_000_000)));
        let sample = Sample::between(&before, &after);
        assert_eq!((sample.read.operations_per_s, sample.read.bytes_per_s), (100.0, 409_600.0));
        assert_eq!(sample.read.latency.count, 200);
        assert_eq!(sample.write.latency.p50_us, None);
    }
}
