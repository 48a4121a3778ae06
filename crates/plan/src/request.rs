//! The request of a plan.

use crate::{DriveType, Drives};
use api::model::{Disk, Pool, Resiliency};
use std::collections::BTreeMap;

/// Nodes that a request names by their number, at most.
pub const NODES_MAX: u32 = 64;
/// Racks, at most.
pub const RACKS_MAX: u32 = 64;
/// Speed of a node's network, at most.
pub const NETWORK_GBPS_MAX: u32 = 3200;

/// How messages are protected on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    /// Not at all.
    Plain,
    /// Signed, as Windows 11 24H2 and Server 2025 require.
    #[default]
    Signed,
    /// Encrypted.
    Encrypted,
}

/// The drives of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Rack of a running node; empty: none is named.
    pub rack: String,
    /// All drives of the node.
    pub drives: Vec<Drives>,
}

impl Node {
    /// Makes so many equal nodes.
    pub fn equal(count: u32, drives: &[Drives]) -> impl Iterator<Item = Self> {
        std::iter::repeat_n(Self { drives: drives.to_vec(), ..Self::default() }, count as usize)
    }

    /// Bytes of all drives.
    pub fn bytes(&self) -> u64 {
        self.drives.iter().map(|drives| drives.size_bytes * u64::from(drives.count)).sum()
    }
}

/// Nodes to plan with, and the choices that do not depend on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Nodes before losses.
    pub nodes: Vec<Node>,
    /// Number of nodes that are lost, the largest first.
    pub lose_nodes: u32,
    /// Racks that the nodes stand in, evenly; 0: those that `nodes` name.
    pub racks: u32,
    /// The only resiliency to plan with; `None`: all that are possible.
    pub resiliency: Option<Resiliency>,
    /// Drives' worth of space kept free for repair; `None`: one for each node, at most four.
    pub reserve_disks: Option<u32>,
    /// Network of each node in Gb/s, all its ports together.
    pub network_gbps: u32,
    /// Protection of clients' messages.
    pub protection: Protection,
    /// A witness stands beside two nodes.
    pub has_witness: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            lose_nodes: 0,
            racks: 0,
            resiliency: None,
            reserve_disks: None,
            network_gbps: 10,
            protection: Protection::default(),
            has_witness: false,
        }
    }
}

/// The nodes of a running pool, and so many more like the largest. Drives go by the rack and node of their fault domains.
pub fn nodes_of_pool(pool: &Pool, disks: &[Disk], add_nodes: u32) -> Vec<Node> {
    let mut nodes: BTreeMap<(String, String), Vec<Drives>> = BTreeMap::new();
    for disk in disks.iter().filter(|disk| disk.pool == Some(pool.id)) {
        // RACK/NODE/ENCLOSURE without those that have no name: one alone is the node.
        let names: Vec<&str> = disk.fault_domain.split('/').collect();
        let place = match names.as_slice() {
            [rack, node, ..] => ((*rack).to_owned(), (*node).to_owned()),
            [node] => (String::new(), (*node).to_owned()),
            [] => Default::default(),
        };
        let drive = if disk.rotational == Some(true) { DriveType::Hdd } else { DriveType::Ssd };
        nodes.entry(place).or_default().push(Drives { count: 1, size_bytes: disk.size_bytes, drive });
    }
    let mut nodes: Vec<Node> = nodes.into_iter().map(|((rack, _), drives)| Node { rack, drives }).collect();
    if let Some(largest) = nodes.iter().max_by_key(|node| node.bytes()).cloned() {
        // A new node is in no existing rack.
        nodes.extend(Node::equal(add_nodes, &largest.drives));
    }
    nodes
}
