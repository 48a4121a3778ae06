//! iWARP in software: [`::iwarp::Connection`] over sockets of the data plane's loop.
//!
//! Owns the sockets, the registrations and a name for each connection. An idle connection holds no receive buffer and costs a turn
//! of the loop nothing. Connections that are not established are bounded: beyond half of all there may be, the oldest of the host with
//! most of them makes room.

mod queue_pair;

use queue_pair::{QueuePair, Receipts, Receiving};

use crate::timers::Timers;
use crate::verbs::{
    Access, Activity, CloseReason, ConnectionInfo, Event, PostError, QueuePairId, RegionKey, RegisterError,
    Transport, Verbs, WorkId,
};
pub use iwarp::CrcPolicy;
pub use iwarp::connection::{Shape, ShapeOf};
use iwarp::mpa::Extension;
use iwarp::{Config, Connection, DomainId, Memory, SendFlags, Stag, StreamId};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use sys::driver::{self, Descriptor, Driver, IoOperation, Outcome, Queue};
use sys::{Buf, BufMut, Payload};
use types::{Admission, AdmissionLimits, Monotonic, PeerHost};

/// One protection domain: each registration is bound to a stream, which keeps peers apart.
const DOMAIN: DomainId = DomainId(1);
/// A connection without traffic for this time gives its receive buffer back.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes that one send takes, about, if a CRC is made of them: they are still in the processor's cache
/// when the kernel copies them.
const SUMMED_BYTES: usize = 256 << 10;
/// Bytes that one receive takes into its place, about, if a CRC is made of them: the cache also has to
/// hold the kernel's source. With 64 KiB the CRC of 1 MiB took 20 us of a server with a cache of 2 MiB
/// by processor, with 256 KiB 31, without a bound 75.
const PLANNED_SUMMED_BYTES: usize = 64 << 10;
/// Payload of messages with less still to come is copied from where several of them were received at once: fewer receives and wakes cost
/// less than the copy, which is of bytes in the processor's cache.
const PLANNED_BYTES_MIN: usize = 128 << 10;
/// Time after which accepting continues, if descriptors were exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long a peer may take for the last bytes of a connection that has ended.
const LINGER: Duration = Duration::from_secs(2);
/// How long siw needs from its reply to its first receive.
const FIRST_SEND_DELAY: Duration = Duration::from_millis(20);
/// Loopback and most networks; the kernel cuts what does not fit.
const SEGMENT_BYTES: usize = 1460;
/// By this two ends of this code know each other: FPDUs between them are as long as they may be, also with CRC.
const EXTENSION: Extension = Extension {
    atomics_and_immediate: false,
    flush: false,
    ulpdu_bytes_max: iwarp::framing::ULPDU_BYTES_MAX as u16,
};

/// Tokens: the low two bits say what it is for.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const ACCEPT: u64 = 2;
/// Of a listener, or of a connection: the names of those are above 32 bits.
const TIMER: u64 = 3;

/// Settings of the provider in software.
#[derive(Debug, Clone)]
pub struct IwarpOptions {
    /// Whether connections use CRC, which a peer can always demand.
    pub crc: CrcPolicy,
    /// RDMA Reads of the peer that one connection serves at a time; at most 16383.
    pub inbound_read_depth: u16,
    /// RDMA Reads that one connection may have outstanding; at most 16383.
    pub outbound_read_depth: u16,
    /// Most connections at a time; accepted ones may take half before they are established.
    pub queue_pairs_max: usize,
    /// How the buffer of a message that comes is best allocated.
    pub receive_shape: Option<ShapeOf>,
    /// Whether Sends and Writes that succeeded one after the other may share one completion: the last
    /// one's, with the bytes of all.
    pub tells_sent_together: bool,
    /// Whether connections report that receives take memory only as messages come, which is always so here.
    /// Tests turn it off to stand for a device.
    pub receives_on_demand: bool,
}

impl Default for IwarpOptions {
    fn default() -> Self {
        Self {
            crc: CrcPolicy::On,
            inbound_read_depth: 32,
            outbound_read_depth: 32,
            queue_pairs_max: 1024,
            receive_shape: None,
            tells_sent_together: false,
            receives_on_demand: true,
        }
    }
}

struct Listener {
    socket: Descriptor,
    local: SocketAddr,
}

