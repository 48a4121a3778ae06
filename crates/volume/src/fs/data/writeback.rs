//! Dirty blocks on their way to the virtual disk, and those who wait for them.
//!
//! A job takes one run of dirty blocks through four steps: planned (each block gets its place), written, published
//! (extents and sizes, one transaction), done. What overlaps a job waits until it is done, so that two writes of one block
//! never race. Runs behind the published end are published in order, so that a crash leaves no hole before data
//! that was written later.

use std::time::Duration;

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
use super::super::types::{FileId, FsError, FsEvent, StreamId};
use super::extents::Mapped;
use super::{BLOCK, Stream};
use std::task::Poll;

/// Changes are written back after this time; the journal follows within its own delay: five seconds in all.
pub const DIRTY_DELAY: Duration = Duration::from_secs(3);

/// After a failed write, write-back pauses for so long.
const FAILED_DELAY: Duration = Duration::from_secs(1);

/// Longest run of a job in blocks: 4 MiB.
const JOB_BLOCKS_MAX: u64 = 1024;

/// Jobs of one stream at once.
const STREAM_JOBS_MAX: usize = 512;

/// Largest overwrite in place in blocks: 64 KiB (D6).
const IN_PLACE_BLOCKS_MAX: u64 = 16;

/// A stream that grows is written back from so many dirty blocks on: 8 MiB.
const GROWTH_BLOCKS: u64 = 2048;

/// Blocks in jobs at once, in the background: 32 MiB.
const BACKGROUND_BLOCKS_MAX: u64 = 8192;

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
    waiters: SmallVec<[u64; 2]>,
}

/// Who is answered when something is durable.
#[derive(Debug)]
pub struct Waiter {
    token: u64,
    write: bool,
    /// Streams and ranges of blocks.
    targets: Vec<(usize, StreamId, u64, u64)>,
    /// Ends of these streams when the wait began.
    ends: Vec<u64>,
    /// Files whose times go along.
    files: Vec<FileId>,
    /// Writes numbered up to this one.
    sequence: u64,
    jobs: usize,
    ticket: u64,
    error: Option<FsError>,
    queued: bool,
}

impl Waiter {
    pub fn event(&self, result: Result<(), FsError>) -> FsEvent {
        if self.write {
            FsEvent::Written { token: self.token, result }
        } else {
            FsEvent::Flushed { token: self.token, result }
        }
    }
}

impl FileSystem {
    /// Makes all of a file's data and everything done to any metadata so far durable.
    /// `Pending`: [`FsEvent::Flushed`] carries the answer.
    pub fn flush(&mut self, token: u64, file: FileId) -> Poll<Result<(), FsError>> {
        let slots = self.data.by_file.get(&file).cloned().unwrap_or_default();
        self.wait_for_flush(token, slots.to_vec(), vec![file])
    }

    /// Makes everything done to any metadata so far durable; data that was not flushed stays unpublished.
    /// `Pending`: [`FsEvent::Flushed`] carries the answer.
    pub fn flush_metadata(&mut self, token: u64) -> Poll<Result<(), FsError>> {
        self.wait_for_flush(token, Vec::new(), Vec::new())
    }

    /// Makes all data and metadata durable: before the volume is let go of.
    /// `Pending`: [`FsEvent::Flushed`] carries the answer.
    pub fn flush_all(&mut self, token: u64) -> Poll<Result<(), FsError>> {
        let slots = (0..self.data.streams.len()).collect();
        let files = self.lazy_times.keys().copied().collect();
        self.wait_for_flush(token, slots, files)
    }

    fn wait_for_flush(
        &mut self,
        token: u64,
        slots: Vec<usize>,
        files: Vec<FileId>,
    ) -> Poll<Result<(), FsError>> {
        if let Err(error) = self.ready() {
            return Poll::Ready(Err(error));
        }
        let targets = slots
            .into_iter()
            .filter_map(|slot| self.data.stream(slot).map(|stream| (slot, stream.id, 0, u64::MAX)))
            .collect();
        self.add_waiter(token, false, targets, files, 0);
        Poll::Pending
    }

