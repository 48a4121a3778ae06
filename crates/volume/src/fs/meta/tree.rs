//! The checkpointed tree for readers: page cache, lookups that may miss, and the loads they request.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use types::Lba;

use super::super::layout::{PAGE_BYTES, Pointer, Root};
use super::super::types::FsError;
use super::Value;
use super::key::Key;
use super::page::Page;
use crate::planted::Planted;

/// A key and its value.
type Found = Option<(Key, Value)>;

#[derive(Debug)]
struct Cached {
    page: Rc<Page>,
    touched: bool,
}

/// Least number of pages held, at any budget.
const PAGES_LEAST: usize = 64;

/// Number of recently evicted pages to remember. An operation that misses runs again from its start. If
/// it needs more pages than the cache holds, it next requests those just evicted for it. Others seldom
/// request one of so few.
const EVICTED_MAX: usize = 32;

/// Pages held at most beyond the budget for such operations: those of the path of the deepest file, a
/// page for each link and each entry.
const EXTRA_MAX: usize = 2 * super::super::types::DEPTH_MAX + PAGES_LEAST;

/// Number of leaves loaded together with one that a walk reaches: the walk will need them next.
const PAGES_AHEAD: usize = 8;

/// Pages of the tree, as far as they are in memory.
#[derive(Debug)]
pub struct Tree {
    root: Option<Root>,
    pages: HashMap<u64, Cached>,
    /// Candidates for eviction, oldest first.
    clock: VecDeque<u64>,
    pages_max: usize,
    /// Pages evicted last, the newest at the end.
    evicted: VecDeque<u64>,
    /// Pages held beyond the budget, so that an operation finds all that it needs in memory. One more for
    /// each page requested again right after its eviction, one fewer for each other one.
    extra: usize,
    /// Pages that a lookup missed and no request loads yet.
    wanted: Vec<Pointer>,
    loading: HashSet<u64>,
    failed: HashMap<u64, FsError>,
}

impl Tree {
    pub fn new(root: Option<Root>, cache_bytes: usize) -> Self {
        Self {
            root,
            pages: HashMap::new(),
            clock: VecDeque::new(),
            pages_max: (cache_bytes / PAGE_BYTES).max(PAGES_LEAST),
            evicted: VecDeque::new(),
            extra: 0,
            wanted: Vec::new(),
            loading: HashSet::new(),
            failed: HashMap::new(),
        }
    }

    /// Limits the bytes of pages in memory, from the next one on.
    pub fn set_cache_bytes(&mut self, cache_bytes: usize) {
        self.pages_max = (cache_bytes / PAGE_BYTES).max(PAGES_LEAST);
    }

    #[cfg(test)]
    pub fn cached_count(&self) -> usize {
        self.pages.len()
    }

    pub fn root(&self) -> Option<Root> {
        self.root
    }

    /// Switches to a new tree. Forgets pages of the old one that it does not share; returns those still
    /// being loaded.
    pub fn replace_root(&mut self, root: Option<Root>, freed: &[Lba]) -> HashSet<Lba> {
        self.root = root;
        for lba in freed {
            self.pages.remove(&lba.0);
        }
        freed.iter().copied().filter(|lba| self.is_loading(*lba)).collect()
    }

    pub fn is_loading(&self, lba: Lba) -> bool {
        self.loading.contains(&lba.0)
    }

    pub fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Pages to load; each is answered by `loaded` or `failed`.
    pub fn take_wanted(&mut self) -> Vec<Pointer> {
        std::mem::take(&mut self.wanted)
    }

    pub fn loaded(&mut self, lba: Lba, page: Page) {
        self.loading.remove(&lba.0);
        self.insert(lba, Rc::new(page));
    }

    pub fn failed(&mut self, lba: Lba, error: FsError) {
        self.loading.remove(&lba.0);
        self.failed.insert(lba.0, error);
    }

    pub fn insert(&mut self, lba: Lba, page: Rc<Page>) {
        while self.pages.len() >= self.pages_max + self.extra {
            let Some(oldest) = self.clock.pop_front() else { break };
            match self.pages.get_mut(&oldest) {
                Some(cached) if cached.touched => {
                    cached.touched = false;
                    self.clock.push_back(oldest);
                }
                Some(_) => {
                    self.pages.remove(&oldest);
                    if self.evicted.len() >= EVICTED_MAX {
                        self.evicted.pop_front();
                    }
                    self.evicted.push_back(oldest);
                }
                None => {}
            }
        }
        if self.pages.insert(lba.0, Cached { page, touched: true }).is_none() {
            self.clock.push_back(lba.0);
        }
    }

    /// Returns the page at a pointer; its level must be `level`.
    ///
    /// # Errors
    /// `Miss` if it is not in memory: its load is requested.
    pub fn page(&mut self, pointer: Pointer, level: u8) -> Result<Rc<Page>, FsError> {
        let lba = pointer.lba;
        if let Some(cached) = self.pages.get_mut(&lba.0)
            && (cached.page.pointer() == pointer || Planted::PointerUnchecked.is_planted())
        {
            cached.touched = true;
            if cached.page.level() != level {
                return Err(FsError::Corrupt { what: "tree page of a wrong level", lba });
            }
            return Ok(cached.page.clone());
        }
        if let Some(error) = self.failed.remove(&lba.0) {
            return Err(error);
        }
        self.prefetch(pointer);
        Err(FsError::Miss)
    }