/// See the module. `random` must be fit for keys: registrations are named by it.
pub struct IwarpProvider {
    queue: Queue,
    options: IwarpOptions,
    random: Box<dyn FnMut() -> u32>,
    memory: Memory,
    receipts: Receipts,
    listeners: Vec<Listener>,
    pairs: Vec<Option<QueuePair>>,
    free: Vec<u32>,
    generation: u32,
    open: usize,
    /// Slots of connections for which something may be to be done.
    touched: Vec<u32>,
    /// Connections whose memory of unfinished messages has changed, until the owner takes them.
    unfinished: Vec<(QueuePairId, usize)>,
    timers: Timers<u32>,
    /// Accepted connections that are not established.
    half_open: Admission<QueuePairId>,
    /// Activity of connections that ended, except for `active_connections`.
    activity: Activity,
    completions: Vec<driver::Completion>,
    now: Monotonic,
}

impl IwarpProvider {
    /// Makes a provider without connections on the loop of `driver`.
    pub fn new(driver: &Driver, options: IwarpOptions, random: Box<dyn FnMut() -> u32>) -> Self {
        let half = (options.queue_pairs_max / 2).max(1);
        let places = AdmissionLimits {
            connections: half,
            connections_per_host: half,
            guests: half,
            guests_per_host: half,
        };
        Self {
            queue: driver.queue(),
            options,
            random,
            memory: Memory::new(),
            receipts: Receipts::default(),
            listeners: Vec::new(),
            pairs: Vec::new(),
            free: Vec::new(),
            generation: 1,
            open: 0,
            touched: Vec::new(),
            unfinished: Vec::new(),
            timers: Timers::default(),
            half_open: Admission::new(places),
            activity: Activity::default(),
            completions: Vec::new(),
            now: Monotonic(0),
        }
    }

    /// Returns the number of connections, those under way included.
    pub fn queue_pair_count(&self) -> usize {
        self.open
    }

    /// Bytes that peers may reach, and how many registrations hold them.
    pub fn registered(&self) -> (u64, usize) {
        (self.memory.registered_bytes(), self.memory.region_count())
    }

    /// Counters of one connection.
    pub fn counters(&self, queue_pair: QueuePairId) -> Option<iwarp::connection::Counters> {
        Some(self.pair(queue_pair)?.connection.counters())
    }

