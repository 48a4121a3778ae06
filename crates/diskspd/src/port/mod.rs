//! One thread's way to its targets: [`LocalPort`] for files and mappings, [`SmbPort`] for files on shares.

mod local;
mod mapped;
mod smb;

pub use local::{LocalPort, LocalTarget, RingTarget};
pub use mapped::MappedSetup;
pub use smb::{SmbPort, SmbPortTarget};

use crate::engine::{Done, Failure, Port, Request};
use std::time::Duration;

/// How often a thread that waits looks whether the run was stopped.
pub const TICK: Duration = Duration::from_millis(100);

/// Where the bytes of a write come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The slot's buffer, filled once.
    Slot,
    /// The slot's buffer, filled with new random bytes each time.
    Random,
    /// A piece of a source: at random multiples of `step_bytes`, of which there are `steps`.
    Source { index: usize, step_bytes: usize, steps: u64 },
}

impl Content {
    /// Pieces of `block_bytes` of a source of `len_bytes`, at page boundaries if it has more than a page.
    pub fn source(index: usize, len_bytes: usize, block_bytes: u32) -> Self {
        let spare = len_bytes.saturating_sub(block_bytes as usize);
        let step_bytes = if spare >= sys::ALIGN_BYTES { sys::ALIGN_BYTES } else { 512 };
        Self::Source { index, step_bytes, steps: (spare / step_bytes) as u64 + 1 }
    }
}

/// The port of one thread. Threads that have files and shares alike (`-F`) are refused before.
pub enum ThreadPort {
    /// Files and mappings.
    Local(Box<LocalPort>),
    /// Files on shares.
    Smb(SmbPort),
}

impl Port for ThreadPort {
    fn now_ns(&mut self) -> u64 {
        now_ns()
    }

    fn submit(&mut self, request: &Request, now: u64) -> Result<u64, Failure> {
        match self {
            Self::Local(port) => port.submit(request, now),
            Self::Smb(port) => port.submit(request, now),
        }
    }

    fn wait(&mut self, until_ns: u64, done: &mut Vec<Done>) -> Result<(), Failure> {
        match self {
            Self::Local(port) => port.wait(until_ns, done),
            Self::Smb(port) => port.wait(until_ns, done),
        }
    }
}

fn now_ns() -> u64 {
    sys::monotonic_now().0
}

fn no_target() -> Failure {
    Failure::Other("a target that this thread does not have".into())
}
