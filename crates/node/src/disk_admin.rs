//! Administration of the pools' disks: their records, additions and removals.
//!
//! Promises: a disk's record is deleted only when every volume of its pool is served and none
//! depends on the disk. Its label is erased only after the deletion is durable, on the other disks
//! too. Never moves data: coordinators do.

use crate::disk_slot::DiskSlot;
use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::formatting::{Made, NewDisk, format_disks};
use crate::job_control::JobControl;
use crate::jobs::{JobId, JobState};
use crate::peers::Peers;
use crate::pools::{PoolSpace, Pools};
use crate::records::Keeper;
use crate::returning::{Parts, take_back};
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volumes::Volumes;
use disk::{FileDiskOptions, OpenError, StandaloneDisk, partition};
use records::{DiskRecord, DiskState, Record, StateError, Transaction, Typed, VolumeRecord};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, PoolId};

/// Attempts to update a record that others change at the same time.
const WRITES_MAX: usize = 10;
/// Timeout for the kernel to release a removed disk.
const RELEASE_MAX: Duration = Duration::from_secs(5);
/// Timeout for the other disks to carry the records without a removed one.
const KEPT_MAX: Duration = Duration::from_secs(60);
/// Timeout for volumes to learn of an added disk before its addition is answered.
const ADD_PATIENCE: Duration = Duration::from_secs(10);

/// Administers disks.
#[derive(Clone)]
pub struct DiskAdmin {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) state: State,
    pub(crate) disks: Rc<Disks>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) keeper: Rc<Keeper>,
    pub(crate) jobs: JobControl,
    pub(crate) peers: Rc<Peers>,
}

impl DiskAdmin {
    /// Records the presence and the paths of disks.
    pub(crate) fn record_states(&self) {
        let (now, unix_s) = (self.tasks.now(), self.tasks.unix_seconds());
        let mut changed = Vec::new();
        for slot in self.disks.slots_mut().values_mut() {
            let found = slot.found_state(unix_s);
            if found != slot.record.state {
                slot.record.state = found;
                slot.record.since_unix_s = if slot.store().is_some() { unix_s } else { slot.since_unix_s };
            }
            let wanted = (slot.record.state, slot.record.path.clone());
            if wanted != slot.recorded && !slot.busy && slot.recordings.is_due(now) {
                slot.busy = true;
                slot.recordings.tried(now);
                changed.push((slot.record.clone(), wanted));
            }
        }
        for (record, wanted) in changed {
            let care = self.clone();
            self.tasks.spawn(async move {
                let id = record.id;
                let written = care.write(record).await;
                let mut slots = care.disks.slots_mut();
                let Some(slot) = slots.get_mut(&id) else { return };
                slot.busy = false;
                let written = written.map(|()| wanted).map_err(|error| error.to_string());
                slot.note_recorded(written, care.tasks.unix_seconds());
            });
        }
    }

    /// Replaces a disk's record. A deleted record stays deleted.
    async fn write(&self, record: DiskRecord) -> Done<()> {
        self.state.change(move |state| write_over(state, &record)).await
    }

    /// Removes retired disks, on which no volume depends any more, from their pools.
    pub(crate) fn end_retirements(&self) {
        let now = self.tasks.now();
        let mut free = Vec::new();
        for slot in self.disks.slots_mut().values_mut() {
            let retired = slot.record.state == DiskState::Retired && slot.recorded.0 == DiskState::Retired;
            let may = retired && !slot.busy && slot.recordings.is_due(now);
            if may && self.is_free(slot.record.id, slot.record.pool) {
                slot.busy = true;
                slot.recordings.tried(now);
                free.push(slot.record.clone());
            }
        }
        for record in free {
            let care = self.clone();
            self.tasks.spawn(async move {
                let id = record.id;
                if let Err(error) = care.remove(record).await {
                    tracing::warn!(disk = %id, %error, "a retired disk cannot leave its pool yet");
                    care.jobs.jobs.borrow_mut().note_staying(id);
                    if let Some(slot) = care.disks.slots_mut().get_mut(&id) {
                        slot.busy = false;
                    }
                }
            });
        }
    }

