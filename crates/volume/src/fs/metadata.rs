//! Metadata as one thing that changes by transactions: store, journal and allocation of blocks.

use super::allocator::Allocator;
use super::bitmap::Bitmap;
use super::descriptors::Descriptors;
use super::journal::Journal;
use super::meta::{Store, Transaction, key};
use super::quota::Quotas;
use super::types::FsError;

/// The ticket of a transaction that was refused: never durable.
const TICKET_NEVER: u64 = u64::MAX;

/// Store, journal and allocation.
///
/// [`Metadata::record`] is the only way to change stored metadata. It adds the transaction to the
/// journal, makes it visible in the store and commits its blocks, all at once: so the store shows the
/// result of a replay of the journal, in the same order, and the allocator knows which transaction each
/// freed block waits for.
#[derive(Debug)]
pub struct Metadata {
    pub store: Store,
    pub journal: Journal,
    pub allocator: Allocator,
    pub quotas: Quotas,
    pub descriptors: Descriptors,
    /// How often references of shared blocks changed.
    pub shared_changes: u64,
}

impl Metadata {
    /// Makes a transaction visible and adds it to the journal. Returns its ticket.
    ///
    /// A transaction that gives a block to two extents, or frees one that is free, comes from damaged metadata or from an error in this
    /// program, as does one that is larger than any producer may make it. Neither it nor any later one is recorded, since a block with two owners is lost data: the allocator keeps the reason
    /// ([`Allocator::damage`]), the volume fails with it, and the next opening finds everything as it was before.
    pub fn record(&mut self, mut txn: Transaction) -> u64 {
        if txn.is_empty() {
            return 0;
        }
        if self.allocator.damage().is_none() {
            self.allocator.commit(txn.allocated(), txn.freed());
        }
        if self.allocator.damage().is_some() {
            return TICKET_NEVER;
        }
        if txn.has_charges() {
            self.quotas.commit(&mut txn);
        }
        // A batch that its reader refuses would take everything behind it along.
        let Some(ticket) = self.journal.add(&txn) else {
            self.allocator.refuse("a change larger than the journal takes: nothing of it was written");
            return TICKET_NEVER;
        };
        self.shared_changes += u64::from(txn.changes_references());
        let (changes, freed) = txn.into_parts();
        self.allocator.hold(freed, ticket);
        self.store.apply(changes);
        ticket
    }

    /// Loads a group's bitmap.
    ///
    /// # Errors
    /// `Miss`; `Corrupt` if the stored bitmap makes no sense, or contradicts commits since then.
    pub fn load_group(&mut self, group: u32) -> Result<(), FsError> {
        if self.allocator.is_loaded(group) {
            return Ok(());
        }
        let stored = match self.store.get(&Transaction::new(), &key::group(group))? {
            Some(value) => Some(
                Bitmap::from_bytes(&value, self.allocator.group_blocks())
                    .ok_or(FsError::damaged("allocation bitmap"))?,
            ),
            None => None,
        };
        self.allocator.load(group, stored)
    }
}
