//! Inspects a disk without changing it: its kind, its contents, its damage.

use crate::anchor::{Anchor, parse_anchor, parse_records};
use crate::io::{DiskWork, Io};
use crate::label::{Label, LabelError, parse_label};
use crate::layout::{
    ANCHOR_SLOTS, AREA_BYTES, LABEL_SLOTS, LEAF_BYTES, LEAVES_PER_PAGE, PAGE_BYTES, RECORDS_SLOTS,
};
use crate::metadata::{page_identity, parse_page};
use crate::open::{MergedPages, Opened, examine, read_label};
use crate::open_error::OpenError;
use crate::tables::{parse_promise_leaf, parse_slab_leaf};
use disk::{Disk, DiskError};
use std::collections::BTreeMap;
use std::fmt;
use sys::Buf;
use types::{Epoch, SlabIndex, VolumeId};

/// One of several copies of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyState {
    /// Structure of the copy.
    pub what: &'static str,
    /// Offset of the copy in bytes.
    pub offset: u64,
    /// Sequence of an intact copy, otherwise its defect.
    pub state: Result<u64, String>,
}

/// A volume's share of this disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeOnDisk {
    /// Chunks of the volume that have a slab here, append chunks included.
    pub chunks: u32,
    /// Chunks allocated for class [`WriteClass::Append`](crate::api::WriteClass::Append).
    pub append_chunks: u32,
    /// Highest epoch promised; zero if none was.
    pub promised: Epoch,
}

/// Content of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalOnDisk {
    /// Batches that an opening would replay.
    pub batches: u64,
    /// Bytes of the journal that these batches take.
    pub used_bytes: u64,
    /// Blocks that are not in place yet.
    pub blocks: u64,
    /// Of these: blocks whose data rotted.
    pub corrupt_blocks: u64,
}

/// Findings about a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Path of the device or file.
    pub path: String,
    /// Size of the device or file in bytes, as it is now.
    pub size_bytes: u64,
    /// Newest intact label; `None` if this program can read none.
    pub label: Option<Label>,
    /// Every copy of labels, anchors and records that is not empty.
    pub copies: Vec<CopyState>,
    /// Intact anchor with the highest sequence.
    pub anchor: Option<Anchor>,
    /// Length in bytes of the newest intact copy of the records.
    pub records_bytes: Option<u64>,
    /// Newest intact copy of the records; empty if there is none, or none was set.
    pub records: Vec<u8>,
    /// Damaged leaves in each copy of the tables, and leaves damaged in both.
    pub damaged_table_leaves: [u64; 2],
    /// Content of the journal; `None` if it could not be replayed.
    pub journal: Option<JournalOnDisk>,
    /// Volumes that have chunks here or were promised an epoch.
    pub volumes: BTreeMap<VolumeId, VolumeOnDisk>,
    /// Slabs without a chunk; `None` if the slab table could not be read.
    pub free_slabs: Option<u32>,
    /// Damage found, and its meaning.
    pub problems: Vec<String>,
}

/// Reads only the identity of a disk; writes nothing.
///
/// # Errors
///
/// [`OpenError`]: the disk has no label, or none that can be read.
pub fn identify<D: Disk + 'static>(disk: D) -> Result<Label, OpenError> {
    DiskWork::new(disk, |io| async move { read_label(&io).await }).run().0
}

/// Reads a disk's structures; writes nothing.
///
/// # Errors
/// [`DiskError`] if the disk cannot be read. Damage is no error, but a finding.
pub fn inspect<D: Disk + 'static>(disk: D) -> Result<Inspection, DiskError> {
    DiskWork::new(disk, run).run().0
}

async fn run<D: Disk>(io: Io<D>) -> Result<Inspection, DiskError> {
    let info = io.info();
    let mut found = Inspection { path: info.path, size_bytes: info.size_bytes, ..Inspection::default() };
    if info.size_bytes < 2 * AREA_BYTES {
        found.problems.push("the disk is too small to hold a label".to_owned());
        return Ok(found);
    }
    match read_label(&io).await {
        Ok(label) => found.label = Some(label),
        Err(OpenError::Disk(error)) => return Err(error),
        Err(why) => found.problems.push(why.to_string()),
    }
    let end =
        found.label.as_ref().map_or(info.size_bytes, |label| label.layout.size_bytes.min(info.size_bytes));
    let areas = [0, end / PAGE_BYTES as u64 * PAGE_BYTES as u64 - AREA_BYTES];
    inspect_labels(&io, &mut found, areas).await?;
    let Some(label) = found.label.clone() else { return Ok(found) };
    if label.layout.size_bytes <= info.size_bytes {
        inspect_copies(&io, &mut found, &label).await?;
        inspect_tables(&io, &mut found, &label).await?;
    }
    inspect_content(&io, &mut found).await?;
    let damaged: Vec<String> = found
        .copies
        .iter()
        .filter_map(|copy| Some(format!("{} at {}: {}", copy.what, copy.offset, copy.state.as_ref().err()?)))
        .collect();
    found.problems.extend(damaged);
    Ok(found)
}

