//! Files and streams without names give their space back: in steps, in the background, and after a crash at opening.

use std::collections::VecDeque;
use std::time::Duration;

use ::types::Monotonic;

use super::streams::Streams;
use super::{extents, pieces};
use crate::fs::agenda::Agenda;
use crate::fs::base::Base;
use crate::fs::inodes::{inode, stream_record};
use crate::fs::meta::{Key, Store, Transaction, key};
use crate::fs::metadata::Metadata;
use crate::fs::quota::charge_of_stream;
use crate::fs::types::{FileId, FsError, StreamId};
use crate::planted::Planted;

/// Keys that one transaction deletes at most.
const KEYS_AT_ONCE: usize = 1000;

/// An orphan that copies were missing for is tried again after this time.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Orphans examined in one go.
const ORPHANS_AT_ONCE: usize = 16;

/// Lookups of metadata with which the work of one poll ends: they take some milliseconds.
const LOOKUPS_PER_POLL: u32 = 10_000;

/// Orphans that one go finds at opening.
const FOUND_AT_ONCE: usize = 256;

/// Files and streams being reclaimed.
///
/// Each is recorded as an orphan in the metadata until all of it is freed: if a crash or damage
/// interrupts that, the next opening finds it.
#[derive(Debug, Default)]
pub struct Orphans {
    queue: VecDeque<StreamId>,
    /// Time of the next try after copies were missing.
    retry_at: Option<Monotonic>,
    /// Where the search at opening continues.
    search: Option<Key>,
    /// Lookups that this poll's work has taken.
    lookups: u32,
    /// There is more to free, and only the next poll to wait for.
    goes_on: bool,
}

impl Orphans {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Allows the lookups of one poll.
    pub fn begin_turn(&mut self) {
        self.lookups = 0;
        self.goes_on = false;
    }

    /// Whether the next poll is due immediately.
    pub fn is_busy(&self) -> bool {
        self.goes_on
    }

    /// Begins to free a file or stream that has no name and is no longer used. Its data is not written back
    /// any more.
    pub fn add(&mut self, orphan: StreamId, streams: &mut Streams, base: &mut Base) {
        self.queue.push_back(orphan);
        base.agenda.again = true;
        for slot in slots_of(orphan, streams) {
            streams.cut(slot, 0, u64::MAX);
            if let Some(stream) = streams.stream(slot) {
                stream.reclaimed = true;
                stream.generation += 1;
                // Growth that was not published never will be.
                base.meta.quotas.keep_promise(stream.id, 0);
            }
        }
    }

    /// Finds files and streams without a name since the volume was last in use, some at a time.
    ///
    /// # Errors
    /// `Miss` until all are found; damage of the metadata.
    pub fn find(&mut self, store: &mut Store, agenda: &mut Agenda) -> Result<(), FsError> {
        let txn = Transaction::new();
        let prefix = key::orphans();
        let end = key::after(&prefix);
        let mut from = self.search.clone().unwrap_or(prefix);
        for _ in 0..FOUND_AT_ONCE {
            let Some((orphan, _)) = store.next(&txn, &from, &end)? else { return Ok(()) };
            self.queue.push_back(key::parse_orphan(&orphan).ok_or(FsError::damaged("orphan"))?);
            from = orphan;
            from.push(0);
            self.search = Some(from.clone());
        }
        agenda.again = true;
        Err(FsError::Miss)
    }

    /// Returns when to retry what copies were missing for.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.retry_at.filter(|_| !self.queue.is_empty())
    }

    /// Gives some back.
    pub fn pump(&mut self, streams: &mut Streams, base: &mut Base) {
        self.retry_at = self.retry_at.filter(|at| base.agenda.now < *at);
        if self.retry_at.is_some() {
            return;
        }
        for _ in 0..self.queue.len().min(ORPHANS_AT_ONCE) {
            if base.ready_to_change().is_err() {
                return;
            }
            if self.lookups >= LOOKUPS_PER_POLL {
                self.goes_on = true;
                return;
            }
            let Some(orphan) = self.queue.pop_front() else { return };
            let before = base.meta.store.steps;
            let result = reclaim_step(orphan, streams, base);
            self.lookups += base.meta.store.steps.saturating_sub(before);
            match result {
                Ok(true) => {}
                // One large step is enough for one go.
                Ok(false) => {
                    base.agenda.again = true;
                    self.queue.push_back(orphan);
                    return;
                }
                Err(FsError::Miss) => self.queue.push_back(orphan),
                Err(FsError::Unavailable | FsError::NoSpace) => {
                    self.queue.push_back(orphan);
                    self.retry_at = Some(base.agenda.now.after(RETRY_DELAY));
                    return;
                }
                // Damaged metadata: the space is lost until a repair, the orphan stays recorded.
                Err(_) => {}
            }
        }
    }
}

fn slots_of(orphan: StreamId, streams: &Streams) -> Vec<usize> {
    match orphan.index {
        key::WHOLE_FILE => streams.of_file(orphan.file).to_vec(),
        _ => streams.find(orphan).into_iter().collect(),
    }
}

