//! Storage jobs: background work, its speed and its progress.
//!
//! Order: reconcile copies that may differ, resync disks that returned, make missing copies, move
//! chunks. While the volume is in use, jobs handle one region at a time, with a rest after each that is
//! a multiple of the time that it took; otherwise several at once. The next step always follows from
//! the record, the chunk map and the disks, so that a job continues after a restart.
//!
//! Invariant: no data depends on the state here. Each job can be given up at any time and planned anew
//! from the record and the chunk map.

use super::Phase;
use super::allocation::excluded;
use super::building::{Build, Builds};
use super::context::Context;
use super::keys::{Purpose, Synced};
use super::operations::Operations;
use super::pace::Pace;
use super::pending_changes::Change;
use super::resync::Resyncs;
use super::shared::Shared;
use super::syncing::Syncing;
use super::verify::Verify;
use crate::planted::Planted;
use pool::Move;
use records::JobKind;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{ChunkIndex, DiskId, Monotonic};

/// Chunks built at once: while one drains or is marked, another copies.
const BUILDS_MAX: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    Running,
    /// Stopped by an administrator until resumed.
    Suspended,
}

/// State of a job, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    pub kind: JobKind,
    /// The returning disk.
    pub disk: Option<DiskId>,
    pub phase: JobPhase,
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub running_for: Duration,
    /// Estimate from the mean speed so far.
    pub remaining: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub resyncs: Resyncs,
    pub builds: Builds,
    pub verify: Verify,
    pub pace: Pace,
    /// Moves of a rebalance that have not begun.
    moves: Vec<Move>,
    moves_total: usize,
    build_total: u64,
    /// Whether chunks may have more copies than wanted, because disks returned whose copies had
    /// been rebuilt elsewhere.
    may_have_surplus: bool,
    /// Chunks that lack a copy and for which no disk had space at the last plan.
    without_room: u64,
    building_since: Option<Monotonic>,
    /// Kinds that an administrator stopped.
    suspended: BTreeSet<u8>,
    /// Time of the next check for disks to bring back and copies to make.
    plan_at: Monotonic,
}

fn code(kind: JobKind) -> u8 {
    match kind {
        JobKind::Resync => 0,
        JobKind::Rebuild => 1,
        JobKind::Rebalance => 2,
        JobKind::Scrub => 3,
    }
}

impl Jobs {
    pub fn new() -> Self {
        // The preceding coordinator may have left surplus copies.
        Self { may_have_surplus: true, ..Self::default() }
    }

    pub fn next_timeout(&self, shared: &Shared, clean: bool) -> Option<Monotonic> {
        if !shared.context.serving() {
            return None;
        }
        let busy = !self.builds.is_empty() || !self.resyncs.is_empty() || !clean || !self.verify.is_done();
        let wanted = self.verify.has_retries()
            || !self.moves.is_empty()
            || shared.context.pool.borrow().has_retired()
            || self.may_have_surplus;
        let few = !shared.membership.record().stale.is_empty() || has_few_copies(shared);
        let planned = (wanted || few).then_some(self.plan_at);
        let paced = self.pace.rests_until(shared.context.now).filter(|_| busy);
        let floor = shared.context.now.after(Duration::from_nanos(1));
        [planned, paced].into_iter().flatten().min().map(|at| at.max(floor))
    }

    /// Plans jobs, and begins as many steps as may run now.
    pub fn drive(&mut self, shared: &mut Shared, operations: &mut Operations, syncing: &mut Syncing) {
        if !shared.context.serving() {
            return;
        }
        if shared.context.phase == Phase::Serving {
            self.plan(shared, operations, syncing);
            for disk in self.resyncs.disks() {
                self.resyncs.drive_resync(disk, shared, operations);
            }
            for chunk in self.builds.chunks() {
                self.builds.drive_build(chunk, shared, operations, syncing);
            }
        }
        self.copy_in_background(shared, operations, syncing);
    }

