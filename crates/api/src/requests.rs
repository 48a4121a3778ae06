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

/// A disk to add to a pool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDisk {
    /// Absolute path of a file, a partition or a whole block device.
    pub path: String,
    /// Size of the sparse file to make if there is none.
    #[serde(default)]
    pub create_size_bytes: Option<u64>,
    /// Name of the pool; may be left out if there is only one.
    #[serde(default)]
    pub pool: Option<String>,
    /// Place of the disk; in a cluster `node` is always the name of the disk's server.
    #[serde(default)]
    pub fault_domain: FaultDomain,
}

/// Place of a disk; an empty name does not separate it from others at that level.
///
/// Separate from the pool's own type, which records hold: a request with an unknown field is refused, a
/// record with one is accepted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultDomain {
    /// Rack, under one name for all of its disks.
    #[serde(default)]
    pub rack: String,
    /// Server; in a cluster replaced by the name of the disk's server.
    #[serde(default)]
    pub node: String,
    /// Enclosure within the server.
    #[serde(default)]
    pub enclosure: String,
}

/// A pool to make of disks that hold nothing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Name of the pool, which no other pool on the server or in the cluster has.
    pub name: String,
    /// The first disks of the pool, at least one.
    pub disks: Vec<AddDisk>,
    /// Disks' worth of space kept for repair; left out: one for each node, at most four, none with fewer than three disks.
    #[serde(default)]
    pub reserve_disks: Option<u32>,
}

/// A change of a pool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPool {
    /// Number of disks whose size is kept free for repair, the largest first; 0: none.
    pub reserve_disks: u32,
}

/// The answer to a replacement.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Replaced {
    /// The disk that takes the place of the old one.
    #[schema(value_type = String)]
    pub disk: types::DiskId,
    /// The job that moves everything off the old disk.
    pub job: u64,
}

/// A switch of a disk's LED.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LocateDisk {
    /// `true` lights the LED, `false` turns it off.
    pub on: bool,
}

/// How to find a disk in its enclosure.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LocatedDisk {
    /// Path of the disk in its pool.
    pub path: String,
    /// The device behind the path, if it is one.
    pub device: Option<String>,
    /// Serial number of the device, if it reports one.
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
    /// Name of the lost pool.
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
    /// The path again. Without it nothing is done, and the refusal names the disk's contents.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// Makes a disk forget promises that no owner can fulfil, or promises that an older image of it lacks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetPromises {
    /// The disk's ID again. Without it nothing is done, and the refusal names the volumes.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// A disk that has forgotten promises.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ForgottenPromises {
    /// The disk whose promises are lost.
    #[schema(value_type = String)]
    pub disk: types::DiskId,
    /// Names of the volumes with its promises.
    pub volumes: Vec<String>,
}

/// A disk that was erased.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErasedDisk {
    /// Path of the disk that holds nothing now.
    pub path: String,
    /// The disk's former content, in words.
    pub held: String,
}

/// Brings a pool back from its disks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// Name or id of the pool; may be left out if the search finds only one pool's disks.
    #[serde(default)]
    pub pool: Option<String>,
    /// Absolute paths of disks.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Directories or disks to search for labelled disks; the configuration's if neither these nor disks
    /// are given.
    #[serde(default)]
    pub search: Vec<String>,
    /// The pool's name on this server.
    #[serde(default)]
    pub rename: Option<String>,
    /// Key file of the server that had it (secret.key): opens its users' passwords.
    #[serde(default)]
    pub key_file: Option<String>,
    /// The pool's name: import it although its last server did not export it.
    #[serde(default)]
    pub confirm: Option<String>,
    /// Proceeds without a majority of the pool's disks.
    #[serde(default)]
    pub accept_missing: bool,
}

/// Result of an import.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ImportedPool {
    /// Name of the pool on this server.
    pub name: String,
    /// Names of the volumes that came with it.
    pub volumes: Vec<String>,
    /// Names of the shares that came with it.
    pub shares: Vec<String>,
    /// Names of the users that came with it.
    pub users: Vec<String>,
    /// Users who cannot log on until a password is set.
    pub passwords_lost: Vec<String>,
    /// Disks of the pool that were not found, in words.
    pub missing_disks: Vec<String>,
    /// Volumes that are not served, and why.
    pub not_served: Vec<String>,
    /// The members of Administrators, now that the pool is here.
    #[serde(default)]
    pub administrators: Vec<String>,
    /// Omitted records, with the reasons.
    pub notes: Vec<String>,
}

/// A volume to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Name of the volume, which no other volume on the server or in the cluster has.
    pub name: String,
    /// Name of the pool; may be left out if there is only one.
    #[serde(default)]
    pub pool: Option<String>,
    /// Number of copies; left out: two.
    #[serde(default)]
    pub resiliency: Resiliency,
    /// The time of allocation; left out: as data is written.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// Size that clients see; copies take further space.
    pub size_bytes: u64,
    /// Fill level in percent from which health warns; left out: 90.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    pub warn_at_percent: Option<u8>,
}

