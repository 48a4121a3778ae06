//! The API's objects: one set of plain structures for the daemon that fills them, the REST answers, and the CLI that prints them.
//!
//! Owns data only. Every number's unit is in its name; times are Unix seconds. Never does I/O.

use crate::is_unseen;
pub use crate::rdma::{
    Channel, ChannelRdma, CounterKind, Rdma, RdmaActivity, RdmaConnection, RdmaDevice, RdmaInterface,
    RdmaListener, RdmaState, RdmaTrace, RdmaTraceEvent, SmbDirectCounters,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{DiskId, Issue, LatencyHistogram, PoolId, Severity, Sid, VolumeId};
use utoipa::ToSchema;

/// Storage Spaces' HealthStatus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No issue with it.
    #[default]
    Healthy,
    /// Works, with less safety or speed than it should have.
    Warning,
    /// Does not do its work.
    Unhealthy,
}

/// A physical disk's OperationalStatus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskStatus {
    /// In service, without an issue.
    #[default]
    Ok,
    /// The disk was recorded, and its first opening has not ended.
    Starting,
    /// The disk's path does not lead to it, or it stopped answering.
    LostCommunication,
    /// A write or flush failed: the disk takes no writes until it is verified (I9).
    IoError,
    /// The disk's label or records are damaged.
    UnrecognizedMetadata,
    /// The disk's slabs move to other disks.
    Retiring,
}

/// A physical disk's Usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskUsage {
    #[default]
    AutoSelect,
    /// Gets no new slabs.
    Retired,
}

/// A physical disk, with the pool it belongs to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    #[schema(value_type = String)]
    pub id: DiskId,
    /// Absent if the disk belongs to no pool.
    #[schema(value_type = Option<String>)]
    pub pool: Option<PoolId>,
    /// Path of the file, partition or block device on its server.
    pub path: String,
    /// Fault domain that separates copies, such as `rack-1/node-2/disk`.
    pub fault_domain: String,
    pub health: Health,
    pub status: DiskStatus,
    pub usage: DiskUsage,
    /// Whole size of the device or file, labels and journals included.
    pub size_bytes: u64,
    /// Bytes in slabs allocated to volumes. This and the fields below are absent if only the disk's server
    /// knows them, and it was not asked or did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// Logical block: 512 or 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
    /// Whether the device turns: a hard disk, not flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Work and errors of the disk, as its server counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<DiskCounters>,
    /// The server of a cluster that has the disk and reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The device's own report (SMART, NVMe); `None` if it has none, or may not be queried.
    pub device_health: Option<DeviceHealth>,
}

/// Since the daemon started.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct DiskCounters {
    /// Reads sent to the disk.
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    /// Operations the disk answered with an error, or not in time.
    pub errors: u64,
    /// Blocks of 4 KiB whose checksum failed. This count and those below begin when the server gets the
    /// disk, and survive restarts.
    pub corrupt_blocks: u64,
    /// Corrupt blocks that were written again from another copy.
    pub repaired_blocks: u64,
    /// Corrupt blocks that the disk could not read.
    pub medium_errors: u64,
    /// Pages and blocks whose write the disk acknowledged and lost: they held their old contents.
    pub lost_writes: u64,
    /// Part of these three counts that an administrator has acknowledged: health reports only those beyond.
    pub acknowledged_corrupt_blocks: u64,
    /// Medium errors among those that an administrator has acknowledged.
    pub acknowledged_medium_errors: u64,
    /// Lost writes among those that an administrator has acknowledged.
    pub acknowledged_lost_writes: u64,
}

/// A device's own report; `None`: not reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceHealth {
    /// The device's own verdict: `false` predicts that it fails.
    pub passed: Option<bool>,
    /// Share used of the writes that the device is made for; may exceed 100.
    pub used_percent: Option<u32>,
    /// Share left of the device's spare blocks.
    pub spare_percent: Option<u32>,
    /// Fewer spare blocks, and it predicts its failure.
    pub spare_threshold_percent: Option<u32>,
    /// In its whole life.
    pub written_bytes: Option<u64>,
    /// Blocks that the device could not read, in its whole life.
    pub media_errors: Option<u64>,
}

