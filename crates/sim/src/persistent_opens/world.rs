//! One server over two disks, its clients, and its interruptions.

use super::Coverage;
use super::client::{Client, Doing, Link, What, caller};
use super::model::{File, Touched};
use crate::random::Random;
use crate::stack::{Limits, Node, POOL, Scenario, Served, SimDisk, format_of, plain_create, wide};
use crate::trace::Trace;
use records::{MemoryState, Provisioning, Resiliency, Typed, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{DiskId, Monotonic, NtStatus, VolumeId};
use volume::backend::*;
use volume::fs::{Config as CacheConfig, Format};
use volume::security::{Ace, AceFlags, Acl, rights, volume_root};

const VOLUME: VolumeId = VolumeId::from_bytes([0x51; 16]);
const VOLUME_BYTES: u64 = 64 << 20;
const SLAB_BYTES: u64 = 4 << 20;
/// Time without an answer after which a request counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which all changes in the journal are durable.
const DURABLE_WITHIN: Duration = Duration::from_secs(3);
const TURN_MIN: Duration = Duration::from_micros(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Setup,
    /// Clients work; then comes an interruption. This repeats several times.
    Work,
    Down {
        until: Monotonic,
    },
    /// All opens are being closed.
    Leaving,
    Left {
        until: Monotonic,
    },
    /// The judge checks the last process for leftovers.
    Look,
    Finished,
}

pub(crate) struct LastingWorld {
    random: Random,
    scenario: Scenario,
    pub(super) now: Monotonic,
    /// Number of requests and answers: the oracle's time.
    pub(super) step: u64,
    disks: Vec<SimDisk>,
    state: MemoryState,
    node: Option<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) touched: Touched,
    /// The same for locks: requests that break only caching.
    pub(super) locked: Touched,
    /// Requests in flight, and the clients that wait for them; acknowledgements with their open.
    asked: BTreeMap<u64, (usize, Option<OpenId>)>,
    /// The judge's own requests.
    looks: BTreeMap<u64, OpenId>,
    next_operation: u64,
    stage: Stage,
    rounds: u64,
    next_stop: Monotonic,
    incarnations: u128,
    names: BTreeSet<String>,
    pub violations: Vec<String>,
    pub coverage: Coverage,
    pub trace: Trace,
}

