//! Layout of the virtual disk, and the superblock that describes it.
//!
//! Chunk 0 carries the superblock's two places (blocks 0 and 1) and, from block 4 on, the journal: they are written with
//! class `Append`, and nothing else is. Each of their blocks ends with a seal (`codes::seal_block`). All other chunks carry tree pages
//! and space maps, or extents. A superblock is one block, numbers little-endian:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `CENOTEFS` |
//! | 8 | 4 | format version: 2; 3 if there are features |
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
//! | 80 | 24 | root page, as inner pages point to theirs; address 0: none |
//! | 104 | 24 | first page of the space map, in the same way; address 0: none |
//! | 128 | 4 | bytes of the space map |
//! | 132 | 4 | features: a program that does not know a bit of these must leave the volume alone. Version 2 has none |
//! | 136 | 8 | order: journal blocks written before this superblock have a smaller one, unless they are replayed |
//! | 144 | 4 | most blocks of a batch from the one at which replay begins; 0, as older programs write it: any that fits the journal |
//! | 4080 | 16 | seal; its order is the sequence |

use std::num::NonZeroU32;

use ::types::{BLOCK_BYTES, Lba, VolumeId};
use codes::SEAL_BYTES;
use sys::{Buf, BufMut};

use super::reader::Reader;
use super::types::FsError;

const MAGIC: [u8; 8] = *b"CENOTEFS";
/// Version of a volume that every program of format 2 reads.
const VERSION: u32 = 2;
/// Version of a volume with features: programs from before there were any refuse it by this number.
const VERSION_WITH_FEATURES: u32 = 3;

bitflags::bitflags! {
    /// Metadata that a volume has beyond the first version of its format.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Features: u32 {
        /// Use of space is counted by owner: programs that change files must keep the counts.
        const QUOTAS = 1;
        /// Opens outlive the server ([`super::open_state`]): programs that open files must restore and
        /// respect them.
        const OPENS = 2;
    }
}

/// The two places of the superblock; number n is written to place n % 2.
pub const SUPERBLOCK_LBAS: [Lba; 2] = [Lba(0), Lba(1)];

/// First block of the journal. Chunk 0 holds nothing but the journal and the superblocks.
pub const JOURNAL_FIRST: u32 = 4;

/// Largest journal in blocks: 64 MiB.
pub const JOURNAL_BLOCKS_MAX: u32 = 16384;

/// Chunks of the smallest volume: the journal's, one of metadata, one of data.
pub const CHUNKS_MIN: u32 = 3;

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

/// Bytes of a block that proves itself, without its seal.
pub const SEALED_BYTES: usize = BLOCK_BYTES - SEAL_BYTES;

/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 24;

/// A page's place, and which page lies there: an intact older page in the same place does not match.
/// Stored as three numbers of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    pub lba: Lba,
    /// Sequence of the superblock that published the page.
    pub sequence: u64,
    /// The page's checksum.
    pub crc: u64,
}

impl Pointer {
    pub fn encode(&self) -> [u8; POINTER_BYTES] {
        let mut out = [0; POINTER_BYTES];
        out[..8].copy_from_slice(&self.lba.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    pub fn decode(bytes: [u8; POINTER_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let [lba, sequence, crc] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
        Self { lba: Lba(lba), sequence, crc }
    }
}

/// The topmost page of a tree, and how far it is from the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    pub page: Pointer,
    /// 0: a leaf.
    pub level: u8,
}

/// Bytes of the space map in one page, behind the pointer to the next one.
pub const SPACE_MAP_PIECE_BYTES: usize = PAGE_BYTES - POINTER_BYTES;

/// A place in the journal, between two batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Block within the journal region at which the next batch begins, unless it does not fit before the region's end:
    /// then it begins at 0.
    pub block: u32,
    /// The next batch's number.
    pub sequence: u64,
    /// Checksum of the batch before.
    pub chain: u64,
    /// Blocks appended since the journal was made, skipped ones included: differences give the blocks in
    /// use. Not stored.
    pub total: u64,
}

/// The stored space map's place and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapPlace {
    /// First page; the checksum is that of the whole page.
    pub first: Pointer,
    pub len_bytes: u32,
}

/// Offset of the features in a superblock.
const FEATURES_AT: usize = 132;

/// No count of changes and no address gets there; one that did could not grow.
const COUNT_MAX: u64 = 1 << 62;
const LBA_MAX: u64 = 1 << 52;

/// The record from which all else is found.
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
    /// Greater than the order of every journal block written before this superblock, except for those that
    /// replay finds.
    pub order: u64,
    pub features: Features,
    /// Bound on the blocks of every batch from the tail on; `None`: unknown, a program without a bound
    /// wrote there.
    pub batch_blocks_max: Option<NonZeroU32>,
}

