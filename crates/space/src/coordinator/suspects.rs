//! Regions that may differ between copies after a crash (I10).
//!
//! The record says up to which epoch all writes are complete on all in-sync copies. Only regions stamped later by some copy can
//! differ, by writes that were never acknowledged. Their epochs are fetched chunk by chunk, when a chunk is first used or in the
//! background, and each such region is made equal before anything of it is read or written.
//!
//! Which copy is believed, where intact ones differ: any may be by what the crash alone does, since what differs was not
//! acknowledged; but a copy may also have lost what it acknowledged, where the end of its disk's journal rotted, and looks as if it
//! were older. So the newer one by epoch comes first, and among those of one epoch one whose disk's journal ended whole. What remains
//! equal is told apart by what the copies hold ([`super::choosing`]). Blocks that prove themselves are told apart by that alone.

use super::calls::{Failure, Owner};
use super::chunks::{Believed, Suspects};
use super::syncing::Purpose;
use super::{Coordinator, Event};
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Equal,
    MayDiffer,
}

/// What one copy of a region says of itself.
struct Standing {
    disk: DiskId,
    epoch: Epoch,
    /// Its disk may have lost the last writes to it.
    doubtful: bool,
    /// Its epoch is not known.
    unknown: bool,
}

impl Standing {
    fn of(disk: DiskId, found: &Regions, region: u64) -> Self {
        let epoch = found.epochs.get(region as usize).copied().filter(|epoch| epoch.0 != codes::LOST);
        let doubtful = found.doubtful.iter().any(|doubtful| u64::from(*doubtful) == region);
        Self { disk, epoch: epoch.unwrap_or(Epoch(0)), doubtful, unknown: epoch.is_none() }
    }

    /// Lowest first is believed first.
    fn rank(&self) -> (Reverse<Epoch>, bool) {
        if Planted::BelievedByLowestId.is_planted() {
            return (Reverse(Epoch(0)), false);
        }
        (Reverse(self.epoch), self.doubtful)
    }
}

impl Coordinator {
    /// Whether the copies agree on the region of `lba`; begins what is needed to make them agree.
    pub(super) fn verdict(&mut self, index: ChunkIndex, lba: u64) -> Verdict {
        if !self.unclean.contains(&index) {
            return Verdict::Equal;
        }
        let region = (lba % self.chunk_blocks) / self.region_blocks();
        match self.chunks.get(&index).map(|chunk| &chunk.suspects) {
            Some(Suspects::Unknown) => {
                self.probe(index);
                if self.unclean.contains(&index) { Verdict::MayDiffer } else { Verdict::Equal }
            }
            Some(Suspects::Probing { .. }) => Verdict::MayDiffer,
            Some(Suspects::Regions(regions)) if regions.contains(&region) => {
                self.start_sync(index, lba, Purpose::Reconcile);
                Verdict::MayDiffer
            }
            _ => Verdict::Equal,
        }
    }

    /// Fetches the epochs of the chunk's regions from every in-sync copy.
    pub(super) fn probe(&mut self, index: ChunkIndex) {
        let holders = self.holders_of(index);
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        if chunk.suspects != Suspects::Unknown {
            return;
        }
        if holders.len() < 2 {
            return self.set_clean(index);
        }
        chunk.suspects = Suspects::Probing { pending: holders.to_vec(), answers: Vec::new() };
        self.counters.probed_chunks += 1;
        for disk in holders {
            self.call(Owner::Probe(index), disk, Message::Regions { chunk: index });
        }
    }

    pub(super) fn probed(&mut self, index: ChunkIndex, disk: DiskId, result: Result<Answer, Failure>) {
        let (settled, regions) = (self.record.settled, self.chunk_blocks.div_ceil(self.region_blocks()));
        let in_sync = self.record.in_sync.contains(&disk);
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        let Suspects::Probing { pending, answers } = &mut chunk.suspects else { return };
        pending.retain(|pending| *pending != disk);
        match result {
            Ok(Answer::Regions(found)) => answers.push((disk, found)),
            Ok(_) => answers.push((disk, Regions::default())),
            Err(_) if in_sync => {
                chunk.suspects = Suspects::Unknown;
                self.recheck = true;
                return;
            }
            Err(_) => {}
        }
        if pending.is_empty() {
            let answers = std::mem::take(answers);
            let standing =
                |region: u64| answers.iter().map(move |(disk, found)| Standing::of(*disk, found, region));
            let late = |region: &u64| standing(*region).any(|found| found.unknown || found.epoch > settled);
            let found: BTreeSet<u64> = (0..regions).filter(late).collect();
            let ranked = found.iter().map(|&region| {
                let mut ranked: Vec<Standing> = standing(region).collect();
                ranked.sort_by_key(|found| (found.rank(), found.disk));
                let first = ranked.first().map(Standing::rank);
                let equals = ranked.iter().filter(|found| Some(found.rank()) == first).count();
                (region, Believed::new(ranked.into_iter().map(|found| found.disk).collect(), equals))
            });
            chunk.believed = ranked.collect();
            let clean = found.is_empty();
            chunk.suspects = Suspects::Regions(found);
            if clean {
                self.set_clean(index);
            }
            self.recheck = true;
        }
    }

    pub(super) fn set_clean(&mut self, index: ChunkIndex) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.suspects = Suspects::clean();
            chunk.believed.clear();
        }
        self.unclean.remove(&index);
        self.recheck = true;
    }

    /// The region's copies are equal.
    pub(super) fn reconciled(&mut self, index: ChunkIndex, lba: u64, blocks: u64) {
        let region = (lba % self.chunk_blocks) / self.region_blocks();
        self.counters.reconciled_blocks += blocks;
        if blocks > 0 {
            self.emit(Event::Reconciled { chunk: index, blocks });
        }
        if let Some(chunk) = self.chunks.get_mut(&index)
            && let Suspects::Regions(regions) = &mut chunk.suspects
        {
            regions.remove(&region);
            if regions.is_empty() {
                self.set_clean(index);
            }
        }
        self.recheck = true;
    }

    /// Begins up to `slots` probes or reconciliations that nobody waits for; says how many.
    pub(super) fn reconcile_in_background(&mut self, slots: usize) -> usize {
        let mut begun = 0;
        for index in self.unclean.iter().copied().take(slots).collect::<Vec<_>>() {
            let first = self.first_block(index);
            match self.chunks.get(&index).map(|chunk| chunk.suspects.clone()) {
                Some(Suspects::Unknown) => {
                    self.probe(index);
                    begun += 1;
                }
                Some(Suspects::Regions(regions)) => {
                    for region in regions.into_iter().take(slots - begun) {
                        self.start_sync(index, first + region * self.region_blocks(), Purpose::Reconcile);
                        begun += 1;
                    }
                }
                Some(Suspects::Probing { .. }) => begun += 1,
                None => {
                    self.unclean.remove(&index);
                }
            }
            if begun >= slots {
                break;
            }
        }
        begun
    }
}
