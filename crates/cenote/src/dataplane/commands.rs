//! What the control plane asks for, and how it is done. Each command is answered once.

use super::formatting::format_disks;
use super::jobs::SpaceJob;
use super::{Plane, failed, tasks, unix_seconds, wall_clock};
use crate::control::{Command, CommandError, CommandErrorKind, NewDisk, NewVolume, Reply};
use crate::size::show_size;
use api::model::{self, JobKind};
use cluster::{
    DiskRecord, DiskState, FaultDomain, PoolRecord, Provisioning, Record, RedbState, Resiliency, StateError,
    Transaction, Typed, VolumeRecord,
};
use space::coordinator::Phase;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, PoolId, VolumeId};
use uuid::Uuid;
use volume::fs::Format;

type Done<T> = Result<T, CommandError>;

/// How long volumes may take to know an added disk before its addition is answered.
const ADD_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn error(kind: CommandErrorKind, message: impl Into<String>) -> CommandError {
    CommandError::new(kind, message)
}

pub(super) fn not_found(what: &str, id: impl std::fmt::Display) -> CommandError {
    error(CommandErrorKind::NotFound, format!("there is no {what} {id}"))
}

pub(super) fn state_failed(why: StateError) -> CommandError {
    let kind = match why {
        StateError::Conflict => CommandErrorKind::Conflict,
        _ => CommandErrorKind::Io,
    };
    error(kind, why.to_string())
}

/// Answers, whether or not somebody still waits.
fn answer<T>(reply: Reply<T>, result: Done<T>) {
    let _ = reply.send(result);
}

impl Plane {
    /// Does a command, or begins to.
    pub fn command(self: Rc<Self>, command: Command) {
        match command {
            Command::Snapshot { reply } => {
                // Nobody may be waiting any more.
                let _ = reply.send(Box::new(self.snapshot()));
            }
            Command::CreatePool { name, disks, reserve_disks, reply } => {
                self.task(reply, async move |plane| plane.create_pool(name, disks, reserve_disks).await);
            }
            Command::ExportPool { pool, reply } => {
                self.task(reply, async move |plane| plane.export_pool(pool).await);
            }
            Command::AdoptPool { pool, reply } => {
                self.task(reply, async move |plane| plane.adopt_pool(pool).await);
            }
            Command::AddDisk { pool, disk, reply } => {
                self.task(reply, async move |plane| plane.add_disk(pool, disk).await);
            }
            Command::ReplaceDisk { disk, new, reply } => {
                self.task(reply, async move |plane| plane.replace_disk(disk, new).await);
            }
            Command::UnretireDisk { disk, reply } => {
                self.task(reply, async move |plane| plane.unretire_disk(disk).await);
            }
            Command::SetReserve { pool, reserve_disks, reply } => {
                self.task(reply, async move |plane| plane.set_reserve(pool, reserve_disks).await);
            }
            Command::RetireDisk { disk, reply } => {
                self.task(reply, async move |plane| plane.retire_disk(disk).await);
            }
            Command::Rebalance { pool, reply } => {
                self.task(reply, async move |plane| plane.rebalance(pool).await);
            }
            Command::CreateVolume { volume, reply } => {
                self.task(reply, async move |plane| plane.create_volume(volume).await);
            }
            Command::ResizeVolume { volume, size_bytes, reply } => {
                self.task(reply, async move |plane| plane.resize_volume(volume, size_bytes).await);
            }
            Command::DeleteVolume { volume, reply } => {
                self.task(reply, async move |plane| plane.delete_volume(volume).await);
            }
            Command::CheckVolume { volume, repair, reply } => {
                answer(reply, self.check_volume(volume, repair))
            }
            Command::VolumeDamage { volume, reply } => {
                self.task(reply, async move |plane| plane.volume_damage(volume).await);
            }
            Command::QuerySecurity { volume, path, reply } => {
                self.task(reply, async move |plane| plane.query_security(volume, &path).await);
            }
            Command::MakeDirectory { volume, path, reply } => {
                self.task(reply, async move |plane| plane.make_directory(volume, &path).await);
            }
            Command::SetSecurity { volume, path, descriptor, reply } => {
                self.task(reply, async move |plane| plane.set_security(volume, &path, descriptor).await);
            }
            Command::RdmaTrace { connection, reply } => {
                let trace = self.show_trace(connection);
                answer(reply, trace.ok_or_else(|| not_found("RDMA connection", connection)));
            }
            Command::CloseSession { session, reply } => {
                let found = self.server.borrow_mut().close_session(session);
                answer(reply, found.then_some(()).ok_or_else(|| not_found("session", session)));
            }
            Command::CloseOpen { open, reply } => {
                let found = self.server.borrow_mut().close_open(open, self.now());
                answer(reply, found.then_some(()).ok_or_else(|| not_found("open file", open)));
            }
            Command::CancelJob { job, reply } => answer(reply, self.cancel_job(job)),
            Command::ResumeJob { job, reply } => answer(reply, self.resume_job(job)),
            Command::DirectoryChanged { reply } => {
                self.server.borrow_mut().directory_changed(self.now());
                answer(reply, Ok(()));
            }
            Command::Interfaces(interfaces) => self.server.borrow_mut().set_interfaces(interfaces),
            Command::Drain { within, reply } => {
                let plane = self.clone();
                self.storage.tasks.spawn(async move {
                    plane.drain(within).await;
                    let _ = reply.send(());
                    plane.ended.set(true);
                });
            }
        }
    }

