//! One request in the view of commands: its message and context in, a step out.
//!
//! A command knows neither the others nor the path of its answer: it returns the next [`Step`] of its
//! request, with work of its own type if the request continues later.

use crate::state::connections::{ConnectionId, Connections};
use crate::state::keys::{OpenKey, SessionKey, VolumeSlot};
use crate::state::opens::Opens;
use crate::state::proof::Verified;
use crate::state::sessions::{Session, Sessions};
use smb::wire::{
    BufferDescriptorV1, Capabilities, Dialect, EmptyBody, FileId, HEADER_BYTES, HeaderFlags,
    OPLOCK_LEVEL_BATCH, OPLOCK_LEVEL_EXCLUSIVE, OPLOCK_LEVEL_II, OPLOCK_LEVEL_LEASE, OPLOCK_LEVEL_NONE, Put,
    READ_RESPONSE_DATA_OFFSET, ReadResponseBody, ResponseTo, WriteResponseBody, error_context, symlink_error,
};
use std::num::NonZeroU64;
use sys::{Buf, Payload};
use types::{Monotonic, NtStatus};
use volume::backend::{CacheGrant, Operation, OplockLevel, RefusalDetail};

/// One request within its message.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub whole: &'a Buf,
    pub start: usize,
    pub end: usize,
}

impl<'a> Element<'a> {
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        &self.whole[self.start..self.end]
    }
}

/// A request without its message: the client to answer, and the results of its checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub connection: ConnectionId,
    pub to: ResponseTo,
    pub credits_requested: u16,
    /// The session that the request names; there need not be such a one.
    pub session: Option<SessionKey>,
    pub tree_id: u32,
    /// The request's open, once found.
    pub open: Option<OpenKey>,
    /// The session whose key decrypted the request; the answer is encrypted with it. `None`: the request came in the clear.
    pub sealed_by: Option<SessionKey>,
    /// Proof of the key that may sign the answer. `None`: the answer goes unsigned.
    pub proof: Option<Verified>,
    /// The request's header claims a signature.
    pub claims_signature: bool,
    /// AsyncId that the client received with STATUS_PENDING.
    pub async_id: Option<NonZeroU64>,
    /// ChannelSequence of the request; zero before 3.0.
    pub channel_sequence: u16,
    /// Bytes of memory for the request: its own, or the payload that it reads or writes.
    pub bytes: usize,
    /// The client's RDMA registration that ends with the answer.
    pub invalidate: Option<u32>,
    /// The open counts it as outstanding (MS-SMB2 3.3.5.2.10).
    pub counted: bool,
    /// Time of receipt. `None`: it waits for another client, which does not reflect the server's speed.
    pub measured_since: Option<Monotonic>,
}

/// The part of an answer that follows its header.
pub(crate) enum Body {
    Bytes(Vec<u8>),
    Read(Payload),
    /// The number of bytes that went by RDMA.
    ReadRemote(u32),
    /// The same, with the RDMA transform of the bytes' encryption or signature (MS-SMB2 2.2.43).
    ReadTransformed(u32, Vec<u8>),
    Written(u32),
    /// SMB2 ERROR response with its ErrorContextCount and data, made by [`Body::error`].
    Error(u8, Vec<u8>),
}

impl Body {
    /// Bytes that it takes behind its header.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Read(payload) => READ_RESPONSE_DATA_OFFSET - HEADER_BYTES + payload.len(),
            // Not a byte more: cifs.ko takes the RDMA payload as read, and would find the rest in the next
            // message.
            Self::ReadRemote(_) => size_of::<ReadResponseBody>(),
            Self::ReadTransformed(_, transform) => size_of::<ReadResponseBody>() + transform.len(),
            Self::Written(_) => size_of::<WriteResponseBody>(),
            Self::Error(_, data) => 8 + data.len().max(1),
        }
    }

    #[inline]
    pub const fn no_error_data() -> Self {
        Self::Error(0, Vec::new())
    }

    /// Adds details to an error beside its status: in an ERROR Context from 3.1.1 on (MS-SMB2 2.2.2).
    pub fn error(dialect: Dialect, data: &[u8]) -> Self {
        if dialect >= Dialect::Smb311 {
            Self::Error(1, error_context(data))
        } else {
            Self::Error(0, data.to_vec())
        }
    }

    /// Passes a volume's details of a refusal on.
    ///
    /// # Errors
    /// IO_REPARSE_DATA_INVALID for a symbolic link that is none.
    pub fn of_refusal(dialect: Dialect, detail: RefusalDetail) -> Result<Self, NtStatus> {
        match detail {
            RefusalDetail::Symlink { reparse, unparsed_bytes } => {
                let data = symlink_error(&reparse, unparsed_bytes);
                let data = data.map_err(|_| NtStatus::IO_REPARSE_DATA_INVALID)?;
                Ok(Self::error(dialect, &data))
            }
            // Nodes of builds that know no ERROR Context read it, too.
            RefusalDetail::Bus(data) => Ok(Self::Error(0, data)),
        }
    }
}

/// The file of a related request that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainFile {
    None,
    Open(OpenKey),
    /// The CREATE that should have opened it failed.
    Failed(NtStatus),
}

/// Next step of a request. `W` is the work with which it continues after a wait.
pub(crate) enum Step<W> {
    Reply(NtStatus, Body),
    /// Waits for an operation of a volume.
    Submit {
        volume: VolumeSlot,
        operation: Operation,
        work: W,
    },
    /// Waits for something else.
    Park(W, Until),
    /// The client broke the protocol such that its connection has to end.
    Disconnect,
}

