//! QUERY_DIRECTORY: what is in a directory, by pattern (MS-FSA 2.1.5.6.3).

use super::information::file_information;
use super::{Halt, Service, wildcard};
use crate::backend::{AccessToken, DirectoryEntry, OpenId, Reply, ShareOptions};
use crate::fs::{DirectoryCursor, FileId, FsError};
use crate::security::{self, rights};
use types::NtStatus;

/// Cookies of `.` and `..`; those of entries follow.
const SELF_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;
/// Entries fetched at a time.
const BATCH: usize = 128;
/// Most entries of one answer, whatever was asked.
const ENTRIES_MAX: usize = 4096;

impl Service {
    pub(super) fn query_directory(
        &mut self,
        id: OpenId,
        pattern: &[u16],
        after: u64,
        entries_max: u32,
    ) -> Result<Reply, Halt> {
        let open = self.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        open.used = true;
        if !open.directory {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        if open.access & rights::LIST_DIRECTORY == 0 {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        let directory = open.stream.file;
        let parent = open.link.as_ref().map_or(FileId::ROOT, |link| link.parent);
        let (token, share) = (open.token.clone(), open.share);
        let mut cursor = open.cursor.take().unwrap_or_default();
        let wanted = (entries_max as usize).min(ENTRIES_MAX);
        let result = self.list(&mut cursor, (directory, parent), pattern, after, wanted, &token, share);
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
        token: &AccessToken,
        share: ShareOptions,
    ) -> Result<Vec<DirectoryEntry>, Halt> {
        let mut out = Vec::new();
        // One name is looked up, not searched for.
        if !pattern.is_empty() && !wildcard::has_wildcard(pattern) {
            if after != 0 {
                return Ok(out);
            }
            match self.lookup(directory, pattern) {
                Ok(entry) => {
                    if let Some(entry) = self.entry(entry.file, &entry.name, u64::MAX, token, share)? {
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
                out.push(DirectoryEntry { name: name.into(), information, cookie });
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
                if let Some(entry) =
                    self.entry(entry.file, &entry.name, cookie + PARENT_COOKIE, token, share)?
                {
                    out.push(entry);
                }
            }
        }
        Ok(out)
    }

    /// An entry, unless it is gone or hidden from who has no right to it.
    fn entry(
        &mut self,
        file: FileId,
        name: &[u16],
        cookie: u64,
        token: &AccessToken,
        share: ShareOptions,
    ) -> Result<Option<DirectoryEntry>, Halt> {
        let attributes = match self.fs.attributes(file) {
            Ok(attributes) => attributes,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if share.access_based_enumeration {
            let descriptor = self.descriptor(&attributes)?;
            if security::maximal_access(&descriptor, token) & rights::READ_DATA == 0 {
                return Ok(None);
            }
        }
        Ok(Some(DirectoryEntry { name: name.into(), information: file_information(&attributes), cookie }))
    }
}
