//! One piece sent to the copies: the disks that got it, their answers, and the decision.
//!
//! A write is sent to every in-sync copy, and to every copy in the making. The write is done when
//! each has answered or was expelled by a committed record, and at least `min_copies` that are in
//! sync have it (I1, I2).
//!
//! | the copies say | the piece |
//! |---|---|
//! | all done | done |
//! | all refuse without effect (`NoSpace`, `Invalid`) | fails so: no copy changed |
//! | some done, some have no space for a fresh write | all discard it, since nothing points to its blocks yet; then it fails so |
//! | all that count done, a copy in the making has no space | that copy is given up, unless it is about to count |
//! | some done, some refuse otherwise | those that refused have failed as disks; the piece waits until the record expels them |
//! | left: fewer than `min_copies` | `Unavailable`: the copies that are left agree |
//!
//! A read is sent to the copy that serves its part of the volume, so that no two disks cache the
//! same blocks, unless that copy is clearly busier than the others: then to the least busy copy in
//! sync. If the copy is corrupt, all copies are read, an intact one answers, and the corrupt ones
//! are repaired (I6). Blocks that prove themselves are read from all copies to begin with: an
//! intact one may be older than another.
//!
//! Invariant: a write ends as done only when every copy that counts has acknowledged it (I1). A
//! copy that has not is pending, or expelled by a committed record (I2).

use super::calls::Failure;
use crate::api::SpaceError;
use crate::message::Answer;
use crate::planted::Planted;
use smallvec::SmallVec;
use store::api::StoreError;
use types::{DiskId, Stamp};

/// Run of blocks, from a multiple of this on, that one copy serves: no less than one page of a
/// store's metadata describes.
const READ_TOGETHER_BLOCKS: u64 = 1024;

/// A piece in flight to the copies.
pub(super) struct Run {
    /// Epoch under which the write was first sent, and its number.
    pub stamp: Stamp,
    pending: SmallVec<[DiskId; 3]>,
    acknowledged: SmallVec<[DiskId; 3]>,
    refused: SmallVec<[(DiskId, StoreError); 1]>,
}

/// Effect of copies that refuse a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfRefused {
    /// The write fails if all refuse it.
    Fail,
    /// The same, and if only some have no space for it the others discard it: nothing points to its blocks yet.
    TakeBack,
    /// They are asked again: the write discards another one, which the other copies have.
    AskAgain,
}

/// The decision after the answers of the copies; see the table above.
pub(super) enum Verdict {
    /// Some copies have not answered.
    Pending,
    /// All copies refuse without effect.
    Refused(StoreError),
    /// These disks refuse a write that others have done: as disks they have failed, and they get
    /// the write again.
    Differ(SmallVec<[(DiskId, StoreError); 1]>),
    /// Copies had no space for a fresh write that others have done: all discard the write.
    Undo(SmallVec<[DiskId; 1]>),
    /// These copies, which do not count, have no space for a write that all others have done.
    Without(SmallVec<[DiskId; 3]>),
    /// These copies have come to count since, and get the write now.
    Missing(SmallVec<[DiskId; 3]>),
    /// Every copy that counts has the write.
    Done,
}

impl Run {
    pub fn new(stamp: Stamp, pending: SmallVec<[DiskId; 3]>) -> Self {
        Self { stamp, pending, acknowledged: SmallVec::new(), refused: SmallVec::new() }
    }

    pub fn waits_for(&self, disk: DiskId) -> bool {
        self.pending.contains(&disk)
    }

    /// Returns the copies that have not answered.
    pub fn pending(&self) -> &[DiskId] {
        &self.pending
    }

    /// Notes that the piece goes to a disk that does not owe it an answer.
    pub fn ask_also(&mut self, disk: DiskId) {
        debug_assert!(!self.pending.contains(&disk), "{disk} is asked twice");
        self.pending.push(disk);
    }

    /// Removes the disk from the pending ones. Returns whether others are pending.
    pub fn ended_at(&mut self, disk: DiskId) -> bool {
        self.pending.retain(|pending| *pending != disk);
        !self.pending.is_empty()
    }

    pub fn is_acknowledged(&self) -> bool {
        !self.acknowledged.is_empty()
    }

    /// Whether each of these copies has acknowledged the write.
    pub fn is_on(&self, holders: &[DiskId]) -> bool {
        holders.iter().all(|disk| self.acknowledged.contains(disk))
    }

