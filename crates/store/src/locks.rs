//! Order of overlapping changes: each change waits in its slab's queue, in order of arrival. It
//! starts when no earlier one overlaps it, or when both go through the journal, since that keeps
//! their order anyway.

use crate::numbers::NumberMap;
use crate::slots::SlotId;
use types::SlabIndex;

/// How a change reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// By its journal record alone.
    Journaled,
    /// By a journal record that makes blocks unwritten: the next write must find them so.
    Emptying,
    InPlace,
}

#[derive(Debug)]
struct Line {
    task: SlotId,
    first: u32,
    end: u32,
    manner: Manner,
    started: bool,
    /// Whether its record is in the journal's queue.
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
struct Queue {
    lines: Vec<Line>,
    /// Number of those that have not started.
    waiting: usize,
}

#[derive(Default)]
pub(crate) struct Locks {
    slabs: NumberMap<Queue>,
}

impl Locks {
    /// Joins the queue. Returns whether the change may start at once.
    pub(crate) fn join(
        &mut self,
        slab: SlabIndex,
        first: u32,
        count: u32,
        manner: Manner,
        task: SlotId,
    ) -> bool {
        let queue = self.slabs.entry(u64::from(slab.0)).or_default();
        let mut entry = Line { task, first, end: first + count, manner, started: false, queued: false };
        entry.started = queue.lines.iter().all(|earlier| earlier.lets_pass(&entry));
        let started = entry.started;
        queue.waiting += usize::from(!started);
        queue.lines.push(entry);
        started
    }

    /// Whether the queue has a change that makes blocks unwritten.
    pub(crate) fn awaits_discard(&self, slab: SlabIndex) -> bool {
        let queue = self.slabs.get(&u64::from(slab.0));
        queue.is_some_and(|queue| queue.lines.iter().any(|entry| entry.manner == Manner::Emptying))
    }

    /// Notes that the record of a change is queued. Returns the changes that may start now.
    pub(crate) fn queued(&mut self, slab: SlabIndex, task: SlotId) -> Vec<SlotId> {
        let Some(queue) = self.slabs.get_mut(&u64::from(slab.0)) else { return Vec::new() };
        if let Some(entry) = queue.lines.iter_mut().find(|entry| entry.task == task) {
            entry.queued = true;
        }
        queue.start()
    }

    /// Leaves the queue. Returns the changes that may start now.
    pub(crate) fn leave(&mut self, slab: SlabIndex, task: SlotId) -> Vec<SlotId> {
        let Some(queue) = self.slabs.get_mut(&u64::from(slab.0)) else { return Vec::new() };
        if let Some(at) = queue.lines.iter().position(|entry| entry.task == task) {
            let gone = queue.lines.remove(at);
            queue.waiting -= usize::from(!gone.started);
        }
        if queue.lines.is_empty() {
            self.slabs.remove(&u64::from(slab.0));
            return Vec::new();
        }
        queue.start()
    }
}

impl Queue {
    fn start(&mut self) -> Vec<SlotId> {
        let mut startable = Vec::new();
        for at in 0..if self.waiting == 0 { 0 } else { self.lines.len() } {
            let (earlier, rest) = self.lines.split_at_mut(at);
            let Some(entry) = rest.first_mut().filter(|entry| !entry.started) else { continue };
            if earlier.iter().all(|other| other.lets_pass(entry)) {
                entry.started = true;
                self.waiting -= 1;
                startable.push(entry.task);
            }
        }
        startable
    }
}
