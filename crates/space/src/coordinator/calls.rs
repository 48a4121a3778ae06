//! Speaking to disks: sessions, requests in flight, time-outs.
//!
//! A *call* is one operation on one disk that somebody in the coordinator waits for. It survives the loss of a session: it is
//! sent again in the next one. What a call can end with:
//!
//! | the replica says | the call |
//! |---|---|
//! | done, data | ends so |
//! | `Corrupt`, `NoSpace`, `Invalid` | ends so: the caller decides |
//! | `Fenced` by an epoch of ours | is sent again under the present epoch |
//! | `Fenced` by a higher epoch | the coordinator stops |
//! | `NoSession`, `Unreachable` | waits for the next session |
//! | `WentBack` (to the opening of a session) | waits for the record to put the disk out |
//! | a disk error for which its machine is to blame | of reads: ends as `Gone`; others wait for the next session, a little later |
//! | nothing in time, another disk error, `Poisoned`, `NotMapped` | the disk has failed |
//!
//! When a disk fails, calls that only read end as `Gone` at once, so that another copy is read. Calls that write wait: they end
//! as `Gone` when the disk is out of the in-sync set by a committed record (I2), or are sent again when the disk is back first.

use super::{Coordinator, Event, Phase};
use crate::message::{Answer, BusError, Operation, Request, Response};
use crate::planted::Planted;
use disk::DiskError;
use std::collections::{BTreeMap, VecDeque};
use store::api::StoreError;
use types::{ChunkIndex, DiskId, Epoch, Monotonic};

/// Who waits for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A promise within a session.
    Promise(Epoch),
    /// A listing of chunks at the opening.
    Listing,
    /// A listing of chunks of a disk that returns.
    ResyncListing,
    /// A slab of a disk that returns is given back.
    ResyncFree(ChunkIndex),
    /// Region epochs of the disk itself (true) or of its source.
    ResyncRegions(DiskId, ChunkIndex),
    /// Region epochs of a chunk, after an opening.
    Probe(ChunkIndex),
    Allocate(ChunkIndex),
    /// A slab of a chunk that could not be given enough copies.
    AllocateUndo(ChunkIndex),
    Operation(u64),
    /// Reads `blocks` from block `start` of the region.
    SyncRead {
        sync: u64,
        start: u64,
        blocks: u64,
    },
    SyncWrite(u64),
    Build(ChunkIndex),
    BuildRegions(ChunkIndex),
    BuildDrop(ChunkIndex),
    /// Region epochs of a copy that is looked at for lost writes.
    Survey(ChunkIndex),
}

/// Why a call did not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The disk is not to be counted on any more.
    Gone,
    Store(StoreError),
}

pub(super) struct Call {
    disk: DiskId,
    owner: Owner,
    operation: Operation,
    /// Its id in the link's present session.
    sent: Option<u64>,
    deadline: Monotonic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Closed { retry_at: Monotonic },
    Opening { id: u64, epoch: Epoch, deadline: Monotonic },
    Open,
}

/// What is known of the way to one disk.
#[derive(Debug)]
pub(super) struct Link {
    state: LinkState,
    session: u64,
    /// The highest epoch that the disk said it has promised to this coordinator.
    promised: Epoch,
    /// Calls of operations and syncs that are with the disk, as a measure of its load.
    busy: u32,
    /// Why it failed last.
    why: String,
}

/// One outcome, to be given to its owner.
pub(super) struct Outcome {
    pub disk: DiskId,
    pub owner: Owner,
    pub result: Result<Answer, Failure>,
}

#[derive(Default)]
pub(super) struct Calls {
    links: BTreeMap<DiskId, Link>,
    calls: BTreeMap<u64, Call>,
    /// Request id to call.
    wire: BTreeMap<u64, u64>,
    next_id: u64,
    /// No call's deadline is before it: there is nothing to look for until then.
    expire_at: Monotonic,
    pub sends: VecDeque<(DiskId, Request)>,
    pub outcomes: VecDeque<Outcome>,
}

