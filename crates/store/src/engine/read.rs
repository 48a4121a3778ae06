//! Reads: from the journaled blocks first, then in place; every block that comes from the disk is
//! verified. A block that fails, or in an append chunk does not prove itself, is read once more,
//! and again as long as its place or checksum changes in between: only a block that fails twice in
//! the same place under the same checksum is corrupt. A read that the medium fails is repeated
//! block by block: the blocks that fail then are corrupt too, and only these.
//!
//! If the checksums are not in RAM, they and the blocks are read concurrently: a block that was
//! read too early fails its checksum and is read once more.

use super::append::Placing;
use super::damage::Damage;
use super::device::Device;
use super::event::{Event, Next};
use super::operation::Op;
use super::pages::{Pages, Pinned, WordRanges};
use super::place::Place;
use super::slab_table::SlabTable;
use crate::api::{StoreError, StoreReply};
use crate::cache::PageCache;
use crate::health::StoreHealth;
use crate::layout::{Layout, PAGE_WORDS};
use crate::numbers::block_key;
use crate::overlay::{Overlay, OverlayEntry};
use crate::planted::Planted;
use crate::record::APPEND_LOST;
use crate::slots::SlotId;
use codes::{LOST, UNWRITTEN, block_matches};
use disk::{Disk, DiskError};
use smallvec::{SmallVec, smallvec};
use sys::{Buf, BufMut, Payload};
use types::{BLOCK_BYTES, Lba, VolumeId};

/// Segment number of a read that precedes its checksums.
const EARLY: u16 = u16::MAX;

/// Most blocks of one read: 4 MiB.
pub(super) const READ_BLOCKS_MAX: u32 = 1024;

/// A read, of a request or a piece of a scrub.
///
/// Invariant: `words` are the checksums that were durable when the read was last resolved, and `segments` say where each block lay then.
/// Blocks that fail under them are corrupt only if a second resolution finds the same words and the same blocks failing.
#[derive(Debug)]
pub(super) struct ReadTask {
    volume: VolumeId,
    /// Address of the first block.
    lba: Lba,
    append: bool,
    /// Scrub that the read is a part of.
    scrub: Option<SlotId>,
    words: Vec<u64>,
    segments: SmallVec<[Segment; 2]>,
    outstanding: u32,
    failed: Option<DiskError>,
    suspects: Vec<Suspect>,
    /// Blocks without checksums, and blocks found corrupt, by their place within the read. A scrub
    /// continues behind them.
    lost: Vec<u32>,
    corrupt: Vec<u32>,
    early: Early,
    /// Whether the medium failed the read as a whole, so that each block is read alone.
    singly: bool,
}

/// All blocks of the read, read in place concurrently with their checksums.
#[derive(Debug, Default)]
enum Early {
    /// Not requested, or used up.
    #[default]
    No,
    /// `awaited`: the checksums have arrived.
    Asked {
        awaited: bool,
    },
    Here(Buf),
    Failed,
}

#[derive(Debug)]
enum Segment {
    Zero {
        count: u32,
    },
    Kept(Buf),
    /// `at`: its first block within the read; `journal`: the batch it comes from.
    Disk {
        at: u32,
        count: u32,
        journal: Option<u64>,
        filled: Option<Buf>,
    },
}

/// A block whose bytes did not match, or did not prove themselves: its place within the read, the
/// expected checksum, its batch.
type Suspect = (u32, u64, Option<u64>);

/// The parts that a read uses.
pub(super) struct ReadNeighbours<'a, D> {
    pub(super) layout: &'a Layout,
    pub(super) zeroes: &'a Buf,
    pub(super) device: &'a mut Device<D>,
    pub(super) pages: &'a mut Pages,
    pub(super) overlay: &'a Overlay,
    pub(super) slabs: &'a SlabTable,
    pub(super) placing: &'a Placing,
    pub(super) damage: &'a mut Damage,
    pub(super) health: &'a mut StoreHealth,
}

/// One disk read of a read: `count` blocks for a segment.
struct SegmentRead {
    segment: u16,
    offset: u64,
    count: u32,
}

impl ReadTask {
    pub(super) fn new(volume: VolumeId, lba: Lba, append: bool, scrub: Option<SlotId>) -> Self {
        Self {
            volume,
            lba,
            append,
            scrub,
            words: Vec::new(),
            segments: SmallVec::new(),
            outstanding: 0,
            failed: None,
            suspects: Vec::new(),
            lost: Vec::new(),
            corrupt: Vec::new(),
            early: Early::No,
            singly: false,
        }
    }

