//! The run: an event queue in virtual time, and everything that events happen to.

use crate::client::{CHUNK_BLOCKS, CHUNKS, Client, Doing, History, value_of};
use crate::invariants::{i1, i2, i3, i4, i5, i6, i10};
use crate::nodes::{Findings, Medium, Node, SimDisk, WatchedStore};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::Trace;
use cluster::{Answer, MemoryState, Provisioning, Request as StateRequest, Typed, VolumeRecord};
use pool::{DiskView, FaultDomain, PoolView};
use space::api::{SpaceCompletion, SpaceReply, SpaceRequest};
use space::coordinator::{Config, Coordinator, Event as SpaceEvent, Phase};
use space::fake_store::FakeStore;
use space::message::{BusError, Operation, Request, Response};
use space::replica::Replica;
use space::seam::BlockStore;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Epoch, Lba, Monotonic, PoolId, VolumeId};

fn dbg_chunk() -> Option<u64> {
    std::env::var("SIM_DEBUG").ok()?.parse().ok()
}
fn dbg_op(op: &Operation) -> Option<String> {
    let c = dbg_chunk()?;
    match op {
        Operation::Open | Operation::Chunks => Some(format!("{op:?}")),
        Operation::Promise => Some("Promise".into()),
        Operation::Allocate { chunk, .. } | Operation::Free { chunk } | Operation::Regions { chunk }
            if u64::from(chunk.0) == c =>
        {
            Some(format!("{op:?}"))
        }
        Operation::Write { lba, class, data, .. } if lba.0 / CHUNK_BLOCKS == c => {
            let d = data.contiguous();
            Some(format!(
                "Write {} {:?} len {} first {:x?}",
                lba.0,
                class,
                d.len() / BLOCK_BYTES,
                value_of(&d[..BLOCK_BYTES], lba.0)
            ))
        }
        Operation::Discard { lba, blocks } if lba.0 / CHUNK_BLOCKS == c => {
            Some(format!("Discard {} {}", lba.0, blocks))
        }
        Operation::Read { lba, blocks } if lba.0 / CHUNK_BLOCKS == c => {
            Some(format!("Read {} {}", lba.0, blocks))
        }
        _ => None,
    }
}
pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([0x51; 16]);
const MILLISECOND: u64 = 1_000_000;
const MICROSECOND: u64 = 1_000;
/// Steps after which a run is broken off: it would not end.
const STEPS_MAX: u64 = 3_000_000;

/// What a run touched, so that tests can require that faults really happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    pub acknowledged_writes: u64,
    pub reads: u64,
    pub crashes: u64,
    pub openings: u64,
    pub expulsions: u64,
    pub joins: u64,
    pub fenced: u64,
    pub reconciled_blocks: u64,
    pub repaired_blocks: u64,
    pub resynced_regions: u64,
    pub built_regions: u64,
    pub discards: u64,
    /// Writes refused because the pool was full.
    pub no_space: u64,
    pub added_disks: u64,
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    pub seed: u64,
    pub violations: Vec<String>,
    /// Equal for equal seeds, bit for bit.
    pub trace: u64,
    pub steps: u64,
    pub coverage: Coverage,
}

pub(crate) enum Event {
    Request { to: usize, from: usize, incarnations: (u64, u64), request: Request },
    Response { to: usize, from: usize, incarnations: (u64, u64), response: Response },
    StateRequest { from: usize, incarnation: u64, number: u64, request: StateRequest },
    StateAnswer { to: usize, incarnation: u64, number: u64, answer: Answer },
    Timer { node: usize, incarnation: u64 },
    Poll { disk: usize },
    Client { client: usize },
    Fault,
    Heal(crate::faults::Healing),
    Manage,
}

