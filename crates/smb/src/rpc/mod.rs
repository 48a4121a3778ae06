//! DCE/RPC over named pipes (MS-RPCE, C706): srvsvc, wkssvc, lsarpc, samr and smaller ones, as pure functions behind a pipe object.
//!
//! Owns: PDUs, fragments, NDR, logons in pipes, and the answers of the interfaces. Promises: bounded memory and work per pipe, a fault for
//! every operation that is not known and for stubs that make no sense, no panic on any input. Never does I/O: shares, names
//! and sessions come from a [`Directory`].

mod dispatch;
mod dssetup;
mod enumeration;
mod epmapper;
mod handles;
mod interface;
mod lsarpc;
mod management;
mod ndr;
mod pdu;
mod pipe;
mod protection;
mod samr;
mod srvsvc;
mod svcctl;
mod well_known;
mod winreg;
mod wkssvc;

pub use interface::is_known as is_pipe;
pub use lsarpc::privileges_told_of;
pub use pipe::{Pipe, PipeError, PipeRead};

use crate::auth::NtHash;
use types::{FileTime, Sid};

/// A Win32 error code (MS-ERREF 2.2), which srvsvc and wkssvc answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Win32(u32);

impl Win32 {
    const SUCCESS: Self = Self(0);
    const FILE_NOT_FOUND: Self = Self(2);
    const ACCESS_DENIED: Self = Self(5);
    const NOT_ENOUGH_MEMORY: Self = Self(8);
    const NOT_SUPPORTED: Self = Self(50);
    const INVALID_PARAMETER: Self = Self(87);
    const INVALID_NAME: Self = Self(123);
    const INVALID_LEVEL: Self = Self(124);
    const MORE_DATA: Self = Self(234);
    /// ERROR_GEN_FAILURE
    const FAILED: Self = Self(31);
    /// NERR_UnknownDevDir
    const UNKNOWN_DIRECTORY: Self = Self(2116);
    /// NERR_DuplicateShare
    const SHARE_EXISTS: Self = Self(2118);
    /// NERR_UserNotFound
    const USER_NOT_FOUND: Self = Self(2221);
    const NET_NAME_NOT_FOUND: Self = Self(2310);
    /// NERR_DeviceNotShared
    const DEVICE_NOT_SHARED: Self = Self(2311);
    /// NERR_ClientNameNotFound
    const CLIENT_NOT_FOUND: Self = Self(2312);
    /// NERR_FileIdNotFound
    const FILE_ID_NOT_FOUND: Self = Self(2314);
}

/// ERROR_INVALID_HANDLE, of interfaces with handles that answer Win32 errors.
const INVALID_HANDLE: u32 = 6;

/// The user of a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcCaller {
    pub user: String,
    pub domain: String,
    /// Member of BUILTIN\Administrators: may see paths and sessions, and change shares.
    pub is_administrator: bool,
    /// Hash that a logon of the same user in the pipe is checked against; `None`: no password opened the session.
    pub nt_hash: Option<NtHash>,
}

/// An administrator's request that no pipe can carry out by itself. The pipe's owner takes it by
/// [`Pipe::take_change`], carries it out as anybody else's, and reports the outcome to the pipe by
/// [`Pipe::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcChange {
    /// `path`: `C:\`, a volume's name and a directory on it.
    CreateShare {
        name: String,
        path: String,
        settings: ShareSettings,
    },
    SetShare {
        name: String,
        settings: ShareSettings,
    },
    DeleteShare {
        name: String,
    },
    /// [`FileEntry::open`]
    CloseFile {
        open: u64,
    },
    /// [`SessionEntry::id`] of each.
    CloseSessions {
        sessions: Vec<u64>,
    },
    /// Answered by the self-relative security descriptor of a file in a share.
    FileSecurity {
        share: String,
        path: String,
    },
}

/// The settings of a share that a client wants changed; `None`: as it is, or as it is by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShareSettings {
    pub comment: Option<String>,
    /// SHI1005_FLAGS (MS-SRVS 2.2.4.29).
    pub flags: Option<u32>,
    /// Self-relative security descriptor, from a client.
    pub security_descriptor: Option<Vec<u8>>,
}

/// The answer to a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpcDone {
    Changed,
    SecurityDescriptor(Vec<u8>),
}

/// Why a change was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcRefusal {
    NotFound,
    Exists,
    Invalid,
    NotSupported,
    AccessDenied,
    /// The outcome is unknown.
    Failed,
}

