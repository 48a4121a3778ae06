//! Epochs promised to volumes (I3), which decide the owners that may still write.

use crate::api::StoreError;
use crate::layout::{LEAVES_PER_PAGE, PROMISE_ENTRIES_PER_LEAF, PROMISE_PAGES};
use crate::numbers::IdentityMap;
use crate::slots::SlotId;
use crate::tables::PromisePlaces;
use std::collections::HashMap;
use types::{Epoch, Stamp, VolumeId};

/// Most volumes that can be promised an epoch.
const PROMISES_MAX: usize = PROMISE_PAGES * LEAVES_PER_PAGE * PROMISE_ENTRIES_PER_LEAF;

/// Invariant: `promised` is durable and never above `fence`; a request below `fence` is refused.
/// The record of a promise is queued when no write of the volume is in flight straight into place:
/// such a write passed the old fence, and may not land after the promise.
#[derive(Default)]
struct Volume {
    promised: Epoch,
    fence: Epoch,
    /// Whether the volume is deleted, so that it needs no place in the table.
    is_forgotten: bool,
    /// Writes in flight straight into place.
    in_place: u32,
    waiting_promises: Vec<SlotId>,
}

/// Whether the fence of a promise is forgotten with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgets {
    /// The volume is deleted: its former owner is refused while the store is open.
    KeepingFence,
    /// The volume still exists, and its owner must be accepted again.
    WithFence,
}

/// Volumes that were promised an epoch, or have writes in flight straight into place.
pub(super) struct Volumes {
    volumes: IdentityMap<VolumeId, Volume>,
    places: PromisePlaces,
    /// Whether the table on disk must be rewritten.
    changed: bool,
    /// Promises whose records may be queued now.
    due: Vec<SlotId>,
}

impl Volumes {
    pub(super) fn new(promises: HashMap<VolumeId, Epoch>, places: PromisePlaces, changed: bool) -> Self {
        let volumes = promises
            .into_iter()
            .map(|(volume, epoch)| (volume, Volume { promised: epoch, fence: epoch, ..Volume::default() }))
            .collect();
        Self { volumes, places, changed, due: Vec::new() }
    }

    /// Returns the highest epoch durably promised to the volume; zero if none was.
    pub(super) fn promised(&self, volume: VolumeId) -> Epoch {
        self.volumes.get(&volume).map_or(Epoch(0), |state| state.promised)
    }

    pub(super) fn promises(&self) -> Vec<(VolumeId, Epoch)> {
        let promised = self.volumes.iter().filter(|(_, state)| state.promised.0 > 0);
        promised.map(|(volume, state)| (*volume, state.promised)).collect()
    }

    /// Refuses epochs below the fence.
    pub(super) fn check(&self, volume: VolumeId, epoch: Epoch) -> Result<(), StoreError> {
        match self.volumes.get(&volume) {
            Some(state) if epoch < state.fence => Err(StoreError::Fenced { promised: state.fence }),
            _ => Ok(()),
        }
    }

    /// Refuses lower epochs from now on.
    pub(super) fn raise_fence(&mut self, volume: VolumeId, epoch: Epoch) -> Result<(), StoreError> {
        self.check(volume, epoch)?;
        if epoch > Stamp::EPOCH_MAX {
            return Err(StoreError::Invalid("an epoch beyond all that there are"));
        }
        let is_known = self.volumes.get(&volume).is_some_and(|state| !state.is_forgotten);
        if !is_known && self.volumes.values().filter(|state| !state.is_forgotten).count() >= PROMISES_MAX {
            return Err(StoreError::Invalid("too many volumes on one disk"));
        }
        let state = self.volumes.entry(volume).or_default();
        (state.fence, state.is_forgotten) = (epoch, false);
        Ok(())
    }

    /// Refuses all epochs that the volume has had, before its promise is forgotten.
    pub(super) fn begin_forgetting(&mut self, volume: VolumeId) -> Result<(), StoreError> {
        let state = self.volumes.get_mut(&volume).filter(|state| state.promised.0 > 0);
        let state = state.ok_or(StoreError::Invalid("nothing was promised to the volume"))?;
        if state.in_place > 0 || !state.waiting_promises.is_empty() || state.fence > state.promised {
            return Err(StoreError::Invalid("the volume is in use"));
        }
        state.fence = state.promised.next();
        Ok(())
    }

    /// Forgets a promise, now that the record of that is durable.
    pub(super) fn forget(&mut self, volume: VolumeId, how: Forgets) {
        if let Some(state) = self.volumes.get_mut(&volume) {
            state.is_forgotten = state.fence == state.promised.next();
            if how == Forgets::WithFence && state.is_forgotten {
                state.fence = Epoch(0);
            }
            state.promised = Epoch(0);
            self.changed = true;
        }
    }

    /// Makes a promise wait for the writes in flight straight into place. Returns whether there are
    /// any.
    pub(super) fn await_in_place(&mut self, volume: VolumeId, promise: SlotId) -> bool {
        let Some(state) = self.volumes.get_mut(&volume).filter(|state| state.in_place > 0) else {
            return false;
        };
        state.waiting_promises.push(promise);
        true
    }

    /// Notes that a promise is durable.
    pub(super) fn keep(&mut self, volume: VolumeId, epoch: Epoch) {
        let state = self.volumes.entry(volume).or_default();
        state.promised = state.promised.max(epoch);
        state.is_forgotten = false;
        debug_assert!(state.promised <= state.fence, "the fence is raised before the promise is recorded");
        self.changed = true;
    }

    pub(super) fn begin_in_place(&mut self, volume: VolumeId) {
        self.volumes.entry(volume).or_default().in_place += 1;
    }

    /// Ends a write straight into place. Promises that waited for the last one are due
    /// ([`Self::take_due`]).
    pub(super) fn end_in_place(&mut self, volume: VolumeId) {
        let Some(state) = self.volumes.get_mut(&volume) else { return };
        debug_assert!(state.in_place > 0, "a write in place ends once");
        state.in_place -= 1;
        if state.in_place == 0 {
            self.due.append(&mut state.waiting_promises);
        }
    }

    pub(super) fn take_due(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.due)
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }
    /// Whether the table must be written; it counts as written from here on.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
    pub(super) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Returns the promises by their place in the table.
    pub(super) fn arrange(&mut self) -> Vec<Option<(VolumeId, Epoch)>> {
        let promises = self.promises();
        self.places.arrange(&promises)
    }

    /// Drops the waiting promises, which are refused.
    pub(super) fn abandon(&mut self) {
        self.volumes.values_mut().for_each(|state| state.waiting_promises.clear());
        self.due.clear();
    }
}
