//! Numbered storage jobs: those that the spaces run by themselves, and checks and propagations that
//! an administrator starts.
//!
//! Owns the jobs that run, are stopped, or ended recently; `job_numbers` assigns the numbers. A
//! space's job has no name of its own: volume, kind and disk identify it.

pub use crate::job_numbers::JobId;
use crate::job_numbers::Numbers;
use space::coordinator::{JobPhase, JobStatus};
use std::collections::{BTreeMap, VecDeque};
use types::{DiskId, VolumeId};

/// Ended jobs that are still listed.
const ENDED_MAX: usize = 100;

/// Work of a storage job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// A returned copy receives the writes that it missed.
    Resync,
    /// Slabs of a lost or retired disk are rebuilt on others.
    Rebuild,
    /// Slabs move so that all disks are filled evenly.
    Rebalance,
    /// All copies are read and their checksums verified.
    Scrub,
    /// A volume's metadata, allocation and copies are compared.
    Check,
    /// Blocks whose checksum failed are written again from another copy.
    Repair,
    /// Everything is moved off a disk before it leaves its pool; includes the jobs of all volumes
    /// for this.
    Retirement,
    /// The files and directories below a directory get its access entries.
    AclPropagation,
    /// This node opens a volume of a node that is down, or has handed it over.
    Takeover,
}

/// State of a storage job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// The job is under way.
    Running,
    /// An administrator stopped the job; it continues once it is resumed.
    Suspended,
    /// The job has come to its end without an error.
    Completed,
    /// The job has ended with an error, which its message names.
    Failed,
    /// An administrator ended the job.
    Cancelled,
}

/// A storage job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Number of the job, by which administrators name it.
    pub id: JobId,
    /// Work of the job.
    pub kind: JobKind,
    /// Name of the object of the job.
    pub target: String,
    /// State of the job; final once it has ended.
    pub state: JobState,
    /// Bytes done so far.
    pub done_bytes: u64,
    /// Bytes of the whole work, as far as it is known; may grow.
    pub total_bytes: u64,
    /// Unix seconds at which the job began.
    pub started_unix_s: u64,
    /// Unix seconds at which the job ended; `None`: it has not.
    pub ended_unix_s: Option<u64>,
    /// Estimated seconds until the end; `None`: unknown.
    pub remaining_s: Option<u64>,
    /// Findings, or the reason of the failure; may be empty.
    pub message: String,
}

impl Job {
    fn new(id: JobId, kind: JobKind, target: String, started_unix_s: u64) -> Self {
        Self {
            id,
            kind,
            target,
            state: JobState::Running,
            done_bytes: 0,
            total_bytes: 0,
            started_unix_s,
            ended_unix_s: None,
            remaining_s: None,
            message: String::new(),
        }
    }
}

/// The identity of a space's job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobName {
    /// Volume that the job works on.
    pub volume: VolumeId,
    /// Kind of the job.
    pub kind: SpaceJob,
    /// Disk that a resync brings back; `None` for jobs that concern several disks.
    pub disk: Option<DiskId>,
}

/// [`records::JobKind`], with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceJob {
    /// Copies writes that a disk missed.
    Resync,
    /// Makes copies anew that are missing.
    Rebuild,
    /// Moves copies so that disks are filled evenly.
    Rebalance,
    /// Reads and verifies copies.
    Scrub,
}

impl SpaceJob {
    fn of(kind: records::JobKind) -> Self {
        match kind {
            records::JobKind::Resync => Self::Resync,
            records::JobKind::Rebuild => Self::Rebuild,
            records::JobKind::Rebalance => Self::Rebalance,
            records::JobKind::Scrub => Self::Scrub,
        }
    }

    /// Returns the kind by its name in the space.
    pub fn cluster_kind(self) -> records::JobKind {
        match self {
            Self::Resync => records::JobKind::Resync,
            Self::Rebuild => records::JobKind::Rebuild,
            Self::Rebalance => records::JobKind::Rebalance,
            Self::Scrub => records::JobKind::Scrub,
        }
    }

