//! What disks have promised to volumes, and what of it they forget.
//!
//! **To volumes that are no more**: disks forget it, so that a place is left for each volume that is made.
//! Why that is safe: a volume's record stands before any disk promises it an epoch, its number is never given again, and the disks are asked
//! before the records are read. So a volume that was promised something and has no record was deleted, for good. A promise is kept while
//! the disk has a chunk of the volume, or a note says that its slabs are still to be given back. Who still takes itself for the
//! owner is refused by the disk while its store is open; later it would have to open a session, and says what the disk must have promised.
//!
//! **Beyond all bounds**: a promise only rises, so that one which no owner can come to keeps every owner out for ever. Disks take epochs that the records gave
//! alone, so that none comes about by itself; an administrator has it forgotten. The disk counts then as one that went back in time, whatever was
//! written to it under that promise: it is put out and brought up to date from the beginning, or serves what nobody else has
//! (`space::coordinator::going_back`). No owner of before can write to it: whoever opens a session names what the disk must have promised.

use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::pools::Pools;
use crate::state::State;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use records::import::EPOCHS_AHEAD_MAX;
use records::{DeletedVolume, Typed, VolumeRecord};
use space::seam::BlockStore;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Epoch, Monotonic, VolumeId};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(600);

/// How long a disk may take to forget a promise.
const FORGET_PATIENCE: Duration = Duration::from_secs(10);

/// A promise that no owner of the volume can come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    pub volume: VolumeId,
    pub name: String,
    pub promised: Epoch,
    pub recorded: Epoch,
}

/// Has disks forget promises that nobody needs, or that no owner can come to.
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
    /// Looks, if the last look is long ago.
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

    /// Lists what the disk has promised and no owner can come to, by the records as they are known here.
    pub fn beyond(&self, disk: DiskId) -> Vec<Beyond> {
        let entries = self.volumes.entries();
        self.beyond_of(disk, |volume| entries.get(&volume).map(|entry| entry.record.clone()))
    }

    fn beyond_of(&self, disk: DiskId, record: impl Fn(VolumeId) -> Option<VolumeRecord>) -> Vec<Beyond> {
        let slots = self.disks.slots();
        let Some(store) = slots.get(&disk).and_then(|slot| slot.store()) else { return Vec::new() };
        let beyond = |(volume, promised): (VolumeId, Epoch)| {
            let VolumeRecord { name, epoch: recorded, .. } = record(volume)?;
            (promised.0 > recorded.0.saturating_add(EPOCHS_AHEAD_MAX)).then_some(Beyond {
                volume,
                name,
                promised,
                recorded,
            })
        };
        store.with(|store| store.promises()).into_iter().filter_map(beyond).collect()
    }

    /// Has a disk of this server forget what no owner can come to, if that is confirmed; answers what that is.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the disk cannot be used; `Conflict` if it has promised nothing of the kind: then there is another way; `Io` if it
    /// does not forget it.
    pub async fn forget_beyond(&self, disk: DiskId, is_confirmed: bool) -> Done<Vec<Beyond>> {
        let is_here = self.disks.slots().get(&disk).map(|slot| slot.store().is_some());
        if !is_here.ok_or_else(|| Error::not_found("disk", disk))? {
            return Err(Error::new(ErrorKind::Unavailable, format!("disk {disk} cannot be used now")));
        }
        // As the records are now: those that are known here may be older.
        let recorded = self.state.change(|state| {
            let records =
                state.list::<VolumeRecord>()?.into_iter().map(|found| (found.value.id, found.value));
            Ok(records.collect::<BTreeMap<VolumeId, VolumeRecord>>())
        });
        let recorded = recorded.await?;
        let found = self.beyond_of(disk, |volume| recorded.get(&volume).cloned());
        if found.is_empty() {
            let why = format!(
                "disk {disk} has made no impossible promise, so there is none to forget. If a volume does not open, \
                 `cenote health` says why; if the records are older than the disks, `cenote pool import` takes those of the disks"
            );
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        if is_confirmed {
            for Beyond { volume, name, promised, recorded } in &found {
                self.unpromise(disk, *volume).await?;
                tracing::warn!(%disk, name, ?promised, ?recorded, "a disk has forgotten a promise that no owner can come to");
            }
        }
        Ok(found)
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
