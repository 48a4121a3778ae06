//! SMB Direct, the accepting side: RDMA connections in, whole messages and remote payload out.
//!
//! Owns the MS-SMBD state of each RDMA connection, the registrations filled by reads of a client's
//! memory, the order of messages and payload, counters and traces. An RDMA Write queued before a
//! message is placed before the message is delivered. Promises: there are never more reads of a peer's
//! memory than the peer serves at a time, and the next begins as soon as one of them ends;
//! registrations of a lost connection end; the bytes that wait for a peer are bounded. Never reads a
//! message.

mod bounds;
mod counters;
#[cfg(test)]
mod hostile;
mod kept;
mod peer;
#[cfg(test)]
mod tests;
pub mod trace;

pub use counters::Counters;

use crate::server::memory::Memories;
use kept::Kept;
use peer::{Peer, Reading};
use rdma::timers::Timers;
use rdma::{
    Access, Activity, CloseReason, Completion, CompletionKind, ConnectionInfo, Event, QueuePairId,
    QueuePairMap, RegionKey, Status, Verbs, WorkId,
};
use smbdirect::{BufferDescriptor, Config, Connection, ReadBudget};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use sys::{Buf, BufMut, Payload};
use trace::{Trace, What};
use types::{Admission, AdmissionLimits, Monotonic, PeerHost};

/// Of a transfer beside its message: the header of MS-SMBD (2.2.3) with its padding.
const HEADER_ROOM: usize = 64;
/// Number of ended connections whose traces are kept.
const CLOSED_TRACES_MAX: usize = 8;

/// A change of a connection, a message of it, or an answer about its memory.
#[derive(Debug)]
pub enum SmbDirectEvent {
    /// Negotiated.
    Opened {
        /// Name of the new connection.
        connection: QueuePairId,
        /// Addresses and read depths of the connection.
        info: ConnectionInfo,
    },
    /// A whole message of the client.
    Message {
        /// Connection that brought the message.
        connection: QueuePairId,
        /// The message, without headers of SMB Direct.
        message: Buf,
    },
    /// Answer to [`SmbDirect::read`]; `None`: the peer's memory could not be read.
    Read {
        /// Connection of the read.
        connection: QueuePairId,
        /// Token that the caller of [`SmbDirect::read`] chose.
        token: u64,
        /// All requested bytes.
        data: Option<Buf>,
    },
    /// [`SmbDirect::has_room`] said no, and would say yes.
    Room {
        /// Connection that takes more to send.
        connection: QueuePairId,
    },
    /// The last event of its name.
    Closed {
        /// Connection that ended.
        connection: QueuePairId,
        /// Reason of the end, for people.
        reason: String,
    },
}

/// Limits of the places, memory and time that clients can take over SMB Direct.
#[derive(Debug, Clone)]
pub struct SmbDirectLimits {
    /// Limit of unsent messages and payload of one connection: at it no more is taken.
    pub unsent_bytes_max: usize,
    /// Bytes registered for reads of one connection that are under way or wait.
    pub reading_bytes_max: usize,
    /// Most connections, those of guests included.
    pub connections: usize,
    /// Of these, of one host.
    pub connections_per_host: usize,
    /// Length in bytes of a message on a connection without a logon.
    pub guest_message_bytes_max: u32,
    /// Memory of messages that have not come whole, or that came and are held, over all connections.
    pub receiving_bytes_max: usize,
    /// Timeout of a whole message on a connection without a logon.
    pub guest_message_time: Duration,
    /// The same on any other connection. A message has 1 MiB at most.
    pub message_time: Duration,
    /// Time within which a peer takes some of the bytes that wait for it.
    pub stall: Duration,
}

impl Default for SmbDirectLimits {
    fn default() -> Self {
        Self {
            unsent_bytes_max: 32 << 20,
            reading_bytes_max: 64 << 20,
            connections: 4096,
            connections_per_host: 1024,
            guest_message_bytes_max: 64 << 10,
            receiving_bytes_max: 256 << 20,
            guest_message_time: Duration::from_secs(10),
            message_time: Duration::from_secs(120),
            stall: Duration::from_secs(120),
        }
    }
}

