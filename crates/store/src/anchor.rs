//! The anchor: start of the journal, and the incarnation that may continue it; and the records
//! slots (docs/ON_DISK.md, "Anchor", "Records").

use crate::bytes::{COUNT_MAX, Reader, put_u64, sealed_crc, u64_at};
use crate::layout::{PAGE_BYTES, RECORDS_BYTES_MAX};
use types::DiskId;

const ANCHOR_MAGIC: [u8; 8] = *b"CENOTE\x01A";
const RECORDS_MAGIC: [u8; 8] = *b"CENOTE\x01R";
const CRC_AT: usize = 8;
/// Fields of the header page of a records slot; the rest of the page is zero.
const RECORDS_HEADER_BYTES: usize = 32;

/// The state from which replay starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anchor {
    /// Grows with every anchor written.
    pub sequence: u64,
    /// Grows with every opening; batches carry it.
    pub incarnation: u64,
    /// The first batch that replay needs.
    pub tail_sequence: u64,
    /// Place of that batch, in blocks from the start of the journal.
    pub tail_block: u32,
    /// CRC of the batch before it.
    pub previous: u64,
    /// Batches up to this one were durable when the anchor was written: replay must find them.
    pub durable_through: u64,
    /// Lower bound of the generation that the next allocated slab gets.
    pub next_generation: u64,
    /// Place from which the scrub continues.
    pub scrub_slab: u32,
    /// Block within that slab from which the scrub continues.
    pub scrub_block: u32,
}

impl Anchor {
    pub(crate) fn encode(&self, disk: DiskId) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES);
        out.extend_from_slice(&ANCHOR_MAGIC);
        out.extend_from_slice(&[0; 8]);
        for number in [
            self.sequence,
            self.incarnation,
            self.tail_sequence,
            self.previous,
            self.durable_through,
            self.next_generation,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.tail_block, self.scrub_slab, self.scrub_block] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(PAGE_BYTES, 0);
        let crc = sealed_crc(&disk.to_bytes(), &out, CRC_AT);
        put_u64(&mut out, CRC_AT, crc);
        out
    }
}

/// Reads one copy of an anchor; `None` if it is absent, damaged or another disk's.
pub fn parse_anchor(disk: DiskId, block: &[u8]) -> Option<Anchor> {
    let intact = block.len() == PAGE_BYTES
        && block.starts_with(&ANCHOR_MAGIC)
        && u64_at(block, CRC_AT) == sealed_crc(&disk.to_bytes(), block, CRC_AT);
    if !intact {
        return None;
    }
    let mut reader = Reader::new(block.get(16..)?);
    let (sequence, incarnation, tail_sequence) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (previous, durable_through, next_generation) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (tail_block, scrub_slab, scrub_block) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let counts = [sequence, incarnation, tail_sequence, durable_through, next_generation];
    (tail_sequence > 0 && counts.iter().all(|&count| count < COUNT_MAX)).then_some(Anchor {
        sequence,
        incarnation,
        tail_sequence,
        tail_block,
        previous,
        durable_through,
        next_generation,
        scrub_slab,
        scrub_block,
    })
}

/// Whether a crash may have left this header page in the slot of this parity: a page never written,
/// or one written there, since its nonzero part lies in one sector. The records behind it may be
/// torn nevertheless.
pub(crate) fn may_be_records_header(parity: usize, page: &[u8]) -> bool {
    let (sector, rest) = page.split_at(RECORDS_HEADER_BYTES.min(page.len()));
    let (sequence, len) = (u64_at(sector, 16), u64_at(sector, 24));
    let written = sector.starts_with(&RECORDS_MAGIC)
        && sequence < COUNT_MAX
        && sequence % 2 == parity as u64
        && len <= RECORDS_BYTES_MAX as u64;
    (written || sector.iter().all(|byte| *byte == 0)) && rest.iter().all(|byte| *byte == 0)
}

/// Returns the size in bytes of a records slot with this header page.
pub(crate) fn records_slot_bytes(header: &[u8]) -> usize {
    let len = usize::try_from(u64_at(header, 24)).unwrap_or(usize::MAX);
    let len = if header.starts_with(&RECORDS_MAGIC) { len.min(RECORDS_BYTES_MAX) } else { 0 };
    PAGE_BYTES + len.next_multiple_of(PAGE_BYTES)
}

/// Encodes a records slot: one header page, then the records. `records` must be at most
/// [`RECORDS_BYTES_MAX`] long.
pub(crate) fn encode_records(disk: DiskId, sequence: u64, records: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_BYTES + records.len().next_multiple_of(PAGE_BYTES));
    out.extend_from_slice(&RECORDS_MAGIC);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&(records.len() as u64).to_le_bytes());
    out.resize(PAGE_BYTES, 0);
    out.extend_from_slice(records);
    let crc = sealed_crc(&disk.to_bytes(), &out, CRC_AT);
    put_u64(&mut out, CRC_AT, crc);
    out.resize(out.len().next_multiple_of(PAGE_BYTES), 0);
    out
}

/// Reads a records slot: its sequence and the records; `None` if it is absent, damaged or another disk's.
pub fn parse_records(disk: DiskId, slot: &[u8]) -> Option<(u64, &[u8])> {
    if !slot.starts_with(&RECORDS_MAGIC) {
        return None;
    }
    let mut reader = Reader::new(slot.get(16..)?);
    let (sequence, len) = (reader.u64()?, usize::try_from(reader.u64()?).ok()?);
    if len > RECORDS_BYTES_MAX || sequence >= COUNT_MAX {
        return None;
    }
    let sealed = slot.get(..PAGE_BYTES + len)?;
    (u64_at(slot, CRC_AT) == sealed_crc(&disk.to_bytes(), sealed, CRC_AT))
        .then(|| (sequence, sealed.get(PAGE_BYTES..).unwrap_or(&[])))
}
