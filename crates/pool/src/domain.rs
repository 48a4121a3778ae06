//! Fault domains: disks that fail together.

use serde::{Deserialize, Serialize};
use types::DiskId;

/// Where a disk stands, widest first. An empty name does not separate the disk from others with an empty name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FaultDomain {
    #[serde(default)]
    pub rack: String,
    #[serde(default)]
    pub node: String,
    #[serde(default)]
    pub enclosure: String,
}

/// A level of separation, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Disk,
    Enclosure,
    Node,
    Rack,
}

impl Level {
    /// Strictest first.
    pub const STRICTEST_FIRST: [Self; 4] = [Self::Rack, Self::Node, Self::Enclosure, Self::Disk];
}

/// One domain of a level: disks with equal values fail together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DomainName<'a> {
    Disk(DiskId),
    Enclosure(&'a str, &'a str, &'a str),
    Node(&'a str, &'a str),
    Rack(&'a str),
}

impl FaultDomain {
    pub(crate) fn name(&self, disk: DiskId, level: Level) -> DomainName<'_> {
        match level {
            Level::Disk => DomainName::Disk(disk),
            Level::Enclosure => DomainName::Enclosure(&self.rack, &self.node, &self.enclosure),
            Level::Node => DomainName::Node(&self.rack, &self.node),
            Level::Rack => DomainName::Rack(&self.rack),
        }
    }
}
