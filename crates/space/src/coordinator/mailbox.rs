//! Mailbox of the parts: events for the operator, and work for other parts.
//!
//! A part calls only parts below it. Work for a part above or beside it goes here as a [`Next`],
//! which the coordinator delivers before it takes any other input.
//!
//! Invariant: when [`Coordinator::drive`](super::Coordinator::drive) returns, `next` is empty.

use super::keys::{Holder, OperationKey, Synced};
use super::{Counters, Event};
use smallvec::SmallVec;
use std::collections::VecDeque;
use types::{ChunkIndex, DiskId, Epoch};

/// Events kept while no caller polls them.
const EVENTS_MAX: usize = 1024;

/// Work that one part found for another.
#[derive(Debug)]
pub(super) enum Next {
    /// A waiting holder got its lock.
    Granted(Holder),
    /// The read waits for a comparison of all copies. The operation keeps its lock and its chunk
    /// until the comparison has asked for its own.
    Compare { operation: OperationKey, chunk: ChunkIndex, lba: u64, blocks: u64 },
    /// An operation wants the region of this block, which may differ between copies.
    Reconcile(ChunkIndex, u64),
    /// The chunk is being given back: a copy in the making would outlive it.
    Close(ChunkIndex),
    /// A step on a region has ended.
    Synced(Synced),
    /// The disk failed and no acknowledged write depends on it, so its copies in the making are
    /// given up.
    Abandon(DiskId),
    /// These disks have no space for a write to copies in the making, so these copies are given up.
    GiveUpCopies { operation: OperationKey, chunk: ChunkIndex, disks: SmallVec<[DiskId; 3]> },
}

/// The meaning of a response beyond the call that it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    /// A disk has promised a higher epoch than ours: another coordinator has the volume (I3).
    Fenced,
}

#[derive(Default)]
pub(super) struct Mailbox {
    events: VecDeque<Event>,
    pub counters: Counters,
    /// Whether a change may let gated operations pass.
    pub recheck: bool,
    next: VecDeque<Next>,
    /// The promise by which a disk refused this coordinator.
    refused_by: Option<Epoch>,
}

impl Mailbox {
    pub fn emit(&mut self, event: Event) {
        // Without a listener, the newest events are the most useful.
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Notes that a disk refuses this coordinator because of a higher promise.
    pub fn fence(&mut self, promised: Epoch) -> Heard {
        self.refused_by = Some(promised);
        Heard::Fenced
    }

    /// Returns the promise by which a disk refused this coordinator.
    pub fn refused_by(&self) -> Option<Epoch> {
        self.refused_by
    }

    /// Leaves work to another part.
    pub fn leave(&mut self, next: Next) {
        self.next.push_back(next);
    }

    pub fn take_next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    /// Drops the work that was left: no part will do it any more.
    pub fn drop_work(&mut self) {
        self.next.clear();
        self.recheck = false;
    }

    pub fn has_work(&self) -> bool {
        !self.next.is_empty()
    }
}
