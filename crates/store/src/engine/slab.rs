//! Allocation and release of a chunk's slab.

use super::checkpoint::Checkpoint;
use super::device::Device;
use super::event::{Event, Next};
use super::operation::Op;
use super::pages::Pages;
use super::place::Place;
use super::slab_table::SlabTable;
use super::volumes::Volumes;
use crate::api::{StoreError, StoreReply};
use crate::health::{StoreHealth, WriteKind};
use crate::layout::{Layout, PAGE_BYTES};
use crate::metadata::{encode_page_into, unwritten_words};
use crate::numbers::page_key;
use crate::overlay::Overlay;
use crate::planted::Planted;
use crate::record::Record;
use crate::slots::SlotId;
use crate::tables::SlabEntry;
use disk::{Disk, DiskOperation};
use sys::{BufMut, Payload};
use types::{ChunkIndex, Epoch, SlabIndex, VolumeId};

/// The parts that an allocation or a free meets.
pub(super) struct SlabNeighbours<'a, D> {
    pub(super) layout: &'a Layout,
    pub(super) device: &'a mut Device<D>,
    pub(super) pages: &'a mut Pages,
    pub(super) overlay: &'a mut Overlay,
    pub(super) volumes: &'a Volumes,
    pub(super) slabs: &'a mut SlabTable,
    pub(super) checkpoint: &'a mut Checkpoint,
    pub(super) health: &'a mut StoreHealth,
}

/// An allocation.
///
/// Invariant: `taken` names the slab from the time when the task takes it until the slab is
/// recorded or put back. The record is queued when the slab's metadata, all of it unwritten, is
/// durable: the new owner's pages never expose data of a former owner.
#[derive(Debug)]
pub(super) struct AllocateTask {
    volume: VolumeId,
    chunk: ChunkIndex,
    epoch: Epoch,
    append: bool,
    /// The slab, and its generation.
    taken: Option<(SlabIndex, u64)>,
}

impl AllocateTask {
    pub(super) fn new(volume: VolumeId, chunk: ChunkIndex, epoch: Epoch, append: bool) -> Self {
        Self { volume, chunk, epoch, append, taken: None }
    }

    /// Returns the chunk to allocate for.
    pub(super) fn chunk(&self) -> (VolumeId, ChunkIndex) {
        (self.volume, self.chunk)
    }

    /// Returns the answer to another allocation of the same chunk, after this one's answer.
    pub(super) fn answer_other(
        &self,
        other: &Self,
        result: &Result<StoreReply, StoreError>,
    ) -> Result<StoreReply, StoreError> {
        match result {
            Ok(_) if self.append == other.append => Ok(StoreReply::Done),
            Ok(_) => Err(StoreError::Invalid("the chunk has a slab of the other kind")),
            Err(error) => Err(error.clone()),
        }
    }

    /// Puts back the slab that the task took and did not record.
    pub(super) fn give_up(&mut self, slabs: &mut SlabTable) {
        if let Some((slab, _)) = self.taken.take() {
            slabs.put_back(slab);
        }
    }

    fn entry(&self, generation: u64) -> SlabEntry {
        SlabEntry {
            volume: self.volume,
            chunk: self.chunk,
            epoch: self.epoch,
            generation,
            append: self.append,
            doubtful_through: Epoch::default(),
            doubts_unwritten: false,
        }
    }

    pub(super) fn step<D: Disk>(&mut self, id: SlotId, event: Event, near: SlabNeighbours<'_, D>) -> Next {
        match (event, self.taken) {
            (Event::Turn, None) => self.find_slab(id, near),
            (Event::Written(Ok(())), Some(_)) => Next::Flush,
            (Event::Written(Err(_)), Some(_)) => {
                near.health.no_space += 1;
                Next::fail(StoreError::NoSpace)
            }
            (Event::Flushed, Some((slab, generation))) => self.flushed(slab, generation, near),
            (Event::Committed(_), Some((slab, generation))) => self.committed(slab, generation, near),
            (event, _) => event.cannot_be(),
        }
    }

