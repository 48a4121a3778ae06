//! Pages of the chunks that carry metadata: used ones and free ones.
//!
//! A page is written once, with class `Fresh`, to unwritten blocks. The place of a page that the tree
//! has durably left is therefore discarded before it can be taken again. Whether a place is written is
//! not stored: after an opening, and in a new chunk, all places count as written.

use std::collections::BTreeMap;

use ::types::Lba;

use super::bitmap::Bitmap;
use super::layout::PAGE_BLOCKS;

/// Pages that one request discards at most. Less than a chunk: a chunk that is discarded as a whole loses its space.
const DISCARD_PAGES_MAX: u32 = 256;

/// The pages of one chunk.
#[derive(Debug, Clone)]
struct ChunkPages {
    /// Whether the virtual disk has allocated the chunk's space.
    ready: bool,
    /// A tree or a space map has the page.
    used: Bitmap,
    /// The page cannot be taken: it is in use, or its place is written.
    taken: Bitmap,
    /// The place need not be discarded: it is in use, holds nothing, or is being discarded.
    needs_no_discard: Bitmap,
}

impl ChunkPages {
    /// Whether a place of a chunk without used pages is being discarded: it cannot be taken though it needs
    /// no other discard.
    fn is_being_discarded(&self) -> bool {
        let empty_places = self.taken.len() - self.taken.ones();
        self.needs_no_discard.ones() > empty_places
    }
}

/// All pages of a volume.
#[derive(Debug, Default)]
pub struct Pages {
    chunk_blocks: u32,
    chunks: BTreeMap<u32, ChunkPages>,
    used: u64,
    taken: u64,
    /// There may be a chunk without a page in use.
    emptied: bool,
}

impl Pages {
    pub fn new(chunk_blocks: u32) -> Self {
        Self { chunk_blocks, ..Self::default() }
    }

    /// Pages of a chunk.
    pub fn per_chunk(&self) -> u32 {
        self.chunk_blocks / PAGE_BLOCKS
    }

    /// Adds a chunk with the pages in use. None of the others can be taken before its place is discarded.
    pub fn insert(&mut self, chunk: u32, used: Option<Bitmap>) {
        if self.chunks.contains_key(&chunk) && used.is_none() {
            return;
        }
        self.remove(chunk);
        let count = self.per_chunk();
        let used = used.unwrap_or_else(|| Bitmap::new(count));
        let mut taken = Bitmap::new(count);
        taken.set_range(0, count, true);
        self.used += u64::from(used.ones());
        self.taken += u64::from(count);
        self.chunks.insert(chunk, ChunkPages { ready: false, needs_no_discard: used.clone(), used, taken });
    }

    pub fn remove(&mut self, chunk: u32) {
        if let Some(pages) = self.chunks.remove(&chunk) {
            self.used -= u64::from(pages.used.ones());
            self.taken -= u64::from(pages.taken.ones());
        }
    }

    /// Notes whether the virtual disk has allocated the chunk's space.
    pub fn set_ready(&mut self, chunk: u32, ready: bool) {
        if let Some(pages) = self.chunks.get_mut(&chunk) {
            pages.ready = ready;
            self.emptied |= ready;
        }
    }

    /// The last chunk of which no page is in use, and none is being discarded.
    pub fn empty_chunk(&mut self) -> Option<u32> {
        if !self.emptied {
            return None;
        }
        let unused = self.chunks.iter().rev().filter(|(_, pages)| pages.ready && pages.used.ones() == 0);
        let mut any = false;
        let found = unused.inspect(|_| any = true).find(|(_, pages)| !pages.is_being_discarded());
        let found = found.map(|(&chunk, _)| chunk);
        self.emptied = any;
        found
    }

    /// All of a chunk that no tree uses was discarded; its first page, if `probed`, was written to since.
    pub fn emptied(&mut self, chunk: u32, probed: bool) {
        let count = self.per_chunk();
        if let Some(pages) = self.chunks.get_mut(&chunk)
            && pages.used.ones() == 0
        {
            let first = u32::from(probed);
            self.taken -= u64::from(pages.taken.set_range(first, count, false));
            pages.needs_no_discard.set_range(first, count, true);
        }
    }

