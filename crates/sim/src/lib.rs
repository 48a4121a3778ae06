//! The deterministic simulator: three worlds in virtual time, each on one thread.
//!
//! [`World::Space`]: coordinators and replicas of several nodes, over a network that loses and
//! delays, with a cluster state that fails ([`space_world`]). [`World::Stack`]: one server from the
//! volume's backend down to disks that fail in every way ([`stack`]). [`World::PersistentOpens`]:
//! clients whose opens outlive their server ([`persistent_opens`]). All own the environment only:
//! the code in them is the shipped code. A run has phases of faults, in which no acknowledged write
//! may be lost and no read may return wrong data. Then all faults are healed, and all volumes must
//! serve and become fully redundant again. Faults are planned so that the system should survive
//! them: every violation is a bug. A seed replays bit for bit. Beside these worlds [`scale`] counts
//! the costs of up to sixteen servers. Never ships.

#![forbid(unsafe_code)]

#[cfg(feature = "planted-bugs")]
pub mod bugs;
pub mod persistent_opens;
mod random;
pub mod scale;
pub mod space_world;
pub mod stack;
mod trace;

/// Seeds that failed once, and the failure: `WORLD SEED # reason`. They run before all others.
pub const KEPT_SEEDS: &str = include_str!("../kept-seeds.txt");

/// The simulator's worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Coordinators, replicas and the cluster state over a network: [`space_world`].
    Space,
    /// One node from the volume's backend down to the store: [`stack`].
    Stack,
    /// Persistent handles over restarts of a server: [`persistent_opens`].
    PersistentOpens,
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Finding {
    /// World of the run.
    pub world: World,
    /// Seed that decided the run.
    pub seed: u64,
    /// Descriptions of broken promises; empty: the run is good.
    pub violations: Vec<String>,
    /// Description of the scenario.
    pub scenario: String,
    /// Fingerprint of the run: equal for equal seeds, bit for bit.
    pub trace: u64,
}

impl World {
    /// Every world, in the order of listings.
    pub const ALL: [Self; 3] = [Self::Space, Self::Stack, Self::PersistentOpens];

    /// Returns the world's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Space => "space",
            Self::Stack => "stack",
            Self::PersistentOpens => "persistent-opens",
        }
    }

    /// Finds a world by its name on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|world| world.name() == name)
    }

    /// Runs one seed in this world, to its end or its first violation.
    pub fn run(self, seed: u64) -> Finding {
        match self {
            Self::Space => {
                let space_world::Report { violations, trace, .. } = space_world::run(seed);
                let scenario = format!("{:?}", space_world::Scenario::of_seed(seed));
                Finding { world: self, seed, violations, scenario, trace }
            }
            Self::Stack => {
                let stack::Report { violations, trace, .. } = stack::run(seed);
                let scenario = format!("{:?}", stack::Scenario::of_seed(seed));
                Finding { world: self, seed, violations, scenario, trace }
            }
            Self::PersistentOpens => {
                let persistent_opens::Report { violations, trace, coverage, .. } =
                    persistent_opens::run(seed);
                Finding { world: self, seed, violations, scenario: format!("{coverage:?}"), trace }
            }
        }
    }
}

/// Returns the seeds that failed once.
pub fn kept_seeds() -> Vec<(World, u64)> {
    let lines = KEPT_SEEDS.lines().map(|line| line.split('#').next().unwrap_or_default());
    let parse = |line: &str| {
        let (world, seed) = line.trim().split_once(' ')?;
        Some((World::from_name(world)?, seed.trim().parse().ok()?))
    };
    lines.filter_map(parse).collect()
}

#[cfg(test)]
mod tests;
