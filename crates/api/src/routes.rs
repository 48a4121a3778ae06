//! The routes under `/api/v1`, and their calls of the daemon.
//!
//! Promises: every changing request leaves a line in the audit log before it is answered, done, failed
//! or refused. Never decides: that is the daemon's.

mod accounts;
mod freeing;
mod nodes;
mod performance;
mod rebalancing;
mod tokens;

use crate::access::Routes;
use crate::audit::Outcome;
use crate::caller::Role;
use crate::lists;
use crate::management::{Answer, ApiError, ErrorKind};
use crate::model::{
    Configuration, Disk, HealthReport, Job, OpenFile, Pool, QuotaReport, QuotaView, Rdma, RdmaTrace, Session,
    Snapshot, Volume, VolumeDamage,
};
use crate::peer::{Peer, Shared};
use crate::requests::{
    AclChanged, AclView, AddDisk, CheckVolume, CreatePool, CreateShare, CreateVolume, Created, ImportPool,
    ImportedPool, LocateDisk, LocatedDisk, QuotaBounds, Replaced, SetAcl, SetPool, SetQuotas, SetVolume,
    ShareOptions, ShareView, Started, TestedReceiver,
};
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use types::DiskId;
use utoipa_axum::routes;

/// Extractors whose refusals are JSON like all others.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(ApiError))]
struct Body<T>(T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
struct Name<T>(T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
struct Query<T>(T);

struct Json<T>(T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self)).into_response()
    }
}

macro_rules! refusals {
    ($($rejection:ty),*) => {
        $(impl From<$rejection> for ApiError {
            fn from(rejection: $rejection) -> Self {
                Self::new(ErrorKind::Invalid, rejection.body_text())
            }
        })*
    };
}
refusals!(JsonRejection, PathRejection, QueryRejection);

type Reply<T> = Result<Json<T>, ApiError>;

/// Waits for a changing request and writes its entry to the audit log.
async fn audited<T>(
    management: &Shared,
    peer: Peer,
    action: &str,
    target: &str,
    answer: Answer<'_, T>,
) -> Reply<T> {
    let result = answer.await;
    let (outcome, detail) = match &result {
        Ok(_) => (Outcome::Done, ""),
        Err(error) => (Outcome::Failed, error.message.as_str()),
    };
    peer.audit(management, action, target, outcome, detail);
    result.map(Json)
}

/// `?confirm=NAME` of destructive requests (I8).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirm {
    confirm: Option<String>,
}

impl Confirm {
    fn check(
        &self,
        management: &Shared,
        peer: &Peer,
        action: &str,
        kind: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        if self.confirm.as_deref() == Some(name) {
            return Ok(());
        }
        let message = format!("this destroys {kind} '{name}'; confirm it by its name (?confirm={name})");
        peer.audit(management, action, name, Outcome::Refused, "not confirmed by name");
        Err(ApiError::new(ErrorKind::ConfirmationNeeded, message))
    }
}

/// Returns a part of everything that can be shown, except clients' opens.
async fn part<T>(management: &Shared, take: impl FnOnce(Snapshot) -> T) -> Reply<T> {
    Ok(Json(take(*management.figures().await?)))
}

/// Returns the element for which `is` holds.
fn only<T>(all: Vec<T>, kind: &str, name: &str, is: impl Fn(&T) -> bool) -> Reply<T> {
    let found = all.into_iter().find(is).map(Json);
    found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, format!("there is no {kind} '{name}'")))
}

/// Compares names, ignoring case.
fn same(left: &str, right: &str) -> bool {
    left.to_lowercase() == right.to_lowercase()
}

// --- Disks and pools ------------------------------------------------------------------------------------------------

/// Lists the disks.
#[utoipa::path(get, path = "/disks", responses((status = OK, description = "All disks of all pools", body = Vec<Disk>)))]
async fn disks(State(m): State<Shared>) -> Reply<Vec<Disk>> {
    part(&m, |snapshot| snapshot.disks).await
}

