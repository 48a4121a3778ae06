//! The checkpointed tree as it is read: page cache, lookups that miss, and the loads they ask for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use types::Lba;

use super::super::layout::{PAGE_BYTES, Root};
use super::super::types::FsError;
use super::Value;
use super::key::Key;
use super::page::Page;

/// A key and its value.
type Found = Option<(Key, Value)>;

#[derive(Debug)]
struct Cached {
    page: Rc<Page>,
    touched: bool,
}

/// Pages that are held whatever the budget says.
const PAGES_LEAST: usize = 64;

/// Pages of the tree, as far as they are in memory.
#[derive(Debug)]
pub struct Tree {
    root: Option<Root>,
    pages: HashMap<u64, Cached>,
    /// Candidates for eviction, oldest first.
    clock: VecDeque<u64>,
    pages_max: usize,
    /// Pages that a lookup missed and nobody loads yet.
    wanted: Vec<Lba>,
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
            wanted: Vec::new(),
            loading: HashSet::new(),
            failed: HashMap::new(),
        }
    }

    /// Holds so many bytes of pages from the next one on.
    pub fn set_cache_bytes(&mut self, cache_bytes: usize) {
        self.pages_max = (cache_bytes / PAGE_BYTES).max(PAGES_LEAST);
    }

    pub fn root(&self) -> Option<Root> {
        self.root
    }

    /// Turns to a new tree. Pages of the old one that it does not share are forgotten; those that are on their way into
    /// memory still are returned.
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
    pub fn take_wanted(&mut self) -> Vec<Lba> {
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
        while self.pages.len() >= self.pages_max {
            let Some(oldest) = self.clock.pop_front() else { break };
            match self.pages.get_mut(&oldest) {
                Some(cached) if cached.touched => {
                    cached.touched = false;
                    self.clock.push_back(oldest);
                }
                Some(_) => drop(self.pages.remove(&oldest)),
                None => {}
            }
        }
        if self.pages.insert(lba.0, Cached { page, touched: true }).is_none() {
            self.clock.push_back(lba.0);
        }
    }

    /// A page whose level must be `level`.
    ///
    /// # Errors
    /// `Miss` where it is not in memory: its load is asked for.
    pub fn page(&mut self, lba: Lba, level: u8) -> Result<Rc<Page>, FsError> {
        if let Some(cached) = self.pages.get_mut(&lba.0) {
            cached.touched = true;
            if cached.page.level() != level {
                return Err(FsError::Corrupt { what: "tree page of a wrong level", lba });
            }
            return Ok(cached.page.clone());
        }
        if let Some(error) = self.failed.remove(&lba.0) {
            return Err(error);
        }
        self.prefetch(lba);
        Err(FsError::Miss)
    }

    /// Asks for a page's load where it is not in memory.
    pub fn prefetch(&mut self, lba: Lba) {
        if !self.pages.contains_key(&lba.0) && self.loading.insert(lba.0) {
            self.wanted.push(lba);
        }
    }

    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value>, FsError> {
        let Some(mut at) = self.root else { return Ok(None) };
        loop {
            let page = self.page(at.lba, at.level)?;
            if at.level > 0 {
                at = Root { lba: page.child(page.child_for(key)), level: at.level - 1 };
                continue;
            }
            let index = page.lower_bound(key);
            let found = index < page.len() && page.key(index) == key;
            return Ok(found.then(|| Value::in_page(&page, index)));
        }
    }

    /// The first key at or after a bound.
    pub fn next(&mut self, from: Bound<&[u8]>) -> Result<Found, FsError> {
        match self.root {
            Some(root) => self.next_below(root, from),
            None => Ok(None),
        }
    }

    fn next_below(&mut self, at: Root, from: Bound<&[u8]>) -> Result<Found, FsError> {
        let page = self.page(at.lba, at.level)?;
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
        for index in first..page.len() {
            let child = Root { lba: page.child(index), level: at.level - 1 };
            if let Some(found) = self.next_below(child, from)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The last key at or before a bound.
    pub fn previous(&mut self, at: Bound<&[u8]>) -> Result<Found, FsError> {
        match self.root {
            Some(root) => self.previous_below(root, at),
            None => Ok(None),
        }
    }

    fn previous_below(&mut self, node: Root, at: Bound<&[u8]>) -> Result<Found, FsError> {
        let page = self.page(node.lba, node.level)?;
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
        for index in (0..=last).rev() {
            let child = Root { lba: page.child(index), level: node.level - 1 };
            if let Some(found) = self.previous_below(child, at)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn entry(page: &Rc<Page>, index: usize) -> (Key, Value) {
    (Key::from_slice(page.key(index)), Value::in_page(page, index))
}
