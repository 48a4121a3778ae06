//! QUERY_DIRECTORY: what is in a directory, by pattern (MS-FSA 2.1.5.6.3).

use super::information::file_information;
use super::opens::Open;
use super::turn::ENTRY_STEPS;
use super::wildcard::{self, Pattern};
use super::{Halt, Service};
use crate::backend::{AccessToken, DirectoryEntry, OpenId, OperationId, Reply, ShareOptions};
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

/// How far an open of a directory has been listed.
#[derive(Debug, Default)]
pub struct Listing {
    cursor: DirectoryCursor,
    /// Of the question that was asked last, if it waits for what is not in memory or for the next turn: it goes on from here.
    found: Option<Found>,
}

/// What a question has found so far.
#[derive(Debug)]
struct Found {
    operation: OperationId,
    entries: Vec<DirectoryEntry>,
    /// The cursor's, of the last entry that was looked at.
    position: u64,
}

/// What is asked.
struct Question<'a> {
    operation: OperationId,
    directory: FileId,
    parent: FileId,
    name: &'a [u16],
    pattern: Pattern,
    /// The cookie after which to begin.
    after: u64,
    entries_max: usize,
}

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
        operation: OperationId,
        id: OpenId,
        pattern: &[u16],
        after: u64,
        entries_max: u32,
        short_names: bool,
    ) -> Result<Reply, Halt> {
        let open = self.open_to_list(id)?;
        let directory = open.stream.file;
        let viewer = Viewer { token: open.token.clone(), share: open.share, short_names };
        let (name, pattern) = (pattern, Pattern::new(pattern)?);
        let parent = if after < PARENT_COOKIE { self.parent_seen(id)? } else { directory };
        let open = self.open_to_list(id)?;
        let mut listing = open.listing.take().unwrap_or_default();
        let entries_max = (entries_max as usize).min(ENTRIES_MAX);
        let question = Question { operation, directory, parent, name, pattern, after, entries_max };
        let result = self.list(&mut listing, &question, &viewer);
        if let Some(open) = self.opens.get_mut(id) {
            open.listing = Some(listing);
        }
        result.map(Reply::Directory)
    }

    fn list(
        &mut self,
        listing: &mut Listing,
        question: &Question<'_>,
        viewer: &Viewer,
    ) -> Result<Vec<DirectoryEntry>, Halt> {
        let Question { operation, directory, name, after, .. } = *question;
        // One name is looked up, not searched for.
        if !name.is_empty() && !wildcard::has_wildcard(name) {
            if after != 0 {
                return Ok(Vec::new());
            }
            return match self.lookup(directory, name) {
                Ok(entry) => Ok(self.entry(directory, &entry, u64::MAX, viewer)?.into_iter().collect()),
                Err(FsError::NotFound) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            };
        }
        // Whoever asked something else meanwhile has moved the cursor.
        let mut found = match listing.found.take().filter(|found| found.operation == operation) {
            Some(found) => found,
            None => {
                let entries = self.dots(question)?;
                Found { operation, entries, position: after.saturating_sub(PARENT_COOKIE) }
            }
        };
        match self.list_on(&mut listing.cursor, &mut found, question, viewer) {
            Err(halt @ (Halt::Miss | Halt::Yield)) => {
                listing.found = Some(found);
                Err(halt)
            }
            result => result.map(|()| found.entries),
        }
    }

    /// The directory itself and its parent, as far as they are asked for.
    fn dots(&mut self, question: &Question<'_>) -> Result<Vec<DirectoryEntry>, Halt> {
        let mut out = Vec::new();
        let dots = [(SELF_COOKIE, question.directory, "."), (PARENT_COOKIE, question.parent, "..")];
        for (cookie, file, name) in dots {
            let name: Vec<u16> = name.encode_utf16().collect();
            let asked = question.after < cookie && out.len() < question.entries_max;
            if asked && question.pattern.matches(&name, &mut 0) {
                let information = file_information(&self.fs.attributes(file)?);
                out.push(DirectoryEntry { name: name.into(), short_name: None, information, cookie });
            }
        }
        Ok(out)
    }

    /// Goes on from where `found` stands, as long as the turn is not spent. After a miss what follows is asked for too: it comes with the
    /// same wait.
    fn list_on(
        &mut self,
        cursor: &mut DirectoryCursor,
        found: &mut Found,
        question: &Question<'_>,
        viewer: &Viewer,
    ) -> Result<(), Halt> {
        while let Some(wanted) =
            question.entries_max.checked_sub(found.entries.len()).filter(|&some| some > 0)
        {
            if self.turn.is_spent() {
                return Err(Halt::Yield);
            }
            let entries_max = BATCH.min(wanted).max(16);
            let batch = cursor.list(&mut self.fs, question.directory, found.position, entries_max)?;
            if batch.is_empty() {
                return Ok(());
            }
            self.turn.spend(batch.len() as u32 * ENTRY_STEPS);
            for (at, (cookie, entry)) in batch.iter().enumerate() {
                let mut steps = 0;
                let matches = question.pattern.matches(&entry.name, &mut steps);
                self.turn.spend(steps);
                if matches {
                    match self.entry(question.directory, entry, cookie + PARENT_COOKIE, viewer) {
                        Ok(entry) => found.entries.extend(entry),
                        Err(Halt::Miss) => {
                            let rest = batch[at + 1..].iter();
                            let rest =
                                rest.filter(|(_, entry)| question.pattern.matches(&entry.name, &mut 0));
                            rest.for_each(|(_, entry)| drop(self.fs.attributes(entry.file)));
                            return Err(Halt::Miss);
                        }
                        Err(halt) => return Err(halt),
                    }
                }
                self.turn.spend_metadata(self.fs.take_steps());
                found.position = *cookie;
                if found.entries.len() == question.entries_max || self.turn.is_spent() {
                    break;
                }
            }
        }
        Ok(())
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
