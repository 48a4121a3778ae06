//! The volume's disks, as this coordinator has come to know them beyond the record and the table of disks.
//!
//! Invariant: `left_at` is set if and only if some member is leaving.

use std::collections::BTreeMap;
use types::{DiskId, Epoch, Monotonic};

/// A doubt about the copies of a disk in sync, which came back and may have lost writes that it acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// The record has yet to expel the disk, which is not spoken to before.
    Open,
    /// The disk has the last copy of something, and counts as it is.
    Accepted,
}

/// One disk of the volume.
#[derive(Debug, Default)]
struct Member {
    /// The highest epoch that the disk said it has promised to this coordinator.
    promised: Epoch,
    /// The highest epoch that it was asked to promise.
    asked: Epoch,
    doubt: Doubt,
    /// When the disk left the in-sync set or became known, or when the volume was opened without it. `None`: it is in sync.
    absent_since: Option<Monotonic>,
    /// A committed record has expelled it, and disks that remain have yet to promise that record's epoch.
    is_leaving: bool,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    members: BTreeMap<DiskId, Member>,
    /// The epoch of the last record that has expelled one of those that are leaving.
    left_at: Option<Epoch>,
}

impl Members {
    fn member(&mut self, disk: DiskId) -> &mut Member {
        self.members.entry(disk).or_default()
    }

    fn doubt(&self, disk: DiskId) -> Doubt {
        self.members.get(&disk).map_or(Doubt::None, |member| member.doubt)
    }

    /// Returns the highest epoch that the disk said it has promised.
    pub fn promised(&self, disk: DiskId) -> Epoch {
        self.members.get(&disk).map_or(Epoch::default(), |member| member.promised)
    }

    pub fn note_promise(&mut self, disk: DiskId, epoch: Epoch) {
        let promised = &mut self.member(disk).promised;
        *promised = epoch.max(*promised);
    }

    /// Forgets what the disk has promised, which went back in time.
    pub fn forget_promise(&mut self, disk: DiskId) {
        self.member(disk).promised = Epoch::default();
    }

    /// Notes that the disk is asked to promise the epoch; answers whether it was not yet.
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

    /// Opens a doubt: the record is to expel the disk before it is spoken to.
    pub fn open_doubt(&mut self, disk: DiskId) {
        self.member(disk).doubt = Doubt::Open;
    }

    pub fn is_doubted(&self, disk: DiskId) -> bool {
        self.doubt(disk) == Doubt::Open
    }

    pub fn is_doubt_accepted(&self, disk: DiskId) -> bool {
        self.doubt(disk) == Doubt::Accepted
    }

    /// Accepts an open doubt, since the disk has the last copy of something; answers whether there was one.
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

    /// Whether the record has expelled the disk, and others have yet to promise so.
    pub fn is_leaving(&self, disk: DiskId) -> bool {
        self.left_at.is_some() && self.members.get(&disk).is_some_and(|member| member.is_leaving)
    }

    /// Returns the epoch that the remaining disks have to promise before disks that are leaving are out; none if no disk is leaving.
    pub fn left_at(&self) -> Option<Epoch> {
        self.left_at
    }

    /// Takes the disks that were leaving: they are out.
    pub fn take_leaving(&mut self) -> Vec<DiskId> {
        self.left_at = None;
        let is_leaving = |member: &mut Member| std::mem::take(&mut member.is_leaving);
        let members = self.members.iter_mut();
        members.filter_map(|(disk, member)| is_leaving(member).then_some(*disk)).collect()
    }
}
