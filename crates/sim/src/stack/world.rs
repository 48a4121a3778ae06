//! The world of one server: virtual time and all events in it.

use super::Coverage;
use super::care::{Check, Scrub};
use super::client::{Client, Doing, Mode, Shared, What};
use super::disks::SimDisk;
use super::model::Changes;
use super::names::Cut;
use super::node::Node;
use super::recovery::{Progress, Recovery};
use super::scenario::Scenario;
use super::served::{Limits, Served};
use super::told::Told;
use crate::random::Random;
use crate::trace::Trace;
use records::{MemoryState, Provisioning, Typed, VolumeRecord};
use space::coordinator::Event as SpaceEvent;
use space::local::LocalEvent;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{DiskId, FileTime, Monotonic, NtStatus, VolumeId};
use volume::backend::{Backend, Durability, Event, Operation, OperationId, Reply};
use volume::fs::{Config as CacheConfig, Format};
use volume::security::{SecurityDescriptor, volume_root};

/// Address space of each volume.
const VOLUME_BYTES: u64 = 64 << 20;
/// Time without an answer after which an operation counts as hung.
const PATIENCE: Duration = Duration::from_secs(90);
/// Operations that clients request at full speed in one stage of a run. These are enough for a
/// stage's findings; with more, a fault of a minute would take more of a machine's time than all
/// others.
const BUSY_OPERATIONS: u64 = 1000;
/// The shortest turn of a node.
const TURN_MIN: Duration = Duration::from_micros(20);

pub(crate) struct StackWorld {
    pub scenario: Scenario,
    pub random: Random,
    pub now: Monotonic,
    /// Number of clients' requests and answers: the oracle's time.
    pub step: u64,
    pub disks: Vec<SimDisk>,
    pub state: MemoryState,
    /// Running processes; `None`: that node is down.
    pub nodes: Vec<Option<Node>>,
    pub clients: Vec<Client>,
    pub changes: Changes,
    next_file: u32,
    /// Operations in flight, and the clients that wait for them.
    asked: BTreeMap<u64, usize>,
    next_operation: u64,
    /// Operations that clients have chosen in the present stage of the run.
    pub asked_in_stage: u64,
    generations: Vec<u64>,
    /// By volume: the progress of names of those clients that have checked since the restart.
    cuts: Vec<Vec<Cut>>,
    /// Whether clients work; before that they only check.
    pub acting: bool,
    /// Time until which operations may be refused.
    pub refusals_until: Monotonic,
    pub scrub: Scrub,
    pub check: Check,
    pub told: Told,
    pub violations: Vec<String>,
    pub coverage: Coverage,
    pub trace: Trace,
    incarnations: u128,
    pub next_disk: u8,
    looked_at: Monotonic,
}

fn volume_id(index: usize) -> VolumeId {
    VolumeId::from_bytes([0x51 + index as u8; 16])
}

