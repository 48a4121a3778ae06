//! Streams in memory: their sizes, their cached blocks, and which of them have something to be stored.

use std::collections::BTreeMap;

use ::types::{BLOCK_BYTES, IdentityMap, Lba, Monotonic};
use smallvec::SmallVec;
use sys::{Buf, Payload};

use super::BLOCK;
use super::ahead::Readers;
use super::due::Due;
use super::eviction::{self, Eviction, Queue};
use super::segments::{Fate, Piece, Removed, SegmentState, Segments};
use crate::fs::base::Base;
use crate::fs::inodes::{apply, inode, put_inode, stream_record};
use crate::fs::meta::{Transaction, key};
use crate::fs::metadata::Metadata;
use crate::fs::quota::{charge_of, charge_of_inode, charge_of_stream};
use crate::fs::types::{FileId, FsError, StreamId};

/// Streams kept in memory before idle ones are forgotten.
const STREAMS_MAX: usize = 65_536;

/// Streams examined in one call, once there are more.
const STREAMS_AT_ONCE: usize = 64;

/// Memory of a stream with a few blocks, beside the blocks, in bytes, about.
const STREAM_BYTES: usize = 1536;

/// Segments examined in one go when space is made in the cache.
const EVICTED_AT_ONCE: usize = 4096;

/// Whether written blocks are mapped behind a stream's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// A crash may have left some: of a truncation, or published when the end was not yet.
    Unknown,
    /// A truncation has set the end, and not yet freed all blocks behind it.
    BeingCut,
    Clean,
}

/// A stream in memory.
#[derive(Debug)]
pub struct Stream {
    pub id: StreamId,
    /// As clients see it.
    pub end_of_file: u64,
    /// End in the metadata, which a crash leaves.
    pub published_end: u64,
    pub behind: Behind,
    /// Allocated blocks in the metadata.
    pub allocated_blocks: u64,
    pub segments: Segments,
    pub dirty_blocks: u64,
    /// Write-back jobs under way.
    pub jobs: Busy,
    /// The next block that would continue the last allocation, and its place.
    pub goal: Option<(u64, Lba)>,
    /// Ticket of the last transaction that changed its map or its sizes.
    pub ticket: u64,
    /// Grows with every change of the map other than by write-back: blocks read before are not cached.
    pub generation: u64,
    /// At this generation, no block before this one was a hole.
    pub whole: (u64, u64),
    /// The last write of which a part was evicted from memory: reads that began before it may carry older bytes.
    pub evicted_sequence: u64,
    pub readers: Readers,
    /// Reads under way: first block, end and job.
    pub fetching: Vec<(u64, u64, u64)>,
    /// No names any more: nothing is written back.
    pub reclaimed: bool,
}

/// Ranges of blocks that jobs work in; none overlap.
#[derive(Debug, Default)]
pub struct Busy {
    /// By first block: end and job.
    pub ranges: BTreeMap<u64, (u64, u64)>,
}

impl Busy {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn overlaps(&self, from: u64, to: u64) -> bool {
        self.ranges.range(..to).next_back().is_some_and(|(_, (end, _))| *end > from)
    }

    /// Whether a job works before a block.
    pub fn before(&self, block: u64) -> bool {
        self.ranges.first_key_value().is_some_and(|(from, _)| *from < block)
    }

    /// Jobs that work in a range.
    pub fn in_range(&self, from: u64, to: u64) -> Vec<u64> {
        let first = self.ranges.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let within = self.ranges.range(first..to.max(first));
        within.filter(|(_, (end, _))| *end > from).map(|(_, (_, job))| *job).collect()
    }
}

impl Stream {
    fn new(id: StreamId, end_of_file: u64, allocated_blocks: u64, sequence: u64) -> Self {
        Self {
            id,
            end_of_file,
            published_end: end_of_file,
            behind: if allocated_blocks == 0 { Behind::Clean } else { Behind::Unknown },
            allocated_blocks,
            segments: Segments::default(),
            dirty_blocks: 0,
            jobs: Busy::default(),
            goal: None,
            ticket: 0,
            generation: 0,
            whole: (0, 0),
            evicted_sequence: sequence,
            readers: Readers::default(),
            fetching: Vec::new(),
            reclaimed: false,
        }
    }

    /// Whether nothing would be lost by forgetting it.
    fn is_idle(&self) -> bool {
        self.segments.is_empty()
            && self.jobs.is_empty()
            && self.fetching.is_empty()
            && self.end_of_file == self.published_end
    }

