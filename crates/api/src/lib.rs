//! The management API: its model, and the traits behind which the daemon stands.
//!
//! Promises: the CLI uses nothing else. Never touches the data path.

#![forbid(unsafe_code)]

pub mod model;
