//! Accounts and shares, as the daemon answers them from memory.

use smb::rpc::AccountEntry;
use std::sync::Arc;
use types::{Sid, VolumeId};
use volume::backend::{AccessToken, ShareOptions};

/// An account that a client names.
#[derive(Debug, Clone)]
pub struct Account {
    pub name: String,
    /// MD4 of the UTF-16LE password.
    pub nt_hash: [u8; 16],
    pub enabled: bool,
    pub token: Arc<AccessToken>,
}

/// The password by which somebody logged on: its NT hash, which can only be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credential([u8; 16]);

impl Credential {
    pub fn of(account: &Account) -> Self {
        Self(account.nt_hash)
    }
}

/// A name under which clients reach a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub name: String,
    pub comment: String,
    pub volume: VolumeId,
    /// Directory of the volume that is the share's root, `\` between names; empty: the volume's root.
    pub path: String,
    pub options: ShareOptions,
    /// Whether only encrypted requests reach it.
    pub encrypt: bool,
    /// The most that each user or group may do (access masks of MS-SMB2 2.2.13.1); nobody else has access.
    pub access: Vec<(Sid, u32)>,
}

impl Share {
    /// Says what the holder of this token may do at most through the share; 0 means nothing.
    pub fn access_of(&self, token: &AccessToken) -> u32 {
        self.access
            .iter()
            .filter(|(sid, _)| *sid == token.user || token.groups.contains(sid))
            .fold(0, |mask, (_, access)| mask | access)
    }
}

/// Answers at once, without I/O; every answer is of one version of accounts and shares.
pub trait Directory {
    /// Finds an account by its name, whatever its case; `domain` is the one that the client named and may be empty.
    fn account(&self, domain: &str, user: &str) -> Option<Account>;
    /// Finds a share by its name, whatever its case.
    fn share(&self, name: &str) -> Option<Arc<Share>>;
    fn shares(&self) -> Vec<Arc<Share>>;
    /// The SID of this server's own accounts' domain (S-1-5-21-...).
    fn domain_sid(&self) -> Sid;
    /// Finds an account or group by its SID; well-known ones are not asked for.
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry>;
    /// Finds an account or group by its name, whatever its case.
    fn account_by_name(&self, name: &str) -> Option<AccountEntry>;
}
