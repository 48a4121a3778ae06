//! Listeners and byte streams on the owner's loop, messages in and out.
//!
//! Owns the sockets, the received part of each message, and the queued messages. Promises: a slow or
//! stuck client delays nobody else. The bytes queued to a client are bounded, since the server receives
//! nothing from a client that does not read. The memory of unfinished messages is bounded in all and
//! for each client, so that nobody starves others ([`super::memory`]). A connection whose message makes
//! no progress ends; a client that connects and sends nothing yields its place to others ([`bounds`]).
//! Never reads a message.

mod bounds;
mod sending;
#[cfg(test)]
mod tests;
mod zero_copy;

pub use bounds::Pace;

use super::memory::{Loan, Memories, PartyId, Waiting};
use crate::framing::{Framing, FramingError, GUEST_BATCH_BYTES, MessageLength, PAYLOAD_AT, Room, Target};
use bounds::{Taking, TurnedAway};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use sys::driver::{self, Completion, Descriptor, Driver, IoOperation, Lender, Outcome, Queue, SendPath};
use sys::{Buf, BufMut, Payload};
use types::{Admission, AdmissionLimits, Monotonic, PeerHost};
use zero_copy::{Lent, LentMemory};

/// Names one connection; never used again after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// A change of a connection, or a message of it.
#[derive(Debug)]
pub enum TcpEvent {
    /// A connection was accepted.
    Opened {
        /// Name of the new connection.
        connection: ConnectionId,
        /// Address of the client.
        peer: SocketAddr,
        /// Address at which the client connected.
        local: SocketAddr,
    },
    /// A whole message, without its length.
    Message {
        /// Connection that brought the message.
        connection: ConnectionId,
        /// The message.
        message: Buf,
    },
    /// The connection is closed. The last event of its name.
    Closed {
        /// Connection that ended.
        connection: ConnectionId,
        /// Reason of the end.
        reason: CloseReason,
    },
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// By [`Tcp::close`].
    Server,
    /// The client closed the connection.
    Client,
    /// The client sent bytes that are no message, or a message that is too long.
    Framing(FramingError),
    /// A message to send is longer than its header can say.
    TooLongToSend,
    /// A begun message, or one waiting to be sent or acknowledged, made no progress for
    /// [`TcpLimits::stall`], or it came too slowly.
    Stalled,
    /// A guest whose place another connection needed.
    Evicted,
    /// The socket failed.
    Network(io::ErrorKind),
}

/// Bounds of the places, memory and time that clients can take.
#[derive(Debug, Clone)]
pub struct TcpLimits {
    /// Most connections, those of guests included.
    pub connections: usize,
    /// Of these, of one host.
    pub connections_per_host: usize,
    /// Length in bytes of a message on a connection that [`Tcp::set_message_bytes_max`] was not called for.
    pub first_message_bytes_max: usize,
    /// A connection with more bytes queued is not received from.
    pub queued_bytes_max: usize,
    /// Memory of unfinished large messages, over all connections.
    pub receiving_bytes_max: usize,
    /// Time within which something must move while a message is unfinished or unsent.
    pub stall: Duration,
    /// Pace of a message on a connection without a logon.
    pub guest_pace: Pace,
    /// Of any other message.
    pub member_pace: Pace,
    /// Of a large message while others wait for memory.
    pub pace_when_short: Pace,
    /// A connection without traffic gives its receive buffer back after one to two of these.
    pub sweep: Duration,
    /// How large messages leave.
    pub send_path: SendPath,
    /// Bytes that left by reference and lie in sockets unacknowledged, over all connections; beyond, messages are copied.
    pub lent_bytes_max: u64,
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            connections_per_host: 1024,
            first_message_bytes_max: 64 * 1024,
            queued_bytes_max: 8 << 20,
            receiving_bytes_max: 256 << 20,
            stall: Duration::from_secs(120),
            // A logon's messages are some KiB.
            guest_pace: Pace { grace: Duration::from_secs(10), bytes_per_second: 64 << 10 },
            member_pace: Pace { grace: Duration::from_secs(120), bytes_per_second: 1 << 10 },
            // Slower than any network that several clients share.
            pace_when_short: Pace { grace: Duration::from_secs(2), bytes_per_second: 16 << 10 },
            sweep: Duration::from_secs(1),
            send_path: SendPath::Automatic,
            // Enough for thirty distant clients; at worst, when all of each huge page is held, 2 GiB.
            lent_bytes_max: 64 << 20,
        }
    }
}

