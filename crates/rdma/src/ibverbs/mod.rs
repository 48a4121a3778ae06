//! RDMA by libibverbs and librdmacm: network cards, siw and rxe.
//!
//! Owns the event channel, the listeners, the connections and the registrations. The libraries are opened at run time; if they or
//! the devices are absent, [`devices()`] says so and nothing else happens. Promises: no call waits for a peer; a peer reaches only
//! what is registered for its own connection (each has a protection domain of its own); memory outlives the device's use of it.
//! Only base verbs are used (`ibv_post_send`, `ibv_post_recv`, `ibv_poll_cq`), which every driver has.
//!
//! How it is driven: the descriptors of all channels are in one epoll set, and the data plane's loop waits for that one. A notice
//! says which connection has completions; its queue is armed again before it is emptied, so that none is missed.

#![allow(unsafe_code)]
// Names of the C headers.
#![allow(non_camel_case_types)]

mod address;
mod cm;
mod devices;
mod endpoint;
mod layout;
#[cfg(test)]
mod layout_tests;
mod library;
mod pair;
mod resources;
mod staging;
#[cfg(test)]
mod tests;

pub use address::local_addresses;
pub use devices::{Device, DeviceLimits, Port, PortState, devices};

use crate::verbs::{
    Access, Activity, CloseReason, CompletionKind, ConnectionInfo, Event, PostError, QueuePairId, RegionKey,
    RegisterError, Transport, Verbs, WorkId,
};
use cm::{ConnectionId, EventChannel};
use endpoint::Request;
use layout::{IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE};
use library::Library;
use pair::{Pair, State};
use resources::{Memory, MemoryRegion};
use rustix::event::epoll;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use sys::driver::{self, Driver, IoOperation, Queue};
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

/// The longest message of InfiniBand and RoCE; iWARP has 4 GiB - 1.
const MESSAGE_BYTES_MAX: usize = 1 << 31;
/// Time to answer a request for a connection. siw's initiator gives up after five seconds, and its responder does not bear
/// an answer after that.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(4);
/// From the start to an established connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the first flushed work to the connection manager's word on why.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an ended connection waits for the peer to acknowledge its end.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;
/// Registrations made in search of a key that no other device gave.
const KEY_ATTEMPTS: usize = 16;

/// Notices taken in one call, and calls in one turn.
const NOTICES: usize = 64;

/// The event channel's mark in the epoll set; identifiers of connections are smaller.
const CHANNEL: u64 = u64::MAX;
/// Names of listeners have this bit, and the listener's index.
const LISTENER: u64 = 1 << 63;

/// Settings of a provider over devices.
#[derive(Debug, Clone)]
pub struct IbverbsOptions {
    /// RDMA Reads that we serve and have outstanding at a time, if the device allows as many.
    pub inbound_read_depth: u8,
    /// RDMA Reads that one connection may have outstanding, if the device allows as many.
    pub outbound_read_depth: u8,
    /// Most connections at a time; more are refused.
    pub queue_pairs_max: usize,
}

impl Default for IbverbsOptions {
    fn default() -> Self {
        Self { inbound_read_depth: 32, outbound_read_depth: 32, queue_pairs_max: 1024 }
    }
}

/// Where a provider listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// Local address with the port that was taken.
    pub address: SocketAddr,
    /// Kernel's name of the device, such as mlx5_0.
    pub device: String,
    /// Protocol that peers must speak.
    pub transport: Transport,
}

/// Whether a local address can be listened on by the device that it belongs to: listens there for a moment.
///
/// # Errors
/// Why not, for people.
pub fn try_listen(address: SocketAddr) -> Result<Listening, String> {
    let library = library::library()?;
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENODEV) => format!("{address} leads to no RDMA device"),
        Some(libc::EADDRNOTAVAIL) => format!("{address} is not this machine's"),
        Some(libc::EADDRINUSE) => format!(
            "port {} of {} is taken; over iWARP that is so while anything listens there by TCP, also SMB Direct in software",
            address.port(),
            address.ip()
        ),
        _ => format!("{address} cannot be listened on: {error}"),
    };
    let channel = EventChannel::new(library).map_err(failed)?;
    let mut id = ConnectionId::new(library, &channel, 0).map_err(failed)?;
    listen_with(library, &mut id, address).map_err(failed)
}

