//! CLOSE: the state that an open leaves behind, and deletion with the last one (MS-FSA 2.1.5.4).

use super::commit::commit;
use super::file_opens::Doomed;
use super::information;
use super::inheritance;
use super::locks::LockOwner;
use super::notify;
use super::open::{LinkName, ParentLease};
use super::parts::Parts;
use super::path;
use super::persist_opens::record_changes;
use super::suspend::{Outcome, Suspend};
use super::transfers::InFlight;
use crate::backend::{Durability, OpenId, OperationId, Reply};
use crate::fs::{FileId, FsError, StreamId, Unlinked};
use crate::planted::Planted;
use std::task::Poll;
use types::NtStatus;

pub fn close(
    parts: &mut Parts<'_>,
    operation: OperationId,
    id: OpenId,
    query: bool,
) -> Result<Outcome, Suspend> {
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    let stream = open.stream;
    if open.share.continuously_available && open.delete_on_close {
        parts.fs.ready_to_keep_deletion()?;
    } else if open.persistent {
        parts.fs.ready_to_change_opens()?;
    }
    parts.apply_write_time(id);
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    // A flush under way has not been answered: this close does not overtake it, and fails as it does.
    let flushing = open.flushes > 0 && !Planted::CloseBeforeFlush.is_planted();
    let durability = open.share.durability;
    let flush = flushing || (open.dirty && durability != Durability::Flush);
    let information = if query { Some(information::of_open(parts.fs, parts.opens, id)?) } else { None };
    // Deletion first: it may have to wait for metadata, and then all of this is repeated.
    let removed = delete_due(parts, id)?;
    forget_open(parts, id);
    // The flush includes the record that the open is closed.
    record_changes(parts);
    // Names are durable as data are. On shares where every change is, the answer waits for that as any other does.
    let commits = removed != Removed::Nothing
        && durability == Durability::Close
        && !Planted::DeletionNotDurable.is_planted();
    if removed == Removed::All || !flush {
        if commits {
            commit(parts, operation, Reply::Closed(information), None, None);
            return Ok(Outcome::Later);
        }
        return Ok(Outcome::Reply(Reply::Closed(information)));
    }
    let token = parts.transfers.add(InFlight::Close { operation, stream, information });
    match parts.fs.flush(token, stream.file) {
        Poll::Pending => Ok(Outcome::Later),
        Poll::Ready(result) => {
            let transfer = parts.transfers.take(token);
            result?;
            let Some(InFlight::Close { information, .. }) = transfer else {
                return Err(NtStatus::INTERNAL_ERROR.into());
            };
            Ok(Outcome::Reply(Reply::Closed(information)))
        }
    }
}

/// Names and data removed by a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removed {
    Nothing,
    /// Names of a file that has others.
    Names,
    /// The open's own file or stream.
    All,
}

/// Carries out deletions that this close makes due.
fn delete_due(parts: &mut Parts<'_>, id: OpenId) -> Result<Removed, Suspend> {
    let Some(open) = parts.opens.get(id) else { return Ok(Removed::Nothing) };
    let (stream, directory, by) = (open.stream, open.directory, open.parent_lease());
    if open.delete_on_close {
        let (link, keep) = (open.own_link().cloned(), open.share.continuously_available);
        mark_own_deletion(parts, stream, link, directory, keep)?;
    }
    let is_stream_gone = stream.index != 0 && delete_stream_due(parts, id, stream)?;
    let mut removed = if is_stream_gone { Removed::All } else { Removed::Nothing };
    let Some(node) = parts.opens.file(stream.file) else { return Ok(removed) };
    if node.opens.len() > 1 {
        return Ok(removed);
    }
    for link in node.deleting().to_vec() {
        match remove_link(parts, stream.file, &link, directory && stream.index == 0, by.clone())? {
            Some(unlinked) if unlinked.last => removed = Removed::All,
            Some(_) if removed == Removed::Nothing => removed = Removed::Names,
            _ => {}
        }
        parts.forget_deletion(stream.file, Doomed::Link(link));
    }
    Ok(removed)
}

