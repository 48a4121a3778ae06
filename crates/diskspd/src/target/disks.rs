//! Physical disks by number: `#0` is the first whole disk in the order of device numbers.

use super::TargetError;
use std::fs;
use std::path::{Path, PathBuf};

/// Kinds of block device that are no disks.
const NOT_DISKS: [&str; 5] = ["loop", "ram", "zram", "sr", "fd"];

/// The device of `#number`.
///
/// # Errors
/// When there is no such disk.
pub fn by_number(number: &str) -> Result<PathBuf, TargetError> {
    let disks = list(Path::new("/sys/block"));
    number.parse::<usize>().ok().and_then(|number| disks.get(number)).cloned().ok_or_else(|| {
        TargetError::Other(format!(
            "Error opening file: #{number} [2]\nthere is no such disk; there are {}: {}",
            disks.len(),
            disks
                .iter()
                .enumerate()
                .map(|(at, disk)| format!("#{at} {}", disk.display()))
                .collect::<Vec<_>>()
                .join(", ")
        ))
    })
}

/// Whole disks, sorted by major and minor number.
pub(super) fn list(blocks: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(blocks).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        if NOT_DISKS.contains(&kind) {
            continue;
        }
        let Ok(numbers) = fs::read_to_string(entry.path().join("dev")) else { continue };
        let Some((major, minor)) = numbers.trim().split_once(':') else { continue };
        if let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) {
            found.push((major, minor, PathBuf::from("/dev").join(name)));
        }
    }
    found.sort();
    found.into_iter().map(|(_, _, path)| path).collect()
}
