//! Values shared by the file server and the file layer.

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
    /// Bytes of any content; at most 65,535.
    pub value: Vec<u8>,
}

/// The calling user, with groups and privileges from the logon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The user's own account.
    pub user: Sid,
    /// Primary group: the group of files that the user makes.
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
    /// Privileges of a token that this server gives effect to; the bit values are its own.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Privileges: u32 {
        /// SeBackupPrivilege: reads any file opened with backup intent.
        const BACKUP = 1;
        /// SeRestorePrivilege: writes any file with backup intent, and sets any owner.
        const RESTORE = 2;
        /// SeSecurityPrivilege: reads and changes SACLs.
        const SECURITY = 4;
        /// SeTakeOwnershipPrivilege: grants WRITE_OWNER on any file.
        const TAKE_OWNERSHIP = 8;
    }
}
