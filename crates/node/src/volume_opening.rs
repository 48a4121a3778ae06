//! The way from a record to a served volume; and back, if the volume stops.

use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::jobs::{JobKind, JobState, Jobs};
use crate::lease_gate::LeaseGate;
use crate::peers::Peers;
use crate::pools::{PoolSpace, PoolVolume, Pools};
use crate::served::ServedVolume;
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volumes::Volumes;
use records::{Record, StateError, Transaction, Typed, VolumeRecord};
use space::api::SpaceError;
use space::coordinator::{Coordinator, Phase, Predecessor};
use space::takeover::{self, Ended, PassOn, Tried, View};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Epoch, Monotonic, NodeId, VolumeId};
use volume::backend::Backend;
use volume::fs::{FileSystem, Format};
use volume::service::Service;

/// Time for which an opening waits for disks. Then it is left to another node, which may reach
/// them.
const DISKS_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which an opening that waits for disks is checked after that: a node may have come
/// that could do better.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const UNREACHED: SpaceError = SpaceError::Invalid("it waits for disks that another node may reach");
/// Timeout for recording that a volume was made.
const RECORD_PATIENCE: Duration = Duration::from_secs(30);

/// One opening of a volume.
struct Attempt {
    record: VolumeRecord,
    /// Random number; `None`: the system gives no random bytes.
    incarnation: Option<u128>,
    /// The owner that loses the volume, as known at the decision: a node that comes back meanwhile
    /// keeps it.
    predecessor: Predecessor,
    /// Milliseconds until the disks had promised the claim.
    claimed_ms: Cell<u128>,
    /// The promise, out of every owner's reach, by which a disk refused it.
    refused_by: Cell<Option<Epoch>>,
}

/// Opens volumes.
#[derive(Clone)]
pub(crate) struct VolumeOpener {
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub volumes: Rc<Volumes>,
    pub peers: Rc<Peers>,
    pub jobs: Rc<RefCell<Jobs>>,
    pub lease_gate: Rc<LeaseGate>,
    pub state: State,
}

impl VolumeOpener {
    /// Records that a disk locks out every owner of the volume. The volume stays here, since the
    /// disk would refuse another node too, and is retried after growing pauses.
    fn note_refused(&self, record: &VolumeRecord, promised: Epoch) -> (JobState, String) {
        let epoch = promised.0;
        let why = format!(
            "a disk of it has promised epoch {epoch}, to which no owner comes: see `disk_promise_out_of_bounds` in `cenote health`"
        );
        if self.volumes.note_refused(record.id, promised, why.clone(), self.tasks.now()) {
            tracing::error!(volume = %record.id, name = record.name, why, "a volume cannot be served; it is tried again, with growing pauses");
        }
        (JobState::Failed, why)
    }

    /// Begins to open a volume. If another node had it, that is a job.
    pub(crate) fn open(&self, record: VolumeRecord) {
        let attempt = self.begin(record);
        let opener = self.clone();
        let job = self.peers.is_anothers(&attempt.record).then(|| {
            let unix_s = self.tasks.unix_seconds();
            self.jobs.borrow_mut().begin_check(JobKind::Takeover, attempt.record.name.clone(), unix_s)
        });
        self.tasks.spawn(async move {
            let (began, record) = (opener.tasks.now(), &attempt.record);
            let (state, message) = match opener.try_open(&attempt, None).await {
                Ok(served) => {
                    let ms = opener.tasks.now().since(began).as_millis();
                    tracing::info!(volume = %record.id, name = record.name, ms, "volume serves");
                    opener.volumes.serve(record.id, served);
                    let claimed = attempt.claimed_ms.get();
                    (JobState::Completed, format!("claimed after {claimed} ms, served after {ms} ms"))
                }
                Err(error) => opener.note_failed(&attempt, error).await,
            };
            if let Some(job) = job {
                opener.jobs.borrow_mut().end_check(job, state, message, opener.tasks.unix_seconds());
            }
        });
    }

