//! The data plane: one thread with one loop for disks, stores, virtual disks, volumes and SMB connections.
//!
//! A turn of the loop: completions of the kernel are passed up (disks, stores, replicas, coordinators,
//! volumes, server) and requests down again until nothing changes any more; then the kernel gets all
//! gathered requests, and the thread sleeps until the next completion, command or timeout. Commands of
//! the control plane come through a channel and a waker; those that take many turns run as tasks of the
//! node. Promises: nothing on this thread blocks once it serves; it ends only by a drain, or when the
//! loop itself fails. Combines the node (disks, pools, volumes) and the SMB server; holds no logic of
//! either.

mod accounts;
mod bus;
mod clients;
mod commands;
mod frontend;
mod joining;
mod rdma_providers;
mod show;
#[cfg(test)]
mod tests;

pub use show::show_peer;

use crate::control::{
    Command, CommandError, ControlHandle, DataPlane, DataPlaneOptions, SmbPolicy, channel_with,
};
use crate::limits::Limits;
use ::bus::{Exports, Served, WithNodes};
use accounts::ServerDirectory;
use bus::{Bus, NodeDisks};
use clients::SmbServer;
use frontend::{Frontend, ServerFront};
use joining::Joining;
use node::pulse::Pulse;
use node::{Node, Settings};
use show::Show;
use smb_server::{Config, Server};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, SystemTime};
use sys::driver::{Driver, DriverChoice, DriverKind};
use types::{FileTime, Monotonic};

/// The time of day.
fn wall_clock() -> FileTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix_nanos(since.as_nanos() as i128)
}

/// Interval between readings of the wall clock, which may be set.
const WALL_CLOCK: Duration = Duration::from_secs(1);
/// Time after which unused free memory is returned.
const TRIM: Duration = Duration::from_secs(10);
/// Timeout of a start for disks and volumes; later ones are served when they arrive.
const RECOVERY_MAX: Duration = Duration::from_secs(15);
/// The longest sleep; all shorter waits have timeouts of their own.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// The longest sleep while clients wait to be received from again: they may wait for a client that others wait for too.
const PAUSED_SLEEP: Duration = Duration::from_millis(10);
/// Opens that one session may always have, even if the server may have few.
const SESSION_OPENS_MIN: usize = 16;
/// Share of the cache's bytes kept as free memory beside it, for data that is overwritten repeatedly: a
/// sixteenth.
const KEPT_DIVISOR: usize = 16;

/// Starts the data plane, and waits until every recorded volume that can be served is.
///
/// # Errors
/// If the thread or its loop cannot start, or the cluster state cannot be read. Missing disks and
/// volumes are no errors: the snapshot's health shows them.
pub fn start(options: DataPlaneOptions, on_loop: node::OnLoop) -> Result<DataPlane, CommandError> {
    let (ready, answer) = channel();
    let thread = std::thread::Builder::new()
        .name("cenote-data".to_owned())
        .spawn(move || {
            // Peers rely on this loop's heartbeat. Threads that it starts have normal priority.
            if let Err(error) = sys::ask_for_precedence() {
                tracing::info!(
                    %error,
                    "the data plane has no precedence over other processes: see docs/OPERATIONS.md, Hyper-converged machines"
                );
            }
            run(options, on_loop, &ready)
        })
        .map_err(|error| failed(format!("the data plane's thread cannot be started: {error}")))?;
    match answer.recv() {
        Ok(control) => Ok(DataPlane { control, thread }),
        Err(_) => match thread.join() {
            Ok(Err(error)) => Err(error),
            _ => Err(failed("the data plane ended while it started".to_owned())),
        },
    }
}

fn no_bus(error: std::io::Error) -> CommandError {
    failed(format!("the storage bus cannot be set up: {error}"))
}

fn failed(message: String) -> CommandError {
    CommandError::io(message)
}

type Ready = Sender<ControlHandle>;

