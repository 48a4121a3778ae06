//! Objects that the command line prints as JSON beyond the API's answers, so that one document has both
//! schemas.
//!
//! Owns data only. Units and times as in [`crate::model`].

use crate::model::{
    ClusterPerformance, OperationCounters, Performance, RdmaActivity, ServerPerformance, SmbDirectCounters,
};
use crate::requests::UserView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Printed by commands that change something and have nothing else to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// The user's full name.
    pub message: String,
}

/// Printed by `dashboard`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DashboardLink {
    /// Link with the API's token behind `#token=`, which browsers do not send.
    pub url: String,
}

/// Printed by `user add`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AddedUser {
    /// The user that was added.
    #[serde(flatten)]
    pub user: UserView,
    /// The generated password; `None`: the caller gave one.
    pub password: Option<String>,
}

/// Clients' work on the server during an interval. Printed by `perf`, one a line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PerformanceSample {
    /// Length of the interval.
    pub interval_s: f64,
    /// READ requests.
    pub read: OperationSample,
    /// WRITE requests.
    pub write: OperationSample,
    /// Everything but READ and WRITE.
    pub metadata: OperationSample,
    /// Share of the bytes that clients read from the cache; `None`: no reads.
    pub cache_hit_ratio: Option<f64>,
    /// All copies, journals and checksums included.
    pub disk_read_bytes_per_s: f64,
    /// Bytes written to disks, counted in the same way.
    pub disk_write_bytes_per_s: f64,
}

/// Requests of one kind during an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationSample {
    /// Requests that were answered.
    pub operations_per_s: f64,
    /// Bytes of data that requests moved.
    pub bytes_per_s: f64,
    /// Requests answered with an error status.
    pub errors_per_s: f64,
    /// Mean time from receipt to answer; `None`: no answers except for requests that waited for another
    /// client.
    pub mean_latency_us: Option<f64>,
}

impl PerformanceSample {
    /// Changes between two readings of all servers of a cluster that answered both: rates are by each one's
    /// own clock.
    pub fn of_all(before: &ClusterPerformance, after: &ClusterPerformance) -> Self {
        if after.servers.is_empty() {
            return Self::between(&before.total, &after.total);
        }
        let (mut first, mut last) = (Performance::default(), Performance::default());
        let (mut count, mut interval_us) = (0, 0);
        for ServerPerformance { server, performance: is } in &after.servers {
            let Some(known) = before.servers.iter().find(|known| known.server == *server) else { continue };
            // A restarted server counts from its start.
            let was = Some(known.performance).filter(|was| was.uptime_us <= is.uptime_us).unwrap_or_default();
            (count, interval_us) = (count + 1, interval_us + is.uptime_us - was.uptime_us);
            first.add(&was);
            last.add(is);
        }
        (first.uptime_us, last.uptime_us) = (0, interval_us / count.max(1));
        Self::between(&first, &last)
    }

    /// Computes the changes between two readings of the same server; since its start, if it was restarted
    /// in between.
    pub fn between(before: &Performance, after: &Performance) -> Self {
        let restarted = after.uptime_us < before.uptime_us;
        let nothing = Performance::default();
        let before = if restarted { &nothing } else { before };
        let interval_s = after.uptime_us.saturating_sub(before.uptime_us).max(1) as f64 / 1e6;
        // The caches' counters end with their volumes.
        let hits = after.cache_hit_bytes.saturating_sub(before.cache_hit_bytes) as f64;
        let misses = after.cache_miss_bytes.saturating_sub(before.cache_miss_bytes) as f64;
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / interval_s;
        Self {
            interval_s,
            read: OperationSample::between(&before.read, &after.read, interval_s),
            write: OperationSample::between(&before.write, &after.write, interval_s),
            metadata: OperationSample::between(&before.metadata, &after.metadata, interval_s),
            cache_hit_ratio: (hits + misses > 0.0).then(|| hits / (hits + misses)),
            disk_read_bytes_per_s: rate(before.disk_read_bytes, after.disk_read_bytes),
            disk_write_bytes_per_s: rate(before.disk_write_bytes, after.disk_write_bytes),
        }
    }
}

impl OperationSample {
    fn between(before: &OperationCounters, after: &OperationCounters, interval_s: f64) -> Self {
        let grown = |count: fn(&OperationCounters) -> u64| count(after).saturating_sub(count(before)) as f64;
        let measured = grown(|counters| counters.measured_operations);
        let latency_us = grown(|counters| counters.latency_us);
        Self {
            operations_per_s: grown(|counters| counters.operations) / interval_s,
            bytes_per_s: grown(|counters| counters.bytes) / interval_s,
            errors_per_s: grown(|counters| counters.errors) / interval_s,
            mean_latency_us: (measured > 0.0).then(|| latency_us / measured),
        }
    }
}

