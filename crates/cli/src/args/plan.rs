//! `cenote plan`.

use super::Resiliency;
use clap::{Args, ValueEnum};
use plan::{DriveList, NETWORK_GBPS_MAX, NODES_MAX, RACKS_MAX};

/// How messages are protected on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Protection {
    /// Not at all
    Plain,
    /// Signed, as Windows 11 24H2 and Server 2025 require
    #[default]
    Signed,
    /// Encrypted
    Encrypted,
}

impl From<Protection> for plan::Protection {
    fn from(protection: Protection) -> Self {
        match protection {
            Protection::Plain => Self::Plain,
            Protection::Signed => Self::Signed,
            Protection::Encrypted => Self::Encrypted,
        }
    }
}

/// Options of `cenote plan`: drives that may be bought, or changes of a running pool.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Nodes with the drives of --drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)), requires = "drives")]
    pub nodes: Option<u32>,
    /// Drives of each node: COUNTxSIZE[:hdd|ssd|nvme], several with commas [TYPE default: ssd]
    #[arg(long, value_name = "DRIVES")]
    pub drives: Option<DriveList>,
    /// One more node, with these drives; may be given several times
    #[arg(long, value_name = "DRIVES")]
    pub node: Vec<DriveList>,
    /// Begin with the nodes and drives of the running pool of this name
    #[arg(long, value_name = "NAME", conflicts_with = "nodes")]
    pub pool: Option<String>,
    /// With --pool: number of nodes to add, each like the pool's largest
    #[arg(long, value_name = "N", default_value_t = 0, requires = "pool", value_parser = clap::value_parser!(u32).range(0..=i64::from(NODES_MAX)))]
    pub add_nodes: u32,
    /// Number of nodes to take away, the largest first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub lose_nodes: u32,
    /// Racks that the nodes stand in, evenly
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(RACKS_MAX)))]
    pub racks: u32,
    /// Show this resiliency only [default: all that are possible]
    #[arg(long, value_enum)]
    pub resiliency: Option<Resiliency>,
    /// Drives' worth of space that is kept free for repair [default: one for each node, at most four]
    #[arg(long, value_name = "N")]
    pub reserve_disks: Option<u32>,
    /// Network of each node in Gb/s, all its ports together
    #[arg(long, value_name = "GBPS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(NETWORK_GBPS_MAX)))]
    pub network: u32,
    /// How clients' messages are protected
    #[arg(long, value_enum, default_value = "signed")]
    pub protection: Protection,
    /// A witness beside two nodes
    #[arg(long)]
    pub witness: bool,
}
