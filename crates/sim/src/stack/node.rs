//! A server: its disks' stores, its virtual disks and its volumes, supervised as by the daemon.

use super::disks::{POOL, SimDisk, SimStore, TimedDisk};
use super::scenario::Scenario;
use super::served::{Limits, Served, Space};
use pool::FaultDomain;
use records::MemoryState;
use space::coordinator::Config;
use space::local::LocalEvent;
use std::time::Duration;
use store::{OpenError, Store, StoreOpening, StoreOptions};
use types::{BLOCK_BYTES, DiskId, Monotonic};
use volume::backend::Event;

/// The daemon's interval of supervising disks, and its pauses between attempts to open one.
const SUPERVISION: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) enum Condition {
    Present(SimStore),
    Opening(Box<StoreOpening<TimedDisk>>),
    Absent { retry_at: Monotonic },
}

/// A disk of the node.
pub(crate) struct Slot {
    pub id: DiskId,
    pub condition: Condition,
    /// Reason of its absence.
    pub refused: Option<OpenError>,
    pause: Duration,
    opened_at: Monotonic,
}

impl Slot {
    pub fn new(id: DiskId, now: Monotonic) -> Self {
        let condition = Condition::Absent { retry_at: now };
        Self { id, condition, refused: None, pause: PAUSE_MIN, opened_at: now }
    }

    pub fn store(&self) -> Option<&SimStore> {
        match &self.condition {
            Condition::Present(store) => Some(store),
            _ => None,
        }
    }

    /// Plans another attempt after a growing pause, unless the disk was open for long.
    fn absent(&mut self, now: Monotonic) {
        if now.since(self.opened_at) >= PAUSE_MAX && self.store().is_some() {
            self.pause = PAUSE_MIN;
        }
        self.condition = Condition::Absent { retry_at: now.after(self.pause) };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

pub(crate) struct Node {
    pub space: Space,
    pub slots: Vec<Slot>,
    pub volumes: Vec<Served>,
    /// Events that the world has not taken yet.
    pub events: Vec<LocalEvent>,
    supervise_at: Monotonic,
    /// Duration of the node's lease, if it needs one; renewed each turn.
    lease: Option<Duration>,
}

impl Node {
    /// Starts a process with these disks.
    pub fn start(
        scenario: &Scenario,
        state: &MemoryState,
        disks: &[DiskId],
        volumes: Vec<Served>,
        now: Monotonic,
    ) -> Self {
        let config = Config {
            io_timeout: super::disks::DISK_TIMEOUT + Duration::from_secs(1),
            rebuild_after: scenario.rebuild_after,
            rotate_interval: scenario.rotate_interval,
            lease: scenario.lease,
            verify_reads: scenario.verify_reads,
            ..Config::default()
        };
        let slab_blocks = (scenario.slab_bytes / BLOCK_BYTES as u64) as u32;
        let space = Space::new(state.client(), config, slab_blocks, 0, now);
        let slots = disks.iter().map(|id| Slot::new(*id, now)).collect();
        Self { space, slots, volumes, events: Vec::new(), supervise_at: now, lease: scenario.lease }
    }

    /// Runs all ready work at this time.
    pub fn turn(
        &mut self,
        now: Monotonic,
        disks: &[SimDisk],
        limits: &Limits,
        out: &mut Vec<(usize, Event)>,
    ) {
        if let Some(lease) = self.lease {
            self.space.set_node_lease(now.after(lease));
        }
        self.space.handle_timeout(now);
        self.open_disks(now);
        if now >= self.supervise_at {
            self.supervise(now, disks);
        }
        self.space.poll();
        let disks_tried = self.disks_tried();
        for (index, volume) in self.volumes.iter_mut().enumerate() {
            volume.turn(&self.space, disks_tried, limits, now, index, out);
        }
        self.space.poll();
        while let Some(event) = self.space.poll_event() {
            self.events.push(event);
        }
    }

    /// Returns the latest time for the next [`Node::turn`], disks aside.
    pub fn next_timeout(&self) -> Monotonic {
        let volumes = self.volumes.iter().filter_map(Served::next_timeout);
        let space = self.space.next_timeout().into_iter();
        volumes.chain(space).fold(self.supervise_at, Monotonic::min)
    }

    fn disks_tried(&self) -> bool {
        self.slots.iter().all(|slot| match &slot.condition {
            Condition::Opening(_) => false,
            Condition::Absent { .. } => slot.refused.is_some(),
            Condition::Present(_) => true,
        })
    }

    fn open_disks(&mut self, now: Monotonic) {
        for slot in &mut self.slots {
            let Condition::Opening(opening) = &mut slot.condition else { continue };
            let Some(result) = opening.poll() else { continue };
            match result {
                Ok(store) if store.label().disk == slot.id => {
                    let store = SimStore::new(store);
                    slot.refused = None;
                    slot.opened_at = now;
                    let attached = self.space.attach_disk(slot.id, store.clone(), FaultDomain::default());
                    attached.expect("all disks have slabs of one size");
                    slot.condition = Condition::Present(store);
                }
                Ok(_) => slot.refused = Some(OpenError::Blank),
                Err(error) => {
                    slot.refused = Some(error);
                    slot.absent(now);
                }
            }
        }
    }

    /// Closes failed disks and volumes, and reopens missing ones.
    fn supervise(&mut self, now: Monotonic, disks: &[SimDisk]) {
        self.supervise_at = now.after(SUPERVISION);
        for slot in &mut self.slots {
            let Some(disk) = disks.iter().find(|disk| disk.id == slot.id) else { continue };
            match &slot.condition {
                Condition::Present(store) if disk.control.lost.get() || store.with(Store::is_poisoned) => {
                    slot.absent(now);
                    drop(self.space.detach_disk(slot.id));
                }
                Condition::Present(store) => store.retry(),
                Condition::Absent { retry_at } if *retry_at <= now => {
                    let options =
                        StoreOptions { pool: Some(POOL), verify_writes: false, ..StoreOptions::default() };
                    slot.condition = Condition::Opening(Box::new(StoreOpening::new(disk.open(), options)));
                }
                _ => {}
            }
        }
    }

    /// Whether no block torn by a crash is left: copies agree again, and each file system has been
    /// opened, which rewrites the torn parts of its journal.
    pub fn is_reconciled(&self) -> bool {
        let reconciled = |volume: &Served| {
            let equal = self.space.with_volume(volume.id, |coordinator| coordinator.is_reconciled());
            equal.unwrap_or(false) && volume.serves
        };
        self.volumes.iter().all(reconciled)
    }

    pub fn slot(&self, id: DiskId) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.id == id)
    }

    /// Forgets a disk that left the pool.
    pub fn remove(&mut self, id: DiskId) {
        self.slots.retain(|slot| slot.id != id);
        drop(self.space.remove_disk(id));
    }
}