    /// Returns the kind by its name in lists.
    pub(crate) fn listed(self) -> JobKind {
        match self {
            Self::Resync => JobKind::Resync,
            Self::Rebuild => JobKind::Rebuild,
            Self::Rebalance => JobKind::Rebalance,
            Self::Scrub => JobKind::Scrub,
        }
    }
}

/// A running check of disks, or other work that an administrator starts and ends.
#[derive(Debug, Clone)]
struct Check {
    job: Job,
    /// Whether an administrator ended it.
    is_cancelled: bool,
}

/// The retirement of a disk.
#[derive(Debug, Clone)]
struct Retirement {
    job: Job,
    /// Whether the disk is empty and about to leave its pool.
    is_leaving: bool,
}

/// Progress of a disk's retirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Emptied {
    /// Bytes that volumes still have on the disk.
    pub left_bytes: u64,
    /// Reason why the retirement needs an administrator.
    pub blocked: Option<String>,
}

/// All jobs.
///
/// Invariant: a number is in at most one of the lists; a stopped job of a space is not listed as
/// running.
#[derive(Default)]
pub struct Jobs {
    pub(crate) numbers: Numbers,
    running: BTreeMap<JobName, Job>,
    /// Jobs that an administrator stopped: with the job if it can continue, without if it ended.
    stopped: BTreeMap<JobName, Option<Job>>,
    checks: BTreeMap<JobId, Check>,
    retirements: BTreeMap<DiskId, Retirement>,
    ended: VecDeque<Job>,
}

impl Jobs {
    /// Updates the spaces' jobs; `target` names a volume.
    pub fn update(
        &mut self,
        current: &[(VolumeId, JobStatus)],
        unix_s: u64,
        target: impl Fn(VolumeId) -> String,
    ) {
        let mut seen = Vec::with_capacity(current.len());
        for (volume, status) in current {
            let name = JobName { volume: *volume, kind: SpaceJob::of(status.kind), disk: status.disk };
            seen.push(name);
            if self.stopped.contains_key(&name) {
                continue;
            }
            if !self.running.contains_key(&name) {
                // The clock may have been set back.
                let started_unix_s = unix_s.saturating_sub(status.running_for.as_secs());
                let job = Job::new(self.numbers.next(), name.kind.listed(), target(*volume), started_unix_s);
                let message = name.disk.map(|disk| format!("disk {disk}")).unwrap_or_default();
                let job = Job { message, ..job };
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
                self.end(job, JobState::Completed, unix_s);
            }
        }
    }

    /// Notes that a disk was brought up to date. This lists a resync that began and ended between
    /// two updates, too.
    pub fn joined(
        &mut self,
        volume: VolumeId,
        disk: DiskId,
        unix_s: u64,
        target: impl Fn(VolumeId) -> String,
    ) {
        let name = JobName { volume, kind: SpaceJob::Resync, disk: Some(disk) };
        if self.running.contains_key(&name) || self.stopped.contains_key(&name) {
            return;
        }
        let id = self.numbers.next();
        let job = Job::new(id, JobKind::Resync, target(volume), unix_s);
        self.end(Job { message: format!("disk {disk}"), ..job }, JobState::Completed, unix_s);
    }

    /// Finds the running job of a kind on any of these volumes.
    pub fn find(&self, kind: SpaceJob, volumes: &[VolumeId]) -> Option<JobId> {
        let mut names = self.running.iter().filter(|(name, _)| name.kind == kind);
        names.find(|(name, _)| volumes.contains(&name.volume)).map(|(_, job)| job.id)
    }

    /// Finds a space's job by its number.
    pub fn name_of(&self, id: JobId) -> Option<JobName> {
        self.running.iter().find(|(_, job)| job.id == id).map(|(name, _)| *name)
    }

