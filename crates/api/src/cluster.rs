//! Objects of the API about the cluster: data only.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use utoipa::ToSchema;

/// The cluster, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// `null`: this is a single server.
    pub name: Option<String>,
    /// UUID of the cluster; `null`: a single server.
    pub id: Option<String>,
    /// Servers of the cluster, the witness among them; none on a single server.
    pub nodes: Vec<NodeView>,
    /// The engine that keeps the records, and the health of its members.
    pub engine: StateEngine,
    /// The loss that one more dead server would bring, a sentence each.
    pub at_risk: Vec<String>,
    /// Expiry of the cluster's certificate authority; `null`: a single server.
    #[serde(default)]
    pub authority_ends_unix_s: Option<u64>,
    /// Reason why the answering server serves no volume; `null`: it may serve.
    #[serde(default)]
    pub unserved: Option<Unserved>,
}

/// State of a server that hears no majority and so serves no volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unserved {
    /// The state and the remedy, such as `no volume is served: 1 of 3 servers is heard; start node-1 or node-3`.
    pub sentence: String,
    /// The servers heard, including this one, by name.
    pub heard: Vec<String>,
    /// The others.
    pub missing: Vec<String>,
}

/// The engine that keeps the cluster's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateEngine {
    /// `redb` on a single server, `etcd` in a cluster.
    pub name: String,
    /// Version of etcd's program; `null`: unknown, and for redb.
    pub version: Option<String>,
    /// Number that grows with each change of the records.
    pub revision: u64,
    /// Members that have a vote, by the names of their servers.
    pub members: Vec<String>,
    /// Members that do nothing for the majority at present: they did not answer, or said so.
    #[serde(default)]
    pub members_down: Vec<String>,
    /// Number of members that must answer.
    pub quorum: u32,
    /// Remarks on the engine, for example of a fix that its version lacks.
    pub notes: Vec<String>,
}

/// Whether a server serves, from the view of the answering one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Lives, and may own volumes.
    Up,
    /// Dead by heartbeats; if heartbeats do not tell, without an answer.
    Down,
    /// Lives, and its volumes move to other servers.
    Draining,
    /// Lives, owns no volume and gets none: it may be stopped.
    Drained,
}

/// A server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Name of the server, unique in the cluster ignoring case.
    pub name: String,
    /// Whether the server serves, drains or is dead.
    pub state: NodeStatus,
    /// Number of the server in the cluster; it is not given again.
    #[schema(value_type = u32)]
    pub id: types::NodeId,
    /// Addresses by which clients and servers reach it.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// The number of its process, if that runs on this machine.
    pub pid: Option<u32>,
    /// Address and port of its SMB server over TCP.
    #[schema(value_type = String)]
    pub smb: SocketAddr,
    /// Address and port of its SMB Direct listener; `null`: none.
    #[schema(value_type = Option<String>)]
    pub rdma: Option<SocketAddr>,
    /// Where servers are joined to the cluster.
    #[schema(value_type = String)]
    pub cluster: SocketAddr,
    /// Whether the server runs a member of etcd that has a vote and answers.
    pub runs_etcd: bool,
    /// Whether the server only votes: without disks and SMB server, so that `smb` is its cluster port.
    pub is_witness: bool,
    /// Rack of the server; empty: not named.
    pub rack: String,
    /// Chassis of the server; empty: not named.
    pub chassis: String,
    /// Version of its release: running if it answered, else as recorded.
    pub version: String,
    /// Time at which it became part of the cluster.
    pub joined_unix_s: u64,
    /// Expiry of the server's certificate, which it renews long before; `null`: unknown.
    #[serde(default)]
    pub certificate_ends_unix_s: Option<u64>,
    /// Number of disks that it has in pools.
    pub disks: u32,
    /// Names of the volumes that it serves.
    pub volumes: Vec<String>,
    /// How often a majority of the servers took the server for dead although its process had not ended, as
    /// heard by the answering server since its start; `null`: unknown, and for that server itself.
    #[serde(default)]
    pub false_deaths: Option<u64>,
    /// Connections of the answering server to this one's disks; `null` for that server itself.
    pub bus: Option<BusPeer>,
}

impl NodeView {
    /// A server for tests, with a name and a number: it is up, at a port of this machine, and runs a member
    /// of etcd.
    #[doc(hidden)]
    pub fn of_test(name: &str, id: u32) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Self {
            name: name.to_owned(),
            state: NodeStatus::Up,
            id: types::NodeId(id),
            addresses: vec![address.ip()],
            pid: None,
            smb: address,
            rdma: None,
            cluster: address,
            runs_etcd: true,
            is_witness: false,
            rack: String::new(),
            chassis: String::new(),
            version: String::new(),
            joined_unix_s: 0,
            certificate_ends_unix_s: None,
            disks: 0,
            volumes: Vec::new(),
            false_deaths: None,
            bus: None,
        }
    }
}

/// State of the session with another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusState {
    /// No connection, and the next attempt has yet to begin.
    Down,
    /// An attempt to connect is under way.
    Connecting,
    /// The session carries requests.
    Up,
}

/// Beneficiaries of requests to another server's disks, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusPriority {
    /// A client waits for them, or may.
    Client,
    /// Brings a returned copy up to date.
    Resync,
    /// Rebuilds lost copies.
    Rebuild,
    /// And comparisons of copies.
    Rebalance,
}

/// Requests of one priority to another server's disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusQueue {
    /// Beneficiary of the queue's requests.
    pub priority: BusPriority,
    /// Requests that wait for others before they leave.
    pub waiting: u64,
    /// Bytes that requests which are not answered move in either direction, and 64 KiB for each.
    pub in_flight_bytes: u64,
    /// Requests that have left.
    pub requests: u64,
    /// The longest wait of one before it left, in microseconds.
    pub longest_wait_us: u64,
}

