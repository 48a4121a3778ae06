//! The questions of a file server to a volume, and the answers: the one boundary between `smb-server` and the file layer.
//!
//! Operations go in with an [`OperationId`] of the caller's choice; events come out, in any order. Access masks, attributes,
//! create options and share access are the NT bits (MS-SMB2 2.2.13, MS-FSCC 2.6), since they are what is stored and enforced.

use crate::fs::FileId;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use sys::Payload;
use types::{FileTime, Monotonic, NtStatus};

pub use crate::fs::{QuotaChange, QuotaLimits, QuotaMode, QuotaQuery, QuotaSettings, QuotaUser};
pub use crate::refusal::{Refusal, RefusalDetail};
pub use crate::values::{AccessToken, ExtendedAttribute, Privileges, WideString};

/// Names one operation in flight; chosen by the caller, unique among its own. Numbers with both highest bits set are the backend's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub u64);

impl OperationId {
    /// Names operations whose answers nobody waits for; any number of them can be under way at once.
    pub const UNATTENDED: Self = Self(0);
}

/// Names one open of a file for its whole life, across reconnects of a durable handle. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub u64);

/// Names a session of the caller: the end of a connection ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// 16 opaque bytes that a client chose: client GUID, lease key, create GUID.
pub type Guid = [u8; 16];

/// The directory below which a caller's paths lie. There is no way up from it: a path is a list of names below a root, and no name
/// is that of a parent. It is the directory itself, not its path: it stays the same one when the directory is renamed or moved, and
/// leads nowhere (NETWORK_NAME_DELETED) once that is deleted, since no volume gives a file's identity to another one.
///
/// Only the volume gives one out: ask it with [`Operation::OpenRoot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShareRoot(FileId);

impl ShareRoot {
    /// The volume's own root: for administrators' commands.
    pub const VOLUME: Self = Self(FileId::ROOT);

    pub(crate) const fn of(directory: FileId) -> Self {
        Self(directory)
    }

    pub(crate) const fn directory(self) -> FileId {
        self.0
    }
}

/// The client and user of an operation, and the terms of the share that it came through.
#[derive(Debug, Clone)]
pub struct Caller {
    pub session: SessionId,
    pub client: Guid,
    pub token: Arc<AccessToken>,
    /// The directory at which the caller's paths begin.
    pub root: ShareRoot,
    /// Access that the share grants at most.
    pub share_access: u32,
    /// Options of the share that change what an acknowledgement means.
    pub share: ShareOptions,
    pub standing: Standing,
}

impl Caller {
    /// Puts other terms in force.
    pub fn amend(&mut self, terms: &Terms) {
        let Terms { token, share_access, share, standing } = terms.clone();
        (self.token, self.share_access, self.share, self.standing) = (token, share_access, share, standing);
    }
}

/// The grounds of a tree connect: its share's name, and the server's own record of it, which means
/// nothing to the volume.
///
/// The volume keeps it with each open and each create that waits, so that the server can judge all of them again when its policy
/// changes ([`Backend::review`]), those whose clients are away included.
#[derive(Clone)]
pub struct Standing {
    share: Arc<str>,
    grounds: Arc<dyn Any + Send + Sync>,
}

impl Standing {
    pub fn new(share: impl Into<Arc<str>>, grounds: impl Any + Send + Sync) -> Self {
        Self { share: share.into(), grounds: Arc::new(grounds) }
    }

    /// Makes the standing of a caller who comes through no share.
    pub fn none() -> Self {
        Self::new("", ())
    }

    /// Returns the name of the share, always spelled the same.
    pub fn share(&self) -> &str {
        &self.share
    }

    /// Returns what the server remembers, if it is of this type.
    pub fn grounds<T: Any>(&self) -> Option<&T> {
        self.grounds.downcast_ref()
    }

    /// Returns a number that clones of one standing share, and nothing else while one of them lives.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.grounds).cast::<()>() as usize
    }
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Standing").field("share", &self.share).finish_non_exhaustive()
    }
}

