//! What becomes of a disk's file while it is open: files are removed, renamed and cut by people, and the open file tells nothing of it.
//!
//! Asks the kernel, which may take its time if the file system hangs: for helper threads.

use rustix::fs::FileType;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use sys::driver::Descriptor;

/// What is known of a file that is open as a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileState {
    /// Its path leads to it, and it is as long as when it was opened; or it is a device.
    #[default]
    Whole,
    /// It has no name any more: it is gone when it is closed.
    Removed,
    /// Its path does not lead to it any more. Its name now, if that can be told.
    Renamed(Option<PathBuf>),
    /// It was cut to so many bytes.
    Truncated(u64),
}

/// Looks after a file that is open as a disk. Does not keep it open.
#[derive(Debug, Clone)]
pub struct FileWatch {
    file: Weak<OwnedFd>,
    path: PathBuf,
    /// When it was opened; `None`: a device, whose node may come and go.
    size_bytes: Option<u64>,
}

impl FileWatch {
    pub(super) fn new(file: &Descriptor, path: &Path) -> Self {
        let stat = rustix::fs::fstat(file).ok();
        let regular = stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        let size_bytes = regular.and_then(|stat| u64::try_from(stat.st_size).ok());
        Self { file: Descriptor::downgrade(file), path: path.to_owned(), size_bytes }
    }

    /// Looks at the file. `None`: it is not open any more.
    ///
    /// # Errors
    /// The kernel cannot tell.
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
