//! I3: every disk durably stores the highest epoch it has promised, and refuses lower ones.
//!
//! That nothing is done under a lower epoch is watched at each store; here: a promise is durable when it is answered, and survives every
//! crash.

use types::{DiskId, Epoch};

/// The disk answered that it promises `asked`; `promised` is its durable promise.
pub fn check_answer(disk: DiskId, asked: Epoch, promised: Epoch) -> Option<String> {
    (promised < asked)
        .then(|| format!("I3: disk {disk} answered for epoch {asked} and has promised {promised}"))
}

pub fn check(disk: DiskId, seen: Epoch, now: Epoch) -> Option<String> {
    (now < seen).then(|| format!("I3: disk {disk} promised epoch {seen} and knows {now}"))
}
