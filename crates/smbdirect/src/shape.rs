//! Reads a transfer's layout from its first bytes, so that its payload lands aligned.

use crate::wire::{DATA_OFFSET, DataTransfer};

/// Where the payload of a WRITE lies in its transfer: behind the header of MS-SMBD, the one of SMB2, and the request's body.
pub const WRITE_PAYLOAD_AT: usize = DATA_OFFSET + 64 + 48;
/// The same if it is encrypted: SMB2 TRANSFORM_HEADER (MS-SMB2 2.2.41) lies before.
const SEALED_WRITE_PAYLOAD_AT: usize = WRITE_PAYLOAD_AT + 52;
/// Where the payload of a READ's answer lies in its transfer, which is before that of a WRITE: the answer's body is shorter.
pub const READ_PAYLOAD_AT: usize = DATA_OFFSET + 64 + 16;
/// ProtocolId of SMB2 TRANSFORM_HEADER.
const TRANSFORM: [u8; 4] = *b"\xFDSMB";

/// Layout of a transfer by its first bytes; validates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferShape {
    pub len_bytes: usize,
    /// Where the payload lies, if it is a WRITE.
    pub payload_at: usize,
}

impl TransferShape {
    /// Where the payload lies, if it is the answer to a READ.
    pub fn read_payload_at(&self) -> usize {
        self.payload_at - (WRITE_PAYLOAD_AT - READ_PAYLOAD_AT)
    }
}

/// See [`TransferShape`]; `None`: too few bytes, or no data transfer.
pub fn transfer_shape(first: &[u8]) -> Option<TransferShape> {
    let transfer = DataTransfer::header(first)?;
    let (offset, data_bytes) = (transfer.data_offset as usize, transfer.data_bytes as usize);
    let message = first.get(offset..)?.first_chunk::<4>()?;
    let payload_at = if *message == TRANSFORM { SEALED_WRITE_PAYLOAD_AT } else { WRITE_PAYLOAD_AT };
    Some(TransferShape { len_bytes: offset.saturating_add(data_bytes), payload_at })
}