    /// Whether no volume of the pool depends on the disk. A volume that is not served may.
    fn is_free(&self, disk: DiskId, pool: PoolId) -> bool {
        self.volumes.are_served_of(pool)
            && !self.peers.is_needed(disk)
            && self.pools.space(pool).is_some_and(|space| space.is_free(disk))
    }

    /// Forgets disks of nodes that have left for good, once no data depend on them. Only one node
    /// does so, since all of them could.
    pub(crate) fn end_orphans(&self) {
        if !self.peers.is_first() {
            return;
        }
        for (disk, pool) in self.peers.orphans() {
            let is_free = self.volumes.are_served_of(pool)
                && self.pools.space(pool).is_some_and(|space| space.is_free(disk));
            if !is_free {
                continue;
            }
            let care = self.clone();
            self.tasks.spawn(async move {
                match care.state.change(move |state| forget_unnamed(state, disk)).await {
                    Ok(()) => tracing::info!(%disk, "a disk of a server that has left is forgotten"),
                    // A record names the disk after all, or the state does not answer: the next
                    // check tries again.
                    Err(error) => tracing::debug!(%disk, %error, "a disk cannot be forgotten yet"),
                }
            });
        }
    }

    async fn remove(&self, record: DiskRecord) -> Done<()> {
        let (id, pool) = (record.id, record.pool);
        self.jobs.jobs.borrow_mut().note_leaving(id);
        self.state.change(move |state| forget_unnamed(state, id)).await?;
        let slot = self.disks.remove(id);
        let present = slot.is_some_and(|slot| slot.store().is_some());
        if let Some(space) = self.pools.space(pool) {
            drop(space.remove_disk(id));
        }
        tracing::info!(disk = %id, path = record.path, "a retired disk left its pool");
        let patience = self.tasks.now().after(KEPT_MAX);
        let give_up = || {
            self.tasks.wake_at(patience);
            self.tasks.now() >= patience
        };
        self.keeper.all_kept(&self.disks, give_up).await;
        let mut left = "everything is off the disk";
        if present && self.keeper.trouble(pool).is_none() {
            let is_erased = self.erase(id, record.path.clone()).await.is_ok();
            left = if is_erased {
                "the disk is empty and free"
            } else {
                "the disk is empty; its label is still there"
            };
        }
        let unix_s = self.tasks.unix_seconds();
        self.jobs.jobs.borrow_mut().end_retirement(id, JobState::Completed, left, unix_s);
        Ok(())
    }

    /// Frees a disk that left its pool for other uses, or returns the reason why it keeps its
    /// label.
    pub(crate) async fn erase(&self, id: DiskId, path: String) -> Result<(), String> {
        let shown = path.clone();
        let erased = self.tasks.blocking(move || erase_disk(id, &path)).await;
        let erased = erased.unwrap_or_else(|| Err("no thread to erase it on".to_owned()));
        erased.inspect_err(|why| {
            tracing::warn!(disk = %id, path = shown, why, "the label or table of a removed disk is still there");
        })
    }

    /// Labels empty disks, all with slabs of one size. Returns their records, and the files and
    /// tables made for them.
    pub(crate) async fn format(
        &self,
        pool: PoolId,
        mut disks: Vec<NewDisk>,
        slab_bytes: Option<u64>,
    ) -> Done<(Vec<DiskRecord>, Made)> {
        disks.iter_mut().for_each(|disk| self.peers.name_domain(&mut disk.fault_domain));
        let (time_bound, unix_s) = (self.disks.timeout(), self.tasks.unix_seconds());
        let format = move || format_disks(pool, &disks, slab_bytes, time_bound, unix_s);
        let formatted = self.tasks.blocking(format).await;
        let (mut records, made) =
            formatted.unwrap_or_else(|| Err(Error::io("no thread to format disks on")))?;
        self.peers.name_own(&mut records);
        Ok((records, made))
    }

