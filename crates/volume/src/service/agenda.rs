//! Agenda of the service: the time, the steps of the turn, timers, waiting operations, events for the
//! server.

use super::clock::Clock;
use super::events::Events;
use super::records::Records;
use super::tasks::{Parked, Tasks, Wait, Work};
use super::timers::Timers;
use super::turn::Turn;
use crate::backend::{Event, Operation, OperationId, Reply};
use types::NtStatus;

/// The service's time and its queues, through which every part makes an operation wait, wakes it or
/// answers it.
///
/// Invariant: each operation is in one place: it runs, is parked in [`Tasks`], is transferred ([`super::transfers`]), or is answered.
#[derive(Debug)]
pub struct Agenda {
    pub clock: Clock,
    pub turn: Turn,
    pub timers: Timers,
    pub tasks: Tasks,
    pub events: Events,
    /// Opens that outlive the server whose changes have to be recorded.
    pub records: Records,
    /// Whether operations run: only after the opens that outlived the last start are recovered.
    pub is_open: bool,
}

impl Agenda {
    pub fn new(clock: Clock, parked_max: usize) -> Self {
        Self {
            clock,
            turn: Turn::default(),
            timers: Timers::default(),
            tasks: Tasks::new(parked_max),
            events: Events::default(),
            records: Records::default(),
            is_open: false,
        }
    }

    /// Parks an operation, and tells its client once if the wait may be long.
    pub fn park(&mut self, operation: OperationId, work: Option<Work>, wait: Wait, told: bool) {
        let tell = !told && !matches!(wait, Wait::Storage | Wait::Turn);
        if tell {
            self.events.push(Event::Pending { operation });
        }
        self.tasks.park(operation, Parked { work, wait, told: told || tell });
    }

    /// Lets a request wait for metadata, or answers it if the file layer has stopped.
    pub fn wait_for_storage(&mut self, operation: OperationId, request: Operation) {
        match self.tasks.failed() {
            Some(status) => self.events.done(operation, Err(status)),
            None => self.park(operation, Some(Work::Request(request)), Wait::Storage, true),
        }
    }

    /// Begins work without a waiting client.
    pub fn start_internal(&mut self, work: Work) {
        let operation = self.tasks.internal_id();
        self.tasks.park(operation, Parked { work: Some(work), wait: Wait::Nothing, told: true });
    }

    /// Answers an operation that waited in the queue of a part.
    pub fn finish(&mut self, operation: OperationId, result: Result<Reply, NtStatus>) {
        self.tasks.forget(operation);
        self.events.done(operation, result);
    }
}
