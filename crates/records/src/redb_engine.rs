//! The state of one node in an embedded redb database.
//!
//! Every commit is durable before it is answered. `quick_repair` keeps the allocator's state in each commit, so that
//! opening after a crash does not read the whole file. A commit that fails half-way is answered `Unknown`: whether it is
//! there is known only after the file was opened again.
//!
//! redb refuses all work after one I/O error. [`RedbState`] then closes the database and opens it again, on a thread of its own
//! and as often as it takes: `reopening` says how. Until it is open every request is answered `Unknown` at once, and
//! [`EngineState::trouble`] says why.

mod reopening;

use crate::{
    Answer, BlockingState, Change, EngineState, Request, StateDump, StateError, StateTrouble, Transaction,
    Versioned,
};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use reopening::{Pauses, Reopened};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Key to (revision, value).
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// The one row `revision`: the revision of the last commit.
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";

/// Makes a database of an open file; it must be one already, or empty.
type MakeDatabase = dyn Fn(File) -> Result<Database, DatabaseError> + Send + Sync;

/// A redb state. Cloning shares it; any thread may use it.
#[derive(Clone)]
pub struct RedbState {
    database: Arc<Reopened>,
}

impl RedbState {
    /// Opens or creates the database file.
    ///
    /// # Errors
    /// [`StateError::Open`] if the file cannot be opened, is no such database or a damaged one, or another process has it open.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        Self::open_with(path, Box::new(database_of), Pauses::default())
    }

    fn open_with(path: &Path, make: Box<MakeDatabase>, pauses: Pauses) -> Result<Self, StateError> {
        Ok(Self { database: Reopened::open(path, make, pauses)? })
    }

    /// As if the file failed now; for tests of what is above.
    pub fn fail(&self, why: &str) {
        let failed = |_: &Database| Err::<(), _>(redb::Error::Io(std::io::Error::other(why.to_owned())));
        let _ = self.database.with(failed);
    }
}

/// The integrity of a file that a crash or an error left is checked, since redb would trust it: the state is small.
fn database_of(file: File) -> Result<Database, DatabaseError> {
    builder().create_with_backend(FileBackend::new(file)?)
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_check_integrity_on_open(true);
    builder
}

/// Makes the tables if they are missing, and proves with a commit of its own that the database takes commits.
fn prepare(database: &Database) -> Result<StateDump, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(ENTRIES)?;
    {
        let mut counters = transaction.open_table(COUNTERS)?;
        let revision = counters.get(REVISION)?.map_or(0, |entry| entry.value());
        counters.insert(REVISION, revision)?;
    }
    transaction.commit()?;
    read_all(database)
}

fn read_all(database: &Database) -> Result<StateDump, redb::Error> {
    let transaction = database.begin_read()?;
    let revision = transaction.open_table(COUNTERS)?.get(REVISION)?.map_or(0, |entry| entry.value());
    let mut entries = Vec::new();
    for entry in transaction.open_table(ENTRIES)?.iter()? {
        let (key, value) = entry?;
        entries.push((key.value().to_owned(), value.value().1.to_vec()));
    }
    Ok(StateDump { revision, entries })
}

fn answer(database: &Database, request: &Request) -> Result<Answer, redb::Error> {
    match request {
        Request::Get { key } => {
            let table = database.begin_read()?.open_table(ENTRIES)?;
            let found = table.get(key.as_str())?.map(|entry| versioned(entry.value()));
            Ok(Answer::Value(found))
        }
        Request::List { prefix } => {
            let table = database.begin_read()?.open_table(ENTRIES)?;
            let mut listed = Vec::new();
            for entry in table.range(prefix.as_str()..)? {
                let (key, value) = entry?;
                if !key.value().starts_with(prefix.as_str()) {
                    break;
                }
                listed.push((key.value().to_owned(), versioned(value.value())));
            }
            Ok(Answer::Listed(listed))
        }
        Request::Commit(transaction) => commit(database, transaction),
    }
}

fn commit(database: &Database, wanted: &Transaction) -> Result<Answer, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
    let revision;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for condition in &wanted.conditions {
            let found = entries.get(condition.key.as_str())?.map_or(0, |entry| entry.value().0);
            if found != condition.revision {
                return Ok(Answer::Conflict);
            }
        }
        let mut counters = transaction.open_table(COUNTERS)?;
        revision = counters.get(REVISION)?.map_or(0, |entry| entry.value()) + 1;
        counters.insert(REVISION, revision)?;
        for change in &wanted.changes {
            match change {
                Change::Put { key, value } => {
                    entries.insert(key.as_str(), (revision, value.as_slice()))?;
                }
                Change::Delete { key } => {
                    entries.remove(key.as_str())?;
                }
            }
        }
    }
    transaction.commit()?;
    Ok(Answer::Committed { revision })
}

impl BlockingState for RedbState {
    fn call(&self, request: Request) -> Result<Answer, StateError> {
        let answered = self.database.with(|database| answer(database, &request))?;
        if let Answer::Committed { revision } = answered {
            self.database.committed(revision);
        }
        Ok(answered)
    }
}

impl EngineState for RedbState {
    fn revision(&self) -> u64 {
        self.database.revision()
    }

    fn trouble(&self) -> Option<StateTrouble> {
        self.database.trouble()
    }

    fn dump(&self) -> Result<StateDump, StateError> {
        self.database.with(read_all)
    }
}

fn versioned((revision, value): (u64, &[u8])) -> Versioned {
    Versioned { revision, value: value.to_vec() }
}

#[cfg(test)]
mod tests;
