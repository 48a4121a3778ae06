//! A set of changes that becomes visible and durable as a whole, or not at all.

use std::collections::BTreeMap;
use std::rc::Rc;
use types::{Lba, Sid};

use super::super::types::FileId;
use super::key::{self, Key};

/// Sorted changes; `None` deletes.
pub type Changes = BTreeMap<Key, Option<Rc<[u8]>>>;

/// Bytes of a change in the journal beside its key and value: kind and lengths.
const OPERATION_BYTES: usize = 5;

/// Bytes of a run of blocks in the journal.
const RUN_BYTES: usize = 12;

/// A run of blocks of the virtual disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRun {
    pub lba: Lba,
    pub blocks: u32,
}

/// Use of a chunk of the virtual disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkUse {
    Free = 0,
    /// Extents of streams.
    Data = 1,
    /// Tree pages and space maps.
    Meta = 2,
    /// Superblocks and journal: chunk 0, and no other.
    Journal = 3,
}

impl ChunkUse {
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Free,
            1 => Self::Data,
            2 => Self::Meta,
            3 => Self::Journal,
            _ => return None,
        })
    }
}

/// Blocks that a transaction charges a file's owner with, or takes off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub file: FileId,
    pub owner: Sid,
    pub blocks: i128,
}

/// Changes being gathered; reads through it see them.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(super) changes: Changes,
    /// Blocks that this transaction gives to an extent.
    pub(super) allocated: Vec<BlockRun>,
    /// Blocks that no extent points to after it.
    pub(super) freed: Vec<BlockRun>,
    /// Chunks whose use changes.
    pub(super) chunks: Vec<(u32, ChunkUse)>,
    /// Charges to owners; empty unless quotas are kept.
    charges: Vec<Charge>,
    /// Bytes that its changes take in the journal at most: a key changed twice counts twice.
    bytes: usize,
}

impl Transaction {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.bytes += OPERATION_BYTES + key.len() + value.len();
        self.changes.insert(key, Some(value.into()));
    }

    pub fn delete(&mut self, key: Key) {
        self.bytes += OPERATION_BYTES + key.len();
        self.changes.insert(key, None);
    }

    pub fn allocate(&mut self, run: BlockRun) {
        self.bytes += OPERATION_BYTES + RUN_BYTES;
        self.allocated.push(run);
    }

    pub fn free(&mut self, run: BlockRun) {
        self.bytes += OPERATION_BYTES + RUN_BYTES;
        self.freed.push(run);
    }

    /// Returns the most bytes that the changes take in the journal. Callers with many changes end the
    /// transaction by it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn charge(&mut self, charge: Charge) {
        self.charges.push(charge);
    }

    pub fn has_charges(&self) -> bool {
        !self.charges.is_empty()
    }

    /// Takes the charges out, to put the counts that they change in.
    pub fn take_charges(&mut self) -> Vec<Charge> {
        std::mem::take(&mut self.charges)
    }

    pub fn use_chunk(&mut self, chunk: u32, chunk_use: ChunkUse) {
        self.chunks.push((chunk, chunk_use));
    }

    /// Whether it changes how many extents have a block.
    pub fn changes_references(&self) -> bool {
        self.changes.range(key::all_shared()..key::after(&key::all_shared())).next().is_some()
    }

    /// Returns the blocks given to extents.
    pub fn allocated(&self) -> &[BlockRun] {
        &self.allocated
    }

    /// Blocks that no extent points to afterwards.
    pub fn freed(&self) -> &[BlockRun] {
        &self.freed
    }

    /// Takes changed keys and freed runs out.
    pub fn into_parts(self) -> (Changes, Vec<BlockRun>) {
        (self.changes, self.freed)
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.allocated.is_empty()
            && self.freed.is_empty()
            && self.chunks.is_empty()
            && self.charges.is_empty()
    }
}
