//! One running server: starts its data directory, state, data plane and API, and stops them in order.
//!
//! Owns the data directory. Promises: nothing in it is touched before its lock is held, so that a
//! second instance is refused; ports are bound before any disk is opened; a stop finishes acknowledged
//! work, or reports that it failed.

use crate::cluster_side::{self, DaemonServer, ServerParts, Shared, cluster_options};
use crate::config::Config;
use crate::control::{Command, CommandError, ControlHandle, DataPlane, DataPlaneOptions, SmbPolicy};
use crate::descriptors;
use crate::directory::SharedDirectory;
use crate::logon_lines::LogonLines;
use crate::manager::{self, Manager};
use crate::pipe_changes;
use crate::pipe_queue::PipeChanges;
use crate::rdma_devices::RdmaDevices;
use crate::reload::{InEffect, Reload};
use crate::service_manager::{self, LongStart, StopSignals, StopsAtOnce, leave_address};
use api::audit::AuditLog;
use api::health_watch;
use api::{ADDRESS_FILE, LOCK_FILE, Management, SocketError, TOKEN_FILE, asynchronous};
use dashboard::Dashboard;
use machine::interfaces::{self, Interfaces, ListedInterface};
use machine::{room, smart};
use member::{ClusterControl, ClusterKeys, ClusterParts, EnginePlaces, Identity, IdentityError, Waiting};
use node::pulse::Pulse;
use records::State;
use records::accounts::{AccountError, Accounts};
use records::seal::{SealError, SealKey};
use records::settings::ServerSettings;
use rustix::fs::Mode;
use rustix::process::umask;
use sd_notify::NotifyState;
use smb::wire::{InterfaceCapabilities, NetworkInterface};
use smb_server::PipeChange;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use sys::{ListenError, listen};

/// Names within the data directory.
const STATE_FILE: &str = "state.redb";
const KEY_FILE: &str = "secret.key";
const AUDIT_FILE: &str = "audit.log";

