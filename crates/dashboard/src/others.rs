//! The work of the other servers of the cluster: while somebody watches, asks each once a second for
//! the activity of its last second, over the cluster's port.
//!
//! Promises: a server that does not answer delays neither the pages nor the figures of others, and is
//! asked again only when it has answered or is late; rates are by each server's own clock, and of the
//! same seconds everywhere.

use crate::activity::Servers;
use crate::rates::Sample;
use crate::slow::Slow;
use api::Management;
use api::cluster::Errand;
use api::latency::Percentiles;
use api::model::{OperationCounters, Performance};
use api::printed::{OperationSample, PerformanceSample};
use api::seconds::{MachineSecond, ServerActivity};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout after which a server is asked anew.
const PATIENCE: Duration = Duration::from_secs(2);
/// Delay of the question: all servers read their counters when a second of the wall clock begins.
const ASK_AFTER: Duration = Duration::from_millis(300);
/// Age from which figures are neither shown nor used for rates.
const AGE_MAX: Duration = Duration::from_secs(4);

/// Figures of a server's last second.
#[derive(Debug, Clone, Serialize)]
pub struct NodeFigures {
    pub sample: NodeSample,
    /// Totals since its start, at the end of the interval.
    pub performance: Performance,
    /// `null`: the server is of an earlier release.
    pub machine: Option<MachineSecond>,
}

/// The part of a [`Sample`] that every server is asked for.
#[derive(Debug, Clone, Serialize)]
pub struct NodeSample {
    pub interval_s: f64,
    pub read: NodeOperations,
    pub write: NodeOperations,
}

#[derive(Debug, Clone, Serialize)]
pub struct NodeOperations {
    pub operations_per_s: f64,
    pub bytes_per_s: f64,
    /// Number of measured operations, and their mean.
    pub count: u64,
    pub mean_us: Option<f64>,
}

impl NodeOperations {
    fn between(before: &OperationCounters, after: &OperationCounters, rates: &OperationSample) -> Self {
        Self {
            operations_per_s: rates.operations_per_s,
            bytes_per_s: rates.bytes_per_s,
            count: after.measured_operations.saturating_sub(before.measured_operations),
            mean_us: rates.mean_latency_us,
        }
    }

    fn of(operations: &crate::rates::Operations) -> Self {
        let Percentiles { count, mean_us, .. } = operations.latency;
        let (operations_per_s, bytes_per_s) = (operations.operations_per_s, operations.bytes_per_s);
        Self { operations_per_s, bytes_per_s, count, mean_us }
    }
}

impl NodeFigures {
    /// Figures of this server itself.
    pub fn new(performance: &Performance, sample: &Sample) -> Self {
        let Sample { interval_s, read, write, machine, .. } = sample;
        let sample = NodeSample {
            interval_s: *interval_s,
            read: NodeOperations::of(read),
            write: NodeOperations::of(write),
        };
        Self { sample, performance: *performance, machine: Some(*machine) }
    }

    fn between(before: &Performance, after: &Performance, machine: Option<MachineSecond>) -> Self {
        let PerformanceSample { interval_s, read, write, .. } = PerformanceSample::between(before, after);
        let sample = NodeSample {
            interval_s,
            read: NodeOperations::between(&before.read, &after.read, &read),
            write: NodeOperations::between(&before.write, &after.write, &write),
        };
        Self { sample, performance: *after, machine }
    }
}

/// A server's last answer.
#[derive(Clone)]
struct Told {
    at: Instant,
    figures: NodeFigures,
    activity: ServerActivity,
}

#[derive(Default)]
pub struct Others {
    servers: BTreeMap<String, Slow<Told>>,
}

impl Others {
    /// Asks these servers, unless requests are under way; forgets others.
    pub fn look<'a>(&mut self, management: &Arc<dyn Management>, names: impl Iterator<Item = &'a str>) {
        let mut before = std::mem::take(&mut self.servers);
        for name in names {
            let mut server = before.remove(name).unwrap_or_else(Slow::new);
            let last = server.last().filter(|last| last.at.elapsed() < AGE_MAX);
            let (management, name) = (management.clone(), name.to_owned());
            let asked = name.clone();
            server.refresh(async move {
                tokio::time::sleep(ASK_AFTER).await;
                let activity = tokio::time::timeout(PATIENCE, ask(&*management, asked)).await.ok()??;
                let second = activity.second;
                let before = second.since(last.as_ref().map(|last| &last.figures.performance));
                let figures = NodeFigures::between(&before, &second.after, second.machine);
                Some(Told { at: Instant::now(), figures, activity })
            });
            self.servers.insert(name, server);
        }
    }

    /// The work of the servers that have answered lately, by name: figures of each, and the activity of
    /// their seconds.
    pub fn figures(&self, now: Instant) -> (BTreeMap<String, NodeFigures>, Servers) {
        let told = self.servers.iter().filter_map(|(name, server)| Some((name, server.last()?)));
        let fresh = told.filter(|(_, told)| now.saturating_duration_since(told.at) < AGE_MAX);
        let (mut figures, mut activity) = (BTreeMap::new(), Servers::default());
        for (name, told) in fresh {
            figures.insert(name.clone(), told.figures);
            activity.0.insert(name.clone(), told.activity);
        }
        (figures, activity)
    }
}

/// The activity of a server's last second, and the counters that every release reports.
const PATHS: [&str; 2] = ["/api/v1/perf/activity", "/api/v1/perf/second"];

/// Asks a server for its last second.
async fn ask(management: &dyn Management, name: String) -> Option<ServerActivity> {
    for path in PATHS {
        let errand = Errand { method: "GET".into(), path: path.into(), body: String::new() };
        let carried = management.cluster().send(name.clone(), errand).await;
        let carried =
            carried.inspect_err(|error| tracing::debug!(name, %error, "a server's counters")).ok()?;
        if carried.status == 200 {
            return serde_json::from_str(&carried.body).ok();
        }
        if carried.status != 404 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn performance(uptime_us: u64, operations: u64) -> Performance {
        let read = OperationCounters {
            operations,
            bytes: operations * 4096,
            measured_operations: operations,
            latency_us: operations * 50,
            ..OperationCounters::default()
        };
        Performance { uptime_us, read, ..Performance::default() }
    }

    #[test]
    fn rates_are_by_the_other_servers_own_clock() {
        let found = NodeFigures::between(&performance(1_000_000, 100), &performance(3_000_000, 500), None);
        assert_eq!((found.sample.read.operations_per_s, found.sample.read.count), (200.0, 400));
        assert_eq!(found.sample.read.mean_us, Some(50.0));
    }

    #[tokio::test]
    async fn what_a_server_said_long_ago_is_not_shown() {
        let mut others = Others::default();
        let mut server = Slow::new();
        let figures = NodeFigures::between(&performance(0, 0), &performance(1_000_000, 10), None);
        let at = Instant::now();
        let told = Told { at, figures, activity: ServerActivity::default() };
        server.refresh(async move { Some(told) });
        while server.last().is_none() {
            tokio::task::yield_now().await;
        }
        others.servers.insert("node-2".into(), server);
        assert_eq!(others.figures(at).0.len(), 1);
        assert!(others.figures(at + AGE_MAX).0.is_empty());
    }
}
