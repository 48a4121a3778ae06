//! The disk behind the handles: a medium, the completed writes that a flush has not yet covered, operations in flight.

use super::fault::{Fault, FaultAction};
use super::{CrashChoice, Fate, TEAR_BYTES};
use crate::change::Change;
use crate::image::SparseImage;
use crate::log::ChangeLog;
use crate::random::Random;
use crate::{DiskCompletion, DiskError, DiskInfo, DiskOperation, check_fit};
use std::collections::BTreeSet;
use sys::{BufMut, Payload};

/// Unit of unreadable bytes.
const UNREADABLE_BYTES: u64 = 4096;
/// Error number of a read of unreadable blocks.
const EIO: i32 = 5;

/// An operation that was submitted and not answered.
struct InFlight {
    token: u64,
    operation: DiskOperation,
    fault: Option<FaultAction>,
    /// Number of the last completed change that it covers, if it is a flush.
    submitted_after: u64,
}

pub(super) struct State {
    info: DiskInfo,
    random: Random,
    shuffle: bool,
    /// Content that survives every power cut.
    durable: SparseImage,
    /// Content that reads find: `durable` with the whole log applied.
    current: SparseImage,
    log: ChangeLog,
    in_flight: Vec<InFlight>,
    hanging: Vec<InFlight>,
    answers: Vec<DiskCompletion>,
    pub(super) faults: Vec<Fault>,
    pub(super) submitted: u64,
    pub(super) stop_at: Option<u64>,
    /// Blocks of [`UNREADABLE_BYTES`] that cannot be read until they are written.
    unreadable: BTreeSet<u64>,
    /// Content takes no more memory than this.
    pub(super) allocation_max: Option<u64>,
}

impl State {
    pub(super) fn new(info: DiskInfo, seed: u64, shuffle: bool) -> Self {
        Self::with_image(info, Random::new(seed), shuffle, SparseImage::default())
    }

    fn with_image(info: DiskInfo, random: Random, shuffle: bool, image: SparseImage) -> Self {
        Self {
            info,
            random,
            shuffle,
            durable: image.clone(),
            current: image,
            log: ChangeLog::default(),
            in_flight: Vec::new(),
            hanging: Vec::new(),
            answers: Vec::new(),
            faults: Vec::new(),
            submitted: 0,
            stop_at: None,
            unreadable: BTreeSet::new(),
            allocation_max: None,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop_at.is_some_and(|at| self.submitted > at)
    }

    pub(super) fn submit(&mut self, token: u64, operation: DiskOperation) {
        if self.is_stopped() {
            // The machine is off: later operations reach no disk.
            return;
        }
        self.submitted += 1;
        if let Err(error) = check_fit(&self.info, &operation) {
            self.answers.push(DiskCompletion { token, result: Err(error) });
            return;
        }
        let fault = self.faults.iter_mut().find_map(|fault| fault.strike(&operation));
        let entry = InFlight { token, operation, fault, submitted_after: self.log.completions() };
        match entry.fault {
            Some(FaultAction::Hang) => self.hanging.push(entry),
            _ => self.in_flight.push(entry),
        }
    }

    pub(super) fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        if self.is_stopped() {
            return;
        }
        out.append(&mut self.answers);
        if !self.shuffle {
            for entry in std::mem::take(&mut self.in_flight) {
                let completion = self.complete(entry);
                out.push(completion);
            }
            return;
        }
        if self.in_flight.is_empty() {
            return;
        }
        let count = 1 + self.random.below(self.in_flight.len() as u64);
        for _ in 0..count {
            let at = self.random.below(self.in_flight.len() as u64) as usize;
            let entry = self.in_flight.remove(at);
            let completion = self.complete(entry);
            out.push(completion);
        }
    }

    fn complete(&mut self, entry: InFlight) -> DiskCompletion {
        let InFlight { token, operation, fault, submitted_after } = entry;
        DiskCompletion { token, result: self.perform(operation, fault, submitted_after) }
    }

