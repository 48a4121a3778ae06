//! Reads: from the cache, from the virtual disk, and ahead of a sequential reader.

use std::collections::HashMap;

use ::types::{BLOCK_BYTES, Lba};
use smallvec::SmallVec;
use space::api::SpaceRequest;
use sys::{Buf, BufMut, Payload};

use super::BLOCK;
use super::extents;
use super::segments::{Piece, SegmentState};
use super::streams::Streams;
use crate::fs::base::Base;
use crate::fs::io::{Answer, Purpose};
use crate::fs::meta::Transaction;
use crate::fs::types::{FsError, FsEvent, StreamId};

/// Blocks read ahead of one reader at most: 8 MiB, or an eighth of the cache.
const AHEAD_BLOCKS_MAX: u64 = 2048;

/// Limit of blocks being read ahead, over all streams: 64 MiB, or a quarter of the cache.
const AHEAD_BLOCKS_TOTAL: u64 = 16_384;

/// Read-ahead goes in parts that end at multiples of this: readers wait for no more than they need.
const AHEAD_PIECE_BLOCKS: u64 = 256;

/// Length from which parts of a read are cached as they arrive; shorter ones are copied together.
const SEGMENT_BYTES_LEAST: usize = 32 << 10;

/// Cached parts of a read shorter than this on average are copied together for the next reader: sending many short ones costs more.
const CACHED_BYTES_LEAST: usize = 16 << 10;

/// Part of a read job, in order.
#[derive(Debug)]
enum Part {
    Here(Payload),
    /// Blocks from the virtual disk, first block and count.
    Asked(u64, u64),
}

/// A part to be read: its number, its place and its blocks.
type Request = (usize, Lba, u32);

/// Reason for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Reader,
    /// A partial write.
    Writer,
    Ahead,
}

/// Bytes that clients have read, by where they were when the read came. Each read counts once, whole, and also if it fails in the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered {
    /// Bytes from memory or a hole, without a read of a disk.
    pub from_cache_bytes: u64,
    /// Bytes at least partly on disks, or being read from there.
    pub from_disk_bytes: u64,
}

/// Blocks being read.
#[derive(Debug)]
struct ReadJob {
    /// `None`: for the cache only.
    token: Option<u64>,
    why: Why,
    /// Reads of the same blocks that wait for it.
    waiting: Vec<ParkedRead>,
    slot: usize,
    stream: StreamId,
    generation: u64,
    /// Number of the last write when it began.
    sequence: u64,
    first_block: u64,
    /// Bytes asked for.
    offset: u64,
    len: u64,
    parts: Vec<Part>,
    left: usize,
    error: Option<FsError>,
}

/// A read that is tried again from its beginning.
#[derive(Debug, Clone, Copy)]
pub struct ParkedRead {
    pub token: u64,
    pub stream: StreamId,
    pub offset: u64,
    pub len_bytes: u32,
}

/// A range to be gathered: blocks, and of these the bytes asked for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    slot: usize,
    why: Why,
    read: Option<ParkedRead>,
    from: u64,
    to: u64,
    offset: u64,
    len: u64,
}

impl Wanted {
    /// Whole blocks, for the cache only.
    fn blocks(slot: usize, why: Why, from: u64, to: u64) -> Self {
        Self { slot, why, read: None, from, to, offset: from * BLOCK, len: (to - from) * BLOCK }
    }
}

/// Reads of blocks under way.
///
/// Each job has a number of the allocator's: blocks that are freed meanwhile are not reused before it ends. The stream's `fetching` has
/// the range of each job, so that nothing is read twice. `ahead_blocks` are the blocks of jobs that read ahead.
#[derive(Debug)]
pub struct Reads {
    jobs: HashMap<u64, ReadJob>,
    ahead_blocks: u64,
    /// Blocks whose load for a partial write failed.
    load_errors: HashMap<(usize, u64), FsError>,
    zeroes: Buf,
    answered: Answered,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            jobs: HashMap::new(),
            ahead_blocks: 0,
            load_errors: HashMap::new(),
            zeroes: BufMut::zeroed(1 << 20).freeze(),
            answered: Answered::default(),
        }
    }
}

impl Reads {
    /// Bytes that clients have read, by where they were.
    pub fn answered(&self) -> Answered {
        self.answered
    }

