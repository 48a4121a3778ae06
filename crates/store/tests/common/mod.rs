//! A store over a disk in memory, driven one request or many at a time.
#![allow(dead_code)]

pub mod oracle;

use disk::Disk;
use disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fate, Fault, FaultAction, FaultTarget};
use std::collections::HashMap;
use store::api::{StoreCompletion, StoreError, StoreReply, StoreRequest, WriteClass};
use store::{FormatParameters, Store, StoreOptions, format};
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Epoch, Lba, PoolId, Stamp, VolumeId};

pub const DISK: DiskId = DiskId::from_bytes([0xD1; 16]);
pub const POOL: PoolId = PoolId::from_bytes([0xB0; 16]);
pub const VOLUME: VolumeId = VolumeId::from_bytes([0x70; 16]);
pub const EPOCH: Epoch = Epoch(3);

/// Small enough that every boundary is near: slabs of 1 MiB, a journal of 256 KiB.
pub fn small() -> FormatParameters {
    FormatParameters {
        slab_bytes: Some(1 << 20),
        journal_bytes: Some(256 << 10),
        ..FormatParameters::new(DISK, POOL)
    }
}

pub fn crash_disk(size_bytes: u64) -> CrashDisk {
    CrashDisk::new(CrashOptions::new(size_bytes))
}

pub fn small_options() -> StoreOptions {
    StoreOptions {
        metadata_cache_bytes: 64 << 10,
        overlay_bytes: 64 << 10,
        pool: Some(POOL),
        ..StoreOptions::default()
    }
}

pub struct Rig<D: Disk> {
    pub store: Store<D>,
    next_token: u64,
    pub answers: HashMap<u64, Result<StoreReply, StoreError>>,
}

pub fn new_rig() -> Rig<CrashDisk> {
    let disk = format(crash_disk(16 << 20), small()).expect("an empty disk can be formatted");
    Rig::open(disk)
}

impl<D: Disk + 'static> Rig<D> {
    pub fn open(disk: D) -> Self {
        Self::new(Store::open_with(disk, small_options()).expect("a formatted disk opens"))
    }

    pub fn reopen(self) -> Self {
        Self::open(self.store.into_disk())
    }
}

impl<D: Disk> Rig<D> {
    pub fn new(store: Store<D>) -> Self {
        Self { store, next_token: 0, answers: HashMap::new() }
    }

    pub fn submit(&mut self, request: StoreRequest) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.store.submit(token, request);
        token
    }

    pub fn poll(&mut self) {
        let mut out: Vec<StoreCompletion> = Vec::new();
        self.store.poll(&mut out);
        for completion in out {
            let again = self.answers.insert(completion.token, completion.result);
            assert!(again.is_none(), "a request is answered once");
        }
    }

    /// Polls until the request is answered, a bounded number of times.
    pub fn wait(&mut self, token: u64) -> Result<StoreReply, StoreError> {
        for _ in 0..100_000 {
            if let Some(answer) = self.answers.remove(&token) {
                return answer;
            }
            self.poll();
        }
        panic!("request {token} is never answered");
    }

    pub fn run(&mut self, request: StoreRequest) -> Result<StoreReply, StoreError> {
        let token = self.submit(request);
        self.wait(token)
    }

    pub fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            if self.store.is_idle() {
                return;
            }
            self.poll();
        }
        panic!("the store never comes to rest");
    }

    pub fn checkpoint(&mut self) {
        let before = self.store.health().checkpoints;
        self.run_until_idle();
        self.store.request_checkpoint();
        self.run_until_idle();
        assert!(self.store.health().checkpoints >= before);
    }

    pub fn allocate(&mut self, chunk: u32, append: bool) {
        let request =
            StoreRequest::AllocateChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(chunk), append };
        assert!(matches!(self.run(request), Ok(StoreReply::Done)));
    }

    pub fn write(&mut self, class: WriteClass, lba: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.run(write_request(class, lba, bytes)).map(|_| ())
    }

    pub fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, StoreError> {
        match self.run(StoreRequest::Read { volume: VOLUME, lba: Lba(lba), blocks })? {
            StoreReply::Data { data, .. } => {
                assert_eq!(data.len(), blocks as usize * BLOCK_BYTES);
                Ok(data.contiguous().to_vec())
            }
            other => panic!("a read answers with data, not {other:?}"),
        }
    }

    pub fn discard(&mut self, lba: u64, blocks: u32) -> Result<(), StoreError> {
        self.run(StoreRequest::Discard { volume: VOLUME, stamp: EPOCH.into(), lba: Lba(lba), blocks })
            .map(|_| ())
    }

    pub fn regions(&mut self, chunk: u32) -> Vec<Epoch> {
        self.stamps(chunk).into_iter().map(Stamp::epoch).collect()
    }

    pub fn stamps(&mut self, chunk: u32) -> Vec<Stamp> {
        match self.run(StoreRequest::Regions { volume: VOLUME, chunk: ChunkIndex(chunk) }) {
            Ok(StoreReply::Regions(regions)) => regions.stamps,
            other => panic!("regions answers with stamps, not {other:?}"),
        }
    }
}