impl Calls {
    /// Sessions are numbered from a place of the incarnation's own, so that those of two coordinators are not confused.
    pub fn new(incarnation: u128) -> Self {
        Self { next_id: (incarnation as u64 & 0x7fff_ffff) << 32, ..Self::default() }
    }

    pub fn clear(&mut self) {
        self.calls.clear();
        self.wire.clear();
        self.sends.clear();
        self.outcomes.clear();
        self.links.clear();
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        let calls = (!self.calls.is_empty()).then_some(self.expire_at);
        let links = self.links.values().filter_map(|link| match link.state {
            LinkState::Closed { retry_at } => Some(retry_at),
            LinkState::Opening { deadline, .. } => Some(deadline),
            LinkState::Open => None,
        });
        calls.into_iter().chain(links).min()
    }

    pub fn is_open(&self, disk: DiskId) -> bool {
        self.links.get(&disk).is_some_and(|link| link.state == LinkState::Open)
    }

    pub fn promised(&self, disk: DiskId) -> Epoch {
        self.links.get(&disk).map_or(Epoch(0), |link| link.promised)
    }

    pub fn load(&self, disk: DiskId) -> u32 {
        self.links.get(&disk).map_or(0, |link| link.busy)
    }

    pub fn why_failed(&self, disk: DiskId) -> String {
        self.links.get(&disk).map_or_else(String::new, |link| link.why.clone())
    }

    /// Whether somebody waits for such a call on the disk.
    pub fn is_awaited(&self, owner: Owner, disk: DiskId) -> bool {
        self.calls.values().any(|call| call.disk == disk && call.owner == owner)
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn remove(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        if let Some(id) = call.sent {
            self.wire.remove(&id);
        }
        if let Some(link) = self.links.get_mut(&call.disk) {
            link.busy = link.busy.saturating_sub(1);
        }
        Some(call)
    }

    fn finish(&mut self, number: u64, result: Result<Answer, Failure>) {
        if let Some(Call { disk, owner, .. }) = self.remove(number) {
            self.outcomes.push_back(Outcome { disk, owner, result });
        }
    }

    fn of_disk(&self, disk: DiskId) -> Vec<u64> {
        self.calls.iter().filter(|(_, call)| call.disk == disk).map(|(&number, _)| number).collect()
    }

    /// The session is over: nothing of it will be answered.
    fn unsend(&mut self, disk: DiskId) {
        for number in self.of_disk(disk) {
            let sent = self.calls.get_mut(&number).and_then(|call| call.sent.take());
            if let Some(id) = sent {
                self.wire.remove(&id);
            }
        }
    }
}

impl Coordinator {
    /// Begins a call; its outcome comes by `deliver_outcomes`.
    pub(super) fn call(&mut self, owner: Owner, disk: DiskId, operation: Operation) {
        let deadline = self.now.after(self.config.io_timeout);
        self.connect(disk);
        let number = self.calls.number();
        if self.calls.calls.is_empty() {
            self.calls.expire_at = deadline;
        }
        self.calls.expire_at = self.calls.expire_at.min(deadline);
        self.calls.calls.insert(number, Call { disk, owner, operation, sent: None, deadline });
        if let Some(link) = self.calls.links.get_mut(&disk) {
            link.busy += 1;
        }
        self.transmit(number);
    }

    /// Begins a session with the disk where there is none.
    pub(super) fn connect(&mut self, disk: DiskId) {
        let now = self.now;
        let state = LinkState::Closed { retry_at: now };
        let link = self.calls.links.entry(disk).or_insert_with(|| Link {
            state,
            session: 0,
            promised: Epoch(0),
            busy: 0,
            why: String::new(),
        });
        if matches!(link.state, LinkState::Closed { retry_at } if retry_at <= now) {
            self.open_session(disk);
        }
    }

