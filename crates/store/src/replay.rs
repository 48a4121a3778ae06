//! Replay: reads the journal from the anchor on and collects the changes of its batches.
//! Distinguishes a torn end, which is normal after a crash, from damage to acknowledged batches.

use crate::anchor::Anchor;
use crate::io::Io;
use crate::journal::{Journal, LiveBatch};
use crate::label::Label;
use crate::layout::{Layout, PAGE_BYTES, PAGE_WORDS};
use crate::metadata::merged_word;
use crate::numbers::{NumberMap, block_key, page_key};
use crate::open_error::OpenError;
use crate::overlay::OverlayEntry;
use crate::planted::Planted;
use crate::record::{BatchHeader, BatchLink, NO_BATCH_BEFORE, Record, parse_batch, parse_batch_header};
use crate::tables::SlabEntry;
use disk::{Disk, DiskError};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use sys::Buf;
use types::{BLOCK_BYTES, Epoch, Lba, SlabIndex, VolumeId};

/// Blocks read from the journal at once.
const WINDOW_BLOCKS: u32 = 256;
/// Bytes of journaled blocks kept from replay; others are read again when needed.
const KEPT_BYTES: usize = 8 << 20;
/// Batches that may wait for a proof that they were durable. Each batch proves all but the last two
/// before it, except for those from the first one that is being withdrawn.
const HELD_BATCHES_MAX: usize = 8;
/// Blocks in place that are read at once.
const PLACED_BLOCKS: usize = 256;

/// The doubt about the journal's end: a batch that begins there and is not whole was torn by the
/// crash and never acknowledged, or was acknowledged and has rotted since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubt {
    /// Whether the batch's changes are unknown, or more batches follow: then it may have changed
    /// anything.
    pub(crate) anything: bool,
    /// Slabs whose blocks the batch would have changed.
    pub(crate) slabs: BTreeSet<SlabIndex>,
    /// Slabs of which the batch would have written blocks that read as never written now.
    pub(crate) unwritten: BTreeSet<SlabIndex>,
}

/// Result of the replay.
#[derive(Default)]
pub(crate) struct Replayed {
    pub(crate) live: VecDeque<LiveBatch>,
    /// Highest incarnation seen.
    pub(crate) incarnation: u64,
    /// Changed words by metadata page: place in the page and new word, in order.
    pub(crate) changes: NumberMap<Vec<(u16, u64)>>,
    /// Journaled blocks.
    pub(crate) blocks: NumberMap<OverlayEntry>,
    /// Slabs whose table entries changed.
    pub(crate) changed_slabs: HashSet<SlabIndex>,
    /// Slabs freed by a batch that is still live, with its sequence.
    pub(crate) freed: HashMap<SlabIndex, u64>,
    pub(crate) changed_promises: bool,
    pub(crate) next_generation: u64,
    /// Blocks of the journal that held durable data and are damaged now.
    pub(crate) damaged_blocks: BTreeSet<u32>,
    pub(crate) doubt: Doubt,
    /// Records whose data are not in place although the record says so, and the batch of the first.
    /// They are void, and must be withdrawn before any batch says that theirs were durable.
    pub(crate) void: Vec<Record>,
    pub(crate) void_from: Option<u64>,
    kept_bytes: usize,
}

struct JournalReader<'a, D> {
    io: &'a Io<D>,
    layout: &'a Layout,
    window: Buf,
    first: u32,
}

impl<D: Disk> JournalReader<'_, D> {
    /// Reads `count` blocks from `block` on; fewer at the end of the journal.
    async fn blocks(&mut self, block: u32, count: u32) -> Result<Buf, DiskError> {
        let count = count.min(self.layout.journal_blocks() - block);
        let have = (self.window.len() / PAGE_BYTES) as u32;
        if block < self.first || block + count > self.first + have {
            let read = count.max(WINDOW_BLOCKS).min(self.layout.journal_blocks() - block);
            let offset = self.layout.journal_offset(block);
            self.window = self.io.read_salvaging(offset, read as usize * PAGE_BYTES).await?;
            self.first = block;
        }
        let start = (block - self.first) as usize * PAGE_BYTES;
        Ok(self.window.slice(start..start + count as usize * PAGE_BYTES))
    }

    /// Whether the medium failed to read the block.
    fn is_unreadable(&self, block: u32) -> bool {
        self.io.is_unreadable(self.layout.journal_offset(block))
    }
}

