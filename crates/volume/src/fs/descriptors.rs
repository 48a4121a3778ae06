//! Security descriptors: each is stored once, however many files have it, and removed with the last of
//! them.
//!
//! **References.** The store keeps with each descriptor the number of files that have it. A transaction
//! that gives a file a descriptor, changes it, or removes the file also changes the numbers: both are
//! durable, or neither. The transaction that removes the last reference removes the descriptor.
//!
//! **Volumes without counts.** Programs from before there were counts make and delete files without
//! changing them. So each opening that keeps counts records the volume's incarnation with them, and
//! every opening, of any program, raises the incarnation. An opening that does not find the incarnation
//! before its own discards the counts: it begins another generation, and passes over all files in the
//! order of their numbers, some at a time beside other changes. Files already passed are counted; the
//! counting will meet all others. Its position is in the same transaction as the counts, so that the
//! next opening continues from there. No descriptor is removed before all files are counted. Then those
//! without any file are.
//!
//! **Damage.** A file that cannot be read cannot be counted. Then the counting ends until the next opening, and no descriptor is removed
//! before that.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use ::types::Monotonic;

use super::blob::{blob, put_blob};
use super::meta::record::{DescriptorCountsRecord, Inode, ReferencesRecord, decode_number, encode_number};
use super::meta::{Key, Store, Transaction, key};
use super::types::{FileId, FsError, SecurityId};
use crate::planted::Planted;

/// Longest security descriptor in bytes, as in NTFS.
pub const PROPERTY_BYTES_MAX: usize = 65536;

/// Descriptors remembered by content, so that making a file costs no search.
const SECURITY_CACHE_ENTRIES: usize = 1024;

/// Descriptors whose hashes are remembered.
const HASHES_MAX: usize = 4096;

/// Limit of stored descriptors of one hash compared with a new one: users who make more (CRCs collide
/// at will) have them stored again.
const SAME_HASH_MAX: usize = 8;

/// Files counted in one step.
const FILES_AT_ONCE: usize = 64;

/// Descriptors examined in one step when all files are counted; each has at most 22 keys.
const SWEPT_AT_ONCE: usize = 16;

/// No file has a larger number.
const ALL_FILES: FileId = FileId(u64::MAX);

/// A step that copies were missing for is tried again after this time.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Why no step of counting is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Halted {
    #[default]
    No,
    /// Until the next poll: for metadata, or until changes are accepted.
    Waits,
    Until(Monotonic),
    /// Until the next opening: something is damaged.
    Damaged,
}

/// Stored descriptors, by content, and how many files have each.
///
/// An id names the same bytes for ever, and is never reused. Only ids found in the store are kept here:
/// a transaction that stores a new descriptor may yet be abandoned, and its id given to another.
///
/// Invariant: the stored references of this generation are the numbers of files below `counts.next`
/// that have each descriptor. While `counts.swept` holds, each descriptor in the store has at least
/// one.
#[derive(Debug, Default)]
pub struct Descriptors {
    ids: HashMap<Box<[u8]>, (u64, SecurityId)>,
    hashes: HashMap<SecurityId, u64>,
    counts: DescriptorCountsRecord,
    /// This incarnation is recorded as keeping the counts.
    is_recorded: bool,
    halted: Halted,
    /// Descriptors before this key were examined after all files were counted.
    swept_to: Key,
}

impl Descriptors {
    /// Begins to count on a new, empty volume.
    pub fn begin(&mut self, txn: &mut Transaction, incarnation: u64) {
        self.counts = DescriptorCountsRecord { incarnation, generation: 1, next: ALL_FILES, swept: true };
        self.record(txn);
    }

    /// Reads how far the counts go, in an incarnation of the volume that begins.
    ///
    /// # Errors
    /// `Miss`, and damage of the metadata.
    pub fn load(&mut self, store: &mut Store, incarnation: u64) -> Result<(), FsError> {
        // If the stored counts cannot be read, this incarnation counts nothing.
        self.halted = Halted::Damaged;
        let found = store.get(&Transaction::new(), &key::counter(key::Counter::References))?;
        self.halted = Halted::No;
        let found = found.and_then(|value| DescriptorCountsRecord::decode(&value)).unwrap_or_default();
        let is_ours = found.generation > 0 && found.incarnation.checked_add(1) == Some(incarnation);
        self.counts = match is_ours {
            true => DescriptorCountsRecord { incarnation, ..found },
            false => DescriptorCountsRecord {
                incarnation,
                generation: found.generation + 1,
                next: FileId(0),
                swept: false,
            },
        };
        self.is_recorded = false;
        Ok(())
    }

    fn record(&mut self, txn: &mut Transaction) {
        txn.put(key::counter(key::Counter::References), self.counts.encode());
        self.is_recorded = true;
    }

    fn is_complete(&self) -> bool {
        self.counts.next == ALL_FILES
    }

