//! A disk behind the data plane's loop: a file, a partition or a whole block device.
//!
//! Promises: no operation stays without an answer longer than its time bound, even if the device hangs.
//! A durable write is answered when the kernel says so of RWF_DSYNC. Memory of any alignment is taken
//! (if O_DIRECT cannot use it, it is copied). After a timeout the disk counts as hung: it takes no more
//! operations until it is opened again, and a write that timed out may still happen later. An operation
//! for which this machine lacks something, such as memory, is tried again within its time bound: the
//! disk is not at fault. A discard goes in pieces, each of them with the time bound of one operation.

mod open;
mod standalone;
#[cfg(test)]
mod tests;
mod watch;

pub use open::{FileDiskOptions, OpenError, OpenedFile, create_file_disk};
pub use standalone::StandaloneDisk;
pub use watch::{FileState, FileWatch, HostRoom, Reserved};

use crate::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation, check_fit};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::driver::{Completion, Descriptor, Driver, IoOperation, Outcome, Queue};
use sys::{BufMut, Payload};

/// Token of the timer that looks after time bounds; operations have smaller ones.
const TIMER: u64 = u64::MAX;
/// Token of the timer after which operations are tried again.
const RETRY_TIMER: u64 = u64::MAX - 1;
/// Pause before an operation that the host was short for is tried again: memory pressure passes in about that time or in much more.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Longest piece of a discard in bytes: slow flash takes a second for this much, and up to five for a slab.
const DISCARD_BYTES_MAX: u64 = 16 << 20;

/// An operation of the driver on behalf of a caller.
struct Outstanding {
    /// Distinguishes an answer to this operation from a late one to the place's former operation.
    generation: u32,
    token: u64,
    kind: Kind,
    /// Not answered yet; false after a time-out.
    waiting: bool,
    /// When it was first tried, if this is not the first time.
    tried_at: Option<Instant>,
}

enum Kind {
    Read {
        offset: u64,
        /// Where the bytes have to go, if O_DIRECT could not use it.
        target: Option<BufMut>,
    },
    Write {
        offset: u64,
        data: Payload,
        durable: bool,
    },
    Flush,
    /// The ranges that are left, of which the first is under way.
    Discard {
        offset: u64,
        len_bytes: u64,
    },
}

/// An operation that waits to be tried again.
struct Again {
    tried_at: Instant,
    token: u64,
    kind: Kind,
    /// Of a read.
    buffer: Option<BufMut>,
    error: DiskError,
}

/// Operations of one file that the kernel works off on threads of its own, at most. It has some hundred of these for all files
/// (`sys::driver`): a file system that hangs keeps those of its operations for as long as it does, and other files need theirs.
const ASIDE_MAX: usize = 64;

/// The operations of a file whose file system may keep its callers waiting.
///
/// Invariant: none waits while fewer than [`ASIDE_MAX`] are with the kernel, unless the disk is hung.
#[derive(Default)]
struct Aside {
    with_kernel: usize,
    /// By the names that the queue knows them by.
    waiting: VecDeque<(u64, IoOperation)>,
}

/// Has the last handle to a file dropped on a thread of its own: to close a file of a file system that hangs takes as long as that does.
struct Closer(Descriptor);

impl Drop for Closer {
    fn drop(&mut self) {
        let file = self.0.clone();
        let wait = move || {
            // Operations in flight hold handles, too.
            while Arc::strong_count(&file) > 1 {
                std::thread::sleep(crate::release::RELEASE_PAUSE);
            }
        };
        // Without a thread the file is closed here.
        let _ = std::thread::Builder::new().name("cenote-close".to_owned()).spawn(wait);
    }
}

