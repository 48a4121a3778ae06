//! LOCK and CHANGE_NOTIFY as operations that may wait (MS-SMB2 3.3.5.14, 3.3.5.19).

use super::intervals::Interval;
use super::locks::{self, LockSequences};
use super::notify;
use super::tasks::{Outcome, Wait};
use super::waiting_locks::WaitingLock;
use super::{Halt, Service};
use crate::backend::{LockElement, OpenId, OperationId, Reply, SessionId};
use crate::fs::StreamId;
use crate::security::rights;
use types::NtStatus;

impl Service {
    pub(super) fn lock(
        &mut self,
        operation: OperationId,
        id: OpenId,
        elements: &[LockElement],
        sequence: Option<u32>,
    ) -> Result<Outcome, Halt> {
        let open = self.open_for(id, 0)?;
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST.into());
        }
        let (stream, access, session) = (open.stream, open.access, open.session);
        if let Some(sequence) = sequence
            && open.sequences.get_or_insert_with(Box::<LockSequences>::default).is_replay(sequence)
        {
            return Ok(Outcome::Reply(Reply::Done));
        }
        let Some(first) = elements.first() else { return Err(NtStatus::INVALID_PARAMETER.into()) };
        if first.exclusive.is_none() {
            return self.unlock(id, stream, elements, sequence);
        }
        for element in elements {
            // A request locks or unlocks, and only a single lock may wait.
            if element.exclusive.is_none() || elements.len() > 1 && !element.fail_immediately {
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
            locks::check_range(element.range)?;
        }
        if access & (rights::READ_DATA | rights::WRITE_DATA | rights::APPEND_DATA | rights::EXECUTE) == 0 {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        self.check_lock_room(id, stream, elements.len())?;
        let node = self.files.entry(stream.file).or_default();
        let locks = &mut node.streams.entry(stream.index).or_default().locks;
        match locks.lock(id, elements) {
            Ok(()) => {
                self.locks_taken.add(session, elements.len());
                self.lock_succeeded(id, sequence);
                self.contend(id);
                Ok(Outcome::Reply(Reply::Done))
            }
            Err(NtStatus::LOCK_NOT_GRANTED) if !first.fail_immediately => {
                if self.too_many_parked() {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
                }
                self.locks_taken.add(session, 1);
                let node = self.files.entry(stream.file).or_default();
                let waiting = WaitingLock { operation, open: id, element: *first, sequence };
                node.streams.entry(stream.index).or_default().waiting_locks.push(waiting);
                self.park(operation, None, Wait::Lock(id), false);
                Ok(Outcome::Later)
            }
            Err(status) => Err(status.into()),
        }
    }

    /// # Errors
    /// INSUFFICIENT_RESOURCES if the open, its session or the volume would hold or wait for too many locks.
    fn check_lock_room(&self, id: OpenId, stream: StreamId, more: usize) -> Result<(), NtStatus> {
        let node = self.files.get(&stream.file).and_then(|node| node.streams.get(&stream.index));
        let own = node.map_or(0, |node| node.locks.count(id) + node.waiting_locks.of(id).count());
        let session = self.opens.get(id).map(|open| open.session).ok_or(NtStatus::FILE_CLOSED)?;
        let fits = own + more <= self.config.locks_per_open
            && self.locks_taken.of(session) + more <= self.config.locks_per_session
            && self.locks_taken.all() + more <= self.config.locks_max;
        if fits { Ok(()) } else { Err(NtStatus::INSUFFICIENT_RESOURCES) }
    }

    fn unlock(
        &mut self,
        id: OpenId,
        stream: StreamId,
        elements: &[LockElement],
        sequence: Option<u32>,
    ) -> Result<Outcome, Halt> {
        let session = self.opens.get(id).map(|open| open.session).ok_or(NtStatus::FILE_CLOSED)?;
        let node = self.files.entry(stream.file).or_default();
        let held = &mut node.streams.entry(stream.index).or_default().locks;
        let mut freed = Vec::new();
        let mut result = Ok(());
        for element in elements {
            result = if element.exclusive.is_some() {
                Err(NtStatus::INVALID_PARAMETER)
            } else {
                locks::check_range(element.range).and_then(|()| held.unlock(id, element.range))
            };
            if result.is_err() {
                break;
            }
            freed.push(Interval::from(element.range));
        }
        self.locks_taken.remove(session, freed.len());
        self.retry_locks(stream, &freed);
        result?;
        self.lock_succeeded(id, sequence);
        Ok(Outcome::Reply(Reply::Done))
    }

    fn lock_succeeded(&mut self, id: OpenId, sequence: Option<u32>) {
        if let Some(open) = self.opens.get_mut(id)
            && let (Some(sequences), Some(sequence)) = (&mut open.sequences, sequence)
        {
            sequences.succeeded(sequence);
        }
    }

    /// These ranges may have become free: who waits for them gets them, first come first.
    fn retry_locks(&mut self, stream: StreamId, freed: &[Interval]) {
        let Some(node) =
            self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index))
        else {
            return;
        };
        let locks = &mut node.locks;
        let granted = node
            .waiting_locks
            .retry(freed, |lock| locks.lock(lock.open, std::slice::from_ref(&lock.element)).is_ok());
        for lock in granted {
            self.tasks.forget(lock.operation);
            self.lock_succeeded(lock.open, lock.sequence);
            self.done(lock.operation, Ok(Reply::Done));
            self.contend(lock.open);
        }
    }

    pub(super) fn forget_waiting_lock(&mut self, id: OpenId, operation: OperationId) {
        let Some(open) = self.opens.get(id) else { return };
        let (stream, session) = (open.stream, open.session);
        let node = self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index));
        let Some(node) = node else { return };
        let ticket = node.waiting_locks.of(id).find(|(_, lock)| lock.operation == operation);
        if let Some(ticket) = ticket.map(|(ticket, _)| ticket) {
            node.waiting_locks.remove(ticket);
            self.locks_taken.remove(session, 1);
        }
    }

    /// The open goes: what it waits for ends, what it holds is free.
    pub(super) fn release_locks(&mut self, id: OpenId, stream: StreamId, session: SessionId) {
        self.abort_waiting_locks(id, stream, session);
        let node = self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index));
        let Some(node) = node else { return };
        self.locks_taken.remove(session, node.locks.count(id));
        let freed = node.locks.release(id);
        if !freed.is_empty() {
            self.retry_locks(stream, &freed);
        }
    }

    pub(super) fn abort_waiting_locks(&mut self, id: OpenId, stream: StreamId, session: SessionId) {
        let Some(node) =
            self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index))
        else {
            return;
        };
        let gone: Vec<_> = node.waiting_locks.of(id).map(|(ticket, _)| ticket).collect();
        let gone: Vec<_> = gone.into_iter().filter_map(|ticket| node.waiting_locks.remove(ticket)).collect();
        self.locks_taken.remove(session, gone.len());
        for lock in gone {
            self.abort(lock.operation, NtStatus::RANGE_NOT_LOCKED);
        }
    }

    pub(super) fn notify(
        &mut self,
        operation: OperationId,
        id: OpenId,
        filter: u32,
        tree: bool,
        bytes_max: u32,
    ) -> Result<Outcome, Halt> {
        let open = self.open_to_list(id)?;
        let (path, file, link) = (open.path.clone(), open.stream.file, open.link.clone());
        let token = open.token.clone();
        if let Some(link) = link
            && self.files.get(&file).is_some_and(|node| node.deleting.contains(&link))
        {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        if self.too_many_parked() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
        }
        let asked = notify::Asked { open: id, user: &token.user, path: &path, filter, tree, bytes_max };
        match self.watches.request(operation, &asked)? {
            Some(changes) => Ok(Outcome::Reply(Reply::Notify(changes))),
            None => {
                self.park(operation, None, Wait::Notify(id), false);
                Ok(Outcome::Later)
            }
        }
    }
}
