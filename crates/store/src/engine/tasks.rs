//! Requests in progress, and the answers that wait to be polled.

use super::append::AppendTask;
use super::discard::DiscardTask;
use super::pages::{Pages, Pinned, WordRanges};
use super::place::Place;
use super::read::ReadTask;
use super::regions;
use super::scrub::ScrubTask;
use super::slab::{AllocateTask, FreeTask};
use super::volumes::Forgets;
use super::write::WriteTask;
use crate::api::{StoreCompletion, StoreError, StoreReply};
use crate::layout::Layout;
use crate::locks::{Locks, Manner};
use crate::slots::{SlotId, Slots};
use std::collections::VecDeque;
use std::ops::Range;
use types::{Epoch, SlabIndex, VolumeId};

pub(super) struct Task {
    /// Token of the request; taken when the task is answered.
    token: Option<u64>,
    pub(super) place: Option<Place>,
    /// The slab in whose queue the task stands.
    lock: Option<SlabIndex>,
    /// Pages pinned for the task.
    pub(super) pinned: Pinned,
    pub(super) pages_missing: u32,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Read(ReadTask),
    Write(WriteTask),
    Append(AppendTask),
    Discard(DiscardTask),
    Free(FreeTask),
    Allocate(AllocateTask),
    Promise { volume: VolumeId, epoch: Epoch },
    Forget { volume: VolumeId, how: Forgets },
    Regions,
    Scrub(ScrubTask),
    Records,
}

impl Task {
    fn changes(&self) -> bool {
        !matches!(self.kind, Kind::Read(_) | Kind::Regions | Kind::Scrub(_))
    }

    /// Returns the metadata words that the task reads or changes.
    pub(super) fn word_ranges(&self, place: Place, layout: &Layout) -> WordRanges {
        match &self.kind {
            Kind::Read(read) => read.word_ranges(place),
            Kind::Write(write) => write.word_ranges(place, layout),
            Kind::Append(append) => append.word_ranges(place, layout),
            Kind::Discard(discard) => discard.word_ranges(place, layout),
            Kind::Regions => regions::word_ranges(layout),
            Kind::Free(_)
            | Kind::Allocate(_)
            | Kind::Promise { .. }
            | Kind::Forget { .. }
            | Kind::Scrub(_)
            | Kind::Records => WordRanges::new(),
        }
    }
}

/// Invariant: each request is one task until its single answer; some tasks continue after that (one
/// that withdraws its record). A task keeps its place in its slab's queue and its pinned pages
/// until it ends, and then neither.
pub(super) struct Tasks {
    tasks: Slots<Task>,
    locks: Locks,
    /// Changes whose turn has come.
    ready: VecDeque<SlotId>,
    answers: Vec<StoreCompletion>,
    /// Tasks that have ended since the store was opened.
    ended: u64,
}

impl Tasks {
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            tasks: Slots::new(incarnation),
            locks: Locks::default(),
            ready: VecDeque::new(),
            answers: Vec::new(),
            ended: 0,
        }
    }

    /// Makes a task of a request, whose answer carries `token`.
    pub(super) fn take(&mut self, token: u64, place: Option<Place>, kind: Kind) -> SlotId {
        self.insert(Some(token), place, kind)
    }

    /// Makes a task that is a part of another and gets no answer.
    pub(super) fn take_part(&mut self, place: Place, kind: Kind) -> SlotId {
        self.insert(None, Some(place), kind)
    }

    fn insert(&mut self, token: Option<u64>, place: Option<Place>, kind: Kind) -> SlotId {
        self.tasks.insert(Task { token, place, lock: None, pinned: Pinned::new(), pages_missing: 0, kind })
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&Task> {
        self.tasks.get(id)
    }
    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut Task> {
        self.tasks.get_mut(id)
    }
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }
    pub(super) fn take_answers(&mut self, out: &mut Vec<StoreCompletion>) {
        out.append(&mut self.answers);
    }

    /// Joins the slab's queue. Returns whether the task's turn has come at once.
    pub(super) fn join(&mut self, id: SlotId, slab: SlabIndex, span: Range<u32>, manner: Manner) -> bool {
        if let Some(task) = self.tasks.get_mut(id) {
            debug_assert!(task.lock.is_none(), "a task stands in one line");
            task.lock = Some(slab);
        }
        self.locks.join(slab, span.start, span.end - span.start, manner, id)
    }

    /// Whether the slab's queue has a change that makes blocks unwritten.
    pub(super) fn awaits_discard(&self, slab: SlabIndex) -> bool {
        self.locks.awaits_discard(slab)
    }

    /// Notes that the task's record is in the journal's queue. Changes that may start now do so
    /// after the present step, not within it ([`Self::next_ready`]).
    pub(super) fn queued(&mut self, id: SlotId) {
        if let Some(slab) = self.tasks.get(id).and_then(|task| task.lock) {
            self.ready.extend(self.locks.queued(slab, id));
        }
    }

    pub(super) fn next_ready(&mut self) -> Option<SlotId> {
        self.ready.pop_front()
    }
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Answers a request that has no task.
    pub(super) fn answer_at_once(&mut self, token: u64, result: Result<StoreReply, StoreError>) {
        self.answers.push(StoreCompletion { token, result });
    }

    /// Answers a task that continues, and keeps its queue place and pages.
    pub(super) fn answer(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        if let Some(token) = self.tasks.get_mut(id).and_then(|task| task.token.take()) {
            self.answers.push(StoreCompletion { token, result });
        }
    }

    /// Answers a task, and releases its queue place and pages.
    pub(super) fn finish(&mut self, id: SlotId, result: Result<StoreReply, StoreError>, pages: &mut Pages) {
        self.answer(id, result);
        self.ended += 1;
        let Some(task) = self.tasks.remove(id) else { return };
        pages.unpin(task.pinned);
        if let Some(slab) = task.lock {
            self.ready.extend(self.locks.leave(slab, id));
        }
    }

    /// Refuses all tasks that would change the disk.
    pub(super) fn refuse_changes(&mut self, error: &StoreError, pages: &mut Pages) {
        for id in self.tasks.ids() {
            if self.tasks.get(id).is_some_and(Task::changes) {
                self.finish(id, Err(error.clone()), pages);
            }
        }
    }
}
