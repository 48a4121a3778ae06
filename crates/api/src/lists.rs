//! Lists of the whole cluster: the server that is asked asks each of the others, and says which of them did not answer.
//!
//! Promises: a list that lacks a server's part names that server in the header [`UNANSWERED`]; one server that hangs costs the whole
//! [`PATIENCE`] at most.

use crate::cluster::{Carried, ERRAND_ANSWER_BYTES_MAX, Errand};
use crate::management::{ApiError, ErrorKind, Management};
use crate::routes::Shared;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::time::Duration;
use tokio::task::JoinSet;

/// The header with the names of the servers whose part of a list is missing, with commas between.
pub const UNANSWERED: &str = "cenote-unanswered";

/// A server that takes longer is left out: a person waits for the list.
const PATIENCE: Duration = Duration::from_secs(3);

/// A list that every server has a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Jobs,
}

impl List {
    /// `parts`: of the path below the API's root.
    pub(crate) fn of(method: &Method, parts: &[&str]) -> Option<Self> {
        (*method == Method::GET && parts == ["jobs"]).then_some(Self::Jobs)
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Jobs => "/api/v1/jobs",
        }
    }

    /// `own`: this server's answer. Adds those of the other servers to it, and names the server in every element.
    pub(crate) async fn with_the_others(self, management: &Shared, own: Response) -> Response {
        let Some(own_id) = management.cluster().own() else { return own };
        if own.status() != StatusCode::OK {
            return own;
        }
        // Without the list of servers nobody could say whose part is missing.
        let view = match management.cluster().known().await {
            Ok(view) => view,
            Err(error) => return error.into_response(),
        };
        let mut asked = JoinSet::new();
        for node in view.nodes.iter().filter(|node| node.id != own_id && !node.is_witness) {
            let (management, name) = (management.clone(), node.name.clone());
            asked.spawn(async move { (name.clone(), self.ask(&*management, name).await) });
        }
        let own_name = view.nodes.iter().find(|node| node.id == own_id).map(|node| node.name.clone());
        let own_body = to_bytes(own.into_body(), ERRAND_ANSWER_BYTES_MAX).await.ok();
        let mut whole = own_body.and_then(|body| elements(&body, &own_name.unwrap_or_default()));
        let mut unanswered = Vec::new();
        while let Some(answer) = asked.join_next().await {
            let Ok((name, part)) = answer else { continue };
            match (part, whole.as_mut()) {
                (Some(part), Some(whole)) => whole.extend(part),
                _ => unanswered.push(name),
            }
        }
        let Some(whole) = whole else {
            let why = "this server's own part of the list could not be made";
            return ApiError::new(ErrorKind::Internal, why).into_response();
        };
        unanswered.sort_unstable();
        let body = Body::from(Value::Array(whole).to_string());
        let mut response =
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if !unanswered.is_empty()
            && let Ok(names) = HeaderValue::from_str(&unanswered.join(", "))
        {
            response.headers_mut().insert(HeaderName::from_static(UNANSWERED), names);
        }
        response
    }

    async fn ask(self, management: &dyn Management, name: String) -> Option<Vec<Value>> {
        let errand = Errand { method: "GET".into(), path: self.path().into(), body: String::new() };
        let sent = management.cluster();
        let carried = tokio::time::timeout(PATIENCE, sent.send(name.clone(), errand)).await.ok()?;
        let Carried { status, body } = carried.ok()?;
        elements(body.as_bytes(), &name).filter(|_| status == StatusCode::OK.as_u16())
    }
}

/// The elements of a list, each with the name of its server.
fn elements(body: &[u8], server: &str) -> Option<Vec<Value>> {
    let Value::Array(mut all) = serde_json::from_slice(body).ok()? else { return None };
    for element in &mut all {
        element.as_object_mut()?.insert("server".to_owned(), Value::String(server.to_owned()));
    }
    Some(all)
}
