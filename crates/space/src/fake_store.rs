//! A store in memory, for tests of the layers above stores.
//!
//! Has a store's slabs, checksums, region epochs and promises. Every answer waits for a poll. A
//! crash drops unanswered requests, or performs them first, as its caller decides. Never slow,
//! never torn.

use crate::block_store::BlockStore;
use crate::planted::Planted;
use disk::DiskError;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use store::api::{
    ChunkEntry, Regions, ScrubProgress, StoreCompletion, StoreError, StoreReply, StoreRequest, WriteClass,
};
use sys::{Buf, BufMut, Payload};
use types::{BLOCK_BYTES, ChunkIndex, Epoch, Lba, Stamp, VolumeId};

/// Blocks of one region.
const REGION_BLOCKS: u64 = crate::coordinator::REGION_BLOCKS;

#[derive(Clone)]
struct Slab {
    append: bool,
    blocks: BTreeMap<u64, Buf>,
    regions: Vec<Stamp>,
}

impl Slab {
    /// Raises the stamp of a region. A change under an older stamp may come late, and lowers
    /// nothing.
    fn stamp(&mut self, block: u64, stamp: Stamp) {
        let region = &mut self.regions[(block / REGION_BLOCKS) as usize];
        *region = stamp.later(*region);
    }
}

impl Slab {
    /// Returns written blocks that should prove themselves and do not.
    fn unproven(&self, volume: VolumeId, lba: Lba, range: Range<u64>) -> Vec<Lba> {
        if !self.append {
            return Vec::new();
        }
        let first = range.start;
        let written = self.blocks.range(range).map(|(at, block)| (lba.offset(at - first), block));
        written
            .filter(|(lba, block)| codes::sealed_order(volume, *lba, block).is_none())
            .map(|(lba, _)| lba)
            .collect()
    }
}

/// A way for the store to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FakeFault {
    #[default]
    None,
    /// No request is answered any more.
    Hang,
    /// No read is answered any more.
    ReadsHang,
    /// Writes fail.
    WriteErrors,
    /// Writes find no space, and change nothing.
    NoRoom,
    /// The journal is full, and cannot be emptied: neither a change nor a promise finds space.
    FullJournal,
    /// There is no free slab.
    NoSlabs,
    /// Everything fails.
    Errors,
    /// Everything fails, because of the disk's machine.
    HostErrors,
}

struct Inner {
    slab_blocks: u32,
    slabs: u64,
    chunks: BTreeMap<(VolumeId, ChunkIndex), Slab>,
    promised: BTreeMap<VolumeId, Epoch>,
    corrupt: BTreeSet<(VolumeId, Lba)>,
    /// Blocks that stay corrupt when they are written.
    bad: BTreeSet<(VolumeId, Lba)>,
    /// Blocks marked as lost on all copies.
    lost: BTreeSet<(VolumeId, Lba)>,
    records: Vec<u8>,
    pending: VecDeque<(u64, StoreRequest)>,
    fault: FakeFault,
}

/// Contents of a store at one time.
#[derive(Clone)]
pub struct FakeImage {
    chunks: BTreeMap<(VolumeId, ChunkIndex), Slab>,
    promised: BTreeMap<VolumeId, Epoch>,
}

/// A handle to a store in memory. Clones share the store, so that a test keeps one while a replica
/// owns another.
#[derive(Clone)]
pub struct FakeStore {
    inner: Rc<RefCell<Inner>>,
}

impl FakeStore {
    pub fn new(slab_blocks: u32, slabs: u64) -> Self {
        let inner = Inner {
            slab_blocks,
            slabs,
            chunks: BTreeMap::new(),
            promised: BTreeMap::new(),
            corrupt: BTreeSet::new(),
            bad: BTreeSet::new(),
            lost: BTreeSet::new(),
            records: Vec::new(),
            pending: VecDeque::new(),
            fault: FakeFault::None,
        };
        Self { inner: Rc::new(RefCell::new(inner)) }
    }

    pub fn set_fault(&self, fault: FakeFault) {
        self.inner.borrow_mut().fault = fault;
    }

    /// Makes the block, if it was ever written, fail its checksum until it is written again.
    pub fn corrupt(&self, volume: VolumeId, lba: Lba) {
        let mut inner = self.inner.borrow_mut();
        let (chunk, offset) = inner.locate(lba);
        if inner.chunks.get(&(volume, chunk)).is_some_and(|slab| slab.blocks.contains_key(&offset)) {
            inner.corrupt.insert((volume, lba));
        }
    }

    /// Makes the block fail its checksum, even after it is written.
    pub fn corrupt_for_good(&self, volume: VolumeId, lba: Lba) {
        self.inner.borrow_mut().bad.insert((volume, lba));
    }

