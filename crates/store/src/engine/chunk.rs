//! Slabs and what uses them: allocation, freeing, the slab table; and promises, region epochs, records.

use super::task::{FreeTask, Kind, Op, Place, Task};
use super::{ChunkInfo, Store};
use crate::anchor::encode_records;
use crate::api::{ChunkEntry, Regions, StoreError, StoreReply};
use crate::health::WriteKind;
use crate::journal::Pending;
use crate::layout::{
    LEAVES_PER_PAGE, PAGE_BYTES, PROMISE_ENTRIES_PER_LEAF, PROMISE_PAGES, RECORDS_BYTES_MAX, RECORDS_SLOTS,
};
use crate::locks::Manner;
use crate::metadata::{encode_page_into, page_identity, unwritten_words};
use crate::numbers::{IdentityMap, page_key};
use crate::planted::Planted;
use crate::record::Record;
use crate::slots::SlotId;
use crate::tables::{SlabEntry, slab_page};
use disk::{Disk, DiskError, DiskOperation};
use std::collections::{BTreeSet, HashMap, VecDeque};
use sys::{Buf, BufMut, Payload};
use types::{ChunkIndex, Epoch, Lba, SlabIndex, VolumeId};

/// Most volumes that can be promised an epoch.
const PROMISES_MAX: usize = PROMISE_PAGES * LEAVES_PER_PAGE * PROMISE_ENTRIES_PER_LEAF;

pub(super) struct AllocateTask {
    volume: VolumeId,
    chunk: ChunkIndex,
    epoch: Epoch,
    append: bool,
    slab: SlabIndex,
    generation: u64,
}

/// A slab that was given back: free for use when a checkpoint has passed its record and its space is given back.
#[derive(Debug, Clone, Copy)]
struct Quarantine {
    sequence: u64,
    punching: bool,
}

/// The slab table in RAM, and which slabs can be allocated.
pub(super) struct SlabTable {
    entries: Vec<Option<SlabEntry>>,
    by_chunk: IdentityMap<(VolumeId, ChunkIndex), SlabIndex>,
    free: BTreeSet<SlabIndex>,
    quarantined: HashMap<SlabIndex, Quarantine>,
    next_generation: u64,
    /// Sequence of the newest table leaf.
    sequence: u64,
    changed_pages: BTreeSet<usize>,
    changed_promises: bool,
    /// Chunks being allocated, and who else waits for them.
    allocating: HashMap<(VolumeId, ChunkIndex), Vec<SlotId>>,
    waiting_for_slab: VecDeque<SlotId>,
}

impl SlabTable {
    pub(super) fn new(entries: Vec<Option<SlabEntry>>, next_generation: u64, sequence: u64) -> Self {
        let (mut by_chunk, mut free) = (IdentityMap::default(), BTreeSet::new());
        for (slab, entry) in (0..).map(SlabIndex).zip(&entries) {
            match entry {
                Some(entry) => drop(by_chunk.insert((entry.volume, entry.chunk), slab)),
                None => drop(free.insert(slab)),
            }
        }
        Self {
            entries,
            by_chunk,
            free,
            quarantined: HashMap::new(),
            next_generation,
            sequence,
            changed_pages: BTreeSet::new(),
            changed_promises: false,
            allocating: HashMap::new(),
            waiting_for_slab: VecDeque::new(),
        }
    }