/// The terms under which a caller acts from now on.
#[derive(Debug, Clone)]
pub struct Terms {
    pub token: Arc<AccessToken>,
    pub share_access: u32,
    pub share: ShareOptions,
    pub standing: Standing,
}

/// Verdict on an open, or on a waiting create, after a change of the server's policy.
#[derive(Debug, Clone)]
pub enum Ruling {
    /// Nothing changed for it.
    Keep,
    Amend(Terms),
    /// The open is no longer allowed: it is closed, and a waiting create fails.
    Close,
}

/// When a WRITE's bytes are durable on every in-sync copy (D14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Before the answer to WRITE.
    Write,
    /// Before the answer to CLOSE (or FLUSH).
    #[default]
    Close,
    /// Before the answer to FLUSH; five seconds later at the latest.
    Flush,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareOptions {
    pub durability: Durability,
    pub read_only: bool,
    pub continuously_available: bool,
    /// Clients are told that any node may serve it, and cache reads at most.
    pub scale_out: bool,
    /// Hide what the caller has no right to read.
    pub access_based_enumeration: bool,
    /// Oplocks and leases are not granted.
    pub no_caching: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    Supersede,
    Open,
    Create,
    OpenIf,
    Overwrite,
    OverwriteIf,
}

bitflags::bitflags! {
    /// Caching that a lease grants its holder (MS-SMB2 2.2.13.2.8).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct LeaseState: u32 {
        const READ = 1;
        const HANDLE = 2;
        const WRITE = 4;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OplockLevel {
    #[default]
    None,
    LevelII,
    Exclusive,
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    pub key: Guid,
    pub state: LeaseState,
    /// Version 2: the parent directory's key and the client's epoch.
    pub version_2: Option<LeaseVersion2>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseVersion2 {
    pub parent_key: Option<Guid>,
    pub epoch: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheRequest {
    Oplock(OplockLevel),
    Lease(LeaseRequest),
}

/// The caching that was granted; for a lease its whole state, as it now is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheGrant {
    Oplock(OplockLevel),
    Lease { key: Guid, state: LeaseState, breaking: bool, version_2: Option<LeaseVersion2> },
}

/// A handle that outlives its connection (MS-SMB2 2.2.13.2.3, 2.2.13.2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurableRequest {
    Version1,
    Version2 { create_guid: Guid, timeout: Option<Duration>, persistent: bool },
}

/// An application that may come back from another client (MS-SMB2 2.2.13.2.13, 2.2.13.2.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppInstance {
    pub id: Guid,
    /// High and low half. Only a higher version takes the place of one that has a version.
    pub version: Option<(u64, u64)>,
}

/// MS-SMB2 2.2.13, less what is the wire's own.
#[derive(Debug, Clone)]
pub struct Create {
    pub caller: Caller,
    /// Path below the caller's root, `\` between names, stream and type after `:`.
    pub path: WideString,
    pub desired_access: u32,
    pub attributes: u32,
    pub share_access: u32,
    pub disposition: Disposition,
    /// NT create options.
    pub options: u32,
    pub cache: CacheRequest,
    pub allocation_bytes: Option<u64>,
    pub extended_attributes: Vec<ExtendedAttribute>,
    /// Self-relative security descriptor (MS-DTYP 2.4.6).
    pub security: Option<Vec<u8>>,
    pub durable: Option<DurableRequest>,
    pub app_instance: Option<AppInstance>,
    /// Asks for the token's maximal access (SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST).
    pub query_maximal_access: bool,
    /// Opens the volume as it was then (SMB2_CREATE_TIMEWARP_TOKEN).
    pub time_warp: Option<FileTime>,
    /// SMB2_FLAGS_REPLAY_OPERATION was set: a create that already happened answers again.
    pub replay: bool,
}

