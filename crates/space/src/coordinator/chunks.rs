//! The map from chunks to disks: the union of the in-sync disks' slab tables, without the copies that
//! the record marks as building.
//!
//! Invariants: a disk is not both a holder and a mirror of a chunk. Holders are in order of their ids.
//! While operations, syncs or requests for region epochs use a chunk (`active`), it is not removed and
//! its slabs are not given back: otherwise a disk asked for a slab that it has just given back would
//! seem to have lost it.

use pool::PoolView;
use records::VolumeRecord;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use types::{ChunkIndex, DiskId};

/// The state of a chunk in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChunkState {
    /// Waiting for slabs from the `pending` disks.
    Allocating {
        pending: Vec<DiskId>,
        refused: Vec<DiskId>,
        /// Whether the allocation failed, and the `pending` disks have yet to give their slabs
        /// back.
        undoing: bool,
    },
    Mapped,
    /// Given back as soon as nothing uses the chunk; an operation waits for that.
    Closing,
}

pub(super) struct Chunk {
    pub append: bool,
    pub state: ChunkState,
    /// Disks with a copy, which counts if the disk is in sync.
    pub holders: SmallVec<[DiskId; 3]>,
    /// Disks that receive every write although their copy does not count yet.
    pub mirrors: SmallVec<[DiskId; 1]>,
    /// Whether a job makes or gives up a copy of the chunk.
    pub in_build: bool,
    /// Operations, syncs and requests for region epochs that use the chunk.
    active: u32,
}

impl Chunk {
    pub fn new(append: bool) -> Self {
        Self {
            append,
            state: ChunkState::Mapped,
            holders: SmallVec::new(),
            mirrors: SmallVec::new(),
            in_build: false,
            active: 0,
        }
    }

    /// Returns the disks whose copy holds every acknowledged write, in order of their ids. `in_sync`: the
    /// record's disks in sync, as a set, since there may be hundreds.
    pub fn in_sync_holders(&self, in_sync: &BTreeSet<DiskId>) -> impl Iterator<Item = DiskId> {
        self.holders.iter().copied().filter(|disk| in_sync.contains(disk))
    }

    pub fn lives_on(&self, disk: DiskId) -> bool {
        self.holders.contains(&disk) || self.mirrors.contains(&disk)
    }

    /// Whether the disk has a slab of the chunk, or was asked for one.
    pub fn may_live_on(&self, disk: DiskId) -> bool {
        let asked = matches!(&self.state, ChunkState::Allocating { pending, .. } if pending.contains(&disk));
        asked || self.lives_on(disk)
    }

    pub fn is_mapped(&self) -> bool {
        self.state == ChunkState::Mapped
    }

    pub fn is_allocating(&self) -> bool {
        matches!(self.state, ChunkState::Allocating { .. })
    }

    pub fn is_active(&self) -> bool {
        self.active > 0
    }

    /// Notes a copy that counts.
    pub fn add_holder(&mut self, disk: DiskId) {
        debug_assert!(!self.mirrors.contains(&disk), "{disk} is a mirror, and would count");
        if !self.holders.contains(&disk) {
            self.holders.push(disk);
            self.holders.sort_unstable();
        }
    }

    /// Stops sending writes to a copy that does not count.
    pub fn remove_mirror(&mut self, disk: DiskId) {
        self.mirrors.retain(|mirror| *mirror != disk);
    }
}

pub(super) struct Chunks {
    pub map: BTreeMap<ChunkIndex, Chunk>,
    /// Disks that a resync is bringing up to date: their copies and their free slabs count soon.
    pub returning: BTreeSet<DiskId>,
    /// Space on the pool's disks, shared with the other volumes.
    pub pool: Rc<RefCell<PoolView>>,
}

impl Chunks {
    pub fn new(pool: Rc<RefCell<PoolView>>) -> Self {
        Self { map: BTreeMap::new(), returning: BTreeSet::new(), pool }
    }

    pub fn get(&self, index: ChunkIndex) -> Option<&Chunk> {
        self.map.get(&index)
    }

    pub fn get_mut(&mut self, index: ChunkIndex) -> Option<&mut Chunk> {
        self.map.get_mut(&index)
    }

    pub fn is_mapped(&self, index: ChunkIndex) -> bool {
        self.get(index).is_some_and(Chunk::is_mapped)
    }

    pub fn is_append(&self, index: ChunkIndex) -> bool {
        self.get(index).is_some_and(|chunk| chunk.append)
    }

