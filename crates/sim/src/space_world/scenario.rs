//! Parameters of a run, chosen by its seed, so that different seeds test different aspects.

use crate::random::Random;
use records::Resiliency;

/// One of this many seeds has links that lose large messages: those with this remainder. Not drawn,
/// so that the other seeds stay unchanged.
const LARGE_LOSS_OF: u64 = 12;
const LARGE_LOSS_AT: u64 = 5;
/// The same, for a node whose large messages are lost to all others, the cluster state included.
const LARGE_LOSS_OF_NODE_AT: u64 = 11;
/// The same, for a full pool with a disk being retired that is away now and then.
const TIGHT_RETIREMENT_AT: u64 = 7;
/// The same, for a server that names epochs that no record gave.
const STRANGE_EPOCHS_OF: u64 = 6;
const STRANGE_EPOCHS_AT: u64 = 2;

/// The same, for older images in the places of all disks, or of one.
const OLDER_IMAGES_OF_ALL_AT: u64 = 3;
const OLDER_IMAGES_OF_ONE_AT: u64 = 9;

/// Parameters of one run. Probabilities are parts of 1000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Number of nodes.
    pub nodes: usize,
    /// Disks of each node.
    pub disks_per_node: usize,
    /// Copies that the volume keeps.
    pub resiliency: Resiliency,
    /// Clients that write and read concurrently.
    pub clients: usize,
    /// Longest pause of a client between two operations, in virtual microseconds.
    pub client_pause_us: u64,
    /// Virtual milliseconds after which a client gives an operation up.
    pub patience_ms: u64,
    /// Virtual milliseconds of the first phase.
    pub faults_ms: u64,
    /// Messages between nodes that are lost during faults, of 1000.
    pub message_loss: u64,
    /// Messages that are delivered twice during faults, of 1000.
    pub message_repeat: u64,
    /// Messages that are late during faults, of 1000.
    pub message_slow: u64,
    /// Whether writes are late while a disk is out, so that decisions made meanwhile meet writes in
    /// flight.
    pub late_writes: bool,
    /// Requests to the cluster state, and answers of it, that are lost during faults, of 1000.
    pub state_loss: u64,
    /// Mean milliseconds between faults.
    pub fault_every_ms: u64,
    /// Whether nodes crash and start again.
    pub crashes: bool,
    /// Whether links between nodes, or to the cluster state, are cut and mended.
    pub partitions: bool,
    /// Whether nodes fall silent, so that another one takes the volume over.
    pub takeovers: bool,
    /// Whether disks hang, and fail reads and writes.
    pub disk_faults: bool,
    /// Whether blocks on disks rot.
    pub corruption: bool,
    /// Whether a disk is retired from the pool.
    pub retirement: bool,
    /// Whether one disk is added to the pool during the run.
    pub addition: bool,
    /// Whether blocks and whole chunks are given back.
    pub discards: bool,
    /// Whether the pool has few slabs, and fills up.
    pub tight: bool,
    /// Whether some disks answer late for a while.
    pub slow_disks: bool,
    /// Whether real stores on disks that lose power are used, instead of stores in memory.
    pub real_stores: bool,
    /// Whether all disks leave at once, and come back one after the other.
    pub all_away: bool,
    /// Whether calls to disks have long timeouts, so that only silence reveals dead nodes.
    pub patient_calls: bool,
    /// Whether links lose large messages, one after the other, and nothing else is wrong: writes
    /// must continue.
    pub large_loss: bool,
    /// Whether a node loses large messages to all others and the cluster state, while its
    /// heartbeats arrive: some node must serve all the time.
    pub large_loss_of_node: bool,
    /// Whether processes are stopped for a while, and continue.
    pub freezes: bool,
    /// Probability that a file layer cannot be opened on a node that should have the volume, of
    /// 1000.
    pub failing_openings: u64,
    /// Whether servers name epochs that no record gave.
    pub strange_epochs: bool,
    /// Whether a disk of a full pool is being retired and is away now and then, and nothing else is
    /// wrong.
    pub retiring_away: bool,
    /// Whether all disks become older images of themselves while no server is up: no data may be
    /// served before the right ones are back.
    pub older_images_of_all: bool,
    /// Whether one disk becomes an older image of itself, and nothing else is wrong.
    pub older_images_of_one: bool,
}

