//! How far an open of a directory has been listed.

use crate::backend::{DirectoryEntry, OperationId, WideString};
use crate::fs::{DirectoryCursor, Entry, FileId, compare_names};
use std::collections::HashMap;

/// Limit of renamed entries in a listing. A client that renames entries while it lists has an answer of
/// at most a few thousand entries in hand; beyond the limit an entry may be listed twice.
const RENAMED_MAX: usize = 4096;

/// The place of an open in its directory, kept from one question to the next.
#[derive(Debug, Default)]
pub struct Listing {
    pub cursor: DirectoryCursor,
    /// Entries found for the last query, if it waits for metadata or for the next turn: it continues behind
    /// them.
    pub found: Option<Found>,
    /// Entries that got another name since the last answer, in that order: file, old name, new name.
    renamed: Vec<(FileId, WideString, WideString)>,
    /// Entries that were listed and got a name since that lies further on: they are not listed again.
    listed: HashMap<WideString, FileId>,
}

/// Entries that a query has found so far.
#[derive(Debug)]
pub struct Found {
    pub operation: OperationId,
    pub entries: Vec<DirectoryEntry>,
    /// The cursor's position of the last entry that was examined.
    pub position: u64,
}

impl Listing {
    /// Notes that an entry has another name. Whether the client has seen it shows with the next query:
    /// entries beyond the client's buffer are listed anew.
    pub fn note_renamed(&mut self, file: FileId, old: &[u16], new: &[u16]) {
        if self.renamed.len() < RENAMED_MAX {
            self.renamed.push((file, old.into(), new.into()));
        }
    }

    /// Begins a query that continues behind the entry at `position` of the cursor; zero: from the start.
    pub fn begin(&mut self, position: u64) {
        let renamed = std::mem::take(&mut self.renamed);
        if position == 0 {
            return self.listed.clear();
        }
        let Some(last) = self.cursor.name(position) else { return };
        for (file, old, new) in renamed {
            let was_listed = self.listed.remove(&old).is_some() || compare_names(&old, last).is_le();
            if was_listed && compare_names(&new, last).is_gt() && self.listed.len() < RENAMED_MAX {
                self.listed.insert(new, file);
            }
        }
    }

    /// Whether the entry was listed by an earlier name.
    pub fn was_listed(&self, entry: &Entry) -> bool {
        self.listed.get(&entry.name) == Some(&entry.file)
    }
}
