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
mod commands;
mod direct;
pub mod disks;
mod group;
mod jobs;
mod opening;
mod pools;
mod rdma_providers;
mod records;
mod scrub;
mod sessions;
pub mod smb_direct;
mod snapshot;
pub mod storage;
pub mod tasks;
pub mod tcp;
#[cfg(test)]
mod tests;
mod volume_commands;
pub mod volumes;

use crate::control::{
    Command, CommandError, CommandErrorKind, DataPlane, DataPlaneOptions, Limits, channel_with,
};
use crate::logon_lines::LogonLines;
use crate::rdma_devices::RdmaDevices;
use accounts::ServerDirectory;
use backoff::Backoff;
use cluster::{RedbState, VolumeRecord};
use direct::{Direct, Standing};
use jobs::Jobs;
pub(crate) use sessions::transport_name;
use smb_server::{Config, ConnectionId as SmbConnection, ConnectionInfo, Server, Transport};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, SystemTime};
use storage::Storage;
use sys::Buf;
use sys::driver::{Driver, DriverChoice, DriverKind, Waker};
use tcp::{ConnectionId as TcpConnection, Tcp, TcpEvent, TcpLimits};
use types::{FileTime, IdentityMap, Monotonic, PoolId, VolumeId};
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
/// Of connections that wait so many are looked at in one round, so that their number costs others nothing.
const LOOKED_AT_ONCE: usize = 64;
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
    let mut turns = Turns::new(plane, commands)?;
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

/// Everything the thread owns but its sockets; shared with tasks.
pub(crate) struct Plane {
    pub storage: Rc<Storage>,
    pub server: RefCell<Server<ServedVolume, ServerDirectory>>,
    /// `None` until the loop begins.
    direct: RefCell<Option<Direct>>,
    pub volumes: RefCell<BTreeMap<VolumeId, VolumeEntry>>,
    pub jobs: RefCell<Jobs>,
    pub state: Arc<RedbState>,
    pub limits: Limits,
    logon_lines: LogonLines,
    pub started: Monotonic,
    /// Takes no more connections.
    pub draining: Cell<bool>,
    /// Messages not yet sent, over all connections.
    pub unsent_bytes: Cell<usize>,
    /// The thread may end.
    pub ended: Cell<bool>,
    listeners: RefCell<Vec<std::net::TcpListener>>,
    rdma_listeners: RefCell<Vec<std::net::TcpListener>>,
    rdma_devices: RefCell<RdmaDevices>,
    rdma_crc_optional: bool,
    /// Code and target of issues whose beginning nothing else records, and when they were first seen.
    issues_seen: RefCell<BTreeMap<(String, String), u64>>,
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
            direct: RefCell::new(None),
            volumes: RefCell::default(),
            jobs: RefCell::default(),
            state: options.state,
            limits,
            logon_lines: options.logon_lines,
            started: now,
            draining: Cell::new(false),
            unsent_bytes: Cell::new(0),
            ended: Cell::new(false),
            listeners: RefCell::new(options.smb_listeners),
            rdma_listeners: RefCell::new(options.rdma_listeners),
            rdma_devices: RefCell::new(options.rdma_devices),
            rdma_crc_optional: options.smb.rdma_crc_optional,
            issues_seen: RefCell::default(),
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
    tcp: Tcp,
    by_tcp: IdentityMap<TcpConnection, SmbConnection>,
    by_smb: IdentityMap<SmbConnection, TcpConnection>,
    /// Not received from, until the server has worked off what it holds; the one that is looked at next is in front.
    paused: VecDeque<TcpConnection>,
    /// What had come from these already, in order.
    held: IdentityMap<TcpConnection, VecDeque<Buf>>,
    /// Connections that take less than is sent to them.
    slow: VecDeque<SmbConnection>,
    events: Vec<TcpEvent>,
    connections: Vec<SmbConnection>,
    wall_clock_at: Monotonic,
    trim_at: Monotonic,
}

impl Turns {
    fn new(plane: Rc<Plane>, commands: Receiver<Command>) -> Result<Self, CommandError> {
        let limits = TcpLimits {
            connections: plane.limits.connections as usize,
            connections_per_host: plane.limits.connections_per_host as usize,
            receiving_bytes_max: usize::try_from(plane.limits.bytes_in_flight).unwrap_or(usize::MAX),
            ..TcpLimits::default()
        };
        let cache_bytes = usize::try_from(plane.limits.cache_bytes).unwrap_or(usize::MAX);
        sys::keep_free_memory(cache_bytes / KEPT_DIVISOR);
        sys::populate_memory_ahead();
        let listeners = std::mem::take(&mut *plane.listeners.borrow_mut());
        let tcp = Tcp::new(&plane.storage.driver, listeners, limits)
            .map_err(|error| failed(format!("a listener cannot be served: {error}")))?;
        let listeners = std::mem::take(&mut *plane.rdma_listeners.borrow_mut());
        let direct = Direct::new(&plane, listeners)?;
        *plane.direct.borrow_mut() = Some(direct);
        Ok(Self {
            plane,
            commands,
            tcp,
            by_tcp: IdentityMap::default(),
            by_smb: IdentityMap::default(),
            paused: VecDeque::new(),
            held: IdentityMap::default(),
            slow: VecDeque::new(),
            events: Vec::new(),
            connections: Vec::new(),
            wall_clock_at: Monotonic(0),
            trim_at: Monotonic(0),
        })
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
                worked |= self.hear_clients(now);
                worked |= self.with_direct(|direct| direct.hear(&plane, now));
                worked |= self.hear_commands();
            }
            // Behind what was heard: a request that waits for nothing is answered in the same round.
            worked |= plane.storage.poll();
            worked |= plane.server.borrow_mut().poll(now);
            self.transmit();
            self.count_unsent();
            if serving {
                worked |= self.with_direct(|direct| direct.put_on_wire(now));
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
        let direct = self.plane.direct.borrow().as_ref().and_then(Direct::next_timeout);
        let next = direct.map_or(next, |at| at.min(next));
        let most = if self.paused.is_empty() { SLEEP_MAX } else { PAUSED_SLEEP };
        next.since(now).min(most)
    }

