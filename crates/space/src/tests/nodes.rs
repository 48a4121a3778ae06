//! Spaces of several nodes over a transport in memory.

use super::*;
use crate::coordinator::{Event, Predecessor};
use crate::local::LocalEvent;
use crate::message::{BusError, PeerId, ReplicaOperation, Request, Response, Transport, Waiting};
use records::{Condition, NodeLease, Record};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use store::api::StoreError;
use types::{Epoch, NodeId};

const LEASE: Duration = Duration::from_millis(500);

/// Requests that one node has sent to disks of others, and the answers.
#[derive(Default)]
pub(super) struct Ends {
    sent: Vec<(DiskId, Request)>,
    answers: Vec<Response>,
    reads: usize,
    reads_by_disk: BTreeMap<DiskId, usize>,
    /// Whether writes stay queued; `Some(true)`: the transport reports that to the space.
    pub queues_writes: Option<bool>,
    queued: Vec<(DiskId, Request)>,
    /// Disk whose reads stay queued, as the transport reports to the space.
    pub held: Option<DiskId>,
    held_reads: Vec<(DiskId, Request)>,
    told: Vec<Waiting>,
}

impl Ends {
    fn tell(&mut self, disk: DiskId, request: &Request, has_left: bool) {
        let Request { volume, session, id, .. } = *request;
        self.told.push(Waiting { disk, volume, session, id, has_left });
    }

    pub fn reads_of(&self, disk: DiskId) -> usize {
        self.reads_by_disk.get(&disk).copied().unwrap_or(0)
    }

    /// Releases queued reads. Returns whether there were any.
    pub fn let_go(&mut self) -> bool {
        let leaving = std::mem::take(&mut self.held_reads);
        leaving.iter().for_each(|(disk, request)| self.tell(*disk, request, true));
        let any = !leaving.is_empty();
        self.sent.extend(leaving);
        any
    }
}

struct TestTransport(Rc<RefCell<Ends>>);

impl Transport for TestTransport {
    fn send(&mut self, to: DiskId, request: Request) {
        let mut ends = self.0.borrow_mut();
        if matches!(request.operation, ReplicaOperation::Read { .. }) {
            ends.reads += 1;
            *ends.reads_by_disk.entry(to).or_default() += 1;
        }
        if ends.queues_writes.is_some() && matches!(request.operation, ReplicaOperation::Write { .. }) {
            return ends.queued.push((to, request));
        }
        if ends.held == Some(to) && matches!(request.operation, ReplicaOperation::Read { .. }) {
            ends.tell(to, &request, false);
            return ends.held_reads.push((to, request));
        }
        ends.sent.push((to, request));
    }

    fn has_news(&self) -> bool {
        let ends = self.0.borrow();
        !ends.answers.is_empty() || !ends.told.is_empty() || ends.queues_writes == Some(true)
    }

    fn poll_waiting(&mut self, out: &mut Vec<Waiting>) {
        let mut ends = self.0.borrow_mut();
        out.append(&mut ends.told);
        let told = ends.queued.iter().filter(|_| ends.queues_writes == Some(true));
        out.extend(told.map(|(disk, request)| Waiting {
            disk: *disk,
            volume: request.volume,
            session: request.session,
            id: request.id,
            has_left: false,
        }));
    }

    fn poll(&mut self, out: &mut Vec<Response>) {
        out.append(&mut self.0.borrow_mut().answers);
    }
}

pub(super) struct Node {
    pub space: LocalSpace<FakeStore, MemoryClient>,
    pub ends: Rc<RefCell<Ends>>,
    pub stores: Vec<(DiskId, FakeStore)>,
    handle: Option<VolumeHandle<FakeStore, MemoryClient>>,
}

/// Nodes with the same number of disks each, and a volume over all of them.
pub(super) struct Cluster {
    pub nodes: Vec<Node>,
    state: MemoryState,
    pub now: Monotonic,
    /// The step by which time advances.
    pub step: Duration,
    /// Delays of reads, by disk.
    pub delays: BTreeMap<DiskId, Duration>,
    late: Vec<(Monotonic, usize, DiskId, Request)>,
    /// Nodes that send nothing.
    dead: BTreeSet<usize>,
    /// Nodes whose lease is renewed.
    leased: BTreeSet<usize>,
    /// Nodes that learn that no other node answers for the volume.
    permitted: BTreeSet<usize>,
    incarnation: u128,
    next_token: u64,
}

