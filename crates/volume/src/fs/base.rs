//! The layer below the contents of files: the virtual disk, metadata, space, checkpoints.
//!
//! The parts here know nothing of streams, reads or write-back. Numbers of data in memory come from
//! outside ([`Unstored`]).

use ::types::Lba;
use space::api::{SpaceRequest, VirtualDisk};

use super::agenda::Agenda;
use super::allocator::{Allocator, Refusal};
use super::checkpoint::{Checkpointer, Neighbours, Room};
use super::chunks::{Chunks, Demand, unpromised};
use super::descriptors::Descriptors;
use super::io::{Answer, Purpose, Requests, next_copy};
use super::journal::Journal;
use super::layout::{Features, PAGE_BLOCKS, Pointer};
use super::meta::page::Page;
use super::meta::{BlockRun, Changes, Store, Transaction, Tree};
use super::metadata::Metadata;
use super::opening::{FsOpening, Opened};
use super::quota::Quotas;
use super::times::Times;
use super::types::{Config, FsError};
use crate::planted::Planted;

/// Progress of the volume into use.
pub enum State {
    /// Reading, or writing the first superblocks.
    Opening(Box<FsOpening>),
    /// The first transaction of a new volume is being written.
    Formatting,
    /// The journal is replayed; the opening reads facts about the volume.
    Finishing,
    Open,
    Failed(FsError),
}

/// Data in memory that is newer than the stored one, in blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unstored {
    /// Blocks that are dirty or being written.
    pub blocks: u64,
    /// Blocks that may need new places: dirty ones, and those of jobs without places.
    pub placeless_blocks: u64,
}

/// Foundation of files' contents.
///
/// Nothing changes before the state is `Open`, and nothing is recorded once it is `Failed`. Space is
/// promised before its use: changes that grow are accepted only while any checkpoint finds its pages,
/// and data is accepted only into blocks that are free and not promised.
pub struct Base {
    pub requests: Requests,
    pub config: Config,
    pub state: State,
    pub agenda: Agenda,
    pub meta: Metadata,
    pub chunks: Chunks,
    pub checkpointer: Checkpointer,
    pub times: Times,
}

impl Base {
    pub fn new(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        Self {
            requests: Requests::new(disk),
            config,
            state: State::Failed(FsError::Stopped),
            agenda: Agenda::default(),
            meta: Metadata {
                store: Store::new(Tree::new(None, config.page_cache_bytes), Changes::new()),
                journal: Journal::default(),
                allocator: Allocator::empty(),
                quotas: Quotas::default(),
                descriptors: Descriptors::default(),
                shared_changes: 0,
            },
            chunks: Chunks::default(),
            checkpointer: Checkpointer::default(),
            times: Times::default(),
        }
    }

    /// Takes the result of an opening or of formatting.
    pub fn start(&mut self, opened: Opened) {
        self.checkpointer.start(opened.superblock, opened.space_map_pages, &opened.allocator);
        self.meta.allocator = opened.allocator;
        self.meta.journal.log = opened.log;
        self.meta.store = opened.store;
        if opened.superblock.features.contains(Features::QUOTAS) {
            self.meta.quotas.allow();
        }
    }

