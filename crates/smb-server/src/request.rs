//! A request in work: whom to answer, and how to go on when the volume has answered.

use crate::budget::Charge;
use crate::ioctl::IoctlWork;
use crate::proof::Verified;
use crate::query_info::QueryInfoWork;
use smallvec::SmallVec;
use smb::wire::{
    FileId, HEADER_BYTES, Header, HeaderFlags, READ_RESPONSE_DATA_OFFSET, ReadResponseBody, ResponseTo,
    WriteResponseBody,
};
use sys::{Buf, Payload};
use types::{Monotonic, NtStatus};
use volume::backend::Operation;

/// Whom to answer, and what the request was allowed to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub connection: u64,
    pub to: ResponseTo,
    pub credits_requested: u16,
    /// Zero where there is none.
    pub session: u64,
    pub tree_id: u32,
    /// Zero where there is none.
    pub open: u64,
    /// The session whose key decrypted the request; the answer is encrypted with it. Zero: it came in the clear.
    pub sealed_by: u64,
    /// Proof of the key that may sign the answer. `None`: the answer goes unsigned.
    pub proof: Option<Verified>,
    /// The request says that it is signed.
    pub claims_signature: bool,
    /// Set once the client was told STATUS_PENDING.
    pub async_id: u64,
    /// ChannelSequence of the request; zero before 3.0.
    pub channel_sequence: u16,
    /// Bytes of memory that it takes: its own, or the payload that it asks for or brings.
    pub bytes: usize,
    /// The client's registration that ends with the answer.
    pub invalidate: Option<u32>,
    /// The open counts it as outstanding (MS-SMB2 3.3.5.2.10).
    pub counted: bool,
}

/// What the header of the answer is followed by.
pub(crate) enum Body {
    Bytes(Vec<u8>),
    Read(Payload),
    /// So many bytes went by RDMA.
    ReadRemote(u32),
    /// As that; with how they are encrypted or signed (MS-SMB2 2.2.43).
    ReadTransformed(u32, Vec<u8>),
    Written(u32),
    /// SMB2 ERROR response with its ErrorContextCount and data.
    Error(u8, Vec<u8>),
}

impl Body {
    /// Bytes that it takes behind its header.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Read(payload) => READ_RESPONSE_DATA_OFFSET - HEADER_BYTES + payload.len(),
            // Not a byte more: cifs.ko takes a payload that went by RDMA for read, and would meet what is left in the next message.
            Self::ReadRemote(_) => size_of::<ReadResponseBody>(),
            Self::ReadTransformed(_, transform) => size_of::<ReadResponseBody>() + transform.len(),
            Self::Written(_) => size_of::<WriteResponseBody>(),
            Self::Error(_, data) => 8 + data.len().max(1),
        }
    }

    pub const fn no_error_data() -> Self {
        Self::Error(0, Vec::new())
    }
}

/// What the preauthentication integrity hash has to take in of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashed {
    No,
    Connection,
    /// The setup of this session on this connection.
    Setup(u64),
}

/// An answer that waits for those it is compounded with.
pub(crate) struct Response {
    pub header: Header,
    pub body: Body,
    /// Which key signs it; `None`: none may.
    pub proof: Option<Verified>,
    /// The session that ends when this has been sent: the answer to its LOGOFF still needs its keys. Zero: none.
    pub ends_session: u64,
    pub hashed: Hashed,
    /// The client's registration that ends with it.
    pub invalidate: Option<u32>,
}

/// What becomes of a request next.
pub(crate) enum Step {
    Reply(NtStatus, Body),
    Submit {
        volume: usize,
        operation: Operation,
        work: Work,
    },
    /// Waits for something else than a volume.
    Park(Work),
    /// The client broke the protocol such that its connection has to end.
    Disconnect,
}

impl Step {
    pub fn ok(body: Vec<u8>) -> Self {
        Self::Reply(NtStatus::SUCCESS, Body::Bytes(body))
    }
}