/// A file or block device whose operations are in flight on a loop's driver.
pub struct FileDisk {
    info: DiskInfo,
    file: Descriptor,
    /// Where the disk begins in the file.
    base_bytes: u64,
    queue: Queue,
    /// `None`: the file's operations keep nobody waiting.
    aside: Option<Aside>,
    _closer: Option<Closer>,
    time_bound: Duration,
    outstanding: Vec<Outstanding>,
    free: Vec<u32>,
    /// Place and generation of operations by the time they were submitted at, oldest first; answered ones stay until they
    /// come to the front.
    deadlines: VecDeque<(Instant, u32, u32)>,
    timer_armed: bool,
    hung: bool,
    gone: bool,
    /// Tried again when the retry timer expires, which runs while there are any.
    again: Vec<Again>,
    answers: Vec<DiskCompletion>,
    completions: Vec<Completion>,
}

impl FileDisk {
    /// Opens and locks the disk. Blocks for as long as the device takes; see [`OpenedFile`] to open on another thread.
    ///
    /// # Errors
    /// It is in use, is no disk, or cannot be opened.
    pub fn open(driver: &Driver, path: &str, options: FileDiskOptions) -> Result<Self, OpenError> {
        let opened = OpenedFile::open_pausing(path, options, || {
            std::thread::sleep(crate::release::RELEASE_PAUSE);
            // This very loop may still hold the file. A failure of the loop shows at the first operation.
            let _ = driver.wait(Some(Duration::ZERO));
        })?;
        Ok(Self::new(driver, opened))
    }

    /// Serves an opened file on this thread's loop.
    pub fn new(driver: &Driver, opened: OpenedFile) -> Self {
        let OpenedFile { file, info, base_bytes, time_bound, blocks_callers } = opened;
        let (queue, aside, closer) = match blocks_callers {
            true => (driver.queue_aside(), Some(Aside::default()), Some(Closer(file.clone()))),
            false => (driver.queue(), None, None),
        };
        Self {
            info,
            file,
            base_bytes,
            queue,
            aside,
            _closer: closer,
            time_bound,
            outstanding: Vec::new(),
            free: Vec::new(),
            deadlines: VecDeque::new(),
            timer_armed: false,
            hung: false,
            gone: false,
            again: Vec::new(),
            answers: Vec::new(),
            completions: Vec::new(),
        }
    }

    /// An operation was not answered in time.
    pub fn is_hung(&self) -> bool {
        self.hung
    }

    fn start(&mut self, token: u64, kind: Kind, buffer: Option<BufMut>, tried_at: Option<Instant>) {
        let (file, base) = (self.file.clone(), self.base_bytes);
        let operation = match (&kind, buffer) {
            (Kind::Read { offset, .. }, Some(into)) => {
                IoOperation::Read { file, offset: base + offset, into }
            }
            (Kind::Write { offset, data, durable }, _) => {
                IoOperation::Write { file, offset: base + offset, data: data.clone(), durable: *durable }
            }
            (Kind::Discard { offset, len_bytes }, _) => {
                let len_bytes = (*len_bytes).min(DISCARD_BYTES_MAX);
                IoOperation::PunchHole { file, offset: base + offset, len_bytes }
            }
            (Kind::Flush, _) => IoOperation::SyncData { file },
            (Kind::Read { .. }, None) => {
                let result = Err(DiskError::Invalid("a read without its buffer"));
                return self.answers.push(DiskCompletion { token, result });
            }
        };
        let place = self.free.pop().unwrap_or_else(|| {
            let (kind, waiting) = (Kind::Flush, false);
            self.outstanding.push(Outstanding { generation: 0, token: 0, kind, waiting, tried_at: None });
            (self.outstanding.len() - 1) as u32
        });
        let entry = &mut self.outstanding[place as usize];
        entry.token = token;
        entry.kind = kind;
        entry.waiting = true;
        entry.tried_at = tried_at;
        let generation = entry.generation;
        self.deadlines.push_back((Instant::now() + self.time_bound, place, generation));
        let name = u64::from(generation) << 32 | u64::from(place);
        match &mut self.aside {
            Some(aside) if aside.with_kernel >= ASIDE_MAX => aside.waiting.push_back((name, operation)),
            Some(aside) => {
                aside.with_kernel += 1;
                self.queue.submit(name, operation);
            }
            None => self.queue.submit(name, operation),
        }
        if !self.timer_armed {
            self.timer_armed = true;
            self.queue.submit(TIMER, IoOperation::Timeout { after: self.time_bound });
        }
    }

