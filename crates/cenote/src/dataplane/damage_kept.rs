//! What was found wrong with disks and volumes, kept over restarts in the cluster state.
//!
//! The cluster state, because it is there whatever disk fails, and needs no room on the disks; and because what is kept is for people:
//! a crash may lose the last seconds of it. Promises: it is written every [`EVERY`] at most, only if something changed, and never on the data
//! plane's thread; while it cannot be written, everything goes on.

use super::Plane;
use super::storage::Damage;
use cluster::{DiskDamage, LostBlocks, Record, Transaction, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, VolumeId};

/// A disk that fails block by block does not make the state's file grow, nor its disk busy.
const EVERY: Duration = Duration::from_secs(10);

type DiskDamages = BTreeMap<DiskId, DiskDamage>;
type LostOfVolumes = BTreeMap<VolumeId, LostBlocks>;

/// What the cluster state has.
#[derive(Debug, Default)]
pub struct Kept {
    disks: DiskDamages,
    lost: LostOfVolumes,
    /// No write before.
    next_at: Monotonic,
    writing: bool,
}

impl Plane {
    /// Takes over what the cluster state has.
    pub(super) fn remember_damage(&self, disks: Vec<DiskDamage>, lost: Vec<LostBlocks>) {
        {
            let mut kept = self.damage_kept.borrow_mut();
            kept.disks.extend(disks.iter().map(|damage| (damage.disk, damage.clone())));
            kept.lost.extend(lost.iter().map(|lost| (lost.volume, lost.clone())));
        }
        self.storage.remember_damage(disks, lost);
    }

    /// Writes down what changed, if it is time.
    pub(super) fn keep_damage(self: &Rc<Self>) {
        let now = self.now();
        {
            let mut kept = self.damage_kept.borrow_mut();
            if kept.writing || now < kept.next_at {
                return;
            }
            kept.next_at = now.after(EVERY);
        }
        if self.damage_changes().is_none() {
            return;
        }
        let plane = self.clone();
        self.storage.tasks.spawn(async move { plane.write_damage().await });
    }

    /// Writes down what changed.
    pub(super) async fn write_damage(&self) {
        let Some((disks, lost, transaction)) = self.damage_changes() else { return };
        self.damage_kept.borrow_mut().writing = true;
        let written = self.change_state(move |state| state.commit(transaction)).await;
        let mut kept = self.damage_kept.borrow_mut();
        kept.writing = false;
        match written {
            Ok(_) => (kept.disks, kept.lost) = (disks, lost),
            // It is tried again with what changed until then.
            Err(error) => tracing::warn!(%error, "what was found wrong with disks cannot be recorded"),
        }
    }

    /// What is to be kept, and how the cluster state comes to have it; `None` if it does.
    fn damage_changes(&self) -> Option<(DiskDamages, LostOfVolumes, Transaction)> {
        let ids: Vec<DiskId> = self.storage.disks.borrow().keys().copied().collect();
        let disks: DiskDamages =
            ids.into_iter().filter_map(|disk| Some((disk, self.disk_damage(disk)?))).collect();
        let ids: Vec<VolumeId> = self.volumes.borrow().keys().copied().collect();
        let lost: LostOfVolumes =
            ids.into_iter().filter_map(|volume| Some((volume, self.lost_record(volume)?))).collect();
        let kept = self.damage_kept.borrow();
        let mut transaction = Transaction::default();
        transaction = changes(transaction, &kept.disks, &disks);
        transaction = changes(transaction, &kept.lost, &lost);
        (!transaction.changes.is_empty()).then_some((disks, lost, transaction))
    }

    fn disk_damage(&self, disk: DiskId) -> Option<DiskDamage> {
        let damage = self.storage.damage(disk);
        if damage == Damage::default() {
            return None;
        }
        let Damage { medium_errors, lost_writes, corrupt_blocks, repaired_blocks } = damage;
        let last = self.last_fault(disk).unwrap_or_default();
        Some(DiskDamage { disk, medium_errors, lost_writes, corrupt_blocks, repaired_blocks, last })
    }

    fn lost_record(&self, volume: VolumeId) -> Option<LostBlocks> {
        let (_, _, since_unix_s) = self.storage.lost_blocks(volume)?;
        let ranges =
            self.storage.lost_ranges(volume).into_iter().map(|(first, blocks)| (first.0, blocks)).collect();
        Some(LostBlocks { volume, since_unix_s, ranges })
    }
}

/// Adds what makes `kept` into `wanted`.
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