    /// Fills the segments from the early read.
    fn fill(&mut self, bytes: &Buf) {
        for segment in &mut self.segments {
            if let Segment::Disk { at, count, journal: None, filled } = segment {
                let (from, to) = (*at as usize * BLOCK_BYTES, (*at + *count) as usize * BLOCK_BYTES);
                *filled = Some(bytes.slice(from..to));
            }
        }
    }

    pub(super) fn word_ranges(&self, place: Place) -> WordRanges {
        smallvec![place.blocks()]
    }

    /// Returns the scrub that the read is a part of.
    pub(super) fn scrub(&self) -> Option<SlotId> {
        self.scrub
    }

    /// Returns the blocks found lost or corrupt.
    pub(super) fn damaged(&self) -> impl Iterator<Item = (VolumeId, Lba)> {
        let blocks = self.lost.iter().chain(&self.corrupt);
        blocks.map(|at| (self.volume, self.lba.offset(u64::from(*at))))
    }

    pub(super) fn step<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        event: Event,
        pinned: &mut Pinned,
        near: ReadNeighbours<'_, D>,
    ) -> Next {
        match event {
            Event::Turn => self.resolve(id, place, pinned, near),
            Event::SegmentRead { segment: EARLY, result } => self.early_read(id, place, result, pinned, near),
            Event::SegmentRead { segment, result } => self.segment_read(place, segment, result, near),
            _ => event.cannot_be(),
        }
    }

    /// Reads the blocks concurrently with their checksums, unless some of the blocks are known to
    /// be journaled.
    pub(super) fn read_early<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        layout: &Layout,
        overlay: &Overlay,
        device: &mut Device<D>,
    ) {
        let journaled = |block| overlay.get(block_key(place.slab, block)).is_some();
        if self.append || !overlay.is_empty() && place.blocks().any(journaled) {
            return;
        }
        self.early = Early::Asked { awaited: false };
        let offset = layout.block_offset(place.slab, place.first);
        device.read(Op::ReadSegment { task: id, segment: EARLY }, offset, place.count as usize * BLOCK_BYTES);
    }

    /// Handles the end of the early read.
    fn early_read<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        result: Result<Option<BufMut>, DiskError>,
        pinned: &mut Pinned,
        near: ReadNeighbours<'_, D>,
    ) -> Next {
        let awaited = matches!(self.early, Early::Asked { awaited: true });
        near.health.refused_early += u64::from(matches!(result, Err(DiskError::Medium(_))));
        self.early = match result {
            Ok(Some(bytes)) => Early::Here(bytes.freeze()),
            // Read again with the checksums at hand, and verified then.
            _ => Early::Failed,
        };
        if awaited { self.resolve(id, place, pinned, near) } else { Next::Wait }
    }

    /// Locates each block, now that all pages are in RAM, and reads the blocks that are on the
    /// disk.
    fn resolve<D: Disk>(
        &mut self,
        id: SlotId,
        place: Place,
        pinned: &mut Pinned,
        near: ReadNeighbours<'_, D>,
    ) -> Next {
        let early = match std::mem::take(&mut self.early) {
            Early::Asked { .. } => {
                // The pages stay pinned until the early read ends.
                self.early = Early::Asked { awaited: true };
                return Next::Wait;
            }
            Early::Here(bytes) => Some(bytes),
            Early::No | Early::Failed => None,
        };
        self.copy_words(place, &mut near.pages.cache);
        near.pages.unpin(std::mem::take(pinned));
        let mut reads = self.lay_out(place, near.layout, near.overlay);
        if let Some(bytes) = early {
            self.fill(&bytes);
            let segments = &self.segments;
            reads.retain(|read| {
                let segment = segments.get(usize::from(read.segment));
                matches!(segment, Some(Segment::Disk { filled: None, .. }))
            });
        }
        self.outstanding = reads.len() as u32;
        if !self.lost.is_empty() && self.scrub.is_none() {
            // Not counted here: the page that lost their checksums was counted, or no copy of them
            // was left.
            let lbas = self.lost.iter().map(|at| self.lba.offset(u64::from(*at))).collect();
            return Next::fail(StoreError::Corrupt { lbas });
        }
        if reads.is_empty() {
            return self.verify(place, near);
        }
        for SegmentRead { segment, offset, count } in reads {
            near.device.read(Op::ReadSegment { task: id, segment }, offset, count as usize * BLOCK_BYTES);
        }
        Next::Wait
    }

    /// Copies the blocks' checksums out of their pages.
    fn copy_words(&mut self, place: Place, cache: &mut PageCache) {
        self.words.clear();
        self.words.reserve(place.count as usize);
        let (mut word, end) = (place.first, place.first + place.count);
        while word < end {
            let page = word / PAGE_WORDS as u32;
            let upto = end.min((page + 1) * PAGE_WORDS as u32);
            let at = word as usize % PAGE_WORDS;
            match cache.words(place.slab, page) {
                Some(words) => self.words.extend_from_slice(&words[at..at + (upto - word) as usize]),
                None => self.words.resize(self.words.len() + (upto - word) as usize, LOST),
            }
            word = upto;
        }
    }

    /// Divides the blocks into segments by their places, and notes the lost ones. Returns the reads
    /// that fill the segments.
    fn lay_out(&mut self, place: Place, layout: &Layout, overlay: &Overlay) -> SmallVec<[SegmentRead; 2]> {
        let overlay = (!overlay.is_empty()).then_some(overlay);
        self.lost.clear();
        self.segments.clear();
        let mut reads: SmallVec<[SegmentRead; 2]> = SmallVec::new();
        for (at, word) in (0u32..).zip(&self.words) {
            let block = place.first + at;
            let journaled = overlay.and_then(|overlay| overlay.get(block_key(place.slab, block)));
            let source = source_of(at, *word, self.append, journaled);
            if let Segment::Zero { .. } = source
                && *word != UNWRITTEN
            {
                self.lost.push(at);
            }
            match (self.segments.last_mut(), &source) {
                (Some(Segment::Zero { count }), Segment::Zero { .. }) => *count += 1,
                (Some(Segment::Disk { count, journal: None, .. }), Segment::Disk { journal: None, .. })
                    if !self.singly =>
                {
                    *count += 1;
                    if let Some(last) = reads.last_mut() {
                        last.count += 1;
                    }
                }
                _ => {
                    if let Segment::Disk { journal, .. } = &source {
                        let offset = match journaled.filter(|_| journal.is_some()) {
                            Some(entry) => layout.journal_offset(entry.journal_block),
                            None => layout.block_offset(place.slab, block),
                        };
                        reads.push(SegmentRead { segment: self.segments.len() as u16, offset, count: 1 });
                    }
                    self.segments.push(source);
                }
            }
        }
        reads
    }

    /// Handles a segment that was read, and verifies all when it is the last.
    fn segment_read<D>(
        &mut self,
        place: Place,
        segment: u16,
        result: Result<Option<BufMut>, DiskError>,
        near: ReadNeighbours<'_, D>,
    ) -> Next {
        debug_assert!(self.outstanding > 0, "each segment is read once");
        self.outstanding -= 1;
        match (result, self.segments.get_mut(usize::from(segment))) {
            (Ok(Some(bytes)), Some(Segment::Disk { filled, .. })) => *filled = Some(bytes.freeze()),
            // Blocks that the medium failed are read again; any other failure fails the whole read.
            (Err(DiskError::Medium(_)), _) if self.failed.is_some() => {}
            (Err(error), _) => self.failed = Some(error),
            _ => self.failed = Some(DiskError::Invalid("a read without its buffer")),
        }
        if self.outstanding == 0 { self.verify(place, near) } else { Next::Wait }
    }

    /// Verifies all bytes, which have arrived now, and answers.
    fn verify<D>(&mut self, place: Place, near: ReadNeighbours<'_, D>) -> Next {
        // Another volume may have written there since.
        if !near.slabs.is_current(place) {
            return Next::fail(StoreError::NotMapped);
        }
        match self.failed.take() {
            None => {}
            Some(error) if Planted::MediumFailsDisk.is_planted() => {
                return Next::fail(StoreError::Disk(error));
            }
            Some(DiskError::Medium(_)) if !self.singly && !Planted::NoSecondRead.is_planted() => {
                self.singly = true;
                return Next::Gather;
            }
            Some(DiskError::Medium(_)) => {}
            Some(error) => return Next::fail(StoreError::Disk(error)),
        }
        let unreadable = find_unreadable(self);
        let trusted =
            Planted::ServeCorrupt.is_planted() || self.append && Planted::SealNotVerified.is_planted();
        let suspects = if trusted { Vec::new() } else { find_suspects(self, place) };
        if unreadable.is_empty() && suspects.is_empty() {
            return self.deliver(near.zeroes);
        }
        if suspects != self.suspects && !Planted::NoSecondRead.is_planted() {
            self.suspects = suspects;
            return Next::Gather;
        }
        if self.append && suspects.iter().any(|(at, ..)| near.placing.overlaps(place.block(*at))) {
            // A half-written block: partly old, partly new.
            self.suspects.clear();
            return Next::Gather;
        }
        self.condemn(place, unreadable, &suspects, near)
    }

    /// Counts blocks that failed twice, and returns them.
    fn condemn<D>(
        &mut self,
        place: Place,
        unreadable: Vec<u32>,
        suspects: &[Suspect],
        near: ReadNeighbours<'_, D>,
    ) -> Next {
        let first = place.first;
        // Blocks that a crash tore were never acknowledged, so reads that meet them count no
        // damage; a later scrub does.
        let counted = !self.append || self.scrub.is_some();
        near.damage.note_unreadable(place.slab, unreadable.iter().map(|at| first + at));
        let failed = suspects.iter().filter(|_| counted).map(|(at, ..)| first + *at);
        near.damage.note_corrupt(place.slab, failed);
        self.corrupt = unreadable.into_iter().chain(suspects.iter().map(|(at, ..)| *at)).collect();
        self.corrupt.sort_unstable();
        if self.scrub.is_some() {
            return self.deliver(near.zeroes);
        }
        let lbas = self.corrupt.iter().map(|at| self.lba.offset(u64::from(*at))).collect();
        Next::fail(StoreError::Corrupt { lbas })
    }

    fn deliver(&mut self, zeroes: &Buf) -> Next {
        if self.scrub.is_some() {
            return Next::done();
        }
        let mut data = Payload::new();
        for segment in self.segments.drain(..) {
            match segment {
                Segment::Zero { count } => {
                    let mut rest = count as usize * BLOCK_BYTES;
                    while rest > 0 {
                        let len = rest.min(zeroes.len());
                        data.push(zeroes.slice(..len));
                        rest -= len;
                    }
                }
                Segment::Kept(bytes) | Segment::Disk { filled: Some(bytes), .. } => data.push(bytes),
                Segment::Disk { filled: None, .. } => {}
            }
        }
        let checksums = if self.append { Vec::new() } else { std::mem::take(&mut self.words) };
        Next::Finish(Ok(StoreReply::Data { data, checksums }))
    }
}

