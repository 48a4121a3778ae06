//! Requests to a store, and its answers. Addresses are relative to a volume: the store's slab table
//! maps (volume, chunk) to a slab.

use sys::Payload;
use types::{ChunkIndex, Epoch, Lba, Stamp, VolumeId};

/// Way in which a write becomes valid (D6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteClass {
    /// Blocks that may hold acknowledged data: atomic and durable. The data go through the journal,
    /// so at most 64 KiB: a larger write is refused with `Invalid` (the volume makes a large
    /// overwrite a fresh write).
    Overwrite,
    /// Blocks that nothing points to yet: written once, in place; checksums by a journal record.
    Fresh,
    /// Chunks that carry a volume's superblocks and journal: in place, durable, not atomic, without
    /// stored checksums: each block proves itself ([`codes::seal_block`]). A block that does not is
    /// refused with `Invalid` when it is written (if the store verifies writes), and is `Corrupt`
    /// when it is read. A block of zeroes proves itself.
    Append,
}

/// CRC-64/NVME of each 4 KiB block, seeded with (volume, lba) (D7). Empty if the chunk is of class `Append`.
pub type Checksums = Vec<u64>;

/// Request to a store, answered by one [`StoreCompletion`] unless the store is given up.
#[derive(Debug)]
pub enum StoreRequest {
    /// Durably refuses every lower epoch of the volume from now on (I3). Answers `Done`.
    Promise { volume: VolumeId, epoch: Epoch },
    /// Forgets the promise to a deleted volume without a chunk here, which frees its place for
    /// another. Answers `Done` when that is durable. Requests of the volume's old epochs are
    /// refused until the store is opened again.
    Forget { volume: VolumeId },
    /// Forgets the promise to a volume with chunks here, because no owner can reach that epoch and
    /// an administrator wants it corrected. Answers `Done` when that is durable. The store then
    /// accepts any epoch. The volume's next opening finds that the disk promised less than it must
    /// have, and brings it up to date from the beginning.
    Unpromise { volume: VolumeId },
    /// Gives the chunk a slab of this disk. Answers `Done` also if it has one already.
    AllocateChunk { volume: VolumeId, epoch: Epoch, chunk: ChunkIndex, append: bool },
    /// Gives the chunk's slab back.
    FreeChunk { volume: VolumeId, epoch: Epoch, chunk: ChunkIndex },
    /// Answers `Data`. Blocks never written read as zeroes.
    Read { volume: VolumeId, lba: Lba, blocks: u32 },
    /// Answers `Done` when durable. At most 1 MiB, within one chunk.
    Write { volume: VolumeId, stamp: Stamp, lba: Lba, class: WriteClass, data: Payload, checksums: Checksums },
    /// Makes the blocks read as zeroes, and fresh.
    Discard { volume: VolumeId, stamp: Stamp, lba: Lba, blocks: u32 },
    /// Marks blocks whose content is lost, here and on every other copy: reads of them answer
    /// `Corrupt` until they are written again, block by block. At most 1 MiB. Also for append
    /// chunks, whose blocks prove themselves. But a readable block that does not prove itself on
    /// any copy was torn on all, so it was never acknowledged, and may be written as zeroes
    /// instead.
    MarkLost { volume: VolumeId, stamp: Stamp, lba: Lba, blocks: u32 },
    /// Returns the stamp of the last write of each region of the chunk. Answers `Regions`.
    Regions { volume: VolumeId, chunk: ChunkIndex },
    /// Returns the chunks of the volume that have a slab here. Answers `Chunks`.
    Chunks { volume: VolumeId },
    /// Reads and verifies at most `bytes` from the scrub's position on. Answers `Scrubbed`.
    Scrub { bytes: u64 },
    /// Replaces this disk's copy of the cluster's records (D8): opaque, at most 256 KiB. Answers `Done` when durable.
    SetRecords { records: Vec<u8> },
}

/// Content of an answer that is no error.
#[derive(Debug)]
pub enum StoreReply {
    /// The request took effect, durably if its description says so.
    Done,
    /// Blocks read, and their checksums in the same order.
    Data { data: Payload, checksums: Checksums },
    /// Stamps and doubts of a chunk's regions.
    Regions(Regions),
    /// All chunks of the volume that have a slab here.
    Chunks(Vec<ChunkEntry>),
    /// Progress of the scrub after this step.
    Scrubbed(ScrubProgress),
}

/// Facts about the regions of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regions {
    /// One entry for each region, in order; epoch 0: not written since the chunk was given its slab. A write, a discard and a
    /// repair all count as writes.
    pub stamps: Vec<Stamp>,
    /// Regions, counted from 0, that may lack the last writes before this disk was opened: its
    /// journal ended in a batch that was torn, or was acknowledged and has rotted since.
    pub doubtful: Vec<u32>,
}

/// A chunk that has a slab on this disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Number of the chunk within its volume.
    pub chunk: ChunkIndex,
    /// Allocated for class [`WriteClass::Append`].
    pub append: bool,
}

/// Findings of one scrub step, and the scrub's progress.
#[derive(Debug, Clone, Default)]
pub struct ScrubProgress {
    /// Bytes that this step read and verified, including blocks never written.
    pub checked_bytes: u64,
    /// Bytes of all chunks on the disk, which a whole scrub verifies.
    pub total_bytes: u64,
    /// Blocks whose checksum failed.
    pub corrupt: Vec<(VolumeId, Lba)>,
    /// Whether the end was reached; the next call begins anew.
    pub finished: bool,
}

/// Reason for which a request had no effect, or only part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// These blocks' checksums fail, and the read returns no data.
    Corrupt {
        /// Blocks of the volume that failed, in rising order.
        lbas: Vec<Lba>,
    },
    /// A higher epoch is promised.
    Fenced {
        /// Highest epoch promised to the volume.
        promised: Epoch,
    },
    /// No free slab, or no space on a thin disk.
    NoSpace,
    /// The chunk has no slab here.
    NotMapped,
    /// A write or flush failed earlier: the store writes nothing until it is re-verified (I9).
    Poisoned,
    /// The disk refused or failed the operation.
    Disk(disk::DiskError),
    /// The request breaks a rule, named by the text.
    Invalid(&'static str),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Corrupt { lbas } => {
                write!(f, "{} blocks fail their checksum, the first at {:?}", lbas.len(), lbas.first())
            }
            Self::Fenced { promised } => write!(f, "epoch {promised} is promised, an older one was refused"),
            Self::NoSpace => f.write_str("no free slab"),
            Self::NotMapped => f.write_str("the chunk has no slab on this disk"),
            Self::Poisoned => {
                f.write_str("a write failed earlier; the disk takes no more writes until it is verified")
            }
            Self::Disk(error) => write!(f, "{error}"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreError {}

/// The answer to one request.
#[derive(Debug)]
pub struct StoreCompletion {
    /// Token that the sender gave the request.
    pub token: u64,
    /// Answer, or the reason that there is none.
    pub result: Result<StoreReply, StoreError>,
}
