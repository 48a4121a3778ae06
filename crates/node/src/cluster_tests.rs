//! Several nodes in one process, over one state, and a bus in memory.

use crate::formatting::NewDisk;
use crate::jobs::{JobKind, JobState};
use crate::lease_gate::Heartbeats;
use crate::node::{Node, Options, Settings};
use crate::node_of_cluster::adopt_records;
use crate::peers::{ClusterMembership, NodeLife, Unreached};
use crate::served::ServedVolume;
use crate::volume_care::NewVolume;
use crate::volumes::Front;
use crate::{Beyond, Done, on_loop};
use heartbeat::Offer;
use heartbeat::shell::{Claim, Retreat};
use log::Log;
use records::{
    DeletedVolume, DiskRecord, DiskState, Fault, FaultDomain, MemoryState, Provisioning, Resiliency, State,
    Typed, VolumeRecord,
};
use space::local::nodes::{DiskPace, DiskReport};
use space::message::{PeerId, Request, Response, Transport};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use types::{DiskId, Epoch, FileTime, Monotonic, NodeId, NtStatus, PoolId, VolumeId};
use volume::backend::{Backend, Operation, Reply, WideString};

mod disks;
mod log;
mod older_images;
mod retreat;

const LEASE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests that a node has sent to disks of others, and the answers.
#[derive(Default)]
struct Ends {
    sent: Vec<(DiskId, Request)>,
    answers: Vec<Response>,
}

struct TestTransport(Rc<RefCell<Ends>>);

impl Transport for TestTransport {
    fn send(&mut self, to: DiskId, request: Request) {
        self.0.borrow_mut().sent.push((to, request));
    }
    fn has_news(&self) -> bool {
        !self.0.borrow().answers.is_empty()
    }
    fn poll(&mut self, out: &mut Vec<Response>) {
        out.append(&mut self.0.borrow_mut().answers);
    }
}

/// The server of a node, reduced to its polls of volumes.
#[derive(Default, Clone)]
struct Server(Rc<RefCell<BTreeMap<VolumeId, ServedVolume>>>);

impl Front for Server {
    fn add_volume(&self, volume: VolumeId, served: ServedVolume) {
        self.0.borrow_mut().insert(volume, served);
    }
    fn remove_volume(&self, volume: VolumeId, _: Monotonic) {
        self.0.borrow_mut().remove(&volume);
    }
}

/// A node's state in its heartbeats.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    is_dead: bool,
    lease_until: Monotonic,
    applied: u64,
    /// Whether the node's heartbeats are lost.
    is_mute: bool,
}

type Words = Rc<RefCell<BTreeMap<NodeId, Word>>>;

/// The heartbeats of a node.
struct Heart {
    node: NodeId,
    began: Instant,
    offer: Cell<Option<Offer>>,
    words: Words,
    retreat: RefCell<Retreat>,
    /// Whether the node reports that its data reach most of the others.
    reaches_most: Cell<bool>,
}

impl Heart {
    /// Offers the node a lease.
    fn beat(&self, term: u64) {
        let until = self.now().after(LEASE);
        self.offer.set(Some(Offer { term, until }));
        self.words.borrow_mut().entry(self.node).or_default().lease_until = until;
    }
}

impl Heartbeats for Heart {
    fn now(&self) -> Monotonic {
        Monotonic(1_000_000_000).after(self.began.elapsed())
    }
    fn offer(&self) -> Option<Offer> {
        self.offer.get()
    }
    fn may_answer_for(&self, _: VolumeId, claim: &Claim) -> bool {
        let words = self.words.borrow();
        claim.before.iter().all(|node| {
            let Word { is_dead, lease_until, applied, .. } = words[node];
            applied >= claim.revision || (is_dead && lease_until <= self.now())
        })
    }
    fn forget_claim(&self, _: VolumeId) {}
    fn note_applied(&self, revision: u64) {
        let mut words = self.words.borrow_mut();
        let word = words.entry(self.node).or_default();
        word.applied = if word.is_mute { word.applied } else { revision };
    }
    fn note_reach(&self, reach_most: bool) {
        self.reaches_most.set(reach_most);
    }
    fn retreat(&self, is_wanted: bool) {
        self.retreat.borrow_mut().is_wanted = is_wanted;
    }
    fn retreating(&self) -> Retreat {
        self.retreat.borrow().clone()
    }
}

struct Running {
    node: Node,
    heart: Rc<Heart>,
    /// Term of the lease.
    term: u64,
    /// Whether the process gets no lease.
    is_refused: bool,
    server: Server,
    ends: Rc<RefCell<Ends>>,
    /// Whether the process's heartbeats are lost for ever.
    is_dead: bool,
    /// Incarnation in the last heartbeat.
    incarnation: Cell<u64>,
}

struct Rig {
    state: State,
    /// The engine of the state.
    memory: MemoryState,
    driver: Driver,
    /// Nodes that should have no volumes.
    draining: BTreeSet<NodeId>,
    /// Nodes that were removed: no view names them any more.
    removed: BTreeSet<NodeId>,
    nodes: BTreeMap<NodeId, Running>,
    words: Words,
    /// Pairs of nodes (from, to) whose requests are lost.
    cut: BTreeSet<(NodeId, NodeId)>,
    directory: tempfile::TempDir,
    /// Places to search for disks.
    search: Vec<PathBuf>,
    began: Instant,
    cared_at: Instant,
}

fn settings() -> Settings {
    Settings {
        cache_bytes: 64 << 20,
        opens: 100,
        locks_per_open: 100,
        disk_timeout: Duration::from_secs(20),
        repair_delay: Duration::from_secs(1800),
        scrub_period: Duration::ZERO,
        scrub_rate: 1 << 20,
    }
}

fn two_way(pool: PoolId) -> NewVolume {
    NewVolume {
        name: "data".to_owned(),
        pool,
        resiliency: Resiliency::TwoWay,
        provisioning: Provisioning::Thin,
        size_bytes: 8 << 30,
        warn_at_percent: None,
    }
}

