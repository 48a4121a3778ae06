//! Little-endian fields in and out of byte slices. Never panics on short input.

/// Upper bound of valid counts: no real count of changes reaches it, and one that did could not
/// grow. A disk with a higher count was never written by a store.
pub(crate) const COUNT_MAX: u64 = 1 << 62;

/// Takes fields from the front of a slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Reads the eight bytes at `at` as a number; zero if some are missing.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Writes a number at `at`, if there is space.
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value.to_le_bytes();
    }
}

/// Returns the CRC-64/NVME of `identity` followed by `block`, in which the eight bytes at `crc_at`
/// count as zeroes.
pub(crate) fn sealed_crc(identity: &[u8], block: &[u8], crc_at: usize) -> u64 {
    let (before, rest) = block.split_at(crc_at.min(block.len()));
    let after = rest.get(8..).unwrap_or(&[]);
    let mut crc = codes::crc64(identity);
    crc = codes::crc64_append(crc, before);
    crc = codes::crc64_append(crc, &[0; 8]);
    codes::crc64_append(crc, after)
}
