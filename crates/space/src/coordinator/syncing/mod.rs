//! Making the copies of one region equal: the step from which reconciliation, repair, resync and
//! rebuild are built.
//!
//! # How it works
//!
//! A step holds the region's exclusive lock from the first read to the end. It reads the copies,
//! chooses the right one for each block ([`super::choosing`]), writes it to the copies that differ,
//! reads the written blocks back and compares them (I5):
//!
//! | stage | sent | ends when | next |
//! |---|---|---|---|
//! | locking | nothing | the lock is granted | reading |
//! | reading | a read of the region to each copy; once more around blocks that a store reports as corrupt | all have answered | writing; reading again, if a block is missing and a copy was left out because its disk is away; the end, for a comparison |
//! | writing | a write for each run of blocks that differ; before these, after a crash and if some copy takes several, one that stamps the trusted copies, so that they stay trusted after another crash in between | all have answered | verifying; the end, if nothing differs |
//! | verifying | a read of the region to each disk that was written to | all have answered | the end |
//!
//! | purpose | read | written |
//! |---|---|---|
//! | reconcile, repair | all in-sync copies | those of them that differ or are corrupt, as overwrites: each block is old or new |
//! | answer | all in-sync copies that can be reached | the same |
//! | compare | all in-sync copies | nothing |
//! | resync, build | the first in-sync copy (others if it is corrupt, if the chunk is of class `Append`, or if a copy is given up for the new one) and the target | the target, which does not count yet; in-sync copies if the target had the last intact one, or if all were read |
//!
//! A block without an intact copy that counts is taken from the returning disk, if that disk has
//! surely not missed it ([`super::absences`]). Any other block is lost, and reported. A copy in the
//! making marks it as lost, so that reads of this block alone fail until it is written again. The
//! copies that count stay as they are: a block that is unreadable now may be readable later.
//!
//! Reads of the volume that met a corrupt block, or that want the newest of blocks that prove
//! themselves, wait for such a step. The blocks that it chose answer them, whether or not the copies
//! can be made whole. Such a read gives up its own lock when the step has its place in the queue.
//!
//! # Concurrent events
//!
//! - **Writes of the volume to the same region** wait for the lock. Writes to other regions continue: a
//!   copy in the making gets all of them, since it is a mirror from before the first step on
//!   ([`super::resync`], [`super::building`]).
//! - **Another job or read wants the same step**: the step begins only once, and answers all reads that
//!   wait for it.
//! - **The job that began the step is given up**, or its disk leaves and comes back: the step continues
//!   to its end. No job counts its result then, since jobs know their steps by key. A copy that it
//!   filled does not count until a later job has gone over all its regions.
//! - **A copy comes to count, or leaves**: the step continues with the copies that counted when the
//!   lock was granted. A copy that came to count since was compared and got every write, so the step
//!   leaves it alone. A copy that left ends its calls as `Gone`: the step fails, and the next one uses
//!   the copies that count then.
//! - **The chunk is given back**: only after the step, which uses the chunk, has ended. A step that
//!   finds the chunk closing does nothing. With a target it fails, so that a copy that was not filled
//!   does not come to count.
//! - **The coordinator dies**: no record names the step. Overwrites leave each block old or new, a
//!   target does not count, and the next opening finds by their epochs the regions that may differ
//!   (I10).
//!
//! # Failures
//!
//! | failure | consequence |
//! |---|---|
//! | a copy cannot be read: its disk is gone | the step fails, since the set of copies that count has changed or will. The job begins another step. Reads that wait go back to the gate |
//! | a write is refused | the step fails; in a reconciliation the disk has failed, since the region is not served before its copies are equal |
//! | a reconciliation's write finds no space on the disk's machine | the step fails, and the region waits: another step begins when the disk is asked again (D20) |
//! | a written block does not read back | the step fails, the disk has lost a write; at the third region in a row it has failed |
//! | a block has no intact copy | not a failure: the block is lost, the others are made equal |
//!
//! [`super::verify`] remembers a failed repair and repeats it when all copies can be reached.
//! Reconciliations, resyncs and builds are retried until they succeed. A step interrupted at any
//! point can be repeated: it writes only blocks that it read from a copy, and marks blocks as lost
//! only in a copy that does not count.

mod region;

