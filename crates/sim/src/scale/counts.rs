//! Counts of a running world, its units of time, and names of servers.

use types::NodeId;

pub(super) const MICROSECOND: u64 = 1_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) fn node_id(node: usize) -> NodeId {
    NodeId(node as u32 + 1)
}

/// Counts of a running world.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Requests to disks of the coordinator's own server, and to others.
    pub near: u64,
    pub far: u64,
    /// Changes of the cluster state, by volume.
    pub changes: Vec<u64>,
    /// Incarnations that servers recorded.
    pub lives: u64,
    pub heartbeats: u64,
    pub heartbeat_bytes: u64,
    /// Answered operations of volumes, and the failed ones among them.
    pub answered: u64,
    pub failed: u64,
}