fn membership(id: NodeId, heart: &Rc<Heart>, ends: &Rc<RefCell<Ends>>) -> ClusterMembership {
    let link = ends.clone();
    ClusterMembership {
        node: id,
        name: format!("node-{id}"),
        lease: LEASE,
        heartbeats: heart.clone(),
        transport: Box::new(move |_| Box::new(TestTransport(link.clone()))),
    }
}

impl Rig {
    fn new(nodes: u32) -> Self {
        let mut rig = Self::empty();
        (1..=nodes).for_each(|node| rig.start(NodeId(node)));
        rig.tell_lives();
        rig
    }

    fn empty() -> Self {
        let memory = MemoryState::new();
        Self {
            state: State::from(memory.clone()),
            memory,
            driver: Driver::new(DriverChoice::Automatic).expect("a loop"),
            draining: BTreeSet::new(),
            removed: BTreeSet::new(),
            nodes: BTreeMap::new(),
            words: Words::default(),
            cut: BTreeSet::new(),
            directory: tempfile::tempdir().expect("a directory"),
            search: Vec::new(),
            began: Instant::now(),
            cared_at: Instant::now(),
        }
    }

    fn now(&self) -> Monotonic {
        Monotonic(1_000_000_000).after(self.began.elapsed())
    }

    fn start(&mut self, id: NodeId) {
        self.start_as(id, true);
    }

    /// `is_node`: or else a single server, which becomes one later.
    fn start_as(&mut self, id: NodeId, is_node: bool) {
        let (server, ends) = (Server::default(), Rc::new(RefCell::new(Ends::default())));
        let (began, offer, words) = (self.began, Cell::default(), self.words.clone());
        let (retreat, reaches_most) = Default::default();
        let heart = Rc::new(Heart { node: id, began, offer, words, retreat, reaches_most });
        let membership = membership(id, &heart, &ends);
        let options = Options {
            driver: self.driver.clone(),
            on_loop,
            state: self.state.clone(),
            front: Box::new(server.clone()),
            settings: settings(),
            search: self.search.clone(),
            host: format!("node-{id}"),
            membership: is_node.then_some(membership),
        };
        let node = Node::new(options, self.now(), FileTime::from_unix_nanos(1_700_000_000_000_000_000));
        node.recover();
        let incarnation = Cell::new(0);
        let running =
            Running { node, heart, term: 1, is_refused: false, server, ends, is_dead: false, incarnation };
        self.nodes.insert(id, running);
    }

    fn of(&self, node: u32) -> &Node {
        &self.nodes[&NodeId(node)].node
    }

    /// Passes the live nodes to all live nodes.
    fn tell_lives(&self) {
        let life = |id: &NodeId, running: &Running| NodeLife {
            is_up: !running.is_dead,
            is_reached: true,
            takes_volumes: !self.draining.contains(id),
            incarnation: Some(running.incarnation.get()),
        };
        let lives: BTreeMap<NodeId, NodeLife> =
            self.nodes.iter().map(|(id, running)| (*id, life(id, running))).collect();
        let lives: BTreeMap<NodeId, NodeLife> =
            lives.into_iter().filter(|(id, _)| !self.removed.contains(id)).collect();
        for running in self.nodes.values().filter(|running| !running.is_dead) {
            running.node.set_nodes(lives.clone());
        }
    }

    /// Makes the node fall silent, and tells the others.
    fn kill(&mut self, node: u32) {
        if let Some(running) = self.nodes.get_mut(&NodeId(node)) {
            running.is_dead = true;
            running.term += 1;
            self.words.borrow_mut().entry(NodeId(node)).or_default().is_dead = true;
        }
        for running in self.nodes.values() {
            running.node.end_peer(PeerId(node.into()));
        }
        self.tell_lives();
    }

    fn revive(&mut self, node: u32) {
        self.nodes.get_mut(&NodeId(node)).expect("it").is_dead = false;
        self.words.borrow_mut().entry(NodeId(node)).or_default().is_dead = false;
        self.tell_lives();
    }

    /// Requests data from a volume that it has in memory.
    fn ask(&mut self, node: u32, volume: VolumeId) -> Rc<RefCell<Option<Result<Reply, NtStatus>>>> {
        let served = self.of(node).volumes.served(volume).expect("it is served");
        let (answer, now) = (Rc::new(RefCell::new(None)), self.now());
        let into = answer.clone();
        self.of(node).tasks.spawn(async move {
            let root = Operation::OpenRoot { path: WideString::default() };
            let result = served.perform(root, now).await;
            into.replace(Some(result));
        });
        answer
    }

    fn pass(&mut self, duration: Duration) {
        let began = Instant::now();
        while began.elapsed() < duration {
            self.turn();
        }
    }

    /// Carries requests and answers between the nodes. Returns whether there were any.
    fn carry(&self) -> bool {
        let mut moved = false;
        let mut owners = BTreeMap::new();
        for (id, running) in &self.nodes {
            owners.extend(running.node.disks.slots().keys().map(|disk| (*disk, *id)));
        }
        for (from, running) in &self.nodes {
            let sent = std::mem::take(&mut running.ends.borrow_mut().sent);
            for (disk, request) in sent {
                moved = true;
                let reached = owners.get(&disk).filter(|owner| !self.cut.contains(&(*from, **owner)));
                let to = reached.and_then(|owner| self.nodes.get(owner));
                if let Some(to) = to.filter(|to| !to.is_dead && !running.is_dead) {
                    to.node.handle_remote(PeerId(from.0.into()), *from, disk, request);
                }
            }
        }
        for running in self.nodes.values() {
            let mut answers = Vec::new();
            running.node.poll_remote(&mut answers);
            for (PeerId(to), _, response) in answers {
                moved = true;
                let to = &self.nodes[&NodeId(to as u32)];
                if !to.is_dead && !running.is_dead {
                    to.ends.borrow_mut().answers.push(response);
                }
            }
        }
        moved
    }

