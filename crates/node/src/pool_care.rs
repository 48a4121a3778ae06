//! Creation, export, deletion and import of pools.
//!
//! Promises: an export gives the pool up only after all data are durable and every reachable disk
//! is marked as given up. If it fails before, the pool stays here, served. Never changes a disk
//! that is not the pool's.

use crate::disk_admin::DiskAdmin;
use crate::error::{Done, Error, ErrorKind};
use crate::formatting::NewDisk;
use crate::jobs::JobId;
use crate::rebalancing;
use crate::recovery::{Records, Recovery};
use crate::tasks::until;
use records::shares::Share;
use records::{
    DeletedVolume, DiskRecord, FaultDomain, PoolRecord, Record, StateError, Transaction, Typed, VolumeRecord,
};
use space::coordinator::Phase;
use std::time::Duration;
use types::{PoolId, VolumeId};
use uuid::Uuid;

/// Timeout for a pool's volumes to make all data durable and close.
const CLOSING_MAX: Duration = Duration::from_secs(120);
/// Timeout for an imported pool's volumes to open, after which the import is answered without them.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// Attempts to update a record that others change at the same time.
const WRITES_MAX: usize = 10;

/// Makes, exports, deletes and adopts pools.
#[derive(Clone)]
pub struct PoolCare {
    pub(crate) disks: DiskAdmin,
    pub(crate) recovery: Recovery,
}

