//! The coordinator: one volume's virtual disk over the copies on its disks.
//!
//! Owns the volume's membership record, the map from chunks to disks, and everything in flight. Promises I1, I2, I4, I5, I6
//! and I10 of docs/PROTOCOL.md, which argues each. Never opens a socket, reads a clock or throws dice: requests, responses,
//! the cluster state's answers and time come in by `submit` and `handle_*`; what it wants done goes out by `poll_*`.
//!
//! The parts: [`calls`] speaks to one disk each, over sessions that may break; [`membership`] changes the record by
//! compare-and-swap; [`opening`] takes the volume over; [`operations`] does what the volume asks; [`syncing`] makes the
//! copies of one region equal, which is all that reconciliation, repair, resync and rebuild are made of; [`suspects`]
//! says which regions may differ after a crash; [`choosing`] which copy of a block is right; [`resync`] brings a disk back; [`absences`] knows what such a disk still has;
//! [`building`] makes new copies; [`survey`] looks for copies that a disk lost without a word; [`jobs`] runs resyncs and builds at a bearable pace.

mod absences;
mod allocation;
mod building;
mod calls;
mod choosing;
mod chunks;
mod jobs;
mod locks;
mod membership;
mod opening;
mod operations;
mod resync;
mod running;
mod survey;
mod suspects;
mod syncing;

pub use jobs::{JobPhase, JobStatus};

use crate::api::{SpaceCompletion, SpaceError, SpaceRequest, SpaceSize};
use crate::message::{Request, Response};
use absences::Absences;
use calls::Calls;
use chunks::{Chunk, ChunkState};
use cluster::VolumeRecord;
use jobs::Jobs;
use locks::Locks;
use membership::Membership;
use opening::Opening;
use operations::{Client, Operation};
use pool::PoolView;
use resync::Resync;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use survey::Survey;
use syncing::Sync;
use types::{BLOCK_BYTES, BlockCount, ChunkIndex, DiskId, Epoch, Lba, Monotonic, VolumeId};

/// Blocks of one region (1 MiB): the grain of ordering, of atomicity and of what a copy missed. A chunk has whole regions, or
/// is smaller than one.
pub const REGION_BLOCKS: u64 = 256;
/// Largest overwrite, in blocks (64 KiB).
pub const OVERWRITE_BLOCKS: u64 = 16;

/// Limits and intervals of a coordinator.
#[derive(Debug, Clone)]
pub struct Config {
    /// A disk that answers nothing for so long is taken out.
    pub io_timeout: Duration,
    /// How often a disk that could not be reached is tried again.
    pub reconnect_interval: Duration,
    /// How long an opening waits for in-sync disks before it goes on without them.
    pub opening_grace: Duration,
    /// How often writes in progress begin a new epoch, so that a crash leaves little to compare (I10).
    pub rotate_interval: Duration,
    /// Pause before a request to the cluster state that was not answered is repeated.
    pub state_retry: Duration,
    /// After so long an operation that cannot be done is answered `Unavailable`.
    pub unavailable_after: Duration,
    /// A disk that stays away longer has its chunks copied to others.
    pub rebuild_after: Duration,
    /// Where several nodes may open the volume: answers are given only while the record was confirmed within this time, and
    /// a new coordinator waits so long before its first answer.
    pub lease: Option<Duration>,
    /// Checksums of what is read are checked here too: where a network lies between.
    pub verify_reads: bool,
    /// Regions that background work handles at once while the volume is otherwise idle.
    pub background_regions: usize,
    /// While the volume is in use, background work rests so many times as long as its last step took.
    pub background_rest: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            io_timeout: Duration::from_secs(4),
            reconnect_interval: Duration::from_secs(1),
            opening_grace: Duration::from_secs(3),
            rotate_interval: Duration::from_secs(30),
            state_retry: Duration::from_millis(200),
            unavailable_after: Duration::from_secs(30),
            rebuild_after: Duration::from_secs(30 * 60),
            lease: None,
            verify_reads: false,
            background_regions: 4,
            background_rest: 2,
        }
    }
}