impl Scenario {
    /// Draws a scenario; equal seeds give equal ones.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5ce4_a310);
        let resiliency = match random.below(8) {
            0 => Resiliency::Simple,
            1..=5 => Resiliency::TwoWay,
            _ => Resiliency::ThreeWay,
        };
        let mut scenario = Self {
            nodes: random.between(3, 4) as usize,
            disks_per_node: random.between(1, 2) as usize,
            resiliency,
            clients: random.between(2, 5) as usize,
            client_pause_us: 3_000,
            patience_ms: 1_500,
            faults_ms: random.between(1_500, 4_000),
            message_loss: if random.chance(500) { random.between(1, 15) } else { 0 },
            message_repeat: if random.chance(500) { random.between(1, 60) } else { 0 },
            message_slow: if random.chance(500) { random.between(5, 100) } else { 0 },
            late_writes: false,
            state_loss: if random.chance(500) { random.between(10, 200) } else { 0 },
            fault_every_ms: random.between(80, 600),
            crashes: random.chance(700),
            partitions: random.chance(500),
            takeovers: random.chance(500),
            disk_faults: random.chance(600),
            corruption: random.chance(400),
            retirement: random.chance(200),
            real_stores: random.chance(120),
            addition: random.chance(250),
            discards: random.chance(500),
            tight: random.chance(150),
            slow_disks: random.chance(300),
            all_away: false,
            patient_calls: false,
            large_loss: false,
            large_loss_of_node: false,
            freezes: false,
            failing_openings: 0,
            strange_epochs: seed % STRANGE_EPOCHS_OF == STRANGE_EPOCHS_AT,
            retiring_away: false,
            older_images_of_all: false,
            older_images_of_one: false,
        };
        // Few writes, and late ones: most regions of a returning disk are unchanged, and a write
        // that arrives while a region is compared shows whether that is decided too early.
        if random.chance(200) {
            scenario.client_pause_us = 250_000;
            scenario.late_writes = true;
            scenario.partitions = false;
            scenario.fault_every_ms = random.between(60, 150);
            (scenario.disk_faults, scenario.slow_disks) = (true, true);
            (scenario.crashes, scenario.takeovers, scenario.discards) = (false, false, false);
        }
        scenario.all_away = random.chance(150);
        scenario.patient_calls = random.chance(200);
        // Clients that do not wait for a node that is cut off repeat their requests there, and send
        // them to others at the same time.
        if scenario.partitions && random.chance(500) {
            scenario.patience_ms = 40;
        }
        scenario.freezes = !scenario.late_writes && random.chance(350);
        let is_failing = random.chance(if scenario.freezes { 700 } else { 200 });
        scenario.failing_openings = if is_failing { random.between(100, 500) } else { 0 };
        // Chunks that leave disks need space on others.
        scenario.retirement &= !scenario.tight;
        scenario.keep_only_what_the_seed_is_for(seed);
        scenario
    }

    /// Some seeds test one fault, whose effects others would hide.
    fn keep_only_what_the_seed_is_for(&mut self, seed: u64) {
        match seed % LARGE_LOSS_OF {
            LARGE_LOSS_AT => self.keep_only_large_loss(),
            LARGE_LOSS_OF_NODE_AT => self.keep_only_large_loss_of_node(),
            TIGHT_RETIREMENT_AT => self.keep_only_tight_retirement(),
            OLDER_IMAGES_OF_ALL_AT => self.add_older_images_of_all(),
            OLDER_IMAGES_OF_ONE_AT => self.keep_only_older_images_of_one(),
            _ => {}
        }
    }

    fn keep_only_large_loss(&mut self) {
        self.large_loss = true;
        if self.resiliency == Resiliency::Simple {
            self.resiliency = Resiliency::TwoWay;
        }
        (self.message_loss, self.message_slow, self.state_loss) = (0, 0, 0);
        (self.faults_ms, self.patience_ms, self.client_pause_us) = (4_000, 1_500, 3_000);
        (self.crashes, self.partitions, self.takeovers, self.disk_faults) = (false, false, false, false);
        (self.corruption, self.retirement, self.addition, self.tight) = (false, false, false, false);
        (self.slow_disks, self.all_away, self.patient_calls, self.late_writes) = (false, false, false, false);
        (self.freezes, self.failing_openings) = (false, 0);
    }

    fn keep_only_large_loss_of_node(&mut self) {
        self.keep_only_large_loss();
        (self.large_loss, self.large_loss_of_node) = (false, true);
        (self.faults_ms, self.strange_epochs) = (9_000, false);
    }

    fn keep_only_tight_retirement(&mut self) {
        self.keep_only_large_loss();
        (self.large_loss, self.retiring_away) = (false, true);
        (self.tight, self.retirement, self.discards) = (true, true, true);
    }

    fn add_older_images_of_all(&mut self) {
        self.older_images_of_all = true;
        self.faults_ms = 5_000;
        // Faults of one disk must not remain when all are replaced.
        (self.corruption, self.retirement, self.addition) = (false, false, false);
    }

    fn keep_only_older_images_of_one(&mut self) {
        self.keep_only_large_loss();
        (self.large_loss, self.older_images_of_one) = (false, true);
        self.faults_ms = 5_000;
    }

    /// Returns the slabs of each disk.
    pub fn slabs(&self) -> u64 {
        let chunks = super::blocks::CHUNKS;
        let disks = (self.nodes * self.disks_per_node - usize::from(self.addition)) as u64;
        match self.tight {
            // A little less than all chunks need.
            true => (chunks * u64::from(self.resiliency.copies()) / disks).max(1),
            false => chunks * 2 + 2,
        }
    }
}
