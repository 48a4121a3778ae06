//! Changing the record: the disks in sync, and the epoch.
//!
//! One proposal is in flight at a time. The proposal carries all pending changes, has the next
//! epoch, and is applied by compare-and-swap with the revision last seen (I2). Its outcomes:
//!
//! | answer | the record in the state | the coordinator |
//! |---|---|---|
//! | `Committed` | the proposal | continues under it |
//! | `Unknown` | old or proposed, perhaps later | proposes the same again: at most one of the two is applied |
//! | `Conflict` | the proposal | an earlier attempt was applied: continues under it |
//! | `Conflict` | ours, otherwise changed by an administrator | takes that change over and proposes anew |
//! | `Conflict` | another coordinator's | stops: `Fenced` |
//!
//! Until the answer is known, a disk counts as required if the old *or* the proposed record has it in sync.
//!
//! Invariants: `record` is the cluster state's last answer, and only the opening and
//! [`Membership::adopt`] replace it (I2). A disk in sync has promised at least the record's
//! `promised` (I3). No write was stamped with an epoch above `last_stamp`.

use super::Phase;
use super::chunks::Chunks;
use super::context::Context;
use super::fault_domains::{count_copies, homes_of, may_miss};
use super::lease::Lease;
use super::members::Members;
use super::pending_changes::{Change, MarkChange, PendingChanges};
use super::rollback::GoneBack;
use super::state::{StateRequests, StateToken};
use crate::planted::Planted;
use records::{Answer, Condition, Provisioning, Record, Resiliency, StaleDisk, VolumeRecord};
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch, Monotonic, PoolId, VolumeId};

struct Proposal {
    record: VolumeRecord,
    changes: PendingChanges,
    /// Time of the next attempt; `None`: an answer is awaited.
    retry_at: Option<Monotonic>,
    token: StateToken,
    /// Whether the record is being read after a conflict.
    reading: bool,
}

/// Facts from the other parts that the next record depends on.
pub(super) struct Facts<'a> {
    pub context: &'a Context,
    pub chunks: &'a Chunks,
    /// Whether no region may differ between copies.
    pub clean: bool,
    /// The lowest epoch of a write in flight to the copies.
    pub lowest_stamp: Option<Epoch>,
    /// Whether no write and no step on a region is in progress.
    pub drained: bool,
}

/// A record in the making.
pub(super) struct Draft {
    pub next: VolumeRecord,
    pub changes: PendingChanges,
    /// Disks that were about to join, and are expelled instead.
    pub never_joined: Vec<DiskId>,
}

impl Draft {
    /// Returns disks in sync that count for all that they hold.
    pub fn in_sync(&self) -> Vec<DiskId> {
        self.next.in_sync.iter().copied().filter(|disk| !self.changes.contains(Change::Keep(*disk))).collect()
    }
}

/// Meaning of the cluster state's answer.
pub(super) enum Decision {
    /// No outcome yet.
    None,
    /// The proposal, which made these changes, is the record.
    Committed(Box<PendingChanges>),
    /// The proposal was not applied; its changes are pending again.
    Refused,
    /// Another coordinator has the volume.
    Fenced,
}

pub(super) struct Membership {
    /// The record as last committed.
    pub(super) record: VolumeRecord,
    /// The record's revision in the cluster state.
    revision: u64,
    /// The record's disks in sync, as a set since every operation looks some of them up.
    pub in_sync: BTreeSet<DiskId>,
    /// Whether every disk of the record's homes is in sync: each write asks.
    homes_are_whole: bool,
    /// Changes for the next proposal.
    pub(super) pending: PendingChanges,
    proposal: Option<Proposal>,
    members: Members,
    pub gone_back: GoneBack,
    pub requests: StateRequests,
    pub lease: Lease,
    /// Earliest next rotation.
    rotate_at: Monotonic,
    /// The highest epoch that a write was stamped with.
    last_stamp: Epoch,
}

impl Membership {
    /// Makes a membership that has yet to read its record.
    pub fn new(volume: VolumeId) -> Self {
        let nobody = PoolId::from_bytes([0; 16]);
        let thin = Provisioning::Thin;
        Self {
            record: VolumeRecord::new(volume, nobody, "", Resiliency::Simple, 0, thin, Vec::new(), 0),
            revision: 0,
            in_sync: BTreeSet::new(),
            homes_are_whole: true,
            pending: PendingChanges::default(),
            proposal: None,
            members: Members::default(),
            gone_back: GoneBack::default(),
            requests: StateRequests::default(),
            lease: Lease::default(),
            rotate_at: Monotonic::default(),
            last_stamp: Epoch(0),
        }
    }

