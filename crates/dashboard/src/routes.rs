//! What pages ask beyond the API. It is theirs alone, and may change with them.

use crate::fleet::Fleets;
use crate::history::{Columns, Keeper, Span};
use crate::planning::{Typed, plan};
use crate::streams::Streams;
use api::fleet::FleetProgress;
use api::planned::Plan;
use api::{ApiError, ErrorKind, Management, Seat};
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use cluster::clock::unix_now_s;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Instant;

pub struct Shared {
    pub management: Arc<dyn Management>,
    pub server: String,
    pub keeper: Keeper,
    pub streams: Streams,
    pub fleets: Fleets,
    /// Plans are made one at a time: one of thousands of drives takes a while.
    planning: tokio::sync::Mutex<()>,
}

impl Shared {
    pub fn new(management: Arc<dyn Management>, server: String, keeper: Keeper) -> Self {
        Self {
            management,
            server,
            keeper,
            streams: Streams::default(),
            fleets: Fleets::default(),
            planning: tokio::sync::Mutex::default(),
        }
    }
}

pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/v1/dashboard/events", get(events))
        .route("/api/v1/dashboard/history", get(history))
        .route("/api/v1/dashboard/plan", get(planned))
        .route("/api/v1/dashboard/fleet", post(fleet))
        .with_state(shared)
}

/// Events as long as the reader stays: one at once if there is one, then one a second.
async fn events(State(shared): State<Arc<Shared>>, seat: Option<Extension<Arc<Seat>>>) -> Response {
    let Some(events) = shared.streams.open(seat.map(|Extension(seat)| seat)) else {
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

/// A running fleet tells of itself, once a second.
async fn fleet(
    State(shared): State<Arc<Shared>>,
    told: Result<Json<FleetProgress>, JsonRejection>,
) -> Result<Json<()>, ApiError> {
    let Json(told) = told.map_err(|rejection| invalid(rejection.body_text()))?;
    shared.fleets.tell(told, Instant::now());
    Ok(Json(()))
}

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message)
}
