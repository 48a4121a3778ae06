//! Opens a file or block device as a disk: locks it for this process, finds its size, block and abilities.

use super::watch::FileWatch;
use crate::DiskInfo;
use crate::partition::{self, Place};
use crate::release::{RELEASE, RELEASE_PAUSE};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::BufMut;
use sys::driver::Descriptor;

/// How to open a disk.
#[derive(Debug, Clone)]
pub struct FileDiskOptions {
    /// How long one operation may take before it is answered with [`crate::DiskError::TimedOut`].
    pub time_bound: Duration,
    /// Past the page cache if the file system can do that. If not, opening for writing drops what the page cache has of the file.
    pub direct: bool,
    /// Only looks: takes no lock, and writes fail.
    pub read_only: bool,
    /// Logical block of a file, 512 or 4096 bytes; a block device knows its own.
    pub file_block_bytes: u32,
}

impl Default for FileDiskOptions {
    /// Five seconds, O_DIRECT, read and write, blocks of 4096 bytes.
    fn default() -> Self {
        Self { time_bound: Duration::from_secs(5), direct: true, read_only: false, file_block_bytes: 4096 }
    }
}

/// Why a path cannot be opened as a disk.
#[derive(Debug)]
pub enum OpenError {
    /// Another process, or a mounted file system, uses it.
    InUse {
        path: String,
    },
    /// Neither a file nor a block device.
    NotADisk {
        path: String,
    },
    /// Logical blocks of neither 512 nor 4096 bytes.
    BlockSize {
        path: String,
        block_bytes: u32,
    },
    Io {
        path: String,
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path } => write!(
                f,
                "{path} is in use by another process or mounted: stop the other instance, or choose another disk"
            ),
            Self::NotADisk { path } => write!(f, "{path} is neither a file nor a block device"),
            Self::BlockSize { path, block_bytes } => {
                write!(f, "{path} has logical blocks of {block_bytes} bytes; only 512 and 4096 are supported")
            }
            Self::Io { path, error } => write!(f, "cannot open {path}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// A file or device, opened and locked; [`super::FileDisk::new`] serves it. It may be made on any thread, since to open a
/// device that hangs takes as long as it likes.
pub struct OpenedFile {
    pub(super) file: Descriptor,
    pub(super) info: DiskInfo,
    /// Where the disk begins in the file.
    pub(crate) base_bytes: u64,
    pub(super) time_bound: Duration,
    /// Operations on it may keep a thread waiting that hands them to the kernel.
    pub(super) blocks_callers: bool,
}

impl OpenedFile {
    /// Opens and locks the file or device.
    ///
    /// # Errors
    /// [`OpenError`] says why it cannot be opened.
    pub fn open(path: &str, options: FileDiskOptions) -> Result<Self, OpenError> {
        Self::open_pausing(path, options, || std::thread::sleep(RELEASE_PAUSE))
    }

    /// As [`Self::open`]; `pause` is called between tries while a former holder lets go.
    pub(super) fn open_pausing(
        path: &str,
        options: FileDiskOptions,
        pause: impl FnMut(),
    ) -> Result<Self, OpenError> {
        let failed = |error: Errno| match error {
            Errno::BUSY | Errno::AGAIN => OpenError::InUse { path: path.to_owned() },
            error => OpenError::Io { path: path.to_owned(), error: error.into() },
        };
        let stat = rustix::fs::stat(path).map_err(failed)?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if !matches!(file_type, FileType::RegularFile | FileType::BlockDevice) {
            return Err(OpenError::NotADisk { path: path.to_owned() });
        }
        let device = file_type == FileType::BlockDevice;
        let (file, direct) = claim(path, device, &options, pause).map_err(failed)?;
        let block_bytes = if device {
            rustix::fs::ioctl_blksszget(&file).map_err(failed)?
        } else {
            options.file_block_bytes
        };
        if !matches!(block_bytes, 512 | 4096) {
            return Err(OpenError::BlockSize { path: path.to_owned(), block_bytes });
        }
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(failed)?;
        if !direct && !options.read_only {
            forget_cached(&file);
        }
        let id = if device { stat.st_rdev } else { stat.st_dev };
        // A device that we partitioned, or an image of one, is our partition: whether the kernel knows it or not.
        let blocks_bytes: &[u32] = if device { &[block_bytes] } else { &[512, 4096] };
        let place = our_partition(path, end, blocks_bytes)
            .unwrap_or(Place { offset_bytes: 0, len_bytes: end - end % u64::from(block_bytes) });
        let info = DiskInfo {
            path: path.to_owned(),
            size_bytes: place.len_bytes,
            block_bytes,
            rotational: queue_attribute(id, "rotational").is_some_and(|value| value != 0),
            discards: !device || queue_attribute(id, "discard_max_bytes").is_none_or(|value| value != 0),
            direct,
        };
        let (base_bytes, time_bound) = (place.offset_bytes, options.time_bound);
        let blocks_callers = !device && is_on_foreign_file_system(&file);
        Ok(Self { file: Arc::new(file), info, base_bytes, time_bound, blocks_callers })
    }

    pub fn info(&self) -> &DiskInfo {
        &self.info
    }

    /// Looks after the file from now on.
    pub fn watch(&self) -> FileWatch {
        FileWatch::new(&self.file, Path::new(&self.info.path), self.base_bytes)
    }
}

/// Opens a handle of its own, since reads of a table are not aligned. `blocks_bytes`: a device's
/// logical block, or those possible for the device of which a file is an image.
fn our_partition(path: &str, size_bytes: u64, blocks_bytes: &[u32]) -> Option<Place> {
    let file = File::open(path).ok()?;
    blocks_bytes.iter().find_map(|&block_bytes| partition::find(&file, size_bytes, block_bytes))
}

/// The file, this process's own unless it only looks, and whether it goes past the page cache.
fn claim(
    path: &str,
    device: bool,
    options: &FileDiskOptions,
    mut pause: impl FnMut(),
) -> Result<(OwnedFd, bool), Errno> {
    let until = Instant::now() + RELEASE;
    loop {
        let claimed = open_file(path, device, options).and_then(|(file, direct)| {
            if !options.read_only {
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            }
            Ok((file, direct))
        });
        match claimed {
            Err(Errno::BUSY | Errno::AGAIN) if Instant::now() < until => pause(),
            claimed => return claimed,
        }
    }
}

/// File systems whose files are served by another process or another machine, by their magic numbers
/// (linux/magic.h): FUSE, NFS, CIFS, SMB2, 9P, Ceph, AFS, OCFS2, GFS2, Coda. The kernel may wait for
/// that server before it counts any operation as begun.
const FOREIGN: [u32; 10] = [
    0x6573_5546,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7461_636f,
    0x0116_1970,
    0x7375_7245,
];

fn is_on_foreign_file_system(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| FOREIGN.contains(&(found.f_type as u32)))
}

/// The file, and whether it goes past the page cache.
fn open_file(path: &str, device: bool, options: &FileDiskOptions) -> Result<(OwnedFd, bool), Errno> {
    let mut flags = OFlags::CLOEXEC;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if device && !options.read_only {
        // A mounted device, or one that another holder claimed, answers EBUSY.
        flags |= OFlags::EXCL;
    }
    if options.direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(file) if direct_works(&file) => return Ok((file, true)),
            Ok(_) | Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((rustix::fs::open(path, flags, Mode::empty())?, false))
}

/// Lets reads see the medium. After a failed write, the page cache may hold bytes that never got there,
/// marked as clean; only dropping such pages shows what did (I9). File systems in memory have no other
/// medium, and a file system that keeps pages for reasons of its own still does so.
fn forget_cached(file: &OwnedFd) {
    // The error of a write that nobody waits for any more: reads must see the bytes that it leaves on the
    // medium.
    let _ = rustix::fs::fdatasync(file);
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Some file systems accept the flag and refuse the first access.
fn direct_works(file: &OwnedFd) -> bool {
    let mut probe = BufMut::for_overwrite(4096);
    !matches!(rustix::io::pread(file, &mut probe[..], 0), Err(Errno::INVAL | Errno::OPNOTSUPP))
}

/// Reads a number of a block device's queue from the kernel; a partition's is its disk's.
fn queue_attribute(device: u64, attribute: &str) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let of_disk = format!("/sys/dev/block/{major}:{minor}/queue/{attribute}");
    let of_partition = format!("/sys/dev/block/{major}:{minor}/../queue/{attribute}");
    let text = std::fs::read_to_string(of_disk).or_else(|_| std::fs::read_to_string(of_partition)).ok()?;
    text.trim().parse().ok()
}

/// Makes a thin file to serve as a disk: its space is taken as it is written. The file's existence is durable afterwards.
///
/// # Errors
/// The path exists, or the file system cannot hold a file of this size.
pub fn create_file_disk(path: &Path, size_bytes: u64) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let made = file.set_len(size_bytes).and_then(|()| file.sync_all()).and_then(|()| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(parent.unwrap_or(Path::new(".")))?;
        Ok(rustix::fs::fsync(directory.as_fd())?)
    });
    if made.is_err() {
        // Nobody has seen it: it was made two lines above, exclusively.
        let _ = std::fs::remove_file(path);
    }
    made
}
