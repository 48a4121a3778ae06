//! Write-back of dirty blocks to the virtual disk.
//!
//! # How it works
//!
//! A job takes one run of dirty blocks of a stream, at most 4 MiB, through four steps.
//!
//! 1. *Planned.* Each block gets its place. Blocks that the stream owns alone are overwritten if they are few (more are few for a job that
//!    is alone), or if there is no space for anything else. Blocks that were allocated and never written are written. All others get new
//!    blocks, reserved near the stream's last ones.
//! 2. *Written.* New places with class `Fresh`, owned ones with class `Overwrite`, which is atomic and goes through the disks' journals.
//! 3. *Published.* One transaction maps the new blocks, frees those that they replace, and moves the end of the stream in metadata as far
//!    as everything before it is stored. A job that replaces very many pieces takes several; the last one moves the end. A job that only
//!    overwrote has nothing to publish.
//! 4. *Done.* Blocks that nobody wrote to meanwhile are clean. The job's waiters are answered.
//!
//! Jobs begin because a change is old ([`super::due`]), because too much is dirty, because a stream grows, or because somebody
//! waits for it ([`super::waiters`], [`super::barriers`]).
//!
//! # Meanwhile
//!
//! - *Writes to the same blocks.* They replace the cached blocks, which are dirty again. The job holds the bytes that it began with and
//!   publishes those; a second job of a block begins only when the first one is done (`Busy`), so that two writes of one block never race.
//! - *Truncation, zeroing, cloning, reclaiming* wait until no job works in their range, and change the map then.
//! - *Reads* are answered from the cache. One that missed before the write may bring the block's old
//!   contents: they are not kept if the new ones have been evicted since (`evicted_sequence`).
//! - *A crash* finds the published state, in the order of the journal. Jobs behind the published end
//!   are published in the order of their blocks, and the end does not move while the block in which it
//!   lies is unstored: no crash leaves a hole before data that was written later, or shows old bytes of
//!   the disk behind a former end. Reserved blocks are forgotten.
//!
//! # Failures
//!
//! - *Metadata is not in memory, or a chunk is being allocated:* the job waits in `to_plan` or
//!   `to_publish` for the next retry.
//! - *No space, a write that fails, damaged metadata:* the job ends with the error and releases its
//!   reserved blocks. Its blocks are dirty again. Waiters get the error. The volume's health reports it
//!   until everything is written, and write-back pauses, ever longer ([`super::due::Trouble`]).
//! - *No space, but blocks of the stream's own:* these are overwritten instead. One client's new data
//!   without space does not keep others from changing theirs: only the streams that lack space are set
//!   aside, and others may have as much dirty beside them.
//! - *Another coordinator owns the volume:* nothing may be written any more, and the volume fails.

use std::collections::{BTreeMap, VecDeque};

use ::types::{Lba, Monotonic};
use smallvec::SmallVec;
use space::api::{SpaceRequest, WriteClass};

use sys::{Buf, Payload};

use super::BLOCK;
use super::drain::Drain;
use super::due::{Overdue, Trouble};
use super::extents::{self, Mapped};
use super::pieces;
use super::places::{OVERWRITE_BLOCKS_MAX, Place, Span, WritePiece, spans};
use super::streams::{Stream, Streams, put_sizes};
use crate::fs::base::{Base, Unstored};
use crate::fs::io::{Answer, Purpose};
use crate::fs::meta::Transaction;
use crate::fs::meta::record::ExtentRecord;
use crate::fs::types::{FsError, StreamId};

/// Longest run of a job in blocks: 4 MiB.
const JOB_BLOCKS_MAX: u64 = 1024;

/// Limit of concurrent jobs of a stream.
const STREAM_JOBS_MAX: usize = 512;

/// A stream that grows is written back from this number of dirty blocks on: 8 MiB.
const GROWTH_BLOCKS: u64 = 2048;

/// Length of jobs, or less, that are published as a whole: they change no more pieces than pages of the
/// tree are always held.
const PUBLISHED_WHOLE_BLOCKS: u64 = 16;

