//! Codes over payload: the block checksum, the checksum of records, and AES-GCM over bytes in pieces.
//!
//! Promises: bit-exact with the scalar form, on every CPU. Never does I/O, never keeps state but a key.

mod crc;
mod gcm;

pub use crc::{
    LOST, SEAL_BYTES, UNWRITTEN, block_checksum, block_matches, crc64, crc64_append, crc64_scalar,
    payload_checksums, payload_matches, seal_block, sealed_order,
};
pub use gcm::{GCM_NONCE_BYTES, GCM_TAG_BYTES, GcmSealer};
