//! What a coordinator is given, and what it tells: limits, phases, events, counts.

use crate::api::SpaceError;
use std::time::Duration;
use types::{ChunkIndex, DiskId, Epoch, Lba, NodeId};

/// Limits and intervals of a coordinator.
#[derive(Debug, Clone)]
pub struct Config {
    /// A disk that answers nothing for so long is taken out.
    pub io_timeout: Duration,
    /// How often a disk that could not be reached is tried again.
    pub reconnect_interval: Duration,
    /// How long an opening waits for in-sync disks before it goes on without them.
    pub opening_grace: Duration,
    /// How often writes in progress begin a new epoch, so that a crash leaves little to compare (I10).
    pub rotate_interval: Duration,
    /// Pause before a request to the cluster state that was not answered is repeated.
    pub state_retry: Duration,
    /// After so long an operation that cannot be done is answered `Unavailable`.
    pub unavailable_after: Duration,
    /// A disk that stays away longer has its chunks copied to others.
    pub rebuild_after: Duration,
    /// This node, if there are several: the record names it as the volume's owner.
    pub node: Option<NodeId>,
    /// Set if several nodes may open the volume: answers are given only while the node's lease is valid
    /// ([`super::Coordinator::set_lease`]), and a new coordinator waits so long for that of the node before.
    pub lease: Option<Duration>,
    /// Checksums of what is read are checked here too: where a network lies between.
    pub verify_reads: bool,
    /// Regions that background work handles at once while the volume is otherwise idle.
    pub background_regions: usize,
    /// While the volume is in use, background work rests so many times as long as its last step took.
    pub background_rest: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            io_timeout: Duration::from_secs(4),
            reconnect_interval: Duration::from_secs(1),
            opening_grace: Duration::from_secs(3),
            rotate_interval: Duration::from_secs(30),
            state_retry: Duration::from_millis(200),
            unavailable_after: Duration::from_secs(30),
            rebuild_after: Duration::from_secs(30 * 60),
            node: None,
            lease: None,
            verify_reads: false,
            background_regions: 4,
            background_rest: 2,
        }
    }
}

/// Where a coordinator is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Reads the record, claims it, opens sessions, lists chunks.
    Opening,
    Serving,
    /// Nothing new is taken; the record is left settled.
    Closing,
    /// Closed: nothing differs between copies.
    Closed,
    /// It must not go on.
    Stopped(SpaceError),
}

/// Something an operator wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The volume serves requests.
    Serving { epoch: Epoch },
    /// The disk missed writes and is out of the in-sync set.
    DiskLeft { disk: DiskId, since: Epoch, why: String },
    /// The disk has promised less than it must have: an older image of it was restored. It is brought up to date from the beginning,
    /// unless it has the last copy of something.
    WentBack { disk: DiskId, promised: Epoch, expected: Epoch },
    /// The disk holds every acknowledged write again.
    DiskJoined { disk: DiskId },
    /// Blocks of this disk could not be read, or failed their checksums.
    CorruptRead { disk: DiskId, chunk: ChunkIndex, blocks: u64, lbas: Vec<Lba> },
    /// Blocks of this disk differed or failed their checksums and were written again from another copy.
    Repaired { disk: DiskId, chunk: ChunkIndex, blocks: u64 },
    /// The disk acknowledged a write of these blocks and does not have it: they are intact, and older than another copy.
    LostWrite { disk: DiskId, chunk: ChunkIndex, blocks: u64, lbas: Vec<Lba> },
    /// Blocks have no intact copy.
    Unrepairable { chunk: ChunkIndex, lbas: Vec<Lba> },
    /// A region was compared ([`Coordinator::compare`]): `wrong` has the disks whose copies are corrupt or older, and of how many
    /// blocks; `lost` the blocks without an intact copy.
    Compared { lba: Lba, found: Comparison, wrong: Vec<(DiskId, u64)>, lost: Vec<Lba> },
    /// Copies differed after a crash and were made equal.
    Reconciled { chunk: ChunkIndex, blocks: u64 },
    /// The record changed.
    RecordChanged,
    /// The volume stopped.
    Stopped { why: SpaceError },
}

/// What the in-sync copies of a region hold, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Copies that were read; 0: the region could not be looked at, since a disk just left or the chunk was freed.
    pub copies: u8,
    pub blocks: u64,
    /// Blocks whose intact copies differ from each other.
    pub differing: u64,
    /// Copies of blocks whose checksum fails.
    pub corrupt: u64,
    /// Blocks without an intact copy.
    pub lost: u64,
}

/// Counts since the coordinator began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    /// Blocks of a copy that could not be read or whose checksum failed.
    pub corrupt_blocks: u64,
    /// Blocks of a copy that were older than another: a write that its disk acknowledged and lost.
    pub lost_writes: u64,
    /// Of those: written again.
    pub repaired_blocks: u64,
    /// Blocks that differed after a crash.
    pub reconciled_blocks: u64,
    /// Regions copied to disks that returned.
    pub resynced_regions: u64,
    /// Regions copied to new places.
    pub built_regions: u64,
    /// Chunks whose region epochs were fetched after an opening.
    pub probed_chunks: u64,
}
