//! The scrub of the store's own structures. Once in a round of the scrub, when all data is verified, it
//! reads every copy of label, anchors, records, tables and page versions, and the batches of the
//! journal that a crash would replay. All of them are in RAM too, so damaged ones are written again:
//! copies of the label here, one after the other; all else by its usual way.
//!
//! A piece that is being written while it is read may be half old and half new. It is not judged,
//! but read again, a few times at most, after the checkpoint or the write of records in progress.

use super::checkpoint::Checkpoint;
use super::damage::Damage;
use super::device::Device;
use super::operation::{Attempt, Op};
use super::pages::Pages;
use super::records::Records;
use super::slab_table::SlabTable;
use super::volumes::Volumes;
use crate::health::{StoreHealth, WriteKind};
use crate::journal::Journal;
use crate::label::Label;
use crate::layout::{ANCHOR_SLOTS, LABEL_SLOTS, Layout, PAGE_BYTES, RECORDS_SLOTS};
use crate::numbers::block_key;
use crate::overlay::Overlay;
use crate::planted::Planted;
use crate::record::{parse_batch, parse_batch_header};
use crate::replay::{DamagedBlock, damaged_data};
use crate::slots::SlotId;
use crate::tables::damaged_table_pages;
use disk::{Disk, DiskError};
use std::collections::{BTreeMap, BTreeSet};
use sys::{Buf, BufMut};
use types::{Lba, VolumeId};

/// Most bytes read at once.
const READ_BYTES_MAX: usize = 1 << 20;
/// Pages of tables, versions and journal that are judged together: 1 MiB.
const PIECE_PAGES: usize = READ_BYTES_MAX / PAGE_BYTES;
/// Attempts after which a piece that is always being written is left to the next round.
const TRIES_MAX: u32 = 4;
/// Copies of label, anchors and records: two slots in each of two areas.
const COPIES: usize = 4;

/// The unit that is read and judged at once.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Label { copy: usize },
    Anchor { copy: usize },
    Records { copy: usize },
    Tables { copy: usize, first: usize },
    Versions { first: usize },
    Journal { sequence: u64 },
}

enum State {
    /// Waiting for the end of a checkpoint or of a write of records.
    Waiting,
    Reading(Reading),
    /// Writing a copy of the label.
    Writing,
}

/// The read of a piece.
struct Reading {
    offset: u64,
    bytes: BufMut,
    /// Bytes read, or failed by the medium, so far.
    at: usize,
    /// End of the part that the medium failed as a whole, and that is read page by page.
    singly_until: usize,
    page_attempt: Attempt,
    /// Pages of the piece that the medium failed to read; they stand as zeroes.
    unreadable: BTreeSet<usize>,
    attempt: Attempt,
    /// Reads that the medium refused.
    refused: u64,
    /// Bytes written to structures of this kind when the read began.
    written: u64,
}

struct Pass {
    /// The scrub that waits for the pass.
    task: SlotId,
    piece: Piece,
    /// Failed attempts to judge this piece.
    tries: u32,
    state: State,
    /// Last batch of the journal to verify.
    journal_end: u64,
    corrupt: Vec<(VolumeId, Lba)>,
}

/// End of a pass: the scrub that waited for it, and the journaled blocks that it found corrupt.
pub(super) struct PassEnded {
    pub(super) task: SlotId,
    pub(super) corrupt: Vec<(VolumeId, Lba)>,
}

/// The pass in progress, if any.
///
/// Invariant: one read or one write is in flight at a time, or none while the pass waits. A piece
/// is judged only if nothing of its kind was being written when the read began or since; a batch of
/// the journal, if its space was not freed since. A copy of the label is written only while it is
/// known to be damaged.
#[derive(Default)]
pub(super) struct Structures {
    pass: Option<Pass>,
}

/// Findings in a piece, by page.
#[derive(Default)]
struct Judged {
    damaged: BTreeSet<usize>,
    /// Of these, damaged data of the journal.
    data: BTreeMap<usize, (u64, DamagedBlock)>,
}

