//! A pool leaves this server, or comes to it.
//!
//! Promises: an export gives the pool up only after everything is durable and every reachable disk says that it was given up;
//! what fails before leaves the pool here, served. Never changes a disk that is not the pool's.

use super::commands::{error, not_found, state_failed};
use super::opening::Records;
use super::{Plane, failed, tasks};
use crate::control::{CommandError, CommandErrorKind};
use cluster::shares::Share;
use cluster::{
    DeletedVolume, DiskRecord, PoolRecord, Record, RedbState, StateError, Transaction, Typed, VolumeRecord,
};
use space::coordinator::Phase;
use std::rc::Rc;
use std::time::Duration;
use types::{PoolId, VolumeId};

type Done<T> = Result<T, CommandError>;

/// How long a pool's volumes may take to make everything durable and close.
const CLOSING_MAX: Duration = Duration::from_secs(120);
/// How long an imported pool's volumes may take to open before the import is answered without them.
const OPENING_MAX: Duration = Duration::from_secs(30);

impl Plane {
    /// The volumes of a pool.
    fn volumes_of(&self, pool: PoolId) -> Vec<VolumeId> {
        let volumes = self.volumes.borrow();
        volumes.iter().filter(|(_, entry)| entry.pool == pool).map(|(id, _)| *id).collect()
    }

    pub(super) async fn export_pool(self: &Rc<Self>, pool: PoolId) -> Done<()> {
        if self.storage.space(pool).is_none() {
            return Err(not_found("pool", pool));
        }
        let volumes = self.volumes_of(pool);
        if self.volumes.borrow().values().any(|entry| entry.pool == pool && entry.opening) {
            return Err(error(
                CommandErrorKind::Conflict,
                "a volume of the pool is being opened, or waits for missing disks: bring them back, or delete it first",
            ));
        }
        let result = self.close_pool(pool, &volumes).await;
        if let Err(why) = result {
            self.take_back(pool, &volumes).await;
            return Err(error(
                why.kind,
                format!("the pool was not exported and stays here: {}", why.message),
            ));
        }
        self.volumes.borrow_mut().retain(|_, entry| entry.pool != pool);
        self.storage.remove_pool(pool);
        self.change_state(move |state| forget_pool(state, pool)).await?;
        tracing::info!(%pool, "a pool was exported");
        Ok(())
    }

    async fn close_pool(&self, pool: PoolId, volumes: &[VolumeId]) -> Done<()> {
        let space = self.storage.space(pool).ok_or_else(|| not_found("pool", pool))?;
        let deadline = self.now().after(CLOSING_MAX);
        let late = || {
            self.storage.wake_at(deadline);
            self.now() >= deadline
        };
        for volume in volumes {
            let served = self.volumes.borrow_mut().get_mut(volume).and_then(|entry| entry.served.take());
            let Some(served) = served else { continue };
            self.server.borrow_mut().remove_volume(*volume, self.now());
            served
                .make_durable_alone(late)
                .await
                .map_err(|status| failed(format!("volume {volume} could not be made durable: {status:?}")))?;
        }
        volumes.iter().for_each(|volume| space.close_volume(*volume));
        let closed = tasks::until(|| {
            let closed = volumes
                .iter()
                .all(|volume| matches!(space.phase(*volume), None | Some(Phase::Closed | Phase::Stopped(_))));
            (closed || late()).then_some(closed)
        })
        .await;
        if !closed {
            return Err(failed("its volumes did not close in time".to_owned()));
        }
        volumes.iter().for_each(|volume| space.forget_volume(*volume));
        self.set_exported(pool, true).await?;
        self.storage.records_kept(late).await;
        match self.storage.keeper.trouble(pool) {
            None if late() => Err(failed("its disks could not be marked in time".to_owned())),
            None => Ok(()),
            Some(why) => Err(failed(why)),
        }
    }

    async fn set_exported(&self, pool: PoolId, exported: bool) -> Done<()> {
        self.change_state(move |state| {
            let Some(found) = state.read::<PoolRecord>(&pool.to_string())? else { return Ok(()) };
            state.write(&PoolRecord { exported, ..found.value }, found.revision).map(|_| ())
        })
        .await
    }

    /// The pool stays: its volumes are served again.
    async fn take_back(self: &Rc<Self>, pool: PoolId, volumes: &[VolumeId]) {
        if let Err(why) = self.set_exported(pool, false).await {
            tracing::error!(%pool, %why, "a pool cannot be taken back from its export");
        }
        let closed: Vec<VolumeRecord> = {
            let entries = self.volumes.borrow();
            let entries = volumes.iter().filter_map(|volume| entries.get(volume));
            entries.filter(|entry| entry.served.is_none()).map(|entry| entry.record.clone()).collect()
        };
        for record in closed {
            if let Some(space) = self.storage.space(pool) {
                space.forget_volume(record.id);
            }
            self.open_volume(record, None);
        }
    }

    /// Opens a pool that was just recorded.
    pub(super) async fn adopt_pool(self: &Rc<Self>, pool: PoolId) -> Done<Vec<String>> {
        let state = self.state.clone();
        let records = tasks::blocking(self.waker(), move || Records::read(&state)).await;
        let records = records.ok_or_else(|| failed("no thread for the cluster state".to_owned()))?;
        self.open_recorded(records.map_err(state_failed)?.of(pool));
        let until = self.now().after(OPENING_MAX);
        tasks::until(|| {
            self.storage.wake_at(until);
            let opening = self.volumes.borrow().values().any(|entry| entry.pool == pool && entry.opening);
            (!opening || self.now() >= until).then_some(())
        })
        .await;
        let volumes = self.volumes.borrow();
        let unserved = volumes.values().filter(|entry| entry.pool == pool && entry.served.is_none());
        Ok(unserved
            .map(|entry| {
                let why = entry.failure.as_deref().unwrap_or("it waits for disks that are missing");
                format!("{}: {why}", entry.record.name)
            })
            .collect())
    }
}

/// Takes a pool and everything on it out of the state.
fn forget_pool(state: &RedbState, pool: PoolId) -> Result<(), StateError> {
    let mut changes = Transaction::default().delete(PoolRecord::key_of(&pool.to_string()));
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
    state.commit(changes).map(|_| ())
}
