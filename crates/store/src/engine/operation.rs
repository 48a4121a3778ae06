//! Purposes of disk operations, by which the store handles their answers.

use crate::slots::SlotId;
use crate::versions::PageVersion;
use types::SlabIndex;

/// The attempt of a read. Many errors of a medium are transient, and a block given up needs another
/// copy's help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Second,
}

/// A read of a metadata page, of a slab of this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRead {
    pub(super) key: u64,
    pub(super) generation: u64,
    pub(super) attempt: Attempt,
}

impl PageRead {
    pub(super) fn first(key: u64, generation: u64) -> Self {
        Self { key, generation, attempt: Attempt::First }
    }
    pub(super) fn again(self) -> Self {
        Self { attempt: Attempt::Second, ..self }
    }
    pub(super) fn slab(self) -> SlabIndex {
        SlabIndex((self.key >> 32) as u32)
    }
    pub(super) fn page(self) -> u32 {
        self.key as u32
    }
}

/// A journaled block that a checkpoint reads again because its bytes were not kept in RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalRead {
    pub(super) key: u64,
    /// The batch that holds it.
    pub(super) sequence: u64,
    pub(super) attempt: Attempt,
}

/// The purpose of a disk operation.
#[derive(Debug)]
pub(super) enum Op {
    ReadSegment {
        task: SlotId,
        segment: u16,
    },
    Page(PageRead),
    /// A metadata page in RAM that a scrub reads to compare it with the disk.
    ScrubPage {
        read: PageRead,
        version: PageVersion,
    },
    /// Blocks of a fresh or append write, or the first metadata of a slab.
    Data {
        task: SlotId,
    },
    /// Space of a freed slab, given back.
    Punch {
        slab: SlabIndex,
    },
    Batch {
        sequence: u64,
    },
    Flush,
    CheckpointRead(JournalRead),
    CheckpointWrite {
        page: Option<u64>,
    },
    Anchor,
    /// Blocks of the journal that nothing needs any more, and that the medium failed to read.
    JournalBlocks,
    Records,
    /// A part of the store's own structures, read by a scrub.
    Structure,
    /// A damaged copy of the label.
    Label {
        offset: u64,
    },
}
