//! SMB Direct for the SMB server: RDMA connections in, whole messages and remote payload out.
//!
//! Owns the MS-SMBD state of each RDMA connection, the registrations that the server's reads fill, the order of what leaves, and what is
//! counted and traced. An RDMA Write queued before a message is placed before the message is delivered. Promises: reads of a peer's
//! memory never exceed what it serves at a time, and never wait for more than one of them to come free; what a lost connection held
//! is given back; what waits for a peer is bounded. Never looks into a message.

mod counters;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
pub mod trace;

use api::model::SmbDirectCounters;
use counters::Own;
use rdma::timers::{Armed, Timers};
use rdma::{
    Access, Activity, CloseReason, Completion, CompletionKind, ConnectionInfo, Event, QueuePairId,
    QueuePairMap, RegionKey, Status, Verbs, WorkId,
};
use smbdirect::{BufferDescriptor, Config, Connection, ReadBudget};
use std::collections::VecDeque;
use std::net::SocketAddr;
use sys::{Buf, BufMut, Payload};
use trace::{Trace, What};
use types::{Admission, AdmissionLimits, Monotonic, NumberMap, PeerHost};

/// Of a transfer beside its message: the header of MS-SMBD (2.2.3) with its padding.
const HEADER_ROOM: usize = 64;
/// Connections that ended whose traces are kept.
const CLOSED_TRACES_MAX: usize = 8;

/// What happened on the connections.
#[derive(Debug)]
pub enum SmbDirectEvent {
    /// Negotiated.
    Opened {
        connection: QueuePairId,
        info: ConnectionInfo,
    },
    Message {
        connection: QueuePairId,
        message: Buf,
    },
    /// The answer to [`SmbDirect::read`]; `None`: the peer's memory could not be read.
    Read {
        connection: QueuePairId,
        token: u64,
        data: Option<Buf>,
    },
    /// [`SmbDirect::has_room`] said no, and would say yes.
    Room {
        connection: QueuePairId,
    },
    /// The last event of its name.
    Closed {
        connection: QueuePairId,
        reason: String,
    },
}

#[derive(Debug, Clone)]
pub struct SmbDirectLimits {
    /// Messages and payload of one connection that are not sent, beyond which no more is taken.
    pub unsent_bytes_max: usize,
    /// Bytes registered for reads of one connection that are under way or wait.
    pub reading_bytes_max: usize,
    pub connections: usize,
    /// Of these, of one host.
    pub connections_per_host: usize,
    /// Length in bytes of a message on a connection that nobody has logged on to.
    pub guest_message_bytes_max: u32,
}

impl Default for SmbDirectLimits {
    fn default() -> Self {
        Self {
            unsent_bytes_max: 32 << 20,
            reading_bytes_max: 64 << 20,
            connections: 4096,
            connections_per_host: 1024,
            guest_message_bytes_max: 64 << 10,
        }
    }
}

/// A payload of the peer that is being read.
struct Reading {
    token: u64,
    sink: RegionKey,
    len_bytes: usize,
    /// Descriptors, each with its place in the sink, that no read was posted for.
    waiting: VecDeque<(BufferDescriptor, u64)>,
    outstanding: usize,
    failed: bool,
}

struct Peer {
    /// For people: counted from one.
    number: u64,
    smbd: Connection,
    opened: bool,
    /// Somebody has logged on.
    is_member: bool,
    /// Its receives take no memory before messages come.
    on_demand: bool,
    /// There is too much of it in work.
    is_throttled: bool,
    budget: Option<ReadBudget>,
    readings: Vec<Reading>,
    reading_bytes: usize,
    /// Where work identifiers of reads lead: (identifier, token).
    reads: NumberMap<u64>,
    next_work: u64,
    /// Given to the provider and not sent.
    unsent_bytes: usize,
    /// The owner waits for room.
    blocked: bool,
    own: Own,
    /// The last turns that brought completions: (receives, others).
    turns: (u64, u64),
    trace: Trace,
    armed: Armed,
    /// In the list of those that [`SmbDirect::flush`] looks after.
    touched: bool,
}

/// One connection, as it is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    pub number: u64,
    pub info: ConnectionInfo,
    pub counters: SmbDirectCounters,
    pub send_credits: u16,
    pub receive_credits: u16,
    pub send_bytes_max: u32,
    pub receive_bytes_max: u32,
}

