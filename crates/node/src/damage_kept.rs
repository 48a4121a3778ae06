//! Damage of disks and volumes, kept over restarts in the cluster state.
//!
//! The cluster state survives the failure of any disk, and needs no space on the disks. The records
//! are for administrators: a crash may lose their last seconds. Promises: records are written at
//! most every [`EVERY`], only after a change, and never on the data plane's thread. While they
//! cannot be written, all other work continues.

use crate::damage::{Damage, DamageBook};
use crate::disks::Disks;
use crate::error::{Done, Error};
use crate::events::Events;
use crate::pools::Pools;
use crate::state::State;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use disk::partition::TableState;
use records::{DiskDamage, LostBlocks, Record, Transaction, Typed};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, VolumeId};

/// Pause between two writes, so that a disk that fails block by block neither makes the state's
/// file grow nor keeps its disk busy.
const EVERY: Duration = Duration::from_secs(10);

type DiskDamages = BTreeMap<DiskId, DiskDamage>;
type LostOfVolumes = BTreeMap<VolumeId, LostBlocks>;

/// The parts that know about damage, and about the names that go with it.
#[derive(Clone)]
pub struct DamageSources {
    pub(crate) damage: Rc<DamageBook>,
    pub(crate) events: Rc<Events>,
    pub(crate) disks: Rc<Disks>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
}

impl DamageSources {
    /// Describes volume and range of the disk's last fault since this process began.
    fn last_fault(&self, disk: DiskId) -> Option<String> {
        let (volume, chunk) = self.events.last_fault(disk)?;
        self.volumes.place_in_words(volume, chunk, |pool| self.pools.slab_bytes(pool))
    }

    /// Returns the damage of the disk since this server has it.
    pub fn of_disk(&self, disk: DiskId) -> Damage {
        self.damage.of(disk, self.disks.slots().get(&disk).and_then(|slot| slot.store()))
    }

    fn lost_record(&self, volume: VolumeId) -> Option<LostBlocks> {
        let (_, _, since_unix_s) = self.damage.lost_blocks(volume)?;
        let ranges = self.damage.lost_ranges(volume);
        let ranges = ranges.into_iter().map(|(first, blocks)| (first.0, blocks)).collect();
        Some(LostBlocks { volume, since_unix_s, ranges })
    }
}

/// Damage recorded in the cluster state.
///
/// Invariant: the last write that succeeded wrote `disks` and `lost`; at most one write is in
/// progress.
#[derive(Debug, Default)]
struct Kept {
    disks: DiskDamages,
    lost: LostOfVolumes,
    /// The earliest time of the next write.
    next_at: Monotonic,
    writing: bool,
}

/// Keeps damage in the cluster state.
#[derive(Clone)]
pub struct DamageKeeper {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) state: State,
    pub(crate) sources: DamageSources,
    kept: Rc<RefCell<Kept>>,
    /// The last fault of each disk before this process began, in words.
    earlier: Rc<RefCell<BTreeMap<DiskId, String>>>,
}

impl DamageKeeper {
    pub(crate) fn new(tasks: Rc<Tasks>, state: State, sources: DamageSources) -> Self {
        Self { tasks, state, sources, kept: Rc::default(), earlier: Rc::default() }
    }

    /// Takes over the records of the cluster state.
    pub(crate) fn remember(&self, disks: Vec<DiskDamage>, lost: Vec<LostBlocks>) {
        self.sources.damage.remember(&disks, &lost);
        let faults = disks.iter().filter(|damage| !damage.last.is_empty());
        self.earlier.borrow_mut().extend(faults.map(|damage| (damage.disk, damage.last.clone())));
        let mut kept = self.kept.borrow_mut();
        kept.disks.extend(disks.into_iter().map(|damage| (damage.disk, damage)));
        kept.lost.extend(lost.into_iter().map(|lost| (lost.volume, lost)));
    }

    /// Describes volume and range of the disk's last fault.
    pub fn last_fault(&self, disk: DiskId) -> Option<String> {
        self.sources.last_fault(disk).or_else(|| self.earlier.borrow().get(&disk).cloned())
    }

