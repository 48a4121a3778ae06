//! What a volume asks of its virtual disk.

pub use store::api::WriteClass;
use sys::Payload;
use types::{BlockCount, Lba};

#[derive(Debug)]
pub enum SpaceRequest {
    /// Answers `Data` of `blocks` blocks. `copy`: only this copy (0, 1, 2), for data that proves itself; otherwise any
    /// in-sync copy, repaired from another where its checksum fails (I6).
    Read { lba: Lba, blocks: u32, copy: Option<u8> },
    /// Answers `Done` when durable on every in-sync copy (I1). Whole blocks; any length; a write within one 1 MiB-aligned
    /// range is atomic unless of class `Append`.
    Write { lba: Lba, class: WriteClass, data: Payload },
    /// The blocks read as zeroes afterwards; their space may be given back.
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
