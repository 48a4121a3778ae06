//! This disk's copy of the cluster's records (D8), in two slots that are written alternately.

use super::device::Device;
use super::operation::Op;
use crate::anchor::{encode_records, parse_records};
use crate::health::WriteKind;
use crate::layout::{Layout, RECORDS_SLOTS};
use crate::open::FoundRecords;
use crate::slots::SlotId;
use disk::Disk;
use std::collections::VecDeque;
use sys::Buf;
use types::DiskId;

/// Copies of a slot: one in the area at the front, one in that at the end.
const COPIES: u8 = 2;

struct Writing {
    /// `None`: the current records are written again.
    task: Option<SlotId>,
    bytes: Vec<u8>,
    /// Copies that are not durable yet.
    outstanding: u8,
}

/// Invariant: the slot that is being written never holds the current records, so that a crash
/// leaves them, or the new ones.
pub(super) struct Records {
    current: Vec<u8>,
    /// Sequence of the current records.
    sequence: u64,
    waiting: VecDeque<(SlotId, Vec<u8>)>,
    writing: Option<Writing>,
    /// Bytes of the records in the slots of even and of odd sequences, if both copies are known to be whole.
    whole_bytes: [Option<usize>; 2],
    /// Slots to write before all copies are whole again.
    due: usize,
}

impl Records {
    pub(super) fn new(found: FoundRecords) -> Self {
        let FoundRecords { sequence, records, whole_bytes, damaged } = found;
        let (waiting, writing) = (VecDeque::new(), None);
        let mut new = Self { current: records, sequence, waiting, writing, whole_bytes, due: 0 };
        if damaged {
            new.write_again();
        }
        new
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
    pub(super) fn is_idle(&self) -> bool {
        self.writing.is_none() && self.due == 0
    }

    /// Returns the bytes of the records in the slots of this parity, if both copies are known to be
    /// whole.
    pub(super) fn whole_bytes(&self, parity: usize) -> Option<usize> {
        self.whole_bytes[parity]
    }

    /// Whether a slot of this parity, as read, has the last content written there, as far as that
    /// is still known.
    pub(super) fn is_whole(&self, disk: DiskId, parity: usize, slot: &[u8]) -> bool {
        if self.slot() == parity {
            return *slot == *encode_records(disk, self.sequence, &self.current);
        }
        parse_records(disk, slot).is_some_and(|(sequence, _)| sequence + 1 == self.sequence)
    }

    /// Returns the slot of the current records.
    fn slot(&self) -> usize {
        (self.sequence % 2) as usize
    }

    /// Has both slots rewritten, one after the other, with the current records unless there are new
    /// ones. If there are no current ones, the next new ones heal a slot.
    pub(super) fn write_again(&mut self) {
        if self.sequence > 0 {
            self.due = RECORDS_SLOTS.len();
        }
    }

    /// Writes the records once those before them are durable.
    pub(super) fn set<D: Disk>(
        &mut self,
        task: SlotId,
        records: Vec<u8>,
        disk: DiskId,
        layout: &Layout,
        device: &mut Device<D>,
    ) {
        self.waiting.push_back((task, records));
        self.write_next(disk, layout, device);
    }

    /// Writes the next records, if there are any and no write is in progress.
    pub(super) fn write_next<D: Disk>(&mut self, disk: DiskId, layout: &Layout, device: &mut Device<D>) {
        if self.writing.is_some() {
            return;
        }
        let (task, records) = match self.waiting.pop_front() {
            Some((task, records)) => (Some(task), records),
            None if self.due > 0 => (None, self.current.clone()),
            None => return,
        };
        let sequence = self.sequence + 1;
        let bytes = Buf::from(&encode_records(disk, sequence, &records)[..]);
        let slot = RECORDS_SLOTS[(sequence % 2) as usize];
        self.whole_bytes[(sequence % 2) as usize] = None;
        self.writing = Some(Writing { task, bytes: records, outstanding: COPIES });
        for area in layout.areas() {
            device.write(Op::Records, WriteKind::Anchors, area + slot, bytes.clone().into(), true);
        }
    }

    /// Notes that a copy is durable. Once both are, returns the offsets of the slots and the
    /// requesting task, and begins the next write.
    pub(super) fn written<D: Disk>(
        &mut self,
        disk: DiskId,
        layout: &Layout,
        device: &mut Device<D>,
    ) -> Option<([u64; 2], Option<SlotId>)> {
        let writing = self.writing.as_mut()?;
        writing.outstanding -= 1;
        if writing.outstanding > 0 {
            return None;
        }
        let Writing { task, bytes, .. } = self.writing.take()?;
        self.current = bytes;
        self.sequence += 1;
        let slot = self.slot();
        self.whole_bytes[slot] = Some(self.current.len());
        self.due -= self.due.min(1);
        self.write_next(disk, layout, device);
        Some((layout.areas().map(|area| area + RECORDS_SLOTS[slot]), task))
    }

    /// Drops records that are not durable, which are refused.
    pub(super) fn abandon(&mut self) {
        self.waiting.clear();
        self.writing = None;
        self.due = 0;
    }
}