fn run(options: DataPlaneOptions, on_loop: node::OnLoop, ready: &Ready) -> Result<(), CommandError> {
    let driver = Driver::new(DriverChoice::Automatic)
        .map_err(|error| failed(format!("the event loop cannot be set up: {error}")))?;
    if driver.kind() == DriverKind::Fallback {
        tracing::warn!("io_uring is not permitted here: the slower fallback is used");
    }
    driver.busy_poll(options.limits.busy_poll);
    let waker = driver.waker();
    let (control, commands) = channel_with(Arc::new(move || waker.wake()));
    let pulse = options.pulse.clone();
    let cache_bytes = options.limits.cache_bytes;
    let plane = Plane::new(options, driver.clone(), on_loop)?;
    plane.node.recover();
    let mut turns = Turns::new(driver, plane, commands, cache_bytes, pulse);
    // Recorded disks and volumes first: connecting clients find all of them. A node of a cluster serves
    // immediately: the others' volumes wait for its disks, as its own do for theirs.
    let wait = if turns.plane.bus.get().is_some() { Duration::ZERO } else { RECOVERY_MAX };
    let patience = turns.plane.node.tasks.now().after(wait);
    while !turns.plane.node.is_recovered() && turns.plane.node.tasks.now() < patience {
        turns.turn(false)?;
    }
    tracing::info!(volumes = turns.plane.node.volumes.ids().len(), "the data plane serves");
    // Fails only if the caller has stopped waiting.
    let _ = ready.send(control);
    while !turns.plane.ended.get() {
        turns.turn(true)?;
    }
    // The last command may still run. A server that joins a cluster needs its ports immediately.
    turns.plane.node.tasks.end();
    Ok(())
}

/// The thread's parts.
pub(crate) struct Plane {
    node: Rc<Node>,
    driver: Driver,
    /// None: a single server.
    bus: OnceCell<Bus>,
    joining: Joining,
    frontend: Frontend,
    show: Show,
    /// The thread may end.
    ended: Cell<bool>,
}

impl Plane {
    fn new(
        options: DataPlaneOptions,
        driver: Driver,
        on_loop: node::OnLoop,
    ) -> Result<Rc<Self>, CommandError> {
        let (now, wall_clock) = (sys::monotonic_now(), wall_clock());
        let limits = options.limits;
        let mut rdma_devices = options.rdma_devices;
        let providers = rdma_providers::open(
            &driver,
            &limits,
            options.rdma_listeners,
            options.smb.rdma_crc_optional,
            &mut rdma_devices,
        )?;
        let (providers, rdma_addresses) = providers;
        let clients = clients::open(&driver, &limits, options.smb_listeners, providers)?;
        let config = server_config(&options.server_guid, &options.smb, &limits);
        let bus = match &options.cluster {
            Some(cluster) => Some(Bus::new(&driver, cluster, now).map_err(no_bus)?),
            None => None,
        };
        let membership =
            bus.as_ref().zip(options.cluster.as_ref()).map(|(bus, cluster)| bus.membership(cluster));
        let directory = WithNodes { inner: ServerDirectory(options.directory), nodes: options.accounts };
        let random = Box::new(|bytes: &mut [u8]| {
            // Without random bytes no key and no nonce is safe: the data plane cannot start.
            getrandom::fill(bytes).expect("the kernel's random source");
        });
        let server: SmbServer = Server::new(config, directory, random, now, wall_clock);
        let server = Rc::new(RefCell::new(server));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let node = node::Options {
            driver: driver.clone(),
            on_loop,
            state: options.state.clone(),
            front: Box::new(ServerFront(server.clone())),
            settings: settings(&limits),
            search: options.disk_paths,
            host: host.trim().to_owned(),
            membership,
        };
        let node = Rc::new(Node::new(node, now, wall_clock));
        if bus.is_some() {
            let exports = Exports::new(NodeDisks(Rc::downgrade(&node)));
            server.borrow_mut().add_volume(::bus::VOLUME, Served::Bus(exports));
        }
        Ok(Rc::new(Self {
            node,
            driver,
            bus: bus.map_or_else(OnceCell::new, OnceCell::from),
            joining: Joining::default(),
            frontend: Frontend::new(server, clients, options.logon_lines, options.pipe_changes),
            show: Show::new(rdma_addresses, rdma_devices.refused, limits, now),
            ended: Cell::new(false),
        }))
    }
}

