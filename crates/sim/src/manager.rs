//! Who opens the volume, and when it is whole again: the manager that a cluster has, reduced to what matters here.

use crate::client::CHUNK_BLOCKS;
use crate::invariants::copies::Wrong;
use crate::world::{Event, MILLISECOND, VOLUME, World};
use pool::{DiskView, FaultDomain, PoolView};
use space::coordinator::{Config, Coordinator, Phase};
use space::seam::BlockStore;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::Monotonic;

impl World {
    /// The node whose coordinator serves with all copies in place.
    pub(crate) fn whole_on(&self) -> Option<usize> {
        let record = self.records.last()?;
        let out = record.stale.iter().filter(|stale| Some(stale.disk) != self.retired).count();
        let copies = record.resiliency.copies();
        let emptied = self.retired.is_none_or(|retired| !record.in_sync.contains(&retired));
        let whole = emptied && out == 0 && record.building.is_empty() && record.min_holders == copies;
        // A full pool may have no room for what is missing.
        let patient = self.scenario.tight && self.now > self.faults_end + 10_000 * MILLISECOND && out == 0;
        if !whole && !patient {
            return None;
        }
        (0..self.nodes.len()).find(|node| {
            self.nodes[*node].coordinator.as_ref().is_some_and(|found| {
                *found.phase() == Phase::Serving
                    && found.record() == record
                    && (found.chunk_counts().1 == 0 || patient)
                    && found.is_reconciled()
            })
        })
    }

    /// Whether chunks stay short of copies that nobody makes.
    fn watch_copies(&mut self) {
        let serving =
            self.nodes.iter().filter_map(|node| node.coordinator.as_ref()).find(|found| {
                *found.phase() == Phase::Serving && Some(found.record()) == self.records.last()
            });
        let Some(coordinator) = serving else { return self.copies_watch.forget() };
        let (few, jobs) = (coordinator.settled_chunk_counts().1, coordinator.jobs().len());
        // What a full pool has no room for is told.
        let short = few.saturating_sub(coordinator.chunks_without_room());
        let record = coordinator.record().clone();
        let too_many = coordinator
            .chunk_copies()
            .iter()
            .filter(|chunk| chunk.holders.len() > usize::from(chunk.copies))
            .count();
        let wrong = Wrong { short, too_many: too_many as u64 };
        let found = self.copies_watch.look(self.now, &record, self.retired, wrong, jobs);
        self.violate(found);
    }

    /// Opens the volume where nobody has it open.
    pub(crate) fn manage(&mut self) {
        self.after(20 * MILLISECOND, Event::Manage);
        self.watch_copies();
        let running = self.nodes.iter().any(|node| node.coordinator.is_some());
        if running || self.now < self.open_not_before {
            return;
        }
        let up: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].up).collect();
        if let Some(node) = self.random.pick(&up) {
            self.open_on(node);
        }
    }

    pub(crate) fn open_on(&mut self, node: usize) {
        self.drop_coordinator(node);
        self.openings += 1;
        self.coverage.openings += 1;
        let incarnation = u128::from(self.openings * 16 + node as u64);
        let config = Config {
            io_timeout: Duration::from_millis(120),
            reconnect_interval: Duration::from_millis(40),
            opening_grace: Duration::from_millis(150),
            rotate_interval: Duration::from_millis(200),
            state_retry: Duration::from_millis(30),
            unavailable_after: Duration::from_secs(1),
            rebuild_after: Duration::from_millis(1200),
            lease: Some(Duration::from_millis(400)),
            verify_reads: true,
            ..Config::default()
        };
        let pool = Rc::new(RefCell::new(self.pool_view()));
        self.nodes[node].pool = pool.clone();
        let now = Monotonic(self.now);
        let mut coordinator = Coordinator::new(VOLUME, incarnation, config, CHUNK_BLOCKS as u32, pool, now);
        if let Some(disk) = self.retired {
            coordinator.set_retired(disk, true);
        }
        for disk in self.disks.iter().filter(|disk| disk.added && Some(disk.id) != self.retired) {
            coordinator.add_disk(disk.id);
        }
        self.trace.note(&[9, self.now, node as u64]);
        self.nodes[node].coordinator = Some(coordinator);
        self.pump(node);
    }

    /// The disks with their slabs as they are.
    pub(crate) fn pool_view(&self) -> PoolView {
        let total_slabs = self.scenario.slabs();
        let views = self.disks.iter().filter(|disk| disk.added).map(|disk| {
            let free = disk.replica.as_ref().map(|replica| replica.store().slabs().1);
            DiskView {
                id: disk.id,
                total_slabs,
                free_slabs: free.unwrap_or(total_slabs),
                domain: FaultDomain { node: format!("node{}", disk.node), ..FaultDomain::default() },
                usable: Some(disk.id) != self.retired,
            }
        });
        PoolView::new(views.collect(), 0)
    }
}
