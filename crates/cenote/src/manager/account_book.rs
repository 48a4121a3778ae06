//! Accounts, shares and imported pools in the cluster state: changes without the data plane.

use super::devices::refused_place;
use super::refused;
use crate::config::Config;
use crate::control::{Command, ControlHandle};
use crate::directory::{Directory, SharedDirectory};
use crate::reload::InEffect;
use api::requests::{CreateToken, CreatedToken, ImportPool, ImportedPool, SetUser, ShareOptions, TokenView};
use api::{ApiError, ErrorKind};
use machine::places::absolute;
use node::discovery::discover;
use records::accounts::{AccountError, Accounts};
use records::api_tokens::{self, ApiToken};
use records::clock::unix_now_s;
use records::import::{self, ImportError, Wanted};
use records::seal::SealKey;
use records::settings::ServerSettings;
use records::shares::{self, Share, ShareAccess};
use records::{RoomyState, State, Typed, VolumeRecord};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use types::{PoolId, Sid};

/// Reads accounts and shares from the state.
///
/// # Errors
/// Errors of the state; a password that does not open with the key.
pub fn load(state: &State, key: &SealKey) -> Result<Directory, AccountError> {
    let accounts = Accounts::new(state, key);
    let domain = ServerSettings::open_or_create(state)?.value.domain_sid;
    let directory = Directory::new(domain, accounts.users()?, accounts.groups()?, shares::list(state)?);
    let volumes =
        state.list::<VolumeRecord>()?.into_iter().map(|volume| (volume.value.id, volume.value.name));
    Ok(directory.with_volumes(volumes).with_tokens(api_tokens::list(state)?))
}

/// Pause before the state is read again if that failed after a change.
const CATCH_UP_EVERY: Duration = Duration::from_millis(500);

/// Everything that a change of accounts needs; one at a time holds `changing`.
pub(super) struct AccountBook {
    pub state: State,
    /// State by which accounts and shares are changed.
    pub roomy: RoomyState,
    pub key: Arc<SealKey>,
    pub directory: SharedDirectory,
    pub in_effect: Arc<InEffect>,
    pub changing: Mutex<()>,
    /// The state could not be read after a change: the directory may be older than it. A task catches up.
    is_behind: AtomicBool,
}

impl AccountBook {
    pub fn new(
        state: State,
        key: Arc<SealKey>,
        directory: SharedDirectory,
        in_effect: Arc<InEffect>,
    ) -> Self {
        let roomy = RoomyState::new(state.clone(), store::RECORDS_BYTES_MAX);
        let (changing, is_behind) = (Mutex::new(()), AtomicBool::new(false));
        Self { state, roomy, key, directory, in_effect, changing, is_behind }
    }

    /// Makes the directory agree with the state. One at a time: the caller holds `changing`.
    pub fn publish(&self) -> Result<(), AccountError> {
        let reading = self.directory.freshness().begin();
        self.directory.replace(load(&self.state, &self.key)?);
        self.directory.freshness().end(reading);
        Ok(())
    }

    /// Publishes as soon as the state can be read: a user that was disabled, or lost a password or a right,
    /// must not keep it because the state's file failed in that moment.
    pub fn catch_up(self: Arc<Self>, control: ControlHandle) {
        if self.is_behind.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CATCH_UP_EVERY).await;
                let book = self.clone();
                let caught_up = tokio::task::spawn_blocking(move || {
                    let _one_at_a_time = book.changing.lock().unwrap_or_else(PoisonError::into_inner);
                    book.publish().inspect(|()| book.is_behind.store(false, Ordering::Release))
                });
                if matches!(caught_up.await, Ok(Ok(()))) {
                    let (reply, in_force) = oneshot::channel();
                    control.send(Command::DirectoryChanged { reply });
                    let _ = in_force.await;
                    return;
                }
            }
        });
    }

    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    pub fn accounts(&self) -> Accounts<'_, RoomyState> {
        Accounts::new(&self.roomy, &self.key).with_policy(self.in_effect.get(Config::password_policy))
    }

    pub fn set_user(&self, mut name: String, request: SetUser) -> Result<(), AccountError> {
        let accounts = self.accounts();
        if let Some(new_name) = request.name {
            accounts.rename_user(&name, &new_name)?;
            name = new_name;
        }
        if let Some(password) = &request.password {
            accounts.set_password(&name, password, unix_now_s())?;
        }
        accounts.set_user(&name, request.enabled, request.full_name.as_deref()).map(|_| ())
    }

    pub fn tokens(&self) -> Result<Vec<TokenView>, ApiError> {
        let now_unix_s = unix_now_s();
        let tokens = api_tokens::list(&self.state).map_err(|error| refused(error.into()))?;
        Ok(tokens.into_iter().map(|token| TokenView::new(token, now_unix_s)).collect())
    }

    pub fn create_token(&self, request: CreateToken) -> Result<CreatedToken, ApiError> {
        let now_unix_s = unix_now_s();
        let CreateToken { name, role, expires_in_s } = request;
        let expires = expires_in_s.map(|seconds| now_unix_s.saturating_add(seconds));
        let made = api_tokens::create(&self.state, &name, role, expires, now_unix_s);
        let (token, text) = made.map_err(refused)?;
        let ApiToken { name, role, expires_unix_s, .. } = token;
        Ok(CreatedToken { name, role, expires_unix_s, token: text.to_string() })
    }

    pub fn import(&self, import: &Import) -> Result<(PoolId, String, import::Report), ApiError> {
        let Import { plan, old_key, skipped } = import;
        let mut report =
            import::commit(&self.state, &self.key, old_key.as_ref(), plan, unix_now_s()).map_err(refused)?;
        report.notes.extend_from_slice(skipped);
        Ok((plan.pool.id, plan.pool.name.clone(), report))
    }

    pub fn grants(&self, options: &ShareOptions) -> Result<Option<Vec<(Sid, ShareAccess)>>, ApiError> {
        let grant = |grant: &api::requests::Grant| {
            self.accounts().sid_of(&grant.who).map(|sid| (sid, grant.access)).map_err(refused)
        };
        options.access.as_ref().map(|grants| grants.iter().map(grant).collect()).transpose()
    }
}