impl StackWorld {
    pub fn new(seed: u64, scenario: Scenario) -> Self {
        let mut random = Random::new(seed);
        let per_volume = VOLUME_BYTES / scenario.slab_bytes;
        let slabs = per_volume * scenario.volumes.len() as u64 + 4;
        let disks: Vec<SimDisk> = (0..scenario.disks)
            .map(|at| SimDisk::format(at as u8 + 1, scenario.slab_bytes, slabs, random.below(u64::MAX)))
            .collect();
        let state = MemoryState::new();
        for (index, resiliency) in scenario.volumes.iter().enumerate() {
            let ids = disks.iter().map(|disk| disk.id).collect();
            let pool = super::disks::POOL;
            let thin = if random.chance(800) { Provisioning::Thin } else { Provisioning::Fixed };
            let name = format!("volume{index}");
            let record =
                VolumeRecord::new(volume_id(index), pool, name, *resiliency, VOLUME_BYTES, thin, ids, 0);
            state.write(&record, 0).expect("an empty state takes records");
        }
        let durabilities = [Durability::Write, Durability::Close, Durability::Flush];
        let clients = (0..scenario.clients)
            .map(|number| {
                let durability = random.pick(&durabilities).unwrap_or_default();
                Client::new(number, number % scenario.volumes.len(), durability, &scenario)
            })
            .collect();
        let volumes = scenario.volumes.len();
        let mut world = Self {
            random,
            now: Monotonic(1_000_000),
            step: 1,
            next_disk: disks.len() as u8 + 1,
            disks,
            state,
            nodes: Vec::new(),
            clients,
            changes: Changes::default(),
            next_file: 0,
            asked: BTreeMap::new(),
            next_operation: 1,
            asked_in_stage: 0,
            generations: vec![0; volumes],
            cuts: vec![Vec::new(); volumes],
            acting: false,
            refusals_until: Monotonic(0),
            scrub: Scrub::default(),
            check: Check::default(),
            told: Told::default(),
            violations: Vec::new(),
            coverage: Coverage::default(),
            trace: Trace::new(),
            incarnations: 1,
            looked_at: Monotonic(0),
            scenario,
        };
        let formats = (0..volumes).map(|index| Some(format_of(volume_id(index), &volume_root()))).collect();
        world.nodes.push(None);
        world.start(0, formats);
        world
    }

    /// Returns which volumes should take only as much of the pool as they hold.
    pub fn thin(&self) -> Vec<bool> {
        self.records()
            .map(|record| record.is_some_and(|record| record.provisioning == Provisioning::Thin))
            .collect()
    }

    /// Whether any disk may be missing by the records of all volumes: an opening waits for one that
    /// has the only copy of a chunk.
    pub fn may_miss_a_disk(&self) -> bool {
        let is_mirrored = |record: VolumeRecord| record.min_holders == record.resiliency.copies();
        self.records().all(|record| record.is_some_and(is_mirrored))
    }

    /// The records of all volumes, in their order.
    fn records(&self) -> impl Iterator<Item = Option<VolumeRecord>> {
        let read = |index| self.state.read(&volume_id(index).to_string()).ok().flatten();
        (0..self.scenario.volumes.len()).map(move |index| Some(read(index)?.value))
    }

    /// Starts a process on the node; `formats`: volumes that are made anew.
    pub fn start(&mut self, node: usize, formats: Vec<Option<Format>>) {
        let ids: Vec<DiskId> =
            self.disks.iter().filter(|disk| disk.node == node).map(|disk| disk.id).collect();
        self.disks.iter().for_each(|disk| disk.begin(self.now));
        let served = (0..self.scenario.volumes.len())
            .map(|index| {
                self.incarnations += 1000;
                let format = formats.get(index).cloned().flatten();
                Served::new(volume_id(index), self.incarnations * 2 + 1, self.now, format)
            })
            .collect();
        let process = Node::start(&self.scenario, &self.state, &ids, served, self.now);
        self.generations.fill(0);
        self.nodes[node] = Some(process);
    }

    /// Ends the process at once, and the power too if that is cut.
    pub fn stop(&mut self, node: usize, power: bool) {
        let Some(process) = self.nodes[node].take() else { return };
        self.told.look(&process);
        self.told.stopped();
        drop(process);
        self.scrub = Scrub::default();
        self.check = Check::default();
        for disk in self.disks.iter().filter(|disk| disk.node == node) {
            disk.lose_process(power, &mut self.random);
        }
        if power {
            self.coverage.power_cuts += 1;
        } else {
            self.coverage.kills += 1;
        }
        self.asked.clear();
        self.clients.iter_mut().for_each(Client::restarted);
        self.cuts.iter_mut().for_each(Vec::clear);
    }

