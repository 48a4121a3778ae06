//! Cost of an operation, of an event and of an idle server, by the number of servers: counted on
//! the state machines that ship.
//!
//! Owns the environment only: heartbeats, coordinators and replicas are the shipped code, stores are
//! those of tests. Every server has [`DISKS_PER_NODE`] disks and a two-way mirror of its own over the
//! disks of all. Promises: all counts are the same in every run; times are of this thread's processor
//! time, and the best of several.

mod counts;
mod heartbeats;
mod world;

use counts::SECOND;
use rustix::time::{ClockId, clock_gettime};
use world::World;

/// Disks of a server in the published 16-node table: two caching drives of NVMe, 4 and 20 behind them.
pub const DISKS_PER_NODE: usize = 26;
const COPIES: u64 = 2;
/// Blocks of one chunk, and chunks of a volume: enough for two copies on each disk of sixteen
/// servers.
const CHUNK_BLOCKS: u64 = 256;
const CHUNKS: u64 = 416;
/// Amount of work for a figure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Operations of reads and of writes, each round.
    pub operations: u64,
    /// Number of timed repetitions.
    pub rounds: u64,
}

impl Effort {
    /// Effort for published figures.
    pub const WHOLE: Self = Self { operations: 4_000, rounds: 7 };
    /// Effort for tests: the same counts, rough times.
    pub const QUICK: Self = Self { operations: 400, rounds: 3 };
}

/// Time for which idle servers are observed.
const IDLE: u64 = 10 * SECOND;
/// Blocks requested after a loss, so that servers notice it, and time for the reaction.
const NOTICING: u64 = 2_000;
const REACTING: u64 = 3 * SECOND;

/// Measurements with one number of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// Number of servers in the cluster.
    pub nodes: usize,
    /// Processor time of coordinator, replicas and the simulator itself for one block, in nanoseconds.
    pub read_ns: f64,
    /// Processor time for writing one block, in nanoseconds.
    pub write_ns: f64,
    /// Requests to disks for one read.
    pub read_requests: f64,
    /// Of these, requests to other servers.
    pub read_far: f64,
    /// Requests to disks for one write.
    pub write_requests: f64,
    /// Of these, requests to other servers.
    pub write_far: f64,
    /// Requests to disks that one idle server sends in a second.
    pub idle_requests: f64,
    /// Changes of the cluster state by all servers in ten idle seconds.
    pub idle_changes: f64,
    /// Heartbeats that one idle server sends in a second.
    pub heartbeats: f64,
    /// Bytes of these heartbeats.
    pub heartbeat_bytes: f64,
    /// Requests with which a server opens its volume.
    pub opening_requests: f64,
    /// Bytes of the cluster state, for each server.
    pub state_bytes: f64,
    /// Bytes of the process for each server: its heartbeats, its volume's coordinator, its disks'
    /// sessions, without data.
    pub memory_bytes: f64,
    /// Changes of the cluster state after the loss of a disk, for each volume that keeps its owner.
    pub disk_lost_changes: f64,
    /// Changes after the loss of a server.
    pub node_lost_changes: f64,
    /// Changes after the return of that server.
    pub node_back_changes: f64,
    /// Changes for the volume that another server takes over.
    pub takeover_changes: f64,
}

/// Column names, in the order of [`Measured::row`].
pub const COLUMNS: [&str; 18] = [
    "nodes",
    "read_ns",
    "write_ns",
    "read_requests",
    "read_far",
    "write_requests",
    "write_far",
    "idle_requests",
    "idle_changes",
    "heartbeats",
    "heartbeat_bytes",
    "opening_requests",
    "state_bytes",
    "memory_bytes",
    "disk_lost_changes",
    "node_lost_changes",
    "node_back_changes",
    "takeover_changes",
];

impl Measured {
    /// Returns the values in the order of [`COLUMNS`].
    pub fn row(&self) -> [f64; COLUMNS.len()] {
        [
            self.nodes as f64,
            self.read_ns,
            self.write_ns,
            self.read_requests,
            self.read_far,
            self.write_requests,
            self.write_far,
            self.idle_requests,
            self.idle_changes,
            self.heartbeats,
            self.heartbeat_bytes,
            self.opening_requests,
            self.state_bytes,
            self.memory_bytes,
            self.disk_lost_changes,
            self.node_lost_changes,
            self.node_back_changes,
            self.takeover_changes,
        ]
    }
}

/// Measures all costs with this number of servers.
pub fn measure(nodes: usize, effort: Effort) -> Measured {
    let (mut world, mut measured) = opened(nodes);
    (0..nodes).for_each(|volume| world.fill(volume));
    operate(&mut world, &mut measured, effort);
    rest(&mut world, &mut measured);
    measured.state_bytes = world.state_bytes() as f64 / nodes as f64;
    strike(&mut world, &mut measured);
    measured
}

