//! Heartbeats, leases and watches between the nodes, reduced to what decides who opens the volume: a model of what `cluster` and `node` do.
//!
//! A node that a majority does not hear for [`DEAD`] is down: its disks are put out, and the node that the rule names takes its volume over.
//! A node answers for [`LEASE`] after a majority heard it, which is less: by the time of a verdict it is over. A node that comes back after
//! such a time records another life first, and reads what is still its own; only that life is let answer. What nodes know of the record is late.

use super::course::{Course, MILLISECOND};
use super::network::Network;
use super::servers::Servers;
use cluster::{Condition, MemoryState, NodeLease, Record, Typed, VolumeRecord};
use space::coordinator::Predecessor;
use space::takeover::{Candidate, View, owners};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{DiskId, Monotonic, NodeId};

/// Pause between two heartbeats.
pub(crate) const HEARTBEAT: u64 = 40 * MILLISECOND;
/// A node that is not heard for so long is dead.
const DEAD: u64 = 250 * MILLISECOND;
/// For how long a node may answer after it was heard.
pub(crate) const LEASE: Duration = Duration::from_millis(200);

/// Whether a node may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It records another life with its next heartbeat.
    Outside,
    /// It has, and reads what is its own with the next one.
    Recorded,
    Inside,
}

/// What a node knows.
struct Known {
    /// When it heard each node last, and which life of it.
    heard: Vec<(u64, u64)>,
    /// Nodes that a majority takes for dead, since when, and which life of each that was.
    down: BTreeMap<usize, (u64, u64)>,
    /// The record as its watch showed it last.
    record: VolumeRecord,
    life: Life,
    incarnation: u64,
    lease_until: u64,
}

/// What a node's coordinator is to be told.
#[derive(Default)]
pub(crate) struct Told {
    pub lease: Option<Monotonic>,
    pub down: Vec<DiskId>,
    pub up: Vec<DiskId>,
    pub record: Option<VolumeRecord>,
}

pub(crate) struct Membership {
    known: Vec<Known>,
    /// Nodes whose heartbeats are lost until then, although everything else of them arrives.
    unheard_until: Vec<u64>,
}