fn domain(node: usize) -> FaultDomain {
    FaultDomain { node: format!("node-{}", node + 1), ..FaultDomain::default() }
}

impl Cluster {
    pub fn new(nodes: usize, disks_each: usize, resiliency: Resiliency) -> Self {
        let (state, now) = (MemoryState::new(), Monotonic(1_000_000_000));
        let id = |node: usize, at: usize| disk((node * disks_each + at) as u8 + 1);
        let all = (0..nodes).flat_map(|node| (0..disks_each).map(move |at| id(node, at)));
        let size = u64::from(CHUNK) * 64 * BLOCK_BYTES as u64;
        let pool = PoolId::from_bytes([1; 16]);
        let thin = Provisioning::Thin;
        let record = VolumeRecord::new(VOLUME, pool, "data", resiliency, size, thin, all.collect(), 0);
        state.write(&record, 0).unwrap();
        let node = |own: usize| {
            let config =
                Config { node: Some(NodeId(own as u32 + 1)), lease: Some(LEASE), ..Config::default() };
            let space = LocalSpace::new(state.client(), config, CHUNK, 0, now);
            let ends = Rc::new(RefCell::new(Ends::default()));
            space.set_remote(Box::new(TestTransport(ends.clone())));
            let mut stores = Vec::new();
            for node in 0..nodes {
                for at in 0..disks_each {
                    let disk = id(node, at);
                    if node == own {
                        let store = FakeStore::new(CHUNK, 64);
                        space.attach_disk(disk, store.clone(), domain(node)).unwrap();
                        stores.push((disk, store));
                    } else {
                        space.attach_remote_disk(disk, (64, 64), domain(node));
                    }
                }
            }
            Node { space, ends, stores, handle: None }
        };
        let nodes: Vec<Node> = (0..nodes).map(node).collect();
        let leased = (0..nodes.len()).collect();
        let (dead, permitted) = (BTreeSet::new(), BTreeSet::new());
        let (step, delays, late) = (Duration::from_millis(20), BTreeMap::new(), Vec::new());
        let (incarnation, next_token) = (0, 0);
        Self { nodes, state, now, step, delays, late, dead, leased, permitted, incarnation, next_token }
    }

    fn arrive(&mut self, from: usize, disk: DiskId, request: Request) {
        let has = |node: &Node| node.stores.iter().any(|(own, _)| *own == disk);
        let to = self.nodes.iter().position(has).unwrap();
        if !self.dead.contains(&to) && !self.dead.contains(&from) {
            let node = NodeId(from as u32 + 1);
            self.nodes[to].space.handle_remote(PeerId(from as u64), node, disk, request);
        }
    }

