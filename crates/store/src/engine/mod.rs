//! The store at work: requests in, disk operations out, answers back. One file per concern; this one holds the state,
//! takes requests, hands disk completions to their tasks, and answers.
//!
//! A request becomes a task. A task that changes something waits for its turn in its slab's line ([`crate::locks`]), then for
//! its metadata pages, then acts by its kind. Changes become visible when their journal batch is durable, in batch order:
//! what a read sees is what a crash would leave.

mod append;
mod checkpoint;
mod chunk;
mod commit;
mod corrupt;
mod read;
mod scrub;
mod task;
mod write;

use crate::api::{StoreCompletion, StoreError, StoreReply, StoreRequest};
use crate::cache::PageCache;
use crate::health::{StoreHealth, WriteKind};
use crate::io::Work;
use crate::journal::Journal;
use crate::label::Label;
use crate::layout::{Layout, PAGE_BYTES, PAGE_WORDS};
use crate::locks::Locks;
use crate::metadata::{FoundPage, page_identity, parse_page};
use crate::numbers::{IdentityMap, page_key};
use crate::open::{Opened, claim, examine};
use crate::open_error::OpenError;
use crate::overlay::Overlay;
use crate::planted::Planted;
use crate::replay::Doubt;
use crate::slots::{SlotId, Slots};
use crate::tables::{PromisePlaces, SlabEntry};
use crate::versions::PageVersions;
use checkpoint::Checkpoint;
use chunk::SlabTable;
use corrupt::FoundCorrupt;
use disk::{Disk, DiskCompletion, DiskError, DiskOperation};
use std::collections::{BTreeSet, VecDeque};
use sys::{Buf, BufMut, Payload};
use task::{Attempt, Kind, Op, Task};
use types::{ChunkIndex, Epoch, PoolId, SlabIndex, VolumeId};

/// Bounds of a store's memory.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Metadata pages kept in RAM; 4 KiB serve about 2 MiB of data.
    pub metadata_cache_bytes: usize,
    /// Journaled blocks kept in RAM until they are applied.
    pub overlay_bytes: usize,
    /// Refuses the disk where it belongs to another pool.
    pub pool: Option<PoolId>,
    /// Compares the data of every write with its checksums, not only of those that may go through the journal. Not needed where they were
    /// computed in the same process: reads find what is wrong all the same.
    pub verify_writes: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { metadata_cache_bytes: 16 << 20, overlay_bytes: 32 << 20, pool: None, verify_writes: true }
    }
}

/// A chunk that has a slab on this disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    pub volume: VolumeId,
    pub chunk: ChunkIndex,
    pub slab: SlabIndex,
    pub append: bool,
    /// The epoch under which it was allocated.
    pub epoch: Epoch,
}

/// What is known of a volume on this disk.
#[derive(Default)]
struct VolumeState {
    /// Durable.
    promised: Epoch,
    /// Asked for and not yet durable, or the same: what fences.
    fence: Epoch,
    /// Writes straight into place, which a promise has to wait for.
    in_place: u32,
    waiting_promises: Vec<SlotId>,
}

/// One disk at work.
pub struct Store<D: Disk> {
    disk: D,
    label: Label,
    layout: Layout,
    options: StoreOptions,
    slabs: SlabTable,
    volumes: IdentityMap<VolumeId, VolumeState>,
    promise_places: PromisePlaces,
    journal: Journal,
    cache: PageCache,
    versions: PageVersions,
    /// Pages whose damage was counted, until they are written again.
    damaged_pages: BTreeSet<u64>,
    overlay: Overlay,
    locks: Locks,
    /// Changes whose turn has come.
    ready: VecDeque<SlotId>,
    tasks: Slots<Task>,
    /// Append writes on their way into place.
    placing: Vec<task::Place>,
    /// Small fresh writes that wait for the next poll to say how they are written.
    small_fresh: Vec<SlotId>,
    operations: Slots<Op>,
    /// Tasks whose writes completed and wait for the next flush; and those that the flush in flight covers.
    to_flush: Vec<SlotId>,
    flushing: Option<Vec<SlotId>>,
    checkpoint: Checkpoint,
    records: Vec<u8>,
    records_sequence: u64,
    records_waiting: VecDeque<(SlotId, Vec<u8>)>,
    records_writing: Option<(SlotId, Vec<u8>, u8)>,
    scrub: scrub::Position,
    found_corrupt: FoundCorrupt,
    /// What the end of the journal left open when the disk was opened.
    doubt: Doubt,
    poisoned: bool,
    health: StoreHealth,
    zeroes: Buf,
    completions: Vec<StoreCompletion>,
    arrived: Vec<DiskCompletion>,
    /// Something was asked for since the last poll.
    touched: bool,
    /// Counts what changes what a poll has to do.
    moves: u64,
}

