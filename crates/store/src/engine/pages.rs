//! Metadata pages: which are in RAM, and how those that are not get there.

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

/// Invariant: a page in RAM is of its slab's present owner, and shows what the journal has made
/// durable, no more. A dirty page is written again by a checkpoint; a clean one lies in place with the
/// version that `versions` names. A page that a task has pinned stays.
pub(super) struct Pages {
    disk: DiskId,
    pub(super) cache: PageCache,
    pub(super) versions: PageVersions,
    /// Pages read because they were not in RAM.
    reads: u64,
}

/// Outcome of the read of a page.
pub(super) enum Arrival {
    /// The page is being read once more.
    Again,
    /// The page is in RAM, unless its slab changed hands meanwhile; these tasks waited for it.
    Here(Vec<SlotId>),
    /// The disk as a whole fails: the tasks that waited fail too.
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

    /// Pins the pages of these words of the place's slab, and reads those that are not here. Answers the pinned ones and how many are
    /// missing, each of which answers the task when it comes ([`Self::arrived`]).
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

    /// Takes a page that was read because it was not here.
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
            // Unreadable is damaged: the blocks read as corrupt, and the page heals when it is written again.
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

    /// `None` if the slab has changed hands since the page was asked for.
    pub(super) fn parse(&self, read: PageRead, slabs: &SlabTable, bytes: &[u8]) -> Option<FoundPage> {
        let (slab, page) = (read.slab(), read.page());
        let entry = slabs.entry(slab).filter(|entry| entry.generation == read.generation)?;
        Some(parse_page(self.identity(slab, entry, page), self.versions.get(slab, page), bytes))
    }
}
