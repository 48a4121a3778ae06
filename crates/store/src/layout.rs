//! The layout of a disk (docs/ON_DISK.md, "Layout"). Pure arithmetic.

use types::{BLOCK_BYTES, SlabIndex};

/// The format that this code writes and reads.
pub const FORMAT_VERSION: u32 = 2;
/// Most bytes of the opaque records (D8).
pub const RECORDS_BYTES_MAX: usize = 256 << 10;
/// Blocks of one region: the granularity of region epochs, 1 MiB.
pub const REGION_BLOCKS: u32 = 256;

pub(crate) const PAGE_BYTES: usize = BLOCK_BYTES;
const PAGE: u64 = PAGE_BYTES as u64;
/// Bytes of a leaf: the unit that every disk writes whole or not at all.
pub(crate) const LEAF_BYTES: usize = 512;
/// 64-bit words of a metadata leaf besides its CRC and its version.
pub(crate) const LEAF_WORDS: usize = LEAF_BYTES / 8 - 2;
pub(crate) const LEAVES_PER_PAGE: usize = PAGE_BYTES / LEAF_BYTES;
pub(crate) const PAGE_WORDS: usize = LEAF_WORDS * LEAVES_PER_PAGE;

/// Bytes of the areas at both ends of a disk.
pub(crate) const AREA_BYTES: u64 = 1 << 20;
pub(crate) const LABEL_SLOTS: [u64; 2] = [0, PAGE];
pub(crate) const ANCHOR_SLOTS: [u64; 2] = [2 * PAGE, 3 * PAGE];
pub(crate) const RECORDS_SLOT_BYTES: u64 = PAGE + RECORDS_BYTES_MAX as u64;
pub(crate) const RECORDS_SLOTS: [u64; 2] = [64 << 10, (64 << 10) + RECORDS_SLOT_BYTES];

pub(crate) const SLAB_ENTRIES_PER_LEAF: usize = 10;
pub(crate) const SLAB_ENTRIES_PER_PAGE: usize = SLAB_ENTRIES_PER_LEAF * LEAVES_PER_PAGE;
pub(crate) const PROMISE_ENTRIES_PER_LEAF: usize = 20;
/// Pages of the promise table: space for 10240 volumes.
pub(crate) const PROMISE_PAGES: usize = 64;

/// Entries of 4 bytes behind a CRC of 8.
pub(crate) const VERSIONS_PER_LEAF: usize = (LEAF_BYTES - 8) / 4;
pub(crate) const VERSIONS_PER_PAGE: usize = VERSIONS_PER_LEAF * LEAVES_PER_PAGE;

const SLAB_BYTES_MIN: u64 = 1 << 20;
const SLAB_BYTES_MAX: u64 = 1 << 30;
const JOURNAL_BYTES_MIN: u64 = 256 << 10;
const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// Offsets in bytes, all multiples of 4096, computed from three numbers of the label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Usable size of the disk in bytes, at most 2^60.
    pub size_bytes: u64,
    /// Bytes of a slab: a power of two from 1 MiB to 1 GiB.
    pub slab_bytes: u64,
    /// Bytes of the journal: from 256 KiB to 1 GiB.
    pub journal_bytes: u64,
    /// Offsets of the two copies of the slab table, each followed by the promise table.
    pub tables: [u64; 2],
    /// Offset of the journal.
    pub journal: u64,
    /// Offset of the metadata pages of slab 0, followed by those of slab 1 and so on.
    pub metadata: u64,
    /// Offset of the first block of slab 0.
    pub slabs: u64,
    /// Number of slabs on the disk.
    pub slab_count: u32,
    /// Offset of the versions of the metadata pages, at the other end of the disk.
    pub versions: u64,
}

impl Layout {
    /// Returns the default slab and journal size for a disk of `size_bytes`: slabs of 256 MiB (64
    /// MiB under 64 GiB), a journal of a 64th of the disk, at least 8 and at most 256 MiB.
    pub fn default_sizes(size_bytes: u64) -> (u64, u64) {
        let slab_bytes = if size_bytes < 64 << 30 { 64 << 20 } else { 256 << 20 };
        let journal_bytes = (size_bytes / 64).clamp(8 << 20, 256 << 20) / PAGE * PAGE;
        (slab_bytes, journal_bytes)
    }

