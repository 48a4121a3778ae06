//! The backend without io_uring: epoll for sockets, threads for disks.
//!
//! A socket is registered once, edge-triggered. Each operation is tried at once, and again at every edge until it is done;
//! so at most one system call per operation is wasted, and none while nothing happens.

use super::threads::{Job, Pool, Returns, vectors};
use super::{Completion, Descriptor, Finished, IoOperation, Outcome, QueueId, Scatter, Waker};
use crate::{BufMut, Payload};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

const EVENTS_MAX: usize = 256;
const WAKE: u64 = u64::MAX;

enum PollWork {
    Accept { listener: Descriptor },
    Readable { socket: Descriptor },
    Writable { socket: Descriptor },
    Receive { socket: Descriptor, into: BufMut, at: usize },
    ReceiveScattered { socket: Descriptor, into: Box<Scatter> },
    Send { socket: Descriptor, data: Payload, done: usize },
}

struct Waiting {
    queue: QueueId,
    token: u64,
    work: PollWork,
}

/// A registered socket and what waits for it.
struct Registered {
    socket: Weak<OwnedFd>,
    reading: VecDeque<Waiting>,
    writing: VecDeque<Waiting>,
}

/// How far one attempt came.
enum Attempt {
    Finished(io::Result<Outcome>),
    /// Until the next edge.
    NotReady,
}

pub(super) struct Fallback {
    epoll: OwnedFd,
    waker: Waker,
    sockets: HashMap<RawFd, Registered>,
    pools: HashMap<QueueId, Pool>,
    returns: Arc<Returns>,
    finished: Finished,
    events: Vec<epoll::Event>,
    in_flight: usize,
}

impl Fallback {
    pub(super) fn new(waker: Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, waker.fd(), epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            returns: Returns::new(waker.clone()),
            waker,
            sockets: HashMap::new(),
            pools: HashMap::new(),
            finished: Finished::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            in_flight: 0,
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn submit(&mut self, queue: QueueId, token: u64, operation: IoOperation) {
        self.in_flight += 1;
        let work = match operation {
            IoOperation::Accept { listener } => PollWork::Accept { listener },
            IoOperation::Readable { socket } => PollWork::Readable { socket },
            IoOperation::Writable { socket } => PollWork::Writable { socket },
            IoOperation::Receive { socket, into, at } => {
                let at = at.min(into.len());
                PollWork::Receive { socket, into, at }
            }
            IoOperation::ReceiveScattered { socket, into } => PollWork::ReceiveScattered { socket, into },
            IoOperation::Send { socket, data } => PollWork::Send { socket, data, done: 0 },
            IoOperation::Read { file, offset, into } => {
                return self.submit_job(queue, token, Job::Read { file, offset, into });
            }
            IoOperation::Write { file, offset, data, durable } => {
                return self.submit_job(queue, token, Job::Write { file, offset, data, durable });
            }
            IoOperation::SyncData { file } => return self.submit_job(queue, token, Job::SyncData { file }),
            IoOperation::PunchHole { file, offset, len_bytes } => {
                return self.submit_job(queue, token, Job::PunchHole { file, offset, len_bytes });
            }
            // Timers are the driver's own.
            IoOperation::Timeout { .. } => return self.in_flight -= 1,
        };
        let waiting = Waiting { queue, token, work };
        if let Err(error) = self.register(waiting.work.socket()) {
            return self.answer(waiting, Err(error));
        }
        let fd = waiting.work.socket().as_raw_fd();
        let reading = waiting.work.reads();
        if let Some(registered) = self.sockets.get_mut(&fd) {
            let line = if reading { &mut registered.reading } else { &mut registered.writing };
            line.push_back(waiting);
            if line.len() == 1 {
                self.progress(fd, reading);
            }
        }
    }

    pub(super) fn cancel(&mut self, queue: QueueId, token: Option<u64>) {
        let mut cancelled = Vec::new();
        let wanted =
            |waiting: &Waiting| waiting.queue == queue && token.is_none_or(|token| waiting.token == token);
        for registered in self.sockets.values_mut() {
            for line in [&mut registered.reading, &mut registered.writing] {
                for _ in 0..line.len() {
                    if let Some(waiting) = line.pop_front() {
                        if wanted(&waiting) { cancelled.push(waiting) } else { line.push_back(waiting) }
                    }
                }
            }
        }
        for waiting in cancelled {
            self.answer(waiting, Err(Errno::CANCELED.into()));
        }
        if let (Some(token), Some(pool)) = (token, self.pools.get(&queue)) {
            for job in pool.cancel(token) {
                let buffer = match job {
                    Job::Read { into, .. } => Some(into),
                    _ => None,
                };
                let result = Err(Errno::CANCELED.into());
                self.in_flight -= 1;
                self.finished.push((queue, Completion { buffer, ..Completion::new(token, result) }));
            }
        }
    }

    /// The queue is gone: nothing of it is answered any more.
    pub(super) fn abandon(&mut self, queue: QueueId) {
        self.cancel(queue, None);
        if let Some(pool) = self.pools.remove(&queue) {
            self.in_flight -= pool.close();
        }
    }

    /// Whether the waker was used.
    pub(super) fn wait(&mut self, timeout: Option<Duration>, finished: &mut Finished) -> io::Result<bool> {
        let mut woken = false;
        self.take_returns();
        let timeout = if self.finished.is_empty() { timeout } else { Some(Duration::ZERO) };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for at in 0..self.events.len() {
            let event = self.events[at];
            let (name, flags) = (event.data.u64(), event.flags);
            if name == WAKE {
                let mut counter = [0; 8];
                rustix::io::read(self.waker.fd(), &mut counter)?;
                self.waker.taken();
                woken = true;
                continue;
            }
            let fd = name as RawFd;
            let broken = epoll::EventFlags::ERR | epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
            if flags.intersects(epoll::EventFlags::IN | broken) {
                self.progress(fd, true);
            }
            if flags.intersects(epoll::EventFlags::OUT | broken) {
                self.progress(fd, false);
            }
        }
        self.take_returns();
        finished.append(&mut self.finished);
        Ok(woken)
    }

    fn take_returns(&mut self) {
        let before = self.finished.len();
        self.returns.take(&mut self.finished);
        self.in_flight -= self.finished.len() - before;
    }

    fn submit_job(&mut self, queue: QueueId, token: u64, job: Job) {
        let pool = self.pools.entry(queue).or_insert_with(|| Pool::new(queue, self.returns.clone()));
        if let Err(error) = pool.submit(token, job) {
            self.in_flight -= 1;
            self.finished.push((queue, Completion::new(token, Err(error))));
        }
    }

    /// Has epoll watch the socket, if it does not yet.
    fn register(&mut self, socket: &Descriptor) -> io::Result<()> {
        let fd = socket.as_raw_fd();
        if let Some(registered) = self.sockets.get(&fd)
            && std::ptr::eq(registered.socket.as_ptr(), Arc::as_ptr(socket))
        {
            return Ok(());
        }
        // A closed socket left epoll by itself; its number may serve another one.
        let (data, flags) = (epoll::EventData::new_u64(fd as u64), interest());
        match epoll::add(&self.epoll, socket, data, flags) {
            Ok(()) => {}
            Err(Errno::EXIST) => epoll::modify(&self.epoll, socket, data, flags)?,
            Err(error) => return Err(error.into()),
        }
        if self.sockets.len() > 64 && self.sockets.len().is_power_of_two() {
            self.sockets.retain(|_, registered| registered.socket.strong_count() > 0);
        }
        let registered =
            Registered { socket: Arc::downgrade(socket), reading: VecDeque::new(), writing: VecDeque::new() };
        self.sockets.insert(fd, registered);
        Ok(())
    }

    /// Tries what waits for one direction of a socket, in order, until something is not ready.
    fn progress(&mut self, fd: RawFd, reading: bool) {
        loop {
            let Some(registered) = self.sockets.get_mut(&fd) else { return };
            let line = if reading { &mut registered.reading } else { &mut registered.writing };
            let Some(first) = line.front_mut() else { return };
            match first.work.attempt() {
                Attempt::NotReady => return,
                Attempt::Finished(Ok(outcome @ Outcome::Accepted(_))) => {
                    let (queue, token) = (first.queue, first.token);
                    self.finished.push((queue, Completion::new(token, Ok(outcome))));
                }
                Attempt::Finished(result) => {
                    if let Some(done) = line.pop_front() {
                        self.answer(done, result);
                    }
                }
            }
        }
    }

    fn answer(&mut self, waiting: Waiting, result: io::Result<Outcome>) {
        let Waiting { queue, token, work } = waiting;
        let (buffer, scatter) = match work {
            PollWork::Receive { into, .. } => (Some(into), None),
            PollWork::ReceiveScattered { into, .. } => (None, Some(into)),
            _ => (None, None),
        };
        self.in_flight -= 1;
        self.finished.push((queue, Completion { token, result, buffer, scatter }));
    }
}

fn interest() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
}