fn listen_with(library: &Library, id: &mut ConnectionId, address: SocketAddr) -> io::Result<Listening> {
    id.bind(address)?;
    id.listen(BACKLOG)?;
    let context = id.context().ok_or(io::ErrorKind::Unsupported)?;
    Ok(Listening {
        address: id.local_address().unwrap_or(address),
        device: context.name(library),
        transport: pair::transport(library, context),
    })
}

struct Listener {
    /// Listens until it is dropped.
    _id: ConnectionId,
    listening: Listening,
}

/// A registration and whose it is.
struct Registered {
    queue_pair: QueuePairId,
    region: Region,
}

enum Region {
    Live(MemoryRegion),
    /// The region ended with its connection; the bytes wait for their owner.
    Ended(Option<BufMut>),
}

/// See the module.
pub struct IbverbsProvider {
    library: &'static Library,
    options: IbverbsOptions,
    // Dropped before the channel they are of.
    pairs: Vec<Option<Pair>>,
    lingering: Vec<(ConnectionId, u64, Monotonic)>,
    listeners: Vec<Option<Listener>>,
    regions: HashMap<u32, Registered>,
    free: Vec<u32>,
    generation: u32,
    open: usize,
    /// Activity of connections that ended, except for `active_connections`.
    activity: Activity,
    channel: Rc<EventChannel>,
    set: Arc<OwnedFd>,
    queue: Queue,
    notices: Vec<driver::Completion>,
    /// The loop waits for the set.
    watching: bool,
    pending: Vec<Event>,
    now: Monotonic,
}

