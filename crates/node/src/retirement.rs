//! Retirements as jobs: one for each disk being emptied, over all volumes, from the command until
//! the disk has left its pool.
//!
//! Decides nothing: coordinators move the data, and [`crate::disk_admin`] removes the disk.
//! Promises: a retirement that no volume can continue is listed as suspended, with the reason; a
//! recorded one is listed again after a restart.

use crate::disks::Disks;
use crate::jobs::{Emptied, JobState, Jobs};
use crate::pools::Pools;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use records::{DiskState, JobKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, PoolId};

/// An obstacle that is shorter passes by itself: a volume being reopened, slabs being given back.
const BLOCKED_AFTER: Duration = Duration::from_secs(5);

/// Tracks the retirements.
#[derive(Clone)]
pub(crate) struct Retirements {
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub volumes: Rc<Volumes>,
    pub jobs: Rc<RefCell<Jobs>>,
    /// Time since which each retirement has an obstacle.
    pub blocked_since: Rc<RefCell<BTreeMap<DiskId, Monotonic>>>,
}

impl Retirements {
    /// Notes the progress of all retirements. Call once a second.
    pub(crate) fn update(&self) {
        let unix_s = self.tasks.unix_seconds();
        let retired: Vec<(DiskId, PoolId, String)> = {
            let slots = self.disks.slots();
            let retired = slots.values().filter(|slot| slot.recorded.0 == DiskState::Retired && !slot.busy);
            retired.map(|slot| (slot.record.id, slot.record.pool, slot.record.path.clone())).collect()
        };
        for (disk, pool, path) in retired {
            // After a restart the retirement is not listed yet.
            self.jobs.borrow_mut().begin_retirement(disk, path, unix_s);
            let emptied = self.look(disk, pool);
            self.jobs.borrow_mut().note_emptied(disk, emptied, unix_s);
        }
        let listed = self.jobs.borrow().retiring();
        for disk in listed.into_iter().filter(|disk| !self.disks.slots().contains_key(disk)) {
            let message = "the disk left this server with its pool";
            self.jobs.borrow_mut().end_retirement(disk, JobState::Cancelled, message, unix_s);
        }
        self.blocked_since.borrow_mut().retain(|disk, _| self.disks.slots().contains_key(disk));
    }

    fn look(&self, disk: DiskId, pool: PoolId) -> Emptied {
        let slab_bytes = self.pools.slab_bytes(pool).unwrap_or_default();
        let slabs_on = |volume| {
            let space = self.pools.space(pool)?;
            space.with_volume(volume, |coordinator| coordinator.slabs_on(disk))
        };
        let slabs: u64 = self.volumes.of_pool(pool).into_iter().filter_map(slabs_on).sum();
        Emptied { left_bytes: slabs * slab_bytes, blocked: self.blocked(disk, pool) }
    }

    /// Describes an obstacle that has lasted for at least [`BLOCKED_AFTER`].
    fn blocked(&self, disk: DiskId, pool: PoolId) -> Option<String> {
        let mut since = self.blocked_since.borrow_mut();
        let Some(why) = self.in_the_way(pool) else {
            since.remove(&disk);
            return None;
        };
        let since = *since.entry(disk).or_insert(self.tasks.now());
        (self.tasks.now().since(since) >= BLOCKED_AFTER).then_some(why)
    }

    fn in_the_way(&self, pool: PoolId) -> Option<String> {
        let volumes = self.volumes.of_pool(pool);
        let unserved = volumes.iter().find(|volume| !self.volumes.is_served(**volume));
        if let Some(volume) = unserved {
            return Some(format!(
                "volume {} is not served, and may need the disk",
                self.volumes.name(*volume)
            ));
        }
        if let Some(job) = self.jobs.borrow().stopped_rebuild(&volumes) {
            return Some(format!("job {job} was stopped: `cenote job resume {job}` goes on"));
        }
        let space = self.pools.space(pool)?;
        let is_working = space.jobs().iter().any(|(_, job)| job.kind == JobKind::Rebuild);
        let without_room =
            |volume: &_| space.with_volume(*volume, |coordinator| coordinator.chunks_without_room());
        let without_room: u64 = volumes.iter().filter_map(without_room).sum();
        (without_room > 0 && !is_working).then(|| {
            format!("{without_room} of its slabs find no room on other disks: add a disk, or delete data")
        })
    }
}
