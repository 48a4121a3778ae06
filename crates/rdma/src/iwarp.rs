//! iWARP in software: [`::iwarp::Connection`] over sockets of the data plane's loop.
//!
//! Owns the sockets, the registrations and a name for each connection. An idle connection holds no receive buffer and costs a turn
//! of the loop nothing. Many FPDUs leave in one send, at once as far as the socket takes them; one send per connection is under way at a time. Where much of a message is still to
//! come the kernel puts it straight into its region ([`iwarp::connection::direct`]); else bytes are staged and copied from cache.
//! Connections that are not established are bounded: beyond half of all there may be, the oldest of them makes room.

use crate::timers::{Armed, Timers};
use crate::verbs::{
    Access, Activity, CloseReason, Completion, CompletionKind, ConnectionInfo, Event, PostError, QueuePairId,
    RegionKey, RegisterError, Status, Transport, Verbs, WorkId,
};
pub use iwarp::CrcPolicy;
use iwarp::connection::direct::{Expected, Plan};
use iwarp::mpa::Extension;
use iwarp::{Config, Connection, DomainId, Memory, SendFlags, Stag, StreamId, WorkStatus};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use sys::driver::{self, Descriptor, Driver, Operation, Outcome, Piece, Place, Queue, Scatter};
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

/// One protection domain: what keeps peers apart is the stream that each registration is bound to.
const DOMAIN: DomainId = DomainId(1);
/// Receive buffer of a connection with traffic, and of one that filled that.
const RECEIVE_BYTES: usize = 32 << 10;
const RECEIVE_BYTES_MANY: usize = 256 << 10;
/// The same where long payload came last: enough to see what comes next, and little to be copied if that is payload again.
const RECEIVE_BYTES_PEEK: usize = 4 << 10;
/// Room behind the last payload that goes straight into its region: for what announces the next one, not for that itself.
const BEHIND_BYTES: usize = 4 << 10;
/// A connection that was still for so long gives its receive buffer back.
const IDLE: Duration = Duration::from_secs(1);
/// One send takes about so many bytes.
const SEND_BYTES: usize = 2 << 20;
/// The same of bytes that a CRC is made of: what it has read is still in the processor's cache when the kernel copies it.
const SUMMED_BYTES: usize = 256 << 10;
/// Where more has come already than a receive could take, what is to be sent waits for the next one, so often at most: the other end
/// has less to wake up for, and more to do each time.
const HELD_RECEIVES_MAX: u8 = 4;
/// Accepting goes on after so long, where descriptors were exhausted.
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

#[derive(Debug, Clone)]
pub struct IwarpOptions {
    pub crc: CrcPolicy,
    pub inbound_read_depth: u16,
    pub outbound_read_depth: u16,
    pub queue_pairs_max: usize,
    /// Which byte of a message that comes begins a page.
    pub receive_aligned_at: usize,
}

impl Default for IwarpOptions {
    fn default() -> Self {
        Self {
            crc: CrcPolicy::On,
            inbound_read_depth: 32,
            outbound_read_depth: 32,
            queue_pairs_max: 1024,
            receive_aligned_at: 0,
        }
    }
}

struct QueuePair {
    id: QueuePairId,
    socket: Descriptor,
    local: SocketAddr,
    peer: SocketAddr,
    connection: Connection,
    receiving: Receiving,
    sending: bool,
    /// What the next receive is to have room for; zero: it waits without a buffer.
    receive_bytes: usize,
    buffer: Option<BufMut>,
    plan: Plan,
    scatter: Option<Box<Scatter>>,
    last_heard: Monotonic,
    reason: Option<CloseReason>,
    /// Its closing was said by the engine.
    finished: bool,
    /// In the provider's list of those for which something may be to be done.
    touched: bool,
    armed: Armed,
    /// When a last send that the peer does not take is given up.
    linger_until: Option<Monotonic>,
    /// FPDUs flow in both directions.
    active: bool,
    /// The last receive was filled: there is more, and it is received before anything is sent.
    holds: bool,
    held_receives: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    No,
    /// Waits for bytes without a buffer.
    Readable,
    Bytes,
    /// As the plan says.
    Planned,
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
    listeners: Vec<Listener>,
    pairs: Vec<Option<QueuePair>>,
    free: Vec<u32>,
    generation: u32,
    open: usize,
    /// Slots of connections for which something may be to be done.
    touched: Vec<u32>,
    timers: Timers<u32>,
    /// Accepted connections in their order, until each is found established or gone.
    half_open: VecDeque<QueuePairId>,
    /// Of connections that ended, but for `active_connections`.
    activity: Activity,
    completions: Vec<driver::Completion>,
    now: Monotonic,
}

