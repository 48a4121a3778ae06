//! Records of opens that outlive the server: opaque to the file layer, which stores them.
//!
//! Such records are changes of metadata like any other. Those recorded between two polls are in one
//! batch of the journal with all other changes of that time, so a crash keeps both an operation and its
//! effect on opens, or neither.

use super::FileSystem;
use super::layout::Features;
use super::meta::{Key, Transaction, VALUE_BYTES_MAX, key, record};
use super::types::{FsError, OpenStateKey};

/// Changes of open state; `None` forgets a record.
pub type OpenStateChanges = Vec<(OpenStateKey, Option<Vec<u8>>)>;

/// A walk over all open state; it may be interrupted.
#[derive(Debug, Default)]
pub struct OpenStateWalk {
    /// The last key found.
    after: Option<Key>,
}

impl FileSystem {
    /// The number of this opening of the volume: higher than that of any before.
    pub fn incarnation(&self) -> u64 {
        self.base.checkpointer.superblock.map_or(0, |superblock| superblock.incarnation)
    }

    /// Checks that more records of opens may be kept: there is space for them, and the superblock tells
    /// older programs to leave the volume alone.
    ///
    /// # Errors
    /// `Miss` until both hold; those of changes that grow.
    pub fn ready_to_keep_opens(&mut self) -> Result<(), FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        self.ready_with_open_state()
    }

    /// As [`FileSystem::ready_to_keep_opens`], for a later deletion: also on a full volume.
    ///
    /// # Errors
    /// `Miss` until the superblock tells older programs; those of all changes.
    pub fn ready_to_keep_deletion(&mut self) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        self.ready_with_open_state()
    }

    fn ready_with_open_state(&mut self) -> Result<(), FsError> {
        if self.base.checkpointer.has_features(Features::OPENS) {
            return Ok(());
        }
        if self.base.checkpointer.want_features(Features::OPENS) {
            // A checkpoint begins only when there is something to store.
            let mut txn = Transaction::new();
            txn.put(key::volume(), record::encode_volume(&self.volume));
            self.base.record(txn);
            self.base.agenda.again = true;
        }
        Err(FsError::Miss)
    }

    /// Checks that open state may be changed or removed.
    ///
    /// # Errors
    /// `Miss` while the journal is full; those of all changes.
    pub fn ready_to_change_opens(&self) -> Result<(), FsError> {
        self.base.ready_to_change()
    }

    /// Whether changes are recorded at all, with or without space for more.
    pub fn takes_changes(&self) -> bool {
        self.base.ready().is_ok() && self.base.checkpointer.read_only().is_none()
    }

    /// Changes open state, with the other changes since the last poll. The caller has checked that the
    /// volume is ready.
    pub fn keep_open_state(&mut self, changes: OpenStateChanges) {
        let mut txn = Transaction::new();
        for (name, value) in changes {
            let key = stored_key(&name);
            match value {
                Some(value) => {
                    assert!(value.len() <= VALUE_BYTES_MAX, "what is kept of an open fits one value");
                    txn.put(key, value);
                }
                None => txn.delete(key),
            }
        }
        self.base.record(txn);
    }

    /// Finds the next record of open state, if any.
    ///
    /// # Errors
    /// `Miss`, and damage of the metadata.
    pub fn next_open_state(
        &mut self,
        walk: &mut OpenStateWalk,
    ) -> Result<Option<(OpenStateKey, Vec<u8>)>, FsError> {
        self.base.ready()?;
        if !self.base.checkpointer.has_features(Features::OPENS) {
            return Ok(None);
        }
        let (first, end) = key::open_state();
        let from = match &walk.after {
            Some(after) => {
                let mut from = after.clone();
                from.push(0);
                from
            }
            None => first,
        };
        let Some((found, value)) = self.base.meta.store.next(&Transaction::new(), &from, &end)? else {
            return Ok(None);
        };
        let name = key::parse_open_state(&found).ok_or(FsError::damaged("key of an open"))?;
        walk.after = Some(found);
        Ok(Some((name, value.to_vec())))
    }

    /// Stops the volume: its stored open state makes no sense.
    pub fn refuse_open_state(&mut self, what: &'static str) {
        self.fail(FsError::damaged(what));
    }
}

fn stored_key(name: &OpenStateKey) -> Key {
    match name {
        OpenStateKey::Open(open) => key::open(*open),
        OpenStateKey::Lock { open, offset, len_bytes, shared } => {
            key::open_lock(*open, *offset, *len_bytes, *shared)
        }
        OpenStateKey::Lease { client, key } => key::lease(client, key),
        OpenStateKey::DeletedLink { file, parent, name } => key::deleted_link(*file, *parent, name),
        OpenStateKey::DeletedStream(stream) => key::deleted_stream(*stream),
    }
}
