//! One file under random operations against a model in memory: read, write, mapped read and write, truncate, extend, punch, zero, copy
//! range, close and open, sync. The operations of Apple's and xfstests' fsx.

use crate::random::Random;
use rustix::fs::{Advice, FallocateFlags, copy_file_range, fadvise, fallocate};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

const FILE_BYTES_MAX: u64 = 2 << 20;
const OPERATION_BYTES_MAX: u64 = 256 << 10;
const DIRECT_ALIGNMENT: u64 = 4096;
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

struct Run {
    file: File,
    model: Vec<u8>,
    direct: bool,
    patient: bool,
    log: Vec<String>,
    skipped: Vec<&'static str>,
}

/// `direct`: with O_DIRECT. `patient`: repeats operations that end with EAGAIN, by which cifs.ko gives
/// up those under way when their server went.
pub fn run(path: &Path, operations: u64, seed: u64, direct: bool, patient: bool) -> Result<String, String> {
    let mut random = Random(seed);
    let mut run = Run {
        file: open(path, direct, patient, true)?,
        model: Vec::new(),
        direct,
        patient,
        log: Vec::new(),
        skipped: Vec::new(),
    };
    for number in 0..operations {
        let result = run.step(&mut random, path).and_then(|()| run.check_size());
        if let Err(failure) = result {
            let from = run.log.len().saturating_sub(20);
            return Err(format!(
                "fsx seed {seed}, operation {number}: {failure}\n{}",
                run.log[from..].join("\n")
            ));
        }
    }
    run.reopen(path)?;
    run.compare(0, run.model.len() as u64)
        .map_err(|failure| format!("fsx seed {seed}, at the end: {failure}"))?;
    drop(run.file);
    std::fs::remove_file(path).map_err(|error| error.to_string())?;
    run.skipped.sort_unstable();
    run.skipped.dedup();
    let skipped =
        if run.skipped.is_empty() { String::new() } else { format!(", not offered here: {:?}", run.skipped) };
    Ok(format!("fsx: {operations} operations with seed {seed} held{skipped}"))
}

fn open(path: &Path, direct: bool, patient: bool, create: bool) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(create);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    again(patient, || options.open(path)).map_err(|error| format!("open {}: {error}", path.display()))
}

