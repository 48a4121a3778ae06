//! How far one transaction may change a stream's map.
//!
//! A *piece* is a run of blocks of one extent with one number of references: an extent of a clone may
//! have very many. An operation's lookups, and its transaction, grow with the pieces, and each may lie
//! in another page of the tree. So an operation on a range first asks here how much of it it may do in
//! one transaction. The answer ends before a piece that is not in memory, unless that is the first one.
//! The operation then does that part and continues behind it: no page is needed twice.
//!
//! Pages that were examined here stay in memory until the next poll, so that the change itself does not miss.

use ::types::Lba;

use super::extents::{self, decode, decode_shared};
use crate::fs::meta::record::ExtentRecord;
use crate::fs::meta::{Store, Transaction, key};
use crate::fs::types::{FsError, StreamId};
use crate::planted::Planted;

/// Number of further extents whose references are requested together with missing ones.
const EXTENTS_AHEAD: usize = 16;

/// Finds the end of the first pieces of a range that are in memory: at most `left` pieces, which are
/// subtracted from it.
///
/// # Errors
/// `Miss` if not even the first one is in memory: its pages are requested. Reports damage of the first
/// one only.
pub fn reach(
    store: &mut Store,
    stream: StreamId,
    (from, to): (u64, u64),
    left: &mut usize,
) -> Result<u64, FsError> {
    debug_assert!(*left > 0, "who asks may change one piece at least");
    let mut at = from;
    let mut found = covering(store, stream, from);
    while at < to {
        let found = match std::mem::replace(&mut found, Ok(None)) {
            Ok(None) => next(store, stream, at, to),
            found => found,
        };
        let (block, extent) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(to),
            Err(error) => return keep(at, from, error),
        };
        if *left == 0 {
            return Ok(block.max(at));
        }
        let (start, end) = (block.max(at), (block + u64::from(extent.blocks)).min(to));
        if !extent.shared {
            *left -= 1;
            at = end;
            continue;
        }
        let lba = |block_of_stream: u64| extent.lba.0 + (block_of_stream - block);
        let mut reached = lba(start);
        let result = reach_references(store, &mut reached, lba(end), left);
        at = start + (reached - lba(start));
        if let Err(error) = result {
            ask_ahead(store, stream, end, to);
            return keep(at, from, error);
        }
        if at < end {
            break;
        }
    }
    Ok(at)
}

/// Finds the start of the last `pieces_max` pieces of a stream behind `from`, as far as they are in
/// memory.
///
/// # Errors
/// As [`reach`], for the last one.
pub fn reach_back(store: &mut Store, stream: StreamId, from: u64, pieces_max: usize) -> Result<u64, FsError> {
    let (mut at, mut left) = (u64::MAX, pieces_max.max(1));
    let txn = Transaction::new();
    while left > 0 {
        let (before, prefix) = (key::extent(stream, at - 1), key::extents(stream));
        let found = store.previous(&txn, &before, &prefix);
        let found = found.and_then(|found| found.map(|(key, value)| decode(&key, &value)).transpose());
        let (block, extent) = match found {
            Ok(Some((block, extent))) if block + u64::from(extent.blocks) > from => (block, extent),
            Ok(_) => return Ok(from),
            Err(error) => return keep(at, u64::MAX, error),
        };
        let (start, end) = (block.max(from), (block + u64::from(extent.blocks)).min(at));
        if extent.shared {
            let lba = |block_of_stream: u64| extent.lba.0 + (block_of_stream - block);
            let mut reached = lba(end);
            let result = reach_references_back(store, lba(start), &mut reached, &mut left);
            at = if reached < lba(end) { start + (reached - lba(start)) } else { at };
            if let Err(error) = result {
                return keep(at, u64::MAX, error);
            }
        } else {
            left -= 1;
            at = start;
        }
        if at <= from {
            return Ok(from);
        }
    }
    Ok(at)
}

/// Unmaps at most `left` pieces of a range, as far as they are in memory. Also returns the block up to
/// which it did.
pub fn unmap_some(
    store: &mut Store,
    txn: &mut Transaction,
    stream: StreamId,
    (from, to): (u64, u64),
    mut left: usize,
) -> Result<(u64, u64), FsError> {
    let stop = reach(store, stream, (from, to), &mut left)?;
    Ok((extents::unmap(store, txn, stream, from, stop)?, stop))
}