pub fn write_request(class: WriteClass, lba: u64, bytes: &[u8]) -> StoreRequest {
    write_request_at(EPOCH, class, lba, bytes)
}

pub fn write_request_at(stamp: impl Into<Stamp>, class: WriteClass, lba: u64, bytes: &[u8]) -> StoreRequest {
    let data = match class {
        WriteClass::Append => Payload::from(Buf::from(&sealed(lba, bytes)[..])),
        _ => Payload::from(Buf::from(bytes)),
    };
    let checksums = match class {
        WriteClass::Append => Vec::new(),
        _ => codes::payload_checksums(VOLUME, Lba(lba), &data),
    };
    StoreRequest::Write { volume: VOLUME, stamp: stamp.into(), lba: Lba(lba), class, data, checksums }
}

/// Seals blocks for an append chunk; their first eight bytes are their order.
pub fn sealed(lba: u64, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (lba, block) in (lba..).zip(bytes.chunks_mut(BLOCK_BYTES)) {
        let order = u64::from_le_bytes(*block.first_chunk().expect("a block"));
        codes::seal_block(VOLUME, Lba(lba), order, block);
    }
    bytes
}

/// Makes blocks that identify themselves: block `n` of version `version`.
pub fn pattern(version: u64, blocks: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(blocks * BLOCK_BYTES);
    for block in 0..blocks as u64 {
        let mut state = version.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ block.wrapping_add(1);
        for _ in 0..BLOCK_BYTES / 8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            out.extend_from_slice(&state.to_le_bytes());
        }
    }
    out
}

/// Makes a disk on which 16 blocks from 32 on found no space, concurrently with their record, and a
/// power cut tore the batch that withdrew it. An overwrite of block 100 is durable, and one of
/// block 101 was in the torn batch.
pub fn with_torn_withdrawal() -> Rig<CrashDisk> {
    let polls = |rig: &mut Rig<CrashDisk>| (0..20).for_each(|_| rig.poll());
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
    rig.submit(write_request(WriteClass::Fresh, 32, &pattern(1, 16)));
    polls(&mut rig);
    // Two batches can be in flight.
    for lba in [100, 101] {
        rig.submit(write_request(WriteClass::Overwrite, lba, &pattern(2, 1)));
        polls(&mut rig);
    }
    disk.limit_allocation(Some(disk.allocated_bytes() + (16 << 10)));
    disk.release_hanging();
    polls(&mut rig);
    disk.limit_allocation(None);
    assert_eq!(disk.candidates(), [2 * 8], "the record is withdrawn by the batch of the last overwrite");
    Rig::open(disk.after_crash(&CrashChoice(vec![Fate::Without(12)])))
}
