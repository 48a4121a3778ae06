//! Writes into the cache.

use std::task::Poll;

use ::types::BLOCK_BYTES;
use sys::{Buf, BufMut, Payload};

use super::super::FileSystem;
use super::super::meta::Transaction;
use super::super::types::{FsError, StreamId};
use super::segments::SegmentState;
use super::{BLOCK, Parked, STREAM_BYTES_MAX};

impl FileSystem {
    /// Writes, growing the stream where needed. Answers when the bytes are in the cache, or, with `durable`, when they
    /// and the metadata that makes them readable survive a crash. Times are the caller's to [`FileSystem::touch`].
    /// `Pending`: [`super::super::FsEvent::Written`] carries the answer.
    ///
    /// # Errors
    /// `NoSpace` (nothing was written), `TooLarge`.
    pub fn write(
        &mut self,
        token: u64,
        stream: StreamId,
        offset: u64,
        data: Payload,
        durable: bool,
    ) -> Poll<Result<(), FsError>> {
        match self.try_write(stream, offset, &data) {
            Ok(slot) if durable && !data.is_empty() => {
                let (from, to) = (offset / BLOCK, (offset + data.len() as u64).div_ceil(BLOCK));
                self.wait_for_write(token, slot, from, to);
                Poll::Pending
            }
            Ok(_) => Poll::Ready(Ok(())),
            Err(FsError::Miss) => {
                self.data.parked.push_back(Parked::Write { token, stream, offset, data, durable });
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn try_write(&mut self, id: StreamId, offset: u64, data: &Payload) -> Result<usize, FsError> {
        self.ready_to_grow()?;
        let slot = self.slot(id)?;
        if data.is_empty() {
            return Ok(slot);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::TooLarge)?;
        if end > STREAM_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if self.data.dirty_bytes() >= self.dirty_bytes_max() {
            if let Some((error, _)) = self.data.trouble.current() {
                return Err(error.clone());
            }
            self.data_pressure = true;
            return Err(FsError::Miss);
        }
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
        // From here on nothing fails.
        self.data.sequence += 1;
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
                self.data.insert(slot, block, part, SegmentState::Dirty, true);
                block += blocks;
            }
            at += whole;
        }
        if last_partial {
            self.patch(slot, block, 0, &data.slice(at, data.len() - at));
        }
        if let Some(stream) = self.data.stream(slot) {
            stream.end_of_file = stream.end_of_file.max(end);
        }
        self.write_growth_back(slot);
        Ok(slot)
    }

    /// Makes a partly written block's other bytes known. Blocks behind the end are zeroes.
    fn load_for_patch(&mut self, slot: usize, block: u64, offset: u64, end: u64) -> Result<(), FsError> {
        let Some(stream) = self.data.stream(slot) else { return Err(FsError::NotFound) };
        let start = block * BLOCK;
        let rest_is_covered = offset <= start && end >= stream.end_of_file;
        if start >= stream.end_of_file || rest_is_covered || stream.segments.covering(block).is_some() {
            return Ok(());
        }
        self.load_or_zero(slot, block)
    }

    /// Brings a block into the cache: from the virtual disk, or as zeroes where it is a hole.
    fn load_or_zero(&mut self, slot: usize, block: u64) -> Result<(), FsError> {
        let Some(stream) = self.data.stream(slot) else { return Err(FsError::NotFound) };
        let id = stream.id;
        let written =
            self.map(&Transaction::new(), id, block, block + 1)?.iter().any(|part| part.is_written());
        if written {
            return self.load(slot, block, block + 1);
        }
        Ok(())
    }

    /// Where a stream grows past an end within a block, that block's bytes behind the old end must become zeroes on
    /// disk too: it has to be in memory, to be written again.
    pub(super) fn load_last_block(&mut self, slot: usize, offset: u64) -> Result<(), FsError> {
        let Some(stream) = self.data.stream(slot) else { return Err(FsError::NotFound) };
        let end = stream.end_of_file;
        if offset <= end || end.is_multiple_of(BLOCK) || stream.segments.covering(end / BLOCK).is_some() {
            return Ok(());
        }
        self.load_or_zero(slot, end / BLOCK)
    }

    /// See [`FileSystem::load_last_block`].
    pub(super) fn redirty_last_block(&mut self, slot: usize, offset: u64) {
        let Some(stream) = self.data.stream(slot) else { return };
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
        self.data.insert(slot, block, data, SegmentState::Dirty, true);
    }

    /// Puts bytes into a block whose other bytes are known.
    pub(super) fn patch(&mut self, slot: usize, block: u64, at: usize, bytes: &Payload) {
        let mut patched = BufMut::zeroed(BLOCK_BYTES);
        if let Some(stream) = self.data.stream(slot)
            && let Some((start, segment)) = stream.segments.covering(block)
        {
            let from = ((block - start) * BLOCK) as usize;
            patched.copy_from_slice(&segment.data[from..from + BLOCK_BYTES]);
        }
        bytes.copy_to(&mut patched[at..]);
        self.data.insert(slot, block, patched.freeze(), SegmentState::Dirty, true);
    }

    /// Makes sure that there is room for a range that is about to become dirty.
    ///
    /// # Errors
    /// `Miss` while room may still come, `NoSpace` where there is none.
    fn promise_blocks(&mut self, id: StreamId, from: u64, to: u64) -> Result<(), FsError> {
        let blocks = to - from;
        if blocks <= self.unpromised_blocks() {
            return Ok(());
        }
        if self.room_may_come() {
            return Err(FsError::Miss);
        }
        // Blocks that are overwritten in place need no room.
        let mapping = self.map(&Transaction::new(), id, from, to)?;
        let in_place = |part: &super::extents::Mapped| part.extent.is_some_and(|extent| !extent.shared);
        let needed: u64 = mapping.iter().filter(|part| !in_place(part)).map(|part| part.blocks).sum();
        if needed <= self.unpromised_blocks() { Ok(()) } else { Err(FsError::NoSpace) }
    }

    /// Blocks that data in memory may come to need.
    pub(in super::super) fn promised_blocks(&self) -> u64 {
        self.data.dirty_blocks + self.data.unplanned_blocks
    }

    /// Blocks that nobody may come to need yet.
    pub(in super::super) fn unpromised_blocks(&self) -> u64 {
        self.allocator.ready_free().saturating_sub(self.promised_blocks())
    }

    /// Whether room for data may come without anybody giving up any: a chunk on its way, dirty blocks that may turn out
    /// to need none, freed blocks not settled.
    pub(super) fn room_may_come(&mut self) -> bool {
        if self.chunk_changes.data_is_coming() || self.can_have_data_chunk() {
            self.chunk_changes.need_data = true;
            self.pump_again = true;
            return true;
        }
        if let Some(ticket) = self.allocator.unsettled() {
            self.log.want(ticket);
            self.pump_again = true;
            return true;
        }
        if self.data.dirty_bytes() > 0 {
            self.data_pressure = true;
            self.pump_again = true;
            return true;
        }
        !self.data.orphans.is_empty()
    }
}

/// Payload as page-aligned buffers of whole blocks, copied only where it is not that already.
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