    /// Stops a space's job on an administrator's request: a rebalance ends, others can continue
    /// later.
    pub fn stop(&mut self, name: JobName, unix_s: u64) {
        let Some(job) = self.running.remove(&name) else { return };
        if name.kind == SpaceJob::Rebalance {
            self.stopped.insert(name, None);
            return self.end(job, JobState::Cancelled, unix_s);
        }
        let message = format!("{}; stopped: `cenote job resume {}` goes on", job.message, job.id);
        let message = message.trim_start_matches("; ").to_owned();
        let job = Job { state: JobState::Suspended, message, remaining_s: None, ..job };
        self.stopped.insert(name, Some(job));
    }

    /// Finds a stopped job by its number, and ends its stop.
    pub fn resume(&mut self, id: JobId) -> Option<JobName> {
        let mut stopped = self.stopped.iter();
        let name =
            stopped.find(|(_, job)| job.as_ref().is_some_and(|job| job.id == id)).map(|(name, _)| *name)?;
        self.stopped.remove(&name);
        Some(name)
    }

    /// Lists jobs that an administrator stopped.
    pub fn stopped(&self) -> impl Iterator<Item = &Job> {
        self.stopped.values().flatten()
    }

    /// Lists a job that had nothing to do.
    pub fn nothing_to_do(&mut self, kind: JobKind, target: String, unix_s: u64) -> JobId {
        let id = self.numbers.next();
        let job = Job::new(id, kind, target, unix_s);
        let message = "there was nothing to do".to_owned();
        self.end(Job { message, ..job }, JobState::Completed, unix_s);
        id
    }

    /// Lists the retirement of a disk, unless it is listed already.
    pub(crate) fn begin_retirement(&mut self, disk: DiskId, target: String, unix_s: u64) -> JobId {
        if let Some(known) = self.retirements.get(&disk) {
            return known.job.id;
        }
        let id = self.numbers.next();
        let job = Job::new(id, JobKind::Retirement, target, unix_s);
        self.retirements.insert(disk, Retirement { job, is_leaving: false });
        id
    }

    /// Lists the disks whose retirement is listed, except those that are about to leave.
    pub(crate) fn retiring(&self) -> Vec<DiskId> {
        let waiting = self.retirements.iter().filter(|(_, retirement)| !retirement.is_leaving);
        waiting.map(|(disk, _)| *disk).collect()
    }

    /// Notes the progress of a disk's retirement. A blocked one is listed as suspended until it continues.
    pub(crate) fn note_emptied(
        &mut self,
        disk: DiskId,
        Emptied { left_bytes, blocked }: Emptied,
        unix_s: u64,
    ) {
        let Some(Retirement { job, .. }) = self.retirements.get_mut(&disk) else { return };
        job.total_bytes = job.total_bytes.max(left_bytes);
        job.done_bytes = job.total_bytes - left_bytes;
        job.state = if blocked.is_some() { JobState::Suspended } else { JobState::Running };
        job.message = blocked.unwrap_or_default();
        // The clock may have been set back.
        let spent_s = unix_s.saturating_sub(job.started_unix_s);
        let can_tell = job.state == JobState::Running && job.done_bytes > 0;
        job.remaining_s =
            can_tell.then(|| (spent_s as f64 * left_bytes as f64 / job.done_bytes as f64) as u64);
    }

    /// Notes that the disk is empty.
    pub(crate) fn note_leaving(&mut self, disk: DiskId) {
        if let Some(Retirement { job, is_leaving }) = self.retirements.get_mut(&disk) {
            *is_leaving = true;
            (job.state, job.done_bytes, job.remaining_s) = (JobState::Running, job.total_bytes, None);
            job.message = "the disk is empty, and leaves the pool".to_owned();
        }
    }

    /// Notes that the disk stays for now.
    pub(crate) fn note_staying(&mut self, disk: DiskId) {
        if let Some(retirement) = self.retirements.get_mut(&disk) {
            retirement.is_leaving = false;
        }
    }

    pub(crate) fn end_retirement(&mut self, disk: DiskId, state: JobState, message: &str, unix_s: u64) {
        if let Some(Retirement { job, .. }) = self.retirements.remove(&disk) {
            self.end(Job { message: message.to_owned(), ..job }, state, unix_s);
        }
    }