    /// Whether a job makes a copy of the chunk, or gives one up.
    pub fn is_in_build(&self, index: ChunkIndex) -> bool {
        self.get(index).is_some_and(|chunk| chunk.in_build)
    }

    pub fn set_in_build(&mut self, index: ChunkIndex, in_build: bool) {
        if let Some(chunk) = self.get_mut(index) {
            chunk.in_build = in_build;
        }
    }

    /// Begins one use of the chunk, which stays until that use ends. Returns whether the chunk
    /// exists.
    pub fn use_chunk(&mut self, index: ChunkIndex) -> bool {
        let chunk = self.get_mut(index);
        chunk.map(|chunk| chunk.active += 1).is_some()
    }

    /// Ends one use of the chunk. Returns whether it is closing and this was the last use.
    pub fn release_chunk(&mut self, index: ChunkIndex) -> bool {
        let Some(chunk) = self.get_mut(index) else { return false };
        debug_assert!(chunk.active > 0, "{index:?} is released more often than it was used");
        chunk.active -= 1;
        chunk.active == 0 && chunk.state == ChunkState::Closing
    }

    /// Returns a closing chunk to service when no operation waits to give it back any more.
    pub fn keep(&mut self, index: ChunkIndex) {
        if let Some(chunk) = self.get_mut(index)
            && chunk.state == ChunkState::Closing
        {
            chunk.state = ChunkState::Mapped;
        }
    }

    /// Begins to send writes to the disk's copy, which does not count until it is filled.
    pub fn add_mirror(&mut self, index: ChunkIndex, disk: DiskId) {
        if let Some(chunk) = self.get_mut(index) {
            chunk.holders.retain(|holder| *holder != disk);
            if !chunk.mirrors.contains(&disk) {
                chunk.mirrors.push(disk);
            }
        }
    }

    /// Lets the copy of a mirror count from now on.
    pub fn promote_mirror(&mut self, index: ChunkIndex, disk: DiskId) {
        if let Some(chunk) = self.get_mut(index) {
            chunk.remove_mirror(disk);
            chunk.add_holder(disk);
        }
    }

    /// Stops sending writes to the disk's copies that do not count.
    pub fn remove_mirrors(&mut self, disk: DiskId) {
        self.map.values_mut().for_each(|chunk| chunk.remove_mirror(disk));
    }

    /// Stops counting the disk's copies: a committed record expels the disk.
    pub fn remove_holder(&mut self, disk: DiskId) {
        for chunk in self.map.values_mut() {
            chunk.holders.retain(|holder| *holder != disk);
        }
    }

    /// Forgets the chunk: no copy has a slab any more.
    pub fn chunk_freed(&mut self, index: ChunkIndex) {
        let Some(chunk) = self.map.remove(&index) else { return };
        debug_assert!(!chunk.is_active() && !chunk.in_build, "{index:?} is given back while it is used");
        let mut pool = self.pool.borrow_mut();
        for disk in chunk.holders.iter().chain(chunk.mirrors.iter()) {
            pool.give_back(*disk);
        }
    }

    /// Returns the fewest copies of any chunk that count by this record, at most the number that
    /// the volume wants.
    pub fn fewest_holders(&self, record: &VolumeRecord) -> u8 {
        let copies = record.resiliency.copies();
        let in_sync = record.in_sync.iter().copied().collect();
        // A chunk without its slabs holds no acknowledged write.
        let allocated = self.map.values().filter(|chunk| !chunk.is_allocating());
        let counts =
            allocated.map(|chunk| chunk.in_sync_holders(&in_sync).count().min(usize::from(copies)) as u8);
        counts.min().unwrap_or(copies)
    }

    /// Returns the disk's chunks that have another copy on these disks.
    pub fn had_by_others(&self, disk: DiskId, others: &[DiskId]) -> Vec<ChunkIndex> {
        let own =
            self.map.iter().filter(|(_, chunk)| !chunk.is_allocating() && chunk.holders.contains(&disk));
        let both = own.filter(|(_, chunk)| chunk.holders.iter().any(|holder| others.contains(holder)));
        both.map(|(&index, _)| index).collect()
    }

    /// Whether every chunk that the disk holds has another copy on the disks of `in_sync`.
    pub fn can_do_without(&self, disk: DiskId, in_sync: &[DiskId]) -> bool {
        self.map.values().all(|chunk| {
            chunk.is_allocating()
                || !chunk.holders.contains(&disk)
                || chunk.holders.iter().any(|other| *other != disk && in_sync.contains(other))
        })
    }
}