/// A storage pool: disks, and the space on them for volumes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    #[schema(value_type = String)]
    pub id: PoolId,
    pub name: String,
    pub health: Health,
    pub disks: u32,
    /// Unit in which disks give space to volumes.
    pub slab_bytes: u64,
    pub size_bytes: u64,
    /// Absent if a disk's server did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// Bytes kept free for the immediate repair after the loss of a disk.
    pub reserve_bytes: u64,
    /// Number of disks whose size is kept free for repair, the largest first.
    pub reserve_disks: u32,
    /// An administrator chose it; else it follows the number of disks, or was made by an earlier release and stays.
    pub reserve_is_set: bool,
}

/// How many copies of each byte a volume keeps (ResiliencySettingName).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resiliency {
    /// One copy.
    Simple,
    /// Two copies, on different fault domains.
    #[default]
    TwoWayMirror,
    /// Three copies, on different fault domains.
    ThreeWayMirror,
}

impl Resiliency {
    /// Copies of each byte: 1, 2 or 3.
    pub const fn copies(self) -> u8 {
        match self {
            Self::Simple => 1,
            Self::TwoWayMirror => 2,
            Self::ThreeWayMirror => 3,
        }
    }
}

/// The time at which a volume takes its space from the pool (ProvisioningType).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provisioning {
    /// Slabs are allocated as data is written.
    #[default]
    Thin,
    /// Slabs for the whole size are allocated when the volume is made.
    Fixed,
}

pub use types::VOLUME_UNREACHED;
/// Code of the issue that a server lives whose disks are out of reach.
pub const NODE_UNREACHED: &str = "node_unreached";

/// A virtual disk's OperationalStatus, with words of this server's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeStatus {
    /// Every copy is in sync.
    #[default]
    Ok,
    /// A copy is being resynced.
    InService,
    /// Fewer copies than it should have; all data can be read.
    Degraded,
    /// One copy is left.
    NoRedundancy,
    /// A structure is damaged on all copies: files can be read, nothing can be changed.
    ReadOnly,
    /// The volume cannot be served, or its server does not answer.
    Detached,
}

/// A volume: a virtual disk with a file system, of which directories are shared.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    #[schema(value_type = String)]
    pub id: VolumeId,
    pub name: String,
    #[schema(value_type = String)]
    pub pool: PoolId,
    /// The server of a cluster that serves it; other servers' reports lack figures known only to that one.
    #[serde(default)]
    pub owner: Option<String>,
    pub health: Health,
    pub status: VolumeStatus,
    pub resiliency: Resiliency,
    pub provisioning: Provisioning,
    pub size_bytes: u64,
    /// Bytes used by files, and by the slabs of journal and metadata. This and other figures are absent if
    /// only the volume's server knows them, and it was not asked or did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Space left for new data; 0 if metadata has no space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Space that the volume takes from the pool, all copies together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint_bytes: Option<u64>,
    /// Fill level, in percent, from which health warns.
    pub warn_at_percent: u8,
    /// Copies that it should have, by its resiliency.
    pub copies: u8,
    /// Absent if it is not served: how many copies can be used is not known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_sync_copies: Option<u8>,
    /// Fewer, and writes wait.
    pub min_copies: u8,
    /// Number that grows with the volume's record: fences the writes of earlier owners.
    pub epoch: u64,
    /// Blocks that a copy has yet to receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_bytes: Option<u64>,
    /// Bytes that clients read without any disk, since the volume was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit_bytes: Option<u64>,
    /// Bytes that clients read from disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_miss_bytes: Option<u64>,
    /// Least number of disks with copies of any chunk, by the record.
    #[serde(default)]
    pub least_copies: u8,
    /// Least number of servers with copies of any chunk, by the record; absent on a single server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_servers: Option<u8>,
    /// The disks whose copies hold every write.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub holders: Vec<DiskId>,
    /// Bytes of slabs that each disk has of the volume, by the disk's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub held_bytes: Option<BTreeMap<DiskId, u64>>,
}

