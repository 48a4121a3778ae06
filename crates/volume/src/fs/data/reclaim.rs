//! Files and streams without names give their space back: in steps, in the background, and after a crash at opening.

use super::super::FileSystem;
use super::super::meta::record::ExtentRecord;
use super::super::meta::{Transaction, key};
use super::super::types::{FileId, FsError, StreamId};

/// Keys that one transaction deletes at most.
const KEYS_AT_ONCE: usize = 1000;

/// Orphans looked at in one go.
const ORPHANS_AT_ONCE: usize = 16;

impl FileSystem {
    /// Gives back all of a file that has no name and is no longer used; what takes long goes on in the background.
    ///
    /// # Errors
    /// `Invalid` where it has a name.
    pub fn reclaim(&mut self, file: FileId) -> Result<(), FsError> {
        self.ready()?;
        if self.inode(&Transaction::new(), file)?.link_count != 0 {
            return Err(FsError::Invalid("a file with names is not reclaimed"));
        }
        self.queue_orphan(StreamId { file, index: key::WHOLE_FILE });
        Ok(())
    }

    /// Gives back all of a stream that has no name and is no longer used.
    ///
    /// # Errors
    /// `Invalid` where it has a name.
    pub fn reclaim_stream(&mut self, stream: StreamId) -> Result<(), FsError> {
        self.ready()?;
        if stream.index == 0 || !self.stream_record(&Transaction::new(), stream)?.name.is_empty() {
            return Err(FsError::Invalid("a stream with a name is not reclaimed"));
        }
        self.queue_orphan(stream);
        Ok(())
    }

    fn queue_orphan(&mut self, orphan: StreamId) {
        self.data.orphans.push_back(orphan);
        self.pump_again = true;
        for slot in self.orphan_slots(orphan) {
            self.data.cut(slot, 0, u64::MAX);
            if let Some(stream) = self.data.stream(slot) {
                stream.reclaimed = true;
                stream.generation += 1;
            }
        }
    }

    fn orphan_slots(&self, orphan: StreamId) -> Vec<usize> {
        if orphan.index == key::WHOLE_FILE {
            return self.data.by_file.get(&orphan.file).map(|slots| slots.to_vec()).unwrap_or_default();
        }
        self.data.slots.get(&orphan).copied().into_iter().collect()
    }

    /// Finds what was left without a name when the volume was last in use.
    pub(in super::super) fn find_orphans(&mut self) -> Result<(), FsError> {
        let txn = Transaction::new();
        let prefix = key::orphans();
        let (mut from, end) = (prefix.clone(), key::after(&prefix));
        let mut found = Vec::new();
        while let Some((orphan, _)) = self.meta.next(&txn, &from, &end)? {
            found.push(key::parse_orphan(&orphan).ok_or(FsError::damaged("orphan"))?);
            from = orphan;
            from.push(0);
        }
        self.data.orphans = found.into();
        Ok(())
    }

    pub(super) fn pump_reclaim(&mut self) {
        for _ in 0..self.data.orphans.len().min(ORPHANS_AT_ONCE) {
            if self.ready_to_change().is_err() {
                return;
            }
            let Some(orphan) = self.data.orphans.pop_front() else { return };
            match self.reclaim_step(orphan) {
                Ok(true) => {}
                // One large step is enough for one go.
                Ok(false) => {
                    self.pump_again = true;
                    self.data.orphans.push_back(orphan);
                    return;
                }
                Err(FsError::Miss) => self.data.orphans.push_back(orphan),
                // Damaged metadata: the space is lost until a repair, the orphan stays recorded.
                Err(_) => {}
            }
        }
    }

    /// Deletes some of an orphan; whether all of it is gone.
    fn reclaim_step(&mut self, orphan: StreamId) -> Result<bool, FsError> {
        let slots = self.orphan_slots(orphan);
        for slot in &slots {
            self.quiesce(*slot, 0, u64::MAX)?;
        }
        let mut txn = Transaction::new();
        let whole = orphan.index == key::WHOLE_FILE;
        let extents = if whole { key::file_extents(orphan.file) } else { key::extents(orphan) };
        let end = key::after(&extents);
        let mut from = extents;
        let mut count = 0;
        while let Some((found, value)) = self.meta.next(&txn, &from, &end)? {
            if count >= KEYS_AT_ONCE {
                self.record(txn);
                return Ok(false);
            }
            let (stream, block) = key::parse_extent(&found).ok_or(FsError::damaged("extent"))?;
            let extent = ExtentRecord::decode(&value).ok_or(FsError::damaged("extent"))?;
            self.unmap(&mut txn, stream, block, block.saturating_add(u64::from(extent.blocks)))?;
            from = found;
            from.push(0);
            count += 1;
        }
        if whole {
            if !self.delete_range(
                &mut txn,
                &key::file_first(orphan.file),
                &key::file_first(FileId(orphan.file.0 + 1)),
            )? {
                self.record(txn);
                return Ok(false);
            }
            self.lazy_times.remove(&orphan.file);
        } else {
            txn.delete(key::stream(orphan));
        }
        txn.delete(key::orphan(orphan));
        self.record(txn);
        for slot in slots {
            self.data.cut(slot, 0, u64::MAX);
            self.data.forget(slot);
        }
        Ok(true)
    }

    /// Deletes keys from `from` up to `to`; whether all are gone.
    fn delete_range(&mut self, txn: &mut Transaction, from: &[u8], to: &[u8]) -> Result<bool, FsError> {
        let mut next = key::Key::from_slice(from);
        for _ in 0..KEYS_AT_ONCE {
            let Some((found, value)) = self.meta.next(txn, &next, to)? else { return Ok(true) };
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
}
