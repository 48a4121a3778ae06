//! Opening: finds the label, reads anchor and tables, replays the journal, and claims the disk with
//! a new incarnation. It reads and checks everything before its first write.

use crate::anchor::{Anchor, may_be_records_header, parse_anchor, parse_records, records_slot_bytes};
use crate::io::{Io, Started};
use crate::journal::{Stretch, first_run};
use crate::label::{Label, LabelError, parse_label};
use crate::layout::{
    ANCHOR_SLOTS, AREA_BYTES, LABEL_SLOTS, LEAF_BYTES, LEAVES_PER_PAGE, Layout, PAGE_BYTES, PAGE_WORDS,
    PROMISE_PAGES, RECORDS_SLOTS, SLAB_ENTRIES_PER_LEAF,
};
use crate::metadata::{FoundPage, PageIdentity, Words, merged_word, page_identity, parse_page};
use crate::open_error::OpenError;
use crate::planted::Planted;
use crate::replay::{Doubt, Replayed, replay};
use crate::tables::{
    PromisePlaces, SlabEntry, damaged_table_pages, encode_slab_page, parse_promise_leaf, parse_slab_leaf,
    slab_page,
};
use crate::versions::{PageVersion, PageVersions};
use disk::{Disk, DiskError};
use std::collections::{BTreeSet, HashMap};
use sys::{Buf, BufMut};
use types::{Epoch, PoolId, SlabIndex, VolumeId};

/// Metadata pages read at once while replayed changes are merged into them.
const READS_IN_FLIGHT: usize = 32;

/// A disk's content as read by an opening, ready to continue with.
pub(crate) struct Opened {
    pub(crate) label: Label,
    pub(crate) anchor: Anchor,
    pub(crate) records: FoundRecords,
    pub(crate) slabs: Vec<Option<SlabEntry>>,
    pub(crate) promises: HashMap<VolumeId, Epoch>,
    pub(crate) promise_places: PromisePlaces,
    pub(crate) table_sequence: u64,
    pub(crate) tables_differ: TablesDiffer,
    /// Pages of the slab table with a doubt that is not on disk yet.
    pub(crate) doubtful_pages: BTreeSet<usize>,
    pub(crate) versions: PageVersions,
    pub(crate) damaged_version_leaves: u64,
    pub(crate) replayed: Replayed,
    pub(crate) merged: MergedPages,
    pub(crate) own: OwnDamage,
}

/// The newest intact records, and the state of their slots.
#[derive(Default)]
pub(crate) struct FoundRecords {
    /// Sequence of the newest records; 0 if there are none.
    pub(crate) sequence: u64,
    pub(crate) records: Vec<u8>,
    /// Bytes of the records in the slots of even and of odd sequences, if both copies are whole and
    /// equal.
    pub(crate) whole_bytes: [Option<usize>; 2],
    /// Whether a copy is unreadable or not whole, so that all copies must be rewritten.
    pub(crate) damaged: bool,
}

/// Damage of the store's own structures: unreadable pages, and pages in a state that no crash
/// leaves.
#[derive(Default)]
pub(crate) struct OwnDamage {
    /// Offsets of the pages.
    pub(crate) pages: BTreeSet<u64>,
    /// Pages that the medium failed to read, metadata pages among them.
    pub(crate) unreadable: u64,
    /// Blocks of the journal's live batches that the medium failed to read.
    pub(crate) journal: BTreeSet<u32>,
    /// Copies of the label to be rewritten.
    pub(crate) labels: Vec<u64>,
    /// Whether a copy of an anchor was damaged, so that both slots must be rewritten.
    pub(crate) anchors: bool,
    /// The newest anchors of even and of odd sequences, if both copies are whole and equal.
    pub(crate) whole_anchors: [Option<Anchor>; 2],
}

/// Metadata pages with the replayed changes.
#[derive(Default)]
pub(crate) struct MergedPages {
    pub(crate) pages: Vec<(u64, Words)>,
    pub(crate) damaged_leaves: u64,
    pub(crate) damaged_pages: u64,
    /// Pages whose last write the disk lost.
    pub(crate) lost_writes: u64,
}

