//! The servers of a cluster, and the cluster itself, as records.
//!
//! Owns `cluster/` and `node/`. Promises: a number is given to one server and never again; names of servers that are in the cluster
//! differ; secrets stand here sealed only. Every admission changes the cluster's record, so that two at once cannot both be applied.

use crate::seal::{SealError, SealKey};
use crate::{Record, StateError, Stored, Typed};
use pool::FaultDomain;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use types::NodeId;
use uuid::Uuid;
use zeroize::Zeroizing;

/// Letters, digits and - of a server's name: those of a NetBIOS name, which NTLM shows.
pub const NODE_NAME_CHARS_MAX: usize = 15;
/// Characters of a cluster's name.
pub const CLUSTER_NAME_CHARS_MAX: usize = 15;
/// Servers of one cluster, as many as Storage Spaces Direct has.
pub const NODES_MAX: usize = 16;
/// Servers that run a member of etcd: with three, one may fail.
pub const ETCD_MEMBERS: usize = 3;
/// TCP port on which a server of a cluster is joined and asked by the others.
pub const CLUSTER_PORT: u16 = 9447;
/// The first server.
pub const FIRST_NODE: NodeId = NodeId(1);

/// Certificates that are kept beside a server's present one: of renewals whose answer was lost, one after the other.
const EARLIER_CERTIFICATES_MAX: usize = 4;
const HEARTBEAT_KEY_BYTES: usize = 32;

/// Why a name is none for a server or a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not a name for a {kind}: {why}")]
pub struct BadName {
    /// Kind of the name: a server's or a cluster's.
    pub kind: &'static str,
    /// First 64 characters of the name.
    pub name: String,
    /// Fault of the name, in words.
    pub why: &'static str,
}

/// Letters, digits and -, at most `chars_max`, not - at either end.
fn check_name(kind: &'static str, name: &str, chars_max: usize) -> Result<(), BadName> {
    let bad = |why| Err(BadName { kind, name: name.chars().take(64).collect(), why });
    if name.is_empty() {
        return bad("it is empty");
    }
    if name.len() > chars_max {
        return bad("it has more than 15 characters");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return bad("it may have letters, digits and - only");
    }
    if name.starts_with('-') || name.ends_with('-') {
        return bad("it begins or ends with -");
    }
    Ok(())
}

/// # Errors
/// [`BadName`].
pub fn check_node_name(name: &str) -> Result<(), BadName> {
    check_name("server", name, NODE_NAME_CHARS_MAX)
}

/// # Errors
/// [`BadName`].
pub fn check_cluster_name(name: &str) -> Result<(), BadName> {
    check_name("cluster", name, CLUSTER_NAME_CHARS_MAX)
}

/// A secret that only the cluster's key opens, see [`SealKey`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(pub String);

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Name of the cluster.
    pub name: String,
    /// Id of the cluster, by which its certificates and heartbeats are told apart.
    pub id: Uuid,
    /// Certificate of the cluster's own authority, in PEM form.
    pub authority_certificate: String,
    /// The authority's key in PKCS#8 form, sealed.
    pub authority_key: Sealed,
    /// Authenticates heartbeats: 32 bytes, sealed.
    pub heartbeat_key: Sealed,
    /// The number that the next server gets.
    pub next_node: NodeId,
    /// Time at which the cluster was made.
    pub created_unix_s: u64,
    /// Certificates that are no longer good although their time is not over.
    #[serde(default)]
    pub revoked: Vec<RevokedCertificate>,
}

/// A certificate that admits nobody any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedCertificate {
    /// Serial number in hexadecimal digits.
    pub serial: String,
    /// Time at which the certificate was revoked.
    pub since_unix_s: u64,
}

const CLUSTER_ID: &str = "cluster";

impl Record for ClusterRecord {
    const PREFIX: &'static str = "cluster/";
    fn id(&self) -> String {
        CLUSTER_ID.into()
    }
}

impl ClusterRecord {
    /// The cluster's record; none on a single server.
    ///
    /// # Errors
    /// Those of the state.
    pub fn find(state: &(impl Typed + ?Sized)) -> Result<Option<Stored<Self>>, StateError> {
        state.read(CLUSTER_ID)
    }

    /// Certificates with these serial numbers are not good any more.
    pub fn revoke(&mut self, serials: impl Iterator<Item = String>, now_unix_s: u64) {
        self.revoked.extend(serials.map(|serial| RevokedCertificate { serial, since_unix_s: now_unix_s }));
    }

