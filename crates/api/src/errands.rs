//! Requests that only another server of the cluster can execute: this server forwards them, and returns
//! the other one's answer.
//!
//! Promises: a request is forwarded once, to a server that can execute it, and never by that one; both
//! servers have its entry in their own audit logs. A number in such an answer means the same at every
//! server: that of a job contains its server, so that showing, ending and resuming the job are
//! forwarded as well. The daemon, not this module, chooses the server.

use crate::audit::Outcome;
use crate::cluster::{Carried, Errand};
use crate::confirming::Confirmed;
use crate::lists::{List, One, with_more};
use crate::management::Subject;
use crate::paths::percent_decoded;
use crate::peer::{Peer, Shared};
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Bytes of a request's body.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
pub(crate) const ROOT: &str = "/api/v1";

/// The extension of a change: its whole body.
#[derive(Clone)]
pub(crate) struct Whole(pub Bytes);

/// The extension of requests that this server may hand on: not of those that were handed on to it.
#[derive(Clone)]
pub(crate) struct MayHandOn(pub Shared);

/// Hands a request on if another server has its subject. A change that all servers have to follow is answered
/// when they have.
pub(crate) async fn hand_on(peer: Peer, request: Request, next: Next) -> Response {
    let Some(MayHandOn(management)) = request.extensions().get::<MayHandOn>().cloned() else {
        return next.run(request).await;
    };
    // A route knows only the path below the root.
    let path = format!("{ROOT}{}", request.uri().path());
    let confirmed = Confirmed::of(is_change(request.method()), &parts_of(&path));
    let answer = carried_out(peer, &management, path, request, next).await;
    match confirmed {
        Some(change) => change.by_all(&management, answer).await,
        None => answer,
    }
}

async fn carried_out(
    peer: Peer,
    management: &Shared,
    path: String,
    request: Request,
    next: Next,
) -> Response {
    let method = match is_change(request.method()) {
        true => request.method().clone(),
        false => Method::GET,
    };
    if let Some(one) = One::of(&method, &parts_of(&path), request.uri().query())
        && let Some(answer) = one.answer(management).await
    {
        return answer;
    }
    if !may_be_elsewhere(&method, &path) {
        return next.run(request).await;
    }
    if let Some(list) = List::of(&method, &parts_of(&path), request.uri().query()) {
        return list.with_the_others(management, next.run(request).await).await;
    }
    // A question has none.
    let whole = request.extensions().get::<Whole>().map(|Whole(body)| body.clone()).unwrap_or_default();
    let (mut parts, body) = request.into_parts();
    let named = named_server(&path, parts.uri.query());
    let other = match (named, subject(&method, &path, &whole)) {
        (Some(name), _) => {
            // The server's name is used up: drop it before forwarding. A list then comes from that server
            // alone.
            parts.uri = without_server(&parts.uri);
            let is_own = management.cluster().is_own(&name);
            Ok(Some(name).filter(|_| !is_own))
        }
        (None, Some(subject)) => management.elsewhere(subject).await,
        (None, None) => Ok(None),
    };
    let name = match other {
        Ok(Some(name)) => name,
        Ok(None) => return next.run(Request::from_parts(parts, body)).await,
        Err(error) => return error.into_response(),
    };
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let errand = Errand {
        method: method.to_string(),
        path: format!("{path}{query}"),
        body: String::from_utf8_lossy(&whole).into_owned(),
    };
    let answer = management.cluster().send_for(name.clone(), errand, peer.caller.clone()).await;
    if is_change(&method) {
        let (outcome, detail) = match &answer {
            Ok(done) if done.status < 400 => (Outcome::Done, ""),
            Ok(done) => (Outcome::Failed, done.body.as_str()),
            Err(error) => (Outcome::Failed, error.message.as_str()),
        };
        let action = format!("handed on to {name}: {method}");
        peer.audit(management, &action, &path, outcome, detail);
    }
    match answer {
        Ok(Carried { status, body }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            let (status, more) = match status {
                StatusCode::PARTIAL_CONTENT => (StatusCode::OK, vec![name]),
                status => (status, Vec::new()),
            };
            with_more((status, [(header::CONTENT_TYPE, "application/json")], body).into_response(), &more)
        }
        Err(error) => error.into_response(),
    }
}

/// Whether a method changes something: HEAD is GET without the answer's body.
pub(crate) fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

fn parts_of(path: &str) -> Vec<&str> {
    let below = path.strip_prefix(ROOT).unwrap_or_default();
    below.split('/').filter(|part| !part.is_empty()).collect()
}

/// Decides by the path alone, before anything is read.
pub(crate) fn may_be_elsewhere(method: &Method, path: &str) -> bool {
    let is_change = is_change(method);
    match parts_of(path).as_slice() {
        ["disks", _, ..] | ["volumes", _] => is_change,
        ["volumes", _, ..] | ["shares", _, "acl"] => true,
        ["shares"] => *method == Method::POST,
        // One server's part: the first server has all others do theirs.
        ["pools", _, "rebalance"] => is_change,
        // Each server reads the records for itself.
        ["accounts", "in-force"] | ["perf"] | ["perf", "second" | "activity" | "clients"] => !is_change,
        ["jobs" | "disks" | "pools" | "volumes" | "sessions" | "files" | "health" | "rdma"] => !is_change,
        ["jobs" | "sessions" | "files", _, ..] | ["rdma", "connections", ..] => true,
        _ => false,
    }
}

/// The server that a session, an open file or a connection is of: their numbers are each server's own, so the request names it (`?server=NAME`).
fn named_server(path: &str, query: Option<&str>) -> Option<String> {
    let (["files"] | ["sessions" | "files", _] | ["rdma", "connections", _, "trace"]) =
        parts_of(path).as_slice()
    else {
        return None;
    };
    let named = query?.split('&').find_map(|word| word.strip_prefix("server="))?;
    percent_decoded(named)
}

