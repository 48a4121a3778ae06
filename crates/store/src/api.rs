//! Requests to a store, and its answers. Addresses are a volume's own: the store's slab table maps
//! (volume, chunk) to a slab.

use sys::Payload;
use types::{ChunkIndex, Epoch, Lba, Stamp, VolumeId};

/// How a write becomes valid (D6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteClass {
    /// Blocks that may hold acknowledged data: atomic and durable. At most 64 KiB goes whole through the journal; more is
    /// refused with `Invalid` (the volume makes a large overwrite a fresh write).
    Overwrite,
    /// Blocks that nothing points to yet: written once, in place; checksums by a journal record.
    Fresh,
    /// Chunks that carry a volume's superblocks and journal: in place, durable, not atomic, no checksum kept: each block proves itself
    /// ([`codes::seal_block`]). One that does not is refused with `Invalid` when it is written (if the store verifies writes) and is
    /// `Corrupt` when it is read. A block of zeroes proves itself.
    Append,
}

/// CRC-64/NVME of each 4 KiB block, seeded with (volume, lba) (D7). Empty if the chunk is of class `Append`.
pub type Checksums = Vec<u64>;

#[derive(Debug)]
pub enum StoreRequest {
    /// Durably refuses every lower epoch of the volume from now on (I3). Answers `Done`.
    Promise { volume: VolumeId, epoch: Epoch },
    /// Forgets what was promised to a volume that is no more, and of which no chunk is here: its place is free for another. Answers `Done` when
    /// that is durable. Requests of the epochs that the volume had are refused until the store is opened again.
    Forget { volume: VolumeId },
    /// Forgets what was promised to a volume that has chunks here: the promise is one that no owner can come to, and an administrator wants it mended.
    /// Answers `Done` when that is durable. Any epoch is taken afterwards; who opens the volume finds that less was promised than must have been, and
    /// brings the disk up to date from the beginning.
    Unpromise { volume: VolumeId },
    /// Gives the chunk a slab of this disk; answers `Done` also if it has one already.
    AllocateChunk { volume: VolumeId, epoch: Epoch, chunk: ChunkIndex, append: bool },
    /// Gives the chunk's slab back.
    FreeChunk { volume: VolumeId, epoch: Epoch, chunk: ChunkIndex },
    /// Answers `Data`. Blocks never written read as zeroes.
    Read { volume: VolumeId, lba: Lba, blocks: u32 },
    /// Answers `Done` when durable. At most 1 MiB, within one chunk.
    Write { volume: VolumeId, stamp: Stamp, lba: Lba, class: WriteClass, data: Payload, checksums: Checksums },
    /// The blocks read as zeroes afterwards, and are fresh.
    Discard { volume: VolumeId, stamp: Stamp, lba: Lba, blocks: u32 },
    /// The content of the blocks is gone, here and on every other copy: reads of them answer `Corrupt` until they are written again, block by
    /// block. At most 1 MiB. Also for append chunks, whose blocks prove themselves: a block that the medium gives and that does not prove
    /// itself on any copy was torn on all, so it was never acknowledged, and may be written as zeroes instead.
    MarkLost { volume: VolumeId, stamp: Stamp, lba: Lba, blocks: u32 },
    /// The stamp of the last write of each region of the chunk; answers `Regions`.
    Regions { volume: VolumeId, chunk: ChunkIndex },
    /// The chunks of the volume that have a slab here; answers `Chunks`.
    Chunks { volume: VolumeId },
    /// Reads and checks everything from the scrub's position on, at most `bytes`; answers `Scrubbed`.
    Scrub { bytes: u64 },
    /// Replaces this disk's copy of the cluster's records (D8): opaque, at most 256 KiB. Answers `Done` when durable.
    SetRecords { records: Vec<u8> },
}

#[derive(Debug)]
pub enum StoreReply {
    Done,
    Data { data: Payload, checksums: Checksums },
    Regions(Regions),
    Chunks(Vec<ChunkEntry>),
    Scrubbed(ScrubProgress),
}

/// Known facts about the regions of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regions {
    /// One entry for each region, in order; epoch 0: not written since the chunk was given its slab. A write, a discard and a
    /// repair all count as writes.
    pub stamps: Vec<Stamp>,
    /// Regions, counted from 0, that may lack the last writes before this disk was opened: its journal ended in something that was
    /// torn, or was acknowledged and has rotted since.
    pub doubtful: Vec<u32>,
}

/// A chunk that has a slab on this disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    pub chunk: ChunkIndex,
    /// Allocated for class [`WriteClass::Append`].
    pub append: bool,
}

#[derive(Debug, Clone, Default)]
pub struct ScrubProgress {
    pub checked_bytes: u64,
    pub total_bytes: u64,
    /// Blocks whose checksum failed.
    pub corrupt: Vec<(VolumeId, Lba)>,
    /// The end was reached; the next call begins anew.
    pub finished: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// These blocks' checksums fail; nothing of the read is returned.
    Corrupt {
        lbas: Vec<Lba>,
    },
    /// A higher epoch is promised.
    Fenced {
        promised: Epoch,
    },
    /// No free slab, or no space on a thin disk.
    NoSpace,
    /// The chunk has no slab here.
    NotMapped,
    /// A write or flush failed earlier: nothing is written until the store is re-verified (I9).
    Poisoned,
    Disk(disk::DiskError),
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
    pub token: u64,
    pub result: Result<StoreReply, StoreError>,
}
