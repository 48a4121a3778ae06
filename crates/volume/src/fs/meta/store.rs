//! Reading and changing the store.
//!
//! Three layers, the newest on top: changes since the last checkpoint began (`active`), changes that a running checkpoint
//! merges (`sealed`), and the checkpointed tree on the virtual disk. Reads go through all of them and may miss in the last.

use std::collections::btree_map::Range;
use std::ops::Bound;
use std::rc::Rc;

use super::super::types::FsError;
use super::gaps::Gaps;
use super::key::Key;
use super::transaction::{Changes, Transaction};
use super::{Tree, Value};

/// Number of deleted keys that a lookup passes before it notes the gap that they leave.
const PASSED_MIN: usize = 8;

/// A key and its value.
type Found = Option<(Key, Value)>;

/// A changed key; `None` deletes.
type Change<'a> = (&'a Key, &'a Option<Rc<[u8]>>);

/// Keys and values, the newest changes on top.
#[derive(Debug)]
pub struct Store {
    active: Changes,
    sealed: Changes,
    pub tree: Tree,
    /// Ranges left without live keys by deletions since the last checkpoint, except for transactions under
    /// way.
    gaps: Gaps,
    /// Lookups and steps of walks: the cost of an operation.
    pub steps: u32,
    /// Deleted keys that lookups went by one at a time.
    #[cfg(test)]
    pub passed: usize,
}

impl Store {
    /// Makes a store of a tree and the changes since.
    pub fn new(tree: Tree, changes: Changes) -> Self {
        Self {
            active: changes,
            sealed: Changes::new(),
            tree,
            gaps: Gaps::default(),
            steps: 0,
            #[cfg(test)]
            passed: 0,
        }
    }

    /// The value of a key.
    pub fn get(&mut self, txn: &Transaction, key: &[u8]) -> Result<Option<Value>, FsError> {
        self.steps = self.steps.saturating_add(1);
        for layer in [&txn.changes, &self.active, &self.sealed] {
            if let Some(change) = layer.get(key) {
                return Ok(change.clone().map(Value::Overlay));
            }
        }
        self.tree.get(key)
    }

    /// The first key that is at least `from` and below `to`.
    pub fn next(&mut self, txn: &Transaction, from: &[u8], to: &[u8]) -> Result<Found, FsError> {
        self.search(txn, Way::Up, Bound::Included(from), Bound::Excluded(to))
    }

    /// The last key that is at most `at` and not below `from`.
    pub fn previous(&mut self, txn: &Transaction, at: &[u8], from: &[u8]) -> Result<Found, FsError> {
        self.search(txn, Way::Down, Bound::Included(at), Bound::Included(from))
    }

