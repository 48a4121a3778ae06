//! Where things lie on the virtual disk, and the superblock that says so.
//!
//! Chunk 0 begins with the superblock's two places (blocks 0 and 1); the journal begins at block 4; what follows, and
//! further chunks as they are needed, carries tree pages. All other chunks carry extents. A superblock is one block,
//! numbers little-endian:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `CENOTEFS` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | blocks of a chunk |
//! | 16 | 16 | volume id |
//! | 32 | 8 | sequence: the higher of two intact superblocks counts |
//! | 40 | 8 | incarnation |
//! | 48 | 4 | first block of the journal |
//! | 52 | 4 | blocks of the journal |
//! | 56 | 4 | journal block at which replay begins |
//! | 60 | 4 | level of the root page; 0: a leaf |
//! | 64 | 8 | sequence of the first batch to replay |
//! | 72 | 8 | chain of that batch |
//! | 80 | 8 | root page; 0: none |
//! | 88 | 8 | space map; 0: none |
//! | 96 | 4 | bytes of the space map |
//! | 100 | 4 | 0 |
//! | 104 | 8 | CRC-64/NVME of the space map |
//! | 4088 | 8 | CRC-64/NVME of the 4088 bytes before |

use ::types::{BLOCK_BYTES, Lba};
use sys::{Buf, BufMut};

use super::meta::log::Position;
use super::meta::record::Reader;
use super::types::FsError;

const MAGIC: [u8; 8] = *b"CENOTEFS";
const VERSION: u32 = 1;

/// The two places of the superblock; number n is written to place n % 2.
pub const SUPERBLOCK_LBAS: [Lba; 2] = [Lba(0), Lba(1)];

/// First block of the journal.
pub const JOURNAL_FIRST: u32 = 4;

/// Largest journal in blocks: 64 MiB.
pub const JOURNAL_BLOCKS_MAX: u32 = 16384;

/// Smallest chunk that chunk 0's contents fit into.
pub const CHUNK_BLOCKS_MIN: u32 = 256;

/// Blocks of a tree page: 16 KiB.
pub const PAGE_BLOCKS: u32 = 4;

/// Bytes of a tree page.
pub const PAGE_BYTES: usize = PAGE_BLOCKS as usize * BLOCK_BYTES;

/// Copies of a virtual disk at most.
pub const COPIES_MAX: u8 = 3;

/// Blocks of the journal on a virtual disk with such chunks.
pub fn journal_blocks(chunk_blocks: u32) -> u32 {
    (chunk_blocks / 4).min(JOURNAL_BLOCKS_MAX)
}

/// A page of the tree, and how far it is from the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    pub lba: Lba,
    /// 0: a leaf.
    pub level: u8,
}

/// A run of bytes that a checksum proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapPlace {
    pub lba: Lba,
    pub len_bytes: u32,
    pub crc: u64,
}

/// No count of changes and no address gets there; one that did could not grow.
const COUNT_MAX: u64 = 1 << 62;
const LBA_MAX: u64 = 1 << 52;

/// The one record from which all else is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub chunk_blocks: u32,
    pub volume: [u8; 16],
    pub sequence: u64,
    pub incarnation: u64,
    pub journal_blocks: u32,
    pub tail: Position,
    pub root: Option<Root>,
    pub space_map: Option<SpaceMapPlace>,
}

impl Superblock {
    pub fn encode(&self) -> Buf {
        let mut out = BufMut::zeroed(BLOCK_BYTES);
        let mut bytes = Vec::with_capacity(112);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.chunk_blocks.to_le_bytes());
        bytes.extend_from_slice(&self.volume);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.incarnation.to_le_bytes());
        bytes.extend_from_slice(&JOURNAL_FIRST.to_le_bytes());
        bytes.extend_from_slice(&self.journal_blocks.to_le_bytes());
        bytes.extend_from_slice(&self.tail.block.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.root.map_or(0, |root| root.level)).to_le_bytes());
        bytes.extend_from_slice(&self.tail.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.tail.chain.to_le_bytes());
        bytes.extend_from_slice(&self.root.map_or(0, |root| root.lba.0).to_le_bytes());
        bytes.extend_from_slice(&self.space_map.map_or(0, |map| map.lba.0).to_le_bytes());
        bytes.extend_from_slice(&self.space_map.map_or(0, |map| map.len_bytes).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.space_map.map_or(0, |map| map.crc).to_le_bytes());
        out[..bytes.len()].copy_from_slice(&bytes);
        let crc = codes::crc64(&out[..BLOCK_BYTES - 8]);
        out[BLOCK_BYTES - 8..].copy_from_slice(&crc.to_le_bytes());
        out.freeze()
    }

    /// `Ok(None)` where the block is no intact superblock.
    ///
    /// # Errors
    /// `NotAVolume` where it is one of another version: the volume is left untouched.
    pub fn decode(block: &[u8]) -> Result<Option<Self>, FsError> {
        let Some((body, stored)) = block.split_last_chunk::<8>() else { return Ok(None) };
        if block.len() != BLOCK_BYTES || codes::crc64(body) != u64::from_le_bytes(*stored) {
            return Ok(None);
        }
        let mut reader = Reader(body);
        if reader.take(8) != Some(&MAGIC) {
            return Ok(None);
        }
        if reader.u32() != Some(VERSION) {
            return Err(FsError::NotAVolume("of a format version that this program does not know"));
        }
        Self::decode_body(&mut reader).map(Some).ok_or(FsError::NotAVolume("its superblock makes no sense"))
    }

    fn decode_body(reader: &mut Reader<'_>) -> Option<Self> {
        let chunk_blocks = reader.u32()?;
        let volume = reader.take(16)?.try_into().ok()?;
        let (sequence, incarnation) = (reader.u64()?, reader.u64()?);
        let (journal_first, journal_blocks) = (reader.u32()?, reader.u32()?);
        let (tail_block, root_level) = (reader.u32()?, reader.u32()?);
        let (tail_sequence, chain) = (reader.u64()?, reader.u64()?);
        let (root_lba, map_lba) = (reader.u64()?, reader.u64()?);
        let map_bytes = reader.u32()?;
        reader.u32()?;
        let crc = reader.u64()?;
        let sane = chunk_blocks >= CHUNK_BLOCKS_MIN
            && journal_first == JOURNAL_FIRST
            && journal_blocks >= 16
            && journal_blocks < chunk_blocks - JOURNAL_FIRST
            && tail_block <= journal_blocks
            && [sequence, incarnation, tail_sequence].iter().all(|&count| count < COUNT_MAX)
            && [root_lba, map_lba].iter().all(|&lba| lba < LBA_MAX);
        sane.then_some(Self {
            chunk_blocks,
            volume,
            sequence,
            incarnation,
            journal_blocks,
            tail: Position { block: tail_block, sequence: tail_sequence, chain, total: 0 },
            root: (root_lba != 0)
                .then_some(Root { lba: Lba(root_lba), level: u8::try_from(root_level).ok()? }),
            space_map: (map_lba != 0).then_some(SpaceMapPlace {
                lba: Lba(map_lba),
                len_bytes: map_bytes,
                crc,
            }),
        })
    }
}
