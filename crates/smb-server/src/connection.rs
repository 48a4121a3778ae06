//! What the server knows of one connection (MS-SMB2 3.3.1.7).

use crate::budget::HolderId;
use crate::credits::CreditWindow;
use crate::waiting::Waiting;
use smallvec::SmallVec;
use smb::crypto::{CipherId, PreauthHash, SigningAlgorithm};
use smb::wire::{BufferDescriptorV1, Capabilities, Dialect, Guid, SecurityMode};
use std::collections::VecDeque;
use std::net::SocketAddr;
use sys::Payload;
use types::Monotonic;

/// Names a connection for its life; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What carries a connection's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    SmbDirect,
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionInfo {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub transport: Transport,
}

/// What a transport has to do next for a connection, in order.
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

/// What payload that goes by RDMA may be protected by (MS-SMB2 3.3.1.7 RDMATransformIds).
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
    pub sessions: SmallVec<[u64; 2]>,
    pub transmit: VecDeque<Outgoing>,
    pub transmit_bytes: usize,
    /// What answers keep in the transport.
    pub unsent_bytes: usize,
    /// Of requests in work, but for those that were told STATUS_PENDING.
    pub in_work_bytes: usize,
    /// Of these.
    pub parked_bytes: usize,
    /// The connection's host, which its bytes are counted against.
    pub holder: HolderId,
    /// Requests in work.
    pub in_work: usize,
    pub waiting: Waiting,
    /// When it has to carry a session.
    pub deadline: Monotonic,
    /// Nothing more is received; closed once all is sent.
    pub closing: bool,
}

impl Connection {
    pub fn new(
        info: ConnectionInfo,
        number: u64,
        credits: u16,
        deadline: Monotonic,
        holder: HolderId,
    ) -> Self {
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
    pub fn dialect(&self) -> Option<Dialect> {
        match self.negotiation {
            Negotiation::Done(dialect) => Some(dialect),
            Negotiation::Nothing | Negotiation::Wildcard => None,
        }
    }

    /// Bytes in work, and unsent.
    pub fn bytes_in_flight(&self) -> usize {
        self.in_work_bytes + self.transmit_bytes + self.unsent_bytes
    }

    /// Whether requests may carry more than 64 KiB and cost more than one credit.
    pub fn large_mtu(&self) -> bool {
        self.server_capabilities.contains(Capabilities::LARGE_MTU)
    }
}