fn without_server(uri: &Uri) -> Uri {
    let words = uri.query().unwrap_or_default().split('&').filter(|word| !word.is_empty());
    let mut words: Vec<&str> = words.filter(|word| !word.starts_with("server=")).collect();
    if uri.path().ends_with("/files") && !words.contains(&"local=true") {
        words.push("local=true");
    }
    let query = if words.is_empty() { String::new() } else { format!("?{}", words.join("&")) };
    format!("{}{query}", uri.path()).parse().unwrap_or_default()
}

/// The subject of a request, if only one server can carry it out.
fn subject(method: &Method, path: &str, body: &Bytes) -> Option<Subject> {
    let decoded = |part: &str| percent_decoded(part);
    match parts_of(path).as_slice() {
        ["disks", id, ..] => id.parse().ok().map(Subject::Disk),
        ["volumes", name, ..] => decoded(name).map(Subject::Volume),
        ["shares", name, "acl"] => decoded(name).map(Subject::Share),
        ["jobs", number, ..] => number.parse().ok().map(Subject::Job),
        ["shares"] if *method == Method::POST => {
            // Only the volume's server can make a share's missing directory.
            let wanted: serde_json::Value = serde_json::from_slice(body).ok()?;
            let text = |key: &str| wanted.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
            (!text("path").trim_matches(['/', '\\']).is_empty())
                .then(|| Subject::Volume(text("volume").to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(method: Method, path: &str, body: &str) -> Option<Subject> {
        may_be_elsewhere(&method, path)
            .then(|| subject(&method, path, &Bytes::copy_from_slice(body.as_bytes())))
            .flatten()
    }

    #[test]
    fn what_one_server_alone_can_do_is_told_by_the_path() {
        let volume = |name: &str| Some(Subject::Volume(name.into()));
        assert_eq!(about(Method::PATCH, "/api/v1/volumes/a%20b", "{}"), volume("a b"));
        assert_eq!(about(Method::GET, "/api/v1/volumes/a/quotas", ""), volume("a"));
        assert_eq!(about(Method::GET, "/api/v1/volumes/a", ""), None, "every server shows it");
        assert_eq!(about(Method::POST, "/api/v1/volumes", "{}"), None, "whoever is asked makes it");
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        let disk = about(Method::POST, &format!("/api/v1/disks/{id}/retire"), "");
        assert_eq!(disk, id.parse().ok().map(Subject::Disk));
        assert_eq!(about(Method::POST, "/api/v1/disks/none/retire", ""), None);
        assert!(!may_be_elsewhere(&Method::HEAD, "/api/v1/volumes/a"), "HEAD changes nothing");
        for (method, path) in [
            (Method::GET, "/api/v1/jobs/2000017"),
            (Method::DELETE, "/api/v1/jobs/2000017"),
            (Method::POST, "/api/v1/jobs/2000017/resume"),
        ] {
            assert_eq!(about(method, path, ""), Some(Subject::Job(2_000_017)), "{path}");
        }
        assert_eq!(about(Method::GET, "/api/v1/jobs", ""), None, "all servers are asked");
        let rebalance = "/api/v1/pools/p/rebalance";
        assert!(may_be_elsewhere(&Method::POST, rebalance), "each server is asked for its part");
        assert_eq!(about(Method::POST, rebalance, ""), None, "whoever is asked begins it");
        assert_eq!(about(Method::GET, "/api/v1/shares/s/acl", ""), Some(Subject::Share("s".into())));
        assert!(
            may_be_elsewhere(&Method::GET, "/api/v1/perf"),
            "a server may ask another one for its counters"
        );
        assert!(may_be_elsewhere(&Method::GET, "/api/v1/perf/activity"));
        assert_eq!(about(Method::GET, "/api/v1/perf", ""), None, "whoever is asked answers with its own");
    }

    #[test]
    fn a_session_is_looked_for_at_the_server_that_is_named() {
        assert_eq!(named_server("/api/v1/sessions/7", Some("server=node-2")), Some("node-2".into()));
        assert_eq!(named_server("/api/v1/sessions/7", None), None);
        assert_eq!(named_server("/api/v1/disks/7", Some("server=node-2")), None);
        let trace = "/api/v1/rdma/connections/7/trace";
        assert_eq!(named_server(trace, Some("server=node-2")), Some("node-2".into()));
    }

    #[test]
    fn a_part_of_one_servers_files_is_asked_of_that_server_alone() {
        let query = Some("after=7&server=node-2");
        assert_eq!(named_server("/api/v1/files", query), Some("node-2".into()));
        assert_eq!(List::of(&Method::GET, &["files"], query), None);
        let asked = without_server(&"/files?after=7&server=node-2".parse().unwrap());
        assert_eq!(asked.to_string(), "/files?after=7&local=true");
        assert_eq!(without_server(&"/files/7?server=node-2".parse().unwrap()).to_string(), "/files/7");
    }

    #[test]
    fn a_share_is_made_elsewhere_only_if_a_directory_is_to_be_made_for_it() {
        let share = |path: &str| {
            let body = format!("{{\"name\":\"s\",\"volume\":\"v\",\"path\":\"{path}\"}}");
            about(Method::POST, "/api/v1/shares", &body)
        };
        assert_eq!(share(""), None);
        assert_eq!(share("/"), None);
        assert_eq!(share("a/b"), Some(Subject::Volume("v".into())));
        assert_eq!(about(Method::POST, "/api/v1/shares", "rubbish"), None);
    }
}
