//! Keys of what is in flight, and what it is called by the parts that only pass it on.

use types::{ChunkIndex, DiskId};

/// Declares a key: a number that is never used twice by one coordinator, and cannot be taken for another kind of key.
macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) struct $name(u64);

        impl $name {
            /// Advances `self` to the next key, and returns that.
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
    /// One step that makes, or compares, the copies of a region.
    SyncKey
}
key! {
    /// One operation on one disk that somebody waits for.
    CallKey
}

/// Who holds or waits for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Operation(OperationKey),
    Sync(SyncKey),
}

/// Why the copies of a region are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Reconcile,
    Repair,
    /// A read of blocks that prove themselves: the newest of all copies is wanted.
    Answer,
    Compare,
    Resync(DiskId),
    /// `moves`: another copy is given up for the new one, which is therefore made from all of them.
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
