//! Append writes go in place, durably and without checksums, since each block proves itself. A read
//! of a block that is being written is repeated.
//!
//! Each block of an append slab has a word too: unwritten blocks read as zeroes. The first write to
//! unwritten blocks of a region zeroes the region's other unwritten blocks, flushes, and marks all
//! of it written by one record, so that later writes there touch the journal only when the volume's
//! epoch has grown: then a record marks the region first (I4), and the data follow. Blocks marked
//! as lost are written like unwritten ones: the record reveals them, and no other lost block.

use super::damage::Damage;
use super::device::Device;
use super::event::{Event, Next};
use super::operation::Op;
use super::pages::{Pages, WordRanges};
use super::place::Place;
use super::volumes::Volumes;
use crate::api::StoreError;
use crate::cache::PageCache;
use crate::health::{StoreHealth, WriteKind};
use crate::layout::Layout;
use crate::record::{APPEND_LOST, APPEND_WRITTEN, Record};
use crate::slots::SlotId;
use codes::UNWRITTEN;
use disk::{Disk, DiskError};
use smallvec::smallvec;
use std::ops::Range;
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, Epoch, Stamp, VolumeId};

/// Most blocks zeroed by one write.
const ZEROED_BLOCKS_MAX: u32 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// First write to blocks: data and zeroes in flight, then a flush, then the record.
    Zeroing,
    /// The record that reveals data and zeroes.
    Revealing,
    /// The record that raises the regions' epoch.
    Marking,
    /// Data in flight, durably.
    Placing,
}

/// Append writes in flight over readable blocks.
///
/// Invariant: a place is in the list as often as writes of it are in flight; a read of such a block
/// that does not prove itself is no damage.
#[derive(Debug, Default)]
pub(super) struct Placing(Vec<Place>);

impl Placing {
    fn begin(&mut self, place: Place) {
        self.0.push(place);
    }
    fn end(&mut self, place: Place) {
        let at = self.0.iter().position(|placing| *placing == place);
        debug_assert!(at.is_some(), "a write in place ends once");
        if let Some(at) = at {
            self.0.swap_remove(at);
        }
    }
    /// Whether one of the writes overwrites blocks of the place.
    pub(super) fn overlaps(&self, place: Place) -> bool {
        self.0.iter().any(|placing| placing.overlaps(place))
    }
    pub(super) fn abandon(&mut self) {
        self.0.clear();
    }
}

/// An append write.
///
/// Invariant: data go over readable blocks only in `Placing`, when the regions' durable epoch is at
/// least the write's. In `Zeroing` data go to blocks that no read uses before the record that
/// follows the flush.
#[derive(Debug)]
pub(super) struct AppendTask {
    volume: VolumeId,
    stamp: Stamp,
    data: Payload,
    stage: Stage,
    /// Disk writes in flight.
    outstanding: u32,
    failed: bool,
}

/// The parts that an append write uses.
pub(super) struct AppendNeighbours<'a, D> {
    pub(super) layout: &'a Layout,
    pub(super) zeroes: &'a Buf,
    pub(super) device: &'a mut Device<D>,
    pub(super) pages: &'a mut Pages,
    pub(super) volumes: &'a mut Volumes,
    pub(super) placing: &'a mut Placing,
    pub(super) damage: &'a mut Damage,
    pub(super) health: &'a mut StoreHealth,
}

impl AppendTask {
    pub(super) fn new(volume: VolumeId, stamp: Stamp, data: Payload) -> Self {
        Self { volume, stamp, data, stage: Stage::Waiting, outstanding: 0, failed: false }
    }

    /// Covers whole regions, whose remaining blocks the first write may have to zero.
    pub(super) fn word_ranges(&self, place: Place, layout: &Layout) -> WordRanges {
        smallvec![place.regions(), place.stamp_words(layout)]
    }

