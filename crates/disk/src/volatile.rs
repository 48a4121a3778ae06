//! A file as a disk with a volatile write cache, and the plug of its power: for tests of the running
//! daemon, since a kill alone cannot take away bytes that the kernel has.
//!
//! The file is the medium. A write without durability waits in memory until a flush covers it, and operations take
//! a few polls. When [`Plug::pull`] is called, all that could be lost then (the cached writes and all operations in flight) is
//! kept, lost or torn by chance that a seed repeats, as [`crate::crash`] describes; afterwards nothing is written and nothing
//! answered. The process has to end then: the kernel keeps the file. Never meant for data that anybody wants.

use crate::change::{Change, overlaps};
use crate::crash::choice;
use crate::log::ChangeLog;
use crate::random::Random;
use crate::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation, OpenedFile, check_fit};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::BufMut;

/// The cache writes its oldest back beyond this.
const CACHE_BYTES_MAX: u64 = 64 << 20;
/// An operation is performed at one of this many polls.
const POLLS_MAX: u64 = 4;

struct InFlight {
    token: u64,
    operation: DiskOperation,
    polls_left: u64,
    /// Number of the last completed change that it covers, if it is a flush.
    submitted_after: u64,
}

struct State {
    medium: File,
    random: Random,
    cache: ChangeLog,
    in_flight: Vec<InFlight>,
    answers: Vec<DiskCompletion>,
    pulled: bool,
}

/// Cuts the power of one [`VolatileDisk`]. Any thread may hold one.
#[derive(Clone)]
pub struct Plug(Arc<Mutex<State>>);

/// A file whose writes wait in a cache that a power cut empties.
pub struct VolatileDisk {
    state: Arc<Mutex<State>>,
    wake: Box<dyn Fn() + Send>,
    /// Holds the lock on the disk.
    opened: OpenedFile,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Performs an operation.
    fn perform(&mut self, entry: InFlight) {
        let result = match entry.operation {
            DiskOperation::Read { offset, into } => self.read(offset, into).map(Some),
            DiskOperation::Write { offset, data, durable } => {
                self.change(offset, Change::Write(data), durable).map(|()| None)
            }
            DiskOperation::Discard { offset, len_bytes } => {
                self.change(offset, Change::Zero(len_bytes), false).map(|()| None)
            }
            DiskOperation::Flush => self.flush(entry.submitted_after).map(|()| None),
        };
        let result = result.map_err(|error| DiskError::of_system(&error));
        self.answers.push(DiskCompletion { token: entry.token, result });
    }

    fn read(&self, offset: u64, mut into: BufMut) -> io::Result<BufMut> {
        self.medium.read_exact_at(&mut into, offset)?;
        let len = into.len() as u64;
        for (at, change) in self.cache.iter() {
            if !overlaps(offset, len, at, change.len_bytes()) {
                continue;
            }
            let start = offset.max(at);
            let end = (offset + len).min(at + change.len_bytes());
            let target = &mut into[(start - offset) as usize..(end - offset) as usize];
            match change {
                Change::Write(data) => {
                    data.slice((start - at) as usize, (end - start) as usize).copy_to(target);
                }
                Change::Zero(_) => target.fill(0),
            }
        }
        Ok(into)
    }

    fn change(&mut self, offset: u64, change: Change, forced: bool) -> io::Result<()> {
        self.cache.push(offset, change, forced);
        let full = self.cache.len_bytes() > CACHE_BYTES_MAX;
        if full {
            self.cache.force_beyond(CACHE_BYTES_MAX);
        }
        if forced || full { self.apply_forced() } else { Ok(()) }
    }

    /// Puts on the medium what completed up to `completion`.
    fn flush(&mut self, completion: u64) -> io::Result<()> {
        self.cache.force(completion);
        self.apply_forced()
    }

    fn apply_forced(&mut self) -> io::Result<()> {
        self.cache.apply_forced(|offset, change| change.apply(&self.medium, offset))
    }

