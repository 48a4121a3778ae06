//! SMB Direct for the SMB server: RDMA connections in, whole messages and remote payload out.
//!
//! Owns the MS-SMBD state of each RDMA connection, the registrations that the server's reads fill, and the order of what leaves:
//! an RDMA Write queued before a message is placed before the message is delivered. Promises: reads of a peer's memory never exceed what it
//! serves at a time, and never wait for more than one of them to come free; what a lost connection held is given back. Never looks
//! into a message.

#[cfg(test)]
mod tests;

use rdma::{
    Access, CloseReason, Completion, CompletionKind, ConnectionInfo, Event, QueuePairId, RegionKey, Status,
    Verbs, WorkId,
};
use smbdirect::{BufferDescriptor, Config, Connection, ReadBudget};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

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
    /// The last event of its name.
    Closed {
        connection: QueuePairId,
        reason: String,
    },
}

#[derive(Debug, Clone)]
pub struct SmbDirectLimits {
    /// Messages and payload queued to one connection.
    pub queued_bytes_max: usize,
    /// Bytes registered for reads of one connection that are under way or wait.
    pub reading_bytes_max: usize,
}

impl Default for SmbDirectLimits {
    fn default() -> Self {
        Self { queued_bytes_max: 64 << 20, reading_bytes_max: 64 << 20 }
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
    smbd: Connection,
    opened: bool,
    budget: Option<ReadBudget>,
    readings: Vec<Reading>,
    reading_bytes: usize,
    /// Where work identifiers of reads lead: (identifier, token).
    reads: HashMap<u64, u64>,
    next_work: u64,
    closing: bool,
}

/// Payload counters of one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteBytes {
    pub read: u64,
    pub written: u64,
}

/// See the module.
pub struct SmbDirect<V> {
    verbs: V,
    config: Config,
    limits: SmbDirectLimits,
    peers: HashMap<QueuePairId, Peer>,
    remote: HashMap<QueuePairId, RemoteBytes>,
    events: Vec<Event>,
    out: Vec<SmbDirectEvent>,
    now: Monotonic,
}

impl<V: Verbs> SmbDirect<V> {
    /// Over a provider that listens already.
    pub fn new(verbs: V, config: Config, limits: SmbDirectLimits) -> Self {
        Self {
            verbs,
            config,
            limits,
            peers: HashMap::new(),
            remote: HashMap::new(),
            events: Vec::new(),
            out: Vec::new(),
            now: Monotonic(0),
        }
    }

    pub fn connection_count(&self) -> usize {
        self.peers.len()
    }

    pub fn info(&self, connection: QueuePairId) -> Option<ConnectionInfo> {
        self.verbs.info(connection)
    }

    pub fn peer_address(&self, connection: QueuePairId) -> Option<SocketAddr> {
        self.info(connection).map(|info| info.peer)
    }

    /// Bytes that went by RDMA Read and Write.
    pub fn remote_bytes(&self, connection: QueuePairId) -> RemoteBytes {
        self.remote.get(&connection).copied().unwrap_or_default()
    }

    pub fn counters(&self, connection: QueuePairId) -> Option<smbdirect::Counters> {
        self.peers.get(&connection).map(|peer| peer.smbd.counters())
    }

    /// (send credits, receive credits).
    pub fn credits(&self, connection: QueuePairId) -> Option<(u16, u16)> {
        self.peers.get(&connection).map(|peer| (peer.smbd.send_credits(), peer.smbd.receive_credits()))
    }

