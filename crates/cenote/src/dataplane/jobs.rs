//! Storage jobs under numbers: those that the spaces run by themselves, and checks that an administrator starts.
//!
//! Owns the numbers and the jobs that ended lately. A space's job has no name of its own: it is told by volume, kind and disk.

use super::unix_seconds;
use api::model::{Job, JobKind, JobState};
use space::coordinator::{JobPhase, JobStatus};
use std::collections::{BTreeMap, VecDeque};
use types::{DiskId, VolumeId};

/// Ended jobs that are still listed.
const ENDED_MAX: usize = 100;

/// What a space's job is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobName {
    pub volume: VolumeId,
    pub kind: SpaceJob,
    pub disk: Option<DiskId>,
}

/// [`cluster::JobKind`], ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceJob {
    Resync,
    Rebuild,
    Rebalance,
    Scrub,
}

impl SpaceJob {
    fn of(kind: cluster::JobKind) -> Self {
        match kind {
            cluster::JobKind::Resync => Self::Resync,
            cluster::JobKind::Rebuild => Self::Rebuild,
            cluster::JobKind::Rebalance => Self::Rebalance,
            cluster::JobKind::Scrub => Self::Scrub,
        }
    }

    pub fn cluster_kind(self) -> cluster::JobKind {
        match self {
            Self::Resync => cluster::JobKind::Resync,
            Self::Rebuild => cluster::JobKind::Rebuild,
            Self::Rebalance => cluster::JobKind::Rebalance,
            Self::Scrub => cluster::JobKind::Scrub,
        }
    }

    fn shown(self) -> JobKind {
        match self {
            Self::Resync => JobKind::Resync,
            Self::Rebuild => JobKind::Rebuild,
            Self::Rebalance => JobKind::Rebalance,
            Self::Scrub => JobKind::Scrub,
        }
    }
}

/// A running check of disks.
#[derive(Debug, Clone)]
pub struct Check {
    pub job: Job,
    /// The administrator ended it.
    pub cancelled: bool,
}

/// See the module.
#[derive(Default)]
pub struct Jobs {
    next: u64,
    running: BTreeMap<JobName, Job>,
    /// Stopped by the administrator: with the job that can go on, or without where it ended.
    stopped: BTreeMap<JobName, Option<Job>>,
    pub checks: BTreeMap<u64, Check>,
    ended: VecDeque<Job>,
}

impl Jobs {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes notice of what the spaces do; `target` names a volume.
    pub fn update(&mut self, current: &[(VolumeId, JobStatus)], target: impl Fn(VolumeId) -> String) {
        let now = unix_seconds();
        let mut seen = Vec::with_capacity(current.len());
        for (volume, status) in current {
            let name = JobName { volume: *volume, kind: SpaceJob::of(status.kind), disk: status.disk };
            seen.push(name);
            if self.stopped.contains_key(&name) {
                continue;
            }
            if !self.running.contains_key(&name) {
                let job = Job {
                    id: self.number(),
                    kind: name.kind.shown(),
                    target: target(*volume),
                    state: JobState::Running,
                    done_bytes: 0,
                    total_bytes: 0,
                    started_unix_s: now.saturating_sub(status.running_for.as_secs()),
                    ended_unix_s: None,
                    remaining_s: None,
                    message: name.disk.map(|disk| format!("disk {disk}")).unwrap_or_default(),
                };
                self.running.insert(name, job);
            }
            if let Some(job) = self.running.get_mut(&name) {
                job.done_bytes = status.done_bytes;
                job.total_bytes = status.total_bytes;
                job.remaining_s = status.remaining.map(|remaining| remaining.as_secs());
                job.state = match status.phase {
                    JobPhase::Running => JobState::Running,
                    JobPhase::Suspended => JobState::Suspended,
                };
            }
        }
        self.stopped.retain(|name, job| job.is_some() || seen.contains(name));
        let gone: Vec<JobName> = self.running.keys().filter(|name| !seen.contains(name)).copied().collect();
        for name in gone {
            if let Some(mut job) = self.running.remove(&name) {
                job.done_bytes = job.total_bytes;
                self.end(job, JobState::Completed);
            }
        }
    }

    /// A disk was brought up to date. A resync that began and ended between two updates is listed as well.
    pub fn joined(&mut self, volume: VolumeId, disk: DiskId, target: impl Fn(VolumeId) -> String) {
        let name = JobName { volume, kind: SpaceJob::Resync, disk: Some(disk) };
        if self.running.contains_key(&name) || self.stopped.contains_key(&name) {
            return;
        }
        let id = self.number();
        let job = self.new_job(id, JobKind::Resync, target(volume));
        self.end(Job { message: format!("disk {disk}"), ..job }, JobState::Completed);
    }

    /// The running job of a kind on any of these volumes.
    pub fn find(&self, kind: SpaceJob, volumes: &[VolumeId]) -> Option<u64> {
        let mut names = self.running.iter().filter(|(name, _)| name.kind == kind);
        names.find(|(name, _)| volumes.contains(&name.volume)).map(|(_, job)| job.id)
    }

    /// A space's job by its number.
    pub fn name_of(&self, id: u64) -> Option<JobName> {
        self.running.iter().find(|(_, job)| job.id == id).map(|(name, _)| *name)
    }

