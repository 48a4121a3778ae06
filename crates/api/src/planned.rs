//! The JSON of `plan`: a pool that may be built.
//!
//! Owns data only.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A plan: the nodes, and the result of each resiliency on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Number of servers.
    pub nodes: u32,
    /// 0: none are named.
    pub racks: u32,
    /// Number of drives on all nodes.
    pub drives: u32,
    /// Bytes of all drives, by their nominal size.
    pub raw_bytes: u64,
    /// Bytes of all drives, without labels, journals and checksums.
    pub data_bytes: u64,
    /// Possible choices, the least copies first.
    pub choices: Vec<PlanChoice>,
    /// Choices of Storage Spaces Direct for the same nodes.
    pub s2d: Vec<S2dChoice>,
    /// Memory that each node needs.
    pub memory: PlanMemory,
    /// Nodes that may fail simultaneously without loss of the cluster's state.
    pub state_survives_nodes: u32,
    /// Assumptions of the plan, and differences from Storage Spaces Direct.
    pub notes: Vec<String>,
}

/// One resiliency on the planned nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanChoice {
    /// Value for `volume create --resiliency`.
    pub resiliency: String,
    /// Copies of each byte.
    pub copies: u8,
    /// Fault domain that separates copies: `disk`, `enclosure`, `node` or `rack`; `nothing` for one copy.
    pub apart_by: String,
    /// Bytes left for data with this resiliency, after the reserve.
    pub usable_bytes: u64,
    /// Share of the raw bytes.
    pub efficiency_percent: f64,
    /// Bytes kept free for repair.
    pub reserve_bytes: u64,
    /// Disks whose size is kept free for repair.
    pub reserve_disks: u32,
    /// Bytes of drives that find no partner in another fault domain.
    pub stranded_bytes: u64,
    /// Drives that may fail simultaneously, in any place.
    pub survives_drives: u32,
    /// Nodes that may fail simultaneously, for data and the cluster's state together.
    pub survives_nodes: u32,
    /// Racks that may fail simultaneously, for data and the cluster's state together.
    pub survives_racks: u32,
    /// Losing the largest node or rack can be repaired without new hardware.
    pub repairs_largest_domain: bool,
    /// Speeds that the nodes can reach with this resiliency.
    pub bounds: PlanBounds,
}

/// The most to expect of all nodes together, and the bound: `processor`, `drives` or `network`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanBounds {
    /// Random 4 KiB.
    pub read_iops: f64,
    /// Bound of `read_iops`.
    pub read_iops_by: String,
    /// Random writes of 4 KiB per second.
    pub write_iops: f64,
    /// Bound of `write_iops`.
    pub write_iops_by: String,
    /// 64 KiB.
    pub read_bytes_per_s: f64,
    /// Bound of `read_bytes_per_s`.
    pub read_bytes_by: String,
    /// Writes of 64 KiB, in bytes per second.
    pub write_bytes_per_s: f64,
    /// Bound of `write_bytes_per_s`.
    pub write_bytes_by: String,
    /// Speed per direction and node with which the network does not bound 64 KiB reads and writes.
    pub network_bits_per_s: f64,
}

/// RAM of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanMemory {
    /// Memory of the stores for their drives.
    pub stores_bytes: u64,
    /// To begin with: stores, cache and operating system.
    pub least_bytes: u64,
}

/// One choice of Storage Spaces Direct for this number of servers, by its published tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct S2dChoice {
    /// Name of the resiliency, as in Storage Spaces Direct.
    pub resiliency: String,
    /// Share of the capacity drives, without reserve.
    pub efficiency_percent: f64,
    /// Code of the redundancy, such as `RS 4+2`, `LRC (8,2,1)` or `3 copies`.
    pub code: String,
    /// Drives or servers.
    pub survives: u32,
    /// Whether this server has it too.
    pub is_here: bool,
}
