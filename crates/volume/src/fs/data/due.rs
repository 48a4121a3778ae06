//! When write-back begins: what is old, what is too much, what grows; and when it is tried again after it failed.
//!
//! Promises: what is written is on its way [`DIRTY_DELAY`] later, with no more before it than is soon written ([`super::drain`]), so
//! that it is durable within five seconds. What has no room among the jobs under way goes on as soon as one of them ends. After a
//! failure the pauses grow, and the failure is told until everything is written.

use super::{BLOCK, Data};
use crate::fs::FileSystem;
use crate::fs::types::{FileId, FsError};
use ::types::Monotonic;
use std::time::Duration;

/// Changes are written back after this time; the journal follows within its own delay: five seconds in all.
pub const DIRTY_DELAY: Duration = Duration::from_secs(2);

/// Pauses of write-back after writes that failed: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A stream that grows is written back from so many dirty blocks on: 8 MiB.
const GROWTH_BLOCKS: u64 = 2048;

/// Blocks in jobs at once, in the background: 32 MiB.
const BACKGROUND_BLOCKS_MAX: u64 = 8192;

/// A stream whose changes are due and do not all have a job yet.
#[derive(Debug)]
pub struct Overdue {
    pub slot: usize,
    /// Those before this block have one.
    from: u64,
    /// When they got due: what was written later is not older than that.
    since: Monotonic,
}

/// What keeps changes from being written.
#[derive(Debug, Default)]
pub struct Trouble {
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    error: FsError,
    since: Monotonic,
    retry_at: Monotonic,
    pause: Duration,
    /// It is being tried again, and nothing has failed so far.
    trying: bool,
}

impl Trouble {
    /// A write failed.
    pub fn failed(&mut self, error: &FsError, now: Monotonic) {
        match &mut self.failure {
            None => {
                let (since, pause) = (now, PAUSE_MIN);
                let (error, retry_at) = (error.clone(), now.after(pause));
                self.failure = Some(Failure { error, since, retry_at, pause, trying: false });
            }
            Some(failure) if failure.trying => {
                failure.trying = false;
                failure.error = error.clone();
                failure.pause = (failure.pause * 2).min(PAUSE_MAX);
                failure.retry_at = now.after(failure.pause);
            }
            // Others of the same try.
            Some(_) => {}
        }
    }

    /// Everything that was on its way is written.
    pub fn wrote_all(&mut self) {
        if self.failure.as_ref().is_some_and(|failure| failure.trying) {
            self.failure = None;
        }
    }

    /// Whether write-back may begin.
    fn may_try(&mut self, now: Monotonic) -> bool {
        let Some(failure) = &mut self.failure else { return true };
        failure.trying |= now >= failure.retry_at;
        failure.trying
    }

    /// The error, and since when there is one.
    pub fn current(&self) -> Option<(&FsError, Monotonic)> {
        self.failure.as_ref().map(|failure| (&failure.error, failure.since))
    }
}

impl Data {
    /// Something is to be written by then.
    pub fn due_at(&self) -> Option<Monotonic> {
        match &self.trouble.failure {
            Some(failure) if !failure.trying => Some(failure.retry_at),
            // What is overdue waits for a job to end, not for a time.
            _ => self.dirty_queue.front().map(|(since, _)| since.after(DIRTY_DELAY)),
        }
    }

    fn room(&self) -> u64 {
        BACKGROUND_BLOCKS_MAX.saturating_sub(self.writing_blocks)
    }
}

impl FileSystem {
    /// Why changes in memory are not written, data or metadata, and since when. They stay, and are tried again.
    pub fn write_back_failure(&self) -> Option<(&FsError, Monotonic)> {
        self.data.trouble.current().or_else(|| self.requests.stalled()).or_else(|| self.checkpoint_trouble())
    }

    /// Bytes that may wait to be written; writes wait beyond.
    pub(super) fn dirty_bytes_max(&self) -> u64 {
        self.data.drain.bytes_max(self.config.dirty_bytes as u64)
    }

    /// What is new behind a stream's end is not overwritten soon, and has to be stored when the file is closed: to wait would
    /// only make that take longer.
    pub(super) fn write_growth_back(&mut self, slot: usize) {
        let room = self.data.room();
        let Some(stream) = self.data.stream(slot) else { return };
        let grows = stream.end_of_file > stream.published_end;
        if grows && stream.dirty_blocks >= GROWTH_BLOCKS && room > 0 && self.data.trouble.failure.is_none() {
            self.start_jobs(slot, 0, u64::MAX, room);
        }
    }

    /// Writes back what is old, or what is too much, oldest first.
    pub(super) fn start_due_writeback(&mut self) {
        let goal = self.dirty_bytes_max() / 4 * 3;
        let pressure = std::mem::take(&mut self.data_pressure);
        if !self.data.trouble.may_try(self.now) {
            return;
        }
        while let Some(&(since, slot)) = self.data.dirty_queue.front()
            && self.now >= since.after(DIRTY_DELAY)
        {
            self.data.dirty_queue.pop_front();
            self.data.overdue.push_back(Overdue { slot, from: 0, since: self.now });
        }
        for _ in 0..self.data.overdue.len() {
            if self.data.room() == 0 {
                break;
            }
            let Some(overdue) = self.data.overdue.pop_front() else { break };
            self.write_overdue(overdue);
        }
        for _ in 0..self.data.dirty_queue.len() {
            let much = self.data.dirty_blocks * BLOCK > goal || pressure;
            if !much || self.data.room() == 0 {
                break;
            }
            let Some((_, slot)) = self.data.dirty_queue.pop_front() else { break };
            self.data.dirty_streams.remove(&slot);
            self.start_jobs(slot, 0, u64::MAX, self.data.room());
            self.mark_what_is_left(slot, self.now);
        }
        if self.data.dirty_bytes() == 0 {
            self.data.trouble.wrote_all();
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

    fn write_overdue(&mut self, overdue: Overdue) {
        let slot = overdue.slot;
        match self.start_jobs(slot, overdue.from, u64::MAX, self.data.room()) {
            Some(from) => self.data.overdue.push_back(Overdue { from, ..overdue }),
            None => {
                self.data.dirty_streams.remove(&slot);
                self.mark_what_is_left(slot, overdue.since);
            }
        }
    }

    /// A stream that is not on any list gets on one where it has something left to be written or published.
    fn mark_what_is_left(&mut self, slot: usize, since: Monotonic) {
        let Some(stream) = self.data.stream(slot) else { return };
        let mut rest = stream.segments.has_dirty() || !stream.jobs.is_empty();
        if !rest && stream.end_of_file != stream.published_end {
            let _ = self.publish_end(slot, 0);
            rest = self.data.stream(slot).is_some_and(|stream| stream.end_of_file != stream.published_end);
        }
        if rest {
            self.data.mark_dirty_since(slot, since);
        }
    }
}
