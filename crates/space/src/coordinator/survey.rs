//! Looking for what a disk lost without a word: writes that it acknowledged and that are not there, under checksums as old as they.
//!
//! A scrub asks each disk whether its blocks are what it thinks they are; only another copy tells whether they should be newer. Chunk by
//! chunk the region epochs of all in-sync copies are fetched, and compared and repaired are ([`super::syncing`])
//!
//! - regions of blocks that prove themselves, if any copy was ever written: they are few, and their orders tell;
//! - other regions, if one copy says that it was never written and another was: its disk lost the page that says so.
//!
//! Comes after all other work in the background. What it finds, repairs tell. Repairs that a disk which was just away made fail are
//! done again here, once all copies that count can be reached.

use super::Coordinator;
use super::calls::{Failure, Owner};
use super::syncing::Purpose;
use crate::message::{Answer, Operation as Message};
use std::collections::{BTreeSet, VecDeque};
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch, Monotonic};

/// Regions whose repair failed that are remembered: what is beyond them, the next scrub finds again.
const RETRIES_MAX: usize = 4096;
/// So many of them are begun at once.
const RETRIES_TOGETHER: usize = 4;

/// One chunk's region epochs, on their way.
struct Asking {
    chunk: ChunkIndex,
    pending: Vec<DiskId>,
    answers: Vec<Regions>,
}

#[derive(Default)]
pub(super) struct Survey {
    chunks: BTreeSet<ChunkIndex>,
    asking: Option<Asking>,
    /// First blocks of regions to be compared.
    regions: VecDeque<(ChunkIndex, u64)>,
    /// First blocks of regions whose repair failed.
    retries: BTreeSet<(ChunkIndex, u64)>,
}

impl Survey {
    pub fn has_retries(&self) -> bool {
        !self.retries.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.chunks.is_empty() && self.asking.is_none() && self.regions.is_empty()
    }
}

impl Coordinator {
    /// Begins to look at what the disk has of the volume.
    pub fn survey(&mut self, now: Monotonic, disk: DiskId) {
        self.advance_time(now);
        let held = self.chunks.iter().filter(|(_, chunk)| chunk.is_mapped() && chunk.holders.contains(&disk));
        self.survey.chunks.extend(held.map(|(&index, _)| index));
        self.settle_down();
    }

    /// Whether nothing is left to look at.
    pub fn is_surveyed(&self) -> bool {
        self.survey.is_done()
    }

    /// Begins to compare up to `slots` regions; says how many.
    pub(super) fn survey_regions(&mut self, slots: usize) -> usize {
        if slots == 0 {
            return 0;
        }
        let mut begun = 0;
        while begun < slots
            && let Some((chunk, lba)) = self.survey.regions.pop_front()
        {
            if self.may_be_surveyed(chunk) {
                self.start_sync(chunk, lba, Purpose::Repair);
                begun += 1;
            }
        }
        if self.survey.regions.is_empty() && self.survey.asking.is_none() {
            self.survey_next();
        }
        begun
    }

    /// The region has blocks that could not be repaired now.
    pub(super) fn repair_later(&mut self, chunk: ChunkIndex, lba: u64) {
        if self.survey.retries.len() < RETRIES_MAX {
            self.survey.retries.insert((chunk, lba));
        }
    }

    /// Begins repairs that failed before.
    pub(super) fn retry_repairs(&mut self) {
        let chunks = &self.chunks;
        self.survey.retries.retain(|(chunk, _)| chunks.get(chunk).is_some_and(|known| known.is_mapped()));
        let ready = |chunk: ChunkIndex| {
            let reachable = self.holders_of(chunk).iter().all(|disk| self.calls.is_open(*disk));
            reachable && self.may_be_surveyed(chunk)
        };
        let due: Vec<(ChunkIndex, u64)> = self
            .survey
            .retries
            .iter()
            .copied()
            .filter(|(chunk, _)| ready(*chunk))
            .take(RETRIES_TOGETHER)
            .collect();
        for (chunk, lba) in due {
            self.survey.retries.remove(&(chunk, lba));
            self.start_sync(chunk, lba, Purpose::Repair);
        }
    }

    /// A copy that may differ, or that is about to be given up, is looked at by whoever sees to that.
    fn may_be_surveyed(&self, chunk: ChunkIndex) -> bool {
        let mapped = self.chunks.get(&chunk).is_some_and(|known| known.is_mapped());
        mapped
            && !self.unclean.contains(&chunk)
            && !self.is_building(chunk)
            && self.holders_of(chunk).len() > 1
    }

    fn survey_next(&mut self) {
        while let Some(chunk) = self.survey.chunks.pop_first() {
            if !self.may_be_surveyed(chunk) {
                continue;
            }
            let pending = self.holders_of(chunk).to_vec();
            self.survey.asking = Some(Asking { chunk, pending: pending.clone(), answers: Vec::new() });
            for disk in pending {
                self.call(Owner::Survey(chunk), disk, Message::Regions { chunk });
            }
            return;
        }
    }

    pub(super) fn surveyed(&mut self, chunk: ChunkIndex, disk: DiskId, result: Result<Answer, Failure>) {
        let (first, blocks) = (self.first_block(chunk), self.region_blocks());
        let count = self.chunk_blocks.div_ceil(blocks) as usize;
        let append = self.chunks.get(&chunk).is_some_and(|known| known.append);
        let Some(asking) = self.survey.asking.as_mut().filter(|asking| asking.chunk == chunk) else { return };
        asking.pending.retain(|pending| *pending != disk);
        // One that cannot say it now is asked again by the next scrub.
        if let Ok(Answer::Regions(found)) = result {
            asking.answers.push(found);
        }
        if !asking.pending.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut asking.answers);
        self.survey.asking = None;
        let never = |found: &Regions, region: usize| found.epochs.get(region) == Some(&Epoch(0));
        let differs = |region: &usize| {
            let written = answers.iter().any(|found| !never(found, *region));
            written && (append || answers.iter().any(|found| never(found, *region)))
        };
        let regions = (0..count).filter(differs).map(|region| (chunk, first + region as u64 * blocks));
        self.survey.regions.extend(regions);
        self.recheck = true;
    }
}
