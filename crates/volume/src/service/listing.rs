//! How far an open of a directory has been listed.

use crate::backend::{DirectoryEntry, OperationId};
use crate::fs::DirectoryCursor;

/// The place of an open in its directory, kept from one question to the next.
#[derive(Debug, Default)]
pub struct Listing {
    pub cursor: DirectoryCursor,
    /// The entries found for the last question, if it waits for metadata or for the next turn: it goes on behind them.
    pub found: Option<Found>,
}

/// What a question has found so far.
#[derive(Debug)]
pub struct Found {
    pub operation: OperationId,
    pub entries: Vec<DirectoryEntry>,
    /// The cursor's position of the last entry that was looked at.
    pub position: u64,
}