    /// Acknowledges the disk's damage so far for an administrator: health reports only later
    /// damage.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn acknowledge(&self, disk: DiskId) -> Done<()> {
        {
            let mut slots = self.sources.disks.slots_mut();
            let slot = slots.get_mut(&disk).ok_or_else(|| Error::not_found("disk", disk))?;
            if matches!(slot.table, TableState::Repaired(_)) {
                slot.table = TableState::Whole;
            }
        }
        self.sources.damage.acknowledge(disk, self.sources.of_disk(disk));
        self.write().await;
        Ok(())
    }

    /// Records all changes, if a write is due.
    pub(crate) fn write_if_due(&self) {
        {
            let now = self.tasks.now();
            let mut kept = self.kept.borrow_mut();
            if kept.writing || now < kept.next_at {
                return;
            }
            kept.next_at = now.after(EVERY);
        }
        if self.changes().is_some() {
            let keeper = self.clone();
            self.tasks.spawn(async move { keeper.write().await });
        }
    }

    /// Records all changes.
    pub(crate) async fn write(&self) {
        let Some((disks, lost, transaction)) = self.changes() else { return };
        self.kept.borrow_mut().writing = true;
        let written = self.state.change(move |state| state.commit(transaction)).await;
        let mut kept = self.kept.borrow_mut();
        kept.writing = false;
        match written {
            Ok(_) => (kept.disks, kept.lost) = (disks, lost),
            // The next write tries these changes and later ones.
            Err(error) => tracing::warn!(%error, "what was found wrong with disks cannot be recorded"),
        }
    }

    /// Returns the damage to record, and the transaction that records it; `None` if it is recorded already.
    fn changes(&self) -> Option<(DiskDamages, LostOfVolumes, Transaction)> {
        let ids: Vec<DiskId> = self.sources.disks.slots().keys().copied().collect();
        let disks: DiskDamages =
            ids.into_iter().filter_map(|disk| Some((disk, self.disk_record(disk)?))).collect();
        let ids = self.sources.volumes.ids();
        let lost: LostOfVolumes =
            ids.into_iter().filter_map(|volume| Some((volume, self.sources.lost_record(volume)?))).collect();
        let kept = self.kept.borrow();
        let mut transaction = Transaction::default();
        transaction = changes(transaction, &kept.disks, &disks);
        transaction = changes(transaction, &kept.lost, &lost);
        (!transaction.changes.is_empty()).then_some((disks, lost, transaction))
    }

    fn disk_record(&self, disk: DiskId) -> Option<DiskDamage> {
        let damage = self.sources.of_disk(disk);
        if damage == Damage::default() {
            return None;
        }
        let Damage { medium_errors, lost_writes, corrupt_blocks, repaired_blocks } = damage;
        let last = self.last_fault(disk).unwrap_or_default();
        let acknowledged = self.sources.damage.acknowledged(disk);
        Some(DiskDamage {
            disk,
            medium_errors,
            lost_writes,
            corrupt_blocks,
            repaired_blocks,
            acknowledged_medium_errors: acknowledged.medium_errors,
            acknowledged_lost_writes: acknowledged.lost_writes,
            acknowledged_corrupt_blocks: acknowledged.corrupt_blocks,
            last,
        })
    }
}

/// Adds the changes that make `kept` into `wanted`.
fn changes<Id: Ord + Copy, R: Record + PartialEq>(
    mut transaction: Transaction,
    kept: &BTreeMap<Id, R>,
    wanted: &BTreeMap<Id, R>,
) -> Transaction {
    for (id, record) in wanted {
        if kept.get(id) != Some(record) {
            transaction = transaction.put(record.key(), record.encode());
        }
    }
    let gone: BTreeSet<&Id> = kept.keys().filter(|id| !wanted.contains_key(id)).collect();
    for id in gone {
        transaction = transaction.delete(kept[id].key());
    }
    transaction
}
