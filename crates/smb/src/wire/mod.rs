//! The SMB2 and FSCC codec: fixed parts as views of the message, variable parts by their own offsets.
//!
//! Promises: parsing allocates nothing and never panics; the canonical layout is never assumed, every offset is honoured and
//! checked; unknown contexts, flags and classes are left to the caller, never an error. Usable by both sides: each structure can be
//! parsed and built. Never keeps state.
//!
//! All offsets count from the SMB2 header, which is the first byte of each `message` here (MS-SMB2 2.2).

use types::NtStatus;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use zerocopy::little_endian::{U16, U32, U64};

/// A fixed-size wire structure: little-endian, without alignment.
macro_rules! wire_struct {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Default,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_meta])* pub $field: $ty,)* }
    };
}

/// The fixed part of a request's or response's body, and a view of the message that holds it.
/// `Default` of the body has its StructureSize set.
macro_rules! message {
    ($(#[$meta:meta])* $view:ident, $body:ident = $size:literal { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }) => {
        /// Fixed part; its `Default` has StructureSize set and the rest zero.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $body { pub structure_size: crate::wire::U16, $($(#[$field_meta])* pub $field: $ty,)* }

        impl $body {
            /// Value that StructureSize must have.
            pub const STRUCTURE_SIZE: u16 = $size;
        }

        impl Default for $body {
            fn default() -> Self {
                let mut body: Self = zerocopy::FromZeros::new_zeroed();
                body.structure_size = crate::wire::U16::new($size);
                body
            }
        }

        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub struct $view<'a> {
            #[allow(dead_code)]
            message: &'a [u8],
            body: &'a $body,
        }

        impl<'a> $view<'a> {
            /// Views the body behind the header of `message`.
            ///
            /// # Errors
            /// [`WireError`](crate::wire::WireError) if it is cut short or has another StructureSize.
            pub fn parse(message: &'a [u8]) -> Result<Self, crate::wire::WireError> {
                let body: &$body = crate::wire::view_at(message, crate::wire::HEADER_BYTES)?;
                if body.structure_size.get() != $size {
                    return Err(crate::wire::WireError::StructureSize);
                }
                Ok(Self { message, body })
            }
        }

        impl std::ops::Deref for $view<'_> {
            type Target = $body;
            fn deref(&self) -> &$body {
                self.body
            }
        }
    };
}

mod control;
mod create;
mod create_context;
mod directory;
mod error;
mod file_information;
mod header;
mod ioctl;
mod negotiate;
mod query;
mod quota;
mod rdma_transform;
mod read_write;
mod session;
mod smb1;
mod volume_information;

pub use control::*;
pub use create::*;
pub use create_context::*;
pub use directory::*;
pub use error::*;
pub use file_information::*;
pub use header::*;
pub use ioctl::*;
pub use negotiate::*;
pub use query::*;
pub use quota::*;
pub use rdma_transform::*;
pub use read_write::*;
pub use session::*;
pub use smb1::*;
pub use volume_information::*;

#[cfg(test)]
mod tests;

/// Why bytes are not the structure they should be. MS-SMB2 answers each with STATUS_INVALID_PARAMETER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// End of the bytes inside a structure of fixed size.
    #[error("the message ends within a structure")]
    Short,
    /// StructureSize of another request, or of another version of it.
    #[error("StructureSize is not that of the structure")]
    StructureSize,
    /// Offset or length that leads outside the message or into its header.
    #[error("an offset or length points outside the message")]
    OutOfBounds,
    /// Number, length or text outside of the values that the field can have.
    #[error("a field holds a value that the protocol does not know")]
    Value,
    /// Message of another protocol than SMB2.
    #[error("this is not an SMB message")]
    Protocol,
}

impl From<WireError> for NtStatus {
    fn from(_: WireError) -> Self {
        Self::INVALID_PARAMETER
    }
}

/// 16 bytes that name a client, a server, a lease or a create.
pub type Guid = [u8; 16];

/// The structure at `offset`.
///
/// # Errors
/// [`WireError::Short`] if the bytes end before it does.
pub fn view_at<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
    offset: usize,
) -> Result<&T, WireError> {
    let tail = bytes.get(offset..).ok_or(WireError::Short)?;
    T::ref_from_prefix(tail).map(|(view, _)| view).map_err(|_| WireError::Short)
}

/// `len` bytes from `offset`; no bytes, wherever the offset points, if `len` is zero.
///
/// # Errors
/// [`WireError::OutOfBounds`] if they do not lie within `bytes`.
pub fn range(bytes: &[u8], offset: usize, len: usize) -> Result<&[u8], WireError> {
    if len == 0 {
        return Ok(&[]);
    }
    let end = offset.checked_add(len).ok_or(WireError::OutOfBounds)?;
    bytes.get(offset..end).ok_or(WireError::OutOfBounds)
}

/// A variable part of a message, which must lie behind the header.
pub(crate) fn part(message: &[u8], offset: u32, len: u32) -> Result<&[u8], WireError> {
    if len != 0 && (offset as usize) < HEADER_BYTES {
        return Err(WireError::OutOfBounds);
    }
    range(message, offset as usize, len as usize)
}

/// The UTF-16LE code units of `bytes`, of which an odd last byte is an error.
///
/// # Errors
/// [`WireError::Value`] for an odd length.
pub fn wide(bytes: &[u8]) -> Result<Box<[u16]>, WireError> {
    let (units, []) = bytes.as_chunks::<2>() else { return Err(WireError::Value) };
    Ok(units.iter().map(|unit| u16::from_le_bytes(*unit)).collect())
}

/// UTF-16 code units of `text`.
pub fn wide_from_str(text: &str) -> Box<[u16]> {
    text.encode_utf16().collect()
}

/// Builds messages: structures and strings appended to bytes.
pub trait Put {
    /// Appends a wire structure or a slice of them, as it lies in memory.
    fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T);
    /// Appends UTF-16 code units in little-endian order, without a length or end.
    fn put_wide(&mut self, units: &[u16]);
    /// Appends zeros up to a multiple of `alignment` bytes after position `from`.
    fn pad_from(&mut self, from: usize, alignment: usize);
    /// Overwrites four bytes at `at` if they exist.
    fn patch_u32(&mut self, at: usize, value: u32);
}

impl Put for Vec<u8> {
    fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) {
        self.extend_from_slice(value.as_bytes());
    }

    fn put_wide(&mut self, units: &[u16]) {
        self.reserve(units.len() * 2);
        for unit in units {
            self.extend_from_slice(&unit.to_le_bytes());
        }
    }

    fn pad_from(&mut self, from: usize, alignment: usize) {
        let padded = from + (self.len() - from).next_multiple_of(alignment);
        self.resize(padded, 0);
    }

    fn patch_u32(&mut self, at: usize, value: u32) {
        if let Some(target) = self.get_mut(at..at + 4) {
            target.copy_from_slice(&value.to_le_bytes());
        }
    }
}
