//! The nodes as the SMB server knows them, and the share that only they reach.
//!
//! A node logs on by its certificate ([`smb::auth::NodeProver`]), which nobody can relay, and is known then by an account of its own, `node-<id>$`,
//! which has no password. Promises: such an account reaches `bus$` and nothing else; nobody else reaches `bus$`; when a node is taken away,
//! its sessions end with the server's next review of accounts and shares ([`smb_server::Server::directory_changed`]).

use crate::{SHARE, VOLUME};
use smb::auth::{NodeProver, NodeRefused};
use smb::rpc::{AccountEntry, GroupEntry, UserEntry};
use smb_server::{Account, Directory, NodeAccount, Share};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use trust::node_trust::{NodeTrust, NotProven};
use types::{FileTime, NodeId, Sid, VolumeId};
use volume::backend::{AccessToken, Privileges, ShareOptions};

/// All that a share can grant (MS-SMB2 2.2.13.1).
const FULL_ACCESS: u32 = 0x001F_01FF;

/// The name under which a node is known where users have theirs.
pub fn account_name(node: NodeId) -> String {
    format!("node-{node}$")
}

/// Tells whether a name has the form of a node's machine account, ignoring case. Versions that logged
/// on by passwords had accounts with a second number as well.
pub fn is_account_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let number = lower.strip_prefix("node-").and_then(|rest| rest.strip_suffix('$'));
    let (number, generation) =
        number.map_or(("", "0"), |number| number.split_once('-').unwrap_or((number, "0")));
    [number, generation].iter().all(|number| number.parse::<u32>().is_ok())
}

/// Returns the SID of a node.
fn account_sid(node: NodeId) -> Sid {
    Sid::cluster_nodes().child(node.0).unwrap_or_else(Sid::cluster_nodes)
}

/// Returns the node that has logged on; `None`: it is none.
pub(crate) fn node_of(token: &AccessToken) -> Option<NodeId> {
    let node = NodeId(token.user.relative_id()?);
    (token.user == account_sid(node)).then_some(node)
}

/// Proves this node to others and others to it, as the records were at one moment.
#[derive(Debug)]
struct Prover(NodeTrust);

impl NodeProver for Prover {
    fn cluster(&self) -> [u8; 16] {
        self.0.cluster().into_bytes()
    }

    fn own(&self) -> NodeId {
        self.0.own()
    }

    fn certificate(&self) -> &[u8] {
        self.0.certificate()
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(message).ok()
    }

    fn verify(
        &self,
        node: NodeId,
        certificate: &[u8],
        message: &[u8],
        signature: &[u8],
        now: FileTime,
    ) -> Result<(), NodeRefused> {
        self.0.verify(node, certificate, message, signature, unix_s_of(now)).map_err(|why| match why {
            NotProven::Unknown => NodeRefused::Unknown,
            NotProven::NotItsCertificate => NodeRefused::NotItsCertificate,
            NotProven::BadCertificate => NodeRefused::BadCertificate,
            NotProven::BadSignature => NodeRefused::BadSignature,
        })
    }
}

/// Returns seconds since 1970-01-01.
fn unix_s_of(time: FileTime) -> u64 {
    const TICKS_PER_S: u64 = 10_000_000;
    time.0.saturating_sub(FileTime::UNIX_EPOCH.0) / TICKS_PER_S
}

/// One version of the known nodes.
#[derive(Default)]
struct Version {
    prover: Option<Arc<Prover>>,
    share: Option<Arc<Share>>,
}

/// The nodes that may use the bus, for any thread; clones share them. Without nodes there is no share `bus$`.
#[derive(Clone, Default)]
pub struct NodeAccounts(Arc<RwLock<Arc<Version>>>);

impl fmt::Debug for NodeAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeAccounts").field(&self.current().prover).finish()
    }
}

impl NodeAccounts {
    /// Replaces all known nodes. `encrypt`: only encrypted requests reach the share. The caller then
    /// informs the server ([`smb_server::Server::directory_changed`]).
    pub fn set(&self, trust: NodeTrust, encrypt: bool) {
        let share = Arc::new(Share {
            name: SHARE.to_owned(),
            comment: String::new(),
            volume: VOLUME,
            path: String::new(),
            options: ShareOptions { no_caching: true, ..ShareOptions::default() },
            encrypt,
            access: vec![(Sid::cluster_nodes(), FULL_ACCESS)],
        });
        let version = Version { prover: Some(Arc::new(Prover(trust))), share: Some(share) };
        // A writer only stores a pointer: a poisoned lock still guards a whole version.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(version);
    }

    fn current(&self) -> Arc<Version> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The proofs of this node and of others; `None`: it is in no cluster, or does not know yet.
    pub fn prover(&self) -> Option<Arc<dyn NodeProver>> {
        Some(self.current().prover.clone()?)
    }

    fn node(&self, node: NodeId) -> Option<NodeAccount> {
        let current = self.current();
        let prover = current.prover.as_ref()?;
        prover.0.nodes().find(|known| *known == node && node != prover.0.own())?;
        let token = AccessToken {
            user: account_sid(node),
            primary_group: Sid::cluster_nodes(),
            // Neither Everyone nor Authenticated Users: no other share lets such an account in.
            groups: vec![Sid::cluster_nodes()],
            privileges: Privileges::empty(),
        };
        Some(NodeAccount { name: account_name(node), token: Arc::new(token) })
    }
}

/// A directory with the nodes and the share `bus$` beside its own content.
pub struct WithNodes<D> {
    /// Accounts and shares for clients; no node and no `bus$` among them.
    pub inner: D,
    /// The other nodes' accounts, and the share `bus$` that only they may use.
    pub nodes: NodeAccounts,
}

impl<D: Directory> Directory for WithNodes<D> {
    fn account(&self, domain: &str, user: &str) -> Option<Account> {
        self.inner.account(domain, user)
    }

    fn is_behind(&self) -> bool {
        self.inner.is_behind()
    }

    fn share(&self, name: &str) -> Option<Arc<Share>> {
        if name.eq_ignore_ascii_case(SHARE)
            && let Some(share) = &self.nodes.current().share
        {
            return Some(share.clone());
        }
        self.inner.share(name)
    }

    /// Lists the shares that clients may see: the bus is hidden.
    fn shares(&self) -> Vec<Arc<Share>> {
        self.inner.shares()
    }

    fn domain_sid(&self) -> Sid {
        self.inner.domain_sid()
    }

    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        self.inner.account_by_sid(sid)
    }

    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        self.inner.account_by_name(name)
    }

    fn users(&self) -> Vec<UserEntry> {
        self.inner.users()
    }

    fn groups(&self) -> Vec<GroupEntry> {
        self.inner.groups()
    }

    fn volume_name(&self, volume: VolumeId) -> Option<String> {
        self.inner.volume_name(volume)
    }

    fn node_prover(&self) -> Option<Arc<dyn NodeProver>> {
        self.nodes.prover()
    }

    fn node(&self, node: NodeId) -> Option<NodeAccount> {
        self.nodes.node(node)
    }
}
