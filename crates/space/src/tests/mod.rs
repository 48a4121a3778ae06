//! A local space over stores in memory.

mod damage;
mod faults;
mod hedges;
mod io;
mod jobs;
mod late_messages;
mod nodes;
#[cfg(feature = "planted-bugs")]
mod planted;
mod real_stores;
mod rollback;

use crate::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest, VirtualDisk};
use crate::coordinator::{Config, Phase};
use crate::fake_store::{FakeFault, FakeStore};
use crate::local::{LocalSpace, VolumeHandle};
use records::{FaultDomain, MemoryClient, MemoryState, Provisioning, Resiliency, Typed, VolumeRecord};
use std::time::Duration;
use store::api::WriteClass;
use sys::{BufMut, Payload};
use types::{BLOCK_BYTES, DiskId, Lba, Monotonic, PoolId, VolumeId};

pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);
/// Blocks of one chunk: four regions.
pub(crate) const CHUNK: u32 = 1024;

pub(crate) fn disk(number: u8) -> DiskId {
    DiskId::from_bytes([number; 16])
}

/// A pool of disks in memory with one volume, and a clock.
pub(crate) struct Bench {
    pub stores: Vec<FakeStore>,
    pub state: MemoryState,
    pub space: LocalSpace<FakeStore, MemoryClient>,
    pub handle: VolumeHandle<FakeStore, MemoryClient>,
    pub now: Monotonic,
    incarnation: u128,
    next_token: u64,
}

impl Bench {
    pub fn new(disks: u8, slabs: u64, resiliency: Resiliency) -> Self {
        let state = MemoryState::new();
        let ids = (1..=disks).map(disk).collect();
        let pool = PoolId::from_bytes([1; 16]);
        let size = u64::from(CHUNK) * 64 * BLOCK_BYTES as u64;
        let record = VolumeRecord::new(VOLUME, pool, "data", resiliency, size, Provisioning::Thin, ids, 0);
        state.write(&record, 0).unwrap();
        let stores: Vec<FakeStore> = (0..disks).map(|_| FakeStore::new(CHUNK, slabs)).collect();
        let now = Monotonic(1_000_000_000);
        let (space, handle) = Self::assemble(&state, &stores, now, 1);
        let mut bench = Self { stores, state, space, handle, now, incarnation: 1, next_token: 0 };
        bench.run_briefly();
        assert_eq!(bench.space.phase(VOLUME), Some(Phase::Serving));
        bench
    }

    fn assemble(
        state: &MemoryState,
        stores: &[FakeStore],
        now: Monotonic,
        incarnation: u128,
    ) -> (LocalSpace<FakeStore, MemoryClient>, VolumeHandle<FakeStore, MemoryClient>) {
        let space = LocalSpace::new(state.client(), Config::default(), CHUNK, 0, now);
        for (at, store) in stores.iter().enumerate() {
            space.attach_disk(disk(at as u8 + 1), store.clone(), FaultDomain::default()).unwrap();
        }
        let handle = space.open_volume(VOLUME, incarnation);
        (space, handle)
    }

    /// Ends the process; of the stores' unanswered requests, `keep` chooses those that are done. Then it
    /// starts again.
    pub fn crash(&mut self, mut keep: impl FnMut() -> bool) {
        for store in &self.stores {
            store.crash(&mut keep);
        }
        self.incarnation += 1;
        let (space, handle) = Self::assemble(&self.state, &self.stores, self.now, self.incarnation);
        self.space = space;
        self.handle = handle;
        self.run_briefly();
    }

    /// Ends the process, starts it again, and gives it `time`.
    pub fn restart_for(&mut self, time: Duration) {
        self.restart_with(&[FakeFault::None; 8], time);
    }

    /// As [`Self::restart_for`], with faulty stores from the start.
    pub fn restart_with(&mut self, faults: &[FakeFault], time: Duration) {
        for (store, fault) in self.stores.iter().zip(faults) {
            store.crash(|| false);
            store.set_fault(*fault);
        }
        self.incarnation += 1;
        let (space, handle) = Self::assemble(&self.state, &self.stores, self.now, self.incarnation);
        self.space = space;
        self.handle = handle;
        self.pass(time);
    }

