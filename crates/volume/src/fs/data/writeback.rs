//! Dirty blocks on their way to the virtual disk.
//!
//! A job takes one run of dirty blocks through four steps: planned (each block gets its place), written, published
//! (extents and sizes, one transaction), done. What overlaps a job waits until it is done, so that two writes of one block
//! never race. Runs behind the published end are published in order, so that a crash leaves no hole before data
//! that was written later.

use ::types::Lba;
use smallvec::SmallVec;
use space::api::{SpaceRequest, WriteClass};

use sys::{Buf, Payload};

use super::super::FileSystem;
use super::super::allocator::Refusal;
use super::super::bitmap::Bitmap;
use super::super::io::{Answer, Purpose};
use super::super::meta::record::ExtentRecord;
use super::super::meta::{BlockRun, Transaction, key};
use super::super::types::{FsError, StreamId};
use super::BLOCK;
use super::extents::Mapped;

/// Longest run of a job in blocks: 4 MiB.
const JOB_BLOCKS_MAX: u64 = 1024;

/// Jobs of one stream at once.
const STREAM_JOBS_MAX: usize = 512;

/// Largest overwrite that the virtual disk takes at once in blocks: 64 KiB.
const OVERWRITE_BLOCKS_MAX: u64 = 16;

/// From so many blocks of the stream's own on, 32 KiB, a job takes new ones instead of overwriting them (D6): each byte is then written
/// once to each copy, not to the journal and again in place, which outweighs the records that publish it. Not where it is the only
/// job: it waits for fewer durable writes in the journal, and nothing else waits for the disks.
const REDIRECTED_BLOCKS_LEAST: u64 = 8;

/// How a piece of a job gets valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Blocks that the stream owns: atomically overwritten.
    Owned,
    /// Reserved blocks, to be mapped.
    Reserved,
    /// Blocks that the stream owns and never wrote.
    Unwritten,
}

#[derive(Debug, Clone, Copy)]
struct WritePiece {
    block: u64,
    run: BlockRun,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Planning,
    Writing,
    Written,
}

/// One run of dirty blocks under way.
#[derive(Debug)]
pub struct WriteJob {
    slot: usize,
    stream: StreamId,
    from: u64,
    to: u64,
    data: Vec<(u64, Buf)>,
    step: Step,
    pieces: Vec<WritePiece>,
    left: usize,
    error: Option<FsError>,
    pub waiters: SmallVec<[u64; 2]>,
}

impl FileSystem {
    /// Takes runs of dirty blocks in a range into jobs. Where there may be no more of them: the block to go on from.
    pub(super) fn start_jobs(&mut self, slot: usize, from: u64, to: u64, blocks_max: u64) -> Option<u64> {
        let (mut at, mut started) = (from, 0);
        while started < blocks_max {
            let number = self.data.next_job;
            let stream = self.data.streams.get(slot).and_then(Option::as_ref)?;
            if stream.jobs.ranges.len() >= STREAM_JOBS_MAX {
                break;
            }
            let blocked = |start: u64, end: u64| stream.jobs.overlaps(start, end);
            let data = stream.segments.dirty_run(at, to, JOB_BLOCKS_MAX, blocked);
            let (first, last) = (data.first()?, data.last()?);
            let (run_from, run_to) = (first.0, last.0 + last.1.len() as u64 / BLOCK);
            let id = stream.id;
            let stream = self.data.stream(slot)?;
            stream.segments.begin_writing(data.iter().map(|(start, _)| *start), number);
            stream.jobs.ranges.insert(run_from, (run_to, number));
            let blocks = run_to - run_from;
            stream.dirty_blocks -= blocks;
            self.data.dirty_blocks -= blocks;
            if self.data.writing_blocks == 0 {
                self.data.drain.begin(self.now);
            }
            self.data.writing_blocks += blocks;
            self.data.unplanned_blocks += blocks;
            self.data.next_job += 1;
            let job = WriteJob {
                slot,
                stream: id,
                from: run_from,
                to: run_to,
                data,
                step: Step::Planning,
                pieces: Vec::new(),
                left: 0,
                error: None,
                waiters: SmallVec::new(),
            };
            self.data.jobs.insert(number, job);
            self.plan(number);
            at = run_to;
            started += blocks;
        }
        Some(at)
    }

