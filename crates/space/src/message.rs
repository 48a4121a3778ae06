//! Messages between coordinator and replica, and the transport that carries them.
//!
//! A disk is reached through a *session*: [`ReplicaOperation::Open`] begins one under (volume,
//! epoch), and every other operation belongs to one. An operation is delivered at most once: its id
//! grows within the session, and the replica drops an id that it has seen. A new session ends the
//! one before, so that no operation of the old session is performed after the new session's first
//! answer. On the storage bus a session is one open of the disk's file on the node's hidden share
//! `bus$` (MS-SMB2 message ids and a connection's sequence window give the at-most-once delivery).

use crate::planted::Planted;
use disk::DiskError;
use std::fmt;
use store::api::{Checksums, ChunkEntry, Regions, StoreError, WriteClass};
use sys::Payload;
use types::{ChangeNumber, ChunkIndex, DiskId, Epoch, Lba, VolumeId};

/// A coordinator's request to a replica. Each names the SMB2 request that carries it on the storage bus
/// (crate `bus`).
#[derive(Debug, Clone)]
pub enum ReplicaOperation {
    /// Begins a session and durably promises the epoch: lower ones are refused from then on (I3).
    /// The answer, with the disk's former promise, comes when no operation of an earlier session of
    /// the volume is in progress. A disk that had promised less than `least` refuses and promises
    /// nothing: it has gone back in time. If the disk is in sync, `settled` is the epoch up to
    /// which all writes are complete on it and on all other copies, so that the disk may forget
    /// earlier doubts of its journal; else 0. SMB2 CREATE (2.2.13) with a create context of
    /// (volume, epoch, session, least, settled).
    Open { least: Epoch, settled: Epoch },
    /// Durably promises the request's epoch within the session. SMB2 IOCTL (2.2.31), an FSCTL of our own.
    Promise,
    /// Lists the chunks that have a slab on the disk. SMB2 IOCTL, an FSCTL of our own, like all
    /// operations below except READ and WRITE.
    Chunks,
    /// Allocates a slab to the chunk.
    Allocate { chunk: ChunkIndex, append: bool },
    /// Gives the chunk's slab back.
    Free { chunk: ChunkIndex },
    /// SMB2 READ (2.2.19); the checksums follow the data.
    Read { lba: Lba, blocks: u32 },
    /// SMB2 WRITE (2.2.21) with SMB2_WRITEFLAG_WRITE_THROUGH; the checksums follow the data.
    /// `number` is the same on all copies.
    Write { lba: Lba, class: WriteClass, data: Payload, checksums: Checksums, number: ChangeNumber },
    /// Makes the blocks read as zeroes.
    Discard { lba: Lba, blocks: u32, number: ChangeNumber },
    /// Marks blocks whose data are lost on every copy that counts.
    MarkLost { lba: Lba, blocks: u32, number: ChangeNumber },
    /// Returns the stamps of the chunk's regions.
    Regions { chunk: ChunkIndex },
}

impl ReplicaOperation {
    /// Returns the chunk of the operation, if it has one.
    pub fn chunk(&self, chunk_of: impl Fn(u64) -> ChunkIndex) -> Option<ChunkIndex> {
        match self {
            Self::Open { .. } | Self::Promise | Self::Chunks => None,
            Self::Allocate { chunk, .. } | Self::Free { chunk } | Self::Regions { chunk } => Some(*chunk),
            Self::Read { lba, .. }
            | Self::Write { lba, .. }
            | Self::Discard { lba, .. }
            | Self::MarkLost { lba, .. } => Some(chunk_of(lba.0)),
        }
    }

    /// Whether the operation leaves the disk unchanged.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Regions { .. } | Self::Chunks)
    }
}

/// Names one session of one coordinator. A later one has a higher id; those of two coordinators differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Names one request of a session. A later one has a higher id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Beneficiary of an operation, the most urgent first. Decides the order in which requests leave,
/// and is not on the wire: a disk serves requests in the order of arrival, and one that waits on
/// this side blocks none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// A client waits, or all clients of the volume may: openings, allocations, differences after a
    /// crash.
    Client,
    /// Brings a disk that was away up to date.
    Resync,
    /// Makes a missing copy.
    Rebuild,
    /// Moves or compares copies: nothing is less safe meanwhile.
    Rebalance,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Client, Self::Resync, Self::Rebuild, Self::Rebalance];
}

/// One operation on its way to a replica.
#[derive(Debug, Clone)]
pub struct Request {
    pub volume: VolumeId,
    pub session: SessionId,
    pub id: RequestId,
    /// Epoch that stamps writes; the replica compares it with the disk's promise.
    pub epoch: Epoch,
    pub priority: Priority,
    pub operation: ReplicaOperation,
}

/// A request that waits, or waited, for its turn on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub disk: DiskId,
    pub volume: VolumeId,
    pub session: SessionId,
    pub id: RequestId,
    /// Whether the request has just left for its disk, whose time begins now.
    pub has_left: bool,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Done,
    /// The disk's former promise, and whether its journal leaves unsettled data of the volume in
    /// doubt.
    Opened {
        promised: Epoch,
        doubtful: bool,
    },
    Data {
        data: Payload,
        checksums: Checksums,
    },
    Regions(Regions),
    Chunks(Vec<ChunkEntry>),
}

/// Reason why a replica refused or failed a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusError {
    /// The store's answer.
    Store(StoreError),
    /// The replica does not know the session: the replica was restarted, or a newer session began.
    NoSession,
    /// The disk has promised less than required: an older image of it was restored. Has its present
    /// promise and its chunks.
    WentBack { promised: Epoch, chunks: Vec<ChunkEntry> },
    /// The transport cannot reach the replica.
    Unreachable,
}

impl fmt::Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "{error}"),
            Self::WentBack { promised, .. } => {
                write!(f, "it holds an older state than it had before: epoch {promised} is its last promise")
            }
            Self::NoSession => f.write_str("the session is over"),
            Self::Unreachable => f.write_str("the disk cannot be reached"),
        }
    }
}

impl std::error::Error for BusError {}

impl BusError {
    /// Whether the disk's machine lacks memory, or space for the disk's file: the disk is not to
    /// blame (D20).
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Store(StoreError::NoSpace | StoreError::Disk(DiskError::Host(_))))
            && !Planted::HostExpelsDisk.is_planted()
    }
}

/// The answer to one [`Request`].
#[derive(Debug, Clone)]
pub struct Response {
    pub from: DiskId,
    pub volume: VolumeId,
    pub session: SessionId,
    pub id: RequestId,
    pub result: Result<Answer, BusError>,
}

/// Names one connection of another node to this one's disks; never used twice while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

impl PeerId {
    /// A lost connection: answers to it are dropped.
    pub(crate) const NOBODY: Self = Self(u64::MAX);
}

/// Carries requests to disks and brings their answers. May lose, delay, repeat and reorder both.
pub trait Transport {
    fn send(&mut self, to: DiskId, request: Request);
    /// Whether [`Transport::poll`] may have an answer. `false` saves the caller a poll; `true`
    /// promises nothing.
    fn has_news(&self) -> bool {
        true
    }
    /// Moves the present answers into `out`.
    fn poll(&mut self, out: &mut Vec<Response>);
    /// Moves requests that wait behind others on this side into `out`. Each is reported about once
    /// a second, so that its disk does not count as late; a client's reads also at once, and when
    /// they leave.
    fn poll_waiting(&mut self, _out: &mut Vec<Waiting>) {}
}