    /// Requests a page's load if it is not in memory. Leaves an unreadable one to its reader.
    pub fn prefetch(&mut self, pointer: Pointer) {
        let lba = pointer.lba.0;
        let cached = self.pages.get(&lba).is_some_and(|cached| cached.page.pointer() == pointer);
        if !cached && !self.failed.contains_key(&lba) && self.loading.insert(lba) {
            self.wanted.push(pointer);
            self.note_asked_for(lba);
        }
    }

    /// Holds more pages while operations request recently evicted ones, fewer again after that.
    fn note_asked_for(&mut self, lba: u64) {
        match self.evicted.iter().position(|evicted| *evicted == lba) {
            Some(at) => {
                self.evicted.remove(at);
                self.extra = (self.extra + 1).min(EXTRA_MAX);
            }
            None => self.extra = self.extra.saturating_sub(1),
        }
    }

    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value>, FsError> {
        let Some(mut at) = self.root else { return Ok(None) };
        loop {
            let page = self.page(at.page, at.level)?;
            if at.level > 0 {
                at = Root { page: page.child(page.child_for(key)), level: at.level - 1 };
                continue;
            }
            let index = page.lower_bound(key);
            let found = index < page.len() && page.key(index) == key;
            return Ok(found.then(|| Value::in_page(&page, index)));
        }
    }

    /// Finds the end of the page that has a key, or of an unreadable page on the way to it: the first key
    /// behind it, `None` if there is none; and whether it cannot be read.
    ///
    /// # Errors
    /// `Miss` while a page above is being loaded.
    pub fn behind_page_of(&mut self, key: &[u8]) -> Result<(Option<Key>, bool), FsError> {
        let (Some(mut at), mut behind) = (self.root, None) else { return Ok((None, false)) };
        loop {
            match self.page(at.page, at.level) {
                Ok(page) if at.level > 0 => {
                    let index = page.child_for(key);
                    if index + 1 < page.len() {
                        behind = Some(Key::from_slice(page.key(index + 1)));
                    }
                    at = Root { page: page.child(index), level: at.level - 1 };
                }
                Err(FsError::Miss) => return Err(FsError::Miss),
                Ok(_) => return Ok((behind, false)),
                Err(_) => return Ok((behind, true)),
            }
        }
    }

    /// The first key at or after a bound, as far as pages lead that may have keys before `to`.
    pub fn next(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Found, FsError> {
        match self.root {
            Some(root) => self.next_below(root, from, to),
            None => Ok(None),
        }
    }

    fn next_below(&mut self, at: Root, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Found, FsError> {
        let page = self.page(at.page, at.level)?;
        if at.level == 0 {
            let index = match from {
                Bound::Included(key) => page.lower_bound(key),
                Bound::Excluded(key) => page.upper_bound(key),
                Bound::Unbounded => 0,
            };
            return Ok((index < page.len()).then(|| entry(&page, index)));
        }
        let first = match from {
            Bound::Included(key) | Bound::Excluded(key) => page.child_for(key),
            Bound::Unbounded => 0,
        };
        // No key of a child is before the one that leads to it.
        let is_behind = |index: usize| match to {
            Bound::Included(to) => page.key(index) > to,
            Bound::Excluded(to) => page.key(index) >= to,
            Bound::Unbounded => false,
        };
        for index in (first..page.len()).take_while(|&index| index == first || !is_behind(index)) {
            let child = Root { page: page.child(index), level: at.level - 1 };
            let found = self.next_below(child, from, to);
            if matches!(found, Err(FsError::Miss)) && index > first && child.level == 0 {
                let ahead = (index + 1..page.len()).take_while(|&index| !is_behind(index));
                ahead.take(PAGES_AHEAD).for_each(|index| self.prefetch(page.child(index)));
            }
            if let Some(found) = found? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The last key at or before a bound, as far as pages lead that may have keys behind `from`.
    pub fn previous(&mut self, at: Bound<&[u8]>, from: Bound<&[u8]>) -> Result<Found, FsError> {
        match self.root {
            Some(root) => self.previous_below(root, at, from),
            None => Ok(None),
        }
    }

    fn previous_below(&mut self, node: Root, at: Bound<&[u8]>, from: Bound<&[u8]>) -> Result<Found, FsError> {
        let page = self.page(node.page, node.level)?;
        if node.level == 0 {
            let count = match at {
                Bound::Included(key) => page.upper_bound(key),
                Bound::Excluded(key) => page.lower_bound(key),
                Bound::Unbounded => page.len(),
            };
            return Ok(count.checked_sub(1).map(|index| entry(&page, index)));
        }
        let last = match at {
            Bound::Included(key) | Bound::Excluded(key) => page.child_for(key),
            Bound::Unbounded => page.len() - 1,
        };
        // All keys of a child are before the one that leads to the next.
        let is_before = |index: usize| match from {
            Bound::Included(from) | Bound::Excluded(from) => page.key(index + 1) <= from,
            Bound::Unbounded => false,
        };
        for index in (0..=last).rev().take_while(|&index| index == last || !is_before(index)) {
            let child = Root { page: page.child(index), level: node.level - 1 };
            let found = self.previous_below(child, at, from);
            if matches!(found, Err(FsError::Miss)) && index < last && child.level == 0 {
                let ahead = (0..index).rev().take_while(|&index| !is_before(index));
                ahead.take(PAGES_AHEAD).for_each(|index| self.prefetch(page.child(index)));
            }
            if let Some(found) = found? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn entry(page: &Rc<Page>, index: usize) -> (Key, Value) {
    (Key::from_slice(page.key(index)), Value::in_page(page, index))
}
