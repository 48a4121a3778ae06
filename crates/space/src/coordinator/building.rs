//! New copies of chunks on other disks: rebuild after a loss, moves for balance or off a retired disk.
//!
//! An opening believes the whole slab table of a disk in sync. So the record's `building` list
//! names a copy in the making from before its slab is taken until the copy is complete, and a copy
//! that is given up from before it misses a write until its slab is given back.
//!
//! | step | ends when |
//! |---|---|
//! | mark the copy as building | committed |
//! | take a slab; mirror writes to it | writes that began before are done |
//! | copy the regions that were ever written | each is copied, read back and compared |
//! | unmark it; mark the one given up, if any | committed: the new copy counts, the old one does not |
//! | give the old slab back, then unmark it | committed |
//!
//! A surplus copy is given up by the last two steps alone, as soon as the record has marked it.
//! Before that the regions that it holds are read from all copies, and those that are to remain are
//! repaired from it if they are corrupt: it may have the last intact block.
//!
//! Invariants: the record marks a copy in the making from before the request for its slab, and
//! unmarks it only when all its written regions were copied, read back and compared (I5). A copy is
//! given up only if the record has the wanted number of others, or the new one takes its place by
//! the same record (I1). The chunk of each build has `in_build` set.

use super::calls::{Failure, Owner};
use super::chunks::Chunks;
use super::keys::{OperationKey, Purpose, SyncKey, Synced};
use super::operations::Operations;
use super::pace::Pace;
use super::pending_changes::{Change, Mark, MarkChange};
use super::shared::Shared;
use super::syncing::Syncing;
use crate::message::{Answer, ReplicaOperation};
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch};

#[derive(Debug, Clone, PartialEq, Eq)]
enum BuildStep {
    Marking,
    Allocating,
    /// Waits for operations that began before.
    Draining(BTreeSet<OperationKey>),
    Comparing,
    Copying,
    Unmarking,
    /// Surplus copies: the others are compared with the copy to give up, and repaired from it.
    Verifying {
        listed: bool,
    },
    /// The record is to mark the surplus copy.
    GivingUp,
    /// The record has marked the old copy; requests to it may still be in flight.
    Leaving,
    Dropping,
}

pub(super) struct Build {
    /// `None`: a surplus copy is given up without a new one.
    pub target: Option<DiskId>,
    pub drop: Option<DiskId>,
    step: BuildStep,
    regions: VecDeque<u64>,
    /// Steps in progress of this build. Those of a build that was given up do not count.
    in_flight: BTreeSet<SyncKey>,
}

impl Build {
    fn begin(step: BuildStep, target: Option<DiskId>, drop: Option<DiskId>) -> Self {
        Self { target, drop, step, regions: VecDeque::new(), in_flight: BTreeSet::new() }
    }

    /// Returns the change of marks that makes the new copy count: the new copy loses its mark, and
    /// the old one gets one.
    fn changes(&self, chunk: ChunkIndex) -> MarkChange {
        let mark = |disk| (disk, chunk);
        MarkChange { unmark: self.target.map(mark), mark: self.drop.map(mark) }
    }

    fn is_copied(&self) -> bool {
        self.regions.is_empty() && self.in_flight.is_empty()
    }
}

#[derive(Default)]
pub(super) struct Builds {
    map: BTreeMap<ChunkIndex, Build>,
    /// Marked copies whose slab is being given back.
    sweeping: BTreeSet<Mark>,
    /// Bytes copied since the builds were last idle.
    pub built_bytes: u64,
}