/// One turn takes about this many bytes of a stream of large messages, so that a busy client does not delay others for longer.
const TURN_BYTES: usize = 512 << 10;
/// Pause of accepting if descriptors or memory are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Kinds of operations: the low two bits of their tokens.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const ACCEPT: u64 = 2;
const TIMER: u64 = 3;
const SWEEP_TIMER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    /// No request to the kernel.
    No,
    /// Waits for bytes without a buffer.
    Readable,
    Bytes,
}

struct Connection {
    id: ConnectionId,
    host: PeerHost,
    /// The client's address and ours.
    ends: (SocketAddr, SocketAddr),
    /// There was a logon.
    is_member: bool,
    /// Party that the connection's memory counts against.
    party: PartyId,
    socket: Descriptor,
    framing: Framing,
    receiving: Receiving,
    sending: bool,
    /// Waits for space in the socket, to be sent by reference; counted in `sending_bytes`.
    unsent: Option<Payload>,
    lent: Lent,
    queue: VecDeque<(MessageLength, Payload)>,
    /// Queued or being sent.
    queued_bytes: usize,
    sending_bytes: usize,
    /// Memory held of [`TcpLimits::receiving_bytes_max`].
    loan: Option<Loan>,
    /// Of the same memory: messages that came whole and that the service does not want yet.
    held: Option<Loan>,
    /// Place among the connections that wait for such memory.
    waiting: Option<Waiting>,
    /// A message for which memory was lent came whole.
    has_brought_large: bool,
    /// When the message that is being received began, and bytes that came since.
    message_since: Monotonic,
    message_bytes: u64,
    paused: bool,
    /// Close once everything queued is sent.
    closing: bool,
    closed: Option<CloseReason>,
    /// Something moved since the last sweep.
    active: bool,
    last_progress: Monotonic,
    sent: Taking,
}

impl Connection {
    /// Whether part of a message has arrived, and more of it may come.
    fn receives_message(&self) -> bool {
        self.framing.in_mid_message() && self.receiving != Receiving::No
    }

    /// The time that its message may take begins.
    fn begin_message(&mut self, now: Monotonic) {
        (self.message_since, self.message_bytes) = (now, 0);
    }
}

struct Listener {
    socket: Descriptor,
    local: SocketAddr,
}

/// The listeners and connections of one server.
pub struct Tcp {
    queue: Queue,
    limits: TcpLimits,
    listeners: Vec<Listener>,
    /// By the low half of the connection's name.
    connections: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Connections that have not closed.
    admission: Admission<ConnectionId>,
    turned_away: TurnedAway,
    memory: Memories<ConnectionId>,
    next_generation: u32,
    events: Vec<TcpEvent>,
    completions: Vec<Completion>,
    messages: Vec<Buf>,
    lender: Lender,
    lent: LentMemory,
    now: Monotonic,
}

impl Tcp {
    /// Accepts on these listeners from the loop's next turn on.
    ///
    /// # Errors
    /// If a listener has no address.
    pub fn new(driver: &Driver, listeners: Vec<TcpListener>, limits: TcpLimits) -> io::Result<Self> {
        let queue = driver.queue();
        let mut listening = Vec::with_capacity(listeners.len());
        for (index, listener) in listeners.into_iter().enumerate() {
            let local = listener.local_addr()?;
            let socket: Descriptor = Arc::new(OwnedFd::from(listener));
            queue.submit((index as u64) << 2 | ACCEPT, IoOperation::Accept { listener: socket.clone() });
            listening.push(Listener { socket, local });
        }
        queue.submit(SWEEP_TIMER, IoOperation::Timeout { after: limits.sweep });
        let places = AdmissionLimits::new(limits.connections, limits.connections_per_host);
        Ok(Self {
            queue,
            admission: Admission::new(places),
            turned_away: TurnedAway::default(),
            memory: Memories::new(limits.receiving_bytes_max),
            lender: Lender::new(limits.send_path),
            lent: LentMemory::new(limits.lent_bytes_max),
            limits,
            listeners: listening,
            connections: Vec::new(),
            free: Vec::new(),
            next_generation: 1,
            events: Vec::new(),
            completions: Vec::new(),
            messages: Vec::new(),
            now: Monotonic(0),
        })
    }

