//! What a request becomes, and what a disk operation was for.

use super::append::AppendStage;
use super::chunk::AllocateTask;
use super::read::ReadTask;
use super::scrub::ScrubTask;
use super::write::WriteTask;
use crate::layout::Layout;
use crate::slots::SlotId;
use crate::versions::PageVersion;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use types::{Epoch, SlabIndex, VolumeId};

pub(super) type Pages = SmallVec<[u64; 4]>;

/// Blocks of one slab, as long as it has this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slab: SlabIndex,
    pub(super) generation: u64,
    pub(super) first: u32,
    pub(super) count: u32,
}

pub(super) struct Task {
    /// Taken when the answer is given.
    pub(super) token: Option<u64>,
    pub(super) place: Option<Place>,
    /// The slab in whose line it stands.
    pub(super) lock: Option<SlabIndex>,
    /// Pages pinned for it.
    pub(super) pages: Pages,
    pub(super) pages_missing: u32,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Read(ReadTask),
    Write(WriteTask),
    Discard(DiscardTask),
    Free(FreeTask),
    Allocate(AllocateTask),
    Promise { volume: VolumeId, epoch: Epoch },
    Regions,
    Scrub(ScrubTask),
    Records,
}

pub(super) struct DiscardTask {
    pub(super) volume: VolumeId,
    pub(super) epoch: Epoch,
    /// The blocks do not become zeroes: what they held is gone.
    pub(super) lost: bool,
}

pub(super) struct FreeTask {
    pub(super) volume: VolumeId,
    pub(super) epoch: Epoch,
}

impl Task {
    pub(super) fn new(token: u64, place: Option<Place>, kind: Kind) -> Self {
        Self { token: Some(token), place, lock: None, pages: Pages::new(), pages_missing: 0, kind }
    }

    pub(super) fn changes(&self) -> bool {
        !matches!(self.kind, Kind::Read(_) | Kind::Regions | Kind::Scrub(_))
    }

    /// The metadata words that it reads or changes.
    pub(super) fn word_ranges(&self, layout: &Layout) -> SmallVec<[Range<u32>; 2]> {
        let Some(place) = self.place else { return SmallVec::new() };
        let end = place.first + place.count;
        let epochs = layout.epoch_word(place.first)..layout.epoch_word(end - 1) + 1;
        match &self.kind {
            Kind::Read(_) => smallvec![place.first..end],
            Kind::Write(write) if write.append != AppendStage::None => {
                // The rest of the regions may have to be zeroed with the first write to them.
                smallvec![write.regions_of(place), epochs]
            }
            Kind::Write(_) | Kind::Discard(_) => smallvec![place.first..end, epochs],
            Kind::Regions => smallvec![layout.epoch_word(0)..layout.epoch_word(layout.slab_blocks() - 1) + 1],
            Kind::Free(_) | Kind::Allocate(_) | Kind::Promise { .. } | Kind::Scrub(_) | Kind::Records => {
                SmallVec::new()
            }
        }
    }
}

/// Which try of a read this is. Many errors of a medium pass, and what is given up for one costs another copy's help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Second,
}

/// What a disk operation was for.
pub(super) enum Op {
    ReadSegment {
        task: SlotId,
        segment: u16,
    },
    /// A metadata page of a slab of this generation.
    Page {
        key: u64,
        generation: u64,
        attempt: Attempt,
    },
    /// A metadata page that is in RAM, read by a scrub to see whether the disk has it too.
    ScrubPage {
        key: u64,
        generation: u64,
        version: PageVersion,
        attempt: Attempt,
    },
    /// Blocks of a fresh or append write, or the first metadata of a slab.
    Data {
        task: SlotId,
    },
    /// Space given back for a discard (a task that goes on) or a freed slab.
    Punch {
        task: Option<SlotId>,
        slab: SlabIndex,
    },
    Batch {
        sequence: u64,
    },
    Flush,
    CheckpointRead {
        key: u64,
        sequence: u64,
        attempt: Attempt,
    },
    CheckpointWrite {
        page: Option<u64>,
    },
    Anchor,
    Records,
}
