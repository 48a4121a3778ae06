//! A server's reports on its disks, as the daemon adds them up for `health`: the disks with damage. A
//! disk that did nothing wrong must not be named, and one that gave errors must be.

use super::node::{Node, Slot};
use space::coordinator::Event;
use space::local::LocalEvent;
use std::collections::{BTreeMap, BTreeSet};
use store::Store;
use store::api::StoreError;
use types::DiskId;

/// Counters of one store.
#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    errors: u64,
    needless: u64,
}

/// Findings of a run.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Disks that damaged their contents.
    struck: BTreeSet<DiskId>,
    /// Errors of events, and of stores that were closed since.
    found: BTreeMap<DiskId, u64>,
    /// Reads that the medium refused and that stores which were closed since could do without.
    needless: BTreeMap<DiskId, u64>,
    /// Counts of the open stores.
    open: BTreeMap<DiskId, Counted>,
    /// Disks that were expelled from a volume, which is reported too.
    left: BTreeSet<DiskId>,
}

impl Told {
    /// From now on the disk may be named.
    pub fn strike(&mut self, disk: DiskId) {
        self.struck.insert(disk);
    }

    /// Takes notice of an event. Answers what is wrong with it.
    pub fn note(&mut self, event: &LocalEvent) -> Option<String> {
        let LocalEvent::Volume(_, event) = event else { return None };
        match event {
            Event::CorruptRead { disk, blocks, .. } | Event::LostWrite { disk, blocks, .. } => {
                *self.found.entry(*disk).or_default() += blocks;
            }
            Event::DiskLeft { disk, why, .. } => {
                self.left.insert(*disk);
                // Under all faults, a disk keeps the slabs that it has said to have.
                let is_wrong = *why == StoreError::NotMapped.to_string() && !self.struck.contains(disk);
                return is_wrong.then(|| format!("disk {disk} is put out and did nothing wrong: {why}"));
            }
            _ => {}
        }
        None
    }

    /// Looks at the counters of all stores.
    pub fn look(&mut self, node: &Node) {
        for slot in &node.slots {
            let Some(store) = slot.store() else { continue };
            let health = store.with(Store::health);
            let errors = health.corrupt_blocks + health.lost_writes;
            let counted = Counted { errors, needless: health.refused_early };
            let last = self.open.insert(slot.id, counted).unwrap_or_default();
            // The store was opened anew, and counts from 0.
            if counted.errors < last.errors || counted.needless < last.needless {
                self.keep(slot.id, last);
            }
        }
    }

    fn keep(&mut self, disk: DiskId, counted: Counted) {
        *self.found.entry(disk).or_default() += counted.errors;
        *self.needless.entry(disk).or_default() += counted.needless;
    }

    /// The process is gone, with the counts of its stores.
    pub fn stopped(&mut self) {
        for (disk, counted) in std::mem::take(&mut self.open) {
            self.keep(disk, counted);
        }
    }

    /// Errors found on a disk so far.
    pub fn count(&self, disk: DiskId) -> u64 {
        self.found.get(&disk).copied().unwrap_or(0) + self.open.get(&disk).map_or(0, |open| open.errors)
    }

    /// Reads so far that the disk's medium refused, and that nothing needed: the blocks hold nothing, or were read again.
    pub fn needless(&self, disk: DiskId) -> u64 {
        self.needless.get(&disk).copied().unwrap_or(0) + self.open.get(&disk).map_or(0, |open| open.needless)
    }

    pub fn left(&self, disk: DiskId) -> bool {
        self.left.contains(&disk)
    }

    /// A disk that is named and did nothing wrong.
    pub fn accused(&self, slots: &[Slot]) -> Option<(DiskId, u64)> {
        let innocent = slots.iter().map(|slot| slot.id).filter(|disk| !self.struck.contains(disk));
        innocent.map(|disk| (disk, self.count(disk))).find(|(_, count)| *count > 0)
    }
}
