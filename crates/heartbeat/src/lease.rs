//! This node's lease.

use types::Monotonic;

/// A majority held this node alive in this term, until a moment of this node's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Rises when another node held this one dead, or a node has just met this one. A volume that was
    /// opened in an earlier term may have another owner: this node reads its record again before it answers
    /// from memory. A lease that lapsed and is valid again in the same term needs nothing.
    pub term: u64,
    /// `None`: no majority has granted anything in this term.
    pub valid_until: Option<Monotonic>,
}

impl Lease {
    pub fn is_valid(&self, now: Monotonic) -> bool {
        self.valid_until.is_some_and(|until| now < until)
    }
}

/// A lease as the node that answers for volumes gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The records are to be read again once in each term, after its first offer and before the first answer by it.
    pub term: u64,
    /// Answers may be given before this moment of this node's own clock. An offer of an earlier term holds to its end.
    pub until: Monotonic,
}
