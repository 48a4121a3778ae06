//! From a record to a served volume; and back, if the volume stops.

use crate::answering::Answering;
use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::jobs::{JobKind, JobState, Jobs};
use crate::neighbours::Neighbours;
use crate::pools::{PoolSpace, PoolVolume, Pools};
use crate::served::ServedVolume;
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volumes::Volumes;
use cluster::{Condition, Record, StateError, Transaction, Typed, VolumeRecord};
use space::api::SpaceError;
use space::coordinator::{Coordinator, Phase};
use space::takeover::{self, View};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Monotonic, NodeId, VolumeId};
use volume::backend::Backend;
use volume::fs::{FileSystem, Format};
use volume::service::Service;

/// An opening that waits longer for disks is left to another node, which may reach them.
const DISKS_PATIENCE: Duration = Duration::from_secs(10);
/// How often an opening that waits for disks is looked at after that: others may have come that could do better.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const UNREACHED: SpaceError = SpaceError::Invalid("it waits for disks that another node may reach");
/// How long it may take to record that a volume was made.
const RECORD_PATIENCE: Duration = Duration::from_secs(30);

/// Opens volumes.
#[derive(Clone)]
pub(crate) struct VolumeOpener {
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub volumes: Rc<Volumes>,
    pub neighbours: Rc<Neighbours>,
    pub jobs: Rc<RefCell<Jobs>>,
    pub answering: Rc<Answering>,
    pub state: State,
}

impl VolumeOpener {
    /// Begins to open a volume. If another node had it, that is a job.
    pub(crate) fn open(&self, record: VolumeRecord) {
        self.volumes.begin_opening(record.clone(), self.disks.arrivals(), self.tasks.now());
        let opener = self.clone();
        let job = self.neighbours.is_anothers(&record).then(|| {
            let unix_s = self.tasks.unix_seconds();
            self.jobs.borrow_mut().begin_check(JobKind::Takeover, record.name.clone(), unix_s)
        });
        self.tasks.spawn(async move {
            let (id, began, claimed) = (record.id, opener.tasks.now(), Cell::default());
            let opened = opener.try_open(&record, None, &claimed).await;
            let ms = opener.tasks.now().since(began).as_millis();
            let (state, message) = match opened {
                Ok(served) => {
                    tracing::info!(volume = %id, name = record.name, ms, "volume serves");
                    opener.volumes.serve(id, served);
                    let message = format!("claimed after {} ms, served after {ms} ms", claimed.get());
                    (JobState::Completed, message)
                }
                Err(error) if error.kind == ErrorKind::Conflict => {
                    tracing::info!(volume = %id, name = record.name, "another node has a volume");
                    opener.volumes.note_claimed_elsewhere(id);
                    (JobState::Cancelled, "another node has it".to_owned())
                }
                Err(error) => {
                    tracing::error!(volume = %id, name = record.name, %error, "a volume cannot be served");
                    let message = match opener.pass_on(&record).await {
                        Passed::To(node) => {
                            tracing::error!(volume = %id, name = record.name, to = %node, "another node tries to open a volume");
                            opener.volumes.note_claimed_elsewhere(id);
                            format!("{}; node {node} tries", error.message)
                        }
                        // Its record was read before the deletion.
                        Passed::Deleted => {
                            opener.volumes.forget(id);
                            "it was deleted meanwhile".to_owned()
                        }
                        Passed::Kept => {
                            opener.volumes.note_failure(id, error.message.clone(), opener.tasks.now());
                            error.message
                        }
                    };
                    (JobState::Failed, message)
                }
            };
            if let Some(job) = job {
                opener.jobs.borrow_mut().end_check(job, state, message, opener.tasks.unix_seconds());
            }
        });
    }

    /// Makes a recorded volume by `format`, and serves it as soon as it is recorded that it was made.
    ///
    /// # Errors
    /// Why it was not: nothing of it is used, its record and its slabs are still there.
    pub(crate) async fn make(&self, record: VolumeRecord, format: Format) -> Done<()> {
        self.volumes.begin_opening(record.clone(), self.disks.arrivals(), self.tasks.now());
        let mut served = self.try_open(&record, Some(format), &Cell::default()).await?;
        let space = self.pools.space_for(record.pool)?;
        space.with_volume(record.id, |coordinator| coordinator.finish_making());
        let patience = self.tasks.now().after(RECORD_PATIENCE);
        let is_recorded = || {
            // Nobody else does until it is served, and what its virtual disk answered must not wait.
            served.poll(&mut Vec::new());
            match space.phase(record.id) {
                Some(Phase::Serving) => {
                    space.record(record.id).is_some_and(|record| !record.is_unfinished).then_some(true)
                }
                _ => Some(false),
            }
        };
        match self.tasks.until_late(patience, is_recorded).await {
            Some(true) => {}
            Some(false) => return Err(Error::io("it stopped while it was being made")),
            None => {
                let why = "that it was made cannot be recorded: see `cenote health`";
                return Err(Error::new(ErrorKind::Unavailable, why));
            }
        }
        tracing::info!(volume = %record.id, name = record.name, "volume was made, and serves");
        self.volumes.serve(record.id, served);
        Ok(())
    }

