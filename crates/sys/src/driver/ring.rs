//! The io_uring backend.
//!
//! Every operation lives in a slot of its own, boxed, until the kernel's last completion for it: the slot owns descriptor,
//! buffers, vectors and message header that the kernel was given addresses of.

use super::{Completion, Descriptor, Finished, IoOperation, Outcome, QueueId, Scatter, VECTORS_MAX, Waker};
use crate::{BufMut, Payload};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const SUBMISSION_ENTRIES: u32 = 1024;
const COMPLETION_ENTRIES: u32 = 8192;
/// Bytes per read or write call; larger ones go in steps.
const STEP_BYTES_MAX: usize = 1 << 30;
/// How long a dropped ring waits for the kernel before it leaks what the kernel still holds.
const DROP_WAIT: Duration = Duration::from_secs(5);

const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// Every operation code the ring uses: a kernel that lacks one is not used.
const CODES: [u8; 12] = [
    opcode::AcceptMulti::CODE,
    opcode::PollAdd::CODE,
    opcode::Recv::CODE,
    opcode::RecvMsg::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::AsyncCancel::CODE,
];

enum RingWork {
    None,
    Accept { listener: Descriptor },
    Readable { socket: Descriptor },
    Writable { socket: Descriptor },
    Receive { socket: Descriptor, into: BufMut, at: usize },
    ReceiveScattered { socket: Descriptor, into: Box<Scatter> },
    Send { socket: Descriptor, data: Payload, done: usize },
    Read { file: Descriptor, offset: u64, into: BufMut, done: usize },
    Write { file: Descriptor, offset: u64, data: Payload, durable: bool, done: usize },
    SyncData { file: Descriptor },
    PunchHole { file: Descriptor, offset: u64, len_bytes: u64 },
}

