//! Files and block devices of this machine: made, measured, opened.

use super::{TargetError, guard};
use crate::profile::{CacheMode, Target, WriteContent};
use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags, fadvise, fallocate, statx};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use sys::region::Region;

const FILL_BYTES: usize = 1 << 20;

/// Makes a file of `-c`: allocated, and every byte written once, so that no first write meets an unwritten extent. `stop`
/// is asked now and then.
///
/// # Errors
/// The system's; if the file holds data that is not to be lost.
pub fn create(
    target: &Target,
    path: &Path,
    size_bytes: u64,
    overwrite: bool,
    stop: &dyn Fn() -> bool,
) -> Result<(), TargetError> {
    let failed = |error: io::Error| {
        TargetError::Other(format!("Error creating file: {} [{}]\n{error}", target.path, number(&error)))
    };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| TargetError::open(&target.path, &error))?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(TargetError::Other(format!(
            "ERROR: -c cannot be used on '{}': it is no file",
            target.path
        )));
    }
    if !overwrite && !guard::may_overwrite(&file, metadata.len()).map_err(failed)? {
        return Err(guard::refusal(&target.path, "holds data that -c did not make"));
    }
    file.set_len(0).map_err(failed)?;
    file.set_len(size_bytes).map_err(failed)?;
    guard::mark(&file, size_bytes);
    match fallocate(&file, FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let bytes: Vec<u8> = match target.content {
        WriteContent::Zero => vec![0; FILL_BYTES],
        _ => (0..FILL_BYTES).map(|at| at as u8).collect(),
    };
    let mut at = 0;
    while at < size_bytes {
        if stop() {
            return Err(TargetError::Other(format!("ERROR: creating '{}' was interrupted", target.path)));
        }
        let len = usize::try_from(size_bytes - at).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        file.write_all_at(bytes.get(..len).unwrap_or_default(), at).map_err(failed)?;
        at += len as u64;
    }
    // The run then neither waits for nor competes with the writing of this.
    file.sync_all().map_err(failed)
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// Facts about a target before its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    pub size_bytes: u64,
    pub is_block_device: bool,
}

/// Measures a target: its size, whether it may be written, whether the block size fits unbuffered
/// access.
///
/// # Errors
/// As printed.
pub fn measure(target: &Target, path: &Path, overwrite: bool) -> Result<Measured, TargetError> {
    let file = File::open(path).map_err(|error| TargetError::open(&target.path, &error))?;
    let metadata = file.metadata().map_err(|error| TargetError::open(&target.path, &error))?;
    let is_block_device = metadata.file_type().is_block_device();
    if !is_block_device && !metadata.is_file() {
        return Err(TargetError::Other(format!(
            "ERROR: target size could not be determined\n'{}' is neither a file nor a block device",
            target.path
        )));
    }
    let size_bytes = if is_block_device {
        (&file).seek(SeekFrom::End(0)).map_err(|_| {
            TargetError::Other(format!("ERROR: target size could not be determined\n'{}'", target.path))
        })?
    } else {
        metadata.len()
    };
    if target.write_percent > 0 && !overwrite {
        if is_block_device {
            return Err(guard::refusal(&target.path, "is a block device"));
        }
        let may = guard::may_overwrite(&file, size_bytes)
            .map_err(|error| TargetError::open(&target.path, &error))?;
        if !may {
            return Err(guard::refusal(&target.path, "holds data that -c did not make"));
        }
    }
    if target.cache == CacheMode::DisableOsCache {
        check_alignment(target, &file)?;
    }
    Ok(Measured { size_bytes, is_block_device })
}

/// Unbuffered access goes in whole logical blocks of the layer below.
fn check_alignment(target: &Target, file: &File) -> Result<(), TargetError> {
    let Ok(status) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return Ok(()) };
    if status.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        // An older kernel does not say; the operations will show it.
        return Ok(());
    }
    let unit = u64::from(status.stx_dio_offset_align);
    if unit == 0 {
        return Err(TargetError::Other(format!(
            "ERROR: the file system of '{}' has no unbuffered I/O (-Su, -Sh)",
            target.path
        )));
    }
    for (bytes, option) in [
        (u64::from(target.block_bytes), "block size (-b)"),
        (target.stride(), "alignment or stride (-r, -s)"),
        (target.base_offset_bytes, "base offset (-B)"),
        (target.thread_stride_bytes, "thread stride (-T)"),
    ] {
        if bytes % unit != 0 {
            return Err(TargetError::Other(format!(
                "ERROR: unbuffered I/O (-Su, -Sh) on '{}' goes in units of {unit} bytes; {option} is {bytes}",
                target.path
            )));
        }
    }
    Ok(())
}

/// Keeps a block device that is written to from everybody else; refused while it is mounted or part of something.
///
/// # Errors
/// As printed.
pub fn claim(target: &Target, path: &Path) -> Result<File, TargetError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::EXCL.bits() as i32)
        .open(path)
        .map_err(|error| TargetError::open(&target.path, &error))
}

/// Opens a target for one thread.
///
/// # Errors
/// As printed.
pub fn open(target: &Target, path: &Path) -> Result<File, TargetError> {
    let writes = target.write_percent > 0;
    let mut flags = OFlags::empty();
    if target.cache == CacheMode::DisableOsCache {
        flags |= OFlags::DIRECT;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(writes)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(|error| TargetError::open(&target.path, &error))?;
    for (wanted, advice) in
        [(target.hint_random, Advice::Random), (target.hint_sequential, Advice::Sequential)]
    {
        if wanted {
            // A hint; a file system without it is none the worse.
            let _ = fadvise(&file, 0, None, advice);
        }
    }
    Ok(file)
}

/// The memory that writes of a target come from: `-Z<size>[,file]`, or one block.
///
/// # Errors
/// If there is no memory, or the file cannot be read.
pub fn source(
    content: &WriteContent,
    block_bytes: u32,
    large_pages: bool,
    fill: impl FnOnce(&mut [u8]),
) -> Result<Region, TargetError> {
    let size_bytes = match content {
        WriteContent::Source { size_bytes, .. } => *size_bytes,
        _ => u64::from(block_bytes),
    };
    let no_memory = |error: io::Error| {
        TargetError::Other(format!("ERROR: could not allocate {size_bytes} bytes for write buffers: {error}"))
    };
    let len =
        usize::try_from(size_bytes).map_err(|_| no_memory(io::Error::from(io::ErrorKind::OutOfMemory)))?;
    let mut region = Region::new(len, large_pages).map_err(no_memory)?;
    match content {
        WriteContent::Sequential => pattern(region.bytes_mut()),
        WriteContent::Zero => {}
        WriteContent::Source { file: None, .. } => fill(region.bytes_mut()),
        WriteContent::Source { file: Some(path), .. } => {
            let read = File::open(path).and_then(|file| {
                let mut content = Vec::new();
                file.take(size_bytes).read_to_end(&mut content)?;
                Ok(content)
            });
            let content = read.map_err(|error| TargetError::open(path, &error))?;
            if content.is_empty() {
                return Err(TargetError::Other(format!("ERROR: write buffer source '{path}' is empty")));
            }
            for part in region.bytes_mut().chunks_mut(content.len()) {
                part.copy_from_slice(content.get(..part.len()).unwrap_or_default());
            }
        }
    }
    Ok(region)
}

/// Bytes 0 to 255, again and again.
pub fn pattern(bytes: &mut [u8]) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = at as u8;
    }
}
