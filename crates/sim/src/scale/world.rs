//! The world: servers with disks, coordinators and heartbeats in virtual time, over a network without
//! faults.

use super::counts::{Counts, MICROSECOND, MILLISECOND, SECOND, node_id};
use super::heartbeats::{Heartbeats, Told};
use super::{CHUNK_BLOCKS, CHUNKS, COPIES, DISKS_PER_NODE};
use pool::{FaultDomain, PoolView, Route};
use records::{Answer, MemoryState, Provisioning, Request as StateRequest, Resiliency, Typed, VolumeRecord};
use space::api::{SpaceCompletion, SpaceRequest};
use space::coordinator::{Config, Coordinator, Phase, Predecessor, StateToken};
use space::fake_store::{FakeFault, FakeStore};
use space::message::{BusError, Request, Response};
use space::replica::Replica;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use store::api::WriteClass;
use sys::BufMut;
use types::{BLOCK_BYTES, DiskId, Lba, Monotonic, NodeId, PoolId, VolumeId};

/// Interval at which servers take their messages and do all due work.
const TICK: u64 = 50 * MILLISECOND;
/// Latency of a message within a server, of one to another server, and of a change of the cluster
/// state.
const NEAR: u64 = 2 * MICROSECOND;
const FAR: u64 = 40 * MICROSECOND;
const STATE: u64 = 500 * MICROSECOND;
/// Latency of a disk.
const DISK: u64 = 60 * MICROSECOND;
/// Latency of a refusal on behalf of a server that is down.
const REFUSED: u64 = MILLISECOND;
/// Timeout of a wait for a goal: without it, a missed goal would keep the run from ending.
const PATIENCE: u64 = 120 * SECOND;

enum Event {
    Request { disk: usize, life: u64, from: usize, request: Request },
    Response { volume: usize, response: Response },
    State { volume: usize, opening: u64, token: StateToken, request: StateRequest },
    StateAnswer { volume: usize, opening: u64, token: StateToken, answer: Answer },
    Timer { volume: usize, opening: u64 },
    Poll { disk: usize },
    Tick,
}

struct SimDisk {
    id: DiskId,
    node: usize,
    store: FakeStore,
    replica: Option<Replica<FakeStore>>,
    is_poll_scheduled: bool,
}

struct Server {
    is_up: bool,
    /// Number that grows with each start of the process.
    life: u64,
}

struct Volume {
    id: VolumeId,
    /// The server that has the volume open, or should have it.
    node: usize,
    opening: u64,
    coordinator: Option<Coordinator>,
    timer_at: Option<u64>,
    random: u64,
    /// Operations without an answer yet.
    in_flight: u64,
    /// Operations to begin as others are answered.
    left: u64,
    writes_percent: u64,
}

pub(super) struct World {
    now: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    disks: Vec<SimDisk>,
    place_of_disk: BTreeMap<DiskId, usize>,
    servers: Vec<Server>,
    volumes: Vec<Volume>,
    /// The table of disks of each server.
    pools: Vec<Rc<RefCell<PoolView>>>,
    state: MemoryState,
    heartbeats: Heartbeats,
    /// Whether heartbeats are suspended, since they are counted separately.
    is_quiet: bool,
    pub counts: Counts,
}

fn numbered(kind: u8, number: usize) -> [u8; 16] {
    let mut bytes = [kind; 16];
    // Ids are as random as those of real disks: their order does not reveal the server.
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&mixed.to_be_bytes());
    bytes
}

/// Returns the route from a server to a disk of another, or of its own.
fn route(of: usize, from: usize, slabs: u64) -> Route {
    if of == from { Route::Local } else { Route::Remote { is_down: false, reported: (slabs, slabs) } }
}

