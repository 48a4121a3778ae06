//! Liveness of the nodes, and the right to answer and to open the volume: [`heartbeat`]
//! itself, with datagrams that the network loses, delays and repeats, and around it the steps of
//! `cenote` and `node`.
//!
//! A node's process records another incarnation in each term of its lease, and then reads the
//! records, which takes time. All its other knowledge of them is late. The process claims the
//! volume if the rule names it, and serves once all owners that the record names have stopped
//! answering.

use super::course::{Course, MICROSECOND, MILLISECOND};
use super::network::Network;
use super::servers::Servers;
use heartbeat::{
    Dead, FormerOwner, HeartbeatKey, Incarnation, Member, Membership, Options, Timing, Verdict, Ways,
};
use records::{Condition, MemoryState, NodeLease, Record, Stored, Typed, VolumeRecord};
use space::coordinator::{Claimed, Predecessor};
use space::takeover::{self, Candidate, View, owners};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use types::{DiskId, Monotonic, NodeId};

/// Interval at which nodes take their messages and do all due work.
pub(crate) const TICK: u64 = 5 * MILLISECOND;
/// Time for which a node may answer after it was heard.
pub(crate) const LEASE: Duration = Duration::from_millis(250);
/// Age from which a verdict applies to an incarnation that was recorded later, too.
const VERDICT_STANDS: Duration = Duration::from_millis(500);
/// Longest time after a crash for which others may consider a node dead that is back.
pub(super) const VERDICT_MAX: u64 = 500 * MILLISECOND;
/// Time for which large messages must be lost, or get through again, to prove that a link is bad,
/// or good. A tenth of the real time.
const WAY_PROVEN: u64 = 300 * MILLISECOND;
/// Half of the real times, so that a run has more of them.
const TIMING: Timing = Timing {
    interval: Duration::from_millis(50),
    suspect: Duration::from_millis(125),
    dead: Duration::from_millis(250),
    lease: LEASE,
    stall: Duration::from_secs(5),
    reset: Duration::from_millis(50),
    asking: Duration::from_millis(15),
    cut_off: Duration::from_millis(500),
};

/// Records that a node has read and does not act on yet.
struct Reading {
    term: u64,
    life: u64,
    record: Option<Stored<VolumeRecord>>,
}

/// A node's process.
struct Process {
    heartbeats: Membership,
    /// The last term in which the process has read the records.
    term: u64,
    lease_until: Monotonic,
    reading: Option<Reading>,
    /// Nodes dead by the majority's verdict, with the times since when.
    down: BTreeMap<usize, (u64, Dead)>,
    /// Nodes whose disks do not count: dead ones, and those that this node cannot reach.
    gone: BTreeSet<usize>,
    /// The record, and the last incarnation of each node, at the last reading.
    record: Option<Stored<VolumeRecord>>,
    lives: BTreeMap<NodeId, u64>,
    /// Whether the node's large messages reach most of the nodes, and since when.
    reach: (bool, u64),
    /// Time since which the cluster state has not answered.
    unanswered_since: Option<u64>,
    /// Whether the node sends nothing ([`Membership::hush`]).
    is_silent: bool,
}

/// A node's knowledge that decides which node should have the volume: the record's revision, the
/// last incarnations, and those of dead nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    revision: u64,
    lives: BTreeMap<NodeId, u64>,
    down: BTreeMap<usize, u64>,
}

/// News for a node's coordinator.
#[derive(Default)]
pub(crate) struct Told {
    pub lease: Option<Monotonic>,
    pub down: Vec<DiskId>,
    pub up: Vec<DiskId>,
    pub record: Option<VolumeRecord>,
}

/// Times until which the heartbeats to or from a node are lost.
#[derive(Debug, Clone, Copy, Default)]
struct Deafness {
    sent_until: u64,
    heard_until: u64,
}

/// A datagram in flight.
struct Datagram {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

pub(crate) struct Liveness {
    processes: Vec<Process>,
    deafness: Vec<Deafness>,
    flying: BTreeMap<(u64, u64), Datagram>,
    sent: u64,
}

pub(crate) fn id_of(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

fn index_of(node: NodeId) -> usize {
    node.0 as usize - 1
}

fn address_of(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), node as u16 + 1)
}