/// Changes of a volume; absent fields stay unchanged.
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

/// A check of a volume: metadata, allocation and copies are compared.
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
    /// Id of the object, as text.
    pub id: String,
    /// Of a disk, its path.
    pub name: String,
}

/// Bounds of a user's data on a volume, in bytes; `None`: no bound.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaBounds {
    /// Usage beyond which the user counts as over the threshold.
    #[serde(default)]
    pub threshold_bytes: Option<u64>,
    /// Usage beyond which the user's writes are refused.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
}

/// Changes of quotas; absent fields stay unchanged.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQuotas {
    /// Whether usage is counted, and whether limits hold.
    #[serde(default)]
    pub mode: Option<QuotaMode>,
    /// Bounds of users without their own.
    #[serde(default)]
    pub defaults: Option<QuotaBounds>,
}

/// The answer to a request that began a storage job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Started {
    /// Number of the job in the list of jobs.
    pub job: u64,
}

/// The rights of one user or group through a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// A user, a group, `Everyone`, `Authenticated Users`, or a SID.
    pub who: String,
    /// The most that the share lets the account do.
    #[schema(value_type = String)]
    pub access: ShareAccess,
}

/// A share and its options.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    /// Name of the share, as clients spell it in a tree connect.
    pub name: String,
    /// Name of the volume with the share's directory; its id if the volume is not known.
    pub volume: String,
    /// Id of that volume.
    #[schema(value_type = String)]
    pub volume_id: VolumeId,
    /// Path of the share's root in the volume, `\` between names; empty: the volume's root.
    pub path: String,
    /// Remark that clients see beside the share's name.
    pub comment: String,
    /// The rights of users and groups; others have no access.
    pub access: Vec<Grant>,
    /// The moment at which writes are durable: `write`, `close` or `flush`.
    #[schema(value_type = String)]
    pub durability: ShareDurability,
    /// Clients change nothing through the share.
    pub read_only: bool,
    /// Open files, leases and locks survive a restart or crash of the server; every write is durable before its answer, as with `durability` `write`.
    pub continuously_available: bool,
    /// Clients learn that any server may serve the share, and cache reads at most.
    #[serde(default)]
    pub scale_out: bool,
    /// Only encrypted sessions reach the share.
    pub encrypt: bool,
    /// Listings leave out entries that the user may not read.
    pub access_based_enumeration: bool,
    /// Oplocks and leases are granted.
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

/// Options of a share; omitted ones keep their value (or the default).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareOptions {
    /// Remark that clients see beside the share's name.
    #[serde(default)]
    pub comment: Option<String>,
    /// All grants, replacing the old ones.
    #[serde(default)]
    pub access: Option<Vec<Grant>>,
    /// The moment at which writes are durable: `write`, `close` or `flush`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub durability: Option<ShareDurability>,
    /// Clients change nothing through the share.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// Open files, leases and locks survive a restart or crash of the server; every write is durable before its answer, as with `durability` `write`.
    #[serde(default)]
    pub continuously_available: Option<bool>,
    /// Clients learn that any server may serve the share, and cache reads at most; only with
    /// `continuously_available`.
    #[serde(default)]
    pub scale_out: Option<bool>,
    /// Only encrypted sessions reach the share.
    #[serde(default)]
    pub encrypt: Option<bool>,
    /// Listings leave out entries that the user may not read.
    #[serde(default)]
    pub access_based_enumeration: Option<bool>,
    /// Oplocks and leases are granted.
    #[serde(default)]
    pub caching: Option<bool>,
}

/// A share to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    /// Name of the share, which no other share has.
    pub name: String,
    /// Name of the volume.
    pub volume: String,
    /// Directory of the volume, `\` or `/` between names; empty: its root.
    #[serde(default)]
    pub path: String,
    /// Options of the share; those left out are as by default.
    #[serde(default)]
    pub options: ShareOptions,
}

/// A user account, without its password.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    /// Name with which the user logs on.
    pub name: String,
    /// Security identifier, which survives a rename of the user.
    #[schema(value_type = String)]
    pub sid: types::Sid,
    /// A disabled user cannot log on.
    pub enabled: bool,
    /// Name for people; may be empty.
    pub full_name: String,
    /// Names of the groups of which the user is a member.
    pub groups: Vec<String>,
    /// Time at which the password was set last.
    pub password_set_unix_s: u64,
    /// The import lacked the key that opens the password: set a new one.
    pub password_lost: bool,
}

