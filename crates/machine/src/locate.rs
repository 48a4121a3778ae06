//! Finds a disk in the machine: serial, slot, and the slot's LED if the kernel knows its enclosure.
//!
//! Promises: reads sysfs, and writes only the `locate` attribute of an enclosure's slot, or has root's helper write it. Never opens the
//! disk.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BLOCK: &str = "/sys/class/block";
const BY_ID: &str = "/dev/disk/by-id";
/// Where root's helper listens (`packaging/cenote-locate.socket`): the attribute belongs to root, and the service sees sysfs read-only.
const HELPER: &str = "/run/cenote-locate.socket";
/// An enclosure answers within a second or two.
const HELPER_PATIENCE: Duration = Duration::from_secs(5);
/// The helper's longest answer is a line.
const HELPER_ANSWER_BYTES_MAX: u64 = 512;

/// How to find the device of a disk in its enclosure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedDevice {
    /// The device behind the disk's path, if it is one.
    pub device: Option<String>,
    /// Serial number of the device, if it reports one.
    pub serial: Option<String>,
    /// Enclosure and slot, as the kernel names them.
    pub slot: Option<String>,
    /// Whether its LED was switched.
    pub led: bool,
    /// Why not, if it was not.
    pub message: String,
}

/// Switches the LED if there is one, and returns the known facts of the disk.
pub fn locate(path: &str, on: bool) -> LocatedDevice {
    locate_in(Path::new(BLOCK), Path::new(HELPER), path, on)
}

fn locate_in(block: &Path, helper: &Path, path: &str, on: bool) -> LocatedDevice {
    let mut found =
        LocatedDevice { device: None, serial: None, slot: None, led: false, message: String::new() };
    let real = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A partition's slot is its disk's.
    let Some((device, whole)) = whole_device(block, &name) else {
        found.message = "it is a file, or not there: it has no slot".to_owned();
        return found;
    };
    found.serial = serial(&device, &whole);
    found.device = Some(format!("/dev/{whole}"));
    let Some(slot) = enclosure_slot(&device) else {
        found.message = "the kernel knows no enclosure of this disk: go by its serial number".to_owned();
        return found;
    };
    found.slot = slot.file_name().map(|name| name.to_string_lossy().into_owned());
    let attribute = slot.join("locate");
    let switched = std::fs::write(&attribute, u8::from(on).to_string())
        .or_else(|refused| ask_helper(helper, &whole, on).map_err(|no_help| (refused, no_help)));
    match switched {
        Ok(()) => found.led = true,
        Err((refused, no_help)) => {
            found.message = format!(
                "the server may not switch the LED of its slot ({refused}), nor is it done by {} ({no_help}); as root: echo {} > '{}'",
                helper.display(),
                u8::from(on),
                attribute.display()
            );
        }
    }
    found
}

