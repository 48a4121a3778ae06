//! Sessions with disks, requests in flight, timeouts.
//!
//! A *call* is one operation on one disk that a part of the coordinator waits for. A call survives
//! the loss of its session: the next session sends it again. The ends of a call:
//!
//! | the replica says | the call |
//! |---|---|
//! | done, data | ends so |
//! | `Corrupt`, `NoSpace`, `Invalid` | ends so: the caller decides |
//! | `Fenced` by an epoch of ours | is sent again under the present epoch |
//! | `Fenced` by a higher epoch | the coordinator stops |
//! | `NoSession`, `Unreachable` | waits for the next session |
//! | `WentBack` (to the opening of a session) | waits for the record's decision on the disk ([`super::rollback`]) |
//! | a disk error caused by its machine; `NoSpace` to a promise or the opening of a session | of reads: ends as `Gone`; others wait for the next session, a little later |
//! | no answer before the timeout, another disk error, `Poisoned`, `NotMapped` | the disk has failed |
//!
//! When a disk fails, calls that only read end as `Gone` at once, so that another copy is read.
//! Calls that write wait: they end as `Gone` when a committed record has expelled the disk (I2), or
//! are sent again if the disk comes back before that.
//!
//! A disk is judged by the calls that it answers, never by the sessions that it opens: a network
//! that loses large packets lets every session begin, and no write through. So a call that was sent
//! once keeps its deadline over later sessions. A disk that failed remains to be expelled until it
//! has answered every call that it owed when it failed ([`Calls::trust_again`]).

use super::Event;
use super::context::Context;
use super::keys::{CallKey, OperationKey, Purpose, SyncKey};
use super::mailbox::{Heard, Mailbox, Next};
use super::membership::Membership;
use super::pending_changes::Change;
use crate::message::{
    Answer, BusError, Priority, ReplicaOperation, Request, RequestId, Response, SessionId, Waiting,
};
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::api::StoreError;
use types::{ChunkIndex, DiskId, Epoch, Lba, Monotonic};

/// The part that waits for a call, and its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A promise within a session.
    Promise(Epoch),
    /// A listing of chunks at the opening.
    Listing,
    /// A listing of chunks of a disk that returns.
    ResyncListing,
    /// Gives back a slab of a disk that returns.
    ResyncFree(ChunkIndex),
    /// Region epochs of the disk itself (true) or of its source.
    ResyncRegions(DiskId, ChunkIndex),
    /// Region epochs of a chunk, after an opening.
    Probe(ChunkIndex),
    Allocate(ChunkIndex),
    /// A slab of a chunk that could not be given enough copies.
    AllocateUndo(ChunkIndex),
    Operation(OperationKey),
    /// Reads `blocks` from block `start` of the region.
    SyncRead {
        sync: SyncKey,
        purpose: Purpose,
        start: u64,
        blocks: u64,
    },
    SyncWrite(SyncKey, Purpose),
    Build(ChunkIndex),
    BuildRegions(ChunkIndex),
    BuildDrop(ChunkIndex),
    /// Region epochs of a copy that is checked for lost writes.
    Verify(ChunkIndex),
    /// Nothing waits for the answer, since another copy was read. The disk still owes it, and a bad
    /// block in it is still repaired.
    Nobody(LostRead),
}

/// Blocks of a read that another copy answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostRead {
    pub lba: Lba,
    pub blocks: u32,
}

impl Owner {
    fn priority(self) -> Priority {
        match self {
            Self::Promise(_)
            | Self::Listing
            | Self::Probe(_)
            | Self::Allocate(_)
            | Self::AllocateUndo(_)
            | Self::Operation(_)
            | Self::Nobody(_) => Priority::Client,
            Self::SyncRead { purpose, .. } | Self::SyncWrite(_, purpose) => match purpose {
                // Reads wait for the step, or all requests to its region do.
                Purpose::Reconcile | Purpose::Repair | Purpose::Answer => Priority::Client,
                Purpose::Resync(_) => Priority::Resync,
                Purpose::Build { moves: false, .. } => Priority::Rebuild,
                Purpose::Build { moves: true, .. } | Purpose::Compare => Priority::Rebalance,
            },
            Self::ResyncListing | Self::ResyncFree(_) | Self::ResyncRegions(..) => Priority::Resync,
            Self::Build(_) | Self::BuildRegions(_) | Self::BuildDrop(_) => Priority::Rebuild,
            Self::Verify(_) => Priority::Rebalance,
        }
    }
}

/// Reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The disk no longer counts.
    Gone,
    Store(StoreError),
}

struct Call {
    disk: DiskId,
    owner: Owner,
    operation: ReplicaOperation,
    /// The request's id in the link's present session.
    sent: Option<RequestId>,
    /// Whether the call was sent, in this session or an earlier one: a new session does not give its disk
    /// more time.
    was_sent: bool,
    /// Whether the call was waiting when its disk's session ended, so that the disk owes the answer.
    is_owed: bool,
    deadline: Monotonic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Closed { retry_at: Monotonic },
    Opening { id: RequestId, epoch: Epoch, deadline: Monotonic },
    Open,
}

/// The session and the health of one disk, as this coordinator sees them.
#[derive(Debug)]
struct Link {
    state: LinkState,
    /// `None`: no session has begun yet.
    session: Option<SessionId>,
    /// Calls of operations and syncs that are in flight to the disk: a measure of its load.
    busy: u32,
    /// Whether the disk has failed, and has since not answered every call that it owed at that
    /// time.
    has_failed: bool,
    /// Reason of the last failure.
    why: String,
}

/// One outcome of a call, for its owner.
pub(super) struct Outcome {
    pub disk: DiskId,
    pub owner: Owner,
    pub result: Result<Answer, Failure>,
}

/// Invariants: a call is on the wire at most once, under the id in `sent`, and only in its link's
/// open session. Except for reads, a call whose disk is in sync ends with the disk's answer, or
/// with [`Failure::Gone`] after a committed record without the disk (I2).
#[derive(Default)]
pub(super) struct Calls {
    links: BTreeMap<DiskId, Link>,
    /// Disks whose link is not open: few, however many disks the volume has.
    unopened: BTreeSet<DiskId>,
    calls: BTreeMap<CallKey, Call>,
    last_call: CallKey,
    /// Calls in flight, by the ids of their requests.
    wire: BTreeMap<RequestId, CallKey>,
    /// The last number given to a session or a request.
    last_number: u64,
    /// Lower bound of all deadlines: until then no check is needed.
    expire_at: Monotonic,
    sends: VecDeque<(DiskId, Request)>,
    outcomes: VecDeque<Outcome>,
}

impl Calls {
    /// Numbers sessions from a start derived from the incarnation, so that those of two
    /// coordinators are not confused.
    pub fn new(incarnation: u128) -> Self {
        Self { last_number: (incarnation as u64 & 0x7fff_ffff) << 32, ..Self::default() }
    }

    pub fn clear(&mut self) {
        self.calls.clear();
        self.wire.clear();
        self.sends.clear();
        self.outcomes.clear();
        self.links.clear();
        self.unopened.clear();
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        let calls = (!self.calls.is_empty()).then_some(self.expire_at);
        let unopened = self.unopened.iter().filter_map(|disk| self.links.get(disk));
        let links = unopened.filter_map(|link| match link.state {
            LinkState::Closed { retry_at } => Some(retry_at),
            LinkState::Opening { deadline, .. } => Some(deadline),
            LinkState::Open => None,
        });
        calls.into_iter().chain(links).min()
    }

    /// Takes the next request to a replica.
    pub fn poll_send(&mut self) -> Option<(DiskId, Request)> {
        self.sends.pop_front()
    }

    /// Takes the next outcome to be delivered to its owner.
    pub fn take_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    fn set_link(&mut self, disk: DiskId, state: LinkState) {
        if let Some(link) = self.links.get_mut(&disk) {
            link.state = state;
            match state {
                LinkState::Open => self.unopened.remove(&disk),
                LinkState::Closed { .. } | LinkState::Opening { .. } => self.unopened.insert(disk),
            };
        }
    }

    pub fn is_open(&self, disk: DiskId) -> bool {
        self.links.get(&disk).is_some_and(|link| link.state == LinkState::Open)
    }

    pub fn load(&self, disk: DiskId) -> u32 {
        self.links.get(&disk).map_or(0, |link| link.busy)
    }

    pub fn why_failed(&self, disk: DiskId) -> String {
        self.links.get(&disk).map_or_else(String::new, |link| link.why.clone())
    }

