//! Admission of servers to the cluster, and their removal.
//!
//! Owns the founding of a cluster, the admission of a server and its removal, each as one transaction.
//! Promises: a refused server gets the reason, and nothing was changed; of two servers that want one
//! name, or one token, one is admitted; a request whose answer was lost can be repeated with the same
//! key. Never uses a network: an applicant's request is data, and the clock a number.

use crate::join_token::{self, JoinTokenRecord, TokenRefused};
use records::names::NameRule;
use records::nodes::{
    self, BadName, ClusterRecord, ETCD_MEMBERS, EtcdMember, FIRST_NODE, NODES_MAX, NodeRecord, NodeState,
    check_cluster_name, check_node_name,
};
use records::seal::{SealError, SealKey};
use records::{DiskRecord, DiskState, Record, StateError, Stored, Transaction, Typed, VolumeRecord};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use trust::authority::{Authority, AuthorityError, Issued, ProvenKey, Unrecorded};
use types::NodeId;
use uuid::Uuid;

/// Most seconds by which clocks of servers may differ: logons, certificates and the times of files need
/// clocks that agree, and NTP keeps them to milliseconds.
pub const CLOCK_SKEW_MAX_S: u64 = 30;
/// Addresses that a server may have.
const ADDRESSES_MAX: usize = 16;
/// Attempts of a change that others get in the way of.
const ATTEMPTS: u32 = 16;

/// Where a server runs its member of etcd, if it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdAddresses {
    /// Address and port of the member for other members (peer URL).
    pub peer: SocketAddr,
    /// Address and port of the member for the servers (client URL).
    pub client: SocketAddr,
}

/// A server's description of itself in its request to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applicant {
    /// Name of the server, unique in the cluster.
    pub name: String,
    /// Version of the server's program.
    pub version: String,
    /// ServerGuid of the applicant's SMB server (MS-SMB2 2.2.4).
    pub server_guid: Uuid,
    /// The preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Address of the SMB server by TCP.
    pub smb: SocketAddr,
    /// Address of SMB Direct; `None`: not served by the applicant.
    pub rdma: Option<SocketAddr>,
    /// Address on which its management API listens.
    pub api: SocketAddr,
    /// Address of the cluster's port, by TCP.
    pub cluster: SocketAddr,
    /// Address of heartbeats, by UDP.
    pub heartbeat: SocketAddr,
    /// Addresses for a member of etcd; `None`: not run by the applicant.
    pub etcd: Option<EtcdAddresses>,
    /// Rack of the server; empty: not named.
    pub rack: String,
    /// Chassis of the server; empty: not named.
    pub chassis: String,
    /// A witness votes only: it has no disks, and `smb` is its cluster port.
    #[serde(default)]
    pub is_witness: bool,
    /// The applicant's configuration names an etcd that somebody else runs.
    #[serde(default)]
    pub uses_other_etcd: bool,
    /// Time of the applicant's clock.
    pub unix_s: u64,
    /// Proven for [`proof_context`].
    pub key: ProvenKey,
}

/// The only purpose for which the proof of an applicant's key is valid.
pub fn proof_context(cluster_or_token: &str) -> String {
    format!("joining {cluster_or_token}")
}

/// A server that is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Record of the cluster, as of the admission.
    pub cluster: ClusterRecord,
    /// Record of the server, with the number that it got.
    pub node: NodeRecord,
    /// The node's certificate in PEM form.
    pub certificate: String,
}

