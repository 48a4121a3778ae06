//! Who is let into the cluster, and who leaves it.
//!
//! Owns the founding of a cluster, the admission of a server and its removal, each as one transaction. Promises: whoever is refused is told
//! the reason, and nothing was changed; of two servers that want one name, or one token, one gets in; an answer that was lost can be
//! asked for again with the same key. Never talks to a network: an applicant's words come as data, and the clock as a number.

use crate::authority::{Authority, AuthorityError, Issued, ProvenKey};
use crate::join_token::{self, JoinTokenRecord, TokenRefused};
use crate::nodes::{
    self, BadName, ClusterRecord, ETCD_MEMBERS, EtcdMember, FIRST_NODE, NODES_MAX, NodeRecord, NodeState,
    RevokedCertificate, check_cluster_name, check_node_name,
};
use crate::seal::{SealError, SealKey};
use crate::{Record, StateError, Stored, Transaction, Typed};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use types::NodeId;
use uuid::Uuid;

/// Clocks of servers may differ by so many seconds: logons, certificates and the times of files need clocks that agree, and NTP keeps them to
/// milliseconds.
pub const CLOCK_SKEW_MAX_S: u64 = 30;
/// Addresses that a server may have.
const ADDRESSES_MAX: usize = 16;
/// Longest name of a rack or chassis.
const PLACE_CHARS_MAX: usize = 64;
/// Attempts of a change that others get in the way of.
const ATTEMPTS: u32 = 16;

/// Where a server runs its member of etcd, if it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdAddresses {
    pub peer: SocketAddr,
    pub client: SocketAddr,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applicant {
    pub name: String,
    /// Of its program.
    pub version: String,
    pub server_guid: Uuid,
    /// The preferred one first.
    pub addresses: Vec<IpAddr>,
    pub smb: SocketAddr,
    pub rdma: Option<SocketAddr>,
    pub api: SocketAddr,
    pub cluster: SocketAddr,
    pub heartbeat: SocketAddr,
    pub etcd: Option<EtcdAddresses>,
    pub rack: String,
    pub chassis: String,
    /// What its clock shows.
    pub unix_s: u64,
    /// Proven for [`proof_context`].
    pub key: ProvenKey,
}

/// What the proof of an applicant's key is good for.
pub fn proof_context(cluster_or_token: &str) -> String {
    format!("joining {cluster_or_token}")
}

/// A server that is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub cluster: ClusterRecord,
    pub node: NodeRecord,
    /// Its certificate in PEM form.
    pub certificate: String,
}

