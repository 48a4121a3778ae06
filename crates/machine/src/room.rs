//! Free space on the file systems of the data directory and of etcd's data: checked once a second, and
//! reported before it runs out.
//!
//! Promises: a check delays nothing, however slow the file system is.

use rustix::fs::statvfs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::size::show_size;
use types::{Issue, Severity};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// etcd allocates 64 MB in advance for each file of its log, and ends if there is no space for it.
const ETCD_NEEDS_BYTES: u64 = 64 << 20;
/// The records of a single server, the history and the audit log take a few mebibytes; a small file
/// system keeps less free.
const NEEDS_BYTES: u64 = 16 << 20;
const SMALL_PART: u64 = 32;
/// Factor of the needed bytes below which a warning says that space runs short.
const SHORT: u64 = 4;

/// Where etcd's data are, below the data directory.
const ETCD: &str = "cluster/etcd";

/// Findings of the last check.
#[derive(Default)]
pub struct DataRoom(Mutex<Vec<Issue>>);

impl DataRoom {
    pub fn issues(&self) -> Vec<Issue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, places: &[Place], now_unix_s: u64) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = places.iter().filter_map(|place| {
            let target = place.room.path.display().to_string();
            place.issue(told.iter().find(|issue| issue.target == target), now_unix_s)
        });
        *told = found.collect();
    }
}

/// A file system.
#[derive(Debug, Clone)]
struct Room {
    /// A directory on it.
    path: PathBuf,
    size_bytes: u64,
    available_bytes: u64,
    /// Whether no file can be made, although there may be space.
    lacks_inodes: bool,
}

impl Room {
    /// Reads the state of the file system that a directory lies on; `None`: it cannot be read. Blocks as
    /// long as the file system does.
    fn look(path: &Path) -> Option<Self> {
        let found = statvfs(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            size_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            // Some file systems do not count them.
            lacks_inodes: found.f_files > 0 && found.f_favail == 0,
        })
    }
}

/// Whether two directories are on one file system; `None`: one of them is not there.
fn is_together(one: &Path, other: &Path) -> Option<bool> {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    Some(device(one)? == device(other)?)
}

/// A file system, and whether etcd's data are on it.
#[derive(Debug, Clone)]
struct Place {
    room: Room,
    has_etcd: bool,
}

impl Place {
    /// Bytes without which the server cannot keep its records.
    fn needed_bytes(&self) -> u64 {
        match self.has_etcd {
            true => ETCD_NEEDS_BYTES,
            false => NEEDS_BYTES.min(self.room.size_bytes / SMALL_PART),
        }
    }

    /// Judges the free space. An issue that was `told` stays until there is a quarter more than its limit.
    fn severity(&self, told: Option<Severity>) -> Option<Severity> {
        let is_below = |bytes: u64, level: Severity| {
            let limit = if told >= Some(level) { bytes + bytes / 4 } else { bytes };
            self.room.available_bytes < limit
        };
        let needed = self.needed_bytes();
        if self.room.lacks_inodes || is_below(needed, Severity::Unhealthy) {
            return Some(Severity::Unhealthy);
        }
        is_below(SHORT * needed, Severity::Warning).then_some(Severity::Warning)
    }

    fn issue(&self, told: Option<&Issue>, now_unix_s: u64) -> Option<Issue> {
        let severity = self.severity(told.map(|issue| issue.severity))?;
        let path = self.room.path.display();
        let left = match self.room.lacks_inodes {
            true => "has no inode left for another file".to_owned(),
            false => {
                format!(
                    "has {} left of {}",
                    show_size(self.room.available_bytes),
                    show_size(self.room.size_bytes)
                )
            }
        };
        let etcd = match self.has_etcd {
            true => " etcd stops on this server when the file system is full; then fewer servers may fail.",
            false => "",
        };
        Some(Issue {
            severity,
            code: "data_directory_full",
            target: path.to_string(),
            since_unix_s: told.map_or(Some(now_unix_s), |issue| issue.since_unix_s),
            what: format!("the file system that {path} lies on {left}"),
            meaning: format!(
                "Without room the server cannot record anything: taking a failed disk out of its volumes waits (and writes to them), changes of \
                 accounts, shares and pools are refused, lines of the audit log are lost.{etcd} Files are served as long as nothing has to be \
                 recorded."
            ),
            action: format!(
                "Make room there, or let the file system grow: `du -xhd1 {path}` shows how much of it is the server's own. Nothing has to be \
                 started anew afterwards."
            ),
        })
    }
}

