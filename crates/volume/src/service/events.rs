//! Events for the server, until it fetches them.

use crate::backend::{Event, OperationId, Refusal, Reply};
use types::NtStatus;

/// Identifiers from here on name the service's own operations, whose answers are ignored.
pub const INTERNAL: u64 = 3 << 62;

/// Answers, breaks and closings that the server has not fetched yet, in their order.
///
/// Invariant: an operation is answered once, and has no event after that.
#[derive(Debug, Default)]
pub struct Events(Vec<Event>);

impl Events {
    pub fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// Answers an operation.
    pub fn done(&mut self, operation: OperationId, result: Result<Reply, NtStatus>) {
        self.answered(operation, result.map_err(Refusal::from));
    }

    /// Refuses an operation.
    pub fn refused(&mut self, operation: OperationId, refusal: Refusal) {
        self.answered(operation, Err(refusal));
    }

    fn answered(&mut self, operation: OperationId, result: Result<Reply, Refusal>) {
        if operation.0 < INTERNAL {
            self.0.push(Event::Done { operation, result });
        }
    }

    /// Moves all events to `out`.
    pub fn fetch(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.0);
    }
}
