//! From a virtual disk to a volume that can be used: superblock, space map, replay of the journal.
//!
//! Everything read here proves itself by a checksum, so each copy is asked in turn until one is intact. Replay ends where
//! no copy has the next batch; where a later one proves that it was acknowledged, the volume is refused. What was replayed but
//! never acknowledged may be on one copy only: it is written again to all before anything is built on it, and so is the superblock.

use std::collections::{HashMap, VecDeque};

use ::types::Lba;
use space::api::{SpaceRequest, SpaceSize, WriteClass};

use ::types::BLOCK_BYTES;
use sys::{Buf, BufMut, Payload};

use super::allocator::{Allocator, ChunkState};
use super::io::{Answer, Purpose, Requests};
use super::layout::{
    CHUNK_BLOCKS_MIN, COPIES_MAX, JOURNAL_FIRST, SUPERBLOCK_LBAS, SpaceMapPlace, Superblock, journal_blocks,
};
use super::meta::journal::{ChunkUse, JournalOperation, decode_batch, decode_header};
use super::meta::log::{Log, Position};
use super::meta::{Changes, Store, Tree};
use super::types::FsError;

/// The journal is read in pieces of 1 MiB.
const WINDOW_BLOCKS: u32 = 256;

/// Pieces read ahead.
const WINDOWS_AHEAD: u32 = 4;

/// Batches kept for writing again: more than can be under way at once.
const RECENT_MAX: usize = 8;

/// A batch is written when at most one before it is not durable: so many of the largest, the missing one among them, reach as far
/// as the first that tells of the missing one.
const BATCHES_TO_PROOF: u32 = 3;

/// Numbers of requests that are not for a piece of the journal.
const READ: u64 = u64::MAX - 1;
const WRITE: u64 = u64::MAX;

/// Largest space map that is believed: that of a virtual disk of a petabyte.
const SPACE_MAP_BYTES_MAX: u32 = 64 << 20;

/// What opening yields.
pub struct Opened {
    pub superblock: Superblock,
    pub allocator: Allocator,
    pub log: Log,
    pub store: Store,
}

enum Phase {
    Superblocks,
    SpaceMap {
        place: SpaceMapPlace,
        copy: u8,
    },
    Replay,
    /// Unacknowledged batches and the superblock are written; requests left.
    Rewrite {
        left: usize,
    },
}

/// Opening or formatting under way.
pub struct Opening {
    phase: Phase,
    superblock: Option<Superblock>,
    allocator: Option<Allocator>,
    page_cache_bytes: usize,
    /// Answers missing.
    left: usize,
    error: Option<FsError>,
    changes: Changes,
    head: Position,
    acknowledged: u64,
    /// The last batches: where they lie, their number, their bytes.
    recent: VecDeque<(u32, u64, Buf)>,
    /// Pieces of the journal by copy; `None`: under way.
    windows: HashMap<(u32, u8), Option<Result<Buf, FsError>>>,
}

/// What a look at the journal finds.
enum Look {
    Wait,
    Nothing,
    Batch(u32, Buf),
}

impl Opening {
    fn new(page_cache_bytes: usize, phase: Phase) -> Self {
        Self {
            phase,
            superblock: None,
            allocator: None,
            page_cache_bytes,
            left: 0,
            error: None,
            changes: Changes::new(),
            head: Position::default(),
            acknowledged: 0,
            recent: VecDeque::new(),
            windows: HashMap::new(),
        }
    }

