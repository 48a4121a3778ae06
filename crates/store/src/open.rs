//! Opening: finds the label, reads anchor and tables, replays the journal, and claims the disk with a new incarnation.
//! Everything is read and judged first; the first write comes when all was found sound.

use crate::anchor::{Anchor, parse_anchor, parse_records};
use crate::io::Io;
use crate::label::{Label, LabelError, parse_label};
use crate::layout::{
    ANCHOR_SLOTS, AREA_BYTES, LABEL_SLOTS, LEAF_BYTES, LEAVES_PER_PAGE, PAGE_BYTES, PAGE_WORDS,
    PROMISE_PAGES, RECORDS_SLOTS, SLAB_ENTRIES_PER_LEAF,
};
use crate::metadata::{PageIdentity, Words, parse_page};
use crate::replay::{Replayed, replay};
use crate::tables::{SlabEntry, parse_promise_leaf, parse_slab_leaf};
use disk::{Disk, DiskError};
use std::collections::HashMap;
use sys::Buf;
use types::{DiskId, Epoch, PoolId, SlabIndex, VolumeId};

/// Metadata pages read at once while replayed changes are merged into them.
const READS_IN_FLIGHT: usize = 32;

/// Why a disk cannot be opened. Nothing on it was changed, except after `Disk`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the disk is empty: it has no label")]
    Blank,
    #[error("the disk is not one of ours: it holds {0}")]
    Foreign(&'static str),
    #[error(
        "the disk has format version {found}, newer than this program's {supported}; nothing was changed"
    )]
    NewerFormat { found: u32, supported: u32 },
    #[error("the disk belongs to pool {found}")]
    OtherPool { found: PoolId },
    #[error("the disk shrank from {label_bytes} to {size_bytes} bytes")]
    Shrunk { label_bytes: u64, size_bytes: u64 },
    #[error("the disk was formatted with logical blocks of {formatted} bytes and has blocks of {found}")]
    BlockSize { formatted: u32, found: u32 },
    #[error("{what} is damaged in all copies")]
    Damaged { what: &'static str },
    #[error("the journal is damaged: batch {sequence} was acknowledged and cannot be read")]
    JournalDamaged { sequence: u64 },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What was found on a disk, ready to go on with.
pub(crate) struct Opened {
    pub(crate) label: Label,
    pub(crate) anchor: Anchor,
    pub(crate) records: Vec<u8>,
    pub(crate) records_sequence: u64,
    pub(crate) slabs: Vec<Option<SlabEntry>>,
    pub(crate) promises: HashMap<VolumeId, Epoch>,
    pub(crate) table_sequence: u64,
    pub(crate) replayed: Replayed,
    /// Metadata pages with the replayed changes.
    pub(crate) pages: Vec<(u64, Words)>,
    pub(crate) damaged_leaves: u64,
}

/// Everything that opening reads, without a write.
pub(crate) async fn examine<D: Disk>(io: &Io<D>, pool: Option<PoolId>) -> Result<Opened, OpenError> {
    let label = read_label(io).await?;
    let size_bytes = io.info().size_bytes;
    if let Some(expected) = pool.filter(|expected| *expected != label.pool) {
        let _ = expected;
        return Err(OpenError::OtherPool { found: label.pool });
    }
    if size_bytes < label.layout.size_bytes {
        return Err(OpenError::Shrunk { label_bytes: label.layout.size_bytes, size_bytes });
    }
    if io.info().block_bytes > PAGE_BYTES as u32 {
        return Err(OpenError::BlockSize { formatted: label.block_bytes, found: io.info().block_bytes });
    }
    let anchor = read_anchor(io, &label).await?.ok_or(OpenError::Damaged { what: "the anchor" })?;
    if anchor.tail_block >= label.layout.journal_blocks() {
        return Err(OpenError::Damaged { what: "the anchor" });
    }
    let (records_sequence, records) = read_records(io, &label).await?;
    let (mut slabs, mut promises, table_sequence) = read_tables(io, &label).await?;
    let mut replayed = replay(io, &label, &anchor, &mut slabs, &mut promises).await?;
    let (pages, damaged_leaves) = merge_pages(io, &label, &slabs, &mut replayed).await?;
    let promises = promises.into_iter().collect();
    Ok(Opened {
        label,
        anchor,
        records,
        records_sequence,
        slabs,
        promises,
        table_sequence,
        replayed,
        pages,
        damaged_leaves,
    })
}

/// Claims the disk: a new incarnation, so that batches of the last one that were never acknowledged are not taken for ours;
/// and heals label copies. Waits until both are durable.
pub(crate) async fn claim<D: Disk>(io: &Io<D>, opened: &mut Opened) -> Result<(), DiskError> {
    let label = &opened.label;
    opened.anchor.sequence += 1;
    let found = opened.replayed.live.back().map_or(0, |batch| batch.sequence);
    opened.anchor.durable_through = opened.anchor.durable_through.max(found);
    opened.anchor.incarnation = opened.anchor.incarnation.max(opened.replayed.incarnation) + 1;
    let slot = ANCHOR_SLOTS[(opened.anchor.sequence % 2) as usize];
    let bytes = Buf::from(&opened.anchor.encode(label.disk)[..]);
    for area in label.layout.areas() {
        io.write(area + slot, bytes.clone().into(), true).await?;
    }
    let bytes = Buf::from(&label.encode()[..]);
    for (area, slot) in copies(&label.layout.areas(), &LABEL_SLOTS) {
        if *io.read_salvaging(area + slot, PAGE_BYTES).await? != *bytes {
            io.write(area + slot, bytes.clone().into(), true).await?;
        }
    }
    Ok(())
}

fn copies(areas: &[u64; 2], slots: &[u64; 2]) -> Vec<(u64, u64)> {
    areas.iter().flat_map(|area| slots.iter().map(|slot| (*area, *slot))).collect()
}

/// The valid label of the highest sequence; a front copy decides which disk this is.
pub(crate) async fn read_label<D: Disk>(io: &Io<D>) -> Result<Label, OpenError> {
    let size_bytes = io.info().size_bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    if size_bytes < 2 * AREA_BYTES {
        return Err(OpenError::Blank);
    }
    let mut best: Option<Label> = None;
    let (mut newer, mut damaged) = (None, false);
    let mut judge = |block: &[u8], best: &mut Option<Label>| match parse_label(block) {
        Ok(label) => {
            let better =
                best.as_ref().is_none_or(|known| known.disk == label.disk && known.sequence < label.sequence);
            if better {
                *best = Some(label);
            }
        }
        Err(LabelError::Newer(version)) => newer = Some(version),
        Err(LabelError::Damaged) => damaged = true,
        Err(LabelError::Absent) => {}
    };
    for slot in LABEL_SLOTS {
        judge(&io.read_salvaging(slot, PAGE_BYTES).await?, &mut best);
    }
    let label_end = best.as_ref().map(|label| label.layout.size_bytes).filter(|end| *end <= size_bytes);
    let end_area = label_end.unwrap_or(size_bytes) - AREA_BYTES;
    for slot in LABEL_SLOTS {
        judge(&io.read_salvaging(end_area + slot, PAGE_BYTES).await?, &mut best);
    }
    match (newer, best) {
        (Some(found), _) => Err(OpenError::NewerFormat { found, supported: crate::layout::FORMAT_VERSION }),
        (None, Some(label)) => Ok(label),
        (None, None) if damaged => Err(OpenError::Damaged { what: "the label" }),
        (None, None) => {
            let front = io.read_salvaging(0, AREA_BYTES as usize).await?;
            Err(crate::signature::recognise(&front).map_or(OpenError::Blank, OpenError::Foreign))
        }
    }
}

pub(crate) async fn read_anchor<D: Disk>(io: &Io<D>, label: &Label) -> Result<Option<Anchor>, DiskError> {
    let mut best: Option<Anchor> = None;
    for (area, slot) in copies(&label.layout.areas(), &ANCHOR_SLOTS) {
        let found = parse_anchor(label.disk, &io.read_salvaging(area + slot, PAGE_BYTES).await?);
        best = best.into_iter().chain(found).max_by_key(|anchor| anchor.sequence);
    }
    Ok(best)
}

/// The newest intact records; none where all copies are damaged: the other disks have them too.
pub(crate) async fn read_records<D: Disk>(io: &Io<D>, label: &Label) -> Result<(u64, Vec<u8>), DiskError> {
    let slot_bytes = (RECORDS_SLOTS[1] - RECORDS_SLOTS[0]) as usize;
    let mut best = (0, Vec::new());
    for (area, slot) in copies(&label.layout.areas(), &RECORDS_SLOTS) {
        let bytes = io.read_salvaging(area + slot, slot_bytes).await?;
        if let Some((sequence, records)) = parse_records(label.disk, &bytes)
            && sequence > best.0
        {
            best = (sequence, records.to_vec());
        }
    }
    Ok(best)
}

type Tables = (Vec<Option<SlabEntry>>, HashMap<VolumeId, Epoch>, u64);

/// Both tables, leaf by leaf from whichever copy is intact and newer.
pub(crate) async fn read_tables<D: Disk>(io: &Io<D>, label: &Label) -> Result<Tables, OpenError> {
    let layout = &label.layout;
    let bytes = layout.table_pages() * PAGE_BYTES;
    let copies = [
        io.read_salvaging(layout.tables[0], bytes).await?,
        io.read_salvaging(layout.tables[1], bytes).await?,
    ];
    let leaf_of = |copy: usize, leaf: usize| &copies[copy][leaf * LEAF_BYTES..(leaf + 1) * LEAF_BYTES];
    let slab_leaves = layout.slab_table_pages() * LEAVES_PER_PAGE;
    let (mut slabs, mut promises) = (Vec::with_capacity(slab_leaves * SLAB_ENTRIES_PER_LEAF), HashMap::new());
    let mut newest = 0;
    for leaf in 0..slab_leaves {
        let found = (0..2).filter_map(|copy| parse_slab_leaf(label.disk, leaf as u32, leaf_of(copy, leaf)));
        let (sequence, entries) = found
            .max_by_key(|(sequence, _)| *sequence)
            .ok_or(OpenError::Damaged { what: "the slab table" })?;
        newest = newest.max(sequence);
        slabs.extend_from_slice(&entries);
    }
    slabs.truncate(layout.slab_count as usize);
    for leaf in 0..PROMISE_PAGES * LEAVES_PER_PAGE {
        let at = slab_leaves + leaf;
        let found = (0..2).filter_map(|copy| parse_promise_leaf(label.disk, leaf as u32, leaf_of(copy, at)));
        let (sequence, entries) = found
            .max_by_key(|(sequence, _)| *sequence)
            .ok_or(OpenError::Damaged { what: "the promise table" })?;
        newest = newest.max(sequence);
        promises.extend(entries.into_iter().flatten());
    }
    Ok((slabs, promises, newest))
}

/// Reads the metadata pages that replayed records change, and changes them.
async fn merge_pages<D: Disk>(
    io: &Io<D>,
    label: &Label,
    slabs: &[Option<SlabEntry>],
    replayed: &mut Replayed,
) -> Result<(Vec<(u64, Words)>, u64), DiskError> {
    let layout = &label.layout;
    let mut changes: Vec<(u64, Vec<(u16, u64)>)> = replayed.changes.drain().collect();
    changes.sort_unstable_by_key(|(key, _)| *key);
    let (mut pages, mut damaged_leaves) = (Vec::with_capacity(changes.len()), 0);
    for group in changes.chunks(READS_IN_FLIGHT) {
        let started: Vec<_> = group
            .iter()
            .map(|(key, _)| {
                io.start_read(layout.page_offset(SlabIndex((key >> 32) as u32), *key as u32), PAGE_BYTES)
            })
            .collect();
        for ((key, words_changed), started) in group.iter().zip(started) {
            let bytes = match io.finish_read(started).await {
                Err(DiskError::Io(_)) => Buf::from(&[0; PAGE_BYTES][..]),
                read => read?,
            };
            let (slab, page) = (SlabIndex((key >> 32) as u32), *key as u32);
            let Some(Some(entry)) = slabs.get(slab.0 as usize) else { continue };
            let (mut words, damaged) = parse_page(page_identity(label.disk, slab, entry, page), &bytes);
            damaged_leaves += u64::from(damaged);
            for (at, word) in words_changed {
                let index = page * PAGE_WORDS as u32 + u32::from(*at);
                if let Some(place) = words.get_mut(usize::from(*at)) {
                    *place = merged_word(index >= layout.slab_blocks(), *place, *word);
                }
            }
            pages.push((*key, words));
        }
    }
    Ok((pages, damaged_leaves))
}

pub(crate) fn page_identity(disk: DiskId, slab: SlabIndex, entry: &SlabEntry, page: u32) -> PageIdentity {
    PageIdentity { disk, slab, generation: entry.generation, page }
}

/// A changed word: checksums are replaced; the epoch of a region only grows, and stays lost where it was lost.
pub(crate) fn merged_word(is_epoch: bool, old: u64, new: u64) -> u64 {
    if is_epoch { old.max(new) } else { new }
}