impl Superblock {
    pub fn encode(&self) -> Buf {
        let mut out = BufMut::zeroed(BLOCK_BYTES);
        let mut bytes = Vec::with_capacity(112);
        bytes.extend_from_slice(&MAGIC);
        let version = if self.features.is_empty() { VERSION } else { VERSION_WITH_FEATURES };
        bytes.extend_from_slice(&version.to_le_bytes());
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
        bytes.extend_from_slice(&self.root.map_or([0; POINTER_BYTES], |root| root.page.encode()));
        bytes.extend_from_slice(&self.space_map.map_or([0; POINTER_BYTES], |map| map.first.encode()));
        bytes.extend_from_slice(&self.space_map.map_or(0, |map| map.len_bytes).to_le_bytes());
        bytes.extend_from_slice(&self.features.bits().to_le_bytes());
        bytes.extend_from_slice(&self.order.to_le_bytes());
        bytes.extend_from_slice(&self.batch_blocks_max.map_or(0, NonZeroU32::get).to_le_bytes());
        out[..bytes.len()].copy_from_slice(&bytes);
        codes::seal_block(VolumeId::from_bytes(self.volume), self.lba(), self.sequence, &mut out);
        out.freeze()
    }

    /// The place of this superblock.
    pub fn lba(&self) -> Lba {
        SUPERBLOCK_LBAS[(self.sequence % 2) as usize]
    }

    /// Decodes the block found at `lba`. `Ok(None)` if it is no intact superblock.
    ///
    /// # Errors
    /// `OtherFormat` for another version, `NotAVolume` if it makes no sense: the volume is left untouched.
    pub fn decode(block: &[u8], lba: Lba) -> Result<Option<Self>, FsError> {
        if block.len() != BLOCK_BYTES || block[..8] != MAGIC {
            return Ok(None);
        }
        let mut reader = Reader(&block[8..SEALED_BYTES]);
        let version = reader.u32();
        if version == Some(1) && is_format_1(block) {
            return Err(FsError::OtherFormat(
                "the volume has format 1, which this version does not read; nothing was changed: copy the files away with the \
                 version that made it, then make the volume anew",
            ));
        }
        let volume = VolumeId::from_bytes(block[16..32].try_into().unwrap_or_default());
        let Some(order) = codes::sealed_order(volume, lba, block) else { return Ok(None) };
        let newer = FsError::OtherFormat(
            "the volume has a newer format than this version knows; nothing was changed: open it with the version that wrote it",
        );
        let bits = Reader(&block[FEATURES_AT..]).u32().unwrap_or_default();
        let features = match version {
            Some(VERSION) => Features::empty(),
            Some(VERSION_WITH_FEATURES) => Features::from_bits(bits).ok_or(newer)?,
            _ => return Err(newer),
        };
        let superblock =
            Self::decode_body(&mut reader, features).filter(|superblock| superblock.sequence == order);
        superblock.map(Some).ok_or(FsError::NotAVolume("its superblock makes no sense"))
    }

    fn decode_body(reader: &mut Reader<'_>, features: Features) -> Option<Self> {
        let chunk_blocks = reader.u32()?;
        let volume = reader.take(16)?.try_into().ok()?;
        let (sequence, incarnation) = (reader.u64()?, reader.u64()?);
        let (journal_first, journal_blocks) = (reader.u32()?, reader.u32()?);
        let (tail_block, root_level) = (reader.u32()?, reader.u32()?);
        let (tail_sequence, chain) = (reader.u64()?, reader.u64()?);
        let root = Pointer::decode(reader.take(POINTER_BYTES)?.try_into().ok()?);
        let map = Pointer::decode(reader.take(POINTER_BYTES)?.try_into().ok()?);
        let map_bytes = reader.u32()?;
        reader.u32()?;
        let order = reader.u64()?;
        let batch_blocks_max = NonZeroU32::new(reader.u32()?);
        let sane = chunk_blocks >= CHUNK_BLOCKS_MIN
            && journal_first == JOURNAL_FIRST
            && journal_blocks >= 16
            && journal_blocks < chunk_blocks - JOURNAL_FIRST
            && tail_block <= journal_blocks
            && [sequence, incarnation, tail_sequence, order].iter().all(|&count| count < COUNT_MAX)
            && [root.lba.0, map.lba.0].iter().all(|&lba| lba < LBA_MAX);
        sane.then_some(Self {
            chunk_blocks,
            volume,
            sequence,
            incarnation,
            journal_blocks,
            tail: Position { block: tail_block, sequence: tail_sequence, chain, total: 0 },
            root: (root.lba.0 != 0).then_some(Root { page: root, level: u8::try_from(root_level).ok()? }),
            space_map: (map.lba.0 != 0).then_some(SpaceMapPlace { first: map, len_bytes: map_bytes }),
            order,
            features,
            batch_blocks_max,
        })
    }
}

/// Whether a block with the magic is a superblock of format 1: its last 8 bytes were the checksum of all before.
fn is_format_1(block: &[u8]) -> bool {
    let Some((body, stored)) = block.split_last_chunk::<8>() else { return false };
    codes::crc64(body) == u64::from_le_bytes(*stored)
}
