//! LOCK: byte-range locks of all streams, as operations that may wait (MS-SMB2 3.3.5.14).

use super::agenda::Agenda;
use super::caching::Caching;
use super::intervals::Interval;
use super::open::Open;
use super::opens::Opens;
use super::range_locks::{self, LockSequences, LocksTaken, RangeLocks};
use super::suspend::{Outcome, Suspend};
use super::tasks::Wait;
use super::waiting_locks::{WaitingLock, WaitingLocks};
use crate::backend::{AccessToken, ByteRange, LockElement, OpenId, OperationId, Reply, SessionId};
use crate::fs::StreamId;
use crate::security::rights;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use types::NtStatus;

/// Most locks held and waited for; beyond, LOCK answers INSUFFICIENT_RESOURCES.
#[derive(Debug, Clone, Copy)]
pub struct LockLimits {
    pub per_open: usize,
    pub per_session: usize,
    pub of_volume: usize,
}

/// A LOCK request.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    pub operation: OperationId,
    pub open: OpenId,
    pub elements: &'a [LockElement],
    pub sequence: Option<u32>,
}

#[derive(Debug, Default)]
struct StreamLocks {
    held: RangeLocks,
    waiting: WaitingLocks,
    /// Opens that may write, of disconnected clients that may return and repeat an unanswered write: until
    /// then others do not write, or the repeated write would undo a later one.
    away: BTreeSet<OpenId>,
}

/// Why a read or a write of a range is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Another open has locked it.
    Locked,
    /// A client that wrote to the stream is away.
    WriterAway,
}

/// The neighbours of a change of locks: a lock that is granted breaks others' caching and answers the request that waited for it.
pub struct Around<'a> {
    pub opens: &'a mut Opens,
    pub caching: &'a mut Caching,
    pub agenda: &'a mut Agenda,
}

/// An open, as far as its locks go.
#[derive(Debug, Clone)]
pub struct LockOwner {
    id: OpenId,
    stream: StreamId,
    session: SessionId,
    token: Arc<AccessToken>,
    is_persistent: bool,
}

impl LockOwner {
    pub fn new(id: OpenId, open: &Open) -> Self {
        let (stream, session, token) = (open.stream, open.session, open.token.clone());
        Self { id, stream, session, token, is_persistent: open.persistent }
    }
}

/// The locks of all streams.
///
/// Invariant: a stream is listed exactly while an open of it holds a lock or waits for one. A waiting
/// request is parked in [`super::tasks`] with [`Wait::Lock`]. `taken` counts the locks held and waited
/// for by the sessions and users of their opens.
#[derive(Debug)]
pub struct Locks {
    streams: HashMap<StreamId, StreamLocks>,
    taken: LocksTaken,
    limits: LockLimits,
}

impl Locks {
    pub fn new(limits: LockLimits) -> Self {
        Self { streams: HashMap::new(), taken: LocksTaken::default(), limits }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.taken.all() == 0
    }