/// Why a cluster was not founded, a server not let in, or not removed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The requested server is in no cluster.
    #[error("this server is in no cluster; `cenote cluster create --name NAME` makes one of it")]
    NoCluster,
    /// The server is in the named cluster.
    #[error("this server is in cluster {0} already")]
    InCluster(String),
    /// The name of the cluster or server breaks a rule for names.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The token of the join does not let its holder in.
    #[error(transparent)]
    Token(#[from] TokenRefused),
    /// Another server, number `id` at `address`, has the name.
    #[error(
        "there is a server '{name}' (number {id}, at {address}) in the cluster already; give this one another name (server.name)"
    )]
    NameTaken { name: String, id: NodeId, address: SocketAddr },
    /// Server `name` has the address.
    #[error(
        "server '{name}' of the cluster has address {address} already; each server has addresses of its own"
    )]
    AddressTaken { name: String, address: SocketAddr },
    /// The addresses cannot be used, for the reason named.
    #[error("{0}")]
    Address(String),
    /// The applicant's clock is `off_s` seconds off, more than [`CLOCK_SKEW_MAX_S`].
    #[error(
        "its clock is {off_s} s {direction} the cluster's, and {CLOCK_SKEW_MAX_S} s are allowed; set it by NTP, then join again"
    )]
    Clock { off_s: u64, direction: &'static str },
    /// The applicant's version of the program does not work with the cluster's.
    #[error("it runs version {theirs}, and the cluster version {ours}; install the same on both")]
    Version { theirs: String, ours: String },
    /// The cluster has [`NODES_MAX`] servers.
    #[error("the cluster has {NODES_MAX} servers already, as many as there may be")]
    Full,
    /// No server of the cluster has the name.
    #[error("there is no server '{0}' in the cluster; `cenote node list` shows those there are")]
    NoSuchNode(String),
    /// The named server is the only one: it is not removed.
    #[error("server '{0}' is the last of the cluster and stays")]
    LastNode(String),
    /// The cluster has a witness, by the name given.
    #[error(
        "the cluster has a witness already, '{0}'; one is enough (`cenote node remove {0}` on a server takes it out)"
    )]
    WitnessTaken(String),
    /// Enough members run etcd without a witness.
    #[error(
        "the cluster's state has {ETCD_MEMBERS} members already, and goes on without one of them: it needs no witness, which is for two servers"
    )]
    NoWitnessNeeded,
    /// The witness has no program of etcd.
    #[error("a witness runs a member of etcd: install the package etcd-server there")]
    WitnessWithoutEtcd,
    /// The cluster uses an etcd of somebody else, and the applicant's configuration names none.
    #[error(
        "the cluster's state is in an etcd that its servers' configurations name (cluster.etcd), and this one's does not: set cluster.etcd and its \
         TLS files as on the others"
    )]
    OtherEtcdMissing,
    /// The applicant's configuration names an etcd, and the cluster runs its own.
    #[error(
        "this server's configuration names an etcd (cluster.etcd), and the cluster's servers run their own: take cluster.etcd out of it"
    )]
    OtherEtcdUnknown,
    /// The named server is the witness, which cannot drain.
    #[error("'{0}' is the witness, which has nothing to move away: `cenote node remove {0}` takes it out")]
    IsWitness(String),
    /// Volumes of the named server would have no owner.
    #[error(
        "no other server of the cluster would take the volumes of '{0}': each of them drains, or is the witness"
    )]
    NobodyElse(String),
    /// The cluster's authority cannot be read, or issues no certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The authority's key cannot be sealed or unsealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The records cannot be read or changed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Makes a cluster with its first server, in a state that holds the server's present records.
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
    let with_etcd = !applicant.uses_other_etcd;
    let node = record_of(applicant, FIRST_NODE, &issued, with_etcd, now_unix_s);
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
            // Another server joins or leaves: try again.
            Err(Refused::State(StateError::Conflict)) => {}
            // A second try shows the outcome: after an admission this key has used the token.
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
            return admit_again(state, key, cluster, applicant, &context, now_unix_s)?
                .ok_or(Refused::Token(TokenRefused::Used(by)));
        }
        Err(refused) => return Err(refused.into()),
    };
    check_versions(&applicant.version, version)?;
    check_clock(applicant.unix_s, now_unix_s)?;
    let members = nodes::members(state)?;
    check_among(applicant, &members)?;
    let with_etcd = check_etcd(applicant, &members)?;
    let authority = Authority::open(&cluster.value, key)?;
    let issued = issue(&authority, applicant, &context, now_unix_s)?;
    let node = record_of(applicant, cluster.value.next_node, &issued, with_etcd, now_unix_s);
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

/// Repeats a lost answer to the same key: it gets a new certificate of the same server. `None`: another
/// server used the token.
fn admit_again(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    cluster: Stored<ClusterRecord>,
    applicant: &Applicant,
    context: &str,
    now_unix_s: u64,
) -> Result<Option<Admitted>, Refused> {
    let Some(found) = nodes::member_named(state, &applicant.name)? else { return Ok(None) };
    if found.value.public_key != applicant.key.public_key {
        return Ok(None);
    }
    // The applicant was checked at its admission; its present description of itself does not count.
    let record = &found.value;
    let authority = Authority::open(&cluster.value, key)?;
    let issued = authority.issue(&record.name, &record.addresses, &applicant.key, context, now_unix_s)?;
    certify(state, cluster, found, &issued, now_unix_s).map(Some)
}

