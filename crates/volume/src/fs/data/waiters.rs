//! Flushes and durable writes that wait for data to be durable.
//!
//! Promises: success means that the data is on the disk, with sizes and times. A wait does not include
//! writes after its start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::BLOCK;
use super::streams::Streams;
use super::writeback::{Ended, Writeback};
use crate::fs::base::Base;
use crate::fs::types::{FileId, FsError, FsEvent, StreamId};

/// Blocks of a stream with a waiter.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub slot: usize,
    pub stream: StreamId,
    pub from: u64,
    pub to: u64,
}

/// Kind of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Flush,
    Write,
}

/// Request that is answered when its data is durable.
#[derive(Debug)]
struct Waiter {
    token: u64,
    asked: Asked,
    targets: Vec<Target>,
    /// Ends of these streams when the wait began.
    ends: Vec<u64>,
    /// Files whose times go along.
    files: Vec<FileId>,
    /// Number of the last write that is waited for.
    sequence: u64,
    /// Jobs that have to end first.
    jobs: usize,
    ticket: u64,
    error: Option<FsError>,
    /// Queued to be checked.
    queued: bool,
}

impl Waiter {
    fn event(&self, result: Result<(), FsError>) -> FsEvent {
        match self.asked {
            Asked::Write => FsEvent::Written { token: self.token, result },
            Asked::Flush => FsEvent::Flushed { token: self.token, result },
        }
    }

    /// Starts and finds the jobs that have to end first.
    fn start_jobs(
        &mut self,
        number: u64,
        streams: &mut Streams,
        writeback: &mut Writeback,
        base: &mut Base,
    ) -> Result<(), FsError> {
        for &Target { slot, stream: id, from, to } in &self.targets {
            let Some(stream) = streams.get(slot) else { continue };
            if stream.id != id || stream.reclaimed {
                continue;
            }
            if stream.segments.has_dirty_until(from, to, self.sequence) {
                writeback.start_jobs(slot, (from, to), u64::MAX, streams, base);
            }
            let Some(stream) = streams.get(slot) else { continue };
            for job in stream.jobs.in_range(from, to) {
                self.jobs += usize::from(writeback.wait_for(job, number));
            }
            // As many jobs as there may be work elsewhere in the stream: dirty blocks here have to wait for
            // their turn.
            if self.jobs == 0 && stream.segments.has_dirty_until(from, to, self.sequence) {
                return Err(FsError::Miss);
            }
        }
        Ok(())
    }

    /// Publishes sizes and times that no job published, and finds the ticket to wait for.
    fn publish_rest(&mut self, streams: &mut Streams, base: &mut Base) -> Result<(), FsError> {
        for (&Target { slot, stream: id, from, to }, &end) in self.targets.iter().zip(&self.ends) {
            let Some(stream) = streams.get(slot).filter(|stream| stream.id == id) else { continue };
            if !stream.reclaimed && stream.end_of_file != stream.published_end {
                // The awaited part of the data written before the wait is stored by now.
                let known = if from == 0 { end.min(to.saturating_mul(BLOCK)) } else { 0 };
                streams.publish_end(slot, known, base)?;
            }
            let ticket = streams.get(slot).map_or(0, |stream| stream.ticket);
            self.ticket = self.ticket.max(ticket);
        }
        for file in &self.files {
            base.times.publish(*file, &mut base.meta)?;
        }
        if self.asked == Asked::Flush {
            self.ticket = self.ticket.max(base.meta.journal.log.last_ticket());
        }
        Ok(())
    }
}

/// All waiters.
///
/// A waiter goes through three steps: its jobs end; the waiter publishes sizes and times that no job
/// published; the ticket of all that becomes durable. Each is in exactly one place that advances it: in
/// `to_advance` (`queued`), with jobs that report their end (`jobs` counts them), or in `tickets`.
#[derive(Debug, Default)]
pub struct Waiters {
    waiters: BTreeMap<u64, Waiter>,
    /// Waiters by the ticket they wait for.
    tickets: BTreeSet<(u64, u64)>,
    /// Waiters that may continue.
    to_advance: VecDeque<u64>,
    next: u64,
}

