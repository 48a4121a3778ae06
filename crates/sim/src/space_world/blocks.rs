//! The volume that all clients work on, and the marks in its blocks.

use super::oracle::ZERO;
use sys::{BufMut, Payload};
use types::{BLOCK_BYTES, Lba, VolumeId};

pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([0x51; 16]);
/// Blocks of one chunk: two regions.
pub(crate) const CHUNK_BLOCKS: u64 = 512;
/// Chunks of the volume; the last one is of class Append.
pub(crate) const CHUNKS: u64 = 5;
/// Offset in a block of the second copy of its value: before the bytes that prove a block of class
/// Append.
const END: usize = BLOCK_BYTES - codes::SEAL_BYTES - 8;

/// Whether the block is in the chunk of class Append.
pub(crate) fn is_append(lba: u64) -> bool {
    lba / CHUNK_BLOCKS == CHUNKS - 1
}

/// Makes blocks that contain their write's number and their address. A block of class Append proves
/// itself, later ones by a higher order.
pub(crate) fn payload(value: u64, lba: u64, blocks: u64) -> Payload {
    let mut data = BufMut::zeroed(blocks as usize * BLOCK_BYTES);
    for (at, block) in data.chunks_mut(BLOCK_BYTES).enumerate() {
        let lba = lba + at as u64;
        block.fill((value % 251) as u8 + 1);
        block[..8].copy_from_slice(&value.to_le_bytes());
        block[8..16].copy_from_slice(&lba.to_le_bytes());
        block[END..END + 8].copy_from_slice(&value.to_le_bytes());
        if is_append(lba) {
            codes::seal_block(VOLUME, Lba(lba), value, block);
        }
    }
    Payload::from(data.freeze())
}

/// Returns the write that a block is from; `None` if it is from no write to this address.
pub(crate) fn value_of(block: &[u8], lba: u64) -> Option<u64> {
    let word =
        |at: usize| block.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let (value, address, end) = (word(0)?, word(8)?, word(END)?);
    if block.iter().all(|byte| *byte == 0) {
        return Some(ZERO);
    }
    let fill = (value % 251) as u8 + 1;
    let whole = block[16..END].iter().all(|byte| *byte == fill);
    let proven = !is_append(lba) || codes::sealed_order(VOLUME, Lba(lba), block) == Some(value);
    (whole && proven && value == end && address == lba).then_some(value)
}