/// A connection as people see it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Number in the order of arrival, which identifies a connection's trace.
    pub number: u64,
    /// Addresses, protocol and read depths.
    pub info: ConnectionInfo,
    /// Counters since the start of the connection.
    pub counters: Counters,
    /// Transfers that this end may send.
    pub send_credits: u16,
    /// Receives that the client knows of and has not used.
    pub receive_credits: u16,
    /// Most bytes of a transfer to the client.
    pub send_bytes_max: u32,
    /// Most bytes of a transfer from the client.
    pub receive_bytes_max: u32,
}

/// The SMB Direct connections of one server.
pub struct SmbDirect<V> {
    verbs: V,
    config: Config,
    limits: SmbDirectLimits,
    peers: QueuePairMap<Peer>,
    admission: Admission<QueuePairId>,
    timers: Timers<QueuePairId>,
    memory: Memories<QueuePairId>,
    /// Scratch of [`Self::count_transfers`].
    unfinished: Vec<(QueuePairId, usize)>,
    /// Connections that hold memory or have something waiting for them, to be checked by the sweep.
    watched: Vec<QueuePairId>,
    sweep_at: Option<Monotonic>,
    /// Members' connections that were not lent the memory of their receives; some have ended.
    few_receives: VecDeque<QueuePairId>,
    /// Connections with received messages or ones to send.
    touched: Vec<QueuePairId>,
    events: Vec<Event>,
    out: Vec<SmbDirectEvent>,
    numbers: u64,
    turn: u64,
    /// Sums of connections that ended.
    closed: Counters,
    closed_traces: VecDeque<(u64, Trace)>,
    now: Monotonic,
}

impl<V: Verbs> SmbDirect<V> {
    /// Takes connections from a provider that listens already.
    pub fn new(verbs: V, config: Config, limits: SmbDirectLimits) -> Self {
        Self {
            verbs,
            config,
            peers: QueuePairMap::default(),
            admission: Admission::new(AdmissionLimits::new(limits.connections, limits.connections_per_host)),
            memory: Memories::new(limits.receiving_bytes_max),
            limits,
            timers: Timers::default(),
            unfinished: Vec::new(),
            watched: Vec::new(),
            sweep_at: None,
            few_receives: VecDeque::new(),
            touched: Vec::new(),
            events: Vec::new(),
            out: Vec::new(),
            numbers: 0,
            turn: 0,
            closed: Counters::default(),
            closed_traces: VecDeque::new(),
            now: Monotonic(0),
        }
    }

    /// Returns the provider below.
    pub fn verbs(&self) -> &V {
        &self.verbs
    }

    /// Returns the number of connections, those under way included.
    pub fn connection_count(&self) -> usize {
        self.peers.iter().count()
    }

    /// Shows one connection, once it is established.
    pub fn show(&self, connection: QueuePairId) -> Option<Shown> {
        let peer = self.peers.get(connection)?;
        Some(Shown {
            number: peer.number,
            info: self.verbs.info(connection)?,
            counters: peer.counters(),
            send_credits: peer.smbd.send_credits(),
            receive_credits: peer.smbd.receive_credits(),
            send_bytes_max: peer.smbd.send_bytes_max(),
            receive_bytes_max: peer.smbd.receive_bytes_max(),
        })
    }

    /// Shows the connection that has these addresses.
    pub fn find(&self, peer: SocketAddr, local: SocketAddr) -> Option<Shown> {
        let found = |shown: &Shown| shown.info.peer == peer && shown.info.local == local;
        self.peers.iter().filter_map(|(connection, _)| self.show(connection)).find(found)
    }

    /// Shows all connections, in the order in which they came.
    pub fn show_all(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> =
            self.peers.iter().filter_map(|(connection, _)| self.show(connection)).collect();
        all.sort_unstable_by_key(|shown| shown.number);
        all
    }

    /// Sums the counters of all connections there ever were.
    pub fn counters(&self) -> Counters {
        let mut sum = self.closed;
        for (_, peer) in self.peers.iter() {
            sum.add(&peer.counters());
        }
        sum
    }

    /// Returns the provider's counters since its start.
    pub fn activity(&self) -> Activity {
        self.verbs.activity()
    }

