//! Ownership of blocks: chunks by use, groups of blocks by bitmap, tree pages.
//!
//! A block for an extent is *reserved* in memory first, written, and *committed* with the transaction
//! that publishes it. An extent's former block is *freed* with a transaction. It can be reserved again
//! once that transaction is durable, no read of the block is under way, and the block is unwritten
//! (skipped if space is short, [`super::background_trim`]). Only committed blocks are stored: a crash
//! forgets reservations.
//!
//! Bitmaps of groups are read when they are first needed. Counts of free blocks are known for all groups from the start.
//!
//! **Invariant.** A block is committed once before it is freed, and freed once before it is committed
//! again; counts and bitmaps agree. At opening, only a damaged journal or space map can break this, and
//! the volume is refused. Later, a contradiction would give one block to two files: the allocator keeps
//! the first one ([`Allocator::damage`]), and the volume fails with it before storing any of it. A
//! group's counts are those of an empty group unless its chunk carries data.

use ::types::{Lba, Monotonic};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};

use super::background_trim::BackgroundTrim;
use super::bitmap::Bitmap;
use super::chunk_state::Chunk;
pub use super::chunk_state::ChunkState;
use super::groups::{Contradiction, Group};
use super::layout::PAGE_BLOCKS;
use super::meta::{BlockRun, ChunkUse};
use super::pages::Pages;
use super::reader::Reader;
use super::types::FsError;

/// Blocks of a group at most: its bitmap is one metadata value.
const GROUP_BLOCKS_MAX: u32 = 16384;

/// Groups of the largest volume: 64 TiB if chunks have 64 MiB or more. They are in memory (some 60 MB then), and are made while clients wait.
const GROUPS_MAX: u32 = 1 << 20;

const SPACE_MAP_VERSION: u32 = 2;

/// Blocks of a run that is as good as any longer one: 1 MiB.
const RUN_BLOCKS_GOOD: u32 = 256;

/// Chunks of the largest volume on a virtual disk with such chunks.
pub const fn chunks_max(chunk_blocks: u32) -> u32 {
    GROUPS_MAX / chunk_blocks.div_ceil(GROUP_BLOCKS_MAX).saturating_add((chunk_blocks == 0) as u32)
}

/// Reason why no blocks can be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// This group's bitmap has to be read first.
    NeedGroup(u32),
    /// All chunks in use are full.
    NeedChunk,
}

#[derive(Debug)]
struct PendingFree {
    ticket: u64,
    reads: u64,
    runs: Vec<BlockRun>,
}

/// A chunk as a checkpoint finds it when it begins.
#[derive(Debug, Clone)]
pub struct ChunkRecord {
    chunk_use: ChunkUse,
    /// Free blocks of each group.
    free: SmallVec<[u32; 4]>,
}

/// Blocks and pages of one virtual disk.
#[derive(Debug)]
pub struct Allocator {
    chunk_blocks: u32,
    group_blocks: u32,
    chunks: Vec<Chunk>,
    groups: Vec<Group>,
    /// Groups with changes since the last checkpoint whose bitmaps are not in memory.
    dirty_unloaded: BTreeSet<u32>,
    /// Group with which the next search for free blocks begins.
    cursor: u32,
    pending: VecDeque<PendingFree>,
    /// Freed blocks behind that.
    pub preparing: BackgroundTrim,
    /// Pages of the chunks of metadata.
    pub pages: Pages,
    /// Number of the next read of blocks, and those under way.
    next_read: u64,
    reading: BTreeSet<u64>,
    /// The first contradiction.
    damage: Option<FsError>,
    /// Blocks that can be reserved in chunks ready for data.
    ready_free: u64,
    /// Unused chunks, and chunks not proven.
    free_chunk_count: u64,
    unproven_count: u64,
    changes: u64,
    /// A group of a chunk that carries data may have become empty since [`Allocator::take_emptied`].
    emptied: bool,
}

