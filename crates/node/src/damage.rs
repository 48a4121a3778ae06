//! Damage found in the data of disks and volumes.
//!
//! Promises: a block without an intact copy stays known until a comparison finds it intact, or it
//! is freed. Never reads data: the events of the spaces report damage.

use crate::disk_store::DiskStore;
use records::{DiskDamage, LostBlocks};
use space::coordinator::{Event, REGION_BLOCKS};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use store::Store;
use types::{DiskId, Lba, VolumeId};

/// Most blocks without an intact copy that are remembered of one volume.
pub const LOST_MAX: usize = 4096;
/// Most damaged blocks of one disk and volume that are remembered, to name their files: the first
/// ones.
const MET_MAX: usize = 256;
/// Regions of one volume compared at once, to check whether its lost blocks are intact again.
const LOST_REGIONS: usize = 16;

/// Damage found on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Damage {
    /// Blocks that could not be read.
    pub medium_errors: u64,
    /// Blocks and pages of metadata that are older than the disk's acknowledged writes.
    pub lost_writes: u64,
    /// Blocks that could not be read, or whose checksum failed.
    pub corrupt_blocks: u64,
    /// Blocks rewritten from another copy.
    pub repaired_blocks: u64,
}

impl Damage {
    /// Returns the damage since `known`.
    pub fn since(&self, known: &Self) -> Self {
        // A crash may have lost the last seconds of counts, but not the acknowledgement of them.
        Self {
            medium_errors: self.medium_errors.saturating_sub(known.medium_errors),
            lost_writes: self.lost_writes.saturating_sub(known.lost_writes),
            corrupt_blocks: self.corrupt_blocks.saturating_sub(known.corrupt_blocks),
            repaired_blocks: self.repaired_blocks.saturating_sub(known.repaired_blocks),
        }
    }

    fn add_store(&mut self, store: &DiskStore) {
        let health = store.with(Store::health);
        self.medium_errors += health.medium_errors;
        self.lost_writes += health.lost_writes;
        self.corrupt_blocks += health.corrupt_blocks;
    }
}

/// Blocks of one volume without an intact copy.
#[derive(Debug, Default)]
struct Lost {
    /// Time since which there are any, in Unix seconds.
    since_unix_s: u64,
    blocks: BTreeSet<Lba>,
}

/// Known damage of disks and volumes.
///
/// Invariant: at most [`LOST_MAX`] blocks of a volume, and [`MET_MAX`] of a disk and volume, are
/// remembered.
#[derive(Default)]
pub struct DamageBook {
    /// Damage apart from the present store's counts.
    disks: RefCell<BTreeMap<DiskId, Damage>>,
    /// Damage that an administrator has acknowledged.
    acknowledged: RefCell<BTreeMap<DiskId, Damage>>,
    /// Blocks of which a disk's copy was found corrupt or too old.
    met: RefCell<BTreeMap<(VolumeId, DiskId), BTreeSet<Lba>>>,
    lost: RefCell<BTreeMap<VolumeId, Lost>>,
}

impl DamageBook {
    /// Returns the damage of the disk since this server has it; `present`: its store, if it is open.
    pub fn of(&self, disk: DiskId, present: Option<&DiskStore>) -> Damage {
        let mut damage = self.disks.borrow().get(&disk).copied().unwrap_or_default();
        if let Some(store) = present {
            damage.add_store(store);
        }
        damage
    }

    /// Returns the damage that an administrator has acknowledged.
    pub fn acknowledged(&self, disk: DiskId) -> Damage {
        self.acknowledged.borrow().get(&disk).copied().unwrap_or_default()
    }

    /// Notes that an administrator has acknowledged the disk's damage so far.
    pub(crate) fn acknowledge(&self, disk: DiskId, damage: Damage) {
        self.acknowledged.borrow_mut().insert(disk, damage);
    }

    /// Takes over the counts of a store that closes.
    pub(crate) fn close(&self, disk: DiskId, store: &DiskStore) {
        self.disks.borrow_mut().entry(disk).or_default().add_store(store);
    }

    /// Takes over damage found before this process began.
    pub(crate) fn remember(&self, disks: &[DiskDamage], lost: &[LostBlocks]) {
        for known in disks {
            let DiskDamage { disk, medium_errors, lost_writes, corrupt_blocks, repaired_blocks, .. } = *known;
            let damage = Damage { medium_errors, lost_writes, corrupt_blocks, repaired_blocks };
            self.disks.borrow_mut().insert(disk, damage);
            let acknowledged = Damage {
                medium_errors: known.acknowledged_medium_errors,
                lost_writes: known.acknowledged_lost_writes,
                corrupt_blocks: known.acknowledged_corrupt_blocks,
                repaired_blocks: 0,
            };
            self.acknowledged.borrow_mut().insert(disk, acknowledged);
        }
        for LostBlocks { volume, since_unix_s, ranges } in lost {
            let blocks = ranges
                .iter()
                .flat_map(|(first, blocks)| (*first..).take((*blocks).min(LOST_MAX as u64) as usize));
            let blocks = blocks.map(Lba).take(LOST_MAX).collect();
            self.lost.borrow_mut().insert(*volume, Lost { since_unix_s: *since_unix_s, blocks });
        }
    }