impl IwarpProvider {
    pub fn new(driver: &Driver, options: IwarpOptions, random: Box<dyn FnMut() -> u32>) -> Self {
        Self {
            queue: driver.queue(),
            options,
            random,
            memory: Memory::new(),
            listeners: Vec::new(),
            pairs: Vec::new(),
            free: Vec::new(),
            generation: 1,
            open: 0,
            touched: Vec::new(),
            timers: Timers::default(),
            half_open: VecDeque::new(),
            activity: Activity::default(),
            completions: Vec::new(),
            now: Monotonic(0),
        }
    }

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
    /// Where the listener has no address.
    pub fn listen(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        let local = listener.local_addr()?;
        let socket: Descriptor = Arc::new(OwnedFd::from(listener));
        let index = self.listeners.len() as u64;
        self.queue.submit(index << 2 | ACCEPT, Operation::Accept { listener: socket.clone() });
        self.listeners.push(Listener { socket, local });
        Ok(local)
    }

    /// Begins a connection as initiator over a TCP connection that is up.
    ///
    /// # Errors
    /// Where the socket has no addresses, or there are too many connections.
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
            receive_aligned_at: self.options.receive_aligned_at,
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
        self.pairs[slot] = Some(QueuePair {
            id,
            socket,
            local,
            peer,
            connection,
            receiving: Receiving::No,
            sending: false,
            receive_bytes: 0,
            buffer: None,
            plan: Plan::default(),
            scatter: None,
            last_heard: self.now,
            reason: None,
            finished: false,
            touched: false,
            armed: Armed::default(),
            linger_until: None,
            active: false,
            holds: false,
            held_receives: 0,
        });
        self.touch(slot);
        Ok(())
    }

    /// Something may be to be done for the connection of this slot.
    fn touch(&mut self, slot: usize) {
        if let Some(Some(pair)) = self.pairs.get_mut(slot)
            && !std::mem::replace(&mut pair.touched, true)
        {
            self.touched.push(slot as u32);
        }
    }

    fn pair(&self, id: QueuePairId) -> Option<&QueuePair> {
        self.pairs.get(id.0 as u32 as usize)?.as_ref().filter(|pair| pair.id == id)
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
    fn posting(&mut self, id: QueuePairId) -> Result<&mut Connection, PostError> {
        let slot = self.slot(id).ok_or(PostError::Closed)?;
        self.touch(slot);
        let pair = self.pairs[slot].as_mut().ok_or(PostError::Closed)?;
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
        self.half_open.push_back(id);
        self.bound_half_open();
    }

    /// A peer that opens connections and says nothing is not to keep others out: the oldest such connection makes room.
    fn bound_half_open(&mut self) {
        let is_half_open =
            |provider: &Self, id: QueuePairId| provider.pair(id).is_some_and(|pair| !pair.active);
        while let Some(&oldest) = self.half_open.front() {
            let half_open = is_half_open(self, oldest);
            if half_open && self.half_open.len() <= (self.options.queue_pairs_max / 2).max(1) {
                return;
            }
            self.half_open.pop_front();
            if half_open && let Some(slot) = self.slot(oldest) {
                self.touch(slot);
                if let Some(pair) = self.pairs[slot].as_mut() {
                    pair.reason.get_or_insert(CloseReason::TimedOut);
                    pair.connection.handle_closed(&mut self.memory);
                }
            }
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
                        let after = ACCEPT_PAUSE;
                        self.queue.submit((name << 2) | TIMER, Operation::Timeout { after });
                    }
                }
            }
            TIMER => {
                if let Some(slot) = self.slot(QueuePairId(name)) {
                    self.touch(slot);
                } else if let Some(listener) = self.listeners.get(name as usize) {
                    let listener = listener.socket.clone();
                    self.queue.submit((name << 2) | ACCEPT, Operation::Accept { listener });
                }
            }
            RECEIVE => self.received(QueuePairId(name), completion),
            _ => {
                let Some(slot) = self.slot(QueuePairId(name)) else { return };
                self.touch(slot);
                let Some(pair) = self.pairs[slot].as_mut() else { return };
                pair.sending = false;
                if let Err(error) = completion.result {
                    pair.reason.get_or_insert(CloseReason::Network(error.kind()));
                    pair.connection.handle_closed(&mut self.memory);
                }
            }
        }
    }

    fn slot(&self, id: QueuePairId) -> Option<usize> {
        self.pair(id).map(|_| id.0 as u32 as usize)
    }

    fn received(&mut self, id: QueuePairId, completion: driver::Completion) {
        let now = self.now;
        let Some(slot) = self.slot(id) else { return };
        self.touch(slot);
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        let was = std::mem::replace(&mut pair.receiving, Receiving::No);
        let count = match completion.result {
            Ok(Outcome::Bytes(count)) => count,
            _ => 0,
        };
        if let Some(mut scatter) = completion.scatter {
            let payload = std::mem::replace(&mut scatter.payload, BufMut::zeroed(0));
            pair.holds = count == scatter.pieces.iter().map(|piece| piece.range.len()).sum();
            if count > 0 {
                let plan = &pair.plan;
                pair.connection.handle_planned(plan, payload, &scatter.between, count, &mut self.memory, now);
            } else {
                pair.connection.give_up_plan(&pair.plan, payload, &mut self.memory);
            }
            pair.scatter = Some(scatter);
            pair.receive_bytes = RECEIVE_BYTES_PEEK;
        } else if let Some(buffer) = completion.buffer {
            pair.holds = count == buffer.len();
            pair.connection.handle_input(buffer.get(..count).unwrap_or_default(), &mut self.memory, now);
            pair.receive_bytes = match buffer.len() {
                _ if pair.connection.direct_target().is_some() => RECEIVE_BYTES_PEEK,
                RECEIVE_BYTES_PEEK if count == buffer.len() => RECEIVE_BYTES,
                len if count == len => RECEIVE_BYTES_MANY,
                len if count < RECEIVE_BYTES / 2 => len.min(RECEIVE_BYTES),
                len => len,
            };
            pair.buffer = Some(buffer).filter(|buffer| buffer.len() == pair.receive_bytes);
        }
        match completion.result {
            // Readable: the next receive takes a buffer.
            Ok(Outcome::Done) => (pair.receive_bytes, pair.last_heard) = (RECEIVE_BYTES, now),
            Ok(Outcome::Bytes(0)) => {
                pair.reason.get_or_insert(CloseReason::Peer);
                pair.connection.handle_closed(&mut self.memory);
            }
            Ok(Outcome::Bytes(_)) => pair.last_heard = now,
            Ok(Outcome::Accepted(_)) => {}
            // It was still for too long.
            Err(error) if driver::is_cancelled(&error) && was == Receiving::Bytes && !pair.finished => {
                (pair.receive_bytes, pair.buffer, pair.scatter) = (0, None, None);
            }
            Err(error) => {
                pair.reason.get_or_insert(CloseReason::Network(error.kind()));
                pair.connection.handle_closed(&mut self.memory);
            }
        }
    }

    /// Receives on: straight into registered memory where much of a message is still to come.
    fn receive(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        if pair.receiving != Receiving::No || pair.finished {
            return;
        }
        let socket = pair.socket.clone();
        let token = pair.id.0 << 2 | RECEIVE;
        if let Some(payload) = pair.connection.plan_receive(&mut self.memory, &mut pair.plan) {
            let between_bytes = pair.plan.between_bytes() + BEHIND_BYTES;
            let mut into = pair.scatter.take().unwrap_or_else(|| {
                let (payload, between) = (BufMut::zeroed(0), BufMut::zeroed(0));
                Box::new(Scatter { payload, between, pieces: Vec::new() })
            });
            if into.between.len() < between_bytes {
                into.between = BufMut::for_overwrite(between_bytes);
            }
            into.payload = payload;
            fill_pieces(&pair.plan, &mut into.pieces);
            pair.receiving = Receiving::Planned;
            return self.queue.submit(token, Operation::ReceiveScattered { socket, into });
        }
        if pair.receive_bytes == 0 {
            pair.receiving = Receiving::Readable;
            return self.queue.submit(token, Operation::Readable { socket });
        }
        pair.receiving = Receiving::Bytes;
        let len_bytes = pair.receive_bytes;
        let into = pair.buffer.take().unwrap_or_else(|| BufMut::for_overwrite(len_bytes));
        self.queue.submit(token, Operation::Receive { socket, into, at: 0 });
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
        if std::mem::take(&mut pair.holds) && pair.held_receives < HELD_RECEIVES_MAX && !pair.finished {
            pair.held_receives += 1;
            // Where nothing comes after all, it sends when the loop comes round.
            let again = pair.id.0 << 2 | TIMER;
            self.queue.submit(again, Operation::Timeout { after: Duration::ZERO });
            return self.receive(slot);
        }
        pair.held_receives = 0;
        // At once what the socket takes, the rest as it takes it.
        while !pair.sending
            && let Some(data) = pair.connection.poll_transmit(&mut self.memory, SEND_BYTES, now)
        {
            // An error shows again, to be acted on, when the loop sends.
            let taken = driver::send_now(&pair.socket, &data).unwrap_or(0);
            if taken < data.len() {
                pair.sending = true;
                let data = if taken > 0 { data.slice(taken, data.len() - taken) } else { data };
                let socket = pair.socket.clone();
                self.queue.submit(pair.id.0 << 2 | SEND, Operation::Send { socket, data });
            }
        }
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
        pair.active |= pair.connection.is_flowing();
        self.timers.arm(slot as u32, &mut pair.armed, pair.connection.poll_timeout());
        if pair.receiving == Receiving::Bytes && !pair.finished {
            let idle_at = pair.last_heard.after(IDLE);
            if idle_at <= now {
                self.queue.cancel(pair.id.0 << 2 | RECEIVE);
            } else {
                self.timers.arm(slot as u32, &mut pair.armed, Some(idle_at));
            }
        }
        self.receive(slot);
    }
}