/// Marks the name or stream of a FILE_DELETE_ON_CLOSE open for deletion with the last open.
fn mark_own_deletion(
    parts: &mut Parts<'_>,
    stream: StreamId,
    link: Option<LinkName>,
    directory: bool,
    keep: bool,
) -> Result<(), Suspend> {
    // An immediate deletion needs no record.
    let is_last = |parts: &Parts<'_>| {
        parts.opens.file(stream.file).is_some_and(|node| match stream.index {
            0 => node.opens.len() == 1,
            index => node.opens.of_stream(index) == 1,
        })
    };
    let keep = keep && !is_last(parts);
    if stream.index != 0 {
        parts.mark_deleting(stream.file, Doomed::Stream(stream.index), keep);
    } else if let Some(link) = link
        && (!directory || parts.fs.is_empty_directory(stream.file)?)
    {
        parts.mark_deleting(stream.file, Doomed::Link(link), keep);
    }
    Ok(())
}

/// Deletes the named stream of an open, if it is marked for deletion and this is its last open.
fn delete_stream_due(parts: &mut Parts<'_>, id: OpenId, stream: StreamId) -> Result<bool, Suspend> {
    let Some(node) = parts.opens.file(stream.file) else { return Ok(false) };
    if node.opens.of_stream(stream.index) > 1 || !node.is_deleting_stream(stream.index) {
        return Ok(false);
    }
    let now = parts.time();
    match parts.fs.unlink_stream(stream, now) {
        Ok(()) => {
            parts.reclaims.add_stream(stream);
            if let Some(open) = parts.opens.get(id) {
                parts.watches.changed(&open.path, notify::REMOVED_STREAM, notify::STREAM_NAME);
            }
            Ok(true)
        }
        Err(FsError::NotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes a name for good. `None` if the file no longer has it.
pub fn remove_link(
    parts: &mut Parts<'_>,
    file: FileId,
    link: &LinkName,
    directory: bool,
    by: Option<ParentLease>,
) -> Result<Option<Unlinked>, Suspend> {
    // The entry may be another file's by now.
    let entry = match parts.fs.lookup(link.parent, &link.name) {
        Ok(entry) if entry.file == file => entry,
        Ok(_) | Err(FsError::NotFound | FsError::NotDirectory) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let created = if entry.directory { None } else { Some(parts.fs.attributes(file)?.created) };
    let directory_path = if parts.watches.is_empty() { None } else { Some(parts.fs.path(link.parent)?) };
    let now = parts.time();
    let unlinked = match parts.fs.unlink(link.parent, &link.name, now) {
        Ok(unlinked) => unlinked,
        Err(FsError::NotEmpty | FsError::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if let Some(created) = created {
        inheritance::keep(parts, link, created);
    }
    if unlinked.last {
        parts.reclaims.add_file(file);
    }
    if let Some(directory_path) = directory_path {
        let what = if directory { notify::DIR_NAME } else { notify::FILE_NAME };
        parts.watches.changed(&path::join(&directory_path, &link.name), notify::REMOVED, what);
    }
    parts.directory_changed(link.parent, by);
    Ok(Some(unlinked))
}

/// Removes an open from all tables, and ends its waiting requests.
fn forget_open(parts: &mut Parts<'_>, id: OpenId) {
    let Some(open) = parts.opens.remove(id, parts.agenda) else { return };
    let stream = open.stream;
    parts.watches.end(id, parts.agenda);
    let (locks, mut around) = parts.around_locks();
    locks.release(LockOwner::new(id, &open), &mut around);
    parts.caching.release(&open.holder, open.persistent, parts.agenda);
    parts.replays.closed(id, &open);
    if open.modified {
        let what = notify::SIZE | notify::LAST_WRITE;
        if stream.index == 0 {
            parts.watches.changed(&open.path, notify::MODIFIED, what);
        }
        if let Some(link) = &open.link {
            parts.directory_changed(link.parent, open.parent_lease());
        }
    }
    parts.agenda.tasks.wake(stream.file);
}