    /// Begins to open what is there.
    pub fn open(requests: &mut Requests, page_cache_bytes: usize) -> Self {
        let mut opening = Self::new(page_cache_bytes, Phase::Superblocks);
        for lba in SUPERBLOCK_LBAS {
            for copy in 0..COPIES_MAX {
                requests
                    .submit(Purpose::Opening(READ), SpaceRequest::Read { lba, blocks: 1, copy: Some(copy) });
                opening.left += 1;
            }
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
        if size.chunk_blocks < CHUNK_BLOCKS_MIN || size.blocks.0 < 2 * u64::from(size.chunk_blocks) {
            return Err(FsError::Invalid("a volume needs a virtual disk of two chunks of 1 MiB or more"));
        }
        let chain = codes::crc64_append(codes::crc64(&volume), &salt.to_le_bytes());
        let mut opening = Self::new(page_cache_bytes, Phase::Rewrite { left: 2 });
        let mut superblock = Superblock {
            chunk_blocks: size.chunk_blocks,
            volume,
            sequence: 0,
            incarnation: 1,
            journal_blocks,
            tail: Position { block: 0, sequence: 1, chain, total: 0 },
            root: None,
            space_map: None,
        };
        opening.allocator = Some(Self::allocator(size, journal_blocks)?);
        opening.head = superblock.tail;
        for sequence in 1..=2 {
            superblock.sequence = sequence;
            requests.submit(Purpose::Opening(WRITE), write_superblock(&superblock));
        }
        opening.superblock = Some(superblock);
        Ok(opening)
    }

    fn allocator(size: SpaceSize, journal_blocks: u32) -> Result<Allocator, FsError> {
        Allocator::new(size.blocks.0, size.chunk_blocks, journal_blocks)
            .ok_or(FsError::Invalid("chunks of this size cannot carry a volume"))
    }

    /// Takes an answer to one of its requests, and goes on. `Some`: the volume can be used.
    pub fn handle(
        &mut self,
        requests: &mut Requests,
        number: u64,
        answer: Answer,
    ) -> Result<Option<Opened>, FsError> {
        match &mut self.phase {
            Phase::Superblocks => {
                self.take_superblock(answer)?;
                self.left -= 1;
                if self.left > 0 {
                    return Ok(None);
                }
                self.begin(requests)?;
            }
            Phase::SpaceMap { place, copy } => {
                let (place, copy) = (*place, *copy);
                match answer {
                    Ok(data) => self.take_space_map(requests, place, copy, &data.contiguous())?,
                    Err(error) => self.next_space_map(requests, place, copy, error)?,
                }
            }
            Phase::Replay => {
                let key = ((number >> 8) as u32, number as u8);
                self.windows.insert(key, Some(answer.map(|data| data.contiguous())));
            }
            // A piece of the journal that was read ahead in vain.
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

    fn take_superblock(&mut self, answer: Answer) -> Result<(), FsError> {
        match answer {
            Ok(data) => {
                if let Some(found) = Superblock::decode(&data.contiguous())?
                    && self.superblock.is_none_or(|best| best.sequence < found.sequence)
                {
                    self.superblock = Some(found);
                }
            }
            // A copy that there is not.
            Err(FsError::Invalid(_)) => {}
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
        self.allocator = Some(Self::allocator(size, superblock.journal_blocks)?);
        self.head = superblock.tail;
        match superblock.space_map {
            None => self.phase = Phase::Replay,
            Some(place) if place.len_bytes > SPACE_MAP_BYTES_MAX => {
                return Err(FsError::Corrupt { what: "space map", lba: place.lba });
            }
            Some(place) => self.read_space_map(requests, place, 0),
        }
        Ok(())
    }

    fn read_space_map(&mut self, requests: &mut Requests, place: SpaceMapPlace, copy: u8) {
        self.phase = Phase::SpaceMap { place, copy };
        let blocks = place.len_bytes.div_ceil(BLOCK_BYTES as u32).max(1);
        let read = SpaceRequest::Read { lba: place.lba, blocks, copy: Some(copy) };
        requests.submit(Purpose::Opening(READ), read);
    }

    fn next_space_map(
        &mut self,
        requests: &mut Requests,
        place: SpaceMapPlace,
        copy: u8,
        error: FsError,
    ) -> Result<(), FsError> {
        if copy + 1 >= COPIES_MAX {
            return Err(match error {
                FsError::Invalid(_) => FsError::Corrupt { what: "space map", lba: place.lba },
                error => error,
            });
        }
        self.read_space_map(requests, place, copy + 1);
        Ok(())
    }

    fn take_space_map(
        &mut self,
        requests: &mut Requests,
        place: SpaceMapPlace,
        copy: u8,
        bytes: &[u8],
    ) -> Result<(), FsError> {
        let damaged = FsError::Corrupt { what: "space map", lba: place.lba };
        match bytes.get(..place.len_bytes as usize).filter(|map| codes::crc64(map) == place.crc) {
            None => self.next_space_map(requests, place, copy, damaged),
            Some(map) => {
                let allocator = self.allocator.as_mut();
                allocator.and_then(|allocator| allocator.decode_space_map(map)).ok_or(damaged)?;
                self.phase = Phase::Replay;
                Ok(())
            }
        }
    }

    /// Replays as far as the journal is in memory; asks for more, or turns to the next phase.
    fn replay(&mut self, requests: &mut Requests) -> Result<(), FsError> {
        let Some(superblock) = self.superblock else { return Err(FsError::NotAVolume("no superblock")) };
        loop {
            match self.look(requests, &superblock)? {
                Look::Wait => return Ok(()),
                Look::Nothing => break,
                Look::Batch(block, bytes) => self.take_batch(block, bytes)?,
            }
        }
        match self.is_acknowledged_later(requests, &superblock)? {
            None => return Ok(()),
            Some(false) => {}
            Some(true) => {
                let lba = Lba(u64::from(JOURNAL_FIRST + self.head.block));
                return Err(FsError::Corrupt { what: "journal", lba });
            }
        }
        self.windows.clear();
        let superblock = Superblock {
            sequence: superblock.sequence + 1,
            incarnation: superblock.incarnation + 1,
            ..superblock
        };
        self.superblock = Some(superblock);
        let mut left = 1;
        for (block, sequence, data) in std::mem::take(&mut self.recent) {
            if sequence > self.acknowledged {
                let lba = Lba(u64::from(JOURNAL_FIRST + block));
                let write = SpaceRequest::Write { lba, class: WriteClass::Append, data: data.into() };
                requests.submit(Purpose::Opening(WRITE), write);
                left += 1;
            }
        }
        requests.submit(Purpose::Opening(WRITE), write_superblock(&superblock));
        self.phase = Phase::Rewrite { left };
        Ok(())
    }

    /// Looks for the next batch: behind the last one, else at the region's start; on each copy.
    fn look(&mut self, requests: &mut Requests, superblock: &Superblock) -> Result<Look, FsError> {
        let mut intact = false;
        let mut error = None;
        for block in [self.head.block, 0] {
            for copy in 0..COPIES_MAX {
                match self.look_at(requests, superblock, block, copy) {
                    Ok(Look::Nothing) => intact = true,
                    Ok(found) => return Ok(found),
                    Err(FsError::Invalid(_)) => {}
                    Err(found) => error = Some(found),
                }
            }
            if self.head.block == 0 {
                break;
            }
        }
        match error {
            Some(error) if !intact => Err(error),
            _ => Ok(Look::Nothing),
        }
    }

    /// Whether a batch behind the place where replay ends says that the one that is missing there was durable; `None` while
    /// that is being read. No crash leaves such a gap, and to go on without what it held would lose acknowledged changes.
    fn is_acknowledged_later(
        &mut self,
        requests: &mut Requests,
        superblock: &Superblock,
    ) -> Result<Option<bool>, FsError> {
        let total = superblock.journal_blocks;
        let reach = (Log::batch_blocks_max(total) * BATCHES_TO_PROOF).min(total);
        let mut complete = true;
        for step in 0..reach {
            let block = ((u64::from(self.head.block) + u64::from(step)) % u64::from(total)) as u32;
            for copy in 0..COPIES_MAX {
                let first = match self.journal_bytes(requests, total, block, 1, copy) {
                    Ok(Some(first)) => first,
                    Ok(None) => {
                        complete = false;
                        continue;
                    }
                    // A copy that there is not, or that cannot be read there, proves nothing.
                    Err(_) => continue,
                };
                let proves = decode_header(&first).filter(|header| {
                    header.volume == superblock.volume
                        && header.sequence > self.head.sequence
                        && header.acknowledged >= self.head.sequence
                        && header.blocks <= total - block
                });
                let Some(header) = proves else { continue };
                match self.journal_bytes(requests, total, block, header.blocks, copy) {
                    Ok(Some(bytes)) if decode_batch(&bytes).is_some() => return Ok(Some(true)),
                    Ok(None) => complete = false,
                    Ok(Some(_)) | Err(_) => {}
                }
            }
        }
        Ok(complete.then_some(false))
    }

    fn look_at(
        &mut self,
        requests: &mut Requests,
        superblock: &Superblock,
        block: u32,
        copy: u8,
    ) -> Result<Look, FsError> {
        let total = superblock.journal_blocks;
        if block >= total {
            return Ok(Look::Nothing);
        }
        if copy == 0 {
            for ahead in 1..=WINDOWS_AHEAD {
                let window = block / WINDOW_BLOCKS + ahead;
                if window * WINDOW_BLOCKS < total {
                    self.window(requests, total, window, 0);
                }
            }
        }
        let Some(first) = self.journal_bytes(requests, total, block, 1, copy)? else { return Ok(Look::Wait) };
        let Some(header) = decode_header(&first) else { return Ok(Look::Nothing) };
        let expected = header.volume == superblock.volume
            && header.sequence == self.head.sequence
            && header.chain == self.head.chain
            && header.blocks <= total - block;
        if !expected {
            return Ok(Look::Nothing);
        }
        let Some(bytes) = self.journal_bytes(requests, total, block, header.blocks, copy)? else {
            return Ok(Look::Wait);
        };
        Ok(if decode_batch(&bytes).is_some() { Look::Batch(block, bytes) } else { Look::Nothing })
    }

    /// Blocks of the journal from one copy; `None` while they are on their way.
    fn journal_bytes(
        &mut self,
        requests: &mut Requests,
        total: u32,
        block: u32,
        blocks: u32,
        copy: u8,
    ) -> Result<Option<Buf>, FsError> {
        let mut out = Payload::new();
        let (mut at, end) = (block, block + blocks);
        let mut complete = true;
        while at < end {
            let index = at / WINDOW_BLOCKS;
            let window_end = ((index + 1) * WINDOW_BLOCKS).min(end);
            match self.window(requests, total, index, copy) {
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

    fn window(
        &mut self,
        requests: &mut Requests,
        total: u32,
        index: u32,
        copy: u8,
    ) -> Option<&Result<Buf, FsError>> {
        let window = self.windows.entry((index, copy)).or_insert_with(|| {
            let first = index * WINDOW_BLOCKS;
            let read = SpaceRequest::Read {
                lba: Lba(u64::from(JOURNAL_FIRST + first)),
                blocks: WINDOW_BLOCKS.min(total - first),
                copy: Some(copy),
            };
            requests.submit(Purpose::Opening(u64::from(index) << 8 | u64::from(copy)), read);
            None
        });
        window.as_ref()
    }

    fn take_batch(&mut self, block: u32, bytes: Buf) -> Result<(), FsError> {
        let Some((header, crc, operations)) = decode_batch(&bytes) else {
            return Err(FsError::damaged("journal batch"));
        };
        let Some(allocator) = self.allocator.as_mut() else { return Err(FsError::damaged("journal batch")) };
        for operation in operations {
            match operation {
                JournalOperation::Put { key, value } => drop(self.changes.insert(key, Some(value))),
                JournalOperation::Delete { key } => drop(self.changes.insert(key, None)),
                JournalOperation::Allocate(run) => allocator.replay(run, true),
                JournalOperation::Free(run) => allocator.replay(run, false),
                JournalOperation::Chunk { chunk, chunk_use } => {
                    if chunk == 0 && chunk_use != ChunkUse::Meta {
                        return Err(FsError::damaged("journal batch"));
                    }
                    // A chunk that the checkpoint has pages in became metadata for good, whatever it was before.
                    if !allocator.has_pages_in_use(chunk) {
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
            self.windows.retain(|&(index, _), _| index >= current || index == 0);
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
        let log = Log::new(
            superblock.volume,
            superblock.incarnation,
            superblock.journal_blocks,
            superblock.tail,
            self.head,
        );
        Ok(Opened { superblock, allocator, log, store })
    }
}

/// The request that writes a superblock to its place.
pub fn write_superblock(superblock: &Superblock) -> SpaceRequest {
    SpaceRequest::Write {
        lba: SUPERBLOCK_LBAS[(superblock.sequence % 2) as usize],
        class: WriteClass::Append,
        data: superblock.encode().into(),
    }
}

/// Zeroes, as one block.
pub fn zero_block() -> Buf {
    BufMut::zeroed(BLOCK_BYTES).freeze()
}