impl Builds {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ChunkIndex, &Build)> {
        self.map.iter().map(|(&chunk, build)| (chunk, build))
    }

    pub fn chunks(&self) -> Vec<ChunkIndex> {
        self.map.keys().copied().collect()
    }

    /// Whether a build makes a copy of the chunk on the disk.
    pub fn is_target(&self, chunk: ChunkIndex, disk: DiskId) -> bool {
        self.map.get(&chunk).is_some_and(|build| build.target == Some(disk))
    }

    /// Whether any build makes a copy on the disk.
    pub fn has_target(&self, disk: DiskId) -> bool {
        self.map.values().any(|build| build.target == Some(disk))
    }

    fn begin(&mut self, chunk: ChunkIndex, build: Build, shared: &mut Shared) {
        debug_assert!(shared.chunks.is_mapped(chunk), "{chunk:?} has no slabs");
        let before = self.map.insert(chunk, build);
        debug_assert!(before.is_none(), "{chunk:?} is built twice");
        shared.chunks.set_in_build(chunk, true);
    }

    /// Begins to make a copy of the chunk on `target`, in place of the copy on `drop`.
    pub fn start_build(
        &mut self,
        chunk: ChunkIndex,
        target: DiskId,
        drop: Option<DiskId>,
        shared: &mut Shared,
    ) {
        self.begin(chunk, Build::begin(BuildStep::Marking, Some(target), drop), shared);
        shared.chunks.pool.borrow_mut().take(target);
        shared.membership.want(Change::Mark(target, chunk));
    }

    /// Begins to give up a surplus copy of a chunk, once the other copies are whole.
    pub fn start_giving_up(
        &mut self,
        chunk: ChunkIndex,
        disk: DiskId,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        let listed = Planted::SurplusUnverified.is_planted();
        self.begin(chunk, Build::begin(BuildStep::Verifying { listed }, None, Some(disk)), shared);
        if listed {
            self.drive_build(chunk, shared, operations, syncing);
        } else {
            shared.call(Owner::BuildRegions(chunk), disk, ReplicaOperation::Regions { chunk });
        }
    }

    pub fn build_marked(
        &mut self,
        disk: DiskId,
        chunk: ChunkIndex,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        let append = shared.chunks.is_append(chunk);
        let Some(build) = self.map.get_mut(&chunk) else { return };
        if build.step == BuildStep::Marking && build.target == Some(disk) {
            build.step = BuildStep::Allocating;
            shared.call(Owner::Build(chunk), disk, ReplicaOperation::Allocate { chunk, append });
        } else if build.step == BuildStep::GivingUp && build.drop == Some(disk) {
            self.leave_copy(chunk, disk, shared, operations, syncing);
        }
    }

    pub fn build_allocated(
        &mut self,
        chunk: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        let Some(build) = self.map.get_mut(&chunk) else { return };
        if build.step != BuildStep::Allocating || build.target != Some(disk) {
            return;
        }
        if let Err(failure) = result {
            // The mark stays, and the slab counts as taken, until the disk has given back the slab
            // that it may have taken. The free space of a disk that left is not known.
            if failure != Failure::Gone {
                shared.chunks.pool.borrow_mut().note_full(disk);
            }
            return self.abort_build(chunk, shared);
        }
        shared.chunks.add_mirror(chunk, disk);
        let running = operations.running_writes().into_iter().collect();
        if let Some(build) = self.map.get_mut(&chunk) {
            build.step = BuildStep::Draining(running);
        }
        self.drive_build(chunk, shared, operations, syncing);
    }

    /// Continues as far as possible without copying.
    pub fn drive_build(
        &mut self,
        chunk: ChunkIndex,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        let source = shared.holders_of(chunk).first().copied();
        let unclean = operations.dirty_regions.is_unclean(chunk);
        let Some(build) = self.map.get_mut(&chunk) else { return };
        let (target, drop) = (build.target, build.drop);
        if let BuildStep::Draining(writes) = &mut build.step {
            writes.retain(|key| operations.is_under_way(*key));
            // A copy that may differ from another is no source.
            if !writes.is_empty() || unclean {
                return;
            }
            let Some(source) = source else { return };
            build.step = BuildStep::Comparing;
            shared.call(Owner::BuildRegions(chunk), source, ReplicaOperation::Regions { chunk });
            return;
        }
        let copied = build.is_copied();
        if build.step == (BuildStep::Verifying { listed: true }) && copied {
            build.step = BuildStep::GivingUp;
            if let Some(drop) = drop {
                shared.membership.want(Change::Mark(drop, chunk));
            }
            return;
        }
        if build.step == BuildStep::Copying && copied {
            build.step = BuildStep::Unmarking;
            if let Some(target) = target {
                shared.membership.want(Change::Unmark(target, chunk));
            }
            if let Some(drop) = drop {
                shared.membership.want(Change::Mark(drop, chunk));
            }
            return;
        }
        if build.step == BuildStep::Leaving
            && let Some(drop) = drop
            && !is_in_use(chunk, drop, operations, syncing)
        {
            debug_assert!(
                shared.chunks.get(chunk).is_none_or(|known| !known.lives_on(drop)),
                "a copy that counts is given back (I1)"
            );
            build.step = BuildStep::Dropping;
            shared.call(Owner::BuildDrop(chunk), drop, ReplicaOperation::Free { chunk });
        }
    }

    pub fn build_regions(
        &mut self,
        chunk: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        let geometry = shared.context.geometry;
        let (first, blocks) = (geometry.first_block(chunk), geometry.region_blocks());
        let Some(build) = self.map.get_mut(&chunk) else { return };
        if build.target.is_none() && build.drop != Some(disk) {
            return;
        }
        let next = match build.step {
            BuildStep::Comparing => BuildStep::Copying,
            BuildStep::Verifying { listed: false } => BuildStep::Verifying { listed: true },
            _ => return,
        };
        let Ok(Answer::Regions(Regions { stamps, .. })) = result else {
            if build.target.is_none() {
                // The disk is failing, so this copy may soon not be surplus any more.
                return self.finish_build(chunk, shared);
            }
            build.step = BuildStep::Draining(BTreeSet::new());
            return;
        };
        let written = stamps.iter().enumerate().filter(|(_, stamp)| stamp.epoch() > Epoch(0));
        build.regions = written.map(|(region, _)| first + region as u64 * blocks).collect();
        build.step = next;
        self.drive_build(chunk, shared, operations, syncing);
    }

    /// Begins to copy, or to verify, up to `slots` regions, and returns how many.
    pub fn copy_regions(
        &mut self,
        chunk: ChunkIndex,
        slots: usize,
        shared: &mut Shared,
        operations: &mut Operations,
        syncing: &mut Syncing,
    ) -> usize {
        let mut begun = 0;
        while begun < slots {
            let Some(build) = self.map.get_mut(&chunk) else { break };
            let moves = build.drop.is_some();
            let purpose = build.target.map_or(Purpose::Repair, |target| Purpose::Build { target, moves });
            let Some(lba) = build.regions.pop_front() else { break };
            begun += 1;
            let (key, new) = syncing.prepare_sync(chunk, lba, purpose, shared);
            if let Some(build) = self.map.get_mut(&chunk) {
                build.in_flight.insert(key);
            }
            if new {
                syncing.enter_sync(key, shared, operations);
            }
        }
        begun
    }

    /// Notes the end of a step: a region was copied to `target` or, without one, all copies of it
    /// were made whole.
    pub fn build_step(
        &mut self,
        target: Option<DiskId>,
        step: Synced,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
        pace: &mut Pace,
    ) {
        let Some(build) = self.map.get_mut(&step.chunk) else { return };
        if build.target != target || !build.in_flight.remove(&step.key) {
            return;
        }
        if step.succeeded && target.is_some() {
            self.built_bytes += step.bytes;
            shared.mailbox.counters.built_regions += 1;
        } else if !step.succeeded {
            build.regions.push_back(step.lba);
            pace.delay(shared.context.now.after(shared.context.config.reconnect_interval));
        }
        self.drive_build(step.chunk, shared, operations, syncing);
    }

    /// Holds back the marks of complete copies whose disk the next record has not in sync. Neither
    /// mark changes: the new copy would not count, and the old one, marked by the same record,
    /// would not either. A copy that would be missed is not given up. Returns the changes of marks
    /// that are void now.
    pub fn hold_back_marks(
        &mut self,
        in_sync: &[DiskId],
        copies: u8,
        chunks: &mut Chunks,
    ) -> Vec<MarkChange> {
        let mut held = Vec::new();
        self.map.retain(|&chunk, build| {
            if build.step == BuildStep::Unmarking
                && build.target.is_none_or(|target| !in_sync.contains(&target))
            {
                build.step = BuildStep::Copying;
                held.push(build.changes(chunk));
            }
            if build.step != BuildStep::GivingUp {
                return true;
            }
            let holders = chunks.get(chunk).map(|known| known.holders.iter()).into_iter().flatten();
            let kept = holders.filter(|disk| in_sync.contains(disk) && build.drop != Some(**disk)).count();
            let goes_on = kept >= usize::from(copies);
            if !goes_on {
                held.push(build.changes(chunk));
                chunks.set_in_build(chunk, false);
            }
            goes_on
        });
        held
    }

    /// Continues after a committed record that unmarks the new copy.
    pub fn build_unmarked(
        &mut self,
        disk: DiskId,
        chunk: ChunkIndex,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        let Some(build) = self.map.get_mut(&chunk) else { return };
        if build.step == BuildStep::Unmarking && build.target == Some(disk) {
            let drop = build.drop;
            shared.chunks.promote_mirror(chunk, disk);
            match drop {
                Some(drop) => self.leave_copy(chunk, drop, shared, operations, syncing),
                None => self.finish_build(chunk, shared),
            }
        } else if build.step == BuildStep::Dropping && build.drop == Some(disk) {
            self.finish_build(chunk, shared);
        }
    }

    /// Continues after a committed record that marks the old copy, so that it does not count any
    /// more.
    fn leave_copy(
        &mut self,
        chunk: ChunkIndex,
        drop: DiskId,
        shared: &mut Shared,
        operations: &Operations,
        syncing: &Syncing,
    ) {
        if let Some(known) = shared.chunks.get_mut(chunk) {
            known.holders.retain(|holder| *holder != drop);
        }
        if let Some(build) = self.map.get_mut(&chunk) {
            build.step = BuildStep::Leaving;
        }
        self.drive_build(chunk, shared, operations, syncing);
    }

    pub fn build_dropped(
        &mut self,
        chunk: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
    ) {
        self.sweeping.remove(&(disk, chunk));
        if result.is_ok() {
            shared.chunks.pool.borrow_mut().give_back(disk);
            shared.membership.want(Change::Unmark(disk, chunk));
        } else if let Some(build) = self.map.get(&chunk)
            && build.step == BuildStep::Dropping
        {
            // The disk has left, and gives its slab back when it returns.
            self.finish_build(chunk, shared);
        }
    }

    fn finish_build(&mut self, chunk: ChunkIndex, shared: &mut Shared) {
        self.map.remove(&chunk);
        shared.chunks.set_in_build(chunk, false);
        shared.mailbox.recheck = true;
    }

    /// Gives up the build's new copy. The mark stays until the slab is given back.
    pub fn abort_build(&mut self, chunk: ChunkIndex, shared: &mut Shared) {
        let Some(build) = self.map.get(&chunk) else { return };
        if matches!(
            build.step,
            BuildStep::Unmarking | BuildStep::GivingUp | BuildStep::Leaving | BuildStep::Dropping
        ) {
            return;
        }
        if let (Some(target), Some(known)) = (build.target, shared.chunks.get_mut(chunk)) {
            known.remove_mirror(target);
        }
        self.finish_build(chunk, shared);
    }

    /// Gives up copies in the making on a disk that has left. A copy that was to replace one of this disk
    /// continues: it is needed all the more, and there is no copy left to drop.
    fn abort_builds_on(&mut self, disk: DiskId, shared: &mut Shared) {
        let touched = self.iter().filter(|(_, build)| build.target == Some(disk) || build.drop == Some(disk));
        for chunk in touched.map(|(chunk, _)| chunk).collect::<Vec<_>>() {
            let Some(build) = self.map.get_mut(&chunk) else { continue };
            if build.target == Some(disk) {
                if build.step == BuildStep::Unmarking {
                    let changes = build.changes(chunk);
                    shared.membership.forget_marks(changes);
                }
                self.finish_build(chunk, shared);
                if let Some(known) = shared.chunks.get_mut(chunk) {
                    known.remove_mirror(disk);
                }
            } else if matches!(
                build.step,
                BuildStep::Verifying { .. } | BuildStep::GivingUp | BuildStep::Leaving | BuildStep::Dropping
            ) {
                // The other copies count already. The disk gives this copy's slab back when it
                // returns.
                self.finish_build(chunk, shared);
            } else {
                build.drop = None;
            }
        }
    }

    /// Stops filling the disk's copies that do not count.
    pub fn forget_mirrors(&mut self, disk: DiskId, shared: &mut Shared) {
        shared.chunks.remove_mirrors(disk);
        self.abort_builds_on(disk, shared);
    }

    /// Gives back slabs of marked copies that no build uses: left by a crash, or given up.
    pub fn sweep_marks(&mut self, shared: &mut Shared, operations: &Operations, syncing: &Syncing) {
        for (disk, chunk) in shared.membership.record().building.clone() {
            let ready = !shared.chunks.is_in_build(chunk)
                && shared.membership.is_in_sync(disk)
                && shared.calls.is_open(disk)
                && shared.chunks.get(chunk).is_none_or(|known| !known.holders.contains(&disk))
                && !is_in_use(chunk, disk, operations, syncing)
                // A request still in flight would miss the slab, or would take it after it was
                // given back.
                && !shared.calls.is_awaited(Owner::Build(chunk), disk)
                && !syncing.builds(chunk, disk);
            if ready && self.sweeping.insert((disk, chunk)) {
                if let Some(known) = shared.chunks.get_mut(chunk) {
                    known.remove_mirror(disk);
                }
                shared.call(Owner::BuildDrop(chunk), disk, ReplicaOperation::Free { chunk });
            }
        }
    }
}

/// Tells whether this copy has requests in flight, or may get some, so that its slab must stay.
fn is_in_use(chunk: ChunkIndex, disk: DiskId, operations: &Operations, syncing: &Syncing) -> bool {
    operations.is_in_use(chunk, disk) || syncing.is_in_use(chunk, disk)
}
