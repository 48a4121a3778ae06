//! A server over a volume in memory, and raw clients of it, in one process and in virtual time.
//!
//! For the counts of instructions (`complexity`) and for the fuzz target of whole sessions. Promises: the
//! same messages lead to the same instructions in every run; a client sends any message, well-formed or not.

mod client;
mod people;
mod world;

pub use client::{Client, Keys, Purpose, join, sign, split, status};
pub use people::{PASSWORD, User};
pub use world::World;
