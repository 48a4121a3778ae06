//! DCE/RPC over named pipes (MS-RPCE, C706): srvsvc, wkssvc and lsarpc, as pure functions behind a pipe object.
//!
//! Owns: PDUs, fragments, NDR, and the answers of three interfaces. Promises: bounded memory and work per pipe, a fault for
//! every operation that is not known and for stubs that make no sense, no panic on any input. Never does I/O: shares, names
//! and sessions come from a [`Directory`].

mod lsarpc;
mod ndr;
mod pdu;
mod pipe;
mod srvsvc;
mod well_known;
mod wkssvc;

pub use pipe::{Pipe, PipeError, PipeRead};

use types::{FileTime, Sid};

/// A Win32 error code (MS-ERREF 2.2), which srvsvc and wkssvc answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Win32(u32);

impl Win32 {
    const SUCCESS: Self = Self(0);
    const ACCESS_DENIED: Self = Self(5);
    const INVALID_PARAMETER: Self = Self(87);
    const INVALID_NAME: Self = Self(123);
    const INVALID_LEVEL: Self = Self(124);
    const MORE_DATA: Self = Self(234);
    const NET_NAME_NOT_FOUND: Self = Self(2310);
}

/// Who speaks through a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcCaller {
    pub user: String,
    pub domain: String,
    /// Member of BUILTIN\Administrators: may see paths and sessions.
    pub is_administrator: bool,
}

/// What a share is (MS-SRVS 2.2.2.4).
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
    /// What administrators see as its path.
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
    /// Name or address of the client.
    pub client: String,
    pub user: String,
    pub open_files: u32,
    pub active_s: u32,
    pub idle_s: u32,
    pub is_guest: bool,
}

/// What a SID names (MS-SAMR 2.2.2.3, SID_NAME_USE).
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

/// What the interfaces tell about. Well-known SIDs are not asked for: they are the same everywhere.
pub trait Directory {
    fn server(&self) -> ServerEntry;
    /// All shares, IPC$ included, in the order they are listed.
    fn shares(&self) -> Vec<ShareEntry>;
    fn sessions(&self) -> Vec<SessionEntry>;
    /// The SID of this server's own accounts' domain (S-1-5-21-...).
    fn domain_sid(&self) -> Sid;
    /// An account of this server by its SID.
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry>;
    /// An account of this server by its name, without regard to case.
    fn account_by_name(&self, name: &str) -> Option<AccountEntry>;
    fn now(&self) -> FileTime;
}

#[cfg(test)]
mod tests;
