//! Metadata pages: a word per block (its checksum) and a word per region (its epoch) of one slab
//! (docs/ON_DISK.md, "Slab metadata"). Each 512-byte leaf proves itself, so that a torn page is a mix of whole leaves.

use crate::bytes::{put_u64, u64_at};
use crate::layout::{LEAF_BYTES, LEAF_WORDS, LEAVES_PER_PAGE, PAGE_BYTES, PAGE_WORDS};
use codes::LOST;
use sys::{Buf, BufMut};
use types::{DiskId, SlabIndex};

/// The words of one page.
pub type Words = Box<[u64; PAGE_WORDS]>;

/// Which page: its slab, the slab's generation, its number within the slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageIdentity {
    pub disk: DiskId,
    pub slab: SlabIndex,
    pub generation: u64,
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

/// A page with nothing written.
pub(crate) fn unwritten_words() -> Words {
    Box::new([codes::UNWRITTEN; PAGE_WORDS])
}

/// The page as it lies on disk.
pub(crate) fn encode_page(identity: PageIdentity, words: &[u64; PAGE_WORDS]) -> Buf {
    let mut out = BufMut::for_overwrite(PAGE_BYTES);
    encode_page_into(identity, words, &mut out);
    out.freeze()
}

/// Fills `out`, one page long.
pub(crate) fn encode_page_into(identity: PageIdentity, words: &[u64; PAGE_WORDS], out: &mut [u8]) {
    let leaves = out.chunks_exact_mut(LEAF_BYTES).zip(words.chunks_exact(LEAF_WORDS));
    for (at, (leaf, words)) in leaves.enumerate() {
        for (place, word) in leaf[8..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        let crc = codes::crc64_append(identity.leaf_seed(at), &leaf[8..]);
        put_u64(leaf, 0, crc);
    }
}

/// Reads a page. The words of a damaged leaf come out as [`LOST`]; the number of such leaves with them.
pub fn parse_page(identity: PageIdentity, bytes: &[u8]) -> (Words, u32) {
    let mut words = Box::new([LOST; PAGE_WORDS]);
    let mut damaged = LEAVES_PER_PAGE as u32;
    let leaves = bytes.chunks_exact(LEAF_BYTES).zip(words.chunks_exact_mut(LEAF_WORDS));
    for (at, (leaf, words)) in leaves.enumerate() {
        if u64_at(leaf, 0) != codes::crc64_append(identity.leaf_seed(at), &leaf[8..]) {
            continue;
        }
        damaged -= 1;
        for (word, place) in words.iter_mut().zip(leaf[8..].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*place);
        }
    }
    (words, damaged)
}
