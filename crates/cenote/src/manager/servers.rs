//! The server of a cluster that can carry out a request.

use super::Manager;
use super::refusals::{no_such, same};
use crate::control::FileCommand;
use api::{ApiError, ErrorKind, Subject};
use node::jobs::JobId;
use records::{ClusterRecord, DiskRecord, NodeRecord, State, StateError, Typed, VolumeRecord, nodes};
use std::time::{Duration, Instant};
use types::{NodeId, VolumeId};

/// Timeout of this server's following of another one's change.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn unavailable(error: StateError) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, error.to_string())
}

impl Manager {
    /// Returns the self-relative security descriptor of a path in a share.
    ///
    /// # Errors
    /// If there is no such share or file, or its volume does not answer.
    pub async fn descriptor(&self, share: &str, path: &str) -> Result<Vec<u8>, ApiError> {
        let (volume, path) = self.in_share(share, path)?;
        let described = self.call(|reply| FileCommand::QuerySecurity { volume, path, reply }).await?;
        Ok(described.descriptor)
    }

    /// Volume and path behind a path in a share.
    pub(super) fn in_share(&self, share: &str, path: &str) -> Result<(VolumeId, String), ApiError> {
        let directory = self.accounts.directory.current();
        let share = directory.share(share).ok_or_else(|| no_such("share", share))?;
        let names: Vec<&str> =
            share.path.split('\\').chain(path.split(['\\', '/'])).filter(|name| !name.is_empty()).collect();
        if names.iter().any(|name| matches!(*name, "." | "..")) {
            return Err(ApiError::new(
                ErrorKind::Invalid,
                format!("'{path}' holds . or ..: write the path out"),
            ));
        }
        Ok((share.volume, names.join("\\")))
    }

    /// Returns the name of another server if only that one can act on `what`. `None`: this one acts, or
    /// gives a reason to refuse objects that are unknown, and others' while the state does not answer.
    pub(super) async fn server_of(&self, what: Subject) -> Result<Option<String>, ApiError> {
        let what = match what {
            Subject::Share(name) => {
                self.catch_up_with_share(&name).await;
                let directory = self.accounts.directory.current();
                let Some(share) = directory.share(&name) else { return Ok(None) };
                Owned::VolumeId(share.volume)
            }
            Subject::Volume(name) => Owned::Volume(name),
            Subject::Disk(id) => Owned::Disk(id),
            Subject::Job(number) => return self.server_of_job(JobId(number)).await,
        };
        let Some(own) = self.cluster.own() else { return Ok(None) };
        let state = self.accounts.state.clone();
        let found = tokio::task::spawn_blocking(move || owner_of(&state, &what, own));
        let found =
            found.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the look was interrupted"))?;
        Ok(found.unwrap_or_else(|error| {
            tracing::debug!(%error, "it is not known which server has what is asked for");
            None
        }))
    }

    /// The name of the server whose number the job has, if that is another one. Fails if the name is
    /// unknown: another server's job is never searched among this one's.
    async fn server_of_job(&self, job: JobId) -> Result<Option<String>, ApiError> {
        let Some(own) = self.cluster.own() else { return Ok(None) };
        let Some(server) = job.server().filter(|server| *server != own) else { return Ok(None) };
        let state = self.accounts.state.clone();
        let looked =
            tokio::task::spawn_blocking(move || state.read::<NodeRecord>(&NodeRecord::id_of(server)));
        let interrupted = |_| ApiError::new(ErrorKind::Internal, "the look was interrupted");
        let node = looked.await.map_err(interrupted)?.map_err(unavailable)?;
        let member = node.filter(|node| node.value.is_member()).map(|node| node.value.name);
        member.map(Some).ok_or_else(|| {
            let why = format!(
                "there is no job '{job}': the cluster has no server {server}, whose number it carries"
            );
            ApiError::new(ErrorKind::NotFound, why)
        })
    }

