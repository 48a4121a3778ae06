//! Blocks of a slab, and the two kinds of metadata words that belong to them: one for each block,
//! and one for each region.

use crate::layout::{Layout, REGION_BLOCKS};
use std::ops::Range;
use types::SlabIndex;

/// Blocks of one slab, valid while it has this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slab: SlabIndex,
    pub(super) generation: u64,
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Place {
    pub(super) fn blocks(self) -> Range<u32> {
        self.first..self.first + self.count
    }

    /// Returns all blocks of the regions that the place touches.
    pub(super) fn regions(self) -> Range<u32> {
        let end = self.first + self.count;
        self.first / REGION_BLOCKS * REGION_BLOCKS..end.next_multiple_of(REGION_BLOCKS)
    }

    /// Returns the words that hold the epochs of its regions.
    pub(super) fn stamp_words(self, layout: &Layout) -> Range<u32> {
        let end = self.first + self.count;
        layout.stamp_word(self.first)..layout.stamp_word(end - 1) + 1
    }

    /// Returns the block `at` blocks after the first, alone.
    pub(super) fn block(self, at: u32) -> Self {
        debug_assert!(at < self.count, "block {at} of {}", self.count);
        Self { first: self.first + at, count: 1, ..self }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        other.slab == self.slab
            && other.first < self.first + self.count
            && self.first < other.first + other.count
    }
}
