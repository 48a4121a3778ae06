//! The machine that the server runs on: health and places of disks, interfaces for clients, memory.
//!
//! Promises: only reads; nothing but a slot's LED is changed. Never knows pools, volumes or connections.

#![forbid(unsafe_code)]

pub mod interfaces;
pub mod locate;
pub mod memory;
pub mod places;
pub mod prediction;
pub mod room;
pub mod smart;
