//! A database that is opened again after an I/O error.
//!
//! redb keeps an error for good, since it cannot know what of its last commit reached the medium. Opening the file anew answers
//! that, in three steps:
//!
//! 1. **The file is written again as it reads, and synced.** The kernel forgets a page that it failed
//!    to write: it reads as if it were on the medium, and a later sync does not write it. A power loss
//!    would then leave older contents than were read meanwhile. Writing the same bytes again makes the
//!    medium hold what is read. A crash on the way leaves each page old or new: redb has synced the
//!    pages of a commit before it writes the header that points to them, and until then nothing does.
//! 2. **redb opens it**, checks every page against its checksum and takes the last whole commit.
//! 3. **A commit is made**, which finds out whether the file takes any: with a full file system it does not, and the next try
//!    follows after a pause.
//!
//! A file that is missing, empty or holds an older revision than was committed is not this state: it is not used, and the
//! trouble says so.

use super::{MakeDatabase, prepare};
use crate::clock::unix_now_s;
use crate::{StateDump, StateError, StatePlace, StateTrouble};
use redb::Database;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak, mpsc};
use std::time::Duration;

/// Size of the pieces in which the file is written again.
const PIECE_BYTES: usize = 64 << 10;

/// Between tries to open the database: the first one, and the longest, which half of a minute of an outage grows to.
pub(super) struct Pauses {
    pub min: Duration,
    pub max: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { min: Duration::from_millis(100), max: Duration::from_secs(10) }
    }
}

#[derive(Default)]
struct Held {
    /// How often it was opened.
    generation: u64,
    /// `None`: an error closed it.
    database: Option<Database>,
}

/// See the module.
pub(super) struct Reopened {
    path: PathBuf,
    make: Box<MakeDatabase>,
    held: RwLock<Held>,
    revision: AtomicU64,
    trouble: Mutex<Option<StateTrouble>>,
    /// Tells the thread that the database was closed.
    closed: mpsc::Sender<()>,
}

impl Reopened {
    /// # Errors
    /// [`StateError::Open`].
    pub fn open(path: &Path, make: Box<MakeDatabase>, pauses: Pauses) -> Result<Arc<Self>, StateError> {
        let failed = |error: &dyn Display| StateError::Open(format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let database = make(file.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
        let dump = prepare(&database).map_err(|error| failed(&error))?;
        let (closed, hear) = mpsc::channel();
        let state = Arc::new(Self {
            path: path.to_owned(),
            make,
            held: RwLock::new(Held { generation: 1, database: Some(database) }),
            revision: AtomicU64::new(dump.revision),
            trouble: Mutex::default(),
            closed,
        });
        let weak = Arc::downgrade(&state);
        let thread = std::thread::Builder::new().name("cluster-reopen".into());
        thread
            .spawn(move || reopen_when_closed(&weak, &hear, &pauses))
            .map_err(|error| failed(&format!("no thread for it: {error}")))?;
        Ok(state)
    }

    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// A commit is durable.
    pub fn committed(&self, revision: u64) {
        self.revision.fetch_max(revision, Ordering::AcqRel);
    }

    pub fn trouble(&self) -> Option<StateTrouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Works on the database; after an error of its file it is closed, and opened again by the thread.
    ///
    /// # Errors
    /// [`StateError::Unknown`]: the work failed, or the database is closed.
    pub fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, StateError> {
        let (generation, error) = {
            let held = self.held();
            let Some(database) = &held.database else {
                let why = self.trouble().map_or_else(String::new, |trouble| trouble.why);
                return Err(StateError::Unknown(why));
            };
            match work(database) {
                Ok(done) => return Ok(done),
                Err(error) => (held.generation, error),
            }
        };
        if is_of_the_file(&error) {
            self.close(generation, &error);
        }
        Err(StateError::Unknown(error.to_string()))
    }

    /// Never poisoned for long: nothing that can panic runs under the lock for writing but the end of a database.
    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, generation: u64, error: &redb::Error) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.generation != generation || held.database.is_none() {
            return;
        }
        let trouble = StateTrouble {
            place: StatePlace::File(self.path.clone()),
            why: error.to_string(),
            since_unix_s: unix_now_s(),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
        held.database = None;
        // Fails only if the thread is gone, which lives as long as this.
        let _ = self.closed.send(());
    }

    fn open_again(&self) -> Result<(), String> {
        let failed = |error: &dyn Display| error.to_string();
        let file = OpenOptions::new().read(true).write(true).open(&self.path);
        let file = file.map_err(|error| failed(&error))?;
        write_again(&file).map_err(|error| failed(&error))?;
        let database = (self.make)(file).map_err(|error| failed(&error))?;
        let StateDump { revision, .. } = prepare(&database).map_err(|error| failed(&error))?;
        let known = self.revision();
        if revision < known {
            return Err(format!(
                "the file is at revision {revision}, and {known} was committed: it was replaced by an older one"
            ));
        }
        self.committed(revision);
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        assert!(held.database.is_none(), "one thread opens, and only what was closed");
        *held = Held { generation: held.generation + 1, database: Some(database) };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn note_failure(&self, first: &str, why: &str) {
        if let Some(trouble) = &mut *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) {
            trouble.why = format!("{first}; opening it again: {why}");
        }
    }
}

/// Ends with the state.
fn reopen_when_closed(state: &Weak<Reopened>, closed: &mpsc::Receiver<()>, pauses: &Pauses) {
    for () in closed {
        let first =
            state.upgrade().and_then(|state| state.trouble()).map_or_else(String::new, |found| found.why);
        let mut pause = pauses.min;
        loop {
            std::thread::sleep(pause);
            pause = (pause * 2).min(pauses.max);
            let Some(state) = state.upgrade() else { return };
            match state.open_again() {
                Ok(()) => break,
                Err(why) => state.note_failure(&first, &why),
            }
        }
    }
}

/// Whether an error may have left the database refusing all work. Others are the request's own.
fn is_of_the_file(error: &redb::Error) -> bool {
    use redb::Error;
    matches!(
        error,
        Error::Io(_)
            | Error::PreviousIo
            | Error::DatabaseClosed
            | Error::Corrupted(_)
            | Error::LockPoisoned(_)
            | Error::TransactionPoisoned
    )
}

/// Writes the file over itself and syncs it. Blocks of zeroes are left out: none of redb's pages is one, and a hole stays one.
fn write_again(file: &File) -> io::Result<()> {
    let len_bytes = file.metadata()?.len();
    if len_bytes == 0 {
        return Err(io::Error::other("the file is empty: it was replaced, or cut off"));
    }
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < len_bytes {
        let count = (len_bytes - at).min(PIECE_BYTES as u64) as usize;
        file.read_exact_at(&mut piece[..count], at)?;
        for (index, block) in piece[..count].chunks(types::BLOCK_BYTES).enumerate() {
            if block.iter().any(|&byte| byte != 0) {
                file.write_all_at(block, at + (index * types::BLOCK_BYTES) as u64)?;
            }
        }
        at += count as u64;
    }
    file.sync_all()
}