/// Performs all reads of an opening, without a write.
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
    let mut own = OwnDamage::default();
    let anchor = read_anchor(io, &label, &mut own).await?.ok_or(OpenError::Damaged { what: "the anchor" })?;
    if anchor.tail_block >= label.layout.journal_blocks() {
        return Err(OpenError::Damaged { what: "the anchor" });
    }
    judge_labels(io, &label, &anchor, &mut own).await?;
    let records = read_records(io, &label, &mut own).await?;
    let Tables { mut slabs, mut promises, promise_places, sequence: table_sequence, differ: tables_differ } =
        read_tables(io, &label, &mut own).await?;
    let known = known_doubts(&slabs);
    let mut replayed = replay(io, &label, &anchor, &mut slabs, &mut promises).await?;
    let doubtful_pages = keep_doubts(&mut slabs, &known, &replayed.doubt, &promises);
    let (versions, damaged_version_leaves) = read_versions(io, &label, &anchor, &mut own).await?;
    let merged = merge_pages(io, &label, &slabs, &versions, &mut replayed).await?;
    let promises = promises.into_iter().collect();
    let journal = replayed.damaged_blocks.iter().map(|block| label.layout.journal_offset(*block));
    own.pages.extend(journal);
    own.take_unreadable(io, &label);
    Ok(Opened {
        label,
        anchor,
        records,
        slabs,
        promises,
        promise_places,
        table_sequence,
        tables_differ,
        doubtful_pages,
        versions,
        damaged_version_leaves,
        replayed,
        merged,
        own,
    })
}

/// Returns the entries of slabs that an earlier opening left in doubt.
fn known_doubts(slabs: &[Option<SlabEntry>]) -> Vec<(usize, SlabEntry)> {
    let entries = slabs.iter().enumerate().filter_map(|(slab, entry)| Some((slab, entry.as_ref()?)));
    entries
        .filter(|(_, entry)| entry.doubtful_through > Epoch(0))
        .map(|(slab, entry)| (slab, *entry))
        .collect()
}

/// Notes in the slab table the doubts of earlier openings (`known`) and of this one (`found`).
/// Returns the pages of the table that differ from those on disk.
fn keep_doubts(
    slabs: &mut [Option<SlabEntry>],
    known: &[(usize, SlabEntry)],
    found: &Doubt,
    promises: &HashMap<VolumeId, Epoch>,
) -> BTreeSet<usize> {
    // Replay makes the entries of slabs that the journal still gives out anew.
    for (slab, known) in known {
        if let Some(Some(entry)) = slabs.get_mut(*slab)
            && entry.generation == known.generation
        {
            (entry.doubtful_through, entry.doubts_unwritten) =
                (known.doubtful_through, known.doubts_unwritten);
        }
    }
    let mut pages = BTreeSet::new();
    for (slab, entry) in (0..).map(SlabIndex).zip(slabs) {
        let old_served = found.anything || found.slabs.contains(&slab);
        let Some(entry) = entry.as_mut().filter(|_| old_served || found.unwritten.contains(&slab)) else {
            continue;
        };
        let doubted_before = entry.doubtful_through > Epoch(0) && !entry.doubts_unwritten;
        entry.doubts_unwritten = !old_served && !doubted_before;
        let promised = promises.get(&entry.volume).copied().unwrap_or_default();
        entry.doubtful_through = entry.doubtful_through.max(promised).max(entry.epoch);
        pages.insert(slab_page(slab));
    }
    pages
}