/// The limits that the node keeps.
fn settings(limits: &Limits) -> Settings {
    Settings {
        cache_bytes: limits.cache_bytes,
        opens: limits.opens as usize,
        locks_per_open: limits.locks_per_open as usize,
        disk_timeout: limits.disk_timeout,
        repair_delay: limits.repair_delay,
        scrub_period: limits.scrub_period,
        scrub_rate: limits.scrub_rate,
    }
}

fn server_config(guid: &[u8; 16], policy: &SmbPolicy, limits: &Limits) -> Config {
    let mut config = Config::new(*guid, policy.server_name.clone());
    config.require_signing = policy.require_signing;
    config.further_names.clone_from(&policy.names);
    config.refuse_other_names = policy.refuse_other_names;
    if !policy.require_signing && !policy.require_encryption {
        tracing::warn!(
            "smb.require_signing is false: whoever a user's client talks to can use that user's logon on this server, unless the client says \
             which server it means"
        );
    }
    config.require_encryption = policy.require_encryption;
    config.interfaces = policy.interfaces.clone();
    // Each transport enforces the limit, and evicts connections: briefly there are more of them here.
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
    driver: Driver,
    plane: Rc<Plane>,
    commands: Receiver<Command>,
    wall_clock_at: Monotonic,
    trim_at: Monotonic,
    pulse: Pulse,
}

impl Turns {
    fn new(
        driver: Driver,
        plane: Rc<Plane>,
        commands: Receiver<Command>,
        cache_bytes: u64,
        pulse: Pulse,
    ) -> Self {
        let cache_bytes = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
        sys::keep_free_memory(cache_bytes / KEPT_DIVISOR);
        sys::populate_memory_ahead();
        Self { driver, plane, commands, wall_clock_at: Monotonic(0), trim_at: Monotonic(0), pulse }
    }

    /// Works until nothing changes, then sleeps. `serving`: also handles clients and commands.
    fn turn(&mut self, serving: bool) -> Result<(), CommandError> {
        let plane = self.plane.clone();
        let (node, frontend) = (&plane.node, &plane.frontend);
        let now = sys::monotonic_now();
        node.tell_time(now);
        if now >= self.wall_clock_at {
            self.wall_clock_at = now.after(WALL_CLOCK);
            let wall_clock = wall_clock();
            frontend.set_wall_clock(now, wall_clock);
            node.set_wall_clock(now, wall_clock);
            node.care();
            if let Some(bus) = plane.bus.get() {
                bus.look(node);
            }
        }
        if now >= self.trim_at {
            self.trim_at = now.after(TRIM);
            sys::trim_free_memory();
        }
        loop {
            let mut worked = plane.bus.get().is_some_and(|bus| bus.poll(node, now));
            if serving {
                worked |= frontend.hear_clients(now);
                worked |= self.hear_commands();
            }
            // Behind the clients' messages: a request that waits for nothing is answered in the same round.
            worked |= node.poll();
            worked |= frontend.poll(now);
            if serving {
                worked |= frontend.put_on_wire(now);
            }
            // Clients' operations may have sent the spaces more requests meanwhile.
            if !worked && !node.has_unsent() {
                break;
            }
        }
        frontend.end_turn(now);
        let sleep = if node.has_unsent() { Duration::ZERO } else { self.sleep(now) };
        self.driver.wait(Some(sleep)).map_err(|error| failed(format!("the event loop failed: {error}")))?;
        self.pulse.beat();
        Ok(())
    }

    fn sleep(&self, now: Monotonic) -> Duration {
        let next = self.plane.node.next_timeout();
        let next = self.plane.frontend.next_timeout(now).map_or(next, |at| at.min(next));
        let next = self.plane.bus.get().and_then(Bus::next_timeout).map_or(next, |at| at.min(next));
        let most = if self.plane.frontend.has_held() { PAUSED_SLEEP } else { SLEEP_MAX };
        next.since(now).min(most)
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
                // The control plane has ended without a drain: the process is about to end.
                Err(TryRecvError::Disconnected) => {
                    self.plane.ended.set(true);
                    return false;
                }
            }
        }
    }
}