/// Limit of blocks in concurrent background jobs: 32 MiB.
const BACKGROUND_BLOCKS_MAX: u64 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Planning,
    Writing,
    Written,
}

/// One run of dirty blocks under way.
#[derive(Debug)]
struct WriteJob {
    slot: usize,
    stream: StreamId,
    from: u64,
    to: u64,
    data: Vec<(u64, Buf)>,
    /// Number of the oldest write that it stores, or that was written over before it was stored.
    oldest: u64,
    step: Step,
    pieces: Vec<WritePiece>,
    left: usize,
    error: Option<FsError>,
    /// The disks had no space for new blocks: the stream's own ones are overwritten.
    in_place: bool,
    waiters: SmallVec<[u64; 2]>,
}

/// A job that has ended, for its waiters.
#[derive(Debug)]
pub struct Ended {
    pub waiter: u64,
    pub error: Option<FsError>,
}

/// Write-back jobs under way.
///
/// Each job's range is among its stream's `jobs`, which do not overlap, and its blocks are in state `Writing` with its number or
/// were written again since. `writing_blocks` is the sum over all jobs, `unplanned_blocks` over those in step `Planning`. A job in step
/// `Planning` is in `to_plan`, one in step `Written` in `to_publish`.
#[derive(Debug, Default)]
pub struct Writeback {
    jobs: BTreeMap<u64, WriteJob>,
    next_job: u64,
    writing_blocks: u64,
    unplanned_blocks: u64,
    drain: Drain,
    trouble: Trouble,
    to_plan: VecDeque<u64>,
    to_publish: VecDeque<u64>,
    /// Jobs that have ended since [`Writeback::take_ended`].
    ended: Vec<Ended>,
    /// Writes wait until less is dirty.
    pub pressure: bool,
}

impl Writeback {
    /// Data that is not stored yet.
    pub fn unstored(&self, streams: &Streams) -> Unstored {
        Unstored {
            blocks: streams.dirty_blocks + self.writing_blocks,
            placeless_blocks: streams.dirty_blocks + self.unplanned_blocks,
        }
    }

    /// Why data is not written, and since when. It stays, and is tried again.
    pub fn failure(&self) -> Option<(&FsError, Monotonic)> {
        self.trouble.current()
    }

    /// Returns when write-back is due.
    pub fn timeout(&self, streams: &Streams) -> Option<Monotonic> {
        match self.trouble.retry_at() {
            Some(retry_at) if self.trouble.lacks_space() => {
                Some(streams.due.timeout().map_or(retry_at, |due| due.min(retry_at)))
            }
            retry_at => retry_at.or_else(|| streams.due.timeout()),
        }
    }

    /// Whether data was refused for lack of space, so that some streams are set aside.
    pub fn lacks_space(&self) -> bool {
        self.trouble.lacks_space()
    }

    /// Bytes that may wait to be written; writes wait beyond.
    pub fn dirty_bytes_max(&self, base: &Base) -> u64 {
        self.drain.bytes_max(base.config.dirty_bytes as u64)
    }

    /// Blocks that background jobs may still take. Jobs with waiters may have taken more than all of it.
    fn room(&self) -> u64 {
        BACKGROUND_BLOCKS_MAX.saturating_sub(self.writing_blocks)
    }

    /// Registers a waiter for the end of a job; returns whether it was not registered yet.
    pub fn wait_for(&mut self, job: u64, waiter: u64) -> bool {
        let Some(job) = self.jobs.get_mut(&job).filter(|job| !job.waiters.contains(&waiter)) else {
            return false;
        };
        job.waiters.push(waiter);
        true
    }

    /// Takes the jobs that have ended, for their waiters.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Writes back a stream that grows. New blocks behind its end are not overwritten soon, and have to be
    /// stored when the file is closed: waiting would only make that take longer.
    pub fn write_growth_back(&mut self, slot: usize, streams: &mut Streams, base: &mut Base) {
        let room = self.room();
        let Some(stream) = streams.stream(slot) else { return };
        let grows = stream.end_of_file > stream.published_end;
        if grows && stream.dirty_blocks >= GROWTH_BLOCKS && room > 0 && self.trouble.current().is_none() {
            self.start_jobs(slot, (0, u64::MAX), room, streams, base);
        }
    }

