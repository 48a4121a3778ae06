//! What the machine that the server runs on tells: what disks say of themselves, where they are, which interfaces clients reach, how much memory
//! there is.
//!
//! Promises: it is looked at, and nothing but a slot's LED is changed. Never knows pools, volumes or connections.

#![forbid(unsafe_code)]

pub mod interfaces;
pub mod locate;
pub mod memory;
pub mod places;
pub mod prediction;
pub mod room;
pub mod smart;
