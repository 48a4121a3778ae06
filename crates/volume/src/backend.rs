//! The interface between `smb-server` and the file layer: requests to a volume and their answers.
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
    /// Names operations whose answers are ignored; any number of them can be under way.
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

/// The directory below which a caller's paths lie. A path is a list of names below it, none of which
/// means the parent, so no path leads above it. The root is the directory itself and not its path:
/// renaming or moving the directory keeps the root. After a deletion it answers NETWORK_NAME_DELETED,
/// since no volume reuses a file's identity.
///
/// Only the volume makes one: [`Operation::OpenRoot`].
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
    /// Session of the open or create; it ends with its connection.
    pub session: SessionId,
    /// ClientGuid of the connection (MS-SMB2 2.2.3).
    pub client: Guid,
    /// User, groups and privileges that the caller acts with.
    pub token: Arc<AccessToken>,
    /// The directory at which the caller's paths begin.
    pub root: ShareRoot,
    /// Access that the share grants at most.
    pub share_access: u32,
    /// Options of the share that change what an acknowledgement means.
    pub share: ShareOptions,
    /// Grounds of the tree connect, for later judgements of the open.
    pub standing: Standing,
}

impl Caller {
    /// Puts other terms in force.
    pub fn amend(&mut self, terms: &Terms) {
        let Terms { token, share_access, share, standing } = terms.clone();
        (self.token, self.share_access, self.share, self.standing) = (token, share_access, share, standing);
    }
}

/// The share of a tree connect, with the server's own record of it, opaque to the volume.
///
/// The volume keeps it with each open and each waiting create, so that the server can judge them all
/// again when its policy changes ([`Backend::review`]), including opens of disconnected clients.
#[derive(Clone)]
pub struct Standing {
    share: Arc<str>,
    grounds: Arc<dyn Any + Send + Sync>,
}

impl Standing {
    /// Makes the standing of a tree connect to `share`, by the server's own record `grounds`.
    pub fn new(share: impl Into<Arc<str>>, grounds: impl Any + Send + Sync) -> Self {
        Self { share: share.into(), grounds: Arc::new(grounds) }
    }

    /// Makes the standing of a caller without a share.
    pub fn none() -> Self {
        Self::new("", ())
    }

    /// Returns the name of the share, always spelled the same.
    pub fn share(&self) -> &str {
        &self.share
    }

    /// Returns the server's record, if it is of this type.
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
    /// Token from now on; its user may have lost or gained groups.
    pub token: Arc<AccessToken>,
    /// Access that the share grants at most from now on (MS-SMB2 2.2.13.1).
    pub share_access: u32,
    /// Options of the share from now on.
    pub share: ShareOptions,
    /// Grounds by which the next change of policy judges.
    pub standing: Standing,
}

/// Verdict on an open, or on a waiting create, after a change of the server's policy.
#[derive(Debug, Clone)]
pub enum Ruling {
    /// Nothing changed for it.
    Keep,
    /// The open stays under these terms.
    Amend(Terms),
    /// The open is no longer allowed: the volume closes it and fails a waiting create.
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

/// Options of a share that the volume enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareOptions {
    /// Time by which a WRITE is durable.
    pub durability: Durability,
    /// Nothing can be changed through the share.
    pub read_only: bool,
    /// Persistent handles are granted, and opens outlive their server (MS-SMB2 2.2.10).
    pub continuously_available: bool,
    /// The server tells clients that any node may serve the share; they cache reads at most.
    pub scale_out: bool,
    /// Hide what the caller has no right to read.
    pub access_based_enumeration: bool,
    /// Oplocks and leases are not granted.
    pub no_caching: bool,
}

/// Action on a name that exists or does not (CreateDisposition of MS-SMB2 2.2.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Replaces a file that exists, else makes one.
    Supersede,
    /// Opens a file that exists, else fails.
    Open,
    /// Makes a file, and fails if one exists.
    Create,
    /// Opens a file that exists, else makes one.
    OpenIf,
    /// Empties and opens a file that exists, else fails.
    Overwrite,
    /// Empties and opens a file that exists, else makes one.
    OverwriteIf,
}

