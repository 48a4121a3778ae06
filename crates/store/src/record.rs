//! Journal batches: header, records, chain (docs/ON_DISK.md, "Journal"). Parses without trust.

use crate::bytes::{COUNT_MAX, Reader, put_u64, sealed_crc, u64_at};
use crate::layout::PAGE_BYTES;
use types::{ChunkIndex, DiskId, Epoch, SlabIndex, Stamp, VolumeId};

const MAGIC: [u8; 8] = *b"CENOTE\x01B";
const CRC_AT: usize = 8;
pub(crate) const HEADER_BYTES: usize = 72;
/// Most blocks of a batch's header and records.
pub(crate) const HEADER_BLOCKS_MAX: u32 = 16;
/// Most data blocks of a batch.
pub(crate) const DATA_BLOCKS_MAX: u32 = 256;
const FLAG_WRAP: u32 = 1;

/// One change as the journal records it. Blocks are counted within the slab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The blocks' data follow the header, one block per checksum. Volume and chunk seed the checksums:
    /// replay verifies them even if the slab has changed hands later.
    Overwrite {
        /// Slab that the blocks belong to.
        slab: SlabIndex,
        /// First block, counted within the slab.
        first: u32,
        /// Stamp of the write.
        stamp: Stamp,
        /// Volume that had the slab when the write was recorded.
        volume: VolumeId,
        /// Chunk that had the slab when the write was recorded.
        chunk: ChunkIndex,
        /// CRC-64/NVME of each block; their number is that of the blocks.
        checksums: Vec<u64>,
    },
    /// The blocks' data are in place, durable before this record was written. For an append slab:
    /// the blocks' words.
    Fresh {
        /// Slab that the blocks lie in.
        slab: SlabIndex,
        /// First block, counted within the slab.
        first: u32,
        /// Stamp of the write.
        stamp: Stamp,
        /// CRC-64/NVME, or for an append slab the word, of each block.
        checksums: Vec<u64>,
    },
    /// The blocks' data are written in place concurrently with this record. The record counts if
    /// the data are there, or if the batch is known to have been durable with all that belongs to
    /// it. Before, the blocks read as zeroes.
    Placed {
        /// Slab that the blocks lie in.
        slab: SlabIndex,
        /// First block, counted within the slab.
        first: u32,
        /// Stamp of the write.
        stamp: Stamp,
        /// CRC-64/NVME of each block, by which replay verifies the data in place.
        checksums: Vec<u64>,
    },
    /// Makes the blocks read as zeroes.
    Discard {
        /// Slab that the blocks lie in.
        slab: SlabIndex,
        /// First block, counted within the slab.
        first: u32,
        /// Number of blocks.
        count: u32,
        /// Stamp of the discard.
        stamp: Stamp,
    },
    /// Makes the blocks of an append slab read as the bytes in place.
    Append {
        /// Slab that the blocks lie in.
        slab: SlabIndex,
        /// First block, counted within the slab.
        first: u32,
        /// Number of blocks.
        count: u32,
        /// Stamp of the write.
        stamp: Stamp,
    },
    /// Gives the slab to the chunk from here on, with all blocks unwritten.
    Allocate {
        /// Slab that is taken.
        slab: SlabIndex,
        /// Volume that gets the slab.
        volume: VolumeId,
        /// Chunk of the volume that gets the slab.
        chunk: ChunkIndex,
        /// Epoch under which the slab is allocated.
        epoch: Epoch,
        /// Whether the chunk is of class [`WriteClass::Append`](crate::api::WriteClass::Append).
        append: bool,
        /// Number of this allocation, used only once on a disk.
        generation: u64,
    },
    /// Takes the slab from its chunk.
    Free {
        /// Slab that is given back.
        slab: SlabIndex,
    },
    /// Promises an epoch; epoch 0 removes the promise.
    Promise {
        /// Volume that gets the promise.
        volume: VolumeId,
        /// Epoch below which requests of the volume are refused.
        epoch: Epoch,
    },
}

const OVERWRITE: u32 = 1;
const FRESH: u32 = 2;
const DISCARD: u32 = 3;
const APPEND: u32 = 4;
const ALLOCATE: u32 = 5;
const FREE: u32 = 6;
const PROMISE: u32 = 7;
const PLACED: u32 = 8;

