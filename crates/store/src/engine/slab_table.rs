//! Slabs and their use: the chunk of each, those that can be allocated, and the time when a freed
//! one can be.

use super::place::Place;
use crate::api::{ChunkEntry, StoreError};
use crate::layout::{LEAF_BYTES, LEAVES_PER_PAGE, Layout, SLAB_ENTRIES_PER_LEAF};
use crate::numbers::IdentityMap;
use crate::slots::SlotId;
use crate::tables::{SlabEntry, parse_slab_leaf, slab_page};
use std::collections::{BTreeSet, HashMap, VecDeque};
use types::{ChunkIndex, DiskId, Epoch, Lba, SlabIndex, VolumeId};

/// A chunk that has a slab on this disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Volume that the chunk belongs to.
    pub volume: VolumeId,
    /// Number of the chunk within the volume.
    pub chunk: ChunkIndex,
    /// Slab that holds the chunk's copy.
    pub slab: SlabIndex,
    /// Whether it was allocated for class [`WriteClass::Append`](crate::api::WriteClass::Append).
    pub append: bool,
    /// The epoch under which it was allocated.
    pub epoch: Epoch,
}

/// A freed slab: usable again when a checkpoint has passed its record and its space on the disk is
/// given back.
#[derive(Debug, Clone, Copy)]
struct Quarantine {
    sequence: u64,
    punching: bool,
}

