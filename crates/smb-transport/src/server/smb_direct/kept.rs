//! The account of one peer: the memory of its messages, and since when something has waited for it.

use crate::server::memory::{Loan, PartyId};
use types::Monotonic;

/// A peer that moves fewer of the bytes that wait for it within [`super::SmbDirectLimits::stall`]
/// counts as idle.
const MOVED_BYTES_LEAST: u64 = 128 << 10;

/// Work that waits for a peer: answers to take, or payload to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backlog {
    /// When the peer had last moved [`MOVED_BYTES_LEAST`], or everything.
    pub since: Monotonic,
    /// All that it had moved until then.
    moved_bytes: u64,
}

impl Backlog {
    /// Returns the present backlog. `waits`: there is one; `moved_bytes`: since the connection began.
    pub fn after(before: Option<Self>, waits: bool, moved_bytes: u64, now: Monotonic) -> Option<Self> {
        match before {
            _ if !waits => None,
            Some(before) if moved_bytes - before.moved_bytes < MOVED_BYTES_LEAST => Some(before),
            _ => Some(Self { since: now, moved_bytes }),
        }
    }
}

/// The account of one peer.
pub(super) struct Kept {
    pub party: PartyId,
    pub loan: Option<Loan>,
    /// Memory of the receives posted to a device for it. Without it there is the least number that a
    /// connection needs.
    pub receives: Option<Loan>,
    /// Memory of a transfer that has not come whole.
    pub transfer_bytes: usize,
    /// Messages that the service does not want yet.
    pub held_bytes: usize,
    /// There is an unfinished message, since then; and how many were whole before it.
    pub message: Option<(Monotonic, u64)>,
    pub unread: Option<Backlog>,
    /// Of reads of the peer's memory.
    pub ungiven: Option<Backlog>,
    /// Whether it is in the list that the sweep checks.
    pub is_watched: bool,
}

impl Kept {
    pub fn new(party: PartyId) -> Self {
        Self {
            party,
            loan: None,
            receives: None,
            transfer_bytes: 0,
            held_bytes: 0,
            message: None,
            unread: None,
            ungiven: None,
            is_watched: false,
        }
    }

    #[inline]
    pub fn is_counted(&self) -> bool {
        self.loan.is_some()
    }

    pub fn loan_bytes(&self) -> usize {
        self.loan.as_ref().map_or(0, Loan::bytes)
    }
}