    /// Waits for a range that was just written to be durable, with all before it where it lies behind the published end.
    pub(super) fn wait_for_write(&mut self, token: u64, slot: usize, from: u64, to: u64) {
        let Some(stream) = self.data.stream(slot) else { return };
        let grows = to * BLOCK > stream.published_end;
        let (id, ticket) = (stream.id, stream.ticket);
        let target = (slot, id, if grows { 0 } else { from }, to);
        self.add_waiter(token, true, vec![target], Vec::new(), ticket);
    }

    fn add_waiter(
        &mut self,
        token: u64,
        write: bool,
        targets: Vec<(usize, StreamId, u64, u64)>,
        files: Vec<FileId>,
        ticket: u64,
    ) {
        let number = self.data.next_waiter;
        self.data.next_waiter += 1;
        let ends =
            targets.iter().map(|target| self.data.stream(target.0).map_or(0, |s| s.end_of_file)).collect();
        let waiter = Waiter {
            token,
            write,
            targets,
            ends,
            files,
            sequence: self.data.sequence,
            jobs: 0,
            ticket,
            error: None,
            queued: true,
        };
        self.data.waiters.insert(number, waiter);
        self.data.to_advance.push_back(number);
        self.pump_again = true;
    }

    /// Lets waiters go on that may.
    pub(super) fn advance_waiters(&mut self) {
        for number in std::mem::take(&mut self.data.to_advance) {
            self.advance(number);
        }
        let durable = self.log.durable_ticket();
        while let Some((&(ticket, number), ())) = self.data.tickets.first_key_value()
            && ticket <= durable
        {
            self.data.tickets.pop_first();
            if let Some(waiter) = self.data.waiters.remove(&number) {
                self.events.push_back(waiter.event(Ok(())));
            }
        }
    }

    fn advance(&mut self, number: u64) {
        let Some(mut waiter) = self.data.waiters.remove(&number) else { return };
        waiter.queued = false;
        if waiter.jobs > 0 {
            self.data.waiters.insert(number, waiter);
            return;
        }
        if let Some(error) = waiter.error.take() {
            self.events.push_back(waiter.event(Err(error)));
            return;
        }
        match self
            .advance_jobs(number, &mut waiter)
            .and_then(|()| if waiter.jobs == 0 { self.publish_rest(&mut waiter) } else { Ok(()) })
        {
            Ok(()) | Err(FsError::Miss) if waiter.jobs > 0 => {
                self.data.waiters.insert(number, waiter);
            }
            Ok(()) if waiter.ticket <= self.log.durable_ticket() => {
                self.events.push_back(waiter.event(Ok(())));
            }
            Ok(()) => {
                self.log.want(waiter.ticket);
                self.pump_again = true;
                self.data.tickets.insert((waiter.ticket, number), ());
                self.data.waiters.insert(number, waiter);
            }
            Err(FsError::Miss) => {
                waiter.queued = true;
                self.data.waiters.insert(number, waiter);
                self.data.to_advance.push_back(number);
            }
            Err(error) => self.events.push_back(waiter.event(Err(error))),
        }
    }

    /// Starts and finds the jobs that a waiter has to wait for.
    fn advance_jobs(&mut self, number: u64, waiter: &mut Waiter) -> Result<(), FsError> {
        for &(slot, id, from, to) in &waiter.targets {
            let Some(stream) = self.data.stream(slot) else { continue };
            if stream.id != id || stream.reclaimed {
                continue;
            }
            if stream.segments.has_dirty_until(from, to, waiter.sequence) {
                self.start_jobs(slot, from, to, u64::MAX);
            }
            let Some(stream) = self.data.stream(slot) else { continue };
            for job in stream.jobs.in_range(from, to) {
                if let Some(job) = self.data.jobs.get_mut(&job)
                    && !job.waiters.contains(&number)
                {
                    job.waiters.push(number);
                    waiter.jobs += 1;
                }
            }
            // As many jobs as there may be work elsewhere in the stream: what is dirty here has to wait for its turn.
            let Some(stream) = self.data.stream(slot) else { continue };
            if waiter.jobs == 0 && stream.segments.has_dirty_until(from, to, waiter.sequence) {
                return Err(FsError::Miss);
            }
        }
        Ok(())
    }