    /// Entries, and the map from chunks to them at its usual load.
    pub(super) fn memory_bytes(&self) -> usize {
        let mapped = size_of::<((VolumeId, ChunkIndex), SlabIndex)>() + 1;
        self.entries.capacity() * size_of::<Option<SlabEntry>>() + self.by_chunk.capacity() * 8 / 7 * mapped
    }
    pub(super) fn quarantine(&mut self, slab: SlabIndex, sequence: u64) {
        self.free.remove(&slab);
        self.quarantined.insert(slab, Quarantine { sequence, punching: false });
    }
    pub(super) fn has_quarantined(&self) -> bool {
        !self.quarantined.is_empty()
    }
    pub(super) fn mark_changed(&mut self, slabs: impl Iterator<Item = SlabIndex>, promises: bool) {
        self.changed_pages.extend(slabs.map(slab_page));
        self.changed_promises |= promises;
    }
    pub(super) fn mark_changed_pages(&mut self, pages: BTreeSet<usize>, promises: bool) {
        self.changed_pages.extend(pages);
        self.changed_promises |= promises;
    }
    pub(super) fn is_changed(&self) -> bool {
        !self.changed_pages.is_empty() || self.changed_promises
    }
    /// What a checkpoint has to write: pages of the slab table, whether the promises, and the sequence for their leaves.
    pub(super) fn take_changed(&mut self) -> (BTreeSet<usize>, bool, u64) {
        self.sequence += 1;
        (std::mem::take(&mut self.changed_pages), std::mem::take(&mut self.changed_promises), self.sequence)
    }
    pub(super) fn entries(&self) -> &[Option<SlabEntry>] {
        &self.entries
    }
    pub(super) fn next_generation(&self) -> u64 {
        self.next_generation
    }
    pub(super) fn entry(&self, slab: SlabIndex) -> Option<&SlabEntry> {
        self.entries.get(slab.0 as usize)?.as_ref()
    }
    pub(super) fn find(&self, volume: VolumeId, chunk: ChunkIndex) -> Option<SlabIndex> {
        self.by_chunk.get(&(volume, chunk)).copied()
    }
    pub(super) fn free_count(&self) -> u32 {
        (self.free.len() + self.quarantined.len()) as u32
    }
    pub(super) fn chunks(&self) -> Vec<ChunkInfo> {
        let slabs = (0..).map(SlabIndex).zip(&self.entries);
        slabs
            .filter_map(|(slab, entry)| {
                let SlabEntry { volume, chunk, epoch, append, .. } = (*entry)?;
                Some(ChunkInfo { volume, chunk, slab, append, epoch })
            })
            .collect()
    }
    pub(super) fn chunks_of(&self, volume: VolumeId) -> Vec<ChunkEntry> {
        let own = self.entries.iter().flatten().filter(|entry| entry.volume == volume);
        own.map(|entry| ChunkEntry { chunk: entry.chunk, append: entry.append }).collect()
    }
    fn set(&mut self, slab: SlabIndex, entry: Option<SlabEntry>) {
        let Some(place) = self.entries.get_mut(slab.0 as usize) else { return };
        if let Some(old) = std::mem::replace(place, entry) {
            self.by_chunk.remove(&(old.volume, old.chunk));
        }
        if let Some(new) = entry {
            self.by_chunk.insert((new.volume, new.chunk), slab);
        }
        self.changed_pages.insert(slab_page(slab));
    }
}

impl<D: Disk> Store<D> {
    pub(super) fn take_allocate(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        chunk: ChunkIndex,
        append: bool,
    ) -> Result<(), StoreError> {
        self.check_fence(volume, epoch)?;
        if let Some(entry) = self.slabs.find(volume, chunk).and_then(|slab| self.slabs.entry(slab)) {
            if entry.append != append {
                return Err(StoreError::Invalid("the chunk has a slab of the other kind"));
            }
            self.completions.push(crate::api::StoreCompletion { token, result: Ok(StoreReply::Done) });
            return Ok(());
        }
        self.checkpoint.unstall();
        let slab = SlabIndex(u32::MAX);
        let allocate = AllocateTask { volume, chunk, epoch, append, slab, generation: 0 };
        let id = self.tasks.insert(Task::new(token, None, Kind::Allocate(allocate)));
        match self.slabs.allocating.get_mut(&(volume, chunk)) {
            Some(waiting) => waiting.push(id),
            None => {
                self.slabs.allocating.insert((volume, chunk), Vec::new());
                self.find_slab(id);
            }
        }
        Ok(())
    }

