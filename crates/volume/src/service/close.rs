//! CLOSE: what an open leaves behind, deletion with the last one, the end of sessions (MS-FSA 2.1.5.4, MS-SMB2 3.3.7.1).

use super::durable::CreateState;
use super::io::InFlight;
use super::notify;
use super::opens::LinkName;
use super::tasks::{Outcome, Work};
use super::{Halt, Service, Timer, WHOLE_FILE};
use crate::backend::{Durability, Event, FileInformation, LeaseState, OpenId, OperationId, Reply, SessionId};
use crate::fs::{FileId, FsError, StreamId};
use crate::planted::Planted;
use std::task::Poll;
use types::{Monotonic, NtStatus};

impl Service {
    pub(super) fn close(&mut self, operation: OperationId, id: OpenId, query: bool) -> Result<Outcome, Halt> {
        self.settle_write_time(id);
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let stream = open.stream;
        // A flush under way has not been answered: this close does not overtake it, and fails as it does.
        let flushing = open.flushes > 0 && !Planted::CloseBeforeFlush.is_planted();
        let flush = flushing || (open.dirty && open.share.durability != Durability::Flush);
        let information = if query { Some(self.information(id)?) } else { None };
        // Deleting comes first: it may have to wait for metadata, and then all of this is done again.
        let deleted = self.delete_on_close(id)?;
        self.forget_open(id);
        if deleted || !flush {
            return Ok(Outcome::Reply(Reply::Closed(information)));
        }
        let token = self.in_flight.insert(InFlight::Close { operation, stream, information });
        match self.fs.flush(token as u64, stream.file) {
            Poll::Pending => Ok(Outcome::Later),
            Poll::Ready(result) => {
                let io = self.in_flight.remove(token);
                result?;
                let InFlight::Close { information, .. } = io else {
                    return Err(NtStatus::INTERNAL_ERROR.into());
                };
                Ok(Outcome::Reply(Reply::Closed(information)))
            }
        }
    }

