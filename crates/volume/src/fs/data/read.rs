//! Reads: from the cache, from the virtual disk, and ahead of a sequential reader.

use std::task::Poll;

use ::types::{BLOCK_BYTES, Lba};
use space::api::SpaceRequest;
use sys::{Buf, BufMut, Payload};

use super::super::FileSystem;
use super::super::io::{Answer, Purpose};
use super::super::meta::Transaction;
use super::super::types::{FsError, FsEvent, StreamId};
use super::segments::{Piece, SegmentState};
use super::{BLOCK, Parked};

/// Blocks read ahead of a sequential reader: 2 MiB.
const AHEAD_BLOCKS: u64 = 512;

/// Reading ahead goes on when less than this is left.
const AHEAD_LEAST_BLOCKS: u64 = 256;

/// Part of a read job, in order.
#[derive(Debug)]
enum Part {
    Here(Payload),
    /// Blocks from the virtual disk, first block and count.
    Asked(u64, u64),
}

/// Blocks on their way.
#[derive(Debug)]
pub struct ReadJob {
    /// `None`: for the cache only.
    pub token: Option<u64>,
    /// A partial write waits for it.
    wanted: bool,
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
        match self.try_read(token, stream, offset, len_bytes) {
            Ok(Some(data)) => Poll::Ready(Ok(data)),
            Ok(None) => Poll::Pending,
            Err(FsError::Miss) => {
                self.data.parked.push_back(Parked::Read { token, stream, offset, len_bytes });
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn try_read(
        &mut self,
        token: u64,
        id: StreamId,
        offset: u64,
        len_bytes: u32,
    ) -> Result<Option<Payload>, FsError> {
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
            segment.touched = true;
            let at = (offset - start * BLOCK) as usize;
            let data = segment.data.slice(at..at + len as usize);
            self.read_ahead(slot, from, to);
            return Ok(Some(data.into()));
        }
        let job = self.start_read(slot, Some(token), true, (from, to), offset, len)?;
        self.read_ahead(slot, from, to);
        Ok(job)
    }

    /// Gathers a range of blocks, reads what is missing. The bytes where nothing is.
    fn start_read(
        &mut self,
        slot: usize,
        token: Option<u64>,
        wanted: bool,
        (from, to): (u64, u64),
        offset: u64,
        len: u64,
    ) -> Result<Option<Payload>, FsError> {
        let Some(stream) = self.data.stream(slot) else { return Err(FsError::NotFound) };
        let (id, generation) = (stream.id, stream.generation);
        let mut pieces = Vec::new();
        stream.segments.gather(from, to, |block, piece| pieces.push((block, piece)));
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
            token,
            wanted,
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
            || self.start_read(slot, None, true, (from, to), from * BLOCK, (to - from) * BLOCK)?.is_none()
        {
            return Err(FsError::Miss);
        }
        Ok(())
    }

    fn read_ahead(&mut self, slot: usize, from: u64, to: u64) {
        let Some(stream) = self.data.stream(slot) else { return };
        let sequential = from == stream.read_end || (from > 0 && from + 1 == stream.read_end);
        stream.read_end = to;
        if !sequential || from == 0 && to > AHEAD_BLOCKS {
            return;
        }
        if stream.ahead_end < to || stream.ahead_end > to + 4 * AHEAD_BLOCKS {
            stream.ahead_end = to;
        }
        let last = stream.end_of_file.div_ceil(BLOCK);
        if stream.ahead_end - to >= AHEAD_LEAST_BLOCKS || stream.ahead_end >= last {
            return;
        }
        let (start, end) = (stream.ahead_end, (stream.ahead_end + AHEAD_BLOCKS).min(last));
        // Where pages of the map are missing, the reader will ask for them itself.
        if self.start_read(slot, None, false, (start, end), start * BLOCK, (end - start) * BLOCK).is_ok()
            && let Some(stream) = self.data.stream(slot)
        {
            stream.ahead_end = end;
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
        let Some(job) = self.data.reads.remove(&number) else { return };
        match (job.token, &job.error) {
            (Some(token), None) => {
                self.events.push_back(FsEvent::Read { token, result: Ok(job.assemble()) });
            }
            (Some(token), Some(error)) => {
                self.events.push_back(FsEvent::Read { token, result: Err(error.clone()) });
            }
            (None, error) => {
                if let Some(error) = error
                    && job.wanted
                {
                    self.data.load_errors.insert((job.slot, job.first_block), error.clone());
                }
                self.wake();
            }
        }
    }

    /// Keeps what was read, where nothing happened to the stream's map meanwhile and nothing newer is there. Cuts it
    /// at the stream's end.
    fn cache_read(&mut self, number: u64, part: usize, block: u64, slot: usize) {
        let Some(job) = self.data.reads.get(&number) else { return };
        let (id, generation, sequence) = (job.stream, job.generation, job.sequence);
        let Some(Part::Here(data)) = job.parts.get(part) else { return };
        let data = aligned(data);
        let Some(stream) = self.data.stream(slot) else { return };
        // A write may have come and gone meanwhile, stored and evicted: then what was read is old.
        let unchanged =
            stream.id == id && stream.generation == generation && stream.evicted_sequence <= sequence;
        let end = stream.end_of_file;
        let data = cut_at(data, block * BLOCK, end);
        if unchanged {
            let mut gaps = Vec::new();
            let to = block + data.len() as u64 / BLOCK;
            stream.segments.gather(block, to, |_, piece| {
                if let Piece::Gap(from, to) = piece {
                    gaps.push((from, to));
                }
            });
            for (from, to) in gaps {
                let bytes = ((from - block) * BLOCK) as usize..((to - block) * BLOCK) as usize;
                self.data.insert(slot, from, data.slice(bytes), SegmentState::Clean);
            }
        }
        if let Some(Part::Here(kept)) =
            self.data.reads.get_mut(&number).and_then(|job| job.parts.get_mut(part))
        {
            *kept = data.into();
        }
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

/// The bytes as one page-aligned buffer: copied only where they are not one already.
pub(super) fn aligned(data: &Payload) -> Buf {
    match data.parts() {
        [only] if only.is_aligned() && only.retained_bytes() <= 2 * only.len() + 2 * BLOCK_BYTES => {
            only.clone()
        }
        _ => {
            let mut copy = BufMut::for_overwrite(data.len());
            data.copy_to(&mut copy);
            copy.freeze()
        }
    }
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
