//! Checkpoints: journaled blocks go in place, changed metadata and tables with them; a flush; then the versions of the changed pages, and a
//! flush; then an anchor that lets the journal forget them. All of it can be repeated: a crash before the anchor replays the same records
//! again. The sequence of the anchor that ends it is the checkpoint's number. One that is given up ends with an anchor too, which moves
//! nothing: no two checkpoints of a disk write pages under one number.

use super::Store;
use super::task::{Attempt, Op};
use crate::anchor::Anchor;
use crate::health::WriteKind;
use crate::layout::{ANCHOR_SLOTS, PAGE_BYTES};
use crate::metadata::{encode_page, page_identity};
use crate::numbers::block_key;
use crate::planted::Planted;
use crate::slots::SlotId;
use crate::tables::{encode_promise_page, encode_slab_page};
use crate::versions::PageVersion;
use disk::{Disk, DiskError};
use std::collections::VecDeque;
use sys::{Buf, BufMut, Payload};
use types::{BLOCK_BYTES, SlabIndex};

/// Disk operations of a checkpoint in flight at once: it runs beside foreground I/O.
const IN_FLIGHT_MAX: usize = 16;
/// Most blocks applied by one write.
const RUN_BLOCKS_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Applying,
    WantsFlush(Written),
    Flushing(Written),
    /// The versions of the pages that are durable now.
    WritingVersions,
    Anchoring,
}

/// What a flush makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    InPlace,
    Versions,
}

pub(super) struct Checkpoint {
    state: State,
    requested: bool,
    /// The last one found no room under the disk: the next change makes it try again.
    stalled: bool,
    giving_up: bool,
    /// Sequence of the anchor that ends the checkpoint at work, or of the last one.
    anchor_sequence: u64,
    /// Batches up to this one are covered.
    through: u64,
    /// Blocks to apply, in order; and how many of them are issued.
    blocks: Vec<u64>,
    next_block: usize,
    pages: VecDeque<u64>,
    pages_written: Vec<u64>,
    tables: VecDeque<(u64, Buf)>,
    versions: VecDeque<(u64, Buf)>,
    versions_written: std::collections::BTreeSet<usize>,
    table_changes: Option<(std::collections::BTreeSet<usize>, bool)>,
    in_flight: usize,
    /// Fresh writes that wait until their place is not being applied.
    waiting: Vec<SlotId>,
}

impl Checkpoint {
    pub(super) fn new(anchor_sequence: u64) -> Self {
        Self {
            state: State::Idle,
            requested: false,
            stalled: false,
            giving_up: false,
            anchor_sequence,
            through: 0,
            blocks: Vec::new(),
            next_block: 0,
            pages: VecDeque::new(),
            pages_written: Vec::new(),
            tables: VecDeque::new(),
            versions: VecDeque::new(),
            versions_written: std::collections::BTreeSet::new(),
            table_changes: None,
            in_flight: 0,
            waiting: Vec::new(),
        }
    }

    /// Whether nobody had asked before.
    pub(super) fn request(&mut self) -> bool {
        !std::mem::replace(&mut self.requested, true)
    }
    pub(super) fn unstall(&mut self) {
        self.stalled = false;
    }
    /// Asks anew for a checkpoint that found no room. Answers whether there is one.
    pub(super) fn retry(&mut self) -> bool {
        let stalled = std::mem::take(&mut self.stalled);
        self.requested |= stalled;
        stalled
    }
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.requested
    }
    /// The version of the pages that the checkpoint at work writes. Pages written between two checkpoints have that of the first: the next
    /// one's are newer.
    pub(super) fn version(&self) -> PageVersion {
        PageVersion::of_anchor(self.anchor_sequence)
    }
    pub(super) fn wants_flush(&self) -> bool {
        matches!(self.state, State::WantsFlush(_))
    }
    pub(super) fn flush_started(&mut self) {
        if let State::WantsFlush(written) = self.state {
            self.state = State::Flushing(written);
        }
    }
    /// Whether blocks of the range may be on their way into place.
    pub(super) fn is_applying(&self, slab: SlabIndex, first: u32, count: u32) -> bool {
        let start = block_key(slab, first);
        let at = self.blocks.partition_point(|key| *key < start);
        self.blocks.get(at).is_some_and(|key| *key < start + u64::from(count))
    }
    pub(super) fn await_end(&mut self, id: SlotId) {
        self.waiting.push(id);
    }
    pub(super) fn abandon(&mut self) {
        self.state = State::Idle;
        self.requested = false;
        self.waiting.clear();
    }
}