    /// Answers a read from memory; else a job reads the bytes, and [`FsEvent::Read`] has them. A read that
    /// is not new was parked, and does not count as one more of a sequence.
    ///
    /// # Errors
    /// `Miss` if the caller has to retry.
    pub fn read(
        &mut self,
        read: ParkedRead,
        is_new: bool,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Result<Option<Payload>, FsError> {
        let ParkedRead { stream: id, offset, len_bytes, .. } = read;
        base.ready()?;
        let slot = streams.slot(id, base)?;
        let Some(stream) = streams.stream(slot) else { return Err(FsError::NotFound) };
        let len = u64::from(len_bytes).min(stream.end_of_file.saturating_sub(offset));
        if len == 0 {
            return Ok(Some(Payload::new()));
        }
        let (from, to) = (offset / BLOCK, (offset + len).div_ceil(BLOCK));
        if let Some((start, segment)) = stream.segments.covering(from)
            && start + segment.blocks() >= to
        {
            segment.note_read(to - start);
            let at = (offset - start * BLOCK) as usize;
            let data = segment.data.slice(at..at + len as usize);
            if is_new {
                self.answered.from_cache_bytes += len;
                self.read_ahead(slot, from, to, streams, base);
            }
            return Ok(Some(data.into()));
        }
        let wanted = Wanted { slot, why: Why::Reader, read: Some(read), from, to, offset, len };
        let data = self.start(wanted, streams, base);
        if is_new {
            match &data {
                Ok(Some(_)) => self.answered.from_cache_bytes += len,
                Ok(None) | Err(FsError::Miss) => self.answered.from_disk_bytes += len,
                Err(_) => {}
            }
        }
        let data = data?;
        if is_new {
            self.read_ahead(slot, from, to, streams, base);
        }
        Ok(data)
    }

    /// Gathers a range of blocks, reads missing ones. The bytes if none are missing.
    fn start(
        &mut self,
        wanted: Wanted,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Result<Option<Payload>, FsError> {
        let Wanted { slot, why, read, from, to, offset, len } = wanted;
        let Some(stream) = streams.stream(slot) else { return Err(FsError::NotFound) };
        let (id, generation) = (stream.id, stream.generation);
        let mut pieces = Vec::new();
        stream.segments.gather(from, to, why == Why::Reader, |block, piece| pieces.push((block, piece)));
        if why != Why::Writer
            && let Some(job) = being_fetched(&stream.fetching, &pieces)
        {
            // The blocks are being read already: nothing is read twice.
            if let (Some(read), Some(job)) = (read, self.jobs.get_mut(&job)) {
                job.waiting.push(read);
            }
            return Ok(None);
        }
        if why == Why::Reader && is_scattered(&pieces, to - from) && !stream.segments.has_unstored(from, to) {
            let whole = streams.put_together(slot, from, pieces);
            let at = (offset - from * BLOCK) as usize;
            return Ok(Some(whole.slice(at..at + len as usize).into()));
        }
        let (parts, requests) = self.find(pieces, id, base)?;
        let job = ReadJob {
            token: read.map(|read| read.token),
            why,
            waiting: Vec::new(),
            slot,
            stream: id,
            generation,
            sequence: streams.sequence,
            first_block: from,
            offset,
            len,
            parts,
            left: requests.len(),
            error: None,
        };
        if requests.is_empty() {
            return Ok(Some(job.assemble()));
        }
        self.submit(job, requests, streams, base);
        Ok(None)
    }

    /// Finds the places of blocks that are missing: all parts of a read, and requests for those that are not here.
    fn find(
        &self,
        pieces: Vec<(u64, Piece)>,
        id: StreamId,
        base: &mut Base,
    ) -> Result<(Vec<Part>, Vec<Request>), FsError> {
        let mut parts = Vec::new();
        let mut requests: Vec<Request> = Vec::new();
        for (_, piece) in pieces {
            let (gap_from, gap_to) = match piece {
                Piece::Cached(data) => {
                    parts.push(Part::Here(data.into()));
                    continue;
                }
                Piece::Gap(from, to) => (from, to),
            };
            let store = &mut base.meta.store;
            for mapped in extents::map(store, &Transaction::new(), id, gap_from, gap_to)? {
                match mapped.extent {
                    Some(extent) if !extent.unwritten => {
                        requests.push((parts.len(), extent.lba, extent.blocks));
                        parts.push(Part::Asked(mapped.block, mapped.blocks));
                    }
                    _ => parts.push(Part::Here(self.zeroes_of(mapped.blocks * BLOCK))),
                }
            }
        }
        Ok((parts, requests))
    }

    fn submit(&mut self, job: ReadJob, requests: Vec<Request>, streams: &mut Streams, base: &mut Base) {
        let number = base.meta.allocator.begin_read();
        let (from, to) = (job.first_block, (job.offset + job.len).div_ceil(BLOCK));
        if job.why == Why::Ahead {
            self.ahead_blocks += to - from;
        }
        if let Some(stream) = streams.stream(job.slot) {
            stream.fetching.push((from, to, number));
        }
        self.jobs.insert(number, job);
        for (part, lba, blocks) in requests {
            let read = SpaceRequest::Read { lba, blocks, copy: None };
            base.requests.submit(Purpose::Read { job: number, part }, read);
        }
    }

    /// Zeroes, at most a MiB of them.
    pub fn zeroes(&self, len: usize) -> Buf {
        self.zeroes.slice(..len)
    }

    /// Zeroes without memory of their own.
    fn zeroes_of(&self, len: u64) -> Payload {
        let mut out = Payload::new();
        let mut left = len as usize;
        while left > 0 {
            let take = left.min(self.zeroes.len());
            out.push(self.zeroes.slice(..take));
            left -= take;
        }
        out
    }

    /// Brings blocks into the cache.
    ///
    /// # Errors
    /// `Miss` while they are being read.
    pub fn load(
        &mut self,
        slot: usize,
        from: u64,
        to: u64,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Result<(), FsError> {
        if let Some(error) = self.load_errors.remove(&(slot, from)) {
            return Err(error);
        }
        let loads = |job: &ReadJob| job.token.is_none() && job.slot == slot && job.covers(from, to);
        if self.jobs.values().any(loads)
            || self.start(Wanted::blocks(slot, Why::Writer, from, to), streams, base)?.is_none()
        {
            return Err(FsError::Miss);
        }
        Ok(())
    }

    fn read_ahead(&mut self, slot: usize, from: u64, to: u64, streams: &mut Streams, base: &mut Base) {
        let cache_blocks = base.config.cache_bytes as u64 / BLOCK;
        let Some(stream) = streams.stream(slot) else { return };
        let last = stream.end_of_file.div_ceil(BLOCK);
        let Some((mut at, end)) = stream.readers.note(from, to, last, AHEAD_BLOCKS_MAX.min(cache_blocks / 8))
        else {
            return;
        };
        while at < end {
            let piece_end = ((at / AHEAD_PIECE_BLOCKS + 1) * AHEAD_PIECE_BLOCKS).min(end);
            let is_much = self.ahead_blocks >= AHEAD_BLOCKS_TOTAL.min(cache_blocks / 4);
            // If pages of the map are missing, the reader itself will load them.
            if is_much || self.start(Wanted::blocks(slot, Why::Ahead, at, piece_end), streams, base).is_err()
            {
                if let Some(stream) = streams.stream(slot) {
                    stream.readers.take_back(at);
                }
                return;
            }
            at = piece_end;
        }
    }

    /// Takes an answer to a request of a job, and answers the job's reader after the last one. Returns
    /// reads that waited for the same blocks: they run again, and read blocks that failed or were not
    /// cached.
    #[must_use]
    pub fn handle(
        &mut self,
        number: u64,
        part: usize,
        answer: Answer,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Vec<ParkedRead> {
        let Some(job) = self.jobs.get_mut(&number) else { return Vec::new() };
        if let Some(block) = job.take(part, answer) {
            job.cache(part, block, streams);
        }
        if job.left > 0 {
            return Vec::new();
        }
        base.meta.allocator.end_read(number);
        let Some(mut job) = self.jobs.remove(&number) else { return Vec::new() };
        if job.why == Why::Ahead {
            self.ahead_blocks -= job.len / BLOCK;
        }
        if let Some(stream) = streams.stream(job.slot) {
            stream.fetching.retain(|&(.., other)| other != number);
        }
        let waiting = std::mem::take(&mut job.waiting);
        match (job.token, &job.error) {
            (Some(token), None) => {
                base.agenda.events.push_back(FsEvent::Read { token, result: Ok(job.assemble()) });
            }
            (Some(token), Some(error)) => {
                base.agenda.events.push_back(FsEvent::Read { token, result: Err(error.clone()) });
            }
            (None, error) => {
                if job.why == Why::Writer {
                    if let Some(error) = error {
                        self.load_errors.insert((job.slot, job.first_block), error.clone());
                    }
                    base.agenda.wake();
                }
            }
        }
        waiting
    }

    /// Ends all jobs; the tokens of the reads that they would have answered.
    pub fn fail(&mut self) -> Vec<u64> {
        let jobs = std::mem::take(&mut self.jobs).into_values();
        jobs.flat_map(|job| job.token.into_iter().chain(job.waiting.into_iter().map(|read| read.token)))
            .collect()
    }
}

/// A job that brings some of the missing blocks.
fn being_fetched(fetching: &[(u64, u64, u64)], pieces: &[(u64, Piece)]) -> Option<u64> {
    fetching.iter().find_map(|&(from, to, job)| {
        let missing = |piece: &Piece| matches!(*piece, Piece::Gap(start, end) if start < to && from < end);
        pieces.iter().any(|(_, piece)| missing(piece)).then_some(job)
    })
}

impl ReadJob {
    /// Takes the answer for a part. Returns the first block of a part that has arrived.
    fn take(&mut self, part: usize, answer: Answer) -> Option<u64> {
        self.left -= 1;
        match (self.parts.get_mut(part), answer) {
            (Some(place), Ok(data)) => match *place {
                Part::Asked(block, blocks) if data.len() as u64 == blocks * BLOCK => {
                    *place = Part::Here(data);
                    return Some(block);
                }
                _ => self.error = Some(FsError::damaged("a read of another length")),
            },
            (_, Err(error)) => self.error = Some(error),
            (None, Ok(_)) => debug_assert!(false, "an answer to no request"),
        }
        None
    }

    /// Caches the blocks read, unless the stream's map changed meanwhile or the cache has newer ones. Cuts
    /// them at the stream's end.
    fn cache(&mut self, part: usize, block: u64, streams: &mut Streams) {
        let Some(Part::Here(place)) = self.parts.get_mut(part) else { return };
        // The stream may be gone, and its slot another's.
        let Some(stream) = streams.get(self.slot).filter(|stream| stream.id == self.stream) else { return };
        let data = std::mem::take(place);
        // A write since then may have been stored and evicted already: then these bytes are old.
        let unchanged = stream.generation == self.generation && stream.evicted_sequence <= self.sequence;
        let end = stream.end_of_file;
        let mut at = block;
        for data in segments_of(&data) {
            let data = cut_at(data, at * BLOCK, end);
            if unchanged {
                cache_segment(self.slot, at, &data, self.why != Why::Ahead, streams);
            }
            at += data.len() as u64 / BLOCK;
            place.push(data);
        }
    }

    fn covers(&self, from: u64, to: u64) -> bool {
        self.first_block <= from && to <= self.first_block + self.len / BLOCK
    }

    fn assemble(&self) -> Payload {
        let mut whole = Payload::new();
        for part in &self.parts {
            if let Part::Here(data) = part {
                whole.append(data.clone());
            }
        }
        let skip = (self.offset - self.first_block * BLOCK) as usize;
        whole.slice(skip, self.len as usize)
    }
}

/// Puts blocks into the cache, except for those already in it.
fn cache_segment(slot: usize, block: u64, data: &Buf, read: bool, streams: &mut Streams) {
    let Some(stream) = streams.stream(slot) else { return };
    let mut gaps: SmallVec<[(u64, u64); 2]> = SmallVec::new();
    stream.segments.gather(block, block + data.len() as u64 / BLOCK, false, |_, piece| {
        if let Piece::Gap(from, to) = piece {
            gaps.push((from, to));
        }
    });
    for (from, to) in gaps {
        let bytes = ((from - block) * BLOCK) as usize..((to - block) * BLOCK) as usize;
        streams.insert(slot, from, data.slice(bytes), SegmentState::Clean, read);
    }
}

/// Whether a range of this length is in memory in many short segments.
fn is_scattered(pieces: &[(u64, Piece)], blocks: u64) -> bool {
    let bytes = blocks as usize * BLOCK_BYTES;
    bytes >= SEGMENT_BYTES_LEAST
        && bytes < pieces.len() * CACHED_BYTES_LEAST
        && pieces.iter().all(|(_, piece)| matches!(piece, Piece::Cached(_)))
}

/// The bytes as page-aligned buffers of whole blocks: copied only if they are not that already, or are in small parts.
fn segments_of(data: &Payload) -> SmallVec<[Buf; 2]> {
    let is_only = data.parts().len() == 1;
    let fits = |part: &Buf| {
        part.is_aligned()
            && part.len().is_multiple_of(BLOCK_BYTES)
            && (is_only || part.len() >= SEGMENT_BYTES_LEAST)
            && part.retained_bytes() <= 2 * part.len()
    };
    if data.parts().iter().all(fits) {
        return data.parts().iter().cloned().collect();
    }
    let mut copy = BufMut::for_overwrite(data.len());
    data.copy_to(&mut copy);
    smallvec::smallvec![copy.freeze()]
}

/// Bytes behind a stream's end as zeroes.
fn cut_at(data: Buf, position: u64, end: u64) -> Buf {
    let keep = end.saturating_sub(position);
    if keep >= data.len() as u64 {
        return data;
    }
    let mut copy = BufMut::zeroed(data.len());
    let keep = keep as usize;
    copy[..keep].copy_from_slice(&data[..keep]);
    copy.freeze()
}