impl QueuePair {
    /// What the engine says, in the words of verbs.
    fn take_events(&mut self, activity: &mut Activity, out: &mut Vec<Event>) {
        let queue_pair = self.id;
        while let Some(event) = self.connection.poll_event() {
            match event {
                iwarp::Event::ConnectRequest { private_data } => {
                    out.push(Event::ConnectRequest { queue_pair, peer: self.peer, private_data });
                }
                iwarp::Event::Established { private_data } => {
                    out.push(Event::Established { queue_pair, private_data });
                }
                iwarp::Event::Rejected { .. } => self.reason = Some(CloseReason::Rejected),
                iwarp::Event::Completion(done) => {
                    let wrong = done.status == WorkStatus::LocalProtection;
                    activity.completion_queue_errors += u64::from(wrong);
                    out.extend(completion(queue_pair, done).map(Event::Completion));
                }
                iwarp::Event::Terminated { by_peer, code } => {
                    let text = code.to_string();
                    self.reason = Some(match by_peer {
                        true => CloseReason::TerminatedByPeer(text),
                        false => CloseReason::Terminated(text),
                    });
                }
                iwarp::Event::Closed => self.finished = true,
            }
        }
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

/// The plan in the words of the driver, and room behind it for what comes next.
fn fill_pieces(plan: &Plan, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut from = 0;
    let mut between = |len_bytes: usize| {
        let range = from..from + len_bytes;
        from = range.end;
        Piece { place: Place::Between, range }
    };
    for piece in &plan.pieces {
        pieces.push(match *piece {
            Expected::Payload { at, len_bytes } => Piece { place: Place::Payload, range: at..at + len_bytes },
            Expected::Between { len_bytes } => between(len_bytes),
        });
    }
    pieces.push(between(BEHIND_BYTES));
}

/// Verbs have no atomics here: their completions do not occur.
fn completion(queue_pair: QueuePairId, done: iwarp::Completion) -> Option<Completion> {
    let kind = match done.kind {
        iwarp::CompletionKind::Send => CompletionKind::Send,
        iwarp::CompletionKind::Write => CompletionKind::Write,
        iwarp::CompletionKind::Read => CompletionKind::Read,
        iwarp::CompletionKind::Receive => CompletionKind::Receive,
        iwarp::CompletionKind::Atomic => return None,
    };
    Some(Completion {
        queue_pair,
        id: WorkId(done.id.0),
        kind,
        status: match done.status {
            WorkStatus::Success => Status::Success,
            WorkStatus::Flushed => Status::Flushed,
            WorkStatus::LocalProtection => Status::LocalProtection,
        },
        len_bytes: done.len_bytes,
        buffer: done.buffer,
        invalidated: done.invalidated.map(|iwarp::Invalidate(stag)| RegionKey(stag.0)),
    })
}

fn engine_access(access: Access) -> iwarp::Access {
    iwarp::Access {
        remote_read: access.remote_read,
        remote_write: access.remote_write,
        remote_invalidate: access.remote_invalidate,
        unspecified_content: access.unspecified_content,
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
            receives_on_demand: true,
        })
    }

    fn register(
        &mut self,
        bytes: BufMut,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        let access = engine_access(access);
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
        let access = engine_access(access);
        self.register_with(queue_pair, |memory, stream, random| {
            memory.register_room(len_bytes, 0, access, DOMAIN, stream, random)
        })
    }

    fn register_shared(&mut self, bytes: Buf, queue_pair: QueuePairId) -> Result<RegionKey, RegisterError> {
        let access = iwarp::Access { remote_read: true, remote_invalidate: true, ..Default::default() };
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

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        len_bytes: usize,
    ) -> Result<(), PostError> {
        // It gives the connection nothing to do: no `posting`.
        let slot = self.slot(queue_pair).ok_or(PostError::Closed)?;
        let pair = self.pairs[slot].as_mut().ok_or(PostError::Closed)?;
        pair.connection.post_receive_later(iwarp::WorkId(id.0), len_bytes).map_err(post_error)
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
