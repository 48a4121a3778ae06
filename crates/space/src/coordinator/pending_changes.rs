//! Changes of the record that wait to be proposed, or that are proposed.

use records::{StaleDisk, VolumeRecord};
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch};

/// One entry of the record's `building` list.
pub(super) type Mark = (DiskId, ChunkIndex);

/// Marks that make a new copy count: the new copy loses its mark, and the old one gets one.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkChange {
    pub unmark: Option<Mark>,
    pub mark: Option<Mark>,
}

/// One change of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// The disk leaves the in-sync set.
    Expel(DiskId),
    /// The disk counts from now on.
    Join(DiskId),
    /// The volume may get slabs of the disk.
    Add(DiskId),
    /// The disk holds nothing of the volume any more and leaves the record.
    Remove(DiskId),
    /// The disk went back in time: all its data count as missed.
    Rewind(DiskId),
    /// The disk went back in time, or came back with a doubt, and counts only for chunks that no
    /// other disk has: its other copies are marked.
    Keep(DiskId),
    /// The copy stops counting.
    Mark(DiskId, ChunkIndex),
    /// The copy starts to count, or has been given back.
    Unmark(DiskId, ChunkIndex),
    /// The record promises at most this many copies of each chunk.
    LowerHolders(u8),
    /// The record promises at most this many fault domains of each chunk.
    LowerHomes(u8),
    /// The size in bytes.
    Resize(u64),
    /// The fill, in percent, from which health warns.
    WarnAt(u8),
    /// The volume is complete and open to clients.
    FinishMaking,
    /// A new epoch, with the settled epoch of now.
    Rotate,
}

const LEAST: DiskId = DiskId::from_bytes([0; 16]);
const GREATEST: DiskId = DiskId::from_bytes([0xff; 16]);
const LAST_CHUNK: ChunkIndex = ChunkIndex(u32::MAX);

/// Changes of the record, each at most once.
///
/// Invariant: of two changes that exclude each other ([`PendingChanges::insert`]), only the later
/// one is in the set.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingChanges(BTreeSet<Change>);

