//! One enumeration of a directory: numbers that a client can hold in place of names.

use std::collections::VecDeque;

use super::FileSystem;
use super::types::WideString;
use super::types::{Entry, FileId, FsError};

/// Positions remembered: those of the answers a client may still be reading from.
const POSITIONS_MAX: usize = 8192;

/// Position of an open in the listing of its directory. A cookie stands for a name, so it stays right
/// when entries are inserted or removed, even its own: listing continues after that name. A request for
/// an earlier cookie lists the names after it again. Cookies mean nothing to other cursors.
#[derive(Debug, Default)]
pub struct DirectoryCursor {
    /// Cookie of the first remembered position, less one.
    first: u64,
    names: VecDeque<WideString>,
}

impl DirectoryCursor {
    /// Makes a cursor at the start of a directory, without cookies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Entries after the one with this cookie (0: from the start) with their cookies, at most `entries_max`.
    ///
    /// # Errors
    /// `Invalid` for a cookie that was never given or was forgotten long ago; those of
    /// [`FileSystem::list`].
    pub fn list(
        &mut self,
        fs: &mut FileSystem,
        directory: FileId,
        after: u64,
        entries_max: usize,
    ) -> Result<Vec<(u64, Entry)>, FsError> {
        // Later names get their cookies again: a query that is repeated because pages had to be read uses up
        // no positions.
        let name = if after == 0 {
            self.names.clear();
            self.first = 0;
            None
        } else {
            let name =
                self.name(after).ok_or(FsError::Invalid("a directory position that is not known"))?.clone();
            self.names.truncate((after - self.first) as usize);
            Some(name)
        };
        let entries = fs.list(directory, name.as_deref(), entries_max.min(POSITIONS_MAX / 2))?;
        Ok(entries
            .into_iter()
            .map(|entry| {
                self.names.push_back(entry.name.clone());
                if self.names.len() > POSITIONS_MAX {
                    self.names.pop_front();
                    self.first += 1;
                }
                (self.first + self.names.len() as u64, entry)
            })
            .collect())
    }

    /// Returns the name of a cookie.
    pub fn name(&self, cookie: u64) -> Option<&WideString> {
        let at = cookie.checked_sub(self.first)?.checked_sub(1)?;
        self.names.get(usize::try_from(at).ok()?)
    }
}