/// A batch that follows in the chain.
struct Found {
    header: BatchHeader,
    records: Vec<Record>,
    data: Buf,
    /// Data blocks that do not match their checksums.
    damaged: Vec<usize>,
}

impl Found {
    fn has_placed(&self) -> bool {
        self.records.iter().any(|record| matches!(record, Record::Placed { .. }))
    }
}

/// Tables that replay changes.
struct Tables<'a> {
    slabs: &'a mut [Option<SlabEntry>],
    promises: &'a mut HashMap<VolumeId, Epoch>,
}

/// Batches that name data in place, and those behind them, until a later one says that they were
/// durable: then the data were there, and may have been overwritten since. If no later batch says
/// so, none has changed the blocks either, since a batch that does says it.
#[derive(Default)]
struct HeldBatches(VecDeque<(Found, u32)>);

impl HeldBatches {
    /// Adds a batch whose data begin at `data_block`, and applies those that are known to have been
    /// durable.
    async fn push<D: Disk>(
        &mut self,
        found: Found,
        data_block: u32,
        durable_through: u64,
        replayed: &mut Replayed,
        io: &Io<D>,
        layout: &Layout,
        tables: &mut Tables<'_>,
    ) -> Result<(), OpenError> {
        let durable_through = durable_through.max(found.header.durable_through);
        self.0.push_back((found, data_block));
        while let Some((first, _)) = self.0.front() {
            let proven = first.header.sequence <= durable_through || !first.has_placed();
            if !proven && self.0.len() <= HELD_BATCHES_MAX {
                break;
            }
            let Some((found, data_block)) = self.0.pop_front() else { break };
            replayed.take(io, layout, &found, data_block, proven, tables).await?;
        }
        Ok(())
    }
}

pub(crate) async fn replay<D: Disk>(
    io: &Io<D>,
    label: &Label,
    anchor: &Anchor,
    slabs: &mut [Option<SlabEntry>],
    promises: &mut HashMap<VolumeId, Epoch>,
) -> Result<Replayed, OpenError> {
    let layout = &label.layout;
    let mut reader = JournalReader { io, layout, window: Buf::empty(), first: 0 };
    let mut replayed =
        Replayed { incarnation: 0, next_generation: anchor.next_generation, ..Replayed::default() };
    for entry in slabs.iter().flatten() {
        replayed.next_generation = replayed.next_generation.max(entry.generation.saturating_add(1));
    }
    let (mut block, mut sequence, mut previous) = (anchor.tail_block, anchor.tail_sequence, anchor.previous);
    let mut used = 0;
    let (mut held, mut tables) = (HeldBatches::default(), Tables { slabs, promises });
    loop {
        let incarnations = replayed.incarnation..=anchor.incarnation;
        let found = next_batch(&mut reader, label, block, |header| {
            header.sequence == sequence
                && header.previous == previous
                && incarnations.contains(&header.incarnation)
        })
        .await?;
        let Some(found) = found else {
            if sequence <= anchor.durable_through || acknowledged(&mut reader, label, block, sequence).await?
            {
                return Err(OpenError::JournalDamaged { sequence });
            }
            let first = reader.blocks(block, 1).await?;
            let link = BatchLink::read(&first);
            let begun = reader.is_unreadable(block)
                || link.sequence == sequence && link.incarnation == anchor.incarnation
                || link.previous == previous && previous != NO_BATCH_BEFORE;
            replayed.doubt.anything =
                begun || goes_on(&mut reader, label, block, sequence, anchor.incarnation).await?;
            break;
        };
        let own_blocks = found.header.header_blocks + found.header.data_blocks;
        let blocks = if found.header.wrap { layout.journal_blocks() - block } else { own_blocks };
        if used + blocks >= layout.journal_blocks() {
            return Err(OpenError::JournalDamaged { sequence });
        }
        let next_block = (block + blocks) % layout.journal_blocks();
        // A batch with incomplete data: torn and never acknowledged, or acknowledged and rotten
        // since.
        let proven = found.damaged.is_empty()
            || Planted::AcceptTornBatch.is_planted()
            || sequence <= anchor.durable_through
            || acknowledged(&mut reader, label, next_block, sequence).await?;
        if !proven {
            let changes = found.records.iter().filter_map(Record::blocks);
            replayed.doubt.slabs = changes.map(|(slab, ..)| slab).collect();
            replayed.doubt.anything =
                goes_on(&mut reader, label, next_block, sequence, anchor.incarnation).await?;
            break;
        }
        replayed.live.push_back(LiveBatch { sequence, blocks, crc: found.header.crc });
        replayed.incarnation = found.header.incarnation;
        (previous, sequence) = (found.header.crc, sequence + 1);
        let data_block = block + found.header.header_blocks;
        let known = anchor.durable_through;
        held.push(found, data_block, known, &mut replayed, io, layout, &mut tables).await?;
        used += blocks;
        block = next_block;
    }
    for (found, data_block) in held.0 {
        let proven = acknowledged(&mut reader, label, block, found.header.sequence).await?;
        replayed.take(io, layout, &found, data_block, proven, &mut tables).await?;
    }
    Ok(replayed)
}

