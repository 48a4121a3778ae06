//! The course of a run: its time, its random numbers, the events to come, and the findings so far.

use super::event::Event;
use super::scenario::Scenario;
use crate::random::Random;
use crate::trace::Trace;
use std::collections::BTreeMap;

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const MICROSECOND: u64 = 1_000;

/// Events of a run, counted so that tests can require that faults really happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Writes that a coordinator acknowledged.
    pub acknowledged_writes: u64,
    /// Reads that a coordinator answered with data.
    pub reads: u64,
    /// Nodes that crashed.
    pub crashes: u64,
    /// Coordinators that were started.
    pub openings: u64,
    /// Disks that a committed record took out of the in-sync set.
    pub expulsions: u64,
    /// Disks that a committed record took back into the in-sync set.
    pub joins: u64,
    /// Coordinators that stopped because another one had a higher epoch.
    pub fenced: u64,
    /// Blocks that reconciling copies after a takeover wrote.
    pub reconciled_blocks: u64,
    /// Blocks written again from another copy after a checksum failed.
    pub repaired_blocks: u64,
    /// Late reads of one copy that were sent to another one too.
    pub hedged_reads: u64,
    /// Regions copied to a disk that came back.
    pub resynced_regions: u64,
    /// Regions copied to make a new copy of a chunk.
    pub built_regions: u64,
    /// Discards that a coordinator acknowledged.
    pub discards: u64,
    /// Writes refused because the pool was full.
    pub no_space: u64,
    /// Disks added to the pool during the run.
    pub added_disks: u64,
    /// Times that all disks left at once.
    pub all_away: u64,
    /// Times that a node declared another one dead.
    pub dead_nodes: u64,
    /// Links that lost large messages for a while.
    pub large_losses: u64,
    /// Times that a node fell silent because its large messages reached no other.
    pub retreats: u64,
    /// Times that a process was stopped for a while.
    pub freezes: u64,
    /// Times that a node that could not open the volume left it to another one.
    pub passed_on: u64,
    /// Epochs that a server named and no record gave.
    pub strange_epochs: u64,
    /// Requests that a disk refused for an epoch that no record gave.
    pub refused_epochs: u64,
    /// Times that a disk being retired went away for a moment.
    pub retiring_away: u64,
    /// Times that older images replaced disks.
    pub gone_back: u64,
}

/// The moment of an event: virtual microseconds and the step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64, u64);

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} step {:x}", self.0 / 1000, self.1)
    }
}

/// Time, random numbers and record of a run, which all its parts share.
///
/// Time and step never go back, and no event to come lies before `now`. All random numbers come
/// from `random`, in the order of events, so that a seed replays bit for bit.
pub(crate) struct Course {
    pub scenario: Scenario,
    pub random: Random,
    /// Virtual nanoseconds.
    pub now: u64,
    /// Number of the event: the oracle's time.
    pub step: u64,
    /// End of the first phase, after which there are no more faults.
    pub faults_end: u64,
    queue: BTreeMap<(u64, u64), Event>,
    /// Number of the last queued event: events of one time happen in the order of queueing.
    sequence: u64,
    last_token: u64,
    pub violations: Vec<String>,
    pub trace: Trace,
    pub coverage: Coverage,
}

impl Course {
    pub fn new(seed: u64, scenario: Scenario) -> Self {
        Self {
            random: Random::new(seed),
            now: MILLISECOND,
            step: 1,
            faults_end: scenario.faults_ms * MILLISECOND,
            queue: BTreeMap::new(),
            sequence: 0,
            last_token: 0,
            violations: Vec::new(),
            trace: Trace::new(),
            coverage: Coverage::default(),
            scenario,
        }
    }

    /// Queues an event for at least a nanosecond from now.
    pub fn after(&mut self, nanoseconds: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + nanoseconds.max(1), self.sequence), event);
    }

    /// Advances to the next event.
    pub fn next(&mut self) -> Option<Event> {
        let ((at, _), event) = self.queue.pop_first()?;
        debug_assert!(at >= self.now, "time goes back from {} to {at}", self.now);
        self.now = at;
        self.step += 1;
        Some(event)
    }

    pub fn moment(&self) -> Moment {
        Moment(self.now, self.step)
    }

    pub fn faulting(&self) -> bool {
        self.now < self.faults_end
    }

    /// Returns a number that is unique in the run.
    pub fn new_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    pub fn violate(&mut self, found: impl IntoIterator<Item = String>) {
        self.violations.extend(found);
    }
}