/// A disk being opened; poll it until it answers.
pub struct Opening<D: Disk> {
    work: Work<D, Result<Opened, OpenError>>,
    options: StoreOptions,
}

impl<D: Disk + 'static> Opening<D> {
    pub fn new(disk: D, options: StoreOptions) -> Self {
        let work = Work::new(disk, move |io| async move {
            let mut opened = examine(&io, options.pool).await?;
            claim(&io, &mut opened).await?;
            Ok(opened)
        });
        Self { work, options }
    }

    /// `None` while it goes on; the store, or why not, once. Polls the disk.
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
        let (result, disk) = Opening::new(disk, options).work.run();
        result.map(|opened| Self::from_opened(disk, opened, options))
    }

    /// Gives up what is in RAM and opens the disk anew: label, tables and journal are read again. The way back of a poisoned
    /// store (I9), if the disk goes past the page cache; otherwise its file has to be opened anew too, which drops what is cached of it.
    /// What was not answered stays unanswered.
    pub fn reverify(self) -> Opening<D> {
        let options = self.options;
        Opening::new(self.disk, options)
    }
}

impl<D: Disk> Store<D> {
    fn from_opened(disk: D, opened: Opened, options: StoreOptions) -> Self {
        let Opened {
            label,
            anchor,
            records,
            records_sequence,
            slabs,
            promises,
            promise_places,
            table_sequence,
            tables_differ,
            versions,
            replayed,
            merged,
            ..
        } = opened;
        let layout = label.layout.clone();
        let mut cache = PageCache::new(options.metadata_cache_bytes);
        for (key, words) in merged.pages {
            cache.insert(key, words, true);
        }
        let mut overlay = Overlay::new(options.overlay_bytes);
        for (key, (sequence, block, bytes)) in replayed.blocks {
            overlay.insert(key, sequence, block, bytes);
        }
        let mut table = SlabTable::new(slabs, replayed.next_generation, table_sequence);
        replayed.freed.iter().for_each(|(slab, sequence)| table.quarantine(*slab, *sequence));
        let promises_changed = replayed.changed_promises;
        table.mark_changed(replayed.changed_slabs.iter().copied(), promises_changed);
        table.mark_changed_pages(tables_differ.slab_pages, tables_differ.promises);
        let volumes = promises
            .into_iter()
            .map(|(volume, epoch)| {
                (volume, VolumeState { promised: epoch, fence: epoch, ..VolumeState::default() })
            })
            .collect();
        let health = StoreHealth {
            corrupt_blocks: replayed.corrupt_blocks + merged.damaged_pages,
            damaged_metadata_leaves: merged.damaged_leaves,
            lost_writes: merged.lost_writes,
            ..StoreHealth::default()
        };
        Self {
            doubt: replayed.doubt,
            journal: Journal::new(label.disk, layout.journal_blocks(), &anchor, replayed.live),
            scrub: scrub::Position::stored(anchor.scrub_slab, anchor.scrub_block, layout.slab_count),
            found_corrupt: FoundCorrupt::default(),
            checkpoint: Checkpoint::new(anchor.sequence),
            disk,
            label,
            layout,
            options,
            slabs: table,
            volumes,
            promise_places,
            cache,
            versions,
            damaged_pages: BTreeSet::new(),
            overlay,
            locks: Locks::default(),
            ready: VecDeque::new(),
            tasks: Slots::new(anchor.incarnation),
            placing: Vec::new(),
            small_fresh: Vec::new(),
            operations: Slots::new(anchor.incarnation),
            to_flush: Vec::new(),
            flushing: None,
            records,
            records_sequence,
            records_waiting: VecDeque::new(),
            records_writing: None,
            poisoned: false,
            health,
            zeroes: BufMut::zeroed(1 << 20).freeze(),
            completions: Vec::new(),
            arrived: Vec::new(),
            touched: true,
            moves: 0,
        }
    }

