//! Looks after disks and volumes once a second: the state that is recorded of a disk, the end of its retirement, volumes that
//! stopped or could not be opened.
//!
//! Promises: a disk's record goes only when every volume of its pool is served and none depends on the disk; its label is erased
//! only after that is durable, on the other disks too. Never moves data: coordinators do.

use super::commands::{error, not_found};
use super::jobs::SpaceJob;
use super::storage::DiskSlot;
use super::{Plane, failed, tasks, unix_seconds};
use crate::control::{CommandError, CommandErrorKind, NewDisk};
use api::model::JobKind;
use cluster::{DiskRecord, DiskState, PoolRecord, Record, Transaction, Typed, VolumeRecord};
use disk::{FileDiskOptions, OpenError, StandaloneDisk, partition};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, PoolId};
use volume::backend::Backend;

type Done<T> = Result<T, CommandError>;

/// How often a record is written over one that was changed meanwhile.
const WRITES_MAX: usize = 10;
/// A disk that is away for less is not worth a change of its record.
const ABSENCE_MIN_S: u64 = 5;
/// How long the kernel may need to let go of a disk that was removed.
const RELEASE_MAX: Duration = Duration::from_secs(5);
/// How long the other disks may take to carry the records without a removed one.
const KEPT_MAX: Duration = Duration::from_secs(60);

impl Plane {
    pub fn care(self: &Rc<Self>) {
        if self.draining.get() {
            return;
        }
        self.set_reserves();
        self.record_disks();
        self.end_retirements();
        self.end_stopped_volumes();
        self.retry_volumes();
        self.scrub_if_due();
        self.checkpoint_idle_disks();
        self.keep_damage();
        self.name_damaged_files();
    }

    /// The reserve is there for disks that are lost: what has been lost needs it no more.
    fn set_reserves(&self) {
        let disks = self.storage.disks.borrow();
        for (id, entry) in self.storage.pools.borrow().iter() {
            let own = disks.values().filter(|slot| slot.record.pool == *id);
            let gone = own.filter(|slot| slot.store().is_none() || slot.record.state == DiskState::Retired);
            let left = entry.record.reserve_disks.saturating_sub(gone.count() as u32);
            entry.space.set_reserve_disks(left);
            entry.space.keep_promises(0);
        }
    }

    /// Writes down which disks are there, and where.
    fn record_disks(self: &Rc<Self>) {
        let now = unix_seconds();
        let mut changed = Vec::new();
        for slot in self.storage.disks.borrow_mut().values_mut() {
            let found = found_state(slot, now);
            if found != slot.record.state {
                slot.record.state = found;
                slot.record.since_unix_s = if slot.store().is_some() { now } else { slot.since_unix_s };
            }
            let wanted = (slot.record.state, slot.record.path.clone());
            if wanted != slot.recorded && !slot.busy && slot.recordings.is_due(self.now()) {
                slot.busy = true;
                slot.recordings.tried(self.now());
                changed.push((slot.record.clone(), wanted));
            }
        }
        for (record, wanted) in changed {
            let plane = self.clone();
            self.storage.tasks.spawn(async move {
                let id = record.id;
                let written = plane.write_disk(record).await;
                let mut disks = plane.storage.disks.borrow_mut();
                let Some(slot) = disks.get_mut(&id) else { return };
                slot.busy = false;
                slot.note_recorded(written.map(|()| wanted).map_err(|error| error.to_string()));
            });
        }
    }

    /// Replaces a disk's record; one that is gone stays gone.
    async fn write_disk(&self, record: DiskRecord) -> Done<()> {
        self.change_state(move |state| {
            for _ in 0..WRITES_MAX {
                let Some(found) = state.read::<DiskRecord>(&record.id())? else { return Ok(()) };
                match state.write(&record, found.revision) {
                    // What is seen of the disk and what is decided of it are written by two threads.
                    Err(cluster::StateError::Conflict) => {}
                    written => return written.map(|_| ()),
                }
            }
            Err(cluster::StateError::Conflict)
        })
        .await
    }

