//! The scheduled scrub: every block on every disk is read and verified once in a period, a disk at a time.
//!
//! Promises: no faster than the configured rate; after a restart it goes on where it was (the position is the store's, the time of
//! the last whole round the disk record's). What it finds corrupt, coordinators write again from another copy. Meanwhile they look at the
//! other copies for what the disk lost without a word.
//! Also: a disk that nobody writes to for a while has its journal applied, so that the next opening has nothing to replay.

use super::tasks;
use super::{Plane, unix_seconds};
use api::model::{JobKind, JobState};
use cluster::{DiskRecord, Typed};
use space::local::LocalEvent;
use std::rc::Rc;
use std::time::Duration;
use types::DiskId;

/// Bytes that a disk is asked to verify in one go.
const STEP_BYTES: u64 = 4 << 20;
/// A rate beyond this one is none.
const REST_MIN: Duration = Duration::from_millis(1);
/// No scrub begins within so long after the start: clients and what a crash left come first.
const START_DELAY: Duration = Duration::from_secs(60);
/// A step that is not answered within it: the disk is being taken out.
const STEP_MAX: Duration = Duration::from_secs(120);
/// A journal that has been as it is for so many seconds is applied.
const IDLE_S: u32 = 10;

impl Plane {
    /// Begins the scrub of the disk whose last one is longest ago, where one is due and none runs.
    pub fn scrub_if_due(self: &Rc<Self>) {
        let limits = &self.limits;
        let period_s = limits.scrub_period.as_secs();
        let delay = START_DELAY.min(limits.scrub_period);
        if period_s == 0 || self.now() < self.started.after(delay) || !self.jobs.borrow().checks.is_empty() {
            return;
        }
        let now = unix_seconds();
        let due = {
            let disks = self.storage.disks.borrow();
            let present = disks.values().filter(|slot| slot.store().is_some() && !slot.busy);
            let due = present.filter(|slot| slot.record.scrubbed_unix_s + period_s <= now);
            due.min_by_key(|slot| slot.record.scrubbed_unix_s).map(|slot| slot.record.clone())
        };
        let Some(record) = due else { return };
        let job = self.jobs.borrow_mut().begin_check(JobKind::Scrub, record.path.clone());
        let plane = self.clone();
        self.storage.tasks.spawn(async move { plane.scrub_disk(job, record).await });
    }

    async fn scrub_disk(self: Rc<Self>, job: u64, record: DiskRecord) {
        let (mut done, mut corrupt) = (0, 0);
        let rest =
            Duration::from_secs_f64(STEP_BYTES as f64 / self.limits.scrub_rate.max(1) as f64).max(REST_MIN);
        if let Some(space) = self.storage.space(record.pool) {
            space.survey(record.id);
        }
        loop {
            if self.is_cancelled(job) {
                // Not again before the next period: the administrator does not want it.
                self.scrubbed(&record).await;
                let message =
                    format!("{corrupt} corrupt blocks so far; the next one begins after scrub_period_s");
                return self.jobs.borrow_mut().end_check(job, JobState::Cancelled, message);
            }
            let Some(space) = self.storage.space(record.pool) else { break };
            space.scrub(record.id, STEP_BYTES);
            let patience = self.now().after(STEP_MAX);
            let step = tasks::until(|| {
                self.storage.wake_at(patience);
                self.scrub_step(record.id).or_else(|| (self.now() >= patience).then_some(None))
            });
            let Some((checked, total, bad, finished)) = step.await else { break };
            done += checked;
            corrupt += bad;
            self.note_progress(job, done, total.max(done));
            if finished {
                self.scrubbed(&record).await;
                let message = match corrupt {
                    0 => "every block is intact".to_owned(),
                    count => format!("{count} corrupt blocks; those with another copy were written again"),
                };
                return self.jobs.borrow_mut().end_check(job, JobState::Completed, message);
            }
            self.rest(rest).await;
        }
        let message = format!("the disk is gone; {corrupt} corrupt blocks until then");
        self.jobs.borrow_mut().end_check(job, JobState::Failed, message);
    }

    fn is_cancelled(&self, job: u64) -> bool {
        self.jobs.borrow().checks.get(&job).is_none_or(|check| check.cancelled)
    }

    fn note_progress(&self, job: u64, done_bytes: u64, total_bytes: u64) {
        if let Some(check) = self.jobs.borrow_mut().checks.get_mut(&job) {
            check.job.done_bytes = done_bytes;
            check.job.total_bytes = total_bytes;
        }
    }

    /// How far the scrub of a disk went, once it did; `None` inside: the disk is gone.
    fn scrub_step(&self, disk: DiskId) -> Option<Option<(u64, u64, u64, bool)>> {
        let mut events = self.storage.events.borrow_mut();
        let found = events.iter().position(
            |(_, event)| matches!(event, LocalEvent::Scrubbed { disk: scrubbed, .. } if *scrubbed == disk),
        );
        match found.and_then(|at| events.remove(at)) {
            Some((_, LocalEvent::Scrubbed { checked_bytes, total_bytes, corrupt, finished, .. })) => {
                Some(Some((checked_bytes, total_bytes, corrupt, finished)))
            }
            _ => {
                let disks = self.storage.disks.borrow();
                disks.get(&disk).is_none_or(|slot| slot.store().is_none()).then_some(None)
            }
        }
    }

    /// Writes down that the disk was gone through.
    async fn scrubbed(&self, record: &DiskRecord) {
        let (id, now) = (record.id, unix_seconds());
        if let Some(slot) = self.storage.disks.borrow_mut().get_mut(&id) {
            slot.record.scrubbed_unix_s = now;
        }
        let written = self.change_state(move |state| match state.read::<DiskRecord>(&id.to_string())? {
            Some(found) => {
                let record = DiskRecord { scrubbed_unix_s: now, ..found.value };
                state.write(&record, found.revision).map(|_| ())
            }
            None => Ok(()),
        });
        if let Err(error) = written.await {
            tracing::warn!(disk = %id, %error, "the end of a scrub cannot be recorded");
        }
    }

    /// Has journals applied that nobody has added to for a while.
    pub fn checkpoint_idle_disks(&self) {
        for slot in self.storage.disks.borrow_mut().values_mut() {
            let writes = slot.counters.writes.get();
            let Some(store) = slot.store() else { continue };
            let used = store.with(|store| store.health().journal_used_bytes);
            let idle = if writes == slot.idle.0 { slot.idle.1.saturating_add(1) } else { 0 };
            if idle == IDLE_S && used > 0 {
                store.request_checkpoint();
            }
            slot.idle = (writes, idle);
        }
    }
}