    /// Gives the addresses that are listened on.
    pub fn local_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.local)
    }

    /// Counts the connections that have not closed.
    pub fn connection_count(&self) -> usize {
        self.admission.len()
    }

    /// Takes no more connections.
    pub fn stop_listening(&mut self) {
        for index in 0..self.listeners.len() {
            self.queue.cancel((index as u64) << 2 | ACCEPT);
        }
        self.listeners.clear();
    }

    /// Queues one message, after those queued before; [`Tcp::flush`] sends it. Does nothing for a closed
    /// connection. A message that cannot be framed ends its connection, since the client could not parse
    /// anything after it.
    #[inline]
    pub fn send(&mut self, connection: ConnectionId, message: Payload) {
        let Some(length) = MessageLength::new(message.len()) else {
            tracing::error!(
                bytes = message.len(),
                "a message is too long to be sent; its connection is closed"
            );
            return self.shut(connection, CloseReason::TooLongToSend);
        };
        if let Some(entry) = self.connection(connection)
            && entry.closed.is_none()
        {
            entry.queued_bytes += message.len();
            entry.queue.push_back((length, message));
        }
    }

    /// Sends the queued messages together.
    #[inline]
    pub fn flush(&mut self, connection: ConnectionId) {
        self.start_send(connection);
    }

    /// Ends a connection; `after_queue`: once its queue is sent. A `Closed` event follows.
    pub fn close(&mut self, connection: ConnectionId, after_queue: bool) {
        let Some(entry) = self.connection(connection) else { return };
        entry.closing = true;
        if !after_queue || (entry.queue.is_empty() && !entry.sending) {
            self.shut(connection, CloseReason::Server);
        }
    }

    /// Receives nothing more until [`Tcp::resume`]. Messages that were received before still come.
    pub fn pause(&mut self, connection: ConnectionId) {
        if let Some(entry) = self.connection(connection) {
            entry.paused = true;
        }
    }

    /// Receives again: no message is held any more.
    pub fn resume(&mut self, connection: ConnectionId) {
        let now = self.now;
        self.end_hold(connection);
        if let Some(entry) = self.connection(connection) {
            entry.paused = false;
            entry.begin_message(now);
            self.start_receive(connection);
        }
    }

    /// Lets messages that begin later on this connection be this long. Says whether that is a change.
    #[inline]
    pub fn set_message_bytes_max(&mut self, connection: ConnectionId, bytes: usize) -> bool {
        let Some(entry) = self.connection(connection) else { return false };
        let is_change = entry.framing.message_bytes_max() != bytes;
        entry.framing.set_message_bytes_max(bytes);
        is_change
    }

    /// Counts the bytes that wait to be sent to this client.
    #[inline]
    pub fn queued_bytes(&mut self, connection: ConnectionId) -> usize {
        self.connection(connection).map_or(0, |entry| entry.queued_bytes)
    }

    /// Moves events into `events`. `true`: there was work.
    pub fn poll(&mut self, now: Monotonic, events: &mut Vec<TcpEvent>) -> bool {
        self.now = now;
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.poll(&mut completions);
        let worked = !completions.is_empty() || !self.events.is_empty();
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        self.serve_waiting();
        events.append(&mut self.events);
        worked
    }

    fn complete(&mut self, completion: Completion) {
        if completion.token == SWEEP_TIMER {
            return self.sweep();
        }
        let id = completion.token >> 2;
        match completion.token & 3 {
            ACCEPT => self.accepted(id as usize, completion.result),
            TIMER => self.accept_again(id as usize),
            SEND => self.sent(id as u32, completion.result),
            _ => self.received(id as u32, completion),
        }
    }

    fn accepted(&mut self, index: usize, result: io::Result<Outcome>) {
        let Some(listener) = self.listeners.get(index) else { return };
        match result {
            Ok(Outcome::Accepted(socket)) => {
                let local = listener.local;
                self.open_connection(socket, local);
            }
            Ok(_) => self.accept_again(index),
            Err(error) => {
                tracing::warn!(%error, "accepting connections pauses");
                if !driver::is_cancelled(&error) {
                    self.evict_a_guest();
                }
                let token = (index as u64) << 2 | TIMER;
                self.queue.submit(token, IoOperation::Timeout { after: ACCEPT_PAUSE });
            }
        }
    }

    fn accept_again(&mut self, index: usize) {
        if let Some(listener) = self.listeners.get(index) {
            let listener = listener.socket.clone();
            self.queue.submit((index as u64) << 2 | ACCEPT, IoOperation::Accept { listener });
        }
    }

    fn open_connection(&mut self, socket: OwnedFd, local: SocketAddr) {
        let stream = std::net::TcpStream::from(socket);
        // Both fail only if the client has already left.
        let (Ok(peer), Ok(())) = (stream.peer_addr(), stream.set_nodelay(true)) else { return };
        // Without it a client that vanished is noticed later, no more.
        let _ = driver::keep_alive(&stream);
        // An IPv4 address as such: a socket that listens for both versions of IP gives it within one of IPv6.
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let (peer, local) = (canonical(peer), canonical(stream.local_addr().unwrap_or(local)));
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            (self.connections.len() - 1) as u32
        });
        let id = ConnectionId(u64::from(self.next_generation) << 32 | u64::from(index));
        self.next_generation = self.next_generation.wrapping_add(1).max(1);
        let host = PeerHost::from(peer.ip());
        if !self.admit(id, host) {
            // Dropped: the client sees a reset, as the limit is the administrator's wish.
            return self.free.push(index);
        }
        let mut framing = Framing::new(self.limits.first_message_bytes_max);
        framing.set_batch_bytes(GUEST_BATCH_BYTES);
        self.connections[index as usize] = Some(Connection {
            id,
            host,
            ends: (peer, local),
            is_member: false,
            party: self.memory.join_guest(host),
            socket: Arc::new(OwnedFd::from(stream)),
            framing,
            receiving: Receiving::No,
            sending: false,
            unsent: None,
            lent: Lent::default(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            sending_bytes: 0,
            loan: None,
            held: None,
            waiting: None,
            has_brought_large: false,
            message_since: self.now,
            message_bytes: 0,
            paused: false,
            closing: false,
            closed: None,
            active: true,
            last_progress: self.now,
            sent: Taking::new(self.now),
        });
        self.events.push(TcpEvent::Opened { connection: id, peer, local });
        // Without a buffer, until bytes come.
        self.await_bytes(id);
    }

    #[inline]
    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.0 as u32 as usize)?.as_mut().filter(|entry| entry.id == id)
    }

    /// Receives the next bytes unless something holds the connection back.
    fn start_receive(&mut self, id: ConnectionId) {
        if let Some(target) = self.target(id) {
            self.submit_receive(id, target);
        }
    }

    /// Receives, in this turn, further large messages already in the socket, and leaves later bytes to the
    /// loop. So it does with a message just begun, which its sender is still passing to the kernel.
    fn receive_on(&mut self, id: ConnectionId) {
        let mut received_bytes = 0;
        let between = |entry: &mut Connection| entry.framing.is_large() && !entry.framing.in_mid_message();
        let mut goes_on = self.connection(id).is_some_and(between);
        while goes_on && received_bytes < TURN_BYTES {
            let Some(Target { mut into, at, ends_with_message }) = self.target(id) else { return };
            let Some(entry) = self.connection(id) else { return };
            let mut beyond = [0; PAYLOAD_AT];
            let room = if ends_with_message { PAYLOAD_AT } else { 0 };
            match driver::receive_now(&entry.socket, &mut into[at..], &mut beyond[..room]) {
                Ok(None) => return self.submit_receive(id, Target { into, at, ends_with_message }),
                Ok(Some(0)) => return self.shut(id, CloseReason::Client),
                Ok(Some(count)) => {
                    let within = count.min(into.len() - at);
                    let full = entry.framing.fills(&into, within);
                    received_bytes += count;
                    if !self.cut(id, into, within, &beyond[..count - within]) {
                        return;
                    }
                    // Fewer bytes than the buffer's space: the socket is empty.
                    goes_on = full && self.connection(id).is_some_and(|entry| entry.framing.is_large());
                }
                Err(error) => return self.shut(id, CloseReason::Network(error.kind())),
            }
        }
        self.start_receive(id);
    }

    /// Waits for bytes without a buffer.
    fn await_bytes(&mut self, id: ConnectionId) {
        let Some(entry) = self.connection(id) else { return };
        entry.receiving = Receiving::Readable;
        let operation = IoOperation::Readable { socket: entry.socket.clone() };
        self.queue.submit((id.0 & 0xffff_ffff) << 2 | RECEIVE, operation);
    }

    fn submit_receive(&mut self, id: ConnectionId, target: Target) {
        let Some(entry) = self.connection(id) else { return };
        entry.receiving = Receiving::Bytes;
        let operation =
            IoOperation::Receive { socket: entry.socket.clone(), into: target.into, at: target.at };
        self.queue.submit((id.0 & 0xffff_ffff) << 2 | RECEIVE, operation);
    }

    /// Gives the place of a connection's next bytes; `None` if it is not received from now.
    fn target(&mut self, id: ConnectionId) -> Option<Target> {
        let queued_max = self.limits.queued_bytes_max;
        let entry = self.connection(id)?;
        let held_back =
            entry.queued_bytes > queued_max || entry.paused || entry.closing || entry.closed.is_some();
        if entry.receiving != Receiving::No || held_back {
            return None;
        }
        if entry.framing.wanted_bytes() == 0 {
            return Some(entry.framing.receive(Room::Whole));
        }
        let room = self.make_room(id)?;
        Some(self.connection(id)?.framing.receive(room))
    }

    fn received(&mut self, index: u32, completion: Completion) {
        let now = self.now;
        let Some(Some(entry)) = self.connections.get_mut(index as usize) else { return };
        let id = entry.id;
        let was = std::mem::replace(&mut entry.receiving, Receiving::No);
        if was == Receiving::Readable {
            return match completion.result {
                Ok(_) if entry.closed.is_none() => self.start_receive(id),
                Ok(_) => self.finish(id),
                Err(error) => self.shut(id, CloseReason::Network(error.kind())),
            };
        }
        let Some(into) = completion.buffer else { return self.shut(id, CloseReason::Client) };
        match completion.result {
            Ok(Outcome::Bytes(0)) => self.shut(id, CloseReason::Client),
            Ok(Outcome::Bytes(count)) => {
                entry.active = true;
                entry.last_progress = now;
                if self.cut(id, into, count, &[]) {
                    self.receive_on(id);
                    self.finish(id);
                }
            }
            // The sweep took it back.
            Err(error) if driver::is_cancelled(&error) && entry.closed.is_none() => {
                entry.framing.not_received(into);
                self.await_bytes(id);
            }
            Ok(_) => self.shut(id, CloseReason::Client),
            Err(error) => self.shut(id, CloseReason::Network(error.kind())),
        }
    }

    /// Cuts messages from the received bytes. `false`: the stream has ended with it.
    fn cut(&mut self, id: ConnectionId, into: BufMut, count: usize, beyond: &[u8]) -> bool {
        let now = self.now;
        let mut messages = std::mem::take(&mut self.messages);
        let Some(entry) = self.connection(id) else { return false };
        let goes_on = entry.framing.in_mid_message();
        let result = entry.framing.received(into, count, beyond, &mut messages);
        if !goes_on || !messages.is_empty() {
            entry.begin_message(now);
        }
        entry.message_bytes += count as u64;
        if !messages.is_empty() && entry.loan.is_some() {
            self.return_loan(id);
        }
        for message in messages.drain(..) {
            self.events.push(TcpEvent::Message { connection: id, message });
        }
        self.messages = messages;
        if let Err(error) = result {
            self.shut(id, CloseReason::Framing(error));
            return false;
        }
        true
    }

    /// Ends the stream; the connection is removed when the kernel has released its buffers.
    fn shut(&mut self, id: ConnectionId, reason: CloseReason) {
        let Some(entry) = self.connection(id) else { return };
        if entry.closed.is_none() {
            entry.closed = Some(reason);
            entry.queue.clear();
            entry.queued_bytes = entry.sending_bytes;
            // Ends the operations in flight; fails if the client ended the stream before.
            let _ = driver::shutdown(&entry.socket);
            self.release(id);
        }
        self.finish(id);
    }

    /// Forgets a connection that is closed and has nothing in flight.
    fn finish(&mut self, id: ConnectionId) {
        // Not by `connection`: its lent bytes are counted beside it.
        let Some(Some(entry)) = self.connections.get_mut(id.0 as u32 as usize) else { return };
        if entry.id != id {
            return;
        }
        let Some(reason) = entry.closed else { return };
        if entry.receiving != Receiving::No || entry.sending {
            return;
        }
        let index = id.0 as u32;
        let holds = self.lent.leave(&mut entry.lent, &entry.socket);
        if holds && reason != CloseReason::Server {
            // Else the kernel would keep it for minutes, uncounted. Fails if the connection is already
            // closed.
            let _ = driver::discard_at_close(&entry.socket);
        }
        self.connections[index as usize] = None;
        self.free.push(index);
        self.events.push(TcpEvent::Closed { connection: id, reason });
    }
}
