//! Writes into the cache, and the common part of all changes of a stream's contents.

use ::types::{BLOCK_BYTES, Sid};
use sys::{Buf, BufMut, Payload};

use super::extents::{self, Mapped};
use super::read::Reads;
use super::segments::SegmentState;
use super::streams::{Behind, Streams};
use super::writeback::Writeback;
use super::{BLOCK, STREAM_BYTES_MAX};
use crate::fs::base::{Base, Unstored};
use crate::fs::meta::Transaction;
use crate::fs::metadata::Metadata;
use crate::fs::types::{FsError, StreamId};

/// The parts that a change of streams' contents touches, borrowed for one change.
///
/// A change is done as a whole, or answers `Miss`: then nothing was changed except work that helps the
/// next try.
pub struct Editor<'a> {
    pub streams: &'a mut Streams,
    pub reads: &'a mut Reads,
    pub writeback: &'a mut Writeback,
    pub base: &'a mut Base,
    /// Files and streams are being reclaimed.
    pub space_comes_back: bool,
}

impl Editor<'_> {
    pub fn unstored(&self) -> Unstored {
        self.writeback.unstored(self.streams)
    }

    /// Writes into the cache, growing the stream if needed; the stream's place.
    ///
    /// # Errors
    /// `NoSpace` (nothing was written), `TooLarge`, `Miss`.
    pub fn write(&mut self, id: StreamId, offset: u64, data: &Payload) -> Result<usize, FsError> {
        self.base.ready_to_grow(self.unstored())?;
        let slot = self.streams.slot(id, self.base)?;
        if data.is_empty() {
            return Ok(slot);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::TooLarge)?;
        if end > STREAM_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        self.wait_for_memory(id, (offset / BLOCK, end.div_ceil(BLOCK)))?;
        self.clear_behind_end(slot, end)?;
        self.load_last_block(slot, offset)?;
        let (from, to) = (offset / BLOCK, end.div_ceil(BLOCK));
        let first_partial = !offset.is_multiple_of(BLOCK) || end < (from + 1) * BLOCK;
        let last_partial = !end.is_multiple_of(BLOCK) && to - 1 > from;
        if first_partial {
            self.load_for_patch(slot, from, offset, end)?;
        }
        if last_partial {
            self.load_for_patch(slot, to - 1, offset, end)?;
        }
        self.promise_blocks(id, from, to)?;
        let charged = self.check_quota(slot, end)?;
        // From here on nothing fails.
        self.streams.sequence += 1;
        self.redirty_last_block(slot, offset);
        let mut at = 0;
        let mut block = from;
        if first_partial {
            let take = ((from + 1) * BLOCK).min(end) - offset;
            self.patch(slot, from, (offset % BLOCK) as usize, &data.slice(0, take as usize));
            at = take as usize;
            block += 1;
        }
        let whole = data.len() - at - if last_partial { (end % BLOCK) as usize } else { 0 };
        if whole > 0 {
            for part in whole_blocks(&data.slice(at, whole)) {
                let blocks = part.len() as u64 / BLOCK;
                self.streams.insert(slot, block, part, SegmentState::Dirty, true);
                block += blocks;
            }
            at += whole;
        }
        if last_partial {
            self.patch(slot, block, 0, &data.slice(at, data.len() - at));
        }
        if let Some(stream) = self.streams.stream(slot) {
            stream.end_of_file = stream.end_of_file.max(end);
        }
        self.promise_growth(slot, charged);
        self.writeback.write_growth_back(slot, self.streams, self.base);
        Ok(slot)
    }

    /// Checks that memory has space for blocks that become dirty. Streams whose data finds no space keep
    /// theirs there for long: blocks that are overwritten in place do not wait for them.
    ///
    /// # Errors
    /// `Miss` until there is space; the reason why nothing is written back.
    fn wait_for_memory(&mut self, id: StreamId, (from, to): (u64, u64)) -> Result<(), FsError> {
        let unstored = self.unstored().blocks;
        let most = self.writeback.dirty_bytes_max(self.base);
        if unstored * BLOCK < most {
            return Ok(());
        }
        if let Some((error, _)) = self.writeback.failure() {
            if *error != FsError::NoSpace {
                return Err(error.clone());
            }
            let others = unstored - self.streams.held_blocks();
            // If no other data is being written, these blocks find no space either.
            let is_stuck = others == 0 && unstored * BLOCK >= 2 * most;
            if is_stuck || self.blocks_needed(id, from, to)? > 0 {
                return Err(FsError::NoSpace);
            }
            if others * BLOCK < most && unstored * BLOCK < 2 * most {
                return Ok(());
            }
        }
        self.writeback.pressure = true;
        Err(FsError::Miss)
    }

    /// New blocks that a write of a range takes: those that it overwrites in place need none.
    ///
    /// # Errors
    /// `Miss` while the map is not in memory.
    fn blocks_needed(&mut self, id: StreamId, from: u64, to: u64) -> Result<u64, FsError> {
        let mapping = extents::map(&mut self.base.meta.store, &Transaction::new(), id, from, to)?;
        let in_place = |part: &Mapped| part.extent.is_some_and(|extent| !extent.shared);
        Ok(mapping.iter().filter(|part| !in_place(part)).map(|part| part.blocks).sum())
    }

    /// Finds the owner charged for a stream that is about to end at `end` or later. `None` if the charge
    /// does not grow or nobody is charged.
    ///
    /// # Errors
    /// `QuotaExceeded` beyond the owner's limit, `Miss`.
    pub fn check_quota(&mut self, slot: usize, end: u64) -> Result<Option<Sid>, FsError> {
        let Metadata { store, quotas, .. } = &mut self.base.meta;
        if !quotas.is_on() {
            return Ok(None);
        }
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        if end <= stream.end_of_file {
            return Ok(None);
        }
        quotas.check_promise(store, stream.id, stream.unpublished_charge(end))
    }

    /// Promises the growth of a stream to its owner.
    pub fn promise_growth(&mut self, slot: usize, owner: Option<Sid>) {
        if let Some(owner) = owner
            && let Some(stream) = self.streams.stream(slot)
        {
            let blocks = stream.unpublished_charge(stream.end_of_file);
            self.base.meta.quotas.promise(stream.id, owner, blocks);
        }
    }

    /// Frees written blocks that a crash left behind the stream's end, before it grows to `end` and exposes
    /// them.
    ///
    /// # Errors
    /// `Miss` until they are freed.
    pub fn clear_behind_end(&mut self, slot: usize, end: u64) -> Result<(), FsError> {
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let (id, own_end) = (stream.id, stream.end_of_file);
        if end <= own_end {
            return Ok(());
        }
        if self.has_rest_behind(slot)? {
            self.truncate(slot, id, own_end)?;
        }
        if let Some(stream) = self.streams.stream(slot) {
            stream.behind = Behind::Clean;
        }
        Ok(())
    }

    /// Whether blocks behind the stream's end have yet to be freed, after a truncation or a crash.
    pub fn has_rest_behind(&mut self, slot: usize) -> Result<bool, FsError> {
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let (id, end) = (stream.id, stream.end_of_file);
        match stream.behind {
            Behind::Clean => Ok(false),
            Behind::BeingCut => Ok(true),
            Behind::Unknown => self.has_written_behind(id, end.div_ceil(BLOCK)),
        }
    }

    /// Whether a written block is mapped from this one on. Only a bounded number of extents is examined:
    /// beyond, the answer is yes.
    fn has_written_behind(&mut self, id: StreamId, from: u64) -> Result<bool, FsError> {
        const LOOKED_AT: usize = 64;
        let none = Transaction::new();
        let found = extents::extents_from(&mut self.base.meta.store, &none, id, from, LOOKED_AT + 1)?;
        Ok(found.len() > LOOKED_AT || found.iter().any(|(_, extent)| !extent.unwritten))
    }

    /// Makes a partly written block's other bytes known. Blocks behind the end are zeroes.
    fn load_for_patch(&mut self, slot: usize, block: u64, offset: u64, end: u64) -> Result<(), FsError> {
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let start = block * BLOCK;
        let rest_is_covered = offset <= start && end >= stream.end_of_file;
        if start >= stream.end_of_file || rest_is_covered || stream.segments.covering(block).is_some() {
            return Ok(());
        }
        self.load_or_zero(slot, block)
    }

    /// Brings a block into the cache: from the virtual disk, or as zeroes if it is a hole.
    fn load_or_zero(&mut self, slot: usize, block: u64) -> Result<(), FsError> {
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let id = stream.id;
        let written = extents::map(&mut self.base.meta.store, &Transaction::new(), id, block, block + 1)?
            .iter()
            .any(|part| part.is_written());
        if written {
            return self.reads.load(slot, block, block + 1, self.streams, self.base);
        }
        Ok(())
    }

    /// Brings the last block into memory if the stream grows past an end within it: its bytes behind the old end must become zeroes on
    /// disk too, so that it has to be written again.
    pub fn load_last_block(&mut self, slot: usize, offset: u64) -> Result<(), FsError> {
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let end = stream.end_of_file;
        if offset <= end || end.is_multiple_of(BLOCK) || stream.segments.covering(end / BLOCK).is_some() {
            return Ok(());
        }
        self.load_or_zero(slot, end / BLOCK)
    }

    /// Makes that block dirty again, so that it is written with zeroes behind the old end: [`Editor::load_last_block`] has brought it.
    pub fn redirty_last_block(&mut self, slot: usize, offset: u64) {
        let Some(stream) = self.streams.stream(slot) else { return };
        let end = stream.end_of_file;
        if offset <= end || end.is_multiple_of(BLOCK) {
            return;
        }
        let block = end / BLOCK;
        let Some((start, segment)) = stream.segments.covering(block) else { return };
        if segment.state == SegmentState::Dirty {
            return;
        }
        let at = ((block - start) * BLOCK) as usize;
        let data = segment.data.slice(at..at + BLOCK_BYTES);
        self.streams.insert(slot, block, data, SegmentState::Dirty, true);
    }

    /// Puts bytes into a block whose other bytes are known.
    pub fn patch(&mut self, slot: usize, block: u64, at: usize, bytes: &Payload) {
        let mut patched = BufMut::zeroed(BLOCK_BYTES);
        if let Some(stream) = self.streams.stream(slot)
            && let Some((start, segment)) = stream.segments.covering(block)
        {
            let from = ((block - start) * BLOCK) as usize;
            patched.copy_from_slice(&segment.data[from..from + BLOCK_BYTES]);
        }
        bytes.copy_to(&mut patched[at..]);
        self.streams.insert(slot, block, patched.freeze(), SegmentState::Dirty, true);
    }

    /// Ensures space for a range that is about to become dirty.
    ///
    /// # Errors
    /// `Miss` while space may still come, `NoSpace` if there is none, `Unavailable` if a chunk cannot be had for lack of copies.
    fn promise_blocks(&mut self, id: StreamId, from: u64, to: u64) -> Result<(), FsError> {
        let blocks = to - from;
        if blocks <= self.base.unpromised_blocks(self.unstored()) {
            return Ok(());
        }
        let needed = self.blocks_needed(id, from, to)?;
        if needed <= self.base.unpromised_blocks(self.unstored()) {
            Ok(())
        } else if self.room_may_come() {
            Err(FsError::Miss)
        } else {
            Err(self.base.chunks.why_none())
        }
    }

    /// Whether space for data may come without deletions: a chunk being allocated, dirty blocks that may
    /// turn out to need none, freed blocks that are not yet reusable.
    pub fn room_may_come(&mut self) -> bool {
        let unstored = self.unstored();
        if self.base.data_chunk_may_come(unstored) {
            return true;
        }
        if let Some(ticket) = self.base.meta.allocator.pending_ticket() {
            self.base.meta.journal.log.want(ticket);
            self.base.agenda.again = true;
            return true;
        }
        if self.base.freed_blocks_may_come() {
            return true;
        }
        if unstored.blocks > 0 {
            self.writeback.pressure = true;
            self.base.agenda.again = true;
            return true;
        }
        self.space_comes_back
    }
}

/// Payload as page-aligned buffers of whole blocks, copied only if it is not that already.
fn whole_blocks(data: &Payload) -> Vec<Buf> {
    let fits = |part: &Buf| {
        part.len().is_multiple_of(BLOCK_BYTES) && part.is_aligned() && part.retained_bytes() <= 2 * part.len()
    };
    if data.parts().iter().all(fits) {
        return data.parts().to_vec();
    }
    let mut copy = BufMut::for_overwrite(data.len());
    data.copy_to(&mut copy);
    vec![copy.freeze()]
}
