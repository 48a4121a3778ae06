//! `cenote disk inspect`: reads a disk by itself, without a server, and changes nothing.

use crate::cli::client::Failure;
use anstream::println;
use disk::{FileDiskOptions, StandaloneDisk};
use std::path::Path;

/// # Errors
/// Where the disk cannot be read, or something on it is damaged.
pub fn disk(path: &Path) -> Result<(), Failure> {
    let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    let disk = StandaloneDisk::open(&path.to_string_lossy(), options)
        .map_err(|error| Failure::new(error.to_string()))?;
    let found = store::inspect(disk)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
    println!("{found}");
    match found.problems.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{}: {count} problems", path.display()))),
    }
}
