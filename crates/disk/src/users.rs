//! Finds the users of a file or block device that is to be overwritten: mounts, swap, device mapper, RAID, loop devices, locks.
//!
//! Reads the kernel's answers under `/proc` and `/sys`, changes nothing. An empty answer proves
//! nothing: a program that overwrites the device opens it exclusively all the same.

use rustix::fs::{FileType, Stat};
use std::path::{Path, PathBuf};

/// Major and minor number.
type Device = (u32, u32);

/// Describes in words who uses the file or device, its partitions included; empty if nobody is known.
pub fn users_of(path: &Path) -> Vec<String> {
    let Ok(stat) = rustix::fs::stat(path) else { return Vec::new() };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => {
            users_of_device((rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)))
        }
        _ => users_of_file(path, &stat),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(path).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    found.unwrap_or_default()
}

fn users_of_device(device: Device) -> Vec<String> {
    let of_kernel = Path::new("/sys/dev/block").join(format!("{}:{}", device.0, device.1));
    let parts = entries(&of_kernel).into_iter().filter(|entry| entry.join("partition").exists());
    let parts: Vec<PathBuf> = std::iter::once(of_kernel.clone()).chain(parts).collect();
    let numbers: Vec<Device> =
        parts.iter().filter_map(|part| device_of(read(part.join("dev")).trim())).chain([device]).collect();
    let mut users = mounts_of(&read("/proc/self/mountinfo"), &numbers);
    users.extend(swaps_of(
        &read("/proc/swaps"),
        |path| {
            let stat = rustix::fs::stat(path).ok()?;
            Some((rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)))
        },
        &numbers,
    ));
    for holder in parts.iter().flat_map(|part| entries(&part.join("holders"))) {
        let name = holder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mapped = read(holder.join("dm/name"));
        users.push(match mapped.trim() {
            "" => format!("a part of /dev/{name}"),
            mapped => format!("a part of /dev/mapper/{mapped}"),
        });
    }
    users.sort();
    users.dedup();
    users
}

fn users_of_file(path: &Path, stat: &Stat) -> Vec<String> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_backed = |device: &PathBuf| Path::new(read(device.join("loop/backing_file")).trim_end()) == real;
    let loops = entries(Path::new("/sys/block")).into_iter().filter(is_backed);
    let mut users: Vec<String> = loops
        .map(|device| {
            format!("attached as /dev/{}", device.file_name().unwrap_or_default().to_string_lossy())
        })
        .collect();
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    users.extend(locks_of(&read("/proc/locks"), device, stat.st_ino));
    users
}

fn device_of(text: &str) -> Option<Device> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// From `/proc/self/mountinfo` (proc(5)): the device is the third field, the place the fifth.
fn mounts_of(text: &str, devices: &[Device]) -> Vec<String> {
    let place = |line: &str| {
        let mut fields = line.split(' ');
        let device = device_of(fields.nth(2)?)?;
        devices.contains(&device).then(|| fields.nth(1).map(|place| format!("mounted at {place}")))?
    };
    text.lines().filter_map(place).collect()
}

/// From `/proc/swaps`: a line for each, its path first.
fn swaps_of(text: &str, device_at: impl Fn(&str) -> Option<Device>, devices: &[Device]) -> Vec<String> {
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let ours = paths.filter(|path| device_at(path).is_some_and(|device| devices.contains(&device)));
    ours.map(|path| format!("swap space ({path})")).collect()
}

/// From `/proc/locks` (proc(5)): the process is the fifth field, `MAJOR:MINOR:INODE` the sixth, its numbers of devices in hexadecimal.
fn locks_of(text: &str, device: Device, inode: u64) -> Vec<String> {
    let wanted = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    let holder = |line: &str| {
        let mut fields = line.split_whitespace();
        let process = fields.nth(4)?;
        (fields.next()? == wanted).then(|| match process {
            "-1" => "locked by another process".to_owned(),
            process => format!("locked by process {process}"),
        })
    };
    text.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_swap_and_locks_are_found_by_device_and_file() {
        let mounts = "36 35 98:1 /mnt1 /mnt/a rw,noatime master:1 - ext3 /dev/sda1 rw\n37 35 0:44 / /run rw - tmpfs none rw\nnonsense\n";
        assert_eq!(mounts_of(mounts, &[(98, 0), (98, 1)]), ["mounted at /mnt/a"]);
        assert!(mounts_of(mounts, &[(98, 2)]).is_empty());
        let swaps = "Filename Type Size Used Priority\n/dev/sdq2 partition 1 0 -2\n";
        assert_eq!(swaps_of(swaps, |_| Some((8, 2)), &[(8, 2)]), ["swap space (/dev/sdq2)"]);
        let locks = "1: POSIX  ADVISORY  WRITE 4711 fd:01:77 0 EOF\n2: OFDLCK ADVISORY  READ  -1 fd:01:78 0 EOF\n3: FLOCK\n";
        assert_eq!(locks_of(locks, (0xfd, 1), 77), ["locked by process 4711"]);
        assert_eq!(locks_of(locks, (0xfd, 1), 78), ["locked by another process"]);
        assert!(locks_of(locks, (0xfd, 2), 77).is_empty());
    }

    #[test]
    fn a_locked_file_names_the_process_that_has_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        std::fs::write(&path, b"x").expect("a file");
        assert!(users_of(&path).is_empty());
        let file = std::fs::File::open(&path).expect("the file");
        file.lock().expect("a lock");
        assert_eq!(users_of(&path), [format!("locked by process {}", std::process::id())]);
    }
}