    /// Queues a message. `invalidate`: a registration of the peer that ends with it.
    pub fn send(&mut self, connection: QueuePairId, message: Payload, invalidate: Option<u32>) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        if peer.smbd.send(message, invalidate).is_err() {
            // A message that cannot be sent would leave its request without an answer for ever.
            self.verbs.disconnect(connection);
        }
        self.transmit(connection);
    }

    /// Writes payload into the peer's memory, descriptor by descriptor; it is there before any message queued later is delivered.
    pub fn write(&mut self, connection: QueuePairId, payload: &Payload, descriptors: &[BufferDescriptor]) {
        let mut at = 0;
        for descriptor in descriptors {
            let take = (payload.len() - at).min(descriptor.len_bytes as usize);
            if take == 0 {
                break;
            }
            let remote = (RegionKey(descriptor.token), descriptor.offset);
            let part = payload.slice(at, take);
            let id = self.work_id(connection);
            if self.verbs.post_write(connection, id, part, remote).is_err() {
                return self.verbs.disconnect(connection);
            }
            at += take;
        }
        self.remote.entry(connection).or_default().written += at as u64;
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
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let mut waiting = VecDeque::with_capacity(descriptors.len());
        let mut at = 0u64;
        for descriptor in descriptors {
            let take = (len_bytes as u64 - at).min(u64::from(descriptor.len_bytes));
            if take > 0 {
                waiting.push_back((BufferDescriptor { len_bytes: take as u32, ..*descriptor }, at));
                at += take;
            }
        }
        if at < len_bytes as u64 || peer.budget.is_none() || peer.reading_bytes + len_bytes > limit {
            self.out.push(SmbDirectEvent::Read { connection, token, data: None });
            return;
        }
        let sink = match self.verbs.register(BufMut::for_overwrite(len_bytes), Access::default(), connection)
        {
            Ok(sink) => sink,
            Err(error) => {
                tracing::warn!(%error, len_bytes, "no memory can be registered for data of a client");
                self.out.push(SmbDirectEvent::Read { connection, token, data: None });
                return;
            }
        };
        peer.reading_bytes += len_bytes;
        peer.readings.push(Reading { token, sink, len_bytes, waiting, outstanding: 0, failed: false });
        self.post_reads(connection);
    }

    /// Ends a connection.
    pub fn close(&mut self, connection: QueuePairId) {
        if let Some(peer) = self.peers.get_mut(&connection) {
            peer.closing = true;
            self.verbs.disconnect(connection);
        }
    }

    /// When [`Self::poll`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let peers = self.peers.values().filter_map(|peer| peer.smbd.poll_timeout()).min();
        match (self.verbs.next_timeout(), peers) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Moves what happened into `out`; `true` where anything did.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<SmbDirectEvent>) -> bool {
        self.now = now;
        let mut events = std::mem::take(&mut self.events);
        self.verbs.poll(now, &mut events);
        let moved = !events.is_empty() || !self.out.is_empty();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        let due: Vec<QueuePairId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.smbd.poll_timeout().is_some_and(|at| at <= now))
            .map(|(connection, _)| *connection)
            .collect();
        for connection in due {
            if let Some(peer) = self.peers.get_mut(&connection) {
                peer.smbd.handle_timeout(now);
            }
            self.smbd_events(connection);
            self.transmit(connection);
        }
        out.append(&mut self.out);
        moved
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { queue_pair, .. } => {
                if self.verbs.accept(queue_pair, &[]).is_err() {
                    return;
                }
                let smbd = Connection::listen(self.config, self.now);
                self.peers.insert(
                    queue_pair,
                    Peer {
                        smbd,
                        opened: false,
                        budget: None,
                        readings: Vec::new(),
                        reading_bytes: 0,
                        reads: HashMap::new(),
                        next_work: 1,
                        closing: false,
                    },
                );
                self.smbd_events(queue_pair);
            }
            Event::Established { queue_pair, .. } => {
                let depth = self.verbs.info(queue_pair).map_or(0, |info| info.outbound_read_depth);
                if let Some(peer) = self.peers.get_mut(&queue_pair) {
                    peer.budget = ReadBudget::new(depth);
                }
            }
            Event::Completion(done) => self.completed(done),
            Event::Disconnected { queue_pair, reason } => self.disconnected(queue_pair, &reason),
        }
    }

    fn completed(&mut self, done: Completion) {
        let connection = done.queue_pair;
        match done.kind {
            CompletionKind::Receive if done.status == Status::Success => {
                let (Some(peer), Some(buffer)) = (self.peers.get_mut(&connection), done.buffer) else {
                    return;
                };
                peer.smbd.handle_receive(buffer.freeze(), self.now);
                self.smbd_events(connection);
                self.transmit(connection);
            }
            CompletionKind::Read => self.read_completed(connection, done.id, done.status),
            CompletionKind::Receive | CompletionKind::Send | CompletionKind::Write => {}
        }
    }

    fn read_completed(&mut self, connection: QueuePairId, id: WorkId, status: Status) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
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
                    self.remote.entry(connection).or_default().read += reading.len_bytes as u64;
                }
                self.out.push(SmbDirectEvent::Read { connection, token, data });
            }
        }
        self.post_reads(connection);
    }

    /// Posts reads as the peer's depth allows, the oldest payload first.
    fn post_reads(&mut self, connection: QueuePairId) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let Some(budget) = peer.budget.as_mut() else { return };
        for reading in &mut peer.readings {
            while let Some((descriptor, at)) = reading.waiting.front().copied() {
                if !budget.take() {
                    return;
                }
                reading.waiting.pop_front();
                reading.outstanding += 1;
                let id = peer.next_work;
                peer.next_work += 1;
                peer.reads.insert(id, reading.token);
                let remote = (RegionKey(descriptor.token), descriptor.offset);
                let posted = self.verbs.post_read(
                    connection,
                    WorkId(id),
                    (reading.sink, at),
                    descriptor.len_bytes,
                    remote,
                );
                if posted.is_err() {
                    return self.verbs.disconnect(connection);
                }
            }
        }
    }

    fn work_id(&mut self, connection: QueuePairId) -> WorkId {
        match self.peers.get_mut(&connection) {
            Some(peer) => {
                peer.next_work += 1;
                WorkId(peer.next_work - 1)
            }
            None => WorkId(0),
        }
    }

    /// What the MS-SMBD state machine wants.
    fn smbd_events(&mut self, connection: QueuePairId) {
        let receive_bytes = self.config.receive_bytes_max as usize;
        while let Some(peer) = self.peers.get_mut(&connection) {
            let Some(event) = peer.smbd.poll_event() else { return };
            match event {
                smbdirect::Event::PostReceives(count) => {
                    for _ in 0..count {
                        if self.verbs.post_receive(connection, WorkId(0), receive_bytes).is_err() {
                            return;
                        }
                    }
                    peer.smbd.receives_posted(count);
                }
                smbdirect::Event::Established => {
                    if let Some(info) = self.verbs.info(connection) {
                        peer.opened = true;
                        self.out.push(SmbDirectEvent::Opened { connection, info });
                    }
                }
                smbdirect::Event::Message(message) => {
                    let message = message.contiguous();
                    self.out.push(SmbDirectEvent::Message { connection, message });
                }
                smbdirect::Event::Closed(reason) => {
                    tracing::debug!(%reason, "SMB Direct connection ends");
                    self.verbs.disconnect(connection);
                    return;
                }
            }
        }
    }

    /// Posts what may leave.
    fn transmit(&mut self, connection: QueuePairId) {
        let queued_max = self.limits.queued_bytes_max;
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        while let Some(out) = peer.smbd.poll_transmit() {
            let invalidate = out.invalidate.map(RegionKey);
            if self.verbs.post_send(connection, WorkId(0), out.payload, invalidate).is_err() {
                return;
            }
        }
        // A peer that takes nothing is not to fill our memory.
        if peer.smbd.queued_bytes() > queued_max {
            self.verbs.disconnect(connection);
        }
    }

    fn disconnected(&mut self, connection: QueuePairId, reason: &CloseReason) {
        let Some(mut peer) = self.peers.remove(&connection) else { return };
        peer.smbd.handle_disconnected();
        for reading in peer.readings.drain(..) {
            self.verbs.deregister(reading.sink);
        }
        self.remote.remove(&connection);
        if peer.opened {
            self.out.push(SmbDirectEvent::Closed { connection, reason: reason.to_string() });
        }
    }
}
