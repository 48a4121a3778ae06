//! Entries for fuzzers: every on-disk structure of a volume, from bytes of any origin. None of them may panic.

use ::types::{BLOCK_BYTES, Lba, VolumeId};
use sys::Buf;

use super::allocator::Allocator;
use super::bitmap::Bitmap;
use super::extended_attributes::unpack_attributes;
use super::layout::{SEALED_BYTES, Superblock};
use super::meta::journal::Batch;
use super::meta::key;
use super::meta::page::Page;
use super::meta::record::{
    DescriptorCountsRecord, EntryRecord, ExtentRecord, Inode, ReferencesRecord, SharedRecord, StreamRecord,
    decode_number, decode_volume,
};
use super::types::OpenStateKey;

/// Number of structures that [`parse`] knows.
pub const STRUCTURES: u8 = 6;

/// Places at which superblocks and batches are taken to lie.
const SUPERBLOCK: Lba = Lba(0);
const JOURNAL: Lba = Lba(4);

/// Parses bytes as a key of open state.
pub fn open_state_key(bytes: &[u8]) -> Option<OpenStateKey> {
    key::parse_open_state(bytes)
}

/// Parses bytes as structure number `which`; whether they were one.
pub fn parse(which: u8, bytes: &[u8]) -> bool {
    match which % STRUCTURES {
        0 => matches!(Superblock::decode(bytes, SUPERBLOCK), Ok(Some(_))),
        1 => Batch::decode(bytes, JOURNAL).is_some_and(|batch| batch.operations().is_ok()),
        2 => {
            let Some(page) = Page::decode(Buf::from(bytes), &[7; 16], Lba(4)) else { return false };
            let all = (0..page.len()).map(|at| page.key(at).len() + page.value(at).len()).sum::<usize>();
            all + page.lower_bound(b"\x10") + page.child_for(b"\x20") < usize::MAX
        }
        3 => Allocator::new(16_384, 256)
            .is_some_and(|mut allocator| allocator.decode_space_map(bytes).is_some()),
        4 => {
            let records = [
                Inode::decode(bytes).is_some(),
                EntryRecord::decode(bytes).is_some(),
                StreamRecord::decode(bytes).is_some(),
                ExtentRecord::decode(bytes).is_some(),
                SharedRecord::decode(bytes).is_some(),
                ReferencesRecord::decode(bytes).is_some(),
                DescriptorCountsRecord::decode(bytes).is_some(),
                decode_number(bytes).is_some(),
                decode_volume(bytes).is_some(),
                unpack_attributes(bytes).is_some(),
                Bitmap::from_bytes(bytes, 256).is_some(),
            ];
            records.contains(&true)
        }
        _ => key::kind(bytes) != key::Kind::Unknown,
    }
}

/// Makes the checksum of a mutated structure right, so that a fuzzer gets past it.
pub fn seal(which: u8, bytes: &mut [u8]) {
    let len = bytes.len();
    match which % STRUCTURES {
        0 if len >= BLOCK_BYTES => seal_blocks(bytes, SUPERBLOCK),
        1 if len >= BLOCK_BYTES => {
            let said = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
            let contents =
                bytes.chunks(BLOCK_BYTES).flat_map(|block| &block[..block.len().min(SEALED_BYTES)]);
            let operations: Vec<u8> = contents.skip(72).take(said).copied().collect();
            let crc = codes::crc64_append(codes::crc64(&bytes[..64]), &operations);
            bytes[64..72].copy_from_slice(&crc.to_le_bytes());
            seal_blocks(bytes, JOURNAL);
        }
        2 if len >= 48 => {
            let crc = codes::crc64_append(codes::crc64(&bytes[..40]), &bytes[48..]);
            bytes[40..48].copy_from_slice(&crc.to_le_bytes());
        }
        _ => {}
    }
}

fn seal_blocks(bytes: &mut [u8], first: Lba) {
    let volume = VolumeId::from_bytes(bytes[16..32].try_into().unwrap_or_default());
    for (index, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let order = block.last_chunk::<16>().map_or([0; 8], |seal| seal[..8].try_into().unwrap_or_default());
        codes::seal_block(volume, first.offset(index as u64), u64::from_le_bytes(order), block);
    }
}