impl Record {
    /// Returns the size of its encoding in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Self::Overwrite { checksums, .. } => 48 + 8 * checksums.len(),
            Self::Fresh { checksums, .. } | Self::Placed { checksums, .. } => 24 + 8 * checksums.len(),
            Self::Discard { .. } | Self::Append { .. } => 24,
            Self::Allocate { .. } => 48,
            Self::Free { .. } => 8,
            Self::Promise { .. } => 32,
        }
    }

    /// Returns the number of data blocks that follow the header.
    pub(crate) fn data_blocks(&self) -> u32 {
        match self {
            Self::Overwrite { checksums, .. } => checksums.len() as u32,
            _ => 0,
        }
    }

    /// Returns the slab whose metadata it changes, first block, number of blocks, stamp.
    pub(crate) fn blocks(&self) -> Option<(SlabIndex, u32, u32, Stamp)> {
        match self {
            Self::Overwrite { slab, first, stamp, checksums, .. }
            | Self::Fresh { slab, first, stamp, checksums }
            | Self::Placed { slab, first, stamp, checksums } => {
                Some((*slab, *first, checksums.len() as u32, *stamp))
            }
            Self::Discard { slab, first, count, stamp } | Self::Append { slab, first, count, stamp } => {
                Some((*slab, *first, *count, *stamp))
            }
            Self::Allocate { .. } | Self::Free { .. } | Self::Promise { .. } => None,
        }
    }

    /// Returns the word of the block `at` blocks after the first.
    pub(crate) fn word(&self, at: usize) -> u64 {
        match self {
            Self::Overwrite { checksums, .. }
            | Self::Fresh { checksums, .. }
            | Self::Placed { checksums, .. } => checksums.get(at).copied().unwrap_or(codes::LOST),
            Self::Append { .. } => APPEND_WRITTEN,
            _ => codes::UNWRITTEN,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut range = |kind: u32, slab: SlabIndex, first: u32, count: u32, stamp: Stamp| {
            for number in [kind, slab.0, first, count] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&stamp.word().to_le_bytes());
        };
        let words = |out: &mut Vec<u8>, words: &[u64]| {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        };
        match self {
            Self::Overwrite { slab, first, stamp, volume, chunk, checksums } => {
                range(OVERWRITE, *slab, *first, checksums.len() as u32, *stamp);
                out.extend_from_slice(&volume.to_bytes());
                out.extend_from_slice(&chunk.0.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                words(out, checksums);
            }
            Self::Fresh { slab, first, stamp, checksums } => {
                range(FRESH, *slab, *first, checksums.len() as u32, *stamp);
                words(out, checksums);
            }
            Self::Placed { slab, first, stamp, checksums } => {
                range(PLACED, *slab, *first, checksums.len() as u32, *stamp);
                words(out, checksums);
            }
            Self::Discard { slab, first, count, stamp } => range(DISCARD, *slab, *first, *count, *stamp),
            Self::Append { slab, first, count, stamp } => range(APPEND, *slab, *first, *count, *stamp),
            Self::Allocate { slab, volume, chunk, epoch, append, generation } => {
                for number in [ALLOCATE, slab.0, chunk.0, u32::from(*append)] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.extend_from_slice(&volume.to_bytes());
                out.extend_from_slice(&epoch.0.to_le_bytes());
                out.extend_from_slice(&generation.to_le_bytes());
            }
            Self::Free { slab } => {
                out.extend_from_slice(&FREE.to_le_bytes());
                out.extend_from_slice(&slab.0.to_le_bytes());
            }
            Self::Promise { volume, epoch } => {
                out.extend_from_slice(&PROMISE.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&volume.to_bytes());
                out.extend_from_slice(&epoch.0.to_le_bytes());
            }
        }
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = reader.u32()?;
        let first_field = reader.u32()?;
        let slab = SlabIndex(first_field);
        Some(match kind {
            OVERWRITE | FRESH | PLACED | DISCARD | APPEND => {
                let (first, count) = (reader.u32()?, reader.u32()?);
                let stamp = Stamp::from_word(reader.u64()?);
                match kind {
                    DISCARD => Self::Discard { slab, first, count, stamp },
                    APPEND => Self::Append { slab, first, count, stamp },
                    FRESH => Self::Fresh { slab, first, stamp, checksums: words(reader, count)? },
                    PLACED => Self::Placed { slab, first, stamp, checksums: words(reader, count)? },
                    _ => {
                        let volume = VolumeId::from_bytes(reader.array()?);
                        let (chunk, _reserved) = (ChunkIndex(reader.u32()?), reader.u32()?);
                        let checksums = words(reader, count)?;
                        Self::Overwrite { slab, first, stamp, volume, chunk, checksums }
                    }
                }
            }
            ALLOCATE => {
                let (chunk, append) = (ChunkIndex(reader.u32()?), reader.u32()? != 0);
                let volume = VolumeId::from_bytes(reader.array()?);
                let (epoch, generation) = (Epoch(reader.u64()?), reader.u64()?);
                if generation >= COUNT_MAX {
                    return None;
                }
                Self::Allocate { slab, volume, chunk, epoch, append, generation }
            }
            FREE => Self::Free { slab },
            PROMISE => {
                let volume = VolumeId::from_bytes(reader.array()?);
                Self::Promise { volume, epoch: Epoch(reader.u64()?) }
            }
            _ => return None,
        })
    }
}

