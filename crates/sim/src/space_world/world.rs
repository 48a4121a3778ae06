//! The run: passes one event after the other to the parts of the world, and carries the
//! coordinators' messages.

use super::blocks::{CHUNK_BLOCKS, CHUNKS, VOLUME};
use super::course::{Course, Coverage, MILLISECOND};
use super::epochs::{self, Gates};
use super::event::{Event, Healing};
use super::faults::{self, Kind, Strike};
use super::holding::Holding;
use super::images::Images;
use super::invariants::{dead_nodes, i6, i10};
use super::judge::Judge;
use super::manager::Manager;
use super::membership::{Liveness, TICK, Told, VERDICT_MAX};
use super::narrate;
use super::network::Network;
use super::scenario::Scenario;
use super::servers::Servers;
use super::traffic::{Traffic, Turn};
use records::{Answer, MemoryState, Provisioning, Request as StateRequest, Typed, VolumeRecord};
use space::coordinator::{Coordinator, Event as SpaceEvent, Phase, Predecessor};
use space::fake_store::FakeFault;
use types::{BLOCK_BYTES, Monotonic, PoolId};

/// Steps after which a run that does not end is aborted.
const STEPS_MAX: u64 = 3_000_000;

/// Longest time without service, if others could serve the volume: a node finds that it reaches no
/// other, the others that it is silent, and one of them takes over.
const UNSERVED_MAX: u64 = 2_200 * MILLISECOND;

/// Outcome of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Seed that decided the run.
    pub seed: u64,
    /// Descriptions of broken promises; empty: the run is good.
    pub violations: Vec<String>,
    /// Fingerprint of the run: equal for equal seeds, bit for bit.
    pub trace: u64,
    /// Events that the run handled.
    pub steps: u64,
    /// Numbers of events of the run by kind.
    pub coverage: Coverage,
}

/// Runs one seed.
pub fn run(seed: u64) -> Report {
    let mut world = SpaceWorld::new(seed, Scenario::of_seed(seed));
    world.run();
    let Course { violations, trace, step, coverage, .. } = world.course;
    Report { seed, violations, trace: trace.hash(), steps: step, coverage }
}

/// Nodes with coordinators and replicas, a network, the cluster state, and clients.
///
/// Each part owns its state and takes its neighbours as arguments; this type only passes each event
/// to its part. After each call of a coordinator the world is pumped, so that no message stays in
/// it.
pub(super) struct SpaceWorld {
    pub(super) course: Course,
    pub(super) servers: Servers,
    pub(super) network: Network,
    pub(super) state: MemoryState,
    pub(super) state_down: bool,
    pub(super) judge: Judge,
    pub(super) traffic: Traffic,
    pub(super) manager: Manager,
    pub(super) membership: Liveness,
    gates: Gates,
    pub(super) images: Images,
    /// Each node's hold on the volume.
    pub(super) holdings: Vec<Holding>,
    /// Times since which each node's coordinator serves, as of the last check.
    serving_since: Vec<Option<u64>>,
    /// Number of acknowledged writes, and the time of its last growth.
    progress: (u64, u64),
    finished: bool,
}

impl SpaceWorld {
    fn new(seed: u64, scenario: Scenario) -> Self {
        let servers = Servers::new(&scenario, seed);
        let record = first_record(&scenario, &servers);
        let state = MemoryState::new();
        let revision = state.write(&record, 0).unwrap_or_default();
        let clients = scenario.clients;
        let (nodes, discards) = (scenario.nodes, scenario.discards);
        let mut course = Course::new(seed, scenario);
        let membership = Liveness::new(&mut course);
        let mut world = Self {
            servers,
            network: Network::default(),
            state,
            state_down: false,
            judge: Judge::new(&record, revision),
            traffic: Traffic::new(clients, discards),
            manager: Manager::default(),
            membership,
            gates: Gates::new(nodes),
            images: Images::default(),
            holdings: (0..nodes).map(|_| Holding::default()).collect(),
            serving_since: vec![None; nodes],
            progress: (0, 0),
            finished: false,
            course,
        };
        for disk in 0..world.servers.disks.len() {
            world.servers.start_replica(&mut world.course, disk);
        }
        world.course.after(MILLISECOND, Event::Manage);
        world.course.after(MILLISECOND, Event::Heartbeat);
        world.course.after(50 * MILLISECOND, Event::Fault);
        for client in 0..clients {
            world.course.after(10 * MILLISECOND, Event::Client { client, operation: None });
        }
        world
    }

