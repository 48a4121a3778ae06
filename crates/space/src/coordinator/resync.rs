//! Bringing a disk back that missed writes (I4, I5).
//!
//! | step | ends when |
//! |---|---|
//! | list the disk's chunks | it answered |
//! | mirror: the disk gets every write to its chunks from here on | the writes that began before are done |
//! | give back slabs of chunks that were freed, or that have enough copies elsewhere | done |
//! | copy, chunk by chunk, the regions that the disk may have missed | each is copied, read back and compared |
//! | join: the record says that the disk is in sync | committed |
//!
//! A region was missed if the source's epoch is not lower than the one the disk left in; if the disk's
//! own is not (it may hold a write that was never acknowledged and that the others do not have); or if
//! the source was never written and the disk was (the chunk was freed and allocated anew meanwhile). If
//! the disk or the coordinator fails on the way, the resync begins again: `since` in the record is
//! unchanged, and regions that are equal already are not written again.
//!
//! Invariant: the resync wants the disk in sync (`Joining`) only when every region that the disk may
//! have missed, of every chunk that it keeps, was copied, read back and compared after the disk had
//! begun to get all writes (I4, I5).

use super::Event;
use super::building::Builds;
use super::calls::{Failure, Owner};
use super::keys::{OperationKey, Purpose, SyncKey, Synced};
use super::operations::Operations;
use super::pace::Pace;
use super::pending_changes::Change;
use super::shared::Shared;
use super::syncing::Syncing;
use crate::message::{Answer, ReplicaOperation};
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch, Monotonic, Stamp};

#[derive(Debug, Clone, PartialEq, Eq)]
enum ResyncStep {
    Listing,
    /// Waits for writes that began before the disk was mirrored to.
    Draining(BTreeSet<OperationKey>),
    Freeing(BTreeSet<ChunkIndex>),
    Copying,
    Joining,
}

/// Region epochs of one chunk, as they arrive from source and target.
struct Comparing {
    chunk: ChunkIndex,
    source: Option<Vec<Stamp>>,
    target: Option<Vec<Stamp>>,
    asked: bool,
}

pub(super) struct Resync {
    since: Epoch,
    step: ResyncStep,
    to_free: BTreeSet<ChunkIndex>,
    chunks: VecDeque<ChunkIndex>,
    comparing: Option<Comparing>,
    /// First blocks of regions to be copied.
    regions: VecDeque<(ChunkIndex, u64)>,
    /// Steps in progress of this resync. Those of a resync that was given up do not count.
    in_flight: BTreeSet<SyncKey>,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub started: Monotonic,
}

impl Resync {
    /// Whether every region that the disk may have missed was copied.
    fn is_copied(&self) -> bool {
        self.chunks.is_empty()
            && self.comparing.is_none()
            && self.regions.is_empty()
            && self.in_flight.is_empty()
    }
}

/// Regions queued for copying at most before another chunk is compared: a quarter of the largest chunk.
const REGIONS_AHEAD: usize = 64;

#[derive(Default)]
pub(super) struct Resyncs(BTreeMap<DiskId, Resync>);

impl Resyncs {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the disk is being brought back.
    pub fn contains(&self, disk: DiskId) -> bool {
        self.0.contains_key(&disk)
    }