/// Parts of a volume without an intact copy, as far as reads, scrubs and checks met them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeDamage {
    /// Damaged files by path.
    pub files: Vec<DamagedFile>,
    /// Damaged bytes outside files: of structures, or of deleted files.
    pub other_bytes: u64,
    /// Damaged pages of the volume's tree: their contents cannot be named, and may be files missing in the
    /// list.
    pub unreadable_pages: u64,
    /// Whether there are more files than in the list.
    pub truncated: bool,
}

/// A file of which some bytes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedFile {
    /// From the volume's root, `\` between names; a named stream behind a colon.
    pub path: String,
    pub ranges: Vec<DamagedRange>,
}

/// A range of a file that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// Offset from the file's start.
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// An SMB session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Number of the session, by which a request closes it.
    pub id: u64,
    /// The server of a cluster that it is with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// ADDRESS:PORT of each of its connections.
    pub client: Vec<String>,
    /// User name, as the session authenticated.
    pub user: String,
    /// Security identifier of the user.
    #[schema(value_type = Option<String>)]
    pub user_sid: Option<Sid>,
    /// Such as `3.1.1`.
    pub dialect: String,
    /// Such as `TCP` or `iWARP`; with several, of the first channel.
    pub transport: String,
    /// Connections of the session.
    pub channels: Vec<Channel>,
    /// Algorithm, or empty if messages are not signed.
    pub signing: String,
    /// Cipher, or empty if messages are not encrypted.
    pub encryption: String,
    pub shares: Vec<String>,
    /// Number of files that the session holds open.
    pub opens: u64,
    /// Time of the session's setup.
    pub since_unix_s: u64,
    /// Seconds since the last request.
    pub idle_s: u64,
    #[serde(default)]
    pub reads: u64,
    #[serde(default)]
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Session {
    /// Whether another server of the cluster has the session: it is connected to the share of the storage
    /// bus, which clients may not use.
    pub fn is_of_server(&self) -> bool {
        self.shares.iter().any(|share| share.eq_ignore_ascii_case("bus$"))
    }
}

/// An open of a file or directory.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OpenFile {
    /// Number of the open, by which a request closes it.
    pub id: u64,
    /// The server of a cluster with this open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// 0: a durable handle that waits for its client.
    pub session: u64,
    pub user: String,
    pub share: String,
    /// From the share's root; empty is the root.
    pub path: String,
    /// Such as `read, write`.
    pub access: String,
    /// Byte-range locks; this release does not count them and reports 0.
    pub locks: u64,
    /// Oplock or lease, such as `lease RWH`; empty: none.
    pub caching: String,
    /// Whether the open survives the loss of its connection.
    pub durable: bool,
}

/// A part of clients' opens, by number.
#[derive(Debug, Clone, Default)]
pub struct OpensPage {
    pub files: Vec<OpenFile>,
    /// Whether there are opens with higher numbers.
    pub has_more: bool,
}

/// Work of a storage job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// A returned copy receives the writes that it missed.
    Resync,
    /// Slabs of a lost or retired disk are rebuilt on others.
    Rebuild,
    /// Slabs move so that all disks are filled evenly.
    Rebalance,
    /// All copies are read and their checksums verified.
    Scrub,
    /// A volume's metadata, allocation and copies are compared.
    Check,
    /// Blocks whose checksum failed are written again from another copy.
    Repair,
    /// Moves all data off a disk, which then leaves its pool: covers the jobs of all volumes that have to
    /// move. Suspended: an administrator has to resume it.
    Retirement,
    /// A directory's access entries are handed down to everything below it.
    AclPropagation,
    /// A volume of a server that is down, or has handed it over, is opened on this one.
    Takeover,
}

/// State of a storage job (JobState of MSFT_StorageJob).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Running,
    /// Waits: an administrator suspended it, or its message says why it cannot continue.
    Suspended,
    Completed,
    /// Ended by an error, which is in the job's message.
    Failed,
    /// Ended by an administrator.
    Cancelled,
}

/// Whether use of space is counted by owner, and whether limits hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaMode {
    /// No use of space is counted.
    Off,
    /// Usage is counted; no limits.
    Track,
    /// Counted, and writes beyond a user's limit are refused.
    Enforce,
}