    /// Writes back old dirty blocks, or the excess of dirty ones, oldest first.
    pub fn start_due(&mut self, streams: &mut Streams, base: &mut Base) {
        let goal = self.dirty_bytes_max(base) / 4 * 3;
        let pressure = std::mem::take(&mut self.pressure);
        match self.trouble.may_try(base.agenda.now) {
            true => streams.due.release_held(),
            false if self.trouble.lacks_space() => {}
            false => return,
        }
        for _ in 0..streams.due.begin_overdue(base.agenda.now) {
            if self.room() == 0 {
                break;
            }
            let Some(overdue) = streams.due.take_overdue() else { break };
            self.write_overdue(overdue, streams, base);
        }
        for _ in 0..streams.due.waiting() {
            let much = streams.dirty_blocks * BLOCK > goal || pressure;
            if !much || self.room() == 0 {
                break;
            }
            let Some(slot) = streams.due.take_oldest() else { break };
            self.start_jobs(slot, (0, u64::MAX), self.room(), streams, base);
            mark_rest(slot, base.agenda.now, streams, base);
        }
        if self.unstored(streams).blocks == 0 {
            self.trouble.wrote_all();
        }
        base.times.publish_due(&mut base.meta, base.agenda.now);
        base.agenda.again |= base.times.has_due();
    }

    fn write_overdue(&mut self, overdue: Overdue, streams: &mut Streams, base: &mut Base) {
        let slot = overdue.slot;
        match self.start_jobs(slot, (overdue.from, u64::MAX), self.room(), streams, base) {
            Some(from) => streams.due.put_back(Overdue { from, ..overdue }),
            None => {
                streams.due.unlist(slot);
                mark_rest(slot, overdue.since, streams, base);
            }
        }
    }

