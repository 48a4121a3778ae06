//! The metadata store: an ordered map from keys to small values, changed by transactions.

pub mod key;
pub mod record;
mod transaction;

use std::ops::{Bound, Deref};
use std::rc::Rc;

pub use key::Key;
pub use transaction::{Changes, Transaction};

use super::types::FsError;

/// Largest value; longer things are stored in pieces.
pub const VALUE_BYTES_MAX: usize = 3072;

/// A stored value.
#[derive(Debug, Clone)]
pub enum Value {
    Overlay(Rc<[u8]>),
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Overlay(bytes) => bytes,
        }
    }
}

/// Keys and values, the newest changes on top.
#[derive(Debug, Default)]
pub struct Store {
    active: Changes,
}

impl Store {
    /// The value of a key.
    pub fn get(&mut self, txn: &Transaction, key: &[u8]) -> Result<Option<Value>, FsError> {
        for layer in [&txn.changes, &self.active] {
            if let Some(change) = layer.get(key) {
                return Ok(change.clone().map(Value::Overlay));
            }
        }
        Ok(None)
    }

    /// The first key that is at least `from` and below `to`.
    pub fn next(
        &mut self,
        txn: &Transaction,
        from: &[u8],
        to: &[u8],
    ) -> Result<Option<(Key, Value)>, FsError> {
        let mut from = Bound::Included(Key::from_slice(from));
        loop {
            let mut best: Option<(&Key, &Option<Rc<[u8]>>)> = None;
            for layer in [&txn.changes, &self.active] {
                let bounds = (from.as_ref().map(|key| &key[..]), Bound::Excluded(to));
                if !range_is_valid(&bounds) {
                    return Ok(None);
                }
                if let Some(found) = layer.range::<[u8], _>(bounds).next()
                    && best.is_none_or(|(key, _)| found.0 < key)
                {
                    best = Some(found);
                }
            }
            match best {
                None => return Ok(None),
                Some((key, Some(value))) => return Ok(Some((key.clone(), Value::Overlay(value.clone())))),
                Some((key, None)) => from = Bound::Excluded(key.clone()),
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
            let mut best: Option<(&Key, &Option<Rc<[u8]>>)> = None;
            for layer in [&txn.changes, &self.active] {
                let bounds = (Bound::Included(from), at.as_ref().map(|key| &key[..]));
                if !range_is_valid(&bounds) {
                    return Ok(None);
                }
                if let Some(found) = layer.range::<[u8], _>(bounds).next_back()
                    && best.is_none_or(|(key, _)| found.0 > key)
                {
                    best = Some(found);
                }
            }
            match best {
                None => return Ok(None),
                Some((key, Some(value))) => return Ok(Some((key.clone(), Value::Overlay(value.clone())))),
                Some((key, None)) => at = Bound::Excluded(key.clone()),
            }
        }
    }

    /// Makes the changes visible to everyone.
    pub fn commit(&mut self, txn: Transaction) {
        self.active.extend(txn.changes);
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