impl UserView {
    /// Shows a user, with those of `groups` of which it is a member.
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

/// A user account to make.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// Name with which the user logs on.
    pub name: String,
    /// Password in clear text; only its hash is stored.
    pub password: String,
    /// Name for people; may be empty.
    #[serde(default)]
    pub full_name: String,
    /// Groups it becomes a member of.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// Changes of a user; absent fields stay unchanged.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUser {
    /// Another name; the SID stays, and with it groups, grants and files. Its sessions end.
    #[serde(default)]
    pub name: Option<String>,
    /// A new password in clear text.
    #[serde(default)]
    pub password: Option<String>,
    /// Name for people; empty: none.
    #[serde(default)]
    pub full_name: Option<String>,
    /// `false`: the user cannot log on.
    #[serde(default)]
    pub enabled: Option<bool>,
}

/// A group and its members.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Name of the group, as grants and access entries spell it.
    pub name: String,
    /// Security identifier of the group.
    #[schema(value_type = String)]
    pub sid: types::Sid,
    /// Names of the members, or SIDs of accounts that are not known here.
    pub members: Vec<String>,
    /// One of Windows' own groups.
    pub builtin: bool,
}

/// A group to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddGroup {
    /// Name of the group, which no other account has.
    pub name: String,
}

/// A change of a group's members.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetGroup {
    /// Accounts that become members.
    #[serde(default)]
    pub add: Vec<String>,
    /// Accounts to remove from the members.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A security descriptor: owner, group and discretionary ACL.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AclView {
    /// The owner's name, or its SID.
    pub owner: String,
    /// Name of the primary group, or its SID.
    pub group: String,
    /// No DACL: everyone may do everything.
    pub entries: Option<Vec<AclEntry>>,
    /// The directory above does not pass entries on to it.
    pub protected: bool,
}

/// An entry of an ACL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclEntry {
    /// A user, a group, a well-known name such as `Everyone`, or a SID.
    pub who: String,
    /// `true` grants the access, `false` denies it.
    pub allow: bool,
    /// `full`, `modify`, `read_execute`, `read`, `write`, or an access mask such as `0x1200a9`.
    pub access: String,
    /// Files below inherit it.
    #[serde(default)]
    pub object_inherit: bool,
    /// Directories below inherit it.
    #[serde(default)]
    pub container_inherit: bool,
    /// The entry is only for files and directories below.
    #[serde(default)]
    pub inherit_only: bool,
    /// The entry was inherited from above.
    #[serde(default)]
    pub inherited: bool,
}

/// Changes of an ACL; absent fields stay unchanged.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAcl {
    /// The account that becomes the owner.
    #[serde(default)]
    pub owner: Option<String>,
    /// Entries to add; one for the same account and kind is replaced.
    #[serde(default)]
    pub grant: Vec<AclEntry>,
    /// Accounts whose entries (not inherited) are removed. One that has inherited entries only is refused.
    #[serde(default)]
    pub revoke: Vec<String>,
    /// Applied before all other fields.
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
    /// Ends inheritance; the inherited entries become its own.
    BreakAndKeep,
    /// Ends inheritance; the inherited entries are removed.
    BreakAndDrop,
    /// Restores inheritance; removes own entries that equal an inherited one.
    Restore,
}

/// The way in which files and directories below a directory follow a change of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Below {
    /// Files and directories below get new inherited entries. Their own entries stay, and those that
    /// inherit nothing stay unchanged.
    #[default]
    Follow,
    /// Own entries are removed, and all inherit again.
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
    /// Name of the token, by which it is deleted.
    pub name: String,
    /// `reader`, `operator` or `administrator`.
    #[schema(value_type = String)]
    pub role: Role,
    /// Time at which the token was made.
    pub created_unix_s: u64,
    /// `null`: it is good until it is deleted.
    pub expires_unix_s: Option<u64>,
    /// Whether the token has expired, so that it is refused.
    pub expired: bool,
}

impl TokenView {
    /// Shows a token; `now_unix_s` decides whether it has expired.
    pub fn new(token: ApiToken, now_unix_s: u64) -> Self {
        let expired = token.is_expired(now_unix_s);
        let ApiToken { name, role, created_unix_s, expires_unix_s, .. } = token;
        Self { name, role, created_unix_s, expires_unix_s, expired }
    }
}

/// A token to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name of the token, which no other token has.
    pub name: String,
    /// `reader`, `operator` or `administrator`.
    #[schema(value_type = String)]
    pub role: Role,
    /// Seconds for which it is good; without it, until it is deleted.
    #[serde(default)]
    pub expires_in_s: Option<u64>,
}

/// A token that was made, with its text.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// Name of the token, by which it is deleted.
    pub name: String,
    /// `reader`, `operator` or `administrator`.
    #[schema(value_type = String)]
    pub role: Role,
    /// Expiry; `null`: valid until deleted.
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
