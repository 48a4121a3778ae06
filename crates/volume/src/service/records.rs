//! Opens, leases, locks and deletions with changes to record.
//!
//! Opens of continuously available shares outlive the server: their state, as reported to clients, is
//! in the volume's journal. A part that changes such state, in any operation, notes that here;
//! [`record_changes`](super::persist_opens::record_changes) records it.

use super::file_opens::Doomed;
use super::intervals::Interval;
use super::open::LeaseName;
use crate::backend::{OpenId, OperationId};
use crate::fs::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of changes recorded together after they have gathered for lack of space, from breaks that
/// nobody acknowledged in time. Together with the most that one operation adds they fit the gathering
/// batch.
const ITEMS_AT_ONCE: usize = 1024;

/// Changes that are not recorded yet.
#[derive(Debug, Default)]
pub struct Records {
    changed: bool,
    pub opens: BTreeSet<OpenId>,
    pub leases: BTreeSet<LeaseName>,
    /// Locks by open and range; shared or not.
    pub locks: BTreeSet<(OpenId, Interval, bool)>,
    /// Names and streams newly marked for deletion, or unmarked.
    pub deletions: BTreeMap<(FileId, Doomed), bool>,
    /// Requests that got their locks, to be answered when that is durable.
    pub granted: Vec<OperationId>,
}

impl Records {
    /// Notes that an open was made, changed or closed.
    pub fn open(&mut self, id: OpenId) {
        self.changed = true;
        self.opens.insert(id);
    }

    pub fn lease(&mut self, name: LeaseName) {
        self.changed = true;
        self.leases.insert(name);
    }

    pub fn lock(&mut self, id: OpenId, interval: Interval, shared: bool) {
        self.changed = true;
        self.locks.insert((id, interval, shared));
    }

    /// Notes that a name or a stream is to be deleted with the last open, or no longer is.
    pub fn deletion(&mut self, file: FileId, doomed: Doomed, is_due: bool) {
        self.changed = true;
        self.deletions.insert((file, doomed), is_due);
    }

    /// Has a request that got its lock answered when the lock is durable.
    pub fn granted(&mut self, operation: OperationId) {
        self.changed = true;
        self.granted.push(operation);
    }

    pub fn is_empty(&self) -> bool {
        !self.changed
    }

    /// Whether so many changes wait for space in the journal that no operation may add to them.
    pub fn is_behind(&self) -> bool {
        self.changed && self.len() > ITEMS_AT_ONCE
    }

    fn len(&self) -> usize {
        self.opens.len() + self.leases.len() + self.locks.len() + self.deletions.len()
    }

    /// Takes out the changes to record together: all, unless that is too much for a batch.
    pub fn take_some(&mut self) -> Self {
        if !self.is_behind() {
            return std::mem::take(self);
        }
        let opens = split_first(&mut self.opens);
        let leases = split_first(&mut self.leases);
        let locks = split_first(&mut self.locks);
        let rest = self.deletions.keys().nth(ITEMS_AT_ONCE / 4).cloned();
        let rest = rest.map(|first| self.deletions.split_off(&first)).unwrap_or_default();
        let deletions = std::mem::replace(&mut self.deletions, rest);
        Self { changed: true, opens, leases, locks, deletions, granted: Vec::new() }
    }
}

/// Takes out the first items of a set.
fn split_first<T: Ord + Clone>(set: &mut BTreeSet<T>) -> BTreeSet<T> {
    let rest = set.iter().nth(ITEMS_AT_ONCE / 4).cloned();
    let rest = rest.map(|first| set.split_off(&first)).unwrap_or_default();
    std::mem::replace(set, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gathered_is_taken_in_parts_that_fit_and_all_of_it() {
        let mut records = Records::default();
        for number in 0..10_000_u64 {
            records.open(OpenId(number));
            records.lease(([1; 16], u128::from(number).to_le_bytes()));
            records.lock(OpenId(number), Interval { start: 0, end: 1 }, false);
            records.deletion(FileId(number), Doomed::Stream(1), true);
        }
        let mut taken = 0;
        while records.is_behind() {
            let part = records.take_some();
            assert!(part.len() <= ITEMS_AT_ONCE);
            taken += part.len();
        }
        assert_eq!(taken + records.take_some().len(), 40_000);
        assert!(records.is_empty());
    }
}
