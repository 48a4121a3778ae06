//! Which blocks were found corrupt, so that each is counted once however often it is read before it is written again.

use crate::numbers::block_key;
use std::collections::BTreeSet;
use types::SlabIndex;

/// Blocks that are remembered; beyond, one may be counted twice.
const BLOCKS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct FoundCorrupt(BTreeSet<u64>);

impl FoundCorrupt {
    /// How many of these blocks were not known to be corrupt.
    pub(super) fn note(&mut self, slab: SlabIndex, blocks: impl Iterator<Item = u32>) -> u64 {
        let mut new = 0;
        for block in blocks {
            let key = block_key(slab, block);
            let known = if self.0.len() < BLOCKS_MAX { !self.0.insert(key) } else { self.0.contains(&key) };
            new += u64::from(!known);
        }
        new
    }

    /// What these blocks held is no longer of interest.
    pub(super) fn written(&mut self, slab: SlabIndex, first: u32, count: u32) {
        if self.0.is_empty() {
            return;
        }
        let first = block_key(slab, first);
        let gone: Vec<u64> = self.0.range(first..first + u64::from(count)).copied().collect();
        for key in gone {
            self.0.remove(&key);
        }
    }
}
