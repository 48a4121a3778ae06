//! A node that drains or stops hands its volumes over, one after the other.
//!
//! Promises: a volume passes to the node that would take it over, while both live, so that clients
//! wait for no timeout. If that fails, it stays here, served, and the next attempt follows. Never
//! decides that a node drains: the records do, and the verdicts report it.

use crate::peers::Peers;
use crate::tasks::Tasks;
use crate::volume_care::VolumeCare;
use crate::volumes::Volumes;
use std::cell::Cell;
use std::rc::Rc;
use types::{Monotonic, VolumeId};

/// Hands volumes over.
#[derive(Clone)]
pub(crate) struct Draining {
    pub tasks: Rc<Tasks>,
    pub volumes: Rc<Volumes>,
    pub peers: Rc<Peers>,
    pub care: VolumeCare,
    pub is_running: Rc<Cell<bool>>,
}

impl Draining {
    /// Begins to hand over this node's volumes, if it drains.
    pub fn look(&self) {
        if !self.peers.drains() || self.is_running.get() {
            return;
        }
        let served = self.volumes.served_ids();
        if served.is_empty() {
            return;
        }
        self.is_running.set(true);
        let draining = self.clone();
        self.tasks.spawn(async move {
            for volume in served {
                // An administrator may have resumed the node meanwhile.
                if draining.peers.drains() {
                    draining.hand_over(volume).await;
                }
            }
            draining.is_running.set(false);
        });
    }

    /// Hands all volumes over, since the server stops: as many as possible until `deadline`.
    pub async fn hand_over_all(&self, deadline: Monotonic) {
        if self.peers.own().is_none() {
            return;
        }
        let (draining, is_done) = (self.clone(), Rc::new(Cell::new(false)));
        let done = is_done.clone();
        self.tasks.spawn(async move {
            for volume in draining.volumes.served_ids() {
                if draining.tasks.now() < deadline {
                    draining.hand_over(volume).await;
                }
            }
            done.set(true);
        });
        self.tasks.until_late(deadline, || is_done.get().then_some(())).await;
    }

    async fn hand_over(&self, volume: VolumeId) {
        // The volume may have been deleted meanwhile.
        if !self.volumes.is_served(volume) {
            return;
        }
        let name = self.volumes.name(volume);
        let Some(heir) = self.peers.heir(volume) else {
            tracing::warn!(%volume, name, "no other node would have the volume: it stays here for now");
            return;
        };
        if let Err(error) = self.care.move_to(volume, heir).await {
            tracing::warn!(%volume, name, %error, "a volume was not handed over; it is tried again");
        }
    }
}
