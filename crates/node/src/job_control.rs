//! The jobs of the spaces, for administrators who list and control them.

use crate::error::{Done, Error, ErrorKind};
use crate::events::Events;
use crate::job_numbers::{reserve, used};
use crate::jobs::{JobId, JobKind, JobState, Jobs};
use crate::peers::Peers;
use crate::pools::Pools;
use crate::state::State;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use std::cell::RefCell;
use std::rc::Rc;
use types::{PoolId, VolumeId};

/// Joins the list of jobs with the spaces that run them.
#[derive(Clone)]
pub struct JobControl {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) events: Rc<Events>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) jobs: Rc<RefCell<Jobs>>,
    pub(crate) state: State,
    pub(crate) peers: Rc<Peers>,
}

impl JobControl {
    /// Numbers jobs from here on after those of the server's last run. At the start, when blocking
    /// does no harm.
    pub(crate) fn go_on_counting(&self) {
        let server = self.peers.own();
        let used = used(self.state.at_start(), server).unwrap_or_else(|error| {
            // No other count is known to be above that of the last run; the clock's is unlikely to
            // be near it.
            tracing::warn!(%error, "the numbers of earlier jobs are not known: jobs are numbered by the clock");
            self.tasks.unix_seconds()
        });
        let mut jobs = self.jobs.borrow_mut();
        jobs.numbers.go_on(server, used);
        let Some(bound) = jobs.numbers.begin_reserving() else { return };
        let reserved = reserve(self.state.at_start(), server, bound);
        jobs.numbers.end_reserving(reserved.is_ok().then_some(bound));
    }

    /// Numbers new jobs from now on as those of a node of a cluster.
    pub(crate) fn join(&self) {
        self.jobs.borrow_mut().numbers.go_on(self.peers.own(), 0);
    }

    /// Reserves numbers in the state before jobs get them.
    fn reserve_numbers(&self) {
        let Some(bound) = self.jobs.borrow_mut().numbers.begin_reserving() else { return };
        let (control, server) = (self.clone(), self.peers.own());
        self.tasks.spawn(async move {
            let reserved = control.state.change(move |state| reserve(state, server, bound)).await;
            let is_same_server = server == control.peers.own();
            let reserved = (reserved.is_ok() && is_same_server).then_some(bound);
            control.jobs.borrow_mut().numbers.end_reserving(reserved);
        });
    }

    /// Updates the jobs. Call once a second.
    pub(crate) fn care(&self) {
        self.update();
        self.reserve_numbers();
    }

    /// Updates the jobs that the spaces run.
    pub fn update(&self) {
        let unix_s = self.tasks.unix_seconds();
        let name = |volume| self.volumes.name(volume);
        let mut jobs = self.jobs.borrow_mut();
        for (volume, disk) in self.events.take_joined() {
            jobs.joined(volume, disk, unix_s, name);
        }
        jobs.update(&self.pools.jobs(), unix_s, name);
    }

    /// Begins a job of the control plane: the rebalance of a pool by all servers of the cluster. At
    /// most one runs.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if one runs.
    pub fn begin_rebalance(&self, pool: PoolId) -> Done<JobId> {
        self.pools.space_for(pool)?;
        let (name, unix_s) = (self.pools.name(pool), self.tasks.unix_seconds());
        let mut jobs = self.jobs.borrow_mut();
        if let Some(running) = jobs.running(JobKind::Rebalance, &name) {
            let why = format!(
                "job {running} rebalances pool {name} already: `cenote job watch {running}` follows it"
            );
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        Ok(jobs.begin_check(JobKind::Rebalance, name, unix_s))
    }

    /// Notes the progress of such a job: bytes done and in all, and a description. `false`: an
    /// administrator has ended it.
    pub fn note_rebalance(&self, job: JobId, (done_bytes, total_bytes): (u64, u64), message: String) -> bool {
        let mut jobs = self.jobs.borrow_mut();
        jobs.note_progress(job, done_bytes, total_bytes);
        jobs.note_message(job, message);
        !jobs.is_cancelled(job)
    }

    /// Ends such a job.
    pub fn end_rebalance(&self, job: JobId, state: JobState, message: String) {
        self.jobs.borrow_mut().end_check(job, state, message, self.tasks.unix_seconds());
    }

    /// Ends a check, or stops a space's job.
    ///
    /// # Errors
    /// `NotFound` if no such job runs; `Conflict` if the job empties a disk.
    pub fn cancel(&self, job: JobId) -> Done<()> {
        self.update();
        let mut jobs = self.jobs.borrow_mut();
        if jobs.cancel_check(job) {
            return Ok(());
        }
        if let Some(disk) = jobs.retirement_of(job) {
            let why =
                format!("job {job} empties disk {disk}: `cenote disk retire {disk} --undo` takes that back");
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let name = jobs.name_of(job).ok_or_else(|| Error::not_found("running job", job))?;
        self.space_of(name.volume)?.suspend_job(name.volume, name.kind.cluster_kind());
        jobs.stop(name, self.tasks.unix_seconds());
        Ok(())
    }

    /// Continues a stopped job.
    ///
    /// # Errors
    /// `NotFound` if no such job is stopped.
    pub fn resume(&self, job: JobId) -> Done<()> {
        let name = self.jobs.borrow_mut().resume(job).ok_or_else(|| Error::not_found("stopped job", job))?;
        self.space_of(name.volume)?.resume_job(name.volume, name.kind.cluster_kind());
        Ok(())
    }

    fn space_of(&self, volume: VolumeId) -> Done<crate::pools::PoolSpace> {
        let space = self.volumes.pool_of(volume).ok().and_then(|pool| self.pools.space(pool));
        space.ok_or_else(|| Error::not_found("volume", volume))
    }
}
