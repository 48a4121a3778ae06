//! Losses found on the disk. Each is counted once, however often it is met, until the block or page
//! is rewritten.

use crate::metadata::FoundPage;
use crate::numbers::block_key;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use types::SlabIndex;

/// Groups of 64 neighbouring blocks in which blocks are remembered (some 24 MiB of memory). Beyond
/// that, a block may be counted twice. They hold 256 GiB of contiguous damage, or a million single
/// bad blocks.
const GROUPS_MAX: usize = 1 << 20;

/// Blocks by their keys: a bit for each, in groups of 64.
#[derive(Debug, Default)]
struct BlockSet(BTreeMap<u64, u64>);

impl BlockSet {
    /// Remembers the block if there is space. Returns whether it was new.
    fn insert(&mut self, key: u64) -> bool {
        let (group, bit) = (key / 64, 1 << (key % 64));
        let has_room = self.0.len() < GROUPS_MAX;
        match self.0.get_mut(&group) {
            Some(bits) => std::mem::replace(bits, *bits | bit) & bit == 0,
            None => {
                if has_room {
                    self.0.insert(group, bit);
                }
                true
            }
        }
    }

    fn remove(&mut self, keys: Range<u64>) {
        let groups: Vec<u64> =
            self.0.range(keys.start / 64..keys.end.div_ceil(64)).map(|(group, _)| *group).collect();
        for group in groups {
            let in_range = |bit: &u64| keys.contains(&(group * 64 + bit));
            let gone: u64 = (0..64).filter(in_range).map(|bit| 1 << bit).sum();
            if let Some(bits) = self.0.get_mut(&group) {
                *bits &= !gone;
                if *bits == 0 {
                    self.0.remove(&group);
                }
            }
        }
    }
}

/// Losses counted since the store was opened, including those of replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) corrupt_blocks: u64,
    /// Of these, the ones that the medium failed to read.
    pub(super) medium_errors: u64,
    pub(super) damaged_metadata_leaves: u64,
    pub(super) lost_writes: u64,
    /// Of the corrupt blocks, pages of the store's own structures.
    pub(super) damaged_structures: u64,
}

/// Invariant: a block or page is listed from the time when it was counted until it is rewritten;
/// blocks as long as there is space.
#[derive(Debug, Default)]
pub(super) struct Damage {
    blocks: BlockSet,
    pages: BTreeSet<u64>,
    /// Offsets of damaged pages of the store's own structures, with the number of the checkpoint in
    /// progress when they were found, or of the last one. The next checkpoint rewrites them, or
    /// does without them.
    structures: BTreeMap<u64, u64>,
    losses: Losses,
}

impl Damage {
    /// Continues the counts of an opening, with damaged pages of the store's own structures at
    /// these offsets, before checkpoint `number`.
    pub(super) fn new(losses: Losses, structures: BTreeSet<u64>, number: u64) -> Self {
        let structures = structures.into_iter().map(|offset| (offset, number)).collect();
        Self { losses, structures, ..Self::default() }
    }

    pub(super) fn losses(&self) -> Losses {
        self.losses
    }

    /// Counts blocks that do not match their checksums or do not prove themselves.
    pub(super) fn note_corrupt(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) {
        self.losses.corrupt_blocks += self.note(slab, blocks);
    }

    /// Counts blocks that the medium fails to read.
    pub(super) fn note_unreadable(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) {
        let newly = self.note(slab, blocks);
        self.losses.medium_errors += newly;
        self.losses.corrupt_blocks += newly;
    }

    /// Remembers the blocks. Returns how many were new.
    fn note(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) -> u64 {
        blocks.map(|block| u64::from(self.blocks.insert(block_key(slab, block)))).sum()
    }

    /// Forgets blocks whose content is about to be replaced.
    pub(super) fn written(&mut self, slab: SlabIndex, first: u32, count: u32) {
        if self.blocks.0.is_empty() {
            return;
        }
        let first = block_key(slab, first);
        self.blocks.remove(first..first + u64::from(count));
    }

    /// Counts the damage of a metadata page. The blocks whose checksums it holds are not at fault.
    pub(super) fn note_page(&mut self, key: u64, found: &FoundPage, unreadable: bool) {
        if !found.is_whole() && self.pages.insert(key) {
            self.losses.damaged_metadata_leaves += u64::from(found.damaged);
            self.losses.lost_writes += u64::from(found.stale > 0);
            self.losses.corrupt_blocks += u64::from(found.damaged > 0);
            self.losses.medium_errors += u64::from(unreadable);
        }
    }

    /// Counts a damaged page of the store's own structures. `number`: the checkpoint in progress,
    /// or the last one.
    pub(super) fn note_structure(&mut self, offset: u64, unreadable: bool, number: u64) {
        if self.structures.insert(offset, number).is_none() {
            self.losses.damaged_structures += 1;
            self.losses.corrupt_blocks += 1;
            self.losses.medium_errors += u64::from(unreadable);
        }
    }

    /// Forgets pages of the store's own structures that were rewritten.
    pub(super) fn structures_written(&mut self, offsets: Range<u64>) {
        if !self.structures.is_empty() {
            self.structures.retain(|offset, _| !offsets.contains(offset));
        }
    }

    /// Forgets damage found before this checkpoint, which has ended, began.
    pub(super) fn checkpoint_ended(&mut self, number: u64) {
        self.structures.retain(|_, found_at| *found_at >= number);
    }

    /// Forgets a metadata page that was rewritten.
    pub(super) fn page_written(&mut self, key: u64) {
        self.pages.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_counts_once_until_it_is_written_again_however_many_there_are() {
        let mut damage = Damage::default();
        let all = 0..200_000;
        for _ in 0..3 {
            damage.note_corrupt(SlabIndex(7), all.clone());
            assert_eq!(damage.losses().corrupt_blocks, 200_000);
        }
        damage.written(SlabIndex(7), 70, 100);
        damage.note_unreadable(SlabIndex(7), all);
        let Losses { corrupt_blocks, medium_errors, .. } = damage.losses();
        assert_eq!((corrupt_blocks, medium_errors), (200_100, 100));
        damage.written(SlabIndex(7), 0, 200_000);
        assert!(damage.blocks.0.is_empty());
    }
}
