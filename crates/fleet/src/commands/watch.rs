//! `fleet watch`: VMFleet's table, once a second, from each node's own counters; beside it the workers'
//! figures.
//!
//! Promises: rows are of the seconds that the dashboards show: each node counts them when a second of the wall clock begins.

use super::{Failure, nodes_of, say};
use crate::args::Watch;
use crate::runner::{LIVE_FILE, unix_ms};
use crate::server::{Server, rates};
use crate::state::{Node, State};
use crate::table::{self, Row};
use api::fleet::{FleetNode, FleetProgress};
use api::model::Performance;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a live file that are read.
const LIVE_BYTES_MAX: u64 = 4 << 20;
/// Age of a run's last report from which the run counts as ended.
const LIVE_AGE_MS: u64 = 10_000;

/// A table as an object.
#[derive(Serialize)]
struct Shown<'a> {
    unix_s: u64,
    label: Option<&'a str>,
    rows: &'a [Row],
}

pub fn watch(directory: &Path, options: &Watch) -> Result<(), Failure> {
    sys::interrupt::end_on_broken_pipe();
    let nodes = match State::load(directory) {
        Ok(state) => state.nodes,
        // Without a fleet a server's nodes can be watched all the same.
        Err(none @ crate::state::StateError::None(_)) => {
            nodes_of(&options.servers).map_err(|failure| Failure::new(format!("{none}; and {failure}")))?.0
        }
        Err(error) => return Err(error.into()),
    };
    let mut watched: Vec<Watched> = nodes.into_iter().map(Watched::new).collect();
    let is_terminal = std::io::stdout().is_terminal();
    if options.tsv {
        say(table::TSV_HEADER);
    }
    let mut next = Instant::now() + until_half_second(unix_ms());
    std::thread::sleep(next.saturating_duration_since(Instant::now()));
    let mut before = live(directory);
    watched.iter_mut().for_each(|node| drop(node.look()));
    let mut shown = 0;
    while options.count == 0 || shown < options.count {
        next += Duration::from_secs(options.interval);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = live(directory);
        let mut rows: Vec<Row> = watched.iter_mut().map(Watched::look).collect();
        add_workers(&mut rows, before.as_ref(), now.as_ref());
        let unix_s = unix_ms() / 1000;
        let label = now.as_ref().map(|live| live.label.as_str());
        if options.json {
            let object = Shown { unix_s, label, rows: &rows };
            say(&serde_json::to_string(&object).map_err(|error| Failure::new(error.to_string()))?);
        } else if options.tsv {
            say(&table::tsv(unix_s, &rows));
        } else {
            let clear = if is_terminal { "\x1b[H\x1b[2J" } else { "" };
            let what =
                label.map_or_else(|| "no run of this fleet".to_owned(), |label| format!("run: {label}"));
            say(&format!("{clear}{}\n{what}", table::text(&rows)));
        }
        before = now.or(before);
        shown += 1;
    }
    Ok(())
}

/// To the middle of a second: all nodes have counted the last one.
fn until_half_second(unix_ms: u64) -> Duration {
    Duration::from_millis((1500 - unix_ms % 1000) % 1000)
}

/// A node, its API, and its counters at the end of the second that was last shown.
struct Watched {
    node: Node,
    server: Option<Server>,
    seen: Option<Performance>,
}

impl Watched {
    fn new(node: Node) -> Self {
        Self { node, server: None, seen: None }
    }

    /// A row of rates since the last reading. A node that is away is tried again each time.
    fn look(&mut self) -> Row {
        if self.server.is_none() {
            self.server = self.node.api.as_ref().and_then(|access| Server::connect(access).ok());
        }
        let second = self.server.as_ref().and_then(|server| server.last_second().ok());
        if second.is_none() {
            self.server = None;
        }
        let before = second.map(|second| second.since(self.seen.as_ref()));
        self.seen = second.map(|second| second.after);
        let both = before.zip(self.seen);
        Row {
            node: self.node.name.clone(),
            between_us: both.map(|(before, after)| [before.uptime_us, after.uptime_us]),
            rates: both.map(|(before, after)| rates(&before, &after)),
        }
    }
}

/// Reads the progress of the current run, if there is one.
fn live(directory: &Path) -> Option<FleetProgress> {
    let mut text = String::new();
    fs::File::open(directory.join(LIVE_FILE)).ok()?.take(LIVE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let live: FleetProgress = serde_json::from_str(&text).ok()?;
    (unix_ms().saturating_sub(live.updated_unix_ms) <= LIVE_AGE_MS).then_some(live)
}

/// Puts the workers' mean latency between two readings into the rows.
fn add_workers(rows: &mut [Row], before: Option<&FleetProgress>, now: Option<&FleetProgress>) {
    let (Some(before), Some(now)) = (before, now) else { return };
    let nothing = BTreeMap::new();
    // Another run has begun meanwhile: its totals begin at 0.
    let before = if before.label == now.label && before.pid == now.pid { &before.nodes } else { &nothing };
    for row in rows {
        let (Some(rates), Some(after)) = (&mut row.rates, now.nodes.get(&row.node)) else { continue };
        let then = before.get(&row.node).copied().unwrap_or_default();
        rates.worker_ms = worker_ms(&then, after);
    }
}

fn worker_ms(before: &FleetNode, after: &FleetNode) -> Option<f64> {
    let operations = after.operations.saturating_sub(before.operations);
    let latency_ns = after.latency_ns.saturating_sub(before.latency_ns);
    (operations > 0).then(|| latency_ns as f64 / operations as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Rates;

    fn live_of(label: &str, operations: u64, latency_ns: u64) -> FleetProgress {
        let node = FleetNode { operations, latency_ns, ..FleetNode::default() };
        FleetProgress {
            label: label.into(),
            nodes: [("one".to_owned(), node)].into(),
            ..FleetProgress::default()
        }
    }

    #[test]
    fn the_workers_latency_is_that_of_the_interval() {
        let row = || vec![Row { node: "one".into(), between_us: None, rates: Some(Rates::default()) }];
        let worker = |before: FleetProgress, now: FleetProgress| {
            let mut rows = row();
            add_workers(&mut rows, Some(&before), Some(&now));
            rows[0].rates.unwrap().worker_ms
        };
        assert_eq!(worker(live_of("a", 100, 0), live_of("a", 300, 400_000_000)), Some(2.0));
        assert_eq!(worker(live_of("a", 900, 1), live_of("b", 100, 100_000_000)), Some(1.0), "another run");
        assert_eq!(worker(live_of("a", 5, 5), live_of("a", 5, 5)), None);
    }

    #[test]
    fn nodes_are_asked_in_the_middle_of_a_second() {
        let until = |unix_ms| until_half_second(unix_ms).as_millis();
        assert_eq!([0, 499, 500, 501, 999].map(until), [500, 1, 0, 999, 501]);
    }

    #[test]
    fn a_run_that_ended_without_a_word_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let mut old = live_of("a", 1, 1);
        let path = directory.path().join(LIVE_FILE);
        fs::write(&path, serde_json::to_string(&old).unwrap()).unwrap();
        assert_eq!(live(directory.path()), None);
        old.updated_unix_ms = unix_ms();
        fs::write(&path, serde_json::to_string(&old).unwrap()).unwrap();
        assert_eq!(live(directory.path()), Some(old));
    }
}
