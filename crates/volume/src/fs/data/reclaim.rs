//! Files and streams without names give their space back: in steps, in the background, and after a crash at opening.

use std::collections::VecDeque;
use std::time::Duration;

use ::types::Monotonic;

use super::extents;
use super::streams::Streams;
use crate::fs::base::Base;
use crate::fs::inodes::{inode, stream_record};
use crate::fs::meta::record::ExtentRecord;
use crate::fs::meta::{Store, Transaction, key};
use crate::fs::metadata::Metadata;
use crate::fs::quota::charge_of_stream;
use crate::fs::types::{FileId, FsError, StreamId};

/// Keys that one transaction deletes at most.
const KEYS_AT_ONCE: usize = 1000;

/// An orphan that copies were missing for is tried again after this time.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Orphans looked at in one go.
const ORPHANS_AT_ONCE: usize = 16;

/// Files and streams that are being given back.
///
/// Each is recorded as an orphan in the metadata, and stays so until all of it is gone: what a crash or damage interrupts is found at
/// the next opening.
#[derive(Debug, Default)]
pub struct Orphans {
    queue: VecDeque<StreamId>,
    /// Nothing is given back before then: copies were missing.
    retry_at: Option<Monotonic>,
}

impl Orphans {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Begins to give back all of a file or stream that has no name and is no longer used: nothing of it is written back any more.
    pub fn add(&mut self, orphan: StreamId, streams: &mut Streams, base: &mut Base) {
        self.queue.push_back(orphan);
        base.agenda.again = true;
        for slot in slots_of(orphan, streams) {
            streams.cut(slot, 0, u64::MAX);
            if let Some(stream) = streams.stream(slot) {
                stream.reclaimed = true;
                stream.generation += 1;
                // What was not published never will be.
                base.meta.quotas.keep_promise(stream.id, 0);
            }
        }
    }

    /// Finds what was left without a name when the volume was last in use.
    pub fn find(&mut self, store: &mut Store) -> Result<(), FsError> {
        let txn = Transaction::new();
        let prefix = key::orphans();
        let (mut from, end) = (prefix.clone(), key::after(&prefix));
        let mut found = Vec::new();
        while let Some((orphan, _)) = store.next(&txn, &from, &end)? {
            found.push(key::parse_orphan(&orphan).ok_or(FsError::damaged("orphan"))?);
            from = orphan;
            from.push(0);
        }
        self.queue = found.into();
        Ok(())
    }

    /// When something is to be given back that copies were missing for.
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
            let Some(orphan) = self.queue.pop_front() else { return };
            match reclaim_step(orphan, streams, base) {
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

/// Deletes some of an orphan; whether all of it is gone.
fn reclaim_step(orphan: StreamId, streams: &mut Streams, base: &mut Base) -> Result<bool, FsError> {
    let slots = slots_of(orphan, streams);
    for slot in &slots {
        streams.quiesce(*slot, 0, u64::MAX)?;
    }
    let mut txn = Transaction::new();
    let whole = orphan.index == key::WHOLE_FILE;
    discharge(orphan, &mut txn, base)?;
    let extents = if whole { key::file_extents(orphan.file) } else { key::extents(orphan) };
    let end = key::after(&extents);
    let mut from = extents;
    let mut count = 0;
    while let Some((found, value)) = base.meta.store.next(&txn, &from, &end)? {
        if count >= KEYS_AT_ONCE {
            // Charges are taken off with the records that they stand for.
            txn.take_charges();
            base.record(txn);
            return Ok(false);
        }
        let (stream, block) = key::parse_extent(&found).ok_or(FsError::damaged("extent"))?;
        let extent = ExtentRecord::decode(&value).ok_or(FsError::damaged("extent"))?;
        let behind = block.saturating_add(u64::from(extent.blocks));
        extents::unmap(&mut base.meta.store, &mut txn, stream, block, behind)?;
        from = found;
        from.push(0);
        count += 1;
    }
    if whole {
        release_descriptor(orphan.file, &mut txn, base)?;
        let (first, next) = (key::file_first(orphan.file), key::file_first(FileId(orphan.file.0 + 1)));
        if !delete_range(&mut base.meta.store, &mut txn, &first, &next)? {
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

/// Takes off what an orphan's owner is charged with. Streams go with the inode of their file: once that is deleted, none is charged.
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

/// Takes a file's reference to its security descriptor away, with the inode that it stands in.
fn release_descriptor(file: FileId, txn: &mut Transaction, base: &mut Base) -> Result<(), FsError> {
    let Metadata { store, descriptors, .. } = &mut base.meta;
    match inode(store, txn, file) {
        Ok(inode) => descriptors.release(txn, file, inode.security, store),
        Err(FsError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes keys from `from` up to `to`; whether all are gone.
fn delete_range(store: &mut Store, txn: &mut Transaction, from: &[u8], to: &[u8]) -> Result<bool, FsError> {
    let mut next = key::Key::from_slice(from);
    for _ in 0..KEYS_AT_ONCE {
        let Some((found, value)) = store.next(txn, &next, to)? else { return Ok(true) };
        if key::is_file_object_id(&found)
            && let Ok(id) = <[u8; 16]>::try_from(&value[..])
        {
            txn.delete(key::object_id(id));
        }
        next = found.clone();
        next.push(0);
        txn.delete(found);
    }
    Ok(false)
}