/// How to go on when what a request waits for has come.
pub(crate) enum Work {
    TreeConnect(Box<crate::tree::TreeConnectWork>),
    Create(Box<crate::create::CreateWork>),
    Close {
        query: bool,
    },
    Flush,
    Read {
        minimum: u32,
        length: u32,
        offset: u64,
    },
    Write {
        length: u32,
    },
    /// READ whose payload goes into the client's memory.
    ReadRemote {
        minimum: u32,
        length: u32,
        offset: u64,
        memory: Box<crate::remote::RemoteMemory>,
    },
    /// WRITE whose payload comes out of the client's memory.
    WriteRemote(Box<crate::remote::RemoteWriteWork>),
    /// Answers `then` where it succeeds: what followed was wrong.
    Lock {
        then: Option<NtStatus>,
    },
    QueryDirectory(Box<crate::query_directory::QueryDirectoryWork>),
    /// Another request of the enumeration is being worked on.
    QueryDirectoryQueued(Box<crate::query_directory::QueryDirectoryWork>),
    Notify {
        bytes_max: usize,
    },
    QueryInfo(QueryInfoWork),
    SetInfo,
    Ioctl(IoctlWork),
    BreakAcknowledgment {
        file_id: FileId,
    },
    LeaseAcknowledgment,
    /// Answers with this status at this time: a failed logon is answered late.
    Delayed {
        until: Monotonic,
        status: NtStatus,
    },
    /// A logon whose password is not looked at before a time.
    HeldLogon(Box<crate::logon::HeldLogon>),
    /// READ of a pipe that has nothing to say yet.
    PipeRead {
        length: u32,
    },
    /// It was cancelled here, and is answered with this once the volume has let go of it.
    Refused(NtStatus),
}

impl Work {
    /// When it goes on by itself.
    pub fn due(&self) -> Option<Monotonic> {
        match self {
            Self::Delayed { until, .. } => Some(*until),
            Self::HeldLogon(held) => Some(held.due),
            _ => None,
        }
    }
}

/// The rest of a compound (MS-SMB2 3.3.5.2.7) and what its elements share.
pub(crate) struct Chain {
    pub message: Buf,
    /// Where the next element starts; the message's length at its end.
    pub at: usize,
    pub sealed_by: u64,
    pub first: bool,
    /// Elements begun.
    pub elements: usize,
    /// The element before had a session and a tree: one that is related to it inherits them.
    pub inheritable: bool,
    pub session: u64,
    pub tree_id: u32,
    pub file: ChainFile,
    pub responses: SmallVec<[Response; 1]>,
    /// What they take in a message.
    pub held_bytes: usize,
    /// The same of all answers so far, sent or not.
    pub answered_bytes: usize,
}

/// The file that a related request without one of its own means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainFile {
    None,
    Open(u64),
    /// The CREATE that should have opened it failed.
    Failed(NtStatus),
}

pub(crate) struct Request {
    pub context: Context,
    pub work: Work,
    /// Volume that works on it.
    pub volume: Option<usize>,
    /// The compound it belongs to, where there is one.
    pub chain: Option<Box<Chain>>,
    pub charge: Charge,
}

/// What a request that waits takes beside its bytes: its place here and in its volume, and in their indexes.
pub(crate) const REQUEST_BYTES: usize = 1024;

impl Request {
    /// Lets go of what the chain does not need any more, before a long wait; the bytes that are held from here on.
    pub fn shrink(&mut self) -> usize {
        let rest = self.chain.as_mut().map_or(0, |chain| chain.shrink());
        REQUEST_BYTES + self.context.bytes + rest
    }
}

impl Chain {
    /// The chain of a message with one request, all of which has been begun.
    pub fn of_one(context: &Context) -> Self {
        Self {
            message: Buf::empty(),
            at: 0,
            sealed_by: context.sealed_by,
            first: true,
            elements: 1,
            inheritable: false,
            session: context.session,
            tree_id: context.tree_id,
            file: ChainFile::None,
            responses: SmallVec::new(),
            held_bytes: 0,
            answered_bytes: 0,
        }
    }

    /// Bytes that it keeps alive: the whole message if a part of it is still to be done, and the answers so far.
    pub fn kept_bytes(&self) -> usize {
        let message = if self.at < self.message.len() { self.message.len() } else { 0 };
        message + self.held_bytes
    }

    /// Keeps of the message only what is still to be done; how many bytes that is.
    fn shrink(&mut self) -> usize {
        let rest = self.message.len() - self.at;
        if rest == 0 {
            (self.message, self.at) = (Buf::empty(), 0);
        } else if rest <= self.message.len() / 2 {
            (self.message, self.at) = (Buf::from(&self.message[self.at..]), 0);
        }
        self.message.len()
    }
}

/// Flags of a request that its answer repeats.
pub(crate) const REPEATED_FLAGS: HeaderFlags =
    HeaderFlags::RELATED_OPERATIONS.union(HeaderFlags::PRIORITY_MASK).union(HeaderFlags::REPLAY_OPERATION);