    /// Advances the time in small steps.
    pub fn pass(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(100)).min(end);
            self.space.handle_timeout(self.now);
        }
    }

    pub fn run_briefly(&mut self) {
        self.pass(Duration::from_millis(300));
    }

    pub fn start(&mut self, request: SpaceRequest) -> u64 {
        self.next_token += 1;
        self.handle.submit(self.next_token, request);
        self.next_token
    }

    pub fn answers(&mut self) -> Vec<SpaceCompletion> {
        let mut out = Vec::new();
        self.handle.poll(&mut out);
        out
    }

    /// Returns the answer to the only request in flight, advancing the time if needed.
    pub fn call(&mut self, request: SpaceRequest) -> Result<SpaceReply, SpaceError> {
        let token = self.start(request);
        for _ in 0..400 {
            let mut out = Vec::new();
            self.handle.poll(&mut out);
            if let Some(done) = out.into_iter().find(|done| done.token == token) {
                return done.result;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("no answer");
    }

    pub fn write(&mut self, lba: u64, class: WriteClass, blocks: usize, byte: u8) -> Result<(), SpaceError> {
        self.call(SpaceRequest::Write { lba: Lba(lba), class, data: filled(blocks, byte) }).map(|_| ())
    }

    /// Writes blocks that prove themselves, of this order.
    pub fn append(&mut self, lba: u64, blocks: u64, byte: u8, order: u64) {
        let data = sealed(lba, blocks, byte, order);
        self.call(SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Append, data }).unwrap();
    }

    pub fn overwrite(&mut self, lba: u64, byte: u8) {
        self.write(lba, WriteClass::Overwrite, 1, byte).unwrap();
    }

    /// Returns the first byte of each block.
    pub fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        match self.call(SpaceRequest::Read { lba: Lba(lba), blocks, copy: None }) {
            Ok(SpaceReply::Data(data)) => {
                let data = data.contiguous();
                assert_eq!(data.len(), blocks as usize * BLOCK_BYTES);
                data.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the record in the cluster state.
    pub fn record(&self) -> VolumeRecord {
        self.state.read::<VolumeRecord>(&VOLUME.to_string()).unwrap().unwrap().value
    }

    /// Whether all in-sync disks that hold a block hold the same.
    pub fn copies_agree(&self, lba: u64) -> bool {
        let record = self.record();
        let copies: Vec<_> = self
            .stores
            .iter()
            .enumerate()
            .filter(|(at, store)| {
                record.in_sync.contains(&disk(*at as u8 + 1))
                    && store.has_chunk(VOLUME, types::ChunkIndex((lba / u64::from(CHUNK)) as u32))
            })
            .map(|(_, store)| {
                store.peek(VOLUME, Lba(lba)).unwrap_or_else(|| BufMut::zeroed(BLOCK_BYTES).freeze())
            })
            .collect();
        copies.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Returns disks that hold the chunk.
    pub fn holders(&self, chunk: u32) -> Vec<usize> {
        let holds = |at: &usize| self.stores[*at].has_chunk(VOLUME, types::ChunkIndex(chunk));
        (0..self.stores.len()).filter(holds).collect()
    }
}

/// Blocks that prove themselves.
pub(crate) fn sealed(lba: u64, blocks: u64, byte: u8, order: u64) -> Payload {
    let mut data = BufMut::zeroed(blocks as usize * BLOCK_BYTES);
    for (at, block) in data.chunks_mut(BLOCK_BYTES).enumerate() {
        block.fill(byte);
        codes::seal_block(VOLUME, Lba(lba + at as u64), order, block);
    }
    Payload::from(data.freeze())
}

pub(crate) fn filled(blocks: usize, byte: u8) -> Payload {
    let mut data = BufMut::zeroed(blocks * BLOCK_BYTES);
    data.fill(byte);
    Payload::from(data.freeze())
}