impl LastingWorld {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x1a57_0123);
        let scenario = Scenario {
            disks: 2,
            volumes: vec![Resiliency::TwoWay],
            slab_bytes: SLAB_BYTES,
            faults: Vec::new(),
            background: Vec::new(),
            ..Scenario::of_seed(seed)
        };
        let slabs = VOLUME_BYTES / SLAB_BYTES + 4;
        let disks: Vec<SimDisk> = (1..=2)
            .map(|number| SimDisk::format(number, SLAB_BYTES, slabs, random.below(u64::MAX)))
            .collect();
        let state = MemoryState::new();
        let ids = disks.iter().map(|disk| disk.id).collect();
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(VOLUME, POOL, "volume".to_owned(), two, VOLUME_BYTES, thin, ids, 0);
        state.write(&record, 0).expect("an empty state takes records");
        let now = Monotonic(1_000_000);
        let clients = (0..random.between(2, 4) as usize).map(|number| Client::new(number, now)).collect();
        let rounds = random.between(2, 6);
        let mut world = Self {
            random,
            scenario,
            now,
            step: 1,
            disks,
            state,
            node: None,
            clients,
            touched: Touched::default(),
            locked: Touched::default(),
            asked: BTreeMap::new(),
            looks: BTreeMap::new(),
            next_operation: 1,
            stage: Stage::Setup,
            rounds,
            next_stop: now,
            incarnations: 1,
            names: BTreeSet::new(),
            violations: Vec::new(),
            coverage: Coverage::default(),
            trace: Trace::new(),
        };
        world.start(Some(format()));
        world
    }

    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    pub fn doing(&self) -> String {
        format!("{:?}, {} rounds to go", self.stage, self.rounds)
    }

    fn start(&mut self, format: Option<Format>) {
        let ids: Vec<DiskId> = self.disks.iter().map(|disk| disk.id).collect();
        self.disks.iter().for_each(|disk| disk.begin(self.now));
        self.incarnations += 1000;
        let served = Served::new(VOLUME, self.incarnations * 2 + 1, self.now, format);
        self.node = Some(Node::start(&self.scenario, &self.state, &ids, vec![served], self.now));
    }

    /// Ends the process at once, and the power too if that is cut.
    fn stop(&mut self, power: bool) {
        if self.node.take().is_none() {
            return;
        }
        for disk in &self.disks {
            disk.lose_process(power, &mut self.random);
        }
        match power {
            true => self.coverage.power_cuts += 1,
            false => self.coverage.kills += 1,
        }
        self.asked.clear();
        self.looks.clear();
        self.step += 1;
        for index in 0..self.clients.len() {
            let away = self.away_for();
            let until = self.now.after(away);
            self.clients[index].loses_session(self.now, self.step, until);
        }
    }

    /// Chooses the time for which a client stays away.
    fn away_for(&mut self) -> Duration {
        match self.random.below(10) {
            0 => Duration::from_secs(self.random.between(55, 90)),
            1..5 => Duration::from_millis(self.random.between(1, 5000)),
            _ => Duration::from_millis(self.random.between(1, 200)),
        }
    }

    /// Advances to the next event, and handles it.
    pub fn turn(&mut self) {
        let disks = self.disks.iter().filter_map(|disk| disk.control.due.get());
        let node = self.node.iter().map(Node::next_timeout);
        let wakes = self.clients.iter().map(|client| client.wake_at).filter(|at| *at > self.now);
        let next = disks.chain(node).chain(wakes).min().unwrap_or(self.now);
        self.now = next.max(self.now.after(TURN_MIN)).min(self.now.after(Duration::from_millis(50)));
        for disk in &self.disks {
            disk.control.now.set(self.now);
        }
        if let Some(node) = &mut self.node {
            let mut out = Vec::new();
            let cache =
                CacheConfig { cache_bytes: 4 << 20, dirty_bytes: 1 << 20, page_cache_bytes: 256 << 10 };
            node.turn(self.now, &self.disks, &Limits { cache }, &mut out);
            node.events.clear();
            if let Some(why) = &node.volumes[0].stopped {
                self.violations.push(format!("the volume stopped: {why}"));
            }
            self.trace.note(&[self.now.0, out.len() as u64]);
            out.into_iter().for_each(|(_, event)| self.deliver(event));
        }
        let serves = self.node.as_ref().is_some_and(|node| node.volumes[0].serves);
        if serves {
            for index in 0..self.clients.len() {
                self.drive(index);
            }
        }
        self.look_for_late();
        self.advance(serves);
    }

    fn look_for_late(&mut self) {
        for client in &self.clients {
            if let Some((_, doing)) = &client.doing
                && self.now.since(doing.began_at) > PATIENCE
            {
                self.violations.push(format!("client {}: {:?} is not answered", client.number, doing.what));
            }
        }
    }

    fn all_have_left(&self) -> bool {
        let waits = |client: &Client| client.doing.is_some() || client.again.is_some();
        let left = |client: &Client| client.link == Link::Up && !waits(client) && client.opens.is_empty();
        self.clients.iter().all(left)
    }

    fn advance(&mut self, serves: bool) {
        match self.stage {
            Stage::Setup if serves => {
                self.stage = Stage::Work;
                self.next_stop = self.now.after(Duration::from_millis(self.random.between(10, 3000)));
            }
            Stage::Work if self.now >= self.next_stop => {
                let power = self.random.chance(400);
                self.stop(power);
                let until = self.now.after(Duration::from_millis(self.random.between(1, 800)));
                self.stage = Stage::Down { until };
                self.rounds -= 1;
            }
            Stage::Down { until } if until <= self.now => {
                self.start(None);
                self.stage = if self.rounds > 0 { Stage::Work } else { Stage::Leaving };
                let leaves = self.stage == Stage::Leaving;
                self.clients.iter_mut().for_each(|client| client.leaves = leaves);
                // Sometimes at once, so that reconnecting is interrupted too.
                let most = if self.random.chance(300) { 300 } else { 8000 };
                self.next_stop = self.now.after(Duration::from_millis(self.random.between(10, most)));
            }
            Stage::Leaving if serves && self.all_have_left() => {
                // The end of an open's time is in the journal, and soon durable: a client that
                // comes too late does not learn it earlier.
                self.stage = Stage::Left { until: self.now.after(DURABLE_WITHIN) };
            }
            Stage::Left { until } if until <= self.now => {
                self.stop(false);
                self.start(None);
                self.stage = Stage::Look;
            }
            Stage::Look if serves && self.looks.is_empty() => self.look(),
            _ => {}
        }
    }

    /// Checks that nothing is left of opens, and that the names are those that clients know.
    fn look(&mut self) {
        let Some(service) = self.node.as_mut().and_then(|node| node.volumes[0].service()) else { return };
        let left = service.open_count();
        if left != 0 {
            self.violations.push(format!("{left} opens are left, and all were closed"));
        }
        let operation = self.next_operation;
        self.next_operation += 1;
        let root = Create { options: 1, ..plain_create(caller(99, 9999), wide(""), Disposition::Open) };
        self.looks.insert(operation, OpenId(0));
        service.submit(OperationId(operation), Operation::Create(Box::new(root)), self.now);
    }

    fn looked(&mut self, reply: Result<Reply, NtStatus>, open: OpenId) {
        let mut list = |open: OpenId, after: u64| {
            let Some(service) = self.node.as_mut().and_then(|node| node.volumes[0].service()) else { return };
            let operation = self.next_operation;
            self.next_operation += 1;
            self.looks.insert(operation, open);
            let (pattern, short_names) = (wide("*"), false);
            let list = Operation::QueryDirectory { open, pattern, after, entries_max: 64, short_names };
            service.submit(OperationId(operation), list, self.now);
        };
        match reply {
            Ok(Reply::Created(created)) => list(created.open, 0),
            Ok(Reply::Directory(entries)) if !entries.is_empty() => {
                list(open, entries.last().map_or(0, |entry| entry.cookie));
                let names = entries.iter().map(|entry| String::from_utf16_lossy(&entry.name));
                self.names.extend(names.filter(|name| name != "." && name != ".."));
            }
            Ok(Reply::Directory(_)) | Err(NtStatus::NO_MORE_FILES | NtStatus::NO_SUCH_FILE) => {
                self.judge_names()
            }
            other => self.violations.push(format!("the last look was answered {other:?}")),
        }
    }

    fn judge_names(&mut self) {
        self.stage = Stage::Finished;
        let (mut wanted, mut judged) = (BTreeSet::new(), BTreeSet::new());
        for client in &self.clients {
            for (number, own) in &client.own {
                let file = File::Own { client: client.number, number: *number };
                judged.insert(file.stem());
                if own.exists.is_so() {
                    wanted.insert(file.name(own.name));
                }
            }
        }
        let is_judged = |name: &&String| name.rsplit_once('_').is_some_and(|(stem, _)| judged.contains(stem));
        let found: BTreeSet<String> = self.names.iter().filter(is_judged).cloned().collect();
        if found != wanted {
            let missing: Vec<&String> = wanted.difference(&found).collect();
            let left: Vec<&String> = found.difference(&wanted).collect();
            self.violations.push(format!("names at the end: {missing:?} are missing, {left:?} are left"));
        }
    }

    /// Sends a request to the server; with an open, it is the acknowledgement of a break of that.
    fn submit(&mut self, index: usize, of: Option<OpenId>, operation: Operation) {
        let number = self.next_operation;
        self.next_operation += 1;
        self.step += 1;
        self.asked.insert(number, (index, of));
        let service = self.node.as_mut().and_then(|node| node.volumes[0].service());
        if let Some(service) = service {
            let doing = &self.clients[index].doing;
            crate::stack::say(self.now, self.step, || match (&operation, doing) {
                (Operation::AcknowledgeLease { .. } | Operation::EndSession { .. }, _) | (_, None) => {
                    format!("client {index} asks {number}: {operation:?}")
                }
                (_, Some((_, doing))) => format!("client {index} asks {number}: {:?}", doing.what),
            });
            service.submit(OperationId(number), operation, self.now);
        }
    }

    fn drive(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Link::Down { until } = client.link {
            if until <= self.now && client.doing.is_none() {
                client.returns(&mut self.random);
            }
            return;
        }
        if let Some((open, operation)) = client.acknowledgement(&mut self.random) {
            self.submit(index, Some(open), operation);
        }
        let client = &mut self.clients[index];
        if client.doing.is_some() || client.wake_at > self.now {
            return;
        }
        client.wake_at = self.now.after(Duration::from_micros(self.random.between(100, 40_000)));
        if client.link == Link::Up && !client.leaves && self.random.chance(20) {
            return self.lose_session(index);
        }
        let client = &mut self.clients[index];
        let Some((doing, operation)) = client.choose(&mut self.random, self.step + 1, self.now) else {
            return;
        };
        if doing.again {
            match doing.what {
                What::Create { .. } => self.coverage.replayed_creates += 1,
                What::Lock { .. } => self.coverage.replayed_locks += 1,
                _ => self.coverage.replayed_others += 1,
            }
        }
        self.note_touched(index, &doing);
        self.clients[index].doing = Some((self.next_operation, doing));
        self.submit(index, None, operation);
    }

    /// Breaks a client's connection: the server ends its session.
    fn lose_session(&mut self, index: usize) {
        self.coverage.lost_sessions += 1;
        let away = self.away_for();
        let until = self.now.after(away);
        let operation = self.clients[index].end_session();
        self.clients[index].loses_session(self.now, self.step, until);
        let doing = Doing {
            what: What::EndSession,
            began: self.step,
            began_at: self.now,
            said_at: self.now,
            again: false,
        };
        self.clients[index].doing = Some((self.next_operation, doing));
        self.submit(index, None, operation);
    }

    fn note_touched(&mut self, index: usize, doing: &Doing) {
        let client = &self.clients[index];
        if let What::Lock { open, .. } = &doing.what
            && let Some(kept) = client.open(*open)
        {
            self.locked.note(kept.file, index, self.step);
        }
        let file = match &doing.what {
            What::Create { file, .. } => Some(*file),
            What::Close { open } | What::Reconnect { open } => client.open(*open).map(|kept| kept.file),
            _ => None,
        };
        if let Some(file) = file {
            self.touched.note(file, index, self.step);
        }
    }

    fn deliver(&mut self, event: Event) {
        self.step += 1;
        crate::stack::say(self.now, self.step, || format!("    {:.200}", format!("{event:?}")));
        match event {
            Event::Done { operation, result } => {
                let result = result.map_err(|refusal| refusal.status);
                self.trace.note(&[operation.0, u64::from(result.is_ok())]);
                if let Some(open) = self.looks.remove(&operation.0) {
                    return self.looked(result, open);
                }
                match self.asked.remove(&operation.0) {
                    Some((index, Some(open))) => self.acknowledged(index, open, &result),
                    Some((index, None)) => {
                        let doing = self.clients[index].doing.take_if(|(number, _)| *number == operation.0);
                        if let Some((_, doing)) = doing {
                            self.note_touched(index, &doing);
                            if let Some(wrong) = self.answered(index, &doing, result) {
                                let what = format!("client {index}, {doing:?}: {wrong}");
                                self.violations.push(what);
                            }
                        }
                    }
                    None => {}
                }
            }
            Event::BreakLease { client, key, to, acknowledge, .. } => {
                let index = usize::from(client[0]).wrapping_sub(1);
                let Some(client) = self.clients.get_mut(index) else { return };
                self.coverage.breaks += 1;
                if let Some(kept) = client.opens.iter_mut().find(|kept| kept.guid == key) {
                    match acknowledge || !kept.is_here {
                        true => kept.breaking = Some(to),
                        false => kept.lease = to,
                    }
                } else {
                    client.early = Some((key, to, acknowledge));
                }
            }
            Event::Closed { open } => {
                for client in &mut self.clients {
                    if client.open(open).is_some_and(|kept| kept.is_here) {
                        self.violations
                            .push(format!("client {}'s {open:?} is closed by itself", client.number));
                    }
                }
            }
            Event::Pending { .. } | Event::Renamed { .. } => {}
            Event::BreakOplock { .. } => {
                self.violations.push("an oplock that nobody has is broken".to_owned())
            }
        }
    }

    fn acknowledged(&mut self, index: usize, open: OpenId, result: &Result<Reply, NtStatus>) {
        let Some(kept) = self.clients[index].open_mut(open) else { return };
        let Some(state) = kept.acknowledging.take() else { return };
        match result {
            // Another break may have come meanwhile.
            Ok(_) => {
                kept.lease &= state;
                kept.breaking.take_if(|to| *to == state);
            }
            Err(_) if kept.closing => {}
            Err(status) => self.violations.push(format!(
                "client {index}: a break of {open:?} to {:?} could not be acknowledged: {status:?}",
                kept.breaking
            )),
        }
    }
}

/// Makes the format of the volume, with a root that allows everything to everybody.
fn format() -> Format {
    let mut root = volume_root();
    let below = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    root.dacl = Some(Acl::new(vec![Ace::allow(types::Sid::everyone(), rights::FILE_ALL, below)]));
    format_of(VOLUME, &root)
}