    /// Finds or stores the descriptor of a file that is being made. Its number has to be higher than that of any other file.
    pub fn give_new(
        &mut self,
        txn: &mut Transaction,
        descriptor: &[u8],
        store: &mut Store,
    ) -> Result<SecurityId, FsError> {
        let id = self.intern(txn, descriptor, store)?;
        if self.is_complete() {
            self.add(txn, id, store)?;
        }
        Ok(id)
    }

    /// Finds or stores the descriptor that a file gets in place of `old`.
    pub fn replace(
        &mut self,
        txn: &mut Transaction,
        (file, old): (FileId, SecurityId),
        descriptor: &[u8],
        store: &mut Store,
    ) -> Result<SecurityId, FsError> {
        let new = self.intern(txn, descriptor, store)?;
        if new != old {
            if file < self.counts.next {
                self.add(txn, new, store)?;
            }
            self.release(txn, file, old, store)?;
        }
        Ok(new)
    }

    /// Takes a file's reference away, and removes the descriptor if that was the last one.
    pub fn release(
        &mut self,
        txn: &mut Transaction,
        file: FileId,
        id: SecurityId,
        store: &mut Store,
    ) -> Result<(), FsError> {
        if id == SecurityId::default() || file >= self.counts.next {
            return Ok(());
        }
        let known = self.references(txn, id, store);
        // An unreadable descriptor stays: its file can still be removed.
        let (key, references) = match known {
            Err(FsError::Corrupt { .. }) => return Ok(()),
            known => known?,
        };
        // A count of zero although a file has it comes from damage: its other files are unknown.
        let Some(left) = references.checked_sub(1) else { return Ok(()) };
        if left == 0 && self.is_complete() && !Planted::DescriptorsKept.is_planted() {
            return self.remove(txn, key, id, store);
        }
        self.put(txn, key, left);
        Ok(())
    }

    fn add(&mut self, txn: &mut Transaction, id: SecurityId, store: &mut Store) -> Result<(), FsError> {
        if id != SecurityId::default() {
            let (key, references) = self.references(txn, id, store)?;
            self.put(txn, key, references + 1);
        }
        Ok(())
    }

    fn put(&self, txn: &mut Transaction, key: Key, references: u64) {
        txn.put(key, ReferencesRecord { generation: self.counts.generation, references }.encode());
    }

    /// The key of a descriptor's references, and how many were counted.
    fn references(
        &mut self,
        txn: &Transaction,
        id: SecurityId,
        store: &mut Store,
    ) -> Result<(Key, u64), FsError> {
        let hash = match self.hashes.get(&id) {
            Some(hash) => *hash,
            None => {
                let hash = codes::crc64(&blob(store, txn, &key::security(id))?);
                if store.get(&Transaction::new(), &key::security_hash(hash, id))?.is_some() {
                    self.remember_hash(id, hash);
                }
                hash
            }
        };
        let key = key::security_hash(hash, id);
        let value = store.get(txn, &key)?.ok_or(FsError::damaged("security index"))?;
        let record = ReferencesRecord::decode(&value).ok_or(FsError::damaged("security index"))?;
        let is_current = record.generation == self.counts.generation;
        Ok((key, if is_current { record.references } else { 0 }))
    }

    fn remove(
        &mut self,
        txn: &mut Transaction,
        key: Key,
        id: SecurityId,
        store: &mut Store,
    ) -> Result<(), FsError> {
        let prefix = key::security(id);
        let descriptor = match blob(store, txn, &prefix) {
            Err(FsError::Corrupt { .. }) => return Ok(()),
            descriptor => descriptor?,
        };
        put_blob(store, txn, &prefix, &[])?;
        txn.delete(key);
        self.ids.remove(&descriptor[..]);
        self.hashes.remove(&id);
        Ok(())
    }

    /// Finds the id of a descriptor, and stores it with the transaction if it was not stored yet.
    fn intern(
        &mut self,
        txn: &mut Transaction,
        descriptor: &[u8],
        store: &mut Store,
    ) -> Result<SecurityId, FsError> {
        if descriptor.is_empty() {
            return Ok(SecurityId::default());
        }
        if descriptor.len() > PROPERTY_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        if let Some((hash, id)) = self.ids.get(descriptor).copied() {
            self.remember_hash(id, hash);
            return Ok(id);
        }
        let hash = codes::crc64(descriptor);
        let prefix = key::security_hashes(hash);
        let (mut from, end) = (prefix.clone(), key::after(&prefix));
        for _ in 0..SAME_HASH_MAX {
            let Some((found, _)) = store.next(txn, &from, &end)? else { break };
            let (_, id) = key::parse_security_hash(&found).ok_or(FsError::damaged("security index"))?;
            if blob(store, txn, &key::security(id))? == descriptor {
                self.remember(descriptor, hash, id);
                return Ok(id);
            }
            from = found;
            from.push(0);
        }
        let counter = key::counter(key::Counter::Security);
        let next = match store.get(txn, &counter)? {
            Some(value) => decode_number(&value).ok_or(FsError::damaged("counter"))?,
            None => 1,
        };
        let id = SecurityId(next);
        txn.put(counter, encode_number(next + 1));
        txn.put(key::security_hash(hash, id), Vec::new());
        put_blob(store, txn, &key::security(id), descriptor)?;
        Ok(id)
    }

