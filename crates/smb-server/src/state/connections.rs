//! Connections (MS-SMB2 3.3.1.7): the state of each, and the messages that each has to transmit.

use super::arena::Arena;
use super::budget::{HolderId, Memory};
use super::credits::CreditWindow;
pub use super::keys::ConnectionId;
use super::keys::SessionKey;
use super::waiting::Waiting;
use crate::config::Limits;
use smallvec::SmallVec;
use smb::crypto::{CipherId, PreauthHash, SigningAlgorithm};
use smb::wire::{BufferDescriptorV1, Capabilities, Dialect, Guid, SecurityMode};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use sys::Payload;
use types::{Monotonic, PeerHost};

/// Carrier of a connection's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Direct TCP (MS-SMB2 2.1).
    Tcp,
    /// SMB Direct over RDMA (MS-SMBD).
    SmbDirect,
}

/// Origin of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionInfo {
    /// Address and port of the client.
    pub peer: SocketAddr,
    /// Address and port at which the server took the connection.
    pub local: SocketAddr,
    /// Carrier of the connection's messages.
    pub transport: Transport,
}

/// Next work of a transport for a connection, in order.
#[derive(Debug)]
pub enum Outgoing {
    /// `invalidate`: the client's registration that ends with it; SMB Direct only.
    Message { payload: Payload, invalidate: Option<u32> },
    /// Goes into the client's memory before the next message. SMB Direct only.
    RemoteWrite { payload: Payload, descriptors: Vec<BufferDescriptorV1> },
    /// Is answered by [`crate::Server::remote_read`]. SMB Direct only.
    RemoteRead { token: u64, len_bytes: usize, descriptors: Vec<BufferDescriptorV1> },
}

impl Outgoing {
    /// Payload that it keeps in memory.
    #[inline]
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Self::Message { payload, .. } | Self::RemoteWrite { payload, .. } => payload.len(),
            Self::RemoteRead { .. } => 0,
        }
    }
}

/// How far negotiation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Negotiation {
    /// Nothing has come yet.
    Nothing,
    /// An SMB1 NEGOTIATE was answered with the wildcard dialect: one of SMB2 must follow.
    Wildcard,
    Done(Dialect),
}

/// Protection that payload by RDMA may have (MS-SMB2 3.3.1.7 RDMATransformIds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RdmaTransforms {
    pub encryption: bool,
    pub signing: bool,
}

pub(crate) struct Connection {
    pub info: ConnectionInfo,
    /// Rises from connection to connection.
    pub number: u64,
    pub negotiation: Negotiation,
    pub client_guid: Guid,
    pub client_capabilities: Capabilities,
    pub client_security_mode: SecurityMode,
    pub server_capabilities: Capabilities,
    pub server_security_mode: SecurityMode,
    pub preauth: PreauthHash,
    pub cipher: Option<CipherId>,
    pub signing: SigningAlgorithm,
    pub rdma_transforms: RdmaTransforms,
    pub window: CreditWindow,
    /// SESSION_SETUP exchanges begun on it since one ended well.
    pub setups_begun: u32,
    /// Sessions with a channel on this connection.
    pub sessions: SmallVec<[SessionKey; 2]>,
    transmit: VecDeque<Outgoing>,
    transmit_bytes: usize,
    /// Bytes of answers that the transport keeps.
    unsent_bytes: usize,
    /// Bytes of requests in work, except for those that got STATUS_PENDING.
    pub in_work_bytes: usize,
    /// Of these.
    pub parked_bytes: usize,
    /// Place of the connection's host, which is charged for its bytes.
    holder: HolderId,
    /// Requests in work.
    pub in_work: usize,
    pub waiting: Waiting,
    /// The time by which it has to carry a session.
    deadline: Monotonic,
    /// Nothing more is received; closed once all is sent.
    pub closing: bool,
}

