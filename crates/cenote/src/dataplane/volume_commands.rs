//! Commands on volumes that exist: size, deletion, checks, security of paths; and the jobs that commands start.

use super::commands::{error, not_found};
use super::jobs::SpaceJob;
use super::storage::PoolSpace;
use super::volumes::ServedVolume;
use super::{Plane, failed, tasks};
use crate::control::{CommandError, CommandErrorKind};
use api::model::{JobKind, JobState};
use cluster::{DeletedVolume, Record, StateError, Transaction, Typed, VolumeRecord};
use space::coordinator::Phase;
use space::local::LocalEvent;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{DiskId, NtStatus, PoolId, Sid, VolumeId};
use volume::backend::{
    AccessToken, CacheRequest, Caller, Create, Disposition, OpenId, Operation, OplockLevel, Privileges,
    Reply, SessionId, ShareOptions,
};
use volume::fs::{Check, FsError};
use volume::security::rights;

type Done<T> = Result<T, CommandError>;

/// Bytes that a check reads of a disk at a time, and how long it rests after each.
const CHECK_STEP_BYTES: u64 = 8 << 20;
const CHECK_REST: Duration = Duration::from_millis(50);
/// Keys of the structures that a check looks at in one go, and how long it rests after.
const CHECK_STEP_KEYS: usize = 200;
const CHECK_STEP_REST: Duration = Duration::from_millis(1);
/// How long a command waits for a job to appear that it caused.
const JOB_PATIENCE: Duration = Duration::from_secs(3);

/// How long a new size may take to be recorded.
const RESIZE_PATIENCE: Duration = Duration::from_secs(30);

/// Name of the session under which commands open files; clients' sessions have others.
const COMMAND_SESSION: SessionId = SessionId(u64::MAX);
/// Owner, group and DACL (MS-DTYP 2.4.7).
const OWNER_GROUP_DACL: u32 = 0x7;
/// FILE_OPEN_REPARSE_POINT | FILE_OPEN_FOR_BACKUP_INTENT (MS-SMB2 2.2.13).
const OPTIONS: u32 = 0x0020_0000 | 0x0000_4000;

impl Plane {
    pub(super) fn space_of(&self, volume: VolumeId) -> Done<PoolSpace> {
        let pool = self.volumes.borrow().get(&volume).map(|entry| entry.pool);
        let space = pool.and_then(|pool| self.storage.space(pool));
        space.ok_or_else(|| not_found("volume", volume))
    }

    pub(super) async fn resize_volume(&self, volume: VolumeId, size_bytes: u64) -> Done<()> {
        let space = self.space_of(volume)?;
        let record = space.record(volume).ok_or_else(|| not_found("volume", volume))?;
        if size_bytes < record.size_bytes {
            return Err(error(
                CommandErrorKind::Invalid,
                format!("volume {} has {} bytes and can only grow", record.name, record.size_bytes),
            ));
        }
        let slab_bytes =
            self.storage.pools.borrow().get(&record.pool).map_or(1, |entry| entry.slab_bytes.max(1));
        let size_bytes = size_bytes
            .checked_next_multiple_of(slab_bytes)
            .ok_or_else(|| error(CommandErrorKind::Invalid, "the size is too large"))?;
        space.with_volume(volume, |coordinator| coordinator.resize(size_bytes));
        let patience = self.now().after(RESIZE_PATIENCE);
        let done = tasks::until(|| {
            self.storage.wake_at(patience);
            let done = space.record(volume).is_some_and(|record| record.size_bytes >= size_bytes);
            (done || self.now() >= patience).then_some(done)
        });
        match done.await {
            true => Ok(()),
            false => Err(error(
                CommandErrorKind::Unavailable,
                format!("the new size of volume {} is not recorded yet; see `cenote health`", record.name),
            )),
        }
    }