/// Claims the disk: makes the replayed batches durable, heals copies of the label, then writes a
/// new incarnation, so that unacknowledged batches of the last one cannot pass for ours. Waits
/// until all of that is durable.
pub(crate) async fn claim<D: Disk>(io: &Io<D>, opened: &mut Opened) -> Result<(), DiskError> {
    // A replayed batch may be only in a cache, if its write was never answered. From here on it
    // counts as durable.
    if !Planted::ClaimWithoutFlush.is_planted() {
        io.flush().await?;
    }
    write_doubts(io, opened).await?;
    // Comes before the opening's first anchor: without an anchor, copies of the label may be
    // missing because formatting was interrupted. And before the journal holds records that another
    // program would not know.
    let label = &mut opened.label;
    let takes_up = label.features.take_up();
    label.sequence += u64::from(takes_up);
    let (label, bytes) = (&opened.label, Buf::from(&opened.label.encode()[..]));
    for (area, slot) in copies(&label.layout.areas(), &LABEL_SLOTS) {
        if takes_up || opened.own.labels.contains(&(area + slot)) {
            io.write(area + slot, bytes.clone().into(), true).await?;
        }
    }
    opened.anchor.sequence += 1;
    // All replayed batches, or those before the first one with a void record: the next opening
    // examines that batch again, unless it finds the record withdrawn.
    let found = opened.replayed.live.back().map_or(0, |batch| batch.sequence);
    let sound = opened.replayed.void_from.map_or(found, |sequence| sequence - 1);
    opened.anchor.durable_through = opened.anchor.durable_through.max(sound);
    opened.anchor.incarnation = opened.anchor.incarnation.max(opened.replayed.incarnation) + 1;
    let slot = ANCHOR_SLOTS[(opened.anchor.sequence % 2) as usize];
    let bytes = Buf::from(&opened.anchor.encode(label.disk)[..]);
    for area in label.layout.areas() {
        io.write(area + slot, bytes.clone().into(), true).await?;
    }
    opened.own.whole_anchors[(opened.anchor.sequence % 2) as usize] = Some(opened.anchor);
    heal_journal(io, opened).await
}