    pub(super) fn step<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        event: Event,
        near: AppendNeighbours<'_, D>,
    ) -> Next {
        match event {
            Event::Turn => self.act(id, place, near),
            Event::Written(result) => self.written(place, result, near),
            Event::Flushed => self.flushed(place, near),
            Event::Committed(_) => self.committed(id, place, near),
            Event::SegmentRead { .. } | Event::Polled | Event::CheckpointEnded | Event::Flushing => {
                event.cannot_be()
            }
        }
    }

    fn act<D: Disk>(&mut self, id: SlotId, place: Place, near: AppendNeighbours<'_, D>) -> Next {
        near.damage.written(place.slab, place.first, place.count);
        if let Err(fenced) = near.volumes.check(self.volume, self.stamp.epoch()) {
            return Next::fail(fenced);
        }
        let cache = &mut near.pages.cache;
        let own = place.blocks();
        if own.clone().any(|block| cache.word(place.slab, block).is_some_and(is_hidden)) {
            let is_hole =
                |block: &u32| !own.contains(block) && cache.word(place.slab, *block) == Some(UNWRITTEN);
            let holes: Vec<u32> = place.regions().filter(is_hole).collect();
            return self.reveal(id, place, &holes, near);
        }
        if is_settled(place, self.stamp.epoch(), near.layout, cache) {
            return self.place_data(id, place, near);
        }
        self.stage = Stage::Marking;
        let Place { slab, first, count, .. } = place;
        Next::Record(Record::Append { slab, first, count, stamp: self.stamp }, Payload::new())
    }

    /// Writes data and zeroes, invisible until the record that follows.
    fn reveal<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        holes: &[u32],
        near: AppendNeighbours<'_, D>,
    ) -> Next {
        let AppendNeighbours { layout, zeroes, device, .. } = near;
        self.stage = Stage::Zeroing;
        let data = std::mem::take(&mut self.data);
        let runs = runs_of(holes);
        self.outstanding = 1 + runs.len() as u32;
        let offset = layout.block_offset(place.slab, place.first);
        device.write(Op::Data { task: id }, WriteKind::InPlace, offset, data, false);
        for run in runs {
            let zeroes = zeroes.slice(..(run.end - run.start) as usize * BLOCK_BYTES);
            let offset = layout.block_offset(place.slab, run.start);
            device.write(Op::Data { task: id }, WriteKind::InPlace, offset, zeroes.into(), false);
        }
        Next::Wait
    }

    /// Writes the data durably. A promise of a higher epoch waits for it.
    fn place_data<D: Disk>(&mut self, id: SlotId, place: Place, near: AppendNeighbours<'_, D>) -> Next {
        near.volumes.begin_in_place(self.volume);
        self.stage = Stage::Placing;
        self.outstanding = 1;
        near.placing.begin(place);
        let data = std::mem::take(&mut self.data);
        let offset = near.layout.block_offset(place.slab, place.first);
        near.device.write(Op::Data { task: id }, WriteKind::InPlace, offset, data, true);
        Next::Wait
    }

    fn written<D>(
        &mut self,
        place: Place,
        result: Result<(), DiskError>,
        near: AppendNeighbours<'_, D>,
    ) -> Next {
        debug_assert!(self.outstanding > 0 && matches!(self.stage, Stage::Zeroing | Stage::Placing));
        self.outstanding -= 1;
        self.failed |= result.is_err();
        if self.outstanding > 0 {
            return Next::Wait;
        }
        if self.stage == Stage::Placing {
            near.placing.end(place);
            near.volumes.end_in_place(self.volume);
        }
        if self.failed {
            near.health.no_space += 1;
            return Next::fail(StoreError::NoSpace);
        }
        if self.stage == Stage::Placing {
            return self.acknowledge(place, near.health);
        }
        Next::Flush
    }

    fn flushed<D>(&mut self, place: Place, near: AppendNeighbours<'_, D>) -> Next {
        debug_assert_eq!(self.stage, Stage::Zeroing);
        self.stage = Stage::Revealing;
        if let Err(fenced) = near.volumes.check(self.volume, self.stamp.epoch()) {
            return Next::fail(fenced);
        }
        let (slab, regions, stamp) = (place.slab, place.regions(), self.stamp);
        let (first, count) = (regions.start, regions.end - regions.start);
        let own = place.blocks();
        let cache = &mut near.pages.cache;
        let stays_lost = |block: u32| !own.contains(&block) && cache.word(slab, block) == Some(APPEND_LOST);
        let lost: Vec<bool> = regions.map(stays_lost).collect();
        let record = if lost.contains(&true) {
            let word = |lost: bool| if lost { APPEND_LOST } else { APPEND_WRITTEN };
            Record::Fresh { slab, first, stamp, checksums: lost.into_iter().map(word).collect() }
        } else {
            Record::Append { slab, first, count, stamp }
        };
        Next::Record(record, Payload::new())
    }

    fn committed<D: Disk>(&mut self, id: SlotId, place: Place, near: AppendNeighbours<'_, D>) -> Next {
        if self.stage == Stage::Marking {
            return match near.volumes.check(self.volume, self.stamp.epoch()) {
                Ok(()) => self.place_data(id, place, near),
                Err(fenced) => Next::fail(fenced),
            };
        }
        debug_assert_eq!(self.stage, Stage::Revealing);
        self.acknowledge(place, near.health)
    }

    fn acknowledge(&self, place: Place, health: &mut StoreHealth) -> Next {
        health.acknowledged_bytes += u64::from(place.count) * BLOCK_BYTES as u64;
        Next::done()
    }
}

/// Whether all blocks and regions of the place are known as written under this epoch or a later
/// one.
pub(super) fn is_settled(place: Place, epoch: Epoch, layout: &Layout, cache: &mut PageCache) -> bool {
    place.blocks().all(|block| cache.word(place.slab, block).is_some_and(|word| !is_hidden(word)))
        && place.stamp_words(layout).all(|word| {
            cache.word(place.slab, word).is_some_and(|known| Stamp::from_word(known).epoch() >= epoch)
        })
}

/// Whether reads must not use the bytes in place.
fn is_hidden(word: u64) -> bool {
    matches!(word, UNWRITTEN | APPEND_LOST)
}

/// Groups consecutive numbers into ranges of at most [`ZEROED_BLOCKS_MAX`].
fn runs_of(blocks: &[u32]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block && run.end - run.start < ZEROED_BLOCKS_MAX => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}
