//! The one completion loop of a data-plane thread: sockets, disks, timers and calls from other threads.
//!
//! Operations own their buffers and descriptors until the kernel is done with them, even if their queue
//! is gone. So this interface is safe to call, and a closed connection or a dropped [`Queue`] never
//! leaves the kernel writing into memory in use. Two backends behave alike (one test suite): io_uring,
//! where one system call per turn submits everything and waits; and, if the kernel or a container
//! forbids io_uring, epoll with a few threads per queue for disks.
//!
//! How it is used: each client (the socket layer, each disk) has a [`Queue`], submits operations with tokens of its own and
//! polls its completions. The thread's loop calls [`Driver::wait`], which alone enters the kernel, and then lets all clients
//! work until none has anything left to do. Nothing spins: with nothing to do, `wait` sleeps; at once, unless it was asked to look for
//! work for a moment before ([`Driver::busy_poll`]).

mod busy;
mod fallback;
mod lending;
mod ring;
mod scatter;
#[cfg(test)]
mod tests;
mod threads;
mod waker;

pub use lending::{Lender, SendPath, acknowledged_bytes, discard_at_close, keep_alive, unacknowledged_bytes};
pub use scatter::{Piece, Place, Scatter};
pub use waker::Waker;

use crate::{BufMut, Payload};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A socket or file; closed when the last user is done, operations in flight among them.
pub type Descriptor = Arc<OwnedFd>;

/// Ends both directions of a connection: what is in flight on it completes at once.
///
/// # Errors
/// When the peer ended it before.
pub fn shutdown(socket: &Descriptor) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Both)?)
}