/// Takes up a durable handle again (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).
#[derive(Debug, Clone)]
pub struct Reconnect {
    pub caller: Caller,
    pub open: OpenId,
    /// As [`Create::path`].
    pub path: WideString,
    /// Version 2's create GUID.
    pub create_guid: Option<Guid>,
    pub persistent: bool,
    pub lease: Option<LeaseRequest>,
}

/// An open of something that is no file: the storage bus reaches disks so. The create context says what is wanted of it.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    pub caller: Caller,
    /// As [`Create::path`].
    pub path: WideString,
    /// Data of the create context of the storage bus.
    pub context: Vec<u8>,
}

/// MS-SMB2 2.2.14 CreateAction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateAction {
    Superseded,
    Opened,
    Created,
    Overwritten,
}

/// Properties of a file: enough for every fixed information class of MS-FSCC 2.4.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileInformation {
    pub file_id: u64,
    pub created: FileTime,
    pub accessed: FileTime,
    pub written: FileTime,
    pub changed: FileTime,
    pub attributes: u32,
    pub end_of_file: u64,
    pub allocation_bytes: u64,
    pub link_count: u32,
    pub delete_pending: bool,
    pub directory: bool,
    pub reparse_tag: u32,
    /// Size of all extended attributes as MS-FSCC 2.4.15 packs them.
    pub extended_attribute_bytes: u32,
}

#[derive(Debug, Clone)]
pub struct Created {
    pub open: OpenId,
    pub action: CreateAction,
    pub cache: CacheGrant,
    pub information: FileInformation,
    pub granted_access: u32,
    pub maximal_access: Option<Result<u32, NtStatus>>,
    /// Durable (version 1: `Some`), or its granted time-out (version 2).
    pub durable: Option<Duration>,
    pub persistent: bool,
    /// Canonical path of the open below the caller's root, without leading `\`.
    pub path: WideString,
    pub is_stream: bool,
}

#[derive(Debug, Clone)]
pub struct DirectoryEntry {
    pub name: WideString,
    /// A name of eight and three characters that leads to it too, if it was asked for and the name is not of that form.
    pub short_name: Option<WideString>,
    pub information: FileInformation,
    /// Place from which to continue after this entry.
    pub cookie: u64,
}

#[derive(Debug, Clone)]
pub struct StreamEntry {
    /// As `:name:$DATA`.
    pub name: WideString,
    pub end_of_file: u64,
    pub allocation_bytes: u64,
}

/// For the classes of MS-FSCC 2.5.
#[derive(Debug, Clone)]
pub struct VolumeInformation {
    pub label: String,
    pub serial: u32,
    pub id: Guid,
    pub created: FileTime,
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// The same within the caller's quota.
    pub caller_total_bytes: u64,
    pub caller_available_bytes: u64,
    pub block_bytes: u32,
    pub quotas: QuotaSettings,
    /// Quotas are on, and files are still being counted.
    pub is_counting_quotas: bool,
}

/// A time to set: MS-FSCC 2.4.7 knows three wishes beside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    #[default]
    Keep,
    /// -1: this open's later operations do not change it.
    Freeze,
    /// -2: they do again.
    Thaw,
    To(FileTime),
}

