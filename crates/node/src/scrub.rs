//! The scheduled scrub: every block on every disk is read and verified once in a period, a disk at a time.
//!
//! Promises: no faster than the configured rate; after a restart it continues from its last
//! position (the store keeps the position, the disk record the time of the last whole round).
//! Coordinators rewrite corrupt blocks from another copy. They also verify the disk's copies
//! against others, to find silently lost writes.

use crate::disks::Disks;
use crate::events::{Events, ScrubStep};
use crate::jobs::{JobId, JobKind, JobState, Jobs};
use crate::pools::{PoolEntry, Pools};
use crate::state::State;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use records::{DiskRecord, Typed};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, PoolId};

/// Bytes that a disk verifies in one step.
const STEP_BYTES: u64 = 4 << 20;
/// Shortest rest: a rate that needs shorter ones is no limit.
const REST_MIN: Duration = Duration::from_millis(1);
/// Pause before the first scrub after the start: clients, and the repair after a crash, come first.
const START_DELAY: Duration = Duration::from_secs(60);
/// Longest wait of the first scrub until blocks torn by a crash are rewritten: some volumes cannot
/// be opened for a long time.
const RECONCILED_WITHIN: Duration = Duration::from_secs(3600);
/// Timeout of a disk's step, after which the disk counts as being taken out.
const STEP_MAX: Duration = Duration::from_secs(120);

/// Decides when to scrub disks.
#[derive(Clone)]
pub(crate) struct Scrubs {
    pub tasks: Rc<Tasks>,
    pub state: State,
    pub events: Rc<Events>,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub volumes: Rc<Volumes>,
    pub jobs: Rc<RefCell<Jobs>>,
    /// Time when the server started.
    pub started: Monotonic,
    /// Period in which every block is verified once; zero: never.
    pub period: Duration,
    /// Rest between two steps.
    pub rest: Duration,
}

/// Returns the rest between two steps at a rate in bytes per second.
pub(crate) fn rest_at(rate: u64) -> Duration {
    Duration::from_secs_f64(STEP_BYTES as f64 / rate.max(1) as f64).max(REST_MIN)
}

/// Progress of a disk's scrub.
enum Went {
    On(ScrubStep),
    DiskGone,
}

impl Scrubs {
    /// Begins the scrub of the disk whose last one is longest ago, if one is due and none runs.
    pub(crate) fn begin_if_due(&self) {
        let delay = START_DELAY.min(self.period);
        let now = self.tasks.now();
        let too_early = now < self.started.after(delay)
            || now < self.started.after(RECONCILED_WITHIN) && !self.is_reconciled();
        if self.period.as_secs() == 0 || too_early || self.jobs.borrow().is_checking() {
            return;
        }
        let unix_s = self.tasks.unix_seconds();
        let Some(record) = self.due(unix_s) else { return };
        let job = self.jobs.borrow_mut().begin_check(JobKind::Scrub, record.path.clone(), unix_s);
        let scrub = Scrub { parts: self.clone(), job, record, done: 0, corrupt: 0 };
        self.tasks.spawn(async move { scrub.run().await });
    }

    /// Whether a scrub would find no blocks torn by a crash in volumes of this node: their copies
    /// are equal, and their file systems are open. Opening rewrites torn blocks in the journal of a
    /// volume with one copy.
    fn is_reconciled(&self) -> bool {
        let equal = |(&pool, entry): (&PoolId, &PoolEntry)| {
            entry.space.is_reconciled() && self.volumes.are_served_of(pool)
        };
        self.pools.entries().iter().all(equal)
    }

    fn due(&self, unix_s: u64) -> Option<DiskRecord> {
        let slots = self.disks.slots();
        let present = slots.values().filter(|slot| slot.store().is_some() && !slot.busy);
        let due = present.filter(|slot| slot.record.scrubbed_unix_s + self.period.as_secs() <= unix_s);
        due.min_by_key(|slot| slot.record.scrubbed_unix_s).map(|slot| slot.record.clone())
    }

    /// Returns the progress of a disk's scrub, once there is some.
    fn went(&self, disk: DiskId) -> Option<Went> {
        self.events.take_scrubbed(disk).map(Went::On).or_else(|| {
            let slots = self.disks.slots();
            let is_gone = slots.get(&disk).is_none_or(|slot| slot.store().is_none());
            is_gone.then_some(Went::DiskGone)
        })
    }
}

/// A running scrub of one disk.
struct Scrub {
    parts: Scrubs,
    job: JobId,
    record: DiskRecord,
    done: u64,
    corrupt: u64,
}

impl Scrub {
    async fn run(mut self) {
        if let Some(space) = self.parts.pools.space(self.record.pool) {
            space.verify(self.record.id);
        }
        loop {
            if self.parts.jobs.borrow().is_cancelled(self.job) {
                // No scrub again before the next period, since an administrator ended this one.
                self.note_scrubbed().await;
                let corrupt = self.corrupt;
                let message =
                    format!("{corrupt} corrupt blocks so far; the next one begins after scrub_period_s");
                return self.end(JobState::Cancelled, message);
            }
            let Some(step) = self.step().await else { break };
            self.done += step.checked_bytes;
            self.corrupt += step.corrupt;
            let total_bytes = step.total_bytes.max(self.done);
            self.parts.jobs.borrow_mut().note_progress(self.job, self.done, total_bytes);
            if step.is_finished {
                self.note_scrubbed().await;
                let message = match self.corrupt {
                    0 => "every block is intact".to_owned(),
                    count => format!(
                        "{count} corrupt blocks; REPAIRED in `cenote disk list` counts those that were written again from another copy"
                    ),
                };
                return self.end(JobState::Completed, message);
            }
            self.parts.tasks.rest(self.parts.rest).await;
        }
        let message = format!("the disk is gone; {} corrupt blocks until then", self.corrupt);
        self.end(JobState::Failed, message);
    }

    /// Verifies some blocks; `None` if the disk is gone.
    async fn step(&self) -> Option<ScrubStep> {
        let space = self.parts.pools.space(self.record.pool)?;
        space.scrub(self.record.id, STEP_BYTES);
        let patience = self.parts.tasks.now().after(STEP_MAX);
        match self.parts.tasks.until_late(patience, || self.parts.went(self.record.id)).await {
            Some(Went::On(step)) => Some(step),
            Some(Went::DiskGone) | None => None,
        }
    }

    fn end(&self, state: JobState, message: String) {
        let unix_s = self.parts.tasks.unix_seconds();
        self.parts.jobs.borrow_mut().end_check(self.job, state, message, unix_s);
    }

    /// Records the end of the disk's scrub.
    async fn note_scrubbed(&self) {
        let (id, unix_s) = (self.record.id, self.parts.tasks.unix_seconds());
        if let Some(slot) = self.parts.disks.slots_mut().get_mut(&id) {
            slot.record.scrubbed_unix_s = unix_s;
        }
        let written =
            self.parts.state.change(move |state| match state.read::<DiskRecord>(&id.to_string())? {
                Some(found) => {
                    let record = DiskRecord { scrubbed_unix_s: unix_s, ..found.value };
                    state.write(&record, found.revision).map(|_| ())
                }
                None => Ok(()),
            });
        if let Err(error) = written.await {
            tracing::warn!(disk = %id, %error, "the end of a scrub cannot be recorded");
        }
    }
}
