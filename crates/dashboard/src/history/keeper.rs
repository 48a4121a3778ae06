//! The history's file: read once, written by a thread of its own, so that a file system that hangs holds nothing else up.

use super::{Columns, FILE_BYTES, HEADER_BYTES, History, POINT_BYTES, Point, Span};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Points that wait for a file system which is slow; more are kept in memory only.
const WAITING_MAX: usize = 64;

/// The history, in memory and in its file.
pub struct Keeper {
    history: Mutex<History>,
    /// `None`: there is no file.
    writer: Option<SyncSender<(u64, [u8; POINT_BYTES])>>,
}

impl Keeper {
    /// Opens the file, or makes one; leaves out unreadable points. `now_unix_s`: for the log.
    pub fn open(path: &Path, now_unix_s: u64) -> Self {
        let opened = open(path).and_then(|(file, history)| {
            let (writer, points) = sync_channel(WAITING_MAX);
            let name = "cenote-history".to_owned();
            std::thread::Builder::new().name(name).spawn(move || write(&file, &points))?;
            Ok((history, writer))
        });
        let (history, writer) = match opened {
            Ok((history, writer)) => (history, Some(writer)),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the dashboard's history is kept in memory only");
                (History::default(), None)
            }
        };
        let points = history.columns(Span::Month, now_unix_s).at_unix_s.len();
        tracing::debug!(points, "history of the last month");
        Self { history: Mutex::new(history), writer }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, span: Span, point: Point) {
        let written = self.history().put(span, point);
        if let Some(writer) = &self.writer {
            // A file that does not take it in time lacks a point.
            let _ = writer.try_send(written);
        }
    }

    pub fn columns(&self, span: Span, now_unix_s: u64) -> Columns {
        self.history().columns(span, now_unix_s)
    }
}

fn open(path: &Path) -> io::Result<(File, History)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut bytes = Vec::new();
    (&file).take(FILE_BYTES as u64).read_to_end(&mut bytes)?;
    let history = History::parse(&bytes);
    let is_known = bytes.get(..HEADER_BYTES) == Some(&History::header()[..]);
    if !is_known {
        // An earlier version, or something else: its readable points are written anew, the header last.
        let whole = history.to_bytes();
        let (header, points) = whole.split_at(HEADER_BYTES);
        file.set_len(0)?;
        file.write_all_at(points, HEADER_BYTES as u64)?;
        file.write_all_at(header, 0)?;
    } else if file.metadata()?.len() != FILE_BYTES as u64 {
        file.set_len(FILE_BYTES as u64)?;
    }
    Ok((file, history))
}

fn write(file: &File, points: &Receiver<(u64, [u8; POINT_BYTES])>) {
    let mut is_told = false;
    for (at, bytes) in points {
        match file.write_all_at(&bytes, at) {
            Ok(()) => is_told = false,
            Err(error) if !is_told => {
                tracing::warn!(%error, "the dashboard's history is not written");
                is_told = true;
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::SERIES;

    const NOW: u64 = 1_800_000_000;

    fn put(keeper: Keeper, at_unix_s: u64) {
        keeper.put(Span::Hour, Point { at_unix_s, values: [1.0; SERIES.len()] });
    }

    /// Waits for the thread of a keeper that is gone.
    fn points(path: &Path, wanted: usize) -> Vec<u64> {
        for _ in 0..200 {
            let found = History::parse(&std::fs::read(path).unwrap()).columns(Span::Hour, NOW).at_unix_s;
            if found.len() == wanted {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Vec::new()
    }

    #[test]
    fn the_history_survives_a_restart_in_a_file_that_does_not_grow() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.bin");
        put(Keeper::open(&path, NOW), NOW - 2);
        assert_eq!(points(&path, 1), [NOW - 2]);
        let keeper = Keeper::open(&path, NOW);
        assert_eq!(keeper.columns(Span::Hour, NOW).at_unix_s, [NOW - 2]);
        put(keeper, NOW - 1);
        assert_eq!(points(&path, 2), [NOW - 2, NOW - 1]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
    }

    #[test]
    fn a_file_of_something_else_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.bin");
        std::fs::write(&path, vec![7; 3 * FILE_BYTES]).unwrap();
        put(Keeper::open(&path, NOW), NOW);
        assert_eq!(points(&path, 1), [NOW]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
    }

    #[test]
    fn without_a_file_it_is_kept_in_memory() {
        let keeper = Keeper::open(Path::new("/nowhere/history.bin"), NOW);
        keeper.put(Span::Hour, Point { at_unix_s: NOW, values: [1.0; SERIES.len()] });
        assert_eq!(keeper.columns(Span::Hour, NOW).at_unix_s, [NOW]);
    }
}
