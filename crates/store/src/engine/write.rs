//! Overwrites and fresh writes.
//!
//! An overwrite is one journal record with its data. A fresh write goes in place, to blocks that
//! read as zeroes until its record gives them their checksums: its bytes are written once. A fresh
//! write that is alone on the disk is written durably, concurrently with its record. Otherwise its
//! record is written concurrently with the flush that it shares with others. The first of data and
//! record to become durable waits for the other; replay checks whether the data are there. A small
//! write that is alone goes through the journal like an overwrite: one durable write instead of
//! two. If fresh blocks turn out to hold data (the volume reuses them without a discard), few
//! blocks go through the journal like an overwrite. Many first become unwritten by a record of
//! their own, so that a crash never leaves bytes under the checksum of others.

use super::checkpoint::Checkpoint;
use super::damage::Damage;
use super::device::Device;
use super::event::{Event, Next};
use super::operation::Op;
use super::pages::{Pages, WordRanges};
use super::place::Place;
use super::slab_table::SlabTable;
use super::volumes::Volumes;
use crate::api::{Checksums, StoreError, WriteClass};
use crate::health::{StoreHealth, WriteKind};
use crate::layout::Layout;
use crate::locks::Manner;
use crate::planted::Planted;
use crate::record::Record;
use crate::slots::SlotId;
use codes::{LOST, UNWRITTEN};
use disk::{Disk, DiskError};
use smallvec::smallvec;
use sys::Payload;
use types::{BLOCK_BYTES, Lba, Stamp, VolumeId};

/// Most blocks of an overwrite: 64 KiB go through the journal.
const OVERWRITE_BLOCKS_MAX: u32 = 16;
/// Most blocks of a fresh write that may go through the journal, below 32 KiB. For more blocks,
/// writing each byte twice costs more than the saved record and flush.
const JOURNALED_FRESH_BLOCKS_MAX: u32 = 7;
/// Most blocks of any write: 1 MiB.
pub(super) const WRITE_BLOCKS_MAX: usize = 256;

/// A write of any class, as requested.
pub(super) struct WriteRequest {
    pub(super) volume: VolumeId,
    pub(super) stamp: Stamp,
    pub(super) lba: Lba,
    pub(super) class: WriteClass,
    pub(super) data: Payload,
    pub(super) checksums: Checksums,
}

impl WriteRequest {
    /// Returns the number of blocks, if the write is allowed.
    pub(super) fn blocks(&self) -> Result<u32, StoreError> {
        let len = self.data.len();
        if len == 0 || !len.is_multiple_of(BLOCK_BYTES) || len > WRITE_BLOCKS_MAX * BLOCK_BYTES {
            return Err(StoreError::Invalid("a write of no, partial, or more than 256 blocks"));
        }
        let blocks = (len / BLOCK_BYTES) as u32;
        if self.class == WriteClass::Overwrite && blocks > OVERWRITE_BLOCKS_MAX {
            return Err(StoreError::Invalid("an overwrite of more than 64 KiB"));
        }
        Ok(blocks)
    }

    /// Refuses data that does not match its checksums; `verify`: check even if nothing depends on it.
    pub(super) fn check_data(&self, blocks: u32, verify: bool) -> Result<(), StoreError> {
        if self.class == WriteClass::Append {
            if verify && !payload_proves_itself(self.volume, self.lba, &self.data) {
                return Err(StoreError::Invalid("append blocks have to prove themselves"));
            }
            return Ok(());
        }
        let reserved = self.checksums.iter().any(|checksum| matches!(*checksum, UNWRITTEN | LOST));
        // Replay recognizes a whole batch by its data, so data that do not match never get into the
        // journal.
        let journaled = self.class == WriteClass::Overwrite || blocks <= JOURNALED_FRESH_BLOCKS_MAX;
        let matches = if verify || journaled {
            codes::payload_matches(self.volume, self.lba, &self.data, &self.checksums)
        } else {
            self.checksums.len() == blocks as usize
        };
        if reserved || !matches {
            return Err(StoreError::Invalid("the data does not match its checksums"));
        }
        Ok(())
    }
}