impl Connection {
    fn new(info: ConnectionInfo, number: u64, credits: u16, deadline: Monotonic, holder: HolderId) -> Self {
        Self {
            info,
            number,
            negotiation: Negotiation::Nothing,
            client_guid: [0; 16],
            client_capabilities: Capabilities::empty(),
            client_security_mode: SecurityMode::empty(),
            server_capabilities: Capabilities::empty(),
            server_security_mode: SecurityMode::empty(),
            preauth: PreauthHash::default(),
            cipher: None,
            signing: SigningAlgorithm::HmacSha256,
            rdma_transforms: RdmaTransforms::default(),
            window: CreditWindow::new(credits),
            setups_begun: 0,
            sessions: SmallVec::new(),
            transmit: VecDeque::new(),
            transmit_bytes: 0,
            unsent_bytes: 0,
            in_work_bytes: 0,
            parked_bytes: 0,
            holder,
            in_work: 0,
            waiting: Waiting::default(),
            deadline,
            closing: false,
        }
    }

    /// `None` before negotiation.
    #[inline]
    pub fn dialect(&self) -> Option<Dialect> {
        match self.negotiation {
            Negotiation::Done(dialect) => Some(dialect),
            Negotiation::Nothing | Negotiation::Wildcard => None,
        }
    }

    /// Returns the place of the connection's host, which is charged for its bytes.
    #[inline]
    pub fn holder(&self) -> HolderId {
        self.holder
    }

    /// Bytes in work, and bytes that are not sent yet.
    #[inline]
    fn bytes_in_flight(&self) -> usize {
        self.in_work_bytes + self.transmit_bytes + self.unsent_bytes
    }

    /// Whether requests may carry more than 64 KiB and cost more than one credit.
    #[inline]
    pub fn large_mtu(&self) -> bool {
        self.server_capabilities.contains(Capabilities::LARGE_MTU)
    }
}

/// Bytes in flight of a connection without a session: its answers are small, and one at a time is enough.
const UNPROVEN_BYTES_IN_FLIGHT_MAX: usize = 64 << 10;
/// Headers, contexts and padding around the payload of a message. Before a logon nothing larger is sent: a SESSION_SETUP's token is some
/// KiB.
const MESSAGE_OVERHEAD_BYTES: usize = 64 << 10;

/// All connections. Invariants:
///
/// - Bytes that a connection has to transmit, and those that its transport could not send, are charged
///   to its host in [`Memory::in_work`].
/// - A connection with something to transmit is in `to_transmit`, or was handed out by [`Self::take_transmitters`] and is being emptied.
#[derive(Default)]
pub(crate) struct Connections {
    table: Arena<Connection>,
    /// Connections that have to carry a session by then.
    deadlines: BTreeSet<(Monotonic, u64)>,
    /// Connections that the transport has to close after it has sent everything.
    to_close: Vec<ConnectionId>,
    /// Connections that may have something to transmit.
    to_transmit: Vec<ConnectionId>,
}

