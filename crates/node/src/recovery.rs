//! Opening of the pools, disks and volumes in the records of the cluster state.

use crate::damage_kept::DamageKeeper;
use crate::disks::Disks;
use crate::peers::Peers;
use crate::pools::Pools;
use crate::state::State;
use crate::tasks::Tasks;
use crate::volume_care::VolumeCare;
use crate::volume_opening::VolumeOpener;
use records::{
    DeletedVolume, DiskDamage, DiskRecord, LostBlocks, NodeLease, PoolRecord, Record, StateError, Stored,
    Typed, VolumeRecord,
};
use std::rc::Rc;
use types::{DiskId, PoolId, VolumeId};

/// The records of a node.
pub(crate) struct Records {
    pub pools: Vec<Stored<PoolRecord>>,
    pub disks: Vec<Stored<DiskRecord>>,
    pub volumes: Vec<Stored<VolumeRecord>>,
    pub deleted: Vec<Stored<DeletedVolume>>,
    pub damage: Vec<Stored<DiskDamage>>,
    pub lost: Vec<Stored<LostBlocks>>,
    pub leases: Vec<Stored<NodeLease>>,
}

impl Records {
    pub(crate) fn read(state: &records::State) -> Result<Self, StateError> {
        Ok(Self {
            pools: state.list()?,
            disks: state.list()?,
            volumes: state.list()?,
            deleted: state.list()?,
            damage: state.list()?,
            lost: state.list()?,
            leases: state.list()?,
        })
    }

    /// Keeps only those of one pool.
    pub(crate) fn of(mut self, pool: PoolId) -> Self {
        self.pools.retain(|record| record.value.id == pool);
        self.disks.retain(|record| record.value.pool == pool);
        self.volumes.retain(|record| record.value.pool == pool);
        self.deleted.retain(|record| record.value.pool == pool);
        let disks: Vec<DiskId> = self.disks.iter().map(|record| record.value.id).collect();
        self.damage.retain(|record| disks.contains(&record.value.disk));
        let volumes: Vec<VolumeId> = self.volumes.iter().map(|record| record.value.id).collect();
        self.lost.retain(|record| volumes.contains(&record.value.volume));
        self
    }
}

/// Opens the recorded pools, disks and volumes.
#[derive(Clone)]
pub(crate) struct Recovery {
    pub tasks: Rc<Tasks>,
    pub state: State,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub damage: DamageKeeper,
    pub opener: VolumeOpener,
    pub care: VolumeCare,
    pub peers: Rc<Peers>,
}

impl Recovery {
    /// Begins to open everything that is recorded.
    pub(crate) fn begin(&self) {
        if self.peers.own().is_some() {
            // Records are followed from the first turn on, and volumes opened once the live nodes are known.
            return;
        }
        match Records::read(self.state.at_start()) {
            Ok(records) => self.open(records),
            Err(error) => {
                tracing::error!(%error, "the cluster state cannot be read: nothing is served");
            }
        }
    }

    /// Begins to open the pools, disks and volumes of these records.
    pub(crate) fn open(&self, records: Records) {
        let Records { pools, disks, volumes, deleted, damage, lost, .. } = records;
        self.damage.remember(
            damage.into_iter().map(|stored| stored.value).collect(),
            lost.into_iter().map(|stored| stored.value).collect(),
        );
        for Stored { value: pool, .. } in pools {
            let id = pool.id;
            let disk = disks.iter().find(|disk| disk.value.pool == id);
            let slab_bytes = disk.map_or(0, |disk| disk.value.slab_bytes);
            if let Err(error) = self.pools.add(self.taken_back(pool), slab_bytes, &self.tasks) {
                tracing::error!(pool = %id, %error, "a pool cannot be opened");
            }
        }
        for disk in disks {
            self.disks.add(disk.value, self.tasks.now(), self.tasks.unix_seconds());
        }
        for Stored { value: volume, .. } in volumes {
            match volume.is_unfinished {
                true => self.care.remove_unfinished(volume),
                false => self.opener.open(volume),
            }
        }
        for Stored { value: DeletedVolume { id, pool, .. }, .. } in deleted {
            self.care.give_slabs_back(id, pool);
        }
    }

    /// Resets the record of a pool whose export was interrupted.
    fn taken_back(&self, mut pool: PoolRecord) -> PoolRecord {
        if pool.exported {
            tracing::warn!(pool = %pool.id, name = pool.name, "the export of a pool was interrupted: it stays here");
            pool.exported = false;
            if let Err(error) = write_pool(self.state.at_start(), &pool) {
                tracing::error!(pool = %pool.id, %error, "a pool cannot be taken back from its export");
            }
        }
        pool
    }
}

/// Writes a pool's record over the present one. Only at a start, when blocking does no harm.
fn write_pool(state: &records::State, pool: &PoolRecord) -> Result<(), StateError> {
    let revision = state.read::<PoolRecord>(&pool.id())?.map_or(0, |found| found.revision);
    state.write(pool, revision).map(|_| ())
}
