//! Completion of changes.
//!
//! Promises: a change that has begun completes, and leaves its entry in the audit log, even if its
//! client disconnects, its connection is evicted, or its answer comes too late. One caller has at most
//! [`UNDER_WAY_MAX`] changes under way: ending a connection gives it no more.

use crate::caller::Caller;
use crate::errands::{BODY_BYTES_MAX, Whole, is_change};
use crate::management::{ApiError, ErrorKind};
use crate::seats::Seat;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The same number as one token may begin at a time, [`crate::pacing::AT_ONCE`].
const UNDER_WAY_MAX: usize = crate::pacing::AT_ONCE as usize;

/// Changes under way, by caller.
#[derive(Default)]
pub(crate) struct Changes(Mutex<HashMap<String, usize>>);

/// A change under way.
struct UnderWay {
    changes: Arc<Changes>,
    actor: String,
}

impl Changes {
    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a caller's change; `None`: the caller has too many.
    fn begin(self: &Arc<Self>, actor: String) -> Option<UnderWay> {
        let mut counts = self.counts();
        let count = counts.entry(actor.clone()).or_default();
        if *count >= UNDER_WAY_MAX {
            return None;
        }
        *count += 1;
        Some(UnderWay { changes: self.clone(), actor })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut counts = self.changes.counts();
        if let Some(count) = counts.get_mut(&self.actor) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.actor);
            }
        }
    }
}

/// Runs a change in its own task; any other request directly.
pub(crate) async fn complete(State(changes): State<Arc<Changes>>, request: Request, next: Next) -> Response {
    if !is_change(request.method()) {
        return next.run(request).await;
    }
    // The whole request first: a client that disconnects in the middle of it has asked for nothing.
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        let why = format!("the request is longer than {} KiB, or was cut off", BODY_BYTES_MAX >> 10);
        return ApiError::new(ErrorKind::Invalid, why).into_response();
    };
    let actor = parts.extensions.get::<Caller>().map(Caller::actor).unwrap_or_default();
    let Some(under_way) = changes.begin(actor) else {
        let why = format!("{UNDER_WAY_MAX} changes of this caller are under way: wait for them");
        return ApiError::new(ErrorKind::Unavailable, why).into_response();
    };
    // The connection may end before the change does, and its seat is free then.
    parts.extensions.remove::<Arc<Seat>>();
    parts.extensions.insert(Whole(body.clone()));
    let change = tokio::spawn(async move {
        let response = next.run(Request::from_parts(parts, Body::from(body))).await;
        drop(under_way);
        response
    });
    change.await.unwrap_or_else(|_| {
        ApiError::new(ErrorKind::Internal, "the change ended without an answer: the log says why")
            .into_response()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use std::time::Duration;
    use tokio::sync::Notify;

    fn request() -> Request {
        Request::post("/").body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn a_change_whose_client_disconnects_completes_and_counts_until_then() {
        let (begun, end, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let changes = Arc::<Changes>::default();
        let handler = {
            let (begun, end, ended) = (begun.clone(), end.clone(), ended.clone());
            move || async move {
                begun.notify_one();
                end.notified().await;
                ended.notify_one();
            }
        };
        let app =
            Router::new().route("/", post(handler)).layer(from_fn_with_state(changes.clone(), complete));
        let service = TowerToHyperService::new(app);
        let mut asked = Box::pin(service.call(request()));
        tokio::select! {
            _ = &mut asked => panic!("it has not ended"),
            () = begun.notified() => {}
        }
        drop(asked);
        assert_eq!(changes.counts().values().sum::<usize>(), 1, "the client is gone, the change is not");
        end.notify_one();
        tokio::time::timeout(Duration::from_secs(60), ended.notified()).await.expect("it completes");
        while !changes.counts().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_caller_has_a_bounded_number_under_way_and_others_have_their_own() {
        let changes = Arc::<Changes>::default();
        let held: Vec<_> = (0..UNDER_WAY_MAX).filter_map(|_| changes.begin("ann".into())).collect();
        assert_eq!(held.len(), UNDER_WAY_MAX);
        assert!(changes.begin("ann".into()).is_none());
        assert!(changes.begin("ben".into()).is_some());
        drop(held);
        assert!(changes.begin("ann".into()).is_some());
    }
}
