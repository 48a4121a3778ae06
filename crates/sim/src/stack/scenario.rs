//! Make-up of a run: everything that its seed decides beforehand.

use crate::random::Random;
use records::Resiliency;
use std::time::Duration;

/// How a coordinator reaches the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Disks in the same process: nothing is lost, nothing is late.
    Local,
}

/// A fault of a disk, or of the whole node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Blocks that cannot be read until they are written.
    Unreadable,
    /// Reads of a range fail for a while.
    ReadErrors,
    /// Writes fail for a while.
    WriteErrors,
    LostWrite,
    MisdirectedWrite,
    TornWrite,
    Rot,
    /// While the process is down, the disk goes back to earlier contents.
    RollBack,
    NoSpace,
    Slow,
    Hang,
    Gone,
    /// All disks are away for a while.
    AllAway,
    /// The records of volumes can neither be read nor changed for a while, or a change is not answered.
    StateAway,
}

/// How much of a disk's fault must be reported, or healed by a scrub alone.
impl Kind {
    /// Whether the disk's contents are wrong from then on, or it says that it cannot return them.
    pub const fn damages(self) -> bool {
        !matches!(
            self,
            Self::NoSpace | Self::Slow | Self::Hang | Self::Gone | Self::AllAway | Self::StateAway
        )
    }

    /// Whether nobody sees it before a read of the damaged part.
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Unreadable | Self::LostWrite | Self::MisdirectedWrite | Self::Rot)
    }

    /// Whether a scrub alone finds all of it: no copy is intact and old.
    pub const fn is_scrubbed(self) -> bool {
        matches!(self, Self::Unreadable | Self::Rot)
    }
}

impl Kind {
    pub const ALL: [Self; 14] = [
        Self::Unreadable,
        Self::ReadErrors,
        Self::WriteErrors,
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::TornWrite,
        Self::Rot,
        Self::RollBack,
        Self::NoSpace,
        Self::Slow,
        Self::Hang,
        Self::Gone,
        Self::AllAway,
        Self::StateAway,
    ];
}

/// Background work beside the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Scrub,
    Check,
    Rebalance,
    Checkpoint,
    /// A disk is to be left, which is taken back at the latest when all has to become whole.
    Retire,
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub nodes: usize,
    pub transport: Transport,
    pub disks: usize,
    pub volumes: Vec<Resiliency>,
    pub clients: usize,
    pub slab_bytes: u64,
    pub lease: Option<Duration>,
    pub verify_reads: bool,
    pub rebuild_after: Duration,
    pub rotate_interval: Duration,
    /// Memory of the volumes' caches, of dirty data in them, and of tree pages.
    pub cache_bytes: usize,
    pub dirty_bytes: usize,
    pub page_cache_bytes: usize,
    /// Faults one after the other.
    pub faults: Vec<Kind>,
    /// Power cuts and kills, in 1000 rounds each.
    pub power_cuts: u64,
    pub kills: u64,
    pub background: Vec<Work>,
    /// Between a client's operations, at most.
    pub pause_us: u64,
    /// Names that a client uses.
    pub names: u64,
    /// Bytes of a file at most.
    pub file_bytes_max: u64,
    /// Clients make images of very many pieces, too: the changes of one transaction are bounded.
    pub images: bool,
    /// At the end users make names until no more are taken.
    pub crowd: bool,
}

impl Scenario {
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5ce4_a210);
        let disks = random.between(2, 4) as usize;
        let volumes = (0..random.between(1, 2))
            .map(|_| match disks > 2 && random.chance(400) {
                true => Resiliency::ThreeWay,
                false => Resiliency::TwoWay,
            })
            .collect();
        let rounds = random.between(2, 5);
        // A run keeps to few kinds, so that it finds combinations of one with itself.
        let kinds: Vec<Kind> = (0..3).filter_map(|_| random.pick(&Kind::ALL)).collect();
        let faults = (0..rounds).filter_map(|_| random.pick(&kinds)).collect();
        let mut background = Vec::new();
        for work in [Work::Scrub, Work::Check, Work::Rebalance, Work::Checkpoint, Work::Retire] {
            if random.chance(400) {
                background.push(work);
            }
        }
        // An old image is recognized by the epochs that the disk has promised since: they have to pass.
        let rotate_interval = match kinds.contains(&Kind::RollBack) {
            true => Duration::from_millis(300),
            false => random
                .pick(&[Duration::from_millis(500), Duration::from_secs(5), Duration::from_secs(30)])
                .unwrap_or_default(),
        };
        let cache_bytes = random.between(2, 16) as usize * (512 << 10);
        // A random source of its own, so that all else of a seed stays as it was. Each slab makes the journal
        // longer, and an image has to outgrow it.
        let images = Random::new(seed ^ 0x1a6e_0035).chance(100);
        // Thousands of names take as long as the rest of a run.
        let crowd = seed.is_multiple_of(16);
        Self {
            nodes: 1,
            transport: Transport::Local,
            disks,
            volumes,
            clients: random.between(1, 4) as usize,
            slab_bytes: random.pick(&[1 << 20, 2 << 20, 4 << 20]).filter(|_| !images).unwrap_or(1 << 20),
            lease: random.chance(200).then_some(Duration::from_millis(700)),
            verify_reads: random.chance(200),
            rebuild_after: random
                .pick(&[Duration::from_secs(3), Duration::from_secs(30), Duration::from_secs(1800)])
                .unwrap_or_default(),
            rotate_interval,
            cache_bytes,
            // The daemon divides its cache like this.
            dirty_bytes: cache_bytes / 3,
            page_cache_bytes: random.between(1, 16) as usize * (64 << 10),
            faults,
            power_cuts: random.pick(&[0, 200, 500]).unwrap_or(0),
            kills: random.pick(&[0, 200, 500]).unwrap_or(0),
            background,
            pause_us: random.pick(&[2_000, 10_000, 40_000]).unwrap_or(10_000),
            names: random.between(2, 8),
            file_bytes_max: random.pick(&[16 << 10, 64 << 10, 256 << 10, 1 << 20]).unwrap_or(64 << 10),
            images,
            crowd,
        }
    }
}