/// The data directory, and etcd's if that has a file system of its own.
fn places(data: &Path) -> Vec<Place> {
    let etcd = data.join(ETCD);
    let is_apart = is_together(data, &etcd).map(|is_together| !is_together);
    let place = |path: &Path, has_etcd| Some(Place { room: Room::look(path)?, has_etcd });
    let own = place(data, is_apart == Some(false));
    let apart = (is_apart == Some(true)).then(|| place(&etcd, true)).flatten();
    own.into_iter().chain(apart).collect()
}

/// Checks until the task is dropped.
pub async fn watch(data: PathBuf, room: Arc<DataRoom>) {
    loop {
        let data = data.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || places(&data)).await else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        room.note(&found, now.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(has_etcd: bool, size_bytes: u64, available_bytes: u64) -> Place {
        let room = Room { path: "/data".into(), size_bytes, available_bytes, lacks_inodes: false };
        Place { room, has_etcd }
    }

    #[test]
    fn room_is_told_to_run_short_before_etcd_ends_and_a_small_file_system_is_not() {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        let judged = |has_etcd, size, available| place(has_etcd, size, available).severity(None);
        assert_eq!(judged(true, GIB, 300 * MIB), None);
        assert_eq!(judged(true, GIB, 200 * MIB), Some(Severity::Warning));
        assert_eq!(judged(true, GIB, 60 * MIB), Some(Severity::Unhealthy));
        assert_eq!(judged(false, GIB, 100 * MIB), None);
        assert_eq!(judged(false, GIB, 0), Some(Severity::Unhealthy));
        assert_eq!(judged(false, 6 * MIB, MIB), None);
        let mut no_inodes = place(false, GIB, GIB);
        no_inodes.room.lacks_inodes = true;
        assert_eq!(no_inodes.severity(None), Some(Severity::Unhealthy));
    }

    #[test]
    fn what_is_told_stays_until_there_is_clearly_more_room_and_keeps_its_beginning() {
        const MIB: u64 = 1 << 20;
        let room = DataRoom::default();
        let told = |available, now| {
            room.note(&[place(true, 1 << 30, available)], now);
            room.issues().first().and_then(|issue| Some((issue.severity, issue.since_unix_s?)))
        };
        assert_eq!(told(60 * MIB, 5), Some((Severity::Unhealthy, 5)));
        assert_eq!(told(70 * MIB, 6), Some((Severity::Unhealthy, 5)));
        assert_eq!(told(270 * MIB, 7), Some((Severity::Warning, 5)));
        assert_eq!(told(400 * MIB, 8), None);
        assert_eq!(told(270 * MIB, 9), None);
    }

    #[test]
    fn the_data_directory_that_is_there_is_looked_at() {
        let data = tempfile::tempdir().expect("a directory");
        let found = places(data.path());
        assert!(found.len() == 1 && found[0].room.size_bytes > 0 && !found[0].has_etcd, "{found:?}");
        std::fs::create_dir_all(data.path().join(ETCD)).expect("a directory");
        assert!(places(data.path())[0].has_etcd);
    }

    #[test]
    fn a_directory_has_room_and_is_together_with_those_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let room = Room::look(directory.path()).expect("room");
        assert!(room.size_bytes > 0 && room.available_bytes <= room.size_bytes, "{room:?}");
        let inner = directory.path().join("inner");
        assert_eq!(is_together(directory.path(), &inner), None);
        std::fs::create_dir(&inner).expect("a directory");
        assert_eq!(is_together(directory.path(), &inner), Some(true));
    }
}
