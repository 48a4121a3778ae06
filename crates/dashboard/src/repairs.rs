//! Running repairs, the time that they take, and the reasons why they are slow.

use crate::disks::DiskLine;
use crate::rates::Sample;
use api::model::{Job, JobKind, JobState};
use serde::Serialize;
use types::size::show_size;

/// A job that makes data safe again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Repair {
    pub job: u64,
    pub what: String,
    pub done_percent: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub remaining_s: Option<u64>,
    /// Empty: nothing that is known.
    pub slowed_by: Vec<String>,
}

/// Clients' rate from which they take a part of the disks from a repair.
const BUSY_BYTES_PER_S: f64 = 1e6;

/// `now_unix_s`: for the mean speed of each.
pub fn repairs(jobs: &[Job], disks: &[DiskLine<'_>], sample: &Sample, now_unix_s: u64) -> Vec<Repair> {
    let concerns = |job: &&Job| {
        let makes_safe = matches!(
            job.kind,
            JobKind::Resync | JobKind::Rebuild | JobKind::Repair | JobKind::Retirement | JobKind::Takeover
        );
        makes_safe && matches!(job.state, JobState::Running | JobState::Suspended)
    };
    let slowed_by = slowed_by(disks, sample);
    let repair = |job: &Job| {
        let is_stopped = job.state == JobState::Suspended;
        let ran_s = now_unix_s.saturating_sub(job.started_unix_s);
        let mut slowed_by = if is_stopped { Vec::new() } else { slowed_by.clone() };
        if is_stopped {
            slowed_by.push(format!("it is stopped: `cenote job resume {}` lets it go on", job.id));
        }
        Repair {
            job: job.id,
            what: format!("{} of {}", word(job.kind), job.target),
            done_percent: (job.total_bytes > 0)
                .then(|| (job.done_bytes as f64 / job.total_bytes as f64 * 100.0).min(100.0)),
            bytes_per_s: (ran_s > 0 && !is_stopped).then(|| job.done_bytes as f64 / ran_s as f64),
            remaining_s: job.remaining_s,
            slowed_by,
        }
    };
    jobs.iter().filter(concerns).map(repair).collect()
}

const fn word(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Resync => "Resync",
        JobKind::Rebuild => "Rebuild",
        JobKind::Rebalance => "Rebalance",
        JobKind::Scrub => "Scrub",
        JobKind::Check => "Check",
        JobKind::Repair => "Repair",
        JobKind::Retirement => "Retirement",
        JobKind::AclPropagation => "Permissions",
        JobKind::Takeover => "Takeover",
    }
}

fn slowed_by(disks: &[DiskLine<'_>], sample: &Sample) -> Vec<String> {
    let mut reasons = Vec::new();
    let clients = sample.read.bytes_per_s + sample.write.bytes_per_s;
    if clients >= BUSY_BYTES_PER_S {
        reasons.push(format!("clients move {}/s, and come first", show_size(clients as u64)));
    }
    for disk in disks.iter().filter(|disk| disk.is_slow()) {
        let ratio = disk.against_peers.unwrap_or_default();
        reasons.push(format!("disk {} takes {ratio:.1} times as long as its peers", disk.path()));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(kind: JobKind, state: JobState) -> Job {
        Job {
            id: 7,
            server: None,
            kind,
            target: "volume data".into(),
            state,
            done_bytes: 50 << 20,
            total_bytes: 200 << 20,
            started_unix_s: 100,
            ended_unix_s: None,
            remaining_s: Some(30),
            message: String::new(),
        }
    }

    #[test]
    fn a_repair_says_how_far_it_is_and_what_slows_it() {
        let jobs = [job(JobKind::Rebuild, JobState::Running), job(JobKind::Scrub, JobState::Running)];
        let mut sample = Sample::default();
        sample.write.bytes_per_s = 50e6;
        let found = repairs(&jobs, &[], &sample, 110);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].done_percent, found[0].remaining_s), (Some(25.0), Some(30)));
        assert_eq!(found[0].bytes_per_s, Some((5 << 20) as f64));
        assert!(found[0].slowed_by[0].contains("clients move"), "{:?}", found[0].slowed_by);
    }

    #[test]
    fn a_repair_that_was_stopped_says_how_it_goes_on() {
        let found = repairs(&[job(JobKind::Resync, JobState::Suspended)], &[], &Sample::default(), 110);
        assert!(found[0].slowed_by[0].contains("job resume 7"));
        assert!(
            repairs(&[job(JobKind::Resync, JobState::Completed)], &[], &Sample::default(), 110).is_empty()
        );
    }
}