    /// Whether the volume can be used.
    ///
    /// # Errors
    /// `Miss` while it is being opened; the reason if it failed.
    pub fn ready(&self) -> Result<(), FsError> {
        if let Some(damage) = self.meta.allocator.damage() {
            return Err(damage.clone());
        }
        match &self.state {
            State::Open => Ok(()),
            State::Opening(_) | State::Formatting | State::Finishing => Err(FsError::Miss),
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Checks that changes are accepted: not while the journal is full and waits for the checkpoint.
    pub fn ready_to_change(&self) -> Result<(), FsError> {
        self.ready()?;
        if let Some((damage, _)) = self.checkpointer.read_only() {
            return Err(damage);
        }
        match self.meta.journal.log.has_room() {
            true => Ok(()),
            false if self.chunks.need_meta && !self.chunks.meta_room_may_come(&self.meta.allocator) => {
                Err(self.chunks.why_none())
            }
            false => Err(FsError::Miss),
        }
    }

    /// Checks that changes that need more space are accepted. Space for the checkpoint is kept free, so
    /// that removing works when growing does not.
    pub fn ready_to_grow(&mut self, unstored: Unstored) -> Result<(), FsError> {
        self.ready_to_change()?;
        if self.checkpointer.has_page_reserve(self.room(), unstored.blocks)
            || Planted::CheckpointReserveOff.is_planted()
        {
            return Ok(());
        }
        if !self.chunks.meta_room_may_come(&self.meta.allocator) {
            return Err(self.chunks.why_none());
        }
        self.chunks.need_meta = true;
        self.agenda.again = true;
        Err(FsError::Miss)
    }

    /// Whether lack of pages for metadata refuses growing changes, even if there is space for data: no
    /// chunk can be brought into use for metadata now.
    pub fn lacks_metadata_room(&self, unstored: Unstored) -> bool {
        let is_open = matches!(self.state, State::Open);
        let may_come =
            self.chunks.meta_room_may_come(&self.meta.allocator) && self.requests.size().available.0 > 0;
        let is_told = !Planted::NoRoomUntold.is_planted();
        is_told && is_open && !may_come && !self.checkpointer.has_page_reserve(self.room(), unstored.blocks)
    }

    /// Why a new chunk is not brought into use, and since when. It is tried again, and nothing but new data waits for it.
    pub fn chunk_trouble(&self) -> Option<(&FsError, ::types::Monotonic)> {
        self.requests.probes_late_since().map(|since| (&FsError::Unavailable, since))
    }

    /// Why metadata is not written, and since when. It is tried again.
    pub fn trouble(&self) -> Option<(&FsError, ::types::Monotonic)> {
        self.requests.stalled().or_else(|| self.checkpointer.trouble())
    }

    fn room(&self) -> Room<'_> {
        Room { allocator: &self.meta.allocator, log: &self.meta.journal.log }
    }

    fn demand(&self, unstored: Unstored) -> Demand {
        Demand {
            promised_blocks: unstored.placeless_blocks,
            pages: self.checkpointer.pages_wanted(self.room(), unstored.blocks),
        }
    }

    /// Free blocks that are not promised.
    pub fn unpromised_blocks(&self, unstored: Unstored) -> u64 {
        unpromised(&self.meta.allocator, unstored.placeless_blocks)
    }

    /// Blocks that new data can still take, in chunks that are in use and in those that could be.
    pub fn available_blocks(&self, unstored: Unstored) -> u64 {
        self.unpromised_blocks(unstored) + self.free_chunk_blocks().min(self.requests.size().available.0)
    }

    /// Blocks of unused chunks.
    pub fn free_chunk_blocks(&self) -> u64 {
        self.meta.allocator.free_chunks() * u64::from(self.meta.allocator.chunk_blocks())
    }

    /// Whether a chunk with space for data may come; if so, requests it.
    pub fn data_chunk_may_come(&mut self, unstored: Unstored) -> bool {
        let demand = self.demand(unstored);
        let may_come = self.chunks.data_room_may_come(&self.meta.allocator, &self.requests, demand);
        if may_come {
            self.chunks.need_data = true;
            self.agenda.again = true;
        }
        may_come
    }

    /// Takes at most `want` free blocks, near `goal`.
    ///
    /// # Errors
    /// `Miss` while a bitmap or a chunk is being loaded, `NoSpace` if no chunk may come, `Unavailable` if
    /// it may not for lack of copies.
    pub fn reserve(&mut self, goal: Option<Lba>, want: u32, unstored: Unstored) -> Result<BlockRun, FsError> {
        loop {
            match self.meta.allocator.reserve(goal, want) {
                Ok(run) => return Ok(run),
                Err(Refusal::NeedGroup(group)) => self.meta.load_group(group)?,
                Err(Refusal::NeedChunk) => {
                    if self.freed_blocks_may_come() {
                        return Err(FsError::Miss);
                    }
                    if self.data_chunk_may_come(unstored) {
                        return Err(FsError::Miss);
                    }
                    self.chunks.need_data = true;
                    self.agenda.again = true;
                    return Err(self.chunks.why_none());
                }
            }
        }
    }

    /// Makes a transaction visible and adds it to the journal; its ticket.
    pub fn record(&mut self, txn: Transaction) -> u64 {
        self.meta.record(txn)
    }

    /// Counts files for quotas, some in each poll.
    pub fn pump_quotas(&mut self) {
        if !self.meta.quotas.wants_step() {
            return;
        }
        if self.ready_to_change().is_err() {
            return self.meta.quotas.wait();
        }
        let txn = self.meta.quotas.step(&mut self.meta.store);
        self.record(txn);
    }

    /// Counts references to security descriptors, some in each poll.
    pub fn pump_descriptors(&mut self) {
        if !self.meta.descriptors.wants_step() {
            return;
        }
        if self.ready_to_change().is_err() {
            return self.meta.descriptors.wait();
        }
        let now = self.agenda.now;
        let txn = self.meta.descriptors.step(&mut self.meta.store, now);
        self.record(txn);
    }

    /// Makes freed blocks reusable once no stored data and no request uses them. If there is enough space
    /// without them, discards them first.
    pub fn release_freed(&mut self, unstored: Unstored) {
        let early = Planted::AllocatorReuseEarly.is_planted();
        let durable = if early { u64::MAX } else { self.meta.journal.log.durable_ticket() };
        let now = self.agenda.now;
        let prepares = self.unpromised_blocks(unstored) >= u64::from(self.meta.allocator.chunk_blocks()) / 4;
        if self.meta.allocator.release_pending(durable, prepares, now) {
            self.freed_blocks();
        }
        for run in self.meta.allocator.begin_preparing(now) {
            let discard = SpaceRequest::Discard { lba: run.lba, blocks: u64::from(run.blocks) };
            self.requests.submit(Purpose::Prepare { run }, discard);
            self.agenda.again = true;
        }
    }

    /// Whether freed blocks will become reusable that are not yet. Those that wait for a discard become so
    /// immediately.
    pub fn freed_blocks_may_come(&mut self) -> bool {
        if self.meta.allocator.hurry_preparing() {
            self.freed_blocks();
            self.agenda.again = true;
            return true;
        }
        !self.meta.allocator.preparing.is_empty()
    }

    /// Freed blocks can be reserved.
    fn freed_blocks(&mut self) {
        self.agenda.wake();
    }

    /// Carries on changes of chunks' uses and the checkpoint.
    ///
    /// # Errors
    /// Those with which the volume fails.
    pub fn pump_space(&mut self, unstored: Unstored) -> Result<(), FsError> {
        let demand = self.demand(unstored);
        self.chunks.pump(&mut self.meta, &mut self.requests, &mut self.agenda, demand);
        self.checkpointer.pump(&mut Neighbours {
            meta: &mut self.meta,
            requests: &mut self.requests,
            chunks: &mut self.chunks,
            agenda: &mut self.agenda,
        })?;
        if self.meta.quotas.wants_feature() {
            self.checkpointer.want_features(Features::QUOTAS);
            if self.checkpointer.has_features(Features::QUOTAS) {
                self.meta.quotas.allow();
                self.agenda.again = true;
            }
        }
        self.checkpointer.pump_discards(&mut self.meta.allocator, &mut self.requests);
        Ok(())
    }

    /// Asks for pages of the tree that were missed.
    pub fn read_missed_pages(&mut self) {
        for pointer in self.meta.store.tree.take_wanted() {
            self.read_page(pointer, None);
        }
    }

    fn read_page(&mut self, pointer: Pointer, copy: Option<u8>) {
        let read = SpaceRequest::Read { lba: pointer.lba, blocks: PAGE_BLOCKS, copy };
        self.requests.submit(Purpose::Page { pointer, copy }, read);
    }

    /// Takes a requested page of the tree, or reads it from another copy.
    pub fn handle_page(&mut self, pointer: Pointer, copy: Option<u8>, answer: Answer) {
        let volume = self.checkpointer.superblock.map_or([0; 16], |superblock| superblock.volume);
        let lba = pointer.lba;
        let error = match answer {
            Ok(data) => match Page::decode(data.contiguous(), &volume, lba) {
                Some(page) if page.pointer() == pointer || Planted::PointerUnchecked.is_planted() => {
                    self.meta.store.tree.loaded(lba, page);
                    self.agenda.wake();
                    return;
                }
                // The expected page's write was lost.
                Some(_) => FsError::Corrupt { what: "tree page older than what points to it", lba },
                None => FsError::Corrupt { what: "tree page", lba },
            },
            Err(FsError::Invalid(_)) => FsError::Corrupt { what: "tree page", lba },
            Err(error) => error,
        };
        // An intact copy need not be the expected page; another copy may be.
        match (&error, next_copy(copy)) {
            (FsError::Corrupt { .. }, Some(next)) => self.read_page(pointer, Some(next)),
            _ => {
                self.meta.store.tree.failed(lba, error);
                self.agenda.wake();
            }
        }
    }

    /// Takes an answer that concerns the journal, chunks or the checkpoint.
    ///
    /// # Errors
    /// Those with which the volume fails.
    pub fn handle(&mut self, purpose: Purpose, answer: Answer) -> Result<(), FsError> {
        let Self { meta, requests, agenda, chunks, checkpointer, .. } = self;
        match purpose {
            Purpose::Journal { sequence } => {
                answer?;
                if meta.journal.log.written(sequence) {
                    agenda.wake();
                }
                Ok(())
            }
            Purpose::Page { pointer, copy } => {
                self.handle_page(pointer, copy, answer);
                Ok(())
            }
            Purpose::DiscardPages { first, count } => {
                checkpointer.handle_discard(first, count, answer, &mut meta.allocator, agenda)
            }
            Purpose::Prepare { run } => {
                meta.allocator.prepared(run);
                self.freed_blocks();
                // After any other failure to discard, the next write to these blocks copes.
                if matches!(answer, Err(FsError::Fenced)) { Err(FsError::Fenced) } else { Ok(()) }
            }
            Purpose::Checkpoint => checkpointer.handle_write(answer),
            Purpose::Probe { chunk } => chunks.handle_probe(chunk, answer, meta, agenda),
            Purpose::Release { chunk } => chunks.handle_release(chunk, answer, meta, requests, agenda),
            Purpose::GiveBack { chunk } => chunks.handle_give_back(chunk, answer, meta, agenda),
            Purpose::Opening(_) | Purpose::Read { .. } | Purpose::Write { .. } | Purpose::Nothing => Ok(()),
        }
    }
}
