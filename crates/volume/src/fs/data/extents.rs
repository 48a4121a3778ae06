//! The map from a stream's blocks to blocks of the virtual disk: lookups, and changes within a
//! transaction.
//!
//! Functions that take a range examine all of it: their callers bound it by a number of blocks, or ask
//! [`super::pieces`] how much of it one transaction may change.

use ::types::Lba;

use crate::fs::meta::record::{ExtentRecord, SharedRecord};
use crate::fs::meta::{BlockRun, Store, Transaction, key};
use crate::fs::types::{FsError, StreamId};

/// Longest extent in blocks.
const EXTENT_BLOCKS_MAX: u32 = 1 << 28;

/// Part of a stream's range: mapped, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// First block within the stream.
    pub block: u64,
    pub blocks: u64,
    /// Place of these blocks, cut to the part.
    pub extent: Option<ExtentRecord>,
}

impl Mapped {
    pub fn end(&self) -> u64 {
        self.block + self.blocks
    }

    /// Whether it holds data: mapped and written.
    pub fn is_written(&self) -> bool {
        self.extent.is_some_and(|extent| !extent.unwritten)
    }

    /// Whether the stream alone has written these blocks, so that they may be overwritten.
    pub fn is_owned(&self) -> bool {
        self.extent.is_some_and(|extent| !extent.shared && !extent.unwritten)
    }
}

/// An extent cut to some of its blocks.
fn cut(extent: &ExtentRecord, skip: u64, blocks: u64) -> ExtentRecord {
    ExtentRecord { lba: Lba(extent.lba.0 + skip), blocks: blocks as u32, ..*extent }
}

/// Finds the stored extents that overlap a range, whole: first block and record.
fn stored_extents(
    store: &mut Store,
    txn: &Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
    extents_max: usize,
) -> Result<Vec<(u64, ExtentRecord)>, FsError> {
    let prefix = key::extents(stream);
    let mut out: Vec<(u64, ExtentRecord)> = Vec::new();
    if from >= to {
        return Ok(out);
    }
    if let Some((found, value)) = store.previous(txn, &key::extent(stream, from), &prefix)? {
        let (block, extent) = decode(&found, &value)?;
        if block + u64::from(extent.blocks) > from {
            out.push((block, extent));
        }
    }
    let end = key::extent(stream, to);
    let mut next = key::extent(stream, out.last().map_or(from, |(block, _)| block + 1));
    while out.len() < extents_max
        && let Some((found, value)) = store.next(txn, &next, &end)?
    {
        let (block, extent) = decode(&found, &value)?;
        if out.last().is_some_and(|(last, extent)| last + u64::from(extent.blocks) > block) {
            return Err(FsError::damaged("extents overlap"));
        }
        out.push((block, extent));
        next = found;
        next.push(0);
    }
    Ok(out)
}

