//! The daemon's parts: control plane, data plane and the channel between them, the command line.
//!
//! Promises: every layer below is put together here and nowhere else. Never holds logic of storage or protocol.

#![forbid(unsafe_code)]

pub mod control;
pub mod dataplane;
pub mod directory;