impl PoolCare {
    /// Labels empty disks, and makes a pool of them. `reserve_disks`: disks' worth of space
    /// reserved for repair; `None`: by the usual rule.
    ///
    /// # Errors
    /// The reason why it was not made; see [`ErrorKind`].
    pub async fn create(
        &self,
        name: String,
        disks: Vec<NewDisk>,
        reserve_disks: Option<u32>,
    ) -> Done<PoolId> {
        if disks.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a pool needs at least one disk"));
        }
        let pool = PoolId(Uuid::new_v4());
        let (tasks, pools) = (&self.disks.tasks, &self.disks.pools);
        if pools.is_named(&name) {
            return Err(Error::new(ErrorKind::Conflict, format!("a pool named {name} exists already")));
        }
        let domains: Vec<FaultDomain> = disks.iter().map(|disk| disk.fault_domain.clone()).collect();
        let reserve_is_set = Some(reserve_disks.is_some());
        let reserve_disks = reserve_disks.unwrap_or_else(|| pool::default_reserve_disks(&domains));
        check_reserve(reserve_disks, disks.len())?;
        let (records, made) = self.disks.format(pool, disks, None).await?;
        let mut record = PoolRecord::new(pool, name, reserve_disks, tasks.unix_seconds());
        record.reserve_is_set = reserve_is_set;
        let mut transaction = Transaction::default().when(record.key(), 0).put(record.key(), record.encode());
        for disk in &records {
            transaction = transaction.put(disk.key(), disk.encode());
        }
        self.disks.store_new(made, move |state| state.commit(transaction)).await?;
        let slab_bytes = records.first().map_or(0, |disk| disk.slab_bytes);
        pools.add(record, slab_bytes, tasks)?;
        self.disks.open(records).await;
        Ok(pool)
    }

    /// Reserves this many disks' worth of the pool's space for repair.
    ///
    /// # Errors
    /// `Invalid` if no space would be left for data.
    pub async fn set_reserve(&self, pool: PoolId, reserve_disks: u32) -> Done<()> {
        let others = self.disks.peers.disks().values().filter(|disk| disk.pool == pool).count();
        let disks = self.disks.disks.of_pool(pool).len() + others;
        check_reserve(reserve_disks, disks)?;
        let change =
            move |found: PoolRecord| PoolRecord { reserve_disks, reserve_is_set: Some(true), ..found };
        self.disks.state.change(move |state| rewrite_pool(state, pool, change)).await?;
        self.disks.pools.set_reserve(pool, reserve_disks, true)
    }

    /// Makes reserves follow the number of disks, unless an administrator chose them, or may have.
    /// A reserve that would leave data little space stays as it is: an administrator who adds a
    /// disk to a full pool wants space for data, and health reports the reserve.
    pub(crate) fn follow_rule(&self) {
        if !self.disks.peers.is_first() {
            return;
        }
        let pools: Vec<PoolRecord> =
            self.disks.pools.entries().values().map(|entry| entry.record.clone()).collect();
        for record in pools.into_iter().filter(|record| record.reserve_is_set == Some(false)) {
            let (pool, wanted) = (record.id, self.disks.disks.usual_reserve(record.id));
            let may_rise = || {
                let others = self.disks.pools.remote_slabs(pool);
                self.disks.disks.have_room_beside(pool, wanted, others)
            };
            if wanted == record.reserve_disks || wanted > record.reserve_disks && !may_rise() {
                continue;
            }
            if self.disks.pools.set_reserve(pool, wanted, false).is_err() {
                continue;
            }
            tracing::info!(%pool, name = record.name, disks = wanted, "the pool's reserve follows the number of its disks");
            let state = self.disks.state.clone();
            self.disks.tasks.spawn(async move {
                let change = move |found: PoolRecord| match found.reserve_is_set {
                    Some(false) => PoolRecord { reserve_disks: wanted, ..found },
                    Some(true) | None => found,
                };
                if let Err(error) = state.change(move |state| rewrite_pool(state, pool, change)).await {
                    // The next start checks again.
                    tracing::warn!(%pool, %error, "the pool's reserve cannot be recorded");
                }
            });
        }
    }

    /// Forgets a pool without volumes, and frees its disks for other uses. Returns the paths of
    /// disks that keep their labels, because they are away or fail.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it has a volume; or the state could not be written, and the pool
    /// stays.
    pub async fn delete(&self, pool: PoolId) -> Done<Vec<String>> {
        let DiskAdmin { pools, volumes, state, disks, keeper, .. } = &self.disks;
        pools.space_for(pool)?;
        let (name, within) = (pools.name(pool), volumes.of_pool(pool));
        if !within.is_empty() {
            let names: Vec<String> = within.into_iter().map(|volume| volumes.name(volume)).collect();
            let why = format!("pool '{name}' holds volumes ({}): delete them first", names.join(", "));
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        if !state.change(move |state| forget_empty_pool(state, pool)).await? {
            let why =
                format!("a volume is being made in pool '{name}', or deleted: try again when that is done");
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let found: Vec<_> = {
            let slots = disks.slots();
            let own = slots.values().filter(|slot| slot.record.pool == pool);
            own.map(|slot| (slot.record.id, slot.record.path.clone(), slot.store().is_some())).collect()
        };
        disks.remove_of(pool);
        pools.remove(pool);
        keeper.forget(pool);
        tracing::info!(%pool, name, "a pool was deleted");
        let mut labelled = Vec::new();
        for (disk, path, is_present) in found {
            if !is_present || self.disks.erase(disk, path.clone()).await.is_err() {
                labelled.push(path);
            }
        }
        Ok(labelled)
    }

    /// Evens out the fill of the pool's disks with the volumes that this server serves. Returns the
    /// job.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rebalance(&self, pool: PoolId) -> Done<JobId> {
        rebalancing::begin(&self.disks.jobs, pool)
    }

    /// Closes the pool's volumes, marks its disks as given up, and forgets pool, disks, volumes and shares.
    ///
    /// # Errors
    /// The reason why the pool stays.
    pub async fn export(&self, pool: PoolId) -> Done<()> {
        self.disks.pools.space_for(pool)?;
        let volumes = self.disks.volumes.of_pool(pool);
        if self.disks.volumes.is_any_opening_of(pool) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a volume of the pool is being opened, or waits for missing disks: bring them back, or delete it first",
            ));
        }
        if let Err(why) = self.close(pool, &volumes).await {
            self.take_back(pool, &volumes).await;
            let message = format!("the pool was not exported and stays here: {}", why.message);
            return Err(Error::new(why.kind, message));
        }
        self.disks.volumes.forget_of(pool);
        self.disks.disks.remove_of(pool);
        self.disks.pools.remove(pool);
        self.disks.keeper.forget(pool);
        self.disks.state.change(move |state| forget_pool(state, pool)).await?;
        tracing::info!(%pool, "a pool was exported");
        Ok(())
    }

    async fn close(&self, pool: PoolId, volumes: &[VolumeId]) -> Done<()> {
        let DiskAdmin { tasks, pools, volumes: known, keeper, .. } = &self.disks;
        let space = pools.space_for(pool)?;
        let deadline = tasks.now().after(CLOSING_MAX);
        let is_late = || {
            tasks.wake_at(deadline);
            tasks.now() >= deadline
        };
        for volume in volumes.iter().filter(|volume| known.is_served(**volume)) {
            let Some(served) = known.withdraw(*volume, tasks.now()) else { continue };
            let durable = served.make_durable_alone(is_late).await;
            served.dismount();
            durable.map_err(|status| {
                Error::io(format!("volume {} could not be made durable: {status:?}", known.name(*volume)))
            })?;
        }
        volumes.iter().for_each(|volume| space.close_volume(*volume));
        let closed = until(|| {
            let closed = volumes
                .iter()
                .all(|volume| matches!(space.phase(*volume), None | Some(Phase::Closed | Phase::Stopped(_))));
            (closed || is_late()).then_some(closed)
        });
        if !closed.await {
            return Err(Error::io("its volumes did not close in time"));
        }
        volumes.iter().for_each(|volume| space.forget_volume(*volume));
        self.set_exported(pool, true).await?;
        keeper.all_kept(&self.disks.disks, is_late).await;
        match keeper.trouble(pool) {
            None if is_late() => Err(Error::io("its disks could not be marked in time")),
            None => Ok(()),
            Some(why) => Err(Error::io(why)),
        }
    }

    async fn set_exported(&self, pool: PoolId, exported: bool) -> Done<()> {
        let change = move |found: PoolRecord| PoolRecord { exported, ..found };
        self.disks.state.change(move |state| rewrite_pool(state, pool, change)).await
    }

    /// Serves the volumes again of a pool that stays.
    async fn take_back(&self, pool: PoolId, volumes: &[VolumeId]) {
        if let Err(why) = self.set_exported(pool, false).await {
            tracing::error!(%pool, %why, "a pool cannot be taken back from its export");
        }
        let closed: Vec<VolumeRecord> = {
            let entries = self.disks.volumes.entries();
            let entries = volumes.iter().filter_map(|volume| entries.get(volume));
            entries.filter(|entry| entry.served.is_none()).map(|entry| entry.record.clone()).collect()
        };
        for record in closed {
            if let Some(space) = self.disks.pools.space(pool) {
                space.forget_volume(record.id);
            }
            self.recovery.opener.open(record);
        }
    }

    /// Opens a pool that was just recorded. Returns the names of volumes that are not served, with
    /// the reasons.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub async fn adopt(&self, pool: PoolId) -> Done<Vec<String>> {
        let DiskAdmin { tasks, volumes, .. } = &self.disks;
        let records = self.disks.state.change(Records::read).await?;
        self.recovery.open(records.of(pool));
        let patience = tasks.now().after(OPENING_MAX);
        tasks.until_late(patience, || (!volumes.is_any_opening_of(pool)).then_some(())).await;
        let entries = volumes.entries();
        let unserved = entries.values().filter(|entry| entry.pool == pool && entry.served.is_none());
        Ok(unserved
            .map(|entry| {
                let why = entry.failure.as_deref().unwrap_or("it waits for disks that are missing");
                format!("{}: {why}", entry.record.name)
            })
            .collect())
    }
}

