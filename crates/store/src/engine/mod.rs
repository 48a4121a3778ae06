//! The running store: requests in, disk operations out, answers back.
//!
//! A request becomes a task (`requests`). A task with a change waits for its turn in its slab's
//! queue ([`crate::locks`]), then for its metadata pages, then acts by its kind (`read`, `write`,
//! `append`, `discard`, `slab`). Between two events a task does nothing: it gets one
//! ([`event::Event`]) and answers with its next step ([`event::Next`]). The store performs that
//! step (`steps`). Changes become visible when their journal batch is durable, in batch order: a
//! read sees the state that a crash would leave.
//!
//! The state is in parts, each with its invariant above it. A part gets the neighbours that it may
//! use as arguments, and nothing else.

mod append;
mod checkpoint;
mod damage;
mod device;
mod discard;
mod effect;
mod event;
mod flushes;
mod operation;
mod pages;
mod place;
mod read;
mod records;
mod regions;
mod requests;
mod scrub;
mod slab;
mod slab_table;
mod steps;
mod structures;
mod tasks;
mod volumes;
mod write;

use crate::anchor::Anchor;
use crate::api::{StoreCompletion, StoreError, StoreReply};
use crate::health::{StoreHealth, WriteKind};
use crate::io::DiskWork;
use crate::journal::Journal;
use crate::label::Label;
use crate::layout::{Layout, PAGE_BYTES, RECORDS_SLOT_BYTES};
use crate::open::{Opened, claim, examine};
use crate::open_error::OpenError;
use crate::overlay::Overlay;
use crate::planted::Planted;
use crate::slots::SlotId;
use append::Placing;
use checkpoint::Checkpoint;
use damage::{Damage, Losses};
use device::Device;
use disk::{Disk, DiskCompletion, DiskError, DiskOperation};
use event::Event;
use flushes::Flushes;
use operation::Op;
use pages::Pages;
use records::Records;
use slab_table::SlabTable;
use structures::Structures;
use sys::{Buf, BufMut};
use tasks::Tasks;
use types::{Epoch, PoolId, VolumeId};
use volumes::Volumes;

pub use slab_table::ChunkInfo;

/// Bounds of a store's memory.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Metadata pages kept in RAM; 4 KiB serve about 2 MiB of data.
    pub metadata_cache_bytes: usize,
    /// Journaled blocks kept in RAM until they are applied.
    pub overlay_bytes: usize,
    /// Refuses the disk if it belongs to another pool.
    pub pool: Option<PoolId>,
    /// Compares the data of every write with its checksums, not only of those that may go through
    /// the journal. Not needed if the checksums were computed in the same process: reads still find
    /// any damage.
    pub verify_writes: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { metadata_cache_bytes: 16 << 20, overlay_bytes: 32 << 20, pool: None, verify_writes: true }
    }
}

/// One open disk.
pub struct Store<D: Disk> {
    label: Label,
    layout: Layout,
    options: StoreOptions,
    device: Device<D>,
    tasks: Tasks,
    pages: Pages,
    slabs: SlabTable,
    volumes: Volumes,
    journal: Journal,
    overlay: Overlay,
    flushes: Flushes,
    checkpoint: Checkpoint,
    records: Records,
    scrub: scrub::Position,
    structures: Structures,
    placing: Placing,
    damage: Damage,
    /// Small fresh writes that wait for the next poll, which decides how to write them.
    small_fresh: Vec<SlotId>,
    poisoned: bool,
    /// Counters that belong to no part.
    health: StoreHealth,
    zeroes: Buf,
    arrived: Vec<DiskCompletion>,
    /// Whether a request has come since the last poll.
    touched: bool,
    /// Progress that continues a poll, besides operations started and tasks ended.
    moves: u64,
}

/// A disk being opened; poll it for the result.
pub struct StoreOpening<D: Disk> {
    work: DiskWork<D, Result<Opened, OpenError>>,
    options: StoreOptions,
}

