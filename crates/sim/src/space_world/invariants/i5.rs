//! I5: the owner of the last copy is never forgotten: a disk comes to be in sync only from the stale
//! ones or as a new one, never by forgetting, and some in-sync disk has every acknowledged block at any
//! time.

use crate::space_world::oracle::Register;
use records::VolumeRecord;

/// Checks a change of the record: a disk must not be in sync and stale, and the only disk must not
/// vanish from the record.
pub fn check_record(before: &VolumeRecord, after: &VolumeRecord) -> Option<String> {
    if after.in_sync.is_empty() && !before.in_sync.is_empty() {
        return Some("I5: the record names no in-sync disk".into());
    }
    let both = after.stale.iter().find(|stale| after.in_sync.contains(&stale.disk));
    if let Some(stale) = both {
        return Some(format!("I5: disk {} is in sync and stale", stale.disk));
    }
    let forgotten = before
        .in_sync
        .iter()
        .find(|disk| !after.in_sync.contains(disk) && !after.stale.iter().any(|stale| stale.disk == **disk));
    forgotten.map(|disk| format!("I5: disk {disk} left without being remembered as stale"))
}

/// Checks a block. `copies`: the value on each in-sync disk that has the block.
pub fn check_block(lba: u64, register: &Register, copies: &[Option<u64>], now: u64) -> Option<String> {
    let zero_is_fine = !register.is_outdated(register.zeroes(), now);
    let alive = copies.iter().any(|copy| copy.is_some_and(|value| !register.is_outdated(value, now)));
    (!alive && !zero_is_fine)
        .then(|| format!("I5: no in-sync disk has the last acknowledged write to block {lba}"))
}