bitflags::bitflags! {
    /// Caching that a lease grants its holder (MS-SMB2 2.2.13.2.8).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct LeaseState: u32 {
        /// Reads may be cached.
        const READ = 1;
        /// The open may be kept after the application closes it.
        const HANDLE = 2;
        /// Writes may be cached.
        const WRITE = 4;
    }
}

/// Caching that an oplock grants one open (MS-SMB2 2.2.14 OplockLevel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OplockLevel {
    /// No caching.
    #[default]
    None,
    /// Reads may be cached until somebody writes.
    LevelII,
    /// Reads and writes may be cached; this is the only open.
    Exclusive,
    /// Reads, writes and the handle itself may be cached; this is the only open.
    Batch,
}

/// Lease that a create or reconnect asks for (MS-SMB2 2.2.13.2.8, 2.2.13.2.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    /// LeaseKey: opens of one client and key share the lease.
    pub key: Guid,
    /// Caching that the client wants; it may be granted less.
    pub state: LeaseState,
    /// Version 2: the parent directory's key and the client's epoch.
    pub version_2: Option<LeaseVersion2>,
}

/// Fields that version 2 of a lease has beside version 1 (MS-SMB2 2.2.13.2.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseVersion2 {
    /// Lease key of the parent directory; changes by this open do not break that lease.
    pub parent_key: Option<Guid>,
    /// Number of the lease's last change that the client knows; wraps around.
    pub epoch: u16,
}

/// Caching that a create asks for: an oplock or a lease, never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheRequest {
    /// Oplock of the open alone.
    Oplock(OplockLevel),
    /// Lease that opens of one client and key share.
    Lease(LeaseRequest),
}

/// The caching that was granted; for a lease its whole state, as it now is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheGrant {
    /// Oplock of the open alone; may be lower than the one asked for.
    Oplock(OplockLevel),
    /// Lease with the `state` now granted; `breaking`: a break of it is not acknowledged.
    Lease { key: Guid, state: LeaseState, breaking: bool, version_2: Option<LeaseVersion2> },
}

/// A handle that outlives its connection (MS-SMB2 2.2.13.2.3, 2.2.13.2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurableRequest {
    /// Durable handle of version 1: it waits for the server's own timeout.
    Version1,
    /// Durable handle of version 2; `timeout` `None`: the server's own.
    Version2 { create_guid: Guid, timeout: Option<Duration>, persistent: bool },
}

/// Application instance that may reconnect through another client (MS-SMB2 2.2.13.2.13, 2.2.13.2.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppInstance {
    /// AppInstanceId: an earlier open of the same id by another client is closed.
    pub id: Guid,
    /// High and low half. Only a higher version takes the place of one that has a version.
    pub version: Option<(u64, u64)>,
}