    /// Whether anybody holds a lock on the stream.
    pub fn is_locked(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|locks| !locks.held.is_empty())
    }

    /// Counts the locks that an open holds.
    pub fn count(&self, stream: StreamId, open: OpenId) -> usize {
        self.streams.get(&stream).map_or(0, |locks| locks.held.count(open))
    }

    /// Counts how often a lock of an open is held.
    pub fn times(&self, open: OpenId, stream: StreamId, interval: Interval, shared: bool) -> u32 {
        let times = self.streams.get(&stream).map_or(0, |locks| locks.held.times(open, interval, shared));
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// Checks that others let an open read or write a range.
    #[inline]
    pub fn check_io(
        &self,
        open: OpenId,
        stream: StreamId,
        range: ByteRange,
        write: bool,
    ) -> Result<(), Obstacle> {
        let Some(locks) = self.streams.get(&stream) else { return Ok(()) };
        if write && locks.away.iter().any(|away| *away != open) {
            return Err(Obstacle::WriterAway);
        }
        locks.held.check_io(open, range, write).map_err(|_| Obstacle::Locked)
    }

    /// As [`Locks::check_io`] of a write, ignoring writers whose clients are away.
    pub fn check_locked(&self, open: OpenId, stream: StreamId, range: ByteRange) -> Result<(), Obstacle> {
        let Some(locks) = self.streams.get(&stream) else { return Ok(()) };
        locks.held.check_io(open, range, true).map_err(|_| Obstacle::Locked)
    }

    /// Lists the opens of disconnected clients that may have written to the stream.
    pub fn writers_away(&self, stream: StreamId) -> impl Iterator<Item = OpenId> {
        self.streams.get(&stream).into_iter().flat_map(|locks| locks.away.iter().copied())
    }

    /// Blocks others' writes to the stream of an open whose client is disconnected.
    pub fn hold_writes(&mut self, id: OpenId, stream: StreamId) {
        self.streams.entry(stream).or_default().away.insert(id);
    }

    /// Lets others write again: the open's client is back, or the open gone. The caller wakes those that wait.
    pub fn release_writes(&mut self, id: OpenId, stream: StreamId) {
        if let Some(locks) = self.streams.get_mut(&stream)
            && locks.away.remove(&id)
        {
            self.drop_idle(stream);
        }
    }

    /// Restores a lock that an open held before a restart of the server. False: another one conflicts.
    pub fn restore(
        &mut self,
        id: OpenId,
        open: &Open,
        (interval, shared): (Interval, bool),
        times: u32,
    ) -> bool {
        let locks = self.streams.entry(open.stream).or_default();
        let fits = locks.held.restore(id, interval, shared, times);
        if fits {
            self.taken.add(open.session, &open.token.user, times as usize);
        }
        self.drop_idle(open.stream);
        fits
    }

    /// Takes or releases locks, as the request says.
    pub fn lock(&mut self, request: &LockRequest<'_>, around: &mut Around<'_>) -> Result<Outcome, Suspend> {
        let LockRequest { operation, open: id, elements, sequence } = *request;
        let open = around.opens.open_for(id, 0)?;
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST.into());
        }
        let (stream, access) = (open.stream, open.access);
        let owner = LockOwner::new(id, open);
        if let Some(sequence) = sequence
            && open.sequences.get_or_insert_with(Box::<LockSequences>::default).is_replay(sequence)
        {
            return Ok(Outcome::Reply(Reply::Done));
        }
        let Some(first) = elements.first() else { return Err(NtStatus::INVALID_PARAMETER.into()) };
        if first.exclusive.is_none() {
            return self.unlock(request, &owner, around);
        }
        for element in elements {
            // A request locks or unlocks, and only a single lock may wait.
            if element.exclusive.is_none() || elements.len() > 1 && !element.fail_immediately {
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
            range_locks::check_range(element.range)?;
        }
        if access & (rights::READ_DATA | rights::WRITE_DATA | rights::APPEND_DATA | rights::EXECUTE) == 0 {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        self.check_room(&owner, elements.len())?;
        let result = match self.streams.entry(stream).or_default().held.lock(id, elements) {
            Ok(()) => {
                self.taken.add(owner.session, &owner.token.user, elements.len());
                for element in elements {
                    note(around, id, element);
                }
                lock_succeeded(around.opens, id, sequence);
                around.caching.contend(around.opens, around.agenda, id);
                Ok(Outcome::Reply(Reply::Done))
            }
            Err(NtStatus::LOCK_NOT_GRANTED) if !first.fail_immediately => {
                // The lock in the way keeps the stream here.
                if around.agenda.tasks.is_full() {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
                }
                self.taken.add(owner.session, &owner.token.user, 1);
                let waiting = WaitingLock { operation, open: id, element: *first, sequence };
                self.streams.entry(stream).or_default().waiting.push(waiting);
                around.agenda.park(operation, None, Wait::Lock(id), false);
                Ok(Outcome::Later)
            }
            Err(status) => Err(status.into()),
        };
        // A request whose ranges meet each other fails on a stream that has no locks.
        if result.is_err() {
            self.drop_idle(stream);
        }
        result
    }

    /// Checks that an open, its session, its user and the volume have space for more locks.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES.
    fn check_room(&self, owner: &LockOwner, more: usize) -> Result<(), NtStatus> {
        let locks = self.streams.get(&owner.stream);
        let own = locks.map_or(0, |locks| locks.held.count(owner.id) + locks.waiting.of(owner.id).count());
        let fits = own + more <= self.limits.per_open
            && self.taken.of(owner.session) + more <= self.limits.per_session
            && self.taken.may_take(&owner.token.user, more, self.limits.of_volume);
        if fits { Ok(()) } else { Err(NtStatus::INSUFFICIENT_RESOURCES) }
    }

    fn unlock(
        &mut self,
        request: &LockRequest<'_>,
        owner: &LockOwner,
        around: &mut Around<'_>,
    ) -> Result<Outcome, Suspend> {
        let stream = owner.stream;
        let mut freed = Vec::new();
        let mut result = Ok(());
        for element in request.elements {
            result = if element.exclusive.is_some() {
                Err(NtStatus::INVALID_PARAMETER)
            } else {
                range_locks::check_range(element.range)
                    .and_then(|()| self.unlock_range(stream, request.open, element.range))
                    .map(|shared| note_range(around, request.open, element.range.into(), shared))
            };
            if result.is_err() {
                break;
            }
            freed.push(Interval::from(element.range));
        }
        self.taken.remove(owner.session, &owner.token.user, freed.len());
        self.retry(stream, &freed, around);
        result?;
        lock_succeeded(around.opens, request.open, request.sequence);
        Ok(Outcome::Reply(Reply::Done))
    }

    /// Returns whether it was a shared one.
    fn unlock_range(&mut self, stream: StreamId, open: OpenId, range: ByteRange) -> Result<bool, NtStatus> {
        let locks = self.streams.get_mut(&stream).ok_or(NtStatus::RANGE_NOT_LOCKED)?;
        locks.held.unlock(open, range)
    }

    /// Gives ranges that may have become free to the requests that wait for them, first come first.
    fn retry(&mut self, stream: StreamId, freed: &[Interval], around: &mut Around<'_>) {
        let Some(StreamLocks { held, waiting, .. }) = self.streams.get_mut(&stream) else { return };
        let granted =
            waiting.retry(freed, |lock| held.lock(lock.open, std::slice::from_ref(&lock.element)).is_ok());
        self.drop_idle(stream);
        for lock in granted {
            lock_succeeded(around.opens, lock.open, lock.sequence);
            if note(around, lock.open, &lock.element) {
                around.agenda.tasks.forget(lock.operation);
                around.agenda.records.granted(lock.operation);
            } else {
                around.agenda.finish(lock.operation, Ok(Reply::Done));
            }
            around.caching.contend(around.opens, around.agenda, lock.open);
        }
    }

    /// Takes a request out that is cancelled. The caller answers it.
    pub fn cancel(&mut self, id: OpenId, operation: OperationId, opens: &Opens) {
        let Some(open) = opens.get(id) else { return };
        let Some(locks) = self.streams.get_mut(&open.stream) else { return };
        let ticket = locks.waiting.of(id).find(|(_, lock)| lock.operation == operation);
        if let Some(ticket) = ticket.map(|(ticket, _)| ticket) {
            locks.waiting.remove(ticket);
            self.taken.remove(open.session, &open.token.user, 1);
            self.drop_idle(open.stream);
        }
    }

    /// Ends the requests of an open that is closed or unusable, and frees its ranges.
    pub fn release(&mut self, owner: LockOwner, around: &mut Around<'_>) {
        self.abort_waiting(&owner, around.agenda);
        let LockOwner { id, stream, session, token, is_persistent } = owner;
        self.release_writes(id, stream);
        let Some(locks) = self.streams.get_mut(&stream) else { return };
        self.taken.remove(session, &token.user, locks.held.count(id));
        let held = locks.held.release(id);
        if is_persistent {
            held.iter().for_each(|(interval, shared)| around.agenda.records.lock(id, *interval, *shared));
        }
        let freed: Vec<Interval> = held.into_iter().map(|(interval, _)| interval).collect();
        if !freed.is_empty() {
            self.retry(stream, &freed, around);
        }
    }

    /// Ends the requests of an open that wait.
    pub fn abort_waiting(&mut self, owner: &LockOwner, agenda: &mut Agenda) {
        let Some(locks) = self.streams.get_mut(&owner.stream) else { return };
        let gone: Vec<_> = locks.waiting.of(owner.id).map(|(ticket, _)| ticket).collect();
        let gone: Vec<_> = gone.into_iter().filter_map(|ticket| locks.waiting.remove(ticket)).collect();
        self.taken.remove(owner.session, &owner.token.user, gone.len());
        self.drop_idle(owner.stream);
        for lock in gone {
            agenda.finish(lock.operation, Err(NtStatus::RANGE_NOT_LOCKED));
        }
    }

    /// Moves the counts of an open's locks to the session that takes the open over.
    pub fn hand_over(&mut self, id: OpenId, stream: StreamId, from: SessionId, to: SessionId) {
        let locks = self.count(stream, id);
        self.taken.hand_over(from, to, locks);
    }

    fn drop_idle(&mut self, stream: StreamId) {
        if self.streams.get(&stream).is_some_and(StreamLocks::is_idle) {
            self.streams.remove(&stream);
        }
    }
}

impl StreamLocks {
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.away.is_empty()
    }
}

/// Notes a lock of an open to be recorded, if the open outlives the server. Returns whether it does.
fn note(around: &mut Around<'_>, id: OpenId, element: &LockElement) -> bool {
    note_range(around, id, element.range.into(), element.exclusive != Some(true));
    around.opens.get(id).is_some_and(|open| open.persistent)
}

fn note_range(around: &mut Around<'_>, id: OpenId, interval: Interval, shared: bool) {
    if around.opens.get(id).is_some_and(|open| open.persistent) {
        around.agenda.records.lock(id, interval, shared);
        // The open's record has the sequence numbers.
        around.agenda.records.open(id);
    }
}

/// Remembers that a request of an open with this sequence number succeeded.
fn lock_succeeded(opens: &mut Opens, id: OpenId, sequence: Option<u32>) {
    if let Some(open) = opens.get_mut(id)
        && let (Some(sequences), Some(sequence)) = (&mut open.sequences, sequence)
    {
        sequences.succeeded(sequence);
    }
}