    /// Hands the kernel the next operation that waits, since it has answered one.
    fn start_waiting(&mut self) {
        let Some(aside) = &mut self.aside else { return };
        debug_assert!(aside.with_kernel > 0, "each operation is answered once");
        aside.with_kernel -= 1;
        if let Some((name, operation)) = aside.waiting.pop_front() {
            aside.with_kernel += 1;
            self.queue.submit(name, operation);
        }
    }

    fn complete(&mut self, mut completion: Completion) {
        self.start_waiting();
        let place = completion.token as u32;
        let Some(entry) = self.outstanding.get_mut(place as usize) else { return };
        let waiting = std::mem::replace(&mut entry.waiting, false);
        let (token, tried_at) = (entry.token, entry.tried_at);
        let kind = std::mem::replace(&mut entry.kind, Kind::Flush);
        // Half of the range keeps the token below the timer's.
        entry.generation = entry.generation.wrapping_add(1) & 0x7fff_ffff;
        self.free.push(place);
        if !waiting {
            return;
        }
        if let Err(error) = &completion.result
            && let error @ DiskError::Host(_) = DiskError::of_system(error)
            && self.may_try_again(&kind)
        {
            let (tried_at, buffer) = (tried_at.unwrap_or_else(Instant::now), completion.buffer.take());
            return self.try_later(Again { tried_at, token, kind, buffer, error });
        }
        let result = match kind {
            Kind::Read { target, .. } => read_result(completion, target).map(Some),
            Kind::Write { .. } | Kind::Flush => {
                completion.result.map(|_| None).map_err(|error| DiskError::of_system(&error))
            }
            Kind::Discard { offset, len_bytes } => match completion.result {
                Err(error) if not_supported(&error) => {
                    self.info.discards = false;
                    Ok(None)
                }
                Ok(_) if len_bytes > DISCARD_BYTES_MAX => {
                    let (offset, len_bytes) = (offset + DISCARD_BYTES_MAX, len_bytes - DISCARD_BYTES_MAX);
                    return self.start(token, Kind::Discard { offset, len_bytes }, None, None);
                }
                other => other.map(|_| None).map_err(|error| DiskError::of_system(&error)),
            },
        };
        self.gone |= matches!(result, Err(DiskError::Gone));
        self.answers.push(DiskCompletion { token, result });
    }