    /// `claimed`: the milliseconds after which the disks had promised the claim.
    async fn try_open(
        &self,
        record: &VolumeRecord,
        format: Option<Format>,
        claimed: &Cell<u128>,
    ) -> Done<ServedVolume> {
        let mut incarnation = [0; 16];
        getrandom::fill(&mut incarnation).map_err(|error| Error::io(format!("no random bytes: {error}")))?;
        let incarnation = u128::from_ne_bytes(incarnation) | 1;
        until(|| self.disks.are_settled().then_some(())).await;
        if let Some(why) = self.pools.why_superseded(record.pool) {
            return Err(Error::io(why));
        }
        let space = self.pools.space(record.pool).ok_or_else(|| {
            Error::io(format!("pool {} of volume {} is not there", record.pool, record.name))
        })?;
        let disk = Box::new(self.claim(&space, record, incarnation));
        let look_at = Cell::new(self.tasks.now().after(DISKS_PATIENCE));
        let stopped = until(|| match space.phase(record.id) {
            Some(Phase::Opening) => self.is_hopeless(&space, record, &look_at).then_some(Some(UNREACHED)),
            Some(Phase::Serving) => Some(None),
            Some(Phase::Stopped(why)) => Some(Some(why)),
            Some(Phase::Closing | Phase::Closed) | None => Some(Some(SpaceError::Invalid("it was closed"))),
        });
        let failed = |why: String| {
            space.forget_volume(record.id);
            Error::io(format!("volume {}: {why}", record.name))
        };
        let began = self.tasks.now();
        if let Some(why) = stopped.await {
            let error = failed(why.to_string());
            let is_another = why == SpaceError::Fenced && self.neighbours.own().is_some();
            return Err(if is_another { Error::new(ErrorKind::Conflict, error.message) } else { error });
        }
        claimed.set(self.tasks.now().since(began).as_millis());
        let epoch = space.record(record.id).map_or(0, |record| record.epoch.0);
        tracing::info!(volume = %record.id, epoch, ms = claimed.get(), "a volume is claimed, and its disks have promised so");
        let config = self.volumes.cache_share();
        let fs = match &format {
            Some(format) => FileSystem::format(disk, format, config),
            None => FileSystem::open(disk, config),
        };
        let (now, wall_clock) = (self.tasks.now(), self.tasks.wall_clock());
        let service = Service::new(fs, self.volumes.service_config(), now, wall_clock);
        let mut served = ServedVolume::new(service, self.answering.clone());
        let failure = until(|| {
            // Nobody has an open yet: there is no event to lose.
            served.poll(&mut Vec::new());
            served.with(|service| match service.failure() {
                Some(why) => Some(Some(why.to_string())),
                None => service.is_open().then_some(None),
            })
        });
        match failure.await {
            Some(why) => Err(failed(why)),
            None => Ok(served),
        }
    }

    /// Lets another node try to open the volume.
    async fn pass_on(&self, record: &VolumeRecord) -> Passed {
        let Some(own) = self.neighbours.own().filter(|_| !record.is_unfinished) else { return Passed::Kept };
        let (volume, view) = (record.id, self.neighbours.view());
        let fence = self.neighbours.predecessor(record).fence;
        let passed = self.state.change(move |state| pass_on(state, volume, own, &view, fence)).await;
        match passed {
            Ok(passed) => passed,
            Err(error) => {
                tracing::warn!(%volume, %error, "that another node is to open a volume cannot be recorded");
                Passed::Kept
            }
        }
    }

    /// Whether an opening is left to another node, since it waits too long for disks that one might reach. `look_at`: when this is looked at next.
    fn is_hopeless(&self, space: &PoolSpace, record: &VolumeRecord, look_at: &Cell<Monotonic>) -> bool {
        if self.neighbours.own().is_none() {
            return false;
        }
        let now = self.tasks.now();
        let is_due = now >= look_at.get();
        if is_due {
            look_at.set(now.after(LOOK_AGAIN));
        }
        self.tasks.wake_at(look_at.get());
        let missing = |coordinator: &mut Coordinator| !coordinator.missing_disks().is_empty();
        is_due
            && space.with_volume(record.id, missing) == Some(true)
            && space.record(record.id).is_some_and(|record| self.neighbours.next_for(&record).is_some())
    }