    /// Carries messages between nodes until there are none.
    fn carry(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..self.nodes.len() {
                self.nodes[from].space.poll();
                let sent = std::mem::take(&mut self.nodes[from].ends.borrow_mut().sent);
                for (disk, request) in sent {
                    moved = true;
                    let delay = self.delays.get(&disk).filter(|_| request.operation.only_reads());
                    match delay {
                        Some(delay) => self.late.push((self.now.after(*delay), from, disk, request)),
                        None => self.arrive(from, disk, request),
                    }
                }
            }
            let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|late| late.0 <= self.now);
            self.late = late;
            for (_, from, disk, request) in due {
                moved = true;
                self.arrive(from, disk, request);
            }
            for from in 0..self.nodes.len() {
                let mut answers = Vec::new();
                self.nodes[from].space.poll_remote(&mut answers);
                for (PeerId(to), disk, response) in answers {
                    moved = true;
                    assert_eq!(response.from, disk);
                    if !self.dead.contains(&from) && !self.dead.contains(&(to as usize)) {
                        self.nodes[to as usize].ends.borrow_mut().answers.push(response);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub fn pass(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        while self.now < end {
            self.now = self.now.after(self.step).min(end);
            for (at, node) in self.nodes.iter().enumerate() {
                if self.leased.contains(&at) {
                    node.space.set_node_lease(self.now.after(LEASE));
                }
                if self.permitted.contains(&at) {
                    node.space.permit(VOLUME);
                }
                node.space.handle_timeout(self.now);
            }
            self.carry();
        }
    }

    pub fn open(&mut self, node: usize) {
        self.incarnation += 1;
        let incarnation = self.incarnation;
        self.nodes[node].handle = Some(self.nodes[node].space.open_volume(VOLUME, incarnation));
        self.carry();
    }

    /// Makes a node take the volume over from the first one, which answers nothing any more.
    fn take_over(&mut self, node: usize, fence: Option<Condition>) {
        self.incarnation += 1;
        let predecessor = Predecessor { owner: Some(NodeId(1)), fence, is_waited_out: false };
        let space = self.nodes[node].space.clone();
        self.nodes[node].handle = Some(space.take_over(VOLUME, self.incarnation, predecessor));
        self.permitted.insert(node);
    }

    fn phase(&self, node: usize) -> Option<Phase> {
        self.nodes[node].space.phase(VOLUME)
    }

    pub fn start(&mut self, node: usize, request: SpaceRequest) -> u64 {
        self.next_token += 1;
        let token = self.next_token;
        self.nodes[node].handle.as_mut().unwrap().submit(token, request);
        token
    }

    pub fn answer(&mut self, node: usize, token: u64) -> Option<Result<SpaceReply, SpaceError>> {
        self.carry();
        let mut out = Vec::new();
        self.nodes[node].handle.as_mut().unwrap().poll(&mut out);
        out.into_iter().find(|done| done.token == token).map(|done| done.result)
    }

    pub fn write(&mut self, node: usize, lba: u64, byte: u8) -> Result<(), SpaceError> {
        let data = filled(1, byte);
        let token =
            self.start(node, SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Overwrite, data });
        self.wait(node, token).map(|_| ())
    }

    pub fn read(&mut self, node: usize, lba: u64) -> u8 {
        let token = self.start(node, SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: None });
        match self.wait(node, token) {
            Ok(SpaceReply::Data(data)) => data.contiguous()[0],
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, node: usize, token: u64) -> Result<SpaceReply, SpaceError> {
        for _ in 0..1000 {
            if let Some(answer) = self.answer(node, token) {
                return answer;
            }
            self.pass(Duration::from_millis(20));
        }
        panic!("no answer");
    }

    pub fn record(&self) -> VolumeRecord {
        self.state.read::<VolumeRecord>(&VOLUME.to_string()).unwrap().unwrap().value
    }

    pub fn disks_of(&self, node: usize) -> Vec<DiskId> {
        self.nodes[node].stores.iter().map(|(disk, _)| *disk).collect()
    }

    /// Kills the node, and tells the others.
    pub fn kill(&mut self, node: usize) {
        self.dead.insert(node);
        self.leased.remove(&node);
        let disks = self.disks_of(node);
        for (at, other) in self.nodes.iter().enumerate() {
            if at != node && !self.dead.contains(&at) {
                other.space.node_down(&disks);
                other.space.end_peer(PeerId(node as u64));
            }
        }
        self.carry();
    }

    /// Starts the node again, and tells the others.
    pub fn revive(&mut self, node: usize) {
        self.dead.remove(&node);
        self.leased.insert(node);
        self.nodes[node].space.forget_volume(VOLUME);
        self.nodes[node].handle = None;
        let disks = self.disks_of(node);
        for (at, other) in self.nodes.iter().enumerate() {
            if at != node {
                other.space.node_up(&disks);
                self.nodes[node].space.node_up(&self.disks_of(at));
                self.nodes[node].space.end_peer(PeerId(at as u64));
            }
        }
        self.carry();
    }

    /// Writes a block of each of `chunks` chunks, and waits until the record counts them.
    pub fn fill(&mut self, node: usize, chunks: u64) {
        for chunk in 0..chunks {
            self.write(node, chunk * u64::from(CHUNK), chunk as u8 + 1).unwrap();
        }
        self.pass(Duration::from_secs(3));
    }
}

#[test]
fn copies_lie_on_different_nodes_and_the_near_one_is_read() {
    let mut cluster = Cluster::new(3, 2, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.phase(0), Some(Phase::Serving));
    assert_eq!(cluster.record().owner, Some(NodeId(1)));
    cluster.fill(0, 6);
    for chunk in 0..6 {
        for node in &cluster.nodes {
            let holds = |(_, store): &&(DiskId, FakeStore)| store.has_chunk(VOLUME, types::ChunkIndex(chunk));
            assert_eq!(node.stores.iter().filter(holds).count(), 1, "chunk {chunk}");
        }
    }
    let record = cluster.record();
    assert_eq!((record.min_homes, record.homes.len(), record.min_holders), (3, 3, 3));
    let before = cluster.nodes[0].ends.borrow().reads;
    for chunk in 0..6 {
        assert_eq!(cluster.read(0, chunk * u64::from(CHUNK)), chunk as u8 + 1);
    }
    assert_eq!(cluster.nodes[0].ends.borrow().reads, before, "a copy of another node was read");
}

#[test]
fn all_disks_of_a_dead_node_leave_by_one_record_and_nobody_waits_for_a_call() {
    let mut cluster = Cluster::new(3, 3, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.fill(0, 6);
    // All writes are settled: only later ones are missed.
    cluster.pass(Duration::from_secs(70));
    let before = cluster.record();
    let data = filled(1, 99);
    cluster.dead.insert(2);
    let token = cluster.start(0, SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data });
    cluster.pass(Duration::from_millis(100));
    assert!(cluster.answer(0, token).is_none(), "acknowledged without a copy that counts");
    cluster.kill(2);
    assert!(matches!(cluster.answer(0, token), Some(Ok(_))), "the write waits for the dead node");
    let record = cluster.record();
    assert_eq!(record.epoch, before.epoch.next(), "more than one change of the record");
    let dead = cluster.disks_of(2);
    assert!(dead.iter().all(|disk| record.stale.iter().any(|stale| stale.disk == *disk)));
    // The dead node is resynced as soon as it is there, with the missed write alone.
    cluster.pass(Duration::from_secs(2));
    cluster.revive(2);
    cluster.pass(Duration::from_secs(4));
    assert!(cluster.record().stale.is_empty(), "{:?}", cluster.record());
    let resynced = cluster.nodes[0].space.counters(VOLUME).unwrap().resynced_regions;
    assert_eq!(resynced, 1);
}

#[test]
fn another_node_takes_over_with_all_disks_of_the_dead_one_missing() {
    for (resiliency, nodes) in [(Resiliency::ThreeWay, 3), (Resiliency::TwoWay, 3), (Resiliency::TwoWay, 2)] {
        let mut cluster = Cluster::new(nodes, 3, resiliency);
        cluster.open(0);
        cluster.fill(0, 8);
        cluster.kill(0);
        cluster.open(1);
        let began = cluster.now;
        while cluster.phase(1) != Some(Phase::Serving) {
            cluster.pass(Duration::from_millis(20));
            assert!(cluster.now.since(began) < Duration::from_secs(1), "{:?}", cluster.record());
        }
        assert_eq!(cluster.record().owner, Some(NodeId(2)));
        for chunk in 0..8 {
            assert_eq!(cluster.read(1, chunk * u64::from(CHUNK)), chunk as u8 + 1);
        }
        cluster.write(1, 5, 77).unwrap();
        cluster.revive(0);
        cluster.pass(Duration::from_secs(8));
        let record = cluster.record();
        assert!(record.stale.is_empty() && record.in_sync.len() == nodes * 3, "{record:?}");
        assert_eq!(record.min_homes, resiliency.copies());
    }
}

/// Together they take one copy of a chunk away: the first expelled disk does not count against the
/// second.
#[test]
fn a_node_of_which_all_disks_went_back_is_put_out_and_brought_up_to_date() {
    let mut cluster = Cluster::new(3, 2, Resiliency::TwoWay);
    cluster.open(0);
    cluster.fill(0, 8);
    let images: Vec<_> = cluster.nodes[2].stores.iter().map(|(_, store)| store.image()).collect();
    for byte in 75..=77 {
        cluster.write(0, 5, byte).unwrap();
        cluster.pass(Duration::from_secs(40));
    }
    cluster.kill(0);
    cluster.revive(0);
    images.iter().zip(&cluster.nodes[2].stores).for_each(|(image, (_, store))| store.go_back_to(image));
    cluster.open(1);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.phase(1), Some(Phase::Serving), "{:?}", cluster.record());
    let events = std::iter::from_fn(|| cluster.nodes[1].space.poll_event());
    let is_older = |event: &LocalEvent| matches!(event, LocalEvent::Volume(_, Event::WentBack { .. }));
    assert_eq!(events.filter(is_older).count(), 2);
    assert_eq!(cluster.read(1, 5), 77);
    let record = cluster.record();
    assert!(record.stale.is_empty() && record.min_homes == 2, "{record:?}");
}

#[test]
fn a_node_is_waited_for_that_may_have_the_last_copy() {
    let mut cluster = Cluster::new(3, 2, Resiliency::TwoWay);
    cluster.open(0);
    cluster.fill(0, 8);
    cluster.kill(0);
    cluster.kill(2);
    cluster.open(1);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.phase(1), Some(Phase::Opening));
    assert_eq!(cluster.record().in_sync.len(), 6, "a disk was put out that may have the last copy");
    cluster.revive(2);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.phase(1), Some(Phase::Serving));
    for chunk in 0..8 {
        assert_eq!(cluster.read(1, chunk * u64::from(CHUNK)), chunk as u8 + 1);
    }
}

