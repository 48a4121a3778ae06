//! Checks, at intervals, that the files of disks are still at their paths and have their length,
//! and makes their file systems reserve space for writes that must not be refused
//! ([`crate::host_files`]).
//!
//! Promises: checks on a helper thread, one check at a time: a file system that hangs delays no
//! other work. Never changes a disk's contents.

use crate::disk_slot::DiskSlot;
use crate::disks::Disks;
use crate::host_files::Kept;
use crate::tasks::Tasks;
use disk::FileState;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic};

/// Pause between two checks.
const EVERY: Duration = Duration::from_secs(1);

/// Checks the files.
#[derive(Clone)]
pub(crate) struct DiskFiles {
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    pub next_at: Rc<Cell<Monotonic>>,
    pub is_looking: Rc<Cell<bool>>,
}

impl DiskFiles {
    /// Begins a check if it is due.
    pub(crate) fn look_if_due(&self) {
        let now = self.tasks.now();
        if self.is_looking.get() || now < self.next_at.get() {
            return;
        }
        self.next_at.set(now.after(EVERY));
        self.is_looking.set(true);
        let files = self.clone();
        self.tasks.spawn(async move {
            files.look().await;
            files.is_looking.set(false);
        });
    }

    async fn look(&self) {
        let watches: Vec<_> = {
            let slots = self.disks.slots();
            let present = slots.values().filter(|slot| slot.store().is_some());
            let of = |slot: &DiskSlot| {
                let (watch, store) = (slot.watch.clone()?, slot.store()?);
                Some((slot.record.id, watch, store.with(|store| slot.host.wanted(store))))
            };
            present.filter_map(of).collect()
        };
        let look = move || -> Vec<(DiskId, FileState, Kept)> {
            // A file that the kernel cannot judge now is checked another time; the task that
            // closed a file handles it.
            let found = watches.into_iter();
            let looked = found.filter_map(|(disk, watch, wanted)| {
                Some((disk, watch.look().ok()??, wanted.reserve(&watch)))
            });
            looked.collect()
        };
        let Some(found) = self.tasks.blocking(look).await else { return };
        let unix_s = self.tasks.unix_seconds();
        let mut slots = self.disks.slots_mut();
        for (disk, state, kept) in found {
            if let Some(slot) = slots.get_mut(&disk).filter(|slot| slot.store().is_some()) {
                slot.note_file(state, unix_s);
                slot.host.note(kept, &slot.record.path, unix_s);
            }
        }
    }
}