/// The parts whose structures are read and rewritten.
pub(super) struct StructureNeighbours<'a, D> {
    pub(super) label: &'a Label,
    pub(super) layout: &'a Layout,
    pub(super) device: &'a mut Device<D>,
    pub(super) journal: &'a Journal,
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a mut Pages,
    pub(super) slabs: &'a mut SlabTable,
    pub(super) volumes: &'a mut Volumes,
    pub(super) checkpoint: &'a mut Checkpoint,
    pub(super) records: &'a mut Records,
    pub(super) damage: &'a mut Damage,
    pub(super) health: &'a mut StoreHealth,
}

impl Structures {
    /// Begins a pass. Returns whether the scrub must wait for it; a pass already in progress serves
    /// as well.
    pub(super) fn begin<D: Disk>(&mut self, task: SlotId, mut near: StructureNeighbours<'_, D>) -> bool {
        if self.pass.is_some() || Planted::OwnNotScrubbed.is_planted() {
            return false;
        }
        let mut pass = Pass {
            task,
            piece: Piece::Label { copy: 0 },
            tries: 0,
            state: State::Waiting,
            journal_end: near.journal.committed(),
            corrupt: Vec::new(),
        };
        let goes_on = pass.read_piece(&mut near);
        debug_assert!(goes_on, "a copy of the label can always be read");
        self.pass = Some(pass);
        true
    }

    /// Handles the end of a read.
    pub(super) fn read<D: Disk>(
        &mut self,
        result: Result<Option<BufMut>, DiskError>,
        mut near: StructureNeighbours<'_, D>,
    ) -> Option<PassEnded> {
        let goes_on = self.pass.as_mut()?.take(result, &mut near);
        self.end_unless(goes_on)
    }

    /// Notes that a copy of the label is durable.
    pub(super) fn label_written<D: Disk>(
        &mut self,
        mut near: StructureNeighbours<'_, D>,
    ) -> Option<PassEnded> {
        let pass = self.pass.as_mut()?;
        debug_assert!(matches!(pass.state, State::Writing), "a label is written when it was judged");
        let goes_on = pass.next_piece(&mut near);
        self.end_unless(goes_on)
    }

    /// Continues a waiting pass, after a checkpoint has ended or records were written.
    pub(super) fn resume<D: Disk>(&mut self, mut near: StructureNeighbours<'_, D>) -> Option<PassEnded> {
        let pass = self.pass.as_mut().filter(|pass| matches!(pass.state, State::Waiting))?;
        let goes_on = pass.read_piece(&mut near);
        self.end_unless(goes_on)
    }

    /// Ends the pass in progress, since the store is poisoned. An answer still in flight is
    /// dropped.
    pub(super) fn give_up(&mut self) -> Option<PassEnded> {
        self.end_unless(false)
    }

    fn end_unless(&mut self, goes_on: bool) -> Option<PassEnded> {
        let Pass { task, corrupt, .. } = self.pass.take_if(|_| !goes_on)?;
        Some(PassEnded { task, corrupt })
    }
}

impl Pass {
    /// Moves to the next piece. Returns whether there is one.
    fn next_piece<D: Disk>(&mut self, near: &mut StructureNeighbours<'_, D>) -> bool {
        match self.piece.next(near, self.journal_end) {
            Some(next) => {
                (self.piece, self.tries) = (next, 0);
                self.read_piece(near)
            }
            None => false,
        }
    }

    /// Begins to read the piece, or the first one after it that can be judged.
    fn read_piece<D: Disk>(&mut self, near: &mut StructureNeighbours<'_, D>) -> bool {
        loop {
            if let Some((offset, len)) = self.piece.place(near, self.journal_end) {
                if self.piece.is_being_written(near) {
                    self.state = State::Waiting;
                } else {
                    let reading = Reading::new(offset, len, self.piece.written(near));
                    reading.ask(near.device);
                    self.state = State::Reading(reading);
                }
                return true;
            }
            match self.piece.next(near, self.journal_end) {
                Some(next) => (self.piece, self.tries) = (next, 0),
                None => return false,
            }
        }
    }

