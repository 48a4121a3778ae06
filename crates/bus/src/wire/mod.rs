//! SMB2 requests and answers of the storage bus. All numbers are little-endian.
//!
//! | operation | SMB2 request | contents |
//! |---|---|---|
//! | `Open` | CREATE of the disk's id | a create context with a [`SessionRequest`]; answered by one with [`Opened`] |
//! | `Read` | READ at lba * 4096, of 4104 bytes a block | answered by the blocks, then their checksums (none of class `Append`) |
//! | `Write` | WRITE at lba * 4096, write-through | the blocks, their checksums, a [`WriteTrailer`] |
//! | all others | IOCTL, an FSCTL of our own (`smb::wire::fsctl::BUS_*`) | [`Control`]; answered by a list, or by nothing |
//!
//! The FSCTLs of MS-FSCC have no place for an epoch, so that none of them is used. An operation that fails is answered by an SMB2 ERROR
//! response whose NTSTATUS says roughly why, and whose ErrorData are a [`Refusal`], exactly. CREATE of the share's root opens the node
//! itself, for [`fsctl::BUS_STATUS`](smb::wire::fsctl::BUS_STATUS).
//!
//! Promises: every parser takes any bytes, allocates no more than they are long, and accepts only what its writer can have written.

mod answers;
mod refusal;
mod requests;
mod statuses;
#[cfg(test)]
mod tests;

pub use answers::{
    Opened, parse_chunks, parse_opened, parse_read, parse_regions, put_chunks, put_opened, put_read,
    put_regions,
};
pub use refusal::{Refusal, parse_refusal, put_refusal};
pub use requests::{
    BusWrite, Control, SessionRequest, WriteTrailer, control_of, parse_control, parse_read_range,
    parse_session, parse_write, put_session, put_write, read_bytes,
};
/// Bytes of the question whether large messages come through, and of its answer: more than a packet of any network, and one SMB2 credit.
pub const PROOF_BYTES: usize = 64 << 10;

pub use statuses::{StatusQuestion, parse_status, parse_status_request, put_status, put_status_request};

use types::BLOCK_BYTES;

/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 8;
/// Bytes that a READ requests for each block.
const READ_BLOCK_BYTES: usize = BLOCK_BYTES + CHECKSUM_BYTES;
/// Most blocks of one READ or WRITE: a store takes at most 1 MiB.
const BLOCKS_MAX: u32 = 256;

/// Bytes that no end of the bus writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed on the storage bus: {0}")]
pub struct Malformed(pub &'static str);

impl From<smb::wire::WireError> for Malformed {
    fn from(_: smb::wire::WireError) -> Self {
        Self("it ends too early")
    }
}

/// A structure of fixed size in these bytes, and nothing behind it.
fn only<T>(bytes: &[u8]) -> Result<&T, Malformed>
where
    T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    T::ref_from_bytes(bytes).map_err(|_| Malformed("another length than it has"))
}

/// Whole structures in these bytes.
fn list<T>(bytes: &[u8]) -> Result<&[T], Malformed>
where
    T: zerocopy::FromBytes + zerocopy::Immutable + zerocopy::Unaligned,
{
    zerocopy::FromBytes::ref_from_bytes(bytes).map_err(|_| Malformed("a list that ends within an entry"))
}

/// A structure of fixed size without alignment.
macro_rules! wire_struct {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Default,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_meta])* pub $field: $ty,)* }
    };
}
use wire_struct;
