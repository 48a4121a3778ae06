//! The background checkpoint: what changed since the last one is merged into a new tree, and the journal begins anew.
//!
//! Seal: the open batch is closed, the changes so far and the bitmaps of groups that changed become the sealed layer. Merge:
//! new pages are written beside the old tree. Publish: the space map, then the superblock, each durable before the next.
//! Only then are the old pages free and their places discarded, the sealed layer gone, the journal's tail moved. A crash at any point before the
//! superblock finds the old tree and the whole journal.

use std::time::Duration;

use ::types::{BLOCK_BYTES, Lba, Monotonic};
use space::api::{SpaceRequest, WriteClass};
use sys::{BufMut, Payload};

use super::FileSystem;
use super::allocator::ChunkRecord;
use super::io::{Answer, Purpose};
use super::layout::{
    PAGE_BLOCKS, PAGE_BYTES, POINTER_BYTES, Pointer, Position, Root, SPACE_MAP_PIECE_BYTES, SpaceMapPlace,
    Superblock,
};
use super::meta::key;
use super::meta::merge::{Merge, NewPages, Workshop};
use super::types::FsError;
use crate::planted::Planted;

/// A checkpoint begins when so much of the journal is in use, in 1/256.
const JOURNAL_FILL: u64 = 64;

/// ... or so many keys have changed.
const CHANGES_MAX: usize = 150_000;

/// Merge steps in one poll: bounds how long others wait.
pub const STEPS_AT_ONCE: usize = 8;

/// Pages in one write.
const PAGES_AT_ONCE: usize = 64;

/// Writes of pages under way.
const WRITES_MAX: usize = 8;

/// Discards of pages under way at once.
const DISCARDS_MAX: usize = 8;

/// So many pages are ready to be taken beside a quarter of those in use: a checkpoint of scattered changes seldom waits.
const READY_PAGES: u64 = 128;

/// Places of pages that are being emptied.
#[derive(Debug, Default)]
pub struct PageDiscards {
    under_way: usize,
    /// Pages that the checkpoint waits for.
    wanted: u64,
}

/// A checkpoint that cannot read a page for want of copies or room tries again after this time.
const PAUSE: Duration = Duration::from_secs(1);

/// A checkpoint that needs a damaged page tries again after this time: an intact copy may have come back with its disk.
const DAMAGE_PAUSE: Duration = Duration::from_secs(10);

/// A checkpoint that cannot read a page.
#[derive(Debug)]
pub struct Pause {
    error: FsError,
    since: Monotonic,
    pub until: Monotonic,
}

/// Pages that are left when all else is counted.
const SPARE_PAGES: u64 = 32;

/// Dirty blocks that a page has room for the extents of, at least.
const EXTENTS_OF_PAGE: u64 = 128;

/// Where a checkpoint stands.
#[derive(Debug)]
enum Phase {
    Merging(Box<Merge>),
    /// All pages are made; their last writes are under way.
    PagesWritten(Option<Root>),
    SpaceMapWritten(Superblock),
    SuperblockWritten(Superblock),
}

/// A checkpoint under way.
#[derive(Debug)]
pub struct Checkpoint {
    phase: Phase,
    /// Where replay will begin.
    boundary: Position,
    chunks: Vec<ChunkRecord>,
    /// Pages not handed to a write yet.
    pages: NewPages,
    writes: usize,
    /// First page and number of pages that the old tree and space map leave.
    old: Vec<(Lba, u32)>,
    /// The pages of the old space map are among them.
    map_left: bool,
    /// Where the new space map lies.
    map_pages: Vec<Lba>,
}