    fn open_session(&mut self, disk: DiskId) {
        self.calls.unsend(disk);
        let retry_at = self.now.after(self.config.reconnect_interval);
        if self.members.waits_for_record(disk) {
            if let Some(link) = self.calls.links.get_mut(&disk) {
                link.state = LinkState::Closed { retry_at };
            }
            return;
        }
        let (volume, epoch, least) = (self.volume, self.record.epoch, self.known_promise(disk));
        let (session, id) = (self.calls.number(), self.calls.number());
        let deadline = self.now.after(self.config.io_timeout);
        if let Some(link) = self.calls.links.get_mut(&disk) {
            link.session = session;
            link.state = LinkState::Opening { id, epoch, deadline };
        }
        let settled = if self.record.in_sync.contains(&disk) { self.record.settled } else { Epoch(0) };
        let operation = Operation::Open { least, settled };
        self.calls.sends.push_back((disk, Request { volume, session, id, epoch, operation }));
    }

    /// The least that the disk has promised, by the record and by what it said itself.
    pub(super) fn known_promise(&self, disk: DiskId) -> Epoch {
        let stale = self.record.stale.iter().find(|stale| stale.disk == disk);
        let recorded = match stale {
            Some(stale) => stale.promised,
            None if self.members.accepted_back.contains(&disk) => Epoch(0),
            None if self.record.in_sync.contains(&disk) => self.record.promised,
            None => Epoch(0),
        };
        recorded.max(self.calls.promised(disk))
    }

    fn transmit(&mut self, number: u64) {
        let id = self.calls.number();
        let Some(call) = self.calls.calls.get_mut(&number) else { return };
        let Some(link) = self.calls.links.get(&call.disk) else { return };
        if link.state != LinkState::Open {
            return;
        }
        if let Some(old) = call.sent.replace(id) {
            self.calls.wire.remove(&old);
        }
        // A promise too is asked for under the present epoch: the session may have promised more than the one it was wanted for,
        // and what is lower would be refused for ever.
        let (volume, session, epoch) = (self.volume, link.session, self.record.epoch);
        let request = Request { volume, session, id, epoch, operation: call.operation.clone() };
        self.calls.wire.insert(id, number);
        self.calls.sends.push_back((call.disk, request));
    }

    pub(super) fn handle_call_response(&mut self, response: Response) {
        let disk = response.from;
        let Some(link) = self.calls.links.get(&disk) else { return };
        if response.volume != self.volume || response.session != link.session {
            return;
        }
        if let LinkState::Opening { id, epoch, .. } = link.state {
            if id == response.id {
                self.session_answered(disk, epoch, response.result);
            }
            return;
        }
        let Some(&number) = self.calls.wire.get(&response.id) else { return };
        let frees =
            matches!(self.calls.calls.get(&number), Some(Call { operation: Operation::Free { .. }, .. }));
        match response.result {
            Ok(answer) => self.calls.finish(number, Ok(answer)),
            // What is not there is given back.
            Err(BusError::Store(StoreError::NotMapped)) if frees => {
                self.calls.finish(number, Ok(Answer::Done));
            }
            Err(BusError::Store(StoreError::Fenced { promised })) => {
                if promised > self.record.epoch {
                    self.stop(crate::api::SpaceError::Fenced);
                } else {
                    self.transmit(number);
                }
            }
            Err(BusError::NoSession | BusError::Unreachable | BusError::WentBack { .. }) => {
                self.lose_session(disk);
            }
            Err(BusError::Store(StoreError::Disk(error @ DiskError::Host(_))))
                if !Planted::HostExpelsDisk.is_planted() =>
            {
                self.pause_disk(disk, &error.to_string());
            }
            Err(BusError::Store(
                error @ (StoreError::Disk(_) | StoreError::Poisoned | StoreError::NotMapped),
            )) => self.fail_disk(disk, &error.to_string()),
            Err(BusError::Store(StoreError::Corrupt { .. })) if Planted::CorruptExpelsDisk.is_planted() => {
                self.fail_disk(disk, "it has a corrupt block");
            }
            Err(BusError::Store(error)) => self.calls.finish(number, Err(Failure::Store(error))),
        }
    }

