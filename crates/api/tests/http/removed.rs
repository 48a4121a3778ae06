//! A server that was removed from its cluster.

use super::*;

#[test]
fn a_server_that_was_removed_refuses_every_request_with_the_reason() {
    let why = "it was removed on 2026-11-28";
    let daemon = Daemon { servers: vec!["node-1", "node-2"], removed: Some(why), ..Daemon::default() };
    let server = server_over(daemon, Pages::default());
    let requests = [
        ("POST", "/api/v1/users"),
        ("POST", "/api/v1/tokens"),
        ("POST", "/api/v1/cluster/tokens"),
        ("POST", "/api/v1/cluster/nodes/node-2/drain"),
        ("PATCH", "/api/v1/volumes/far"),
        ("GET", "/api/v1/cluster"),
        ("GET", "/api/v1/health"),
    ];
    for (method, path) in requests {
        let (status, body) = server.request(method, path, Some(&server.token), "{}");
        assert_eq!(status, 503, "{method} {path}: {body}");
        let error: ApiError = serde_json::from_str(&body).unwrap();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Unavailable, why), "{method} {path}");
        assert_eq!(server.request(method, path, None, "").0, 401, "strangers learn nothing");
    }
    assert_eq!(server.request("GET", "/healthz", None, ""), (503, format!("{why}\n")));
    assert!(server.daemon.done.lock().unwrap().is_empty());
    let audited = server.daemon.audited.lock().unwrap();
    let refused = |path: &str| audited.iter().any(|line| line.1 == path && line.2 == Outcome::Refused);
    assert!(refused("/api/v1/users") && !audited.iter().any(|line| line.2 != Outcome::Refused));
}
