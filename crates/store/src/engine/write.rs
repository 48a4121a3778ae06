//! Overwrites, fresh writes and discards.
//!
//! An overwrite is one journal record with its data. A fresh write goes in place first, to blocks that read as zeroes until its
//! record, written after a flush, gives them their checksums: its bytes are written once. A small one that is alone on the disk is
//! journaled like an overwrite: one durable write to wait for instead of a write, a flush and a durable write. Where fresh blocks
//! turn out to hold something (the volume reuses them without a discard), few are journaled like an overwrite and many are first
//! made unwritten by a record of their own, so that a crash never leaves bytes beside the checksum of others.

use super::Store;
use super::append::AppendStage;
use super::task::{DiscardTask, Kind, Op, Place, Task};
use crate::api::{Checksums, StoreError, StoreReply, WriteClass};
use crate::health::WriteKind;
use crate::journal::Pending;
use crate::layout::REGION_BLOCKS;
use crate::locks::Manner;
use crate::planted::Planted;
use crate::record::{APPEND_LOST, Record};
use crate::slots::SlotId;
use codes::{LOST, UNWRITTEN};
use disk::{Disk, DiskError, DiskOperation};
use std::ops::Range;
use sys::Payload;
use types::{BLOCK_BYTES, Epoch, Lba, VolumeId};

/// Most blocks of an overwrite: 64 KiB go through the journal.
const OVERWRITE_BLOCKS_MAX: u32 = 16;
/// Most blocks of a fresh write that may go through the journal, below 32 KiB: beyond, to write each byte twice costs more than the
/// records and the flush that are saved.
const JOURNALED_FRESH_BLOCKS_MAX: u32 = 7;
/// Most blocks of any write: 1 MiB.
const WRITE_BLOCKS_MAX: usize = 256;
/// Fewest blocks that are worth telling the device that they are unused.
const PUNCH_BLOCKS_MIN: u32 = 16;

pub(super) struct WriteTask {
    pub(super) volume: VolumeId,
    pub(super) epoch: Epoch,
    pub(super) class: WriteClass,
    pub(super) data: Payload,
    pub(super) checksums: Checksums,
    pub(super) stage: Stage,
    pub(super) append: AppendStage,
    /// Disk writes in flight.
    pub(super) outstanding: u32,
    /// They are durable when they end: no flush has to follow.
    pub(super) durable: bool,
    pub(super) failed: Option<DiskError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    /// The blocks' old checksums are being withdrawn.
    Withdrawing,
    /// Journaled blocks of this place are just being applied.
    AwaitingCheckpoint,
    Writing,
    Flushing,
    Recording,
}

/// Whether each block is sealed.
fn payload_proves_itself(volume: VolumeId, lba: Lba, data: &Payload) -> bool {
    (0..data.len() / BLOCK_BYTES).all(|at| {
        let block = data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous();
        codes::sealed_order(volume, lba.offset(at as u64), &block).is_some()
    })
}

impl WriteTask {
    /// Blocks of the regions that the write touches.
    pub(super) fn regions_of(&self, place: Place) -> Range<u32> {
        let end = place.first + place.count;
        place.first / REGION_BLOCKS * REGION_BLOCKS..end.next_multiple_of(REGION_BLOCKS)
    }
}

impl<D: Disk> Store<D> {
    pub(super) fn take_write(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        lba: Lba,
        class: WriteClass,
        data: Payload,
        checksums: Checksums,
    ) -> Result<(), StoreError> {
        if data.is_empty()
            || !data.len().is_multiple_of(BLOCK_BYTES)
            || data.len() > WRITE_BLOCKS_MAX * BLOCK_BYTES
        {
            return Err(StoreError::Invalid("a write of no, partial, or more than 256 blocks"));
        }
        let blocks = (data.len() / BLOCK_BYTES) as u32;
        if class == WriteClass::Overwrite && blocks > OVERWRITE_BLOCKS_MAX {
            return Err(StoreError::Invalid("an overwrite of more than 64 KiB"));
        }
        self.check_fence(volume, epoch)?;
        let (place, entry) = self.locate(volume, lba, blocks)?;
        if entry.append != (class == WriteClass::Append) {
            return Err(StoreError::Invalid("append writes go to append chunks, others do not"));
        }
        if class == WriteClass::Append {
            if self.options.verify_writes && !payload_proves_itself(volume, lba, &data) {
                return Err(StoreError::Invalid("append blocks have to prove themselves"));
            }
        } else {
            let reserved = checksums.iter().any(|checksum| matches!(*checksum, UNWRITTEN | LOST));
            // Replay tells by its data whether a batch is whole: nothing that does not match ever gets into the journal.
            let journaled = class == WriteClass::Overwrite || blocks <= JOURNALED_FRESH_BLOCKS_MAX;
            let matches = if self.options.verify_writes || journaled {
                codes::payload_matches(volume, lba, &data, &checksums)
            } else {
                checksums.len() == blocks as usize
            };
            if reserved || !matches {
                return Err(StoreError::Invalid("the data does not match its checksums"));
            }
        }
        self.checkpoint.unstall();
        let append = if class == WriteClass::Append { AppendStage::Waiting } else { AppendStage::None };
        let write = WriteTask {
            volume,
            epoch,
            class,
            data,
            checksums,
            stage: Stage::Waiting,
            append,
            outstanding: 0,
            durable: false,
            failed: None,
        };
        let span = match class {
            // Until a region of an append chunk is known to be written, its first writer zeroes the rest of it.
            WriteClass::Append
                if self.locks.awaits_discard(place.slab) || !self.append_settled(place, epoch) =>
            {
                write.regions_of(place)
            }
            _ => place.first..place.first + place.count,
        };
        let manner = if class == WriteClass::Overwrite { Manner::Journaled } else { Manner::InPlace };
        let id = self.tasks.insert(Task::new(token, Some(place), Kind::Write(write)));
        self.join(id, place, span, manner);
        Ok(())
    }