impl FileSystem {
    /// Whether the merge wants to go on at once.
    pub(super) fn checkpoint_is_busy(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| {
            matches!(checkpoint.phase, Phase::Merging(_))
                && checkpoint.writes < WRITES_MAX
                && !self.checkpoint_waits
        })
    }

    /// Why checkpoints do not go on, and since when.
    pub(super) fn checkpoint_trouble(&self) -> Option<(&FsError, Monotonic)> {
        self.checkpoint_pause.as_ref().map(|pause| (&pause.error, pause.since))
    }

    /// Why nothing is changed any more, and since when: the checkpoint needs a page that is damaged on all copies. It is tried again,
    /// and the volume goes on by itself when the page can be read.
    pub fn read_only(&self) -> Option<(FsError, Monotonic)> {
        match self.checkpoint_trouble()? {
            (&FsError::Corrupt { what, lba }, since) => Some((FsError::ReadOnly { what, lba }, since)),
            _ => None,
        }
    }

    /// Most pages that a checkpoint writes that begins when the journal is as full as it gets: all of the tree, most of them nine
    /// tenths full, what the journal holds in pages that are half full, what is dirty and not in the journal yet, the space map.
    fn page_reserve(&self) -> u64 {
        let tree = self.published_pages + self.published_pages / 8;
        let journal = self.superblock.map_or(0, |superblock| u64::from(superblock.journal_blocks)) * 3 / 8;
        let dirty = self.data.dirty_bytes() / BLOCK_BYTES as u64 / EXTENTS_OF_PAGE;
        tree + journal
            + dirty
            + self.allocator.space_map_bytes_max().div_ceil(SPACE_MAP_PIECE_BYTES as u64)
            + SPARE_PAGES
    }

    /// Whether any checkpoint finds the pages that it needs.
    pub(super) fn has_page_reserve(&self) -> bool {
        self.pages_beside_tree() >= self.page_reserve()
    }

    /// Whether a further chunk for metadata is wanted soon.
    pub(super) fn page_reserve_is_low(&self) -> bool {
        let margin = u64::from(self.allocator.chunk_blocks() / PAGE_BLOCKS) / 8;
        self.pages_beside_tree() < self.page_reserve() + margin
    }

    /// Pages that the superblock points to do not leave before the next one is durable; all others are a checkpoint's to write.
    fn pages_beside_tree(&self) -> u64 {
        self.allocator.pages.total_count().saturating_sub(self.published_pages)
    }

    pub(super) fn pump_checkpoint(&mut self) {
        let paused = self.checkpoint_pause.as_ref().is_some_and(|pause| self.now < pause.until);
        if paused {
            return;
        }
        let result = match self.checkpoint.take() {
            None => self.begin_checkpoint().inspect(|()| self.end_pause()),
            Some(mut checkpoint) => {
                let result = self.carry_on(&mut checkpoint);
                if !matches!(result, Ok(true)) {
                    self.checkpoint = Some(checkpoint);
                }
                result.map(drop)
            }
        };
        match result {
            Ok(()) => self.checkpoint_waits = false,
            Err(FsError::Miss) => self.checkpoint_waits = true,
            Err(error @ (FsError::Unavailable | FsError::NoSpace))
                if !Planted::OutageFailsVolume.is_planted() =>
            {
                self.pause_checkpoint(error, PAUSE);
            }
            // All that is not below the page can still be read, and what the journal holds stays there.
            Err(error @ FsError::Corrupt { .. }) => {
                self.pause_checkpoint(error, DAMAGE_PAUSE);
                self.wake();
            }
            Err(error) => self.fail(error),
        }
    }

    fn pause_checkpoint(&mut self, error: FsError, length: Duration) {
        let since = self.checkpoint_pause.take().map_or(self.now, |pause| pause.since);
        self.checkpoint_pause = Some(Pause { error, since, until: self.now.after(length) });
        self.checkpoint_waits = true;
    }

    /// What could not be read can be.
    fn end_pause(&mut self) {
        if self.checkpoint_pause.take().is_some() {
            self.wake();
        }
    }

    fn begin_checkpoint(&mut self) -> Result<(), FsError> {
        let wanted = self.log.fill() >= JOURNAL_FILL || self.meta.changed() >= CHANGES_MAX;
        if !wanted || self.meta.changed() == 0 || self.log.is_at_limit() {
            return Ok(());
        }
        while let Some(group) = self.allocator.dirty_unloaded() {
            self.load_group(group)?;
        }
        let Some(superblock) = self.superblock else { return Ok(()) };
        if let Some(append) = self.log.cut() {
            self.append(append);
        }
        if self.log.is_pending() {
            self.log.absorb();
        }
        self.gathering_since = None;
        let bitmaps = self.allocator.take_dirty().into_iter();
        self.meta.seal(bitmaps.map(|(group, bitmap)| (key::group(group), bitmap.map(Into::into))).collect());
        let merge = Merge::new(superblock.volume, superblock.sequence + 1, self.meta.tree.root());
        self.checkpoint = Some(Checkpoint {
            phase: Phase::Merging(Box::new(merge)),
            boundary: self.log.head(),
            chunks: self.allocator.chunk_records(),
            pages: Vec::new(),
            writes: 0,
            old: Vec::new(),
            map_left: false,
            map_pages: Vec::new(),
        });
        self.pump_again = true;
        Ok(())
    }

    /// Whether it is done.
    fn carry_on(&mut self, checkpoint: &mut Checkpoint) -> Result<bool, FsError> {
        match &mut checkpoint.phase {
            Phase::Merging(merge) => {
                let mut root = None;
                while root.is_none() && self.checkpoint_steps > 0 && checkpoint.writes < WRITES_MAX {
                    self.checkpoint_steps -= 1;
                    let needed = merge.pages_needed();
                    if self.allocator.pages.ready_count() < needed {
                        self.want_pages(needed);
                        return Err(FsError::Miss);
                    }
                    let pages = &mut self.allocator.pages;
                    let (changes, tree) = self.meta.sealed();
                    let step = merge.step(&mut Workshop {
                        tree,
                        changes,
                        take_page: &mut || pages.take(1),
                        pages: &mut checkpoint.pages,
                    });
                    match step {
                        Ok(done) => {
                            root = done;
                            self.end_pause();
                        }
                        Err(error) => {
                            self.write_pages(&mut checkpoint.pages, &mut checkpoint.writes, true);
                            return Err(error);
                        }
                    }
                    self.write_pages(&mut checkpoint.pages, &mut checkpoint.writes, root.is_some());
                }
                if let Some(root) = root {
                    checkpoint.old =
                        std::mem::take(&mut merge.replaced).into_iter().map(|lba| (lba, 1)).collect();
                    checkpoint.phase = Phase::PagesWritten(root);
                    self.pump_again = true;
                }
                Ok(false)
            }
            Phase::PagesWritten(root) => {
                let root = *root;
                if checkpoint.writes == 0 || Planted::SuperblockBeforePages.is_planted() {
                    let superblock = self.write_space_map(checkpoint, root)?;
                    checkpoint.phase = Phase::SpaceMapWritten(superblock);
                }
                Ok(false)
            }
            Phase::SpaceMapWritten(superblock) => {
                let superblock = *superblock;
                if checkpoint.writes == 0 || Planted::SuperblockBeforePages.is_planted() {
                    let data = superblock.encode().into();
                    let lba = superblock.lba();
                    self.requests.write_needed(Purpose::Checkpoint, lba, WriteClass::Append, data);
                    checkpoint.writes += 1;
                    if Planted::DiscardBeforeSuperblock.is_planted() {
                        for &(lba, count) in &checkpoint.old {
                            let blocks = u64::from(count * PAGE_BLOCKS);
                            self.requests.submit(Purpose::Nothing, SpaceRequest::Discard { lba, blocks });
                        }
                    }
                    if Planted::JournalTailEarly.is_planted() {
                        self.log.advance_tail(checkpoint.boundary);
                    }
                    checkpoint.phase = Phase::SuperblockWritten(superblock);
                }
                Ok(false)
            }
            Phase::SuperblockWritten(superblock) => {
                let superblock = *superblock;
                if checkpoint.writes == 0 {
                    self.end_checkpoint(checkpoint, superblock);
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }

    /// Hands pages to writes: neighbours together, the last ones only if `all`.
    fn write_pages(&mut self, pages: &mut NewPages, writes: &mut usize, all: bool) {
        if pages.is_empty() || (!all && pages.len() < PAGES_AT_ONCE) {
            return;
        }
        let mut pages = std::mem::take(pages);
        pages.sort_unstable_by_key(|(lba, _)| *lba);
        let mut run: Option<(Lba, u64, Payload)> = None;
        for (lba, bytes) in pages {
            match &mut run {
                Some((_, end, data)) if *end == lba.0 && data.len() < PAGES_AT_ONCE * PAGE_BYTES => {
                    data.push(bytes);
                    *end += u64::from(PAGE_BLOCKS);
                }
                _ => {
                    self.write_run(run.take(), writes);
                    run = Some((lba, lba.0 + u64::from(PAGE_BLOCKS), bytes.into()));
                }
            }
        }
        self.write_run(run, writes);
    }

    fn write_run(&mut self, run: Option<(Lba, u64, Payload)>, writes: &mut usize) {
        if let Some((lba, _, data)) = run {
            *writes += 1;
            self.requests.write_needed(Purpose::Checkpoint, lba, WriteClass::Fresh, data);
        }
    }

    /// Writes the space map as it is when this checkpoint is published; the superblock that will point to it.
    fn write_space_map(
        &mut self,
        checkpoint: &mut Checkpoint,
        root: Option<Root>,
    ) -> Result<Superblock, FsError> {
        let Some(old) = self.superblock else { return Err(FsError::Stopped) };
        if !checkpoint.map_left {
            checkpoint.map_left = true;
            checkpoint.old.extend(self.space_map_pages.iter().map(|lba| (*lba, 1)));
        }
        // Which pages are in use does not change how long it is.
        let len_bytes = self.allocator.encode_space_map(&checkpoint.chunks, &checkpoint.old).len();
        let count = len_bytes.div_ceil(SPACE_MAP_PIECE_BYTES);
        if self.allocator.pages.ready_count() < count as u64 {
            self.want_pages(count as u64);
            return Err(FsError::Miss);
        }
        let places: Vec<Lba> = (0..count).filter_map(|_| self.allocator.pages.take(1)).collect();
        let map = self.allocator.encode_space_map(&checkpoint.chunks, &checkpoint.old);
        let (pieces, first) = encode_pieces(&map, &places, old.sequence + 1);
        checkpoint.pages.extend(pieces);
        checkpoint.map_pages = places;
        self.write_pages(&mut checkpoint.pages, &mut checkpoint.writes, true);
        self.page_discards.wanted = 0;
        Ok(Superblock {
            sequence: old.sequence + 1,
            tail: checkpoint.boundary,
            root,
            space_map: first.map(|first| SpaceMapPlace { first, len_bytes: map.len() as u32 }),
            order: self.log.order(),
            ..old
        })
    }

    fn end_checkpoint(&mut self, checkpoint: &mut Checkpoint, superblock: Superblock) {
        self.superblock = Some(superblock);
        self.meta.unseal();
        let pages: Vec<Lba> = checkpoint.old.iter().map(|(lba, _)| *lba).collect();
        let loading = self.meta.tree.replace_root(superblock.root, &pages);
        for (lba, count) in std::mem::take(&mut checkpoint.old) {
            // A page that somebody still reads is not given to another purpose before the next checkpoint.
            if loading.contains(&lba) {
                self.pages_in_doubt.push(lba);
            } else {
                self.allocator.pages.free(lba, count);
            }
        }
        for lba in std::mem::take(&mut self.pages_in_doubt) {
            if loading.contains(&lba) || self.meta.tree.is_loading(lba) {
                self.pages_in_doubt.push(lba);
            } else {
                self.allocator.pages.free(lba, 1);
            }
        }
        self.space_map_pages = std::mem::take(&mut checkpoint.map_pages);
        self.published_pages = self.allocator.pages.used_count();
        self.log.advance_tail(checkpoint.boundary);
        self.wake();
        self.pump_again = true;
    }

    /// The checkpoint waits for so many pages.
    fn want_pages(&mut self, count: u64) {
        if self.allocator.pages.free_count() < count {
            self.chunk_changes.need_meta = true;
        }
        self.page_discards.wanted = count;
        self.pump_again |= !self.checkpoint_waits;
    }

    /// Empties places of pages until enough can be taken.
    pub(super) fn pump_page_discards(&mut self) {
        let pages = &mut self.allocator.pages;
        let goal = (pages.used_count() / 4 + READY_PAGES).max(self.page_discards.wanted);
        while pages.ready_count() < goal
            && self.page_discards.under_way < DISCARDS_MAX
            && let Some((first, count)) = pages.next_discard()
        {
            self.page_discards.under_way += 1;
            let purpose = Purpose::DiscardPages { first, count };
            self.requests.discard_needed(purpose, first, u64::from(count * PAGE_BLOCKS));
        }
    }

    pub(super) fn handle_discard(&mut self, first: Lba, count: u32, answer: Answer) {
        self.page_discards.under_way -= 1;
        self.allocator.pages.discarded(first, count, answer.is_ok());
        if let Err(error) = answer {
            self.fail(error);
        }
        self.pump_again = true;
    }

    pub(super) fn handle_checkpoint(&mut self, answer: Answer) {
        match answer {
            Ok(_) => {
                if let Some(checkpoint) = &mut self.checkpoint {
                    checkpoint.writes -= 1;
                }
            }
            Err(error) => self.fail(error),
        }
    }
}

/// A space map as pages for these places, and what points to the first one. Each page points to the next.
fn encode_pieces(map: &[u8], places: &[Lba], sequence: u64) -> (NewPages, Option<Pointer>) {
    let (mut pages, mut next) = (NewPages::new(), None::<Pointer>);
    for (&lba, piece) in places.iter().zip(map.chunks(SPACE_MAP_PIECE_BYTES)).rev() {
        let mut page = BufMut::zeroed(PAGE_BYTES);
        page[..POINTER_BYTES].copy_from_slice(&next.map_or([0; POINTER_BYTES], |next| next.encode()));
        page[POINTER_BYTES..POINTER_BYTES + piece.len()].copy_from_slice(piece);
        next = Some(Pointer { lba, sequence, crc: codes::crc64(&page) });
        pages.push((lba, page.freeze()));
    }
    (pages, next)
}
