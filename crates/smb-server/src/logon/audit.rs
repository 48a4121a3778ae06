//! Failed and delayed logons for the audit log, at any rate.
//!
//! Promises: names from the wire are bounded and without control characters; logons without their own
//! entry are counted, and each minute ends with their number ([`LineLedger`]); entries that nobody
//! fetches are bounded. Never holds passwords, hashes or tokens.

use std::net::SocketAddr;
use std::time::Duration;
use types::{LeftOut, LineLedger, Monotonic};

const MINUTE: Duration = Duration::from_secs(60);
/// Lines that wait to be fetched: more than one minute yields.
const LINES_MAX: usize = 256;
/// Characters of a user's name that are shown.
const NAME_CHARACTERS_MAX: usize = 64;

/// The fate of a logon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogonAction {
    /// The logon was answered with an error after its credential was examined.
    Failed,
    /// The password is checked later.
    Delayed,
    /// The password is not checked.
    Refused,
    /// A number of logons without their own entry.
    LeftOut,
}

impl LogonAction {
    /// Names the action as the audit log does.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed logon",
            Self::Delayed => "delayed logon",
            Self::Refused => "refused logon",
            Self::LeftOut => "logons left out",
        }
    }
}

/// One entry for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogonLine {
    /// Fate of the logon.
    pub action: LogonAction,
    /// The user's name in the client's spelling; empty if the client named none.
    pub user: String,
    /// The client's address.
    pub source: String,
    /// Reason in words; for [`LogonAction::LeftOut`] the number of logons.
    pub detail: String,
}

#[derive(Default)]
pub(crate) struct LogonAudit {
    ledger: LineLedger,
    lines: Vec<LogonLine>,
}

impl LogonAudit {
    pub fn note(
        &mut self,
        action: LogonAction,
        user: Option<&str>,
        peer: SocketAddr,
        detail: String,
        now: Monotonic,
    ) {
        self.turn(now);
        if !self.ledger.note(peer.ip().into()) {
            return;
        }
        let user = shown(user.unwrap_or_default());
        tracing::info!(user, %peer, detail, "{}", action.name());
        self.push(LogonLine { action, user, source: peer.to_string(), detail });
    }

    /// Writes the entries of past minutes.
    pub fn turn(&mut self, now: Monotonic) {
        for left_out in self.ledger.turn(now.0 / MINUTE.as_nanos() as u64) {
            self.tell(&left_out);
        }
    }

    fn tell(&mut self, left_out: &LeftOut) {
        self.push(LogonLine {
            action: LogonAction::LeftOut,
            user: String::new(),
            source: left_out.source(),
            detail: format!("{} more in the same minute", left_out.count),
        });
    }

    fn push(&mut self, line: LogonLine) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        } else {
            tracing::warn!(source = line.source, "a line for the audit log is lost: nobody fetches them");
        }
    }

    /// Returns when [`Self::turn`] will have entries to report.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        Some(Monotonic((self.ledger.counted_minute()? + 1) * MINUTE.as_nanos() as u64))
    }

    /// Takes the entries.
    pub fn take(&mut self) -> Vec<LogonLine> {
        std::mem::take(&mut self.lines)
    }
}

/// A name from the wire, for people: characters that could change how a log reads are escaped.
fn shown(name: &str) -> String {
    let mut shown = String::new();
    for character in name.chars().take(NAME_CHARACTERS_MAX) {
        match character {
            '"' | '\'' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    if name.chars().nth(NAME_CHARACTERS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, LogonAction, LogonAudit, shown};
    use std::time::Duration;
    use types::Monotonic;

    #[test]
    fn a_name_is_bounded_and_cannot_forge_a_line() {
        assert_eq!(shown("O'Hara"), "O'Hara");
        assert_eq!(shown("a\n\\{\u{202E}\u{1B}[2J"), r"a\n\\{\u{202e}\u{1b}[2J");
        assert_eq!(shown(&"x".repeat(10_000)), "x".repeat(64) + "...");
    }

    #[test]
    fn guesses_without_end_are_few_lines_and_a_number_each_minute() {
        let mut audit = LogonAudit::default();
        let peer = "192.0.2.7:40000".parse().unwrap();
        let mut now = Monotonic(1);
        for _ in 0..1000 {
            audit.note(LogonAction::Failed, Some("anna"), peer, "wrong password".into(), now);
        }
        assert_eq!(audit.take().len(), 10);
        now = audit.next_timeout().unwrap();
        audit.turn(now);
        let told = audit.take();
        assert_eq!((told.len(), told[0].action), (1, LogonAction::LeftOut));
        assert_eq!((&*told[0].source, &*told[0].detail), ("192.0.2.7", "990 more in the same minute"));
        assert_eq!(audit.next_timeout(), None);
    }

    #[test]
    fn lines_that_nobody_fetches_are_bounded() {
        let mut audit = LogonAudit::default();
        for minute in 0..1000 {
            let now = Monotonic(1).after(Duration::from_secs(60 * minute));
            let peer = "192.0.2.7:40000".parse().unwrap();
            audit.note(LogonAction::Refused, None, peer, String::new(), now);
        }
        assert_eq!(audit.take().len(), LINES_MAX);
    }
}
