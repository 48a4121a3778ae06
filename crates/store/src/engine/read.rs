//! Reads: from the journaled blocks first, then in place; every block that comes from the disk is verified. A block that
//! fails, or of an append chunk does not prove itself, is read once more, and again as long as what is known of it changed meanwhile: only a block that fails twice in
//! the same place under the same checksum is corrupt. A read that the medium cannot give is done once more block by block: the blocks
//! that it does not give then are corrupt too, and only these.
//!
//! Where the checksums are not in RAM, the blocks are read beside them, not after: whatever was read too early fails its checksum and is
//! read once more.

use super::Store;
use super::append::is_placing;
use super::task::{Kind, Op, Place, Task};
use crate::api::{StoreError, StoreReply};
use crate::layout::PAGE_WORDS;
use crate::numbers::block_key;
use crate::planted::Planted;
use crate::record::APPEND_LOST;
use crate::slots::SlotId;
use codes::{LOST, UNWRITTEN, block_matches};
use disk::{Disk, DiskError};
use smallvec::SmallVec;
use sys::{Buf, BufMut, Payload};
use types::{BLOCK_BYTES, Lba, VolumeId};

/// Stands for the segment of a read that went ahead of its checksums.
const EARLY: u16 = u16::MAX;

/// Most blocks of one read: 4 MiB.
const READ_BLOCKS_MAX: u32 = 1024;

pub(super) struct ReadTask {
    pub(super) volume: VolumeId,
    /// Address of the first block.
    pub(super) lba: Lba,
    pub(super) append: bool,
    /// The scrub that it is a part of.
    pub(super) scrub: Option<SlotId>,
    words: Vec<u64>,
    segments: SmallVec<[Segment; 2]>,
    outstanding: u32,
    failed: Option<DiskError>,
    suspects: Vec<Suspect>,
    early: Early,
    /// The medium did not give the whole: each block is asked for alone.
    singly: bool,
}

/// All blocks of the read, read in place beside their checksums.
#[derive(Default)]
enum Early {
    /// Not asked for, or used up.
    #[default]
    No,
    /// `awaited`: the checksums are here.
    Asked {
        awaited: bool,
    },
    Here(Buf),
    Failed,
}

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

/// A block whose bytes did not match, or did not prove themselves: its place within the read, the checksum expected, the batch it came from.
type Suspect = (u32, u64, Option<u64>);

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
            early: Early::No,
            singly: false,
        }
    }

    /// Gives the segments their part of what was read early.
    fn fill(&mut self, bytes: &Buf) {
        for segment in &mut self.segments {
            if let Segment::Disk { at, count, journal: None, filled } = segment {
                let (from, to) = (*at as usize * BLOCK_BYTES, (*at + *count) as usize * BLOCK_BYTES);
                *filled = Some(bytes.slice(from..to));
            }
        }
    }
}

impl<D: Disk> Store<D> {
    pub(super) fn take_read(
        &mut self,
        token: u64,
        volume: VolumeId,
        lba: Lba,
        blocks: u32,
    ) -> Result<(), StoreError> {
        if blocks > READ_BLOCKS_MAX {
            return Err(StoreError::Invalid("a read of more than 4 MiB"));
        }
        let (place, entry) = self.locate(volume, lba, blocks)?;
        let read = ReadTask::new(volume, lba, entry.append, None);
        let id = self.tasks.insert(Task::new(token, Some(place), Kind::Read(read)));
        self.gather_pages(id);
        if !entry.append {
            self.read_early(id, place);
        }
        Ok(())
    }

