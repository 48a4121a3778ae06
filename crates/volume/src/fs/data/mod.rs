//! Data of streams: cache, reads, writes, write-back, and changes of a stream's shape.
//!
//! A stream in use has its sizes and cached blocks in memory. A write goes into the cache. Write-back
//! takes runs of dirty blocks, finds or reserves their place, writes them, and publishes new extents
//! and sizes with one transaction. Bytes behind the end of a stream are always zeroes in the cache. On
//! disk they may be anything, so reads cut blocks at the end, and growing a stream rewrites its last
//! block.

mod ahead;
mod barriers;
mod cloning;
mod drain;
mod due;
mod eviction;
pub mod extents;
mod pieces;
mod places;
mod read;
mod reclaim;
mod segments;
mod shape;
mod streams;
mod waiters;
mod write;
mod writeback;

use std::collections::VecDeque;
use std::task::Poll;

use ::types::{BLOCK_BYTES, Monotonic};
use sys::Payload;

use super::agenda::Agenda;
use super::base::{Base, Unstored};
use super::io::Answer;
use super::meta::Store;
use super::types::{FileId, FsError, FsEvent, StreamId};
use barriers::Barriers;
pub use cloning::{CloneRange, CloneRefusal};
use read::Reads;
pub use read::{Answered, ParkedRead};
use reclaim::Orphans;
pub use streams::Streams;
#[cfg(test)]
pub use streams::put_sizes;
use waiters::{Asked, Target, Waiters};
pub use write::Editor;
use writeback::Writeback;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Largest stream in bytes: 2^60.
pub const STREAM_BYTES_MAX: u64 = 1 << 60;

/// A write as its caller requested it.
#[derive(Debug)]
pub struct ParkedWrite {
    pub token: u64,
    pub stream: StreamId,
    pub offset: u64,
    pub data: Payload,
    pub durable: bool,
}

/// Requests that wait for something to come into memory or to be written.
#[derive(Debug)]
enum Parked {
    Read(ParkedRead),
    Write(ParkedWrite),
}

/// The contents of all streams.
///
/// Each request is in one place until it is answered: parked, in a read job, or among the waiters. A
/// request that misses is parked, and runs again, in order of arrival, once woken.
#[derive(Debug, Default)]
pub struct Data {
    pub streams: Streams,
    reads: Reads,
    writeback: Writeback,
    waiters: Waiters,
    parked: VecDeque<Parked>,
    barriers: Barriers,
    orphans: Orphans,
}

impl Data {
    /// Whether nothing is being reclaimed.
    pub fn gives_nothing_back(&self) -> bool {
        self.orphans.is_empty()
    }

    /// Takes notice of the time of a poll.
    pub fn begin_turn(&mut self, now: Monotonic) {
        self.streams.now = now;
        self.orphans.begin_turn();
    }

    /// Data that is not stored yet.
    pub fn unstored(&self) -> Unstored {
        self.writeback.unstored(&self.streams)
    }

    /// Bytes that clients have read, by where they were.
    pub fn answered(&self) -> Answered {
        self.reads.answered()
    }

    /// When the oldest change in memory, of data or times, wants to be written.
    pub fn timeout(&self, base: &Base) -> Option<Monotonic> {
        let times = base.times.timeout(base.agenda.now);
        [self.writeback.timeout(&self.streams), self.orphans.timeout(), times].into_iter().flatten().min()
    }

    /// Why data is not written, and since when.
    pub fn write_back_failure(&self) -> Option<(&FsError, Monotonic)> {
        self.writeback.failure()
    }

    /// The parts that a change of streams' contents touches.
    pub fn editor<'a>(&'a mut self, base: &'a mut Base) -> Editor<'a> {
        Editor {
            streams: &mut self.streams,
            reads: &mut self.reads,
            writeback: &mut self.writeback,
            base,
            space_comes_back: !self.orphans.is_empty(),
        }
    }

