//! A virtual disk in memory, for the tests of the layers above.
//!
//! Owns its blocks, thinly. Has the promises of a mirrored space, power cuts included. After
//! [`MemoryVirtualDisk::crash`] every acknowledged write is present; an unacknowledged one is
//! present, missing or (class `Append`, or crossing a 1 MiB boundary) partly present. Never keeps
//! copies: `copy` is ignored.

use crate::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest, SpaceSize, VirtualDisk};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::api::WriteClass;
use sys::{Buf, BufMut, Payload};
use types::{BLOCK_BYTES, BlockCount, Lba};

/// Largest overwrite, in blocks (64 KiB).
const OVERWRITE_BLOCKS: u64 = 16;
/// Blocks of a range (1 MiB) within which a write is atomic.
const ATOMIC_BLOCKS: u64 = 256;

/// A virtual disk in memory.
pub struct MemoryVirtualDisk {
    blocks: BlockCount,
    chunk_blocks: u32,
    /// Blocks that chunks may still get.
    available: u64,
    contents: BTreeMap<u64, Buf>,
    chunks: BTreeSet<u64>,
    corrupt: BTreeSet<u64>,
    pending: VecDeque<(u64, SpaceRequest)>,
    hold: bool,
    fail: Option<SpaceError>,
}

impl MemoryVirtualDisk {
    /// Makes a disk of `blocks` of address space, of which `available` can be filled, allocated in
    /// chunks of `chunk_blocks`.
    pub fn new(blocks: BlockCount, chunk_blocks: u32, available: BlockCount) -> Self {
        Self {
            blocks,
            chunk_blocks: chunk_blocks.max(1),
            available: available.0,
            contents: BTreeMap::new(),
            chunks: BTreeSet::new(),
            corrupt: BTreeSet::new(),
            pending: VecDeque::new(),
            hold: false,
            fail: None,
        }
    }

    /// Adds blocks behind the end, all of which can be filled.
    pub fn grow(&mut self, blocks: u64) {
        self.blocks.0 += blocks;
        self.available += blocks;
    }

    /// Holds requests without performing or answering them: a crash can lose the submitted ones.
    pub fn hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// Counts the requests that wait.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Performs and answers only the `index`-th waiting request, so that the caller chooses the
    /// order.
    pub fn complete(&mut self, index: usize, out: &mut Vec<SpaceCompletion>) {
        if let Some((token, request)) = self.pending.remove(index) {
            out.push(SpaceCompletion { token, result: self.perform(request) });
        }
    }

    /// Makes the block fail its checksum on all copies until it is written again.
    pub fn corrupt(&mut self, lba: Lba) {
        self.corrupt.insert(lba.0);
    }

    /// Whether the block fails its checksum.
    pub fn is_corrupt(&self, lba: Lba) -> bool {
        self.corrupt.contains(&lba.0)
    }

    /// Answers every request with this error until called with `None`.
    pub fn fail(&mut self, error: Option<SpaceError>) {
        self.fail = error;
    }

    /// Cuts the power. `choose(n)` returns a number below `n` for each decision whether an
    /// unacknowledged write (or one atomic part of it) is present. Waiting requests are never
    /// answered.
    pub fn crash(&mut self, mut choose: impl FnMut(u64) -> u64) {
        for (_, request) in std::mem::take(&mut self.pending) {
            match request {
                SpaceRequest::Read { .. } => {}
                SpaceRequest::Discard { .. } => {
                    if choose(2) == 1 {
                        let _ = self.perform(request);
                    }
                }
                SpaceRequest::Write { lba, class, data } => {
                    let blocks = (data.len() / BLOCK_BYTES) as u64;
                    let mut at = 0;
                    while at < blocks {
                        let unit = match class {
                            WriteClass::Append => 1,
                            _ => ATOMIC_BLOCKS - (lba.0 + at) % ATOMIC_BLOCKS,
                        };
                        let take = unit.min(blocks - at);
                        if choose(2) == 1 {
                            let part = data.slice(at as usize * BLOCK_BYTES, take as usize * BLOCK_BYTES);
                            let _ =
                                self.perform(SpaceRequest::Write { lba: lba.offset(at), class, data: part });
                        }
                        at += take;
                    }
                }
            }
        }
        self.hold = false;
    }