impl PollWork {
    fn socket(&self) -> &Descriptor {
        match self {
            Self::Accept { listener } => listener,
            Self::Readable { socket }
            | Self::Writable { socket }
            | Self::Receive { socket, .. }
            | Self::ReceiveScattered { socket, .. }
            | Self::Send { socket, .. } => socket,
        }
    }

    fn reads(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Writable { .. })
    }

    fn attempt(&mut self) -> Attempt {
        loop {
            let result = match self {
                Self::Accept { listener } => accept(listener),
                Self::Readable { socket } => match is_ready(socket, PollFlags::IN | PollFlags::RDHUP) {
                    Ok(false) => return Attempt::NotReady,
                    other => other.map(|_| Outcome::Done),
                },
                Self::Writable { socket } => match is_ready(socket, PollFlags::OUT) {
                    Ok(false) => return Attempt::NotReady,
                    other => other.map(|_| Outcome::Done),
                },
                Self::Receive { socket, into, at } => {
                    let target = &mut into[*at..];
                    rustix::net::recv(&*socket, target, RecvFlags::DONTWAIT)
                        .map(|(_, count)| Outcome::Bytes(count))
                }
                Self::ReceiveScattered { socket, into } => {
                    super::receive_scattered(socket, into).map(Outcome::Bytes)
                }
                Self::Send { socket, data, done } => match send(socket, data, *done) {
                    Ok(count) if *done + count < data.len() => {
                        *done += count;
                        continue;
                    }
                    other => other.map(|_| Outcome::Done),
                },
            };
            return match result {
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => Attempt::NotReady,
                other => Attempt::Finished(other.map_err(io::Error::from)),
            };
        }
    }
}

fn is_ready(socket: &Descriptor, wanted: PollFlags) -> Result<bool, Errno> {
    let mut ready = [PollFd::new(socket, wanted)];
    Ok(rustix::event::poll(&mut ready, Some(&Timespec::default()))? > 0)
}

fn accept(listener: &Descriptor) -> Result<Outcome, Errno> {
    // A client that went away between the edge and the call must not block it.
    rustix::io::ioctl_fionbio(listener, true)?;
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC).map(Outcome::Accepted)
}

fn send(socket: &Descriptor, data: &Payload, done: usize) -> Result<usize, Errno> {
    let vectors = vectors(data, done);
    let mut ancillary = SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, &vectors, &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}
