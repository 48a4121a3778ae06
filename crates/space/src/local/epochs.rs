//! Which epochs another node may name (I3).
//!
//! A promise only rises, so that one which is too high would keep every owner out for ever. An epoch is named by a record before anybody asks
//! under it: a request from another node under one that its disk has not promised yet waits until the volume's record is known to
//! have reached it, and the session of an owner is begun by the node that the record names. Promises: what was admitted once is
//! admitted without the cluster's state; a request is refused only by a record that was read after it had come.

use crate::message::{BusError, Operation, PeerId, Request};
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

/// A record, as far as it decides here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    epoch: Epoch,
    owner: Option<NodeId>,
}

impl Known {
    fn of(record: &VolumeRecord) -> Self {
        Self { epoch: record.epoch, owner: record.owner }
    }

    /// Whether the record gave the node this epoch. One that is lower than the record's is an owner's of before, and harms nothing: who has
    /// the volume now has its disks promise more.
    fn gave(&self, from: NodeId, epoch: Epoch) -> bool {
        epoch < self.epoch || epoch == self.epoch && self.owner.is_none_or(|owner| owner == from)
    }
}

/// A request that waits for its volume's record.
struct Waiting {
    asked: Asked,
    /// The reading that is under way began after it came.
    is_covered: bool,
}

/// What became of requests that waited for a record.
#[derive(Default)]
pub struct Settled {
    pub admitted: Vec<Asked>,
    pub refused: Vec<(Asked, BusError)>,
    /// The epoch of the record by which these are refused; `None`: there is no record, or the state did not answer.
    pub recorded: Option<Epoch>,
    /// The record is to be read once more: some came after the reading had begun.
    pub again: Option<VolumeId>,
}

/// See the module.
#[derive(Default)]
pub struct Epochs {
    known: BTreeMap<VolumeId, Known>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// Records that are being read, by the tokens of the state.
    reading: BTreeMap<u64, VolumeId>,
}

impl Epochs {
    /// Whether the request may go to its disk, which has `promised` this much.
    pub fn admits(&self, asked: &Asked, promised: Epoch) -> bool {
        let Request { volume, epoch, .. } = asked.request;
        let begins = matches!(asked.request.operation, Operation::Open { .. });
        if epoch <= promised && !begins && self.waiting.is_empty() {
            return true;
        }
        let is_given = self.known.get(&volume).is_some_and(|known| known.gave(asked.from, epoch));
        // What waits goes first: it came first.
        let is_before = |one: &Asked| one.peer == asked.peer && one.request.volume == volume;
        let is_behind = self.waiting.iter().any(|one| is_before(&one.asked));
        // The disk has promised the epoch to somebody, and a server that has just started knows of no record to whom. What is lower the disk refuses.
        let is_to_be_given = epoch > promised || begins && epoch == promised;
        let is_fine = is_given || !is_to_be_given;
        is_fine && !is_behind || Planted::EpochsBelieved.is_planted()
    }

    /// Takes a request that has to wait for its volume's record. Answers whether a reading of that is to begin.
    pub fn wait(&mut self, asked: Asked) -> bool {
        let is_covered = !self.reading.values().any(|read| *read == asked.request.volume);
        self.waiting.push(Waiting { asked, is_covered });
        is_covered
    }

    /// The record of the volume is being read.
    pub fn begin_reading(&mut self, token: u64, volume: VolumeId) {
        self.reading.insert(token, volume);
    }

    pub fn is_reading(&self) -> bool {
        !self.reading.is_empty()
    }

    /// Takes note of a record as it was read elsewhere, perhaps before one that is known. Answers what it admits of what waits: that need not
    /// wait for a state that answers late.
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

    /// Takes an answer of the state; `None`: it is not to what was asked here.
    pub fn answered(&mut self, token: u64, answer: &Answer) -> Option<Settled> {
        let volume = self.reading.remove(&token)?;
        let (own, others) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|one| one.asked.request.volume == volume);
        self.waiting = others;
        let mut settled = Settled::default();
        let (record, error) = match answer {
            Answer::Value(Some(found)) => {
                let key = VolumeRecord::key_of(&volume.to_string());
                (VolumeRecord::decode(&key, &found.value).ok(), NOT_GIVEN)
            }
            Answer::Value(None) => (None, NOT_GIVEN),
            // Nothing is known: who asks begins another session in a moment.
            _ => (None, BusError::NoSession),
        };
        let known = record.as_ref().map(Known::of);
        settled.recorded = known.map(|known| known.epoch);
        match known {
            Some(known) => drop(self.known.insert(volume, known)),
            None => drop(self.known.remove(&volume)),
        }
        for Waiting { asked, is_covered } in own {
            if known.is_some_and(|known| known.gave(asked.from, asked.request.epoch)) {
                settled.admitted.push(asked);
            } else if is_covered {
                settled.refused.push((asked, error.clone()));
            } else {
                settled.again = Some(volume);
                self.waiting.push(Waiting { asked, is_covered: true });
            }
        }
        Some(settled)
    }

    /// The connection is lost: nothing that it asked is to be answered.
    pub fn end_peer(&mut self, peer: PeerId) {
        self.waiting.retain(|one| one.asked.peer != peer);
    }
}
