//! Requests to the cluster state, until they are sent.

use records::{Condition, Record, Request, Transaction, VolumeRecord};
use std::collections::VecDeque;

/// Names one request to the cluster state. The answer carries the same token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateToken(u64);

#[derive(Default)]
pub(super) struct StateRequests {
    requests: VecDeque<(StateToken, Request)>,
    last: StateToken,
}

impl StateRequests {
    /// Reads the record with this key.
    pub fn read(&mut self, key: String) -> StateToken {
        self.push(Request::Get { key })
    }

    /// Replaces the record if it still has this revision, and the other condition holds.
    pub fn replace(&mut self, record: &VolumeRecord, revision: u64, other: Option<&Condition>) -> StateToken {
        let key = record.key();
        let mut transaction = Transaction::default().when(key.clone(), revision).put(key, record.encode());
        transaction.conditions.extend(other.cloned());
        self.push(Request::Commit(transaction))
    }

    pub fn poll(&mut self) -> Option<(StateToken, Request)> {
        self.requests.pop_front()
    }

    pub fn clear(&mut self) {
        self.requests.clear();
    }

    fn push(&mut self, request: Request) -> StateToken {
        self.last = StateToken(self.last.0 + 1);
        self.requests.push_back((self.last, request));
        self.last
    }
}
