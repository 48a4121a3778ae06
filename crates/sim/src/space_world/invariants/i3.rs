//! I3: every disk durably stores the highest epoch it has promised, and refuses lower ones.
//!
//! `WatchedStore` checks that a store does nothing under a lower epoch.
//! Here: a promise is durable when it is answered, and survives every crash.

use types::{DiskId, Epoch};

/// Checks an answer of the disk that promises `asked`; `promised` is its durable promise.
pub fn check_answer(disk: DiskId, asked: Epoch, promised: Epoch) -> Option<String> {
    (promised < asked)
        .then(|| format!("I3: disk {disk} answered for epoch {asked} and has promised {promised}"))
}

/// Compares a disk's promise with the one known before a crash. Returns the violation.
pub fn check(disk: DiskId, seen: Epoch, now: Epoch) -> Option<String> {
    (now < seen).then(|| format!("I3: disk {disk} promised epoch {seen} and knows {now}"))
}
