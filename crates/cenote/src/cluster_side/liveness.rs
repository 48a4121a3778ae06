//! Liveness of servers: heartbeats with the others, and reports of them to the data plane.
//!
//! Owns the heartbeats and the thread that follows the servers' records. Promises: reports a server as
//! down only by a majority's verdict. The lease goes from the heartbeats straight to the data plane
//! ([`HeartbeatLink`]). Never decides on a volume's owner; a report from here does not fence a former
//! owner's answers.

use crate::control::{ClusterCommand, Command, ControlHandle};
use bus::{NodeAccounts, Peer};
use heartbeat::shell::{HeartbeatLink, Heartbeats, Peers, Surroundings};
use heartbeat::{Dead, HeartbeatKey, Incarnation, Member, Options, Timing, Verdict};
use member::identity::{Facts, Identity, IdentityError};
use node::NodeLife;
use node::pulse::Pulse;
use records::nodes::{self, ClusterRecord, Sealed};
use records::seal::{SealError, SealKey};
use records::{Changes, NodeLease, NodeRecord, NodeState, Record, State, StateError, Typed, Watch};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::monotonic_now;
use tokio::sync::oneshot;
use trust::node_trust::{NodeTrust, OwnPapers, TrustError};
use types::{Monotonic, NodeId, Repeated};

/// Longest sleep of the thread: verdicts may pass without an event.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval between checks for a renewed certificate.
const LOOK_FOR_CERTIFICATE: Duration = Duration::from_secs(1);
/// Least age of a verdict that applies to a life recorded while the server counted as dead.
const VERDICT_STANDS: Duration = Duration::from_secs(1);