/// A unit of a checkpoint's work.
enum Work {
    Write { page: Option<u64>, kind: WriteKind, offset: u64, data: Payload },
    ReadJournal { key: u64, sequence: u64, block: u32 },
    Nothing,
}

impl<D: Disk> Store<D> {
    /// Begins a checkpoint where one is due, and issues the next writes of the one that runs.
    pub(super) fn run_checkpoint(&mut self) {
        if self.checkpoint.state == State::Idle {
            if self.checkpoint.stalled {
                if self.journal.is_starved() {
                    self.refuse_starved();
                }
                return;
            }
            let due = self.checkpoint.requested
                || self.journal.used_blocks() > self.journal.blocks() / 2
                || self.overlay.kept_bytes() > self.overlay.budget_bytes() / 2
                || self.cache.dirty_pages() > self.cache.budget_pages() / 2;
            if !due {
                return;
            }
            self.begin_checkpoint();
        }
        if !matches!(self.checkpoint.state, State::Applying | State::WritingVersions) {
            return;
        }
        while self.checkpoint.in_flight < IN_FLIGHT_MAX && !self.checkpoint.giving_up {
            match self.next_work() {
                Work::Write { page, kind, offset, data } => {
                    self.checkpoint.in_flight += 1;
                    self.write(Op::CheckpointWrite { page }, kind, offset, data, false);
                }
                Work::ReadJournal { key, sequence, block } => {
                    self.checkpoint.in_flight += 1;
                    self.read_journaled(key, sequence, block, Attempt::First);
                }
                Work::Nothing => break,
            }
        }
        if self.checkpoint.in_flight > 0 {
            return;
        }
        if self.checkpoint.giving_up {
            self.give_up_checkpoint();
        } else if Planted::AnchorBeforeFlush.is_planted() {
            self.write_anchor();
        } else if self.checkpoint.state == State::Applying {
            self.checkpoint.state = State::WantsFlush(Written::InPlace);
        } else {
            self.checkpoint.state = State::WantsFlush(Written::Versions);
        }
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoint.requested = false;
        let nothing = self.journal.used_blocks() == 0
            && self.overlay.is_empty()
            && self.cache.dirty_pages() == 0
            && !self.slabs.is_changed()
            && !self.slabs.has_quarantined();
        if nothing {
            return;
        }
        let checkpoint = &mut self.checkpoint;
        checkpoint.state = State::Applying;
        checkpoint.anchor_sequence += 1;
        checkpoint.through = self.journal.committed();
        checkpoint.blocks = self.overlay.sorted_keys();
        checkpoint.next_block = 0;
        let mut pages = self.cache.dirty_keys();
        pages.sort_unstable();
        checkpoint.pages = pages.into();
        checkpoint.pages_written.clear();
        checkpoint.tables.clear();
        checkpoint.versions_written.clear();
        checkpoint.table_changes = None;
        if self.slabs.is_changed() {
            self.gather_tables();
        }
        if Planted::VersionsBeforePages.is_planted() {
            self.gather_versions_too_early();
        }
    }

    /// The versions that the pages are going to have, with the first writes.
    fn gather_versions_too_early(&mut self) {
        for key in &self.checkpoint.pages {
            self.versions.written(SlabIndex((*key >> 32) as u32), *key as u32, self.checkpoint.version());
        }
        for page in self.versions.take_changed() {
            let bytes = Buf::from(&self.versions.encode_page(self.label.disk, page)[..]);
            self.checkpoint.tables.push_front((self.layout.versions + (page * PAGE_BYTES) as u64, bytes));
        }
    }

    /// The changed pages of the tables, for both copies.
    fn gather_tables(&mut self) {
        let (slab_pages, promises, sequence) = self.slabs.take_changed();
        let disk = self.label.disk;
        let mut pages: Vec<(u64, Buf)> = slab_pages
            .iter()
            .map(|page| {
                (*page as u64, Buf::from(&encode_slab_page(disk, *page, sequence, self.slabs.entries())[..]))
            })
            .collect();
        if promises {
            let promised = self.promise_places.arrange(&self.promises());
            let first = self.layout.slab_table_pages();
            for page in 0..crate::layout::PROMISE_PAGES {
                let bytes = encode_promise_page(disk, page, sequence, &promised);
                pages.push(((first + page) as u64, Buf::from(&bytes[..])));
            }
        }
        for copy in self.layout.tables {
            let placed = pages.iter().map(|(page, bytes)| (copy + page * PAGE_BYTES as u64, bytes.clone()));
            self.checkpoint.tables.extend(placed);
        }
        self.checkpoint.table_changes = Some((slab_pages, promises));
    }

