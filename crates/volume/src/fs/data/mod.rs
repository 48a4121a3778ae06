//! Data of streams: cache, reads, writes, write-back, and changes of a stream's shape.
//!
//! A stream that is in use has its sizes and cached blocks in memory. A write goes into the cache; write-back takes
//! runs of dirty blocks, finds or reserves their place, writes them, and publishes new extents and sizes with one
//! transaction. Bytes behind the end of a stream are zeroes in the cache always; on disk they may be anything, which is
//! why blocks are cut at the end when they are read, and why growing a stream rewrites its last block.

mod ahead;
mod drain;
mod due;
mod eviction;
mod extents;
mod read;
mod reclaim;
mod segments;
mod settle;
mod shape;
mod waiters;
mod write;
mod writeback;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use ::types::{BLOCK_BYTES, Monotonic};
use smallvec::SmallVec;
use sys::{Buf, BufMut, Payload};

use super::FileSystem;
use super::meta::{Transaction, key};
use super::types::{FileId, Format, FsError, FsEvent, StreamId};
use crate::planted::Planted;
use ahead::Readers;
use drain::Drain;
use due::{Overdue, Trouble};
use eviction::{Eviction, Queue};
use read::{Answered, ReadJob};
use segments::{Fate, Piece, Removed, SegmentState, Segments};
use settle::Settling;
use waiters::Waiter;
use writeback::WriteJob;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Largest stream in bytes: 2^60.
pub const STREAM_BYTES_MAX: u64 = 1 << 60;

/// Streams kept in memory before idle ones are forgotten.
const STREAMS_MAX: usize = 65_536;

/// Streams looked at in one go, once there are more.
const STREAMS_AT_ONCE: usize = 64;

/// Memory of a stream with a few blocks, beside the blocks, in bytes, about.
const STREAM_BYTES: usize = 1536;

/// Segments looked at in one go when room is made in the cache.
const EVICTED_AT_ONCE: usize = 4096;

/// A stream in memory.
#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// As clients see it.
    end_of_file: u64,
    /// As metadata says, and so a crash leaves it.
    published_end: u64,
    /// As metadata says.
    allocated_blocks: u64,
    segments: Segments,
    dirty_blocks: u64,
    /// Write-back jobs under way.
    jobs: Busy,
    /// Where the next block would continue the last allocation: block and its place.
    goal: Option<(u64, ::types::Lba)>,
    /// Ticket of the last transaction that changed its map or its sizes.
    ticket: u64,
    /// Grows with every change of the map other than by write-back: what was read before is not cached.
    generation: u64,
    /// At this generation, no block before this one was a hole.
    whole: (u64, u64),
    /// The last write of which a part was evicted from memory: reads that began before it may carry older bytes.
    evicted_sequence: u64,
    readers: Readers,
    /// Reads under way: first block, end and job.
    fetching: Vec<(u64, u64, u64)>,
    /// No names any more: nothing is written back.
    reclaimed: bool,
}

