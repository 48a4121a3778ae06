//! Devices that predict their failure.

use crate::smart::DeviceReport;
use types::{DiskId, Issue, Severity};

/// The issue that a device predicts its failure, if it does.
pub fn predicted_failure(disk: DiskId, path: &str, device: &DeviceReport, now_unix_s: u64) -> Option<Issue> {
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
    Some(Issue {
        severity: Severity::Warning,
        code: "disk_predicts_failure",
        target: format!("disk {disk}"),
        since_unix_s: Some(now_unix_s),
        what: format!("{path} predicts its failure: {}", why.join(", ")),
        meaning: "All data is served. Devices that say so fail more often, and some refuse writes soon."
            .to_owned(),
        action: format!("Replace the disk: `cenote disk replace {disk} NEW`."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_predicts_its_failure_is_an_issue() {
        let disk = DiskId::from_bytes([7; 16]);
        let predicted = |device: &DeviceReport| predicted_failure(disk, "/dev/sdq", device, 7);
        let well = DeviceReport {
            passed: Some(true),
            used_percent: Some(99),
            spare_percent: Some(11),
            spare_threshold_percent: Some(10),
            ..DeviceReport::default()
        };
        assert!(predicted(&DeviceReport::default()).is_none());
        assert!(predicted(&well).is_none());
        for (failing, words) in [
            (DeviceReport { passed: Some(false), ..well }, "its own test"),
            (DeviceReport { used_percent: Some(100), ..well }, "100% of the writes"),
            (DeviceReport { spare_percent: Some(10), ..well }, "10% of its spare"),
        ] {
            let issue = predicted(&failing).expect(words);
            assert!(issue.what.contains(words), "{}", issue.what);
        }
    }
}