    /// Publishes sizes and times that no job published, and says which ticket is to be waited for.
    fn publish_rest(&mut self, waiter: &mut Waiter) -> Result<(), FsError> {
        for (&(slot, id, _, _), &end) in waiter.targets.iter().zip(&waiter.ends) {
            let Some(stream) = self.data.stream(slot) else { continue };
            if stream.id == id {
                if !stream.reclaimed && stream.end_of_file != stream.published_end {
                    // What was written before the wait began is stored by now.
                    self.publish_end(slot, if waiter.write { 0 } else { end })?;
                }
                let ticket = self.data.stream(slot).map_or(0, |stream| stream.ticket);
                waiter.ticket = waiter.ticket.max(ticket);
            }
        }
        for file in waiter.files.clone() {
            self.publish_times(file)?;
        }
        if !waiter.write {
            waiter.ticket = waiter.ticket.max(self.log.last_ticket());
        }
        Ok(())
    }

    /// Publishes the end of a stream as far as nothing before it is unwritten, or to `known`.
    fn publish_end(&mut self, slot: usize, known: u64) -> Result<(), FsError> {
        let Some(stream) = self.data.stream(slot) else { return Ok(()) };
        let (id, end) = (stream.id, stream.safe_end().max(known.min(stream.end_of_file)));
        if end == stream.published_end {
            return Ok(());
        }
        let mut txn = Transaction::new();
        match self.put_sizes(&mut txn, id, end, 0) {
            Ok(_) => {}
            // The file is gone.
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        }
        let ticket = self.record(txn);
        self.lazy_times.remove(&id.file);
        if let Some(stream) = self.data.stream(slot) {
            stream.published_end = end;
            stream.ticket = ticket;
        }
        Ok(())
    }

