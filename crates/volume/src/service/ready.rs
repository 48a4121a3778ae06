//! Turns of the operations that are ready to run.
//!
//! Promises: users take turns, one operation each, so one user's operations hold up another by at most
//! one operation of each active user. The operations of one user run in the order in which they came.

use crate::backend::OperationId;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use types::Sid;

/// A user by the hash of its SID, or the service itself. Users with the same hash share their turns,
/// which is harmless otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party(u64);

impl Party {
    /// Work that is no single user's.
    pub const SERVICE: Self = Self(0);

    pub fn of_user(user: &Sid) -> Self {
        let mut hasher = DefaultHasher::new();
        user.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The operations that can continue.
///
/// Invariant: a party is in the round exactly while it has a queue, and no queue is empty.
#[derive(Debug, Default)]
pub struct Ready {
    /// Operations whose party is not determined yet, in the order of arrival.
    arrived: VecDeque<OperationId>,
    queues: HashMap<Party, VecDeque<OperationId>>,
    round: VecDeque<Party>,
}

impl Ready {
    pub fn add(&mut self, operation: OperationId) {
        self.arrived.push_back(operation);
    }

    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.round.is_empty()
    }

    /// Takes the next operation; `party` returns an operation's party, or nothing if it has ended.
    pub fn take(&mut self, party: impl Fn(OperationId) -> Option<Party>) -> Option<OperationId> {
        while let Some(operation) = self.arrived.pop_front() {
            let Some(party) = party(operation) else { continue };
            let queue = self.queues.entry(party).or_default();
            if queue.is_empty() {
                self.round.push_back(party);
            }
            queue.push_back(operation);
        }
        let party = self.round.pop_front()?;
        let queue = self.queues.get_mut(&party)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&party);
        } else {
            self.round.push_back(party);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(ready: &mut Ready, party: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
        std::iter::from_fn(|| ready.take(|operation| party(operation.0).map(Party)))
            .map(|next| next.0)
            .collect()
    }

    #[test]
    fn users_take_turns_and_the_order_of_each_stays() {
        let mut ready = Ready::default();
        for operation in [10, 11, 12, 13, 20, 30, 14, 21] {
            ready.add(OperationId(operation));
        }
        let order = taken(&mut ready, |operation| (operation != 12).then_some(operation / 10));
        assert_eq!(order, [10, 20, 30, 11, 21, 13, 14], "the operation that ended is passed over");
        assert!(ready.is_empty());
    }

    #[test]
    fn who_was_served_last_is_behind_who_waits() {
        let mut ready = Ready::default();
        for operation in [10, 11, 20] {
            ready.add(OperationId(operation));
        }
        let by_ten = |operation: OperationId| Some(Party(operation.0 / 10));
        assert_eq!(ready.take(by_ten), Some(OperationId(10)));
        ready.add(OperationId(12));
        assert_eq!(ready.take(by_ten), Some(OperationId(20)));
    }
}