/// Whether each block is sealed.
fn payload_proves_itself(volume: VolumeId, lba: Lba, data: &Payload) -> bool {
    (0..data.len() / BLOCK_BYTES).all(|at| {
        let block = data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous();
        codes::sealed_order(volume, lba.offset(at as u64), &block).is_some()
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// Withdrawing the blocks' old checksums.
    Withdrawing,
    /// Waiting for a checkpoint that is applying journaled blocks of this place.
    AwaitingCheckpoint,
    /// Data being written in place, without a record.
    Writing,
    /// The data wait for a flush to begin, or for its end if the record has been queued.
    Flushing,
    Recording,
    /// Data and record being written concurrently.
    Both,
    /// The data found no space: withdrawing the record.
    TakingBack,
}

/// An overwrite or a fresh write.
///
/// Invariant: bytes go straight into place (`Writing`, `Both`) only if the blocks' durable words
/// say that they are unwritten and no checkpoint is writing there. The record that gives them their
/// checksums takes effect when both it and the bytes are durable. Until then the task stays in its
/// slab's queue, so that no other task writes to the place.
#[derive(Debug)]
pub(super) struct WriteTask {
    volume: VolumeId,
    stamp: Stamp,
    /// Whether the write overwrites blocks that may hold acknowledged data.
    overwrites: bool,
    data: Payload,
    checksums: Checksums,
    stage: Stage,
}

/// The parts that a write uses.
pub(super) struct WriteNeighbours<'a, D> {
    pub(super) layout: &'a Layout,
    pub(super) device: &'a mut Device<D>,
    pub(super) pages: &'a mut Pages,
    pub(super) volumes: &'a Volumes,
    pub(super) slabs: &'a SlabTable,
    pub(super) checkpoint: &'a mut Checkpoint,
    pub(super) damage: &'a mut Damage,
    pub(super) health: &'a mut StoreHealth,
    /// Whether no other task could share a flush or a batch.
    pub(super) alone: bool,
}

impl WriteTask {
    pub(super) fn new(request: WriteRequest) -> Self {
        let WriteRequest { volume, stamp, class, data, checksums, .. } = request;
        debug_assert_ne!(class, WriteClass::Append, "append writes are tasks of their own");
        let overwrites = class == WriteClass::Overwrite;
        Self { volume, stamp, overwrites, data, checksums, stage: Stage::Waiting }
    }

    pub(super) fn manner(&self) -> Manner {
        if self.overwrites { Manner::Journaled } else { Manner::InPlace }
    }

    pub(super) fn word_ranges(&self, place: Place, layout: &Layout) -> WordRanges {
        smallvec![place.blocks(), place.stamp_words(layout)]
    }

    pub(super) fn step<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        event: Event,
        near: WriteNeighbours<'_, D>,
    ) -> Next {
        match event {
            Event::Turn => self.act(id, place, near),
            Event::Polled if near.alone => match near.volumes.check(self.volume, self.stamp.epoch()) {
                Ok(()) => self.record_overwrite(place, near.slabs),
                Err(fenced) => Next::fail(fenced),
            },
            Event::Polled | Event::CheckpointEnded => self.place_fresh(id, place, near),
            Event::Written(result) => self.written(result, near.health),
            Event::Flushing => self.flushing(place, near.volumes),
            Event::Flushed => self.flushed(),
            Event::Committed(_) => self.committed(id, place, near),
            Event::SegmentRead { .. } => event.cannot_be(),
        }
    }

    fn act<D: Disk>(&mut self, id: SlotId, place: Place, near: WriteNeighbours<'_, D>) -> Next {
        near.damage.written(place.slab, place.first, place.count);
        if let Err(fenced) = near.volumes.check(self.volume, self.stamp.epoch()) {
            return Next::fail(fenced);
        }
        if self.overwrites {
            return self.record_overwrite(place, near.slabs);
        }
        let written = place.blocks().any(|block| near.pages.cache.word(place.slab, block) != Some(UNWRITTEN));
        let small = place.count <= JOURNALED_FRESH_BLOCKS_MAX;
        match (small, written) {
            (true, true) => self.record_overwrite(place, near.slabs),
            (true, false) => Next::Poll,
            (false, false) => self.place_fresh(id, place, near),
            (false, true) => {
                self.stage = Stage::Withdrawing;
                let Place { slab, first, count, .. } = place;
                Next::Record(Record::Discard { slab, first, count, stamp: self.stamp }, Payload::new())
            }
        }
    }

    fn record_overwrite(&mut self, place: Place, slabs: &SlabTable) -> Next {
        self.stage = Stage::Recording;
        let (data, checksums) = (std::mem::take(&mut self.data), std::mem::take(&mut self.checksums));
        debug_assert!(slabs.is_current(place), "a slab is freed in its line's order");
        let Some(entry) = slabs.entry(place.slab) else { return Next::fail(StoreError::NotMapped) };
        let (slab, first, chunk) = (place.slab, place.first, entry.chunk);
        let record =
            Record::Overwrite { slab, first, stamp: self.stamp, volume: self.volume, chunk, checksums };
        Next::Record(record, data)
    }

    /// Writes fresh blocks in place, which nothing points to and which read as zeroes. If no other
    /// task could share the flush, writes durably and concurrently with the record.
    fn place_fresh<D: Disk>(&mut self, id: SlotId, place: Place, near: WriteNeighbours<'_, D>) -> Next {
        let applying = near.checkpoint.is_applying(place.slab, place.first, place.count);
        if applying && !Planted::ApplyOverFresh.is_planted() {
            self.stage = Stage::AwaitingCheckpoint;
            near.checkpoint.await_end(id);
            return Next::Wait;
        }
        // The fence may have risen while the write waited.
        if let Err(fenced) = near.volumes.check(self.volume, self.stamp.epoch()) {
            return Next::fail(fenced);
        }
        let unsafely = Planted::FreshBeforeFlush.is_planted();
        let beside = near.alone || unsafely;
        self.stage = if beside { Stage::Both } else { Stage::Writing };
        let data = std::mem::take(&mut self.data);
        let offset = near.layout.block_offset(place.slab, place.first);
        near.device.write(Op::Data { task: id }, WriteKind::InPlace, offset, data, beside && !unsafely);
        if beside { self.record_placed(place) } else { Next::Wait }
    }

    fn record_placed(&mut self, place: Place) -> Next {
        let Place { slab, first, .. } = place;
        let checksums = std::mem::take(&mut self.checksums);
        Next::RecordBeside(Record::Placed { slab, first, stamp: self.stamp, checksums })
    }

    fn written(&mut self, result: Result<(), DiskError>, health: &mut StoreHealth) -> Next {
        debug_assert!(matches!(self.stage, Stage::Writing | Stage::Both));
        let beside = self.stage == Stage::Both;
        if result.is_err() {
            health.no_space += 1;
            self.stage = Stage::TakingBack;
            return if beside { Next::Withdraw } else { Next::fail(StoreError::NoSpace) };
        }
        self.stage = if beside { Stage::Recording } else { Stage::Flushing };
        if beside { Next::Placed } else { Next::Flush }
    }

    /// Queues the record, since the flush that covers the bytes has begun: it will end about when a
    /// batch that begins now does.
    fn flushing(&mut self, place: Place, volumes: &Volumes) -> Next {
        debug_assert_eq!(self.stage, Stage::Flushing);
        match volumes.check(self.volume, self.stamp.epoch()) {
            Ok(()) => self.record_placed(place),
            Err(fenced) => Next::fail(fenced),
        }
    }

    /// Handles the end of the flush: the write's bytes are durable.
    fn flushed(&mut self) -> Next {
        debug_assert_eq!(self.stage, Stage::Flushing);
        self.stage = Stage::Recording;
        Next::Placed
    }

    fn committed<D: Disk>(&mut self, id: SlotId, place: Place, near: WriteNeighbours<'_, D>) -> Next {
        match self.stage {
            Stage::Withdrawing => self.place_fresh(id, place, near),
            Stage::TakingBack => Next::fail(StoreError::NoSpace),
            stage => {
                debug_assert_eq!(stage, Stage::Recording);
                near.health.acknowledged_bytes += u64::from(place.count) * BLOCK_BYTES as u64;
                Next::done()
            }
        }
    }
}