    /// Whether the block in which the published end lies is still to be stored, before block `from`.
    pub fn has_unstored_tail(&self, from: u64) -> bool {
        let tail = self.published_end / BLOCK;
        let is_whole = self.published_end.is_multiple_of(BLOCK);
        !is_whole && tail < from && self.segments.has_unstored(tail, tail + 1)
    }

    /// Blocks that the owner will be charged with beyond those of the published sizes, once the stream ends at `end_of_file`.
    pub fn unpublished_charge(&self, end_of_file: u64) -> u64 {
        let published = charge_of(self.published_end, self.allocated_blocks);
        charge_of(end_of_file, self.allocated_blocks).saturating_sub(published)
    }

    /// Notes the part of a promise that is not charged yet, after sizes were published.
    pub fn keep_promise(&self, base: &mut Base) {
        base.meta.quotas.keep_promise(self.id, self.unpublished_charge(self.end_of_file));
    }

    /// How far the end can be published: to the first block that is not written yet.
    fn safe_end(&mut self) -> u64 {
        let from = self.published_end / BLOCK;
        match self.segments.first_unstored(from) {
            Some(block) => self.end_of_file.min((block * BLOCK).max(self.published_end)),
            None => self.end_of_file,
        }
    }
}

/// All streams in memory.
///
/// `slots` and `by_file` lead to each stream that `entries` holds, and to no other place. `cached_bytes`, `dirty_blocks` and the memory on
/// probation that `eviction` counts are the sums over all segments. A stream with something dirty, in a job, or with an end that is not
/// published is on `due`, or a job of it is under way that puts it there when it fails.
#[derive(Debug, Default)]
pub struct Streams {
    entries: Vec<Option<Stream>>,
    free_slots: Vec<usize>,
    slots: IdentityMap<StreamId, usize>,
    by_file: IdentityMap<FileId, SmallVec<[usize; 2]>>,
    pub due: Due,
    /// Time of the last poll.
    pub now: Monotonic,
    cached_bytes: usize,
    /// Dirty blocks without a job.
    pub dirty_blocks: u64,
    eviction: Eviction,
    /// Next stream to check for being idle.
    idle_hand: usize,
    /// Number of the last write.
    pub sequence: u64,
}

impl Streams {
    pub fn cached_bytes(&self) -> u64 {
        self.cached_bytes as u64
    }

    /// Places of all streams in memory.
    pub fn all(&self) -> Vec<usize> {
        (0..self.entries.len()).collect()
    }

    /// Places of a file's streams in memory.
    pub fn of_file(&self, file: FileId) -> SmallVec<[usize; 2]> {
        self.by_file.get(&file).cloned().unwrap_or_default()
    }

    /// The place of a stream if it is in memory.
    pub fn find(&self, id: StreamId) -> Option<usize> {
        self.slots.get(&id).copied()
    }

