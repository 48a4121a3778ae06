//! The disk under the store, and the operations in flight on it.

use super::operation::Op;
use crate::health::{WriteKind, WrittenBytes};
use crate::slots::{SlotId, Slots};
use disk::{Disk, DiskCompletion, DiskInfo, DiskOperation};
use sys::{BufMut, Payload};

/// Invariant: each unanswered operation is in `operations` once, under the token that the disk got.
/// An answer with another token belongs to an abandoned store on the same disk, and is dropped.
pub(super) struct Device<D> {
    disk: D,
    operations: Slots<Op>,
    /// Operations submitted since the store was opened.
    started: u64,
    written: WrittenBytes,
    read_bytes: u64,
}

impl<D: Disk> Device<D> {
    pub(super) fn new(disk: D, incarnation: u64) -> Self {
        Self {
            disk,
            operations: Slots::new(incarnation),
            started: 0,
            written: WrittenBytes::default(),
            read_bytes: 0,
        }
    }

    pub(super) fn info(&self) -> &DiskInfo {
        self.disk.info()
    }
    pub(super) fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }
    pub(super) fn into_disk(self) -> D {
        self.disk
    }
    pub(super) fn has_news(&self) -> bool {
        self.disk.has_news()
    }
    pub(super) fn is_idle(&self) -> bool {
        self.operations.len() == 0
    }
    pub(super) fn started(&self) -> u64 {
        self.started
    }
    pub(super) fn written(&self) -> WrittenBytes {
        self.written
    }
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    pub(super) fn poll(&mut self, arrived: &mut Vec<DiskCompletion>) {
        self.disk.poll(arrived);
    }

    /// Ends the operation of this token. Returns its purpose; `None` if it is none of this store's.
    pub(super) fn end(&mut self, token: u64) -> Option<Op> {
        self.operations.remove(SlotId::from_token(token))
    }

    pub(super) fn start(&mut self, op: Op, operation: DiskOperation) {
        self.started += 1;
        let id = self.operations.insert(op);
        self.disk.submit(id.token(), operation);
    }

    pub(super) fn write(&mut self, op: Op, kind: WriteKind, offset: u64, data: Payload, durable: bool) {
        self.written.add(kind, data.len() as u64);
        self.start(op, DiskOperation::Write { offset, data, durable });
    }

    pub(super) fn read(&mut self, op: Op, offset: u64, len_bytes: usize) {
        self.read_bytes += len_bytes as u64;
        self.start(op, DiskOperation::Read { offset, into: BufMut::for_overwrite(len_bytes) });
    }
}
