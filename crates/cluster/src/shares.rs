//! Shares: names under which clients reach a volume.
//!
//! Owns the shape of a share. Never knows SMB's wire.

use serde::{Deserialize, Serialize};
use types::{Sid, VolumeId};

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

/// What a user or group may do through the share at most; files have their own security descriptors beside it.
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
    /// Who may do what; nobody else has access.
    pub access: Vec<(Sid, ShareAccess)>,
    #[serde(default)]
    pub durability: ShareDurability,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub continuously_available: bool,
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

impl Share {
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
