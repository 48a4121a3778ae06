//! Requests of a volume to its virtual disk.

pub use store::api::WriteClass;
use sys::Payload;
use types::{BlockCount, Lba};

#[derive(Debug)]
pub enum SpaceRequest {
    /// Answers `Data` of `blocks` blocks, as they were last written: a block that one copy has corrupt, or that its disk cannot read, is
    /// taken from another copy and written again (I6). Blocks of class `Append` are read from all in-sync copies that can be
    /// reached, and of each the one of the highest order is answered and written to the others, so that a plain read finds the
    /// newest also when a disk lost a write of it.
    ///
    /// Blocks that no copy has intact fail the read with `Corrupt`, which names them all. Of class `Append`
    /// such a block may also be a write that was never acknowledged and that a crash tore on every copy (a
    /// volume may have a single copy): at the end of a journal it is the end. Such a block reads again once
    /// it is written or discarded.
    ///
    /// `copy`: this copy first (0, 1, 2), to look at each by itself; it too is answered from the others when it is corrupt. The first copy
    /// of blocks of class `Append` is read as without `copy`: all are compared, and made equal.
    Read { lba: Lba, blocks: u32, copy: Option<u8> },
    /// Answers `Done` when durable on every in-sync copy (I1). Whole blocks; any length; a write within one 1 MiB-aligned
    /// range is atomic unless of class `Append` (docs/PROTOCOL.md, *After a crash*, has the exception). Every block of class `Append` must prove itself ([`codes::seal_block`]), with an order
    /// that grows with every write of its place.
    Write { lba: Lba, class: WriteClass, data: Payload },
    /// The blocks read as zeroes afterwards, and can be written with class `Fresh` without a step of their own. Of whole chunks the space is given
    /// back.
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
    /// Moves the answers that are there into `out`.
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>);
}
