//! Taking a volume over.
//!
//! | step | ends when |
//! |---|---|
//! | read the record | the state answers |
//! | claim it: next epoch, our incarnation | committed; a conflict means that another took it: `Fenced` |
//! | open sessions: every in-sync disk promises the epoch | all did, or a committed record expels the missing disks: after a while, and at once those of dead nodes |
//! | list chunks of all in-sync disks | all answered, except disks that went back in time and may have a last copy |
//! | decide on one of these by the record | committed: connect and list again |
//! | wait until no earlier owner answers for the volume | the node says so of all nodes that the record names; or a lease from the claim on is over |
//!
//! Disks may be missing as long as every chunk surely has another in-sync copy: fewer disks than the
//! record's `min_holders`, or all disks of fewer nodes than its `min_homes`. With more missing, the
//! opening waits for them (the record never forgets the disk with the last copy, I5).
//!
//! Invariant: the chunk map is complete when the phase becomes `Serving`: every disk of the record's
//! in-sync set has been listed under our epoch, and every chunk whose copies may differ is among the
//! suspects (I5, I10).

use super::calls::{Failure, Owner};
use super::chunks::Chunk;
use super::ground::Ground;
use super::homes::may_miss;
use super::pending_changes::Change;
use super::setting::Setting;
use super::state::StateToken;
use super::suspects::Suspects;
use super::{Event, Phase};
use crate::api::SpaceError;
use crate::message::{Answer, Operation};
use crate::planted::Planted;
use crate::takeover::may_answer;
use records::{Condition, Record, VolumeRecord};
use std::collections::BTreeSet;
use types::{ChunkIndex, DiskId, Epoch, Monotonic, NodeId, Stamp};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Read { token: StateToken },
    Claim { token: StateToken, proposal: Box<VolumeRecord> },
    ReadBack { token: StateToken, proposal: Box<VolumeRecord> },
    Connect { since: Monotonic },
    List { asked: BTreeSet<DiskId>, pending: BTreeSet<DiskId> },
    Lease { until: Monotonic },
    Permission,
    Done,
}

impl Step {
    /// Returns the request that is awaited.
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
    /// Answer to another request.
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
    step: Step,
    retry_at: Option<Monotonic>,
    /// Whether copies may differ, since the volume was not closed.
    suspect: bool,
    /// Time of the answer to the claim.
    claimed_at: Monotonic,
    claimed: Option<Claimed>,
    /// Whether no other node answers for the volume.
    is_permitted: bool,
    /// The node that the volume is taken over from, if the state of nodes led to the takeover.
    pub predecessor: Option<Predecessor>,
}

impl Opening {
    /// Begins to read the record.
    pub fn new(ground: &mut Ground) -> Self {
        let token = ground.membership.read_record();
        let claimed_at = ground.setting.now;
        Self {
            step: Step::Read { token },
            retry_at: None,
            suspect: true,
            claimed_at,
            claimed: None,
            is_permitted: false,
            predecessor: None,
        }
    }