/// MS-SMB2 2.2.13, without wire-only fields.
#[derive(Debug, Clone)]
pub struct Create {
    /// Client, user and share of the create.
    pub caller: Caller,
    /// Path below the caller's root, `\` between names, stream and type after `:`.
    pub path: WideString,
    /// DesiredAccess (MS-SMB2 2.2.13.1), generic rights included.
    pub desired_access: u32,
    /// FILE_ATTRIBUTE_* of a file that is made (MS-FSCC 2.6).
    pub attributes: u32,
    /// FILE_SHARE_READ, WRITE and DELETE: access that other opens may have.
    pub share_access: u32,
    /// Action on a name that exists or does not.
    pub disposition: Disposition,
    /// NT create options.
    pub options: u32,
    /// Oplock or lease that the client wants.
    pub cache: CacheRequest,
    /// Bytes to allocate to a new or emptied file (SMB2_CREATE_ALLOCATION_SIZE).
    pub allocation_bytes: Option<u64>,
    /// Attributes of a file that is made (SMB2_CREATE_EA_BUFFER); may be empty.
    pub extended_attributes: Vec<ExtendedAttribute>,
    /// Self-relative security descriptor (MS-DTYP 2.4.6).
    pub security: Option<Vec<u8>>,
    /// Durable or persistent handle that the client wants; `None`: neither.
    pub durable: Option<DurableRequest>,
    /// Identity of the application that opens the file; `None`: not given.
    pub app_instance: Option<AppInstance>,
    /// Asks for the token's maximal access (SMB2_CREATE_QUERY_MAXIMAL_ACCESS_REQUEST).
    pub query_maximal_access: bool,
    /// Opens the volume as it was then (SMB2_CREATE_TIMEWARP_TOKEN).
    pub time_warp: Option<FileTime>,
    /// SMB2_FLAGS_REPLAY_OPERATION was set: a create that already happened answers again.
    pub replay: bool,
}

/// Reconnects a durable handle (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).
#[derive(Debug, Clone)]
pub struct Reconnect {
    /// Client, user and share of the reconnect.
    pub caller: Caller,
    /// Identity of the open, from the FileId of the request.
    pub open: OpenId,
    /// As [`Create::path`].
    pub path: WideString,
    /// Version 2's create GUID.
    pub create_guid: Option<Guid>,
    /// The client asks for a persistent handle: the old one must be one.
    pub persistent: bool,
    /// Lease of the open; `None`: it had an oplock.
    pub lease: Option<LeaseRequest>,
}

/// Opens something other than a file, as the storage bus opens disks. The create context says what.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    /// Client and user; the share leads to the device.
    pub caller: Caller,
    /// As [`Create::path`].
    pub path: WideString,
    /// Data of the create context of the storage bus.
    pub context: Vec<u8>,
}

/// MS-SMB2 2.2.14 CreateAction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateAction {
    /// An existing file was replaced.
    Superseded,
    /// An existing file was opened.
    Opened,
    /// A new file was made.
    Created,
    /// An existing file was emptied and opened.
    Overwritten,
}

/// Properties of a file: enough for every fixed information class of MS-FSCC 2.4.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileInformation {
    /// IndexNumber of FileInternalInformation: names the file on its volume, never reused.
    pub file_id: u64,
    /// Time of creation.
    pub created: FileTime,
    /// Time of the last access.
    pub accessed: FileTime,
    /// Time of the last write of data.
    pub written: FileTime,
    /// Time of the last change of data, attributes or names.
    pub changed: FileTime,
    /// FILE_ATTRIBUTE_* (MS-FSCC 2.6).
    pub attributes: u32,
    /// Length of the stream in bytes.
    pub end_of_file: u64,
    /// Bytes of blocks allocated to the stream.
    pub allocation_bytes: u64,
    /// Names of the file in directories.
    pub link_count: u32,
    /// The file is deleted when its last open is closed.
    pub delete_pending: bool,
    /// The file is a directory.
    pub directory: bool,
    /// Reparse tag (MS-FSCC 2.1.2.1); 0: no reparse point.
    pub reparse_tag: u32,
    /// Size of all extended attributes as MS-FSCC 2.4.15 packs them.
    pub extended_attribute_bytes: u32,
}

/// Answer to a create or a reconnect (MS-SMB2 2.2.14).
#[derive(Debug, Clone)]
pub struct Created {
    /// Identity of the open for later operations.
    pub open: OpenId,
    /// Action performed on the name.
    pub action: CreateAction,
    /// Oplock or lease that was granted.
    pub cache: CacheGrant,
    /// Properties of the file just after the create.
    pub information: FileInformation,
    /// Access that later operations may use (MS-SMB2 2.2.13.1).
    pub granted_access: u32,
    /// Maximal access, or the status why it is unknown; `None`: not requested.
    pub maximal_access: Option<Result<u32, NtStatus>>,
    /// Durable (version 1: `Some`), or its granted time-out (version 2).
    pub durable: Option<Duration>,
    /// The handle is persistent: it outlives the server too.
    pub persistent: bool,
    /// Canonical path of the open below the caller's root, without leading `\`.
    pub path: WideString,
    /// The open is of a named stream.
    pub is_stream: bool,
}