/// Records another certificate of a server. One that is too old to count any more is revoked by that.
fn certify(
    state: &(impl Typed + ?Sized),
    cluster: Stored<ClusterRecord>,
    found: Stored<NodeRecord>,
    issued: &Issued,
    certified_unix_s: u64,
) -> Result<Admitted, Refused> {
    let (sha256, serial) = (issued.fingerprint.to_string(), issued.serial.clone());
    let (node, dropped) = found.value.with_certificate(sha256, serial, certified_unix_s);
    let mut transaction =
        Transaction::default().when(node.key(), found.revision).put(node.key(), node.encode());
    let Stored { revision, value: mut cluster } = cluster;
    if !dropped.is_empty() {
        cluster.revoke(dropped.into_iter().map(|earlier| earlier.serial), certified_unix_s);
        transaction = transaction.when(cluster.key(), revision).put(cluster.key(), cluster.encode());
    }
    state.commit(transaction)?;
    Ok(Admitted { cluster, node, certificate: issued.pem.clone() })
}

/// Records a certificate that a server of the cluster made alone, by its own key, while it could not read the records ([`Authority::open_sealed`]).
/// A server that was removed meanwhile is on no record, and neither is its certificate.
///
/// # Errors
/// [`Refused`].
pub fn record_certificate(
    state: &(impl Typed + ?Sized),
    node: NodeId,
    made: &Unrecorded,
    certified_unix_s: u64,
) -> Result<(), Refused> {
    let cluster = ClusterRecord::find(state)?.ok_or(Refused::NoCluster)?;
    let found = state.read::<NodeRecord>(&NodeRecord::id_of(node))?;
    let found =
        found.filter(|found| found.value.is_member()).ok_or_else(|| Refused::NoSuchNode(node.to_string()))?;
    if found.value.has_certificate(&made.sha256) {
        return Ok(());
    }
    let fingerprint = made.sha256.parse().map_err(|()| Refused::NoSuchNode(made.sha256.clone()))?;
    let issued = Issued { pem: String::new(), fingerprint, serial: made.serial.clone() };
    certify(state, cluster, found, &issued, certified_unix_s).map(|_| ())
}

/// A new certificate for a server of the cluster, by its own key. The one before stays good: the server shows it until it has the new one.
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
    let cluster = ClusterRecord::find(state)?.ok_or(Refused::NoCluster)?;
    let found = state.read::<NodeRecord>(&NodeRecord::id_of(node))?;
    let mut found =
        found.filter(|found| found.value.is_member()).ok_or_else(|| Refused::NoSuchNode(node.to_string()))?;
    let context = proof_context(&cluster.value.id.to_string());
    let authority = Authority::open(&cluster.value, key)?;
    let issued = authority.issue(&found.value.name, &found.value.addresses, proven, &context, now_unix_s)?;
    found.value.public_key.clone_from(&proven.public_key);
    certify(state, cluster, found, &issued, now_unix_s)
}

/// Removes a server for good. The caller ensures that its data is elsewhere. The heartbeats then get
/// another key, since the removed server knew the old one. The keys of the others' certificates, which
/// prove them on the bus, never left their servers.
///
/// # Errors
/// [`Refused`].
pub fn remove(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    name: &str,
    now_unix_s: u64,
) -> Result<NodeRecord, Refused> {
    remove_with(state, key, name, DiskState::Retired, now_unix_s)
}

/// As [`remove`], for a server lost with the majority of the cluster. Its disks are missing until they
/// return with another server.
///
/// # Errors
/// [`Refused`].
pub fn leave_behind(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    name: &str,
    now_unix_s: u64,
) -> Result<NodeRecord, Refused> {
    remove_with(state, key, name, DiskState::Missing, now_unix_s)
}

fn remove_with(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    name: &str,
    disks: DiskState,
    now_unix_s: u64,
) -> Result<NodeRecord, Refused> {
    for _ in 0..ATTEMPTS {
        match try_remove(state, key, name, disks, now_unix_s) {
            Err(Refused::State(StateError::Conflict)) => {}
            done => return done,
        }
    }
    Err(Refused::State(StateError::Conflict))
}

