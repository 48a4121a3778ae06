//! Time as the layers see it: always an argument, never read from a clock inside a state machine.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds of a clock that never goes back; its zero means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monotonic(pub u64);

impl Monotonic {
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_nanos() as u64))
    }
    /// Time passed since `earlier`; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// 100 ns units since 1601-01-01 00:00 UTC (MS-DTYP 2.3.3 FILETIME).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileTime(pub u64);

impl FileTime {
    /// 100 ns units between 1601-01-01 and 1970-01-01.
    pub const UNIX_EPOCH: Self = Self(116_444_736_000_000_000);

    /// From nanoseconds since 1970-01-01; times before 1601 become zero.
    pub const fn from_unix_nanos(nanos: i128) -> Self {
        let ticks = nanos.div_euclid(100) + Self::UNIX_EPOCH.0 as i128;
        if ticks < 0 { Self(0) } else { Self(ticks as u64) }
    }

    /// Nanoseconds since 1970-01-01.
    pub const fn to_unix_nanos(self) -> i128 {
        (self.0 as i128 - Self::UNIX_EPOCH.0 as i128) * 100
    }
}
