//! What health says of the files that the control plane writes: the cluster state and the audit log.

use super::Manager;
use api::model::{Health, HealthIssue, HealthReport};
use cluster::audit::AuditTrouble;
use cluster::{StatePlace, StateTrouble};

impl Manager {
    /// Adds what is wrong with the files.
    pub(super) fn tell_files(&self, report: &mut HealthReport) {
        let state =
            self.accounts.state.trouble().map(|trouble| state_issue(&trouble, self.accounts.is_behind()));
        report.issues.extend(state);
        report.issues.extend(self.audit.trouble().map(|trouble| audit_issue(&trouble)));
        report.health = report.issues.iter().map(|issue| issue.health).max().unwrap_or_default();
    }
}

fn state_issue(trouble: &StateTrouble, is_behind: bool) -> HealthIssue {
    let change = match is_behind {
        true => {
            " The last change of accounts or shares may or may not have been made; what was is in force once the state is read."
        }
        false => "",
    };
    HealthIssue {
        health: Health::Unhealthy,
        code: "cluster_state".to_owned(),
        target: trouble.place.to_string(),
        since_unix_s: trouble.since_unix_s,
        what: format!("the cluster state cannot be read or written: {}", trouble.why),
        meaning: format!(
            "Files are served, and nothing is lost. What needs the state waits or is refused: taking a failed disk out of its \
             volumes (writes to them wait meanwhile), opening volumes, changes of accounts, shares and pools.{change}"
        ),
        action: match &trouble.place {
            StatePlace::Etcd(_) => {
                "See why a majority of etcd's members does not answer, or not this server: servers that are down, the network between \
                 them, the clock. It is used again by itself as soon as it answers."
            }
            StatePlace::File(_) | StatePlace::Memory => {
                "See to the file system that the data directory is on: room, permissions, errors. The file is opened again by \
                 itself, every ten seconds at the latest."
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
        what: format!("the audit log cannot be written: {}; {} lines are missing", trouble.why, trouble.lost),
        meaning: "What administrators do and whose logons fail is not written down, but in the daemon's own log.".to_owned(),
        action: "See to the file system that the data directory is on: room, permissions, errors. Each new line is tried again."
            .to_owned(),
    }
}
