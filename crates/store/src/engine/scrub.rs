//! Scrub: reads and verifies everything that is written, from a position that survives a restart (it travels with the anchor). A metadata
//! page that is in RAM is read too: if the disk does not have it as it was written, the next checkpoint writes it again, and nothing is lost.

use super::Store;
use super::read::ReadTask;
use super::task::{Attempt, Kind, Op, Place, Task};
use crate::api::{ScrubProgress, StoreError, StoreReply};
use crate::layout::{PAGE_BYTES, PAGE_WORDS};
use crate::numbers::page_key;
use crate::slots::SlotId;
use crate::versions::PageVersion;
use disk::{Disk, DiskError};
use sys::BufMut;
use types::{BLOCK_BYTES, Lba, SlabIndex, VolumeId};

/// Blocks verified by one read of the scrub: 1 MiB.
const STEP_BLOCKS: u32 = 256;

/// The next block to verify.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    pub(super) slab: u32,
    pub(super) block: u32,
}

impl Position {
    /// Where an anchor says that the scrub goes on; from the beginning if there is no such slab.
    pub(super) fn stored(slab: u32, block: u32, slab_count: u32) -> Self {
        if slab < slab_count { Self { slab, block } } else { Self::default() }
    }
}

pub(super) struct ScrubTask {
    bytes: u64,
    progress: ScrubProgress,
}

impl<D: Disk> Store<D> {
    pub(super) fn take_scrub(&mut self, token: u64, bytes: u64) -> Result<(), StoreError> {
        let chunks = self.slabs.entries().iter().flatten().count() as u64;
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
                let entry = entry.as_ref()?;
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
        self.scrub_pages(place);
        let read = ReadTask::new(entry.volume, lba, entry.append, Some(id));
        let part = self.tasks.insert(Task { token: None, ..Task::new(0, Some(place), Kind::Read(read)) });
        self.gather_pages(part);
    }

    /// Reads the pages that begin with a word of these blocks; with the last block those of the regions' epochs too.
    fn scrub_pages(&mut self, place: Place) {
        let Place { slab, generation, first, count } = place;
        let pages = self.layout.metadata_pages_per_slab();
        let begun_before = |block: u32| block.div_ceil(PAGE_WORDS as u32);
        let end = first + count;
        let until = if end == self.layout.slab_blocks() { pages } else { begun_before(end) };
        for page in begun_before(first)..until {
            let key = page_key(slab, page);
            if self.cache.is_clean(key) {
                let version = self.versions.get(slab, page);
                self.read_scrub_page(key, generation, version, Attempt::First);
            }
        }
    }

    fn read_scrub_page(&mut self, key: u64, generation: u64, version: PageVersion, attempt: Attempt) {
        let offset = self.layout.page_offset(SlabIndex((key >> 32) as u32), key as u32);
        self.read(Op::ScrubPage { key, generation, version, attempt }, offset, PAGE_BYTES);
    }

    pub(super) fn scrub_page_read(
        &mut self,
        key: u64,
        generation: u64,
        version: PageVersion,
        attempt: Attempt,
        result: Result<Option<BufMut>, DiskError>,
    ) {
        let unreadable = matches!(result, Err(DiskError::Medium(_)));
        let bytes = match result {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(DiskError::Medium(_)) => BufMut::zeroed(PAGE_BYTES),
            // The disk as a whole fails: whoever reads or writes next hears of it.
            Err(_) => return,
        };
        let (slab, page) = (SlabIndex((key >> 32) as u32), key as u32);
        let unchanged = self.cache.is_clean(key) && self.versions.get(slab, page) == version;
        let Some(found) = self.parse_page(key, generation, &bytes).filter(|_| unchanged) else { return };
        match attempt {
            _ if found.is_whole() => {}
            Attempt::First => self.read_scrub_page(key, generation, version, Attempt::Second),
            Attempt::Second => {
                self.note_damage(key, &found, unreadable);
                self.cache.mark_dirty(key);
            }
        }
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