#[derive(Debug, Clone)]
pub enum SetInformation {
    Basic {
        created: SetTime,
        accessed: SetTime,
        written: SetTime,
        changed: SetTime,
        attributes: Option<u32>,
    },
    EndOfFile(u64),
    Allocation(u64),
    ValidDataLength(u64),
    /// Delete on close, or not; `flags` of FileDispositionInformationEx, or 1 and 0.
    Disposition {
        flags: u32,
    },
    Rename {
        /// Path below the root through which the open was made; `:` and a name if it is a stream's.
        target: WideString,
        replace: bool,
        posix: bool,
    },
    Link {
        /// As that of a rename.
        target: WideString,
        replace: bool,
    },
    ExtendedAttributes(Vec<ExtendedAttribute>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    pub offset: u64,
    pub len_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct LockElement {
    pub range: ByteRange,
    /// `None` unlocks.
    pub exclusive: Option<bool>,
    pub fail_immediately: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct CopyChunk {
    pub source_offset: u64,
    pub target_offset: u64,
    pub len_bytes: u64,
}

#[derive(Debug, Clone)]
pub enum Operation {
    /// Answers the directory at `path` from the volume's root as a [`ShareRoot`].
    ///
    /// # Errors
    /// Those of opening `path` for a look; NOT_A_DIRECTORY for a file, IO_REPARSE_TAG_NOT_HANDLED for a reparse point.
    OpenRoot {
        path: WideString,
    },
    Create(Box<Create>),
    Reconnect(Box<Reconnect>),
    /// Answers [`Reply::DeviceOpened`]; a volume of files has no devices, and answers INVALID_DEVICE_REQUEST.
    OpenDevice(Box<OpenDevice>),
    /// An FSCTL of this server's own on a device. Answers [`Reply::Output`]; a volume of files answers INVALID_DEVICE_REQUEST.
    Control {
        open: OpenId,
        code: u32,
        input: Vec<u8>,
        output_bytes_max: usize,
    },
    Close {
        open: OpenId,
        query: bool,
    },
    Read {
        open: OpenId,
        range: ByteRange,
        unbuffered: bool,
    },
    Write {
        open: OpenId,
        offset: u64,
        data: Payload,
        write_through: bool,
        unbuffered: bool,
    },
    Flush {
        open: OpenId,
    },
    QueryInformation {
        open: OpenId,
    },
    SetInformation {
        open: OpenId,
        set: SetInformation,
    },
    QueryStreams {
        open: OpenId,
    },
    /// Answers a name of eight and three characters by which the file can be opened.
    QueryShortName {
        open: OpenId,
    },
    QueryExtendedAttributes {
        open: OpenId,
    },
    /// `parts`: SECURITY_INFORMATION (MS-DTYP 2.4.7).
    QuerySecurity {
        open: OpenId,
        parts: u32,
    },
    SetSecurity {
        open: OpenId,
        parts: u32,
        descriptor: Vec<u8>,
    },
    /// Answers the volume's size and free space, as far as the open's caller may see them.
    QueryVolume {
        open: OpenId,
    },
    QueryQuotas {
        open: OpenId,
        query: QuotaQuery,
    },
    SetQuotas {
        open: OpenId,
        change: QuotaChange,
    },
    /// Entries after `after` (0: from the start) that match `pattern` by the rule of MS-FSA 2.1.4.4, at most `entries_max`.
    QueryDirectory {
        open: OpenId,
        pattern: WideString,
        after: u64,
        entries_max: u32,
        /// Entries are to have their short names.
        short_names: bool,
    },
    /// Locks or unlocks all elements or none; waits if an element may wait.
    Lock {
        open: OpenId,
        elements: Vec<LockElement>,
        sequence: Option<u32>,
    },
    /// Answers once, at the first change; `filter` as MS-SMB2 2.2.35.
    Notify {
        open: OpenId,
        filter: u32,
        tree: bool,
        bytes_max: u32,
    },
    SetSparse {
        open: OpenId,
        sparse: bool,
    },
    ZeroRange {
        open: OpenId,
        range: ByteRange,
    },
    QueryAllocatedRanges {
        open: OpenId,
        range: ByteRange,
    },
    Trim {
        open: OpenId,
        ranges: Vec<ByteRange>,
    },
    CopyChunks {
        source: OpenId,
        target: OpenId,
        chunks: Vec<CopyChunk>,
    },
    DuplicateExtents {
        source: OpenId,
        target: OpenId,
        chunk: CopyChunk,
    },
    QueryReparsePoint {
        open: OpenId,
    },
    SetReparsePoint {
        open: OpenId,
        data: Vec<u8>,
    },
    DeleteReparsePoint {
        open: OpenId,
        tag: u32,
    },
    /// Answers the object id; `create`: makes one if there is none.
    ObjectId {
        open: OpenId,
        create: bool,
    },
    SetIntegrity {
        open: OpenId,
        algorithm: u16,
        flags: u32,
    },
    AcknowledgeOplock {
        open: OpenId,
        level: OplockLevel,
    },
    AcknowledgeLease {
        client: Guid,
        key: Guid,
        state: LeaseState,
    },
    /// The session ended, by a LOGOFF or with its connection: opens are closed, but durable ones wait for their client (MS-SMB2 3.3.5.6).
    EndSession {
        session: SessionId,
    },
    /// The answer by which the session got the open reached nobody: it waits for its client anew, or is closed if it cannot.
    Abandon(OpenId, SessionId),
    /// An administrator closes it.
    ForceClose {
        open: OpenId,
    },
}

#[derive(Debug, Clone)]
pub enum Reply {
    Done,
    Root(ShareRoot),
    Created(Box<Created>),
    /// `context`: data of the create context of the answer, of the same name as that of the request.
    DeviceOpened {
        open: OpenId,
        context: Vec<u8>,
    },
    /// Output of [`Operation::Control`].
    Output(Vec<u8>),
    Closed(Option<FileInformation>),
    /// Fewer bytes than asked: the file ends there.
    Read(Payload),
    /// Bytes written.
    Written(u32),
    Information(Box<FileInformation>),
    Streams(Vec<StreamEntry>),
    Name(WideString),
    ExtendedAttributes(Vec<ExtendedAttribute>),
    Security(Vec<u8>),
    Volume(Box<VolumeInformation>),
    Quotas(Vec<QuotaUser>),
    Directory(Vec<DirectoryEntry>),
    /// FILE_ACTION_* and path relative to the watched directory; empty: too many, enumerate again.
    Notify(Vec<(u32, WideString)>),
    /// `more`: there may be others behind the last, for which the client asks from there.
    Ranges {
        ranges: Vec<ByteRange>,
        more: bool,
    },
    Copied {
        chunks: u32,
        bytes: u64,
    },
    ReparsePoint(Vec<u8>),
    ObjectId(Guid),
    Lease {
        key: Guid,
        state: LeaseState,
    },
    Oplock(OplockLevel),
}

#[derive(Debug)]
pub enum Event {
    Done {
        operation: OperationId,
        result: Result<Reply, Refusal>,
    },
    /// The operation waits for something that may take long (a lock, a break, a change): the client should
    /// be told.
    Pending {
        operation: OperationId,
    },
    /// To the holder of the open.
    BreakOplock {
        open: OpenId,
        session: SessionId,
        to: OplockLevel,
    },
    /// To the client that holds the lease, on any of its connections.
    BreakLease {
        client: Guid,
        key: Guid,
        from: LeaseState,
        to: LeaseState,
        acknowledge: bool,
        epoch: u16,
    },
    /// The open is known by another name from here on: it, or another open of the file, was renamed. `path` is that of [`Created`].
    Renamed {
        open: OpenId,
        path: WideString,
    },
    /// The open is gone without a Close: time-out, administrator, replaced by its application instance.
    Closed {
        open: OpenId,
    },
}

/// The file layer as a server sees it. Nothing blocks; time is an argument.
pub trait Backend {
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic);
    /// Ends a waiting operation with STATUS_CANCELLED; no effect if it is past waiting.
    fn cancel(&mut self, operation: OperationId);
    /// Judges every open and every create that waits, by its standing. A [`Ruling::Close`] is in force at the return: nothing
    /// more happens through the open, and it cannot be found again.
    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic);
    fn poll(&mut self, out: &mut Vec<Event>);
    /// Counts the byte-range locks that an open holds; where there are no files there are none.
    fn lock_count(&self, _open: OpenId) -> usize {
        0
    }
    /// Returns the time at which [`Backend::handle_timeout`] has to be called next.
    fn next_timeout(&self) -> Option<Monotonic>;
    fn handle_timeout(&mut self, now: Monotonic);
}
