//! Liveness of servers, by [`heartbeat`] itself, and its consequences: leases, takeovers, and
//! the right to serve.

use super::counts::{Counts, MICROSECOND, node_id};
use heartbeat::{Dead, FormerOwner, HeartbeatKey, Incarnation, Member, Membership, Options, Timing, Verdict};
use records::{Condition, MemoryState, NodeLease, Record, Typed, VolumeRecord};
use space::coordinator::{Claimed, Predecessor};
use space::takeover::{Candidate, View, owners};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use types::{DiskId, Monotonic, NodeId, VolumeId};

/// Latency of a heartbeat.
const WAY: u64 = 40 * MICROSECOND;
/// Age from which a verdict applies to an incarnation that was recorded later, too.
const VERDICT_STANDS: Duration = Duration::from_millis(500);

/// Returns the time for which a server may answer after it was heard.
pub(super) fn lease() -> Duration {
    Timing::default().lease
}

struct Process {
    membership: Membership,
    /// Last term of the lease for which the server has recorded an incarnation.
    term: u64,
    lease_until: Monotonic,
    down: BTreeMap<usize, Dead>,
}

/// News for a server's coordinators; servers by their index.
#[derive(Default)]
pub(super) struct Told {
    pub lease: Option<Monotonic>,
    pub down: Vec<usize>,
    pub up: Vec<usize>,
}

/// Liveness of all servers. Two servers have a witness beside them, without which the death of one
/// would leave no majority.
pub(super) struct Heartbeats {
    servers: usize,
    processes: Vec<Process>,
    starts: u64,
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    sent: u64,
}

fn address_of(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), node as u16 + 1)
}

fn process(nodes: usize, node: usize, start: u64, now: u64) -> Process {
    let options = Options {
        me: node_id(node),
        incarnation: Incarnation(start),
        cluster: 1,
        key: HeartbeatKey::derive(b"simulated"),
        timing: Timing::default(),
    };
    let mut membership = Membership::new(options, Monotonic(now));
    let members: Vec<Member> =
        (0..nodes).map(|node| Member { node: node_id(node), address: address_of(node) }).collect();
    membership.set_members(&members, Monotonic(now));
    Process { membership, term: 0, lease_until: Monotonic(0), down: BTreeMap::new() }
}

fn life_of(state: &MemoryState, node: NodeId) -> (u64, u64) {
    let lease = state.read::<NodeLease>(&node.to_string()).ok().flatten();
    lease.map_or((0, 0), |lease| (lease.revision, lease.value.incarnation))
}

impl Heartbeats {
    pub fn new(nodes: usize, state: &MemoryState, now: u64) -> Self {
        for node in (0..nodes).map(node_id) {
            assert!(state.write(&NodeLease { node, incarnation: 1 }, 0).is_ok(), "a new record is taken");
        }
        let members = if nodes == 2 { 3 } else { nodes };
        let processes = (0..members).map(|member| process(members, member, member as u64 + 1, now)).collect();
        Self { servers: nodes, processes, starts: members as u64, flying: BTreeMap::new(), sent: 0 }
    }

    /// Begins a server's process.
    pub fn start(&mut self, now: u64, node: usize) {
        self.starts += 1;
        self.processes[node] = process(self.processes.len(), node, self.starts, now);
    }

    pub fn lease_until(&self, node: usize) -> Monotonic {
        self.processes[node].lease_until
    }

    /// Whether a server considers another one dead.
    pub fn is_down(&self, node: usize, other: usize) -> bool {
        self.processes[node].down.contains_key(&other)
    }

    /// Lets all servers that are up receive, send and decide.
    pub fn beat(&mut self, now: u64, up: &[bool], state: &MemoryState, counts: &mut Counts) -> Vec<Told> {
        while let Some(first) = self.flying.first_entry().filter(|first| first.key().0 <= now) {
            let (to, bytes) = first.remove();
            if up.get(to).is_none_or(|is_up| *is_up) {
                let heard = self.processes[to].membership.receive(&bytes, Monotonic(now));
                assert!(heard.is_ok() || !up.iter().all(|up| *up), "heartbeats are understood: {heard:?}");
            }
        }
        let mut told: Vec<Told> = up.iter().map(|_| Told::default()).collect();
        (self.servers..self.processes.len())
            .for_each(|witness| self.send(now, witness, &mut Counts::default()));
        for node in (0..up.len()).filter(|node| up[*node]) {
            self.send(now, node, counts);
            self.take_lease(now, node, state, counts, &mut told[node]);
            self.judge(now, node, state, &mut told[node]);
        }
        told
    }