    /// Accepts connections of this listener.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn listen(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        let local = listener.local_addr()?;
        let socket: Descriptor = Arc::new(OwnedFd::from(listener));
        let index = self.listeners.len() as u64;
        self.queue.submit(index << 2 | ACCEPT, IoOperation::Accept { listener: socket.clone() });
        self.listeners.push(Listener { socket, local });
        Ok(local)
    }

    /// Begins a connection as initiator over a TCP connection that is up.
    ///
    /// # Errors
    /// If the socket has no addresses, or there are too many connections.
    pub fn connect(
        &mut self,
        stream: TcpStream,
        private_data: &[u8],
        now: Monotonic,
    ) -> io::Result<QueuePairId> {
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        let (slot, id) = self.name().ok_or(io::ErrorKind::QuotaExceeded)?;
        let config = Config { first_send_delay: FIRST_SEND_DELAY, legacy_depths: true, ..self.config(id) };
        let connection = Connection::connect(config, private_data, now);
        self.insert(slot, id, OwnedFd::from(stream), local, peer, connection)?;
        self.activity.initiated_connections += 1;
        Ok(id)
    }

    fn config(&self, id: QueuePairId) -> Config {
        Config {
            crc: self.options.crc,
            inbound_read_depth: self.options.inbound_read_depth,
            outbound_read_depth: self.options.outbound_read_depth,
            segment_bytes: SEGMENT_BYTES,
            summed_bytes_max: SUMMED_BYTES,
            planned_summed_bytes_max: PLANNED_SUMMED_BYTES,
            receive_shape: self.options.receive_shape,
            tells_sent_together: self.options.tells_sent_together,
            planned_bytes_min: PLANNED_BYTES_MIN,
            extension: Some(EXTENSION),
            ..Config::new(DOMAIN, StreamId(id.0))
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
        // Never zero: names of listeners are.
        self.generation = (self.generation.wrapping_add(1) & 0x3FFF_FFFF).max(1);
        // The two lowest bits of a token are the operation's.
        Some((slot, QueuePairId(u64::from(self.generation) << 32 | slot as u64)))
    }

    fn insert(
        &mut self,
        slot: usize,
        id: QueuePairId,
        socket: OwnedFd,
        local: SocketAddr,
        peer: SocketAddr,
        connection: Connection,
    ) -> io::Result<()> {
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        let socket: Descriptor = Arc::new(socket);
        self.open += 1;
        self.pairs[slot] = Some(QueuePair::new(id, socket, local, peer, connection, self.now));
        self.touch(slot);
        Ok(())
    }

    /// Something may be to be done for the connection of this slot.
    fn touch(&mut self, slot: usize) {
        if let Some(Some(pair)) = self.pairs.get_mut(slot) {
            pair.touch(slot, &mut self.touched);
        }
    }

    fn pair(&self, id: QueuePairId) -> Option<&QueuePair> {
        self.pairs.get(id.slot())?.as_ref().filter(|pair| pair.id == id)
    }

    /// Registers for this connection's peer alone what `make` puts into the engine's memory, under a name that nobody can guess.
    fn register_with(
        &mut self,
        queue_pair: QueuePairId,
        make: impl FnOnce(&mut Memory, Option<StreamId>, u32) -> Stag,
    ) -> Result<RegionKey, RegisterError> {
        self.pair(queue_pair).ok_or(RegisterError::Closed)?;
        let random = (self.random)();
        Ok(RegionKey(make(&mut self.memory, Some(StreamId(queue_pair.0)), random).0))
    }

    /// The connection for posting work to it.
    #[inline]
    fn posting(&mut self, id: QueuePairId) -> Result<&mut Connection, PostError> {
        let slot = id.slot();
        let pair = self.pairs.get_mut(slot).and_then(Option::as_mut);
        let pair = pair.filter(|pair| pair.id == id).ok_or(PostError::Closed)?;
        pair.touch(slot, &mut self.touched);
        Ok(&mut pair.connection)
    }

    fn accepted(&mut self, listener: usize, socket: OwnedFd) {
        let Some(local) = self.listeners.get(listener).map(|listener| listener.local) else { return };
        let stream = TcpStream::from(socket);
        let (Ok(peer), now) = (stream.peer_addr(), self.now) else { return };
        // Too many: the socket is closed by being dropped.
        let Some((slot, id)) = self.name() else {
            self.activity.failed_connection_attempts += 1;
            return;
        };
        let connection = Connection::listen(self.config(id), now);
        let local = stream.local_addr().unwrap_or(local);
        if self.insert(slot, id, OwnedFd::from(stream), local, peer, connection).is_err() {
            self.free.push(slot as u32);
            return;
        }
        // A peer that opens connections and sends nothing must not keep others out. One can always make room:
        // none is a member.
        if let Ok(Some(oldest)) = self.half_open.admit(id, PeerHost::from(peer.ip())) {
            self.evict(oldest);
        }
    }

    fn evict(&mut self, id: QueuePairId) {
        let Some(slot) = self.slot(id) else { return };
        self.touch(slot);
        if let Some(pair) = self.pairs[slot].as_mut() {
            pair.reason.get_or_insert(CloseReason::TimedOut);
            pair.connection.handle_closed(&mut self.memory);
        }
    }

    fn complete(&mut self, completion: driver::Completion) {
        let (what, name) = (completion.token & 3, completion.token >> 2);
        match what {
            ACCEPT => {
                let listener = name as usize;
                match completion.result {
                    Ok(Outcome::Accepted(socket)) => self.accepted(listener, socket),
                    Ok(_) => {}
                    Err(error) if driver::is_cancelled(&error) => {}
                    Err(_) => {
                        // Descriptors are short: the first connection in line to make room for another does
                        // so.
                        if let Some(oldest) = self.half_open.evict() {
                            self.evict(oldest);
                        }
                        let after = ACCEPT_PAUSE;
                        self.queue.submit((name << 2) | TIMER, IoOperation::Timeout { after });
                    }
                }
            }
            TIMER => {
                if let Some(slot) = self.slot(QueuePairId(name)) {
                    self.touch(slot);
                } else if let Some(listener) = self.listeners.get(name as usize) {
                    let listener = listener.socket.clone();
                    self.queue.submit((name << 2) | ACCEPT, IoOperation::Accept { listener });
                }
            }
            _ => {
                let Some(slot) = self.slot(QueuePairId(name)) else { return };
                self.touch(slot);
                let Some(pair) = self.pairs[slot].as_mut() else { return };
                match what {
                    RECEIVE => pair.received(completion, &mut self.memory, &mut self.receipts, self.now),
                    _ => pair.sent(completion, &mut self.memory),
                }
            }
        }
    }

    fn slot(&self, id: QueuePairId) -> Option<usize> {
        self.pair(id).map(|_| id.slot())
    }

    /// Events, sends and receives of one connection.
    fn drive(&mut self, slot: usize, out: &mut Vec<Event>) {
        let now = self.now;
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        pair.touched = false;
        if pair.connection.poll_timeout().is_some_and(|at| at <= now) {
            pair.connection.handle_timeout(now, &mut self.memory);
            if pair.connection.is_closed() {
                pair.reason.get_or_insert(CloseReason::TimedOut);
            }
        }
        pair.take_events(&mut self.activity, out);
        let unfinished_bytes = pair.connection.unfinished_bytes();
        if std::mem::replace(&mut pair.told_unfinished_bytes, unfinished_bytes) != unfinished_bytes {
            self.unfinished.push((pair.id, unfinished_bytes));
        }
        if pair.holds_back() {
            // If nothing comes after all, it sends when the loop comes round.
            let again = pair.id.0 << 2 | TIMER;
            self.queue.submit(again, IoOperation::Timeout { after: Duration::ZERO });
            return pair.receive(&self.queue, &mut self.memory, &mut self.receipts);
        }
        pair.send(&self.queue, &mut self.memory, now);
        // Sends and writes complete when they are handed over.
        pair.take_events(&mut self.activity, out);
        if pair.finished && !pair.sending && pair.receiving == Receiving::Planned {
            // The kernel still has bytes of a region: they come back at once.
            let _ = driver::shutdown(&pair.socket);
            return;
        }
        if pair.finished && !pair.sending {
            let _ = driver::shutdown(&pair.socket);
            let (queue_pair, reason) = (pair.id, pair.reason.take().unwrap_or(CloseReason::Local));
            self.activity.connection_errors += u64::from(pair.active && reason.is_error());
            self.activity.failed_connection_attempts += u64::from(!pair.active);
            self.activity.add(pair.connection.counters());
            self.half_open.remove(queue_pair);
            self.pairs[slot] = None;
            self.free.push(slot as u32);
            self.open -= 1;
            out.push(Event::Disconnected { queue_pair, reason });
            return;
        }
        if pair.finished {
            let until = *pair.linger_until.get_or_insert(now.after(LINGER));
            if until <= now {
                let _ = driver::shutdown(&pair.socket);
            } else {
                self.timers.arm(slot as u32, &mut pair.armed, Some(until));
            }
        }
        if !pair.active && pair.connection.is_flowing() {
            pair.active = true;
            self.half_open.remove(pair.id);
        }
        self.timers.arm(slot as u32, &mut pair.armed, pair.connection.poll_timeout());
        if pair.receiving == Receiving::Bytes && !pair.finished {
            let idle_at = pair.last_heard.after(IDLE);
            if idle_at <= now {
                self.queue.cancel(pair.id.0 << 2 | RECEIVE);
            } else {
                self.timers.arm(slot as u32, &mut pair.armed, Some(idle_at));
            }
        }
        pair.receive(&self.queue, &mut self.memory, &mut self.receipts);
    }
}

