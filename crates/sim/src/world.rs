//! The run: an event queue in virtual time, and everything that events happen to.

use crate::client::{CHUNK_BLOCKS, CHUNKS, Client, History};
use crate::invariants::{copies, i2, i6, i10};
use crate::narrate::{self, Moment};
use crate::nodes::{Findings, Medium, Node, SimDisk};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::Trace;
use cluster::{Answer, MemoryState, Provisioning, Request as StateRequest, Typed, VolumeRecord};
use space::coordinator::{Event as SpaceEvent, Phase};
use space::fake_store::FakeStore;
use space::message::{Operation, Request, Response};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use types::{BLOCK_BYTES, DiskId, Epoch, Monotonic, PoolId, VolumeId};

pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([0x51; 16]);
pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const MICROSECOND: u64 = 1_000;
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
    /// How often all disks went at once.
    pub all_away: u64,
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
    Request {
        to: usize,
        from: usize,
        incarnations: (u64, u64),
        request: Request,
    },
    Response {
        to: usize,
        from: usize,
        incarnations: (u64, u64),
        response: Response,
    },
    StateRequest {
        from: usize,
        incarnation: u64,
        number: u64,
        request: StateRequest,
    },
    StateAnswer {
        to: usize,
        incarnation: u64,
        number: u64,
        answer: Answer,
    },
    Timer {
        node: usize,
        incarnation: u64,
    },
    Poll {
        disk: usize,
    },
    /// With an operation: its client's patience is at its end.
    Client {
        client: usize,
        operation: Option<u64>,
    },
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
    pub sequence: u64,
    pub queue: BTreeMap<(u64, u64), Event>,
    pub nodes: Vec<Node>,
    pub disks: Vec<SimDisk>,
    /// Pairs of nodes, and a node with the cluster state (named by the number of nodes), that do not hear each other.
    pub cut: Vec<(usize, usize)>,
    pub state: MemoryState,
    pub state_down: bool,
    pub revision: u64,
    pub records: i2::Records,
    pub clients: Vec<Client>,
    pub history: History,
    pub openings: u64,
    /// When the manager may open the volume again.
    pub open_not_before: u64,
    pub faults_end: u64,
    pub retired: Option<DiskId>,
    pub copies_watch: copies::Watch,
    pub findings: Findings,
    pub violations: Vec<String>,
    pub trace: Trace,
    pub coverage: Coverage,
    pub next_token: u64,
    /// Blocks and copies that are still to be read at the end.
    pub last_reads: Option<VecDeque<(u64, u8)>>,
    pub finished: bool,
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
            copies_watch: copies::Watch::default(),
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
            world.after(10 * MILLISECOND, Event::Client { client, operation: None });
        }
        world
    }

    pub fn after(&mut self, nanoseconds: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + nanoseconds.max(1), self.sequence), event);
    }

    pub fn moment(&self) -> Moment {
        Moment(self.now, self.step)
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
                    .filter_map(|node| Some((node.coordinator.as_ref()?, &node.pool)))
                    .map(|(found, pool)| {
                        let (counts, clean) = (found.chunk_counts(), found.is_reconciled());
                        let free: Vec<u64> = pool.borrow().disks().iter().map(|disk| disk.free_slabs).collect();
                        format!(
                            "{:?}, chunks {counts:?}, without room {}, free slabs {free:?}, reconciled {clean}, {:?}",
                            found.phase(),
                            found.chunks_without_room(),
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
                self.trace.note(&[1, self.now, to as u64, request.id.0]);
                let node = self.disks[to].node;
                if self.reaches(from, incarnations.0, node, incarnations.1) {
                    narrate::request(self.moment(), from, to, &request);
                    if matches!(request.operation, Operation::Open { .. } | Operation::Promise) {
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
                self.trace.note(&[2, self.now, to as u64, response.id.0, u64::from(response.result.is_ok())]);
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
            Event::Client { client, operation } => {
                // One that was answered has sent its client on its way already: two ways would become ever more.
                let waits = |known: u64| self.clients[client].awaits(known);
                if operation.is_none_or(waits) {
                    self.drive_client(client);
                }
            }
            Event::Fault => self.inject(),
            Event::Heal(healing) => self.heal(healing),
            Event::Manage => self.manage(),
        }
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
            self.after(MILLISECOND, Event::Client { client, operation: None });
        }
    }

    fn note_event(&mut self, event: SpaceEvent) {
        match event {
            SpaceEvent::Serving { epoch } => self.trace.note(&[7, epoch.0]),
            SpaceEvent::Stopped { why: space::api::SpaceError::Fenced } => self.coverage.fenced += 1,
            _ => {}
        }
    }

    pub fn last_record(&self) -> Option<&VolumeRecord> {
        self.records.last()
    }

    pub fn registers_written(&self) -> Vec<u64> {
        self.history.registers.keys().copied().collect()
    }
}
