//! Types of the file layer: identities, errors, arguments and results of its calls.

use space::api::SpaceError;
use sys::Payload;
use types::{FileTime, Lba};

pub use crate::values::{ExtendedAttribute, WideString};

/// Names a file or directory for the life of the volume; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId(pub u64);

impl FileId {
    /// The root directory of every volume.
    pub const ROOT: Self = Self(5);
}

/// How deep directories can lie: bounds walks upward.
pub const DEPTH_MAX: usize = 8192;

/// A data stream of a file. Never reused within its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// File that has the stream.
    pub file: FileId,
    /// 0: the unnamed stream.
    pub index: u32,
}

impl StreamId {
    /// The unnamed stream of a file.
    pub const fn unnamed(file: FileId) -> Self {
        Self { file, index: 0 }
    }
}

/// Key of a record of open state, which outlives the server. No two records have the same key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenStateKey {
    /// Record of an open, under the number of its `OpenId`.
    Open(u64),
    /// A byte-range lock of an open.
    Lock {
        /// Number of the `OpenId` that holds the lock.
        open: u64,
        /// First byte of the locked range.
        offset: u64,
        /// Bytes of the locked range.
        len_bytes: u64,
        /// The lock is shared, not exclusive.
        shared: bool,
    },
    /// A lease: the client and the key that it chose.
    Lease {
        /// ClientGuid of the lease's holder (MS-SMB2 2.2.3).
        client: [u8; 16],
        /// LeaseKey of the client's choice (MS-SMB2 2.2.13.2.8).
        key: [u8; 16],
    },
    /// A name, ignoring case, deleted with the last open of its file.
    DeletedLink {
        /// File that loses the name with its last open.
        file: FileId,
        /// Directory that has the name.
        parent: FileId,
        /// The name itself, compared ignoring case.
        name: WideString,
    },
    /// A named stream deleted with its last open.
    DeletedStream(StreamId),
}