    fn perform(
        &mut self,
        operation: DiskOperation,
        fault: Option<FaultAction>,
        submitted_after: u64,
    ) -> Result<Option<BufMut>, DiskError> {
        let failure = match &fault {
            Some(FaultAction::Fail(error)) => Some(error.clone()),
            _ => None,
        };
        match operation {
            DiskOperation::Read { offset, mut into } => {
                let end = offset + into.len() as u64;
                let touched = offset / UNREADABLE_BYTES..end.div_ceil(UNREADABLE_BYTES);
                let unreadable = self.unreadable.range(touched).next();
                if let Some(error) = failure.or(unreadable.map(|_| DiskError::Medium(EIO))) {
                    return Err(error);
                }
                self.current.read(offset, &mut into);
                return Ok(Some(into));
            }
            DiskOperation::Write { offset, data, durable } => match (failure, fault) {
                (Some(error), _) => {
                    let fate = Fate::Mixed(self.random.next());
                    self.happen_in_part(offset, data, fate);
                    return Err(error);
                }
                (None, Some(FaultAction::LoseWrite)) => {}
                (None, Some(FaultAction::TearWrite)) => {
                    let fate = Fate::Mixed(self.random.next());
                    self.happen_in_part(offset, data, fate);
                }
                (None, _) if self.is_full(data.len() as u64) => return Err(DiskError::NoSpace),
                (None, Some(FaultAction::MisdirectWrite { to_offset })) => {
                    self.happen(to_offset, Change::Write(data), durable);
                }
                (None, _) => self.happen(offset, Change::Write(data), durable),
            },
            DiskOperation::Flush => {
                if let Some(error) = failure {
                    return Err(error);
                }
                self.log.force(submitted_after);
                self.apply_forced();
            }
            DiskOperation::Discard { offset, len_bytes } => {
                if let Some(error) = failure {
                    return Err(error);
                }
                self.discard(offset, len_bytes);
            }
        }
        Ok(None)
    }

    /// Whether this many bytes more are beyond what content may take. Bytes that are there already are counted again: a file
    /// system that copies on write fails so too.
    fn is_full(&self, len_bytes: u64) -> bool {
        self.allocation_max.is_some_and(|max| self.current.allocated_bytes() + len_bytes > max)
    }

    /// A change completes.
    fn happen(&mut self, offset: u64, change: Change, forced: bool) {
        let end = (offset + change.len_bytes()) / UNREADABLE_BYTES;
        let written = offset.div_ceil(UNREADABLE_BYTES)..end;
        if !self.unreadable.is_empty() && matches!(change, Change::Write(_)) {
            // A sector that is written gets another place.
            self.unreadable.retain(|block| !written.contains(block));
        }
        let Ok(()) = change.apply(&mut self.current, offset);
        self.log.push(offset, change, forced);
        if forced {
            self.apply_forced();
        }
    }

    /// A write fails half-way: some of its sectors reach the cache.
    fn happen_in_part(&mut self, offset: u64, data: Payload, fate: Fate) {
        let count = data.len() as u64 / TEAR_BYTES;
        for sector in (0..count).filter(|&sector| fate.keeps(sector, count)) {
            let at = sector * TEAR_BYTES;
            let part = Change::Write(data.slice(at as usize, TEAR_BYTES as usize));
            self.happen(offset + at, part, false);
        }
    }

    /// Discarded bytes read as anything: zeroes, as before, or noise.
    fn discard(&mut self, offset: u64, len_bytes: u64) {
        const NOISE_BYTES_MAX: u64 = 16 * 1024;
        match self.random.below(3) {
            0 => {}
            1 if len_bytes <= NOISE_BYTES_MAX => {
                let mut noise = BufMut::for_overwrite(len_bytes as usize);
                noise.fill_with(|| self.random.next() as u8);
                self.happen(offset, Change::Write(noise.freeze().into()), false);
            }
            _ => self.happen(offset, Change::Zero(len_bytes), false),
        }
    }

    /// Moves forced changes to the medium.
    fn apply_forced(&mut self) {
        let Ok(()) = self.log.apply_forced(|offset, change| change.apply(&mut self.durable, offset));
    }

    /// The changes that a power cut may lose: completed ones first, then those in flight or hanging.
    fn at_risk(&self) -> impl Iterator<Item = (u64, Change)> {
        self.log.at_risk().map(|(offset, change)| (offset, change.clone())).chain(self.unanswered())
    }

    fn unanswered(&self) -> impl Iterator<Item = (u64, Change)> {
        self.in_flight.iter().chain(&self.hanging).filter_map(|entry| {
            match (&entry.operation, &entry.fault) {
                (DiskOperation::Write { .. }, Some(FaultAction::LoseWrite)) => None,
                (DiskOperation::Write { data, .. }, Some(FaultAction::MisdirectWrite { to_offset })) => {
                    Some((*to_offset, Change::Write(data.clone())))
                }
                (DiskOperation::Write { offset, data, .. }, _) => {
                    Some((*offset, Change::Write(data.clone())))
                }
                (DiskOperation::Discard { offset, len_bytes }, _) => {
                    Some((*offset, Change::Zero(*len_bytes)))
                }
                _ => None,
            }
        })
    }

    pub(super) fn candidates(&self) -> Vec<u64> {
        self.at_risk().map(|(_, change)| change.sectors()).collect()
    }