/// Ranges of blocks that jobs work in; none overlap.
#[derive(Debug, Default)]
struct Busy {
    /// By first block: end and job.
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl Busy {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn overlaps(&self, from: u64, to: u64) -> bool {
        self.ranges.range(..to).next_back().is_some_and(|(_, (end, _))| *end > from)
    }

    /// Whether a job works before a block.
    fn before(&self, block: u64) -> bool {
        self.ranges.first_key_value().is_some_and(|(from, _)| *from < block)
    }

    /// Jobs that work in a range.
    fn in_range(&self, from: u64, to: u64) -> Vec<u64> {
        let first = self.ranges.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let within = self.ranges.range(first..to.max(first));
        within.filter(|(_, (end, _))| *end > from).map(|(_, (_, job))| *job).collect()
    }
}

impl Stream {
    /// Whether nothing would be lost by forgetting it.
    fn is_idle(&self) -> bool {
        self.segments.is_empty()
            && self.jobs.is_empty()
            && self.fetching.is_empty()
            && self.end_of_file == self.published_end
    }
}

/// Requests that wait for something to come into memory or to be written.
#[derive(Debug)]
enum Parked {
    Read(ParkedRead),
    Write { token: u64, stream: StreamId, offset: u64, data: Payload, durable: bool },
}

/// A read that is tried again from its beginning.
#[derive(Debug, Clone, Copy)]
struct ParkedRead {
    token: u64,
    stream: StreamId,
    offset: u64,
    len_bytes: u32,
}

/// All of it.
#[derive(Debug)]
pub struct Data {
    /// Of a volume being made.
    pub format: Option<Format>,
    streams: Vec<Option<Stream>>,
    free_slots: Vec<usize>,
    slots: HashMap<StreamId, usize>,
    by_file: HashMap<FileId, SmallVec<[usize; 2]>>,
    /// Streams with something to write back or to publish, and since when, oldest first.
    dirty_streams: BTreeSet<usize>,
    dirty_queue: VecDeque<(Monotonic, usize)>,
    overdue: VecDeque<Overdue>,
    trouble: Trouble,
    pub now: Monotonic,
    cached_bytes: usize,
    dirty_blocks: u64,
    eviction: Eviction,
    /// The next stream to look at for being idle.
    idle_hand: usize,
    /// Number of the last write.
    sequence: u64,
    reads: HashMap<u64, ReadJob>,
    /// Reads of blocks under way, by number.
    reading: BTreeSet<u64>,
    /// Blocks on their way ahead of readers.
    ahead_blocks: u64,
    next_job: u64,
    jobs: BTreeMap<u64, WriteJob>,
    /// Blocks in jobs under way.
    writing_blocks: u64,
    /// Of these, in jobs that have no place yet.
    unplanned_blocks: u64,
    drain: Drain,
    /// Jobs that wait to be planned, or to be published.
    to_plan: VecDeque<u64>,
    to_publish: VecDeque<u64>,
    waiters: BTreeMap<u64, Waiter>,
    /// Waiters by the ticket they wait for.
    tickets: BTreeMap<(u64, u64), ()>,
    /// Waiters that may go on.
    to_advance: VecDeque<u64>,
    next_waiter: u64,
    parked: VecDeque<Parked>,
    /// Files whose data something waits for.
    settling: HashMap<FileId, Settling>,
    /// Blocks whose load for a partial write failed.
    load_errors: HashMap<(usize, u64), FsError>,
    orphans: VecDeque<StreamId>,
    zeroes: Buf,
    answered: Answered,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            format: None,
            streams: Vec::new(),
            free_slots: Vec::new(),
            slots: HashMap::new(),
            by_file: HashMap::new(),
            dirty_streams: BTreeSet::new(),
            dirty_queue: VecDeque::new(),
            overdue: VecDeque::new(),
            trouble: Trouble::default(),
            now: Monotonic::default(),
            cached_bytes: 0,
            dirty_blocks: 0,
            eviction: Eviction::default(),
            idle_hand: 0,
            sequence: 0,
            reads: HashMap::new(),
            reading: BTreeSet::new(),
            ahead_blocks: 0,
            next_job: 1,
            jobs: BTreeMap::new(),
            writing_blocks: 0,
            unplanned_blocks: 0,
            drain: Drain::default(),
            to_plan: VecDeque::new(),
            to_publish: VecDeque::new(),
            waiters: BTreeMap::new(),
            tickets: BTreeMap::new(),
            to_advance: VecDeque::new(),
            next_waiter: 1,
            parked: VecDeque::new(),
            settling: HashMap::new(),
            load_errors: HashMap::new(),
            orphans: VecDeque::new(),
            zeroes: BufMut::zeroed(1 << 20).freeze(),
            answered: Answered::default(),
        }
    }
}

impl Data {
    pub fn cached_bytes(&self) -> u64 {
        self.cached_bytes as u64
    }

    pub fn dirty_bytes(&self) -> u64 {
        (self.dirty_blocks + self.writing_blocks) * BLOCK
    }

    /// Bytes that clients have read, by where they were.
    pub fn answered(&self) -> Answered {
        self.answered
    }

    /// Reads that begin from here on have at least this number.
    pub fn next_read_number(&self) -> u64 {
        self.next_job
    }

    fn job_number(&mut self) -> u64 {
        self.next_job += 1;
        self.next_job - 1
    }

    fn stream(&mut self, slot: usize) -> Option<&mut Stream> {
        self.streams.get_mut(slot).and_then(Option::as_mut)
    }

    /// Counts what was taken out of a stream's segments.
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

    /// Puts blocks into a stream's cache; `read`: a reader has them already.
    fn insert(&mut self, slot: usize, block: u64, data: Buf, state: SegmentState, read: bool) {
        let sequence = if state == SegmentState::Clean { 0 } else { self.sequence };
        self.insert_numbered(slot, block, data, (state, sequence), read);
    }