    /// Reads, or parks the read. One that is not new is tried again.
    pub fn read(
        &mut self,
        read: ParkedRead,
        is_new: bool,
        base: &mut Base,
    ) -> Poll<Result<Payload, FsError>> {
        match self.reads.read(read, is_new, &mut self.streams, base) {
            Ok(Some(data)) => Poll::Ready(Ok(data)),
            Ok(None) => Poll::Pending,
            Err(FsError::Miss) => {
                self.parked.push_back(Parked::Read(read));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn read_again(&mut self, read: ParkedRead, base: &mut Base) {
        if let Poll::Ready(result) = self.read(read, false, base) {
            base.agenda.events.push_back(FsEvent::Read { token: read.token, result });
        }
    }

    /// Writes into the cache, or parks the write; waits for it to be durable if requested.
    pub fn write(&mut self, write: ParkedWrite, base: &mut Base) -> Poll<Result<(), FsError>> {
        match self.editor(base).write(write.stream, write.offset, &write.data) {
            Ok(slot) if write.durable && !write.data.is_empty() => {
                let end = write.offset + write.data.len() as u64;
                let blocks = (write.offset / BLOCK, end.div_ceil(BLOCK));
                self.waiters.add_write(write.token, slot, blocks, &self.streams, base);
                Poll::Pending
            }
            Ok(_) => Poll::Ready(Ok(())),
            Err(FsError::Miss) => {
                self.parked.push_back(Parked::Write(write));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Waits for all data and times of these files, and for all changes of metadata so far, to be durable.
    pub fn flush(&mut self, token: u64, slots: &[usize], files: Vec<FileId>, base: &mut Base) {
        let target = |&slot: &usize| {
            let stream = self.streams.get(slot)?.id;
            Some(Target { slot, stream, from: 0, to: u64::MAX })
        };
        let targets = slots.iter().filter_map(target).collect();
        self.waiters.add(token, Asked::Flush, targets, files, &self.streams, base);
    }

    /// Has everything that was written to a file stored and published, so that no later change is durable before.
    ///
    /// # Errors
    /// `Miss` until it is; why it cannot be, after a while.
    pub fn publish_file(&mut self, file: FileId, base: &mut Base) -> Result<(), FsError> {
        self.barriers.publish_file(file, &mut self.streams, &mut self.writeback, base)
    }

    /// Begins to free a file or stream that has no name and is no longer used.
    pub fn reclaim(&mut self, orphan: StreamId, base: &mut Base) {
        self.orphans.add(orphan, &mut self.streams, base);
    }

    /// Finds files and streams without a name since the volume was last in use.
    ///
    /// # Errors
    /// `Miss` until all are found; damage of the metadata.
    pub fn find_orphans(&mut self, store: &mut Store, agenda: &mut Agenda) -> Result<(), FsError> {
        self.orphans.find(store, agenda)
    }

    /// Whether there is work left that the next poll can do.
    pub fn is_busy(&self) -> bool {
        self.orphans.is_busy()
    }

    /// Carries on reads, writes, write-back and waiters.
    ///
    /// # Errors
    /// Those with which the volume fails.
    pub fn pump(&mut self, base: &mut Base) -> Result<(), FsError> {
        if base.agenda.take_data_retry() {
            self.run_parked(base);
            self.writeback.plan_again(&mut self.streams, base);
            self.waiters.advance_all(&mut self.streams, &mut self.writeback, base);
        }
        let published = self.writeback.publish_jobs(&mut self.streams, base);
        self.waiters.jobs_ended(self.writeback.take_ended());
        published?;
        self.writeback.start_due(&mut self.streams, base);
        self.waiters.advance_all(&mut self.streams, &mut self.writeback, base);
        base.release_freed(self.unstored());
        self.orphans.pump(&mut self.streams, base);
        self.streams.evict(base.config.cache_bytes);
        self.streams.tidy();
        Ok(())
    }

    fn run_parked(&mut self, base: &mut Base) {
        for parked in std::mem::take(&mut self.parked) {
            match parked {
                Parked::Read(read) => self.read_again(read, base),
                Parked::Write(write) => {
                    let token = write.token;
                    if let Poll::Ready(result) = self.write(write, base) {
                        base.agenda.events.push_back(FsEvent::Written { token, result });
                    }
                }
            }
        }
    }

    /// Takes an answer to a request of a read.
    pub fn handle_read(&mut self, job: u64, part: usize, answer: Answer, base: &mut Base) {
        for read in self.reads.handle(job, part, answer, &mut self.streams, base) {
            self.read_again(read, base);
        }
    }

    /// Takes an answer to a write of write-back.
    pub fn handle_write(&mut self, job: u64, answer: Answer) {
        self.writeback.handle(job, answer);
    }

    /// Answers everything that waits with an error.
    pub fn fail(&mut self, error: &FsError, events: &mut VecDeque<FsEvent>) {
        let read = |token: u64| FsEvent::Read { token, result: Err(error.clone()) };
        for parked in std::mem::take(&mut self.parked) {
            events.push_back(match parked {
                Parked::Read(parked) => read(parked.token),
                Parked::Write(write) => FsEvent::Written { token: write.token, result: Err(error.clone()) },
            });
        }
        events.extend(self.reads.fail().into_iter().map(read));
        self.waiters.fail(error, events);
    }
}
