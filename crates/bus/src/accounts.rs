//! The machine accounts of nodes, and the share that only they reach.
//!
//! A node has an account `node-<id>$` on every other node, as computers have in a domain, whose password is the random secret in the
//! node's record. Each secret that it gets later has an account of its own, `node-<id>-<generation>$`, so that sessions end with the secret
//! that they began by ([`crate::Rotation`]). Promises: such an account reaches `bus$` and nothing else; nobody else reaches `bus$`; when an account is taken away,
//! its sessions end with the server's next review of accounts and shares ([`smb_server::Server::directory_changed`]).

use crate::{SHARE, VOLUME};
use smb::auth::NtHash;
use smb::rpc::AccountEntry;
use smb_server::{Account, Directory, Share};
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};
use types::{NodeId, Sid};
use volume::backend::{AccessToken, Privileges, ShareOptions};
use zeroize::Zeroizing;

/// All that a share can grant (MS-SMB2 2.2.13.1).
const FULL_ACCESS: u32 = 0x001F_01FF;

/// A node's secret: 32 random bytes, which are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The NT hash of the password: the secret in hexadecimal digits.
    pub(crate) fn nt_hash(&self) -> NtHash {
        let mut password = Zeroizing::new(String::with_capacity(64));
        for byte in self.0.iter() {
            // A string takes whatever is written to it.
            let _ = write!(password, "{byte:02x}");
        }
        NtHash::from_password(&password)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The name of a node's machine account for its secret of that generation, 0 for its first.
pub fn account_name(node: NodeId, generation: u32) -> String {
    match generation {
        0 => format!("node-{node}$"),
        _ => format!("node-{node}-{generation}$"),
    }
}

/// Whether a name has the form of a node's machine account, whatever its case.
pub fn is_account_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let number = lower.strip_prefix("node-").and_then(|rest| rest.strip_suffix('$'));
    let (number, generation) =
        number.map_or(("", "0"), |number| number.split_once('-').unwrap_or((number, "0")));
    [number, generation].iter().all(|number| number.parse::<u32>().is_ok())
}

/// The SID of a node's machine account.
fn account_sid(node: NodeId) -> Sid {
    Sid::cluster_nodes().child(node.0).unwrap_or_else(Sid::cluster_nodes)
}

/// One version of the accounts.
#[derive(Default)]
struct Version {
    /// By lower-cased name.
    accounts: BTreeMap<String, Account>,
    share: Option<Arc<Share>>,
}

/// The nodes that may use the bus, for any thread; clones share them. Without nodes there is no share `bus$`.
#[derive(Clone, Default)]
pub struct NodeAccounts(Arc<RwLock<Arc<Version>>>);

impl NodeAccounts {
    /// Exchanges all of them: nodes, generations and secrets. `encrypt`: only encrypted requests reach the share. The server is to be told afterwards
    /// ([`smb_server::Server::directory_changed`]).
    pub fn set<'a>(&self, nodes: impl IntoIterator<Item = (NodeId, u32, &'a Secret)>, encrypt: bool) {
        let accounts: BTreeMap<String, Account> = nodes
            .into_iter()
            .map(|(node, generation, secret)| {
                let token = AccessToken {
                    user: account_sid(node),
                    primary_group: Sid::cluster_nodes(),
                    // Neither Everyone nor Authenticated Users: no other share lets such an account in.
                    groups: vec![Sid::cluster_nodes()],
                    privileges: Privileges::empty(),
                };
                let name = account_name(node, generation);
                let nt_hash = *secret.nt_hash().as_bytes();
                (name.clone(), Account { name, nt_hash, enabled: true, token: Arc::new(token) })
            })
            .collect();
        let share = (!accounts.is_empty()).then(|| {
            Arc::new(Share {
                name: SHARE.to_owned(),
                comment: String::new(),
                volume: VOLUME,
                path: String::new(),
                options: ShareOptions { no_caching: true, ..ShareOptions::default() },
                encrypt,
                access: vec![(Sid::cluster_nodes(), FULL_ACCESS)],
            })
        });
        // A writer only stores a pointer: a poisoned lock still guards a whole version.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Version { accounts, share });
    }

    fn current(&self) -> Arc<Version> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A directory with the accounts of nodes and the share `bus$` beside what it holds.
pub struct WithNodes<D> {
    pub inner: D,
    pub nodes: NodeAccounts,
}

impl<D: Directory> Directory for WithNodes<D> {
    fn account(&self, domain: &str, user: &str) -> Option<Account> {
        // Users' names cannot end so (MS-SAMR 3.1.1.6), but an imported one might: a node's name is a node's.
        if user.ends_with('$')
            && let Some(account) = self.nodes.current().accounts.get(&user.to_lowercase())
        {
            return Some(account.clone());
        }
        self.inner.account(domain, user)
    }

    fn share(&self, name: &str) -> Option<Arc<Share>> {
        if name.eq_ignore_ascii_case(SHARE)
            && let Some(share) = &self.nodes.current().share
        {
            return Some(share.clone());
        }
        self.inner.share(name)
    }

    /// Lists what clients may see: the bus is hidden.
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
}
