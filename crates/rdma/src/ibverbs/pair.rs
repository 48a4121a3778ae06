//! One connection: its way from request to end, and the connection manager's events about it.

use super::cm::{CmEvent, ConnectionId, Parameters};
use super::endpoint::{Endpoint, Limits};
use super::layout::*;
use super::library::Library;
use super::resources::Context;
use super::{
    ACCEPT_TIMEOUT, CHANNEL, CONNECT_TIMEOUT, FLUSH_TIMEOUT, IbverbsOptions, IbverbsProvider, LISTENER,
};
use crate::verbs::{Activity, CloseReason, CompletionKind, Event, QueuePairId, Transport, WorkId};
use rustix::event::epoll;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use types::Monotonic;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The peer asks; the owner has not answered.
    Requested,
    /// Accepted by the owner; the next `work` accepts the peer, which then has to confirm.
    Accepting,
    Accepted,
    Resolving,
    Routing,
    Connecting,
    Established,
}

pub(super) struct Pair {
    pub id: QueuePairId,
    pub state: State,
    pub deadline: Option<Monotonic>,
    pub endpoint: Option<Endpoint>,
    /// Dropped after the endpoint, as the endpoint's resources of its device must end before it.
    pub connection: ConnectionId,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub transport: Transport,
    pub inbound_read_depth: u8,
    pub outbound_read_depth: u8,
    /// Of the request or the answer that is to be sent.
    pub private_data: Vec<u8>,
    /// Posted before there was a queue pair.
    pub early_receives: Vec<(WorkId, usize)>,
    /// The connection is to end.
    pub closing: Option<CloseReason>,
    /// Something may be to be done for it.
    pub touched: bool,
    /// Completions may be in its queue.
    hot: bool,
    /// The peer, or the device, has ended it: nobody is to be waited for.
    over: bool,
}

const UNSPECIFIED: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

impl Pair {
    pub fn new(id: QueuePairId, connection: ConnectionId, state: State, deadline: Monotonic) -> Self {
        Self {
            id,
            state,
            deadline: Some(deadline),
            endpoint: None,
            connection,
            local: UNSPECIFIED,
            peer: UNSPECIFIED,
            transport: Transport::InfiniBand,
            inbound_read_depth: 0,
            outbound_read_depth: 0,
            private_data: Vec::new(),
            early_receives: Vec::new(),
            closing: None,
            touched: true,
            hot: false,
            over: false,
        }
    }

    /// Takes work.
    pub fn is_open(&self) -> bool {
        self.closing.is_none()
    }

    /// The first reason stays.
    pub fn end_with(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
        self.touched = true;
    }

    pub fn fail(&mut self, what: String) {
        self.end_with(CloseReason::Terminated(what));
    }

    pub fn notice(&mut self) {
        self.touched = true;
        self.hot = true;
        if let Some(endpoint) = &self.endpoint
            && let Err(error) = endpoint.completions.arm()
        {
            self.fail(format!("the completion channel failed: {error}"));
        }
    }

    pub fn time_out(&mut self) {
        self.deadline = None;
        match self.state {
            State::Requested => {
                let _ = self.connection.reject(&[]);
                self.end_with(CloseReason::TimedOut);
            }
            // The device flushed work, and nobody said why.
            State::Established => self.end_with(CloseReason::Network(io::ErrorKind::ConnectionAborted)),
            _ => self.end_with(CloseReason::TimedOut),
        }
    }

    /// Makes the queue pair, on the device that the connection is bound to.
    pub fn open(&mut self, library: &'static Library, options: &IbverbsOptions) -> io::Result<()> {
        let context = self.connection.context().ok_or(io::ErrorKind::NotConnected)?;
        self.transport = transport(library, context);
        let attributes = context.attributes(library)?;
        let depths = (options.inbound_read_depth, options.outbound_read_depth);
        let mut limits = Limits::new(&attributes, depths);
        if self.state == State::Accepting {
            // The peer's request is the most that can be agreed.
            limits.inbound_read_depth = limits.inbound_read_depth.min(self.inbound_read_depth);
            limits.outbound_read_depth = limits.outbound_read_depth.min(self.outbound_read_depth);
        }
        self.inbound_read_depth = limits.inbound_read_depth;
        self.outbound_read_depth = limits.outbound_read_depth;
        self.local = self.connection.local_address().unwrap_or(self.local);
        let endpoint = Endpoint::new(library, self.id, &mut self.connection, context, limits)?;
        let endpoint = self.endpoint.insert(endpoint);
        for (id, len_bytes) in std::mem::take(&mut self.early_receives) {
            endpoint.post_receive(&self.connection, id, len_bytes)?;
        }
        Ok(())
    }