    /// Begins to open the virtual disk: in a cluster, if its record still names the node that it is known to be with.
    fn claim(&self, space: &PoolSpace, record: &VolumeRecord, incarnation: u128) -> PoolVolume {
        if self.neighbours.own().is_none() {
            return space.open_volume(record.id, incarnation);
        }
        let predecessor = self.neighbours.predecessor(record);
        space.take_over(record.id, incarnation, predecessor)
    }

    /// Withdraws a volume that another node has claimed: commands on it are answered that it is gone.
    pub(crate) fn lose(&self, volume: VolumeId) {
        let Ok(pool) = self.volumes.pool_of(volume) else { return };
        // One that is being opened notices by itself.
        let Some(served) = self.volumes.withdraw(volume, self.tasks.now()) else { return };
        tracing::warn!(%volume, name = self.volumes.name(volume), "another node has claimed a volume: it is withdrawn");
        served.dismount();
        self.volumes.note_stopped(volume, self.tasks.now());
        let opener = self.clone();
        self.tasks.spawn(async move {
            until(|| served.is_sole().then_some(())).await;
            drop(served);
            if let Some(space) = opener.pools.space(pool) {
                space.forget_volume(volume);
            }
            opener.volumes.note_claimed_elsewhere(volume);
        });
    }

    /// Takes volumes out of service that stopped after a failed write, to be opened anew: their disks hold a whole state, and memory
    /// may be ahead of it.
    pub(crate) fn end_stopped(&self) {
        for (record, why) in self.volumes.stopped() {
            tracing::error!(volume = %record.id, name = record.name, why, "a volume stopped: it is opened anew");
            self.volumes.note_stopped(record.id, self.tasks.now());
            let Some(served) = self.volumes.withdraw(record.id, self.tasks.now()) else { continue };
            let opener = self.clone();
            self.tasks.spawn(async move { opener.end(record, served, why).await });
        }
    }

    /// Waits until commands under way on a stopped volume have their answers: as long as one has it, its space is not opened another
    /// time.
    async fn end(&self, record: VolumeRecord, mut served: ServedVolume, why: String) {
        until(|| {
            served.poll(&mut Vec::new());
            served.is_sole().then_some(())
        })
        .await;
        drop(served);
        if let Some(space) = self.pools.space(record.pool) {
            space.forget_volume(record.id);
        }
        self.volumes.note_ended(record.id, why);
    }

    /// Tries volumes again that could not be opened, or stopped.
    pub(crate) fn retry(&self) {
        for record in self.volumes.due(self.disks.arrivals(), self.tasks.now()) {
            if !self.neighbours.is_to_have(record.id) {
                self.volumes.note_claimed_elsewhere(record.id);
                continue;
            }
            tracing::info!(volume = %record.id, name = record.name, "a volume is tried again");
            // Of a single server it is as it was; in a cluster others may have had it meanwhile.
            self.open(self.neighbours.record(record.id).unwrap_or(record));
        }
    }
}

/// Who tries to open a volume next.
enum Passed {
    To(NodeId),
    /// There is no other node, or it is not this one that has the volume.
    Kept,
    /// Nobody: it is not recorded any more.
    Deleted,
}

/// Records that another node is to try, of those that have not tried yet; if all have, that a new round may begin.
fn pass_on(
    state: &cluster::State,
    volume: VolumeId,
    own: NodeId,
    view: &View,
    fence: Option<Condition>,
) -> Result<Passed, StateError> {
    let Some(found) = state.read::<VolumeRecord>(&volume.to_string())? else { return Ok(Passed::Deleted) };
    let mut record = found.value;
    let is_ours = record.owner == Some(own);
    let next = takeover::next(&record, view, own);
    let mut changes = Transaction::default().when(record.key(), found.revision);
    match next {
        // Whoever it is to be taken from may be back.
        Some(_) if !is_ours && fence.is_none() => return Ok(Passed::Kept),
        Some(next) => {
            record.before = takeover::may_answer(&record, Some(next));
            record.before.retain(|node| *node != own);
            (record.owner, record.coordinator) = (Some(next), 0);
            record.tried.push(own);
        }
        None if is_ours && !record.tried.is_empty() => record.tried.clear(),
        None => return Ok(Passed::Kept),
    }
    if let Some(fence) = fence.filter(|_| !is_ours) {
        changes = changes.when(fence.key, fence.revision);
    }
    state.commit(changes.put(record.key(), record.encode()))?;
    Ok(next.map_or(Passed::Kept, Passed::To))
}