impl Connections {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.table.iter().map(|(id, connection)| (ConnectionId(id), connection))
    }

    #[inline]
    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(id.0)
    }

    #[inline]
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(id.0)
    }

    #[inline]
    pub fn contains(&self, id: ConnectionId) -> bool {
        self.get(id).is_some()
    }

    /// Takes in a connection; `number` rises from one to the next.
    pub fn open(
        &mut self,
        info: ConnectionInfo,
        number: u64,
        limits: &Limits,
        memory: &mut Memory,
        now: Monotonic,
    ) -> ConnectionId {
        let deadline = now.after(limits.negotiation_timeout);
        let holder = memory.in_work.enter(&PeerHost::from(info.peer.ip()));
        let id = self.table.insert(Connection::new(info, number, limits.credits, deadline, holder));
        self.deadlines.insert((deadline, id));
        ConnectionId(id)
    }

    /// Removes a lost connection.
    pub fn remove(&mut self, id: ConnectionId, memory: &mut Memory) -> Option<Connection> {
        let gone = self.table.remove(id.0)?;
        self.deadlines.remove(&(gone.deadline, id.0));
        memory.in_work.release(gone.holder, gone.transmit_bytes + gone.unsent_bytes);
        memory.in_work.leave(gone.holder);
        Some(gone)
    }

    /// Receives nothing more from a connection, and has its transport close it.
    pub fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get_mut(id.0)
            && !connection.closing
        {
            connection.closing = true;
            self.to_close.push(id);
        }
    }

    /// Closes a connection that carries no session.
    pub fn close_idle(&mut self, id: ConnectionId) {
        if self.get(id).is_some_and(|found| found.sessions.is_empty()) {
            self.close(id);
        }
    }

    /// The session has a channel on this connection from now on.
    pub fn carry(&mut self, id: ConnectionId, session: SessionKey) {
        if let Some(connection) = self.table.get_mut(id.0) {
            connection.sessions.push(session);
        }
    }

    /// The session has ended.
    pub fn drop_session(&mut self, id: ConnectionId, session: SessionKey) {
        if let Some(connection) = self.table.get_mut(id.0) {
            connection.sessions.retain(|other| *other != session);
        }
    }

    /// Queues a message, or an RDMA transfer.
    #[inline]
    pub fn enqueue(&mut self, id: ConnectionId, outgoing: Outgoing, memory: &mut Memory) {
        let Some(found) = self.table.get_mut(id.0) else { return };
        found.transmit_bytes += outgoing.len_bytes();
        memory.in_work.take(found.holder, outgoing.len_bytes());
        if found.transmit.is_empty() {
            self.to_transmit.push(id);
        }
        found.transmit.push_back(outgoing);
    }

    /// Takes the first in the queue.
    #[inline]
    pub fn dequeue(&mut self, id: ConnectionId, memory: &mut Memory) -> Option<Outgoing> {
        let connection = self.table.get_mut(id.0)?;
        let outgoing = connection.transmit.pop_front()?;
        connection.transmit_bytes -= outgoing.len_bytes();
        memory.in_work.release(connection.holder, outgoing.len_bytes());
        Some(outgoing)
    }

    pub fn take_transmitters(&mut self, out: &mut Vec<ConnectionId>) {
        out.append(&mut self.to_transmit);
    }

    pub fn take_closing(&mut self, out: &mut Vec<ConnectionId>) {
        out.append(&mut self.to_close);
    }

    /// Whether more may be received from a connection: false while it has too much in work or unsent.
    #[inline]
    pub fn wants_messages(&self, id: ConnectionId, limits: &Limits, memory: &Memory) -> bool {
        self.get(id).is_some_and(|found| {
            let bytes_max = if found.sessions.is_empty() {
                UNPROVEN_BYTES_IN_FLIGHT_MAX
            } else {
                limits.bytes_in_flight_per_connection
            };
            !found.closing && found.bytes_in_flight() <= bytes_max && memory.in_work.has_room(found.holder)
        })
    }

    /// Counts the bytes that a transport could not send yet. Answers whether it kept some before.
    #[inline]
    pub fn set_unsent(&mut self, id: ConnectionId, bytes: usize, memory: &mut Memory) -> bool {
        let Some(found) = self.get_mut(id) else { return false };
        let before = std::mem::replace(&mut found.unsent_bytes, bytes);
        memory.in_work.take(found.holder, bytes);
        memory.in_work.release(found.holder, before);
        before > 0
    }

    /// Longest message in bytes that a connection may send now.
    #[inline]
    pub fn message_bytes_max(&self, id: ConnectionId, limits: &Limits) -> usize {
        let payload = limits.write_bytes.max(limits.transact_bytes) as usize;
        match self.get(id).is_some_and(|found| !found.sessions.is_empty()) {
            true => payload + MESSAGE_OVERHEAD_BYTES,
            false => MESSAGE_OVERHEAD_BYTES,
        }
    }

    /// The time at which [`Self::expire`] has something to do.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Closes the connections whose time has come and that carry no session.
    pub fn expire(&mut self, now: Monotonic) {
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            self.deadlines.pop_first();
            self.close_idle(ConnectionId(id));
        }
    }
}