#[test]
fn a_disk_of_a_dead_node_is_brought_back_by_the_node_that_it_is_put_into() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.fill(0, 2);
    cluster.kill(2);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.record().in_sync, [disk(1), disk(2)]);
    let (moved, _) = cluster.nodes[2].stores.pop().unwrap();
    let store = cluster.nodes[2].space.detach_disk(moved).unwrap();
    cluster.nodes[0].space.attach_disk(moved, store, domain(0)).unwrap();
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.record().in_sync, [disk(1), disk(2), moved]);
}

#[test]
fn a_disk_that_was_moved_to_another_node_counts_where_it_was_when_the_copies_were_counted() {
    let mut cluster = Cluster::new(3, 1, Resiliency::TwoWay);
    cluster.open(0);
    cluster.fill(0, 6);
    cluster.kill(0);
    cluster.kill(1);
    // A node that opens it takes both disks for those of one node.
    cluster.nodes[2].space.attach_remote_disk(disk(1), (64, 64), domain(1));
    cluster.open(2);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.phase(2), Some(Phase::Opening), "{:?}", cluster.record());
}

#[test]
fn a_node_without_a_lease_answers_nothing_and_one_that_knows_nothing_of_it_waits_it_out() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.fill(0, 1);
    cluster.leased.remove(&0);
    let read = SpaceRequest::Read { lba: Lba(0), blocks: 1, copy: None };
    cluster.pass(LEASE);
    let token = cluster.start(0, read);
    assert!(cluster.answer(0, token).is_none(), "it answers without a lease");
    cluster.open(1);
    cluster.pass(LEASE - Duration::from_millis(40));
    assert_eq!(cluster.phase(1), Some(Phase::Opening), "the lease before it may still be valid");
    cluster.pass(Duration::from_millis(80));
    assert_eq!(cluster.phase(1), Some(Phase::Serving));
    // The former owner learns of it from the state's changes, without any request to a disk.
    cluster.leased.insert(0);
    cluster.nodes[0].space.note_record(&cluster.record());
    assert_eq!(cluster.phase(0), Some(Phase::Stopped(SpaceError::Fenced)));
    assert!(matches!(cluster.answer(0, token), Some(Err(SpaceError::Fenced))));
    // A record of its own does not contradict it.
    cluster.nodes[1].space.note_record(&cluster.record());
    assert_eq!(cluster.phase(1), Some(Phase::Serving));
}

