//! Virtual disks: mirrors over stores. Coordinator and replica are sans-IO state machines.
//!
//! Promises I1-I6 and I10 of DESIGN. Never opens sockets.

#![forbid(unsafe_code)]

pub mod api;
pub mod memory;

#[cfg(test)]
mod memory_tests;