impl PendingChanges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, change: Change) -> bool {
        self.0.contains(&change)
    }

    /// Adds a change, and removes those that it makes void.
    pub fn insert(&mut self, change: Change) {
        match change {
            // A disk that failed, or went back, while it was about to join has to be compared anew
            // first (I5).
            Change::Expel(disk) | Change::Rewind(disk) => self.remove(Change::Join(disk)),
            Change::Add(disk) => self.remove(Change::Remove(disk)),
            Change::Resize(_) => self.0.retain(|other| !matches!(other, Change::Resize(_))),
            Change::WarnAt(_) => self.0.retain(|other| !matches!(other, Change::WarnAt(_))),
            _ => {}
        }
        self.0.insert(change);
    }

    /// Whether a change that came later makes this one void.
    fn is_void(&self, change: Change) -> bool {
        match change {
            Change::Join(disk) => self.contains(Change::Expel(disk)) || self.contains(Change::Rewind(disk)),
            Change::Remove(disk) => self.contains(Change::Add(disk)),
            Change::Resize(_) => self.size_bytes().is_some(),
            Change::WarnAt(_) => self.warn_at_percent().is_some(),
            _ => false,
        }
    }

    pub fn remove(&mut self, change: Change) {
        self.0.remove(&change);
    }

    pub fn extend(&mut self, changes: impl IntoIterator<Item = Change>) {
        changes.into_iter().for_each(|change| self.insert(change));
    }

    /// Restores the changes of a refused proposal, except those that later changes make void.
    pub fn take_back(&mut self, proposed: Self) {
        for change in proposed.0 {
            if !self.is_void(change) {
                self.0.insert(change);
            }
        }
    }

    /// Returns the disks with this kind of change, in order of their ids.
    pub fn disks(&self, of: fn(DiskId) -> Change) -> impl Iterator<Item = DiskId> + Clone {
        self.0.range(of(LEAST)..=of(GREATEST)).filter_map(|change| match change {
            Change::Expel(disk)
            | Change::Join(disk)
            | Change::Add(disk)
            | Change::Remove(disk)
            | Change::Rewind(disk)
            | Change::Keep(disk) => Some(*disk),
            _ => None,
        })
    }

    /// Removes the changes of this kind and returns their disks.
    pub fn take_disks(&mut self, of: fn(DiskId) -> Change) -> Vec<DiskId> {
        let disks: Vec<DiskId> = self.disks(of).collect();
        disks.iter().for_each(|disk| self.remove(of(*disk)));
        disks
    }

    pub fn has(&self, of: fn(DiskId) -> Change) -> bool {
        self.disks(of).next().is_some()
    }

    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.marks_of(LEAST, GREATEST)
    }

    /// Returns the chunks whose copy on the disk stops counting.
    pub fn marked_on(&self, disk: DiskId) -> impl Iterator<Item = ChunkIndex> {
        self.marks_of(disk, disk).map(|(_, chunk)| chunk)
    }

    fn marks_of(&self, first: DiskId, last: DiskId) -> impl Iterator<Item = Mark> {
        let marks = self.0.range(Change::Mark(first, ChunkIndex(0))..=Change::Mark(last, LAST_CHUNK));
        marks.filter_map(|change| match change {
            Change::Mark(disk, chunk) => Some((*disk, *chunk)),
            _ => None,
        })
    }

    pub fn unmarks(&self) -> impl Iterator<Item = Mark> {
        let unmarks =
            self.0.range(Change::Unmark(LEAST, ChunkIndex(0))..=Change::Unmark(GREATEST, LAST_CHUNK));
        unmarks.filter_map(|change| match change {
            Change::Unmark(disk, chunk) => Some((*disk, *chunk)),
            _ => None,
        })
    }

    /// Returns the most copies of a chunk that the record may promise.
    pub fn holders_max(&self) -> u8 {
        let lower = self.0.range(Change::LowerHolders(0)..=Change::LowerHolders(u8::MAX)).next();
        lower.map_or(
            u8::MAX,
            |change| if let Change::LowerHolders(holders) = change { *holders } else { u8::MAX },
        )
    }

    /// Returns the most fault domains of a chunk that the record may promise.
    pub fn homes_max(&self) -> u8 {
        let lower = self.0.range(Change::LowerHomes(0)..=Change::LowerHomes(u8::MAX)).next();
        lower.map_or(u8::MAX, |change| if let Change::LowerHomes(homes) = change { *homes } else { u8::MAX })
    }

    fn size_bytes(&self) -> Option<u64> {
        self.0.iter().find_map(|change| if let Change::Resize(bytes) = change { Some(*bytes) } else { None })
    }

    fn warn_at_percent(&self) -> Option<u8> {
        self.0
            .iter()
            .find_map(|change| if let Change::WarnAt(percent) = change { Some(*percent) } else { None })
    }

    /// Keeps the disk for chunks that no other disk has: the copies of `marked` chunks, of which
    /// others have copies, do not count.
    pub fn keep(&mut self, disk: DiskId, marked: Vec<ChunkIndex>) {
        self.insert(Change::Keep(disk));
        self.extend(marked.into_iter().map(|chunk| Change::Mark(disk, chunk)));
        self.insert(Change::LowerHolders(1));
    }

    /// Drops changes of marks: these copies will not count, and others are not given up for them.
    pub fn forget_marks(&mut self, changes: impl IntoIterator<Item = MarkChange>) {
        for MarkChange { unmark, mark } in changes {
            unmark.into_iter().for_each(|(disk, chunk)| self.remove(Change::Unmark(disk, chunk)));
            mark.into_iter().for_each(|(disk, chunk)| self.remove(Change::Mark(disk, chunk)));
        }
    }

    /// Applies settings that administrators decide and the coordinator only records.
    pub fn apply_settings(&self, next: &mut VolumeRecord) {
        next.size_bytes = self.size_bytes().unwrap_or(next.size_bytes);
        next.warn_at_percent = self.warn_at_percent().or(next.warn_at_percent);
        next.is_unfinished &= !self.contains(Change::FinishMaking);
    }

    /// Applies joining, added and removed disks.
    pub fn apply_members(&mut self, next: &mut VolumeRecord) {
        for disk in self.disks(Change::Join) {
            next.stale.retain(|stale| stale.disk != disk);
            if !next.in_sync.contains(&disk) {
                next.in_sync.push(disk);
            }
        }
        for disk in self.take_disks(Change::Add) {
            let is_known = next.in_sync.contains(&disk) || next.stale.iter().any(|stale| stale.disk == disk);
            if !is_known {
                // The disk's old slabs of the volume, if any, are compared before they count.
                next.stale.push(StaleDisk { disk, since: Epoch(0), promised: Epoch(0) });
                self.insert(Change::Add(disk));
            }
        }
        for disk in self.disks(Change::Remove) {
            next.in_sync.retain(|member| *member != disk);
            next.stale.retain(|stale| stale.disk != disk);
        }
        next.in_sync.sort_unstable();
    }

    /// Marks copies that stop counting, and unmarks those that start to count or are gone.
    pub fn apply_marks(&self, next: &mut VolumeRecord) {
        let known: BTreeSet<Mark> = next.building.iter().copied().collect();
        next.building.extend(self.marks().filter(|mark| !known.contains(mark)));
        next.building.retain(|(disk, chunk)| !self.contains(Change::Unmark(*disk, *chunk)));
        let members: BTreeSet<DiskId> =
            next.in_sync.iter().copied().chain(next.stale.iter().map(|stale| stale.disk)).collect();
        next.building.retain(|(disk, _)| members.contains(disk));
    }
}

