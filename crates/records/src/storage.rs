//! The typed records of pools, disks and volumes, and of what a server counts.

use crate::StateError;
use pool::FaultDomain;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{DiskId, Epoch, NodeId, PoolId, VolumeId};

/// A kind of record: one key prefix, JSON values.
pub trait Record: Serialize + DeserializeOwned {
    /// The first segment of its keys, with the slash.
    const PREFIX: &'static str;

    /// The part of the record's key behind the prefix.
    fn id(&self) -> String;

    /// Returns the record's key: prefix and id.
    fn key(&self) -> String {
        Self::key_of(&self.id())
    }

    /// Returns the key of the record with this id.
    fn key_of(id: &str) -> String {
        format!("{}{id}", Self::PREFIX)
    }

    /// Writes the record as JSON.
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// [`StateError::Malformed`].
    fn decode(key: &str, value: &[u8]) -> Result<Self, StateError> {
        serde_json::from_slice(value)
            .map_err(|error| StateError::Malformed { key: key.to_owned(), why: error.to_string() })
    }
}

/// How many copies a volume keeps of each chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resiliency {
    /// One copy.
    Simple,
    /// Two copies, in different fault domains.
    TwoWay,
    /// Three copies, in different fault domains.
    ThreeWay,
}

impl Resiliency {
    /// Returns the number of copies: 1, 2 or 3.
    pub const fn copies(self) -> u8 {
        match self {
            Self::Simple => 1,
            Self::TwoWay => 2,
            Self::ThreeWay => 3,
        }
    }

    /// Copies a write must reach at least if nothing else is configured.
    pub const fn default_min_copies(self) -> u8 {
        match self {
            Self::Simple | Self::TwoWay => 1,
            Self::ThreeWay => 2,
        }
    }
}

/// The time at which a volume takes its slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provisioning {
    /// Chunks get their slabs at the first write.
    Thin,
    /// All slabs are taken when the volume is created.
    Fixed,
}

/// A disk that missed writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StaleDisk {
    /// The disk that missed writes.
    pub disk: DiskId,
    /// The lowest epoch of a write it may have missed: regions last written in this epoch or a later one are copied when it
    /// returns (I4).
    pub since: Epoch,
    /// The disk had promised at least this epoch when it left: a disk that says less has gone back in time.
    #[serde(default)]
    pub promised: Epoch,
}

/// Disks of one node, which are away together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// As the disks' fault domains name it.
    pub node: String,
    /// Disks of that node.
    pub disks: Vec<DiskId>,
}

/// A virtual disk. Its coordinator alone changes it, by compare-and-swap of the whole record (I2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Id of the volume, by which slabs and shares name it.
    pub id: VolumeId,
    /// Pool with the volume's slabs.
    pub pool: PoolId,
    /// Name of the volume, unique ignoring case.
    pub name: String,
    /// Number of copies of each chunk.
    pub resiliency: Resiliency,
    /// Size that clients see.
    pub size_bytes: u64,
    /// The time at which slabs are taken.
    pub provisioning: Provisioning,
    /// Writes are refused if fewer in-sync copies can be reached.
    pub min_copies: u8,
    /// Grows with every change of the members, with every opening, and during writes.
    pub epoch: Epoch,
    /// All writes of this and lower epochs are complete on all in-sync copies: later ones may differ
    /// between copies after a crash and are made equal before they are served (I10).
    #[serde(default)]
    pub settled: Epoch,
    /// Every disk that is in sync has promised at least this epoch: one that says less has gone back in time, and is stale from the
    /// beginning.
    #[serde(default)]
    pub promised: Epoch,
    /// The opening of the volume that wrote the record last; 0: none yet, or the one before has closed it.
    #[serde(default)]
    pub coordinator: u128,
    /// The node that has the volume open, or is to open it; `None`: the one server that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NodeId>,
    /// Nodes that may still answer for the volume from memory: those that it was taken from since a node served it. An owner waits for all
    /// of them before it serves, and takes them out with the next change after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<NodeId>,
    /// Nodes that could not open the volume since it was served last; others try in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<NodeId>,
    /// Least number of in-sync copies of each chunk: one disk fewer than that may be missing at an opening.
    pub min_holders: u8,
    /// Least number of `homes` with in-sync copies of each chunk: all disks of that many nodes, less one, may
    /// be missing at an opening.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_homes: u8,
    /// The nodes by which `min_homes` was counted; empty on one server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub homes: Vec<Home>,
    /// Disks whose chunks of this volume hold every acknowledged write.
    pub in_sync: Vec<DiskId>,
    /// Disks whose chunks of this volume may miss writes.
    #[serde(default)]
    pub stale: Vec<StaleDisk>,
    /// Chunks being copied to a disk: not a copy until the entry is gone.
    #[serde(default)]
    pub building: Vec<(DiskId, types::ChunkIndex)>,
    /// Seconds since 1970-01-01 00:00 UTC.
    pub created_unix_s: u64,
    /// The volume is being made: nobody knows of it yet, and it holds nothing. A server that finds such a
    /// volume when it starts removes it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_unfinished: bool,
    /// Fill level, in percent, at which health warns; `None`: [`WARN_AT_PERCENT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at_percent: Option<u8>,
    /// Disks that have gone back in time and that an administrator wants to count nevertheless, for what no other disk has. An owner
    /// takes them out once it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_images: Vec<DiskId>,
}