    /// Advances to the next event, and handles it.
    pub fn turn(&mut self) {
        let disks = self.disks.iter().filter_map(SimDisk::due);
        let nodes = self.nodes.iter().flatten().map(Node::next_timeout);
        let clients = self.clients.iter().map(|client| client.wake_at).filter(|at| *at > self.now);
        let next = disks.chain(nodes).chain(clients).min().unwrap_or(self.now);
        // A turn of the daemon's loop takes time.
        let at_least = self.now.after(TURN_MIN);
        // Longest interval between two turns of the director.
        let at_most = self.now.after(Duration::from_millis(50));
        self.now = next.max(at_least).min(at_most);
        for disk in &self.disks {
            disk.control.now.set(self.now);
        }
        let limits = Limits {
            cache: CacheConfig {
                cache_bytes: self.scenario.cache_bytes,
                dirty_bytes: self.scenario.dirty_bytes,
                page_cache_bytes: self.scenario.page_cache_bytes,
            },
        };
        for index in 0..self.nodes.len() {
            let mut out = Vec::new();
            let Some(node) = &mut self.nodes[index] else { continue };
            node.turn(self.now, &self.disks, &limits, &mut out);
            let events = std::mem::take(&mut node.events);
            self.trace.note(&[self.now.0, out.len() as u64, events.len() as u64]);
            events.iter().for_each(|event| self.note(index, event));
            self.note_failures(index);
            out.into_iter().for_each(|(volume, event)| self.deliver(volume, event));
        }
        self.drive_clients();
        self.look_for_late();
        if let Some(node) = self.nodes.first().and_then(Option::as_ref) {
            self.scrub.drive(node, self.now);
            self.check.drive(node, self.now);
        }
    }

    /// Handles an event of virtual disks.
    fn note(&mut self, node: usize, event: &LocalEvent) {
        super::narrate::event(self.now, self.step, event);
        self.scrub.note(event);
        self.violations.extend(self.told.note(event));
        if let Some(node) = &self.nodes[node] {
            self.check.note(node, event);
        }
        match event {
            LocalEvent::Volume(volume, SpaceEvent::Unrepairable { lbas, .. }) => {
                let (count, first) = (lbas.len(), lbas.first());
                self.violations.push(format!(
                    "{count} blocks of volume {volume} have no intact copy, the first at {first:?}"
                ));
            }
            LocalEvent::Volume(_, SpaceEvent::Repaired { blocks, .. }) => self.coverage.repaired += blocks,
            LocalEvent::Volume(_, SpaceEvent::DiskLeft { .. }) => self.coverage.expulsions += 1,
            LocalEvent::Volume(_, SpaceEvent::DiskJoined { .. }) => self.coverage.joins += 1,
            LocalEvent::Volume(_, SpaceEvent::Reconciled { blocks, .. }) => {
                self.coverage.reconciled += blocks;
            }
            _ => {}
        }
    }

    /// Handles volumes that dropped their data in memory: their clients check that.
    fn note_failures(&mut self, node: usize) {
        let Some(process) = &self.nodes[node] else { return };
        for (index, volume) in process.volumes.iter().enumerate() {
            if volume.generation != self.generations[index] {
                self.generations[index] = volume.generation;
                self.coverage.volume_failures += 1;
                if let Some(why) = &volume.stopped {
                    self.violations.push(format!("volume {index} stopped: {why}"));
                }
                let asked = &mut self.asked;
                for client in self.clients.iter_mut().filter(|client| client.volume == index) {
                    let number = client.home.number;
                    asked.retain(|_, waiting| *waiting != number);
                    client.restarted();
                }
                self.cuts[index].clear();
            }
        }
    }

    fn submit(&mut self, client: usize, what: What, operation: Operation) {
        let volume = self.clients[client].volume;
        let Some(service) =
            self.nodes[0].as_mut().and_then(|node| node.volumes.get_mut(volume)).and_then(Served::service)
        else {
            return;
        };
        self.step += 1;
        let number = self.next_operation;
        self.next_operation += 1;
        self.asked.insert(number, client);
        let doing = Doing { what, began: self.step, began_at: self.now };
        super::narrate::asked(self.now, self.step, client, number, &doing);
        self.clients[client].doing.insert(number, doing);
        service.submit(OperationId(number), operation, self.now);
    }