    /// Finds a volume by the records whose name this server does not know: another server may have made it
    /// a moment ago, and the next command comes here. Waits until this server has followed.
    pub(super) async fn recorded_volume(&self, name: &str) -> Result<VolumeId, ApiError> {
        let Some(volume) = self.find_recorded(name).await? else { return Err(no_such("volume", name)) };
        self.await_followed(name, true).await?;
        Ok(volume)
    }

    /// Returns whether the records still have a volume of this name: another server may just have deleted
    /// it.
    pub(super) async fn is_recorded_still(&self, name: &str) -> Result<bool, ApiError> {
        if self.cluster.own().is_none() || self.find_recorded(name).await?.is_some() {
            return Ok(true);
        }
        self.await_followed(name, false).await?;
        Ok(false)
    }

    async fn find_recorded(&self, name: &str) -> Result<Option<VolumeId>, ApiError> {
        if self.cluster.own().is_none() {
            return Ok(None);
        }
        let wanted = name.to_owned();
        let found = self.read(move |book| {
            let all = book.state.list::<VolumeRecord>().map_err(unavailable)?;
            Ok(all.into_iter().find(|volume| same(&volume.value.name, &wanted)).map(|found| found.value.id))
        });
        found.await
    }

    /// Waits until this server knows the volume, or no longer knows it.
    async fn await_followed(&self, name: &str, is_there: bool) -> Result<(), ApiError> {
        let until = Instant::now() + FOLLOWED_WITHIN;
        while self.look().await?.volumes.iter().any(|volume| same(&volume.name, name)) != is_there {
            if Instant::now() >= until {
                let why = format!(
                    "another server has changed volume '{name}', and this one has not followed yet: try again"
                );
                return Err(ApiError::new(ErrorKind::Unavailable, why));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Rereads the shares if one of this name is unknown here, for the same reason.
    pub(super) async fn catch_up_with_share(&self, name: &str) {
        if self.cluster.own().is_some() && self.accounts.directory.current().share(name).is_none() {
            // If the records cannot be read, the answer is that of the known ones.
            let _ = self.refresh().await;
        }
    }

    /// Refuses a command that only a single server can carry out.
    pub(super) async fn demand_single_server(&self, command: &str) -> Result<(), ApiError> {
        let state = self.accounts.state.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let cluster = ClusterRecord::find(&state).map_err(unavailable)?;
            let count = nodes::members(&state).map_err(unavailable)?.len();
            Ok::<_, ApiError>(cluster.map(|cluster| (cluster.value.name, count)))
        });
        let found =
            looked.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the look was interrupted"))??;
        let Some((name, count)) = found else { return Ok(()) };
        let message = format!(
            "{command} is for a single server, and this one is in cluster {name} with {count} servers: a pool of a cluster lies on all of them. \
             Nothing was changed. Data leaves a cluster by copying it (`cenote smb get`), and a server by `cenote node drain`"
        );
        Err(ApiError::new(ErrorKind::Conflict, message))
    }
}

enum Owned {
    Disk(types::DiskId),
    Volume(String),
    VolumeId(types::VolumeId),
}

/// Returns the name of the owning server, if that is in the cluster and not `own`.
fn owner_of(state: &State, what: &Owned, own: NodeId) -> Result<Option<String>, StateError> {
    let owner = match what {
        Owned::Disk(id) => state.read::<DiskRecord>(&id.to_string())?.and_then(|record| record.value.node),
        Owned::VolumeId(id) => {
            state.read::<VolumeRecord>(&id.to_string())?.and_then(|record| record.value.owner)
        }
        Owned::Volume(name) => {
            let all = state.list::<VolumeRecord>()?;
            all.into_iter().find(|volume| same(&volume.value.name, name)).and_then(|found| found.value.owner)
        }
    };
    let Some(owner) = owner.filter(|owner| *owner != own) else { return Ok(None) };
    let node = state.read::<NodeRecord>(&NodeRecord::id_of(owner))?;
    Ok(node.filter(|node| node.value.is_member()).map(|node| node.value.name))
}
