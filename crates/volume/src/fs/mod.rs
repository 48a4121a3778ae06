//! The file layer on one virtual disk: namespace, streams, extents, metadata journal and checkpoint, data cache.
//!
//! **How to use it.** [`FileSystem`] is driven by one thread. Metadata functions answer immediately. If
//! they lack pages they answer [`FsError::Miss`], having changed nothing: the pages are being loaded,
//! and the caller runs the whole operation again after the next [`FsEvent::Retry`]. Data functions
//! answer immediately (`Poll::Ready`) or by an event with the caller's token. [`FileSystem::poll`] does
//! the work: call it after every request and completion, and at [`FileSystem::next_timeout`].
//!
//! **Durability.** Changes become visible immediately, and durable in the order in which they were
//! made: with [`FileSystem::flush`] or a durable write, and a few seconds later at the latest. A crash
//! loses a suffix of the changes to names and attributes, never one in the middle. Data is published
//! after it is written, so no lost write shows garbage. Data without a flush may become durable later
//! than newer changes to metadata, with one exception: before a file takes another name, all writes to
//! it are stored. So a file that is written and renamed over another is the old one or the new one,
//! whole.
//!
//! **Why a crash is safe.** All stored state is found from the superblock (two places, the higher
//! intact one counts): the tree of the last checkpoint, the space map, and the journal from there on.
//! The tree's pages are never changed in place; the place of one is discarded and reused only after a
//! later superblock is durable. A pointer to a page carries the page's checksum, so that no older page
//! passes for it. A journal batch is atomic by its checksum and chained to the one before, so replay
//! ends exactly at the first batch that was not completely written. Extents are written before the
//! batch that points to them, to blocks that no durable extent owns; an overwrite in place is atomic in
//! the layer below.

mod agenda;
mod allocator;
mod background_trim;
mod base;
mod bitmap;
mod blob;
mod check;
mod checkpoint;
mod chunk_state;
mod chunks;
mod contents;
mod cursor;
mod data;
mod descriptors;
mod extended_attributes;
mod files;
pub mod fuzz;
mod groups;
mod inodes;
mod io;
mod journal;
mod layout;
mod meta;
mod metadata;
mod namespace;
mod open_state;
mod opening;
mod owners;
mod pages;
mod properties;
mod quota;
mod reader;
mod streams;
mod times;
mod types;
mod upcase;

#[cfg(test)]
pub(crate) mod tests;

use ::types::{BLOCK_BYTES, Monotonic};
use space::api::VirtualDisk;

use self::base::{Base, State};
pub use allocator::chunks_max;
pub use check::{Check, CheckReport};
pub use cursor::DirectoryCursor;
use data::Data;
pub use data::{CloneRange, CloneRefusal, STREAM_BYTES_MAX};
pub use descriptors::PROPERTY_BYTES_MAX;
pub use extended_attributes::{EXTENDED_ATTRIBUTE_BYTES_MAX, EaName, check_extended_attributes};
use io::{Answer, Purpose};
pub use layout::CHUNKS_MIN;
use meta::{Transaction, key, record};
use metadata::Metadata;
use namespace::Namespace;
pub use namespace::{LINKS_MAX, NAME_UNITS_MAX, check_name};
pub use open_state::{OpenStateChanges, OpenStateWalk};
use opening::{FsOpening, Opened};
pub use owners::{OwnedBlocks, OwnerSearch};
pub use properties::REPARSE_BYTES_MAX;
pub use quota::{QuotaChange, QuotaFindings, QuotaLimits, QuotaMode, QuotaQuery, QuotaSettings, QuotaUser};
pub use streams::NAMED_STREAMS_MAX;
pub use types::*;
pub use upcase::{compare_names, names_equal, upcase_unit};

/// Rounds of answers and work in one poll: the virtual disk may answer one round's requests
/// immediately.
const ROUNDS_MAX: usize = 64;

/// Longest label in bytes.
const LABEL_BYTES_MAX: usize = 255;

/// One volume's files.
///
/// Three parts, each of which uses only the ones before it: the base, the contents of streams, names.
/// Methods here check that the volume can be used, bring the parts together and hand answers to the
/// callers.
pub struct FileSystem {
    base: Base,
    data: Data,
    names: Namespace,
    volume: VolumeRecord,
    /// Request for a new volume that is being made.
    format: Option<Format>,
    /// The last poll left work that is due immediately.
    unfinished: bool,
    /// Steps of counting are still to be made in this poll.
    counting_due: bool,
    answers: Vec<(Purpose, Answer)>,
}

impl FileSystem {
    /// Makes an empty volume; [`FsEvent::Opened`] reports that it can be used. The virtual disk's old
    /// contents are lost.
    pub fn format(disk: Box<dyn VirtualDisk>, format: &Format, config: Config) -> Self {
        let mut fs = Self::new(disk, config);
        let begun =
            FsOpening::format(&mut fs.base.requests, config.page_cache_bytes, format.id, format.now.0);
        match begun {
            Ok(opening) => {
                fs.base.state = State::Opening(Box::new(opening));
                fs.format = Some(format.clone());
            }
            Err(error) => fs.fail(error),
        }
        fs
    }

