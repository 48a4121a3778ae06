//! Devices' own health reports (SMART, NVMe), from smartmontools' `smartctl`, or from files that a
//! timer of the system writes.
//!
//! To ask a device takes rights that the service does without, so `packaging/cenote-smart.timer` has
//! root ask and leave the answers in [`ANSWERS`]; a server that runs as root asks by itself. Promises:
//! never on the data plane's thread; a device that does not answer delays only the next question to it.

use disk::partition;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;

/// Answers of `smartctl` as JSON, by the device's name in the kernel: `nvme0n1.json`.
const ANSWERS: &str = "/run/cenote-smart";
/// The timer leaves new ones every ten minutes.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(3600);
/// Interval between questions to a device; none of its figures changes faster.
const ASK_EVERY: Duration = Duration::from_secs(600);
/// Interval between checks for new disks.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A disk that is busy answers within a second or two.
const PATIENCE: Duration = Duration::from_secs(20);

/// A device's own report; `None`: the device does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// The device's own verdict: `false` predicts that it fails.
    pub passed: Option<bool>,
    /// Share used of the writes that the device is made for; may exceed 100.
    pub used_percent: Option<u32>,
    /// Share left of the device's spare blocks.
    pub spare_percent: Option<u32>,
    /// Fewer spare blocks, and it predicts its failure.
    pub spare_threshold_percent: Option<u32>,
    /// In its whole life.
    pub written_bytes: Option<u64>,
    /// Blocks that the device could not read, in its whole life.
    pub media_errors: Option<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Health by the disk's path.
    known: BTreeMap<String, DeviceReport>,
    asked_at: BTreeMap<String, Instant>,
    /// Not answered yet.
    asking: BTreeSet<String>,
}

/// Health of all devices, for any thread.
#[derive(Debug, Default)]
pub struct DeviceReports(Mutex<Inner>);