impl<D: Disk + 'static> StoreOpening<D> {
    /// Begins to open a formatted disk: reads its structures and replays its journal in polls.
    pub fn new(disk: D, options: StoreOptions) -> Self {
        let work = DiskWork::new(disk, move |io| async move {
            let mut opened = examine(&io, options.pool).await?;
            claim(&io, &mut opened).await?;
            Ok(opened)
        });
        Self { work, options }
    }

    /// Polls the disk. Returns `None` while the opening is in progress; then, once, the store or
    /// the error.
    pub fn poll(&mut self) -> Option<Result<Store<D>, OpenError>> {
        let (result, disk) = self.work.poll()?;
        Some(result.map(|opened| Store::from_opened(disk, opened, self.options)))
    }
}

impl<D: Disk + 'static> Store<D> {
    /// Opens a formatted disk and replays its journal; waits for it.
    ///
    /// # Errors
    /// [`OpenError`]; nothing on the disk was changed except after `Disk`.
    pub fn open(disk: D) -> Result<Self, OpenError> {
        Self::open_with(disk, StoreOptions::default())
    }

    /// As [`Self::open`], with other bounds.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(disk: D, options: StoreOptions) -> Result<Self, OpenError> {
        let (result, disk) = StoreOpening::new(disk, options).work.run();
        result.map(|opened| Self::from_opened(disk, opened, options))
    }

    /// Drops the state in RAM and opens the disk anew: label, tables and journal are read again.
    /// This recovers a poisoned store (I9), if the disk bypasses the page cache; otherwise its file
    /// must be opened anew too, to drop its cached pages. Unanswered requests stay unanswered.
    pub fn reverify(self) -> StoreOpening<D> {
        let options = self.options;
        StoreOpening::new(self.device.into_disk(), options)
    }
}

impl<D: Disk> Store<D> {
    fn from_opened(disk: D, opened: Opened, options: StoreOptions) -> Self {
        let Opened { label, anchor, records, versions, replayed, merged, own, .. } = opened;
        let mut slabs = SlabTable::new(opened.slabs, replayed.next_generation, opened.table_sequence);
        replayed.freed.iter().for_each(|(slab, sequence)| slabs.quarantine(*slab, *sequence, false));
        slabs.mark_changed(replayed.changed_slabs.iter().copied());
        slabs.mark_changed_pages(opened.tables_differ.slab_pages);
        let layout = label.layout.clone();
        let mut overlay = Overlay::new(options.overlay_bytes);
        replayed.blocks.into_iter().for_each(|(key, entry)| overlay.insert(key, entry));
        let promises_changed = replayed.changed_promises || opened.tables_differ.promises;
        let damaged_structures = own.pages.len() as u64;
        let losses = Losses {
            corrupt_blocks: damaged_structures + merged.damaged_pages,
            damaged_metadata_leaves: merged.damaged_leaves,
            lost_writes: merged.lost_writes,
            medium_errors: own.unreadable,
            damaged_structures,
        };
        let encode = |anchor: Anchor| Buf::from(&anchor.encode(label.disk)[..]);
        let mut checkpoint =
            Checkpoint::new(anchor.sequence, own.whole_anchors.map(|anchor| anchor.map(encode)));
        if own.anchors {
            // The opening has written the other slot.
            checkpoint.write_anchors(1);
        }
        if damaged_structures > 0 {
            checkpoint.request();
        }
        checkpoint.heal_journal(own.journal);
        let mut journal = Journal::new(label.disk, layout.journal_blocks(), &anchor, replayed.live);
        journal.withdraw_found(replayed.void_from, &replayed.void);
        let mut damage = Damage::new(losses, own.pages, anchor.sequence);
        own.labels.iter().for_each(|label| damage.structures_written(*label..label + 1));
        Self {
            device: Device::new(disk, anchor.incarnation),
            tasks: Tasks::new(anchor.incarnation),
            pages: Pages::new(label.disk, options.metadata_cache_bytes, versions, merged.pages),
            slabs,
            volumes: Volumes::new(opened.promises, opened.promise_places, promises_changed),
            journal,
            overlay,
            flushes: Flushes::default(),
            checkpoint,
            records: Records::new(records),
            scrub: scrub::Position::stored(anchor.scrub_slab, anchor.scrub_block, layout.slab_count),
            structures: Structures::default(),
            placing: Placing::default(),
            damage,
            small_fresh: Vec::new(),
            label,
            layout,
            options,
            poisoned: false,
            health: StoreHealth::default(),
            zeroes: BufMut::zeroed(1 << 20).freeze(),
            arrived: Vec::new(),
            touched: true,
            moves: 0,
        }
    }

