//! Routes that free disks, and that acknowledge errors of disks.

use super::{Body, Confirm, Json, Name, Query, Reply, audited};
use crate::access::Routes;
use crate::peer::{Peer, Shared};
use crate::requests::{DeletedPool, EraseDisk, ErasedDisk, ForgetPromises, ForgottenPromises};
use axum::extract::State;
use types::DiskId;
use utoipa_axum::routes;

/// Deletes a pool in which no volume lies: its disks become free. `confirm` must be its name.
#[utoipa::path(delete, path = "/pools/{name}", params(("name" = String, Path), ("confirm" = String, Query)), responses((status = OK, description = "What became of its disks", body = DeletedPool)))]
pub(super) async fn delete_pool(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(confirm): Query<Confirm>,
) -> Reply<DeletedPool> {
    confirm.check(&m, &peer, "pool delete", "pool", &name)?;
    audited(&m, peer, "pool delete", &name, m.delete_pool(name.clone())).await
}

/// Acknowledges the disk's errors so far: health reports only later ones.
#[utoipa::path(post, path = "/disks/{id}/acknowledge", params(("id" = String, Path)), responses((status = OK, description = "Done")))]
pub(super) async fn acknowledge_disk(
    State(m): State<Shared>,
    peer: Peer,
    Name(id): Name<DiskId>,
) -> Reply<()> {
    audited(&m, peer, "disk acknowledge", &id.to_string(), m.acknowledge_disk(id)).await
}

/// Makes a disk forget the promised epochs that no owner of a volume can reach, or accepts an older image
/// of a disk for the chunks that no other disk has; `confirm` must be its ID. Without it the refusal names
/// the volumes.
#[utoipa::path(post, path = "/disks/{id}/forget-promises", params(("id" = String, Path)), request_body = ForgetPromises, responses((status = OK, description = "What it has forgotten", body = ForgottenPromises)))]
pub(super) async fn forget_promises(
    State(m): State<Shared>,
    peer: Peer,
    Name(id): Name<DiskId>,
    Body(body): Body<ForgetPromises>,
) -> Reply<ForgottenPromises> {
    audited(&m, peer, "disk forget-promises", &id.to_string(), m.forget_promises(id, body)).await
}

/// Erases a disk that belongs to no pool of this server; `confirm` must be its path. Without it the
/// refusal names the disk's contents.
#[utoipa::path(post, path = "/disk-erasures", request_body = EraseDisk, responses((status = OK, description = "What the disk held", body = ErasedDisk)))]
pub(super) async fn erase_disk(
    State(m): State<Shared>,
    peer: Peer,
    Body(body): Body<EraseDisk>,
) -> Reply<ErasedDisk> {
    let path = body.path.clone();
    let Json(erased) = audited(&m, peer, "disk erase", &path, m.erase_disk(body)).await?;
    Ok(Json(erased))
}

pub(super) fn router() -> Routes {
    Routes::new()
        .administrator(routes!(delete_pool))
        .operator(routes!(acknowledge_disk))
        .administrator(routes!(forget_promises))
        .administrator(routes!(erase_disk))
}
