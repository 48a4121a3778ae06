//! One disk: label, slab table, journal, block checksums, scrub.
//!
//! Promises: a write of up to 1 MiB is atomic, and durable when acknowledged; corrupt blocks are
//! never returned as data. Never knows about other disks.

#![forbid(unsafe_code)]

mod anchor;
pub mod api;
mod bytes;
mod cache;
mod engine;
mod format;
mod health;
mod inspect;
mod io;
mod journal;
mod label;
mod layout;
mod locks;
mod metadata;
mod numbers;
mod open;
mod open_error;
mod overlay;
pub mod planted;
mod record;
mod replay;
mod signature;
mod slots;
mod tables;
mod versions;

pub use anchor::{Anchor, parse_anchor, parse_records};
pub use engine::{ChunkInfo, Store, StoreOpening, StoreOptions};
pub use format::{FormatError, FormatParameters, erase, format, refuse_used_disk, wipe};
pub use health::{StoreHealth, WriteKind, WrittenBytes};
pub use inspect::{CopyState, Inspection, JournalOnDisk, VolumeOnDisk, identify, inspect};
pub use label::{Features, Label, LabelError, parse_label};
pub use layout::{FORMAT_VERSION, Layout, RECORDS_BYTES_MAX, REGION_BLOCKS};
pub use metadata::{FoundPage, PageIdentity, parse_page};
pub use open_error::OpenError;
pub use record::{BatchHeader, Record, parse_batch, parse_batch_header};
pub use tables::{PromiseLeaf, SlabEntry, SlabLeaf, parse_promise_leaf, parse_slab_leaf};
pub use versions::{PageVersion, parse_version_leaf};
