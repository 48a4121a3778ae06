//! Formatting of empty disks for a pool.
//!
//! Promises: all disks are found and locked before the first is changed. A whole device gets a
//! partition table, so that other tools see that it is in use; files and partitions stay as they
//! are. After a failure, no file and no table made here is left. Blocks, so it runs on a helper
//! thread.

use crate::error::{Done, Error, ErrorKind};
use ::pool::{PoolView, Route};
use disk::{Disk, FileDiskOptions, StandaloneDisk, partition};
use records::{DiskRecord, DiskState, FaultDomain, Resiliency};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{FormatError, FormatParameters, Layout};
use types::{DiskId, PoolId};
use uuid::Uuid;

/// A disk for a pool.
#[derive(Debug, Clone)]
pub struct NewDisk {
    /// The path of a file, a partition or a whole block device.
    pub path: PathBuf,
    /// The size of a sparse file to make if there is none at `path`; `None` if it must exist.
    pub create_size_bytes: Option<u64>,
    /// Enclosure, node and rack that fail together with the disk, recorded as tags of its label.
    pub fault_domain: FaultDomain,
}

/// Whether a pool of this many new disks of this size, with the usual reserve, has space for a volume.
pub fn has_room_for_volume(disks: u32, size_bytes: u64, resiliency: Resiliency) -> bool {
    let (slab_bytes, journal_bytes) = Layout::default_sizes(size_bytes);
    let layout = Layout::compute(size_bytes, slab_bytes, journal_bytes);
    let slabs = layout.map_or(0, |layout| u64::from(layout.slab_count));
    let domain = FaultDomain::default();
    let reserve_disks = ::pool::default_reserve_disks(&vec![domain.clone(); disks as usize]);
    let view = |number: u32| {
        ::pool::Disk::new(DiskId(Uuid::from_u128(number.into())), slabs, domain.clone(), Route::Local)
    };
    let pool = PoolView::new((0..disks).map(view).collect(), reserve_disks);
    pool.available_chunks(resiliency.copies()) >= u64::from(volume::fs::CHUNKS_MIN)
}

/// Files and tables to remove if a later step fails.
#[derive(Debug, Default)]
pub(crate) struct Made {
    files: Vec<PathBuf>,
    /// Devices with a new table.
    tables: Vec<PathBuf>,
}

impl Made {
    /// Removes the files and tables made here. Earlier ones stay. Blocks.
    pub fn take_back(self) {
        for path in self.files {
            let _ = std::fs::remove_file(path);
        }
        for path in self.tables {
            let _ = partition::remove(&path);
        }
    }
}

/// Formats disks for a pool. Returns their records, and the files and tables to remove if these are
/// not stored. `slab_bytes`: the pool's; if `None`, the smallest disk decides.
pub(crate) fn format_disks(
    pool: PoolId,
    disks: &[NewDisk],
    slab_bytes: Option<u64>,
    time_bound: Duration,
    unix_s: u64,
) -> Done<(Vec<DiskRecord>, Made)> {
    let mut made = Made::default();
    let result = open_all(disks, time_bound, &mut made).and_then(|opened| {
        let smallest = opened.iter().map(|disk| disk.info().size_bytes).min().unwrap_or(0);
        let slab_bytes = slab_bytes.unwrap_or_else(|| Layout::default_sizes(smallest).0);
        let mut records = Vec::with_capacity(disks.len());
        for (disk, new) in opened.into_iter().zip(disks) {
            let disk = give_table(disk, time_bound, &mut made)?;
            records.push(format_disk(pool, disk, new, slab_bytes, unix_s)?);
        }
        Ok(records)
    });
    match result {
        Ok(records) => Ok((records, made)),
        Err(why) => {
            made.take_back();
            Err(why)
        }
    }
}

fn open_all(disks: &[NewDisk], time_bound: Duration, made: &mut Made) -> Done<Vec<StandaloneDisk>> {
    let mut opened = Vec::with_capacity(disks.len());
    for new in disks {
        let shown = new.path.display();
        if let Some(size_bytes) = new.create_size_bytes
            && !new.path.exists()
        {
            disk::create_file_disk(&new.path, size_bytes)
                .map_err(|why| Error::io(format!("{shown} cannot be made: {why}")))?;
            made.files.push(new.path.clone());
        }
        let disk = open(&new.path, time_bound)?;
        opened.push(match partition::is_whole_device(&new.path) && !disk.is_partition() {
            true => store::refuse_used_disk(disk).map_err(|why| not_formatted(&new.path, &why))?,
            false => disk,
        });
    }
    Ok(opened)
}

