//! Keys of requests, steps and calls in flight, and the types by which parts pass them on.

use types::{ChunkIndex, DiskId};

/// Declares a key type: numbers that one coordinator never uses twice, and that are not confused with
/// other kinds of keys.
macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $name(u64);

        impl $name {
            /// Advances `self` to the next key, and returns it.
            pub fn advance(&mut self) -> Self {
                self.0 += 1;
                *self
            }
        }
    };
}

key! {
    /// One request of the volume.
    ClientKey
}
key! {
    /// One piece of a request: an operation on blocks of one region, or of one chunk that is given back.
    OperationKey
}
key! {
    /// One step that makes the copies of a region equal, or compares them.
    SyncKey
}
key! {
    /// One operation on one disk that a part of the coordinator waits for.
    CallKey
}

/// The holder of a lock, or of a place in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Operation(OperationKey),
    Sync(SyncKey),
}

/// The reason why the copies of a region are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Reconcile,
    Repair,
    /// A read of blocks that prove themselves, which wants the newest of all copies.
    Answer,
    Compare,
    Resync(DiskId),
    /// `moves`: the new copy replaces another one, and is therefore made from all of them.
    Build {
        target: DiskId,
        moves: bool,
    },
}

impl Purpose {
    /// Returns the copy in the making.
    pub fn target(self) -> Option<DiskId> {
        match self {
            Self::Reconcile | Self::Repair | Self::Answer | Self::Compare => None,
            Self::Resync(disk) | Self::Build { target: disk, .. } => Some(disk),
        }
    }
}

/// How a step on a region ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Synced {
    pub key: SyncKey,
    pub purpose: Purpose,
    pub chunk: ChunkIndex,
    /// First block of the region.
    pub lba: u64,
    pub bytes: u64,
    pub succeeded: bool,
}
