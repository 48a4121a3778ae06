//! Sending large buffers by reference: the kernel takes pages instead of a copy of their bytes.
//!
//! Pages go through a pipe (vmsplice, then splice into the socket). The kernel holds them until the last reader is done with them, and it
//! says to nobody when that is: on loopback they lie in the receiver's own queue, acknowledged long before they are read, and a receiver
//! may pass them on to another pipe. So memory that was lent is never written again: its buffers are read-only from then on
//! ([`crate::Buf`]), and when the last of them is dropped its pages go to the kernel, whose they are until nobody needs them, instead of
//! being used for something else ([`crate::spans`]). No acknowledgement is waited for, and there is nothing to hold: what is in flight
//! is bounded by the socket's own buffers, as it is with a copy.
//!
//! Pages that are not used again are dear: others have to be found and cleared in their place. So bytes are copied at first, and only
//! memory of which a multiple was sent is lent ([`LENT_AFTER_SENDS`]): what is sent once costs what it did, what is sent often costs
//! at most twice what would have been best.

use super::{Descriptor, VECTORS_MAX, send_slices_with};
use crate::{Buf, Payload};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice};
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

/// Shorter pieces are copied: a copy of them costs no more than two more calls and their pages' counts.
const LENT_BYTES_MIN: usize = 32 << 10;
/// Memory is copied so many times over before it is lent: to give up a part of a huge page, and to find and clear others in its place,
/// costs as much as four copies save (0.5 ms a MiB where a send by reference saves 0.11 to 0.14).
const LENT_AFTER_SENDS: usize = 4;
/// A pipe has one place for each page; the kernel's limit for everybody (fs.pipe-max-size) is this by default.
const PIPE_BYTES: usize = 1 << 20;

/// How large payload leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendPath {
    /// By reference where that pays. The environment variable `CENOTE_SEND`, set to `copy` or `reference`, decides instead.
    #[default]
    Automatic,
    Copy,
    /// By reference whenever it can, paying or not: for tests.
    Reference,
}

/// What sends by reference on one thread. Never waits for a socket.
pub struct Lender {
    path: SendPath,
    pipe: Option<Pipe>,
    lent_bytes: u64,
    /// Why `path` is [`SendPath::Copy`].
    only_copies: Option<&'static str>,
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one takes more calls.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        Ok(Self { reader, writer })
    }
}

impl Lender {
    pub fn new(path: SendPath) -> Self {
        let path = match (path, std::env::var("CENOTE_SEND").as_deref()) {
            (SendPath::Automatic, Ok("copy")) => SendPath::Copy,
            (SendPath::Automatic, Ok("reference")) => SendPath::Reference,
            (path, _) => path,
        };
        let only_copies = (path == SendPath::Copy).then_some("off");
        Self { path, pipe: None, lent_bytes: 0, only_copies }
    }

    /// Bytes that left by reference so far.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes
    }

    /// Why nothing is sent by reference, whatever it is; `None`: what is large and was sent often is.
    pub fn why_only_copies(&self) -> Option<&'static str> {
        self.only_copies
    }

    /// Whether some of it is to be sent by reference. If it is not, [`super::Operation::Send`] does as well.
    pub fn lends_of(&self, data: &Payload) -> bool {
        data.parts().iter().any(|part| self.lends(part))
    }

    fn lends(&self, part: &Buf) -> bool {
        part.len() >= LENT_BYTES_MIN
            && match self.path {
                SendPath::Copy => false,
                SendPath::Reference => part.is_lendable(),
                SendPath::Automatic => part.sends() >= LENT_AFTER_SENDS && part.is_lendable(),
            }
    }

    /// Sends what the socket takes without waiting, by reference where that pays: bytes taken, none if it is full.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_now(&mut self, socket: &Descriptor, data: &Payload) -> io::Result<usize> {
        if self.path == SendPath::Copy || data.parts().iter().all(|part| part.len() < LENT_BYTES_MIN) {
            return super::send_now(socket, data);
        }
        let (parts, mut sent) = (data.parts(), 0);
        let mut at = 0;
        while at < parts.len() {
            let copied = parts[at..].iter().take(VECTORS_MAX).take_while(|part| !self.lends(part)).count();
            let run = &parts[at..at + copied.max(1)];
            let run_bytes: usize = run.iter().map(|part| part.len()).sum();
            at += run.len();
            let has_more = at < parts.len();
            let taken = match run {
                [only] if copied == 0 => self.lend(socket, only, has_more)?,
                _ => copy(socket, run, has_more)?,
            };
            sent += taken;
            if taken < run_bytes {
                break;
            }
        }
        Ok(sent)
    }

    /// Sends pages of one buffer.
    fn lend(&mut self, socket: &Descriptor, part: &Buf, has_more: bool) -> io::Result<usize> {
        let mut sent = 0;
        while sent < part.len() {
            let rest = part.slice(sent..);
            let step = rest.len().min(PIPE_BYTES - rest.behind_page(0));
            let step_ends = sent + step == part.len();
            match self.lend_step(socket, &rest.slice(..step), has_more || !step_ends) {
                Ok(taken) => {
                    sent += taken;
                    self.lent_bytes += taken as u64;
                    if taken < step {
                        break;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                // It does not work here: a filter of system calls, no pipes left.
                Err(
                    Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::NOMEM | Errno::MFILE | Errno::NFILE,
                ) => {
                    self.path = SendPath::Copy;
                    self.only_copies = Some("the kernel refuses it");
                    return Ok(sent + copy(socket, &[rest], has_more)?);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// As many pages as the pipe takes at once.
    fn lend_step(&mut self, socket: &Descriptor, part: &Buf, has_more: bool) -> Result<usize, Errno> {
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => Pipe::new().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?,
        };
        let filled = part.lend_to(|bytes| {
            let pages = [IoSliceRaw::from_slice(bytes)];
            // SAFETY: `lend_to` promises that nobody writes these bytes again, however long the pipe, and who takes the pages from it,
            // keeps them.
            unsafe { vmsplice(&pipe.writer, &pages, SpliceFlags::NONBLOCK) }
        })?;
        let more = if has_more || filled < part.len() { SpliceFlags::MORE } else { SpliceFlags::empty() };
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
        // What the socket did not take goes with the pipe.
        if taken == filled {
            self.pipe = Some(pipe);
        }
        Ok(taken)
    }
}

/// A splice waits for the socket's room unless the socket itself is told not to; the ring wants it to wait.
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
        if part.len() >= LENT_BYTES_MIN {
            part.count_sent(bytes);
        }
    }
    Ok(taken)
}

#[cfg(test)]
#[path = "lending_tests.rs"]
mod tests;