    /// Notes an event of a volume's coordinator.
    pub(crate) fn note(&self, volume: VolumeId, event: &Event, unix_s: u64) {
        match event {
            Event::Repaired { disk, blocks, .. } => {
                self.disks.borrow_mut().entry(*disk).or_default().repaired_blocks += blocks;
            }
            Event::CorruptRead { disk, lbas, .. } => self.note_met(volume, *disk, lbas),
            Event::LostWrite { disk, chunk, blocks, lbas } => {
                self.note_met(volume, *disk, lbas);
                tracing::error!(%disk, %volume, ?chunk, blocks, "a disk lost writes that it had acknowledged");
                self.disks.borrow_mut().entry(*disk).or_default().lost_writes += blocks;
            }
            Event::WentBack { disk, promised, expected } => {
                let why = "an older image of a disk was put back";
                tracing::error!(%disk, %volume, %promised, %expected, why);
            }
            Event::Unrepairable { lbas, .. } => self.note_lost(volume, lbas, unix_s),
            Event::Compared { lba, found, lost, .. } if found.copies > 0 => {
                self.forget_lost(volume, *lba);
                self.note_lost(volume, lost, unix_s);
            }
            _ => {}
        }
    }

    fn note_met(&self, volume: VolumeId, disk: DiskId, lbas: &[Lba]) {
        let mut met = self.met.borrow_mut();
        let known = met.entry((volume, disk)).or_default();
        for lba in lbas {
            if known.len() < MET_MAX {
                known.insert(*lba);
            }
        }
    }

    fn note_lost(&self, volume: VolumeId, lbas: &[Lba], unix_s: u64) {
        if lbas.is_empty() {
            return;
        }
        let mut lost = self.lost.borrow_mut();
        let known = lost.entry(volume).or_default();
        if known.blocks.is_empty() {
            known.since_unix_s = unix_s;
        }
        known.blocks.extend(lbas.iter().copied());
        while known.blocks.len() > LOST_MAX {
            known.blocks.pop_last();
        }
    }

    /// Forgets the lost blocks of the region that begins at `first`: all have an intact copy, or
    /// were freed.
    pub(crate) fn forget_lost(&self, volume: VolumeId, first: Lba) {
        if let Some(known) = self.lost.borrow_mut().get_mut(&volume) {
            let end = Lba(first.0.saturating_add(REGION_BLOCKS));
            known.blocks.retain(|lba| *lba < first || *lba >= end);
        }
    }

    /// Lists the first blocks of regions with lost blocks: their files may have been rewritten or
    /// deleted.
    pub(crate) fn lost_regions(&self) -> Vec<(VolumeId, Lba)> {
        let region = |lba: &Lba| Lba(lba.0 / REGION_BLOCKS * REGION_BLOCKS);
        let of = |(id, known): (&VolumeId, &Lost)| {
            let regions: BTreeSet<Lba> = known.blocks.iter().map(region).collect();
            regions.into_iter().take(LOST_REGIONS).map(|lba| (*id, lba)).collect::<Vec<_>>()
        };
        self.lost.borrow().iter().flat_map(of).collect()
    }

    /// Lists damaged blocks of disks' copies, by volume and disk: at most the first 256 of each.
    pub fn met_blocks(&self) -> Vec<((VolumeId, DiskId), BTreeSet<Lba>)> {
        self.met.borrow().iter().map(|(key, blocks)| (*key, blocks.clone())).collect()
    }

    /// Lists the volume's known blocks without an intact copy (at most 4,096), as (first, count) in
    /// order.
    pub fn lost_ranges(&self, volume: VolumeId) -> Vec<(Lba, u64)> {
        let lost = self.lost.borrow();
        let known = lost.get(&volume).map(|known| known.blocks.iter()).into_iter().flatten();
        let mut ranges: Vec<(Lba, u64)> = Vec::new();
        for &lba in known {
            match ranges.last_mut() {
                Some((first, blocks)) if first.0 + *blocks == lba.0 => *blocks += 1,
                _ => ranges.push((lba, 1)),
            }
        }
        ranges
    }

    /// Counts the volume's known blocks without an intact copy. Returns also the first of them, and
    /// since when there are any.
    pub fn lost_blocks(&self, volume: VolumeId) -> Option<(usize, Lba, u64)> {
        let lost = self.lost.borrow();
        let known = lost.get(&volume)?;
        known.blocks.first().map(|first| (known.blocks.len(), *first, known.since_unix_s))
    }

    /// Whether the block is known to have no intact copy.
    pub fn is_lost(&self, volume: VolumeId, lba: Lba) -> bool {
        self.lost.borrow().get(&volume).is_some_and(|known| known.blocks.contains(&lba))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use space::coordinator::Comparison;
    use types::ChunkIndex;

    #[test]
    fn a_lost_block_is_known_until_a_comparison_of_its_region_finds_all_intact() {
        let (book, volume) = (DamageBook::default(), VolumeId::from_bytes([1; 16]));
        let lbas = vec![Lba(REGION_BLOCKS), Lba(REGION_BLOCKS + 1), Lba(9 * REGION_BLOCKS)];
        book.note(volume, &Event::Unrepairable { chunk: ChunkIndex(0), lbas }, 7);
        assert_eq!(book.lost_blocks(volume), Some((3, Lba(REGION_BLOCKS), 7)));
        assert_eq!(book.lost_regions(), [(volume, Lba(REGION_BLOCKS)), (volume, Lba(9 * REGION_BLOCKS))]);
        let compared = |copies| {
            let found = Comparison { copies, ..Comparison::default() };
            Event::Compared { lba: Lba(REGION_BLOCKS), found, wrong: Vec::new(), lost: Vec::new() }
        };
        // No copy could be read.
        book.note(volume, &compared(0), 8);
        assert!(book.is_lost(volume, Lba(REGION_BLOCKS)));
        book.note(volume, &compared(2), 9);
        assert_eq!(book.lost_ranges(volume), [(Lba(9 * REGION_BLOCKS), 1)]);
    }
}
