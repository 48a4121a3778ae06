//! The highest revision that was seen, kept over restarts: an etcd that has less was restored from an old backup.
//!
//! Owns the file. Promises: it is whole, old or new, even if power fails, and its revision was seen. It
//! is behind by [`KEEP_EVERY`] at most, and by nothing after an orderly end.

use records::StateError;
use records::replacing::replace_private;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two writes of the file: a backup is older than that.
pub(super) const KEEP_EVERY: Duration = Duration::from_secs(5);
/// Longer than any number.
const FILE_BYTES_MAX: usize = 32;

pub(super) struct Floor {
    file: PathBuf,
    /// The number in the file.
    kept: Mutex<u64>,
}

impl Floor {
    /// Reads the file; 0 if there is none yet.
    ///
    /// # Errors
    /// [`StateError::Open`]: it cannot be read, or holds no number.
    pub fn open(file: &Path) -> Result<Self, StateError> {
        let failed = |why: &str| StateError::Open(format!("{}: {why}", file.display()));
        let kept = match std::fs::read(file) {
            Ok(bytes) => {
                let text = std::str::from_utf8(&bytes).ok().filter(|text| text.len() <= FILE_BYTES_MAX);
                let number = text.and_then(|text| text.trim_ascii_end().parse().ok());
                number.ok_or_else(|| {
                    failed("it holds no revision; remove it if etcd has all that the cluster ever recorded")
                })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failed(&error.to_string())),
        };
        Ok(Self { file: file.to_owned(), kept: Mutex::new(kept) })
    }

    pub fn kept(&self) -> u64 {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a higher revision than the file has. Blocks.
    ///
    /// # Errors
    /// Those of the file; it is as it was.
    pub fn keep(&self, revision: u64) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if revision <= *kept {
            return Ok(());
        }
        replace_private(&self.file, format!("{revision}\n").as_bytes())?;
        *kept = revision;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_kept_and_never_a_lower_one_and_rubbish_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("etcd.seen");
        let floor = Floor::open(&file).unwrap();
        assert_eq!(floor.kept(), 0);
        floor.keep(u64::MAX - 1).unwrap();
        floor.keep(7).unwrap();
        assert_eq!(Floor::open(&file).unwrap().kept(), u64::MAX - 1);
        for rubbish in ["", "x", "-1", "1 2", &"1".repeat(1000)] {
            std::fs::write(&file, rubbish).unwrap();
            let why = Floor::open(&file).err().unwrap().to_string();
            assert!(why.contains("etcd.seen") && why.contains("no revision"), "{why}");
        }
        let nowhere = Floor::open(&directory.path().join("missing/etcd.seen")).unwrap();
        assert!(nowhere.keep(1).is_err() && nowhere.kept() == 0);
    }
}