    /// Stores the records of formatted disks. If they certainly were not stored, removes the files
    /// and tables made for the disks. If that is unknown, keeps them, since the next start may find
    /// the records.
    pub(crate) async fn store_new(
        &self,
        made: Made,
        change: impl FnOnce(&records::State) -> Result<u64, StateError> + Send + 'static,
    ) -> Done<()> {
        let stored = self.state.change(change).await;
        if let Err(why) = &stored
            && matches!(why.kind, ErrorKind::Conflict | ErrorKind::Unavailable)
        {
            self.tasks.blocking(move || made.take_back()).await;
        }
        stored.map(drop)
    }

    /// Adds formatted and recorded disks, and waits until each was tried.
    pub(crate) async fn open(&self, records: Vec<DiskRecord>) {
        for record in records {
            self.disks.add(record, self.tasks.now(), self.tasks.unix_seconds());
        }
        until(|| self.disks.were_all_tried().then_some(())).await;
    }

    /// Adds a disk to the pool: an empty one, or one of this pool whose server has left without it.
    ///
    /// # Errors
    /// The reason why it was not added; see [`ErrorKind`].
    pub async fn add(&self, pool: PoolId, disk: NewDisk) -> Done<DiskId> {
        let Self { state, disks, tasks, peers, .. } = self;
        let parts = Parts { state, disks, tasks, peers };
        if let Some(returned) = take_back(parts, pool, &disk.path).await? {
            return Ok(returned);
        }
        let slab_bytes = self.pools.slab_bytes(pool).ok_or_else(|| Error::not_found("pool", pool))?;
        self.check_room_for_record(pool, &disk.path).await?;
        let (mut records, made) = self.format(pool, vec![disk], Some(slab_bytes)).await?;
        let record = records.pop().ok_or_else(|| Error::io("the disk was not formatted"))?;
        let (id, stored) = (record.id, record.clone());
        self.store_new(made, move |state| state.write(&stored, 0)).await?;
        self.open(vec![record]).await;
        if let Some(space) = self.pools.space(pool) {
            space.add_disk(id);
            self.until_known(id, pool, &space).await;
        }
        Ok(id)
    }