    fn take<D: Disk>(
        &mut self,
        result: Result<Option<BufMut>, DiskError>,
        near: &mut StructureNeighbours<'_, D>,
    ) -> bool {
        let State::Reading(reading) = &mut self.state else { return true };
        if !reading.take(result) {
            // The disk as a whole has failed: the next read or write reports it.
            return self.next_piece(near);
        }
        if reading.at < reading.bytes.len() {
            reading.ask(near.device);
            return true;
        }
        if self.piece.written(near) != reading.written || self.piece.is_being_written(near) {
            self.tries += 1;
            near.health.refused_early += reading.refused;
            return if self.tries < TRIES_MAX { self.read_piece(near) } else { self.next_piece(near) };
        }
        let judged = self.piece.judge(&reading.bytes, near);
        let rotten = judged.damaged.iter().any(|page| !reading.unreadable.contains(page));
        if rotten && reading.attempt == Attempt::First {
            reading.read_again();
            reading.ask(near.device);
            return true;
        }
        let State::Reading(reading) = std::mem::replace(&mut self.state, State::Writing) else {
            return true;
        };
        if judged.damaged.is_empty() && reading.unreadable.is_empty() {
            near.health.refused_early += reading.refused;
            return self.next_piece(near);
        }
        self.count(&judged, &reading, near);
        if let Piece::Journal { .. } = self.piece {
            let offsets = reading.unreadable.iter().map(|page| reading.offset + (page * PAGE_BYTES) as u64);
            near.checkpoint.heal_journal(offsets.filter_map(|offset| near.layout.journal_block(offset)));
        }
        let damaged = judged.damaged.union(&reading.unreadable);
        self.write_again(reading.offset, damaged.copied(), near) || self.next_piece(near)
    }

    /// Counts damage. A journaled block that is nowhere else is a corrupt block, to be repaired
    /// from another copy.
    fn count<D>(&mut self, judged: &Judged, reading: &Reading, near: &mut StructureNeighbours<'_, D>) {
        for &page in judged.damaged.union(&reading.unreadable) {
            let unreadable = reading.unreadable.contains(&page);
            let alone = judged.data.get(&page).filter(|(sequence, block)| {
                let entry = near.overlay.get(block_key(block.slab, block.block));
                entry.is_some_and(|entry| entry.sequence == *sequence && entry.bytes.is_none())
            });
            match alone {
                Some((_, DamagedBlock { slab, block, volume, lba, .. })) => {
                    let block = std::iter::once(*block);
                    match unreadable {
                        true => near.damage.note_unreadable(*slab, block),
                        false => near.damage.note_corrupt(*slab, block),
                    }
                    self.corrupt.push((*volume, *lba));
                }
                None => {
                    let offset = reading.offset + (page * PAGE_BYTES) as u64;
                    near.damage.note_structure(offset, unreadable, near.checkpoint.number());
                }
            }
        }
    }

    /// Has damaged pages of the piece rewritten. Returns whether this pass itself does so, and must
    /// wait.
    fn write_again<D: Disk>(
        &mut self,
        offset: u64,
        damaged: impl Iterator<Item = usize>,
        near: &mut StructureNeighbours<'_, D>,
    ) -> bool {
        match self.piece {
            Piece::Label { .. } => {
                let bytes = Buf::from(&near.label.encode()[..]);
                near.device.write(Op::Label { offset }, WriteKind::Anchors, offset, bytes.into(), true);
                return true;
            }
            Piece::Anchor { .. } => near.checkpoint.write_anchors(ANCHOR_SLOTS.len()),
            Piece::Records { .. } => {
                near.records.write_again();
                near.records.write_next(near.label.disk, near.layout, near.device);
            }
            Piece::Tables { first, .. } => {
                let (slab_pages, promise_pages): (Vec<_>, Vec<_>) =
                    damaged.map(|page| first + page).partition(|page| *page < near.layout.slab_table_pages());
                near.slabs.mark_changed_pages(slab_pages.into_iter().collect());
                if !promise_pages.is_empty() {
                    near.volumes.mark_changed();
                }
                near.checkpoint.request_unless_stalled();
            }
            Piece::Versions { first } => {
                near.pages.versions.mark_changed(damaged.map(|page| first + page));
                near.checkpoint.request_unless_stalled();
            }
            Piece::Journal { .. } => near.checkpoint.request_unless_stalled(),
        }
        false
    }
}

impl Reading {
    fn new(offset: u64, len: usize, written: u64) -> Self {
        Self {
            offset,
            bytes: BufMut::zeroed(len),
            at: 0,
            singly_until: 0,
            page_attempt: Attempt::First,
            unreadable: BTreeSet::new(),
            attempt: Attempt::First,
            refused: 0,
            written,
        }
    }

