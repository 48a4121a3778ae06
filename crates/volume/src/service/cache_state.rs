//! The state of one oplock or lease: its holder's caching, and its breaks (MS-SMB2 3.3.1.4, 3.3.1.12;
//! MS-FSA 2.1.4.12).
//!
//! An oplock is a lease of one open here: level II is READ, exclusive READ|WRITE, batch
//! READ|WRITE|HANDLE. A break that the holder has to acknowledge leaves the state as it is until then;
//! demands that come meanwhile are remembered, and made after. Never decides which holder has to break,
//! only how.

use crate::backend::{LeaseState, OplockLevel};
use std::time::Duration;
use types::{Monotonic, NtStatus};

/// The time that a holder has to acknowledge (MS-SMB2 3.3.2.1, 3.3.2.5).
pub const BREAK_TIMEOUT: Duration = Duration::from_secs(35);

pub const READ_WRITE: LeaseState = LeaseState::READ.union(LeaseState::WRITE);

/// Returns the lease state that an oplock is.
pub const fn state_of(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::None => LeaseState::empty(),
        OplockLevel::LevelII => LeaseState::READ,
        OplockLevel::Exclusive => READ_WRITE,
        OplockLevel::Batch => LeaseState::all(),
    }
}

/// Returns the highest oplock within a state.
pub const fn level_of(state: LeaseState) -> OplockLevel {
    if state.contains(LeaseState::all()) {
        OplockLevel::Batch
    } else if state.contains(READ_WRITE) {
        OplockLevel::Exclusive
    } else if state.contains(LeaseState::READ) {
        OplockLevel::LevelII
    } else {
        OplockLevel::None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Breaking {
    /// State that the last break asked for.
    requested: LeaseState,
    /// The state that it has to go down to by now.
    required: LeaseState,
    deadline: Monotonic,
}

/// A break to send to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break {
    pub from: LeaseState,
    pub to: LeaseState,
    pub acknowledge: bool,
}

/// Caching of one holder.
///
/// Invariant: while a break is in progress the state stays as it was, and `required` lies within `requested`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheState {
    state: LeaseState,
    breaking: Option<Breaking>,
}

impl CacheState {
    pub const fn new(state: LeaseState) -> Self {
        Self { state, breaking: None }
    }

    /// Returns the state of the holder's caching.
    pub const fn state(&self) -> LeaseState {
        self.state
    }

    pub const fn is_breaking(&self) -> bool {
        self.breaking.is_some()
    }

    pub fn deadline(&self) -> Option<Monotonic> {
        self.breaking.map(|breaking| breaking.deadline)
    }

    /// Puts `state` in place of the old one, unless a break is in progress.
    pub fn upgrade(&mut self, state: LeaseState) {
        if self.breaking.is_none() {
            self.state = state;
        }
    }

    /// Asks for everything but `keep` back. Returns the break for the holder, unless it was sent already.
    ///
    /// READ alone goes without being acknowledged.
    pub fn break_to(&mut self, keep: LeaseState, now: Monotonic) -> Option<Break> {
        let to = self.state & keep;
        if let Some(breaking) = &mut self.breaking {
            breaking.required &= to;
            return None;
        }
        if to == self.state {
            return None;
        }
        let from = self.state;
        let acknowledge = from != LeaseState::READ;
        if acknowledge {
            self.breaking =
                Some(Breaking { requested: to, required: to, deadline: now.after(BREAK_TIMEOUT) });
        } else {
            self.state = to;
        }
        Some(Break { from, to, acknowledge })
    }

    /// Takes the holder's acknowledgement, which keeps `state`. Returns a further break if the required
    /// state is lower by now.
    ///
    /// # Errors
    /// UNSUCCESSFUL without a break in progress; REQUEST_NOT_ACCEPTED if it keeps more than the break
    /// allows.
    pub fn acknowledge(&mut self, state: LeaseState, now: Monotonic) -> Result<Option<Break>, NtStatus> {
        let breaking = self.breaking.ok_or(NtStatus::UNSUCCESSFUL)?;
        if !breaking.requested.contains(state) {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        self.state = state;
        self.breaking = None;
        if breaking.required.contains(state) {
            return Ok(None);
        }
        // Windows goes down in steps: first to READ, then from it.
        let mut to = breaking.required & state;
        if state != LeaseState::READ {
            to |= LeaseState::READ & state;
        }
        let next = self.break_to(to, now);
        if let Some(again) = &mut self.breaking {
            again.required = breaking.required & state;
        }
        Ok(next)
    }

    /// Takes everything from a holder that did not acknowledge in time.
    pub fn give_up(&mut self) {
        *self = Self::default();
    }
}
