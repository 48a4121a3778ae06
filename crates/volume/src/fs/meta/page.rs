//! One page of the tree: sorted entries that prove themselves by a checksum.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | `CTP2` |
//! | 4 | 1 | level; 0: a leaf |
//! | 5 | 1 | 0 |
//! | 6 | 2 | number of entries, at least 1 |
//! | 8 | 16 | volume id |
//! | 24 | 8 | the page's own first block |
//! | 32 | 8 | sequence of the superblock that published it |
//! | 40 | 8 | CRC-64/NVME of the first 40 bytes and of all from byte 48 |
//! | 48 | 2 each | offsets of the entries, in key order |
//!
//! An entry: key length (16 bits), value length (16 bits), key, value. In an inner page a value points to a page that holds keys from
//! this key on: its first block, the sequence of the superblock that published it, its checksum (64 bits each). The first entry's key
//! counts as smaller than all.

use sys::{Buf, BufMut};
use types::Lba;

use super::super::layout::{PAGE_BYTES, POINTER_BYTES, Pointer};
use super::VALUE_BYTES_MAX;
use super::key::{KEY_BYTES_MAX, Key};

const MAGIC: [u8; 4] = *b"CTP2";
const HEADER_BYTES: usize = 48;

/// Deepest tree that is believed.
pub const LEVELS_MAX: u8 = 12;

/// A page in memory, checked as a whole.
#[derive(Debug)]
pub struct Page {
    bytes: Buf,
    level: u8,
    count: usize,
    pointer: Pointer,
}

impl Page {
    /// `None` if the bytes are not the page of this volume at `lba`.
    pub fn decode(bytes: Buf, volume: &[u8; 16], lba: Lba) -> Option<Self> {
        if bytes.len() != PAGE_BYTES || bytes[0..4] != MAGIC || bytes[8..24] != volume[..] {
            return None;
        }
        if u64::from_le_bytes(bytes[24..32].try_into().ok()?) != lba.0 {
            return None;
        }
        let crc = codes::crc64_append(codes::crc64(&bytes[..40]), &bytes[HEADER_BYTES..]);
        if crc != u64::from_le_bytes(bytes[40..48].try_into().ok()?) {
            return None;
        }
        let pointer = Pointer { lba, sequence: u64::from_le_bytes(bytes[32..40].try_into().ok()?), crc };
        let level = bytes[4];
        let count = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        if count == 0 || level > LEVELS_MAX || HEADER_BYTES + 2 * count > PAGE_BYTES {
            return None;
        }
        let page = Self { bytes, level, count, pointer };
        page.check_entries().then_some(page)
    }

    fn check_entries(&self) -> bool {
        let mut last: Option<&[u8]> = None;
        for index in 0..self.count {
            let at = self.offset(index);
            let Some(head) = self.bytes.get(at..at + 4) else { return false };
            let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let value_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
            if key_len > KEY_BYTES_MAX
                || value_len > VALUE_BYTES_MAX
                || (self.level > 0 && value_len != POINTER_BYTES)
            {
                return false;
            }
            if at + 4 + key_len + value_len > self.bytes.len() {
                return false;
            }
            let key = &self.bytes[at + 4..at + 4 + key_len];
            if last.is_some_and(|last| last >= key) {
                return false;
            }
            last = Some(key);
        }
        true
    }

    fn offset(&self, index: usize) -> usize {
        let at = HEADER_BYTES + 2 * index;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    fn lengths(&self, at: usize) -> (usize, usize) {
        let bytes = &self.bytes;
        (
            usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])),
            usize::from(u16::from_le_bytes([bytes[at + 2], bytes[at + 3]])),
        )
    }

    /// Returns the pointer to this page, and to no other.
    pub fn pointer(&self) -> Pointer {
        self.pointer
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn key(&self, index: usize) -> &[u8] {
        let at = self.offset(index);
        let (key_len, _) = self.lengths(at);
        &self.bytes[at + 4..at + 4 + key_len]
    }

    /// The value's start and length within the page.
    pub fn value_place(&self, index: usize) -> (usize, usize) {
        let at = self.offset(index);
        let (key_len, value_len) = self.lengths(at);
        (at + 4 + key_len, value_len)
    }

    pub fn value(&self, index: usize) -> &[u8] {
        let (at, len) = self.value_place(index);
        &self.bytes[at..at + len]
    }

    pub fn bytes(&self) -> &Buf {
        &self.bytes
    }

    /// The page that an entry of an inner page points to. The lengths of all values are checked when a page is decoded.
    pub fn child(&self, index: usize) -> Pointer {
        let value: Result<[u8; POINTER_BYTES], _> = self.value(index).try_into();
        Pointer::decode(value.unwrap_or_default())
    }

    /// Number of entries whose key is smaller than `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Number of entries whose key is at most `key`.
    pub fn upper_bound(&self, key: &[u8]) -> usize {
        let low = self.lower_bound(key);
        if low < self.count && self.key(low) == key { low + 1 } else { low }
    }

    /// Which entry of an inner page covers `key`.
    pub fn child_for(&self, key: &[u8]) -> usize {
        self.upper_bound(key).saturating_sub(1)
    }
}

/// Gathers entries, in key order, until a page is full.
#[derive(Debug, Default)]
pub struct PageBuilder {
    entries: Vec<u8>,
    offsets: Vec<u16>,
    first: Key,
}

impl PageBuilder {
    /// Whether entries of this number of bytes, with their lengths and offsets, fit into one page.
    pub const CAPACITY_BYTES: usize = PAGE_BYTES - HEADER_BYTES;

    /// Whether one more such entry fits.
    pub fn fits(&self, key: &[u8], value: &[u8]) -> bool {
        HEADER_BYTES + 2 * (self.offsets.len() + 1) + self.entries.len() + 4 + key.len() + value.len()
            <= PAGE_BYTES
    }

    /// Bytes in use.
    pub fn filled(&self) -> usize {
        HEADER_BYTES + 2 * self.offsets.len() + self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        if self.offsets.is_empty() {
            self.first = Key::from_slice(key);
        }
        self.offsets.push(self.entries.len() as u16);
        self.entries.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.entries.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
    }

    /// The page, its first key and its pointer; the builder is empty again.
    pub fn finish(&mut self, volume: &[u8; 16], lba: Lba, level: u8, sequence: u64) -> (Key, Pointer, Buf) {
        let mut out = BufMut::zeroed(PAGE_BYTES);
        let base = HEADER_BYTES + 2 * self.offsets.len();
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = level;
        out[6..8].copy_from_slice(&(self.offsets.len() as u16).to_le_bytes());
        out[8..24].copy_from_slice(volume);
        out[24..32].copy_from_slice(&lba.0.to_le_bytes());
        out[32..40].copy_from_slice(&sequence.to_le_bytes());
        for (index, offset) in self.offsets.iter().enumerate() {
            let at = HEADER_BYTES + 2 * index;
            out[at..at + 2].copy_from_slice(&(offset + base as u16).to_le_bytes());
        }
        out[base..base + self.entries.len()].copy_from_slice(&self.entries);
        let crc = codes::crc64_append(codes::crc64(&out[..40]), &out[HEADER_BYTES..]);
        out[40..48].copy_from_slice(&crc.to_le_bytes());
        self.entries.clear();
        self.offsets.clear();
        (std::mem::take(&mut self.first), Pointer { lba, sequence, crc }, out.freeze())
    }
}
