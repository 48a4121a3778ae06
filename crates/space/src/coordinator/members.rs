//! State of the volume's disks that neither the record nor the table of disks has.
//!
//! Invariant: `left_at` is set if and only if some member is leaving.

use std::collections::BTreeMap;
use types::{DiskId, Epoch, Monotonic};

/// A doubt about the copies of a disk in sync that came back and may have lost acknowledged writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// The record has yet to expel the disk. Until then it gets no requests.
    Open,
    /// The disk has the last copy of some chunk, and counts as it is.
    Accepted,
}

/// One disk of the volume.
#[derive(Debug, Default)]
struct Member {
    /// The highest epoch that the disk has reported as promised to this coordinator.
    promised: Epoch,
    /// The highest epoch that the disk was asked to promise.
    asked: Epoch,
    doubt: Doubt,
    /// Time when the disk left the in-sync set or became known, or when the volume was opened
    /// without it. `None`: the disk is in sync.
    absent_since: Option<Monotonic>,
    /// Whether a committed record has expelled the disk, and remaining disks have yet to promise
    /// that record's epoch.
    is_leaving: bool,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    members: BTreeMap<DiskId, Member>,
    /// Epoch of the last record that expelled a disk of those that are leaving.
    left_at: Option<Epoch>,
}

impl Members {
    fn member(&mut self, disk: DiskId) -> &mut Member {
        self.members.entry(disk).or_default()
    }

    fn doubt(&self, disk: DiskId) -> Doubt {
        self.members.get(&disk).map_or(Doubt::None, |member| member.doubt)
    }

    /// Returns the highest epoch that the disk has reported as promised.
    pub fn promised(&self, disk: DiskId) -> Epoch {
        self.members.get(&disk).map_or(Epoch::default(), |member| member.promised)
    }

    pub fn note_promise(&mut self, disk: DiskId, epoch: Epoch) {
        let promised = &mut self.member(disk).promised;
        *promised = epoch.max(*promised);
    }

    /// Forgets the promise of a disk that went back in time.
    pub fn forget_promise(&mut self, disk: DiskId) {
        self.member(disk).promised = Epoch::default();
    }

    /// Notes that the disk is asked to promise the epoch. Returns whether this is new.
    pub fn ask(&mut self, disk: DiskId, epoch: Epoch) -> bool {
        let asked = &mut self.member(disk).asked;
        let is_new = *asked < epoch;
        *asked = epoch.max(*asked);
        is_new
    }

    pub fn absent_since(&self, disk: DiskId) -> Option<Monotonic> {
        self.members.get(&disk)?.absent_since
    }

    pub fn set_absent_since(&mut self, disk: DiskId, since: Option<Monotonic>) {
        self.member(disk).absent_since = since;
    }

    /// Opens a doubt: the record must expel the disk before it gets any request.
    pub fn open_doubt(&mut self, disk: DiskId) {
        self.member(disk).doubt = Doubt::Open;
    }

    pub fn is_doubted(&self, disk: DiskId) -> bool {
        self.doubt(disk) == Doubt::Open
    }

    pub fn is_doubt_accepted(&self, disk: DiskId) -> bool {
        self.doubt(disk) == Doubt::Accepted
    }

    /// Accepts an open doubt, since the disk has the last copy of some chunk. Returns whether there
    /// was one.
    pub fn accept_doubt(&mut self, disk: DiskId) -> bool {
        let is_open = self.is_doubted(disk);
        if is_open {
            self.member(disk).doubt = Doubt::Accepted;
        }
        is_open
    }

    /// Closes the open doubts about these disks: their copies do not count.
    pub fn close_doubts(&mut self, is_meant: impl Fn(DiskId) -> bool) {
        for (disk, member) in &mut self.members {
            if member.doubt == Doubt::Open && is_meant(*disk) {
                member.doubt = Doubt::None;
            }
        }
    }

    /// Notes that the record of this epoch has expelled the disk.
    pub fn begin_leaving(&mut self, disk: DiskId, epoch: Epoch) {
        self.member(disk).is_leaving = true;
        self.left_at = Some(epoch);
    }

    /// Whether the record has expelled the disk, and remaining disks have yet to promise that
    /// record's epoch.
    pub fn is_leaving(&self, disk: DiskId) -> bool {
        self.left_at.is_some() && self.members.get(&disk).is_some_and(|member| member.is_leaving)
    }

    /// Returns the epoch that the remaining disks must promise before leaving disks are out; `None`
    /// if no disk is leaving.
    pub fn left_at(&self) -> Option<Epoch> {
        self.left_at
    }

    /// Takes the disks that were leaving, which are out now.
    pub fn take_leaving(&mut self) -> Vec<DiskId> {
        self.left_at = None;
        let is_leaving = |member: &mut Member| std::mem::take(&mut member.is_leaving);
        let members = self.members.iter_mut();
        members.filter_map(|(disk, member)| is_leaving(member).then_some(*disk)).collect()
    }
}
