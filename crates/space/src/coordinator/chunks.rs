//! The map from chunks to disks: the union of the in-sync disks' slab tables, less what the record says is being built.

use super::Coordinator;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use store::api::Regions;
use types::{ChunkIndex, DiskId};

/// What is known of the regions of a chunk that may differ between its copies after a crash (I10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Suspects {
    /// Their epochs were not fetched yet.
    Unknown,
    /// They are being fetched from these disks.
    Probing { pending: Vec<DiskId>, answers: Vec<(DiskId, Regions)> },
    /// These regions, counted from the first of the chunk; none: the copies are equal.
    Regions(BTreeSet<u64>),
}

impl Suspects {
    pub fn clean() -> Self {
        Self::Regions(BTreeSet::new())
    }
}

/// Whose copies of a region are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Believed {
    /// In this order.
    disks: Vec<DiskId>,
    /// So many of them equally, but for the order of their ids.
    equals: usize,
}

impl Believed {
    pub fn new(disks: Vec<DiskId>, equals: usize) -> Self {
        Self { disks, equals }
    }

    pub fn place(&self, disk: DiskId) -> usize {
        self.disks.iter().position(|known| *known == disk).unwrap_or(usize::MAX)
    }

    /// Whether no other copy is believed more than this disk's.
    pub fn is_first(&self, disk: DiskId) -> bool {
        self.place(disk) < self.equals
    }
}

/// How far a chunk is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkState {
    /// These disks were asked for a slab and did not answer yet.
    Allocating {
        pending: Vec<DiskId>,
        refused: Vec<DiskId>,
        /// It comes to nothing: these disks give their slabs back.
        undoing: bool,
    },
    Mapped,
    /// It is given back as soon as nothing uses it.
    Closing,
}

pub(super) struct Chunk {
    pub append: bool,
    pub state: ChunkState,
    /// Disks with a copy; it counts where the disk is in sync.
    pub holders: SmallVec<[DiskId; 3]>,
    /// Disks that are sent every write although their copy does not count yet.
    pub mirrors: SmallVec<[DiskId; 1]>,
    pub suspects: Suspects,
    /// Of regions that may differ: whose copies are believed.
    pub believed: BTreeMap<u64, Believed>,
    /// Operations and syncs that use it.
    pub active: u32,
}

impl Chunk {
    pub fn new(append: bool) -> Self {
        Self {
            append,
            state: ChunkState::Mapped,
            holders: SmallVec::new(),
            mirrors: SmallVec::new(),
            suspects: Suspects::clean(),
            believed: BTreeMap::new(),
            active: 0,
        }
    }

    pub fn lives_on(&self, disk: DiskId) -> bool {
        self.holders.contains(&disk) || self.mirrors.contains(&disk)
    }

    /// Whether the disk has, or was asked for, a slab of it.
    pub fn may_live_on(&self, disk: DiskId) -> bool {
        let asked = matches!(&self.state, ChunkState::Allocating { pending, .. } if pending.contains(&disk));
        asked || self.lives_on(disk)
    }

    pub fn is_mapped(&self) -> bool {
        self.state == ChunkState::Mapped
    }
}

impl Coordinator {
    /// The disks whose copy of the chunk holds every acknowledged write, in order of their ids.
    pub(super) fn in_sync_holders<'a>(&'a self, chunk: &'a Chunk) -> impl Iterator<Item = DiskId> + 'a {
        chunk.holders.iter().copied().filter(|disk| self.record.in_sync.contains(disk))
    }

    pub(super) fn holders_of(&self, index: ChunkIndex) -> SmallVec<[DiskId; 3]> {
        self.chunks.get(&index).map(|chunk| self.in_sync_holders(chunk).collect()).unwrap_or_default()
    }

    pub(super) fn chunk_of(&self, lba: u64) -> ChunkIndex {
        ChunkIndex((lba / self.chunk_blocks).min(u64::from(u32::MAX)) as u32)
    }

    pub(super) fn first_block(&self, chunk: ChunkIndex) -> u64 {
        u64::from(chunk.0) * self.chunk_blocks
    }

    pub(super) fn release_chunk(&mut self, index: ChunkIndex) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.active = chunk.active.saturating_sub(1);
            if chunk.active == 0 && chunk.state == ChunkState::Closing {
                self.recheck = true;
            }
        }
    }

    /// The copy does not count until it is filled.
    pub(super) fn add_mirror(&mut self, index: ChunkIndex, disk: DiskId) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.holders.retain(|holder| *holder != disk);
            if !chunk.mirrors.contains(&disk) {
                chunk.mirrors.push(disk);
            }
        }
    }

    /// The copy of a mirror counts from now on.
    pub(super) fn promote_mirror(&mut self, index: ChunkIndex, disk: DiskId) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.mirrors.retain(|mirror| *mirror != disk);
            if !chunk.holders.contains(&disk) {
                chunk.holders.push(disk);
                chunk.holders.sort_unstable();
            }
        }
    }
}