    fn run(&mut self) {
        while let Some(event) = self.course.next() {
            self.handle(event);
            let found = self.servers.take_findings();
            self.course.violate(found.into_iter().map(|finding| format!("I3: {finding}")));
            if !self.course.violations.is_empty() || self.finished {
                break;
            }
            let Course { step, now, faults_end, .. } = self.course;
            if step > STEPS_MAX || now > faults_end + 20_000 * MILLISECOND {
                let why = self.short_of_whole();
                self.course.violate([why]);
            }
        }
        let history = &self.traffic.history;
        self.course.violate(i6::check(&history.garbage));
        self.course.violate(i10::check(&history.registers));
    }

    /// Describes why the volume does not become whole again.
    fn short_of_whole(&self) -> String {
        let record = self.judge.record().cloned();
        let serving =
            self.servers.nodes.iter().filter_map(|node| Some((node.coordinator.as_ref()?, &node.pool)));
        let doing: Vec<String> = serving
            .map(|(found, pool)| {
                let (counts, clean) = (found.chunk_counts(), found.is_reconciled());
                let free: Vec<u64> = pool.borrow().disks().map(|disk| disk.free_slabs).collect();
                format!(
                    "{:?}, chunks {counts:?}, without room {}, free slabs {free:?}, reconciled {clean}, {:?}",
                    found.phase(),
                    found.chunks_without_room(),
                    found.jobs()
                )
            })
            .collect();
        format!("liveness: the volume does not become whole again: {record:?} {doing:?}")
    }

    /// Returns the time when the process that the event reaches continues, if it is stopped.
    fn frozen_until(&self, event: &Event) -> Option<u64> {
        let node = match event {
            Event::Request { to: disk, .. } | Event::Poll { disk } => self.servers.disks[*disk].node,
            Event::Response { to, .. } | Event::StateAnswer { to, .. } => *to,
            Event::Timer { node, .. } | Event::RecordRead { node, .. } => *node,
            _ => return None,
        };
        Some(self.servers.nodes[node].frozen_until).filter(|until| *until > self.course.now)
    }

    fn handle(&mut self, event: Event) {
        if let Some(until) = self.frozen_until(&event) {
            return self.course.after(until - self.course.now, event);
        }
        match event {
            Event::Request { to, from, incarnations, request } => {
                self.course.trace.note(&[1, self.course.now, to as u64, request.id.0]);
                let node = self.servers.disks[to].node;
                if self.network.reaches(&self.servers, (from, incarnations.0), (node, incarnations.1)) {
                    narrate::request(self.course.moment(), from, to, &request);
                    self.gates.receive(&mut self.course, &mut self.servers, from, to, request);
                }
            }
            Event::Response { to, from, incarnations, response } => {
                let (id, is_ok) = (response.id.0, response.result.is_ok());
                self.course.trace.note(&[2, self.course.now, to as u64, id, u64::from(is_ok)]);
                if self.network.reaches(&self.servers, (from, incarnations.0), (to, incarnations.1)) {
                    self.tell(to, |coordinator, now| coordinator.handle_response(now, response));
                }
            }
            Event::StateRequest { from, incarnation, number, request } => {
                self.serve_state(from, incarnation, number, &request);
            }
            Event::StateAnswer { to, incarnation, number, answer } => {
                self.course.trace.note(&[4, self.course.now, to as u64, number]);
                let node = &mut self.servers.nodes[to];
                if node.incarnation == incarnation
                    && let Some(token) = node.asked.remove(&number)
                {
                    self.tell(to, |coordinator, now| coordinator.handle_state(now, token, answer));
                }
            }
            Event::RecordRead { node, incarnation, token } => {
                if self.servers.is_alive(node, incarnation) {
                    self.judge_epochs(node, token);
                }
            }
            Event::Timer { node, incarnation } => {
                if self.servers.nodes[node].incarnation == incarnation {
                    self.servers.nodes[node].timer_at = None;
                    self.tell(node, |coordinator, now| coordinator.handle_timeout(now));
                }
            }
            Event::Poll { disk } => self.poll_disk(disk),
            Event::Client { client, operation } => {
                if self.traffic.awaits(client, operation) {
                    self.drive_client(client);
                }
            }
            Event::Fault if !self.course.faulting() => self.heal(Healing::All),
            Event::Fault => {
                let pause = faults::pause(&mut self.course);
                self.course.after(pause, Event::Fault);
                let Servers { nodes, disks, .. } = &self.servers;
                if let Some(strike) = Strike::choose(&mut self.course, nodes.len(), disks.len()) {
                    self.strike(strike);
                }
            }
            Event::Heal(healing) => self.heal(healing),
            Event::Manage => self.manage(),
            Event::Heartbeat => self.beat(),
        }
    }