    /// Takes runs of dirty blocks in a range into jobs. If there may be no more of them: the block to continue from.
    pub fn start_jobs(
        &mut self,
        slot: usize,
        (from, to): (u64, u64),
        blocks_max: u64,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Option<u64> {
        let (mut at, mut started) = (from, 0);
        while started < blocks_max {
            let number = self.next_job;
            let stream = streams.stream(slot)?;
            if stream.jobs.ranges.len() >= STREAM_JOBS_MAX {
                break;
            }
            let blocked = |start: u64, end: u64| stream.jobs.overlaps(start, end);
            let data = stream.segments.dirty_run(at, to, JOB_BLOCKS_MAX, blocked);
            let (first, last) = (data.first()?, data.last()?);
            let (run_from, run_to) = (first.0, last.0 + last.1.len() as u64 / BLOCK);
            let oldest = stream.segments.oldest_of(data.iter().map(|(start, _)| *start));
            stream.segments.begin_writing(data.iter().map(|(start, _)| *start), number);
            stream.jobs.ranges.insert(run_from, (run_to, number));
            let blocks = run_to - run_from;
            stream.dirty_blocks -= blocks;
            let stream = stream.id;
            streams.dirty_blocks -= blocks;
            if self.writing_blocks == 0 {
                self.drain.begin(base.agenda.now);
            }
            self.writing_blocks += blocks;
            self.unplanned_blocks += blocks;
            self.next_job += 1;
            let job = WriteJob {
                slot,
                stream,
                from: run_from,
                to: run_to,
                data,
                oldest,
                step: Step::Planning,
                pieces: Vec::new(),
                left: 0,
                error: None,
                in_place: false,
                waiters: SmallVec::new(),
            };
            self.jobs.insert(number, job);
            self.plan(number, streams, base);
            at = run_to;
            started += blocks;
        }
        Some(at)
    }

    /// Whether a job of the stream is storing a write numbered up to `sequence`, or one that replaced it.
    pub fn is_storing_until(&self, stream: &Stream, sequence: u64) -> bool {
        let mut jobs = stream.jobs.ranges.values();
        jobs.any(|(_, job)| self.jobs.get(job).is_none_or(|job| job.oldest <= sequence))
    }

    /// Plans jobs that missed something.
    pub fn plan_again(&mut self, streams: &mut Streams, base: &mut Base) {
        for job in std::mem::take(&mut self.to_plan) {
            self.plan(job, streams, base);
        }
    }

    /// Gives each block of a job its place, and writes it there.
    fn plan(&mut self, number: u64, streams: &mut Streams, base: &mut Base) {
        let Some(job) = self.jobs.get(&number) else { return };
        debug_assert_eq!(job.step, Step::Planning, "a job that is planned twice");
        let (slot, id, from, to) = (job.slot, job.stream, job.from, job.to);
        let in_place = job.in_place || self.trouble.lacks_space();
        match self.find_places(slot, id, (from, to), in_place, streams, base) {
            Ok(pieces) => self.write_pieces(number, pieces, base),
            Err(FsError::Miss) => self.to_plan.push_back(number),
            Err(error) => {
                self.unplanned_blocks -= to - from;
                if let Some(job) = self.jobs.get_mut(&number) {
                    job.error = Some(error);
                    job.step = Step::Written;
                }
                self.to_publish.push_back(number);
                base.agenda.again = true;
            }
        }
    }

    fn find_places(
        &self,
        slot: usize,
        id: StreamId,
        (from, to): (u64, u64),
        in_place: bool,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Result<Vec<WritePiece>, FsError> {
        let mapping = extents::map(&mut base.meta.store, &Transaction::new(), id, from, to)?;
        let unstored = self.unstored(streams);
        // Space beyond the needs of data in memory, except for this job's own blocks.
        let others = Unstored { placeless_blocks: unstored.placeless_blocks - (to - from), ..unstored };
        let alone = self.jobs.len() == 1 && streams.dirty_blocks == 0;
        let room = if in_place { 0 } else { base.unpromised_blocks(others) };
        let spans = spans(&mapping, room, alone);
        let first = spans.iter().find_map(|span| match span {
            Span::Homeless(start, _) => Some(*start),
            Span::Placed(_) => None,
        });
        let mut goal = match first {
            Some(start) => goal(slot, id, start, streams, base)?,
            None => None,
        };
        let mut pieces: Vec<WritePiece> = Vec::new();
        for span in spans {
            match span {
                Span::Placed(piece) => pieces.push(piece),
                Span::Homeless(start, end) => {
                    if let Err(error) = reserve(start, end, &mut goal, &mut pieces, unstored, base) {
                        unreserve(&pieces, base);
                        return Err(error);
                    }
                }
            }
        }
        if let Some(stream) = streams.stream(slot)
            && let Some(last) = pieces.iter().rfind(|piece| piece.place == Place::Reserved)
        {
            let blocks = u64::from(last.run.blocks);
            stream.goal = Some((last.block + blocks, Lba(last.run.lba.0 + blocks)));
        }
        Ok(pieces)
    }

    fn write_pieces(&mut self, number: u64, pieces: Vec<WritePiece>, base: &mut Base) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        self.unplanned_blocks -= job.to - job.from;
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
        debug_assert_eq!(
            pieces.iter().map(|piece| u64::from(piece.run.blocks)).sum::<u64>(),
            job.to - job.from,
            "each block has one place"
        );
        job.left = requests.len();
        job.pieces = pieces;
        job.step = Step::Writing;
        for request in requests {
            base.requests.submit(Purpose::Write { job: number }, request);
        }
        base.agenda.again = true;
    }

    /// Takes the answer to a write of a job.
    pub fn handle(&mut self, number: u64, answer: Answer) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        debug_assert_eq!(job.step, Step::Writing, "an answer to no request");
        job.left -= 1;
        if let Err(error) = answer {
            job.error = Some(error);
        }
        if job.left == 0 {
            job.step = Step::Written;
            self.to_publish.push_back(number);
        }
    }

