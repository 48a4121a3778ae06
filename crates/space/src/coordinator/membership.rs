//! Changing the record: who is in sync, under which epoch.
//!
//! One proposal is in flight at a time. It carries everything wanted at that moment, has the next epoch, and is applied by
//! compare-and-swap with the revision last seen (I2). What becomes of it:
//!
//! | answer | the record in the state | the coordinator |
//! |---|---|---|
//! | `Committed` | the proposal | goes on under it |
//! | `Unknown` | old or proposed, perhaps later | proposes the same again: at most one of the two is applied |
//! | `Conflict` | the proposal | it was applied by an earlier try: goes on under it |
//! | `Conflict` | ours, otherwise changed by an administrator | takes that change over and proposes anew |
//! | `Conflict` | another coordinator's | stops: `Fenced` |
//!
//! Until the answer is known, a disk counts as required if the old *or* the proposed record has it in sync.

use super::building::Mark;
use super::calls::Owner;
use super::chunks::ChunkState;
use super::{Coordinator, Event, Phase};
use crate::api::{SpaceError, SpaceReply};
use crate::message::Operation;
use crate::planted::Planted;
use cluster::{Answer, Record, StaleDisk, Transaction, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{ChunkIndex, DiskId, Epoch, Monotonic};

/// What the coordinator wants the record to say.
#[derive(Debug, Clone, Default)]
struct Wants {
    expel: BTreeSet<DiskId>,
    join: BTreeSet<DiskId>,
    /// Disks that the volume may be given slabs of.
    add: BTreeSet<DiskId>,
    /// Disks that hold nothing of the volume any more and are to be forgotten.
    remove: BTreeSet<DiskId>,
    /// Copies that begin not to count.
    mark: BTreeSet<(DiskId, ChunkIndex)>,
    /// Copies that count from now on, or that are gone.
    unmark: BTreeSet<(DiskId, ChunkIndex)>,
    /// Fewer copies per chunk than the record promises.
    lower: Option<u8>,
    size_bytes: Option<u64>,
    /// Disks that went back in time: what they have missed is counted from the beginning.
    rewind: BTreeSet<DiskId>,
    /// A new epoch, and what is settled.
    rotate: bool,
}

impl Wants {
    fn is_empty(&self) -> bool {
        self.expel.is_empty()
            && self.join.is_empty()
            && self.add.is_empty()
            && self.remove.is_empty()
            && self.mark.is_empty()
            && self.unmark.is_empty()
            && self.lower.is_none()
            && self.size_bytes.is_none()
            && self.rewind.is_empty()
            && !self.rotate
    }

    /// Copies do not come to count after all, and others are not given up for them.
    fn forget_marks(&mut self, changes: impl IntoIterator<Item = (Option<Mark>, Option<Mark>)>) {
        for (unmark, mark) in changes {
            self.unmark.retain(|wanted| Some(*wanted) != unmark);
            self.mark.retain(|wanted| Some(*wanted) != mark);
        }
    }
}

struct Proposal {
    record: VolumeRecord,
    wants: Wants,
    /// When it is sent again; none: an answer is awaited.
    retry_at: Option<Monotonic>,
    token: u64,
    /// The record is being read after a conflict.
    reading: bool,
    sent_at: Monotonic,
}

#[derive(Default)]
pub(super) struct Membership {
    wants: Wants,
    proposal: Option<Proposal>,
    /// Disks that a committed record has expelled; the remaining ones have yet to promise this epoch.
    expelled: Vec<(DiskId, Epoch)>,
    /// Disks that went back in time, until the record says so: they are not spoken to before.
    went_back: BTreeSet<DiskId>,
    /// Disks that went back in time and have the last copy of something.
    pub accepted_back: BTreeSet<DiskId>,
    /// Promises asked of disks.
    asked: BTreeMap<DiskId, Epoch>,
    pub requests: VecDeque<(u64, cluster::Request)>,
    next_token: u64,
    /// When the record was last confirmed to be ours.
    confirmed_at: Option<Monotonic>,
    confirming: Option<(u64, Monotonic)>,
    /// When that was last asked, whatever became of it.
    asked_to_confirm_at: Option<Monotonic>,
    /// Earliest next rotation.
    rotate_at: Monotonic,
    /// The highest epoch that a write was stamped with.
    pub last_stamp: Epoch,
}

impl Membership {
    pub fn want_expel(&mut self, disk: DiskId) {
        self.wants.join.remove(&disk);
        self.wants.expel.insert(disk);
    }

    /// The disk went back in time.
    pub fn wait_for_record(&mut self, disk: DiskId) {
        self.went_back.insert(disk);
        self.wants.join.remove(&disk);
        self.wants.rewind.insert(disk);
    }

    /// The state has not answered yet, or disks have yet to promise what it said.
    pub fn is_changing(&self) -> bool {
        self.proposal.is_some() || !self.expelled.is_empty()
    }

    pub fn waits_for_record(&self, disk: DiskId) -> bool {
        self.went_back.contains(&disk)
    }

    /// What was wanted for copies whose disk left is not wanted any more.
    pub fn forget_marks(&mut self, changes: impl IntoIterator<Item = (Option<Mark>, Option<Mark>)>) {
        self.wants.forget_marks(changes);
    }

    pub fn cancel_join(&mut self, disk: DiskId) {
        self.wants.join.remove(&disk);
    }

    /// The disk is back before the record was changed.
    pub fn cancel_expel(&mut self, disk: DiskId) {
        self.wants.expel.remove(&disk);
    }

    pub fn want_lower(&mut self, holders: u8) {
        self.wants.lower = Some(self.wants.lower.map_or(holders, |lower| lower.min(holders)));
    }

    /// The disk is out of the record, and others have yet to promise so: what was sent to it still counts as waiting.
    pub fn is_leaving(&self, disk: DiskId) -> bool {
        self.expelled.iter().any(|(leaving, _)| *leaving == disk)
    }

    pub fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn proposes_join(&self, disk: DiskId) -> bool {
        self.proposal.as_ref().is_some_and(|proposal| proposal.record.in_sync.contains(&disk))
    }
}

impl Coordinator {
    /// Whether an acknowledgement may depend on the disk.
    pub(super) fn is_required(&self, disk: DiskId) -> bool {
        self.record.in_sync.contains(&disk) || self.members.proposes_join(disk)
    }

    /// Whether the disk is out as soon as the state commits what was proposed.
    pub(super) fn proposes_to_leave(&self, disk: DiskId) -> bool {
        let wants = self.members.proposal.as_ref().map(|proposal| &proposal.wants);
        wants.is_some_and(|wants| wants.expel.contains(&disk) || wants.remove.contains(&disk))
    }

    /// Disks whose copy of the chunk does not count by the record, or may soon not.
    pub(super) fn marked_for(&self, index: ChunkIndex) -> Vec<DiskId> {
        let proposed = self.members.proposal.iter().flat_map(|proposal| &proposal.wants.mark);
        let marks = self.record.building.iter().chain(&self.members.wants.mark).chain(proposed);
        marks.filter(|(_, chunk)| *chunk == index).map(|(disk, _)| *disk).collect()
    }

    /// The fewest in-sync copies that an acknowledged write may rely on, by the record and by what is proposed.
    pub(super) fn promised_holders(&self) -> u8 {
        let proposed = self.members.proposal.as_ref().map_or(0, |proposal| proposal.record.min_holders);
        self.record.min_holders.max(proposed)
    }

    pub(super) fn want_join(&mut self, disk: DiskId) {
        self.members.wants.join.insert(disk);
    }

    pub(super) fn want_mark(&mut self, disk: DiskId, chunk: ChunkIndex) {
        self.members.wants.mark.insert((disk, chunk));
    }

    pub(super) fn want_unmark(&mut self, disk: DiskId, chunk: ChunkIndex) {
        self.members.wants.unmark.insert((disk, chunk));
    }

    pub(super) fn want_add(&mut self, disk: DiskId) {
        self.members.wants.remove.remove(&disk);
        let known =
            self.record.in_sync.contains(&disk) || self.record.stale.iter().any(|stale| stale.disk == disk);
        if !known || self.proposes_to_leave(disk) {
            self.members.wants.add.insert(disk);
        }
    }

    pub(super) fn want_remove(&mut self, disk: DiskId) {
        self.members.wants.remove.insert(disk);
    }

    pub(super) fn want_rotation(&mut self) {
        self.members.wants.rotate = true;
    }

    pub(super) fn fewest_holders_of_record(&self) -> u8 {
        self.fewest_holders(&self.record)
    }

    pub(super) fn want_size(&mut self, size_bytes: u64) {
        self.members.wants.size_bytes = Some(size_bytes);
    }

    pub(super) fn membership_is_idle(&self) -> bool {
        self.members.wants.is_empty() && self.members.proposal.is_none() && self.members.expelled.is_empty()
    }

    pub(super) fn lease_is_valid(&self) -> bool {
        match (self.config.lease, self.members.confirmed_at) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(lease), Some(at)) => self.now.since(at) < lease,
        }
    }

    pub(super) fn members_next_timeout(&self) -> Option<Monotonic> {
        let retry = self.members.proposal.as_ref().and_then(|proposal| proposal.retry_at);
        let rotates = self.serving()
            && self.members.proposal.is_none()
            && self.unclean.is_empty()
            && self.record.settled < self.members.last_stamp;
        let soon = self.now.after(std::time::Duration::from_nanos(1));
        let rotate = rotates.then_some(self.members.rotate_at.max(soon));
        let confirm = self.config.lease.map(|lease| {
            let last = self.members.asked_to_confirm_at.max(self.members.confirmed_at);
            last.map_or(self.now.after(lease / 4), |at| at.after(lease / 4))
        });
        [retry, rotate, confirm].into_iter().flatten().min()
    }

    /// Proposes what is wanted, and finishes what was committed.
    pub(super) fn drive_membership(&mut self) {
        if matches!(self.phase, Phase::Stopped(_) | Phase::Closed)
            || self.record.coordinator != self.incarnation
        {
            return;
        }
        self.confirm_lease();
        self.finish_expelled();
        if let Some(proposal) = &self.members.proposal {
            if proposal.retry_at.is_some_and(|at| at <= self.now) {
                self.send_proposal();
            }
            return;
        }
        let closing = self.phase == Phase::Closing && self.record.epoch <= self.members.last_stamp;
        let rotates = self.serving()
            && self.record.settled < self.members.last_stamp
            && self.unclean.is_empty()
            && (self.members.rotate_at <= self.now || closing);
        if rotates {
            self.members.wants.rotate = true;
        }
        if self.members.wants.is_empty() {
            return;
        }
        let Some((record, taken)) = self.next_record() else { return };
        let proposal =
            Proposal { record, wants: taken, retry_at: None, token: 0, reading: false, sent_at: self.now };
        self.members.proposal = Some(proposal);
        self.members.rotate_at = self.now.after(self.config.rotate_interval);
        self.send_proposal();
    }

    fn send_proposal(&mut self) {
        let token = self.members.token();
        let Some(proposal) = &mut self.members.proposal else { return };
        proposal.token = token;
        proposal.retry_at = None;
        proposal.reading = false;
        proposal.sent_at = self.now;
        let key = proposal.record.key();
        let transaction =
            Transaction::default().when(key.clone(), self.revision).put(key, proposal.record.encode());
        self.members.requests.push_back((token, cluster::Request::Commit(transaction)));
    }

    /// The record with everything applied that can be. What cannot be yet stays wanted.
    fn next_record(&mut self) -> Option<(VolumeRecord, Wants)> {
        let mut wants = std::mem::take(&mut self.members.wants);
        let mut kept = Wants::default();
        let mut next = self.record.clone();
        next.epoch = self.record.epoch.next();
        let mut expelled = BTreeSet::new();
        for disk in std::mem::take(&mut wants.expel) {
            if !next.in_sync.contains(&disk) {
                // It was about to join, and did not.
                self.abandon_resync(disk);
                self.release_calls(disk);
                continue;
            }
            if !self.can_expel(&next.in_sync, disk, expelled.len()) {
                kept.expel.insert(disk);
                continue;
            }
            let (since, promised) = (self.missed_since(), self.known_promise(disk));
            next.in_sync.retain(|member| *member != disk);
            next.stale.push(StaleDisk { disk, since, promised });
            expelled.insert(disk);
        }
        for disk in wants.rewind.clone() {
            if next.in_sync.contains(&disk) {
                if !self.can_expel(&next.in_sync, disk, expelled.len()) {
                    // Nobody else has what it has: that is all there is left.
                    self.members.went_back.remove(&disk);
                    self.members.accepted_back.insert(disk);
                    wants.rewind.remove(&disk);
                    self.forget_promise(disk);
                    continue;
                }
                next.in_sync.retain(|member| *member != disk);
                next.stale.push(StaleDisk { disk, since: Epoch(0), promised: Epoch(0) });
                expelled.insert(disk);
            }
            for stale in next.stale.iter_mut().filter(|stale| stale.disk == disk) {
                (stale.since, stale.promised) = (Epoch(0), Epoch(0));
            }
        }
        wants.expel = expelled;
        for &disk in &wants.join {
            next.stale.retain(|stale| stale.disk != disk);
            if !next.in_sync.contains(&disk) {
                next.in_sync.push(disk);
            }
        }
        let known =
            |disk: &DiskId| next.in_sync.contains(disk) || next.stale.iter().any(|stale| stale.disk == *disk);
        wants.add.retain(|disk| !known(disk));
        // Whatever it may hold of the volume is looked at before it counts.
        next.stale.extend(wants.add.iter().map(|&disk| StaleDisk {
            disk,
            since: Epoch(0),
            promised: Epoch(0),
        }));
        for &disk in &wants.remove {
            next.in_sync.retain(|member| *member != disk);
            next.stale.retain(|stale| stale.disk != disk);
        }
        next.in_sync.sort_unstable();
        wants.forget_marks(self.hold_back_marks(&next.in_sync));
        for mark in &wants.mark {
            if !next.building.contains(mark) {
                next.building.push(*mark);
            }
        }
        next.building.retain(|mark| !wants.unmark.contains(mark));
        let members: BTreeSet<DiskId> =
            next.in_sync.iter().copied().chain(next.stale.iter().map(|stale| stale.disk)).collect();
        next.building.retain(|(disk, _)| members.contains(disk));
        if let Some(size_bytes) = wants.size_bytes {
            next.size_bytes = size_bytes;
        }
        if self.serving() {
            let lower = wants.lower.unwrap_or(u8::MAX);
            next.min_holders = self.fewest_holders(&next).min(lower);
        } else {
            next.min_holders = self.record.min_holders.saturating_sub(wants.expel.len() as u8);
        }
        next.promised = self.promised_by(&next.in_sync);
        if self.serving() && (self.unclean.is_empty() || Planted::SettledEarly.is_planted()) {
            let pending = self.lowest_stamp().unwrap_or(self.record.epoch);
            next.settled = next.settled.max(Epoch(pending.0.saturating_sub(1)));
            if self.phase == Phase::Closing && self.is_drained() && self.is_sealed() {
                next.settled = next.epoch;
            }
        }
        let nothing = Wants { expel: kept.expel.clone(), ..Wants::default() };
        self.members.wants = nothing;
        if wants.is_empty() {
            return None;
        }
        Some((next, wants))
    }

    /// What all these disks have promised, as far as it is known.
    fn promised_by(&self, disks: &[DiskId]) -> Epoch {
        disks.iter().map(|disk| self.known_promise(*disk)).min().unwrap_or(self.record.promised)
    }

    /// Whether every disk in sync that can be reached has promised an epoch that no write was stamped with: an image of it that lacks
    /// a write has then promised less, and is known as such if it is ever put back.
    fn is_sealed(&self) -> bool {
        self.record.epoch > self.members.last_stamp && self.unpromised().is_empty()
    }

    /// Disks in sync, which can be reached, that have not promised the record's epoch.
    fn unpromised(&self) -> Vec<DiskId> {
        let open = self.record.in_sync.iter().copied().filter(|disk| self.calls.is_open(*disk));
        open.filter(|disk| self.calls.promised(*disk) < self.record.epoch).collect()
    }

    /// Has the disks promise the record's epoch.
    fn ask_for_promises(&mut self, disks: Vec<DiskId>) {
        let epoch = self.record.epoch;
        for disk in disks {
            let asked = self.members.asked.get(&disk).copied().unwrap_or_default();
            if asked < epoch {
                self.members.asked.insert(disk, epoch);
                self.call(Owner::Promise(epoch), disk, Operation::Promise);
            }
        }
    }

    /// Whether every chunk keeps an in-sync copy without the disk, and without the `others` that leave together with it. At the
    /// opening, when the chunks are not known, the record's `min_holders` decides.
    fn can_expel(&self, in_sync: &[DiskId], disk: DiskId, others: usize) -> bool {
        if in_sync.len() < 2 {
            return false;
        }
        if !self.serving() {
            return others + 1 < usize::from(self.record.min_holders)
                || Planted::MinHoldersIgnored.is_planted();
        }
        self.chunks.values().all(|chunk| {
            matches!(chunk.state, ChunkState::Allocating { .. })
                || !chunk.holders.contains(&disk)
                || chunk.holders.iter().any(|other| *other != disk && in_sync.contains(other))
        })
    }

    /// The lowest epoch of a write that the disk may have missed (I4), or that it has and others may lose in a crash.
    fn missed_since(&self) -> Epoch {
        let since = if !self.serving() || !self.unclean.is_empty() {
            self.record.settled.next().min(self.record.epoch)
        } else {
            self.lowest_stamp().unwrap_or(self.record.epoch).min(self.record.epoch)
        };
        if Planted::StaleSinceTooLate.is_planted() { self.record.epoch.next() } else { since }
    }

    fn fewest_holders(&self, record: &VolumeRecord) -> u8 {
        let copies = record.resiliency.copies();
        // A chunk that is being given slabs holds nothing that was acknowledged.
        let allocated =
            self.chunks.values().filter(|chunk| !matches!(chunk.state, ChunkState::Allocating { .. }));
        let counts = allocated.map(|chunk| {
            chunk.holders.iter().filter(|disk| record.in_sync.contains(disk)).count().min(usize::from(copies))
                as u8
        });
        counts.min().unwrap_or(copies)
    }

    pub(super) fn handle_state_answer(&mut self, token: u64, answer: Answer) {
        if self.opening_state_answer(token, &answer) {
            return;
        }
        if let Some((confirming, asked_at)) = self.members.confirming
            && confirming == token
        {
            self.members.confirming = None;
            self.lease_answered(asked_at, &answer);
            return;
        }
        let Some(proposal) = &mut self.members.proposal else { return };
        if proposal.token != token {
            return;
        }
        let retry_at = self.now.after(self.config.state_retry);
        match (proposal.reading, answer) {
            (false, Answer::Committed { revision }) => self.adopt(revision),
            (false, Answer::Unknown) if Planted::GuessOnUnknown.is_planted() => {
                let revision = self.revision + 1;
                self.adopt(revision);
            }
            (true, Answer::Value(found)) => self.compare_after_conflict(found),
            (_, Answer::Conflict) => {
                let token = self.members.token();
                if let Some(proposal) = &mut self.members.proposal {
                    proposal.reading = true;
                    proposal.token = token;
                }
                let key = self.record.key();
                self.members.requests.push_back((token, cluster::Request::Get { key }));
            }
            _ => proposal.retry_at = Some(retry_at),
        }
    }

    fn compare_after_conflict(&mut self, found: Option<cluster::Versioned>) {
        let Some(proposal) = self.members.proposal.take() else { return };
        let Some(found) = found else { return self.stop(SpaceError::Fenced) };
        let Ok(record) = VolumeRecord::decode(&self.record.key(), &found.value) else {
            return self.stop(SpaceError::Fenced);
        };
        if record == proposal.record {
            self.members.proposal = Some(proposal);
            return self.adopt(found.revision);
        }
        if record.coordinator != self.incarnation || record.epoch != self.record.epoch {
            return self.stop(SpaceError::Fenced);
        }
        // An administrator changed what the coordinator does not decide: keep it and propose anew.
        self.record.name = record.name;
        self.record.min_copies = record.min_copies;
        self.record.size_bytes = record.size_bytes;
        self.revision = found.revision;
        let wants = proposal.wants;
        self.members.wants.expel.extend(wants.expel);
        self.members.wants.join.extend(wants.join);
        self.members.wants.add.extend(wants.add);
        self.members.wants.remove.extend(wants.remove);
        self.members.wants.mark.extend(wants.mark);
        self.members.wants.unmark.extend(wants.unmark);
        self.members.wants.rewind.extend(wants.rewind);
        self.members.wants.rotate |= wants.rotate;
        self.members.wants.size_bytes = self.members.wants.size_bytes.or(wants.size_bytes);
        if let Some(lower) = wants.lower {
            self.members.want_lower(lower);
        }
        self.leaving_decided();
        self.drive_membership();
    }

    /// The proposal is the record.
    fn adopt(&mut self, revision: u64) {
        let Some(proposal) = self.members.proposal.take() else { return };
        self.record = proposal.record;
        self.revision = revision;
        self.members.confirmed_at = self.members.confirmed_at.max(Some(proposal.sent_at));
        let epoch = self.record.epoch;
        for &disk in &proposal.wants.expel {
            self.members.expelled.push((disk, epoch));
            self.begin_absence(disk);
            for chunk in self.chunks.values_mut() {
                chunk.holders.retain(|holder| *holder != disk);
            }
            self.absent_since.insert(disk, self.now);
            if let Some(stale) = self.record.stale.iter().find(|stale| stale.disk == disk) {
                self.disk_left(disk, stale.since);
            }
        }
        self.refuse_held_back();
        for &disk in &proposal.wants.rewind {
            self.members.went_back.remove(&disk);
            self.forget_promise(disk);
        }
        for &disk in &proposal.wants.join {
            self.resync_joined(disk);
        }
        for disk in proposal.wants.add.iter().chain(&proposal.wants.remove) {
            self.absences.forget(*disk);
        }
        for &disk in &proposal.wants.add {
            self.absent_since.insert(disk, self.now);
            self.connect(disk);
        }
        for &(disk, chunk) in &proposal.wants.mark {
            self.build_marked(disk, chunk);
        }
        for &(disk, chunk) in &proposal.wants.unmark {
            self.build_unmarked(disk, chunk);
        }
        self.emit(Event::RecordChanged);
        self.recheck = true;
        self.leaving_decided();
        self.finish_expelled();
        if self.serving() && self.members.expelled.is_empty() {
            // What the disks have promised by the next record is that much newer.
            self.ask_for_promises(self.unpromised());
        }
    }

    /// Answers that wait for the lease were right under the record before: where some chunk has fewer copies than an answer
    /// promises, nobody knows whether they are still.
    fn refuse_held_back(&mut self) {
        if self.serving() && self.fewest_holders_of_record() < self.record.min_copies {
            for held in self.completions.iter_mut().filter(|held| matches!(held.result, Ok(SpaceReply::Done)))
            {
                held.result = Err(SpaceError::Unavailable);
            }
        }
    }

    /// An expelled disk is waited for until all remaining ones have promised the epoch that is without it.
    fn finish_expelled(&mut self) {
        let Some(epoch) = self.members.expelled.iter().map(|(_, epoch)| *epoch).max() else { return };
        let promised = |disk: &DiskId| self.calls.promised(*disk) >= epoch;
        let missing: Vec<DiskId> =
            self.record.in_sync.iter().copied().filter(|disk| !promised(disk)).collect();
        if missing.is_empty() {
            for (disk, _) in std::mem::take(&mut self.members.expelled) {
                self.forget_mirrors(disk);
                self.release_calls(disk);
            }
        } else {
            self.ask_for_promises(missing);
        }
    }

    fn confirm_lease(&mut self) {
        let Some(lease) = self.config.lease else { return };
        let last = self.members.asked_to_confirm_at.max(self.members.confirmed_at);
        if last.is_some_and(|at| self.now.since(at) < lease / 4) {
            return;
        }
        let token = self.members.token();
        self.members.confirming = Some((token, self.now));
        self.members.asked_to_confirm_at = Some(self.now);
        let key = self.record.key();
        self.members.requests.push_back((token, cluster::Request::Get { key }));
    }

    fn lease_answered(&mut self, asked_at: Monotonic, answer: &Answer) {
        let Answer::Value(Some(found)) = answer else { return };
        match VolumeRecord::decode(&self.record.key(), &found.value) {
            Ok(record) if record.coordinator == self.incarnation => {
                self.members.confirmed_at = self.members.confirmed_at.max(Some(asked_at));
            }
            Ok(record) if record.epoch > self.record.epoch => self.stop(SpaceError::Fenced),
            _ => {}
        }
    }

    pub(super) fn drive_closing(&mut self) {
        if self.phase != Phase::Closing || !self.is_drained() || !self.unclean.is_empty() {
            return;
        }
        if self.record.settled >= self.record.epoch {
            self.phase = Phase::Closed;
        } else if self.record.epoch > self.members.last_stamp && !self.is_sealed() {
            self.ask_for_promises(self.unpromised());
        } else if self.members.proposal.is_none() {
            self.members.wants.rotate = true;
            self.drive_membership();
        }
    }
}
