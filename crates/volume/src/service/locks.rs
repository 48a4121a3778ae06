//! Byte-range locks of one stream (MS-FSA 2.1.5.8, 2.1.5.9, 2.1.4.10).
//!
//! Owns who holds which range. Promises: a request gets all its locks or none. Never waits: who has to wait asks again after a release.

use crate::backend::{ByteRange, LockElement, OpenId};
use types::NtStatus;

/// Most locks of one stream.
const LOCKS_MAX: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    pub range: ByteRange,
    pub exclusive: bool,
    pub owner: OpenId,
}

#[derive(Debug, Default)]
pub struct RangeLocks {
    held: Vec<Lock>,
}

/// First byte, and the one after the last, beyond 64 bits where the range ends at the largest offset.
fn bounds(range: ByteRange) -> (u128, u128) {
    let start = u128::from(range.offset);
    (start, start + u128::from(range.len_bytes))
}

/// A range without bytes lies between two bytes: it meets ranges that hold both.
fn overlap(one: ByteRange, other: ByteRange) -> bool {
    let ((from, to), (other_from, other_to)) = (bounds(one), bounds(other));
    from < other_to && other_from < to
}

/// # Errors
/// INVALID_LOCK_RANGE where the range goes beyond the last 64-bit offset.
pub fn check_range(range: ByteRange) -> Result<(), NtStatus> {
    if range.len_bytes > 0 && range.offset.checked_add(range.len_bytes - 1).is_none() {
        return Err(NtStatus::INVALID_LOCK_RANGE);
    }
    Ok(())
}

impl RangeLocks {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn conflicts(&self, new: &Lock) -> bool {
        self.held.iter().any(|old| {
            let both_shared = !old.exclusive && !new.exclusive;
            // The owner of an exclusive lock may put shared ones on top.
            let stacked = old.exclusive && !new.exclusive && old.owner == new.owner;
            !both_shared && !stacked && overlap(old.range, new.range)
        })
    }

    /// Takes all of `elements` (whose `exclusive` says how), or none.
    ///
    /// # Errors
    /// LOCK_NOT_GRANTED; INSUFFICIENT_RESOURCES beyond a bound on locks.
    pub fn lock(&mut self, owner: OpenId, elements: &[LockElement]) -> Result<(), NtStatus> {
        let before = self.held.len();
        for element in elements {
            let new = Lock { range: element.range, exclusive: element.exclusive == Some(true), owner };
            let refused = if self.held.len() >= LOCKS_MAX {
                Some(NtStatus::INSUFFICIENT_RESOURCES)
            } else {
                self.conflicts(&new).then_some(NtStatus::LOCK_NOT_GRANTED)
            };
            if let Some(status) = refused {
                self.held.truncate(before);
                return Err(status);
            }
            self.held.push(new);
        }
        Ok(())
    }

    /// Gives up the lock of exactly this range; an exclusive one first where both are held.
    ///
    /// # Errors
    /// RANGE_NOT_LOCKED.
    pub fn unlock(&mut self, owner: OpenId, range: ByteRange) -> Result<(), NtStatus> {
        let mine = |lock: &Lock| lock.owner == owner && lock.range == range;
        let at = self
            .held
            .iter()
            .position(|lock| mine(lock) && lock.exclusive)
            .or_else(|| self.held.iter().position(mine))
            .ok_or(NtStatus::RANGE_NOT_LOCKED)?;
        self.held.remove(at);
        Ok(())
    }

    /// Gives up all locks of an open; whether there were any.
    pub fn release(&mut self, owner: OpenId) -> bool {
        let before = self.held.len();
        self.held.retain(|lock| lock.owner != owner);
        self.held.len() != before
    }

    /// Locks that an open holds.
    pub fn count(&self, owner: OpenId) -> usize {
        self.held.iter().filter(|lock| lock.owner == owner).count()
    }

    /// # Errors
    /// FILE_LOCK_CONFLICT where `owner` may not read or write the range.
    pub fn check_io(&self, owner: OpenId, range: ByteRange, write: bool) -> Result<(), NtStatus> {
        let conflict = range.len_bytes > 0
            && self.held.iter().any(|lock| {
                // A shared lock forbids writing to its owner too.
                let forbids = if write {
                    lock.owner != owner || !lock.exclusive
                } else {
                    lock.exclusive && lock.owner != owner
                };
                forbids && overlap(lock.range, range)
            });
        if conflict { Err(NtStatus::FILE_LOCK_CONFLICT) } else { Ok(()) }
    }
}

/// Buckets of MS-SMB2 3.3.1.10 Open.LockSequenceArray: the last sequence number that succeeded in each.
#[derive(Debug)]
pub struct LockSequences([Option<u8>; 64]);

impl Default for LockSequences {
    fn default() -> Self {
        Self([None; 64])
    }
}

impl LockSequences {
    fn bucket(&mut self, sequence: u32) -> Option<(&mut Option<u8>, u8)> {
        let index = usize::try_from(sequence >> 4).ok()?.checked_sub(1)?;
        Some((self.0.get_mut(index)?, (sequence & 0xF) as u8))
    }

    /// Whether the request is the repetition of one that succeeded; if not, its bucket becomes invalid until it does.
    pub fn is_replay(&mut self, sequence: u32) -> bool {
        let Some((bucket, number)) = self.bucket(sequence) else { return false };
        if *bucket == Some(number) {
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
