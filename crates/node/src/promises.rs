//! Promises to volumes that are no more: disks forget them, so that a place is left for each volume that is made.
//!
//! Why that is safe: a volume's record stands before any disk promises it an epoch, its number is never given again, and the disks are asked
//! before the records are read. So a volume that was promised something and has no record was deleted, for good. A promise is kept while
//! the disk has a chunk of the volume, or a note says that its slabs are still to be given back. Who still takes itself for the
//! owner is refused by the disk while its store is open; later it would have to open a session, and says what the disk must have promised.

use crate::disks::Disks;
use crate::state::State;
use crate::tasks::Tasks;
use cluster::{DeletedVolume, Typed, VolumeRecord};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::{Monotonic, VolumeId};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(600);

/// Has disks forget promises that nobody needs.
#[derive(Clone)]
pub(crate) struct Promises {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) state: State,
    pub(crate) disks: Rc<Disks>,
    pub(crate) next_at: Rc<Cell<Monotonic>>,
}

impl Promises {
    /// Looks, if the last look is long ago.
    pub(crate) fn forget_if_due(&self) {
        let now = self.tasks.now();
        if now < self.next_at.get() {
            return;
        }
        self.next_at.set(now.after(EVERY));
        let in_vain = self.disks.promised_in_vain();
        if in_vain.is_empty() {
            return;
        }
        let promises = self.clone();
        self.tasks.spawn(async move { promises.forget(in_vain).await });
    }

    async fn forget(&self, mut in_vain: BTreeSet<VolumeId>) {
        let recorded = self.state.change(|state| {
            let volumes = state.list::<VolumeRecord>()?.into_iter().map(|volume| volume.value.id);
            let deleted = state.list::<DeletedVolume>()?.into_iter().map(|note| note.value.id);
            Ok(volumes.chain(deleted).collect::<BTreeSet<VolumeId>>())
        });
        match recorded.await {
            Ok(recorded) => {
                in_vain.retain(|volume| !recorded.contains(volume));
                self.disks.forget_promises(&in_vain);
            }
            Err(error) => {
                tracing::debug!(%error, "promises to deleted volumes are kept until the records can be read")
            }
        }
    }
}
