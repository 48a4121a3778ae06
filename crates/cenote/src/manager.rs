//! Executes requests of the API: accounts and shares in the cluster state, all else in the data plane.
//!
//! Promises: a change of accounts or shares is durable before it is answered, and in the data plane's
//! directory; changes happen one at a time. Never touches disks.

mod account_book;
mod devices;
mod files;
mod refusals;
mod servers;

use self::devices::refused_place;
use crate::acl;
use crate::config::Config;
use crate::control::{
    Command, ControlHandle, DiskCommand, FileCommand, NewVolume, Reply as CommandReply, StorageCommand,
};
use crate::directory::SharedDirectory;
use crate::quotas;
use crate::reload::InEffect;
pub use account_book::load;
use account_book::{AccountBook, Import, apply, imported};
use api::ClusterManagement;
use api::audit::{AuditEvent, AuditLog, Outcome};
use api::health_watch;
use api::model::{Configuration, OpensPage, QuotaReport, Rdma, RdmaTrace, Snapshot, VolumeDamage};
use api::requests::{
    AclChanged, AclView, AddDisk, AddGroup, AddUser, CheckVolume, CreatePool, CreateShare, CreateToken,
    CreateVolume, CreatedToken, DeletedPool, EraseDisk, ErasedDisk, ForgetPromises, ForgottenPromises,
    GroupView, ImportPool, ImportedPool, LocatedDisk, QuotaBounds, Replaced, SetAcl, SetGroup, SetPool,
    SetQuotas, SetUser, SetVolume, ShareOptions, ShareView, Started, TestedReceiver, TokenView, UserView,
};
use api::seconds::Seconds;
use api::{Answer, ApiError, ErrorKind, Management, RebalanceJob, RebalanceStep, Role, Subject, owner_names};
use files::withhold;
use machine::locate::{LocatedDevice, locate};
use machine::places::{absolute, absolute_all};
use machine::{room::DataRoom, smart::DeviceReports};
use records::State;
use records::accounts::AccountError;
use records::api_tokens::{self, ApiToken, TokenHash};
use records::clock::unix_now_s;
use records::names::NameRule;
use records::seal::SealKey;
use records::shares::{self, Share, ShareAccess};
use refusals::{check_name, destroys, exists, failed, forgets, new_disk, no_such, refused, same};
use smb::rpc::{RpcDone, RpcRefusal};
use std::sync::{Arc, PoisonError};
use tokio::sync::oneshot;
use types::{DiskId, PoolId, Sid, VolumeId};

/// The daemon behind the API.
pub struct Manager {
    accounts: Arc<AccountBook>,
    control: ControlHandle,
    audit: Arc<AuditLog>,
    in_effect: Arc<InEffect>,
    devices: Arc<DeviceReports>,
    room: Arc<DataRoom>,
    /// Held while a pool comes or goes.
    moving: tokio::sync::Mutex<()>,
    /// Held while a test of the alerts is under way: each sends mails.
    testing: tokio::sync::Mutex<()>,
    /// Held while a part of clients' opens is gathered.
    gathering: tokio::sync::Mutex<()>,
    cluster: Arc<dyn ClusterManagement>,
    seconds: Seconds,
}

impl Manager {
    /// Makes the manager of a data plane that runs.
    pub fn new(
        state: State,
        key: Arc<SealKey>,
        directory: SharedDirectory,
        control: ControlHandle,
        audit: Arc<AuditLog>,
        in_effect: Arc<InEffect>,
        cluster: Arc<dyn ClusterManagement>,
    ) -> Self {
        let accounts = AccountBook::new(state, key, directory, in_effect.clone());
        Self {
            accounts: Arc::new(accounts),
            control,
            audit,
            in_effect,
            devices: Arc::default(),
            room: Arc::default(),
            moving: tokio::sync::Mutex::default(),
            testing: tokio::sync::Mutex::default(),
            gathering: tokio::sync::Mutex::default(),
            cluster,
            seconds: Seconds::default(),
        }
    }

    /// Returns the health of disks as their devices report it.
    pub fn devices(&self) -> Arc<DeviceReports> {
        self.devices.clone()
    }