#[test]
pub(super) fn an_owner_serves_when_nobody_answers_any_more_of_all_that_the_record_names() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.fill(0, 1);
    let take_over = |cluster: &mut Cluster, node: usize, from: u32| {
        let predecessor = Predecessor { owner: Some(NodeId(from)), ..Predecessor::default() };
        let space = cluster.nodes[node].space.clone();
        cluster.incarnation += 1;
        cluster.nodes[node].handle = Some(space.take_over(VOLUME, cluster.incarnation, predecessor));
        cluster.pass(Duration::from_secs(10));
        space.claimed().into_iter().map(|(_, claimed)| claimed).next()
    };
    let claimed = take_over(&mut cluster, 1, 1).expect("it asks");
    assert_eq!((claimed.before, cluster.phase(1)), (vec![NodeId(1)], Some(Phase::Opening)));
    // The node dies before it serves: the next one must know of both.
    cluster.kill(1);
    let claimed = take_over(&mut cluster, 2, 2).expect("it asks");
    assert_eq!((claimed.before, cluster.phase(2)), (vec![NodeId(1), NodeId(2)], Some(Phase::Opening)));
    let found = cluster.state.read::<VolumeRecord>(&VOLUME.to_string()).unwrap().unwrap();
    assert!(claimed.revision <= found.revision && found.value.before == [NodeId(1), NodeId(2)]);
    cluster.nodes[2].space.permit(VOLUME);
    cluster.pass(Duration::from_millis(40));
    assert_eq!(cluster.phase(2), Some(Phase::Serving));
    assert!(cluster.nodes[2].space.claimed().is_empty());
    // After the next change no node is left to ask.
    cluster.write(2, 9, 1).unwrap();
    cluster.pass(Duration::from_secs(3));
    assert!(cluster.record().before.is_empty(), "{:?}", cluster.record());
    // The node's own process asks nobody: the owner before it is the node itself.
    cluster.nodes[2].space.forget_volume(VOLUME);
    assert_eq!(take_over(&mut cluster, 2, 3), None);
    assert_eq!(cluster.phase(2), Some(Phase::Serving));
}

