//! One physical disk as a completion queue: a file, a partition or a whole block device.
//!
//! Promises: a completed durable write survives power loss. Never interprets bytes.

#![forbid(unsafe_code)]

mod change;
pub mod conformance;
pub mod crash;
pub mod fault;
mod file;
mod image;
mod log;
pub mod memory;
pub mod partition;
mod random;
mod release;
pub mod users;
pub mod volatile;

pub use file::{
    FileDisk, FileDiskOptions, FileState, FileWatch, HostRoom, OpenError, OpenedFile, Reserved,
    StandaloneDisk, create_file_disk,
};

use std::fmt;
use sys::{BufMut, Payload};

/// A caller's request to a disk. Offsets and lengths are bytes, multiples of [`DiskInfo::block_bytes`].
#[derive(Debug)]
pub enum DiskOperation {
    /// Fills the buffer from `offset`.
    Read { offset: u64, into: BufMut },
    /// Writes at `offset`. `durable`: completes only when it survives power loss (FUA, RWF_DSYNC).
    Write { offset: u64, data: Payload, durable: bool },
    /// Makes durable all writes that completed before it was submitted.
    Flush,
    /// The bytes are no longer needed; they read as anything afterwards.
    Discard { offset: u64, len_bytes: u64 },
}

/// The answer to one operation.
#[derive(Debug)]
pub struct DiskCompletion {
    pub token: u64,
    /// The filled buffer of a read; empty else.
    pub result: Result<Option<BufMut>, DiskError>,
}

/// Why an operation failed (D20). After any of these but `Invalid` and `NoSpace` on a write or a flush, nothing is known about earlier
/// writes (I9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskError {
    /// The medium cannot give, or take, the blocks of this operation (errno): of a read, one of them at least; the rest of the disk is
    /// as good as before.
    Medium(i32),
    /// The host lacked something, such as memory, for as long as an operation may take (errno). Says nothing about the disk.
    Host(i32),
    /// The device answered with another error (errno).
    Io(i32),
    /// No answer within the bounded time of an operation.
    TimedOut,
    /// The device is gone.
    Gone,
    /// The operation does not fit the device: misaligned or beyond its end.
    Invalid(&'static str),
    /// The file behind the disk could not grow (ENOSPC).
    NoSpace,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Medium(errno) => write!(f, "medium error: {}", std::io::Error::from_raw_os_error(*errno)),
            Self::Host(errno) => {
                write!(f, "this machine is short of something: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Io(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Gone => f.write_str("the device is gone"),
            Self::Invalid(why) => f.write_str(why),
            Self::NoSpace => f.write_str("no space left under the disk's file"),
        }
    }
}

impl std::error::Error for DiskError {}

impl DiskError {
    /// Separates faults of the medium, of the device and of this host by errno (Linux' `blk_errors` in
    /// block/blk-core.c).
    pub fn of_system(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace,
            Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN) => Self::Gone,
            // EIO is BLK_STS_IOERR, ENODATA BLK_STS_MEDIUM, EILSEQ BLK_STS_PROTECTION, EREMOTEIO BLK_STS_TARGET.
            Some(errno @ (libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO | libc::EBADMSG)) => {
                Self::Medium(errno)
            }
            Some(errno @ (libc::ENOMEM | libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::EBUSY)) => {
                Self::Host(errno)
            }
            Some(errno) => Self::Io(errno),
            None => Self::Medium(libc::EIO),
        }
    }
}

/// Facts about a disk that do not change while it is open.
#[derive(Debug, Clone)]
pub struct DiskInfo {
    /// Path as the administrator gave it.
    pub path: String,
    /// Usable size in bytes.
    pub size_bytes: u64,
    /// Logical block: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// Spinning: seeks cost.
    pub rotational: bool,
    /// Discard gives space back.
    pub discards: bool,
    /// Goes past the page cache (O_DIRECT). Otherwise a durable write is a buffered one followed by fdatasync.
    pub direct: bool,
}

/// A disk: operations in, completions out, in any order. Nothing blocks.
pub trait Disk {
    fn info(&self) -> &DiskInfo;
    /// Takes an operation; its answer carries `token`.
    fn submit(&mut self, token: u64, operation: DiskOperation);
    /// Moves the answers that are there into `out`.
    fn poll(&mut self, out: &mut Vec<DiskCompletion>);
    /// Whether [`Disk::poll`] may have something to do; `false` spares the caller a poll, `true` promises nothing.
    fn has_news(&self) -> bool {
        true
    }
}

/// Refuses what does not fit the disk: misaligned, empty, or beyond its end.
pub(crate) fn check_fit(info: &DiskInfo, operation: &DiskOperation) -> Result<(), DiskError> {
    let (offset, len_bytes) = match operation {
        DiskOperation::Read { offset, into } => (*offset, into.len() as u64),
        DiskOperation::Write { offset, data, .. } => (*offset, data.len() as u64),
        DiskOperation::Flush => return Ok(()),
        DiskOperation::Discard { offset, len_bytes } => (*offset, *len_bytes),
    };
    let block_bytes = u64::from(info.block_bytes);
    if !offset.is_multiple_of(block_bytes) || !len_bytes.is_multiple_of(block_bytes) || len_bytes == 0 {
        return Err(DiskError::Invalid("offset or length is not a multiple of the logical block"));
    }
    match offset.checked_add(len_bytes) {
        Some(end) if end <= info.size_bytes => Ok(()),
        _ => Err(DiskError::Invalid("beyond the end of the disk")),
    }
}