    pub fn label(&self) -> &Label {
        &self.label
    }
    pub fn disk_info(&self) -> &disk::DiskInfo {
        self.disk.info()
    }
    /// The disk itself, for tests that look behind the store.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }
    /// Gives the disk back; what is in flight is forgotten.
    pub fn into_disk(self) -> D {
        self.disk
    }
    /// The highest epoch durably promised to the volume; zero where none was.
    pub fn promised(&self, volume: VolumeId) -> Epoch {
        self.volumes.get(&volume).map_or(Epoch(0), |state| state.promised)
    }
    /// Every volume that was promised an epoch.
    pub fn promises(&self) -> Vec<(VolumeId, Epoch)> {
        let promised = self.volumes.iter().filter(|(_, state)| state.promised.0 > 0);
        promised.map(|(volume, state)| (*volume, state.promised)).collect()
    }
    /// All chunks that have a slab here.
    pub fn chunks(&self) -> Vec<ChunkInfo> {
        self.slabs.chunks()
    }
    pub fn slab_count(&self) -> u32 {
        self.layout.slab_count
    }
    /// Slabs that can be allocated, those not yet given back by the next checkpoint included.
    pub fn free_slabs(&self) -> u32 {
        self.slabs.free_count()
    }
    /// Blocks of one slab.
    pub fn slab_blocks(&self) -> u32 {
        self.layout.slab_blocks()
    }
    /// This disk's copy of the cluster's records; empty where none was set.
    pub fn records(&self) -> &[u8] {
        &self.records
    }
    /// RAM that the slab table and the pages' versions take, in bytes, about.
    pub fn table_bytes(&self) -> usize {
        self.slabs.memory_bytes() + self.versions.memory_bytes()
    }
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
    /// Whether nothing is in flight or waiting.
    pub fn is_idle(&self) -> bool {
        self.tasks.len() == 0
            && self.operations.len() == 0
            && self.journal.is_idle()
            && self.checkpoint.is_idle()
            && self.completions.is_empty()
    }
    /// Counters since the store was opened, and fill levels.
    pub fn health(&self) -> StoreHealth {
        StoreHealth {
            poisoned: self.poisoned,
            journal_used_bytes: u64::from(self.journal.used_blocks()) * PAGE_BYTES as u64,
            journal_bytes: self.layout.journal_bytes,
            overlay_blocks: self.overlay.len() as u64,
            overlay_kept_bytes: self.overlay.kept_bytes() as u64,
            cached_pages: self.cache.len() as u64,
            dirty_pages: self.cache.dirty_pages() as u64,
            ..self.health.clone()
        }
    }
    /// Applies everything in the journal soon, so that the next opening has nothing to replay.
    pub fn request_checkpoint(&mut self) {
        self.touched = true;
        self.checkpoint.request();
    }

    /// Tries again what found no room under a thin disk; to be called now and then. What waits in the journal goes in place, and slabs that
    /// were given back can be allocated, without waiting for the next change.
    pub fn retry(&mut self) {
        if self.checkpoint.retry() {
            self.touched = true;
        }
    }

    /// Takes a request; its answer carries `token`.
    pub fn submit(&mut self, token: u64, request: StoreRequest) {
        self.touched = true;
        if let Err(error) = self.take(token, request) {
            self.completions.push(StoreCompletion { token, result: Err(error) });
        }
        self.start_ready();
    }

    fn take(&mut self, token: u64, request: StoreRequest) -> Result<(), StoreError> {
        let changes = !matches!(
            request,
            StoreRequest::Read { .. }
                | StoreRequest::Regions { .. }
                | StoreRequest::Chunks { .. }
                | StoreRequest::Scrub { .. }
        );
        if changes && self.poisoned {
            return Err(StoreError::Poisoned);
        }
        match request {
            StoreRequest::Promise { volume, epoch } => self.take_promise(token, volume, epoch),
            StoreRequest::MarkLost { volume, epoch, lba, blocks } => {
                self.take_mark_lost(token, volume, epoch, lba, blocks)
            }
            StoreRequest::AllocateChunk { volume, epoch, chunk, append } => {
                self.take_allocate(token, volume, epoch, chunk, append)
            }
            StoreRequest::FreeChunk { volume, epoch, chunk } => self.take_free(token, volume, epoch, chunk),
            StoreRequest::Read { volume, lba, blocks } => self.take_read(token, volume, lba, blocks),
            StoreRequest::Write { volume, epoch, lba, class, data, checksums } => {
                self.take_write(token, volume, epoch, lba, class, data, checksums)
            }
            StoreRequest::Discard { volume, epoch, lba, blocks } => {
                self.take_discard(token, volume, epoch, lba, blocks)
            }
            StoreRequest::Regions { volume, chunk } => self.take_regions(token, volume, chunk),
            StoreRequest::Chunks { volume } => {
                let result = Ok(StoreReply::Chunks(self.slabs.chunks_of(volume)));
                self.completions.push(StoreCompletion { token, result });
                Ok(())
            }
            StoreRequest::Scrub { bytes } => self.take_scrub(token, bytes),
            StoreRequest::SetRecords { records } => self.take_set_records(token, records),
        }
    }