/// Attempts something, over and over while it ends with EAGAIN if `patient`: for a minute.
fn again<T, E: MayPass>(patient: bool, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..TRIES {
        match attempt() {
            Err(error) if patient && error.may_pass() => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    attempt()
}

/// An error of the standard library or of rustix.
trait MayPass {
    /// Whether it is EAGAIN.
    fn may_pass(&self) -> bool;
}

impl MayPass for std::io::Error {
    fn may_pass(&self) -> bool {
        self.kind() == std::io::ErrorKind::WouldBlock
    }
}

impl MayPass for rustix::io::Errno {
    fn may_pass(&self) -> bool {
        *self == Self::AGAIN
    }
}

impl Run {
    fn len(&self) -> u64 {
        self.model.len() as u64
    }

    fn range(&self, random: &mut Random, bound: u64) -> (u64, u64) {
        let unit = if self.direct { DIRECT_ALIGNMENT } else { 1 };
        let at = random.below(bound.max(1)) / unit * unit;
        let len = (1 + random.below(OPERATION_BYTES_MAX)).div_ceil(unit) * unit;
        (at, len)
    }

    fn step(&mut self, random: &mut Random, path: &Path) -> Result<(), String> {
        match random.below(13) {
            0..=2 => {
                let (at, len) = self.range(random, self.len());
                self.log.push(format!("read {at} {len}"));
                self.compare(at, len)
            }
            3..=5 => {
                let (at, len) = self.range(random, FILE_BYTES_MAX - OPERATION_BYTES_MAX);
                self.write(random, at, len)
            }
            6 if !self.direct => {
                let (at, len) = self.range(random, self.len());
                self.mapped(random, at, len.min(self.len().saturating_sub(at)))
            }
            7 => {
                let unit = if self.direct { DIRECT_ALIGNMENT } else { 1 };
                let len = random.below(FILE_BYTES_MAX) / unit * unit;
                self.log.push(format!("truncate {len}"));
                again(self.patient, || self.file.set_len(len))
                    .map_err(|error| format!("truncate: {error}"))?;
                self.model.resize(len as usize, 0);
                Ok(())
            }
            8 => {
                let (at, len) = self.range(random, self.len());
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.zero("punch a hole", punch, at, len)
            }
            9 => {
                let (at, len) = self.range(random, self.len());
                self.zero("zero a range", FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, len)
            }
            10 => self.copy(random),
            11 => {
                self.log.push("close and open".into());
                self.reopen(path)
            }
            _ => {
                self.log.push("sync and forget".into());
                again(self.patient, || self.file.sync_all()).map_err(|error| format!("fsync: {error}"))?;
                fadvise(&self.file, 0, None, Advice::DontNeed).map_err(|error| format!("fadvise: {error}"))
            }
        }
    }

    fn reopen(&mut self, path: &Path) -> Result<(), String> {
        again(self.patient, || self.file.sync_all()).map_err(|error| format!("fsync: {error}"))?;
        self.file = open(path, self.direct, self.patient, false)?;
        self.check_size()
    }

    fn check_size(&self) -> Result<(), String> {
        let len = again(self.patient, || self.file.metadata()).map_err(|error| error.to_string())?.len();
        if len == self.len() { Ok(()) } else { Err(format!("the size is {len}, not {}", self.len())) }
    }

    fn write(&mut self, random: &mut Random, at: u64, len: u64) -> Result<(), String> {
        self.log.push(format!("write {at} {len}"));
        let mut bytes = Aligned::new(len as usize);
        random.fill(bytes.slice());
        self.file.write_all_at(bytes.slice(), at).map_err(|error| format!("write: {error}"))?;
        let end = (at + len) as usize;
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[at as usize..end].copy_from_slice(bytes.slice());
        Ok(())
    }

    /// Reads and compares the part of the range within the file.
    fn compare(&self, at: u64, len: u64) -> Result<(), String> {
        let want = self.model.get(at as usize..((at + len).min(self.len())) as usize).unwrap_or_default();
        let mut bytes = Aligned::new(len as usize);
        let (mut got, into) = (0, bytes.slice());
        while got < want.len() {
            match again(self.patient, || self.file.read_at(&mut into[got..], at + got as u64)) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) => return Err(format!("read: {error}")),
            }
        }
        difference(&into[..got.min(want.len())], want, at)
    }

    fn mapped(&mut self, random: &mut Random, at: u64, len: u64) -> Result<(), String> {
        if len == 0 {
            return Ok(());
        }
        self.log.push(format!("mapped read and write {at} {len}"));
        let start = at / 4096 * 4096;
        let span = (at - start + len) as usize;
        // SAFETY: a fresh shared mapping of `span` bytes within the file, used below and unmapped; nobody truncates the file meanwhile.
        let map = unsafe {
            mmap(
                std::ptr::null_mut(),
                span,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &self.file,
                start,
            )
        };
        let map = map.map_err(|error| format!("mmap: {error}"))?;
        // SAFETY: the mapping is `span` bytes long and ours alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), span) };
        let part = &mut bytes[(at - start) as usize..];
        let model = &mut self.model[at as usize..(at + len) as usize];
        let held = difference(part, model, at);
        random.fill(part);
        model.copy_from_slice(part);
        // SAFETY: the mapping made above; `bytes` is not used again.
        let synced = unsafe { msync(map, span, MsyncFlags::SYNC) };
        // SAFETY: as above.
        let unmapped = unsafe { munmap(map, span) };
        synced.map_err(|error| format!("msync: {error}"))?;
        unmapped.map_err(|error| format!("munmap: {error}"))?;
        held
    }

    fn zero(&mut self, name: &'static str, mode: FallocateFlags, at: u64, len: u64) -> Result<(), String> {
        let len = len.min(self.len().saturating_sub(at));
        if len == 0 {
            return Ok(());
        }
        self.log.push(format!("{name} {at} {len}"));
        match again(self.patient, || fallocate(&self.file, mode, at, len)) {
            Ok(()) => {
                self.model[at as usize..(at + len) as usize].fill(0);
                Ok(())
            }
            Err(rustix::io::Errno::OPNOTSUPP) => {
                self.skipped.push(name);
                Ok(())
            }
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    fn copy(&mut self, random: &mut Random) -> Result<(), String> {
        let (from, len) = self.range(random, self.len());
        let (to, _) = self.range(random, FILE_BYTES_MAX - OPERATION_BYTES_MAX);
        let len = len.min(self.len().saturating_sub(from));
        if len == 0 || from < to + len && to < from + len {
            return Ok(());
        }
        self.log.push(format!("copy {from} {to} {len}"));
        let (mut source, mut target, mut done) = (from, to, 0);
        while done < len {
            let left = (len - done) as usize;
            let copied = again(self.patient, || {
                copy_file_range(&self.file, Some(&mut source), &self.file, Some(&mut target), left)
            });
            match copied {
                Ok(0) => return Err(format!("copy ended after {done} bytes")),
                Ok(count) => done += count as u64,
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::XDEV | rustix::io::Errno::INVAL)
                    if done == 0 =>
                {
                    self.skipped.push("copy range");
                    return Ok(());
                }
                Err(error) => return Err(format!("copy range: {error}")),
            }
        }
        let end = (to + len) as usize;
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model.copy_within(from as usize..(from + len) as usize, to as usize);
        Ok(())
    }
}

fn difference(got: &[u8], want: &[u8], at: u64) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} bytes at {at}, {} expected", got.len(), want.len()));
    }
    match got.iter().zip(want).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(first) => {
            let wrong = got.iter().zip(want).filter(|(a, b)| a != b).count();
            let offset = at + first as u64;
            Err(format!(
                "{wrong} wrong bytes, the first at {offset}: {:#04x}, not {:#04x}",
                got[first], want[first]
            ))
        }
    }
}

/// Bytes at a page boundary, as O_DIRECT wants them.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + DIRECT_ALIGNMENT as usize];
        let start = bytes.as_ptr().align_offset(DIRECT_ALIGNMENT as usize);
        Self { bytes, start, len }
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