    /// Begins the piece anew: a failed checksum may pass on another read.
    fn read_again(&mut self) {
        (self.at, self.singly_until, self.attempt) = (0, 0, Attempt::Second);
        self.unreadable.clear();
        self.bytes.fill(0);
    }

    fn next_len(&self) -> usize {
        let len_max = if self.at < self.singly_until { PAGE_BYTES } else { READ_BYTES_MAX };
        len_max.min(self.bytes.len() - self.at)
    }

    fn ask<D: Disk>(&self, device: &mut Device<D>) {
        device.read(Op::Structure, self.offset + self.at as u64, self.next_len());
    }

    /// Takes the bytes read. Returns whether to continue: false if the disk as a whole failed.
    fn take(&mut self, result: Result<Option<BufMut>, DiskError>) -> bool {
        let len = self.next_len();
        self.refused += u64::from(matches!(result, Err(DiskError::Medium(_))));
        match result {
            Ok(Some(bytes)) if bytes.len() == len => {
                self.bytes[self.at..self.at + len].copy_from_slice(&bytes);
                self.at += len;
            }
            Err(DiskError::Medium(_)) if len > PAGE_BYTES => {
                self.singly_until = self.at + len;
                return true;
            }
            Err(DiskError::Medium(_)) if self.page_attempt == Attempt::First => {
                self.page_attempt = Attempt::Second;
                return true;
            }
            Err(DiskError::Medium(_)) => {
                self.unreadable.insert(self.at / PAGE_BYTES);
                self.at += len;
            }
            _ => return false,
        }
        self.page_attempt = Attempt::First;
        true
    }
}

impl Piece {
    /// Returns the piece after this one. Pieces of the journal come last, up to batch
    /// `journal_end`.
    fn next<D>(self, near: &StructureNeighbours<'_, D>, journal_end: u64) -> Option<Self> {
        let layout = near.layout;
        let next = match self {
            Self::Label { copy } if copy + 1 < COPIES => Self::Label { copy: copy + 1 },
            Self::Label { .. } => Self::Anchor { copy: 0 },
            Self::Anchor { copy } if copy + 1 < COPIES => Self::Anchor { copy: copy + 1 },
            Self::Anchor { .. } => Self::Records { copy: 0 },
            Self::Records { copy } if copy + 1 < COPIES => Self::Records { copy: copy + 1 },
            Self::Records { .. } => Self::Tables { copy: 0, first: 0 },
            Self::Tables { copy, first } if first + PIECE_PAGES < layout.table_pages() => {
                Self::Tables { copy, first: first + PIECE_PAGES }
            }
            Self::Tables { copy: 0, .. } => Self::Tables { copy: 1, first: 0 },
            Self::Tables { .. } => Self::Versions { first: 0 },
            Self::Versions { first } if first + PIECE_PAGES < layout.version_pages() => {
                Self::Versions { first: first + PIECE_PAGES }
            }
            Self::Versions { .. } => Self::Journal { sequence: near.journal.first_live() },
            Self::Journal { sequence } => {
                // Batches whose space was freed since need no verification.
                let run = near.journal.run_from(sequence, journal_end, PIECE_PAGES as u32);
                let behind = run.map_or(sequence, |run| run.last_sequence + 1);
                Self::Journal { sequence: behind.max(near.journal.first_live()) }
            }
        };
        match next {
            Self::Journal { sequence } if sequence > journal_end => None,
            next => Some(next),
        }
    }

    /// Returns offset and size in bytes of the piece; `None` if its expected content is not known.
    fn place<D>(self, near: &StructureNeighbours<'_, D>, journal_end: u64) -> Option<(u64, usize)> {
        let layout = near.layout;
        let slot_of = |slots: [u64; 2], copy: usize| layout.areas()[copy / 2] + slots[copy % 2];
        let pages = |first: usize, count: usize| PIECE_PAGES.min(count - first) * PAGE_BYTES;
        let offset_of = |start: u64, first: usize| start + (first * PAGE_BYTES) as u64;
        match self {
            Self::Label { copy } => Some((slot_of(LABEL_SLOTS, copy), PAGE_BYTES)),
            Self::Anchor { copy } => {
                near.checkpoint.anchor_in(copy % 2)?;
                Some((slot_of(ANCHOR_SLOTS, copy), PAGE_BYTES))
            }
            Self::Records { copy } => {
                let len = near.records.whole_bytes(copy % 2)?;
                Some((slot_of(RECORDS_SLOTS, copy), PAGE_BYTES + len.next_multiple_of(PAGE_BYTES)))
            }
            Self::Tables { copy, first } => {
                Some((offset_of(layout.tables[copy], first), pages(first, layout.table_pages())))
            }
            Self::Versions { first } => {
                Some((offset_of(layout.versions, first), pages(first, layout.version_pages())))
            }
            Self::Journal { sequence } => {
                let run = near.journal.run_from(sequence, journal_end, PIECE_PAGES as u32)?;
                Some((layout.journal_offset(run.block), run.blocks as usize * PAGE_BYTES))
            }
        }
    }

