//! The data plane: one thread with one loop for disks, stores, virtual disks, volumes and SMB connections.
//!
//! A turn of the loop: whatever the kernel completed is carried up (disks, stores, replicas, coordinators, volumes, server) and
//! down again until nothing moves any more; then the kernel is given everything that gathered, and the thread sleeps until the
//! next completion, command or timeout. Commands of the control plane come through a channel and a waker; those that take many
//! turns run as tasks. Promises: nothing on this thread blocks once it serves; it ends only by a drain, or when the loop itself
//! fails.

mod accounts;
mod backoff;
mod care;
mod check;
mod clients;
mod commands;
mod damage;
mod damage_kept;
mod damaged_files;
pub mod disks;
mod formatting;
mod jobs;
mod opening;
mod pools;
mod rdma_providers;
mod records;
mod scrub;
mod sessions;
mod snapshot;
pub mod storage;
pub mod tasks;
#[cfg(test)]
mod tests;
mod volume_commands;
pub mod volumes;

use crate::control::{Command, CommandError, CommandErrorKind, DataPlane, DataPlaneOptions, channel_with};
use crate::limits::Limits;
use crate::logon_lines::LogonLines;
use crate::rdma_devices::RdmaDevices;
use accounts::ServerDirectory;
use backoff::Backoff;
use clients::{Behind, Clients};
use cluster::{RedbState, VolumeRecord};
use jobs::Jobs;
use smb_server::{Config, Server};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, SystemTime};
use storage::Storage;
use sys::driver::{Driver, DriverChoice, DriverKind, Waker};
use types::{FileTime, Monotonic, PoolId, VolumeId};
use volumes::ServedVolume;

/// Seconds since 1970-01-01 00:00 UTC.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time of day.
fn wall_clock() -> FileTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix_nanos(since.as_nanos() as i128)
}

/// The state and the SMB server learn the time of day anew so often: it may be set.
const WALL_CLOCK: Duration = Duration::from_secs(1);
/// Free memory that nobody took for so long is given up.
const TRIM: Duration = Duration::from_secs(10);
/// A start does not wait longer for disks and volumes; they are served when they come.
const RECOVERY_MAX: Duration = Duration::from_secs(15);
/// The longest sleep; everything that waits for less says so.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How long the loop listens at most where something is due that only a disk's answer can move.
const DUE_PAUSE: Duration = Duration::from_millis(1);
/// As that, while clients wait to be received from again: what they wait for may be a client that others wait for too.
const PAUSED_SLEEP: Duration = Duration::from_millis(10);
/// Opens that one session may always have, however few the server may.
const SESSION_OPENS_MIN: usize = 16;
/// Share of the cache's bytes that is kept as free memory beside it, for what is written over and over: a sixteenth.
const KEPT_DIVISOR: usize = 16;

/// Starts the data plane, and waits until every recorded volume that can be served is.
///
/// # Errors
/// Where the thread or its loop cannot be had, or the cluster state cannot be read. Disks and volumes that are missing are no
/// errors: they show in the snapshot's health.
pub fn start(options: DataPlaneOptions) -> Result<DataPlane, CommandError> {
    let (ready, answer) = channel();
    let thread = std::thread::Builder::new()
        .name("cenote-data".to_owned())
        .spawn(move || run(options, &ready))
        .map_err(|error| failed(format!("the data plane's thread cannot be started: {error}")))?;
    match answer.recv() {
        Ok(control) => Ok(DataPlane { control, thread }),
        Err(_) => match thread.join() {
            Ok(Err(error)) => Err(error),
            _ => Err(failed("the data plane ended while it started".to_owned())),
        },
    }
}

fn failed(message: String) -> CommandError {
    CommandError::new(CommandErrorKind::Io, message)
}

type Ready = Sender<crate::control::ControlHandle>;

fn run(options: DataPlaneOptions, ready: &Ready) -> Result<(), CommandError> {
    let driver = Driver::new(DriverChoice::Automatic)
        .map_err(|error| failed(format!("the event loop cannot be set up: {error}")))?;
    if driver.kind() == DriverKind::Fallback {
        tracing::warn!("io_uring is not permitted here: the slower fallback is used");
    }
    driver.busy_poll(options.limits.busy_poll);
    let waker = driver.waker();
    let (control, commands) = channel_with(Arc::new(move || waker.wake()));
    let plane = Plane::new(options, driver)?;
    plane.recover();
    let mut turns = Turns::new(plane, commands);
    // Recorded disks and volumes first: whoever connects finds what there is.
    let patience = turns.plane.started.after(RECOVERY_MAX);
    while !turns.plane.recovered() && turns.plane.now() < patience {
        turns.turn(false)?;
    }
    tracing::info!(volumes = turns.plane.volumes.borrow().len(), "the data plane serves");
    // Fails only where nobody waits any more.
    let _ = ready.send(control);
    while !turns.plane.ended.get() {
        turns.turn(true)?;
    }
    Ok(())
}