pub(crate) struct World {
    pub scenario: Scenario,
    pub random: Random,
    pub now: u64,
    /// Counts events; the oracle's time.
    pub step: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pub nodes: Vec<Node>,
    pub disks: Vec<SimDisk>,
    /// Pairs of nodes, and a node with the cluster state (named by the number of nodes), that do not hear each other.
    pub cut: Vec<(usize, usize)>,
    pub state: MemoryState,
    pub state_down: bool,
    revision: u64,
    records: i2::Records,
    clients: Vec<Client>,
    pub history: History,
    openings: u64,
    /// When the manager may open the volume again.
    pub open_not_before: u64,
    pub faults_end: u64,
    pub retired: Option<DiskId>,
    findings: Findings,
    violations: Vec<String>,
    trace: Trace,
    pub coverage: Coverage,
    next_token: u64,
    /// Blocks and copies that are still to be read at the end.
    last_reads: Option<VecDeque<(u64, u8)>>,
    finished: bool,
}

/// Runs one seed.
pub fn run(seed: u64) -> Report {
    run_scenario(seed, Scenario::of_seed(seed))
}

pub(crate) fn run_scenario(seed: u64, scenario: Scenario) -> Report {
    let mut world = World::new(seed, scenario);
    world.run();
    Report {
        seed,
        violations: world.violations,
        trace: world.trace.hash(),
        steps: world.step,
        coverage: world.coverage,
    }
}

impl World {
    fn new(seed: u64, scenario: Scenario) -> Self {
        let findings: Findings = Rc::default();
        let mut disks = Vec::new();
        for node in 0..scenario.nodes {
            for _ in 0..scenario.disks_per_node {
                let number = disks.len() as u8 + 1;
                let slabs = scenario.slabs();
                let id = DiskId::from_bytes([number; 16]);
                let slab_bytes = CHUNK_BLOCKS * BLOCK_BYTES as u64;
                let real = scenario.real_stores.then(|| Medium::real(id, slab_bytes, slabs, seed)).flatten();
                let fake = || Medium::Fake(FakeStore::new(CHUNK_BLOCKS as u32, slabs));
                disks.push(SimDisk {
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
                });
            }
        }
        let state = MemoryState::new();
        if scenario.addition
            && let Some(last) = disks.last_mut()
        {
            last.added = false;
        }
        let ids = disks.iter().filter(|disk| disk.added).map(|disk| disk.id).collect();
        let size = CHUNKS * CHUNK_BLOCKS * BLOCK_BYTES as u64;
        let pool = PoolId::from_bytes([1; 16]);
        let record =
            VolumeRecord::new(VOLUME, pool, "volume", scenario.resiliency, size, Provisioning::Thin, ids, 0);
        let mut records = i2::Records::default();
        records.committed(&record);
        let revision = state.write(&record, 0).unwrap_or_default();
        let mut world = Self {
            random: Random::new(seed),
            now: MILLISECOND,
            step: 1,
            sequence: 0,
            queue: BTreeMap::new(),
            nodes: (0..scenario.nodes).map(|_| Node::new()).collect(),
            disks,
            cut: Vec::new(),
            state,
            state_down: false,
            revision,
            records,
            clients: (0..scenario.clients).map(|_| Client::default()).collect(),
            history: History { discards: scenario.discards, ..History::default() },
            openings: 0,
            open_not_before: 0,
            faults_end: scenario.faults_ms * MILLISECOND,
            retired: None,
            findings,
            violations: Vec::new(),
            trace: Trace::new(),
            coverage: Coverage::default(),
            next_token: 0,
            last_reads: None,
            finished: false,
            scenario,
        };
        for disk in 0..world.disks.len() {
            world.start_replica(disk);
        }
        world.after(MILLISECOND, Event::Manage);
        world.after(50 * MILLISECOND, Event::Fault);
        for client in 0..world.clients.len() {
            world.after(10 * MILLISECOND, Event::Client { client });
        }
        world
    }

