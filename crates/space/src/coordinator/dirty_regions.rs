//! Regions that may differ between copies after a crash (I10).
//!
//! The record has the epoch up to which all writes are complete on all in-sync copies. Only regions
//! stamped later by some copy can differ, by writes that were never acknowledged. The coordinator
//! fetches their epochs chunk by chunk, at a chunk's first use or in the background, and makes each
//! such region equal before it is read or written.
//!
//! The order of trust when intact copies differ: after a crash alone any copy would do, since the
//! differences were never acknowledged. But a copy whose disk's journal rotted at its end may also
//! have lost acknowledged writes, and then looks older than it is. So the copy with the later
//! change comes first, and among equals the one whose disk's journal ended whole. The contents
//! decide between copies that are still equal ([`super::choosing`]), and they alone decide for
//! blocks that prove themselves.

use super::Event;
use super::calls::{Failure, Owner};
use super::choosing::Belief;
use super::context::Geometry;
use super::mailbox::{Mailbox, Next};
use super::shared::Shared;
use crate::message::{Answer, ReplicaOperation};
use crate::planted::Planted;
use std::collections::BTreeMap;
use store::api::Regions;
use types::{ChunkIndex, DiskId, Stamp};

/// Knowledge about regions of a chunk that may differ between its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Doubt {
    /// Region epochs not requested yet.
    Unknown,
    /// Region epochs requested; the `pending` disks have not answered.
    Probing { pending: Vec<DiskId>, answers: Vec<(DiskId, Regions)> },
    /// Regions that may differ, counted from the first of the chunk, with the order of trust in their copies.
    Regions(BTreeMap<u64, Believed>),
}

/// The copies of a region in the order of trust, and the trust in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Believed(Vec<(DiskId, Belief)>);

impl Believed {
    /// Orders the copies, the later change first. Doubtful copies take part: a damaged journal keeps its
    /// beginning, so their disks have all changes up to the one that the stamp names.
    fn of(copies: Vec<Standing>) -> Self {
        if Planted::BelievedByLowestId.is_planted() {
            return Self(copies.into_iter().map(|found| (found.disk, Belief::Newest)).collect());
        }
        let newest = copies.iter().fold(Stamp::default(), |newest, found| newest.later(found.stamp));
        let is_sure = copies.iter().any(|found| found.stamp == newest && !found.doubtful);
        let belief = |found: &Standing| match found.stamp {
            stamp if stamp.epoch() < newest.epoch() => Belief::Behind,
            stamp if stamp == newest && !(found.doubtful && is_sure) => Belief::Newest,
            _ => Belief::Older,
        };
        let age = |found: &Standing| {
            let epochs = newest.epoch().0 - found.stamp.epoch().0;
            (epochs, newest.number().0.wrapping_sub(found.stamp.number().0))
        };
        let mut copies: Vec<(Belief, Standing)> =
            copies.into_iter().map(|found| (belief(&found), found)).collect();
        copies.sort_by_key(|(belief, found)| (*belief, age(found), found.doubtful, found.disk));
        Self(copies.into_iter().map(|(belief, found)| (found.disk, belief)).collect())
    }

    pub fn place(&self, disk: DiskId) -> usize {
        self.0.iter().position(|(known, _)| *known == disk).unwrap_or(usize::MAX)
    }

    pub fn belief(&self, disk: DiskId) -> Belief {
        self.0.iter().find(|(known, _)| *known == disk).map_or(Belief::Behind, |(_, belief)| *belief)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Equal,
    MayDiffer,
}

/// The stamp of one copy of a region, and the doubts about the copy.
struct Standing {
    disk: DiskId,
    stamp: Stamp,
    /// Whether the disk may have lost the last writes to the region.
    doubtful: bool,
    /// Whether the disk has lost the stamp.
    unknown: bool,
}

impl Standing {
    fn of(disk: DiskId, found: &Regions, region: u64) -> Self {
        let stamp = found.stamps.get(region as usize).copied().filter(|stamp| stamp.is_known());
        let doubtful = found.doubtful.iter().any(|doubtful| u64::from(*doubtful) == region);
        Self { disk, stamp: stamp.unwrap_or_default(), doubtful, unknown: stamp.is_none() }
    }
}

/// Invariant: the copies of a chunk that is not listed here are equal, except for writes in flight (I10).
#[derive(Default)]
pub(super) struct DirtyRegions(BTreeMap<ChunkIndex, Doubt>);

impl DirtyRegions {
    /// Whether no region may differ between copies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some region of the chunk may differ between its copies.
    pub fn is_unclean(&self, index: ChunkIndex) -> bool {
        self.0.contains_key(&index)
    }

