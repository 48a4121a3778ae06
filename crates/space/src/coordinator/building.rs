//! New copies of chunks on other disks: rebuild after a loss, moves for balance or off a retired disk.
//!
//! A disk that is in sync has its whole slab table believed at an opening. A copy in the making therefore stands in the record's
//! `building` list from before its slab is taken until it is complete, and a copy that is given up from before it misses a write
//! until its slab is given back.
//!
//! | step | ends when |
//! |---|---|
//! | mark the copy as building | committed |
//! | take a slab; mirror writes to it | writes that began before are done |
//! | copy the regions that were ever written | each is copied, read back and compared |
//! | unmark it; mark the one given up, if any | committed: the new copy counts, the old one does not |
//! | give the old slab back, then unmark it | committed |
//!
//! A copy beyond those that are wanted is given up by the last two steps alone, as soon as the record has marked it. Before that
//! the regions that it holds are read from all copies, and those that are to remain are repaired from it where they are corrupt: it
//! may have the last intact block.

use super::Coordinator;
use super::calls::{Failure, Owner};
use super::syncing::{Purpose, Sync};
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use std::collections::{BTreeSet, VecDeque};
use store::api::Regions;
use types::{ChunkIndex, DiskId, Epoch};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Marking,
    Allocating,
    /// These operations began before.
    Draining(BTreeSet<u64>),
    Comparing,
    Copying,
    Unmarking,
    /// There are more copies than wanted: what one of them holds is looked for in the others, which are repaired from it.
    Verifying {
        listed: bool,
    },
    /// That one is to be marked.
    GivingUp,
    /// The old copy is given up; something may still be with it.
    Leaving,
    Dropping,
}

pub(super) struct Build {
    /// None: a copy is given up for nothing.
    pub target: Option<DiskId>,
    pub drop: Option<DiskId>,
    step: Step,
    regions: VecDeque<u64>,
    /// Steps under way, by number: those of a build that was given up are not counted.
    in_flight: BTreeSet<u64>,
}

/// One entry of the record's `building` list.
pub(super) type Mark = (DiskId, ChunkIndex);

impl Build {
    fn begin(step: Step, target: Option<DiskId>, drop: Option<DiskId>) -> Self {
        Self { target, drop, step, regions: VecDeque::new(), in_flight: BTreeSet::new() }
    }

    /// What the record that makes the new copy count changes: it unmarks the one and marks the other.
    fn changes(&self, chunk: ChunkIndex) -> (Option<Mark>, Option<Mark>) {
        let mark = |disk| (disk, chunk);
        (self.target.map(mark), self.drop.map(mark))
    }
}

impl Coordinator {
    pub(super) fn is_building(&self, chunk: ChunkIndex) -> bool {
        self.jobs.builds.contains_key(&chunk)
    }

    pub(super) fn start_build(&mut self, chunk: ChunkIndex, target: DiskId, drop: Option<DiskId>) {
        self.jobs.builds.insert(chunk, Build::begin(Step::Marking, Some(target), drop));
        self.pool.borrow_mut().take(target);
        self.want_mark(target, chunk);
    }

    /// The chunk has a copy more than it needs: this one is given up when the others are whole.
    pub(super) fn start_giving_up(&mut self, chunk: ChunkIndex, disk: DiskId) {
        let listed = Planted::SurplusUnverified.is_planted();
        self.jobs.builds.insert(chunk, Build::begin(Step::Verifying { listed }, None, Some(disk)));
        if listed {
            self.drive_build(chunk);
        } else {
            self.call(Owner::BuildRegions(chunk), disk, Message::Regions { chunk });
        }
    }

    pub(super) fn build_marked(&mut self, disk: DiskId, chunk: ChunkIndex) {
        let append = self.chunks.get(&chunk).is_some_and(|chunk| chunk.append);
        let Some(build) = self.jobs.builds.get_mut(&chunk) else { return };
        if build.step == Step::Marking && build.target == Some(disk) {
            build.step = Step::Allocating;
            self.call(Owner::Build(chunk), disk, Message::Allocate { chunk, append });
        } else if build.step == Step::GivingUp && build.drop == Some(disk) {
            self.leave_copy(chunk, disk);
        }
    }

