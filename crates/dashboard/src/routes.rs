//! Routes for pages beyond the API. They are for pages alone, and may change with them.

use crate::capacity::{PoolTrend, pool_trends};
use crate::events::{AuditEvents, newest};
use crate::fleet::Fleets;
use crate::history::{Columns, Keeper, Span};
use crate::mutes::{Mute, Mutes};
use crate::planning::{Typed, plan};
use crate::pool_history::PoolHistory;
use crate::streams::Streams;
use api::audit::Outcome;
use api::fleet::FleetProgress;
use api::planned::Plan;
use api::{ApiError, ErrorKind, Management, Pages, Peer, Role, Seat};
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use records::clock::unix_now_s;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const AUDIT_FILE: &str = "audit.log";
const MUTES_FILE: &str = "mutes.json";
const POOLS_FILE: &str = "pools.json";

pub struct Shared {
    pub management: Arc<dyn Management>,
    pub server: String,
    pub keeper: Keeper,
    pub streams: Streams,
    pub fleets: Fleets,
    pub mutes: Mutes,
    pub pools: PoolHistory,
    /// Directory of the server's audit log.
    audit: PathBuf,
    /// Plans are made one at a time: one of thousands of drives takes a while.
    planning: tokio::sync::Mutex<()>,
}

impl Shared {
    /// `data`: the server's data directory.
    pub fn new(management: Arc<dyn Management>, server: String, keeper: Keeper, data: &Path) -> Self {
        Self {
            management,
            server,
            keeper,
            streams: Streams::default(),
            fleets: Fleets::default(),
            mutes: Mutes::open(&data.join(MUTES_FILE)),
            pools: PoolHistory::open(&data.join(POOLS_FILE)),
            audit: data.join(AUDIT_FILE),
            planning: tokio::sync::Mutex::default(),
        }
    }
}

/// Adds the routes.
pub fn add_to(pages: Pages, shared: &Arc<Shared>) -> Pages {
    let routes = [
        (Role::Reader, "events", get(events)),
        (Role::Reader, "history", get(history)),
        (Role::Reader, "capacity", get(capacity)),
        // Somebody may have typed a password where a name belongs.
        (Role::Operator, "audit", get(audit)),
        (Role::Operator, "mutes", post(mute)),
        (Role::Reader, "plan", get(planned)),
        (Role::Operator, "fleet", post(fleet)),
    ];
    routes.into_iter().fold(pages, |pages, (role, name, methods)| {
        pages.demanding(role, &format!("/api/v1/dashboard/{name}"), methods.with_state(shared.clone()))
    })
}

/// Streams events until the reader leaves: one at once if a fresh one is there, then one a second.
async fn events(State(shared): State<Arc<Shared>>, seat: Option<Extension<Arc<Seat>>>) -> Response {
    let Some(events) = shared.streams.open(seat.map(|Extension(seat)| seat), Instant::now()) else {
        let message = format!(
            "{} pages of the dashboard are open, as many as there may be: close one",
            crate::streams::STREAMS_MAX
        );
        let mut refusal = ApiError::new(ErrorKind::Unavailable, message).into_response();
        // The connection has nothing more to do.
        refusal.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return refusal;
    };
    let headers: HeaderMap = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
    .into_iter()
    .collect();
    (headers, Body::new(events)).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryOf {
    span: String,
}

async fn history(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<HistoryOf>, QueryRejection>,
) -> Result<Json<Columns>, ApiError> {
    let Query(asked) = asked.map_err(|rejection| invalid(rejection.body_text()))?;
    let span = Span::named(&asked.span)
        .ok_or_else(|| invalid(format!("'{}' is none of hour, day, month", asked.span)))?;
    Ok(Json(shared.keeper.columns(span, unix_now_s())))
}

/// Bytes allocated of each pool, and when it is full.
async fn capacity(State(shared): State<Arc<Shared>>) -> Result<Json<Vec<PoolTrend>>, ApiError> {
    let (pools, now) = (shared.management.figures().await?.pools, unix_now_s());
    let month = shared.keeper.columns(Span::Month, now);
    Ok(Json(pool_trends(&pools, &shared.pools, &month, now)))
}

/// The newest lines of this server's audit log.
async fn audit(State(shared): State<Arc<Shared>>) -> Result<Json<AuditEvents>, ApiError> {
    let failed =
        |why: String| ApiError::new(ErrorKind::Unavailable, format!("the audit log cannot be read: {why}"));
    // The file may be on a file system that is slow.
    let read = tokio::task::spawn_blocking(move || newest(&shared.audit)).await;
    read.map_err(|error| failed(error.to_string()))?.map(Json).map_err(|error| failed(error.to_string()))
}

/// Puts an issue aside for a while, or takes that back.
async fn mute(
    State(shared): State<Arc<Shared>>,
    peer: Peer,
    told: Result<Json<Mute>, JsonRejection>,
) -> Result<Json<()>, ApiError> {
    let Json(told) = told.map_err(|rejection| invalid(rejection.body_text()))?;
    let now_unix_s = unix_now_s();
    let action = if told.until_unix_s > now_unix_s { "issue mute" } else { "issue unmute" };
    let target = format!("{} {}", told.code, told.target);
    let muting = shared.clone();
    let set = tokio::task::spawn_blocking(move || muting.mutes.set(told, now_unix_s)).await;
    let set = set.unwrap_or_else(|_| Err(ApiError::new(ErrorKind::Internal, "the issue was not muted")));
    let (outcome, detail) = match &set {
        Ok(()) => (Outcome::Done, ""),
        Err(error) => (Outcome::Failed, error.message.as_str()),
    };
    peer.audit(&shared.management, action, &target, outcome, detail);
    set.map(Json)
}

async fn planned(
    State(shared): State<Arc<Shared>>,
    typed: Result<Query<Typed>, QueryRejection>,
) -> Result<Json<Plan>, ApiError> {
    let Query(typed) = typed.map_err(|rejection| invalid(rejection.body_text()))?;
    let snapshot = shared.management.figures().await?;
    let _alone = shared.planning.lock().await;
    let made = tokio::task::spawn_blocking(move || plan(&typed, &snapshot.pools, &snapshot.disks)).await;
    made.map_err(|_| ApiError::new(ErrorKind::Internal, "the plan was not finished"))?.map(Json)
}

/// Takes a running fleet's report, once a second.
async fn fleet(
    State(shared): State<Arc<Shared>>,
    peer: Peer,
    told: Result<Json<FleetProgress>, JsonRejection>,
) -> Result<Json<()>, ApiError> {
    let Json(told) = told.map_err(|rejection| invalid(rejection.body_text()))?;
    let label = told.label.clone();
    if shared.fleets.tell(told, Instant::now()) {
        peer.audit(&shared.management, "fleet show", &label, Outcome::Done, "");
    }
    Ok(Json(()))
}

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message)
}
