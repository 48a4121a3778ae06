//! Numbers by which maps name blocks and metadata pages of a disk.

pub(crate) use types::{IdentityMap, NumberMap};

/// Returns the number of a block of the disk, from its slab and the block within that.
pub(crate) fn block_key(slab: types::SlabIndex, block: u32) -> u64 {
    u64::from(slab.0) << 32 | u64::from(block)
}

/// Returns the number of a metadata page of the disk, from its slab and the page within that.
pub(crate) fn page_key(slab: types::SlabIndex, page: u32) -> u64 {
    u64::from(slab.0) << 32 | u64::from(page)
}
