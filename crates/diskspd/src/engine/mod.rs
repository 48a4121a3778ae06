//! The load generator: the work of a thread of a run, with time as an argument and the system behind a
//! trait.
//!
//! A [`Worker`] owns the slots (outstanding operations) of one thread and decides what goes when: which target, read or
//! write, where, after which throttle. A [`Port`] carries it out: files by io_uring, mappings, SMB connections, or a simulated
//! target in virtual time. Nothing here allocates or takes a lock per operation.
//!
//! Coordinated omission: like DiskSpd this measures from the moment an operation is handed over. While all slots of a thread
//! wait for a stalled target, nothing is handed over, so a stall counts once per slot and not once per operation that a
//! schedule would have wanted.

pub mod control;
pub mod offsets;
pub mod pace;
pub mod random;
#[cfg(test)]
mod tests;
mod worker;

pub use control::{Control, Live};
pub use worker::{ThreadTarget, Worker, WorkerFailure, WorkerSetup};

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub slot: u32,
    /// Which of the thread's targets.
    pub target: u32,
    pub is_write: bool,
    pub offset: u64,
    pub len_bytes: u32,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// As in errno(3).
    #[error("{0}")]
    Errno(i32),
    /// The SMB server's NTSTATUS.
    #[error("{0:#010x}")]
    Status(u32),
    /// Failure of the connection, and others without a number.
    #[error("{0}")]
    Other(String),
}

/// An operation that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub slot: u32,
    /// When it ended; each completion is timed on its own.
    pub at_ns: u64,
    /// Bytes moved.
    pub result: Result<u32, Failure>,
}

/// Carries operations out.
pub trait Port {
    fn now_ns(&mut self) -> u64;

    /// Takes an operation. Gives when it began: `now_ns`, or later if its data had to be made first.
    ///
    /// # Errors
    /// When nothing can be submitted any more.
    fn submit(&mut self, request: &Request, now_ns: u64) -> Result<u64, Failure>;

    /// Starts what was taken, and waits until something has ended or the time has come, whichever is first; may return
    /// early with nothing.
    ///
    /// # Errors
    /// When the port is of no further use.
    fn wait(&mut self, until_ns: u64, done: &mut Vec<Done>) -> Result<(), Failure>;
}