    fn turn(&mut self) {
        let now = self.now();
        let cares = self.cared_at.elapsed() >= Duration::from_secs(1);
        if cares {
            self.cared_at = Instant::now();
        }
        for running in self.nodes.values() {
            running.node.tell_time(now);
            if !running.is_dead {
                if !running.is_refused {
                    running.heart.beat(running.term);
                }
                running.incarnation.set(running.node.incarnation().unwrap_or(running.incarnation.get()));
            }
            if cares {
                running.node.care();
            }
        }
        loop {
            let mut moved = self.carry();
            for running in self.nodes.values() {
                moved |= running.node.poll();
                let served: Vec<ServedVolume> = running.server.0.borrow().values().cloned().collect();
                served.into_iter().for_each(|mut volume| volume.poll(&mut Vec::new()));
            }
            if !moved {
                break;
            }
        }
        self.driver.wait(Some(Duration::from_millis(2))).expect("the loop");
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "not in time: {what}");
            self.turn();
        }
    }

    /// Runs a command on a node.
    fn run<T: 'static>(&mut self, node: u32, command: impl Future<Output = Done<T>> + 'static) -> Done<T> {
        let answer = Rc::new(RefCell::new(None));
        let into = answer.clone();
        self.of(node).tasks.spawn(async move {
            let result = command.await;
            into.replace(Some(result));
        });
        self.until("a command", |_| answer.borrow().is_some());
        answer.take().expect("an answer")
    }

    fn disk(&self, name: &str) -> NewDisk {
        let path = self.directory.path().join(name);
        NewDisk { path, create_size_bytes: Some(1 << 30), fault_domain: FaultDomain::default() }
    }

    /// Makes a pool with a disk on each node, and a volume on the first.
    fn with_volume(nodes: u32, resiliency: Resiliency) -> (Self, PoolId, VolumeId) {
        let mut rig = Self::new(nodes);
        let (care, disk) = (rig.of(1).pool_care.clone(), rig.disk("disk-1"));
        let pool = rig
            .run(1, async move { care.create("pool".to_owned(), vec![disk], Some(0)).await })
            .expect("a pool");
        for node in 2..=nodes {
            rig.until("the pool is known", |rig| rig.of(node).pools.space(pool).is_some());
            let (care, disk) = (rig.of(node).disk_admin.clone(), rig.disk(&format!("disk-{node}")));
            rig.run(node, async move { care.add(pool, disk).await }).expect("a disk");
        }
        rig.until("all disks are known", |rig| {
            let know = |running: &Running| {
                running.node.pools.space(pool).is_some_and(|space| space.disks().len() == nodes as usize)
            };
            rig.nodes.values().all(know)
        });
        let care = rig.of(1).volume_care.clone();
        let new = NewVolume { resiliency, ..two_way(pool) };
        let volume = rig.run(1, async move { care.create(new).await }).expect("a volume");
        (rig, pool, volume)
    }

    fn record(&self, volume: VolumeId) -> VolumeRecord {
        self.state.read::<VolumeRecord>(&volume.to_string()).expect("the state").expect("a record").value
    }

    /// Returns the live nodes that serve the volume.
    fn servers(&self, volume: VolumeId) -> Vec<u32> {
        let lives = self.nodes.iter().filter(|(_, running)| !running.is_dead);
        lives.filter(|(_, running)| running.node.volumes.is_served(volume)).map(|(id, _)| id.0).collect()
    }
}

#[test]
fn a_single_server_becomes_a_node_while_it_serves_and_answers_by_leases_from_the_first_one_on() {
    let mut rig = Rig::empty();
    rig.start_as(NodeId(1), false);
    rig.nodes.get_mut(&NodeId(1)).expect("it").is_refused = true;
    let (care, disks) = (rig.of(1).pool_care.clone(), vec![rig.disk("disk-1"), rig.disk("disk-2")]);
    let made = rig.run(1, async move { care.create("pool".to_owned(), disks, Some(0)).await });
    let (pool, care) = (made.expect("a pool"), rig.of(1).volume_care.clone());
    let volume = rig.run(1, async move { care.create(two_way(pool)).await }).expect("a volume");
    let before = rig.record(volume);
    assert_eq!((before.owner, before.homes.len()), (None, 0));

    // The lease is over after its duration.
    adopt_records(&rig.state, NodeId(1), "node-1").expect("the state");
    let running = &rig.nodes[&NodeId(1)];
    running.node.join(membership(NodeId(1), &running.heart, &running.ends));
    rig.tell_lives();
    rig.pass(2 * LEASE);
    assert!(!rig.of(1).has_joined());
    let answer = rig.ask(1, volume);
    rig.until("it answers all the time", |_| answer.borrow().is_some());

    rig.nodes.get_mut(&NodeId(1)).expect("it").is_refused = false;
    rig.until("it is a node", |rig| rig.of(1).has_joined());
    let after = rig.record(volume);
    assert_eq!((after.owner, after.coordinator), (Some(NodeId(1)), before.coordinator), "the same opening");
    rig.until("copies are counted by nodes", |rig| rig.record(volume).homes.len() == 1);
    let answer = rig.ask(1, volume);
    rig.until("it answers by its lease", |_| answer.borrow().is_some());
    rig.nodes.get_mut(&NodeId(1)).expect("it").is_refused = true;
    rig.pass(2 * LEASE);
    let answer = rig.ask(1, volume);
    rig.pass(LEASE);
    assert!(answer.borrow().is_none(), "it answers without a lease");
    rig.nodes.get_mut(&NodeId(1)).expect("it").is_refused = false;
    rig.until("it answers again", |_| answer.borrow().is_some());

    // Another node joins, and takes over all that it can.
    rig.start(NodeId(2));
    rig.tell_lives();
    rig.until("the volume is known there", |rig| rig.of(2).volumes.is_elsewhere(volume));
    assert_eq!(rig.servers(volume), [1]);
    let (care, disk) = (rig.of(2).disk_admin.clone(), rig.disk("disk-3"));
    rig.run(2, async move { care.add(pool, disk).await }).expect("a disk");
    // Decisions on a disk of the first node are recorded with that node as its owner.
    let disk = *rig.of(1).disks.slots().keys().next().expect("a disk");
    let care = rig.of(1).disk_admin.clone();
    rig.run(1, async move { care.retire(disk).await }).expect("it is retired");
    rig.until("a copy is with each", |rig| rig.record(volume).min_homes == 2);
    let disks = rig.state.list::<DiskRecord>().expect("the state").into_iter().map(|disk| disk.value);
    let homes = disks.map(|disk| (disk.node, disk.fault_domain.node));
    let is_named =
        |(node, name): &(Option<NodeId>, String)| node.is_some_and(|node| *name == format!("node-{node}"));
    assert!(homes.clone().all(|home| is_named(&home)), "{:?}", homes.collect::<Vec<_>>());
    rig.kill(1);
    rig.until("it is taken over", |rig| rig.servers(volume) == [2]);
}

