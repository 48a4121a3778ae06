//! The metadata journal's format: batches of changes, chained by checksum, each atomic as a whole.
//!
//! A batch is whole blocks. Each ends with a seal (`codes::seal_block`); all of a batch have the same order, which grows from one batch
//! to the next, lost ones included. The 4080 bytes before the seals are, one after the other, a header of 72 bytes, operations, zeroes.
//! Numbers are little-endian.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | `CJB2` |
//! | 4 | 4 | blocks of this batch |
//! | 8 | 4 | bytes of operations |
//! | 12 | 4 | 0 |
//! | 16 | 16 | volume id |
//! | 32 | 8 | sequence, one more than the batch before |
//! | 40 | 8 | incarnation: grows with every opening, so that no two batches are equal |
//! | 48 | 8 | chain: checksum of the batch before |
//! | 56 | 8 | sequence up to which batches are known to be durable |
//! | 64 | 8 | CRC-64/NVME of the first 64 bytes and the operations |
//!
//! An operation is its kind (1 byte) and:
//! 1 put: key length (16 bits), value length (16 bits), key, value. 2 delete: key length, key.
//! 3 allocate, 4 free: first block (64 bits), blocks (32 bits). 5 chunk: index (32 bits), use (8 bits).
//! A batch with an operation of another kind was written by a newer program: the volume is refused.
//!
//! A reader takes a batch of any length that the journal holds. A writer keeps to less
//! ([`Log::batch_blocks_max`](super::log::Log::batch_blocks_max)), so that an opening reads little in
//! search of the proof that an unreadable batch was durable.

use std::rc::Rc;
use sys::{Buf, BufMut};
use types::{BLOCK_BYTES, Lba, VolumeId};

use super::super::layout::SEALED_BYTES;
use super::super::reader::Reader;
use super::super::types::FsError;
use super::VALUE_BYTES_MAX;
use super::key::{KEY_BYTES_MAX, Key};
use super::transaction::{BlockRun, ChunkUse, Transaction};

const MAGIC: [u8; 4] = *b"CJB2";
const HEADER_BYTES: usize = 72;

/// The highest kind of operation.
const KIND_LAST: u8 = 5;

/// One change in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalOperation {
    Put { key: Key, value: Rc<[u8]> },
    Delete { key: Key },
    Allocate(BlockRun),
    Free(BlockRun),
    Chunk { chunk: u32, chunk_use: ChunkUse },
}

/// Appends a transaction's changes to the operations of a batch.
pub fn encode_transaction(txn: &Transaction, out: &mut Vec<u8>) {
    for (key, value) in &txn.changes {
        match value {
            Some(value) => {
                out.push(1);
                out.extend_from_slice(&(key.len() as u16).to_le_bytes());
                out.extend_from_slice(&(value.len() as u16).to_le_bytes());
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            None => {
                out.push(2);
                out.extend_from_slice(&(key.len() as u16).to_le_bytes());
                out.extend_from_slice(key);
            }
        }
    }
    for (kind, runs) in [(3, &txn.allocated), (4, &txn.freed)] {
        for run in runs {
            out.push(kind);
            out.extend_from_slice(&run.lba.0.to_le_bytes());
            out.extend_from_slice(&run.blocks.to_le_bytes());
        }
    }
    for &(chunk, chunk_use) in &txn.chunks {
        out.push(5);
        out.extend_from_slice(&chunk.to_le_bytes());
        out.push(chunk_use as u8);
    }
}

fn decode_operation(reader: &mut Reader<'_>) -> Option<JournalOperation> {
    let kind = reader.u8()?;
    Some(match kind {
        1 => {
            let (key_len, value_len) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
            if key_len == 0 || key_len > KEY_BYTES_MAX || value_len > VALUE_BYTES_MAX {
                return None;
            }
            JournalOperation::Put {
                key: Key::from_slice(reader.take(key_len)?),
                value: reader.take(value_len)?.into(),
            }
        }
        2 => {
            let key_len = usize::from(reader.u16()?);
            if key_len == 0 || key_len > KEY_BYTES_MAX {
                return None;
            }
            JournalOperation::Delete { key: Key::from_slice(reader.take(key_len)?) }
        }
        3 | 4 => {
            let run = BlockRun { lba: Lba(reader.u64()?), blocks: reader.u32()? };
            run.lba.0.checked_add(u64::from(run.blocks))?;
            if kind == 3 { JournalOperation::Allocate(run) } else { JournalOperation::Free(run) }
        }
        5 => {
            let (chunk, chunk_use) = (reader.u32()?, ChunkUse::from_number(reader.u8()?)?);
            if chunk == 0 || chunk_use == ChunkUse::Journal {
                return None;
            }
            JournalOperation::Chunk { chunk, chunk_use }
        }
        _ => return None,
    })
}

/// The facts of a batch beside its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub blocks: u32,
    pub operation_bytes: u32,
    pub volume: [u8; 16],
    pub sequence: u64,
    pub incarnation: u64,
    /// The checksum of the batch before.
    pub chain: u64,
    pub acknowledged: u64,
}

