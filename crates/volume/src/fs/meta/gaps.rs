//! Ranges of keys in which nothing is live, as lookups found them: deleted keys are passed once, not
//! each time.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::key::Key;

/// Open intervals of keys, disjoint: no key strictly between the two ends of one has a value.
#[derive(Debug, Default)]
pub struct Gaps {
    /// End by start.
    ends: BTreeMap<Key, Key>,
}

impl Gaps {
    /// Notes that no key strictly between two is live.
    pub fn insert(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (Key::from_slice(start), Key::from_slice(end));
        // Gaps that merely touch stay apart: the key between them may be live.
        while let Some((first, last)) = self.ends.range::<[u8], _>(below(&end)).next_back()
            && *last > start
        {
            let first = first.clone();
            if let Some(last) = self.ends.remove(&first) {
                end = end.max(last);
            }
            start = start.min(first);
        }
        self.ends.insert(start, end);
    }

    /// A key has a value now.
    pub fn put(&mut self, key: &[u8]) {
        if let Some((start, end)) = self.ends.range_mut::<[u8], _>(below(key)).next_back()
            && **end > *key
        {
            debug_assert!(**start < *key);
            let end = std::mem::replace(end, Key::from_slice(key));
            self.ends.insert(Key::from_slice(key), end);
        }
    }

    /// A key has no value any more: the gaps at either side of it are one.
    pub fn delete(&mut self, key: &[u8]) {
        let Some(end) = self.ends.get(key).cloned() else { return };
        if let Some((_, before)) = self.ends.range_mut::<[u8], _>(below(key)).next_back()
            && **before == *key
        {
            *before = end;
            self.ends.remove(key);
        }
    }

    /// Returns the key at which an upward search behind a key without a value may continue: the end of the
    /// gap that begins there.
    pub fn end_after(&self, key: &[u8]) -> Option<&Key> {
        let at_most = (Bound::Unbounded, Bound::Included(key));
        self.ends.range::<[u8], _>(at_most).next_back().map(|(_, end)| end).filter(|end| ***end > *key)
    }

    /// Returns the key at which a downward search before a key without a value may continue: the start of
    /// the gap that ends there.
    pub fn start_before(&self, key: &[u8]) -> Option<&Key> {
        let (start, end) = self.ends.range::<[u8], _>(below(key)).next_back()?;
        (**end >= *key).then_some(start)
    }

    pub fn clear(&mut self) {
        self.ends.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

fn below(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Excluded(key))
}