/// Has root's helper switch the LED of a disk, by the kernel's name of the disk.
fn ask_helper(helper: &Path, disk: &str, on: bool) -> io::Result<()> {
    let mut stream = UnixStream::connect(helper)?;
    stream.set_read_timeout(Some(HELPER_PATIENCE))?;
    stream.set_write_timeout(Some(HELPER_PATIENCE))?;
    writeln!(stream, "{disk} {}", u8::from(on))?;
    let mut answer = String::new();
    stream.take(HELPER_ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.trim() {
        "ok" => Ok(()),
        refusal => Err(io::Error::other(refusal.to_owned())),
    }
}

/// The serial number of the device at a path, or of the device that it is a partition of. `None`: it is a file, or has none.
pub fn serial_of(path: &str) -> Option<String> {
    let real = Path::new(path).canonicalize().ok()?;
    let (device, name) = whole_device(Path::new(BLOCK), &real.file_name()?.to_string_lossy())?;
    serial(&device, &name)
}

/// The directory of a block device, and its name; of a partition, those of its disk.
fn whole_device(block: &Path, name: &str) -> Option<(PathBuf, String)> {
    let mut device = block.join(name).canonicalize().ok()?;
    if device.join("partition").exists()
        && let Some(whole) = device.parent()
    {
        device = whole.to_path_buf();
    }
    let whole = device.file_name()?.to_string_lossy().into_owned();
    Some((device, whole))
}

fn serial(device: &Path, name: &str) -> Option<String> {
    let attributes = ["device/serial", "serial", "device/wwid", "wwid"];
    let attribute = attributes.iter().find_map(|at| {
        let text = std::fs::read_to_string(device.join(at)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    });
    attribute.or_else(|| {
        let entries = std::fs::read_dir(BY_ID).ok()?;
        let link = entries.flatten().find(|entry| {
            entry.path().canonicalize().is_ok_and(|real| real.file_name().is_some_and(|found| found == name))
        });
        link.map(|entry| entry.file_name().to_string_lossy().into_owned())
    })
}

/// The directory of the disk's slot: `device/enclosure_device:NAME`.
fn enclosure_slot(device: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(device.join("device")).ok()?;
    let slot = entries
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("enclosure_device:"))?;
    slot.path().canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    /// Makes a disk `sdq` with a partition in a slot of an enclosure; returns the slot and the partition's
    /// node.
    fn disk_in_a_slot(root: &Path) -> (PathBuf, String) {
        let slot = root.join("enclosure/Slot 07");
        let disk = root.join("devices/sdq");
        for made in [&slot, &disk.join("device"), &disk.join("sdq1"), &root.join("block"), &root.join("dev")]
        {
            std::fs::create_dir_all(made).expect("a directory");
        }
        std::fs::write(disk.join("device/serial"), "Z1X2\n").expect("a serial");
        std::fs::write(disk.join("sdq1/partition"), "1").expect("a partition");
        std::fs::write(root.join("dev/sdq1"), "").expect("a node");
        symlink(&slot, disk.join("device/enclosure_device:Slot 07")).expect("a link");
        symlink(disk.join("sdq1"), root.join("block/sdq1")).expect("a link");
        (slot, root.join("dev/sdq1").display().to_string())
    }

    #[test]
    fn the_led_of_a_partitions_disk_is_switched() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let (slot, path) = disk_in_a_slot(root);
        std::fs::write(slot.join("locate"), "0").expect("an LED");
        let found = locate_in(&root.join("block"), &root.join("helper"), &path, true);
        assert_eq!(
            (found.led, found.slot.as_deref(), found.serial.as_deref()),
            (true, Some("Slot 07"), Some("Z1X2"))
        );
        assert_eq!(std::fs::read_to_string(slot.join("locate")).expect("an LED"), "1");
    }

    #[test]
    fn roots_helper_switches_an_led_that_the_server_may_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let (slot, path) = disk_in_a_slot(root);
        // Nobody may write to a directory, root included.
        std::fs::create_dir(slot.join("locate")).expect("an LED");
        let (block, helper) = (root.join("block"), root.join("helper"));
        let refused = locate_in(&block, &helper, &path, true);
        assert!(!refused.led && refused.message.contains("as root: echo 1 >"), "{}", refused.message);

        let listener = UnixListener::bind(&helper).expect("a socket");
        let thread = std::thread::spawn(move || {
            for answer in ["ok\n", "sdq: no LED\n"] {
                let (mut stream, _) = listener.accept().expect("the server");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("a line");
                assert_eq!(line, "sdq 0\n");
                stream.write_all(answer.as_bytes()).expect("an answer");
            }
        });
        assert!(locate_in(&block, &helper, &path, false).led);
        let refused = locate_in(&block, &helper, &path, false);
        assert!(!refused.led && refused.message.contains("sdq: no LED"), "{}", refused.message);
        thread.join().expect("the helper");
    }

    #[test]
    fn a_file_has_no_slot_and_that_is_said() {
        let found = locate("/nowhere/disk.img", true);
        assert!(!found.led && found.message.contains("file"));
    }
}