    fn connect(&mut self) -> io::Result<()> {
        self.connection.connect(&Parameters {
            private_data: &self.private_data,
            responder_resources: self.inbound_read_depth,
            initiator_depth: self.outbound_read_depth,
        })
    }

    fn accept(&mut self) -> io::Result<()> {
        self.connection.accept(&Parameters {
            private_data: &self.private_data,
            responder_resources: self.inbound_read_depth,
            initiator_depth: self.outbound_read_depth,
        })
    }

    /// Accepts if that is to be done, takes completions, posts what waited for space.
    pub fn work(&mut self, now: Monotonic, out: &mut Vec<Event>) {
        if self.state == State::Accepting && self.closing.is_none() {
            self.state = State::Accepted;
            if let Err(error) = self.accept() {
                self.fail(format!("the connection cannot be accepted: {error}"));
            }
        }
        // Completions are reported after the connection, even if the message was faster.
        if self.state != State::Established || !self.hot {
            return;
        }
        let Some(endpoint) = self.endpoint.as_mut() else { return };
        let result = endpoint.poll(out).and_then(|more| {
            endpoint.post_waiting(&self.connection)?;
            Ok(more)
        });
        match result {
            Ok(more) => {
                self.hot = more;
                self.touched |= more;
            }
            Err(error) => self.closing = Some(CloseReason::Terminated(format!("the device failed: {error}"))),
        }
        if let Some((what, by_peer)) = endpoint.fault() {
            let reason = if *by_peer {
                CloseReason::TerminatedByPeer(what.clone())
            } else {
                CloseReason::Terminated(what.clone())
            };
            self.closing.get_or_insert(reason);
        } else if endpoint.is_flushed() && self.deadline.is_none() {
            self.deadline = Some(now.after(FLUSH_TIMEOUT));
        }
    }

    /// Ends the queue pair: completed work is reported, the rest is flushed. Returns the traffic that it
    /// carried.
    pub fn end(&mut self, out: &mut Vec<Event>) -> Activity {
        if let Some(endpoint) = self.endpoint.as_mut()
            && self.state == State::Established
        {
            while endpoint.poll(out).unwrap_or(false) {}
        }
        self.connection.destroy_queue_pair();
        let mut activity = Activity::default();
        if let Some(mut endpoint) = self.endpoint.take() {
            endpoint.flush(out);
            activity = endpoint.activity;
        }
        for (id, _) in self.early_receives.drain(..) {
            let (queue_pair, kind) = (self.id, CompletionKind::Receive);
            out.push(Event::Completion(super::endpoint::flushed(queue_pair, id, kind)));
        }
        activity
    }

    /// The identifier, and whether the peer ended the connection.
    pub fn into_connection(self) -> (ConnectionId, bool) {
        (self.connection, self.over)
    }

    fn established(&mut self, event: CmEvent) -> Option<Event> {
        match self.state {
            State::Connecting => {
                // The peer may have agreed to fewer reads than it was asked for.
                self.outbound_read_depth = self.outbound_read_depth.min(event.initiator_depth);
                self.inbound_read_depth = self.inbound_read_depth.min(event.responder_resources);
            }
            State::Accepted => {}
            _ => return None,
        }
        self.state = State::Established;
        self.deadline = None;
        self.hot = true;
        self.touched = true;
        self.local = self.connection.local_address().unwrap_or(self.local);
        self.peer = self.connection.peer_address().unwrap_or(self.peer);
        Some(Event::Established { queue_pair: self.id, private_data: event.private_data })
    }
}

/// The transport of an open device.
pub(super) fn transport(library: &Library, context: Context) -> Transport {
    if context.transport_type() == IBV_TRANSPORT_IWARP {
        return Transport::Iwarp;
    }
    match context.port(library, 1) {
        Ok(port) if port.link_layer == IBV_LINK_LAYER_ETHERNET => Transport::RoCe,
        _ => Transport::InfiniBand,
    }
}

/// The error that an event carries.
fn network(status: i32) -> CloseReason {
    CloseReason::Network(match status {
        0 => io::ErrorKind::NotConnected,
        number => io::Error::from_raw_os_error(number.saturating_abs()).kind(),
    })
}

/// Why a request was refused. Over InfiniBand and RoCE the status is a reason of the connection manager (IBTA volume 1, 12.6.7.2), of
/// which 8 means that nobody listens. Over iWARP it is the error number of a connection that was there: if nobody listens, siw
/// does not even begin.
pub(super) fn refused(status: i32) -> CloseReason {
    const INVALID_SERVICE_ID: i32 = 8;
    if status == INVALID_SERVICE_ID {
        CloseReason::Network(io::ErrorKind::ConnectionRefused)
    } else {
        CloseReason::Rejected
    }
}