    fn manage(&mut self) {
        self.manager.look_after(&mut self.course, &self.servers, self.judge.record());
        if self.course.scenario.large_loss {
            self.course.violate(self.traffic.stalled(self.course.now));
        }
        if self.course.scenario.large_loss_of_node {
            self.watch_progress();
        }
    }

    /// Lets nodes receive each other's heartbeats, passes the consequences to coordinators, and
    /// opens the volume on the node that the rule names.
    fn beat(&mut self) {
        self.course.after(TICK, Event::Heartbeat);
        let Self { course, servers, network, membership, state, state_down, .. } = self;
        let state = (!*state_down).then_some(&*state);
        let told = membership.beat(course, servers, network, state);
        let mut has_read = vec![false; told.len()];
        for (node, Told { lease, down, up, record }) in told.into_iter().enumerate() {
            if !self.servers.nodes[node].is_awake(self.course.now) {
                continue;
            }
            has_read[node] = record.is_some();
            if let Some(record) = &record {
                self.gates.note(&mut self.course, &mut self.servers, node, record);
            }
            self.course.coverage.dead_nodes += u64::from(!down.is_empty());
            let coordinator = self.servers.nodes[node].coordinator.as_ref();
            let is_permitted =
                self.membership.permits(&self.course, node, coordinator.and_then(Coordinator::claimed));
            for (disks, is_down) in [(&down, true), (&up, false)] {
                let mut pool = self.servers.nodes[node].pool.borrow_mut();
                for disk in disks {
                    pool.set_down(*disk, is_down);
                }
            }
            self.tell(node, |coordinator, now| {
                if let Some(until) = lease {
                    coordinator.set_lease(until);
                }
                if !down.is_empty() {
                    coordinator.disks_down(now, &down);
                }
                if !up.is_empty() {
                    coordinator.disks_up(now, &up);
                }
                if let Some(record) = record {
                    coordinator.note_record(now, &record);
                }
                if is_permitted {
                    coordinator.permit(now);
                }
            });
        }
        self.watch_owners();
        for (node, has_read) in has_read.into_iter().enumerate() {
            self.hold(node, has_read);
        }
        self.watch_dead_nodes();
        self.watch_images();
    }

    /// Checks that no disks of dead nodes count for long if others can do without them.
    fn watch_dead_nodes(&mut self) {
        let Self { course, servers, membership, judge, serving_since, .. } = self;
        // These faults delay the change of the record.
        let Scenario { partitions, state_loss, .. } = course.scenario;
        if partitions || state_loss > 0 {
            return;
        }
        for (node, found) in servers.nodes.iter().enumerate() {
            let serving = found.coordinator.as_ref().filter(|found| *found.phase() == Phase::Serving);
            let serving = serving.filter(|_| found.is_awake(course.now));
            let Some(coordinator) = serving else {
                serving_since[node] = None;
                continue;
            };
            // An opening changes no members until each disk not known to be dead has promised, or
            // is late.
            let since = *serving_since[node].get_or_insert(course.now);
            if course.now - since < dead_nodes::PATIENCE || judge.record() != Some(coordinator.record()) {
                continue;
            }
            // The coordinator does not report the copies of such a chunk.
            if coordinator.gives_back() {
                continue;
            }
            let down = membership.down(course, servers, node, dead_nodes::PATIENCE);
            let found = dead_nodes::check(coordinator.record(), &coordinator.chunk_copies(), &down);
            course.violate(found);
        }
    }

    /// Calls a node's coordinator, if it has one, and carries its messages.
    fn tell(&mut self, node: usize, something: impl FnOnce(&mut Coordinator, Monotonic)) {
        let now = Monotonic(self.course.now);
        if let Some(coordinator) = &mut self.servers.nodes[node].coordinator {
            something(coordinator, now);
        }
        self.pump(node);
    }

