//! Maps keyed by numbers and identities that no client chooses: a multiplication is hash enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 29;
    }
}

pub(crate) type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;
/// Maps keyed by volumes and chunks, which the cluster chooses.
pub(crate) type IdentityMap<K, T> = HashMap<K, T, BuildHasherDefault<NumberHasher>>;

/// A block of the disk: slab and block within it.
pub(crate) fn block_key(slab: types::SlabIndex, block: u32) -> u64 {
    u64::from(slab.0) << 32 | u64::from(block)
}

/// A metadata page of the disk: slab and page within it.
pub(crate) fn page_key(slab: types::SlabIndex, page: u32) -> u64 {
    u64::from(slab.0) << 32 | u64::from(page)
}
