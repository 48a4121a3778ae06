//! The file layer on one virtual disk: namespace, extents, streams, security, metadata journal and checkpoint; opens, share
//! modes, leases and locks as one state machine per file.
//!
//! Promises: crash-consistent at every point; opening takes time by the journal, not by the volume. Never knows SMB.

#![forbid(unsafe_code)]

pub mod backend;
pub mod fs;
pub mod planted;
mod refusal;
pub mod security;
pub mod service;
mod values;
