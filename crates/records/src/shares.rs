//! Shares: names under which clients reach a volume.
//!
//! Owns the share records. Promises: a name is unique, ignoring case. Never knows SMB's wire.

use crate::account_error::{AccountError, folded};
use crate::names::{NameFault, NameRule, check_text};
use crate::{BlockingState, Record, Stored, Typed};
use serde::{Deserialize, Serialize};
use types::{Sid, VolumeId};

/// As refusals call it.
const COMMENT: &str = "comment";

/// When a WRITE is durable (D14).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareDurability {
    /// Before it is answered.
    Write,
    /// Before the answer to CLOSE or FLUSH.
    #[default]
    Close,
    /// Before the answer to FLUSH; five seconds later at the latest.
    Flush,
}

/// The most that a share lets a user or group do; files have their own security descriptors beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareAccess {
    Read,
    Change,
    Full,
}

impl ShareAccess {
    /// The access mask (MS-SMB2 2.2.13.1) it stands for, as Windows has it.
    pub const fn mask(self) -> u32 {
        match self {
            Self::Read => 0x0012_00A9,
            Self::Change => 0x0013_01BF,
            Self::Full => 0x001F_01FF,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub name: String,
    pub volume: VolumeId,
    /// Directory of the volume that is the share's root, `\` between names; empty: the volume's root.
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub comment: String,
    /// The rights of users and groups; nobody else has access.
    pub access: Vec<(Sid, ShareAccess)>,
    #[serde(default)]
    pub durability: ShareDurability,
    #[serde(default)]
    pub read_only: bool,
    /// Handles, leases and locks survive the server; writes are durable when answered.
    #[serde(default)]
    pub continuously_available: bool,
    /// Clients learn that any server may serve it, and cache reads at most; continuously available shares
    /// only.
    #[serde(default)]
    pub scale_out: bool,
    /// Only encrypted sessions reach it.
    #[serde(default)]
    pub encrypt: bool,
    #[serde(default)]
    pub access_based_enumeration: bool,
    /// Oplocks and leases are granted.
    #[serde(default = "yes")]
    pub caching: bool,
}

fn yes() -> bool {
    true
}

impl Record for Share {
    const PREFIX: &'static str = "share/";
    fn id(&self) -> String {
        folded(&self.name)
    }
}

impl Share {
    /// A share of the whole volume with everything as by default, for `access`.
    pub fn new(name: impl Into<String>, volume: VolumeId, access: Vec<(Sid, ShareAccess)>) -> Self {
        Self {
            name: name.into(),
            volume,
            path: String::new(),
            comment: String::new(),
            access,
            durability: ShareDurability::default(),
            read_only: false,
            continuously_available: false,
            scale_out: false,
            encrypt: false,
            access_based_enumeration: false,
            caching: true,
        }
    }

    /// The most that someone with these SIDs may do through the share; 0: nothing.
    pub fn access_of<'a>(&self, sids: impl IntoIterator<Item = &'a Sid>) -> u32 {
        sids.into_iter().fold(0, |mask, sid| {
            self.access
                .iter()
                .filter(|(who, _)| who == sid)
                .fold(mask, |mask, (_, access)| mask | access.mask())
        })
    }
}

/// All shares, by name.
///
/// # Errors
/// [`AccountError::State`].
pub fn list(state: &impl BlockingState) -> Result<Vec<Share>, AccountError> {
    Ok(state.list()?.into_iter().map(|found| found.value).collect())
}

/// # Errors
/// `Exists`, `BadName`, `Invalid` (its path), or the state's.
pub fn create(state: &impl BlockingState, share: &Share) -> Result<(), AccountError> {
    check(share)?;
    check_text(COMMENT, &share.comment)?;
    if state.read::<Share>(&share.id())?.is_some() {
        return Err(AccountError::Exists { kind: "share", name: share.name.clone() });
    }
    state.write(share, 0)?;
    Ok(())
}

/// Changes the share by `change`, which cannot change its name.
///
/// # Errors
/// `NotFound`, what `change` answers, `Invalid`, or the state's.
pub fn set(
    state: &impl BlockingState,
    name: &str,
    change: impl FnOnce(&mut Share) -> Result<(), AccountError>,
) -> Result<Share, AccountError> {
    let mut found = find(state, name)?;
    let Share { name, comment, .. } = found.value.clone();
    change(&mut found.value)?;
    // The name and the comment may be older than their rules, so only changes are checked.
    found.value.name = name;
    if found.value.comment != comment {
        check_text(COMMENT, &found.value.comment)?;
    }
    check_settings(&found.value)?;
    state.write(&found.value, found.revision)?;
    Ok(found.value)
}

/// # Errors
/// `NotFound`, or the state's.
pub fn delete(state: &impl BlockingState, name: &str) -> Result<(), AccountError> {
    let found = find(state, name)?;
    state.remove::<Share>(&found.value.id(), found.revision)?;
    Ok(())
}

fn find(state: &impl BlockingState, name: &str) -> Result<Stored<Share>, AccountError> {
    state.read(&folded(name))?.ok_or_else(|| AccountError::NotFound { kind: "share", name: name.into() })
}

/// Whether name and path can be those of a share.
///
/// # Errors
/// `BadName`, or `Invalid`.
pub fn check(share: &Share) -> Result<(), AccountError> {
    NameRule::SHARE.check(&share.name)?;
    if ["ipc$", "admin$", "print$", "bus$", "pipe", "mailslot", "global"]
        .contains(&folded(&share.name).as_str())
    {
        return Err(NameRule::SHARE.refuse(&share.name, NameFault::Reserved).into());
    }
    check_settings(share)
}

/// All but the name.
fn check_settings(share: &Share) -> Result<(), AccountError> {
    let names = share.path.split('\\');
    if !share.path.is_empty()
        && names.clone().any(|name| {
            matches!(name, "" | "." | "..")
                || name.chars().any(|c| c.is_control() || r#""/:|<>*?"#.contains(c))
        })
    {
        return Err(AccountError::Invalid(format!(
            r"'{}' is not a path from the volume's root: names with \ between them, without . and ..",
            share.path
        )));
    }
    if share.scale_out && !share.continuously_available {
        return Err(AccountError::Invalid(format!(
            "share '{}' cannot scale out unless it is continuously available: give both options, or neither",
            share.name
        )));
    }
    Ok(())
}