impl IbverbsProvider {
    /// Opens the libraries and the connection manager.
    ///
    /// # Errors
    /// Why there is no RDMA by verbs on this machine, in words.
    pub fn new(driver: &Driver, options: IbverbsOptions) -> Result<Self, String> {
        let library = library::library()?;
        devices()?;
        let failed = |error: io::Error| {
            format!("the RDMA connection manager cannot be used ({error}): is the module rdma_ucm loaded?")
        };
        let channel = EventChannel::new(library).map_err(failed)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        epoll::add(&set, &*channel, epoll::EventData::new_u64(CHANNEL), epoll::EventFlags::IN)
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            library,
            options,
            pairs: Vec::new(),
            lingering: Vec::new(),
            listeners: Vec::new(),
            regions: HashMap::new(),
            free: Vec::new(),
            generation: 0,
            open: 0,
            activity: Activity::default(),
            channel,
            set: Arc::new(set),
            queue: driver.queue(),
            notices: Vec::new(),
            watching: false,
            pending: Vec::new(),
            now: Monotonic(0),
        })
    }

    /// Accepts connections to a local address, on the device that it belongs to. Port 0 takes a free one.
    ///
    /// # Errors
    /// ENODEV (`Unsupported` or `Uncategorized`): the address belongs to no RDMA device; else as for a socket.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<Listening> {
        let name = LISTENER | self.listeners.len() as u64;
        let mut id = ConnectionId::new(self.library, &self.channel, name)?;
        let listening = listen_with(self.library, &mut id, address)?;
        self.listeners.push(Some(Listener { _id: id, listening: listening.clone() }));
        Ok(listening)
    }

    /// Where it listens; a device that was removed listens no more.
    pub fn listening(&self) -> impl Iterator<Item = &Listening> {
        self.listeners.iter().flatten().map(|listener| &listener.listening)
    }

    /// Returns the number of connections, those under way included.
    pub fn queue_pair_count(&self) -> usize {
        self.open
    }

    /// How many registrations of the owner there are.
    pub fn registered_count(&self) -> usize {
        self.regions.len()
    }

    /// Begins a connection as initiator; `Established` or `Disconnected` follows.
    ///
    /// # Errors
    /// If no RDMA device leads to the address, or there are too many connections.
    pub fn connect(
        &mut self,
        address: SocketAddr,
        private_data: &[u8],
        now: Monotonic,
    ) -> io::Result<QueuePairId> {
        if private_data.len() > usize::from(u8::MAX) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (slot, id) = self.name().ok_or(io::ErrorKind::QuotaExceeded)?;
        let made = ConnectionId::new(self.library, &self.channel, id.0).and_then(|mut connection| {
            connection.resolve_address(address)?;
            Ok(connection)
        });
        match made {
            Ok(connection) => {
                let mut pair = Pair::new(id, connection, State::Resolving, now.after(CONNECT_TIMEOUT));
                pair.peer = address;
                pair.private_data = private_data.to_vec();
                self.insert(slot, pair);
                self.activity.initiated_connections += 1;
                Ok(id)
            }
            Err(error) => {
                self.free.push(slot as u32);
                Err(error)
            }
        }
    }

    fn name(&mut self) -> Option<(usize, QueuePairId)> {
        if self.open >= self.options.queue_pairs_max {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None => {
                self.pairs.push(None);
                self.pairs.len() - 1
            }
        };
        self.generation = (self.generation + 1) & 0x3FFF_FFFF;
        // Never 0, the name in an identifier without one.
        Some((slot, QueuePairId(u64::from(self.generation.max(1)) << 32 | slot as u64)))
    }

    fn insert(&mut self, slot: usize, pair: Pair) {
        self.open += 1;
        self.pairs[slot] = Some(pair);
    }

    fn pair(&self, id: QueuePairId) -> Option<&Pair> {
        self.pairs.get(id.slot())?.as_ref().filter(|pair| pair.id == id)
    }

    fn pair_mut(&mut self, id: QueuePairId) -> Option<&mut Pair> {
        self.pairs.get_mut(id.slot())?.as_mut().filter(|pair| pair.id == id)
    }

    /// Hands work to an established connection; if its device refuses, the connection ends and flushes it.
    fn post(&mut self, id: QueuePairId, work: WorkId, request: Request) -> Result<(), PostError> {
        let pair = self.pair_mut(id).filter(|pair| pair.is_open()).ok_or(PostError::Closed)?;
        let endpoint = pair.endpoint.as_mut().ok_or(PostError::Closed)?;
        if let Err(error) = endpoint.post(&pair.connection, work, request) {
            pair.fail(format!("work is refused by the device: {error}"));
        }
        Ok(())
    }

    /// Registers for one connection, under a key that is no other's.
    fn register_memory(
        &mut self,
        queue_pair: QueuePairId,
        mut memory: Memory,
        rights: c_int,
    ) -> Result<RegionKey, RegisterError> {
        let pair = self.pair(queue_pair).ok_or(RegisterError::Closed)?;
        let domain = pair.endpoint.as_ref().ok_or(RegisterError::Closed)?.domain.clone();
        let refused = |error: io::Error| RegisterError::Refused(error.kind());
        let mut taken = Vec::new();
        for _ in 0..KEY_ATTEMPTS {
            let region = match memory {
                Memory::Owned(bytes) => MemoryRegion::owned(&domain, bytes, rights),
                Memory::Shared(bytes) => MemoryRegion::shared(&domain, bytes, rights),
            };
            let region = region.map_err(refused)?;
            // On some devices, memory that no peer may touch has no remote key: all such registrations would be called 0.
            let is_remote = rights & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) != 0;
            let key = if is_remote { region.remote_key() } else { region.local_key() };
            if let Entry::Vacant(entry) = self.regions.entry(key) {
                entry.insert(Registered { queue_pair, region: Region::Live(region) });
                return Ok(RegionKey(key));
            }
            // Devices do not know of each other's keys. A registration in between keeps this one from being given again.
            memory = region.end().ok_or(RegisterError::Refused(io::ErrorKind::Other))?;
            taken.push(MemoryRegion::owned(&domain, BufMut::zeroed(1), 0).map_err(refused)?);
        }
        Err(RegisterError::Refused(io::ErrorKind::AddrInUse))
    }

    /// Reads the events that the descriptors have.
    fn hear(&mut self) {
        if self.watching {
            let mut notices = std::mem::take(&mut self.notices);
            self.queue.poll(&mut notices);
            self.watching = notices.is_empty();
            notices.clear();
            self.notices = notices;
        }
        if self.watching {
            return;
        }
        let mut events = Vec::with_capacity(NOTICES);
        for _ in 0..NOTICES {
            events.clear();
            let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let found = epoll::wait(&*self.set, rustix::buffer::spare_capacity(&mut events), Some(&zero));
            let Ok(count) = found else { break };
            for event in &events {
                match event.data.u64() {
                    CHANNEL => self.hear_manager(),
                    name => {
                        if let Some(pair) = self.pair_mut(QueuePairId(name)) {
                            pair.notice();
                        }
                    }
                }
            }
            if count < NOTICES {
                break;
            }
        }
        self.watching = true;
        self.queue.submit(0, IoOperation::Readable { socket: self.set.clone() });
    }

    /// Events of the connection manager.
    fn hear_manager(&mut self) {
        while let Ok(Some(event)) = self.channel.next() {
            self.handle(event);
        }
    }

    /// Lets one connection do what it can; ends it if it is over.
    fn drive(&mut self, slot: usize, out: &mut Vec<Event>) {
        let now = self.now;
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        pair.touched = false;
        if pair.deadline.is_some_and(|at| at <= now) {
            pair.time_out();
        }
        pair.work(now, out);
        if let Some(reason) = pair.closing.take() {
            self.close(slot, reason, out);
        }
    }

    /// Ends a connection: completed work is reported, the rest flushed, its registrations end.
    fn close(&mut self, slot: usize, reason: CloseReason, out: &mut Vec<Event>) {
        let Some(mut pair) = self.pairs[slot].take() else { return };
        self.free.push(slot as u32);
        self.open -= 1;
        let id = pair.id;
        let established = pair.state == State::Established;
        if established {
            // Also answers a peer that disconnected. A connection that is gone already cannot be told.
            let _ = pair.connection.disconnect();
        }
        self.activity.connection_errors += u64::from(established && reason.is_error());
        self.activity.failed_connection_attempts += u64::from(!established);
        self.activity += pair.end(out);
        for registered in self.regions.values_mut().filter(|registered| registered.queue_pair == id) {
            if let Region::Live(_) = &registered.region
                && let Region::Live(region) = std::mem::replace(&mut registered.region, Region::Ended(None))
            {
                registered.region = Region::Ended(owned(region.end()));
            }
        }
        out.push(Event::Disconnected { queue_pair: id, reason });
        let (connection, told_by_peer) = pair.into_connection();
        if established && !told_by_peer {
            self.lingering.push((connection, id.0, self.now.after(LINGER_TIMEOUT)));
        }
    }
}