/// The slab table in RAM, and the slabs that can be allocated.
///
/// Invariant: each slab has an owner in `entries`, or is `free`, or is `quarantined`, or is being
/// prepared for an allocation that is not recorded yet; never two of these. A freed slab is not
/// free before a checkpoint has passed the record that freed it: until then replay gives its blocks
/// to the former chunk. A generation is never used twice.
pub(super) struct SlabTable {
    entries: Vec<Option<SlabEntry>>,
    by_chunk: IdentityMap<(VolumeId, ChunkIndex), SlabIndex>,
    free: BTreeSet<SlabIndex>,
    quarantined: HashMap<SlabIndex, Quarantine>,
    next_generation: u64,
    /// Sequence of the newest table leaf.
    sequence: u64,
    changed_pages: BTreeSet<usize>,
    /// Chunks being allocated, and the other tasks that wait for them.
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
            allocating: HashMap::new(),
            waiting_for_slab: VecDeque::new(),
        }
    }

    /// Returns the bytes of the entries, and of the map from chunks to them at its usual load.
    pub(super) fn memory_bytes(&self) -> usize {
        let mapped = size_of::<((VolumeId, ChunkIndex), SlabIndex)>() + 1;
        self.entries.capacity() * size_of::<Option<SlabEntry>>() + self.by_chunk.capacity() * 8 / 7 * mapped
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
    /// Whether the slab still has the owner of the time when the place was found.
    pub(super) fn is_current(&self, place: Place) -> bool {
        self.entry(place.slab).is_some_and(|entry| entry.generation == place.generation)
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

    /// Finds blocks of a volume on this disk.
    pub(super) fn locate(
        &self,
        volume: VolumeId,
        lba: Lba,
        blocks: u32,
        layout: &Layout,
    ) -> Result<(Place, SlabEntry), StoreError> {
        let slab_blocks = u64::from(layout.slab_blocks());
        let chunk = u32::try_from(lba.0 / slab_blocks)
            .map_err(|_| StoreError::Invalid("address beyond any volume"))?;
        let first = (lba.0 % slab_blocks) as u32;
        if blocks == 0 || u64::from(first) + u64::from(blocks) > slab_blocks {
            return Err(StoreError::Invalid("no blocks, or blocks of more than one chunk"));
        }
        let slab = self.find(volume, ChunkIndex(chunk)).ok_or(StoreError::NotMapped)?;
        let entry = *self.entry(slab).ok_or(StoreError::NotMapped)?;
        Ok((Place { slab, generation: entry.generation, first, count: blocks }, entry))
    }

    pub(super) fn mark_changed(&mut self, slabs: impl Iterator<Item = SlabIndex>) {
        self.changed_pages.extend(slabs.map(slab_page));
    }
    pub(super) fn mark_changed_pages(&mut self, pages: BTreeSet<usize>) {
        self.changed_pages.extend(pages);
    }
    /// Whether page `page` of the table as read is intact and differs from the last write.
    pub(super) fn is_other(&self, disk: DiskId, page: usize, bytes: &[u8]) -> bool {
        let first_leaf = page * LEAVES_PER_PAGE;
        let leaves = (first_leaf..).zip(bytes.chunks_exact(LEAF_BYTES));
        let mut intact = leaves.filter_map(|(leaf, bytes)| {
            let (_, entries) = parse_slab_leaf(disk, leaf as u32, bytes)?;
            Some((leaf * SLAB_ENTRIES_PER_LEAF, entries))
        });
        let expected = |slab: usize| self.entries.get(slab).copied().flatten();
        !self.changed_pages.contains(&page)
            && intact
                .any(|(first, entries)| (first..).zip(entries).any(|(slab, entry)| entry != expected(slab)))
    }
    pub(super) fn is_changed(&self) -> bool {
        !self.changed_pages.is_empty()
    }
    /// Takes the content for a checkpoint to write: pages of the slab table, and the sequence for
    /// the leaves of both tables.
    pub(super) fn take_changed(&mut self) -> (BTreeSet<usize>, u64) {
        self.sequence += 1;
        (std::mem::take(&mut self.changed_pages), self.sequence)
    }

    /// Drops doubts about regions last changed under `settled` or earlier.
    pub(super) fn settle(&mut self, volume: VolumeId, settled: Epoch) {
        for (slab, entry) in (0..).map(SlabIndex).zip(&mut self.entries) {
            let Some(entry) = entry.as_mut().filter(|entry| entry.volume == volume) else { continue };
            if entry.doubtful_through > Epoch(0) && entry.doubtful_through <= settled {
                entry.doubtful_through = Epoch(0);
                entry.doubts_unwritten = false;
                self.changed_pages.insert(slab_page(slab));
            }
        }
    }

    /// Whether regions of the volume are in doubt.
    pub(super) fn is_doubtful(&self, volume: VolumeId) -> bool {
        let mut own = self.entries.iter().flatten().filter(|entry| entry.volume == volume);
        own.any(|entry| entry.doubtful_through > Epoch(0))
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

    /// Makes an allocation of a chunk wait for one already in progress. Returns whether there is
    /// none, so that this one proceeds.
    pub(super) fn begin_allocating(&mut self, volume: VolumeId, chunk: ChunkIndex, task: SlotId) -> bool {
        match self.allocating.get_mut(&(volume, chunk)) {
            Some(waiting) => {
                waiting.push(task);
                false
            }
            None => {
                self.allocating.insert((volume, chunk), Vec::new());
                true
            }
        }
    }

    /// Returns the other tasks that wait for the chunk, whose allocation has ended.
    pub(super) fn end_allocating(&mut self, volume: VolumeId, chunk: ChunkIndex) -> Vec<SlotId> {
        self.allocating.remove(&(volume, chunk)).unwrap_or_default()
    }

    /// Takes a free slab for an allocation, with the generation that it will have.
    pub(super) fn take_free(&mut self) -> Option<(SlabIndex, u64)> {
        let slab = self.free.pop_first()?;
        debug_assert!(self.entry(slab).is_none(), "a free slab has no owner");
        let generation = self.next_generation;
        self.next_generation += 1;
        Some((slab, generation))
    }

    /// Takes back a slab whose allocation was not recorded.
    pub(super) fn put_back(&mut self, slab: SlabIndex) {
        let newly = self.free.insert(slab);
        debug_assert!(newly && self.entry(slab).is_none(), "a slab that was taken is not free");
    }

    /// Notes that the allocation is recorded durably.
    pub(super) fn allocated(&mut self, slab: SlabIndex, entry: SlabEntry) {
        debug_assert!(
            self.entry(slab).is_none() && !self.free.contains(&slab),
            "an allocated slab was taken"
        );
        self.set(slab, Some(entry));
    }

    /// Notes that the record that frees the slab is durable, in the batch of this sequence.
    /// `punching`: the disk is giving its space back.
    pub(super) fn freed(&mut self, slab: SlabIndex, sequence: u64, punching: bool) {
        self.set(slab, None);
        self.quarantine(slab, sequence, punching);
    }

    pub(super) fn quarantine(&mut self, slab: SlabIndex, sequence: u64, punching: bool) {
        self.free.remove(&slab);
        self.quarantined.insert(slab, Quarantine { sequence, punching });
    }

    /// Makes a freed slab free too early, for a planted bug.
    pub(super) fn free_too_early(&mut self, slab: SlabIndex) {
        self.quarantined.remove(&slab);
        self.free.insert(slab);
    }

    pub(super) fn has_quarantined(&self) -> bool {
        !self.quarantined.is_empty()
    }

    /// Notes that a freed slab's space was given back.
    pub(super) fn punched(&mut self, slab: SlabIndex) {
        if let Some(quarantine) = self.quarantined.get_mut(&slab) {
            quarantine.punching = false;
        }
    }

    pub(super) fn await_slab(&mut self, task: SlotId) {
        self.waiting_for_slab.push_back(task);
    }
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting_for_slab.is_empty()
    }

    /// Frees the slabs whose records a checkpoint up to `through` has passed. Returns the
    /// allocations that look for a slab again: as many as there are slabs, and all if no slab will
    /// become free.
    pub(super) fn release(&mut self, through: u64) -> Vec<SlotId> {
        let released: Vec<SlabIndex> = self
            .quarantined
            .iter()
            .filter(|(_, quarantine)| quarantine.sequence <= through && !quarantine.punching)
            .map(|(slab, _)| *slab)
            .collect();
        for slab in released {
            self.quarantined.remove(&slab);
            self.free.insert(slab);
        }
        let waiting = self.waiting_for_slab.len();
        let served = if self.has_quarantined() { waiting.min(self.free.len()) } else { waiting };
        self.waiting_for_slab.drain(..served).collect()
    }

    /// Returns the allocations that wait for a slab, if no checkpoint will release one for now.
    pub(super) fn refuse_waiting(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.waiting_for_slab).into()
    }
}
