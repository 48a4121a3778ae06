//! Return of a pool's disk at another server, after its own has left the cluster without it, in a
//! recovery from the copy of one server.
//!
//! Promises: only a disk of a server that is no longer in the cluster comes back so, and only with
//! epochs that the recovered state knows; it is resynced as if its server had been away. A disk
//! that knows of later writes stays unchanged.

use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::peers::Peers;
use crate::state::State;
use crate::tasks::Tasks;
use records::import::FoundDisk;
use records::recovery::Recovery;
use records::{DiskRecord, DiskState, StateError, Typed, nodes};
use std::path::Path;
use std::time::Duration;
use types::{DiskId, NodeId, PoolId};

/// Timeout for this server to open a disk that came back, after which its return is answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// Parts of the node that a return needs.
pub(crate) struct Parts<'a> {
    pub state: &'a State,
    pub disks: &'a Disks,
    pub tasks: &'a Tasks,
    pub peers: &'a Peers,
}

/// Outcome for a disk that an administrator names.
enum Reclaimed {
    /// The disk is recorded with this server.
    Taken,
    /// No such disk may come back.
    No,
    /// The disk knows of later writes of a volume.
    Ahead(String),
}

/// Takes a disk of the pool back whose server has left without it. `None`: the disk is none of
/// these.
///
/// # Errors
/// `Conflict` if it has writes that the recovered state does not know; those of the state.
pub(crate) async fn take_back(parts: Parts<'_>, pool: PoolId, path: &Path) -> Done<Option<DiskId>> {
    let Some(own) = parts.peers.own() else { return Ok(None) };
    let named = path.to_owned();
    let Some(Some(found)) = parts.tasks.blocking(move || crate::discovery::look(&named)).await else {
        return Ok(None);
    };
    if found.pool != pool {
        return Ok(None);
    }
    let (disk, shown, name) = (found.disk, found.path.clone(), parts.peers.name(own));
    match parts.state.change(move |state| reclaim(state, (own, &name), &found)).await? {
        Reclaimed::No => Ok(None),
        Reclaimed::Ahead(volume) => {
            let why = format!(
                "has writes of volume {volume} that the cluster's state does not know, since it was recovered from an older copy"
            );
            let told = format!(
                "{shown} {why}. The disk is left as it is. If what it has is to be kept, import the pool from the disks of the lost servers on another single \
                 server (`cenote pool import`), and copy it"
            );
            parts.peers.note_refused(disk, why);
            Err(Error::new(ErrorKind::Conflict, told))
        }
        Reclaimed::Taken => {
            tracing::info!(%disk, path = shown, "a disk whose server has left comes back at this one");
            let patience = parts.tasks.now().after(PATIENCE);
            let is_open = || {
                let slots = parts.disks.slots();
                slots.get(&disk).and_then(|slot| slot.store().is_some().then_some(()))
            };
            parts.tasks.until_late(patience, is_open).await;
            Ok(Some(disk))
        }
    }
}

fn reclaim(
    state: &records::State,
    (own, name): (NodeId, &str),
    found: &FoundDisk,
) -> Result<Reclaimed, StateError> {
    let Some(stored) = state.read::<DiskRecord>(&found.disk.to_string())? else { return Ok(Reclaimed::No) };
    let members = nodes::members(state)?;
    let is_left = stored.value.node.is_some_and(|node| members.iter().all(|member| member.value.id != node));
    if !is_left || stored.value.pool != found.pool || stored.value.state == DiskState::Retired {
        return Ok(Reclaimed::No);
    }
    if let Some(volume) = Recovery::unknown_to(state, &found.promised)? {
        let record = state.read::<records::VolumeRecord>(&volume.to_string())?;
        return Ok(Reclaimed::Ahead(record.map_or_else(|| volume.to_string(), |record| record.value.name)));
    }
    let mut record = DiskRecord { node: Some(own), path: found.path.clone(), ..stored.value };
    name.clone_into(&mut record.fault_domain.node);
    state.write(&record, stored.revision)?;
    Ok(Reclaimed::Taken)
}
