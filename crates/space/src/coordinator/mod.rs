//! The coordinator: one volume's virtual disk over the copies on its disks.
//!
//! Promises I1, I2, I4, I5, I6 and I10 of docs/DESIGN.md. Never opens a socket, reads a clock or
//! draws random numbers. `submit` and `handle_*` take requests, responses, the cluster state's
//! answers and the time; `poll_*` return requests to disks and to the state, answers and events.
//!
//! [`Coordinator`] itself only passes each input to its part. A part owns its state, and takes the
//! parts below it as arguments. Work for a part above or beside it goes to [`mailbox`].
//!
//! | part | owns | its safety |
//! |---|---|---|
//! | [`jobs`]: [`resync`], [`building`], [`verify`], [`pace`] | background work: resyncs, new and moved copies, the search for silently lost writes | I4, I5 |
//! | [`syncing`], with [`choosing`] | the steps that make the copies of one region equal, from which all jobs are built | I5, I6 |
//! | [`operations`]: [`clients`], [`gates`], [`reading`], [`running`], [`locks`], [`allocation`], [`absences`], [`dirty_regions`] | the volume's requests, piece by piece; the regions that may differ after a crash; the blocks that an expelled disk has missed | I1, I6, I10 |
//! | [`opening`] | the way to a complete chunk map | I5, I10 |
//! | [`shared`]: [`calls`], [`chunks`], [`membership`] with [`members`] and [`pending_changes`], [`fault_domains`], [`lease`] and [`state`] | sessions with disks; the map from chunks to disks; the record and its changes by compare-and-swap | I2, I3 |
//! | [`context`], [`mailbox`], [`keys`] | the time and geometry that all parts use, the work that they leave to each other, their keys | |

mod absences;
mod allocation;
mod building;
mod calls;
mod choosing;
mod chunks;
mod clients;
mod context;
mod dirty_regions;
mod fault_domains;
mod gates;
mod jobs;
mod keys;
mod lease;
mod locks;
mod mailbox;
mod members;
mod membership;
mod nodes;
mod opening;
mod operations;
mod pace;
mod pending_changes;
mod pieces;
mod reading;
mod resync;
mod rewinding;
mod rollback;
mod running;
mod shared;
mod state;
mod syncing;
mod terms;
mod verify;

pub use jobs::{JobPhase, JobStatus};
pub use opening::{Claimed, Predecessor};
pub use reading::LateReads;
pub use state::StateToken;
pub use terms::{Comparison, Config, Counters, Event, Phase};

use crate::api::{SpaceCompletion, SpaceError, SpaceRequest, SpaceSize};
use crate::message::{Request, Response};
use calls::{Calls, Outcome, Owner};
use chunks::Chunks;
use context::{Context, Geometry};
use jobs::Jobs;
use keys::{Holder, Purpose};
use mailbox::{Heard, Mailbox, Next};
use membership::{Decision, Facts, Membership};
use opening::{Claim, Opening};
use operations::Operations;
use pending_changes::{Change, PendingChanges};
use pool::{ChunkCopies, Move, PoolView};
use records::{JobKind, VolumeRecord};
use shared::Shared;
use std::cell::RefCell;
use std::rc::Rc;
use syncing::Syncing;
use types::{BLOCK_BYTES, BlockCount, ChangeNumber, DiskId, Lba, Monotonic, VolumeId};

/// Blocks of one region (1 MiB): the unit of ordering, of atomicity and of missed writes. A chunk
/// has whole regions, or is smaller than one.
pub const REGION_BLOCKS: u64 = 256;
/// Largest overwrite, in blocks (64 KiB).
pub const OVERWRITE_BLOCKS: u64 = 16;

/// One volume's coordinator.
///
/// Three kinds of methods: queries, which change nothing; `submit`, `handle_*` and administrators'
/// commands, which pass their input to its part and do all that follows before they return;
/// `poll_*`, which take the results. After each call of the second kind the owner polls, and it
/// calls [`Coordinator::handle_timeout`] at [`Coordinator::next_timeout`] at the latest.
pub struct Coordinator {
    shared: Shared,
    opening: Opening,
    operations: Operations,
    syncing: Syncing,
    jobs: Jobs,
}