    fn remember(&mut self, descriptor: &[u8], hash: u64, id: SecurityId) {
        if self.ids.len() >= SECURITY_CACHE_ENTRIES {
            self.ids.clear();
        }
        self.ids.insert(descriptor.into(), (hash, id));
        self.remember_hash(id, hash);
    }

    fn remember_hash(&mut self, id: SecurityId, hash: u64) {
        if self.hashes.len() >= HASHES_MAX {
            self.hashes.clear();
        }
        self.hashes.insert(id, hash);
    }

    /// Whether a step of counting can be made now.
    pub fn wants_step(&self) -> bool {
        let is_done = self.is_recorded && self.is_complete() && self.counts.swept;
        self.halted == Halted::No && self.counts.generation > 0 && !is_done
    }

    /// Returns when to retry a step that copies were missing for.
    pub fn timeout(&self) -> Option<Monotonic> {
        match self.halted {
            Halted::Until(at) => Some(at),
            _ => None,
        }
    }

    /// Waits until the next poll.
    pub fn wait(&mut self) {
        self.halted = Halted::Waits;
    }

    /// Continues in a poll.
    pub fn wake(&mut self, now: Monotonic) {
        let is_due = match self.halted {
            Halted::Waits => true,
            Halted::Until(at) => now >= at,
            Halted::No | Halted::Damaged => false,
        };
        if is_due {
            self.halted = Halted::No;
        }
    }

    /// Counts more files, or removes descriptors without any. The caller records the transaction
    /// immediately.
    pub fn step(&mut self, store: &mut Store, now: Monotonic) -> Transaction {
        let mut txn = Transaction::new();
        let result = match self.is_complete() {
            false => self.count_files(&mut txn, store),
            true if !self.counts.swept => self.sweep(&mut txn, store),
            true => Ok(()),
        };
        match result {
            Ok(()) => {}
            Err(FsError::Miss) => self.halted = Halted::Waits,
            Err(FsError::Unavailable | FsError::NoSpace) => {
                self.halted = Halted::Until(now.after(RETRY_DELAY))
            }
            Err(_) => self.halted = Halted::Damaged,
        }
        self.record(&mut txn);
        txn
    }

    /// Counts files while the store has their pages; `counts` has the position, even after an error.
    fn count_files(&mut self, txn: &mut Transaction, store: &mut Store) -> Result<(), FsError> {
        let end = key::file_first(ALL_FILES);
        for _ in 0..FILES_AT_ONCE {
            let Some((found, value)) = store.next(txn, &key::file_first(self.counts.next), &end)? else {
                self.counts.next = ALL_FILES;
                self.swept_to = key::all_security_hashes();
                return Ok(());
            };
            let file = key::parse_number(&found).map(FileId).ok_or(FsError::damaged("file"))?;
            // Keys without an inode are those of a file being reclaimed.
            if let key::Kind::Inode(_) = key::kind(&found) {
                let inode = Inode::decode(&value).ok_or(FsError::damaged("inode"))?;
                self.add(txn, inode.security, store)?;
            }
            self.counts.next = FileId(file.0 + 1);
        }
        Ok(())
    }

    /// Removes descriptors that no file has, while the store has the pages for it.
    fn sweep(&mut self, txn: &mut Transaction, store: &mut Store) -> Result<(), FsError> {
        let prefix = key::all_security_hashes();
        let end = key::after(&prefix);
        if self.swept_to.is_empty() {
            self.swept_to = prefix;
        }
        for _ in 0..SWEPT_AT_ONCE {
            let Some((found, value)) = store.next(txn, &self.swept_to, &end)? else {
                self.counts.swept = true;
                return Ok(());
            };
            let (_, id) = key::parse_security_hash(&found).ok_or(FsError::damaged("security index"))?;
            let record = ReferencesRecord::decode(&value).ok_or(FsError::damaged("security index"))?;
            if record.generation != self.counts.generation || record.references == 0 {
                self.remove(txn, found.clone(), id, store)?;
            }
            self.swept_to = found;
            self.swept_to.push(0);
        }
        Ok(())
    }
}

/// Reads a stored descriptor; empty for `SecurityId(0)`.
pub fn descriptor(store: &mut Store, id: SecurityId) -> Result<Rc<[u8]>, FsError> {
    if id == SecurityId::default() {
        return Ok(Rc::from([]));
    }
    let bytes = blob(store, &Transaction::new(), &key::security(id))?;
    if bytes.is_empty() { Err(FsError::damaged("security descriptor")) } else { Ok(bytes.into()) }
}