impl Allocator {
    /// Of an empty volume. `None` if chunks of this size cannot be divided into groups.
    pub fn new(blocks: u64, chunk_blocks: u32) -> Option<Self> {
        let group_blocks = chunk_blocks.min(GROUP_BLOCKS_MAX);
        if chunk_blocks == 0 || !chunk_blocks.is_multiple_of(group_blocks) || !chunk_blocks.is_multiple_of(64)
        {
            return None;
        }
        let chunk_count = u32::try_from(blocks / u64::from(chunk_blocks)).ok()?;
        let group_count = chunk_count.checked_mul(chunk_blocks / group_blocks)?;
        let free_chunk = Chunk { chunk_use: ChunkUse::Free, state: ChunkState::Ready };
        let mut allocator = Self {
            chunk_blocks,
            group_blocks,
            chunks: vec![free_chunk; chunk_count as usize],
            groups: Vec::new(),
            dirty_unloaded: BTreeSet::new(),
            cursor: 0,
            pending: VecDeque::new(),
            preparing: BackgroundTrim::default(),
            pages: Pages::new(chunk_blocks),
            ready_free: 0,
            free_chunk_count: u64::from(chunk_count.saturating_sub(1)),
            unproven_count: 0,
            changes: 0,
            next_read: 1,
            reading: BTreeSet::new(),
            damage: None,
            emptied: true,
        };
        allocator.groups.resize_with(group_count as usize, || Group::new(group_blocks));
        allocator.chunks.first_mut()?.chunk_use = ChunkUse::Journal;
        Some(allocator)
    }

    /// Adds the chunks by which the virtual disk has grown, as unused ones. `None`, with nothing changed,
    /// if there are more than can be numbered. Chunks beyond the end of a smaller virtual disk stay known.
    pub fn grow(&mut self, blocks: u64) -> Option<()> {
        let chunk_count = u32::try_from(blocks / u64::from(self.chunk_blocks)).ok()?;
        let group_count = chunk_count.checked_mul(self.groups_per_chunk())?;
        let more = chunk_count.saturating_sub(self.chunk_count());
        if more > 0 {
            let free_chunk = Chunk { chunk_use: ChunkUse::Free, state: ChunkState::Ready };
            self.chunks.resize(chunk_count as usize, free_chunk);
            let group_blocks = self.group_blocks;
            self.groups.resize_with(group_count as usize, || Group::new(group_blocks));
            self.free_chunk_count += u64::from(more);
        }
        Some(())
    }

    /// Makes an allocator without any blocks.
    pub fn empty() -> Self {
        Self {
            chunk_blocks: 1,
            group_blocks: 1,
            chunks: Vec::new(),
            groups: Vec::new(),
            dirty_unloaded: BTreeSet::new(),
            cursor: 0,
            pending: VecDeque::new(),
            preparing: BackgroundTrim::default(),
            pages: Pages::default(),
            ready_free: 0,
            free_chunk_count: 0,
            unproven_count: 0,
            changes: 0,
            next_read: 1,
            reading: BTreeSet::new(),
            damage: None,
            emptied: false,
        }
    }

