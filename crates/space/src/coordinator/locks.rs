//! Order of operations on the same blocks: reads together, writes alone, first come first served.
//!
//! Locks are kept by region. A lock stays within one region, so that queues are short and no holder
//! of one lock waits for another.
//!
//! Invariant: two granted locks of a region overlap only if both are shared; a lock waits only for earlier ones.

use super::keys::Holder;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

struct Entry {
    holder: Holder,
    /// Blocks from the start of the virtual disk.
    range: Range<u64>,
    exclusive: bool,
    granted: bool,
}

impl Entry {
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.exclusive || other.exclusive)
    }
}

#[derive(Default)]
pub(super) struct Locks {
    regions: BTreeMap<u64, VecDeque<Entry>>,
}

impl Locks {
    /// Asks for a lock, and returns whether it is granted at once. Otherwise [`Locks::unlock`] of another
    /// holder returns this holder later.
    pub fn lock(&mut self, holder: Holder, region: u64, range: Range<u64>, exclusive: bool) -> bool {
        let queue = self.regions.entry(region).or_default();
        let mut entry = Entry { holder, range, exclusive, granted: false };
        entry.granted = !queue.iter().any(|earlier| earlier.conflicts(&entry));
        let granted = entry.granted;
        queue.push_back(entry);
        granted
    }

    /// Gives up the lock, or the place in the queue. Returns the holders whose lock is granted thereby.
    pub fn unlock(&mut self, holder: Holder, region: u64) -> Vec<Holder> {
        let Some(queue) = self.regions.get_mut(&region) else { return Vec::new() };
        queue.retain(|entry| entry.holder != holder);
        if queue.is_empty() {
            self.regions.remove(&region);
            return Vec::new();
        }
        let mut granted = Vec::new();
        for at in 0..queue.len() {
            let free = {
                let entry = &queue[at];
                !entry.granted && !queue.iter().take(at).any(|earlier| earlier.conflicts(entry))
            };
            if free {
                queue[at].granted = true;
                granted.push(queue[at].holder);
            }
        }
        debug_assert!(
            queue.front().is_some_and(|entry| entry.granted),
            "region {region}: all that wait, wait for each other"
        );
        granted
    }
}
