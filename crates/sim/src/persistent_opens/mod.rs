//! Opens that outlive their server, in virtual time: clients with persistent handles, leases, byte-range locks and deletions on one
//! volume, over kills, power cuts and lost sessions.
//!
//! Owns clients and oracle; everything from the volume's backend down to the store is the shipped
//! code, on the node and disks of [`crate::stack`]. A client replays each request whose answer did
//! not come, by MS-SMB2 (3.2.5.1, 3.2.4.1.5). The oracle: after any interruption each answered
//! request still holds, with the caching, the locks and the deletions that were granted; meanwhile
//! no client gets anything that these exclude, and none is refused without a conflict; a replayed
//! request happens once. At the end all opens are closed, and nothing is left.

mod client;
mod judge;
mod model;
mod world;

use world::LastingWorld;

/// Events of a run, counted so that tests can require that they really happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Creates that succeeded and whose open the client keeps.
    pub creates: u64,
    /// Byte-range locks that clients were granted.
    pub locks: u64,
    /// Lease breaks that reached a client.
    pub breaks: u64,
    /// Opens that a client reclaimed by a durable reconnect.
    pub reclaims: u64,
    /// CREATE requests replayed after an interruption.
    pub replayed_creates: u64,
    /// LOCK requests replayed after an interruption.
    pub replayed_locks: u64,
    /// Requests of other kinds replayed after an interruption.
    pub replayed_others: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Ends of the server's process whose writes in the disks' caches stay.
    pub kills: u64,
    /// Ends of the server's process with its disks' power.
    pub power_cuts: u64,
    /// Connections of clients that broke while the server ran.
    pub lost_sessions: u64,
    /// Opens that timed out while their client was away.
    pub expired: u64,
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
    /// Numbers of events of the run.
    pub coverage: Coverage,
}

/// Turns after which a run that does not end is aborted.
const TURNS_MAX: u64 = 1_000_000;

/// Runs one seed.
pub fn run(seed: u64) -> Report {
    let mut world = LastingWorld::new(seed);
    let mut turns = 0;
    while world.violations.is_empty() && !world.is_finished() {
        world.turn();
        turns += 1;
        if turns > TURNS_MAX {
            world.violations.push(format!("the run does not end: {}", world.doing()));
        }
    }
    Report { seed, violations: world.violations, trace: world.trace.hash(), coverage: world.coverage }
}
