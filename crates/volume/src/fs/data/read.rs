//! Reads: from the cache, from the virtual disk, and ahead of a sequential reader.

use std::task::Poll;

use ::types::{BLOCK_BYTES, Lba};
use smallvec::SmallVec;
use space::api::SpaceRequest;
use sys::{Buf, BufMut, Payload};

use super::super::FileSystem;
use super::super::io::{Answer, Purpose};
use super::super::meta::Transaction;
use super::super::types::{FsError, FsEvent, StreamId};
use super::segments::{Piece, SegmentState};
use super::{BLOCK, Parked, ParkedRead, Stream};

/// Blocks read ahead of one reader at most: 8 MiB, or an eighth of the cache.
const AHEAD_BLOCKS_MAX: u64 = 2048;

/// Blocks on their way ahead of readers at most, over all streams: 64 MiB, or a quarter of the cache.
const AHEAD_BLOCKS_TOTAL: u64 = 16_384;

/// Reading ahead is done in pieces that end where a multiple of this does: readers wait for no more than they need.
const AHEAD_PIECE_BLOCKS: u64 = 256;

/// Parts of a read at least so long are kept in the cache as they come; shorter ones are copied together.
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

/// Who asked.
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
    /// In memory, or in a hole: no disk was asked.
    pub from_cache_bytes: u64,
    /// On disks at least in part, or on their way from there.
    pub from_disk_bytes: u64,
}

/// Blocks on their way.
#[derive(Debug)]
pub struct ReadJob {
    /// `None`: for the cache only.
    pub token: Option<u64>,
    why: Why,
    /// Reads of the same blocks that wait for it.
    pub waiting: Vec<ParkedRead>,
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

impl FileSystem {
    /// Reads: fewer bytes than asked where the stream ends, none at or behind its end. Sparse ranges read as zeroes.
    /// `Pending`: [`FsEvent::Read`] carries the answer.
    pub fn read(
        &mut self,
        token: u64,
        stream: StreamId,
        offset: u64,
        len_bytes: u32,
    ) -> Poll<Result<Payload, FsError>> {
        self.run_read(ParkedRead { token, stream, offset, len_bytes }, true)
    }

