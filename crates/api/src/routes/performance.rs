//! What clients asked of the server.

use super::{Json, Reply, part};
use crate::access::Routes;
use crate::latency::{ClientLatency, Percentiles};
use crate::management::{ApiError, ErrorKind};
use crate::model::Performance;
use crate::peer::Shared;
use crate::seconds::LastSecond;
use axum::extract::State;
use std::time::Instant;
use utoipa_axum::routes;

/// Tells what clients asked of the server since the start.
#[utoipa::path(get, path = "/perf", responses((status = OK, description = "Totals since the start", body = Performance)))]
async fn perf(State(m): State<Shared>) -> Reply<Performance> {
    part(&m, |snapshot| snapshot.performance).await
}

/// Tells what was counted up to both ends of the last second: the same to all who ask in one second.
#[utoipa::path(get, path = "/perf/second", responses((status = OK, description = "Totals at both ends", body = LastSecond)))]
async fn last_second(State(m): State<Shared>) -> Reply<LastSecond> {
    let none = || ApiError::new(ErrorKind::Unavailable, "the server was not looked at in the last second");
    m.seconds().last(Instant::now()).map(Json).ok_or_else(none)
}

/// Lists how long reads and writes of each client took since it was first seen. Those of more clients than are kept apart are one, without a name.
#[utoipa::path(get, path = "/perf/clients", responses((status = OK, description = "Clients that have had a session, and their times", body = [ClientLatency])))]
async fn clients(State(m): State<Shared>) -> Reply<Vec<ClientLatency>> {
    let figures = m.figures().await?;
    let told = figures.clients.iter().map(|client| ClientLatency {
        client: client.client.clone(),
        sessions: client.sessions,
        latency: Percentiles::between(&Default::default(), &client.latency),
    });
    Ok(Json(told.collect()))
}

pub(super) fn router() -> Routes {
    Routes::new().reader(routes!(perf)).reader(routes!(last_second)).reader(routes!(clients))
}
