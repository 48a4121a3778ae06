//! The whole stack of a server in virtual time: clients over `volume::service`, file systems, virtual disks with their
//! coordinators and replicas, stores, and disks that lose power and fail in every way they can.
//!
//! Owns the environment only: everything from the volume's backend down to the store is the shipped
//! code. A run is a row of rounds: work, one fault of one disk, its end, and everything must become
//! whole again by itself within bounded time. No operation may be refused or left without an answer for
//! one disk's fault, and data acknowledged as durable must read so. At the end all is removed, and
//! nothing may be left of it. A seed replays bit for bit.

mod care;
mod client;
mod crowding;
mod director;
mod disks;
mod emptying;
mod faults;
mod home;
mod model;
mod names;
mod narrate;
mod node;
mod recovery;
mod run;
mod scenario;
mod served;
mod told;
mod world;

// The server and its disks serve another world too.
pub(crate) use disks::{POOL, SimDisk};
pub(crate) use home::{plain_create, wide};
pub(crate) use narrate::say;
pub(crate) use node::Node;
pub(crate) use served::{Limits, Served};
pub(crate) use world::format_of;

pub use run::{run, run_scenario};
pub use scenario::{Kind, Scenario, Transport, Work};

/// Events of a run, counted so that tests can require that faults really happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    pub writes: u64,
    pub reads: u64,
    pub renames: u64,
    pub refusals: u64,
    pub recoveries: u64,
    pub faults: u64,
    pub power_cuts: u64,
    pub kills: u64,
    pub expulsions: u64,
    pub joins: u64,
    pub reconciled: u64,
    pub repaired: u64,
    pub scrubbed_corrupt: u64,
    /// Blocks that a comparison found wrong after a scrub had found nothing more.
    pub left_by_scrub: u64,
    pub replaced: u64,
    pub volume_failures: u64,
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    pub seed: u64,
    pub violations: Vec<String>,
    /// Equal for equal seeds, bit for bit.
    pub trace: u64,
    pub turns: u64,
    pub virtual_ms: u64,
    pub coverage: Coverage,
}