/// One name that a directory listing answers (MS-FSCC 2.4).
#[derive(Debug, Clone)]
pub struct DirectoryEntry {
    /// Name in its original case.
    pub name: WideString,
    /// 8.3 name of the entry, if requested and if `name` is not of that form.
    pub short_name: Option<WideString>,
    /// Properties of the file that the name leads to.
    pub information: FileInformation,
    /// Place from which to continue after this entry.
    pub cookie: u64,
}

/// One data stream of a file (MS-FSCC 2.4.49).
#[derive(Debug, Clone)]
pub struct StreamEntry {
    /// As `:name:$DATA`.
    pub name: WideString,
    /// Length of the stream in bytes.
    pub end_of_file: u64,
    /// Bytes of blocks allocated to the stream.
    pub allocation_bytes: u64,
}

/// For the classes of MS-FSCC 2.5.
#[derive(Debug, Clone)]
pub struct VolumeInformation {
    /// Name that administrators gave the volume.
    pub label: String,
    /// VolumeSerialNumber (MS-FSCC 2.5.9).
    pub serial: u32,
    /// GUID of the volume.
    pub id: Guid,
    /// Time at which the volume was formatted.
    pub created: FileTime,
    /// Size of the volume in bytes.
    pub total_bytes: u64,
    /// Bytes that all users together can still write.
    pub available_bytes: u64,
    /// The same within the caller's quota.
    pub caller_total_bytes: u64,
    /// Bytes that the caller can still write, within quota and free space.
    pub caller_available_bytes: u64,
    /// Bytes of an allocation unit.
    pub block_bytes: u32,
    /// Mode and default limits of quotas.
    pub quotas: QuotaSettings,
    /// Quotas are on, and files are still being counted.
    pub is_counting_quotas: bool,
}

/// A time to set. MS-FSCC 2.4.7 knows three requests beside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leaves the time unchanged (0).
    #[default]
    Keep,
    /// -1: this open's later operations do not change it.
    Freeze,
    /// -2: they do again.
    Thaw,
    /// Sets the time.
    To(FileTime),
}

/// Property of a file that is set (MS-FSCC 2.4).
#[derive(Debug, Clone)]
pub enum SetInformation {
    /// FileBasicInformation (MS-FSCC 2.4.7).
    Basic {
        /// Time of creation.
        created: SetTime,
        /// Time of the last access.
        accessed: SetTime,
        /// Time of the last write.
        written: SetTime,
        /// Time of the last change.
        changed: SetTime,
        /// FILE_ATTRIBUTE_* to set; `None` keeps.
        attributes: Option<u32>,
    },
    /// FileEndOfFileInformation: new length of the stream in bytes.
    EndOfFile(u64),
    /// FileAllocationInformation: bytes to allocate. A longer stream is truncated.
    Allocation(u64),
    /// FileValidDataLengthInformation: bytes from the start that count as written.
    ValidDataLength(u64),
    /// Delete on close, or not; `flags` of FileDispositionInformationEx, or 1 and 0.
    Disposition {
        /// FILE_DISPOSITION_* flags; 0: the file stays.
        flags: u32,
    },
    /// FileRenameInformation: gives the file or stream another name or directory.
    Rename {
        /// Path below the root through which the open was made; `:` and a name if it is a stream's.
        target: WideString,
        /// A file that has the target name is replaced.
        replace: bool,
        /// FILE_RENAME_POSIX_SEMANTICS was set; without effect on volumes.
        posix: bool,
    },
    /// FileLinkInformation: gives the file one more name.
    Link {
        /// As that of a rename.
        target: WideString,
        /// A file that has the target name is replaced.
        replace: bool,
    },
    /// FileFullEaInformation: attributes to set; an empty value removes one.
    ExtendedAttributes(Vec<ExtendedAttribute>),
}