    /// Publishes jobs that are written, those behind the published end in order.
    ///
    /// # Errors
    /// `Fenced`.
    pub fn publish_jobs(&mut self, streams: &mut Streams, base: &mut Base) -> Result<(), FsError> {
        let mut held = Vec::new();
        let mut queue = std::mem::take(&mut self.to_publish);
        while let Some(number) = queue.pop_front() {
            if self.must_wait(number, streams) {
                held.push(number);
                continue;
            }
            match self.publish(number, streams, base) {
                Ok(()) => {
                    // Jobs that it held back may follow.
                    queue.extend(held.drain(..));
                    queue.extend(self.to_publish.drain(..));
                }
                Err(FsError::Miss) => held.push(number),
                Err(FsError::Fenced) => return Err(FsError::Fenced),
                Err(error) => {
                    if let Some(job) = self.jobs.get_mut(&number) {
                        job.error = Some(error);
                        queue.push_back(number);
                    }
                }
            }
        }
        self.to_publish.extend(held);
        Ok(())
    }

    fn must_wait(&self, number: u64, streams: &Streams) -> bool {
        let Some(job) = self.jobs.get(&number) else { return false };
        let Some(stream) = streams.get(job.slot) else { return false };
        job.error.is_none() && job.to * BLOCK > stream.published_end && stream.jobs.before(job.from)
    }

    fn publish(&mut self, number: u64, streams: &mut Streams, base: &mut Base) -> Result<(), FsError> {
        let Some(job) = self.jobs.get(&number) else { return Ok(()) };
        debug_assert_eq!(job.step, Step::Written);
        let (slot, id, from, to) = (job.slot, job.stream, job.from, job.to);
        if let Some(error) = job.error.clone() {
            if error == FsError::NoSpace && !job.in_place && owns_some(id, &job.pieces, base)? {
                self.plan_in_place(number, streams, base);
                return Ok(());
            }
            unreserve(&job.pieces, base);
            return self.end_job(number, Err(error), streams, base);
        }
        base.ready_to_change()?;
        let Some(stream) = streams.stream(slot) else { return Ok(()) };
        // Behind the published end its block may hold anything, until it is stored with zeroes there.
        let end = match stream.has_unstored_tail(from) {
            true => stream.published_end,
            false => stream.end_of_file.min(to * BLOCK).max(stream.published_end),
        };
        let needs_map = job.pieces.iter().any(|piece| piece.place != Place::Owned);
        if !needs_map && end == stream.published_end {
            return self.end_job(number, Ok(()), streams, base);
        }
        let (now, rest) = publishable(id, &job.pieces, base)?;
        // The end moves with the last of the job.
        let end = if rest.is_empty() { end } else { stream.published_end };
        let mut txn = Transaction::new();
        let more = map_pieces(&mut txn, id, &now, base)?;
        let allocated = put_sizes(base, &mut txn, id, end, more)?;
        let ticket = base.record(txn);
        base.times.forget(id.file);
        if let Some(stream) = streams.stream(slot) {
            stream.published_end = end;
            stream.allocated_blocks = allocated;
            stream.ticket = ticket;
            stream.keep_promise(base);
        }
        if rest.is_empty() {
            return self.end_job(number, Ok(()), streams, base);
        }
        if let Some(job) = self.jobs.get_mut(&number) {
            job.pieces = rest;
        }
        self.to_publish.push_front(number);
        base.agenda.again = true;
        Ok(())
    }