    pub fn record(&self) -> &VolumeRecord {
        &self.record
    }

    /// Takes over the record read from the cluster state.
    pub fn load(&mut self, record: VolumeRecord, revision: u64) {
        self.in_sync = record.in_sync.iter().copied().collect();
        let mut in_homes = record.homes.iter().flat_map(|home| &home.disks);
        self.homes_are_whole = in_homes.all(|disk| self.in_sync.contains(disk));
        self.accept_images(&record.accepted_images);
        self.record = record;
        self.revision = revision;
    }

    /// Requests the record.
    pub fn read_record(&mut self) -> StateToken {
        self.requests.read(self.record.key())
    }

    /// Requests that the record be replaced, if the other condition holds too.
    pub fn replace_record(&mut self, record: &VolumeRecord, other: Option<&Condition>) -> StateToken {
        self.requests.replace(record, self.revision, other)
    }

    pub fn is_ours(&self, context: &Context) -> bool {
        self.record.coordinator == context.incarnation
    }

    pub fn last_stamp(&self) -> Epoch {
        self.last_stamp
    }

    /// Notes that a write is sent under this epoch.
    pub fn stamp(&mut self, epoch: Epoch) {
        self.last_stamp = self.last_stamp.max(epoch);
    }

    /// Sets the epoch up to which writes may be unsettled, at an opening.
    pub fn begin_stamps(&mut self, epoch: Epoch) {
        debug_assert!(epoch <= self.record.epoch);
        self.last_stamp = epoch;
    }

    /// Whether the disk's copies count by the record.
    pub fn is_in_sync(&self, disk: DiskId) -> bool {
        self.in_sync.contains(&disk)
    }

    pub fn is_stale(&self, disk: DiskId) -> bool {
        self.record.stale.iter().any(|stale| stale.disk == disk)
    }

    /// Whether the record says that the disk's copy of the chunk does not count.
    pub fn is_marked(&self, disk: DiskId, chunk: ChunkIndex) -> bool {
        self.record.building.contains(&(disk, chunk))
    }

    /// Whether an acknowledgement may depend on the disk.
    pub fn is_required(&self, disk: DiskId) -> bool {
        let joins = |proposal: &Proposal| proposal.record.in_sync.contains(&disk);
        self.is_in_sync(disk) || self.proposal.as_ref().is_some_and(joins)
    }

    /// Whether the proposal, once committed, expels the disk.
    pub fn proposes_to_leave(&self, disk: DiskId) -> bool {
        self.proposal.as_ref().is_some_and(|Proposal { changes, .. }| {
            changes.contains(Change::Expel(disk)) || changes.contains(Change::Remove(disk))
        })
    }

    /// Returns disks whose copy of the chunk does not count by the record, or may soon not.
    pub fn marked_for(&self, index: ChunkIndex) -> Vec<DiskId> {
        let proposed = self.proposal.iter().flat_map(|proposal| proposal.changes.marks());
        let marks = self.record.building.iter().copied().chain(self.pending.marks()).chain(proposed);
        marks.filter(|(_, chunk)| *chunk == index).map(|(disk, _)| disk).collect()
    }

    /// Returns the fewest in-sync copies that an acknowledged write may rely on, by the record and
    /// by the proposal.
    pub fn promised_holders(&self) -> u8 {
        let proposed = self.proposal.as_ref().map_or(0, |proposal| proposal.record.min_holders);
        self.record.min_holders.max(proposed)
    }

    /// Adds a pending change of the record.
    pub fn want(&mut self, change: Change) {
        self.pending.insert(change);
    }

    /// Drops a pending change. A proposed change stays.
    pub fn cancel(&mut self, change: Change) {
        self.pending.remove(change);
    }

    /// Drops a change of marks, whose disk has left.
    pub fn forget_marks(&mut self, change: MarkChange) {
        self.pending.forget_marks([change]);
    }

    pub fn want_add(&mut self, disk: DiskId) {
        self.cancel(Change::Remove(disk));
        let known = self.is_in_sync(disk) || self.is_stale(disk);
        if !known || self.proposes_to_leave(disk) {
            self.want(Change::Add(disk));
        }
    }

