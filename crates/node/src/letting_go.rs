//! A node whose data do not reach the others releases its volumes to a node whose data do.
//!
//! Heartbeats are small, and a network may carry them and lose all large messages. The node is then
//! alive to the others, and no write of its volumes gets through. Promises: a node releases a
//! volume only if it cannot reach most of the nodes that have copies of it, while all of them live,
//! and if these have all data without this node's disks. So one bad link never moves a volume,
//! since the disk at its other end leaves instead. The node serves the volume until the cluster's
//! state answers, since the same fault may cut off the state: a volume withdrawn before that would
//! have no server, although its data can be read here. [`crate::retreat`] handles that case. No
//! answer leaves a released volume ([`crate::volume_opening`] opens it at its new node). Never
//! decides about safety: the next owner claims the record, and disks refuse old epochs (I2, I3).

use crate::peers::Peers;
use crate::pools::Pools;
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volumes::Volumes;
use records::{Record, StateError, Transaction, Typed, VolumeRecord};
use space::takeover::{self, View};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use types::{NodeId, VolumeId};

/// Releases volumes.
#[derive(Clone)]
pub(crate) struct LettingGo {
    pub tasks: Rc<Tasks>,
    pub volumes: Rc<Volumes>,
    pub pools: Rc<Pools>,
    pub peers: Rc<Peers>,
    pub state: State,
    pub is_running: Rc<Cell<bool>>,
}

impl LettingGo {
    /// Begins to release volumes that others could serve and this node cannot.
    pub fn look(&self) {
        let unreached: BTreeSet<NodeId> = self.peers.unreached(self.tasks.now()).into_keys().collect();
        if self.is_running.get() || unreached.is_empty() {
            return;
        }
        let Some(own) = self.peers.own() else { return };
        let view = self.peers.view();
        let better_elsewhere = |volume: &VolumeId| {
            let record = own_record(&self.pools, &self.volumes, *volume);
            record.is_some_and(|record| takeover::is_better_elsewhere(&record, &view, own, &unreached))
        };
        let leaving: Vec<VolumeId> = self.volumes.served_ids().into_iter().filter(better_elsewhere).collect();
        if leaving.is_empty() {
            return;
        }
        self.is_running.set(true);
        let (letting_go, view) = (self.clone(), view.clone());
        self.tasks.spawn(async move {
            for volume in leaving {
                letting_go.let_go(volume, own, &view).await;
            }
            letting_go.is_running.set(false);
        });
    }

    /// Withdraws the volume, as its node's death would, and records that another node has it. If
    /// the state does not answer, the volume stays, and the next check tries again.
    async fn let_go(&self, volume: VolumeId, own: NodeId, view: &View) {
        let Ok(pool) = self.volumes.pool_of(volume) else { return };
        if let Err(error) = self.state.change(move |state| demand_answer(state, volume)).await {
            tracing::warn!(%volume, name = self.volumes.name(volume), %error, "a volume whose data reach too few servers is not let go yet");
            return;
        }
        let Some(served) = self.volumes.withdraw(volume, self.tasks.now()) else { return };
        let name = self.volumes.name(volume);
        tracing::error!(
            %volume,
            name,
            "data do not reach most of the servers that have copies of a volume, although their heartbeats arrive: it is let go"
        );
        served.dismount();
        self.volumes.note_stopped(volume, self.tasks.now());
        until(|| served.is_sole().then_some(())).await;
        drop(served);
        // All acknowledged writes are on the others' disks, and this node answers no more.
        if let Some(space) = self.pools.space(pool) {
            space.forget_volume(volume);
        }
        let view = view.clone();
        match self.state.change(move |state| pass_to_another(state, volume, own, &view)).await {
            Ok(Some(node)) => {
                tracing::warn!(%volume, name, to = self.peers.name(node), "another node opens a volume that this one let go");
                self.volumes.note_claimed_elsewhere(volume);
            }
            Ok(None) => self.volumes.note_ended(volume, "no other node would have it".to_owned()),
            Err(error) => {
                let why = format!("that another node is to open it cannot be recorded: {error}");
                tracing::warn!(%volume, name, why, "a volume stays here");
                self.volumes.note_ended(volume, why);
            }
        }
    }
}

/// Returns the record of a volume served here, as last changed by this node. The one that the node
/// has read may be older, and stays so while the state does not answer.
pub(crate) fn own_record(pools: &Pools, volumes: &Volumes, volume: VolumeId) -> Option<VolumeRecord> {
    pools.space(volumes.pool_of(volume).ok()?)?.record(volume)
}

/// Makes the state answer a commit as large as the one that passes the volume on, without changing
/// anything.
pub(crate) fn demand_answer(state: &records::State, volume: VolumeId) -> Result<(), StateError> {
    let Some(found) = state.read::<VolumeRecord>(&volume.to_string())? else { return Ok(()) };
    let (key, value) = (found.value.key(), found.value.encode());
    // No record has both revisions; nor will one, if the volume is deleted meanwhile.
    let nothing =
        Transaction::default().when(key.clone(), found.revision).when(key.clone(), 0).put(key, value);
    match state.commit(nothing) {
        Err(StateError::Conflict) => Ok(()),
        answered => answered.map(|_| ()),
    }
}

/// Records that another node is to open a volume of `own`, for which this node answers no more.
/// `None`: no node could, or another one has it.
fn pass_to_another(
    state: &records::State,
    volume: VolumeId,
    own: NodeId,
    view: &View,
) -> Result<Option<NodeId>, StateError> {
    let Some(found) = state.read::<VolumeRecord>(&volume.to_string())? else { return Ok(None) };
    let mut record = found.value;
    if record.owner != Some(own) {
        return Ok(record.owner);
    }
    let Some(next) = takeover::next(&record, view, own) else { return Ok(None) };
    record.before = takeover::may_answer(&record, Some(next));
    record.before.retain(|node| *node != own);
    (record.owner, record.coordinator) = (Some(next), 0);
    record.tried.push(own);
    state.write(&record, found.revision)?;
    Ok(Some(next))
}
