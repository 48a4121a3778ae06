//! A disk in memory that behaves as badly as a real one may: for tests of everything that must survive it.
//!
//! A power cut may do to it the same as to a disk with a volatile cache:
//!
//! - A write that completed durably, or that completed before a flush was submitted which then completed, is kept.
//! - Every other write, completed or in flight, is a *candidate*: it is kept whole, lost whole, or torn, so that any of its
//!   512-byte sectors are kept and the others lost. Candidates that are kept are applied in the order of their completion
//!   (those in flight last, by submission). Any other order of overlapping candidates is equal to tearing one of them.
//! - A [`CrashChoice`] says which fate each candidate meets; [`choice`] enumerates them.
//!
//! Beside that: errors, hangs, lost, torn and misdirected writes by [`Fault`] rules, sectors that cannot be read until they are
//! written, bit rot, a medium that goes back in time, a full file below. All of it is deterministic: the
//! same seed, operations and polls give the same answers. A [`CrashDisk`] is a handle: clones share one disk, so that a test
//! keeps one while the layer under test owns another.

pub mod choice;
mod fault;
mod state;
#[cfg(test)]
mod tests;

pub use crate::change::{Fate, TEAR_BYTES};
pub use choice::{CrashChoice, Limits};
pub use fault::{Fault, FaultAction, FaultTarget};

use crate::{Disk, DiskCompletion, DiskInfo, DiskOperation};
use state::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a [`CrashDisk`] behaves while nothing is wrong with it.
#[derive(Debug, Clone)]
pub struct CrashOptions {
    pub size_bytes: u64,
    /// 512 or 4096.
    pub block_bytes: u32,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Each poll answers some of the operations in flight (at least one), in any order, instead of all in order.
    pub shuffle: bool,
}

impl CrashOptions {
    /// Logical blocks of 4096 bytes, answers in order.
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes, block_bytes: 4096, seed: 0, shuffle: false }
    }
}

/// A handle to a disk in memory that can lose power and be made to fail.
#[derive(Clone)]
pub struct CrashDisk {
    info: DiskInfo,
    state: Arc<Mutex<State>>,
}

impl CrashDisk {
    /// A disk of zeroes. Memory is taken by content, not by size.
    pub fn new(options: CrashOptions) -> Self {
        let info = DiskInfo {
            path: "crash-disk".to_owned(),
            size_bytes: options.size_bytes,
            block_bytes: options.block_bytes,
            rotational: false,
            discards: true,
            direct: true,
        };
        let state = State::new(info.clone(), options.seed, options.shuffle);
        Self { info, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An independent disk as this one is found after a power cut and restart with these fates. This one is not changed.
    /// Candidates that the choice does not name are lost.
    #[must_use]
    pub fn after_crash(&self, choice: &CrashChoice) -> Self {
        let state = self.state().after_crash(choice);
        Self { info: self.info.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the power of this very disk: operations in flight are never answered, faults and stops are forgotten, and
    /// every handle sees the disk as it is found after the restart.
    pub fn crash(&self, choice: &CrashChoice) {
        let mut state = self.state();
        *state = state.after_crash(choice);
    }

    /// An independent copy with its unflushed writes and operations in flight.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state().clone_without_answers();
        Self { info: self.info.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// Sectors of [`TEAR_BYTES`] of each write that a power cut could lose, in order of candidates.
    pub fn candidates(&self) -> Vec<u64> {
        self.state().candidates()
    }

    /// The fates worth trying, see [`choice::enumerate`].
    pub fn choices(&self, limits: Limits) -> Vec<CrashChoice> {
        choice::enumerate(&self.candidates(), limits)
    }

    /// One fate for each candidate by chance, see [`choice::random`].
    pub fn random_choice(&self, seed: u64) -> CrashChoice {
        choice::random(&self.candidates(), seed)
    }

    /// Operations submitted so far, of any kind.
    pub fn submitted_operations(&self) -> u64 {
        self.state().submitted
    }

    /// The disk loses power when its `operation`th operation (counted from 0 over its whole life) was submitted: neither it
    /// nor anything else that is not answered then is ever answered. With `after_crash` this visits every point of a run.
    pub fn stop_at(&self, operation: u64) {
        self.state().stop_at = Some(operation);
    }

    /// Whether [`CrashDisk::stop_at`] has struck.
    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped()
    }

    /// Adds a rule; the first that matches an operation acts on it.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Rules that have not acted as often as they may.
    pub fn waiting_faults(&self) -> usize {
        self.state().faults.iter().filter(|fault| fault.times > 0).count()
    }

    /// Removes all rules. Hanging operations keep hanging.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Operations that hang.
    pub fn hanging_operations(&self) -> usize {
        self.state().hanging_operations()
    }

    /// Answers what hangs with [`crate::DiskError::TimedOut`], as the bounded time of a real disk does. A write among them may
    /// still have happened.
    pub fn time_out_hanging(&self) {
        self.state().time_out_hanging();
    }

    /// Performs and answers what hangs, as a disk does that was slow.
    pub fn release_hanging(&self) {
        self.state().release_hanging();
    }

    /// Flips at least one bit in each 512 bytes of the range, on the medium.
    pub fn rot(&self, offset: u64, len_bytes: u64) {
        self.state().rot(offset, len_bytes);
    }

    /// Reads of these bytes (widened to blocks of 4096) answer EIO until they are written. Survives power cuts.
    pub fn make_unreadable(&self, offset: u64, len_bytes: u64) {
        self.state().make_unreadable(offset, len_bytes);
    }

    /// Blocks of 4096 bytes that cannot be read.
    pub fn unreadable_blocks(&self) -> usize {
        self.state().unreadable_blocks()
    }

    /// Answers writes that need more than this many bytes of content in all with [`crate::DiskError::NoSpace`].
    pub fn limit_allocation(&self, bytes_max: Option<u64>) {
        self.state().allocation_max = bytes_max;
    }

    /// Simulates the end of the process that had the disk open: operations in flight happen or do not, by
    /// chance, and are never answered. Drops the disk; completed writes stay in the cache.
    pub fn abandon(&self) {
        self.state().abandon();
    }

    /// The medium is what it was when `earlier` was forked from it: a disk restored from an image.
    pub fn roll_back(&self, earlier: &Self) {
        let earlier = earlier.state().clone_without_answers();
        self.state().roll_back(&earlier);
    }

    /// Operations whose answer the next polls bring, hanging ones excluded.
    pub fn operations_in_flight(&self) -> usize {
        self.state().operations_in_flight()
    }

    /// Returns the bytes that a read would find, for a test to examine.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.state().peek(offset, &mut bytes);
        bytes
    }

    /// Writes on the medium behind everyone's back.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        self.state().poke(offset, bytes);
    }

    /// Memory that the content takes, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.state().allocated_bytes()
    }
}

impl Disk for CrashDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        self.state().submit(token, operation);
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        self.state().poll(out);
    }
}