/// Writable bytes go back to their owner.
fn owned(memory: Option<Memory>) -> Option<BufMut> {
    match memory? {
        Memory::Owned(bytes) => Some(bytes),
        Memory::Shared(_) => None,
    }
}

impl Drop for IbverbsProvider {
    fn drop(&mut self) {
        // Queue pairs end before what they use.
        for pair in self.pairs.iter_mut().flatten() {
            pair.connection.destroy_queue_pair();
        }
    }
}

impl Verbs for IbverbsProvider {
    fn accept(&mut self, queue_pair: QueuePairId, private_data: &[u8]) -> Result<(), PostError> {
        let (library, options, now) = (self.library, self.options.clone(), self.now);
        if private_data.len() > usize::from(u8::MAX) {
            return Err(PostError::TooLong);
        }
        let pair = self.pair_mut(queue_pair).filter(|pair| pair.is_open()).ok_or(PostError::Closed)?;
        if pair.state != State::Requested {
            return Err(PostError::Closed);
        }
        pair.private_data = private_data.to_vec();
        pair.state = State::Accepting;
        pair.deadline = Some(now.after(CONNECT_TIMEOUT));
        pair.touched = true;
        // The peer may send as soon as it is accepted: receives are posted first, and `poll` accepts it.
        if let Err(error) = pair.open(library, &options) {
            pair.fail(format!("no queue pair can be made: {error}"));
        }
        self.activity.accepted_connections += 1;
        self.watch(queue_pair);
        Ok(())
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        if let Some(pair) = self.pair_mut(queue_pair)
            && pair.state == State::Requested
        {
            // Where even that fails the peer's own time runs out.
            let _ = pair.connection.reject(private_data);
            pair.end_with(CloseReason::Local);
        }
    }

    fn disconnect(&mut self, queue_pair: QueuePairId) {
        if let Some(pair) = self.pair_mut(queue_pair) {
            pair.end_with(CloseReason::Local);
        }
    }

    fn device_name(&self, queue_pair: QueuePairId) -> Option<String> {
        Some(self.pair(queue_pair)?.connection.context()?.name(self.library))
    }

    fn info(&self, queue_pair: QueuePairId) -> Option<ConnectionInfo> {
        let pair = self.pair(queue_pair)?;
        Some(ConnectionInfo {
            transport: pair.transport,
            local: pair.local,
            peer: pair.peer,
            outbound_read_depth: u16::from(pair.outbound_read_depth),
            inbound_read_depth: u16::from(pair.inbound_read_depth),
            crc: false,
            // Devices let a peer end only fast registrations, which user space cannot make.
            remote_invalidation: false,
            receives_on_demand: false,
        })
    }