/// Checks that some disks are left for data.
fn check_reserve(reserve_disks: u32, disks: usize) -> Done<()> {
    if (reserve_disks as usize) < disks.max(1) {
        return Ok(());
    }
    let message =
        format!("a reserve of {reserve_disks} disks leaves nothing of a pool of {disks} disks for data");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Changes a pool's record, even if others change it at the same time. A deleted record stays
/// deleted.
fn rewrite_pool(
    state: &records::State,
    pool: PoolId,
    change: impl Fn(PoolRecord) -> PoolRecord,
) -> Result<(), StateError> {
    for _ in 0..WRITES_MAX {
        let Some(found) = state.read::<PoolRecord>(&pool.to_string())? else { return Ok(()) };
        match state.write(&change(found.value), found.revision) {
            Err(StateError::Conflict) => {}
            written => return written.map(|_| ()),
        }
    }
    Err(StateError::Conflict)
}

/// Removes a pool from the state if it has no volume. Returns whether it did.
fn forget_empty_pool(state: &records::State, pool: PoolId) -> Result<bool, StateError> {
    let Some(found) = state.read::<PoolRecord>(&pool.to_string())? else { return Ok(true) };
    if state.list::<VolumeRecord>()?.iter().any(|volume| volume.value.pool == pool) {
        return Ok(false);
    }
    // Recording a volume from here on changes the pool's record, too.
    let unchanged = Transaction::default().when(found.value.key(), found.revision);
    match state.commit(forgotten(state, pool, unchanged)?) {
        Err(StateError::Conflict) => Ok(false),
        committed => committed.map(|_| true),
    }
}

/// Removes a pool and its disks, volumes and shares from the state.
fn forget_pool(state: &records::State, pool: PoolId) -> Result<(), StateError> {
    state.commit(forgotten(state, pool, Transaction::default())?).map(|_| ())
}

/// Adds the changes that remove a pool and all that belongs to it.
fn forgotten(state: &records::State, pool: PoolId, changes: Transaction) -> Result<Transaction, StateError> {
    let mut changes = changes.delete(PoolRecord::key_of(&pool.to_string()));
    for disk in state.list::<DiskRecord>()?.into_iter().filter(|disk| disk.value.pool == pool) {
        changes = changes.delete(disk.value.key());
    }
    for note in state.list::<DeletedVolume>()?.into_iter().filter(|note| note.value.pool == pool) {
        changes = changes.delete(note.value.key());
    }
    let mut gone = Vec::new();
    for volume in state.list::<VolumeRecord>()?.into_iter().filter(|volume| volume.value.pool == pool) {
        gone.push(volume.value.id);
        changes = changes.delete(volume.value.key());
    }
    for share in state.list::<Share>()?.into_iter().filter(|share| gone.contains(&share.value.volume)) {
        changes = changes.delete(share.value.key());
    }
    Ok(changes)
}