    /// Whether such a call on the disk is awaited.
    pub fn is_awaited(&self, owner: Owner, disk: DiskId) -> bool {
        self.calls.values().any(|call| call.disk == disk && call.owner == owner)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn remove(&mut self, key: CallKey) -> Option<Call> {
        let call = self.calls.remove(&key)?;
        if let Some(id) = call.sent {
            self.wire.remove(&id);
        }
        if let Some(link) = self.links.get_mut(&call.disk) {
            debug_assert!(link.busy > 0, "a call of {} was not counted", call.disk);
            link.busy -= 1;
        }
        Some(call)
    }

    fn finish(&mut self, key: CallKey, result: Result<Answer, Failure>) {
        if let Some(Call { disk, owner, .. }) = self.remove(key) {
            self.outcomes.push_back(Outcome { disk, owner, result });
        }
    }

    fn of_disk(&self, disk: DiskId) -> Vec<CallKey> {
        self.calls.iter().filter(|(_, call)| call.disk == disk).map(|(&key, _)| key).collect()
    }

    /// Takes the disk's requests off the wire: the session is over, and no answer in it will come.
    fn unsend(&mut self, disk: DiskId) {
        for key in self.of_disk(disk) {
            let Some(call) = self.calls.get_mut(&key) else { continue };
            let (sent, is_moot) = (call.sent.take(), matches!(call.owner, Owner::Nobody(_)));
            if let Some(id) = sent {
                self.wire.remove(&id);
            }
            if is_moot {
                self.remove(key);
            }
        }
    }

    /// Drops the answer to the owner's read of the disk. The call continues, so that a disk that never
    /// answers fails.
    pub fn disown(&mut self, owner: Owner, disk: DiskId) {
        let of_owner = |call: &&mut Call| call.disk == disk && call.owner == owner;
        if let Some(call) = self.calls.values_mut().find(of_owner) {
            debug_assert!(
                matches!(call.operation, ReplicaOperation::Read { .. }),
                "only reads have another copy"
            );
            if let ReplicaOperation::Read { lba, blocks } = call.operation {
                call.owner = Owner::Nobody(LostRead { lba, blocks });
            }
        }
    }

    /// Begins a call; its outcome comes by [`Calls::take_outcome`].
    pub fn call(
        &mut self,
        owner: Owner,
        disk: DiskId,
        operation: ReplicaOperation,
        context: &Context,
        membership: &Membership,
    ) {
        let deadline = context.now.after(context.config.io_timeout);
        self.connect(disk, context, membership);
        let key = self.last_call.advance();
        if self.calls.is_empty() {
            self.expire_at = deadline;
        }
        self.expire_at = self.expire_at.min(deadline);
        let (sent, was_sent, is_owed) = (None, false, false);
        self.calls.insert(key, Call { disk, owner, operation, sent, was_sent, is_owed, deadline });
        if let Some(link) = self.links.get_mut(&disk) {
            link.busy += 1;
        }
        self.transmit(key, context, membership);
    }

    /// Begins a session with the disk if it has none.
    pub fn connect(&mut self, disk: DiskId, context: &Context, membership: &Membership) {
        let state = LinkState::Closed { retry_at: context.now };
        let unopened = &mut self.unopened;
        let link = self.links.entry(disk).or_insert_with(|| {
            unopened.insert(disk);
            Link { state, session: None, busy: 0, has_failed: false, why: String::new() }
        });
        if matches!(link.state, LinkState::Closed { retry_at } if retry_at <= context.now) {
            self.open_session(disk, context, membership);
        }
    }

    fn open_session(&mut self, disk: DiskId, context: &Context, membership: &Membership) {
        self.unsend(disk);
        let retry_at = context.now.after(context.config.reconnect_interval);
        if membership.is_shut_out(disk) || context.is_down(disk) {
            self.set_link(disk, LinkState::Closed { retry_at });
            return;
        }
        let (volume, epoch, least) =
            (context.volume, membership.record().epoch, membership.known_promise(disk));
        assert!(least <= epoch, "{disk} has promised more than this coordinator may ask for (I3)");
        let (session, id) = (SessionId(self.next_number()), RequestId(self.next_number()));
        let deadline = context.now.after(context.config.io_timeout);
        if let Some(link) = self.links.get_mut(&disk) {
            link.session = Some(session);
        }
        self.set_link(disk, LinkState::Opening { id, epoch, deadline });
        let settled = membership.settled_on(disk);
        let (priority, operation) = (Priority::Client, ReplicaOperation::Open { least, settled });
        let request = Request { volume, session, id, epoch, priority, operation };
        self.sends.push_back((disk, request));
    }

    fn transmit(&mut self, key: CallKey, context: &Context, membership: &Membership) {
        let id = RequestId(self.next_number());
        let Some(call) = self.calls.get_mut(&key) else { return };
        let Some(link) = self.links.get(&call.disk) else { return };
        let (LinkState::Open, Some(session)) = (link.state, link.session) else { return };
        call.was_sent = true;
        if let Some(old) = call.sent.replace(id) {
            self.wire.remove(&old);
        }
        // A promise too is requested under the present epoch: the disk may have promised a higher
        // epoch in this session than the one first requested, and would refuse a lower one for
        // ever.
        let epoch = membership.record().epoch;
        assert!(membership.promised(call.disk) <= epoch, "a request that {} must refuse (I3)", call.disk);
        let (volume, priority) = (context.volume, call.owner.priority());
        let request = Request { volume, session, id, epoch, priority, operation: call.operation.clone() };
        self.wire.insert(id, key);
        self.sends.push_back((call.disk, request));
    }

    /// Notes that the request has not left for its disk. The disk's time begins when it does, so
    /// the deadline moves as long as the queue reports the wait: a disk is judged by its own
    /// requests, never by earlier traffic on the way to it. Returns the call's owner.
    pub fn note_waiting(&mut self, waiting: &Waiting, context: &Context) -> Option<Owner> {
        let &Waiting { disk, volume, session, id, .. } = waiting;
        let current = self.links.get(&disk).and_then(|link| link.session);
        let key = self.wire.get(&id).filter(|_| volume == context.volume && current == Some(session))?;
        let call = self.calls.get_mut(key).filter(|call| call.disk == disk)?;
        call.deadline = context.now.after(context.config.io_timeout);
        Some(call.owner)
    }

    /// Handles a replica's response. Outcomes of calls wait in [`Calls::take_outcome`].
    pub fn handle_response(
        &mut self,
        response: Response,
        context: &Context,
        membership: &mut Membership,
        mailbox: &mut Mailbox,
    ) -> Heard {
        let disk = response.from;
        let Some(link) = self.links.get(&disk) else { return Heard::Nothing };
        if response.volume != context.volume || Some(response.session) != link.session {
            return Heard::Nothing;
        }
        if let LinkState::Opening { id, epoch, .. } = link.state {
            if id == response.id {
                return self.session_answered(disk, epoch, response.result, context, membership, mailbox);
            }
            return Heard::Nothing;
        }
        let Some(&key) = self.wire.get(&response.id) else { return Heard::Nothing };
        // A slab that does not exist counts as given back.
        let frees = |call: &Call| matches!(call.operation, ReplicaOperation::Free { .. });
        let is_freed = self.calls.get(&key).is_some_and(frees);
        // A copy whose answer nobody waits for may have been given back since: its owner checks.
        let owner = self.calls.get(&key).map(|call| call.owner);
        let is_lost = matches!(owner, Some(Owner::Nobody(_)));
        // Owners decide about failed writes; a promise is requested until the disk gives it.
        let is_promise = matches!(owner, Some(Owner::Promise(_)));
        match response.result {
            Ok(answer) => self.finish(key, Ok(answer)),
            Err(BusError::Store(StoreError::NotMapped)) if is_freed => self.finish(key, Ok(Answer::Done)),
            Err(BusError::Store(error @ StoreError::NotMapped)) if is_lost => {
                self.finish(key, Err(Failure::Store(error)));
            }
            Err(BusError::Store(StoreError::Fenced { promised })) => {
                if promised > membership.record().epoch {
                    return mailbox.fence(promised);
                }
                self.transmit(key, context, membership);
            }
            Err(BusError::NoSession | BusError::Unreachable | BusError::WentBack { .. }) => {
                self.lose_session(disk, context, membership);
            }
            Err(BusError::Store(error @ StoreError::NoSpace)) if !is_promise => {
                self.finish(key, Err(Failure::Store(error)));
            }
            Err(error) if error.is_shortage() => self.pause_disk(disk, &error.to_string(), context, mailbox),
            Err(BusError::Store(
                error @ (StoreError::Disk(_) | StoreError::Poisoned | StoreError::NotMapped),
            )) => self.fail_disk(disk, &error.to_string(), context, membership, mailbox),
            Err(BusError::Store(StoreError::Corrupt { .. })) if Planted::CorruptExpelsDisk.is_planted() => {
                self.fail_disk(disk, "it has a corrupt block", context, membership, mailbox);
            }
            Err(BusError::Store(error)) => self.finish(key, Err(Failure::Store(error))),
        }
        if self.links.get(&disk).is_some_and(|link| link.has_failed) {
            self.trust_again(disk, membership);
        }
        Heard::Nothing
    }

    /// Counts on the disk, which has a session, unless it failed and has not since answered every
    /// call that it owed then.
    fn trust_again(&mut self, disk: DiskId, membership: &mut Membership) {
        let is_owed = |call: &Call| call.disk == disk && call.is_owed;
        let owes = !Planted::SessionProvesDisk.is_planted() && self.calls.values().any(is_owed);
        let is_open = |link: &&mut Link| link.state == LinkState::Open && !(link.has_failed && owes);
        let Some(link) = self.links.get_mut(&disk).filter(is_open) else { return };
        link.has_failed = false;
        membership.cancel(Change::Expel(disk));
    }

    fn session_answered(
        &mut self,
        disk: DiskId,
        epoch: Epoch,
        result: Result<Answer, BusError>,
        context: &Context,
        membership: &mut Membership,
        mailbox: &mut Mailbox,
    ) -> Heard {
        let retry_at = context.now.after(context.config.reconnect_interval);
        match result {
            Ok(Answer::Opened { doubtful: true, .. }) if membership.must_compare(disk, context) => {
                membership.compare_first(disk);
                let why = "it may have lost what it acknowledged: its journal does not end whole";
                self.fail_disk(disk, why, context, membership, mailbox);
            }
            Ok(answer) => {
                if matches!(answer, Answer::Opened { doubtful: true, .. }) && !membership.is_required(disk) {
                    // If the resync continued, it would not copy again the regions already copied.
                    mailbox.leave(Next::Abandon(disk));
                }
                self.set_link(disk, LinkState::Open);
                membership.note_promise(disk, epoch);
                self.trust_again(disk, membership);
                let deadline = context.now.after(context.config.io_timeout);
                for key in self.of_disk(disk) {
                    if let Some(call) = self.calls.get_mut(&key)
                        && (!call.was_sent || Planted::SessionProvesDisk.is_planted())
                    {
                        call.deadline = deadline;
                    }
                    self.transmit(key, context, membership);
                }
                mailbox.recheck = true;
            }
            Err(BusError::Store(StoreError::Fenced { promised })) if promised > membership.record().epoch => {
                return mailbox.fence(promised);
            }
            Err(error) if error.is_shortage() => self.pause_disk(disk, &error.to_string(), context, mailbox),
            Err(error) => {
                self.shut(disk, retry_at, &error.to_string());
                if let BusError::WentBack { promised, chunks } = error
                    && membership.note_gone_back(disk, promised, chunks.iter().map(|entry| entry.chunk))
                {
                    self.disk_went_back(disk, promised, retry_at, context, membership, mailbox);
                }
            }
        }
        Heard::Nothing
    }

    /// Sends no request to the disk before `retry_at`.
    fn shut(&mut self, disk: DiskId, retry_at: Monotonic, why: &str) {
        self.set_link(disk, LinkState::Closed { retry_at });
        if let Some(link) = self.links.get_mut(&disk) {
            link.why = why.to_owned();
        }
    }

    /// Notes that an older image of the disk was restored. The record decides on the disk before
    /// any further session.
    fn disk_went_back(
        &mut self,
        disk: DiskId,
        promised: Epoch,
        retry_at: Monotonic,
        context: &Context,
        membership: &mut Membership,
        mailbox: &mut Mailbox,
    ) {
        let expected = membership.known_promise(disk);
        mailbox.emit(Event::WentBack { disk, promised, expected });
        self.end_calls(disk, retry_at, false, context);
        mailbox.leave(Next::Abandon(disk));
        mailbox.recheck = true;
    }

    /// Allows sessions with the disk again: the record demands a full comparison of it, or cannot.
    pub fn reopen(&mut self, disk: DiskId, context: &Context) {
        self.set_link(disk, LinkState::Closed { retry_at: context.now });
    }

    /// Opens a new session at once, then at intervals, after this one broke.
    fn lose_session(&mut self, disk: DiskId, context: &Context, membership: &Membership) {
        self.unsend(disk);
        self.shut(disk, context.now, "the session broke");
        self.connect(disk, context, membership);
    }

    /// Fails a disk that does not answer, or answers with errors: the next committed record takes
    /// it out of the in-sync set.
    pub fn fail_disk(
        &mut self,
        disk: DiskId,
        why: &str,
        context: &Context,
        membership: &mut Membership,
        mailbox: &mut Mailbox,
    ) {
        self.unsend(disk);
        let retry_at = context.now.after(context.config.reconnect_interval);
        self.shut(disk, retry_at, why);
        let required = membership.is_required(disk);
        self.end_calls(disk, retry_at, !required || Planted::AckBeforeCas.is_planted(), context);
        if required {
            if let Some(link) = self.links.get_mut(&disk) {
                link.has_failed = true;
            }
            membership.want(Change::Expel(disk));
        } else {
            mailbox.leave(Next::Abandon(disk));
        }
        mailbox.recheck = true;
    }

    /// Retries the disk a little later, because its machine, and not the disk, lacks a resource.
    /// Other copies are read meanwhile. The calls get new deadlines: a disk that reports a shortage
    /// answers, so it is not late.
    pub fn pause_disk(&mut self, disk: DiskId, why: &str, context: &Context, mailbox: &mut Mailbox) {
        self.unsend(disk);
        let retry_at = context.now.after(context.config.reconnect_interval);
        self.shut(disk, retry_at, why);
        self.end_calls(disk, retry_at, false, context);
        mailbox.recheck = true;
    }

    /// Ends the reads of a disk that has no session before `retry_at`. The other calls wait, unless `all`
    /// end.
    fn end_calls(&mut self, disk: DiskId, retry_at: Monotonic, all: bool, context: &Context) {
        let deadline = retry_at.after(context.config.io_timeout);
        for key in self.of_disk(disk) {
            let Some(call) = self.calls.get_mut(&key) else { continue };
            if all || call.operation.only_reads() {
                self.finish(key, Err(Failure::Gone));
            } else {
                (call.deadline, call.is_owed) = (deadline, true);
            }
        }
    }

    /// Ends the calls of these operations on a disk without a session, since the copies that they
    /// change do not count.
    pub fn end_calls_on(&mut self, disk: DiskId, is_over: impl Fn(&ReplicaOperation) -> bool) {
        for key in self.of_disk(disk) {
            if self.calls.get(&key).is_some_and(|call| is_over(&call.operation)) {
                self.finish(key, Err(Failure::Gone));
            }
        }
    }

    /// Ends the calls of a disk that a committed record has expelled. Its session ends too, so that
    /// a change still in flight cannot arrive after newer ones of a resync.
    pub fn release_calls(
        &mut self,
        disk: DiskId,
        context: &Context,
        membership: &Membership,
        mailbox: &mut Mailbox,
    ) {
        assert!(!membership.is_in_sync(disk), "{disk} counts, and is not waited for (I2)");
        let mut on_its_way = false;
        for key in self.of_disk(disk) {
            let call = self.calls.get(&key);
            on_its_way |= call.is_some_and(|call| call.sent.is_some() && !call.operation.only_reads());
            self.finish(key, Err(Failure::Gone));
        }
        if on_its_way {
            self.lose_session(disk, context, membership);
        }
        mailbox.recheck = true;
    }

    /// Fails disks whose calls are late, and retries unreachable ones.
    pub fn expire(&mut self, context: &Context, membership: &mut Membership, mailbox: &mut Mailbox) {
        if context.is_over() {
            return;
        }
        let now = context.now;
        if self.expire_at <= now {
            self.fail_late_disks(context, membership, mailbox);
        }
        let retry_at = now.after(context.config.reconnect_interval);
        let mut reopen = Vec::new();
        for &disk in &self.unopened {
            let Some(link) = self.links.get_mut(&disk) else { continue };
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
            self.open_session(disk, context, membership);
        }
    }

    fn fail_late_disks(&mut self, context: &Context, membership: &mut Membership, mailbox: &mut Mailbox) {
        let now = context.now;
        let mut late: Vec<DiskId> =
            self.calls.values().filter(|call| call.deadline <= now).map(|call| call.disk).collect();
        late.dedup();
        for disk in late {
            if self.calls.values().any(|call| call.disk == disk && call.deadline <= now) {
                self.fail_disk(disk, "no answer in time", context, membership, mailbox);
            }
        }
        let first = self.calls.values().map(|call| call.deadline).min();
        self.expire_at = first.unwrap_or(now.after(context.config.io_timeout));
    }
}
