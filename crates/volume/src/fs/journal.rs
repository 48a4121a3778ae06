//! Timing of the journal: when gathered changes are written.
//!
//! Owns the log's writing end and the age of gathering changes. Promises: a change is being written to
//! the virtual disk [`JOURNAL_DELAY`] after it was added, or as soon as somebody wants its ticket, if
//! there is space.

use std::time::Duration;

use ::types::Monotonic;
use space::api::WriteClass;

use super::io::{Purpose, Requests};
use super::meta::Transaction;
use super::meta::log::{Append, Log};

/// Delay until changes without a waiter are written to the journal.
const JOURNAL_DELAY: Duration = Duration::from_secs(1);

/// The log, and since when changes gather in its open batch: `gathering_since` is set if and only if something was added since the
/// batch before was closed, as of the last pump.
#[derive(Debug, Default)]
pub struct Journal {
    pub log: Log,
    /// Time of the last poll.
    pub now: Monotonic,
    gathering_since: Option<Monotonic>,
}

impl Journal {
    /// Takes a transaction into the batch that gathers; its ticket. `None` if no batch can take it.
    pub fn add(&mut self, txn: &Transaction) -> Option<u64> {
        self.gathering_since.get_or_insert(self.now);
        self.log.add(txn)
    }

    /// Returns when the gathering batch is due. An overdue one waits for an answer or for space, not for a
    /// time.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.gathering_since.map(|since| since.after(JOURNAL_DELAY)).filter(|at| *at > self.now)
    }

    /// Writes batches whose time has come.
    pub fn pump(&mut self, requests: &mut Requests) {
        let due = self.gathering_since.is_some_and(|since| self.now >= since.after(JOURNAL_DELAY));
        while let Some(append) = self.log.next_append(due) {
            write(append, requests);
        }
        if !self.log.is_pending() {
            self.gathering_since = None;
        }
    }

    /// Closes the gathering batch for a checkpoint with all of its changes: replay begins behind it. If
    /// there is no space to write it, the checkpoint alone carries them.
    pub fn close(&mut self, requests: &mut Requests) {
        if let Some(append) = self.log.cut() {
            write(append, requests);
        }
        if self.log.is_pending() {
            self.log.absorb();
        }
        self.gathering_since = None;
    }
}

fn write(append: Append, requests: &mut Requests) {
    let purpose = Purpose::Journal { sequence: append.sequence };
    requests.write_needed(purpose, append.lba, WriteClass::Append, append.data.into());
}