/// Sends what the socket takes without waiting: bytes taken, none if it is full. Spares the loop a turn for the answer.
///
/// # Errors
/// The socket's.
pub fn send_now(socket: &Descriptor, data: &Payload) -> io::Result<usize> {
    let parts: SmallVec<[IoSlice<'_>; 16]> = data.parts().iter().map(|part| IoSlice::new(part)).collect();
    send_slices_now(socket, &parts)
}

/// As [`send_now`], bytes that lie anywhere.
///
/// # Errors
/// The socket's.
pub fn send_slices_now(socket: &Descriptor, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    send_slices_with(socket, slices, SendFlags::empty())
}

fn send_slices_with(socket: &Descriptor, slices: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    let slices = &slices[..slices.len().min(VECTORS_MAX)];
    let flags = flags | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}

/// Fills `into`, then `beyond`, with what the socket has, without waiting: bytes received, zero at the end of the stream; `None`: there
/// is nothing yet. Spares the loop a turn for the rest of what has begun to come.
///
/// # Errors
/// The socket's.
pub fn receive_now(socket: &Descriptor, into: &mut [u8], beyond: &mut [u8]) -> io::Result<Option<usize>> {
    unless_empty(receive(socket, &mut [IoSliceMut::new(into), IoSliceMut::new(beyond)]))
}

/// As [`receive_now`], into the pieces of `into`.
///
/// # Errors
/// The socket's.
pub fn receive_scattered_now(socket: &Descriptor, into: &mut Scatter) -> io::Result<Option<usize>> {
    unless_empty(receive_scattered(socket, into))
}

fn unless_empty(received: Result<usize, rustix::io::Errno>) -> io::Result<Option<usize>> {
    match received {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        other => Ok(Some(other?)),
    }
}

fn receive_scattered(socket: &Descriptor, into: &mut Scatter) -> Result<usize, rustix::io::Errno> {
    let mut parts: SmallVec<[IoSliceMut<'_>; 16]> = SmallVec::new();
    into.slices(VECTORS_MAX, |part| parts.push(part));
    receive(socket, &mut parts)
}

fn receive(socket: &Descriptor, parts: &mut [IoSliceMut<'_>]) -> Result<usize, rustix::io::Errno> {
    use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
    let message = recvmsg(socket, parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)?;
    Ok(message.bytes)
}

/// The kernel's limit of vectors per call (UIO_MAXIOV).
const VECTORS_MAX: usize = 1024;

/// Whether an operation failed because it was cancelled.
pub fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

/// Which backend to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// io_uring if it is permitted and complete, else the fallback. The environment variable `CENOTE_IO` set to
    /// `io_uring` or `fallback` decides instead.
    #[default]
    Automatic,
    /// io_uring; an error if it is not permitted or incomplete.
    IoUring,
    /// The fallback, by epoll and threads.
    Fallback,
}

/// Which backend is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    IoUring,
    /// The fallback, by epoll and threads.
    Fallback,
}

/// A request to the kernel.
#[derive(Debug)]
pub enum IoOperation {
    /// Answers [`Outcome::Accepted`] for each connection, until it fails or is cancelled.
    Accept { listener: Descriptor },
    /// Answers `Done` when the socket has something to read, or was closed. Costs no buffer while it waits.
    Readable { socket: Descriptor },
    /// Answers `Done` when the socket takes something, or was closed.
    Writable { socket: Descriptor },
    /// Fills `into[at..]` with what is there, at least one byte; answers `Bytes(0)` at the end of the
    /// stream. The buffer always comes back.
    Receive { socket: Descriptor, into: BufMut, at: usize },
    /// Fills the pieces in their order with what is there, at least one byte; answers `Bytes`, as
    /// [`IoOperation::Receive`]. Both buffers always come back with the completion.
    ReceiveScattered { socket: Descriptor, into: Box<Scatter> },
    /// Sends all of it; answers `Done`. One at a time per socket, or bytes may be mixed.
    Send { socket: Descriptor, data: Payload },
    /// Fills the buffer from `offset`; answers the `Bytes` read, fewer only at the end of the file.
    Read { file: Descriptor, offset: u64, into: BufMut },
    /// Writes all of it; `durable` as RWF_DSYNC. Answers `Done`.
    Write { file: Descriptor, offset: u64, data: Payload, durable: bool },
    /// fdatasync.
    SyncData { file: Descriptor },
    /// Gives the space of the range back (FALLOC_FL_PUNCH_HOLE, also on block devices).
    PunchHole { file: Descriptor, offset: u64, len_bytes: u64 },
    /// Answers `Done` after this time.
    Timeout { after: Duration },
}

/// How an operation succeeded.
#[derive(Debug)]
pub enum Outcome {
    /// All of it is done.
    Done,
    /// Bytes read or received; 0 at the end of a stream.
    Bytes(usize),
    /// More may follow with the same token.
    Accepted(OwnedFd),
}

/// The answer to one operation.
#[derive(Debug)]
pub struct Completion {
    /// Number that the owner of the operation gave to it.
    pub token: u64,
    /// An operation that was cancelled fails with `ECANCELED`.
    pub result: io::Result<Outcome>,
    /// The buffer of a `Receive` or `Read`.
    pub buffer: Option<BufMut>,
    /// The buffers of a `ReceiveScattered`.
    pub scatter: Option<Box<Scatter>>,
}

impl Completion {
    fn new(token: u64, result: io::Result<Outcome>) -> Self {
        Self { token, result, buffer: None, scatter: None }
    }
}

/// Names a queue inside the driver.
type QueueId = u32;
/// Completions on their way to their queues.
type Finished = Vec<(QueueId, Completion)>;

enum Backend {
    Ring(Box<ring::Ring>),
    Fallback(Box<fallback::Fallback>),
}

impl Backend {
    /// Whether it is worth entering the kernel.
    fn has_news(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_news(),
            Self::Fallback(_) => true,
        }
    }
}

struct Inner {
    backend: Backend,
    /// `None`: the queue was dropped.
    queues: Vec<Option<Vec<Completion>>>,
    /// Completions in all queues.
    undelivered: usize,
    timers: BinaryHeap<Reverse<(Instant, QueueId, u64)>>,
    finished: Finished,
    busy: busy::BusyPoll,
}