/// Reads the batch at `block`, if an intact one is there that `fits` the chain.
async fn next_batch<D: Disk>(
    reader: &mut JournalReader<'_, D>,
    label: &Label,
    block: u32,
    fits: impl Fn(&BatchHeader) -> bool,
) -> Result<Option<Found>, DiskError> {
    let first = reader.blocks(block, 1).await?;
    let Some(header) = parse_batch_header(&first).filter(fits) else { return Ok(None) };
    let total = header.header_blocks + header.data_blocks;
    let bytes = reader.blocks(block, total).await?;
    if bytes.len() < total as usize * PAGE_BYTES {
        return Ok(None);
    }
    let Some((header, records)) = parse_batch(label.disk, &bytes) else { return Ok(None) };
    let data = bytes.slice(header.header_blocks as usize * PAGE_BYTES..);
    let damaged = damaged_data(&label.layout, &records, &data).map(|damaged| damaged.at).collect();
    Ok(Some(Found { header, records, data, damaged }))
}

/// Whether the last process that had the disk wrote a later batch than `sequence`: an intact header
/// within the range of batches in flight.
async fn goes_on<D: Disk>(
    reader: &mut JournalReader<'_, D>,
    label: &Label,
    from: u32,
    sequence: u64,
    incarnation: u64,
) -> Result<bool, DiskError> {
    any_batch(reader, label, from, |header| header.sequence > sequence && header.incarnation == incarnation)
        .await
}

/// Whether a later batch proves that batch `sequence` was durable once: an intact header of a later
/// sequence, within the range of batches in flight, that says so.
async fn acknowledged<D: Disk>(
    reader: &mut JournalReader<'_, D>,
    label: &Label,
    from: u32,
    sequence: u64,
) -> Result<bool, DiskError> {
    any_batch(reader, label, from, |header| header.durable_through >= sequence && header.sequence > sequence)
        .await
}

