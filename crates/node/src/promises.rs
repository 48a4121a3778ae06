//! Promises of disks to volumes, and the ones that disks must forget.
//!
//! **Promises to deleted volumes**: disks forget them, so that there is always space for the
//! promises to new volumes. This is safe because a volume's record exists before any disk promises
//! it an epoch, its id is never used again, and the disks are asked before the records are read. So
//! a volume with a promise and without a record was deleted, for good. A disk keeps the promise
//! while it has a chunk of the volume, or a note says that slabs remain to be given back. The disk
//! refuses a node that still believes it is the owner while the store is open; later that node
//! would have to open a session, which names the epoch that the disk must have promised.
//!
//! **Impossible promises**: a promise only rises, so one that no owner can reach keeps every owner out
//! for ever. Disks take only epochs that the records gave, so no such promise arises by itself; an
//! administrator has the disk forget it. The disk then counts as one that went back in time, regardless
//! of the writes under that promise: the record expels it for a full resync, or it serves the chunks
//! that no other disk has (`space::coordinator::rollback`). No earlier owner can write to it, because
//! opening a session names the epoch that the disk must have promised.
//!
//! **Too little**: an older image of the disk is in its place. A volume that needs chunks that only this
//! disk should have waits for the right disk, or for an administrator who accepts this one.

use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::pools::Pools;
use crate::state::State;
use crate::tasks::Tasks;
use crate::volumes::{VolumeEntry, Volumes};
use records::import::EPOCHS_AHEAD_MAX;
use records::{DeletedVolume, StateError, Typed, VolumeRecord};
use space::block_store::BlockStore;
use space::coordinator::Phase;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Epoch, Monotonic, VolumeId};

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(600);

/// Timeout of a disk for forgetting a promise.
const FORGET_PATIENCE: Duration = Duration::from_secs(10);

/// Attempts to change the record of an open volume.
const ACCEPT_TRIES: u32 = 20;

/// Records of volumes.
pub type Recorded = BTreeMap<VolumeId, VolumeRecord>;

/// A promise that no owner of the volume can reach, or that is less than the disk had given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    /// Volume that the promise was made to.
    pub volume: VolumeId,
    /// Name of the volume, for people.
    pub name: String,
    /// Epoch that the disk promised.
    pub promised: Epoch,
    /// Epoch of the volume's record, too far below the promise.
    pub recorded: Epoch,
}

/// Returns the disk's promise by the volume's record. The record has a promise only after the disk
/// gave it.
pub(crate) fn promised_by_record(record: &VolumeRecord, disk: DiskId) -> Epoch {
    match record.stale.iter().find(|stale| stale.disk == disk) {
        Some(stale) => stale.promised,
        None if record.in_sync.contains(&disk) => record.promised,
        None => Epoch(0),
    }
}

/// Returns the epoch of the record, if no owner can reach the promise from it.
fn beyond(record: &VolumeRecord, promised: Epoch) -> Option<Epoch> {
    (promised.0 > record.epoch.0.saturating_add(EPOCHS_AHEAD_MAX)).then_some(record.epoch)
}

/// Returns the least that the disk must have promised, if that is more than its promise. A stale
/// disk never counts as behind: a resync brings it up to date in any case.
fn behind(record: &VolumeRecord, disk: DiskId, promised: Epoch) -> Option<Epoch> {
    (record.in_sync.contains(&disk) && promised < record.promised).then_some(record.promised)
}

/// Makes disks forget promises that are of no use, or that no owner can reach.
#[derive(Clone)]
pub struct Promises {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) state: State,
    pub(crate) disks: Rc<Disks>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) next_at: Rc<Cell<Monotonic>>,
}

impl Promises {
    /// Checks for promises to deleted volumes, if a check is due.
    pub(crate) fn forget_if_due(&self) {
        let now = self.tasks.now();
        if now < self.next_at.get() {
            return;
        }
        self.next_at.set(now.after(EVERY));
        let in_vain = self.disks.promised_in_vain();
        if in_vain.is_empty() {
            return;
        }
        let promises = self.clone();
        self.tasks.spawn(async move { promises.forget(in_vain).await });
    }

    async fn forget(&self, mut in_vain: BTreeSet<VolumeId>) {
        let recorded = self.state.change(|state| {
            let volumes = state.list::<VolumeRecord>()?.into_iter().map(|volume| volume.value.id);
            let deleted = state.list::<DeletedVolume>()?.into_iter().map(|note| note.value.id);
            Ok(volumes.chain(deleted).collect::<BTreeSet<VolumeId>>())
        });
        match recorded.await {
            Ok(recorded) => {
                in_vain.retain(|volume| !recorded.contains(volume));
                self.disks.forget_promises(&in_vain);
            }
            Err(error) => {
                tracing::debug!(%error, "promises to deleted volumes are kept until the records can be read")
            }
        }
    }

    /// Lists the disk's promises that no owner can reach.
    pub fn beyond(&self, disk: DiskId, recorded: &Recorded) -> Vec<Beyond> {
        self.compared(disk, recorded, beyond)
    }

    /// Lists the volumes that count on the disk and to which it has promised less than their
    /// records say: the disk is an older image of itself, and the volumes may wait.
    pub fn behind(&self, disk: DiskId, recorded: &Recorded) -> Vec<Beyond> {
        self.compared(disk, recorded, |record, promised| behind(record, disk, promised))
    }

