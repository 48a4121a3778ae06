//! Executes requests forwarded by other servers of the cluster.
//!
//! Promises: only work that this server alone can do, or has a part of; as the caller that the other
//! server names, and with that caller's role.

use crate::audit::Outcome;
use crate::caller::Caller;
use crate::changes::{Changes, complete};
use crate::cluster::{Carried, ERRAND_ANSWER_BYTES_MAX, Errand};
use crate::document::documented;
use crate::errands::{ROOT, may_be_elsewhere};
use crate::lists::MORE;
use crate::management::{ApiError, ErrorKind, Management};
use crate::peer::{PeerAddress, Shared};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// Carries out requests that other servers of the cluster hand on.
pub struct Errands {
    management: Weak<dyn Management>,
    /// Made once: that takes longer than most answers.
    routes: Router<Shared>,
}

impl Errands {
    /// Holds nothing of the daemon: its errands end with it.
    pub fn new(management: &Arc<dyn Management>) -> Self {
        // The requesting server may disconnect before a change is made.
        let completing = from_fn_with_state(Arc::<Changes>::default(), complete);
        let routes = Router::new().nest(ROOT, documented().0).layer(completing);
        Self { management: Arc::downgrade(management), routes }
    }

    /// Writes an entry to this server's audit log about a request on the cluster's port.
    pub fn audit(&self, peer: SocketAddr, action: &str, target: &str, outcome: Outcome, detail: &str) {
        if let Some(management) = self.management.upgrade() {
            management.audit(&peer.to_string(), action, target, outcome, detail);
        }
    }

    /// Executes a request. `peer`: the requesting server of the cluster; `caller`: its caller.
    pub async fn carry_out(&self, peer: SocketAddr, errand: Errand, caller: Caller) -> Carried {
        let Some(management) = self.management.upgrade() else {
            return told(&ApiError::new(ErrorKind::Unavailable, "this server is about to stop"));
        };
        let app =
            self.routes.clone().layer(axum::Extension(caller)).layer(axum::Extension(PeerAddress(peer)));
        let app = app.with_state(management);
        let request = Request::builder()
            .method(errand.method.as_str())
            .uri(errand.path.as_str())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Body::from(errand.body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return told(&ApiError::new(ErrorKind::Invalid, error.to_string())),
        };
        // A server's certificate is not the administrator's token.
        if !may_be_elsewhere(request.method(), request.uri().path()) {
            let why = "only what one server alone can do is handed on";
            return told(&ApiError::new(ErrorKind::NotFound, why));
        }
        let Ok(response) = TowerToHyperService::new(app).call(request).await;
        let status = match response.headers().contains_key(MORE) {
            true => StatusCode::PARTIAL_CONTENT,
            false => response.status(),
        };
        let Ok(body) = to_bytes(response.into_body(), usize::MAX).await else {
            return told(&ApiError::new(ErrorKind::Internal, "the answer could not be made"));
        };
        if body.len() <= ERRAND_ANSWER_BYTES_MAX {
            return Carried { status: status.as_u16(), body: String::from_utf8_lossy(&body).into_owned() };
        }
        match beginning_of_list(&body, ERRAND_ANSWER_BYTES_MAX) {
            Some(body) => Carried { status: StatusCode::PARTIAL_CONTENT.as_u16(), body },
            None => told(&ApiError::new(
                ErrorKind::Unavailable,
                "the answer is too long to be handed on: ask that server itself",
            )),
        }
    }
}

/// Returns the first elements of a list that is too long, as many as fit; `None`: not a list.
fn beginning_of_list(body: &[u8], bytes_max: usize) -> Option<String> {
    let elements: Vec<Value> = serde_json::from_slice(body).ok()?;
    let mut beginning = String::from("[");
    for element in elements {
        let element = element.to_string();
        if beginning.len() + element.len() + ",]".len() > bytes_max {
            break;
        }
        if beginning.len() > 1 {
            beginning.push(',');
        }
        beginning.push_str(&element);
    }
    beginning.push(']');
    Some(beginning)
}

fn told(error: &ApiError) -> Carried {
    let body = serde_json::to_string(error).unwrap_or_default();
    Carried { status: error.kind.http_status(), body }
}

#[cfg(test)]
mod tests {
    use super::beginning_of_list;

    #[test]
    fn of_a_list_that_is_too_long_the_elements_that_fit_are_handed_on() {
        let list = br#"[{"a":[1, 2]}, {"b":",]"},{"c":3}]"#;
        let cut = |bytes_max| beginning_of_list(list, bytes_max);
        assert_eq!(cut(list.len()).unwrap(), r#"[{"a":[1,2]},{"b":",]"},{"c":3}]"#);
        assert_eq!(cut(30).unwrap(), r#"[{"a":[1,2]},{"b":",]"}]"#);
        assert_eq!(cut(4).unwrap(), "[]");
        assert_eq!(beginning_of_list(br#"{"a":1}"#, 4), None);
    }
}