    /// Computes the layout; `None` if the sizes are out of bounds or not one slab fits.
    pub fn compute(size_bytes: u64, slab_bytes: u64, journal_bytes: u64) -> Option<Self> {
        let fits = slab_bytes.is_power_of_two()
            && (SLAB_BYTES_MIN..=SLAB_BYTES_MAX).contains(&slab_bytes)
            && (JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&journal_bytes)
            && journal_bytes.is_multiple_of(PAGE);
        if !fits {
            return None;
        }
        let usable = (size_bytes / PAGE * PAGE).min(1 << 60);
        let per_slab = slab_bytes + u64::from(metadata_pages(slab_bytes)) * PAGE;
        let mut slab_count = u32::try_from(usable / per_slab).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        while slab_count > 0 {
            let layout = Self::with_count(usable, slab_bytes, journal_bytes, slab_count);
            if layout.slabs + u64::from(slab_count) * slab_bytes <= layout.versions {
                return Some(layout);
            }
            slab_count -= 1;
        }
        None
    }

    fn with_count(size_bytes: u64, slab_bytes: u64, journal_bytes: u64, slab_count: u32) -> Self {
        let tables_bytes = (slab_table_pages(slab_count) + PROMISE_PAGES) as u64 * PAGE;
        let tables = [AREA_BYTES, size_bytes.saturating_sub(AREA_BYTES + tables_bytes)];
        let journal = AREA_BYTES + tables_bytes;
        let metadata = journal + journal_bytes;
        let metadata_bytes = u64::from(slab_count) * u64::from(metadata_pages(slab_bytes)) * PAGE;
        let slabs = (metadata + metadata_bytes).next_multiple_of(1 << 20);
        let version_bytes = version_pages(slab_count, slab_bytes) as u64 * PAGE;
        let versions = tables[1].saturating_sub(version_bytes);
        Self { size_bytes, slab_bytes, journal_bytes, tables, journal, metadata, slabs, slab_count, versions }
    }

    /// Returns the number of 4 KiB blocks of a slab.
    pub fn slab_blocks(&self) -> u32 {
        (self.slab_bytes / PAGE) as u32
    }
    /// Returns the number of regions of a slab, of [`REGION_BLOCKS`] each.
    pub fn regions_per_slab(&self) -> u32 {
        self.slab_blocks() / REGION_BLOCKS
    }
    /// Returns the number of 4 KiB pages that hold one slab's checksums and stamps.
    pub fn metadata_pages_per_slab(&self) -> u32 {
        metadata_pages(self.slab_bytes)
    }
    /// Returns the number of 4 KiB blocks of the journal.
    pub fn journal_blocks(&self) -> u32 {
        (self.journal_bytes / PAGE) as u32
    }
    /// Returns the areas at the front and at the end of the disk.
    pub(crate) fn areas(&self) -> [u64; 2] {
        [0, self.size_bytes - AREA_BYTES]
    }
    pub(crate) fn table_pages(&self) -> usize {
        slab_table_pages(self.slab_count) + PROMISE_PAGES
    }
    pub(crate) fn slab_table_pages(&self) -> usize {
        slab_table_pages(self.slab_count)
    }
    pub(crate) fn version_pages(&self) -> usize {
        version_pages(self.slab_count, self.slab_bytes)
    }
    pub(crate) fn page_offset(&self, slab: SlabIndex, page: u32) -> u64 {
        self.metadata
            + (u64::from(slab.0) * u64::from(self.metadata_pages_per_slab()) + u64::from(page)) * PAGE
    }
    pub(crate) fn block_offset(&self, slab: SlabIndex, block: u32) -> u64 {
        self.slabs + u64::from(slab.0) * self.slab_bytes + u64::from(block) * PAGE
    }
    pub(crate) fn journal_offset(&self, block: u32) -> u64 {
        self.journal + u64::from(block) * PAGE
    }
    /// Returns the block of the journal that lies at this offset.
    pub(crate) fn journal_block(&self, offset: u64) -> Option<u32> {
        let block = u32::try_from(offset.checked_sub(self.journal)? / PAGE).ok()?;
        (block < self.journal_blocks()).then_some(block)
    }
    /// Returns the metadata word with the epoch of the region of `block`.
    pub(crate) fn stamp_word(&self, block: u32) -> u32 {
        self.slab_blocks() + block / REGION_BLOCKS
    }
}

/// Returns the pages of one slab's metadata: a word per block and a word per region.
fn metadata_pages(slab_bytes: u64) -> u32 {
    let blocks = slab_bytes / PAGE;
    (blocks + blocks / u64::from(REGION_BLOCKS)).div_ceil(PAGE_WORDS as u64) as u32
}

/// Returns the pages of the table of metadata pages' versions.
fn version_pages(slab_count: u32, slab_bytes: u64) -> usize {
    (slab_count as usize * metadata_pages(slab_bytes) as usize).div_ceil(VERSIONS_PER_PAGE)
}

fn slab_table_pages(slab_count: u32) -> usize {
    (slab_count as usize).div_ceil(SLAB_ENTRIES_PER_PAGE)
}
