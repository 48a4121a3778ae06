//! The audit log: what administrators did, what was refused, and whose logon failed; a JSON object a line.
//!
//! Owns one file of mode 0600 and its predecessors (`NAME.1` is the youngest). Promises: a line is written whole, before the
//! action is answered. Never holds secrets: callers name targets, not contents.

use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file that has reached it is put aside.
const FILE_BYTES_MAX: u64 = 16 << 20;
const PREDECESSORS: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    /// Not permitted.
    Refused,
    Failed,
}

/// One line.
#[derive(Debug, Clone, Serialize)]
pub struct AuditEvent<'a> {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub unix_s: u64,
    /// Who: `api`, or `smb` for a client that has not proved who it is.
    pub actor: &'a str,
    /// From where, such as 127.0.0.1:40112.
    pub source: &'a str,
    /// Such as `volume delete`.
    pub action: &'a str,
    pub target: &'a str,
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: &'a str,
}

pub struct AuditLog {
    path: PathBuf,
    file: Mutex<(File, u64)>,
}

impl AuditLog {
    /// # Errors
    /// Those of opening the file for appending.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: Mutex::new(append_to(path)?) })
    }

    /// # Errors
    /// Those of writing to the file.
    pub fn write(&self, event: &AuditEvent<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.1 >= FILE_BYTES_MAX {
            self.put_aside()?;
            *file = append_to(&self.path)?;
        }
        file.0.write_all(&line)?;
        file.1 += line.len() as u64;
        Ok(())
    }

    fn put_aside(&self) -> io::Result<()> {
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

fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let len_bytes = file.metadata()?.len();
    Ok((file, len_bytes))
}
