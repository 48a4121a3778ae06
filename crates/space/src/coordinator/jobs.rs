//! Storage jobs: what runs in the background, how fast, and how far it is.
//!
//! Order: copies that may differ are made equal first, then disks that returned are brought back, then missing copies are made,
//! then chunks are moved. While the volume is in use one region is handled at a time, with a rest after each that is a multiple
//! of what it took; otherwise several at once. The next step always follows from the record, the chunk map and the disks, so
//! that a job goes on after a restart where it was.

use super::building::Build;
use super::syncing::Purpose;
use super::{Comparison, Coordinator, Event, Phase};
use cluster::JobKind;
use pool::{ChunkCopies, Move};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Lba, Monotonic};

/// Chunks built at once.
const BUILDS_MAX: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    Running,
    /// Stopped by the administrator, until it is resumed.
    Suspended,
}

/// A job as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    pub kind: JobKind,
    /// The disk that is brought back.
    pub disk: Option<DiskId>,
    pub phase: JobPhase,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub running_for: Duration,
    /// By the mean speed so far.
    pub remaining: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub builds: BTreeMap<ChunkIndex, Build>,
    /// Marked copies whose slab is being given back.
    pub sweeping: BTreeSet<(DiskId, ChunkIndex)>,
    /// Moves of a rebalance that have not begun.
    moves: Vec<Move>,
    moves_total: usize,
    pub built_bytes: u64,
    build_total: u64,
    /// Chunks may have more copies than wanted: disks came back whose copies had been made elsewhere.
    pub may_have_surplus: bool,
    /// Chunks that lack a copy and for which no disk had room when it was last looked.
    without_room: u64,
    building_since: Option<Monotonic>,
    /// Kinds that the administrator stopped.
    suspended: BTreeSet<u8>,
    not_before: Monotonic,
    step_began: Option<Monotonic>,
    plan_at: Monotonic,
}

impl Jobs {
    /// No step begins before this time.
    pub fn delay(&mut self, until: Monotonic) {
        self.not_before = self.not_before.max(until);
    }
}

fn code(kind: JobKind) -> u8 {
    match kind {
        JobKind::Resync => 0,
        JobKind::Rebuild => 1,
        JobKind::Rebalance => 2,
        JobKind::Scrub => 3,
    }
}

impl Coordinator {
    pub(super) fn jobs_next_timeout(&self) -> Option<Monotonic> {
        if !self.serving() {
            return None;
        }
        let busy = !self.jobs.builds.is_empty()
            || !self.resyncs.is_empty()
            || !self.unclean.is_empty()
            || !self.survey.is_done();
        let wanted = self.survey.has_retries()
            || !self.jobs.moves.is_empty()
            || !self.retired.is_empty()
            || self.jobs.may_have_surplus;
        let planned =
            (wanted || !self.record.stale.is_empty() || self.few_copies()).then_some(self.jobs.plan_at);
        let paced = (busy && self.jobs.not_before > self.now).then_some(self.jobs.not_before);
        let floor = self.now.after(Duration::from_nanos(1));
        [planned, paced].into_iter().flatten().min().map(|at| at.max(floor))
    }

    fn few_copies(&self) -> bool {
        self.record.min_holders < self.record.resiliency.copies() || !self.record.building.is_empty()
    }

    pub(super) fn background_step_done(&mut self) {
        if let Some(began) = self.jobs.step_began.take()
            && self.foreground_is_busy()
        {
            let rest = self.now.since(began) * self.config.background_rest;
            self.jobs.delay(self.now.after(rest));
        }
    }

    pub(super) fn drive_jobs(&mut self) {
        if !self.serving() {
            return;
        }
        if self.phase == Phase::Serving {
            self.plan();
            let resyncing: Vec<DiskId> = self.resyncs.keys().copied().collect();
            for disk in resyncing {
                self.drive_resync(disk);
            }
            let building: Vec<ChunkIndex> = self.jobs.builds.keys().copied().collect();
            for chunk in building {
                self.drive_build(chunk);
            }
        }
        self.copy_in_background();
    }

    fn copy_in_background(&mut self) {
        if self.now < self.jobs.not_before {
            return;
        }
        let most = if self.foreground_is_busy() { 1 } else { self.config.background_regions.max(1) };
        let mut slots = most.saturating_sub(self.syncs.len());
        if slots == 0 {
            return;
        }
        let before = slots;
        slots -= self.reconcile_in_background(slots).min(slots);
        if self.phase == Phase::Serving {
            for disk in self.resyncs.keys().copied().collect::<Vec<_>>() {
                slots -= self.copy_missed(disk, slots).min(slots);
            }
            for chunk in self.jobs.builds.keys().copied().collect::<Vec<_>>() {
                slots -= self.copy_regions(chunk, slots).min(slots);
            }
            slots -= self.survey_regions(slots).min(slots);
        }
        if slots < before {
            self.jobs.step_began = Some(self.now);
        }
    }