/// Why the file layer refuses or fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FsError {
    /// Pages that the operation needs are being read, or something has to be written first. Nothing was
    /// changed: run the whole operation again after the next [`FsEvent::Retry`].
    #[error("not in memory yet")]
    Miss,
    /// No file, stream or directory entry has the name or id.
    #[error("no such file, stream or entry")]
    NotFound,
    /// Another entry or stream has the name, and it is not to be replaced.
    #[error("the name is taken")]
    Exists,
    /// A directory is needed, and the file is none.
    #[error("not a directory")]
    NotDirectory,
    /// A file is needed, and a directory was named.
    #[error("a directory")]
    IsDirectory,
    /// The directory to be removed still has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// Empty, longer than 255 UTF-16 units, `.` or `..`, or with a forbidden character.
    #[error("not a name a file can have")]
    NameInvalid,
    /// The new parent of a directory lies below that directory.
    #[error("a directory cannot be moved below itself")]
    Loop,
    /// The file has [`LINKS_MAX`](super::LINKS_MAX) links, or a shared block `u32::MAX` references.
    #[error("the file has as many links as it can have")]
    TooManyLinks,
    /// The file has [`NAMED_STREAMS_MAX`](super::NAMED_STREAMS_MAX) named streams.
    #[error("the file has as many named streams as it can have")]
    TooManyStreams,
    /// The virtual disk has no free space for the data or its metadata.
    #[error("the volume is full")]
    NoSpace,
    /// The change would take the file's owner beyond the quota limit.
    #[error("the file's owner may not have more on the volume")]
    QuotaExceeded,
    /// A file size, an attribute or a descriptor beyond what a volume can hold.
    #[error("larger than a volume can hold")]
    TooLarge,
    /// The caller's arguments break a rule, named by the text.
    #[error("{0}")]
    Invalid(&'static str),
    /// Structures or data that no copy of the virtual disk has intact.
    #[error("damaged at block {lba}: {what}")]
    Corrupt { what: &'static str, lba: Lba },
    /// The checkpoint needs a page that no copy has intact: files can be read, nothing can be changed until the page can be read.
    #[error("the volume can only be read: damaged at block {lba}: {what}")]
    ReadOnly { what: &'static str, lba: Lba },
    /// Another coordinator owns the volume: this instance must stop.
    #[error("another coordinator owns the volume")]
    Fenced,
    /// Too few copies can be reached at present: the operation may succeed later.
    #[error("too few copies of the volume can be reached")]
    Unavailable,
    /// The virtual disk carries no volume of this format.
    #[error("not a volume: {0}")]
    NotAVolume(&'static str),
    /// Another version of this program wrote the volume, which is left as it is.
    #[error("{0}")]
    OtherFormat(&'static str),
    /// A metadata write failed earlier: nothing more is accepted until the volume is opened again.
    #[error("the volume stopped after a failed write")]
    Stopped,
}

impl FsError {
    /// Reports metadata that cannot be as it was written.
    pub(crate) const fn damaged(what: &'static str) -> Self {
        Self::Corrupt { what, lba: Lba(0) }
    }

    /// The file layer's view of a virtual disk's error.
    pub fn from_space(error: &SpaceError) -> Self {
        match error {
            SpaceError::Corrupt { lbas } => {
                Self::Corrupt { what: "no intact copy", lba: lbas.first().copied().unwrap_or_default() }
            }
            SpaceError::NoSpace => Self::NoSpace,
            SpaceError::Fenced => Self::Fenced,
            SpaceError::Unavailable => Self::Unavailable,
            SpaceError::Invalid(why) => Self::Invalid(why),
        }
    }
}

/// Attributes of a file, as clients see them: sizes and times include changes that are not durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// File or directory that the attributes are those of.
    pub file: FileId,
    /// The file is a directory.
    pub directory: bool,
    /// FILE_ATTRIBUTE_* (MS-FSCC 2.6) as stored; the file layer maintains DIRECTORY, SPARSE_FILE and
    /// REPARSE_POINT.
    pub attributes: u32,
    /// Time of creation, as stored or set by a client.
    pub created: FileTime,
    /// Time of the last access.
    pub accessed: FileTime,
    /// Time of the last write of data.
    pub written: FileTime,
    /// Time of the last change of data, attributes or names.
    pub changed: FileTime,
    /// Of the unnamed stream, in bytes.
    pub end_of_file: u64,
    /// Of the unnamed stream, in bytes.
    pub allocation_bytes: u64,
    /// Names of the file in directories; 0 once the last one is removed.
    pub link_count: u32,
    /// 0: no reparse point.
    pub reparse_tag: u32,
    /// Length as MS-FSCC 2.4.15 packs them; 0: none.
    pub extended_attribute_bytes: u32,
    /// Id of the descriptor, equal for byte-equal ones; 0: none.
    pub security: SecurityId,
}

/// Names a stored security descriptor: equal descriptors have equal names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SecurityId(pub u64);

/// Changes of attributes; `None` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttributeChange {
    /// New time of creation.
    pub created: Option<FileTime>,
    /// New time of the last access.
    pub accessed: Option<FileTime>,
    /// New time of the last write of data.
    pub written: Option<FileTime>,
    /// New time of the last change of data or attributes.
    pub changed: Option<FileTime>,
    /// FILE_ATTRIBUTE_*: others than a client may set are ignored.
    pub attributes: Option<u32>,
}

/// A file about to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// A directory is made, not a file.
    pub directory: bool,
    /// FILE_ATTRIBUTE_*: others than a client may set are ignored.
    pub attributes: u32,
    /// All four times of the new file, and the change of its directory.
    pub now: FileTime,
    /// Self-relative security descriptor, opaque here; empty: none.
    pub security: &'a [u8],
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name in its original case.
    pub name: WideString,
    /// File or directory that the name leads to.
    pub file: FileId,
    /// The entry is a directory.
    pub directory: bool,
}

/// A name of a file, in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardLink {
    /// Directory that has the name.
    pub parent: FileId,
    /// Name in its original case.
    pub name: WideString,
}