/// Locates block `at` of a read. A lost block has no bytes: it stands as zeroes, with a word that
/// is not [`UNWRITTEN`].
fn source_of(at: u32, word: u64, append: bool, journaled: Option<&OverlayEntry>) -> Segment {
    match journaled {
        Some(OverlayEntry { bytes: Some(bytes), .. }) => Segment::Kept(bytes.clone()),
        Some(entry) => Segment::Disk { at, count: 1, journal: Some(entry.sequence), filled: None },
        None if word == UNWRITTEN || word == if append { APPEND_LOST } else { LOST } => {
            Segment::Zero { count: 1 }
        }
        None => Segment::Disk { at, count: 1, journal: None, filled: None },
    }
}

/// Returns the blocks, by their place within the read, that the medium failed.
fn find_unreadable(read: &ReadTask) -> Vec<u32> {
    let unfilled = |segment: &Segment| match segment {
        Segment::Disk { at, count, filled: None, .. } => Some(*at..*at + *count),
        _ => None,
    };
    read.segments.iter().filter_map(unfilled).flatten().collect()
}

fn find_suspects(read: &ReadTask, place: Place) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    for segment in &read.segments {
        let Segment::Disk { at, count, journal, filled: Some(bytes) } = segment else { continue };
        debug_assert!(at + count <= place.count);
        for (index, block) in (*at..at + count).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let word = read.words.get(index as usize).copied().unwrap_or(LOST);
            let lba = read.lba.offset(u64::from(index));
            let intact = match read.append {
                true => codes::sealed_order(read.volume, lba, block).is_some(),
                false => block_matches(read.volume, lba, block, word),
            };
            if !intact {
                suspects.push((index, word, *journal));
            }
        }
    }
    suspects
}
