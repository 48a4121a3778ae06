//! Scrub: reads and verifies everything written, from a position that survives a restart, since the
//! anchor has it. A metadata page in RAM is read too: if the disk's page differs, the next
//! checkpoint rewrites it, and nothing is lost. Each round ends with the store's own structures
//! (`structures`).

use super::damage::Damage;
use super::device::Device;
use super::operation::{Attempt, Op, PageRead};
use super::pages::Pages;
use super::place::Place;
use super::slab_table::SlabTable;
use crate::api::ScrubProgress;
use crate::layout::{Layout, PAGE_BYTES, PAGE_WORDS};
use crate::numbers::page_key;
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
    /// Returns the scrub's position from an anchor; the beginning if there is no such slab.
    pub(super) fn stored(slab: u32, block: u32, slab_count: u32) -> Self {
        if slab < slab_count { Self { slab, block } } else { Self::default() }
    }
}

/// Blocks that a scrub verifies with one read.
pub(super) struct Piece {
    pub(super) volume: VolumeId,
    pub(super) lba: Lba,
    pub(super) append: bool,
    pub(super) place: Place,
}

/// A request to continue the scrub.
///
/// Invariant: one piece is read at a time, and the position is behind it from the time when the
/// piece was taken.
#[derive(Debug)]
pub(super) struct ScrubTask {
    /// Bytes to verify at least, unless the end comes before.
    bytes: u64,
    progress: ScrubProgress,
}

impl ScrubTask {
    pub(super) fn new(bytes: u64, slabs: &SlabTable, layout: &Layout) -> Self {
        let chunks = slabs.entries().iter().flatten().count() as u64;
        let progress = ScrubProgress { total_bytes: chunks * layout.slab_bytes, ..ScrubProgress::default() };
        Self { bytes, progress }
    }

    /// Returns the next piece; `None` when enough was verified or the end is reached.
    pub(super) fn next_piece(
        &mut self,
        position: &mut Position,
        slabs: &SlabTable,
        layout: &Layout,
    ) -> Option<Piece> {
        let slab_blocks = layout.slab_blocks();
        let entries = slabs.entries();
        let next =
            (position.slab..).zip(entries.iter().skip(position.slab as usize)).find_map(|(slab, entry)| {
                let entry = entry.as_ref()?;
                let block = if slab == position.slab { position.block } else { 0 };
                (block < slab_blocks).then_some((slab, block, *entry))
            });
        self.progress.finished = next.is_none();
        if self.progress.finished {
            *position = Position::default();
        }
        let (slab, first, entry) = next.filter(|_| self.progress.checked_bytes < self.bytes)?;
        let count = STEP_BLOCKS.min(slab_blocks - first);
        self.progress.checked_bytes += u64::from(count) * BLOCK_BYTES as u64;
        *position = Position { slab, block: first + count };
        let lba = Lba(u64::from(entry.chunk.0) * u64::from(slab_blocks) + u64::from(first));
        let place = Place { slab: SlabIndex(slab), generation: entry.generation, first, count };
        Some(Piece { volume: entry.volume, lba, append: entry.append, place })
    }

    /// Notes the damage that the read of a piece found.
    pub(super) fn found(&mut self, damaged: impl Iterator<Item = (VolumeId, Lba)>) {
        self.progress.corrupt.extend(damaged);
    }

    /// Notes journaled blocks that were found corrupt in the journal.
    pub(super) fn found_in_journal(&mut self, damaged: Vec<(VolumeId, Lba)>) {
        let new = damaged.into_iter().filter(|block| !self.progress.corrupt.contains(block));
        let new: Vec<_> = new.collect();
        self.progress.corrupt.extend(new);
    }

    /// Whether all data is verified.
    pub(super) fn is_finished(&self) -> bool {
        self.progress.finished
    }

    pub(super) fn take_progress(&mut self) -> ScrubProgress {
        std::mem::take(&mut self.progress)
    }
}

/// Reads the pages that begin with a word of these blocks; for the last block also those of the
/// regions' epochs.
pub(super) fn read_pages<D: Disk>(place: Place, layout: &Layout, pages: &Pages, device: &mut Device<D>) {
    let Place { slab, generation, first, count } = place;
    let page_count = layout.metadata_pages_per_slab();
    let begun_before = |block: u32| block.div_ceil(PAGE_WORDS as u32);
    let end = first + count;
    let until = if end == layout.slab_blocks() { page_count } else { begun_before(end) };
    for page in begun_before(first)..until {
        let key = page_key(slab, page);
        if pages.cache.is_clean(key) {
            let version = pages.versions.get(slab, page);
            read_page(PageRead::first(key, generation), version, layout, device);
        }
    }
}

fn read_page<D: Disk>(read: PageRead, version: PageVersion, layout: &Layout, device: &mut Device<D>) {
    let offset = layout.page_offset(read.slab(), read.page());
    device.read(Op::ScrubPage { read, version }, offset, PAGE_BYTES);
}

/// Compares a page in RAM with the disk's.
pub(super) fn page_read<D: Disk>(
    read: PageRead,
    version: PageVersion,
    result: Result<Option<BufMut>, DiskError>,
    slabs: &SlabTable,
    pages: &mut Pages,
    damage: &mut Damage,
    layout: &Layout,
    device: &mut Device<D>,
) {
    let unreadable = matches!(result, Err(DiskError::Medium(_)));
    let bytes = match result {
        Ok(Some(bytes)) => bytes,
        Ok(None) | Err(DiskError::Medium(_)) => BufMut::zeroed(PAGE_BYTES),
        // The disk as a whole has failed: the next read or write reports it.
        Err(_) => return,
    };
    let unchanged = pages.cache.is_clean(read.key) && pages.versions.get(read.slab(), read.page()) == version;
    let Some(found) = pages.parse(read, slabs, &bytes).filter(|_| unchanged) else { return };
    match read.attempt {
        _ if found.is_whole() => {}
        Attempt::First => read_page(read.again(), version, layout, device),
        Attempt::Second => {
            damage.note_page(read.key, &found, unreadable);
            pages.cache.mark_dirty(read.key);
        }
    }
}
