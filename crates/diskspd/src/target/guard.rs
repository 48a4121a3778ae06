//! Decides which targets may be overwritten: a file that `-c` made, a file without data, and those that `--yes-overwrite` names.
//!
//! A file that `-c` makes is marked: here with an extended attribute that holds its size, on a share
//! with a named stream; replacing the file takes both away. If the file system has neither, the content
//! decides: that of `-c` and default writes (see [`is_ours`]).

use super::TargetError;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use std::fs::File;
use std::os::unix::fs::FileExt;

const MARK: &str = "user.diskspd.created";
/// The stream that marks a file on a share, behind its path.
pub const STREAM: &str = ":diskspd.created";
/// Places read in a file without mark, and bytes at each.
const SAMPLES: u64 = 64;
pub const SAMPLE_BYTES: usize = 4096;

/// Remembers that `-c` made the file, of this size.
pub fn mark(file: &File, size_bytes: u64) {
    // Without extended attributes the content decides.
    let _ = fsetxattr(file, MARK, &size_bytes.to_le_bytes(), XattrFlags::empty());
}

/// Whether these bytes, from any offset of a file, are what `-c` wrote: zeros, or 0 to 255 repeating.
pub fn is_ours(bytes: &[u8]) -> bool {
    let Some(&first) = bytes.first() else { return true };
    bytes.iter().all(|byte| *byte == 0)
        || bytes.iter().enumerate().all(|(at, byte)| *byte == first.wrapping_add(at as u8))
}

/// Offsets to read in a file of this size.
pub fn samples(size_bytes: u64) -> impl Iterator<Item = u64> {
    let last = size_bytes.saturating_sub(SAMPLE_BYTES as u64);
    let step = (last / SAMPLES).max(SAMPLE_BYTES as u64);
    (0..=SAMPLES).map(move |number| number * step).filter(move |offset| *offset < last).chain([last])
}

/// Whether a file's data may be overwritten without being asked for.
pub fn may_overwrite(file: &File, size_bytes: u64) -> std::io::Result<bool> {
    if size_bytes == 0 {
        return Ok(true);
    }
    let mut value = [0; 8];
    if fgetxattr(file, MARK, &mut value) == Ok(value.len()) && value == size_bytes.to_le_bytes() {
        return Ok(true);
    }
    let mut bytes = [0; SAMPLE_BYTES];
    for offset in samples(size_bytes) {
        let len = usize::try_from(size_bytes - offset).unwrap_or(SAMPLE_BYTES).min(SAMPLE_BYTES);
        let part = bytes.get_mut(..len).unwrap_or_default();
        file.read_exact_at(part, offset)?;
        if !is_ours(part) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the message in place of overwriting.
pub fn refusal(path: &str, what: &str) -> TargetError {
    TargetError::Other(format!(
        "ERROR: '{path}' {what}; this test would overwrite it.\nTo destroy its data: --yes-overwrite {path}"
    ))
}
