//! Checkpoints: journaled blocks go in place, changed metadata and tables with them; a flush; then
//! the versions of the changed pages, and a flush; then an anchor that frees their space in the
//! journal. All of it can be repeated: a crash before the anchor replays the same records again. A
//! checkpoint's number is the sequence of the anchor that ends it. A checkpoint that is given up
//! ends with an anchor too, one that moves nothing, so that no two checkpoints of a disk write
//! pages under one number.

use super::damage::Damage;
use super::device::Device;
use super::operation::{Attempt, JournalRead, Op};
use super::pages::Pages;
use super::scrub::Position;
use super::slab_table::SlabTable;
use super::volumes::Volumes;
use crate::anchor::Anchor;
use crate::health::{StoreHealth, WriteKind};
use crate::journal::{Journal, first_run};
use crate::layout::{ANCHOR_SLOTS, Layout, PAGE_BYTES, PROMISE_PAGES};
use crate::metadata::encode_page;
use crate::numbers::block_key;
use crate::overlay::Overlay;
use crate::planted::Planted;
use crate::slots::SlotId;
use crate::tables::{encode_promise_page, encode_slab_page};
use crate::versions::PageVersion;
use disk::{Disk, DiskError};
use std::collections::{BTreeSet, VecDeque};
use sys::{Buf, BufMut, Payload};
use types::{BLOCK_BYTES, DiskId, Lba, SlabIndex};

/// Disk operations of a checkpoint in flight at once: few, since it competes with foreground I/O.
const IN_FLIGHT_MAX: usize = 16;
/// Most blocks applied by one write.
const RUN_BLOCKS_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Applying,
    WantsFlush(Written),
    Flushing(Written),
    /// Writing the versions of the pages that are durable now.
    WritingVersions,
    Anchoring,
    /// Rewriting unreadable blocks of the journal that nothing needs any more.
    HealingJournal,
}

/// Structures that a flush makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    InPlace,
    Versions,
}

/// Invariant: an anchor that moves the journal's tail is written only when every change in the
/// journal up to `through` is durable in place, and the versions of the written pages are durable
/// too. A page that is not written ([`Ended::GivenUp`]) is dirty, changed or in the journal again
/// before the anchor that ends the checkpoint.
pub(super) struct Checkpoint {
    state: State,
    requested: bool,
    /// Whether the last one found no space on the disk; the next change makes it try again.
    stalled: bool,
    giving_up: bool,
    /// Checkpoints that have moved the journal's tail.
    done: u64,
    /// Sequence of the anchor that ends the present checkpoint, or ended the last one.
    anchor_sequence: u64,
    /// Batches up to this one are covered.
    through: u64,
    /// Blocks to apply, in order, and the number of those issued.
    blocks: Vec<u64>,
    next_block: usize,
    pages: VecDeque<u64>,
    pages_written: Vec<u64>,
    tables: VecDeque<(u64, Buf)>,
    versions: VecDeque<(u64, Buf)>,
    versions_written: BTreeSet<usize>,
    /// Pages of the slab table and the promises that are being written.
    table_changes: Option<(BTreeSet<usize>, bool)>,
    in_flight: usize,
    /// The anchors in the slots of even and of odd sequences, if both copies are known to be whole.
    anchors: [Option<Buf>; 2],
    /// Anchor slots to write before all copies are whole again, one by each checkpoint.
    anchors_due: usize,
    /// Blocks of live batches that the medium failed to read.
    unreadable: BTreeSet<u32>,
    /// Fresh writes that wait while their place is being applied.
    waiting: Vec<SlotId>,
}

impl Checkpoint {
    pub(super) fn new(anchor_sequence: u64, anchors: [Option<Buf>; 2]) -> Self {
        Self {
            anchors,
            anchors_due: 0,
            unreadable: BTreeSet::new(),
            state: State::Idle,
            requested: false,
            stalled: false,
            giving_up: false,
            done: 0,
            anchor_sequence,
            through: 0,
            blocks: Vec::new(),
            next_block: 0,
            pages: VecDeque::new(),
            pages_written: Vec::new(),
            tables: VecDeque::new(),
            versions: VecDeque::new(),
            versions_written: BTreeSet::new(),
            table_changes: None,
            in_flight: 0,
            waiting: Vec::new(),
        }
    }