    pub(super) fn build_allocated(
        &mut self,
        chunk: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
    ) {
        let Some(build) = self.jobs.builds.get_mut(&chunk) else { return };
        if build.step != Step::Allocating || build.target != Some(disk) {
            return;
        }
        if let Err(failure) = result {
            // The mark stays until the disk was asked to give back what it may have taken: until then the slab counts as taken. One
            // that left says nothing of the room it has.
            if failure != Failure::Gone
                && let Some(view) = self.pool.borrow_mut().disk_mut(disk)
            {
                view.free_slabs = 0;
            }
            return self.abort_build(chunk);
        }
        self.add_mirror(chunk, disk);
        let running = self.running_writes().into_iter().collect();
        if let Some(build) = self.jobs.builds.get_mut(&chunk) {
            build.step = Step::Draining(running);
        }
        self.drive_build(chunk);
    }

    /// Goes on as far as possible without copying.
    pub(super) fn drive_build(&mut self, chunk: ChunkIndex) {
        let source = self.holders_of(chunk).first().copied();
        let unclean = self.unclean.contains(&chunk);
        let Some(build) = self.jobs.builds.get_mut(&chunk) else { return };
        let (target, drop) = (build.target, build.drop);
        if let Step::Draining(writes) = &mut build.step {
            writes.retain(|number| self.operations.contains_key(number));
            // A copy that may differ from another is no source.
            if !writes.is_empty() || unclean {
                return;
            }
            let Some(source) = source else { return };
            build.step = Step::Comparing;
            self.call(Owner::BuildRegions(chunk), source, Message::Regions { chunk });
            return;
        }
        let copied = build.regions.is_empty() && build.in_flight.is_empty();
        if build.step == (Step::Verifying { listed: true }) && copied {
            build.step = Step::GivingUp;
            if let Some(drop) = drop {
                self.want_mark(drop, chunk);
            }
            return;
        }
        if build.step == Step::Copying && copied {
            build.step = Step::Unmarking;
            if let Some(target) = target {
                self.want_unmark(target, chunk);
            }
            if let Some(drop) = drop {
                self.want_mark(drop, chunk);
            }
            return;
        }
        if build.step == Step::Leaving
            && let Some(drop) = drop
            && !self.is_in_use(chunk, drop)
        {
            if let Some(build) = self.jobs.builds.get_mut(&chunk) {
                build.step = Step::Dropping;
            }
            self.call(Owner::BuildDrop(chunk), drop, Message::Free { chunk });
        }
    }

    pub(super) fn build_regions(&mut self, chunk: ChunkIndex, disk: DiskId, result: Result<Answer, Failure>) {
        let (first, blocks) = (self.first_block(chunk), self.region_blocks());
        let Some(build) = self.jobs.builds.get_mut(&chunk) else { return };
        if build.target.is_none() && build.drop != Some(disk) {
            return;
        }
        let next = match build.step {
            Step::Comparing => Step::Copying,
            Step::Verifying { listed: false } => Step::Verifying { listed: true },
            _ => return,
        };
        let Ok(Answer::Regions(Regions { epochs, .. })) = result else {
            if build.target.is_none() {
                // Its disk fails: it may soon not be one too many.
                return self.finish_build(chunk);
            }
            build.step = Step::Draining(BTreeSet::new());
            return;
        };
        let written = epochs.iter().enumerate().filter(|(_, epoch)| **epoch > Epoch(0));
        build.regions = written.map(|(region, _)| first + region as u64 * blocks).collect();
        build.step = next;
        self.drive_build(chunk);
    }