    /// Returns a copy of the whole store.
    pub fn image(&self) -> FakeImage {
        let inner = self.inner.borrow();
        FakeImage { chunks: inner.chunks.clone(), promised: inner.promised.clone() }
    }

    /// Restores an older image.
    pub fn go_back_to(&self, image: &FakeImage) {
        let mut inner = self.inner.borrow_mut();
        inner.chunks = image.chunks.clone();
        inner.promised = image.promised.clone();
    }

    /// Sets the block's content as if it had never been written otherwise.
    pub fn put(&self, volume: VolumeId, lba: Lba, block: &[u8]) {
        let mut inner = self.inner.borrow_mut();
        let (chunk, offset) = inner.locate(lba);
        if let Some(slab) = inner.chunks.get_mut(&(volume, chunk)) {
            slab.blocks.insert(offset, Buf::from(block));
        }
    }

    /// Makes the store forget that the block was written.
    pub fn forget_block(&self, volume: VolumeId, lba: Lba) {
        let mut inner = self.inner.borrow_mut();
        let (chunk, offset) = inner.locate(lba);
        if let Some(slab) = inner.chunks.get_mut(&(volume, chunk)) {
            slab.blocks.remove(&offset);
        }
    }

    /// Ends the process or the power: of the unanswered requests, performs those for which `keep`
    /// returns true.
    pub fn crash(&self, mut keep: impl FnMut() -> bool) {
        let mut inner = self.inner.borrow_mut();
        for (_, request) in std::mem::take(&mut inner.pending) {
            if keep() {
                let _ = inner.perform(request);
            }
        }
        inner.fault = FakeFault::None;
    }

    /// Returns the records last stored by [`StoreRequest::SetRecords`].
    pub fn records(&self) -> Vec<u8> {
        self.inner.borrow().records.clone()
    }

    /// Returns the block as stored, for a test's own comparison.
    pub fn peek(&self, volume: VolumeId, lba: Lba) -> Option<Buf> {
        let inner = self.inner.borrow();
        let (chunk, offset) = inner.locate(lba);
        inner.chunks.get(&(volume, chunk)).and_then(|slab| slab.blocks.get(&offset).cloned())
    }

    pub fn is_corrupt(&self, volume: VolumeId, lba: Lba) -> bool {
        self.inner.borrow().corrupt.contains(&(volume, lba))
    }

    /// Whether the block was marked as lost and not written since.
    pub fn is_lost(&self, volume: VolumeId, lba: Lba) -> bool {
        self.inner.borrow().lost.contains(&(volume, lba))
    }

    /// Makes corrupt blocks read well again.
    pub fn forget_corruption(&self) {
        self.inner.borrow_mut().corrupt.clear();
    }

    pub fn corrupt_blocks(&self) -> usize {
        self.inner.borrow().corrupt.len()
    }

    pub fn regions(&self, volume: VolumeId, chunk: ChunkIndex) -> Vec<Stamp> {
        self.inner.borrow().chunks.get(&(volume, chunk)).map(|slab| slab.regions.clone()).unwrap_or_default()
    }

    /// Counts unanswered requests.
    pub fn pending(&self) -> usize {
        self.inner.borrow().pending.len()
    }

    pub fn has_chunk(&self, volume: VolumeId, chunk: ChunkIndex) -> bool {
        self.inner.borrow().chunks.contains_key(&(volume, chunk))
    }
}

impl Inner {
    fn locate(&self, lba: Lba) -> (ChunkIndex, u64) {
        let blocks = u64::from(self.slab_blocks);
        (ChunkIndex((lba.0 / blocks) as u32), lba.0 % blocks)
    }

    fn check_epoch(&self, volume: VolumeId, epoch: Epoch) -> Result<(), StoreError> {
        let promised = self.promised.get(&volume).copied().unwrap_or_default();
        if epoch < promised && !Planted::AcceptOldEpochs.is_planted() {
            return Err(StoreError::Fenced { promised });
        }
        match self.fault {
            FakeFault::WriteErrors => Err(StoreError::Poisoned),
            _ => Ok(()),
        }
    }

    /// Fails the request if the present fault affects it.
    fn check_fault(&self, request: &StoreRequest) -> Result<(), StoreError> {
        match self.fault {
            FakeFault::Errors => Err(StoreError::Disk(DiskError::Io(5))),
            FakeFault::HostErrors => Err(StoreError::Disk(DiskError::Host(12))),
            FakeFault::NoSlabs if matches!(request, StoreRequest::AllocateChunk { .. }) => {
                Err(StoreError::NoSpace)
            }
            FakeFault::NoRoom if matches!(request, StoreRequest::Write { .. }) => Err(StoreError::NoSpace),
            FakeFault::FullJournal if changes(request) => Err(StoreError::NoSpace),
            _ => Ok(()),
        }
    }