    fn perform(&mut self, request: SpaceRequest) -> Result<SpaceReply, SpaceError> {
        if let Some(error) = &self.fail {
            return Err(error.clone());
        }
        match request {
            SpaceRequest::Read { lba, blocks, copy: _ } => self.read(lba, u64::from(blocks)),
            SpaceRequest::Write { lba, class, data } => self.write(lba, class, &data),
            SpaceRequest::Discard { lba, blocks } => self.discard(lba, blocks),
        }
    }

    fn check(&self, lba: Lba, blocks: u64) -> Result<std::ops::Range<u64>, SpaceError> {
        match lba.0.checked_add(blocks) {
            Some(end) if blocks > 0 && end <= self.blocks.0 => Ok(lba.0..end),
            _ => Err(SpaceError::Invalid("the range is empty or beyond the end of the virtual disk")),
        }
    }

    fn read(&self, lba: Lba, blocks: u64) -> Result<SpaceReply, SpaceError> {
        let range = self.check(lba, blocks)?;
        let lbas: Vec<Lba> = self.corrupt.range(range.clone()).map(|&lba| Lba(lba)).collect();
        if !lbas.is_empty() {
            return Err(SpaceError::Corrupt { lbas });
        }
        let mut whole = BufMut::zeroed(blocks as usize * BLOCK_BYTES);
        for (&block, contents) in self.contents.range(range) {
            let at = (block - lba.0) as usize * BLOCK_BYTES;
            whole[at..at + BLOCK_BYTES].copy_from_slice(contents);
        }
        Ok(SpaceReply::Data(Payload::from(whole.freeze())))
    }

    fn write(&mut self, lba: Lba, class: WriteClass, data: &Payload) -> Result<SpaceReply, SpaceError> {
        if !data.len().is_multiple_of(BLOCK_BYTES) {
            return Err(SpaceError::Invalid("a write must be of whole blocks"));
        }
        let blocks = (data.len() / BLOCK_BYTES) as u64;
        let range = self.check(lba, blocks)?;
        if class == WriteClass::Overwrite && blocks > OVERWRITE_BLOCKS {
            return Err(SpaceError::Invalid("an overwrite is of 64 KiB at most"));
        }
        let chunk_blocks = u64::from(self.chunk_blocks);
        let chunks = range.start / chunk_blocks..=(range.end - 1) / chunk_blocks;
        let missing: Vec<u64> = chunks.filter(|chunk| !self.chunks.contains(chunk)).collect();
        let needed = missing.len() as u64 * chunk_blocks;
        if needed > self.available {
            return Err(SpaceError::NoSpace);
        }
        self.available -= needed;
        self.chunks.extend(missing);
        for (at, block) in range.enumerate() {
            let contents = data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous();
            self.contents.insert(block, Buf::from(&contents[..]));
            self.corrupt.remove(&block);
        }
        Ok(SpaceReply::Done)
    }

    fn discard(&mut self, lba: Lba, blocks: u64) -> Result<SpaceReply, SpaceError> {
        let range = self.check(lba, blocks)?;
        let gone: Vec<u64> = self.contents.range(range.clone()).map(|(&block, _)| block).collect();
        for block in gone {
            self.contents.remove(&block);
        }
        self.corrupt.retain(|block| !range.contains(block));
        let chunk_blocks = u64::from(self.chunk_blocks);
        for chunk in range.start.div_ceil(chunk_blocks)..range.end / chunk_blocks {
            if self.chunks.remove(&chunk) {
                self.available += chunk_blocks;
            }
        }
        Ok(SpaceReply::Done)
    }
}

impl VirtualDisk for MemoryVirtualDisk {
    fn size(&self) -> SpaceSize {
        SpaceSize {
            blocks: self.blocks,
            available: BlockCount(self.available),
            chunk_blocks: self.chunk_blocks,
        }
    }

    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.pending.push_back((token, request));
    }

    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        while !self.hold && !self.pending.is_empty() {
            self.complete(0, out);
        }
    }
}