    fn end_retirements(self: &Rc<Self>) {
        let mut free = Vec::new();
        for slot in self.storage.disks.borrow_mut().values_mut() {
            let retired = slot.record.state == DiskState::Retired && slot.recorded.0 == DiskState::Retired;
            let may = retired && !slot.busy && slot.recordings.is_due(self.now());
            if may && self.is_free(slot.record.id, slot.record.pool) {
                slot.busy = true;
                slot.recordings.tried(self.now());
                free.push(slot.record.clone());
            }
        }
        for record in free {
            let plane = self.clone();
            self.storage.tasks.spawn(async move {
                let id = record.id;
                if let Err(error) = plane.remove_disk(record).await {
                    tracing::warn!(disk = %id, %error, "a retired disk cannot leave its pool yet");
                    if let Some(slot) = plane.storage.disks.borrow_mut().get_mut(&id) {
                        slot.busy = false;
                    }
                }
            });
        }
    }

    /// No volume of the pool depends on the disk; one that is not served may.
    fn is_free(&self, disk: DiskId, pool: PoolId) -> bool {
        let volumes = self.volumes.borrow();
        let served = volumes.values().filter(|entry| entry.pool == pool).all(|entry| entry.served.is_some());
        served && self.storage.space(pool).is_some_and(|space| space.is_free(disk))
    }

    async fn remove_disk(&self, record: DiskRecord) -> Done<()> {
        let (id, pool) = (record.id, record.pool);
        self.change_state(move |state| {
            // Asked again of what is durable: no record of a volume may name a disk that is gone.
            let names = |volume: &VolumeRecord| {
                volume.in_sync.contains(&id) || volume.stale.iter().any(|stale| stale.disk == id)
            };
            if state.list::<VolumeRecord>()?.iter().any(|volume| names(&volume.value)) {
                return Err(cluster::StateError::Conflict);
            }
            let Some(found) = state.read::<DiskRecord>(&id.to_string())? else { return Ok(()) };
            let key = found.value.key();
            state.commit(Transaction::default().when(key.clone(), found.revision).delete(key)).map(|_| ())
        })
        .await?;
        let slot = self.storage.disks.borrow_mut().remove(&id);
        let present = slot.is_some_and(|slot| slot.store().is_some());
        if let Some(space) = self.storage.space(pool) {
            drop(space.remove_disk(id));
        }
        tracing::info!(disk = %id, path = record.path, "a retired disk left its pool");
        let patience = self.now().after(KEPT_MAX);
        self.storage
            .records_kept(|| {
                self.storage.wake_at(patience);
                self.now() >= patience
            })
            .await;
        if present && self.storage.keeper.trouble(pool).is_none() {
            self.erase_disk(&record).await;
        }
        Ok(())
    }

    /// It may be used for something else.
    async fn erase_disk(&self, record: &DiskRecord) {
        let (id, path) = (record.id, record.path.clone());
        let erased = tasks::blocking(self.waker(), move || {
            let until = std::time::Instant::now() + RELEASE_MAX;
            let disk = loop {
                match StandaloneDisk::open(&path, FileDiskOptions::default()) {
                    Err(OpenError::InUse { .. }) if std::time::Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    opened => break opened.map_err(|error| error.to_string()),
                }
            }?;
            store::erase(disk, id).map_err(|error| error.to_string())?;
            partition::remove(Path::new(&path)).map_err(|error| format!("its partition table: {error}"))
        });
        if let Some(Err(why)) = erased.await {
            tracing::warn!(disk = %id, path = record.path, why, "the label or table of a removed disk is still there");
        }
    }