    /// Returns the stream's slot in memory, and loads the stream if necessary.
    pub fn slot(&mut self, id: StreamId, base: &mut Base) -> Result<usize, FsError> {
        if let Some(slot) = self.slots.get(&id) {
            return Ok(*slot);
        }
        let txn = Transaction::new();
        let store = &mut base.meta.store;
        let (end_of_file, allocated_blocks) = if id.index == 0 {
            let inode = inode(store, &txn, id.file)?;
            if inode.directory {
                return Err(FsError::IsDirectory);
            }
            (inode.end_of_file, inode.allocated_blocks)
        } else {
            let record = stream_record(store, &txn, id)?;
            (record.end_of_file, record.allocated_blocks)
        };
        let stream = Stream::new(id, end_of_file, allocated_blocks, self.sequence);
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                debug_assert!(self.entries[slot].is_none(), "a place that is given away twice");
                self.entries[slot] = Some(stream);
                slot
            }
            None => {
                self.entries.push(Some(stream));
                self.entries.len() - 1
            }
        };
        self.slots.insert(id, slot);
        self.by_file.entry(id.file).or_default().push(slot);
        Ok(slot)
    }

    /// End of file and allocation in bytes, as clients see them, of a stream of which these are stored.
    pub fn sizes(&self, stream: StreamId, end_of_file: u64, blocks: u64) -> (u64, u64) {
        match self.find(stream).and_then(|slot| self.get(slot)) {
            // Dirty blocks may lie over allocated ones: an estimate from above, never below the stored one.
            Some(stream) => {
                let blocks = stream.allocated_blocks;
                let needed = stream.end_of_file.div_ceil(BLOCK);
                let dirty = stream.dirty_blocks.min(needed.saturating_sub(blocks));
                (stream.end_of_file, (blocks + dirty) * BLOCK)
            }
            None => (end_of_file, blocks * BLOCK),
        }
    }

    /// Publishes the end of a stream up to the first unwritten block, or to `known`.
    ///
    /// # Errors
    /// `Miss`, and damage of the metadata. Publishes nothing of a deleted file.
    pub fn publish_end(&mut self, slot: usize, known: u64, base: &mut Base) -> Result<(), FsError> {
        let Some(stream) = self.stream(slot) else { return Ok(()) };
        let (id, end) = (stream.id, stream.safe_end().max(known.min(stream.end_of_file)));
        if end == stream.published_end {
            return Ok(());
        }
        // Of very many streams one after the other, too, no more may gather than the journal takes.
        base.ready_to_change()?;
        let mut txn = Transaction::new();
        match put_sizes(base, &mut txn, id, end, 0) {
            Ok(_) => {}
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        }
        let ticket = base.record(txn);
        base.times.forget(id.file);
        if let Some(stream) = self.stream(slot) {
            stream.published_end = end;
            stream.ticket = ticket;
            stream.keep_promise(base);
        }
        Ok(())
    }

    /// The stream at a place.
    pub fn get(&self, slot: usize) -> Option<&Stream> {
        self.entries.get(slot).and_then(Option::as_ref)
    }

    /// The stream at a place, to be changed.
    pub fn stream(&mut self, slot: usize) -> Option<&mut Stream> {
        self.entries.get_mut(slot).and_then(Option::as_mut)
    }

    /// Accounts for the segments removed from a stream.
    fn account_removed(&mut self, slot: usize, removed: Removed) {
        self.cached_bytes -= removed.bytes;
        self.eviction.left(Queue::Probation, removed.probation_bytes);
        self.dirty_blocks -= removed.dirty_blocks;
        if let Some(stream) = self.stream(slot) {
            stream.dirty_blocks -= removed.dirty_blocks;
        }
        if let Some((rest, queue)) = removed.rest {
            self.eviction.push(queue, (slot, rest));
        }
    }

    /// Puts blocks into a stream's cache; `read`: for a reader who has them already.
    pub fn insert(&mut self, slot: usize, block: u64, data: Buf, state: SegmentState, read: bool) {
        let sequence = if state == SegmentState::Clean { 0 } else { self.sequence };
        self.insert_numbered(slot, block, data, (state, sequence), read);
    }

    /// Joins adjacent clean cached pieces into one segment in their place.
    pub fn put_together(&mut self, slot: usize, from: u64, pieces: Vec<(u64, Piece)>) -> Buf {
        let mut whole = Payload::new();
        for (_, piece) in pieces {
            if let Piece::Cached(data) = piece {
                whole.push(data);
            }
        }
        let whole = whole.contiguous();
        // There may be writes in it that a read under way does not know of.
        self.insert_numbered(slot, from, whole.clone(), (SegmentState::Clean, self.sequence), true);
        whole
    }

    fn insert_numbered(
        &mut self,
        slot: usize,
        block: u64,
        data: Buf,
        (state, sequence): (SegmentState, u64),
        read: bool,
    ) {
        let len = data.len();
        let Some(stream) = self.entries.get_mut(slot).and_then(Option::as_mut) else { return };
        let place = self.eviction.place_of(eviction::name(stream.id.file.0, stream.id.index, block));
        let (removed, queue, is_new) = stream.segments.insert(block, data, state, sequence, read, place);
        let bytes = stream.segments.at(block).map_or(0, |segment| segment.charge_bytes);
        if state == SegmentState::Dirty {
            stream.dirty_blocks += len as u64 / BLOCK;
            self.dirty_blocks += len as u64 / BLOCK;
            self.mark_dirty(slot);
        }
        self.cached_bytes += bytes;
        self.eviction.came(queue, bytes);
        self.account_removed(slot, removed);
        if is_new {
            self.eviction.push(queue, (slot, block));
        }
    }

    /// Makes a dirty block clean: the block on disk is good enough.
    pub fn make_clean(&mut self, slot: usize, block: u64) {
        let Some(stream) = self.stream(slot) else { return };
        let blocks = stream.segments.make_clean(block);
        stream.dirty_blocks -= blocks;
        self.dirty_blocks -= blocks;
    }

    /// Takes a range out of a stream's cache, dirty or not.
    pub fn cut(&mut self, slot: usize, from: u64, to: u64) -> Removed {
        let Some(stream) = self.stream(slot) else { return Removed::default() };
        let removed = stream.segments.cut(from, to);
        self.account_removed(slot, removed);
        removed
    }

    /// Whether nothing works in a range of a stream.
    ///
    /// # Errors
    /// `Miss` while write-back jobs do.
    pub fn quiesce(&self, slot: usize, from: u64, to: u64) -> Result<(), FsError> {
        let Some(stream) = self.get(slot) else { return Err(FsError::NotFound) };
        if stream.jobs.overlaps(from, to) { Err(FsError::Miss) } else { Ok(()) }
    }

    /// Dirty blocks of streams that are set aside because their data finds no space.
    pub fn held_blocks(&self) -> u64 {
        self.due.held().filter_map(|slot| self.get(slot)).map(|stream| stream.dirty_blocks).sum()
    }

    /// Notes that something of the stream waits to be written back or published.
    pub fn mark_dirty(&mut self, slot: usize) {
        self.due.mark(slot, self.now);
    }

    /// Drops all that is in memory of a stream.
    pub fn forget(&mut self, slot: usize) {
        let Some(stream) = self.entries.get_mut(slot).and_then(Option::take) else { return };
        self.slots.remove(&stream.id);
        if let Some(slots) = self.by_file.get_mut(&stream.id.file) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.by_file.remove(&stream.id.file);
            }
        }
        self.due.forget(slot);
        self.free_slots.push(slot);
    }

    /// Evicts segments until the cache is within its limit.
    pub fn evict(&mut self, bytes_max: usize) {
        for _ in 0..EVICTED_AT_ONCE {
            if self.cached_bytes + self.slots.len() * STREAM_BYTES <= bytes_max {
                break;
            }
            let Some((queue, (slot, block))) = self.eviction.next(bytes_max) else { break };
            let Some(stream) = self.entries.get_mut(slot).and_then(Option::as_mut) else { continue };
            match stream.segments.evict(block, queue) {
                Fate::Gone { bytes, sequence } => {
                    stream.evicted_sequence = stream.evicted_sequence.max(sequence);
                    let (id, idle) = (stream.id, stream.is_idle());
                    self.cached_bytes -= bytes;
                    self.eviction.left(queue, bytes);
                    self.eviction.gone(queue, eviction::name(id.file.0, id.index, block));
                    if idle {
                        self.forget(slot);
                    }
                }
                Fate::Kept { probation_bytes } => self.eviction.keep((slot, block), probation_bytes),
                Fate::Busy => self.eviction.pass(queue, (slot, block)),
                Fate::Unknown => {}
            }
        }
    }

    /// Drops stale entries of the eviction queues, and idle streams beyond the limit: some at a time, since
    /// there may be very many that are not idle.
    pub fn tidy(&mut self) {
        if self.slots.len() > STREAMS_MAX {
            for _ in 0..STREAMS_AT_ONCE {
                self.idle_hand = (self.idle_hand + 1) % self.entries.len().max(1);
                if self.entries.get(self.idle_hand).and_then(Option::as_ref).is_some_and(Stream::is_idle) {
                    self.forget(self.idle_hand);
                }
            }
        }
        let segments: usize = self.slots.len() + self.cached_bytes / BLOCK_BYTES;
        if self.eviction.len() > 2 * segments + 4096 {
            let streams = &self.entries;
            self.eviction.retain(|queue, (slot, block)| {
                let stream = streams.get(slot).and_then(Option::as_ref);
                stream.is_some_and(|stream| stream.segments.is_queued(block, queue))
            });
        }
    }
}