impl World {
    /// Makes servers that are up, each with its disks and a volume that is not open yet.
    pub fn new(nodes: usize) -> Self {
        let slabs = CHUNKS * COPIES * 4 / DISKS_PER_NODE as u64;
        let disks: Vec<SimDisk> = (0..nodes * DISKS_PER_NODE)
            .map(|number| {
                let store = FakeStore::new(CHUNK_BLOCKS as u32, slabs);
                let id = DiskId::from_bytes(numbered(1, number));
                let replica = Some(Replica::new(id, store.clone()));
                SimDisk { id, node: number / DISKS_PER_NODE, store, replica, is_poll_scheduled: false }
            })
            .collect();
        let place_of_disk = disks.iter().enumerate().map(|(place, disk)| (disk.id, place)).collect();
        let pools = (0..nodes).map(|node| {
            let views = disks.iter().map(|disk| {
                let domain = FaultDomain { node: format!("node{}", disk.node), ..FaultDomain::default() };
                pool::Disk::new(disk.id, slabs, domain, route(disk.node, node, slabs))
            });
            Rc::new(RefCell::new(PoolView::new(views.collect(), 0)))
        });
        let pools = pools.collect();
        let state = MemoryState::new();
        let ids: Vec<DiskId> = disks.iter().map(|disk| disk.id).collect();
        let volumes = (0..nodes).map(|node| {
            let id = VolumeId::from_bytes(numbered(2, node));
            let size = CHUNKS * CHUNK_BLOCKS * BLOCK_BYTES as u64;
            let pool = PoolId::from_bytes([1; 16]);
            let (name, mirror) = (format!("volume-{node}"), Resiliency::TwoWay);
            let mut record =
                VolumeRecord::new(id, pool, &name, mirror, size, Provisioning::Thin, ids.clone(), 0);
            record.owner = Some(node_id(node));
            assert!(state.write(&record, 0).is_ok(), "the state in memory takes a new record");
            Volume {
                id,
                node,
                opening: 0,
                coordinator: None,
                timer_at: None,
                random: node as u64 + 1,
                in_flight: 0,
                left: 0,
                writes_percent: 0,
            }
        });
        let volumes: Vec<Volume> = volumes.collect();
        let mut world = Self {
            now: SECOND,
            sequence: 0,
            queue: BTreeMap::new(),
            disks,
            place_of_disk,
            servers: (0..nodes).map(|_| Server { is_up: true, life: 1 }).collect(),
            volumes,
            pools,
            heartbeats: Heartbeats::new(nodes, &state, SECOND),
            state,
            is_quiet: false,
            counts: Counts { changes: vec![0; nodes], ..Counts::default() },
        };
        world.after(TICK, Event::Tick);
        world
    }

    pub fn nodes(&self) -> usize {
        self.servers.len()
    }

