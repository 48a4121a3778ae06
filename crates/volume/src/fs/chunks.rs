//! Chunks brought into use and out of use.
//!
//! A chunk's use is recorded durably before its first write, so that an opening knows what lies there.
//! A first write then proves that the virtual disk has space for it. Only blocks of proven chunks are
//! promised to data in memory, so that a full pool shows before a write is acknowledged.
//!
//! In the other direction, an empty chunk's space is returned to the virtual disk for other volumes,
//! unless this volume is short of space itself. The chunk is discarded first and its new use recorded
//! then: a crash in between leaves an empty chunk, which the next opening finds and returns. A chunk's
//! emptiness is a state, not an event: while there may be one, each poll searches some chunks, until it
//! finds none.

use std::time::Duration;

use ::types::Monotonic;
use space::api::WriteClass;

use super::agenda::Agenda;
use super::allocator::{Allocator, ChunkState};
use super::io::{Answer, Purpose, Requests};
use super::meta::{ChunkUse, Transaction};
use super::metadata::Metadata;
use super::opening::zero_block;
use super::types::FsError;
use crate::planted::Planted;

/// Time after which a full pool is tried again.
const FULL_DELAY: Duration = Duration::from_secs(2);

/// Limit of chunks being returned.
const LEAVING_MAX: u32 = 16;

/// Time for which no chunk is returned after one was brought into use for data: the same write may need
/// more.
const HOLD: Duration = Duration::from_secs(2);

/// Chunks searched for empty ones in one turn.
const LOOKED_AT_ONCE: u32 = 4096;

/// Space that data in memory and metadata will need.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Blocks that data in memory may need.
    pub promised_blocks: u64,
    /// Pages that the volume needs, used ones included: with fewer a further chunk for metadata is wanted soon.
    pub pages: u64,
}

impl Demand {
    fn lacks_pages(&self, allocator: &Allocator) -> bool {
        allocator.pages.total_count() < self.pages
    }

    /// Whether one chunk of a use is dispensable: more stay than are brought into use in one go.
    fn can_miss(&self, chunk_use: ChunkUse, allocator: &Allocator) -> bool {
        let (chunk_blocks, pages) =
            (u64::from(allocator.chunk_blocks()), u64::from(allocator.pages.per_chunk()));
        match chunk_use {
            ChunkUse::Data => allocator.ready_free() >= self.promised_blocks + 2 * chunk_blocks,
            ChunkUse::Meta => allocator.pages.total_count() >= self.pages + pages + pages / 4,
            ChunkUse::Free | ChunkUse::Journal => false,
        }
    }
}

/// Free blocks that are not promised. More may be promised than are free: some dirty blocks need no new
/// place.
pub fn unpromised(allocator: &Allocator, promised_blocks: u64) -> u64 {
    allocator.ready_free().saturating_sub(promised_blocks)
}

/// A use that waits to be durable.
#[derive(Debug)]
struct Change {
    chunk: u32,
    ticket: u64,
}

/// Chunks being brought into and out of use.
///
/// A chunk in state `Changing` is either in `waiting`, or a request of purpose `Release` or `Probe` is
/// under way for it; no chunk is both. `data` and `meta` count those coming into use, so that at most
/// one of a kind is brought at a time. For each chunk in state `Leaving`, and for no other, a request
/// of purpose `GiveBack` is under way: `leaving` counts them.
#[derive(Debug, Default)]
pub struct Chunks {
    waiting: Vec<Change>,
    data: u32,
    meta: u32,
    /// Data waits for space.
    pub need_data: bool,
    /// The checkpoint waits for space.
    pub need_meta: bool,
    leaving: u32,
    /// Time at which a chunk was brought into use for data, less than [`HOLD`] ago.
    brought_at: Option<Monotonic>,
    /// Chunks of data below this one are still to be searched for empty ones.
    empty_below: Option<u32>,
    /// Time at which the pool had no space.
    full_at: Option<Monotonic>,
    /// Whether copies were missing then, not space.
    lacked_copies: bool,
}

impl Chunks {
    /// Returns when to try a full pool again, or when chunks may be returned again.
    pub fn timeout(&self) -> Option<Monotonic> {
        let full_at = self.full_at.filter(|_| self.need_data || self.need_meta);
        let full = full_at.map(|at| at.after(FULL_DELAY)).into_iter();
        full.chain(self.brought_at.map(|at| at.after(HOLD))).min()
    }

    /// Returns the error if no further chunk may come.
    pub fn why_none(&self) -> FsError {
        if self.full_at.is_some() && self.lacked_copies { FsError::Unavailable } else { FsError::NoSpace }
    }

    /// Whether more space for data is coming, or could be.
    pub fn data_room_may_come(&self, allocator: &Allocator, requests: &Requests, demand: Demand) -> bool {
        self.data > 0 || self.can_have_data_chunk(allocator, requests, demand)
    }