    /// Issues of free space in the data directory.
    pub fn room(&self) -> Arc<DataRoom> {
        self.room.clone()
    }

    /// Carries out a change of accounts or shares off the event loop, since it waits for a disk, and
    /// publishes it. Returns when it is in force for all connected clients.
    fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&AccountBook) -> Result<T, ApiError> + Send + 'static,
    ) -> Answer<'_, T> {
        let book = self.accounts.clone();
        Box::pin(async move {
            let control = self.control.clone();
            let changing = book.clone();
            let done = tokio::task::spawn_blocking(move || {
                let _one_at_a_time = changing.changing.lock().unwrap_or_else(PoisonError::into_inner);
                let changed = change(&changing);
                // A change that failed at its second step has made its first; others are of unknown outcome.
                let published = changing.publish();
                let (reply, in_force) = oneshot::channel();
                control.send(Command::DirectoryChanged { reply });
                (changed, published.map_err(refused), in_force)
            });
            let interrupted = |_| ApiError::new(ErrorKind::Internal, "the change was interrupted");
            let (changed, published, in_force) = done.await.map_err(interrupted)?;
            if published.is_err() {
                book.catch_up(self.control.clone());
            }
            let changed = changed.and_then(|changed| published.map(|()| changed));
            // Without an answer the data plane has ended, and with it everybody's connection.
            let _ = in_force.await;
            changed
        })
    }

    /// Reads accounts and shares again that another server of the cluster has changed. Returns when they
    /// are in force for all connected clients.
    ///
    /// # Errors
    /// If they cannot be read; they are read again until they can be.
    pub async fn refresh(&self) -> Result<(), ApiError> {
        self.change(|_| Ok(())).await
    }

    /// Reads accounts or shares off the event loop.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&AccountBook) -> Result<T, ApiError> + Send + 'static,
    ) -> Answer<'_, T> {
        let book = self.accounts.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || read(&book));
            done.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the reading was interrupted"))?
        })
    }

    async fn call<T, C: Into<Command>>(
        &self,
        make: impl FnOnce(CommandReply<T>) -> C,
    ) -> Result<T, ApiError> {
        self.control.call(make).await.map_err(failed)
    }

    /// Returns everything that can be shown, except clients' opens.
    async fn look(&self) -> Result<Box<Snapshot>, ApiError> {
        self.control.figures().await.map_err(failed)
    }

    /// Completes a snapshot with the control plane's own knowledge.
    fn told(&self, mut snapshot: Box<Snapshot>) -> Box<Snapshot> {
        self.tell_devices(&mut snapshot);
        owner_names(&mut snapshot.volumes, &self.cluster.servers());
        let unserved = self.cluster.unserved();
        if unserved.is_some() {
            withhold(&mut snapshot);
        }
        snapshot.health.issues.extend(self.cluster.issues());
        self.tell_files(&mut snapshot.health, unserved.is_none());
        snapshot
    }

    async fn volume_named(&self, name: &str) -> Result<VolumeId, ApiError> {
        let snapshot = self.look().await?;
        match snapshot.volumes.iter().find(|volume| same(&volume.name, name)) {
            Some(volume) => Ok(volume.id),
            None => self.recorded_volume(name).await,
        }
    }

    /// The named pool, or the only one.
    async fn pool_named(&self, name: Option<&str>) -> Result<PoolId, ApiError> {
        let snapshot = self.look().await?;
        match (name, snapshot.pools.as_slice()) {
            (Some(name), pools) => {
                let found = pools.iter().find(|pool| same(&pool.name, name));
                found.map(|pool| pool.id).ok_or_else(|| no_such("pool", name))
            }
            (None, [only]) => Ok(only.id),
            (None, []) => Err(ApiError::new(
                ErrorKind::NotFound,
                "there is no pool yet; make one with `cenote pool create NAME DISK...`",
            )),
            (None, _) => {
                Err(ApiError::new(ErrorKind::Invalid, "there are several pools; say which one (--pool NAME)"))
            }
        }
    }

    /// Finds the SID of an account, by its name or by the SID's text.
    fn account(&self, name: &str) -> Result<Sid, ApiError> {
        let nobody = || refused(AccountError::NoAccount(name.to_owned()));
        self.accounts.directory.current().sid_of(name).ok_or_else(nobody)
    }

    /// Returns the outcome of a named pipe's change to it. False: the data plane has ended.
    pub fn answer_pipe(&self, pipe: u64, outcome: Result<RpcDone, RpcRefusal>) -> bool {
        self.control.send(Command::AnswerPipe { pipe, outcome })
    }
}

