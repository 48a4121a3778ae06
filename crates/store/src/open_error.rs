//! Why a disk cannot be opened, in words for its administrator.

use crate::label::Features;
use disk::DiskError;
use types::PoolId;

/// Why a disk cannot be opened. Nothing on it was changed, except after `Disk`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the disk is empty: it has no label")]
    Blank,
    #[error("the disk is not one of ours: it holds {0}")]
    Foreign(&'static str),
    #[error(
        "the disk has format version {found}, newer than this program's {supported}; nothing was changed"
    )]
    NewerFormat { found: u32, supported: u32 },
    #[error(
        "the disk has format version {found}, which this program (version {supported}) does not read; nothing was changed: copy what it \
         holds with the release that wrote it, then format it anew"
    )]
    OlderFormat { found: u32, supported: u32 },
    #[error(
        "the disk has features that this program does not know ({0}); nothing was changed: use a newer release (with ro-compat features \
         alone it could be read, but to open a disk read-only is not supported)"
    )]
    UnknownFeatures(Features),
    #[error("the disk belongs to pool {found}")]
    OtherPool { found: PoolId },
    #[error("the disk shrank from {label_bytes} to {size_bytes} bytes")]
    Shrunk { label_bytes: u64, size_bytes: u64 },
    #[error("the disk was formatted with logical blocks of {formatted} bytes and has blocks of {found}")]
    BlockSize { formatted: u32, found: u32 },
    #[error("{what} is damaged in all copies")]
    Damaged { what: &'static str },
    #[error("the journal is damaged: batch {sequence} was acknowledged and cannot be read")]
    JournalDamaged { sequence: u64 },
    #[error(transparent)]
    Disk(#[from] DiskError),
}
