//! Flushes that tasks share: one is in flight at a time, and tasks that arrive meanwhile share the
//! next.

use crate::slots::SlotId;

/// Invariant: all writes of a task in `in_flight` completed before that flush was submitted; a task in `waiting` is covered by the next one
/// only.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    waiting: Vec<SlotId>,
    in_flight: Option<Vec<SlotId>>,
}

impl Flushes {
    /// Waits for the next flush.
    pub(super) fn join(&mut self, task: SlotId) {
        self.waiting.push(task);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.waiting.is_empty()
    }

    /// Begins a flush if none is in flight, and a task waits for one or one is `wanted`. Returns
    /// whether to submit it.
    pub(super) fn begin(&mut self, wanted: bool) -> bool {
        let begins = self.in_flight.is_none() && (wanted || !self.waiting.is_empty());
        if begins {
            self.in_flight = Some(std::mem::take(&mut self.waiting));
        }
        begins
    }

    /// Returns the tasks that the flush in flight covers.
    pub(super) fn covered(&self) -> &[SlotId] {
        self.in_flight.as_deref().unwrap_or_default()
    }

    /// Ends the flush in flight. Returns the tasks that it covers.
    pub(super) fn end(&mut self) -> Vec<SlotId> {
        self.in_flight.take().unwrap_or_default()
    }

    /// Drops all waiting tasks, which are refused.
    pub(super) fn abandon(&mut self) {
        *self = Self::default();
    }
}
