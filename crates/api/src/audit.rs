//! The audit log: administrators' actions, refusals, and failed logons; a JSON object a line.
//!
//! Owns one file of mode 0600 and its predecessors (`NAME.1` is the youngest). Promises: an entry is
//! written whole or not at all, before the answer to the action. Its length is bounded, so that a few
//! long entries cannot push out those of others. A full or failing file system costs only the entries
//! of that time. Never holds secrets: callers name targets, not contents.

use serde::Serialize;
use std::borrow::Cow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Size at which the file is rotated.
const FILE_BYTES_MAX: u64 = 16 << 20;
const PREDECESSORS: u32 = 4;
/// Limit of characters of an actor, a source and an action, which are short unless somebody probes
/// their length.
const WORD_CHARACTERS_MAX: usize = 100;
/// Most characters of a target: a path of ordinary length.
const TARGET_CHARACTERS_MAX: usize = 300;
const DETAIL_CHARACTERS_MAX: usize = 500;

/// Outcome of an audited action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The action was carried out.
    Done,
    /// Not permitted.
    Refused,
    /// The action was permitted and ended by an error.
    Failed,
}

/// One entry.
#[derive(Debug, Clone, Serialize)]
pub struct AuditEvent<'a> {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub unix_s: u64,
    /// `api` for the holder of the server's token file, `api:NAME` for that of a named token, or `smb` for
    /// a client that has not proved its user.
    pub actor: &'a str,
    /// The client's address, such as 127.0.0.1:40112.
    pub source: &'a str,
    /// The action, such as `volume delete`.
    pub action: &'a str,
    /// Object of the action, such as a volume's name; cut after 300 characters.
    pub target: &'a str,
    /// Whether the action was done, refused or failed.
    pub outcome: Outcome,
    /// Reason of a refusal or failure, or details; empty: none. Truncated after 500 characters.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: &'a str,
}

impl AuditEvent<'_> {
    /// Makes the event as written to the file.
    fn bounded(&self) -> BoundedEvent<'_> {
        BoundedEvent {
            unix_s: self.unix_s,
            actor: cut(self.actor, WORD_CHARACTERS_MAX),
            source: cut(self.source, WORD_CHARACTERS_MAX),
            action: cut(self.action, WORD_CHARACTERS_MAX),
            target: cut(self.target, TARGET_CHARACTERS_MAX),
            outcome: self.outcome,
            detail: cut(self.detail, DETAIL_CHARACTERS_MAX),
        }
    }
}

/// An [`AuditEvent`] of bounded length.
#[derive(Serialize)]
struct BoundedEvent<'a> {
    unix_s: u64,
    actor: Cow<'a, str>,
    source: Cow<'a, str>,
    action: Cow<'a, str>,
    target: Cow<'a, str>,
    outcome: Outcome,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: Cow<'a, str>,
}

/// Truncates a long text, and appends its length.
fn cut(text: &str, characters_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters_max) {
        None => text.into(),
        Some((at, _)) => {
            let beginning = text.get(..at).unwrap_or_default();
            format!("{beginning}... ({} bytes)", text.len()).into()
        }
    }
}

/// The audit log's open file; threads write to it one at a time.
pub struct AuditLog {
    path: PathBuf,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    len_bytes: u64,
    /// Part of an entry may follow behind `len_bytes`.
    is_torn: bool,
    trouble: Option<AuditTrouble>,
}

/// Why entries are missing, until the next successful write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditTrouble {
    /// Path of the log's file.
    pub path: PathBuf,
    /// Error of the last write that failed.
    pub why: String,
    /// Time of the first missing entry, in seconds since 1970-01-01 00:00 UTC.
    pub since_unix_s: u64,
    /// Lines that could not be written since then.
    pub lost: u64,
}

impl AuditLog {
    /// # Errors
    /// Those of opening the file for appending.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), open: Mutex::new(append_to(path)?) })
    }

    /// # Errors
    /// Those of writing to the file: the entry is missing.
    pub fn write(&self, event: &AuditEvent<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(&event.bounded())?;
        line.push(b'\n');
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Entries in a removed or renamed file would be lost, or never found.
        if !open.is_at(&self.path)
            && let Ok(fresh) = append_to(&self.path)
        {
            let path = self.path.display();
            tracing::warn!(%path, "the audit log was removed or renamed by another program: it is made anew");
            *open = Open { trouble: open.trouble.take(), ..fresh };
        }
        // A file that cannot be rotated grows beyond its limit: better than no entries.
        if open.len_bytes >= FILE_BYTES_MAX
            && let Ok(fresh) = self.put_aside().and_then(|()| append_to(&self.path))
        {
            *open = Open { trouble: open.trouble.take(), ..fresh };
        }
        let written = open.append(&line);
        match &written {
            Ok(()) => open.trouble = None,
            Err(error) => {
                let trouble = open.trouble.get_or_insert_with(|| AuditTrouble {
                    path: self.path.clone(),
                    why: String::new(),
                    since_unix_s: event.unix_s,
                    lost: 0,
                });
                trouble.why = error.to_string();
                trouble.lost += 1;
            }
        }
        written
    }

    /// Returns why the last entry is missing, if it is; reads no disk.
    pub fn trouble(&self) -> Option<AuditTrouble> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    fn put_aside(&self) -> io::Result<()> {
        // No file: an earlier attempt put it aside and could then make no new one.
        if !self.path.try_exists()? {
            return Ok(());
        }
        let predecessor = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..PREDECESSORS).rev() {
            match std::fs::rename(predecessor(number), predecessor(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, predecessor(1))
    }
}