    fn run_read(&mut self, read: ParkedRead, is_new: bool) -> Poll<Result<Payload, FsError>> {
        match self.try_read(read, is_new) {
            Ok(Some(data)) => Poll::Ready(Ok(data)),
            Ok(None) => Poll::Pending,
            Err(FsError::Miss) => {
                self.data.parked.push_back(Parked::Read(read));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    pub(super) fn read_again(&mut self, read: ParkedRead) {
        if let Poll::Ready(result) = self.run_read(read, false) {
            self.events.push_back(FsEvent::Read { token: read.token, result });
        }
    }

    fn try_read(&mut self, read: ParkedRead, is_new: bool) -> Result<Option<Payload>, FsError> {
        let ParkedRead { stream: id, offset, len_bytes, .. } = read;
        self.ready()?;
        let slot = self.slot(id)?;
        let Some(stream) = self.data.stream(slot) else { return Err(FsError::NotFound) };
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
                self.data.answered.from_cache_bytes += len;
                self.read_ahead(slot, from, to);
            }
            return Ok(Some(data.into()));
        }
        let job = self.start_read(slot, Why::Reader, Some(read), (from, to), offset, len);
        if is_new {
            match &job {
                Ok(Some(_)) => self.data.answered.from_cache_bytes += len,
                Ok(None) | Err(FsError::Miss) => self.data.answered.from_disk_bytes += len,
                Err(_) => {}
            }
        }
        let job = job?;
        if is_new {
            self.read_ahead(slot, from, to);
        }
        Ok(job)
    }

    /// Gathers a range of blocks, reads what is missing. The bytes where nothing is.
    fn start_read(
        &mut self,
        slot: usize,
        why: Why,
        read: Option<ParkedRead>,
        (from, to): (u64, u64),
        offset: u64,
        len: u64,
    ) -> Result<Option<Payload>, FsError> {
        let Some(stream) = self.data.stream(slot) else { return Err(FsError::NotFound) };
        let (id, generation) = (stream.id, stream.generation);
        let mut pieces = Vec::new();
        stream.segments.gather(from, to, why == Why::Reader, |block, piece| pieces.push((block, piece)));
        if why != Why::Writer
            && let Some(job) = stream.being_fetched(&pieces)
        {
            // They are on their way already: nothing is read twice.
            if let (Some(read), Some(job)) = (read, self.data.reads.get_mut(&job)) {
                job.waiting.push(read);
            }
            return Ok(None);
        }
        if why == Why::Reader && is_scattered(&pieces, to - from) && !stream.segments.has_unstored(from, to) {
            let whole = self.data.put_together(slot, from, pieces);
            let at = (offset - from * BLOCK) as usize;
            return Ok(Some(whole.slice(at..at + len as usize).into()));
        }
        let mut parts = Vec::new();
        let mut requests: Vec<(usize, Lba, u32)> = Vec::new();
        for (_, piece) in pieces {
            let (gap_from, gap_to) = match piece {
                Piece::Cached(data) => {
                    parts.push(Part::Here(data.into()));
                    continue;
                }
                Piece::Gap(from, to) => (from, to),
            };
            for mapped in self.map(&Transaction::new(), id, gap_from, gap_to)? {
                match mapped.extent {
                    Some(extent) if !extent.unwritten => {
                        requests.push((parts.len(), extent.lba, extent.blocks));
                        parts.push(Part::Asked(mapped.block, mapped.blocks));
                    }
                    _ => parts.push(Part::Here(self.zeroes(mapped.blocks * BLOCK))),
                }
            }
        }
        let number = self.data.job_number();
        let job = ReadJob {
            token: read.map(|read| read.token),
            why,
            waiting: Vec::new(),
            slot,
            stream: id,
            generation,
            sequence: self.data.sequence,
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
        self.data.reads.insert(number, job);
        self.data.reading.insert(number);
        if why == Why::Ahead {
            self.data.ahead_blocks += to - from;
        }
        if let Some(stream) = self.data.stream(slot) {
            stream.fetching.push((from, to, number));
        }
        for (part, lba, blocks) in requests {
            let read = SpaceRequest::Read { lba, blocks, copy: None };
            self.requests.submit(Purpose::Read { job: number, part }, read);
        }
        Ok(None)
    }

    /// Zeroes without memory of their own.
    fn zeroes(&self, len: u64) -> Payload {
        let mut out = Payload::new();
        let mut left = len as usize;
        while left > 0 {
            let take = left.min(self.data.zeroes.len());
            out.push(self.data.zeroes.slice(..take));
            left -= take;
        }
        out
    }

    /// Brings blocks into the cache.
    ///
    /// # Errors
    /// `Miss` while they are on their way.
    pub(super) fn load(&mut self, slot: usize, from: u64, to: u64) -> Result<(), FsError> {
        if let Some(error) = self.data.load_errors.remove(&(slot, from)) {
            return Err(error);
        }
        let loading = self
            .data
            .reads
            .values()
            .any(|job| job.token.is_none() && job.slot == slot && job.covers(from, to));
        if loading
            || self
                .start_read(slot, Why::Writer, None, (from, to), from * BLOCK, (to - from) * BLOCK)?
                .is_none()
        {
            return Err(FsError::Miss);
        }
        Ok(())
    }

    fn read_ahead(&mut self, slot: usize, from: u64, to: u64) {
        let cache_blocks = self.config.cache_bytes as u64 / BLOCK;
        let Some(stream) = self.data.stream(slot) else { return };
        let last = stream.end_of_file.div_ceil(BLOCK);
        let Some((mut at, end)) = stream.readers.note(from, to, last, AHEAD_BLOCKS_MAX.min(cache_blocks / 8))
        else {
            return;
        };
        while at < end {
            let piece_end = (at / AHEAD_PIECE_BLOCKS + 1) * AHEAD_PIECE_BLOCKS;
            let piece = (at, piece_end.min(end));
            let is_much = self.data.ahead_blocks >= AHEAD_BLOCKS_TOTAL.min(cache_blocks / 4);
            // Where pages of the map are missing, the reader will ask for them itself.
            if is_much
                || self.start_read(slot, Why::Ahead, None, piece, at * BLOCK, (piece.1 - at) * BLOCK).is_err()
            {
                if let Some(stream) = self.data.stream(slot) {
                    stream.readers.take_back(at);
                }
                return;
            }
            at = piece.1;
        }
    }

    pub(in super::super) fn handle_read(&mut self, number: u64, part: usize, answer: Answer) {
        let Some(job) = self.data.reads.get_mut(&number) else { return };
        job.left -= 1;
        let slot = match (&mut job.parts.get_mut(part), answer) {
            (Some(place), Ok(data)) => match **place {
                Part::Asked(block, blocks) if data.len() as u64 == blocks * BLOCK => {
                    **place = Part::Here(data);
                    Some((block, job.slot))
                }
                _ => {
                    job.error = Some(FsError::damaged("a read of another length"));
                    None
                }
            },
            (_, Err(error)) => {
                job.error = Some(error);
                None
            }
            (None, Ok(_)) => None,
        };
        if let Some((block, slot)) = slot {
            self.cache_read(number, part, block, slot);
        }
        let Some(job) = self.data.reads.get(&number) else { return };
        if job.left > 0 {
            return;
        }
        self.data.reading.remove(&number);
        let Some(mut job) = self.data.reads.remove(&number) else { return };
        if job.why == Why::Ahead {
            self.data.ahead_blocks -= job.len / BLOCK;
        }
        if let Some(stream) = self.data.stream(job.slot) {
            stream.fetching.retain(|&(.., other)| other != number);
        }
        let waiting = std::mem::take(&mut job.waiting);
        match (job.token, &job.error) {
            (Some(token), None) => {
                self.events.push_back(FsEvent::Read { token, result: Ok(job.assemble()) });
            }
            (Some(token), Some(error)) => {
                self.events.push_back(FsEvent::Read { token, result: Err(error.clone()) });
            }
            (None, error) => {
                if job.why == Why::Writer {
                    if let Some(error) = error {
                        self.data.load_errors.insert((job.slot, job.first_block), error.clone());
                    }
                    self.wake();
                }
            }
        }
        // What did not come, or was not kept, they read themselves.
        for read in waiting {
            self.read_again(read);
        }
    }

    /// Keeps what was read, where nothing happened to the stream's map meanwhile and nothing newer is there. Cuts it
    /// at the stream's end.
    fn cache_read(&mut self, number: u64, part: usize, block: u64, slot: usize) {
        let Some(job) = self.data.reads.get_mut(&number) else { return };
        let (id, generation, sequence) = (job.stream, job.generation, job.sequence);
        let read = job.why != Why::Ahead;
        let Some(Part::Here(data)) = job.parts.get_mut(part) else { return };
        let data = std::mem::take(data);
        let Some(stream) = self.data.stream(slot) else { return };
        // A write may have come and gone meanwhile, stored and evicted: then what was read is old.
        let unchanged =
            stream.id == id && stream.generation == generation && stream.evicted_sequence <= sequence;
        let end = stream.end_of_file;
        let (mut kept, mut at) = (Payload::new(), block);
        for data in segments_of(&data) {
            let data = cut_at(data, at * BLOCK, end);
            if unchanged {
                self.cache_segment(slot, at, &data, read);
            }
            at += data.len() as u64 / BLOCK;
            kept.push(data);
        }
        if let Some(Part::Here(place)) =
            self.data.reads.get_mut(&number).and_then(|job| job.parts.get_mut(part))
        {
            *place = kept;
        }
    }

    fn cache_segment(&mut self, slot: usize, block: u64, data: &Buf, read: bool) {
        let Some(stream) = self.data.stream(slot) else { return };
        let mut gaps: SmallVec<[(u64, u64); 2]> = SmallVec::new();
        stream.segments.gather(block, block + data.len() as u64 / BLOCK, false, |_, piece| {
            if let Piece::Gap(from, to) = piece {
                gaps.push((from, to));
            }
        });
        for (from, to) in gaps {
            let bytes = ((from - block) * BLOCK) as usize..((to - block) * BLOCK) as usize;
            self.data.insert(slot, from, data.slice(bytes), SegmentState::Clean, read);
        }
    }
}

impl Stream {
    /// A job that brings some of what is missing.
    fn being_fetched(&self, pieces: &[(u64, Piece)]) -> Option<u64> {
        self.fetching.iter().find_map(|&(from, to, job)| {
            let missing =
                |piece: &Piece| matches!(*piece, Piece::Gap(start, end) if start < to && from < end);
            pieces.iter().any(|(_, piece)| missing(piece)).then_some(job)
        })
    }
}

impl ReadJob {
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

/// Whether a range of so many blocks is in memory, in many short pieces.
fn is_scattered(pieces: &[(u64, Piece)], blocks: u64) -> bool {
    let bytes = blocks as usize * BLOCK_BYTES;
    bytes >= SEGMENT_BYTES_LEAST
        && bytes < pieces.len() * CACHED_BYTES_LEAST
        && pieces.iter().all(|(_, piece)| matches!(piece, Piece::Cached(_)))
}

/// The bytes as page-aligned buffers of whole blocks: copied only where they are not that already, or are in small parts.
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
