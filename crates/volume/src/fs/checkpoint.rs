//! The background checkpoint: what changed since the last one is merged into a new tree, and the journal begins anew.
//!
//! Seal: the open batch is closed, the changes so far and the bitmaps of groups that changed become the sealed layer. Merge:
//! new pages are written beside the old tree. Publish: the space map, then the superblock, each durable before the next.
//! Only then are the old pages free, the sealed layer gone, the journal's tail moved. A crash at any point before the
//! superblock finds the old tree and the whole journal.

use ::types::{BLOCK_BYTES, Lba};
use space::api::{SpaceRequest, WriteClass};
use sys::{Buf, BufMut, Payload};

use super::FileSystem;
use super::allocator::ChunkRecord;
use super::io::{Answer, Purpose};
use super::layout::{PAGE_BLOCKS, PAGE_BYTES, Root, SpaceMapPlace, Superblock};
use super::meta::key;
use super::meta::log::Position;
use super::meta::merge::{Merge, NewPages, Workshop};
use super::opening::write_superblock;
use super::types::FsError;

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

    pub(super) fn pump_checkpoint(&mut self) {
        let result = match self.checkpoint.take() {
            None => self.begin_checkpoint(),
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
            Err(error) => self.fail(error),
        }
    }

    fn begin_checkpoint(&mut self) -> Result<(), FsError> {
        let wanted = self.log.fill() >= JOURNAL_FILL || self.meta.changed() >= CHANGES_MAX;
        if !wanted || self.meta.changed() == 0 {
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
                    if self.allocator.free_page_count() < merge.pages_needed() {
                        self.chunk_changes.need_meta = true;
                        self.pump_again |= !self.checkpoint_waits;
                        return Err(FsError::Miss);
                    }
                    let allocator = &mut self.allocator;
                    let (changes, tree) = self.meta.sealed();
                    let step = merge.step(&mut Workshop {
                        tree,
                        changes,
                        take_page: &mut || allocator.take_page(),
                        pages: &mut checkpoint.pages,
                    });
                    match step {
                        Ok(done) => root = done,
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
                if checkpoint.writes == 0 {
                    let superblock = self.write_space_map(checkpoint, root)?;
                    checkpoint.phase = Phase::SpaceMapWritten(superblock);
                }
                Ok(false)
            }
            Phase::SpaceMapWritten(superblock) => {
                let superblock = *superblock;
                if checkpoint.writes == 0 {
                    self.requests.submit(Purpose::Checkpoint, write_superblock(&superblock));
                    checkpoint.writes = 1;
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
            self.requests
                .submit(Purpose::Checkpoint, SpaceRequest::Write { lba, class: WriteClass::Append, data });
        }
    }

    /// Writes the space map as it is when this checkpoint is published; the superblock that will point to it.
    fn write_space_map(
        &mut self,
        checkpoint: &mut Checkpoint,
        root: Option<Root>,
    ) -> Result<Superblock, FsError> {
        let Some(old) = self.superblock else { return Err(FsError::Stopped) };
        if let Some(map) = old.space_map
            && !checkpoint.old.contains(&(map.lba, pages_of(map.len_bytes as usize)))
        {
            checkpoint.old.push((map.lba, pages_of(map.len_bytes as usize)));
        }
        let bytes_max = self.allocator.encode_space_map(&checkpoint.chunks, &checkpoint.old).len();
        let count = pages_of(bytes_max);
        let Some(lba) = self.allocator.take_pages(count) else {
            self.chunk_changes.need_meta = true;
            return Err(FsError::Miss);
        };
        let map = self.allocator.encode_space_map(&checkpoint.chunks, &checkpoint.old);
        let mut blocks = BufMut::zeroed(map.len().next_multiple_of(BLOCK_BYTES));
        blocks[..map.len()].copy_from_slice(&map);
        let data: Buf = blocks.freeze();
        let write = SpaceRequest::Write { lba, class: WriteClass::Append, data: data.into() };
        self.requests.submit(Purpose::Checkpoint, write);
        checkpoint.writes = 1;
        let len_bytes = map.len() as u32;
        Ok(Superblock {
            sequence: old.sequence + 1,
            tail: checkpoint.boundary,
            root,
            space_map: Some(SpaceMapPlace { lba, len_bytes, crc: codes::crc64(&map) }),
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
                self.allocator.free_pages(lba, count);
            }
        }
        for lba in std::mem::take(&mut self.pages_in_doubt) {
            if loading.contains(&lba) || self.meta.tree.is_loading(lba) {
                self.pages_in_doubt.push(lba);
            } else {
                self.allocator.free_pages(lba, 1);
            }
        }
        self.log.advance_tail(checkpoint.boundary);
        self.wake();
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

fn pages_of(bytes: usize) -> u32 {
    bytes.div_ceil(PAGE_BYTES) as u32
}