    /// Plans a job again after the disks had no space for its new blocks.
    fn plan_in_place(&mut self, number: u64, streams: &mut Streams, base: &mut Base) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        unreserve(&std::mem::take(&mut job.pieces), base);
        (job.in_place, job.error, job.step) = (true, None, Step::Planning);
        self.unplanned_blocks += job.to - job.from;
        self.plan(number, streams, base);
    }

    fn end_job(
        &mut self,
        number: u64,
        result: Result<(), FsError>,
        streams: &mut Streams,
        base: &mut Base,
    ) -> Result<(), FsError> {
        let Some(job) = self.jobs.remove(&number) else { return Ok(()) };
        let blocks = job.to - job.from;
        self.writing_blocks -= blocks;
        let now = base.agenda.now;
        self.drain.wrote(blocks, self.unstored(streams).blocks, now);
        if let Some(stream) = streams.stream(job.slot) {
            let range = stream.jobs.ranges.remove(&job.from);
            debug_assert_eq!(range, Some((job.to, number)), "a job's range is its stream's to know");
            let again = stream.segments.end_writing(job.from, job.to, number, result.is_ok());
            if result.is_err() {
                stream.dirty_blocks += again;
                streams.dirty_blocks += again;
                match result {
                    Err(FsError::NoSpace) => streams.due.hold(job.slot, now),
                    _ => streams.mark_dirty(job.slot),
                }
            }
        }
        match &result {
            Ok(()) if self.writing_blocks == 0 => self.trouble.wrote_all(),
            Ok(()) => {}
            Err(error) => self.trouble.failed(error, now),
        }
        let error = result.err();
        self.ended.extend(job.waiters.into_iter().map(|waiter| Ended { waiter, error: error.clone() }));
        if error == Some(FsError::Fenced) {
            return Err(FsError::Fenced);
        }
        base.agenda.wake();
        base.agenda.again = true;
        Ok(())
    }
}

/// Reserves places for blocks, each behind the one before if that is free.
fn reserve(
    start: u64,
    end: u64,
    goal: &mut Option<Lba>,
    pieces: &mut Vec<WritePiece>,
    unstored: Unstored,
    base: &mut Base,
) -> Result<(), FsError> {
    let mut at = start;
    while at < end {
        let want = u32::try_from(end - at).unwrap_or(u32::MAX);
        let run = base.reserve(*goal, want, unstored)?;
        *goal = Some(Lba(run.lba.0 + u64::from(run.blocks)));
        pieces.push(WritePiece { block: at, run, place: Place::Reserved });
        at += u64::from(run.blocks);
    }
    Ok(())
}

