//! The interface that providers share, in the words of verbs and of the RDMA connection manager.

pub use ::iwarp::Access;
pub use ::iwarp::connection::HEAD_BYTES_MAX;

use std::io;
use std::net::SocketAddr;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

/// A connection and its two work queues; never used again after its end. The low half is its place in its provider's table, which others take
/// over; bit 62 says that it is a device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePairId(pub u64);

impl QueuePairId {
    const BY_DEVICE: u64 = 1 << 62;

    /// Returns the place in the provider's table.
    #[inline]
    pub const fn slot(self) -> usize {
        self.0 as u32 as usize
    }

    #[inline]
    pub const fn is_by_device(self) -> bool {
        self.0 & Self::BY_DEVICE != 0
    }

    /// A device's connection of this name, among those of the software.
    pub(crate) const fn by_device(self) -> Self {
        Self(self.0 | Self::BY_DEVICE)
    }

    /// The name by which its provider knows it.
    pub(crate) const fn of_provider(self) -> Self {
        Self(self.0 & !Self::BY_DEVICE)
    }
}

/// Names a registration: STag or R_Key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionKey(pub u32);

/// Chosen by the owner of a queue pair, given back with the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Iwarp,
    RoCe,
    InfiniBand,
}

/// Facts about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionInfo {
    pub transport: Transport,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// RDMA Reads that may be outstanding; 0: the peer serves none.
    pub outbound_read_depth: u16,
    /// RDMA Reads of the peer that are served at a time.
    pub inbound_read_depth: u16,
    /// iWARP in software: CRC is on.
    pub crc: bool,
    /// A Send with Invalidate of the peer may end our registrations: they can be offered to it so.
    pub remote_invalidation: bool,
    /// Receives take memory only when messages come, and only as much: they may be large.
    pub receives_on_demand: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    Send,
    Write,
    Read,
    Receive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Success,
    /// The connection ended before it was done.
    Flushed,
    /// A message was longer than the receive that took it.
    LocalLength,
    /// The sink of a read is not registered as it has to be.
    LocalProtection,
    /// The peer registered no such memory, or not for this.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The peer did not answer, or had no receive posted for too long.
    RetriesExceeded,
    /// Anything else that a device says; `ibv_wc_status` names it.
    Failed(u32),
}

#[derive(Debug)]
pub struct Completion {
    pub queue_pair: QueuePairId,
    pub id: WorkId,
    pub kind: CompletionKind,
    pub status: Status,
    /// Bytes of this work; if its provider joins Sends and Writes, of all since the last completion of one.
    pub len_bytes: usize,
    /// The bytes of a received message.
    pub buffer: Option<Buf>,
    /// Our registration that the peer ended with this message.
    pub invalidated: Option<RegionKey>,
}

/// Work of a provider since its start: the counters that Windows names "RDMA Activity".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Requests of peers that this end took.
    pub accepted_connections: u64,
    pub initiated_connections: u64,
    /// Established at this moment.
    pub active_connections: u64,
    /// Established connections that ended by an error.
    pub connection_errors: u64,
    /// Connections that ended before they were established.
    pub failed_connection_attempts: u64,
    /// Of reads and atomics whose sink was not registered as it has to be.
    pub completion_queue_errors: u64,
    pub inbound_bytes: u64,
    pub outbound_bytes: u64,
    /// FPDUs or packets.
    pub inbound_frames: u64,
    pub outbound_frames: u64,
}

impl std::ops::AddAssign for Activity {
    fn add_assign(&mut self, other: Self) {
        self.accepted_connections += other.accepted_connections;
        self.initiated_connections += other.initiated_connections;
        self.active_connections += other.active_connections;
        self.connection_errors += other.connection_errors;
        self.failed_connection_attempts += other.failed_connection_attempts;
        self.completion_queue_errors += other.completion_queue_errors;
        self.inbound_bytes += other.inbound_bytes;
        self.outbound_bytes += other.outbound_bytes;
        self.inbound_frames += other.inbound_frames;
        self.outbound_frames += other.outbound_frames;
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("closed here")]
    Local,
    #[error("closed by the peer")]
    Peer,
    #[error("refused by the peer")]
    Rejected,
    #[error("terminated here: {0}")]
    Terminated(String),
    #[error("terminated by the peer: {0}")]
    TerminatedByPeer(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("network: {0}")]
    Network(io::ErrorKind),
}

impl CloseReason {
    /// Neither end wished it.
    pub const fn is_error(&self) -> bool {
        matches!(self, Self::Terminated(_) | Self::TerminatedByPeer(_) | Self::TimedOut | Self::Network(_))
    }
}

