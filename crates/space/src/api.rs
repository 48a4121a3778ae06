//! Requests of a volume to its virtual disk.

pub use store::api::WriteClass;
use sys::Payload;
use types::{BlockCount, Lba};

#[derive(Debug)]
pub enum SpaceRequest {
    /// Answers `Data` of `blocks` blocks, as last written. A block that is corrupt or unreadable on
    /// one disk comes from another copy and is rewritten (I6). Blocks of class `Append` are read
    /// from all reachable in-sync copies. The one of the highest order is the answer, and is
    /// written to the other copies, so that a plain read finds the newest even if a disk lost the
    /// write of it.
    ///
    /// Blocks without an intact copy fail the read with `Corrupt`, which names them all. In class
    /// `Append` such a block may also be a never acknowledged write that a crash tore on every copy
    /// (a volume may have a single copy): in a journal, it marks the end. Such a block reads again
    /// once it is written or discarded.
    ///
    /// `copy`: the copy to read first (0, 1, 2), to check each by itself; if it is corrupt, the
    /// others answer too. A read of the first copy of blocks of class `Append` is like one without
    /// `copy`: all copies are compared, and made equal.
    Read { lba: Lba, blocks: u32, copy: Option<u8> },
    /// Answers `Done` when durable on every in-sync copy (I1). Whole blocks of any length. A write
    /// within one 1 MiB-aligned range is atomic unless of class `Append` (docs/PROTOCOL.md, *After
    /// a crash*, has the exception). Every block of class `Append` must prove itself
    /// ([`codes::seal_block`]), with an order that grows with every write to its place.
    Write { lba: Lba, class: WriteClass, data: Payload },
    /// Makes the blocks read as zeroes, and lets class `Fresh` write them without a step of its
    /// own. Gives back the space of whole chunks.
    Discard { lba: Lba, blocks: u64 },
}

#[derive(Debug)]
pub enum SpaceReply {
    Done,
    Data(Payload),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpaceError {
    /// No copy of these blocks has a right checksum.
    Corrupt {
        lbas: Vec<Lba>,
    },
    /// The pool has no free slab.
    NoSpace,
    /// Another coordinator took over at a higher epoch: this one must stop.
    Fenced,
    /// Fewer in-sync copies than the volume needs can be reached.
    Unavailable,
    Invalid(&'static str),
}

impl std::fmt::Display for SpaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Corrupt { lbas } => {
                write!(f, "{} blocks have no intact copy, the first at {:?}", lbas.len(), lbas.first())
            }
            Self::NoSpace => f.write_str("the pool is full"),
            Self::Fenced => f.write_str("another coordinator owns the volume"),
            Self::Unavailable => f.write_str("too few copies can be reached"),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SpaceError {}

#[derive(Debug)]
pub struct SpaceCompletion {
    pub token: u64,
    pub result: Result<SpaceReply, SpaceError>,
}

/// Size and fill of a virtual disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceSize {
    /// Address space.
    pub blocks: BlockCount,
    /// Blocks that a thin virtual disk can still be given by its pool (all copies paid).
    pub available: BlockCount,
    /// Blocks of one slab: the unit of allocation from the pool.
    pub chunk_blocks: u32,
}

/// A virtual disk as its volume sees it: requests in, completions out, in any order. Nothing blocks.
pub trait VirtualDisk {
    fn size(&self) -> SpaceSize;
    /// Takes a request; its answer carries `token`.
    fn submit(&mut self, token: u64, request: SpaceRequest);
    /// Moves the present answers into `out`.
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>);
}