/// Whether a job took new blocks for some that the stream owns.
///
/// # Errors
/// `Miss` while the map is not in memory.
fn owns_some(id: StreamId, pieces: &[WritePiece], base: &mut Base) -> Result<bool, FsError> {
    let none = Transaction::new();
    for piece in pieces.iter().filter(|piece| piece.place == Place::Reserved) {
        let mapping = extents::map(&mut base.meta.store, &none, id, piece.block, piece.end())?;
        if mapping.iter().any(Mapped::is_owned) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unreserve(pieces: &[WritePiece], base: &mut Base) {
    for piece in pieces.iter().filter(|piece| piece.place == Place::Reserved) {
        base.meta.allocator.unreserve(piece.run);
    }
}

/// Finds the place that continues the stream: behind the last allocation, or behind the extent before.
fn goal(
    slot: usize,
    id: StreamId,
    from: u64,
    streams: &Streams,
    base: &mut Base,
) -> Result<Option<Lba>, FsError> {
    if let Some((block, lba)) = streams.get(slot).and_then(|stream| stream.goal)
        && block == from
    {
        return Ok(Some(lba));
    }
    let Some(before) = from.checked_sub(1) else { return Ok(None) };
    let mapping = extents::map(&mut base.meta.store, &Transaction::new(), id, before, from)?;
    Ok(mapping.first().and_then(|part| part.extent).map(|extent| Lba(extent.lba.0 + 1)))
}

/// Divides a job's pieces into those that one transaction may publish, as far as the metadata to change
/// is in memory, and the rest.
///
/// # Errors
/// `Miss` if there are none to publish.
fn publishable(
    id: StreamId,
    pieces: &[WritePiece],
    base: &mut Base,
) -> Result<(Vec<WritePiece>, Vec<WritePiece>), FsError> {
    let (from, to) = match (pieces.first(), pieces.last()) {
        (Some(first), Some(last)) => (first.block, last.end()),
        _ => return Ok((Vec::new(), Vec::new())),
    };
    if to - from <= PUBLISHED_WHOLE_BLOCKS {
        return Ok((pieces.to_vec(), Vec::new()));
    }
    let mut left = base.meta.journal.log.pieces_at_once();
    let stop = pieces::reach(&mut base.meta.store, id, (from, to), &mut left)?;
    let (mut now, mut rest) = (Vec::new(), Vec::new());
    for piece in pieces {
        let (before, behind) = piece.split(stop);
        now.extend(before);
        rest.extend(behind);
    }
    Ok((now, rest))
}

/// Maps a job's blocks to their new places. Returns by how many blocks the stream grows.
fn map_pieces(
    txn: &mut Transaction,
    id: StreamId,
    pieces: &[WritePiece],
    base: &mut Base,
) -> Result<i64, FsError> {
    let chunk_blocks = base.meta.allocator.chunk_blocks();
    let store = &mut base.meta.store;
    let mut more = 0_i64;
    for piece in pieces {
        let blocks = u64::from(piece.run.blocks);
        let (from, to) = (piece.block, piece.block + blocks);
        match piece.place {
            Place::Owned => {}
            Place::Unwritten => extents::mark_written(store, chunk_blocks, txn, id, from, to)?,
            Place::Reserved => {
                more += blocks as i64 - extents::unmap(store, txn, id, from, to)? as i64;
                let extent = ExtentRecord {
                    lba: piece.run.lba,
                    blocks: piece.run.blocks,
                    shared: false,
                    unwritten: false,
                };
                extents::map_hole(store, chunk_blocks, txn, id, from, extent)?;
                txn.allocate(piece.run);
            }
        }
    }
    Ok(more)
}

/// Puts a stream that is not on any list on one if it has something left to be written or published.
fn mark_rest(slot: usize, since: Monotonic, streams: &mut Streams, base: &mut Base) {
    let Some(stream) = streams.get(slot) else { return };
    let mut rest = stream.segments.has_dirty() || !stream.jobs.is_empty();
    if !rest && stream.end_of_file != stream.published_end {
        let _ = streams.publish_end(slot, 0, base);
        rest = streams.get(slot).is_some_and(|stream| stream.end_of_file != stream.published_end);
    }
    if rest {
        streams.due.mark(slot, since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FileSystem;
    use crate::fs::tests::Bench;
    use ::types::FileTime;
    use std::time::Duration;

    fn store_from(fs: &mut FileSystem, stream: StreamId, from: u64) {
        let streams = &mut fs.data.streams;
        let slot = streams.find(stream).unwrap();
        fs.data.writeback.start_jobs(slot, (from, u64::MAX), u64::MAX, streams, &mut fs.base);
    }

    #[test]
    fn a_stream_that_grows_shows_nothing_that_lay_behind_its_former_end() {
        let mut bench = Bench::new(24);
        let stream = StreamId::unnamed(bench.create("file"));
        bench.write(stream, 0, &[9; 8192]).unwrap();
        bench.flush_all().unwrap();
        bench.run(|fs| fs.set_end_of_file(stream, 100, FileTime(8))).unwrap();
        bench.flush_all().unwrap();
        bench.write(stream, 1 << 20, &[3; 4096]).unwrap();
        // Write-back that continued from a block far behind, and has not come to the former end again.
        store_from(&mut bench.fs, stream, 1);
        bench.sleep(Duration::from_millis(1500));
        bench.crash(|_| 0);
        let found = bench.read(stream, 0, 4096).unwrap();
        assert_eq!(found[..100], [9; 100]);
        assert!(found[100..].iter().all(|byte| *byte == 0), "{} bytes", found.len());
        // Nor does it show what was stored behind the end before the crash.
        bench.run(|fs| fs.set_end_of_file(stream, (1 << 20) + 8192, FileTime(9))).unwrap();
        assert_eq!(bench.read(stream, 1 << 20, 8192).unwrap(), [0; 8192]);
        // In the end all of it is there.
        bench.write(stream, 1 << 20, &[3; 4096]).unwrap();
        store_from(&mut bench.fs, stream, 1);
        bench.sleep(Duration::from_secs(6));
        bench.crash(|_| 0);
        assert_eq!(bench.read(stream, 1 << 20, 4096).unwrap(), [3; 4096]);
    }
}