    /// Carries the messages of the node's coordinator.
    pub(super) fn pump(&mut self, node: usize) {
        let Self { course, servers, network, judge, traffic, .. } = self;
        let mut completions = Vec::new();
        loop {
            let Some(coordinator) = &mut servers.nodes[node].coordinator else { return };
            if let Some((disk, request)) = coordinator.poll_send() {
                network.send(course, servers, judge.record(), node, disk, request);
            } else if let Some((token, request)) = coordinator.poll_state() {
                network.ask_state(course, servers, node, token, request);
            } else if let Some(event) = coordinator.poll_event() {
                match event {
                    SpaceEvent::Serving { epoch } => course.trace.note(&[7, epoch.0]),
                    SpaceEvent::Stopped { why: space::api::SpaceError::Fenced } => {
                        course.coverage.fenced += 1
                    }
                    _ => {}
                }
            } else {
                coordinator.poll(&mut completions);
                break;
            }
        }
        for completion in completions {
            traffic.complete(course, servers, judge, node, completion);
        }
        let Some(coordinator) = &servers.nodes[node].coordinator else { return };
        if matches!(coordinator.phase(), Phase::Stopped(_) | Phase::Closed | Phase::Serving) {
            self.heed_phase(node);
        }
        let Self { course, servers, .. } = self;
        let Some(coordinator) = &servers.nodes[node].coordinator else { return };
        if let Some(at) = coordinator.next_timeout() {
            let at = at.0.max(course.now + 1);
            let node_state = &mut servers.nodes[node];
            if node_state.timer_at.is_none_or(|scheduled| at < scheduled) {
                node_state.timer_at = Some(at);
                let incarnation = node_state.incarnation;
                course.after(at - course.now, Event::Timer { node, incarnation });
            }
        }
    }

    fn pump_all(&mut self) {
        (0..self.servers.nodes.len()).for_each(|node| self.pump(node));
    }

    pub(super) fn drop_coordinator(&mut self, node: usize) {
        let waiting = self.servers.drop_coordinator(&mut self.course, node);
        self.traffic.forsaken(&mut self.course, waiting);
    }

    pub(super) fn open_on(&mut self, node: usize, predecessor: Predecessor) -> u128 {
        self.manager.open_on(&mut self.course, &mut self.servers, &self.membership, node, predecessor)
    }

    fn serve_state(&mut self, from: usize, incarnation: u64, number: u64, request: &StateRequest) {
        let Self { course, servers, network, judge, traffic, manager, .. } = self;
        if self.state_down || network.is_cut(from, servers.nodes.len()) {
            return;
        }
        let answer = self.state.answer(request);
        course.trace.note(&[5, course.now, from as u64, number]);
        if matches!(answer, Answer::Committed { .. }) {
            let (disks, history) = (&servers.disks, &traffic.history);
            judge.state_changed(course, &self.state, disks, history, manager.retired());
        }
        network.answer_state(course, from, incarnation, number, answer);
    }

    /// Handles a server's read of the record, if it reaches the state, and decides on the requests
    /// that waited for that.
    fn judge_epochs(&mut self, node: usize, token: u64) {
        let Self { course, servers, network, state, state_down, gates, .. } = self;
        let is_reached = !*state_down && !network.is_cut(node, servers.nodes.len());
        let state = is_reached.then_some(&*state);
        gates.has_read(course, servers, network, state, (node, token));
    }

    fn poll_disk(&mut self, disk: usize) {
        let Self { course, servers, network, .. } = self;
        for response in servers.poll_disk(course, disk) {
            narrate::response(course.moment(), disk, &response);
            course.violate(servers.check_promise(disk, &response));
            course.trace.note(&[3, course.now, disk as u64, response.id.0]);
            network.respond(course, servers, disk, &response);
        }
        if course.scenario.strange_epochs {
            course.violate(epochs::check(servers, &self.state, disk));
        }
    }

