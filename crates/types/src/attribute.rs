//! FILE_ATTRIBUTE_* (MS-FSCC 2.6): the bits that are stored with a file, enforced, and carried by the wire as they are.

/// FILE_ATTRIBUTE_READONLY: the data cannot be written, nor the file deleted.
pub const READONLY: u32 = 0x1;
/// FILE_ATTRIBUTE_HIDDEN: listings leave the file out by default.
pub const HIDDEN: u32 = 0x2;
/// FILE_ATTRIBUTE_SYSTEM: the operating system uses the file.
pub const SYSTEM: u32 = 0x4;
/// FILE_ATTRIBUTE_DIRECTORY: the file is a directory.
pub const DIRECTORY: u32 = 0x10;
/// FILE_ATTRIBUTE_ARCHIVE: a backup has to copy the file.
pub const ARCHIVE: u32 = 0x20;
/// No other attribute; never stored.
pub const NORMAL: u32 = 0x80;
/// FILE_ATTRIBUTE_TEMPORARY: the file is for a short time.
pub const TEMPORARY: u32 = 0x100;
/// FILE_ATTRIBUTE_SPARSE_FILE: ranges of the file may have no space.
pub const SPARSE_FILE: u32 = 0x200;
/// FILE_ATTRIBUTE_REPARSE_POINT: the file has a reparse buffer, such as a symbolic link's.
pub const REPARSE_POINT: u32 = 0x400;
/// FILE_ATTRIBUTE_COMPRESSED: the data is compressed.
pub const COMPRESSED: u32 = 0x800;
/// FILE_ATTRIBUTE_OFFLINE: the data lies on slower storage.
pub const OFFLINE: u32 = 0x1000;
/// FILE_ATTRIBUTE_NOT_CONTENT_INDEXED: indexing leaves the file out.
pub const NOT_CONTENT_INDEXED: u32 = 0x2000;
/// FILE_ATTRIBUTE_ENCRYPTED: the data is encrypted by the file system.
pub const ENCRYPTED: u32 = 0x4000;
/// FILE_ATTRIBUTE_INTEGRITY_STREAM: the data has checksums.
pub const INTEGRITY_STREAM: u32 = 0x8000;
/// FILE_ATTRIBUTE_NO_SCRUB_DATA: scrubbing leaves the data out.
pub const NO_SCRUB_DATA: u32 = 0x2_0000;
/// FILE_ATTRIBUTE_PINNED: the data is to stay on local storage.
pub const PINNED: u32 = 0x8_0000;
/// FILE_ATTRIBUTE_UNPINNED: the data need not stay on local storage.
pub const UNPINNED: u32 = 0x10_0000;
