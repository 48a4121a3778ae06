//! A disk's store, shared by the space that reads and writes through it and the supervisor of the
//! disk.

use crate::metered_disk::MeteredDisk;
use space::block_store::BlockStore;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use store::Store;
use store::api::{StoreCompletion, StoreRequest};
use types::{Epoch, VolumeId};

/// Token of requests whose answers are ignored; replicas use others (their owner's have the highest
/// bit).
const FREE_TOKEN: u64 = u64::MAX;

/// A disk's store for a replica. Clones share the store.
///
/// Invariant: no borrow outlives a call, so that the space and the disk's supervisor never borrow
/// the store at the same time.
#[derive(Clone)]
pub struct DiskStore(Rc<RefCell<Store<MeteredDisk>>>);

impl DiskStore {
    /// Takes over an open store.
    pub fn new(store: Store<MeteredDisk>) -> Self {
        Self(Rc::new(RefCell::new(store)))
    }

    /// Reads the store.
    pub fn with<T>(&self, look: impl FnOnce(&Store<MeteredDisk>) -> T) -> T {
        look(&self.0.borrow())
    }

    /// Repeats requests that the disk had no space for; see [`Store::retry`].
    pub fn retry(&self) {
        self.0.borrow_mut().retry();
    }

    /// Compares the data of every write with its checksums from now on.
    pub fn verify_writes(&self) {
        self.0.borrow_mut().verify_writes();
    }

    /// Applies everything in the journal soon.
    pub fn request_checkpoint(&self) {
        self.0.borrow_mut().request_checkpoint();
    }

    /// Lists volumes that were promised an epoch and have no chunk here.
    pub fn promised_in_vain(&self) -> BTreeSet<VolumeId> {
        let store = self.0.borrow();
        let mut promised: BTreeSet<VolumeId> =
            store.promises().into_iter().map(|(volume, _)| volume).collect();
        for chunk in store.chunks() {
            promised.remove(&chunk.volume);
        }
        promised
    }

    /// Makes the disk forget its promise to a deleted volume. The next list of promises shows
    /// whether it did.
    pub fn forget(&self, volume: VolumeId) {
        self.0.borrow_mut().submit(FREE_TOKEN, StoreRequest::Forget { volume });
    }

    /// Makes the disk forget its promise to a volume of which it has chunks.
    /// [`Self::promised`](BlockStore::promised) shows whether it did.
    pub fn unpromise(&self, volume: VolumeId) {
        self.0.borrow_mut().submit(FREE_TOKEN, StoreRequest::Unpromise { volume });
    }

    /// Makes the disk promise an epoch, like a request in a server's name.
    #[cfg(test)]
    pub fn promise(&self, volume: VolumeId, epoch: Epoch) {
        self.0.borrow_mut().submit(FREE_TOKEN, StoreRequest::Promise { volume, epoch });
    }

    /// If `may_ask`, requests that the disk give back all its chunks of a volume that no longer
    /// exists. `true`: it has none.
    pub fn free_volume(&self, volume: VolumeId, may_ask: impl FnOnce() -> bool) -> bool {
        let mut store = self.0.borrow_mut();
        let epoch = store.promised(volume);
        let chunks: Vec<_> = store.chunks().into_iter().filter(|chunk| chunk.volume == volume).collect();
        let has_nothing = chunks.is_empty();
        if store.is_poisoned() || !may_ask() {
            return has_nothing;
        }
        for chunk in chunks {
            // The next list of chunks shows whether this was done, so nothing waits for the answer.
            store.submit(FREE_TOKEN, StoreRequest::FreeChunk { volume, epoch, chunk: chunk.chunk });
        }
        has_nothing
    }
}

impl BlockStore for DiskStore {
    fn submit(&mut self, token: u64, request: StoreRequest) {
        self.0.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        self.0.borrow_mut().poll(out);
    }
    fn has_news(&self) -> bool {
        self.0.borrow().has_news()
    }
    fn promised(&self, volume: VolumeId) -> Epoch {
        self.0.borrow().promised(volume)
    }
    fn settle(&mut self, volume: VolumeId, settled: Epoch) {
        self.0.borrow_mut().settle(volume, settled);
    }
    fn is_doubtful(&self, volume: VolumeId) -> bool {
        self.0.borrow().is_doubtful(volume)
    }
    fn slabs(&self) -> (u64, u64) {
        let store = self.0.borrow();
        (u64::from(store.slab_count()), u64::from(store.free_slabs()))
    }
    fn slab_blocks(&self) -> u32 {
        self.0.borrow().slab_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metered_disk::Counters;
    use disk::crash::{CrashDisk, CrashOptions};
    use store::api::{StoreReply, WriteClass};
    use store::{FormatParameters, format};
    use sys::{Buf, Payload};
    use types::{BLOCK_BYTES, ChunkIndex, DiskId, Lba, PoolId};

    const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);

    fn open(disk: &CrashDisk) -> DiskStore {
        let disk = MeteredDisk::new(Box::new(disk.clone()), Rc::new(Counters::default()));
        DiskStore::new(Store::open(disk).expect("a formatted disk"))
    }

    fn run(store: &mut DiskStore, request: StoreRequest) {
        store.submit(1, request);
        let mut out = Vec::new();
        while out.is_empty() {
            store.poll(&mut out);
        }
        assert!(matches!(out[0].result, Ok(StoreReply::Done)));
    }

    #[test]
    fn what_is_settled_is_not_in_doubt_any_more() {
        let (pool, epoch) = (PoolId::from_bytes([1; 16]), Epoch(3));
        let parameters = FormatParameters::new(DiskId::from_bytes([2; 16]), pool);
        let disk = format(CrashDisk::new(CrashOptions::new(160 << 20)), parameters).expect("a blank disk");
        let mut store = open(&disk);
        let (volume, chunk, lba) = (VOLUME, ChunkIndex(0), Lba(0));
        run(&mut store, StoreRequest::AllocateChunk { volume, epoch, chunk, append: false });
        let data = Payload::from(Buf::from(&[9; BLOCK_BYTES][..]));
        let checksums = codes::payload_checksums(volume, lba, &data);
        let class = WriteClass::Overwrite;
        run(&mut store, StoreRequest::Write { volume, stamp: epoch.into(), lba, class, data, checksums });
        let places = (1 << 20..20 << 20).step_by(BLOCK_BYTES);
        let place = places.into_iter().find(|at| disk.peek(*at, BLOCK_BYTES) == [9; BLOCK_BYTES]);
        disk.rot(place.expect("it is in the journal"), 1);
        let mut store = open(&disk);
        assert!(store.is_doubtful(VOLUME));
        store.settle(VOLUME, epoch);
        assert!(!store.is_doubtful(VOLUME));
    }
}