    fn deliver(&mut self, volume: usize, event: Event) {
        let (operation, result) = match event {
            Event::Done { operation, result } => (operation, result.map_err(|refusal| refusal.status)),
            Event::Pending { .. } | Event::Renamed { .. } => return,
            other => return self.violations.push(format!("volume {volume} told {other:?}")),
        };
        let Some(client) = self.asked.remove(&operation.0) else { return };
        let Some(doing) = self.clients[client].doing.remove(&operation.0) else { return };
        self.step += 1;
        super::narrate::answered(self.now, self.step, client, operation.0, &result);
        self.trace.note(&[operation.0, u64::from(result.is_ok())]);
        if matches!(doing.what, What::Recovery) {
            return self.recovered(client, result);
        }
        match result {
            Ok(reply) => self.accept(client, doing, reply),
            Err(status) => {
                // A clone may overtake the write that makes its target long enough.
                let overtakes = status == NtStatus::NOT_SUPPORTED
                    && matches!(doing.what, What::Clone { .. })
                    && !self.clients[client].doing.is_empty();
                let tolerated = overtakes || self.now < self.refusals_until;
                self.coverage.refusals += 1;
                let wrong = self.clients[client].refused(&self.changes, &doing, status, tolerated);
                self.violate(client, wrong);
            }
        }
    }

    fn accept(&mut self, client: usize, doing: Doing, reply: Reply) {
        match &doing.what {
            What::Write { .. } => self.coverage.writes += 1,
            What::Read { .. } => self.coverage.reads += 1,
            What::Rename { .. } => self.coverage.renames += 1,
            _ => {}
        }
        let mut shared = Shared {
            random: &mut self.random,
            changes: &mut self.changes,
            next_file: &mut self.next_file,
            step: self.step,
            now: self.now,
        };
        let outcome = self.clients[client].answered(&mut shared, doing, reply);
        self.violate(client, outcome.wrong);
        if let Some(before) = outcome.metadata_durable {
            let volume = self.clients[client].volume;
            for other in self.clients.iter_mut().filter(|other| other.volume == volume) {
                other.home.names.flushed(before);
            }
        }
        if let Some((what, operation)) = outcome.next {
            self.submit(client, what, operation);
        }
    }

    fn violate(&mut self, client: usize, wrong: Option<String>) {
        let Some(wrong) = wrong else { return };
        let Client { volume, home, .. } = &self.clients[client];
        self.violations
            .push(format!("client {client} on volume {volume} ({:?}): {wrong}", home.share.durability));
    }

    /// Continues a client's check after a restart.
    fn recovered(&mut self, client: usize, result: Result<Reply, NtStatus>) {
        let volume = self.clients[client].volume;
        let mode = std::mem::replace(&mut self.clients[client].mode, Mode::Away);
        let Mode::Recovering(mut recovery) = mode else { return };
        let progress = match result {
            Ok(reply) => recovery.answered(
                &mut self.clients[client].home,
                &self.changes,
                reply,
                &mut self.cuts[volume],
            ),
            Err(NtStatus::NO_MORE_FILES | NtStatus::NO_SUCH_FILE) => match recovery.no_more() {
                Some(operation) => Progress::Next(operation),
                None => Progress::Wrong("a listing ended that had not begun".to_owned()),
            },
            // The client checks again in another session: its present opens would keep a file that
            // it removes.
            Err(_) if self.now < self.refusals_until => {
                self.clients[client].wake_at = self.now.after(Duration::from_millis(500));
                return self.end_session(client);
            }
            Err(status) => Progress::Wrong(format!("a look after a restart was refused: {status:?}")),
        };
        match progress {
            Progress::Next(operation) => {
                self.clients[client].mode = Mode::Recovering(recovery);
                self.submit(client, What::Recovery, operation);
            }
            Progress::Done => {
                self.clients[client].mode = Mode::Working;
                self.coverage.recoveries += 1;
                self.compare_cuts(volume);
            }
            Progress::Wrong(why) => self.violate(client, Some(why)),
        }
    }