    pub fn disks(&self) -> Vec<DiskId> {
        self.0.keys().copied().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (DiskId, &Resync)> {
        self.0.iter().map(|(&disk, resync)| (disk, resync))
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn start_resync(&mut self, disk: DiskId, since: Epoch, shared: &mut Shared) {
        let resync = Resync {
            since,
            step: ResyncStep::Listing,
            to_free: BTreeSet::new(),
            chunks: VecDeque::new(),
            comparing: None,
            regions: VecDeque::new(),
            in_flight: BTreeSet::new(),
            done_bytes: 0,
            total_bytes: 0,
            started: shared.context.now,
        };
        self.0.insert(disk, resync);
        shared.chunks.returning.insert(disk);
        shared.call(Owner::ResyncListing, disk, ReplicaOperation::Chunks);
    }

    pub fn resync_listed(
        &mut self,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &mut Operations,
        builds: &mut Builds,
    ) {
        if !self.0.contains_key(&disk) {
            return;
        }
        let Ok(Answer::Chunks(entries)) = result else { return self.abandon_resync(disk, shared, builds) };
        let copies = usize::from(shared.membership.record().resiliency.copies());
        let (mut keep, mut free) = (VecDeque::new(), BTreeSet::new());
        for entry in entries {
            let wanted = shared.chunks.get(entry.chunk).is_some_and(|chunk| {
                chunk.is_mapped()
                    && chunk.append == entry.append
                    && chunk.in_sync_holders(&shared.membership.in_sync).count() < copies
                    && !shared.chunks.is_in_build(entry.chunk)
            });
            if wanted && !shared.membership.is_marked(disk, entry.chunk) {
                keep.push_back(entry.chunk);
            } else {
                free.insert(entry.chunk);
            }
        }
        for &chunk in &keep {
            shared.chunks.add_mirror(chunk, disk);
        }
        free.iter().for_each(|&chunk| operations.absences.forget_chunk(chunk, Some(disk)));
        let running =
            if Planted::JoinBeforeDrain.is_planted() { Vec::new() } else { operations.running_writes() };
        let chunk_bytes = shared.context.geometry.chunk_bytes();
        if let Some(resync) = self.0.get_mut(&disk) {
            resync.total_bytes = keep.len() as u64 * chunk_bytes;
            resync.chunks = keep;
            resync.to_free = free;
            resync.step = ResyncStep::Draining(running.into_iter().collect());
        }
        self.drive_resync(disk, shared, operations);
    }

    /// Continues as far as possible without copying.
    pub fn drive_resync(&mut self, disk: DiskId, shared: &mut Shared, operations: &Operations) {
        let Some(resync) = self.0.get_mut(&disk) else { return };
        if let ResyncStep::Draining(writes) = &mut resync.step {
            writes.retain(|key| operations.is_under_way(*key));
            if !writes.is_empty() {
                return;
            }
            let free = resync.to_free.clone();
            resync.step = ResyncStep::Freeing(free.clone());
            for chunk in free {
                shared.call(Owner::ResyncFree(chunk), disk, ReplicaOperation::Free { chunk });
            }
        }
        let Some(resync) = self.0.get_mut(&disk) else { return };
        if matches!(&resync.step, ResyncStep::Freeing(pending) if pending.is_empty()) {
            resync.step = ResyncStep::Copying;
        }
        if resync.step == ResyncStep::Copying {
            self.compare_next(disk, shared, operations);
        }
        let Some(resync) = self.0.get_mut(&disk) else { return };
        if resync.step == ResyncStep::Copying && resync.is_copied() {
            resync.step = ResyncStep::Joining;
            resync.done_bytes = resync.total_bytes;
            shared.membership.want(Change::Join(disk));
        }
    }

    pub fn resync_freed(
        &mut self,
        disk: DiskId,
        chunk: ChunkIndex,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &Operations,
        builds: &mut Builds,
    ) {
        let marked = shared.membership.is_marked(disk, chunk);
        let Some(resync) = self.0.get_mut(&disk) else { return };
        let ResyncStep::Freeing(pending) = &mut resync.step else { return };
        if result.is_err() {
            return self.abandon_resync(disk, shared, builds);
        }
        pending.remove(&chunk);
        shared.chunks.pool.borrow_mut().give_back(disk);
        if marked {
            shared.membership.want(Change::Unmark(disk, chunk));
        }
        self.drive_resync(disk, shared, operations);
    }

    /// Fetches the region epochs of the next chunk.
    fn compare_next(&mut self, disk: DiskId, shared: &mut Shared, operations: &Operations) {
        let Some(resync) = self.0.get_mut(&disk) else { return };
        if resync.comparing.is_none() && resync.regions.len() < REGIONS_AHEAD {
            let Some(chunk) = resync.chunks.pop_front() else { return };
            resync.comparing = Some(Comparing { chunk, source: None, target: None, asked: false });
        }
        let Some(Comparing { chunk, asked: false, .. }) = resync.comparing else { return };
        // Copies that may differ are no source. A chunk that is being freed waits for that.
        if operations.dirty_regions.is_unclean(chunk) {
            return;
        }
        if shared.chunks.get(chunk).is_some_and(|known| !known.is_mapped()) {
            return;
        }
        let source = shared.holders_of(chunk).first().copied();
        let mirrored = shared.chunks.get(chunk).is_some_and(|known| known.mirrors.contains(&disk));
        let Some(resync) = self.0.get_mut(&disk) else { return };
        let (Some(source), true) = (source, mirrored) else {
            resync.comparing = None;
            shared.mailbox.recheck = true;
            return;
        };
        if let Some(comparing) = &mut resync.comparing {
            comparing.asked = true;
        }
        shared.call(Owner::ResyncRegions(disk, chunk), source, ReplicaOperation::Regions { chunk });
        shared.call(Owner::ResyncRegions(disk, chunk), disk, ReplicaOperation::Regions { chunk });
    }

    pub fn resync_regions(
        &mut self,
        target: DiskId,
        chunk: ChunkIndex,
        from: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        operations: &mut Operations,
        builds: &mut Builds,
    ) {
        let geometry = shared.context.geometry;
        let (count, first, blocks) =
            (geometry.regions(), geometry.first_block(chunk), geometry.region_blocks());
        if let (Ok(Answer::Regions(found)), true) = (&result, from == target) {
            let doubtful = found.doubtful.iter().map(|region| u64::from(*region));
            doubtful.for_each(|region| operations.absences.doubt_region(target, chunk, region, geometry));
        }
        let Some(resync) = self.0.get_mut(&target) else { return };
        let Some(comparing) = &mut resync.comparing else { return };
        if comparing.chunk != chunk {
            return;
        }
        let Ok(Answer::Regions(Regions { stamps, .. })) = result else {
            if from == target {
                return self.abandon_resync(target, shared, builds);
            }
            // Asks another source next.
            resync.comparing = Some(Comparing { chunk, source: None, target: None, asked: false });
            shared.mailbox.recheck = true;
            return;
        };
        if from == target {
            comparing.target = Some(stamps);
        } else {
            comparing.source = Some(stamps);
        }
        let (Some(source), Some(have)) = (&comparing.source, &comparing.target) else { return };
        let since = resync.since;
        let missed = |region: u64| {
            let at = |stamps: &[Stamp]| stamps.get(region as usize).map(|stamp| stamp.epoch());
            match (at(source), at(have)) {
                (Some(source), Some(have)) => {
                    source.max(have) >= since || (source == Epoch(0) && have > Epoch(0))
                }
                _ => true,
            }
        };
        let mut regions: Vec<u64> = (0..count).filter(|&region| missed(region)).collect();
        if Planted::ResyncSkipsRegion.is_planted() {
            regions.pop();
        }
        let region_bytes = blocks * types::BLOCK_BYTES as u64;
        resync.done_bytes += (count - regions.len() as u64) * region_bytes;
        resync.regions.extend(regions.into_iter().map(|region| (chunk, first + region * blocks)));
        resync.comparing = None;
        self.drive_resync(target, shared, operations);
    }

    /// Begins to copy up to `slots` regions, and returns how many.
    pub fn copy_missed(
        &mut self,
        disk: DiskId,
        slots: usize,
        shared: &mut Shared,
        operations: &mut Operations,
        syncing: &mut Syncing,
    ) -> usize {
        let mut begun = 0;
        while begun < slots {
            let Some((chunk, lba)) = self.0.get_mut(&disk).and_then(|resync| resync.regions.pop_front())
            else {
                break;
            };
            begun += 1;
            let (key, new) = syncing.prepare_sync(chunk, lba, Purpose::Resync(disk), shared);
            if let Some(resync) = self.0.get_mut(&disk) {
                resync.in_flight.insert(key);
            }
            if new {
                syncing.enter_sync(key, shared, operations);
            }
        }
        begun
    }

    /// Notes the end of a step: whether the region was copied to the disk.
    pub fn resync_step(
        &mut self,
        disk: DiskId,
        step: Synced,
        shared: &mut Shared,
        operations: &Operations,
        pace: &mut Pace,
    ) {
        let Some(resync) = self.0.get_mut(&disk) else { return };
        if !resync.in_flight.remove(&step.key) {
            return;
        }
        if step.succeeded {
            resync.done_bytes += step.bytes;
            shared.mailbox.counters.resynced_regions += 1;
        } else {
            // The source failed, or the session of the disk broke: try the region again after the others.
            resync.regions.push_back((step.chunk, step.lba));
            pace.delay(shared.context.now.after(shared.context.config.reconnect_interval));
        }
        self.drive_resync(disk, shared, operations);
    }

    /// Lets the disk's copies count, since the record has the disk in sync.
    pub fn resync_joined(&mut self, disk: DiskId, shared: &mut Shared, operations: &mut Operations) {
        let resync = self.0.remove(&disk);
        shared.chunks.returning.remove(&disk);
        assert!(resync.is_none_or(|resync| resync.is_copied()), "{disk} counts and was not compared (I5)");
        operations.absences.forget(disk);
        let mirrored = shared.chunks.map.iter().filter(|(_, chunk)| chunk.mirrors.contains(&disk));
        let chunks: Vec<ChunkIndex> = mirrored.map(|(&index, _)| index).collect();
        for index in chunks {
            shared.chunks.promote_mirror(index, disk);
        }
        shared.mailbox.emit(Event::DiskJoined { disk });
    }

    /// Gives up the resync of a disk that has left again, or whose job was stopped. No write relies
    /// on the disk.
    pub fn abandon_resync(&mut self, disk: DiskId, shared: &mut Shared, builds: &mut Builds) {
        if shared.membership.is_required(disk) || self.0.remove(&disk).is_none() {
            return;
        }
        shared.chunks.returning.remove(&disk);
        // Writes that wait for the disk's free slabs check again.
        shared.mailbox.recheck = true;
        shared.membership.cancel(Change::Join(disk));
        builds.forget_mirrors(disk, shared);
    }
}