/// Shows one disk.
#[utoipa::path(get, path = "/disks/{id}", params(("id" = String, Path)), responses((status = OK, description = "The disk", body = Disk)))]
async fn disk(State(m): State<Shared>, Name(id): Name<DiskId>) -> Reply<Disk> {
    let all = m.figures().await?.disks;
    only(all, "disk", &id.to_string(), |one| one.id == id)
}

/// Adds a disk that holds nothing to a pool.
#[utoipa::path(post, path = "/disks", request_body = AddDisk, responses((status = OK, description = "The new disk", body = Created)))]
async fn add_disk(State(m): State<Shared>, peer: Peer, Body(body): Body<AddDisk>) -> Reply<Created> {
    let (path, by) = (body.path.clone(), peer.caller.role());
    let Json(id) = audited(&m, peer, "disk add", &path, m.add_disk(body, by)).await?;
    Ok(Json(Created { id: id.to_string(), name: path }))
}

/// Moves everything off the disk; answers the job.
#[utoipa::path(post, path = "/disks/{id}/retire", params(("id" = String, Path)), responses((status = OK, description = "The job that moves everything off the disk", body = Started)))]
async fn retire_disk(State(m): State<Shared>, peer: Peer, Name(id): Name<DiskId>) -> Reply<Started> {
    audited(&m, peer, "disk retire", &id.to_string(), m.retire_disk(id)).await
}

/// The disk may be given slabs again.
#[utoipa::path(delete, path = "/disks/{id}/retire", params(("id" = String, Path)), responses((status = OK, description = "Done")))]
async fn unretire_disk(State(m): State<Shared>, peer: Peer, Name(id): Name<DiskId>) -> Reply<()> {
    audited(&m, peer, "disk retire --undo", &id.to_string(), m.unretire_disk(id)).await
}

/// Adds an empty disk, and moves all data off the old one, which then leaves the pool.
#[utoipa::path(post, path = "/disks/{id}/replace", params(("id" = String, Path)), request_body = AddDisk, responses((status = OK, description = "The new disk, and the job that moves everything to it", body = Replaced)))]
async fn replace_disk(
    State(m): State<Shared>,
    peer: Peer,
    Name(id): Name<DiskId>,
    Body(body): Body<AddDisk>,
) -> Reply<Replaced> {
    let (target, by) = (format!("{id} by {}", body.path), peer.caller.role());
    audited(&m, peer, "disk replace", &target, m.replace_disk(id, body, by)).await
}

/// Switches the LED of the disk's slot, and says how to find the disk.
#[utoipa::path(post, path = "/disks/{id}/locate", params(("id" = String, Path)), request_body = LocateDisk, responses((status = OK, description = "How to find the disk", body = LocatedDisk)))]
async fn locate_disk(
    State(m): State<Shared>,
    peer: Peer,
    Name(id): Name<DiskId>,
    Body(body): Body<LocateDisk>,
) -> Reply<LocatedDisk> {
    audited(&m, peer, "disk locate", &id.to_string(), m.locate_disk(id, body.on)).await
}

/// Shows one pool.
#[utoipa::path(get, path = "/pools/{name}", params(("name" = String, Path)), responses((status = OK, description = "The pool", body = Pool)))]
async fn pool(State(m): State<Shared>, Name(name): Name<String>) -> Reply<Pool> {
    let all = m.figures().await?.pools;
    only(all, "pool", &name, |one| same(&one.name, &name))
}

/// Changes a pool's reserve for repair.
#[utoipa::path(patch, path = "/pools/{name}", params(("name" = String, Path)), request_body = SetPool, responses((status = OK, description = "Done")))]
async fn set_pool(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<SetPool>,
) -> Reply<()> {
    audited(&m, peer, "pool set", &name, m.set_pool(name.clone(), body)).await
}