    /// Returns the bytes of all records in the cluster state.
    pub fn state_bytes(&self) -> usize {
        self.state.dump().entries.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), event);
    }

    /// Runs the next event.
    fn step(&mut self) {
        let Some(((at, _), event)) = self.queue.pop_first() else { return };
        self.now = at;
        match event {
            Event::Request { disk, life, from, request } => self.arrive(disk, life, from, request),
            Event::Response { volume, response } => {
                self.tell(volume, |coordinator, now| coordinator.handle_response(now, response));
            }
            Event::State { volume, opening, token, request } => {
                let answer = self.state.answer(&request);
                self.counts.changes[volume] += u64::from(matches!(answer, Answer::Committed { .. }));
                self.after(STATE, Event::StateAnswer { volume, opening, token, answer });
            }
            Event::StateAnswer { volume, opening, token, answer } => {
                if self.volumes[volume].opening == opening {
                    self.tell(volume, |coordinator, now| coordinator.handle_state(now, token, answer));
                }
            }
            Event::Timer { volume, opening } => {
                if self.volumes[volume].opening == opening {
                    self.volumes[volume].timer_at = None;
                    self.tell(volume, Coordinator::handle_timeout);
                }
            }
            Event::Poll { disk } => self.poll(disk),
            Event::Tick => {
                self.after(TICK, Event::Tick);
                if !self.is_quiet {
                    self.beat();
                }
            }
        }
    }

    fn arrive(&mut self, place: usize, life: u64, from: usize, request: Request) {
        let disk = &mut self.disks[place];
        let server = &self.servers[disk.node];
        if !server.is_up || server.life != life {
            let Request { volume, session, id, .. } = request;
            let response =
                Response { from: disk.id, volume, session, id, result: Err(BusError::Unreachable) };
            return self.after(REFUSED, Event::Response { volume: from, response });
        }
        if let Some(replica) = &mut disk.replica {
            replica.handle(request);
        }
        if !std::mem::replace(&mut disk.is_poll_scheduled, true) {
            self.after(DISK, Event::Poll { disk: place });
        }
    }

    fn poll(&mut self, place: usize) {
        let disk = &mut self.disks[place];
        disk.is_poll_scheduled = false;
        let node = disk.node;
        let mut responses = Vec::new();
        if let Some(replica) = &mut disk.replica {
            replica.poll(&mut responses);
            // Opens that waited for the operations of another session may have begun.
            replica.poll(&mut responses);
            if replica.store().pending() > 0 {
                disk.is_poll_scheduled = true;
                self.after(DISK, Event::Poll { disk: place });
            }
        }
        for response in responses {
            let Some(volume) = self.volumes.iter().position(|volume| volume.id == response.volume) else {
                continue;
            };
            let way = if self.volumes[volume].node == node { NEAR } else { FAR };
            self.after(way, Event::Response { volume, response });
        }
    }

    /// Calls a volume's coordinator, if the volume is open, and carries its messages.
    fn tell(&mut self, volume: usize, something: impl FnOnce(&mut Coordinator, Monotonic)) {
        let now = Monotonic(self.now);
        if let Some(coordinator) = &mut self.volumes[volume].coordinator {
            something(coordinator, now);
            self.pump(volume);
        }
    }

    fn pump(&mut self, number: usize) {
        let mut completions: Vec<SpaceCompletion> = Vec::new();
        loop {
            let Volume { node, opening, coordinator: Some(coordinator), .. } = &mut self.volumes[number]
            else {
                return;
            };
            let (node, opening) = (*node, *opening);
            if let Some((disk, request)) = coordinator.poll_send() {
                let Some(&disk) = self.place_of_disk.get(&disk) else { continue };
                let home = self.disks[disk].node;
                let is_near = home == node;
                self.counts.near += u64::from(is_near);
                self.counts.far += u64::from(!is_near);
                let life = self.servers[home].life;
                let way = if is_near { NEAR } else { FAR };
                self.after(way, Event::Request { disk, life, from: number, request });
            } else if let Some((token, request)) = coordinator.poll_state() {
                self.after(STATE, Event::State { volume: number, opening, token, request });
            } else if coordinator.poll_event().is_none() {
                coordinator.poll(&mut completions);
                if completions.is_empty() {
                    break;
                }
                self.answered(number, &mut completions);
            }
        }
        let now = self.now;
        let volume = &mut self.volumes[number];
        let Some(coordinator) = &volume.coordinator else { return };
        if matches!(coordinator.phase(), Phase::Stopped(_) | Phase::Closed) {
            volume.coordinator = None;
            volume.timer_at = None;
            return;
        }
        if let Some(at) = coordinator.next_timeout().map(|at| at.0.max(now + 1))
            && volume.timer_at.is_none_or(|scheduled| at < scheduled)
        {
            volume.timer_at = Some(at);
            let opening = volume.opening;
            self.after(at - now, Event::Timer { volume: number, opening });
        }
    }

    /// Handles answered operations: others begin in their place.
    fn answered(&mut self, number: usize, completions: &mut Vec<SpaceCompletion>) {
        for completion in completions.drain(..) {
            self.counts.answered += 1;
            self.counts.failed += u64::from(completion.result.is_err());
            let volume = &mut self.volumes[number];
            volume.in_flight -= 1;
            if volume.left > 0 {
                volume.left -= 1;
                self.begin_one(number);
            }
        }
    }

    fn begin_one(&mut self, number: usize) {
        let now = Monotonic(self.now);
        let volume = &mut self.volumes[number];
        let Some(coordinator) = &mut volume.coordinator else { return };
        volume.random = volume.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let dice = volume.random >> 33;
        let lba = Lba(dice % CHUNKS * CHUNK_BLOCKS);
        volume.in_flight += 1;
        let request = match dice / CHUNKS % 100 < volume.writes_percent {
            true => SpaceRequest::Write { lba, class: WriteClass::Overwrite, data: block() },
            false => SpaceRequest::Read { lba, blocks: 1, copy: None },
        };
        coordinator.submit(now, dice, request);
    }

    /// Opens volumes on the servers that the rule names.
    fn open(&mut self, number: usize, node: usize, predecessor: Predecessor) {
        let now = Monotonic(self.now);
        let volume = &mut self.volumes[number];
        volume.opening += 1;
        volume.node = node;
        volume.timer_at = None;
        volume.in_flight = 0;
        let incarnation = u128::from(volume.opening) << 16 | (number as u128 + 1);
        let config = Config {
            node: Some(node_id(node)),
            lease: Some(super::heartbeats::lease()),
            ..Config::default()
        };
        let pool = self.pools[node].clone();
        let mut coordinator =
            Coordinator::new(volume.id, incarnation, config, CHUNK_BLOCKS as u32, pool, now);
        for disk in &self.disks {
            coordinator.add_disk(disk.id);
            self.pools[node].borrow_mut().set_down(disk.id, self.heartbeats.is_down(node, disk.node));
        }
        coordinator.set_predecessor(predecessor);
        coordinator.set_lease(self.heartbeats.lease_until(node));
        let down: Vec<DiskId> = self
            .disks
            .iter()
            .filter(|disk| self.heartbeats.is_down(node, disk.node))
            .map(|disk| disk.id)
            .collect();
        coordinator.disks_down(now, &down);
        volume.coordinator = Some(coordinator);
        self.pump(number);
    }

    /// Lets all servers receive, decide and send, and passes the consequences to their
    /// coordinators.
    fn beat(&mut self) {
        let up: Vec<bool> = self.servers.iter().map(|server| server.is_up).collect();
        let told = self.heartbeats.beat(self.now, &up, &self.state, &mut self.counts);
        for number in 0..self.volumes.len() {
            let node = self.volumes[number].node;
            let Told { lease, down, up, .. } = &told[node];
            let of = |nodes: &[usize]| -> Vec<DiskId> {
                if nodes.is_empty() {
                    return Vec::new();
                }
                self.disks.iter().filter(|disk| nodes.contains(&disk.node)).map(|disk| disk.id).collect()
            };
            let (down, up) = (of(down), of(up));
            for (disks, is_down) in [(&down, true), (&up, false)] {
                for disk in disks {
                    self.pools[node].borrow_mut().set_down(*disk, is_down);
                }
            }
            let claimed = self.volumes[number].coordinator.as_ref().and_then(Coordinator::claimed);
            let is_permitted = self.heartbeats.permits(self.now, node, claimed);
            self.tell(number, |coordinator, now| {
                if let Some(until) = *lease {
                    coordinator.set_lease(until);
                }
                if !down.is_empty() {
                    coordinator.disks_down(now, &down);
                }
                if !up.is_empty() {
                    coordinator.disks_up(now, &up);
                }
                if is_permitted {
                    coordinator.permit(now);
                }
            });
        }
        if self.volumes.iter().any(|volume| volume.coordinator.is_none()) {
            self.open_closed(&up);
        }
    }

    fn open_closed(&mut self, up: &[bool]) {
        let homes: BTreeMap<DiskId, NodeId> =
            self.disks.iter().map(|disk| (disk.id, node_id(disk.node))).collect();
        for node in (0..up.len()).filter(|node| up[*node]) {
            for (id, predecessor) in self.heartbeats.to_open(node, &homes, &self.state) {
                let Some(number) = self.volumes.iter().position(|volume| volume.id == id) else { continue };
                if self.volumes[number].coordinator.is_none() {
                    self.open(number, node, predecessor);
                }
            }
        }
    }

    /// Runs until a condition holds; panics if that does not happen in time.
    fn run_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = self.now + PATIENCE;
        while !is_so(self) {
            assert!(self.now < until, "{what} did not come about: {:?}", self.counts);
            self.step();
        }
    }

    /// Runs for this time.
    pub fn rest(&mut self, lasting: u64) {
        let until = self.now + lasting;
        while self.now < until {
            self.step();
        }
    }

    pub fn run_until_open(&mut self) {
        self.run_until("an opening of all volumes", |world| {
            world.volumes.iter().all(|volume| {
                volume.coordinator.as_ref().is_some_and(|found| *found.phase() == Phase::Serving)
            })
        });
    }

    /// Runs until each volume has all its copies on disks in sync.
    pub fn run_until_whole(&mut self) {
        self.run_until("copies that are whole", |world| {
            world.volumes.iter().all(|volume| {
                volume.coordinator.as_ref().is_some_and(|found| {
                    let record = found.record();
                    record.stale.is_empty() && record.building.is_empty() && found.chunk_counts().1 == 0
                })
            })
        });
    }

    /// Gives every chunk of a volume its slabs, and a block.
    pub fn fill(&mut self, number: usize) {
        let now = Monotonic(self.now);
        let mut chunks: VecDeque<u64> = (0..CHUNKS).collect();
        while let Some(chunk) = chunks.pop_front() {
            self.volumes[number].in_flight += 1;
            let request = SpaceRequest::Write {
                lba: Lba(chunk * CHUNK_BLOCKS),
                class: WriteClass::Fresh,
                data: block(),
            };
            if let Some(coordinator) = &mut self.volumes[number].coordinator {
                coordinator.submit(now, chunk, request);
            }
        }
        self.pump(number);
        self.run_until("a filled volume", |world| world.volumes[number].in_flight == 0);
    }

    /// Runs `operations` operations of one block on a volume, 32 at a time. Heartbeats are
    /// suspended meanwhile.
    pub fn operate(&mut self, number: usize, operations: u64, writes_percent: u64) {
        const DEPTH: u64 = 32;
        self.is_quiet = true;
        self.volumes[number].writes_percent = writes_percent;
        let first = operations.min(DEPTH);
        self.volumes[number].left = operations - first;
        (0..first).for_each(|_| self.begin_one(number));
        self.pump(number);
        self.run_until("answered operations", |world| world.volumes[number].in_flight == 0);
        self.is_quiet = false;
    }

    /// Makes a disk answer only errors from now on.
    pub fn lose_disk(&mut self, place: usize) {
        self.disks[place].store.set_fault(FakeFault::Errors);
    }

    pub fn heal_disk(&mut self, place: usize) {
        self.disks[place].store.set_fault(FakeFault::None);
    }

    /// Ends a server's process, and its volume with it.
    pub fn lose_node(&mut self, node: usize) {
        self.servers[node].is_up = false;
        self.servers[node].life += 1;
        for volume in self.volumes.iter_mut().filter(|volume| volume.node == node) {
            volume.coordinator = None;
            volume.opening += 1;
            volume.timer_at = None;
        }
        for disk in self.disks.iter_mut().filter(|disk| disk.node == node) {
            disk.replica = None;
            disk.store.crash(|| true);
        }
    }

    /// Starts a server again.
    pub fn bring_node_back(&mut self, node: usize) {
        self.servers[node].is_up = true;
        for disk in self.disks.iter_mut().filter(|disk| disk.node == node) {
            disk.replica = Some(Replica::new(disk.id, disk.store.clone()));
        }
        self.heartbeats.start(self.now, node);
    }
}

fn block() -> sys::Payload {
    BufMut::zeroed(BLOCK_BYTES).freeze().into()
}
