//! Identities and addresses.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Bytes of one logical block of a virtual disk: the unit of addressing and of checksums.
pub const BLOCK_BYTES: usize = 4096;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// From its 16 bytes on disk (RFC 9562 byte order).
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
            /// Returns the 16 bytes as on disk (RFC 9562 byte order).
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.into_bytes()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(
    /// A physical disk, as its label names it.
    DiskId
);
uuid_id!(
    /// A pool of disks.
    PoolId
);
uuid_id!(
    /// A virtual disk; the one file layer on it has the same name.
    VolumeId
);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A server of the cluster.
    NodeId(u32)
);
number!(
    /// The generation of a volume's in-sync set; grows with every change of it (I2).
    Epoch(u64)
);
number!(
    /// A block address of a virtual disk, in blocks of [`BLOCK_BYTES`].
    Lba(u64)
);
number!(
    /// A number of blocks of [`BLOCK_BYTES`].
    BlockCount(u64)
);
number!(
    /// A slab of one disk, counted from its first slab.
    SlabIndex(u32)
);
number!(
    /// A slab-sized piece of a virtual disk's address space, counted from its first block.
    ChunkIndex(u32)
);

impl Lba {
    pub const fn offset(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }
}

impl Epoch {
    /// The one after this. It never goes back to an epoch that was promised before: at the end of all numbers it stays, and long before that
    /// ([`crate::Stamp::EPOCH_MAX`]) no disk promises it and no volume is opened by it.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl BlockCount {
    pub const fn bytes(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_epoch_is_followed_by_an_earlier_one() {
        assert_eq!(Epoch(7).next(), Epoch(8));
        assert!(Epoch(u64::MAX).next() >= Epoch(u64::MAX));
        assert!(crate::Stamp::EPOCH_MAX.next() > crate::Stamp::EPOCH_MAX, "refused by disks");
    }
}
