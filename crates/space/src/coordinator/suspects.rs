//! Regions that may differ between copies after a crash (I10).
//!
//! The record says up to which epoch all writes are complete on all in-sync copies. Only regions stamped later by some copy can
//! differ, by writes that were never acknowledged. Their epochs are fetched chunk by chunk, when a chunk is first used or in the
//! background, and each such region is made equal before anything of it is read or written.

use super::calls::{Failure, Owner};
use super::chunks::Suspects;
use super::syncing::Purpose;
use super::{Coordinator, Event};
use crate::message::{Answer, Operation as Message};
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Equal,
    MayDiffer,
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
        chunk.suspects = Suspects::Probing { pending: holders.to_vec(), found: BTreeSet::new() };
        self.counters.probed_chunks += 1;
        for disk in holders {
            self.call(Owner::Probe(index), disk, Message::Regions { chunk: index });
        }
    }

    pub(super) fn probed(&mut self, index: ChunkIndex, disk: DiskId, result: Result<Answer, Failure>) {
        let (settled, regions) = (self.record.settled, self.chunk_blocks.div_ceil(self.region_blocks()));
        let in_sync = self.record.in_sync.contains(&disk);
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        let Suspects::Probing { pending, found } = &mut chunk.suspects else { return };
        pending.retain(|pending| *pending != disk);
        match result {
            Ok(Answer::Regions(epochs)) if epochs.len() as u64 == regions => {
                let late = epochs.iter().enumerate().filter(|(_, epoch)| **epoch > settled);
                found.extend(late.map(|(region, _)| region as u64));
            }
            Ok(_) => found.extend(0..regions),
            Err(_) if in_sync => {
                chunk.suspects = Suspects::Unknown;
                self.recheck = true;
                return;
            }
            Err(_) => {}
        }
        if pending.is_empty() {
            let found = std::mem::take(found);
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
