//! What the disk was found to have lost, so that each loss is counted once however often it is met before it is written again.

use crate::metadata::FoundPage;
use crate::numbers::block_key;
use std::collections::BTreeSet;
use types::SlabIndex;

/// Blocks that are remembered; beyond, one may be counted twice.
const BLOCKS_MAX: usize = 1 << 16;

/// Losses counted since the store was opened, replay's included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) corrupt_blocks: u64,
    /// Of these, the ones that the medium did not give.
    pub(super) medium_errors: u64,
    pub(super) damaged_metadata_leaves: u64,
    pub(super) lost_writes: u64,
}

/// Invariant: a block or page stands here from the time when it was counted until it is written again; blocks as long as there is room.
#[derive(Debug, Default)]
pub(super) struct Damage {
    blocks: BTreeSet<u64>,
    pages: BTreeSet<u64>,
    losses: Losses,
}

impl Damage {
    /// Counts on from what replay found.
    pub(super) fn new(losses: Losses) -> Self {
        Self { losses, ..Self::default() }
    }

    pub(super) fn losses(&self) -> Losses {
        self.losses
    }

    /// Counts blocks that do not match their checksums or do not prove themselves.
    pub(super) fn note_corrupt(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) {
        self.losses.corrupt_blocks += self.note(slab, blocks);
    }

    /// Counts blocks that the medium does not give.
    pub(super) fn note_unreadable(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) {
        let newly = self.note(slab, blocks);
        self.losses.medium_errors += newly;
        self.losses.corrupt_blocks += newly;
    }

    /// Remembers the blocks. Answers how many of them were not known before.
    fn note(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) -> u64 {
        let mut new = 0;
        for block in blocks {
            let key = block_key(slab, block);
            let known = if self.blocks.len() < BLOCKS_MAX {
                !self.blocks.insert(key)
            } else {
                self.blocks.contains(&key)
            };
            new += u64::from(!known);
        }
        new
    }

    /// Forgets blocks whose content is about to be replaced.
    pub(super) fn written(&mut self, slab: SlabIndex, first: u32, count: u32) {
        if self.blocks.is_empty() {
            return;
        }
        let first = block_key(slab, first);
        let gone: Vec<u64> = self.blocks.range(first..first + u64::from(count)).copied().collect();
        for key in gone {
            self.blocks.remove(&key);
        }
    }

    /// Counts what is wrong with a metadata page. The blocks whose checksums it holds are not at fault.
    pub(super) fn note_page(&mut self, key: u64, found: &FoundPage, unreadable: bool) {
        if !found.is_whole() && self.pages.insert(key) {
            self.losses.damaged_metadata_leaves += u64::from(found.damaged);
            self.losses.lost_writes += u64::from(found.stale > 0);
            self.losses.corrupt_blocks += u64::from(found.damaged > 0);
            self.losses.medium_errors += u64::from(unreadable);
        }
    }

    /// Forgets a metadata page that was written again.
    pub(super) fn page_written(&mut self, key: u64) {
        self.pages.remove(&key);
    }
}
