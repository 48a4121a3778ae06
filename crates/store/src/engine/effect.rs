//! Applies a record in RAM when its batch is durable, and never earlier, so that reads see the
//! state that a crash would leave.

use crate::cache::PageCache;
use crate::journal::{Pending, Standing};
use crate::layout::Layout;
use crate::metadata::merged_word;
use crate::numbers::block_key;
use crate::overlay::{Overlay, OverlayEntry};
use crate::record::Record;
use types::BLOCK_BYTES;

/// Changes metadata words and the overlay by a record of batch `sequence`, whose data begin at
/// `data_block` of the journal. The record's task has pinned the pages.
pub(super) fn take_effect(
    pending: &Pending,
    sequence: u64,
    data_block: u32,
    layout: &Layout,
    cache: &mut PageCache,
    overlay: &mut Overlay,
) {
    let Pending { record, data, standing, .. } = pending;
    // The record was never visible to reads, so there is nothing to undo.
    if matches!(standing, Standing::Void | Standing::Withdraws) {
        return;
    }
    debug_assert_eq!(*standing, Standing::Counts, "a batch takes effect when its data is durable");
    let Some((slab, first, count, stamp)) = record.blocks() else { return };
    for at in 0..count {
        let word = record.word(at as usize);
        let present = cache.change(slab, first + at, |_| word);
        debug_assert!(present, "the page of a committed change is pinned");
    }
    for word in layout.stamp_word(first)..=layout.stamp_word(first + count - 1) {
        cache.change(slab, word, |old| merged_word(true, old, stamp.word()));
    }
    match record {
        Record::Overwrite { .. } => {
            for (at, block) in (first..first + count).enumerate() {
                let (journal_block, checksum) = (data_block + at as u32, record.word(at));
                let bytes = match data.parts() {
                    [only] => only.slice(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES),
                    _ => data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous(),
                };
                let entry = OverlayEntry { sequence, journal_block, checksum, bytes: Some(bytes) };
                overlay.insert(block_key(slab, block), entry);
            }
        }
        Record::Fresh { .. } | Record::Placed { .. } | Record::Discard { .. } => {
            overlay.remove_range(slab, first, count);
        }
        _ => {}
    }
}
