//! Threads that do the fallback's disk operations, since files are never "not ready" for epoll.
//!
//! Each queue has a pool of its own, so that a disk that hangs holds up no other.

use super::{Completion, Descriptor, Finished, Outcome, QueueId, Waker};
use crate::{BufMut, Payload};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads per queue, started as they are needed.
const THREADS_MAX: usize = 4;
/// Vectors per call.
const VECTORS_MAX: usize = 512;

pub(super) enum Job {
    Read { file: Descriptor, offset: u64, into: BufMut },
    Write { file: Descriptor, offset: u64, data: Payload, durable: bool },
    SyncData { file: Descriptor },
    PunchHole { file: Descriptor, offset: u64, len_bytes: u64 },
}

/// Completions that the threads hand to the loop.
pub(super) struct Returns {
    finished: Mutex<Finished>,
    waker: Waker,
}

impl Returns {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { finished: Mutex::new(Finished::new()), waker })
    }

    pub(super) fn take(&self, into: &mut Finished) {
        into.append(&mut lock(&self.finished));
    }
}

struct Shared {
    waiting: Mutex<Waiting>,
    work: Condvar,
}

struct Waiting {
    jobs: VecDeque<(u64, Job)>,
    idle_threads: usize,
    closed: bool,
}

pub(super) struct Pool {
    queue: QueueId,
    shared: Arc<Shared>,
    returns: Arc<Returns>,
    threads: usize,
}

impl Pool {
    pub(super) fn new(queue: QueueId, returns: Arc<Returns>) -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), idle_threads: 0, closed: false };
        let shared = Arc::new(Shared { waiting: Mutex::new(waiting), work: Condvar::new() });
        Self { queue, shared, returns, threads: 0 }
    }

    /// # Errors
    /// When there is no thread to do it and none can be started.
    pub(super) fn submit(&mut self, token: u64, job: Job) -> io::Result<()> {
        let mut waiting = lock(&self.shared.waiting);
        if waiting.idle_threads <= waiting.jobs.len() && self.threads < THREADS_MAX {
            let (shared, returns, queue) = (self.shared.clone(), self.returns.clone(), self.queue);
            let started = std::thread::Builder::new()
                .name("cenote-disk-io".to_owned())
                .spawn(move || work(&shared, &returns, queue));
            match started {
                Ok(_) => self.threads += 1,
                Err(error) if self.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        waiting.jobs.push_back((token, job));
        drop(waiting);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Takes the jobs with this token back that no thread has begun.
    pub(super) fn cancel(&self, token: u64) -> Vec<Job> {
        let mut waiting = lock(&self.shared.waiting);
        let (cancelled, kept) = waiting.jobs.drain(..).partition::<VecDeque<_>, _>(|(of, _)| *of == token);
        waiting.jobs = kept;
        cancelled.into_iter().map(|(_, job)| job).collect()
    }

    /// Drops the jobs that wait and says how many; those that run end by themselves and keep their buffers until then.
    pub(super) fn close(&self) -> usize {
        let mut waiting = lock(&self.shared.waiting);
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.jobs);
        drop(waiting);
        self.shared.work.notify_all();
        dropped.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(shared: &Shared, returns: &Returns, queue: QueueId) {
    let mut waiting = lock(&shared.waiting);
    loop {
        if waiting.closed {
            return;
        }
        let Some((token, job)) = waiting.jobs.pop_front() else {
            waiting.idle_threads += 1;
            waiting = shared.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.idle_threads -= 1;
            continue;
        };
        drop(waiting);
        let completion = perform(token, job);
        lock(&returns.finished).push((queue, completion));
        returns.waker.wake();
        waiting = lock(&shared.waiting);
    }
}

fn perform(token: u64, job: Job) -> Completion {
    let (result, buffer) = match job {
        Job::Read { file, offset, mut into } => {
            let result = read(&file, offset, &mut into);
            (result.map(Outcome::Bytes), Some(into))
        }
        Job::Write { file, offset, data, durable } => {
            (write(&file, offset, &data, durable).map(|()| Outcome::Done), None)
        }
        Job::SyncData { file } => (again(|| rustix::fs::fdatasync(&file)).map(|()| Outcome::Done), None),
        Job::PunchHole { file, offset, len_bytes } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let result = again(|| rustix::fs::fallocate(&file, flags, offset, len_bytes));
            (result.map(|()| Outcome::Done), None)
        }
    };
    Completion { buffer, ..Completion::new(token, result) }
}

fn read(file: &Descriptor, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let target = &mut into[done..];
        let count = again(|| {
            let mut vectors = [IoSliceMut::new(target)];
            rustix::io::preadv2(file, &mut vectors, offset + done as u64, ReadWriteFlags::empty())
        })?;
        if count == 0 {
            break;
        }
        done += count;
    }
    Ok(done)
}

fn write(file: &Descriptor, offset: u64, data: &Payload, durable: bool) -> io::Result<()> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let mut done = 0;
    while done < data.len() {
        let vectors = vectors(data, done);
        let count = again(|| rustix::io::pwritev2(file, &vectors, offset + done as u64, flags))?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        done += count;
    }
    Ok(())
}

/// Returns the rest of a payload after its first `done` bytes.
pub(super) fn vectors(data: &Payload, done: usize) -> Vec<IoSlice<'_>> {
    let mut skip = done;
    let mut vectors = Vec::with_capacity(data.parts().len().min(VECTORS_MAX));
    for part in data.parts() {
        if skip >= part.len() {
            skip -= part.len();
        } else if vectors.len() < VECTORS_MAX {
            vectors.push(IoSlice::new(&part[skip..]));
            skip = 0;
        }
    }
    vectors
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
