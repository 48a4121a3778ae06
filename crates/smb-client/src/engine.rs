//! The event loop that the clients of one thread share.
//!
//! Owns the thread's ring (or epoll, if io_uring is not permitted). Promises: it sleeps when there is
//! nothing to do, and one system call hands over everything that all clients have to send. Never reads
//! a message.

use crate::ClientError;
use std::time::Duration;
use sys::driver::{Driver, DriverChoice, Waker};

/// Timers of connections (keepalive and the like) are served at least this often, even if a caller
/// wants to wait longer.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// An event loop; clones share it. It stays on the thread that made it, and so do its clients.
#[derive(Clone)]
pub struct Engine {
    driver: Driver,
}

impl Engine {
    /// # Errors
    /// [`ClientError::Io`] if descriptors or locked memory are exhausted.
    pub fn new() -> Result<Self, ClientError> {
        Ok(Self { driver: Driver::new(DriverChoice::Automatic)? })
    }

    /// Sends what its clients have to send and sleeps until one of them may have something, for at most `timeout` and at
    /// most half a second. Afterwards [`crate::Client::poll`] is to be called on each.
    ///
    /// # Errors
    /// [`ClientError::Io`] if the kernel refuses to continue with the loop itself.
    pub fn wait(&self, timeout: Duration) -> Result<(), ClientError> {
        Ok(self.driver.wait(Some(timeout.min(WAIT_MAX)))?)
    }

    /// From now on [`Self::wait`] searches for work for this long before it sleeps, while work keeps
    /// coming: answers are received sooner, for a processor that does nothing else meanwhile. Zero, as at
    /// first: not at all.
    pub fn busy_poll(&self, limit: Duration) {
        self.driver.busy_poll(limit);
    }

    /// Ends [`Self::wait`] from any thread.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }
}
