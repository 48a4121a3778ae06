//! Work left for this poll of the file layer, and events for its caller.
//!
//! Every part may add to the agenda and none reads what others added: only [`super::FileSystem::poll`] and the pumps take from it.

use std::collections::VecDeque;

use ::types::Monotonic;

use super::types::{FsError, FsEvent};

/// Wishes and events of one turn.
///
/// A part that makes a missed operation possible calls [`Agenda::wake`]; otherwise an operation that
/// answered [`FsError::Miss`] waits for ever. A part that leaves work that needs no answer from the
/// virtual disk sets `again`; otherwise that work waits for the next poll.
#[derive(Debug, Default)]
pub struct Agenda {
    /// Time of the last poll.
    pub now: Monotonic,
    /// Operations of the caller that missed may run again.
    retry: bool,
    /// Reads, writes and jobs that wait here may run again.
    data_retry: bool,
    /// Number of times that the caller was told to retry its misses.
    retries: u64,
    /// More to do in this poll.
    pub again: bool,
    /// Events for the caller, oldest first.
    pub events: VecDeque<FsEvent>,
}

impl Agenda {
    /// Has everything run again that missed, here and at the caller's.
    pub fn wake(&mut self) {
        self.retry = true;
        self.data_retry = true;
    }

    /// Reports more work: the operation starts over and finds less to do.
    pub fn go_on_later<T>(&mut self) -> Result<T, FsError> {
        self.wake();
        self.again = true;
        Err(FsError::Miss)
    }

    /// Whether the caller should retry its misses.
    pub fn wants_retry(&self) -> bool {
        self.retry
    }

    /// Takes the request that the caller retry its misses.
    pub fn take_retry(&mut self) -> bool {
        let retry = std::mem::take(&mut self.retry);
        self.retries += u64::from(retry);
        retry
    }

    /// Takes the request to retry operations waiting in the file layer.
    pub fn take_data_retry(&mut self) -> bool {
        std::mem::take(&mut self.data_retry)
    }

    /// Returns how often the caller was told to retry its misses.
    pub fn retries(&self) -> u64 {
        self.retries
    }
}
