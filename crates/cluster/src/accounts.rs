//! Users, groups and their security identifiers.
//!
//! Owns the shape of an account. Promises: a SID is never given twice. Never holds a password.

use serde::{Deserialize, Serialize};
use types::Sid;
use zeroize::Zeroizing;

/// A user of the server's own account database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub sid: Sid,
    pub enabled: bool,
    /// For people; may be empty.
    pub full_name: String,
    pub password_set_unix_s: u64,
}

/// A user with what a logon is checked against.
#[derive(Clone)]
pub struct UserSecret {
    pub user: User,
    /// MD4 of the UTF-16LE password (MS-NLMP 3.3.1 NTOWFv1).
    pub nt_hash: Zeroizing<[u8; 16]>,
}

/// A local group. Well-known ones (BUILTIN) have their own fixed SIDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub sid: Sid,
    /// Users or groups, by SID.
    pub members: Vec<Sid>,
}