    fn drive_client(&mut self, client: usize) {
        let Self { course, servers, traffic, manager, judge, .. } = self;
        let whole_on = |course: &Course, servers: &Servers| manager.whole_on(course, servers, judge.record());
        match traffic.choose(course, servers, whole_on, client) {
            Turn::Wait => {}
            Turn::Ask { node, doing, request } => {
                judge.asked(course.step, servers, node, &doing);
                let token = traffic.ask(course, servers, client, node, doing, request);
                self.pump(node);
                let patience = self.course.scenario.patience_ms * MILLISECOND;
                self.course.after(patience, Event::Client { client, operation: Some(token) });
            }
            Turn::Finished { node } => {
                judge.check_copies(course, &servers.disks, &traffic.history);
                judge.check_counts(course, &servers.disks, manager.retired());
                self.drop_coordinator(node);
                self.finished = true;
            }
        }
    }

    fn strike(&mut self, Strike { kind, node, disk, lasting }: Strike) {
        let Self { course, servers, .. } = self;
        narrate::fault(course.moment(), &kind, node, disk, lasting / MILLISECOND);
        let nodes = servers.nodes.len();
        let heal_disk = Event::Heal(Healing::Disk(disk));
        match kind {
            Kind::Crash => self.crash(node, lasting),
            Kind::CrashAll => (0..nodes).for_each(|node| self.crash(node, lasting)),
            Kind::Cut => {
                let other = (node + 1 + course.random.below(nodes as u64 - 1) as usize) % nodes;
                self.network.cut(node, other);
                course.after(lasting, Event::Heal(Healing::Reconnect(node, other)));
            }
            Kind::CutState => {
                self.network.cut(node, nodes);
                course.after(lasting, Event::Heal(Healing::Reconnect(node, nodes)));
            }
            Kind::StateDown => {
                self.state_down = true;
                course.after(lasting, Event::Heal(Healing::State));
            }
            Kind::Freeze => {
                course.coverage.freezes += 1;
                servers.nodes[node].frozen_until = course.now + lasting;
            }
            Kind::Silence => self.membership.silence(course, node, lasting),
            Kind::Isolate => {
                for other in (0..=nodes).filter(|other| *other != node) {
                    self.network.cut(node, other);
                    course.after(lasting, Event::Heal(Healing::Reconnect(node, other)));
                }
            }
            Kind::Hang => {
                servers.disks[disk].hangs = true;
                course.after(lasting, heal_disk);
            }
            Kind::Slow => {
                servers.disks[disk].slow = true;
                course.after(lasting, heal_disk);
            }
            Kind::Errors => {
                servers.set_fault(disk, FakeFault::Errors);
                course.after(lasting, heal_disk);
            }
            Kind::WriteErrors => {
                servers.set_fault(disk, FakeFault::WriteErrors);
                course.after(lasting, heal_disk);
            }
            Kind::Add => {
                let membership = &self.membership;
                servers.add_disk(course, |node, other| membership.is_gone(node, other));
                self.pump_all();
            }
            Kind::AllAway => servers.send_all_away(course, lasting),
            Kind::LoseLarge => self.lose_large(node, lasting),
            Kind::LoseLargeOfNode => self.lose_large_of_node(node, lasting),
            Kind::GoBack => self.go_back(disk, lasting),
            Kind::Lie => epochs::lie(course, servers, &self.state, node, disk),
            Kind::Corrupt => {
                let (record, retired) = (self.judge.record(), self.manager.retired());
                servers.rot(course, record, &self.traffic.history, retired);
            }
            Kind::RetiringAway => servers.send_away(course, self.manager.retired(), lasting),
            Kind::Retire => {
                self.manager.retire(course, servers, disk);
                self.pump_all();
            }
        }
    }

    /// Loses large messages from the node to another one, in the other direction, or both, if all
    /// copies are in sync, so that others could do without those of one node.
    fn lose_large(&mut self, node: usize, lasting: u64) {
        let Self { course, servers, network, judge, .. } = self;
        let copies = |record: &VolumeRecord| record.resiliency.copies();
        let is_whole = judge.record().is_some_and(|record| {
            record.stale.is_empty() && record.building.is_empty() && record.min_holders == copies(record)
        });
        if !is_whole || network.loses_anything_large() {
            return;
        }
        let nodes = servers.nodes.len();
        let other = (node + 1 + course.random.below(nodes as u64 - 1) as usize) % nodes;
        let (there, back) = ((node, other), (other, node));
        match course.random.below(3) {
            0 => network.lose_large([there]),
            1 => network.lose_large([back]),
            _ => network.lose_large([there, back]),
        }
        course.coverage.large_losses += 1;
        course.after(lasting, Event::Heal(Healing::Large));
    }