    /// When the certificate with this serial number was revoked, if it was.
    pub fn revoked_unix_s(&self, serial: &str) -> Option<u64> {
        self.revoked.iter().find(|revoked| revoked.serial == serial).map(|revoked| revoked.since_unix_s)
    }

    /// A new random key for heartbeats, sealed.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn new_heartbeat_key(id: Uuid, key: &SealKey) -> Result<Sealed, SealError> {
        seal_random::<HEARTBEAT_KEY_BYTES>(key, &heartbeat_label(id))
    }

    /// # Errors
    /// [`SealError::DoesNotOpen`].
    pub fn open_heartbeat_key(&self, key: &SealKey) -> Result<Zeroizing<Vec<u8>>, SealError> {
        key.open(&heartbeat_label(self.id), &self.heartbeat_key.0)
    }
}

fn is_zero_s(seconds: &u64) -> bool {
    *seconds == 0
}

fn heartbeat_label(cluster: Uuid) -> String {
    format!("heartbeats of cluster {cluster}")
}

fn seal_random<const BYTES: usize>(key: &SealKey, of: &str) -> Result<Sealed, SealError> {
    let mut secret = Zeroizing::new([0; BYTES]);
    getrandom::fill(secret.as_mut_slice()).map_err(|_| SealError::Random)?;
    key.seal(of, secret.as_slice()).map(Sealed)
}

/// Membership of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Member in service: it takes its share of the work. Heartbeats tell whether it is alive, not the
    /// record.
    Up,
    /// Data and volumes are moving away.
    Draining,
    /// Nothing is on it any more.
    Drained,
    /// Member that left for good; its number and certificate are not used again.
    Removed,
}

/// A server's member of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdMember {
    /// Name of the member in etcd.
    pub name: String,
    /// `https://ADDRESS:PORT`, for the other members.
    pub peer_url: String,
    /// `https://ADDRESS:PORT`, for the servers.
    pub client_url: String,
}

/// A certificate that a server had before its present one. Both are good: it shows the new one once it has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierCertificate {
    /// SHA-256 of the certificate (DER), in hexadecimal digits.
    pub sha256: String,
    /// Serial number of the certificate, in hexadecimal digits.
    pub serial: String,
}

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Number of the server.
    pub id: NodeId,
    /// Name of the server, unique in the cluster ignoring case.
    pub name: String,
    /// ServerGuid of MS-SMB2 2.2.4: clients tell servers apart by it.
    pub server_guid: Uuid,
    /// Addresses at which the other servers reach it, the preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Address of the SMB server.
    pub smb: SocketAddr,
    /// Address of SMB Direct.
    #[serde(default)]
    pub rdma: Option<SocketAddr>,
    /// Address of the management API, which may listen on loopback only.
    pub api: SocketAddr,
    /// Address for joining, and for questions between servers.
    pub cluster: SocketAddr,
    /// Heartbeats, UDP.
    pub heartbeat: SocketAddr,
    /// The member of etcd that the server runs; `None`: none.
    #[serde(default)]
    pub etcd: Option<EtcdMember>,
    /// The server's public key, as [`crate::authority::ProvenKey`] has it.
    pub public_key: String,
    /// SHA-256 of its certificate (DER), in hexadecimal digits.
    pub certificate_sha256: String,
    /// Serial number of its certificate, in hexadecimal digits.
    pub certificate_serial: String,
    /// When its certificate was made; 0: not known.
    #[serde(default, skip_serializing_if = "is_zero_s")]
    pub certified_unix_s: u64,
    /// The last few before that, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_certificates: Vec<EarlierCertificate>,
    /// Rack that holds the server; empty: not named.
    #[serde(default)]
    pub rack: String,
    /// Chassis that holds the server; empty: not named.
    #[serde(default)]
    pub chassis: String,
    /// Version of the server's program.
    pub version: String,
    /// Time at which the server became part of the cluster.
    pub joined_unix_s: u64,
    /// Whether the server serves, drains or was removed.
    pub state: NodeState,
    /// A witness votes, and has neither disks nor an SMB server: `smb` is its cluster port.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_witness: bool,
}

impl Record for NodeRecord {
    const PREFIX: &'static str = "node/";
    fn id(&self) -> String {
        Self::id_of(self.id)
    }
}

impl NodeRecord {
    /// The part of a server's key behind the prefix, in the order of numbers.
    pub fn id_of(node: NodeId) -> String {
        format!("{:010}", node.0)
    }

