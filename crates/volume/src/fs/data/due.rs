//! Start of write-back: the due streams, and the next try after a failure.
//!
//! Promises: write-back of a stream with changes begins [`DIRTY_DELAY`] after the first of them. A
//! stream that finds no free job starts as soon as one ends. After a failure the pauses grow, and the
//! failure is reported until everything is written. While the failure is a lack of space, only the
//! streams that met it wait: others may need none.

use ::types::Monotonic;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::fs::types::FsError;

/// Age at which changes are written back; the journal follows within its own delay: five seconds in
/// all.
pub const DIRTY_DELAY: Duration = Duration::from_secs(2);

/// Pauses of write-back after writes that failed: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A stream whose changes are due and do not all have a job yet.
#[derive(Debug)]
pub struct Overdue {
    pub slot: usize,
    /// Block before which all have one.
    pub from: u64,
    /// Time at which they got due: later writes are not older than that.
    pub since: Monotonic,
}

/// Streams with data to write back or publish.
///
/// Each is listed once: in `queue`, which is in the order of their oldest changes, in `overdue`, or in
/// `held`. A stream taken out of all has to be marked again or unlisted.
#[derive(Debug, Default)]
pub struct Due {
    listed: BTreeSet<usize>,
    queue: VecDeque<(Monotonic, usize)>,
    overdue: VecDeque<Overdue>,
    /// Streams whose data found no space, with the time of the failure: they wait for the next try.
    held: BTreeMap<usize, Monotonic>,
}

impl Due {
    /// Lists a stream that has changed at this time, if it is not listed yet.
    pub fn mark(&mut self, slot: usize, since: Monotonic) {
        if self.listed.insert(slot) {
            let at = self.queue.partition_point(|&(other, _)| other <= since);
            self.queue.insert(at, (since, slot));
        }
    }

    /// Drops a stream that is forgotten.
    pub fn forget(&mut self, slot: usize) {
        if self.listed.remove(&slot) {
            self.queue.retain(|&(_, other)| other != slot);
            self.overdue.retain(|other| other.slot != slot);
            self.held.remove(&slot);
        }
    }

    /// Sets a stream aside until [`Due::release_held`]: its data finds no space.
    pub fn hold(&mut self, slot: usize, since: Monotonic) {
        self.forget(slot);
        self.listed.insert(slot);
        self.held.insert(slot, since);
    }

    /// Whether the stream is set aside.
    pub fn is_held(&self, slot: usize) -> bool {
        self.held.contains_key(&slot)
    }

    /// Streams that are set aside.
    pub fn held(&self) -> impl Iterator<Item = usize> {
        self.held.keys().copied()
    }

    /// Lists the streams that were set aside as due.
    pub fn release_held(&mut self) {
        for (slot, since) in std::mem::take(&mut self.held) {
            self.overdue.push_back(Overdue { slot, from: 0, since });
        }
    }

    /// Time at which the oldest change is due. Overdue streams wait for a job to end, not for a time.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.queue.front().map(|(since, _)| since.after(DIRTY_DELAY))
    }

    /// Moves streams whose time has come to the overdue ones. Returns the number of these.
    pub fn begin_overdue(&mut self, now: Monotonic) -> usize {
        while let Some(&(since, slot)) = self.queue.front()
            && now >= since.after(DIRTY_DELAY)
        {
            self.queue.pop_front();
            self.overdue.push_back(Overdue { slot, from: 0, since: now });
        }
        self.overdue.len()
    }

    /// Takes the next overdue stream: it stays listed until [`Due::put_back`] or [`Due::unlist`].
    pub fn take_overdue(&mut self) -> Option<Overdue> {
        self.overdue.pop_front()
    }

    /// Puts back an overdue stream of which something has no job yet.
    pub fn put_back(&mut self, overdue: Overdue) {
        debug_assert!(self.listed.contains(&overdue.slot), "{overdue:?} is not listed");
        self.overdue.push_back(overdue);
    }

    /// Strikes a stream that was taken off the list.
    pub fn unlist(&mut self, slot: usize) {
        self.listed.remove(&slot);
    }

    /// Number of streams that are not due yet.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes the stream with the oldest change off the list, before it is due.
    pub fn take_oldest(&mut self) -> Option<usize> {
        let (_, slot) = self.queue.pop_front()?;
        self.listed.remove(&slot);
        Some(slot)
    }
}

/// Failure that keeps changes from being written.
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
    /// A new try is under way and has not failed so far.
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

    /// Notes that everything under way is written.
    pub fn wrote_all(&mut self) {
        if self.failure.as_ref().is_some_and(|failure| failure.trying) {
            self.failure = None;
        }
    }

    /// Whether write-back may begin.
    pub fn may_try(&mut self, now: Monotonic) -> bool {
        let Some(failure) = &mut self.failure else { return true };
        failure.trying |= now >= failure.retry_at;
        failure.trying
    }

    /// The error, and since when there is one.
    pub fn current(&self) -> Option<(&FsError, Monotonic)> {
        self.failure.as_ref().map(|failure| (&failure.error, failure.since))
    }

    /// Whether data was refused for lack of space.
    pub fn lacks_space(&self) -> bool {
        matches!(self.current(), Some((FsError::NoSpace, _)))
    }

    /// When write-back is tried again, if it waits for that.
    pub fn retry_at(&self) -> Option<Monotonic> {
        self.failure.as_ref().filter(|failure| !failure.trying).map(|failure| failure.retry_at)
    }
}
