//! From a virtual disk to a volume that can be used: superblock, space map, replay of the journal.
//!
//! Superblocks and journal prove themselves, and their copies may differ after a crash: the virtual
//! disk answers with the newest intact copy of each block, and names blocks without any. Replay ends at
//! the first missing batch; if a later one proves that the missing one was acknowledged, the volume is
//! refused. A replayed batch that was never acknowledged may be on one copy only: before anything is
//! built on it, it is written again to all copies, the same bytes in the same order, and so is the
//! superblock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU32;

use ::types::{Lba, VolumeId};
use space::api::{SpaceRequest, SpaceSize, WriteClass};

use crate::planted::Planted;
use ::types::BLOCK_BYTES;
use sys::{Buf, BufMut, Payload};

use super::allocator::{Allocator, ChunkState};
use super::io::{Answer, Purpose, Requests, next_copy};
use super::layout::{
    CHUNK_BLOCKS_MIN, CHUNKS_MIN, Features, JOURNAL_FIRST, PAGE_BLOCKS, PAGE_BYTES, POINTER_BYTES, Pointer,
    Position, SPACE_MAP_PIECE_BYTES, SUPERBLOCK_LBAS, Superblock, journal_blocks,
};
use super::meta::journal::{Batch, JournalOperation, decode_header};
use super::meta::log::{IN_FLIGHT_MAX, Log};
use super::meta::{Changes, Store, Tree};
use super::types::FsError;

/// The journal is read 1 MiB at a time.
const WINDOW_BLOCKS: u32 = 256;

/// Pieces read ahead.
const WINDOWS_AHEAD: u32 = 4;

/// Batches kept for writing again: more than are ever written concurrently.
const RECENT_MAX: usize = 8;

/// Of this many batches under way, the first is durable before the last is written, so the last one
/// proves it. In front of the last there may be as many of the largest size, including the missing one,
/// and blocks skipped at the region's end.
const BATCHES_TO_PROOF: u32 = IN_FLIGHT_MAX as u32 + 1;

/// Orders that an opening passes over: more than batches can have been written that replay does not find.
const ORDER_STEP: u64 = 16;
const _: () = assert!(ORDER_STEP > IN_FLIGHT_MAX as u64);

/// An opening skips the number of the superblock that a checkpoint may have begun to write before a
/// crash. Odd, so that the superblock found is not overwritten.
const SUPERBLOCK_STEP: u64 = 3;

/// Numbers of requests for other things than a window of the journal.
const READ: u64 = u64::MAX - 1;
const WRITE: u64 = u64::MAX;

/// Set in the number of a request for one block of the journal.
const SINGLE_BLOCK: u64 = 1 << 62;

/// Largest space map that is believed: that of a virtual disk of a petabyte.
const SPACE_MAP_BYTES_MAX: u32 = 64 << 20;

/// Result of opening.
pub struct Opened {
    pub superblock: Superblock,
    pub allocator: Allocator,
    pub log: Log,
    pub store: Store,
    pub space_map_pages: Vec<Lba>,
}

enum Phase {
    /// The place of a new volume's superblocks and journal is emptied.
    Emptying,
    Superblocks,
    /// The space map's next page is being read.
    SpaceMap {
        page: Pointer,
        copy: Option<u8>,
        len_bytes: usize,
    },
    Replay,
    /// Unacknowledged batches and the superblock are written; requests left.
    Rewrite {
        left: usize,
    },
}

/// Opening or formatting under way.
pub struct FsOpening {
    phase: Phase,
    superblock: Option<Superblock>,
    allocator: Option<Allocator>,
    page_cache_bytes: usize,
    /// Answers missing.
    left: usize,
    error: Option<FsError>,
    space_map: Vec<u8>,
    space_map_pages: Vec<Lba>,
    changes: Changes,
    head: Position,
    acknowledged: u64,
    /// The highest order of a batch that was replayed.
    order: u64,
    /// The last batches: their first block, number and bytes.
    recent: VecDeque<(u32, u64, Buf)>,
    /// Windows of the journal; `None`: under way.
    windows: HashMap<u32, Option<Result<Buf, FsError>>>,
    /// Those that are read block by block.
    pieces: HashMap<u32, Pieces>,
    /// Blocks of the journal of which no copy proves itself.
    torn: BTreeSet<u32>,
}

