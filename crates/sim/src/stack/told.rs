//! A server's reports on its disks with damage, as the daemon adds them up for `health`. A disk
//! without fault must not be named, and a disk with errors must be.

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
    /// Errors from events, and from stores that have closed.
    found: BTreeMap<DiskId, u64>,
    /// Reads that the medium refused and that closed stores did not need.
    needless: BTreeMap<DiskId, u64>,
    /// Counts of the open stores.
    open: BTreeMap<DiskId, Counted>,
    /// Disks expelled from a volume, which is reported too.
    left: BTreeSet<DiskId>,
}

impl Told {
    /// Allows reports that name the disk from now on.
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

    /// Reads the counters of all stores.
    pub fn look(&mut self, node: &Node) {
        for slot in &node.slots {
            let Some(store) = slot.store() else { continue };
            let health = store.with(Store::health);
            let errors = health.corrupt_blocks + health.lost_writes;
            let counted = Counted { errors, needless: health.refused_early };
            let last = self.open.insert(slot.id, counted).unwrap_or_default();
            // The store was opened anew, and counts from 0 again.
            if counted.errors < last.errors || counted.needless < last.needless {
                self.keep(slot.id, last);
            }
        }
    }

    fn keep(&mut self, disk: DiskId, counted: Counted) {
        *self.found.entry(disk).or_default() += counted.errors;
        *self.needless.entry(disk).or_default() += counted.needless;
    }

    /// Handles the end of the process, and with it of its stores' counts.
    pub fn stopped(&mut self) {
        for (disk, counted) in std::mem::take(&mut self.open) {
            self.keep(disk, counted);
        }
    }

    /// Returns the errors found on a disk so far.
    pub fn count(&self, disk: DiskId) -> u64 {
        self.found.get(&disk).copied().unwrap_or(0) + self.open.get(&disk).map_or(0, |open| open.errors)
    }

    /// Returns the number of reads that the disk's medium refused and that were not needed: the
    /// blocks hold no data, or were read again.
    pub fn needless(&self, disk: DiskId) -> u64 {
        self.needless.get(&disk).copied().unwrap_or(0) + self.open.get(&disk).map_or(0, |open| open.needless)
    }

    pub fn left(&self, disk: DiskId) -> bool {
        self.left.contains(&disk)
    }

    /// Returns a disk that is named although it is without fault.
    pub fn accused(&self, slots: &[Slot]) -> Option<(DiskId, u64)> {
        let innocent = slots.iter().map(|slot| slot.id).filter(|disk| !self.struck.contains(disk));
        innocent.map(|disk| (disk, self.count(disk))).find(|(_, count)| *count > 0)
    }
}