    /// Takes a free slab and writes its metadata, or waits for one that a checkpoint will release.
    fn find_slab<D: Disk>(&mut self, id: SlotId, near: SlabNeighbours<'_, D>) -> Next {
        let Some((slab, generation)) = near.slabs.take_free() else {
            if near.slabs.has_quarantined() {
                near.checkpoint.request();
                near.slabs.await_slab(id);
                return Next::Wait;
            }
            return Next::fail(StoreError::NoSpace);
        };
        self.taken = Some((slab, generation));
        let entry = self.entry(generation);
        let words = unwritten_words();
        let pages = near.layout.metadata_pages_per_slab();
        let mut bytes = BufMut::for_overwrite(pages as usize * PAGE_BYTES);
        for (page, place) in (0..pages).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            let identity = near.pages.identity(slab, &entry, page);
            encode_page_into(identity, near.checkpoint.version(), &words, place);
        }
        let offset = near.layout.page_offset(slab, 0);
        near.device.write(Op::Data { task: id }, WriteKind::Metadata, offset, bytes.freeze().into(), false);
        Next::Wait
    }

    /// Records the allocation, now that the slab's metadata is durable.
    fn flushed<D>(&self, slab: SlabIndex, generation: u64, near: SlabNeighbours<'_, D>) -> Next {
        if let Err(fenced) = near.volumes.check(self.volume, self.epoch) {
            return Next::fail(fenced);
        }
        let Self { volume, chunk, epoch, append, .. } = *self;
        Next::Record(Record::Allocate { slab, volume, chunk, epoch, append, generation }, Payload::new())
    }

    fn committed<D>(&mut self, slab: SlabIndex, generation: u64, near: SlabNeighbours<'_, D>) -> Next {
        self.taken = None;
        near.slabs.allocated(slab, self.entry(generation));
        let room = near.pages.cache.budget_pages() / 4;
        for page in (0..near.layout.metadata_pages_per_slab()).take(room) {
            near.pages.cache.insert(page_key(slab, page), unwritten_words(), false);
        }
        Next::done()
    }
}

/// Release of a whole slab. It stands in its slab's queue behind all changes of the slab.
#[derive(Debug)]
pub(super) struct FreeTask {
    volume: VolumeId,
    epoch: Epoch,
}

impl FreeTask {
    pub(super) fn new(volume: VolumeId, epoch: Epoch) -> Self {
        Self { volume, epoch }
    }

    pub(super) fn step<D: Disk>(&self, place: Place, event: Event, near: SlabNeighbours<'_, D>) -> Next {
        match event {
            Event::Turn => match near.volumes.check(self.volume, self.epoch) {
                Ok(()) => Next::Record(Record::Free { slab: place.slab }, Payload::new()),
                Err(fenced) => Next::fail(fenced),
            },
            Event::Committed(sequence) => free_committed(place.slab, sequence, near),
            _ => event.cannot_be(),
        }
    }
}

fn free_committed<D: Disk>(slab: SlabIndex, sequence: u64, near: SlabNeighbours<'_, D>) -> Next {
    let SlabNeighbours { layout, device, pages, overlay, slabs, .. } = near;
    let punching = device.info().discards;
    slabs.freed(slab, sequence, punching);
    pages.cache.forget_slab(slab, layout.metadata_pages_per_slab());
    overlay.remove_range(slab, 0, layout.slab_blocks());
    if Planted::ReuseSlabAtOnce.is_planted() {
        slabs.free_too_early(slab);
    }
    if punching {
        let (offset, len_bytes) = (layout.block_offset(slab, 0), layout.slab_bytes);
        device.start(Op::Punch { slab }, DiskOperation::Discard { offset, len_bytes });
    }
    Next::done()
}