struct Slot {
    /// Distinguishes a late cancellation of the slot's former operation from one of this.
    generation: u32,
    queue: QueueId,
    token: u64,
    cancelled: bool,
    /// The kernel works it off on a thread of its own, even if it could be tried at once.
    aside: bool,
    work: RingWork,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

/// Threads that the kernel may have for files of this loop. Made when they are needed. A disk that hangs holds one for each operation
/// until its time is up; the kernel's own bound, four for each processor, would leave none for the other disks.
const FILE_WORKERS_MAX: u32 = 512;

pub(super) struct Ring {
    ring: IoUring,
    waker: Waker,
    /// Where the kernel puts the eventfd's counter.
    wake_counter: Box<u64>,
    wake_armed: bool,
    /// Nothing is armed any more.
    closing: bool,
    /// Completions while they are worked off; empty otherwise.
    entries: Vec<cqueue::Entry>,
    /// Boxed: the kernel holds addresses inside of slots while the vector grows.
    #[allow(clippy::vec_box)]
    slots: Vec<Box<Slot>>,
    free: Vec<u32>,
    /// Entries that found the submission queue full.
    backlog: VecDeque<squeue::Entry>,
    accept_multishot: bool,
    /// Whether the kernel sets a flag in shared memory when it has news: without that only entering the
    /// kernel shows it.
    shows_work: bool,
}

/// The next step of an operation after a completion.
enum Next {
    Answer(io::Result<Outcome>),
    /// Not finished: goes to the kernel again.
    Again,
}

impl Ring {
    pub(super) fn new(waker: Waker) -> io::Result<Self> {
        let (ring, shows_work) = build()?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"));
        }
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !CODES.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring lacks operations",
            ));
        }
        // A kernel that does not know it keeps its own bound.
        let _ = ring.submitter().register_iowq_max_workers(&mut [FILE_WORKERS_MAX, 0]);
        let mut ring = Self {
            ring,
            waker,
            wake_counter: Box::new(0),
            wake_armed: false,
            closing: false,
            entries: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            accept_multishot: true,
            shows_work,
        };
        ring.arm_waker();
        Ok(ring)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn submit(&mut self, queue: QueueId, token: u64, operation: IoOperation, aside: bool) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Box::new(Slot::empty()));
            (self.slots.len() - 1) as u32
        });
        let slot = &mut *self.slots[index as usize];
        slot.queue = queue;
        slot.token = token;
        slot.cancelled = false;
        slot.aside = aside;
        slot.work = match operation {
            IoOperation::Accept { listener } => {
                // A non-blocking listener would make the kernel answer EAGAIN instead of waiting.
                let _ = rustix::io::ioctl_fionbio(&listener, false);
                RingWork::Accept { listener }
            }
            IoOperation::Readable { socket } => RingWork::Readable { socket },
            IoOperation::Writable { socket } => RingWork::Writable { socket },
            IoOperation::Receive { socket, into, at } => {
                let at = at.min(into.len());
                RingWork::Receive { socket, into, at }
            }
            IoOperation::ReceiveScattered { socket, into } => RingWork::ReceiveScattered { socket, into },
            IoOperation::Send { socket, data } => RingWork::Send { socket, data, done: 0 },
            IoOperation::Read { file, offset, into } => RingWork::Read { file, offset, into, done: 0 },
            IoOperation::Write { file, offset, data, durable } => {
                RingWork::Write { file, offset, data, durable, done: 0 }
            }
            IoOperation::SyncData { file } => RingWork::SyncData { file },
            IoOperation::PunchHole { file, offset, len_bytes } => {
                RingWork::PunchHole { file, offset, len_bytes }
            }
            // Timers are the driver's own.
            IoOperation::Timeout { .. } => RingWork::None,
        };
        self.start(index);
    }

    pub(super) fn cancel(&mut self, queue: QueueId, token: Option<u64>) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let wanted = slot.queue == queue && token.is_none_or(|token| slot.token == token);
            if wanted && !slot.cancelled && !matches!(slot.work, RingWork::None) {
                slot.cancelled = true;
                let name = name(index as u32, slot.generation);
                self.push(opcode::AsyncCancel::new(name).build().user_data(CANCEL));
            }
        }
    }

    /// Whether the kernel has something to say; seen without entering it.
    pub(super) fn has_news(&mut self) -> bool {
        !self.shows_work || self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Whether the waker was used.
    pub(super) fn wait(&mut self, timeout: Option<Duration>, finished: &mut Finished) -> io::Result<bool> {
        let mut woken = false;
        while !self.backlog.is_empty() {
            self.refill();
            if !self.backlog.is_empty() {
                enter(self.ring.submit())?;
                // A kernel that is busy with completions takes no more until some are reaped.
                woken |= self.reap(finished);
            }
        }
        let ready = woken || !finished.is_empty() || !self.ring.completion().is_empty();
        let timeout = if ready { Some(Duration::ZERO) } else { timeout };
        let entered = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let time = types::Timespec::from(timeout);
                let arguments = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
        };
        enter(entered)?;
        Ok(self.reap(finished) || woken)
    }

    /// Whether the waker was used.
    fn reap(&mut self, finished: &mut Finished) -> bool {
        let mut woken = false;
        let mut entries = mem::take(&mut self.entries);
        entries.extend(self.ring.completion());
        for entry in entries.drain(..) {
            match entry.user_data() {
                WAKE => {
                    self.waker.taken();
                    woken = true;
                    self.wake_armed = false;
                    if !self.closing {
                        self.arm_waker();
                    }
                }
                CANCEL => {}
                name => self.complete(name as u32, &entry, finished),
            }
        }
        self.entries = entries;
        woken
    }

    fn complete(&mut self, index: u32, entry: &cqueue::Entry, finished: &mut Finished) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if cqueue::more(entry.flags()) {
            if let Ok(outcome) = accepted(entry.result()) {
                let completion = Completion::new(slot.token, Ok(outcome));
                finished.push((slot.queue, completion));
            }
            return;
        }
        match slot.advance(entry.result(), &mut self.accept_multishot) {
            Next::Again if slot.cancelled => self.finish(index, Err(Errno::CANCELED.into()), finished),
            Next::Again => self.start(index),
            // A single accept, or the last of many: the operation continues.
            Next::Answer(Ok(outcome @ Outcome::Accepted(_))) => {
                let completion = Completion::new(slot.token, Ok(outcome));
                finished.push((slot.queue, completion));
                if slot.cancelled {
                    self.finish(index, Err(Errno::CANCELED.into()), finished);
                } else {
                    self.start(index);
                }
            }
            Next::Answer(result) => self.finish(index, result, finished),
        }
    }

    fn finish(&mut self, index: u32, result: io::Result<Outcome>, finished: &mut Finished) {
        let slot = &mut *self.slots[index as usize];
        let (buffer, scatter) = match mem::replace(&mut slot.work, RingWork::None) {
            RingWork::Receive { into, .. } | RingWork::Read { into, .. } => (Some(into), None),
            RingWork::ReceiveScattered { into, .. } => (None, Some(into)),
            _ => (None, None),
        };
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        finished.push((slot.queue, Completion { token: slot.token, result, buffer, scatter }));
        self.free.push(index);
    }

    /// Hands the slot's operation, or what is left of it, to the kernel.
    fn start(&mut self, index: u32) {
        let slot = &mut *self.slots[index as usize];
        let entry = slot.entry(self.accept_multishot).user_data(name(index, slot.generation));
        let entry = if slot.aside { entry.flags(squeue::Flags::ASYNC) } else { entry };
        self.push(entry);
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: what the entry points to belongs to a slot (or to `wake_counter`), which lives until its completion.
        let pushed = self.backlog.is_empty() && unsafe { self.ring.submission().push(&entry) }.is_ok();
        if !pushed {
            self.backlog.push_back(entry);
        }
    }

    fn refill(&mut self) {
        let mut submission = self.ring.submission();
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: as in `push`.
            if unsafe { submission.push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    fn arm_waker(&mut self) {
        self.wake_armed = true;
        let fd = types::Fd(self.waker.fd().as_raw_fd());
        let counter: *mut u64 = &raw mut *self.wake_counter;
        self.push(opcode::Read::new(fd, counter.cast(), 8).build().user_data(WAKE));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if !matches!(slot.work, RingWork::None) {
                let name = name(index as u32, slot.generation);
                self.push(opcode::AsyncCancel::new(name).build().user_data(CANCEL));
            }
        }
        for slot in &mut self.slots {
            slot.cancelled = true;
        }
        // The eventfd's read ends by being written to.
        self.closing = true;
        self.waker.wake();
        let deadline = Instant::now() + DROP_WAIT;
        let mut finished = Finished::new();
        while (self.in_flight() > 0 || self.wake_armed) && Instant::now() < deadline {
            if self.wait(Some(Duration::from_millis(100)), &mut finished).is_err() {
                break;
            }
            finished.clear();
        }
        if self.in_flight() > 0 || self.wake_armed {
            // A hung device: the kernel may still write there, so the memory can never be used again.
            mem::forget(mem::take(&mut self.slots));
            Box::leak(mem::replace(&mut self.wake_counter, Box::new(0)));
        }
    }
}