/// A handle to the loop; clones share it. It stays on the thread that made it.
#[derive(Clone)]
pub struct Driver {
    inner: Rc<RefCell<Inner>>,
    waker: Waker,
    kind: DriverKind,
}

/// One client's operations and completions. Dropping it cancels what is in flight.
pub struct Queue {
    inner: Rc<RefCell<Inner>>,
    id: QueueId,
    /// The kernel is to work off what is submitted on threads of its own.
    aside: bool,
}

impl Driver {
    /// Sets the loop up on this thread.
    ///
    /// # Errors
    /// If the backend that was demanded is not permitted here, or descriptors are exhausted.
    pub fn new(choice: DriverChoice) -> io::Result<Self> {
        let choice = match (choice, std::env::var("CENOTE_IO").as_deref()) {
            (DriverChoice::Automatic, Ok("io_uring")) => DriverChoice::IoUring,
            (DriverChoice::Automatic, Ok("fallback")) => DriverChoice::Fallback,
            (choice, _) => choice,
        };
        let waker = Waker::new()?;
        let ring = match choice {
            DriverChoice::Fallback => None,
            DriverChoice::IoUring => Some(ring::Ring::new(waker.clone())?),
            DriverChoice::Automatic => ring::Ring::new(waker.clone()).ok(),
        };
        let (backend, kind) = match ring {
            Some(ring) => (Backend::Ring(Box::new(ring)), DriverKind::IoUring),
            None => {
                let fallback = fallback::Fallback::new(waker.clone())?;
                (Backend::Fallback(Box::new(fallback)), DriverKind::Fallback)
            }
        };
        let inner = Inner {
            backend,
            queues: Vec::new(),
            undelivered: 0,
            timers: BinaryHeap::new(),
            finished: Vec::new(),
            busy: busy::BusyPoll::default(),
        };
        Ok(Self { inner: Rc::new(RefCell::new(inner)), waker, kind })
    }

    /// Returns the backend that was chosen.
    pub fn kind(&self) -> DriverKind {
        self.kind
    }

    /// A new client of the loop.
    pub fn queue(&self) -> Queue {
        self.new_queue(false)
    }

    /// A new client of the loop, for files of file systems that may keep a caller waiting when it hands them an operation, as those in user space
    /// do: the kernel works its operations off on threads of its own, and nobody else waits.
    pub fn queue_aside(&self) -> Queue {
        self.new_queue(true)
    }

    fn new_queue(&self, aside: bool) -> Queue {
        let mut inner = self.inner.borrow_mut();
        inner.queues.push(Some(Vec::new()));
        Queue { inner: self.inner.clone(), id: (inner.queues.len() - 1) as QueueId, aside }
    }

    /// From now on [`Driver::wait`] searches for work for that time before it sleeps, while work keeps
    /// coming; zero, as at first: not at all.
    pub fn busy_poll(&self, limit: Duration) {
        self.inner.borrow_mut().busy = busy::BusyPoll::new(limit);
    }

    /// Ends [`Driver::wait`] from any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Hands everything submitted to the kernel and sleeps until something completes, the waker is used, or `timeout` has
    /// passed (`None`: without end). Returns at once if completions already wait in a queue.
    ///
    /// # Errors
    /// If the kernel refuses to continue the loop itself; nothing that one operation did.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.borrow_mut().wait(timeout)
    }

    /// Operations that the kernel has not answered, of all queues, timers apart.
    pub fn in_flight(&self) -> usize {
        match &self.inner.borrow().backend {
            Backend::Ring(ring) => ring.in_flight(),
            Backend::Fallback(fallback) => fallback.in_flight(),
        }
    }
}

impl Queue {
    /// Takes an operation; its answer carries `token`, which is the caller's own affair.
    pub fn submit(&self, token: u64, operation: IoOperation) {
        let inner = &mut *self.inner.borrow_mut();
        if let IoOperation::Timeout { after } = operation {
            inner.timers.push(Reverse((Instant::now() + after, self.id, token)));
            return;
        }
        match &mut inner.backend {
            Backend::Ring(ring) => ring.submit(self.id, token, operation, self.aside),
            Backend::Fallback(fallback) => fallback.submit(self.id, token, operation),
        }
    }

