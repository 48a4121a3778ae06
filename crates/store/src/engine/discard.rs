//! Discards, and blocks that are marked as lost: a record, and after a discard the space goes back to the device.

use super::device::Device;
use super::event::{Event, Next};
use super::operation::Op;
use super::pages::WordRanges;
use super::place::Place;
use super::slab_table::SlabTable;
use super::volumes::Volumes;
use crate::api::StoreError;
use crate::layout::Layout;
use crate::record::{APPEND_LOST, Record};
use crate::slots::SlotId;
use codes::LOST;
use disk::{Disk, DiskOperation};
use smallvec::smallvec;
use sys::Payload;
use types::{BLOCK_BYTES, Epoch, VolumeId};

/// Fewest blocks that are worth telling the device that they are unused.
const PUNCH_BLOCKS_MIN: u32 = 16;

/// Invariant: the space of the blocks goes back to the device when the record is durable, and before any later change of them starts: the task
/// stays in its slab's line until then.
#[derive(Debug)]
pub(super) struct DiscardTask {
    volume: VolumeId,
    epoch: Epoch,
    /// The blocks do not become zeroes: what they held is gone.
    lost: bool,
}

/// The parts that a discard meets.
pub(super) struct Neighbours<'a, D> {
    pub(super) layout: &'a Layout,
    pub(super) device: &'a mut Device<D>,
    pub(super) volumes: &'a Volumes,
    pub(super) slabs: &'a SlabTable,
}

impl DiscardTask {
    pub(super) fn new(volume: VolumeId, epoch: Epoch) -> Self {
        Self { volume, epoch, lost: false }
    }

    pub(super) fn mark_lost(volume: VolumeId, epoch: Epoch) -> Self {
        Self { volume, epoch, lost: true }
    }

    pub(super) fn check_fence(&self, volumes: &Volumes) -> Result<(), StoreError> {
        volumes.check(self.volume, self.epoch)
    }

    pub(super) fn word_ranges(&self, place: Place, layout: &Layout) -> WordRanges {
        smallvec![place.blocks(), place.epoch_words(layout)]
    }

    pub(super) fn step<D: Disk>(
        &self,
        id: SlotId,
        place: Place,
        event: Event,
        near: Neighbours<'_, D>,
    ) -> Next {
        match event {
            Event::Turn => self.act(place, near),
            Event::Committed(_) => self.committed(id, place, near),
            _ => event.cannot_be(),
        }
    }

    fn act<D>(&self, place: Place, near: Neighbours<'_, D>) -> Next {
        if let Err(fenced) = self.check_fence(near.volumes) {
            return Next::fail(fenced);
        }
        let (Place { slab, first, count, .. }, epoch) = (place, self.epoch);
        let append = near.slabs.entry(slab).is_some_and(|entry| entry.append);
        let mark = if append { APPEND_LOST } else { LOST };
        let record = match self.lost {
            // As if fresh data had been written whose checksums are not known any more.
            true => Record::Fresh { slab, first, epoch, checksums: vec![mark; count as usize] },
            false => Record::Discard { slab, first, count, epoch },
        };
        Next::Record(record, Payload::new())
    }

    /// Gives the blocks' space back, which read as zeroes. The request has been answered.
    fn committed<D: Disk>(&self, id: SlotId, place: Place, near: Neighbours<'_, D>) -> Next {
        let Place { slab, first, count, .. } = place;
        if self.lost || !near.device.info().discards || count < PUNCH_BLOCKS_MIN {
            return Next::done();
        }
        let offset = near.layout.block_offset(slab, first);
        let len_bytes = u64::from(count) * BLOCK_BYTES as u64;
        near.device.start(Op::Punch { task: Some(id), slab }, DiskOperation::Discard { offset, len_bytes });
        Next::Wait
    }
}