/// Why a cluster was not founded, a server not let in, or not removed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("this server is in no cluster; `cenote cluster create --name NAME` makes one of it")]
    NoCluster,
    #[error("this server is in cluster {0} already")]
    InCluster(String),
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Token(#[from] TokenRefused),
    #[error(
        "there is a server '{name}' (number {id}, at {address}) in the cluster already; give this one another name (server.name)"
    )]
    NameTaken { name: String, id: NodeId, address: SocketAddr },
    #[error(
        "server '{name}' of the cluster has address {address} already; each server has addresses of its own"
    )]
    AddressTaken { name: String, address: SocketAddr },
    #[error("{0}")]
    Address(String),
    #[error(
        "its clock is {off_s} s {direction} the cluster's, and {CLOCK_SKEW_MAX_S} s are allowed; set it by NTP, then join again"
    )]
    Clock { off_s: u64, direction: &'static str },
    #[error("it runs version {theirs}, and the cluster version {ours}; install the same on both")]
    Version { theirs: String, ours: String },
    #[error("the cluster has {NODES_MAX} servers already, as many as there may be")]
    Full,
    #[error("there is no server '{0}' in the cluster; `cenote node list` shows those there are")]
    NoSuchNode(String),
    #[error("server '{0}' is the last of the cluster and stays")]
    LastNode(String),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// Makes a cluster with its first server, in a state that holds what that server has so far.
///
/// # Errors
/// [`Refused`].
pub fn found_cluster(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    name: &str,
    applicant: &Applicant,
    now_unix_s: u64,
) -> Result<Admitted, Refused> {
    check_cluster_name(name)?;
    check_form(applicant)?;
    if let Some(found) = ClusterRecord::find(state)? {
        return Err(Refused::InCluster(found.value.name));
    }
    let id = random_uuid()?;
    let made = Authority::create(id, key, now_unix_s)?;
    let cluster = ClusterRecord {
        name: name.to_owned(),
        id,
        authority_certificate: made.certificate,
        authority_key: made.key,
        heartbeat_key: ClusterRecord::new_heartbeat_key(id, key)?,
        next_node: NodeId(FIRST_NODE.0 + 1),
        created_unix_s: now_unix_s,
        revoked: Vec::new(),
    };
    let issued = issue(&made.authority, applicant, &proof_context(name), now_unix_s)?;
    let node = record_of(applicant, FIRST_NODE, &issued, true, key, now_unix_s)?;
    let transaction = Transaction::default()
        .when(cluster.key(), 0)
        .put(cluster.key(), cluster.encode())
        .when(node.key(), 0)
        .put(node.key(), node.encode());
    state.commit(transaction)?;
    Ok(Admitted { cluster, node, certificate: issued.pem })
}

/// Lets a server in that shows a token.
///
/// # Errors
/// [`Refused`].
pub fn admit(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    token: (&str, &str),
    applicant: &Applicant,
    version: &str,
    now_unix_s: u64,
) -> Result<Admitted, Refused> {
    check_form(applicant)?;
    for _ in 0..ATTEMPTS {
        match try_admit(state, key, token, applicant, version, now_unix_s) {
            // Somebody else joins or leaves: look again.
            Err(Refused::State(StateError::Conflict)) => {}
            // Whether it is in can be seen: then the token is used, by this key.
            Err(Refused::State(StateError::Unknown(why))) => {
                let seen = try_admit(state, key, token, applicant, version, now_unix_s);
                return seen.map_err(|error| match error {
                    Refused::State(_) => Refused::State(StateError::Unknown(why)),
                    other => other,
                });
            }
            done => return done,
        }
    }
    Err(Refused::State(StateError::Conflict))
}

fn try_admit(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    (token_id, secret): (&str, &str),
    applicant: &Applicant,
    version: &str,
    now_unix_s: u64,
) -> Result<Admitted, Refused> {
    let cluster = ClusterRecord::find(state)?.ok_or(Refused::NoCluster)?;
    let context = proof_context(token_id);
    let token = match join_token::find(state, token_id, secret, now_unix_s)? {
        Ok(token) => token,
        Err(TokenRefused::Used(by)) if by.eq_ignore_ascii_case(&applicant.name) => {
            return admit_again(state, key, cluster.value, applicant, &context, now_unix_s)?
                .ok_or(Refused::Token(TokenRefused::Used(by)));
        }
        Err(refused) => return Err(refused.into()),
    };
    check_versions(&applicant.version, version)?;
    check_clock(applicant.unix_s, now_unix_s)?;
    let members = nodes::members(state)?;
    check_among(applicant, &members)?;
    let authority = Authority::open(&cluster.value, key)?;
    let issued = issue(&authority, applicant, &context, now_unix_s)?;
    let with_etcd = members.iter().filter(|member| member.value.etcd.is_some()).count() < ETCD_MEMBERS;
    let node = record_of(applicant, cluster.value.next_node, &issued, with_etcd, key, now_unix_s)?;
    let next = ClusterRecord { next_node: NodeId(node.id.0 + 1), ..cluster.value };
    let used = JoinTokenRecord { used_by: Some(applicant.name.clone()), ..token.value };
    let transaction = Transaction::default()
        .when(next.key(), cluster.revision)
        .put(next.key(), next.encode())
        .when(used.key(), token.revision)
        .put(used.key(), used.encode())
        .when(node.key(), 0)
        .put(node.key(), node.encode());
    state.commit(transaction)?;
    Ok(Admitted { cluster: next, node, certificate: issued.pem })
}

/// The answer was lost, and the same key asks once more: it gets a new certificate for what it is. `None`: another server used the token.
fn admit_again(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    cluster: ClusterRecord,
    applicant: &Applicant,
    context: &str,
    now_unix_s: u64,
) -> Result<Option<Admitted>, Refused> {
    let Some(found) = nodes::member_named(state, &applicant.name)? else { return Ok(None) };
    if found.value.public_key != applicant.key.public_key {
        return Ok(None);
    }
    let issued = issue(&Authority::open(&cluster, key)?, applicant, context, now_unix_s)?;
    let node = with_certificate(found.value, &issued);
    state.write(&node, found.revision)?;
    Ok(Some(Admitted { cluster, node, certificate: issued.pem }))
}

/// A new certificate for a server of the cluster, by its own key. The one before is no longer good when its record is written.
///
/// # Errors
/// [`Refused`].
pub fn renew(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    node: NodeId,
    proven: &ProvenKey,
    now_unix_s: u64,
) -> Result<Admitted, Refused> {
    let cluster = ClusterRecord::find(state)?.ok_or(Refused::NoCluster)?.value;
    let found = state.read::<NodeRecord>(&NodeRecord::id_of(node))?;
    let found =
        found.filter(|found| found.value.is_member()).ok_or_else(|| Refused::NoSuchNode(node.to_string()))?;
    let context = proof_context(&cluster.id.to_string());
    let authority = Authority::open(&cluster, key)?;
    let issued = authority.issue(&found.value.name, &found.value.addresses, proven, &context, now_unix_s)?;
    let mut renewed = with_certificate(found.value, &issued);
    renewed.public_key.clone_from(&proven.public_key);
    state.write(&renewed, found.revision)?;
    Ok(Admitted { cluster, node: renewed, certificate: issued.pem })
}

/// Takes a server out for good. Whether its data is elsewhere is the caller's to know.
///
/// # Errors
/// [`Refused`].
pub fn remove(state: &(impl Typed + ?Sized), name: &str, now_unix_s: u64) -> Result<NodeRecord, Refused> {
    for _ in 0..ATTEMPTS {
        match try_remove(state, name, now_unix_s) {
            Err(Refused::State(StateError::Conflict)) => {}
            done => return done,
        }
    }
    Err(Refused::State(StateError::Conflict))
}

fn try_remove(state: &(impl Typed + ?Sized), name: &str, now_unix_s: u64) -> Result<NodeRecord, Refused> {
    let mut cluster = ClusterRecord::find(state)?.ok_or(Refused::NoCluster)?;
    let members = nodes::members(state)?;
    let found = members.iter().find(|member| member.value.name.eq_ignore_ascii_case(name));
    let found = found.ok_or_else(|| Refused::NoSuchNode(name.to_owned()))?;
    if members.len() == 1 {
        return Err(Refused::LastNode(found.value.name.clone()));
    }
    let removed = NodeRecord { state: NodeState::Removed, etcd: None, ..found.value.clone() };
    cluster
        .value
        .revoked
        .push(RevokedCertificate { serial: removed.certificate_serial.clone(), since_unix_s: now_unix_s });
    let transaction = Transaction::default()
        .when(cluster.value.key(), cluster.revision)
        .put(cluster.value.key(), cluster.value.encode())
        .when(removed.key(), found.revision)
        .put(removed.key(), removed.encode());
    state.commit(transaction)?;
    Ok(removed)
}

fn random_uuid() -> Result<Uuid, Refused> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| SealError::Random)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

