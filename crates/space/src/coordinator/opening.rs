//! Taking a volume over.
//!
//! | step | ends when |
//! |---|---|
//! | read the record | the state answers |
//! | claim it: next epoch, our incarnation | committed; a conflict means that another took it: `Fenced` |
//! | open sessions: every in-sync disk promises the epoch | all did, or a committed record expels the missing disks: those of dead nodes at once, others after the grace period |
//! | list chunks of all in-sync disks | all answered, except disks that went back in time and may have a last copy |
//! | decide on one of these by the record | committed: connect and list again |
//! | wait until no earlier owner answers for the volume | the node says so of all nodes that the record names; or a lease from the claim on is over |
//!
//! Disks may be missing as long as every chunk surely has another in-sync copy: fewer disks than the
//! record's `min_holders`, or all disks of fewer nodes than its `min_homes`. With more missing, the
//! opening waits for them (the record never forgets the disk with the last copy, I5).
//!
//! Invariant: the chunk map is complete when the phase becomes `Serving`: every disk of the
//! record's in-sync set has been listed under our epoch, and every chunk whose copies may differ is
//! among the dirty regions (I5, I10).

use super::calls::{Failure, Owner};
use super::chunks::Chunk;
use super::context::Context;
use super::dirty_regions::DirtyRegions;
use super::fault_domains::may_miss;
use super::pending_changes::Change;
use super::shared::Shared;
use super::state::StateToken;
use super::{Event, Phase};
use crate::api::SpaceError;
use crate::message::{Answer, ReplicaOperation};
use crate::planted::Planted;
use crate::takeover::may_answer;
use records::{Condition, Record, VolumeRecord};
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch, Monotonic, NodeId, Stamp};

#[derive(Debug, Clone, PartialEq, Eq)]
enum OpeningStep {
    Read { token: StateToken },
    Claim { token: StateToken, proposal: Box<VolumeRecord> },
    ReadBack { token: StateToken, proposal: Box<VolumeRecord> },
    Connect { since: Monotonic },
    List { asked: BTreeSet<DiskId>, pending: BTreeSet<DiskId> },
    Lease { until: Monotonic },
    Permission,
    Done,
}

impl OpeningStep {
    /// Returns the request whose answer is awaited.
    fn token(&self) -> Option<StateToken> {
        match self {
            Self::Read { token } | Self::Claim { token, .. } | Self::ReadBack { token, .. } => Some(*token),
            Self::Connect { .. } | Self::List { .. } | Self::Lease { .. } | Self::Permission | Self::Done => {
                None
            }
        }
    }
}

/// Meaning of the cluster state's answer to the opening.
pub(super) enum Claim {
    /// Answer to a request of another part.
    NotOurs,
    Pending,
    /// The record is ours.
    Claimed,
    Failed(SpaceError),
}

/// The node that a volume is taken over from.
#[derive(Debug, Clone, Default)]
pub struct Predecessor {
    /// The node that the record must still name, unless it names this one.
    pub owner: Option<NodeId>,
    /// Whether the opening waits for a lease from the claim on, because nobody knows whether that node
    /// still answers. Otherwise the opener asks about all nodes that the record names, and says when the
    /// volume may serve ([`super::Coordinator::permit`]).
    pub is_waited_out: bool,
    /// Condition of the claim that holds only until the node comes back.
    pub fence: Option<Condition>,
}

/// A committed claim, which does not serve while another node may answer for the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The nodes that may still answer.
    pub before: Vec<NodeId>,
    /// Time at which the claim was known to be committed.
    pub at: Monotonic,
    /// The record's revision with the claim, or a later one.
    pub revision: u64,
}

pub(super) struct Opening {
    step: OpeningStep,
    retry_at: Option<Monotonic>,
    /// Whether copies may differ, since the volume was not closed.
    suspect: bool,
    /// Time of the answer to the claim.
    claimed_at: Monotonic,
    claimed: Option<Claimed>,
    /// Whether no other node answers for the volume.
    is_permitted: bool,
    /// The dead node that the volume is taken over from; `None` if no node's death led to the
    /// takeover.
    pub predecessor: Option<Predecessor>,
}

