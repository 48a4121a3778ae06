//! Codes over payload: the block checksum and the checksum of records.
//!
//! Promises: bit-exact with the scalar form, on every CPU. Never does I/O, never keeps state.

mod crc;

pub use crc::{
    LOST, UNWRITTEN, block_checksum, block_matches, crc64, crc64_append, crc64_scalar, payload_checksums,
    payload_matches,
};
