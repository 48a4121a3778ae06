//! Sequential I/O for opening, formatting and inspecting: futures over a [`Disk`], polled to
//! completion by the caller that polls the disk. No runtime, no waker: the caller polls again.

use disk::{Disk, DiskCompletion, DiskError, DiskOperation};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use sys::{Buf, BufMut, Payload};

use crate::layout::PAGE_BYTES;
use crate::numbers::NumberMap;

struct Shared<D> {
    disk: D,
    next_token: u64,
    done: NumberMap<Result<Option<BufMut>, DiskError>>,
    scratch: Vec<DiskCompletion>,
    /// Offsets of pages that the medium failed to read, and that stand as zeroes.
    unreadable: BTreeSet<u64>,
}

/// A handle to the disk; clones share it.
pub(crate) struct Io<D> {
    shared: Rc<RefCell<Shared<D>>>,
}

impl<D> Clone for Io<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// An operation in flight.
pub(crate) struct Started(u64);

impl<D: Disk> Io<D> {
    fn new(disk: D) -> Self {
        let shared = Shared {
            disk,
            next_token: 0,
            done: NumberMap::default(),
            scratch: Vec::new(),
            unreadable: BTreeSet::new(),
        };
        Self { shared: Rc::new(RefCell::new(shared)) }
    }

    pub(crate) fn info(&self) -> disk::DiskInfo {
        self.shared.borrow().disk.info().clone()
    }

    pub(crate) fn start(&self, operation: DiskOperation) -> Started {
        let mut shared = self.shared.borrow_mut();
        let token = shared.next_token;
        shared.next_token += 1;
        shared.disk.submit(token, operation);
        Started(token)
    }

    pub(crate) fn start_read(&self, offset: u64, len: usize) -> Started {
        self.start(DiskOperation::Read { offset, into: BufMut::for_overwrite(len) })
    }

    pub(crate) async fn finish(&self, started: Started) -> Result<Option<BufMut>, DiskError> {
        poll_fn(|_| match self.shared.borrow_mut().done.remove(&started.0) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        })
        .await
    }

    /// Reads; repeats a failed read once, since many errors of a medium are transient.
    pub(crate) async fn read(&self, offset: u64, len: usize) -> Result<Buf, DiskError> {
        let started = self.start_read(offset, len);
        match self.finish_read(started).await {
            Err(DiskError::Medium(_)) => {
                let again = self.start_read(offset, len);
                self.finish_read(again).await
            }
            read => read,
        }
    }

    pub(crate) async fn finish_read(&self, started: Started) -> Result<Buf, DiskError> {
        let filled = self.finish(started).await?;
        filled.map(BufMut::freeze).ok_or(DiskError::Invalid("a read was answered without its buffer"))
    }

    /// As [`Self::read`], with zeroes for pages that the device cannot read: contents that prove
    /// themselves then count as damaged.
    pub(crate) async fn read_salvaging(&self, offset: u64, len: usize) -> Result<Buf, DiskError> {
        match self.read(offset, len).await {
            Err(DiskError::Medium(_)) => {}
            other => return other,
        }
        let mut whole = BufMut::zeroed(len);
        for (page, place) in whole.chunks_mut(PAGE_BYTES).enumerate() {
            let offset = offset + (page * PAGE_BYTES) as u64;
            match self.read(offset, place.len()).await {
                Ok(bytes) => place.copy_from_slice(&bytes),
                Err(DiskError::Medium(_)) => drop(self.shared.borrow_mut().unreadable.insert(offset)),
                Err(error) => return Err(error),
            }
        }
        Ok(whole.freeze())
    }

    /// Returns the offsets of the pages that [`Self::read_salvaging`] could not read so far.
    pub(crate) fn unreadable(&self) -> BTreeSet<u64> {
        self.shared.borrow().unreadable.clone()
    }

    /// Whether [`Self::read_salvaging`] could not read the page.
    pub(crate) fn is_unreadable(&self, offset: u64) -> bool {
        self.shared.borrow().unreadable.contains(&offset)
    }

    pub(crate) async fn write(&self, offset: u64, data: Payload, durable: bool) -> Result<(), DiskError> {
        let started = self.start(DiskOperation::Write { offset, data, durable });
        self.finish(started).await.map(|_| ())
    }

    pub(crate) async fn flush(&self) -> Result<(), DiskError> {
        let started = self.start(DiskOperation::Flush);
        self.finish(started).await.map(|_| ())
    }

    fn poll_disk(&self) {
        let shared = &mut *self.shared.borrow_mut();
        shared.disk.poll(&mut shared.scratch);
        let done = shared.scratch.drain(..).map(|completion| (completion.token, completion.result));
        shared.done.extend(done);
    }
}

/// Work on a disk, polled until it is done.
pub(crate) struct DiskWork<D, T> {
    io: Option<Io<D>>,
    future: Option<Pin<Box<dyn Future<Output = T>>>>,
}

impl<D: Disk + 'static, T: 'static> DiskWork<D, T> {
    pub(crate) fn new<F>(disk: D, work: impl FnOnce(Io<D>) -> F) -> Self
    where
        F: Future<Output = T> + 'static,
    {
        let io = Io::new(disk);
        let future = Box::pin(work(io.clone()));
        Self { io: Some(io), future: Some(future) }
    }

    /// Polls the work. Returns the result and the disk, once, when it is done.
    pub(crate) fn poll(&mut self) -> Option<(T, D)> {
        let (io, future) = (self.io.as_ref()?, self.future.as_mut()?);
        io.poll_disk();
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => None,
            Poll::Ready(result) => {
                self.future = None;
                let shared = Rc::try_unwrap(self.io.take()?.shared).ok()?;
                Some((result, shared.into_inner().disk))
            }
        }
    }

    /// Polls until done. Ends because every disk operation ends within a bounded time.
    pub(crate) fn run(mut self) -> (T, D) {
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            std::thread::yield_now();
        }
    }
}