fn begin(course: &mut Course, nodes: usize, node: usize) -> Process {
    let now = Monotonic(course.now);
    let options = Options {
        me: id_of(node),
        incarnation: Incarnation(course.new_token()),
        cluster: 1,
        key: HeartbeatKey::derive(b"simulated"),
        timing: TIMING,
    };
    let mut heartbeats = Membership::new(options, now);
    let members: Vec<Member> =
        (0..nodes).map(|node| Member { node: id_of(node), address: address_of(node) }).collect();
    heartbeats.set_members(&members, now);
    Process {
        heartbeats,
        term: 0,
        lease_until: Monotonic(0),
        reading: None,
        down: BTreeMap::new(),
        gone: BTreeSet::new(),
        record: None,
        lives: BTreeMap::new(),
        reach: (true, course.now),
        unanswered_since: None,
        is_silent: false,
    }
}

impl Process {
    /// Acts on the record, unless the node has acted on a later one.
    fn heed(&mut self, record: Option<Stored<VolumeRecord>>, now: u64, told: &mut Told) {
        let known = self.record.as_ref().map_or(0, |known| known.revision);
        let Some(record) = record.filter(|record| record.revision >= known) else { return };
        told.record = Some(record.value.clone());
        self.heartbeats.note_applied(record.revision, Monotonic(now));
        self.record = Some(record);
    }
}

impl Liveness {
    pub fn new(course: &mut Course) -> Self {
        let nodes = course.scenario.nodes;
        let processes = (0..nodes).map(|node| begin(course, nodes, node)).collect();
        let deafness = vec![Deafness::default(); nodes];
        Self { processes, deafness, flying: BTreeMap::new(), sent: 0 }
    }

    /// Loses a node's messages out, in, or both, for a while; and perhaps resets its connections,
    /// which proves nothing about its process.
    pub fn silence(&mut self, course: &mut Course, node: usize, lasting: u64) {
        let until = course.now + lasting;
        let kind = course.random.below(3);
        let Deafness { sent_until, heard_until } = &mut self.deafness[node];
        if kind != 1 {
            *sent_until = until;
        }
        if kind != 2 {
            *heard_until = until;
        }
        if course.random.chance(300) {
            self.reset(course, node);
        }
    }

    /// Handles the start of a process.
    pub fn started(&mut self, course: &mut Course, node: usize) {
        self.processes[node] = begin(course, self.processes.len(), node);
    }

    /// Resets the connections of a node, which most others notice.
    pub fn reset(&mut self, course: &mut Course, node: usize) {
        let now = Monotonic(course.now);
        for process in &mut self.processes {
            if course.random.chance(700) {
                process.heartbeats.note_reset(id_of(node), now);
            }
        }
    }

    /// Ends the loss of heartbeats.
    pub fn hear_all(&mut self) {
        self.deafness.fill(Deafness::default());
    }

    /// Lets all nodes receive, decide and send. Returns the news for each coordinator.
    pub fn beat(
        &mut self,
        course: &mut Course,
        servers: &Servers,
        network: &Network,
        state: Option<&MemoryState>,
    ) -> Vec<Told> {
        self.deliver(course, servers, network);
        let nodes = servers.nodes.len();
        let mut told: Vec<Told> = (0..nodes).map(|_| Told::default()).collect();
        let awake = |node: usize| servers.nodes[node].is_awake(course.now);
        let awake: Vec<bool> = (0..nodes).map(awake).collect();
        for (node, told) in told.iter_mut().enumerate().filter(|(node, _)| awake[*node]) {
            self.retreat(course, servers, network, state.is_some(), node);
            self.send(course, network, node);
            let reached = state.filter(|_| !network.is_cut(node, nodes));
            self.lease(course, reached, node, told);
            if let Some(state) = reached
                && course.random.chance(200)
            {
                self.watch(course, state, node, told);
            }
            self.judge(course, servers, node, told);
        }
        told
    }

    fn deliver(&mut self, course: &Course, servers: &Servers, network: &Network) {
        while let Some(first) = self.flying.first_entry().filter(|first| first.key().0 <= course.now) {
            let ((_, number), Datagram { from, to, bytes }) = first.remove_entry();
            let frozen_until = servers.nodes[to].frozen_until;
            if frozen_until > course.now {
                self.flying.insert((frozen_until, number), Datagram { from, to, bytes });
                continue;
            }
            let is_deaf = self.deafness[to].heard_until > course.now;
            if servers.nodes[to].up && !network.is_cut(from, to) && !is_deaf {
                // A refused message has changed nothing.
                let _ = self.processes[to].heartbeats.receive(&bytes, Monotonic(course.now));
            }
        }
    }