    /// Carries out deletions that this close makes due. Whether the open's own file or stream is gone.
    fn delete_on_close(&mut self, id: OpenId) -> Result<bool, Halt> {
        let Some(open) = self.opens.get(id) else { return Ok(false) };
        let (stream, by_option, directory) = (open.stream, open.delete_on_close, open.directory);
        let (link, path) = (open.own_link().cloned(), open.path.clone());
        let by = open.parent_key.map(|key| (open.client, key));
        let now = self.time();
        if by_option {
            if stream.index != 0 {
                let node = self.files.entry(stream.file).or_default();
                node.streams.entry(stream.index).or_default().delete_pending = true;
            } else if let Some(link) = &link
                && (!directory || self.fs.is_empty_directory(stream.file)?)
            {
                self.mark_deleting(stream.file, link.clone());
            }
        }
        let Some(node) = self.files.get(&stream.file) else { return Ok(false) };
        let others_on_stream = node.opens.of_stream(stream.index) > 1;
        let mut gone = false;
        if stream.index != 0
            && !others_on_stream
            && node.streams.get(&stream.index).is_some_and(|stream| stream.delete_pending)
        {
            match self.fs.unlink_stream(stream, now) {
                Ok(()) => {
                    self.reclaims.push_back(stream);
                    self.watches.changed(&path, notify::REMOVED_STREAM, notify::STREAM_NAME);
                    gone = true;
                }
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(node) = self.files.get(&stream.file) else { return Ok(gone) };
        if node.opens.len() > 1 {
            return Ok(gone);
        }
        for link in node.deleting.clone() {
            gone |= self.remove_link(stream.file, &link, directory && stream.index == 0, by)?;
            if let Some(node) = self.files.get_mut(&stream.file) {
                node.deleting.retain(|other| *other != link);
            }
        }
        Ok(gone)
    }

    /// Takes a name away for good. Whether the file has no other.
    fn remove_link(
        &mut self,
        file: FileId,
        link: &LinkName,
        directory: bool,
        by: Option<super::opens::LeaseName>,
    ) -> Result<bool, Halt> {
        // The entry may be another file's by now.
        match self.fs.lookup(link.parent, &link.name) {
            Ok(entry) if entry.file == file => {}
            Ok(_) | Err(FsError::NotFound | FsError::NotDirectory) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let directory_path = if self.watches.is_empty() { None } else { Some(self.fs.path(link.parent)?) };
        let unlinked = match self.fs.unlink(link.parent, &link.name, self.time()) {
            Ok(unlinked) => unlinked,
            Err(FsError::NotEmpty | FsError::NotFound) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.tunnel(link.parent, &link.name);
        if unlinked.last {
            self.reclaims.push_back(StreamId { file, index: WHOLE_FILE });
        }
        if let Some(directory_path) = directory_path {
            let what = if directory { notify::DIR_NAME } else { notify::FILE_NAME };
            self.watches.changed(&super::path::join(&directory_path, &link.name), notify::REMOVED, what);
        }
        self.directory_changed(link.parent, by);
        Ok(unlinked.last)
    }

    /// The file loses this name with its last open. Watchers of a directory learn of it at once.
    pub(super) fn mark_deleting(&mut self, file: FileId, link: LinkName) {
        let node = self.files.entry(file).or_default();
        if node.deleting.contains(&link) {
            return;
        }
        node.deleting.push(link);
        for id in node.opens.iter().collect::<Vec<_>>() {
            for operation in self.watches.interrupt(id) {
                self.tasks.forget(operation);
                self.done(operation, Err(NtStatus::DELETE_PENDING));
            }
        }
    }

    /// Takes an open out of all tables; what waited on it ends.
    pub(super) fn forget_open(&mut self, id: OpenId) {
        let Some(open) = self.opens.remove(id) else { return };
        self.owners.closed(id, &open);
        let stream = open.stream;
        for operation in self.watches.remove(id) {
            self.tasks.forget(operation);
            self.done(operation, Err(NtStatus::NOTIFY_CLEANUP));
        }
        self.release_locks(id, stream, open.session);
        self.release_holder(&open.holder);
        if let Some(guid) = open.create_guid
            && self.creates.get(&(open.client, guid)) == Some(&CreateState::Open(id))
        {
            self.creates.remove(&(open.client, guid));
        }
        if let Some(at) = open.disconnected {
            self.timers.remove(&(at, Timer::Disconnected(id)));
        }
        if let Some(at) = open.write_time.due {
            self.timers.remove(&(at, Timer::WriteTime(id)));
        }
        if let Some(node) = self.files.get_mut(&stream.file) {
            node.opens.remove(open.place, stream.index);
            if node.opens.of_stream(stream.index) == 0 {
                node.streams.remove(&stream.index);
            }
        }
        if open.modified {
            let what = notify::SIZE | notify::LAST_WRITE;
            if stream.index == 0 {
                self.watches.changed(&open.path, notify::MODIFIED, what);
            }
            if let Some(link) = &open.link {
                self.directory_changed(link.parent, open.parent_key.map(|key| (open.client, key)));
            }
        }
        self.wake(stream.file);
        self.drop_idle_file(stream.file);
    }

    /// MS-SMB2 3.3.7.1, 3.3.5.6: with the connection or the session go the opens that cannot be taken up again.
    pub(super) fn end_session(&mut self, session: SessionId) -> Reply {
        for operation in self.tasks.creates_of(session) {
            self.abort(operation, NtStatus::USER_SESSION_DELETED);
        }
        for id in self.owners.of_session(session) {
            if !self.survives(id) {
                self.close_unasked(id);
            } else {
                self.disconnect(id);
            }
        }
        Reply::Done
    }

    /// Whether an open may wait for its client to come back.
    fn survives(&self, id: OpenId) -> bool {
        let Some(open) = self.opens.get(id) else { return false };
        open.durable.is_some() && !open.directory && self.cached_state(id).contains(LeaseState::HANDLE)
    }

    fn disconnect(&mut self, id: OpenId) {
        let (stream, session) = match self.opens.get(id) {
            Some(open) => (open.stream, open.session),
            None => return,
        };
        self.abort_waiting_locks(id, stream, session);
        for operation in self.watches.remove(id) {
            self.tasks.forget(operation);
            self.done(operation, Err(NtStatus::NOTIFY_CLEANUP));
        }
        let now = self.now;
        if let Some(open) = self.opens.get_mut(id)
            && let Some(durable) = open.durable
        {
            let at = now.after(durable.timeout);
            open.disconnected = Some(at);
            self.owners.disconnected(id, open);
            self.timers.insert((at, Timer::Disconnected(id)));
        }
        // A break that nobody will acknowledge any more: whoever waits finds the holder gone.
        if self.is_breaking(id) {
            self.revoke(id);
        }
        self.wake(stream.file);
    }

    fn is_breaking(&self, id: OpenId) -> bool {
        use super::opens::CacheHolder;
        match self.opens.get(id).map(|open| &open.holder) {
            Some(CacheHolder::Oplock(caching)) => caching.is_breaking(),
            Some(CacheHolder::Lease(name)) => {
                self.leases.get(name).is_some_and(|lease| lease.caching.is_breaking())
            }
            _ => false,
        }
    }

    /// Closes an open for which no client asked, soon.
    pub(super) fn close_unasked(&mut self, id: OpenId) {
        if let Some(open) = self.opens.get_mut(id)
            && !std::mem::replace(&mut open.closing, true)
        {
            self.owners.closing(id, open);
            self.start_internal(Work::CloseQuietly(id));
        }
    }

    pub(super) fn disconnected_timed_out(&mut self, id: OpenId, at: Monotonic) {
        if self.opens.get(id).is_some_and(|open| open.disconnected == Some(at)) {
            self.revoke(id);
        }
    }

    pub(super) fn force_close(&mut self, id: OpenId) -> Result<Reply, Halt> {
        self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        self.revoke(id);
        Ok(Reply::Done)
    }

    /// Takes an open from its client. The close may have to wait for metadata; nothing happens through the open meanwhile, and
    /// neither a reconnect nor a replay finds it.
    pub(super) fn revoke(&mut self, id: OpenId) {
        let Some(open) = self.opens.get_mut(id) else { return };
        open.take_rights();
        if open.closing {
            return;
        }
        self.owners.closing(id, open);
        if let Some(at) = open.disconnected.take() {
            self.timers.remove(&(at, Timer::Disconnected(id)));
        }
        self.events.push(Event::Closed { open: id });
        self.close_unasked(id);
    }

    /// What is known of the file of an open.
    pub(super) fn information(&mut self, id: OpenId) -> Result<FileInformation, Halt> {
        let open = self.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let (stream, link, directory) = (open.stream, open.link.clone(), open.directory);
        let attributes = self.fs.attributes(stream.file)?;
        let mut information = super::information::file_information(&attributes);
        if stream.index != 0 {
            let sizes = self.fs.stream_information(stream)?;
            information.end_of_file = sizes.end_of_file;
            information.allocation_bytes = sizes.allocation_bytes;
        }
        information.directory = directory;
        if let Some(node) = self.files.get(&stream.file) {
            let pending = node.deleting.len() as u32;
            information.link_count = information.link_count.saturating_sub(pending);
            information.delete_pending = if stream.index == 0 {
                link.is_some_and(|link| node.deleting.contains(&link))
            } else {
                node.streams.get(&stream.index).is_some_and(|stream| stream.delete_pending)
            };
        }
        Ok(information)
    }
}
