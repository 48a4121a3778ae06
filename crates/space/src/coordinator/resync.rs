//! Bringing a disk back that missed writes (I4, I5).
//!
//! | step | ends when |
//! |---|---|
//! | list the disk's chunks | it answered |
//! | mirror: the disk is sent every write to its chunks from here on | the writes that began before are done |
//! | give back slabs of chunks that were freed, or that have enough copies elsewhere | done |
//! | copy, chunk by chunk, the regions that the disk may have missed | each is copied, read back and compared |
//! | join: the record says that the disk is in sync | committed |
//!
//! A region was missed where the source's epoch is not lower than the one the disk left in; where the disk's own is not (it
//! may hold a write that was never acknowledged and that the others do not have); or where the source was never written and
//! the disk was (the chunk was freed and allocated anew meanwhile). When the disk fails on the way, or the coordinator does,
//! it begins again: `since` in the record is unchanged, and regions that are equal already are not written again.

use super::calls::{Failure, Owner};
use super::syncing::{Purpose, Sync};
use super::{Coordinator, Event};
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use std::collections::{BTreeSet, VecDeque};
use store::api::Regions;
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Epoch, Monotonic};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Listing,
    /// These writes began before the disk was mirrored to.
    Draining(BTreeSet<u64>),
    Freeing(BTreeSet<ChunkIndex>),
    Copying,
    Joining,
}

/// Region epochs of one chunk, on their way.
struct Comparing {
    chunk: ChunkIndex,
    source: Option<Vec<Epoch>>,
    target: Option<Vec<Epoch>>,
    asked: bool,
}

pub(super) struct Resync {
    since: Epoch,
    step: Step,
    to_free: BTreeSet<ChunkIndex>,
    chunks: VecDeque<ChunkIndex>,
    comparing: Option<Comparing>,
    /// First blocks of regions to be copied.
    regions: VecDeque<(ChunkIndex, u64)>,
    /// Steps under way, by number: those of a resync that was given up are not counted.
    in_flight: BTreeSet<u64>,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub started: Monotonic,
}

impl Coordinator {
    pub(super) fn start_resync(&mut self, disk: DiskId, since: Epoch) {
        let resync = Resync {
            since,
            step: Step::Listing,
            to_free: BTreeSet::new(),
            chunks: VecDeque::new(),
            comparing: None,
            regions: VecDeque::new(),
            in_flight: BTreeSet::new(),
            done_bytes: 0,
            total_bytes: 0,
            started: self.now,
        };
        self.resyncs.insert(disk, resync);
        self.call(Owner::ResyncListing, disk, Message::Chunks);
    }

    pub(super) fn resync_listed(&mut self, disk: DiskId, result: Result<Answer, Failure>) {
        if !self.resyncs.contains_key(&disk) {
            return;
        }
        let Ok(Answer::Chunks(entries)) = result else { return self.abandon_resync(disk) };
        let copies = usize::from(self.record.resiliency.copies());
        let (mut keep, mut free) = (VecDeque::new(), BTreeSet::new());
        for entry in entries {
            let wanted = self.chunks.get(&entry.chunk).is_some_and(|chunk| {
                chunk.is_mapped()
                    && chunk.append == entry.append
                    && self.in_sync_holders(chunk).count() < copies
                    && !self.is_building(entry.chunk)
            });
            if wanted && !self.record.building.contains(&(disk, entry.chunk)) {
                keep.push_back(entry.chunk);
            } else {
                free.insert(entry.chunk);
            }
        }
        for &chunk in &keep {
            self.add_mirror(chunk, disk);
        }
        free.iter().for_each(|&chunk| self.absences.forget_chunk(chunk, Some(disk)));
        let running = if Planted::JoinBeforeDrain.is_planted() { Vec::new() } else { self.running_writes() };
        let chunk_bytes = self.chunk_blocks * BLOCK_BYTES as u64;
        if let Some(resync) = self.resyncs.get_mut(&disk) {
            resync.total_bytes = keep.len() as u64 * chunk_bytes;
            resync.chunks = keep;
            resync.to_free = free;
            resync.step = Step::Draining(running.into_iter().collect());
        }
        self.drive_resync(disk);
    }

    /// Goes on as far as possible without copying.
    pub(super) fn drive_resync(&mut self, disk: DiskId) {
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        if let Step::Draining(writes) = &mut resync.step {
            writes.retain(|number| self.operations.contains_key(number));
            if !writes.is_empty() {
                return;
            }
            let free = resync.to_free.clone();
            resync.step = Step::Freeing(free.clone());
            for chunk in free {
                self.call(Owner::ResyncFree(chunk), disk, Message::Free { chunk });
            }
        }
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        if matches!(&resync.step, Step::Freeing(pending) if pending.is_empty()) {
            resync.step = Step::Copying;
        }
        if resync.step == Step::Copying {
            self.compare_next(disk);
        }
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        let copied = resync.chunks.is_empty()
            && resync.comparing.is_none()
            && resync.regions.is_empty()
            && resync.in_flight.is_empty();
        if resync.step == Step::Copying && copied {
            resync.step = Step::Joining;
            resync.done_bytes = resync.total_bytes;
            self.want_join(disk);
        }
    }

    pub(super) fn resync_freed(&mut self, disk: DiskId, chunk: ChunkIndex, result: Result<Answer, Failure>) {
        let marked = self.record.building.contains(&(disk, chunk));
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        let Step::Freeing(pending) = &mut resync.step else { return };
        if result.is_err() {
            return self.abandon_resync(disk);
        }
        pending.remove(&chunk);
        self.pool.borrow_mut().give_back(disk);
        if marked {
            self.want_unmark(disk, chunk);
        }
        self.drive_resync(disk);
    }