/// One data stream of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInformation {
    /// The stream's identity, by which it is read and written.
    pub stream: StreamId,
    /// Empty: the unnamed stream.
    pub name: WideString,
    /// Length of the stream in bytes.
    pub end_of_file: u64,
    /// Bytes of blocks allocated to the stream.
    pub allocation_bytes: u64,
}

/// Outcome for a file whose name was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlinked {
    /// File that lost the name.
    pub file: FileId,
    /// The removed name was the last one: [`super::FileSystem::reclaim`] gives the file's space back.
    pub last: bool,
}

/// Figures of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// All of the virtual disk.
    pub total_bytes: u64,
    /// Space taken by files, and the chunks of the journal and of metadata.
    pub used_bytes: u64,
    /// Space left for new data: together with `used_bytes` less than the total if the pool is smaller than
    /// the volume, and nothing if metadata has no space.
    pub available_bytes: u64,
    /// Lack of space for metadata refuses everything that grows; free space for data does not help.
    pub lacks_metadata_room: bool,
    /// Bytes of file data in memory, dirty ones included.
    pub cache_bytes: u64,
    /// Bytes in memory that have not been written to the virtual disk yet.
    pub dirty_bytes: u64,
    /// Bytes of metadata journal that opening would replay.
    pub journal_bytes: u64,
    /// Bytes of reads, since the opening, answered without a read of a disk.
    pub read_from_cache_bytes: u64,
    /// Bytes of the other reads.
    pub read_from_disk_bytes: u64,
}

/// Identity and label of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Volume's GUID, drawn when the volume is formatted; never changed.
    pub id: [u8; 16],
    /// Name that administrators gave the volume; at most 255 bytes of UTF-8.
    pub label: String,
    /// VolumeSerialNumber, a random number (MS-FSCC 2.5.9).
    pub serial: u32,
    /// Time at which the volume was formatted.
    pub created: FileTime,
}

/// Limits that the administrator sets.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of file data kept in memory, dirty ones included.
    pub cache_bytes: usize,
    /// Of these, bytes that may wait to be written at most; fewer if they could not be written soon enough. Writes wait beyond.
    pub dirty_bytes: usize,
    /// Bytes of metadata pages kept in memory.
    pub page_cache_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { cache_bytes: 256 << 20, dirty_bytes: 64 << 20, page_cache_bytes: 64 << 20 }
    }
}

/// A volume about to be made.
#[derive(Debug, Clone)]
pub struct Format {
    /// GUID of the new volume.
    pub id: [u8; 16],
    /// First label of the volume; at most 255 bytes of UTF-8.
    pub label: String,
    /// VolumeSerialNumber of the new volume (MS-FSCC 2.5.9).
    pub serial: u32,
    /// Time of formatting: of the volume record and of the root directory.
    pub now: FileTime,
    /// Security descriptor of the root directory; empty: none.
    pub root_security: Vec<u8>,
}

/// Event since the last poll.
#[derive(Debug)]
pub enum FsEvent {
    /// The volume can be used.
    Opened,
    /// The volume cannot be opened, or has failed: every further operation answers this error.
    Failed(FsError),
    /// Operations that answered [`FsError::Miss`] should run again.
    Retry,
    /// A read that was pending has ended: `token` names it as in the call of `read`.
    Read {
        /// Caller's number of the read.
        token: u64,
        /// Bytes read, fewer than asked at the end of the stream, or the error.
        result: Result<Payload, FsError>,
    },
    /// A write that was pending has ended: `token` names it as in the call of `write`.
    Written {
        /// Caller's number of the write.
        token: u64,
        /// `Ok` once the bytes are in the cache, or durable if requested.
        result: Result<(), FsError>,
    },
    /// A flush that was pending has ended: `token` names it as in the call of `flush`.
    Flushed {
        /// Caller's number of the flush.
        token: u64,
        /// `Ok` once everything that the flush covers is durable.
        result: Result<(), FsError>,
    },
}