#[test]
fn a_volume_lies_on_all_nodes_and_another_one_takes_it_over_when_its_node_dies() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    let disks = rig.state.list::<DiskRecord>().expect("the state");
    let homes: BTreeSet<_> =
        disks.iter().map(|disk| (disk.value.node, disk.value.fault_domain.node.clone())).collect();
    assert_eq!(homes.len(), 3, "{homes:?}");
    assert_eq!((rig.record(volume).owner, rig.servers(volume)), (Some(NodeId(1)), vec![1]));
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.until("the others know of it", |rig| {
        rig.of(2).volumes.is_elsewhere(volume) && rig.of(3).volumes.is_elsewhere(volume)
    });
    rig.kill(1);
    let began = Instant::now();
    rig.until("it is served again", |rig| !rig.servers(volume).is_empty());
    println!("taken over within {} ms", began.elapsed().as_millis());
    assert_eq!((rig.record(volume).owner, rig.servers(volume)), (Some(NodeId(2)), vec![2]));
    let jobs = rig.of(2).jobs.borrow().list();
    let told = jobs.iter().find(|job| job.kind == JobKind::Takeover).expect("a job");
    assert!(told.state == JobState::Completed && told.message.contains("served after"), "{told:?}");
    // The former owner comes back: it finds that it has lost the volume, and does not claim it
    // back.
    rig.revive(1);
    rig.until("it is withdrawn", |rig| rig.servers(volume) == [2]);
    rig.until("all copies are there", |rig| rig.record(volume).stale.is_empty());
    assert!(rig.of(1).volumes.is_elsewhere(volume));
    assert_eq!(rig.record(volume).owner, Some(NodeId(2)));
}

#[test]
fn a_volume_is_handed_over_to_the_node_that_is_named() {
    let (mut rig, _, volume) = Rig::with_volume(2, Resiliency::TwoWay);
    let care = rig.of(1).volume_care.clone();
    rig.run(1, async move { care.move_to(volume, NodeId(2)).await }).expect("handed over");
    rig.until("it is served there", |rig| rig.servers(volume) == [2]);
    assert_eq!(rig.record(volume).owner, Some(NodeId(2)));
    let care = rig.of(1).volume_care.clone();
    let refused =
        rig.run(1, async move { care.move_to(volume, NodeId(1)).await }).expect_err("it is not here");
    assert!(refused.message.contains("node 2 has volume data"), "{}", refused.message);
    let care = rig.of(2).volume_care.clone();
    let refused = rig.run(2, async move { care.move_to(volume, NodeId(7)).await }).expect_err("nobody");
    assert!(refused.message.contains("not another server of the cluster"), "{}", refused.message);
    assert_eq!(rig.servers(volume), [2]);
}

#[test]
fn a_node_whose_data_reach_nobody_lets_its_volumes_go_although_all_hear_it() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.until("the others know of it", |rig| {
        rig.of(2).volumes.is_elsewhere(volume) && rig.of(3).volumes.is_elsewhere(volume)
    });
    let since = rig.now();
    let unreached = |node| (NodeId(node), Unreached { since, address: None, why: "lost".to_owned() });
    // The others report a live server that has the volume and does not answer.
    let silent = |rig: &Rig| {
        rig.of(2).peers.owner_unreached_for(&rig.record(volume), since.after(Duration::from_secs(5)))
    };
    assert_eq!(silent(&rig), None);
    rig.of(2).peers.set_unreached(BTreeMap::from([unreached(1)]));
    assert_eq!(silent(&rig), Some(Duration::from_secs(5)));
    rig.of(2).peers.set_unreached(BTreeMap::from([unreached(3)]));
    assert_eq!(silent(&rig), None);
    // One bad link moves nothing.
    rig.of(1).peers.set_unreached(BTreeMap::from([unreached(2)]));
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.servers(volume), [1]);
    for other in [2, 3].map(NodeId) {
        rig.cut.extend([(NodeId(1), other), (other, NodeId(1))]);
    }
    // The fault cuts it off from the cluster's state, too.
    let is_commit = |request: &records::Request| matches!(request, records::Request::Commit(_));
    let lose = move |request: &records::Request| if is_commit(request) { Fault::Lost } else { Fault::None };
    rig.memory.set_fault_hook(Some(Box::new(lose)));
    rig.of(1).peers.set_unreached([2, 3].map(unreached).into());
    rig.pass(Duration::from_millis(2500));
    assert_eq!(rig.servers(volume), [1], "it is served as long as nobody can be told to take it");
    rig.memory.set_fault_hook(None);
    rig.until("another node serves it", |rig| matches!(rig.servers(volume)[..], [2 | 3]));
    rig.cut.clear();
    rig.of(1).peers.set_unreached(BTreeMap::new());
    rig.until("all copies are there", |rig| rig.record(volume).stale.is_empty());
}