use super::calls::{Failure, LostRead, Owner};
use super::choosing::{candidates, is_intact};
use super::chunks::ChunkState;
use super::keys::{Holder, OperationKey, Purpose, SyncKey, Synced};
use super::mailbox::Next;
use super::operations::{Operations, release_chunk};
use super::shared::Shared;
use super::{Event, REGION_BLOCKS};
use crate::api::SpaceError;
use crate::message::{Answer, ReplicaOperation};
use crate::planted::Planted;
use region::{Damage, Found, Progress, Stage, StepNumbers, Sync, Waiting};
use std::collections::BTreeMap;
use store::api::StoreError;
use types::{ChunkIndex, DiskId, Lba};

/// Regions in a row of which a disk lost the write just before, after which it has failed. Disks
/// recover from one lost write, and not from three in a row.
const UNKEPT_MAX: u32 = 3;

/// Invariant: at most one step of each purpose runs on the same blocks, and a step that does not wait
/// for its lock holds it.
#[derive(Default)]
pub(super) struct Syncing {
    syncs: BTreeMap<SyncKey, Sync>,
    last: SyncKey,
    /// Writes in a row that disks lost, by disk.
    unkept: BTreeMap<DiskId, u32>,
}

impl Syncing {
    pub fn len(&self) -> usize {
        self.syncs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.syncs.is_empty()
    }

    pub fn clear(&mut self) {
        self.syncs.clear();
    }

    /// Whether a step uses this copy.
    pub fn is_in_use(&self, index: ChunkIndex, disk: DiskId) -> bool {
        self.syncs.values().any(|sync| sync.chunk == index && sync.uses(disk))
    }

    /// Whether a step fills this copy for a build.
    pub fn builds(&self, index: ChunkIndex, disk: DiskId) -> bool {
        let fills = |purpose| matches!(purpose, Purpose::Build { target, .. } if target == disk);
        self.syncs.values().any(|sync| sync.chunk == index && fills(sync.purpose))
    }

    /// Begins to make the region of `lba` equal, unless a step already does.
    pub fn start_sync(
        &mut self,
        index: ChunkIndex,
        lba: u64,
        purpose: Purpose,
        shared: &mut Shared,
        operations: &mut Operations,
    ) {
        if let (key, true) = self.prepare_sync(index, lba, purpose, shared) {
            self.enter_sync(key, shared, operations);
        }
    }

    /// Returns the key of the step that makes the region of `lba` equal, and whether it is new:
    /// [`Self::enter_sync`] begins it. A running step of another job of the same purpose, since given up,
    /// serves as well.
    pub fn prepare_sync(
        &mut self,
        index: ChunkIndex,
        lba: u64,
        purpose: Purpose,
        shared: &mut Shared,
    ) -> (SyncKey, bool) {
        let geometry = shared.context.geometry;
        let first = geometry.region_start(lba);
        self.prepare_part(index, first, geometry.rest_of_region(first), purpose, shared)
    }

    /// Prepares a step for `blocks` blocks of one region, from `first` on.
    fn prepare_part(
        &mut self,
        index: ChunkIndex,
        first: u64,
        blocks: u64,
        purpose: Purpose,
        shared: &mut Shared,
    ) -> (SyncKey, bool) {
        let same = |sync: &Sync| sync.lba == first && sync.blocks == blocks && sync.purpose == purpose;
        let known = self.syncs.iter().find(|(_, sync)| same(sync));
        if let Some((&key, _)) = known {
            return (key, false);
        }
        let key = self.last.advance();
        let mut sync = Sync::new(purpose, index, first, blocks, shared.context.geometry.region_of(first));
        sync.uses_chunk = shared.chunks.use_chunk(index);
        self.syncs.insert(key, sync);
        (key, true)
    }

    /// Has a step compare the copies and answer the read, which gives up its lock and its chunk afterwards.
    /// The step covers the whole region of a corrupt block, and only the read's range of blocks that prove
    /// themselves.
    pub fn answer_by_sync(
        &mut self,
        operation: OperationKey,
        index: ChunkIndex,
        lba: u64,
        blocks: u64,
        shared: &mut Shared,
        operations: &mut Operations,
    ) {
        let (key, new) = match shared.chunks.is_append(index) {
            true => self.prepare_part(index, lba, blocks, Purpose::Answer, shared),
            false => self.prepare_sync(index, lba, Purpose::Repair, shared),
        };
        if let Some(sync) = self.syncs.get_mut(&key) {
            sync.add_waiting(Waiting { operation, lba, blocks });
        }
        if new {
            self.enter_sync(key, shared, operations);
        }
    }

