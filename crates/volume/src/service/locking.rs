//! LOCK and CHANGE_NOTIFY as operations that may wait (MS-SMB2 3.3.5.14, 3.3.5.19).

use super::locks::{self, LockSequences};
use super::opens::WaitingLock;
use super::tasks::{Outcome, Wait, Work};
use super::{Halt, Service};
use crate::backend::{LockElement, OpenId, Operation, OperationId, Reply};
use crate::fs::StreamId;
use crate::security::rights;
use types::NtStatus;

/// Most elements of one request.
const ELEMENTS_MAX: usize = 4096;

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
        let (stream, access) = (open.stream, open.access);
        if let Some(sequence) = sequence
            && open.sequences.get_or_insert_with(Box::<LockSequences>::default).is_replay(sequence)
        {
            return Ok(Outcome::Reply(Reply::Done));
        }
        let Some(first) = elements.first() else { return Err(NtStatus::INVALID_PARAMETER.into()) };
        if elements.len() > ELEMENTS_MAX {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
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
        let node = self.files.entry(stream.file).or_default();
        let locks = &mut node.streams.entry(stream.index).or_default().locks;
        match locks.lock(id, elements) {
            Ok(()) => {
                self.lock_succeeded(id, sequence);
                self.contend(id);
                Ok(Outcome::Reply(Reply::Done))
            }
            Err(NtStatus::LOCK_NOT_GRANTED) if !first.fail_immediately => {
                if self.too_many_parked() {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
                }
                let node = self.files.entry(stream.file).or_default();
                node.streams
                    .entry(stream.index)
                    .or_default()
                    .waiting_locks
                    .push_back(WaitingLock { operation, open: id });
                let request = Operation::Lock { open: id, elements: elements.to_vec(), sequence };
                self.park(operation, Some(Work::Request(request)), Wait::Lock(id), false);
                Ok(Outcome::Later)
            }
            Err(status) => Err(status.into()),
        }
    }

    fn unlock(
        &mut self,
        id: OpenId,
        stream: StreamId,
        elements: &[LockElement],
        sequence: Option<u32>,
    ) -> Result<Outcome, Halt> {
        let mut result = Ok(());
        for element in elements {
            result = if element.exclusive.is_some() {
                Err(NtStatus::INVALID_PARAMETER)
            } else {
                locks::check_range(element.range).and_then(|()| {
                    let node = self.files.entry(stream.file).or_default();
                    node.streams.entry(stream.index).or_default().locks.unlock(id, element.range)
                })
            };
            if result.is_err() {
                break;
            }
        }
        self.retry_locks(stream);
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

    /// Ranges may have become free: whoever waits tries again, first come first.
    fn retry_locks(&mut self, stream: StreamId) {
        let waiting =
            match self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index)) {
                Some(node) => std::mem::take(&mut node.waiting_locks),
                None => return,
            };
        for lock in waiting {
            let Some(Work::Request(Operation::Lock { elements, sequence, .. })) =
                self.tasks.work_mut(lock.operation)
            else {
                continue;
            };
            let (elements, sequence) = (elements.clone(), *sequence);
            let node = self.files.entry(stream.file).or_default();
            let state = node.streams.entry(stream.index).or_default();
            match state.locks.lock(lock.open, &elements) {
                Ok(()) => {
                    self.tasks.forget(lock.operation);
                    self.lock_succeeded(lock.open, sequence);
                    self.done(lock.operation, Ok(Reply::Done));
                    self.contend(lock.open);
                }
                Err(NtStatus::LOCK_NOT_GRANTED) => state.waiting_locks.push_back(lock),
                Err(status) => self.abort(lock.operation, status),
            }
        }
    }

    pub(super) fn forget_waiting_lock(&mut self, id: OpenId, operation: OperationId) {
        let Some(stream) = self.opens.get(id).map(|open| open.stream) else { return };
        if let Some(node) =
            self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index))
        {
            node.waiting_locks.retain(|waiting| waiting.operation != operation);
        }
    }

    /// The open goes: what it waits for ends, what it holds is free.
    pub(super) fn release_locks(&mut self, id: OpenId, stream: StreamId) {
        self.abort_waiting_locks(id, stream);
        let released = self
            .files
            .get_mut(&stream.file)
            .and_then(|node| node.streams.get_mut(&stream.index))
            .is_some_and(|node| node.locks.release(id));
        if released {
            self.retry_locks(stream);
        }
    }

    pub(super) fn abort_waiting_locks(&mut self, id: OpenId, stream: StreamId) {
        let Some(node) =
            self.files.get_mut(&stream.file).and_then(|node| node.streams.get_mut(&stream.index))
        else {
            return;
        };
        let gone: Vec<OperationId> =
            node.waiting_locks.iter().filter(|lock| lock.open == id).map(|lock| lock.operation).collect();
        node.waiting_locks.retain(|lock| lock.open != id);
        for operation in gone {
            self.abort(operation, NtStatus::RANGE_NOT_LOCKED);
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
        if let Some(link) = link
            && self.files.get(&file).is_some_and(|node| node.deleting.contains(&link))
        {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        if self.too_many_parked() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
        }
        match self.watches.request(id, &path, operation, filter, tree, bytes_max) {
            Some(changes) => Ok(Outcome::Reply(Reply::Notify(changes))),
            None => {
                self.park(operation, None, Wait::Notify(id), false);
                Ok(Outcome::Later)
            }
        }
    }
}