    /// Gives each block of a job its place, and writes it there.
    pub(super) fn plan(&mut self, number: u64) {
        let Some(job) = self.data.jobs.get(&number) else { return };
        if job.step != Step::Planning {
            return;
        }
        let (slot, id, from, to) = (job.slot, job.stream, job.from, job.to);
        match self.find_places(slot, id, from, to) {
            Ok(pieces) => self.write_pieces(number, pieces),
            Err(FsError::Miss) => self.data.to_plan.push_back(number),
            Err(error) => {
                self.data.unplanned_blocks -= to - from;
                if let Some(job) = self.data.jobs.get_mut(&number) {
                    job.error = Some(error);
                    job.step = Step::Written;
                }
                self.data.to_publish.push_back(number);
                self.pump_again = true;
            }
        }
    }

    fn find_places(
        &mut self,
        slot: usize,
        id: StreamId,
        from: u64,
        to: u64,
    ) -> Result<Vec<WritePiece>, FsError> {
        let mapping = self.map(&Transaction::new(), id, from, to)?;
        let owned = |part: &Mapped| part.extent.is_some_and(|extent| !extent.shared && !extent.unwritten);
        let owned_blocks: u64 = mapping.iter().filter(|part| owned(part)).map(|part| part.blocks).sum();
        let others: u64 =
            mapping.iter().filter(|part| part.extent.is_none_or(|e| e.shared)).map(|p| p.blocks).sum();
        // Room beside what data in memory needs, this job's own blocks not counted.
        let room = self.allocator.ready_free().saturating_sub(self.promised_blocks() - (to - from));
        let alone = self.data.jobs.len() == 1 && self.data.dirty_blocks == 0;
        let journaled_max = if alone { OVERWRITE_BLOCKS_MAX } else { REDIRECTED_BLOCKS_LEAST - 1 };
        let in_place = owned_blocks <= journaled_max || room < owned_blocks + others;
        let mut goal = None;
        let mut pieces: Vec<WritePiece> = Vec::new();
        // Neighbours that both need a place get one together.
        let mut wanted: Option<(u64, u64)> = None;
        let mut spans: Vec<Result<(u64, u64), WritePiece>> = Vec::new();
        for part in &mapping {
            match part.extent {
                Some(extent) if extent.unwritten || (owned(part) && in_place) => {
                    spans.extend(wanted.take().map(Ok));
                    let place = if extent.unwritten { Place::Unwritten } else { Place::Owned };
                    let run = BlockRun { lba: extent.lba, blocks: extent.blocks };
                    spans.push(Err(WritePiece { block: part.block, run, place }));
                }
                _ => wanted = Some((wanted.map_or(part.block, |(start, _)| start), part.end())),
            }
        }
        spans.extend(wanted.map(Ok));
        if let Some(start) = spans.iter().find_map(|span| span.as_ref().ok().map(|(start, _)| *start)) {
            goal = self.goal(slot, id, start)?;
        }
        for span in spans {
            match span {
                Err(piece) => pieces.push(piece),
                Ok((start, end)) => {
                    if let Err(error) = self.reserve_span(start, end, &mut goal, &mut pieces) {
                        self.unreserve(&pieces);
                        return Err(error);
                    }
                }
            }
        }
        if let Some(stream) = self.data.stream(slot)
            && let Some(last) = pieces.iter().rfind(|piece| piece.place == Place::Reserved)
        {
            let blocks = u64::from(last.run.blocks);
            stream.goal = Some((last.block + blocks, Lba(last.run.lba.0 + blocks)));
        }
        Ok(pieces)
    }

    fn reserve_span(
        &mut self,
        start: u64,
        end: u64,
        goal: &mut Option<Lba>,
        pieces: &mut Vec<WritePiece>,
    ) -> Result<(), FsError> {
        let mut at = start;
        while at < end {
            let run = self.reserve(*goal, (end - at).min(u64::from(u32::MAX)) as u32)?;
            *goal = Some(Lba(run.lba.0 + u64::from(run.blocks)));
            pieces.push(WritePiece { block: at, run, place: Place::Reserved });
            at += u64::from(run.blocks);
        }
        Ok(())
    }

    /// Where blocks would continue what is there: behind the last allocation, or behind the extent before.
    fn goal(&mut self, slot: usize, id: StreamId, from: u64) -> Result<Option<Lba>, FsError> {
        if let Some((block, lba)) = self.data.stream(slot).and_then(|stream| stream.goal)
            && block == from
        {
            return Ok(Some(lba));
        }
        let Some(before) = from.checked_sub(1) else { return Ok(None) };
        let mapping = self.map(&Transaction::new(), id, before, from)?;
        Ok(mapping.first().and_then(|part| part.extent).map(|extent| Lba(extent.lba.0 + 1)))
    }

