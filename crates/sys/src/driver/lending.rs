//! Sending large buffers by reference: the kernel takes pages instead of a copy of their bytes.
//!
//! Pages go through a pipe (vmsplice, then splice into the socket). The kernel holds them until the last reader is done with them, and it
//! says to nobody when that is: on loopback they lie in the receiver's own queue, acknowledged long before they are read, and a receiver
//! may pass them on to another pipe. So memory that was lent is never written again: its buffers are read-only from then on
//! ([`crate::Buf`]), and when the last of them is dropped its pages go to the kernel, whose they are until nobody needs them, instead of
//! being used for something else ([`crate::spans`]). No acknowledgement is waited for, and there is nothing to hold: what is in flight
//! is bounded by the socket's own buffers, as it is with a copy. But where a huge page is lent in part, all of it stays until that part is
//! let go of: so the owner of the sockets bounds how much lies in them, and for how long ([`unacknowledged_bytes`]).
//!
//! Pages that are not used again are dear: others have to be found and cleared in their place. So bytes are copied at first, and only
//! memory of which a multiple was sent is lent ([`LENT_AFTER_SENDS`]): what is sent once costs what it did, what is sent often costs
//! at most twice what would have been best.

use super::{Descriptor, VECTORS_MAX, send_slices_with};
use crate::sizes::ALIGN_BYTES;
use crate::{Buf, Payload};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice, vmsplice,
};
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Less at a time is copied: one call takes several small answers, which costs no more than five for each of them and the counts of its pages.
const LENT_BYTES_MIN: usize = 128 << 10;
/// The pieces of which it may consist. Each may keep a huge page of 2 MiB.
const PIECE_BYTES_MIN: usize = 64 << 10;
const PIECES_MAX: usize = 32;
/// Number of times that memory is copied before it is lent: to give up a part of a huge page, and to
/// find and clear others in its place, costs as much as four copies save (0.5 ms a MiB; a send by
/// reference saves 0.11 to 0.14).
const LENT_AFTER_SENDS: usize = 4;
/// A pipe has one place for each page; the kernel's limit for everybody (fs.pipe-max-size) is this by default.
const PIPE_BYTES: usize = 1 << 20;

/// How large payload leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendPath {
    /// By reference where that pays. The environment variable `CENOTE_SEND`, set to `copy` or `reference`, decides instead.
    #[default]
    Automatic,
    /// By copies into the socket.
    Copy,
    /// By reference whenever it can, paying or not: for tests.
    Reference,
}

/// Sends by reference on one thread. Never waits for a socket.
pub struct Lender {
    path: SendPath,
    pipe: Option<Pipe>,
    /// Places for pages that the last pipe had.
    pipe_pages: usize,
    lent_bytes: u64,
    /// Why `path` is [`SendPath::Copy`].
    only_copies: Option<&'static str>,
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Places for pages.
    pages: usize,
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user that has many pipes gets a smaller one, which takes more calls.
        let bytes = fcntl_setpipe_size(&writer, PIPE_BYTES).or_else(|_| fcntl_getpipe_size(&writer))?;
        Ok(Self { reader, writer, pages: bytes / ALIGN_BYTES })
    }
}

impl Lender {
    /// Makes a lender without a pipe; the first send by reference makes one.
    pub fn new(path: SendPath) -> Self {
        let path = match (path, std::env::var("CENOTE_SEND").as_deref()) {
            (SendPath::Automatic, Ok("copy")) => SendPath::Copy,
            (SendPath::Automatic, Ok("reference")) => SendPath::Reference,
            (path, _) => path,
        };
        let only_copies = (path == SendPath::Copy).then_some("off");
        Self { path, pipe: None, pipe_pages: PIPE_BYTES / ALIGN_BYTES, lent_bytes: 0, only_copies }
    }

