//! Lock requests of one stream that wait for others' locks (MS-FSA 2.1.5.8).
//!
//! Promises: when a range becomes free, only requests whose ranges meet it are tried, the oldest first,
//! and of equal ones only as many as succeed and one more.

use super::intervals::{Interval, IntervalSet};
use crate::backend::{LockElement, OpenId, OperationId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Place in the order in which requests came.
type Ticket = u64;

/// A lock request that waits.
#[derive(Debug, Clone, Copy)]
pub struct WaitingLock {
    pub operation: OperationId,
    pub open: OpenId,
    pub element: LockElement,
    pub sequence: Option<u32>,
}

/// The claim that requests of one range have in common if they succeed or fail alike: an exclusive lock is refused to its owner as to
/// others, a shared one is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Exclusive,
    Shared(OpenId),
}

impl WaitingLock {
    fn group(&self) -> (Interval, Claim) {
        let exclusive = self.element.exclusive == Some(true);
        (self.element.range.into(), if exclusive { Claim::Exclusive } else { Claim::Shared(self.open) })
    }
}

/// The requests, in the order of arrival, by open and by range.
///
/// Invariant: each request is in all three indexes, and its range in `ranges` while its group has any.
#[derive(Debug, Default)]
pub struct WaitingLocks {
    by_ticket: BTreeMap<Ticket, WaitingLock>,
    by_open: BTreeSet<(OpenId, Ticket)>,
    groups: BTreeMap<(Interval, Claim), BTreeSet<Ticket>>,
    ranges: IntervalSet<Claim>,
    last: Ticket,
}

impl WaitingLocks {
    pub fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    /// Lists the requests of an open.
    pub fn of(&self, open: OpenId) -> impl Iterator<Item = (Ticket, &WaitingLock)> {
        let mine = self.by_open.range((open, 0)..=(open, Ticket::MAX));
        mine.map(|(_, ticket)| (*ticket, &self.by_ticket[ticket]))
    }

    pub fn push(&mut self, lock: WaitingLock) {
        self.last += 1;
        let (interval, claim) = lock.group();
        let group = self.groups.entry((interval, claim)).or_default();
        if group.is_empty() {
            self.ranges.insert(interval, claim);
        }
        group.insert(self.last);
        self.by_open.insert((lock.open, self.last));
        self.by_ticket.insert(self.last, lock);
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<WaitingLock> {
        let lock = self.by_ticket.remove(&ticket)?;
        self.by_open.remove(&(lock.open, ticket));
        let (interval, claim) = lock.group();
        let group = self.groups.get_mut(&(interval, claim)).expect("a request that waits is in its group");
        group.remove(&ticket);
        if group.is_empty() {
            self.groups.remove(&(interval, claim));
            self.ranges.remove(interval, claim);
        }
        Some(lock)
    }

    /// Calls `attempt` for the requests that meet these freed ranges, the oldest first. Removes and returns
    /// those for which it returns true.
    pub fn retry(
        &mut self,
        freed: &[Interval],
        mut attempt: impl FnMut(&WaitingLock) -> bool,
    ) -> Vec<WaitingLock> {
        let mut met = BTreeSet::new();
        for interval in freed {
            self.ranges.each_meeting(*interval, |interval, claim| {
                met.insert((interval, claim));
                true
            });
        }
        let oldest = |groups: &BTreeMap<_, BTreeSet<Ticket>>, group| {
            groups.get(&group).and_then(BTreeSet::first).map(|ticket| Reverse((*ticket, group)))
        };
        let mut next: BinaryHeap<_> =
            met.into_iter().filter_map(|group| oldest(&self.groups, group)).collect();
        let mut granted = Vec::new();
        while let Some(Reverse((ticket, group))) = next.pop() {
            if attempt(&self.by_ticket[&ticket]) {
                granted.extend(self.remove(ticket));
                next.extend(oldest(&self.groups, group));
            }
        }
        granted
    }
}