    /// The administrator stops a space's job: a rebalance ends, others can go on later.
    pub fn stop(&mut self, name: JobName) {
        let Some(job) = self.running.remove(&name) else { return };
        if name.kind == SpaceJob::Rebalance {
            self.stopped.insert(name, None);
            return self.end(job, JobState::Cancelled);
        }
        let message = format!("{}; stopped: `cenote job resume {}` goes on", job.message, job.id);
        let message = message.trim_start_matches("; ").to_owned();
        let job = Job { state: JobState::Suspended, message, remaining_s: None, ..job };
        self.stopped.insert(name, Some(job));
    }

    /// A stopped job by its number; it is not stopped any more.
    pub fn resume(&mut self, id: u64) -> Option<JobName> {
        let mut stopped = self.stopped.iter();
        let name =
            stopped.find(|(_, job)| job.as_ref().is_some_and(|job| job.id == id)).map(|(name, _)| *name)?;
        self.stopped.remove(&name);
        Some(name)
    }

    /// Jobs that wait for the administrator.
    pub fn stopped(&self) -> impl Iterator<Item = &Job> {
        self.stopped.values().flatten()
    }

    /// A job that found nothing to do.
    pub fn nothing_to_do(&mut self, kind: JobKind, target: String) -> u64 {
        let id = self.number();
        let job = self.new_job(id, kind, target);
        self.end(Job { message: "there was nothing to do".to_owned(), ..job }, JobState::Completed);
        id
    }

    pub fn begin_check(&mut self, kind: JobKind, target: String) -> u64 {
        let id = self.number();
        let job = self.new_job(id, kind, target);
        self.checks.insert(id, Check { job, cancelled: false });
        id
    }

    pub fn end_check(&mut self, id: u64, state: JobState, message: String) {
        if let Some(Check { job, .. }) = self.checks.remove(&id) {
            self.end(Job { message, ..job }, state);
        }
    }

    fn new_job(&self, id: u64, kind: JobKind, target: String) -> Job {
        Job {
            id,
            kind,
            target,
            state: JobState::Running,
            done_bytes: 0,
            total_bytes: 0,
            started_unix_s: unix_seconds(),
            ended_unix_s: None,
            remaining_s: None,
            message: String::new(),
        }
    }

    fn end(&mut self, mut job: Job, state: JobState) {
        job.state = state;
        job.ended_unix_s = Some(unix_seconds());
        job.remaining_s = None;
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(job);
    }

    /// Running and suspended ones, then those that ended lately.
    pub fn list(&self) -> Vec<Job> {
        let checks = self.checks.values().map(|check| &check.job);
        self.running.values().chain(self.stopped()).chain(checks).chain(&self.ended).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use uuid::Uuid;

    fn status(done_bytes: u64) -> JobStatus {
        JobStatus {
            kind: cluster::JobKind::Rebuild,
            disk: None,
            phase: JobPhase::Running,
            done_bytes,
            total_bytes: 100,
            running_for: Duration::from_secs(2),
            remaining: Some(Duration::from_secs(7)),
        }
    }

    #[test]
    fn a_resync_too_short_to_be_seen_running_is_listed_once() {
        let mut jobs = Jobs::default();
        let (volume, disk) = (VolumeId(Uuid::from_u128(1)), DiskId(Uuid::from_u128(2)));
        jobs.joined(volume, disk, |_| "demo".to_owned());
        let listed = jobs.list();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].kind, listed[0].state), (JobKind::Resync, JobState::Completed));
        let running = JobStatus { kind: cluster::JobKind::Resync, disk: Some(disk), ..status(7) };
        jobs.update(&[(volume, running)], |_| "demo".to_owned());
        jobs.joined(volume, disk, |_| "demo".to_owned());
        jobs.update(&[], |_| "demo".to_owned());
        assert_eq!(jobs.list().len(), 2);
    }

    #[test]
    fn a_stopped_job_is_listed_as_such_until_it_goes_on() {
        let volume = VolumeId(Uuid::nil());
        let mut jobs = Jobs::default();
        jobs.update(&[(volume, status(10))], |_| "v".to_owned());
        let id = jobs.list()[0].id;
        jobs.stop(jobs.name_of(id).expect("it runs"));
        // The space may show it a little longer.
        jobs.update(&[(volume, status(12))], |_| "v".to_owned());
        jobs.update(&[], |_| "v".to_owned());
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].state), (1, id, JobState::Suspended));
        assert!(jobs.resume(id).is_some() && jobs.resume(id).is_none());
        jobs.update(&[(volume, status(15))], |_| "v".to_owned());
        assert_eq!(jobs.list()[0].state, JobState::Running);
    }

    #[test]
    fn a_job_keeps_its_number_while_it_runs_and_is_listed_after_its_end() {
        let volume = VolumeId(Uuid::nil());
        let mut jobs = Jobs::default();
        jobs.update(&[(volume, status(10))], |_| "v".to_owned());
        let id = jobs.find(SpaceJob::Rebuild, &[volume]).expect("it runs");
        jobs.update(&[(volume, status(60))], |_| "v".to_owned());
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].done_bytes), (1, id, 60));
        assert_eq!(listed[0].remaining_s, Some(7));
        jobs.update(&[], |_| "v".to_owned());
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].state), (1, id, JobState::Completed));
        assert_eq!(jobs.find(SpaceJob::Rebuild, &[volume]), None);
        jobs.update(&[(volume, status(1))], |_| "v".to_owned());
        assert_ne!(jobs.find(SpaceJob::Rebuild, &[volume]), Some(id));
    }
}
