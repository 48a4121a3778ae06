//! Changes of a stream's shape: its end, its allocation, holes, shared blocks.
//!
//! All of them answer `Miss` while write-back jobs work in the range concerned, and start over. The
//! same holds for large changes: one call changes as much as one transaction may ([`pieces`]), and the
//! next one continues behind that.

use ::types::{FileTime, Lba, attribute};
use sys::Payload;

use super::barriers::may_store;
use super::cloning::CloneRange;
use super::extents::{self, Mapped};
use super::pieces;
use super::segments::{Piece, SegmentState};
use super::streams::{Behind, put_sizes};
use super::write::Editor;
use super::{BLOCK, STREAM_BYTES_MAX};
use crate::fs::inodes::inode;
use crate::fs::meta::record::ExtentRecord;
use crate::fs::meta::{BlockRun, Transaction, key};
use crate::fs::types::{AttributeChange, FsError, StreamId};
use crate::planted::Planted;

/// Extents of which one transaction fills the holes between.
const EXTENTS_AT_ONCE: usize = 1000;

/// Extents examined for one query of allocated ranges.
const EXTENTS_LISTED_MAX: usize = 16_384;

/// Blocks that one transaction allocates at most.
const ALLOCATE_AT_ONCE: u64 = 1 << 20;

impl Editor<'_> {
    /// Sets the file's times for a change of its data now.
    fn stamp(&mut self, stream: StreamId, now: FileTime) {
        let times = AttributeChange { written: Some(now), changed: Some(now), ..Default::default() };
        self.base.times.touch(stream.file, &times, self.base.agenda.now);
    }

    /// Sets the end of a stream: cuts it off, or lets it grow by zeroes without allocating.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn set_end_of_file(&mut self, id: StreamId, end: u64, now: FileTime) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        if end > STREAM_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        let slot = self.streams.slot(id, self.base)?;
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        if end > stream.end_of_file {
            self.clear_behind_end(slot, end)?;
            self.load_last_block(slot, end)?;
            let charged = self.check_quota(slot, end)?;
            self.streams.sequence += 1;
            self.redirty_last_block(slot, end);
            if let Some(stream) = self.streams.stream(slot) {
                stream.end_of_file = end;
            }
            self.promise_growth(slot, charged);
            self.streams.mark_dirty(slot);
        } else if end < stream.end_of_file || self.has_rest_behind(slot)? {
            self.make_room_for_parts(id, end.div_ceil(BLOCK), u64::MAX)?;
            self.truncate(slot, id, end)?;
        }
        self.stamp(id, now);
        Ok(())
    }

    /// Truncates a stream at `end`, at most its own end, and frees everything allocated behind that.
    ///
    /// The first transaction sets the end, so that nobody sees another one in between, not even after a
    /// crash. If the map has very many pieces, that transaction and those after it unmap pieces from the
    /// map's end.
    ///
    /// # Errors
    /// `Miss` until all is freed.
    pub fn truncate(&mut self, slot: usize, id: StreamId, end: u64) -> Result<(), FsError> {
        let keep = end.div_ceil(BLOCK);
        self.streams.quiesce(slot, end / BLOCK, u64::MAX)?;
        let pieces_max = self.pieces_at_once();
        let from = pieces::reach_back(&mut self.base.meta.store, id, keep, pieces_max)?;
        let all = from == keep;
        let mut txn = Transaction::new();
        let gone = extents::unmap(&mut self.base.meta.store, &mut txn, id, from, u64::MAX)?;
        let published = self.streams.stream(slot).map_or(0, |stream| stream.published_end.min(end));
        let allocated = put_sizes(self.base, &mut txn, id, published, -(gone as i64))?;
        let ticket = self.base.record(txn);
        self.streams.cut(slot, keep, u64::MAX);
        if let Some(stream) = self.streams.stream(slot) {
            stream.generation += 1;
            stream.allocated_blocks = allocated;
            stream.published_end = published;
            stream.end_of_file = stream.end_of_file.min(end);
            stream.behind = if all { Behind::Clean } else { Behind::BeingCut };
            stream.ticket = ticket;
            stream.keep_promise(self.base);
        }
        self.zero_tail(slot, end);
        if all { Ok(()) } else { self.base.agenda.go_on_later() }
    }

    /// Ensures space for the parts left when a range is unmapped in the middle of an extent: even if that
    /// happens often on a full volume, checkpoints find their pages, and everything can be removed.
    ///
    /// # Errors
    /// Those of changes that grow.
    fn make_room_for_parts(&mut self, id: StreamId, from: u64, to: u64) -> Result<(), FsError> {
        let grows = pieces::grows(&mut self.base.meta.store, id, from, to)?;
        if grows && !Planted::PartsWithoutReserve.is_planted() {
            self.base.ready_to_grow(self.unstored())?;
        }
        Ok(())
    }

    /// Pieces of a stream's map that one transaction may change.
    fn pieces_at_once(&self) -> usize {
        self.base.meta.journal.log.pieces_at_once()
    }

    /// Makes bytes behind the end in the cached last block zeroes.
    fn zero_tail(&mut self, slot: usize, end: u64) {
        if end.is_multiple_of(BLOCK) {
            return;
        }
        let Some(stream) = self.streams.stream(slot) else { return };
        let Some((_, segment)) = stream.segments.covering(end / BLOCK) else { return };
        let state = segment.state;
        let within = (end % BLOCK) as usize;
        let zeroes = self.reads.zeroes(BLOCK as usize - within);
        self.streams.sequence += 1;
        self.patch(slot, end / BLOCK, within, &Payload::from(zeroes));
        if state == SegmentState::Clean {
            self.streams.make_clean(slot, end / BLOCK);
        }
    }

    /// Sets how many bytes are allocated from the stream's start: allocates holes, or cuts off everything
    /// beyond, the end of the stream included. Long allocations are made in steps: a crash may leave a
    /// part.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`.
    pub fn set_allocation(&mut self, id: StreamId, bytes: u64, now: FileTime) -> Result<(), FsError> {
        self.base.ready_to_grow(self.unstored())?;
        if bytes > STREAM_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        let slot = self.streams.slot(id, self.base)?;
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let end = stream.end_of_file;
        if bytes < end || (bytes == end && self.has_rest_behind(slot)?) {
            return self.set_end_of_file(id, bytes, now);
        }
        let blocks = bytes.div_ceil(BLOCK);
        self.streams.quiesce(slot, 0, u64::MAX)?;
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        // The least that is needed: allocated blocks may lie behind.
        let needed = blocks.saturating_sub(stream.allocated_blocks);
        let whole_before = if stream.whole.0 == stream.generation { stream.whole.1.min(blocks) } else { 0 };
        if needed > self.base.available_blocks(self.unstored()) {
            return Err(FsError::NoSpace);
        }
        // An allocation charges as an end there would.
        self.check_quota(slot, bytes)?;
        let (mapping, stop) = extents::map_some(
            &mut self.base.meta.store,
            &Transaction::new(),
            id,
            whole_before,
            blocks,
            EXTENTS_AT_ONCE,
        )?;
        let needed: u64 = mapping.iter().filter(|part| part.extent.is_none()).map(|part| part.blocks).sum();
        if needed == 0 {
            if stop == blocks {
                return self.cut_allocation(slot, id, blocks);
            }
            if let Some(stream) = self.streams.stream(slot) {
                stream.whole = (stream.generation, stop);
            }
            return self.base.agenda.go_on_later();
        }
        let added = self.allocate(slot, id, &mapping)?;
        // Blocks allocated so far stay allocated.
        if added < needed || stop < blocks { self.base.agenda.go_on_later() } else { Ok(()) }
    }

    /// Allocates holes of a mapping, of very large ones a part. Blocks allocated.
    fn allocate(&mut self, slot: usize, id: StreamId, mapping: &[Mapped]) -> Result<u64, FsError> {
        let mut txn = Transaction::new();
        let mut taken = Vec::new();
        let result = self.allocate_holes(&mut txn, id, mapping, &mut taken);
        let added: u64 = taken.iter().map(|run| u64::from(run.blocks)).sum();
        if taken.is_empty() {
            return result.map(|()| 0);
        }
        let published = self.streams.stream(slot).map_or(0, |stream| stream.published_end);
        let sizes = put_sizes(self.base, &mut txn, id, published, added as i64);
        let allocated = match sizes {
            Ok(allocated) => allocated,
            Err(error) => {
                taken.into_iter().for_each(|run| self.base.meta.allocator.unreserve(run));
                return Err(error);
            }
        };
        let ticket = self.base.record(txn);
        if let Some(stream) = self.streams.stream(slot) {
            stream.allocated_blocks = allocated;
            stream.ticket = ticket;
            stream.keep_promise(self.base);
        }
        result.map(|()| added)
    }

    fn allocate_holes(
        &mut self,
        txn: &mut Transaction,
        id: StreamId,
        mapping: &[Mapped],
        taken: &mut Vec<BlockRun>,
    ) -> Result<(), FsError> {
        let (chunk_blocks, pieces_max) = (self.base.meta.allocator.chunk_blocks(), self.pieces_at_once());
        let mut goal = None;
        let mut added = 0;
        for part in mapping {
            if let Some(extent) = part.extent {
                goal = Some(Lba(extent.lba.0 + u64::from(extent.blocks)));
                continue;
            }
            let mut at = part.block;
            while at < part.end() && added < ALLOCATE_AT_ONCE && taken.len() < pieces_max {
                let want = (part.end() - at)
                    .min(self.base.unpromised_blocks(self.unstored()))
                    .min(ALLOCATE_AT_ONCE) as u32;
                let run = match want {
                    0 if self.room_may_come() => return Err(FsError::Miss),
                    0 => return Err(self.base.chunks.why_none()),
                    want => self.base.reserve(goal, want, self.unstored())?,
                };
                let extent =
                    ExtentRecord { lba: run.lba, blocks: run.blocks, shared: false, unwritten: true };
                if let Err(error) =
                    extents::map_hole(&mut self.base.meta.store, chunk_blocks, txn, id, at, extent)
                {
                    self.base.meta.allocator.unreserve(run);
                    return Err(error);
                }
                txn.allocate(run);
                taken.push(run);
                goal = Some(Lba(run.lba.0 + u64::from(run.blocks)));
                at += u64::from(run.blocks);
                added += u64::from(run.blocks);
            }
        }
        Ok(())
    }

    /// Frees the blocks allocated behind a block at or behind the stream's end.
    fn cut_allocation(&mut self, slot: usize, id: StreamId, blocks: u64) -> Result<(), FsError> {
        let mut txn = Transaction::new();
        let (range, pieces_max) = ((blocks, u64::MAX), self.pieces_at_once());
        let (gone, stop) = pieces::unmap_some(&mut self.base.meta.store, &mut txn, id, range, pieces_max)?;
        if gone > 0 {
            let published = self.streams.stream(slot).map_or(0, |stream| stream.published_end);
            let allocated = put_sizes(self.base, &mut txn, id, published, -(gone as i64))?;
            let ticket = self.base.record(txn);
            if let Some(stream) = self.streams.stream(slot) {
                stream.allocated_blocks = allocated;
                stream.ticket = ticket;
                stream.generation += 1;
                stream.keep_promise(self.base);
            }
        }
        if stop < u64::MAX { self.base.agenda.go_on_later() } else { Ok(()) }
    }

    /// Zeroes the range, up to the stream's end. Frees whole blocks.
    pub fn zero_range(
        &mut self,
        id: StreamId,
        offset: u64,
        len_bytes: u64,
        now: FileTime,
    ) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        let slot = self.streams.slot(id, self.base)?;
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let stream_end = stream.end_of_file;
        let end = offset.saturating_add(len_bytes).min(stream_end);
        if offset >= end {
            return Ok(());
        }
        // A last block that ends with the stream is a whole one.
        let to = if end == stream_end { end.div_ceil(BLOCK) } else { end / BLOCK };
        let from = offset.div_ceil(BLOCK);
        let mut patches: Vec<(u64, usize, usize)> = Vec::new();
        if !offset.is_multiple_of(BLOCK) {
            let block_end = (offset.next_multiple_of(BLOCK)).min(end);
            patches.push((offset / BLOCK, (offset % BLOCK) as usize, (block_end - offset) as usize));
        }
        if to * BLOCK < end && to >= from {
            patches.push((to, 0, (end - to * BLOCK) as usize));
        }
        self.streams.quiesce(slot, offset / BLOCK, end.div_ceil(BLOCK))?;
        let mut patched = Vec::new();
        for (block, at, len) in patches {
            if self.is_hole(slot, id, block)? {
                continue;
            }
            let cached =
                self.streams.stream(slot).is_some_and(|stream| stream.segments.covering(block).is_some());
            if !cached {
                self.reads.load(slot, block, block + 1, self.streams, self.base)?;
            }
            patched.push((block, at, len));
        }
        if (self.base.unpromised_blocks(self.unstored()) as usize) < patched.len() && self.room_may_come() {
            return Err(FsError::Miss);
        }
        if from < to {
            self.make_room_for_parts(id, from, to)?;
            let mut txn = Transaction::new();
            let pieces_max = self.pieces_at_once();
            let (gone, stop) =
                pieces::unmap_some(&mut self.base.meta.store, &mut txn, id, (from, to), pieces_max)?;
            if gone > 0 {
                let published = self.streams.stream(slot).map_or(0, |stream| stream.published_end);
                let allocated = put_sizes(self.base, &mut txn, id, published, -(gone as i64))?;
                let ticket = self.base.record(txn);
                if let Some(stream) = self.streams.stream(slot) {
                    stream.allocated_blocks = allocated;
                    stream.ticket = ticket;
                    stream.keep_promise(self.base);
                }
            }
            self.streams.cut(slot, from, stop);
            if let Some(stream) = self.streams.stream(slot) {
                stream.generation += 1;
            }
            self.streams.mark_dirty(slot);
            if stop < to {
                return self.base.agenda.go_on_later();
            }
        }
        self.streams.sequence += 1;
        for (block, at, len) in patched {
            self.patch(slot, block, at, &Payload::from(self.reads.zeroes(len)));
        }
        self.stamp(id, now);
        Ok(())
    }

    /// Whether a block has nothing, in memory or stored: it reads as zeroes.
    fn is_hole(&mut self, slot: usize, id: StreamId, block: u64) -> Result<bool, FsError> {
        if self.streams.stream(slot).is_some_and(|stream| stream.segments.covering(block).is_some()) {
            return Ok(false);
        }
        let mapping = extents::map(&mut self.base.meta.store, &Transaction::new(), id, block, block + 1)?;
        Ok(!mapping.iter().any(|part| part.is_written()))
    }

    /// Finds ranges (offset, length in bytes) that hold data within the given one, all of it if the file is not sparse; and whether there may be
    /// more behind the last.
    pub fn allocated_ranges(
        &mut self,
        id: StreamId,
        offset: u64,
        len_bytes: u64,
        ranges_max: usize,
    ) -> Result<(Vec<(u64, u64)>, bool), FsError> {
        self.base.ready()?;
        let slot = self.streams.slot(id, self.base)?;
        let txn = Transaction::new();
        let sparse =
            inode(&mut self.base.meta.store, &txn, id.file)?.attributes & attribute::SPARSE_FILE != 0;
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        let end = stream.end_of_file.min(offset.saturating_add(len_bytes));
        if offset >= end {
            return Ok((Vec::new(), false));
        }
        if !sparse {
            return Ok((vec![(offset, end - offset)], false));
        }
        let (from, to) = (offset / BLOCK, end.div_ceil(BLOCK));
        let (mapping, to_looked_at) =
            extents::map_some(&mut self.base.meta.store, &txn, id, from, to, EXTENTS_LISTED_MAX)?;
        let mut blocks: Vec<(u64, u64)> = mapping
            .iter()
            .filter(|part| part.extent.is_some())
            .map(|part| (part.block, part.end()))
            .collect();
        if let Some(stream) = self.streams.stream(slot) {
            stream.segments.gather(from, to_looked_at, false, |block, piece| {
                if let Piece::Cached(data) = piece {
                    blocks.push((block, block + data.len() as u64 / BLOCK));
                }
            });
        }
        blocks.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (start, stop) in blocks {
            let (start, stop) = ((start * BLOCK).max(offset), (stop * BLOCK).min(end));
            match out.last_mut() {
                _ if start >= stop => {}
                Some(last) if last.0 + last.1 >= start => last.1 = last.1.max(stop - last.0),
                _ => out.push((start, stop - start)),
            }
        }
        let more = to_looked_at < to || out.len() > ranges_max;
        out.truncate(ranges_max);
        Ok((out, more))
    }

    /// Lets the target's range share the source's blocks, all of which can be shared
    /// ([`CloneRange::shared_bytes`]). Returns how many bytes do now: fewer than requested, a multiple of
    /// the block, if there are many extents.
    ///
    /// # Errors
    /// `Invalid` if not all of it can be shared.
    pub fn clone_range(
        &mut self,
        (source, source_offset): (StreamId, u64),
        (target, target_offset): (StreamId, u64),
        len_bytes: u64,
        now: FileTime,
    ) -> Result<u64, FsError> {
        self.base.ready_to_grow(self.unstored())?;
        let (from_slot, to_slot) =
            (self.streams.slot(source, self.base)?, self.streams.slot(target, self.base)?);
        let source_end = source_offset.checked_add(len_bytes).ok_or(FsError::TooLarge)?;
        let source_size = self.streams.stream(from_slot).map_or(0, |stream| stream.end_of_file);
        let target_size = self.streams.stream(to_slot).map_or(0, |stream| stream.end_of_file);
        let range = CloneRange { source_offset, target_offset, len_bytes };
        if range.shared_bytes(source_size, target_size, source == target) != Ok(len_bytes) {
            return Err(FsError::Invalid("not all of a range to clone can be shared"));
        }
        let (from, to) = (source_offset / BLOCK, source_end.div_ceil(BLOCK));
        let first = target_offset / BLOCK;
        let last = first + (to - from);
        self.store_now(from_slot, from, to)?;
        self.streams.quiesce(to_slot, first, last)?;
        // Published sizes first: a clone behind the published end would precede earlier writes.
        self.store_now(to_slot, 0, first)?;
        let stop = self.share(source, (from, to), (to_slot, target, first))?;
        self.streams.sequence += 1;
        self.stamp(target, now);
        Ok(if stop < to { (stop - from) * BLOCK } else { len_bytes })
    }

    /// Lets the target share the first blocks of a range of the source: as many as one transaction may
    /// change. Returns the end of these in the source.
    fn share(
        &mut self,
        source: StreamId,
        (from, to): (u64, u64),
        (to_slot, target, first): (usize, StreamId, u64),
    ) -> Result<u64, FsError> {
        let shift = |block: u64| first + (block - from);
        let half = (self.pieces_at_once() / 2).max(1);
        let (mut of_source, mut of_target) = (half, half);
        let store = &mut self.base.meta.store;
        let stop = pieces::reach(store, source, (from, to), &mut of_source)?;
        let stop = from + (pieces::reach(store, target, (first, shift(stop)), &mut of_target)? - first);
        let mapping = extents::map(store, &Transaction::new(), source, from, stop)?;
        let mut txn = Transaction::new();
        let gone = extents::unmap(store, &mut txn, target, first, shift(stop))?;
        extents::mark_shared(store, &mut txn, source, from, stop)?;
        let mut added = 0;
        for part in mapping {
            if let Some(extent) = part.extent.filter(|extent| !extent.unwritten) {
                extents::share_blocks(store, &mut txn, extent.lba, extent.blocks)?;
                let shared = ExtentRecord { shared: true, ..extent };
                txn.put(key::extent(target, shift(part.block)), shared.encode());
                added += part.blocks as i64;
            }
        }
        let stream = self.streams.stream(to_slot);
        let published = stream
            .map_or(0, |stream| stream.published_end.max((shift(stop) * BLOCK).min(stream.end_of_file)));
        let allocated = put_sizes(self.base, &mut txn, target, published, added - gone as i64)?;
        let ticket = self.base.record(txn);
        self.streams.cut(to_slot, first, shift(stop));
        if let Some(stream) = self.streams.stream(to_slot) {
            stream.allocated_blocks = allocated;
            stream.published_end = published;
            stream.ticket = ticket;
            stream.generation += 1;
            stream.keep_promise(self.base);
        }
        Ok(stop)
    }

    /// Has dirty blocks of a range written back.
    ///
    /// # Errors
    /// `Miss` until they are; why they cannot be, after a while.
    fn store_now(&mut self, slot: usize, from: u64, to: u64) -> Result<(), FsError> {
        let Some(stream) = self.streams.stream(slot) else { return Err(FsError::NotFound) };
        if from < to && stream.segments.has_unstored(from, to) {
            may_store(slot, self.streams, self.writeback, self.base)?;
            self.writeback.start_jobs(slot, (from, to), u64::MAX, self.streams, self.base);
            self.base.agenda.again = true;
            return Err(FsError::Miss);
        }
        Ok(())
    }
}