    /// Returns the label as it is on disk.
    pub fn label(&self) -> &Label {
        &self.label
    }
    /// Returns path, size and block size of the disk.
    pub fn disk_info(&self) -> &disk::DiskInfo {
        self.device.info()
    }
    /// Returns the disk itself, for tests that look behind the store.
    pub fn disk_mut(&mut self) -> &mut D {
        self.device.disk_mut()
    }
    /// Returns the disk, and drops all operations in flight.
    pub fn into_disk(self) -> D {
        self.device.into_disk()
    }
    /// Returns the highest epoch durably promised to the volume; zero if none was.
    pub fn promised(&self, volume: VolumeId) -> Epoch {
        self.volumes.promised(volume)
    }
    /// Drops the doubts left by the journal's end about regions of the volume last changed under
    /// `settled` or earlier: all copies in sync, this one among them, were made equal there.
    pub fn settle(&mut self, volume: VolumeId, settled: Epoch) {
        self.slabs.settle(volume, settled);
    }
    /// Whether the journal's end left unsettled data of the volume in doubt, at this opening or an
    /// earlier one.
    pub fn is_doubtful(&self, volume: VolumeId) -> bool {
        self.slabs.is_doubtful(volume)
    }
    /// Returns every volume that was promised an epoch, with that epoch.
    pub fn promises(&self) -> Vec<(VolumeId, Epoch)> {
        self.volumes.promises()
    }
    /// Returns all chunks that have a slab here.
    pub fn chunks(&self) -> Vec<ChunkInfo> {
        self.slabs.chunks()
    }
    /// Returns the byte ranges (offset, length) beside the slabs that are rewritten repeatedly,
    /// like the journal. The metadata of a slab are first written when it is allocated.
    pub fn own_ranges(&self) -> [(u64, u64); 2] {
        let Layout { metadata, versions, size_bytes, .. } = self.layout;
        [(0, metadata), (versions, size_bytes - versions)]
    }
    /// Returns the byte range (offset, length) of a slab.
    pub fn slab_range(&self, slab: types::SlabIndex) -> (u64, u64) {
        (self.layout.block_offset(slab, 0), self.layout.slab_bytes)
    }
    /// Returns the number of slabs on the disk, allocated or not.
    pub fn slab_count(&self) -> u32 {
        self.layout.slab_count
    }
    /// Returns the number of slabs that can be allocated, including those that the next checkpoint
    /// frees.
    pub fn free_slabs(&self) -> u32 {
        self.slabs.free_count()
    }
    /// Returns the number of blocks of one slab.
    pub fn slab_blocks(&self) -> u32 {
        self.layout.slab_blocks()
    }
    /// Returns this disk's copy of the cluster's records; empty if none was set.
    pub fn records(&self) -> &[u8] {
        self.records.current()
    }
    /// Returns the approximate RAM, in bytes, of the slab table and the pages' versions.
    pub fn table_bytes(&self) -> usize {
        self.slabs.memory_bytes() + self.pages.versions.memory_bytes()
    }
    /// Whether a write or flush failed: the store writes nothing until [`Self::reverify`].
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
    /// Whether no operation is in flight and no request waits.
    pub fn is_idle(&self) -> bool {
        self.tasks.len() == 0
            && self.device.is_idle()
            && self.journal.is_idle()
            && self.checkpoint.is_idle()
            && self.records.is_idle()
            && !self.tasks.has_answers()
    }
    /// Returns counters since the store was opened, and fill levels.
    pub fn health(&self) -> StoreHealth {
        let Losses {
            corrupt_blocks,
            medium_errors,
            damaged_metadata_leaves,
            lost_writes,
            damaged_structures,
        } = self.damage.losses();
        StoreHealth {
            poisoned: self.poisoned,
            journal_used_bytes: u64::from(self.journal.used_blocks()) * PAGE_BYTES as u64,
            journal_bytes: self.layout.journal_bytes,
            overlay_blocks: self.overlay.len() as u64,
            overlay_kept_bytes: self.overlay.kept_bytes() as u64,
            cached_pages: self.pages.cache.len() as u64,
            dirty_pages: self.pages.cache.dirty_pages() as u64,
            corrupt_blocks,
            medium_errors,
            damaged_structures,
            damaged_metadata_leaves,
            lost_writes,
            written: self.device.written(),
            read_bytes: self.device.read_bytes(),
            page_reads: self.pages.reads(),
            checkpoints: self.checkpoint.done(),
            ..self.health.clone()
        }
    }
    /// Compares the data of every write with its checksums from now on ([`StoreOptions::verify_writes`]).
    pub fn verify_writes(&mut self) {
        self.options.verify_writes = true;
    }

