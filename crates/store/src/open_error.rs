//! Reasons why a disk cannot be opened, in words for its administrator.

use crate::label::Features;
use disk::DiskError;
use types::PoolId;

/// Reason why a disk cannot be opened. Nothing on it was changed, except after `Disk`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No label in either area, and no other data that is recognized.
    #[error("the disk is empty: it has no label")]
    Blank,
    /// The disk holds other data, named by the text.
    #[error("the disk is not one of ours: it holds {0}")]
    Foreign(&'static str),
    /// The label has format version `found`, above the `supported` one.
    #[error(
        "the disk has format version {found}, newer than this program's {supported}; nothing was changed"
    )]
    NewerFormat { found: u32, supported: u32 },
    /// The label has format version `found`, below the `supported` one.
    #[error(
        "the disk has format version {found}, which this program (version {supported}) does not read; nothing was changed: copy what it \
         holds with the release that wrote it, then format it anew"
    )]
    OlderFormat { found: u32, supported: u32 },
    /// Unknown ro-compat and incompat bits of the label.
    #[error(
        "the disk has features that this program does not know ({0}); nothing was changed: use a newer release (with ro-compat features \
         alone it could be read, but to open a disk read-only is not supported)"
    )]
    UnknownFeatures(Features),
    /// The label names pool `found`, not the one of the options.
    #[error("the disk belongs to pool {found}")]
    OtherPool { found: PoolId },
    /// The disk has `size_bytes`, fewer than the `label_bytes` that its layout needs.
    #[error("the disk shrank from {label_bytes} to {size_bytes} bytes")]
    Shrunk { label_bytes: u64, size_bytes: u64 },
    /// Logical blocks had `formatted` bytes when the disk was formatted and have `found` now.
    #[error("the disk was formatted with logical blocks of {formatted} bytes and has blocks of {found}")]
    BlockSize { formatted: u32, found: u32 },
    /// No copy of the structure `what` is intact.
    #[error("{what} is damaged in all copies")]
    Damaged { what: &'static str },
    /// The anchor says that batch `sequence` was durable, and replay cannot read it.
    #[error("the journal is damaged: batch {sequence} was acknowledged and cannot be read")]
    JournalDamaged { sequence: u64 },
    /// The disk failed a read, write or flush.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