    fn copy_in_background(
        &mut self,
        shared: &mut Shared,
        operations: &mut Operations,
        syncing: &mut Syncing,
    ) {
        if self.pace.rests_until(shared.context.now).is_some() {
            return;
        }
        let most =
            if operations.foreground_is_busy() { 1 } else { shared.context.config.background_regions.max(1) };
        let mut slots = most.saturating_sub(syncing.len());
        if slots == 0 {
            return;
        }
        let before = slots;
        let (begun, regions) = operations.dirty_regions.probe_in_background(slots, shared);
        for (chunk, lba) in regions {
            syncing.start_sync(chunk, lba, Purpose::Reconcile, shared, operations);
        }
        slots -= begun.min(slots);
        if shared.context.phase == Phase::Serving {
            for disk in self.resyncs.disks() {
                slots -= self.resyncs.copy_missed(disk, slots, shared, operations, syncing);
            }
            for chunk in self.builds.chunks() {
                slots -= self.builds.copy_regions(chunk, slots, shared, operations, syncing);
            }
            slots -= self.verify.survey_regions(slots, shared, operations, syncing);
        }
        if slots < before {
            self.pace.step_begins(shared.context.now);
        }
    }

    /// Plans, at intervals, the disks to bring back and the copies to make.
    fn plan(&mut self, shared: &mut Shared, operations: &mut Operations, syncing: &mut Syncing) {
        if shared.context.now < self.plan_at {
            return;
        }
        self.plan_at = shared.context.now.after(shared.context.config.reconnect_interval);
        if !self.is_suspended(JobKind::Resync) {
            self.start_resyncs(shared);
        }
        self.builds.sweep_marks(shared, operations, syncing);
        self.resolve_lone_mirrors(shared);
        self.verify.retry_repairs(shared, operations, syncing);
        if !self.is_suspended(JobKind::Rebuild) {
            self.plan_rebuild(shared);
            self.give_up_surplus(shared, operations, syncing);
        }
        if !self.is_suspended(JobKind::Rebalance) {
            self.begin_moves(shared);
        }
        if self.builds.is_empty() {
            self.building_since = None;
            self.builds.built_bytes = 0;
            self.build_total = 0;
        }
        self.forget_retired(shared);
        let record = shared.membership.record();
        if shared.membership.is_idle()
            && self.builds.is_empty()
            && (shared.chunks.fewest_holders(record) > record.min_holders || homes_changed(shared))
        {
            shared.membership.want(Change::Rotate);
        }
    }

    fn is_suspended(&self, kind: JobKind) -> bool {
        self.suspended.contains(&code(kind))
    }

    fn start_resyncs(&mut self, shared: &mut Shared) {
        for stale in shared.membership.record().stale.clone() {
            let leaving = shared.membership.is_leaving(stale.disk);
            if leaving || self.resyncs.contains(stale.disk) || !is_wanted_back(stale.disk, shared) {
                continue;
            }
            shared.connect(stale.disk);
            if shared.calls.is_open(stale.disk) {
                self.resyncs.start_resync(stale.disk, stale.since, shared);
            }
        }
    }

    /// Resolves mirrors whose job is gone. If the record has the disk in sync and the copy
    /// unmarked, the copy counts, as the next opening would find. No job fills any other copy: the
    /// record has its disk stale or the copy marked, and the job that follows from either begins
    /// anew.
    fn resolve_lone_mirrors(&self, shared: &mut Shared) {
        let mut lone = Vec::new();
        for (&index, chunk) in &shared.chunks.map {
            for &disk in &chunk.mirrors {
                let built = self.builds.is_target(index, disk);
                if !built && !self.resyncs.contains(disk) && !shared.membership.is_leaving(disk) {
                    lone.push((index, disk));
                }
            }
        }
        for (index, disk) in lone {
            let counts =
                shared.membership.is_in_sync(disk) && !shared.membership.marked_for(index).contains(&disk);
            if counts {
                shared.chunks.promote_mirror(index, disk);
            } else if let Some(chunk) = shared.chunks.get_mut(index) {
                chunk.remove_mirror(disk);
            }
        }
    }

    /// Whether a disk may be back soon, so that copying its chunks would be wasted work.
    fn may_return(&self, disk: DiskId, shared: &Shared) -> bool {
        if shared.context.is_retired(disk) || self.is_suspended(JobKind::Resync) {
            return false;
        }
        if self.resyncs.contains(disk) {
            return true;
        }
        if shared.context.is_given_up(disk) {
            return false;
        }
        let since = shared.membership.absent_since(disk).unwrap_or_default();
        shared.context.now.since(since) < shared.context.config.rebuild_after
    }