    /// Returns the reason why the retirement of the disk does not continue; `None` if it does.
    pub fn retirement_in_the_way(&self, disk: DiskId) -> Option<String> {
        let job = self.retirements.get(&disk).map(|retirement| &retirement.job);
        job.filter(|job| job.state == JobState::Suspended).map(|job| job.message.clone())
    }

    /// Finds the disk whose retirement has this number.
    pub(crate) fn retirement_of(&self, id: JobId) -> Option<DiskId> {
        self.retirements.iter().find(|(_, retirement)| retirement.job.id == id).map(|(disk, _)| *disk)
    }

    /// Finds a rebuild on one of these volumes that the administrator stopped.
    pub(crate) fn stopped_rebuild(&self, volumes: &[VolumeId]) -> Option<JobId> {
        let mut stopped = self.stopped.iter();
        stopped.find_map(|(name, job)| {
            let is_meant = name.kind == SpaceJob::Rebuild && volumes.contains(&name.volume);
            job.as_ref().filter(|_| is_meant).map(|job| job.id)
        })
    }

    /// Lists a check that begins.
    pub(crate) fn begin_check(&mut self, kind: JobKind, target: String, unix_s: u64) -> JobId {
        let id = self.numbers.next();
        let job = Job::new(id, kind, target, unix_s);
        self.checks.insert(id, Check { job, is_cancelled: false });
        id
    }

    /// Finds the work of this kind, begun by an administrator, on a target.
    pub(crate) fn running(&self, kind: JobKind, target: &str) -> Option<JobId> {
        let is_meant = |check: &Check| check.job.kind == kind && check.job.target == target;
        self.checks.iter().find(|(_, check)| is_meant(check)).map(|(id, _)| *id)
    }

    /// Finds the check, not the scrub, that runs on this volume.
    pub(crate) fn check_of(&self, target: &str) -> Option<JobId> {
        let compares = |kind| matches!(kind, JobKind::Check | JobKind::Repair);
        let running = |check: &Check| compares(check.job.kind) && check.job.target == target;
        self.checks.iter().find(|(_, check)| running(check)).map(|(id, _)| *id)
    }

    pub(crate) fn is_checking(&self) -> bool {
        let reads = |kind| matches!(kind, JobKind::Check | JobKind::Repair | JobKind::Scrub);
        self.checks.values().any(|check| reads(check.job.kind))
    }

    /// Requests the end of a check. `false`: there is none of this number.
    pub(crate) fn cancel_check(&mut self, id: JobId) -> bool {
        let check = self.checks.get_mut(&id);
        check.map(|check| check.is_cancelled = true).is_some()
    }

    pub(crate) fn is_cancelled(&self, id: JobId) -> bool {
        self.checks.get(&id).is_none_or(|check| check.is_cancelled)
    }

    /// Notes the progress of a check.
    pub(crate) fn note_progress(&mut self, id: JobId, done_bytes: u64, total_bytes: u64) {
        if let Some(check) = self.checks.get_mut(&id) {
            check.job.done_bytes = done_bytes;
            check.job.total_bytes = total_bytes;
        }
    }

    /// Notes the progress of a check whose end is not known in bytes.
    pub(crate) fn note_message(&mut self, id: JobId, message: String) {
        if let Some(check) = self.checks.get_mut(&id) {
            check.job.message = message;
        }
    }

    pub(crate) fn end_check(&mut self, id: JobId, state: JobState, message: String, unix_s: u64) {
        if let Some(Check { job, .. }) = self.checks.remove(&id) {
            self.end(Job { message, ..job }, state, unix_s);
        }
    }

    fn end(&mut self, mut job: Job, state: JobState, unix_s: u64) {
        job.state = state;
        job.ended_unix_s = Some(unix_s);
        job.remaining_s = None;
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(job);
    }

