//! The file layer on one virtual disk: namespace, streams, extents, metadata journal and checkpoint, data cache.
//!
//! **How to use it.** [`FileSystem`] is driven by one thread. Metadata functions answer at once, or answer
//! [`FsError::Miss`]: what they need is then on its way, nothing was changed, and the caller runs the whole operation
//! again after the next [`FsEvent::Retry`]. Data functions answer at once (`Poll::Ready`) or by an event that carries the
//! caller's token. [`FileSystem::poll`] does the work; it wants to be called after every request and completion, and at
//! [`FileSystem::next_timeout`].
//!
//! **What is durable.** Changes become visible at once, and durable in the order in which they were made: with
//! [`FileSystem::flush`] or a durable write, and a few seconds later at the latest. A crash loses a suffix of the
//! changes to names and attributes, never one in the middle; data is published after it is written, so that no lost write shows garbage.
//! Data that nobody makes durable may be later than changes to metadata that came after it, but for one: before a file takes another
//! name, all that was written to it is stored. So a file that is written and renamed over another is the old one or the new one, whole.
//!
//! **Why a crash is safe.** All that is stored hangs on the superblock (two places, the higher intact one counts): the
//! tree of the last checkpoint, the space map, and the journal from there on. The tree's pages are never changed in place;
//! the place of one is discarded and reused only after a later superblock is durable. What points to a page carries its checksum,
//! so that no older page passes for it. A journal batch is atomic by its checksum and chained to the one
//! before, so replay ends exactly at the first batch that was not completely written. Extents are written before the
//! batch that points to them, to blocks that no durable extent owns; an overwrite in place is atomic in the layer below.

mod allocator;
mod bitmap;
mod check;
mod checkpoint;
mod chunks;
mod cursor;
mod data;
mod extended_attributes;
pub mod fuzz;
mod io;
mod layout;
mod meta;
mod namespace;
mod opening;
mod owners;
mod pages;
mod properties;
mod streams;
mod types;
mod upcase;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ::types::{Lba, Monotonic};
use space::api::{SpaceRequest, VirtualDisk, WriteClass};

use crate::planted::Planted;
use allocator::Allocator;
pub use check::{Check, CheckReport};
pub use cursor::DirectoryCursor;
pub use data::STREAM_BYTES_MAX;
pub use extended_attributes::{EXTENDED_ATTRIBUTE_BYTES_MAX, EaName, check_extended_attributes};
use io::{Answer, Purpose, Requests, next_copy};
pub use layout::CHUNKS_MIN;
use layout::{PAGE_BLOCKS, Pointer, Superblock};
use meta::log::{Append, Log};
use meta::page::Page;
use meta::{Changes, Store, Transaction, Tree, key, record};
pub use namespace::{DEPTH_MAX, LINKS_MAX, NAME_UNITS_MAX, check_name};
use opening::{Opened, Opening};
pub use owners::{OwnedBlocks, OwnerSearch};
pub use properties::{PROPERTY_BYTES_MAX, REPARSE_BYTES_MAX};
pub use streams::NAMED_STREAMS_MAX;
pub use types::*;
pub use upcase::{names_equal, upcase_unit};

/// Changes that nobody waits for are written to the journal after this time.
const JOURNAL_DELAY: Duration = Duration::from_secs(1);