    /// Whether the server is in the cluster, alive or not.
    pub fn is_member(&self) -> bool {
        self.state != NodeState::Removed
    }

    /// Whether it is one of the server's certificates. SHA-256 in hexadecimal digits.
    pub fn has_certificate(&self, sha256: &str) -> bool {
        self.certificate_sha256 == sha256
            || self.earlier_certificates.iter().any(|earlier| earlier.sha256 == sha256)
    }

    /// Serial numbers of all its certificates.
    pub fn certificate_serials(&self) -> impl Iterator<Item = &str> {
        let earlier = self.earlier_certificates.iter().map(|earlier| earlier.serial.as_str());
        std::iter::once(self.certificate_serial.as_str()).chain(earlier)
    }

    /// Shows another certificate from now on. Also answers those that are not accepted any more, as there are too many.
    #[must_use]
    pub fn with_certificate(
        mut self,
        sha256: String,
        serial: String,
        certified_unix_s: u64,
    ) -> (Self, Vec<EarlierCertificate>) {
        self.certified_unix_s = certified_unix_s;
        let sha256 = std::mem::replace(&mut self.certificate_sha256, sha256);
        let serial = std::mem::replace(&mut self.certificate_serial, serial);
        self.earlier_certificates.insert(0, EarlierCertificate { sha256, serial });
        let kept = self.earlier_certificates.len().min(EARLIER_CERTIFICATES_MAX);
        let dropped = self.earlier_certificates.split_off(kept);
        (self, dropped)
    }

    /// The place of its disks. `enclosure` is the chassis of several servers, which is wider than a server: it stays out, and counts as
    /// the rack of servers that have no other.
    pub fn fault_domain(&self) -> FaultDomain {
        let rack = if self.rack.is_empty() { &self.chassis } else { &self.rack };
        FaultDomain { rack: rack.clone(), node: self.name.clone(), enclosure: String::new() }
    }
}

/// The servers of the cluster, removed ones left out, by number.
///
/// # Errors
/// Those of the state.
pub fn members(state: &(impl Typed + ?Sized)) -> Result<Vec<Stored<NodeRecord>>, StateError> {
    let mut all = state.list::<NodeRecord>()?;
    all.retain(|node| node.value.is_member());
    Ok(all)
}

/// Whether a server's record says that it was removed.
///
/// # Errors
/// Those of the state.
pub fn is_removed(state: &(impl Typed + ?Sized), node: NodeId) -> Result<bool, StateError> {
    let found = state.read::<NodeRecord>(&NodeRecord::id_of(node))?;
    Ok(found.is_some_and(|found| !found.value.is_member()))
}

/// The member of that name, ignoring case.
///
/// # Errors
/// Those of the state.
pub fn member_named(
    state: &(impl Typed + ?Sized),
    name: &str,
) -> Result<Option<Stored<NodeRecord>>, StateError> {
    Ok(members(state)?.into_iter().find(|node| node.value.name.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_are_those_that_netbios_has() {
        for good in ["a", "node-1", "A2345678901234B"] {
            assert_eq!(check_node_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a2345678901234bc", "-a", "a-", "a.b", "a b", "ü", "a/b", "$"] {
            assert!(check_node_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn records_that_name_a_secret_for_the_bus_as_they_once_did_are_read() {
        let now = NodeRecord { is_witness: true, ..record() };
        let mut before: serde_json::Value = serde_json::to_value(&now).unwrap();
        before["bus_secret"] = "sealed".into();
        before["bus_generation"] = 3.into();
        assert_eq!(serde_json::from_value::<NodeRecord>(before).unwrap(), now);
    }

    fn record() -> NodeRecord {
        let address = "10.1.0.11:445".parse().unwrap();
        NodeRecord {
            id: NodeId(2),
            name: "node-2".into(),
            server_guid: Uuid::nil(),
            addresses: Vec::new(),
            smb: address,
            rdma: None,
            api: address,
            cluster: address,
            heartbeat: address,
            etcd: None,
            public_key: String::new(),
            certificate_sha256: String::new(),
            certificate_serial: String::new(),
            certified_unix_s: 0,
            earlier_certificates: Vec::new(),
            rack: String::new(),
            chassis: String::new(),
            version: "0.1.0".into(),
            joined_unix_s: 0,
            state: NodeState::Up,
            is_witness: false,
        }
    }

    #[test]
    fn keys_of_servers_are_in_the_order_of_their_numbers() {
        assert!(NodeRecord::id_of(NodeId(9)) < NodeRecord::id_of(NodeId(10)));
    }
}