impl Slot {
    fn empty() -> Self {
        Self {
            generation: 0,
            queue: 0,
            token: 0,
            cancelled: false,
            aside: false,
            work: RingWork::None,
            vectors: Vec::new(),
            // SAFETY: a message header of zeroes names no memory.
            message: unsafe { mem::zeroed() },
        }
    }

    /// Decides by the kernel's answer how the operation continues.
    fn advance(&mut self, result: i32, accept_multishot: &mut bool) -> Next {
        let failed = result < 0;
        let errno = if failed { Errno::from_raw_os_error(-result) } else { Errno::IO };
        if failed && errno == Errno::INTR {
            return Next::Again;
        }
        match &mut self.work {
            RingWork::Accept { .. } if failed => match errno {
                Errno::INVAL if *accept_multishot => {
                    *accept_multishot = false;
                    Next::Again
                }
                // The client went away while it was in the listener's backlog.
                Errno::CONNABORTED | Errno::PROTO => Next::Again,
                _ => Next::Answer(Err(errno.into())),
            },
            RingWork::Accept { .. } => Next::Answer(accepted(result)),
            RingWork::Receive { socket, .. }
            | RingWork::ReceiveScattered { socket, .. }
            | RingWork::Send { socket, .. }
                if failed && errno == Errno::AGAIN =>
            {
                // Somebody made the socket non-blocking: the kernel waits only for blocking ones.
                match rustix::io::ioctl_fionbio(&*socket, false) {
                    Ok(()) => Next::Again,
                    Err(error) => Next::Answer(Err(error.into())),
                }
            }
            _ if failed => Next::Answer(Err(errno.into())),
            RingWork::Receive { .. } | RingWork::ReceiveScattered { .. } => {
                Next::Answer(Ok(Outcome::Bytes(result as usize)))
            }
            RingWork::Send { data, done, .. } | RingWork::Write { data, done, .. } => {
                *done += result as usize;
                if *done >= data.len() {
                    Next::Answer(Ok(Outcome::Done))
                } else if result == 0 {
                    Next::Answer(Err(io::ErrorKind::WriteZero.into()))
                } else {
                    Next::Again
                }
            }
            RingWork::Read { into, done, .. } => {
                *done += result as usize;
                if *done >= into.len() || result == 0 {
                    Next::Answer(Ok(Outcome::Bytes(*done)))
                } else {
                    Next::Again
                }
            }
            RingWork::Readable { .. }
            | RingWork::Writable { .. }
            | RingWork::SyncData { .. }
            | RingWork::PunchHole { .. }
            | RingWork::None => Next::Answer(Ok(Outcome::Done)),
        }
    }

