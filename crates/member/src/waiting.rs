//! The reason why a starting server still waits for the cluster's state: missing servers, or its own
//! removal.
//!
//! Promises: only checks, within [`PATIENCE`] and a little; never reports a server as missing if its
//! etcd accepts connections.

use crate::alone::date;
use crate::asking::ask;
use crate::identity::Identity;
use crate::tls;
use crate::wire::{Ask, Tell};
use records::clock::unix_now_s;
use records::nodes::is_removed;
use records::{State, StateError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Timeout of another server's answer, and of a connection to its etcd.
const PATIENCE: Duration = Duration::from_secs(2);

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// Another server reports that this one was removed from the cluster, and when, if known.
    Removed { by: String, unix_s: Option<u64> },
    /// Names, or addresses, of the servers whose etcd takes no connection.
    For(Vec<String>),
}

impl Waits {
    /// Explains the wait to an administrator, with the remedy.
    pub fn in_words(&self, identity: &Identity) -> String {
        let (own, cluster) = (&identity.facts.name, &identity.facts.cluster);
        match self {
            Self::Removed { by, unix_s } => {
                let when = unix_s.map_or_else(String::new, |unix_s| format!(" on {}", date(unix_s)));
                format!(
                    "this server, '{own}', was removed from cluster {cluster}{when}, as {by} says, and the cluster refuses \
                     it. To bring it back, stop it, move its data directory away, and let it join anew with an empty one \
                     (`cenote cluster join`, or `cenote witness serve` with a token). To leave it out for good, disable its \
                     service"
                )
            }
            Self::For(missing) if missing.is_empty() => format!(
                "this server waits for the state of cluster {cluster}: etcd is reached on all servers that run it, and has no majority yet"
            ),
            Self::For(missing) => format!(
                "this server waits for the state of cluster {cluster}: etcd is not reached on {}. Start these servers: most of those that run etcd must \
                 be up. If they are lost for good, see \"Rescue\" in docs/CLUSTER.md",
                missing.join(", ")
            ),
        }
    }
}

/// Refuses to start a removed server. etcd may still answer it: its members have not read the list of
/// revoked certificates yet, or it is a foreign one.
///
/// # Errors
/// Those of the state, or [`StateError::Open`]: the server was removed.
pub(crate) fn demand_not_removed(state: &State, identity: &Identity) -> Result<(), StateError> {
    match is_removed(state, identity.facts.node)? {
        true => Err(StateError::Open("this server was removed from the cluster".into())),
        false => Ok(()),
    }
}

/// Finds out, on a thread that may block, why this server waits.
pub fn look(identity: &Identity) -> Waits {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_or_else(|_| Waits::For(Vec::new()), |runtime| runtime.block_on(look_at_all(identity)))
}

async fn look_at_all(identity: &Identity) -> Waits {
    let known = identity.known();
    let others = known.map(|known| known.others).unwrap_or_default();
    let mut questions = tokio::task::JoinSet::new();
    if let Ok(asking) = tls::asking(identity) {
        let asking = Arc::new(asking);
        for (name, address) in others.clone() {
            let asking = asking.clone();
            questions.spawn(async move { (name, ask(asking, address, &Ask::Standing, PATIENCE).await) });
        }
    }
    let mut connections = tokio::task::JoinSet::new();
    for address in identity.facts.endpoints.iter().filter_map(|url| address_of(url)) {
        connections.spawn(async move {
            let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(address));
            (address, matches!(connecting.await, Ok(Ok(_))))
        });
    }
    while let Some(asked) = questions.join_next().await {
        if let Ok((by, Ok((Tell::Standing { is_member: false, removed_unix_s }, _)))) = asked {
            let unix_s = removed_unix_s.filter(|removed| *removed <= unix_now_s());
            return Waits::Removed { by, unix_s };
        }
    }
    let mut missing = Vec::new();
    while let Some(connected) = connections.join_next().await {
        if let Ok((address, false)) = connected {
            let of_host = |(_, other): &&(String, SocketAddr)| other.ip() == address.ip();
            missing.push(
                others.iter().find(of_host).map_or_else(|| address.to_string(), |(name, _)| name.clone()),
            );
        }
    }
    missing.sort();
    Waits::For(missing)
}

/// The address in a client URL of etcd.
fn address_of(url: &str) -> Option<SocketAddr> {
    url.split_once("://")?.1.trim_end_matches('/').parse().ok()
}