#[test]
fn a_node_that_drains_hands_its_volumes_over_and_takes_none_until_it_is_resumed() {
    let (mut rig, pool, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.draining.insert(NodeId(1));
    rig.tell_lives();
    rig.until("another node serves it", |rig| matches!(rig.servers(volume)[..], [2 | 3]));
    let care = rig.of(1).volume_care.clone();
    let new = NewVolume {
        name: "more".to_owned(),
        pool,
        resiliency: Resiliency::TwoWay,
        provisioning: Provisioning::Thin,
        size_bytes: 8 << 30,
        warn_at_percent: None,
    };
    let refused = rig.run(1, async move { care.create(new).await }).expect_err("it drains");
    assert!(refused.message.contains("this server drains"), "{}", refused.message);
    // The volume's node dies: the one that does not drain is next, although it may have more
    // volumes.
    let heir = rig.servers(volume)[0];
    let other = 5 - heir;
    rig.kill(heir);
    rig.until("the other one takes over", |rig| rig.servers(volume) == [other]);
    rig.draining = BTreeSet::from([NodeId(other)]);
    rig.tell_lives();
    rig.until("the resumed one has it", |rig| rig.servers(volume) == [1]);
}

#[test]
fn a_node_that_stops_hands_its_volumes_over_before_it_ends() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    let (draining, deadline) = (rig.of(1).draining_of_node.clone(), rig.now().after(PATIENCE));
    let handed_over = async move {
        draining.hand_over_all(deadline).await;
        Ok(())
    };
    rig.run(1, handed_over).expect("it lives");
    assert!(!rig.of(1).volumes.is_served(volume));
    rig.until("another node serves it", |rig| matches!(rig.servers(volume)[..], [2 | 3]));
}

#[test]
fn a_node_that_drains_keeps_what_no_other_node_would_have() {
    let (mut rig, _, volume) = Rig::with_volume(2, Resiliency::TwoWay);
    rig.draining = BTreeSet::from([NodeId(1), NodeId(2)]);
    rig.tell_lives();
    let until = rig.began.elapsed() + Duration::from_millis(2500);
    rig.until("some seconds", |rig| rig.began.elapsed() > until);
    assert_eq!(rig.servers(volume), [1]);
}

#[test]
fn retired_disks_of_a_node_that_was_removed_are_forgotten_once_their_copies_are_elsewhere() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::TwoWay);
    rig.kill(3);
    let lost = rig.state.list::<DiskRecord>().expect("the state");
    let lost = lost.into_iter().find(|disk| disk.value.node == Some(NodeId(3))).expect("its disk");
    let id = lost.value.id;
    rig.until("it has left the volume", |rig| !rig.record(volume).in_sync.contains(&id));
    // Recorded like the removal of a server.
    let retired = DiskRecord { state: DiskState::Retired, ..lost.value };
    rig.state.write(&retired, lost.revision).expect("written");
    rig.removed.insert(NodeId(3));
    rig.tell_lives();
    let is_recorded = |rig: &Rig| rig.state.read::<DiskRecord>(&id.to_string()).expect("the state").is_some();
    rig.until("it is forgotten", |rig| !is_recorded(rig));
    rig.until("everywhere", |rig| {
        let of = |node| {
            rig.of(node).pools.spaces().iter().any(|space| space.disks().iter().any(|disk| disk.disk == id))
        };
        !of(1) && !of(2)
    });
    assert_eq!(rig.servers(volume), [1]);
}

#[test]
fn disks_that_come_back_at_servers_that_joined_anew_catch_up_with_the_volume() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    for node in [2, 3] {
        rig.kill(node);
        rig.removed.insert(NodeId(node));
        rig.nodes.remove(&NodeId(node));
    }
    rig.tell_lives();
    rig.until("the volume has what is left", |rig| rig.record(volume).in_sync.len() == 1);
    // The server knows the nodes that joined anew before their disks come to them.
    for (left, node) in [(2, 4), (3, 5)] {
        rig.start(NodeId(node));
        rig.tell_lives();
        let disks = rig.state.list::<DiskRecord>().expect("the state").into_iter();
        let lost = disks.into_iter().find(|disk| disk.value.node == Some(NodeId(left))).expect("its disk");
        // The node that has left may still hold a lock on the file.
        let path = rig.directory.path().join(format!("moved-{node}"));
        let copied =
            std::process::Command::new("cp").arg("--sparse=always").arg(&lost.value.path).arg(&path).status();
        assert!(copied.expect("cp").success());
        let path = path.to_str().expect("a path").to_owned();
        let mut record = DiskRecord { node: Some(NodeId(node)), path, ..lost.value };
        record.fault_domain.node = format!("node-{node}");
        rig.state.write(&record, lost.revision).expect("written");
    }
    rig.until("all copies are back", |rig| {
        let record = rig.record(volume);
        record.in_sync.len() == 3 && record.min_homes == 3
    });
}

#[test]
fn a_server_that_is_away_for_a_moment_is_in_the_log_with_its_disk_by_their_names() {
    let log = Log::of_this_thread();
    let disk = ["volume=\"data\"", "disk=\"node-3:"];
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.kill(3);
    rig.until("its disk has left", |rig| rig.record(volume).in_sync.len() == 2);
    // The record exists before its owner knows, and a disk may leave by its connection before its
    // node counts as dead.
    rig.until("that is logged", |_| log.tells(&[&["WARN", "misses writes of a volume"], &disk[..]].concat()));
    rig.until("the node is down", |_| log.tells(&["WARN", "a node is down", "node=\"node-3\""]));
    rig.revive(3);
    rig.until("its disk is back", |rig| rig.record(volume).in_sync.len() == 3);
    let joined = ["INFO", "has every write of a volume again"];
    rig.until("that is logged as well", |_| log.tells(&[&joined, &disk[..]].concat()));
}

