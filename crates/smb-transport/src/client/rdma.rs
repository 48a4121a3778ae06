//! Messages and registered memory over one SMB Direct connection (MS-SMBD), on iWARP in software or on an RDMA device.
//!
//! Owns the connection's queue pair, its MS-SMBD state and the registrations that the server may reach.
//! Promises: only this connection's peer reaches memory registered for a request, and only until its
//! deregistration. Never reads a message.

use super::{LinkError, LinkOptions, MESSAGE_BYTES_MAX, Outgoing};
use crate::framing::HEADER_BYTES;
use ::rdma::ibverbs::{IbverbsOptions, IbverbsProvider};
use ::rdma::iwarp::{IwarpOptions, IwarpProvider, Shape, ShapeOf};
use ::rdma::{
    Access, CompletionKind, ConnectionInfo, Event, HEAD_BYTES_MAX, QueuePairId, RegionKey, Status, Verbs,
    WorkId,
};
use iwarp::CrcPolicy;
use smbdirect::{BufferDescriptor, Config, Connection};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use sys::driver::Driver;
use sys::{ALIGN_BYTES, Buf, BufMut, Payload, monotonic_now};
use types::Monotonic;

/// Header bytes that a message has beside its payload, at most.
const HEADERS_BYTES: u32 = 1024;

/// Messages and lent memory over one SMB Direct connection.
pub struct RdmaLink {
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
    failure: Option<LinkError>,
}

/// Parameters of MS-SMBD that both ends agreed on.
#[derive(Debug, Clone, Copy)]
pub struct Agreed {
    /// Length of a transfer to the server.
    pub send_bytes_max: u32,
    /// Length of a transfer from the server.
    pub receive_bytes_max: u32,
    /// Bytes that the server moves by RDMA for one request.
    pub read_write_bytes_max: u32,
    /// Transfers that may be sent now.
    pub send_credits: u16,
}

impl Drop for RdmaLink {
    fn drop(&mut self) {
        self.provider.disconnect(self.pair);
        self.provider.poll(monotonic_now(), &mut self.events);
    }
}