/// Why a server does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The data directory at `path` cannot be made or opened.
    #[error("data directory {path}: {source}; make it, or choose another")]
    DataDirectory { path: String, source: io::Error },
    /// Another process has the lock of the data directory.
    #[error(
        "data directory {path} is in use by another cenote process: stop that one first, or choose another directory"
    )]
    InUse { path: String },
    /// A port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket cannot be handed to the runtime.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The certificate or key of the API cannot be used.
    #[error("API over TLS: {0}")]
    Tls(#[from] api::tls::TlsError),
    /// The key file cannot be read or written.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Accounts or shares in the records cannot be used.
    #[error("{0}")]
    Account(#[from] AccountError),
    /// The records cannot be opened or read.
    #[error("{0}")]
    State(#[from] records::StateError),
    /// The operating system refuses the access to `what`.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// The files of the cluster cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine of the records does not start.
    #[error(transparent)]
    Engine(#[from] member::EngineError),
    /// Certificate and key of the server cannot be used for TLS.
    #[error(transparent)]
    ClusterTls(#[from] member::ClusterTlsError),
    /// Heartbeats do not begin.
    #[error(transparent)]
    Liveness(#[from] cluster_side::LivenessError),
    /// The data plane does not start, or ended with an error.
    #[error(transparent)]
    DataPlane(#[from] CommandError),
    /// The first setting up failed, for the reason named.
    #[error("{0}")]
    Setup(String),
}

/// A data directory, locked for this process.
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
}

impl DataDirectory {
    /// Makes the directory if it is missing, and locks it. From here on this process makes files that no
    /// other user can read, and removes others' access to existing ones: sealed hashes of passwords, the
    /// audit log and history are in them.
    ///
    /// # Errors
    /// `DataDirectory`, or `InUse`.
    pub fn open_or_create(path: &Path) -> Result<Self, DaemonError> {
        let failed = |source| DaemonError::DataDirectory { path: path.display().to_string(), source };
        umask(Mode::RWXG | Mode::RWXO);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK_FILE))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {
                close_to_others(&path).map_err(failed)?;
                Ok(Self { path, _lock: lock })
            }
            Err(TryLockError::WouldBlock) => Err(DaemonError::InUse { path: path.display().to_string() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Returns the path of the directory, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `name` within the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Removes group's and others' access to the directory's files, as left by earlier versions or a
/// careless copy. The directory itself may be listed, as the API's address is for everybody; nobody
/// else may add files.
fn close_to_others(directory: &Path) -> io::Result<()> {
    let tighten = |path: &Path, found: &Metadata, mask: u32| {
        let mode = found.mode() & 0o7777;
        if mode & mask == 0 {
            return Ok(());
        }
        tracing::warn!(path = %path.display(), mode = format!("{mode:03o}"), "others had access: it is taken away");
        std::fs::set_permissions(path, Permissions::from_mode(mode & !mask))
    };
    tighten(directory, &std::fs::metadata(directory)?, 0o022)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // Links are not followed: the address is one under systemd. Key and token are refused by their
        // readers if others could read them, since they may already have leaked.
        let found = entry.metadata()?;
        let has_own_rule = [ADDRESS_FILE, TOKEN_FILE, KEY_FILE].iter().any(|name| entry.file_name() == *name);
        if found.is_file() && !has_own_rule {
            tighten(&entry.path(), &found, 0o077)?;
        }
    }
    Ok(())
}

/// The sockets of a server, bound before anything else is touched.
pub struct Listeners {
    /// SMB by TCP.
    pub smb: Vec<TcpListener>,
    /// SMB Direct over iWARP.
    pub rdma: Vec<TcpListener>,
    /// The API for this machine, without TLS.
    pub api: TcpListener,
    /// The API for others than this machine.
    pub api_tls: Option<TlsListeners>,
    /// Port for joins and for requests between servers of a cluster. `None`: a single server.
    pub cluster: Option<TcpListener>,
}

/// Sockets of the API, and its certificate on them.
pub struct TlsListeners {
    /// Bound sockets, at least one.
    pub listeners: Vec<TcpListener>,
    /// Certificate and key that they show.
    pub identity: Arc<api::tls::Identity>,
}

/// A server that serves.
pub struct Daemon {
    directory: DataDirectory,
    data_plane: DataPlane,
    manager: Arc<Manager>,
    api_listener: TcpListener,
    api_tls: Option<TlsListeners>,
    server_name: String,
    in_effect: Arc<InEffect>,
    token: Arc<api::Token>,
    drain: Duration,
    interfaces: Interfaces,
    /// Interfaces that clients learned of when the server started.
    told: Vec<NetworkInterface>,
    pulse: Pulse,
    cluster: Arc<ClusterControl>,
    /// The port of a server that is in a cluster.
    cluster_port: Option<TcpListener>,
    server: Arc<DaemonServer>,
    /// Changes that administrators request through named pipes.
    pipe_changes: tokio::sync::mpsc::Receiver<PipeChange>,
}

/// Why a server that served has ended.
pub enum Ended {
    /// Stopped by request.
    Stopped,
    /// Became part of a cluster, or was removed from one, and starts again as such.
    Again(StopsAtOnce),
}

/// Time in which the answer to a join has to reach its client, before the API ends.
const ANSWER_LEAVES: Duration = Duration::from_millis(200);

/// Interval between checks of the interfaces: addresses change, and clients rarely ask again.
const INTERFACES_EVERY: Duration = Duration::from_secs(2);

/// Reads the interfaces, in the words in which clients learn of them.
fn shown_to_clients(interfaces: &Interfaces) -> Vec<NetworkInterface> {
    let show = |one: ListedInterface| {
        let ListedInterface { index, has_rss, has_rdma, link_bits_per_s, address } = one;
        let mut capabilities = InterfaceCapabilities::empty();
        capabilities.set(InterfaceCapabilities::RSS, has_rss);
        capabilities.set(InterfaceCapabilities::RDMA, has_rdma);
        NetworkInterface { index, capabilities, link_speed: link_bits_per_s, address }
    };
    interfaces.read().into_iter().map(show).collect()
}

/// Gives the data plane the interfaces when they have changed.
async fn watch_interfaces(interfaces: Interfaces, mut told: Vec<NetworkInterface>, control: ControlHandle) {
    let interfaces = Arc::new(interfaces);
    loop {
        tokio::time::sleep(INTERFACES_EVERY).await;
        let reader = interfaces.clone();
        // The kernel may wait for a link's driver.
        let Ok(current) = tokio::task::spawn_blocking(move || shown_to_clients(&reader)).await else {
            return;
        };
        if current != told {
            told.clone_from(&current);
            if !control.send(Command::Interfaces(current)) {
                return;
            }
        }
    }
}

impl Daemon {
    /// Opens the state, starts the data plane, and loads accounts and shares.
    ///
    /// # Errors
    /// [`DaemonError`]; then nothing is running any more.
    pub fn start(
        in_effect: Arc<InEffect>,
        directory: DataDirectory,
        listeners: Listeners,
        start_data_plane: impl FnOnce(DataPlaneOptions) -> Result<DataPlane, CommandError>,
    ) -> Result<Self, DaemonError> {
        let io_of = |what: &str| failed_at(&directory.join(what));
        let config = &in_effect.get(Config::clone);
        let token =
            Arc::new(api::Token::open_or_create(&directory.join(TOKEN_FILE)).map_err(io_of(TOKEN_FILE))?);
        let audit = Arc::new(AuditLog::open(&directory.join(AUDIT_FILE)).map_err(io_of(AUDIT_FILE))?);
        let Records { identity, key, state, engine, server_guid } =
            Records::open(config, &directory, &listeners)?;
        let shared = SharedDirectory::new(manager::load(&state, &key)?);
        let (interfaces, rdma_devices) = listened_on(config, &listeners);
        let listen = listeners.cluster.as_ref().and_then(|listener| listener.local_addr().ok());
        let (smb, rdma) = (interfaces.smb.clone(), interfaces.rdma.clone());
        let keys = config.cluster.keys(&config.server.name, config.api.listen, listen, server_guid);
        let (told, has_rdma) = (shown_to_clients(&interfaces), !interfaces.rdma.is_empty());
        let (pulse, nodes) = (Pulse::default(), Shared::default());
        let (pipe_changes, changes) = PipeChanges::new();
        let long_start = LongStart::begin(pulse.clone());
        let data_plane = start_data_plane(DataPlaneOptions {
            smb_listeners: listeners.smb,
            rdma_listeners: listeners.rdma,
            rdma_devices,
            state: state.clone(),
            cluster: identity
                .as_ref()
                .map(|own| cluster_options(&own.facts, &nodes, config.cluster.bus_channels)),
            accounts: nodes.accounts.clone(),
            disk_paths: config.disks.search.clone(),
            server_guid: server_guid.into_bytes(),
            smb: SmbPolicy { interfaces: told.clone(), ..config.smb_policy() },
            limits: descriptors::bound(config.limits(), descriptors::raised_limit(), has_rdma),
            directory: shared.clone(),
            logon_lines: LogonLines::to(audit.clone()).map_err(io_of(AUDIT_FILE))?,
            pipe_changes,
            pulse: pulse.clone(),
        })?;
        drop(long_start);
        let control = data_plane.control.clone();
        let cluster_port = listeners.cluster.filter(|_| identity.is_some());
        let parts = ServerParts {
            control: control.clone(),
            state: state.clone(),
            key: key.clone(),
            pulse: pulse.clone(),
            heartbeats: nodes,
            listen,
            bus_by_rdma: config.cluster.bus_by_rdma,
            bus_channels: config.cluster.bus_channels,
        };
        let (server, cluster) =
            begin_cluster(directory.path(), parts, identity, engine, ClusterKeys { smb, rdma, ..keys })?;
        let manager = Manager::new(state, key, shared, control, audit, in_effect.clone(), cluster.clone());
        Ok(Self {
            directory,
            data_plane,
            manager: Arc::new(manager),
            api_listener: listeners.api,
            api_tls: listeners.api_tls,
            server_name: config.server.name.clone(),
            in_effect,
            token,
            drain: Duration::from_secs(config.server.drain_s),
            interfaces,
            told,
            pulse,
            cluster,
            cluster_port,
            server,
            pipe_changes: changes,
        })
    }

    /// Returns the part that carries out the API's requests.
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }
    /// Returns the way to the data plane.
    pub fn control(&self) -> &ControlHandle {
        &self.data_plane.control
    }
    /// Returns the locked data directory.
    pub fn directory(&self) -> &DataDirectory {
        &self.directory
    }

    /// Ends a server whose API does not serve yet.
    pub async fn stop(self) {
        self.data_plane.control.drain(self.drain).await;
        let thread = self.data_plane.thread;
        // The caller reports its own reason.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    }

    /// Serves the API until SIGTERM or SIGINT, then drains. `reload`: if the server was started from a
    /// file. `ready` is called once everything is served.
    ///
    /// # Errors
    /// Why the data plane ended without a stop, or what could not be made durable.
    pub async fn run(self, reload: Option<Reload>, ready: impl FnOnce()) -> Result<Ended, DaemonError> {
        let named = |what: &str| failed_at(Path::new(what));
        let mut stop = StopSignals::listen().map_err(named("SIGTERM"))?;
        let address = self.api_listener.local_addr().map_err(named("API socket"))?;
        let listener = asynchronous(self.api_listener)?;
        let address_file = self.directory.join(ADDRESS_FILE);
        leave_address(&address_file, address).map_err(failed_at(&address_file))?;
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(watch_interfaces(self.interfaces, self.told, self.data_plane.control.clone()));
        tasks.spawn(pipe_changes::carry_out(self.pipe_changes, self.manager.clone()));
        watch_surroundings(&mut tasks, &self.manager, &self.directory);
        let pages = begin_dashboard(&mut tasks, &self.manager, &self.server_name, &self.directory);
        let receivers = self.in_effect.receivers();
        tasks.spawn(health_watch::watch(self.manager.clone(), self.server_name, receivers));
        let identity = self.api_tls.as_ref().map(|served| served.identity.clone());
        tasks.spawn(Reload::follow(reload, self.in_effect, identity));
        tasks.spawn(service_manager::feed_watchdog(self.pulse, self.data_plane.control.clone()));
        if let Some(listeners) = self.api_tls {
            spawn_api_over_tls(&mut tasks, listeners, &self.manager, &self.token, &pages)?;
        }
        spawn_cluster_tasks(&mut tasks, &self.cluster, self.cluster_port, &self.manager)?;
        tasks.spawn(api::serve(listener, self.manager.clone(), self.token, pages));
        let (restart, entered) = (self.cluster.restart(), self.cluster.entered());
        ready();
        service_manager::tell(NotifyState::Ready);

        let mut ended = tokio::task::spawn_blocking(move || self.data_plane.thread.join());
        let mut starts_again = false;
        let by_itself = loop {
            tokio::select! {
                result = &mut ended => break Some(result),
                () = stop.come() => break None,
                () = restart.notified() => {
                    starts_again = true;
                    // The answer to the join leaves first.
                    tokio::time::sleep(ANSWER_LEAVES).await;
                    break None;
                }
                () = entered.notified() => {
                    let port = self.server.take_port();
                    spawn_cluster_tasks(&mut tasks, &self.cluster, port, &self.manager)?;
                }
            }
        };
        let result = match by_itself {
            Some(result) => result,
            None => {
                tracing::info!("stopping: requests in work are finished first");
                if !starts_again {
                    service_manager::tell(NotifyState::Stopping);
                }
                self.data_plane.control.drain(self.drain).await;
                ended.await
            }
        };
        tasks.abort_all();
        // The others hear of the stop when no answers are left to send.
        self.server.end_liveness();
        let _ = std::fs::remove_file(&address_file);
        let Ok(Ok(result)) = result else { return Err(faulty()) };
        result?;
        if starts_again { start_again(stop).await } else { Ok(Ended::Stopped) }
    }
}

/// Why a server ends whose data plane panicked.
fn faulty() -> DaemonError {
    DaemonError::Setup(
        "the data plane ended by a fault of the program; what was acknowledged as durable is on the disks: \
         start again, and report the lines above"
            .into(),
    )
}

/// Restarts the server, unless a signal to stop came during its drain.
async fn start_again(mut stop: StopSignals) -> Result<Ended, DaemonError> {
    let start = StopsAtOnce::begin().map_err(failed_at(Path::new("SIGTERM")))?;
    Ok(if stop.have_come().await { Ended::Stopped } else { Ended::Again(start) })
}

/// Begins to watch the server's surroundings: disks' own reports, and free space in the data directory.
fn watch_surroundings(
    tasks: &mut tokio::task::JoinSet<()>,
    manager: &Arc<Manager>,
    directory: &DataDirectory,
) {
    let management = manager.clone();
    tasks.spawn(smart::watch(manager.devices(), move || {
        let management = management.clone();
        async move {
            let snapshot = management.figures().await.ok()?;
            Some(snapshot.disks.into_iter().map(|disk| disk.path).collect())
        }
    }));
    tasks.spawn(room::watch(directory.path().to_owned(), manager.room()));
}

/// Names the file in which something failed.
fn failed_at(path: &Path) -> impl FnOnce(io::Error) -> DaemonError + use<> {
    let what = path.display().to_string();
    move |source| DaemonError::Io { what, source }
}

/// Where clients reach the server over TCP and SMB Direct, and by which devices.
fn listened_on(config: &Config, listeners: &Listeners) -> (Interfaces, RdmaDevices) {
    let addresses = |listeners: &[TcpListener]| {
        listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    };
    let smb_addresses: Vec<SocketAddr> = addresses(&listeners.smb);
    let rdma_devices = RdmaDevices::find(&config.smb.rdma_devices, &smb_addresses);
    let mut rdma_addresses: Vec<SocketAddr> = addresses(&listeners.rdma);
    rdma_addresses.extend(&rdma_devices.listen);
    let interfaces = Interfaces {
        smb: smb_addresses,
        rdma: rdma_addresses,
        rules: config.interface_rules(),
        sysfs: interfaces::SYSFS.into(),
    };
    (interfaces, rdma_devices)
}

/// The records of a server or its cluster, and the key to them.
struct Records {
    /// `None`: a single server.
    identity: Option<Identity>,
    key: Arc<SealKey>,
    state: State,
    engine: Arc<dyn member::Engine>,
    server_guid: uuid::Uuid,
}

impl Records {
    /// Opens the state. While a server of a cluster waits for the others, its API reports that.
    fn open(config: &Config, directory: &DataDirectory, listeners: &Listeners) -> Result<Self, DaemonError> {
        let waiting = Waiting::begin(&listeners.api, directory.path(), leave_address);
        let identity = member::open_identity(directory.path())?;
        let key = Arc::new(match &identity {
            Some(identity) => identity.seal_key()?,
            None => seal_key(directory)?,
        });
        let places = EnginePlaces {
            file: directory.join(STATE_FILE),
            program: config.cluster.etcd_program.clone(),
            other: config.cluster.other_etcd(),
        };
        let (state, engine) = member::open_state(identity.as_ref(), &places)?;
        drop(waiting);
        // The state's opening may have undone a founding that cannot complete.
        let identity = member::open_identity(directory.path())?;
        if let Some(identity) = identity.as_ref().filter(|identity| identity.facts.founder) {
            // Disks of the single server that it was.
            node::adopt_records(&state, identity.facts.node, &identity.facts.name)?;
        }
        let settings = ServerSettings::open_or_create(&state)?.value;
        let server_guid = identity.as_ref().map_or(settings.server_guid, |found| found.facts.server_guid);
        Accounts::new(&state, &key).create_builtin_groups()?;
        Ok(Self { identity, key, state, engine, server_guid })
    }
}

/// Begins to sample the server for the dashboard, and returns its pages.
fn begin_dashboard(
    tasks: &mut tokio::task::JoinSet<()>,
    manager: &Arc<Manager>,
    server: &str,
    directory: &DataDirectory,
) -> api::Pages {
    let dashboard = Dashboard::new(manager.clone(), server.to_owned(), directory.path());
    let pages = dashboard.pages();
    tasks.spawn(dashboard.watch());
    pages
}

/// Begins this server's part in its cluster, or readies it to found or join one.
fn begin_cluster(
    data: &Path,
    parts: ServerParts,
    identity: Option<Identity>,
    engine: Arc<dyn member::Engine>,
    keys: ClusterKeys,
) -> Result<(Arc<DaemonServer>, Arc<ClusterControl>), DaemonError> {
    let (data, state, key) = (data.to_owned(), parts.state.clone(), parts.key.clone());
    let server = Arc::new(DaemonServer::new(data.clone(), parts));
    if let Some(identity) = &identity {
        server.begin_liveness(identity.facts.clone())?;
    }
    let parts = ClusterParts { data, keys, state, key, engine, server: server.clone() };
    Ok((server, ClusterControl::new(parts, identity)?))
}

/// Serves the API for others than this machine.
fn spawn_api_over_tls(
    tasks: &mut tokio::task::JoinSet<()>,
    TlsListeners { listeners, identity }: TlsListeners,
    manager: &Arc<Manager>,
    token: &Arc<api::Token>,
    pages: &api::Pages,
) -> Result<(), SocketError> {
    for listener in listeners {
        let (listener, identity) = (asynchronous(listener)?, identity.clone());
        tasks.spawn(api::serve_tls(listener, identity, manager.clone(), token.clone(), pages.clone()));
    }
    tasks.spawn(identity.follow());
    Ok(())
}

/// Spawns the tasks that run beside the API in a server of a cluster.
fn spawn_cluster_tasks(
    tasks: &mut tokio::task::JoinSet<()>,
    cluster: &Arc<ClusterControl>,
    port: Option<TcpListener>,
    manager: &Arc<Manager>,
) -> Result<(), DaemonError> {
    let management: Arc<dyn api::Management> = manager.clone();
    cluster.set_runner(Arc::new(api::Errands::new(&management)));
    if let Some((listener, credentials)) = port.zip(cluster.credentials()) {
        tasks.spawn(member::serve(asynchronous(listener)?, credentials, cluster.clone()));
    }
    if let Some(state) = cluster.shared_state() {
        tasks.spawn(cluster_side::follow_accounts(state, manager.clone()));
        tasks.spawn(member::keep(cluster.clone()));
    }
    Ok(())
}

/// The key that the service manager hands over, else the data directory's own.
fn seal_key(directory: &DataDirectory) -> Result<SealKey, SealError> {
    match service_manager::credential(KEY_FILE) {
        Some(path) => SealKey::open_credential(&path),
        None => SealKey::open_or_create(&directory.join(KEY_FILE)),
    }
}

/// `cenote serve`: runs the server that the configuration, read from `file`, describes, until stopped.
///
/// # Errors
/// Why it does not start, or ended.
pub fn serve(
    config: Config,
    file: &Path,
    start_data_plane: impl Fn(DataPlaneOptions) -> Result<DataPlane, CommandError>,
) -> Result<(), DaemonError> {
    let in_effect = InEffect::new(config);
    let mut start = None;
    while let Ended::Again(next) = serve_once(&in_effect, file, &start_data_plane, start)? {
        tracing::info!("starting again");
        start = Some(next);
    }
    Ok(())
}

fn serve_once(
    in_effect: &Arc<InEffect>,
    file: &Path,
    start_data_plane: impl FnOnce(DataPlaneOptions) -> Result<DataPlane, CommandError>,
    start: Option<StopsAtOnce>,
) -> Result<Ended, DaemonError> {
    let config = in_effect.get(Config::clone);
    let directory = DataDirectory::open_or_create(&config.server.data_dir)?;
    let api = listen("HTTP", config.api.listen)?;
    let api_tls = if config.api.tls_listen.is_empty() {
        None
    } else {
        let identity = api::tls::Identity::open(&config.api.tls_certificate, &config.api.tls_key)?;
        let listeners = config.api.tls_listen.iter().map(|address| listen("HTTPS", *address));
        Some(TlsListeners { listeners: listeners.collect::<Result<_, _>>()?, identity })
    };
    let rdma = config
        .smb
        .rdma_listen
        .iter()
        .map(|address| listen("SMB Direct", *address))
        .collect::<Result<_, _>>()?;
    let smb = config.smb.listen.iter().map(|address| listen("SMB", *address)).collect::<Result<_, _>>()?;
    let cluster = config.cluster.listen_address().map_err(DaemonError::Setup)?;
    let cluster = cluster.map(|address| listen("the cluster's port", address)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| DaemonError::Io { what: "event loop".into(), source })?;
    let reload = runtime.block_on(async { Reload::of(file) });
    let reload = reload.map_err(failed_at(Path::new("SIGHUP")))?;
    let listeners = Listeners { smb, rdma, api, api_tls, cluster };
    let daemon = Daemon::start(in_effect.clone(), directory, listeners, start_data_plane)?;
    let listening: Vec<String> = config.smb.listen.iter().map(ToString::to_string).collect();
    let api: Vec<SocketAddr> = [config.api.listen].iter().chain(&config.api.tls_listen).copied().collect();
    tracing::info!(smb = listening.join(", "), ?api, "serving");
    let ended = runtime.block_on(daemon.run(Some(reload), || drop(start)));
    // A thread that waits for a file system or a name server that hangs does not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(5));
    ended
}
