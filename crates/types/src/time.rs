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
    /// Time passed since `earlier`; zero if `earlier` is later.
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

/// Year, month and day of this many days after 1970-01-01, or before it (proleptic Gregorian calendar).
pub const fn civil_date(days: i64) -> (i64, i64, i64) {
    // Counted from 0000-03-01, in eras of 400 years, so that the leap day is a year's last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + (month <= 2) as i64, month, day)
}

#[cfg(test)]
mod tests {
    use super::civil_date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_778, (2026, 11, 21)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil_date(days), date, "day {days}");
        }
    }
}