    fn task<T: 'static>(
        self: &Rc<Self>,
        reply: Reply<T>,
        work: impl AsyncFnOnce(Rc<Self>) -> Done<T> + 'static,
    ) {
        let plane = self.clone();
        self.storage.tasks.spawn(async move { answer(reply, work(plane).await) });
    }

    /// Changes the cluster state on a thread where that may block.
    pub(super) async fn change_state<T: Send + 'static>(
        &self,
        change: impl FnOnce(&RedbState) -> Result<T, StateError> + Send + 'static,
    ) -> Done<T> {
        let state = self.state.clone();
        let result = tasks::blocking(self.waker(), move || change(&state)).await;
        result.ok_or_else(|| failed("no thread for the cluster state".to_owned()))?.map_err(state_failed)
    }

    async fn create_pool(
        &self,
        name: String,
        disks: Vec<NewDisk>,
        reserve_disks: Option<u32>,
    ) -> Done<PoolId> {
        if disks.is_empty() {
            return Err(error(CommandErrorKind::Invalid, "a pool needs at least one disk"));
        }
        let pool = PoolId(Uuid::new_v4());
        if self.storage.pools.borrow().values().any(|entry| entry.record.name == name) {
            return Err(error(CommandErrorKind::Conflict, format!("a pool named {name} exists already")));
        }
        let domains: Vec<FaultDomain> = disks.iter().map(|disk| disk.fault_domain.clone()).collect();
        let reserve_disks = reserve_disks.unwrap_or_else(|| pool::default_reserve_disks(&domains));
        check_reserve(reserve_disks, disks.len())?;
        let records = self.format(pool, disks, None).await?;
        let record = PoolRecord::new(pool, name, reserve_disks, unix_seconds());
        let mut transaction = Transaction::default().when(record.key(), 0).put(record.key(), record.encode());
        for disk in &records {
            transaction = transaction.put(disk.key(), disk.encode());
        }
        self.change_state(move |state| state.commit(transaction)).await?;
        let slab_bytes = records.first().map_or(0, |disk| disk.slab_bytes);
        self.storage.add_pool(record, slab_bytes).map_err(state_failed)?;
        for disk in records {
            self.storage.add_disk(disk);
        }
        tasks::until(|| self.storage.disks_settled().then_some(())).await;
        Ok(pool)
    }

    pub(super) async fn add_disk(&self, pool: PoolId, disk: NewDisk) -> Done<DiskId> {
        let slab_bytes = {
            let pools = self.storage.pools.borrow();
            pools.get(&pool).ok_or_else(|| not_found("pool", pool))?.slab_bytes
        };
        let mut records = self.format(pool, vec![disk], Some(slab_bytes)).await?;
        let record = records.pop().ok_or_else(|| failed("the disk was not formatted".to_owned()))?;
        let (id, stored) = (record.id, record.clone());
        self.change_state(move |state| state.write(&stored, 0)).await?;
        self.storage.add_disk(record);
        tasks::until(|| self.storage.disks_settled().then_some(())).await;
        if let Some(space) = self.storage.space(pool) {
            space.add_disk(id);
            // A rebalance that follows at once finds volumes that may use it; those that are busy come to it later.
            let patience = self.now().after(ADD_PATIENCE);
            let known = || {
                let volumes = self.volumes.borrow();
                let served = volumes.iter().filter(|(_, entry)| entry.pool == pool && entry.served.is_some());
                served.into_iter().all(|(volume, _)| {
                    space.record(*volume).is_none_or(|record| record.in_sync.contains(&id))
                })
            };
            tasks::until(|| {
                self.storage.wake_at(patience);
                (known() || self.now() >= patience).then_some(())
            })
            .await;
        }
        Ok(id)
    }

    /// Labels disks that hold nothing, all with slabs of one size.
    async fn format(
        &self,
        pool: PoolId,
        disks: Vec<NewDisk>,
        slab_bytes: Option<u64>,
    ) -> Done<Vec<DiskRecord>> {
        let time_bound = self.storage.disk_timeout;
        tasks::blocking(self.waker(), move || format_disks(pool, &disks, slab_bytes, time_bound))
            .await
            .unwrap_or_else(|| Err(failed("no thread to format disks on".to_owned())))
    }

    async fn rebalance(&self, pool: PoolId) -> Done<u64> {
        let space = self.storage.space(pool).ok_or_else(|| not_found("pool", pool))?;
        if space.rebalance() == 0 {
            return Ok(self.jobs.borrow_mut().nothing_to_do(JobKind::Rebalance, self.pool_name(pool)));
        }
        Ok(self.job_begun(SpaceJob::Rebalance, JobKind::Rebalance, pool).await)
    }

    async fn create_volume(self: &Rc<Self>, new: NewVolume) -> Done<VolumeId> {
        let slab_bytes = {
            let pools = self.storage.pools.borrow();
            pools.get(&new.pool).ok_or_else(|| not_found("pool", new.pool))?.slab_bytes.max(1)
        };
        let disks: Vec<DiskId> = {
            let disks = self.storage.disks.borrow();
            let own = disks.values().map(|slot| &slot.record).filter(|record| record.pool == new.pool);
            own.filter(|record| record.state != DiskState::Retired).map(|record| record.id).collect()
        };
        let copies = new.resiliency.copies();
        if disks.len() < usize::from(copies) {
            return Err(error(
                CommandErrorKind::Invalid,
                format!("{copies} copies need {copies} disks; the pool has {}", disks.len()),
            ));
        }
        if new.size_bytes == 0 {
            return Err(error(CommandErrorKind::Invalid, "a volume has a size"));
        }
        let size_bytes = new.size_bytes.checked_next_multiple_of(slab_bytes);
        let size_bytes =
            size_bytes.ok_or_else(|| error(CommandErrorKind::Invalid, "the size is too large"))?;
        let least_bytes = u64::from(volume::fs::CHUNKS_MIN) * slab_bytes;
        if size_bytes < least_bytes {
            return Err(error(
                CommandErrorKind::Invalid,
                format!("the smallest volume of this pool has {}: make it larger", show_size(least_bytes)),
            ));
        }
        let resiliency = match new.resiliency {
            model::Resiliency::Simple => Resiliency::Simple,
            model::Resiliency::TwoWayMirror => Resiliency::TwoWay,
            model::Resiliency::ThreeWayMirror => Resiliency::ThreeWay,
        };
        let provisioning = match new.provisioning {
            model::Provisioning::Thin => Provisioning::Thin,
            model::Provisioning::Fixed => Provisioning::Fixed,
        };
        if provisioning == Provisioning::Fixed {
            self.promise(new.pool, size_bytes / slab_bytes, resiliency)?;
        }
        let id = VolumeId(Uuid::new_v4());
        let name = new.name.clone();
        let record = VolumeRecord::new(
            id,
            new.pool,
            new.name,
            resiliency,
            size_bytes,
            provisioning,
            disks,
            unix_seconds(),
        );
        self.record_volume(record.clone()).await?;
        let mut serial = [0; 4];
        getrandom::fill(&mut serial).map_err(|why| failed(format!("no random bytes: {why}")))?;
        let root_security = volume::security::volume_root()
            .build()
            .map_err(|status| failed(format!("the root's security descriptor: {status:?}")))?;
        let format = Format {
            id: id.to_bytes(),
            label: name,
            serial: u32::from_le_bytes(serial),
            now: wall_clock(),
            root_security,
        };
        self.open_volume(record, Some(format));
        self.volume_opened(id).await?;
        Ok(id)
    }

    /// Keeps back the slabs of a fixed volume; an error where the pool does not have them.
    pub(super) fn promise(&self, pool: PoolId, chunks: u64, resiliency: Resiliency) -> Done<()> {
        let space = self.storage.space(pool).ok_or_else(|| not_found("pool", pool))?;
        let copies = resiliency.copies();
        let available = space.available_chunks(copies);
        if available < chunks {
            return Err(error(
                CommandErrorKind::NoSpace,
                format!(
                    "a fixed volume is given all its space at once: {chunks} slabs in {copies} copies are wanted, the pool has room \
                     for {available}; make it smaller or thin, or add disks"
                ),
            ));
        }
        space.keep_promises(chunks * u64::from(copies));
        Ok(())
    }

    /// Takes no new requests, finishes those in work, makes everything durable and leaves the volumes settled.
    async fn drain(&self, within: Duration) {
        let deadline = self.now().after(within);
        self.draining.set(true);
        self.server.borrow_mut().drain();
        tasks::until(|| {
            let idle = self.server.borrow().requests_in_work() == 0 && self.unsent_bytes.get() == 0;
            (idle || self.now() >= deadline).then_some(())
        })
        .await;
        let volumes: Vec<VolumeId> = self.volumes.borrow().keys().copied().collect();
        for volume in &volumes {
            let served = self.volumes.borrow().get(volume).and_then(|entry| entry.served.clone());
            let Some(served) = served else { continue };
            if let Err(why) = served.make_durable(|| self.now() >= deadline).await {
                tracing::error!(%volume, %why, "the volume could not be made durable at the end");
            }
        }
        let pools: Vec<_> = self.storage.pools.borrow().values().map(|entry| entry.space.clone()).collect();
        for space in &pools {
            volumes.iter().for_each(|volume| space.close_volume(*volume));
        }
        tasks::until(|| {
            let closed = pools.iter().all(|space| {
                volumes.iter().all(|volume| {
                    matches!(space.phase(*volume), None | Some(Phase::Closed | Phase::Stopped(_)))
                })
            });
            (closed || self.now() >= deadline).then_some(())
        })
        .await;
        self.write_damage().await;
        self.storage.records_kept(|| self.now() >= deadline).await;
        tracing::info!("drained");
    }
}

/// Some disks must be left for data.
pub(super) fn check_reserve(reserve_disks: u32, disks: usize) -> Done<()> {
    if (reserve_disks as usize) < disks.max(1) {
        return Ok(());
    }
    let message =
        format!("a reserve of {reserve_disks} disks leaves nothing of a pool of {disks} disks for data");
    Err(error(CommandErrorKind::Invalid, message))
}