    /// Refuses a disk whose record has no space on the pool's disks: without all records an import
    /// would lose volumes.
    async fn check_room_for_record(&self, pool: PoolId, path: &Path) -> Done<()> {
        let path = path.display().to_string();
        let has_room = self.state.change(move |state| {
            Ok(records::image::has_room_for_disk(&state.dump()?, pool, &path, store::RECORDS_BYTES_MAX))
        });
        match has_room.await? {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::NoSpace,
                "the pool's disks have no room for the records of one more disk: without these an import would lose volumes. Delete volumes, or add \
                 the disk to another pool",
            )),
        }
    }

    /// Waits until all served volumes of the pool may use a disk, so that a rebalance that follows
    /// at once finds them. Busy volumes learn of it later.
    async fn until_known(&self, disk: DiskId, pool: PoolId, space: &PoolSpace) {
        let patience = self.tasks.now().after(ADD_PATIENCE);
        let is_known = || {
            let entries = self.volumes.entries();
            let mut served = entries.iter().filter(|(_, entry)| entry.pool == pool && entry.served.is_some());
            let knows = |volume| space.record(volume).is_none_or(|record| record.in_sync.contains(&disk));
            served.all(|(volume, _)| knows(*volume)).then_some(())
        };
        self.tasks.until_late(patience, is_known).await;
    }

    /// Moves the disk's slabs to others. Returns the job, which ends when the disk has left the
    /// pool.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` or `NoSpace` if the other disks cannot hold its contents.
    pub async fn retire(&self, disk: DiskId) -> Done<JobId> {
        let since_unix_s = self.tasks.unix_seconds();
        if let Some(left) = self.peers.left_behind().into_iter().find(|left| left.id == disk) {
            return self.give_up(DiskRecord { state: DiskState::Retired, since_unix_s, ..left }).await;
        }
        let record = {
            let slots = self.disks.slots();
            let slot = slots.get(&disk).ok_or_else(|| Error::not_found("disk", disk))?;
            DiskRecord { state: DiskState::Retired, since_unix_s, ..slot.record.clone() }
        };
        let (pool, path) = (record.pool, record.path.clone());
        let space = self.pools.space_for(pool)?;
        self.check_room_without(disk, pool)?;
        self.set(record).await?;
        space.set_retired(disk, true);
        Ok(self.jobs.jobs.borrow_mut().begin_retirement(disk, path, since_unix_s))
    }

    /// Gives up a disk whose server has left without it: its copies are rebuilt on others, as when
    /// a dead server is removed.
    async fn give_up(&self, record: DiskRecord) -> Done<JobId> {
        let (disk, path, since_unix_s) = (record.id, record.path.clone(), record.since_unix_s);
        self.write(record).await?;
        let mut jobs = self.jobs.jobs.borrow_mut();
        let job = jobs.begin_retirement(disk, path, since_unix_s);
        let message =
            "it was given up: its server has left without it, and its copies are made on other disks";
        jobs.end_retirement(disk, JobState::Completed, message, since_unix_s);
        Ok(job)
    }

    /// Lets volumes have slabs of the disk again.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it is not being retired.
    pub async fn unretire(&self, disk: DiskId) -> Done<()> {
        let since_unix_s = self.tasks.unix_seconds();
        let record = {
            let slots = self.disks.slots();
            let slot = slots.get(&disk).ok_or_else(|| Error::not_found("disk", disk))?;
            if slot.record.state != DiskState::Retired || slot.busy {
                let message = format!("disk {disk} is not being retired, or has just left its pool");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            let state = if slot.store().is_some() { DiskState::Healthy } else { slot.fault };
            DiskRecord { state, since_unix_s, ..slot.record.clone() }
        };
        let space = self.pools.space_for(record.pool)?;
        self.set(record).await?;
        space.set_retired(disk, false);
        let message = "the retirement was taken back";
        self.jobs.jobs.borrow_mut().end_retirement(disk, JobState::Cancelled, message, since_unix_s);
        Ok(())
    }

    /// Adds `new` to the disk's pool, and moves the disk's slabs to others. Returns the new disk
    /// and the job.
    ///
    /// # Errors
    /// As [`DiskAdmin::add`] and [`DiskAdmin::retire`].
    pub async fn replace(&self, old: DiskId, new: NewDisk) -> Done<(DiskId, JobId)> {
        let pool = self.disks.pool_of(old).ok_or_else(|| Error::not_found("disk", old))?;
        let added = self.add(pool, new).await?;
        match self.retire(old).await {
            Ok(job) => Ok((added, job)),
            Err(why) => Err(Error::new(
                why.kind,
                format!("disk {added} was added to the pool; {old} was not retired: {}", why.message),
            )),
        }
    }

    /// Records an administrator's decision on a disk.
    async fn set(&self, record: DiskRecord) -> Done<()> {
        let id = record.id;
        if let Some(slot) = self.disks.slots_mut().get_mut(&id) {
            slot.busy = true;
        }
        let written = self.write(record.clone()).await;
        if let Some(slot) = self.disks.slots_mut().get_mut(&id) {
            slot.busy = false;
            if written.is_ok() {
                slot.recorded = (record.state, record.path.clone());
                slot.record.state = record.state;
                slot.record.since_unix_s = record.since_unix_s;
            }
        }
        written
    }

    /// Checks that the other disks have space for the disk's slabs, with all copies apart.
    fn check_room_without(&self, disk: DiskId, pool: PoolId) -> Done<()> {
        let slots = self.disks.slots();
        let others: Vec<&DiskSlot> = slots
            .values()
            .filter(|slot| slot.record.pool == pool && slot.record.id != disk && slot.is_usable())
            .collect();
        let elsewhere = self.peers.usable_of(pool);
        let entries = self.volumes.entries();
        let own = entries.values().filter(|entry| entry.pool == pool);
        let most = own.max_by_key(|entry| entry.record.resiliency.copies());
        if let Some(entry) = most
            && others.len() + elsewhere < usize::from(entry.record.resiliency.copies())
        {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "volume '{}' keeps {} copies on as many disks, and {} would be left: add a disk first, or \
                     `cenote disk replace {disk} PATH`",
                    entry.record.name,
                    entry.record.resiliency.copies(),
                    others.len() + elsewhere
                ),
            ));
        }
        if slots.get(&disk).and_then(DiskSlot::store).is_none() {
            // A lost disk holds no data any more: its copies are rebuilt as far as there is space,
            // whether it is retired or not.
            return Ok(());
        }
        self.pools.refresh(pool);
        let shortage = self.pools.space_for(pool)?.shortage_without(disk);
        refuse_shortage(shortage).map_err(|why| Error::new(ErrorKind::NoSpace, why))
    }
}