    fn plan_rebuild(&mut self, shared: &mut Shared) {
        self.without_room = 0;
        let record = shared.membership.record();
        if record.stale.iter().any(|stale| self.may_return(stale.disk, shared)) && !must_not_wait(shared) {
            return;
        }
        let copies = usize::from(record.resiliency.copies());
        let lacking = lacking(shared, copies);
        self.build_total = self.build_total.max(lacking.len() as u64);
        for index in lacking {
            if self.builds.len() >= BUILDS_MAX {
                break;
            }
            let holders = shared.holders_of(index).to_vec();
            let (gone, kept): (Vec<DiskId>, Vec<DiskId>) =
                holders.iter().partition(|disk| shared.context.is_retired(**disk));
            let mut excluded = excluded(shared);
            excluded.extend(&gone);
            // A disk that still gives back a slab of this chunk cannot take a new one.
            let marks = shared.membership.record().building.iter();
            excluded.extend(marks.filter(|mark| mark.1 == index).map(|mark| mark.0));
            let place = pool::place(&shared.chunks.pool.borrow(), 1, &kept, &excluded, pool::Purpose::Repair);
            let Some(&target) = place.as_ref().ok().and_then(|chosen| chosen.first()) else {
                self.without_room += 1;
                continue;
            };
            let drop = if holders.len() >= copies { gone.first().copied() } else { None };
            self.start_build(index, target, drop, shared);
        }
    }

    fn start_build(&mut self, index: ChunkIndex, target: DiskId, drop: Option<DiskId>, shared: &mut Shared) {
        self.building_since.get_or_insert(shared.context.now);
        self.builds.start_build(index, target, drop, shared);
    }

    /// Gives up surplus copies, those on retired disks first, so that these become empty.
    fn give_up_surplus(&mut self, shared: &mut Shared, operations: &Operations, syncing: &Syncing) {
        if !self.may_have_surplus {
            return;
        }
        let copies = usize::from(shared.membership.record().resiliency.copies());
        let mut found = false;
        for chunk in shared.chunk_copies() {
            if chunk.holders.len() <= copies {
                continue;
            }
            found = true;
            let index = chunk.chunk;
            let busy = operations.dirty_regions.is_unclean(index)
                || shared.chunks.is_in_build(index)
                || !shared.membership.marked_for(index).is_empty()
                || shared.chunks.get(index).is_none_or(|known| !known.mirrors.is_empty());
            let surplus = pool::surplus(&shared.chunks.pool.borrow(), &chunk);
            if let Some(disk) = surplus.filter(|_| !busy && self.builds.len() < BUILDS_MAX) {
                self.builds.start_giving_up(index, disk, shared, operations, syncing);
            }
        }
        self.may_have_surplus = found;
    }

    fn begin_moves(&mut self, shared: &mut Shared) {
        while self.builds.len() < BUILDS_MAX {
            let Some(step) = self.moves.pop() else { break };
            let valid = shared.chunks.get(step.chunk).is_some_and(|chunk| {
                chunk.is_mapped()
                    && !chunk.in_build
                    && chunk.mirrors.is_empty()
                    && chunk.holders.contains(&step.from)
                    && !chunk.holders.contains(&step.to)
            });
            let marked = shared.membership.record().building.iter().any(|mark| mark.1 == step.chunk);
            if valid && !marked && !excluded(shared).contains(&step.to) {
                self.start_build(step.chunk, step.to, Some(step.from), shared);
            }
        }
    }

    /// Requests the removal of empty retired disks from the record.
    fn forget_retired(&self, shared: &mut Shared) {
        let retired: Vec<DiskId> = shared.context.pool.borrow().retired().collect();
        for disk in retired {
            let in_sync = shared.membership.is_in_sync(disk);
            let needed = match in_sync {
                true => shared.chunks.map.values().any(|chunk| chunk.may_live_on(disk)),
                false => self.resyncs.contains(disk) || Self::may_fill(disk, shared),
            };
            let known = in_sync || shared.membership.is_stale(disk);
            let marked = shared.membership.record().building.iter().any(|mark| mark.0 == disk) && in_sync;
            if known && !needed && !marked && !self.builds.has_target(disk) {
                shared.membership.want(Change::Remove(disk));
            }
        }
    }

    /// Whether a stale disk that is reachable, or may soon return, may have copies that chunks
    /// lack.
    fn may_fill(disk: DiskId, shared: &Shared) -> bool {
        let since = shared.membership.absent_since(disk).unwrap_or_default();
        let is_recent = shared.context.now.since(since) < shared.context.config.rebuild_after;
        let is_expected = is_recent && !shared.context.is_given_up(disk);
        (shared.calls.is_open(disk) || is_expected)
            && is_short_of_copies(shared)
            && !Planted::RetiringStaysStale.is_planted()
    }

