//! The words of the file layer: identities, errors, arguments and results of its calls.

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

/// Names something that is kept of opens which outlive the server. No two of one name are kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenStateKey {
    Open(u64),
    /// A byte-range lock of an open.
    Lock {
        open: u64,
        offset: u64,
        len_bytes: u64,
        shared: bool,
    },
    /// A lease: the client and the key that it chose.
    Lease {
        client: [u8; 16],
        key: [u8; 16],
    },
    /// A name, ignoring case, that goes with the last open of its file.
    DeletedLink {
        file: FileId,
        parent: FileId,
        name: WideString,
    },
    /// A named stream that goes with its last open.
    DeletedStream(StreamId),
}

/// Why the file layer refuses or fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FsError {
    /// Pages that the operation needs are being read, or something has to be written first. Nothing was
    /// changed: run the whole operation again after the next [`FsEvent::Retry`].
    #[error("not in memory yet")]
    Miss,
    #[error("no such file, stream or entry")]
    NotFound,
    #[error("the name is taken")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("a directory")]
    IsDirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("not a name a file can have")]
    NameInvalid,
    #[error("a directory cannot be moved below itself")]
    Loop,
    #[error("the file has as many links as it can have")]
    TooManyLinks,
    #[error("the file has as many named streams as it can have")]
    TooManyStreams,
    #[error("the volume is full")]
    NoSpace,
    #[error("the file's owner may not have more on the volume")]
    QuotaExceeded,
    /// A file size, an attribute or a descriptor beyond what a volume can hold.
    #[error("larger than a volume can hold")]
    TooLarge,
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
    #[error("too few copies of the volume can be reached")]
    Unavailable,
    /// The virtual disk carries no volume of this format.
    #[error("not a volume: {0}")]
    NotAVolume(&'static str),
    /// The volume was written by another version of this program: it is left as it is.
    #[error("{0}")]
    OtherFormat(&'static str),
    /// A metadata write failed earlier: nothing more is accepted until the volume is opened again.
    #[error("the volume stopped after a failed write")]
    Stopped,
}

impl FsError {
    /// Metadata that cannot be what was written.
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
    pub file: FileId,
    pub directory: bool,
    /// FILE_ATTRIBUTE_* (MS-FSCC 2.6) as stored; DIRECTORY, SPARSE_FILE and REPARSE_POINT are kept right by the file layer.
    pub attributes: u32,
    pub created: FileTime,
    pub accessed: FileTime,
    pub written: FileTime,
    pub changed: FileTime,
    /// Of the unnamed stream, in bytes.
    pub end_of_file: u64,
    /// Of the unnamed stream, in bytes.
    pub allocation_bytes: u64,
    pub link_count: u32,
    /// 0: no reparse point.
    pub reparse_tag: u32,
    /// As MS-FSCC 2.4.15 packs them; 0: none.
    pub extended_attribute_bytes: u32,
    /// Equal for files with byte-equal security descriptors; 0: none.
    pub security: SecurityId,
}

/// Names a stored security descriptor: equal descriptors have equal names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SecurityId(pub u64);

/// Changes of attributes; `None` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttributeChange {
    pub created: Option<FileTime>,
    pub accessed: Option<FileTime>,
    pub written: Option<FileTime>,
    pub changed: Option<FileTime>,
    /// FILE_ATTRIBUTE_*: only those a client may set are taken.
    pub attributes: Option<u32>,
}

/// A file about to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    pub directory: bool,
    /// FILE_ATTRIBUTE_*: only those a client may set are taken.
    pub attributes: u32,
    /// All four times of the new file, and the change of its directory.
    pub now: FileTime,
    /// Self-relative security descriptor, opaque here; empty: none.
    pub security: &'a [u8],
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As it was given at creation.
    pub name: WideString,
    pub file: FileId,
    pub directory: bool,
}

/// A name of a file, in the directory that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub parent: FileId,
    pub name: WideString,
}

/// One data stream of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInformation {
    pub stream: StreamId,
    /// Empty: the unnamed stream.
    pub name: WideString,
    pub end_of_file: u64,
    pub allocation_bytes: u64,
}

/// Outcome for a file whose name was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlinked {
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
    /// Everything that grows is refused for lack of space for metadata, which free space for data is not.
    pub lacks_metadata_room: bool,
    pub cache_bytes: u64,
    pub dirty_bytes: u64,
    /// Bytes of metadata journal that opening would replay.
    pub journal_bytes: u64,
    /// Bytes of reads, since the opening, for which no disk was asked.
    pub read_from_cache_bytes: u64,
    /// Bytes of the other reads.
    pub read_from_disk_bytes: u64,
}

/// Identity and label of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    pub id: [u8; 16],
    pub label: String,
    pub serial: u32,
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
    pub id: [u8; 16],
    pub label: String,
    pub serial: u32,
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
    Read {
        token: u64,
        result: Result<Payload, FsError>,
    },
    Written {
        token: u64,
        result: Result<(), FsError>,
    },
    Flushed {
        token: u64,
        result: Result<(), FsError>,
    },
}
