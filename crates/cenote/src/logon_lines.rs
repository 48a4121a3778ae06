//! The SMB server's entries on logons for the audit log.
//!
//! Promises: the data plane never waits for the log's disk; entries beyond the disk's speed are
//! dropped, and counted in the daemon's log.

use api::audit::{AuditEvent, AuditLog, Outcome};
use records::clock::unix_now_s;
use smb_server::{LogonAction, LogonLine};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Limit of queued entries: the SMB server makes fewer in a minute.
const LINES_MAX: usize = 256;

/// The data plane's end of the way.
pub struct LogonLines(SyncSender<LogonLine>);

impl LogonLines {
    /// Makes a channel to `audit`, which ends with it.
    ///
    /// # Errors
    /// The thread cannot start.
    pub fn to(audit: Arc<AuditLog>) -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES_MAX);
        std::thread::Builder::new().name("cenote-audit".into()).spawn(move || write(&audit, &lines))?;
        Ok(Self(sender))
    }

    /// A way that leads nowhere.
    pub fn nowhere() -> Self {
        Self(sync_channel(0).0)
    }

    /// Passes entries on; those that do not fit are lost, and counted in the log.
    pub fn send(&self, lines: Vec<LogonLine>) {
        let lost = lines.into_iter().filter_map(|line| self.0.try_send(line).err()).count();
        if lost > 0 {
            tracing::warn!(lost, "logons are missing in the audit log");
        }
    }
}

fn write(audit: &AuditLog, lines: &Receiver<LogonLine>) {
    for line in lines {
        let outcome = match line.action {
            LogonAction::Delayed => Outcome::Done,
            LogonAction::Failed | LogonAction::Refused | LogonAction::LeftOut => Outcome::Refused,
        };
        // No password opens nodes' rights, and no user has such a name.
        let is_old_node = bus::is_account_name(&line.user);
        let actor = if is_old_node { "bus" } else { "smb" };
        if is_old_node {
            tracing::warn!(
                source = line.source,
                "a server tries to reach this one's disks by a password, as older versions do, and is refused: all servers of a cluster run the \
                 same version (see Upgrade in docs/CLUSTER.md)"
            );
        }
        let event = AuditEvent {
            unix_s: unix_now_s(),
            actor,
            source: &line.source,
            action: line.action.name(),
            target: &line.user,
            outcome,
            detail: &line.detail,
        };
        if let Err(error) = audit.write(&event) {
            tracing::error!(%error, action = event.action, source = event.source, "the audit log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LogonLines;
    use api::audit::AuditLog;
    use smb_server::{LogonAction, LogonLine};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_failed_logon_is_a_line_of_the_audit_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let lines = LogonLines::to(Arc::new(AuditLog::open(&path).unwrap())).unwrap();
        let failed = |user: &str| LogonLine {
            action: LogonAction::Failed,
            user: user.into(),
            source: "192.0.2.7:40000".into(),
            detail: "wrong password".into(),
        };
        lines.send(vec![failed("node-2$"), failed("anna")]);
        let written = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let text = std::fs::read_to_string(&path).unwrap();
            (text.matches('\n').count() == 2).then_some(text)
        });
        let text = written.expect("two lines");
        let (of_server, line) = text.trim_end().split_once('\n').unwrap();
        assert!(of_server.contains(r#""actor":"bus""#), "no user has failed: {of_server}");
        let expected = r#""actor":"smb","source":"192.0.2.7:40000","action":"failed logon","target":"anna","outcome":"refused","detail":"wrong password"}"#;
        assert!(line.trim_end().ends_with(expected), "{line}");
    }
}
