//! The work of a server in its last second, in counts: those of several servers can be added, and percentiles made of all.
//!
//! Owns data only.

use crate::latency::Percentiles;
use serde::{Deserialize, Serialize};
use types::{DiskId, LatencyHistogram, VolumeId};
use utoipa::ToSchema;

/// The work of one second.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Activity {
    /// Times of clients' reads, writes and all else: of each the durations counted by bucket, and their sum.
    #[schema(value_type = Vec<Object>)]
    pub requests: [LatencyHistogram; 3],
    /// Moved by SMB Direct, in messages and by RDMA.
    pub rdma_bytes: u64,
    /// Number of current sessions.
    pub session_count: u64,
    /// Shares that had requests since the server's start; one entry for each volume of a share.
    pub shares: Vec<ShareActivity>,
    /// Clients with sessions; the last entry is the sum of clients without their own.
    pub clients: Vec<ClientActivity>,
    /// Sessions that moved anything.
    pub sessions: Vec<SessionActivity>,
    /// Disks of the server.
    pub disks: Vec<DiskActivity>,
}

/// Requests to a share on one volume.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShareActivity {
    /// Name of the share, as its record spells it.
    pub name: String,
    /// Volume that the requests went to.
    #[schema(value_type = String)]
    pub volume: VolumeId,
    /// Reads, writes, bytes read and written.
    pub counts: [u64; 4],
    /// Requests that are neither READ nor WRITE.
    pub others: u64,
    /// Times of the reads and writes.
    #[schema(value_type = Object)]
    pub times: LatencyHistogram,
}

/// Requests of a client, by all of its sessions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClientActivity {
    /// Address of the client; `null`: all clients without their own entry.
    pub client: Option<String>,
    /// Current sessions of the client.
    pub sessions: u64,
    /// Reads, writes, bytes read and written.
    pub counts: [u64; 4],
    /// Times of the client's reads and writes.
    #[schema(value_type = Object)]
    pub times: LatencyHistogram,
}

/// Requests of a session.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct SessionActivity {
    /// The server's own number.
    pub id: u64,
    /// Reads, writes, bytes read and written.
    pub counts: [u64; 4],
}

/// The work of a disk.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DiskActivity {
    /// Id of the disk, by its label.
    #[schema(value_type = String)]
    pub id: DiskId,
    /// Serial number of the device; `null`: none.
    pub serial: Option<String>,
    /// Reads, writes and flushes.
    pub operations: [u64; 3],
    /// Read and written.
    pub bytes: [u64; 2],
    /// Times of the last seconds, or since the start if the disk had no requests lately.
    pub read: Percentiles,
    /// Times of writes, over the same seconds as those of reads.
    pub write: Percentiles,
    /// Times of flushes, over the same seconds as those of reads.
    pub flush: Percentiles,
    /// Median time of the disk's writes (or reads, if there are no writes) in the last seconds; `null`: too
    /// few.
    pub typical_us: Option<f64>,
}
