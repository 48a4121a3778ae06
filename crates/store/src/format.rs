//! Formatting a disk: refuses disks that hold data, writes all structures, the label last.

use crate::anchor::{Anchor, encode_records};
use crate::io::{DiskWork, Io};
use crate::label::{Features, Label, LabelError, parse_label};
use crate::layout::{
    ANCHOR_SLOTS, AREA_BYTES, LABEL_SLOTS, Layout, PAGE_BYTES, PROMISE_PAGES, RECORDS_SLOTS,
};
use crate::signature;
use crate::tables::{encode_promise_page, encode_slab_page};
use crate::versions::PageVersions;
use disk::{Disk, DiskError};
use std::collections::BTreeSet;
use sys::{Buf, BufMut, Payload};
use types::{DiskId, PoolId};

/// Parameters of a new disk.
#[derive(Debug, Clone)]
pub struct FormatParameters {
    /// Identity of the new disk, drawn by the caller.
    pub disk: DiskId,
    /// Pool for which the disk is formatted.
    pub pool: PoolId,
    /// Fault-domain tags, such as ("enclosure", "shelf 2").
    pub tags: Vec<(String, String)>,
    /// Slab and journal size in bytes; `None` chooses by the disk's size ([`Layout::default_sizes`]).
    pub slab_bytes: Option<u64>,
    /// Bytes of the journal, a multiple of 4096 from 256 KiB to 1 GiB; `None` chooses by the disk's
    /// size.
    pub journal_bytes: Option<u64>,
    /// Whether to destroy the disk's content.
    pub force: bool,
}

impl FormatParameters {
    /// Makes parameters without tags, with default sizes, that refuse a used disk.
    pub fn new(disk: DiskId, pool: PoolId) -> Self {
        Self { disk, pool, tags: Vec::new(), slab_bytes: None, journal_bytes: None, force: false }
    }
}

/// Reason why a disk was not formatted. Nothing on it was changed, except after `Disk`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The disk has a label: it is `disk` of `pool`. Only without `force`.
    #[error("the disk belongs to pool {pool} already (disk {disk})")]
    InUse { disk: DiskId, pool: PoolId },
    /// The disk holds other data, named by the text. Only without `force`.
    #[error("the disk holds {0}")]
    Foreign(&'static str),
    /// A disk of `size_bytes` has no space for the structures and one slab.
    #[error("the disk is too small: {size_bytes} bytes do not hold one slab")]
    TooSmall { size_bytes: u64 },
    /// The tags do not fit a label: see [`Label::tags_fit`].
    #[error("at most 16 tags of 255 bytes each")]
    Tags,
    /// The disk failed a read, write or flush.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Formats a disk and returns it.
///
/// # Errors
/// [`FormatError`]; without `force` also if the disk is not empty.
pub fn format<D: Disk + 'static>(disk: D, parameters: FormatParameters) -> Result<D, FormatError> {
    let (result, disk) = DiskWork::new(disk, |io| run(io, parameters)).run();
    result.map(|()| disk)
}

/// Checks that a device to be partitioned holds no data, and returns it.
///
/// # Errors
/// [`FormatError`] if it holds data, is too small, or cannot be read; nothing was changed.
pub fn refuse_used_disk<D: Disk + 'static>(disk: D) -> Result<D, FormatError> {
    let (result, disk) = DiskWork::new(disk, |io| async move {
        let size_bytes = io.info().size_bytes;
        let (slab_bytes, journal_bytes) = Layout::default_sizes(size_bytes);
        let layout = Layout::compute(size_bytes, slab_bytes, journal_bytes)
            .ok_or(FormatError::TooSmall { size_bytes })?;
        for area in layout.areas() {
            refuse_used(&io.read(area, AREA_BYTES as usize).await?)?;
        }
        Ok(())
    })
    .run();
    result.map(|()| disk)
}

/// Removes the label of a disk that belongs to no pool any more, so that it counts as empty.
///
/// # Errors
/// `InUse` with the identity found, if it is not `expected`; `Disk`.
pub fn erase<D: Disk + 'static>(disk: D, expected: DiskId) -> Result<(), FormatError> {
    DiskWork::new(disk, move |io| async move {
        let label = match crate::open::read_label(&io).await {
            Ok(label) => label,
            Err(crate::open_error::OpenError::Disk(error)) => return Err(FormatError::Disk(error)),
            Err(_) => return Err(FormatError::Foreign("no label of this format")),
        };
        if label.disk != expected {
            return Err(FormatError::InUse { disk: label.disk, pool: label.pool });
        }
        let zeroes = BufMut::zeroed(AREA_BYTES as usize).freeze();
        for area in label.layout.areas() {
            io.write(area, zeroes.clone().into(), true).await?;
        }
        Ok(())
    })
    .run()
    .0
}

