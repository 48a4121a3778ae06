//! The metadata store: an ordered map from keys to small values, changed by transactions.
//!
//! Three layers, the newest on top: changes since the last checkpoint began (`active`), changes that a running checkpoint
//! merges (`sealed`), and the checkpointed tree on the virtual disk. Reads go through all of them and may miss in the last.

pub mod journal;
pub mod key;
pub mod log;
pub mod merge;
pub mod page;
pub mod record;
mod transaction;
mod tree;

use std::ops::{Bound, Deref};
use std::rc::Rc;

pub use key::Key;
pub use transaction::{BlockRun, Changes, Transaction};
pub use tree::Tree;

use super::types::FsError;
use page::Page;

/// Largest value; longer things are stored in pieces.
pub const VALUE_BYTES_MAX: usize = 3072;

/// A stored value.
#[derive(Debug, Clone)]
pub enum Value {
    Overlay(Rc<[u8]>),
    InPage { page: Rc<Page>, start: usize, len: usize },
}

impl Value {
    fn in_page(page: &Rc<Page>, index: usize) -> Self {
        let (start, len) = page.value_place(index);
        Self::InPage { page: page.clone(), start, len }
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Overlay(bytes) => bytes,
            Self::InPage { page, start, len } => &page.bytes()[*start..*start + *len],
        }
    }
}

/// Keys and values, the newest changes on top.
#[derive(Debug)]
pub struct Store {
    pub active: Changes,
    pub sealed: Changes,
    pub tree: Tree,
}

impl Store {
    pub fn new(tree: Tree) -> Self {
        Self { active: Changes::new(), sealed: Changes::new(), tree }
    }

    /// The value of a key.
    pub fn get(&mut self, txn: &Transaction, key: &[u8]) -> Result<Option<Value>, FsError> {
        for layer in [&txn.changes, &self.active, &self.sealed] {
            if let Some(change) = layer.get(key) {
                return Ok(change.clone().map(Value::Overlay));
            }
        }
        self.tree.get(key)
    }

    /// The first key that is at least `from` and below `to`.
    pub fn next(
        &mut self,
        txn: &Transaction,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<(Key, Value)>, FsError> {
        let mut from = Bound::Included(Key::from_slice(from));
        // The tree's answer holds while deleted keys before it are passed.
        let mut held: Option<Option<(Key, Value)>> = None;
        loop {
            let bound = from.as_ref().map(|key| &key[..]);
            let bounds = (bound, Bound::Excluded(to));
            if !range_is_valid(&bounds) {
                return Ok(None);
            }
            let mut best: Option<(&Key, &Option<Rc<[u8]>>)> = None;
            for layer in [&txn.changes, &self.active, &self.sealed] {
                if let Some(found) = layer.range::<[u8], _>(bounds).next()
                    && best.is_none_or(|(key, _)| found.0 < key)
                {
                    best = Some(found);
                }
            }
            let stored = match held.take() {
                Some(stored) => stored,
                None => self.tree.next(bound)?.filter(|(key, _)| key[..] < *to),
            };
            match (best, stored) {
                (None, stored) => return Ok(stored),
                (Some((key, _)), Some(stored)) if stored.0 < *key => return Ok(Some(stored)),
                (Some((key, Some(value))), _) => {
                    return Ok(Some((key.clone(), Value::Overlay(value.clone()))));
                }
                (Some((key, None)), stored) => {
                    if stored.as_ref().is_none_or(|(found, _)| found > key) {
                        held = Some(stored);
                    }
                    from = Bound::Excluded(key.clone());
                }
            }
        }
    }

    /// The last key that is at most `at` and not below `from`.
    pub fn previous(
        &mut self,
        txn: &Transaction,
        at: &[u8],
        from: &[u8],
    ) -> Result<Option<(Key, Value)>, FsError> {
        let mut at = Bound::Included(Key::from_slice(at));
        loop {
            let bound = at.as_ref().map(|key| &key[..]);
            let bounds = (Bound::Included(from), bound);
            if !range_is_valid(&bounds) {
                return Ok(None);
            }
            let mut best: Option<(&Key, &Option<Rc<[u8]>>)> = None;
            for layer in [&txn.changes, &self.active, &self.sealed] {
                if let Some(found) = layer.range::<[u8], _>(bounds).next_back()
                    && best.is_none_or(|(key, _)| found.0 > key)
                {
                    best = Some(found);
                }
            }
            let stored = self.tree.previous(bound)?.filter(|(key, _)| key[..] >= *from);
            match (best, stored) {
                (None, stored) => return Ok(stored),
                (Some((key, _)), Some(stored)) if stored.0 > *key => return Ok(Some(stored)),
                (Some((key, Some(value))), _) => {
                    return Ok(Some((key.clone(), Value::Overlay(value.clone()))));
                }
                (Some((key, None)), _) => at = Bound::Excluded(key.clone()),
            }
        }
    }

    /// Makes the changes visible to everyone.
    pub fn apply(&mut self, changes: Changes) {
        self.active.extend(changes);
    }
}

/// Whether a range can be asked of a map: its start does not lie behind its end.
fn range_is_valid(bounds: &(Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => {
            from < to
        }
        _ => true,
    }
}
