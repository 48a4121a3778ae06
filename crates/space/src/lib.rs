//! Virtual disks: mirrors over stores. Coordinator and replica are sans-IO state machines.
//!
//! Promises I1-I6 and I10 of DESIGN. Never opens sockets.

#![forbid(unsafe_code)]

pub mod api;
pub mod block_store;
pub mod coordinator;
pub mod fake_store;
pub mod local;
pub mod memory;
pub mod message;
pub mod planted;
pub mod replica;
pub mod takeover;

#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod tests;