/// One connection of the session with another server, or one to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusChannel {
    /// Address and port of the other server's end.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// By SMB Direct.
    pub rdma: bool,
    /// Whether the connection carries requests.
    pub is_up: bool,
    /// Bytes in flight in both directions, plus 64 KiB for each request.
    pub in_flight_bytes: u64,
    /// Requests since the session was set up.
    pub requests: u64,
    /// Bytes that these moved, counted in the same way.
    pub moved_bytes: u64,
}

/// One server's requests to another one's disks, since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusPeer {
    /// Number of the server with the disks.
    #[schema(value_type = u32)]
    pub node: types::NodeId,
    /// Whether the session carries requests.
    pub state: BusState,
    /// Address of the present connection, or of the last attempt.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// By SMB Direct.
    pub rdma: bool,
    /// Why the last connection, or the last attempt, failed.
    pub trouble: Option<String>,
    /// Requests that have left and are not answered.
    pub in_flight: u64,
    /// The connections of the present session.
    #[serde(default)]
    pub channels: Vec<BusChannel>,
    /// By priority, the most urgent first.
    pub queues: Vec<BusQueue>,
    /// Requests that have left, answered or not.
    pub requests: u64,
    /// Answers that arrived.
    pub answers: u64,
    /// Requests that were lost with their connection, or asked without one.
    pub unreachable: u64,
    /// Bytes written to the other server's disks.
    pub written_bytes: u64,
    /// Bytes read from the other server's disks.
    pub read_bytes: u64,
    /// Sessions that were set up.
    pub connections: u64,
    /// Connections that were lost while others of their session remained.
    #[serde(default)]
    pub channels_lost: u64,
    /// Times that a request waited for SMB2 credits.
    pub credit_stalls: u64,
    /// Reads of the answering server's volumes that took longer than nearly all reads from this peer's
    /// disks.
    pub late_reads: u64,
    /// Late reads that were also sent to another copy.
    pub hedged_reads: u64,
    /// Late reads that the other copy answered first.
    pub hedges_won: u64,
    /// Mean microseconds of a request; `null`: no answers.
    pub latency_mean_us: Option<u64>,
    /// 99th percentile in microseconds; `null` also if it is beyond the last bound.
    pub latency_p99_us: Option<u64>,
}

/// Figures of the cluster for metrics, from this server's own knowledge. Unknown ones are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFigures {
    /// Name of the cluster.
    pub cluster: String,
    /// This server's name.
    pub node: String,
    /// Whether this server hears a majority of the servers, and may serve; `None`: heartbeats have not
    /// begun.
    pub has_majority: Option<bool>,
    /// End of this server's certificate.
    pub certificate_ends_unix_s: Option<u64>,
    /// The member of etcd that it runs votes.
    pub etcd_member_votes: Option<bool>,
    /// Figures that one server exports for all: `None` at the others.
    pub shared: Option<SharedFigures>,
}

/// Figures of the cluster that belong to no server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedFigures {
    /// Names of servers, and whether each is up.
    pub nodes: Vec<(String, bool)>,
    /// Votes of etcd; `None`: this server does not know its members.
    pub etcd: Option<EtcdFigures>,
    /// End of the certificate of the cluster's authority.
    pub authority_ends_unix_s: Option<u64>,
}

/// The members of etcd that ought to vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdFigures {
    /// Members that have a vote, working or not.
    pub members: u64,
    /// Members that vote and answer.
    pub working: u64,
    /// Members that a majority needs.
    pub needed: u64,
}

/// A request of this API for another server to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// Method as in HTTP.
    pub method: String,
    /// Path with the query.
    pub path: String,
    /// Body as JSON; empty if there is none. May hold secrets.
    pub body: String,
}

/// Longest answer to another server, in bytes.
pub(crate) const ERRAND_ANSWER_BYTES_MAX: usize = 2 << 20;

/// Outcome of an errand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// HTTP's.
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// A cluster to make, of which this server is the first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCluster {
    /// At most 15 letters, digits and -.
    pub name: String,
}

/// A request to join this server to a cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinCluster {
    /// ADDRESS:PORT of a server of the cluster; left out: those in the token.
    #[serde(default)]
    pub address: Option<String>,
    /// Text of a token that a server of the cluster made, good for one join.
    pub token: String,
}

/// Lets one server join.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// Text of the token, with the addresses of servers and a secret.
    pub token: String,
    /// Time until which it is good.
    pub expires_unix_s: u64,
}

/// Outcome of a join. The server starts again as a part of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Joined {
    /// Name of the cluster that was joined.
    pub cluster: String,
    /// Name of this server in the cluster.
    pub name: String,
    /// Number of this server in the cluster.
    #[schema(value_type = u32)]
    pub id: types::NodeId,
}

/// The servers to check before one joins, or in a cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TestCluster {
    /// Address of a cluster that this server might join; left out: its own cluster.
    #[serde(default)]
    pub address: Option<String>,
    /// Token for `address`, from a server of that cluster.
    #[serde(default)]
    pub token: Option<String>,
}

/// Outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// As it should be.
    Good,
    /// Works, but not as it should.
    Warning,
    /// Prevents a cluster.
    Failed,
}

/// One finding of the preflight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreflightCheck {
    /// Subject of the check, for example `clock`.
    pub check: String,
    /// The server, or two of them: `node-1 -> node-2`.
    pub subject: String,
    /// Whether the check is passed.
    pub outcome: CheckOutcome,
    /// Result of the check, with figures; if it is not good, the reason and the remedy.
    pub found: String,
}
