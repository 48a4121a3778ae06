//! Finds labelled disks among paths.
//!
//! Promises: reads only. A path that cannot be read is skipped, and reported if it was named. Runs
//! on helper threads, since devices may be slow. Never opens a disk for writing, except to check
//! that no other process has it.

use disk::{FileDiskOptions, StandaloneDisk, partition};
use records::image::PoolImage;
use records::import::{FoundDisk, latest_of};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::DiskId;

/// Smaller files are no disks.
const DISK_BYTES_MIN: u64 = 2 << 20;
/// Entries of one directory that are checked.
const ENTRIES_MAX: usize = 4096;
/// Timeout of a device, after which it is skipped.
const TIME_BOUND: Duration = Duration::from_secs(5);

/// Finds a disk among `search`, and beside `recorded` if that is a file: of several copies, the one
/// written last. `opened` is one of them, already examined further.
///
/// # Errors
/// A description of their places, dates and versions, if the copies do not show which was written
/// last.
pub fn find(
    id: DiskId,
    recorded: &Path,
    search: &[PathBuf],
    opened: Option<FoundDisk>,
) -> Result<Option<String>, String> {
    let beside = recorded.parent().filter(|parent| !parent.starts_with("/dev")).map(Path::to_path_buf);
    let places: Vec<PathBuf> = beside.into_iter().chain(search.iter().cloned()).collect();
    let known = opened.as_ref().and_then(|disk| Path::new(&disk.path).canonicalize().ok());
    let is_it = |path: &PathBuf| {
        (known.is_none() || path.canonicalize().ok() != known)
            && identity(path).is_some_and(|(disk, _)| disk == id)
    };
    let mut found: Vec<PathBuf> = candidates(&places).into_iter().filter(is_it).collect();
    if found.len() + usize::from(opened.is_some()) < 2 {
        let path = found.pop().and_then(|path| path.to_str().map(str::to_owned));
        return Ok(path.or(opened.map(|disk| disk.path)));
    }
    let looked = found.iter().filter_map(|path| look(path));
    let copies: Vec<FoundDisk> = opened.into_iter().chain(looked).collect();
    match latest_of(&copies) {
        Ok(latest) => Ok(latest.map(|copy| copy.path.clone())),
        Err(copies) => Err(format!(
            "there are several copies of it, and nothing tells which has what was written last: {copies}; detach those that are not to count"
        )),
    }
}

fn identity(path: &Path) -> Option<(DiskId, types::PoolId)> {
    let options = FileDiskOptions { read_only: true, time_bound: TIME_BOUND, ..FileDiskOptions::default() };
    let disk = StandaloneDisk::open(path.to_str()?, options).ok()?;
    store::identify(disk).ok().map(|label| (label.disk, label.pool))
}

/// Returns files and block devices at these paths, and in those of them that are directories, each
/// once. A device with partitions among them is left out: a disk of ours on it is one of these.
fn candidates(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for place in places {
        let within = std::fs::read_dir(place)
            .map(|entries| entries.take(ENTRIES_MAX).flatten().map(|entry| entry.path()).collect())
            .unwrap_or_else(|_| vec![place.clone()]);
        for path in within {
            // Links such as those of /dev/disk/by-id lead to one device.
            if let Ok(real) = path.canonicalize()
                && let Ok(about) = real.metadata()
                && (about.file_type().is_block_device() || (about.is_file() && about.len() >= DISK_BYTES_MIN))
            {
                found.entry(real).or_insert(path);
            }
        }
    }
    let devices: BTreeSet<PathBuf> =
        found.keys().filter_map(|real| partition::whole_device_of(real)).collect();
    found.into_iter().filter(|(real, _)| !devices.contains(real)).map(|(_, path)| path).collect()
}

/// The disks found. Each path has one, so a disk and its copies are all listed.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Disks with a label that this program can read.
    pub disks: Vec<FoundDisk>,
    /// Paths that were named or carry a label, with the reasons why they are no disks of ours.
    pub skipped: Vec<String>,
}

impl Discovery {
    /// Describes the skipped paths, for the end of another message.
    pub fn why_skipped(&self) -> String {
        self.skipped.iter().map(|why| format!("; skipped {why}")).collect()
    }
}

/// Examines the named disks, and all labelled ones in the places to search. `admit` returns the
/// path by which to use a disk that the search finds, or the reason why it may not be used. Named
/// ones must have been admitted.
pub fn discover(
    named: &[PathBuf],
    search: &[PathBuf],
    admit: impl Fn(&Path) -> Result<PathBuf, String>,
) -> Discovery {
    let mut found = Discovery::default();
    let searched = candidates(search).into_iter().filter(|path| identity(path).is_some());
    let admitted = searched.map(|path| admit(&path));
    let mut seen = Vec::new();
    for path in named.iter().cloned().map(Ok).chain(admitted) {
        let path = match path {
            Ok(path) => path,
            Err(why) => {
                found.skipped.push(why);
                continue;
            }
        };
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&real) {
            continue;
        }
        seen.push(real);
        match examine(&path) {
            Ok(disk) => found.disks.push(disk),
            Err(why) => found.skipped.push(why),
        }
    }
    found
}

/// Examines one disk; `None`: it is none of ours, or another process has it.
pub(crate) fn look(path: &Path) -> Option<FoundDisk> {
    identity(path)?;
    examine(path).ok()
}

fn examine(path: &Path) -> Result<FoundDisk, String> {
    let shown = path.to_str().ok_or_else(|| format!("the path {} is not UTF-8", path.display()))?;
    // Locked meanwhile, so that a disk in use by another process is not taken.
    let options = FileDiskOptions { time_bound: TIME_BOUND, ..FileDiskOptions::default() };
    let disk = StandaloneDisk::open(shown, options).map_err(|error| error.to_string())?;
    let found = store::inspect(disk).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let Some(label) = found.label else {
        return Err(format!("{shown}: {}", found.problems.first().map_or("no label", String::as_str)));
    };
    let image = PoolImage::parse(&found.records).map_err(|error| error.to_string());
    let promised = found.volumes.iter().map(|(id, held)| (*id, held.promised)).collect();
    Ok(FoundDisk { path: shown.to_owned(), disk: label.disk, pool: label.pool, image, promised })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formatting::{NewDisk, format_disks};
    use records::FaultDomain;
    use types::PoolId;

    #[test]
    fn a_search_takes_disks_only_where_they_may_be() {
        let directory = tempfile::tempdir().expect("a directory");
        let disks = ["here", "there"].map(|name| NewDisk {
            path: directory.path().join(name),
            create_size_bytes: Some(1 << 30),
            fault_domain: FaultDomain::default(),
        });
        format_disks(PoolId::from_bytes([1; 16]), &disks, None, TIME_BOUND, 0).expect("disks");
        let search = [directory.path().to_owned()];
        let admit = |path: &Path| match path.ends_with("here") {
            true => Ok(path.to_owned()),
            false => Err("strangers can change it".to_owned()),
        };
        let found = discover(&[], &search, admit);
        let paths: Vec<_> = found.disks.iter().map(|disk| &disk.path).collect();
        assert_eq!(paths, [&directory.path().join("here").display().to_string()]);
        assert_eq!(found.skipped, ["strangers can change it"]);
    }
}