impl RdmaLink {
    /// Begins MPA over an established TCP connection; [`Self::is_ready`] says when it can carry messages.
    ///
    /// # Errors
    /// If the loop refuses the socket.
    pub fn by_software(driver: &Driver, stream: TcpStream, options: &LinkOptions) -> Result<Self, LinkError> {
        let crc = if options.crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked };
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
        let mut provider = IwarpProvider::new(driver, iwarp, ::rdma::random_names());
        let now = monotonic_now();
        let pair = provider.connect(stream, &[], now)?;
        let config = Config::default().receives_on_demand();
        Ok(Self::new(
            Box::new(provider),
            pair,
            None,
            Config { negotiate_timeout: options.timeout, ..config },
            now,
        ))
    }

    /// Connects by the device on the route to the address.
    ///
    /// # Errors
    /// If there is no such device, or it does not connect.
    pub fn by_device(driver: &Driver, address: SocketAddr, options: &LinkOptions) -> Result<Self, LinkError> {
        let ibverbs = IbverbsOptions { queue_pairs_max: 1, ..IbverbsOptions::default() };
        let mut provider = IbverbsProvider::new(driver, ibverbs).map_err(LinkError::Rdma)?;
        let now = monotonic_now();
        let pair = provider
            .connect(address, &[], now)
            .map_err(|error| LinkError::Rdma(format!("no RDMA device leads to {}: {error}", address.ip())))?;
        let config = Config { negotiate_timeout: options.timeout, ..Config::default() };
        Ok(Self::new(Box::new(provider), pair, options.device.clone(), config, now))
    }

    fn new(
        provider: Box<dyn Verbs>,
        pair: QueuePairId,
        wanted: Option<String>,
        config: Config,
        now: Monotonic,
    ) -> Self {
        // A signed or encrypted READ is answered in a message: the largest has to fit.
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

    /// Breaks the connection, as a network does.
    pub fn kill(&mut self) {
        self.provider.disconnect(self.pair);
    }

    /// Says whether MS-SMBD is negotiated.
    pub fn is_ready(&self) -> bool {
        self.smbd.is_established()
    }

    /// Says whether RDMA is up, on which MS-SMBD is negotiated. Stays so when it ends.
    pub fn is_connected(&self) -> bool {
        self.is_established
    }

    /// Gives the parameters of RDMA, while it is up.
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.provider.info(self.pair)
    }

    /// Gives the parameters of MS-SMBD, once it is negotiated.
    pub fn agreed(&self) -> Agreed {
        Agreed {
            send_bytes_max: self.smbd.send_bytes_max(),
            receive_bytes_max: self.smbd.receive_bytes_max(),
            read_write_bytes_max: self.smbd.read_write_bytes_max(),
            send_credits: self.smbd.send_credits(),
        }
    }

    /// Says whether FPDUs carry a CRC.
    pub fn has_crc(&self) -> bool {
        self.provider.info(self.pair).is_some_and(|info| info.crc)
    }

    /// Gives the counters of MS-SMBD.
    pub fn counters(&self) -> smbdirect::Counters {
        self.smbd.counters()
    }

    /// Gives the largest payload in bytes of a message to the server.
    pub fn inline_bytes_max(&self) -> u32 {
        self.smbd.fragmented_send_bytes_max().saturating_sub(HEADERS_BYTES)
    }

    /// Gives the largest WRITE in bytes that one transfer carries.
    pub fn transfer_bytes_max(&self) -> usize {
        (self.smbd.send_bytes_max() as usize).saturating_sub(smbdirect::WRITE_PAYLOAD_AT)
    }

    /// Returns the size in bytes of the largest READ answered in one transfer or, by a server with short
    /// transfers, in a few: whole pages.
    pub fn answer_bytes_max(&self) -> usize {
        let room = (self.smbd.transfer_in_bytes_max() as usize).saturating_sub(smbdirect::READ_PAYLOAD_AT);
        (room / ALIGN_BYTES * ALIGN_BYTES).max(ALIGN_BYTES)
    }

    /// Gives the most bytes that the server moves by RDMA for one request.
    pub fn remote_bytes_max(&self) -> u32 {
        self.smbd.read_write_bytes_max()
    }

    /// Sends a message, or queues it until the server grants credits.
    ///
    /// # Errors
    /// If it is longer than the server takes.
    pub fn send(&mut self, message: Outgoing) -> Result<(), LinkError> {
        if self.smbd.has_events() {
            // The message also grants receives for the messages that came.
            self.negotiated();
        }
        let head = message.head.get(HEADER_BYTES..).unwrap_or_default();
        let Some(transfer) = self.smbd.begin_transfer(head.len() + message.payload.len(), false) else {
            let mut payload = Payload::from(Buf::from(head));
            payload.append(message.payload);
            return self.smbd.send(payload, None).map_err(|error| LinkError::Rdma(error.to_string()));
        };
        // The headers of an operation on a file go as one, and need no buffer.
        let (mut front, len_bytes) = ([0; HEAD_BYTES_MAX], transfer.len() + head.len());
        // A closed queue pair reports that in its last event.
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

    fn describe(&self, key: RegionKey, len_bytes: usize) -> BufferDescriptor {
        let offset = self.provider.remote_offset(key);
        BufferDescriptor { offset, token: key.0, len_bytes: len_bytes as u32 }
    }

    /// Says whether the server may end a loan with its answer.
    pub fn may_invalidate(&self) -> bool {
        self.may_invalidate
    }

    /// Lends memory that the server may write into, once; `None` if nothing more can be registered.
    pub fn lend_room(&mut self, len_bytes: usize) -> Option<(RegionKey, BufferDescriptor)> {
        let access = Access {
            remote_write: true,
            remote_read: false,
            remote_invalidate: true,
            // The answer says how many bytes the server wrote.
            unspecified_content: true,
        };
        let key = self.provider.register_room(len_bytes, access, self.pair).ok()?;
        Some((key, self.describe(key, len_bytes)))
    }

    /// Lends bytes that the server may read; `None` if nothing more can be registered.
    pub fn lend(&mut self, bytes: Buf) -> Option<(RegionKey, BufferDescriptor)> {
        let len_bytes = bytes.len();
        let key = self.provider.register_shared(bytes, self.pair).ok()?;
        Some((key, self.describe(key, len_bytes)))
    }

    /// Ends a loan, whether or not the server ended it before. Returns the memory with the server's data.
    pub fn take_back(&mut self, key: RegionKey) -> Option<BufMut> {
        self.provider.deregister(key)
    }

    /// Says when [`Self::poll`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let timeouts = [self.provider.next_timeout(), self.smbd.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// Takes completions of the loop and hands it the queued messages.
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

    /// Handles an event. Returns whether MS-SMBD may have events for it.
    fn handle(&mut self, event: Event, now: Monotonic) -> bool {
        match event {
            Event::Established { .. } => self.established(),
            Event::Completion(done) if done.kind == CompletionKind::Receive => {
                if let (Status::Success, Some(buffer)) = (done.status, done.buffer) {
                    self.messages.extend(self.smbd.handle_receive(buffer, now));
                }
            }
            Event::Disconnected { reason, .. } => {
                // Messages received before come first.
                self.negotiated();
                self.smbd.handle_disconnected();
                self.failure.get_or_insert(LinkError::Rdma(reason.to_string()));
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
            self.failure.get_or_insert(LinkError::Rdma(words));
            return self.provider.disconnect(self.pair);
        }
        self.is_established = true;
        self.may_invalidate = self.provider.info(self.pair).is_some_and(|info| info.remote_invalidation);
    }

    /// Handles the events of MS-SMBD.
    fn negotiated(&mut self) {
        'events: while let Some(event) = self.smbd.poll_event() {
            match event {
                smbdirect::Event::PostReceives(count) => {
                    for _ in 0..count {
                        // A closed queue pair reports that in its last event.
                        if self.provider.post_receive(self.pair, WorkId(0), self.receive_bytes).is_err() {
                            continue 'events;
                        }
                    }
                    self.smbd.receives_posted(count);
                }
                smbdirect::Event::Closed(reason) => {
                    self.failure.get_or_insert(LinkError::Rdma(reason.to_string()));
                    self.provider.disconnect(self.pair);
                }
                smbdirect::Event::Established => {}
            }
        }
    }

    /// Posts the messages that may be sent. Returns whether there were any.
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

    /// Takes the next whole message.
    ///
    /// # Errors
    /// Why the link failed, once all messages received before are taken.
    pub fn receive(&mut self) -> Result<Option<Buf>, LinkError> {
        if let Some(message) = self.messages.pop_front() {
            return Ok(Some(message));
        }
        if self.failure.is_none() {
            return Ok(None);
        }
        let gone = LinkError::Rdma("closed".into());
        Err(self.failure.replace(gone).unwrap_or(LinkError::Rdma("closed".into())))
    }
}