    /// Whether a further chunk could be brought into use for data.
    fn can_have_data_chunk(&self, allocator: &Allocator, requests: &Requests, demand: Demand) -> bool {
        // One chunk is reserved for checkpoints.
        let kept = u64::from(self.meta == 0 && demand.lacks_pages(allocator));
        self.full_at.is_none() && allocator.free_chunks() > kept && requests.size().available.0 > 0
    }

    /// Whether a further chunk for metadata is coming, or could be.
    pub fn meta_room_may_come(&self, allocator: &Allocator) -> bool {
        self.meta > 0 || (self.full_at.is_none() && allocator.free_chunks() > 0)
    }

    /// Brings chunks into use that are wanted, and out of use that are empty.
    pub fn pump(
        &mut self,
        meta: &mut Metadata,
        requests: &mut Requests,
        agenda: &mut Agenda,
        demand: Demand,
    ) {
        if self.full_at.is_some_and(|full_at| agenda.now >= full_at.after(FULL_DELAY)) {
            self.full_at = None;
            agenda.wake();
        }
        self.prove_or_give_back(meta, requests, demand);
        if (self.need_meta || demand.lacks_pages(&meta.allocator)) && self.meta == 0 && self.full_at.is_none()
        {
            self.bring_into_use(ChunkUse::Meta, meta);
        }
        let chunk_blocks = u64::from(meta.allocator.chunk_blocks());
        let free = unpromised(&meta.allocator, demand.promised_blocks) + meta.allocator.preparing.blocks();
        let low = free < chunk_blocks / 4;
        if (low || self.need_data)
            && self.data == 0
            && self.can_have_data_chunk(&meta.allocator, requests, demand)
        {
            self.bring_into_use(ChunkUse::Data, meta);
            self.brought_at = Some(agenda.now);
        }
        self.brought_at = self.brought_at.filter(|at| agenda.now < at.after(HOLD));
        self.give_back_empty(meta, requests, agenda, demand);
        self.pump_changes(meta, requests);
    }

    /// Proves chunks that an opening found empty, as far as they are needed, and returns the others to the
    /// virtual disk.
    fn prove_or_give_back(&mut self, meta: &mut Metadata, requests: &mut Requests, demand: Demand) {
        let chunk_blocks = u64::from(meta.allocator.chunk_blocks());
        while let Some((chunk, chunk_use)) = meta.allocator.unproven_chunk() {
            let is_spare = match chunk_use {
                ChunkUse::Data => {
                    let coming = u64::from(self.data) * chunk_blocks;
                    meta.allocator.ready_free() + coming >= demand.promised_blocks + chunk_blocks
                }
                other => demand.can_miss(other, &meta.allocator),
            };
            if is_spare {
                if self.leaving >= LEAVING_MAX {
                    return;
                }
                self.give_back(chunk, chunk_use, meta, requests);
            } else {
                meta.allocator.set_chunk(chunk, chunk_use, ChunkState::Changing);
                self.begin_change(chunk_use);
                prove(chunk, &meta.allocator, requests);
            }
        }
    }

    /// Finds empty, dispensable chunks, and returns them to the virtual disk.
    fn give_back_empty(
        &mut self,
        meta: &mut Metadata,
        requests: &mut Requests,
        agenda: &mut Agenda,
        demand: Demand,
    ) {
        while self.leaving < LEAVING_MAX
            && demand.can_miss(ChunkUse::Meta, &meta.allocator)
            && let Some(chunk) = meta.allocator.pages.empty_chunk()
        {
            self.give_back(chunk, ChunkUse::Meta, meta, requests);
        }
        while self.leaving < LEAVING_MAX
            && self.brought_at.is_none()
            && demand.can_miss(ChunkUse::Data, &meta.allocator)
        {
            if self.empty_below.is_none() && meta.allocator.take_emptied() {
                self.empty_below = Some(meta.allocator.chunk_count());
            }
            let Some(below) = self.empty_below else { return };
            let (found, below) = meta.allocator.empty_chunk(below, LOOKED_AT_ONCE);
            self.empty_below = Some(below).filter(|below| *below > 0);
            if let Some(chunk) = found {
                self.give_back(chunk, ChunkUse::Data, meta, requests);
                self.empty_below = self.empty_below.filter(|_| !Planted::ChunksGivenBackOnce.is_planted());
            } else if below > 0 {
                agenda.again = true;
                return;
            }
        }
    }

    fn give_back(&mut self, chunk: u32, chunk_use: ChunkUse, meta: &mut Metadata, requests: &mut Requests) {
        self.leaving += 1;
        meta.allocator.set_chunk(chunk, chunk_use, ChunkState::Leaving);
        let blocks = u64::from(meta.allocator.chunk_blocks());
        requests.discard_needed(Purpose::GiveBack { chunk }, meta.allocator.first_block(chunk), blocks);
    }