fn try_remove(
    state: &(impl Typed + ?Sized),
    key: &SealKey,
    name: &str,
    disks: DiskState,
    now_unix_s: u64,
) -> Result<NodeRecord, Refused> {
    let mut cluster = ClusterRecord::find(state)?.ok_or(Refused::NoCluster)?;
    let members = nodes::members(state)?;
    let found = members.iter().find(|member| member.value.name.eq_ignore_ascii_case(name));
    let found = found.ok_or_else(|| Refused::NoSuchNode(name.to_owned()))?;
    let others = members.iter().filter(|member| member.value.id != found.value.id);
    if others.filter(|member| !member.value.is_witness).count() == 0 {
        return Err(Refused::LastNode(found.value.name.clone()));
    }
    let removed = NodeRecord { state: NodeState::Removed, etcd: None, ..found.value.clone() };
    cluster.value.revoke(removed.certificate_serials().map(str::to_owned), now_unix_s);
    cluster.value.heartbeat_key = ClusterRecord::new_heartbeat_key(cluster.value.id, key)?;
    let mut transaction = Transaction::default()
        .when(cluster.value.key(), cluster.revision)
        .put(cluster.value.key(), cluster.value.encode())
        .when(removed.key(), found.revision)
        .put(removed.key(), removed.encode());
    // Rebuilding the copies on retired disks begins immediately.
    for disk in state.list::<DiskRecord>()? {
        if disk.value.node == Some(removed.id) && disk.value.state != DiskState::Retired {
            let retired = DiskRecord { state: disks, since_unix_s: now_unix_s, ..disk.value };
            transaction = transaction.when(retired.key(), disk.revision).put(retired.key(), retired.encode());
        }
    }
    state.commit(transaction)?;
    Ok(removed)
}

/// Has a server's volumes move away, or lets it have some again; `true` if that changed anything.
///
/// # Errors
/// [`Refused`].
pub fn set_draining(state: &(impl Typed + ?Sized), name: &str, is_draining: bool) -> Result<bool, Refused> {
    for _ in 0..ATTEMPTS {
        let members = nodes::members(state)?;
        let found = members.iter().find(|member| member.value.name.eq_ignore_ascii_case(name));
        let found = found.ok_or_else(|| Refused::NoSuchNode(name.to_owned()))?;
        if found.value.is_witness {
            return Err(Refused::IsWitness(found.value.name.clone()));
        }
        if (found.value.state != NodeState::Up) == is_draining {
            return Ok(false);
        }
        let takes_volumes = |member: &&Stored<NodeRecord>| {
            member.value.id != found.value.id
                && member.value.state == NodeState::Up
                && !member.value.is_witness
        };
        if is_draining && !members.iter().any(|member| takes_volumes(&member)) {
            return Err(Refused::NobodyElse(found.value.name.clone()));
        }
        let state_now = if is_draining { NodeState::Draining } else { NodeState::Up };
        let changed = NodeRecord { state: state_now, ..found.value.clone() };
        match state.write(&changed, found.revision) {
            Err(StateError::Conflict) => {}
            written => return Ok(written.map(|_| true)?),
        }
    }
    Err(Refused::State(StateError::Conflict))
}

/// Records that a draining server has no volume any more; `false`: it has one, or does not drain.
///
/// # Errors
/// Those of the state.
pub fn note_drained(state: &(impl Typed + ?Sized), node: NodeId) -> Result<bool, StateError> {
    follow_draining(state, node, NodeState::Draining, NodeState::Drained)
}

/// Records that a drained server has volumes again, since no other one could take them over: it drains
/// again. `false`: it has none, or was not drained.
///
/// # Errors
/// Those of the state.
pub fn note_serves_again(state: &(impl Typed + ?Sized), node: NodeId) -> Result<bool, StateError> {
    follow_draining(state, node, NodeState::Drained, NodeState::Draining)
}

/// Has the record of a server say `to` in place of `from`, if that is so by the volumes that it has.
fn follow_draining(
    state: &(impl Typed + ?Sized),
    node: NodeId,
    from: NodeState,
    to: NodeState,
) -> Result<bool, StateError> {
    let Some(found) = state.read::<NodeRecord>(&NodeRecord::id_of(node))? else { return Ok(false) };
    let volumes = state.list::<VolumeRecord>()?;
    let has_volumes = volumes.iter().any(|volume| volume.value.owner == Some(node));
    if found.value.state != from || has_volumes != (to == NodeState::Draining) {
        return Ok(false);
    }
    let changed = NodeRecord { state: to, ..found.value };
    match state.write(&changed, found.revision) {
        // An administrator resumed or removed the server meanwhile.
        Err(StateError::Conflict) => Ok(false),
        written => written.map(|_| true),
    }
}

