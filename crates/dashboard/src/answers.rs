//! The three questions of the first page: is my data safe, am I on RDMA, how fast is it.

use crate::clients::is_on_rdma;
use crate::next_failure::NextFailure;
use crate::rates::{Operations, Sample};
use api::model::{Health, Rdma, Resiliency, Snapshot, Volume, VolumeStatus};
use serde::Serialize;
use types::size::show_size;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Yes,
    /// Nothing to judge yet.
    Nothing,
    Partly,
    No,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub verdict: Verdict,
    /// One sentence.
    pub answer: String,
    /// Reasons of the answer, a sentence each.
    pub because: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answers {
    /// Is my data safe?
    pub safe: Answer,
    /// Am I on RDMA?
    pub rdma: Answer,
    /// How fast is it?
    pub fast: Answer,
}

impl Answers {
    pub fn new(snapshot: &Snapshot, rdma: &Rdma, sample: &Sample, next: &[NextFailure]) -> Self {
        Self { safe: safe(snapshot, next), rdma: on_rdma(snapshot, rdma), fast: fast(sample) }
    }
}

fn names<'a>(volumes: impl Iterator<Item = &'a Volume>) -> String {
    let names: Vec<&str> = volumes.map(|volume| volume.name.as_str()).collect();
    names.join(", ")
}

/// Codes of issues that mean that data is gone, or was never made durable.
const LOSSES: [&str; 2] = ["volume_lost_blocks", "volume_unwritten"];

/// Code of the issue that this server may answer for no volume.
const WITHOUT_QUORUM: &str = "cluster_without_quorum";

fn safe(snapshot: &Snapshot, next: &[NextFailure]) -> Answer {
    let volumes = &snapshot.volumes;
    let with = |status: VolumeStatus| volumes.iter().filter(move |volume| volume.status == status);
    let mut verdict = Verdict::Yes;
    let mut because = Vec::new();
    let mut find = |found: Verdict, sentence: String| {
        verdict = verdict.max(found);
        because.push(sentence);
    };
    let without_quorum = snapshot.health.issues.iter().find(|issue| issue.code == WITHOUT_QUORUM);
    if let Some(issue) = without_quorum {
        find(Verdict::No, format!("{}.", issue.what));
    }
    for issue in snapshot.health.issues.iter().filter(|issue| LOSSES.contains(&issue.code.as_str())) {
        find(Verdict::No, format!("{}: {}", issue.target, issue.what));
    }
    for (status, found, what) in [
        (VolumeStatus::Detached, Verdict::No, "cannot be served"),
        (VolumeStatus::ReadOnly, Verdict::No, "can be read only: a structure of it is damaged on all copies"),
        (VolumeStatus::NoRedundancy, Verdict::Partly, "has one copy left until it is repaired"),
        (VolumeStatus::Degraded, Verdict::Partly, "has fewer copies than it should have"),
        (VolumeStatus::InService, Verdict::Partly, "is being brought up to date"),
    ] {
        // The state of volumes for which nobody may answer is unknown.
        if without_quorum.is_none() && with(status).next().is_some() {
            find(found, format!("{} {what}.", names(with(status))));
        }
    }
    let simple = || volumes.iter().filter(|volume| volume.resiliency == Resiliency::Simple);
    if simple().next().is_some() {
        find(
            Verdict::Partly,
            format!("{} keeps one copy (simple): the loss of a disk loses data.", names(simple())),
        );
    }
    let unhealthy = snapshot.health.issues.iter().filter(|issue| issue.health == Health::Unhealthy);
    let count = unhealthy.filter(|issue| !issue.code.starts_with("volume_")).count();
    if count > 0 {
        let issues = if count == 1 { "1 issue is".to_owned() } else { format!("{count} issues are") };
        find(Verdict::Partly, format!("{issues} unhealthy; the page Health says what to do."));
    }
    if volumes.is_empty() {
        verdict = verdict.max(Verdict::Nothing);
    }
    because.extend(next.iter().map(NextFailure::sentence));
    let answer = match verdict {
        Verdict::Yes => match volumes.len() {
            1 => format!("Yes: every block of {} has all of its copies.", names(volumes.iter())),
            count => format!("Yes: every block of all {count} volumes has all of its copies."),
        },
        Verdict::Nothing => "There is no volume yet.".to_owned(),
        Verdict::Partly => "It is all there, with less protection than it should have.".to_owned(),
        Verdict::No if without_quorum.is_some() => {
            "No volume is served: most of the servers are not heard. What is on the disks stays there."
                .to_owned()
        }
        Verdict::No => "No: some of it cannot be had, or changed.".to_owned(),
    };
    Answer { verdict, answer, because }
}