    /// Lists running and suspended jobs, then those that ended recently.
    pub fn list(&self) -> Vec<Job> {
        let checks = self.checks.values().map(|check| &check.job);
        let retirements = self.retirements.values().map(|retirement| &retirement.job);
        let working = self.running.values().chain(self.stopped()).chain(checks).chain(retirements);
        working.chain(&self.ended).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use uuid::Uuid;

    fn status(done_bytes: u64) -> JobStatus {
        JobStatus {
            kind: records::JobKind::Rebuild,
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
        jobs.joined(volume, disk, 7, |_| "demo".to_owned());
        let listed = jobs.list();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].kind, listed[0].state), (JobKind::Resync, JobState::Completed));
        let running = JobStatus { kind: records::JobKind::Resync, disk: Some(disk), ..status(7) };
        jobs.update(&[(volume, running)], 7, |_| "demo".to_owned());
        jobs.joined(volume, disk, 7, |_| "demo".to_owned());
        jobs.update(&[], 7, |_| "demo".to_owned());
        assert_eq!(jobs.list().len(), 2);
    }

    #[test]
    fn the_retirement_of_a_disk_is_one_job_until_the_disk_has_left() {
        let (mut jobs, disk) = (Jobs::default(), DiskId(Uuid::from_u128(2)));
        let id = jobs.begin_retirement(disk, "/dev/sdq1".to_owned(), 7);
        assert_eq!(jobs.begin_retirement(disk, "/dev/sdq1".to_owned(), 8), id);
        jobs.note_emptied(disk, Emptied { left_bytes: 100, blocked: None }, 9);
        jobs.note_emptied(disk, Emptied { left_bytes: 40, blocked: Some("no room".to_owned()) }, 10);
        let listed = jobs.list();
        let seen = (listed[0].state, listed[0].done_bytes, listed[0].total_bytes, listed[0].message.as_str());
        assert_eq!(seen, (JobState::Suspended, 60, 100, "no room"));
        jobs.note_emptied(disk, Emptied { left_bytes: 0, blocked: None }, 11);
        jobs.note_leaving(disk);
        assert!(jobs.retiring().is_empty() && jobs.retirement_of(id) == Some(disk));
        assert_eq!(jobs.list()[0].state, JobState::Running);
        jobs.end_retirement(disk, JobState::Completed, "", 12);
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].state), (1, id, JobState::Completed));
    }

    #[test]
    fn a_stopped_job_is_listed_as_such_until_it_goes_on() {
        let volume = VolumeId(Uuid::nil());
        let mut jobs = Jobs::default();
        jobs.update(&[(volume, status(10))], 7, |_| "v".to_owned());
        let id = jobs.list()[0].id;
        jobs.stop(jobs.name_of(id).expect("it runs"), 7);
        // The space may show the job a little longer.
        jobs.update(&[(volume, status(12))], 7, |_| "v".to_owned());
        jobs.update(&[], 7, |_| "v".to_owned());
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].state), (1, id, JobState::Suspended));
        assert!(jobs.resume(id).is_some() && jobs.resume(id).is_none());
        jobs.update(&[(volume, status(15))], 7, |_| "v".to_owned());
        assert_eq!(jobs.list()[0].state, JobState::Running);
    }

    #[test]
    fn a_job_keeps_its_number_while_it_runs_and_is_listed_after_its_end() {
        let volume = VolumeId(Uuid::nil());
        let mut jobs = Jobs::default();
        jobs.update(&[(volume, status(10))], 7, |_| "v".to_owned());
        let id = jobs.find(SpaceJob::Rebuild, &[volume]).expect("it runs");
        jobs.update(&[(volume, status(60))], 7, |_| "v".to_owned());
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].done_bytes), (1, id, 60));
        assert_eq!(listed[0].remaining_s, Some(7));
        jobs.update(&[], 7, |_| "v".to_owned());
        let listed = jobs.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].state), (1, id, JobState::Completed));
        assert_eq!(jobs.find(SpaceJob::Rebuild, &[volume]), None);
        jobs.update(&[(volume, status(1))], 7, |_| "v".to_owned());
        assert_ne!(jobs.find(SpaceJob::Rebuild, &[volume]), Some(id));
    }
}
