//! The end of a run: all files are removed, and then nothing may be left of them, neither in the
//! metadata nor in the pool's space.
//!
//! Owns the progress of that. The keys that a volume keeps of an empty tree, and the chunks that it
//! holds ready for new data, are few and do not depend on its earlier contents.

use super::node::{Node, Slot};
use super::served::Served;
use std::time::Duration;
use types::{FileTime, Monotonic};
use volume::backend::OperationId;
use volume::fs::{Check, FileId, FileSystem, FsError};

/// Most keys of an empty volume: its record and counters, the root directory with its descriptor,
/// and bitmaps of groups.
const KEYS_MAX: u64 = 24;
/// Most chunks of an empty volume: the journal, and those kept for data and for the next checkpoint.
const CHUNKS_MAX: usize = 8;
/// Pause between changes, so that the journal fills and checkpoints follow.
const PAUSE: Duration = Duration::from_millis(50);
/// Entries removed in one turn.
const ENTRIES: usize = 64;
/// First token of these operations, whose answers are ignored.
const FLUSHES: u64 = 1 << 62;

#[derive(Debug, Default)]
pub(crate) struct Emptying {
    wake_at: Monotonic,
    flushes: u64,
    /// The volume that is being emptied; those before it are empty.
    volume: usize,
    /// Counts the remaining keys.
    check: Option<Check>,
    /// Description of what is still left.
    pub why: String,
}

impl Emptying {
    /// Continues. Returns whether all volumes are empty.
    pub fn drive(&mut self, node: &mut Node, thin: &[bool], now: Monotonic) -> bool {
        if now < self.wake_at {
            return self.volume >= thin.len();
        }
        self.wake_at = now.after(PAUSE);
        let Some(is_thin) = thin.get(self.volume).copied() else { return true };
        let id = node.volumes[self.volume].id;
        let chunks = node.slots.iter().filter_map(Slot::store).map(|store| {
            store.with(|store| store.chunks().iter().filter(|chunk| chunk.volume == id).count())
        });
        let chunks = if is_thin { chunks.max().unwrap_or(0) } else { 0 };
        let Some(service) = node.volumes.get_mut(self.volume).and_then(Served::service) else { return false };
        let keys = match self.empty(service.file_system_mut()) {
            Ok(keys) => keys,
            Err(FsError::Miss) => return false,
            Err(error) => {
                self.why = format!("volume {} cannot be emptied: {error}", self.volume);
                return false;
            }
        };
        self.flushes += 1;
        service.make_durable(OperationId(FLUSHES + self.flushes));
        self.why = format!("volume {} has {keys:?} keys and {chunks} chunks, and no file", self.volume);
        if keys.is_some_and(|keys| keys <= KEYS_MAX) && chunks <= CHUNKS_MAX {
            self.volume += 1;
        }
        self.volume >= thin.len()
    }

    /// Removes some of the files, and makes a change for the journal. Once no file is left, returns
    /// the number of keys.
    fn empty(&mut self, fs: &mut FileSystem) -> Result<Option<u64>, FsError> {
        let mut is_empty = true;
        for home in fs.list(FileId::ROOT, None, ENTRIES)? {
            is_empty = false;
            for entry in fs.list(home.file, None, ENTRIES)? {
                remove(fs, home.file, &entry.name)?;
            }
            if fs.is_empty_directory(home.file)? {
                remove(fs, FileId::ROOT, &home.name)?;
            }
        }
        fs.set_label("empty")?;
        if !is_empty {
            return Ok(None);
        }
        let check = self.check.get_or_insert_with(|| Check::new(fs));
        if !check.step(fs, 1000)? {
            return Ok(None);
        }
        let keys = check.report().keys;
        self.check = None;
        Ok(Some(keys))
    }
}

fn remove(fs: &mut FileSystem, parent: FileId, name: &[u16]) -> Result<(), FsError> {
    let gone = fs.unlink(parent, name, FileTime(1))?;
    if gone.last { fs.reclaim(gone.file) } else { Ok(()) }
}
