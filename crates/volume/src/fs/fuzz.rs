//! Entries for fuzzers: every on-disk structure of a volume, from bytes of any origin. None of them may panic.

use ::types::Lba;
use sys::Buf;

use super::allocator::Allocator;
use super::bitmap::Bitmap;
use super::extended_attributes::unpack_attributes;
use super::layout::Superblock;
use super::meta::journal::decode_batch;
use super::meta::key;
use super::meta::page::Page;
use super::meta::record::{
    EntryRecord, ExtentRecord, Inode, SharedRecord, StreamRecord, decode_number, decode_volume,
};

/// Number of structures that [`parse`] knows.
pub const STRUCTURES: u8 = 6;

/// Parses bytes as structure number `which`; whether they were one.
pub fn parse(which: u8, bytes: &[u8]) -> bool {
    match which % STRUCTURES {
        0 => matches!(Superblock::decode(bytes), Ok(Some(_))),
        1 => decode_batch(bytes).is_some(),
        2 => {
            let Some(page) = Page::decode(Buf::from(bytes), &[7; 16], Lba(4)) else { return false };
            let all = (0..page.len()).map(|at| page.key(at).len() + page.value(at).len()).sum::<usize>();
            all + page.lower_bound(b"\x10") + page.child_for(b"\x20") < usize::MAX
        }
        3 => Allocator::new(16_384, 256, 64)
            .is_some_and(|mut allocator| allocator.decode_space_map(bytes).is_some()),
        4 => {
            let records = [
                Inode::decode(bytes).is_some(),
                EntryRecord::decode(bytes).is_some(),
                StreamRecord::decode(bytes).is_some(),
                ExtentRecord::decode(bytes).is_some(),
                SharedRecord::decode(bytes).is_some(),
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
        0 if len >= 8 => {
            let crc = codes::crc64(&bytes[..len - 8]);
            bytes[len - 8..].copy_from_slice(&crc.to_le_bytes());
        }
        1 if len >= 72 => {
            let said = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
            let end = 72_usize.saturating_add(said).min(len);
            let crc = codes::crc64_append(codes::crc64(&bytes[..64]), &bytes[72..end]);
            bytes[64..72].copy_from_slice(&crc.to_le_bytes());
        }
        2 if len >= 48 => {
            let crc = codes::crc64_append(codes::crc64(&bytes[..40]), &bytes[48..]);
            bytes[40..48].copy_from_slice(&crc.to_le_bytes());
        }
        _ => {}
    }
}
