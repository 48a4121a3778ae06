//! The epochs of a slab's regions, and which of them are in doubt after a crash (I5).

use super::pages::WordRanges;
use super::slab_table::SlabTable;
use crate::api::Regions;
use crate::cache::PageCache;
use crate::layout::Layout;
use smallvec::smallvec;
use types::{Epoch, SlabIndex};

pub(super) fn word_ranges(layout: &Layout) -> WordRanges {
    smallvec![layout.epoch_word(0)..layout.epoch_word(layout.slab_blocks() - 1) + 1]
}

/// Answers what is known of the regions of a slab whose pages are pinned.
pub(super) fn regions_of(
    slab: SlabIndex,
    slabs: &SlabTable,
    layout: &Layout,
    cache: &mut PageCache,
) -> Regions {
    let first = layout.epoch_word(0);
    let epochs: Vec<Epoch> = (first..first + layout.regions_per_slab())
        .map(|word| Epoch(cache.word(slab, word).unwrap_or(codes::LOST)))
        .collect();
    // Blocks that read as never written give way to what another copy has of them, whichever of the two is believed.
    let doubt = slabs.entry(slab).filter(|entry| !entry.doubts_unwritten);
    let through = doubt.map_or(Epoch::default(), |entry| entry.doubtful_through);
    let in_doubt = |epoch: Epoch| through > Epoch(0) && (epoch <= through || epoch.0 == codes::LOST);
    let doubtful =
        (0..).zip(&epochs).filter(|(_, epoch)| in_doubt(**epoch)).map(|(region, _)| region).collect();
    Regions { epochs, doubtful }
}
