//! Allocation of each pool to volumes, hour by hour, for its trend and its chart.
//!
//! Promises: bounded by [`HOURS_MAX`] and [`POOLS_MAX`]; the file of the data directory is written
//! whole, once an hour, and a missing or damaged one is an empty history. Figures that were unknown in
//! an hour are absent from it.

use crate::stored::read_or_default;
use records::replacing::replace_private;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use types::PoolId;

const HOUR_S: u64 = 3600;
/// Thirty days, as of the rest of the history.
const HOURS_MAX: usize = 30 * 24;
/// Number of pools kept; further ones are left out.
const POOLS_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Bytes allocated at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Hour {
    at_unix_s: u64,
    allocated_bytes: BTreeMap<PoolId, u64>,
}

/// The history of all pools.
pub struct PoolHistory {
    path: PathBuf,
    hours: Mutex<VecDeque<Hour>>,
}

impl PoolHistory {
    pub fn open(path: &Path) -> Self {
        let mut hours: VecDeque<Hour> = read_or_default(path, FILE_BYTES_MAX);
        // A clock that was set back leaves points of the future, and somebody may have changed the file.
        hours.make_contiguous().sort_by_key(|hour| hour.at_unix_s);
        hours.drain(..hours.len().saturating_sub(HOURS_MAX));
        Self { path: path.to_owned(), hours: Mutex::new(hours) }
    }

    fn hours(&self) -> MutexGuard<'_, VecDeque<Hour>> {
        self.hours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this hour has no point yet.
    pub fn is_due(&self, now_unix_s: u64) -> bool {
        self.hours().back().is_none_or(|last| last.at_unix_s / HOUR_S != now_unix_s / HOUR_S)
    }

    /// Notes the current allocation; in memory only, if the file cannot be written.
    pub fn note(&self, now_unix_s: u64, allocated_bytes: impl Iterator<Item = (PoolId, u64)>) {
        let allocated_bytes: BTreeMap<PoolId, u64> = allocated_bytes.take(POOLS_MAX).collect();
        if allocated_bytes.is_empty() || !self.is_due(now_unix_s) {
            return;
        }
        let mut hours = self.hours();
        hours.retain(|hour| hour.at_unix_s < now_unix_s);
        hours.push_back(Hour { at_unix_s: now_unix_s, allocated_bytes });
        let beyond = hours.len().saturating_sub(HOURS_MAX);
        hours.drain(..beyond);
        if let Err(error) = self.write(&hours) {
            tracing::warn!(path = %self.path.display(), %error, "the history of pools is not written");
        }
    }

    fn write(&self, hours: &VecDeque<Hour>) -> io::Result<()> {
        replace_private(&self.path, &serde_json::to_vec(hours)?)
    }

    /// Times, and the pool's allocation then.
    pub fn of(&self, pool: PoolId) -> Vec<(u64, u64)> {
        let hours = self.hours();
        let known = hours.iter().filter_map(|hour| Some((hour.at_unix_s, *hour.allocated_bytes.get(&pool)?)));
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NOW: u64 = 1_800_000_000;

    fn pool(number: u8) -> PoolId {
        PoolId::from_bytes([number; 16])
    }

    #[test]
    fn a_pool_has_a_point_an_hour_which_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pools.json");
        let history = PoolHistory::open(&path);
        assert!(history.is_due(NOW));
        history.note(NOW, [(pool(1), 7), (pool(2), 9)].into_iter());
        assert!(!history.is_due(NOW + 60) && history.is_due(NOW + HOUR_S));
        history.note(NOW + 60, [(pool(1), 8)].into_iter());
        history.note(NOW + HOUR_S, [(pool(2), 11)].into_iter());
        let history = PoolHistory::open(&path);
        assert_eq!(history.of(pool(1)), [(NOW, 7)]);
        assert_eq!(history.of(pool(2)), [(NOW, 9), (NOW + HOUR_S, 11)]);
        assert_eq!(history.of(pool(3)), []);
    }

    #[test]
    fn a_month_is_kept_and_what_is_damaged_is_no_history() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pools.json");
        let history = PoolHistory::open(&path);
        *history.hours() = (0..HOURS_MAX as u64 + 5)
            .map(|at| Hour { at_unix_s: NOW + at * HOUR_S, allocated_bytes: [(pool(1), at)].into() })
            .collect();
        history.note(NOW + 10_000 * HOUR_S, [(pool(1), 1)].into_iter());
        assert_eq!((history.of(pool(1)).len(), history.of(pool(1))[0].1), (HOURS_MAX, 6));
        fs::write(&path, "[{\"at_unix_s\":").unwrap();
        assert!(PoolHistory::open(&path).is_due(NOW));
    }
}