/// Opens a disk exclusively.
pub(crate) fn open(path: &Path, time_bound: Duration) -> Done<StandaloneDisk> {
    let text = path
        .to_str()
        .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("the path {} is not UTF-8", path.display())))?;
    let options = FileDiskOptions { time_bound, ..FileDiskOptions::default() };
    StandaloneDisk::open(text, options).map_err(|why| {
        let kind = match why {
            disk::OpenError::InUse { .. } => ErrorKind::Conflict,
            disk::OpenError::NotADisk { .. } | disk::OpenError::BlockSize { .. } => ErrorKind::Invalid,
            disk::OpenError::Io { .. } => ErrorKind::Io,
        };
        Error::new(kind, why.to_string())
    })
}

/// Gives an empty whole device, or one with our table, a new table; the disk is its partition from
/// then on. Others stay as they are.
fn give_table(disk: StandaloneDisk, time_bound: Duration, made: &mut Made) -> Done<StandaloneDisk> {
    let path = PathBuf::from(&disk.info().path);
    if !partition::is_whole_device(&path) {
        return Ok(disk);
    }
    let is_new = !disk.is_partition();
    // The kernel reads the new table once no process has the device open.
    drop(disk);
    let partitioned = partition::create(&path)
        .map_err(|why| Error::io(format!("{} cannot be partitioned: {why}", path.display())))?;
    if is_new {
        made.tables.push(path);
    }
    open(&partitioned, time_bound)
}

fn format_disk(
    pool: PoolId,
    disk: StandaloneDisk,
    new: &NewDisk,
    slab_bytes: u64,
    unix_s: u64,
) -> Done<DiskRecord> {
    let id = DiskId(Uuid::new_v4());
    let size_bytes = disk.info().size_bytes;
    let path = disk.info().path.clone();
    let mut parameters = FormatParameters::new(id, pool);
    parameters.slab_bytes = Some(slab_bytes);
    parameters.tags = tags(&new.fault_domain);
    store::format(disk, parameters).map_err(|why| not_formatted(Path::new(&path), &why))?;
    Ok(DiskRecord {
        id,
        pool,
        node: None,
        path,
        size_bytes,
        slab_bytes,
        fault_domain: new.fault_domain.clone(),
        state: DiskState::Healthy,
        since_unix_s: unix_s,
        scrubbed_unix_s: unix_s,
    })
}

fn not_formatted(path: &Path, why: &FormatError) -> Error {
    let kind = match why {
        FormatError::InUse { .. } | FormatError::Foreign(_) => ErrorKind::Conflict,
        FormatError::TooSmall { .. } | FormatError::Tags => ErrorKind::Invalid,
        FormatError::Disk(_) => ErrorKind::Io,
    };
    Error::new(kind, format!("{} was not formatted: {why}", path.display()))
}

fn tags(domain: &FaultDomain) -> Vec<(String, String)> {
    [("rack", &domain.rack), ("node", &domain.node), ("enclosure", &domain.enclosure)]
        .into_iter()
        .filter(|(_, name)| !name.is_empty())
        .map(|(level, name)| (level.to_owned(), name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_that_fails_leaves_no_file_and_removes_none_that_was_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let new = |name: &str, size_bytes| NewDisk {
            path: directory.path().join(name),
            create_size_bytes: size_bytes,
            fault_domain: FaultDomain::default(),
        };
        let format = |disks: &[NewDisk]| {
            format_disks(PoolId(Uuid::from_u128(1)), disks, None, Duration::from_secs(20), 0)
        };
        let names = || {
            let entries = std::fs::read_dir(directory.path()).expect("the directory");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        disk::create_file_disk(&directory.path().join("given"), 1 << 30).expect("a file");
        // The second one cannot be made: it is too small.
        format(&[new("made", Some(1 << 30)), new("small", Some(4096))]).expect_err("one is too small");
        assert_eq!(names(), ["given"]);
        // The records of these cannot be stored.
        let (records, made) =
            format(&[new("made", Some(1 << 30)), new("given", Some(1 << 30))]).expect("disks");
        assert_eq!((records.len(), names().len()), (2, 2));
        made.take_back();
        assert_eq!(names(), ["given"]);
    }

    #[test]
    fn small_disks_have_no_room_for_a_volume_and_larger_ones_do() {
        let has_room = |disks, mib: u64, resiliency| has_room_for_volume(disks, mib << 20, resiliency);
        assert!(!has_room(3, 100, Resiliency::TwoWay) && !has_room(3, 1, Resiliency::TwoWay));
        assert!(has_room(3, 400, Resiliency::TwoWay) && has_room(1, 400, Resiliency::Simple));
        assert!(!has_room(1, 150, Resiliency::Simple));
    }
}