/// Whether an intact header that is `wanted` lies within the range of batches in flight.
async fn any_batch<D: Disk>(
    reader: &mut JournalReader<'_, D>,
    label: &Label,
    from: u32,
    wanted: impl Fn(&BatchHeader) -> bool,
) -> Result<bool, DiskError> {
    let blocks = label.layout.journal_blocks();
    let reach = (4 * Journal::batch_blocks_max(blocks)).min(blocks - 1);
    for step in 0..reach {
        let block = (from + step) % blocks;
        let first = reader.blocks(block, 1).await?;
        let Some(header) = parse_batch_header(&first) else { continue };
        if !wanted(&header) {
            continue;
        }
        let bytes = reader.blocks(block, header.header_blocks).await?;
        if parse_batch(label.disk, &bytes).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the data that a record names are in place: no readable block has other bytes.
async fn is_in_place<D: Disk>(
    io: &Io<D>,
    layout: &Layout,
    entry: &SlabEntry,
    (slab, first): (SlabIndex, u32),
    checksums: &[u64],
) -> Result<bool, DiskError> {
    if Planted::PlacedUnverified.is_planted() {
        return Ok(true);
    }
    let lba = u64::from(entry.chunk.0) * u64::from(layout.slab_blocks());
    for (part, checksums) in (0..).zip(checksums.chunks(PLACED_BLOCKS)) {
        let first = first + part * PLACED_BLOCKS as u32;
        let offset = layout.block_offset(slab, first);
        let bytes = io.read_salvaging(offset, checksums.len() * BLOCK_BYTES).await?;
        for ((block, checksum), bytes) in (first..).zip(checksums).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let intact = codes::block_matches(entry.volume, Lba(lba + u64::from(block)), bytes, *checksum);
            if !intact && !io.is_unreadable(layout.block_offset(slab, block)) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl Replayed {
    /// Applies a batch; `proven`: all that belongs to it was durable once.
    async fn take<D: Disk>(
        &mut self,
        io: &Io<D>,
        layout: &Layout,
        found: &Found,
        data_block: u32,
        proven: bool,
        tables: &mut Tables<'_>,
    ) -> Result<(), OpenError> {
        let Tables { slabs, promises } = tables;
        let sequence = found.header.sequence;
        let mut data_at = 0;
        for record in &found.records {
            match record {
                Record::Allocate { slab, volume, chunk, epoch, append, generation } => {
                    let entry = SlabEntry {
                        volume: *volume,
                        chunk: *chunk,
                        epoch: *epoch,
                        generation: *generation,
                        append: *append,
                        doubtful_through: Epoch::default(),
                        doubts_unwritten: false,
                    };
                    self.replace_slab(layout, *slab, Some(entry), slabs, sequence)?;
                    self.next_generation = self.next_generation.max(generation.saturating_add(1));
                    self.freed.remove(slab);
                }
                Record::Free { slab } => {
                    self.replace_slab(layout, *slab, None, slabs, sequence)?;
                    self.freed.insert(*slab, sequence);
                }
                Record::Promise { volume, epoch: Epoch(0) } => {
                    promises.remove(volume);
                    self.changed_promises = true;
                }
                Record::Promise { volume, epoch } => {
                    let known = promises.entry(*volume).or_default();
                    *known = (*known).max(*epoch);
                    self.changed_promises = true;
                }
                Record::Overwrite { slab, first, checksums, .. } => {
                    self.change_words(layout, record, sequence)?;
                    for (at, checksum) in checksums.iter().enumerate() {
                        let key = block_key(*slab, first + at as u32);
                        self.keep_block(key, *checksum, found, data_block, data_at + at);
                    }
                    data_at += checksums.len();
                }
                Record::Placed { .. }
                    if !proven && !self.is_placed(io, layout, record, sequence, slabs).await? =>
                {
                    let Some((slab, first, count, stamp)) = record.blocks() else { continue };
                    self.doubt.unwritten.insert(slab);
                    self.void_from.get_or_insert(sequence);
                    self.void.push(Record::Discard { slab, first, count, stamp });
                }
                Record::Fresh { .. }
                | Record::Placed { .. }
                | Record::Discard { .. }
                | Record::Append { .. } => {
                    self.change_words(layout, record, sequence)?;
                    if let Some((slab, first, count, _)) = record.blocks()
                        && !self.blocks.is_empty()
                    {
                        (first..first + count)
                            .for_each(|block| drop(self.blocks.remove(&block_key(slab, block))));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a record's data are in place.
    async fn is_placed<D: Disk>(
        &self,
        io: &Io<D>,
        layout: &Layout,
        record: &Record,
        sequence: u64,
        slabs: &[Option<SlabEntry>],
    ) -> Result<bool, OpenError> {
        let Record::Placed { slab, first, checksums, .. } = record else { return Ok(true) };
        let end = u64::from(*first) + checksums.len() as u64;
        let entry = slabs.get(slab.0 as usize).and_then(Option::as_ref);
        match entry.filter(|_| end <= u64::from(layout.slab_blocks())) {
            Some(entry) => Ok(is_in_place(io, layout, entry, (*slab, *first), checksums).await?),
            None => Err(OpenError::JournalDamaged { sequence }),
        }
    }

    fn keep_block(&mut self, key: u64, checksum: u64, found: &Found, data_block: u32, at: usize) {
        let journal_block = data_block + at as u32;
        if found.damaged.contains(&at) {
            // The checksum stands: the block reads as corrupt and is repaired from another copy.
            self.blocks.remove(&key);
            self.damaged_blocks.insert(journal_block);
            return;
        }
        let bytes = (self.kept_bytes < KEPT_BYTES).then(|| {
            self.kept_bytes += BLOCK_BYTES;
            Buf::from(&found.data[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES])
        });
        let sequence = found.header.sequence;
        self.blocks.insert(key, OverlayEntry { sequence, journal_block, checksum, bytes });
    }

    fn change_words(&mut self, layout: &Layout, record: &Record, sequence: u64) -> Result<(), OpenError> {
        let Some((slab, first, count, stamp)) = record.blocks() else { return Ok(()) };
        let end = first.checked_add(count).filter(|end| *end <= layout.slab_blocks());
        let (Some(end), true) = (end, slab.0 < layout.slab_count && count > 0) else {
            return Err(OpenError::JournalDamaged { sequence });
        };
        let mut change = |word: u32, value: u64| {
            let page = self.changes.entry(page_key(slab, word / PAGE_WORDS as u32)).or_default();
            page.push(((word % PAGE_WORDS as u32) as u16, value));
            if page.len() > 2 * PAGE_WORDS {
                keep_last(
                    page,
                    layout.slab_blocks().saturating_sub(word / PAGE_WORDS as u32 * PAGE_WORDS as u32),
                );
            }
        };
        (first..end).enumerate().for_each(|(at, block)| change(block, record.word(at)));
        (layout.stamp_word(first)..=layout.stamp_word(end - 1)).for_each(|word| change(word, stamp.word()));
        Ok(())
    }

    /// Gives a slab to its next owner, without the changes that earlier records made in it.
    fn replace_slab(
        &mut self,
        layout: &Layout,
        slab: SlabIndex,
        entry: Option<SlabEntry>,
        slabs: &mut [Option<SlabEntry>],
        sequence: u64,
    ) -> Result<(), OpenError> {
        let place = slabs.get_mut(slab.0 as usize).ok_or(OpenError::JournalDamaged { sequence })?;
        *place = entry;
        for page in 0..layout.metadata_pages_per_slab() {
            self.changes.remove(&page_key(slab, page));
        }
        self.blocks.retain(|key, _| (key >> 32) as u32 != slab.0);
        self.changed_slabs.insert(slab);
        Ok(())
    }
}

/// Keeps the last of several changes of a word; of a region's epoch (from place `epochs` in the
/// page on), the highest. So replay needs memory by pages, not by records.
fn keep_last(changes: &mut Vec<(u16, u64)>, epochs: u32) {
    let mut newest = [None; PAGE_WORDS];
    for (at, word) in changes.drain(..) {
        if let Some(place) = newest.get_mut(usize::from(at)) {
            *place = Some(merged_word(u32::from(at) >= epochs, place.unwrap_or(0), word));
        }
    }
    changes.extend((0..).zip(newest).filter_map(|(at, word)| Some((at, word?))));
}

/// A journaled block that does not match the checksum in its record.
pub(crate) struct DamagedBlock {
    /// Place of the block among the data blocks of its batch.
    pub(crate) at: usize,
    pub(crate) slab: SlabIndex,
    pub(crate) block: u32,
    pub(crate) volume: VolumeId,
    pub(crate) lba: Lba,
}

/// Returns the data blocks of a batch that do not match the checksums in its records.
pub(crate) fn damaged_data<'a>(
    layout: &'a Layout,
    records: &'a [Record],
    data: &'a [u8],
) -> impl Iterator<Item = DamagedBlock> + 'a {
    let overwritten = records.iter().filter_map(|record| match record {
        Record::Overwrite { slab, first, volume, chunk, checksums, .. } => {
            Some((*slab, *first, *volume, *chunk, checksums))
        }
        _ => None,
    });
    let blocks = overwritten.flat_map(|(slab, first, volume, chunk, checksums)| {
        let lba = u64::from(chunk.0) * u64::from(layout.slab_blocks());
        (first..)
            .zip(checksums)
            .map(move |(block, checksum)| (slab, block, volume, Lba(lba + u64::from(block)), *checksum))
    });
    let placed = blocks.zip(data.chunks_exact(BLOCK_BYTES)).enumerate();
    placed.filter_map(|(at, ((slab, block, volume, lba, checksum), bytes))| {
        let intact = codes::block_matches(volume, lba, bytes, checksum);
        (!intact).then_some(DamagedBlock { at, slab, block, volume, lba })
    })
}