fn issue(
    authority: &Authority,
    applicant: &Applicant,
    context: &str,
    now_unix_s: u64,
) -> Result<Issued, AuthorityError> {
    authority.issue(&applicant.name, &applicant.addresses, &applicant.key, context, now_unix_s)
}

fn with_certificate(node: NodeRecord, issued: &Issued) -> NodeRecord {
    NodeRecord {
        certificate_sha256: issued.fingerprint.to_string(),
        certificate_serial: issued.serial.clone(),
        ..node
    }
}

fn record_of(
    applicant: &Applicant,
    id: NodeId,
    issued: &Issued,
    with_etcd: bool,
    key: &SealKey,
    now_unix_s: u64,
) -> Result<NodeRecord, SealError> {
    let etcd = applicant.etcd.filter(|_| with_etcd).map(|addresses| EtcdMember {
        name: applicant.name.clone(),
        peer_url: format!("https://{}", addresses.peer),
        client_url: format!("https://{}", addresses.client),
    });
    Ok(NodeRecord {
        id,
        name: applicant.name.clone(),
        server_guid: applicant.server_guid,
        addresses: applicant.addresses.clone(),
        smb: applicant.smb,
        rdma: applicant.rdma,
        api: applicant.api,
        cluster: applicant.cluster,
        heartbeat: applicant.heartbeat,
        etcd,
        public_key: applicant.key.public_key.clone(),
        certificate_sha256: issued.fingerprint.to_string(),
        certificate_serial: issued.serial.clone(),
        bus_secret: NodeRecord::new_bus_secret(id, key)?,
        rack: applicant.rack.clone(),
        chassis: applicant.chassis.clone(),
        version: applicant.version.clone(),
        joined_unix_s: now_unix_s,
        state: NodeState::Up,
    })
}

