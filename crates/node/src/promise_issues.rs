//! Health issues of disks whose promises do not fit the records of the volumes.

use types::{DiskId, Issue, Severity};

/// Wrong promises of one disk, to some volumes.
pub struct WrongPromises<'a> {
    pub disk: DiskId,
    pub path: &'a str,
    pub since_unix_s: u64,
    /// Name of the first of the volumes. The disk has promised it one epoch, and its record has
    /// another.
    pub volume: &'a str,
    pub promised: u64,
    pub recorded: u64,
    /// Names of all volumes.
    pub volumes: String,
}

impl WrongPromises<'_> {
    /// Reports that an older image of the disk is in its place, so that volumes may wait for the
    /// right disk. `records`: describes the disk's copy of the pool's records.
    pub fn older_image(&self, records: &str) -> Issue {
        let Self { disk, path, volume, promised, recorded, volumes, .. } = self;
        Issue {
            what: format!(
                "{path} is an older image of the disk, or it lost writes: it has promised epoch {promised} to {volume}, and had promised epoch {recorded} or \
                 later; it carries {records}"
            ),
            meaning: format!(
                "It lacks writes that were acknowledged since. What other disks have, too, is brought up to date from them. If perhaps no other disk has some \
                 of {volumes}, that is not served until the right disk is there, or you accept this one: `cenote volume list` shows whether it is served."
            ),
            action: format!(
                "Stop the server, bring the right disk to {path} in place of the image, and start the server; or bring the disks that have \
                 the other copies. If these are lost, retire or replace the missing ones; `cenote disk forget-promises {disk}` serves what is on this one, \
                 without the writes that it lacks."
            ),
            ..self.unhealthy("disk_went_back")
        }
    }

    /// Reports promises out of reach of the volumes' owners.
    pub fn out_of_bounds(&self) -> Issue {
        let Self { disk, path, volume, promised, recorded, volumes, .. } = self;
        Issue {
            what: format!(
                "{path} has promised epoch {promised} to {volume}, whose records are at epoch {recorded}: no server reaches that epoch in years"
            ),
            meaning: format!(
                "No server can open {volumes} while the disk is there, because it refuses all requests. No server does this by itself: somebody wrote to the disk, or \
                 spoke to it in a server's name."
            ),
            action: format!(
                "`cenote disk forget-promises {disk}`: the disk then counts as restored from an old image, and is updated from the \
                 other copies. Find out who could reach the disk, or who has a server's key."
            ),
            ..self.unhealthy("disk_promise_out_of_bounds")
        }
    }

    fn unhealthy(&self, code: &'static str) -> Issue {
        let (what, meaning, action) = Default::default();
        Issue {
            severity: Severity::Unhealthy,
            code,
            target: format!("disk {}", self.disk),
            since_unix_s: Some(self.since_unix_s),
            what,
            meaning,
            action,
        }
    }
}

/// Reports that an older image of the disk was restored, and is not yet up to date again for these
/// volumes.
pub fn went_back_issue(disk: DiskId, path: &str, volumes: &str, since_unix_s: u64) -> Issue {
    Issue {
        severity: Severity::Warning,
        code: "disk_went_back",
        target: format!("disk {disk}"),
        since_unix_s: Some(since_unix_s),
        what: format!(
            "{path} is older than it should be for {volumes}: an older image of the disk was put back, or the disk lost writes"
        ),
        meaning: "Data that other disks have, too, are not read from it until all of it was compared and brought up to date. Data that it alone has are \
                  served as they are if an administrator accepted that."
            .to_owned(),
        action: "Wait: `cenote job list` shows the progress. Do not put back images of single disks; if nobody did, replace the disk."
            .to_owned(),
    }
}
