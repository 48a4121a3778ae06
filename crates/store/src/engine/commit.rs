//! What happens when a journal batch or a flush is durable.

use super::Store;
use super::task::{Kind, Task};
use crate::layout::Layout;
use crate::metadata::merged_word;
use crate::numbers::block_key;
use crate::record::Record;
use crate::slots::SlotId;
use disk::Disk;
use sys::Payload;
use types::BLOCK_BYTES;

impl<D: Disk> Store<D> {
    /// A batch is durable: it and those behind it that were durable before take effect, in order.
    pub(super) fn batch_written(&mut self, sequence: u64) {
        self.journal.written(sequence);
        while let Some(batch) = self.journal.next_committed() {
            let mut data_block = batch.data_block;
            for pending in batch.entries {
                self.take_effect(&pending.record, &pending.data, data_block, batch.sequence);
                data_block += pending.record.data_blocks();
                self.committed(pending.task, batch.sequence);
            }
        }
    }

    /// Changes metadata words and the overlay as the record says. The pages are pinned by the task.
    fn take_effect(&mut self, record: &Record, data: &Payload, data_block: u32, sequence: u64) {
        let Some((slab, first, count, epoch)) = record.blocks() else { return };
        for at in 0..count {
            let word = record.word(at as usize);
            let present = self.cache.change(slab, first + at, |_| word);
            debug_assert!(present, "the page of a committed change is pinned");
        }
        for word in epoch_words(&self.layout, first, count) {
            self.cache.change(slab, word, |old| merged_word(true, old, epoch.0));
        }
        match record {
            Record::Overwrite { .. } => {
                for (at, block) in (first..first + count).enumerate() {
                    let bytes = match data.parts() {
                        [only] => only.slice(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES),
                        _ => data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous(),
                    };
                    self.overlay.insert(
                        block_key(slab, block),
                        sequence,
                        data_block + at as u32,
                        Some(bytes),
                    );
                }
            }
            Record::Fresh { .. } | Record::Discard { .. } => self.overlay.remove_range(slab, first, count),
            _ => {}
        }
    }

    fn committed(&mut self, id: SlotId, sequence: u64) {
        match self.tasks.get(id) {
            Some(Task { kind: Kind::Write(_), .. }) => self.write_committed(id),
            Some(Task { kind: Kind::Discard(_), .. }) => self.discard_committed(id),
            Some(Task { kind: Kind::Free(_), .. }) => self.free_committed(id, sequence),
            Some(Task { kind: Kind::Allocate(_), .. }) => self.allocate_committed(id),
            Some(Task { kind: Kind::Promise { .. }, .. }) => self.promise_committed(id),
            _ => {}
        }
    }

    /// The flush in flight is done.
    pub(super) fn flushed(&mut self) {
        for id in self.flushing.take().unwrap_or_default() {
            match self.tasks.get(id) {
                Some(Task { kind: Kind::Write(_), .. }) => self.write_flushed(id),
                Some(Task { kind: Kind::Allocate(_), .. }) => self.allocate_flushed(id),
                _ => {}
            }
        }
        self.checkpoint_flushed();
    }
}

fn epoch_words(layout: &Layout, first: u32, count: u32) -> std::ops::RangeInclusive<u32> {
    layout.epoch_word(first)..=layout.epoch_word(first + count - 1)
}