/// The event that a request waits for, if it is not its volume's answer.
pub(crate) enum Until {
    Time(Monotonic),
    /// The pipe has bytes to read. The client gets STATUS_PENDING.
    PipeSays,
    /// The request before it has been answered, of the same open's enumeration.
    Turn,
    /// The payload has been fetched out of the client's memory.
    Fetched {
        len_bytes: usize,
        descriptors: Vec<BufferDescriptorV1>,
    },
}

impl<W> Step<W> {
    pub fn ok(body: Vec<u8>) -> Self {
        Self::Reply(NtStatus::SUCCESS, Body::Bytes(body))
    }

    /// Makes an answer without content.
    pub fn empty() -> Self {
        let mut body = Vec::new();
        body.put(&EmptyBody::default());
        Self::ok(body)
    }

    /// The same step with its work as a work of another type.
    #[inline]
    pub fn map<V>(self, wrap: impl FnOnce(W) -> V) -> Step<V> {
        match self {
            Self::Reply(status, body) => Step::Reply(status, body),
            Self::Submit { volume, operation, work } => Step::Submit { volume, operation, work: wrap(work) },
            Self::Park(work, until) => Step::Park(wrap(work), until),
            Self::Disconnect => Step::Disconnect,
        }
    }
}

impl Context {
    /// The session that the request belongs to.
    #[inline]
    pub fn session<'a>(&self, sessions: &'a Sessions) -> Result<&'a Session, NtStatus> {
        self.session.and_then(|key| sessions.get(key)).ok_or(NtStatus::USER_SESSION_DELETED)
    }

    #[inline]
    pub fn session_mut<'a>(&self, sessions: &'a mut Sessions) -> Result<&'a mut Session, NtStatus> {
        self.session.and_then(|key| sessions.get_mut(key)).ok_or(NtStatus::USER_SESSION_DELETED)
    }

    #[inline]
    pub fn session_key(&self) -> Result<SessionKey, NtStatus> {
        self.session.ok_or(NtStatus::USER_SESSION_DELETED)
    }

    /// Returns the request's open.
    #[inline]
    pub fn open_key(&self) -> Result<OpenKey, NtStatus> {
        self.open.ok_or(NtStatus::FILE_CLOSED)
    }

    /// The dialect of the request's connection; the lowest if it has none yet.
    #[inline]
    pub fn dialect(&self, connections: &Connections) -> Dialect {
        let found = connections.get(self.connection);
        found.and_then(|connection| connection.dialect()).unwrap_or(Dialect::Smb202)
    }

    /// Returns the server's capabilities that the connection negotiated.
    pub fn server_capabilities(&self, connections: &Connections) -> Capabilities {
        connections.get(self.connection).map(|found| found.server_capabilities).unwrap_or_default()
    }

    /// Finds the open that `id` names, in a request that may be related to one before it (MS-SMB2 3.3.5.2.7.2).
    #[inline]
    pub fn find_open(
        &mut self,
        opens: &Opens,
        related_file: ChainFile,
        id: FileId,
    ) -> Result<OpenKey, NtStatus> {
        let related = self.to.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        let named = || OpenKey::from_number(id.volatile.get()).ok_or(NtStatus::FILE_CLOSED);
        let key = match related_file {
            ChainFile::Open(key) if related && id == FileId::RELATED => key,
            ChainFile::Failed(status) if related => return Err(status),
            _ => named()?,
        };
        let open = opens.get(key)?;
        let by_name = !(related && id == FileId::RELATED);
        if open.closing
            || Some(open.session) != self.session
            || open.tree_id != self.tree_id
            || by_name && open.persistent != id.persistent.get()
        {
            return Err(NtStatus::FILE_CLOSED);
        }
        self.open = Some(key);
        Ok(key)
    }

    /// Checks that the larger of sent and requested bytes is at most `bytes_max`, and that the credits paid
    /// cover it (MS-SMB2 3.3.5.2.5).
    #[inline]
    pub fn check_size(
        &self,
        connections: &Connections,
        bytes: usize,
        bytes_max: u32,
    ) -> Result<(), NtStatus> {
        /// Payload in bytes that one credit pays for.
        const BYTES_PER_CREDIT: usize = 64 << 10;
        let found = connections.get(self.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let paid = if found.large_mtu() { usize::from(self.to.credit_charge.max(1)) } else { 1 };
        if bytes > bytes_max as usize || bytes > paid * BYTES_PER_CREDIT {
            Err(NtStatus::INVALID_PARAMETER)
        } else {
            Ok(())
        }
    }

    /// Checks the ChannelSequence of a request, and counts it as outstanding (MS-SMB2 3.3.5.2.10).
    #[inline]
    pub fn check_channel_sequence(
        &mut self,
        connections: &Connections,
        opens: &mut Opens,
        key: OpenKey,
        modifies: bool,
    ) -> Result<(), NtStatus> {
        if self.dialect(connections) < Dialect::Smb300 {
            return Ok(());
        }
        let is_replay = self.to.flags.contains(HeaderFlags::REPLAY_OPERATION);
        self.counted |= opens.get_mut(key)?.begin_outstanding(self.channel_sequence, is_replay, modifies)?;
        Ok(())
    }
}

/// Returns the wire's number for a granted oplock or lease.
pub(crate) fn wire_oplock_level(grant: &CacheGrant) -> u8 {
    match grant {
        CacheGrant::Lease { .. } => OPLOCK_LEVEL_LEASE,
        CacheGrant::Oplock(OplockLevel::None) => OPLOCK_LEVEL_NONE,
        CacheGrant::Oplock(OplockLevel::LevelII) => OPLOCK_LEVEL_II,
        CacheGrant::Oplock(OplockLevel::Exclusive) => OPLOCK_LEVEL_EXCLUSIVE,
        CacheGrant::Oplock(OplockLevel::Batch) => OPLOCK_LEVEL_BATCH,
    }
}
