//! Figures of clients' work on the server.

use super::{Json, Reply};
use crate::access::Routes;
use crate::latency::{ClientLatency, Percentiles};
use crate::management::{ApiError, ErrorKind};
use crate::model::ClusterPerformance;
use crate::peer::Shared;
use crate::seconds::{ClusterSecond, ServerActivity};
use axum::extract::State;
use std::time::Instant;
use utoipa_axum::routes;

/// Shows the counters of clients' requests to the servers since the start of each.
#[utoipa::path(get, path = "/perf", responses((status = OK, description = "Totals since the start", body = ClusterPerformance)))]
async fn perf(State(m): State<Shared>) -> Reply<ClusterPerformance> {
    let total = m.figures().await?.performance;
    Ok(Json(ClusterPerformance { total, servers: Vec::new() }))
}

/// Shows the counters at both ends of the last second: the same to all callers in one second.
#[utoipa::path(get, path = "/perf/second", responses((status = OK, description = "Totals at both ends", body = ClusterSecond)))]
async fn last_second(State(m): State<Shared>) -> Reply<ClusterSecond> {
    let last = m.seconds().last(Instant::now()).ok_or_else(not_looked_at)?;
    Ok(Json(ClusterSecond { total: last, servers: Vec::new() }))
}

fn not_looked_at() -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the server was not looked at in the last second")
}

/// Shows this server's activity in the last second: shares, clients, sessions and disks, in counts that
/// can be added to other servers'.
#[utoipa::path(get, path = "/perf/activity", responses((status = OK, description = "The last second of this server", body = ServerActivity)))]
async fn activity(State(m): State<Shared>) -> Reply<ServerActivity> {
    Ok(Json(m.seconds().last_activity(Instant::now()).ok_or_else(not_looked_at)?))
}

/// Lists read and write latencies by client since first seen; clients beyond the limit share an entry.
#[utoipa::path(get, path = "/perf/clients", responses((status = OK, description = "Clients that have had a session, and their times", body = [ClientLatency])))]
async fn clients(State(m): State<Shared>) -> Reply<Vec<ClientLatency>> {
    let figures = m.figures().await?;
    let told = figures.clients.iter().map(|client| ClientLatency {
        server: None,
        client: client.client.clone(),
        sessions: client.sessions,
        latency: Percentiles::between(&Default::default(), &client.latency),
    });
    Ok(Json(told.collect()))
}

pub(super) fn router() -> Routes {
    Routes::new()
        .reader(routes!(perf))
        .reader(routes!(last_second))
        .reader(routes!(activity))
        .reader(routes!(clients))
}