    fn next_work(&mut self) -> Work {
        if self.checkpoint.state == State::WritingVersions {
            return match self.checkpoint.versions.pop_front() {
                Some((offset, bytes)) => {
                    Work::Write { page: None, kind: WriteKind::Tables, offset, data: bytes.into() }
                }
                None => Work::Nothing,
            };
        }
        if let Some((offset, bytes)) = self.checkpoint.tables.pop_front() {
            return Work::Write { page: None, kind: WriteKind::Tables, offset, data: bytes.into() };
        }
        while let Some(key) = self.checkpoint.pages.pop_front() {
            let (slab, page) = (SlabIndex((key >> 32) as u32), key as u32);
            let Some(entry) = self.slabs.entry(slab) else { continue };
            let identity = page_identity(self.label.disk, slab, entry, page);
            let Some(words) = self.cache.begin_write(key) else { continue };
            let data = Payload::from(encode_page(identity, self.checkpoint.version(), words));
            self.checkpoint.pages_written.push(key);
            let offset = self.layout.page_offset(slab, page);
            return Work::Write { page: Some(key), kind: WriteKind::Metadata, offset, data };
        }
        self.next_run()
    }

    /// The next consecutive blocks that are not in place yet.
    fn next_run(&mut self) -> Work {
        let (mut data, mut first, mut count) = (Payload::new(), None, 0);
        while let Some(&key) = self.checkpoint.blocks.get(self.checkpoint.next_block) {
            let entry = self.overlay.get(key).filter(|entry| entry.sequence <= self.checkpoint.through);
            let follows = first.is_none_or(|first| key == first + count as u64);
            if count > 0
                && (!follows || count == RUN_BLOCKS_MAX || entry.is_none_or(|entry| entry.bytes.is_none()))
            {
                break;
            }
            self.checkpoint.next_block += 1;
            // Discarded, or written again by a batch that the next checkpoint covers.
            let Some(entry) = entry else { continue };
            let Some(bytes) = &entry.bytes else {
                return Work::ReadJournal { key, sequence: entry.sequence, block: entry.journal_block };
            };
            data.push(bytes.clone());
            first = first.or(Some(key));
            count += 1;
        }
        match first {
            None => Work::Nothing,
            Some(key) => {
                Work::Write { page: None, kind: WriteKind::Applied, offset: self.key_offset(key), data }
            }
        }
    }

    fn key_offset(&self, key: u64) -> u64 {
        self.layout.block_offset(SlabIndex((key >> 32) as u32), key as u32)
    }

    fn read_journaled(&mut self, key: u64, sequence: u64, block: u32, attempt: Attempt) {
        let offset = self.layout.journal_offset(block);
        self.read(Op::CheckpointRead { key, sequence, attempt }, offset, BLOCK_BYTES);
    }

    /// A journaled block that was not kept in RAM is here. If it rotted in the journal it fails its checksum in place too; one that the
    /// medium does not give is made to fail it by zeroes.
    pub(super) fn checkpoint_read(
        &mut self,
        key: u64,
        sequence: u64,
        attempt: Attempt,
        result: Result<Option<BufMut>, DiskError>,
    ) {
        if self.poisoned {
            return;
        }
        let current = self.overlay.get(key).filter(|entry| entry.sequence == sequence);
        let journal_block = current.map(|entry| entry.journal_block);
        let bytes = match (result, attempt, journal_block) {
            (Err(DiskError::Medium(_)), Attempt::First, Some(block)) => {
                return self.read_journaled(key, sequence, block, Attempt::Second);
            }
            (Ok(Some(bytes)), ..) => bytes,
            (Err(DiskError::Medium(_)), ..) => BufMut::zeroed(BLOCK_BYTES),
            (Ok(None), ..) => return self.poison(&DiskError::Invalid("a read without its buffer")),
            (Err(error), ..) => return self.poison(&error),
        };
        if journal_block.is_none() || self.checkpoint.giving_up {
            self.checkpoint.in_flight -= 1;
            return;
        }
        let offset = self.key_offset(key);
        self.write(
            Op::CheckpointWrite { page: None },
            WriteKind::Applied,
            offset,
            bytes.freeze().into(),
            false,
        );
    }