#[test]
fn each_server_that_knows_of_a_volume_which_nobody_serves_tells_of_it() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::TwoWay);
    let told = |rig: &Rig, node| rig.of(node).unserved().iter().map(|record| record.id).collect::<Vec<_>>();
    let all = [NodeId(2), NodeId(3)];
    assert!(told(&rig, 2).is_empty() && told(&rig, 3).is_empty(), "it is served");
    // No node takes it over, since none may answer.
    all.iter().for_each(|node| rig.nodes.get(node).expect("it").node.stop());
    rig.kill(1);
    rig.until("both tell", |rig| {
        // Each sees the death at its own time, and counts from the first call.
        let told = [told(rig, 2), told(rig, 3)];
        told.iter().all(|volumes| !volumes.is_empty())
    });
    assert!(rig.servers(volume).is_empty());
    assert_eq!([told(&rig, 2), told(&rig, 3)], [[volume], [volume]]);
    // The list shows the server that the last record names, but none that is no member.
    let left = VolumeRecord { owner: Some(NodeId(77)), ..rig.record(volume) };
    assert_eq!(rig.of(2).peers.present_owner(&left), Some(NodeId(1)));
    let unread = VolumeRecord { id: VolumeId::from_bytes([9; 16]), ..left };
    assert_eq!(rig.of(2).peers.present_owner(&unread), None);
    assert_eq!(rig.of(2).peers.missing_of(&rig.record(volume)), ["node-1"]);
}

#[test]
fn a_volume_that_is_deleted_gives_its_slabs_back_on_every_node() {
    let (mut rig, pool, volume) = Rig::with_volume(2, Resiliency::TwoWay);
    let free = |rig: &Rig| -> Vec<u64> {
        let slots = |running: &Running| -> u64 {
            let slots = running.node.disks.slots();
            let stores = slots.values().filter_map(|slot| slot.store());
            stores.map(|store| store.with(|store| u64::from(store.slab_count() - store.free_slabs()))).sum()
        };
        rig.nodes.values().map(slots).collect()
    };
    assert!(free(&rig).iter().all(|used| *used > 0));
    let care = rig.of(1).volume_care.clone();
    rig.run(1, async move { care.delete(volume).await }).expect("deleted");
    rig.until("nothing is left of it", |rig| free(rig).iter().all(|used| *used == 0));
    rig.until("the note is gone", |rig| {
        rig.state.list::<DeletedVolume>().is_ok_and(|notes| notes.is_empty())
    });
    rig.until("it is forgotten", |rig| rig.of(2).volumes.of_pool(pool).is_empty());
}

#[test]
fn a_volume_that_is_opened_by_a_record_from_before_its_deletion_is_forgotten() {
    let (mut rig, pool, volume) = Rig::with_volume(2, Resiliency::TwoWay);
    let before = rig.record(volume);
    let care = rig.of(1).volume_care.clone();
    rig.run(1, async move { care.delete(volume).await }).expect("deleted");
    rig.of(1).record_watch.opener.open(before);
    assert_eq!(rig.of(1).volumes.of_pool(pool).len(), 1);
    rig.until("it is forgotten", |rig| rig.of(1).volumes.of_pool(pool).is_empty());
}

#[test]
fn a_node_without_a_lease_tells_nothing_of_what_it_has_in_memory() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    let answer = rig.ask(1, volume);
    rig.until("an answer from memory", |_| answer.borrow().is_some());
    assert!(matches!(answer.take(), Some(Ok(Reply::Root(_)))));
    let refuse = |rig: &mut Rig, is_refused: bool, terms: u64| {
        let running = rig.nodes.get_mut(&NodeId(1)).expect("it");
        running.is_refused = is_refused;
        running.term += terms;
    };
    // The lease lapses, and comes back in the same term: the node was not declared dead.
    let life = rig.of(1).incarnation();
    refuse(&mut rig, true, 0);
    rig.pass(LEASE);
    let held = rig.ask(1, volume);
    rig.pass(LEASE);
    assert!(held.borrow().is_none(), "it answers without a lease");
    refuse(&mut rig, false, 0);
    rig.until("the answer that was held", |_| held.borrow().is_some());
    assert_eq!((rig.of(1).incarnation(), held.take().map(|answer| answer.is_ok())), (life, Some(true)));
    // In another term the node answers by the former lease to its end, and then once it has read
    // the records.
    refuse(&mut rig, false, 1);
    rig.until("another life", |rig| rig.of(1).incarnation() > life);
    let answer = rig.ask(1, volume);
    rig.until("an answer", |_| answer.borrow().is_some());
    assert!(matches!(answer.take(), Some(Ok(Reply::Root(_)))));
}

#[test]
fn whoever_takes_a_volume_over_serves_when_the_lease_before_is_over() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("the others know of it", |rig| rig.of(2).volumes.is_elsewhere(volume));
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    let until = rig.now().after(Duration::from_secs(3));
    rig.kill(1);
    // A majority let it answer for longer, and its process may live; no node hears that it has read
    // of the claim.
    rig.words
        .borrow_mut()
        .insert(NodeId(1), Word { is_dead: true, is_mute: true, lease_until: until, applied: 0 });
    rig.until("it is claimed", |rig| rig.record(volume).owner == Some(NodeId(2)));
    assert_eq!(rig.record(volume).before, [NodeId(1)]);
    while rig.now() < until {
        assert!(rig.now() >= until || rig.servers(volume).is_empty(), "both may answer");
        rig.turn();
    }
    rig.until("it is served", |rig| rig.servers(volume) == [2]);
    rig.until("nobody is left to be asked", |rig| rig.record(volume).before.is_empty());
}

#[test]
fn a_node_that_lives_says_that_it_acts_by_a_claim_and_is_not_waited_for_any_longer() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("the others know of it", |rig| rig.of(2).volumes.is_elsewhere(volume));
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.kill(1);
    rig.words.borrow_mut().insert(NodeId(1), Word { lease_until: Monotonic(u64::MAX), ..Word::default() });
    rig.until("it is served", |rig| rig.servers(volume) == [2]);
    let claimed = rig.words.borrow()[&NodeId(1)].applied;
    assert!(claimed > 0 && !rig.of(1).volumes.is_served(volume));
}