/// An importable pool, as read from its disks. Reading them may take long: only the import waits for
/// it.
pub(super) struct Import {
    plan: import::Plan,
    /// The key of the server that had the pool, if the administrator named it.
    old_key: Option<SealKey>,
    /// Skipped disks, with the reason.
    skipped: Vec<String>,
}

impl Import {
    pub fn read(
        book: &AccountBook,
        request: &ImportPool,
        named: &[PathBuf],
        search: &[PathBuf],
    ) -> Result<Self, ApiError> {
        let key_file = request.key_file.as_deref().map(absolute).transpose().map_err(refused_place)?;
        let old_key = key_file.map(|path| SealKey::open_existing(&path)).transpose();
        let old_key = old_key.map_err(|error| refused(error.into()))?;
        let places = book.in_effect.get(Config::disk_places);
        let found = discover(named, search, |path| places.check_found(path));
        let wanted = Wanted {
            pool: request.pool.clone(),
            rename: request.rename.clone(),
            confirm: request.confirm.clone(),
            accept_missing: request.accept_missing,
        };
        let places: Vec<String> = named.iter().chain(search).map(|path| path.display().to_string()).collect();
        let plan = import::plan(&found.disks, &wanted, &places.join(", ")).map_err(|error| {
            let kind = match error {
                ImportError::Nothing(_) | ImportError::NotFound(..) => ErrorKind::NotFound,
                ImportError::Several(_) => ErrorKind::Invalid,
                ImportError::NoRecords(..) | ImportError::Damaged(..) | ImportError::Impossible { .. } => {
                    ErrorKind::Corrupt
                }
                ImportError::NotExported { .. } => ErrorKind::ConfirmationNeeded,
                ImportError::TwoHistories { .. }
                | ImportError::TooFewDisks { .. }
                | ImportError::Copies { .. }
                | ImportError::Beyond { .. } => ErrorKind::Conflict,
            };
            ApiError::new(kind, format!("{error}{}", found.why_skipped()))
        })?;
        Ok(Self { plan, old_key, skipped: found.skipped })
    }
}

/// The report of an import for the administrator.
pub(super) fn imported(name: String, report: import::Report, not_served: Vec<String>) -> ImportedPool {
    let import::Report { volumes, shares, users, passwords_lost, missing_disks, administrators, notes } =
        report;
    ImportedPool {
        name,
        volumes,
        shares,
        users,
        passwords_lost,
        missing_disks,
        not_served,
        administrators,
        notes,
    }
}

/// Changes the settings that the options name.
pub(super) fn apply(share: &mut Share, options: ShareOptions, access: Option<Vec<(Sid, ShareAccess)>>) {
    let ShareOptions {
        comment,
        access: _,
        durability,
        read_only,
        continuously_available,
        scale_out,
        encrypt,
        access_based_enumeration,
        caching,
    } = options;
    share.comment = comment.unwrap_or_else(|| std::mem::take(&mut share.comment));
    share.access = access.unwrap_or_else(|| std::mem::take(&mut share.access));
    share.durability = durability.unwrap_or(share.durability);
    share.read_only = read_only.unwrap_or(share.read_only);
    share.continuously_available = continuously_available.unwrap_or(share.continuously_available);
    share.scale_out = scale_out.unwrap_or(share.scale_out);
    share.encrypt = encrypt.unwrap_or(share.encrypt);
    share.access_based_enumeration = access_based_enumeration.unwrap_or(share.access_based_enumeration);
    share.caching = caching.unwrap_or(share.caching);
}