/// See the module.
pub struct SmbDirect<V> {
    verbs: V,
    config: Config,
    limits: SmbDirectLimits,
    peers: QueuePairMap<Peer>,
    admission: Admission<QueuePairId>,
    timers: Timers<QueuePairId>,
    /// Connections with messages that came or are to be sent.
    touched: Vec<QueuePairId>,
    events: Vec<Event>,
    out: Vec<SmbDirectEvent>,
    numbers: u64,
    turn: u64,
    /// Sums of connections that ended.
    closed: SmbDirectCounters,
    closed_traces: VecDeque<(u64, Trace)>,
    now: Monotonic,
}

impl Peer {
    fn new(number: u64, smbd: Connection, on_demand: bool) -> Self {
        Self {
            number,
            smbd,
            opened: false,
            is_member: false,
            on_demand,
            is_throttled: false,
            budget: None,
            readings: Vec::new(),
            reading_bytes: 0,
            reads: NumberMap::default(),
            next_work: 1,
            unsent_bytes: 0,
            blocked: false,
            own: Own::default(),
            turns: (0, 0),
            trace: Trace::default(),
            armed: Armed::default(),
            touched: false,
        }
    }

    #[inline]
    fn note(&mut self, at: Monotonic, what: What) {
        let (send_credits, receive_credits) = (self.smbd.send_credits(), self.smbd.receive_credits());
        self.trace.push(trace::Entry { at, send_credits, receive_credits, what });
    }

    fn work_id(&mut self) -> WorkId {
        self.next_work += 1;
        WorkId(self.next_work - 1)
    }

    /// Posts a Send; `false` where the connection has ended, of which an event tells.
    fn post(
        &mut self,
        verbs: &mut impl Verbs,
        connection: QueuePairId,
        head: &[u8],
        payload: Payload,
        invalidate: Option<u32>,
        now: Monotonic,
    ) -> bool {
        let (id, len) = (self.work_id(), head.len() + payload.len());
        let key = invalidate.map(RegionKey);
        let posted = verbs.post_send_with_head(connection, id, head, payload, key).is_ok();
        if posted {
            self.unsent_bytes += len;
            self.note(now, What::Sent { len: len as u32, invalidated: invalidate });
        }
        posted
    }

    /// Keeps the peer short of credits, or ends that. A guest has as few as can be where each takes memory.
    fn tell_throttle(&mut self) {
        let is_costly_guest = !self.is_member && !self.on_demand;
        self.smbd.throttle(self.is_throttled || is_costly_guest);
    }

    fn unsent(&self) -> usize {
        self.unsent_bytes + self.smbd.queued_bytes()
    }

    /// Puts it into the list of those that [`SmbDirect::flush`] looks after, unless it is there.
    fn touch(&mut self, connection: QueuePairId, touched: &mut Vec<QueuePairId>) {
        if !std::mem::replace(&mut self.touched, true) {
            touched.push(connection);
        }
    }

    fn counters(&self) -> SmbDirectCounters {
        counters::show(&self.own, &self.smbd.counters(), self.readings.len())
    }
}

impl<V: Verbs> SmbDirect<V> {
    /// Over a provider that listens already.
    pub fn new(verbs: V, config: Config, limits: SmbDirectLimits) -> Self {
        Self {
            verbs,
            config,
            peers: QueuePairMap::default(),
            admission: Admission::new(AdmissionLimits::new(limits.connections, limits.connections_per_host)),
            limits,
            timers: Timers::default(),
            touched: Vec::new(),
            events: Vec::new(),
            out: Vec::new(),
            numbers: 0,
            turn: 0,
            closed: SmbDirectCounters::default(),
            closed_traces: VecDeque::new(),
            now: Monotonic(0),
        }
    }

    pub fn verbs(&self) -> &V {
        &self.verbs
    }

    pub fn connection_count(&self) -> usize {
        self.peers.iter().count()
    }

    /// One connection, once it is established.
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

    /// All connections, in the order they came.
    pub fn show_all(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> =
            self.peers.iter().filter_map(|(connection, _)| self.show(connection)).collect();
        all.sort_unstable_by_key(|shown| shown.number);
        all
    }

    /// Sums over all connections there ever were.
    pub fn counters(&self) -> SmbDirectCounters {
        let mut sum = self.closed;
        for (_, peer) in self.peers.iter() {
            sum.add(&peer.counters());
        }
        sum
    }

    pub fn activity(&self) -> Activity {
        self.verbs.activity()
    }

    /// The trace of a connection, also of one of the last that ended.
    pub fn trace(&self, number: u64) -> Option<&Trace> {
        let open = self.peers.iter().find(|(_, peer)| peer.number == number).map(|(_, peer)| &peer.trace);
        let closed = || self.closed_traces.iter().find(|(one, _)| *one == number).map(|(_, trace)| trace);
        open.or_else(closed)
    }