    /// The volume's record goes first, and in the same commit a note that its slabs are to be given back: a crash in between
    /// goes on with that at the next start.
    pub(super) async fn delete_volume(self: &Rc<Self>, volume: VolumeId) -> Done<()> {
        let space = self.space_of(volume)?;
        let pool = self.volumes.borrow().get(&volume).map(|entry| entry.pool);
        let pool = pool.ok_or_else(|| not_found("volume", volume))?;
        self.server.borrow_mut().remove_volume(volume, self.now());
        if let Some(entry) = self.volumes.borrow_mut().get_mut(&volume) {
            entry.served = None;
        }
        self.share_cache();
        space.close_volume(volume);
        tasks::until(|| match space.phase(volume) {
            Some(Phase::Opening | Phase::Serving | Phase::Closing) => None,
            _ => Some(()),
        })
        .await;
        space.forget_volume(volume);
        self.change_state(move |state| {
            let key = VolumeRecord::key_of(&volume.to_string());
            let note = DeletedVolume { id: volume, pool };
            state.commit(Transaction::default().delete(key).put(note.key(), note.encode()))
        })
        .await?;
        self.volumes.borrow_mut().remove(&volume);
        self.give_slabs_back(volume, pool);
        Ok(())
    }

    /// Begins to give back the slabs of a volume that was deleted; takes the note away once no disk of the pool has any.
    pub(super) fn give_slabs_back(self: &Rc<Self>, volume: VolumeId, pool: PoolId) {
        let plane = self.clone();
        self.storage.tasks.spawn(async move {
            tasks::until(|| plane.storage.free_chunks(volume, pool).then_some(())).await;
            let removed = plane
                .change_state(move |state| {
                    let key = DeletedVolume::key_of(&volume.to_string());
                    state.commit(Transaction::default().delete(key))
                })
                .await;
            if let Err(error) = removed {
                tracing::warn!(%volume, %error, "the note of a deleted volume stays until the next start");
            }
        });
    }

    /// Runs until the job is seen that an administrative change causes, or says that there was nothing to do.
    pub(super) async fn job_begun(&self, kind: SpaceJob, shown: JobKind, pool: PoolId) -> u64 {
        let until = self.now().after(JOB_PATIENCE);
        let volumes: Vec<VolumeId> = {
            let volumes = self.volumes.borrow();
            volumes.iter().filter(|(_, entry)| entry.pool == pool).map(|(id, _)| *id).collect()
        };
        let found = tasks::until(|| {
            self.update_jobs();
            match self.jobs.borrow().find(kind, &volumes) {
                Some(id) => Some(Some(id)),
                None => (self.now() >= until).then_some(None),
            }
        })
        .await;
        found.unwrap_or_else(|| self.jobs.borrow_mut().nothing_to_do(shown, self.pool_name(pool)))
    }

    pub(super) fn pool_name(&self, pool: PoolId) -> String {
        let pools = self.storage.pools.borrow();
        pools.get(&pool).map_or_else(|| pool.to_string(), |entry| entry.record.name.clone())
    }

    pub(super) fn cancel_job(&self, job: u64) -> Done<()> {
        self.update_jobs();
        let mut jobs = self.jobs.borrow_mut();
        if let Some(check) = jobs.checks.get_mut(&job) {
            check.cancelled = true;
            return Ok(());
        }
        let name = jobs.name_of(job).ok_or_else(|| not_found("running job", job))?;
        self.space_of(name.volume)?.suspend_job(name.volume, name.kind.cluster_kind());
        jobs.stop(name);
        Ok(())
    }

    pub(super) fn resume_job(&self, job: u64) -> Done<()> {
        let name = self.jobs.borrow_mut().resume(job).ok_or_else(|| not_found("stopped job", job))?;
        self.space_of(name.volume)?.resume_job(name.volume, name.kind.cluster_kind());
        Ok(())
    }

    /// Compares the volume's structures with each other, then reads and verifies all copies on the disks of its pool; what is
    /// corrupt is repaired from another copy.
    pub(super) fn check_volume(self: &Rc<Self>, volume: VolumeId) -> Done<u64> {
        let space = self.space_of(volume)?;
        let record = space.record(volume).ok_or_else(|| not_found("volume", volume))?;
        let served = self.volumes.borrow().get(&volume).and_then(|entry| entry.served.clone());
        let served = served.ok_or_else(|| {
            error(CommandErrorKind::Unavailable, format!("volume {} is not served", record.name))
        })?;
        let mut disks: Vec<DiskId> = Vec::new();
        for (id, slot) in self.storage.disks.borrow().iter() {
            if slot.record.pool == record.pool && slot.store().is_some() {
                disks.push(*id);
            }
        }
        let job = self.jobs.borrow_mut().begin_check(JobKind::Check, record.name);
        let plane = self.clone();
        self.storage.tasks.spawn(async move {
            let structures = plane.check_structures(&served).await;
            let Some(corrupt) = plane.check_disks(job, space, disks).await else { return };
            let copies = match corrupt {
                0 => "every copy is intact".to_owned(),
                count => {
                    format!("{count} corrupt blocks were found; those with another copy were written again")
                }
            };
            let (state, found) = match structures {
                Ok(found) => (JobState::Completed, found),
                Err(why) => (JobState::Failed, why),
            };
            plane.jobs.borrow_mut().end_check(job, state, format!("{found}; {copies}"));
        });
        Ok(job)
    }

