//! Discards, and blocks marked as lost: one record.

use super::event::{Event, Next};
use super::pages::WordRanges;
use super::place::Place;
use super::slab_table::SlabTable;
use super::volumes::Volumes;
use crate::api::StoreError;
use crate::layout::Layout;
use crate::record::{APPEND_LOST, Record};
use codes::LOST;
use smallvec::smallvec;
use sys::Payload;
use types::{Stamp, VolumeId};

/// A discard, which writes only a record. The disk keeps the space of the blocks, since they will
/// soon be written again: a file that must allocate it anew is slower by a transaction of its file
/// system.
#[derive(Debug)]
pub(super) struct DiscardTask {
    volume: VolumeId,
    stamp: Stamp,
    /// Whether the contents of the blocks are lost, rather than zeroes.
    lost: bool,
}

impl DiscardTask {
    pub(super) fn new(volume: VolumeId, stamp: Stamp) -> Self {
        Self { volume, stamp, lost: false }
    }

    pub(super) fn mark_lost(volume: VolumeId, stamp: Stamp) -> Self {
        Self { volume, stamp, lost: true }
    }

    pub(super) fn check_fence(&self, volumes: &Volumes) -> Result<(), StoreError> {
        volumes.check(self.volume, self.stamp.epoch())
    }

    pub(super) fn word_ranges(&self, place: Place, layout: &Layout) -> WordRanges {
        smallvec![place.blocks(), place.stamp_words(layout)]
    }

    pub(super) fn step(&self, place: Place, event: Event, volumes: &Volumes, slabs: &SlabTable) -> Next {
        match event {
            Event::Turn => self.act(place, volumes, slabs),
            Event::Committed(_) => Next::done(),
            _ => event.cannot_be(),
        }
    }

    fn act(&self, place: Place, volumes: &Volumes, slabs: &SlabTable) -> Next {
        if let Err(fenced) = self.check_fence(volumes) {
            return Next::fail(fenced);
        }
        let (Place { slab, first, count, .. }, stamp) = (place, self.stamp);
        let append = slabs.entry(slab).is_some_and(|entry| entry.append);
        let mark = if append { APPEND_LOST } else { LOST };
        let record = match self.lost {
            // Recorded like fresh data whose checksums are not known any more.
            true => Record::Fresh { slab, first, stamp, checksums: vec![mark; count as usize] },
            false => Record::Discard { slab, first, count, stamp },
        };
        Next::Record(record, Payload::new())
    }
}