    /// Returns the records of volumes known here.
    pub fn recorded(&self) -> Recorded {
        let of = |(id, entry): (&VolumeId, &VolumeEntry)| {
            let space = self.pools.space(entry.pool);
            let serving = space.filter(|space| space.phase(*id) == Some(Phase::Serving));
            let record = serving.and_then(|space| space.record(*id));
            (*id, record.unwrap_or_else(|| entry.record.clone()))
        };
        self.volumes.entries().iter().map(of).collect()
    }

    /// Lists the volumes of the disk's pool for which `apart` returns an epoch, given the record and the
    /// disk's promise.
    fn compared(
        &self,
        disk: DiskId,
        recorded: &Recorded,
        apart: impl Fn(&VolumeRecord, Epoch) -> Option<Epoch>,
    ) -> Vec<Beyond> {
        let slots = self.disks.slots();
        let Some(slot) = slots.get(&disk) else { return Vec::new() };
        let Some(store) = slot.store() else { return Vec::new() };
        let promises: BTreeMap<VolumeId, Epoch> = store.with(|store| store.promises()).into_iter().collect();
        let found = |record: &VolumeRecord| {
            let promised = promises.get(&record.id).copied().unwrap_or_default();
            let recorded = apart(record, promised)?;
            Some(Beyond { volume: record.id, name: record.name.clone(), promised, recorded })
        };
        recorded.values().filter(|record| record.pool == slot.record.pool).filter_map(found).collect()
    }

    /// Makes a disk of this server forget the promises that no owner can reach, and accepts the
    /// disk as it is if it has promised less than the records say; both only if `is_confirmed`.
    /// Returns these promises.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the disk cannot be used; `Conflict` if it has no such promise, so that
    /// another remedy is needed; `Io` if it does not forget the promise.
    pub async fn forget_beyond(&self, disk: DiskId, is_confirmed: bool) -> Done<Vec<Beyond>> {
        let is_here = self.disks.slots().get(&disk).map(|slot| slot.store().is_some());
        if !is_here.ok_or_else(|| Error::not_found("disk", disk))? {
            return Err(Error::new(ErrorKind::Unavailable, format!("disk {disk} cannot be used now")));
        }
        // Reads the records now, since those known here may be older.
        let recorded = self.state.change(|state| {
            let records =
                state.list::<VolumeRecord>()?.into_iter().map(|found| (found.value.id, found.value));
            Ok(records.collect::<Recorded>())
        });
        let recorded = recorded.await?;
        let (beyond, behind) = (self.beyond(disk, &recorded), self.behind(disk, &recorded));
        let found: Vec<Beyond> = beyond.iter().chain(&behind).cloned().collect();
        if found.is_empty() {
            let why = format!(
                "disk {disk} has made no impossible promise, so there is none to forget. If a volume does not open, \
                 `cenote health` says why; if the records are older than the disks, `cenote pool import` takes those of the disks"
            );
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        if is_confirmed {
            for Beyond { volume, name, promised, recorded } in &beyond {
                self.unpromise(disk, *volume).await?;
                tracing::warn!(%disk, name, ?promised, ?recorded, "a disk has forgotten a promise that no owner can come to");
            }
            for Beyond { volume, name, promised, recorded } in &found {
                self.accept(disk, *volume).await?;
                tracing::warn!(%disk, name, ?promised, ?recorded, "a disk is accepted as it is for what no other has");
            }
        }
        Ok(found)
    }

    /// Adds the disk to the accepted images of the volume's record.
    async fn accept(&self, disk: DiskId, volume: VolumeId) -> Done<()> {
        let accepted = self.state.change(move |state| {
            for _ in 0..ACCEPT_TRIES {
                let Some(found) = state.read::<VolumeRecord>(&volume.to_string())? else { return Ok(None) };
                let mut record = found.value;
                if !record.accepted_images.contains(&disk) {
                    record.accepted_images.push(disk);
                }
                match state.write(&record, found.revision) {
                    // The volume's coordinator changed the record meanwhile.
                    Err(StateError::Conflict) => {}
                    written => return written.map(|_| Some(record)),
                }
            }
            Err(StateError::Conflict)
        });
        if let Some(record) = accepted.await?
            && let Some(space) = self.pools.space(record.pool)
        {
            // For a volume that is open here. Another server learns of the record by itself.
            space.note_record(&record);
        }
        Ok(())
    }

    async fn unpromise(&self, disk: DiskId, volume: VolumeId) -> Done<()> {
        if let Some(space) = self.disks.pool_of(disk).and_then(|pool| self.pools.space(pool)) {
            space.end_sessions(disk, volume);
        }
        if let Some(store) = self.disks.slots().get(&disk).and_then(|slot| slot.store()) {
            store.unpromise(volume);
        }
        let has_forgotten = || {
            let slots = self.disks.slots();
            let store = slots.get(&disk)?.store()?;
            (store.promised(volume) == Epoch(0)).then_some(())
        };
        let patience = self.tasks.now().after(FORGET_PATIENCE);
        let forgotten = self.tasks.until_late(patience, has_forgotten).await;
        forgotten
            .ok_or_else(|| Error::io(format!("disk {disk} is busy with the volume, or fails: try again")))
    }
}