    /// The first key on the way from one bound to another, as a transaction sees it.
    fn search(
        &mut self,
        txn: &Transaction,
        way: Way,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<Found, FsError> {
        let Some(mut changes) = way.range(&txn.changes, from, to) else { return Ok(None) };
        let mut applied = self.search_applied(way, from, to)?;
        while let Some((key, change)) = way.take(&mut changes) {
            match (change, &applied) {
                (_, Some((applied, _))) if way.meets(applied, key) => break,
                (Some(value), _) => return Ok(Some((key.clone(), Value::Overlay(value.clone())))),
                (None, Some((deleted, _))) if deleted == key => {
                    applied = self.search_applied(way, Bound::Excluded(key), to)?;
                }
                (None, _) => {}
            }
        }
        Ok(applied)
    }

    /// As `search`, of applied changes.
    fn search_applied(&mut self, way: Way, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Found, FsError> {
        let mut passed = 0;
        let mut reached = from.map(Key::from_slice);
        let found = self.pass(way, &mut reached, to, &mut passed);
        self.steps = self.steps.saturating_add(1 + u32::try_from(passed).unwrap_or(u32::MAX));
        if passed >= PASSED_MIN {
            let end = match (&found, &reached) {
                (Ok(Some((found, _))), _) => Bound::Included(&found[..]),
                (Ok(None), _) => to,
                (Err(_), reached) => reached.as_ref().map(|key| &key[..]),
            };
            if let (Some(from), Some(end)) = (key_of(from), key_of(end)) {
                match way {
                    Way::Up => self.gaps.insert(from, end),
                    Way::Down => self.gaps.insert(end, from),
                }
            }
        }
        #[cfg(test)]
        {
            self.passed += passed;
        }
        found
    }

    /// Searches for a key with a value. `reached` moves with the keys passed, even if the search fails.
    fn pass(
        &mut self,
        way: Way,
        reached: &mut Bound<Key>,
        to: Bound<&[u8]>,
        passed: &mut usize,
    ) -> Result<Found, FsError> {
        loop {
            let from = reached.as_ref().map(|key| &key[..]);
            let (Some(mut active), Some(mut sealed)) =
                (way.range(&self.active, from, to), way.range(&self.sealed, from, to))
            else {
                return Ok(None);
            };
            let mut stored = way.stored(&mut self.tree, from, to)?;
            let (mut in_active, mut in_sealed) = (way.take(&mut active), way.take(&mut sealed));
            // All three continue in step, until a known gap leads past keys.
            loop {
                let (key, change) = match (in_active, in_sealed) {
                    (Some(active), Some(sealed)) if way.meets(sealed.0, active.0) => sealed,
                    (Some(newest), _) | (None, Some(newest)) => newest,
                    (None, None) => return Ok(stored),
                };
                if stored.as_ref().is_some_and(|(stored, _)| way.meets(stored, key)) {
                    return Ok(stored);
                }
                if let Some(value) = change {
                    return Ok(Some((key.clone(), Value::Overlay(value.clone()))));
                }
                *passed += 1;
                *reached = Bound::Excluded(key.clone());
                if let Some(end) = way.gap_behind(&self.gaps, key) {
                    *reached = Bound::Included(end.clone());
                    break;
                }
                if in_active.is_some_and(|(active, _)| active == key) {
                    in_active = way.take(&mut active);
                }
                if in_sealed.is_some_and(|(sealed, _)| sealed == key) {
                    in_sealed = way.take(&mut sealed);
                }
                if stored.as_ref().is_some_and(|(stored, _)| stored == key) {
                    stored = way.stored(&mut self.tree, Bound::Excluded(key), to)?;
                }
            }
        }
    }

    /// Makes the changes visible to everyone.
    pub fn apply(&mut self, changes: Changes) {
        self.note(&changes);
        self.active.extend(changes);
    }

    /// Keys that changed since the last checkpoint began.
    pub fn changed(&self) -> usize {
        self.active.len()
    }

    /// Turns the changes so far, and `more`, into those that a checkpoint merges.
    pub fn seal(&mut self, more: Changes) {
        self.note(&more);
        self.sealed = std::mem::take(&mut self.active);
        self.sealed.extend(more);
    }

    /// Returns the changes that a checkpoint merges, and the tree that it merges them with.
    pub fn sealed(&mut self) -> (&Changes, &mut Tree) {
        (&self.sealed, &mut self.tree)
    }

    /// The tree holds all that was sealed.
    pub fn unseal(&mut self) {
        self.sealed.clear();
        // Most of the keys in the gaps are gone; lookups find the rest again.
        self.gaps.clear();
    }

    fn note(&mut self, changes: &Changes) {
        if self.gaps.is_empty() {
            return;
        }
        for (key, change) in changes {
            match change {
                Some(_) => self.gaps.put(key),
                None => self.gaps.delete(key),
            }
        }
    }
}

/// Which way a search goes.
#[derive(Debug, Clone, Copy)]
enum Way {
    Up,
    Down,
}

impl Way {
    /// Whether the first of two keys is met before the second.
    fn meets(self, first: &[u8], second: &[u8]) -> bool {
        match self {
            Self::Up => first < second,
            Self::Down => first > second,
        }
    }

    /// Returns the part of a layer on the way; `None` if the bounds exclude every key.
    fn range<'a>(
        self,
        layer: &'a Changes,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Option<Range<'a, Key, Option<Rc<[u8]>>>> {
        let (low, high) = match self {
            Self::Up => (from, to),
            Self::Down => (to, from),
        };
        let has_room = match (low, high) {
            (Bound::Included(low), Bound::Included(high)) => low <= high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low < high
            }
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        };
        has_room.then(|| layer.range::<[u8], _>((low, high)))
    }

    fn take<'a>(self, range: &mut Range<'a, Key, Option<Rc<[u8]>>>) -> Option<Change<'a>> {
        match self {
            Self::Up => range.next(),
            Self::Down => range.next_back(),
        }
    }

    /// The first key of the tree that lies on the way.
    fn stored(self, tree: &mut Tree, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Found, FsError> {
        let found = match self {
            Self::Up => tree.next(from, to)?,
            Self::Down => tree.previous(from, to)?,
        };
        Ok(found.filter(|(key, _)| match to {
            Bound::Included(to) => key[..] == *to || self.meets(key, to),
            Bound::Excluded(to) => self.meets(key, to),
            Bound::Unbounded => true,
        }))
    }

    /// The key to which the gap leads that begins, on this way, at a deleted key or before it.
    fn gap_behind<'a>(self, gaps: &'a Gaps, key: &[u8]) -> Option<&'a Key> {
        match self {
            Self::Up => gaps.end_after(key),
            Self::Down => gaps.start_before(key),
        }
    }
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}