/// A window of the journal that is read block by block.
struct Pieces {
    whole: BufMut,
    left: u32,
    error: Option<FsError>,
}

/// Result of a search for the next batch of the journal.
enum Look {
    Wait,
    Nothing,
    Batch(u32, Box<Batch>, Buf),
}

impl FsOpening {
    fn new(page_cache_bytes: usize, phase: Phase) -> Self {
        Self {
            phase,
            superblock: None,
            allocator: None,
            page_cache_bytes,
            left: 0,
            error: None,
            space_map: Vec::new(),
            space_map_pages: Vec::new(),
            changes: Changes::new(),
            head: Position::default(),
            acknowledged: 0,
            order: 0,
            recent: VecDeque::new(),
            windows: HashMap::new(),
            pieces: HashMap::new(),
            torn: BTreeSet::new(),
        }
    }

    /// Begins to open the volume on the virtual disk.
    pub fn open(requests: &mut Requests, page_cache_bytes: usize) -> Self {
        let mut opening = Self::new(page_cache_bytes, Phase::Superblocks);
        for lba in SUPERBLOCK_LBAS {
            let read = SpaceRequest::Read { lba, blocks: 1, copy: None };
            requests.submit(Purpose::Opening(lba.0), read);
            opening.left += 1;
        }
        opening
    }

    /// Begins to make an empty volume.
    pub fn format(
        requests: &mut Requests,
        page_cache_bytes: usize,
        volume: [u8; 16],
        salt: u64,
    ) -> Result<Self, FsError> {
        let size = requests.size();
        let journal_blocks = journal_blocks(size.chunk_blocks);
        let blocks_min = u64::from(CHUNKS_MIN) * u64::from(size.chunk_blocks);
        if size.chunk_blocks < CHUNK_BLOCKS_MIN || size.blocks.0 < blocks_min {
            return Err(FsError::Invalid("a volume needs a virtual disk of three chunks of 1 MiB or more"));
        }
        let chain = codes::crc64_append(codes::crc64(&volume), &salt.to_le_bytes());
        let mut opening = Self::new(page_cache_bytes, Phase::Emptying);
        let superblock = Superblock {
            chunk_blocks: size.chunk_blocks,
            volume,
            sequence: 0,
            incarnation: 1,
            journal_blocks,
            tail: Position { block: 0, sequence: 1, chain, total: 0 },
            root: None,
            space_map: None,
            order: 1,
            features: Features::empty(),
            batch_blocks_max: NonZeroU32::new(Log::batch_blocks_max(journal_blocks)),
        };
        opening.allocator = Some(Self::allocator(size)?);
        opening.head = superblock.tail;
        opening.superblock = Some(superblock);
        // Blocks of an earlier volume could have higher orders than those of the new one.
        let discard = SpaceRequest::Discard { lba: Lba(0), blocks: u64::from(size.chunk_blocks) };
        requests.submit(Purpose::Opening(WRITE), discard);
        Ok(opening)
    }

    fn write_first_superblocks(&mut self, requests: &mut Requests) {
        let Some(superblock) = &mut self.superblock else { return };
        for sequence in 1..=2 {
            superblock.sequence = sequence;
            requests.submit(Purpose::Opening(WRITE), write_superblock(superblock));
        }
        self.phase = Phase::Rewrite { left: 2 };
    }

    fn allocator(size: SpaceSize) -> Result<Allocator, FsError> {
        Allocator::new(size.blocks.0, size.chunk_blocks)
            .ok_or(FsError::Invalid("chunks of this size cannot carry a volume"))
    }

    /// Takes an answer to one of its requests, and continues. Returns the opened volume once it can be
    /// used.
    pub fn handle(
        &mut self,
        requests: &mut Requests,
        number: u64,
        answer: Answer,
    ) -> Result<Option<Opened>, FsError> {
        match &mut self.phase {
            Phase::Emptying => {
                answer?;
                self.write_first_superblocks(requests);
            }
            Phase::Superblocks => {
                self.take_superblock(number, answer)?;
                self.left -= 1;
                if self.left > 0 {
                    return Ok(None);
                }
                self.begin(requests)?;
            }
            Phase::SpaceMap { page, copy, len_bytes } => {
                let (page, copy, len_bytes) = (*page, *copy, *len_bytes);
                self.take_space_map(requests, page, copy, len_bytes, answer)?;
            }
            Phase::Replay => self.take_window(requests, number, answer),
            // A useless read-ahead of the journal.
            Phase::Rewrite { .. } if number != WRITE => {}
            Phase::Rewrite { left } => {
                answer?;
                *left -= 1;
                if *left == 0 {
                    return self.finish().map(Some);
                }
            }
        }
        if matches!(self.phase, Phase::Replay) {
            self.replay(requests)?;
        }
        Ok(None)
    }

