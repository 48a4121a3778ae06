//! The control plane's own files (the cluster state and the audit log) in health, and volumes as shown
//! while this server may answer for none.

use super::Manager;
use api::audit::AuditTrouble;
use api::model::{
    Health, HealthIssue, HealthReport, NODE_UNREACHED, Snapshot, VOLUME_UNREACHED, VolumeStatus,
};
use records::{StatePlace, StateTrouble};

impl Manager {
    /// Adds issues of the files. `may_answer`: this server may answer for volumes.
    pub(super) fn tell_files(&self, report: &mut HealthReport, may_answer: bool) {
        let is_behind = self.accounts.is_behind();
        let state = self.accounts.state.trouble().map(|trouble| state_issue(&trouble, is_behind, may_answer));
        report.issues.extend(state);
        report.issues.extend(self.accounts.directory.freshness().issue());
        report.issues.extend(self.audit.trouble().map(|trouble| audit_issue(&trouble)));
        report.issues.extend(self.room.issues().into_iter().map(HealthIssue::from));
        report.health = report.issues.iter().map(|issue| issue.health).max().unwrap_or_default();
    }
}

/// Adapts the snapshot of a server that hears no majority: its volumes answer no client, and it cannot
/// know that others live, since a majority decides that.
pub(super) fn withhold(snapshot: &mut Snapshot) {
    for volume in &mut snapshot.volumes {
        (volume.status, volume.health) = (VolumeStatus::Detached, Health::Unhealthy);
        volume.in_sync_copies = None;
    }
    let presumes_life = [VOLUME_UNREACHED, NODE_UNREACHED];
    snapshot.health.issues.retain(|issue| !presumes_life.contains(&&*issue.code));
}

fn state_issue(trouble: &StateTrouble, is_behind: bool, may_answer: bool) -> HealthIssue {
    let served = match may_answer {
        true => "Files are served, and nothing is lost.",
        false => "No volume is served, as another issue says; nothing is lost.",
    };
    let change = match is_behind {
        true => {
            " It is not known whether the last change of accounts or shares was made; if it was, it applies when the state can be read again."
        }
        false => "",
    };
    let elsewhere = match &trouble.place {
        StatePlace::Etcd(_) => {
            " Changes of accounts and shares that other servers make meanwhile are not in force here until then."
        }
        StatePlace::File(_) | StatePlace::Memory => "",
    };
    HealthIssue {
        health: Health::Unhealthy,
        code: "cluster_state".to_owned(),
        target: trouble.place.to_string(),
        since_unix_s: trouble.since_unix_s,
        server: None,
        what: format!("the cluster state cannot be read or written: {}", trouble.why),
        meaning: format!(
            "{served} Changes to the server's records wait or are refused: taking a failed disk out of its volumes (writes to \
             them wait meanwhile), opening volumes, changing accounts, shares and pools.{elsewhere}{change}"
        ),
        action: match &trouble.place {
            StatePlace::Etcd(_) => {
                "Check why most members of etcd do not answer this server: servers that are down, the network between them, \
                 the clock. This server goes on by itself as soon as they answer."
            }
            StatePlace::File(_) | StatePlace::Memory => {
                "Check the file system of the data directory: free space, permissions, errors. The server opens the file \
                 again by itself, every ten seconds at the latest."
            }
        }
        .to_owned(),
    }
}

fn audit_issue(trouble: &AuditTrouble) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "audit_log".to_owned(),
        target: trouble.path.display().to_string(),
        since_unix_s: trouble.since_unix_s,
        server: None,
        what: format!("the audit log cannot be written: {}; {} lines are missing", trouble.why, trouble.lost),
        meaning: "Actions of administrators and failed logons are recorded in the daemon's own log only.".to_owned(),
        action: "Check the file system of the data directory: free space, permissions, errors. The server tries again with each new line."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_majority_does_not_say_that_others_live() {
        let issue = |code: &str| HealthIssue { code: code.into(), ..audit_issue(&trouble()) };
        let issues = ["volume_unreached", "node_unreached", "disk_slow"].map(issue).to_vec();
        let mut snapshot = Snapshot::default();
        snapshot.health.issues = issues;
        withhold(&mut snapshot);
        let left: Vec<&str> = snapshot.health.issues.iter().map(|issue| &*issue.code).collect();
        assert_eq!(left, ["disk_slow"]);
    }

    fn trouble() -> AuditTrouble {
        AuditTrouble { path: "/audit.log".into(), why: String::new(), since_unix_s: 1, lost: 1 }
    }

    #[test]
    fn files_are_said_to_be_served_only_by_a_server_that_may_answer() {
        let trouble =
            StateTrouble { place: StatePlace::Etcd(Vec::new()), why: "no leader".into(), since_unix_s: 7 };
        let meaning = |may_answer| state_issue(&trouble, false, may_answer).meaning;
        assert!(meaning(true).starts_with("Files are served"));
        assert!(meaning(false).starts_with("No volume is served") && !meaning(false).contains("Files are"));
    }
}