/// Overwrites the identifying parts of a disk, so that it counts as empty: its first and last megabyte,
/// and the places of our label.
///
/// # Errors
/// The disk's.
pub fn wipe<D: Disk + 'static>(disk: D) -> Result<(), DiskError> {
    DiskWork::new(disk, |io| async move {
        let size_bytes = io.info().size_bytes;
        let len_bytes = AREA_BYTES.min(size_bytes);
        let (slab_bytes, journal_bytes) = Layout::default_sizes(size_bytes);
        let usual = Layout::compute(size_bytes, slab_bytes, journal_bytes);
        let own = crate::open::read_label(&io).await.ok().map(|label| label.layout);
        let areas = [usual, own].into_iter().flatten().flat_map(|layout| layout.areas());
        let block_bytes = u64::from(io.info().block_bytes);
        let end = (size_bytes - len_bytes) / block_bytes * block_bytes;
        let areas: BTreeSet<u64> = areas.chain([end, 0]).collect();
        let zeroes = BufMut::zeroed(len_bytes as usize).freeze();
        // The beginning, which identifies the disk, goes last: if a write before that fails, all of
        // it can be repeated.
        for area in areas.into_iter().rev() {
            io.write(area, zeroes.clone().into(), true).await?;
        }
        Ok(())
    })
    .run()
    .0
}

async fn run<D: Disk>(io: Io<D>, parameters: FormatParameters) -> Result<(), FormatError> {
    let info = io.info();
    let (slab_bytes, journal_bytes) = Layout::default_sizes(info.size_bytes);
    let slab_bytes = parameters.slab_bytes.unwrap_or(slab_bytes);
    let journal_bytes = parameters.journal_bytes.unwrap_or(journal_bytes);
    let layout = Layout::compute(info.size_bytes, slab_bytes, journal_bytes)
        .ok_or(FormatError::TooSmall { size_bytes: info.size_bytes })?;
    if !Label::tags_fit(&parameters.tags) {
        return Err(FormatError::Tags);
    }
    if !parameters.force {
        for area in layout.areas() {
            refuse_used(&io.read(area, AREA_BYTES as usize).await?)?;
        }
    }
    write_all(&io, &parameters, layout, info.block_bytes).await.map_err(FormatError::Disk)
}

fn refuse_used(area: &[u8]) -> Result<(), FormatError> {
    for slot in LABEL_SLOTS {
        let slot = area.get(slot as usize..slot as usize + PAGE_BYTES).unwrap_or(&[]);
        match parse_label(slot) {
            Ok(label) => return Err(FormatError::InUse { disk: label.disk, pool: label.pool }),
            Err(LabelError::Newer(_) | LabelError::UnknownFeatures(_)) => {
                return Err(FormatError::Foreign("a newer version of this format"));
            }
            Err(LabelError::Older(_)) => {
                return Err(FormatError::Foreign(
                    "an older version of this format: copy what it holds with the release that wrote it",
                ));
            }
            Err(LabelError::Damaged) => return Err(FormatError::Foreign("a damaged label of this format")),
            Err(LabelError::Absent) => {}
        }
    }
    match signature::recognise(area) {
        Some(what) => Err(FormatError::Foreign(what)),
        None => Ok(()),
    }
}

async fn write_all<D: Disk>(
    io: &Io<D>,
    parameters: &FormatParameters,
    layout: Layout,
    block_bytes: u32,
) -> Result<(), DiskError> {
    // No old label may survive beside half of a new format.
    let zeroes = BufMut::zeroed(AREA_BYTES as usize).freeze();
    for area in layout.areas() {
        io.write(area, zeroes.clone().into(), true).await?;
    }
    // Written in full, so that a thin file under the journal cannot run out of space later.
    let mut at = 0;
    while at < layout.journal_bytes {
        let len = (layout.journal_bytes - at).min(AREA_BYTES);
        io.write(layout.journal + at, zeroes.slice(..len as usize).into(), false).await?;
        at += len;
    }
    let tables = Payload::from(empty_tables(parameters.disk, &layout));
    for copy in layout.tables {
        io.write(copy, tables.clone(), false).await?;
    }
    let versions = PageVersions::new(&layout);
    for page in 0..layout.version_pages() {
        let bytes = Buf::from(&versions.encode_page(parameters.disk, page)[..]);
        io.write(layout.versions + (page * PAGE_BYTES) as u64, bytes.into(), false).await?;
    }
    let anchor = Anchor { sequence: 1, tail_sequence: 1, next_generation: 1, ..Anchor::default() };
    let anchor = Buf::from(&anchor.encode(parameters.disk)[..]);
    let records = Buf::from(&encode_records(parameters.disk, 1, &[])[..]);
    for area in layout.areas() {
        io.write(area + ANCHOR_SLOTS[1], anchor.clone().into(), false).await?;
        io.write(area + RECORDS_SLOTS[1], records.clone().into(), false).await?;
    }
    io.flush().await?;
    let areas = layout.areas();
    let label = Label {
        features: Features::written(),
        sequence: 1,
        disk: parameters.disk,
        pool: parameters.pool,
        block_bytes,
        layout,
        tags: parameters.tags.clone(),
    };
    let label = Buf::from(&label.encode()[..]);
    for (area, slot) in areas.into_iter().flat_map(|area| LABEL_SLOTS.map(|slot| (area, slot))) {
        io.write(area + slot, label.clone().into(), true).await?;
    }
    Ok(())
}

fn empty_tables(disk: DiskId, layout: &Layout) -> Buf {
    let mut bytes = Vec::with_capacity(layout.table_pages() * PAGE_BYTES);
    for page in 0..layout.slab_table_pages() {
        bytes.extend_from_slice(&encode_slab_page(disk, page, 0, &[]));
    }
    for page in 0..PROMISE_PAGES {
        bytes.extend_from_slice(&encode_promise_page(disk, page, 0, &[]));
    }
    Buf::from(&bytes[..])
}