/// Whether unmapping a range leaves the map with more extents or references: the range lies within one
/// extent, or cuts a shared one.
pub fn grows(store: &mut Store, stream: StreamId, from: u64, to: u64) -> Result<bool, FsError> {
    let first = covering(store, stream, from)?.filter(|(block, _)| *block < from);
    let last = covering(store, stream, to)?.filter(|(block, _)| *block < to);
    let is_shared = |cut: &Option<(u64, ExtentRecord)>| cut.is_some_and(|(_, extent)| extent.shared);
    let within_one = first.is_some() && first == last;
    Ok(within_one || is_shared(&first) || is_shared(&last))
}

/// Keeps the progress made before an error: `Ok` unless there was none.
fn keep(at: u64, began: u64, error: FsError) -> Result<u64, FsError> {
    if at == began || Planted::MissStartsOver.is_planted() { Err(error) } else { Ok(at) }
}

/// The extent that begins before a block and covers it, or begins there.
fn covering(store: &mut Store, stream: StreamId, at: u64) -> Result<Option<(u64, ExtentRecord)>, FsError> {
    let found = store.previous(&Transaction::new(), &key::extent(stream, at), &key::extents(stream))?;
    let found = found.map(|(found, value)| decode(&found, &value)).transpose()?;
    Ok(found.filter(|(block, extent)| block + u64::from(extent.blocks) > at))
}

/// The first extent that begins in a range.
fn next(
    store: &mut Store,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<Option<(u64, ExtentRecord)>, FsError> {
    let found = store.next(&Transaction::new(), &key::extent(stream, from), &key::extent(stream, to))?;
    found.map(|(found, value)| decode(&found, &value)).transpose()
}

/// Moves `at` over the pieces of a run of shared blocks, up to `to`.
fn reach_references(store: &mut Store, at: &mut u64, to: u64, left: &mut usize) -> Result<(), FsError> {
    let txn = Transaction::new();
    let before = store.previous(&txn, &key::shared(Lba(*at)), &key::all_shared())?;
    let mut run = before.map(|(found, value)| decode_shared(&found, &value)).transpose()?;
    run = run.filter(|(first, record)| first + u64::from(record.blocks) > *at);
    while *at < to && *left > 0 {
        if run.is_none() {
            let found = store.next(&txn, &key::shared(Lba(*at)), &key::shared(Lba(to)))?;
            run = found.map(|(found, value)| decode_shared(&found, &value)).transpose()?;
        }
        *left -= 1;
        *at = match run {
            Some((first, _)) if first > *at => first.min(to),
            Some((first, record)) => {
                run = None;
                (first + u64::from(record.blocks)).min(to)
            }
            None => to,
        };
    }
    Ok(())
}

/// Moves `at` back over the pieces of a run of shared blocks, down to `from`.
fn reach_references_back(
    store: &mut Store,
    from: u64,
    at: &mut u64,
    left: &mut usize,
) -> Result<(), FsError> {
    let txn = Transaction::new();
    while *at > from && *left > 0 {
        let found = store.previous(&txn, &key::shared(Lba(*at - 1)), &key::all_shared())?;
        let run = found.map(|(found, value)| decode_shared(&found, &value)).transpose()?;
        *left -= 1;
        *at = match run {
            Some((first, record)) if first + u64::from(record.blocks) >= *at => first.max(from),
            Some((first, record)) => (first + u64::from(record.blocks)).max(from),
            None => from,
        };
    }
    Ok(())
}

/// Asks for the references of the extents that come next.
fn ask_ahead(store: &mut Store, stream: StreamId, from: u64, to: u64) {
    let mut at = from;
    for _ in 0..EXTENTS_AHEAD {
        let Ok(Some((block, extent))) = next(store, stream, at, to) else { return };
        if extent.shared {
            let _ = store.previous(&Transaction::new(), &key::shared(extent.lba), &key::all_shared());
        }
        at = block + u64::from(extent.blocks);
    }
}