impl RpcRefusal {
    const fn win32(self, not_found: Win32) -> Win32 {
        match self {
            Self::NotFound => not_found,
            Self::Exists => Win32::SHARE_EXISTS,
            Self::Invalid => Win32::INVALID_PARAMETER,
            Self::NotSupported => Win32::NOT_SUPPORTED,
            Self::AccessDenied => Win32::ACCESS_DENIED,
            Self::Failed => Win32::FAILED,
        }
    }
}

/// The answer to a call.
enum Answer {
    Stub(Vec<u8>),
    /// The answer once a change has been made: its part before the status, and the status if the changed object
    /// is missing.
    Later {
        change: RpcChange,
        before_status: Vec<u8>,
        not_found: Win32,
    },
}

impl Answer {
    /// An answer that is a status alone.
    fn status(status: Win32) -> Self {
        Self::Stub(status.0.to_le_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Answer {
    fn from(stub: Vec<u8>) -> Self {
        Self::Stub(stub)
    }
}

/// Kind of a share (MS-SRVS 2.2.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareKind {
    Disk,
    /// IPC$.
    Pipe,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareEntry {
    pub name: String,
    pub kind: ShareKind,
    /// Hidden administrative share (STYPE_SPECIAL).
    pub is_special: bool,
    pub comment: String,
    /// The path that administrators see.
    pub path: String,
    pub current_uses: u32,
    /// SHI1005_FLAGS (MS-SRVS 2.2.4.29): caching, access-based enumeration, encryption.
    pub flags: u32,
    /// Self-relative security descriptor, if the share has one.
    pub security_descriptor: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    pub name: String,
    pub comment: String,
    /// Workgroup or domain.
    pub domain: String,
    pub version_major: u32,
    pub version_minor: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEntry {
    pub id: u64,
    /// Name or address of the client.
    pub client: String,
    pub user: String,
    pub open_files: u32,
    pub active_s: u32,
    pub idle_s: u32,
    pub is_guest: bool,
}

/// A tree connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEntry {
    pub id: u32,
    pub share: String,
    pub is_pipe: bool,
    /// Address of the client.
    pub client: String,
    pub user: String,
    pub open_files: u32,
    pub active_s: u32,
}

/// An open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// As clients name it; never zero.
    pub id: u32,
    /// As its server names it.
    pub open: u64,
    /// Place in the server's list: later files have higher places.
    pub place: u32,
    pub path: String,
    pub user: String,
    /// PERM_FILE_READ, PERM_FILE_WRITE and PERM_FILE_CREATE (MS-SRVS 2.2.4.7).
    pub permissions: u32,
    pub locks: u32,
}

/// Some of the open files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// By rising place.
    pub list: Vec<FileEntry>,
    /// Place of the first file that was not examined.
    pub more_at: Option<u32>,
}

/// A user, as samr reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserEntry {
    pub sid: Sid,
    pub name: String,
    pub full_name: String,
    pub enabled: bool,
    pub password_set: FileTime,
}

/// A local group, as samr reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupEntry {
    pub sid: Sid,
    pub name: String,
    pub members: Vec<Sid>,
}

/// Kind of account that a SID names (MS-SAMR 2.2.2.3, SID_NAME_USE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    User = 1,
    Group = 2,
    Domain = 3,
    Alias = 4,
    WellKnownGroup = 5,
    Unknown = 8,
    Computer = 9,
}

/// An account of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountEntry {
    pub sid: Sid,
    pub name: String,
    pub kind: AccountKind,
}

/// Facts that the interfaces report. They do not ask for well-known SIDs, which are the same
/// everywhere.
pub trait Directory {
    fn server(&self) -> ServerEntry;
    /// All shares, IPC$ included, in the order they are listed.
    fn shares(&self) -> Vec<ShareEntry>;
    fn sessions(&self) -> Vec<SessionEntry>;
    fn connections(&self) -> Vec<ConnectionEntry>;
    /// Open files from a place on: as many as can be examined in one go.
    fn files(&self, from: u32) -> Files;
    /// An open file by the name that clients have for it.
    fn file(&self, id: u32) -> Option<FileEntry>;
    /// All users, disabled ones too.
    fn users(&self) -> Vec<UserEntry>;
    /// All local groups, those of BUILTIN included.
    fn groups(&self) -> Vec<GroupEntry>;
    /// The SID of this server's own accounts' domain (S-1-5-21-...).
    fn domain_sid(&self) -> Sid;
    /// An account of this server by its SID.
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry>;
    /// An account of this server by its name, without regard to case.
    fn account_by_name(&self, name: &str) -> Option<AccountEntry>;
    fn now(&self) -> FileTime;
    /// Bytes that are fit for keys and nonces.
    fn random(&self, bytes: &mut [u8]);
}

#[cfg(test)]
mod tests;