    /// The kernel's form of what is left to do. Addresses in it point into this slot and its buffers.
    fn entry(&mut self, accept_multishot: bool) -> squeue::Entry {
        match &mut self.work {
            RingWork::None => opcode::Nop::new().build(),
            RingWork::Accept { listener } => {
                let flags = libc::SOCK_CLOEXEC;
                if accept_multishot {
                    opcode::AcceptMulti::new(fd(listener)).flags(flags).build()
                } else {
                    let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
                    opcode::Accept::new(fd(listener), address, len).flags(flags).build()
                }
            }
            RingWork::Readable { socket } => {
                opcode::PollAdd::new(fd(socket), (libc::POLLIN | libc::POLLRDHUP) as u32).build()
            }
            RingWork::Writable { socket } => opcode::PollAdd::new(fd(socket), libc::POLLOUT as u32).build(),
            RingWork::Receive { socket, into, at } => {
                let target = &mut into[*at..];
                let len = target.len().min(STEP_BYTES_MAX) as u32;
                opcode::Recv::new(fd(socket), target.as_mut_ptr(), len).build()
            }
            RingWork::ReceiveScattered { socket, into } => {
                scatter(&mut self.vectors, into);
                self.message.msg_iov = self.vectors.as_mut_ptr();
                self.message.msg_iovlen = self.vectors.len();
                opcode::RecvMsg::new(fd(socket), &raw mut self.message).build()
            }
            RingWork::Send { socket, data, done } => {
                if let Some(rest) = single_part(data, *done) {
                    return opcode::Send::new(fd(socket), rest.as_ptr(), rest.len() as u32)
                        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                        .build();
                }
                fill_vectors(&mut self.vectors, data, *done);
                self.message.msg_iov = self.vectors.as_mut_ptr();
                self.message.msg_iovlen = self.vectors.len();
                opcode::SendMsg::new(fd(socket), &raw const self.message)
                    .flags((libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32)
                    .build()
            }
            RingWork::Read { file, offset, into, done } => {
                let target = &mut into[*done..];
                let len = target.len().min(STEP_BYTES_MAX) as u32;
                opcode::Read::new(fd(file), target.as_mut_ptr(), len).offset(*offset + *done as u64).build()
            }
            RingWork::Write { file, offset, data, durable, done } => {
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                let offset = *offset + *done as u64;
                if let Some(rest) = single_part(data, *done) {
                    return opcode::Write::new(fd(file), rest.as_ptr(), rest.len() as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build();
                }
                fill_vectors(&mut self.vectors, data, *done);
                opcode::Writev::new(fd(file), self.vectors.as_ptr(), self.vectors.len() as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            RingWork::SyncData { file } => {
                opcode::Fsync::new(fd(file)).flags(types::FsyncFlags::DATASYNC).build()
            }
            RingWork::PunchHole { file, offset, len_bytes } => opcode::Fallocate::new(fd(file), *len_bytes)
                .offset(*offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        }
    }
}

/// Points vectors at where a receive goes.
fn scatter(vectors: &mut Vec<libc::iovec>, into: &mut Scatter) {
    vectors.clear();
    into.slices(VECTORS_MAX, |mut slice| {
        vectors.push(libc::iovec { iov_base: slice.as_mut_ptr().cast(), iov_len: slice.len() });
    });
}

/// Returns the rest of a payload if it lies in one part.
fn single_part(data: &Payload, done: usize) -> Option<&[u8]> {
    match data.parts() {
        [only] => {
            let rest = only.get(done..)?;
            Some(&rest[..rest.len().min(STEP_BYTES_MAX)])
        }
        _ => None,
    }
}

fn fill_vectors(vectors: &mut Vec<libc::iovec>, data: &Payload, done: usize) {
    vectors.clear();
    let mut skip = done;
    for part in data.parts() {
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let rest = &part[skip..];
        skip = 0;
        vectors.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        if vectors.len() == VECTORS_MAX {
            break;
        }
    }
}

fn accepted(result: i32) -> io::Result<Outcome> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the kernel just made this descriptor for us, and nobody else knows it.
    Ok(Outcome::Accepted(unsafe { OwnedFd::from_raw_fd(result) }))
}

fn fd(descriptor: &Descriptor) -> types::Fd {
    types::Fd(descriptor.as_raw_fd())
}

/// The name that the kernel gives back: the generation keeps it below [`CANCEL`].
fn name(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

/// Failures of entering the kernel that only mean: look at the completions and continue.
fn enter(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}

/// The best set-up that this kernel knows, and whether it shows in shared memory that there is work.
fn build() -> io::Result<(IoUring, bool)> {
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(COMPLETION_ENTRIES)
        .build(SUBMISSION_ENTRIES);
    match best {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((IoUring::builder().setup_cqsize(COMPLETION_ENTRIES).build(SUBMISSION_ENTRIES)?, false))
        }
        other => Ok((other?, true)),
    }
}
