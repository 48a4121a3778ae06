//! Trees, open files, and their properties.

use smb::wire::{
    CreateRequestBody, CreateResponse, DirectoryTimes, FILE_CREATE, FILE_OPEN, FILE_OPEN_IF,
    FILE_OVERWRITE_IF, FileId, NetworkOpenInformation, OPLOCK_LEVEL_BATCH, OPLOCK_LEVEL_NONE, U32,
};
use types::{FileTime, attribute};

/// FILE_READ_DATA, FILE_READ_EA, FILE_READ_ATTRIBUTES, READ_CONTROL, SYNCHRONIZE.
const READ_ACCESS: u32 = 0x0012_0089;
/// FILE_WRITE_DATA, FILE_APPEND_DATA, FILE_WRITE_EA, FILE_WRITE_ATTRIBUTES, READ_CONTROL, SYNCHRONIZE.
const WRITE_ACCESS: u32 = 0x0012_0116;
const DELETE_ACCESS: u32 = 0x0001_0000;
const READ_CONTROL: u32 = 0x0002_0000;
const SHARE_READ: u32 = 1;
const SHARE_DELETE: u32 = 4;
const SHARE_ALL: u32 = 7;
const FILE_DIRECTORY_FILE: u32 = 1;
const FILE_WRITE_THROUGH: u32 = 2;
const FILE_SEQUENTIAL_ONLY: u32 = 4;
const FILE_NO_INTERMEDIATE_BUFFERING: u32 = 8;
const FILE_NON_DIRECTORY_FILE: u32 = 0x40;
const FILE_RANDOM_ACCESS: u32 = 0x800;
const FILE_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

/// A connected share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// TreeId that the server gave to the tree connect.
    pub id: u32,
    /// The share demands that everything is encrypted.
    pub must_encrypt: bool,
    /// IPC$.
    pub is_pipe: bool,
    /// Access that the share grants at most.
    pub maximal_access: u32,
    /// The share grants persistent handles, which outlive their server (MS-SMB2 2.2.10).
    pub is_continuously_available: bool,
    /// Which of the client's sessions calls it so: each lost one has another after it.
    pub(crate) session: u32,
}

/// An open file, directory or pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Tree connect in which it was opened.
    pub tree: Tree,
    /// FileId of the server (MS-SMB2 2.2.14.1).
    pub id: FileId,
    /// As it was when the file was opened.
    pub status: FileStatus,
    /// Reads and writes ask the server not to cache.
    pub is_unbuffered: bool,
    /// The server keeps it open for a client that lost all its connections.
    pub is_durable: bool,
}

/// Sizes, times and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// Bytes of the data, from the first to the last one.
    pub size_bytes: u64,
    /// Bytes that the data takes on disk.
    pub allocated_bytes: u64,
    /// Time of creation.
    pub created: FileTime,
    /// Time of the last read.
    pub accessed: FileTime,
    /// Time of the last write of data.
    pub written: FileTime,
    /// Time of the last change of data or attributes.
    pub changed: FileTime,
    /// MS-FSCC 2.6.
    pub attributes: u32,
}

impl FileStatus {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.attributes & attribute::DIRECTORY != 0
    }

    pub(crate) fn from_create(response: &CreateResponse<'_>) -> Self {
        Self {
            size_bytes: response.end_of_file.get(),
            allocated_bytes: response.allocation_size.get(),
            created: FileTime(response.creation_time.get()),
            accessed: FileTime(response.last_access_time.get()),
            written: FileTime(response.last_write_time.get()),
            changed: FileTime(response.change_time.get()),
            attributes: response.file_attributes.get(),
        }
    }

    pub(crate) fn from_network_open(information: &NetworkOpenInformation) -> Self {
        Self {
            size_bytes: information.end_of_file.get(),
            allocated_bytes: information.allocation_size.get(),
            created: FileTime(information.creation_time.get()),
            accessed: FileTime(information.last_access_time.get()),
            written: FileTime(information.last_write_time.get()),
            changed: FileTime(information.change_time.get()),
            attributes: information.file_attributes.get(),
        }
    }

    pub(crate) fn from_directory(times: &DirectoryTimes) -> Self {
        Self {
            size_bytes: times.end_of_file.get(),
            allocated_bytes: times.allocation_size.get(),
            created: FileTime(times.creation_time.get()),
            accessed: FileTime(times.last_access_time.get()),
            written: FileTime(times.last_write_time.get()),
            changed: FileTime(times.change_time.get()),
            attributes: times.file_attributes.get(),
        }
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name in the directory, without a path.
    pub name: String,
    /// Sizes, times and attributes when the directory was read.
    pub status: FileStatus,
    /// File id, unique in its volume; 0 if the server reports none.
    pub file_id: u64,
}

