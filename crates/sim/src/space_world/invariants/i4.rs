//! I4: a copy that left gets all writes that it missed before it counts again.
//!
//! Checked when a record takes the disk in: no block of it may be older than an acknowledged write.

use crate::space_world::oracle::Register;
use types::DiskId;

/// Checks a block. `holds`: the value on the disk; `None`: garbage.
pub fn check(disk: DiskId, lba: u64, register: &Register, holds: Option<u64>, now: u64) -> Option<String> {
    let outdated = holds.is_none_or(|value| register.is_outdated(value, now));
    outdated.then(|| format!("I4: disk {disk} came to be in sync and misses a write to block {lba}"))
}