impl Activity {
    fn add(&mut self, traffic: iwarp::connection::Counters) {
        self.inbound_bytes += traffic.received_bytes;
        self.outbound_bytes += traffic.sent_bytes;
        self.inbound_frames += traffic.received_fpdus;
        self.outbound_frames += traffic.sent_fpdus;
    }
}

fn post_error(error: iwarp::PostError) -> PostError {
    match error {
        iwarp::PostError::Closed | iwarp::PostError::NotNegotiated => PostError::Closed,
        iwarp::PostError::TooLong => PostError::TooLong,
        iwarp::PostError::NoReadDepth => PostError::NoReadDepth,
    }
}

impl Verbs for IwarpProvider {
    fn accept(&mut self, queue_pair: QueuePairId, private_data: &[u8]) -> Result<(), PostError> {
        let now = self.now;
        self.posting(queue_pair)?.accept(private_data, now).map_err(post_error)?;
        self.activity.accepted_connections += 1;
        Ok(())
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        if let Ok(connection) = self.posting(queue_pair) {
            connection.reject(private_data);
        }
    }

    fn disconnect(&mut self, queue_pair: QueuePairId) {
        let Some(slot) = self.slot(queue_pair) else { return };
        self.touch(slot);
        if let Some(pair) = self.pairs[slot].as_mut() {
            pair.reason.get_or_insert(CloseReason::Local);
            pair.connection.handle_closed(&mut self.memory);
        }
    }

    fn info(&self, queue_pair: QueuePairId) -> Option<ConnectionInfo> {
        let pair = self.pair(queue_pair)?;
        let agreed = pair.connection.agreed();
        Some(ConnectionInfo {
            transport: Transport::Iwarp,
            local: pair.local,
            peer: pair.peer,
            outbound_read_depth: agreed.outbound_read_depth,
            inbound_read_depth: agreed.inbound_read_depth,
            crc: agreed.crc,
            remote_invalidation: true,
            receives_on_demand: self.options.receives_on_demand,
        })
    }