    /// Takes blocks that nobody owns, near `goal`.
    pub(super) fn reserve(&mut self, goal: Option<Lba>, want: u32) -> Result<BlockRun, FsError> {
        loop {
            match self.allocator.reserve(goal, want) {
                Ok(run) => return Ok(run),
                Err(Refusal::NeedGroup(group)) => self.load_group(group)?,
                Err(Refusal::NeedChunk) => {
                    let may_come = self.chunk_changes.data_is_coming() || self.can_have_data_chunk();
                    self.chunk_changes.need_data = true;
                    self.pump_again = true;
                    return Err(if may_come { FsError::Miss } else { FsError::NoSpace });
                }
            }
        }
    }

    /// Brings a group's bitmap into memory.
    pub(in super::super) fn load_group(&mut self, group: u32) -> Result<(), FsError> {
        if self.allocator.is_loaded(group) {
            return Ok(());
        }
        let stored = match self.meta.get(&Transaction::new(), &key::group(group))? {
            Some(value) => Some(
                Bitmap::from_bytes(&value, self.allocator.group_blocks())
                    .ok_or(FsError::damaged("allocation bitmap"))?,
            ),
            None => None,
        };
        self.allocator.load(group, stored);
        Ok(())
    }

    fn unreserve(&mut self, pieces: &[WritePiece]) {
        for piece in pieces.iter().filter(|piece| piece.place == Place::Reserved) {
            self.allocator.unreserve(piece.run);
        }
    }

    fn write_pieces(&mut self, number: u64, pieces: Vec<WritePiece>) {
        let Some(job) = self.data.jobs.get_mut(&number) else { return };
        self.data.unplanned_blocks -= job.to - job.from;
        let mut whole = Payload::new();
        for (_, part) in &job.data {
            whole.push(part.clone());
        }
        let mut requests = Vec::new();
        for piece in &pieces {
            let (class, step) = match piece.place {
                Place::Owned => (WriteClass::Overwrite, OVERWRITE_BLOCKS_MAX),
                Place::Reserved | Place::Unwritten => (WriteClass::Fresh, u64::MAX),
            };
            let blocks = u64::from(piece.run.blocks);
            let mut at = 0;
            while at < blocks {
                let take = step.min(blocks - at);
                let start = ((piece.block + at - job.from) * BLOCK) as usize;
                let data = whole.slice(start, (take * BLOCK) as usize);
                requests.push(SpaceRequest::Write { lba: Lba(piece.run.lba.0 + at), class, data });
                at += take;
            }
        }
        job.left = requests.len();
        job.pieces = pieces;
        job.step = Step::Writing;
        for request in requests {
            self.requests.submit(Purpose::Write { job: number }, request);
        }
        self.pump_again = true;
    }

    pub(in super::super) fn handle_write(&mut self, number: u64, answer: Answer) {
        let Some(job) = self.data.jobs.get_mut(&number) else { return };
        job.left -= 1;
        if let Err(error) = answer {
            job.error = Some(error);
        }
        if job.left == 0 {
            job.step = Step::Written;
            self.data.to_publish.push_back(number);
        }
    }

    /// Publishes jobs that are written, those behind the published end in order.
    pub(super) fn publish_jobs(&mut self) {
        let mut held = Vec::new();
        let mut queue = std::mem::take(&mut self.data.to_publish);
        while let Some(number) = queue.pop_front() {
            if self.must_wait(number) {
                held.push(number);
                continue;
            }
            match self.publish(number) {
                Ok(()) => {
                    // What it held back may follow.
                    queue.extend(held.drain(..));
                    queue.extend(self.data.to_publish.drain(..));
                }
                Err(FsError::Miss) => held.push(number),
                Err(FsError::Fenced) => return self.fail(FsError::Fenced),
                Err(error) => {
                    if let Some(job) = self.data.jobs.get_mut(&number) {
                        job.error = Some(error);
                        queue.push_back(number);
                    }
                }
            }
        }
        self.data.to_publish.extend(held);
    }

    fn must_wait(&self, number: u64) -> bool {
        let Some(job) = self.data.jobs.get(&number) else { return false };
        let Some(stream) = self.data.streams.get(job.slot).and_then(Option::as_ref) else { return false };
        job.error.is_none() && job.to * BLOCK > stream.published_end && stream.jobs.before(job.from)
    }

