//! Search for silently lost writes: the disk acknowledged them, but still holds the old blocks with
//! their old checksums.
//!
//! A scrub compares a disk's blocks with its own checksums. Only another copy shows whether a block
//! should be newer. So verification fetches the region epochs of all in-sync copies, chunk by
//! chunk, and compares and repairs ([`super::syncing`])
//!
//! - regions of blocks that prove themselves, if any copy was ever written: these are few, and their
//!   orders show the newest;
//! - other regions, if one copy says that it was never written and another was: its disk lost the
//!   metadata page that shows the write.
//!
//! Verification runs after all other background work, and its repairs report the lost writes. It
//! also repeats repairs that failed because a disk was away, once all copies that count are
//! reachable.

use super::calls::{Failure, Owner};
use super::keys::Purpose;
use super::operations::Operations;
use super::shared::Shared;
use super::syncing::Syncing;
use crate::message::{Answer, ReplicaOperation};
use std::collections::{BTreeSet, VecDeque};
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch};

/// Failed repairs remembered at most, a few hundred kilobytes. The next scrub finds the others again.
const RETRIES_MAX: usize = 4096;
/// Repairs that run at once: few, since they share the disks with all other work.
const RETRIES_TOGETHER: usize = 4;

/// Region epochs of one chunk, as they arrive.
struct Asking {
    chunk: ChunkIndex,
    pending: Vec<DiskId>,
    answers: Vec<Regions>,
}

/// Invariant: no copy of a region in `retries` is known to be whole. The region stays there until a
/// step on it begins, or its chunk is given back.
#[derive(Default)]
pub(super) struct Verify {
    chunks: BTreeSet<ChunkIndex>,
    asking: Option<Asking>,
    /// First blocks of regions to be compared.
    regions: VecDeque<(ChunkIndex, u64)>,
    /// First blocks of regions whose repair failed.
    retries: BTreeSet<(ChunkIndex, u64)>,
}

impl Verify {
    pub fn has_retries(&self) -> bool {
        !self.retries.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.chunks.is_empty() && self.asking.is_none() && self.regions.is_empty()
    }

    /// Begins to verify the volume's chunks on the disk.
    pub fn verify(&mut self, disk: DiskId, shared: &Shared) {
        let chunks = shared.chunks.map.iter();
        let held = chunks.filter(|(_, chunk)| chunk.is_mapped() && chunk.holders.contains(&disk));
        self.chunks.extend(held.map(|(&index, _)| index));
    }

    /// Begins to compare up to `slots` regions, and returns how many.
    pub fn survey_regions(
        &mut self,
        slots: usize,
        shared: &mut Shared,
        operations: &mut Operations,
        syncing: &mut Syncing,
    ) -> usize {
        if slots == 0 {
            return 0;
        }
        let mut begun = 0;
        while begun < slots
            && let Some((chunk, lba)) = self.regions.pop_front()
        {
            if may_be_surveyed(chunk, shared, operations) {
                syncing.start_sync(chunk, lba, Purpose::Repair, shared, operations);
                begun += 1;
            }
        }
        if self.regions.is_empty() && self.asking.is_none() {
            self.survey_next(shared, operations);
        }
        begun
    }

    /// Notes that the region has blocks that could not be repaired.
    pub fn repair_later(&mut self, chunk: ChunkIndex, lba: u64) {
        if self.retries.len() < RETRIES_MAX {
            self.retries.insert((chunk, lba));
        }
    }

    /// Retries failed repairs.
    pub fn retry_repairs(&mut self, shared: &mut Shared, operations: &mut Operations, syncing: &mut Syncing) {
        let chunks = &shared.chunks.map;
        self.retries.retain(|(chunk, _)| chunks.get(chunk).is_some_and(|known| known.is_mapped()));
        let ready = |chunk: ChunkIndex| {
            let reachable = shared.holders_of(chunk).iter().all(|disk| shared.calls.is_open(*disk));
            reachable && may_be_surveyed(chunk, shared, operations)
        };
        let due: Vec<(ChunkIndex, u64)> =
            self.retries.iter().copied().filter(|(chunk, _)| ready(*chunk)).take(RETRIES_TOGETHER).collect();
        for (chunk, lba) in due {
            self.retries.remove(&(chunk, lba));
            syncing.start_sync(chunk, lba, Purpose::Repair, shared, operations);
        }
    }

    fn survey_next(&mut self, shared: &mut Shared, operations: &Operations) {
        while let Some(chunk) = self.chunks.pop_first() {
            if !may_be_surveyed(chunk, shared, operations) {
                continue;
            }
            let pending = shared.holders_of(chunk).to_vec();
            self.asking = Some(Asking { chunk, pending: pending.clone(), answers: Vec::new() });
            for disk in pending {
                shared.call(Owner::Verify(chunk), disk, ReplicaOperation::Regions { chunk });
            }
            return;
        }
    }

    pub fn surveyed(
        &mut self,
        chunk: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
    ) {
        let geometry = shared.context.geometry;
        let (first, blocks) = (geometry.first_block(chunk), geometry.region_blocks());
        let count = geometry.regions() as usize;
        let append = shared.chunks.is_append(chunk);
        let Some(asking) = self.asking.as_mut().filter(|asking| asking.chunk == chunk) else { return };
        asking.pending.retain(|pending| *pending != disk);
        // A disk that cannot answer now is verified at the next scrub.
        if let Ok(Answer::Regions(found)) = result {
            asking.answers.push(found);
        }
        if !asking.pending.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut asking.answers);
        self.asking = None;
        let never = |found: &Regions, region: usize| {
            found.stamps.get(region).is_some_and(|stamp| stamp.epoch() == Epoch(0))
        };
        let differs = |region: &usize| {
            let written = answers.iter().any(|found| !never(found, *region));
            written && (append || answers.iter().any(|found| never(found, *region)))
        };
        let regions = (0..count).filter(differs).map(|region| (chunk, first + region as u64 * blocks));
        self.regions.extend(regions);
        shared.mailbox.recheck = true;
    }
}

/// Tells whether the chunk's copies may be compared here. Other jobs handle copies that may differ
/// or are being given up.
fn may_be_surveyed(chunk: ChunkIndex, shared: &Shared, operations: &Operations) -> bool {
    shared.chunks.is_mapped(chunk)
        && !operations.dirty_regions.is_unclean(chunk)
        && !shared.chunks.is_in_build(chunk)
        && shared.holders_of(chunk).len() > 1
}