/// One volume's files.
pub struct FileSystem {
    requests: Requests,
    config: Config,
    state: State,
    now: Monotonic,
    superblock: Option<Superblock>,
    meta: Store,
    log: Log,
    /// Since when changes gather in the journal's open batch.
    gathering_since: Option<Monotonic>,
    allocator: Allocator,
    chunk_changes: chunks::ChunkChanges,
    checkpoint: Option<checkpoint::Checkpoint>,
    page_discards: checkpoint::PageDiscards,
    /// Merge steps left in this poll.
    checkpoint_steps: usize,
    /// A page that the checkpoint needs cannot be read. If it is damaged, nothing is changed meanwhile.
    checkpoint_pause: Option<checkpoint::Pause>,
    /// Pages of the tree and the space map that the superblock points to.
    published_pages: u64,
    /// Where the pieces of the stored space map lie.
    space_map_pages: Vec<Lba>,
    /// The checkpoint waits for a page, or for room.
    checkpoint_waits: bool,
    /// Pages that the tree has left while somebody read them.
    pages_in_doubt: Vec<Lba>,
    volume: VolumeRecord,
    /// Next file id to give, and the first that is not reserved durably.
    next_file: u64,
    file_ids_reserved: u64,
    /// Times changed in memory only.
    lazy_times: HashMap<FileId, AttributeChange>,
    /// Stored descriptors by content.
    security_ids: HashMap<Box<[u8]>, SecurityId>,
    data: data::Data,
    /// Since when.
    lazy_since: Option<Monotonic>,
    /// What missed may run again: at the caller's, and here.
    retry: bool,
    data_retry: bool,
    /// How often the caller was told to run again what missed.
    retries: u64,
    /// Writes wait until less is dirty.
    data_pressure: bool,
    /// There is more to do in this poll.
    pump_again: bool,
    /// The last poll left something to do at once.
    unfinished: bool,
    events: VecDeque<FsEvent>,
    answers: Vec<(Purpose, Answer)>,
}

enum State {
    /// Reading, or writing the first superblocks.
    Opening(Box<Opening>),
    /// The first transaction of a new volume is on its way.
    Formatting,
    /// The journal is replayed; what has to be known of the volume is looked up.
    Finishing,
    Open,
    Failed(FsError),
}

impl FsError {
    /// Metadata that cannot be what was written.
    pub(crate) const fn damaged(what: &'static str) -> Self {
        Self::Corrupt { what, lba: Lba(0) }
    }
}

impl FileSystem {
    /// Makes an empty volume; [`FsEvent::Opened`] tells when it can be used. What the virtual disk held is lost.
    pub fn format(disk: Box<dyn VirtualDisk>, format: &Format, config: Config) -> Self {
        let mut fs = Self::new(disk, config);
        let begun = Opening::format(&mut fs.requests, config.page_cache_bytes, format.id, format.now.0);
        match begun {
            Ok(opening) => {
                fs.state = State::Opening(Box::new(opening));
                fs.data.format = Some(format.clone());
            }
            Err(error) => fs.fail(error),
        }
        fs
    }

    /// Opens the volume on a virtual disk; [`FsEvent::Opened`] tells when it can be used.
    pub fn open(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        let mut fs = Self::new(disk, config);
        fs.state = State::Opening(Box::new(Opening::open(&mut fs.requests, config.page_cache_bytes)));
        fs
    }