    pub(super) fn after_crash(&self, choice: &CrashChoice) -> Self {
        let mut image = self.durable.clone();
        let Ok(()) = self
            .log
            .cut(|at| choice.fate(at), |offset, change, fate| change.apply_fate(&mut image, offset, fate));
        for (at, (offset, change)) in (self.log.at_risk().count()..).zip(self.unanswered()) {
            let Ok(()) = change.apply_fate(&mut image, offset, choice.fate(at));
        }
        let state = Self::with_image(self.info.clone(), self.random.clone(), self.shuffle, image);
        Self { unreadable: self.unreadable.clone(), allocation_max: self.allocation_max, ..state }
    }

    /// The process that had it open is gone: operations in flight happen, or not, by chance; nobody is
    /// answered.
    pub(super) fn abandon(&mut self) {
        self.answers.clear();
        for entry in std::mem::take(&mut self.in_flight).into_iter().chain(std::mem::take(&mut self.hanging))
        {
            if self.random.coin() {
                self.complete(entry);
            }
        }
    }

    /// The medium holds what that of `other` holds.
    pub(super) fn roll_back(&mut self, other: &Self) {
        let random = self.random.clone();
        let state = Self::with_image(self.info.clone(), random, self.shuffle, other.current.clone());
        let (faults, submitted) = (std::mem::take(&mut self.faults), self.submitted);
        *self = Self { faults, submitted, allocation_max: self.allocation_max, ..state };
    }

    pub(super) fn make_unreadable(&mut self, offset: u64, len_bytes: u64) {
        self.unreadable.extend(offset / UNREADABLE_BYTES..(offset + len_bytes).div_ceil(UNREADABLE_BYTES));
    }

    pub(super) fn unreadable_blocks(&self) -> usize {
        self.unreadable.len()
    }

    pub(super) fn operations_in_flight(&self) -> usize {
        self.in_flight.len() + self.answers.len()
    }

    /// A copy; its answers and reads in flight stay with the original, which owns their buffers.
    pub(super) fn clone_without_answers(&self) -> Self {
        let mut copy =
            Self::with_image(self.info.clone(), self.random.clone(), self.shuffle, self.current.clone());
        copy.durable = self.durable.clone();
        copy.log = self.log.clone();
        copy.faults = self.faults.clone();
        copy.submitted = self.submitted;
        copy.stop_at = self.stop_at;
        copy.unreadable = self.unreadable.clone();
        copy.allocation_max = self.allocation_max;
        copy.in_flight = self.in_flight.iter().filter_map(InFlight::copy).collect();
        copy.hanging = self.hanging.iter().filter_map(InFlight::copy).collect();
        copy
    }

    pub(super) fn hanging_operations(&self) -> usize {
        self.hanging.len()
    }

    pub(super) fn time_out_hanging(&mut self) {
        for entry in std::mem::take(&mut self.hanging) {
            if let DiskOperation::Write { offset, data, .. } = entry.operation
                && self.random.coin()
            {
                self.happen(offset, Change::Write(data), false);
            }
            self.answers.push(DiskCompletion { token: entry.token, result: Err(DiskError::TimedOut) });
        }
    }

    pub(super) fn release_hanging(&mut self) {
        for mut entry in std::mem::take(&mut self.hanging) {
            entry.fault = None;
            self.in_flight.push(entry);
        }
    }

    pub(super) fn rot(&mut self, offset: u64, len_bytes: u64) {
        let mut at = offset;
        let end = offset.saturating_add(len_bytes);
        while at < end {
            let len = (end - at).min(TEAR_BYTES);
            let mut bytes = vec![0; len as usize];
            self.current.read(at, &mut bytes);
            let bit = self.random.below(len * 8);
            if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
            self.poke(at, &bytes);
            at += len;
        }
    }

    pub(super) fn peek(&self, offset: u64, into: &mut [u8]) {
        self.current.read(offset, into);
    }

    pub(super) fn poke(&mut self, offset: u64, bytes: &[u8]) {
        self.happen(offset, Change::Write(sys::Buf::from(bytes).into()), true);
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.current.allocated_bytes()
    }
}

impl InFlight {
    fn copy(&self) -> Option<Self> {
        let operation = match &self.operation {
            DiskOperation::Read { .. } => return None,
            DiskOperation::Write { offset, data, durable } => {
                DiskOperation::Write { offset: *offset, data: data.clone(), durable: *durable }
            }
            DiskOperation::Flush => DiskOperation::Flush,
            DiskOperation::Discard { offset, len_bytes } => {
                DiskOperation::Discard { offset: *offset, len_bytes: *len_bytes }
            }
        };
        Some(Self {
            token: self.token,
            operation,
            fault: self.fault.clone(),
            submitted_after: self.submitted_after,
        })
    }
}
