//! The course of a run: its time, its chance, the events to come, and the findings so far.

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
    pub acknowledged_writes: u64,
    pub reads: u64,
    pub crashes: u64,
    pub openings: u64,
    pub expulsions: u64,
    pub joins: u64,
    pub fenced: u64,
    pub reconciled_blocks: u64,
    pub repaired_blocks: u64,
    /// Reads of one copy that were late and asked of another one too.
    pub hedged_reads: u64,
    pub resynced_regions: u64,
    pub built_regions: u64,
    pub discards: u64,
    /// Writes refused because the pool was full.
    pub no_space: u64,
    pub added_disks: u64,
    /// Times that all disks went at once.
    pub all_away: u64,
    /// Times that a node took another one for dead.
    pub dead_nodes: u64,
    /// Links that lost large messages for a while.
    pub large_losses: u64,
    /// Times that a node fell silent since its large messages reached nobody.
    pub retreats: u64,
    /// Times that a process was stopped for a while.
    pub freezes: u64,
    /// Times that a node which could not open the volume left it to another one.
    pub passed_on: u64,
    /// Epochs that a server named and no record gave, and requests that were refused for theirs.
    pub strange_epochs: u64,
    pub refused_epochs: u64,
    /// Times that older images were put in the places of disks.
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

/// Time, chance and record of a run, which all its parts share.
///
/// Time and step never go back, and no event to come lies before `now`. All chance is drawn from `random`, in the order of
/// events: that is why a seed replays bit for bit.
pub(crate) struct Course {
    pub scenario: Scenario,
    pub random: Random,
    /// Virtual nanoseconds.
    pub now: u64,
    /// Number of the event: the oracle's time.
    pub step: u64,
    /// The end of the first phase, after which there are no more faults.
    pub faults_end: u64,
    queue: BTreeMap<(u64, u64), Event>,
    /// Number of the last event that was queued: events of one time happen in the order in which they were queued.
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

    /// Queues an event; it happens at least a nanosecond from now.
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

    /// Gives a number that nothing else of the run has.
    pub fn new_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    pub fn violate(&mut self, found: impl IntoIterator<Item = String>) {
        self.violations.extend(found);
    }
}