    /// Takes a run of free pages.
    pub fn take(&mut self, count: u32) -> Option<Lba> {
        for (&chunk, pages) in self.chunks.iter_mut().filter(|(_, pages)| pages.ready) {
            if let Some((page, _)) = pages.taken.find_clear(count).filter(|(_, run)| *run >= count) {
                self.taken += u64::from(pages.taken.set_range(page, count, true));
                self.used += u64::from(pages.used.set_range(page, count, true));
                return Some(self.lba(chunk, page));
            }
        }
        None
    }

    /// Nothing stored points to these pages any more.
    pub fn free(&mut self, first: Lba, count: u32) {
        let (chunk, page) = self.place(first);
        if let Some(pages) = self.chunks.get_mut(&chunk) {
            self.used -= u64::from(pages.used.set_range(page, count, false));
            pages.needs_no_discard.set_range(page, count, false);
            self.emptied = true;
        }
    }

    /// Returns a run to discard: first page and number. [`Pages::discarded`] takes the outcome.
    pub fn next_discard(&mut self) -> Option<(Lba, u32)> {
        let most = DISCARD_PAGES_MAX.min(self.per_chunk() / 2);
        for (&chunk, pages) in self.chunks.iter_mut().filter(|(_, pages)| pages.ready) {
            if let Some((page, count)) = pages.needs_no_discard.find_clear(most) {
                pages.needs_no_discard.set_range(page, count, true);
                return Some((self.lba(chunk, page), count));
            }
        }
        None
    }

    /// A run was discarded durably, or was not.
    pub fn discarded(&mut self, first: Lba, count: u32, done: bool) {
        let (chunk, page) = self.place(first);
        let Some(pages) = self.chunks.get_mut(&chunk) else { return };
        if done {
            self.taken -= u64::from(pages.taken.set_range(page, count, false));
        } else {
            pages.needs_no_discard.set_range(page, count, false);
        }
    }

    fn lba(&self, chunk: u32, page: u32) -> Lba {
        Lba(u64::from(chunk) * u64::from(self.chunk_blocks) + u64::from(page * PAGE_BLOCKS))
    }

    fn place(&self, lba: Lba) -> (u32, u32) {
        let chunk_blocks = u64::from(self.chunk_blocks);
        ((lba.0 / chunk_blocks) as u32, (lba.0 % chunk_blocks) as u32 / PAGE_BLOCKS)
    }

    /// Chunks that carry pages.
    pub fn chunk_count(&self) -> u64 {
        self.chunks.len() as u64
    }

    pub fn total_count(&self) -> u64 {
        self.chunk_count() * u64::from(self.per_chunk())
    }

    pub fn used_count(&self) -> u64 {
        self.used
    }

    /// Pages that no tree uses.
    pub fn free_count(&self) -> u64 {
        self.total_count() - self.used
    }

    /// Number of pages that can be taken immediately.
    pub fn ready_count(&self) -> u64 {
        self.total_count() - self.taken
    }

    /// Whether a tree uses pages of a chunk; `None` if it carries none.
    pub fn is_in_use(&self, chunk: u32) -> Option<bool> {
        self.chunks.get(&chunk).map(|pages| pages.used.ones() > 0)
    }

    /// The pages in use of each chunk, without those in `old`.
    pub fn used_without(&self, old: &[(Lba, u32)]) -> BTreeMap<u32, Bitmap> {
        let mut used: BTreeMap<u32, Bitmap> =
            self.chunks.iter().map(|(&chunk, pages)| (chunk, pages.used.clone())).collect();
        for &(lba, count) in old {
            let (chunk, page) = self.place(lba);
            if let Some(used) = used.get_mut(&chunk) {
                used.set_range(page, count, false);
            }
        }
        used
    }
}