    /// Begins to copy, or to verify, up to `slots` regions; says how many.
    pub(super) fn copy_regions(&mut self, chunk: ChunkIndex, slots: usize) -> usize {
        let mut begun = 0;
        while begun < slots {
            let Some(build) = self.jobs.builds.get_mut(&chunk) else { break };
            let purpose = build.target.map_or(Purpose::Repair, Purpose::Build);
            let Some(lba) = build.regions.pop_front() else { break };
            begun += 1;
            let (number, new) = self.prepare_sync(chunk, lba, purpose);
            if let Some(build) = self.jobs.builds.get_mut(&chunk) {
                build.in_flight.insert(number);
            }
            if new {
                self.enter_sync(number);
            }
        }
        begun
    }

    /// A region was copied to `target`, or, without one, all copies of it were made whole.
    pub(super) fn build_step(&mut self, target: Option<DiskId>, number: u64, sync: &Sync) {
        let Some(build) = self.jobs.builds.get_mut(&sync.chunk) else { return };
        if build.target != target || !build.in_flight.remove(&number) {
            return;
        }
        if sync.succeeded() && target.is_some() {
            self.jobs.built_bytes += sync.bytes();
            self.counters.built_regions += 1;
        } else if !sync.succeeded() {
            build.regions.push_back(sync.lba);
            self.jobs.delay(self.now.after(self.config.reconnect_interval));
        }
        self.drive_build(sync.chunk);
    }

    /// Complete copies whose disk the next record has not in sync wait for what becomes of it, and neither mark changes: the new copy
    /// would not count, and the old one, marked by the same record, would not either. A copy that would be missed is not given up.
    /// To be forgotten of what is wanted: (unmark, mark).
    pub(super) fn hold_back_marks(&mut self, in_sync: &[DiskId]) -> Vec<(Option<Mark>, Option<Mark>)> {
        let copies = usize::from(self.record.resiliency.copies());
        let mut held = Vec::new();
        self.jobs.builds.retain(|&chunk, build| {
            if build.step == Step::Unmarking && build.target.is_none_or(|target| !in_sync.contains(&target)) {
                build.step = Step::Copying;
                held.push(build.changes(chunk));
            }
            if build.step != Step::GivingUp {
                return true;
            }
            let holders = self.chunks.get(&chunk).map(|known| known.holders.iter()).into_iter().flatten();
            let kept = holders.filter(|disk| in_sync.contains(disk) && build.drop != Some(**disk)).count();
            if kept < copies {
                held.push(build.changes(chunk));
            }
            kept >= copies
        });
        held
    }

    /// A committed record says that this copy is not building any more.
    pub(super) fn build_unmarked(&mut self, disk: DiskId, chunk: ChunkIndex) {
        let Some(build) = self.jobs.builds.get_mut(&chunk) else { return };
        if build.step == Step::Unmarking && build.target == Some(disk) {
            let drop = build.drop;
            self.promote_mirror(chunk, disk);
            match drop {
                Some(drop) => self.leave_copy(chunk, drop),
                None => self.finish_build(chunk),
            }
        } else if build.step == Step::Dropping && build.drop == Some(disk) {
            self.finish_build(chunk);
        }
    }

    /// By a committed record the copy does not count any more.
    fn leave_copy(&mut self, chunk: ChunkIndex, drop: DiskId) {
        if let Some(known) = self.chunks.get_mut(&chunk) {
            known.holders.retain(|holder| *holder != drop);
        }
        if let Some(build) = self.jobs.builds.get_mut(&chunk) {
            build.step = Step::Leaving;
        }
        self.drive_build(chunk);
    }

    pub(super) fn build_dropped(&mut self, chunk: ChunkIndex, disk: DiskId, result: Result<Answer, Failure>) {
        self.jobs.sweeping.remove(&(disk, chunk));
        if result.is_ok() {
            self.pool.borrow_mut().give_back(disk);
            self.want_unmark(disk, chunk);
        } else if let Some(build) = self.jobs.builds.get(&chunk)
            && build.step == Step::Dropping
        {
            // The disk is out; what it still has is given back when it returns.
            self.finish_build(chunk);
        }
    }

