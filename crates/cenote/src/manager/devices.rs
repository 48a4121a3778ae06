//! What devices say of themselves, in the list of disks and in health.

use super::Manager;
use api::model::{DeviceHealth, Disk, DiskStatus, Health, HealthIssue, Snapshot};
use api::{ApiError, ErrorKind};
use std::path::{Path, PathBuf};

impl Manager {
    /// Refuses what is a disk of this server already, by any path that leads to it: to open it would only say that it is in use. A disk that
    /// is gone may have a successor at its path.
    pub(super) async fn demand_no_disk_of_ours(
        &self,
        paths: impl IntoIterator<Item = &PathBuf>,
    ) -> Result<(), ApiError> {
        let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
        let snapshot = self.look().await?;
        let disks: Vec<(String, String)> = snapshot
            .disks
            .iter()
            .filter(|disk| disk.status != DiskStatus::LostCommunication)
            .map(|disk| {
                let pool = snapshot.pools.iter().find(|pool| Some(pool.id) == disk.pool);
                (disk.path.clone(), pool.map_or_else(|| "none".to_owned(), |pool| pool.name.clone()))
            })
            .collect();
        // A path may lead through a file system that is slow.
        let looked = tokio::task::spawn_blocking(move || {
            paths.iter().find_map(|path| {
                let (_, pool) = disks.iter().find(|(ours, _)| leads_to(path, Path::new(ours)))?;
                Some(format!(
                    "{} is a disk of pool '{pool}' of this server already; `cenote disk list` shows those there are",
                    path.display()
                ))
            })
        });
        let looked =
            looked.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the look was interrupted"))?;
        looked.map_or(Ok(()), |why| Err(ApiError::new(ErrorKind::Conflict, why)))
    }

    /// Adds to each disk what its device says, and an issue if that predicts its failure.
    pub(super) fn tell_devices(&self, snapshot: &mut Snapshot) {
        for disk in &mut snapshot.disks {
            disk.device_health = self.devices.of(&disk.path);
            let issue = disk.device_health.and_then(|device| issue(disk, &device));
            if issue.is_some() {
                disk.health = disk.health.max(Health::Warning);
            }
            snapshot.health.issues.extend(issue);
        }
    }
}

/// Whether a path leads to the same file or device as another one, or to the device that the other is a partition of.
fn leads_to(path: &Path, other: &Path) -> bool {
    let (Ok(path), Ok(other)) = (path.canonicalize(), other.canonicalize()) else { return path == other };
    if path == other {
        return true;
    }
    let (path, other) = (path.to_str(), other.to_str());
    path.zip(other).is_some_and(|(whole, part)| whole.starts_with("/dev/") && is_partition_of(part, whole))
}

/// By the names that the kernel gives: `sdb1` is of `sdb`, `nvme0n1p1` of `nvme0n1`.
fn is_partition_of(part: &str, whole: &str) -> bool {
    let number = part.strip_prefix(whole).map(|number| number.strip_prefix('p').unwrap_or(number));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn issue(disk: &Disk, device: &DeviceHealth) -> Option<HealthIssue> {
    let mut why = Vec::new();
    if device.passed == Some(false) {
        why.push("its own test says that it fails".to_owned());
    }
    if let Some(percent) = device.used_percent.filter(|percent| *percent >= 100) {
        why.push(format!("{percent}% of the writes that it is made for are used up"));
    }
    if let Some(spare) = device.spare_percent
        && spare <= device.spare_threshold_percent.unwrap_or(0)
    {
        why.push(format!("{spare}% of its spare blocks are left"));
    }
    if why.is_empty() {
        return None;
    }
    Some(HealthIssue {
        health: Health::Warning,
        code: "disk_predicts_failure".to_owned(),
        target: format!("disk {}", disk.id),
        since_unix_s: cluster::clock::unix_now_s(),
        server: None,
        what: format!("{} predicts its failure: {}", disk.path, why.join(", ")),
        meaning: "All data is served. Devices that say so fail more often, and some refuse writes soon."
            .to_owned(),
        action: format!("Replace the disk: `cenote disk replace {} NEW`.", disk.id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::{DiskCounters, DiskUsage};
    use types::DiskId;

    #[test]
    fn only_a_device_that_predicts_its_failure_is_an_issue() {
        let disk = Disk {
            id: DiskId::from_bytes([7; 16]),
            pool: None,
            path: "/dev/sdq".into(),
            fault_domain: String::new(),
            health: Health::Healthy,
            status: DiskStatus::Ok,
            usage: DiskUsage::AutoSelect,
            size_bytes: 1 << 33,
            allocated_bytes: Some(0),
            block_bytes: Some(512),
            rotational: Some(false),
            counters: Some(DiskCounters::default()),
            server: None,
            device_health: None,
        };
        let well = DeviceHealth {
            passed: Some(true),
            used_percent: Some(99),
            spare_percent: Some(11),
            spare_threshold_percent: Some(10),
            ..DeviceHealth::default()
        };
        assert!(issue(&disk, &DeviceHealth::default()).is_none());
        assert!(issue(&disk, &well).is_none());
        for (failing, words) in [
            (DeviceHealth { passed: Some(false), ..well }, "its own test"),
            (DeviceHealth { used_percent: Some(100), ..well }, "100% of the writes"),
            (DeviceHealth { spare_percent: Some(10), ..well }, "10% of its spare"),
        ] {
            let issue = issue(&disk, &failing).expect(words);
            assert!(issue.what.contains(words), "{}", issue.what);
        }
    }

    #[test]
    fn a_disk_is_known_by_any_path_that_leads_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("one"), "").unwrap();
        std::fs::write(at("one1"), "").unwrap();
        std::os::unix::fs::symlink(at("one"), at("link")).unwrap();
        assert!(leads_to(&at("link"), &at("one")) && leads_to(&at("one"), &at("link")));
        // Only devices have partitions.
        assert!(!leads_to(&at("one"), &at("one1")) && !leads_to(&at("gone"), &at("one")));
        assert!(
            is_partition_of("/dev/sdb1", "/dev/sdb") && is_partition_of("/dev/nvme0n1p2", "/dev/nvme0n1")
        );
        assert!(!is_partition_of("/dev/sdbc", "/dev/sdb") && !is_partition_of("/dev/sdb", "/dev/sdb"));
    }
}