    fn take_superblock(&mut self, number: u64, answer: Answer) -> Result<(), FsError> {
        match answer {
            Ok(data) => {
                if let Some(found) = Superblock::decode(&data.contiguous(), Lba(number))?
                    && self.superblock.is_none_or(|best| best.sequence < found.sequence)
                {
                    self.superblock = Some(found);
                }
            }
            Err(error) => self.error = Some(error),
        }
        Ok(())
    }

    fn begin(&mut self, requests: &mut Requests) -> Result<(), FsError> {
        let Some(superblock) = self.superblock else {
            return Err(self.error.take().unwrap_or(FsError::NotAVolume("no superblock")));
        };
        let size = requests.size();
        if superblock.chunk_blocks != size.chunk_blocks {
            return Err(FsError::NotAVolume("made for chunks of another size"));
        }
        self.allocator = Some(Self::allocator(size)?);
        self.head = superblock.tail;
        match superblock.space_map {
            None => self.phase = Phase::Replay,
            Some(place) if place.len_bytes > SPACE_MAP_BYTES_MAX => {
                return Err(FsError::Corrupt { what: "space map", lba: place.first.lba });
            }
            Some(place) => self.read_space_map(requests, place.first, None, place.len_bytes as usize),
        }
        Ok(())
    }

    fn read_space_map(&mut self, requests: &mut Requests, page: Pointer, copy: Option<u8>, len_bytes: usize) {
        self.phase = Phase::SpaceMap { page, copy, len_bytes };
        let read = SpaceRequest::Read { lba: page.lba, blocks: PAGE_BLOCKS, copy };
        requests.submit(Purpose::Opening(READ), read);
    }

