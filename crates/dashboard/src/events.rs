//! The newest lines of the audit log, for the page of events.
//!
//! Promises: reads a bounded part of the file's end, and leaves out text that is no line of it.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes read at the file's end.
const BYTES_MAX: u64 = 512 << 10;
const EVENTS_MAX: usize = 1000;

/// A line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    pub unix_s: u64,
    pub actor: String,
    pub source: String,
    pub action: String,
    pub target: String,
    pub outcome: String,
    #[serde(default)]
    pub detail: String,
}

/// The newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditEvents {
    pub events: Vec<AuditLine>,
    /// The file has older ones.
    pub is_cut: bool,
}

/// # Errors
/// Errors of reading the file.
pub fn newest(path: &Path) -> io::Result<AuditEvents> {
    let mut file = File::open(path)?;
    let begin = file.metadata()?.len().saturating_sub(BYTES_MAX);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(events_of(&bytes, begin > 0))
}

fn events_of(bytes: &[u8], is_cut: bool) -> AuditEvents {
    // A line that begins before the part is left out, as one that was torn is.
    let lines = bytes.split(|byte| *byte == b'\n').rev();
    let mut events: Vec<AuditLine> =
        lines.filter_map(|line| serde_json::from_slice(line).ok()).take(EVENTS_MAX + 1).collect();
    let is_cut = is_cut || events.len() > EVENTS_MAX;
    events.truncate(EVENTS_MAX);
    AuditEvents { events, is_cut }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::audit::{AuditEvent, AuditLog, Outcome};

    #[test]
    fn lines_that_the_audit_log_wrote_are_read_the_newest_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        for unix_s in 1..=3 {
            let (source, detail) = ("127.0.0.1:5", if unix_s == 2 { "why" } else { "" });
            let (action, target) = ("volume delete", "demo");
            let outcome = if unix_s == 2 { Outcome::Refused } else { Outcome::Done };
            log.write(&AuditEvent { unix_s, actor: "api", source, action, target, outcome, detail }).unwrap();
        }
        let found = newest(&path).unwrap();
        assert_eq!(found.events.iter().map(|event| event.unix_s).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!((found.events[1].outcome.as_str(), found.events[1].detail.as_str()), ("refused", "why"));
        assert!(!found.is_cut);
    }

    #[test]
    fn what_is_no_line_is_left_out_and_a_long_file_is_cut() {
        let line = |unix_s: usize| {
            format!(
                "{{\"unix_s\":{unix_s},\"actor\":\"api\",\"source\":\"\",\"action\":\"a\",\"target\":\"\",\"outcome\":\"done\"}}\n"
            )
        };
        let text = format!("half a line\"}}\n{}\u{0}\u{0}torn{{\n{}", line(1), line(2));
        assert_eq!(events_of(text.as_bytes(), false).events.len(), 2);
        let long: String = (0..EVENTS_MAX + 5).map(line).collect();
        let found = events_of(long.as_bytes(), false);
        assert_eq!(
            (found.events.len(), found.is_cut, found.events[0].unix_s),
            (EVENTS_MAX, true, EVENTS_MAX as u64 + 4)
        );
    }
}