/// A file or directory on any SMB server. Printed by `smb ls` and `smb stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoteFile {
    /// `/` between names.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Length of the file's data (EndOfFile).
    pub size_bytes: u64,
    /// Space that the file takes on the server (AllocationSize).
    pub allocated_bytes: u64,
    /// Negative before 1970, as the other times.
    pub created_unix_s: i64,
    /// LastWriteTime, in seconds since 1970-01-01 00:00 UTC.
    pub written_unix_s: i64,
    /// ChangeTime, which changes of attributes also update.
    pub changed_unix_s: i64,
    /// LastAccessTime, as far as the server keeps it.
    pub accessed_unix_s: i64,
    /// FileAttributes (MS-FSCC 2.6).
    pub attributes: u32,
}

/// Printed by `rdma counters`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct RdmaCounterSets {
    /// The set "SMB Direct Connection", summed over all connections.
    pub smb_direct_connection: SmbDirectCounters,
    /// The set "RDMA Activity".
    pub rdma_activity: RdmaActivity,
}

/// Printed by `rdma ping`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RdmaPing {
    /// The agreement of both ends, and times of the steps and of round trips; units in names.
    #[schema(value_type = Object)]
    pub path: serde_json::Value,
    /// Bandwidth of a share, if one was named.
    #[schema(value_type = Option<Object>)]
    pub bandwidth: Option<serde_json::Value>,
}

/// Printed by `disk inspect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskInspection {
    /// Path that was inspected.
    pub path: String,
    /// Whole size of the file or device.
    pub size_bytes: u64,
    /// Damage, and its meaning.
    pub problems: Vec<String>,
    /// All findings, for people.
    pub report: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(operations: u64, measured_operations: u64, latency_us: u64) -> Performance {
        let read = OperationCounters {
            operations,
            measured_operations,
            latency_us,
            bytes: operations * 4096,
            ..OperationCounters::default()
        };
        Performance { read, ..Performance::default() }
    }

    #[test]
    fn a_sample_is_of_its_interval_and_its_latency_is_that_of_measured_operations() {
        let before = Performance { uptime_us: 1_000_000, cache_hit_bytes: 100, ..reads(10, 10, 500) };
        let after = Performance {
            uptime_us: 3_000_000,
            cache_hit_bytes: 400,
            cache_miss_bytes: 100,
            disk_read_bytes: 50,
            ..reads(50, 30, 2500)
        };
        let sample = PerformanceSample::between(&before, &after);
        assert_eq!((sample.interval_s, sample.read.operations_per_s), (2.0, 20.0));
        assert_eq!(sample.read.mean_latency_us, Some(100.0));
        assert_eq!((sample.cache_hit_ratio, sample.disk_read_bytes_per_s), (Some(0.75), 25.0));
        assert_eq!(sample.write.mean_latency_us, None);
        assert_eq!(PerformanceSample::between(&after, &after).cache_hit_ratio, None);
    }

    #[test]
    fn rates_of_a_cluster_are_those_of_the_servers_that_answered_both_times() {
        let of = |servers: &[(&str, u64, u64)]| {
            let servers = servers.iter().map(|(server, uptime_us, operations)| ServerPerformance {
                server: (*server).to_owned(),
                performance: Performance { uptime_us: *uptime_us, ..reads(*operations, 0, 0) },
            });
            ClusterPerformance { servers: servers.collect(), ..ClusterPerformance::default() }
        };
        let before = of(&[("node-1", 9_000_000, 100), ("node-2", 5_000_000, 1000), ("node-3", 1_000_000, 1)]);
        // The second one was started anew, the third does not answer, and the fourth did not before.
        let after =
            of(&[("node-1", 10_000_000, 140), ("node-2", 1_000_000, 60), ("node-4", 7_000_000, 7000)]);
        let sample = PerformanceSample::of_all(&before, &after);
        assert_eq!((sample.interval_s, sample.read.operations_per_s), (1.0, 100.0));
    }

    #[test]
    fn a_server_that_was_started_anew_is_looked_at_from_its_start() {
        let before = Performance { uptime_us: 9_000_000, ..reads(1000, 1000, 1) };
        let after = Performance { uptime_us: 2_000_000, ..reads(6, 6, 60) };
        let sample = PerformanceSample::between(&before, &after);
        assert_eq!((sample.read.operations_per_s, sample.read.mean_latency_us), (3.0, Some(10.0)));
    }
}
