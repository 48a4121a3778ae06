//! QUERY_DIRECTORY: what is in a directory, by pattern (MS-FSA 2.1.5.6.3).

use super::information::file_information;
use super::opens::Open;
use super::{Halt, Service, wildcard};
use crate::backend::{AccessToken, DirectoryEntry, OpenId, Reply, ShareOptions};
use crate::fs::{DirectoryCursor, Entry, FileId, FsError};
use crate::security::{self, rights};
use std::sync::Arc;
use types::NtStatus;

/// Cookies of `.` and `..`; those of entries follow.
const SELF_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;
/// Entries fetched at a time.
const BATCH: usize = 128;
/// Most entries of one answer, whatever was asked.
const ENTRIES_MAX: usize = 4096;

/// Who looks, and at what.
struct Viewer {
    token: Arc<AccessToken>,
    share: ShareOptions,
    short_names: bool,
}

impl Service {
    /// The open of a directory whose entries may be seen.
    pub(super) fn open_to_list(&mut self, id: OpenId) -> Result<&mut Open, NtStatus> {
        let open = self.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        open.used = true;
        match open {
            open if !open.directory => Err(NtStatus::INVALID_PARAMETER),
            open if open.access & rights::LIST_DIRECTORY == 0 => Err(NtStatus::ACCESS_DENIED),
            open => Ok(open),
        }
    }

    pub(super) fn query_directory(
        &mut self,
        id: OpenId,
        pattern: &[u16],
        after: u64,
        entries_max: u32,
        short_names: bool,
    ) -> Result<Reply, Halt> {
        let open = self.open_to_list(id)?;
        let directory = open.stream.file;
        let parent = open.link.as_ref().map_or(FileId::ROOT, |link| link.parent);
        let viewer = Viewer { token: open.token.clone(), share: open.share, short_names };
        let mut cursor = open.cursor.take().unwrap_or_default();
        let wanted = (entries_max as usize).min(ENTRIES_MAX);
        let result = self.list(&mut cursor, (directory, parent), pattern, after, wanted, &viewer);
        if let Some(open) = self.opens.get_mut(id) {
            open.cursor = Some(cursor);
        }
        result.map(Reply::Directory)
    }

    fn list(
        &mut self,
        cursor: &mut DirectoryCursor,
        (directory, parent): (FileId, FileId),
        pattern: &[u16],
        after: u64,
        wanted: usize,
        viewer: &Viewer,
    ) -> Result<Vec<DirectoryEntry>, Halt> {
        let mut out = Vec::new();
        // One name is looked up, not searched for.
        if !pattern.is_empty() && !wildcard::has_wildcard(pattern) {
            if after != 0 {
                return Ok(out);
            }
            match self.lookup(directory, pattern) {
                Ok(entry) => {
                    if let Some(entry) = self.entry(directory, &entry, u64::MAX, viewer)? {
                        out.push(entry);
                    }
                }
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(out);
        }
        let dots: [(u64, FileId, &str); 2] = [(SELF_COOKIE, directory, "."), (PARENT_COOKIE, parent, "..")];
        for (cookie, file, name) in dots {
            let name: Vec<u16> = name.encode_utf16().collect();
            if after < cookie && out.len() < wanted && wildcard::matches(pattern, &name) {
                let information = file_information(&self.fs.attributes(file)?);
                out.push(DirectoryEntry { name: name.into(), short_name: None, information, cookie });
            }
        }
        let mut position = after.saturating_sub(PARENT_COOKIE);
        while out.len() < wanted {
            let batch =
                cursor.list(&mut self.fs, directory, position, BATCH.min(wanted - out.len()).max(16))?;
            let Some((last, _)) = batch.last() else { break };
            position = *last;
            for (cookie, entry) in batch {
                if out.len() >= wanted {
                    break;
                }
                if !wildcard::matches(pattern, &entry.name) {
                    continue;
                }
                if let Some(entry) = self.entry(directory, &entry, cookie + PARENT_COOKIE, viewer)? {
                    out.push(entry);
                }
            }
        }
        Ok(out)
    }

    /// An entry, unless it is gone or hidden from who has no right to it.
    fn entry(
        &mut self,
        directory: FileId,
        entry: &Entry,
        cookie: u64,
        viewer: &Viewer,
    ) -> Result<Option<DirectoryEntry>, Halt> {
        let attributes = match self.fs.attributes(entry.file) {
            Ok(attributes) => attributes,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if viewer.share.access_based_enumeration {
            let descriptor = self.descriptor(&attributes)?;
            if security::maximal_access(&descriptor, &viewer.token) & rights::READ_DATA == 0 {
                return Ok(None);
            }
        }
        let short_name = if viewer.short_names { self.short_name(directory, &entry.name)? } else { None };
        let information = file_information(&attributes);
        Ok(Some(DirectoryEntry { name: entry.name.clone(), short_name, information, cookie }))
    }
}
