//! Metadata pages in RAM, within a budget: a clock drops clean pages, while dirty and pinned ones
//! stay.

use crate::layout::{PAGE_BYTES, PAGE_WORDS};
use crate::metadata::Words;
use crate::numbers::{NumberMap, page_key};
use crate::slots::SlotId;
use std::collections::VecDeque;
use types::SlabIndex;

struct Page {
    words: Words,
    pins: u32,
    /// Whether the page changed since it was last written in place.
    dirty: bool,
    /// Whether the page is being written in place.
    writing: bool,
    used: bool,
}

pub(crate) struct PageCache {
    pages: NumberMap<Page>,
    clock: VecDeque<u64>,
    /// Pages being read, and the tasks that wait for them.
    loading: NumberMap<Vec<SlotId>>,
    budget_pages: usize,
    dirty_pages: usize,
}

impl PageCache {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self {
            pages: NumberMap::default(),
            clock: VecDeque::new(),
            loading: NumberMap::default(),
            budget_pages: (budget_bytes / PAGE_BYTES).max(16),
            dirty_pages: 0,
        }
    }

    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty_pages
    }
    pub(crate) fn budget_pages(&self) -> usize {
        self.budget_pages
    }
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns the word, if its page is in RAM.
    pub(crate) fn word(&mut self, slab: SlabIndex, word: u32) -> Option<u64> {
        self.words(slab, word / PAGE_WORDS as u32).map(|words| words[word as usize % PAGE_WORDS])
    }

    /// Returns the words of a page, if it is in RAM.
    pub(crate) fn words(&mut self, slab: SlabIndex, page: u32) -> Option<&[u64; PAGE_WORDS]> {
        let page = self.pages.get_mut(&page_key(slab, page))?;
        page.used = true;
        Some(&page.words)
    }

    pub(crate) fn contains(&self, key: u64) -> bool {
        self.pages.contains_key(&key)
    }

    /// Changes a word by `change`, from old to new, if its page is in RAM. Returns whether it is.
    pub(crate) fn change(&mut self, slab: SlabIndex, word: u32, change: impl FnOnce(u64) -> u64) -> bool {
        let Some(page) = self.pages.get_mut(&page_key(slab, word / PAGE_WORDS as u32)) else { return false };
        let place = &mut page.words[word as usize % PAGE_WORDS];
        let changed = change(*place);
        if changed != *place {
            *place = changed;
            if !page.dirty {
                page.dirty = true;
                self.dirty_pages += 1;
            }
        }
        true
    }

    /// Keeps a page until [`Self::unpin`]. Returns whether it is in RAM.
    pub(crate) fn pin(&mut self, key: u64) -> bool {
        let page = self.pages.get_mut(&key);
        page.map(|page| page.pins += 1).is_some()
    }

    pub(crate) fn unpin(&mut self, key: u64) {
        if let Some(page) = self.pages.get_mut(&key) {
            page.pins = page.pins.saturating_sub(1);
        }
    }

    /// Notes that a task waits for a page. Returns whether the page must be read.
    pub(crate) fn wait_for(&mut self, key: u64, task: SlotId) -> bool {
        let waiters = self.loading.entry(key).or_default();
        let first = waiters.is_empty();
        // A task that begins again, because another of its pages changed owner, waits already.
        if !waiters.contains(&task) {
            waiters.push(task);
        }
        first
    }

    /// Returns the tasks that waited for a page that was read, or could not be.
    pub(crate) fn loaded(&mut self, key: u64) -> Vec<SlotId> {
        self.loading.remove(&key).unwrap_or_default()
    }

    pub(crate) fn insert(&mut self, key: u64, words: Words, dirty: bool) {
        let page = Page { words, pins: 0, dirty, writing: false, used: true };
        self.dirty_pages += usize::from(dirty);
        match self.pages.insert(key, page) {
            Some(old) => self.dirty_pages -= usize::from(old.dirty),
            None => self.clock.push_back(key),
        }
        self.evict(key);
    }

    /// Makes space for page `newest`, which itself stays: the tasks that wait for it will use it
    /// soon, and would request it again.
    fn evict(&mut self, newest: u64) {
        let mut tries = 2 * self.clock.len();
        while self.pages.len() > self.budget_pages && tries > 0 {
            tries -= 1;
            let Some(key) = self.clock.pop_front() else { return };
            let Some(page) = self.pages.get_mut(&key) else { continue };
            if page.pins > 0 || page.dirty || page.writing || page.used || key == newest {
                page.used = false;
                self.clock.push_back(key);
            } else {
                self.pages.remove(&key);
            }
        }
    }

    pub(crate) fn dirty_keys(&self) -> Vec<u64> {
        self.pages.iter().filter(|(_, page)| page.dirty).map(|(key, _)| *key).collect()
    }

    /// Returns the words of a dirty page, which from now on is clean and being written.
    pub(crate) fn begin_write(&mut self, key: u64) -> Option<&[u64; PAGE_WORDS]> {
        let page = self.pages.get_mut(&key).filter(|page| page.dirty)?;
        page.dirty = false;
        page.writing = true;
        self.dirty_pages -= 1;
        Some(&page.words)
    }

    pub(crate) fn end_write(&mut self, key: u64) {
        if let Some(page) = self.pages.get_mut(&key) {
            page.writing = false;
        }
    }

    /// Marks a page as dirty again, because its write did not happen.
    pub(crate) fn undo_write(&mut self, key: u64) {
        if let Some(page) = self.pages.get_mut(&key) {
            page.writing = false;
        }
        self.mark_dirty(key);
    }

    /// Marks the page for the next checkpoint to rewrite.
    pub(crate) fn mark_dirty(&mut self, key: u64) {
        if let Some(page) = self.pages.get_mut(&key)
            && !page.dirty
        {
            page.dirty = true;
            self.dirty_pages += 1;
        }
    }

    /// Whether the page is in RAM and must equal the one in place.
    pub(crate) fn is_clean(&self, key: u64) -> bool {
        self.pages.get(&key).is_some_and(|page| !page.dirty && !page.writing)
    }

    /// Forgets all pages of a slab, dirty or not.
    pub(crate) fn forget_slab(&mut self, slab: SlabIndex, pages: u32) {
        if self.clock.len() > 2 * self.pages.len() + 1024 {
            let (pages, mut seen) = (&self.pages, std::collections::HashSet::new());
            self.clock.retain(|key| pages.contains_key(key) && seen.insert(*key));
        }
        for page in 0..pages {
            if let Some(page) = self.pages.remove(&page_key(slab, page)) {
                self.dirty_pages -= usize::from(page.dirty);
            }
        }
    }
}
