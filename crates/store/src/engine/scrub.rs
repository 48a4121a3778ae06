//! Scrub: reads and verifies everything that is written, from a position that survives a restart (it travels with the anchor).

use super::Store;
use super::read::ReadTask;
use super::task::{Kind, Place, Task};
use crate::api::{ScrubProgress, StoreError, StoreReply};
use crate::slots::SlotId;
use disk::Disk;
use types::{BLOCK_BYTES, Lba, SlabIndex, VolumeId};

/// Blocks verified by one read of the scrub: 1 MiB.
const STEP_BLOCKS: u32 = 256;

/// The next block to verify.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    pub(super) slab: u32,
    pub(super) block: u32,
}

pub(super) struct ScrubTask {
    bytes: u64,
    progress: ScrubProgress,
}

impl<D: Disk> Store<D> {
    pub(super) fn take_scrub(&mut self, token: u64, bytes: u64) -> Result<(), StoreError> {
        let chunks = self.slabs.entries().iter().flatten().filter(|entry| !entry.append).count() as u64;
        let progress =
            ScrubProgress { total_bytes: chunks * self.layout.slab_bytes, ..ScrubProgress::default() };
        let id = self.tasks.insert(Task::new(token, None, Kind::Scrub(ScrubTask { bytes, progress })));
        self.step_scrub(id);
        Ok(())
    }

    /// Verifies the next piece, or answers.
    fn step_scrub(&mut self, id: SlotId) {
        let position = self.scrub;
        let Some(Task { kind: Kind::Scrub(scrub), .. }) = self.tasks.get_mut(id) else { return };
        let slabs = self.slabs.entries();
        let next =
            (position.slab..).zip(slabs.iter().skip(position.slab as usize)).find_map(|(slab, entry)| {
                let entry = entry.as_ref().filter(|entry| !entry.append)?;
                let block = if slab == position.slab { position.block } else { 0 };
                (block < self.layout.slab_blocks()).then_some((slab, block, *entry))
            });
        scrub.progress.finished = next.is_none();
        let Some((slab, first, entry)) = next.filter(|_| scrub.progress.checked_bytes < scrub.bytes) else {
            if scrub.progress.finished {
                self.scrub = Position::default();
            }
            let progress = std::mem::take(&mut scrub.progress);
            return self.finish(id, Ok(StoreReply::Scrubbed(progress)));
        };
        let count = STEP_BLOCKS.min(self.layout.slab_blocks() - first);
        scrub.progress.checked_bytes += u64::from(count) * BLOCK_BYTES as u64;
        self.scrub = Position { slab, block: first + count };
        let lba = Lba(u64::from(entry.chunk.0) * u64::from(self.layout.slab_blocks()) + u64::from(first));
        let place = Place { slab: SlabIndex(slab), generation: entry.generation, first, count };
        let read = ReadTask::new(entry.volume, lba, false, Some(id));
        let part = self.tasks.insert(Task { token: None, ..Task::new(0, Some(place), Kind::Read(read)) });
        self.gather_pages(part);
    }

    pub(super) fn scrub_found(
        &mut self,
        scrub: Option<SlotId>,
        corrupt: impl Iterator<Item = (VolumeId, Lba)>,
    ) {
        if let Some(Task { kind: Kind::Scrub(scrub), .. }) = scrub.and_then(|id| self.tasks.get_mut(id)) {
            scrub.progress.corrupt.extend(corrupt);
        }
    }

    pub(super) fn scrub_read_done(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        match result {
            // A chunk that was freed meanwhile has nothing to verify.
            Ok(_) | Err(StoreError::NotMapped) => self.step_scrub(id),
            Err(error) => self.finish(id, Err(error)),
        }
    }
}