    /// Notes a disk's answer, or its expulsion from the in-sync set.
    pub fn answered(&mut self, disk: DiskId, result: Result<Answer, Failure>) {
        self.pending.retain(|pending| *pending != disk);
        match result {
            Ok(_) => self.acknowledged.push(disk),
            Err(Failure::Gone) => {}
            Err(Failure::Store(error)) => self.refused.push((disk, error)),
        }
    }

    /// Decides a write; `holders` are the copies that count now. Disks that get the write again are
    /// pending again.
    pub fn conclude(&mut self, holders: &[DiskId], if_refused: IfRefused) -> Verdict {
        if !self.pending.is_empty() {
            return Verdict::Pending;
        }
        let refused = std::mem::take(&mut self.refused);
        if let Some((_, first)) = refused.first() {
            let by_all = self.acknowledged.is_empty() && refused.len() >= holders.len();
            let takes_back = if_refused == IfRefused::TakeBack;
            if by_all && if_refused != IfRefused::AskAgain
                || takes_back && Planted::UndoForgotten.is_planted()
            {
                return Verdict::Refused(first.clone());
            }
            let lack_space = refused.iter().all(|(_, error)| *error == StoreError::NoSpace);
            if lack_space && !Planted::HostExpelsDisk.is_planted() {
                if refused.iter().all(|(disk, _)| !holders.contains(disk)) {
                    return Verdict::Without(refused.into_iter().map(|(disk, _)| disk).collect());
                }
                if takes_back {
                    return Verdict::Undo(refused.into_iter().map(|(disk, _)| disk).collect());
                }
            }
            self.pending.extend(refused.iter().map(|(disk, _)| *disk));
            return Verdict::Differ(refused);
        }
        // A copy may have come to count since.
        let acknowledged = |disk: &DiskId| self.acknowledged.contains(disk);
        let missing: SmallVec<[DiskId; 3]> =
            holders.iter().copied().filter(|disk| !acknowledged(disk)).collect();
        if !missing.is_empty() && !may_miss() {
            self.pending.extend(missing.iter().copied());
            return Verdict::Missing(missing);
        }
        Verdict::Done
    }
}

/// Tells whether a planted bug lets a write end without a copy that counts.
pub(super) fn may_miss() -> bool {
    Planted::AckBeforeCas.is_planted() || Planted::JoinBeforeDrain.is_planted()
}

pub(super) fn space_error(error: StoreError) -> SpaceError {
    match error {
        StoreError::Corrupt { lbas } => SpaceError::Corrupt { lbas },
        StoreError::NoSpace => SpaceError::NoSpace,
        StoreError::Fenced { .. } => SpaceError::Fenced,
        StoreError::Invalid(why) => SpaceError::Invalid(why),
        StoreError::NotMapped | StoreError::Poisoned | StoreError::Disk(_) => SpaceError::Unavailable,
    }
}

/// Returns the copy that serves the block, or the least busy one if the former has more than one
/// and a half times as many calls in flight.
pub(super) fn choose_by_load<D: Copy>(lba: u64, copies: impl Iterator<Item = (D, u32)>) -> Option<D> {
    let mut copies: SmallVec<[(D, u32); 3]> = copies.collect();
    let own = (lba / READ_TOGETHER_BLOCKS).checked_rem(copies.len() as u64)? as usize;
    copies.rotate_left(own);
    let &(own, load) = copies.first()?;
    let &(idle, least) = copies.iter().min_by_key(|(_, load)| *load)?;
    Some(if load > least + least / 2 { idle } else { own })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(lba: u64, loads: &[u32]) -> Option<usize> {
        choose_by_load(lba, loads.iter().copied().enumerate())
    }

    #[test]
    fn a_part_of_a_volume_is_read_from_one_copy_until_that_is_busier() {
        assert_eq!(choose(0, &[]), None);
        for (lba, own) in
            [(0, 0), (READ_TOGETHER_BLOCKS - 1, 0), (READ_TOGETHER_BLOCKS, 1), (2 * READ_TOGETHER_BLOCKS, 2)]
        {
            assert_eq!(choose(lba, &[0, 0, 0]), Some(own));
            assert_eq!(choose(lba, &[8, 8, 8]), Some(own));
            assert_eq!(choose(lba, &[9]), Some(0));
        }
        assert_eq!(choose(0, &[1, 0]), Some(1));
        assert_eq!(choose(0, &[2, 1]), Some(1));
        assert_eq!(choose(0, &[3, 2]), Some(0));
        assert_eq!(choose(0, &[16, 12]), Some(0));
        assert_eq!(choose(0, &[19, 12]), Some(1));
        assert_eq!(choose(READ_TOGETHER_BLOCKS, &[12, 19, 11]), Some(2));
    }
}