impl Coordinator {
    /// Begins to take the volume over. `incarnation` is random and not 0. All disks of the pool have slabs
    /// of `chunk_blocks`.
    pub fn new(
        volume: VolumeId,
        incarnation: u128,
        config: Config,
        chunk_blocks: u32,
        pool: Rc<RefCell<PoolView>>,
        now: Monotonic,
    ) -> Self {
        let (geometry, phase) = (Geometry::new(chunk_blocks), Phase::Opening);
        let mut shared = Shared {
            context: Context { volume, incarnation, config, geometry, pool: pool.clone(), now, phase },
            mailbox: Mailbox::default(),
            membership: Membership::new(volume),
            chunks: Chunks::new(pool),
            calls: Calls::new(incarnation),
            last_change: ChangeNumber::default(),
        };
        Self {
            opening: Opening::new(&mut shared),
            operations: Operations::new(now),
            syncing: Syncing::default(),
            jobs: Jobs::new(),
            shared,
        }
    }

    pub fn volume(&self) -> VolumeId {
        self.shared.context.volume
    }

    pub fn phase(&self) -> &Phase {
        &self.shared.context.phase
    }

    /// Returns the record as last committed by this coordinator; meaningless before [`Phase::Serving`].
    pub fn record(&self) -> &VolumeRecord {
        self.shared.membership.record()
    }

    pub fn counters(&self) -> Counters {
        self.shared.mailbox.counters
    }

    /// Returns the address space and the blocks that can still be filled.
    pub fn size(&self) -> SpaceSize {
        let (record, chunk_blocks) = (self.record(), self.shared.context.geometry.chunk_blocks);
        let blocks = record.size_bytes / BLOCK_BYTES as u64;
        let mut chunks = self.chunks_available(record.resiliency.copies());
        if chunks == 0 {
            let copies = allocation::copies_while_disks_are_out(&self.shared);
            chunks = copies.map_or(0, |copies| self.chunks_available(copies));
        }
        // A volume that shrank may still have chunks beyond its end.
        let unmapped = blocks.div_ceil(chunk_blocks).saturating_sub(self.shared.chunks.map.len() as u64);
        SpaceSize {
            blocks: BlockCount(blocks),
            available: BlockCount(chunks.min(unmapped) * chunk_blocks),
            chunk_blocks: chunk_blocks as u32,
        }
    }

    /// Counts chunks of this many copies for which the pool has space.
    fn chunks_available(&self, copies: u8) -> u64 {
        let pool = self.shared.chunks.pool.borrow();
        match self.record().provisioning {
            records::Provisioning::Thin => pool.available_chunks(copies),
            records::Provisioning::Fixed => pool.promised_chunks(copies),
        }
    }

    /// Counts slabs that a fixed volume was promised and does not have yet.
    pub fn promised_slabs(&self) -> u64 {
        allocation::promised_slabs(&self.shared)
    }

    /// Counts slabs that the volume has on the disk.
    pub fn slabs_on(&self, disk: DiskId) -> u64 {
        self.shared.chunks.map.values().filter(|chunk| chunk.lives_on(disk)).count() as u64
    }

    /// Counts chunks that have slabs, and those with fewer in-sync copies than wanted.
    pub fn chunk_counts(&self) -> (u64, u64) {
        self.count_chunks(false)
    }

    /// Counts as [`Self::chunk_counts`], without chunks whose slabs are still being allocated:
    /// these hold no data to lose.
    pub fn allocated_chunk_counts(&self) -> (u64, u64) {
        self.count_chunks(true)
    }

    fn count_chunks(&self, only_allocated: bool) -> (u64, u64) {
        let in_sync = &self.shared.membership.in_sync;
        let copies = usize::from(self.record().resiliency.copies());
        let counted =
            self.shared.chunks.map.values().filter(|chunk| !only_allocated || !chunk.is_allocating());
        let (mut all, mut few) = (0, 0);
        for chunk in counted {
            all += 1;
            few += u64::from(chunk.in_sync_holders(in_sync).count() < copies);
        }
        (all, few)
    }

    /// Whether all copies agree since the opening. While the volume is being opened, any may
    /// differ.
    pub fn is_reconciled(&self) -> bool {
        self.shared.context.serving() && self.operations.dirty_regions.is_empty()
    }