/// Why this server cannot be a node of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum LivenessError {
    /// The UDP socket of heartbeats cannot be bound to `address`.
    #[error("heartbeats (UDP) {address} cannot be listened on: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// The configuration names no `cluster.listen`.
    #[error("a server in a cluster needs cluster.listen in its configuration")]
    NoAddress,
    /// A socket or thread of the heartbeats cannot be made.
    #[error("heartbeats: {0}")]
    Io(#[from] std::io::Error),
    /// The records have no cluster, and the server's files name one.
    #[error("the state has no records of this server's cluster")]
    NoCluster,
    /// The directory of the identity is missing.
    #[error("the files of this server's cluster are gone")]
    NoFiles,
    /// The files of the cluster cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The server's certificate or key is refused.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The records cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The heartbeats' secret cannot be unsealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// State that the thread and the data plane share.
#[derive(Clone, Default)]
pub struct Shared {
    /// The nodes that may use the bus, and their certificates.
    pub accounts: NodeAccounts,
    /// State that the heartbeats and the data plane share.
    pub link: HeartbeatLink,
}

impl Shared {
    /// Returns whether another server lives, if heartbeats tell.
    pub fn is_up(&self, node: NodeId) -> Option<bool> {
        match self.link.peers().verdicts.get(&node)? {
            Verdict::Suspect { .. } => None,
            verdict => Some(verdict.is_up()),
        }
    }

    /// How often a majority took a running process of another server for dead; `None`: unknown to
    /// heartbeats.
    pub fn survived(&self, node: NodeId) -> Option<u64> {
        self.link.peers().survived.get(&node).copied()
    }
}

/// Everything that [`Liveness`] works with.
pub struct LivenessParts {
    /// Identity of the server in its cluster.
    pub facts: Facts,
    /// The data directory, whose certificate the node shows.
    pub data: PathBuf,
    /// Records of the cluster.
    pub state: State,
    /// Key that unseals secrets in the records.
    pub key: Arc<SealKey>,
    /// Channel to the data plane, for peers and verdicts.
    pub control: ControlHandle,
    /// Heartbeat of the data plane's loop: this server is silent when the loop hangs.
    pub pulse: Pulse,
    /// State shared with the data plane, made before either begins.
    pub shared: Shared,
    /// Address of the cluster's port; UDP has the same.
    pub listen: SocketAddr,
    /// Other servers' disks are reached by SMB Direct where they serve it.
    pub bus_by_rdma: bool,
}

/// See the module. Dropping it ends both threads.
pub struct Liveness {
    stopped: Arc<AtomicBool>,
    wake: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Liveness {
    /// Begins heartbeats, and reports of the others to the data plane.
    ///
    /// # Errors
    /// [`LivenessError`].
    pub fn start(parts: LivenessParts) -> Result<Self, LivenessError> {
        let LivenessParts { facts, data, state, key, control, pulse, shared, listen, bus_by_rdma } = parts;
        let cluster = ClusterRecord::find(&state)?.ok_or(LivenessError::NoCluster)?.value;
        let socket =
            heartbeat::bind(listen).map_err(|source| LivenessError::Listen { address: listen, source })?;
        let (wake, woken) = mpsc::channel();
        let options = Options {
            me: facts.node,
            incarnation: Incarnation(random()?),
            // Eight of its bytes distinguish clusters as well as all of them.
            cluster: cluster.id.as_u64_pair().0,
            key: HeartbeatKey::derive(&cluster.open_heartbeat_key(&key)?),
            timing: Timing::default(),
        };
        let surroundings = surroundings(pulse, control.clone(), wake.clone());
        let heartbeats = Heartbeats::start(options, socket, shared.link.clone(), None, surroundings)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let on_change = wake.clone();
        let watch = state.watch_with("", move || {
            // The thread has ended.
            let _ = on_change.send(());
        });
        let following = Following {
            me: facts.node,
            data,
            state,
            key,
            control,
            shared,
            heartbeats,
            watch,
            is_due: true,
            heartbeat_key: cluster.heartbeat_key,
            shown: None,
            bus_by_rdma,
            peers: Vec::new(),
            members: Vec::new(),
            lives: BTreeMap::new(),
            dead: BTreeMap::new(),
            told: BTreeMap::new(),
            unreadable: Repeated::default(),
            unshown: Repeated::default(),
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
        // Fails if the thread has ended.
        let _ = self.wake.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn surroundings(pulse: Pulse, control: ControlHandle, wake: mpsc::Sender<()>) -> Surroundings {
    Surroundings {
        turns: Box::new(move || pulse.turns()),
        poke: Box::new(move || control.wake()),
        wake: Box::new(move || {
            // The thread has ended.
            let _ = wake.send(());
        }),
    }
}

fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| std::io::Error::other("the kernel has no random bytes"))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

struct Following {
    me: NodeId,
    data: PathBuf,
    state: State,
    key: Arc<SealKey>,
    control: ControlHandle,
    shared: Shared,
    heartbeats: Heartbeats,
    watch: Watch,
    /// The records have to be read.
    is_due: bool,
    members: Vec<NodeRecord>,
    /// Key that signs heartbeats.
    heartbeat_key: Sealed,
    /// Time of the last check of the certificate that this node shows, and whether it was the one on record.
    shown: Option<(Monotonic, bool)>,
    bus_by_rdma: bool,
    /// The peers as last reported to the data plane.
    peers: Vec<Peer>,
    /// The last life of each server that is recorded.
    lives: BTreeMap<NodeId, u64>,
    dead: BTreeMap<NodeId, Dead>,
    told: BTreeMap<NodeId, NodeLife>,
    unreadable: Repeated,
    unshown: Repeated,
}

fn concerns(changes: &Changes) -> bool {
    let prefixes = [ClusterRecord::PREFIX, NodeRecord::PREFIX, NodeLease::PREFIX];
    changes.started_over
        || changes.keys.keys().any(|key| prefixes.iter().any(|prefix| key.starts_with(prefix)))
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
            // The verdicts are about records: wait until they were read once.
            if !self.members.is_empty() {
                self.try_to_tell_certificates();
                self.tell_peers();
                self.tell();
            }
            if woken.recv_timeout(LOOK_EVERY).is_ok() {
                while woken.try_recv().is_ok() {}
            }
        }
    }

    fn try_to_tell_certificates(&mut self) {
        match self.tell_certificates() {
            Ok(()) => drop(self.unshown.note_success()),
            Err(error) => {
                self.shown = Some((monotonic_now(), false));
                if self.unshown.note_failure() {
                    tracing::warn!(%error, "this server has no certificate to show to the others; it looks again");
                }
            }
        }
    }

    /// Reads the records, and logs servers that came, went or changed.
    fn read(&mut self) -> Result<(), LivenessError> {
        let members: Vec<NodeRecord> =
            nodes::members(&self.state)?.into_iter().map(|member| member.value).collect();
        let lives = self.state.list::<NodeLease>()?;
        self.lives = lives.into_iter().map(|life| (life.value.node, life.value.incarnation)).collect();
        let cluster = ClusterRecord::find(&self.state)?.ok_or(LivenessError::NoCluster)?.value;
        if cluster.heartbeat_key != self.heartbeat_key {
            self.heartbeats.set_key(HeartbeatKey::derive(&cluster.open_heartbeat_key(&self.key)?));
            self.heartbeat_key = cluster.heartbeat_key;
            tracing::info!("a server has left: heartbeats have another key from now on");
        }
        if members == self.members {
            return Ok(());
        }
        let others = members.iter().filter(|member| member.id != self.me);
        let heard = others.map(|member| Member { node: member.id, address: member.heartbeat });
        self.heartbeats.set_members(heard.collect());
        self.members = members;
        self.shown = None;
        Ok(())
    }

    /// Gives the SMB server and the bus the nodes' certificates, and this one's own: when the records
    /// change, and when a certificate already on record arrives here.
    fn tell_certificates(&mut self) -> Result<(), LivenessError> {
        let now = monotonic_now();
        if self.shown.is_some_and(|(at, is_last)| is_last || now.since(at) < LOOK_FOR_CERTIFICATE) {
            return Ok(());
        }
        let Identity { facts, certificate, authority, key, .. } =
            Identity::open(&self.data)?.ok_or(LivenessError::NoFiles)?;
        let papers = OwnPapers { certificate: &certificate, authority: &authority, key: &key };
        let trust = NodeTrust::new(facts.id, self.me, &papers, &self.members)?;
        let own = self.members.iter().find(|member| member.id == self.me);
        let is_last = own.is_none_or(|own| trust.shows(own));
        self.shared.accounts.set(trust, false);
        let (reply, _) = oneshot::channel();
        self.control.send(Command::DirectoryChanged { reply });
        self.shown = Some((now, is_last));
        Ok(())
    }

    /// Gives the data plane the addresses of the others, if they have changed.
    fn tell_peers(&mut self) {
        // A witness has no disks.
        let others = self.members.iter().filter(|member| member.id != self.me && !member.is_witness);
        let peer = |member: &NodeRecord| Peer {
            node: member.id,
            name: member.name.clone(),
            addresses: bus::at_each(Some(member.smb), &member.addresses),
            rdma: bus::at_each(member.rdma.filter(|_| self.bus_by_rdma), &member.addresses),
        };
        let peers: Vec<Peer> = others.map(peer).collect();
        if peers != self.peers {
            self.control.send(ClusterCommand::Peers(peers.clone()).into());
            self.peers = peers;
        }
    }

    /// Reports changes of the live nodes to the data plane.
    fn tell(&mut self) {
        let Peers { verdicts, cut_off, .. } = self.heartbeats.peers();
        let now = monotonic_now();
        self.dead.retain(|node, _| verdicts.get(node).is_some_and(Verdict::is_down));
        let mut nodes = BTreeMap::new();
        // A witness votes, and is no node of the data plane.
        for member in self.members.iter().filter(|member| !member.is_witness) {
            let mut life = NodeLife {
                is_up: true,
                is_reached: !cut_off.contains(&member.id),
                takes_volumes: member.state == NodeState::Up,
                incarnation: None,
            };
            if verdicts.get(&member.id).is_some_and(Verdict::is_down) {
                let recorded = self.lives.get(&member.id).copied().unwrap_or_default();
                let dead = self.dead.entry(member.id).or_insert(Dead::new(recorded));
                dead.heed(recorded, now, VERDICT_STANDS);
                (life.is_up, life.is_reached) = (false, true);
                life.incarnation = Some(dead.life());
            }
            nodes.insert(member.id, life);
        }
        if nodes != self.told {
            self.told.clone_from(&nodes);
            self.control.send(ClusterCommand::Nodes(nodes).into());
        }
    }
}
