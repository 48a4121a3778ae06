//! The rest of this server for the cluster side, which makes the server a node here.

use super::{Liveness, LivenessError, LivenessParts, Shared};
use crate::control::{ClusterCommand, ClusterOptions, ControlHandle};
use crate::dataplane::show_peer;
use api::cluster::BusPeer;
use api::{Answer, ApiError, ErrorKind};
use heartbeat::Timing;
use heartbeat::shell::{Retreat, Standing};
use member::OwnServer;
use member::identity::Facts;
use node::pulse::Pulse;
use records::State;
use records::seal::SealKey;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::listen;
use tokio::sync::oneshot;
use types::NodeId;

/// Everything that a [`DaemonServer`] works with.
pub struct ServerParts {
    /// Way to the data plane.
    pub control: ControlHandle,
    /// Records, of the server or of its cluster.
    pub state: State,
    /// Key that seals the secrets in the records.
    pub key: Arc<SealKey>,
    /// Heartbeat of the data plane's loop.
    pub pulse: Pulse,
    /// State that heartbeats and data plane share.
    pub heartbeats: Shared,
    /// Address of the cluster's port, if wanted.
    pub listen: Option<SocketAddr>,
    /// Other servers' disks are reached by SMB Direct if those serve it.
    pub bus_by_rdma: bool,
    /// Connections to each other server; 0: one for each network path.
    pub bus_channels: u32,
}

/// See the module.
pub struct DaemonServer {
    /// The data directory.
    data: PathBuf,
    parts: ServerParts,
    /// The server is a node of a cluster.
    has_bus: AtomicBool,
    liveness: Mutex<Option<Liveness>>,
    /// The port of a server that is about to be in a cluster.
    port: Mutex<Option<TcpListener>>,
}

fn ended(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Internal, error.to_string())
}

/// Returns the options that make the data plane a node's.
pub fn cluster_options(facts: &Facts, shared: &Shared, channels: u32) -> ClusterOptions {
    let channels = Some(channels as usize).filter(|wanted| *wanted > 0);
    ClusterOptions {
        node: facts.node,
        name: facts.name.clone(),
        lease: Timing::default().lease,
        bus: bus::RemoteOptions { nodes: shared.accounts.clone(), channels, ..bus::RemoteOptions::default() },
        heartbeats: shared.link.clone(),
    }
}

impl DaemonServer {
    /// Makes the server's side for the cluster; heartbeats begin later.
    pub fn new(data: PathBuf, parts: ServerParts) -> Self {
        Self {
            data,
            parts,
            has_bus: AtomicBool::new(false),
            liveness: Mutex::default(),
            port: Mutex::default(),
        }
    }

    /// Begins heartbeats with the other servers of the cluster.
    ///
    /// # Errors
    /// [`LivenessError`].
    pub fn begin_liveness(&self, facts: Facts) -> Result<(), LivenessError> {
        let ServerParts { control, state, key, pulse, heartbeats, listen, bus_by_rdma, .. } = &self.parts;
        let liveness = Liveness::start(LivenessParts {
            facts,
            data: self.data.clone(),
            state: state.clone(),
            key: key.clone(),
            control: control.clone(),
            pulse: pulse.clone(),
            shared: heartbeats.clone(),
            listen: listen.ok_or(LivenessError::NoAddress)?,
            bus_by_rdma: *bus_by_rdma,
        })?;
        *self.liveness.lock().unwrap_or_else(PoisonError::into_inner) = Some(liveness);
        self.has_bus.store(true, Ordering::Release);
        Ok(())
    }

    /// Announces this server's end to the others.
    pub fn end_liveness(&self) {
        let liveness = self.liveness.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(liveness);
    }

    /// The cluster's port of a server that has become a node.
    pub fn take_port(&self) -> Option<TcpListener> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn ready_now(&self) -> Result<(), ApiError> {
        let address = self.parts.listen.ok_or_else(|| ended(LivenessError::NoAddress))?;
        let refused = |why: String| ApiError::new(ErrorKind::Conflict, why);
        let bound = tokio::task::spawn_blocking(move || {
            let port = listen("the cluster's port", address).map_err(|error| refused(error.to_string()))?;
            let heartbeats = UdpSocket::bind(address).map(|_| port);
            heartbeats.map_err(|source| refused(LivenessError::Listen { address, source }.to_string()))
        });
        let port = bound.await.map_err(ended)??;
        let ready = self.parts.control.call(|reply| ClusterCommand::ReadyToJoin { reply }).await;
        ready.map_err(|error| refused(error.message))?;
        *self.port.lock().unwrap_or_else(PoisonError::into_inner) = Some(port);
        Ok(())
    }

    async fn join_now(&self, facts: Facts) -> Result<(), ApiError> {
        let (state, node, name) = (self.parts.state.clone(), facts.node, facts.name.clone());
        // Adopt the records before any request for a disk's node.
        let adopted = tokio::task::spawn_blocking(move || node::adopt_records(&state, node, &name));
        adopted.await.map_err(ended)?.map_err(ended)?;
        let options = Box::new(cluster_options(&facts, &self.parts.heartbeats, self.parts.bus_channels));
        let (reply, joined) = oneshot::channel();
        if !self.parts.control.send(ClusterCommand::Join { options, reply }.into()) {
            return Err(ended("the data plane has ended"));
        }
        // Messages of the heartbeats reach the data plane behind the command.
        self.begin_liveness(facts).map_err(ended)?;
        joined.await.map_err(ended)?.map_err(ended)
    }
}

impl OwnServer for DaemonServer {
    fn pools(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let snapshot = self.parts.control.figures().await.map_err(ended)?;
            Ok(snapshot.pools.into_iter().map(|pool| pool.name).collect())
        })
    }

    fn bus(&self) -> Answer<'_, Vec<BusPeer>> {
        Box::pin(async move {
            if !self.has_bus.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            let (reply, answer) = oneshot::channel();
            self.parts.control.send(ClusterCommand::Bus { reply }.into());
            Ok(answer.await.map_err(ended)?.iter().map(show_peer).collect())
        })
    }

    fn is_up(&self, node: NodeId) -> Option<bool> {
        self.parts.heartbeats.is_up(node)
    }

    fn survived(&self, node: NodeId) -> Option<u64> {
        self.parts.heartbeats.survived(node)
    }

    fn standing(&self) -> Option<Standing> {
        self.parts.heartbeats.link.standing(sys::monotonic_now())
    }

    fn retreating(&self) -> Retreat {
        self.parts.heartbeats.link.retreating()
    }

    fn hush(&self, is_hushed: bool) {
        self.parts.heartbeats.link.hush(is_hushed);
    }

    fn note_vote(&self, votes: bool) {
        self.parts.heartbeats.link.note_vote(votes);
    }

    fn ready_to_join(&self) -> Answer<'_, ()> {
        Box::pin(self.ready_now())
    }

    fn stay(&self) {
        drop(self.take_port());
        self.parts.control.send(ClusterCommand::Stay.into());
    }

    fn join(&self, facts: Facts) -> Answer<'_, ()> {
        Box::pin(self.join_now(facts))
    }
}