    /// Bytes that left by reference so far.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes
    }

    /// Returns why nothing at all is sent by reference; `None`: large payload that was sent often is.
    pub fn why_only_copies(&self) -> Option<&'static str> {
        self.only_copies
    }

    /// Whether some of it is to be sent by reference. If it is not, [`super::IoOperation::Send`] does as well.
    pub fn lends_of(&self, data: &Payload) -> bool {
        let parts = data.parts();
        (0..parts.len()).any(|at| self.lent_run(&parts[at..]) > 0)
    }

    /// Counts the first parts that are to be sent by reference together.
    fn lent_run(&self, parts: &[Buf]) -> usize {
        let run = || parts.iter().take(PIECES_MAX).take_while(|part| self.lends(part));
        let bytes: usize = run().map(|part| part.len()).sum();
        if bytes >= LENT_BYTES_MIN { run().count() } else { 0 }
    }

    fn lends(&self, part: &Buf) -> bool {
        part.len() >= PIECE_BYTES_MIN
            && match self.path {
                SendPath::Copy => false,
                SendPath::Reference => part.is_lendable(),
                SendPath::Automatic => part.sends() >= LENT_AFTER_SENDS && part.is_lendable(),
            }
    }

    /// Sends what the socket takes without waiting, by reference where that pays: bytes taken, none if it is full.
    ///
    /// # Errors
    /// The socket's. Some of the data may have left before: nothing that is sent afterwards is in step, so the stream has to be ended.
    pub fn send_now(&mut self, socket: &Descriptor, data: &Payload) -> io::Result<usize> {
        let parts = data.parts();
        if self.path == SendPath::Copy || parts.iter().all(|part| part.len() < PIECE_BYTES_MIN) {
            return super::send_now(socket, data);
        }
        let (mut at, mut sent) = (0, 0);
        while at < parts.len() {
            let lent = self.lent_run(&parts[at..]);
            let copied =
                || (at..parts.len()).take(VECTORS_MAX).take_while(|&at| self.lent_run(&parts[at..]) == 0);
            let run = &parts[at..at + if lent > 0 { lent } else { copied().count() }];
            at += run.len();
            let has_more = at < parts.len();
            let taken =
                if lent > 0 { self.lend(socket, run, has_more)? } else { copy(socket, run, has_more)? };
            sent += taken;
            if taken < bytes_of(run) {
                break;
            }
        }
        Ok(sent)
    }

    /// Sends pages of these buffers.
    fn lend(&mut self, socket: &Descriptor, parts: &[Buf], has_more: bool) -> io::Result<usize> {
        let (mut sent, len) = (0, bytes_of(parts));
        while sent < len {
            let step = pipeful(parts, sent, self.pipe_pages);
            let step_bytes = bytes_of(&step);
            let more = has_more || sent + step_bytes < len;
            match self.lend_step(socket, &step, more) {
                Ok(taken) => {
                    sent += taken;
                    self.lent_bytes += taken as u64;
                    if taken < step_bytes {
                        break;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                // Sending by reference does not work here: a filter of system calls, no pipes left.
                Err(
                    Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::NOMEM | Errno::MFILE | Errno::NFILE,
                ) => {
                    self.path = SendPath::Copy;
                    self.only_copies = Some("the kernel refuses it");
                    return Ok(sent + copy(socket, &step, more)?);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// As many pages as the pipe takes at once.
    fn lend_step(&mut self, socket: &Descriptor, parts: &[Buf], has_more: bool) -> Result<usize, Errno> {
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => Pipe::new()?,
        };
        self.pipe_pages = pipe.pages;
        let pages: SmallVec<[IoSliceRaw<'_>; PIECES_MAX]> =
            parts.iter().map(|part| IoSliceRaw::from_slice(part.lend())).collect();
        // SAFETY: `lend` promises that nobody writes these bytes again, however long the pipe, and who takes the pages from it, keeps them.
        let filled = unsafe { vmsplice(&pipe.writer, &pages, SpliceFlags::NONBLOCK) }?;
        let more =
            if has_more || filled < bytes_of(parts) { SpliceFlags::MORE } else { SpliceFlags::empty() };
        let taken = without_waiting(socket, || {
            let mut taken = 0;
            while taken < filled {
                match splice(&pipe.reader, None, socket, None, filled - taken, more | SpliceFlags::NONBLOCK) {
                    Ok(0) | Err(Errno::AGAIN | Errno::INTR) => break,
                    Ok(count) => taken += count,
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(taken)
        })?;
        // Bytes that the socket did not take are discarded with the pipe.
        if taken == filled {
            self.pipe = Some(pipe);
        }
        Ok(taken)
    }
}

/// Counts the bytes of a TCP socket that its peer has not acknowledged, whether they were sent or not.
///
/// # Errors
/// If it is no TCP socket.
pub fn unacknowledged_bytes(socket: &Descriptor) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ for sockets, writes one int.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(u64::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Counts the bytes that the peer of a TCP socket has acknowledged so far.
///
/// # Errors
/// If it is no TCP socket, or the kernel is older than Linux 4.1.
pub fn acknowledged_bytes(socket: &Descriptor) -> io::Result<u64> {
    /// The place of `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h), which has only grown behind it.
    const AT: usize = 120;
    let mut info = [0_u8; AT + 8];
    let mut len = info.len() as libc::socklen_t;
    let into = info.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes into `info`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut len)
    };
    match result {
        0 if len as usize == info.len() => Ok(u64::from_ne_bytes(*info.last_chunk().expect("eight bytes"))),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel forget what a TCP socket has not sent when it is closed, and reset the connection, instead of trying on for minutes.
///
/// # Errors
/// Those of setsockopt.
pub fn discard_at_close(socket: &Descriptor) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO))?)
}

/// Has the kernel ask whether the other end of a TCP connection still lives when nothing was heard of it for a minute, and end the connection
/// after another one without an answer: a machine that vanished says nothing.
///
/// # Errors
/// Those of setsockopt.
pub fn keep_alive(socket: impl std::os::fd::AsFd) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, std::time::Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(&socket, std::time::Duration::from_secs(15))?;
    Ok(sockopt::set_tcp_keepcnt(&socket, 4)?)
}

fn bytes_of(parts: &[Buf]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Returns the parts from byte `from` on that fit a pipe of this many pages.
fn pipeful(parts: &[Buf], from: usize, pages_max: usize) -> SmallVec<[Buf; PIECES_MAX]> {
    let (mut skip, mut pages, mut step) = (from, 0, SmallVec::new());
    for part in parts {
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let behind_page = part.behind_page(skip);
        let room = ((pages_max - pages) * ALIGN_BYTES).saturating_sub(behind_page);
        let len = room.min(part.len() - skip);
        if len == 0 {
            break;
        }
        step.push(part.slice(skip..skip + len));
        pages += (behind_page + len).div_ceil(ALIGN_BYTES);
        skip = 0;
    }
    step
}

/// A splice waits for space in the socket unless the socket itself is set not to; the ring wants it to
/// wait.
fn without_waiting<T>(socket: impl AsFd, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    let done = work();
    rustix::io::ioctl_fionbio(&socket, false)?;
    done
}

fn copy(socket: &Descriptor, parts: &[Buf], has_more: bool) -> io::Result<usize> {
    let slices: SmallVec<[IoSlice<'_>; 16]> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let more = if has_more { SendFlags::MORE } else { SendFlags::empty() };
    let taken = send_slices_with(socket, &slices, more)?;
    let mut left = taken;
    for part in parts {
        let bytes = part.len().min(left);
        left -= bytes;
        if part.len() >= PIECE_BYTES_MIN {
            part.count_sent(bytes);
        }
    }
    Ok(taken)
}

#[cfg(test)]
#[path = "lending_tests.rs"]
mod tests;