    fn pull(&mut self, seed: u64) -> io::Result<()> {
        if std::mem::replace(&mut self.pulled, true) {
            return Ok(());
        }
        self.answers.clear();
        let unanswered =
            std::mem::take(&mut self.in_flight).into_iter().filter_map(|entry| match entry.operation {
                DiskOperation::Write { offset, data, .. } => Some((offset, Change::Write(data))),
                DiskOperation::Discard { offset, len_bytes } => Some((offset, Change::Zero(len_bytes))),
                DiskOperation::Read { .. } | DiskOperation::Flush => None,
            });
        let (cache, unanswered) = (std::mem::take(&mut self.cache), unanswered.collect::<Vec<_>>());
        let completed: Vec<u64> = cache.at_risk().map(|(_, change)| change.sectors()).collect();
        let sectors: Vec<u64> =
            completed.iter().copied().chain(unanswered.iter().map(|(_, change)| change.sectors())).collect();
        let fates = choice::random(&sectors, seed);
        cache
            .cut(|at| fates.fate(at), |offset, change, fate| change.apply_fate(&self.medium, offset, fate))?;
        for (at, (offset, change)) in (completed.len()..).zip(&unanswered) {
            change.apply_fate(&self.medium, *offset, fates.fate(at))?;
        }
        Ok(())
    }
}

impl Plug {
    /// Cuts the power; `seed` decides what is lost. The same disk twice: the second does nothing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn pull(&self, seed: u64) -> io::Result<()> {
        lock(&self.0).pull(seed)
    }

    /// Bytes that a power cut could lose, of completed changes.
    pub fn cached_bytes(&self) -> u64 {
        lock(&self.0).cache.len_bytes()
    }
}

impl VolatileDisk {
    /// `wake` is called while operations wait for polls.
    ///
    /// # Errors
    /// The file cannot be opened a second time.
    pub fn new(opened: OpenedFile, seed: u64, wake: Box<dyn Fn() + Send>) -> io::Result<(Self, Plug)> {
        let medium = File::options().read(true).write(true).open(&opened.info().path)?;
        let state = Arc::new(Mutex::new(State {
            medium,
            random: Random::new(seed),
            cache: ChangeLog::default(),
            in_flight: Vec::new(),
            answers: Vec::new(),
            pulled: false,
        }));
        let plug = Plug(state.clone());
        Ok((Self { state, wake, opened }, plug))
    }
}

impl Drop for VolatileDisk {
    /// A disk that is closed in order keeps its power: its cache reaches the medium some time.
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if !state.pulled {
            // Nobody waits for an answer any more; a failure here is as if the power had been cut.
            let _ = state.flush(u64::MAX);
        }
    }
}

impl Disk for VolatileDisk {
    fn info(&self) -> &DiskInfo {
        self.opened.info()
    }

    fn submit(&mut self, token: u64, mut operation: DiskOperation) {
        let fits = check_fit(self.opened.info(), &operation);
        // From here on in bytes of the file, in which the disk may be a partition.
        match &mut operation {
            DiskOperation::Read { offset, .. }
            | DiskOperation::Write { offset, .. }
            | DiskOperation::Discard { offset, .. } => {
                *offset = offset.saturating_add(self.opened.base_bytes);
            }
            DiskOperation::Flush => {}
        }
        let mut state = lock(&self.state);
        if state.pulled {
            return;
        }
        if let Err(error) = fits {
            state.answers.push(DiskCompletion { token, result: Err(error) });
            return;
        }
        let polls_left = state.random.below(POLLS_MAX);
        let submitted_after = state.cache.completions();
        state.in_flight.push(InFlight { token, operation, polls_left, submitted_after });
        // The caller may not poll again before the loop's next turn.
        (self.wake)();
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let mut state = lock(&self.state);
        if state.pulled {
            return;
        }
        for mut entry in std::mem::take(&mut state.in_flight) {
            if entry.polls_left == 0 {
                state.perform(entry);
            } else {
                entry.polls_left -= 1;
                state.in_flight.push(entry);
            }
        }
        out.append(&mut state.answers);
        if !state.in_flight.is_empty() {
            (self.wake)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileDiskOptions, create_file_disk};
    use std::path::PathBuf;
    use sys::Buf;

    const BLOCK: u64 = 4096;

    struct Machine {
        disk: VolatileDisk,
        plug: Plug,
        path: PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk");
            create_file_disk(&path, 1 << 20).unwrap();
            let opened = OpenedFile::open(&path.to_string_lossy(), FileDiskOptions::default()).unwrap();
            let (disk, plug) = VolatileDisk::new(opened, 1, Box::new(|| {})).unwrap();
            Self { disk, plug, path, _directory: directory }
        }

        fn done(&mut self, operation: DiskOperation) -> Option<BufMut> {
            self.disk.submit(1, operation);
            let mut out = Vec::new();
            while out.is_empty() {
                self.disk.poll(&mut out);
            }
            out.remove(0).result.unwrap()
        }

        fn write(&mut self, block: u64, byte: u8, durable: bool) {
            self.done(write(block, byte, durable));
        }

        fn on_medium(&self, block: u64) -> Vec<u8> {
            let mut bytes = vec![0; BLOCK as usize];
            File::open(&self.path).unwrap().read_exact_at(&mut bytes, block * BLOCK).unwrap();
            bytes
        }
    }

