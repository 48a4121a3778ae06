//! Append writes: in place, durable, without checksums: each block proves itself. A read that meets a block while it is being written is
//! repeated.
//!
//! Each block of an append slab has a word too: unwritten blocks read as zeroes. The first write to unwritten blocks of a region
//! zeroes the region's other unwritten blocks, flushes, and marks all of it written by one record, so that later writes there
//! touch the journal only when the volume's epoch has grown: then the region is marked first (I4), and written after. Blocks that are
//! marked as lost are written as unwritten ones are: they are revealed by the record, and no other lost block with them.

use super::Store;
use super::task::{Kind, Op, Place, Task};
use crate::api::{StoreError, StoreReply};
use crate::health::WriteKind;
use crate::record::{APPEND_LOST, APPEND_WRITTEN, Record};
use crate::slots::SlotId;
use codes::UNWRITTEN;
use disk::Disk;
use std::ops::Range;
use sys::Payload;
use types::{BLOCK_BYTES, Epoch, VolumeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppendStage {
    /// Not an append write.
    None,
    Waiting,
    /// First write to blocks: data and zeroes on their way, then a flush, then the record.
    Zeroing,
    /// The record that reveals data and zeroes.
    Revealing,
    /// The record that raises the regions' epoch.
    Marking,
    /// Data on its way, durably.
    Placing,
}

impl<D: Disk> Store<D> {
    /// Whether all blocks and regions of the place are known to be written under this epoch or a later one.
    pub(super) fn append_settled(&mut self, place: Place, epoch: Epoch) -> bool {
        let end = place.first + place.count;
        let epochs = self.layout.epoch_word(place.first)..=self.layout.epoch_word(end - 1);
        (place.first..end)
            .all(|block| self.cache.word(place.slab, block).is_some_and(|word| !is_hidden(word)))
            && epochs
                .into_iter()
                .all(|word| self.cache.word(place.slab, word).is_some_and(|known| known >= epoch.0))
    }

    pub(super) fn act_append(&mut self, id: SlotId, place: Place) {
        let Some(Task { kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else { return };
        let (regions, epoch, volume) = (write.regions_of(place), write.epoch, write.volume);
        let own = place.first..place.first + place.count;
        if own.clone().any(|block| self.cache.word(place.slab, block).is_some_and(is_hidden)) {
            let is_hole =
                |block: &u32| !own.contains(block) && self.cache.word(place.slab, *block) == Some(UNWRITTEN);
            let holes: Vec<u32> = regions.filter(is_hole).collect();
            return self.reveal(id, place, &holes);
        }
        if self.append_settled(place, epoch) {
            return self.place_append(id, volume);
        }
        self.set_append_stage(id, AppendStage::Marking);
        let Place { slab, first, count, .. } = place;
        self.record(id, Record::Append { slab, first, count, epoch }, Payload::new());
    }

    fn set_append_stage(&mut self, id: SlotId, stage: AppendStage) {
        if let Some(Task { kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) {
            write.append = stage;
        }
    }

    /// Writes data and zeroes; neither is seen until the record that follows.
    fn reveal(&mut self, id: SlotId, place: Place, holes: &[u32]) {
        let Some(Task { kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else { return };
        write.append = AppendStage::Zeroing;
        let data = std::mem::take(&mut write.data);
        let runs = runs_of(holes);
        write.outstanding = 1 + runs.len() as u32;
        let offset = self.layout.block_offset(place.slab, place.first);
        self.write(Op::Data { task: id }, WriteKind::InPlace, offset, data, false);
        for run in runs {
            let zeroes = self.zeroes.slice(..(run.end - run.start) as usize * BLOCK_BYTES);
            let offset = self.layout.block_offset(place.slab, run.start);
            self.write(Op::Data { task: id }, WriteKind::InPlace, offset, zeroes.into(), false);
        }
    }

    /// Writes the data durably. A promise of a higher epoch waits for it.
    fn place_append(&mut self, id: SlotId, volume: VolumeId) {
        self.volumes.entry(volume).or_default().in_place += 1;
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        write.append = AppendStage::Placing;
        write.outstanding = 1;
        self.placing.push(*place);
        let data = std::mem::take(&mut write.data);
        let offset = self.layout.block_offset(place.slab, place.first);
        self.write(Op::Data { task: id }, WriteKind::InPlace, offset, data, true);
    }

    pub(super) fn append_written(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        let (stage, volume, failed) = (write.append, write.volume, write.failed.is_some());
        let bytes = u64::from(place.count) * BLOCK_BYTES as u64;
        if stage == AppendStage::Placing {
            let place = *place;
            if let Some(at) = self.placing.iter().position(|placing| *placing == place) {
                self.placing.swap_remove(at);
            }
            self.in_place_done(volume);
        }
        if failed {
            self.health.no_space += 1;
            return self.finish(id, Err(StoreError::NoSpace));
        }
        if stage == AppendStage::Placing {
            self.health.acknowledged_bytes += bytes;
            return self.finish(id, Ok(StoreReply::Done));
        }
        self.to_flush.push(id);
    }

    pub(super) fn append_flushed(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        write.append = AppendStage::Revealing;
        let (place, regions, volume, epoch) = (*place, write.regions_of(*place), write.volume, write.epoch);
        if let Err(fenced) = self.check_fence(volume, epoch) {
            return self.finish(id, Err(fenced));
        }
        let (slab, first, count) = (place.slab, regions.start, regions.end - regions.start);
        let own = place.first..place.first + place.count;
        let stays_lost =
            |block: u32| !own.contains(&block) && self.cache.word(slab, block) == Some(APPEND_LOST);
        let lost: Vec<bool> = regions.map(stays_lost).collect();
        let record = if lost.contains(&true) {
            let word = |lost: bool| if lost { APPEND_LOST } else { APPEND_WRITTEN };
            Record::Fresh { slab, first, epoch, checksums: lost.into_iter().map(word).collect() }
        } else {
            Record::Append { slab, first, count, epoch }
        };
        self.record(id, record, Payload::new());
    }

    pub(super) fn append_committed(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get(id) else {
            return;
        };
        let (volume, epoch, bytes) = (write.volume, write.epoch, u64::from(place.count) * BLOCK_BYTES as u64);
        if write.append == AppendStage::Marking {
            return match self.check_fence(volume, epoch) {
                Ok(()) => self.place_append(id, volume),
                Err(fenced) => self.finish(id, Err(fenced)),
            };
        }
        self.health.acknowledged_bytes += bytes;
        self.finish(id, Ok(StoreReply::Done));
    }

    fn in_place_done(&mut self, volume: VolumeId) {
        let Some(state) = self.volumes.get_mut(&volume) else { return };
        state.in_place -= 1;
        if state.in_place == 0 {
            let waiting = std::mem::take(&mut state.waiting_promises);
            waiting.into_iter().for_each(|id| self.record_promise(id));
        }
    }
}

/// Whether what lies in place is not to be read.
fn is_hidden(word: u64) -> bool {
    matches!(word, UNWRITTEN | APPEND_LOST)
}

/// Whether one of these writes overwrites blocks of the place where they lie.
pub(super) fn is_placing(placing: &[Place], place: Place) -> bool {
    let overlaps = |other: &Place| {
        other.slab == place.slab
            && other.first < place.first + place.count
            && place.first < other.first + other.count
    };
    placing.iter().any(overlaps)
}

/// Consecutive numbers as ranges of at most 256.
fn runs_of(blocks: &[u32]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block && run.end - run.start < 256 => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}