impl FromIterator<Change> for PendingChanges {
    fn from_iter<T: IntoIterator<Item = Change>>(changes: T) -> Self {
        let mut all = Self::default();
        all.extend(changes);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskId = DiskId::from_bytes([7; 16]);

    fn refused(proposed: &[Change], wanted_since: &[Change]) -> Vec<Change> {
        let mut changes = PendingChanges::default();
        changes.extend(wanted_since.iter().copied());
        changes.take_back(proposed.iter().copied().collect());
        changes.0.into_iter().collect()
    }

    #[test]
    fn a_disk_that_failed_while_its_joining_was_proposed_does_not_join_when_that_was_refused() {
        for since in [Change::Expel(DISK), Change::Rewind(DISK)] {
            assert_eq!(refused(&[Change::Join(DISK)], &[since]), [since]);
        }
        assert_eq!(refused(&[Change::Join(DISK)], &[]), [Change::Join(DISK)]);
    }

    #[test]
    fn a_decision_of_the_administrator_is_not_undone_by_an_older_one_that_was_refused() {
        assert_eq!(refused(&[Change::Remove(DISK)], &[Change::Add(DISK)]), [Change::Add(DISK)]);
        assert_eq!(refused(&[Change::Resize(1)], &[Change::Resize(2)]), [Change::Resize(2)]);
        assert_eq!(refused(&[Change::WarnAt(9)], &[Change::WarnAt(3)]), [Change::WarnAt(3)]);
    }

    #[test]
    fn disks_and_marks_are_found_by_their_kind_in_order() {
        let mut changes = PendingChanges::default();
        let (first, last) = (LEAST, GREATEST);
        changes.extend([Change::Expel(last), Change::Expel(first), Change::Keep(DISK), Change::Rotate]);
        changes.keep(DISK, vec![ChunkIndex(0), LAST_CHUNK]);
        changes.insert(Change::Mark(last, ChunkIndex(3)));
        assert_eq!(changes.disks(Change::Expel).collect::<Vec<_>>(), [first, last]);
        assert_eq!(changes.marked_on(DISK).collect::<Vec<_>>(), [ChunkIndex(0), LAST_CHUNK]);
        assert_eq!(changes.marks().count(), 3);
        assert!(changes.has(Change::Keep) && !changes.has(Change::Add));
        assert_eq!((changes.holders_max(), changes.homes_max()), (1, u8::MAX));
    }
}