    /// Opens the volume on a virtual disk; [`FsEvent::Opened`] reports that it can be used.
    pub fn open(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        let mut fs = Self::new(disk, config);
        let opening = FsOpening::open(&mut fs.base.requests, config.page_cache_bytes);
        fs.base.state = State::Opening(Box::new(opening));
        fs
    }

    fn new(disk: Box<dyn VirtualDisk>, config: Config) -> Self {
        Self {
            base: Base::new(disk, config),
            data: Data::default(),
            names: Namespace::default(),
            volume: VolumeRecord {
                id: [0; 16],
                label: String::new(),
                serial: 0,
                created: Default::default(),
            },
            format: None,
            unfinished: false,
            counting_due: false,
            answers: Vec::new(),
        }
    }

    /// Does the work that is due and moves events into `out`.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<FsEvent>) {
        self.base.agenda.now = now;
        self.base.meta.journal.now = now;
        self.data.begin_turn(now);
        self.base.checkpointer.begin_turn();
        self.base.meta.quotas.wake();
        self.base.meta.descriptors.wake(now);
        self.counting_due = true;
        self.unfinished = true;
        for _ in 0..ROUNDS_MAX {
            let mut answers = std::mem::take(&mut self.answers);
            self.base.requests.poll(now, &mut answers);
            let idle = answers.is_empty();
            for (purpose, answer) in answers.drain(..) {
                self.handle(purpose, answer);
            }
            self.answers = answers;
            self.pump();
            if idle && !std::mem::take(&mut self.base.agenda.again) {
                self.unfinished = false;
                break;
            }
        }
        if self.base.agenda.take_retry() {
            out.push(FsEvent::Retry);
        }
        out.extend(self.base.agenda.events.drain(..));
    }

    /// Lookups and steps of walks through metadata since the last call.
    pub fn take_steps(&mut self) -> u32 {
        std::mem::take(&mut self.base.meta.store.steps)
    }

    /// Whether an operation missed pages that the next [`FileSystem::poll`] reads from the virtual disk.
    pub fn wants_poll(&self) -> bool {
        self.base.meta.store.tree.has_wanted()
    }

    /// When [`FileSystem::poll`] wants to be called next, should nothing happen before.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let base = &self.base;
        if self.unfinished
            || base.agenda.wants_retry()
            || base.checkpointer.is_busy()
            || self.data.is_busy()
            || base.meta.quotas.wants_step()
            || base.meta.descriptors.wants_step()
        {
            return Some(base.agenda.now);
        }
        let times = [
            base.meta.journal.timeout(),
            self.data.timeout(base),
            base.chunks.timeout(),
            base.meta.descriptors.timeout(),
            base.requests.retry_at(),
            base.meta.allocator.preparing.timeout(),
            base.checkpointer.timeout(base.agenda.now),
        ];
        times.into_iter().flatten().min()
    }

    fn handle(&mut self, purpose: Purpose, answer: Answer) {
        match purpose {
            Purpose::Opening(number) => self.handle_opening(number, answer),
            Purpose::Read { job, part } => self.data.handle_read(job, part, answer, &mut self.base),
            Purpose::Write { job } => self.data.handle_write(job, answer),
            Purpose::Nothing => {}
            purpose => {
                if let Err(error) = self.base.handle(purpose, answer) {
                    self.fail(error);
                }
            }
        }
    }

    fn handle_opening(&mut self, number: u64, answer: Answer) {
        let State::Opening(opening) = &mut self.base.state else { return };
        match opening.handle(&mut self.base.requests, number, answer) {
            Ok(None) => {}
            Ok(Some(opened)) => self.take_opened(opened),
            Err(error) => self.fail(error),
        }
    }

    fn take_opened(&mut self, opened: Opened) {
        self.base.start(opened);
        let Some(format) = self.format.take() else {
            self.base.state = State::Finishing;
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
        self.base.state = State::Formatting;
        let incarnation = self.base.checkpointer.superblock.map_or(1, |superblock| superblock.incarnation);
        self.base.meta.descriptors.begin(&mut txn, incarnation);
        match namespace::put_root(&mut txn, &root, &mut self.base.meta) {
            Ok(()) => {
                let ticket = self.base.record(txn);
                self.base.meta.journal.log.want(ticket);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Runs everything that can proceed.
    fn pump(&mut self) {
        match &self.base.state {
            State::Opening(_) | State::Failed(_) => return,
            State::Formatting => {
                let log = &self.base.meta.journal.log;
                if log.durable_ticket() >= log.last_ticket() {
                    self.opened();
                }
            }
            State::Finishing => self.finish_opening(),
            State::Open => {
                let pumped = self.data.pump(&mut self.base);
                let pumped = pumped.and_then(|()| self.base.pump_space(self.data.unstored()));
                if pumped.is_ok() && std::mem::take(&mut self.counting_due) {
                    self.base.pump_quotas();
                    self.base.pump_descriptors();
                }
                let damage = self.base.meta.allocator.damage().cloned();
                if let Some(error) = pumped.err().or(damage) {
                    self.fail(error);
                }
            }
        }
        self.base.read_missed_pages();
        self.base.meta.journal.pump(&mut self.base.requests);
    }

    fn finish_opening(&mut self) {
        let found = self.base.meta.store.get(&Transaction::new(), &key::volume());
        let volume = found.and_then(|value| {
            value.and_then(|value| record::decode_volume(&value)).ok_or(FsError::damaged("volume record"))
        });
        match volume {
            Ok(volume) => {
                self.volume = volume;
                let incarnation =
                    self.base.checkpointer.superblock.map_or(1, |superblock| superblock.incarnation);
                let Base { meta: Metadata { store, quotas, descriptors, .. }, agenda, .. } = &mut self.base;
                let known = quotas.load(store, agenda).and_then(|()| descriptors.load(store, incarnation));
                let known = known.and_then(|()| self.data.find_orphans(store, agenda));
                match known {
                    // Orphans on damaged pages are reclaimed when the pages can be read.
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
        self.base.state = State::Open;
        self.base.agenda.wake();
        self.base.agenda.events.push_back(FsEvent::Opened);
    }

    /// Ends all work: changes that were not durable may be lost.
    fn fail(&mut self, error: FsError) {
        let events = &mut self.base.agenda.events;
        if !matches!(self.base.state, State::Failed(_)) || events.is_empty() {
            self.data.fail(&error, events);
            events.push_back(FsEvent::Failed(error.clone()));
        }
        self.base.state = State::Failed(error);
        self.base.agenda.wake();
    }

    /// Identity and label of the volume.
    pub fn volume(&self) -> &VolumeRecord {
        &self.volume
    }

    /// Changes how much memory the caches take, from the next poll on.
    pub fn set_cache(&mut self, config: Config) {
        self.base.config = config;
        self.base.meta.store.tree.set_cache_bytes(config.page_cache_bytes);
    }

    /// Takes over the space by which the virtual disk has grown.
    ///
    /// # Errors
    /// `Miss` while the volume is being opened: the opening finds the whole. `Invalid` if the virtual disk
    /// is larger than a volume may be.
    pub fn grow(&mut self) -> Result<(), FsError> {
        self.base.ready()?;
        let blocks = self.base.requests.size().blocks.0;
        let grown = self.base.meta.allocator.grow(blocks);
        grown.ok_or(FsError::Invalid("the virtual disk is larger than a volume may be"))?;
        // Operations that found the volume full try again.
        self.base.agenda.wake();
        Ok(())
    }

    /// Changes the label.
    pub fn set_label(&mut self, label: &str) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        if label.len() > LABEL_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        let volume = VolumeRecord { label: label.to_owned(), ..self.volume.clone() };
        let mut txn = Transaction::new();
        txn.put(key::volume(), record::encode_volume(&volume));
        self.base.record(txn);
        self.volume = volume;
        Ok(())
    }

    /// Size and fill.
    pub fn statistics(&self) -> Statistics {
        let (base, unstored) = (&self.base, self.data.unstored());
        let blocks = |count: u64| count.saturating_mul(BLOCK_BYTES as u64);
        let preparing = base.meta.allocator.preparing.blocks();
        let free = base.unpromised_blocks(unstored) + base.free_chunk_blocks() + preparing;
        let total_bytes = base.requests.size().blocks.bytes();
        let lacks_metadata_room = base.lacks_metadata_room(unstored);
        let available = if lacks_metadata_room { 0 } else { base.available_blocks(unstored) + preparing };
        Statistics {
            total_bytes,
            used_bytes: total_bytes.saturating_sub(blocks(free)),
            available_bytes: blocks(available),
            lacks_metadata_room,
            cache_bytes: self.data.streams.cached_bytes(),
            dirty_bytes: blocks(unstored.blocks),
            journal_bytes: blocks(base.meta.journal.log.used_blocks()),
            read_from_cache_bytes: self.data.answered().from_cache_bytes,
            read_from_disk_bytes: self.data.answered().from_disk_bytes,
        }
    }

    /// Limits in force.
    pub fn config(&self) -> &Config {
        &self.base.config
    }

    /// Why changes in memory are not written, data or metadata, and since when. They stay, and are tried again.
    pub fn write_back_failure(&self) -> Option<(&FsError, Monotonic)> {
        self.data.write_back_failure().or_else(|| self.base.trouble()).or_else(|| self.base.chunk_trouble())
    }

    /// Returns the error that makes the volume read-only, and since when: the checkpoint needs a page that
    /// is damaged on all copies. The checkpoint retries, and the volume recovers when the page can be read.
    pub fn read_only(&self) -> Option<(FsError, Monotonic)> {
        self.base.checkpointer.read_only()
    }

    #[cfg(test)]
    pub fn set_read_only(&mut self, is_read_only: bool) {
        self.base.checkpointer.set_read_only(is_read_only);
    }
}