    /// Whether the chunk of `lba` has slabs.
    pub fn is_mapped(&self, lba: Lba) -> bool {
        self.shared.chunks.is_mapped(self.shared.context.geometry.chunk_of(lba.0))
    }

    /// Returns the first block of each region of the chunks that have slabs.
    pub fn mapped_regions(&self) -> Vec<Lba> {
        let mapped = self.shared.chunks.map.iter().filter(|(_, chunk)| chunk.is_mapped());
        mapped.flat_map(|(index, _)| self.shared.context.geometry.region_starts(*index)).collect()
    }

    /// Returns the chunks and their in-sync copies, for plans over the whole pool.
    pub fn chunk_copies(&self) -> Vec<ChunkCopies> {
        self.shared.chunk_copies()
    }

    /// Counts chunks that lack a copy, or are to leave a retired disk, and for which no disk of
    /// another fault domain has space.
    pub fn chunks_without_room(&self) -> u64 {
        self.jobs.chunks_without_room()
    }

    /// Whether no data of the volume depend on the disk.
    pub fn is_free_of(&self, disk: DiskId) -> bool {
        let membership = &self.shared.membership;
        self.shared.context.serving() && !membership.is_in_sync(disk) && !membership.is_stale(disk)
    }

    /// Lists the background jobs in progress.
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.jobs.list(&self.shared)
    }

    /// Whether all work that [`Coordinator::verify`] began has ended.
    pub fn is_surveyed(&self) -> bool {
        self.jobs.verify.is_done()
    }

    /// Returns the latest time for the next call of [`Coordinator::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let (shared, clean) = (&self.shared, self.operations.dirty_regions.is_empty());
        let timeouts = [
            shared.calls.next_timeout(),
            shared.membership.next_timeout(&shared.context, clean),
            self.opening.next_timeout(&shared.context),
            self.operations.next_timeout(),
            self.jobs.next_timeout(shared, clean),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Takes the next request to a replica.
    pub fn poll_send(&mut self) -> Option<(DiskId, Request)> {
        self.shared.calls.poll_send()
    }

    /// Takes the next request to the cluster state.
    pub fn poll_state(&mut self) -> Option<(StateToken, records::Request)> {
        self.shared.membership.requests.poll()
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.mailbox.poll_event()
    }

    /// Moves the present answers into `out`; none without a valid lease.
    pub fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        let context = &self.shared.context;
        if self.shared.membership.lease.is_valid(context) || matches!(context.phase, Phase::Stopped(_)) {
            self.operations.clients.poll(out);
        }
    }

    /// Takes a request. Its answer carries `token`.
    pub fn submit(&mut self, now: Monotonic, token: u64, request: SpaceRequest) {
        self.advance_time(now);
        self.operations.accept(token, request, &mut self.shared);
        self.drive();
    }

    /// Handles a replica's response.
    pub fn handle_response(&mut self, now: Monotonic, response: Response) {
        self.advance_time(now);
        let Shared { context, membership, mailbox, calls, .. } = &mut self.shared;
        if calls.handle_response(response, context, membership, mailbox) == Heard::Fenced {
            self.stop(SpaceError::Fenced);
        }
        self.drive();
    }

    /// Handles the cluster state's answer.
    pub fn handle_state(&mut self, now: Monotonic, token: StateToken, answer: records::Answer) {
        self.advance_time(now);
        match self.opening.state_answered(token, &answer, &mut self.shared) {
            Claim::NotOurs => self.membership_answered(token, answer),
            Claim::Pending => {}
            Claim::Claimed => {
                self.shared.membership.note_all_absent(self.shared.context.now);
            }
            Claim::Failed(why) => self.stop(why),
        }
        self.drive();
    }

    /// Advances the time, and does all that is due.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.advance_time(now);
        self.drive();
    }

    /// Advances the time, and does all that is due. Returns whether anything was.
    pub fn tell_time(&mut self, now: Monotonic) -> bool {
        let due = self.next_timeout().is_some_and(|at| at <= now);
        if due {
            self.handle_timeout(now);
        } else {
            self.advance_time(now);
        }
        due
    }

    /// Settles the record, so that the next opening has nothing to compare. Ends in
    /// [`Phase::Closed`].
    pub fn close(&mut self, now: Monotonic) {
        self.advance_time(now);
        if self.shared.context.phase == Phase::Serving {
            self.shared.context.phase = Phase::Closing;
        } else if self.shared.context.phase == Phase::Opening {
            self.stop(SpaceError::Unavailable);
        }
        self.drive();
    }

    /// Repairs the region of a block that a scrub found corrupt on the disk, from another copy.
    pub fn repair(&mut self, now: Monotonic, disk: DiskId, lba: Lba) {
        self.advance_time(now);
        let chunk = self.shared.chunks.get(self.shared.context.geometry.chunk_of(lba.0));
        let holds = chunk.is_some_and(|known| known.holders.contains(&disk));
        if holds && self.shared.membership.is_in_sync(disk) {
            self.start_sync(lba, Purpose::Repair);
        }
        self.drive();
    }

    /// Reads all in-sync copies of the region of `lba` and compares them; writes nothing. One
    /// [`Event::Compared`] has the result. Compare one region at a time.
    pub fn compare(&mut self, now: Monotonic, lba: Lba) {
        self.advance_time(now);
        if !self.start_sync(lba, Purpose::Compare) {
            let (found, wrong, lost) = (Comparison::default(), Vec::new(), Vec::new());
            self.shared.mailbox.emit(Event::Compared { lba, found, wrong, lost });
        }
        self.drive();
    }

    /// Makes the copies of the region of `lba` equal: rewrites corrupt and older blocks from the
    /// newest intact ones.
    pub fn equalize(&mut self, now: Monotonic, lba: Lba) {
        self.advance_time(now);
        self.start_sync(lba, Purpose::Repair);
        self.drive();
    }

    /// Begins a step on the region of `lba`, if it has slabs. Returns whether it has.
    fn start_sync(&mut self, lba: Lba, purpose: Purpose) -> bool {
        let shared = &mut self.shared;
        let chunk = shared.context.geometry.chunk_of(lba.0);
        let mapped = shared.context.serving() && shared.chunks.is_mapped(chunk);
        if mapped {
            self.syncing.start_sync(chunk, lba.0, purpose, shared, &mut self.operations);
        }
        mapped
    }

    /// Begins to verify the volume's chunks on the disk.
    pub fn verify(&mut self, now: Monotonic, disk: DiskId) {
        self.advance_time(now);
        self.jobs.verify.verify(disk, &self.shared);
        self.drive();
    }

    /// Plans resyncs and builds soon, because the table of disks has changed: disks were retired,
    /// or given up.
    pub fn plan_soon(&mut self) {
        self.jobs.plan_soon(self.shared.context.now);
    }

    /// Lets the volume have slabs of a disk that is new to the pool.
    pub fn add_disk(&mut self, disk: DiskId) {
        self.shared.membership.want_add(disk);
    }

    /// Changes the address space. Blocks beyond a smaller one must have been discarded.
    pub fn resize(&mut self, size_bytes: u64) {
        self.shared.membership.want(Change::Resize(size_bytes));
    }

    /// Changes the fill, in percent, from which health warns.
    pub fn set_warning_at(&mut self, percent: u8) {
        self.shared.membership.want(Change::WarnAt(percent));
    }

    /// Records that the volume was made.
    pub fn finish_making(&mut self) {
        self.shared.membership.want(Change::FinishMaking);
    }

    /// Takes over the moves of a rebalance that concern this volume.
    pub fn rebalance(&mut self, moves: Vec<Move>) {
        self.jobs.rebalance(moves, &self.shared.context);
    }

    /// Stops jobs of this kind at once, until they are resumed.
    pub fn suspend(&mut self, kind: JobKind) {
        self.jobs.suspend(kind, &mut self.shared);
    }

    pub fn resume(&mut self, kind: JobKind) {
        self.jobs.resume(kind, self.shared.context.now);
    }

    fn advance_time(&mut self, now: Monotonic) {
        self.shared.context.now = self.shared.context.now.max(now);
    }

    /// Does all that follows from an event. The order is the algorithm:
    ///
    /// 1. Calls expire, and sessions are opened again: all later steps decide by the disks that can
    ///    be reached now.
    /// 2. Parts do the work that the event left for them: a resync given up here must not join by
    ///    the record of step 4.
    /// 3. The opening continues. Disks that it wants expelled belong into the record of step 4, and
    ///    once it ends, all later steps serve requests.
    /// 4. The record changes: calls to disks that have left are released, so that they end in step
    ///    7, and the next proposal leaves for the cluster state before any of this turn's requests
    ///    to disks wait for it.
    /// 5. Requests that have waited too long are refused. Before step 4, this would refuse some
    ///    that a committed record has just released.
    /// 6. Late reads are sent to a second copy, unless step 5 refused them.
    /// 7. Owners get the outcomes of their calls, one at a time and with the work that each leaves,
    ///    since an owner may end the subject of the next outcome. Then operations pass their gates,
    ///    which may end calls at once, until no gate opens any more.
    /// 8. The opening again: promises and lists of step 7 may be all that it waits for.
    /// 9. Jobs, behind all requests, so that these are first in the disks' queues, and by the state that the outcomes have left.
    /// 10. The record again: disks that failed in step 7 leave, and copies that jobs have completed count, by one proposal for all of them.
    /// 11. Closing last, since it needs to know whether any work is in progress.
    fn drive(&mut self) {
        let Shared { context, membership, mailbox, calls, .. } = &mut self.shared;
        calls.expire(context, membership, mailbox); // 1
        self.follow_up(); // 2
        self.opening.drive(&mut self.shared, &mut self.operations.dirty_regions); // 3
        self.drive_membership(); // 4
        self.operations.expire_clients(&mut self.shared); // 5
        self.operations.hedge_late_reads(&mut self.shared); // 6
        loop {
            self.follow_up();
            while let Some(outcome) = self.shared.take_outcome() {
                self.deliver(outcome); // 7
                self.follow_up();
            }
            if !std::mem::take(&mut self.shared.mailbox.recheck) {
                break;
            }
            self.operations.pass_gated(&mut self.shared);
        }
        self.opening.drive(&mut self.shared, &mut self.operations.dirty_regions); // 8
        self.jobs.drive(&mut self.shared, &mut self.operations, &mut self.syncing); // 9
        self.follow_up();
        self.drive_membership(); // 10
        self.drive_closing(); // 11
        self.follow_up();
        debug_assert!(!self.shared.mailbox.has_work(), "work was left to nobody");
    }

    /// Delivers the work that parts left for each other.
    fn follow_up(&mut self) {
        let Self { shared, operations, syncing, jobs, .. } = self;
        while let Some(next) = shared.mailbox.take_next() {
            match next {
                Next::Granted(Holder::Operation(key)) => operations.run(key, shared),
                Next::Granted(Holder::Sync(key)) => syncing.sync_locked(key, shared, operations),
                Next::Compare { operation, chunk, lba, blocks } => {
                    syncing.answer_by_sync(operation, chunk, lba, blocks, shared, operations);
                    operations.release(operation, chunk, lba, shared);
                }
                Next::Reconcile(chunk, lba) => {
                    syncing.start_sync(chunk, lba, Purpose::Reconcile, shared, operations);
                }
                Next::Close(chunk) => jobs.builds.abort_build(chunk, shared),
                Next::Synced(step) => jobs.step_done(step, shared, operations, syncing),
                Next::Abandon(disk) => jobs.abandon_resync(disk, shared),
                Next::GiveUpCopies { operation, chunk, disks } => {
                    jobs.give_up_copies(chunk, &disks, shared);
                    operations.copies_given_up(operation, &disks, shared);
                }
            }
        }
    }

    /// Delivers the outcome of a call to its owner.
    fn deliver(&mut self, Outcome { disk, owner, result }: Outcome) {
        let Self { shared, opening, operations, syncing, jobs } = self;
        let (resyncs, builds) = (&mut jobs.resyncs, &mut jobs.builds);
        match owner {
            Owner::Promise(epoch) => {
                if result.is_ok() {
                    shared.membership.note_promise(disk, epoch);
                    self.drive_membership();
                }
            }
            Owner::Nobody(read) => syncing.lost_answered(read, disk, &result, shared, operations),
            Owner::Listing => opening.listing_done(disk, result, shared, &mut operations.dirty_regions),
            Owner::Operation(key) => operations.operation_answered(key, disk, result, shared),
            Owner::Allocate(chunk) => operations.allocated(chunk, disk, result, shared),
            Owner::AllocateUndo(chunk) => operations.allocation_undone(chunk, disk, shared),
            Owner::Probe(chunk) => operations.dirty_regions.probed(chunk, disk, result, shared),
            Owner::SyncRead { sync, start, blocks, .. } => {
                syncing.sync_read(sync, disk, start, blocks, result, shared, operations);
            }
            Owner::SyncWrite(sync, _) => syncing.sync_written(sync, disk, result, shared, operations),
            Owner::ResyncListing => resyncs.resync_listed(disk, result, shared, operations, builds),
            Owner::ResyncFree(chunk) => {
                resyncs.resync_freed(disk, chunk, result, shared, operations, builds);
            }
            Owner::ResyncRegions(target, chunk) => {
                resyncs.resync_regions(target, chunk, disk, result, shared, operations, builds);
            }
            Owner::Build(chunk) => builds.build_allocated(chunk, disk, result, shared, operations, syncing),
            Owner::BuildRegions(chunk) => {
                builds.build_regions(chunk, disk, result, shared, operations, syncing);
            }
            Owner::BuildDrop(chunk) => builds.build_dropped(chunk, disk, result, shared),
            Owner::Verify(chunk) => jobs.verify.surveyed(chunk, disk, result, shared),
        }
    }

    /// Proposes pending changes, and completes committed ones.
    fn drive_membership(&mut self) {
        if self.shared.context.is_over() || !self.shared.membership.is_ours(&self.shared.context) {
            return;
        }
        self.finish_expelled();
        let clean = self.operations.dirty_regions.is_empty();
        if self.shared.membership.drive(&self.shared.context, clean) {
            self.propose(clean);
        }
    }

    fn propose(&mut self, clean: bool) {
        let (drained, lowest_stamp) = (self.is_drained(), self.operations.lowest_stamp());
        let Shared { context, membership, chunks, .. } = &mut self.shared;
        let facts = Facts { context, chunks, clean, lowest_stamp, drained };
        let draft = membership.draft(&facts);
        for &disk in &draft.never_joined {
            self.jobs.abandon_resync(disk, &mut self.shared);
            self.release_calls(disk);
        }
        let Shared { context, membership, chunks, .. } = &mut self.shared;
        let copies = membership.record().resiliency.copies();
        let held_back = self.jobs.builds.hold_back_marks(&draft.in_sync(), copies, chunks);
        let facts = Facts { context, chunks, clean, lowest_stamp, drained };
        membership.propose(draft, held_back, &facts);
    }

    /// Handles an answer of the cluster state about the record.
    fn membership_answered(&mut self, token: StateToken, answer: records::Answer) {
        match self.shared.membership.answered(token, answer, &self.shared.context) {
            Decision::None => {}
            Decision::Committed(changes) => self.adopt(&changes),
            Decision::Refused => {
                self.operations.leaving_decided(&mut self.shared);
                self.drive_membership();
            }
            Decision::Fenced => self.stop(SpaceError::Fenced),
        }
    }

    /// Applies the changes of a record just committed to every part.
    fn adopt(&mut self, changes: &PendingChanges) {
        let Self { shared, operations, syncing, jobs, .. } = self;
        let now = shared.context.now;
        for disk in changes.disks(Change::Expel) {
            operations.begin_absence(disk, shared);
            shared.chunks.remove_holder(disk);
            shared.membership.note_absent(disk, now);
            if let Some(stale) = shared.membership.record().stale.iter().find(|stale| stale.disk == disk) {
                let (since, why) = (stale.since, shared.calls.why_failed(disk));
                shared.mailbox.emit(Event::DiskLeft { disk, since, why });
            }
        }
        let record = shared.membership.record();
        if shared.context.serving() && shared.chunks.fewest_holders(record) < record.min_copies {
            // Answers that wait for the lease were right under the record before. If some chunk has
            // fewer copies than an answer promises, nobody knows whether they still are.
            operations.clients.take_back_acknowledgements();
        }
        for disk in changes.disks(Change::Keep) {
            jobs.disk_kept(disk, &changes.marked_on(disk).collect(), shared);
        }
        for disk in changes.disks(Change::Rewind).chain(changes.disks(Change::Keep)) {
            shared.calls.reopen(disk, &shared.context);
        }
        for disk in changes.disks(Change::Join) {
            jobs.disk_joined(disk, shared, operations);
        }
        for disk in changes.disks(Change::Add).chain(changes.disks(Change::Remove)) {
            operations.absences.forget(disk);
        }
        for disk in changes.disks(Change::Add) {
            shared.membership.note_absent(disk, now);
            shared.connect(disk);
            // The disk may have a session already, and writes may wait for its space.
            jobs.plan_soon(now);
        }
        for (disk, chunk) in changes.marks() {
            jobs.builds.build_marked(disk, chunk, shared, operations, syncing);
        }
        for (disk, chunk) in changes.unmarks() {
            jobs.builds.build_unmarked(disk, chunk, shared, operations, syncing);
        }
        shared.mailbox.emit(Event::RecordChanged);
        shared.mailbox.recheck = true;
        operations.leaving_decided(shared);
        self.finish_expelled();
        if self.shared.context.serving() && !self.shared.membership.has_leaving() {
            // By the time of the next record the disks then have newer promises.
            self.ask_for_promises(self.unpromised());
        }
    }

    /// Releases calls to expelled disks once every remaining disk has promised the new epoch.
    fn finish_expelled(&mut self) {
        if !self.shared.membership.has_leaving() {
            return;
        }
        let missing = self.shared.membership.missing_promises();
        if !missing.is_empty() {
            return self.ask_for_promises(missing);
        }
        for disk in self.shared.membership.take_expelled() {
            self.jobs.builds.forget_mirrors(disk, &mut self.shared);
            self.release_calls(disk);
        }
    }

    fn release_calls(&mut self, disk: DiskId) {
        let Shared { context, membership, mailbox, calls, .. } = &mut self.shared;
        calls.release_calls(disk, context, membership, mailbox);
    }

    /// Has the disks promise the record's epoch.
    fn ask_for_promises(&mut self, disks: Vec<DiskId>) {
        let epoch = self.shared.membership.record().epoch;
        for disk in self.shared.membership.ask_for_promises(disks) {
            self.shared.call(Owner::Promise(epoch), disk, crate::message::ReplicaOperation::Promise);
        }
    }

    /// Returns reachable disks in sync that have not promised the record's epoch.
    fn unpromised(&self) -> Vec<DiskId> {
        self.shared.membership.unpromised(|disk| self.shared.calls.is_open(disk))
    }

    /// Whether no write is in progress, of the volume or of a step on a region.
    pub fn is_drained(&self) -> bool {
        self.operations.is_drained() && self.syncing.is_empty()
    }

    fn drive_closing(&mut self) {
        let closing = self.shared.context.phase == Phase::Closing;
        if !closing || !self.operations.dirty_regions.is_empty() || !self.is_drained() {
            return;
        }
        let unpromised = self.unpromised();
        let membership = &mut self.shared.membership;
        let is_rotated = membership.record().epoch > membership.last_stamp();
        if membership.record().settled >= membership.record().epoch {
            self.shared.context.phase = Phase::Closed;
        } else if is_rotated && !unpromised.is_empty() {
            self.ask_for_promises(unpromised);
        } else if is_rotated && !membership.is_sealed() && !membership.is_proposing() {
            // An unreachable disk was not expelled. It may have lost unsettled writes; the next
            // opening compares them.
            self.shared.context.phase = Phase::Closed;
        } else if !self.shared.membership.is_proposing() {
            self.shared.membership.want(Change::Rotate);
            self.drive_membership();
        }
    }

    /// Ends the coordinator, and answers all waiting requests with `why`.
    fn stop(&mut self, why: SpaceError) {
        if self.shared.context.is_over() {
            return;
        }
        self.shared.context.phase = Phase::Stopped(why.clone());
        self.shared.calls.clear();
        self.shared.membership.requests.clear();
        self.shared.mailbox.drop_work();
        self.operations.stop(&why);
        self.syncing.clear();
        self.jobs.resyncs.clear();
        self.shared.mailbox.emit(Event::Stopped { why });
    }
}