    /// How often blocks changed hands.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The committed bitmap of a group, if it is in memory.
    pub fn committed(&self, group: u32) -> Option<&Bitmap> {
        self.groups.get(group as usize)?.committed()
    }

    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_blocks
    }

    pub fn group_blocks(&self) -> u32 {
        self.group_blocks
    }

    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    pub fn group_count(&self) -> u32 {
        self.groups.len() as u32
    }

    fn groups_per_chunk(&self) -> u32 {
        self.chunk_blocks / self.group_blocks
    }

    fn group_of(&self, lba: Lba) -> u32 {
        (lba.0 / u64::from(self.group_blocks)) as u32
    }

    pub fn first_block(&self, chunk: u32) -> Lba {
        Lba(u64::from(chunk) * u64::from(self.chunk_blocks))
    }

    fn is_ready(&self, group: u32) -> bool {
        let chunk = self.chunks.get((group / self.groups_per_chunk()) as usize);
        chunk.is_some_and(|chunk| chunk.chunk_use == ChunkUse::Data && chunk.state == ChunkState::Ready)
    }

    /// Whether all blocks lie in chunks that carry data.
    pub fn is_data(&self, run: BlockRun) -> bool {
        let Some(last) = run.lba.0.checked_add(u64::from(run.blocks)).and_then(|end| end.checked_sub(1))
        else {
            return false;
        };
        let chunk_blocks = u64::from(self.chunk_blocks);
        (run.lba.0 / chunk_blocks..=last / chunk_blocks).all(|chunk| {
            self.chunks.get(chunk as usize).is_some_and(|chunk| chunk.chunk_use == ChunkUse::Data)
        })
    }

    /// Why nothing may be allocated, freed or stored any more: a block would have two owners.
    pub fn damage(&self) -> Option<&FsError> {
        self.damage.as_ref()
    }

    /// Keeps the reason why nothing may be stored any more.
    pub fn refuse(&mut self, what: &'static str) {
        self.contradiction(what, Lba(0));
    }

    fn contradiction(&mut self, what: &'static str, lba: Lba) {
        self.damage.get_or_insert(FsError::Corrupt { what, lba });
    }

    /// Numbers a read of blocks that begins: blocks freed from now on are not reused before it ends.
    pub fn begin_read(&mut self) -> u64 {
        let number = self.next_read;
        self.next_read += 1;
        self.reading.insert(number);
        number
    }

    /// Notes that a read has ended, well or not.
    pub fn end_read(&mut self, number: u64) {
        self.reading.remove(&number);
    }

    /// Keeps the reason if a change of a group is refused.
    fn check(&mut self, result: Result<(), Contradiction>, lba: Lba) {
        if let Err(what) = result {
            self.contradiction(what, lba);
        }
    }

    /// Takes a run out of the free blocks, part by part.
    fn take_free(&mut self, run: BlockRun) {
        for (group, from, count) in self.parts_of(run) {
            let taken = self.groups[group as usize].take(from, count);
            if taken.is_ok() && self.is_ready(group) {
                self.ready_free -= u64::from(count);
            }
            self.check(taken, run.lba);
        }
    }

    /// Whether a run lies within the volume.
    fn contains(&self, run: BlockRun) -> bool {
        let end = run.lba.0.checked_add(u64::from(run.blocks));
        end.is_some_and(|end| end <= u64::from(self.group_count()) * u64::from(self.group_blocks))
    }

    /// Calls with each group that a run touches and the part of it there, as bits of the group.
    fn for_groups(&self, run: BlockRun, mut each: impl FnMut(u32, u32, u32)) {
        let (mut at, mut left) = (run.lba.0, run.blocks);
        while left > 0 {
            let group = self.group_of(Lba(at));
            let within = (at % u64::from(self.group_blocks)) as u32;
            let take = left.min(self.group_blocks - within);
            each(group, within, take);
            at += u64::from(take);
            left -= take;
        }
    }

    /// Whether the group's bitmap is in memory.
    pub fn is_loaded(&self, group: u32) -> bool {
        self.groups.get(group as usize).is_none_or(Group::is_loaded)
    }

    /// Gives a group its stored bitmap (`None`: no block of it was ever committed).
    ///
    /// # Errors
    /// `Corrupt` if commits since then or the count of free blocks contradict it: the group is not loaded.
    pub fn load(&mut self, group: u32, stored: Option<Bitmap>) -> Result<(), FsError> {
        if self.is_loaded(group) {
            return Ok(());
        }
        let mut held = Vec::new();
        let pending = self.pending.iter().flat_map(|pending| &pending.runs);
        for run in pending.chain(self.preparing.runs()) {
            self.for_groups(*run, |owner, from, count| {
                if owner == group {
                    held.push((from, count));
                }
            });
        }
        let counted = self.carries_data(group);
        let lba = Lba(u64::from(group) * u64::from(self.group_blocks));
        let entry = &mut self.groups[group as usize];
        entry.load(stored, &held, counted).map_err(|what| FsError::Corrupt { what, lba })?;
        self.dirty_unloaded.remove(&group);
        Ok(())
    }

    /// Takes up to `want` free blocks, at `goal` if that is free.
    pub fn reserve(&mut self, goal: Option<Lba>, want: u32) -> Result<BlockRun, Refusal> {
        if let Some(goal) = goal {
            let group = self.group_of(goal);
            if self.is_ready(group) && self.groups[group as usize].free > 0 {
                let used = self.groups[group as usize].used().ok_or(Refusal::NeedGroup(group))?;
                let from = (goal.0 % u64::from(self.group_blocks)) as u32;
                let run = used.clear_run(from, want);
                if run > 0 {
                    return Ok(self.take(group, from, run));
                }
            }
        }
        let want = want.min(self.group_blocks);
        let good = want.min(RUN_BLOCKS_GOOD);
        for least in [good, 1] {
            for step in 0..self.group_count() {
                let group = (self.cursor + step) % self.group_count();
                let entry = &self.groups[group as usize];
                if entry.free < least || entry.longest < least || !self.is_ready(group) {
                    continue;
                }
                let used = entry.used().ok_or(Refusal::NeedGroup(group))?;
                match used.find_clear(want) {
                    Some((from, run)) if run >= least => {
                        self.cursor = group;
                        return Ok(self.take(group, from, run));
                    }
                    found => self.groups[group as usize].longest = found.map_or(0, |(_, run)| run),
                }
            }
        }
        Err(Refusal::NeedChunk)
    }

    fn take(&mut self, group: u32, from: u32, count: u32) -> BlockRun {
        let first = u64::from(group) * u64::from(self.group_blocks);
        let run = BlockRun { lba: Lba(first + u64::from(from)), blocks: count };
        self.take_free(run);
        run
    }

    /// Returns reserved blocks that were not committed.
    pub fn unreserve(&mut self, run: BlockRun) {
        self.release(run);
    }

    fn release(&mut self, run: BlockRun) {
        for (group, from, count) in self.parts_of(run) {
            let released = self.groups[group as usize].release(from, count);
            self.emptied |= self.groups[group as usize].is_empty();
            if released.is_ok() && self.is_ready(group) {
                self.ready_free += u64::from(count);
            }
            self.check(released, run.lba);
        }
    }

    /// The part of a run in each group: group, first bit, number of bits.
    fn parts_of(&self, run: BlockRun) -> SmallVec<[(u32, u32, u32); 2]> {
        let mut parts = SmallVec::new();
        self.for_groups(run, |group, from, count| parts.push((group, from, count)));
        parts
    }

    fn commit_change(&mut self, run: BlockRun, allocated: bool) {
        self.changes += 1;
        if !self.contains(run) {
            return self.contradiction("blocks beyond the end of the volume", run.lba);
        }
        for (group, from, count) in self.parts_of(run) {
            let counted = self.carries_data(group);
            let entry = &mut self.groups[group as usize];
            let committed = entry.commit(from, count, allocated, counted);
            if !entry.is_loaded() {
                self.dirty_unloaded.insert(group);
            }
            self.check(committed, run.lba);
        }
    }

    /// Whether a group's chunk carries data: only then its blocks are counted.
    fn carries_data(&self, group: u32) -> bool {
        self.chunk_use(group / self.groups_per_chunk()) == Some(ChunkUse::Data)
    }

    /// Publishes a transaction's reserved blocks and frees others: [`Allocator::hold`] has to follow with
    /// its ticket.
    pub fn commit(&mut self, allocated: &[BlockRun], freed: &[BlockRun]) {
        for run in allocated {
            self.commit_change(*run, true);
        }
        for run in freed {
            self.commit_change(*run, false);
        }
    }

    /// Keeps blocks freed by a transaction with this ticket from reuse until it is durable and the reads
    /// under way have ended.
    pub fn hold(&mut self, freed: Vec<BlockRun>, ticket: u64) {
        if !freed.is_empty() {
            self.pending.push_back(PendingFree { ticket, reads: self.next_read, runs: freed });
        }
    }

    /// As [`Allocator::commit`], for a change found by replay of the journal.
    ///
    /// Counts nothing in a chunk that does not carry data, as the checkpoint left it: blocks freed there
    /// belong to the chunk's former use, which the checkpoint has accounted for.
    ///
    /// # Errors
    /// `Corrupt` if the change contradicts the present state.
    pub fn replay(&mut self, run: BlockRun, allocated: bool) -> Result<(), FsError> {
        self.commit_change(run, allocated);
        if self.damage.is_none() && self.carries_data(self.group_of(run.lba)) {
            match allocated {
                true => self.take_free(run),
                false => self.release(run),
            }
        }
        self.damage.clone().map_or(Ok(()), Err)
    }

    /// Releases freed blocks of durable transactions that no read under way may still touch, to be
    /// discarded or for immediate reuse. Returns whether any are reusable.
    pub fn release_pending(&mut self, durable: u64, prepares: bool, now: Monotonic) -> bool {
        let oldest_read = self.reading.first().copied().unwrap_or(u64::MAX);
        let mut any = false;
        while let Some(front) = self.pending.front()
            && front.ticket <= durable
            && front.reads <= oldest_read
            && let Some(released) = self.pending.pop_front()
        {
            for run in released.runs {
                if !(prepares && self.preparing.add(run, now)) {
                    self.release(run);
                    any = true;
                }
            }
        }
        any
    }

    /// Freed blocks to discard, in runs: [`Self::prepared`] has to follow for each. Others that waited can be reserved.
    pub fn begin_preparing(&mut self, now: Monotonic) -> Vec<BlockRun> {
        // Less than a chunk: one that is discarded as a whole loses its space.
        let (long, short) = self.preparing.take_due(now, self.chunk_blocks / 2);
        short.into_iter().for_each(|run| self.release(run));
        long
    }

    /// Freed blocks were discarded, or were not: they can be reserved.
    pub fn prepared(&mut self, run: BlockRun) {
        self.preparing.ended(run);
        self.release(run);
    }

    /// Makes freed blocks reusable before their discard. Returns whether there were any.
    pub fn hurry_preparing(&mut self) -> bool {
        let waiting = self.preparing.take_waiting();
        waiting.iter().for_each(|run| self.release(*run));
        !waiting.is_empty()
    }

    /// Whether freed blocks wait to become reusable, and the ticket that the first of them waits for.
    pub fn pending_ticket(&self) -> Option<u64> {
        self.pending.front().map(|pending| pending.ticket)
    }

    /// Blocks that can be reserved in chunks ready for data.
    pub fn ready_free(&self) -> u64 {
        self.ready_free
    }

    /// Returns the first unused chunk.
    pub fn free_chunk(&self) -> Option<u32> {
        let is_free = |chunk: &Chunk| chunk.chunk_use == ChunkUse::Free && chunk.state == ChunkState::Ready;
        self.chunks.iter().position(is_free).map(|at| at as u32)
    }

    /// Number of chunks that are unused, or about to be.
    pub fn free_chunks(&self) -> u64 {
        self.free_chunk_count
    }

    /// A chunk recorded as used that was not proven yet.
    pub fn unproven_chunk(&self) -> Option<(u32, ChunkUse)> {
        if self.unproven_count == 0 {
            return None;
        }
        let at = self.chunks.iter().position(|chunk| chunk.state == ChunkState::Unproven)?;
        Some((at as u32, self.chunks[at].chunk_use))
    }

    pub fn chunk_use(&self, chunk: u32) -> Option<ChunkUse> {
        self.chunks.get(chunk as usize).map(|chunk| chunk.chunk_use)
    }

    pub fn set_chunk(&mut self, index: u32, chunk_use: ChunkUse, state: ChunkState) {
        let groups = index * self.groups_per_chunk()..(index + 1) * self.groups_per_chunk();
        let free: u64 = groups
            .clone()
            .filter_map(|group| self.groups.get(group as usize))
            .map(|group| u64::from(group.free))
            .sum();
        if self.is_ready(groups.start) {
            self.ready_free -= free;
        }
        let Some(chunk) = self.chunks.get_mut(index as usize) else { return };
        let old = std::mem::replace(chunk, Chunk { chunk_use, state });
        self.free_chunk_count += u64::from(chunk.is_nobodys());
        self.free_chunk_count -= u64::from(old.is_nobodys());
        self.unproven_count += u64::from(state == ChunkState::Unproven);
        self.unproven_count -= u64::from(old.state == ChunkState::Unproven);
        if chunk_use == ChunkUse::Meta && state != ChunkState::Leaving {
            self.pages.insert(index, None);
            self.pages.set_ready(index, state == ChunkState::Ready);
        } else {
            self.pages.remove(index);
        }
        if self.is_ready(groups.start) {
            self.ready_free += free;
            self.emptied = true;
        }
    }

    /// Whether a chunk may have become empty since the last call.
    pub fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }

    /// Searches at most `chunks_max` chunks, downwards from `below`, for one of data whose blocks are all
    /// free. Also returns where to continue.
    pub fn empty_chunk(&self, below: u32, chunks_max: u32) -> (Option<u32>, u32) {
        let per_chunk = self.groups_per_chunk();
        let below = below.min(self.chunk_count());
        let end = below.saturating_sub(chunks_max);
        let found = (end..below).rev().find(|&index| {
            let groups = (index * per_chunk) as usize..((index + 1) * per_chunk) as usize;
            self.is_ready(index * per_chunk) && self.groups[groups].iter().all(Group::is_empty)
        });
        (found, found.unwrap_or(end))
    }

    /// The first groups with changes since the last checkpoint whose bitmaps are not in memory.
    pub fn dirty_unloaded(&self, groups_max: usize) -> SmallVec<[u32; 16]> {
        self.dirty_unloaded.iter().take(groups_max).copied().collect()
    }

    /// Bitmaps of the groups with changes since the last call, as they are committed; `None` for one all clear. All of
    /// them must be in memory.
    pub fn take_dirty(&mut self) -> Vec<(u32, Option<Vec<u8>>)> {
        let mut out = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate() {
            if let Some(committed) = group.take_dirty() {
                let empty = committed.ones() == 0;
                out.push((index as u32, (!empty).then(|| committed.to_bytes())));
            }
        }
        out
    }

    /// Returns each chunk's use and committed free blocks.
    pub fn chunk_records(&self) -> Vec<ChunkRecord> {
        let per_chunk = self.groups_per_chunk() as usize;
        let groups = self.groups.chunks(per_chunk);
        let free = groups.map(|groups| groups.iter().map(|group| group.committed_free).collect());
        self.chunks
            .iter()
            .zip(free)
            .map(|(chunk, free)| ChunkRecord { chunk_use: chunk.chunk_use, free })
            .collect()
    }

    /// No space map is longer.
    pub fn space_map_bytes_max(&self) -> u64 {
        let data = 1 + 4 * u64::from(self.groups_per_chunk());
        let meta = 1 + u64::from((self.chunk_blocks / PAGE_BLOCKS).div_ceil(64)) * 8;
        12 + u64::from(self.chunk_count()) * data + self.pages.chunk_count() * meta
    }

    /// Encodes the space map for a checkpoint: recorded data, present pages without those in `old`. Format
    /// version 2 (32 bits), blocks of a chunk (32), number of chunks (32); for each chunk its use (8 bits),
    /// then for data the free blocks of each group (32 bits each), for metadata the bitmap of its pages.
    pub fn encode_space_map(&self, records: &[ChunkRecord], old: &[(Lba, u32)]) -> Vec<u8> {
        let pages = self.pages.used_without(old);
        let mut out = Vec::new();
        out.extend_from_slice(&SPACE_MAP_VERSION.to_le_bytes());
        out.extend_from_slice(&self.chunk_blocks.to_le_bytes());
        let is_used = |record: &ChunkRecord| record.chunk_use != ChunkUse::Free;
        let recorded = records.iter().rposition(is_used).map_or(0, |last| last + 1);
        // The checkpoint's own pages may lie in a chunk by which the volume grew after the checkpoint began.
        let used = pages.last_key_value().map_or(0, |(last, _)| *last as usize + 1).max(recorded);
        out.extend_from_slice(&(used as u32).to_le_bytes());
        for index in 0..used {
            if let Some(pages) = pages.get(&(index as u32)) {
                out.push(ChunkUse::Meta as u8);
                out.extend_from_slice(&pages.to_bytes());
                continue;
            }
            match records.get(index) {
                Some(ChunkRecord { chunk_use: ChunkUse::Data, free }) => {
                    out.push(ChunkUse::Data as u8);
                    for free in free {
                        out.extend_from_slice(&free.to_le_bytes());
                    }
                }
                Some(ChunkRecord { chunk_use: ChunkUse::Journal, .. }) => out.push(ChunkUse::Journal as u8),
                // A chunk that no longer holds pages is stored as never used.
                Some(_) | None => out.push(ChunkUse::Free as u8),
            }
        }
        out
    }

    /// Takes the stored space map of a volume over. `None` if it makes no sense.
    pub fn decode_space_map(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        if reader.u32()? != SPACE_MAP_VERSION || reader.u32()? != self.chunk_blocks {
            return None;
        }
        let count = reader.u32()?;
        if count > self.chunk_count() {
            return None;
        }
        for index in 0..count {
            let chunk_use = ChunkUse::from_number(reader.u8()?)?;
            if (chunk_use == ChunkUse::Journal) != (index == 0) {
                return None;
            }
            match chunk_use {
                ChunkUse::Free | ChunkUse::Journal => {}
                ChunkUse::Data => {
                    for group in index * self.groups_per_chunk()..(index + 1) * self.groups_per_chunk() {
                        let free = reader.u32()?;
                        if free > self.group_blocks {
                            return None;
                        }
                        let entry = &mut self.groups[group as usize];
                        entry.free = free;
                        entry.committed_free = free;
                    }
                }
                ChunkUse::Meta => {
                    let pages = self.chunk_blocks / PAGE_BLOCKS;
                    let bytes = reader.take(pages.div_ceil(64) as usize * 8)?;
                    self.pages.insert(index, Some(Bitmap::from_bytes(bytes, pages)?));
                }
            }
            self.set_chunk(index, chunk_use, ChunkState::Ready);
        }
        reader.0.is_empty().then_some(())
    }

    /// After opening: chunks in which nothing is committed may lack space on the virtual disk.
    pub fn doubt_empty_chunks(&mut self) {
        let per_chunk = self.groups_per_chunk();
        for index in 0..self.chunk_count() {
            let groups = (index * per_chunk) as usize..((index + 1) * per_chunk) as usize;
            let empty = self.groups[groups].iter().all(|group| group.committed_free == self.group_blocks);
            if empty && self.chunk_use(index) == Some(ChunkUse::Data) {
                self.set_chunk(index, ChunkUse::Data, ChunkState::Unproven);
            }
            if self.pages.is_in_use(index) == Some(false) {
                self.set_chunk(index, ChunkUse::Meta, ChunkState::Unproven);
            }
        }
    }
}