/// A volume's quotas.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QuotaReport {
    pub mode: QuotaMode,
    /// Files are still being counted: no limit holds yet.
    pub counting: bool,
    /// Bounds of users without their own: the usage above which they are over the threshold; `None`: none.
    pub default_threshold_bytes: Option<u64>,
    /// Usage beyond which writes of users without own bounds are refused; `None`: no bound.
    pub default_limit_bytes: Option<u64>,
    pub users: Vec<QuotaView>,
    /// Whether there are more users than in the list.
    pub truncated: bool,
}

/// A user's quota on a volume.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QuotaView {
    /// The name, or the SID of an account that is not known here.
    pub user: String,
    pub sid: String,
    /// Bytes of the user's files on the volume.
    pub used_bytes: u64,
    /// Usage beyond which the user counts as over the threshold; `None`: no bound.
    pub threshold_bytes: Option<u64>,
    /// Usage beyond which the user's writes are refused; `None`: no bound.
    pub limit_bytes: Option<u64>,
    /// The bounds are the user's own, and not the volume's defaults.
    pub own_limits: bool,
    pub over_threshold: bool,
    pub over_limit: bool,
}

/// A storage job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// In a cluster 1,000,000 times the number of the server that runs it is in it: it means one job at every server, also after restarts.
    pub id: u64,
    /// The server that runs it, in a list of a cluster's jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    pub kind: JobKind,
    /// The object that the job works on, by name.
    pub target: String,
    pub state: JobState,
    pub done_bytes: u64,
    /// Estimate of the bytes that the job has to process.
    pub total_bytes: u64,
    pub started_unix_s: u64,
    /// Absent while the job runs or waits.
    pub ended_unix_s: Option<u64>,
    /// `None` if it cannot be estimated.
    pub remaining_s: Option<u64>,
    /// The job's findings, or the reason of its failure; may be empty.
    pub message: String,
}

/// An issue: its description, target, begin, meaning for the data, and remedy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HealthIssue {
    pub health: Health,
    /// A stable code for programs, such as `disk_lost`.
    pub code: String,
    /// The object concerned, such as `disk 3f1c...`.
    pub target: String,
    pub since_unix_s: u64,
    /// Description of the issue, in a sentence.
    pub what: String,
    /// Meaning for the data.
    pub meaning: String,
    /// Next.
    pub action: String,
    /// The server of a cluster that alone reports the issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl From<Severity> for Health {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Warning => Self::Warning,
            Severity::Unhealthy => Self::Unhealthy,
        }
    }
}

impl From<Issue> for HealthIssue {
    /// An issue without a recorded beginning began at 0, in place of which the daemon shows when it was
    /// first seen.
    fn from(issue: Issue) -> Self {
        let Issue { severity, code, target, since_unix_s, what, meaning, action } = issue;
        Self {
            health: severity.into(),
            code: code.to_owned(),
            target,
            since_unix_s: since_unix_s.unwrap_or(0),
            what,
            meaning,
            action,
            server: None,
        }
    }
}

impl HealthIssue {
    /// Replaces invisible characters by U+FFFD: paths of disks may hold line breaks, and issues become
    /// lines of the log and subjects of mails.
    pub fn reveal(&mut self) {
        for text in [&mut self.target, &mut self.what, &mut self.meaning, &mut self.action] {
            if text.contains(is_unseen) {
                *text = text.replace(is_unseen, "\u{FFFD}");
            }
        }
    }
}

/// Issues of a server, or of all servers of a cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct HealthReport {
    /// The worst of all issues.
    pub health: Health,
    pub issues: Vec<HealthIssue>,
    /// Servers of the cluster that did not answer: their issues are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// Since the daemon started.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct OperationCounters {
    pub operations: u64,
    pub bytes: u64,
    /// Answered operations that did not wait for another client, such as for its lock or its cache.
    pub measured_operations: u64,
    /// Sum over the measured operations, from a request's arrival to its answer.
    pub latency_us: u64,
    /// Requests answered with an error status.
    pub errors: u64,
}