impl Open {
    /// Whether the path still leads to the file.
    fn is_at(&self, path: &Path) -> bool {
        let name = |found: Metadata| (found.dev(), found.ino());
        match (self.file.metadata().map(name), std::fs::metadata(path).map(name)) {
            (Ok(own), Ok(found)) => own == found,
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        // The torn part of a failed write would make this line unreadable.
        if self.is_torn {
            self.file.set_len(self.len_bytes)?;
            self.is_torn = false;
        }
        self.is_torn = true;
        self.file.write_all(line)?;
        self.is_torn = false;
        self.len_bytes += line.len() as u64;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let len_bytes = file.metadata()?.len();
    Ok(Open { file, len_bytes, is_torn: false, trouble: None })
}

#[cfg(test)]
mod tests {
    use super::{AuditEvent, AuditLog, Outcome};

    fn event(target: &str) -> AuditEvent<'_> {
        let (actor, source, action) = ("api", "127.0.0.1:1", "volume delete");
        AuditEvent { unix_s: 7, actor, source, action, target, outcome: Outcome::Done, detail: "" }
    }

    #[test]
    fn a_line_that_was_cut_off_is_taken_away_and_told_until_one_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        log.write(&event("first")).unwrap();
        {
            // As a full file system leaves it.
            let mut open = log.open.lock().unwrap();
            std::io::Write::write_all(&mut open.file, b"{\"unix_s\":7,\"act").unwrap();
            open.is_torn = true;
            open.file = std::fs::File::open(&path).unwrap();
        }
        assert!(log.write(&event("lost")).is_err());
        assert!(log.write(&event("lost")).is_err());
        let trouble = log.trouble().unwrap();
        assert_eq!((trouble.lost, trouble.since_unix_s), (2, 7));
        log.open.lock().unwrap().file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        log.write(&event("second")).unwrap();
        assert_eq!(log.trouble(), None);
        let text = std::fs::read_to_string(&path).unwrap();
        let targets = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let targets: Vec<String> = targets.map(|line| line["target"].as_str().unwrap().to_owned()).collect();
        assert_eq!(targets, ["first", "second"]);
    }

    #[test]
    fn a_log_that_another_program_removes_or_renames_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        log.write(&event("first")).unwrap();
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        log.write(&event("second")).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("second"));
        std::fs::remove_file(&path).unwrap();
        log.write(&event("third")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("third") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_line_is_bounded_and_tells_how_long_what_it_names_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        let long = "\u{1}ä".repeat(30_000);
        let (actor, source, action) = (&*long, &*long, &*long);
        let event = AuditEvent {
            unix_s: 7,
            actor,
            source,
            action,
            target: &long,
            outcome: Outcome::Failed,
            detail: &long,
        };
        log.write(&event).unwrap();
        log.write(&super::tests::event("short")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() < 8 << 10, "{} bytes", text.len());
        let targets = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let targets: Vec<String> = targets.map(|line| line["target"].as_str().unwrap().to_owned()).collect();
        assert!(targets[0].ends_with("... (90000 bytes)") && targets[1] == "short", "{targets:?}");
    }

    #[test]
    fn a_log_that_cannot_be_put_aside_takes_lines_on_and_loses_no_predecessor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        let first = directory.path().join("audit.log.1");
        std::fs::write(&first, "the youngest predecessor\n").unwrap();
        log.open.lock().unwrap().len_bytes = super::FILE_BYTES_MAX;
        // The file is rotated, and a new one cannot be made.
        std::fs::rename(&path, directory.path().join("aside")).unwrap();
        std::os::unix::fs::symlink(directory.path().join("nothing/audit.log"), &path).unwrap();
        log.write(&event("on")).unwrap();
        log.write(&event("and on")).unwrap();
        assert_eq!(std::fs::read_to_string(directory.path().join("aside")).unwrap().lines().count(), 2);
        assert_eq!(std::fs::read_to_string(first).unwrap(), "the youngest predecessor\n");
    }

    #[test]
    fn an_audit_line_is_one_json_object_and_an_old_file_is_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let event = AuditEvent {
            unix_s: 1,
            actor: "api",
            source: "127.0.0.1:1",
            action: "share delete",
            target: "a\n\"b\"",
            outcome: Outcome::Refused,
            detail: "",
        };
        let log = AuditLog::open(&path).unwrap();
        log.write(&event).unwrap();
        log.write(&event).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["target"], "a\n\"b\"");
            assert_eq!(value["outcome"], "refused");
        }
        drop(log);
        std::fs::write(&path, vec![b' '; 16 << 20]).unwrap();
        let log = AuditLog::open(&path).unwrap();
        log.write(&event).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
        assert_eq!(std::fs::metadata(directory.path().join("audit.log.1")).unwrap().len(), 16 << 20);
    }
}