    fn send(&mut self, now: u64, node: usize, counts: &mut Counts) {
        let membership = &mut self.processes[node].membership;
        membership.note_turns(now, Monotonic(now));
        let mut out = Vec::new();
        membership.poll(Monotonic(now), &mut out);
        for (address, bytes) in out {
            counts.heartbeats += 1;
            counts.heartbeat_bytes += bytes.len() as u64;
            self.sent += 1;
            self.flying.insert((now + WAY, self.sent), (usize::from(address.port()) - 1, bytes));
        }
    }

    /// Takes the lease. In a new term of it the server records another incarnation.
    fn take_lease(
        &mut self,
        now: u64,
        node: usize,
        state: &MemoryState,
        counts: &mut Counts,
        told: &mut Told,
    ) {
        let process = &mut self.processes[node];
        let Some(offer) = process.membership.offer(Monotonic(now)) else { return };
        if offer.term != process.term {
            let (revision, last) = life_of(state, node_id(node));
            let lease = NodeLease { node: node_id(node), incarnation: last + 1 };
            counts.lives += u64::from(state.write(&lease, revision).is_ok());
            process.term = offer.term;
        }
        process.lease_until = process.lease_until.max(offer.until);
        told.lease = Some(process.lease_until);
        process.membership.note_applied(state.revision(), Monotonic(now));
    }

    fn judge(&mut self, now: u64, node: usize, state: &MemoryState, told: &mut Told) {
        let process = &mut self.processes[node];
        for (other, verdict) in process.membership.verdicts() {
            let index = other.0 as usize - 1;
            if index >= self.servers {
                continue;
            }
            if verdict.is_down() {
                let (_, life) = life_of(state, other);
                if !process.down.contains_key(&index) {
                    told.down.push(index);
                }
                let dead = process.down.entry(index).or_insert_with(|| Dead::new(life));
                dead.heed(life, Monotonic(now), VERDICT_STANDS);
            } else if matches!(verdict, Verdict::Up { .. }) && process.down.remove(&index).is_some() {
                told.up.push(index);
            }
        }
    }

    /// Returns the volumes for which the rule names a server, and that it does not own, or owns and
    /// does not have open; with the owner that it takes each over from.
    pub fn to_open(
        &self,
        node: usize,
        homes: &BTreeMap<DiskId, NodeId>,
        state: &MemoryState,
    ) -> Vec<(VolumeId, Predecessor)> {
        let process = &self.processes[node];
        if process.lease_until == Monotonic(0) {
            return Vec::new();
        }
        let candidate = |other: usize| {
            let is_up = !process.down.contains_key(&other);
            (node_id(other), Candidate { is_up, takes_volumes: true })
        };
        let view = View { nodes: (0..self.servers).map(candidate).collect(), disks: homes.clone() };
        let records: Vec<VolumeRecord> =
            state.list().unwrap_or_default().into_iter().map(|stored| stored.value).collect();
        let named = owners(&records, &view);
        let mine = records.iter().filter(|record| named.get(&record.id) == Some(&node_id(node)));
        mine.filter_map(|record| Some((record.id, self.predecessor(node, record, state)?))).collect()
    }

    fn predecessor(&self, node: usize, record: &VolumeRecord, state: &MemoryState) -> Option<Predecessor> {
        let owner = record.owner;
        let Some(other) = owner.filter(|owner| *owner != node_id(node)) else {
            return Some(Predecessor { owner, ..Predecessor::default() });
        };
        let dead = self.processes[node].down.get(&(other.0 as usize - 1))?;
        let (revision, life) = life_of(state, other);
        let fence = Some(Condition { key: NodeLease::key_of(&other.to_string()), revision });
        (life == dead.life()).then_some(Predecessor { owner, fence, is_waited_out: false })
    }

    /// Whether a claim may serve, since no earlier owner answers any more. Otherwise, asks the
    /// earlier owners.
    pub fn permits(&mut self, now: u64, node: usize, claimed: Option<&Claimed>) -> bool {
        let Some(claimed) = claimed else { return false };
        let membership = &mut self.processes[node].membership;
        let permits = claimed.before.iter().all(|before| {
            let former =
                FormerOwner { node: *before, claimed_at: claimed.at, claim_revision: claimed.revision };
            membership.may_answer_for(&former, Monotonic(now))
        });
        membership.ask(!permits, Monotonic(now));
        permits
    }
}
