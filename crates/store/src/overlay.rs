//! Blocks whose newest data are in the journal, not yet in place. Keeps their bytes in RAM within a
//! budget; other blocks are read from the journal again.

use crate::numbers::{NumberMap, block_key};
use sys::Buf;
use types::{BLOCK_BYTES, SlabIndex};

#[derive(Debug, Clone)]
pub(crate) struct OverlayEntry {
    /// Batch that holds the block.
    pub(crate) sequence: u64,
    /// Place of the block, in blocks from the start of the journal.
    pub(crate) journal_block: u32,
    /// Checksum of the block's bytes, from its record.
    pub(crate) checksum: u64,
    pub(crate) bytes: Option<Buf>,
}

pub(crate) struct Overlay {
    entries: NumberMap<OverlayEntry>,
    kept_bytes: usize,
    budget_bytes: usize,
}

impl Overlay {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self { entries: NumberMap::default(), kept_bytes: 0, budget_bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
    pub(crate) fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    pub(crate) fn get(&self, key: u64) -> Option<&OverlayEntry> {
        self.entries.get(&key)
    }

    /// Adds a block; with its bytes only if the budget has space for them.
    pub(crate) fn insert(&mut self, key: u64, entry: OverlayEntry) {
        let bytes = entry.bytes.filter(|_| self.kept_bytes + BLOCK_BYTES <= self.budget_bytes).map(|bytes| {
            // A slice of a large receive buffer would keep all of it.
            if bytes.retained_bytes() > 2 * BLOCK_BYTES { Buf::from(&bytes[..]) } else { bytes }
        });
        self.kept_bytes += bytes.as_ref().map_or(0, |_| BLOCK_BYTES);
        if let Some(old) = self.entries.insert(key, OverlayEntry { bytes, ..entry }) {
            self.kept_bytes -= old.bytes.map_or(0, |_| BLOCK_BYTES);
        }
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(old) = self.entries.remove(&key) {
            self.kept_bytes -= old.bytes.map_or(0, |_| BLOCK_BYTES);
        }
    }

    pub(crate) fn remove_range(&mut self, slab: SlabIndex, first: u32, count: u32) {
        if self.entries.is_empty() {
            return;
        }
        if (count as usize) < self.entries.len() {
            (first..first.saturating_add(count)).for_each(|block| self.remove(block_key(slab, block)));
            return;
        }
        let range = block_key(slab, first)..block_key(slab, first) + u64::from(count);
        let gone: Vec<u64> = self.entries.keys().filter(|key| range.contains(key)).copied().collect();
        gone.into_iter().for_each(|key| self.remove(key));
    }

    /// Forgets a block that is in place now, unless it was written again after batch `through`.
    pub(crate) fn applied(&mut self, key: u64, through: u64) {
        if self.entries.get(&key).is_some_and(|entry| entry.sequence <= through) {
            self.remove(key);
        }
    }

    /// Returns the blocks in order of their place.
    pub(crate) fn sorted_keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.entries.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}
