//! From records to served volumes: what was recorded when the daemon starts, and a volume that was just made.

use super::backoff::Backoff;
use super::volumes::ServedVolume;
use super::{Plane, VolumeEntry, failed, tasks, wall_clock};
use crate::control::{CommandError, CommandErrorKind};
use crate::limits::Limits;
use cluster::{
    DeletedVolume, DiskDamage, DiskRecord, LostBlocks, PoolRecord, Record, RedbState, StateError, Stored,
    Typed, VolumeRecord,
};
use space::coordinator::Phase;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, PoolId, VolumeId};
use volume::backend::Backend;
use volume::fs::{Config, FileSystem, Format};
use volume::service::{Service, ServiceConfig};

/// Share of the cache that may wait to be written: a third, and no more than 2 GiB; the volume keeps to what is soon written.
const DIRTY_DIVISOR: usize = 3;
const DIRTY_BYTES_MAX: usize = 2 << 30;
/// Share of the cache for metadata pages: a quarter, and no more than a gigabyte.
const PAGES_DIVISOR: usize = 4;
const PAGES_BYTES_MAX: usize = 1 << 30;

/// Pauses before a volume that cannot be served is tried again: the first, the longest, and how long it must have been served to
/// begin with the first.
const OPENINGS: Backoff =
    Backoff::new(Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30));

/// What the administrator lets clients hold of a volume.
fn service_config(limits: &Limits) -> ServiceConfig {
    let locks_per_open = limits.locks_per_open as usize;
    let config = ServiceConfig::default();
    ServiceConfig {
        opens_max: limits.opens as usize,
        locks_per_open,
        locks_per_session: config.locks_per_session.max(locks_per_open),
        locks_max: config.locks_max.max(locks_per_open),
        ..config
    }
}

/// One volume's part of the cache, where so many share it.
fn cache_share(cache_bytes: u64, volumes: usize) -> Config {
    let share = usize::try_from(cache_bytes).unwrap_or(usize::MAX) / volumes.max(1);
    let page_cache_bytes = (share / PAGES_DIVISOR).min(PAGES_BYTES_MAX);
    Config {
        cache_bytes: share - page_cache_bytes,
        dirty_bytes: (share / DIRTY_DIVISOR).min(DIRTY_BYTES_MAX),
        page_cache_bytes,
    }
}

pub(super) struct Records {
    pools: Vec<Stored<PoolRecord>>,
    disks: Vec<Stored<DiskRecord>>,
    volumes: Vec<Stored<VolumeRecord>>,
    deleted: Vec<Stored<DeletedVolume>>,
    damage: Vec<Stored<DiskDamage>>,
    lost: Vec<Stored<LostBlocks>>,
}

impl Records {
    pub(super) fn read(state: &RedbState) -> Result<Self, StateError> {
        Ok(Self {
            pools: state.list()?,
            disks: state.list()?,
            volumes: state.list()?,
            deleted: state.list()?,
            damage: state.list()?,
            lost: state.list()?,
        })
    }

