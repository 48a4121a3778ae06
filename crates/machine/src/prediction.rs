//! Devices that predict their failure.

use api::model::{DeviceHealth, Disk, Health, HealthIssue};

/// The issue that a device predicts its failure, if it does.
pub fn predicted_failure(disk: &Disk, device: &DeviceHealth, now_unix_s: u64) -> Option<HealthIssue> {
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
        since_unix_s: now_unix_s,
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
        assert!(predicted_failure(&disk, &DeviceHealth::default(), 7).is_none());
        assert!(predicted_failure(&disk, &well, 7).is_none());
        for (failing, words) in [
            (DeviceHealth { passed: Some(false), ..well }, "its own test"),
            (DeviceHealth { used_percent: Some(100), ..well }, "100% of the writes"),
            (DeviceHealth { spare_percent: Some(10), ..well }, "10% of its spare"),
        ] {
            let issue = predicted_failure(&disk, &failing, 7).expect(words);
            assert!(issue.what.contains(words), "{}", issue.what);
        }
    }
}