impl Opening {
    /// Begins with a request for the record.
    pub fn new(shared: &mut Shared) -> Self {
        let token = shared.membership.read_record();
        let claimed_at = shared.context.now;
        Self {
            step: OpeningStep::Read { token },
            retry_at: None,
            suspect: true,
            claimed_at,
            claimed: None,
            is_permitted: false,
            predecessor: None,
        }
    }

    pub fn next_timeout(&self, context: &Context) -> Option<Monotonic> {
        if context.phase != Phase::Opening {
            return None;
        }
        match &self.step {
            OpeningStep::Connect { since } => {
                let until = since.after(context.config.opening_grace);
                let later = context.now.after(context.config.reconnect_interval);
                Some(if until > context.now { until } else { later })
            }
            OpeningStep::Lease { until } => Some(*until),
            _ => self.retry_at,
        }
    }

    /// Returns the claim until it is permitted to serve.
    pub fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref().filter(|_| !self.is_permitted)
    }

    /// Notes that no other node answers for the volume any more.
    pub fn permit(&mut self) {
        self.is_permitted = true;
    }

    /// Returns the disks in sync that the opening waits for.
    pub fn missing(&self, shared: &Shared) -> Vec<DiskId> {
        let in_sync = shared.membership.record().in_sync.iter().copied();
        let is_connecting = matches!(self.step, OpeningStep::Connect { .. });
        in_sync.filter(|disk| is_connecting && !shared.calls.is_open(*disk)).collect()
    }

    fn read_record(&mut self, shared: &mut Shared) {
        self.step = OpeningStep::Read { token: shared.membership.read_record() };
        self.retry_at = None;
    }

    fn claim(&mut self, proposal: Box<VolumeRecord>, shared: &mut Shared) {
        let fence = self.predecessor.as_ref().and_then(|predecessor| predecessor.fence.as_ref());
        let fence = fence.filter(|_| !Planted::ClaimWithoutFence.is_planted());
        self.step =
            OpeningStep::Claim { token: shared.membership.replace_record(&proposal, fence), proposal };
        self.retry_at = None;
    }

    fn read_back(&mut self, proposal: Box<VolumeRecord>, shared: &mut Shared) {
        self.step = OpeningStep::ReadBack { token: shared.membership.read_record(), proposal };
        self.retry_at = None;
    }

    /// Handles an answer of the cluster state, if the opening waits for it.
    pub fn state_answered(
        &mut self,
        token: StateToken,
        answer: &records::Answer,
        shared: &mut Shared,
    ) -> Claim {
        if self.step.token() != Some(token) {
            return Claim::NotOurs;
        }
        let key = shared.membership.record().key();
        match (self.step.clone(), answer) {
            (OpeningStep::Read { .. }, records::Answer::Value(Some(found))) => {
                let Ok(record) = VolumeRecord::decode(&key, &found.value) else {
                    return Claim::Failed(SpaceError::Invalid("the volume's record does not parse"));
                };
                let is_another = |predecessor: &Predecessor| {
                    record.owner != predecessor.owner && record.owner != shared.context.config.node
                };
                if self.predecessor.as_ref().is_some_and(is_another) {
                    return Claim::Failed(SpaceError::Fenced);
                }
                if record.epoch >= Stamp::EPOCH_MAX {
                    return Claim::Failed(SpaceError::Invalid("the volume's epochs are used up"));
                }
                let mut proposal = Box::new(record.clone());
                proposal.epoch = record.epoch.next();
                proposal.coordinator = shared.context.incarnation;
                proposal.owner = shared.context.config.node;
                proposal.before = may_answer(&record, shared.context.config.node);
                shared.membership.load(record, found.revision);
                self.claim(proposal, shared);
            }
            (OpeningStep::Read { .. }, records::Answer::Value(None)) => {
                return Claim::Failed(SpaceError::Invalid("the volume does not exist"));
            }
            (OpeningStep::Claim { proposal, .. }, records::Answer::Committed { revision }) => {
                return self.claim_committed(*proposal, *revision, shared);
            }
            (OpeningStep::Claim { proposal, .. }, records::Answer::Conflict) => {
                self.read_back(proposal, shared)
            }
            (OpeningStep::ReadBack { proposal, .. }, records::Answer::Value(Some(found))) => {
                return match VolumeRecord::decode(&key, &found.value) {
                    Ok(record) if record == *proposal => {
                        self.claim_committed(*proposal, found.revision, shared)
                    }
                    _ => Claim::Failed(SpaceError::Fenced),
                };
            }
            (OpeningStep::ReadBack { .. }, records::Answer::Value(None)) => {
                return Claim::Failed(SpaceError::Fenced);
            }
            _ => self.retry_at = Some(shared.context.now.after(shared.context.config.state_retry)),
        }
        Claim::Pending
    }

    fn claim_committed(&mut self, record: VolumeRecord, revision: u64, shared: &mut Shared) -> Claim {
        debug_assert!(record.settled < record.epoch && record.coordinator == shared.context.incarnation);
        self.suspect = record.settled.next() < record.epoch;
        self.claimed_at = shared.context.now;
        let is_asked = self.predecessor.as_ref().is_some_and(|predecessor| !predecessor.is_waited_out);
        let before = record.before.clone();
        self.is_permitted = before.is_empty() || !is_asked || shared.context.config.lease.is_none();
        self.claimed = Some(Claimed { before, at: self.claimed_at, revision });
        let in_sync = record.in_sync.clone();
        shared.membership.load(record, revision);
        for disk in in_sync {
            shared.connect(disk);
        }
        self.step = OpeningStep::Connect { since: shared.context.now };
        Claim::Claimed
    }

    /// Continues as far as possible.
    pub fn drive(&mut self, shared: &mut Shared, dirty_regions: &mut DirtyRegions) {
        if shared.context.phase != Phase::Opening {
            return;
        }
        if self.retry_at.is_some_and(|at| at <= shared.context.now) {
            match self.step.clone() {
                OpeningStep::Claim { proposal, .. } => self.claim(proposal, shared),
                OpeningStep::ReadBack { proposal, .. } => self.read_back(proposal, shared),
                _ => self.read_record(shared),
            }
        }
        if let OpeningStep::Connect { since } = self.step {
            self.drive_connect(since, shared);
        }
        if let OpeningStep::List { asked, pending } = &self.step
            && pending.is_empty()
        {
            let (record, gone_back) = (shared.membership.record(), &shared.membership.gone_back);
            let is_listed = |disk: &DiskId| asked.contains(disk) || gone_back.is_put_off(*disk);
            if !record.in_sync.iter().all(is_listed) {
                // The right disk has meanwhile taken the place of one that went back.
                self.begin_again(shared, dirty_regions);
            } else if gone_back.has_put_off() {
                self.decide_on_gone_back(shared, dirty_regions);
            } else {
                self.listed(shared, dirty_regions);
            }
        }
        let is_over = match &self.step {
            OpeningStep::Lease { until } => *until <= shared.context.now,
            OpeningStep::Permission => self.is_permitted || Planted::PermissionSkipped.is_planted(),
            _ => false,
        };
        if is_over {
            self.step = OpeningStep::Done;
            shared.context.phase = Phase::Serving;
            shared
                .membership
                .gone_back
                .take_up()
                .into_iter()
                .for_each(|disk| shared.membership.want(Change::Rewind(disk)));
            let record = shared.membership.record();
            let is_named = record.owner == shared.context.config.node;
            let is_past =
                record.before.is_empty() && record.tried.is_empty() && record.accepted_images.is_empty();
            if !is_past || !is_named {
                // The record is to drop the earlier owners and accepted images, and to name this server if
                // it became a node meanwhile.
                shared.membership.want(Change::Rotate);
            }
            // Nodes may have died after their disks had listed their chunks.
            let in_sync = shared.membership.record().in_sync.iter().copied();
            let dead: Vec<DiskId> = in_sync.filter(|disk| shared.context.is_down(*disk)).collect();
            for disk in dead {
                shared.fail_disk(disk, "its node is down");
            }
            shared.mailbox.recheck = true;
            shared.mailbox.emit(Event::Serving { epoch: shared.membership.record().epoch });
        }
    }

    fn drive_connect(&mut self, since: Monotonic, shared: &mut Shared) {
        let in_sync = shared.membership.record().in_sync.iter().copied();
        let (put_off, in_sync): (BTreeSet<DiskId>, BTreeSet<DiskId>) =
            in_sync.partition(|disk| shared.membership.gone_back.is_put_off(*disk));
        let missing: Vec<DiskId> =
            in_sync.iter().copied().filter(|disk| !shared.calls.is_open(*disk)).collect();
        if missing.is_empty() && shared.membership.is_idle() {
            for &disk in &in_sync {
                assert!(
                    shared.membership.promised(disk) > Epoch(0),
                    "{disk} is listed before it has promised our epoch (I3)"
                );
                shared.call(Owner::Listing, disk, ReplicaOperation::Chunks);
            }
            self.step = OpeningStep::List { asked: in_sync.clone(), pending: in_sync };
            return;
        }
        // The opening does not wait for disks of dead nodes.
        let all_down = missing.iter().all(|disk| shared.context.is_down(*disk));
        let patient = !all_down && shared.context.now.since(since) < shared.context.config.opening_grace;
        // An accepted image stands in for disks that an administrator takes out.
        let gone_back = &shared.membership.gone_back;
        let are_lost = missing.iter().all(|disk| shared.context.is_lost(*disk));
        let stands_in = |disk: &DiskId| are_lost && gone_back.is_accepted_image(*disk);
        let not_accepted = put_off.iter().filter(|disk| !stands_in(disk));
        let may_miss = may_miss(shared.membership.record(), missing.iter().chain(not_accepted).copied())
            || Planted::MinHoldersIgnored.is_planted();
        if !patient && !missing.is_empty() && may_miss && shared.membership.is_idle() {
            for disk in missing {
                shared.membership.want(Change::Expel(disk));
            }
        }
    }

    pub fn listing_done(
        &mut self,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
        dirty_regions: &mut DirtyRegions,
    ) {
        let OpeningStep::List { pending, .. } = &mut self.step else { return };
        if !pending.remove(&disk) {
            return;
        }
        let Ok(Answer::Chunks(entries)) = result else {
            // The disk left while it listed: begin again with the remaining ones.
            return self.begin_again(shared, dirty_regions);
        };
        let suspect = self.suspect && !Planted::NoReconcile.is_planted();
        let marks = shared.membership.record().building.iter();
        let marked: BTreeSet<ChunkIndex> = marks.filter(|mark| mark.0 == disk).map(|mark| mark.1).collect();
        for entry in entries {
            if marked.contains(&entry.chunk) {
                continue;
            }
            let chunk = shared.chunks.map.entry(entry.chunk).or_insert_with(|| Chunk::new(entry.append));
            chunk.add_holder(disk);
            if suspect {
                dirty_regions.suspect(entry.chunk);
            }
        }
        self.drive(shared, dirty_regions);
    }

    /// Decides on one disk that went back in time, now that all others in sync are listed, unless one of
    /// those leaves.
    fn decide_on_gone_back(&mut self, shared: &mut Shared, dirty_regions: &mut DirtyRegions) {
        if shared.membership.is_idle() {
            let known = shared.chunks.map.keys().copied();
            let listed = known.filter(|chunk| !shared.holders_of(*chunk).is_empty()).collect();
            if let Some(disk) = shared.membership.gone_back.decide_by(listed) {
                shared.membership.want(Change::Rewind(disk));
            }
        }
        self.begin_again(shared, dirty_regions);
    }

    /// Waits for the disks in sync once more, and lists their chunks again.
    fn begin_again(&mut self, shared: &mut Shared, dirty_regions: &mut DirtyRegions) {
        shared.chunks.map.clear();
        dirty_regions.clear();
        self.step = OpeningStep::Connect { since: shared.context.now };
    }

    fn listed(&mut self, shared: &mut Shared, dirty_regions: &mut DirtyRegions) {
        // Blocks that may differ were written after the settled epoch and before this opening. One copy alone
        // cannot differ.
        let chunks = &shared.chunks;
        dirty_regions.clear_single_copies(|index| chunks.get(index).map_or(0, |chunk| chunk.holders.len()));
        let now = shared.context.now;
        let is_waited_out = self.predecessor.as_ref().is_none_or(|predecessor| predecessor.is_waited_out);
        self.step = match shared.context.config.lease {
            None => OpeningStep::Lease { until: now },
            Some(lease) if is_waited_out => {
                OpeningStep::Lease { until: self.claimed_at.after(lease).max(now) }
            }
            Some(_) => OpeningStep::Permission,
        };
        // Unless the volume was closed, the last stamps are still to be settled.
        let record = shared.membership.record();
        let stamp = if self.suspect { record.epoch } else { record.settled };
        shared.membership.begin_stamps(stamp);
        self.drive(shared, dirty_regions);
    }
}
