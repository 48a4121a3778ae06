//! Chunks brought into use and out of use.
//!
//! A chunk's use is recorded durably before its first write, so that an opening knows what lies there; then a first write proves that the virtual disk gives it room. Only blocks of proven chunks are
//! promised to data in memory, so that a full pool is felt before a write is acknowledged.

use std::time::Duration;

use ::types::Monotonic;
use space::api::{SpaceRequest, WriteClass};

use super::FileSystem;
use super::allocator::ChunkState;
use super::io::{Answer, Purpose};
use super::meta::ChunkUse;
use super::meta::Transaction;
use super::opening::zero_block;
use super::types::FsError;

/// A pool that was full is asked again after this time.
const FULL_DELAY: Duration = Duration::from_secs(2);

/// A use that waits to be durable.
#[derive(Debug)]
struct Change {
    chunk: u32,
    ticket: u64,
}

/// What is under way.
#[derive(Debug, Default)]
pub struct ChunkChanges {
    waiting: Vec<Change>,
    /// Chunks on their way into use.
    data: u32,
    meta: u32,
    /// Data waits for room.
    pub need_data: bool,
    /// The checkpoint waits for room.
    pub need_meta: bool,
    /// A chunk may have become empty.
    pub blocks_were_freed: bool,
    /// The pool had no room at this time.
    full_at: Option<Monotonic>,
}

impl ChunkChanges {
    /// Whether more room for data may come by itself.
    pub fn data_is_coming(&self) -> bool {
        self.data > 0
    }
}

impl FileSystem {
    pub(super) fn chunk_timeout(&self) -> Option<Monotonic> {
        let full_at = self.chunk_changes.full_at?;
        (self.chunk_changes.need_data || self.chunk_changes.need_meta).then(|| full_at.after(FULL_DELAY))
    }

    /// Whether a further chunk could be brought into use for data.
    pub(super) fn can_have_data_chunk(&self) -> bool {
        self.chunk_changes.full_at.is_none()
            && self.allocator.free_chunks() > self.meta_chunks_kept()
            && self.requests.size().available.0 > 0
    }

    /// Whether a further chunk for metadata is on its way, or could be.
    pub(super) fn meta_room_may_come(&self) -> bool {
        self.chunk_changes.meta > 0
            || (self.chunk_changes.full_at.is_none() && self.allocator.free_chunks() > 0)
    }

    /// Chunks kept back for what checkpoints need.
    fn meta_chunks_kept(&self) -> u64 {
        u64::from(self.page_reserve_is_low() && self.chunk_changes.meta == 0)
    }

    pub(super) fn pump_chunks(&mut self) {
        if let Some(full_at) = self.chunk_changes.full_at
            && self.now >= full_at.after(FULL_DELAY)
        {
            self.chunk_changes.full_at = None;
            self.wake();
        }
        while let Some((chunk, chunk_use)) = self.allocator.unproven_chunk() {
            self.allocator.set_chunk(chunk, chunk_use, ChunkState::Changing);
            self.count_change(chunk_use, true);
            self.prove(chunk);
        }
        if (self.chunk_changes.need_meta || self.page_reserve_is_low())
            && self.chunk_changes.meta == 0
            && self.chunk_changes.full_at.is_none()
        {
            self.bring_into_use(ChunkUse::Meta);
        }
        let low = self.unpromised_blocks() < u64::from(self.allocator.chunk_blocks()) / 4;
        if (low || self.chunk_changes.need_data) && self.chunk_changes.data == 0 && self.can_have_data_chunk()
        {
            self.bring_into_use(ChunkUse::Data);
        }
        if self.chunk_changes.waiting.is_empty()
            && !low
            && std::mem::take(&mut self.chunk_changes.blocks_were_freed)
            && let Some(chunk) =
                self.allocator.empty_chunk(self.promised_blocks() + u64::from(self.allocator.chunk_blocks()))
        {
            self.change_use(chunk, ChunkUse::Free);
        }
        self.pump_chunk_changes();
    }

    fn bring_into_use(&mut self, chunk_use: ChunkUse) {
        if let Some(chunk) = self.allocator.free_chunk() {
            self.count_change(chunk_use, true);
            self.change_use(chunk, chunk_use);
        }
    }

    fn change_use(&mut self, chunk: u32, chunk_use: ChunkUse) {
        self.allocator.set_chunk(chunk, chunk_use, ChunkState::Changing);
        let mut txn = Transaction::new();
        txn.use_chunk(chunk, chunk_use);
        let ticket = self.record(txn);
        self.log.want(ticket);
        self.chunk_changes.waiting.push(Change { chunk, ticket });
    }

    fn count_change(&mut self, chunk_use: ChunkUse, begins: bool) {
        let count = match chunk_use {
            ChunkUse::Free | ChunkUse::Journal => return,
            ChunkUse::Data => &mut self.chunk_changes.data,
            ChunkUse::Meta => &mut self.chunk_changes.meta,
        };
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
    }

    fn pump_chunk_changes(&mut self) {
        let durable = self.log.durable_ticket();
        let mut at = 0;
        while let Some(change) = self.chunk_changes.waiting.get(at) {
            if change.ticket > durable {
                at += 1;
                continue;
            }
            let chunk = self.chunk_changes.waiting.swap_remove(at).chunk;
            match self.allocator.chunk_use(chunk) {
                Some(ChunkUse::Data) => self.prove(chunk),
                // What was there before is given up first; a chunk for metadata is then proven.
                Some(ChunkUse::Meta | ChunkUse::Free) => {
                    let blocks = u64::from(self.allocator.chunk_blocks());
                    let first = self.allocator.first_block(chunk);
                    self.requests.discard_needed(Purpose::Release { chunk }, first, blocks);
                }
                Some(ChunkUse::Journal) | None => {}
            }
        }
    }

    fn prove(&mut self, chunk: u32) {
        let lba = self.allocator.first_block(chunk);
        let write = SpaceRequest::Write { lba, class: WriteClass::Fresh, data: zero_block().into() };
        self.requests.submit(Purpose::Probe { chunk }, write);
    }

    pub(super) fn handle_probe(&mut self, chunk: u32, answer: Answer) {
        let Some(chunk_use) = self.allocator.chunk_use(chunk) else { return };
        self.count_change(chunk_use, false);
        match answer {
            Ok(_) => {
                self.allocator.set_chunk(chunk, chunk_use, ChunkState::Ready);
                match chunk_use {
                    ChunkUse::Meta => self.chunk_changes.need_meta = false,
                    _ => self.chunk_changes.need_data = false,
                }
            }
            Err(FsError::Fenced) => self.fail(FsError::Fenced),
            Err(_) => {
                self.chunk_changes.full_at = Some(self.now);
                self.change_use(chunk, ChunkUse::Free);
            }
        }
        self.wake();
    }

    pub(super) fn handle_release(&mut self, chunk: u32, answer: Answer) {
        if matches!(answer, Err(FsError::Fenced)) {
            return self.fail(FsError::Fenced);
        }
        match self.allocator.chunk_use(chunk) {
            Some(ChunkUse::Meta) => {
                if answer.is_ok() {
                    self.allocator.pages.emptied(chunk, true);
                }
                self.prove(chunk);
            }
            _ => self.allocator.set_chunk(chunk, ChunkUse::Free, ChunkState::Ready),
        }
        self.wake();
    }
}
