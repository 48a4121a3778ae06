//! CRC32c as MPA uses it (RFC 5044 section 4.1): over the ULPDU length, the ULPDU and the pad; least significant byte first.

use crc_fast::{CrcAlgorithm, Digest};

/// A CRC32c under way.
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The four bytes as they stand on the wire.
    pub fn wire_bytes(&self) -> [u8; 4] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

/// The CRC of one piece, as it stands on the wire.
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::default();
    crc.update(bytes);
    crc.wire_bytes()
}
