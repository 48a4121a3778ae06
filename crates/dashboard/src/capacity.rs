//! How fast the pools fill, and when each is full, by the history.

use crate::history::{Columns, SERIES};
use crate::pool_history::PoolHistory;
use api::model::Pool;
use serde::Serialize;

/// Least history that makes a trend.
const HISTORY_MIN_S: u64 = 86_400;
/// Older history says little of the future.
const HISTORY_MAX_S: u64 = 14 * 86_400;
/// Horizon beyond which no date is shown.
const AHEAD_MAX_S: f64 = 10.0 * 365.0 * 86_400.0;
const DAY_S: f64 = 86_400.0;

/// How a pool fills.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trend {
    /// Growth of the allocation; negative: it shrinks.
    pub bytes_per_day: f64,
    /// When everything but the reserve will be allocated; `null`: it does not grow, or that is years away.
    pub full_at_unix_s: Option<u64>,
}

/// Bytes allocated of a pool over time, and their trend.
#[derive(Debug, Clone, Serialize)]
pub struct PoolTrend {
    pub pool: String,
    /// `null`: the history is too short to tell.
    pub trend: Option<Trend>,
    pub at_unix_s: Vec<u64>,
    pub allocated_bytes: Vec<u64>,
}

/// The trend of each pool. `month`: allocation of all pools together by the server's own disks, which
/// stands for the only pool of a single server before that pool had a history of its own.
pub fn pool_trends(
    pools: &[Pool],
    history: &PoolHistory,
    month: &Columns,
    now_unix_s: u64,
) -> Vec<PoolTrend> {
    let trend_of = |pool: &Pool| {
        let own = history.of(pool.id);
        let mut points = match pools {
            [_] => of_all(month),
            _ => Vec::new(),
        };
        let first = own.first().map_or(u64::MAX, |(at, _)| *at);
        points.retain(|(at, _)| *at < first);
        points.extend(own);
        points.retain(|(at, _)| *at <= now_unix_s);
        PoolTrend {
            pool: pool.name.clone(),
            trend: trend(&points, now_unix_s, pool.size_bytes.saturating_sub(pool.reserve_bytes)),
            at_unix_s: points.iter().map(|(at, _)| *at).collect(),
            allocated_bytes: points.iter().map(|(_, bytes)| *bytes).collect(),
        }
    };
    pools.iter().map(trend_of).collect()
}

/// Takes one point an hour of all pools' allocation.
fn of_all(month: &Columns) -> Vec<(u64, u64)> {
    let series = SERIES.iter().position(|name| *name == "allocated_bytes");
    let column = series.and_then(|series| month.values.get(series)).map(Vec::as_slice).unwrap_or_default();
    let known = month.at_unix_s.iter().zip(column).filter_map(|(at, value)| Some((*at, (*value)? as u64)));
    known.filter(|(at, _)| at % 3600 < month.step_s).collect()
}

/// `points`: times and bytes; `room_bytes`: bytes that may be allocated. `None`: the history is too short.
fn trend(points: &[(u64, u64)], now_unix_s: u64, room_bytes: u64) -> Option<Trend> {
    let from = now_unix_s.saturating_sub(HISTORY_MAX_S);
    let points: Vec<(f64, f64)> = points
        .iter()
        .filter(|(at, _)| *at >= from)
        .map(|(at, bytes)| ((*at as f64 - now_unix_s as f64) / DAY_S, *bytes as f64))
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

/// Slope of the line nearest to the points (least squares).
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
    use crate::next_failure::tests::snapshot;
    use std::path::Path;

    const NOW: u64 = 1_800_000_000;
    const GIB: f64 = 1_073_741_824.0;

    /// One point an hour, for some days, of the allocation then.
    fn days(days: u64, allocated: impl Fn(f64) -> f64) -> Vec<(u64, u64)> {
        let hours = (0..=days * 24).map(|hour| NOW - (days * 24 - hour) * 3600);
        hours.map(|at| (at, allocated((at as f64 - NOW as f64) / DAY_S) as u64)).collect()
    }

    #[test]
    fn a_pool_that_grows_by_a_gibibyte_a_day_is_full_when_its_room_is_used() {
        let found = trend(&days(5, |day| (100.0 + day) * GIB), NOW, 110 << 30).unwrap();
        assert!((found.bytes_per_day / GIB - 1.0).abs() < 0.01, "{found:?}");
        let days = (found.full_at_unix_s.unwrap() - NOW) as f64 / DAY_S;
        assert!((days - 10.0).abs() < 0.1, "{days}");
    }

    #[test]
    fn one_that_shrinks_or_stays_has_no_date() {
        for grown in [-1.0, 0.0] {
            let found = trend(&days(5, |day| (100.0 + grown * day) * GIB), NOW, 110 << 30).unwrap();
            assert_eq!(found.full_at_unix_s, None, "{found:?}");
        }
        let slow = trend(&days(5, |day| 100.0 * GIB + day * 1e5), NOW, 110 << 30).unwrap();
        assert_eq!(slow.full_at_unix_s, None, "years away");
    }

    #[test]
    fn less_than_a_day_tells_nothing() {
        assert_eq!(trend(&days(0, |_| GIB), NOW, 1 << 40), None);
        let recent: Vec<_> = days(20, |_| GIB).into_iter().filter(|(at, _)| *at > NOW - 43_200).collect();
        assert_eq!(trend(&recent, NOW, 1 << 40), None);
    }

    /// Figures that all pools had for five days, in the history of the server.
    fn month() -> Columns {
        let points = days(5, |day| (100.0 + day) * GIB);
        let mut values = vec![vec![None; points.len()]; SERIES.len()];
        let series = SERIES.iter().position(|name| *name == "allocated_bytes").unwrap();
        values[series] = points.iter().map(|(_, bytes)| Some(*bytes as f32)).collect();
        Columns {
            step_s: 300,
            series: &SERIES,
            at_unix_s: points.iter().map(|(at, _)| *at).collect(),
            values,
        }
    }

    #[test]
    fn each_pool_has_its_own_trend_and_the_only_one_that_of_all() {
        let nothing = PoolHistory::open(Path::new("/nowhere/pools.json"));
        let mut pools = snapshot().pools;
        let found = pool_trends(&pools, &nothing, &month(), NOW);
        assert_eq!((found.len(), found[0].at_unix_s.len()), (1, 121));
        assert!((found[0].trend.unwrap().bytes_per_day / GIB - 1.0).abs() < 0.01, "{found:?}");
        let second =
            Pool { id: types::PoolId::from_bytes([9; 16]), name: "second".into(), ..pools[0].clone() };
        pools.push(second);
        let found = pool_trends(&pools, &nothing, &month(), NOW);
        assert!(
            found.iter().all(|pool| pool.trend.is_none()),
            "whose bytes they were is not known: {found:?}"
        );
        nothing.note(NOW - 7200, [(pools[0].id, 5), (pools[1].id, 1)].into_iter());
        nothing.note(NOW, [(pools[0].id, 6)].into_iter());
        let found = pool_trends(&pools, &nothing, &month(), NOW);
        assert_eq!((&found[0].allocated_bytes[..], &found[1].allocated_bytes[..]), (&[5, 6][..], &[1][..]));
    }
}