    /// Applies everything in the journal soon, so that the next opening has nothing to replay.
    pub fn request_checkpoint(&mut self) {
        self.touched = true;
        self.checkpoint.request();
    }

    /// Retries writes that found no space under a thin disk; to be called at intervals. Journaled
    /// blocks go in place, and freed slabs can be allocated, without waiting for the next change.
    pub fn retry(&mut self) {
        if self.checkpoint.retry() {
            self.touched = true;
        }
    }

    /// Whether [`Self::poll`] may have something to do.
    pub fn has_news(&self) -> bool {
        self.touched || self.tasks.has_answers() || self.device.has_news()
    }

    /// Polls the disk, issues the operations gathered since the last poll, and moves the present
    /// answers into `out`.
    pub fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        if !self.has_news() {
            return;
        }
        self.touched = false;
        let mut arrived = std::mem::take(&mut self.arrived);
        self.device.poll(&mut arrived);
        for completion in arrived.drain(..) {
            self.complete(completion);
        }
        self.arrived = arrived;
        // An issued operation may let others begin, which must be issued too.
        loop {
            let before = self.progress();
            self.start_ready();
            self.issue();
            if self.progress() == before && !self.tasks.is_ready() {
                break;
            }
        }
        self.tasks.take_answers(out);
    }

    /// Counts the progress that lets a poll continue.
    fn progress(&self) -> (u64, u64, u64) {
        (self.device.started(), self.tasks.ended(), self.moves)
    }

    /// Issues gathered operations: a flush, journal batches, a checkpoint's next writes.
    fn issue(&mut self) {
        for id in std::mem::take(&mut self.small_fresh) {
            self.tell(id, Event::Polled);
        }
        if self.poisoned {
            return;
        }
        self.run_checkpoint();
        self.records.write_next(self.label.disk, &self.layout, &mut self.device);
        if self.flushes.begin(self.checkpoint.wants_flush()) {
            self.checkpoint.flush_started();
            self.health.flushes += 1;
            self.device.start(Op::Flush, DiskOperation::Flush);
            self.flush_begun();
        }
        while let Some(batch) = self.journal.cut() {
            let offset = self.layout.journal_offset(batch.block);
            self.health.batches += 1;
            let durable = !Planted::AckBeforeDurable.is_planted();
            let op = Op::Batch { sequence: batch.sequence };
            self.device.write(op, WriteKind::Journal, offset, batch.data, durable);
        }
        if self.journal.is_starved() {
            if self.checkpoint.is_stalled() {
                self.refuse_pending();
            } else if self.checkpoint.request() {
                self.moves += 1;
            }
        }
    }

    /// Passes the answer to a disk operation to its part. A failed write or flush poisons the
    /// store.
    fn complete(&mut self, completion: DiskCompletion) {
        let Some(op) = self.device.end(completion.token) else { return };
        let result = completion.result;
        match op {
            Op::ReadSegment { task, segment } => self.tell(task, Event::SegmentRead { segment, result }),
            Op::Page(read) => self.page_read(read, result),
            Op::ScrubPage { read, version } => scrub::page_read(
                read,
                version,
                result,
                &self.slabs,
                &mut self.pages,
                &mut self.damage,
                &self.layout,
                &mut self.device,
            ),
            Op::Data { task } => self.data_written(task, result.map(drop)),
            Op::Punch { slab } => self.punched(slab),
            Op::CheckpointRead(_) | Op::CheckpointWrite { .. } if self.poisoned => {}
            Op::CheckpointRead(read) => {
                let (checkpoint, near) = self.checkpoint_beside_neighbours();
                let read = checkpoint.journal_read(read, result, near);
                self.poison_if_failed(read);
            }
            Op::CheckpointWrite { page } => {
                let (pages, damage) = (&mut self.pages, &mut self.damage);
                let written = self.checkpoint.written(page, result.map(drop), pages, damage);
                self.poison_if_failed(written);
            }
            Op::Structure => {
                let (structures, near) = self.structures_beside_neighbours();
                let ended = structures.read(result, near);
                self.structures_ended(ended);
            }
            Op::Batch { .. }
            | Op::Flush
            | Op::Anchor
            | Op::JournalBlocks
            | Op::Records
            | Op::Label { .. } => match result {
                Ok(_) => self.durable(op),
                Err(error) => self.poison(&error),
            },
        }
    }

    /// Continues the work that a durable write or a flush allows.
    fn durable(&mut self, op: Op) {
        match op {
            Op::Batch { sequence } => self.batch_written(sequence),
            Op::Flush => self.flushed(),
            Op::Anchor => self.end_checkpoint(Checkpoint::anchor_written),
            Op::JournalBlocks => self.end_checkpoint(Checkpoint::journal_healed),
            Op::Records => {
                let written = self.records.written(self.label.disk, &self.layout, &mut self.device);
                let Some((slots, task)) = written else { return };
                for slot in slots {
                    self.damage.structures_written(slot..slot + RECORDS_SLOT_BYTES);
                }
                if let Some(id) = task {
                    self.tasks.finish(id, Ok(StoreReply::Done), &mut self.pages);
                }
                self.resume_structures();
            }
            Op::Label { offset } => {
                self.damage.structures_written(offset..offset + 1);
                let (structures, near) = self.structures_beside_neighbours();
                let ended = structures.label_written(near);
                self.structures_ended(ended);
            }
            op => debug_assert!(false, "{op:?} is not judged by whether it is durable alone"),
        }
    }

    fn poison_if_failed(&mut self, result: Result<(), DiskError>) {
        if let Err(error) = result {
            self.poison(&error);
        }
    }

    /// Refuses every change from here on, while reads continue (I9): after a failed write or flush,
    /// the disk's content is unknown beyond the part that was durable.
    fn poison(&mut self, error: &DiskError) {
        if self.poisoned {
            return;
        }
        self.poisoned = true;
        self.health.poisoned_by = Some(error.clone());
        self.journal.abandon();
        self.small_fresh.clear();
        self.placing.abandon();
        self.flushes.abandon();
        self.checkpoint.abandon();
        self.records.abandon();
        self.volumes.abandon();
        self.tasks.refuse_changes(&StoreError::Poisoned, &mut self.pages);
        let ended = self.structures.give_up();
        self.structures_ended(ended);
    }
}