/// A volume that is served, or why it is not.
pub(crate) struct VolumeEntry {
    pub pool: PoolId,
    /// As it was when the volume was opened.
    pub record: VolumeRecord,
    pub served: Option<ServedVolume>,
    /// Being opened or made.
    pub opening: bool,
    pub failure: Option<String>,
    /// Disks that had come when it was opened last ([`Storage::arrivals`]).
    pub arrivals: u64,
    /// When it is opened again where that failed, or it stopped.
    pub openings: Backoff,
}

/// The thread's state that tasks share.
pub(crate) struct Plane {
    pub storage: Rc<Storage>,
    pub server: RefCell<Server<ServedVolume, ServerDirectory>>,
    clients: RefCell<Clients>,
    /// Addresses on which SMB Direct listens in software.
    rdma_addresses: Vec<std::net::SocketAddr>,
    pub volumes: RefCell<BTreeMap<VolumeId, VolumeEntry>>,
    pub jobs: RefCell<Jobs>,
    pub state: Arc<RedbState>,
    pub limits: Limits,
    logon_lines: LogonLines,
    pub started: Monotonic,
    /// Takes no more connections.
    pub draining: Cell<bool>,
    /// Bytes of messages that are not sent yet, over all connections by TCP.
    pub unsent_bytes: Cell<usize>,
    /// The thread may end.
    pub ended: Cell<bool>,
    rdma_devices: RdmaDevices,
    /// Code and target of issues whose beginning nothing else records, and when they were first seen.
    issues_seen: RefCell<BTreeMap<(String, String), u64>>,
    /// What the cluster state has of damage.
    damage_kept: RefCell<damage_kept::Kept>,
    /// Files that have damaged blocks.
    damaged_files: RefCell<damaged_files::DamagedFiles>,
}

impl Plane {
    fn new(options: DataPlaneOptions, driver: Driver) -> Result<Rc<Self>, CommandError> {
        let now = sys::monotonic_now();
        let limits = options.limits;
        let space_config = space::coordinator::Config {
            // Above the disk's own bound, so that the disk is heard first.
            io_timeout: limits.disk_timeout + Duration::from_secs(1),
            rebuild_after: limits.repair_delay,
            ..space::coordinator::Config::default()
        };
        let (search, state) = (options.disk_paths, RedbState::clone(&options.state));
        let storage = Storage::new(driver, limits.disk_timeout, space_config, search, state, now);
        let mut rdma_devices = options.rdma_devices;
        let providers = rdma_providers::open(
            &storage.driver,
            &limits,
            options.rdma_listeners,
            options.smb.rdma_crc_optional,
            &mut rdma_devices,
        )?;
        let (providers, rdma_addresses) = providers;
        let clients = clients::open(&storage.driver, &limits, options.smb_listeners, providers)?;
        let config = server_config(&options.server_guid, &options.smb, &limits);
        let directory = ServerDirectory(options.directory);
        let random = Box::new(|bytes: &mut [u8]| {
            // Without random bytes no key and no nonce is safe: there is nothing to go on with.
            getrandom::fill(bytes).expect("the kernel's random source");
        });
        let server = Server::new(config, directory, random, now, wall_clock());
        Ok(Rc::new(Self {
            storage,
            server: RefCell::new(server),
            clients: RefCell::new(clients),
            rdma_addresses,
            volumes: RefCell::default(),
            jobs: RefCell::default(),
            state: options.state,
            limits,
            logon_lines: options.logon_lines,
            started: now,
            draining: Cell::new(false),
            unsent_bytes: Cell::new(0),
            ended: Cell::new(false),
            rdma_devices,
            issues_seen: RefCell::default(),
            damage_kept: RefCell::default(),
            damaged_files: RefCell::default(),
        }))
    }

    pub fn now(&self) -> Monotonic {
        self.storage.now.get()
    }

    /// Takes notice of the jobs that the spaces run.
    pub fn update_jobs(&self) {
        let pools = self.storage.pools.borrow();
        let current: Vec<_> = pools.values().flat_map(|entry| entry.space.jobs()).collect();
        let volumes = self.volumes.borrow();
        let name = |id| volumes.get(&id).map_or_else(|| id.to_string(), |entry| entry.record.name.clone());
        let mut jobs = self.jobs.borrow_mut();
        for (volume, disk) in self.storage.joined.borrow_mut().drain(..) {
            jobs.joined(volume, disk, name);
        }
        jobs.update(&current, name);
    }

    /// Carries messages of clients to the server; says whether there were any.
    fn hear_clients(&self, now: Monotonic) -> bool {
        let mut clients = self.clients.borrow_mut();
        if self.draining.get() {
            clients.drain();
        }
        clients.hear(&mut Behind(&mut self.server.borrow_mut()), now)
    }

    /// Carries the server's messages to clients.
    fn transmit(&self) {
        let mut clients = self.clients.borrow_mut();
        let mut server = self.server.borrow_mut();
        clients.transmit(&mut Behind(&mut server));
        if server.has_unsettled_latencies() {
            server.settle_latencies(sys::monotonic_now());
        }
        if self.draining.get() {
            self.unsent_bytes.set(clients.unsent_bytes());
        }
    }

