//! A node that is to have no volumes hands them over, one after the other.
//!
//! Promises: a volume goes to the node that would take it over, while both live, so that clients wait for no time-out; one that could not be
//! handed over stays here, served, and is tried again. Never decides that a node drains: that is recorded, and told with who lives.

use crate::neighbours::Neighbours;
use crate::tasks::Tasks;
use crate::volume_care::VolumeCare;
use crate::volumes::Volumes;
use std::cell::Cell;
use std::rc::Rc;
use types::VolumeId;

/// Hands volumes over.
#[derive(Clone)]
pub(crate) struct Draining {
    pub tasks: Rc<Tasks>,
    pub volumes: Rc<Volumes>,
    pub neighbours: Rc<Neighbours>,
    pub care: VolumeCare,
    pub is_running: Rc<Cell<bool>>,
}

impl Draining {
    /// Begins to hand over what this node has, if it drains.
    pub fn look(&self) {
        if !self.neighbours.drains() || self.is_running.get() {
            return;
        }
        let served: Vec<VolumeId> = {
            let entries = self.volumes.entries();
            entries.iter().filter(|(_, entry)| entry.served.is_some()).map(|(volume, _)| *volume).collect()
        };
        if served.is_empty() {
            return;
        }
        self.is_running.set(true);
        let draining = self.clone();
        self.tasks.spawn(async move {
            for volume in served {
                draining.hand_over(volume).await;
            }
            draining.is_running.set(false);
        });
    }

    async fn hand_over(&self, volume: VolumeId) {
        // It may have been resumed, or the volume deleted, meanwhile.
        if !self.neighbours.drains() || !self.volumes.is_served(volume) {
            return;
        }
        let name = self.volumes.name(volume);
        let Some(heir) = self.neighbours.heir(volume) else {
            tracing::warn!(%volume, name, "no other node would have the volume: it stays here for now");
            return;
        };
        if let Err(error) = self.care.move_to(volume, heir).await {
            tracing::warn!(%volume, name, %error, "a volume was not handed over; it is tried again");
        }
    }
}
