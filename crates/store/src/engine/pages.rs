//! Metadata pages: those in RAM, and reads of the others.

use super::damage::Damage;
use super::device::Device;
use super::operation::{Attempt, Op, PageRead};
use super::place::Place;
use super::slab_table::SlabTable;
use crate::cache::PageCache;
use crate::layout::{Layout, PAGE_BYTES, PAGE_WORDS};
use crate::metadata::{FoundPage, PageIdentity, Words, page_identity, parse_page};
use crate::numbers::page_key;
use crate::planted::Planted;
use crate::slots::SlotId;
use crate::tables::SlabEntry;
use crate::versions::PageVersions;
use disk::{Disk, DiskError};
use smallvec::SmallVec;
use std::ops::Range;
use sys::BufMut;
use types::{DiskId, SlabIndex};

/// Pages that a task has pinned, each once.
pub(super) type Pinned = SmallVec<[u64; 4]>;
/// The metadata words that a task reads or changes.
pub(super) type WordRanges = SmallVec<[Range<u32>; 2]>;

/// Invariant: a page in RAM belongs to its slab's present owner, and shows exactly the changes that
/// the journal has made durable. A checkpoint rewrites a dirty page; a clean one lies in place with
/// its version in `versions`. A page pinned by a task stays.
pub(super) struct Pages {
    disk: DiskId,
    pub(super) cache: PageCache,
    pub(super) versions: PageVersions,
    /// Pages read because they were not in RAM.
    reads: u64,
}

/// Outcome of the read of a page.
pub(super) enum Arrival {
    /// The page is being read a second time.
    Again,
    /// The page is in RAM, unless its slab has another owner now; these tasks waited for it.
    Here(Vec<SlotId>),
    /// The disk as a whole has failed: the tasks that waited fail too.
    Failed(Vec<SlotId>, DiskError),
}

impl Pages {
    pub(super) fn new(
        disk: DiskId,
        budget_bytes: usize,
        versions: PageVersions,
        replayed: Vec<(u64, Words)>,
    ) -> Self {
        let mut cache = PageCache::new(budget_bytes);
        for (key, words) in replayed {
            cache.insert(key, words, true);
        }
        Self { disk, cache, versions, reads: 0 }
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    pub(super) fn identity(&self, slab: SlabIndex, entry: &SlabEntry, page: u32) -> PageIdentity {
        page_identity(self.disk, slab, entry, page)
    }

    /// Pins the pages of these words of the place's slab, and reads the missing ones. Returns the
    /// pinned pages, and the number of missing ones. Each of these returns the task when it arrives
    /// ([`Self::arrived`]).
    pub(super) fn gather<D: Disk>(
        &mut self,
        task: SlotId,
        place: Place,
        words: WordRanges,
        layout: &Layout,
        device: &mut Device<D>,
    ) -> (Pinned, u32) {
        let (mut pinned, mut missing) = (Pinned::new(), Pinned::new());
        for range in words {
            for page in range.start / PAGE_WORDS as u32..=(range.end - 1) / PAGE_WORDS as u32 {
                let key = page_key(place.slab, page);
                if pinned.contains(&key) || missing.contains(&key) {
                    continue;
                }
                if self.cache.pin(key) {
                    pinned.push(key);
                    continue;
                }
                missing.push(key);
                if self.cache.wait_for(key, task) {
                    self.reads += 1;
                    self.read(PageRead::first(key, place.generation), layout, device);
                }
            }
        }
        (pinned, missing.len() as u32)
    }

    pub(super) fn unpin(&mut self, pinned: Pinned) {
        pinned.iter().for_each(|key| self.cache.unpin(*key));
    }

    fn read<D: Disk>(&self, read: PageRead, layout: &Layout, device: &mut Device<D>) {
        device.read(Op::Page(read), layout.page_offset(read.slab(), read.page()), PAGE_BYTES);
    }

    /// Handles the read of a missing page.
    pub(super) fn arrived<D: Disk>(
        &mut self,
        read: PageRead,
        result: Result<Option<BufMut>, DiskError>,
        slabs: &SlabTable,
        damage: &mut Damage,
        layout: &Layout,
        device: &mut Device<D>,
    ) -> Arrival {
        let unreadable = matches!(result, Err(DiskError::Medium(_)));
        let found = match result {
            Ok(Some(bytes)) => self.parse(read, slabs, &bytes),
            // An unreadable page counts as damaged: the blocks read as corrupt, and the page heals
            // when it is rewritten.
            Ok(None) | Err(DiskError::Medium(_)) => self.parse(read, slabs, &[]),
            Err(error) => return Arrival::Failed(self.cache.loaded(read.key), error),
        };
        let again = read.attempt == Attempt::First && !Planted::PassingErrorMarksLost.is_planted();
        if again && found.as_ref().is_some_and(|found| !found.is_whole()) {
            self.read(read.again(), layout, device);
            return Arrival::Again;
        }
        let waiters = self.cache.loaded(read.key);
        if let Some(found) = found.filter(|_| !self.cache.contains(read.key)) {
            damage.note_page(read.key, &found, unreadable);
            self.cache.insert(read.key, found.words, false);
        }
        Arrival::Here(waiters)
    }

    /// Parses a page; `None` if the slab has another owner since the page was requested.
    pub(super) fn parse(&self, read: PageRead, slabs: &SlabTable, bytes: &[u8]) -> Option<FoundPage> {
        let (slab, page) = (read.slab(), read.page());
        let entry = slabs.entry(slab).filter(|entry| entry.generation == read.generation)?;
        Some(parse_page(self.identity(slab, entry, page), self.versions.get(slab, page), bytes))
    }
}