    fn perform(&mut self, request: StoreRequest) -> Result<StoreReply, StoreError> {
        self.check_fault(&request)?;
        match request {
            StoreRequest::Promise { volume, epoch } => {
                self.check_epoch(volume, epoch)?;
                self.promised.insert(volume, epoch);
                Ok(StoreReply::Done)
            }
            StoreRequest::Forget { volume } | StoreRequest::Unpromise { volume } => {
                self.promised.remove(&volume);
                Ok(StoreReply::Done)
            }
            StoreRequest::AllocateChunk { volume, epoch, chunk, append } => {
                self.check_epoch(volume, epoch)?;
                self.allocate(volume, chunk, append)
            }
            StoreRequest::FreeChunk { volume, epoch, chunk } => {
                self.check_epoch(volume, epoch)?;
                self.free(volume, chunk)
            }
            StoreRequest::Read { volume, lba, blocks } => self.read(volume, lba, blocks),
            StoreRequest::Write { volume, stamp, lba, class, data, checksums } => {
                self.check_epoch(volume, stamp.epoch())?;
                self.write(volume, stamp, lba, class, &data, &checksums)
            }
            StoreRequest::Discard { volume, stamp, lba, blocks } => {
                self.check_epoch(volume, stamp.epoch())?;
                self.discard(volume, stamp, lba, blocks)
            }
            StoreRequest::MarkLost { volume, stamp, lba, blocks } => {
                self.check_epoch(volume, stamp.epoch())?;
                self.mark_lost(volume, stamp, lba, blocks)
            }
            StoreRequest::Regions { volume, chunk } => {
                let slab = self.chunks.get(&(volume, chunk)).ok_or(StoreError::NotMapped)?;
                Ok(StoreReply::Regions(Regions { stamps: slab.regions.clone(), doubtful: Vec::new() }))
            }
            StoreRequest::Chunks { volume } => {
                let chunks = self.chunks.iter().filter(|((of, _), _)| *of == volume);
                let entries =
                    chunks.map(|((_, chunk), slab)| ChunkEntry { chunk: *chunk, append: slab.append });
                Ok(StoreReply::Chunks(entries.collect()))
            }
            StoreRequest::Scrub { .. } => Ok(StoreReply::Scrubbed(ScrubProgress {
                corrupt: self.corrupt.iter().copied().collect(),
                finished: true,
                ..ScrubProgress::default()
            })),
            StoreRequest::SetRecords { records } => {
                self.records = records;
                Ok(StoreReply::Done)
            }
        }
    }

    fn allocate(
        &mut self,
        volume: VolumeId,
        chunk: ChunkIndex,
        append: bool,
    ) -> Result<StoreReply, StoreError> {
        if !self.chunks.contains_key(&(volume, chunk)) {
            if self.chunks.len() as u64 >= self.slabs {
                return Err(StoreError::NoSpace);
            }
            let regions = u64::from(self.slab_blocks).div_ceil(REGION_BLOCKS) as usize;
            let slab = Slab { append, blocks: BTreeMap::new(), regions: vec![Stamp::default(); regions] };
            self.chunks.insert((volume, chunk), slab);
        }
        Ok(StoreReply::Done)
    }

    fn free(&mut self, volume: VolumeId, chunk: ChunkIndex) -> Result<StoreReply, StoreError> {
        self.chunks.remove(&(volume, chunk)).ok_or(StoreError::NotMapped)?;
        let blocks = u64::from(self.slab_blocks);
        self.corrupt.retain(|(of, lba)| *of != volume || lba.0 / blocks != u64::from(chunk.0));
        self.lost.retain(|(of, lba)| *of != volume || lba.0 / blocks != u64::from(chunk.0));
        Ok(StoreReply::Done)
    }

    fn discard(
        &mut self,
        volume: VolumeId,
        stamp: Stamp,
        lba: Lba,
        blocks: u32,
    ) -> Result<StoreReply, StoreError> {
        let (chunk, offset) = self.locate(lba);
        let slab = self.chunks.get_mut(&(volume, chunk)).ok_or(StoreError::NotMapped)?;
        for at in offset..offset + u64::from(blocks) {
            slab.blocks.remove(&at);
            slab.stamp(at, stamp);
            self.corrupt.remove(&(volume, lba.offset(at - offset)));
            self.lost.remove(&(volume, lba.offset(at - offset)));
        }
        Ok(StoreReply::Done)
    }

    fn mark_lost(
        &mut self,
        volume: VolumeId,
        stamp: Stamp,
        lba: Lba,
        blocks: u32,
    ) -> Result<StoreReply, StoreError> {
        let (chunk, offset) = self.locate(lba);
        let slab = self.chunks.get_mut(&(volume, chunk)).ok_or(StoreError::NotMapped)?;
        for at in 0..u64::from(blocks) {
            slab.stamp(offset + at, stamp);
            self.lost.insert((volume, lba.offset(at)));
        }
        Ok(StoreReply::Done)
    }

