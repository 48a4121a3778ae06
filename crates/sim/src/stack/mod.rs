//! The whole stack of a server in virtual time: clients over `volume::service`, file systems, virtual disks with their
//! coordinators and replicas, stores, and disks that lose power and fail in every way they can.
//!
//! Owns the environment only: everything from the volume's backend down to the store is the shipped
//! code. A run is a series of rounds: work, one fault of one disk, its end. Then all copies must
//! become whole again by themselves within bounded time. No operation may be refused or left
//! without an answer because of one disk's fault, and reads must return data acknowledged as
//! durable. At the end all is removed, and nothing may be left of it. A seed replays bit for bit.

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

// Another world uses the server and its disks too.
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
    /// Writes that were answered.
    pub writes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Renames that were answered.
    pub renames: u64,
    /// Requests that were refused, those during faults included.
    pub refusals: u64,
    /// Complete checks of a client's files after a restart.
    pub recoveries: u64,
    /// Faults of disks or of the node that began.
    pub faults: u64,
    /// Ends of the process with its disks' power.
    pub power_cuts: u64,
    /// Ends of the process whose writes in the disks' caches stay.
    pub kills: u64,
    /// Disks that left a volume's in-sync set.
    pub expulsions: u64,
    /// Disks that came back into a volume's in-sync set.
    pub joins: u64,
    /// Blocks that reconciling copies wrote.
    pub reconciled: u64,
    /// Blocks rewritten from another copy after a checksum failed.
    pub repaired: u64,
    /// Corrupt blocks that scrubs found.
    pub scrubbed_corrupt: u64,
    /// Blocks that a comparison found wrong although a scrub had found no more.
    pub left_by_scrub: u64,
    /// Disks replaced by new ones because they could not be opened.
    pub replaced: u64,
    /// Volumes that dropped their data in memory and were opened again.
    pub volume_failures: u64,
}

/// Outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Seed that decided the run.
    pub seed: u64,
    /// Descriptions of broken promises; empty: the run is good.
    pub violations: Vec<String>,
    /// Fingerprint of the run: equal for equal seeds, bit for bit.
    pub trace: u64,
    /// Turns of the node's loop.
    pub turns: u64,
    /// Virtual milliseconds that the run took.
    pub virtual_ms: u64,
    /// Numbers of events of the run by kind.
    pub coverage: Coverage,
}
