//! Regions that may differ between copies after a crash (I10).
//!
//! The record says up to which epoch all writes are complete on all in-sync copies. Only regions stamped later by some copy can
//! differ, by writes that were never acknowledged. Their epochs are fetched chunk by chunk, when a chunk is first used or in the
//! background, and each such region is made equal before anything of it is read or written.
//!
//! Which copy is believed, if intact ones differ: any may be by what the crash alone does, since what differs was not
//! acknowledged; but a copy may also have lost what it acknowledged, if the end of its disk's journal rotted, and looks as if it
//! were older. So the newer one by epoch comes first, and among those of one epoch one whose disk's journal ended whole. Copies that remain
//! equal are told apart by what they hold, and by the number of the last change that each of them had ([`super::choosing`]). Blocks that prove themselves are told apart by that alone.

use super::Event;
use super::calls::{Failure, Owner};
use super::ground::Ground;
use super::reports::{Next, Reports};
use super::setting::Geometry;
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch, Stamp};

/// How much is known of the regions of a chunk that may differ between its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Doubt {
    /// Their epochs were not fetched yet.
    Unknown,
    /// They are being fetched from these disks.
    Probing { pending: Vec<DiskId>, answers: Vec<(DiskId, Regions)> },
    /// These regions, counted from the first of the chunk, and whose copies of each are believed.
    Regions(BTreeMap<u64, Believed>),
}

/// Whose copies of a region are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Believed {
    /// In this order.
    disks: Vec<DiskId>,
    /// Of them, from the first, those that are equally believed, but for the last change that they had and the order of their ids.
    equals: usize,
    /// Of these, from the first, those that had the last change of all.
    newest: usize,
}

impl Believed {
    fn of(mut copies: Vec<Standing>) -> Self {
        let number = |found: &Standing| match Planted::BelievedByLowestId.is_planted() {
            true => Stamp::default(),
            false => found.stamp,
        };
        copies.sort_by(|a, b| {
            let later_first = number(b).is_after(number(a)).cmp(&number(a).is_after(number(b)));
            a.rank().cmp(&b.rank()).then(later_first).then(a.disk.cmp(&b.disk))
        });
        let first = copies.first().map(|found| (found.rank(), number(found)));
        let equals = copies.iter().filter(|found| Some(found.rank()) == first.map(|(rank, _)| rank)).count();
        let newest = copies.iter().filter(|found| Some((found.rank(), number(found))) == first).count();
        Self { disks: copies.into_iter().map(|found| found.disk).collect(), equals, newest }
    }

    pub fn place(&self, disk: DiskId) -> usize {
        self.disks.iter().position(|known| *known == disk).unwrap_or(usize::MAX)
    }

    /// Whether no other copy is believed more than this disk's.
    pub fn is_first(&self, disk: DiskId) -> bool {
        self.place(disk) < self.equals
    }

    /// Whether it is so, and no other of these had a later change.
    pub fn is_newest(&self, disk: DiskId) -> bool {
        self.place(disk) < self.newest
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Equal,
    MayDiffer,
}

/// What one copy of a region says of itself.
struct Standing {
    disk: DiskId,
    stamp: Stamp,
    /// Its disk may have lost the last writes to it.
    doubtful: bool,
    /// Its stamp is not known.
    unknown: bool,
}

impl Standing {
    fn of(disk: DiskId, found: &Regions, region: u64) -> Self {
        let stamp = found.stamps.get(region as usize).copied().filter(|stamp| stamp.is_known());
        let doubtful = found.doubtful.iter().any(|doubtful| u64::from(*doubtful) == region);
        Self { disk, stamp: stamp.unwrap_or_default(), doubtful, unknown: stamp.is_none() }
    }

    /// Orders copies: the lowest is believed first.
    fn rank(&self) -> (Reverse<Epoch>, bool) {
        if Planted::BelievedByLowestId.is_planted() {
            return (Reverse(Epoch(0)), false);
        }
        (Reverse(self.stamp.epoch()), self.doubtful)
    }
}

/// Invariant: the copies of a chunk that is not here are equal, but for writes that are with them now (I10).
#[derive(Default)]
pub(super) struct Suspects(BTreeMap<ChunkIndex, Doubt>);

impl Suspects {
    /// Whether nothing may differ between copies.
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