    fn read(&self, volume: VolumeId, lba: Lba, blocks: u32) -> Result<StoreReply, StoreError> {
        let (chunk, offset) = self.locate(lba);
        let slab = self.chunks.get(&(volume, chunk)).ok_or(StoreError::NotMapped)?;
        let lbas: Vec<Lba> = (0..u64::from(blocks))
            .map(|at| lba.offset(at))
            .filter(|lba| {
                let known = [&self.corrupt, &self.bad, &self.lost];
                known.iter().any(|blocks| blocks.contains(&(volume, *lba)))
            })
            .chain(slab.unproven(volume, lba, offset..offset + u64::from(blocks)))
            .collect();
        if !lbas.is_empty() {
            return Err(StoreError::Corrupt { lbas });
        }
        let mut data = BufMut::zeroed(blocks as usize * BLOCK_BYTES);
        let mut checksums = vec![codes::UNWRITTEN; if slab.append { 0 } else { blocks as usize }];
        for (&at, block) in slab.blocks.range(offset..offset + u64::from(blocks)) {
            let index = (at - offset) as usize;
            data[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES].copy_from_slice(block);
            if let Some(checksum) = checksums.get_mut(index) {
                *checksum = codes::block_checksum(volume, lba.offset(index as u64), block);
            }
        }
        Ok(StoreReply::Data { data: Payload::from(data.freeze()), checksums })
    }

    fn write(
        &mut self,
        volume: VolumeId,
        stamp: Stamp,
        lba: Lba,
        class: WriteClass,
        data: &Payload,
        checksums: &[u64],
    ) -> Result<StoreReply, StoreError> {
        let (chunk, offset) = self.locate(lba);
        let blocks = (data.len() / BLOCK_BYTES) as u64;
        let slab = self.chunks.get_mut(&(volume, chunk)).ok_or(StoreError::NotMapped)?;
        if slab.append != (class == WriteClass::Append) {
            return Err(StoreError::Invalid("the class is not the chunk's"));
        }
        if offset + blocks > u64::from(self.slab_blocks) || blocks > REGION_BLOCKS {
            return Err(StoreError::Invalid("a write must lie within one chunk"));
        }
        if class == WriteClass::Overwrite && blocks > crate::coordinator::OVERWRITE_BLOCKS {
            return Err(StoreError::Invalid("an overwrite is of 64 KiB at most"));
        }
        if class != WriteClass::Append && !codes::payload_matches(volume, lba, data, checksums) {
            return Err(StoreError::Invalid("the checksums are not the data's"));
        }
        for index in 0..blocks {
            let block = data.slice(index as usize * BLOCK_BYTES, BLOCK_BYTES).contiguous();
            slab.blocks.insert(offset + index, Buf::from(&block[..]));
            slab.stamp(offset + index, stamp);
            self.corrupt.remove(&(volume, lba.offset(index)));
            self.lost.remove(&(volume, lba.offset(index)));
        }
        Ok(StoreReply::Done)
    }
}

impl BlockStore for FakeStore {
    fn submit(&mut self, token: u64, request: StoreRequest) {
        self.inner.borrow_mut().pending.push_back((token, request));
    }

    fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        let mut inner = self.inner.borrow_mut();
        while inner.fault != FakeFault::Hang {
            let hangs = inner.fault == FakeFault::ReadsHang;
            let ready =
                |(_, request): &(u64, StoreRequest)| !hangs || !matches!(request, StoreRequest::Read { .. });
            let Some(next) = inner.pending.iter().position(ready) else { break };
            let Some((token, request)) = inner.pending.remove(next) else { break };
            let result = inner.perform(request);
            out.push(StoreCompletion { token, result });
        }
    }

    fn promised(&self, volume: VolumeId) -> Epoch {
        self.inner.borrow().promised.get(&volume).copied().unwrap_or_default()
    }

    /// A fake store has no journal.
    fn settle(&mut self, _: VolumeId, _: Epoch) {}
    fn is_doubtful(&self, _: VolumeId) -> bool {
        false
    }

    fn slabs(&self) -> (u64, u64) {
        let inner = self.inner.borrow();
        (inner.slabs, inner.slabs.saturating_sub(inner.chunks.len() as u64))
    }

    fn slab_blocks(&self) -> u32 {
        self.inner.borrow().slab_blocks
    }
}

/// Whether the request needs a record in the journal.
fn changes(request: &StoreRequest) -> bool {
    !matches!(
        request,
        StoreRequest::Read { .. }
            | StoreRequest::Regions { .. }
            | StoreRequest::Chunks { .. }
            | StoreRequest::Scrub { .. }
            | StoreRequest::SetRecords { .. }
    )
}
