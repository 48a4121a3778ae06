//! Bodies of changing requests, and the views of accounts and shares.
//!
//! Owns data only. Unknown fields are refused, so that a misspelt option is not silently ignored.

use crate::model::{Provisioning, QuotaMode, Resiliency};
use records::accounts::{Group, User};
use records::api_tokens::{ApiToken, Role};
use records::shares::{Share, ShareAccess, ShareDurability};
use serde::{Deserialize, Serialize};
use types::VolumeId;
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDisk {
    /// Absolute path of a file, a partition or a whole block device.
    pub path: String,
    /// Makes a sparse file of this size if there is none.
    #[serde(default)]
    pub create_size_bytes: Option<u64>,
    /// Name of the pool; may be left out if there is only one.
    #[serde(default)]
    pub pool: Option<String>,
    #[serde(default)]
    pub fault_domain: FaultDomain,
}

/// Place of a disk; an empty name does not separate it from others at that level.
///
/// Not the pool's own type, which records hold: a request with an unknown field is refused, and a record with one is read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultDomain {
    #[serde(default)]
    pub rack: String,
    #[serde(default)]
    pub node: String,
    #[serde(default)]
    pub enclosure: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    pub name: String,
    pub disks: Vec<AddDisk>,
    /// Disks' worth of space kept for repair; left out: one for each node, at most four, none with fewer than three disks.
    #[serde(default)]
    pub reserve_disks: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPool {
    pub reserve_disks: u32,
}

/// The answer to a replacement.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Replaced {
    #[schema(value_type = String)]
    pub disk: types::DiskId,
    pub job: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LocateDisk {
    pub on: bool,
}

/// How to find a disk in its enclosure.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LocatedDisk {
    pub path: String,
    /// The device behind the path, if it is one.
    pub device: Option<String>,
    pub serial: Option<String>,
    /// Enclosure and slot, as the kernel names them.
    pub slot: Option<String>,
    /// Whether its LED was switched.
    pub led: bool,
    /// Why not, if it was not.
    pub message: String,
}

/// The answer to the deletion of a pool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeletedPool {
    pub name: String,
    /// Paths of disks that were away or failed: their labels are still there, until they are erased.
    pub labelled_disks: Vec<String>,
}

/// Makes a disk that belongs to no pool of this server hold nothing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseDisk {
    /// Absolute path of a file, a partition or a whole block device.
    pub path: String,
    /// The path once more. Without it nothing is done, and the refusal names the disk's contents.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// Makes a disk forget promises that no owner can fulfil, or promises that an older image of it lacks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetPromises {
    /// The disk's ID once more. Without it nothing is done, and the refusal names the volumes.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// A disk that has forgotten promises.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ForgottenPromises {
    #[schema(value_type = String)]
    pub disk: types::DiskId,
    /// The names of the volumes to which they were given.
    pub volumes: Vec<String>,
}

/// A disk that was erased.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErasedDisk {
    pub path: String,
    /// The disk's former content, in words.
    pub held: String,
}

/// Brings a pool back from its disks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// Name or id of the pool; may be left out if only one pool's disks are found.
    #[serde(default)]
    pub pool: Option<String>,
    /// Absolute paths of disks.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Directories, or disks, to look for labelled disks in; those of the configuration if neither these nor disks are given.
    #[serde(default)]
    pub search: Vec<String>,
    /// The pool's name on this server.
    #[serde(default)]
    pub rename: Option<String>,
    /// Key file of the server that had it (secret.key): opens its users' passwords.
    #[serde(default)]
    pub key_file: Option<String>,
    /// The pool's name: it may be taken although its last server did not export it.
    #[serde(default)]
    pub confirm: Option<String>,
    /// Proceeds without a majority of the pool's disks.
    #[serde(default)]
    pub accept_missing: bool,
}

/// Result of an import.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ImportedPool {
    pub name: String,
    pub volumes: Vec<String>,
    pub shares: Vec<String>,
    pub users: Vec<String>,
    /// Users who cannot log on until a password is set.
    pub passwords_lost: Vec<String>,
    pub missing_disks: Vec<String>,
    /// Volumes that are not served, and why.
    pub not_served: Vec<String>,
    /// The members of Administrators, now that the pool is here.
    #[serde(default)]
    pub administrators: Vec<String>,
    /// Records that were left out, with the reasons.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    pub name: String,
    /// Name of the pool; may be left out if there is only one.
    #[serde(default)]
    pub pool: Option<String>,
    #[serde(default)]
    pub resiliency: Resiliency,
    #[serde(default)]
    pub provisioning: Provisioning,
    pub size_bytes: u64,
    /// Fill level in percent from which health warns; left out: 90.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    pub warn_at_percent: Option<u8>,
}

