//! Finds a disk in the machine: serial, slot, and the slot's LED if the kernel knows its enclosure.
//!
//! Promises: reads sysfs, and writes only the `locate` attribute of an enclosure's slot. Never opens the disk.

use api::requests::LocatedDisk;
use std::path::{Path, PathBuf};

const BLOCK: &str = "/sys/class/block";
const BY_ID: &str = "/dev/disk/by-id";

/// Switches the LED if there is one, and tells what is known of the disk.
pub fn locate(path: &str, on: bool) -> LocatedDisk {
    locate_in(Path::new(BLOCK), path, on)
}

fn locate_in(block: &Path, path: &str, on: bool) -> LocatedDisk {
    let mut found = LocatedDisk {
        path: path.to_owned(),
        device: None,
        serial: None,
        slot: None,
        led: false,
        message: String::new(),
    };
    let real = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Ok(mut device) = block.join(&name).canonicalize() else {
        found.message = "it is a file, or not there: it has no slot".to_owned();
        return found;
    };
    // A partition's slot is its disk's.
    if device.join("partition").exists()
        && let Some(whole) = device.parent()
    {
        device = whole.to_path_buf();
    }
    let whole = device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    found.serial = serial(&device, &whole);
    found.device = Some(format!("/dev/{whole}"));
    let Some(slot) = enclosure_slot(&device) else {
        found.message = "the kernel knows no enclosure of this disk: go by its serial number".to_owned();
        return found;
    };
    found.slot = slot.file_name().map(|name| name.to_string_lossy().into_owned());
    match std::fs::write(slot.join("locate"), if on { "1" } else { "0" }) {
        Ok(()) => found.led = true,
        Err(error) => {
            let attribute = slot.join("locate");
            found.message = format!(
                "the server may not switch the LED of its slot ({error}); as root: echo {} > '{}'",
                u8::from(on),
                attribute.display()
            );
        }
    }
    found
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
    use std::os::unix::fs::symlink;

    #[test]
    fn the_led_of_a_partitions_disk_is_switched() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let slot = root.join("enclosure/Slot 07");
        let disk = root.join("devices/sdq");
        for made in [&slot, &disk.join("device"), &disk.join("sdq1"), &root.join("block"), &root.join("dev")]
        {
            std::fs::create_dir_all(made).expect("a directory");
        }
        std::fs::write(slot.join("locate"), "0").expect("an LED");
        std::fs::write(disk.join("device/serial"), "Z1X2\n").expect("a serial");
        std::fs::write(disk.join("sdq1/partition"), "1").expect("a partition");
        std::fs::write(root.join("dev/sdq1"), "").expect("a node");
        symlink(&slot, disk.join("device/enclosure_device:Slot 07")).expect("a link");
        symlink(disk.join("sdq1"), root.join("block/sdq1")).expect("a link");
        let path = root.join("dev/sdq1").display().to_string();
        let found = locate_in(&root.join("block"), &path, true);
        assert_eq!(
            (found.led, found.slot.as_deref(), found.serial.as_deref()),
            (true, Some("Slot 07"), Some("Z1X2"))
        );
        assert_eq!(std::fs::read_to_string(slot.join("locate")).expect("an LED"), "1");
    }

    #[test]
    fn a_file_has_no_slot_and_that_is_said() {
        let found = locate("/nowhere/disk.img", true);
        assert!(!found.led && found.message.contains("file"));
    }
}