/// Deletes some of an orphan. Returns whether all of it is gone. A deleted part stays deleted if the
/// rest fails.
fn reclaim_step(orphan: StreamId, streams: &mut Streams, base: &mut Base) -> Result<bool, FsError> {
    let slots = slots_of(orphan, streams);
    for slot in &slots {
        streams.quiesce(*slot, 0, u64::MAX)?;
    }
    let mut txn = Transaction::new();
    if !drop_extents(orphan, &mut txn, base)? {
        base.record(txn);
        return Ok(false);
    }
    // Charges go with their records, in the first transaction that has no extents left.
    if !txn.is_empty() {
        base.record(std::mem::take(&mut txn));
    }
    discharge(orphan, &mut txn, base)?;
    if orphan.index == key::WHOLE_FILE {
        release_descriptor(orphan.file, &mut txn, base)?;
        if !delete_keys(orphan.file, &mut txn, base)? {
            base.record(txn);
            return Ok(false);
        }
        base.times.forget(orphan.file);
    } else {
        txn.delete(key::stream(orphan));
    }
    txn.delete(key::orphan(orphan));
    base.record(txn);
    for slot in slots {
        streams.cut(slot, 0, u64::MAX);
        streams.forget(slot);
    }
    Ok(true)
}

/// Unmaps extents of an orphan, as many as one transaction may. Returns whether none are left.
fn drop_extents(orphan: StreamId, txn: &mut Transaction, base: &mut Base) -> Result<bool, FsError> {
    let mut left = base.meta.journal.log.pieces_at_once();
    let bytes_goal = base.meta.journal.log.transaction_bytes_goal();
    let whole = orphan.index == key::WHOLE_FILE;
    let mut from = if whole { key::file_extents(orphan.file) } else { key::extents(orphan) };
    let end = key::after(&from);
    let store = &mut base.meta.store;
    while left > 0 && (txn.bytes() < bytes_goal || Planted::TransactionUnbounded.is_planted()) {
        let reached = next_extent(store, txn, &from, &end).and_then(|found| {
            let Some((stream, block)) = found else { return Ok(None) };
            Ok(Some((stream, block, pieces::reach(store, stream, (block, u64::MAX), &mut left)?)))
        });
        match reached {
            Ok(None) => return Ok(true),
            Ok(Some((stream, block, stop))) => {
                extents::unmap(store, txn, stream, block, stop)?;
                from = key::extent(stream, stop);
            }
            // This transaction ends here; the rest follows when its pages are in memory.
            Err(FsError::Miss) if !txn.is_empty() && !Planted::MissStartsOver.is_planted() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The first extent in a range of keys: its stream and first block.
fn next_extent(
    store: &mut Store,
    txn: &Transaction,
    from: &[u8],
    end: &[u8],
) -> Result<Option<(StreamId, u64)>, FsError> {
    let found = store.next(txn, from, end)?;
    found.map(|(found, _)| key::parse_extent(&found).ok_or(FsError::damaged("extent"))).transpose()
}

/// Takes off the charges of an orphan's owner. Streams go with the inode of their file: once that is
/// deleted, none is charged.
fn discharge(orphan: StreamId, txn: &mut Transaction, base: &mut Base) -> Result<(), FsError> {
    let Metadata { store, quotas, .. } = &mut base.meta;
    if !quotas.is_on() {
        return Ok(());
    }
    let inode = match inode(store, txn, orphan.file) {
        Ok(inode) => inode,
        Err(FsError::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    };
    let blocks = if orphan.index == key::WHOLE_FILE {
        quotas.charge_of_file(store, txn, orphan.file, &inode)?
    } else {
        match stream_record(store, txn, orphan) {
            Ok(record) => charge_of_stream(&record),
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    quotas.charge(store, txn, (orphan.file, inode.security), (blocks, 0))
}

/// Removes a file's reference to its security descriptor, with the inode that holds it.
fn release_descriptor(file: FileId, txn: &mut Transaction, base: &mut Base) -> Result<(), FsError> {
    let Metadata { store, descriptors, .. } = &mut base.meta;
    match inode(store, txn, file) {
        Ok(inode) => descriptors.release(txn, file, inode.security, store),
        Err(FsError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes keys of a file without extents, as many as one transaction may. Returns whether all are
/// gone.
fn delete_keys(file: FileId, txn: &mut Transaction, base: &mut Base) -> Result<bool, FsError> {
    let bytes_goal = base.meta.journal.log.transaction_bytes_goal();
    let (mut next, to) = (key::file_first(file), key::file_first(FileId(file.0 + 1)));
    for count in 0..KEYS_AT_ONCE {
        let (found, value) = match base.meta.store.next(txn, &next, &to) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(true),
            Err(FsError::Miss) if count > 0 => return Ok(false),
            Err(error) => return Err(error),
        };
        if key::is_file_object_id(&found)
            && let Ok(id) = <[u8; 16]>::try_from(&value[..])
        {
            txn.delete(key::object_id(id));
        }
        next = found.clone();
        next.push(0);
        txn.delete(found);
        if txn.bytes() >= bytes_goal {
            return Ok(false);
        }
    }
    Ok(false)
}