/// Fill level of a volume, in percent, at which health warns unless the record sets another.
pub const WARN_AT_PERCENT: u8 = 90;

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u8) -> bool {
    *value == 0
}

impl Record for VolumeRecord {
    const PREFIX: &'static str = "volume/";
    fn id(&self) -> String {
        self.id.to_string()
    }
}

impl VolumeRecord {
    /// Counts the nodes that these disks are of; `None` if one is of no node that the record knows. A node of which a disk is out already
    /// does not count: `min_homes` has been lowered for all its disks.
    pub fn homes_of(&self, disks: impl IntoIterator<Item = DiskId>) -> Option<usize> {
        self.count_homes(disks, |home| home.disks.iter().all(|other| self.in_sync.contains(other)))
    }

    /// Counts the nodes that these disks are of, in a record of which all nodes' disks are in sync.
    pub fn whole_homes_of(&self, disks: impl IntoIterator<Item = DiskId>) -> Option<usize> {
        self.count_homes(disks, |_| true)
    }

    fn count_homes(
        &self,
        disks: impl IntoIterator<Item = DiskId>,
        counts: impl Fn(&Home) -> bool,
    ) -> Option<usize> {
        let mut found: Vec<&str> = Vec::new();
        for disk in disks {
            let home = self.homes.iter().find(|home| home.disks.contains(&disk))?;
            if !found.contains(&home.node.as_str()) && counts(home) {
                found.push(&home.node);
            }
        }
        Some(found.len())
    }

    /// A volume that nothing was written to: every disk of `disks` is in sync.
    pub fn new(
        id: VolumeId,
        pool: PoolId,
        name: impl Into<String>,
        resiliency: Resiliency,
        size_bytes: u64,
        provisioning: Provisioning,
        disks: Vec<DiskId>,
        created_unix_s: u64,
    ) -> Self {
        Self {
            id,
            pool,
            name: name.into(),
            resiliency,
            size_bytes,
            provisioning,
            min_copies: resiliency.default_min_copies(),
            epoch: Epoch(1),
            settled: Epoch(1),
            promised: Epoch(0),
            coordinator: 0,
            owner: None,
            before: Vec::new(),
            tried: Vec::new(),
            min_holders: resiliency.copies(),
            min_homes: 0,
            homes: Vec::new(),
            in_sync: disks,
            stale: Vec::new(),
            building: Vec::new(),
            created_unix_s,
            is_unfinished: false,
            warn_at_percent: None,
            accepted_images: Vec::new(),
        }
    }
}

/// The life of a node that may answer for its volumes. Written only by the node itself, with the next
/// number, when it begins to answer, or begins again after its lease was over. A node that takes a
/// volume over from a dead one makes it a condition of the claim that this is still the life that died:
/// so either the claim comes first, and the node finds that it has lost the volume, or the node's
/// return does, and the claim fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLease {
    /// Node that the life is of.
    pub node: NodeId,
    /// Random number of the process's start, as heartbeats carry it.
    pub incarnation: u64,
}

impl Record for NodeLease {
    const PREFIX: &'static str = "node-lease/";
    fn id(&self) -> String {
        self.node.to_string()
    }
}

/// A volume that was deleted and may still have slabs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedVolume {
    /// Id of the volume that is gone.
    pub id: VolumeId,
    /// Pool that had the volume's slabs.
    pub pool: PoolId,
    /// Disks that have nothing of it any more, as far as their nodes have said so; only in a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<DiskId>,
}

impl Record for DeletedVolume {
    const PREFIX: &'static str = "deleted-volume/";
    fn id(&self) -> String {
        self.id.to_string()
    }
}

/// A pool of disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Id of the pool, which its disks' labels carry.
    pub id: PoolId,
    /// Name of the pool, unique ignoring case.
    pub name: String,
    /// Space kept free for repair, in disks: the size of that many of the largest.
    pub reserve_disks: u32,
    /// Time at which the pool was made.
    pub created_unix_s: u64,
    /// How often the pool was imported: records of an earlier generation no longer count.
    #[serde(default)]
    pub generation: u32,
    /// Random, anew with each import: tells apart two imports of the same generation.
    #[serde(default)]
    pub history: uuid::Uuid,
    /// The pool's export has begun: it is about to leave this server.
    #[serde(default)]
    pub exported: bool,
    /// An administrator chose the reserve; else it follows the number of disks. None: a record of an earlier release, which does not tell.
    /// Such a reserve stays, as it may have been chosen, and health warns if it is less than usual.
    #[serde(default)]
    pub reserve_is_set: Option<bool>,
}