    /// Whether structures of this kind are being written, so that a read may find either state.
    fn is_being_written<D>(self, near: &StructureNeighbours<'_, D>) -> bool {
        match self {
            Self::Label { .. } | Self::Journal { .. } => false,
            Self::Anchor { .. } => near.checkpoint.is_running(),
            Self::Records { .. } => near.records.is_writing(),
            Self::Tables { .. } | Self::Versions { .. } => near.checkpoint.is_running(),
        }
    }

    /// Returns a number that changes with each write to structures of this kind.
    fn written<D: Disk>(self, near: &StructureNeighbours<'_, D>) -> u64 {
        let written = near.device.written();
        match self {
            Self::Label { .. } => 0,
            Self::Anchor { .. } | Self::Records { .. } => written.anchors,
            Self::Tables { .. } | Self::Versions { .. } => written.tables,
            // A batch is written once, and its space is freed before it is written again.
            Self::Journal { sequence } => u64::from(near.journal.first_live() > sequence),
        }
    }

    fn judge<D>(self, bytes: &[u8], near: &StructureNeighbours<'_, D>) -> Judged {
        let disk = near.label.disk;
        let only_if = |damaged: bool| damaged.then_some(0).into_iter().collect();
        let damaged = match self {
            Self::Label { .. } => only_if(*bytes != *near.label.encode()),
            Self::Anchor { copy } => {
                only_if(near.checkpoint.anchor_in(copy % 2).is_some_and(|anchor| *bytes != **anchor))
            }
            Self::Records { copy } => only_if(!near.records.is_whole(disk, copy % 2, bytes)),
            Self::Tables { first, .. } => {
                let mut damaged = damaged_table_pages(disk, near.layout, first, bytes);
                let pages = (0..)
                    .zip(bytes.chunks_exact(PAGE_BYTES))
                    .take(near.layout.slab_table_pages().saturating_sub(first));
                damaged.extend(
                    pages.filter(|(at, page)| near.slabs.is_other(disk, first + at, page)).map(|(at, _)| at),
                );
                damaged
            }
            Self::Versions { first } => {
                let versions = &near.pages.versions;
                let pages = (0..).zip(bytes.chunks_exact(PAGE_BYTES));
                pages
                    .filter(|(at, page)| versions.is_other(disk, first + at, page))
                    .map(|(at, _)| at)
                    .collect()
            }
            Self::Journal { sequence } => return judge_batches(sequence, bytes, near),
        };
        Judged { damaged, data: BTreeMap::new() }
    }
}

/// Judges consecutive batches from this sequence on, as replay would.
fn judge_batches<D>(sequence: u64, bytes: &[u8], near: &StructureNeighbours<'_, D>) -> Judged {
    let mut judged = Judged::default();
    let mut page = 0;
    for batch in near.journal.live_from(sequence) {
        let Some(bytes) = bytes.get(page * PAGE_BYTES..).filter(|bytes| !bytes.is_empty()) else { break };
        let found = parse_batch_header(bytes).filter(|header| header.crc == batch.crc);
        match found.and_then(|_| parse_batch(near.label.disk, bytes)) {
            Some((header, records)) => {
                let first = header.header_blocks as usize;
                let data = bytes.get(first * PAGE_BYTES..).unwrap_or(&[]);
                for block in damaged_data(near.layout, &records, data) {
                    judged.damaged.insert(page + first + block.at);
                    judged.data.insert(page + first + block.at, (batch.sequence, block));
                }
            }
            None => drop(judged.damaged.insert(page)),
        }
        page += batch.blocks as usize;
    }
    judged
}
