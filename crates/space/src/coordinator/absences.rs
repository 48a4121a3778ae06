//! What disks that are out have not missed, block by block.
//!
//! A region is what a resync copies: the blocks of it that were not written since the disk left are as good on that disk as they
//! were. If such a block has no intact copy left among those that count, the returning disk's is the last one, and it is taken
//! ([`super::syncing`]). Only what is certain is kept: of chunks that were equal on all copies when the disk left, less every
//! block of a write that was with the copies then or began later, whether or not it was also sent to the disk. The memory of it
//! ends with the coordinator, and if it would grow beyond its limit: then a block counts as missed.

use super::REGION_BLOCKS;
use super::setting::Geometry;
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

/// Invariant: a block that a disk here has not missed is, on that disk, as it was acknowledged last.
#[derive(Default)]
pub(super) struct Absences(BTreeMap<DiskId, Absence>);

impl Absences {
    /// Whether no disk is out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to note what the disk misses, which a committed record puts out and which held these chunks, equal to all other copies.
    pub fn begin(&mut self, disk: DiskId, held: impl Iterator<Item = ChunkIndex>) {
        let chunks = held.map(|index| (index, BTreeMap::new())).collect();
        self.0.insert(disk, Absence { chunks, regions: 0 });
    }

    /// Forgets the disk: it counts again, or what it holds is not known any more.
    pub fn forget(&mut self, disk: DiskId) {
        self.0.remove(&disk);
    }

    /// Forgets the chunk, which is given back, everywhere or on one disk.
    pub fn forget_chunk(&mut self, chunk: ChunkIndex, only: Option<DiskId>) {
        let concerned = self.0.iter_mut().filter(|(disk, _)| only.is_none_or(|only| only == **disk));
        concerned.for_each(|(_, absence)| absence.forget(chunk));
    }

    /// Notes that these blocks, of one region, are changed on other disks.
    pub fn miss(&mut self, chunk: ChunkIndex, lba: u64, blocks: u64, geometry: Geometry) {
        let first = geometry.region_start(lba);
        let start = lba - first;
        for absence in self.0.values_mut() {
            absence.miss(chunk, first, start..start + blocks);
        }
        self.0.retain(|_, absence| absence.regions <= REGIONS_MAX);
    }

    /// Notes that the disk may have lost what it acknowledged in this region.
    pub fn doubt_region(&mut self, disk: DiskId, chunk: ChunkIndex, region: u64, geometry: Geometry) {
        let first = geometry.first_block(chunk) + region * geometry.region_blocks();
        if let Some(absence) = self.0.get_mut(&disk) {
            absence.miss(chunk, first, 0..REGION_BLOCKS);
        }
    }

    /// Whether the disk, although it is out, surely has the last that was written to the block.
    pub fn has_not_missed(&self, disk: DiskId, lba: u64, geometry: Geometry) -> bool {
        if Planted::RescueOfMissed.is_planted() {
            return true;
        }
        let first = geometry.region_start(lba);
        let absence = self.0.get(&disk);
        let regions = absence.and_then(|absence| absence.chunks.get(&geometry.chunk_of(lba)));
        regions.is_some_and(|regions| {
            let block = lba - first;
            let word = regions.get(&first).map(|missed| missed.get((block / 64) as usize).copied());
            word.is_none_or(|word| word.is_some_and(|word| word & (1 << (block % 64)) == 0))
        })
    }
}
