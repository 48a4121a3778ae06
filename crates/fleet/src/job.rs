//! Orders of the coordinator to a machine, and the machine's answers: one JSON object a line, over
//! pipes or ssh.

use crate::state::{Microvms, Template};
use api::fleet::FleetNode;
use diskspd::statistics::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a line at most: histograms of 64 nodes, all of their values different.
pub const LINE_BYTES_MAX: u64 = 256 << 20;

/// The work of one machine in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Unique on the machine, in letters that a file name has.
    pub name: String,
    /// Lines username= and password=; `None`: anonymous.
    pub credentials: Option<Credentials>,
    /// When all workers begin, in milliseconds since 1970.
    pub start_unix_ms: u64,
    /// From the start to the end of the run.
    pub length_ms: u64,
    /// Options of DiskSpd beside the profile.
    pub options: Vec<String>,
    pub template: Option<Template>,
    /// Each process is one in a machine of its own; `None`: in a control group.
    #[serde(default)]
    pub microvms: Option<Microvms>,
    /// Profiles as XML; processes name them by their places.
    pub profiles: Vec<String>,
    pub processes: Vec<Process>,
}

/// A secret on its way to a machine: never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Credentials(pub String);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// A process of DiskSpd: one worker, or several of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub node: String,
    pub profile: usize,
    /// A data file for each worker.
    pub targets: Vec<String>,
}

/// A machine's answer: progress, again and again, and the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Progress of each node's workers, since the run began.
    Progress(BTreeMap<String, FleetNode>),
    Done(Done),
    Failed(String),
}

/// A microVM's message, one object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// Asks for the host's time; the answer is a line with nanoseconds since 1970.
    Clock,
    /// Clock set, and network up: the next line is the job, and any line after that asks the machine to stop.
    Ready,
    Answer(Answer),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub nodes: BTreeMap<String, NodeDone>,
    /// CPU use of the machine, with everything that runs on it.
    pub cpu_percent: Option<f64>,
    /// `TCP`, `SMB Direct`.
    pub transports: Vec<String>,
    /// Mechanism that held the workers, and facts that readers of the figures must know.
    pub notes: Vec<String>,
}

impl Done {
    /// Adds the results of another part of the same run. CPU use stays: parts of one machine have all
    /// measured the same one.
    ///
    /// # Errors
    /// Counts do not fit.
    pub fn add(&mut self, other: Self) -> Result<(), String> {
        for (name, found) in other.nodes {
            let node = self.nodes.entry(name).or_default();
            node.workers += found.workers;
            for (sum, rate) in [(&mut node.read, found.read), (&mut node.write, found.write)] {
                *sum = Rate { iops: sum.iops + rate.iops, bytes_per_s: sum.bytes_per_s + rate.bytes_per_s };
            }
            for (sum, more) in [
                (&mut node.read_latencies, found.read_latencies),
                (&mut node.write_latencies, found.write_latencies),
            ] {
                let mut merged = histogram(sum)?;
                merged.merge(&histogram(&more)?);
                *sum = merged.entries().collect();
            }
        }
        self.transports.extend(other.transports);
        self.transports.sort_unstable();
        self.transports.dedup();
        self.notes.extend(other.notes);
        self.notes.dedup();
        Ok(())
    }
}

/// One node's workers on one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeDone {
    pub workers: u64,
    pub read: Rate,
    pub write: Rate,
    /// (microseconds, count).
    pub read_latencies: Vec<(u64, u64)>,
    pub write_latencies: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub iops: f64,
    pub bytes_per_s: f64,
}

/// Counts by microseconds as a histogram.
///
/// # Errors
/// If counts do not fit.
pub fn histogram(latencies: &[(u64, u64)]) -> Result<Histogram, String> {
    let mut histogram = Histogram::default();
    for (us, count) in latencies {
        histogram
            .record_many(us.saturating_mul(1000), *count)
            .ok_or("a latency histogram has more counts than there can be")?;
    }
    Ok(histogram)
}

/// An object as a line.
pub fn line(value: &impl Serialize) -> String {
    // Maps with text for keys, numbers and text: nothing that JSON does not have.
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"failed\":\"{error}\"}}")) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_were_written() {
        let node =
            NodeDone { workers: 2, read_latencies: vec![(100, 7), (90_000, 1)], ..NodeDone::default() };
        let done = Done { nodes: [("one".into(), node)].into(), cpu_percent: Some(12.5), ..Done::default() };
        for answer in [Answer::Done(done), Answer::Failed("why".into()), Answer::Progress(BTreeMap::new())] {
            let text = line(&answer);
            assert_eq!(text.matches('\n').count(), 1);
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        }
    }

    #[test]
    fn histograms_survive_the_way() {
        let mut sent = Histogram::default();
        [3_000, 3_000, 2_500_000].into_iter().for_each(|ns| sent.record(ns));
        let entries: Vec<(u64, u64)> = sent.entries().collect();
        let received = histogram(&entries).unwrap();
        assert_eq!(received.entries().collect::<Vec<_>>(), entries);
        assert!(histogram(&[(1, u64::MAX), (1, u64::MAX)]).is_err());
    }

    #[test]
    fn parts_of_a_machine_add_up() {
        let part = |iops, us| {
            let read = Rate { iops, bytes_per_s: iops * 4096.0 };
            let node = NodeDone { workers: 1, read, read_latencies: vec![(us, 5)], ..NodeDone::default() };
            Done { nodes: [("one".into(), node)].into(), transports: vec!["TCP".into()], ..Done::default() }
        };
        let mut sum = part(100.0, 70);
        sum.add(part(50.0, 70)).unwrap();
        sum.add(part(1.0, 90)).unwrap();
        let node = &sum.nodes["one"];
        assert_eq!((node.workers, node.read.iops, sum.transports.len()), (3, 151.0, 1));
        assert_eq!(node.read_latencies, [(70, 10), (90, 5)]);
    }

    #[test]
    fn a_password_is_not_printed() {
        assert!(!format!("{:?}", Some(Credentials("password=geheim".into()))).contains("geheim"));
    }
}