#[test]
fn a_node_that_dies_while_an_opening_waits_for_permission_is_not_waited_for_after_it() {
    let mut cluster = Cluster::new(4, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.fill(0, 4);
    cluster.kill(0);
    let predecessor = Predecessor { owner: Some(NodeId(1)), ..Predecessor::default() };
    let space = cluster.nodes[1].space.clone();
    cluster.incarnation += 1;
    cluster.nodes[1].handle = Some(space.take_over(VOLUME, cluster.incarnation, predecessor));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.phase(1), Some(Phase::Opening));
    cluster.kill(3);
    space.permit(VOLUME);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.phase(1), Some(Phase::Serving));
    let dead = cluster.disks_of(3);
    assert!(cluster.record().in_sync.iter().all(|disk| !dead.contains(disk)), "{:?}", cluster.record());
}

#[test]
pub(super) fn a_node_that_names_an_epoch_of_no_record_keeps_no_owner_out() {
    let mut cluster = Cluster::new(2, 1, Resiliency::TwoWay);
    cluster.open(0);
    cluster.pass(Duration::from_secs(1));
    cluster.write(0, 1, 7).unwrap();
    let recorded = cluster.record().epoch;
    // Beyond all that the record gave; and the record's own, by a node that it does not name as the owner.
    for (at, from, epoch) in [(1, 1, Epoch(4_294_967_000)), (1, 1, recorded.next()), (0, 2, recorded)] {
        let (space, disk) = (cluster.nodes[at].space.clone(), cluster.disks_of(at)[0]);
        space.note_record(&cluster.record());
        let request = Request {
            volume: VOLUME,
            session: crate::message::SessionId(u64::MAX),
            id: crate::message::RequestId(1),
            epoch,
            priority: crate::message::Priority::Client,
            operation: ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) },
        };
        space.handle_remote(PeerId(99), NodeId(from), disk, request);
        let mut answers = Vec::new();
        (0..3).for_each(|_| space.poll_remote(&mut answers));
        let [(PeerId(99), _, Response { result, .. })] = &answers[..] else { panic!("{answers:?}") };
        assert!(matches!(result, Err(BusError::Store(StoreError::Invalid(_)))), "{epoch:?}: {result:?}");
        let told = std::iter::from_fn(|| space.poll_event());
        assert!(told.into_iter().any(|event| matches!(event, LocalEvent::EpochRefused { .. })));
    }
    cluster.write(0, 2, 8).unwrap();
    assert_eq!((cluster.read(0, 1), cluster.read(0, 2)), (7, 8));
    assert!(cluster.record().epoch < Epoch(100), "{:?}", cluster.record().epoch);
    // An epoch that a record gives later is taken.
    cluster.kill(0);
    cluster.take_over(1, None);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.read(1, 2), 8);
}

