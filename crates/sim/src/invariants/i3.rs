//! I3: every disk durably stores the highest epoch it has promised, and refuses lower ones.
//!
//! That nothing is done under a lower epoch is watched at each store; here: a promise survives every crash.

use types::{DiskId, Epoch};

pub fn check(disk: DiskId, seen: Epoch, now: Epoch) -> Option<String> {
    (now < seen).then(|| format!("I3: disk {disk} promised epoch {seen} and knows {now}"))
}