    fn publish(&mut self, number: u64) -> Result<(), FsError> {
        let Some(job) = self.data.jobs.get(&number) else { return Ok(()) };
        let (slot, id, from, to) = (job.slot, job.stream, job.from, job.to);
        let (pieces, error) = (job.pieces.clone(), job.error.clone());
        if let Some(error) = error {
            self.unreserve(&pieces);
            return self.end_job(number, Err(error));
        }
        self.ready_to_change()?;
        let Some(stream) = self.data.stream(slot) else { return Ok(()) };
        // Behind the published end its block may hold anything, until it is stored with zeroes there.
        let end = match stream.has_unstored_tail(from) {
            true => stream.published_end,
            false => stream.end_of_file.min(to * BLOCK).max(stream.published_end),
        };
        let needs_map = pieces.iter().any(|piece| piece.place != Place::Owned);
        if !needs_map && end == stream.published_end {
            return self.end_job(number, Ok(()));
        }
        let mut txn = Transaction::new();
        let mut more = 0_i64;
        for piece in &pieces {
            let blocks = u64::from(piece.run.blocks);
            match piece.place {
                Place::Owned => {}
                Place::Unwritten => self.mark_written(&mut txn, id, piece.block, piece.block + blocks)?,
                Place::Reserved => {
                    more -= self.unmap(&mut txn, id, piece.block, piece.block + blocks)? as i64;
                    more += blocks as i64;
                    let extent = ExtentRecord {
                        lba: piece.run.lba,
                        blocks: piece.run.blocks,
                        shared: false,
                        unwritten: false,
                    };
                    self.map_hole(&mut txn, id, piece.block, extent)?;
                    txn.allocate(piece.run);
                }
            }
        }
        let allocated = self.put_sizes(&mut txn, id, end, more)?;
        let ticket = self.record(txn);
        self.lazy_times.remove(&id.file);
        if let Some(stream) = self.data.stream(slot) {
            stream.published_end = end;
            stream.allocated_blocks = allocated;
            stream.ticket = ticket;
        }
        self.end_job(number, Ok(()))
    }

    fn end_job(&mut self, number: u64, result: Result<(), FsError>) -> Result<(), FsError> {
        let Some(job) = self.data.jobs.remove(&number) else { return Ok(()) };
        let blocks = job.to - job.from;
        self.data.writing_blocks -= blocks;
        let now = self.now;
        let left = self.data.dirty_blocks + self.data.writing_blocks;
        self.data.drain.wrote(blocks, left, now);
        if let Some(stream) = self.data.stream(job.slot) {
            stream.jobs.ranges.remove(&job.from);
            let again = stream.segments.end_writing(job.from, job.to, number, result.is_ok());
            if result.is_err() {
                stream.dirty_blocks += again;
                self.data.dirty_blocks += again;
                self.data.mark_dirty(job.slot);
            }
        }
        match &result {
            Ok(()) if self.data.writing_blocks == 0 => self.data.trouble.wrote_all(),
            Ok(()) => {}
            Err(error) => self.data.trouble.failed(error, now),
        }
        for waiter in job.waiters {
            if let Some(entry) = self.data.waiters.get_mut(&waiter) {
                entry.jobs -= 1;
                if let Err(error) = &result {
                    entry.error = Some(error.clone());
                }
                if entry.jobs == 0 && !std::mem::replace(&mut entry.queued, true) {
                    self.data.to_advance.push_back(waiter);
                }
            }
        }
        if matches!(result, Err(FsError::Fenced)) {
            return Err(FsError::Fenced);
        }
        self.wake();
        self.pump_again = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::tests::Bench;
    use ::types::FileTime;
    use std::time::Duration;

    #[test]
    fn a_stream_that_grows_shows_nothing_that_lay_behind_its_former_end() {
        let mut bench = Bench::new(24);
        let stream = StreamId::unnamed(bench.create("file"));
        bench.write(stream, 0, &[9; 8192]).unwrap();
        bench.flush_all().unwrap();
        bench.run(|fs| fs.set_end_of_file(stream, 100, FileTime(8))).unwrap();
        bench.flush_all().unwrap();
        bench.write(stream, 1 << 20, &[3; 4096]).unwrap();
        // Write-back that went on from a block far behind, and has not come to the former end again.
        let slot = bench.fs.slot(stream).unwrap();
        bench.fs.start_jobs(slot, 1, u64::MAX, u64::MAX);
        bench.sleep(Duration::from_millis(1500));
        bench.crash(|_| 0);
        let found = bench.read(stream, 0, 4096).unwrap();
        assert_eq!(found[..100], [9; 100]);
        assert!(found[100..].iter().all(|byte| *byte == 0), "{} bytes", found.len());
        // In the end all of it is there.
        bench.write(stream, 1 << 20, &[3; 4096]).unwrap();
        let slot = bench.fs.slot(stream).unwrap();
        bench.fs.start_jobs(slot, 1, u64::MAX, u64::MAX);
        bench.sleep(Duration::from_secs(6));
        bench.crash(|_| 0);
        assert_eq!(bench.read(stream, 1 << 20, 8192).unwrap(), [3; 4096]);
    }
}