impl DeviceReports {
    /// Health of the device that the disk at this path is on.
    pub fn of(&self, path: &str) -> Option<DeviceReport> {
        self.lock().known.get(path).copied()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the paths that are due; they count as being asked.
    fn take_due(&self, paths: impl Iterator<Item = String>) -> Vec<String> {
        let mut inner = self.lock();
        let now = Instant::now();
        let due: Vec<String> = paths
            .filter(|path| {
                !inner.asking.contains(path)
                    && inner.asked_at.get(path).is_none_or(|at| now.duration_since(*at) >= ASK_EVERY)
            })
            .collect();
        inner.asking.extend(due.iter().cloned());
        due
    }

    fn answered(&self, path: &str, health: Option<DeviceReport>) {
        let mut inner = self.lock();
        inner.asking.remove(path);
        inner.asked_at.insert(path.to_owned(), Instant::now());
        // A disk that sleeps, or does not answer this once, is as it was.
        if let Some(health) = health {
            inner.known.insert(path.to_owned(), health);
        }
    }
}

/// Asks the devices of all disks, at intervals, until the task is dropped. `paths` returns the paths of the disks, unless they are not known just now.
pub async fn watch<F: Future<Output = Option<Vec<String>>>>(
    healths: Arc<DeviceReports>,
    paths: impl Fn() -> F,
) {
    loop {
        if let Some(paths) = paths().await {
            for path in healths.take_due(paths.into_iter()) {
                let (give, answer) = oneshot::channel();
                let (healths, asked) = (healths.clone(), path.clone());
                // A thread of its own: it may hang as long as the device does, and nobody waits for it when the server ends.
                let started = std::thread::Builder::new().name("cenote-smart".into()).spawn(move || {
                    healths.answered(&asked, ask(Path::new(&asked)));
                    let _ = give.send(());
                });
                if started.is_ok() {
                    // One after the other, unless it takes too long.
                    let _ = tokio::time::timeout(PATIENCE, answer).await;
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// `None`: a file, or a device without a report.
fn ask(path: &Path) -> Option<DeviceReport> {
    let device = match partition::whole_device_of(path) {
        Some(whole) => whole,
        None if partition::is_whole_device(path) => path.canonicalize().ok()?,
        None => return None,
    };
    let mut left = PathBuf::from(ANSWERS).join(device.file_name()?);
    left.as_mut_os_string().push(".json");
    let text = left_answer(&left).or_else(|| smartctl(Path::new("smartctl"), &device, PATIENCE))?;
    parse(&serde_json::from_slice(&text).ok()?)
}

fn left_answer(path: &Path) -> Option<Vec<u8>> {
    let modified = path.metadata().ok()?.modified().ok()?;
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    (age < ANSWER_AGE_MAX).then(|| std::fs::read(path).ok())?
}

/// Runs smartctl, whose output alone counts: its exit status reports the device's health too. Does not
/// wake a disk that sleeps. Ends a run without answer within `patience`, so that a device that hangs is
/// asked again later, by one process at a time.
fn smartctl(program: &Path, device: &Path, patience: Duration) -> Option<Vec<u8>> {
    let mut child = Command::new(program)
        .args(["--json=c", "--all", "--log=devstat", "--nocheck=standby"])
        .arg(device)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdout = child.stdout.take()?;
    let (give, answer) = mpsc::channel();
    let reader = std::thread::Builder::new().name("cenote-smart".into()).spawn(move || {
        let mut text = Vec::new();
        let whole = stdout.read_to_end(&mut text);
        let _ = give.send(whole.is_ok().then_some(text));
    });
    let text = reader.ok().and_then(|_| answer.recv_timeout(patience).ok().flatten());
    if text.is_none() {
        // One that waits in the kernel for the device ends when that does.
        let _ = child.kill();
    }
    // This thread waits for the end, and delays nothing: nobody else may ask the device until then.
    let _ = child.wait();
    text
}

/// Reads the output of `smartctl --json`, as far as it is the same for all makers.
fn parse(answer: &Value) -> Option<DeviceReport> {
    let number = |pointer: &str| answer.pointer(pointer).and_then(Value::as_u64);
    let percent = |pointer: &str| number(pointer).and_then(|value| u32::try_from(value).ok());
    let nvme = "/nvme_smart_health_information_log";
    let nvme_number = |name: &str| number(&format!("{nvme}/{name}"));
    let nvme_percent = |name: &str| percent(&format!("{nvme}/{name}"));
    let block_bytes = number("/logical_block_size").unwrap_or(512);
    let found = DeviceReport {
        passed: answer.pointer("/smart_status/passed").and_then(Value::as_bool),
        used_percent: nvme_percent("percentage_used")
            .or_else(|| percent("/endurance_used/current_percent"))
            .or_else(|| percent("/scsi_percentage_used_endurance_indicator"))
            .or_else(|| {
                let used = statistic(answer, "Percentage Used Endurance Indicator")?;
                u32::try_from(used).ok()
            }),
        spare_percent: nvme_percent("available_spare")
            .or_else(|| percent("/spare_available/current_percent")),
        spare_threshold_percent: nvme_percent("available_spare_threshold")
            .or_else(|| percent("/spare_available/threshold_percent")),
        // A data unit is a thousand blocks of 512 bytes (NVMe base specification, SMART / Health Information log page).
        written_bytes: nvme_number("data_units_written")
            .map(|units| units.saturating_mul(512_000))
            .or_else(|| {
                let sectors = statistic(answer, "Logical Sectors Written")?;
                Some(sectors.saturating_mul(block_bytes))
            })
            .or_else(|| scsi_written(answer)),
        media_errors: nvme_number("media_errors")
            .or_else(|| statistic(answer, "Number of Reported Uncorrectable Errors"))
            .or_else(|| ata_media_errors(answer))
            .or_else(|| number("/scsi_error_counter_log/read/total_uncorrected_errors")),
    };
    (found != DeviceReport::default()).then_some(found)
}

/// A value of the ATA device statistics log (ACS-4).
fn statistic(answer: &Value, name: &str) -> Option<u64> {
    let pages = answer.pointer("/ata_device_statistics/pages")?.as_array()?;
    let entries = pages.iter().filter_map(|page| page.get("table")?.as_array()).flatten();
    let mut named = entries.filter(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
    named.next()?.get("value")?.as_u64()
}

/// Returns the largest of the attributes that makers agree on: reported uncorrectable (187), pending
/// (197) and offline uncorrectable (198) sectors, which count the same sectors in different ways.
fn ata_media_errors(answer: &Value) -> Option<u64> {
    let table = answer.pointer("/ata_smart_attributes/table")?.as_array()?;
    let counts = table.iter().filter_map(|attribute| {
        let id = attribute.get("id")?.as_u64()?;
        matches!(id, 187 | 197 | 198).then(|| attribute.pointer("/raw/value")?.as_u64())?
    });
    counts.max()
}

fn scsi_written(answer: &Value) -> Option<u64> {
    let text = answer.pointer("/scsi_error_counter_log/write/gigabytes_processed")?.as_str()?;
    text.parse::<f64>().ok().filter(|gigabytes| *gigabytes >= 0.0).map(|gigabytes| (gigabytes * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvme_ata_and_scsi_devices_say_comes_out_the_same() {
        let nvme = serde_json::json!({
            "smart_status": { "passed": true },
            "nvme_smart_health_information_log": {
                "critical_warning": 0, "available_spare": 98, "available_spare_threshold": 10, "percentage_used": 3,
                "data_units_written": 2_000_000, "media_errors": 4
            }
        });
        let expected = DeviceReport {
            passed: Some(true),
            used_percent: Some(3),
            spare_percent: Some(98),
            spare_threshold_percent: Some(10),
            written_bytes: Some(1_024_000_000_000),
            media_errors: Some(4),
        };
        assert_eq!(parse(&nvme), Some(expected));
        let ata = serde_json::json!({
            "logical_block_size": 512,
            "smart_status": { "passed": false },
            "ata_smart_attributes": { "table": [
                { "id": 5, "raw": { "value": 9 } },
                { "id": 197, "raw": { "value": 2 } },
                { "id": 198, "raw": { "value": 3 } }
            ] },
            "ata_device_statistics": { "pages": [
                { "number": 1, "table": [{ "name": "Logical Sectors Written", "value": 1000 }] },
                { "number": 7, "table": [{ "name": "Percentage Used Endurance Indicator", "value": 12 }] }
            ] }
        });
        let expected = DeviceReport {
            passed: Some(false),
            used_percent: Some(12),
            written_bytes: Some(512_000),
            media_errors: Some(3),
            ..DeviceReport::default()
        };
        assert_eq!(parse(&ata), Some(expected));
        let scsi = serde_json::json!({
            "scsi_percentage_used_endurance_indicator": 1,
            "scsi_error_counter_log": {
                "read": { "total_uncorrected_errors": 7 }, "write": { "gigabytes_processed": "1.500" }
            }
        });
        let expected = DeviceReport {
            used_percent: Some(1),
            written_bytes: Some(1_500_000_000),
            media_errors: Some(7),
            ..DeviceReport::default()
        };
        assert_eq!(parse(&scsi), Some(expected));
    }

    #[test]
    fn a_device_that_says_nothing_or_nonsense_has_no_health() {
        for answer in [
            serde_json::json!({ "smartctl": { "exit_status": 2 } }),
            serde_json::json!([1, 2]),
            serde_json::json!({ "ata_device_statistics": { "pages": 7 }, "endurance_used": { "current_percent": -1 } }),
        ] {
            assert_eq!(parse(&answer), None, "{answer}");
        }
        assert_eq!(ask(Path::new("/nowhere/disk.img")), None);
    }

    /// A program that does this instead of asking a device.
    fn program(directory: &tempfile::TempDir, does: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.path().join("smartctl");
        std::fs::write(&path, format!("#!/bin/sh\n{does}\n")).expect("a program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its rights");
        path
    }

    #[test]
    fn a_smartctl_that_hangs_is_ended_and_one_that_is_not_there_says_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let begun = Instant::now();
        let hangs = program(&directory, "exec sleep 600");
        assert_eq!(smartctl(&hangs, Path::new("/dev/sdq"), Duration::from_millis(200)), None);
        assert_eq!(smartctl(Path::new("/nowhere/smartctl"), Path::new("/dev/sdq"), PATIENCE), None);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_failing_disk_is_told_though_smartctl_ends_with_a_status_that_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        // Bits 3 and 4 of the status: the disk is failing.
        let failing = program(
            &directory,
            r#"echo '{"smartctl":{"exit_status":24},"smart_status":{"passed":false},"ata_smart_attributes":{"table":[{"id":197,"name":"Current_Pending_Sector","value":1,"thresh":24,"when_failed":"now","raw":{"value":1288,"string":"1288"}}]}}'; exit 24"#,
        );
        let text = smartctl(&failing, Path::new("/dev/sdq"), PATIENCE).expect("an answer");
        let health = parse(&serde_json::from_slice(&text).expect("JSON")).expect("a health");
        assert_eq!((health.passed, health.media_errors), (Some(false), Some(1288)));
    }

    #[test]
    fn a_device_is_asked_once_at_a_time_and_keeps_what_it_said_last() {
        let healths = DeviceReports::default();
        let paths = || ["/dev/a".to_owned(), "/dev/b".to_owned()].into_iter();
        assert_eq!(healths.take_due(paths()).len(), 2);
        assert!(healths.take_due(paths()).is_empty());
        let said = DeviceReport { used_percent: Some(1), ..DeviceReport::default() };
        healths.answered("/dev/a", Some(said));
        healths.lock().asked_at.clear();
        assert_eq!(healths.take_due(paths()), ["/dev/a"]);
        healths.answered("/dev/a", None);
        assert_eq!(healths.of("/dev/a"), Some(said));
    }
}
