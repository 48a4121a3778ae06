//! Blocks that expelled disks have not missed.
//!
//! A resync copies whole regions, but a disk still has the blocks that were not written since it
//! left. If such a block has no intact copy among those that count, the returning disk's copy is
//! the last one, and the resync takes it ([`super::syncing`]). Only a block that is certain counts
//! as not missed: its chunk was equal on all copies when the disk left, and no write of it was in
//! flight then or began later, whether or not the disk got that too. The list ends with the
//! coordinator, or when it would exceed its limit: then all blocks count as missed.

use super::REGION_BLOCKS;
use super::context::Geometry;
use crate::planted::Planted;
use std::collections::BTreeMap;
use types::{ChunkIndex, DiskId};

/// Regions of one disk whose missed blocks are listed at most: a few megabytes.
const REGIONS_MAX: usize = 1 << 16;

/// Bit set of the missed blocks of a region.
type Blocks = [u64; REGION_BLOCKS as usize / 64];

/// The absence of one disk.
#[derive(Default)]
struct Absence {
    /// Regions with missed blocks, by their first block, for each chunk that the disk held when it left.
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

/// Invariant: a disk has the last acknowledged contents of each block that this list does not name
/// as missed.
#[derive(Default)]
pub(super) struct Absences(BTreeMap<DiskId, Absence>);

impl Absences {
    /// Whether no disk is expelled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to note the blocks missed by a disk that a committed record expels. Its copies of the `held`
    /// chunks equal all others.
    pub fn begin(&mut self, disk: DiskId, held: impl Iterator<Item = ChunkIndex>) {
        let chunks = held.map(|index| (index, BTreeMap::new())).collect();
        self.0.insert(disk, Absence { chunks, regions: 0 });
    }

    /// Forgets a disk that counts again, or whose contents are not known any more.
    pub fn forget(&mut self, disk: DiskId) {
        self.0.remove(&disk);
    }

    /// Forgets a chunk that is given back, everywhere or on one disk.
    pub fn forget_chunk(&mut self, chunk: ChunkIndex, only: Option<DiskId>) {
        let concerned = self.0.iter_mut().filter(|(disk, _)| only.is_none_or(|only| only == **disk));
        concerned.for_each(|(_, absence)| absence.forget(chunk));
    }

    /// Notes that other disks change these blocks of one region.
    pub fn miss(&mut self, chunk: ChunkIndex, lba: u64, blocks: u64, geometry: Geometry) {
        let first = geometry.region_start(lba);
        let start = lba - first;
        for absence in self.0.values_mut() {
            absence.miss(chunk, first, start..start + blocks);
        }
        self.0.retain(|_, absence| absence.regions <= REGIONS_MAX);
    }

    /// Notes that the disk may have lost acknowledged writes of this region.
    pub fn doubt_region(&mut self, disk: DiskId, chunk: ChunkIndex, region: u64, geometry: Geometry) {
        let first = geometry.first_block(chunk) + region * geometry.region_blocks();
        if let Some(absence) = self.0.get_mut(&disk) {
            absence.miss(chunk, first, 0..REGION_BLOCKS);
        }
    }

    /// Whether the disk, although expelled, surely has the last write of the block.
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
