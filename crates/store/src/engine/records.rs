//! This disk's copy of the cluster's records (D8), in two slots that are written by turns.

use super::device::Device;
use super::operation::Op;
use crate::anchor::encode_records;
use crate::health::WriteKind;
use crate::layout::{Layout, RECORDS_SLOTS};
use crate::slots::SlotId;
use disk::Disk;
use std::collections::VecDeque;
use sys::Buf;
use types::DiskId;

/// Copies of a slot: one in the area at the front, one in that at the end.
const COPIES: u8 = 2;

struct Writing {
    task: SlotId,
    bytes: Vec<u8>,
    /// Copies that are not durable yet.
    outstanding: u8,
}

/// Invariant: the slot that is being written is never the one that holds the current records, so that a crash leaves them, or the new ones.
pub(super) struct Records {
    current: Vec<u8>,
    /// Number of the current ones.
    sequence: u64,
    waiting: VecDeque<(SlotId, Vec<u8>)>,
    writing: Option<Writing>,
}

impl Records {
    pub(super) fn new(current: Vec<u8>, sequence: u64) -> Self {
        Self { current, sequence, waiting: VecDeque::new(), writing: None }
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    /// Writes the records when those before them are durable.
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

    fn write_next<D: Disk>(&mut self, disk: DiskId, layout: &Layout, device: &mut Device<D>) {
        if self.writing.is_some() {
            return;
        }
        let Some((task, records)) = self.waiting.pop_front() else { return };
        let sequence = self.sequence + 1;
        let bytes = Buf::from(&encode_records(disk, sequence, &records)[..]);
        let slot = RECORDS_SLOTS[(sequence % 2) as usize];
        self.writing = Some(Writing { task, bytes: records, outstanding: COPIES });
        for area in layout.areas() {
            device.write(Op::Records, WriteKind::Anchors, area + slot, bytes.clone().into(), true);
        }
    }

    /// Notes that a copy is durable. Answers the task that has its records on both; those that waited are written next.
    pub(super) fn written<D: Disk>(
        &mut self,
        disk: DiskId,
        layout: &Layout,
        device: &mut Device<D>,
    ) -> Option<SlotId> {
        let writing = self.writing.as_mut()?;
        writing.outstanding -= 1;
        if writing.outstanding > 0 {
            return None;
        }
        let Writing { task, bytes, .. } = self.writing.take()?;
        self.current = bytes;
        self.sequence += 1;
        self.write_next(disk, layout, device);
        Some(task)
    }

    /// Forgets what is not durable: it is refused.
    pub(super) fn abandon(&mut self) {
        self.waiting.clear();
        self.writing = None;
    }
}