async fn inspect_labels<D: Disk>(
    io: &Io<D>,
    found: &mut Inspection,
    areas: [u64; 2],
) -> Result<(), DiskError> {
    for offset in areas.into_iter().flat_map(|area| LABEL_SLOTS.map(|slot| area + slot)) {
        let state = match parse_label(&io.read_salvaging(offset, PAGE_BYTES).await?) {
            Ok(label) => match &found.label {
                Some(chosen) if chosen.disk != label.disk => Err(format!("the label of disk {}", label.disk)),
                Some(chosen) if *chosen != label => Err(format!("older (sequence {})", label.sequence)),
                _ => Ok(label.sequence),
            },
            Err(LabelError::Absent) if found.label.is_none() => continue,
            Err(why) => Err(why.to_string()),
        };
        found.copies.push(CopyState { what: "label", offset, state });
    }
    Ok(())
}

/// Inspects anchors and records: of each pair of slots one may be empty, but not in both areas.
async fn inspect_copies<D: Disk>(io: &Io<D>, found: &mut Inspection, label: &Label) -> Result<(), DiskError> {
    let records_bytes = (RECORDS_SLOTS[1] - RECORDS_SLOTS[0]) as usize;
    let mut newest_records = None;
    for area in label.layout.areas() {
        for slot in ANCHOR_SLOTS {
            let Some(bytes) = read_copy(io, found, "anchor", area + slot, PAGE_BYTES).await? else {
                continue;
            };
            let state = match parse_anchor(label.disk, &bytes) {
                Some(anchor) => {
                    let newer = found.anchor.is_none_or(|known| known.sequence < anchor.sequence);
                    found.anchor = if newer { Some(anchor) } else { found.anchor };
                    Ok(anchor.sequence)
                }
                None if bytes.iter().all(|byte| *byte == 0) => continue,
                None => Err("damaged".to_owned()),
            };
            found.copies.push(CopyState { what: "anchor", offset: area + slot, state });
        }
        for slot in RECORDS_SLOTS {
            let Some(bytes) = read_copy(io, found, "records", area + slot, records_bytes).await? else {
                continue;
            };
            let state = match parse_records(label.disk, &bytes) {
                Some((sequence, records)) => {
                    if newest_records.is_none_or(|(newest, _)| newest < sequence) {
                        newest_records = Some((sequence, records.len() as u64));
                        found.records = records.to_vec();
                    }
                    Ok(sequence)
                }
                None if bytes.iter().all(|byte| *byte == 0) => continue,
                None => Err("damaged".to_owned()),
            };
            found.copies.push(CopyState { what: "records", offset: area + slot, state });
        }
    }
    found.records_bytes = newest_records.map(|(_, len)| len);
    if newest_records.is_none() {
        found.problems.push("no intact copy of the records; the pool's other disks have them too".to_owned());
    }
    Ok(())
}

/// Reads one copy. If the device cannot read it, notes that instead.
async fn read_copy<D: Disk>(
    io: &Io<D>,
    found: &mut Inspection,
    what: &'static str,
    offset: u64,
    len: usize,
) -> Result<Option<Buf>, DiskError> {
    match io.read(offset, len).await {
        Err(error @ DiskError::Medium(_)) => {
            let why = error.to_string();
            found.copies.push(CopyState { what, offset, state: Err(why) });
            Ok(None)
        }
        read => read.map(Some),
    }
}

async fn inspect_tables<D: Disk>(io: &Io<D>, found: &mut Inspection, label: &Label) -> Result<(), DiskError> {
    let layout = &label.layout;
    let slab_leaves = layout.slab_table_pages() * LEAVES_PER_PAGE;
    for (copy, offset) in layout.tables.into_iter().enumerate() {
        let bytes = io.read_salvaging(offset, layout.table_pages() * PAGE_BYTES).await?;
        let damaged = bytes.chunks_exact(LEAF_BYTES).enumerate().filter(|(at, leaf)| {
            match at.checked_sub(slab_leaves) {
                None => parse_slab_leaf(label.disk, *at as u32, leaf).is_none(),
                Some(at) => parse_promise_leaf(label.disk, at as u32, leaf).is_none(),
            }
        });
        let damaged = damaged.count() as u64;
        if let Some(place) = found.damaged_table_leaves.get_mut(copy) {
            *place = damaged;
        }
        if damaged > 0 {
            found.problems.push(format!(
                "{damaged} leaves of the tables at {offset} are damaged; the other copy serves"
            ));
        }
    }
    Ok(())
}

