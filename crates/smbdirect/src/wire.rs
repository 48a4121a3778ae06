//! The three messages of MS-SMBD 2.2, little-endian.

use types::NtStatus;

/// The one version (MS-SMBD 2.2.1).
pub const VERSION: u16 = 0x0100;
/// SMB_DIRECT_RESPONSE_REQUESTED (2.2.3).
pub const FLAG_RESPONSE_REQUESTED: u16 = 0x0001;
/// Header of a data transfer that carries data, padded so that data is 8-byte aligned.
pub const DATA_OFFSET: usize = 24;
/// Header of a data transfer without data.
pub const DATA_HEADER_BYTES: usize = 20;
pub const NEGOTIATE_REQUEST_BYTES: usize = 20;
pub const NEGOTIATE_RESPONSE_BYTES: usize = 32;
/// Least MaxReceiveSize (3.1.5.6).
pub const RECEIVE_BYTES_MIN: u32 = 128;
/// Least MaxFragmentedSize (3.1.5.6).
pub const FRAGMENTED_BYTES_MIN: u32 = 131_072;

/// MS-SMBD 2.2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateRequest {
    pub version_min: u16,
    pub version_max: u16,
    pub credits_requested: u16,
    pub preferred_send_bytes: u32,
    pub receive_bytes_max: u32,
    pub fragmented_bytes_max: u32,
}

/// MS-SMBD 2.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateResponse {
    pub version_min: u16,
    pub version_max: u16,
    pub version: u16,
    pub credits_requested: u16,
    pub credits_granted: u16,
    pub status: NtStatus,
    pub read_write_bytes_max: u32,
    pub preferred_send_bytes: u32,
    pub receive_bytes_max: u32,
    pub fragmented_bytes_max: u32,
}

/// MS-SMBD 2.2.3, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataTransfer {
    pub credits_requested: u16,
    pub credits_granted: u16,
    pub flags: u16,
    /// Bytes of this message that later transfers carry.
    pub remaining_bytes: u32,
    /// From the start of the transfer; 0 without data.
    pub data_offset: u32,
    pub data_bytes: u32,
}

/// A message too short or inconsistent; the connection is dropped (3.1.5.5, 3.1.5.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed SMB Direct message: {0}")]
pub struct WireError(pub &'static str);

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

impl NegotiateRequest {
    pub fn encode(&self) -> [u8; NEGOTIATE_REQUEST_BYTES] {
        let mut out = [0; NEGOTIATE_REQUEST_BYTES];
        out[..2].copy_from_slice(&self.version_min.to_le_bytes());
        out[2..4].copy_from_slice(&self.version_max.to_le_bytes());
        out[6..8].copy_from_slice(&self.credits_requested.to_le_bytes());
        out[8..12].copy_from_slice(&self.preferred_send_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.receive_bytes_max.to_le_bytes());
        out[16..].copy_from_slice(&self.fragmented_bytes_max.to_le_bytes());
        out
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < NEGOTIATE_REQUEST_BYTES {
            return Err(WireError("negotiate request shorter than 20 bytes"));
        }
        Ok(Self {
            version_min: u16_at(bytes, 0),
            version_max: u16_at(bytes, 2),
            credits_requested: u16_at(bytes, 6),
            preferred_send_bytes: u32_at(bytes, 8),
            receive_bytes_max: u32_at(bytes, 12),
            fragmented_bytes_max: u32_at(bytes, 16),
        })
    }
}

impl NegotiateResponse {
    pub fn encode(&self) -> [u8; NEGOTIATE_RESPONSE_BYTES] {
        let mut out = [0; NEGOTIATE_RESPONSE_BYTES];
        let shorts = [
            self.version_min,
            self.version_max,
            self.version,
            0,
            self.credits_requested,
            self.credits_granted,
        ];
        for (at, value) in shorts.into_iter().enumerate() {
            out[2 * at..2 * at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let longs = [
            self.status.0,
            self.read_write_bytes_max,
            self.preferred_send_bytes,
            self.receive_bytes_max,
            self.fragmented_bytes_max,
        ];
        for (at, value) in longs.into_iter().enumerate() {
            out[12 + 4 * at..16 + 4 * at].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < NEGOTIATE_RESPONSE_BYTES {
            return Err(WireError("negotiate response shorter than 32 bytes"));
        }
        Ok(Self {
            version_min: u16_at(bytes, 0),
            version_max: u16_at(bytes, 2),
            version: u16_at(bytes, 4),
            credits_requested: u16_at(bytes, 8),
            credits_granted: u16_at(bytes, 10),
            status: NtStatus(u32_at(bytes, 12)),
            read_write_bytes_max: u32_at(bytes, 16),
            preferred_send_bytes: u32_at(bytes, 20),
            receive_bytes_max: u32_at(bytes, 24),
            fragmented_bytes_max: u32_at(bytes, 28),
        })
    }
}

impl DataTransfer {
    /// The header: 24 bytes if data follows, 20 else.
    pub fn encode(&self) -> ([u8; DATA_OFFSET], usize) {
        let mut out = [0; DATA_OFFSET];
        out[..2].copy_from_slice(&self.credits_requested.to_le_bytes());
        out[2..4].copy_from_slice(&self.credits_granted.to_le_bytes());
        out[4..6].copy_from_slice(&self.flags.to_le_bytes());
        out[8..12].copy_from_slice(&self.remaining_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.data_offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.data_bytes.to_le_bytes());
        (out, if self.data_bytes > 0 { DATA_OFFSET } else { DATA_HEADER_BYTES })
    }

    /// The header, unchecked; `None` if it is not whole.
    pub(crate) fn header(bytes: &[u8]) -> Option<Self> {
        // The length is known from here on: nothing is checked field by field.
        let bytes: &[u8; DATA_HEADER_BYTES] = bytes.first_chunk()?;
        Some(Self {
            credits_requested: u16_at(bytes, 0),
            credits_granted: u16_at(bytes, 2),
            flags: u16_at(bytes, 4),
            remaining_bytes: u32_at(bytes, 8),
            data_offset: u32_at(bytes, 12),
            data_bytes: u32_at(bytes, 16),
        })
    }

    /// Reads and checks a received transfer (3.1.5.8): data lies within the message, behind its header, 8-byte aligned.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let transfer = Self::header(bytes).ok_or(WireError("data transfer shorter than 20 bytes"))?;
        if transfer.credits_requested == 0 {
            return Err(WireError("no credits requested"));
        }
        if transfer.data_bytes == 0 {
            return Ok(transfer);
        }
        if !transfer.data_offset.is_multiple_of(8) || (transfer.data_offset as usize) < DATA_OFFSET {
            return Err(WireError("data offset inside the header or not a multiple of 8"));
        }
        if u64::from(transfer.data_offset) + u64::from(transfer.data_bytes) > bytes.len() as u64 {
            return Err(WireError("data beyond the end of the message"));
        }
        Ok(transfer)
    }
}
