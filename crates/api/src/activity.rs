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
    pub shares: Vec<ShareActivity>,
    pub clients: Vec<ClientActivity>,
    /// Sessions that moved anything.
    pub sessions: Vec<SessionActivity>,
    pub disks: Vec<DiskActivity>,
}

/// Requests to a share on one volume.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShareActivity {
    pub name: String,
    #[schema(value_type = String)]
    pub volume: VolumeId,
    /// Reads, writes, bytes read and written.
    pub counts: [u64; 4],
    pub others: u64,
    #[schema(value_type = Object)]
    pub times: LatencyHistogram,
}

/// Requests of a client, by all of its sessions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClientActivity {
    /// `null`: all clients beyond those that are kept apart.
    pub client: Option<String>,
    pub sessions: u64,
    /// Reads, writes, bytes read and written.
    pub counts: [u64; 4],
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
    #[schema(value_type = String)]
    pub id: DiskId,
    /// Serial number of the device; `null`: it has none.
    pub serial: Option<String>,
    /// Reads, writes and flushes.
    pub operations: [u64; 3],
    /// Read and written.
    pub bytes: [u64; 2],
    /// Times of the last seconds, or since the start if the disk had no requests lately.
    pub read: Percentiles,
    pub write: Percentiles,
    pub flush: Percentiles,
    /// Median time of the disk's writes (or reads, if there are no writes) in the last seconds; `null`:
    /// there were too few.
    pub typical_us: Option<f64>,
}
