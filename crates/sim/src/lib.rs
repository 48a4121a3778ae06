//! The deterministic simulator of `space`: several nodes, disks, a network and a cluster state in virtual time, on one thread.
//!
//! Owns the environment only: coordinators, replicas and placement are the real ones. A run has two phases: faults, under which
//! nothing acknowledged may be lost nor anything wrong be read; then everything is healed, and the volume must serve and
//! become fully redundant again. Faults are planned so that the volume should survive them: every violation is a bug. A seed
//! replays bit for bit. Never ships.

#![forbid(unsafe_code)]

mod client;
mod faults;
pub mod invariants;
mod look;
mod manager;
mod narrate;
mod network;
mod nodes;
pub mod oracle;
mod random;
mod replicas;
mod scenario;
mod trace;
mod traffic;
mod world;

pub use scenario::Scenario;
pub use world::{Coverage, Report, run};

/// Every planted bug is found by one of so many seeds.
pub const SEEDS_TO_FIND: u64 = 1_000;

/// Plants a bug, and runs seeds until one finds it that finds nothing without it.
#[cfg(feature = "planted-bugs")]
pub fn find_planted(bug: space::planted::Planted, first: u64, seeds: u64) -> Option<Report> {
    let run_with = |bug, seed| {
        space::planted::plant(bug);
        let report = run(seed);
        space::planted::plant(None);
        report
    };
    (first..first.saturating_add(seeds))
        .map(|seed| run_with(Some(bug), seed))
        .find(|report| !report.violations.is_empty() && run_with(None, report.seed).violations.is_empty())
}

#[cfg(test)]
mod tests;