    /// A volume that stopped after a failed write is taken out of service, to be opened anew: what its disks have is whole, what is in
    /// memory may be ahead of them.
    fn end_stopped_volumes(self: &Rc<Self>) {
        let stopped: Vec<(VolumeRecord, String)> = {
            let volumes = self.volumes.borrow();
            let stopped = volumes.values().filter_map(|entry| {
                let why =
                    entry.served.as_ref()?.with(|service| service.failure().map(ToString::to_string))?;
                Some((entry.record.clone(), why))
            });
            stopped.collect()
        };
        for (record, why) in stopped {
            tracing::error!(volume = %record.id, name = record.name, why, "a volume stopped: it is opened anew");
            self.server.borrow_mut().remove_volume(record.id, self.now());
            let now = self.now();
            let served = self.volumes.borrow_mut().get_mut(&record.id).and_then(|entry| {
                entry.openings.broke(now);
                entry.opening = true;
                entry.served.take()
            });
            self.share_cache();
            let Some(mut served) = served else { continue };
            let plane = self.clone();
            self.storage.tasks.spawn(async move {
                // Commands under way on it get their answers; as long as one has it, its space is not opened another time.
                tasks::until(|| {
                    served.poll(&mut Vec::new());
                    served.is_sole().then_some(())
                })
                .await;
                drop(served);
                if let Some(space) = plane.storage.space(record.pool) {
                    space.forget_volume(record.id);
                }
                if let Some(entry) = plane.volumes.borrow_mut().get_mut(&record.id) {
                    entry.opening = false;
                    entry.failure = Some(why);
                }
            });
        }
    }

    /// A volume that could not be opened, or stopped, is tried again when a disk has come, and from time to time.
    fn retry_volumes(self: &Rc<Self>) {
        let arrivals = self.storage.arrivals.get();
        let now = self.now();
        let failed: Vec<VolumeRecord> = {
            let volumes = self.volumes.borrow();
            let failed = volumes.values().filter(|entry| {
                entry.failure.is_some()
                    && !entry.opening
                    && entry.served.is_none()
                    && (entry.arrivals < arrivals || entry.openings.is_due(now))
            });
            failed.map(|entry| entry.record.clone()).collect()
        };
        for record in failed {
            tracing::info!(volume = %record.id, name = record.name, "a volume is tried again");
            self.open_volume(record, None);
        }
    }

    pub(super) async fn retire_disk(self: &Rc<Self>, disk: DiskId) -> Done<u64> {
        let (record, pool) = {
            let disks = self.storage.disks.borrow();
            let slot = disks.get(&disk).ok_or_else(|| not_found("disk", disk))?;
            let since_unix_s = unix_seconds();
            let record = DiskRecord { state: DiskState::Retired, since_unix_s, ..slot.record.clone() };
            (record, slot.record.pool)
        };
        let space = self.storage.space(pool).ok_or_else(|| not_found("pool", pool))?;
        self.check_room_without(disk, pool)?;
        self.set_disk(record).await?;
        space.set_retired(disk, true);
        Ok(self.job_begun(SpaceJob::Rebuild, JobKind::Rebuild, pool).await)
    }

    pub(super) async fn unretire_disk(self: &Rc<Self>, disk: DiskId) -> Done<()> {
        let (record, pool) = {
            let disks = self.storage.disks.borrow();
            let slot = disks.get(&disk).ok_or_else(|| not_found("disk", disk))?;
            if slot.record.state != DiskState::Retired || slot.busy {
                let message = format!("disk {disk} is not being retired, or has just left its pool");
                return Err(error(CommandErrorKind::Conflict, message));
            }
            let state = if slot.store().is_some() { DiskState::Healthy } else { slot.fault };
            let record = DiskRecord { state, since_unix_s: unix_seconds(), ..slot.record.clone() };
            (record, slot.record.pool)
        };
        let space = self.storage.space(pool).ok_or_else(|| not_found("pool", pool))?;
        self.set_disk(record).await?;
        space.set_retired(disk, false);
        Ok(())
    }