    /// Loses large messages between a node, mostly the one that has the volume, and all others:
    /// from it, to it, or both. The cluster state is behind the same network and does not answer
    /// it.
    fn lose_large_of_node(&mut self, node: usize, lasting: u64) {
        let Self { course, servers, network, judge, membership, .. } = self;
        let Some(record) = judge.record().filter(|record| record.stale.is_empty()) else { return };
        let owner = record.owner.filter(|_| course.random.chance(750));
        let node = owner.map_or(node, |owner| owner.0 as usize - 1);
        let view = membership.view(servers, node);
        let is_spared = space::takeover::may_miss(record, servers.disks_of(node));
        if network.loses_anything_large() || !is_spared || view.nodes.values().any(|node| !node.is_up) {
            return;
        }
        let (nodes, kind) = (servers.nodes.len(), course.random.below(3));
        let others = (0..nodes).filter(|other| *other != node);
        let ways = others.flat_map(|other| [(node, other), (other, node)]);
        network.lose_large(ways.filter(|(from, _)| kind == 2 || (*from == node) == (kind == 0)));
        network.cut(node, nodes);
        course.coverage.large_losses += 1;
        course.after(lasting, Event::Heal(Healing::Large));
        course.after(lasting, Event::Heal(Healing::Reconnect(node, nodes)));
    }

    /// Checks that writes continue: if one node cannot serve the volume, others soon must.
    fn watch_progress(&mut self) {
        let course = &mut self.course;
        let written = course.coverage.acknowledged_writes;
        if written == 0 || written > self.progress.0 || !course.faulting() {
            self.progress = (written, course.now);
        } else if course.now - self.progress.1 > UNSERVED_MAX {
            let since = self.progress.1 / MILLISECOND;
            course.violate([format!(
                "stalled: no write was acknowledged since {since} ms, and others could serve"
            )]);
        }
    }

    pub(super) fn crash(&mut self, node: usize, down_for: u64) {
        if !self.servers.nodes[node].up {
            return;
        }
        self.course.coverage.crashes += 1;
        let until = self.course.now + down_for + VERDICT_MAX;
        self.images.may_expel_until = self.images.may_expel_until.max(until);
        self.drop_coordinator(node);
        self.forget_holding(node);
        self.gates.end(&self.servers, node);
        self.servers.crash(&mut self.course, node);
        self.membership.reset(&mut self.course, node);
        self.course.after(down_for, Event::Heal(Healing::Restart(node)));
    }

    fn restart(&mut self, node: usize) {
        if !self.servers.nodes[node].up {
            self.membership.started(&mut self.course, node);
            self.servers.restart(&mut self.course, node);
            self.servers.report_slabs(&self.course);
        }
    }

    fn heal(&mut self, healing: Healing) {
        let Self { course, servers, network, .. } = self;
        match healing {
            Healing::Restart(node) => self.restart(node),
            Healing::Reconnect(node, other) => network.reconnect(node, other),
            Healing::Large => network.carry_large(),
            Healing::State => self.state_down = false,
            Healing::Images => self.bring_right_disks(),
            Healing::Disk(disk) => servers.heal_disk(course, disk),
            Healing::Scrub(disk, lba) => {
                servers.repair(course, disk, lba);
                self.pump_all();
            }
            Healing::All => {
                network.reconnect_all();
                self.state_down = false;
                self.membership.hear_all();
                self.bring_right_disks();
                let Self { course, servers, .. } = self;
                servers.nodes.iter_mut().for_each(|node| node.frozen_until = 0);
                (0..servers.disks.len()).for_each(|disk| servers.heal_disk(course, disk));
                (0..self.servers.nodes.len()).for_each(|node| self.restart(node));
                self.servers.report_slabs(&self.course);
            }
        }
    }
}

/// Makes the record of a volume on all disks of the pool.
fn first_record(scenario: &Scenario, servers: &Servers) -> VolumeRecord {
    let ids = servers.disks.iter().filter(|disk| disk.added).map(|disk| disk.id).collect();
    let size = CHUNKS * CHUNK_BLOCKS * BLOCK_BYTES as u64;
    let pool = PoolId::from_bytes([1; 16]);
    VolumeRecord::new(VOLUME, pool, "volume", scenario.resiliency, size, Provisioning::Thin, ids, 0)
}