impl Waiters {
    /// Waits for blocks of streams and for files' times to be durable; a flush also for all changes of
    /// metadata so far.
    pub fn add(
        &mut self,
        token: u64,
        asked: Asked,
        targets: Vec<Target>,
        files: Vec<FileId>,
        streams: &Streams,
        base: &mut Base,
    ) {
        let number = self.next;
        self.next += 1;
        let ends =
            targets.iter().map(|target| streams.get(target.slot).map_or(0, |s| s.end_of_file)).collect();
        let tickets =
            targets.iter().filter_map(|target| streams.get(target.slot)).map(|stream| stream.ticket);
        let ticket = tickets.max().unwrap_or(0);
        let waiter = Waiter {
            token,
            asked,
            targets,
            ends,
            files,
            sequence: streams.sequence,
            jobs: 0,
            ticket,
            error: None,
            queued: true,
        };
        self.waiters.insert(number, waiter);
        self.to_advance.push_back(number);
        base.agenda.again = true;
    }

    /// Waits for a range that was just written to be durable, with all before it if it lies behind the published end.
    pub fn add_write(
        &mut self,
        token: u64,
        slot: usize,
        (from, to): (u64, u64),
        streams: &Streams,
        base: &mut Base,
    ) {
        let Some(stream) = streams.get(slot) else { return };
        let grows = to * BLOCK > stream.published_end;
        let target = Target { slot, stream: stream.id, from: if grows { 0 } else { from }, to };
        self.add(token, Asked::Write, vec![target], Vec::new(), streams, base);
    }

    /// Takes the news of jobs that have ended.
    pub fn jobs_ended(&mut self, ended: Vec<Ended>) {
        for Ended { waiter: number, error } in ended {
            let Some(waiter) = self.waiters.get_mut(&number) else { continue };
            waiter.jobs -= 1;
            if error.is_some() {
                waiter.error = error;
            }
            if waiter.jobs == 0 && !std::mem::replace(&mut waiter.queued, true) {
                self.to_advance.push_back(number);
            }
        }
    }

    /// Advances waiters that may continue.
    pub fn advance_all(&mut self, streams: &mut Streams, writeback: &mut Writeback, base: &mut Base) {
        for number in std::mem::take(&mut self.to_advance) {
            self.advance(number, streams, writeback, base);
        }
        let durable = base.meta.journal.log.durable_ticket();
        while let Some(&(ticket, number)) = self.tickets.first()
            && ticket <= durable
        {
            self.tickets.pop_first();
            if let Some(waiter) = self.waiters.remove(&number) {
                base.agenda.events.push_back(waiter.event(Ok(())));
            }
        }
    }

    fn advance(&mut self, number: u64, streams: &mut Streams, writeback: &mut Writeback, base: &mut Base) {
        let Some(mut waiter) = self.waiters.remove(&number) else { return };
        waiter.queued = false;
        if waiter.jobs > 0 {
            self.waiters.insert(number, waiter);
            return;
        }
        if let Some(error) = waiter.error.take() {
            base.agenda.events.push_back(waiter.event(Err(error)));
            return;
        }
        let result = waiter
            .start_jobs(number, streams, writeback, base)
            .and_then(|()| if waiter.jobs == 0 { waiter.publish_rest(streams, base) } else { Ok(()) })
            // Nothing is promised that a volume did not record because it failed meanwhile.
            .and_then(|()| base.ready());
        let log = &mut base.meta.journal.log;
        match result {
            Ok(()) | Err(FsError::Miss) if waiter.jobs > 0 => {
                self.waiters.insert(number, waiter);
            }
            Ok(()) if waiter.ticket <= log.durable_ticket() => {
                base.agenda.events.push_back(waiter.event(Ok(())));
            }
            Ok(()) => {
                log.want(waiter.ticket);
                base.agenda.again = true;
                self.tickets.insert((waiter.ticket, number));
                self.waiters.insert(number, waiter);
            }
            Err(FsError::Miss) => {
                waiter.queued = true;
                self.waiters.insert(number, waiter);
                self.to_advance.push_back(number);
            }
            Err(error) => base.agenda.events.push_back(waiter.event(Err(error))),
        }
    }

    /// Answers all waiters with an error.
    pub fn fail(&mut self, error: &FsError, events: &mut VecDeque<FsEvent>) {
        let waiters = std::mem::take(self).waiters.into_values();
        events.extend(waiters.map(|waiter| waiter.event(Err(error.clone()))));
    }
}