impl PoolRecord {
    /// A pool that is about to be made, with a reserve that follows the number of its disks.
    pub fn new(id: PoolId, name: impl Into<String>, reserve_disks: u32, created_unix_s: u64) -> Self {
        Self {
            id,
            name: name.into(),
            reserve_disks,
            created_unix_s,
            generation: 0,
            history: uuid::Uuid::nil(),
            exported: false,
            reserve_is_set: Some(false),
        }
    }
}

impl Record for PoolRecord {
    const PREFIX: &'static str = "pool/";
    fn id(&self) -> String {
        self.id.to_string()
    }
}

/// State of a disk, as records have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    /// Serves, as far as is known.
    Healthy,
    /// Cannot be reached.
    Missing,
    /// Reached, but failing: errors, time-outs.
    Failed,
    /// An administrator takes it out: its chunks move away.
    Retired,
}

/// A disk of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Id of the disk, which its label carries.
    pub id: DiskId,
    /// Pool of the disk.
    pub pool: PoolId,
    /// The node that has it; `None`: the one server that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Path at which the disk was last found, on its node.
    pub path: String,
    /// Whole size of the file or device.
    pub size_bytes: u64,
    /// Size of the disk's slabs.
    pub slab_bytes: u64,
    /// Place of the disk, by which copies are kept apart.
    #[serde(default)]
    pub fault_domain: FaultDomain,
    /// State of the disk since `since_unix_s`.
    pub state: DiskState,
    /// When the state began: seconds since 1970-01-01 00:00 UTC.
    pub since_unix_s: u64,
    /// When all of it had been read and verified last, or it was made.
    #[serde(default)]
    pub scrubbed_unix_s: u64,
}

impl Record for DiskRecord {
    const PREFIX: &'static str = "disk/";
    fn id(&self) -> String {
        self.id.to_string()
    }
}

/// Damage of a disk since this server has it. For people only: it decides nothing. It is no part of the
/// records that the disks carry, so that a disk on which every block fails does not make the others
/// write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskDamage {
    /// Disk with the damage.
    pub disk: DiskId,
    /// Corrupt blocks that the disk could not read.
    #[serde(default)]
    pub medium_errors: u64,
    /// Pages and blocks whose write the disk acknowledged and lost.
    #[serde(default)]
    pub lost_writes: u64,
    /// Blocks whose checksum failed, for any reason.
    #[serde(default)]
    pub corrupt_blocks: u64,
    /// Corrupt blocks that were written again from another copy.
    #[serde(default)]
    pub repaired_blocks: u64,
    /// The part of these that an administrator has acknowledged.
    #[serde(default)]
    pub acknowledged_medium_errors: u64,
    /// Lost writes among those acknowledged.
    #[serde(default)]
    pub acknowledged_lost_writes: u64,
    /// Corrupt blocks among those acknowledged.
    #[serde(default)]
    pub acknowledged_corrupt_blocks: u64,
    /// Place of the last fault, in words; may be empty.
    #[serde(default)]
    pub last: String,
}

impl DiskDamage {
    /// Nothing was found wrong with the disk.
    pub fn none(disk: DiskId) -> Self {
        Self {
            disk,
            medium_errors: 0,
            lost_writes: 0,
            corrupt_blocks: 0,
            repaired_blocks: 0,
            acknowledged_medium_errors: 0,
            acknowledged_lost_writes: 0,
            acknowledged_corrupt_blocks: 0,
            last: String::new(),
        }
    }
}

impl Record for DiskDamage {
    const PREFIX: &'static str = "disk-damage/";
    fn id(&self) -> String {
        self.disk.to_string()
    }
}

/// Blocks of a volume that have no intact copy, as far as they were met. They are compared again before anybody relies on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBlocks {
    /// Volume of the blocks.
    pub volume: VolumeId,
    /// Time at which the first of them was met.
    pub since_unix_s: u64,
    /// First block and number of blocks, in order.
    pub ranges: Vec<(u64, u64)>,
}

impl Record for LostBlocks {
    const PREFIX: &'static str = "lost-blocks/";
    fn id(&self) -> String {
        self.volume.to_string()
    }
}

/// A kind of work that moves or checks data in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// A disk that returned gets the writes that it missed.
    Resync,
    /// Chunks with too few copies get new ones.
    Rebuild,
    /// Chunks move so that disks fill evenly, or leave a retired disk.
    Rebalance,
    /// Everything is read and checked.
    Scrub,
}

/// How far a server may have counted its jobs: written before it counts further, so that no number is given twice. Changed by that server only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNumbers {
    /// `None`: a server that is in no cluster.
    pub server: Option<NodeId>,
    /// The highest count that may have been given.
    pub reserved: u64,
}

impl JobNumbers {
    /// Returns the id of a server's record; `None`: of a single server.
    pub fn id_of(server: Option<NodeId>) -> String {
        server.map_or_else(|| "single".to_owned(), |server| server.to_string())
    }
}

impl Record for JobNumbers {
    const PREFIX: &'static str = "job-numbers/";
    fn id(&self) -> String {
        Self::id_of(self.server)
    }
}