    /// Returns how many fault domains copies on these disks alone would be in, if the record or the
    /// proposal promises more.
    pub fn homes_short(&self, disks: &[DiskId]) -> Option<u8> {
        let records = self.proposal.iter().map(|proposal| &proposal.record).chain([&self.record]);
        let short = records.filter_map(|record| {
            // The record of a single server counts none.
            let homes = (record.min_homes > 0).then(|| homes_of(record, disks, self.homes_are_whole))?;
            (homes < record.min_homes).then_some(homes)
        });
        short.min()
    }

    /// Whether no change is pending, proposed, or yet to be promised.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && !self.is_changing()
    }

    /// Whether a proposal is unanswered, or disks have yet to promise a committed one.
    pub fn is_changing(&self) -> bool {
        self.proposal.is_some() || self.has_leaving()
    }

    pub fn is_proposing(&self) -> bool {
        self.proposal.is_some()
    }

    /// Whether the record has expelled the disk, and other disks have yet to promise so. Until then
    /// writes sent to it count as pending.
    pub fn is_leaving(&self, disk: DiskId) -> bool {
        self.members.is_leaving(disk)
    }

    pub fn has_leaving(&self) -> bool {
        self.members.left_at().is_some()
    }

    pub fn waits_for_record(&self, disk: DiskId) -> bool {
        self.gone_back.is_waiting(disk) || self.members.is_doubted(disk)
    }

    /// Whether the disk gets no session, not even to learn its promise.
    pub fn is_shut_out(&self, disk: DiskId) -> bool {
        self.waits_for_record(disk) && !self.gone_back.may_be_right(disk)
    }

    /// Whether the disk, which has come back with a doubt, counts, or is about to, although its
    /// copies have not been compared since. An opening needs no such comparison: it compares them
    /// itself before it serves.
    pub fn must_compare(&self, disk: DiskId, context: &Context) -> bool {
        context.serving() && self.is_required(disk) && !self.members.is_doubt_accepted(disk)
    }

    /// Keeps the disk without requests until the record has expelled it. Its resync then compares
    /// its possible losses.
    pub fn compare_first(&mut self, disk: DiskId) {
        self.members.open_doubt(disk);
    }

    /// Returns the time when the disk left the in-sync set or became known, or when the volume was
    /// opened without it.
    pub fn absent_since(&self, disk: DiskId) -> Option<Monotonic> {
        self.members.absent_since(disk)
    }

    pub fn note_absent(&mut self, disk: DiskId, now: Monotonic) {
        self.members.set_absent_since(disk, Some(now));
    }

    /// Notes that the volume is opened without the stale disks.
    pub fn note_all_absent(&mut self, now: Monotonic) {
        self.record.stale.iter().for_each(|stale| self.members.set_absent_since(stale.disk, Some(now)));
    }

    pub fn note_present(&mut self, disk: DiskId) {
        self.members.set_absent_since(disk, None);
    }

    /// Notes that the disk has reported this epoch as promised.
    pub fn note_promise(&mut self, disk: DiskId, epoch: Epoch) {
        assert!(
            epoch <= self.record.epoch,
            "{disk} promised {epoch:?}, which the record has yet to reach (I3)"
        );
        self.members.note_promise(disk, epoch);
        if self.gone_back.forget(disk) {
            self.reconsider_held();
        }
    }

    /// Returns the highest epoch that the disk has reported as promised.
    pub fn promised(&self, disk: DiskId) -> Epoch {
        self.members.promised(disk)
    }

    /// Returns the least that the disk has promised, by the record and by its own reports.
    pub fn known_promise(&self, disk: DiskId) -> Epoch {
        let stale = self.record.stale.iter().find(|stale| stale.disk == disk);
        let recorded = match stale {
            Some(stale) => stale.promised,
            None if self.gone_back.is_kept(disk) => Epoch(0),
            None if self.is_in_sync(disk) => self.record.promised,
            None => Epoch(0),
        };
        recorded.max(self.promised(disk))
    }

    /// Returns the epoch up to which all writes are complete on the disk and on all other copies; 0 if it is not in sync.
    pub fn settled_on(&self, disk: DiskId) -> Epoch {
        if self.is_in_sync(disk) { self.record.settled } else { Epoch(0) }
    }

    /// Returns reachable disks in sync that have not promised the record's epoch.
    pub fn unpromised(&self, is_open: impl Fn(DiskId) -> bool) -> Vec<DiskId> {
        let open = self.record.in_sync.iter().copied().filter(|disk| is_open(*disk));
        open.filter(|disk| self.promised(*disk) < self.record.epoch).collect()
    }

    /// Whether each disk in sync, also an unreachable one, has promised an epoch that no write was
    /// stamped with. An image of it that lacks a write has then promised less, and is recognized if
    /// it is ever restored.
    pub fn is_sealed(&self) -> bool {
        let all_promised = self.record.in_sync.iter().all(|disk| self.known_promise(*disk) > self.last_stamp);
        self.record.epoch > self.last_stamp && all_promised
    }

    /// Returns those of these disks that were not yet asked to promise the record's epoch, and
    /// notes that they are now.
    pub fn ask_for_promises(&mut self, mut disks: Vec<DiskId>) -> Vec<DiskId> {
        let epoch = self.record.epoch;
        disks.retain(|disk| self.members.ask(*disk, epoch));
        disks
    }

    pub fn next_timeout(&self, context: &Context, clean: bool) -> Option<Monotonic> {
        let retry = self.proposal.as_ref().and_then(|proposal| proposal.retry_at);
        let rotates = context.serving() && self.proposal.is_none() && self.may_settle(clean);
        let soon = context.now.after(std::time::Duration::from_nanos(1));
        let rotate = rotates.then_some(self.rotate_at.max(soon));
        [retry, rotate].into_iter().flatten().min()
    }

    /// Whether a rotation would settle something.
    fn may_settle(&self, clean: bool) -> bool {
        clean && self.record.settled < self.last_stamp
    }

    /// Retries an unanswered proposal. Returns whether there are changes for a new one.
    pub fn drive(&mut self, context: &Context, clean: bool) -> bool {
        if let Some(proposal) = &self.proposal {
            if proposal.retry_at.is_some_and(|at| at <= context.now) {
                self.send_proposal();
            }
            return false;
        }
        let closing = context.phase == Phase::Closing && self.record.epoch <= self.last_stamp;
        if context.serving() && self.may_settle(clean) && (self.rotate_at <= context.now || closing) {
            self.want(Change::Rotate);
        }
        !self.pending.is_empty()
    }

    fn send_proposal(&mut self) {
        let Some(proposal) = &mut self.proposal else { return };
        proposal.token = self.requests.replace(&proposal.record, self.revision, None);
        (proposal.retry_at, proposal.reading) = (None, false);
    }

    /// Begins the next record with its members. Changes that are not possible yet stay pending.
    pub fn draft(&mut self, facts: &Facts<'_>) -> Draft {
        assert!(self.proposal.is_none(), "two proposals at a time (I2)");
        let changes = std::mem::take(&mut self.pending);
        // A single server may have become a node meanwhile.
        let (epoch, owner) = (self.record.epoch.next(), facts.context.config.node);
        let mut next = VolumeRecord { epoch, owner, ..self.record.clone() };
        if facts.context.serving() {
            // The other images have been decided on. While they are kept, a crash would accept them
            // once more.
            next.accepted_images.retain(|disk| self.gone_back.is_waiting(*disk));
        }
        let mut draft = Draft { next, changes, never_joined: Vec::new() };
        let expelled = self.draft_expelled(&mut draft, facts);
        let expelled = self.draft_rewound(&mut draft, expelled, facts);
        draft.changes.extend(expelled.into_iter().map(Change::Expel));
        draft.changes.apply_members(&mut draft.next);
        draft
    }

    /// Expels disks that the others can do without, and returns them.
    fn draft_expelled(&mut self, draft: &mut Draft, facts: &Facts<'_>) -> BTreeSet<DiskId> {
        let next = &mut draft.next;
        let mut expelled = BTreeSet::new();
        // Disks of dead nodes first: if each of two disks would have a last copy without the other,
        // the reachable one stays.
        let wanted = draft.changes.take_disks(Change::Expel).into_iter();
        let (dead, others): (Vec<DiskId>, Vec<DiskId>) =
            wanted.partition(|disk| facts.context.is_down(*disk));
        for disk in dead.into_iter().chain(others) {
            if !next.in_sync.contains(&disk) {
                // The disk was about to join, and never did.
                self.members.close_doubts(|doubted| doubted == disk);
                draft.never_joined.push(disk);
                continue;
            }
            if draft.changes.has(Change::Keep) {
                // A disk that is kept counts for fewer chunks by then.
                self.pending.insert(Change::Expel(disk));
                continue;
            }
            if !self.can_expel(&next.in_sync, disk, &expelled, facts) {
                if self.members.is_doubted(disk) {
                    // No other disk has some of this disk's data: these are the last copies.
                    let others = next.in_sync.iter().copied().filter(|other| !self.waits_for_record(*other));
                    let marked = facts.chunks.had_by_others(disk, &others.collect::<Vec<_>>());
                    draft.changes.keep(disk, marked);
                } else {
                    self.pending.insert(Change::Expel(disk));
                }
                continue;
            }
            let promised = self.known_promise(disk);
            let since = self.missed_since(facts, promised);
            next.in_sync.retain(|member| *member != disk);
            next.stale.push(StaleDisk { disk, since, promised });
            expelled.insert(disk);
        }
        expelled
    }

    /// Completes the draft without the changes of marks that are held back, and proposes the record
    /// unless nothing changes.
    pub fn propose(&mut self, draft: Draft, held_back: Vec<MarkChange>, facts: &Facts<'_>) {
        let Draft { mut next, mut changes, .. } = draft;
        changes.forget_marks(held_back);
        changes.apply_marks(&mut next);
        changes.apply_settings(&mut next);
        let context = facts.context;
        count_copies(&self.record, &mut next, &changes, facts.chunks, context.serving());
        let promises = next.in_sync.iter().map(|disk| self.known_promise(*disk));
        next.promised = promises.min().unwrap_or(self.record.promised);
        if context.serving() {
            // No node that answered before this opening still does.
            (next.before, next.tried) = (Vec::new(), Vec::new());
        }
        if context.serving() && (facts.clean || Planted::SettledEarly.is_planted()) {
            // A disk that has promised a later epoch has that promise in its journal behind the
            // writes: it cannot lose them at the journal's end and keep the promise. For a disk
            // that has not, the doubt about the writes must stay.
            let pending = facts.lowest_stamp.unwrap_or(self.record.epoch).min(next.promised);
            next.settled = next.settled.max(Epoch(pending.0.saturating_sub(1)));
            if context.phase == Phase::Closing && facts.drained && next.promised > self.last_stamp {
                next.settled = next.epoch;
            }
        }
        if changes.is_empty() {
            return;
        }
        self.check_proposed(&next, &changes);
        self.proposal = Some(Proposal {
            record: next,
            changes,
            retry_at: None,
            token: StateToken::default(),
            reading: false,
        });
        self.rotate_at = context.now.after(context.config.rotate_interval);
        self.send_proposal();
    }

    /// Asserts the invariants between a proposed record and the one before.
    fn check_proposed(&self, next: &VolumeRecord, changes: &PendingChanges) {
        assert_eq!(next.epoch, self.record.epoch.next(), "I2");
        debug_assert!(self.record.settled <= next.settled && next.settled <= next.epoch, "I10");
        assert!(
            next.in_sync.iter().all(|disk| self.is_in_sync(*disk) || changes.contains(Change::Join(*disk))),
            "a disk comes to count that was not compared (I5)"
        );
        debug_assert!(
            next.stale.iter().all(|stale| stale.since <= next.epoch && !next.in_sync.contains(&stale.disk)),
            "a stale disk counts, or is stale from an epoch yet to come (I4)"
        );
    }

    /// Whether every chunk keeps an in-sync copy without the disk, and without the `others` that
    /// leave together with it. At an opening, while the chunks are not known, the record's
    /// `min_holders` and `min_homes` decide.
    fn can_expel(
        &self,
        in_sync: &[DiskId],
        disk: DiskId,
        others: &BTreeSet<DiskId>,
        facts: &Facts<'_>,
    ) -> bool {
        if in_sync.len() < 2 {
            return false;
        }
        if !facts.context.serving() {
            return may_miss(&self.record, others.iter().copied().chain([disk]))
                || Planted::MinHoldersIgnored.is_planted();
        }
        facts.chunks.can_do_without(disk, in_sync)
    }

    /// Returns the lowest epoch of a write that a disk which has `promised` this much may have
    /// missed (I4), or may lose at its journal's end without having promised less; or that only
    /// this disk has, while others may lose it in a crash.
    fn missed_since(&self, facts: &Facts<'_>, promised: Epoch) -> Epoch {
        let since = if !facts.context.serving() || !facts.clean {
            self.record.settled.next().min(self.record.epoch)
        } else {
            facts.lowest_stamp.unwrap_or(self.record.epoch).min(self.record.epoch)
        };
        if Planted::StaleSinceTooLate.is_planted() { self.record.epoch.next() } else { since.min(promised) }
    }

    /// Handles an answer of the cluster state.
    pub fn answered(&mut self, token: StateToken, answer: Answer, context: &Context) -> Decision {
        let Some(proposal) = &mut self.proposal else { return Decision::None };
        if proposal.token != token {
            return Decision::None;
        }
        match (proposal.reading, answer) {
            (false, Answer::Committed { revision }) => return self.adopt(revision),
            (false, Answer::Unknown) if Planted::GuessOnUnknown.is_planted() => {
                return self.adopt(self.revision + 1);
            }
            (true, Answer::Value(found)) => return self.compare_after_conflict(found, context),
            (_, Answer::Conflict) => {
                proposal.reading = true;
                proposal.token = self.requests.read(self.record.key());
            }
            _ => proposal.retry_at = Some(context.now.after(context.config.state_retry)),
        }
        Decision::None
    }

    fn compare_after_conflict(&mut self, found: Option<records::Versioned>, context: &Context) -> Decision {
        let Some(proposal) = self.proposal.take() else { return Decision::None };
        let Some(found) = found else { return Decision::Fenced };
        let Ok(record) = VolumeRecord::decode(&self.record.key(), &found.value) else {
            return Decision::Fenced;
        };
        if record == proposal.record {
            self.proposal = Some(proposal);
            return self.adopt(found.revision);
        }
        if record.coordinator != context.incarnation || record.epoch != self.record.epoch {
            return Decision::Fenced;
        }
        // An administrator changed fields that the coordinator does not decide: keep them and
        // propose anew.
        self.record.name = record.name;
        self.record.min_copies = record.min_copies;
        self.record.size_bytes = record.size_bytes;
        self.accept_images(&record.accepted_images);
        self.record.accepted_images = record.accepted_images;
        self.revision = found.revision;
        self.pending.take_back(proposal.changes);
        Decision::Refused
    }

    /// Makes the proposal the record.
    fn adopt(&mut self, revision: u64) -> Decision {
        let Some(proposal) = self.proposal.take() else { return Decision::None };
        assert!(revision > self.revision && proposal.record.epoch > self.record.epoch, "I2");
        self.load(proposal.record, revision);
        self.members.close_doubts(|disk| !self.in_sync.contains(&disk));
        let epoch = self.record.epoch;
        proposal.changes.disks(Change::Expel).for_each(|disk| self.members.begin_leaving(disk, epoch));
        for disk in proposal.changes.disks(Change::Rewind) {
            self.gone_back.forget(disk);
            self.members.forget_promise(disk);
        }
        for disk in proposal.changes.disks(Change::Keep) {
            if self.members.accept_doubt(disk) {
                continue;
            }
            self.gone_back.keep(disk);
            self.members.forget_promise(disk);
        }
        if proposal.changes.has(Change::Keep) || proposal.changes.has(Change::Join) {
            self.reconsider_held();
        }
        Decision::Committed(Box::new(proposal.changes))
    }

    /// Returns the disks that have yet to promise the epoch that expelled others. Until then no
    /// part counts these as out (I2).
    pub fn missing_promises(&self) -> Vec<DiskId> {
        let Some(epoch) = self.members.left_at() else { return Vec::new() };
        let in_sync = self.record.in_sync.iter().copied();
        // A disk that went back and is listed later promises the epoch before its listing.
        in_sync.filter(|disk| self.promised(*disk) < epoch && !self.gone_back.is_put_off(*disk)).collect()
    }

    /// Takes the expelled disks, once all remaining disks have promised the new epoch.
    pub fn take_expelled(&mut self) -> Vec<DiskId> {
        debug_assert!(self.missing_promises().is_empty());
        self.members.take_leaving()
    }

    /// Whether the record of the cluster state gives the volume to another coordinator. Another's
    /// record of the same epoch is newer than all of this one's own.
    pub fn is_lost_by(&self, record: &VolumeRecord, context: &Context) -> bool {
        let least = self.record.epoch.0 + u64::from(Planted::PassedOnAtTheSameEpoch.is_planted());
        self.is_ours(context) && record.coordinator != context.incarnation && record.epoch.0 >= least
    }
}