    /// Puts cached pieces, clean and one behind the other, into one segment in their place.
    fn put_together(&mut self, slot: usize, from: u64, pieces: Vec<(u64, Piece)>) -> Buf {
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
        let Some(stream) = self.streams.get_mut(slot).and_then(Option::as_mut) else { return };
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

    /// A block that was made dirty lies on disk well enough.
    fn make_clean(&mut self, slot: usize, block: u64) {
        let Some(stream) = self.stream(slot) else { return };
        let blocks = stream.segments.make_clean(block);
        stream.dirty_blocks -= blocks;
        self.dirty_blocks -= blocks;
    }

    /// Takes a range out of a stream's cache, dirty or not.
    fn cut(&mut self, slot: usize, from: u64, to: u64) -> Removed {
        let Some(stream) = self.stream(slot) else { return Removed::default() };
        let removed = stream.segments.cut(from, to);
        self.account_removed(slot, removed);
        removed
    }

    /// Something of the stream waits to be written back or published.
    fn mark_dirty(&mut self, slot: usize) {
        self.mark_dirty_since(slot, self.now);
    }

    /// The same, of what is as old as that.
    fn mark_dirty_since(&mut self, slot: usize, since: Monotonic) {
        if self.dirty_streams.insert(slot) {
            let at = self.dirty_queue.partition_point(|&(other, _)| other <= since);
            self.dirty_queue.insert(at, (since, slot));
        }
    }

    fn forget(&mut self, slot: usize) {
        let Some(stream) = self.streams.get_mut(slot).and_then(Option::take) else { return };
        self.slots.remove(&stream.id);
        if let Some(slots) = self.by_file.get_mut(&stream.id.file) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.by_file.remove(&stream.id.file);
            }
        }
        if self.dirty_streams.remove(&slot) {
            self.dirty_queue.retain(|&(_, other)| other != slot);
            self.overdue.retain(|other| other.slot != slot);
        }
        self.free_slots.push(slot);
    }

    /// Makes room in the cache.
    fn evict(&mut self, bytes_max: usize) {
        for _ in 0..EVICTED_AT_ONCE {
            if self.cached_bytes + self.slots.len() * STREAM_BYTES <= bytes_max {
                break;
            }
            let Some((queue, (slot, block))) = self.eviction.next(bytes_max) else { break };
            let Some(stream) = self.streams.get_mut(slot).and_then(Option::as_mut) else { continue };
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

    /// Drops entries of the eviction queues that stand for nothing any more, and idle streams beyond the limit: some at a time,
    /// since there may be very many that are not idle.
    fn tidy(&mut self) {
        if self.slots.len() > STREAMS_MAX {
            for _ in 0..STREAMS_AT_ONCE {
                self.idle_hand = (self.idle_hand + 1) % self.streams.len().max(1);
                if self.streams.get(self.idle_hand).and_then(Option::as_ref).is_some_and(Stream::is_idle) {
                    self.forget(self.idle_hand);
                }
            }
        }
        let segments: usize = self.slots.len() + self.cached_bytes / BLOCK_BYTES;
        if self.eviction.len() > 2 * segments + 4096 {
            let streams = &self.streams;
            self.eviction.retain(|queue, (slot, block)| {
                let stream = streams.get(slot).and_then(Option::as_ref);
                stream.is_some_and(|stream| stream.segments.is_queued(block, queue))
            });
        }
    }
}

impl FileSystem {
    /// End of file and allocation in bytes, as clients see them.
    pub(super) fn stream_sizes(&self, stream: StreamId, end_of_file: u64, blocks: u64) -> (u64, u64) {
        let in_memory = self.data.slots.get(&stream).and_then(|slot| self.data.streams[*slot].as_ref());
        match in_memory {
            // What is dirty may lie over what is allocated: an estimate from above, never below the stored one.
            Some(stream) => {
                let blocks = stream.allocated_blocks;
                let needed = stream.end_of_file.div_ceil(BLOCK);
                let dirty = stream.dirty_blocks.min(needed.saturating_sub(blocks));
                (stream.end_of_file, (blocks + dirty) * BLOCK)
            }
            None => (end_of_file, blocks * BLOCK),
        }
    }

    /// The stream's place in memory, looked up where it is not there yet.
    fn slot(&mut self, id: StreamId) -> Result<usize, FsError> {
        if let Some(slot) = self.data.slots.get(&id) {
            return Ok(*slot);
        }
        let txn = Transaction::new();
        let (end_of_file, allocated_blocks) = if id.index == 0 {
            let inode = self.inode(&txn, id.file)?;
            if inode.directory {
                return Err(FsError::IsDirectory);
            }
            (inode.end_of_file, inode.allocated_blocks)
        } else {
            let record = self.stream_record(&txn, id)?;
            (record.end_of_file, record.allocated_blocks)
        };
        let stream = Stream {
            id,
            end_of_file,
            published_end: end_of_file,
            allocated_blocks,
            segments: Segments::default(),
            dirty_blocks: 0,
            jobs: Busy::default(),
            goal: None,
            ticket: 0,
            generation: 0,
            whole: (0, 0),
            evicted_sequence: self.data.sequence,
            readers: Readers::default(),
            fetching: Vec::new(),
            reclaimed: false,
        };
        let slot = match self.data.free_slots.pop() {
            Some(slot) => {
                self.data.streams[slot] = Some(stream);
                slot
            }
            None => {
                self.data.streams.push(Some(stream));
                self.data.streams.len() - 1
            }
        };
        self.data.slots.insert(id, slot);
        self.data.by_file.entry(id.file).or_default().push(slot);
        Ok(slot)
    }

    /// Changes what metadata says of a stream's size: bytes to its end, blocks more or less. Times that changed in
    /// memory go along.
    fn put_sizes(
        &mut self,
        txn: &mut Transaction,
        stream: StreamId,
        end_of_file: u64,
        more_blocks: i64,
    ) -> Result<u64, FsError> {
        let lazy = self.lazy_times.get(&stream.file).copied();
        let mut inode = self.inode(txn, stream.file)?;
        let blocks = if stream.index == 0 {
            inode.end_of_file = end_of_file;
            inode.allocated_blocks = inode.allocated_blocks.saturating_add_signed(more_blocks);
            inode.allocated_blocks
        } else {
            let mut record = self.stream_record(txn, stream)?;
            record.end_of_file = end_of_file;
            record.allocated_blocks = record.allocated_blocks.saturating_add_signed(more_blocks);
            txn.put(key::stream(stream), record.encode());
            record.allocated_blocks
        };
        if stream.index == 0 || lazy.is_some() {
            if let Some(lazy) = lazy {
                super::namespace::apply(&mut inode, &lazy);
            }
            Self::put_inode(txn, stream.file, &inode);
        }
        Ok(blocks)
    }

    /// The oldest change in memory wants to be written by then.
    pub(super) fn data_timeout(&self) -> Option<Monotonic> {
        let lazy = (!self.lazy_times.is_empty()).then_some(self.lazy_since).flatten();
        // Those that are overdue go with the data, once writes may be tried again.
        let lazy = lazy.map(|since| since.after(due::DIRTY_DELAY)).filter(|at| *at > self.now);
        [self.data.due_at(), lazy].into_iter().flatten().min()
    }

    /// Carries on reads, writes, write-back and waiters.
    pub(super) fn pump_data(&mut self) {
        if std::mem::take(&mut self.data_retry) {
            self.run_parked();
            for job in std::mem::take(&mut self.data.to_plan) {
                self.plan(job);
            }
            self.advance_waiters();
        }
        self.publish_jobs();
        self.start_due_writeback();
        self.advance_waiters();
        self.settle_freed();
        self.pump_reclaim();
        self.data.evict(self.config.cache_bytes);
        self.data.tidy();
    }

    fn settle_freed(&mut self) {
        let oldest = self.data.reading.first().copied().unwrap_or(u64::MAX);
        let early = Planted::AllocatorReuseEarly.is_planted();
        let durable = if early { u64::MAX } else { self.log.durable_ticket() };
        if self.allocator.settle(durable, oldest) {
            self.chunk_changes.blocks_were_freed = true;
            self.wake();
        }
    }

    /// What missed may run again, here and at the caller's.
    pub(super) fn wake(&mut self) {
        self.retry = true;
        self.data_retry = true;
    }

    fn run_parked(&mut self) {
        for parked in std::mem::take(&mut self.data.parked) {
            match parked {
                Parked::Read(read) => self.read_again(read),
                Parked::Write { token, stream, offset, data, durable } => {
                    if let std::task::Poll::Ready(result) = self.write(token, stream, offset, data, durable) {
                        self.events.push_back(FsEvent::Written { token, result });
                    }
                }
            }
        }
    }

    /// Answers everything that waits with an error.
    pub(super) fn fail_data(&mut self, error: &FsError) {
        for parked in std::mem::take(&mut self.data.parked) {
            self.events.push_back(match parked {
                Parked::Read(read) => FsEvent::Read { token: read.token, result: Err(error.clone()) },
                Parked::Write { token, .. } => FsEvent::Written { token, result: Err(error.clone()) },
            });
        }
        for (_, job) in std::mem::take(&mut self.data.reads) {
            for token in job.token.into_iter().chain(job.waiting.iter().map(|read| read.token)) {
                self.events.push_back(FsEvent::Read { token, result: Err(error.clone()) });
            }
        }
        for (_, waiter) in std::mem::take(&mut self.data.waiters) {
            self.events.push_back(waiter.event(Err(error.clone())));
        }
    }
}
