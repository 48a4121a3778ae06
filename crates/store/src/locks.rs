//! Order of overlapping changes: each change stands in its slab's line in order of arrival and starts when no earlier one
//! overlaps it, or when both go through the journal, which keeps their order anyway.

use crate::numbers::NumberMap;
use crate::slots::SlotId;
use types::SlabIndex;

/// How a change reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// By its journal record alone.
    Journaled,
    /// By a journal record, with an effect on the place afterwards.
    JournaledThenInPlace,
    InPlace,
}

#[derive(Debug)]
struct Line {
    task: SlotId,
    first: u32,
    end: u32,
    manner: Manner,
    started: bool,
    /// Its record stands in the journal's queue.
    queued: bool,
}

impl Line {
    fn lets_pass(&self, later: &Line) -> bool {
        let apart = self.end <= later.first || later.end <= self.first;
        let in_order = self.queued && self.manner == Manner::Journaled && later.manner != Manner::InPlace;
        apart || in_order
    }
}

#[derive(Default)]
pub(crate) struct Locks {
    slabs: NumberMap<Vec<Line>>,
}

impl Locks {
    /// Joins the line; answers whether the change may start at once.
    pub(crate) fn join(
        &mut self,
        slab: SlabIndex,
        first: u32,
        count: u32,
        manner: Manner,
        task: SlotId,
    ) -> bool {
        let line = self.slabs.entry(u64::from(slab.0)).or_default();
        let mut entry = Line { task, first, end: first + count, manner, started: false, queued: false };
        entry.started = line.iter().all(|earlier| earlier.lets_pass(&entry));
        let started = entry.started;
        line.push(entry);
        started
    }

    /// Whether a change that makes blocks unwritten is in the line.
    pub(crate) fn awaits_discard(&self, slab: SlabIndex) -> bool {
        let line = self.slabs.get(&u64::from(slab.0));
        line.is_some_and(|line| line.iter().any(|entry| entry.manner == Manner::JournaledThenInPlace))
    }

    /// Notes that the record of a change is queued. Answers the changes that may start now.
    pub(crate) fn queued(&mut self, slab: SlabIndex, task: SlotId) -> Vec<SlotId> {
        let Some(line) = self.slabs.get_mut(&u64::from(slab.0)) else { return Vec::new() };
        line.iter_mut().filter(|entry| entry.task == task).for_each(|entry| entry.queued = true);
        start(line)
    }

    /// Leaves the line. Answers the changes that may start now.
    pub(crate) fn leave(&mut self, slab: SlabIndex, task: SlotId) -> Vec<SlotId> {
        let Some(line) = self.slabs.get_mut(&u64::from(slab.0)) else { return Vec::new() };
        line.retain(|entry| entry.task != task);
        if line.is_empty() {
            self.slabs.remove(&u64::from(slab.0));
            return Vec::new();
        }
        start(line)
    }
}

fn start(line: &mut [Line]) -> Vec<SlotId> {
    let mut startable = Vec::new();
    for at in 0..line.len() {
        let (earlier, rest) = line.split_at_mut(at);
        let Some(entry) = rest.first_mut().filter(|entry| !entry.started) else { continue };
        if earlier.iter().all(|other| other.lets_pass(entry)) {
            entry.started = true;
            startable.push(entry.task);
        }
    }
    startable
}
