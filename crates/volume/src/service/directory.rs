//! QUERY_DIRECTORY: the entries of a directory, by pattern (MS-FSA 2.1.5.6.3).

use super::descriptors::Descriptors;
use super::information::file_information;
use super::listing::{Found, Listing};
use super::opens::Opens;
use super::roots::parent_seen;
use super::short_names::ShortNames;
use super::suspend::Suspend;
use super::turn::{ENTRY_STEPS, Turn};
use super::wildcard::{self, Pattern};
use crate::backend::{AccessToken, DirectoryEntry, OpenId, OperationId, Reply, ShareOptions};
use crate::fs::{Entry, FileId, FileSystem, FsError};
use crate::security::{self, rights};
use std::sync::Arc;

/// Cookies of `.` and `..`; those of entries follow.
const SELF_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;
/// Entries fetched at a time.
const BATCH: usize = 128;
/// Limit of entries of one answer, even if a client asks for more.
const ENTRIES_MAX: usize = 4096;

/// A request for entries of an open's directory.
pub struct DirectoryRequest<'a> {
    pub operation: OperationId,
    pub open: OpenId,
    pub pattern: &'a [u16],
    /// The cookie after which to begin.
    pub after: u64,
    pub entries_max: u32,
    pub short_names: bool,
}

/// The parts that a listing reads.
pub struct Sources<'a> {
    pub fs: &'a mut FileSystem,
    pub names: &'a mut ShortNames,
    pub descriptors: &'a mut Descriptors,
    pub turn: &'a mut Turn,
}

/// The request, with the means to answer it.
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

/// The listing user, and the entries visible to it.
struct Viewer {
    token: Arc<AccessToken>,
    share: ShareOptions,
    short_names: bool,
}

/// Lists entries of a directory.
pub fn query_directory(
    sources: &mut Sources<'_>,
    opens: &mut Opens,
    request: &DirectoryRequest<'_>,
) -> Result<Reply, Suspend> {
    let DirectoryRequest { operation, open: id, after, short_names, .. } = *request;
    let open = opens.open_to_list(id)?;
    let directory = open.stream.file;
    let viewer = Viewer { token: open.token.clone(), share: open.share, short_names };
    let (name, pattern) = (request.pattern, Pattern::new(request.pattern)?);
    let parent = if after < PARENT_COOKIE { parent_seen(sources.fs, open)? } else { directory };
    let mut listing = open.listing.take().unwrap_or_default();
    let entries_max = (request.entries_max as usize).min(ENTRIES_MAX);
    let question = Question { operation, directory, parent, name, pattern, after, entries_max };
    let result = list(sources, &mut listing, &question, &viewer);
    open.listing = Some(listing);
    result.map(Reply::Directory)
}

fn list(
    sources: &mut Sources<'_>,
    listing: &mut Listing,
    question: &Question<'_>,
    viewer: &Viewer,
) -> Result<Vec<DirectoryEntry>, Suspend> {
    let Question { operation, directory, name, after, .. } = *question;
    // A single name needs a lookup, not a search.
    if !name.is_empty() && !wildcard::has_wildcard(name) {
        if after != 0 {
            return Ok(Vec::new());
        }
        return match sources.names.lookup(sources.fs, directory, name) {
            Ok(found) => Ok(show(sources, directory, &found, u64::MAX, viewer)?.into_iter().collect()),
            Err(FsError::NotFound) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
    }
    // Another query in between has moved the cursor.
    let mut found = match listing.found.take().filter(|found| found.operation == operation) {
        Some(found) => found,
        None => {
            listing.begin(after.saturating_sub(PARENT_COOKIE));
            let entries = dots(sources, question)?;
            Found { operation, entries, position: after.saturating_sub(PARENT_COOKIE) }
        }
    };
    match list_on(sources, listing, &mut found, question, viewer) {
        Err(suspend @ (Suspend::Miss | Suspend::Yield)) => {
            listing.found = Some(found);
            Err(suspend)
        }
        result => result.map(|()| found.entries),
    }
}

/// Lists the directory itself and its parent, if the query includes them.
fn dots(sources: &mut Sources<'_>, question: &Question<'_>) -> Result<Vec<DirectoryEntry>, Suspend> {
    let mut out = Vec::new();
    let dots = [(SELF_COOKIE, question.directory, "."), (PARENT_COOKIE, question.parent, "..")];
    for (cookie, file, name) in dots {
        let name: Vec<u16> = name.encode_utf16().collect();
        let asked = question.after < cookie && out.len() < question.entries_max;
        if asked && question.pattern.matches(&name, &mut 0) {
            let information = file_information(&sources.fs.attributes(file)?);
            out.push(DirectoryEntry { name: name.into(), short_name: None, information, cookie });
        }
    }
    Ok(out)
}

/// Continues behind the `found` entries until the turn is spent. After a miss it also requests the
/// entries that follow, to load them in the same wait.
fn list_on(
    sources: &mut Sources<'_>,
    listing: &mut Listing,
    found: &mut Found,
    question: &Question<'_>,
    viewer: &Viewer,
) -> Result<(), Suspend> {
    while let Some(wanted) = question.entries_max.checked_sub(found.entries.len()).filter(|&some| some > 0) {
        if sources.turn.is_spent() {
            return Err(Suspend::Yield);
        }
        let entries_max = BATCH.min(wanted).max(16);
        let batch = listing.cursor.list(sources.fs, question.directory, found.position, entries_max)?;
        if batch.is_empty() {
            return Ok(());
        }
        sources.turn.spend(batch.len() as u32 * ENTRY_STEPS);
        for (at, (cookie, entry)) in batch.iter().enumerate() {
            let mut steps = 0;
            let matches = question.pattern.matches(&entry.name, &mut steps);
            sources.turn.spend(steps);
            if matches && !listing.was_listed(entry) {
                match show(sources, question.directory, entry, cookie + PARENT_COOKIE, viewer) {
                    Ok(entry) => found.entries.extend(entry),
                    Err(Suspend::Miss) => {
                        let rest = batch[at + 1..].iter();
                        let rest = rest.filter(|(_, entry)| question.pattern.matches(&entry.name, &mut 0));
                        rest.for_each(|(_, entry)| drop(sources.fs.attributes(entry.file)));
                        return Err(Suspend::Miss);
                    }
                    Err(suspend) => return Err(suspend),
                }
            }
            sources.turn.spend_metadata(sources.fs.take_steps());
            found.position = *cookie;
            if found.entries.len() == question.entries_max || sources.turn.is_spent() {
                break;
            }
        }
    }
    Ok(())
}

/// Describes an entry, unless it is gone, or hidden from a viewer without rights on it.
fn show(
    sources: &mut Sources<'_>,
    directory: FileId,
    entry: &Entry,
    cookie: u64,
    viewer: &Viewer,
) -> Result<Option<DirectoryEntry>, Suspend> {
    let attributes = match sources.fs.attributes(entry.file) {
        Ok(attributes) => attributes,
        Err(FsError::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if viewer.share.access_based_enumeration {
        let descriptor = sources.descriptors.of(sources.fs, sources.turn, &attributes)?;
        if security::maximal_access(&descriptor, &viewer.token) & rights::READ_DATA == 0 {
            return Ok(None);
        }
    }
    let short_name =
        if viewer.short_names { sources.names.short_name(sources.fs, directory, &entry.name)? } else { None };
    let information = file_information(&attributes);
    Ok(Some(DirectoryEntry { name: entry.name.clone(), short_name, information, cookie }))
}