    /// Notes that the record has the disk in sync.
    pub fn disk_joined(&mut self, disk: DiskId, shared: &mut Shared, operations: &mut Operations) {
        shared.membership.note_present(disk);
        self.may_have_surplus = true;
        self.resyncs.resync_joined(disk, shared, operations);
        let record = shared.membership.record();
        if shared.chunks.fewest_holders(record) > record.min_holders {
            // Before the record counts the new copies, an opening may miss fewer disks than the copies would
            // allow.
            shared.membership.want(Change::Rotate);
        }
    }

    /// Gives up the resync of a disk that has left again, or whose job was stopped. No write relies
    /// on the disk.
    pub fn abandon_resync(&mut self, disk: DiskId, shared: &mut Shared) {
        self.resyncs.abandon_resync(disk, shared, &mut self.builds);
    }

    /// Gives up the chunk's copies in the making on these disks, except those about to count.
    pub fn give_up_copies(&mut self, chunk: ChunkIndex, disks: &[DiskId], shared: &mut Shared) {
        for disk in disks {
            if self.builds.is_target(chunk, *disk) {
                self.builds.abort_build(chunk, shared);
            } else {
                self.abandon_resync(*disk, shared);
            }
        }
    }

    /// Notes that the record keeps the disk for chunks that no other disk has. Its copies of
    /// `marked` do not count, and returning disks may have missed more than their resyncs know.
    pub fn disk_kept(&mut self, disk: DiskId, marked: &BTreeSet<ChunkIndex>, shared: &mut Shared) {
        self.builds.forget_mirrors(disk, shared);
        shared.give_up_copies(disk, marked);
        for returning in self.resyncs.disks() {
            self.abandon_resync(returning, shared);
        }
    }

    /// Handles the end of a step on a region.
    pub fn step_done(
        &mut self,
        step: Synced,
        shared: &mut Shared,
        operations: &mut Operations,
        syncing: &Syncing,
    ) {
        let repairs = matches!(step.purpose, Purpose::Repair | Purpose::Answer);
        if repairs && !step.succeeded && !Planted::RepairOnce.is_planted() {
            self.verify.repair_later(step.chunk, shared.context.geometry.region_start(step.lba));
        }
        let (builds, pace) = (&mut self.builds, &mut self.pace);
        match step.purpose {
            Purpose::Reconcile | Purpose::Answer | Purpose::Compare => {}
            Purpose::Repair => builds.build_step(None, step, shared, operations, syncing, pace),
            Purpose::Resync(disk) => self.resyncs.resync_step(disk, step, shared, operations, pace),
            Purpose::Build { target, .. } => {
                builds.build_step(Some(target), step, shared, operations, syncing, pace);
            }
        }
        self.pace.step_done(operations.foreground_is_busy(), &shared.context);
    }

    /// Counts chunks that lack a copy, or are to leave a retired disk, and for which no disk of another
    /// fault domain has space.
    pub fn chunks_without_room(&self) -> u64 {
        self.without_room
    }

    /// Makes the next [`Self::drive`] plan again.
    pub fn plan_soon(&mut self, now: Monotonic) {
        self.plan_at = now;
    }

    /// Takes over the moves of a rebalance that concern this volume.
    pub fn rebalance(&mut self, moves: Vec<Move>, context: &Context) {
        self.moves = moves.into_iter().filter(|step| step.volume == context.volume).rev().collect();
        self.moves_total = self.moves.len();
        self.resume(JobKind::Rebalance, context.now);
    }

    /// Stops jobs of this kind at once, until they are resumed.
    pub fn suspend(&mut self, kind: JobKind, shared: &mut Shared) {
        self.suspended.insert(code(kind));
        match kind {
            JobKind::Resync => {
                for disk in self.resyncs.disks() {
                    self.abandon_resync(disk, shared);
                }
            }
            JobKind::Rebuild | JobKind::Rebalance => {
                let wanted = |build: &Build| is_move(build, &shared.context) == (kind == JobKind::Rebalance);
                let builds = self.builds.iter().filter(|(_, build)| wanted(build));
                let chunks: Vec<ChunkIndex> = builds.map(|(chunk, _)| chunk).collect();
                chunks.into_iter().for_each(|chunk| self.builds.abort_build(chunk, shared));
                if kind == JobKind::Rebalance {
                    self.moves.clear();
                }
            }
            JobKind::Scrub => {}
        }
    }

