//! Protocol between the store and its tasks: the store sends a task an event, and the task answers with
//! its next step. Between two events a task changes nothing, so a reader of one kind of task needs only
//! its own file.

use crate::api::{StoreError, StoreReply};
use crate::record::Record;
use disk::DiskError;
use sys::{BufMut, Payload};

/// An event for a task.
#[derive(Debug)]
pub(super) enum Event {
    /// No earlier change of the task's blocks precedes it, and its metadata pages are in RAM and
    /// pinned. For an allocation: a slab may be free.
    Turn,
    /// A read of the task ended.
    SegmentRead { segment: u16, result: Result<Option<BufMut>, DiskError> },
    /// A write of the task ended. An error is always [`DiskError::NoSpace`]: after any other the store is
    /// poisoned.
    Written(Result<(), DiskError>),
    /// The flush that will make the task's writes durable has begun.
    Flushing,
    /// The task's writes are durable.
    Flushed,
    /// The task's record is durable and has taken effect, in the batch of this sequence.
    Committed(u64),
    /// The poll for which the task waited has begun.
    Polled,
    /// The checkpoint that the task waited for has ended.
    CheckpointEnded,
}

impl Event {
    /// Stops a test whose task got an event that it cannot have.
    pub(super) fn cannot_be(self) -> Next {
        debug_assert!(false, "a task was told of {self:?}, which it never waits for");
        Next::Wait
    }
}

/// The next step of a task.
#[must_use]
#[derive(Debug)]
pub(super) enum Next {
    /// Waits for its operations.
    Wait,
    /// Gathers its metadata pages again, and gets another turn.
    Gather,
    /// Waits for the next poll, to see whether other tasks share a flush with it.
    Poll,
    /// Waits until a flush has made its writes durable.
    Flush,
    /// Queues a record with its data for the journal, and waits until the record is durable.
    Record(Record, Payload),
    /// As `Record`, for data that are being written in place: the record has no effect before they
    /// are durable ([`Self::Placed`]).
    RecordBeside(Record),
    /// The data that its record awaits are durable; the task waits for the record.
    Placed,
    /// The data that its record awaits found no space. The task is refused, and waits until the
    /// record is withdrawn.
    Withdraw,
    /// Ends with this answer, and releases queue place and pages.
    Finish(Result<StoreReply, StoreError>),
}

impl Next {
    pub(super) fn done() -> Self {
        Self::Finish(Ok(StoreReply::Done))
    }
    pub(super) fn fail(error: StoreError) -> Self {
        Self::Finish(Err(error))
    }
}