    /// Requests a checkpoint. Returns whether none was requested before.
    pub(super) fn request(&mut self) -> bool {
        !std::mem::replace(&mut self.requested, true)
    }
    /// Requests a checkpoint, unless the next one would find too little space.
    pub(super) fn request_unless_stalled(&mut self) {
        self.requested |= !self.stalled;
    }
    /// Requests this many checkpoints, even with nothing to write, so that as many anchor slots are
    /// rewritten.
    pub(super) fn write_anchors(&mut self, count: usize) {
        self.anchors_due = self.anchors_due.max(count);
    }
    /// Returns the anchor in the slots of this parity, if both copies are known to be whole.
    pub(super) fn anchor_in(&self, parity: usize) -> Option<&Buf> {
        self.anchors[parity].as_ref()
    }
    /// Schedules unreadable blocks of live batches to be rewritten when nothing needs them any
    /// more: until then an opening may find them readable, and afterwards each opening that looks
    /// there for the journal's end would meet them.
    pub(super) fn heal_journal(&mut self, blocks: impl IntoIterator<Item = u32>) {
        self.unreadable.extend(blocks);
    }
    pub(super) fn unstall(&mut self) {
        self.stalled = false;
    }
    /// Repeats the request for a checkpoint that found no space. Returns whether there was one.
    pub(super) fn retry(&mut self) -> bool {
        let stalled = std::mem::take(&mut self.stalled);
        self.requested |= stalled;
        stalled
    }
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.requested && (self.anchors_due == 0 || self.stalled)
    }
    pub(super) fn is_running(&self) -> bool {
        self.state != State::Idle
    }
    /// Returns the number of the present checkpoint, or of the last one.
    pub(super) fn number(&self) -> u64 {
        self.anchor_sequence
    }
    /// Returns the version of the pages that the present checkpoint writes. Pages written between
    /// two checkpoints have that of the first: the next one's are newer.
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
    /// Whether blocks of the range may be in the process of being applied.
    pub(super) fn is_applying(&self, slab: SlabIndex, first: u32, count: u32) -> bool {
        let start = block_key(slab, first);
        let at = self.blocks.partition_point(|key| *key < start);
        self.blocks.get(at).is_some_and(|key| *key < start + u64::from(count))
    }
    pub(super) fn await_end(&mut self, id: SlotId) {
        self.waiting.push(id);
    }
    pub(super) fn done(&self) -> u64 {
        self.done
    }
    /// Whether no checkpoint runs, and none begins because the last one found no space.
    pub(super) fn is_stalled(&self) -> bool {
        self.state == State::Idle && self.stalled
    }
    pub(super) fn abandon(&mut self) {
        self.state = State::Idle;
        self.requested = false;
        self.anchors_due = 0;
        self.waiting.clear();
    }

    /// Begins a checkpoint if one is due, and issues the next writes of the one that runs.
    pub(super) fn run<D: Disk>(&mut self, mut near: CheckpointNeighbours<'_, D>) -> Option<Ended> {
        if self.state == State::Idle {
            if self.stalled || !self.is_due(&near) {
                return None;
            }
            self.begin(&mut near);
        }
        if !matches!(self.state, State::Applying | State::WritingVersions) {
            return None;
        }
        while self.in_flight < IN_FLIGHT_MAX && !self.giving_up {
            match self.next_work(&mut near) {
                Work::Write { page, kind, offset, data } => {
                    self.in_flight += 1;
                    near.device.write(Op::CheckpointWrite { page }, kind, offset, data, false);
                }
                Work::ReadJournal { key, sequence, block } => {
                    self.in_flight += 1;
                    let read = JournalRead { key, sequence, attempt: Attempt::First };
                    read_journaled(read, block, near.layout, near.device);
                }
                Work::Nothing => break,
            }
        }
        if self.in_flight > 0 {
            return None;
        }
        if self.giving_up {
            return self.give_up(&mut near);
        }
        if Planted::AnchorBeforeFlush.is_planted() {
            self.write_anchor(&mut near);
        } else if self.state == State::Applying {
            self.state = State::WantsFlush(Written::InPlace);
        } else {
            self.state = State::WantsFlush(Written::Versions);
        }
        None
    }

    fn is_due<D>(&self, near: &CheckpointNeighbours<'_, D>) -> bool {
        let cache = &near.pages.cache;
        self.requested
            || self.anchors_due > 0
            || near.journal.used_blocks() > near.journal.blocks() / 2
            || near.overlay.kept_bytes() > near.overlay.budget_bytes() / 2
            || cache.dirty_pages() > cache.budget_pages() / 2
    }

    fn begin<D>(&mut self, near: &mut CheckpointNeighbours<'_, D>) {
        self.requested = false;
        let tables_changed = near.slabs.is_changed() || near.volumes.is_changed();
        let nothing = near.journal.used_blocks() == 0
            && near.overlay.is_empty()
            && near.pages.cache.dirty_pages() == 0
            && !tables_changed
            && !near.slabs.has_quarantined()
            && !near.pages.versions.is_changed()
            && self.anchors_due == 0;
        if nothing {
            return;
        }
        self.state = State::Applying;
        self.anchor_sequence += 1;
        self.through = near.journal.committed();
        self.blocks = near.overlay.sorted_keys();
        self.next_block = 0;
        let mut pages = near.pages.cache.dirty_keys();
        pages.sort_unstable();
        self.pages = pages.into();
        self.pages_written.clear();
        self.tables.clear();
        self.versions_written.clear();
        self.table_changes = None;
        if tables_changed {
            self.gather_tables(near);
        }
        if Planted::VersionsBeforePages.is_planted() {
            self.gather_versions_too_early(near);
        }
    }

    /// Writes the pages' future versions with the first writes, for a planted bug.
    fn gather_versions_too_early<D>(&mut self, near: &mut CheckpointNeighbours<'_, D>) {
        let versions = &mut near.pages.versions;
        for key in &self.pages {
            versions.written(SlabIndex((*key >> 32) as u32), *key as u32, self.version());
        }
        for page in versions.take_changed() {
            let bytes = Buf::from(&versions.encode_page(near.disk, page)[..]);
            self.tables.push_front((near.layout.versions + (page * PAGE_BYTES) as u64, bytes));
        }
    }

    /// Gathers the changed pages of the tables, for both copies.
    fn gather_tables<D>(&mut self, near: &mut CheckpointNeighbours<'_, D>) {
        let (slab_pages, sequence) = near.slabs.take_changed();
        let promises = near.volumes.take_changed();
        let (disk, slabs) = (near.disk, near.slabs.entries());
        let encode = |page: usize| Buf::from(&encode_slab_page(disk, page, sequence, slabs)[..]);
        let mut pages: Vec<(u64, Buf)> =
            slab_pages.iter().map(|page| (*page as u64, encode(*page))).collect();
        if promises {
            let promised = near.volumes.arrange();
            let first = near.layout.slab_table_pages();
            for page in 0..PROMISE_PAGES {
                let bytes = encode_promise_page(disk, page, sequence, &promised);
                pages.push(((first + page) as u64, Buf::from(&bytes[..])));
            }
        }
        for copy in near.layout.tables {
            let placed = pages.iter().map(|(page, bytes)| (copy + page * PAGE_BYTES as u64, bytes.clone()));
            self.tables.extend(placed);
        }
        self.table_changes = Some((slab_pages, promises));
    }

    fn next_work<D>(&mut self, near: &mut CheckpointNeighbours<'_, D>) -> Work {
        if self.state == State::WritingVersions {
            return match self.versions.pop_front() {
                Some((offset, bytes)) => {
                    Work::Write { page: None, kind: WriteKind::Tables, offset, data: bytes.into() }
                }
                None => Work::Nothing,
            };
        }
        if let Some((offset, bytes)) = self.tables.pop_front() {
            return Work::Write { page: None, kind: WriteKind::Tables, offset, data: bytes.into() };
        }
        while let Some(key) = self.pages.pop_front() {
            let (slab, page) = (SlabIndex((key >> 32) as u32), key as u32);
            let Some(entry) = near.slabs.entry(slab) else { continue };
            let identity = near.pages.identity(slab, entry, page);
            let Some(words) = near.pages.cache.begin_write(key) else { continue };
            let data = Payload::from(encode_page(identity, self.version(), words));
            self.pages_written.push(key);
            let offset = near.layout.page_offset(slab, page);
            return Work::Write { page: Some(key), kind: WriteKind::Metadata, offset, data };
        }
        self.next_run(near.overlay, near.layout)
    }

    /// Returns the next consecutive blocks that are not in place yet.
    fn next_run(&mut self, overlay: &Overlay, layout: &Layout) -> Work {
        let (mut data, mut first, mut count) = (Payload::new(), None, 0);
        while let Some(&key) = self.blocks.get(self.next_block) {
            let entry = overlay.get(key).filter(|entry| entry.sequence <= self.through);
            let follows = first.is_none_or(|first| key == first + count as u64);
            if count > 0
                && (!follows || count == RUN_BLOCKS_MAX || entry.is_none_or(|entry| entry.bytes.is_none()))
            {
                break;
            }
            self.next_block += 1;
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
                let offset = key_offset(key, layout);
                Work::Write { page: None, kind: WriteKind::Applied, offset, data }
            }
        }
    }

    /// Handles the read of a journaled block that was not kept in RAM. A block that does not match
    /// its record is not applied: the old one in place fails that checksum, and is repaired from
    /// another copy.
    ///
    /// # Errors
    /// The disk as a whole failed.
    pub(super) fn journal_read<D: Disk>(
        &mut self,
        read: JournalRead,
        result: Result<Option<BufMut>, DiskError>,
        near: CheckpointNeighbours<'_, D>,
    ) -> Result<(), DiskError> {
        let JournalRead { key, sequence, attempt } = read;
        let bytes = match result {
            Ok(Some(bytes)) => Some(bytes.freeze()),
            Err(DiskError::Medium(_)) => None,
            Ok(None) => return Err(DiskError::Invalid("a read without its buffer")),
            Err(error) => return Err(error),
        };
        let entry = near.overlay.get(key).filter(|entry| entry.sequence == sequence && !self.giving_up);
        let (slab, block) = (SlabIndex((key >> 32) as u32), key as u32);
        let (Some(entry), Some(owner)) = (entry, near.slabs.entry(slab)) else {
            self.in_flight -= 1;
            return Ok(());
        };
        let lba = Lba(u64::from(owner.chunk.0) * u64::from(near.layout.slab_blocks()) + u64::from(block));
        let is_intact = |bytes: &Buf| codes::block_matches(owner.volume, lba, bytes, entry.checksum);
        let unreadable = bytes.is_none();
        match (bytes.filter(is_intact), attempt) {
            (Some(bytes), _) => {
                let op = Op::CheckpointWrite { page: None };
                near.device.write(op, WriteKind::Applied, key_offset(key, near.layout), bytes.into(), false);
            }
            (None, Attempt::First) => {
                let again = JournalRead { attempt: Attempt::Second, ..read };
                read_journaled(again, entry.journal_block, near.layout, near.device);
            }
            (None, Attempt::Second) => {
                self.in_flight -= 1;
                let only = std::iter::once(block);
                if unreadable {
                    near.damage.note_unreadable(slab, only);
                    self.heal_journal([entry.journal_block]);
                } else {
                    near.damage.note_corrupt(slab, only);
                }
            }
        }
        Ok(())
    }

    /// Notes the end of a write: that of a page, if `page` is given.
    ///
    /// # Errors
    /// An error of the write, except lack of space.
    pub(super) fn written(
        &mut self,
        page: Option<u64>,
        result: Result<(), DiskError>,
        pages: &mut Pages,
        damage: &mut Damage,
    ) -> Result<(), DiskError> {
        match (result, page) {
            (Ok(()), None) => {}
            (Ok(()), Some(key)) => {
                let (slab, page) = (SlabIndex((key >> 32) as u32), key as u32);
                pages.versions.written(slab, page, self.version());
                damage.page_written(key);
                pages.cache.end_write(key);
            }
            (Err(DiskError::NoSpace), page) => {
                self.giving_up = true;
                // The page is only in RAM: it must not be evicted before the checkpoint has been
                // given up.
                page.iter().for_each(|key| pages.cache.undo_write(*key));
            }
            (Err(error), _) => return Err(error),
        }
        debug_assert!(self.in_flight > 0, "each write of a checkpoint ends once");
        self.in_flight -= 1;
        Ok(())
    }

    /// Gives up because the file under the disk cannot grow. Nothing is lost: everything stays in
    /// the journal, and later changes find it full.
    fn give_up<D: Disk>(&mut self, near: &mut CheckpointNeighbours<'_, D>) -> Option<Ended> {
        for key in std::mem::take(&mut self.pages_written) {
            near.pages.cache.undo_write(key);
        }
        if let Some((pages, promises)) = self.table_changes.take() {
            near.slabs.mark_changed_pages(pages);
            if promises {
                near.volumes.mark_changed();
            }
        }
        near.pages.versions.mark_changed(std::mem::take(&mut self.versions_written));
        self.versions.clear();
        near.health.no_space += 1;
        if Planted::NumberTwice.is_planted() {
            self.giving_up = false;
            self.state = State::Idle;
            self.stalled = true;
            return Some(Ended::GivenUp { waiting: self.end() });
        }
        self.write_anchor(near);
        None
    }

    /// Continues after a flush. When everything in place is durable, writes the pages' versions;
    /// when they are durable too, moves the anchor behind them.
    pub(super) fn flushed<D: Disk>(&mut self, mut near: CheckpointNeighbours<'_, D>) {
        match self.state {
            State::Flushing(Written::InPlace) => self.gather_versions(&mut near),
            State::Flushing(Written::Versions) => self.write_anchor(&mut near),
            _ => {}
        }
    }

    fn gather_versions<D: Disk>(&mut self, near: &mut CheckpointNeighbours<'_, D>) {
        let versions = &mut near.pages.versions;
        let changed = versions.take_changed();
        if changed.is_empty() {
            return self.write_anchor(near);
        }
        self.state = State::WritingVersions;
        let page_of = |page: &usize| {
            let offset = near.layout.versions + (*page * PAGE_BYTES) as u64;
            (offset, Buf::from(&versions.encode_page(near.disk, *page)[..]))
        };
        self.versions = changed.iter().map(page_of).collect();
        self.versions_written = changed;
    }

    fn write_anchor<D: Disk>(&mut self, near: &mut CheckpointNeighbours<'_, D>) {
        self.state = State::Anchoring;
        self.in_flight = 2;
        // Batch 0: the anchor stays in its place.
        let through = if self.giving_up { 0 } else { self.through };
        let (tail_block, tail_sequence, previous) = near.journal.tail_after(through);
        let anchor = Anchor {
            sequence: self.anchor_sequence,
            incarnation: near.journal.incarnation(),
            tail_sequence,
            tail_block,
            previous,
            durable_through: near.journal.proven(),
            next_generation: near.slabs.next_generation(),
            scrub_slab: near.scrub.slab,
            scrub_block: near.scrub.block,
        };
        let bytes = Buf::from(&anchor.encode(near.disk)[..]);
        let parity = (anchor.sequence % 2) as usize;
        let slot = ANCHOR_SLOTS[parity];
        self.anchors[parity] = Some(bytes.clone());
        for area in near.layout.areas() {
            near.device.write(Op::Anchor, WriteKind::Anchors, area + slot, bytes.clone().into(), true);
        }
    }

    /// Notes that a copy of the anchor is durable. If that was the last write, returns how the
    /// checkpoint ended.
    pub(super) fn anchor_written<D: Disk>(&mut self, ending: Ending<'_, D>) -> Option<Ended> {
        if self.state != State::Anchoring {
            return None;
        }
        self.in_flight -= 1;
        if self.in_flight > 0 {
            return None;
        }
        self.anchors_due -= self.anchors_due.min(1);
        if std::mem::take(&mut self.giving_up) {
            self.state = State::Idle;
            self.stalled = true;
            self.requested = false;
            return Some(Ended::GivenUp { waiting: self.end() });
        }
        self.state = State::HealingJournal;
        self.heal_next(ending)
    }

    /// Notes that pages of the journal were rewritten. If they were the last, returns how the
    /// checkpoint ended.
    pub(super) fn journal_healed<D: Disk>(&mut self, ending: Ending<'_, D>) -> Option<Ended> {
        if self.state != State::HealingJournal {
            return None;
        }
        self.in_flight -= 1;
        self.heal_next(ending)
    }

    /// Writes zeroes over the next unreadable blocks of the journal that the anchor has passed.
    /// Their space is not freed before that, so no batch is being written there.
    fn heal_next<D: Disk>(&mut self, ending: Ending<'_, D>) -> Option<Ended> {
        let Ending { layout, device, overlay, journal } = ending;
        let needed = journal.place_behind(self.through);
        let passed = self.unreadable.iter().copied().filter(|block| !needed.contains(*block));
        let Some(run) = first_run(passed) else { return Some(self.finish(overlay, journal)) };
        self.unreadable.retain(|block| !run.contains(block));
        self.in_flight += 1;
        let zeroes = BufMut::zeroed(run.len() * PAGE_BYTES).freeze();
        let offset = layout.journal_offset(run.start);
        device.write(Op::JournalBlocks, WriteKind::Journal, offset, zeroes.into(), true);
        None
    }

    fn finish(&mut self, overlay: &mut Overlay, journal: &mut Journal) -> Ended {
        self.state = State::Idle;
        let through = self.through;
        for key in std::mem::take(&mut self.blocks) {
            overlay.applied(key, through);
        }
        journal.release(through);
        self.done += 1;
        Ended::Done { through, waiting: self.end() }
    }

    /// Ends the checkpoint: nothing is being applied any more. Returns the fresh writes that waited
    /// for that.
    fn end(&mut self) -> Vec<SlotId> {
        self.blocks.clear();
        std::mem::take(&mut self.waiting)
    }
}

