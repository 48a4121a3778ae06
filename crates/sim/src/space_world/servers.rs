//! The servers: processes that start and crash, and their disks with replicas.

use super::blocks::{CHUNK_BLOCKS, VOLUME};
use super::client::History;
use super::course::{Course, MICROSECOND, MILLISECOND};
use super::event::{Event, Healing};
use super::invariants::i3;
use super::nodes::{Findings, Medium, Node, SimDisk, WatchedStore};
use super::scenario::Scenario;
use pool::{FaultDomain, PoolView, Route};
use records::VolumeRecord;
use space::block_store::BlockStore;
use space::fake_store::{FakeFault, FakeStore};
use space::message::SessionId;
use space::message::{ReplicaOperation, Request, Response};
use space::replica::Replica;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{BLOCK_BYTES, DiskId, Epoch, Lba, Monotonic};

/// Nodes and disks, each known by its index.
///
/// A node that is down has neither a coordinator nor replicas. The promises of a disk only grow:
/// `promised` is the highest one known to be durable.
pub(crate) struct Servers {
    pub nodes: Vec<Node>,
    pub disks: Vec<SimDisk>,
    /// Violations that the stores found.
    findings: Findings,
}

impl Servers {
    /// Makes nodes that are up, with blank disks that no replica has open.
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut disks = Vec::new();
        for node in 0..scenario.nodes {
            for _ in 0..scenario.disks_per_node {
                disks.push(format(scenario, seed, disks.len() as u8 + 1, node));
            }
        }
        if scenario.addition
            && let Some(last) = disks.last_mut()
        {
            last.added = false;
        }
        Self { nodes: (0..scenario.nodes).map(|_| Node::new()).collect(), disks, findings: Rc::default() }
    }

    /// Takes the violations that the stores found.
    pub fn take_findings(&self) -> Vec<String> {
        self.findings.borrow_mut().drain(..).collect()
    }

    /// Whether this process still runs.
    pub fn is_alive(&self, node: usize, incarnation: u64) -> bool {
        self.nodes.get(node).is_some_and(|node| node.up && node.incarnation == incarnation)
    }

    /// Returns the disks of a node.
    pub fn disks_of(&self, node: usize) -> impl Iterator<Item = DiskId> + Clone {
        self.disks.iter().filter(move |disk| disk.node == node).map(|disk| disk.id)
    }

    /// Returns the node that owns a session: sessions are numbered by opening, and openings by
    /// node.
    pub fn owner_of_session(&self, session: SessionId) -> Option<usize> {
        let node = ((session.0 >> 32) % 16) as usize;
        (node < self.nodes.len()).then_some(node)
    }

    /// Returns the disks with their slabs as they are, as a node sees them.
    pub fn pool_view(&self, scenario: &Scenario, retired: Option<DiskId>, node: usize) -> PoolView {
        let added = self.disks.iter().filter(|disk| disk.added);
        let seen = added
            .map(|disk| pool::Disk { is_retired: Some(disk.id) == retired, ..see(disk, scenario, node) });
        PoolView::new(seen.collect(), 0)
    }

    pub fn start_replica(&mut self, course: &mut Course, index: usize) {
        let findings = self.findings.clone();
        let disk = &mut self.disks[index];
        disk.hangs = false;
        let Some(store) = disk.medium.open() else { return };
        let store = WatchedStore::new(store, findings);
        let (id, seen, now) = (disk.id, disk.promised, store.promised(VOLUME));
        disk.replica = Some(Replica::new(disk.id, store));
        course.violate(i3::check(id, seen, now));
    }

    /// Passes a request that arrived to a disk's replica.
    pub fn handle_request(&mut self, course: &mut Course, index: usize, request: Request) {
        let disk = &mut self.disks[index];
        if matches!(request.operation, ReplicaOperation::Open { .. } | ReplicaOperation::Promise) {
            let asked = (request.session, request.id);
            disk.asked_promises.insert(asked, request.epoch);
        }
        if let Some(replica) = &mut disk.replica {
            replica.handle(request);
        }
        self.schedule_poll(course, index);
    }

    pub fn schedule_poll(&mut self, course: &mut Course, index: usize) {
        let disk = &mut self.disks[index];
        if !disk.poll_scheduled {
            disk.poll_scheduled = true;
            let delay = match disk.slow {
                true => course.random.between(2, 60) * MILLISECOND,
                false => course.random.between(5, 150) * MICROSECOND,
            };
            course.after(delay, Event::Poll { disk: index });
        }
    }

    /// Polls a disk's replica; returns its responses.
    pub fn poll_disk(&mut self, course: &mut Course, index: usize) -> Vec<Response> {
        let disk = &mut self.disks[index];
        disk.poll_scheduled = false;
        let mut responses = Vec::new();
        if disk.hangs {
            return responses;
        }
        if let Some(replica) = &mut disk.replica {
            replica.poll(&mut responses);
            // Opens that waited for the operations of another session may have begun.
            replica.poll(&mut responses);
            let promised = replica.store().promised(VOLUME);
            let busy = replica.store().is_busy();
            disk.promised = disk.promised.max(promised);
            if busy {
                self.schedule_poll(course, index);
            }
        }
        responses
    }

    /// Checks a response to a request for a promise (I3).
    pub fn check_promise(&mut self, index: usize, response: &Response) -> Option<String> {
        let disk = &mut self.disks[index];
        let asked = disk.asked_promises.remove(&(response.session, response.id))?;
        let promised = response.result.is_ok().then_some(disk.promised)?;
        i3::check_answer(disk.id, asked, promised)
    }

    /// Ends a node's coordinator; returns the clients that waited for it.
    pub fn drop_coordinator(
        &mut self,
        course: &mut Course,
        node: usize,
    ) -> impl Iterator<Item = usize> + use<> {
        let node = &mut self.nodes[node];
        if let Some(coordinator) = node.coordinator.take() {
            let counters = coordinator.counters();
            course.coverage.reconciled_blocks += counters.reconciled_blocks;
            course.coverage.repaired_blocks += counters.repaired_blocks;
            course.coverage.hedged_reads +=
                coordinator.late_reads().map(|(_, reads)| reads.hedged).sum::<u64>();
            course.coverage.resynced_regions += counters.resynced_regions;
            course.coverage.built_regions += counters.built_regions;
        }
        node.timer_at = None;
        node.asked.clear();
        std::mem::take(&mut node.tokens).into_values()
    }

    /// Ends a process whose coordinator is gone, and loses the data that its disks had not made
    /// durable.
    pub fn crash(&mut self, course: &mut Course, node: usize) {
        debug_assert!(self.nodes[node].coordinator.is_none());
        self.nodes[node].up = false;
        self.nodes[node].frozen_until = 0;
        self.nodes[node].incarnation += 1;
        for disk in self.disks.iter_mut().filter(|disk| disk.node == node) {
            disk.replica = None;
            let random = &mut course.random;
            match &disk.medium {
                Medium::Fake(store) => store.crash(|| random.chance(500)),
                Medium::Real(disk) => disk.crash(&disk.random_choice(random.below(u64::MAX))),
            }
        }
    }

    pub fn restart(&mut self, course: &mut Course, node: usize) {
        if self.nodes[node].up {
            return;
        }
        self.nodes[node].up = true;
        for index in 0..self.disks.len() {
            if self.disks[index].node == node {
                self.start_replica(course, index);
            }
        }
    }

    pub fn set_fault(&mut self, disk: usize, fault: FakeFault) {
        if let Some(store) = self.disks[disk].medium.fake() {
            store.set_fault(fault);
        }
    }

    pub fn heal_disk(&mut self, course: &mut Course, index: usize) {
        let disk = &mut self.disks[index];
        disk.hangs = false;
        disk.slow = false;
        if let Some(store) = disk.medium.fake() {
            store.set_fault(FakeFault::None);
            if !course.faulting() {
                // Rot that coincides with the loss of the other copy is more than the volume must
                // survive.
                store.forget_corruption();
            }
        }
        self.schedule_poll(course, index);
    }

    /// Makes every disk hang or fail. Each comes back at a time of its own.
    pub fn send_all_away(&mut self, course: &mut Course, lasting: u64) {
        course.coverage.all_away += 1;
        for (index, disk) in self.disks.iter_mut().enumerate() {
            let fails = course.random.chance(500);
            match disk.medium.fake() {
                Some(store) if fails => store.set_fault(FakeFault::Errors),
                _ => disk.hangs = true,
            }
            let later = course.random.between(0, 300) * MILLISECOND;
            course.after(lasting + later, Event::Heal(Healing::Disk(index)));
        }
    }

    /// Makes the disk that is being retired, if there is one, hang or fail for a while.
    pub fn send_away(&mut self, course: &mut Course, retired: Option<DiskId>, lasting: u64) {
        let Some(index) = self.disks.iter().position(|disk| Some(disk.id) == retired) else { return };
        match course.random.chance(500) {
            true => self.disks[index].hangs = true,
            false => self.set_fault(index, FakeFault::Errors),
        }
        course.coverage.retiring_away += 1;
        course.after(lasting, Event::Heal(Healing::Disk(index)));
    }

    /// Makes the disk that was not part of the pool a part of it, if there is one still. `is_gone(node, other)`: whether a node counts on no
    /// disk of another one.
    pub fn add_disk(&mut self, course: &mut Course, is_gone: impl Fn(usize, usize) -> bool) {
        let Some(new) = self.disks.iter_mut().find(|disk| !disk.added) else { return };
        new.added = true;
        let new = &*new;
        course.coverage.added_disks += 1;
        for (number, node) in self.nodes.iter().enumerate() {
            let seen = see(new, &course.scenario, number);
            node.pool.borrow_mut().change(new.id, |known| *known = seen);
        }
        let (id, of) = (new.id, new.node);
        self.report_slabs(course);
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let is_down = is_gone(number, of) && node.pool.borrow_mut().set_down(id, true);
            let Some(coordinator) = &mut node.coordinator else { continue };
            coordinator.add_disk(id);
            if is_down {
                coordinator.disks_down(Monotonic(course.now), &[id]);
            }
        }
    }

    /// Updates all nodes' free slabs, as servers' reports do: another node's coordinator allocated
    /// and freed some, and an older image has others than were counted.
    pub fn report_slabs(&self, course: &Course) {
        for (number, node) in self.nodes.iter().enumerate() {
            let disks = self.disks.iter().filter(|disk| disk.added);
            let seen = disks.map(|disk| see(disk, &course.scenario, number));
            node.pool.borrow_mut().set_slabs(seen.map(|disk| (disk.id, (disk.total_slabs, disk.free_slabs))));
        }
    }

    /// Makes all coordinators repair a block of a disk, as after a scrub that found it.
    pub fn repair(&mut self, course: &Course, disk: usize, lba: u64) {
        let id = self.disks[disk].id;
        for coordinator in self.nodes.iter_mut().filter_map(|node| node.coordinator.as_mut()) {
            coordinator.repair(Monotonic(course.now), id, Lba(lba));
        }
    }

    /// Rots one written block, if all disks are in sync and another one has an intact copy. A scrub
    /// soon finds it.
    pub fn rot(
        &mut self,
        course: &mut Course,
        record: Option<&VolumeRecord>,
        history: &History,
        retired: Option<DiskId>,
    ) {
        let Some(record) = record else { return };
        let calm = record.stale.is_empty() && record.building.is_empty() && retired.is_none();
        let lbas: Vec<u64> = history.registers.keys().copied().collect();
        let Some(lba) = course.random.pick(&lbas) else { return };
        let stores =
            || self.disks.iter().enumerate().filter_map(|(at, disk)| Some((at, disk.medium.fake()?)));
        let holders: Vec<usize> = stores()
            .filter(|(at, store)| {
                record.in_sync.contains(&self.disks[*at].id) && store.peek(VOLUME, Lba(lba)).is_some()
            })
            .map(|(at, _)| at)
            .collect();
        let healthy = stores().all(|(_, store)| store.corrupt_blocks() == 0);
        let Some(disk) = course.random.pick(&holders) else { return };
        if calm
            && healthy
            && holders.len() > 1
            && let Some(store) = self.disks[disk].medium.fake()
        {
            store.corrupt(VOLUME, Lba(lba));
            let soon = course.random.between(1, 30) * MILLISECOND;
            course.after(soon, Event::Heal(Healing::Scrub(disk, lba)));
        }
    }
}