    /// Looks, at intervals, for disks to bring back and copies to make.
    fn plan(&mut self) {
        if self.now < self.jobs.plan_at {
            return;
        }
        self.jobs.plan_at = self.now.after(self.config.reconnect_interval);
        if !self.jobs.suspended.contains(&code(JobKind::Resync)) {
            for stale in self.record.stale.clone() {
                let leaving = self.members.is_leaving(stale.disk);
                if leaving || self.retired.contains(&stale.disk) || self.resyncs.contains_key(&stale.disk) {
                    continue;
                }
                self.connect(stale.disk);
                if self.calls.is_open(stale.disk) {
                    self.start_resync(stale.disk, stale.since);
                }
            }
        }
        self.sweep_marks();
        self.settle_mirrors();
        self.retry_repairs();
        if !self.jobs.suspended.contains(&code(JobKind::Rebuild)) {
            self.plan_rebuild();
            self.give_up_surplus();
        }
        if !self.jobs.suspended.contains(&code(JobKind::Rebalance)) {
            self.begin_moves();
        }
        if self.jobs.builds.is_empty() {
            self.jobs.building_since = None;
            self.jobs.built_bytes = 0;
            self.jobs.build_total = 0;
        }
        self.forget_retired();
        if self.membership_is_idle()
            && self.jobs.builds.is_empty()
            && self.fewest_holders_of_record() > self.record.min_holders
        {
            self.want_rotation();
        }
    }

    /// Whether a disk may be back soon, so that copying what it has would be in vain.
    fn may_return(&self, disk: DiskId) -> bool {
        if self.retired.contains(&disk) || self.jobs.suspended.contains(&code(JobKind::Resync)) {
            return false;
        }
        if self.resyncs.contains_key(&disk) {
            return true;
        }
        let since = self.absent_since.get(&disk).copied().unwrap_or_default();
        self.now.since(since) < self.config.rebuild_after
    }

    fn plan_rebuild(&mut self) {
        self.jobs.without_room = 0;
        if self.record.stale.iter().any(|stale| self.may_return(stale.disk)) && !self.must_not_wait() {
            return;
        }
        let copies = usize::from(self.record.resiliency.copies());
        let mut lacking: Vec<(usize, ChunkIndex)> = Vec::new();
        for (&index, chunk) in &self.chunks {
            if !chunk.is_mapped() || self.is_building(index) || !chunk.mirrors.is_empty() {
                continue;
            }
            let kept = self.in_sync_holders(chunk).filter(|disk| !self.retired.contains(disk)).count();
            if kept < copies {
                lacking.push((kept, index));
            }
        }
        lacking.sort_unstable();
        self.jobs.build_total = self.jobs.build_total.max(lacking.len() as u64);
        for (_, index) in lacking {
            if self.jobs.builds.len() >= BUILDS_MAX {
                break;
            }
            let holders = self.holders_of(index).to_vec();
            let (gone, kept): (Vec<DiskId>, Vec<DiskId>) =
                holders.iter().partition(|disk| self.retired.contains(*disk));
            let mut excluded = self.excluded();
            excluded.extend(&gone);
            // A disk of which a slab of this chunk is still being given back cannot be its new home.
            excluded.extend(self.record.building.iter().filter(|mark| mark.1 == index).map(|mark| mark.0));
            let place = pool::place(&self.pool.borrow(), 1, &kept, &excluded, pool::Purpose::Repair);
            let Some(&target) = place.as_ref().ok().and_then(|chosen| chosen.first()) else {
                self.jobs.without_room += 1;
                continue;
            };
            let drop = if holders.len() >= copies { gone.first().copied() } else { None };
            self.jobs.building_since.get_or_insert(self.now);
            self.start_build(index, target, drop);
        }
    }

    /// Gives up copies beyond those that are wanted: of retired disks first, so that these become empty.
    fn give_up_surplus(&mut self) {
        if !self.jobs.may_have_surplus {
            return;
        }
        let copies = usize::from(self.record.resiliency.copies());
        let mut found = false;
        for chunk in self.chunk_copies() {
            if chunk.holders.len() <= copies {
                continue;
            }
            found = true;
            let index = chunk.chunk;
            let busy = self.unclean.contains(&index)
                || self.is_building(index)
                || !self.marked_for(index).is_empty()
                || self.chunks.get(&index).is_none_or(|known| !known.mirrors.is_empty());
            let surplus = pool::surplus(&self.pool.borrow(), &chunk);
            if let Some(disk) = surplus.filter(|_| !busy && self.jobs.builds.len() < BUILDS_MAX) {
                self.start_giving_up(index, disk);
            }
        }
        self.jobs.may_have_surplus = found;
    }