    /// What a check of the file layer's structures found, in words; the error says that they are damaged.
    async fn check_structures(&self, served: &ServedVolume) -> Result<String, String> {
        let mut check = served.with(|service| Check::new(service.file_system()));
        loop {
            let step = served.with_mut(|service| check.step(service.file_system_mut(), CHECK_STEP_KEYS));
            match step {
                Ok(true) => break,
                Ok(false) | Err(FsError::Miss) => {}
                Err(why) => return Err(format!("the structures cannot be checked: {why}")),
            }
            self.rest(CHECK_STEP_REST).await;
        }
        let report = check.report();
        if report.problem_count == 0 {
            return Ok(format!("{} files in {} extents are sound", report.files, report.extents));
        }
        let first = report.problems.first().map_or("", String::as_str);
        Err(format!("{} problems in the structures, the first: {first}", report.problem_count))
    }

    async fn rest(&self, time: Duration) {
        let rested = self.now().after(time);
        tasks::until(|| {
            self.storage.wake_at(rested);
            (self.now() >= rested).then_some(())
        })
        .await;
    }

    /// Corrupt blocks on the disks; `None`: it was cancelled.
    async fn check_disks(&self, job: u64, space: PoolSpace, disks: Vec<DiskId>) -> Option<u64> {
        let (mut done_before, mut corrupt) = (0, 0);
        for disk in disks {
            // The disk goes on where its last scrub was: what is left of that round first, then a whole one.
            let (mut round, mut done) = (0, 0);
            while round < 2 {
                space.scrub(disk, CHECK_STEP_BYTES);
                let step = tasks::until(|| self.scrub_step(disk)).await;
                let Some((checked, total, bad, finished)) = step else { break };
                corrupt += bad;
                done += if round == 1 { checked } else { 0 };
                if !self.check_goes_on(job, done_before + done, done_before + total.max(done), corrupt) {
                    return None;
                }
                round += u32::from(finished);
                self.rest(CHECK_REST).await;
            }
            done_before += done;
        }
        self.check_goes_on(job, done_before, done_before, corrupt).then_some(corrupt)
    }

    /// Notes how far a check is; `false`: it was cancelled.
    fn check_goes_on(&self, job: u64, done_bytes: u64, total_bytes: u64, corrupt: u64) -> bool {
        let mut jobs = self.jobs.borrow_mut();
        let Some(check) = jobs.checks.get_mut(&job) else { return false };
        check.job.done_bytes = done_bytes;
        check.job.total_bytes = total_bytes;
        if check.cancelled {
            jobs.end_check(job, JobState::Cancelled, format!("{corrupt} corrupt blocks so far"));
            return false;
        }
        true
    }

    /// How far the scrub of a disk went, once it did; `None` inside: the disk is gone.
    fn scrub_step(&self, disk: DiskId) -> Option<Option<(u64, u64, u64, bool)>> {
        let mut events = self.storage.events.borrow_mut();
        let found = events.iter().position(
            |(_, event)| matches!(event, LocalEvent::Scrubbed { disk: scrubbed, .. } if *scrubbed == disk),
        );
        match found.and_then(|at| events.remove(at)) {
            Some((_, LocalEvent::Scrubbed { checked_bytes, total_bytes, corrupt, finished, .. })) => {
                Some(Some((checked_bytes, total_bytes, corrupt, finished)))
            }
            _ => {
                let disks = self.storage.disks.borrow();
                disks.get(&disk).is_none_or(|slot| slot.store().is_none()).then_some(None)
            }
        }
    }

    pub(super) async fn query_security(&self, volume: VolumeId, path: &str) -> Done<Vec<u8>> {
        let open = self.open_path(volume, path, rights::READ_CONTROL).await?;
        let query = Operation::QuerySecurity { open, parts: OWNER_GROUP_DACL };
        let result = self.perform(volume, query).await;
        self.close_path(volume, open).await;
        match result.map_err(|status| refused(path, status))? {
            Reply::Security(descriptor) => Ok(descriptor),
            _ => Err(failed(format!("{path}: the volume gave no security descriptor"))),
        }
    }

