//! Watches a disk's file while it is open: people remove, rename and cut files, and the open file does
//! not show it.
//!
//! Asks the kernel, which may take its time if the file system hangs: for helper threads.

use rustix::fs::{FallocateFlags, FileType, fallocate};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use sys::driver::Descriptor;

/// State of a file that is open as a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileState {
    /// The path leads to the file, and the file is as long as when it was opened; or it is a device.
    #[default]
    Whole,
    /// The file has no name any more: it is gone when it is closed.
    Removed,
    /// The path does not lead to the file any more. Its name now, if it can be found.
    Renamed(Option<PathBuf>),
    /// The file was cut to this many bytes.
    Truncated(u64),
}

/// Unit of a file's blocks (`st_blocks`) on Linux.
const STAT_BLOCK_BYTES: u64 = 512;

/// The file system that a disk's file lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoom {
    /// Mount point; the file's own path if that cannot be found.
    pub mounted_at: PathBuf,
    /// Free bytes that an unprivileged process may use (f_bavail).
    pub available_bytes: u64,
    /// Bytes of the disk's file that have no space yet: it is thin, or the file system compresses it.
    pub unbacked_bytes: u64,
}

/// Outcome of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// Space is reserved for all of the bytes.
    Yes,
    /// The host's file system has no space for it.
    NoRoom,
    /// A device, which has all of its space, or a file system that cannot reserve any.
    NotHere,
}

/// Looks after a file that is open as a disk. Does not keep it open.
#[derive(Debug, Clone)]
pub struct FileWatch {
    file: Weak<OwnedFd>,
    path: PathBuf,
    /// Where the disk begins in the file.
    base_bytes: u64,
    /// When it was opened; `None`: a device, whose node may come and go.
    size_bytes: Option<u64>,
}

impl FileWatch {
    pub(super) fn new(file: &Descriptor, path: &Path, base_bytes: u64) -> Self {
        let stat = rustix::fs::fstat(file).ok();
        let regular = stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        let size_bytes = regular.and_then(|stat| u64::try_from(stat.st_size).ok());
        Self { file: Descriptor::downgrade(file), path: path.to_owned(), base_bytes, size_bytes }
    }

    /// Has the host's file system reserve space for bytes of the disk, whose contents do not change.
    ///
    /// # Errors
    /// The kernel's, except for lack of space.
    pub fn reserve(&self, offset: u64, len_bytes: u64) -> io::Result<Reserved> {
        let Some(file) = self.size_bytes.and_then(|_| self.file.upgrade()) else {
            return Ok(Reserved::NotHere);
        };
        match fallocate(&file, FallocateFlags::KEEP_SIZE, self.base_bytes + offset, len_bytes) {
            Ok(()) => Ok(Reserved::Yes),
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(Reserved::NoRoom),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(Reserved::NotHere),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads how much space there is in the file system of the file. `None`: it is a device, or not open
    /// any more.
    ///
    /// # Errors
    /// The kernel cannot say.
    pub fn room(&self) -> io::Result<Option<HostRoom>> {
        let Some(file) = self.size_bytes.and_then(|_| self.file.upgrade()) else { return Ok(None) };
        let found = rustix::fs::fstatvfs(&file)?;
        let stat = rustix::fs::fstat(&file)?;
        let mounted_at = mount_of(stat.st_dev).unwrap_or_else(|| self.path.clone());
        let len_bytes = u64::try_from(stat.st_size).unwrap_or_default();
        let backed_bytes = u64::try_from(stat.st_blocks).unwrap_or_default() * STAT_BLOCK_BYTES;
        Ok(Some(HostRoom {
            mounted_at,
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            // Extended attributes and the map of the file count as its blocks, too.
            unbacked_bytes: len_bytes.saturating_sub(backed_bytes),
        }))
    }

    /// Checks the file. `None`: it is not open any more.
    ///
    /// # Errors
    /// The kernel cannot say.
    pub fn look(&self) -> io::Result<Option<FileState>> {
        let Some(size_bytes) = self.size_bytes else { return Ok(Some(FileState::Whole)) };
        let Some(file) = self.file.upgrade() else { return Ok(None) };
        let stat = rustix::fs::fstat(&file)?;
        let now_bytes = u64::try_from(stat.st_size).unwrap_or_default();
        let there = rustix::fs::stat(&self.path).ok();
        let is_there = there.is_some_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino));
        Ok(Some(match () {
            () if stat.st_nlink == 0 => FileState::Removed,
            () if now_bytes < size_bytes => FileState::Truncated(now_bytes),
            () if !is_there => {
                let shown = format!("/proc/self/fd/{}", file.as_raw_fd());
                FileState::Renamed(std::fs::read_link(shown).ok().filter(|name| name.exists()))
            }
            () => FileState::Whole,
        }))
    }
}

/// Where the file system with this device number is mounted (proc_pid_mountinfo(5): the third field is the number, the fifth the place).
fn mount_of(device: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let place = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == number).then(|| fields.nth(1)).flatten()
    })?;
    // Spaces are written in octal there.
    Some(PathBuf::from(place.replace("\\040", " ")))
}