/// Changes a stream's size in the metadata: bytes to its end, and a difference in blocks. Returns its
/// blocks then. Also stores times that changed in memory.
pub fn put_sizes(
    base: &mut Base,
    txn: &mut Transaction,
    stream: StreamId,
    end_of_file: u64,
    more_blocks: i64,
) -> Result<u64, FsError> {
    let lazy = base.times.get(stream.file);
    let Metadata { store, quotas, .. } = &mut base.meta;
    let mut inode = inode(store, txn, stream.file)?;
    let charged = (stream.file, inode.security);
    let blocks = if stream.index == 0 {
        let before = charge_of_inode(&inode);
        inode.end_of_file = end_of_file;
        inode.allocated_blocks = inode.allocated_blocks.saturating_add_signed(more_blocks);
        quotas.charge(store, txn, charged, (before, charge_of_inode(&inode)))?;
        inode.allocated_blocks
    } else {
        let mut record = stream_record(store, txn, stream)?;
        let before = charge_of_stream(&record);
        record.end_of_file = end_of_file;
        record.allocated_blocks = record.allocated_blocks.saturating_add_signed(more_blocks);
        quotas.charge(store, txn, charged, (before, charge_of_stream(&record)))?;
        txn.put(key::stream(stream), record.encode());
        record.allocated_blocks
    };
    if stream.index == 0 || lazy.is_some() {
        if let Some(lazy) = lazy {
            apply(&mut inode, &lazy);
        }
        put_inode(txn, stream.file, &inode);
    }
    Ok(blocks)
}
