//! A cluster's record of its last recovery from the copy of one server, and the volumes that open
//! there.
//!
//! The copy may be older than the last decisions of the other servers. Their disks may come back all
//! the same, but only with epochs that the copy knows: each epoch is in the state before it is on a
//! disk.

use crate::{DeletedVolume, DiskRecord, Record, StateError, Typed, VolumeRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, Epoch, NodeId, VolumeId};

/// The last recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub unix_s: u64,
    /// The volumes' epochs at that time.
    pub epochs: Vec<(VolumeId, Epoch)>,
}

impl Record for Recovery {
    const PREFIX: &'static str = "recovery/";
    fn id(&self) -> String {
        Self::ID.into()
    }
}

impl Recovery {
    /// There is one such record.
    pub const ID: &'static str = "last";

    /// Notes the state's epochs, before anything is changed in it.
    ///
    /// # Errors
    /// Those of the state.
    pub fn note(state: &(impl Typed + ?Sized), now_unix_s: u64) -> Result<(), StateError> {
        let revision = state.read::<Self>(Self::ID)?.map_or(0, |known| known.revision);
        let volumes = state.list::<VolumeRecord>()?.into_iter();
        let epochs = volumes.map(|volume| (volume.value.id, volume.value.epoch)).collect();
        state.write(&Self { unix_s: now_unix_s, epochs }, revision).map(|_| ())
    }

    /// A volume of which a disk has promised an epoch that the state does not know. Later writes are on
    /// that disk, and not on the disks that the state calls in sync. None if nothing was recovered.
    ///
    /// # Errors
    /// Those of the state.
    pub fn unknown_to(
        state: &(impl Typed + ?Sized),
        promised: &BTreeMap<VolumeId, Epoch>,
    ) -> Result<Option<VolumeId>, StateError> {
        let Some(last) = state.read::<Self>(Self::ID)? else { return Ok(None) };
        let known: BTreeMap<VolumeId, Epoch> = last.value.epochs.into_iter().collect();
        for (volume, epoch) in promised {
            let is_known = match known.get(volume) {
                Some(known) => epoch <= known,
                None => state.read::<DeletedVolume>(&volume.to_string())?.is_some(),
            };
            if !is_known {
                return Ok(Some(*volume));
            }
        }
        Ok(None)
    }
}

/// Names the volumes that do not open with the disks of one server alone: some of their data may be
/// elsewhere only.
///
/// # Errors
/// Those of the state.
pub fn unopened(state: &(impl Typed + ?Sized), node: NodeId) -> Result<Vec<String>, StateError> {
    let disks = state.list::<DiskRecord>()?.into_iter().map(|disk| disk.value);
    let own: BTreeSet<DiskId> = disks.filter(|disk| disk.node == Some(node)).map(|disk| disk.id).collect();
    let volumes = state.list::<VolumeRecord>()?.into_iter().map(|volume| volume.value);
    Ok(volumes.filter(|volume| !opens_with(volume, &own)).map(|volume| volume.name).collect())
}

fn opens_with(volume: &VolumeRecord, own: &BTreeSet<DiskId>) -> bool {
    let missing: Vec<DiskId> = volume.in_sync.iter().copied().filter(|disk| !own.contains(disk)).collect();
    // The volume is served only with this many copies of each chunk.
    let wanted = usize::from(volume.min_copies.max(1));
    if missing.is_empty() || missing.len() + wanted <= usize::from(volume.min_holders) {
        return true;
    }
    let is_counted = |disk: &DiskId| volume.homes.iter().any(|home| home.disks.contains(disk));
    let homes = volume.homes.iter().filter(|home| home.disks.iter().any(|disk| missing.contains(disk)));
    missing.iter().all(is_counted) && homes.count() + wanted <= usize::from(volume.min_homes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Home;
    use crate::{MemoryState, Provisioning, Resiliency, State};
    use types::PoolId;

    fn disk(number: u8) -> DiskId {
        DiskId::from_bytes([number; 16])
    }

    fn volume(disks: &[u8], min_homes: u8) -> VolumeRecord {
        let in_sync: Vec<DiskId> = disks.iter().map(|number| disk(*number)).collect();
        let homes = in_sync.iter().map(|disk| Home { node: format!("node-{disk}"), disks: vec![*disk] });
        VolumeRecord {
            id: VolumeId::from_bytes([7; 16]),
            pool: PoolId::from_bytes([1; 16]),
            name: "data".into(),
            resiliency: Resiliency::TwoWay,
            size_bytes: 1 << 30,
            provisioning: Provisioning::Thin,
            min_copies: 1,
            epoch: Epoch(5),
            settled: Epoch(5),
            promised: Epoch(0),
            coordinator: 0,
            owner: None,
            before: Vec::new(),
            tried: Vec::new(),
            min_holders: 1,
            min_homes,
            homes: homes.collect(),
            in_sync,
            stale: Vec::new(),
            building: Vec::new(),
            created_unix_s: 0,
            is_unfinished: false,
            warn_at_percent: None,
            accepted_images: Vec::new(),
        }
    }

    #[test]
    fn a_volume_opens_on_one_server_only_if_each_piece_has_a_copy_there() {
        let own = BTreeSet::from([disk(1)]);
        assert!(opens_with(&volume(&[1, 2, 3], 3), &own), "three-way over three servers");
        assert!(!opens_with(&volume(&[1, 2, 3], 2), &own), "two-way over three servers");
        assert!(opens_with(&volume(&[1, 2], 2), &own), "two-way over two servers");
        assert!(!opens_with(&volume(&[2, 3], 2), &own));
        assert!(opens_with(&volume(&[1], 1), &own));
        let strict = VolumeRecord { min_copies: 2, ..volume(&[1, 2, 3], 3) };
        assert!(!opens_with(&strict, &own), "one copy is too few for it");
        assert!(opens_with(&strict, &BTreeSet::from([disk(1), disk(2)])));
        let by_disks = VolumeRecord { min_holders: 3, homes: Vec::new(), ..volume(&[1, 2, 3], 0) };
        assert!(opens_with(&by_disks, &own), "copies are counted by disks alone");
        assert!(!opens_with(&VolumeRecord { min_copies: 2, ..by_disks }, &own), "one copy is too few for it");
    }

    #[test]
    fn a_disk_with_an_epoch_that_was_not_recovered_is_known_by_it() {
        let state = State::from(MemoryState::new());
        state.write(&volume(&[1, 2], 2), 0).unwrap();
        let id = |number| VolumeId::from_bytes([number; 16]);
        let promised = |volume, epoch| BTreeMap::from([(id(volume), Epoch(epoch))]);
        assert_eq!(Recovery::unknown_to(&state, &promised(7, 9)).unwrap(), None, "nothing was recovered");
        Recovery::note(&state, 1).unwrap();
        // Once more, as a recovery that is repeated does.
        Recovery::note(&state, 2).unwrap();
        assert_eq!(Recovery::unknown_to(&state, &promised(7, 5)).unwrap(), None);
        assert_eq!(Recovery::unknown_to(&state, &promised(7, 6)).unwrap(), Some(id(7)));
        assert_eq!(Recovery::unknown_to(&state, &promised(8, 1)).unwrap(), Some(id(8)));
    }
}