    pub fn next_timeout(&self, setting: &Setting) -> Option<Monotonic> {
        if setting.phase != Phase::Opening {
            return None;
        }
        match &self.step {
            Step::Connect { since } => {
                let until = since.after(setting.config.opening_grace);
                let later = setting.now.after(setting.config.reconnect_interval);
                Some(if until > setting.now { until } else { later })
            }
            Step::Lease { until } => Some(*until),
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
    pub fn missing(&self, ground: &Ground) -> Vec<DiskId> {
        let in_sync = ground.membership.record().in_sync.iter().copied();
        let is_connecting = matches!(self.step, Step::Connect { .. });
        in_sync.filter(|disk| is_connecting && !ground.calls.is_open(*disk)).collect()
    }

    fn read_record(&mut self, ground: &mut Ground) {
        self.step = Step::Read { token: ground.membership.read_record() };
        self.retry_at = None;
    }

    fn claim(&mut self, proposal: Box<VolumeRecord>, ground: &mut Ground) {
        let fence = self.predecessor.as_ref().and_then(|predecessor| predecessor.fence.as_ref());
        let fence = fence.filter(|_| !Planted::ClaimWithoutFence.is_planted());
        self.step = Step::Claim { token: ground.membership.replace_record(&proposal, fence), proposal };
        self.retry_at = None;
    }

    fn read_back(&mut self, proposal: Box<VolumeRecord>, ground: &mut Ground) {
        self.step = Step::ReadBack { token: ground.membership.read_record(), proposal };
        self.retry_at = None;
    }

    /// Takes an answer of the cluster state, if the opening waits for it.
    pub fn state_answered(
        &mut self,
        token: StateToken,
        answer: &records::Answer,
        ground: &mut Ground,
    ) -> Claim {
        if self.step.token() != Some(token) {
            return Claim::NotOurs;
        }
        let key = ground.membership.record().key();
        match (self.step.clone(), answer) {
            (Step::Read { .. }, records::Answer::Value(Some(found))) => {
                let Ok(record) = VolumeRecord::decode(&key, &found.value) else {
                    return Claim::Failed(SpaceError::Invalid("the volume's record does not parse"));
                };
                let is_another = |predecessor: &Predecessor| {
                    record.owner != predecessor.owner && record.owner != ground.setting.config.node
                };
                if self.predecessor.as_ref().is_some_and(is_another) {
                    return Claim::Failed(SpaceError::Fenced);
                }
                if record.epoch >= Stamp::EPOCH_MAX {
                    return Claim::Failed(SpaceError::Invalid("the volume's epochs are used up"));
                }
                let mut proposal = Box::new(record.clone());
                proposal.epoch = record.epoch.next();
                proposal.coordinator = ground.setting.incarnation;
                proposal.owner = ground.setting.config.node;
                proposal.before = may_answer(&record, ground.setting.config.node);
                ground.membership.load(record, found.revision);
                self.claim(proposal, ground);
            }
            (Step::Read { .. }, records::Answer::Value(None)) => {
                return Claim::Failed(SpaceError::Invalid("the volume does not exist"));
            }
            (Step::Claim { proposal, .. }, records::Answer::Committed { revision }) => {
                return self.claim_committed(*proposal, *revision, ground);
            }
            (Step::Claim { proposal, .. }, records::Answer::Conflict) => self.read_back(proposal, ground),
            (Step::ReadBack { proposal, .. }, records::Answer::Value(Some(found))) => {
                return match VolumeRecord::decode(&key, &found.value) {
                    Ok(record) if record == *proposal => {
                        self.claim_committed(*proposal, found.revision, ground)
                    }
                    _ => Claim::Failed(SpaceError::Fenced),
                };
            }
            (Step::ReadBack { .. }, records::Answer::Value(None)) => {
                return Claim::Failed(SpaceError::Fenced);
            }
            _ => self.retry_at = Some(ground.setting.now.after(ground.setting.config.state_retry)),
        }
        Claim::Pending
    }

    fn claim_committed(&mut self, record: VolumeRecord, revision: u64, ground: &mut Ground) -> Claim {
        debug_assert!(record.settled < record.epoch && record.coordinator == ground.setting.incarnation);
        self.suspect = record.settled.next() < record.epoch;
        self.claimed_at = ground.setting.now;
        let is_asked = self.predecessor.as_ref().is_some_and(|predecessor| !predecessor.is_waited_out);
        let before = record.before.clone();
        self.is_permitted = before.is_empty() || !is_asked || ground.setting.config.lease.is_none();
        self.claimed = Some(Claimed { before, at: self.claimed_at, revision });
        let in_sync = record.in_sync.clone();
        ground.membership.load(record, revision);
        for disk in in_sync {
            ground.connect(disk);
        }
        self.step = Step::Connect { since: ground.setting.now };
        Claim::Claimed
    }

    /// Continues as far as possible.
    pub fn drive(&mut self, ground: &mut Ground, suspects: &mut Suspects) {
        if ground.setting.phase != Phase::Opening {
            return;
        }
        if self.retry_at.is_some_and(|at| at <= ground.setting.now) {
            match self.step.clone() {
                Step::Claim { proposal, .. } => self.claim(proposal, ground),
                Step::ReadBack { proposal, .. } => self.read_back(proposal, ground),
                _ => self.read_record(ground),
            }
        }
        if let Step::Connect { since } = self.step {
            self.drive_connect(since, ground);
        }
        if let Step::List { asked, pending } = &self.step
            && pending.is_empty()
        {
            let (record, gone_back) = (ground.membership.record(), &ground.membership.gone_back);
            let is_listed = |disk: &DiskId| asked.contains(disk) || gone_back.is_put_off(*disk);
            if !record.in_sync.iter().all(is_listed) {
                // The right disk came meanwhile in the place of one that went back.
                self.begin_again(ground, suspects);
            } else if gone_back.has_put_off() {
                self.decide_on_gone_back(ground, suspects);
            } else {
                self.listed(ground, suspects);
            }
        }
        let is_over = match &self.step {
            Step::Lease { until } => *until <= ground.setting.now,
            Step::Permission => self.is_permitted || Planted::PermissionSkipped.is_planted(),
            _ => false,
        };
        if is_over {
            self.step = Step::Done;
            ground.setting.phase = Phase::Serving;
            ground
                .membership
                .gone_back
                .take_up()
                .into_iter()
                .for_each(|disk| ground.membership.want(Change::Rewind(disk)));
            let record = ground.membership.record();
            let is_named = record.owner == ground.setting.config.node;
            let is_past =
                record.before.is_empty() && record.tried.is_empty() && record.accepted_images.is_empty();
            if !is_past || !is_named {
                // The record is to drop the earlier owners and accepted images, and to name this server if
                // it became a node meanwhile.
                ground.membership.want(Change::Rotate);
            }
            // Nodes may have died after their disks had listed their chunks.
            let in_sync = ground.membership.record().in_sync.iter().copied();
            let dead: Vec<DiskId> = in_sync.filter(|disk| ground.setting.is_down(*disk)).collect();
            for disk in dead {
                ground.fail_disk(disk, "its node is down");
            }
            ground.reports.recheck = true;
            ground.reports.emit(Event::Serving { epoch: ground.membership.record().epoch });
        }
    }

    fn drive_connect(&mut self, since: Monotonic, ground: &mut Ground) {
        let in_sync = ground.membership.record().in_sync.iter().copied();
        let (put_off, in_sync): (BTreeSet<DiskId>, BTreeSet<DiskId>) =
            in_sync.partition(|disk| ground.membership.gone_back.is_put_off(*disk));
        let missing: Vec<DiskId> =
            in_sync.iter().copied().filter(|disk| !ground.calls.is_open(*disk)).collect();
        if missing.is_empty() && ground.membership.is_idle() {
            for &disk in &in_sync {
                debug_assert!(
                    ground.membership.promised(disk) > Epoch(0),
                    "{disk} is listed before it has promised our epoch (I3)"
                );
                ground.call(Owner::Listing, disk, Operation::Chunks);
            }
            self.step = Step::List { asked: in_sync.clone(), pending: in_sync };
            return;
        }
        // The opening does not wait for disks of dead nodes.
        let all_down = missing.iter().all(|disk| ground.setting.is_down(*disk));
        let patient = !all_down && ground.setting.now.since(since) < ground.setting.config.opening_grace;
        // An accepted image stands in for disks that an administrator takes out.
        let gone_back = &ground.membership.gone_back;
        let are_lost = missing.iter().all(|disk| ground.setting.is_lost(*disk));
        let stands_in = |disk: &DiskId| are_lost && gone_back.is_accepted_image(*disk);
        let not_accepted = put_off.iter().filter(|disk| !stands_in(disk));
        let may_miss = may_miss(ground.membership.record(), missing.iter().chain(not_accepted).copied())
            || Planted::MinHoldersIgnored.is_planted();
        if !patient && !missing.is_empty() && may_miss && ground.membership.is_idle() {
            for disk in missing {
                ground.membership.want(Change::Expel(disk));
            }
        }
    }

    pub fn listing_done(
        &mut self,
        disk: DiskId,
        result: Result<Answer, Failure>,
        ground: &mut Ground,
        suspects: &mut Suspects,
    ) {
        let Step::List { pending, .. } = &mut self.step else { return };
        if !pending.remove(&disk) {
            return;
        }
        let Ok(Answer::Chunks(entries)) = result else {
            // The disk left while it listed: begin again with the remaining ones.
            return self.begin_again(ground, suspects);
        };
        let suspect = self.suspect && !Planted::NoReconcile.is_planted();
        let marks = ground.membership.record().building.iter();
        let marked: BTreeSet<ChunkIndex> = marks.filter(|mark| mark.0 == disk).map(|mark| mark.1).collect();
        for entry in entries {
            if marked.contains(&entry.chunk) {
                continue;
            }
            let chunk = ground.chunks.map.entry(entry.chunk).or_insert_with(|| Chunk::new(entry.append));
            chunk.add_holder(disk);
            if suspect {
                suspects.suspect(entry.chunk);
            }
        }
        self.drive(ground, suspects);
    }

    /// Decides on one disk that went back in time, now that all others in sync are listed, unless one of
    /// those leaves.
    fn decide_on_gone_back(&mut self, ground: &mut Ground, suspects: &mut Suspects) {
        if ground.membership.is_idle() {
            let known = ground.chunks.map.keys().copied();
            let listed = known.filter(|chunk| !ground.holders_of(*chunk).is_empty()).collect();
            if let Some(disk) = ground.membership.gone_back.decide_by(listed) {
                ground.membership.want(Change::Rewind(disk));
            }
        }
        self.begin_again(ground, suspects);
    }

    /// Waits for the disks in sync once more, and lists their chunks again.
    fn begin_again(&mut self, ground: &mut Ground, suspects: &mut Suspects) {
        ground.chunks.map.clear();
        suspects.clear();
        self.step = Step::Connect { since: ground.setting.now };
    }

    fn listed(&mut self, ground: &mut Ground, suspects: &mut Suspects) {
        // Blocks that may differ were written after the settled epoch and before this opening. One copy alone
        // cannot differ.
        let chunks = &ground.chunks;
        suspects.clear_single_copies(|index| chunks.get(index).map_or(0, |chunk| chunk.holders.len()));
        let now = ground.setting.now;
        let is_waited_out = self.predecessor.as_ref().is_none_or(|predecessor| predecessor.is_waited_out);
        self.step = match ground.setting.config.lease {
            None => Step::Lease { until: now },
            Some(lease) if is_waited_out => Step::Lease { until: self.claimed_at.after(lease).max(now) },
            Some(_) => Step::Permission,
        };
        // Unless the volume was closed, the last stamps are still to be settled.
        let record = ground.membership.record();
        let stamp = if self.suspect { record.epoch } else { record.settled };
        ground.membership.begin_stamps(stamp);
        self.drive(ground, suspects);
    }
}