/// Fields that are left out stay as they are.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetVolume {
    /// A volume only grows.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Fill level in percent from which health warns.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    pub warn_at_percent: Option<u8>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckVolume {
    /// Writes copies again that fail their checksum or differ.
    #[serde(default)]
    pub repair: bool,
    /// With `repair`: the volume's name.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// The answer to a request that made a disk, a pool or a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    pub id: String,
    /// Of a disk, its path.
    pub name: String,
}

/// Bounds of a user's data on a volume, in bytes; `None`: no bound.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaBounds {
    #[serde(default)]
    pub threshold_bytes: Option<u64>,
    #[serde(default)]
    pub limit_bytes: Option<u64>,
}

/// Fields that are left out stay as they are.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQuotas {
    #[serde(default)]
    pub mode: Option<QuotaMode>,
    /// Bounds of users who have none of their own.
    #[serde(default)]
    pub defaults: Option<QuotaBounds>,
}

/// The answer to a request that began a storage job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Started {
    pub job: u64,
}

/// The rights of one user or group through a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// A user, a group, `Everyone`, `Authenticated Users`, or a SID.
    pub who: String,
    #[schema(value_type = String)]
    pub access: ShareAccess,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    pub name: String,
    pub volume: String,
    #[schema(value_type = String)]
    pub volume_id: VolumeId,
    pub path: String,
    pub comment: String,
    pub access: Vec<Grant>,
    #[schema(value_type = String)]
    pub durability: ShareDurability,
    pub read_only: bool,
    /// Open files, leases and locks survive a restart or crash of the server; every write is durable before its answer, as with `durability` `write`.
    pub continuously_available: bool,
    /// Clients learn that any server may serve the share, and cache reads at most.
    #[serde(default)]
    pub scale_out: bool,
    pub encrypt: bool,
    pub access_based_enumeration: bool,
    pub caching: bool,
}

impl ShareView {
    /// `name_of`: the name of a SID's account, or the SID.
    pub fn new(share: Share, volume: String, name_of: impl Fn(&types::Sid) -> String) -> Self {
        Self {
            access: share
                .access
                .iter()
                .map(|(sid, access)| Grant { who: name_of(sid), access: *access })
                .collect(),
            name: share.name,
            volume,
            volume_id: share.volume,
            path: share.path,
            comment: share.comment,
            durability: share.durability,
            read_only: share.read_only,
            continuously_available: share.continuously_available,
            scale_out: share.scale_out,
            encrypt: share.encrypt,
            access_based_enumeration: share.access_based_enumeration,
            caching: share.caching,
        }
    }
}

/// Options of a share; omitted ones stay as they are (or as by default).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareOptions {
    #[serde(default)]
    pub comment: Option<String>,
    /// All grants anew.
    #[serde(default)]
    pub access: Option<Vec<Grant>>,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub durability: Option<ShareDurability>,
    #[serde(default)]
    pub read_only: Option<bool>,
    /// Open files, leases and locks survive a restart or crash of the server; every write is durable before its answer, as with `durability` `write`.
    #[serde(default)]
    pub continuously_available: Option<bool>,
    /// Clients learn that any server may serve the share, and cache reads at most; only with
    /// `continuously_available`.
    #[serde(default)]
    pub scale_out: Option<bool>,
    #[serde(default)]
    pub encrypt: Option<bool>,
    #[serde(default)]
    pub access_based_enumeration: Option<bool>,
    #[serde(default)]
    pub caching: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    pub name: String,
    /// Name of the volume.
    pub volume: String,
    /// Directory of the volume, `\` or `/` between names; empty: its root.
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub options: ShareOptions,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    pub name: String,
    #[schema(value_type = String)]
    pub sid: types::Sid,
    pub enabled: bool,
    pub full_name: String,
    pub groups: Vec<String>,
    pub password_set_unix_s: u64,
    /// The import lacked the key that opens the password: set a new one.
    pub password_lost: bool,
}

