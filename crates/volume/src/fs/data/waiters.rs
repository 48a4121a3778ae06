//! Who waits for something to be durable: flushes and durable writes.
//!
//! Promises: what is answered well is on the disk, with sizes and times; what was written after the wait began is not waited for.

use std::task::Poll;

use super::super::FileSystem;
use super::super::meta::Transaction;
use super::super::types::{FileId, FsError, FsEvent, StreamId};
use super::{BLOCK, Stream};

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
    /// Jobs that have to end first.
    pub jobs: usize,
    ticket: u64,
    pub error: Option<FsError>,
    /// It is about to be looked at.
    pub queued: bool,
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
        for (&(slot, id, from, to), &end) in waiter.targets.iter().zip(&waiter.ends) {
            let Some(stream) = self.data.stream(slot) else { continue };
            if stream.id == id {
                if !stream.reclaimed && stream.end_of_file != stream.published_end {
                    // What was written before the wait began is stored by now, as far as it was waited for.
                    self.publish_end(slot, if from == 0 { end.min(to.saturating_mul(BLOCK)) } else { 0 })?;
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
    pub(super) fn publish_end(&mut self, slot: usize, known: u64) -> Result<(), FsError> {
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

    pub(super) fn publish_times(&mut self, file: FileId) -> Result<(), FsError> {
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
}

impl Stream {
    /// Whether the block in which the published end lies is still to be stored, before block `from`.
    pub(super) fn has_unstored_tail(&self, from: u64) -> bool {
        let tail = self.published_end / BLOCK;
        let is_whole = self.published_end.is_multiple_of(BLOCK);
        !is_whole && tail < from && self.segments.has_unstored(tail, tail + 1)
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