    fn take_space_map(
        &mut self,
        requests: &mut Requests,
        page: Pointer,
        copy: Option<u8>,
        len_bytes: usize,
        answer: Answer,
    ) -> Result<(), FsError> {
        let damaged = FsError::Corrupt { what: "space map", lba: page.lba };
        let bytes = match answer.map(|data| data.contiguous()) {
            Ok(bytes) if bytes.len() == PAGE_BYTES && codes::crc64(&bytes) == page.crc => bytes,
            Ok(_) | Err(FsError::Corrupt { .. } | FsError::Invalid(_)) => {
                let next = next_copy(copy).ok_or(damaged)?;
                self.read_space_map(requests, page, Some(next), len_bytes);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.space_map_pages.push(page.lba);
        let (pointer, piece) = bytes.split_at(POINTER_BYTES);
        let missing = len_bytes - self.space_map.len();
        self.space_map.extend_from_slice(&piece[..missing.min(SPACE_MAP_PIECE_BYTES)]);
        if self.space_map.len() < len_bytes {
            let next = Pointer::decode(pointer.try_into().unwrap_or_default());
            self.read_space_map(requests, next, None, len_bytes);
            return Ok(());
        }
        let map = std::mem::take(&mut self.space_map);
        let allocator = self.allocator.as_mut();
        allocator.and_then(|allocator| allocator.decode_space_map(&map)).ok_or(damaged)?;
        self.phase = Phase::Replay;
        Ok(())
    }

    /// Replays as far as the journal is in memory; requests more, or changes to the next phase.
    fn replay(&mut self, requests: &mut Requests) -> Result<(), FsError> {
        let Some(superblock) = self.superblock else { return Err(FsError::NotAVolume("no superblock")) };
        loop {
            match self.look(requests, &superblock)? {
                Look::Wait => return Ok(()),
                Look::Nothing => break,
                Look::Batch(block, batch, bytes) => self.take_batch(block, &batch, bytes)?,
            }
        }
        match self.is_acknowledged_later(requests, &superblock)? {
            None => return Ok(()),
            Some(false) => {}
            Some(true) => {
                let lba = journal_lba(self.head.block);
                return Err(FsError::Corrupt { what: "journal", lba });
            }
        }
        self.windows.clear();
        let total = superblock.journal_blocks;
        let superblock = Superblock {
            sequence: superblock.sequence + SUPERBLOCK_STEP,
            incarnation: superblock.incarnation + 1,
            order: superblock.order.max(self.order + 1) + ORDER_STEP,
            // This opening may write longer batches than the present ones. Those of an older program are of
            // unknown length.
            batch_blocks_max: superblock.batch_blocks_max.map(|known| {
                NonZeroU32::new(Log::batch_blocks_max(total)).map_or(known, |own| known.max(own))
            }),
            ..superblock
        };
        self.superblock = Some(superblock);
        let mut left = 1;
        for (block, sequence, data) in std::mem::take(&mut self.recent) {
            if sequence > self.acknowledged {
                let lba = journal_lba(block);
                let write = SpaceRequest::Write { lba, class: WriteClass::Append, data: data.into() };
                requests.submit(Purpose::Opening(WRITE), write);
                left += 1;
            }
        }
        // A crash may leave torn blocks behind the end. They belong to nothing, but a scrub would take them
        // for damage until the journal reaches them.
        let reach = BTreeSet::from_iter(self.reach(&superblock));
        for &block in self.torn.intersection(&reach) {
            let data = blank(superblock.volume, journal_lba(block), superblock.order);
            let write =
                SpaceRequest::Write { lba: journal_lba(block), class: WriteClass::Append, data: data.into() };
            requests.submit(Purpose::Opening(WRITE), write);
            left += 1;
        }
        requests.submit(Purpose::Opening(WRITE), write_superblock(&superblock));
        self.phase = Phase::Rewrite { left };
        Ok(())
    }

    /// The blocks behind the end in which batches may lie that were under way. If an older program may have written them, they may be of
    /// any length that fits: all of the journal.
    fn reach(&self, superblock: &Superblock) -> impl Iterator<Item = u32> + use<> {
        let (total, head) = (superblock.journal_blocks, u64::from(self.head.block));
        let batch = superblock.batch_blocks_max.map_or(total, NonZeroU32::get);
        let reach = batch.saturating_mul(BATCHES_TO_PROOF).min(total);
        (0..u64::from(reach)).map(move |step| ((head + step) % u64::from(total)) as u32)
    }

    /// Searches for the next batch: behind the last one, else at the region's start.
    fn look(&mut self, requests: &mut Requests, superblock: &Superblock) -> Result<Look, FsError> {
        match self.look_at(requests, superblock, self.head.block)? {
            Look::Nothing if self.head.block > 0 => self.look_at(requests, superblock, 0),
            found => Ok(found),
        }
    }

    /// Whether a batch behind the end of replay proves that the missing one there was durable; `None` while
    /// its blocks are being read. No crash leaves such a gap, and continuing without the missing batch
    /// would lose acknowledged changes.
    fn is_acknowledged_later(
        &mut self,
        requests: &mut Requests,
        superblock: &Superblock,
    ) -> Result<Option<bool>, FsError> {
        let total = superblock.journal_blocks;
        let mut complete = true;
        for block in self.reach(superblock) {
            let Some(first) = self.journal_bytes(requests, total, block, 1)? else {
                complete = false;
                continue;
            };
            let proves = decode_header(&first, readable_blocks_max(total)).filter(|header| {
                header.volume == superblock.volume
                    && header.sequence > self.head.sequence
                    && header.acknowledged >= self.head.sequence
                    && header.blocks <= total - block
            });
            let Some(header) = proves else { continue };
            match self.journal_bytes(requests, total, block, header.blocks)? {
                Some(bytes) if Batch::decode(&bytes, journal_lba(block)).is_some() => return Ok(Some(true)),
                Some(_) => {}
                None => complete = false,
            }
        }
        Ok(complete.then_some(false))
    }

    fn look_at(
        &mut self,
        requests: &mut Requests,
        superblock: &Superblock,
        block: u32,
    ) -> Result<Look, FsError> {
        let total = superblock.journal_blocks;
        if block >= total {
            return Ok(Look::Nothing);
        }
        for ahead in 1..=WINDOWS_AHEAD {
            let window = block / WINDOW_BLOCKS + ahead;
            if window * WINDOW_BLOCKS < total {
                self.window(requests, total, window);
            }
        }
        let Some(first) = self.journal_bytes(requests, total, block, 1)? else { return Ok(Look::Wait) };
        let Some(header) = decode_header(&first, readable_blocks_max(total)) else {
            return Ok(Look::Nothing);
        };
        let expected = header.volume == superblock.volume
            && header.sequence == self.head.sequence
            && header.chain == self.head.chain
            && header.blocks <= total - block;
        if !expected {
            return Ok(Look::Nothing);
        }
        let Some(bytes) = self.journal_bytes(requests, total, block, header.blocks)? else {
            return Ok(Look::Wait);
        };
        let batch = Batch::decode(&bytes, journal_lba(block))
            .filter(|batch| !Planted::ReplayStopsAtUnknown.is_planted() || batch.operations().is_ok());
        Ok(batch.map_or(Look::Nothing, |batch| Look::Batch(block, Box::new(batch), bytes)))
    }

    /// Returns blocks of the journal; `None` while they are being read.
    fn journal_bytes(
        &mut self,
        requests: &mut Requests,
        total: u32,
        block: u32,
        blocks: u32,
    ) -> Result<Option<Buf>, FsError> {
        let mut out = Payload::new();
        let (mut at, end) = (block, block + blocks);
        let mut complete = true;
        while at < end {
            let index = at / WINDOW_BLOCKS;
            let window_end = ((index + 1) * WINDOW_BLOCKS).min(end);
            match self.window(requests, total, index) {
                None => complete = false,
                Some(Err(error)) => return Err(error.clone()),
                Some(Ok(bytes)) => {
                    let from = (at - index * WINDOW_BLOCKS) as usize * BLOCK_BYTES;
                    let to = (window_end - index * WINDOW_BLOCKS) as usize * BLOCK_BYTES;
                    if to > bytes.len() {
                        return Err(FsError::Corrupt {
                            what: "journal",
                            lba: Lba(u64::from(JOURNAL_FIRST + at)),
                        });
                    }
                    out.push(bytes.slice(from..to));
                }
            }
            at = window_end;
        }
        Ok(complete.then(|| out.contiguous()))
    }

    fn window(&mut self, requests: &mut Requests, total: u32, index: u32) -> Option<&Result<Buf, FsError>> {
        let window = self.windows.entry(index).or_insert_with(|| {
            let first = index * WINDOW_BLOCKS;
            let read = SpaceRequest::Read {
                lba: Lba(u64::from(JOURNAL_FIRST + first)),
                blocks: WINDOW_BLOCKS.min(total - first),
                copy: None,
            };
            requests.submit(Purpose::Opening(u64::from(index)), read);
            None
        });
        window.as_ref()
    }

    /// Takes a window of the journal, or one block of a window with damaged blocks.
    fn take_window(&mut self, requests: &mut Requests, number: u64, answer: Answer) {
        let at = (number & u64::from(u32::MAX)) as u32;
        if number & SINGLE_BLOCK == 0 {
            match (answer, self.superblock) {
                (Err(FsError::Corrupt { .. }), Some(superblock)) => {
                    let first = at * WINDOW_BLOCKS;
                    let blocks = WINDOW_BLOCKS.min(superblock.journal_blocks - first);
                    let whole = BufMut::zeroed(blocks as usize * BLOCK_BYTES);
                    self.pieces.insert(at, Pieces { whole, left: blocks, error: None });
                    for block in first..first + blocks {
                        let read = SpaceRequest::Read { lba: journal_lba(block), blocks: 1, copy: None };
                        let number = SINGLE_BLOCK | u64::from(block);
                        requests.submit(Purpose::Opening(number), read);
                    }
                }
                (answer, _) => {
                    self.windows.insert(at, Some(answer.map(|data| data.contiguous())));
                }
            }
            return;
        }
        let window = at / WINDOW_BLOCKS;
        let Some(pieces) = self.pieces.get_mut(&window) else { return };
        let from = (at % WINDOW_BLOCKS) as usize * BLOCK_BYTES;
        match answer.map(|data| data.contiguous()) {
            Ok(block) if block.len() == BLOCK_BYTES => {
                pieces.whole[from..from + BLOCK_BYTES].copy_from_slice(&block);
            }
            // Torn or rotten: as zeroes it is no part of a batch.
            Ok(_) | Err(FsError::Corrupt { .. }) => drop(self.torn.insert(at)),
            Err(error) => pieces.error = Some(error),
        }
        pieces.left -= 1;
        if pieces.left == 0
            && let Some(pieces) = self.pieces.remove(&window)
        {
            let result = pieces.error.map_or_else(|| Ok(pieces.whole.freeze()), Err);
            self.windows.insert(window, Some(result));
        }
    }

    fn take_batch(&mut self, block: u32, batch: &Batch, bytes: Buf) -> Result<(), FsError> {
        let Some(allocator) = self.allocator.as_mut() else { return Err(FsError::damaged("journal batch")) };
        let (header, crc) = (batch.header, batch.crc);
        self.order = self.order.max(batch.order);
        for operation in batch.operations()? {
            match operation {
                JournalOperation::Put { key, value } => drop(self.changes.insert(key, Some(value))),
                JournalOperation::Delete { key } => drop(self.changes.insert(key, None)),
                JournalOperation::Allocate(run) => allocator.replay(run, true)?,
                JournalOperation::Free(run) => allocator.replay(run, false)?,
                JournalOperation::Chunk { chunk, chunk_use } => {
                    // A chunk that holds pages of the checkpoint is metadata for good, even if the journal
                    // says otherwise.
                    if allocator.pages.is_in_use(chunk) != Some(true) {
                        allocator.set_chunk(chunk, chunk_use, ChunkState::Ready);
                    }
                }
            }
        }
        let skipped = if block < self.head.block {
            self.superblock.map_or(0, |superblock| superblock.journal_blocks) - self.head.block
        } else {
            0
        };
        if block / WINDOW_BLOCKS != (block + header.blocks) / WINDOW_BLOCKS || skipped > 0 {
            let current = (block + header.blocks) / WINDOW_BLOCKS;
            self.windows.retain(|&index, _| index >= current || index == 0);
        }
        self.head = Position {
            block: block + header.blocks,
            sequence: header.sequence + 1,
            chain: crc,
            total: self.head.total + u64::from(skipped + header.blocks),
        };
        self.acknowledged = self.acknowledged.max(header.acknowledged);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((block, header.sequence, bytes));
        Ok(())
    }

    fn finish(&mut self) -> Result<Opened, FsError> {
        let (Some(superblock), Some(mut allocator)) = (self.superblock, self.allocator.take()) else {
            return Err(FsError::NotAVolume("no superblock"));
        };
        allocator.doubt_empty_chunks();
        let tree = Tree::new(superblock.root, self.page_cache_bytes);
        let store = Store::new(tree, std::mem::take(&mut self.changes));
        let log = Log::new(&superblock, self.head);
        let space_map_pages = std::mem::take(&mut self.space_map_pages);
        Ok(Opened { superblock, allocator, log, store, space_map_pages })
    }
}

/// Longest batch that replay takes. An older program wrote batches of any length that fits: if replay took such a one for the end of the
/// journal, everything behind it would be lost.
fn readable_blocks_max(journal_blocks: u32) -> u32 {
    match Planted::TransactionUnbounded.is_planted() {
        true => journal_blocks / 16,
        false => journal_blocks,
    }
}

/// The request that writes a superblock to its place.
pub fn write_superblock(superblock: &Superblock) -> SpaceRequest {
    SpaceRequest::Write { lba: superblock.lba(), class: WriteClass::Append, data: superblock.encode().into() }
}

fn journal_lba(block: u32) -> Lba {
    Lba(u64::from(JOURNAL_FIRST + block))
}

/// A block of the journal that proves itself and is no part of a batch.
fn blank(volume: [u8; 16], lba: Lba, order: u64) -> Buf {
    let mut block = BufMut::zeroed(BLOCK_BYTES);
    codes::seal_block(VolumeId::from_bytes(volume), lba, order, &mut block);
    block.freeze()
}

/// Zeroes, as one block.
pub fn zero_block() -> Buf {
    BufMut::zeroed(BLOCK_BYTES).freeze()
}
