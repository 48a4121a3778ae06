//! What devices say of themselves, in the list of disks and in health.

use super::Manager;
use api::model::{DeviceHealth, Disk, Health, HealthIssue, Snapshot};

impl Manager {
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
        since_unix_s: crate::clock::unix_now_s(),
        what: format!("{} predicts its failure: {}", disk.path, why.join(", ")),
        meaning: "All data is served. Devices that say so fail more often, and some refuse writes soon."
            .to_owned(),
        action: format!("Replace the disk: `cenote disk replace {} NEW`.", disk.id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::model::{DiskCounters, DiskStatus, DiskUsage};
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
            allocated_bytes: 0,
            block_bytes: 512,
            rotational: false,
            counters: DiskCounters::default(),
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
}
