//! A disk behind the data plane's loop: a file, a partition or a whole block device.
//!
//! Promises: no operation stays without an answer longer than its time bound, whatever the device does; a durable write is
//! answered when the kernel says so of RWF_DSYNC; memory of any alignment is taken (what O_DIRECT cannot use is copied).
//! After a time-out the disk counts as hung: it takes no more operations until it is opened again. A write that timed out
//! may still happen later.

mod open;
mod standalone;
#[cfg(test)]
mod tests;

pub use open::{FileDiskOptions, OpenError, OpenedFile, create_file_disk};
pub use standalone::StandaloneDisk;

use crate::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation, check_fit};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use sys::driver::{Completion, Descriptor, Driver, Operation, Outcome, Queue};
use sys::{BufMut, Payload};

/// Token of the timer that looks after time bounds; operations have smaller ones.
const TIMER: u64 = u64::MAX;

/// What the driver was asked for a caller.
struct Outstanding {
    /// Tells an answer to this operation from a late one to the place's former operation.
    generation: u32,
    token: u64,
    kind: Kind,
    /// Not answered yet; false after a time-out.
    waiting: bool,
}

enum Kind {
    Read {
        /// Where the bytes have to go, where O_DIRECT could not use it.
        target: Option<BufMut>,
    },
    Write,
    Flush,
    Discard,
}

/// See the module.
pub struct FileDisk {
    info: DiskInfo,
    file: Descriptor,
    queue: Queue,
    time_bound: Duration,
    outstanding: Vec<Outstanding>,
    free: Vec<u32>,
    /// Place and generation of operations by the time they were submitted at, oldest first; answered ones stay until they
    /// come to the front.
    deadlines: VecDeque<(Instant, u32, u32)>,
    timer_armed: bool,
    hung: bool,
    gone: bool,
    answers: Vec<DiskCompletion>,
    completions: Vec<Completion>,
}

impl FileDisk {
    /// Opens and locks the disk. Blocks for as long as the device takes; see [`OpenedFile`] to open on another thread.
    ///
    /// # Errors
    /// Where it is in use, is no disk, or cannot be opened.
    pub fn open(driver: &Driver, path: &str, options: FileDiskOptions) -> Result<Self, OpenError> {
        let opened = OpenedFile::open_pausing(path, options, || {
            std::thread::sleep(open::RELEASE_PAUSE);
            // This very loop may be what still holds the file. What the loop cannot do shows at the first operation.
            let _ = driver.wait(Some(Duration::ZERO));
        })?;
        Ok(Self::new(driver, opened))
    }

    /// Serves an opened file on this thread's loop.
    pub fn new(driver: &Driver, opened: OpenedFile) -> Self {
        let OpenedFile { file, info, time_bound } = opened;
        Self {
            info,
            file,
            queue: driver.queue(),
            time_bound,
            outstanding: Vec::new(),
            free: Vec::new(),
            deadlines: VecDeque::new(),
            timer_armed: false,
            hung: false,
            gone: false,
            answers: Vec::new(),
            completions: Vec::new(),
        }
    }

    /// An operation was not answered in time.
    pub fn is_hung(&self) -> bool {
        self.hung
    }

    fn start(&mut self, token: u64, kind: Kind, operation: Operation) {
        let place = self.free.pop().unwrap_or_else(|| {
            let (kind, waiting) = (Kind::Flush, false);
            self.outstanding.push(Outstanding { generation: 0, token: 0, kind, waiting });
            (self.outstanding.len() - 1) as u32
        });
        let entry = &mut self.outstanding[place as usize];
        entry.token = token;
        entry.kind = kind;
        entry.waiting = true;
        let generation = entry.generation;
        self.deadlines.push_back((Instant::now() + self.time_bound, place, generation));
        self.queue.submit(u64::from(generation) << 32 | u64::from(place), operation);
        if !self.timer_armed {
            self.timer_armed = true;
            self.queue.submit(TIMER, Operation::Timeout { after: self.time_bound });
        }
    }

    fn complete(&mut self, completion: Completion) {
        let place = completion.token as u32;
        let Some(entry) = self.outstanding.get_mut(place as usize) else { return };
        let waiting = std::mem::replace(&mut entry.waiting, false);
        let token = entry.token;
        let kind = std::mem::replace(&mut entry.kind, Kind::Flush);
        // Half of the range keeps the token below the timer's.
        entry.generation = entry.generation.wrapping_add(1) & 0x7fff_ffff;
        self.free.push(place);
        if !waiting {
            return;
        }
        let result = match kind {
            Kind::Read { target } => read_result(completion, target).map(Some),
            Kind::Write | Kind::Flush => completion.result.map(|_| None).map_err(classify),
            Kind::Discard => match completion.result {
                Err(error) if not_supported(&error) => {
                    self.info.discards = false;
                    Ok(None)
                }
                other => other.map(|_| None).map_err(classify),
            },
        };
        self.gone |= matches!(result, Err(DiskError::Gone));
        self.answers.push(DiskCompletion { token, result });
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
                self.queue.submit(TIMER, Operation::Timeout { after: deadline - now });
                return;
            }
            self.deadlines.pop_front();
            if waiting {
                entry.waiting = false;
                self.hung = true;
                self.answers.push(DiskCompletion { token: entry.token, result: Err(DiskError::TimedOut) });
            }
        }
    }

    /// Forgets deadlines of what was answered.
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
        let file = self.file.clone();
        match operation {
            DiskOperation::Read { offset, into } => {
                let (into, target) = if self.usable(&into) {
                    (into, None)
                } else {
                    (BufMut::for_overwrite(into.len()), Some(into))
                };
                self.start(token, Kind::Read { target }, Operation::Read { file, offset, into });
            }
            DiskOperation::Write { offset, data, durable } => {
                let data = self.usable_payload(data);
                self.start(token, Kind::Write, Operation::Write { file, offset, data, durable });
            }
            DiskOperation::Flush => self.start(token, Kind::Flush, Operation::SyncData { file }),
            DiskOperation::Discard { offset, len_bytes } => {
                if self.info.discards {
                    self.start(token, Kind::Discard, Operation::PunchHole { file, offset, len_bytes });
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
            if completion.token == TIMER {
                timer = true;
            } else {
                self.complete(completion);
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
        Err(error) => return Err(classify(error)),
    };
    let Some(buffer) = completion.buffer else { return Err(DiskError::Io(libc::EIO)) };
    if count < buffer.len() {
        // The file was cut under us: what is missing is not zeroes.
        return Err(DiskError::Io(libc::EIO));
    }
    match target {
        None => Ok(buffer),
        Some(mut target) => {
            target.copy_from_slice(&buffer);
            Ok(target)
        }
    }
}

fn classify(error: io::Error) -> DiskError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => DiskError::NoSpace,
        Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM) => DiskError::Gone,
        Some(errno) => DiskError::Io(errno),
        None => DiskError::Io(libc::EIO),
    }
}

fn not_supported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}
