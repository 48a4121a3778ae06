//! The interface of a store to its replica.

use store::api::{StoreCompletion, StoreRequest};
use types::{Epoch, VolumeId};

/// One disk's store: requests in, completions out, in any order. Nothing blocks.
pub trait BlockStore {
    /// Takes a request. Its answer carries `token`.
    fn submit(&mut self, token: u64, request: StoreRequest);
    /// Moves the present answers into `out`.
    fn poll(&mut self, out: &mut Vec<StoreCompletion>);
    /// Whether [`BlockStore::poll`] may have something to do. `false` saves the caller a poll;
    /// `true` promises nothing.
    fn has_news(&self) -> bool {
        true
    }
    /// Returns the highest epoch durably promised for the volume; 0: none.
    fn promised(&self, volume: VolumeId) -> Epoch;
    /// Drops the doubts that the store's journal left about regions of the volume last changed
    /// under `settled` or earlier.
    fn settle(&mut self, volume: VolumeId, settled: Epoch);
    /// Whether the store's journal leaves data of the volume in doubt.
    fn is_doubtful(&self, volume: VolumeId) -> bool;
    /// Returns the number of all slabs, and of free ones.
    fn slabs(&self) -> (u64, u64);
    /// Returns the blocks of one slab.
    fn slab_blocks(&self) -> u32;
}

impl<D: disk::Disk + 'static> BlockStore for store::Store<D> {
    fn submit(&mut self, token: u64, request: StoreRequest) {
        store::Store::submit(self, token, request);
    }

    fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        store::Store::poll(self, out);
    }

    fn has_news(&self) -> bool {
        store::Store::has_news(self)
    }

    fn promised(&self, volume: VolumeId) -> Epoch {
        store::Store::promised(self, volume)
    }

    fn settle(&mut self, volume: VolumeId, settled: Epoch) {
        store::Store::settle(self, volume, settled);
    }

    fn is_doubtful(&self, volume: VolumeId) -> bool {
        store::Store::is_doubtful(self, volume)
    }

    fn slabs(&self) -> (u64, u64) {
        (u64::from(self.slab_count()), u64::from(self.free_slabs()))
    }

    fn slab_blocks(&self) -> u32 {
        store::Store::slab_blocks(self)
    }
}
