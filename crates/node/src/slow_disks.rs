//! Looks for disks that are much slower than their peers ([`crate::pace`]).
//!
//! Promises: only counters are looked at, once in a window: nothing is on the way of a request.

use crate::disks::Disks;
use crate::pace::{Means, WINDOW};
use crate::tasks::Tasks;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{DiskId, Monotonic, PoolId};

/// Looks for slow disks.
#[derive(Clone)]
pub(crate) struct SlowDisks {
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    pub next_at: Rc<Cell<Monotonic>>,
}

impl SlowDisks {
    /// Ends a window if it is time.
    pub fn look_if_due(&self) {
        let now = self.tasks.now();
        if now < self.next_at.get() {
            return;
        }
        self.next_at.set(now.after(WINDOW));
        let unix_s = self.tasks.unix_seconds();
        let mut slots = self.disks.slots_mut();
        let mut windows: BTreeMap<(PoolId, bool), Vec<(DiskId, Means)>> = BTreeMap::new();
        for (id, slot) in slots.iter_mut() {
            let rotational = slot.store().map(|store| store.with(|store| store.disk_info().rotational));
            let means = slot.pace.measure(&slot.counters);
            if let Some(rotational) = rotational {
                windows.entry((slot.record.pool, rotational)).or_default().push((*id, means));
            }
        }
        for ((_, rotational), disks) in windows {
            for (id, means) in &disks {
                let others = disks.iter().filter(|(other, _)| other != id);
                let peers: Vec<Means> = others.map(|(_, means)| *means).collect();
                let Some(slot) = slots.get_mut(id) else { continue };
                let was_slow = slot.pace.slow().is_some();
                slot.pace.judge(means, &peers, rotational, unix_s);
                match slot.pace.slow() {
                    Some(slow) if !was_slow => {
                        let path = &slot.record.path;
                        tracing::warn!(disk = %id, path, ?slow, "a disk is much slower than its peers");
                    }
                    None if was_slow => {
                        tracing::info!(disk = %id, "a disk is no slower than its peers any more")
                    }
                    _ => {}
                }
            }
        }
    }
}
