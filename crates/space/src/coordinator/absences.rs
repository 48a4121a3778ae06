//! What disks that are out have not missed, block by block.
//!
//! A region is what a resync copies: the blocks of it that were not written since the disk left are as good on that disk as they
//! were. Where such a block has no intact copy left among those that count, the returning disk's is the last one, and it is taken
//! ([`super::syncing`]). Only what is certain is kept: of chunks that were equal on all copies when the disk left, less every
//! block of a write that was with the copies then or began later, whether or not it was also sent to the disk. The memory of it
//! ends with the coordinator, and where it would grow beyond its limit: then a block counts as missed.

use super::operations::{Kind, Operation, Stage};
use super::{Coordinator, REGION_BLOCKS};
use crate::planted::Planted;
use std::collections::BTreeMap;
use types::{ChunkIndex, DiskId};

/// Regions of one disk in which blocks are told apart: a few megabytes.
const REGIONS_MAX: usize = 1 << 16;

/// Which blocks of a region were missed.
type Blocks = [u64; REGION_BLOCKS as usize / 64];

/// One disk's.
#[derive(Default)]
struct Absence {
    /// By chunk that it held when it left: regions, by their first block, in which it missed something.
    chunks: BTreeMap<ChunkIndex, BTreeMap<u64, Blocks>>,
    regions: usize,
}

impl Absence {
    fn miss(&mut self, chunk: ChunkIndex, first: u64, blocks: impl Iterator<Item = u64>) {
        let Some(regions) = self.chunks.get_mut(&chunk) else { return };
        let known = regions.len();
        let missed = regions.entry(first).or_default();
        for block in blocks {
            if let Some(word) = missed.get_mut((block / 64) as usize) {
                *word |= 1 << (block % 64);
            }
        }
        self.regions += regions.len() - known;
    }

    fn forget(&mut self, chunk: ChunkIndex) {
        self.regions -= self.chunks.remove(&chunk).map_or(0, |regions| regions.len());
    }
}

#[derive(Default)]
pub(super) struct Absences(BTreeMap<DiskId, Absence>);

impl Absences {
    /// The disk counts again, or what it holds is not known any more.
    pub fn forget(&mut self, disk: DiskId) {
        self.0.remove(&disk);
    }

    /// The chunk is given back, everywhere or on one disk.
    pub fn forget_chunk(&mut self, chunk: ChunkIndex, only: Option<DiskId>) {
        let concerned = self.0.iter_mut().filter(|(disk, _)| only.is_none_or(|only| only == **disk));
        concerned.for_each(|(_, absence)| absence.forget(chunk));
    }
}

impl Coordinator {
    /// A committed record puts the disk out; it is still among the holders of its chunks.
    pub(super) fn begin_absence(&mut self, disk: DiskId) {
        self.absences.forget(disk);
        if !self.serving() {
            return;
        }
        let held = self.chunks.iter().filter(|(index, chunk)| {
            chunk.is_mapped() && chunk.holders.contains(&disk) && !self.unclean.contains(index)
        });
        let chunks = held.map(|(&index, _)| (index, BTreeMap::new())).collect();
        self.absences.0.insert(disk, Absence { chunks, regions: 0 });
        let running =
            self.operations.values().filter(|operation| matches!(operation.stage, Stage::Running(_)));
        for operation in running {
            let first = self.region_start(operation.lba);
            note(&mut self.absences, first, operation);
        }
    }

    /// The operation is sent to the copies.
    pub(super) fn note_missed(&mut self, number: u64) {
        if !self.absences.0.is_empty()
            && let Some(operation) = self.operations.get(&number)
        {
            let first = self.region_start(operation.lba);
            note(&mut self.absences, first, operation);
        }
    }

    /// The disk may have lost what it acknowledged in this region.
    pub(super) fn doubt_region(&mut self, disk: DiskId, chunk: ChunkIndex, region: u64) {
        let first = self.first_block(chunk) + region * self.region_blocks();
        if let Some(absence) = self.absences.0.get_mut(&disk) {
            absence.miss(chunk, first, 0..REGION_BLOCKS);
        }
    }

    /// Whether the disk, although it is out, surely has the last that was written to the block.
    pub(super) fn has_not_missed(&self, disk: DiskId, lba: u64) -> bool {
        if Planted::RescueOfMissed.is_planted() {
            return true;
        }
        let first = self.region_start(lba);
        let absence = self.absences.0.get(&disk);
        let regions = absence.and_then(|absence| absence.chunks.get(&self.chunk_of(lba)));
        regions.is_some_and(|regions| {
            let block = lba - first;
            let word = regions.get(&first).map(|missed| missed.get((block / 64) as usize).copied());
            word.is_none_or(|word| word.is_some_and(|word| word & (1 << (block % 64)) == 0))
        })
    }

    fn region_start(&self, lba: u64) -> u64 {
        lba - (lba % self.chunk_blocks) % self.region_blocks()
    }
}

fn note(absences: &mut Absences, first: u64, operation: &Operation) {
    match operation.kind {
        Kind::Read { .. } => return,
        Kind::Free => return absences.forget_chunk(operation.chunk, None),
        Kind::Write { .. } | Kind::Discard => {}
    }
    let start = operation.lba - first;
    for absence in absences.0.values_mut() {
        absence.miss(operation.chunk, first, start..start + operation.blocks);
    }
    absences.0.retain(|_, absence| absence.regions <= REGIONS_MAX);
}
