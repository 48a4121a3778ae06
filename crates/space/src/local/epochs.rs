//! Admission of the epochs that other nodes name (I3).
//!
//! A promise only rises, so one that is too high would lock out every owner for ever. The record
//! has each epoch before any node uses it. So a request from another node, under an epoch that its
//! disk has not promised yet, waits until this node has read a record that has reached the epoch.
//! Only the node that the record names begins an owner's session. Promises: an epoch admitted once
//! needs no cluster state after that. Only a record read after a request came refuses the request.

use crate::message::{BusError, PeerId, ReplicaOperation, Request};
use crate::planted::Planted;
use records::{Answer, Record, VolumeRecord};
use std::collections::BTreeMap;
use store::api::StoreError;
use types::{DiskId, Epoch, NodeId, VolumeId};

const NOT_GIVEN: BusError =
    BusError::Store(StoreError::Invalid("an epoch that the volume's record did not give"));

/// A request of another node.
pub struct Asked {
    pub peer: PeerId,
    pub from: NodeId,
    pub disk: DiskId,
    pub request: Request,
}

/// The fields of a record that decide on requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    epoch: Epoch,
    owner: Option<NodeId>,
}

impl Known {
    fn of(record: &VolumeRecord) -> Self {
        Self { epoch: record.epoch, owner: record.owner }
    }

    /// Whether the record gave the node this epoch. A lower epoch than the record's belongs to an
    /// earlier owner and is harmless: the present owner makes its disks promise more.
    fn gave(&self, from: NodeId, epoch: Epoch) -> bool {
        epoch < self.epoch || epoch == self.epoch && self.owner.is_none_or(|owner| owner == from)
    }
}

/// A request that waits for its volume's record.
struct Waiting {
    asked: Asked,
    /// Whether the reading in progress began after the request came.
    is_covered: bool,
}

/// Decisions on requests that waited for a record.
#[derive(Default)]
pub struct Decisions {
    pub admitted: Vec<Asked>,
    pub refused: Vec<(Asked, BusError)>,
    /// Epoch of the record by which requests are refused. `None`: there is no record, or the state did not
    /// answer.
    pub recorded: Option<Epoch>,
    /// Volume whose record is to be read once more, for requests that came after the reading had begun.
    pub again: Option<VolumeId>,
}

/// Waiting requests, and the records that decide on them.
#[derive(Default)]
pub struct Epochs {
    known: BTreeMap<VolumeId, Known>,
    /// Waiting requests, in order of arrival.
    waiting: Vec<Waiting>,
    /// Volumes whose records are being read, by the state's token.
    reading: BTreeMap<u64, VolumeId>,
}

impl Epochs {
    /// Whether the request may go to its disk, which has promised the epoch `promised`.
    pub fn admits(&self, asked: &Asked, promised: Epoch) -> bool {
        let Request { volume, epoch, .. } = asked.request;
        let begins = matches!(asked.request.operation, ReplicaOperation::Open { .. });
        if epoch <= promised && !begins && self.waiting.is_empty() {
            return true;
        }
        let is_given = self.known.get(&volume).is_some_and(|known| known.gave(asked.from, epoch));
        // Earlier requests of this node for the volume must not be overtaken.
        let is_before = |one: &Asked| one.peer == asked.peer && one.request.volume == volume;
        let is_behind = self.waiting.iter().any(|one| is_before(&one.asked));
        // Some node has the disk's promise, and a server that has just started has no record that names it.
        // The disk itself refuses lower epochs.
        let is_to_be_given = epoch > promised || begins && epoch == promised;
        let is_fine = is_given || !is_to_be_given;
        is_fine && !is_behind || Planted::EpochsBelieved.is_planted()
    }

    /// Queues a request that must wait for its volume's record. Returns whether to begin reading
    /// that record.
    pub fn wait(&mut self, asked: Asked) -> bool {
        let is_covered = !self.reading.values().any(|read| *read == asked.request.volume);
        self.waiting.push(Waiting { asked, is_covered });
        is_covered
    }

    /// Notes that the volume's record is being read.
    pub fn begin_reading(&mut self, token: u64, volume: VolumeId) {
        self.reading.insert(token, volume);
    }

    pub fn is_reading(&self) -> bool {
        !self.reading.is_empty()
    }

    /// Notes a record that was read elsewhere, perhaps older than the known one. Returns the waiting
    /// requests that it admits, so that they need not wait for a state that answers late.
    pub fn note(&mut self, record: &VolumeRecord) -> Vec<Asked> {
        if self.known.get(&record.id).is_some_and(|known| record.epoch < known.epoch) {
            return Vec::new();
        }
        let known = Known::of(record);
        self.known.insert(record.id, known);
        let is_given = |one: &mut Waiting| {
            let Request { volume, epoch, .. } = one.asked.request;
            volume == record.id && known.gave(one.asked.from, epoch)
        };
        self.waiting.extract_if(.., is_given).map(|one| one.asked).collect()
    }

    /// Handles an answer of the state. `None`: the token belongs to a request from elsewhere.
    pub fn answered(&mut self, token: u64, answer: &Answer) -> Option<Decisions> {
        let volume = self.reading.remove(&token)?;
        let (own, others) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|one| one.asked.request.volume == volume);
        self.waiting = others;
        let mut decisions = Decisions::default();
        let (record, error) = match answer {
            Answer::Value(Some(found)) => {
                let key = VolumeRecord::key_of(&volume.to_string());
                (VolumeRecord::decode(&key, &found.value).ok(), NOT_GIVEN)
            }
            Answer::Value(None) => (None, NOT_GIVEN),
            // The state did not answer: the other node soon begins another session.
            _ => (None, BusError::NoSession),
        };
        let known = record.as_ref().map(Known::of);
        decisions.recorded = known.map(|known| known.epoch);
        match known {
            Some(known) => drop(self.known.insert(volume, known)),
            None => drop(self.known.remove(&volume)),
        }
        for Waiting { asked, is_covered } in own {
            if known.is_some_and(|known| known.gave(asked.from, asked.request.epoch)) {
                decisions.admitted.push(asked);
            } else if is_covered {
                decisions.refused.push((asked, error.clone()));
            } else {
                decisions.again = Some(volume);
                self.waiting.push(Waiting { asked, is_covered: true });
            }
        }
        Some(decisions)
    }

    /// Drops the requests of a lost connection, since nothing would take their answers.
    pub fn end_peer(&mut self, peer: PeerId) {
        self.waiting.retain(|one| one.asked.peer != peer);
    }
}
