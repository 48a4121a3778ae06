//! The capacity planner: what nodes and drives that may be bought, or those of a running pool, would hold, survive and do.
//!
//! Bounds come from measurements on one core (docs/PERFORMANCE.md) and from typical rates of drives;
//! they are the most to expect, and no promise. Owns bounds and notes; capacity is `pool`'s arithmetic. Asks no server.

#![forbid(unsafe_code)]

mod bounds;
mod drives;
mod request;
mod s2d;

use api::model::Resiliency;
use api::planned::{Plan, PlanChoice, PlanMemory};
pub use drives::{DriveList, DriveType, Drives};
use pool::{FaultDomain, Level, PlannedDisk, capacity};
pub use request::{NETWORK_GBPS_MAX, NODES_MAX, Node, Protection, RACKS_MAX, Request, nodes_of_pool};
use std::collections::BTreeSet;
use store::Layout;

/// Versions of metadata pages, which a store keeps in RAM: 4 bytes for each page of 512 data blocks' checksums, and as much again.
const STORE_RAM_SHARE: f64 = 8.0 / (480.0 * 4096.0);
/// Drives that are planned with at most, of 1 PiB each at most: their bytes can be counted, and no request of a dashboard takes long.
const DRIVES_MAX: u64 = 16_000;
/// A cache to begin with, and memory of the operating system.
const CACHE_BYTES: u64 = 2 << 30;
const SYSTEM_BYTES: u64 = 2 << 30;

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unplannable {
    /// More drives than a plan may have.
    #[error("{0} drives are too many: {DRIVES_MAX} at most are planned with")]
    TooManyDrives(u64),
    /// All of so many nodes would be lost.
    #[error("there are {0} nodes: none would be left")]
    NoNodeLeft(usize),
    /// The request has no node.
    #[error("nothing to plan: give --nodes N --drives COUNTxSIZE[:TYPE], or --pool NAME for a running pool")]
    NoNode,
    /// The resiliency takes more drives.
    #[error("{copies} copies take {copies} drives at least; there are {drives}")]
    TooFewDrives {
        /// Copies of the only resiliency that was asked for.
        copies: u8,
        /// Drives of all nodes.
        drives: usize,
    },
}

/// Plans a pool.
///
/// # Errors
/// There are no nodes, too many drives, or too few for the resiliency.
pub fn plan(request: &Request) -> Result<Plan, Unplannable> {
    let nodes = remaining(request)?;
    let disks = planned(&nodes);
    let racks: BTreeSet<&str> =
        nodes.iter().map(|node| node.rack.as_str()).filter(|rack| !rack.is_empty()).collect();
    let all = [Resiliency::Simple, Resiliency::TwoWayMirror, Resiliency::ThreeWayMirror];
    let state = state_survives(nodes.len() as u32, request.has_witness);
    let mut choices = Vec::new();
    for resiliency in all.into_iter().filter(|one| request.resiliency.is_none_or(|only| only == *one)) {
        choices.extend(choice(&nodes, &disks, resiliency, state, request));
    }
    if let (Some(only), true) = (request.resiliency, choices.is_empty()) {
        return Err(Unplannable::TooFewDrives { copies: only.copies(), drives: disks.len() });
    }
    let drives = || nodes.iter().flat_map(|node| &node.drives);
    let data_bytes = disks.iter().map(|disk| disk.data_bytes).sum();
    let largest_node = nodes.iter().map(Node::bytes).max().unwrap_or_default();
    let stores_bytes = (largest_node as f64 * STORE_RAM_SHARE) as u64;
    Ok(Plan {
        nodes: nodes.len() as u32,
        racks: racks.len() as u32,
        drives: disks.len() as u32,
        raw_bytes: nodes.iter().map(Node::bytes).sum(),
        data_bytes,
        choices,
        s2d: s2d::choices(&nodes),
        memory: PlanMemory {
            stores_bytes,
            least_bytes: SYSTEM_BYTES + CACHE_BYTES + CACHE_BYTES / 16 + stores_bytes,
        },
        state_survives_nodes: state,
        notes: s2d::notes(nodes.len(), drives().any(|drives| drives.drive == DriveType::Hdd)),
    })
}