    /// Records what an administrator decided on a disk.
    async fn set_disk(&self, record: DiskRecord) -> Done<()> {
        let id = record.id;
        if let Some(slot) = self.storage.disks.borrow_mut().get_mut(&id) {
            slot.busy = true;
        }
        let written = self.write_disk(record.clone()).await;
        if let Some(slot) = self.storage.disks.borrow_mut().get_mut(&id) {
            slot.busy = false;
            if written.is_ok() {
                slot.recorded = (record.state, record.path.clone());
                slot.record.state = record.state;
                slot.record.since_unix_s = record.since_unix_s;
            }
        }
        written
    }

    /// Whether what the disk holds has room on the others, with all copies apart.
    fn check_room_without(&self, disk: DiskId, pool: PoolId) -> Done<()> {
        let disks = self.storage.disks.borrow();
        let others: Vec<&DiskSlot> = disks
            .values()
            .filter(|slot| slot.record.pool == pool && slot.record.id != disk)
            .filter(|slot| slot.store().is_some() && slot.record.state != DiskState::Retired)
            .collect();
        let volumes = self.volumes.borrow();
        let most = volumes
            .values()
            .filter(|entry| entry.pool == pool)
            .max_by_key(|entry| entry.record.resiliency.copies());
        if let Some(entry) = most
            && others.len() < usize::from(entry.record.resiliency.copies())
        {
            return Err(error(
                CommandErrorKind::Conflict,
                format!(
                    "volume '{}' keeps {} copies on as many disks, and {} would be left: add a disk first, or \
                     `cenote disk replace {disk} PATH`",
                    entry.record.name,
                    entry.record.resiliency.copies(),
                    others.len()
                ),
            ));
        }
        let free: u64 = others
            .iter()
            .filter_map(|slot| slot.store())
            .map(|store| store.with(|store| u64::from(store.free_slabs())))
            .sum();
        let held = disks.get(&disk).and_then(DiskSlot::store);
        let held =
            held.map_or(0, |store| store.with(|store| u64::from(store.slab_count() - store.free_slabs())));
        if free < held {
            return Err(error(
                CommandErrorKind::NoSpace,
                format!(
                    "the disk holds {held} slabs, and {free} are free on the others: add a disk first, or `cenote disk replace`"
                ),
            ));
        }
        Ok(())
    }

    pub(super) async fn replace_disk(self: &Rc<Self>, old: DiskId, new: NewDisk) -> Done<(DiskId, u64)> {
        let pool = {
            let disks = self.storage.disks.borrow();
            disks.get(&old).ok_or_else(|| not_found("disk", old))?.record.pool
        };
        let added = self.add_disk(pool, new).await?;
        match self.retire_disk(old).await {
            Ok(job) => Ok((added, job)),
            Err(why) => Err(error(
                why.kind,
                format!("disk {added} was added to the pool; {old} was not retired: {}", why.message),
            )),
        }
    }

    pub(super) async fn set_reserve(&self, pool: PoolId, reserve_disks: u32) -> Done<()> {
        let disks = self.storage.disks.borrow().values().filter(|slot| slot.record.pool == pool).count();
        super::commands::check_reserve(reserve_disks, disks)?;
        self.change_state(move |state| match state.read::<PoolRecord>(&pool.to_string())? {
            Some(found) => {
                let record = PoolRecord { reserve_disks, ..found.value };
                state.write(&record, found.revision).map(|_| ())
            }
            None => Ok(()),
        })
        .await?;
        let mut pools = self.storage.pools.borrow_mut();
        let entry = pools.get_mut(&pool).ok_or_else(|| failed("the pool is gone".to_owned()))?;
        entry.record.reserve_disks = reserve_disks;
        Ok(())
    }
}

/// What a disk's record should say of it.
fn found_state(slot: &DiskSlot, now_unix_s: u64) -> DiskState {
    let short = now_unix_s.saturating_sub(slot.since_unix_s) < ABSENCE_MIN_S;
    match slot.record.state {
        DiskState::Retired => DiskState::Retired,
        _ if slot.store().is_some() => DiskState::Healthy,
        known if slot.why.is_empty() || short => known,
        _ => slot.fault,
    }
}
