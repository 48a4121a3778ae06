//! `cenote plan`.

use super::Resiliency;
use clap::{Args, ValueEnum};
use std::str::FromStr;
use types::size::parse_size;

/// Types of drives, by and large alike in speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum DriveType {
    /// A disk that turns
    Hdd,
    /// Flash behind SATA or SAS
    Ssd,
    /// Flash behind PCI Express
    Nvme,
}

/// Equal drives: how many, how large, of which type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drives {
    pub count: u32,
    pub size_bytes: u64,
    pub drive: DriveType,
}

/// The drives of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveList(pub Vec<Drives>);

/// Drives of one word of the command line, and their size, at most.
const COUNT_MAX: u32 = 1000;
const SIZE_MAX: u64 = 1 << 50;

impl FromStr for DriveList {
    type Err = String;

    /// Reads `8x3.84TiB:nvme,2x800GiB`: COUNTxSIZE[:TYPE], flash behind SATA if no type is given.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(drives).collect::<Result<Vec<_>, _>>().map(Self)
    }
}

fn drives(text: &str) -> Result<Drives, String> {
    let form = || format!("'{text}' is not COUNTxSIZE[:hdd|ssd|nvme], such as 8x4TiB:nvme");
    let (count, rest) = text.split_once('x').ok_or_else(form)?;
    let (size, drive) = match rest.split_once(':') {
        Some((size, kind)) => (size, DriveType::from_str(kind, true).map_err(|_| form())?),
        None => (rest, DriveType::Ssd),
    };
    let count = count.trim().parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    let count = count.ok_or_else(|| format!("'{text}': 1 to {COUNT_MAX} drives"))?;
    let size_bytes = parse_size(size)?;
    if !(1 << 30..=SIZE_MAX).contains(&size_bytes) {
        return Err(format!("'{text}': a drive has 1 GiB to 1 PiB"));
    }
    Ok(Drives { count, size_bytes, drive })
}

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

#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Nodes with the drives of --drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), requires = "drives")]
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
    #[arg(long, value_name = "N", default_value_t = 0, requires = "pool", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub add_nodes: u32,
    /// Number of nodes to take away, the largest first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub lose_nodes: u32,
    /// Racks that the nodes stand in, evenly
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub racks: u32,
    /// Show this resiliency only [default: all that are possible]
    #[arg(long, value_enum)]
    pub resiliency: Option<Resiliency>,
    /// Drives' worth of space that is kept free for repair [default: one for each node, at most four]
    #[arg(long, value_name = "N")]
    pub reserve_disks: Option<u32>,
    /// Network of each node in Gb/s, all its ports together
    #[arg(long, value_name = "GBPS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3200))]
    pub network: u32,
    /// How clients' messages are protected
    #[arg(long, value_enum, default_value = "signed")]
    pub protection: Protection,
    /// A witness beside two nodes
    #[arg(long)]
    pub witness: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_read_by_count_size_and_type() {
        let list: DriveList = "8x3.84TiB:nvme,2x800GiB".parse().unwrap();
        assert_eq!(list.0[0].count, 8);
        assert_eq!(list.0[0].drive, DriveType::Nvme);
        assert_eq!(list.0[1], Drives { count: 2, size_bytes: 800 << 30, drive: DriveType::Ssd });
        for wrong in
            ["", "8", "0x4TiB", "2000x4TiB", "8x4TiB:tape", "8x4TB", "8x1MiB", "8x2000TiB", "8x4TiB,"]
        {
            assert!(wrong.parse::<DriveList>().is_err(), "{wrong}");
        }
    }
}