    /// Says whose copies of the region are believed, if it may differ.
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

    /// Believes chunks of which there is one copy alone, which cannot differ.
    pub fn clear_single_copies(&mut self, holders: impl Fn(ChunkIndex) -> usize) {
        self.0.retain(|index, _| holders(*index) > 1);
    }

    /// Notes that the chunk's copies are equal, or that it has none any more.
    pub fn set_clean(&mut self, index: ChunkIndex) {
        self.0.remove(&index);
    }

    /// Whether the copies agree on the region of `lba`; begins what is needed to make them agree.
    pub fn verdict(&mut self, index: ChunkIndex, lba: u64, ground: &mut Ground) -> Verdict {
        if matches!(self.0.get(&index), Some(Doubt::Unknown)) {
            self.probe(index, ground);
        }
        let region = ground.setting.geometry.region_in_chunk(lba);
        match self.0.get(&index) {
            Some(Doubt::Unknown | Doubt::Probing { .. }) => Verdict::MayDiffer,
            Some(Doubt::Regions(regions)) if regions.contains_key(&region) => {
                ground.reports.leave(Next::Reconcile(index, lba));
                Verdict::MayDiffer
            }
            Some(Doubt::Regions(_)) | None => Verdict::Equal,
        }
    }

    /// Fetches the epochs of the chunk's regions from every in-sync copy.
    fn probe(&mut self, index: ChunkIndex, ground: &mut Ground) {
        let holders = ground.holders_of(index);
        let Some(doubt) = self.0.get_mut(&index) else { return };
        if *doubt != Doubt::Unknown {
            return;
        }
        if holders.len() < 2 {
            self.set_clean(index);
            ground.reports.recheck = true;
            return;
        }
        *doubt = Doubt::Probing { pending: holders.to_vec(), answers: Vec::new() };
        ground.reports.counters.probed_chunks += 1;
        for disk in holders {
            ground.call(Owner::Probe(index), disk, Message::Regions { chunk: index });
        }
    }

    pub fn probed(
        &mut self,
        index: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        ground: &mut Ground,
    ) {
        let (settled, regions) = (ground.membership.record().settled, ground.setting.geometry.regions());
        let Some(doubt) = self.0.get_mut(&index) else { return };
        let Doubt::Probing { pending, answers } = doubt else { return };
        pending.retain(|pending| *pending != disk);
        match result {
            Ok(Answer::Regions(found)) => answers.push((disk, found)),
            Ok(_) => answers.push((disk, Regions::default())),
            Err(_) if ground.membership.is_in_sync(disk) => {
                *doubt = Doubt::Unknown;
                ground.reports.recheck = true;
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
            ground.reports.recheck = true;
        }
    }

    /// Notes that the region's copies are equal.
    pub fn reconciled(
        &mut self,
        index: ChunkIndex,
        lba: u64,
        blocks: u64,
        geometry: Geometry,
        reports: &mut Reports,
    ) {
        reports.counters.reconciled_blocks += blocks;
        if blocks > 0 {
            reports.emit(Event::Reconciled { chunk: index, blocks });
        }
        if let Some(Doubt::Regions(regions)) = self.0.get_mut(&index) {
            regions.remove(&geometry.region_in_chunk(lba));
            if regions.is_empty() {
                self.set_clean(index);
            }
        }
        reports.recheck = true;
    }

    /// Begins up to `slots` probes that nobody waits for, and finds regions to be reconciled: how many of both, and the first blocks of
    /// the regions.
    pub fn probe_in_background(
        &mut self,
        slots: usize,
        ground: &mut Ground,
    ) -> (usize, Vec<(ChunkIndex, u64)>) {
        let (mut begun, mut found) = (0, Vec::new());
        for index in self.0.keys().copied().take(slots).collect::<Vec<_>>() {
            debug_assert!(ground.chunks.get(index).is_some(), "{index:?} was given back, and may differ");
            let geometry = ground.setting.geometry;
            match self.0.get(&index) {
                Some(Doubt::Unknown) => {
                    self.probe(index, ground);
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