    fn register(
        &mut self,
        bytes: BufMut,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        self.register_with(queue_pair, |memory, stream, random| {
            memory.register(bytes, 0, access, DOMAIN, stream, random)
        })
    }

    fn register_room(
        &mut self,
        len_bytes: usize,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        self.register_with(queue_pair, |memory, stream, random| {
            memory.register_room(len_bytes, 0, access, DOMAIN, stream, random)
        })
    }

    fn register_shared(&mut self, bytes: Buf, queue_pair: QueuePairId) -> Result<RegionKey, RegisterError> {
        let access = Access { remote_read: true, remote_invalidate: true, ..Default::default() };
        self.register_with(queue_pair, |memory, stream, random| {
            memory.register_shared(bytes, 0, access, DOMAIN, stream, random)
        })
    }

    fn remote_offset(&self, _: RegionKey) -> u64 {
        0
    }

    fn deregister(&mut self, key: RegionKey) -> Option<BufMut> {
        self.memory.deregister(Stag(key.0)).ok().flatten()
    }

    #[inline]
    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        len_bytes: usize,
    ) -> Result<(), PostError> {
        // A receive gives the connection nothing to do: no `posting`.
        let slot = self.slot(queue_pair).ok_or(PostError::Closed)?;
        let pair = self.pairs[slot].as_mut().ok_or(PostError::Closed)?;
        pair.connection.post_receive_later(iwarp::WorkId(id.0), len_bytes).map_err(post_error)
    }

    fn set_receive_bytes_max(&mut self, queue_pair: QueuePairId, bytes: usize) {
        if let Some(slot) = self.slot(queue_pair)
            && let Some(pair) = self.pairs[slot].as_mut()
        {
            pair.connection.set_receive_bytes_max(bytes);
        }
    }

    fn post_send(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError> {
        let flags = SendFlags { invalidate: invalidate.map(|key| Stag(key.0)), ..SendFlags::default() };
        self.posting(queue_pair)?.post_send(iwarp::WorkId(id.0), payload, flags).map_err(post_error)
    }

    #[inline]
    fn post_send_with_head(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        head: &[u8],
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError> {
        let flags = SendFlags { invalidate: invalidate.map(|key| Stag(key.0)), ..SendFlags::default() };
        let id = iwarp::WorkId(id.0);
        self.posting(queue_pair)?.post_send_with_head(id, head, payload, flags).map_err(post_error)
    }

    fn post_write(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError> {
        let stag = Stag(remote.0.0);
        self.posting(queue_pair)?.post_write(iwarp::WorkId(id.0), payload, stag, remote.1).map_err(post_error)
    }

    fn post_read(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        sink: (RegionKey, u64),
        len_bytes: u32,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError> {
        let (sink, source) = ((Stag(sink.0.0), sink.1), (Stag(remote.0.0), remote.1));
        self.posting(queue_pair)?.post_read(iwarp::WorkId(id.0), sink, len_bytes, source).map_err(post_error)
    }

    fn poll(&mut self, now: Monotonic, out: &mut Vec<Event>) {
        self.now = now;
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.poll(&mut completions);
        // With many connections and much payload each of them has left the processor's cache since its last
        // turn.
        for completion in &completions {
            if let Some(pair) = self.pair(QueuePairId(completion.token >> 2)) {
                sys::prefetch(pair);
            }
        }
        // The connections that the pairs point to, once the pairs are in the cache.
        for completion in &completions {
            if let Some(slot) = self.slot(QueuePairId(completion.token >> 2))
                && let Some(pair) = self.pairs[slot].as_mut()
            {
                pair.connection.prefetch();
            }
        }
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        while let Some((at, slot)) = self.timers.pop(now) {
            if let Some(Some(pair)) = self.pairs.get_mut(slot as usize) {
                pair.armed.came_up(at);
                self.touch(slot as usize);
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            self.drive(slot as usize, out);
        }
        // Driving one connection touches no other.
        self.touched = touched;
    }

    fn take_unfinished(&mut self, out: &mut Vec<(QueuePairId, usize)>) {
        out.append(&mut self.unfinished);
    }

    fn wants_poll(&self) -> bool {
        !self.touched.is_empty()
    }

    fn activity(&self) -> Activity {
        let mut activity = self.activity;
        for pair in self.pairs.iter().flatten() {
            activity.active_connections += u64::from(pair.active);
            activity.add(pair.connection.counters());
        }
        activity
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        self.timers.next()
    }
}
