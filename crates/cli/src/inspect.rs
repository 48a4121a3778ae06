//! `cenote disk inspect`: reads a disk directly, without a server, and changes nothing.

use crate::output::json;
use crate::printable::println;
use api::printed::DiskInspection;
use api_client::Failure;
use disk::partition::TableState;
use disk::{FileDiskOptions, StandaloneDisk};
use std::path::Path;

/// # Errors
/// If the disk cannot be read, or something on it is damaged.
pub fn disk(path: &Path, as_json: bool) -> Result<(), Failure> {
    let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    let disk = StandaloneDisk::open(&path.to_string_lossy(), options)
        .map_err(|error| Failure::new(error.to_string()))?;
    let found = store::inspect(disk)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
    let table = disk::partition::look_after_table(path, false);
    let mut problems = found.problems.clone();
    let mut report = found.to_string();
    if let TableState::Damaged(copy, why) = &table {
        let damage = format!("{copy} is damaged; the other one is intact: {why}");
        report = format!("{report}\n{damage}");
        problems.push(damage);
    }
    let count = found.problems.len() + usize::from(table != TableState::Whole);
    if as_json {
        let path = path.display().to_string();
        json(&DiskInspection { path, size_bytes: found.size_bytes, problems, report })?;
    } else {
        println!("{report}");
    }
    match count {
        0 => Ok(()),
        count => Err(Failure::new(format!("{}: {count} problems", path.display()))),
    }
}
