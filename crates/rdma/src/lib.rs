//! RDMA for the data plane: one verbs-shaped interface and its providers.
//!
//! Owns protection domains, registrations, queue pairs, completions and connection management.
//! Promises: a peer touches only memory that was registered for it; buffers given to work come back
//! with its completion. Never knows SMB.
//!
//! [`iwarp`] is RDMA over plain TCP on the data plane's own loop: it reaches Linux siw and hardware iWARP from any machine.
//! [`ibverbs`] uses RDMA network cards, and Linux siw and rxe, by the libraries of rdma-core. One conformance suite runs on both
//! (`tests/conformance`).

#![deny(unsafe_code)]

pub mod ibverbs;
pub mod iwarp;
mod names;
pub mod providers;
mod queue_pair_map;
pub mod timers;
pub mod verbs;

pub use ibverbs::{Device, DeviceLimits, Port, PortState, devices};
pub use names::random_names;
pub use queue_pair_map::QueuePairMap;
pub use verbs::{
    Access, Activity, CloseReason, Completion, CompletionKind, ConnectionInfo, Event, HEAD_BYTES_MAX,
    PostError, QueuePairId, RegionKey, RegisterError, Status, Transport, Verbs, WorkId,
};
