//! Metadata pages: a word per block (its checksum) and a word per region (its epoch) of one slab
//! (docs/ON_DISK.md, "Slab metadata"). Each 512-byte leaf proves itself, so that a torn page is a
//! mix of whole leaves, and names the checkpoint that wrote it.

use crate::bytes::{put_u64, u64_at};
use crate::layout::{LEAF_BYTES, LEAF_WORDS, LEAVES_PER_PAGE, PAGE_BYTES, PAGE_WORDS};
use crate::planted::Planted;
use crate::tables::SlabEntry;
use crate::versions::PageVersion;
use codes::LOST;
use sys::{Buf, BufMut};
use types::{DiskId, SlabIndex, Stamp};

/// The words of one page.
pub type Words = Box<[u64; PAGE_WORDS]>;

/// Identity of a page: its slab, the slab's generation, its number within the slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageIdentity {
    /// Disk that the page lies on.
    pub disk: DiskId,
    /// Slab whose words the page holds.
    pub slab: SlabIndex,
    /// [`SlabEntry::generation`] of the slab, so that an earlier use's page does not pass.
    pub generation: u64,
    /// Number of the page within the slab's metadata, from 0.
    pub page: u32,
}

impl PageIdentity {
    fn leaf_seed(&self, leaf: usize) -> u64 {
        let mut identity = [0; 32];
        identity[..16].copy_from_slice(&self.disk.to_bytes());
        identity[16..24].copy_from_slice(&self.generation.to_le_bytes());
        identity[24..28].copy_from_slice(&self.slab.0.to_le_bytes());
        identity[28..].copy_from_slice(&(self.page * LEAVES_PER_PAGE as u32 + leaf as u32).to_le_bytes());
        codes::crc64(&identity)
    }
}

/// Bytes of CRC and version before a leaf's words.
const LEAF_HEADER_BYTES: usize = 16;

/// A page as read from the disk.
pub struct FoundPage {
    /// The page's words; those of a damaged or stale leaf are [`LOST`].
    pub words: Words,
    /// Leaves that do not prove themselves.
    pub damaged: u32,
    /// Leaves that are intact, but older than the version that the disk acknowledged.
    pub stale: u32,
}

impl FoundPage {
    pub(crate) fn is_whole(&self) -> bool {
        self.damaged == 0 && self.stale == 0
    }
}

/// Returns the words of a page with no block written.
pub(crate) fn unwritten_words() -> Words {
    Box::new([codes::UNWRITTEN; PAGE_WORDS])
}

/// Encodes the page as it lies on disk.
pub(crate) fn encode_page(identity: PageIdentity, version: PageVersion, words: &[u64; PAGE_WORDS]) -> Buf {
    let mut out = BufMut::for_overwrite(PAGE_BYTES);
    encode_page_into(identity, version, words, &mut out);
    out.freeze()
}

/// Fills `out`, one page long.
pub(crate) fn encode_page_into(
    identity: PageIdentity,
    version: PageVersion,
    words: &[u64; PAGE_WORDS],
    out: &mut [u8],
) {
    let leaves = out.chunks_exact_mut(LEAF_BYTES).zip(words.chunks_exact(LEAF_WORDS));
    for (at, (leaf, words)) in leaves.enumerate() {
        put_u64(leaf, 8, u64::from(version.0));
        for (place, word) in leaf[LEAF_HEADER_BYTES..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        let crc = codes::crc64_append(identity.leaf_seed(at), &leaf[8..]);
        put_u64(leaf, 0, crc);
    }
}

/// Reads a page. Leaves older than `at_least` are stale.
pub fn parse_page(identity: PageIdentity, at_least: PageVersion, bytes: &[u8]) -> FoundPage {
    let mut found =
        FoundPage { words: Box::new([LOST; PAGE_WORDS]), damaged: LEAVES_PER_PAGE as u32, stale: 0 };
    let leaves = bytes.chunks_exact(LEAF_BYTES).zip(found.words.chunks_exact_mut(LEAF_WORDS));
    for (at, (leaf, words)) in leaves.enumerate() {
        if u64_at(leaf, 0) != codes::crc64_append(identity.leaf_seed(at), &leaf[8..]) {
            continue;
        }
        found.damaged -= 1;
        if u64_at(leaf, 8) < u64::from(at_least.0) && !Planted::NoPageVersions.is_planted() {
            found.stale += 1;
            continue;
        }
        for (word, place) in words.iter_mut().zip(leaf[LEAF_HEADER_BYTES..].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
    }
    found
}

pub(crate) fn page_identity(disk: DiskId, slab: SlabIndex, entry: &SlabEntry, page: u32) -> PageIdentity {
    PageIdentity { disk, slab, generation: entry.generation, page }
}

/// Merges a change into a word: a checksum is replaced; the stamp of a region only grows, and stays
/// lost once it is.
pub(crate) fn merged_word(is_stamp: bool, old: u64, new: u64) -> u64 {
    if is_stamp { Stamp::from_word(old).later(Stamp::from_word(new)).word() } else { new }
}