    /// Moves the answers that are there into `out`.
    pub fn poll(&self, out: &mut Vec<Completion>) {
        let inner = &mut *self.inner.borrow_mut();
        if let Some(Some(answers)) = inner.queues.get_mut(self.id as usize) {
            inner.undelivered -= answers.len();
            out.append(answers);
        }
    }

    /// Whether [`Queue::poll`] has anything to give.
    pub fn has_completions(&self) -> bool {
        let inner = self.inner.borrow();
        inner
            .queues
            .get(self.id as usize)
            .is_some_and(|answers| answers.as_ref().is_some_and(|a| !a.is_empty()))
    }

    /// Asks for an early end of the operations with this token. Each is still answered: with `ECANCELED`, or as if it had not
    /// been cancelled. Timers are only answered when their time has come.
    pub fn cancel(&self, token: u64) {
        match &mut self.inner.borrow_mut().backend {
            Backend::Ring(ring) => ring.cancel(self.id, Some(token)),
            Backend::Fallback(fallback) => fallback.cancel(self.id, Some(token)),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let inner = &mut *self.inner.borrow_mut();
        if let Some(answers) = inner.queues.get_mut(self.id as usize).and_then(Option::take) {
            inner.undelivered -= answers.len();
        }
        match &mut inner.backend {
            Backend::Ring(ring) => ring.cancel(self.id, None),
            Backend::Fallback(fallback) => fallback.abandon(self.id),
        }
    }
}

impl Inner {
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = self.sleep_bound(timeout);
        let (found, took) = self.look_for_work(timeout)?;
        if !found {
            self.enter(timeout.map(|timeout| timeout.saturating_sub(took)))?;
        }
        self.expire_timers();
        for (queue, completion) in self.finished.drain(..) {
            // Answers for a dropped queue end here, and with them their buffers and accepted sockets.
            if let Some(Some(answers)) = self.queues.get_mut(queue as usize) {
                answers.push(completion);
                self.undelivered += 1;
            }
        }
        Ok(())
    }

    /// Enters the kernel; whether there is something to do, an answer or a call from elsewhere.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let woken = match &mut self.backend {
            Backend::Ring(ring) => ring.wait(timeout, &mut self.finished)?,
            Backend::Fallback(fallback) => fallback.wait(timeout, &mut self.finished)?,
        };
        Ok(woken || !self.finished.is_empty())
    }

    /// Polls busily before a sleep, if that was asked for. Whether it found something to do, and how long that took.
    fn look_for_work(&mut self, timeout: Option<Duration>) -> io::Result<(bool, Duration)> {
        let is_sleep = timeout != Some(Duration::ZERO);
        let limit = if is_sleep { self.busy.before_sleep() } else { Duration::ZERO };
        if limit.is_zero() {
            return Ok((false, Duration::ZERO));
        }
        let began = Instant::now();
        let limit = timeout.map_or(limit, |timeout| timeout.min(limit));
        let mut found = self.enter(Some(Duration::ZERO))?;
        while !found && began.elapsed() < limit {
            std::hint::spin_loop();
            found = self.backend.has_news() && self.enter(Some(Duration::ZERO))?;
        }
        self.busy.looked(found);
        Ok((found, began.elapsed()))
    }

    fn sleep_bound(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.undelivered > 0 {
            return Some(Duration::ZERO);
        }
        let Some(Reverse((first, _, _))) = self.timers.peek() else { return timeout };
        let until_first = first.saturating_duration_since(Instant::now());
        Some(timeout.map_or(until_first, |timeout| timeout.min(until_first)))
    }

    fn expire_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(Reverse((at, queue, token))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.finished.push((queue, Completion::new(token, Ok(Outcome::Done))));
        }
    }
}
