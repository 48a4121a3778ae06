//! Taking a volume over.
//!
//! | step | ends when |
//! |---|---|
//! | read the record | the state answers |
//! | claim it: next epoch, our incarnation | committed; a conflict means that another took it: `Fenced` |
//! | open sessions: every in-sync disk promises the epoch | all did, or those missing after a while are expelled by a committed record |
//! | list chunks of all in-sync disks | all did |
//! | wait out the lease of the coordinator before | now |
//!
//! Disks may be missing as long as every chunk surely has another in-sync copy: fewer than the record's `min_holders`. With more
//! missing, the opening waits for them ("who had the last copy" is never forgotten, I5).

use super::calls::{Failure, Owner};
use super::chunks::{Chunk, Suspects};
use super::{Coordinator, Event, Phase};
use crate::api::SpaceError;
use crate::message::{Answer, Operation};
use crate::planted::Planted;
use cluster::{Provisioning, Record, Resiliency, Transaction, VolumeRecord};
use std::collections::BTreeSet;
use types::{DiskId, Monotonic, PoolId, VolumeId};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Read { token: u64 },
    Claim { token: u64, proposal: Box<VolumeRecord>, sent_at: Monotonic },
    ReadBack { token: u64, proposal: Box<VolumeRecord>, sent_at: Monotonic },
    Connect { since: Monotonic },
    List { pending: BTreeSet<DiskId> },
    Lease { until: Monotonic },
    Done,
}

pub(super) struct Opening {
    step: Step,
    retry_at: Option<Monotonic>,
    /// The volume was not closed: copies may differ.
    suspect: bool,
}

impl Opening {
    pub fn new() -> Self {
        Self { step: Step::Read { token: 0 }, retry_at: None, suspect: true }
    }
}

/// Stands in for the record until it is read.
pub(super) fn unread_record(volume: VolumeId) -> VolumeRecord {
    VolumeRecord::new(
        volume,
        PoolId::from_bytes([0; 16]),
        "",
        Resiliency::Simple,
        0,
        Provisioning::Thin,
        Vec::new(),
        0,
    )
}

impl Coordinator {
    pub(super) fn opening_next_timeout(&self) -> Option<Monotonic> {
        if self.phase != Phase::Opening {
            return None;
        }
        match &self.opening.step {
            Step::Connect { since } => {
                let until = since.after(self.config.opening_grace);
                Some(if until > self.now { until } else { self.now.after(self.config.reconnect_interval) })
            }
            Step::Lease { until } => Some(*until),
            _ => self.opening.retry_at,
        }
    }

    pub(super) fn read_record(&mut self) {
        let token = self.members.token();
        self.opening.step = Step::Read { token };
        self.opening.retry_at = None;
        self.members.requests.push_back((token, cluster::Request::Get { key: self.record.key() }));
    }

    fn claim(&mut self, proposal: Box<VolumeRecord>) {
        let token = self.members.token();
        let key = proposal.key();
        let transaction = Transaction::default().when(key.clone(), self.revision).put(key, proposal.encode());
        self.members.requests.push_back((token, cluster::Request::Commit(transaction)));
        self.opening.step = Step::Claim { token, proposal, sent_at: self.now };
        self.opening.retry_at = None;
    }

    /// Whether the answer was for the opening.
    pub(super) fn opening_state_answer(&mut self, token: u64, answer: &cluster::Answer) -> bool {
        let retry_at = Some(self.now.after(self.config.state_retry));
        match (self.opening.step.clone(), answer) {
            (Step::Read { token: asked }, _) if asked == token => match answer {
                cluster::Answer::Value(Some(found)) => {
                    match VolumeRecord::decode(&self.record.key(), &found.value) {
                        Ok(record) => {
                            self.revision = found.revision;
                            let mut proposal = Box::new(record.clone());
                            proposal.epoch = record.epoch.next();
                            proposal.coordinator = self.incarnation;
                            self.record = record;
                            self.claim(proposal);
                        }
                        Err(_) => self.stop(SpaceError::Invalid("the volume's record does not parse")),
                    }
                }
                cluster::Answer::Value(None) => self.stop(SpaceError::Invalid("the volume does not exist")),
                _ => self.opening.retry_at = retry_at,
            },
            (Step::Claim { token: asked, proposal, sent_at }, _) if asked == token => match answer {
                cluster::Answer::Committed { revision } => self.claimed(*proposal, *revision),
                cluster::Answer::Conflict => {
                    let token = self.members.token();
                    self.opening.step = Step::ReadBack { token, proposal, sent_at };
                    self.members
                        .requests
                        .push_back((token, cluster::Request::Get { key: self.record.key() }));
                }
                _ => self.opening.retry_at = retry_at,
            },
            (Step::ReadBack { token: asked, proposal, .. }, _) if asked == token => match answer {
                cluster::Answer::Value(Some(found)) => {
                    match VolumeRecord::decode(&self.record.key(), &found.value) {
                        Ok(record) if record == *proposal => self.claimed(*proposal, found.revision),
                        _ => self.stop(SpaceError::Fenced),
                    }
                }
                cluster::Answer::Value(None) => self.stop(SpaceError::Fenced),
                _ => self.opening.retry_at = retry_at,
            },
            _ => return false,
        }
        true
    }

