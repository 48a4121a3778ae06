//! Messages and registered memory over one SMB Direct connection (MS-SMBD), on iWARP in software or on an RDMA device.
//!
//! Owns the connection's queue pair, its MS-SMBD state and the registrations that the server may reach. Promises: what is registered for
//! one request is reached by this connection's peer only, and no longer than until it is taken back. Never looks into a message.

use super::MESSAGE_BYTES_MAX;
use crate::connection::Outgoing;
use crate::{ClientError, Engine, Options, RdmaDevice};
use ::rdma::ibverbs::{IbverbsOptions, IbverbsProvider};
use ::rdma::iwarp::{IwarpOptions, IwarpProvider, Shape, ShapeOf};
use ::rdma::{Access, CompletionKind, Event, HEAD_BYTES_MAX, QueuePairId, RegionKey, Status, Verbs, WorkId};
use iwarp::CrcPolicy;
use smb::wire::{BufferDescriptorV1, TCP_PREFIX_BYTES, U32, U64};
use smbdirect::{Config, Connection};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use sys::{ALIGN_BYTES, Buf, BufMut, Payload, monotonic_now};
use types::Monotonic;

/// Header bytes that a message has beside its payload, at most.
const HEADERS_BYTES: u32 = 1024;

pub(crate) struct RdmaLink {
    provider: Box<dyn Verbs>,
    pair: QueuePairId,
    /// The device that it has to be.
    wanted: Option<String>,
    smbd: Connection,
    is_established: bool,
    /// The peer's Send may end a registration of ours.
    may_invalidate: bool,
    receive_bytes: usize,
    events: Vec<Event>,
    messages: VecDeque<Buf>,
    failure: Option<ClientError>,
}

impl Drop for RdmaLink {
    fn drop(&mut self) {
        self.provider.disconnect(self.pair);
        self.provider.poll(monotonic_now(), &mut self.events);
    }
}

