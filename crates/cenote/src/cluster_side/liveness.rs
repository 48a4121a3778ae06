//! Which servers live: heartbeats with the others, and what the data plane is told of them.
//!
//! Owns the heartbeats and the thread that follows the servers' records. Promises: a server is told to be down by a majority's verdict only;
//! this server's lease is told in a term that it confirmed, and a new term is confirmed when the lease of the one before is over, so that the
//! node records another life and reads which volumes are still its own before it answers again ([`node::Node::set_lease`]). Never decides
//! who has which volume.

use crate::control::{ClusterCommand, Command, ControlHandle};
use crate::pulse::Pulse;
use bus::{NodeAccounts, Peer, Secret};
use cluster::identity::Facts;
use cluster::membership::shell::{Heartbeats, Surroundings};
use cluster::membership::{HeartbeatKey, Incarnation, Member, Options, Timing, Verdict};
use cluster::nodes::{self, ClusterRecord};
use cluster::seal::{SealError, SealKey};
use cluster::{Changes, NodeLease, NodeRecord, NodeState, Record, State, StateError, Typed, Watch};
use node::NodeLife;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::monotonic_now;
use tokio::sync::oneshot;
use types::{Monotonic, NodeId, Repeated};

/// How long the thread sleeps at most: verdicts may pass by without an event that was kept.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The lease grows with each heartbeat; the data plane is told no more often than so.
const LEASE_STEP: Duration = Duration::from_millis(50);
/// A life that a server records while it is held dead: if the verdict stands for so long, it is about that life.
const VERDICT_STANDS: Duration = Duration::from_secs(1);

