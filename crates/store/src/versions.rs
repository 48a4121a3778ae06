//! The last checkpoint that wrote each metadata page (docs/ON_DISK.md, "Page versions"). The pages
//! carry the same number: if a page's is lower than here, the disk lost the last write.

use crate::bytes::{put_u64, sealed_crc, u64_at};
use crate::layout::{LEAF_BYTES, LEAVES_PER_PAGE, Layout, PAGE_BYTES, VERSIONS_PER_LEAF, VERSIONS_PER_PAGE};
use std::collections::BTreeSet;
use types::{DiskId, SlabIndex};

const HEADER_BYTES: usize = 8;
const VERSION_BYTES: usize = 4;

/// The checkpoint that wrote a page, by the sequence of the anchor that ends it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageVersion(pub u32);

impl PageVersion {
    /// Beyond four billion checkpoints, more than a century of one each second, all count as the last.
    pub(crate) fn of_anchor(sequence: u64) -> Self {
        Self(u32::try_from(sequence).unwrap_or(u32::MAX))
    }
}

/// The versions of all pages of a disk, whole in RAM.
pub(crate) struct PageVersions {
    versions: Vec<PageVersion>,
    pages_per_slab: u32,
    /// Pages of the table that must be written.
    changed: BTreeSet<usize>,
}

impl PageVersions {
    pub(crate) fn new(layout: &Layout) -> Self {
        let pages_per_slab = layout.metadata_pages_per_slab();
        let count = layout.slab_count as usize * pages_per_slab as usize;
        Self { versions: vec![PageVersion::default(); count], pages_per_slab, changed: BTreeSet::new() }
    }

    fn index(&self, slab: SlabIndex, page: u32) -> usize {
        slab.0 as usize * self.pages_per_slab as usize + page as usize
    }

    pub(crate) fn get(&self, slab: SlabIndex, page: u32) -> PageVersion {
        self.versions.get(self.index(slab, page)).copied().unwrap_or_default()
    }

    /// Notes that the disk acknowledged a page of this version.
    pub(crate) fn written(&mut self, slab: SlabIndex, page: u32, version: PageVersion) {
        let index = self.index(slab, page);
        let Some(known) = self.versions.get_mut(index) else { return };
        debug_assert!(*known <= version, "checkpoints are counted up");
        *known = version;
        self.changed.insert(index / VERSIONS_PER_PAGE);
    }

    pub(crate) fn take_changed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn mark_changed(&mut self, pages: impl IntoIterator<Item = usize>) {
        self.changed.extend(pages);
    }

    pub(crate) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Whether page `page` of the table, as read, differs from the last write.
    pub(crate) fn is_other(&self, disk: DiskId, page: usize, bytes: &[u8]) -> bool {
        !self.changed.contains(&page) && *bytes != *self.encode_page(disk, page)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.versions.capacity() * size_of::<PageVersion>()
    }

    /// Encodes page `page` of the table as it lies on disk.
    pub(crate) fn encode_page(&self, disk: DiskId, page: usize) -> Vec<u8> {
        let mut out = vec![0; PAGE_BYTES];
        for (at, leaf) in out.chunks_exact_mut(LEAF_BYTES).enumerate() {
            let index = page * LEAVES_PER_PAGE + at;
            let versions = self.versions.iter().skip(index * VERSIONS_PER_LEAF);
            for (place, version) in leaf[HEADER_BYTES..].chunks_exact_mut(VERSION_BYTES).zip(versions) {
                place.copy_from_slice(&version.0.to_le_bytes());
            }
            let crc = sealed_crc(&identity(disk, index as u32), leaf, 0);
            put_u64(leaf, 0, crc);
        }
        out
    }

    /// Takes over the leaves from `first` on. Returns how many are damaged, or have versions that
    /// cannot exist yet: their pages count as written by no checkpoint.
    pub(crate) fn read_leaves(
        &mut self,
        disk: DiskId,
        first: usize,
        newest: PageVersion,
        bytes: &[u8],
    ) -> u64 {
        let mut damaged = 0;
        for (leaf, bytes) in (first..).zip(bytes.chunks_exact(LEAF_BYTES)) {
            let found = parse_version_leaf(disk, leaf as u32, bytes);
            let Some(found) = found.filter(|found| found.iter().all(|version| *version <= newest)) else {
                damaged += 1;
                continue;
            };
            for (place, version) in self.versions.iter_mut().skip(leaf * VERSIONS_PER_LEAF).zip(found) {
                *place = version;
            }
        }
        damaged
    }
}

fn identity(disk: DiskId, leaf: u32) -> [u8; 21] {
    let mut identity = [0; 21];
    identity[..16].copy_from_slice(&disk.to_bytes());
    identity[16] = b'V';
    identity[17..].copy_from_slice(&leaf.to_le_bytes());
    identity
}

/// Reads leaf `leaf` of the table; `None` if it is damaged.
pub fn parse_version_leaf(disk: DiskId, leaf: u32, bytes: &[u8]) -> Option<Vec<PageVersion>> {
    let intact = bytes.len() == LEAF_BYTES && u64_at(bytes, 0) == sealed_crc(&identity(disk, leaf), bytes, 0);
    let versions = bytes.get(HEADER_BYTES..)?.as_chunks::<VERSION_BYTES>().0;
    intact.then(|| versions.iter().map(|version| PageVersion(u32::from_le_bytes(*version))).collect())
}