/// Where a coordinator is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Reads the record, claims it, opens sessions, lists chunks.
    Opening,
    Serving,
    /// Nothing new is taken; the record is left settled.
    Closing,
    /// Closed: nothing differs between copies.
    Closed,
    /// It must not go on.
    Stopped(SpaceError),
}

/// Something an operator wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The volume serves requests.
    Serving { epoch: Epoch },
    /// The disk missed writes and is out of the in-sync set.
    DiskLeft { disk: DiskId, since: Epoch, why: String },
    /// The disk has promised less than it must have: an older image of it was restored. It is brought up to date from the beginning,
    /// unless it has the last copy of something.
    WentBack { disk: DiskId, promised: Epoch, expected: Epoch },
    /// The disk holds every acknowledged write again.
    DiskJoined { disk: DiskId },
    /// Blocks of this disk could not be read, or failed their checksums.
    CorruptRead { disk: DiskId, chunk: ChunkIndex, blocks: u64, lbas: Vec<Lba> },
    /// Blocks of this disk differed or failed their checksums and were written again from another copy.
    Repaired { disk: DiskId, chunk: ChunkIndex, blocks: u64 },
    /// The disk acknowledged a write of these blocks and does not have it: they are intact, and older than another copy.
    LostWrite { disk: DiskId, chunk: ChunkIndex, blocks: u64, lbas: Vec<Lba> },
    /// Blocks have no intact copy.
    Unrepairable { chunk: ChunkIndex, lbas: Vec<Lba> },
    /// A region was compared ([`Coordinator::compare`]): `wrong` has the disks whose copies are corrupt or older, and of how many
    /// blocks; `lost` the blocks without an intact copy.
    Compared { lba: Lba, found: Comparison, wrong: Vec<(DiskId, u64)>, lost: Vec<Lba> },
    /// Copies differed after a crash and were made equal.
    Reconciled { chunk: ChunkIndex, blocks: u64 },
    /// The record changed.
    RecordChanged,
    /// The volume stopped.
    Stopped { why: SpaceError },
}

/// What the in-sync copies of a region hold, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Copies that were read; 0: the region could not be looked at, since a disk just left or the chunk was freed.
    pub copies: u8,
    pub blocks: u64,
    /// Blocks whose intact copies differ from each other.
    pub differing: u64,
    /// Copies of blocks whose checksum fails.
    pub corrupt: u64,
    /// Blocks without an intact copy.
    pub lost: u64,
}

/// Counts since the coordinator began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    /// Blocks of a copy that could not be read or whose checksum failed.
    pub corrupt_blocks: u64,
    /// Blocks of a copy that were older than another: a write that its disk acknowledged and lost.
    pub lost_writes: u64,
    /// Of those: written again.
    pub repaired_blocks: u64,
    /// Blocks that differed after a crash.
    pub reconciled_blocks: u64,
    /// Regions copied to disks that returned.
    pub resynced_regions: u64,
    /// Regions copied to new places.
    pub built_regions: u64,
    /// Chunks whose region epochs were fetched after an opening.
    pub probed_chunks: u64,
}

