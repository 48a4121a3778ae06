//! Numbers by which maps name blocks and metadata pages of a disk.

pub(crate) use types::{IdentityMap, NumberMap};

/// A block of the disk: slab and block within it.
pub(crate) fn block_key(slab: types::SlabIndex, block: u32) -> u64 {
    u64::from(slab.0) << 32 | u64::from(block)
}

/// A metadata page of the disk: slab and page within it.
pub(crate) fn page_key(slab: types::SlabIndex, page: u32) -> u64 {
    u64::from(slab.0) << 32 | u64::from(page)
}
