//! How fast the pools fill, and when they are full, by the history.

use crate::history::{Columns, SERIES};
use serde::Serialize;

/// Less history than this tells no trend.
const HISTORY_MIN_S: u64 = 86_400;
/// What happened longer ago tells little of what comes.
const HISTORY_MAX_S: u64 = 14 * 86_400;
/// A date farther away is none.
const AHEAD_MAX_S: f64 = 10.0 * 365.0 * 86_400.0;
const DAY_S: f64 = 86_400.0;

/// Of all pools together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trend {
    /// What is allocated grows by so much; negative: it shrinks.
    pub bytes_per_day: f64,
    /// When everything but the reserve will be allocated; `null`: it does not grow, or that is years away.
    pub full_at_unix_s: Option<u64>,
}

/// `room_bytes`: what may be allocated. `None`: the history is too short.
pub fn trend(month: &Columns, now_unix_s: u64, room_bytes: u64) -> Option<Trend> {
    let series = SERIES.iter().position(|name| *name == "allocated_bytes")?;
    let column = month.values.get(series)?;
    let from = now_unix_s.saturating_sub(HISTORY_MAX_S);
    let points: Vec<(f64, f64)> = month
        .at_unix_s
        .iter()
        .zip(column)
        .filter(|(at, _)| **at >= from)
        .filter_map(|(at, value)| Some(((*at as f64 - now_unix_s as f64) / DAY_S, f64::from((*value)?))))
        .collect();
    let (first, last) = (points.first()?, points.last()?);
    if (last.0 - first.0) * DAY_S < HISTORY_MIN_S as f64 {
        return None;
    }
    let bytes_per_day = slope(&points)?;
    let left = room_bytes as f64 - last.1;
    let seconds = left / bytes_per_day * DAY_S;
    let is_near = bytes_per_day > 0.0 && left > 0.0 && seconds < AHEAD_MAX_S;
    Some(Trend { bytes_per_day, full_at_unix_s: is_near.then(|| now_unix_s + seconds as u64) })
}

/// Of the line that lies nearest to the points (least squares).
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (middle, level) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - middle).powi(2)).sum();
    let common: f64 = points.iter().map(|point| (point.0 - middle) * (point.1 - level)).sum();
    (spread > 0.0).then(|| common / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const GIB: f32 = 1_073_741_824.0;

    /// A point an hour for so many days, of what was allocated then.
    fn month(days: u64, allocated: impl Fn(f32) -> Option<f32>) -> Columns {
        let at_unix_s: Vec<u64> = (0..=days * 24).map(|hour| NOW - (days * 24 - hour) * 3600).collect();
        let own = at_unix_s.iter().map(|at| allocated((*at as f64 - NOW as f64) as f32 / 86_400.0)).collect();
        let mut values = vec![vec![None; at_unix_s.len()]; SERIES.len()];
        values[SERIES.iter().position(|name| *name == "allocated_bytes").unwrap()] = own;
        Columns { step_s: 300, series: &SERIES, at_unix_s, values }
    }

    #[test]
    fn a_pool_that_grows_by_a_gibibyte_a_day_is_full_when_its_room_is_used() {
        let found = trend(&month(5, |day| Some((100.0 + day) * GIB)), NOW, 110 << 30).unwrap();
        assert!((found.bytes_per_day / f64::from(GIB) - 1.0).abs() < 0.01, "{found:?}");
        let days = (found.full_at_unix_s.unwrap() - NOW) as f64 / DAY_S;
        assert!((days - 10.0).abs() < 0.1, "{days}");
    }

    #[test]
    fn one_that_shrinks_or_stays_has_no_date() {
        for grown in [-1.0, 0.0] {
            let found = trend(&month(5, |day| Some((100.0 + grown * day) * GIB)), NOW, 110 << 30).unwrap();
            assert_eq!(found.full_at_unix_s, None, "{found:?}");
        }
        let slow = trend(&month(5, |day| Some(100.0 * GIB + day * 1e5)), NOW, 110 << 30).unwrap();
        assert_eq!(slow.full_at_unix_s, None, "years away");
    }

    #[test]
    fn less_than_a_day_and_points_without_a_figure_tell_nothing() {
        assert_eq!(trend(&month(0, |_| Some(GIB)), NOW, 1 << 40), None);
        assert_eq!(trend(&month(20, |_| None), NOW, 1 << 40), None);
        let recent = month(20, |day| (day > -0.5).then_some(GIB));
        assert_eq!(trend(&recent, NOW, 1 << 40), None);
    }
}