/// Bytes of a stream, from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// SMB2_LOCK_ELEMENT (MS-SMB2 2.2.26.1).
#[derive(Debug, Clone, Copy)]
pub struct LockElement {
    /// Bytes to lock or unlock.
    pub range: ByteRange,
    /// `None` unlocks.
    pub exclusive: Option<bool>,
    /// The element does not wait for a lock in its way.
    pub fail_immediately: bool,
}

/// Range of a server-side copy or clone (MS-SMB2 2.2.31.1.1).
#[derive(Debug, Clone, Copy)]
pub struct CopyChunk {
    /// First byte in the source.
    pub source_offset: u64,
    /// First byte in the target.
    pub target_offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// Request of a server to a volume; answered by [`Event::Done`].
#[derive(Debug, Clone)]
pub enum Operation {
    /// Answers the directory at `path` from the volume's root as a [`ShareRoot`].
    ///
    /// # Errors
    /// As for opening `path`; NOT_A_DIRECTORY for a file, IO_REPARSE_TAG_NOT_HANDLED for a reparse point.
    OpenRoot {
        /// Path of the directory from the volume's root; empty: the root itself.
        path: WideString,
    },
    /// Answers [`Reply::Created`]; waits for breaks of others' caching.
    Create(Box<Create>),
    /// Answers [`Reply::Created`] if the open still waits for this client.
    Reconnect(Box<Reconnect>),
    /// Answers [`Reply::DeviceOpened`]; a volume of files has no devices, and answers INVALID_DEVICE_REQUEST.
    OpenDevice(Box<OpenDevice>),
    /// An FSCTL of this server's own on a device. Answers [`Reply::Output`]; a volume of files answers INVALID_DEVICE_REQUEST.
    Control {
        /// Open of the device.
        open: OpenId,
        /// Code of the FSCTL.
        code: u32,
        /// Input of the FSCTL, as the client sent it.
        input: Vec<u8>,
        /// Longest output that the client takes, in bytes.
        output_bytes_max: usize,
    },
    /// Ends the open; answers [`Reply::Closed`].
    Close {
        /// Open to end.
        open: OpenId,
        /// Answers the file's properties too (SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB).
        query: bool,
    },
    /// Answers [`Reply::Read`].
    Read {
        /// Open of a file or stream.
        open: OpenId,
        /// Bytes wanted.
        range: ByteRange,
        /// SMB2_READFLAG_READ_UNBUFFERED was set; without effect on volumes.
        unbuffered: bool,
    },
    /// Answers [`Reply::Written`].
    Write {
        /// Open of a file or stream.
        open: OpenId,
        /// First byte to write.
        offset: u64,
        /// Bytes to write.
        data: Payload,
        /// The bytes are durable before the answer (SMB2_WRITEFLAG_WRITE_THROUGH).
        write_through: bool,
        /// SMB2_WRITEFLAG_WRITE_UNBUFFERED was set; without effect on volumes.
        unbuffered: bool,
    },
    /// Answers [`Reply::Done`] once the file's data and metadata are durable.
    Flush {
        /// Open of the file.
        open: OpenId,
    },
    /// Answers [`Reply::Information`].
    QueryInformation {
        /// Open of the file.
        open: OpenId,
    },
    /// Answers [`Reply::Done`].
    SetInformation {
        /// Open of the file.
        open: OpenId,
        /// Property and its new value.
        set: SetInformation,
    },
    /// Answers [`Reply::Streams`].
    QueryStreams {
        /// Open of the file.
        open: OpenId,
    },
    /// Answers a name of eight and three characters by which the file can be opened.
    QueryShortName {
        /// Open of the file.
        open: OpenId,
    },
    /// Answers [`Reply::ExtendedAttributes`] with the whole list.
    QueryExtendedAttributes {
        /// Open of the file.
        open: OpenId,
    },
    /// `parts`: SECURITY_INFORMATION (MS-DTYP 2.4.7).
    QuerySecurity {
        /// Open of the file.
        open: OpenId,
        /// Parts to answer; others are left out.
        parts: u32,
    },
    /// Answers [`Reply::Done`].
    SetSecurity {
        /// Open of the file.
        open: OpenId,
        /// SECURITY_INFORMATION: parts to set.
        parts: u32,
        /// Self-relative descriptor (MS-DTYP 2.4.6) that has these parts.
        descriptor: Vec<u8>,
    },
    /// Answers the volume's size and free space, as far as the open's caller may see them.
    QueryVolume {
        /// Open of any file on the volume.
        open: OpenId,
    },
    /// Answers [`Reply::Quotas`].
    QueryQuotas {
        /// Open of any file on the volume.
        open: OpenId,
        /// Users asked for.
        query: QuotaQuery,
    },
    /// Answers [`Reply::Done`].
    SetQuotas {
        /// Open of any file on the volume.
        open: OpenId,
        /// Settings or limits to change.
        change: QuotaChange,
    },
    /// Entries after `after` (0: from the start) that match `pattern` by the rule of MS-FSA 2.1.4.4, at most `entries_max`.
    QueryDirectory {
        /// Open of the directory.
        open: OpenId,
        /// Pattern of names, with wildcards; `*` matches all.
        pattern: WideString,
        /// Cookie of the last entry that the client has.
        after: u64,
        /// Most entries of the answer.
        entries_max: u32,
        /// Include short names in the entries.
        short_names: bool,
    },
    /// Locks or unlocks all elements or none; waits if an element may wait.
    Lock {
        /// Open of a file or stream.
        open: OpenId,
        /// Locks, or unlocks; a mix is refused.
        elements: Vec<LockElement>,
        /// LockSequence (MS-SMB2 2.2.26), which identifies a repeated request.
        sequence: Option<u32>,
    },
    /// Answers once, at the first change; `filter` as MS-SMB2 2.2.35.
    Notify {
        /// Open of the directory.
        open: OpenId,
        /// FILE_NOTIFY_CHANGE_* bits.
        filter: u32,
        /// Changes below subdirectories count too (SMB2_WATCH_TREE).
        tree: bool,
        /// Limit of the answer in bytes; beyond it the client enumerates again.
        bytes_max: u32,
    },
    /// Sets or clears FILE_ATTRIBUTE_SPARSE_FILE (FSCTL_SET_SPARSE).
    SetSparse {
        /// Open of a file or stream.
        open: OpenId,
        /// The attribute is set, else cleared.
        sparse: bool,
    },
    /// Makes bytes read as zeroes, and gives whole blocks back (FSCTL_SET_ZERO_DATA).
    ZeroRange {
        /// Open of a file or stream.
        open: OpenId,
        /// Bytes to zero.
        range: ByteRange,
    },
    /// Answers [`Reply::Ranges`] of allocated blocks (FSCTL_QUERY_ALLOCATED_RANGES).
    QueryAllocatedRanges {
        /// Open of a file or stream.
        open: OpenId,
        /// Bytes to examine.
        range: ByteRange,
    },
    /// Frees whole blocks that the client no longer needs (FSCTL_FILE_LEVEL_TRIM).
    Trim {
        /// Open of a file or stream.
        open: OpenId,
        /// Bytes no longer needed.
        ranges: Vec<ByteRange>,
    },
    /// Answers [`Reply::Copied`] (FSCTL_SRV_COPYCHUNK).
    CopyChunks {
        /// Open to read from.
        source: OpenId,
        /// Open to write to.
        target: OpenId,
        /// Ranges, copied in this order.
        chunks: Vec<CopyChunk>,
    },
    /// Shares blocks of the source with the target (FSCTL_DUPLICATE_EXTENTS_TO_FILE).
    DuplicateExtents {
        /// Open to share from.
        source: OpenId,
        /// Open to share with.
        target: OpenId,
        /// Range, of whole blocks.
        chunk: CopyChunk,
    },
    /// Answers [`Reply::ReparsePoint`] (FSCTL_GET_REPARSE_POINT).
    QueryReparsePoint {
        /// Open of the file.
        open: OpenId,
    },
    /// Makes the file a reparse point (FSCTL_SET_REPARSE_POINT).
    SetReparsePoint {
        /// Open of the file.
        open: OpenId,
        /// REPARSE_DATA_BUFFER (MS-FSCC 2.1.2.2) or its GUID form.
        data: Vec<u8>,
    },
    /// Removes the reparse point (FSCTL_DELETE_REPARSE_POINT).
    DeleteReparsePoint {
        /// Open of the file.
        open: OpenId,
        /// Reparse tag that the file must have.
        tag: u32,
    },
    /// Answers the object id; `create` makes a missing one.
    ObjectId {
        /// Open of the file.
        open: OpenId,
        /// Makes an object id if the file has none.
        create: bool,
    },
    /// Answers [`Reply::Done`], without effect: every file has checksums.
    SetIntegrity {
        /// Open of the file.
        open: OpenId,
        /// ChecksumAlgorithm (MS-FSCC 2.3.67).
        algorithm: u16,
        /// Flags of the request (MS-FSCC 2.3.67).
        flags: u32,
    },
    /// Accepts a break of an oplock (MS-SMB2 2.2.24.1); answers [`Reply::Oplock`].
    AcknowledgeOplock {
        /// Open that has the oplock.
        open: OpenId,
        /// Level that the client keeps.
        level: OplockLevel,
    },
    /// Accepts a break of a lease (MS-SMB2 2.2.24.2); answers [`Reply::Lease`].
    AcknowledgeLease {
        /// ClientGuid of the lease's holder.
        client: Guid,
        /// Key of the lease.
        key: Guid,
        /// Caching that the client keeps.
        state: LeaseState,
    },
    /// The session ended, by a LOGOFF or with its connection: opens are closed, but durable ones wait for their client (MS-SMB2 3.3.5.6).
    EndSession {
        /// Session whose opens end or wait.
        session: SessionId,
    },
    /// The answer that gave the session the open was lost: the open waits for its client again, or is
    /// closed if it cannot.
    Abandon(OpenId, SessionId),
    /// An administrator closes it.
    ForceClose {
        /// Open to end, without regard to its client.
        open: OpenId,
    },
}

/// Content of an answer; the operation says which.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The operation took effect, and there is nothing to answer.
    Done,
    /// Directory that a path leads to.
    Root(ShareRoot),
    /// Open that a create or a reconnect gave.
    Created(Box<Created>),
    /// `context`: data of the create context of the answer, of the same name as that of the request.
    DeviceOpened {
        /// Identity of the open for later operations.
        open: OpenId,
        /// Data of the create context of the answer.
        context: Vec<u8>,
    },
    /// Output of [`Operation::Control`].
    Output(Vec<u8>),
    /// Properties of the file at its close, if requested.
    Closed(Option<FileInformation>),
    /// Fewer bytes than asked: the file ends there.
    Read(Payload),
    /// Bytes written.
    Written(u32),
    /// Properties of the file.
    Information(Box<FileInformation>),
    /// Data streams of the file, the unnamed one included.
    Streams(Vec<StreamEntry>),
    /// Name of eight and three characters.
    Name(WideString),
    /// All extended attributes, in the order in which they were first set.
    ExtendedAttributes(Vec<ExtendedAttribute>),
    /// Self-relative descriptor (MS-DTYP 2.4.6) with the parts asked for.
    Security(Vec<u8>),
    /// Size, free space and identity of the volume.
    Volume(Box<VolumeInformation>),
    /// Users' limits and use of space.
    Quotas(Vec<QuotaUser>),
    /// Entries in the order of their names.
    Directory(Vec<DirectoryEntry>),
    /// FILE_ACTION_* and path relative to the watched directory; empty: too many changes, enumerate again.
    Notify(Vec<(u32, WideString)>),
    /// `more`: ranges may follow the last one; the client continues from there.
    Ranges {
        /// Allocated ranges by rising offset.
        ranges: Vec<ByteRange>,
        /// The list was cut.
        more: bool,
    },
    /// Outcome of a server-side copy, of all chunks or until one failed.
    Copied {
        /// Chunks that were copied whole.
        chunks: u32,
        /// Bytes that were copied.
        bytes: u64,
    },
    /// REPARSE_DATA_BUFFER of the file (MS-FSCC 2.1.2.2).
    ReparsePoint(Vec<u8>),
    /// Object id of the file.
    ObjectId(Guid),
    /// Lease after an acknowledged break.
    Lease {
        /// Key of the lease.
        key: Guid,
        /// Caching that it grants now.
        state: LeaseState,
    },
    /// Oplock after an acknowledged break.
    Oplock(OplockLevel),
}