    /// Whether the connection takes more to send. After a no, [`SmbDirectEvent::Room`] tells when it does.
    pub fn has_room(&mut self, connection: QueuePairId) -> bool {
        let Some(peer) = self.peers.get_mut(connection) else { return true };
        peer.blocked = peer.unsent() >= self.limits.unsent_bytes_max;
        !peer.blocked
    }

    /// Keeps the peer short of credits while there is too much of it in work.
    pub fn throttle(&mut self, connection: QueuePairId, throttled: bool) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        peer.is_throttled = throttled;
        peer.tell_throttle();
        peer.note(self.now, What::Throttled(throttled));
        peer.touch(connection, &mut self.touched);
    }

    /// Somebody has logged on: the connection has a place of its own, and its messages may be as long as was agreed.
    pub fn become_member(&mut self, connection: QueuePairId) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        peer.is_member = true;
        self.admission.prove(connection);
        peer.smbd.set_message_bytes_max(u32::MAX);
        self.verbs.set_receive_bytes_max(connection, usize::MAX);
        peer.tell_throttle();
        peer.touch(connection, &mut self.touched);
    }

    /// Work was posted that only [`Self::poll`] puts on the wire.
    pub fn wants_poll(&self) -> bool {
        self.verbs.wants_poll() || !self.out.is_empty() || !self.touched.is_empty()
    }

    /// Sends a message, or queues it for [`Self::flush`]. `invalidate`: a registration of the peer that ends with it.
    pub fn send(&mut self, connection: QueuePairId, message: Payload, invalidate: Option<u32>) {
        let Some(mut peer) = self.peers.get_mut(connection) else { return };
        if peer.smbd.has_events() {
            // What came had its time to be answered: the message grants the receives for it.
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

    /// Writes payload into the peer's memory, descriptor by descriptor; it is there before any message queued later is delivered.
    pub fn write(&mut self, connection: QueuePairId, payload: Payload, descriptors: &[BufferDescriptor]) {
        let now = self.now;
        // Messages queued before leave before: a client that has its answer makes room for the next payload.
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
        match (self.verbs.next_timeout(), self.timers.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Puts on the wire what is to leave, and moves what happened into `out`; `true` where that is anything. To be called again before
    /// its owner sleeps where [`Self::wants_poll`] says so.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<SmbDirectEvent>) -> bool {
        self.now = now;
        self.turn += 1;
        // What came in the last one had its time to be answered: the receives for it go with the answers.
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
                let mut peer = Peer::new(self.numbers, smbd, on_demand);
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

    /// A place for a new connection; another guest's, if need be.
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
                let Some(message) = message else { return };
                if message.len() > done.len_bytes {
                    peer.note(self.now, What::Message { len: message.len() as u32 });
                }
                self.out.push(SmbDirectEvent::Message { connection, message });
            }
            CompletionKind::Read => self.read_completed(connection, done.id, done.status),
            CompletionKind::Send | CompletionKind::Write => {
                peer.unsent_bytes = peer.unsent_bytes.saturating_sub(done.len_bytes);
                // Half of the limit, so that room comes in large pieces.
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

    /// What the MS-SMBD state machine wants.
    fn smbd_events(&mut self, connection: QueuePairId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        'events: while let Some(event) = peer.smbd.poll_event() {
            match event {
                smbdirect::Event::PostReceives(count) => {
                    // What the peer was told, once it was; never less than a device's receives have.
                    let told = if peer.smbd.is_established() { peer.smbd.receive_bytes_max() } else { 0 };
                    let receive_bytes = told.max(self.config.receive_bytes_max) as usize;
                    for _ in 0..count {
                        if self.verbs.post_receive(connection, WorkId(0), receive_bytes).is_err() {
                            // It is closed; what came before is still heard.
                            continue 'events;
                        }
                    }
                    peer.smbd.receives_posted(count);
                    // As many as came is the rule, and says nothing.
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

    /// Posts what may leave.
    fn transmit(&mut self, connection: QueuePairId) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        let stalls = peer.smbd.counters().stalls_send_credit;
        while let Some(out) = peer.smbd.poll_transmit() {
            if !peer.post(&mut self.verbs, connection, &out.head, out.payload, out.invalidate, now) {
                return;
            }
        }
        if peer.smbd.counters().stalls_send_credit > stalls {
            peer.note(now, What::SendCreditStall);
        }
        self.timers.arm(connection, &mut peer.armed, peer.smbd.poll_timeout());
    }

    fn disconnected(&mut self, connection: QueuePairId, reason: CloseReason) {
        // What came before is heard before.
        self.smbd_events(connection);
        self.admission.remove(connection);
        let Some(mut peer) = self.peers.remove(connection) else { return };
        peer.smbd.handle_disconnected();
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