    pub fn resume(&mut self, kind: JobKind, now: Monotonic) {
        self.suspended.remove(&code(kind));
        self.plan_at = now;
    }

    /// Lists the running jobs.
    pub fn list(&self, shared: &Shared) -> Vec<JobStatus> {
        let mut jobs = Vec::new();
        let now = shared.context.now;
        for (disk, resync) in self.resyncs.iter() {
            let (done, total) = (resync.done_bytes.min(resync.total_bytes), resync.total_bytes);
            jobs.push(status(JobKind::Resync, Some(disk), done, total, now.since(resync.started)));
        }
        if let Some(since) = self.building_since {
            let moving = self.builds.iter().any(|(_, build)| is_move(build, &shared.context));
            let left = self.moves.len() as u64;
            let chunks = self.build_total.max(self.moves_total as u64).max(left + 1);
            let total = chunks * shared.context.geometry.chunk_bytes();
            let kind = if moving { JobKind::Rebalance } else { JobKind::Rebuild };
            let done = self.builds.built_bytes.min(total);
            jobs.push(status(kind, None, done, total, now.since(since)));
        }
        jobs
    }
}

/// Tells whether the record should count other fault domains than it does, or more.
fn homes_changed(shared: &Shared) -> bool {
    let (record, homes) = (shared.membership.record(), shared.chunks.homes(shared.membership.record()));
    homes != record.homes || shared.chunks.fewest_homes(record) > record.min_homes
}

/// Tells whether chunks may have fewer copies than wanted, or copies are in the making.
fn has_few_copies(shared: &Shared) -> bool {
    let record = shared.membership.record();
    record.min_holders < record.resiliency.copies() || !record.building.is_empty()
}

/// Tells whether a stale disk is to be brought up to date. A retired one is, but only while chunks
/// are short of copies: filling its slabs takes no more than the writes that it missed, and other
/// disks may have no space. Afterwards the chunks still leave it.
fn is_wanted_back(disk: DiskId, shared: &Shared) -> bool {
    let is_short = || is_short_of_copies(shared) && !Planted::RetiringStaysStale.is_planted();
    !shared.context.is_retired(disk) || is_short()
}

/// Tells whether some chunk has fewer copies that count than the volume is to have.
fn is_short_of_copies(shared: &Shared) -> bool {
    let copies = usize::from(shared.membership.record().resiliency.copies());
    let in_sync = &shared.membership.in_sync;
    let mut mapped = shared.chunks.map.values().filter(|chunk| chunk.is_mapped());
    mapped.any(|chunk| chunk.in_sync_holders(in_sync).count() < copies)
}

/// Tells whether chunks leave a retired disk, although another disk may be back soon.
fn must_not_wait(shared: &Shared) -> bool {
    let retired: BTreeSet<DiskId> = shared.context.pool.borrow().retired().collect();
    shared.chunks.map.values().any(|chunk| chunk.holders.iter().any(|disk| retired.contains(disk)))
}

/// Returns chunks with fewer than `copies` lasting copies that count, those with the fewest first.
fn lacking(shared: &Shared, copies: usize) -> Vec<ChunkIndex> {
    let in_sync = &shared.membership.in_sync;
    let retired: BTreeSet<DiskId> = shared.context.pool.borrow().retired().collect();
    let mut lacking: Vec<(usize, ChunkIndex)> = Vec::new();
    for (&index, chunk) in &shared.chunks.map {
        if !chunk.is_mapped() || chunk.in_build || !chunk.mirrors.is_empty() {
            continue;
        }
        let kept = chunk.in_sync_holders(in_sync).filter(|disk| !retired.contains(disk)).count();
        if kept < copies {
            lacking.push((kept, index));
        }
    }
    lacking.sort_unstable();
    lacking.into_iter().map(|(_, index)| index).collect()
}

/// Tells whether another disk gives its copy up for balance. A copy that leaves a retired disk is a
/// rebuild.
fn is_move(build: &Build, context: &Context) -> bool {
    build.target.is_some() && build.drop.is_some_and(|disk| !context.is_retired(disk))
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