    pub fn enter_sync(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(sync) = self.syncs.get(&key) else { return };
        let range = sync.lba..sync.lba + sync.blocks;
        if operations.lock_for_sync(Holder::Sync(key), sync.region, range) {
            self.sync_locked(key, shared, operations);
        }
    }

    pub fn sync_locked(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let (index, purpose) = (sync.chunk, sync.purpose);
        let region = shared.context.geometry.region_in_chunk(sync.lba);
        let mut sources = shared.holders_of(index).to_vec();
        if let Some(believed) = operations.dirty_regions.believed(index, region) {
            sources.sort_by_key(|disk| believed.place(*disk));
        }
        let state = shared.chunks.get(index).map(|chunk| &chunk.state);
        let mapped = state.is_some_and(|state| *state != ChunkState::Closing);
        let target = purpose.target();
        let few = purpose == Purpose::Reconcile && sources.len() < 2;
        let counts = target.is_some_and(|target| sources.contains(&target));
        if !mapped || sources.is_empty() || few || counts {
            // A chunk counts until it is given back, and a crash may come before: a copy that was not filled
            // must not count. One that counts was filled by another step.
            sync.failed |= target.is_some() && state.is_some();
            return self.finish_sync(key, shared, operations);
        }
        let mut read = sources.clone();
        if sync.has_waiting() {
            // A read does not wait for a disk that is away, unless a block has no other intact copy.
            read.retain(|disk| shared.calls.is_open(*disk));
        }
        if target.is_some() && !reads_all_copies(purpose, shared.chunks.is_append(index)) {
            read.truncate(1);
        }
        read.extend(target);
        if read.is_empty() {
            return self.finish_sync(key, shared, operations);
        }
        sync.begin(sources, shared.chunks.is_append(index));
        for disk in read {
            self.gather(key, disk, Stage::Reading, shared);
        }
    }

