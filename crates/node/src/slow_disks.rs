//! Finds disks that are much slower than their peers ([`crate::pace`]).
//!
//! Each server judges its own disks; the latencies of others' disks come with the reports between
//! nodes. Promises: reads only counters, once in a window, and never delays a request.

use crate::disks::Disks;
use crate::pace::{Means, WINDOW};
use crate::tasks::Tasks;
use space::local::nodes::DiskPace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, PoolId};

/// Age from which another server's report says nothing about this window: its own window may have
/// ended that long ago.
const TOLD_MAX: Duration = WINDOW.saturating_mul(2);

/// Another server's report on a disk of its own.
#[derive(Debug, Clone, Copy)]
struct Told {
    pool: PoolId,
    pace: DiskPace,
    at: Monotonic,
}

/// Disks that are compared with each other.
type Kind = (PoolId, bool);

/// Finds slow disks.
#[derive(Clone)]
pub(crate) struct SlowDisks {
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    next_at: Rc<Cell<Monotonic>>,
    /// The reports, by disk of another server.
    told: Rc<RefCell<BTreeMap<DiskId, Told>>>,
}

impl SlowDisks {
    pub fn new(tasks: Rc<Tasks>, disks: Rc<Disks>) -> Self {
        Self { tasks, disks, next_at: Rc::default(), told: Rc::default() }
    }

    /// Takes another server's measurements of a disk of its own.
    pub fn note(&self, disk: DiskId, pool: PoolId, pace: DiskPace) {
        self.told.borrow_mut().insert(disk, Told { pool, pace, at: self.tasks.now() });
    }

    /// Returns the measurements of a disk of this server within the last window.
    pub fn pace(&self, disk: DiskId) -> Option<DiskPace> {
        let slots = self.disks.slots();
        let slot = slots.get(&disk)?;
        let is_rotational = slot.store()?.with(|store| store.disk_info().rotational);
        Some(DiskPace { is_rotational, means: slot.pace.last() })
    }

    /// Ends a window if it is due.
    pub fn look_if_due(&self) {
        let now = self.tasks.now();
        if now < self.next_at.get() {
            return;
        }
        self.next_at.set(now.after(WINDOW));
        let unix_s = self.tasks.unix_seconds();
        let mut slots = self.disks.slots_mut();
        let mut windows = self.told_lately(now);
        let mut own: Vec<(DiskId, Kind)> = Vec::new();
        for (id, slot) in slots.iter_mut() {
            let rotational = slot.store().map(|store| store.with(|store| store.disk_info().rotational));
            let means = slot.pace.measure(&slot.counters);
            if let Some(rotational) = rotational {
                let kind = (slot.record.pool, rotational);
                windows.entry(kind).or_default().insert(*id, means);
                own.push((*id, kind));
            }
        }
        for (id, kind) in own {
            let disks = &windows[&kind];
            let others = disks.iter().filter(|(other, _)| **other != id);
            let peers: Vec<Means> = others.map(|(_, means)| *means).collect();
            let Some(slot) = slots.get_mut(&id) else { continue };
            let was_slow = slot.pace.slow().is_some();
            slot.pace.judge(&disks[&id], &peers, kind.1, unix_s);
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

    /// Returns reports of other servers on their disks within the last windows, and forgets older
    /// ones.
    fn told_lately(&self, now: Monotonic) -> BTreeMap<Kind, BTreeMap<DiskId, Means>> {
        let mut told = self.told.borrow_mut();
        told.retain(|_, told| now.since(told.at) < TOLD_MAX);
        let mut windows: BTreeMap<Kind, BTreeMap<DiskId, Means>> = BTreeMap::new();
        for (disk, Told { pool, pace, .. }) in told.iter() {
            windows.entry((*pool, pace.is_rotational)).or_default().insert(*disk, pace.means);
        }
        windows
    }
}
