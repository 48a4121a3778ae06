//! `cenote witness serve`: a small machine that votes, so that a cluster of two servers survives the death of one.
//!
//! Owns its data directory. It runs a member of etcd, exchanges heartbeats, and answers on the
//! cluster's port; it has no disks, no SMB server and no API. Promises: it listens on one address, with
//! the ports of the cluster and of etcd only; it joins once, by a token, and needs none after that.

use crate::cluster_side::{Liveness, LivenessParts, Shared};
use crate::control::{Command, channel_with};
use crate::daemon::{DaemonError, DataDirectory};
use crate::service_manager::{self, StopSignals};
use api::asynchronous;
use api::cluster::{BusPeer, JoinCluster};
use api::{Answer, ApiError, ClusterManagement, ErrorKind};
use cli::args::WitnessServe;
use member::identity::Facts;
use member::{ClusterControl, ClusterKeys, ClusterParts, EnginePlaces, Identity, OtherEtcd, OwnServer};
use node::pulse::Pulse;
use records::State;
use records::seal::SealKey;
use sd_notify::NotifyState;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use sys::listen;
use types::NodeId;
use uuid::Uuid;

/// File of the single server before the join, empty of data.
const STATE_FILE: &str = "state.redb";
const KEY_FILE: &str = "secret.key";

/// A witness's own server, which has no pools.
struct Witness {
    heartbeats: Shared,
}

impl OwnServer for Witness {
    fn pools(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn bus(&self) -> Answer<'_, Vec<BusPeer>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn is_up(&self, node: NodeId) -> Option<bool> {
        self.heartbeats.is_up(node)
    }
    fn note_vote(&self, votes: bool) {
        self.heartbeats.link.note_vote(votes);
    }
    fn ready_to_join(&self) -> Answer<'_, ()> {
        let why = "a witness has no disks: it joins a cluster, and founds none";
        Box::pin(async move { Err(ApiError::new(ErrorKind::Conflict, why)) })
    }
    fn stay(&self) {}
    fn join(&self, _: Facts) -> Answer<'_, ()> {
        self.ready_to_join()
    }
}

/// Joins if it has not yet, and serves until it is stopped.
///
/// # Errors
/// Why it does not start, or ended.
pub fn serve(options: &WitnessServe, data: &Path) -> Result<(), DaemonError> {
    let directory = DataDirectory::open_or_create(data)?;
    let listener = listen("the cluster's port", options.listen)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| DaemonError::Io { what: "event loop".into(), source })?;
    let ended = runtime.block_on(async {
        if Identity::open(directory.path())?.is_none() {
            join(options, &directory, &listener).await?;
        }
        let identity = member::open_identity(directory.path())?;
        let identity = identity.ok_or_else(|| DaemonError::Setup("the join left no identity".into()))?;
        if !identity.facts.is_witness {
            return Err(DaemonError::Setup(format!(
                "{} is the data directory of server '{}' of cluster {}: a witness has one of its own",
                directory.path().display(),
                identity.facts.name,
                identity.facts.cluster
            )));
        }
        attend(options, &directory, listener, identity).await
    });
    // Abandons tasks that still wait for the cluster's state, perhaps of one that removed this witness.
    runtime.shutdown_background();
    ended
}

fn keys(options: &WitnessServe, listener: &TcpListener) -> ClusterKeys {
    ClusterKeys {
        name: options.name.clone(),
        server_guid: Uuid::new_v4(),
        listen: listener.local_addr().ok(),
        addresses: Vec::new(),
        smb: Vec::new(),
        rdma: Vec::new(),
        // A witness has no API to connect to.
        api: SocketAddr::from(([127, 0, 0, 1], 0)),
        rack: String::new(),
        chassis: String::new(),
        is_witness: true,
        uses_other_etcd: false,
    }
}

fn places(options: &WitnessServe, directory: &DataDirectory) -> EnginePlaces {
    EnginePlaces {
        file: directory.join(STATE_FILE),
        program: options.etcd_program.clone().unwrap_or_default(),
        other: OtherEtcd::default(),
    }
}

