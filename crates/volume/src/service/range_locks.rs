//! Byte-range locks of one stream (MS-FSA 2.1.5.8, 2.1.5.9, 2.1.4.10).
//!
//! Owns the ranges that each open holds. Promises: a request gets all its locks or none; taking,
//! releasing and checking a range take steps in proportion to the logarithm of the number of locks, and
//! one more for each lock that meets the range and does not forbid it: only the requester's own
//! exclusive ones. Never waits: requests that have to wait are in [`super::waiting_locks`].

use super::intervals::{Interval, IntervalSet};
use crate::backend::{ByteRange, LockElement, OpenId, SessionId};
use crate::planted::Planted;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use types::{NtStatus, Sid};

/// A lock, in the order in which an open's are released: of two on one range the exclusive one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    owner: OpenId,
    interval: Interval,
    shared: bool,
}

/// The locks of one stream.
///
/// Invariant: a locked range is in `exclusive` or in `shared`, once for its owner however often it is
/// locked, and `counts` has the sum for each open that holds any.
#[derive(Debug, Default)]
pub struct RangeLocks {
    /// The number of times that each is held.
    held: BTreeMap<Lock, usize>,
    /// The number of locks of each open that has any.
    counts: HashMap<OpenId, usize>,
    exclusive: IntervalSet<OpenId>,
    shared: IntervalSet<OpenId>,
}

/// Checks that a range can be locked at all.
///
/// # Errors
/// INVALID_LOCK_RANGE if the range goes beyond the last 64-bit offset.
pub fn check_range(range: ByteRange) -> Result<(), NtStatus> {
    if range.len_bytes > 0 && range.offset.checked_add(range.len_bytes - 1).is_none() {
        return Err(NtStatus::INVALID_LOCK_RANGE);
    }
    Ok(())
}

impl RangeLocks {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    fn set_of(&mut self, lock: Lock) -> &mut IntervalSet<OpenId> {
        if lock.shared { &mut self.shared } else { &mut self.exclusive }
    }

    fn conflicts(&self, new: Lock) -> bool {
        // The owner of an exclusive lock may put shared ones on top.
        let exclusive_free =
            self.exclusive.each_meeting(new.interval, |_, owner| new.shared && owner == new.owner);
        !exclusive_free || !new.shared && !self.shared.each_meeting(new.interval, |_, _| false)
    }

    fn add(&mut self, lock: Lock) {
        let times = self.held.entry(lock).or_insert(0);
        *times += 1;
        if *times == 1 {
            self.set_of(lock).insert(lock.interval, lock.owner);
        }
        *self.counts.entry(lock.owner).or_insert(0) += 1;
    }

    fn remove(&mut self, lock: Lock) {
        let times = self.held.get_mut(&lock).expect("a lock that is given up is held");
        *times -= 1;
        if *times == 0 {
            self.held.remove(&lock);
            self.set_of(lock).remove(lock.interval, lock.owner);
        }
        let count = self.counts.get_mut(&lock.owner).expect("an open that holds a lock is counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&lock.owner);
        }
    }

    /// Takes all of `elements` (each one's `exclusive` says how), or none.
    ///
    /// # Errors
    /// LOCK_NOT_GRANTED.
    pub fn lock(&mut self, owner: OpenId, elements: &[LockElement]) -> Result<(), NtStatus> {
        for (taken, element) in elements.iter().enumerate() {
            let lock = |element: &LockElement| Lock {
                owner,
                interval: element.range.into(),
                shared: element.exclusive != Some(true),
            };
            if self.conflicts(lock(element)) {
                elements[..taken].iter().for_each(|element| self.remove(lock(element)));
                return Err(NtStatus::LOCK_NOT_GRANTED);
            }
            self.add(lock(element));
        }
        Ok(())
    }

    /// Restores a lock, which was held `times` times before a start of the server. False: another one
    /// conflicts.
    pub fn restore(&mut self, owner: OpenId, interval: Interval, shared: bool, times: u32) -> bool {
        let lock = Lock { owner, interval, shared };
        let fits = !self.conflicts(lock);
        if fits {
            (0..times).for_each(|_| self.add(lock));
        }
        fits
    }

    /// Counts how often a lock is held.
    pub fn times(&self, owner: OpenId, interval: Interval, shared: bool) -> usize {
        self.held.get(&Lock { owner, interval, shared }).copied().unwrap_or(0)
    }

    /// Releases the lock of exactly this range; an exclusive one first if both are held. Returns whether it
    /// was a shared one.
    ///
    /// # Errors
    /// RANGE_NOT_LOCKED.
    pub fn unlock(&mut self, owner: OpenId, range: ByteRange) -> Result<bool, NtStatus> {
        let lock = |shared| Lock { owner, interval: range.into(), shared };
        let found = [lock(false), lock(true)].into_iter().find(|lock| self.held.contains_key(lock));
        let found = found.ok_or(NtStatus::RANGE_NOT_LOCKED)?;
        self.remove(found);
        Ok(found.shared)
    }