    fn send(&mut self, course: &mut Course, network: &Network, node: usize) {
        let now = Monotonic(course.now);
        let heartbeats = &mut self.processes[node].heartbeats;
        heartbeats.note_turns(course.now, now);
        let mut out = Vec::new();
        heartbeats.poll(now, &mut out);
        for (address, bytes) in out {
            let to = usize::from(address.port()) - 1;
            let (loss, slow) = (course.scenario.message_loss, course.scenario.message_slow);
            let is_mute = self.deafness[node].sent_until > course.now;
            if is_mute || network.is_cut(node, to) || (course.faulting() && course.random.chance(loss)) {
                continue;
            }
            let delay = match course.faulting() && course.random.chance(slow) {
                true => course.random.between(1, 400) * MILLISECOND,
                false => course.random.between(30, 400) * MICROSECOND,
            };
            self.sent += 1;
            self.flying.insert((course.now + delay, self.sent), Datagram { from: node, to, bytes });
        }
    }

    /// Makes a node fall silent, as in `node`, if its large messages reach no other and the state
    /// does not answer it; and speak again.
    fn retreat(
        &mut self,
        course: &mut Course,
        servers: &Servers,
        network: &Network,
        has_state: bool,
        node: usize,
    ) {
        let (now, nodes) = (Monotonic(course.now), servers.nodes.len());
        let reached = (0..nodes).filter(|other| !network.loses_large_between(node, *other)).count();
        let (view, has_state) = (self.view(servers, node), has_state && !network.is_cut(node, nodes));
        let served = servers.nodes[node].coordinator.as_ref().filter(|_| servers.nodes[node].serves);
        let is_without = served.is_none_or(|served| takeover::is_spared(served.record(), &view, id_of(node)));
        let process = &mut self.processes[node];
        if (reached * 2 > nodes) != process.reach.0 {
            process.reach = (!process.reach.0, course.now);
        }
        let unanswered = process.unanswered_since.filter(|_| !has_state);
        process.unanswered_since = (!has_state).then(|| unanswered.unwrap_or(course.now));
        let (reaches, since) = process.reach;
        let is_proven = course.now - since >= WAY_PROVEN;
        let is_unanswered = process.unanswered_since.is_some_and(|since| course.now - since >= WAY_PROVEN);
        process.heartbeats.note_ways(Ways { reach_most: reaches || !is_proven, votes: true });
        if !reaches && is_proven && is_unanswered && is_without {
            process.heartbeats.hush(true, now);
        } else if reaches && is_proven {
            process.heartbeats.hush(false, now);
        }
        let was_silent = std::mem::replace(&mut process.is_silent, process.heartbeats.is_silent(now));
        course.coverage.retreats += u64::from(process.is_silent && !was_silent);
    }

    /// Whether the node sends nothing, and opens nothing.
    pub fn is_silent(&self, node: usize) -> bool {
        self.processes[node].is_silent
    }

    /// Takes the lease. In a new term of it the node records another incarnation, reads the
    /// records, and acts on them a little later.
    fn lease(&mut self, course: &mut Course, state: Option<&MemoryState>, node: usize, told: &mut Told) {
        let process = &mut self.processes[node];
        if course.random.chance(400)
            && let Some(Reading { term, life, record }) = process.reading.take()
        {
            process.term = term;
            process.lives.insert(id_of(node), life);
            process.heed(record, course.now, told);
        }
        let Some(offer) = process.heartbeats.offer(Monotonic(course.now)) else { return };
        if offer.term == process.term {
            process.lease_until = process.lease_until.max(offer.until);
            told.lease = Some(process.lease_until);
        } else if let Some(state) = state.filter(|_| process.reading.is_none()) {
            let before = state.read::<NodeLease>(&id_of(node).to_string()).ok().flatten();
            let (revision, last) =
                before.map_or((0, 0), |before| (before.revision, before.value.incarnation));
            let lease = NodeLease { node: id_of(node), incarnation: last + 1 };
            if state.write(&lease, revision).is_ok() {
                let record = read_record(state);
                process.reading = Some(Reading { term: offer.term, life: lease.incarnation, record });
            }
        }
    }

    /// Reads the changed records.
    fn watch(&mut self, course: &Course, state: &MemoryState, node: usize, told: &mut Told) {
        let process = &mut self.processes[node];
        let lives = state.list::<NodeLease>().unwrap_or_default();
        process.lives = lives.iter().map(|lease| (lease.value.node, lease.value.incarnation)).collect();
        process.heed(read_record(state), course.now, told);
    }