    /// Takes the answer to the discard of a chunk that was in use.
    ///
    /// # Errors
    /// `Fenced`.
    pub fn handle_give_back(
        &mut self,
        chunk: u32,
        answer: Answer,
        meta: &mut Metadata,
        agenda: &mut Agenda,
    ) -> Result<(), FsError> {
        if matches!(answer, Err(FsError::Fenced)) {
            return Err(FsError::Fenced);
        }
        self.leaving -= 1;
        meta.allocator.set_chunk(chunk, ChunkUse::Free, ChunkState::Ready);
        let mut txn = Transaction::new();
        txn.use_chunk(chunk, ChunkUse::Free);
        meta.record(txn);
        agenda.wake();
        agenda.again = true;
        Ok(())
    }

    fn bring_into_use(&mut self, chunk_use: ChunkUse, meta: &mut Metadata) {
        if let Some(chunk) = meta.allocator.free_chunk() {
            self.begin_change(chunk_use);
            self.change_use(chunk, chunk_use, meta);
        }
    }

    fn change_use(&mut self, chunk: u32, chunk_use: ChunkUse, meta: &mut Metadata) {
        meta.allocator.set_chunk(chunk, chunk_use, ChunkState::Changing);
        let mut txn = Transaction::new();
        txn.use_chunk(chunk, chunk_use);
        let ticket = meta.record(txn);
        meta.journal.log.want(ticket);
        self.waiting.push(Change { chunk, ticket });
    }

    fn begin_change(&mut self, chunk_use: ChunkUse) {
        match chunk_use {
            ChunkUse::Free | ChunkUse::Journal => {}
            ChunkUse::Data => self.data += 1,
            ChunkUse::Meta => self.meta += 1,
        }
    }

    fn end_change(&mut self, chunk_use: ChunkUse) {
        match chunk_use {
            ChunkUse::Free | ChunkUse::Journal => {}
            ChunkUse::Data => self.data -= 1,
            ChunkUse::Meta => self.meta -= 1,
        }
    }

    /// Continues with chunks whose new use is durable.
    fn pump_changes(&mut self, meta: &Metadata, requests: &mut Requests) {
        let durable = meta.journal.log.durable_ticket();
        let mut at = 0;
        while let Some(change) = self.waiting.get(at) {
            if change.ticket > durable {
                at += 1;
                continue;
            }
            let chunk = self.waiting.swap_remove(at).chunk;
            match meta.allocator.chunk_use(chunk) {
                Some(ChunkUse::Data) => prove(chunk, &meta.allocator, requests),
                // Old contents are released first; a chunk for metadata is then proven.
                Some(ChunkUse::Meta | ChunkUse::Free) => {
                    let blocks = u64::from(meta.allocator.chunk_blocks());
                    let first = meta.allocator.first_block(chunk);
                    requests.discard_needed(Purpose::Release { chunk }, first, blocks);
                }
                Some(ChunkUse::Journal) | None => {
                    debug_assert!(false, "chunk {chunk} never changes its use");
                }
            }
        }
    }

    /// Takes the answer to a chunk's first write.
    ///
    /// # Errors
    /// `Fenced`. After any other error the chunk goes out of use again, and no chunk comes for
    /// `FULL_DELAY`: the pool is full, or too few copies can be reached.
    pub fn handle_probe(
        &mut self,
        chunk: u32,
        answer: Answer,
        meta: &mut Metadata,
        agenda: &mut Agenda,
    ) -> Result<(), FsError> {
        let Some(chunk_use) = meta.allocator.chunk_use(chunk) else { return Ok(()) };
        self.end_change(chunk_use);
        match answer {
            Ok(_) => {
                meta.allocator.set_chunk(chunk, chunk_use, ChunkState::Ready);
                match chunk_use {
                    ChunkUse::Meta => self.need_meta = false,
                    _ => self.need_data = false,
                }
            }
            Err(FsError::Fenced) => return Err(FsError::Fenced),
            Err(error) => {
                self.full_at = Some(agenda.now);
                self.lacked_copies = matches!(error, FsError::Unavailable);
                self.change_use(chunk, ChunkUse::Free, meta);
            }
        }
        agenda.wake();
        Ok(())
    }

    /// Takes the answer to a chunk's discard.
    ///
    /// # Errors
    /// `Fenced`.
    pub fn handle_release(
        &mut self,
        chunk: u32,
        answer: Answer,
        meta: &mut Metadata,
        requests: &mut Requests,
        agenda: &mut Agenda,
    ) -> Result<(), FsError> {
        if matches!(answer, Err(FsError::Fenced)) {
            return Err(FsError::Fenced);
        }
        match meta.allocator.chunk_use(chunk) {
            Some(ChunkUse::Meta) => {
                if answer.is_ok() {
                    meta.allocator.pages.emptied(chunk, true);
                }
                prove(chunk, &meta.allocator, requests);
            }
            _ => meta.allocator.set_chunk(chunk, ChunkUse::Free, ChunkState::Ready),
        }
        agenda.wake();
        Ok(())
    }
}

fn prove(chunk: u32, allocator: &Allocator, requests: &mut Requests) {
    let lba = allocator.first_block(chunk);
    requests.write_needed(Purpose::Probe { chunk }, lba, WriteClass::Fresh, zero_block().into());
}
