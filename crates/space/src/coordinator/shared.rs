//! The record, the chunk map and the calls to disks, which all parts that work on copies share.
//!
//! Invariant: a copy counts if the record has its disk in sync and the chunk map has that disk among
//! the chunk's holders. No other copy is trusted (I5).

use super::calls::{Calls, Outcome, Owner};
use super::chunks::Chunks;
use super::context::Context;
use super::mailbox::Mailbox;
use super::membership::Membership;
use crate::message::ReplicaOperation;
use crate::planted::Planted;
use pool::ChunkCopies;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use store::api::StoreError;
use types::{ChangeNumber, ChunkIndex, DiskId};

pub(super) struct Shared {
    pub context: Context,
    pub mailbox: Mailbox,
    pub membership: Membership,
    pub chunks: Chunks,
    pub calls: Calls,
    /// The last number given to a change.
    pub last_change: ChangeNumber,
}

impl Owner {
    /// Returns the chunk whose region epochs the owner requested.
    pub fn asks_regions_of(self) -> Option<ChunkIndex> {
        match self {
            Self::Probe(chunk)
            | Self::Verify(chunk)
            | Self::BuildRegions(chunk)
            | Self::ResyncRegions(_, chunk) => Some(chunk),
            _ => None,
        }
    }
}

impl Shared {
    /// Returns the disks whose copy of the chunk holds every acknowledged write, in order of their ids.
    pub fn holders_of(&self, index: ChunkIndex) -> SmallVec<[DiskId; 3]> {
        let Some(chunk) = self.chunks.get(index) else { return SmallVec::new() };
        chunk.in_sync_holders(&self.membership.in_sync).collect()
    }

    /// Returns the disks that get the chunk's writes: those of copies that count, and of copies in the making.
    pub fn targets_of(&self, index: ChunkIndex) -> SmallVec<[DiskId; 3]> {
        let mut targets = self.holders_of(index);
        if let Some(chunk) = self.chunks.get(index) {
            targets.extend(chunk.mirrors.iter().copied());
        }
        targets
    }

    /// Returns the chunks and their in-sync copies, for plans over the whole pool.
    pub fn chunk_copies(&self) -> Vec<ChunkCopies> {
        let (in_sync, volume) = (&self.membership.in_sync, self.context.volume);
        let copies = self.membership.record().resiliency.copies();
        let mapped = self.chunks.map.iter().filter(|(_, chunk)| chunk.is_mapped());
        mapped
            .map(|(&chunk, known)| {
                let holders = known.in_sync_holders(in_sync).collect();
                ChunkCopies { volume, chunk, copies, holders }
            })
            .collect()
    }

    /// Returns a number for a change, later than those of all earlier changes.
    pub fn next_change(&mut self) -> ChangeNumber {
        self.last_change = self.last_change.next();
        self.last_change
    }

    /// Begins a call. Its outcome comes by [`Self::take_outcome`].
    pub fn call(&mut self, owner: Owner, disk: DiskId, operation: ReplicaOperation) {
        if let Some(chunk) = owner.asks_regions_of() {
            debug_assert!(self.chunks.is_mapped(chunk), "region epochs of {chunk:?}, which is given back");
            if !Planted::ProbedChunksGivenBack.is_planted() {
                self.chunks.use_chunk(chunk);
            }
        }
        self.calls.call(owner, disk, operation, &self.context, &self.membership);
    }

    /// Takes the outcome of a call.
    pub fn take_outcome(&mut self) -> Option<Outcome> {
        let outcome = self.calls.take_outcome()?;
        if let Some(chunk) = outcome.owner.asks_regions_of()
            && !Planted::ProbedChunksGivenBack.is_planted()
        {
            self.mailbox.recheck |= self.chunks.release_chunk(chunk);
        }
        Some(outcome)
    }

    /// Stops counting copies that a committed record has marked, and ends calls that may wait for
    /// them while the coordinator has no session with the disk.
    pub fn give_up_copies(&mut self, disk: DiskId, chunks: &BTreeSet<ChunkIndex>) {
        for (_, chunk) in self.chunks.map.iter_mut().filter(|(index, _)| chunks.contains(index)) {
            chunk.holders.retain(|holder| *holder != disk);
        }
        let geometry = self.context.geometry;
        let chunk_of = |lba| geometry.chunk_of(lba);
        self.calls
            .end_calls_on(disk, |call| call.chunk(chunk_of).is_some_and(|chunk| chunks.contains(&chunk)));
    }

    /// Begins a session with the disk if it has none.
    pub fn connect(&mut self, disk: DiskId) {
        self.calls.connect(disk, &self.context, &self.membership);
    }

    /// Notes that the disk failed: it does not answer, or answers with errors.
    pub fn fail_disk(&mut self, disk: DiskId, why: &str) {
        self.calls.fail_disk(disk, why, &self.context, &mut self.membership, &mut self.mailbox);
    }

    /// Retries the disk a little later, because its machine lacks a resource.
    pub fn pause_disk(&mut self, disk: DiskId, why: &str) {
        self.calls.pause_disk(disk, why, &self.context, &mut self.mailbox);
    }

    /// Handles a disk's refusal of a write that other copies have. A disk whose file cannot grow is
    /// not at fault: its machine lacks space, and the disk is asked again (D20). Any other disk has
    /// failed.
    pub fn refused_by(&mut self, disk: DiskId, error: &StoreError) {
        if *error == StoreError::NoSpace && !Planted::HostExpelsDisk.is_planted() {
            self.pause_disk(disk, &error.to_string());
        } else {
            self.fail_disk(disk, &error.to_string());
        }
    }
}
