//! RDMA for the data plane: one verbs-shaped interface, and the provider that needs no hardware.
//!
//! Owns protection domains, registrations, queue pairs, completions and connection management. Promises: what a peer may touch is
//! what was registered for it; buffers given to work come back with its completion. Never knows SMB.
//!
//! [`iwarp`] is RDMA over plain TCP on the data plane's own loop: it reaches Linux siw and hardware iWARP from any machine.

#![forbid(unsafe_code)]

pub mod iwarp;
pub mod verbs;

pub use verbs::{
    Access, CloseReason, Completion, CompletionKind, ConnectionInfo, Event, PostError, QueuePairId,
    RegionKey, RegisterError, Status, Transport, Verbs, WorkId,
};