    /// Requests the close of all opens of a client, and ignores the answers.
    fn end_session(&mut self, client: usize) {
        let Client { volume, home, .. } = &self.clients[client];
        let operation = Operation::EndSession { session: home.session() };
        let node = self.nodes[0].as_mut();
        let service = node.and_then(|node| node.volumes.get_mut(*volume)).and_then(Served::service);
        if let Some(service) = service {
            service.submit(OperationId(self.next_operation), operation, self.now);
            self.next_operation += 1;
        }
    }

    /// Checks that no change is lost that was answered before the request of another one that is
    /// present.
    fn compare_cuts(&mut self, volume: usize) {
        let cuts = &self.cuts[volume];
        let kept = cuts.iter().map(|cut| cut.kept_began).max().unwrap_or(0);
        let lost = cuts.iter().filter_map(|cut| cut.lost_ended).min();
        if lost.is_some_and(|lost| lost < kept) {
            self.violations.push(format!(
                "volume {volume}: names that were changed at step {lost:?} are lost, and a change of step {kept} is there"
            ));
        }
    }

    fn drive_clients(&mut self) {
        for index in 0..self.clients.len() {
            let volume = self.clients[index].volume;
            let serves = self.nodes[0].as_ref().is_some_and(|node| node.volumes[volume].serves);
            if !serves || self.clients[index].wake_at > self.now {
                continue;
            }
            if matches!(self.clients[index].mode, Mode::Away) && self.clients[index].doing.is_empty() {
                let recovery =
                    Recovery::new(!self.acting && self.coverage.recoveries < self.clients.len() as u64);
                let operation = recovery.begin(&self.clients[index].home);
                self.clients[index].mode = Mode::Recovering(Box::new(recovery));
                self.submit(index, What::Recovery, operation);
            } else if matches!(self.clients[index].mode, Mode::Working) && self.acting {
                let doing = self.clients[index].doing.values();
                let reads = doing.filter(|doing| matches!(doing.what, What::Read { .. }));
                self.changes.note_reads(reads.map(|doing| doing.began).min());
                let mut shared = Shared {
                    random: &mut self.random,
                    changes: &mut self.changes,
                    next_file: &mut self.next_file,
                    step: self.step + 1,
                    now: self.now,
                };
                let chosen = self.clients[index].choose(&mut shared);
                self.clients[index].pause(&mut shared, self.asked_in_stage < BUSY_OPERATIONS);
                if let Some((what, operation)) = chosen {
                    self.asked_in_stage += 1;
                    self.submit(index, what, operation);
                }
            }
        }
    }

    /// Checks that no operation waits for ever.
    fn look_for_late(&mut self) {
        if self.now.since(self.looked_at) < Duration::from_secs(1) {
            return;
        }
        self.looked_at = self.now;
        let forgiven = self.refusals_until;
        for client in &self.clients {
            for doing in client.doing.values() {
                if self.now.since(doing.began_at.max(forgiven)) > PATIENCE {
                    self.violations
                        .push(format!("client {}: {:?} is not answered", client.home.number, doing.what));
                }
            }
        }
    }

    /// Whether every client has checked all its files since the last restart.
    pub fn all_recovered(&self) -> bool {
        self.clients.iter().all(|client| matches!(client.mode, Mode::Working | Mode::Lost))
    }

    /// Makes all data of all volumes durable. Returns whether a request for that was sent.
    pub fn make_durable(&mut self) {
        let Some(node) = &mut self.nodes[0] else { return };
        for volume in &mut node.volumes {
            if let Some(service) = volume.service() {
                service.make_durable(OperationId(u64::MAX >> 2));
            }
        }
    }
}

/// Makes the format of a new volume on the virtual disk of this identity.
pub(crate) fn format_of(volume: VolumeId, root: &SecurityDescriptor) -> Format {
    Format {
        // A volume seals its blocks with its virtual disk's identity.
        id: volume.to_bytes(),
        label: "sim".into(),
        serial: 1,
        now: FileTime(133_000_000_000_000_000),
        root_security: root.build().expect("short enough"),
    }
}