/// Clients' work on the server, since the daemon started.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct Performance {
    /// Microseconds since the daemon's start.
    pub uptime_us: u64,
    pub read: OperationCounters,
    pub write: OperationCounters,
    /// Everything but READ and WRITE.
    pub metadata: OperationCounters,
    /// Bytes of the volumes that are served.
    pub cache_hit_bytes: u64,
    /// Bytes of the volumes that are served.
    pub cache_miss_bytes: u64,
    /// Bytes written to disks, all copies, journals and checksums included.
    pub disk_write_bytes: u64,
    /// Bytes read from disks, for clients and for the server's own work.
    pub disk_read_bytes: u64,
}

impl Performance {
    /// Adds another server's totals; the time is that of the server that has run for longer.
    pub fn add(&mut self, other: &Self) {
        self.uptime_us = self.uptime_us.max(other.uptime_us);
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.metadata.add(&other.metadata);
        self.cache_hit_bytes += other.cache_hit_bytes;
        self.cache_miss_bytes += other.cache_miss_bytes;
        self.disk_write_bytes += other.disk_write_bytes;
        self.disk_read_bytes += other.disk_read_bytes;
    }
}

impl OperationCounters {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.measured_operations += other.measured_operations;
        self.latency_us += other.latency_us;
        self.errors += other.errors;
    }
}

/// Clients' work on all servers of the cluster that answered, each since its start.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ClusterPerformance {
    /// Sums; `uptime_us` is that of the server that has run longest.
    #[serde(flatten)]
    pub total: Performance,
    /// Empty: this is a single server, or the request asked for one server's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerPerformance>,
}

/// Clients' work on one server of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServerPerformance {
    pub server: String,
    #[serde(flatten)]
    pub performance: Performance,
}

/// The configuration: values by section and key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct Configuration(pub serde_json::Map<String, serde_json::Value>);

/// Type of a metric in the exposition format of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// Only grows, and restarts with the daemon.
    Counter,
    /// Level as of the moment of the reading.
    Gauge,
}

/// A figure for `/metrics` beyond those the structures above hold.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Metric {
    /// Snake case, unit last, without `cenote_` and without `_total`.
    pub name: String,
    pub help: String,
    pub kind: MetricKind,
    /// Label names and values.
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// A histogram for `/metrics`.
#[derive(Debug, Clone)]
pub struct Latency {
    /// Snake case, without `cenote_` and without the unit.
    pub name: String,
    pub help: String,
    pub labels: Vec<(String, String)>,
    pub histogram: LatencyHistogram,
}

/// Clients' work on a share since the daemon started.
#[derive(Debug, Clone)]
pub struct ShareFigures {
    pub name: String,
    pub volume: VolumeId,
    pub reads: u64,
    pub writes: u64,
    /// All other requests to its open files.
    pub others: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Times of reads and writes that did not wait for another client.
    pub latency: LatencyHistogram,
}

/// Latencies of a client's reads and writes.
#[derive(Debug, Clone)]
pub struct ClientFigures {
    /// Address of the client; for IPv6 the network of 64 bits. `None`: all clients without their own entry.
    pub client: Option<String>,
    /// Current sessions of the client.
    pub sessions: usize,
    /// Times of reads and writes that did not wait for another client, since the client was first seen.
    pub latency: LatencyHistogram,
}

/// Everything the data plane shows, as of one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub disks: Vec<Disk>,
    pub pools: Vec<Pool>,
    pub volumes: Vec<Volume>,
    pub sessions: Vec<Session>,
    pub shares: Vec<ShareFigures>,
    pub clients: Vec<ClientFigures>,
    /// Running ones, and the last 100 that ended.
    pub jobs: Vec<Job>,
    pub health: HealthReport,
    pub performance: Performance,
    pub rdma: RdmaState,
    /// Figures for `/metrics` that no other field holds.
    pub metrics: Vec<Metric>,
    pub latencies: Vec<Latency>,
    /// How other servers of the cluster are reached.
    pub bus: Vec<crate::cluster::BusPeer>,
}