    /// Releases all locks of an open. Returns their ranges, and which of them were shared.
    pub fn release(&mut self, owner: OpenId) -> Vec<(Interval, bool)> {
        let first = Lock { owner, interval: Interval { start: 0, end: 0 }, shared: false };
        let mine = self.held.range(first..).take_while(|(lock, _)| lock.owner == owner);
        let mine: Vec<Lock> = mine.map(|(lock, _)| *lock).collect();
        for lock in &mine {
            self.held.remove(lock);
            self.set_of(*lock).remove(lock.interval, owner);
        }
        self.counts.remove(&owner);
        mine.into_iter().map(|lock| (lock.interval, lock.shared)).collect()
    }

    /// Counts the locks that an open holds.
    pub fn count(&self, owner: OpenId) -> usize {
        self.counts.get(&owner).copied().unwrap_or(0)
    }

    /// Checks that the locks let `owner` read or write a range.
    ///
    /// # Errors
    /// FILE_LOCK_CONFLICT.
    pub fn check_io(&self, owner: OpenId, range: ByteRange, write: bool) -> Result<(), NtStatus> {
        if self.is_empty() || range.len_bytes == 0 {
            return Ok(());
        }
        let interval = Interval::from(range);
        // A shared lock forbids writing to its owner too.
        let free = self.exclusive.each_meeting(interval, |_, holder| holder == owner)
            && (!write || self.shared.each_meeting(interval, |_, _| false));
        if free { Ok(()) } else { Err(NtStatus::FILE_LOCK_CONFLICT) }
    }
}

/// The number of locks held and waited for by each session, by each user, and by all.
///
/// Invariant: `all` is the sum of `by_session` and that of `by_user`; neither lists zero.
#[derive(Debug, Default)]
pub struct LocksTaken {
    by_session: HashMap<SessionId, usize>,
    by_user: HashMap<Sid, usize>,
    all: usize,
}

impl LocksTaken {
    pub fn of(&self, session: SessionId) -> usize {
        self.by_session.get(&session).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub fn all(&self) -> usize {
        self.all
    }

    /// Whether a user may have this many more locks, of a volume that has `most`: no more than are left
    /// free for everybody else together, so that no user takes all. A user without any may take the rest.
    pub fn may_take(&self, user: &Sid, locks: usize, most: usize) -> bool {
        let free = most.saturating_sub(self.all);
        let own = self.by_user.get(user).copied().unwrap_or(0);
        if own == 0 { locks <= free } else { own + 2 * locks <= free }
    }

    pub fn add(&mut self, session: SessionId, user: &Sid, locks: usize) {
        if locks > 0 {
            *self.by_session.entry(session).or_insert(0) += locks;
            *self.by_user.entry(user.clone()).or_insert(0) += locks;
            self.all += locks;
        }
    }

    pub fn remove(&mut self, session: SessionId, user: &Sid, locks: usize) {
        if locks > 0 {
            subtract(&mut self.by_session, &session, locks);
            subtract(&mut self.by_user, user, locks);
            self.all -= locks;
        }
    }

    /// Moves the counts of an open's locks to the session of its user that takes the open over.
    pub fn hand_over(&mut self, from: SessionId, to: SessionId, locks: usize) {
        if locks > 0 {
            subtract(&mut self.by_session, &from, locks);
            *self.by_session.entry(to).or_insert(0) += locks;
        }
    }
}

fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, holder: &K, locks: usize) {
    let count = counts.get_mut(holder).expect("who has locks is counted");
    *count -= locks;
    if *count == 0 {
        counts.remove(holder);
    }
}

/// Buckets of Open.LockSequenceArray (MS-SMB2 3.3.1.10).
pub const SEQUENCE_BUCKETS: usize = 64;

/// Stored in place of a bucket without a number.
const NO_SEQUENCE: u8 = 0xFF;

/// The last sequence number that succeeded in each bucket of Open.LockSequenceArray (MS-SMB2 3.3.1.10).
#[derive(Debug)]
pub struct LockSequences([Option<u8>; SEQUENCE_BUCKETS]);

impl Default for LockSequences {
    fn default() -> Self {
        Self([None; SEQUENCE_BUCKETS])
    }
}

impl LockSequences {
    pub fn to_bytes(&self) -> [u8; SEQUENCE_BUCKETS] {
        self.0.map(|number| number.unwrap_or(NO_SEQUENCE))
    }

    pub fn from_bytes(bytes: [u8; SEQUENCE_BUCKETS]) -> Self {
        Self(bytes.map(|number| (number != NO_SEQUENCE).then_some(number)))
    }

    fn bucket(&mut self, sequence: u32) -> Option<(&mut Option<u8>, u8)> {
        let index = usize::try_from(sequence >> 4).ok()?.checked_sub(1)?;
        Some((self.0.get_mut(index)?, (sequence & 0xF) as u8))
    }

    /// Whether the request is the repetition of one that succeeded; if not, its bucket becomes invalid until it does.
    pub fn is_replay(&mut self, sequence: u32) -> bool {
        let Some((bucket, number)) = self.bucket(sequence) else { return false };
        if *bucket == Some(number) && !Planted::ReplayedLockAppliedTwice.is_planted() {
            return true;
        }
        *bucket = None;
        false
    }

    pub fn succeeded(&mut self, sequence: u32) {
        if let Some((bucket, number)) = self.bucket(sequence) {
            *bucket = Some(number);
        }
    }
}

#[cfg(test)]
#[path = "tests/range_locks.rs"]
mod tests;