#[test]
pub(super) fn a_server_that_knows_no_record_yet_lets_only_the_owner_begin_at_the_promised_epoch() {
    let mut cluster = Cluster::new(2, 1, Resiliency::TwoWay);
    cluster.open(0);
    cluster.pass(Duration::from_secs(1));
    cluster.write(0, 1, 7).unwrap();
    let epoch = cluster.record().epoch;
    // As after a start, it has read no record.
    let (space, disk) = (cluster.nodes[1].space.clone(), cluster.disks_of(1)[0]);
    space.forget_records();
    let begin = |peer, from| {
        let request = Request {
            volume: VOLUME,
            session: crate::message::SessionId(u64::MAX - u64::from(from)),
            id: crate::message::RequestId(1),
            epoch,
            priority: crate::message::Priority::Client,
            operation: ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) },
        };
        space.handle_remote(PeerId(peer), NodeId(from), disk, request);
        let mut answers = Vec::new();
        (0..3).for_each(|_| space.poll_remote(&mut answers));
        let position = answers.iter().position(|(to, ..)| *to == PeerId(peer)).expect("an answer");
        let begun = space.take_begun();
        (answers.remove(position).2.result.map(|_| ()), begun.len())
    };
    let (refused, begun) = begin(99, 3);
    assert!(matches!(refused, Err(BusError::Store(StoreError::Invalid(_)))), "{refused:?}");
    assert_eq!(begun, 0, "it would end the owner's requests");
    space.forget_records();
    assert_eq!(begin(98, 1), (Ok(()), 1), "the owner begins");
}

#[test]
fn a_session_ends_with_its_connection_and_is_no_other_connections() {
    let mut cluster = Cluster::new(2, 1, Resiliency::TwoWay);
    let found = cluster.state.read::<VolumeRecord>(&VOLUME.to_string()).unwrap().unwrap();
    let record = VolumeRecord { epoch: Epoch(3), ..found.value };
    cluster.state.write(&record, found.revision).unwrap();
    let space = cluster.nodes[0].space.clone();
    let request = |id: u64, operation| Request {
        volume: VOLUME,
        session: crate::message::SessionId(5),
        id: crate::message::RequestId(id),
        epoch: Epoch(3),
        priority: crate::message::Priority::Client,
        operation,
    };
    let open = ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) };
    let mut answers = Vec::new();
    space.handle_remote(PeerId(7), NodeId(2), disk(1), request(1, open.clone()));
    space.poll_remote(&mut answers);
    assert!(matches!(&answers[..], [(PeerId(7), _, response)] if response.result.is_ok()), "{answers:?}");
    let chunks = |peer, id| {
        space.handle_remote(PeerId(peer), NodeId(2), disk(1), request(id, ReplicaOperation::Chunks));
        let mut answers = Vec::new();
        space.poll_remote(&mut answers);
        let (to, _, response) = answers.remove(0);
        assert!(to == PeerId(peer) && answers.is_empty());
        response.result.map(|_| ())
    };
    assert_eq!(chunks(7, 2), Ok(()));
    assert_eq!(chunks(8, 3), Err(BusError::NoSession), "another connection used the session");
    space.end_peer(PeerId(7));
    assert_eq!(chunks(7, 4), Err(BusError::NoSession));
    // Answers to requests from before the loss of the connection are dropped.
    space.handle_remote(
        PeerId(9),
        NodeId(2),
        disk(1),
        Request { session: crate::message::SessionId(6), ..request(5, open) },
    );
    space.end_peer(PeerId(9));
    answers.clear();
    space.poll_remote(&mut answers);
    assert!(answers.is_empty(), "{answers:?}");
    // A disk that is not here is not reached, from any connection.
    space.handle_remote(PeerId(9), NodeId(2), disk(2), request(6, ReplicaOperation::Chunks));
    space.poll_remote(&mut answers);
    assert!(
        matches!(&answers[..], [(_, _, response)] if matches!(response.result, Err(BusError::Unreachable)))
    );
    cluster.carry();
}