    fn with_direct(&self, work: impl FnOnce(&mut Direct) -> bool) -> bool {
        self.plane.direct.borrow_mut().as_mut().is_some_and(work)
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

    fn hear_clients(&mut self, now: Monotonic) -> bool {
        if self.plane.draining.get() {
            self.tcp.stop_listening();
        }
        let mut events = std::mem::take(&mut self.events);
        // What waits is worked off first: what one connection may send meanwhile is bounded by what the sockets hold.
        let worked = !events.is_empty() || self.tcp.poll(now, &mut events);
        let group = group::of(&events, |event| match event {
            TcpEvent::Message { connection, .. } => Some(*connection),
            _ => None,
        });
        for event in events.drain(..group) {
            match event {
                TcpEvent::Message { connection, message } => {
                    let Some(&smb) = self.by_tcp.get(&connection) else { continue };
                    let mut server = self.plane.server.borrow_mut();
                    if !self.held.is_empty()
                        && let Some(held) = self.held.get_mut(&connection)
                    {
                        held.push_back(message);
                    } else if server.wants_messages(smb) {
                        server.handle_message(smb, message, now);
                    } else {
                        self.tcp.pause(connection);
                        self.paused.push_back(connection);
                        self.held.insert(connection, VecDeque::from([message]));
                    }
                }
                TcpEvent::Opened { connection, peer, local } => {
                    let info = ConnectionInfo { peer, local, transport: Transport::Tcp };
                    match self.plane.server.borrow_mut().connection_opened(info, now) {
                        Some(smb) => {
                            self.by_tcp.insert(connection, smb);
                            self.by_smb.insert(smb, connection);
                        }
                        None => self.tcp.close(connection, false),
                    }
                }
                TcpEvent::Closed { connection, reason } => {
                    tracing::debug!(connection = connection.0, ?reason, "connection closed");
                    if let Some(smb) = self.by_tcp.remove(&connection) {
                        self.by_smb.remove(&smb);
                        self.plane.server.borrow_mut().connection_closed(smb, now);
                    }
                    self.held.remove(&connection);
                }
            }
        }
        self.events = events;
        worked | self.resume(now)
    }

    /// Goes on with connections whose requests the server has worked off; whether there were any.
    fn resume(&mut self, now: Monotonic) -> bool {
        let mut moved = false;
        let mut server = self.plane.server.borrow_mut();
        for _ in 0..self.paused.len().min(LOOKED_AT_ONCE) {
            let Some(connection) = self.paused.pop_front() else { break };
            // It may have ended meanwhile.
            let Some(held) = self.held.get_mut(&connection) else { continue };
            let Some(&smb) = self.by_tcp.get(&connection) else { continue };
            while server.wants_messages(smb)
                && let Some(message) = held.pop_front()
            {
                moved = true;
                server.handle_message(smb, message, now);
            }
            if held.is_empty() && server.wants_messages(smb) {
                self.held.remove(&connection);
                self.tcp.resume(connection);
            } else {
                self.paused.push_back(connection);
            }
        }
        moved
    }

    /// Tells the server how much the sockets keep of what it sent to clients that take less.
    fn count_unsent(&mut self) {
        let server = &mut *self.plane.server.borrow_mut();
        for _ in 0..self.slow.len().min(LOOKED_AT_ONCE) {
            let Some(smb) = self.slow.pop_front() else { return };
            let Some(&tcp) = self.by_smb.get(&smb) else { continue };
            let bytes = self.tcp.queued_bytes(tcp);
            server.set_unsent(smb, bytes);
            if bytes > 0 {
                self.slow.push_back(smb);
            }
        }
    }

    /// Hands what the server has to say to the sockets.
    fn transmit(&mut self) {
        let server = &mut *self.plane.server.borrow_mut();
        let mut connections = std::mem::take(&mut self.connections);
        server.take_transmitters(&mut connections);
        for smb in connections.drain(..) {
            if let Some(direct) = self.plane.direct.borrow_mut().as_mut()
                && let Some(standing) = direct.transmit(smb, |smb| server.poll_outgoing(smb))
            {
                if standing == Standing::Guest && server.user(smb).is_some() {
                    direct.become_member(smb);
                }
                continue;
            }
            let Some(&tcp) = self.by_smb.get(&smb) else { continue };
            while let Some(message) = server.poll_transmit(smb) {
                self.tcp.send(tcp, message);
            }
            self.tcp.flush(tcp);
            let unsent = self.tcp.queued_bytes(tcp);
            if unsent > 0 && !server.set_unsent(smb, unsent) {
                self.slow.push_back(smb);
            }
            // Changes with a logon, and with the last logoff.
            if self.tcp.set_message_bytes_max(tcp, server.message_bytes_max(smb)) {
                self.tcp.set_standing(tcp, server.user(smb));
            }
        }
        server.take_closing(&mut connections);
        for smb in connections.drain(..) {
            match self.by_smb.get(&smb) {
                Some(&tcp) => self.tcp.close(tcp, true),
                None => {
                    self.with_direct(|direct| {
                        direct.close(smb);
                        true
                    });
                }
            }
        }
        self.connections = connections;
        if self.plane.draining.get() {
            let unsent = self.by_tcp.keys().map(|&tcp| self.tcp.queued_bytes(tcp)).sum();
            self.plane.unsent_bytes.set(unsent);
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