fn on_rdma(snapshot: &Snapshot, rdma: &Rdma) -> Answer {
    let all = snapshot.sessions.len();
    let on = snapshot.sessions.iter().filter(|session| is_on_rdma(session)).count();
    let mut because: Vec<String> = rdma
        .state
        .listeners
        .iter()
        .map(|listener| {
            format!(
                "SMB Direct is served at {} ({}, {}).",
                listener.address, listener.transport, listener.provider
            )
        })
        .collect();
    let is_served = !because.is_empty();
    if !is_served {
        let reason = match rdma.no_devices.as_str() {
            "" => "smb.rdma_listen is empty",
            reason => reason,
        };
        because.push(format!("SMB Direct is not served: {reason}."));
    }
    if on < all {
        because.push("The page Shares and sessions says of each client why it is not.".to_owned());
    }
    let sessions =
        |count: usize| if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") };
    let (verdict, answer) = match (on, all) {
        (_, 0) if is_served => (Verdict::Nothing, "It can be used, and no client is connected.".to_owned()),
        (_, 0) => (Verdict::No, "No: it is not served, and no client is connected.".to_owned()),
        (on, all) if on == all => (Verdict::Yes, format!("Yes: all clients are, in {}.", sessions(all))),
        (0, all) => (Verdict::No, format!("No: no client is, in {}.", sessions(all))),
        (on, all) => (Verdict::Partly, format!("Partly: clients of {on} of {all} sessions are.")),
    };
    Answer { verdict, answer, because }
}

fn fast(sample: &Sample) -> Answer {
    let Sample { read, write, .. } = sample;
    let iops = read.operations_per_s + write.operations_per_s;
    let bytes = read.bytes_per_s + write.bytes_per_s;
    let times = |name: &str, operations: &Operations| {
        let (p50, p99) = (operations.latency.p50_us?, operations.latency.p99_us?);
        Some(format!("Half of the {name} take {} at most, 99 % take {}.", show_us(p50), show_us(p99)))
    };
    let mut because: Vec<String> =
        [times("reads", read), times("writes", write)].into_iter().flatten().collect();
    because.extend(
        sample
            .cache_hit_ratio
            .map(|ratio| format!("{:.0} % of what was read came from memory.", ratio * 100.0)),
    );
    if iops < 0.5 {
        return Answer {
            verdict: Verdict::Nothing,
            answer: "Nothing is asked of it at the moment.".into(),
            because,
        };
    }
    let answer = format!("{} operations and {} a second.", show_count(iops), show_size(bytes as u64));
    Answer { verdict: Verdict::Yes, answer, because }
}

/// A whole number with commas.
fn show_count(count: f64) -> String {
    let digits = format!("{count:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn show_us(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1000.0),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::session;
    use crate::next_failure::next_failures;
    use crate::next_failure::tests::{snapshot, volume};
    use api::model::HealthIssue;

    fn safe_of(snapshot: &Snapshot) -> Answer {
        safe(snapshot, &next_failures(snapshot, None))
    }

    #[test]
    fn data_with_all_copies_is_safe_and_the_next_failure_is_told() {
        let answer = safe_of(&snapshot());
        assert_eq!(answer.verdict, Verdict::Yes);
        assert!(answer.answer.starts_with("Yes: every block of data"), "{answer:?}");
        assert!(answer.because[0].contains("fails next"), "{answer:?}");
    }

    #[test]
    fn the_worst_volume_decides() {
        let mut snapshot = snapshot();
        snapshot.volumes.push(volume("scratch", 1, 1));
        snapshot.volumes[1].resiliency = Resiliency::Simple;
        assert_eq!(safe_of(&snapshot).verdict, Verdict::Partly);
        snapshot.volumes[0].status = VolumeStatus::NoRedundancy;
        assert!(safe_of(&snapshot).because[0].contains("data has one copy left"));
        snapshot.volumes[0].status = VolumeStatus::Detached;
        assert_eq!(safe_of(&snapshot).verdict, Verdict::No);
        assert_eq!(safe_of(&Snapshot::default()).verdict, Verdict::Nothing);
    }

    #[test]
    fn without_a_majority_nothing_is_said_to_be_safe() {
        let mut snapshot = snapshot();
        let what = "no volume is served: 1 of 3 servers is heard; start node-1 or node-3";
        snapshot.health.issues.push(HealthIssue {
            health: Health::Unhealthy,
            code: WITHOUT_QUORUM.into(),
            target: "cluster C".into(),
            since_unix_s: 0,
            server: None,
            what: what.into(),
            meaning: String::new(),
            action: String::new(),
        });
        let answer = safe_of(&snapshot);
        assert_eq!(answer.verdict, Verdict::No);
        assert!(answer.answer.starts_with("No volume is served") && answer.because[0] == format!("{what}."));
    }

    #[test]
    fn rdma_is_answered_by_what_the_sessions_use() {
        let of = |transports: &[&str]| {
            let sessions = transports.iter().map(|transport| session(transport)).collect();
            on_rdma(&Snapshot { sessions, ..Snapshot::default() }, &Rdma::default())
        };
        assert_eq!(of(&["iWARP"]).verdict, Verdict::Yes);
        assert_eq!(of(&["iWARP", "TCP"]).answer, "Partly: clients of 1 of 2 sessions are.");
        assert_eq!(of(&["TCP"]).verdict, Verdict::No);
        assert!(of(&[]).because[0].contains("not served"));
    }

    #[test]
    fn speed_is_told_in_operations_bytes_and_times() {
        let mut sample = Sample::default();
        assert_eq!(fast(&sample).verdict, Verdict::Nothing);
        sample.read.operations_per_s = 1_234_567.4;
        sample.read.bytes_per_s = 1024.0 * 1024.0;
        sample.read.latency.p50_us = Some(120.0);
        sample.read.latency.p99_us = Some(2_500.0);
        let answer = fast(&sample);
        assert_eq!(answer.answer, "1,234,567 operations and 1.00 MiB a second.");
        assert_eq!(answer.because[0], "Half of the reads take 120 µs at most, 99 % take 2.5 ms.");
    }
}