#[test]
fn another_node_with_copies_tries_when_the_one_that_is_named_cannot_open_a_volume() {
    let (mut rig, pool, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("the others know of it", |rig| {
        rig.of(2).volumes.is_elsewhere(volume) && rig.of(3).volumes.is_elsewhere(volume)
    });
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.of(2).pools.supersede(pool, "a disk carries newer records");
    rig.kill(1);
    rig.until("the third serves it", |rig| rig.servers(volume) == [3]);
    assert_eq!(rig.record(volume).owner, Some(NodeId(3)));
    let failed = |rig: &Rig| {
        let jobs = rig.of(2).jobs.borrow().list();
        jobs.into_iter().find(|job| job.kind == JobKind::Takeover).is_some_and(|job| {
            job.state == JobState::Failed && job.message.contains("newer records; node 3 tries")
        })
    };
    rig.until("the second says so", failed);
    rig.until("it is past", |rig| {
        rig.record(volume).tried.is_empty() && rig.record(volume).before.is_empty()
    });
    assert!(rig.of(2).volumes.is_elsewhere(volume));
}

#[test]
fn an_opening_that_waits_for_disks_which_another_node_reaches_is_left_to_that() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::TwoWay);
    rig.until("the others know of it", |rig| {
        rig.of(2).volumes.is_elsewhere(volume) && rig.of(3).volumes.is_elsewhere(volume)
    });
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 2);
    rig.cut.insert((NodeId(2), NodeId(3)));
    rig.kill(1);
    rig.until("the second claims it", |rig| rig.record(volume).owner == Some(NodeId(2)));
    rig.until("the third serves it", |rig| rig.servers(volume) == [3]);
    // Both have tried, and no node is left: the last one keeps it.
    assert_eq!(rig.record(volume).owner, Some(NodeId(3)));
}

#[test]
fn an_opening_that_failed_leaves_the_record_of_a_healthy_owner_as_it_is() {
    let (mut rig, pool, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("the others know of it", |rig| rig.of(2).volumes.is_elsewhere(volume));
    let before = rig.record(volume);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.until("nothing is proposed", |rig| rig.record(volume).epoch > before.epoch);
    let owned = rig.record(volume);
    // The second node declared the first dead by an old record, and cannot open anything.
    rig.of(2).pools.supersede(pool, "a disk carries newer records");
    rig.of(2).record_watch.opener.open(before);
    rig.until("it gives up", |rig| rig.of(2).volumes.is_elsewhere(volume));
    let after = rig.record(volume);
    assert_eq!((after.owner, after.coordinator, after.tried), (owned.owner, owned.coordinator, vec![]));
    assert_eq!(rig.servers(volume), [1]);
}

#[test]
fn an_owner_whose_volume_was_passed_on_without_a_new_epoch_lets_go_of_it() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    let found = rig.state.read::<VolumeRecord>(&volume.to_string()).expect("the state").expect("a record");
    let passed = VolumeRecord { owner: Some(NodeId(2)), coordinator: 0, ..found.value };
    let Ok(_) = rig.state.write(&passed, found.revision) else {
        panic!("the owner changed it at this very moment")
    };
    rig.until("the one that is named serves it", |rig| rig.servers(volume) == [2]);
}

#[test]
fn a_volume_that_comes_back_while_its_last_command_ends_is_opened_again() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    let command = rig.of(1).volumes.served(volume).expect("it is served");
    let found = rig.state.read::<VolumeRecord>(&volume.to_string()).expect("the state").expect("a record");
    let epoch = found.value.epoch.next();
    let claimed = VolumeRecord { owner: Some(NodeId(3)), coordinator: 99, epoch, ..found.value };
    rig.state.write(&claimed, found.revision).expect("written");
    rig.until("the third serves it", |rig| rig.servers(volume) == [3]);
    let care = rig.of(3).volume_care.clone();
    rig.run(3, async move { care.move_to(volume, NodeId(1)).await }).expect("handed over");
    let found = rig.state.read::<VolumeRecord>(&volume.to_string()).expect("the state").expect("a record");
    rig.until("the first knows that it is named again", |rig| {
        rig.words.borrow()[&NodeId(1)].applied >= found.revision
    });
    rig.pass(Duration::from_millis(100));
    assert!(rig.servers(volume).is_empty(), "a command still has it");
    drop(command);
    rig.until("it is served again", |rig| rig.servers(volume) == [1]);
}

