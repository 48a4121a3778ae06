//! The route that has a pool's disks filled evenly.

use super::{Json, Name, Query, Reply, audited, only, same};
use crate::access::Routes;
use crate::management::{ApiError, RebalanceStep};
use crate::model::Pool;
use crate::peer::{Peer, Shared};
use crate::rebalancing::Rebalance;
use crate::requests::Started;
use axum::extract::State;
use serde::Deserialize;
use types::PoolId;
use utoipa_axum::routes;

/// `?local=true` selects this server's part.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default)]
    local: bool,
}

/// Evens out the fill of the pool's disks, by the volumes of all servers one after the other; answers the job.
#[utoipa::path(post, path = "/pools/{name}/rebalance", params(("name" = String, Path), ("local" = Option<bool>, Query)), responses((status = OK, description = "The job that moves data", body = Started)))]
async fn rebalance_pool(
    State(m): State<Shared>,
    peer: Peer,
    Name(name): Name<String>,
    Query(Part { local }): Query<Part>,
) -> Reply<Started> {
    let pools = m.figures().await?.pools;
    let Json(Pool { id: pool, .. }) = only(pools, "pool", &name, |one| same(&one.name, &name))?;
    audited(&m, peer, "pool rebalance", &name, Box::pin(begin(&m, pool, &name, local))).await
}

async fn begin(m: &Shared, pool: PoolId, name: &str, local: bool) -> Result<Started, ApiError> {
    // A server alone has all volumes.
    let is_whole = !local && m.cluster().own().is_some();
    let job = match is_whole {
        true => Rebalance { management: m.clone(), pool, name: name.to_owned() }.begin().await?,
        false => m.rebalance_pool(RebalanceStep::Own(pool)).await?.job,
    };
    Ok(Started { job })
}

pub(super) fn router() -> Routes {
    Routes::new().operator(routes!(rebalance_pool))
}
