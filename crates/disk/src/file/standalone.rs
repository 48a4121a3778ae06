//! A file or device as a disk with a loop of its own, for programs and threads that do one thing at a time: format, inspect.

use super::{FileDisk, FileDiskOptions, OpenError};
use crate::{Disk, DiskCompletion, DiskInfo, DiskOperation};
use std::time::Duration;
use sys::driver::{Driver, DriverChoice};

/// While operations are in flight, a poll sleeps until one is answered; so a caller may poll in a loop.
pub struct StandaloneDisk {
    disk: FileDisk,
    driver: Driver,
    in_flight: usize,
}

impl StandaloneDisk {
    /// Opens and locks the disk.
    ///
    /// # Errors
    /// [`OpenError`] says why it cannot be opened.
    pub fn open(path: &str, options: FileDiskOptions) -> Result<Self, OpenError> {
        let driver = Driver::new(DriverChoice::Automatic)
            .map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        Ok(Self { disk: FileDisk::open(&driver, path, options)?, driver, in_flight: 0 })
    }

    /// Whether this is the partition of a whole device that has a table of ours ([`crate::partition`]).
    pub fn is_partition(&self) -> bool {
        self.disk.base_bytes > 0
    }
}

impl Disk for StandaloneDisk {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        self.in_flight += 1;
        self.disk.submit(token, operation);
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let before = out.len();
        self.disk.poll(out);
        while self.in_flight > 0 && out.len() == before {
            // A failure of the loop shows as an operation that is not answered in time.
            if self.driver.wait(Some(Duration::from_secs(1))).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            self.disk.poll(out);
        }
        self.in_flight -= out.len() - before;
    }
}
