//! One I/O error anywhere, and a full file system: the state opens again, and says so until then.

use super::reopening::Pauses;
use super::{RedbState, builder};
use crate::{Answer, BlockingState, EngineState, Request, StateError, Transaction};
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Faults that the file is to show.
#[derive(Debug, Default)]
struct Faults {
    /// The I/O that many from now fails; below 0: none.
    fails_in: AtomicI64,
    /// Every write fails with ENOSPC.
    is_full: AtomicBool,
}

impl Faults {
    fn io(&self) -> io::Result<()> {
        match self.fails_in.fetch_sub(1, Ordering::SeqCst) {
            0 => Err(io::Error::from_raw_os_error(5)),
            _ => Ok(()),
        }
    }

    fn room(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: FileBackend,
    faults: Arc<Faults>,
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.faults.io()?;
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.io()?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.faults.io()?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.io()?;
        self.faults.room()?;
        self.file.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
    fn try_lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, redb::BackendError> {
        self.file.try_lock_range(start, end)
    }
}

fn state(path: &Path, faults: &Arc<Faults>) -> RedbState {
    faults.fails_in.store(-1, Ordering::SeqCst);
    let given = faults.clone();
    let make = move |file: File| {
        let file = FileBackend::new(file)?;
        builder().create_with_backend(FaultyFile { file, faults: given.clone() })
    };
    let pauses = Pauses { min: Duration::from_millis(1), max: Duration::from_millis(20) };
    RedbState::open_with(path, Box::new(make), pauses).unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A key's value and revision; asks until there is an answer.
fn read(state: &RedbState, key: &str) -> Option<(u64, Vec<u8>)> {
    let found = Mutex::new(None);
    until("the state answers a read", || match state.call(Request::Get { key: key.to_owned() }) {
        Ok(Answer::Value(value)) => {
            *found.lock().unwrap() = value;
            true
        }
        _ => false,
    });
    found.into_inner().unwrap().map(|value| (value.revision, value.value))
}

/// Counts `key` up as a coordinator changes its record: compare-and-swap, and after Unknown it reads
/// whether the change happened. Returns whether any answer was Unknown.
fn count_to(state: &RedbState, key: &str, last: u8) -> bool {
    let mut was_unknown = false;
    for number in 1..=last {
        let value = vec![number; 3000];
        loop {
            let found = read(state, key);
            let (revision, now) = found.map_or((0, 0), |(revision, value)| (revision, value[0]));
            if now == number {
                break;
            }
            assert_eq!(now, number - 1, "what was committed stays");
            let change = Transaction::default().when(key, revision).put(key, value.clone());
            match state.call(Request::Commit(change)) {
                Ok(Answer::Committed { .. }) => assert_eq!(read(state, key).unwrap().1, value),
                Ok(Answer::Conflict) => {}
                Err(StateError::Unknown(_)) => was_unknown = true,
                other => panic!("{other:?}"),
            }
        }
    }
    was_unknown
}

#[test]
fn after_an_io_error_at_any_place_the_state_opens_again_and_holds_what_it_committed() {
    let mut failed = 0;
    for at in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.redb");
        let faults = Arc::new(Faults::default());
        let state = state(&path, &faults);
        faults.fails_in.store(at, Ordering::SeqCst);
        failed += u32::from(count_to(&state, "a", 4));
        until("the trouble ends", || state.trouble().is_none());
        if faults.fails_in.load(Ordering::SeqCst) >= 0 {
            break;
        }
        drop(state);
        assert_eq!(read(&RedbState::open(&path).unwrap(), "a").unwrap().1[0], 4);
    }
    assert!(failed > 10, "{failed} places");
}

#[test]
fn a_full_file_system_is_told_and_answers_at_once_until_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let faults = Arc::new(Faults::default());
    let state = state(&path, &faults);
    count_to(&state, "a", 2);
    faults.is_full.store(true, Ordering::SeqCst);
    let revision = read(&state, "a").unwrap().0;
    let change = || Transaction::default().when("a", revision).put("a", vec![9; 3000]);
    assert!(matches!(state.call(Request::Commit(change())), Err(StateError::Unknown(_))));
    std::thread::sleep(Duration::from_millis(50));
    let trouble = state.trouble().expect("it is told");
    assert_eq!(trouble.place, crate::StatePlace::File(path.clone()));
    assert!(trouble.why.contains("No space left"), "{}", trouble.why);
    let asked = Instant::now();
    assert!(matches!(state.call(Request::Commit(change())), Err(StateError::Unknown(_))));
    assert!(asked.elapsed() < Duration::from_secs(1));
    faults.is_full.store(false, Ordering::SeqCst);
    until("it opens again", || state.trouble().is_none());
    count_to(&state, "b", 2);
}

#[test]
fn a_file_that_was_replaced_by_an_older_or_an_empty_one_is_not_taken_for_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let faults = Arc::new(Faults::default());
    let old = state(&path, &faults);
    count_to(&old, "a", 1);
    drop(old);
    let older = std::fs::read(&path).unwrap();
    let state = state(&path, &faults);
    count_to(&state, "a", 3);
    let newest = std::fs::read(&path).unwrap();
    for (contents, why) in [(Vec::new(), "empty"), (older, "older")] {
        faults.is_full.store(true, Ordering::SeqCst);
        let change = Transaction::default().put("a", vec![7; 3000]);
        assert!(matches!(state.call(Request::Commit(change)), Err(StateError::Unknown(_))));
        std::fs::write(&path, contents).unwrap();
        faults.is_full.store(false, Ordering::SeqCst);
        until(why, || state.trouble().is_some_and(|trouble| trouble.why.contains(why)));
        assert!(matches!(state.call(Request::Get { key: "a".into() }), Err(StateError::Unknown(_))));
        std::fs::write(&path, &newest).unwrap();
        until("its own file is back", || state.trouble().is_none());
        assert_eq!(read(&state, "a").unwrap().1[0], 3);
    }
}