/// Runs operations alone, in `measured_operations`, so that another program can count their
/// instructions.
pub fn measure_operations(nodes: usize, operations: u64, writes_percent: u64) {
    let (mut world, _) = opened(nodes);
    world.fill(0);
    world.rest(REACTING);
    measured_operations(&mut world, 0, operations, writes_percent);
}

/// The measured work: a tool that counts instructions counts inside this function only.
#[inline(never)]
fn measured_operations(world: &mut World, volume: usize, operations: u64, writes_percent: u64) {
    world.operate(volume, std::hint::black_box(operations), writes_percent);
}

/// Returns servers whose volumes are open, and the cost of opening them.
fn opened(nodes: usize) -> (World, Measured) {
    let mut world = World::new(nodes);
    let before = resident_bytes();
    world.run_until_open();
    let grown = resident_bytes().saturating_sub(before) as f64;
    let opening_requests = (world.counts.near + world.counts.far) as f64 / nodes as f64;
    let memory_bytes = grown / nodes as f64;
    (world, Measured { nodes, opening_requests, memory_bytes, ..Measured::default() })
}

fn operate(world: &mut World, measured: &mut Measured, effort: Effort) {
    let Effort { operations, rounds } = effort;
    // Writing the data changes the record, and each disk promises its epoch.
    world.rest(REACTING);
    for writes_percent in [0, 100] {
        let mut best = u64::MAX;
        let before = world.counts.clone();
        for round in 0..rounds {
            let volume = round as usize % world.nodes();
            world.rest(SECOND);
            let began = thread_ns();
            measured_operations(world, volume, operations, writes_percent);
            best = best.min(thread_ns() - began);
        }
        let done = (operations * rounds) as f64;
        let far = (world.counts.far - before.far) as f64 / done;
        let requests = (world.counts.near - before.near) as f64 / done + far;
        let ns = best as f64 / operations as f64;
        if writes_percent == 0 {
            (measured.read_ns, measured.read_requests, measured.read_far) = (ns, requests, far);
        } else {
            (measured.write_ns, measured.write_requests, measured.write_far) = (ns, requests, far);
        }
    }
}

/// Counts the requests of idle servers, after the epochs of the last writes are settled.
fn rest(world: &mut World, measured: &mut Measured) {
    world.rest(75 * SECOND);
    let before = world.counts.clone();
    world.rest(IDLE);
    let counts = &world.counts;
    let per_node = world.nodes() as f64 * (IDLE / SECOND) as f64;
    measured.idle_requests = ((counts.near + counts.far) - (before.near + before.far)) as f64 / per_node;
    measured.idle_changes = (sum(&counts.changes) - sum(&before.changes)) as f64;
    measured.heartbeats = (counts.heartbeats - before.heartbeats) as f64 / per_node;
    measured.heartbeat_bytes = (counts.heartbeat_bytes - before.heartbeat_bytes) as f64 / per_node;
}

fn sum(changes: &[u64]) -> u64 {
    changes.iter().sum()
}

/// Loses a disk and brings it back, then a server.
fn strike(world: &mut World, measured: &mut Measured) {
    let last = world.nodes() - 1;
    let others = last as f64;
    // Epochs end by themselves twice a minute during writes: the next end is then later than the
    // measurement.
    (0..world.nodes()).for_each(|volume| world.operate(volume, NOTICING, 100));
    world.rest(SECOND);
    let before = world.counts.changes.clone();
    world.lose_disk(0);
    for volume in 0..world.nodes() {
        world.operate(volume, NOTICING, 50);
    }
    world.rest(REACTING);
    let lost = world.counts.changes.clone();
    measured.disk_lost_changes = (sum(&lost) - sum(&before)) as f64 / world.nodes() as f64;
    world.heal_disk(0);
    world.run_until_whole();
    world.rest(REACTING);

    let before = world.counts.changes.clone();
    world.lose_node(last);
    world.rest(REACTING);
    world.run_until_open();
    let lost = world.counts.changes.clone();
    measured.node_lost_changes = (sum(&lost[..last]) - sum(&before[..last])) as f64 / others;
    measured.takeover_changes = (lost[last] - before[last]) as f64;
    world.bring_node_back(last);
    world.run_until_whole();
    world.rest(REACTING);
    let back = &world.counts.changes;
    measured.node_back_changes = (sum(&back[..last]) - sum(&lost[..last])) as f64 / others;
    assert_eq!(world.counts.failed, 0, "no operation fails");
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// Returns the memory of this process in bytes; 0 if unknown.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

#[cfg(test)]
mod tests;