/// Lists the pools.
#[utoipa::path(get, path = "/pools", responses((status = OK, description = "All pools", body = Vec<Pool>)))]
async fn pools(State(m): State<Shared>) -> Reply<Vec<Pool>> {
    part(&m, |snapshot| snapshot.pools).await
}

/// Makes a pool of disks that hold nothing.
#[utoipa::path(post, path = "/pools", request_body = CreatePool, responses((status = OK, description = "The new pool", body = Created)))]
async fn create_pool(State(m): State<Shared>, peer: Peer, Body(body): Body<CreatePool>) -> Reply<Created> {
    let (name, by) = (body.name.clone(), peer.caller.role());
    let Json(id) = audited(&m, peer, "pool create", &name, m.create_pool(body, by)).await?;
    Ok(Json(Created { id: id.to_string(), name }))
}

/// Exports the pool, so that another server can import it; `confirm` must be its name.
#[utoipa::path(post, path = "/pools/{name}/export", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "Done")))]
async fn export_pool(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<()> {
    if confirm.confirm.as_deref() != Some(name.as_str()) {
        peer.audit(&m, "pool export", &name, Outcome::Refused, "not confirmed by name");
        return Err(ApiError::new(
            ErrorKind::ConfirmationNeeded,
            format!(
                "this takes pool '{name}', its volumes and shares off this server; confirm it by its name (?confirm={name})"
            ),
        ));
    }
    audited(&m, peer, "pool export", &name, m.export_pool(name.clone())).await
}

/// Brings a pool back from its disks: an exported one, or one whose server lost its state.
#[utoipa::path(post, path = "/pool-imports", request_body = ImportPool, responses((status = OK, description = "What came with the pool", body = ImportedPool)))]
async fn import_pool(
    State(m): State<Shared>,
    peer: Peer,
    Body(body): Body<ImportPool>,
) -> Reply<ImportedPool> {
    let target = body.pool.clone().unwrap_or_else(|| body.disks.join(" "));
    audited(&m, peer, "pool import", &target, m.import_pool(body)).await
}

// --- Volumes --------------------------------------------------------------------------------------------------------

/// Lists the volumes.
#[utoipa::path(get, path = "/volumes", responses((status = OK, description = "All volumes", body = Vec<Volume>)))]
async fn volumes(State(m): State<Shared>) -> Reply<Vec<Volume>> {
    part(&m, |snapshot| snapshot.volumes).await
}

/// Shows one volume.
#[utoipa::path(get, path = "/volumes/{name}", params(("name" = String, Path)), responses((status = OK, description = "The volume", body = Volume)))]
async fn volume(State(m): State<Shared>, Name(name): Name<String>) -> Reply<Volume> {
    let all = m.figures().await?.volumes;
    only(all, "volume", &name, |one| same(&one.name, &name))
}

/// Makes a volume.
#[utoipa::path(post, path = "/volumes", request_body = CreateVolume, responses((status = OK, description = "The new volume", body = Created)))]
async fn create_volume(
    State(m): State<Shared>,
    peer: Peer,
    Body(body): Body<CreateVolume>,
) -> Reply<Created> {
    let name = body.name.clone();
    let Json(id) = audited(&m, peer, "volume create", &name, m.create_volume(body)).await?;
    Ok(Json(Created { id: id.to_string(), name }))
}

/// Changes a volume: it grows, or health warns of it at another fill.
#[utoipa::path(patch, path = "/volumes/{name}", params(("name" = String, Path)), request_body = SetVolume, responses((status = OK, description = "Done")))]
async fn set_volume(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<SetVolume>,
) -> Reply<()> {
    let action = if body.size_bytes.is_some() { "volume resize" } else { "volume set" };
    audited(&m, peer, action, &name, m.set_volume(name.clone(), body)).await
}

/// Destroys a volume and all data on it; `confirm` must be its name.
#[utoipa::path(delete, path = "/volumes/{name}", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "Done")))]
async fn delete_volume(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<()> {
    confirm.check(&m, &peer, "volume delete", "volume", &name)?;
    audited(&m, peer, "volume delete", &name, m.delete_volume(name.clone())).await
}

/// Compares metadata, allocation and copies; answers the job.
#[utoipa::path(post, path = "/volumes/{name}/check", params(("name" = String, Path)), request_body = CheckVolume, responses((status = OK, description = "The job that compares", body = Started)))]
async fn check_volume(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<CheckVolume>,
) -> Reply<Started> {
    if body.repair {
        // A repair decides which of two copies stays.
        let lacking = peer.caller.lacks(Role::Administrator);
        lacking.map_or(Ok(()), |why| Err(ApiError::new(ErrorKind::Forbidden, why)))?;
    }
    if body.repair && body.confirm.as_deref() != Some(name.as_str()) {
        peer.audit(&m, "volume repair", &name, Outcome::Refused, "not confirmed by name");
        return Err(ApiError::new(
            ErrorKind::ConfirmationNeeded,
            format!(
                "this overwrites copies of blocks of volume '{name}'; confirm it by its name (\"confirm\": \"{name}\")"
            ),
        ));
    }
    audited(
        &m,
        peer,
        if body.repair { "volume repair" } else { "volume check" },
        &name,
        m.check_volume(name.clone(), body),
    )
    .await
}

/// Lists the parts of the volume without an intact copy, by file.
#[utoipa::path(get, path = "/volumes/{name}/damage", params(("name" = String, Path)), responses((status = OK, description = "Damaged files", body = VolumeDamage)))]
async fn volume_damage(State(m): State<Shared>, Name(name): Name<String>) -> Reply<VolumeDamage> {
    m.volume_damage(name).await.map(Json)
}

/// The volume's quotas by owner.
#[utoipa::path(get, path = "/volumes/{name}/quotas", params(("name" = String, Path)), responses((status = OK, description = "Settings, \
    and each user's use and limits", body = QuotaReport)))]
async fn quotas(State(m): State<Shared>, Name(name): Name<String>) -> Reply<QuotaReport> {
    m.quotas(name, None).await.map(Json)
}

/// Turns quotas on or off, and sets the bounds of users without their own.
#[utoipa::path(patch, path = "/volumes/{name}/quotas", params(("name" = String, Path)), request_body = SetQuotas, responses((status = OK, description = "Done")))]
async fn set_quotas(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<SetQuotas>,
) -> Reply<()> {
    audited(&m, peer, "quota settings", &name, m.set_quotas(name.clone(), body)).await
}

/// Shows one user's quota; a user without one has the volume's defaults.
#[utoipa::path(get, path = "/volumes/{name}/quotas/{user}", params(("name" = String, Path), ("user" = String, Path)), responses((status = OK, description = "The user's use and bounds", body = QuotaView)))]
async fn quota(State(m): State<Shared>, Name((name, user)): Name<(String, String)>) -> Reply<QuotaView> {
    let report = m.quotas(name, Some(user)).await?;
    let found = report.users.into_iter().next();
    found.map(Json).ok_or_else(|| ApiError::new(ErrorKind::Internal, "the volume answered no quota"))
}

/// Sets a user's own bounds.
#[utoipa::path(put, path = "/volumes/{name}/quotas/{user}", params(("name" = String, Path), ("user" = String, Path)), request_body = QuotaBounds, responses((status = OK, description = "Done")))]
async fn set_quota(
    State(m): State<Shared>,
    peer: Peer,
    Name((name, user)): Name<(String, String)>,
    Body(body): Body<QuotaBounds>,
) -> Reply<()> {
    let target = format!("{name} {user}");
    audited(&m, peer, "quota set", &target, m.set_quota(name, user, Some(body))).await
}

/// Takes a user's own bounds away: the volume's defaults hold.
#[utoipa::path(delete, path = "/volumes/{name}/quotas/{user}", params(("name" = String, Path), ("user" = String, Path)), responses((status = OK, description = "Done")))]
async fn remove_quota(
    State(m): State<Shared>,
    peer: Peer,
    Name((name, user)): Name<(String, String)>,
) -> Reply<()> {
    let target = format!("{name} {user}");
    audited(&m, peer, "quota remove", &target, m.set_quota(name, user, None)).await
}

// --- Shares and their ACLs ------------------------------------------------------------------------------------------

/// Lists the shares.
#[utoipa::path(get, path = "/shares", responses((status = OK, description = "All shares", body = Vec<ShareView>)))]
async fn shares(State(m): State<Shared>) -> Reply<Vec<ShareView>> {
    m.shares().await.map(Json)
}

/// Shows one share.
#[utoipa::path(get, path = "/shares/{name}", params(("name" = String, Path)), responses((status = OK, description = "The share", body = ShareView)))]
async fn share(State(m): State<Shared>, Name(name): Name<String>) -> Reply<ShareView> {
    let all = m.shares().await?;
    only(all, "share", &name, |one| same(&one.name, &name))
}

/// Makes a share of a directory of a volume.
#[utoipa::path(post, path = "/shares", request_body = CreateShare, responses((status = OK, description = "Done")))]
async fn create_share(State(m): State<Shared>, peer: Peer, Body(body): Body<CreateShare>) -> Reply<()> {
    let name = body.name.clone();
    audited(&m, peer, "share create", &name, m.create_share(body)).await
}

/// Changes options of a share.
#[utoipa::path(patch, path = "/shares/{name}", params(("name" = String, Path)), request_body = ShareOptions, responses((status = OK, description = "Done")))]
async fn set_share(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Body(body): Body<ShareOptions>,
) -> Reply<()> {
    audited(&m, peer, "share set", &name, m.set_share(name.clone(), body)).await
}

/// Takes the share away; the files stay on the volume. `confirm` must be its name.
#[utoipa::path(delete, path = "/shares/{name}", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "Done")))]
async fn delete_share(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<()> {
    confirm.check(&m, &peer, "share delete", "share", &name)?;
    audited(&m, peer, "share delete", &name, m.delete_share(name.clone())).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AclPath {
    #[serde(default)]
    path: String,
}

/// The security descriptor of a file or directory; `path` from the share's root, `\` between names.
#[utoipa::path(get, path = "/shares/{name}/acl", params(("name" = String, Path), ("path" = Option<String>, Query)), responses((status = OK, description = "Owner, group and entries", body = AclView)))]
async fn acl(State(m): State<Shared>, Name(name): Name<String>, Query(at): Query<AclPath>) -> Reply<AclView> {
    m.acl(name, at.path).await.map(Json)
}

/// Changes the security descriptor of a file or directory.
#[utoipa::path(patch, path = "/shares/{name}/acl", params(("name" = String, Path), ("path" = Option<String>, Query)), request_body = SetAcl, responses((status = OK, description = "Changed; \
    files and directories below follow in a job", body = AclChanged)))]
async fn set_acl(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(at): Query<AclPath>,
    Body(body): Body<SetAcl>,
) -> Reply<AclChanged> {
    let target = format!(r"{name}\{}", at.path);
    audited(&m, peer, "acl set", &target, m.set_acl(name, at.path, body)).await
}

// --- Running work
// ---------------------------------------------------------------------------------------------------

/// Lists the sessions of clients.
#[utoipa::path(get, path = "/sessions", responses((status = OK, description = "All sessions", body = Vec<Session>)))]
async fn sessions(State(m): State<Shared>) -> Reply<Vec<Session>> {
    part(&m, |snapshot| snapshot.sessions).await
}

/// Shows one session.
#[utoipa::path(get, path = "/sessions/{id}", params(("id" = u64, Path)), responses((status = OK, description = "The session", body = Session)))]
async fn session(State(m): State<Shared>, Name(id): Name<u64>) -> Reply<Session> {
    let all = m.figures().await?.sessions;
    only(all, "session", &id.to_string(), |one| one.id == id)
}

/// Ends a session and closes its files.
#[utoipa::path(delete, path = "/sessions/{id}", params(("id" = u64, Path)), responses((status = OK, description = "Done")))]
async fn close_session(State(m): State<Shared>, peer: Peer, Name(id): Name<u64>) -> Reply<()> {
    audited(&m, peer, "session close", &id.to_string(), m.close_session(id)).await
}

/// Shows the RDMA devices and listeners, and the load of connections.
#[utoipa::path(get, path = "/rdma", responses((status = OK, description = "Interfaces, devices, listeners, connections and counters", body = Rdma)))]
async fn rdma(State(m): State<Shared>) -> Reply<Rdma> {
    Ok(Json(m.rdma().await?))
}

/// The last protocol events of a connection over SMB Direct.
#[utoipa::path(get, path = "/rdma/connections/{id}/trace", params(("id" = u64, Path)), responses((status = OK, description = "Events, the newest last", body = RdmaTrace)))]
async fn rdma_trace(State(m): State<Shared>, Name(id): Name<u64>) -> Reply<RdmaTrace> {
    Ok(Json(m.rdma_trace(id).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilesAfter {
    after: Option<u64>,
    /// `true`: opens of one server only. For middleware, which may have forwarded the request.
    #[serde(rename = "local")]
    _local: Option<bool>,
}

/// Lists clients' opens by number, as many as fit into one answer. If there are more, the header
/// `cenote-more` names the servers that have them (`-`: this one): ask for those `after` the highest
/// number, with the `server` of a cluster.
#[utoipa::path(get, path = "/files", params(("after" = Option<u64>, Query), ("local" = Option<bool>, Query), ("server" = Option<String>, Query)), responses((status = OK, description = "Opens, the lowest numbers first", body = Vec<OpenFile>)))]
async fn files(State(m): State<Shared>, Query(asked): Query<FilesAfter>) -> Result<Response, ApiError> {
    let page = m.opens(asked.after, usize::MAX).await?;
    let more = page.has_more.then(|| vec![lists::OWN.to_owned()]);
    Ok(lists::with_more(Json(page.files).into_response(), &more.unwrap_or_default()))
}

/// Shows one open of a client.
#[utoipa::path(get, path = "/files/{id}", params(("id" = u64, Path)), responses((status = OK, description = "The open", body = OpenFile)))]
async fn file(State(m): State<Shared>, Name(id): Name<u64>) -> Reply<OpenFile> {
    let page = m.opens(id.checked_sub(1), 1).await?;
    only(page.files, "open file", &id.to_string(), |one| one.id == id)
}

/// Closes an open of a client.
#[utoipa::path(delete, path = "/files/{id}", params(("id" = u64, Path)), responses((status = OK, description = "Done")))]
async fn close_file(State(m): State<Shared>, peer: Peer, Name(id): Name<u64>) -> Reply<()> {
    audited(&m, peer, "file close", &id.to_string(), m.close_file(id)).await
}

/// Lists the storage jobs.
#[utoipa::path(get, path = "/jobs", responses((status = OK, description = "Running jobs, and those that ended last", body = Vec<Job>)))]
async fn jobs(State(m): State<Shared>) -> Reply<Vec<Job>> {
    part(&m, |snapshot| snapshot.jobs).await
}

/// Shows one storage job.
#[utoipa::path(get, path = "/jobs/{id}", params(("id" = u64, Path)), responses((status = OK, description = "The job", body = Job)))]
async fn job(State(m): State<Shared>, Name(id): Name<u64>) -> Reply<Job> {
    let all = m.figures().await?.jobs;
    only(all, "job", &id.to_string(), |one| one.id == id)
}

/// Stops a job; completed work stays done.
#[utoipa::path(delete, path = "/jobs/{id}", params(("id" = u64, Path)), responses((status = OK, description = "Done")))]
async fn cancel_job(State(m): State<Shared>, peer: Peer, Name(id): Name<u64>) -> Reply<()> {
    audited(&m, peer, "job cancel", &id.to_string(), m.cancel_job(id)).await
}

/// Resumes a job that was stopped.
#[utoipa::path(post, path = "/jobs/{id}/resume", params(("id" = u64, Path)), responses((status = OK, description = "Done")))]
async fn resume_job(State(m): State<Shared>, peer: Peer, Name(id): Name<u64>) -> Reply<()> {
    audited(&m, peer, "job resume", &id.to_string(), m.resume_job(id)).await
}

/// Lists issues, with their meaning for the data and remedies.
#[utoipa::path(get, path = "/health", responses((status = OK, description = "What is wrong", body = HealthReport)))]
async fn health(State(m): State<Shared>) -> Reply<HealthReport> {
    part(&m, |snapshot| snapshot.health).await
}

/// Shows the configuration in effect: as TOML, or as JSON for `Accept: application/json`.
#[utoipa::path(get, path = "/config", responses((status = OK, description = "Keys and values by section", content(
    (String = "text/plain"), (Configuration = "application/json")
))))]
async fn config(State(m): State<Shared>, headers: HeaderMap) -> Response {
    let wants_json =
        |accept: &HeaderValue| accept.to_str().is_ok_and(|accept| accept.contains("application/json"));
    match headers.get(header::ACCEPT).is_some_and(wants_json) {
        true => Json(m.config_values()).into_response(),
        false => m.config().into_response(),
    }
}

/// Sends each receiver of changes of health a test notice.
#[utoipa::path(post, path = "/alerts/test", responses((status = OK, description = "The outcome of each notice; none if no receiver is set", body = Vec<TestedReceiver>)))]
async fn test_alerts(State(m): State<Shared>, peer: Peer) -> Reply<Vec<TestedReceiver>> {
    audited(&m, peer, "alert test", "", m.test_alerts()).await
}

pub(crate) fn router() -> Routes {
    Routes::new()
        .reader(routes!(disks))
        .operator(routes!(add_disk))
        .reader(routes!(disk))
        .operator(routes!(retire_disk, unretire_disk))
        .operator(routes!(replace_disk))
        .operator(routes!(locate_disk))
        .reader(routes!(pool))
        .operator(routes!(set_pool))
        .merge(freeing::router())
        .reader(routes!(pools))
        .operator(routes!(create_pool))
        .administrator(routes!(export_pool))
        .administrator(routes!(import_pool))
        .merge(rebalancing::router())
        .reader(routes!(volumes))
        .operator(routes!(create_volume))
        .reader(routes!(volume))
        .operator(routes!(set_volume))
        .administrator(routes!(delete_volume))
        .operator(routes!(check_volume))
        .reader(routes!(volume_damage))
        .reader(routes!(shares))
        .operator(routes!(create_share))
        .reader(routes!(share))
        .operator(routes!(set_share, delete_share))
        .reader(routes!(quotas))
        .operator(routes!(set_quotas))
        .reader(routes!(quota))
        .operator(routes!(set_quota, remove_quota))
        .reader(routes!(acl))
        .administrator(routes!(set_acl))
        .merge(accounts::router())
        .merge(tokens::router())
        .reader(routes!(sessions))
        .reader(routes!(session))
        .operator(routes!(close_session))
        .reader(routes!(rdma))
        .reader(routes!(rdma_trace))
        .reader(routes!(files))
        .reader(routes!(file))
        .operator(routes!(close_file))
        .reader(routes!(jobs))
        .reader(routes!(job))
        .operator(routes!(cancel_job))
        .operator(routes!(resume_job))
        .merge(nodes::router())
        .reader(routes!(health))
        .operator(routes!(test_alerts))
        .merge(performance::router())
        .administrator(routes!(config))
}
