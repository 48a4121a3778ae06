//! Opens the volume, and decides when it is whole again: a cluster's manager, reduced to the needs
//! of this world.

use super::blocks::{CHUNK_BLOCKS, VOLUME};
use super::course::{Course, MILLISECOND};
use super::event::Event;
use super::invariants::copies::{Watch, Wrong};
use super::membership::{LEASE, Liveness, id_of};
use super::servers::Servers;
use records::VolumeRecord;
use space::coordinator::{Config, Coordinator, Phase, Predecessor};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic};

/// Opens the volume, and retires a disk.
///
/// At most one disk of a run is retired, and it stays so.
#[derive(Default)]
pub(crate) struct Manager {
    openings: u64,
    retired: Option<DiskId>,
    watch: Watch,
}

impl Manager {
    pub fn retired(&self) -> Option<DiskId> {
        self.retired
    }

    /// Finds the node whose coordinator serves with all copies in place. `record`: the one in force.
    pub fn whole_on(
        &self,
        course: &Course,
        servers: &Servers,
        record: Option<&VolumeRecord>,
    ) -> Option<usize> {
        let record = record?;
        let out = record.stale.iter().filter(|stale| Some(stale.disk) != self.retired).count();
        let copies = record.resiliency.copies();
        let emptied = self.retired.is_none_or(|retired| !record.in_sync.contains(&retired));
        let whole = emptied && out == 0 && record.building.is_empty() && record.min_holders == copies;
        // A full pool may have no space for missing copies.
        let patient =
            course.scenario.tight && course.now > course.faults_end + 10_000 * MILLISECOND && out == 0;
        if !whole && !patient {
            return None;
        }
        servers.nodes.iter().position(|node| {
            node.coordinator.as_ref().is_some_and(|found| {
                *found.phase() == Phase::Serving
                    && node.serves
                    && found.record() == record
                    && (found.chunk_counts().1 == 0 || patient)
                    // A client that gave up may have left a write in flight.
                    && found.is_drained()
                    && found.is_reconciled()
            })
        })
    }

    /// Checks that no chunk stays short of copies without a job that makes them.
    fn watch_copies(&mut self, course: &mut Course, servers: &Servers, record: Option<&VolumeRecord>) {
        let serving = servers
            .nodes
            .iter()
            .filter_map(|node| node.coordinator.as_ref())
            .find(|found| *found.phase() == Phase::Serving && Some(found.record()) == record);
        let Some(coordinator) = serving else { return self.watch.forget() };
        let (few, jobs) = (coordinator.allocated_chunk_counts().1, coordinator.jobs().len());
        // Chunks for which a full pool has no space are reported.
        let short = few.saturating_sub(coordinator.chunks_without_room());
        let too_many = coordinator
            .chunk_copies()
            .iter()
            .filter(|chunk| chunk.holders.len() > usize::from(chunk.copies))
            .count();
        let wrong = Wrong { short, too_many: too_many as u64 };
        course.violate(self.watch.look(course.now, coordinator.record(), self.retired, wrong, jobs));
    }

    /// Opens the volume, and checks it.
    pub fn look_after(&mut self, course: &mut Course, servers: &Servers, record: Option<&VolumeRecord>) {
        course.after(20 * MILLISECOND, Event::Manage);
        self.watch_copies(course, servers, record);
    }

    /// Starts a coordinator on a node that has none. Returns its incarnation.
    pub fn open_on(
        &mut self,
        course: &mut Course,
        servers: &mut Servers,
        membership: &Liveness,
        node: usize,
        predecessor: Predecessor,
    ) -> u128 {
        debug_assert!(servers.nodes[node].coordinator.is_none());
        self.openings += 1;
        course.coverage.openings += 1;
        let incarnation = u128::from(self.openings * 16 + node as u64);
        let config = Config {
            io_timeout: Duration::from_millis(if course.scenario.patient_calls { 4000 } else { 120 }),
            node: Some(id_of(node)),
            reconnect_interval: Duration::from_millis(40),
            opening_grace: Duration::from_millis(150),
            rotate_interval: Duration::from_millis(200),
            state_retry: Duration::from_millis(30),
            unavailable_after: Duration::from_secs(1),
            rebuild_after: Duration::from_millis(1200),
            lease: Some(LEASE),
            verify_reads: true,
            ..Config::default()
        };
        let pool = Rc::new(RefCell::new(servers.pool_view(&course.scenario, self.retired, node)));
        servers.nodes[node].pool = pool.clone();
        let now = Monotonic(course.now);
        let mut coordinator = Coordinator::new(VOLUME, incarnation, config, CHUNK_BLOCKS as u32, pool, now);
        for disk in servers.disks.iter().filter(|disk| disk.added && Some(disk.id) != self.retired) {
            coordinator.add_disk(disk.id);
        }
        coordinator.set_predecessor(predecessor);
        coordinator.set_lease(membership.lease_until(node));
        let down: Vec<DiskId> = membership.down(course, servers, node, 0).into_iter().collect();
        for disk in &down {
            servers.nodes[node].pool.borrow_mut().set_down(*disk, true);
        }
        coordinator.disks_down(now, &down);
        course.trace.note(&[9, course.now, node as u64]);
        servers.nodes[node].coordinator = Some(coordinator);
        incarnation
    }

    /// Retires a disk if others have space for its copies; otherwise the daemon refuses to.
    pub fn retire(&mut self, course: &Course, servers: &mut Servers, disk: usize) {
        let id = servers.disks[disk].id;
        let others = servers.disks.iter().filter(|other| other.added && other.id != id);
        let domains: BTreeSet<usize> = others.map(|other| other.node).collect();
        let enough = domains.len() >= usize::from(course.scenario.resiliency.copies());
        if self.retired.is_some() || !enough || !servers.disks[disk].added {
            return;
        }
        self.retired = Some(id);
        for node in &mut servers.nodes {
            if let Some(coordinator) = &mut node.coordinator {
                node.pool.borrow_mut().change(id, |known| known.is_retired = true);
                coordinator.plan_soon();
            }
        }
    }
}
