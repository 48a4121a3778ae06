//! Accounts and shares, as the daemon answers them from memory.

use smb::auth::NodeProver;
use smb::rpc::{AccountEntry, GroupEntry, UserEntry};
use std::sync::Arc;
use types::{NodeId, Sid, VolumeId};
use volume::backend::{AccessToken, ShareOptions};

/// An account that a client names.
#[derive(Debug, Clone)]
pub struct Account {
    /// Name as the directory spells it.
    pub name: String,
    /// MD4 of the UTF-16LE password.
    pub nt_hash: [u8; 16],
    /// Whether the account may log on.
    pub enabled: bool,
    /// User, groups and privileges that a session of the account acts with.
    pub token: Arc<AccessToken>,
}

/// A node of this server's cluster, which logs on by its certificate.
#[derive(Debug, Clone)]
pub struct NodeAccount {
    /// Name under which the node's sessions are listed.
    pub name: String,
    /// User, groups and privileges that a session of the node acts with.
    pub token: Arc<AccessToken>,
}

/// The proof by which somebody logged on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The password's NT hash, only for comparison.
    Password([u8; 16]),
    Certificate(NodeId),
}

/// Account that logged on, its credential, and its rights.
pub(crate) struct Subject {
    pub name: String,
    pub credential: Credential,
    pub token: Arc<AccessToken>,
}

impl Subject {
    /// Makes the subject of a user whose password is right.
    ///
    /// No node: a password can be relayed, and does not give the rights of nodes.
    pub fn user(account: Account) -> Option<Self> {
        let Account { name, nt_hash, enabled, token } = account;
        let stands = enabled && !token.groups.contains(&Sid::cluster_nodes());
        stands.then_some(Self { name, credential: Credential::Password(nt_hash), token })
    }

    pub fn node(node: NodeId, account: NodeAccount) -> Self {
        let NodeAccount { name, token } = account;
        Self { name, credential: Credential::Certificate(node), token }
    }

    pub fn is_node(&self) -> bool {
        matches!(self.credential, Credential::Certificate(_))
    }
}

/// A name under which clients reach a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Name of the share, as clients spell it in a tree connect.
    pub name: String,
    /// Remark that share lists show (MS-SRVS 2.2.4.23); may be empty.
    pub comment: String,
    /// Volume that has the share's root.
    pub volume: VolumeId,
    /// Path of the share's root in the volume, `\` between names; empty: the volume's root.
    pub path: String,
    /// Terms of the share: durability, caching, access-based enumeration.
    pub options: ShareOptions,
    /// Whether only encrypted requests reach it.
    pub encrypt: bool,
    /// Greatest access of each user or group (access masks of MS-SMB2 2.2.13.1); others have none.
    pub access: Vec<(Sid, u32)>,
}

impl Share {
    /// Returns the greatest access through the share for the holder of this token; 0 means nothing.
    pub fn access_of(&self, token: &AccessToken) -> u32 {
        self.access
            .iter()
            .filter(|(sid, _)| *sid == token.user || token.groups.contains(sid))
            .fold(0, |mask, (_, access)| mask | access)
    }
}

/// Answers immediately, without I/O; every answer is of one version of accounts and shares.
pub trait Directory {
    /// Finds an account by its name, ignoring case; `domain` is the one that the client named and may be
    /// empty.
    fn account(&self, domain: &str, user: &str) -> Option<Account>;
    /// Whether accounts are known to have changed elsewhere in a way unknown here: then password logons are
    /// refused.
    fn is_behind(&self) -> bool {
        false
    }
    /// Finds a share by its name, ignoring case.
    fn share(&self, name: &str) -> Option<Arc<Share>>;
    /// Lists all shares, those that the caller may not reach included.
    fn shares(&self) -> Vec<Arc<Share>>;
    /// The SID of this server's own accounts' domain (S-1-5-21-...).
    fn domain_sid(&self) -> Sid;
    /// Finds an account or group by its SID; well-known ones are not asked for.
    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry>;
    /// Finds an account or group by its name, ignoring case.
    fn account_by_name(&self, name: &str) -> Option<AccountEntry>;
    /// All users, disabled ones too.
    fn users(&self) -> Vec<UserEntry>;
    /// All local groups.
    fn groups(&self) -> Vec<GroupEntry>;
    /// The name of a volume that shares lead to.
    fn volume_name(&self, volume: VolumeId) -> Option<String>;
    /// Prover of nodes of this server's cluster; `None`: the server is in none.
    fn node_prover(&self) -> Option<Arc<dyn NodeProver>> {
        None
    }
    /// Finds a node of this server's cluster.
    fn node(&self, _node: NodeId) -> Option<NodeAccount> {
        None
    }
}
