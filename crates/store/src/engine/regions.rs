//! The stamps of a slab's regions, and the regions in doubt after a crash (I5).

use super::pages::WordRanges;
use super::slab_table::SlabTable;
use crate::api::Regions;
use crate::cache::PageCache;
use crate::layout::Layout;
use smallvec::smallvec;
use types::{Epoch, SlabIndex, Stamp};

pub(super) fn word_ranges(layout: &Layout) -> WordRanges {
    smallvec![layout.stamp_word(0)..layout.stamp_word(layout.slab_blocks() - 1) + 1]
}

/// Returns the stamps and doubts of a slab whose pages are pinned.
pub(super) fn regions_of(
    slab: SlabIndex,
    slabs: &SlabTable,
    layout: &Layout,
    cache: &mut PageCache,
) -> Regions {
    let first = layout.stamp_word(0);
    let stamps: Vec<Stamp> = (first..first + layout.regions_per_slab())
        .map(|word| cache.word(slab, word).map_or(Stamp::UNKNOWN, Stamp::from_word))
        .collect();
    // Blocks that read as never written yield to another copy's contents, even if that copy is
    // trusted less.
    let doubt = slabs.entry(slab).filter(|entry| !entry.doubts_unwritten);
    let through = doubt.map_or(Epoch::default(), |entry| entry.doubtful_through);
    let in_doubt = |stamp: Stamp| through > Epoch(0) && (stamp.epoch() <= through || !stamp.is_known());
    let doubtful =
        (0..).zip(&stamps).filter(|(_, stamp)| in_doubt(**stamp)).map(|(region, _)| region).collect();
    Regions { stamps, doubtful }
}
