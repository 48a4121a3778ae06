//! Named tokens, and the rights of their roles.

use super::*;
use api::Role;
use axum::body::{Body, Bytes};
use axum::routing::get;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a token as the daemon does, in a separate state. Returns its text.
fn admit(server: &Server, name: &str, role: Role, expires_unix_s: Option<u64>) -> String {
    let state = records::MemoryState::new();
    let (token, text) = records::api_tokens::create(&state, name, role, expires_unix_s, 5).unwrap();
    assert_eq!(
        token.sha256,
        hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref())
    );
    server.daemon.tokens.lock().unwrap().push(token);
    text.to_string()
}

/// Method, path and demanded role of every route, as the router's document has them.
fn routes() -> Vec<(String, String, Role)> {
    let document: Value = serde_json::from_str(&api::openapi().to_json().unwrap()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut routes = Vec::new();
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with("/api/")) {
        for (method, operation) in item.as_object().unwrap() {
            let role = serde_json::from_value(operation["security"][0]["token"][0].clone());
            let role = role.unwrap_or_else(|_| panic!("{method} {path} demands no role"));
            routes.push((method.to_uppercase(), path.clone(), role));
        }
    }
    assert!(routes.len() > 60, "{}", routes.len());
    routes
}

/// The path with something in place of its parameters that is the other server's, so that it would be handed on.
fn filled(path: &str) -> String {
    let number = if path.contains("/jobs/") { "2000001" } else { "7" };
    let id = if path.contains("/disks/") { "01234567-89ab-cdef-0123-456789abcdef" } else { number };
    path.replace("{id}", id).replace("{name}", "far").replace("{user}", "ann")
}

#[test]
fn every_route_is_closed_to_roles_below_the_one_it_demands_and_open_to_the_others() {
    let server = server_in(vec!["node-1", "node-2"]);
    let tokens = Role::ALL.map(|role| (role, admit(&server, role.name(), role, None)));
    for (method, path, demanded) in routes() {
        for (role, token) in &tokens {
            let before = server.daemon.done.lock().unwrap().len();
            let (status, body) = server.request(&method, &filled(&path), Some(token), "{}");
            let told = format!("{method} {path} as {role}: {status} {body}");
            assert_eq!(status == 403, *role < demanded, "{told}");
            assert_ne!(status, 401, "{told}");
            if status == 403 {
                assert!(body.contains(&format!("the role {demanded}, and token '{role}'")), "{told}");
                assert_eq!(server.daemon.done.lock().unwrap().len(), before, "{told}");
            }
        }
    }
}

#[test]
fn a_reader_only_reads_and_secrets_are_the_administrators() {
    for (method, path, role) in routes() {
        // The first two reveal secrets; the third costs a check of every connected session.
        let is_closed = ["/api/v1/config", "/api/v1/tokens", "/api/v1/accounts/in-force"];
        let is_open = method == "GET" && !is_closed.contains(&path.as_str());
        assert_eq!(role == Role::Reader, is_open, "{method} {path}: {role}");
    }
    let administrators = [
        ("DELETE", "/api/v1/volumes/{name}"),
        ("POST", "/api/v1/disk-erasures"),
        ("POST", "/api/v1/users"),
        ("PATCH", "/api/v1/groups/{name}"),
        ("POST", "/api/v1/tokens"),
        ("PATCH", "/api/v1/shares/{name}/acl"),
        ("DELETE", "/api/v1/nodes/{name}"),
    ];
    for (method, path) in administrators {
        let route = (method.to_owned(), path.to_owned(), Role::Administrator);
        assert!(routes().contains(&route), "{method} {path}");
    }
}

#[test]
fn an_operator_checks_a_volume_and_does_not_repair_it() {
    let server = server();
    let token = admit(&server, "ops", Role::Operator, None);
    let check = |body| server.request("POST", "/api/v1/volumes/data/check", Some(&token), body).0;
    assert_eq!(check("{}"), 200);
    assert_eq!(check(r#"{"repair": true, "confirm": "data"}"#), 403);
    let refused = ("POST".into(), "/api/v1/volumes/data/check".into(), Outcome::Refused);
    assert_eq!(server.daemon.audited.lock().unwrap().last(), Some(&refused));
    assert_eq!(server.daemon.actors.lock().unwrap().last().unwrap(), "api:ops");
}

#[test]
fn a_tokens_name_is_in_the_audit_log() {
    let server = server();
    let token = admit(&server, "backup", Role::Operator, None);
    assert_eq!(server.request("PATCH", "/api/v1/shares/s", Some(&token), "{}").0, 200);
    assert_eq!(server.daemon.actors.lock().unwrap().as_slice(), ["api:backup"]);
    server.ask("PATCH", "/api/v1/shares/s", "{}");
    assert_eq!(server.daemon.actors.lock().unwrap().last().unwrap(), "api");
}

#[test]
fn a_token_that_has_expired_or_was_deleted_is_refused_with_the_reason() {
    let server = server();
    let expired = admit(&server, "old", Role::Reader, Some(6));
    let (status, body) = server.request("GET", "/api/v1/jobs", Some(&expired), "");
    assert_eq!(status, 401);
    assert!(body.contains("token 'old' has expired"), "{body}");
    let token = admit(&server, "new", Role::Reader, None);
    assert_eq!(server.request("GET", "/api/v1/jobs", Some(&token), "").0, 200);
    server.daemon.tokens.lock().unwrap().clear();
    let (status, body) = server.request("GET", "/api/v1/jobs", Some(&token), "");
    assert_eq!(status, 401);
    assert!(body.contains("wrong token"), "{body}");
}

/// Sends a byte every 10 ms, for ever.
struct Ticks(tokio::time::Interval);

impl hyper::body::Body for Ticks {
    type Data = Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b".")))))
    }
}

#[test]
fn a_stream_ends_when_its_token_is_deleted_and_pages_demand_roles_too() {
    let ticks = || async { Body::new(Ticks(tokio::time::interval(Duration::from_millis(10)))) };
    let path = "/api/v1/dashboard/ticks";
    let pages = Pages::default().demanding(Role::Operator, path, get(ticks));
    let server = server_with(Vec::new(), pages);
    let reader = admit(&server, "reader", Role::Reader, None);
    assert_eq!(server.request("GET", path, Some(&reader), "").0, 403);
    assert_eq!(server.request("GET", path, None, "").0, 401);
    let operator = admit(&server, "operator", Role::Operator, None);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {operator}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut part = [0; 512];
    let mut seen = String::new();
    while seen.matches("\r\n.\r\n").count() < 3 {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&part[..len]));
    }
    server.daemon.tokens.lock().unwrap().clear();
    let (mut rest, until) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while let Ok(len @ 1..) = stream.read(&mut part) {
        assert!(Instant::now() < until, "it goes on");
        rest.extend_from_slice(&part[..len]);
    }
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a cut answer does not look whole");
}