impl UserView {
    pub fn new(user: User, groups: &[Group]) -> Self {
        Self {
            groups: groups
                .iter()
                .filter(|group| group.members.contains(&user.sid))
                .map(|group| group.name.clone())
                .collect(),
            name: user.name,
            sid: user.sid,
            enabled: user.enabled,
            full_name: user.full_name,
            password_set_unix_s: user.password_set_unix_s,
            password_lost: user.password_lost,
        }
    }
}

#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    pub name: String,
    pub password: String,
    #[serde(default)]
    pub full_name: String,
    /// Groups it becomes a member of.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// Fields that are left out stay as they are.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUser {
    /// Another name; the SID stays, and with it groups, grants and files. Its sessions end.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub password: Option<String>,
    #[serde(default)]
    pub full_name: Option<String>,
    #[serde(default)]
    pub enabled: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    pub name: String,
    #[schema(value_type = String)]
    pub sid: types::Sid,
    pub members: Vec<String>,
    /// One of Windows' own groups.
    pub builtin: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddGroup {
    pub name: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetGroup {
    #[serde(default)]
    pub add: Vec<String>,
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A security descriptor: owner, group and discretionary ACL.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AclView {
    pub owner: String,
    pub group: String,
    /// No DACL: everyone may do everything.
    pub entries: Option<Vec<AclEntry>>,
    /// Inherited entries do not come from above.
    pub protected: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclEntry {
    pub who: String,
    pub allow: bool,
    /// `full`, `modify`, `read_execute`, `read`, `write`, or an access mask such as `0x1200a9`.
    pub access: String,
    /// Files below inherit it.
    #[serde(default)]
    pub object_inherit: bool,
    /// Directories below inherit it.
    #[serde(default)]
    pub container_inherit: bool,
    /// The entry holds for things below only.
    #[serde(default)]
    pub inherit_only: bool,
    /// The entry was inherited from above.
    #[serde(default)]
    pub inherited: bool,
}

/// Fields that are left out stay as they are.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAcl {
    #[serde(default)]
    pub owner: Option<String>,
    /// Entries to add; one for the same account and kind is replaced.
    #[serde(default)]
    pub grant: Vec<AclEntry>,
    /// Accounts whose entries (not inherited) are removed. One that has inherited entries only is refused.
    #[serde(default)]
    pub revoke: Vec<String>,
    /// Comes before all else.
    #[serde(default)]
    pub inheritance: Option<Inheritance>,
    /// The way in which files and directories below follow.
    #[serde(default)]
    pub below: Below,
}

/// A change of inheritance from the directory above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Inheritance {
    /// Nothing comes from above any more; the inherited entries become its own.
    BreakAndKeep,
    /// Nothing comes from above any more; the inherited entries go.
    BreakAndDrop,
    /// The entries from above are inherited again; entries of its own that equal one of them go.
    Restore,
}

/// The way in which files and directories below a directory follow a change of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Below {
    /// Files and directories below get their inherited entries anew. Their own entries stay, and those that inherit nothing stay as they are.
    #[default]
    Follow,
    /// Entries of their own go, and all inherit again.
    Replace,
}

/// The answer to a change of an ACL.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AclChanged {
    /// The job in which everything below a directory follows.
    pub job: Option<u64>,
    /// Accounts whose own entries were removed, but which keep inherited ones.
    pub still_inherited: Vec<String>,
}

/// A named token of the API, without its text.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    pub created_unix_s: u64,
    /// `null`: it is good until it is deleted.
    pub expires_unix_s: Option<u64>,
    pub expired: bool,
}

impl TokenView {
    pub fn new(token: ApiToken, now_unix_s: u64) -> Self {
        let expired = token.is_expired(now_unix_s);
        let ApiToken { name, role, created_unix_s, expires_unix_s, .. } = token;
        Self { name, role, created_unix_s, expires_unix_s, expired }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    pub name: String,
    /// `reader`, `operator` or `administrator`.
    #[schema(value_type = String)]
    pub role: Role,
    /// Seconds for which it is good; without it, until it is deleted.
    #[serde(default)]
    pub expires_in_s: Option<u64>,
}

#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    pub expires_unix_s: Option<u64>,
    /// Sent as `Authorization: Bearer TOKEN`. It is not shown again.
    pub token: String,
}

/// The outcome of a notice that was sent as a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestedReceiver {
    /// `webhook` or `mail`.
    pub receiver: String,
    /// The webhook's server, or the addresses of mail.
    pub to: String,
    /// Why it was not taken.
    pub error: Option<String>,
}
