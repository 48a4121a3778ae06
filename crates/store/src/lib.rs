//! One disk: label, slab table, journal, block checksums, scrub.
//!
//! Promises: a write of up to 1 MiB is atomic, and durable when acknowledged; corrupt is never returned as data.
//! Never knows about other disks.

#![forbid(unsafe_code)]

pub mod api;