    fn session_answered(&mut self, disk: DiskId, epoch: Epoch, result: Result<Answer, BusError>) {
        let retry_at = self.now.after(self.config.reconnect_interval);
        match result {
            Ok(_) => {
                if let Some(link) = self.calls.links.get_mut(&disk) {
                    link.state = LinkState::Open;
                    link.promised = link.promised.max(epoch);
                }
                self.members.cancel_expel(disk);
                let deadline = self.now.after(self.config.io_timeout);
                for number in self.calls.of_disk(disk) {
                    if let Some(call) = self.calls.calls.get_mut(&number) {
                        call.deadline = deadline;
                    }
                    self.transmit(number);
                }
                self.recheck = true;
            }
            Err(BusError::Store(StoreError::Fenced { promised })) if promised > self.record.epoch => {
                self.stop(crate::api::SpaceError::Fenced);
            }
            Err(error) => {
                if let Some(link) = self.calls.links.get_mut(&disk) {
                    link.state = LinkState::Closed { retry_at };
                    link.why = error.to_string();
                }
                if let BusError::WentBack { promised } = error {
                    self.disk_went_back(disk, promised, retry_at);
                }
            }
        }
    }

    /// An older image of the disk was restored: nothing that it holds counts until all of it has been compared, and the record says
    /// so before it is spoken to.
    fn disk_went_back(&mut self, disk: DiskId, promised: Epoch, retry_at: Monotonic) {
        self.emit(Event::WentBack { disk, promised, expected: self.known_promise(disk) });
        self.members.wait_for_record(disk);
        self.end_calls(disk, retry_at, false);
        self.abandon_resync(disk);
        self.recheck = true;
    }

    /// The record says that the disk has to be compared from the beginning, or cannot say so: what it had promised is past.
    pub(super) fn forget_promise(&mut self, disk: DiskId) {
        if let Some(link) = self.calls.links.get_mut(&disk) {
            link.promised = Epoch(0);
            link.state = LinkState::Closed { retry_at: self.now };
        }
    }

    /// The session broke; a new one is tried at once, then at intervals.
    fn lose_session(&mut self, disk: DiskId) {
        self.calls.unsend(disk);
        if let Some(link) = self.calls.links.get_mut(&disk) {
            link.state = LinkState::Closed { retry_at: self.now };
            link.why = "the session broke".into();
        }
        self.connect(disk);
    }

    /// The disk does not answer, or answers with errors: it leaves the in-sync set as soon as the record says so.
    pub(super) fn fail_disk(&mut self, disk: DiskId, why: &str) {
        self.calls.unsend(disk);
        let retry_at = self.now.after(self.config.reconnect_interval);
        if let Some(link) = self.calls.links.get_mut(&disk) {
            link.state = LinkState::Closed { retry_at };
            link.why = why.to_owned();
        }
        let required = self.is_required(disk);
        self.end_calls(disk, retry_at, !required || Planted::AckBeforeCas.is_planted());
        if required {
            self.members.want_expel(disk);
        } else {
            self.abandon_resync(disk);
        }
        self.recheck = true;
    }

    /// Its machine is short of something: that says nothing of the disk, which is asked again a little later. Other copies are read
    /// meanwhile.
    fn pause_disk(&mut self, disk: DiskId, why: &str) {
        self.calls.unsend(disk);
        let retry_at = self.now.after(self.config.reconnect_interval);
        if let Some(link) = self.calls.links.get_mut(&disk) {
            link.state = LinkState::Closed { retry_at };
            link.why = why.to_owned();
        }
        self.end_calls(disk, retry_at, false);
        self.recheck = true;
    }

    /// Calls of a disk that is not spoken to before `retry_at`: those that read end, the others wait unless `all` end.
    fn end_calls(&mut self, disk: DiskId, retry_at: Monotonic, all: bool) {
        let deadline = retry_at.after(self.config.io_timeout);
        for number in self.calls.of_disk(disk) {
            let Some(call) = self.calls.calls.get_mut(&number) else { continue };
            if all || call.operation.only_reads() {
                self.calls.finish(number, Err(Failure::Gone));
            } else {
                call.deadline = deadline;
            }
        }
    }