    fn register(
        &mut self,
        bytes: BufMut,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        let mut rights = 0;
        if access.remote_read {
            rights |= IBV_ACCESS_REMOTE_READ;
        }
        if access.remote_write {
            rights |= IBV_ACCESS_REMOTE_WRITE;
        }
        // Over iWARP the answer to a read is a tagged write of the peer.
        if self.pair(queue_pair).is_some_and(|pair| pair.transport == Transport::Iwarp) {
            rights |= IBV_ACCESS_REMOTE_WRITE;
        }
        self.register_memory(queue_pair, Memory::Owned(bytes), rights)
    }

    fn register_shared(&mut self, bytes: Buf, queue_pair: QueuePairId) -> Result<RegionKey, RegisterError> {
        self.register_memory(queue_pair, Memory::Shared(bytes), IBV_ACCESS_REMOTE_READ)
    }

    fn remote_offset(&self, key: RegionKey) -> u64 {
        match self.regions.get(&key.0).map(|registered| &registered.region) {
            Some(Region::Live(region)) => region.remote_address(),
            Some(Region::Ended(_)) | None => 0,
        }
    }

    fn deregister(&mut self, key: RegionKey) -> Option<BufMut> {
        match self.regions.remove(&key.0)?.region {
            Region::Live(region) => owned(region.end()),
            Region::Ended(bytes) => bytes,
        }
    }

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        len_bytes: usize,
    ) -> Result<(), PostError> {
        let pair = self.pair_mut(queue_pair).filter(|pair| pair.is_open()).ok_or(PostError::Closed)?;
        match pair.endpoint.as_mut() {
            Some(endpoint) => {
                if let Err(error) = endpoint.post_receive(&pair.connection, id, len_bytes) {
                    pair.fail(format!("a receive is refused by the device: {error}"));
                }
            }
            None => pair.early_receives.push((id, len_bytes)),
        }
        Ok(())
    }

    fn post_send(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError> {
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(PostError::TooLong);
        }
        self.post(queue_pair, id, Request::Send { payload, invalidate })
    }

    fn post_write(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError> {
        if payload.len() > MESSAGE_BYTES_MAX {
            return Err(PostError::TooLong);
        }
        self.post(queue_pair, id, Request::Write { payload, remote })
    }

    fn post_read(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        sink: (RegionKey, u64),
        len_bytes: u32,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError> {
        if len_bytes as usize > MESSAGE_BYTES_MAX {
            return Err(PostError::TooLong);
        }
        let pair = self.pair(queue_pair).filter(|pair| pair.is_open()).ok_or(PostError::Closed)?;
        if pair.outbound_read_depth == 0 {
            return Err(PostError::NoReadDepth);
        }
        let element = self.regions.get(&sink.0.0).and_then(|registered| match &registered.region {
            Region::Live(region) if registered.queue_pair == queue_pair && region.is_writable() => {
                region.element(usize::try_from(sink.1).ok()?, len_bytes as usize)
            }
            _ => None,
        });
        let Some(sink) = element else {
            let mut completion = endpoint::flushed(queue_pair, id, CompletionKind::Read);
            completion.status = crate::Status::LocalProtection;
            self.activity.completion_queue_errors += 1;
            self.pending.push(Event::Completion(completion));
            return Ok(());
        };
        self.post(queue_pair, id, Request::Read { sink, remote })
    }

    fn poll(&mut self, now: Monotonic, out: &mut Vec<Event>) {
        self.now = now;
        self.hear();
        out.append(&mut self.pending);
        for slot in 0..self.pairs.len() {
            let due = |pair: &Pair| pair.touched || pair.deadline.is_some_and(|at| at <= now);
            if self.pairs[slot].as_ref().is_some_and(due) {
                self.drive(slot, out);
            }
        }
        self.lingering.retain(|(_, _, until)| *until > now);
    }

    /// Frames, and the peers' reads and writes by RDMA, are the device's own affair: they are not counted.
    fn activity(&self) -> Activity {
        let mut activity = self.activity;
        for pair in self.pairs.iter().flatten() {
            activity.active_connections += u64::from(pair.state == State::Established);
            if let Some(endpoint) = &pair.endpoint {
                activity += endpoint.activity;
            }
        }
        activity
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        let pairs = self.pairs.iter().flatten();
        let next = pairs.filter_map(|pair| if pair.touched { Some(self.now) } else { pair.deadline }).min();
        let pending = (!self.pending.is_empty()).then_some(self.now);
        let lingering = self.lingering.iter().map(|(_, _, until)| *until).min();
        [next, pending, lingering].into_iter().flatten().min()
    }
}