    /// Reads the whole region from the disk.
    fn gather(&mut self, key: SyncKey, disk: DiskId, stage: Stage, shared: &mut Shared) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let blocks = sync.blocks;
        sync.begin_gather(disk, stage);
        self.gather_range(key, disk, 0, blocks, shared);
    }

    fn gather_range(&mut self, key: SyncKey, disk: DiskId, start: u64, blocks: u64, shared: &mut Shared) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let lba = Lba(sync.lba + start);
        sync.expect_read(disk);
        let owner = Owner::SyncRead { sync: key, purpose: sync.purpose, start, blocks };
        shared.call(owner, disk, ReplicaOperation::Read { lba, blocks: blocks as u32 });
    }

    /// Takes the answer of a copy to a read that another one has answered. If the copy reports bad blocks
    /// and still counts, the region is repaired, as if this answer had won: the repair reads the region
    /// anew under the lock, and finds its present state.
    pub fn lost_answered(
        &mut self,
        LostRead { lba: Lba(lba), blocks }: LostRead,
        disk: DiskId,
        result: &Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &mut Operations,
    ) {
        let index = shared.context.geometry.chunk_of(lba);
        let is_served = shared.context.serving() && shared.chunks.is_mapped(index);
        if !is_served || !shared.holders_of(index).contains(&disk) {
            return;
        }
        let (append, is_far) = (shared.chunks.is_append(index), shared.context.is_far(disk));
        let is_bad = match result {
            Ok(Answer::Data { data, checksums }) => {
                !is_intact(&shared.context, is_far, append, lba, blocks.into(), data, checksums)
            }
            Err(Failure::Store(error)) => {
                matches!(error, StoreError::Corrupt { .. } | StoreError::NotMapped)
            }
            Ok(_) | Err(Failure::Gone) => false,
        };
        if is_bad {
            self.start_sync(index, lba, Purpose::Repair, shared, operations);
        }
    }

    pub fn sync_read(
        &mut self,
        key: SyncKey,
        disk: DiskId,
        start: u64,
        blocks: u64,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &mut Operations,
    ) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let lba = sync.lba + start;
        let (context, is_far) = (&shared.context, shared.context.is_far(disk));
        let found = match result {
            Ok(Answer::Data { data, checksums })
                if is_intact(context, is_far, sync.is_append(), lba, blocks, &data, &checksums) =>
            {
                Found::Blocks(candidates(context.volume, sync.is_append(), Lba(lba), &data, &checksums))
            }
            Ok(_) => Found::Corrupt(vec![Lba(lba)]),
            Err(Failure::Store(StoreError::Corrupt { lbas })) => Found::Corrupt(lbas),
            Err(_) => Found::Gone,
        };
        for (start, blocks) in sync.take_read(disk, start, blocks, found) {
            self.gather_range(key, disk, start, blocks, shared);
        }
        self.conclude_reading(key, shared, operations);
    }

    fn conclude_reading(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        match (sync.progress(), sync.stage) {
            (Progress::Pending, _) => {}
            (Progress::Failed, _) => {
                // The set of copies that count has changed or will: another step follows later.
                sync.failed = true;
                self.finish_sync(key, shared, operations);
            }
            (Progress::Complete, Stage::Reading) if sync.purpose == Purpose::Compare => {
                sync.compare();
                self.finish_sync(key, shared, operations);
            }
            (Progress::Complete, Stage::Reading) => self.choose_blocks(key, shared, operations),
            (Progress::Complete, Stage::Verifying) => self.compare_written(key, shared, operations),
            (Progress::Complete, Stage::Locking | Stage::Writing) => {}
        }
    }

    fn choose_blocks(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let (chunk, append, geometry) = (sync.chunk, sync.is_append(), shared.context.geometry);
        let lost =
            sync.choose_blocks(operations.dirty_regions.believed(chunk, geometry.region_in_chunk(sync.lba)));
        let unread = sync.unread();
        if !lost.is_empty() && !unread.is_empty() {
            // A block is not lost while a disk that is away has it: only reads of other blocks are answered
            // now.
            for (operation, data) in sync.take_found() {
                operations.finish_operation(operation, Ok(Some(data)), shared);
            }
            for disk in unread {
                self.gather(key, disk, Stage::Reading, shared);
            }
            return;
        }
        let absences = &operations.absences;
        let lost = sync.rescue(lost, |disk, lba| absences.has_not_missed(disk, lba, geometry));
        if !lost.is_empty()
            && Planted::RebuildRetriesForEver.is_planted()
            && matches!(sync.purpose, Purpose::Build { .. })
        {
            sync.failed = true;
            return self.finish_sync(key, shared, operations);
        }
        // A write to blocks that prove themselves may be torn on every copy if it was never acknowledged:
        // only the volume knows whether it needs these blocks.
        if !lost.is_empty() && !append {
            shared.mailbox.emit(Event::Unrepairable { chunk, lbas: lost });
        }
        tell_damage(chunk, sync.damage(), shared);
        self.write_differences(key, shared, operations);
    }

    fn write_differences(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let numbers = StepNumbers { others: shared.next_change(), base: shared.next_change() };
        let writes = sync.begin_writing(shared.context.volume, numbers);
        if writes.is_empty() {
            return self.finish_sync(key, shared, operations);
        }
        let purpose = sync.purpose;
        let epoch = shared.membership.record().epoch;
        shared.membership.stamp(epoch);
        send_writes(key, purpose, writes, shared);
    }

    pub fn sync_written(
        &mut self,
        key: SyncKey,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &mut Operations,
    ) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        sync.failed |= result.is_err();
        // The region is not served before its copies are equal. A disk that refuses blocks that others hold
        // has failed, as with any write.
        if let Err(Failure::Store(error)) = result
            && sync.purpose == Purpose::Reconcile
        {
            sync.refuse(disk, error);
        }
        if !sync.write_answered() {
            return;
        }
        if sync.failed {
            for (disk, error) in sync.take_refused() {
                shared.refused_by(disk, &error);
            }
            return self.finish_sync(key, shared, operations);
        }
        let (later, purpose) = (sync.begin_later(), sync.purpose);
        if !later.is_empty() {
            return send_writes(key, purpose, later, shared);
        }
        for disk in sync.begin_verifying() {
            self.gather(key, disk, Stage::Verifying, shared);
        }
    }

    fn compare_written(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(sync) = self.syncs.get_mut(&key) else { return };
        let (kept, unkept) = sync.compare_written();
        let (chunk, first) = (sync.chunk, Lba(sync.lba));
        sync.failed |= !unkept.is_empty();
        for disk in kept {
            self.unkept.remove(&disk);
        }
        for disk in unkept {
            shared.mailbox.emit(Event::LostWrite { disk, chunk, blocks: 1, lbas: vec![first] });
            shared.mailbox.counters.lost_writes += 1;
            let times = self.unkept.entry(disk).or_default();
            *times += 1;
            if *times >= UNKEPT_MAX {
                self.unkept.remove(&disk);
                shared.fail_disk(disk, "it does not keep what is written to it");
            }
        }
        self.finish_sync(key, shared, operations);
    }

    fn finish_sync(&mut self, key: SyncKey, shared: &mut Shared, operations: &mut Operations) {
        let Some(mut sync) = self.syncs.remove(&key) else { return };
        let (chunk, lba, purpose, succeeded) = (sync.chunk, sync.lba, sync.purpose, !sync.failed);
        if !matches!(purpose, Purpose::Reconcile | Purpose::Compare) && succeeded {
            let repaired = sync.written().iter().filter(|(disk, _)| purpose.target() != Some(**disk));
            for (&disk, &blocks) in repaired {
                shared.mailbox.counters.repaired_blocks += blocks;
                shared.mailbox.emit(Event::Repaired { disk, chunk, blocks });
            }
        }
        if sync.uses_chunk {
            release_chunk(chunk, shared);
        }
        answer_waiting(&mut sync, shared, operations);
        if purpose == Purpose::Reconcile && succeeded {
            let (blocks, geometry) = (sync.written().values().sum(), shared.context.geometry);
            operations.dirty_regions.reconciled(chunk, lba, blocks, geometry, &mut shared.mailbox);
        }
        let bytes = sync.bytes();
        shared.mailbox.leave(Next::Synced(Synced { key, purpose, chunk, lba, bytes, succeeded }));
        if purpose == Purpose::Compare {
            let wrong = sync.written().iter().filter(|(_, blocks)| **blocks > 0);
            let wrong = wrong.map(|(&disk, &blocks)| (disk, blocks)).collect();
            let found = sync.compared;
            shared.mailbox.emit(Event::Compared { lba: Lba(lba), found, wrong, lost: sync.lost });
        }
        shared.mailbox.recheck = true;
        operations.unlock(Holder::Sync(key), sync.region, &mut shared.mailbox);
    }
}