    /// The disk is out of the in-sync set by a committed record: nobody waits for it any longer. A change that is still on its way
    /// must not come after newer ones that a resync sends: it ends with its session.
    pub(super) fn release_calls(&mut self, disk: DiskId) {
        let mut on_its_way = false;
        for number in self.calls.of_disk(disk) {
            let call = self.calls.calls.get(&number);
            on_its_way |= call.is_some_and(|call| call.sent.is_some() && !call.operation.only_reads());
            self.calls.finish(number, Err(Failure::Gone));
        }
        if on_its_way {
            self.lose_session(disk);
        }
        self.recheck = true;
    }

    pub(super) fn expire_calls(&mut self) {
        if matches!(self.phase, Phase::Stopped(_) | Phase::Closed) {
            return;
        }
        let now = self.now;
        if self.calls.expire_at <= now {
            self.fail_late_disks();
        }
        let retry_at = now.after(self.config.reconnect_interval);
        let mut reopen = Vec::new();
        for (&disk, link) in &mut self.calls.links {
            match link.state {
                LinkState::Opening { deadline, .. } if deadline <= now => {
                    link.state = LinkState::Closed { retry_at };
                    link.why = "no answer in time".into();
                }
                LinkState::Closed { retry_at } if retry_at <= now => reopen.push(disk),
                _ => {}
            }
        }
        for disk in reopen {
            self.open_session(disk);
        }
    }

    fn fail_late_disks(&mut self) {
        let now = self.now;
        let mut late: Vec<DiskId> =
            self.calls.calls.values().filter(|call| call.deadline <= now).map(|call| call.disk).collect();
        late.dedup();
        for disk in late {
            if self.calls.calls.values().any(|call| call.disk == disk && call.deadline <= now) {
                self.fail_disk(disk, "no answer in time");
            }
        }
        let first = self.calls.calls.values().map(|call| call.deadline).min();
        self.calls.expire_at = first.unwrap_or(now.after(self.config.io_timeout));
    }

    /// Gives every outcome to its owner.
    pub(super) fn deliver_outcomes(&mut self) {
        while let Some(Outcome { disk, owner, result }) = self.calls.outcomes.pop_front() {
            match owner {
                Owner::Promise(epoch) => {
                    if result.is_ok() {
                        if let Some(link) = self.calls.links.get_mut(&disk) {
                            link.promised = link.promised.max(epoch);
                        }
                        self.drive_membership();
                    }
                }
                Owner::Listing => self.listing_done(disk, result),
                Owner::ResyncListing => self.resync_listed(disk, result),
                Owner::ResyncFree(chunk) => self.resync_freed(disk, chunk, result),
                Owner::ResyncRegions(target, chunk) => self.resync_regions(target, chunk, disk, result),
                Owner::Probe(chunk) => self.probed(chunk, disk, result),
                Owner::Allocate(chunk) => self.allocated(chunk, disk, result),
                Owner::AllocateUndo(chunk) => self.allocation_undone(chunk, disk),
                Owner::Operation(number) => self.operation_answered(number, disk, result),
                Owner::SyncRead { sync, start, blocks } => self.sync_read(sync, disk, start, blocks, result),
                Owner::SyncWrite(sync) => self.sync_written(sync, disk, result),
                Owner::Build(chunk) => self.build_allocated(chunk, disk, result),
                Owner::BuildRegions(chunk) => self.build_regions(chunk, disk, result),
                Owner::BuildDrop(chunk) => self.build_dropped(chunk, disk, result),
                Owner::Survey(chunk) => self.surveyed(chunk, disk, result),
            }
        }
    }

    pub(super) fn disk_left(&mut self, disk: DiskId, since: Epoch) {
        let why = self.calls.why_failed(disk);
        self.emit(Event::DiskLeft { disk, since, why });
    }
}