/// Blocks of a batch with this number of bytes of operations.
pub fn batch_blocks(operation_bytes: usize) -> u32 {
    (HEADER_BYTES + operation_bytes).div_ceil(SEALED_BYTES) as u32
}

/// A batch's blocks, to be written at `lba`, and its checksum: the chain of the next one. `blocks` and `operation_bytes` of the
/// header are filled in.
pub fn encode_batch(header: &BatchHeader, order: u64, lba: Lba, operations: &[u8]) -> (Buf, u64) {
    let blocks = batch_blocks(operations.len());
    let mut head = [0; HEADER_BYTES];
    head[0..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&blocks.to_le_bytes());
    head[8..12].copy_from_slice(&(operations.len() as u32).to_le_bytes());
    head[16..32].copy_from_slice(&header.volume);
    head[32..40].copy_from_slice(&header.sequence.to_le_bytes());
    head[40..48].copy_from_slice(&header.incarnation.to_le_bytes());
    head[48..56].copy_from_slice(&header.chain.to_le_bytes());
    head[56..64].copy_from_slice(&header.acknowledged.to_le_bytes());
    let crc = codes::crc64_append(codes::crc64(&head[..64]), operations);
    head[64..72].copy_from_slice(&crc.to_le_bytes());
    let mut out = BufMut::zeroed(blocks as usize * BLOCK_BYTES);
    let volume = VolumeId::from_bytes(header.volume);
    let mut rest = operations;
    for (index, block) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let from = if index == 0 { HEADER_BYTES } else { 0 };
        block[..from].copy_from_slice(&head[..from]);
        let (here, later) = rest.split_at(rest.len().min(SEALED_BYTES - from));
        block[from..from + here.len()].copy_from_slice(here);
        rest = later;
        codes::seal_block(volume, lba.offset(index as u64), order, block);
    }
    (out.freeze(), crc)
}

/// Decodes the header of a possible batch of at most `blocks_max` blocks: it says how many blocks to
/// read, and proves nothing.
pub fn decode_header(block: &[u8], blocks_max: u32) -> Option<BatchHeader> {
    let mut reader = Reader(block);
    if reader.take(4)? != MAGIC {
        return None;
    }
    let (blocks, operation_bytes) = (reader.u32()?, reader.u32()?);
    reader.u32()?;
    let header = BatchHeader {
        blocks,
        operation_bytes,
        volume: reader.take(16)?.try_into().ok()?,
        sequence: reader.u64()?,
        incarnation: reader.u64()?,
        chain: reader.u64()?,
        acknowledged: reader.u64()?,
    };
    let fits = blocks <= blocks_max && batch_blocks(operation_bytes as usize) == blocks;
    fits.then_some(header)
}

/// A whole batch.
#[derive(Debug)]
pub struct Batch {
    pub header: BatchHeader,
    /// Checksum of the batch: the chain of the next one.
    pub crc: u64,
    /// Order of the batch's blocks.
    pub order: u64,
    operations: Vec<u8>,
}

impl Batch {
    /// `None` if anything is wrong with the bytes, found at `lba`, as a batch.
    pub fn decode(bytes: &[u8], lba: Lba) -> Option<Self> {
        let header = decode_header(bytes, u32::try_from(bytes.len() / BLOCK_BYTES).ok()?)?;
        if bytes.len() != header.blocks as usize * BLOCK_BYTES {
            return None;
        }
        let volume = VolumeId::from_bytes(header.volume);
        let order = codes::sealed_order(volume, lba, bytes.get(..BLOCK_BYTES)?)?;
        let mut content = Vec::with_capacity(bytes.len());
        for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            if codes::sealed_order(volume, lba.offset(index as u64), block)? != order {
                return None;
            }
            content.extend_from_slice(&block[..SEALED_BYTES]);
        }
        content.truncate(HEADER_BYTES.checked_add(header.operation_bytes as usize)?);
        let operations = content.split_off(HEADER_BYTES);
        let stored = u64::from_le_bytes(content.get(64..72)?.try_into().ok()?);
        let crc = codes::crc64_append(codes::crc64(content.get(..64)?), &operations);
        (crc == stored).then_some(Self { header, crc, order, operations })
    }

    /// Returns the batch's changes, in order.
    ///
    /// # Errors
    /// `OtherFormat` if one is of a kind unknown to this program, `Corrupt` if one makes no sense.
    pub fn operations(&self) -> Result<Vec<JournalOperation>, FsError> {
        let (mut reader, mut out) = (Reader(&self.operations), Vec::new());
        while let Some(&kind) = reader.0.first() {
            if !(1..=KIND_LAST).contains(&kind) {
                return Err(FsError::OtherFormat(
                    "the volume's journal has a change of a kind that this version does not know; nothing was changed: open the \
                     volume with the version that wrote it",
                ));
            }
            out.push(decode_operation(&mut reader).ok_or(FsError::damaged("journal batch"))?);
        }
        Ok(out)
    }
}