/// Tells whether a new copy of the chunk is made from all others: if one of them alone may lack the
/// last write, or if one is given up for the new copy.
fn reads_all_copies(purpose: Purpose, append: bool) -> bool {
    let moves = matches!(purpose, Purpose::Build { moves: true, .. });
    append || moves && !Planted::MoveFromOneCopy.is_planted()
}

fn send_writes(key: SyncKey, purpose: Purpose, writes: Vec<(DiskId, ReplicaOperation)>, shared: &mut Shared) {
    for (disk, message) in writes {
        shared.call(Owner::SyncWrite(key, purpose), disk, message);
    }
}

/// Reports disks with damaged blocks to the operator.
fn tell_damage(chunk: ChunkIndex, damage: Vec<Damage>, shared: &mut Shared) {
    for Damage { disk, corrupt, older } in damage {
        shared.mailbox.counters.corrupt_blocks += corrupt.len() as u64;
        shared.mailbox.counters.lost_writes += older.len() as u64;
        if !corrupt.is_empty() {
            let blocks = corrupt.len() as u64;
            shared.mailbox.emit(Event::CorruptRead { disk, chunk, blocks, lbas: corrupt });
        }
        if !older.is_empty() {
            let blocks = older.len() as u64;
            shared.mailbox.emit(Event::LostWrite { disk, chunk, blocks, lbas: older });
        }
    }
}

/// Answers the reads that waited, or sends them back to the gate if the copies could not be read.
fn answer_waiting(sync: &mut Sync, shared: &mut Shared, operations: &mut Operations) {
    for waiting in sync.take_waiting() {
        if !sync.has_chosen() {
            operations.wait_again(waiting.operation, &mut shared.mailbox);
            continue;
        }
        let result = match sync.answer(&waiting) {
            _ if sync.failed && Planted::ReadFailsWithRepair.is_planted() => {
                Err(SpaceError::Corrupt { lbas: vec![Lba(waiting.lba)] })
            }
            Ok(data) => Ok(Some(data)),
            Err(lbas) => Err(SpaceError::Corrupt { lbas }),
        };
        operations.finish_operation(waiting.operation, result, shared);
    }
}

// Blocks of a region are counted in messages by 32 bits.
const _: () = assert!(REGION_BLOCKS <= u32::MAX as u64);
