//! Ends the loop's sleep from other threads, by an eventfd.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one [`super::Driver`]. Many calls before it wakes cost one system call.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

struct Shared {
    eventfd: OwnedFd,
    /// Written and not yet taken notice of.
    pending: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Shared { eventfd, pending: AtomicBool::new(false) })))
    }

    /// Ends the loop's sleep, the next one where it is awake. Everything done before is visible to the loop then.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is at its end, in which case the loop is being woken.
            let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The eventfd was read: the next `wake` has to write again.
    pub(super) fn taken(&self) {
        self.0.pending.store(false, Ordering::Release);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}