/// One volume's coordinator.
pub struct Coordinator {
    volume: VolumeId,
    /// Names this opening; never 0, never reused.
    incarnation: u128,
    config: Config,
    chunk_blocks: u64,
    now: Monotonic,
    pool: Rc<RefCell<PoolView>>,
    phase: Phase,
    opening: Opening,
    /// As last committed.
    record: VolumeRecord,
    /// Its revision in the cluster state.
    revision: u64,
    members: Membership,
    calls: Calls,
    chunks: BTreeMap<ChunkIndex, Chunk>,
    /// Chunks of which some region may differ between copies.
    unclean: BTreeSet<ChunkIndex>,
    clients: BTreeMap<u64, Client>,
    /// No client's deadline is before it.
    clients_expire_at: Monotonic,
    operations: BTreeMap<u64, Operation>,
    /// Operations that wait for something other than a lock, in order of arrival.
    gated: VecDeque<u64>,
    /// Something changed that gated operations may have waited for.
    recheck: bool,
    locks: Locks,
    syncs: BTreeMap<u64, Sync>,
    resyncs: BTreeMap<DiskId, Resync>,
    jobs: Jobs,
    survey: Survey,
    /// Slabs given by disks that a record not yet committed expels.
    allocated_by_leaving: Vec<(ChunkIndex, DiskId)>,
    /// Disks that the administrator takes out.
    retired: BTreeSet<DiskId>,
    /// When each stale disk left, or the volume was opened without it.
    absent_since: BTreeMap<DiskId, Monotonic>,
    /// What stale disks have not missed.
    absences: Absences,
    /// Disks that did not have what had just been written to them, and how often since they last had.
    unkept: BTreeMap<DiskId, u32>,
    next_number: u64,
    completions: Vec<SpaceCompletion>,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Coordinator {
    /// A coordinator that begins to take the volume over. `incarnation` is random and not 0. All disks of the pool have slabs
    /// of `chunk_blocks`.
    pub fn new(
        volume: VolumeId,
        incarnation: u128,
        config: Config,
        chunk_blocks: u32,
        pool: Rc<RefCell<PoolView>>,
        now: Monotonic,
    ) -> Self {
        let mut coordinator = Self {
            volume,
            incarnation,
            config,
            chunk_blocks: u64::from(chunk_blocks.max(1)),
            now,
            pool,
            phase: Phase::Opening,
            opening: Opening::new(),
            record: opening::unread_record(volume),
            revision: 0,
            members: Membership::default(),
            calls: Calls::new(incarnation),
            chunks: BTreeMap::new(),
            unclean: BTreeSet::new(),
            clients: BTreeMap::new(),
            clients_expire_at: now,
            operations: BTreeMap::new(),
            gated: VecDeque::new(),
            recheck: false,
            locks: Locks::default(),
            syncs: BTreeMap::new(),
            resyncs: BTreeMap::new(),
            jobs: Jobs::default(),
            survey: Survey::default(),
            allocated_by_leaving: Vec::new(),
            retired: BTreeSet::new(),
            absent_since: BTreeMap::new(),
            absences: Absences::default(),
            unkept: BTreeMap::new(),
            next_number: 1,
            completions: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        };
        coordinator.read_record();
        coordinator
    }

    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The record as last committed by this coordinator; meaningless before [`Phase::Serving`].
    pub fn record(&self) -> &VolumeRecord {
        &self.record
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Address space and what can still be filled.
    pub fn size(&self) -> SpaceSize {
        let blocks = self.record.size_bytes / BLOCK_BYTES as u64;
        let mut chunks = self.chunks_available(self.record.resiliency.copies());
        if chunks == 0 {
            chunks = self.copies_while_disks_are_away().map_or(0, |copies| self.chunks_available(copies));
        }
        let unmapped = blocks.div_ceil(self.chunk_blocks).saturating_sub(self.chunks.len() as u64);
        SpaceSize {
            blocks: BlockCount(blocks),
            available: BlockCount(chunks.min(unmapped) * self.chunk_blocks),
            chunk_blocks: self.chunk_blocks as u32,
        }
    }

    /// Chunks of so many copies that the pool has room for.
    fn chunks_available(&self, copies: u8) -> u64 {
        match self.record.provisioning {
            cluster::Provisioning::Thin => self.pool.borrow().available_chunks(copies),
            cluster::Provisioning::Fixed => self.pool.borrow().promised_chunks(copies),
        }
    }

    /// Slabs that the volume has on each disk.
    pub fn slabs_on(&self, disk: DiskId) -> u64 {
        self.chunks.values().filter(|chunk| chunk.lives_on(disk)).count() as u64
    }

    /// Chunks that have slabs, and those of them with fewer in-sync copies than wanted.
    pub fn chunk_counts(&self) -> (u64, u64) {
        let copies = usize::from(self.record.resiliency.copies());
        let few = self.chunks.values().filter(|chunk| self.in_sync_holders(chunk).count() < copies).count();
        (self.chunks.len() as u64, few as u64)
    }

    /// As [`Self::chunk_counts`], without chunks whose slabs are still being allocated: nothing is in them that could be lost.
    pub fn settled_chunk_counts(&self) -> (u64, u64) {
        let copies = usize::from(self.record.resiliency.copies());
        let settled =
            || self.chunks.values().filter(|chunk| !matches!(chunk.state, ChunkState::Allocating { .. }));
        let few = settled().filter(|chunk| self.in_sync_holders(chunk).count() < copies).count();
        (settled().count() as u64, few as u64)
    }

    /// Whether nothing may differ between copies any more since the opening.
    pub fn is_reconciled(&self) -> bool {
        self.unclean.is_empty()
    }

    /// Takes a request; its answer carries `token`.
    pub fn submit(&mut self, now: Monotonic, token: u64, request: SpaceRequest) {
        self.advance_time(now);
        self.accept(token, request);
        self.settle_down();
    }

    /// A replica answered.
    pub fn handle_response(&mut self, now: Monotonic, response: Response) {
        self.advance_time(now);
        self.handle_call_response(response);
        self.settle_down();
    }

    /// The cluster state answered.
    pub fn handle_state(&mut self, now: Monotonic, token: u64, answer: cluster::Answer) {
        self.advance_time(now);
        self.handle_state_answer(token, answer);
        self.settle_down();
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.advance_time(now);
        self.settle_down();
    }

    /// Time passed: as [`Coordinator::handle_timeout`] where something is due. Whether it was.
    pub fn tell_time(&mut self, now: Monotonic) -> bool {
        let due = self.next_timeout().is_some_and(|at| at <= now);
        if due {
            self.handle_timeout(now);
        } else {
            self.advance_time(now);
        }
        due
    }

    /// When [`Coordinator::handle_timeout`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let timeouts = [
            self.calls.next_timeout(),
            self.members_next_timeout(),
            self.opening_next_timeout(),
            (!self.clients.is_empty()).then_some(self.clients_expire_at),
            self.jobs_next_timeout(),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// The next request to a replica.
    pub fn poll_send(&mut self) -> Option<(DiskId, Request)> {
        self.calls.sends.pop_front()
    }

    /// The next request to the cluster state.
    pub fn poll_state(&mut self) -> Option<(u64, cluster::Request)> {
        self.members.requests.pop_front()
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Moves the answers that are there into `out`. Without a valid lease there are none.
    pub fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        if self.lease_is_valid() || matches!(self.phase, Phase::Stopped(_)) {
            out.append(&mut self.completions);
        }
    }

    /// Leaves the record settled, so that the next opening has nothing to compare. [`Phase::Closed`] when done.
    pub fn close(&mut self, now: Monotonic) {
        self.advance_time(now);
        if self.phase == Phase::Serving {
            self.phase = Phase::Closing;
        } else if self.phase == Phase::Opening {
            self.stop(SpaceError::Unavailable);
        }
        self.settle_down();
    }

    fn advance_time(&mut self, now: Monotonic) {
        self.now = self.now.max(now);
    }

    /// What follows from any event, until nothing changes any more.
    fn settle_down(&mut self) {
        self.expire_calls();
        self.drive_opening();
        self.drive_membership();
        self.expire_clients();
        loop {
            self.deliver_outcomes();
            if !std::mem::take(&mut self.recheck) {
                break;
            }
            self.pass_gated();
        }
        self.drive_jobs();
        self.drive_membership();
        self.drive_closing();
    }

    fn serving(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Closing)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn region_blocks(&self) -> u64 {
        REGION_BLOCKS.min(self.chunk_blocks)
    }

    fn emit(&mut self, event: Event) {
        // Nobody may be listening: the newest events are the ones worth keeping.
        if self.events.len() >= 1024 {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Ends the coordinator: everything waiting is answered with `why`.
    fn stop(&mut self, why: SpaceError) {
        if matches!(self.phase, Phase::Stopped(_) | Phase::Closed) {
            return;
        }
        self.phase = Phase::Stopped(why.clone());
        self.calls.clear();
        self.members.requests.clear();
        self.operations.clear();
        self.gated.clear();
        self.syncs.clear();
        self.resyncs.clear();
        self.locks = Locks::default();
        self.completions.retain(|completion| completion.result.is_err());
        for client in std::mem::take(&mut self.clients).into_values() {
            if !client.answered {
                self.completions.push(SpaceCompletion { token: client.token, result: Err(why.clone()) });
            }
        }
        self.emit(Event::Stopped { why });
    }
}
