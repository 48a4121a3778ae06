//! Words shared by all layers, so that no bare integer crosses a crate boundary.
//!
//! Owns newtypes only. Promises: a unit in every name. Never does I/O.

#![forbid(unsafe_code)]

pub mod attribute;
mod ids;
mod ntstatus;
mod sid;
mod time;

pub use ids::{BLOCK_BYTES, BlockCount, ChunkIndex, DiskId, Epoch, Lba, NodeId, PoolId, SlabIndex, VolumeId};
pub use ntstatus::NtStatus;
pub use sid::{InvalidSid, Sid};
pub use time::{FileTime, Monotonic, civil_date};
