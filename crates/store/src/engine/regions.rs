//! The epochs of a slab's regions, and which of them are in doubt after a crash (I5).

use super::pages::WordRanges;
use crate::api::Regions;
use crate::cache::PageCache;
use crate::layout::Layout;
use crate::replay::Doubt;
use smallvec::smallvec;
use std::collections::BTreeSet;
use types::{Epoch, SlabIndex};

pub(super) fn word_ranges(layout: &Layout) -> WordRanges {
    smallvec![layout.epoch_word(0)..layout.epoch_word(layout.slab_blocks() - 1) + 1]
}

/// Answers what is known of the regions of a slab whose pages are pinned.
pub(super) fn regions_of(slab: SlabIndex, doubt: &Doubt, layout: &Layout, cache: &mut PageCache) -> Regions {
    let first = layout.epoch_word(0);
    let epochs = (first..first + layout.regions_per_slab())
        .map(|word| Epoch(cache.word(slab, word).unwrap_or(codes::LOST)))
        .collect();
    let mut doubtful = BTreeSet::new();
    if doubt.anything {
        doubtful.extend(0..layout.regions_per_slab());
    }
    for &(_, block, count) in doubt.places.iter().filter(|place| place.0 == slab) {
        let last = block.saturating_add(count.saturating_sub(1)).min(layout.slab_blocks() - 1);
        let regions = layout.epoch_word(block.min(last))..=layout.epoch_word(last);
        doubtful.extend(regions.map(|word| word - first));
    }
    Regions { epochs, doubtful: doubtful.into_iter().collect() }
}