    /// Chunks leave a retired disk although another disk may be back soon.
    fn must_not_wait(&self) -> bool {
        self.chunks.values().any(|chunk| chunk.holders.iter().any(|disk| self.retired.contains(disk)))
    }

    fn begin_moves(&mut self) {
        while self.jobs.builds.len() < BUILDS_MAX {
            let Some(step) = self.jobs.moves.pop() else { break };
            let valid = self.chunks.get(&step.chunk).is_some_and(|chunk| {
                chunk.is_mapped()
                    && chunk.mirrors.is_empty()
                    && chunk.holders.contains(&step.from)
                    && !chunk.holders.contains(&step.to)
            });
            let marked = self.record.building.iter().any(|mark| mark.1 == step.chunk);
            if valid && !marked && !self.is_building(step.chunk) && !self.excluded().contains(&step.to) {
                self.jobs.building_since.get_or_insert(self.now);
                self.start_build(step.chunk, step.to, Some(step.from));
            }
        }
    }

    /// Retired disks that hold nothing any more leave the record.
    fn forget_retired(&mut self) {
        for disk in self.retired.clone() {
            let needed = self.chunks.values().any(|chunk| chunk.may_live_on(disk))
                && (self.record.in_sync.contains(&disk) || self.few_copies());
            let known = self.record.in_sync.contains(&disk)
                || self.record.stale.iter().any(|stale| stale.disk == disk);
            let marked =
                self.record.building.iter().any(|mark| mark.0 == disk) && self.record.in_sync.contains(&disk);
            if known
                && !needed
                && !marked
                && !self.jobs.builds.values().any(|build| build.target == Some(disk))
            {
                self.want_remove(disk);
            }
        }
    }

    /// A block of the disk was found corrupt by a scrub: its region is repaired from another copy.
    pub fn repair(&mut self, now: Monotonic, disk: DiskId, lba: Lba) {
        self.advance_time(now);
        let chunk = self.chunk_of(lba.0);
        let holds =
            self.chunks.get(&chunk).is_some_and(|known| known.is_mapped() && known.holders.contains(&disk));
        if self.serving() && holds && self.record.in_sync.contains(&disk) {
            self.start_sync(chunk, lba.0, Purpose::Repair);
        }
        self.settle_down();
    }

    /// Reads all in-sync copies of the region of `lba` and compares them; writes nothing. Answered by one
    /// [`Event::Compared`]; one region at a time is to be asked for once.
    pub fn compare(&mut self, now: Monotonic, lba: Lba) {
        self.advance_time(now);
        let chunk = self.chunk_of(lba.0);
        if self.serving() && self.chunks.get(&chunk).is_some_and(|known| known.is_mapped()) {
            self.start_sync(chunk, lba.0, Purpose::Compare);
        } else {
            self.emit(Event::Compared {
                lba,
                found: Comparison::default(),
                wrong: Vec::new(),
                lost: Vec::new(),
            });
        }
        self.settle_down();
    }

    /// Makes the copies of the region of `lba` equal: corrupt and older ones are written again from the newest that is intact.
    pub fn equalize(&mut self, now: Monotonic, lba: Lba) {
        self.advance_time(now);
        let chunk = self.chunk_of(lba.0);
        if self.serving() && self.chunks.get(&chunk).is_some_and(|known| known.is_mapped()) {
            self.start_sync(chunk, lba.0, Purpose::Repair);
        }
        self.settle_down();
    }

    /// Chunks that lack a copy, or are to leave a retired disk, and for which no disk of another fault domain has room.
    pub fn chunks_without_room(&self) -> u64 {
        self.jobs.without_room
    }

    /// Whether the chunk of `lba` has slabs.
    pub fn is_mapped(&self, lba: Lba) -> bool {
        self.chunks.get(&self.chunk_of(lba.0)).is_some_and(|known| known.is_mapped())
    }

    /// The first block of each region of the chunks that have slabs.
    pub fn mapped_regions(&self) -> Vec<Lba> {
        let mapped = self.chunks.iter().filter(|(_, chunk)| chunk.is_mapped());
        let regions = |index: &ChunkIndex| {
            let first = u64::from(index.0) * self.chunk_blocks;
            (first..first + self.chunk_blocks).step_by(self.region_blocks() as usize).map(Lba)
        };
        mapped.flat_map(|(index, _)| regions(index).collect::<Vec<_>>()).collect()
    }