    /// Joins the slab's line.
    pub(super) fn join(&mut self, id: SlotId, place: Place, span: Range<u32>, manner: Manner) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.lock = Some(place.slab);
        }
        if self.locks.join(place.slab, span.start, span.end - span.start, manner, id) {
            self.locked(id);
        }
    }

    pub(super) fn act_write(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get(id) else {
            return;
        };
        let (place, class, volume, epoch) = (*place, write.class, write.volume, write.epoch);
        self.found_corrupt.written(place.slab, place.first, place.count);
        if let Err(fenced) = self.check_fence(volume, epoch) {
            return self.finish(id, Err(fenced));
        }
        match class {
            WriteClass::Append => self.act_append(id, place),
            WriteClass::Overwrite => self.record_overwrite(id),
            WriteClass::Fresh => {
                let written = (place.first..place.first + place.count)
                    .any(|block| self.cache.word(place.slab, block) != Some(UNWRITTEN));
                let small = place.count <= JOURNALED_FRESH_BLOCKS_MAX;
                if small && written {
                    self.record_overwrite(id);
                } else if small {
                    self.moves += 1;
                    self.small_fresh.push(id);
                } else if !written {
                    self.place_fresh(id);
                } else {
                    self.set_stage(id, Stage::Withdrawing);
                    let Place { slab, first, count, .. } = place;
                    self.record(id, Record::Discard { slab, first, count, epoch }, Payload::new());
                }
            }
        }
    }

    /// Starts the small fresh writes that have gathered since the last poll.
    pub(super) fn start_small_fresh(&mut self) {
        let gathered = std::mem::take(&mut self.small_fresh);
        let alone = gathered.len() == 1 && self.nothing_to_share();
        for id in gathered {
            if !alone {
                self.place_fresh(id);
                continue;
            }
            let Some(Task { kind: Kind::Write(write), .. }) = self.tasks.get(id) else { continue };
            match self.check_fence(write.volume, write.epoch) {
                Ok(()) => self.record_overwrite(id),
                Err(fenced) => self.finish(id, Err(fenced)),
            }
        }
    }

    /// Whether a single task has no other to share a flush or a batch with.
    fn nothing_to_share(&self) -> bool {
        self.tasks.len() == 1 && self.journal.is_idle() && self.flushing.is_none() && self.to_flush.is_empty()
    }

    fn set_stage(&mut self, id: SlotId, stage: Stage) {
        if let Some(Task { kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) {
            write.stage = stage;
        }
    }

    /// Queues a record for the journal; the task hears of it when the record is durable.
    pub(super) fn record(&mut self, id: SlotId, record: Record, data: Payload) {
        let slab = self.tasks.get(id).and_then(|task| task.lock);
        self.moves += 1;
        self.journal.push(Pending { record, data, task: id });
        if let Some(slab) = slab {
            let startable = self.locks.queued(slab, id);
            self.unlock(startable);
        }
    }

    fn record_overwrite(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        write.stage = Stage::Recording;
        let (volume, epoch) = (write.volume, write.epoch);
        let (data, checksums) = (std::mem::take(&mut write.data), std::mem::take(&mut write.checksums));
        let Some(entry) = self.slabs.entry(place.slab) else { return };
        let (slab, first, chunk) = (place.slab, place.first, entry.chunk);
        self.record(id, Record::Overwrite { slab, first, epoch, volume, chunk, checksums }, data);
    }

    /// Writes fresh blocks in place; nothing points to them and they read as zeroes. Durably at once where no other task could share
    /// the flush.
    pub(super) fn place_fresh(&mut self, id: SlotId) {
        let durable = self.nothing_to_share();
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        let applying = self.checkpoint.is_applying(place.slab, place.first, place.count);
        if applying && !Planted::ApplyOverFresh.is_planted() {
            write.stage = Stage::AwaitingCheckpoint;
            return self.checkpoint.await_end(id);
        }
        write.stage = Stage::Writing;
        write.outstanding = 1;
        write.durable = durable;
        let data = std::mem::take(&mut write.data);
        let offset = self.layout.block_offset(place.slab, place.first);
        self.write(Op::Data { task: id }, WriteKind::InPlace, offset, data, durable);
    }

    /// A write of fresh or append data, or of a new slab's metadata, completed.
    pub(super) fn data_written(&mut self, id: SlotId, result: Result<(), DiskError>) {
        if let Err(error) = &result
            && *error != DiskError::NoSpace
        {
            return self.poison(error);
        }
        let Some(task) = self.tasks.get_mut(id) else { return };
        match &mut task.kind {
            Kind::Allocate(_) => self.slab_initialised(id, result),
            Kind::Write(write) => {
                write.outstanding -= 1;
                if let Err(error) = result {
                    write.failed = Some(error);
                }
                if write.outstanding > 0 {
                    return;
                }
                if write.append != AppendStage::None {
                    return self.append_written(id);
                }
                if write.failed.is_some() {
                    self.health.no_space += 1;
                    return self.finish(id, Err(StoreError::NoSpace));
                }
                if write.durable || Planted::FreshBeforeFlush.is_planted() {
                    return self.write_flushed(id);
                }
                write.stage = Stage::Flushing;
                self.to_flush.push(id);
            }
            _ => {}
        }
    }

    /// The task's writes are durable.
    pub(super) fn write_flushed(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        let (place, volume, epoch) = (*place, write.volume, write.epoch);
        if write.append != AppendStage::None {
            return self.append_flushed(id);
        }
        write.stage = Stage::Recording;
        let checksums = std::mem::take(&mut write.checksums);
        if let Err(fenced) = self.check_fence(volume, epoch) {
            return self.finish(id, Err(fenced));
        }
        self.record(
            id,
            Record::Fresh { slab: place.slab, first: place.first, epoch, checksums },
            Payload::new(),
        );
    }

    /// A record of the write is durable.
    pub(super) fn write_committed(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Write(write), .. }) = self.tasks.get(id) else {
            return;
        };
        match (write.append, write.stage) {
            (AppendStage::None, Stage::Withdrawing) => self.place_fresh(id),
            (AppendStage::None, _) => {
                self.health.acknowledged_bytes += u64::from(place.count) * BLOCK_BYTES as u64;
                self.finish(id, Ok(StoreReply::Done));
            }
            _ => self.append_committed(id),
        }
    }

    pub(super) fn take_discard(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        lba: Lba,
        blocks: u32,
    ) -> Result<(), StoreError> {
        let (place, _) = self.locate(volume, lba, blocks)?;
        self.queue_discard(token, place, DiscardTask { volume, epoch, lost: false })
    }

    pub(super) fn take_mark_lost(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        lba: Lba,
        blocks: u32,
    ) -> Result<(), StoreError> {
        let (place, _) = self.locate(volume, lba, blocks)?;
        if blocks as usize > WRITE_BLOCKS_MAX {
            return Err(StoreError::Invalid("at most 1 MiB is marked as lost at once"));
        }
        self.queue_discard(token, place, DiscardTask { volume, epoch, lost: true })
    }

    fn queue_discard(&mut self, token: u64, place: Place, discard: DiscardTask) -> Result<(), StoreError> {
        self.check_fence(discard.volume, discard.epoch)?;
        self.checkpoint.unstall();
        let kind = Kind::Discard(discard);
        let id = self.tasks.insert(Task::new(token, Some(place), kind));
        self.join(id, place, place.first..place.first + place.count, Manner::JournaledThenInPlace);
        Ok(())
    }

    pub(super) fn act_discard(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Discard(discard), .. }) = self.tasks.get(id) else {
            return;
        };
        let (place, volume, epoch, lost) = (*place, discard.volume, discard.epoch, discard.lost);
        if let Err(fenced) = self.check_fence(volume, epoch) {
            return self.finish(id, Err(fenced));
        }
        let Place { slab, first, count, .. } = place;
        let append = self.slabs.entry(slab).is_some_and(|entry| entry.append);
        let mark = if append { APPEND_LOST } else { LOST };
        let record = match lost {
            // As if fresh data had been written whose checksums are not known any more.
            true => Record::Fresh { slab, first, epoch, checksums: vec![mark; count as usize] },
            false => Record::Discard { slab, first, count, epoch },
        };
        self.record(id, record, Payload::new());
    }

    /// The blocks read as zeroes; their space goes back to the device before anything else is written there.
    pub(super) fn discard_committed(&mut self, id: SlotId) {
        self.answer(id, Ok(StoreReply::Done));
        let Some(Task { place: Some(place), kind: Kind::Discard(discard), .. }) = self.tasks.get(id) else {
            return;
        };
        let (Place { slab, first, count, .. }, lost) = (*place, discard.lost);
        if lost || !self.disk.info().discards || count < PUNCH_BLOCKS_MIN {
            return self.drop_task(id);
        }
        let offset = self.layout.block_offset(slab, first);
        let len_bytes = u64::from(count) * BLOCK_BYTES as u64;
        self.start(Op::Punch { task: Some(id), slab }, DiskOperation::Discard { offset, len_bytes });
    }
}