#[derive(Debug)]
pub enum Event {
    /// Somebody wants to connect: answer with `accept` or `reject` within five seconds.
    ConnectRequest {
        queue_pair: QueuePairId,
        peer: SocketAddr,
        private_data: Vec<u8>,
    },
    Established {
        queue_pair: QueuePairId,
        private_data: Vec<u8>,
    },
    Completion(Completion),
    /// The last event of its name; all work has completed.
    Disconnected {
        queue_pair: QueuePairId,
        reason: CloseReason,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    #[error("no such connection, or it is closed")]
    Closed,
    #[error("the peer serves no RDMA reads")]
    NoReadDepth,
    #[error("longer than one message may be")]
    TooLong,
}

/// Why memory is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("no such connection, or it is closed")]
    Closed,
    #[error("the device registers no more memory ({0}); see LimitMEMLOCK and the device's limits")]
    Refused(io::ErrorKind),
}

/// A provider: work in, events out. Nothing blocks; the owner lends the time.
pub trait Verbs {
    fn accept(&mut self, queue_pair: QueuePairId, private_data: &[u8]) -> Result<(), PostError>;
    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]);
    /// Ends the connection; its work is flushed.
    fn disconnect(&mut self, queue_pair: QueuePairId);
    fn info(&self, queue_pair: QueuePairId) -> Option<ConnectionInfo>;
    /// The device that carries the connection, as the system calls it; none for software.
    fn device_name(&self, _queue_pair: QueuePairId) -> Option<String> {
        None
    }

    /// Registers bytes that only the peer of this connection may write, or that our reads fill.
    ///
    /// # Errors
    /// If the connection has ended, or a device refuses; the bytes are lost.
    fn register(
        &mut self,
        bytes: BufMut,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError>;
    /// As [`Self::register`], with memory without content: a provider that moves the bytes itself allocates
    /// it only when the first byte is placed.
    ///
    /// # Errors
    /// As [`Self::register`].
    fn register_room(
        &mut self,
        len_bytes: usize,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        self.register(BufMut::for_overwrite(len_bytes), access, queue_pair)
    }
    /// Registers bytes that are only read.
    ///
    /// # Errors
    /// As [`Self::register`].
    fn register_shared(&mut self, bytes: Buf, queue_pair: QueuePairId) -> Result<RegionKey, RegisterError>;
    /// How the peer addresses the first byte of a registration; the bytes after it follow.
    fn remote_offset(&self, key: RegionKey) -> u64;
    /// Ends a registration; gives writable bytes back. `None` also if there is no such registration.
    fn deregister(&mut self, key: RegionKey) -> Option<BufMut>;

    /// Posts memory for one message of at most `len_bytes`; its completion brings the buffer.
    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        len_bytes: usize,
    ) -> Result<(), PostError>;
    /// Messages may have this length from now on, and no longer than their receives. A provider whose receives have their memory when they are
    /// posted does nothing.
    fn set_receive_bytes_max(&mut self, _queue_pair: QueuePairId, _bytes: usize) {}
    /// `invalidate`: a registration of the peer that ends with this message.
    fn post_send(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError>;
    /// As [`Self::post_send`], with up to [`HEAD_BYTES_MAX`] bytes before the payload, which are copied. A provider that puts headers of its own before a message saves a
    /// buffer by it.
    fn post_send_with_head(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        head: &[u8],
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError> {
        let mut whole = Payload::new();
        whole.push(Buf::from(head));
        whole.append(payload);
        self.post_send(queue_pair, id, whole, invalidate)
    }
    /// Writes into the peer's registration; complete means sent.
    fn post_write(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError>;
    /// Reads the peer's registration into ours, from `sink`'s offset on.
    fn post_read(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        sink: (RegionKey, u64),
        len_bytes: u32,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError>;

    /// Moves what happened into `out`, and work onto the wire.
    fn poll(&mut self, now: Monotonic, out: &mut Vec<Event>);
    /// Names connections whose memory of messages that have not come whole has changed, with that memory in bytes, in the order of the changes.
    /// Only a provider that takes memory as messages come names any.
    fn take_unfinished(&mut self, _out: &mut Vec<(QueuePairId, usize)>) {}
    /// Work was posted since the last `poll`, which alone sends it; `false` if posting does.
    fn wants_poll(&self) -> bool {
        false
    }
    /// Returns the counters; those that a provider does not have are zero.
    fn activity(&self) -> Activity {
        Activity::default()
    }
    /// When `poll` wants to be called at the latest.
    fn next_timeout(&self) -> Option<Monotonic>;
}