    /// Notes that an opening begins, with the conditions of its claim.
    fn begin(&self, record: VolumeRecord) -> Attempt {
        self.volumes.begin_opening(record.clone(), self.disks.arrivals(), self.tasks.now());
        let mut random = [0; 16];
        let incarnation = getrandom::fill(&mut random).is_ok().then(|| u128::from_ne_bytes(random) | 1);
        let predecessor = self.peers.predecessor(&record);
        let (claimed_ms, refused_by) = Default::default();
        Attempt { record, incarnation, predecessor, claimed_ms, refused_by }
    }

    /// Decides about a volume that was not opened. Returns how the job ends.
    async fn note_failed(&self, attempt: &Attempt, error: Error) -> (JobState, String) {
        let record = &attempt.record;
        let (id, name) = (record.id, &record.name);
        if let Some(promised) = attempt.refused_by.get() {
            return self.note_refused(record, promised);
        }
        let passed = match error.kind {
            ErrorKind::Conflict => Passed::ClaimedElsewhere,
            _ => {
                tracing::error!(volume = %id, name, %error, "a volume cannot be served");
                self.pass_on(attempt).await
            }
        };
        match passed {
            Passed::ClaimedElsewhere => {
                tracing::info!(volume = %id, name, "another node has a volume");
                self.volumes.note_claimed_elsewhere(id);
                (JobState::Cancelled, "another node has it".to_owned())
            }
            Passed::To(node) => {
                tracing::error!(volume = %id, name, to = self.peers.name(node), "another node tries to open a volume");
                self.volumes.note_claimed_elsewhere(id);
                (JobState::Failed, format!("{}; node {node} tries", error.message))
            }
            // The volume's record was read before the deletion.
            Passed::Deleted => {
                self.volumes.forget(id);
                (JobState::Failed, "it was deleted meanwhile".to_owned())
            }
            Passed::Kept => {
                self.volumes.note_failure(id, error.message.clone(), self.tasks.now());
                (JobState::Failed, error.message)
            }
        }
    }