    pub(super) fn checkpoint_written(&mut self, page: Option<u64>, result: Result<(), DiskError>) {
        if self.poisoned {
            return;
        }
        match (result, page) {
            (Ok(()), None) => {}
            (Ok(()), Some(key)) => {
                let (slab, page) = (SlabIndex((key >> 32) as u32), key as u32);
                self.versions.written(slab, page, self.checkpoint.version());
                self.damaged_pages.remove(&key);
                self.cache.end_write(key);
            }
            (Err(DiskError::NoSpace), page) => {
                self.checkpoint.giving_up = true;
                // It is nowhere but in RAM: it must not make room for another before the checkpoint has been given up.
                page.iter().for_each(|key| self.cache.undo_write(*key));
            }
            (Err(error), _) => return self.poison(&error),
        }
        self.checkpoint.in_flight -= 1;
    }

    /// The file under the disk cannot grow: nothing is lost, everything stays in the journal, and later changes find it full.
    fn give_up_checkpoint(&mut self) {
        for key in std::mem::take(&mut self.checkpoint.pages_written) {
            self.cache.undo_write(key);
        }
        if let Some((pages, promises)) = self.checkpoint.table_changes.take() {
            self.slabs.mark_changed_pages(pages, promises);
        }
        self.versions.mark_changed(std::mem::take(&mut self.checkpoint.versions_written));
        self.checkpoint.versions.clear();
        self.health.no_space += 1;
        if Planted::NumberTwice.is_planted() {
            self.checkpoint.giving_up = false;
            self.checkpoint.state = State::Idle;
            self.checkpoint.stalled = true;
            return self.end_checkpoint();
        }
        self.write_anchor();
    }

    /// The journal is full and cannot be emptied: what waits for it is refused.
    fn refuse_starved(&mut self) {
        for id in self.journal.refuse_pending() {
            self.health.no_space += 1;
            self.finish(id, Err(crate::api::StoreError::NoSpace));
        }
    }

    /// Everything in place is durable: the pages' versions may say so. When they are durable too, the anchor may move behind it.
    pub(super) fn checkpoint_flushed(&mut self) {
        match self.checkpoint.state {
            State::Flushing(Written::InPlace) => self.gather_versions(),
            State::Flushing(Written::Versions) => self.write_anchor(),
            _ => {}
        }
    }

    fn gather_versions(&mut self) {
        let changed = self.versions.take_changed();
        if changed.is_empty() {
            return self.write_anchor();
        }
        self.moves += 1;
        self.checkpoint.state = State::WritingVersions;
        let page_of = |page: &usize| {
            let offset = self.layout.versions + (*page * PAGE_BYTES) as u64;
            (offset, Buf::from(&self.versions.encode_page(self.label.disk, *page)[..]))
        };
        self.checkpoint.versions = changed.iter().map(page_of).collect();
        self.checkpoint.versions_written = changed;
    }

    fn write_anchor(&mut self) {
        self.checkpoint.state = State::Anchoring;
        self.checkpoint.in_flight = 2;
        // A batch before the first: the anchor stays where it is.
        let through = if self.checkpoint.giving_up { 0 } else { self.checkpoint.through };
        let (tail_block, tail_sequence, previous) = self.journal.tail_after(through);
        let anchor = Anchor {
            sequence: self.checkpoint.anchor_sequence,
            incarnation: self.journal.incarnation(),
            tail_sequence,
            tail_block,
            previous,
            durable_through: self.journal.committed(),
            next_generation: self.slabs.next_generation(),
            scrub_slab: self.scrub.slab,
            scrub_block: self.scrub.block,
        };
        let bytes = Buf::from(&anchor.encode(self.label.disk)[..]);
        let slot = ANCHOR_SLOTS[(anchor.sequence % 2) as usize];
        for area in self.layout.areas() {
            self.write(Op::Anchor, WriteKind::Anchors, area + slot, bytes.clone().into(), true);
        }
    }

    pub(super) fn anchor_written(&mut self) {
        if self.checkpoint.state != State::Anchoring {
            return;
        }
        self.checkpoint.in_flight -= 1;
        if self.checkpoint.in_flight > 0 {
            return;
        }
        self.checkpoint.state = State::Idle;
        if std::mem::take(&mut self.checkpoint.giving_up) {
            self.checkpoint.stalled = true;
            self.checkpoint.requested = false;
            self.refuse_waiting_for_slab();
            return self.end_checkpoint();
        }
        let through = self.checkpoint.through;
        for key in std::mem::take(&mut self.checkpoint.blocks) {
            self.overlay.applied(key, through);
        }
        self.journal.release(through);
        self.health.checkpoints += 1;
        self.end_checkpoint();
        self.release_slabs(through);
    }

    fn end_checkpoint(&mut self) {
        self.checkpoint.blocks.clear();
        for id in std::mem::take(&mut self.checkpoint.waiting) {
            self.place_fresh(id);
        }
    }
}