    /// Fetches the region epochs of the next chunk.
    fn compare_next(&mut self, disk: DiskId) {
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        if resync.comparing.is_none() && resync.regions.len() < 64 {
            let Some(chunk) = resync.chunks.pop_front() else { return };
            resync.comparing = Some(Comparing { chunk, source: None, target: None, asked: false });
        }
        let Some(Comparing { chunk, asked: false, .. }) = resync.comparing else { return };
        // Copies that may differ are no source; a chunk that was freed meanwhile needs nothing.
        if self.unclean.contains(&chunk) {
            return;
        }
        let source = self.holders_of(chunk).first().copied();
        let mirrored = self.chunks.get(&chunk).is_some_and(|known| known.mirrors.contains(&disk));
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        let (Some(source), true) = (source, mirrored) else {
            resync.comparing = None;
            self.recheck = true;
            return;
        };
        if let Some(comparing) = &mut resync.comparing {
            comparing.asked = true;
        }
        self.call(Owner::ResyncRegions(disk, chunk), source, Message::Regions { chunk });
        self.call(Owner::ResyncRegions(disk, chunk), disk, Message::Regions { chunk });
    }

    pub(super) fn resync_regions(
        &mut self,
        target: DiskId,
        chunk: ChunkIndex,
        from: DiskId,
        result: Result<Answer, Failure>,
    ) {
        let count = self.chunk_blocks.div_ceil(self.region_blocks());
        let (first, blocks) = (self.first_block(chunk), self.region_blocks());
        if let (Ok(Answer::Regions(found)), true) = (&result, from == target) {
            found.doubtful.iter().for_each(|&region| self.doubt_region(target, chunk, u64::from(region)));
        }
        let Some(resync) = self.resyncs.get_mut(&target) else { return };
        let Some(comparing) = &mut resync.comparing else { return };
        if comparing.chunk != chunk {
            return;
        }
        let Ok(Answer::Regions(Regions { epochs, .. })) = result else {
            if from == target {
                return self.abandon_resync(target);
            }
            // Another source will do.
            resync.comparing = Some(Comparing { chunk, source: None, target: None, asked: false });
            self.recheck = true;
            return;
        };
        if from == target {
            comparing.target = Some(epochs);
        } else {
            comparing.source = Some(epochs);
        }
        let (Some(source), Some(have)) = (&comparing.source, &comparing.target) else { return };
        let since = resync.since;
        let missed = |region: u64| {
            let at = |epochs: &[Epoch]| epochs.get(region as usize).copied();
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
        let region_bytes = blocks * BLOCK_BYTES as u64;
        resync.done_bytes += (count - regions.len() as u64) * region_bytes;
        resync.regions.extend(regions.into_iter().map(|region| (chunk, first + region * blocks)));
        resync.comparing = None;
        self.drive_resync(target);
    }

    /// Begins to copy up to `slots` regions; says how many.
    pub(super) fn copy_missed(&mut self, disk: DiskId, slots: usize) -> usize {
        let mut begun = 0;
        while begun < slots {
            let Some((chunk, lba)) =
                self.resyncs.get_mut(&disk).and_then(|resync| resync.regions.pop_front())
            else {
                break;
            };
            begun += 1;
            let (number, new) = self.prepare_sync(chunk, lba, Purpose::Resync(disk));
            if let Some(resync) = self.resyncs.get_mut(&disk) {
                resync.in_flight.insert(number);
            }
            if new {
                self.enter_sync(number);
            }
        }
        begun
    }

    pub(super) fn resync_step(&mut self, disk: DiskId, number: u64, sync: &Sync) {
        let Some(resync) = self.resyncs.get_mut(&disk) else { return };
        if !resync.in_flight.remove(&number) {
            return;
        }
        if sync.succeeded() {
            resync.done_bytes += sync.bytes();
            self.counters.resynced_regions += 1;
        } else {
            // The source failed, or the session of the disk broke: try the region again after the others.
            resync.regions.push_back((sync.chunk, sync.lba));
            self.jobs.delay(self.now.after(self.config.reconnect_interval));
        }
        self.drive_resync(disk);
    }

    /// The record says that the disk is in sync.
    pub(super) fn resync_joined(&mut self, disk: DiskId) {
        self.resyncs.remove(&disk);
        self.absent_since.remove(&disk);
        self.absences.forget(disk);
        self.jobs.may_have_surplus = true;
        let chunks: Vec<ChunkIndex> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| chunk.mirrors.contains(&disk))
            .map(|(&index, _)| index)
            .collect();
        for index in chunks {
            self.promote_mirror(index, disk);
        }
        self.emit(Event::DiskJoined { disk });
    }

    /// The disk is gone again, or the job was stopped: nothing counts on it.
    pub(super) fn abandon_resync(&mut self, disk: DiskId) {
        if self.is_required(disk) || self.resyncs.remove(&disk).is_none() {
            return;
        }
        self.members.cancel_join(disk);
        self.forget_mirrors(disk);
    }

    pub(super) fn forget_mirrors(&mut self, disk: DiskId) {
        for chunk in self.chunks.values_mut() {
            chunk.mirrors.retain(|mirror| *mirror != disk);
        }
        self.abort_builds_on(disk);
    }
}
