//! A coordinator's configuration, phases, events and counters.

use crate::api::SpaceError;
use std::time::Duration;
use types::{ChunkIndex, DiskId, Epoch, Lba, NodeId};

/// Limits and intervals of a coordinator.
#[derive(Debug, Clone)]
pub struct Config {
    /// Timeout after which a silent disk leaves the in-sync set.
    pub io_timeout: Duration,
    /// Interval between attempts to reach a disk.
    pub reconnect_interval: Duration,
    /// Time that an opening waits for in-sync disks before it continues without them.
    pub opening_grace: Duration,
    /// Interval at which writes begin a new epoch, so that a crash leaves few regions to compare (I10).
    pub rotate_interval: Duration,
    /// Time after which an unanswered request to the cluster state is repeated.
    pub state_retry: Duration,
    /// Time after which an operation that cannot run fails as `Unavailable`.
    pub unavailable_after: Duration,
    /// Absence of a disk after which its chunks are rebuilt on others.
    pub rebuild_after: Duration,
    /// This node, if there are several: the record names it as the volume's owner.
    pub node: Option<NodeId>,
    /// Length of the node's lease, if several nodes may open the volume: the coordinator answers only while
    /// the lease is valid ([`super::Coordinator::set_lease`]), and a new coordinator waits for its
    /// predecessor's lease to end.
    pub lease: Option<Duration>,
    /// Whether the coordinator checks the checksums of reads too, because a network lies in between.
    pub verify_reads: bool,
    /// Regions that background work handles at once while the volume is otherwise idle.
    pub background_regions: usize,
    /// Rest of background work while the volume is in use, as a multiple of the duration of its last step.
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

/// Phase of a coordinator's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Reading and claiming the record, opening sessions, listing chunks.
    Opening,
    Serving,
    /// Refusing new requests, and leaving the record settled.
    Closing,
    /// Closed with equal copies.
    Closed,
    /// Stopped for good by this error.
    Stopped(SpaceError),
}

/// A message for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The volume serves requests.
    Serving { epoch: Epoch },
    /// The disk missed writes and is out of the in-sync set.
    DiskLeft { disk: DiskId, since: Epoch, why: String },
    /// The disk has promised less than it must have: an older image of it was restored. All of it is
    /// resynced, unless it has the last copy of some chunk.
    WentBack { disk: DiskId, promised: Epoch, expected: Epoch },
    /// The disk again holds every acknowledged write.
    DiskJoined { disk: DiskId },
    /// Blocks of this disk could not be read, or failed their checksums.
    CorruptRead { disk: DiskId, chunk: ChunkIndex, blocks: u64, lbas: Vec<Lba> },
    /// Blocks of this disk differed or failed their checksums, and were rewritten from another copy.
    Repaired { disk: DiskId, chunk: ChunkIndex, blocks: u64 },
    /// The disk acknowledged a write of these blocks and lost it: they are intact, and older than another
    /// copy.
    LostWrite { disk: DiskId, chunk: ChunkIndex, blocks: u64, lbas: Vec<Lba> },
    /// Blocks have no intact copy.
    Unrepairable { chunk: ChunkIndex, lbas: Vec<Lba> },
    /// A region was compared ([`super::Coordinator::compare`]). `wrong`: disks with corrupt or older copies, and
    /// the number of such blocks. `lost`: blocks without an intact copy.
    Compared { lba: Lba, found: Comparison, wrong: Vec<(DiskId, u64)>, lost: Vec<Lba> },
    /// Copies differed after a crash and were made equal.
    Reconciled { chunk: ChunkIndex, blocks: u64 },
    /// A new record was committed.
    RecordChanged,
    /// The volume stopped.
    Stopped { why: SpaceError },
}

/// Result of comparing the in-sync copies of a region, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Copies that were read. 0: none could be, since a disk just left or the chunk was freed.
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
    /// Corrupt and lost blocks that were rewritten.
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