/// Formats a disk of a node.
fn format(scenario: &Scenario, seed: u64, number: u8, node: usize) -> SimDisk {
    let slabs = scenario.slabs();
    let id = DiskId::from_bytes([number; 16]);
    let slab_bytes = CHUNK_BLOCKS * BLOCK_BYTES as u64;
    let real = scenario.real_stores.then(|| Medium::real(id, slab_bytes, slabs, seed)).flatten();
    let fake = || Medium::Fake(FakeStore::new(CHUNK_BLOCKS as u32, slabs));
    SimDisk {
        id,
        node,
        medium: real.unwrap_or_else(fake),
        replica: None,
        promised: Epoch(0),
        poll_scheduled: false,
        hangs: false,
        slow: false,
        added: true,
        asked_promises: BTreeMap::new(),
    }
}

/// Returns a disk with its slabs as they are, as a node sees it.
fn see(disk: &SimDisk, scenario: &Scenario, node: usize) -> pool::Disk {
    let total_slabs = scenario.slabs();
    let free_slabs = disk.replica.as_ref().map_or(total_slabs, |replica| replica.store().slabs().1);
    let domain = FaultDomain { node: format!("node{}", disk.node), ..FaultDomain::default() };
    let route = match disk.node == node {
        true => Route::Local,
        false => Route::Remote { is_down: false, reported: (total_slabs, free_slabs) },
    };
    pool::Disk { free_slabs, ..pool::Disk::new(disk.id, total_slabs, domain, route) }
}
