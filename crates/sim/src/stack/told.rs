//! What a server tells of its disks, as the daemon adds it up for `health`: which of them damage was found on. A disk that did
//! nothing wrong must not be named, and one that gave errors must be.

use super::node::{Node, Slot};
use space::coordinator::Event;
use space::local::LocalEvent;
use std::collections::{BTreeMap, BTreeSet};
use store::Store;
use types::DiskId;

/// Findings of a run.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Disks that did something wrong to what they hold.
    struck: BTreeSet<DiskId>,
    /// Of events, and of stores that were closed since.
    found: BTreeMap<DiskId, u64>,
    /// Of the stores that are open.
    open: BTreeMap<DiskId, u64>,
    /// Disks that were put out of a volume, which is told too.
    left: BTreeSet<DiskId>,
}

impl Told {
    /// From now on the disk may be named.
    pub fn strike(&mut self, disk: DiskId) {
        self.struck.insert(disk);
    }

    pub fn note(&mut self, event: &LocalEvent) {
        let LocalEvent::Volume(_, event) = event else { return };
        match event {
            Event::CorruptRead { disk, blocks, .. } | Event::LostWrite { disk, blocks, .. } => {
                *self.found.entry(*disk).or_default() += blocks;
            }
            Event::DiskLeft { disk, .. } => drop(self.left.insert(*disk)),
            _ => {}
        }
    }

    /// Looks at the counters of all stores.
    pub fn look(&mut self, node: &Node) {
        for slot in &node.slots {
            let Some(store) = slot.store() else { continue };
            let health = store.with(Store::health);
            let count = health.corrupt_blocks + health.lost_writes;
            let last = self.open.insert(slot.id, count).unwrap_or(0);
            // It was opened anew, and counts from 0.
            if count < last {
                *self.found.entry(slot.id).or_default() += last;
            }
        }
    }

    /// The process is gone, and what its stores had counted with it.
    pub fn stopped(&mut self) {
        for (disk, count) in std::mem::take(&mut self.open) {
            *self.found.entry(disk).or_default() += count;
        }
    }

    /// What was found on a disk so far.
    pub fn count(&self, disk: DiskId) -> u64 {
        let of = |counts: &BTreeMap<DiskId, u64>| counts.get(&disk).copied().unwrap_or(0);
        of(&self.found) + of(&self.open)
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