    /// Whether [`Self::poll`] may have something to do.
    pub fn has_news(&self) -> bool {
        self.touched || !self.completions.is_empty() || self.disk.has_news()
    }

    /// Moves the answers that are there into `out`. Polls the disk, and issues what has gathered since the last poll.
    pub fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        if !self.has_news() {
            return;
        }
        self.touched = false;
        let mut arrived = std::mem::take(&mut self.arrived);
        self.disk.poll(&mut arrived);
        for completion in arrived.drain(..) {
            self.complete(completion);
        }
        self.arrived = arrived;
        // What is issued may let others begin, which want to be issued too.
        loop {
            let moves = self.moves;
            self.start_ready();
            self.issue();
            if self.moves == moves && self.ready.is_empty() {
                break;
            }
        }
        out.append(&mut self.completions);
    }

    /// Starts what has gathered: a flush, journal batches, a checkpoint's next writes.
    fn issue(&mut self) {
        self.start_small_fresh();
        if self.poisoned {
            return;
        }
        self.run_checkpoint();
        if self.flushing.is_none() && (!self.to_flush.is_empty() || self.checkpoint.wants_flush()) {
            self.flushing = Some(std::mem::take(&mut self.to_flush));
            self.checkpoint.flush_started();
            self.health.flushes += 1;
            self.start(Op::Flush, DiskOperation::Flush);
        }
        while let Some(batch) = self.journal.cut() {
            let offset = self.layout.journal_offset(batch.block);
            self.health.batches += 1;
            let durable = !Planted::AckBeforeDurable.is_planted();
            self.write(
                Op::Batch { sequence: batch.sequence },
                WriteKind::Journal,
                offset,
                batch.data,
                durable,
            );
        }
        if self.journal.is_starved() && self.checkpoint.request() {
            self.moves += 1;
        }
    }

    fn complete(&mut self, completion: DiskCompletion) {
        let Some(op) = self.operations.remove(SlotId::from_token(completion.token)) else { return };
        let result = completion.result;
        match op {
            Op::ReadSegment { task, segment } => self.segment_read(task, segment, result),
            Op::Page { key, generation, attempt } => self.page_read(key, generation, attempt, result),
            Op::ScrubPage { key, generation, version, attempt } => {
                self.scrub_page_read(key, generation, version, attempt, result);
            }
            Op::Data { task } => self.data_written(task, result.map(|_| ())),
            Op::Punch { task, slab } => self.punched(task, slab),
            Op::Batch { sequence } => match result {
                Ok(_) => self.batch_written(sequence),
                Err(error) => self.poison(&error),
            },
            Op::Flush => match result {
                Ok(_) => self.flushed(),
                Err(error) => self.poison(&error),
            },
            Op::CheckpointRead { key, sequence, attempt } => {
                self.checkpoint_read(key, sequence, attempt, result);
            }
            Op::CheckpointWrite { page } => self.checkpoint_written(page, result.map(|_| ())),
            Op::Anchor => match result {
                Ok(_) => self.anchor_written(),
                Err(error) => self.poison(&error),
            },
            Op::Records => match result {
                Ok(_) => self.records_written(),
                Err(error) => self.poison(&error),
            },
        }
    }

    fn start(&mut self, op: Op, operation: DiskOperation) {
        self.moves += 1;
        let id = self.operations.insert(op);
        self.disk.submit(id.token(), operation);
    }

    fn write(&mut self, op: Op, kind: WriteKind, offset: u64, data: Payload, durable: bool) {
        self.health.written.add(kind, data.len() as u64);
        self.start(op, DiskOperation::Write { offset, data, durable });
    }

    fn read(&mut self, op: Op, offset: u64, len_bytes: usize) {
        self.health.read_bytes += len_bytes as u64;
        self.start(op, DiskOperation::Read { offset, into: BufMut::for_overwrite(len_bytes) });
    }

    /// Answers a task and lets go of what it holds.
    fn finish(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        self.answer(id, result);
        self.drop_task(id);
    }

    /// Answers a task that goes on holding what it holds.
    fn answer(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        if let Some(token) = self.tasks.get_mut(id).and_then(|task| task.token.take()) {
            self.completions.push(StoreCompletion { token, result });
        }
    }

    fn drop_task(&mut self, id: SlotId) {
        self.moves += 1;
        let Some(task) = self.tasks.remove(id) else { return };
        task.pages.iter().for_each(|key| self.cache.unpin(*key));
        if let Some(slab) = task.lock {
            let startable = self.locks.leave(slab, id);
            self.unlock(startable);
        }
    }

    /// Changes whose turn has come start when the work at hand is done, not within it.
    fn unlock(&mut self, startable: Vec<SlotId>) {
        self.ready.extend(startable);
    }

    fn start_ready(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            self.locked(id);
        }
    }

    /// A change has its turn.
    fn locked(&mut self, id: SlotId) {
        self.gather_pages(id);
    }

    /// The slab was given back, or to another chunk, since the task was taken.
    fn not_mapped(&mut self, id: SlotId) {
        self.fail_task(id, StoreError::NotMapped);
    }

    /// Pins the task's pages, reading those that are not in RAM; the task acts when all are.
    fn gather_pages(&mut self, id: SlotId) {
        let Some(task) = self.tasks.get(id) else { return };
        let Some(place) = task.place else { return self.act(id) };
        if self.slabs.entry(place.slab).is_none_or(|entry| entry.generation != place.generation) {
            return self.not_mapped(id);
        }
        let ranges = task.word_ranges(&self.layout);
        let (mut pinned, mut missing) = (task::Pages::new(), 0);
        for range in ranges {
            for page in range.start / PAGE_WORDS as u32..=(range.end - 1) / PAGE_WORDS as u32 {
                let key = page_key(place.slab, page);
                if pinned.contains(&key) {
                    continue;
                }
                if self.cache.pin(key) {
                    pinned.push(key);
                    continue;
                }
                missing += 1;
                if self.cache.wait_for(key, id) {
                    self.health.page_reads += 1;
                    self.read_page(key, place.generation, Attempt::First);
                }
            }
        }
        if let Some(task) = self.tasks.get_mut(id) {
            task.pages = pinned;
            task.pages_missing = missing;
        }
        if missing == 0 {
            self.act(id);
        }
    }

    fn read_page(&mut self, key: u64, generation: u64, attempt: Attempt) {
        let offset = self.layout.page_offset(SlabIndex((key >> 32) as u32), key as u32);
        self.read(Op::Page { key, generation, attempt }, offset, PAGE_BYTES);
    }

    fn page_read(
        &mut self,
        key: u64,
        generation: u64,
        attempt: Attempt,
        result: Result<Option<BufMut>, DiskError>,
    ) {
        let unreadable = matches!(result, Err(DiskError::Medium(_)));
        let found = match result {
            Ok(Some(bytes)) => self.parse_page(key, generation, &bytes),
            // Unreadable is damaged: the blocks read as corrupt, and the page heals when it is written again.
            Ok(None) | Err(DiskError::Medium(_)) => self.parse_page(key, generation, &[]),
            Err(error) => {
                let waiters = self.cache.loaded(key);
                return self.fail_all(&waiters, &error);
            }
        };
        let again = attempt == Attempt::First && !Planted::PassingErrorMarksLost.is_planted();
        if again && found.as_ref().is_some_and(|found| !found.is_whole()) {
            return self.read_page(key, generation, Attempt::Second);
        }
        let waiters = self.cache.loaded(key);
        if let Some(found) = found.filter(|_| !self.cache.contains(key)) {
            self.note_damage(key, &found, unreadable);
            self.cache.insert(key, found.words, false);
        }
        for id in waiters {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            if !self.cache.pin(key) {
                // The slab changed hands meanwhile: those who wait for its new owner's page begin again.
                std::mem::take(&mut task.pages).iter().for_each(|key| self.cache.unpin(*key));
                self.gather_pages(id);
                continue;
            }
            task.pages.push(key);
            task.pages_missing -= 1;
            if task.pages_missing == 0 {
                self.act(id);
            }
        }
    }

    /// `None` if the slab has changed hands since the page was asked for.
    fn parse_page(&self, key: u64, generation: u64, bytes: &[u8]) -> Option<FoundPage> {
        let (slab, page) = (SlabIndex((key >> 32) as u32), key as u32);
        let entry = self.slabs.entry(slab).filter(|entry| entry.generation == generation)?;
        let identity = page_identity(self.label.disk, slab, entry, page);
        Some(parse_page(identity, self.versions.get(slab, page), bytes))
    }

    /// Counts what is wrong with a page, once until it is written again. The blocks whose checksums it holds are not at fault.
    fn note_damage(&mut self, key: u64, found: &FoundPage, unreadable: bool) {
        if !found.is_whole() && self.damaged_pages.insert(key) {
            self.health.damaged_metadata_leaves += u64::from(found.damaged);
            self.health.lost_writes += u64::from(found.stale > 0);
            self.health.corrupt_blocks += u64::from(found.damaged > 0);
            self.health.medium_errors += u64::from(unreadable);
        }
    }

    fn fail_all(&mut self, ids: &[SlotId], error: &DiskError) {
        for &id in ids {
            self.fail_task(id, StoreError::Disk(error.clone()));
        }
    }

    /// A read may be part of a scrub, which hears of it.
    fn fail_task(&mut self, id: SlotId, error: StoreError) {
        match self.tasks.get(id) {
            Some(Task { kind: Kind::Read(_), .. }) => self.finish_read(id, Err(error)),
            _ => self.finish(id, Err(error)),
        }
    }

    /// A task has its turn and its pages.
    fn act(&mut self, id: SlotId) {
        let Some(task) = self.tasks.get(id) else { return };
        match &task.kind {
            Kind::Read(_) => self.resolve_read(id),
            Kind::Write(_) => self.act_write(id),
            Kind::Discard(_) => self.act_discard(id),
            Kind::Free(_) => self.act_free(id),
            Kind::Regions => self.act_regions(id),
            Kind::Allocate(_) | Kind::Promise { .. } | Kind::Scrub(_) | Kind::Records => {}
        }
    }

    /// After a failed write or flush nothing is known about what the disk holds beyond what was durable: every change is
    /// refused from here on, reads go on (I9).
    fn poison(&mut self, error: &DiskError) {
        if self.poisoned {
            return;
        }
        self.poisoned = true;
        self.health.poisoned_by = Some(error.clone());
        self.journal.abandon();
        self.small_fresh.clear();
        self.placing.clear();
        self.to_flush.clear();
        self.flushing = None;
        self.checkpoint.abandon();
        self.records_waiting.clear();
        self.records_writing = None;
        self.volumes.values_mut().for_each(|state| state.waiting_promises.clear());
        for id in self.tasks.ids() {
            if self.tasks.get(id).is_some_and(Task::changes) {
                self.finish(id, Err(StoreError::Poisoned));
            }
        }
    }

    /// Refuses epochs below the fence.
    fn check_fence(&self, volume: VolumeId, epoch: Epoch) -> Result<(), StoreError> {
        match self.volumes.get(&volume) {
            Some(state) if epoch < state.fence => Err(StoreError::Fenced { promised: state.fence }),
            _ => Ok(()),
        }
    }

    /// Where blocks of a volume lie on this disk.
    fn locate(
        &self,
        volume: VolumeId,
        lba: types::Lba,
        blocks: u32,
    ) -> Result<(task::Place, SlabEntry), StoreError> {
        let slab_blocks = u64::from(self.layout.slab_blocks());
        let chunk = u32::try_from(lba.0 / slab_blocks)
            .map_err(|_| StoreError::Invalid("address beyond any volume"))?;
        let first = (lba.0 % slab_blocks) as u32;
        if blocks == 0 || u64::from(first) + u64::from(blocks) > slab_blocks {
            return Err(StoreError::Invalid("no blocks, or blocks of more than one chunk"));
        }
        let slab = self.slabs.find(volume, ChunkIndex(chunk)).ok_or(StoreError::NotMapped)?;
        let entry = *self.slabs.entry(slab).ok_or(StoreError::NotMapped)?;
        Ok((task::Place { slab, generation: entry.generation, first, count: blocks }, entry))
    }
}