    /// Makes a recorded volume with `format`, and serves it as soon as the record says that it is
    /// complete.
    ///
    /// # Errors
    /// The reason why it was not made. It is then not used, and still has its record and its slabs.
    pub(crate) async fn make(&self, record: VolumeRecord, format: Format) -> Done<()> {
        let attempt = self.begin(record);
        let mut served = self.try_open(&attempt, Some(format)).await?;
        let record = attempt.record;
        let space = self.pools.space_for(record.pool)?;
        space.with_volume(record.id, |coordinator| coordinator.finish_making());
        let patience = self.tasks.now().after(RECORD_PATIENCE);
        let is_recorded = || {
            // Only this task polls it until it is served, and answers of its virtual disk must not
            // wait.
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

    async fn try_open(&self, attempt: &Attempt, format: Option<Format>) -> Done<ServedVolume> {
        let Attempt { record, incarnation, predecessor, .. } = attempt;
        let incarnation = incarnation.ok_or_else(|| Error::io("no random bytes"))?;
        until(|| self.disks.were_all_tried().then_some(())).await;
        if let Some(why) = self.pools.why_superseded(record.pool) {
            return Err(Error::io(why));
        }
        let space = self.pools.space(record.pool).ok_or_else(|| {
            Error::io(format!("pool {} of volume {} is not there", record.pool, record.name))
        })?;
        // In a cluster the record must still name the node known to have the volume.
        let disk: Box<PoolVolume> = Box::new(match self.peers.own() {
            None => space.open_volume(record.id, incarnation),
            Some(_) => space.take_over(record.id, incarnation, predecessor.clone()),
        });
        let look_at = Cell::new(self.tasks.now().after(DISKS_PATIENCE));
        let stopped = until(|| match space.phase(record.id) {
            Some(Phase::Opening) => self.is_hopeless(&space, record, &look_at).then_some(Some(UNREACHED)),
            Some(Phase::Serving) => Some(None),
            Some(Phase::Stopped(why)) => Some(Some(why)),
            Some(Phase::Closing | Phase::Closed) | None => Some(Some(SpaceError::Invalid("it was closed"))),
        });
        let began = self.tasks.now();
        if let Some(why) = stopped.await {
            return Err(self.end_attempt(&space, attempt, why.to_string()));
        }
        attempt.claimed_ms.set(self.tasks.now().since(began).as_millis());
        let (epoch, ms) =
            (space.record(record.id).map_or(0, |record| record.epoch.0), attempt.claimed_ms.get());
        tracing::info!(volume = %record.id, name = record.name, epoch, ms, "a volume is claimed, and its disks have promised so");
        self.await_copies(&space, record).await;
        let config = self.volumes.cache_share();
        let fs = match &format {
            Some(format) => FileSystem::format(disk, format, config),
            None => FileSystem::open(disk, config),
        };
        let (now, wall_clock) = (self.tasks.now(), self.tasks.wall_clock());
        let service = Service::new(fs, self.volumes.service_config(), now, wall_clock);
        let mut served = ServedVolume::new(service, self.lease_gate.clone());
        let failure = until(|| {
            // No client has an open yet, so there is no event to lose.
            served.poll(&mut Vec::new());
            served.with(|service| match service.failure() {
                Some(why) => Some(Some(why.to_string())),
                None => service.is_open().then_some(None),
            })
        });
        let failure = failure.await;
        let is_open = failure.is_none() && space.phase(record.id) == Some(Phase::Serving);
        match takeover::ended(why_stopped(&space, record).as_ref(), is_open) {
            Ended::Well => Ok(served),
            Ended::ClaimedElsewhere | Ended::Failed => {
                drop(served);
                let why = failure.unwrap_or_else(|| "it stopped".to_owned());
                Err(self.end_attempt(&space, attempt, why))
            }
        }
    }

    /// Waits while disks that missed writes are brought up to date, if a write needs their copies.
    /// Opening the file system writes, and an attempt that ends without these copies would end the
    /// resync as well.
    async fn await_copies(&self, space: &PoolSpace, record: &VolumeRecord) {
        until(|| {
            let makes_up = |coordinator: &mut Coordinator| coordinator.makes_up_for_copies();
            (space.with_volume(record.id, makes_up) != Some(true)).then_some(())
        })
        .await;
    }

    /// Drops the parts of a volume that was not opened; `Conflict`: another node has claimed it.
    fn end_attempt(&self, space: &PoolSpace, attempt: &Attempt, why: String) -> Error {
        let record = &attempt.record;
        let beyond = |coordinator: &mut Coordinator| coordinator.refused_beyond_bounds();
        attempt.refused_by.set(space.with_volume(record.id, beyond).flatten());
        let ended = takeover::ended(why_stopped(space, record).as_ref(), false);
        space.forget_volume(record.id);
        let error = Error::io(format!("volume {}: {why}", record.name));
        match ended {
            Ended::ClaimedElsewhere if self.peers.own().is_some() => {
                Error::new(ErrorKind::Conflict, error.message)
            }
            _ => error,
        }
    }

    /// Lets another node try to open the volume.
    async fn pass_on(&self, attempt: &Attempt) -> Passed {
        let record = &attempt.record;
        let Some(own) = self.peers.own().filter(|_| !record.is_unfinished) else { return Passed::Kept };
        let (volume, view) = (record.id, self.peers.view());
        let tried = Tried {
            by: own,
            incarnation: attempt.incarnation,
            record: record.clone(),
            fence: attempt.predecessor.fence.clone(),
        };
        let passed = self.state.change(move |state| pass_on(state, &tried, &view)).await;
        match passed {
            Ok(passed) => passed,
            Err(error) => {
                tracing::warn!(%volume, name = self.volumes.name(volume), %error, "that another node is to open a volume cannot be recorded");
                Passed::Kept
            }
        }
    }

    /// Whether to leave an opening to another node, since it waits too long for disks that one
    /// might reach. `look_at`: time of the next check.
    fn is_hopeless(&self, space: &PoolSpace, record: &VolumeRecord, look_at: &Cell<Monotonic>) -> bool {
        if self.peers.own().is_none() {
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
            && space.record(record.id).is_some_and(|record| self.peers.next_for(&record).is_some())
    }

    /// Withdraws a volume that another node has claimed: commands on it get the answer that it is
    /// gone. The records are read anew afterwards: until the last command has ended, nothing is
    /// opened here, even if this node should have the volume.
    pub(crate) fn lose(&self, volume: VolumeId) {
        let Ok(pool) = self.volumes.pool_of(volume) else { return };
        // A volume that is being opened notices the claim by itself.
        let Some(mut served) = self.volumes.withdraw(volume, self.tasks.now()) else { return };
        tracing::warn!(%volume, name = self.volumes.name(volume), "another node has claimed a volume: it is withdrawn");
        served.dismount();
        self.volumes.note_stopped(volume, self.tasks.now());
        let opener = self.clone();
        self.tasks.spawn(async move {
            until(|| {
                // Nothing else polls it any more.
                served.poll(&mut Vec::new());
                served.is_sole().then_some(())
            })
            .await;
            drop(served);
            if let Some(space) = opener.pools.space(pool) {
                space.forget_volume(volume);
            }
            opener.volumes.note_claimed_elsewhere(volume);
        });
    }

    /// Takes a volume out of service for a while, as this node's death would: commands on it get
    /// the answer that it is gone. It is opened again later if it is still this node's.
    pub(crate) fn suspend(&self, volume: VolumeId, why: &str) {
        let Some(record) = self.peers.record(volume) else { return };
        let Some(served) = self.volumes.withdraw(volume, self.tasks.now()) else { return };
        tracing::error!(%volume, name = record.name, why, "a volume is withdrawn");
        served.dismount();
        self.volumes.note_stopped(volume, self.tasks.now());
        let (opener, why) = (self.clone(), why.to_owned());
        self.tasks.spawn(async move { opener.end(record, served, why).await });
    }

    /// Takes volumes out of service that stopped after a failed write, to open them anew: their
    /// disks hold a consistent state, and memory may be ahead of it.
    pub(crate) fn end_stopped(&self) {
        for (record, why) in self.volumes.stopped() {
            tracing::error!(volume = %record.id, name = record.name, why, "a volume stopped: it is opened anew");
            self.volumes.note_stopped(record.id, self.tasks.now());
            let Some(served) = self.volumes.withdraw(record.id, self.tasks.now()) else { continue };
            let opener = self.clone();
            self.tasks.spawn(async move { opener.end(record, served, why).await });
        }
    }

    /// Waits until commands in progress on a stopped volume have their answers: while one has the
    /// volume, its space is not opened again.
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

    /// Retries volumes that could not be opened, or stopped.
    pub(crate) fn retry(&self) {
        for record in self.volumes.due(self.disks.arrivals(), self.tasks.now()) {
            if !self.peers.is_to_have(record.id) {
                self.volumes.note_claimed_elsewhere(record.id);
                continue;
            }
            tracing::info!(volume = %record.id, name = record.name, "a volume is tried again");
            // On a single server the record is unchanged; in a cluster other nodes may have had the
            // volume meanwhile.
            self.open(self.peers.record(record.id).unwrap_or(record));
        }
    }
}

/// Returns the reason why the volume's virtual disk stopped, if it has.
fn why_stopped(space: &PoolSpace, record: &VolumeRecord) -> Option<SpaceError> {
    match space.phase(record.id) {
        Some(Phase::Stopped(why)) => Some(why),
        _ => None,
    }
}

/// The node that tries to open a volume next.
enum Passed {
    To(NodeId),
    /// This node, later: there is no other.
    Kept,
    /// The node that has claimed the volume meanwhile, or to which it was given.
    ClaimedElsewhere,
    /// No node: the volume is not recorded any more.
    Deleted,
}

/// Records the result of [`takeover::pass_on`].
fn pass_on(state: &records::State, tried: &Tried, view: &View) -> Result<Passed, StateError> {
    let Some(found) = state.read::<VolumeRecord>(&tried.record.id.to_string())? else {
        return Ok(Passed::Deleted);
    };
    let changes = Transaction::default().when(found.value.key(), found.revision);
    let (passed, record, fence) = match takeover::pass_on(&found.value, tried, view) {
        PassOn::To { next, record, fence } => (Passed::To(next), record, fence),
        PassOn::Again { record } => (Passed::Kept, record, None),
        PassOn::Keep => return Ok(Passed::Kept),
        PassOn::ClaimedElsewhere => return Ok(Passed::ClaimedElsewhere),
    };
    let changes = fence.into_iter().fold(changes, |changes, fence| changes.when(fence.key, fence.revision));
    state.commit(changes.put(record.key(), record.encode()))?;
    Ok(passed)
}