/// Inspects the content as an opening would read it.
async fn inspect_content<D: Disk>(io: &Io<D>, found: &mut Inspection) -> Result<(), DiskError> {
    let opened = match examine(io, None).await {
        Ok(opened) => opened,
        Err(OpenError::Disk(error)) => return Err(error),
        Err(why) => {
            found.problems.push(format!("cannot be opened: {why}"));
            return Ok(());
        }
    };
    let replayed = &opened.replayed;
    let used_blocks: u64 = replayed.live.iter().map(|batch| u64::from(batch.blocks)).sum();
    found.journal = Some(JournalOnDisk {
        batches: replayed.live.len() as u64,
        used_bytes: used_blocks * PAGE_BYTES as u64,
        blocks: replayed.blocks.len() as u64,
        corrupt_blocks: replayed.damaged_blocks.len() as u64,
    });
    if !replayed.damaged_blocks.is_empty() {
        found.problems.push(format!("{} blocks rotted in the journal", replayed.damaged_blocks.len()));
    }
    let pages = inspect_pages(io, &opened).await?;
    for (count, what) in [
        (pages.damaged_leaves, "metadata leaves are damaged; each loses the checksums of 62 blocks"),
        (pages.lost_writes, "metadata pages are older than they should be: the disk lost writes of them"),
        (
            opened.damaged_version_leaves,
            "leaves of the page versions are damaged; until their pages are written again, a lost write of one is not told",
        ),
    ] {
        if count > 0 {
            found.problems.push(format!("{count} {what}"));
        }
    }
    for entry in opened.slabs.iter().flatten() {
        let volume = found.volumes.entry(entry.volume).or_default();
        volume.chunks += 1;
        volume.append_chunks += u32::from(entry.append);
    }
    for (volume, epoch) in &opened.promises {
        found.volumes.entry(*volume).or_default().promised = *epoch;
    }
    found.free_slabs = Some(opened.slabs.iter().filter(|entry| entry.is_none()).count() as u32);
    Ok(())
}

/// Reads all metadata pages of slabs in use, as they lie on disk.
async fn inspect_pages<D: Disk>(io: &Io<D>, opened: &Opened) -> Result<MergedPages, DiskError> {
    let layout = &opened.label.layout;
    let mut found = MergedPages::default();
    for (slab, entry) in (0..).map(SlabIndex).zip(&opened.slabs) {
        let Some(entry) = entry else { continue };
        let bytes_of_slab = layout.metadata_pages_per_slab() as usize * PAGE_BYTES;
        let bytes = io.read_salvaging(layout.page_offset(slab, 0), bytes_of_slab).await?;
        for (page, bytes) in (0..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            let identity = page_identity(opened.label.disk, slab, entry, page);
            let at_least = opened.versions.get(slab, page);
            let mut judged = parse_page(identity, at_least, bytes);
            if !judged.is_whole() {
                // A running server may have been writing it.
                let again = io.read_salvaging(layout.page_offset(slab, page), PAGE_BYTES).await?;
                judged = parse_page(identity, at_least, &again);
            }
            found.damaged_leaves += u64::from(judged.damaged);
            found.lost_writes += u64::from(judged.stale > 0);
        }
    }
    Ok(found)
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} bytes", self.path, self.size_bytes)?;
        if let Some(label) = &self.label {
            writeln!(f, "{label}")?;
        }
        if let Some(anchor) = &self.anchor {
            writeln!(
                f,
                "anchor         {}, incarnation {}, journal from batch {} at block {}",
                anchor.sequence, anchor.incarnation, anchor.tail_sequence, anchor.tail_block
            )?;
        }
        if let Some(journal) = &self.journal {
            writeln!(
                f,
                "journal holds  {} batches, {} KiB, {} blocks not yet in place",
                journal.batches,
                journal.used_bytes >> 10,
                journal.blocks
            )?;
        }
        if let Some(bytes) = self.records_bytes {
            writeln!(f, "records        {bytes} bytes")?;
        }
        if let Some(free) = self.free_slabs {
            writeln!(f, "free slabs     {free}")?;
        }
        for (volume, held) in &self.volumes {
            writeln!(
                f,
                "volume         {volume}: {} chunks ({} for append), epoch {} promised",
                held.chunks, held.append_chunks, held.promised
            )?;
        }
        for copy in &self.copies {
            match &copy.state {
                Ok(sequence) => writeln!(f, "copy           {} at {}: {sequence}", copy.what, copy.offset)?,
                Err(why) => writeln!(f, "copy           {} at {}: {why}", copy.what, copy.offset)?,
            }
        }
        if self.problems.is_empty() {
            return write!(f, "nothing is damaged");
        }
        let mut problems = self.problems.iter();
        problems.try_for_each(|problem| writeln!(f, "PROBLEM        {problem}"))
    }
}