    /// Whether doing the operation a second time is the same as doing it once. Data that a flush, or a write through the page cache, reported as
    /// failed may be forgotten by the kernel, and succeed the second time without having happened.
    fn may_try_again(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Read { .. } | Kind::Discard { .. } => true,
            Kind::Write { .. } => self.info.direct,
            Kind::Flush => false,
        }
    }

    fn try_later(&mut self, operation: Again) {
        if operation.tried_at.elapsed() >= self.time_bound {
            let Again { token, error, .. } = operation;
            return self.answers.push(DiskCompletion { token, result: Err(error) });
        }
        if self.again.is_empty() {
            self.queue.submit(RETRY_TIMER, IoOperation::Timeout { after: RETRY_PAUSE });
        }
        self.again.push(operation);
    }

    fn try_again(&mut self) {
        for Again { tried_at, token, kind, buffer, .. } in std::mem::take(&mut self.again) {
            self.start(token, kind, buffer, Some(tried_at));
        }
    }

    /// Answers what is overdue and arms the timer for the oldest of the rest.
    fn check_deadlines(&mut self) {
        self.timer_armed = false;
        let now = Instant::now();
        while let Some(&(deadline, place, generation)) = self.deadlines.front() {
            let entry = &mut self.outstanding[place as usize];
            let waiting = entry.waiting && entry.generation == generation;
            if waiting && deadline > now {
                self.timer_armed = true;
                self.queue.submit(TIMER, IoOperation::Timeout { after: deadline - now });
                return;
            }
            self.deadlines.pop_front();
            if waiting {
                entry.waiting = false;
                self.hung = true;
                // Operations set aside never begin, and are answered when their time is up: the disk is
                // opened anew.
                self.aside.iter_mut().for_each(|aside| aside.waiting.clear());
                self.answers.push(DiskCompletion { token: entry.token, result: Err(DiskError::TimedOut) });
            }
        }
    }

    /// Forgets deadlines of answered operations.
    fn trim_deadlines(&mut self) {
        while let Some(&(_, place, generation)) = self.deadlines.front() {
            let entry = &self.outstanding[place as usize];
            if entry.waiting && entry.generation == generation {
                return;
            }
            self.deadlines.pop_front();
        }
    }

    /// Whether O_DIRECT can use memory at this address, of this length.
    fn usable(&self, bytes: &[u8]) -> bool {
        let block = self.info.block_bytes as usize;
        !self.info.direct
            || ((bytes.as_ptr() as usize).is_multiple_of(block) && bytes.len().is_multiple_of(block))
    }

    fn usable_payload(&self, data: Payload) -> Payload {
        if data.parts().iter().all(|part| self.usable(part)) {
            return data;
        }
        let mut copy = BufMut::for_overwrite(data.len());
        data.copy_to(&mut copy);
        copy.freeze().into()
    }
}

impl Disk for FileDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        let refused = match check_fit(&self.info, &operation) {
            Err(error) => Some(error),
            Ok(()) if self.gone => Some(DiskError::Gone),
            Ok(()) if self.hung => Some(DiskError::TimedOut),
            Ok(()) => None,
        };
        if let Some(error) = refused {
            self.answers.push(DiskCompletion { token, result: Err(error) });
            return;
        }
        match operation {
            DiskOperation::Read { offset, into } => {
                let (into, target) = if self.usable(&into) {
                    (into, None)
                } else {
                    (BufMut::for_overwrite(into.len()), Some(into))
                };
                self.start(token, Kind::Read { offset, target }, Some(into), None);
            }
            DiskOperation::Write { offset, data, durable } => {
                let data = self.usable_payload(data);
                self.start(token, Kind::Write { offset, data, durable }, None, None);
            }
            DiskOperation::Flush => self.start(token, Kind::Flush, None, None),
            DiskOperation::Discard { offset, len_bytes } => {
                if self.info.discards {
                    self.start(token, Kind::Discard { offset, len_bytes }, None, None);
                } else {
                    self.answers.push(DiskCompletion { token, result: Ok(None) });
                }
            }
        }
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.poll(&mut completions);
        let mut timer = false;
        for completion in completions.drain(..) {
            match completion.token {
                TIMER => timer = true,
                RETRY_TIMER => self.try_again(),
                _ => self.complete(completion),
            }
        }
        self.completions = completions;
        self.trim_deadlines();
        if timer {
            self.check_deadlines();
        }
        out.append(&mut self.answers);
    }

    fn has_news(&self) -> bool {
        !self.answers.is_empty() || self.queue.has_completions()
    }
}

fn read_result(completion: Completion, target: Option<BufMut>) -> Result<BufMut, DiskError> {
    let count = match completion.result {
        Ok(Outcome::Bytes(count)) => count,
        Ok(_) => 0,
        Err(error) => return Err(DiskError::of_system(&error)),
    };
    let Some(buffer) = completion.buffer else { return Err(DiskError::Medium(libc::EIO)) };
    if count < buffer.len() {
        // The file was cut under us: the missing bytes are not zeroes.
        return Err(DiskError::Medium(libc::EIO));
    }
    match target {
        None => Ok(buffer),
        Some(mut target) => {
            target.copy_from_slice(&buffer);
            Ok(target)
        }
    }
}

fn not_supported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}