    pub fn after(&mut self, nanoseconds: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + nanoseconds.max(1), self.sequence), event);
    }

    pub fn faulting(&self) -> bool {
        self.now < self.faults_end
    }

    pub fn violate(&mut self, what: impl IntoIterator<Item = String>) {
        self.violations.extend(what);
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            self.step += 1;
            self.handle(event);
            let found: Vec<String> = self.findings.borrow_mut().drain(..).collect();
            self.violate(found.into_iter().map(|what| format!("I3: {what}")));
            if !self.violations.is_empty() || self.finished {
                break;
            }
            if self.step > STEPS_MAX || self.now > self.faults_end + 20_000 * MILLISECOND {
                let record = self.records.last().cloned();
                let doing: Vec<String> = self
                    .nodes
                    .iter()
                    .filter_map(|node| node.coordinator.as_ref())
                    .map(|found| {
                        let (counts, clean) = (found.chunk_counts(), found.is_reconciled());
                        format!(
                            "{:?}, chunks {counts:?}, reconciled {clean}, {:?}",
                            found.phase(),
                            found.jobs()
                        )
                    })
                    .collect();
                self.violate([format!(
                    "liveness: the volume does not become whole again: {record:?} {doing:?}"
                )]);
            }
        }
        let garbage = i6::check(&self.history.garbage);
        let strange = i10::check(&self.history.registers);
        self.violate(garbage);
        self.violate(strange);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { to, from, incarnations, request } => {
                self.trace.note(&[1, self.now, to as u64, request.id]);
                let node = self.disks[to].node;
                if self.reaches(from, incarnations.0, node, incarnations.1) {
                    if let Some(t) = dbg_op(&request.operation) {
                        eprintln!(
                            "   {} step {:x} node {from} -> disk {}: s {:x} id {:x} epoch {} {t}",
                            self.now / 1000,
                            self.step,
                            to + 1,
                            request.session,
                            request.id & 0xfffff,
                            request.epoch
                        );
                    }
                    if matches!(request.operation, Operation::Open | Operation::Promise) {
                        let asked = (request.session, request.id);
                        self.disks[to].asked_promises.insert(asked, request.epoch);
                    }
                    if let Some(replica) = &mut self.disks[to].replica {
                        replica.handle(request);
                    }
                    self.schedule_poll(to);
                }
            }
            Event::Response { to, from, incarnations, response } => {
                self.trace.note(&[2, self.now, to as u64, response.id, u64::from(response.result.is_ok())]);
                if self.reaches(from, incarnations.0, to, incarnations.1) {
                    let now = Monotonic(self.now);
                    if let Some(coordinator) = &mut self.nodes[to].coordinator {
                        coordinator.handle_response(now, response);
                    }
                    self.pump(to);
                }
            }
            Event::StateRequest { from, incarnation, number, request } => {
                self.serve_state(from, incarnation, number, &request);
            }
            Event::StateAnswer { to, incarnation, number, answer } => {
                self.trace.note(&[4, self.now, to as u64, number]);
                if self.nodes[to].incarnation == incarnation
                    && let Some(token) = self.nodes[to].asked.remove(&number)
                {
                    let now = Monotonic(self.now);
                    if let Some(coordinator) = &mut self.nodes[to].coordinator {
                        coordinator.handle_state(now, token, answer);
                    }
                    self.pump(to);
                }
            }
            Event::Timer { node, incarnation } => {
                if self.nodes[node].incarnation == incarnation {
                    self.nodes[node].timer_at = None;
                    let now = Monotonic(self.now);
                    if let Some(coordinator) = &mut self.nodes[node].coordinator {
                        coordinator.handle_timeout(now);
                    }
                    self.pump(node);
                }
            }
            Event::Poll { disk } => self.poll_disk(disk),
            Event::Client { client } => self.drive_client(client),
            Event::Fault => self.inject(),
            Event::Heal(healing) => self.heal(healing),
            Event::Manage => self.manage(),
        }
    }

    /// Whether a message between two processes arrives.
    fn reaches(&self, from: usize, from_incarnation: u64, to: usize, to_incarnation: u64) -> bool {
        let alive = |node: usize, incarnation: u64| {
            self.nodes.get(node).is_some_and(|node| node.up && node.incarnation == incarnation)
        };
        alive(from, from_incarnation) && alive(to, to_incarnation) && !self.is_cut(from, to)
    }

    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        one != other && self.cut.iter().any(|pair| *pair == (one, other) || *pair == (other, one))
    }

    /// How long a message takes; none: it is lost.
    fn travel(&mut self, local: bool) -> Option<u64> {
        if local {
            return Some(self.random.between(1, 20) * MICROSECOND);
        }
        let faulting = self.faulting();
        if faulting && self.random.chance(self.scenario.message_loss) {
            return None;
        }
        if faulting && self.random.chance(self.scenario.message_slow) {
            return Some(self.random.between(1, 60) * MILLISECOND);
        }
        Some(self.random.between(30, 400) * MICROSECOND)
    }

    pub fn start_replica(&mut self, index: usize) {
        let findings = self.findings.clone();
        let disk = &mut self.disks[index];
        disk.hangs = false;
        let Some(store) = disk.medium.open() else { return };
        let store = WatchedStore::new(store, findings);
        let (id, seen, now) = (disk.id, disk.promised, store.promised(VOLUME));
        disk.replica = Some(Replica::new(disk.id, store));
        self.violate(i3::check(id, seen, now));
    }

    pub fn schedule_poll(&mut self, disk: usize) {
        if !self.disks[disk].poll_scheduled {
            self.disks[disk].poll_scheduled = true;
            let delay = match self.disks[disk].slow {
                true => self.random.between(2, 60) * MILLISECOND,
                false => self.random.between(5, 150) * MICROSECOND,
            };
            self.after(delay, Event::Poll { disk });
        }
    }

    fn poll_disk(&mut self, index: usize) {
        self.disks[index].poll_scheduled = false;
        if self.disks[index].hangs {
            return;
        }
        let node = self.disks[index].node;
        let mut responses = Vec::new();
        if let Some(replica) = &mut self.disks[index].replica {
            replica.poll(&mut responses);
            // Opens that waited for the work of another session may have begun.
            replica.poll(&mut responses);
            let promised = replica.store().promised(VOLUME);
            let busy = replica.store().is_busy();
            self.disks[index].promised = self.disks[index].promised.max(promised);
            if busy {
                self.schedule_poll(index);
            }
        }
        for response in responses {
            if dbg_chunk().is_some() && !matches!(&response.result, Ok(space::message::Answer::Data { .. })) {
                eprintln!(
                    "   {} step {:x} disk {}: s {:x} id {:x} {:?}",
                    self.now / 1000,
                    self.step,
                    index + 1,
                    response.session,
                    response.id & 0xfffff,
                    response.result
                );
            }
            let asked = self.disks[index].asked_promises.remove(&(response.session, response.id));
            if let (Some(epoch), Ok(_)) = (asked, &response.result) {
                let (disk, promised) = (self.disks[index].id, self.disks[index].promised);
                self.violate(i3::check_answer(disk, epoch, promised));
            }
            self.trace.note(&[3, self.now, index as u64, response.id]);
            let Some(to) = self.owner_of_session(response.session) else { continue };
            let incarnations = (self.nodes[node].incarnation, self.nodes[to].incarnation);
            let repeats =
                if self.faulting() && self.random.chance(self.scenario.message_repeat) { 2 } else { 1 };
            for _ in 0..repeats {
                if let Some(delay) = self.travel(node == to) {
                    let response = response.clone();
                    self.after(delay, Event::Response { to, from: node, incarnations, response });
                }
            }
        }
    }

    /// Sessions are numbered by opening, and openings by node.
    fn owner_of_session(&self, session: u64) -> Option<usize> {
        let node = ((session >> 32) % 16) as usize;
        (node < self.nodes.len()).then_some(node)
    }

    /// Carries what the node's coordinator wants to say.
    pub fn pump(&mut self, node: usize) {
        let mut completions = Vec::new();
        loop {
            let Some(coordinator) = &mut self.nodes[node].coordinator else { return };
            if let Some((disk, request)) = coordinator.poll_send() {
                self.send(node, disk, request);
            } else if let Some((token, request)) = coordinator.poll_state() {
                self.ask_state(node, token, request);
            } else if let Some(event) = coordinator.poll_event() {
                self.note_event(event);
            } else {
                coordinator.poll(&mut completions);
                break;
            }
        }
        for completion in completions {
            self.complete(node, completion);
        }
        let Some(coordinator) = &self.nodes[node].coordinator else { return };
        if matches!(coordinator.phase(), Phase::Stopped(_) | Phase::Closed) {
            self.drop_coordinator(node);
            return;
        }
        if let Some(at) = coordinator.next_timeout() {
            let at = at.0.max(self.now + 1);
            if self.nodes[node].timer_at.is_none_or(|scheduled| at < scheduled) {
                self.nodes[node].timer_at = Some(at);
                let incarnation = self.nodes[node].incarnation;
                self.after(at - self.now, Event::Timer { node, incarnation });
            }
        }
    }

    pub fn drop_coordinator(&mut self, node: usize) {
        if let Some(coordinator) = self.nodes[node].coordinator.take() {
            let counters = coordinator.counters();
            self.coverage.reconciled_blocks += counters.reconciled_blocks;
            self.coverage.repaired_blocks += counters.repaired_blocks;
            self.coverage.resynced_regions += counters.resynced_regions;
            self.coverage.built_regions += counters.built_regions;
        }
        self.nodes[node].timer_at = None;
        self.nodes[node].asked.clear();
        for client in std::mem::take(&mut self.nodes[node].tokens).into_values() {
            self.clients[client].doing = None;
            self.after(MILLISECOND, Event::Client { client });
        }
    }

    fn send(&mut self, from: usize, disk: DiskId, request: Request) {
        let Some(to) = self.disks.iter().position(|known| known.id == disk) else { return };
        let node = self.disks[to].node;
        let incarnations = (self.nodes[from].incarnation, self.nodes[node].incarnation);
        if !self.nodes[node].up {
            // The connection is refused; nobody may be there to say so.
            if self.random.chance(700) {
                let Request { volume, session, id, .. } = request;
                let response =
                    Response { from: disk, volume, session, id, result: Err(BusError::Unreachable) };
                let incarnations = (incarnations.0, incarnations.0);
                self.after(MILLISECOND, Event::Response { to: from, from, incarnations, response });
            }
            return;
        }
        let repeats = if self.faulting() && self.random.chance(self.scenario.message_repeat) { 2 } else { 1 };
        for _ in 0..repeats {
            if let Some(delay) = self.travel(node == from) {
                let request = request.clone();
                self.after(delay, Event::Request { to, from, incarnations, request });
            }
        }
    }

    fn ask_state(&mut self, node: usize, token: u64, request: StateRequest) {
        self.next_token += 1;
        let number = self.next_token;
        let incarnation = self.nodes[node].incarnation;
        self.nodes[node].asked.insert(number, token);
        let lost = self.faulting() && self.random.chance(self.scenario.state_loss);
        if !lost {
            let late = self.faulting() && self.random.chance(self.scenario.state_loss / 2);
            let delay = if late { self.random.between(100, 900) * MILLISECOND } else { 500 * MICROSECOND };
            self.after(delay, Event::StateRequest { from: node, incarnation, number, request });
        }
        // The shell's time-out; an answer that comes first makes it moot.
        let unknown = Event::StateAnswer { to: node, incarnation, number, answer: Answer::Unknown };
        self.after(150 * MILLISECOND, unknown);
    }

    fn serve_state(&mut self, from: usize, incarnation: u64, number: u64, request: &StateRequest) {
        let state = self.nodes.len();
        if self.state_down || self.is_cut(from, state) {
            return;
        }
        let answer = self.state.answer(request);
        self.trace.note(&[5, self.now, from as u64, number]);
        if matches!(answer, Answer::Committed { .. }) {
            self.record_changed();
        }
        if self.faulting() && self.random.chance(self.scenario.state_loss) {
            return;
        }
        let delay = self.random.between(100, 900) * MICROSECOND;
        self.after(delay, Event::StateAnswer { to: from, incarnation, number, answer });
    }

    fn record_changed(&mut self) {
        let Ok(Some(found)) = self.state.read::<VolumeRecord>(&VOLUME.to_string()) else { return };
        if found.revision == self.revision {
            return;
        }
        self.revision = found.revision;
        let wrong = self.records.committed(&found.value);
        self.violate(wrong);
        let Some(before) = self.records.before_last().cloned() else { return };
        let after = found.value;
        if dbg_chunk().is_some() {
            eprintln!(
                "{} step {:x} RECORD epoch {} settled {:?} in_sync {:?} stale {:?} building {:?} coord {} retired {:?} minh {}",
                self.now / 1000,
                self.step,
                after.epoch,
                after.settled,
                after.in_sync.iter().map(|d| d.to_bytes()[0]).collect::<Vec<_>>(),
                after.stale.iter().map(|s| (s.disk.to_bytes()[0], s.since.0)).collect::<Vec<_>>(),
                after.building.iter().map(|b| (b.0.to_bytes()[0], b.1.0)).collect::<Vec<_>>(),
                after.coordinator,
                self.retired.map(|d| d.to_bytes()[0]),
                after.min_holders
            );
        }
        self.trace.note(&[6, after.epoch.0, after.in_sync.len() as u64]);
        if self.retired.is_none() {
            self.violate(i5::check_record(&before, &after));
        }
        self.coverage.expulsions +=
            before.in_sync.iter().filter(|disk| !after.in_sync.contains(disk)).count() as u64;
        if !self.can_look() {
            return;
        }
        let now = self.step;
        for disk in &after.in_sync {
            if before.in_sync.contains(disk) {
                continue;
            }
            self.coverage.joins += 1;
            let wrong: Vec<String> = self
                .history
                .registers
                .iter()
                .filter(|(lba, _)| self.holds(*disk, **lba, &after))
                .filter_map(|(lba, register)| {
                    i4::check(*disk, *lba, register, self.value_on(*disk, *lba), now)
                })
                .collect();
            self.violate(wrong);
        }
        let wrong: Vec<String> = self
            .history
            .registers
            .iter()
            .filter_map(|(lba, register)| i5::check_block(*lba, register, &self.copies(*lba, &after), now))
            .collect();
        self.violate(wrong);
    }

    /// Whether the disk has a copy of the block that counts by this record.
    fn holds(&self, disk: DiskId, lba: u64, record: &VolumeRecord) -> bool {
        let chunk = ChunkIndex((lba / CHUNK_BLOCKS) as u32);
        let known = self.disks.iter().find(|known| known.id == disk);
        let has =
            known.and_then(|known| known.medium.fake()).is_some_and(|store| store.has_chunk(VOLUME, chunk));
        has && record.in_sync.contains(&disk) && !record.building.contains(&(disk, chunk))
    }

    /// What the disk has of the block; none: garbage.
    fn value_on(&self, disk: DiskId, lba: u64) -> Option<u64> {
        let known = self.disks.iter().find(|known| known.id == disk)?;
        let found = match known.medium.fake()?.peek(VOLUME, Lba(lba)) {
            Some(block) => value_of(&block, lba)?,
            None => crate::oracle::ZERO,
        };
        let zeroes = || self.history.registers.get(&lba).map(crate::oracle::Register::zeroes);
        if found == crate::oracle::ZERO { zeroes().or(Some(found)) } else { Some(found) }
    }

    fn copies(&self, lba: u64, record: &VolumeRecord) -> Vec<Option<u64>> {
        let holders = record.in_sync.iter().filter(|disk| self.holds(**disk, lba, record));
        holders.map(|disk| self.value_on(*disk, lba)).collect()
    }

    fn note_event(&mut self, event: SpaceEvent) {
        match event {
            SpaceEvent::Serving { epoch } => self.trace.note(&[7, epoch.0]),
            SpaceEvent::Stopped { why: space::api::SpaceError::Fenced } => self.coverage.fenced += 1,
            _ => {}
        }
    }

    fn complete(&mut self, node: usize, completion: SpaceCompletion) {
        let Some(client) = self.nodes[node].tokens.remove(&completion.token) else { return };
        let step = self.step;
        self.trace.note(&[8, self.now, client as u64, u64::from(completion.result.is_ok())]);
        let Some((doing, _)) = self.clients[client].doing.take() else { return };
        let began = self.clients[client].began;
        if let Some(c) = dbg_chunk() {
            let l = match &doing {
                Doing::Read { lba } | Doing::Write { lba, .. } => *lba,
                Doing::Discard { lbas, .. } => lbas[0],
            };
            if l / CHUNK_BLOCKS == c {
                eprintln!(
                    "{} step {:x} client {client} done {:x?} -> {}",
                    self.now / 1000,
                    self.step,
                    doing,
                    match &completion.result {
                        Ok(SpaceReply::Data(d)) => {
                            let d = d.contiguous();
                            format!(
                                "{:x?}",
                                d.chunks(BLOCK_BYTES)
                                    .enumerate()
                                    .map(|(i, b)| value_of(b, l + i as u64))
                                    .collect::<Vec<_>>()
                            )
                        }
                        Ok(_) => "ok".into(),
                        Err(e) => format!("{e:?}"),
                    }
                );
            }
        }
        match (doing, completion.result) {
            (Doing::Read { lba }, Ok(SpaceReply::Data(data))) => {
                self.coverage.reads += 1;
                self.history.read(lba, &data, began, step);
            }
            (Doing::Write { lba, blocks, value }, Ok(_)) => {
                self.coverage.acknowledged_writes += 1;
                self.history.wrote(lba, blocks, value, step);
                self.check_acknowledged(node, lba, blocks);
            }
            (Doing::Discard { lbas, value }, Ok(_)) => {
                self.coverage.discards += 1;
                for at in lbas {
                    self.history.wrote(at, 1, value, step);
                    self.check_acknowledged(node, at, 1);
                }
            }
            (_, Err(space::api::SpaceError::NoSpace)) => self.coverage.no_space += 1,
            _ => {}
        }
        let pause = self.random.between(1, 3000) * MICROSECOND;
        self.after(pause, Event::Client { client });
    }

    fn check_acknowledged(&mut self, node: usize, lba: u64, blocks: u64) {
        let Some(record) = self.records.last().cloned() else { return };
        let Some(coordinator) = &self.nodes[node].coordinator else { return };
        let own = coordinator.record().clone();
        let mut wrong: Vec<String> = self.records.acknowledged_under(&own).into_iter().collect();
        for at in lba..lba + blocks {
            let Some(register) = self.history.registers.get(&at).filter(|_| self.can_look()) else {
                continue;
            };
            // A copy may leave between the answer of the last disk and this moment: it counts for the number of copies.
            let count = self.copies(at, &own).len();
            let copies = self.copies(at, &record);
            // A chunk that was given back has no copies.
            let zeroed = !register.may_be_zeroed(self.step);
            let min_copies = if zeroed { 0 } else { usize::from(own.min_copies) };
            wrong.extend(i1::check(at, register, &copies, count, min_copies, self.step));
        }
        self.violate(wrong);
    }

    fn drive_client(&mut self, client: usize) {
        let (step, now) = (self.step, self.now);
        if self.clients[client].doing.is_some() {
            if self.clients[client].patience_until > now {
                return;
            }
            let token = self.clients[client].token;
            for node in &mut self.nodes {
                node.tokens.remove(&token);
            }
            self.clients[client].doing = None;
        }
        if self.now > self.faults_end + 300 * MILLISECOND {
            return self.finish_client(client);
        }
        let open: Vec<usize> = (0..self.nodes.len())
            .filter(|node| {
                self.nodes[*node].up
                    && self.nodes[*node]
                        .coordinator
                        .as_ref()
                        .is_some_and(|found| *found.phase() == Phase::Serving)
            })
            .collect();
        let Some(node) = self.random.pick(&open) else {
            return self.after(5 * MILLISECOND, Event::Client { client });
        };
        let (doing, request) = self.history.choose(&mut self.random, step);
        if let Some(c) = dbg_chunk() {
            let l = match &request {
                SpaceRequest::Read { lba, .. }
                | SpaceRequest::Write { lba, .. }
                | SpaceRequest::Discard { lba, .. } => lba.0,
            };
            if l / CHUNK_BLOCKS == c {
                eprintln!(
                    "{} step {:x} client {client} begins {:x?} {}",
                    self.now / 1000,
                    self.step,
                    doing,
                    match &request {
                        SpaceRequest::Discard { lba, blocks } => format!("{} {}", lba.0, blocks),
                        SpaceRequest::Write { class, .. } => format!("{class:?}"),
                        _ => String::new(),
                    }
                );
            }
        }
        self.submit(client, node, doing, request);
    }

    fn submit(&mut self, client: usize, node: usize, doing: Doing, request: SpaceRequest) {
        self.next_token += 1;
        let token = self.next_token;
        let patience = 1500 * MILLISECOND;
        self.clients[client] = Client {
            doing: Some((doing, token)),
            began: self.step,
            patience_until: self.now + patience,
            token,
        };
        self.nodes[node].tokens.insert(token, client);
        let now = Monotonic(self.now);
        if let Some(coordinator) = &mut self.nodes[node].coordinator {
            coordinator.submit(now, token, request);
        }
        self.pump(node);
        self.after(patience, Event::Client { client });
    }

    /// The second phase: when the volume is whole, every block is read from each copy by itself.
    fn finish_client(&mut self, client: usize) {
        let Some(node) = self.whole_on() else {
            return self.after(20 * MILLISECOND, Event::Client { client });
        };
        if client > 0 {
            return;
        }
        if self.last_reads.is_none() {
            let copies = self.scenario.resiliency.copies();
            let lbas = self.history.registers.keys().copied();
            self.last_reads = Some(lbas.flat_map(|lba| (0..copies).map(move |copy| (lba, copy))).collect());
        }
        while let Some((lba, copy)) = self.last_reads.as_mut().and_then(VecDeque::pop_front) {
            // Where nothing was ever allocated there are no copies.
            let touched =
                self.history.registers.get(&lba).is_some_and(|register| register.has_durable_value());
            if touched {
                let request = SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: Some(copy) };
                return self.submit(client, node, Doing::Read { lba }, request);
            }
        }
        self.check_copies();
        self.drop_coordinator(node);
        self.finished = true;
    }

    /// At the end all copies are equal.
    fn check_copies(&mut self) {
        let Some(record) = self.records.last().cloned() else { return };
        let mut wrong = Vec::new();
        for (lba, register) in &self.history.registers {
            let copies = self.copies(*lba, &record);
            if copies.windows(2).any(|pair| pair[0] != pair[1]) {
                wrong.push(format!("I10: copies of block {lba} differ at the end: {copies:x?}"));
            }
            if self.can_look() {
                wrong.extend(i5::check_block(*lba, register, &copies, self.step));
            }
        }
        self.violate(wrong);
    }

    /// Whether stores can be looked into without asking them.
    fn can_look(&self) -> bool {
        self.disks.iter().all(|disk| !disk.medium.is_real())
    }

    /// The node whose coordinator serves with all copies in place.
    fn whole_on(&self) -> Option<usize> {
        let record = self.records.last()?;
        let out = record.stale.iter().filter(|stale| Some(stale.disk) != self.retired).count();
        let copies = record.resiliency.copies();
        let whole = out == 0 && record.building.is_empty() && record.min_holders == copies;
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

    /// Opens the volume where nobody has it open.
    fn manage(&mut self) {
        self.after(20 * MILLISECOND, Event::Manage);
        let running = self.nodes.iter().any(|node| node.coordinator.is_some());
        if running || self.now < self.open_not_before {
            return;
        }
        let up: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].up).collect();
        if let Some(node) = self.random.pick(&up) {
            self.open_on(node);
        }
    }

    pub fn open_on(&mut self, node: usize) {
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
    pub fn pool_view(&self) -> PoolView {
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

    pub fn last_record(&self) -> Option<&VolumeRecord> {
        self.records.last()
    }

    pub fn registers_written(&self) -> Vec<u64> {
        self.history.registers.keys().copied().collect()
    }
}