/// Makes the reason why a disk cannot leave if the others lack this space.
fn refuse_shortage(shortage: pool::Shortage) -> Result<(), String> {
    let pool::Shortage { copies, slabs } = shortage;
    let ways_out = "add a disk first, or `cenote disk replace`";
    if copies > 0 {
        return Err(format!(
            "{copies} of its slabs would find no room on a disk that holds no other copy of the same data, beside those of disks that are being \
             retired already: {ways_out}"
        ));
    }
    if slabs > 0 {
        return Err(format!(
            "the other disks have {slabs} slabs too few for what it holds, what disks that are being retired hold, and what fixed volumes were \
             promised: {ways_out}"
        ));
    }
    Ok(())
}

/// Writes a disk's record over the present one. Two threads write it, one with observations and one
/// with decisions. The owner stays as recorded: a single server may have become a node since.
fn write_over(state: &records::State, record: &DiskRecord) -> Result<(), StateError> {
    for _ in 0..WRITES_MAX {
        let Some(found) = state.read::<DiskRecord>(&record.id())? else { return Ok(()) };
        let DiskRecord { node, fault_domain, .. } = found.value;
        match state.write(&DiskRecord { node, fault_domain, ..record.clone() }, found.revision) {
            Err(StateError::Conflict) => {}
            written => return written.map(|_| ()),
        }
    }
    Err(StateError::Conflict)
}

/// Deletes a disk's record. Reads the state anew, since no record of a volume may name a deleted
/// disk.
fn forget_unnamed(state: &records::State, disk: DiskId) -> Result<(), StateError> {
    let names = |volume: &VolumeRecord| {
        volume.in_sync.contains(&disk) || volume.stale.iter().any(|stale| stale.disk == disk)
    };
    if state.list::<VolumeRecord>()?.iter().any(|volume| names(&volume.value)) {
        return Err(StateError::Conflict);
    }
    let Some(found) = state.read::<DiskRecord>(&disk.to_string())? else { return Ok(()) };
    let key = found.value.key();
    state.commit(Transaction::default().when(key.clone(), found.revision).delete(key)).map(|_| ())
}

/// Erases the label and the partition table of a disk. Blocks.
fn erase_disk(id: DiskId, path: &str) -> Result<(), String> {
    let until = std::time::Instant::now() + RELEASE_MAX;
    let disk = loop {
        match StandaloneDisk::open(path, FileDiskOptions::default()) {
            Err(OpenError::InUse { .. }) if std::time::Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            opened => break opened.map_err(|error| error.to_string()),
        }
    }?;
    store::erase(disk, id).map_err(|error| error.to_string())?;
    let removed = partition::remove(Path::new(path));
    removed.map(|_| ()).map_err(|error| format!("its partition table: {error}"))
}