/// How to open: made by its constructors, refined by its methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    access: u32,
    share: u32,
    disposition: u32,
    options: u32,
    is_durable: bool,
    is_persistent: bool,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub const fn read() -> Self {
        Self {
            access: READ_ACCESS,
            share: SHARE_ALL,
            disposition: FILE_OPEN,
            options: FILE_NON_DIRECTORY_FILE,
            is_durable: false,
            is_persistent: false,
        }
    }

    /// Opens a file for reading and writing, and makes it if there is none.
    pub const fn write() -> Self {
        Self { access: READ_ACCESS | WRITE_ACCESS, disposition: FILE_OPEN_IF, ..Self::read() }
    }

    /// A file for reading and writing, empty.
    pub const fn overwrite() -> Self {
        Self { disposition: FILE_OVERWRITE_IF, ..Self::write() }
    }

    /// A file for reading and writing that must not exist yet.
    pub const fn create_new() -> Self {
        Self { disposition: FILE_CREATE, ..Self::write() }
    }

    /// An existing directory, for listing.
    pub const fn directory() -> Self {
        Self { options: FILE_DIRECTORY_FILE, ..Self::read() }
    }

    /// A new directory.
    pub const fn create_directory() -> Self {
        Self { disposition: FILE_CREATE, ..Self::directory() }
    }

    /// Any existing file or directory, for its attributes.
    pub const fn any() -> Self {
        Self { access: 0x0010_0080, options: 0, ..Self::read() }
    }

    /// Any existing file or directory, for deleting or renaming it; of a link the link itself.
    pub const fn delete() -> Self {
        Self { access: DELETE_ACCESS | 0x0010_0080, options: FILE_OPEN_REPARSE_POINT, ..Self::any() }
    }

    /// A new file for writing, which may be renamed or deleted by its handle. Nobody else may open it for writing.
    pub const fn create_temporary() -> Self {
        Self {
            access: READ_ACCESS | WRITE_ACCESS | DELETE_ACCESS,
            share: SHARE_READ | SHARE_DELETE,
            ..Self::create_new()
        }
    }

    /// Any existing file or directory, for its list of access rights.
    pub const fn access_list() -> Self {
        Self { access: READ_CONTROL | 0x0010_0080, ..Self::any() }
    }

    /// An existing directory, for setting its times.
    pub const fn directory_times() -> Self {
        Self { access: 0x0010_0180, ..Self::directory() }
    }

    /// With exactly this access (MS-SMB2 2.2.13.1).
    #[must_use]
    pub const fn with_access(mut self, access: u32) -> Self {
        self.access = access;
        self
    }

    /// With exactly this sharing: 1 read, 2 write, 4 delete.
    #[must_use]
    pub const fn with_share(mut self, share: u32) -> Self {
        self.share = share;
        self
    }

    /// Every write is durable before it is answered.
    #[must_use]
    pub const fn write_through(mut self) -> Self {
        self.options |= FILE_WRITE_THROUGH;
        self
    }

    /// Asks the server to keep the file open when all connections are lost (durable handle of version 2, dialect 3.0 and later), which
    /// it does until somebody else opens it: [`File::is_durable`] says whether the server agreed. See [`crate::Options::reconnect`].
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.is_durable = true;
        self
    }

    pub(crate) fn is_durable(self) -> bool {
        self.is_durable
    }

    /// Asks for a persistent handle, which outlives the server too, where the share grants them; an ordinary open on other shares. Needs
    /// no caching, so others may open the file. [`File::is_durable`] says whether the server agreed.
    #[must_use]
    pub const fn persistent(mut self) -> Self {
        self.is_persistent = true;
        self
    }

    pub(crate) fn is_persistent(self) -> bool {
        self.is_persistent
    }

    /// Nothing is cached on the server: offsets and lengths have to be multiples of its sector size.
    #[must_use]
    pub const fn unbuffered(mut self) -> Self {
        self.options |= FILE_NO_INTERMEDIATE_BUFFERING;
        self
    }

    /// A hint: mostly from front to back.
    #[must_use]
    pub const fn sequential_only(mut self) -> Self {
        self.options |= FILE_SEQUENTIAL_ONLY;
        self
    }

    /// A hint: here and there.
    #[must_use]
    pub const fn random_access(mut self) -> Self {
        self.options |= FILE_RANDOM_ACCESS;
        self
    }

    pub(crate) fn is_unbuffered(self) -> bool {
        self.options & FILE_NO_INTERMEDIATE_BUFFERING != 0
    }

    pub(crate) fn body(self) -> CreateRequestBody {
        CreateRequestBody {
            requested_oplock_level: if self.is_durable { OPLOCK_LEVEL_BATCH } else { OPLOCK_LEVEL_NONE },
            desired_access: U32::new(self.access),
            share_access: U32::new(self.share),
            create_disposition: U32::new(self.disposition),
            create_options: U32::new(self.options),
            file_attributes: U32::new(attribute::NORMAL),
            ..Default::default()
        }
    }
}