/// End of a checkpoint, with the fresh writes that waited for it.
pub(super) enum Ended {
    /// The journal's batches up to `through` are in place, and their space is free.
    Done { through: u64, waiting: Vec<SlotId> },
    /// There was no space on the disk.
    GivenUp { waiting: Vec<SlotId> },
}

/// The parts that a checkpoint writes in place or reads.
pub(super) struct CheckpointNeighbours<'a, D> {
    pub(super) disk: DiskId,
    pub(super) layout: &'a Layout,
    pub(super) device: &'a mut Device<D>,
    pub(super) journal: &'a Journal,
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a mut Pages,
    pub(super) slabs: &'a mut SlabTable,
    pub(super) volumes: &'a mut Volumes,
    pub(super) damage: &'a mut Damage,
    pub(super) health: &'a mut StoreHealth,
    /// Stored in the anchor.
    pub(super) scrub: Position,
}

/// The parts that get the end of a checkpoint.
pub(super) struct Ending<'a, D> {
    pub(super) layout: &'a Layout,
    pub(super) device: &'a mut Device<D>,
    pub(super) overlay: &'a mut Overlay,
    pub(super) journal: &'a mut Journal,
}

/// A unit of a checkpoint's work.
enum Work {
    Write { page: Option<u64>, kind: WriteKind, offset: u64, data: Payload },
    ReadJournal { key: u64, sequence: u64, block: u32 },
    Nothing,
}

fn key_offset(key: u64, layout: &Layout) -> u64 {
    layout.block_offset(SlabIndex((key >> 32) as u32), key as u32)
}

fn read_journaled<D: Disk>(read: JournalRead, block: u32, layout: &Layout, device: &mut Device<D>) {
    device.read(Op::CheckpointRead(read), layout.journal_offset(block), BLOCK_BYTES);
}