    /// Those of one pool.
    pub(super) fn of(mut self, pool: PoolId) -> Self {
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

impl Plane {
    /// Begins to open everything that is recorded.
    pub fn recover(self: &Rc<Self>) {
        match Records::read(&self.state) {
            Ok(records) => self.open_recorded(records),
            Err(error) => {
                tracing::error!(%error, "the cluster state cannot be read: nothing is served");
            }
        }
    }

    /// Begins to open what these records tell of.
    pub(super) fn open_recorded(self: &Rc<Self>, records: Records) {
        let Records { pools, disks, volumes, deleted, damage, lost } = records;
        self.remember_damage(
            damage.into_iter().map(|stored| stored.value).collect(),
            lost.into_iter().map(|stored| stored.value).collect(),
        );
        for Stored { value: mut pool, .. } in pools {
            let id = pool.id;
            if pool.exported {
                tracing::warn!(pool = %id, name = pool.name, "the export of a pool was interrupted: it stays here");
                pool.exported = false;
                if let Err(error) = self.write_pool(&pool) {
                    tracing::error!(pool = %id, %error, "a pool cannot be taken back from its export");
                }
            }
            let disk = disks.iter().find(|disk| disk.value.pool == id);
            let slab_bytes = disk.map_or(0, |disk| disk.value.slab_bytes);
            if let Err(error) = self.storage.add_pool(pool, slab_bytes) {
                tracing::error!(pool = %id, %error, "a pool cannot be opened");
            }
        }
        disks.into_iter().for_each(|disk| self.storage.add_disk(disk.value));
        for volume in volumes {
            self.open_volume(volume.value, None);
        }
        for volume in deleted {
            self.give_slabs_back(volume.value.id, volume.value.pool);
        }
    }

    /// Writes a pool's record over the one there is. Only at a start, when blocking harms nobody.
    fn write_pool(&self, pool: &PoolRecord) -> Result<(), StateError> {
        let revision = self.state.read::<PoolRecord>(&pool.id())?.map_or(0, |found| found.revision);
        self.state.write(pool, revision).map(|_| ())
    }

    /// Every recorded disk was tried, and every volume serves or cannot.
    pub fn recovered(&self) -> bool {
        self.storage.disks_settled() && !self.volumes.borrow().values().any(|entry| entry.opening)
    }

    /// Begins to open a volume, or to make it by `format`.
    pub fn open_volume(self: &Rc<Self>, record: VolumeRecord, format: Option<Format>) {
        let plane = self.clone();
        let id = record.id;
        let (pool, recorded) = (record.pool, record.clone());
        let arrivals = self.storage.arrivals.get();
        let known = self.volumes.borrow().get(&id).map(|entry| entry.openings.clone());
        let mut openings = known.unwrap_or(OPENINGS);
        openings.tried(self.now());
        let entry = VolumeEntry {
            pool,
            record: recorded,
            served: None,
            opening: true,
            failure: None,
            arrivals,
            openings,
        };
        self.volumes.borrow_mut().insert(id, entry);
        self.storage.tasks.spawn(async move {
            let result = plane.serve_volume(&record, format).await;
            let mut volumes = plane.volumes.borrow_mut();
            let Some(entry) = volumes.get_mut(&id) else { return };
            entry.opening = false;
            match result {
                Ok(served) => entry.served = Some(served),
                Err(error) => {
                    entry.openings.ended(plane.now());
                    tracing::error!(volume = %id, name = record.name, %error, "a volume cannot be served");
                    entry.failure = Some(error.message);
                }
            }
            drop(volumes);
            plane.share_cache();
        });
    }

    /// Divides the cache among the volumes that are served.
    pub(super) fn share_cache(&self) {
        let volumes = self.volumes.borrow();
        let served: Vec<_> = volumes.values().filter_map(|entry| entry.served.as_ref()).collect();
        let share = cache_share(self.limits.cache_bytes, served.len());
        for volume in served {
            volume.with_mut(|service| service.file_system_mut().set_cache(share));
        }
    }

    /// Waits until a volume that is being opened is served.
    pub async fn volume_opened(&self, id: VolumeId) -> Result<(), CommandError> {
        tasks::until(|| {
            let volumes = self.volumes.borrow();
            match volumes.get(&id) {
                Some(entry) if entry.opening => None,
                Some(VolumeEntry { failure: Some(why), .. }) => Some(Err(failed(why.clone()))),
                Some(_) => Some(Ok(())),
                None => Some(Err(CommandError::new(CommandErrorKind::NotFound, "the volume is gone"))),
            }
        })
        .await
    }

    async fn serve_volume(
        self: &Rc<Self>,
        record: &VolumeRecord,
        format: Option<Format>,
    ) -> Result<ServedVolume, CommandError> {
        let mut incarnation = [0; 16];
        getrandom::fill(&mut incarnation).map_err(|error| failed(format!("no random bytes: {error}")))?;
        let incarnation = u128::from_ne_bytes(incarnation) | 1;
        tasks::until(|| self.storage.disks_settled().then_some(())).await;
        if let Some(why) = self.storage.why_superseded(record.pool) {
            return Err(failed(why));
        }
        let space = self
            .storage
            .space(record.pool)
            .ok_or_else(|| failed(format!("pool {} of volume {} is not there", record.pool, record.name)))?;
        let disk = Box::new(space.open_volume(record.id, incarnation));
        let stopped = tasks::until(|| match space.phase(record.id) {
            Some(Phase::Opening) => None,
            Some(Phase::Serving) => Some(None),
            Some(Phase::Stopped(why)) => Some(Some(why.to_string())),
            Some(Phase::Closing | Phase::Closed) | None => Some(Some("it was closed".to_owned())),
        })
        .await;
        if let Some(why) = stopped {
            space.forget_volume(record.id);
            return Err(failed(format!("volume {}: {why}", record.name)));
        }
        let config = cache_share(self.limits.cache_bytes, self.volumes.borrow().len());
        let fs = match &format {
            Some(format) => FileSystem::format(disk, format, config),
            None => FileSystem::open(disk, config),
        };
        let service = Service::new(fs, service_config(&self.limits), self.now(), wall_clock());
        let mut served = ServedVolume::new(service);
        let failure = tasks::until(|| {
            // Nobody has an open yet: there is no event to lose.
            served.poll(&mut Vec::new());
            served.with(|service| match service.failure() {
                Some(why) => Some(Some(why.to_string())),
                None => service.is_open().then_some(None),
            })
        })
        .await;
        if let Some(why) = failure {
            space.forget_volume(record.id);
            return Err(failed(format!("volume {}: {why}", record.name)));
        }
        self.server.borrow_mut().add_volume(record.id, served.clone());
        tracing::info!(volume = %record.id, name = record.name, "volume serves");
        Ok(served)
    }
}
