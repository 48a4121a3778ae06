//! Words shared by all layers, so that no bare integer crosses a crate boundary.
//!
//! Owns newtypes, maps by them, the form of an issue, and who may have a place when places are short. Promises: a unit in every name. Never does I/O.

#![forbid(unsafe_code)]

mod admission;
pub mod attribute;
mod ids;
mod issue;
mod latency;
mod line_ledger;
mod ntstatus;
mod numbers;
mod peer;
mod repeated;
mod sid;
pub mod size;
mod stamp;
mod time;
mod unseen;

pub use admission::{Admission, AdmissionLimits, AdmissionRefused};
pub use ids::{BLOCK_BYTES, BlockCount, ChunkIndex, DiskId, Epoch, Lba, NodeId, PoolId, SlabIndex, VolumeId};
pub use issue::{Issue, Severity, VOLUME_UNREACHED};
pub use latency::LatencyHistogram;
pub use line_ledger::{LeftOut, LineLedger};
pub use ntstatus::NtStatus;
pub use numbers::{IdentityMap, NumberHasher, NumberMap};
pub use peer::PeerHost;
pub use repeated::Repeated;
pub use sid::{InvalidSid, Sid};
pub use stamp::{ChangeNumber, Stamp};
pub use time::{FileTime, Monotonic, civil_date};
pub use unseen::is_unseen;