    /// Applies the majority's verdicts on dead and live nodes.
    fn judge(&mut self, course: &Course, servers: &Servers, node: usize, told: &mut Told) {
        let process = &mut self.processes[node];
        let cut_off = process.heartbeats.cut_off(Monotonic(course.now));
        for (other, verdict) in process.heartbeats.verdicts() {
            let recorded = process.lives.get(&other).copied().unwrap_or_default();
            let other = index_of(other);
            let disks = || servers.disks.iter().filter(|disk| disk.node == other).map(|disk| disk.id);
            let is_gone = verdict.is_down() || cut_off.contains(&id_of(other));
            if is_gone && process.gone.insert(other) {
                told.down.extend(disks());
            } else if !is_gone && process.gone.remove(&other) {
                told.up.extend(disks());
            }
            match verdict {
                Verdict::Down { .. } => {
                    let (_, dead) = process.down.entry(other).or_insert((course.now, Dead::new(recorded)));
                    dead.heed(recorded, Monotonic(course.now), VERDICT_STANDS);
                }
                Verdict::Up { .. } | Verdict::Suspect { .. } => {
                    process.down.remove(&other);
                }
            }
        }
    }

    /// Whether the node counts on no disk of the other one.
    pub fn is_gone(&self, node: usize, other: usize) -> bool {
        self.processes[node].gone.contains(&other)
    }

    /// The knowledge on which the node acts.
    pub fn known(&self, node: usize) -> Known {
        let process = &self.processes[node];
        Known {
            revision: process.record.as_ref().map_or(0, |record| record.revision),
            lives: process.lives.clone(),
            down: process.down.iter().map(|(other, (_, dead))| (*other, dead.life())).collect(),
        }
    }

    /// Returns the record as last read by the node.
    pub fn record(&self, node: usize) -> Option<&VolumeRecord> {
        self.processes[node].record.as_ref().map(|record| &record.value)
    }

    /// Returns the liveness of the nodes and the owners of the disks, by the node's knowledge.
    pub fn view(&self, servers: &Servers, node: usize) -> View {
        let process = &self.processes[node];
        let candidate = |other: usize| {
            let is_up = other == node || !process.down.contains_key(&other);
            (id_of(other), Candidate { is_up, takes_volumes: true })
        };
        View {
            nodes: (0..self.processes.len()).map(candidate).collect(),
            disks: servers.disks.iter().map(|disk| (disk.id, id_of(disk.node))).collect(),
        }
    }

    /// Returns the owner from which the node takes the volume over, if the rule names this node.
    pub fn to_open(&self, servers: &Servers, state: &MemoryState, node: usize) -> Option<Predecessor> {
        let (process, view) = (&self.processes[node], self.view(servers, node));
        let record = &process.record.as_ref()?.value;
        let mine = owners(std::slice::from_ref(record), &view).into_values().next() == Some(id_of(node));
        if !mine {
            return None;
        }
        let owner = record.owner;
        // A volume that was passed on has no owner.
        let Some(other) = owner.filter(|owner| *owner != id_of(node) && record.coordinator != 0) else {
            return Some(Predecessor { owner, ..Predecessor::default() });
        };
        let (_, dead) = process.down.get(&index_of(other))?;
        let lease = state.read::<NodeLease>(&other.to_string()).ok()?;
        let (revision, recorded) = lease.map_or((0, 0), |lease| (lease.revision, lease.value.incarnation));
        let key = NodeLease::key_of(&other.to_string());
        let fence = Some(Condition { key, revision });
        (recorded == dead.life()).then_some(Predecessor { owner, fence, is_waited_out: false })
    }

    /// Whether a claim may serve, since no earlier owner answers any more. Otherwise, asks the
    /// earlier owners.
    pub fn permits(&mut self, course: &Course, node: usize, claimed: Option<&Claimed>) -> bool {
        let (now, heartbeats) = (Monotonic(course.now), &mut self.processes[node].heartbeats);
        let former = |claimed: &Claimed, node: &NodeId| FormerOwner {
            node: *node,
            claimed_at: claimed.at,
            claim_revision: claimed.revision,
        };
        let permits = claimed.is_some_and(|claimed| {
            claimed.before.iter().all(|node| heartbeats.may_answer_for(&former(claimed, node), now))
        });
        heartbeats.ask(claimed.is_some() && !permits, now);
        permits
    }

    /// Returns the disks of nodes that this one has considered dead for at least `at_least`.
    pub fn down(&self, course: &Course, servers: &Servers, node: usize, at_least: u64) -> BTreeSet<DiskId> {
        let down = &self.processes[node].down;
        let since = |disk: usize| down.get(&disk).is_some_and(|(since, _)| course.now - since >= at_least);
        servers.disks.iter().filter(|disk| since(disk.node)).map(|disk| disk.id).collect()
    }

    /// Returns the end of the node's lease.
    pub fn lease_until(&self, node: usize) -> Monotonic {
        self.processes[node].lease_until
    }
}

fn read_record(state: &MemoryState) -> Option<Stored<VolumeRecord>> {
    state.read::<VolumeRecord>(&super::blocks::VOLUME.to_string()).ok().flatten()
}
