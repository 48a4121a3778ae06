//! I1: an acknowledged durable write is on every in-sync copy, and on at least min-copies of them.
//!
//! Checked when the client has its answer: no in-sync disk of the record in force that has the
//! block may hold a value older than an acknowledged one.

use crate::space_world::oracle::Register;

/// Checks one write. `copies`: the block's value on each in-sync copy of the record in force,
/// `None` if it is garbage; `count`: the in-sync copies by the record under which the coordinator
/// acknowledged.
pub fn check(
    lba: u64,
    register: &Register,
    copies: &[Option<u64>],
    count: usize,
    min_copies: usize,
    now: u64,
) -> Option<String> {
    let outdated =
        copies.iter().filter(|copy| copy.is_none_or(|value| register.is_outdated(value, now))).count();
    if outdated > 0 {
        return Some(format!(
            "I1: {outdated} of {} in-sync copies of block {lba} miss an acknowledged write",
            copies.len()
        ));
    }
    (count < min_copies).then(|| format!("I1: block {lba} was acknowledged with {count} in-sync copies"))
}