impl IbverbsProvider {
    /// Puts a connection's notices into the set.
    pub(super) fn watch(&mut self, id: QueuePairId) {
        let set = self.set.clone();
        let Some(pair) = self.pair_mut(id) else { return };
        let Some(endpoint) = &pair.endpoint else { return };
        let data = epoll::EventData::new_u64(id.0);
        if let Err(error) = epoll::add(&*set, &endpoint.completions, data, epoll::EventFlags::IN) {
            pair.fail(format!("its notices cannot be waited for: {error}"));
        }
    }

    /// One event of the connection manager.
    pub(super) fn handle(&mut self, mut event: CmEvent) {
        if let Some(connection) = event.request.take() {
            return self.requested(connection, event);
        }
        if event.name & LISTENER != 0 && event.name != CHANNEL {
            if event.kind == RDMA_CM_EVENT_DEVICE_REMOVAL
                && let Some(listener) = self.listeners.get_mut((event.name & !LISTENER) as usize)
            {
                *listener = None;
            }
            return;
        }
        let id = QueuePairId(event.name);
        if self.pair(id).is_none() {
            if matches!(
                event.kind,
                RDMA_CM_EVENT_DISCONNECTED | RDMA_CM_EVENT_DEVICE_REMOVAL | RDMA_CM_EVENT_TIMEWAIT_EXIT
            ) {
                self.lingering.retain(|(_, name, _)| *name != event.name);
            }
            return;
        }
        match event.kind {
            RDMA_CM_EVENT_ADDR_RESOLVED => self.advance(id, State::Resolving),
            RDMA_CM_EVENT_ROUTE_RESOLVED => self.advance(id, State::Routing),
            _ => {
                let Some(pair) = self.pair_mut(id) else { return };
                let told = pair.hear(event);
                self.pending.extend(told);
            }
        }
    }

    fn requested(&mut self, mut connection: ConnectionId, event: CmEvent) {
        // Too many: the end of the identifier rejects the peer.
        let Some((slot, id)) = self.name() else {
            let _ = connection.reject(&[]);
            self.activity.failed_connection_attempts += 1;
            return;
        };
        connection.set_name(id.0);
        let peer = connection.peer_address();
        let local = connection.local_address();
        let mut pair = Pair::new(id, connection, State::Requested, self.now.after(ACCEPT_TIMEOUT));
        pair.touched = false;
        pair.peer = peer.unwrap_or(pair.peer);
        pair.local = local.unwrap_or(pair.local);
        pair.inbound_read_depth = event.responder_resources;
        pair.outbound_read_depth = event.initiator_depth;
        let peer = pair.peer;
        self.insert(slot, pair);
        let private_data = event.private_data;
        self.pending.push(Event::ConnectRequest { queue_pair: id, peer, private_data });
    }

    /// The next step of a connection that is being made.
    fn advance(&mut self, id: QueuePairId, from: State) {
        let (library, options, now) = (self.library, self.options.clone(), self.now);
        let Some(pair) = self.pair_mut(id).filter(|pair| pair.state == from && pair.is_open()) else {
            return;
        };
        let result = if from == State::Resolving {
            pair.state = State::Routing;
            pair.connection.resolve_route()
        } else {
            pair.state = State::Connecting;
            pair.deadline = Some(now.after(CONNECT_TIMEOUT));
            pair.open(library, &options).and_then(|()| pair.connect())
        };
        if let Err(error) = result {
            pair.end_with(CloseReason::Network(error.kind()));
        }
        if from == State::Routing {
            self.watch(id);
        }
    }
}

impl Pair {
    /// Handles an event of the connection manager.
    fn hear(&mut self, event: CmEvent) -> Option<Event> {
        self.touched = true;
        match event.kind {
            RDMA_CM_EVENT_ESTABLISHED => return self.established(event),
            RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR | RDMA_CM_EVENT_CONNECT_ERROR => {
                self.end_with(network(event.status));
            }
            RDMA_CM_EVENT_UNREACHABLE => self.end_with(CloseReason::TimedOut),
            RDMA_CM_EVENT_REJECTED => self.end_with(refused(event.status)),
            RDMA_CM_EVENT_DISCONNECTED => {
                self.over = true;
                let reason = match event.status {
                    0 => CloseReason::Peer,
                    number => {
                        let error = io::Error::from_raw_os_error(number.saturating_abs());
                        CloseReason::TerminatedByPeer(error.to_string())
                    }
                };
                self.end_with(reason);
            }
            RDMA_CM_EVENT_DEVICE_REMOVAL => {
                self.over = true;
                self.fail("the RDMA device was removed".into());
            }
            _ => {}
        }
        None
    }
}