/// Maps a stream's range in order, holes included.
pub fn map(
    store: &mut Store,
    txn: &Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<Vec<Mapped>, FsError> {
    let mut out = Vec::new();
    let mut at = from;
    for (block, extent) in stored_extents(store, txn, stream, from, to, usize::MAX)? {
        let (start, end) = (block.max(from), (block + u64::from(extent.blocks)).min(to));
        if start > at {
            out.push(Mapped { block: at, blocks: start - at, extent: None });
        }
        out.push(Mapped {
            block: start,
            blocks: end - start,
            extent: Some(cut(&extent, start - block, end - start)),
        });
        at = end;
    }
    if at < to {
        out.push(Mapped { block: at, blocks: to - at, extent: None });
    }
    Ok(out)
}

/// Maps at most `extents_max` extents of a range; also returns the block at which it stopped.
pub fn map_some(
    store: &mut Store,
    txn: &Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
    extents_max: usize,
) -> Result<(Vec<Mapped>, u64), FsError> {
    let stop = after_extents(store, txn, stream, from, to, extents_max)?;
    Ok((map(store, txn, stream, from, stop)?, stop))
}

/// Finds the first block behind the first `extents_max` extents of a range; its end if there are fewer.
fn after_extents(
    store: &mut Store,
    txn: &Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
    extents_max: usize,
) -> Result<u64, FsError> {
    let found = stored_extents(store, txn, stream, from, to, extents_max + 1)?;
    Ok(found.get(extents_max).map_or(to, |(block, _)| *block))
}

/// Finds up to `extents_max` extents from a block on.
pub fn extents_from(
    store: &mut Store,
    txn: &Transaction,
    stream: StreamId,
    from: u64,
    extents_max: usize,
) -> Result<Vec<(u64, ExtentRecord)>, FsError> {
    stored_extents(store, txn, stream, from, u64::MAX, extents_max)
}

/// Takes a range out of a stream's map; blocks that no extent points to any more are freed. Blocks gone.
pub fn unmap(
    store: &mut Store,
    txn: &mut Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<u64, FsError> {
    let mut gone = 0;
    for (block, extent) in stored_extents(store, txn, stream, from, to, usize::MAX)? {
        let end = block + u64::from(extent.blocks);
        let (start, stop) = (block.max(from), end.min(to));
        txn.delete(key::extent(stream, block));
        if block < start {
            txn.put(key::extent(stream, block), cut(&extent, 0, start - block).encode());
        }
        if stop < end {
            txn.put(key::extent(stream, stop), cut(&extent, stop - block, end - stop).encode());
        }
        drop_blocks(store, txn, cut(&extent, start - block, stop - start))?;
        gone += stop - start;
    }
    Ok(gone)
}

/// Maps a range that is a hole, joined with the extent before it if they fit together.
pub fn map_hole(
    store: &mut Store,
    chunk_blocks: u32,
    txn: &mut Transaction,
    stream: StreamId,
    block: u64,
    extent: ExtentRecord,
) -> Result<(), FsError> {
    let prefix = key::extents(stream);
    let at_chunk = extent.lba.0.is_multiple_of(u64::from(chunk_blocks));
    if !extent.shared
        && !at_chunk
        && let Some((found, value)) = store.previous(txn, &key::extent(stream, block), &prefix)?
    {
        let (before, old) = decode(&found, &value)?;
        let joins = before + u64::from(old.blocks) == block
            && old.lba.0 + u64::from(old.blocks) == extent.lba.0
            && !old.shared
            && old.unwritten == extent.unwritten
            && old.blocks <= EXTENT_BLOCKS_MAX - extent.blocks.min(EXTENT_BLOCKS_MAX);
        if joins {
            let whole = ExtentRecord { blocks: old.blocks + extent.blocks, ..old };
            txn.put(found, whole.encode());
            return Ok(());
        }
    }
    txn.put(key::extent(stream, block), extent.encode());
    Ok(())
}

/// Marks blocks as written that were allocated only: the part of an unwritten extent becomes a written one.
pub fn mark_written(
    store: &mut Store,
    chunk_blocks: u32,
    txn: &mut Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<(), FsError> {
    for (block, extent) in stored_extents(store, txn, stream, from, to, usize::MAX)? {
        if !extent.unwritten {
            continue;
        }
        let end = block + u64::from(extent.blocks);
        let (start, stop) = (block.max(from), end.min(to));
        txn.delete(key::extent(stream, block));
        if block < start {
            txn.put(key::extent(stream, block), cut(&extent, 0, start - block).encode());
        }
        if stop < end {
            txn.put(key::extent(stream, stop), cut(&extent, stop - block, end - stop).encode());
        }
        let written = ExtentRecord { unwritten: false, ..cut(&extent, start - block, stop - start) };
        map_hole(store, chunk_blocks, txn, stream, start, written)?;
    }
    Ok(())
}

/// Drops one extent's reference to these blocks.
fn drop_blocks(store: &mut Store, txn: &mut Transaction, extent: ExtentRecord) -> Result<(), FsError> {
    if extent.shared {
        return change_references(store, txn, extent.lba, extent.blocks, false);
    }
    txn.free(BlockRun { lba: extent.lba, blocks: extent.blocks });
    Ok(())
}

/// Adds one extent's reference to these blocks, which all its extents mark as shared.
pub fn share_blocks(store: &mut Store, txn: &mut Transaction, lba: Lba, blocks: u32) -> Result<(), FsError> {
    change_references(store, txn, lba, blocks, true)
}

/// Adds or removes one reference of a run. Blocks without a record of sharing have one.
fn change_references(
    store: &mut Store,
    txn: &mut Transaction,
    lba: Lba,
    blocks: u32,
    add: bool,
) -> Result<(), FsError> {
    let end = lba.0 + u64::from(blocks);
    let mut at = lba.0;
    for (first, record) in shared_runs(store, txn, lba.0, end)? {
        let last = first + u64::from(record.blocks);
        let (start, stop) = (first.max(lba.0), last.min(end));
        change_single(txn, at, start, add);
        txn.delete(key::shared(Lba(first)));
        let put = |txn: &mut Transaction, from: u64, to: u64, references: u32| {
            if from < to && references >= 2 {
                let record = SharedRecord { blocks: (to - from) as u32, references };
                txn.put(key::shared(Lba(from)), record.encode());
            }
        };
        put(txn, first, start, record.references);
        put(txn, stop, last, record.references);
        let references = if add {
            record.references.checked_add(1).ok_or(FsError::TooManyLinks)?
        } else {
            record.references - 1
        };
        put(txn, start, stop, references);
        at = stop;
    }
    change_single(txn, at, end, add);
    Ok(())
}

/// Adds or removes a reference of blocks that one extent points to.
fn change_single(txn: &mut Transaction, from: u64, to: u64, add: bool) {
    if from >= to {
        return;
    }
    let blocks = (to - from) as u32;
    if add {
        txn.put(key::shared(Lba(from)), SharedRecord { blocks, references: 2 }.encode());
    } else {
        txn.free(BlockRun { lba: Lba(from), blocks });
    }
}

fn shared_runs(
    store: &mut Store,
    txn: &Transaction,
    from: u64,
    to: u64,
) -> Result<Vec<(u64, SharedRecord)>, FsError> {
    let mut out: Vec<(u64, SharedRecord)> = Vec::new();
    let before = store.previous(txn, &key::shared(Lba(from)), &key::all_shared())?;
    if let Some((found, value)) = before {
        let (first, record) = decode_shared(&found, &value)?;
        if first + u64::from(record.blocks) > from {
            out.push((first, record));
        }
    }
    let mut next = key::shared(Lba(out.last().map_or(from, |(first, _)| first + 1)));
    let end = key::shared(Lba(to));
    while let Some((found, value)) = store.next(txn, &next, &end)? {
        out.push(decode_shared(&found, &value)?);
        next = found;
        next.push(0);
    }
    Ok(out)
}

/// Decodes a stored run of shared blocks: first block and record.
pub fn decode_shared(found: &[u8], value: &[u8]) -> Result<(u64, SharedRecord), FsError> {
    let damaged = FsError::damaged("shared run");
    let first = key::parse_number(found).ok_or(damaged.clone())?;
    let record = SharedRecord::decode(value).ok_or(damaged.clone())?;
    first.checked_add(u64::from(record.blocks)).ok_or(damaged)?;
    Ok((first, record))
}

/// Marks the extents of a range shared, as those that it was cloned to are.
pub fn mark_shared(
    store: &mut Store,
    txn: &mut Transaction,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<(), FsError> {
    for (block, extent) in stored_extents(store, txn, stream, from, to, usize::MAX)? {
        if extent.shared || extent.unwritten {
            continue;
        }
        let end = block + u64::from(extent.blocks);
        let (start, stop) = (block.max(from), end.min(to));
        if block < start {
            txn.put(key::extent(stream, block), cut(&extent, 0, start - block).encode());
        }
        if stop < end {
            txn.put(key::extent(stream, stop), cut(&extent, stop - block, end - stop).encode());
        }
        let shared = ExtentRecord { shared: true, ..cut(&extent, start - block, stop - start) };
        txn.put(key::extent(stream, start), shared.encode());
    }
    Ok(())
}

/// Decodes a stored extent: first block and record.
pub fn decode(found: &[u8], value: &[u8]) -> Result<(u64, ExtentRecord), FsError> {
    let damaged = FsError::damaged("extent");
    let (_, block) = key::parse_extent(found).ok_or(damaged.clone())?;
    let extent = ExtentRecord::decode(value).ok_or(damaged.clone())?;
    block.checked_add(u64::from(extent.blocks)).ok_or(damaged)?;
    Ok((block, extent))
}