    /// Reads the blocks beside their checksums, where those have to be read and nothing of the blocks is known to be journaled.
    fn read_early(&mut self, id: SlotId, place: Place) {
        let journaled = |block| self.overlay.get(block_key(place.slab, block)).is_some();
        if !self.overlay.is_empty() && (place.first..place.first + place.count).any(journaled) {
            return;
        }
        let Some(Task { pages_missing: 1.., kind: Kind::Read(read), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        read.early = Early::Asked { awaited: false };
        let offset = self.layout.block_offset(place.slab, place.first);
        self.read(Op::ReadSegment { task: id, segment: EARLY }, offset, place.count as usize * BLOCK_BYTES);
    }

    /// What was read early is here.
    fn early_read(&mut self, id: SlotId, result: Result<Option<BufMut>, DiskError>) {
        let Some(Task { kind: Kind::Read(read), .. }) = self.tasks.get_mut(id) else { return };
        let awaited = matches!(read.early, Early::Asked { awaited: true });
        self.health.refused_early += u64::from(matches!(result, Err(DiskError::Medium(_))));
        read.early = match result {
            Ok(Some(bytes)) => Early::Here(bytes.freeze()),
            // Asked for again with the checksums at hand, and judged then.
            _ => Early::Failed,
        };
        if awaited {
            self.resolve_read(id);
        }
    }

    /// All pages are here: finds where each block lies, and reads what lies on the disk.
    pub(super) fn resolve_read(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), pages, kind: Kind::Read(read), .. }) = self.tasks.get_mut(id)
        else {
            return;
        };
        let place = *place;
        let early = match std::mem::take(&mut read.early) {
            Early::Asked { .. } => {
                // The pages stay pinned until then.
                read.early = Early::Asked { awaited: true };
                return;
            }
            Early::Here(bytes) => Some(bytes),
            Early::No | Early::Failed => None,
        };
        read.words.clear();
        read.words.reserve(place.count as usize);
        let (mut word, end) = (place.first, place.first + place.count);
        while word < end {
            let page = word / PAGE_WORDS as u32;
            let upto = end.min((page + 1) * PAGE_WORDS as u32);
            let at = word as usize % PAGE_WORDS;
            match self.cache.words(place.slab, page) {
                Some(words) => read.words.extend_from_slice(&words[at..at + (upto - word) as usize]),
                None => read.words.resize(read.words.len() + (upto - word) as usize, LOST),
            }
            word = upto;
        }
        std::mem::take(pages).iter().for_each(|key| self.cache.unpin(*key));
        let overlay = (!self.overlay.is_empty()).then_some(&self.overlay);
        let mut lost = Vec::new();
        read.segments.clear();
        let mut reads: SmallVec<[(u16, u64, u32); 2]> = SmallVec::new();
        for (at, word) in (0u32..).zip(&read.words) {
            let block = place.first + at;
            let journaled = overlay.and_then(|overlay| overlay.get(block_key(place.slab, block)));
            let source = match journaled {
                Some(entry) => match &entry.bytes {
                    Some(bytes) => Segment::Kept(bytes.clone()),
                    None => Segment::Disk { at, count: 1, journal: Some(entry.sequence), filled: None },
                },
                None if *word == UNWRITTEN => Segment::Zero { count: 1 },
                None if *word == if read.append { APPEND_LOST } else { LOST } => {
                    lost.push(at);
                    Segment::Zero { count: 1 }
                }
                None => Segment::Disk { at, count: 1, journal: None, filled: None },
            };
            match (read.segments.last_mut(), &source) {
                (Some(Segment::Zero { count }), Segment::Zero { .. }) => *count += 1,
                (Some(Segment::Disk { count, journal: None, .. }), Segment::Disk { journal: None, .. })
                    if !read.singly =>
                {
                    *count += 1;
                    if let Some(last) = reads.last_mut() {
                        last.2 += 1;
                    }
                }
                _ => {
                    if let Segment::Disk { journal, .. } = &source {
                        let offset = match journaled.filter(|_| journal.is_some()) {
                            Some(entry) => self.layout.journal_offset(entry.journal_block),
                            None => self.layout.block_offset(place.slab, block),
                        };
                        reads.push((read.segments.len() as u16, offset, 1));
                    }
                    read.segments.push(source);
                }
            }
        }
        if let Some(bytes) = early {
            read.fill(&bytes);
            let segments = &read.segments;
            reads.retain(|(segment, ..)| {
                matches!(segments.get(usize::from(*segment)), Some(Segment::Disk { filled: None, .. }))
            });
        }
        read.outstanding = reads.len() as u32;
        if !lost.is_empty() {
            // Not counted: the page that lost their checksums was, or no copy of them was left.
            if read.scrub.is_none() {
                let lbas = lost.iter().map(|at| read.lba.offset(u64::from(*at))).collect();
                return self.finish_read(id, Err(StoreError::Corrupt { lbas }));
            }
            let (volume, first) = (read.volume, read.lba);
            let scrub = read.scrub;
            self.scrub_found(scrub, lost.iter().map(|at| (volume, first.offset(u64::from(*at)))));
        }
        if reads.is_empty() {
            return self.verify_read(id);
        }
        for (segment, offset, count) in reads {
            self.read(Op::ReadSegment { task: id, segment }, offset, count as usize * BLOCK_BYTES);
        }
    }

    pub(super) fn segment_read(
        &mut self,
        id: SlotId,
        segment: u16,
        result: Result<Option<BufMut>, DiskError>,
    ) {
        if segment == EARLY {
            return self.early_read(id, result);
        }
        let Some(Task { kind: Kind::Read(read), .. }) = self.tasks.get_mut(id) else { return };
        read.outstanding -= 1;
        match (result, read.segments.get_mut(usize::from(segment))) {
            (Ok(Some(bytes)), Some(Segment::Disk { filled, .. })) => *filled = Some(bytes.freeze()),
            // What the medium did not give is asked for again; what else failed, failed the whole.
            (Err(DiskError::Medium(_)), _) if read.failed.is_some() => {}
            (Err(error), _) => read.failed = Some(error),
            _ => read.failed = Some(DiskError::Invalid("a read without its buffer")),
        }
        if read.outstanding == 0 {
            self.verify_read(id);
        }
    }

    /// All bytes are here: verifies them, and answers.
    fn verify_read(&mut self, id: SlotId) {
        let Some(Task { place: Some(place), kind: Kind::Read(read), .. }) = self.tasks.get_mut(id) else {
            return;
        };
        let place = *place;
        // Another volume may have written there meanwhile.
        if self.slabs.entry(place.slab).is_none_or(|entry| entry.generation != place.generation) {
            return self.not_mapped(id);
        }
        match read.failed.take() {
            None => {}
            Some(error) if Planted::MediumFailsDisk.is_planted() => {
                return self.finish_read(id, Err(StoreError::Disk(error)));
            }
            Some(DiskError::Medium(_)) if !read.singly && !Planted::NoSecondRead.is_planted() => {
                read.singly = true;
                return self.gather_pages(id);
            }
            Some(DiskError::Medium(_)) => {}
            Some(error) => return self.finish_read(id, Err(StoreError::Disk(error))),
        }
        let unreadable = find_unreadable(read);
        let trusted =
            Planted::ServeCorrupt.is_planted() || read.append && Planted::SealNotVerified.is_planted();
        let suspects = if trusted { Vec::new() } else { find_suspects(read, place) };
        if unreadable.is_empty() && suspects.is_empty() {
            return self.deliver_read(id);
        }
        if suspects != read.suspects && !Planted::NoSecondRead.is_planted() {
            read.suspects = suspects;
            return self.gather_pages(id);
        }
        let of_block = |at: u32| Place { first: place.first + at, count: 1, ..place };
        if read.append && suspects.iter().any(|(at, ..)| is_placing(&self.placing, of_block(*at))) {
            // Half of what it was and half of what it is going to be.
            read.suspects.clear();
            return self.gather_pages(id);
        }
        let first = place.first;
        // What a crash tore is met by the reads that follow it, was never acknowledged, and is no damage of the disk: a later scrub tells.
        let counted = !read.append || read.scrub.is_some();
        let newly = self.found_corrupt.note(place.slab, unreadable.iter().map(|at| first + at));
        self.health.medium_errors += newly;
        let failed = suspects.iter().filter(|_| counted).map(|(at, ..)| first + *at);
        self.health.corrupt_blocks += newly + self.found_corrupt.note(place.slab, failed);
        let (volume, first, scrub) = (read.volume, read.lba, read.scrub);
        let mut bad: Vec<u32> = unreadable.into_iter().chain(suspects.iter().map(|(at, ..)| *at)).collect();
        bad.sort_unstable();
        let lbas: Vec<Lba> = bad.into_iter().map(|at| first.offset(u64::from(at))).collect();
        match scrub {
            None => self.finish_read(id, Err(StoreError::Corrupt { lbas })),
            Some(_) => {
                self.scrub_found(scrub, lbas.into_iter().map(|lba| (volume, lba)));
                self.deliver_read(id);
            }
        }
    }

    fn deliver_read(&mut self, id: SlotId) {
        let Some(Task { kind: Kind::Read(read), .. }) = self.tasks.get_mut(id) else { return };
        if read.scrub.is_some() {
            return self.finish_read(id, Ok(StoreReply::Done));
        }
        let mut data = Payload::new();
        for segment in read.segments.drain(..) {
            match segment {
                Segment::Zero { count } => {
                    let mut rest = count as usize * BLOCK_BYTES;
                    while rest > 0 {
                        let len = rest.min(self.zeroes.len());
                        data.push(self.zeroes.slice(..len));
                        rest -= len;
                    }
                }
                Segment::Kept(bytes) | Segment::Disk { filled: Some(bytes), .. } => data.push(bytes),
                Segment::Disk { filled: None, .. } => {}
            }
        }
        let checksums = if read.append { Vec::new() } else { std::mem::take(&mut read.words) };
        self.finish_read(id, Ok(StoreReply::Data { data, checksums }));
    }

    pub(super) fn finish_read(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        let scrub = match self.tasks.get(id) {
            Some(Task { kind: Kind::Read(read), .. }) => read.scrub,
            _ => None,
        };
        match scrub {
            None => self.finish(id, result),
            Some(scrub) => {
                self.drop_task(id);
                self.scrub_read_done(scrub, result);
            }
        }
    }
}

/// The blocks, by their place within the read, that the medium did not give.
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