pub(crate) fn id_of(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

impl Membership {
    pub fn new(nodes: usize, record: &VolumeRecord) -> Self {
        let known = || Known {
            heard: vec![(0, 0); nodes],
            down: BTreeMap::new(),
            record: record.clone(),
            life: Life::Outside,
            incarnation: 0,
            lease_until: 0,
        };
        Self { known: (0..nodes).map(|_| known()).collect(), unheard_until: vec![0; nodes] }
    }

    /// Loses the node's heartbeats for a while.
    pub fn silence(&mut self, course: &Course, node: usize, lasting: u64) {
        self.unheard_until[node] = course.now + lasting;
    }

    /// A process began: it takes nobody for dead before it has listened.
    pub fn started(&mut self, course: &Course, node: usize) {
        let known = &mut self.known[node];
        known.heard.iter_mut().for_each(|heard| heard.0 = course.now);
        known.down.clear();
        (known.life, known.lease_until) = (Life::Outside, 0);
    }

    /// The connections of a process that ended are reset: most others know at once.
    pub fn reset(&mut self, course: &mut Course, node: usize) {
        for known in &mut self.known {
            if course.random.chance(700) {
                known.heard[node].0 = 0;
            }
        }
    }

    /// All heartbeats arrive again.
    pub fn hear_all(&mut self) {
        self.unheard_until.fill(0);
    }

    fn hears(
        &self,
        course: &mut Course,
        servers: &Servers,
        network: &Network,
        from: usize,
        to: usize,
    ) -> bool {
        let is_heard = |node: usize| self.unheard_until[node] <= course.now;
        if !servers.nodes[from].up || !servers.nodes[to].up {
            return false;
        }
        if from == to {
            return true;
        }
        let arrives = is_heard(from) && is_heard(to) && !network.is_cut(from, to);
        let loss = course.scenario.message_loss;
        arrives && !(course.faulting() && course.random.chance(loss))
    }

    /// One heartbeat of every node; what each has to tell its coordinator.
    pub fn beat(
        &mut self,
        course: &mut Course,
        servers: &Servers,
        network: &Network,
        state: Option<&MemoryState>,
        record: Option<&VolumeRecord>,
    ) -> Vec<Told> {
        let nodes = servers.nodes.len();
        let mut heard = vec![vec![false; nodes]; nodes];
        for (to, row) in heard.iter_mut().enumerate() {
            for (from, is_heard) in row.iter_mut().enumerate() {
                *is_heard = self.hears(course, servers, network, from, to);
                if *is_heard {
                    self.known[to].heard[from] = (course.now, self.known[from].incarnation);
                }
            }
        }
        let mut told: Vec<Told> = (0..nodes).map(|_| Told::default()).collect();
        for node in (0..nodes).filter(|node| servers.nodes[*node].up) {
            let reached = state.filter(|_| !network.is_cut(node, nodes));
            self.judge(course, servers, &heard, node, &mut told[node]);
            if let (Some(state), Some(record)) = (reached, record) {
                self.live(state, record, node, &mut told[node]);
                if course.random.chance(600) {
                    self.known[node].record = record.clone();
                    told[node].record = Some(record.clone());
                }
            }
            self.lease(course, &heard, node, &mut told[node]);
        }
        told
    }

    /// Lets the node take others for dead, or alive again, as a majority does.
    fn judge(
        &mut self,
        course: &Course,
        servers: &Servers,
        heard: &[Vec<bool>],
        node: usize,
        told: &mut Told,
    ) {
        let nodes = servers.nodes.len();
        for other in (0..nodes).filter(|other| *other != node) {
            let is_silent = |voter: usize| course.now - self.known[voter].heard[other].0 >= DEAD;
            let voters = (0..nodes).filter(|voter| *voter == node || heard[node][*voter]);
            let votes = voters.filter(|voter| servers.nodes[*voter].up && is_silent(*voter)).count();
            let disks = || servers.disks.iter().filter(|disk| disk.node == other).map(|disk| disk.id);
            let life = self.known[node].heard[other].1;
            let is_dead = votes > nodes / 2;
            let down = &mut self.known[node].down;
            if is_dead && !down.contains_key(&other) {
                down.insert(other, (course.now, life));
                told.down.extend(disks());
            } else if !is_dead && heard[node][other] && down.remove(&other).is_some() {
                told.up.extend(disks());
            }
        }
    }

    /// Lets a node that was without a lease record another life, and then read what is its own.
    fn live(&mut self, state: &MemoryState, record: &VolumeRecord, node: usize, told: &mut Told) {
        let known = &mut self.known[node];
        match known.life {
            Life::Outside => {
                let before = state.read::<NodeLease>(&id_of(node).to_string()).ok().flatten();
                let revision = before.as_ref().map_or(0, |before| before.revision);
                let incarnation = before.map_or(0, |before| before.value.incarnation) + 1;
                let lease = NodeLease { node: id_of(node), incarnation };
                if state.write(&lease, revision).is_ok() {
                    (known.life, known.incarnation) = (Life::Recorded, incarnation);
                }
            }
            Life::Recorded => {
                known.life = Life::Inside;
                known.lease_until = 0;
                known.record = record.clone();
                told.record = Some(record.clone());
            }
            Life::Inside => {}
        }
    }

    /// Lets the node answer for a while if a majority hears it, and has not taken this life of it for dead.
    fn lease(&mut self, course: &Course, heard: &[Vec<bool>], node: usize, told: &mut Told) {
        let known = &self.known[node];
        if known.life != Life::Inside {
            return;
        }
        if known.lease_until > 0 && known.lease_until <= course.now {
            self.known[node].life = Life::Outside;
            return;
        }
        let grants = |voter: &usize| {
            let took_for_dead = self.known[*voter].down.get(&node).map(|(_, life)| *life);
            let hears = heard[*voter][node] && heard[node][*voter];
            hears && took_for_dead.is_none_or(|life| life < known.incarnation)
        };
        if (0..heard.len()).filter(grants).count() > heard.len() / 2 {
            let until = Monotonic(course.now).after(LEASE);
            self.known[node].lease_until = until.0;
            told.lease = Some(until);
        }
    }

    /// Whom the node takes the volume over from, if the rule names it.
    pub fn to_open(&self, servers: &Servers, state: &MemoryState, node: usize) -> Option<Predecessor> {
        let known = &self.known[node];
        let candidate = |other: usize| {
            let is_up = other == node || !known.down.contains_key(&other);
            (id_of(other), Candidate { is_up, takes_volumes: true })
        };
        let view = View {
            nodes: (0..self.known.len()).map(candidate).collect(),
            disks: servers.disks.iter().map(|disk| (disk.id, id_of(disk.node))).collect(),
        };
        let mine =
            owners(std::slice::from_ref(&known.record), &view).into_values().next() == Some(id_of(node));
        if !mine {
            return None;
        }
        let owner = known.record.owner;
        let Some(other) = owner.filter(|owner| *owner != id_of(node)) else {
            return Some(Predecessor { owner, until: Some(Monotonic(0)), fence: None });
        };
        let (since, dead) = known.down.get(&(other.0 as usize - 1)).copied()?;
        let lease = state.read::<NodeLease>(&other.to_string()).ok()?;
        let (revision, recorded) = lease.map_or((0, 0), |lease| (lease.revision, lease.value.incarnation));
        let key = NodeLease::key_of(&other.to_string());
        (recorded == dead).then_some(Predecessor {
            owner,
            until: Some(Monotonic(since)),
            fence: Some(Condition { key, revision }),
        })
    }

    /// Disks of nodes that this one takes for dead for at least so long.
    pub fn down(&self, course: &Course, servers: &Servers, node: usize, at_least: u64) -> BTreeSet<DiskId> {
        let down = &self.known[node].down;
        let since = |disk: usize| down.get(&disk).is_some_and(|(since, _)| course.now - since >= at_least);
        servers.disks.iter().filter(|disk| since(disk.node)).map(|disk| disk.id).collect()
    }

    /// Until when the node may answer.
    pub fn lease_until(&self, node: usize) -> Monotonic {
        Monotonic(self.known[node].lease_until)
    }
}