/// Writes zeroes over unreadable blocks of the journal that belong to no batch: each later opening
/// that searches there for the journal's end would meet them again. The anchor comes first, so that
/// such a block means nothing any more if it becomes readable after all.
async fn heal_journal<D: Disk>(io: &Io<D>, opened: &mut Opened) -> Result<(), DiskError> {
    let (layout, anchor) = (&opened.label.layout, &opened.anchor);
    let blocks = opened.replayed.live.iter().map(|batch| batch.blocks).sum();
    let live = Stretch { first: anchor.tail_block, blocks, of: layout.journal_blocks() };
    let (needed, mut dead): (BTreeSet<u32>, BTreeSet<u32>) =
        std::mem::take(&mut opened.own.journal).into_iter().partition(|block| live.contains(*block));
    opened.own.journal = needed;
    while let Some(run) = first_run(dead.iter().copied()) {
        dead.retain(|block| !run.contains(block));
        let zeroes = BufMut::zeroed(run.len() * PAGE_BYTES).freeze();
        match io.write(layout.journal_offset(run.start), zeroes.into(), true).await {
            // A failure loses nothing: the next batch written there will report it.
            Ok(()) | Err(DiskError::Medium(_) | DiskError::NoSpace) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes the doubt about the journal's end into the slab table. The anchor comes after that, since
/// from then on nothing in the journal shows the doubt any more. The pages may be ahead of the
/// anchor, like those of a checkpoint that a crash interrupted.
async fn write_doubts<D: Disk>(io: &Io<D>, opened: &mut Opened) -> Result<(), DiskError> {
    if opened.doubtful_pages.is_empty() || Planted::DoubtNotKept.is_planted() {
        return Ok(());
    }
    opened.table_sequence += 1;
    for &page in &opened.doubtful_pages {
        let bytes = encode_slab_page(opened.label.disk, page, opened.table_sequence, &opened.slabs);
        let bytes = Buf::from(&bytes[..]);
        for copy in opened.label.layout.tables {
            io.write(copy + (page * PAGE_BYTES) as u64, bytes.clone().into(), true).await?;
        }
    }
    Ok(())
}

fn copies(areas: &[u64; 2], slots: &[u64; 2]) -> Vec<(u64, u64)> {
    areas.iter().flat_map(|area| slots.iter().map(|slot| (*area, *slot))).collect()
}

/// Returns the valid label of the highest sequence; a front copy decides the disk's identity.
pub(crate) async fn read_label<D: Disk>(io: &Io<D>) -> Result<Label, OpenError> {
    let size_bytes = io.info().size_bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    if size_bytes < 2 * AREA_BYTES {
        return Err(OpenError::Blank);
    }
    let mut best: Option<Label> = None;
    let supported = crate::layout::FORMAT_VERSION;
    let (mut refused, mut damaged) = (None, false);
    let mut judge = |block: &[u8], best: &mut Option<Label>| match parse_label(block) {
        Ok(label) => {
            let better =
                best.as_ref().is_none_or(|known| known.disk == label.disk && known.sequence < label.sequence);
            if better {
                *best = Some(label);
            }
        }
        Err(LabelError::Newer(found)) => refused = Some(OpenError::NewerFormat { found, supported }),
        Err(LabelError::Older(found)) => refused = Some(OpenError::OlderFormat { found, supported }),
        Err(LabelError::UnknownFeatures(unknown)) => refused = Some(OpenError::UnknownFeatures(unknown)),
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
    match (refused, best) {
        (Some(error), _) => Err(error),
        (None, Some(label)) => Ok(label),
        (None, None) if damaged => Err(OpenError::Damaged { what: "the label" }),
        (None, None) => {
            let front = io.read_salvaging(0, AREA_BYTES as usize).await?;
            Err(crate::signature::recognise(&front).map_or(OpenError::Blank, OpenError::Foreign))
        }
    }
}

impl OwnDamage {
    /// Counts pages that could not be read since. The merge checks metadata pages.
    fn take_unreadable<D: Disk>(&mut self, io: &Io<D>, label: &Label) {
        let unreadable = io.unreadable();
        self.unreadable = unreadable.len() as u64;
        let Layout { metadata, slabs, .. } = label.layout;
        let slots = label.layout.areas().map(|area| area + ANCHOR_SLOTS[0]..area + ANCHOR_SLOTS[1] + 1);
        self.anchors |= unreadable.iter().any(|page| slots.iter().any(|slots| slots.contains(page)));
        self.journal = unreadable.iter().filter_map(|page| label.layout.journal_block(*page)).collect();
        self.pages.extend(unreadable.into_iter().filter(|page| !(metadata..slabs).contains(page)));
    }
}

/// Finds the copies of the label that differ. Formatting writes them one after the other, as does
/// an opening that adopts a feature.
async fn judge_labels<D: Disk>(
    io: &Io<D>,
    label: &Label,
    anchor: &Anchor,
    own: &mut OwnDamage,
) -> Result<(), DiskError> {
    let expected = label.encode();
    for (area, slot) in copies(&label.layout.areas(), &LABEL_SLOTS) {
        let found = io.read_salvaging(area + slot, PAGE_BYTES).await?;
        if *found != *expected {
            own.labels.push(area + slot);
            // If no opening has completed since, formatting may have been interrupted, or an
            // opening that adopted a feature.
            let opened_before = anchor.sequence > 1;
            let is_older = parse_label(&found)
                .is_ok_and(|found| found.disk == label.disk && found.sequence < label.sequence);
            own.pages.extend((opened_before && !is_older).then_some(area + slot));
        }
    }
    Ok(())
}

/// Reads the newest intact anchor. The nonzero part of an anchor lies in one sector, so a crash
/// leaves a slot with the older anchor, with the newer one, or never written.
async fn read_anchor<D: Disk>(
    io: &Io<D>,
    label: &Label,
    own: &mut OwnDamage,
) -> Result<Option<Anchor>, DiskError> {
    let mut found = [[None; 2]; 2];
    for (parity, slot) in ANCHOR_SLOTS.into_iter().enumerate() {
        for (copy, area) in label.layout.areas().into_iter().enumerate() {
            let bytes = io.read_salvaging(area + slot, PAGE_BYTES).await?;
            let anchor = parse_anchor(label.disk, &bytes);
            if anchor.is_none() && bytes.iter().any(|byte| *byte != 0) {
                own.pages.insert(area + slot);
                own.anchors = true;
            }
            found[parity][copy] = anchor;
        }
        own.whole_anchors[parity] = found[parity][0].filter(|anchor| found[parity][1] == Some(*anchor));
    }
    let newest = found.into_iter().flatten().flatten().max_by_key(|anchor| anchor.sequence);
    // Formatting writes one slot, and the first opening writes the other.
    let is_missing = |anchor: Anchor| anchor.sequence > 2 && found.as_flattened().contains(&None);
    own.anchors |= newest.is_some_and(is_missing);
    Ok(newest)
}

/// Reads the newest intact records; none if all copies are damaged, since the other disks have them
/// too. A crash may tear records, but never headers.
async fn read_records<D: Disk>(
    io: &Io<D>,
    label: &Label,
    own: &mut OwnDamage,
) -> Result<FoundRecords, DiskError> {
    let mut found = FoundRecords::default();
    let (unreadable_before, mut is_missing) = (io.unreadable().len(), false);
    for (parity, slot) in RECORDS_SLOTS.into_iter().enumerate() {
        let mut whole = [None; 2];
        for (copy, area) in label.layout.areas().into_iter().enumerate() {
            let mut bytes = io.read_salvaging(area + slot, PAGE_BYTES).await?;
            if !may_be_records_header(parity, &bytes) {
                own.pages.insert(area + slot);
            }
            let slot_bytes = records_slot_bytes(&bytes);
            if slot_bytes > PAGE_BYTES {
                bytes = io.read_salvaging(area + slot, slot_bytes).await?;
            }
            let Some((sequence, records)) = parse_records(label.disk, &bytes) else {
                found.damaged |= bytes.iter().any(|byte| *byte != 0);
                continue;
            };
            whole[copy] = Some((sequence, records.len()));
            if sequence > found.sequence {
                (found.sequence, found.records) = (sequence, records.to_vec());
            }
        }
        is_missing |= whole.contains(&None);
        found.whole_bytes[parity] = whole[0].filter(|_| whole[0] == whole[1]).map(|(_, len)| len);
    }
    // Formatting writes one slot, and the first records that are set fill the other.
    found.damaged |= is_missing && found.sequence > 2 || io.unreadable().len() > unreadable_before;
    Ok(found)
}

/// Both tables.
pub(crate) struct Tables {
    slabs: Vec<Option<SlabEntry>>,
    promises: HashMap<VolumeId, Epoch>,
    promise_places: PromisePlaces,
    /// Sequence of the newest leaf.
    sequence: u64,
    differ: TablesDiffer,
}

/// Pages in which the copies of the tables differ, after a crash, damage or a lost write. They are
/// rewritten before the other copy fails too.
#[derive(Default)]
pub(crate) struct TablesDiffer {
    pub(crate) slab_pages: BTreeSet<usize>,
    pub(crate) promises: bool,
}

/// Reads both tables, each leaf from the copy that is intact and newer.
async fn read_tables<D: Disk>(io: &Io<D>, label: &Label, own: &mut OwnDamage) -> Result<Tables, OpenError> {
    let layout = &label.layout;
    let bytes = layout.table_pages() * PAGE_BYTES;
    let copies = [
        io.read_salvaging(layout.tables[0], bytes).await?,
        io.read_salvaging(layout.tables[1], bytes).await?,
    ];
    let leaf_of = |copy: usize, leaf: usize| &copies[copy][leaf * LEAF_BYTES..(leaf + 1) * LEAF_BYTES];
    for (copy, bytes) in layout.tables.into_iter().zip(&copies) {
        let damaged = damaged_table_pages(label.disk, layout, 0, bytes);
        own.pages.extend(damaged.into_iter().map(|page| copy + (page * PAGE_BYTES) as u64));
    }
    let slab_leaves = layout.slab_table_pages() * LEAVES_PER_PAGE;
    let (mut slabs, mut promises) = (Vec::with_capacity(slab_leaves * SLAB_ENTRIES_PER_LEAF), HashMap::new());
    let (mut newest, mut differ) = (0, TablesDiffer::default());
    for leaf in 0..slab_leaves {
        let found = (0..2).filter_map(|copy| parse_slab_leaf(label.disk, leaf as u32, leaf_of(copy, leaf)));
        let (sequence, entries) =
            found
                .max_by_key(|(sequence, _)| {
                    if Planted::StaleTableCopy.is_planted() { u64::MAX - sequence } else { *sequence }
                })
                .ok_or(OpenError::Damaged { what: "the slab table" })?;
        newest = newest.max(sequence);
        slabs.extend_from_slice(&entries);
        if leaf_of(0, leaf) != leaf_of(1, leaf) {
            differ.slab_pages.insert(leaf / LEAVES_PER_PAGE);
        }
    }
    slabs.truncate(layout.slab_count as usize);
    let mut promise_places = PromisePlaces::default();
    for leaf in 0..PROMISE_PAGES * LEAVES_PER_PAGE {
        let at = slab_leaves + leaf;
        let found = (0..2).filter_map(|copy| parse_promise_leaf(label.disk, leaf as u32, leaf_of(copy, at)));
        let (sequence, entries) = found
            .max_by_key(|(sequence, _)| *sequence)
            .ok_or(OpenError::Damaged { what: "the promise table" })?;
        newest = newest.max(sequence);
        for entry in entries {
            promise_places.found(entry.map(|(volume, _)| volume));
            if let Some((volume, epoch)) = entry {
                let known: &mut Epoch = promises.entry(volume).or_default();
                *known = (*known).max(epoch);
            }
        }
        differ.promises |= leaf_of(0, at) != leaf_of(1, at);
    }
    Ok(Tables { slabs, promises, promise_places, sequence: newest, differ })
}

/// Reads the versions of the metadata pages, and counts damaged leaves.
async fn read_versions<D: Disk>(
    io: &Io<D>,
    label: &Label,
    anchor: &Anchor,
    own: &mut OwnDamage,
) -> Result<(PageVersions, u64), DiskError> {
    const READ_PAGES: usize = 256;
    // A checkpoint may have written versions, but no anchor.
    let newest = PageVersion::of_anchor(anchor.sequence + 1);
    let layout = &label.layout;
    let (mut versions, mut damaged_leaves) = (PageVersions::new(layout), 0);
    let pages = layout.version_pages();
    for first in (0..pages).step_by(READ_PAGES) {
        let count = READ_PAGES.min(pages - first);
        let offset = layout.versions + (first * PAGE_BYTES) as u64;
        let bytes = io.read_salvaging(offset, count * PAGE_BYTES).await?;
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            let damaged = versions.read_leaves(label.disk, page * LEAVES_PER_PAGE, newest, bytes);
            if damaged > 0 {
                versions.mark_changed([page]);
                own.pages.insert(layout.versions + (page * PAGE_BYTES) as u64);
            }
            damaged_leaves += damaged;
        }
    }
    Ok((versions, damaged_leaves))
}

/// Reads a metadata page; reads it twice if it is not whole, since the error may be transient.
async fn read_page<D: Disk>(
    io: &Io<D>,
    offset: u64,
    identity: PageIdentity,
    at_least: PageVersion,
    started: Started,
) -> Result<FoundPage, DiskError> {
    let first = match io.finish_read(started).await {
        Err(DiskError::Medium(_)) => None,
        read => Some(parse_page(identity, at_least, &read?)),
    };
    match first {
        Some(found) if found.is_whole() || Planted::PassingErrorMarksLost.is_planted() => Ok(found),
        _ => Ok(parse_page(identity, at_least, &io.read_salvaging(offset, PAGE_BYTES).await?)),
    }
}

/// Reads the metadata pages that replayed records change, and applies the changes.
async fn merge_pages<D: Disk>(
    io: &Io<D>,
    label: &Label,
    slabs: &[Option<SlabEntry>],
    versions: &PageVersions,
    replayed: &mut Replayed,
) -> Result<MergedPages, DiskError> {
    let layout = &label.layout;
    let mut changes: Vec<(u64, Vec<(u16, u64)>)> = replayed.changes.drain().collect();
    let entry_of = |key: u64| slabs.get((key >> 32) as usize).and_then(Option::as_ref);
    changes.retain(|(key, _)| entry_of(*key).is_some());
    changes.sort_unstable_by_key(|(key, _)| *key);
    let mut merged = MergedPages { pages: Vec::with_capacity(changes.len()), ..MergedPages::default() };
    for group in changes.chunks(READS_IN_FLIGHT) {
        let offset_of = |key: u64| layout.page_offset(SlabIndex((key >> 32) as u32), key as u32);
        let started: Vec<_> =
            group.iter().map(|(key, _)| io.start_read(offset_of(*key), PAGE_BYTES)).collect();
        for ((key, words_changed), started) in group.iter().zip(started) {
            let (slab, page) = (SlabIndex((key >> 32) as u32), *key as u32);
            let Some(entry) = entry_of(*key) else { continue };
            let identity = page_identity(label.disk, slab, entry, page);
            let at_least = versions.get(slab, page);
            let FoundPage { mut words, damaged, stale } =
                read_page(io, offset_of(*key), identity, at_least, started).await?;
            merged.damaged_leaves += u64::from(damaged);
            merged.damaged_pages += u64::from(damaged > 0);
            merged.lost_writes += u64::from(stale > 0);
            for (at, word) in words_changed {
                let index = page * PAGE_WORDS as u32 + u32::from(*at);
                if let Some(place) = words.get_mut(usize::from(*at)) {
                    *place = merged_word(index >= layout.slab_blocks(), *place, *word);
                }
            }
            merged.pages.push((*key, words));
        }
    }
    Ok(merged)
}