    fn finish_build(&mut self, chunk: ChunkIndex) {
        self.jobs.builds.remove(&chunk);
        self.recheck = true;
    }

    /// Gives the copy up; its mark stays until its slab is given back.
    pub(super) fn abort_build(&mut self, chunk: ChunkIndex) {
        let Some(build) = self.jobs.builds.get(&chunk) else { return };
        if matches!(build.step, Step::Unmarking | Step::GivingUp | Step::Leaving | Step::Dropping) {
            return;
        }
        let target = build.target;
        if let Some(known) = self.chunks.get_mut(&chunk) {
            known.mirrors.retain(|mirror| Some(*mirror) != target);
        }
        self.finish_build(chunk);
    }

    /// The disk has left. A copy in the making on it is given up. One that was to take its place elsewhere goes on: it is needed all
    /// the more, and there is nothing left to drop.
    pub(super) fn abort_builds_on(&mut self, disk: DiskId) {
        let touched = self
            .jobs
            .builds
            .iter()
            .filter(|(_, build)| build.target == Some(disk) || build.drop == Some(disk));
        for chunk in touched.map(|(&chunk, _)| chunk).collect::<Vec<_>>() {
            let Some(build) = self.jobs.builds.get_mut(&chunk) else { continue };
            if build.target == Some(disk) {
                if build.step == Step::Unmarking {
                    let changes = build.changes(chunk);
                    self.members.forget_marks([changes]);
                }
                self.finish_build(chunk);
                if let Some(known) = self.chunks.get_mut(&chunk) {
                    known.mirrors.retain(|mirror| *mirror != disk);
                }
            } else if matches!(
                build.step,
                Step::Verifying { .. } | Step::GivingUp | Step::Leaving | Step::Dropping
            ) {
                // The other copies count already; the slab of this one is given back when its disk returns.
                self.finish_build(chunk);
            } else {
                build.drop = None;
            }
        }
    }

    /// Mirrors whose job is gone. Where the record has the disk in sync and does not say that the copy is in the making, it counts: so
    /// would the next opening find it. Any other is a copy that nobody fills: the record has its disk stale or its copy marked, and
    /// the jobs that follow from either begin anew.
    pub(super) fn settle_mirrors(&mut self) {
        let mut lone = Vec::new();
        for (&index, chunk) in &self.chunks {
            for &disk in &chunk.mirrors {
                let built = self.jobs.builds.get(&index).is_some_and(|build| build.target == Some(disk));
                if !built && !self.resyncs.contains_key(&disk) && !self.members.is_leaving(disk) {
                    lone.push((index, disk));
                }
            }
        }
        for (index, disk) in lone {
            let counts = self.record.in_sync.contains(&disk) && !self.marked_for(index).contains(&disk);
            if counts {
                self.promote_mirror(index, disk);
            } else if let Some(chunk) = self.chunks.get_mut(&index) {
                chunk.mirrors.retain(|mirror| *mirror != disk);
            }
        }
    }

    /// Gives back slabs of copies that are marked and that nobody builds: left by a crash, or given up.
    pub(super) fn sweep_marks(&mut self) {
        for (disk, chunk) in self.record.building.clone() {
            let ready = !self.is_building(chunk)
                && self.record.in_sync.contains(&disk)
                && self.calls.is_open(disk)
                && self.chunks.get(&chunk).is_none_or(|known| !known.holders.contains(&disk))
                && !self.is_in_use(chunk, disk)
                // A slab that is still being asked for, or written to, would be found missing or come after it was given back.
                && !self.calls.is_awaited(Owner::Build(chunk), disk)
                && !self.syncs.values().any(|sync| sync.chunk == chunk && sync.purpose == Purpose::Build(disk));
            if ready && self.jobs.sweeping.insert((disk, chunk)) {
                if let Some(known) = self.chunks.get_mut(&chunk) {
                    known.mirrors.retain(|mirror| *mirror != disk);
                }
                self.call(Owner::BuildDrop(chunk), disk, Message::Free { chunk });
            }
        }
    }
}
