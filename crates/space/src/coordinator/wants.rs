//! What the coordinator wants the record to say next.

use records::{StaleDisk, VolumeRecord};
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch};

/// One entry of the record's `building` list.
pub(super) type Mark = (DiskId, ChunkIndex);

/// What the record that makes a new copy count changes: it takes the one mark away and sets the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkChange {
    pub unmark: Option<Mark>,
    pub mark: Option<Mark>,
}

/// Changes that wait to be proposed, or that were.
#[derive(Debug, Clone, Default)]
pub(super) struct Wants {
    pub expel: BTreeSet<DiskId>,
    pub join: BTreeSet<DiskId>,
    /// Disks that the volume may be given slabs of.
    pub add: BTreeSet<DiskId>,
    /// Disks that hold nothing of the volume any more and are to be forgotten.
    pub remove: BTreeSet<DiskId>,
    /// Copies that begin not to count.
    pub mark: BTreeSet<Mark>,
    /// Copies that count from now on, or that are gone.
    pub unmark: BTreeSet<Mark>,
    /// Fewer copies per chunk than the record promises.
    pub lower: Option<u8>,
    /// Fewer homes of each chunk than the record promises.
    pub lower_homes: Option<u8>,
    pub size_bytes: Option<u64>,
    pub warn_at_percent: Option<u8>,
    /// The volume was made: it is there for clients.
    pub finished: bool,
    /// Disks that went back in time: what they have missed is counted from the beginning.
    pub rewind: BTreeSet<DiskId>,
    /// Disks that went back in time, or came back with a doubt, and count for what nobody else has: their other copies are among `mark`.
    pub keep: BTreeSet<DiskId>,
    /// A new epoch, and what is settled.
    pub rotate: bool,
}

impl Wants {
    pub fn is_empty(&self) -> bool {
        self.expel.is_empty()
            && self.join.is_empty()
            && self.add.is_empty()
            && self.remove.is_empty()
            && self.mark.is_empty()
            && self.unmark.is_empty()
            && self.lower.is_none()
            && self.lower_homes.is_none()
            && self.size_bytes.is_none()
            && self.warn_at_percent.is_none()
            && !self.finished
            && self.rewind.is_empty()
            && self.keep.is_empty()
            && !self.rotate
    }

    /// Lets the disk count for what nobody else has: not for these chunks, of which there are others' copies.
    pub fn keep(&mut self, disk: DiskId, marked: Vec<ChunkIndex>) {
        self.keep.insert(disk);
        self.mark.extend(marked.into_iter().map(|chunk| (disk, chunk)));
        self.want_lower(1);
    }

    /// Copies do not come to count after all, and others are not given up for them.
    pub fn forget_marks(&mut self, changes: impl IntoIterator<Item = MarkChange>) {
        for MarkChange { unmark, mark } in changes {
            self.unmark.retain(|wanted| Some(*wanted) != unmark);
            self.mark.retain(|wanted| Some(*wanted) != mark);
        }
    }

    pub fn want_lower(&mut self, holders: u8) {
        self.lower = Some(self.lower.map_or(holders, |lower| lower.min(holders)));
    }

    pub fn want_lower_homes(&mut self, homes: u8) {
        self.lower_homes = Some(self.lower_homes.map_or(homes, |lower| lower.min(homes)));
    }

    /// Wants again what was proposed in vain.
    pub fn take_back(&mut self, proposed: Self) {
        self.expel.extend(proposed.expel);
        self.join.extend(proposed.join);
        self.add.extend(proposed.add);
        self.remove.extend(proposed.remove);
        self.mark.extend(proposed.mark);
        self.unmark.extend(proposed.unmark);
        self.rewind.extend(proposed.rewind);
        self.keep.extend(proposed.keep);
        self.rotate |= proposed.rotate;
        self.size_bytes = self.size_bytes.or(proposed.size_bytes);
        self.warn_at_percent = self.warn_at_percent.or(proposed.warn_at_percent);
        self.finished |= proposed.finished;
        if let Some(lower) = proposed.lower {
            self.want_lower(lower);
        }
        if let Some(homes) = proposed.lower_homes {
            self.want_lower_homes(homes);
        }
    }

    /// Applies what administrators decide and the coordinator only writes down.
    pub fn apply_settings(&self, next: &mut VolumeRecord) {
        next.size_bytes = self.size_bytes.unwrap_or(next.size_bytes);
        next.warn_at_percent = self.warn_at_percent.or(next.warn_at_percent);
        next.is_unfinished &= !self.finished;
    }

    /// Lets disks join, come in and be forgotten.
    pub fn apply_members(&mut self, next: &mut VolumeRecord) {
        for &disk in &self.join {
            next.stale.retain(|stale| stale.disk != disk);
            if !next.in_sync.contains(&disk) {
                next.in_sync.push(disk);
            }
        }
        let known =
            |disk: &DiskId| next.in_sync.contains(disk) || next.stale.iter().any(|stale| stale.disk == *disk);
        self.add.retain(|disk| !known(disk));
        // Anything that it may hold of the volume is looked at before it counts.
        next.stale.extend(self.add.iter().map(|&disk| StaleDisk {
            disk,
            since: Epoch(0),
            promised: Epoch(0),
        }));
        for &disk in &self.remove {
            next.in_sync.retain(|member| *member != disk);
            next.stale.retain(|stale| stale.disk != disk);
        }
        next.in_sync.sort_unstable();
    }

    /// Marks copies that are not to count, and takes marks away of those that are, or that are gone.
    pub fn apply_marks(&self, next: &mut VolumeRecord) {
        let known: BTreeSet<Mark> = next.building.iter().copied().collect();
        next.building.extend(self.mark.difference(&known));
        next.building.retain(|mark| !self.unmark.contains(mark));
        let members: BTreeSet<DiskId> =
            next.in_sync.iter().copied().chain(next.stale.iter().map(|stale| stale.disk)).collect();
        next.building.retain(|(disk, _)| members.contains(disk));
    }
}