/// Takes a seat among etcd's members, free since a server left, for a server that runs none yet.
/// `None`: no seat is free, or another server has it.
///
/// # Errors
/// Those of the state.
pub fn take_etcd_seat(
    state: &(impl Typed + ?Sized),
    node: NodeId,
    addresses: EtcdAddresses,
) -> Result<Option<NodeRecord>, StateError> {
    let Some(cluster) = ClusterRecord::find(state)? else { return Ok(None) };
    let members = nodes::members(state)?;
    let seated = members.iter().filter(|member| member.value.etcd.is_some()).count();
    // Without any, the cluster's state is in an etcd that somebody else runs.
    if seated == 0 || seated >= ETCD_MEMBERS {
        return Ok(None);
    }
    let Some(found) = members.into_iter().find(|member| member.value.id == node) else { return Ok(None) };
    if found.value.etcd.is_some() {
        return Ok(None);
    }
    let etcd = Some(member_of(&found.value.name, addresses));
    let seated = NodeRecord { etcd, ..found.value };
    // The transaction writes the cluster's record too, as at an admission, so that only one of two
    // concurrent ones gets the seat.
    let transaction = Transaction::default()
        .when(cluster.value.key(), cluster.revision)
        .put(cluster.value.key(), cluster.value.encode())
        .when(seated.key(), found.revision)
        .put(seated.key(), seated.encode());
    match state.commit(transaction) {
        Err(StateError::Conflict) => Ok(None),
        committed => committed.map(|_| Some(seated)),
    }
}

/// Addresses of a member of etcd, by its record; `None`: not made by [`take_etcd_seat`] or an
/// admission.
pub fn addresses_of(member: &EtcdMember) -> Option<EtcdAddresses> {
    let address = |url: &str| url.strip_prefix("https://")?.parse().ok();
    Some(EtcdAddresses { peer: address(&member.peer_url)?, client: address(&member.client_url)? })
}

fn member_of(name: &str, addresses: EtcdAddresses) -> EtcdMember {
    EtcdMember {
        name: name.to_owned(),
        peer_url: format!("https://{}", addresses.peer),
        client_url: format!("https://{}", addresses.client),
    }
}

/// Returns whether the applicant has to run a member of etcd.
fn check_etcd(applicant: &Applicant, members: &[Stored<NodeRecord>]) -> Result<bool, Refused> {
    let seated = members.iter().filter(|member| member.value.etcd.is_some()).count();
    match (seated == 0, applicant.uses_other_etcd) {
        (true, false) => return Err(Refused::OtherEtcdMissing),
        (false, true) => return Err(Refused::OtherEtcdUnknown),
        _ => {}
    }
    if applicant.is_witness {
        if let Some(witness) = members.iter().find(|member| member.value.is_witness) {
            return Err(Refused::WitnessTaken(witness.value.name.clone()));
        }
        if seated >= ETCD_MEMBERS {
            return Err(Refused::NoWitnessNeeded);
        }
        if seated > 0 && applicant.etcd.is_none() {
            return Err(Refused::WitnessWithoutEtcd);
        }
    }
    Ok(seated > 0 && seated < ETCD_MEMBERS)
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

fn record_of(
    applicant: &Applicant,
    id: NodeId,
    issued: &Issued,
    with_etcd: bool,
    now_unix_s: u64,
) -> NodeRecord {
    let etcd = applicant.etcd.filter(|_| with_etcd);
    let etcd = etcd.map(|addresses| member_of(&applicant.name, addresses));
    NodeRecord {
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
        certified_unix_s: now_unix_s,
        earlier_certificates: Vec::new(),
        rack: applicant.rack.clone(),
        chassis: applicant.chassis.clone(),
        version: applicant.version.clone(),
        joined_unix_s: now_unix_s,
        state: NodeState::Up,
        is_witness: applicant.is_witness,
    }
}

/// Checks the description itself, without the cluster's records.
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
    let domains = [&applicant.rack, &applicant.chassis];
    let checked = domains.into_iter().try_for_each(|domain| NameRule::FAULT_DOMAIN.check(domain));
    checked.or_else(|unfit| wrong(unfit.to_string()))
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
        // A trial on one machine and servers on the network cannot reach each other.
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
