//! A running fleet, as it reports itself.
//!
//! Promises: keeps one fleet, and forgets it a few seconds after its last report.

use api::fleet::{FleetNode, FleetProgress};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Age from which a fleet's report is forgotten: a fleet reports once a second.
const LASTS_FOR: Duration = Duration::from_secs(5);

/// Work of a node's workers, as they see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkersLine {
    pub node: String,
    pub workers: u64,
    pub ready: u64,
    pub processes: u64,
    pub operations_per_s: f64,
    pub bytes_per_s: f64,
    pub mean_us: Option<f64>,
}

/// A fleet's run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetRun {
    pub label: String,
    pub measure_from_unix_ms: u64,
    pub ends_unix_ms: u64,
    pub nodes: Vec<WorkersLine>,
    pub total: WorkersLine,
}

struct Kept {
    told: FleetProgress,
    run: FleetRun,
    at: Instant,
}

#[derive(Default)]
pub struct Fleets(Mutex<Option<Kept>>);

impl Fleets {
    /// Takes a report; `true`: of another fleet than the last one.
    pub fn tell(&self, told: FleetProgress, now: Instant) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.as_ref().map(|kept| &kept.told);
        let is_new = before.is_none_or(|before| (&before.label, before.pid) != (&told.label, told.pid));
        let run = run(before, &told);
        *kept = Some(Kept { told, run, at: now });
        is_new
    }

    /// Returns the current run.
    pub fn running(&self, now: Instant) -> Option<FleetRun> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_some_and(|kept| now.saturating_duration_since(kept.at) > LASTS_FOR) {
            *kept = None;
        }
        kept.as_ref().map(|kept| kept.run.clone())
    }
}

/// Computes the rates since the fleet's report before, if it is of the same run.
fn run(before: Option<&FleetProgress>, now: &FleetProgress) -> FleetRun {
    let before = before.filter(|before| {
        before.label == now.label && before.pid == now.pid && before.updated_unix_ms < now.updated_unix_ms
    });
    let interval_s = before.map(|before| (now.updated_unix_ms - before.updated_unix_ms) as f64 / 1000.0);
    let then = |node: &str| before.and_then(|before| before.nodes.get(node)).copied();
    let lines: Vec<WorkersLine> =
        now.nodes.iter().map(|(name, node)| line(name, then(name).zip(interval_s), node)).collect();
    let sum = |nodes: &FleetProgress| nodes.nodes.values().fold(FleetNode::default(), FleetNode::plus);
    let total = line("Total", before.map(sum).zip(interval_s), &sum(now));
    FleetRun {
        label: now.label.clone(),
        measure_from_unix_ms: now.measure_from_unix_ms,
        ends_unix_ms: now.ends_unix_ms,
        nodes: lines,
        total,
    }
}

fn line(name: &str, before: Option<(FleetNode, f64)>, now: &FleetNode) -> WorkersLine {
    let rate = |grown: u64| before.map_or(0.0, |(_, interval_s)| grown as f64 / interval_s);
    let then = before.map_or(*now, |(node, _)| node);
    let operations = now.operations.saturating_sub(then.operations);
    let latency_ns = now.latency_ns.saturating_sub(then.latency_ns);
    WorkersLine {
        node: name.to_owned(),
        workers: now.workers,
        ready: now.ready,
        processes: now.processes,
        operations_per_s: rate(operations),
        bytes_per_s: rate(now.bytes.saturating_sub(then.bytes)),
        mean_us: (operations > 0).then(|| latency_ns as f64 / operations as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(updated_unix_ms: u64, operations: u64) -> FleetProgress {
        let node = FleetNode {
            workers: 4,
            operations,
            bytes: operations * 4096,
            latency_ns: operations * 80_000,
            ..FleetNode::default()
        };
        FleetProgress {
            label: "r".into(),
            pid: 7,
            updated_unix_ms,
            nodes: [("a".to_owned(), node), ("b".to_owned(), node)].into(),
            ..FleetProgress::default()
        }
    }

    #[test]
    fn a_line_is_what_happened_between_two_tellings_and_the_total_is_their_sum() {
        let (fleets, now) = (Fleets::default(), Instant::now());
        fleets.tell(progress(1000, 500), now);
        assert_eq!(fleets.running(now).unwrap().total.operations_per_s, 0.0);
        fleets.tell(progress(3000, 2500), now);
        let run = fleets.running(now).unwrap();
        assert_eq!((run.nodes[0].operations_per_s, run.nodes[0].mean_us), (1000.0, Some(80.0)));
        assert_eq!((run.total.operations_per_s, run.total.workers), (2000.0, 8));
    }

    #[test]
    fn a_fleet_that_says_nothing_more_is_forgotten() {
        let (fleets, now) = (Fleets::default(), Instant::now());
        fleets.tell(progress(1000, 500), now);
        assert_eq!(fleets.running(now + Duration::from_secs(6)), None);
    }
}
