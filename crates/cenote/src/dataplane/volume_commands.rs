//! Commands on volumes that exist: size, deletion, checks, security of paths; and the jobs that commands start.

use super::commands::{error, not_found};
use super::jobs::SpaceJob;
use super::storage::PoolSpace;
use super::{Plane, failed, tasks};
use crate::control::{CommandError, CommandErrorKind};
use crate::size::show_size;
use api::model::JobKind;
use cluster::{DeletedVolume, Provisioning, Record, StateError, Transaction, Typed, VolumeRecord};
use space::coordinator::Phase;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{NtStatus, PoolId, Sid, VolumeId};
use volume::backend::{
    AccessToken, CacheRequest, Caller, Create, Disposition, OpenId, Operation, OplockLevel, Privileges,
    Reply, SessionId, ShareOptions, ShareRoot, Standing,
};
use volume::security::rights;

type Done<T> = Result<T, CommandError>;

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
/// FILE_DIRECTORY_FILE.
const DIRECTORY_FILE: u32 = 1;

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
                format!("volume {} has {} and can only grow", record.name, show_size(record.size_bytes)),
            ));
        }
        let slab_bytes =
            self.storage.pools.borrow().get(&record.pool).map_or(1, |entry| entry.slab_bytes.max(1));
        let size_bytes = size_bytes
            .checked_next_multiple_of(slab_bytes)
            .ok_or_else(|| error(CommandErrorKind::Invalid, "the size is too large"))?;
        if record.provisioning == Provisioning::Fixed {
            self.promise(record.pool, (size_bytes - record.size_bytes) / slab_bytes, record.resiliency)?;
        }
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

    pub(super) async fn make_directory(&self, volume: VolumeId, path: &str) -> Done<()> {
        let ends = path.match_indices('\\').map(|(at, _)| at).chain([path.len()]);
        for directory in ends.map(|end| &path[..end]).filter(|directory| !directory.is_empty()) {
            let options = OPTIONS | DIRECTORY_FILE;
            let made = self
                .open_or(volume, directory, rights::READ_ATTRIBUTES, Disposition::OpenIf, options)
                .await?;
            self.close_path(volume, made).await;
        }
        Ok(())
    }

    async fn open_path(&self, volume: VolumeId, path: &str, desired_access: u32) -> Done<OpenId> {
        self.open_or(volume, path, desired_access, Disposition::Open, OPTIONS).await
    }

    async fn open_or(
        &self,
        volume: VolumeId,
        path: &str,
        desired_access: u32,
        disposition: Disposition,
        options: u32,
    ) -> Done<OpenId> {
        if !self.volumes.borrow().contains_key(&volume) {
            return Err(not_found("volume", volume));
        }
        let token = AccessToken {
            // What it makes belongs to the administrators.
            user: Sid::administrators(),
            primary_group: Sid::administrators(),
            groups: vec![Sid::local_system(), Sid::everyone(), Sid::authenticated_users()],
            privileges: Privileges::all(),
        };
        let create = Create {
            caller: Caller {
                session: COMMAND_SESSION,
                client: [0; 16],
                token: Arc::new(token),
                root: ShareRoot::VOLUME,
                share_access: rights::FILE_ALL,
                share: ShareOptions::default(),
                standing: Standing::none(),
            },
            path: path.trim_matches(['\\', '/']).replace('/', "\\").encode_utf16().collect(),
            desired_access,
            attributes: 0,
            // Reading, writing and deleting by others goes on.
            share_access: 7,
            disposition,
            options,
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
    let message = match status {
        NtStatus::OBJECT_NAME_NOT_FOUND => format!("there is no '{shown}' on the volume"),
        NtStatus::OBJECT_PATH_NOT_FOUND => format!("there is no directory for '{shown}' on the volume"),
        NtStatus::NOT_A_DIRECTORY => format!("'{shown}' is a file, not a directory"),
        NtStatus::OBJECT_NAME_INVALID => format!("'{shown}' holds characters that a name cannot have"),
        NtStatus::SHARING_VIOLATION => format!("'{shown}' is open by somebody who does not share it"),
        NtStatus::DISK_FULL => format!("'{shown}': the pool is full"),
        _ => format!("{shown}: {status:?}"),
    };
    error(kind, message)
}