    fn find_slab(&mut self, id: SlotId) {
        let Some(slab) = self.slabs.free.pop_first() else {
            if self.slabs.has_quarantined() {
                self.checkpoint.request();
                return self.slabs.waiting_for_slab.push_back(id);
            }
            return self.allocated(id, Err(StoreError::NoSpace));
        };
        let generation = self.slabs.next_generation;
        self.slabs.next_generation += 1;
        let Some(Task { kind: Kind::Allocate(allocate), .. }) = self.tasks.get_mut(id) else { return };
        (allocate.slab, allocate.generation) = (slab, generation);
        let entry = allocate.entry();
        let words = unwritten_words();
        let pages = self.layout.metadata_pages_per_slab();
        let mut bytes = BufMut::for_overwrite(pages as usize * PAGE_BYTES);
        for (page, place) in (0..pages).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            let identity = page_identity(self.label.disk, slab, &entry, page);
            encode_page_into(identity, self.checkpoint.version(), &words, place);
        }
        let offset = self.layout.page_offset(slab, 0);
        self.write(Op::Data { task: id }, WriteKind::Metadata, offset, bytes.freeze().into(), false);
    }

    /// The metadata of a slab that nobody uses yet is written.
    pub(super) fn slab_initialised(&mut self, id: SlotId, result: Result<(), DiskError>) {
        let Some(Task { kind: Kind::Allocate(allocate), .. }) = self.tasks.get(id) else { return };
        if result.is_err() {
            self.slabs.free.insert(allocate.slab);
            self.health.no_space += 1;
            return self.allocated(id, Err(StoreError::NoSpace));
        }
        self.to_flush.push(id);
    }

    pub(super) fn allocate_flushed(&mut self, id: SlotId) {
        let Some(Task { kind: Kind::Allocate(allocate), .. }) = self.tasks.get(id) else { return };
        let AllocateTask { volume, chunk, epoch, append, slab, generation } = *allocate;
        if let Err(fenced) = self.check_fence(volume, epoch) {
            self.slabs.free.insert(slab);
            return self.allocated(id, Err(fenced));
        }
        self.record(id, Record::Allocate { slab, volume, chunk, epoch, append, generation }, Payload::new());
    }

    pub(super) fn allocate_committed(&mut self, id: SlotId) {
        let Some(Task { kind: Kind::Allocate(allocate), .. }) = self.tasks.get(id) else { return };
        let (slab, entry) = (allocate.slab, allocate.entry());
        self.slabs.set(slab, Some(entry));
        let room = self.cache.budget_pages() / 4;
        for page in (0..self.layout.metadata_pages_per_slab()).take(room) {
            self.cache.insert(page_key(slab, page), unwritten_words(), false);
        }
        self.allocated(id, Ok(StoreReply::Done));
    }

    /// Answers the task and those who asked for the same chunk meanwhile.
    fn allocated(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        let Some(Task { kind: Kind::Allocate(allocate), .. }) = self.tasks.get(id) else { return };
        let (key, append) = ((allocate.volume, allocate.chunk), allocate.append);
        for other in self.slabs.allocating.remove(&key).unwrap_or_default() {
            let same = matches!(self.tasks.get(other), Some(Task { kind: Kind::Allocate(task), .. }) if task.append == append);
            let answer = match &result {
                Ok(_) if same => Ok(StoreReply::Done),
                Ok(_) => Err(StoreError::Invalid("the chunk has a slab of the other kind")),
                Err(error) => Err(error.clone()),
            };
            self.finish(other, answer);
        }
        self.finish(id, result);
    }

    pub(super) fn take_free(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        chunk: ChunkIndex,
    ) -> Result<(), StoreError> {
        self.check_fence(volume, epoch)?;
        let slab = self.slabs.find(volume, chunk).ok_or(StoreError::NotMapped)?;
        let generation = self.slabs.entry(slab).ok_or(StoreError::NotMapped)?.generation;
        let place = Place { slab, generation, first: 0, count: self.layout.slab_blocks() };
        self.checkpoint.unstall();
        let id = self.tasks.insert(Task::new(token, Some(place), Kind::Free(FreeTask { volume, epoch })));
        self.join(id, place, 0..place.count, Manner::InPlace);
        Ok(())
    }

    pub(super) fn act_free(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Free(free), .. }) = self.tasks.get(id) else {
            return;
        };
        let (slab, volume, epoch) = (place.slab, free.volume, free.epoch);
        match self.check_fence(volume, epoch) {
            Ok(()) => self.record(id, Record::Free { slab }, Payload::new()),
            Err(fenced) => self.finish(id, Err(fenced)),
        }
    }

    pub(super) fn free_committed(&mut self, id: SlotId, sequence: u64) {
        let Some(Task { place: Some(place), .. }) = self.tasks.get(id) else { return };
        let slab = place.slab;
        self.slabs.set(slab, None);
        self.cache.forget_slab(slab, self.layout.metadata_pages_per_slab());
        self.overlay.remove_range(slab, 0, self.layout.slab_blocks());
        self.slabs.quarantine(slab, sequence);
        if Planted::ReuseSlabAtOnce.is_planted() {
            self.slabs.quarantined.remove(&slab);
            self.slabs.free.insert(slab);
        }
        if self.disk.info().discards {
            if let Some(quarantine) = self.slabs.quarantined.get_mut(&slab) {
                quarantine.punching = true;
            }
            let (offset, len_bytes) = (self.layout.block_offset(slab, 0), self.layout.slab_bytes);
            self.start(Op::Punch { task: None, slab }, DiskOperation::Discard { offset, len_bytes });
        }
        self.finish(id, Ok(StoreReply::Done));
    }

    /// Space was given back, or could not be: a discard is advice.
    pub(super) fn punched(&mut self, task: Option<SlotId>, slab: SlabIndex) {
        match task {
            Some(id) => self.drop_task(id),
            None => {
                if let Some(quarantine) = self.slabs.quarantined.get_mut(&slab) {
                    quarantine.punching = false;
                }
                if !self.slabs.waiting_for_slab.is_empty() {
                    self.checkpoint.request();
                }
            }
        }
    }

    /// A checkpoint has passed the records up to `through`.
    pub(super) fn release_slabs(&mut self, through: u64) {
        let released: Vec<SlabIndex> = self
            .slabs
            .quarantined
            .iter()
            .filter(|(_, quarantine)| quarantine.sequence <= through && !quarantine.punching)
            .map(|(slab, _)| *slab)
            .collect();
        for slab in released {
            self.slabs.quarantined.remove(&slab);
            self.slabs.free.insert(slab);
        }
        for _ in 0..self.slabs.free.len() {
            let Some(id) = self.slabs.waiting_for_slab.pop_front() else { return };
            self.find_slab(id);
        }
        if !self.slabs.waiting_for_slab.is_empty() && !self.slabs.has_quarantined() {
            for id in std::mem::take(&mut self.slabs.waiting_for_slab) {
                self.find_slab(id);
            }
        }
    }

    /// No checkpoint is going to release a slab for now.
    pub(super) fn refuse_waiting_for_slab(&mut self) {
        for id in std::mem::take(&mut self.slabs.waiting_for_slab) {
            self.health.no_space += 1;
            self.allocated(id, Err(StoreError::NoSpace));
        }
    }

    pub(super) fn take_promise(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
    ) -> Result<(), StoreError> {
        self.check_fence(volume, epoch)?;
        if !self.volumes.contains_key(&volume) && self.volumes.len() >= PROMISES_MAX {
            return Err(StoreError::Invalid("too many volumes on one disk"));
        }
        let state = self.volumes.entry(volume).or_default();
        state.fence = epoch;
        let in_place = state.in_place;
        let id = self.tasks.insert(Task::new(token, None, Kind::Promise { volume, epoch }));
        if in_place == 0 {
            self.record_promise(id);
        } else if let Some(state) = self.volumes.get_mut(&volume) {
            state.waiting_promises.push(id);
        }
        Ok(())
    }

    /// Everything admitted under an older epoch stands before this record in the journal, or is refused by the fence.
    pub(super) fn record_promise(&mut self, id: SlotId) {
        let Some(Task { kind: Kind::Promise { volume, epoch }, .. }) = self.tasks.get(id) else { return };
        let record = Record::Promise { volume: *volume, epoch: *epoch };
        if Planted::PromiseInMemory.is_planted() {
            return self.promise_committed(id);
        }
        self.journal.push(Pending { record, data: Payload::new(), task: id });
    }

    pub(super) fn promise_committed(&mut self, id: SlotId) {
        let Some(Task { kind: Kind::Promise { volume, epoch }, .. }) = self.tasks.get(id) else { return };
        let (volume, epoch) = (*volume, *epoch);
        let state = self.volumes.entry(volume).or_default();
        state.promised = state.promised.max(epoch);
        self.slabs.mark_changed(std::iter::empty(), true);
        self.finish(id, Ok(StoreReply::Done));
    }

    pub(super) fn take_regions(
        &mut self,
        token: u64,
        volume: VolumeId,
        chunk: ChunkIndex,
    ) -> Result<(), StoreError> {
        let lba = Lba(u64::from(chunk.0) * u64::from(self.layout.slab_blocks()));
        let (place, _) = self.locate(volume, lba, self.layout.slab_blocks())?;
        let id = self.tasks.insert(Task::new(token, Some(place), Kind::Regions));
        self.gather_pages(id);
        Ok(())
    }

    pub(super) fn act_regions(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), .. }) = self.tasks.get(id) else { return };
        let slab = place.slab;
        let first = self.layout.epoch_word(0);
        let epochs = (first..first + self.layout.regions_per_slab())
            .map(|word| Epoch(self.cache.word(slab, word).unwrap_or(codes::LOST)))
            .collect();
        let mut doubtful = BTreeSet::new();
        if self.doubt.anything {
            doubtful.extend(0..self.layout.regions_per_slab());
        }
        for &(_, block, count) in self.doubt.places.iter().filter(|place| place.0 == slab) {
            let last = block.saturating_add(count.saturating_sub(1)).min(self.layout.slab_blocks() - 1);
            let regions = self.layout.epoch_word(block.min(last))..=self.layout.epoch_word(last);
            doubtful.extend(regions.map(|word| word - first));
        }
        let doubtful = doubtful.into_iter().collect();
        self.finish(id, Ok(StoreReply::Regions(Regions { epochs, doubtful })));
    }

    pub(super) fn take_set_records(&mut self, token: u64, records: Vec<u8>) -> Result<(), StoreError> {
        if records.len() > RECORDS_BYTES_MAX {
            return Err(StoreError::Invalid("records of more than 256 KiB"));
        }
        let id = self.tasks.insert(Task::new(token, None, Kind::Records));
        self.records_waiting.push_back((id, records));
        self.write_records();
        Ok(())
    }

    /// Writes the newest waiting records into the slots that do not hold the current ones.
    fn write_records(&mut self) {
        if self.records_writing.is_some() {
            return;
        }
        let Some((id, records)) = self.records_waiting.pop_front() else { return };
        let sequence = self.records_sequence + 1;
        let bytes = Buf::from(&encode_records(self.label.disk, sequence, &records)[..]);
        let slot = RECORDS_SLOTS[(sequence % 2) as usize];
        self.records_writing = Some((id, records, 2));
        for area in self.layout.areas() {
            self.write(Op::Records, WriteKind::Anchors, area + slot, bytes.clone().into(), true);
        }
    }

    pub(super) fn records_written(&mut self) {
        let Some((id, records, outstanding)) = self.records_writing.take() else { return };
        if outstanding > 1 {
            self.records_writing = Some((id, records, outstanding - 1));
            return;
        }
        self.records = records;
        self.records_sequence += 1;
        self.finish(id, Ok(StoreReply::Done));
        self.write_records();
    }
}

impl AllocateTask {
    fn entry(&self) -> SlabEntry {
        SlabEntry {
            volume: self.volume,
            chunk: self.chunk,
            epoch: self.epoch,
            generation: self.generation,
            append: self.append,
        }
    }
}