/// Event of a volume, for the server.
#[derive(Debug)]
pub enum Event {
    /// An operation has ended.
    Done {
        /// Id that the caller chose.
        operation: OperationId,
        /// Answer, or the reason for refusing.
        result: Result<Reply, Refusal>,
    },
    /// The operation waits for something that may take long (a lock, a break, a change): the server should
    /// tell the client.
    Pending {
        /// Id that the caller chose.
        operation: OperationId,
    },
    /// To the holder of the open.
    BreakOplock {
        /// Open whose oplock breaks.
        open: OpenId,
        /// Session that has the open.
        session: SessionId,
        /// Level to which it breaks.
        to: OplockLevel,
    },
    /// To the client that holds the lease, on any of its connections.
    BreakLease {
        /// ClientGuid of the lease's holder.
        client: Guid,
        /// Key of the lease.
        key: Guid,
        /// Caching granted so far.
        from: LeaseState,
        /// Caching that stays.
        to: LeaseState,
        /// The client has to acknowledge the break before it counts as over.
        acknowledge: bool,
        /// NewEpoch (MS-SMB2 2.2.23.2); 0 for version 1.
        epoch: u16,
    },
    /// A rename of the open's file changed the open's name. `path` is that of [`Created`].
    Renamed {
        /// The renamed open.
        open: OpenId,
        /// New path below the caller's root, without leading `\`.
        path: WideString,
    },
    /// The volume closed the open itself: timeout, administrator, or a newer application instance.
    Closed {
        /// The closed open.
        open: OpenId,
    },
}

/// The file layer as a server sees it. Nothing blocks; time is an argument.
pub trait Backend {
    /// Begins an operation; an [`Event::Done`] of the same id, from a later poll, answers it.
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic);
    /// Ends a waiting operation with STATUS_CANCELLED; no effect if it is past waiting.
    fn cancel(&mut self, operation: OperationId);
    /// Judges every open and every waiting create by its standing. A [`Ruling::Close`] is in force at the
    /// return: the open does nothing more and cannot be found again.
    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic);
    /// Appends the events since the last call to `out`.
    fn poll(&mut self, out: &mut Vec<Event>);
    /// Counts the byte-range locks of an open; 0 for a backend without files.
    fn lock_count(&self, _open: OpenId) -> usize {
        0
    }
    /// Returns the time at which [`Backend::handle_timeout`] has to be called next.
    fn next_timeout(&self) -> Option<Monotonic>;
    /// Handles the timers that are due at `now`.
    fn handle_timeout(&mut self, now: Monotonic);
}