    /// The disk's chunks move to others; it is given no new ones. Taken back with `false`.
    pub fn set_retired(&mut self, disk: DiskId, retired: bool) {
        if retired {
            self.retired.insert(disk);
        } else if self.retired.remove(&disk) {
            self.want_add(disk);
        }
        self.jobs.plan_at = self.now;
    }

    /// Whether nothing of the volume depends on the disk.
    pub fn is_free_of(&self, disk: DiskId) -> bool {
        self.serving()
            && !self.record.in_sync.contains(&disk)
            && !self.record.stale.iter().any(|stale| stale.disk == disk)
    }

    /// The pool has a new disk: the volume may be given slabs of it.
    pub fn add_disk(&mut self, disk: DiskId) {
        self.want_add(disk);
    }

    /// Changes the address space; what lies beyond a smaller one must have been discarded.
    pub fn resize(&mut self, size_bytes: u64) {
        self.want_size(size_bytes);
    }

    /// The chunks and their in-sync copies, for plans over the whole pool.
    pub fn chunk_copies(&self) -> Vec<ChunkCopies> {
        let copies = self.record.resiliency.copies();
        self.chunks
            .iter()
            .filter(|(_, chunk)| chunk.is_mapped())
            .map(|(&index, chunk)| ChunkCopies {
                volume: self.volume,
                chunk: index,
                copies,
                holders: self.in_sync_holders(chunk).collect(),
            })
            .collect()
    }

    /// Takes over the moves of a rebalance that concern this volume.
    pub fn rebalance(&mut self, moves: Vec<Move>) {
        self.jobs.moves = moves.into_iter().filter(|step| step.volume == self.volume).rev().collect();
        self.jobs.moves_total = self.jobs.moves.len();
        self.jobs.suspended.remove(&code(JobKind::Rebalance));
        self.jobs.plan_at = self.now;
    }

    /// Stops jobs of this kind, where they stand, until they are resumed.
    pub fn suspend(&mut self, kind: JobKind) {
        self.jobs.suspended.insert(code(kind));
        match kind {
            JobKind::Resync => {
                for disk in self.resyncs.keys().copied().collect::<Vec<_>>() {
                    self.abandon_resync(disk);
                }
            }
            JobKind::Rebuild | JobKind::Rebalance => {
                let retired = &self.retired;
                let wanted = |build: &Build| is_move(build, retired) == (kind == JobKind::Rebalance);
                let chunks: Vec<ChunkIndex> = self
                    .jobs
                    .builds
                    .iter()
                    .filter(|(_, build)| wanted(build))
                    .map(|(&chunk, _)| chunk)
                    .collect();
                chunks.into_iter().for_each(|chunk| self.abort_build(chunk));
                if kind == JobKind::Rebalance {
                    self.jobs.moves.clear();
                }
            }
            JobKind::Scrub => {}
        }
    }

    pub fn resume(&mut self, kind: JobKind) {
        self.jobs.suspended.remove(&code(kind));
        self.jobs.plan_at = self.now;
    }

    /// What runs now.
    pub fn jobs(&self) -> Vec<JobStatus> {
        let mut jobs = Vec::new();
        for (&disk, resync) in &self.resyncs {
            let running_for = self.now.since(resync.started);
            let (done, total) = (resync.done_bytes.min(resync.total_bytes), resync.total_bytes);
            jobs.push(status(JobKind::Resync, Some(disk), done, total, running_for));
        }
        if let Some(since) = self.jobs.building_since {
            let chunk_bytes = self.chunk_blocks * BLOCK_BYTES as u64;
            let moving = self.jobs.builds.values().any(|build| is_move(build, &self.retired));
            let left = self.jobs.moves.len() as u64;
            let total = self.jobs.build_total.max(self.jobs.moves_total as u64).max(left + 1) * chunk_bytes;
            let kind = if moving { JobKind::Rebalance } else { JobKind::Rebuild };
            let done = self.jobs.built_bytes.min(total);
            jobs.push(status(kind, None, done, total, self.now.since(since)));
        }
        jobs
    }
}

/// A copy that another disk gives up for balance; not one that leaves a retired disk, which is a rebuild.
fn is_move(build: &Build, retired: &BTreeSet<DiskId>) -> bool {
    build.target.is_some() && build.drop.is_some_and(|disk| !retired.contains(&disk))
}

fn status(kind: JobKind, disk: Option<DiskId>, done: u64, total: u64, running_for: Duration) -> JobStatus {
    let remaining = (done > 0).then(|| running_for.mul_f64((total - done) as f64 / done as f64));
    JobStatus {
        kind,
        disk,
        phase: JobPhase::Running,
        done_bytes: done,
        total_bytes: total,
        running_for,
        remaining,
    }
}