async fn join(
    options: &WitnessServe,
    directory: &DataDirectory,
    listener: &TcpListener,
) -> Result<(), DaemonError> {
    let Some(token) = options.token.read().map_err(DaemonError::Setup)? else {
        return Err(DaemonError::Setup(
            "it is in no cluster yet: give a token (--join-token-file FILE), which `cenote cluster token` prints on a server of the cluster".into(),
        ));
    };
    let places = places(options, directory);
    let key = Arc::new(SealKey::open_or_create(&directory.join(KEY_FILE))?);
    let (state, engine) = member::open_state(None, &places)?;
    let parts = ClusterParts {
        data: directory.path().to_owned(),
        keys: keys(options, listener),
        state,
        key,
        engine,
        server: Arc::new(Witness { heartbeats: Shared::default() }),
    };
    let control = ClusterControl::new(parts, None)?;
    let request = JoinCluster { address: options.join.clone(), token };
    let joined = control.join(request).await.map_err(|error| DaemonError::Setup(error.message))?;
    tracing::info!(cluster = joined.cluster, name = joined.name, "the witness joined");
    drop(control);
    for name in [STATE_FILE, KEY_FILE] {
        // The files are of no use any more; one that stays does no harm.
        let _ = std::fs::remove_file(directory.join(name));
    }
    Ok(())
}

/// Votes until SIGTERM or SIGINT.
async fn attend(
    options: &WitnessServe,
    directory: &DataDirectory,
    listener: TcpListener,
    identity: Identity,
) -> Result<(), DaemonError> {
    let mut stop =
        StopSignals::listen().map_err(|source| DaemonError::Io { what: "SIGTERM".into(), source })?;
    let opening = open(options, directory, &listener, identity);
    let (control, liveness, name) = tokio::select! {
        opened = opening => opened?,
        () = stop.come() => return Ok(()),
    };
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(credentials) = control.credentials() {
        tasks.spawn(member::serve(asynchronous(listener)?, credentials, control.clone()));
    }
    tasks.spawn(member::keep(control.clone()));
    println!("witness '{name}' serves on {}\nready", options.listen);
    service_manager::tell(NotifyState::Ready);
    let removal = control.restart();
    let removed = tokio::select! {
        () = stop.come() => None,
        () = removal.notified() => control.removed(),
    };
    service_manager::tell(NotifyState::Stopping);
    tasks.abort_all();
    drop(liveness);
    removed.map_or(Ok(()), |why| Err(DaemonError::Setup(why)))
}

/// Opens the state, which waits until most of etcd's members answer, and begins heartbeats.
async fn open(
    options: &WitnessServe,
    directory: &DataDirectory,
    listener: &TcpListener,
    identity: Identity,
) -> Result<(Arc<ClusterControl>, Liveness, String), DaemonError> {
    let (places, keys, data) =
        (places(options, directory), keys(options, listener), directory.path().to_owned());
    let opened = tokio::task::spawn_blocking(move || {
        let key = Arc::new(identity.seal_key()?);
        let (state, engine) = member::open_state(Some(&identity), &places)?;
        let heartbeats = Shared::default();
        let liveness = begin_liveness(&data, &identity, &state, &key, &heartbeats, keys.listen)?;
        let name = identity.facts.name.clone();
        let server = Arc::new(Witness { heartbeats });
        let parts = ClusterParts { data, keys, state, key, engine, server };
        Ok((ClusterControl::new(parts, Some(identity))?, liveness, name))
    });
    opened.await.map_err(|_| DaemonError::Setup("the opening was interrupted".into()))?
}

/// Heartbeats without a data plane: commands to it are dropped, and it always shows a sign of life.
fn begin_liveness(
    data: &Path,
    identity: &Identity,
    state: &State,
    key: &Arc<SealKey>,
    shared: &Shared,
    listen: Option<SocketAddr>,
) -> Result<Liveness, DaemonError> {
    let pulse = Pulse::default();
    let beating = pulse.clone();
    let (control, commands) = channel_with(Arc::new(move || beating.beat()));
    let drain = std::thread::Builder::new().name("witness-idle".into());
    let drained = drain.spawn(move || {
        while let Ok(command) = commands.recv() {
            if let Command::DirectoryChanged { reply } = command {
                // The caller may have stopped waiting.
                let _ = reply.send(Ok(()));
            }
        }
    });
    drained.map_err(|source| DaemonError::Io { what: "a thread".into(), source })?;
    let listen = listen.ok_or_else(|| DaemonError::Setup("the cluster's port has no address".into()))?;
    // A witness sends no data to servers, and does without those that cannot.
    shared.link.note_reach(true);
    let parts = LivenessParts {
        facts: identity.facts.clone(),
        data: data.to_owned(),
        state: state.clone(),
        key: key.clone(),
        control,
        pulse,
        shared: shared.clone(),
        listen,
        bus_by_rdma: false,
    };
    Ok(Liveness::start(parts)?)
}