    fn publish_times(&mut self, file: FileId) -> Result<(), FsError> {
        let Some(lazy) = self.lazy_times.get(&file).copied() else { return Ok(()) };
        let mut txn = Transaction::new();
        match self.inode(&txn, file) {
            Ok(mut inode) => {
                super::super::namespace::apply(&mut inode, &lazy);
                Self::put_inode(&mut txn, file, &inode);
                self.record(txn);
            }
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.lazy_times.remove(&file);
        Ok(())
    }

    /// Takes runs of dirty blocks in a range into jobs.
    pub(super) fn start_jobs(&mut self, slot: usize, from: u64, to: u64, blocks_max: u64) -> u64 {
        let (mut at, mut started) = (from, 0);
        while started < blocks_max {
            let number = self.data.next_job;
            let Some(stream) = self.data.streams.get(slot).and_then(Option::as_ref) else { break };
            if stream.jobs.ranges.len() >= STREAM_JOBS_MAX {
                break;
            }
            let blocked = |start: u64, end: u64| stream.jobs.overlaps(start, end);
            let data = stream.segments.dirty_run(at, to, JOB_BLOCKS_MAX, blocked);
            let (Some(first), Some(last)) = (data.first(), data.last()) else { break };
            let (run_from, run_to) = (first.0, last.0 + last.1.len() as u64 / BLOCK);
            let id = stream.id;
            let Some(stream) = self.data.stream(slot) else { break };
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
        started
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
        let in_place = owned_blocks <= IN_PLACE_BLOCKS_MAX || room < owned_blocks + others;
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
                Place::Owned => (WriteClass::Overwrite, IN_PLACE_BLOCKS_MAX),
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
        let (slot, id, to) = (job.slot, job.stream, job.to);
        let (pieces, error) = (job.pieces.clone(), job.error.clone());
        if let Some(error) = error {
            self.unreserve(&pieces);
            return self.end_job(number, Err(error));
        }
        self.ready_to_change()?;
        let Some(stream) = self.data.stream(slot) else { return Ok(()) };
        let end = stream.end_of_file.min(to * BLOCK).max(stream.published_end);
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
        self.data.drain.wrote(blocks, now);
        if let Some(stream) = self.data.stream(job.slot) {
            stream.jobs.ranges.remove(&job.from);
            let again = stream.segments.end_writing(job.from, job.to, number, result.is_ok());
            if result.is_err() {
                stream.dirty_blocks += again;
                self.data.dirty_blocks += again;
                self.data.failed_at = Some(now);
                self.data.mark_dirty(job.slot);
            }
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

    /// Bytes that may wait to be written; writes wait beyond.
    pub(super) fn dirty_bytes_max(&self) -> u64 {
        self.data.drain.bytes_max(self.config.dirty_bytes as u64)
    }

    /// What is new behind a stream's end is not overwritten soon, and has to be stored when the file is closed: to wait would
    /// only make that take longer.
    pub(super) fn write_growth_back(&mut self, slot: usize) {
        let room = BACKGROUND_BLOCKS_MAX.saturating_sub(self.data.writing_blocks);
        let Some(stream) = self.data.stream(slot) else { return };
        let grows = stream.end_of_file > stream.published_end;
        if grows && stream.dirty_blocks >= GROWTH_BLOCKS && room > 0 && self.data.failed_at.is_none() {
            self.start_jobs(slot, 0, u64::MAX, room);
        }
    }

    /// Writes back what is old, or what is too much, oldest first.
    pub(super) fn start_due_writeback(&mut self) {
        let goal = self.dirty_bytes_max() / 4 * 3;
        let pressure = std::mem::take(&mut self.data_pressure);
        if self.data.failed_at.is_some_and(|at| self.now < at.after(FAILED_DELAY)) {
            return;
        }
        self.data.failed_at = None;
        for _ in 0..self.data.dirty_queue.len() {
            let Some(&(since, slot)) = self.data.dirty_queue.front() else { break };
            let due = self.now >= since.after(DIRTY_DELAY);
            let much = self.data.dirty_blocks * BLOCK > goal || pressure;
            let room = BACKGROUND_BLOCKS_MAX.saturating_sub(self.data.writing_blocks);
            if !(due || much) || room == 0 {
                break;
            }
            self.data.dirty_queue.pop_front();
            self.data.dirty_streams.remove(&slot);
            if self.data.stream(slot).is_none() {
                continue;
            }
            self.start_jobs(slot, 0, u64::MAX, room);
            let Some(stream) = self.data.stream(slot) else { continue };
            let mut rest = stream.segments.has_dirty() || !stream.jobs.is_empty();
            if !rest && stream.end_of_file != stream.published_end {
                let _ = self.publish_end(slot, 0);
                rest =
                    self.data.stream(slot).is_some_and(|stream| stream.end_of_file != stream.published_end);
            }
            if rest {
                self.data.mark_dirty(slot);
            }
        }
        if self.lazy_since.is_some_and(|since| self.now >= since.after(DIRTY_DELAY)) {
            self.lazy_since = None;
            let files: Vec<FileId> = self.lazy_times.keys().copied().collect();
            for file in files {
                if self.publish_times(file).is_err() {
                    self.lazy_since = Some(self.now);
                }
            }
        }
    }
}

impl Stream {
    /// How far the end can be published: to the first block that is not written yet.
    fn safe_end(&mut self) -> u64 {
        let from = self.published_end / BLOCK;
        match self.segments.first_unstored(from) {
            Some(block) => self.end_of_file.min((block * BLOCK).max(self.published_end)),
            None => self.end_of_file,
        }
    }
}
