//! `cenote disk inspect`: reads a disk by itself, without a server, and changes nothing.

use crate::cli::client::Failure;
use anstream::println;
use disk::partition::TableState;
use disk::{FileDiskOptions, StandaloneDisk};
use std::path::Path;

/// # Errors
/// If the disk cannot be read, or something on it is damaged.
pub fn disk(path: &Path) -> Result<(), Failure> {
    let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    let disk = StandaloneDisk::open(&path.to_string_lossy(), options)
        .map_err(|error| Failure::new(error.to_string()))?;
    let found = store::inspect(disk)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
    println!("{found}");
    let table = disk::partition::look_after_table(path, false);
    if let TableState::Damaged(copy, why) = &table {
        println!("{copy} is damaged; the other one is intact: {why}");
    }
    match found.problems.len() + usize::from(table != TableState::Whole) {
        0 => Ok(()),
        count => Err(Failure::new(format!("{}: {count} problems", path.display()))),
    }
}
