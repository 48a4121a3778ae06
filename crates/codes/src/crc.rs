//! CRC-64/NVME (NVM Express NVM Command Set Specification 5.2.1.3.4), plain for records and seeded for blocks.
//!
//! A block's checksum is the CRC of the volume's 16 bytes, the block address as 8 little-endian bytes and the block's
//! 4096 bytes, in this order: a block found under a wrong address or volume fails. Two values are never a checksum:
//! zero stands for a block that was never written, all ones for a checksum that was lost; a CRC that comes out so is
//! moved to its neighbour.

use crc_fast::{CrcAlgorithm, Digest};
use sys::Payload;
use types::{BLOCK_BYTES, Lba, VolumeId};

/// The checksum of a block that was never written: it reads as zeroes.
pub const UNWRITTEN: u64 = 0;
/// Stands for the checksum of a block whose own is lost: nothing matches it.
pub const LOST: u64 = u64::MAX;

/// CRC-64/NVME of `bytes`.
pub fn crc64(bytes: &[u8]) -> u64 {
    // No fuzzer can guess a checksum; all are zero for it.
    if cfg!(fuzzing) {
        return 0;
    }
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// CRC-64/NVME of the bytes that gave `crc`, followed by `bytes`.
pub fn crc64_append(crc: u64, bytes: &[u8]) -> u64 {
    if cfg!(fuzzing) {
        return 0;
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, !crc);
    digest.update(bytes);
    digest.finalize()
}

/// CRC-64/NVME of `bytes`, bit by bit: the definition that the fast form is tested against.
pub fn crc64_scalar(bytes: &[u8]) -> u64 {
    // The polynomial 0xAD93D23594C93659, reflected.
    const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8)
            .fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 })
    })
}

/// Digests of one volume's blocks.
struct Seeded {
    volume: Digest,
}

impl Seeded {
    fn new(volume: VolumeId) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(&volume.to_bytes());
        Self { volume: digest }
    }

    fn at(&self, lba: Lba) -> Digest {
        let mut digest = self.volume;
        digest.update(&lba.0.to_le_bytes());
        digest
    }
}

fn finish(digest: &Digest) -> u64 {
    if cfg!(fuzzing) {
        return UNWRITTEN + 1;
    }
    digest.finalize().clamp(UNWRITTEN + 1, LOST - 1)
}

/// The checksum of one block (any length) at `lba`; never [`UNWRITTEN`] nor [`LOST`].
pub fn block_checksum(volume: VolumeId, lba: Lba, block: &[u8]) -> u64 {
    let mut digest = Seeded::new(volume).at(lba);
    digest.update(block);
    finish(&digest)
}

/// Whether the block has this checksum. [`UNWRITTEN`] is the checksum of zeroes only.
pub fn block_matches(volume: VolumeId, lba: Lba, block: &[u8], checksum: u64) -> bool {
    if checksum == UNWRITTEN { is_zero(block) } else { block_checksum(volume, lba, block) == checksum }
}

/// Bytes at the end of a block that proves itself: its order and its checksum.
pub const SEAL_BYTES: usize = 16;

/// Makes a block prove itself: writes `order` and the checksum into its last [`SEAL_BYTES`] bytes, both little-endian. The checksum
/// is seeded with volume and address as [`block_checksum`] is.
///
/// # Panics
/// When the block is shorter than [`SEAL_BYTES`].
pub fn seal_block(volume: VolumeId, lba: Lba, order: u64, block: &mut [u8]) {
    let (body, seal) = block.split_at_mut(block.len() - SEAL_BYTES);
    let (order_bytes, checksum) = seal.split_at_mut(8);
    order_bytes.copy_from_slice(&order.to_le_bytes());
    let mut digest = Seeded::new(volume).at(lba);
    digest.update(body);
    digest.update(order_bytes);
    checksum.copy_from_slice(&finish(&digest).to_le_bytes());
}

/// The order of a block that proves itself: of two intact ones written to one place the higher came later. A block of zeroes is
/// intact, of order 0. `None`: not intact.
pub fn sealed_order(volume: VolumeId, lba: Lba, block: &[u8]) -> Option<u64> {
    let (body, checksum) = block.split_last_chunk::<8>()?;
    let (_, order) = body.split_last_chunk::<8>()?;
    if block_checksum(volume, lba, body) == u64::from_le_bytes(*checksum) {
        return Some(u64::from_le_bytes(*order));
    }
    is_zero(block).then_some(0)
}

/// The checksums of a payload's blocks, the first of which lies at `first`. Blocks may straddle parts; a last block
/// cut short is digested as it is.
pub fn payload_checksums(volume: VolumeId, first: Lba, payload: &Payload) -> Vec<u64> {
    let mut checksums = Vec::with_capacity(payload.len().div_ceil(BLOCK_BYTES));
    each_block(volume, first, payload, |checksum| checksums.push(checksum));
    checksums
}

/// Whether each block of the payload has its checksum, and there is one for each. No checksum may be [`UNWRITTEN`].
pub fn payload_matches(volume: VolumeId, first: Lba, payload: &Payload, checksums: &[u64]) -> bool {
    if checksums.len() != payload.len().div_ceil(BLOCK_BYTES) {
        return false;
    }
    let (mut expected, mut equal) = (checksums.iter(), true);
    each_block(volume, first, payload, |checksum| equal &= expected.next() == Some(&checksum));
    equal
}

fn each_block(volume: VolumeId, first: Lba, payload: &Payload, mut each: impl FnMut(u64)) {
    let seeded = Seeded::new(volume);
    let mut lba = first;
    let mut open: Option<(Digest, usize)> = None;
    for part in payload.parts() {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let (mut digest, have) = open.take().unwrap_or_else(|| (seeded.at(lba), 0));
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - have));
            digest.update(now);
            rest = later;
            if have + now.len() == BLOCK_BYTES {
                each(finish(&digest));
                lba = Lba(lba.0.wrapping_add(1));
            } else {
                open = Some((digest, have + now.len()));
            }
        }
    }
    if let Some((digest, _)) = open {
        each(finish(&digest));
    }
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