    pub fn waker(&self) -> Waker {
        self.storage.driver.waker()
    }
}

fn server_config(guid: &[u8; 16], policy: &crate::control::SmbPolicy, limits: &Limits) -> Config {
    let mut config = Config::new(*guid, policy.server_name.clone());
    config.require_signing = policy.require_signing;
    config.require_encryption = policy.require_encryption;
    config.interfaces = policy.interfaces.clone();
    // Each transport keeps the limit, and closes connections for others: for a moment there are more of them here.
    config.limits.connections = 4 * limits.connections as usize;
    config.limits.sessions = limits.sessions as usize;
    config.limits.opens = limits.opens as usize;
    // A user has at most half of them; a session, half of that.
    config.limits.opens_per_session = (limits.opens as usize / 4).max(SESSION_OPENS_MIN);
    config.limits.bytes_in_flight = usize::try_from(limits.bytes_in_flight).unwrap_or(usize::MAX);
    config.limits.locks_per_request = limits.locks_per_open as usize;
    config.limits.credits = u16::try_from(limits.requests_per_connection).unwrap_or(u16::MAX);
    config
}

/// The loop's own state.
struct Turns {
    plane: Rc<Plane>,
    commands: Receiver<Command>,
    wall_clock_at: Monotonic,
    trim_at: Monotonic,
}

impl Turns {
    fn new(plane: Rc<Plane>, commands: Receiver<Command>) -> Self {
        let cache_bytes = usize::try_from(plane.limits.cache_bytes).unwrap_or(usize::MAX);
        sys::keep_free_memory(cache_bytes / KEPT_DIVISOR);
        sys::populate_memory_ahead();
        Self { plane, commands, wall_clock_at: Monotonic(0), trim_at: Monotonic(0) }
    }

    /// Works until nothing moves, then sleeps. `serving`: clients and commands are heard.
    fn turn(&mut self, serving: bool) -> Result<(), CommandError> {
        let plane = self.plane.clone();
        let now = sys::monotonic_now();
        plane.storage.tell_time(now);
        if now >= self.wall_clock_at {
            self.wall_clock_at = now.after(WALL_CLOCK);
            self.tell_wall_clock(now);
            plane.update_jobs();
            plane.care();
        }
        if now >= self.trim_at {
            self.trim_at = now.after(TRIM);
            sys::trim_free_memory();
        }
        loop {
            let mut worked = false;
            if serving {
                worked |= plane.hear_clients(now);
                worked |= self.hear_commands();
            }
            // Behind what was heard: a request that waits for nothing is answered in the same round.
            worked |= plane.storage.poll();
            worked |= plane.server.borrow_mut().poll(now);
            plane.transmit();
            if serving {
                worked |= plane.clients.borrow_mut().put_on_wire(now);
            }
            // What clients' operations asked for while they went on, too.
            if !worked && !plane.storage.has_unsent() {
                break;
            }
        }
        {
            let mut server = plane.server.borrow_mut();
            if server.next_timeout().is_some_and(|at| at <= now) {
                server.handle_timeout(now);
            }
            let lines = server.take_logon_lines();
            if !lines.is_empty() {
                plane.logon_lines.send(lines);
            }
        }
        let sleep = if plane.storage.has_unsent() { Duration::ZERO } else { self.sleep(now) };
        plane
            .storage
            .driver
            .wait(Some(sleep))
            .map_err(|error| failed(format!("the event loop failed: {error}")))
    }

    /// Called when the server was told the time: what stays due there waits for disks (data to be written while enough of it is on
    /// its way), which are heard first.
    fn sleep(&self, now: Monotonic) -> Duration {
        let server = self.plane.server.borrow().next_timeout();
        let server = server.map(|at| if at <= now { now.after(DUE_PAUSE) } else { at });
        let next = self.plane.storage.next_timeout();
        let next = server.map_or(next, |at| at.min(next));
        let clients = self.plane.clients.borrow();
        let next = clients.next_timeout().map_or(next, |at| at.min(next));
        let most = if clients.has_held() { PAUSED_SLEEP } else { SLEEP_MAX };
        next.since(now).min(most)
    }

    fn tell_wall_clock(&self, now: Monotonic) {
        let wall = wall_clock();
        self.plane.server.borrow_mut().set_wall_clock(now, wall);
        for entry in self.plane.volumes.borrow().values() {
            if let Some(served) = &entry.served {
                served.with_mut(|service| service.set_wall_clock(now, wall));
            }
        }
    }

    fn hear_commands(&mut self) -> bool {
        let mut worked = false;
        loop {
            match self.commands.try_recv() {
                Ok(command) => {
                    worked = true;
                    self.plane.clone().command(command);
                }
                Err(TryRecvError::Empty) => return worked,
                // The control plane is gone without a drain: the process is about to end.
                Err(TryRecvError::Disconnected) => {
                    self.plane.ended.set(true);
                    return false;
                }
            }
        }
    }
}
