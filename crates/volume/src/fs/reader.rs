//! Reads numbers and bytes off the front of stored bytes; never past their end.

use super::types::WideString;

/// Takes numbers off the front of a record.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }
    pub fn u16(&mut self) -> Option<u16> {
        self.take(2).and_then(|bytes| Some(u16::from_le_bytes(bytes.try_into().ok()?)))
    }
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
    }
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
    /// The rest as UTF-16.
    pub fn wide(&mut self) -> Option<WideString> {
        let (pairs, rest) = self.0.as_chunks::<2>();
        rest.is_empty().then(|| pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect())
    }
}