/// Why this server cannot be a node of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum LivenessError {
    #[error("heartbeats (UDP) {address} cannot be listened on: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("heartbeats: {0}")]
    Io(#[from] std::io::Error),
    #[error("the state has no records of this server's cluster")]
    NoCluster,
    #[error("the bus secret on record of server {0} is none")]
    Secret(NodeId),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// What the thread and the data plane share.
#[derive(Clone, Default)]
pub struct Shared {
    /// The machine accounts of all nodes.
    pub accounts: NodeAccounts,
    /// Until when this node may answer for its volumes, in nanoseconds of [`Monotonic`].
    pub lease_until: Arc<AtomicU64>,
    /// Whether each other server lives, if heartbeats tell.
    lives: Arc<Mutex<BTreeMap<NodeId, bool>>>,
}

impl Shared {
    /// Whether another server lives, if heartbeats tell.
    pub fn is_up(&self, node: NodeId) -> Option<bool> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    fn set_lives(&self, verdicts: &BTreeMap<NodeId, Verdict>) {
        let is_sure = |verdict: &Verdict| !matches!(verdict, Verdict::Suspect { .. });
        let sure = verdicts.iter().filter(|(_, verdict)| is_sure(verdict));
        let lives = sure.map(|(node, verdict)| (*node, verdict.is_up())).collect();
        *self.lives.lock().unwrap_or_else(PoisonError::into_inner) = lives;
    }
}

/// What it works with.
pub struct LivenessParts {
    pub facts: Facts,
    pub state: State,
    pub key: Arc<SealKey>,
    pub control: ControlHandle,
    pub pulse: Pulse,
    pub shared: Shared,
    /// Of the cluster's port; UDP has the same.
    pub listen: SocketAddr,
}

/// See the module. Dropping it ends both threads.
pub struct Liveness {
    stopped: Arc<AtomicBool>,
    wake: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Liveness {
    /// Begins to send heartbeats, and to tell the data plane of the others.
    ///
    /// # Errors
    /// [`LivenessError`].
    pub fn start(parts: LivenessParts) -> Result<Self, LivenessError> {
        let LivenessParts { facts, state, key, control, pulse, shared, listen } = parts;
        let cluster = ClusterRecord::find(&state)?.ok_or(LivenessError::NoCluster)?.value;
        let socket =
            UdpSocket::bind(listen).map_err(|source| LivenessError::Listen { address: listen, source })?;
        let (wake, woken) = mpsc::channel();
        let options = Options {
            me: facts.node,
            incarnation: Incarnation(random()?),
            // Eight of its bytes tell clusters apart as well as all of them.
            cluster: cluster.id.as_u64_pair().0,
            key: HeartbeatKey::derive(&cluster.open_heartbeat_key(&key)?),
            timing: Timing::default(),
        };
        let surroundings = surroundings(pulse, control.clone(), shared.lease_until.clone(), wake.clone());
        let heartbeats = Heartbeats::start(options, socket, Vec::new(), surroundings)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let on_change = wake.clone();
        let watch = state.watch_with("", move || {
            // The thread has ended.
            let _ = on_change.send(());
        });
        let following = Following {
            me: facts.node,
            state,
            key,
            control,
            shared,
            heartbeats,
            watch,
            is_due: true,
            members: Vec::new(),
            lives: BTreeMap::new(),
            dead: BTreeMap::new(),
            confirmed: 0,
            told: BTreeMap::new(),
            unreadable: Repeated::default(),
        };
        let is_stopped = stopped.clone();
        let thread = std::thread::Builder::new().name("cluster-nodes".into());
        let thread = Some(thread.spawn(move || following.run(&woken, &is_stopped))?);
        Ok(Self { stopped, wake, thread })
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // It may have ended.
        let _ = self.wake.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn surroundings(
    pulse: Pulse,
    control: ControlHandle,
    lease_until: Arc<AtomicU64>,
    wake: mpsc::Sender<()>,
) -> Surroundings {
    let (poke, step) = (control.clone(), LEASE_STEP.as_nanos() as u64);
    Surroundings {
        turns: Box::new(move || pulse.turns()),
        poke: Box::new(move || poke.wake()),
        wake: Box::new(move || {
            // The thread has ended.
            let _ = wake.send(());
        }),
        answer_until: Box::new(move |until| {
            // One that nobody else has a say on would never end, and another server may join.
            let until = until.min(monotonic_now().after(Timing::default().lease));
            if until.0 >= lease_until.load(Ordering::Acquire).saturating_add(step) {
                lease_until.store(until.0, Ordering::Release);
                control.wake();
            }
        }),
    }
}

fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| std::io::Error::other("the kernel has no random bytes"))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// The life of a server that is held dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dead {
    /// 0: none is recorded.
    life: u64,
    /// Until when it may still answer for its volumes.
    lease_until: Monotonic,
    /// A life that was recorded later, and when it was seen.
    later: Option<(u64, Monotonic)>,
}

struct Following {
    me: NodeId,
    state: State,
    key: Arc<SealKey>,
    control: ControlHandle,
    shared: Shared,
    heartbeats: Heartbeats,
    watch: Watch,
    /// The records are to be read.
    is_due: bool,
    members: Vec<NodeRecord>,
    /// The last life of each server that is recorded.
    lives: BTreeMap<NodeId, u64>,
    dead: BTreeMap<NodeId, Dead>,
    /// The last term that was confirmed.
    confirmed: u64,
    told: BTreeMap<NodeId, NodeLife>,
    unreadable: Repeated,
}

fn concerns(changes: &Changes) -> bool {
    let is_one = |key: &String| key.starts_with(NodeRecord::PREFIX) || key.starts_with(NodeLease::PREFIX);
    changes.started_over || changes.keys.keys().any(is_one)
}

impl Following {
    fn run(mut self, woken: &mpsc::Receiver<()>, stopped: &AtomicBool) {
        while !stopped.load(Ordering::Acquire) {
            self.is_due |= self.watch.take().is_some_and(|changes| concerns(&changes));
            if self.is_due {
                match self.read() {
                    Ok(()) => {
                        self.is_due = false;
                        self.unreadable.note_success();
                    }
                    Err(error) if self.unreadable.note_failure() => {
                        tracing::warn!(%error, "the records of the cluster's servers cannot be read; it is tried again");
                    }
                    Err(_) => {}
                }
            }
            // What the verdicts are told about is what was read at least once.
            if !self.members.is_empty() {
                self.confirm();
                self.tell();
            }
            if woken.recv_timeout(LOOK_EVERY).is_ok() {
                while woken.try_recv().is_ok() {}
            }
        }
    }

    /// Reads the records, and tells of servers that came, went or changed.
    fn read(&mut self) -> Result<(), LivenessError> {
        let members: Vec<NodeRecord> =
            nodes::members(&self.state)?.into_iter().map(|member| member.value).collect();
        let lives = self.state.list::<NodeLease>()?;
        self.lives = lives.into_iter().map(|life| (life.value.node, life.value.incarnation)).collect();
        if members == self.members {
            return Ok(());
        }
        let mut secrets = BTreeMap::new();
        for member in &members {
            let opened = member.open_bus_secret(&self.key)?;
            let secret: [u8; 32] =
                opened.as_slice().try_into().map_err(|_| LivenessError::Secret(member.id))?;
            secrets.insert(member.id, Secret::new(secret));
        }
        self.shared.accounts.set(secrets.iter().map(|(node, secret)| (*node, secret)), false);
        let (reply, _) = oneshot::channel();
        self.control.send(Command::DirectoryChanged { reply });
        let others = members.iter().filter(|member| member.id != self.me);
        // A witness has no disks.
        let with_disks = others.clone().filter(|member| !member.is_witness);
        let peer = |member: &NodeRecord| {
            Some(Peer {
                node: member.id,
                addresses: vec![member.smb],
                rdma: Vec::new(),
                account: bus::account_name(self.me),
                secret: secrets.get(&self.me)?.clone(),
            })
        };
        let peers = with_disks.filter_map(peer).collect();
        self.control.send(ClusterCommand::Peers(peers).into());
        let heard = others.map(|member| Member { node: member.id, address: member.heartbeat });
        self.heartbeats.set_members(heard.collect());
        self.members = members;
        Ok(())
    }

    /// Begins to answer in a new term once the lease of the term before is over.
    fn confirm(&mut self) {
        let Some(term) = self.heartbeats.unconfirmed_term() else { return };
        let lease_until = Monotonic(self.shared.lease_until.load(Ordering::Acquire));
        if term > self.confirmed && lease_until <= monotonic_now() {
            self.confirmed = term;
            tracing::info!(term, "a majority of the servers lets this one answer for its volumes");
            self.heartbeats.confirm(term);
        }
    }

    /// Tells the data plane who lives, if that has changed.
    fn tell(&mut self) {
        let verdicts = self.heartbeats.peers().verdicts;
        self.shared.set_lives(&verdicts);
        let now = monotonic_now();
        self.dead.retain(|node, _| verdicts.get(node).is_some_and(Verdict::is_down));
        let mut nodes = BTreeMap::new();
        // A witness votes, and is no node of the data plane.
        for member in self.members.iter().filter(|member| !member.is_witness) {
            let mut life = NodeLife {
                is_up: true,
                takes_volumes: member.state == NodeState::Up,
                lease_until: Monotonic(0),
                incarnation: None,
            };
            if let Some(Verdict::Down { lease_ends, .. }) = verdicts.get(&member.id) {
                let recorded = self.lives.get(&member.id).copied().unwrap_or_default();
                let new = Dead { life: recorded, lease_until: *lease_ends, later: None };
                let dead = self.dead.entry(member.id).or_insert(new);
                dead.heed(new, now);
                life.is_up = false;
                life.incarnation = Some(dead.life);
                life.lease_until = dead.lease_until;
            }
            nodes.insert(member.id, life);
        }
        if nodes != self.told {
            self.told.clone_from(&nodes);
            self.control.send(ClusterCommand::Nodes(nodes).into());
        }
    }
}

impl Dead {
    /// Takes notice of the life that is on record by now, and of what the verdict says of its lease.
    fn heed(&mut self, now_recorded: Self, now: Monotonic) {
        match self.later {
            _ if now_recorded.life == self.life => self.later = None,
            Some((life, since)) if life == now_recorded.life => {
                if now.since(since) >= VERDICT_STANDS {
                    *self = now_recorded;
                }
            }
            _ => self.later = Some((now_recorded.life, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_about_a_later_life_only_once_it_has_stood() {
        let (second, recorded) =
            (Duration::from_secs(1), |life, lease| Dead { life, lease_until: Monotonic(lease), later: None });
        let mut dead = recorded(3, 10);
        let begun = Monotonic(0);
        dead.heed(recorded(3, 20), begun);
        assert_eq!((dead.life, dead.lease_until), (3, Monotonic(10)), "the first word on its lease counts");
        dead.heed(recorded(4, 30), begun);
        dead.heed(recorded(4, 30), begun.after(second / 2));
        assert_eq!(dead.life, 3, "it may be back: the verdict may be about to change");
        dead.heed(recorded(5, 40), begun.after(second));
        dead.heed(recorded(5, 40), begun.after(second * 3 / 2));
        assert_eq!(dead.life, 3, "that is yet another life");
        dead.heed(recorded(5, 50), begun.after(second * 2));
        assert_eq!((dead.life, dead.lease_until), (5, Monotonic(50)));
    }
}