    fn claimed(&mut self, record: VolumeRecord, revision: u64) {
        self.opening.suspect = record.settled.next() < record.epoch;
        self.record = record;
        self.revision = revision;
        for stale in self.record.stale.clone() {
            self.absent_since.insert(stale.disk, self.now);
        }
        for disk in self.record.in_sync.clone() {
            self.connect(disk);
        }
        self.opening.step = Step::Connect { since: self.now };
    }

    pub(super) fn drive_opening(&mut self) {
        if self.phase != Phase::Opening {
            return;
        }
        if self.opening.retry_at.is_some_and(|at| at <= self.now) {
            match self.opening.step.clone() {
                Step::Claim { proposal, .. } => self.claim(proposal),
                Step::ReadBack { proposal, sent_at, .. } => {
                    let token = self.members.token();
                    self.opening.step = Step::ReadBack { token, proposal, sent_at };
                    self.opening.retry_at = None;
                    self.members
                        .requests
                        .push_back((token, cluster::Request::Get { key: self.record.key() }));
                }
                _ => self.read_record(),
            }
        }
        if let Step::Connect { since } = self.opening.step {
            self.drive_connect(since);
        }
        if matches!(&self.opening.step, Step::List { pending } if pending.is_empty()) {
            self.listed();
        }
        if let Step::Lease { until } = self.opening.step
            && until <= self.now
        {
            self.opening.step = Step::Done;
            self.phase = Phase::Serving;
            self.recheck = true;
            self.emit(Event::Serving { epoch: self.record.epoch });
        }
    }

    fn drive_connect(&mut self, since: Monotonic) {
        let missing: Vec<DiskId> =
            self.record.in_sync.iter().copied().filter(|disk| !self.calls.is_open(*disk)).collect();
        if missing.is_empty() && self.membership_is_idle() {
            let disks: BTreeSet<DiskId> = self.record.in_sync.iter().copied().collect();
            for &disk in &disks {
                self.call(Owner::Listing, disk, Operation::Chunks);
            }
            self.opening.step = Step::List { pending: disks };
            return;
        }
        let patient = self.now.since(since) < self.config.opening_grace;
        let spare = match Planted::MinHoldersIgnored.is_planted() {
            false => usize::from(self.record.min_holders.saturating_sub(1)),
            true => usize::MAX,
        };
        if !patient && !missing.is_empty() && missing.len() <= spare && self.membership_is_idle() {
            for disk in missing {
                self.members.want_expel(disk);
            }
        }
    }

    pub(super) fn listing_done(&mut self, disk: DiskId, result: Result<Answer, Failure>) {
        let Step::List { pending } = &mut self.opening.step else { return };
        if !pending.remove(&disk) {
            return;
        }
        let Ok(Answer::Chunks(entries)) = result else {
            // The disk left while it listed: begin again with those that remain.
            self.chunks.clear();
            self.unclean.clear();
            self.opening.step = Step::Connect { since: self.now };
            return;
        };
        let suspect = self.opening.suspect && !Planted::NoReconcile.is_planted();
        for entry in entries {
            if self.record.building.contains(&(disk, entry.chunk)) {
                continue;
            }
            let chunk = self.chunks.entry(entry.chunk).or_insert_with(|| Chunk::new(entry.append));
            if !chunk.holders.contains(&disk) {
                chunk.holders.push(disk);
                chunk.holders.sort_unstable();
            }
            if suspect {
                chunk.suspects = Suspects::Unknown;
                self.unclean.insert(entry.chunk);
            }
        }
        self.drive_opening();
    }

    fn listed(&mut self) {
        // What may differ was written after what is settled and before this opening: one copy alone cannot differ.
        let alone: Vec<_> = self
            .unclean
            .iter()
            .copied()
            .filter(|index| self.chunks.get(index).is_none_or(|chunk| chunk.holders.len() < 2))
            .collect();
        for index in alone {
            self.set_clean(index);
        }
        self.jobs.may_have_surplus = true;
        self.opening.step =
            Step::Lease { until: self.config.lease.map_or(self.now, |lease| self.now.after(lease)) };
        // Something stamped lately is left to be settled, or nothing is.
        self.members.last_stamp = if self.opening.suspect { self.record.epoch } else { self.record.settled };
        self.drive_opening();
    }
}