    /// Gives the trace of a connection, also of one of the last that ended.
    pub fn trace(&self, number: u64) -> Option<&Trace> {
        let open = self.peers.iter().find(|(_, peer)| peer.number == number).map(|(_, peer)| &peer.trace);
        let closed = || self.closed_traces.iter().find(|(one, _)| *one == number).map(|(_, trace)| trace);
        open.or_else(closed)
    }

    /// Returns whether the connection takes more to send. After a false, [`SmbDirectEvent::Room`] reports
    /// when it does.
    pub fn has_room(&mut self, connection: QueuePairId) -> bool {
        let Some(peer) = self.peers.get_mut(connection) else { return true };
        peer.blocked = peer.unsent() >= self.limits.unsent_bytes_max;
        !peer.blocked
    }

    /// Keeps the peer's credits low while it has too much in work. Ending that releases its held messages'
    /// memory.
    pub fn throttle(&mut self, connection: QueuePairId, throttled: bool) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        peer.is_throttled = throttled;
        peer.tell_throttle();
        peer.note(self.now, What::Throttled(throttled));
        peer.touch(connection, &mut self.touched);
        if !throttled {
            peer.kept.held_bytes = 0;
            self.count_or_close(connection);
        }
    }

    /// Gives the connection a place of its own and the negotiated length of messages, after a logon.
    pub fn become_member(&mut self, connection: QueuePairId, user: &str) {
        self.count_as_members(connection, user);
        let Some(peer) = self.peers.get_mut(connection) else { return };
        self.admission.prove(connection);
        peer.smbd.set_message_bytes_max(u32::MAX);
        self.verbs.set_receive_bytes_max(connection, usize::MAX);
        peer.tell_throttle();
        peer.touch(connection, &mut self.touched);
    }

    /// Says whether work was posted that only [`Self::poll`] puts on the wire.
    pub fn wants_poll(&self) -> bool {
        self.verbs.wants_poll() || !self.out.is_empty() || !self.touched.is_empty()
    }

    /// Sends a message, or queues it for [`Self::flush`]. `invalidate`: a registration of the peer that ends with it.
    pub fn send(&mut self, connection: QueuePairId, message: Payload, invalidate: Option<u32>) {
        let Some(mut peer) = self.peers.get_mut(connection) else { return };
        if peer.smbd.has_events() {
            // Earlier messages had their time to be answered: this message grants their receives.
            self.smbd_events(connection);
            match self.peers.get_mut(connection) {
                Some(again) => peer = again,
                None => return,
            }
        }
        if let Some(head) = peer.smbd.begin_transfer(message.len(), invalidate.is_some()) {
            peer.post(&mut self.verbs, connection, &head, message, invalidate, self.now);
            return;
        }
        if peer.smbd.send(message, invalidate).is_err() {
            // A message that cannot be sent would leave its request without an answer for ever.
            self.verbs.disconnect(connection);
        }
        peer.touch(connection, &mut self.touched);
    }

    /// Posts receives for the messages that came, and those that may leave.
    pub fn flush(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for connection in touched.drain(..) {
            if let Some(peer) = self.peers.get_mut(connection) {
                peer.touched = false;
            }
            self.smbd_events(connection);
            self.transmit(connection);
        }
        // Neither touches a connection.
        self.touched = touched;
    }

    /// Writes payload into the peer's memory, descriptor by descriptor, before the delivery of any message
    /// queued later.
    pub fn write(&mut self, connection: QueuePairId, payload: Payload, descriptors: &[BufferDescriptor]) {
        let now = self.now;
        // Earlier messages go first: a client with its answer frees memory for the next payload.
        self.transmit(connection);
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let mut at = 0;
        for descriptor in descriptors {
            let take = (payload.len() - at).min(descriptor.len_bytes as usize);
            if take == 0 {
                break;
            }
            let BufferDescriptor { token, offset, .. } = *descriptor;
            let id = peer.work_id();
            let part = payload.slice(at, take);
            if self.verbs.post_write(connection, id, part, (RegionKey(token), offset)).is_err() {
                return self.verbs.disconnect(connection);
            }
            peer.unsent_bytes += take;
            peer.note(now, What::Wrote { token, offset, len: take as u32 });
            at += take;
        }
        peer.own.bytes_rdma_written += at as u64;
    }

    /// Reads `len_bytes` of the peer's memory; the answer carries `token`.
    pub fn read(
        &mut self,
        connection: QueuePairId,
        token: u64,
        len_bytes: usize,
        descriptors: &[BufferDescriptor],
    ) {
        let limit = self.limits.reading_bytes_max;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let mut waiting = VecDeque::with_capacity(descriptors.len());
        let mut at = 0u64;
        for descriptor in descriptors {
            let take = (len_bytes as u64 - at).min(u64::from(descriptor.len_bytes));
            if take > 0 {
                waiting.push_back((BufferDescriptor { len_bytes: take as u32, ..*descriptor }, at));
                at += take;
            }
        }
        let full = peer.reading_bytes + len_bytes > limit;
        peer.own.stalls_rdma_registrations += u64::from(full);
        if at < len_bytes as u64 || peer.budget.is_none() || full {
            peer.note(self.now, What::ReadRefused { len: len_bytes });
            self.out.push(SmbDirectEvent::Read { connection, token, data: None });
            return;
        }
        let sink = match self.verbs.register_room(len_bytes, Access::default(), connection) {
            Ok(sink) => sink,
            Err(error) => {
                tracing::warn!(%error, len_bytes, "no memory can be registered for data of a client");
                peer.own.stalls_rdma_registrations += 1;
                peer.note(self.now, What::ReadRefused { len: len_bytes });
                self.out.push(SmbDirectEvent::Read { connection, token, data: None });
                return;
            }
        };
        peer.own.rdma_registrations += 1;
        peer.reading_bytes += len_bytes;
        peer.readings.push(Reading { token, sink, len_bytes, waiting, outstanding: 0, failed: false });
        self.post_reads(connection);
    }

    /// Ends a connection.
    pub fn close(&mut self, connection: QueuePairId) {
        if self.peers.get(connection).is_some() {
            self.verbs.disconnect(connection);
        }
    }

    /// When [`Self::poll`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        [self.verbs.next_timeout(), self.timers.next(), self.sweep_at].into_iter().flatten().min()
    }

    /// Puts posted work on the wire and moves events into `out`; `true` if there are any. Call it again
    /// before sleeping if [`Self::wants_poll`] is true.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<SmbDirectEvent>) -> bool {
        self.now = now;
        self.turn += 1;
        // Messages of the last round had their time to be answered: their receives are granted with the answers.
        self.flush();
        let mut events = std::mem::take(&mut self.events);
        self.verbs.poll(now, &mut events);
        for event in &events {
            if let Event::Completion(done) = event
                && done.kind == CompletionKind::Receive
                && let Some(peer) = self.peers.get(done.queue_pair)
            {
                sys::prefetch(peer);
            }
        }
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        self.count_transfers();
        self.sweep_if_due();
        while let Some((at, connection)) = self.timers.pop(now) {
            let Some(peer) = self.peers.get_mut(connection) else { continue };
            peer.armed.came_up(at);
            let keepalives = peer.smbd.counters().keepalives;
            peer.smbd.handle_timeout(now);
            if peer.smbd.counters().keepalives > keepalives {
                peer.note(now, What::Keepalive);
            }
            peer.touch(connection, &mut self.touched);
        }
        let moved = !self.out.is_empty();
        out.append(&mut self.out);
        moved
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { queue_pair, private_data, peer: address } => {
                if !self.admit(queue_pair, address) {
                    return self.verbs.reject(queue_pair, &[]);
                }
                if self.verbs.accept(queue_pair, &[]).is_err() {
                    return self.admission.remove(queue_pair);
                }
                self.numbers += 1;
                let on_demand = self.verbs.info(queue_pair).is_some_and(|info| info.receives_on_demand);
                let config = if on_demand { self.config.receives_on_demand() } else { self.config };
                let mut smbd = Connection::listen(config, self.now);
                smbd.set_message_bytes_max(self.limits.guest_message_bytes_max);
                let receive_bytes_max = self.limits.guest_message_bytes_max as usize + HEADER_ROOM;
                self.verbs.set_receive_bytes_max(queue_pair, receive_bytes_max);
                let kept = Kept::new(self.memory.join_guest(PeerHost::from(address.ip())));
                let mut peer = Peer::new(self.numbers, smbd, on_demand, kept);
                peer.tell_throttle();
                peer.note(self.now, What::Request { private_data: private_data.len() });
                self.peers.insert(queue_pair, peer);
                self.smbd_events(queue_pair);
            }
            Event::Established { queue_pair, .. } => {
                let info = self.verbs.info(queue_pair);
                if let (Some(peer), Some(info)) = (self.peers.get_mut(queue_pair), info) {
                    peer.budget = ReadBudget::new(info.outbound_read_depth);
                    peer.note(self.now, What::established(&info));
                }
            }
            Event::Completion(done) => self.completed(done),
            Event::Disconnected { queue_pair, reason } => self.disconnected(queue_pair, reason),
        }
    }

    /// Finds a place for a new connection, if need be that of a guest.
    fn admit(&mut self, connection: QueuePairId, address: SocketAddr) -> bool {
        match self.admission.admit(connection, PeerHost::from(address.ip())) {
            Ok(evicted) => {
                if let Some(evicted) = evicted {
                    tracing::debug!("an SMB Direct connection without a logon makes room for another");
                    self.verbs.disconnect(evicted);
                }
                true
            }
            Err(reason) => {
                tracing::warn!(%address, %reason, "an SMB Direct connection was refused");
                false
            }
        }
    }

    fn completed(&mut self, done: Completion) {
        let connection = done.queue_pair;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if done.kind == CompletionKind::Receive {
            peer.own.rcq_notification_events +=
                u64::from(std::mem::replace(&mut peer.turns.0, self.turn) != self.turn);
        } else {
            peer.own.scq_notification_events +=
                u64::from(std::mem::replace(&mut peer.turns.1, self.turn) != self.turn);
        }
        match done.kind {
            CompletionKind::Receive if done.status == Status::Success => {
                let Some(buffer) = done.buffer else { return };
                let message = peer.smbd.handle_receive(buffer, self.now);
                peer.note(self.now, What::Received { len: done.len_bytes as u32 });
                peer.touch(connection, &mut self.touched);
                let Some(message) = message else { return self.count_or_close(connection) };
                let is_counted = peer.kept.is_counted();
                if message.len() > done.len_bytes {
                    peer.note(self.now, What::Message { len: message.len() as u32 });
                }
                self.out.push(SmbDirectEvent::Message { connection, message });
                if is_counted {
                    self.count_or_close(connection);
                }
            }
            CompletionKind::Read => self.read_completed(connection, done.id, done.status),
            CompletionKind::Send | CompletionKind::Write => {
                peer.unsent_bytes = peer.unsent_bytes.saturating_sub(done.len_bytes);
                peer.sent_bytes += done.len_bytes as u64;
                if peer.smbd.is_closed() {
                    peer.touch(connection, &mut self.touched);
                }
                // Half of the limit, so that space becomes free in large parts.
                if peer.blocked && peer.unsent() <= self.limits.unsent_bytes_max / 2 {
                    peer.blocked = false;
                    self.out.push(SmbDirectEvent::Room { connection });
                }
            }
            CompletionKind::Receive => {}
        }
    }

    fn read_completed(&mut self, connection: QueuePairId, id: WorkId, status: Status) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let Some(token) = peer.reads.remove(&id.0) else { return };
        if let Some(budget) = peer.budget.as_mut() {
            budget.give_back();
        }
        if let Some(at) = peer.readings.iter().position(|reading| reading.token == token) {
            let reading = &mut peer.readings[at];
            reading.outstanding -= 1;
            reading.failed |= status != Status::Success;
            if reading.failed {
                reading.waiting.clear();
            }
            if reading.outstanding == 0 && reading.waiting.is_empty() {
                let reading = peer.readings.remove(at);
                peer.reading_bytes -= reading.len_bytes;
                let data =
                    self.verbs.deregister(reading.sink).filter(|_| !reading.failed).map(BufMut::freeze);
                if data.is_some() {
                    peer.own.bytes_rdma_read += reading.len_bytes as u64;
                }
                peer.note(now, What::ReadDone { len: reading.len_bytes, failed: data.is_none() });
                self.out.push(SmbDirectEvent::Read { connection, token, data });
            }
        }
        self.post_reads(connection);
    }

    /// Posts reads as the peer's depth allows, the oldest payload first.
    fn post_reads(&mut self, connection: QueuePairId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        while let Some(next) = peer.readings.iter().position(|reading| !reading.waiting.is_empty()) {
            if !peer.budget.as_mut().is_some_and(ReadBudget::take) {
                peer.own.stalls_rdma_read += 1;
                return peer.note(now, What::ReadStall);
            }
            let reading = &mut peer.readings[next];
            let Some((descriptor, at)) = reading.waiting.pop_front() else { return };
            reading.outstanding += 1;
            let (token, sink) = (reading.token, reading.sink);
            let id = peer.work_id();
            peer.reads.insert(id.0, token);
            let BufferDescriptor { token, offset, len_bytes: len } = descriptor;
            peer.note(now, What::ReadPosted { token, offset, len });
            let remote = (RegionKey(token), offset);
            if self.verbs.post_read(connection, id, (sink, at), len, remote).is_err() {
                return self.verbs.disconnect(connection);
            }
        }
    }

    /// Handles the events of the MS-SMBD state machine.
    fn smbd_events(&mut self, connection: QueuePairId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        'events: while let Some(event) = peer.smbd.poll_event() {
            match event {
                smbdirect::Event::PostReceives(count) => {
                    // The negotiated size, if any; never less than a device's receives have.
                    let told = if peer.smbd.is_established() { peer.smbd.receive_bytes_max() } else { 0 };
                    let receive_bytes = told.max(self.config.receive_bytes_max) as usize;
                    for _ in 0..count {
                        if self.verbs.post_receive(connection, WorkId(0), receive_bytes).is_err() {
                            // The connection is closed; messages that came before are still delivered.
                            continue 'events;
                        }
                    }
                    peer.smbd.receives_posted(count);
                    // Later ones usually match the receives used, and tell nothing.
                    if !peer.opened {
                        peer.note(now, What::PostedReceives { count });
                    }
                }
                smbdirect::Event::Established => {
                    if let Some(info) = self.verbs.info(connection) {
                        peer.opened = true;
                        let what = What::Negotiated {
                            send_bytes_max: peer.smbd.send_bytes_max(),
                            receive_bytes_max: peer.smbd.receive_bytes_max(),
                            fragmented_bytes_max: peer.smbd.fragmented_send_bytes_max(),
                        };
                        peer.note(now, what);
                        self.out.push(SmbDirectEvent::Opened { connection, info });
                    }
                }
                smbdirect::Event::Closed(reason) => {
                    tracing::debug!(%reason, "SMB Direct connection ends");
                    peer.note(now, What::Closing { reason });
                    self.verbs.disconnect(connection);
                    return;
                }
            }
        }
        self.timers.arm(connection, &mut peer.armed, peer.smbd.poll_timeout());
    }

    /// Posts the messages that may leave.
    fn transmit(&mut self, connection: QueuePairId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let stalls = peer.smbd.counters().stalls_send_credit;
        while let Some(out) = peer.smbd.poll_transmit() {
            if !peer.post(&mut self.verbs, connection, &out.head, out.payload, out.invalidate, now) {
                return;
            }
        }
        if peer.smbd.is_closed() {
            // The last message posted refuses the peer: the connection ends when that has left
            // ([`Self::completed`]).
            return self.watch(connection);
        }
        if peer.smbd.counters().stalls_send_credit > stalls {
            peer.note(now, What::SendCreditStall);
        }
        self.timers.arm(connection, &mut peer.armed, peer.smbd.poll_timeout());
    }

    fn disconnected(&mut self, connection: QueuePairId, reason: CloseReason) {
        // Earlier messages are handled first.
        self.smbd_events(connection);
        self.admission.remove(connection);
        let Some(mut peer) = self.peers.remove(connection) else { return };
        peer.smbd.handle_disconnected();
        self.release(&mut peer);
        for reading in peer.readings.drain(..) {
            self.verbs.deregister(reading.sink);
        }
        self.closed.add(&peer.counters());
        let words = reason.to_string();
        peer.note(self.now, What::Closed);
        peer.trace.close(reason);
        if self.closed_traces.len() == CLOSED_TRACES_MAX {
            self.closed_traces.pop_front();
        }
        self.closed_traces.push_back((peer.number, peer.trace));
        if peer.opened {
            self.out.push(SmbDirectEvent::Closed { connection, reason: words });
        }
    }
}
