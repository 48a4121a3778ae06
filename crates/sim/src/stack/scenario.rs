//! Parameters of a run, decided by its seed beforehand.

use crate::random::Random;
use records::Resiliency;
use std::time::Duration;

/// Connection of a coordinator to the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Disks in the same process: no message is lost or late.
    Local,
}

/// A fault of a disk, or of the whole node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Blocks that are unreadable until they are written.
    Unreadable,
    /// Reads of a range fail for a while.
    ReadErrors,
    /// Writes fail for a while.
    WriteErrors,
    /// Some writes are acknowledged and never reach the medium.
    LostWrite,
    /// Some writes land at another offset.
    MisdirectedWrite,
    /// Some writes reach the medium only partly.
    TornWrite,
    /// Bits of some blocks flip on the medium.
    Rot,
    /// While the process is down, the disk goes back to earlier contents.
    RollBack,
    /// The file under the disk cannot grow for a while.
    NoSpace,
    /// Each request takes 5 to 60 ms for a while.
    Slow,
    /// Requests are not answered for a while.
    Hang,
    /// The disk cannot be found for a while.
    Gone,
    /// All disks are away for a while.
    AllAway,
    /// The records of volumes can neither be read nor changed for a while, or the answer to a
    /// change is lost.
    StateAway,
}

/// Reports and scrubs that a disk's fault requires.
impl Kind {
    /// Whether the disk's contents are wrong from then on, or the disk reports that it cannot
    /// return them.
    pub const fn damages(self) -> bool {
        !matches!(
            self,
            Self::NoSpace | Self::Slow | Self::Hang | Self::Gone | Self::AllAway | Self::StateAway
        )
    }

    /// Whether only a read of the damaged part reveals it.
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Unreadable | Self::LostWrite | Self::MisdirectedWrite | Self::Rot)
    }

    /// Whether a scrub alone finds all of it: no copy is both intact and old.
    pub const fn is_scrubbed(self) -> bool {
        matches!(self, Self::Unreadable | Self::Rot)
    }
}

impl Kind {
    /// All kinds, with equal chances in a draw.
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

/// Background work concurrent with the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// All disks' blocks are read and verified.
    Scrub,
    /// A volume's metadata and copies are compared, half of the times with repair.
    Check,
    /// Slabs move until the disks are equally full.
    Rebalance,
    /// Every store writes a checkpoint.
    Checkpoint,
    /// A disk is retired. The retirement is cancelled at the latest when all copies must become
    /// whole.
    Retire,
}

/// Parameters of one run. Probabilities are parts of 1000.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Number of nodes: always 1.
    pub nodes: usize,
    /// Connection of coordinators to disks.
    pub transport: Transport,
    /// Number of disks, from 2 to 4.
    pub disks: usize,
    /// Volumes, one for each entry, with their numbers of copies.
    pub volumes: Vec<Resiliency>,
    /// Clients that work concurrently.
    pub clients: usize,
    /// Bytes of a slab on every disk.
    pub slab_bytes: u64,
    /// Lease of the node; `None`: it serves without one.
    pub lease: Option<Duration>,
    /// Whether coordinators verify the checksums of reads from disks of their own node too.
    pub verify_reads: bool,
    /// Absence of a disk after which its copies are rebuilt elsewhere.
    pub rebuild_after: Duration,
    /// Time after which a coordinator begins a new epoch by itself.
    pub rotate_interval: Duration,
    /// Bytes of the volumes' caches.
    pub cache_bytes: usize,
    /// Most dirty bytes in the caches.
    pub dirty_bytes: usize,
    /// Bytes of metadata pages in memory.
    pub page_cache_bytes: usize,
    /// Faults in their order.
    pub faults: Vec<Kind>,
    /// Probability of power cuts in a round, of 1000.
    pub power_cuts: u64,
    /// Probability of kills of the process in a round, of 1000.
    pub kills: u64,
    /// Background work that may begin during the run; an entry may be drawn again.
    pub background: Vec<Work>,
    /// Longest pause between a client's operations, in microseconds.
    pub pause_us: u64,
    /// Names that a client uses.
    pub names: u64,
    /// Most bytes of a file.
    pub file_bytes_max: u64,
    /// Whether clients make images of very many pieces, too: the changes of one transaction are
    /// bounded.
    pub images: bool,
    /// Whether users make names at the end until the volume takes no more.
    pub crowd: bool,
}

impl Scenario {
    /// Draws a scenario; equal seeds give equal ones.
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
        // A run has few kinds, so that it also combines one with itself.
        let kinds: Vec<Kind> = (0..3).filter_map(|_| random.pick(&Kind::ALL)).collect();
        let faults = (0..rounds).filter_map(|_| random.pick(&kinds)).collect();
        let mut background = Vec::new();
        for work in [Work::Scrub, Work::Check, Work::Rebalance, Work::Checkpoint, Work::Retire] {
            if random.chance(400) {
                background.push(work);
            }
        }
        // An old image is recognized by the epochs that the disk has promised since, so some must
        // pass.
        let rotate_interval = match kinds.contains(&Kind::RollBack) {
            true => Duration::from_millis(300),
            false => random
                .pick(&[Duration::from_millis(500), Duration::from_secs(5), Duration::from_secs(30)])
                .unwrap_or_default(),
        };
        let cache_bytes = random.between(2, 16) as usize * (512 << 10);
        // A random source of its own, so that all other parameters of a seed stay unchanged. Each
        // slab makes the journal longer, and an image must outgrow it.
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