    fn write(block: u64, byte: u8, durable: bool) -> DiskOperation {
        let data = Buf::from(&[byte; BLOCK as usize][..]).into();
        DiskOperation::Write { offset: block * BLOCK, data, durable }
    }

    #[test]
    fn durable_and_flushed_writes_survive_every_power_cut() {
        for seed in 0..50 {
            let mut machine = Machine::new();
            machine.write(0, 1, false);
            machine.write(1, 1, false);
            machine.done(DiskOperation::Flush);
            machine.write(1, 2, false);
            machine.write(1, 3, true);
            machine.write(2, 4, true);
            machine.plug.pull(seed).unwrap();
            assert_eq!([0, 1, 2].map(|block| machine.on_medium(block)[0]), [1, 3, 4], "seed {seed}");
        }
    }

    #[test]
    fn cached_and_unanswered_writes_are_kept_lost_or_torn_by_the_seed() {
        let mut kinds = [0; 3];
        for seed in 0..60 {
            let mut machine = Machine::new();
            machine.write(0, 1, false);
            machine.disk.submit(2, write(1, 1, true));
            machine.plug.pull(seed).unwrap();
            for block in 0..2 {
                let kept = machine.on_medium(block).iter().filter(|byte| **byte == 1).count();
                kinds[usize::from(kept > 0) + usize::from(kept == BLOCK as usize)] += 1;
            }
        }
        assert!(kinds.iter().all(|count| *count > 5), "{kinds:?}");
    }

    #[test]
    fn reads_find_what_is_cached() {
        let mut machine = Machine::new();
        machine.write(0, 1, true);
        machine.write(1, 2, false);
        let operation = DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(2 * BLOCK as usize) };
        let bytes = machine.done(operation).unwrap();
        assert_eq!((bytes[0], bytes[BLOCK as usize]), (1, 2));
        assert_eq!(machine.on_medium(1)[0], 0);
        let discard = DiskOperation::Discard { offset: 0, len_bytes: 2 * BLOCK };
        machine.done(discard);
        machine.done(DiskOperation::Flush);
        assert_eq!([0, 1].map(|block| machine.on_medium(block)[0]), [0, 0]);
    }

    #[test]
    fn a_partition_in_an_image_is_written_where_it_lies_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device");
        create_file_disk(&path, 64 << 20).unwrap();
        crate::partition::write_for_tests(&path, 512);
        let before = std::fs::read(&path).unwrap();
        let opened = OpenedFile::open(&path.to_string_lossy(), FileDiskOptions::default()).unwrap();
        let base = opened.base_bytes;
        assert_eq!(base, 1 << 20);
        let (disk, plug) = VolatileDisk::new(opened, 1, Box::new(|| {})).unwrap();
        let mut machine = Machine { disk, plug, path, _directory: directory };
        machine.write(0, 1, true);
        machine.write(1, 2, false);
        let read = DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(2 * BLOCK as usize) };
        let bytes = machine.done(read).unwrap();
        assert_eq!((bytes[0], bytes[BLOCK as usize]), (1, 2));
        machine.done(DiskOperation::Flush);
        assert_eq!([0, 1].map(|block| machine.on_medium(base / BLOCK + block)[0]), [1, 2]);
        machine.done(DiskOperation::Discard { offset: 0, len_bytes: 2 * BLOCK });
        machine.done(DiskOperation::Flush);
        assert!(std::fs::read(&machine.path).unwrap() == before, "the table and all else is as it was");
    }

    #[test]
    fn without_power_nothing_is_written_or_answered() {
        let mut machine = Machine::new();
        machine.plug.pull(1).unwrap();
        machine.disk.submit(1, write(0, 1, true));
        let mut out = Vec::new();
        (0..10).for_each(|_| machine.disk.poll(&mut out));
        assert!(out.is_empty());
        assert_eq!(machine.on_medium(0)[0], 0);
    }
}
