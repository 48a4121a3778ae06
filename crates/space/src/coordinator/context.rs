//! The context of a coordinator's parts, which none of them changes: the volume, its geometry, the time.

use super::{Config, Phase, REGION_BLOCKS};
use crate::planted::Planted;
use pool::{Disk, PoolView};
use std::cell::RefCell;
use std::rc::Rc;
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Lba, Monotonic, VolumeId};

pub(super) struct Context {
    pub volume: VolumeId,
    /// Names this opening; never 0, never reused.
    pub incarnation: u128,
    pub config: Config,
    pub geometry: Geometry,
    /// The table of disks, shared with the other volumes.
    pub pool: Rc<RefCell<PoolView>>,
    /// Present time of the coordinator; never goes back.
    pub now: Monotonic,
    pub phase: Phase,
}

impl Context {
    /// Whether the chunk map is complete and the coordinator runs requests.
    pub fn serving(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Closing)
    }

    /// Whether the disk is on another node.
    pub fn is_far(&self, disk: DiskId) -> bool {
        let pool = self.pool.borrow();
        pool.has_remote() && pool.disk(disk).is_some_and(Disk::is_remote)
    }

    /// Whether the disk's node is dead: the disk gets no requests.
    pub fn is_down(&self, disk: DiskId) -> bool {
        self.pool.borrow().disk(disk).is_some_and(Disk::is_down) && !Planted::DeadDisksWaitedFor.is_planted()
    }

    /// Whether the administrator is retiring the disk.
    pub fn is_retired(&self, disk: DiskId) -> bool {
        self.pool.borrow().disk(disk).is_some_and(|disk| disk.is_retired)
    }

    /// Whether the disk will not come back with the data that it had.
    pub fn is_given_up(&self, disk: DiskId) -> bool {
        self.pool.borrow().disk(disk).is_some_and(|disk| disk.is_given_up)
    }

    /// Whether nobody expects the disk to come back with its data.
    pub fn is_lost(&self, disk: DiskId) -> bool {
        self.is_retired(disk) || self.is_given_up(disk)
    }

    /// Whether the coordinator sends no more requests to disks or to the cluster state.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Stopped(_) | Phase::Closed)
    }
}

/// Division of the address space. Every block belongs to one chunk, and to one region of that
/// chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub chunk_blocks: u64,
}

impl Geometry {
    pub fn new(chunk_blocks: u32) -> Self {
        Self { chunk_blocks: u64::from(chunk_blocks.max(1)) }
    }

    pub fn chunk_bytes(self) -> u64 {
        self.chunk_blocks * BLOCK_BYTES as u64
    }

    pub fn region_blocks(self) -> u64 {
        REGION_BLOCKS.min(self.chunk_blocks)
    }

    /// Counts the regions of one chunk.
    pub fn regions(self) -> u64 {
        self.chunk_blocks.div_ceil(self.region_blocks())
    }

    pub fn chunk_of(self, lba: u64) -> ChunkIndex {
        ChunkIndex((lba / self.chunk_blocks).min(u64::from(u32::MAX)) as u32)
    }

    pub fn first_block(self, chunk: ChunkIndex) -> u64 {
        u64::from(chunk.0) * self.chunk_blocks
    }

    /// Returns the region of the block, counted over the whole virtual disk.
    pub fn region_of(self, lba: u64) -> u64 {
        lba / self.chunk_blocks * self.regions() + self.region_in_chunk(lba)
    }

    /// Returns the region of the block, counted from the first of its chunk.
    pub fn region_in_chunk(self, lba: u64) -> u64 {
        (lba % self.chunk_blocks) / self.region_blocks()
    }

    /// Returns the first block of the block's region.
    pub fn region_start(self, lba: u64) -> u64 {
        lba - (lba % self.chunk_blocks) % self.region_blocks()
    }

    /// Counts the blocks of this one's region from this one on.
    pub fn rest_of_region(self, lba: u64) -> u64 {
        let region = self.region_blocks();
        (region - (lba % self.chunk_blocks) % region).min(self.chunk_blocks - lba % self.chunk_blocks)
    }

    /// Returns the first block of each region of the chunk.
    pub fn region_starts(self, chunk: ChunkIndex) -> impl Iterator<Item = Lba> {
        let first = self.first_block(chunk);
        (first..first + self.chunk_blocks).step_by(self.region_blocks() as usize).map(Lba)
    }
}