#[test]
fn what_a_scrub_finds_on_another_node_is_repaired_by_the_owner() {
    let mut cluster = Cluster::new(2, 1, Resiliency::TwoWay);
    cluster.open(0);
    cluster.write(0, 7, 5).unwrap();
    cluster.nodes[1].stores[0].1.corrupt(VOLUME, Lba(7));
    cluster.nodes[1].space.scrub(disk(2), 1 << 30);
    cluster.carry();
    let event = cluster.nodes[1].space.poll_event();
    assert!(matches!(event, Some(LocalEvent::Scrubbed { corrupt: 1, .. })), "{event:?}");
    let report = cluster.nodes[1].space.report(disk(2), 0).unwrap();
    assert_eq!(
        (report.corrupt.clone(), report.total_slabs, report.free_slabs),
        (vec![(VOLUME, Lba(7))], 64, 63)
    );
    cluster.nodes[0].space.note_corrupt(disk(2), &report.corrupt);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.nodes[0].space.counters(VOLUME).unwrap().repaired_blocks, 1);
    assert!(cluster.nodes[1].space.report(disk(2), report.cursor).unwrap().corrupt.is_empty());
}

#[test]
fn a_volume_that_another_node_has_claimed_meanwhile_is_left_to_it() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.fill(0, 1);
    cluster.kill(0);
    // Two nodes decide to take the volume over from the first; one of them is late.
    cluster.take_over(1, None);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.phase(1), Some(Phase::Serving), "it waits for a lease that is over");
    cluster.take_over(2, None);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.phase(2), Some(Phase::Stopped(SpaceError::Fenced)));
    assert_eq!((cluster.phase(1), cluster.record().owner), (Some(Phase::Serving), Some(NodeId(2))));
}

#[test]
pub(super) fn a_claim_on_the_volume_of_a_node_that_has_come_back_fails() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    let lease = |incarnation| NodeLease { node: NodeId(1), incarnation };
    let died = cluster.state.write(&lease(1), 0).unwrap();
    cluster.open(0);
    cluster.fill(0, 1);
    // The node is declared dead, and comes back before the claim.
    let back = cluster.state.write(&lease(2), died).unwrap();
    let fence = |revision| Some(Condition { key: lease(1).key(), revision });
    cluster.take_over(1, fence(died));
    cluster.pass(Duration::from_millis(200));
    assert_eq!(cluster.phase(1), Some(Phase::Stopped(SpaceError::Fenced)));
    assert_eq!((cluster.phase(0), cluster.record().owner), (Some(Phase::Serving), Some(NodeId(1))));
    cluster.take_over(2, fence(back));
    cluster.pass(Duration::from_millis(200));
    assert_eq!((cluster.phase(2), cluster.record().owner), (Some(Phase::Serving), Some(NodeId(3))));
}

/// Queues a write for three times the disks' timeout. Returns the number of disks in sync then.
fn queue_a_write(is_told: bool) -> (Cluster, usize) {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.pass(Duration::from_secs(1));
    cluster.write(0, 0, 1).unwrap();
    cluster.nodes[0].ends.borrow_mut().queues_writes = Some(is_told);
    let data = filled(1, 2);
    let token = cluster.start(0, SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data });
    cluster.pass(Config::default().io_timeout * 3);
    let in_sync = cluster.record().in_sync.len();
    if is_told {
        assert!(cluster.answer(0, token).is_none());
        let mut ends = cluster.nodes[0].ends.borrow_mut();
        ends.queues_writes = None;
        let queued = std::mem::take(&mut ends.queued);
        ends.sent.extend(queued);
        drop(ends);
        assert!(cluster.wait(0, token).is_ok());
    }
    (cluster, in_sync)
}

#[test]
fn a_request_that_waits_on_this_side_does_not_fail_its_disk() {
    let (mut cluster, in_sync) = queue_a_write(true);
    assert_eq!(in_sync, 3);
    assert_eq!(cluster.read(0, 0), 2);
    // A write that has left and is not answered does fail the disk.
    let (_, in_sync) = queue_a_write(false);
    assert!(in_sync < 3);
}

#[test]
fn a_volume_that_is_forgotten_has_told_which_disks_left_it() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.write(0, 1, 5).unwrap();
    cluster.kill(2);
    cluster.write(0, 1, 6).unwrap();
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.record().in_sync.len(), 2);
    let space = &cluster.nodes[0].space;
    space.forget_volume(VOLUME);
    let mut told = std::iter::from_fn(|| space.poll_event());
    assert!(told.any(|event| matches!(event, LocalEvent::Volume(VOLUME, Event::DiskLeft { .. }))));
}
