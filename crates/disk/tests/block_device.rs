//! Whole block devices as disks: loop devices, if this user may make them.

use disk::conformance::{self, Fixture};
use disk::{Disk, FileDisk, FileDiskOptions, OpenError, OpenedFile, create_file_disk};
use std::process::Command;
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};

/// A loop device over a file of its own; detached in the end.
struct LoopDevice {
    path: String,
    _directory: tempfile::TempDir,
}

impl LoopDevice {
    /// `None` if loop devices cannot be made here.
    fn new(sector_bytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("backing");
        create_file_disk(&file, 32 << 20).expect("a file");
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size", &sector_bytes.to_string()])
            .arg(&file)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                Some(Self { path, _directory: directory })
            }
            other => {
                eprintln!("skipped: no loop devices here: {other:?}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

struct DeviceFixture {
    driver: Driver,
    disk: Option<FileDisk>,
    device: LoopDevice,
}

impl DeviceFixture {
    fn new(choice: DriverChoice, device: LoopDevice) -> Self {
        let driver = Driver::new(choice).expect("a loop");
        let disk = FileDisk::open(&driver, &device.path, FileDiskOptions::default()).expect("a disk");
        Self { driver, disk: Some(disk), device }
    }
}

impl Fixture for DeviceFixture {
    fn disk(&mut self) -> &mut dyn Disk {
        self.disk.as_mut().expect("an open disk")
    }
    fn wait(&mut self) {
        self.driver.wait(Some(Duration::from_millis(100))).expect("the loop");
    }
    fn reopen(&mut self) {
        self.disk = None;
        // The kernel lets go of a closed device when the last operation on it has let go, a moment after the
        // close. It may need the ring for that: an operation that a worker of the kernel ended is freed on
        // the next entry only.
        let until = Instant::now() + Duration::from_secs(10);
        self.disk = loop {
            match FileDisk::open(&self.driver, &self.device.path, FileDiskOptions::default()) {
                Err(OpenError::InUse { .. }) if Instant::now() < until => {
                    self.driver.wait(Some(Duration::from_millis(10))).expect("the loop");
                }
                opened => break Some(opened.expect("a disk")),
            }
        };
    }
}

#[test]
fn devices_of_both_block_sizes_conform_on_both_backends() {
    for (sector_bytes, choice) in [
        (512, DriverChoice::Automatic),
        (4096, DriverChoice::Automatic),
        (512, DriverChoice::Fallback),
        (4096, DriverChoice::Fallback),
    ] {
        let Some(device) = LoopDevice::new(sector_bytes) else { return };
        let mut fixture = DeviceFixture::new(choice, device);
        let info = fixture.disk().info().clone();
        assert_eq!((info.size_bytes, info.block_bytes, info.direct), (32 << 20, sector_bytes, true));
        conformance::run(&mut fixture);
    }
}

#[test]
fn a_device_in_use_is_refused_to_a_second_user() {
    let Some(device) = LoopDevice::new(512) else { return };
    let fixture = DeviceFixture::new(DriverChoice::Automatic, device);
    let second = OpenedFile::open(&fixture.device.path, FileDiskOptions::default());
    assert!(matches!(second, Err(OpenError::InUse { .. })));
}