fn words(reader: &mut Reader<'_>, count: u32) -> Option<Vec<u64>> {
    let bytes = reader.take((count as usize).checked_mul(8)?)?;
    Some(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// The word of a written block of an append slab.
pub(crate) const APPEND_WRITTEN: u64 = 1;
/// The word of a block of an append slab whose copies all fail to prove themselves: it reads as
/// corrupt until it is written again.
pub(crate) const APPEND_LOST: u64 = 2;

/// The fields of a batch's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// One more than the preceding batch's.
    pub sequence: u64,
    /// Number of the opening of the disk under which the batch was written.
    pub incarnation: u64,
    /// CRC of the preceding batch, which makes the chain.
    pub previous: u64,
    /// All batches up to this one were durable when this one was written.
    pub durable_through: u64,
    /// Blocks of header and records.
    pub header_blocks: u32,
    /// Blocks of data that follow.
    pub data_blocks: u32,
    /// Number of records behind the header.
    pub record_count: u32,
    /// Whether the next batch lies at the start of the journal.
    pub wrap: bool,
    /// This batch's own CRC.
    pub crc: u64,
}

/// Encodes header and records as they lie on disk. Ignores the header's `crc`, and returns the real
/// one.
pub(crate) fn encode_batch(disk: DiskId, header: &BatchHeader, records: &[&Record], out: &mut [u8]) -> u64 {
    let mut bytes = Vec::with_capacity(out.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[0; 8]);
    for number in [header.sequence, header.incarnation, header.previous, header.durable_through] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let flags = if header.wrap { FLAG_WRAP } else { 0 };
    for number in [header.header_blocks, header.data_blocks, header.record_count, flags, 0, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    records.iter().for_each(|record| record.encode(&mut bytes));
    out[..bytes.len()].copy_from_slice(&bytes);
    out[bytes.len()..].fill(0);
    let crc = sealed_crc(&disk.to_bytes(), out, CRC_AT);
    put_u64(out, CRC_AT, crc);
    crc
}

/// The chain's CRC before the first batch of a disk.
pub(crate) const NO_BATCH_BEFORE: u64 = 0;

/// Position in the chain that a block names if it is the first of a batch. The rest of the block
/// may be damaged: a header may have rotted in any of its fields.
pub(crate) struct BatchLink {
    pub(crate) sequence: u64,
    pub(crate) incarnation: u64,
    pub(crate) previous: u64,
}

impl BatchLink {
    pub(crate) fn read(block: &[u8]) -> Self {
        let [sequence, incarnation, previous] = [16, 24, 32].map(|at| u64_at(block, at));
        Self { sequence, incarnation, previous }
    }
}

/// Reads the header's fields from its first block, before its CRC can be checked; `None` if the
/// block is no header.
pub fn parse_batch_header(block: &[u8]) -> Option<BatchHeader> {
    if block.len() < PAGE_BYTES || !block.starts_with(&MAGIC) {
        return None;
    }
    let mut reader = Reader::new(block.get(CRC_AT..)?);
    let crc = reader.u64()?;
    let (sequence, incarnation, previous) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let durable_through = reader.u64()?;
    let (header_blocks, data_blocks) = (reader.u32()?, reader.u32()?);
    let (record_count, flags) = (reader.u32()?, reader.u32()?);
    let bounded = (1..=HEADER_BLOCKS_MAX).contains(&header_blocks) && data_blocks <= DATA_BLOCKS_MAX;
    bounded.then_some(BatchHeader {
        sequence,
        incarnation,
        previous,
        durable_through,
        header_blocks,
        data_blocks,
        record_count,
        wrap: flags & FLAG_WRAP != 0,
        crc,
    })
}

/// Reads a batch's records from all of its header blocks; `None` if its CRC fails or its counts do not fit.
pub fn parse_batch(disk: DiskId, bytes: &[u8]) -> Option<(BatchHeader, Vec<Record>)> {
    let header = parse_batch_header(bytes)?;
    let sealed = bytes.get(..header.header_blocks as usize * PAGE_BYTES)?;
    if sealed_crc(&disk.to_bytes(), sealed, CRC_AT) != header.crc {
        return None;
    }
    let mut reader = Reader::new(sealed.get(HEADER_BYTES..)?);
    let mut records = Vec::new();
    let mut data_blocks = 0u32;
    for _ in 0..header.record_count {
        let record = Record::parse(&mut reader)?;
        data_blocks = data_blocks.checked_add(record.data_blocks())?;
        records.push(record);
    }
    (data_blocks == header.data_blocks && u64_at(sealed, CRC_AT) == header.crc).then_some((header, records))
}