impl Management for Manager {
    fn opens(&self, after: Option<u64>, most: usize) -> Answer<'_, OpensPage> {
        Box::pin(async move {
            // The data plane gathers at most one part a turn for all callers.
            let _alone = self.gathering.lock().await;
            self.call(|reply| Command::Opens { after, most, reply }).await
        })
    }

    fn figures(&self) -> Answer<'_, Box<Snapshot>> {
        Box::pin(async move { Ok(self.told(self.look().await?)) })
    }

    fn seconds(&self) -> &Seconds {
        &self.seconds
    }

    fn config(&self) -> String {
        self.in_effect.get(Config::documented)
    }

    fn config_values(&self) -> Configuration {
        // A configuration written from values parses back.
        toml::from_str(&self.config()).unwrap_or_default()
    }

    fn cluster(&self) -> Arc<dyn ClusterManagement> {
        self.cluster.clone()
    }

    fn elsewhere(&self, what: Subject) -> Answer<'_, Option<String>> {
        Box::pin(self.server_of(what))
    }

    fn add_disk(&self, request: AddDisk, by: Role) -> Answer<'_, DiskId> {
        Box::pin(async move {
            let disk = self.admit_disks(vec![new_disk(&request)?], by).await?.swap_remove(0);
            let pool = self.pool_named(request.pool.as_deref()).await?;
            self.call(|reply| DiskCommand::Add { pool, disk, reply }).await
        })
    }

    fn retire_disk(&self, disk: DiskId) -> Answer<'_, Started> {
        Box::pin(async move {
            let job = self.call(|reply| DiskCommand::Retire { disk, reply }).await?;
            Ok(Started { job })
        })
    }

    fn unretire_disk(&self, disk: DiskId) -> Answer<'_, ()> {
        Box::pin(self.call(move |reply| DiskCommand::Unretire { disk, reply }))
    }

    fn replace_disk(&self, disk: DiskId, request: AddDisk, by: Role) -> Answer<'_, Replaced> {
        Box::pin(async move {
            let new = self.admit_disks(vec![new_disk(&request)?], by).await?.swap_remove(0);
            let (disk, job) = self.call(|reply| DiskCommand::Replace { disk, new, reply }).await?;
            Ok(Replaced { disk, job })
        })
    }

    fn locate_disk(&self, disk: DiskId, on: bool) -> Answer<'_, LocatedDisk> {
        Box::pin(async move {
            let snapshot = self.look().await?;
            let found = snapshot.disks.iter().find(|known| known.id == disk);
            let path = found.ok_or_else(|| no_such("disk", &disk.to_string()))?.path.clone();
            let located = tokio::task::spawn_blocking(move || {
                let LocatedDevice { device, serial, slot, led, message } = locate(&path, on);
                LocatedDisk { path, device, serial, slot, led, message }
            });
            located.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the search was interrupted"))
        })
    }

    fn acknowledge_disk(&self, disk: DiskId) -> Answer<'_, ()> {
        Box::pin(self.call(move |reply| DiskCommand::Acknowledge { disk, reply }))
    }

    fn forget_promises(&self, disk: DiskId, request: ForgetPromises) -> Answer<'_, ForgottenPromises> {
        Box::pin(async move {
            let is_confirmed = request.confirm.is_some_and(|confirm| confirm == disk.to_string());
            let found = self.call(|reply| DiskCommand::ForgetPromises { disk, is_confirmed, reply }).await?;
            let volumes: Vec<String> = found.into_iter().map(|beyond| beyond.name).collect();
            if is_confirmed { Ok(ForgottenPromises { disk, volumes }) } else { Err(forgets(disk, &volumes)) }
        })
    }

    fn erase_disk(&self, request: EraseDisk) -> Answer<'_, ErasedDisk> {
        Box::pin(async move {
            let path = absolute(&request.path).map_err(refused_place)?;
            let path = self.demand_places(vec![(path, false)], Role::Administrator).await?.swap_remove(0);
            let is_confirmed = request.confirm.as_deref() == Some(request.path.as_str());
            let held = self.call(|reply| DiskCommand::Erase { path, is_confirmed, reply }).await?;
            let path = request.path;
            if is_confirmed { Ok(ErasedDisk { path, held }) } else { Err(destroys(&path, &held)) }
        })
    }

    fn delete_pool(&self, name: String) -> Answer<'_, DeletedPool> {
        Box::pin(async move {
            let pool = self.pool_named(Some(&name)).await?;
            let _importing = self.moving.lock().await;
            let labelled_disks = self.call(|reply| StorageCommand::DeletePool { pool, reply }).await?;
            Ok(DeletedPool { name, labelled_disks })
        })
    }

    fn set_pool(&self, name: String, request: SetPool) -> Answer<'_, ()> {
        Box::pin(async move {
            let pool = self.pool_named(Some(&name)).await?;
            let reserve_disks = request.reserve_disks;
            self.call(|reply| StorageCommand::SetReserve { pool, reserve_disks, reply }).await
        })
    }

    fn create_pool(&self, request: CreatePool, by: Role) -> Answer<'_, PoolId> {
        Box::pin(async move {
            check_name(NameRule::POOL, &request.name)?;
            let disks = request.disks.iter().map(new_disk).collect::<Result<Vec<_>, _>>()?;
            let disks = self.admit_disks(disks, by).await?;
            let (name, reserve_disks) = (request.name, request.reserve_disks);
            if self.look().await?.pools.iter().any(|pool| same(&pool.name, &name)) {
                return Err(exists("pool", &name));
            }
            self.call(|reply| StorageCommand::CreatePool { name, disks, reserve_disks, reply }).await
        })
    }

    fn export_pool(&self, name: String) -> Answer<'_, ()> {
        Box::pin(async move {
            self.demand_single_server("pool export").await?;
            let pool = self.pool_named(Some(&name)).await?;
            let _importing = self.moving.lock().await;
            self.call(|reply| StorageCommand::ExportPool { pool, reply }).await?;
            // Publishes the removal of the pool's shares.
            self.change(|_| Ok(())).await
        })
    }

    fn import_pool(&self, request: ImportPool) -> Answer<'_, ImportedPool> {
        Box::pin(async move {
            self.demand_single_server("pool import").await?;
            if let Some(name) = &request.rename {
                check_name(NameRule::POOL, name)?;
            }
            let named = absolute_all(&request.disks).map_err(refused_place)?;
            let there = named.into_iter().map(|path| (path, false)).collect();
            let named = self.demand_places(there, Role::Administrator).await?;
            let search = match (request.search.is_empty(), named.is_empty()) {
                (true, true) => self.in_effect.get(|config| config.disks.search.clone()),
                _ => absolute_all(&request.search).map_err(refused_place)?,
            };
            let _importing = self.moving.lock().await;
            let import = self.read(move |book| Import::read(book, &request, &named, &search)).await?;
            let (pool, name, report) = self.change(move |book| book.import(&import)).await?;
            let not_served = self.call(|reply| StorageCommand::AdoptPool { pool, reply }).await?;
            Ok(imported(name, report, not_served))
        })
    }

    fn rebalance_pool(&self, step: RebalanceStep) -> Answer<'_, RebalanceJob> {
        Box::pin(self.call(|reply| StorageCommand::Rebalance { step, reply }))
    }

    fn create_volume(&self, request: CreateVolume) -> Answer<'_, VolumeId> {
        Box::pin(async move {
            check_name(NameRule::VOLUME, &request.name)?;
            let pool = self.pool_named(request.pool.as_deref()).await?;
            if self.look().await?.volumes.iter().any(|volume| same(&volume.name, &request.name))
                && self.is_recorded_still(&request.name).await?
            {
                return Err(exists("volume", &request.name));
            }
            let volume = NewVolume {
                name: request.name,
                pool,
                resiliency: request.resiliency,
                provisioning: request.provisioning,
                size_bytes: request.size_bytes,
                warn_at_percent: request.warn_at_percent,
            };
            self.call(|reply| StorageCommand::CreateVolume { volume, reply }).await
        })
    }

    fn set_volume(&self, name: String, request: SetVolume) -> Answer<'_, ()> {
        Box::pin(async move {
            let SetVolume { size_bytes, warn_at_percent } = request;
            if size_bytes.is_none() && warn_at_percent.is_none() {
                return Err(ApiError::new(
                    ErrorKind::Invalid,
                    "nothing to change: give a size or a threshold",
                ));
            }
            let volume = self.volume_named(&name).await?;
            if let Some(size_bytes) = size_bytes {
                self.call(|reply| StorageCommand::ResizeVolume { volume, size_bytes, reply }).await?;
            }
            if let Some(percent) = warn_at_percent {
                self.call(|reply| StorageCommand::WarnAt { volume, percent, reply }).await?;
            }
            Ok(())
        })
    }

    fn delete_volume(&self, name: String) -> Answer<'_, ()> {
        Box::pin(async move {
            let volume = self.volume_named(&name).await?;
            // By the records: another server may have deleted the share a moment ago.
            let shares = self.read(|book| shares::list(&book.state).map_err(refused)).await?;
            let shared = shares.into_iter().filter(|share| share.volume == volume);
            let shared: Vec<String> = shared.map(|share| share.name).collect();
            if !shared.is_empty() {
                return Err(ApiError::new(
                    ErrorKind::Conflict,
                    format!("volume '{name}' is shared as {}; delete the share first", shared.join(", ")),
                ));
            }
            self.call(|reply| StorageCommand::DeleteVolume { volume, reply }).await
        })
    }

    fn check_volume(&self, name: String, request: CheckVolume) -> Answer<'_, Started> {
        Box::pin(async move {
            let volume = self.volume_named(&name).await?;
            let job = self
                .call(|reply| StorageCommand::CheckVolume { volume, repair: request.repair, reply })
                .await?;
            Ok(Started { job })
        })
    }

    fn volume_damage(&self, name: String) -> Answer<'_, VolumeDamage> {
        Box::pin(async move {
            let volume = self.volume_named(&name).await?;
            self.call(|reply| StorageCommand::VolumeDamage { volume, reply }).await
        })
    }

    fn shares(&self) -> Answer<'_, Vec<ShareView>> {
        Box::pin(async move {
            let snapshot = self.look().await?;
            let shares = self.read(|book| shares::list(&book.state).map_err(refused)).await?;
            let directory = self.accounts.directory.current();
            Ok(shares
                .into_iter()
                .map(|share| {
                    let volume = snapshot.volumes.iter().find(|volume| volume.id == share.volume);
                    let volume =
                        volume.map_or_else(|| share.volume.to_string(), |volume| volume.name.clone());
                    ShareView::new(share, volume, |sid| directory.display_name(sid))
                })
                .collect())
        })
    }

    fn create_share(&self, request: CreateShare) -> Answer<'_, ()> {
        Box::pin(async move {
            let volume = self.volume_named(&request.volume).await?;
            let mut share = Share::new(request.name, volume, Vec::new());
            share.path = request.path.replace('/', "\\").trim_matches('\\').to_owned();
            shares::check(&share).map_err(refused)?;
            if !share.path.is_empty() && self.accounts.directory.current().share(&share.name).is_none() {
                let path = share.path.clone();
                self.call(|reply| FileCommand::MakeDirectory { volume, path, reply }).await?;
            }
            self.change(move |book| {
                // As in Windows: Administrators get full access, others only what is granted.
                let access = book
                    .grants(&request.options)?
                    .unwrap_or_else(|| vec![(Sid::administrators(), ShareAccess::Full)]);
                apply(&mut share, request.options, Some(access));
                shares::create(&book.roomy, &share).map_err(refused)
            })
            .await
        })
    }

    fn set_share(&self, name: String, request: ShareOptions) -> Answer<'_, ()> {
        self.change(move |book| {
            let access = book.grants(&request)?;
            shares::set(&book.roomy, &name, |share| {
                apply(share, request, access);
                Ok(())
            })
            .map(|_| ())
            .map_err(refused)
        })
    }

    fn delete_share(&self, name: String) -> Answer<'_, ()> {
        self.change(move |book| shares::delete(&book.state, &name).map_err(refused))
    }

    fn users(&self) -> Answer<'_, Vec<UserView>> {
        self.read(|book| {
            let groups = book.accounts().groups().map_err(refused)?;
            let users = book.accounts().users().map_err(refused)?;
            Ok(users.into_iter().map(|secret| UserView::new(secret.user, &groups)).collect())
        })
    }

    fn add_user(&self, request: AddUser) -> Answer<'_, ()> {
        self.change(move |book| {
            let AddUser { name, password, full_name, groups } = request;
            let accounts = book.accounts();
            accounts
                .add_user(&name, &full_name, &password, &groups, unix_now_s())
                .map(|_| ())
                .map_err(refused)
        })
    }

    fn set_user(&self, name: String, request: SetUser) -> Answer<'_, ()> {
        self.change(move |book| book.set_user(name, request).map_err(refused))
    }

    fn delete_user(&self, name: String) -> Answer<'_, ()> {
        self.change(move |book| book.accounts().delete_user(&name).map_err(refused))
    }

    fn groups(&self) -> Answer<'_, Vec<GroupView>> {
        let directory = self.accounts.directory.current();
        self.read(move |book| {
            let groups = book.accounts().groups().map_err(refused)?;
            Ok(groups
                .into_iter()
                .map(|group| GroupView {
                    builtin: group.is_builtin(),
                    members: group.members.iter().map(|sid| directory.display_name(sid)).collect(),
                    name: group.name,
                    sid: group.sid,
                })
                .collect())
        })
    }

    fn add_group(&self, request: AddGroup) -> Answer<'_, ()> {
        self.change(move |book| book.accounts().add_group(&request.name).map(|_| ()).map_err(refused))
    }

    fn set_group(&self, name: String, request: SetGroup) -> Answer<'_, ()> {
        self.change(move |book| {
            let accounts = book.accounts();
            accounts.set_members(&name, &request.add, &request.remove).map(|_| ()).map_err(refused)
        })
    }

    fn delete_group(&self, name: String) -> Answer<'_, ()> {
        self.change(move |book| book.accounts().delete_group(&name).map_err(refused))
    }

    fn follow_now(&self) -> Answer<'_, ()> {
        self.accounts.directory.freshness().tell();
        self.change(|_| Ok(()))
    }

    fn quotas(&self, volume: String, user: Option<String>) -> Answer<'_, QuotaReport> {
        Box::pin(async move {
            let volume = self.volume_named(&volume).await?;
            let user = user.map(|user| self.account(&user)).transpose()?;
            let report = self.call(|reply| FileCommand::VolumeQuotas { volume, user, reply }).await?;
            let directory = self.accounts.directory.current();
            Ok(quotas::show(report, |sid| directory.display_name(sid)))
        })
    }

    fn set_quotas(&self, volume: String, request: SetQuotas) -> Answer<'_, ()> {
        Box::pin(async move {
            let volume = self.volume_named(&volume).await?;
            self.call(|reply| FileCommand::SetQuotas { volume, request, reply }).await
        })
    }

    fn set_quota(&self, volume: String, user: String, bounds: Option<QuotaBounds>) -> Answer<'_, ()> {
        Box::pin(async move {
            let volume = self.volume_named(&volume).await?;
            let (user, limits) = (self.account(&user)?, bounds.map(quotas::limits));
            self.call(|reply| FileCommand::SetQuota { volume, user, limits, reply }).await
        })
    }

    fn acl(&self, share: String, path: String) -> Answer<'_, AclView> {
        Box::pin(async move {
            self.catch_up_with_share(&share).await;
            let (volume, path) = self.in_share(&share, &path)?;
            let described = self.call(|reply| FileCommand::QuerySecurity { volume, path, reply }).await?;
            let directory = self.accounts.directory.current();
            acl::view(&described.descriptor, |sid| directory.display_name(sid))
        })
    }

    fn set_acl(&self, share: String, path: String, request: SetAcl) -> Answer<'_, AclChanged> {
        Box::pin(async move {
            self.catch_up_with_share(&share).await;
            let (volume, path) = self.in_share(&share, &path)?;
            let security_of =
                |path| self.call(move |reply| FileCommand::QuerySecurity { volume, path, reply });
            let described = security_of(path.clone()).await?;
            // The volume's root inherits from nothing.
            let parent = match path.rsplit_once('\\') {
                Some((parent, _)) => Some(security_of(parent.to_owned()).await?),
                None if path.is_empty() => None,
                None => Some(security_of(String::new()).await?),
            };
            let change = acl::change(&described, parent.as_ref(), &request, |name| self.account(name))?;
            let (descriptor, at) = (change.descriptor, path.clone());
            self.call(|reply| FileCommand::SetSecurity { volume, path: at, descriptor, reply }).await?;
            let own = acl::own_entries(request.below);
            let job = self.call(|reply| FileCommand::PropagateAcl { volume, path, own, reply }).await?;
            Ok(AclChanged { job, still_inherited: change.still_inherited })
        })
    }

    fn rdma(&self) -> Answer<'_, Rdma> {
        Box::pin(async move {
            let state = self.look().await?.rdma;
            // Opening devices queries their drivers.
            let described = tokio::task::spawn_blocking(move || crate::rdma_host::describe(state)).await;
            described.map_err(|_| ApiError::new(ErrorKind::Internal, "the reading was interrupted"))
        })
    }

    fn rdma_trace(&self, connection: u64) -> Answer<'_, RdmaTrace> {
        Box::pin(self.call(move |reply| Command::RdmaTrace { connection, reply }))
    }

    fn close_session(&self, session: u64) -> Answer<'_, ()> {
        Box::pin(self.call(move |reply| Command::CloseSession { session, reply }))
    }

    fn close_file(&self, open: u64) -> Answer<'_, ()> {
        Box::pin(self.call(move |reply| Command::CloseOpen { open, reply }))
    }

    fn cancel_job(&self, job: u64) -> Answer<'_, ()> {
        Box::pin(self.call(move |reply| StorageCommand::CancelJob { job, reply }))
    }

    fn resume_job(&self, job: u64) -> Answer<'_, ()> {
        Box::pin(self.call(move |reply| StorageCommand::ResumeJob { job, reply }))
    }

    fn test_alerts(&self) -> Answer<'_, Vec<TestedReceiver>> {
        let look = |config: &Config| (config.health.receivers(), config.server.name.clone());
        let (receivers, server) = self.in_effect.get(look);
        Box::pin(async move {
            let busy =
                || ApiError::new(ErrorKind::Conflict, "a test of the alerts is under way: wait for it");
            let _testing = self.testing.try_lock().map_err(|_| busy())?;
            Ok(health_watch::test(receivers, &server).await)
        })
    }

    fn tokens(&self) -> Answer<'_, Vec<TokenView>> {
        self.read(AccountBook::tokens)
    }

    fn create_token(&self, request: CreateToken) -> Answer<'_, CreatedToken> {
        self.change(move |book| book.create_token(request))
    }

    fn delete_token(&self, name: String) -> Answer<'_, ()> {
        self.change(move |book| api_tokens::delete(&book.state, &name).map_err(refused))
    }

    fn token_of(&self, hash: TokenHash) -> Option<ApiToken> {
        self.accounts.directory.current().token_of(hash).cloned()
    }

    fn audit_by(
        &self,
        actor: &str,
        source: &str,
        action: &str,
        target: &str,
        outcome: Outcome,
        detail: &str,
    ) {
        let event = AuditEvent { unix_s: unix_now_s(), actor, source, action, target, outcome, detail };
        if let Err(error) = self.audit.write(&event) {
            tracing::error!(%error, action, target, "the audit log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests;
