//! Coordinators and replicas of several nodes in virtual time, over a network that loses and delays
//! messages, with a cluster state that fails.
//!
//! Owns the environment only: coordinators, replicas and, in some runs, stores are the shipped
//! code. A run has a phase of faults, in which no acknowledged write may be lost and no read may
//! return wrong data. Then all faults are healed, and every copy of every block is read.

mod blocks;
mod client;
mod course;
mod epochs;
mod event;
mod exchanging;
mod faults;
mod holding;
mod images;
pub mod invariants;
mod judge;
mod manager;
mod membership;
mod narrate;
mod network;
mod nodes;
pub mod oracle;
mod scenario;
mod servers;
mod takeovers;
mod traffic;
mod world;

pub use course::Coverage;
pub use scenario::Scenario;
pub use world::{Report, run};
