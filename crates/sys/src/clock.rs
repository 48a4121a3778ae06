//! The clock that the data plane's thread reads once per turn and hands down as an argument.

use rustix::time::{ClockId, clock_gettime};
use types::Monotonic;

/// CLOCK_MONOTONIC.
pub fn monotonic_now() -> Monotonic {
    let now = clock_gettime(ClockId::Monotonic);
    Monotonic(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