/// The nodes of a plan, the largest last, with racks: those of the request without the lost ones.
fn remaining(request: &Request) -> Result<Vec<Node>, Unplannable> {
    let mut nodes = request.nodes.clone();
    // [`DRIVES_MAX`] drives of 1 PiB have fewer bytes than 64 bits count.
    let drives =
        nodes.iter().flat_map(|node| &node.drives).map(|drives| u64::from(drives.count)).sum::<u64>();
    if drives > DRIVES_MAX {
        return Err(Unplannable::TooManyDrives(drives));
    }
    nodes.sort_by_key(Node::bytes);
    if request.lose_nodes as usize >= nodes.len() && !nodes.is_empty() {
        return Err(Unplannable::NoNodeLeft(nodes.len()));
    }
    nodes.truncate(nodes.len().saturating_sub(request.lose_nodes as usize));
    if nodes.is_empty() {
        return Err(Unplannable::NoNode);
    }
    if request.racks > 0 {
        for (number, node) in nodes.iter_mut().enumerate() {
            node.rack = format!("rack-{}", number % request.racks as usize + 1);
        }
    }
    Ok(nodes)
}

/// The drives as the pool will see them.
fn planned(nodes: &[Node]) -> Vec<PlannedDisk> {
    let mut disks = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        // One node alone keeps copies apart by drives.
        let name = if nodes.len() > 1 { format!("node-{}", number + 1) } else { String::new() };
        let domain = FaultDomain { rack: node.rack.clone(), node: name, ..FaultDomain::default() };
        for drives in &node.drives {
            let disk = PlannedDisk { domain: domain.clone(), data_bytes: data_bytes(drives.size_bytes) };
            disks.extend(std::iter::repeat_n(disk, drives.count as usize));
        }
    }
    disks
}

/// Bytes of data that a drive of this size holds.
fn data_bytes(size_bytes: u64) -> u64 {
    let (slab_bytes, journal_bytes) = Layout::default_sizes(size_bytes);
    let layout = Layout::compute(size_bytes, slab_bytes, journal_bytes);
    layout.map_or(0, |layout| u64::from(layout.slab_count) * layout.slab_bytes)
}

/// Nodes that may fail at once without loss of the cluster's state, which the first three nodes keep,
/// or two and a witness (D21).
fn state_survives(nodes: u32, has_witness: bool) -> u32 {
    match nodes {
        0 | 1 => 0,
        2 => u32::from(has_witness),
        _ => 1,
    }
}

fn choice(
    nodes: &[Node],
    disks: &[PlannedDisk],
    resiliency: Resiliency,
    state: u32,
    request: &Request,
) -> Option<PlanChoice> {
    let copies = resiliency.copies();
    let found = capacity(disks, copies, request.reserve_disks)?;
    let raw: u64 = nodes.iter().map(Node::bytes).sum();
    let spare = u32::from(copies) - 1;
    // Fewer nodes, or racks, than copies have an equal share of them: the last one left has a copy.
    let racks = nodes.iter().map(|node| &node.rack).collect::<BTreeSet<_>>().len();
    let survives =
        |domains: usize, state: u32| (domains.min(usize::from(copies)).saturating_sub(1) as u32).min(state);
    // Of two racks one has two of the three nodes that keep the state.
    let state_by_rack = if racks >= 3 { state } else { 0 };
    Some(PlanChoice {
        resiliency: word(resiliency).into(),
        copies,
        apart_by: match found.level {
            _ if copies == 1 => "nothing",
            Level::Disk => "disk",
            Level::Enclosure => "enclosure",
            Level::Node => "node",
            Level::Rack => "rack",
        }
        .into(),
        usable_bytes: found.usable_bytes,
        efficiency_percent: (found.usable_bytes as f64 / raw.max(1) as f64 * 1000.0).round() / 10.0,
        reserve_bytes: found.reserve_bytes,
        reserve_disks: found.reserve_disks,
        stranded_bytes: found.stranded_bytes,
        survives_drives: spare,
        survives_nodes: survives(nodes.len(), state),
        survives_racks: survives(racks, state_by_rack),
        repairs_largest_domain: found.repairs_largest_domain,
        bounds: bounds::bounds(nodes, copies, request),
    })
}

/// The word of a resiliency in a plan, and on the command line.
pub const fn word(resiliency: Resiliency) -> &'static str {
    match resiliency {
        Resiliency::Simple => "simple",
        Resiliency::TwoWayMirror => "two-way-mirror",
        Resiliency::ThreeWayMirror => "three-way-mirror",
    }
}

#[cfg(test)]
mod tests;
