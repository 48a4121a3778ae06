//! Issues that administrators do not want to be reminded of for a while. They stay issues: only the dashboard's pages put them aside.
//!
//! Promises: at most [`MUTES_MAX`]; each ends by itself. A file of the data directory keeps them, which
//! is written whole.

use crate::stored::read_or_default;
use api::model::{HealthIssue, HealthReport};
use api::{ApiError, ErrorKind};
use records::replacing::replace_private;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const MUTES_MAX: usize = 500;
/// Nothing is muted for longer.
const LASTS_MAX_S: u64 = 31 * 86_400;
const FILE_BYTES_MAX: u64 = 1 << 20;
const WORD_BYTES_MAX: usize = 512;

/// An issue that is muted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mute {
    pub code: String,
    pub target: String,
    /// One of the past: it is muted no more.
    pub until_unix_s: u64,
}

/// An issue as pages show it.
#[derive(Debug, Serialize)]
pub struct IssueLine<'a> {
    #[serde(flatten)]
    issue: &'a HealthIssue,
    is_muted: bool,
}

/// Health as pages show it.
#[derive(Debug, Serialize)]
pub struct HealthLines<'a> {
    health: api::model::Health,
    issues: Vec<IssueLine<'a>>,
}

pub struct Mutes {
    path: PathBuf,
    all: Mutex<Vec<Mute>>,
}

impl Mutes {
    /// A file that is missing or damaged mutes nothing.
    pub fn open(path: &Path) -> Self {
        let mut all: Vec<Mute> = read_or_default(path, FILE_BYTES_MAX);
        all.truncate(MUTES_MAX);
        Self { path: path.to_owned(), all: Mutex::new(all) }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Mute>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, mute: Mute, now_unix_s: u64) -> Result<(), ApiError> {
        if mute.code.len().max(mute.target.len()) > WORD_BYTES_MAX {
            return Err(ApiError::new(ErrorKind::Invalid, "that is the name of no issue"));
        }
        let until_unix_s = mute.until_unix_s.min(now_unix_s + LASTS_MAX_S);
        let mut all = self.all();
        all.retain(|one| {
            one.until_unix_s > now_unix_s && (one.code != mute.code || one.target != mute.target)
        });
        if until_unix_s > now_unix_s {
            if all.len() >= MUTES_MAX {
                return Err(ApiError::new(
                    ErrorKind::Conflict,
                    format!("{MUTES_MAX} issues are muted, as many as may be"),
                ));
            }
            all.push(Mute { until_unix_s, ..mute });
        }
        self.write(&all).map_err(|error| {
            let message =
                format!("{} cannot be written, so that a restart unmutes: {error}", self.path.display());
            ApiError::new(ErrorKind::Unavailable, message)
        })
    }

    fn write(&self, all: &[Mute]) -> io::Result<()> {
        replace_private(&self.path, &serde_json::to_vec(all)?)
    }

    pub fn lines<'a>(&self, report: &'a HealthReport, now_unix_s: u64) -> HealthLines<'a> {
        let all = self.all();
        let is_muted = |issue: &HealthIssue| {
            all.iter().any(|one| {
                one.until_unix_s > now_unix_s && one.code == issue.code && one.target == issue.target
            })
        };
        let line = |issue| IssueLine { is_muted: is_muted(issue), issue };
        HealthLines { health: report.health, issues: report.issues.iter().map(line).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::Health;
    use std::fs;

    const NOW: u64 = 1_800_000_000;

    fn mute(target: &str, until_unix_s: u64) -> Mute {
        Mute { code: "disk_slow".into(), target: target.into(), until_unix_s }
    }

    fn muted(mutes: &Mutes, now_unix_s: u64) -> Vec<bool> {
        let issue = |target: &str| HealthIssue {
            health: Health::Warning,
            code: "disk_slow".into(),
            target: target.into(),
            server: None,
            since_unix_s: NOW,
            what: String::new(),
            meaning: String::new(),
            action: String::new(),
        };
        let issues = vec![issue("disk 1"), issue("disk 2")];
        let report = HealthReport { health: Health::Warning, issues, unanswered: Vec::new() };
        mutes.lines(&report, now_unix_s).issues.iter().map(|line| line.is_muted).collect()
    }

    #[test]
    fn a_muted_issue_stays_muted_over_a_restart_until_its_time_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mutes.json");
        Mutes::open(&path).set(mute("disk 2", NOW + 60), NOW).unwrap();
        let mutes = Mutes::open(&path);
        assert_eq!(muted(&mutes, NOW + 59), [false, true]);
        assert_eq!(muted(&mutes, NOW + 60), [false, false]);
        mutes.set(mute("disk 2", 0), NOW).unwrap();
        assert_eq!(muted(&mutes, NOW + 1), [false, false]);
    }

    #[test]
    fn mutes_are_bounded_in_number_and_time_and_those_of_the_past_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let mutes = Mutes::open(&directory.path().join("mutes.json"));
        for number in 0..MUTES_MAX {
            mutes.set(mute(&number.to_string(), u64::MAX), NOW).unwrap();
        }
        assert!(mutes.set(mute("one more", NOW + 9), NOW).is_err());
        assert!(mutes.set(mute(&"x".repeat(600), NOW + 9), NOW).is_err());
        assert!(mutes.set(mute("one more", NOW + LASTS_MAX_S + 9), NOW + LASTS_MAX_S).is_ok());
    }

    #[test]
    fn a_damaged_file_mutes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mutes.json");
        fs::write(&path, "[{").unwrap();
        assert_eq!(muted(&Mutes::open(&path), NOW), [false, false]);
    }
}