    fn new(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        Self {
            requests: Requests::new(disk),
            config,
            state: State::Failed(FsError::Stopped),
            now: Monotonic::default(),
            superblock: None,
            meta: Store::new(Tree::new(None, config.page_cache_bytes), Changes::new()),
            log: Log::default(),
            gathering_since: None,
            allocator: Allocator::empty(),
            chunk_changes: chunks::ChunkChanges::default(),
            checkpoint: None,
            checkpoint_pause: None,
            published_pages: 0,
            space_map_pages: Vec::new(),
            page_discards: checkpoint::PageDiscards::default(),
            checkpoint_steps: 0,
            checkpoint_waits: false,
            pages_in_doubt: Vec::new(),
            volume: VolumeRecord {
                id: [0; 16],
                label: String::new(),
                serial: 0,
                created: Default::default(),
            },
            next_file: 0,
            file_ids_reserved: 0,
            lazy_times: HashMap::new(),
            security_ids: HashMap::new(),
            data: data::Data::default(),
            lazy_since: None,
            retry: false,
            data_retry: false,
            retries: 0,
            data_pressure: false,
            pump_again: false,
            unfinished: false,
            events: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    /// Does what is due and moves what happened into `out`.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<FsEvent>) {
        self.now = now;
        self.data.now = now;
        self.checkpoint_steps = checkpoint::STEPS_AT_ONCE;
        // One round's effects can be answered at once by the virtual disk.
        self.unfinished = true;
        for _ in 0..64 {
            let mut answers = std::mem::take(&mut self.answers);
            self.requests.poll(now, &mut answers);
            let idle = answers.is_empty();
            for (purpose, answer) in answers.drain(..) {
                self.handle(purpose, answer);
            }
            self.answers = answers;
            self.pump();
            if idle && !std::mem::take(&mut self.pump_again) {
                self.unfinished = false;
                break;
            }
        }
        if std::mem::take(&mut self.retry) {
            self.retries += 1;
            out.push(FsEvent::Retry);
        }
        out.extend(self.events.drain(..));
    }

    /// Lookups and steps of walks through metadata since the last call.
    pub fn take_steps(&mut self) -> u32 {
        std::mem::take(&mut self.meta.steps)
    }

    /// An operation missed something that the next [`FileSystem::poll`] asks the virtual disk for.
    pub fn wants_poll(&self) -> bool {
        self.meta.tree.has_wanted()
    }

    /// When [`FileSystem::poll`] wants to be called next, should nothing happen before.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        if self.unfinished || self.retry || self.checkpoint_is_busy() {
            return Some(self.now);
        }
        // A batch that is overdue waits for an answer or for room, not for a time.
        let journal = self.gathering_since.map(|since| since.after(JOURNAL_DELAY));
        let journal = journal.filter(|at| *at > self.now);
        let times = [
            journal,
            self.data_timeout(),
            self.chunk_timeout(),
            self.requests.retry_at(),
            // After that it waits for an answer.
            self.checkpoint_pause.as_ref().map(|pause| pause.until).filter(|until| *until > self.now),
        ];
        times.into_iter().flatten().min()
    }

    fn handle(&mut self, purpose: Purpose, answer: Answer) {
        match purpose {
            Purpose::Opening(number) => self.handle_opening(number, answer),
            Purpose::Journal { sequence } => match answer {
                Ok(_) => {
                    if self.log.written(sequence) {
                        self.wake();
                    }
                }
                Err(error) => self.fail(error),
            },
            Purpose::Page { pointer, copy } => self.handle_page(pointer, copy, answer),
            Purpose::DiscardPages { first, count } => self.handle_discard(first, count, answer),
            Purpose::Checkpoint => self.handle_checkpoint(answer),
            Purpose::Read { job, part } => self.handle_read(job, part, answer),
            Purpose::Write { job } => self.handle_write(job, answer),
            Purpose::Probe { chunk } => self.handle_probe(chunk, answer),
            Purpose::Nothing => {}
            Purpose::Release { chunk } => self.handle_release(chunk, answer),
        }
    }

    fn handle_opening(&mut self, number: u64, answer: Answer) {
        let State::Opening(opening) = &mut self.state else { return };
        match opening.handle(&mut self.requests, number, answer) {
            Ok(None) => {}
            Ok(Some(opened)) => self.take_opened(opened),
            Err(error) => self.fail(error),
        }
    }

    fn take_opened(&mut self, opened: Opened) {
        self.superblock = Some(opened.superblock);
        self.allocator = opened.allocator;
        self.log = opened.log;
        self.meta = opened.store;
        self.space_map_pages = opened.space_map_pages;
        self.published_pages = self.allocator.pages.used_count();
        let Some(format) = self.data.format.take() else {
            self.state = State::Finishing;
            return;
        };
        self.volume = VolumeRecord {
            id: format.id,
            label: format.label.clone(),
            serial: format.serial,
            created: format.now,
        };
        let mut txn = Transaction::new();
        txn.put(key::volume(), record::encode_volume(&self.volume));
        let root =
            NewFile { directory: true, attributes: 0, now: format.now, security: &format.root_security };
        self.state = State::Formatting;
        match self.put_root(&mut txn, &root) {
            Ok(()) => {
                let ticket = self.record(txn);
                self.log.want(ticket);
            }
            Err(error) => self.fail(error),
        }
    }

    fn handle_page(&mut self, pointer: Pointer, copy: Option<u8>, answer: Answer) {
        let volume = self.superblock.map_or([0; 16], |superblock| superblock.volume);
        let lba = pointer.lba;
        let error = match answer {
            Ok(data) => match Page::decode(data.contiguous(), &volume, lba) {
                Some(page) if page.pointer() == pointer || Planted::PointerUnchecked.is_planted() => {
                    self.meta.tree.loaded(lba, page);
                    self.wake();
                    return;
                }
                // The write of the page that is meant was lost.
                Some(_) => FsError::Corrupt { what: "tree page older than what points to it", lba },
                None => FsError::Corrupt { what: "tree page", lba },
            },
            Err(FsError::Invalid(_)) => FsError::Corrupt { what: "tree page", lba },
            Err(error) => error,
        };
        // A copy that is intact by itself need not be the page that is meant; another one may be.
        match (&error, next_copy(copy)) {
            (FsError::Corrupt { .. }, Some(next)) => self.read_page(pointer, Some(next)),
            _ => {
                self.meta.tree.failed(lba, error);
                self.wake();
            }
        }
    }

    fn read_page(&mut self, pointer: Pointer, copy: Option<u8>) {
        let read = SpaceRequest::Read { lba: pointer.lba, blocks: PAGE_BLOCKS, copy };
        self.requests.submit(Purpose::Page { pointer, copy }, read);
    }

    /// Carries on everything that can go on.
    fn pump(&mut self) {
        match &self.state {
            State::Opening(_) | State::Failed(_) => return,
            State::Formatting => {
                if self.log.durable_ticket() >= self.log.last_ticket() {
                    self.opened();
                }
            }
            State::Finishing => self.finish_opening(),
            State::Open => {
                self.pump_data();
                self.pump_chunks();
                self.pump_checkpoint();
                self.pump_page_discards();
            }
        }
        for pointer in self.meta.tree.take_wanted() {
            self.read_page(pointer, None);
        }
        self.pump_journal();
    }

    fn finish_opening(&mut self) {
        let found = self.meta.get(&Transaction::new(), &key::volume());
        let volume = found.and_then(|value| {
            value.and_then(|value| record::decode_volume(&value)).ok_or(FsError::damaged("volume record"))
        });
        match volume {
            Ok(volume) => {
                self.volume = volume;
                match self.find_orphans() {
                    // What cannot be found is reclaimed when it can be.
                    Ok(()) | Err(FsError::Corrupt { .. }) => self.opened(),
                    Err(FsError::Miss) => {}
                    Err(error) => self.fail(error),
                }
            }
            Err(FsError::Miss) => {}
            Err(error) => self.fail(error),
        }
    }

    fn opened(&mut self) {
        self.state = State::Open;
        self.wake();
        self.events.push_back(FsEvent::Opened);
    }

    /// Ends all work: what was not durable may be lost.
    fn fail(&mut self, error: FsError) {
        if !matches!(self.state, State::Failed(_)) || self.events.is_empty() {
            self.fail_data(&error);
            self.events.push_back(FsEvent::Failed(error.clone()));
        }
        self.state = State::Failed(error);
        self.wake();
    }

    fn pump_journal(&mut self) {
        let due = self.gathering_since.is_some_and(|since| self.now >= since.after(JOURNAL_DELAY));
        while let Some(append) = self.log.next_append(due) {
            self.append(append);
        }
        if !self.log.is_pending() {
            self.gathering_since = None;
        }
    }

    fn append(&mut self, append: Append) {
        let purpose = Purpose::Journal { sequence: append.sequence };
        self.requests.write_needed(purpose, append.lba, WriteClass::Append, append.data.into());
    }

    /// What the volume is called.
    pub fn volume(&self) -> &VolumeRecord {
        &self.volume
    }

    /// Changes how much memory the caches take, from the next poll on.
    pub fn set_cache(&mut self, config: Config) {
        self.config = config;
        self.meta.tree.set_cache_bytes(config.page_cache_bytes);
    }

    /// Changes the label.
    pub fn set_label(&mut self, label: &str) -> Result<(), FsError> {
        self.ready_to_change()?;
        if label.len() > 255 {
            return Err(FsError::TooLarge);
        }
        let volume = VolumeRecord { label: label.to_owned(), ..self.volume.clone() };
        let mut txn = Transaction::new();
        txn.put(key::volume(), record::encode_volume(&volume));
        self.commit(txn)?;
        self.volume = volume;
        Ok(())
    }

    /// Size and fill.
    pub fn statistics(&self) -> Statistics {
        let size = self.requests.size();
        let blocks = |count: u64| count.saturating_mul(::types::BLOCK_BYTES as u64);
        let chunks = self.allocator.free_chunks() * u64::from(self.allocator.chunk_blocks());
        let available = self.unpromised_blocks() + chunks.min(size.available.0);
        let total_bytes = size.blocks.bytes().saturating_sub(blocks(self.allocator.meta_blocks()));
        Statistics {
            total_bytes,
            used_bytes: total_bytes.saturating_sub(blocks(self.unpromised_blocks() + chunks)),
            available_bytes: blocks(available),
            cache_bytes: self.data.cached_bytes(),
            dirty_bytes: self.data.dirty_bytes(),
            journal_bytes: blocks(self.log.used_blocks()),
            read_from_cache_bytes: self.data.answered().from_cache_bytes,
            read_from_disk_bytes: self.data.answered().from_disk_bytes,
        }
    }

    /// Limits in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn ready(&self) -> Result<(), FsError> {
        match &self.state {
            State::Open => Ok(()),
            State::Opening(_) | State::Formatting | State::Finishing => Err(FsError::Miss),
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Whether changes are taken: not while the journal is full and waits for the checkpoint.
    fn ready_to_change(&self) -> Result<(), FsError> {
        self.ready()?;
        if let Some((damage, _)) = self.read_only() {
            return Err(damage);
        }
        match self.log.has_room() {
            true => Ok(()),
            false if self.chunk_changes.need_meta && !self.meta_room_may_come() => Err(FsError::NoSpace),
            false => Err(FsError::Miss),
        }
    }

    /// Whether changes that need more room are taken: what a checkpoint needs to write is kept free, so that removing things works when
    /// growing does not.
    fn ready_to_grow(&mut self) -> Result<(), FsError> {
        self.ready_to_change()?;
        if self.has_page_reserve() || Planted::CheckpointReserveOff.is_planted() {
            return Ok(());
        }
        if !self.meta_room_may_come() {
            return Err(FsError::NoSpace);
        }
        self.chunk_changes.need_meta = true;
        self.pump_again = true;
        Err(FsError::Miss)
    }

    fn commit(&mut self, txn: Transaction) -> Result<(), FsError> {
        self.ready()?;
        self.record(txn);
        Ok(())
    }

    /// Makes a transaction visible and adds it to the journal; its ticket.
    fn record(&mut self, txn: Transaction) -> u64 {
        if txn.is_empty() {
            return 0;
        }
        let ticket = self.log.add(&txn);
        let (changes, allocated, freed) = txn.into_parts();
        self.allocator.commit(&allocated, freed, ticket, self.data.next_read_number());
        self.meta.apply(changes);
        self.gathering_since.get_or_insert(self.now);
        ticket
    }
}
