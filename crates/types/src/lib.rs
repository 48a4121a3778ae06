//! Words shared by all layers, so that no bare integer crosses a crate boundary.
//!
//! Owns newtypes, and maps by them. Promises: a unit in every name. Never does I/O.

#![forbid(unsafe_code)]

pub mod attribute;
mod ids;
mod ntstatus;
mod numbers;
mod peer;
mod sid;
mod time;

pub use ids::{BLOCK_BYTES, BlockCount, ChunkIndex, DiskId, Epoch, Lba, NodeId, PoolId, SlabIndex, VolumeId};
pub use ntstatus::NtStatus;
pub use numbers::{IdentityMap, NumberHasher, NumberMap};
pub use peer::PeerHost;
pub use sid::{InvalidSid, Sid};
pub use time::{FileTime, Monotonic, civil_date};