    pub(super) async fn set_security(&self, volume: VolumeId, path: &str, descriptor: Vec<u8>) -> Done<()> {
        let parsed = volume::security::SecurityDescriptor::parse(&descriptor).map_err(|_| {
            error(CommandErrorKind::Invalid, "the security descriptor does not parse (MS-DTYP 2.4.6)")
        })?;
        let mut parts = 0;
        parts |= if parsed.owner.is_some() { 1 } else { 0 };
        parts |= if parsed.group.is_some() { 2 } else { 0 };
        parts |= if parsed.dacl.is_some() { 4 } else { 0 };
        let access = rights::READ_CONTROL | rights::WRITE_DAC | rights::WRITE_OWNER;
        let open = self.open_path(volume, path, access).await?;
        let result = self.perform(volume, Operation::SetSecurity { open, parts, descriptor }).await;
        self.close_path(volume, open).await;
        result.map(|_| ()).map_err(|status| refused(path, status))
    }

    async fn perform(&self, volume: VolumeId, operation: Operation) -> Result<Reply, NtStatus> {
        let served = self.volumes.borrow().get(&volume).and_then(|entry| entry.served.clone());
        match served {
            Some(served) => served.perform(operation, self.now()).await,
            None => Err(NtStatus::DEVICE_NOT_READY),
        }
    }

    async fn open_path(&self, volume: VolumeId, path: &str, desired_access: u32) -> Done<OpenId> {
        if !self.volumes.borrow().contains_key(&volume) {
            return Err(not_found("volume", volume));
        }
        let token = AccessToken {
            user: Sid::local_system(),
            primary_group: Sid::local_system(),
            groups: vec![Sid::administrators(), Sid::everyone(), Sid::authenticated_users()],
            privileges: Privileges::all(),
        };
        let create = Create {
            caller: Caller {
                session: COMMAND_SESSION,
                client: [0; 16],
                token: Arc::new(token),
                share_access: rights::FILE_ALL,
                share: ShareOptions::default(),
            },
            path: path.trim_matches(['\\', '/']).replace('/', "\\").encode_utf16().collect(),
            desired_access,
            attributes: 0,
            // Reading, writing and deleting by others goes on.
            share_access: 7,
            disposition: Disposition::Open,
            options: OPTIONS,
            cache: CacheRequest::Oplock(OplockLevel::None),
            allocation_bytes: None,
            extended_attributes: Vec::new(),
            security: None,
            durable: None,
            app_instance: None,
            query_maximal_access: false,
            time_warp: None,
            replay: false,
        };
        match self.perform(volume, Operation::Create(Box::new(create))).await {
            Ok(Reply::Created(created)) => Ok(created.open),
            Ok(_) => Err(failed(format!("{path}: the volume gave no open"))),
            Err(status) => Err(refused(path, status)),
        }
    }

    async fn close_path(&self, volume: VolumeId, open: OpenId) {
        // An open that is gone already was closed by someone else.
        let _ = self.perform(volume, Operation::Close { open, query: false }).await;
    }

    /// Checks that no other volume has the name, and writes the record.
    pub(super) async fn record_volume(&self, record: VolumeRecord) -> Done<()> {
        let name = record.name.clone();
        self.change_state(move |state| {
            let taken = state.list::<VolumeRecord>()?.iter().any(|other| other.value.name == record.name);
            if taken { Err(StateError::Conflict) } else { state.write(&record, 0) }
        })
        .await
        .map(|_| ())
        .map_err(|why| match why.kind {
            CommandErrorKind::Conflict => {
                error(CommandErrorKind::Conflict, format!("a volume named {name} exists already"))
            }
            _ => why,
        })
    }
}

fn refused(path: &str, status: NtStatus) -> CommandError {
    let kind = match status {
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND => CommandErrorKind::NotFound,
        NtStatus::OBJECT_NAME_INVALID | NtStatus::INVALID_PARAMETER => CommandErrorKind::Invalid,
        NtStatus::DISK_FULL => CommandErrorKind::NoSpace,
        NtStatus::DEVICE_NOT_READY => CommandErrorKind::Unavailable,
        NtStatus::SHARING_VIOLATION => CommandErrorKind::Conflict,
        _ => CommandErrorKind::Io,
    };
    let shown = if path.is_empty() { "\\" } else { path };
    error(kind, format!("{shown}: {status:?}"))
}
