//! Which opens, leases, locks and deletions have to be recorded anew.
//!
//! Opens of continuously available shares outlive the server: what their clients were told is in the volume's journal. A part that
//! changes such state notes that here, whatever the operation; [`settle`](super::settling::settle) records it.

use super::file_opens::Doomed;
use super::intervals::Interval;
use super::open::LeaseName;
use crate::backend::{OpenId, OperationId};
use crate::fs::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// Changes that are not recorded yet.
#[derive(Debug, Default)]
pub struct Records {
    changed: bool,
    pub opens: BTreeSet<OpenId>,
    pub leases: BTreeSet<LeaseName>,
    /// Locks by open and range; shared or not.
    pub locks: BTreeSet<(OpenId, Interval, bool)>,
    /// Names and streams that are to go, or that are not any more.
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

    /// Notes that a name or a stream is to go with the last open, or is not any more.
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
}