    /// Whether the region may differ between copies.
    pub fn is_suspect(&self, index: ChunkIndex, region: u64) -> bool {
        match self.0.get(&index) {
            None => false,
            Some(Doubt::Unknown | Doubt::Probing { .. }) => true,
            Some(Doubt::Regions(regions)) => regions.contains_key(&region),
        }
    }

    /// Returns the order of trust in the region's copies, if they may differ.
    pub fn believed(&self, index: ChunkIndex, region: u64) -> Option<&Believed> {
        match self.0.get(&index) {
            Some(Doubt::Regions(regions)) => regions.get(&region),
            _ => None,
        }
    }

    /// Notes that copies of the chunk may differ, since the volume was not closed.
    pub fn suspect(&mut self, index: ChunkIndex) {
        self.0.insert(index, Doubt::Unknown);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes chunks with a single copy for clean: one copy cannot differ.
    pub fn clear_single_copies(&mut self, holders: impl Fn(ChunkIndex) -> usize) {
        self.0.retain(|index, _| holders(*index) > 1);
    }

    /// Notes that the chunk's copies are equal, or that it has none any more.
    pub fn set_clean(&mut self, index: ChunkIndex) {
        self.0.remove(&index);
    }

    /// Whether the copies agree on the region of `lba`. If they may not, begins the work that makes
    /// them agree.
    pub fn verdict(&mut self, index: ChunkIndex, lba: u64, shared: &mut Shared) -> Verdict {
        if matches!(self.0.get(&index), Some(Doubt::Unknown)) {
            self.probe(index, shared);
        }
        let region = shared.context.geometry.region_in_chunk(lba);
        match self.0.get(&index) {
            Some(Doubt::Unknown | Doubt::Probing { .. }) => Verdict::MayDiffer,
            Some(Doubt::Regions(regions)) if regions.contains_key(&region) => {
                shared.mailbox.leave(Next::Reconcile(index, lba));
                Verdict::MayDiffer
            }
            Some(Doubt::Regions(_)) | None => Verdict::Equal,
        }
    }

    /// Fetches the epochs of the chunk's regions from every in-sync copy.
    fn probe(&mut self, index: ChunkIndex, shared: &mut Shared) {
        let holders = shared.holders_of(index);
        let Some(doubt) = self.0.get_mut(&index) else { return };
        // A chunk that is being given back needs no epochs.
        if *doubt != Doubt::Unknown || !shared.chunks.is_mapped(index) {
            return;
        }
        if holders.len() < 2 {
            self.set_clean(index);
            shared.mailbox.recheck = true;
            return;
        }
        *doubt = Doubt::Probing { pending: holders.to_vec(), answers: Vec::new() };
        shared.mailbox.counters.probed_chunks += 1;
        for disk in holders {
            shared.call(Owner::Probe(index), disk, ReplicaOperation::Regions { chunk: index });
        }
    }

    pub fn probed(
        &mut self,
        index: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
    ) {
        let (settled, regions) = (shared.membership.record().settled, shared.context.geometry.regions());
        let Some(doubt) = self.0.get_mut(&index) else { return };
        let Doubt::Probing { pending, answers } = doubt else { return };
        pending.retain(|pending| *pending != disk);
        match result {
            Ok(Answer::Regions(found)) => answers.push((disk, found)),
            Ok(_) => answers.push((disk, Regions::default())),
            Err(_) if shared.membership.is_in_sync(disk) => {
                *doubt = Doubt::Unknown;
                shared.mailbox.recheck = true;
                return;
            }
            Err(_) => {}
        }
        if pending.is_empty() {
            let answers = std::mem::take(answers);
            let standing =
                |region: u64| answers.iter().map(move |(disk, found)| Standing::of(*disk, found, region));
            let late =
                |region: &u64| standing(*region).any(|found| found.unknown || found.stamp.epoch() > settled);
            let ranked =
                (0..regions).filter(late).map(|region| (region, Believed::of(standing(region).collect())));
            let found: BTreeMap<u64, Believed> = ranked.collect();
            if found.is_empty() {
                self.set_clean(index);
            } else {
                *doubt = Doubt::Regions(found);
            }
            shared.mailbox.recheck = true;
        }
    }

    /// Notes that the region's copies are equal.
    pub fn reconciled(
        &mut self,
        index: ChunkIndex,
        lba: u64,
        blocks: u64,
        geometry: Geometry,
        mailbox: &mut Mailbox,
    ) {
        mailbox.counters.reconciled_blocks += blocks;
        if blocks > 0 {
            mailbox.emit(Event::Reconciled { chunk: index, blocks });
        }
        if let Some(Doubt::Regions(regions)) = self.0.get_mut(&index) {
            regions.remove(&geometry.region_in_chunk(lba));
            if regions.is_empty() {
                self.set_clean(index);
            }
        }
        mailbox.recheck = true;
    }

    /// Begins up to `slots` probes that no operation waits for, and finds regions to reconcile.
    /// Returns the number of both, and the first blocks of the regions.
    pub fn probe_in_background(
        &mut self,
        slots: usize,
        shared: &mut Shared,
    ) -> (usize, Vec<(ChunkIndex, u64)>) {
        let (mut begun, mut found) = (0, Vec::new());
        let due = self.0.keys().copied().filter(|index| {
            debug_assert!(shared.chunks.get(*index).is_some(), "{index:?} was given back, and may differ");
            shared.chunks.is_mapped(*index)
        });
        for index in due.take(slots).collect::<Vec<_>>() {
            let geometry = shared.context.geometry;
            match self.0.get(&index) {
                Some(Doubt::Unknown) => {
                    self.probe(index, shared);
                    begun += 1;
                }
                Some(Doubt::Regions(regions)) => {
                    for region in regions.keys().take(slots - begun) {
                        let lba = geometry.first_block(index) + region * geometry.region_blocks();
                        found.push((index, lba));
                        begun += 1;
                    }
                }
                Some(Doubt::Probing { .. }) => begun += 1,
                None => {}
            }
            if begun >= slots {
                break;
            }
        }
        (begun, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ChangeNumber, Epoch};

    const fn disk(number: u8) -> DiskId {
        DiskId::from_bytes([number; 16])
    }

    /// Returns the order of trust, and the trust, in copies (epoch, number, whether doubtful) on disks 1,
    /// 2, ...
    fn believed(copies: &[(u64, u32, bool)]) -> Vec<(u8, Belief)> {
        let standing = |(at, &(epoch, number, doubtful)): (usize, &(u64, u32, bool))| Standing {
            disk: disk(at as u8 + 1),
            stamp: Stamp::new(Epoch(epoch), ChangeNumber(number)),
            doubtful,
            unknown: false,
        };
        let believed = Believed::of(copies.iter().enumerate().map(standing).collect());
        believed.0.into_iter().map(|(disk, belief)| (disk.to_bytes()[0], belief)).collect()
    }

    #[test]
    fn the_copy_that_had_the_last_change_is_believed_whatever_the_doubt() {
        use Belief::{Behind, Newest, Older};
        assert_eq!(believed(&[(5, 2, false), (5, 3, true)]), [(2, Newest), (1, Older)]);
        assert_eq!(believed(&[(5, 3, true), (5, 3, false)]), [(2, Newest), (1, Older)]);
        assert_eq!(believed(&[(5, 3, true), (5, 3, true)]), [(1, Newest), (2, Newest)]);
        assert_eq!(believed(&[(4, 9, false), (5, 3, true)]), [(2, Newest), (1, Behind)]);
        assert_eq!(
            believed(&[(5, 1, false), (5, 3, false), (4, 3, false)]),
            [(2, Newest), (1, Older), (3, Behind)]
        );
        // The numbers wrap around after the highest.
        let third = 1 << 30;
        assert_eq!(believed(&[(5, u32::MAX, false), (5, third, false)]), [(2, Newest), (1, Older)]);
        // Stamps from before there were numbers.
        assert_eq!(believed(&[(5, 0, false), (5, 0, false)]), [(1, Newest), (2, Newest)]);
    }

    #[test]
    fn a_copy_of_which_the_stamp_is_lost_is_believed_last() {
        let found = |stamp| Regions { stamps: vec![stamp], doubtful: Vec::new() };
        let copies = vec![
            Standing::of(disk(1), &found(Stamp::UNKNOWN), 0),
            Standing::of(disk(2), &found(Epoch(5).into()), 0),
        ];
        assert_eq!(Believed::of(copies).0, [(disk(2), Belief::Newest), (disk(1), Belief::Behind)]);
    }
}