impl RdmaLink {
    /// Over a TCP connection that is up; [`Self::is_ready`] says when messages may flow.
    pub fn by_software(
        engine: &Engine,
        stream: TcpStream,
        timeout: Duration,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let crc = if options.rdma_crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked };
        let receive_shape: Option<ShapeOf> = Some(|first| {
            let shape = smbdirect::transfer_shape(first)?;
            Some(Shape { len_bytes: shape.len_bytes, aligned_at: shape.read_payload_at() })
        });
        let iwarp = IwarpOptions {
            crc,
            queue_pairs_max: 1,
            tells_sent_together: true,
            receive_shape,
            ..IwarpOptions::default()
        };
        let mut provider = IwarpProvider::new(engine.driver(), iwarp, ::rdma::random_names());
        let now = monotonic_now();
        let pair = provider.connect(stream, &[], now)?;
        let config = Config::default().receives_on_demand();
        Ok(Self::new(Box::new(provider), pair, None, Config { negotiate_timeout: timeout, ..config }, now))
    }

    /// By the device that leads to the address.
    pub fn by_device(
        engine: &Engine,
        address: SocketAddr,
        timeout: Duration,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let ibverbs = IbverbsOptions { queue_pairs_max: 1, ..IbverbsOptions::default() };
        let mut provider = IbverbsProvider::new(engine.driver(), ibverbs).map_err(ClientError::Rdma)?;
        let now = monotonic_now();
        let pair = provider.connect(address, &[], now).map_err(|error| {
            ClientError::Rdma(format!("no RDMA device leads to {}: {error}", address.ip()))
        })?;
        let wanted = match &options.rdma_device {
            RdmaDevice::Named(name) => Some(name.clone()),
            RdmaDevice::Any | RdmaDevice::Software => None,
        };
        let config = Config { negotiate_timeout: timeout, ..Config::default() };
        Ok(Self::new(Box::new(provider), pair, wanted, config, now))
    }

    fn new(
        provider: Box<dyn Verbs>,
        pair: QueuePairId,
        wanted: Option<String>,
        config: Config,
        now: Monotonic,
    ) -> Self {
        // A signed or encrypted READ comes in messages: the largest has to fit.
        let config = Config { fragmented_bytes_max: MESSAGE_BYTES_MAX as u32, ..config };
        Self {
            provider,
            pair,
            wanted,
            smbd: Connection::connect(config, now),
            is_established: false,
            may_invalidate: false,
            receive_bytes: config.receive_bytes_max as usize,
            events: Vec::new(),
            messages: VecDeque::new(),
            failure: None,
        }
    }

    pub fn kill(&mut self) {
        self.provider.disconnect(self.pair);
    }

    /// Whether MS-SMBD is negotiated.
    pub fn is_ready(&self) -> bool {
        self.smbd.is_established()
    }

    /// Whether FPDUs carry a CRC.
    pub fn has_crc(&self) -> bool {
        self.provider.info(self.pair).is_some_and(|info| info.crc)
    }

    pub fn counters(&self) -> smbdirect::Counters {
        self.smbd.counters()
    }

    /// Most bytes of payload in a message to the server.
    pub fn inline_bytes_max(&self) -> u32 {
        self.smbd.fragmented_send_bytes_max().saturating_sub(HEADERS_BYTES)
    }

    /// Most bytes of a WRITE that one transfer carries.
    pub fn transfer_bytes_max(&self) -> usize {
        (self.smbd.send_bytes_max() as usize).saturating_sub(smbdirect::WRITE_PAYLOAD_AT)
    }

    /// Most bytes of a READ whose answer comes in one transfer, or, from a server with short transfers, in a few: whole pages.
    pub fn answer_bytes_max(&self) -> usize {
        let room = (self.smbd.transfer_in_bytes_max() as usize).saturating_sub(smbdirect::READ_PAYLOAD_AT);
        (room / ALIGN_BYTES * ALIGN_BYTES).max(ALIGN_BYTES)
    }

    /// Most bytes that the server moves by RDMA for one request.
    pub fn remote_bytes_max(&self) -> u32 {
        self.smbd.read_write_bytes_max()
    }

    pub fn send(&mut self, message: Outgoing) -> Result<(), ClientError> {
        if self.smbd.has_events() {
            // It grants receives for what came.
            self.negotiated();
        }
        let head = message.head.get(TCP_PREFIX_BYTES..).unwrap_or_default();
        let Some(transfer) = self.smbd.begin_transfer(head.len() + message.payload.len(), false) else {
            let mut payload = Payload::from(Buf::from(head));
            payload.append(message.payload);
            return self.smbd.send(payload, None).map_err(|error| ClientError::Rdma(error.to_string()));
        };
        // The two headers go as one, and no buffer is needed for them, where they are those of an operation on a file.
        let (mut front, len_bytes) = ([0; HEAD_BYTES_MAX], transfer.len() + head.len());
        // Where it is closed, its last event says so.
        let _ = match front.get_mut(..len_bytes) {
            Some(front) => {
                front[..transfer.len()].copy_from_slice(&transfer);
                front[transfer.len()..].copy_from_slice(head);
                self.provider.post_send_with_head(self.pair, WorkId(0), front, message.payload, None)
            }
            None => {
                let mut payload = Payload::from(Buf::from(head));
                payload.append(message.payload);
                self.provider.post_send_with_head(self.pair, WorkId(0), &transfer, payload, None)
            }
        };
        Ok(())
    }

    fn describe(&self, key: RegionKey, len_bytes: usize) -> BufferDescriptorV1 {
        BufferDescriptorV1 {
            offset: U64::new(self.provider.remote_offset(key)),
            token: U32::new(key.0),
            length: U32::new(len_bytes as u32),
        }
    }

    /// Whether the server may end a loan with its answer.
    pub fn may_invalidate(&self) -> bool {
        self.may_invalidate
    }

    /// Room that the server may write into, once; `None` where nothing more can be registered.
    pub fn lend_room(&mut self, len_bytes: usize) -> Option<(RegionKey, BufferDescriptorV1)> {
        let access = Access {
            remote_write: true,
            remote_read: false,
            remote_invalidate: true,
            // The answer says how much of it the server wrote.
            unspecified_content: true,
        };
        let key = self.provider.register_room(len_bytes, access, self.pair).ok()?;
        Some((key, self.describe(key, len_bytes)))
    }

    /// Bytes that the server may read; `None` where nothing more can be registered.
    pub fn lend(&mut self, bytes: Buf) -> Option<(RegionKey, BufferDescriptorV1)> {
        let len_bytes = bytes.len();
        let key = self.provider.register_shared(bytes, self.pair).ok()?;
        Some((key, self.describe(key, len_bytes)))
    }

    /// Ends a loan, whether or not the server ended it before; room comes back with what the server wrote.
    pub fn take_back(&mut self, key: RegionKey) -> Option<BufMut> {
        self.provider.deregister(key)
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        let timeouts = [self.provider.next_timeout(), self.smbd.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    pub fn poll(&mut self, now: Monotonic) {
        let mut came = false;
        // While this thread slept others had the processor's cache.
        sys::prefetch(&self.smbd);
        loop {
            let may_send = self.is_established && self.failure.is_none();
            let posted = may_send && self.drive();
            if came && !posted && !self.provider.wants_poll() {
                return;
            }
            let mut events = std::mem::take(&mut self.events);
            self.provider.poll(now, &mut events);
            came = false;
            for event in events.drain(..) {
                came |= self.handle(event, now);
            }
            self.events = events;
            if self.smbd.poll_timeout().is_some_and(|at| at <= now) {
                self.smbd.handle_timeout(now);
                came = true;
            }
            if !came {
                return;
            }
        }
    }

    /// Whether MS-SMBD may have something to say to it.
    fn handle(&mut self, event: Event, now: Monotonic) -> bool {
        match event {
            Event::Established { .. } => self.established(),
            Event::Completion(done) if done.kind == CompletionKind::Receive => {
                if let (Status::Success, Some(buffer)) = (done.status, done.buffer) {
                    self.messages.extend(self.smbd.handle_receive(buffer, now));
                }
            }
            Event::Disconnected { reason, .. } => {
                // What came before is heard before.
                self.negotiated();
                self.smbd.handle_disconnected();
                self.failure.get_or_insert(ClientError::Rdma(reason.to_string()));
            }
            Event::Completion(_) | Event::ConnectRequest { .. } => return false,
        }
        true
    }

    fn established(&mut self) {
        if let Some(wanted) = &self.wanted
            && let Some(device) = self.provider.device_name(self.pair)
            && *wanted != device
        {
            let words = format!("the server is reached by the RDMA device {device}, not by {wanted}");
            self.failure.get_or_insert(ClientError::Rdma(words));
            return self.provider.disconnect(self.pair);
        }
        self.is_established = true;
        self.may_invalidate = self.provider.info(self.pair).is_some_and(|info| info.remote_invalidation);
    }

    /// What MS-SMBD says.
    fn negotiated(&mut self) {
        'events: while let Some(event) = self.smbd.poll_event() {
            match event {
                smbdirect::Event::PostReceives(count) => {
                    for _ in 0..count {
                        // Where it is closed, its last event says so.
                        if self.provider.post_receive(self.pair, WorkId(0), self.receive_bytes).is_err() {
                            continue 'events;
                        }
                    }
                    self.smbd.receives_posted(count);
                }
                smbdirect::Event::Closed(reason) => {
                    self.failure.get_or_insert(ClientError::Rdma(reason.to_string()));
                    self.provider.disconnect(self.pair);
                }
                smbdirect::Event::Established => {}
            }
        }
    }

    /// Posts what may leave; whether that is anything.
    fn drive(&mut self) -> bool {
        self.negotiated();
        let mut posted = false;
        while let Some(out) = self.smbd.poll_transmit() {
            let invalidate = out.invalidate.map(RegionKey);
            let sent =
                self.provider.post_send_with_head(self.pair, WorkId(0), &out.head, out.payload, invalidate);
            if sent.is_err() {
                return posted;
            }
            posted = true;
        }
        posted
    }

    pub fn receive(&mut self) -> Result<Option<Buf>, ClientError> {
        if let Some(message) = self.messages.pop_front() {
            return Ok(Some(message));
        }
        if self.failure.is_none() {
            return Ok(None);
        }
        let gone = ClientError::Rdma("closed".into());
        Err(self.failure.replace(gone).unwrap_or(ClientError::Protocol("closed")))
    }
}
