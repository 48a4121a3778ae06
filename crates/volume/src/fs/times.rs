//! Times of files that changed in memory only: those that reads and writes change as a side effect.

use std::collections::HashMap;
use std::time::Duration;

use ::types::Monotonic;

use super::inodes::{apply, inode, put_inode};
use super::meta::Transaction;
use super::metadata::Metadata;
use super::types::{AttributeChange, FileId, FsError};

/// Age at which times that changed in memory are put into the journal, as for data.
const TIMES_DELAY: Duration = Duration::from_secs(2);

/// Number of files whose times are put into the journal in one go: there may be very many.
const FILES_AT_ONCE: usize = 64;

/// Times that are newer than those stored.
///
/// A file has an entry here if and only if its inode lacks these times. Code that stores an inode with
/// them applied drops the entry with the same transaction.
#[derive(Debug, Default)]
pub struct Times {
    changed: HashMap<FileId, AttributeChange>,
    /// Time of the oldest change, except for those of the files in `due`.
    since: Option<Monotonic>,
    /// Files whose times are being published.
    due: Vec<FileId>,
}

impl Times {
    /// Takes new times.
    pub fn touch(&mut self, file: FileId, times: &AttributeChange, now: Monotonic) {
        self.since.get_or_insert(now);
        let lazy = self.changed.entry(file).or_default();
        lazy.created = times.created.or(lazy.created);
        lazy.accessed = times.accessed.or(lazy.accessed);
        lazy.written = times.written.or(lazy.written);
        lazy.changed = times.changed.or(lazy.changed);
    }

    /// The times of a file that its inode lacks.
    pub fn get(&self, file: FileId) -> Option<AttributeChange> {
        self.changed.get(&file).copied()
    }

    /// Forgets a file that is gone, or whose inode now has its times.
    pub fn forget(&mut self, file: FileId) {
        self.changed.remove(&file);
    }

    /// Files with times that are not stored.
    pub fn files(&self) -> Vec<FileId> {
        self.changed.keys().copied().collect()
    }

    /// Returns when the oldest change is due. Overdue ones are stored with the data, once writes may be
    /// retried.
    pub fn timeout(&self, now: Monotonic) -> Option<Monotonic> {
        let since = self.since.filter(|_| !self.changed.is_empty())?;
        Some(since.after(TIMES_DELAY)).filter(|at| *at > now)
    }

    /// Puts a file's times into its inode.
    ///
    /// # Errors
    /// `Miss`, also while the journal has no space, and damage of the metadata. Stores nothing for a
    /// deleted file.
    pub fn publish(&mut self, file: FileId, meta: &mut Metadata) -> Result<(), FsError> {
        let Some(lazy) = self.get(file) else { return Ok(()) };
        if !meta.journal.log.has_room() {
            return Err(FsError::Miss);
        }
        let mut txn = Transaction::new();
        match inode(&mut meta.store, &txn, file) {
            Ok(mut inode) => {
                apply(&mut inode, &lazy);
                put_inode(&mut txn, file, &inode);
                meta.record(txn);
            }
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.forget(file);
        Ok(())
    }

    /// Whether more times are due than were published.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Publishes times if the oldest change is due, those of some files at a time. Times that cannot be
    /// published wait once more.
    pub fn publish_due(&mut self, meta: &mut Metadata, now: Monotonic) {
        if self.due.is_empty() {
            if self.since.is_none_or(|since| now < since.after(TIMES_DELAY)) {
                return;
            }
            self.since = None;
            self.due = self.files();
        }
        for _ in 0..FILES_AT_ONCE {
            let Some(file) = self.due.pop() else { return };
            if self.publish(file, meta).is_err() {
                self.since.get_or_insert(now);
            }
        }
    }
}
