//! FILE_ATTRIBUTE_* (MS-FSCC 2.6): the bits that are stored with a file, enforced, and carried by the wire as they are.

pub const READONLY: u32 = 0x1;
pub const HIDDEN: u32 = 0x2;
pub const SYSTEM: u32 = 0x4;
pub const DIRECTORY: u32 = 0x10;
pub const ARCHIVE: u32 = 0x20;
/// No other attribute; never stored.
pub const NORMAL: u32 = 0x80;
pub const TEMPORARY: u32 = 0x100;
pub const SPARSE_FILE: u32 = 0x200;
pub const REPARSE_POINT: u32 = 0x400;
pub const COMPRESSED: u32 = 0x800;
pub const OFFLINE: u32 = 0x1000;
pub const NOT_CONTENT_INDEXED: u32 = 0x2000;
pub const ENCRYPTED: u32 = 0x4000;
pub const INTEGRITY_STREAM: u32 = 0x8000;
pub const NO_SCRUB_DATA: u32 = 0x2_0000;
pub const PINNED: u32 = 0x8_0000;
pub const UNPINNED: u32 = 0x10_0000;
