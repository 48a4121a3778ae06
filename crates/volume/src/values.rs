//! Values that a file server and the file layer both speak of.

use types::Sid;

/// UTF-16 code units, as the wire carries them: may hold unpaired surrogates.
pub type WideString = Box<[u16]>;

/// An extended attribute of a file (MS-FSCC 2.4.16).
#[derive(Debug, Clone)]
pub struct ExtendedAttribute {
    /// Flags as the client set them (MS-FSCC 2.4.16), opaque here.
    pub flags: u8,
    /// ASCII, case-insensitive.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

/// The user who acts, with groups and privileges, as the logon found them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    pub user: Sid,
    pub primary_group: Sid,
    /// All groups, well-known ones included.
    pub groups: Vec<Sid>,
    /// SeBackupPrivilege, SeRestorePrivilege, SeSecurityPrivilege, SeTakeOwnershipPrivilege.
    pub privileges: Privileges,
}

impl AccessToken {
    /// Whether this is the same user with at least the groups and privileges of `other`.
    pub fn has_all_of(&self, other: &Self) -> bool {
        let Self { user, primary_group, groups, privileges } = other;
        self.user == *user
            && (self.primary_group == *primary_group || self.groups.contains(primary_group))
            && groups.iter().all(|group| self.groups.contains(group))
            && self.privileges.contains(*privileges)
    }
}

bitflags::bitflags! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Privileges: u32 {
        const BACKUP = 1;
        const RESTORE = 2;
        const SECURITY = 4;
        const TAKE_OWNERSHIP = 8;
    }
}