#[test]
fn a_volume_is_made_on_the_servers_that_are_up_or_it_is_said_which_one_is_missing() {
    let (mut rig, pool, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    let (care, disk) = (rig.of(3).disk_admin.clone(), rig.disk("disk-4"));
    rig.run(3, async move { care.add(pool, disk).await }).expect("a second disk of the third node");
    rig.until("it is known", |rig| {
        (1..=3).all(|node| rig.of(node).pools.space(pool).is_some_and(|space| space.disks().len() == 4))
    });
    rig.kill(3);
    rig.until("its disks have left", |rig| rig.record(volume).in_sync.len() == 2);
    let (care, began) = (rig.of(1).volume_care.clone(), Instant::now());
    let new = NewVolume { name: "more".to_owned(), ..two_way(pool) };
    let made = rig.run(1, async move { care.create(new).await }).expect("two copies on two servers");
    assert!(began.elapsed() < Duration::from_secs(8), "it waited for a dead server's disks");
    assert_eq!(rig.record(made).in_sync.len(), 2);
    let care = rig.of(1).volume_care.clone();
    let new = NewVolume { name: "most".to_owned(), resiliency: Resiliency::ThreeWay, ..two_way(pool) };
    let refused = rig.run(1, async move { care.create(new).await }).expect_err("three copies");
    assert!(refused.message.contains("node-3"), "{}", refused.message);
    // When the node is back, the new volume uses its disks, too.
    rig.revive(3);
    rig.until("all disks are in sync", |rig| {
        rig.record(made).stale.is_empty() && rig.record(made).in_sync.len() == 4
    });
}

#[test]
fn a_node_that_this_one_cannot_talk_to_costs_a_write_no_time_although_others_hear_it() {
    let (mut rig, pool, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    let lives = |is_reached| {
        let life = |node: u32| NodeLife {
            is_up: true,
            is_reached: is_reached || node != 3,
            takes_volumes: true,
            incarnation: None,
        };
        (1..=3).map(|node| (NodeId(node), life(node))).collect::<BTreeMap<_, _>>()
    };
    rig.cut.insert((NodeId(1), NodeId(3)));
    rig.of(1).set_nodes(lives(false));
    let began = Instant::now();
    rig.until("its disk has left", |rig| rig.record(volume).in_sync.len() == 2);
    // A disk's timeout here is 20 seconds.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((rig.record(volume).owner, rig.servers(volume)), (Some(NodeId(1)), vec![1]));
    assert!(rig.of(1).disks.gone(pool) == 1 && rig.of(2).disks.gone(pool) == 0);
    rig.cut.clear();
    rig.of(1).set_nodes(lives(true));
    rig.until("it is back", |rig| rig.record(volume).in_sync.len() == 3);
}

#[test]
fn a_node_has_nothing_to_say_of_another_ones_disks() {
    let (rig, pool, _) = Rig::with_volume(3, Resiliency::TwoWay);
    let disk = |node: u32| {
        let disks = rig.state.list::<DiskRecord>().expect("the state");
        disks.into_iter().find(|disk| disk.value.node == Some(NodeId(node))).expect("a disk").value.id
    };
    let report = DiskReport {
        disk: disk(3),
        total_slabs: 7,
        free_slabs: 5,
        slab_blocks: 1,
        pace: None,
        corrupt: Vec::new(),
        cursor: 0,
    };
    let shown = |rig: &Rig| {
        let space = rig.of(1).pools.space(pool).expect("the pool");
        let shown = space.disks().into_iter().find(|shown| shown.disk == report.disk).expect("the disk");
        shown.total_slabs
    };
    rig.of(1).note_report(NodeId(2), &report);
    assert_ne!(shown(&rig), 7);
    rig.of(1).note_report(NodeId(3), &report);
    assert_eq!(shown(&rig), 7);
}

#[test]
fn a_servers_only_disk_is_slow_beside_those_of_the_others() {
    let (rig, _, _) = Rig::with_volume(3, Resiliency::TwoWay);
    let disks = rig.state.list::<DiskRecord>().expect("the state");
    let disk =
        |node: u32| disks.iter().find(|disk| disk.value.node == Some(NodeId(node))).expect("a disk").value.id;
    let (node, own) = (rig.of(1), disk(1));
    let is_rotational = node.slow_disks.pace(own).expect("it is there").is_rotational;
    let tell = |from: u32| {
        let means = [None, Some(Duration::from_millis(2)), None];
        node.note_report(
            NodeId(from),
            &DiskReport {
                disk: disk(from),
                total_slabs: 7,
                free_slabs: 5,
                slab_blocks: 1,
                pace: Some(DiskPace { is_rotational, means }),
                corrupt: Vec::new(),
                cursor: 0,
            },
        );
    };
    let slow_after = |windows: u32, mean: Duration| {
        for _ in 0..windows {
            node.tell_time(node.tasks.now().after(crate::pace::WINDOW));
            (2..=3).for_each(tell);
            for _ in 0..20 {
                node.disks.slots()[&own].counters.write_latency.borrow_mut().record(mean);
            }
            node.slow_disks.look_if_due();
        }
        node.disks.slots()[&own].pace.slow().cloned()
    };
    let slow = slow_after(3, Duration::from_millis(900)).expect("the others take 2 ms");
    assert_eq!((slow.asked, slow.peers), (crate::pace::Asked::Write, Duration::from_millis(2)));
    assert_eq!(slow_after(3, Duration::from_millis(2)), None, "it is as fast as they are");
}

#[test]
fn a_promise_that_no_owner_can_come_to_keeps_a_volume_closed_until_an_administrator_has_it_forgotten() {
    let (mut rig, _, volume) = Rig::with_volume(3, Resiliency::TwoWay);
    let disks = rig.state.list::<DiskRecord>().expect("the state");
    let disk = disks.iter().find(|disk| disk.value.node == Some(NodeId(2))).expect("a disk").value.id;
    let forget = |rig: &mut Rig, is_confirmed: bool| {
        let promises = rig.of(2).promises.clone();
        rig.run(2, async move { promises.forget_beyond(disk, is_confirmed).await })
    };
    let refused = forget(&mut rig, true).expect_err("there is nothing to forget");
    assert_eq!(refused.kind, crate::ErrorKind::Conflict, "{refused}");
    let beyond = Epoch(4_294_967_000);
    rig.of(2).disks.slots()[&disk].store().expect("it is there").promise(volume, beyond);
    rig.kill(1);
    let before = rig.record(volume).epoch.0;
    rig.until("it is claimed", |rig| rig.record(volume).epoch.0 > before);
    rig.pass(Duration::from_secs(4));
    let claims = rig.record(volume).epoch.0 - before;
    assert!(claims <= 4, "it is claimed again and again, {claims} times in four seconds");
    assert_eq!(rig.servers(volume), [0; 0], "the disk refuses every owner");
    assert_eq!(promised_beyond(&rig, 2, disk).len(), 1);
    let found = forget(&mut rig, false).expect("what is to be forgotten");
    assert_eq!((found[0].volume, found[0].promised), (volume, beyond));
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.servers(volume), [0; 0], "nothing was confirmed");
    forget(&mut rig, true).expect("it is forgotten");
    // Of data on these two disks alone, the first node's copy counts.
    rig.revive(1);
    rig.until("it is served", |rig| !rig.servers(volume).is_empty());
    rig.until("the disk counts again", |rig| rig.record(volume).in_sync.contains(&disk));
    assert!(promised_beyond(&rig, 2, disk).is_empty());
}

fn promised_beyond(rig: &Rig, node: u32, disk: DiskId) -> Vec<Beyond> {
    let promises = &rig.of(node).promises;
    promises.beyond(disk, &promises.recorded())
}