/// What can be told without looking at the cluster.
fn check_form(applicant: &Applicant) -> Result<(), Refused> {
    check_node_name(&applicant.name)?;
    let wrong = |why: String| Err(Refused::Address(why));
    let addresses = &applicant.addresses;
    if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
        return wrong(format!("a server has 1 to {ADDRESSES_MAX} addresses, not {}", addresses.len()));
    }
    let sockets = [applicant.smb, applicant.cluster, applicant.heartbeat];
    let etcd = applicant.etcd.iter().flat_map(|etcd| [etcd.peer, etcd.client]);
    let sockets = sockets.into_iter().chain(applicant.rdma).chain(etcd);
    for socket in sockets {
        if !addresses.contains(&socket.ip()) {
            return wrong(format!("{socket} is at none of the addresses by which others reach the server"));
        }
        if socket.port() == 0 {
            return wrong(format!("{socket} has no port"));
        }
    }
    let others_cannot_reach = |ip: &IpAddr| ip.is_unspecified() || ip.is_multicast();
    if let Some(ip) = addresses.iter().find(|ip| others_cannot_reach(ip)) {
        return wrong(format!("{ip} is no address by which others reach the server"));
    }
    let long = |place: &str| place.chars().count() > PLACE_CHARS_MAX || place.chars().any(char::is_control);
    if long(&applicant.rack) || long(&applicant.chassis) {
        return wrong(format!("rack and chassis have at most {PLACE_CHARS_MAX} characters"));
    }
    Ok(())
}

fn check_among(applicant: &Applicant, members: &[Stored<NodeRecord>]) -> Result<(), Refused> {
    if members.len() >= NODES_MAX {
        return Err(Refused::Full);
    }
    for Stored { value: member, .. } in members {
        if member.name.eq_ignore_ascii_case(&applicant.name) {
            let (name, id, address) = (member.name.clone(), member.id, member.cluster);
            return Err(Refused::NameTaken { name, id, address });
        }
        if member.cluster == applicant.cluster || member.smb == applicant.smb {
            return Err(Refused::AddressTaken { name: member.name.clone(), address: applicant.cluster });
        }
        // A trial on one machine reaches nobody, and nobody reaches it.
        if member.cluster.ip().is_loopback() != applicant.cluster.ip().is_loopback() {
            return Err(Refused::Address(format!(
                "server '{}' is at {}, and this one at {}: one of them is on loopback, which the other does not reach",
                member.name, member.cluster, applicant.cluster
            )));
        }
    }
    Ok(())
}

/// # Errors
/// [`Refused::Clock`].
pub fn check_clock(theirs_unix_s: u64, ours_unix_s: u64) -> Result<(), Refused> {
    let off_s = theirs_unix_s.abs_diff(ours_unix_s);
    let direction = if theirs_unix_s > ours_unix_s { "ahead of" } else { "behind" };
    if off_s > CLOCK_SKEW_MAX_S { Err(Refused::Clock { off_s, direction }) } else { Ok(()) }
}

/// Versions that differ in the last number only work with each other.
///
/// # Errors
/// [`Refused::Version`].
pub fn check_versions(theirs: &str, ours: &str) -> Result<(), Refused> {
    let family = |version: &str| version.splitn(3, '.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if family(theirs) == family(ours) {
        return Ok(());
    }
    let theirs = theirs.chars().filter(|letter| !letter.is_control()).take(32).collect();
    Err(Refused::Version { theirs, ours: ours.to_owned() })
}

#[cfg(test)]
mod tests;
