//! The wall clock, for messages to people and for records. State machines never ask it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970-01-01 00:00 UTC.
pub fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970-01-01 00:00 UTC.
pub fn unix_now_s() -> u64 {
    unix_now().as_secs()
}
