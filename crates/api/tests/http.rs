//! The API over real sockets, before a daemon that only remembers its requests.

use api::ClusterManagement;
use api::audit::Outcome;
use api::cluster::{
    Carried, ClusterView, CreateCluster, Errand, JoinCluster, Joined, NewToken, NodeView, PreflightCheck,
    StateEngine, TestCluster,
};
use api::model::{
    Configuration, DamagedFile, DamagedRange, DeviceHealth, Disk, DiskCounters, DiskStatus, DiskUsage,
    Health, HealthIssue, HealthReport, OpenFile, OpensPage, Performance, QuotaMode, QuotaReport, Rdma,
    RdmaTrace, Snapshot, VolumeDamage,
};
use api::requests::*;
use api::seconds::{LastSecond, Seconds};
use api::{
    Answer, ApiError, Caller, Errands, ErrorKind, Management, Pages, RebalanceJob, RebalanceStep, Role,
    Subject, Token,
};
use records::api_tokens::{ApiToken, TokenHash};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use types::{DiskId, NodeId, PoolId, VolumeId};

#[path = "http/removed.rs"]
mod removed;
#[path = "http/roles.rs"]
mod roles;

#[derive(Default)]
struct Daemon {
    snapshots: AtomicUsize,
    seconds: Seconds,
    done: Mutex<Vec<String>>,
    audited: Mutex<Vec<(String, String, Outcome)>>,
    /// Actors of the audit log's entries.
    actors: Mutex<Vec<String>>,
    /// Named tokens that admit.
    tokens: Mutex<Vec<ApiToken>>,
    /// Names of the cluster's servers, this one first; none: it is in no cluster.
    servers: Vec<&'static str>,
    /// Numbers of clients' opens; the daemon shows two at a time.
    opens: Vec<u64>,
    /// Set: it was removed from its cluster.
    removed: Option<&'static str>,
}

impl Daemon {
    fn did<T: Send + 'static>(&self, what: impl Into<String>, answer: T) -> Answer<'_, T> {
        self.done.lock().unwrap().push(what.into());
        Box::pin(async move { Ok(answer) })
    }
}

fn open_file(id: u64) -> OpenFile {
    OpenFile {
        id,
        server: None,
        session: 1,
        user: "ann".into(),
        share: "s".into(),
        path: format!("file {id}"),
        access: String::new(),
        locks: 0,
        caching: String::new(),
        durable: false,
    }
}

fn disk() -> Disk {
    Disk {
        id: DiskId::from_bytes([7; 16]),
        pool: None,
        path: "/dev/a \"b\"\n".into(),
        fault_domain: String::new(),
        health: Health::Warning,
        status: DiskStatus::Ok,
        usage: DiskUsage::AutoSelect,
        size_bytes: 1 << 33,
        allocated_bytes: Some(0),
        block_bytes: Some(512),
        rotational: Some(false),
        server: None,
        counters: Some(DiskCounters {
            corrupt_blocks: 3,
            repaired_blocks: 2,
            medium_errors: 1,
            lost_writes: 4,
            ..DiskCounters::default()
        }),
        device_health: Some(DeviceHealth { used_percent: Some(5), ..DeviceHealth::default() }),
    }
}

/// The cluster of these servers, this one first; without any, a single server.
struct Cluster(Vec<&'static str>, Option<&'static str>);

/// The job of another server, as that one shows it.
const FAR_JOB: &str = r#"[{"id":2000001,"kind":"retirement","target":"/dev/b","state":"running","done_bytes":0,"total_bytes":9,
    "started_unix_s":1,"ended_unix_s":null,"remaining_s":null,"message":""}]"#;

const POOL: &str = r#"{"id":"01234567-89ab-cdef-0123-456789abcdef","name":"tank","health":"healthy","disks":1,"slab_bytes":1,"size_bytes":9,
    "reserve_bytes":0,"reserve_disks":0,"reserve_is_set":true}"#;

/// A server's finished part of a rebalance, as that server shows it.
const PART: &str = r#"{"id":5,"kind":"rebalance","target":"tank","state":"completed","done_bytes":7,"total_bytes":7,
    "started_unix_s":1,"ended_unix_s":2,"remaining_s":null,"message":"1 moves were planned, of data"}"#;

impl Cluster {
    fn refused<T: Send + 'static>() -> Answer<'static, T> {
        Box::pin(async { Err(ApiError::new(ErrorKind::Conflict, "no cluster")) })
    }
}

impl ClusterManagement for Cluster {
    fn view(&self) -> Answer<'_, ClusterView> {
        let engine = StateEngine {
            name: "redb".into(),
            version: None,
            revision: 1,
            members: Vec::new(),
            members_down: Vec::new(),
            quorum: 1,
            notes: Vec::new(),
        };
        let nodes = (1..).zip(&self.0).map(|(id, name)| NodeView::of_test(name, id)).collect();
        let view = ClusterView {
            name: None,
            id: None,
            nodes,
            engine,
            at_risk: Vec::new(),
            authority_ends_unix_s: None,
            unserved: None,
        };
        Box::pin(async { Ok(view) })
    }
    fn create(&self, _: CreateCluster) -> Answer<'_, ClusterView> {
        Self::refused()
    }
    fn new_token(&self) -> Answer<'_, NewToken> {
        Self::refused()
    }
    fn join(&self, _: JoinCluster) -> Answer<'_, Joined> {
        Self::refused()
    }
    fn test(&self, _: TestCluster) -> Answer<'_, Vec<PreflightCheck>> {
        Self::refused()
    }
    fn remove_node(&self, _: String) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn removed(&self) -> Option<String> {
        self.1.map(str::to_owned)
    }
    fn own(&self) -> Option<NodeId> {
        (!self.0.is_empty()).then_some(NodeId(1))
    }
    fn servers(&self) -> Vec<(NodeId, String)> {
        (1..).zip(&self.0).map(|(id, name)| (NodeId(id), (*name).to_owned())).collect()
    }
    fn set_draining(&self, _: String, _: bool) -> Answer<'_, ()> {
        Self::refused()
    }
    fn force_draining(&self, _: String) -> Answer<'_, ()> {
        Self::refused()
    }
    fn issues(&self) -> Vec<HealthIssue> {
        Vec::new()
    }
    fn is_up(&self, node: NodeId) -> Option<bool> {
        let name = self.servers().into_iter().find(|(id, _)| *id == node).map(|(_, name)| name);
        (name.as_deref() == Some("down")).then_some(false)
    }
    /// The other server echoes its request.
    fn send_for(&self, name: String, errand: Errand, _: Caller) -> Answer<'_, Carried> {
        let Errand { method, path, body } = errand;
        if name == "silent" {
            return Box::pin(async { Err(ApiError::new(ErrorKind::Unavailable, "it is down")) });
        }
        if (method.as_str(), path.as_str()) == ("GET", "/api/v1/jobs?local=true") {
            return Box::pin(async { Ok(Carried { status: 200, body: FAR_JOB.into() }) });
        }
        if path == "/api/v1/accounts/in-force" {
            assert_ne!(name, "down", "a server that is down reads the records before it serves again");
            let status = if name == "earlier version" { 404 } else { 200 };
            return Box::pin(async move { Ok(Carried { status, body: "null".into() }) });
        }
        let part = match (method.as_str(), path.as_str()) {
            ("POST", "/api/v1/pools/tank/rebalance?local=true") => Some(r#"{"job":5}"#),
            ("GET", "/api/v1/jobs/5") => Some(PART),
            _ => None,
        };
        if let Some(part) = part {
            return Box::pin(async { Ok(Carried { status: 200, body: part.into() }) });
        }
        let body =
            serde_json::json!({ "at": name, "method": method, "path": path, "body": body }).to_string();
        Box::pin(async move { Ok(Carried { status: 202, body }) })
    }
}

impl Management for Daemon {
    fn opens(&self, after: Option<u64>, most: usize) -> Answer<'_, OpensPage> {
        let all = self.opens.iter().copied().filter(|id| after.is_none_or(|after| *id > after));
        let mut files: Vec<OpenFile> = all.map(open_file).collect();
        let of_all = files.len();
        files.truncate(most.min(2));
        let has_more = files.len() < of_all;
        Box::pin(async move { Ok(OpensPage { files, has_more }) })
    }
    fn figures(&self) -> Answer<'_, Box<Snapshot>> {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        let issue = HealthIssue {
            health: Health::Warning,
            code: "disk_corrupt".into(),
            target: "disk".into(),
            since_unix_s: 1,
            server: None,
            what: "w".into(),
            meaning: "m".into(),
            action: "a".into(),
        };
        let health = HealthReport { health: Health::Warning, issues: vec![issue], ..HealthReport::default() };
        let (mut pools, mut jobs) = (Vec::new(), Vec::new());
        if !self.servers.is_empty() {
            pools.push(serde_json::from_str(POOL).expect("a pool"));
        }
        if self.done.lock().unwrap().iter().any(|done| done.starts_with("Own")) {
            jobs.push(serde_json::from_str(PART).expect("a job"));
        }
        let snapshot = Snapshot { disks: vec![disk()], pools, jobs, health, ..Snapshot::default() };
        Box::pin(async { Ok(Box::new(snapshot)) })
    }
    fn seconds(&self) -> &Seconds {
        &self.seconds
    }
    fn config(&self) -> String {
        "[smb]\n".into()
    }
    fn config_values(&self) -> Configuration {
        let smb = serde_json::json!({ "require_signing": true });
        Configuration([("smb".to_owned(), smb)].into_iter().collect())
    }
    fn cluster(&self) -> Arc<dyn ClusterManagement> {
        Arc::new(Cluster(self.servers.clone(), self.removed))
    }
    fn elsewhere(&self, what: Subject) -> Answer<'_, Option<String>> {
        let far = [Subject::Volume("far".into()), Subject::Share("far".into()), Subject::Job(2_000_001)];
        let is_far = far.contains(&what);
        Box::pin(async move { Ok(is_far.then(|| "node-2".to_owned())) })
    }
    fn add_disk(&self, request: AddDisk, _: Role) -> Answer<'_, DiskId> {
        self.did(format!("add disk {}", request.path), disk().id)
    }
    fn retire_disk(&self, disk: DiskId) -> Answer<'_, Started> {
        self.did(format!("retire {disk}"), Started { job: 4 })
    }
    fn create_pool(&self, request: CreatePool, _: Role) -> Answer<'_, PoolId> {
        self.did(request.name, PoolId::from_bytes([1; 16]))
    }
    fn unretire_disk(&self, disk: DiskId) -> Answer<'_, ()> {
        self.did(format!("unretire {disk}"), ())
    }
    fn replace_disk(&self, disk: DiskId, request: AddDisk, _: Role) -> Answer<'_, Replaced> {
        self.did(format!("replace {disk} {}", request.path), Replaced { disk, job: 3 })
    }
    fn locate_disk(&self, disk: DiskId, _on: bool) -> Answer<'_, LocatedDisk> {
        let found = LocatedDisk {
            path: "/d".into(),
            device: None,
            serial: None,
            slot: None,
            led: false,
            message: String::new(),
        };
        self.did(format!("locate {disk}"), found)
    }
    fn set_pool(&self, name: String, request: SetPool) -> Answer<'_, ()> {
        self.did(format!("{name} {}", request.reserve_disks), ())
    }
    fn resume_job(&self, job: u64) -> Answer<'_, ()> {
        self.did(format!("resume {job}"), ())
    }
    fn export_pool(&self, name: String) -> Answer<'_, ()> {
        self.did(format!("export {name}"), ())
    }
    fn import_pool(&self, request: ImportPool) -> Answer<'_, ImportedPool> {
        let imported = ImportedPool {
            name: request.pool.clone().unwrap_or_default(),
            volumes: Vec::new(),
            shares: Vec::new(),
            users: Vec::new(),
            passwords_lost: Vec::new(),
            missing_disks: Vec::new(),
            not_served: Vec::new(),
            administrators: Vec::new(),
            notes: Vec::new(),
        };
        self.did(format!("import {}", request.disks.join(" ")), imported)
    }
    fn rebalance_pool(&self, step: RebalanceStep) -> Answer<'_, RebalanceJob> {
        let job = if matches!(step, RebalanceStep::Own(_)) { 5 } else { 4 };
        self.did(format!("{step:?}"), RebalanceJob { job, is_wanted: true })
    }
    fn create_volume(&self, request: CreateVolume) -> Answer<'_, VolumeId> {
        self.did(format!("volume {} {}", request.name, request.size_bytes), VolumeId::from_bytes([1; 16]))
    }
    fn acknowledge_disk(&self, disk: DiskId) -> Answer<'_, ()> {
        self.did(format!("acknowledge {disk}"), ())
    }
    fn forget_promises(&self, disk: DiskId, request: ForgetPromises) -> Answer<'_, ForgottenPromises> {
        let forgotten = ForgottenPromises { disk, volumes: Vec::new() };
        self.did(format!("forget promises of {disk} {:?}", request.confirm), forgotten)
    }
    fn erase_disk(&self, request: EraseDisk) -> Answer<'_, ErasedDisk> {
        let erased = ErasedDisk { path: request.path.clone(), held: String::new() };
        self.did(format!("erase {} {:?}", request.path, request.confirm), erased)
    }
    fn delete_pool(&self, name: String) -> Answer<'_, DeletedPool> {
        self.did(format!("delete pool {name}"), DeletedPool { name, labelled_disks: Vec::new() })
    }
    fn set_volume(&self, name: String, request: SetVolume) -> Answer<'_, ()> {
        self.did(format!("set {name} {:?} {:?}", request.size_bytes, request.warn_at_percent), ())
    }
    fn delete_volume(&self, name: String) -> Answer<'_, ()> {
        self.did(format!("delete volume {name}"), ())
    }
    fn check_volume(&self, name: String, _: CheckVolume) -> Answer<'_, Started> {
        self.did(name, Started { job: 4 })
    }
    fn volume_damage(&self, name: String) -> Answer<'_, VolumeDamage> {
        let ranges = vec![DamagedRange { offset_bytes: 8192, length_bytes: 4096 }];
        let files = vec![DamagedFile { path: r"plans\a".into(), ranges }];
        self.did(name, VolumeDamage { files, ..VolumeDamage::default() })
    }
    fn shares(&self) -> Answer<'_, Vec<ShareView>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn create_share(&self, request: CreateShare) -> Answer<'_, ()> {
        self.did(request.name, ())
    }
    fn set_share(&self, name: String, _: ShareOptions) -> Answer<'_, ()> {
        self.did(name, ())
    }
    fn delete_share(&self, name: String) -> Answer<'_, ()> {
        self.did(format!("delete share {name}"), ())
    }
    fn users(&self) -> Answer<'_, Vec<UserView>> {
        Box::pin(async { Err(ApiError::new(ErrorKind::Unavailable, "the data plane has ended")) })
    }
    fn add_user(&self, request: AddUser) -> Answer<'_, ()> {
        self.did(format!("add user {}", request.name), ())
    }
    fn set_user(&self, name: String, _: SetUser) -> Answer<'_, ()> {
        self.did(name, ())
    }
    fn delete_user(&self, name: String) -> Answer<'_, ()> {
        self.did(format!("delete user {name}"), ())
    }
    fn groups(&self) -> Answer<'_, Vec<GroupView>> {
        let sid = "S-1-5-21-1-2-3-1000".parse().unwrap();
        let staff = GroupView { name: "Staff".into(), sid, members: Vec::new(), builtin: false };
        Box::pin(async { Ok(vec![staff]) })
    }
    fn add_group(&self, request: AddGroup) -> Answer<'_, ()> {
        self.did(request.name, ())
    }
    fn set_group(&self, name: String, _: SetGroup) -> Answer<'_, ()> {
        self.did(name, ())
    }
    fn delete_group(&self, name: String) -> Answer<'_, ()> {
        self.did(name, ())
    }
    fn acl(&self, share: String, path: String) -> Answer<'_, AclView> {
        let view = AclView { owner: share, group: path, entries: None, protected: false };
        Box::pin(async move { Ok(view) })
    }
    fn follow_now(&self) -> Answer<'_, ()> {
        self.did("follow", ())
    }
    fn quotas(&self, volume: String, user: Option<String>) -> Answer<'_, QuotaReport> {
        let report = QuotaReport {
            mode: QuotaMode::Track,
            counting: false,
            default_threshold_bytes: None,
            default_limit_bytes: Some(7),
            users: Vec::new(),
            truncated: false,
        };
        self.did(format!("quotas {volume} {user:?}"), report)
    }
    fn set_quotas(&self, volume: String, _: SetQuotas) -> Answer<'_, ()> {
        self.did(format!("set quotas {volume}"), ())
    }
    fn set_quota(&self, volume: String, user: String, _: Option<QuotaBounds>) -> Answer<'_, ()> {
        self.did(format!("set quota {volume} {user}"), ())
    }
    fn set_acl(&self, share: String, path: String, _: SetAcl) -> Answer<'_, AclChanged> {
        self.did(format!("acl {share} {path}"), AclChanged { job: None, still_inherited: Vec::new() })
    }
    fn rdma(&self) -> Answer<'_, Rdma> {
        Box::pin(async { Ok(Rdma::default()) })
    }
    fn rdma_trace(&self, connection: u64) -> Answer<'_, RdmaTrace> {
        Box::pin(async move { Ok(RdmaTrace { connection, ..RdmaTrace::default() }) })
    }
    fn close_session(&self, session: u64) -> Answer<'_, ()> {
        self.did(format!("close session {session}"), ())
    }
    fn close_file(&self, open: u64) -> Answer<'_, ()> {
        self.did(format!("close file {open}"), ())
    }
    fn cancel_job(&self, job: u64) -> Answer<'_, ()> {
        self.did(format!("cancel {job}"), ())
    }
    fn test_alerts(&self) -> Answer<'_, Vec<TestedReceiver>> {
        self.did("test alerts".to_owned(), Vec::new())
    }
    fn tokens(&self) -> Answer<'_, Vec<TokenView>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn create_token(&self, request: CreateToken) -> Answer<'_, CreatedToken> {
        let CreateToken { name, role, .. } = request;
        let made = CreatedToken { name: name.clone(), role, expires_unix_s: None, token: "t".into() };
        self.did(format!("create token {name}"), made)
    }
    fn delete_token(&self, name: String) -> Answer<'_, ()> {
        self.did(format!("delete token {name}"), ())
    }
    fn token_of(&self, hash: TokenHash) -> Option<ApiToken> {
        self.tokens.lock().unwrap().iter().find(|token| token.hash() == Some(hash)).cloned()
    }
    fn audit_by(&self, actor: &str, _: &str, action: &str, target: &str, outcome: Outcome, _: &str) {
        self.actors.lock().unwrap().push(actor.into());
        self.audited.lock().unwrap().push((action.into(), target.into(), outcome));
    }
}

struct Server {
    address: SocketAddr,
    token: String,
    daemon: Arc<Daemon>,
    _directory: tempfile::TempDir,
}

fn server() -> Server {
    server_in(Vec::new())
}

/// A server of a cluster, the first of these.
fn server_in(servers: Vec<&'static str>) -> Server {
    server_with(servers, Pages::default())
}

fn server_with(servers: Vec<&'static str>, pages: Pages) -> Server {
    server_over(Daemon { servers, ..Daemon::default() }, pages)
}

fn server_over(daemon: Daemon, pages: Pages) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let token = Token::open_or_create(&directory.path().join("api.token")).unwrap();
    let text = token.as_str().to_owned();
    let daemon = Arc::new(daemon);
    let served = daemon.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            api::serve(listener, served, Arc::new(token), pages).await;
        });
    });
    Server { address, token: text, daemon, _directory: directory }
}

impl Server {
    /// Sends bytes, then reads all until the server closes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may close before everything is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn request(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let authorization = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        let answer = self.raw(
            format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                 {authorization}Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        );
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = self.request(method, path, Some(&self.token), body);
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    fn done(&self) -> Vec<String> {
        self.daemon.done.lock().unwrap().clone()
    }
}

#[test]
fn listings_are_json_with_units_in_their_names() {
    let server = server();
    let (status, disks) = server.ask("GET", "/api/v1/disks", "");
    assert_eq!((status, &disks[0]["size_bytes"]), (200, &Value::from(1_u64 << 33)));
    assert_eq!(disks[0]["health"], "warning");
}

#[test]
fn nothing_under_api_answers_without_the_token_and_the_attempt_is_audited() {
    let server = server();
    let wrong = "0".repeat(64);
    for token in [None, Some("x"), Some(wrong.as_str()), Some("")] {
        let (status, body) = server.request("POST", "/api/v1/users", token, r#"{"name":"a","password":"b"}"#);
        assert_eq!(status, 401, "{token:?}");
        assert!(body.contains("unauthorized"), "{body}");
    }
    assert!(server.done().is_empty());
    assert!(server.daemon.audited.lock().unwrap().iter().all(|(_, _, outcome)| *outcome == Outcome::Refused));
    assert_eq!(server.daemon.audited.lock().unwrap().len(), 4);
}

#[test]
fn one_who_tries_tokens_without_end_does_not_fill_the_audit_log() {
    let server = server();
    let long = format!("/api/v1/{}", "x".repeat(20_000));
    for _ in 0..40 {
        assert_eq!(server.request("GET", &long, Some("x"), "").0, 401);
    }
    let audited = server.daemon.audited.lock().unwrap().clone();
    // More only if the attempts took longer than a minute.
    assert!((10..40).contains(&audited.len()), "{}", audited.len());
    assert!(audited.iter().all(|(_, target, _)| target.len() < 1000));
}

#[test]
fn what_destroys_needs_the_name_of_what_it_destroys() {
    let server = server();
    for path in [
        "/api/v1/volumes/one",
        "/api/v1/volumes/one?confirm=two",
        "/api/v1/pools/one?confirm=two",
        "/api/v1/shares/one?confirm=",
        "/api/v1/users/one",
    ] {
        let (status, body) = server.ask("DELETE", path, "");
        assert_eq!((status, &body["kind"]), (428, &Value::from("confirmation_needed")), "{path}");
    }
    assert!(server.done().is_empty());
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/one?confirm=one", "").0, 200);
    assert_eq!(server.done(), ["delete volume one"]);
}

#[test]
fn names_with_every_kind_of_character_arrive_as_they_are() {
    let server = server();
    let (status, acl) = server.ask("GET", "/api/v1/shares/my%20share/acl?path=a%5Cb%20%C3%A9", "");
    assert_eq!(
        (status, &acl["owner"], &acl["group"]),
        (200, &Value::from("my share"), &Value::from("a\\b é"))
    );
}

#[test]
fn what_another_server_has_is_handed_on_to_it_and_its_answer_is_the_answer() {
    let server = server();
    let (status, told) = server.ask("PATCH", "/api/v1/volumes/far", r#"{"size_bytes":1}"#);
    assert_eq!((status, told["at"].as_str(), told["method"].as_str()), (202, Some("node-2"), Some("PATCH")));
    assert_eq!(told["path"], "/api/v1/volumes/far");
    assert_eq!(told["body"], r#"{"size_bytes":1}"#);
    let (_, told) = server.ask("GET", "/api/v1/shares/far/acl?path=a", "");
    assert_eq!(told["path"], "/api/v1/shares/far/acl?path=a");
    let audited = server.daemon.audited.lock().unwrap().clone();
    assert_eq!(audited.len(), 1, "reading is not audited: {audited:?}");
    assert!(audited[0].0.starts_with("handed on to node-2"), "{audited:?}");
    let (status, _) = server.ask("PATCH", "/api/v1/volumes/near", r#"{"size_bytes":1}"#);
    assert_eq!(status, 200);
    // Nothing is handed on without the token.
    let (status, _) = server.request("PATCH", "/api/v1/volumes/far", None, r#"{"size_bytes":1}"#);
    assert_eq!(status, 401);
}

#[test]
fn a_job_of_another_server_is_looked_at_ended_and_resumed_there_and_never_here() {
    let server = server_in(vec!["here", "node-2"]);
    for (method, path) in [
        ("GET", "/api/v1/jobs/2000001"),
        ("DELETE", "/api/v1/jobs/2000001"),
        ("POST", "/api/v1/jobs/2000001/resume"),
    ] {
        let (status, told) = server.ask(method, path, "");
        assert_eq!((status, &told["at"], &told["path"]), (202, &"node-2".into(), &path.into()), "{method}");
    }
    assert!(server.done().is_empty(), "{:?}", server.done());
    assert_eq!(server.ask("POST", "/api/v1/jobs/1000001/resume", "").0, 200);
    assert_eq!(server.done(), ["resume 1000001"]);
}

#[test]
fn the_list_of_jobs_is_the_clusters_and_names_servers_that_do_not_answer() {
    let asked = |servers| {
        let server = server_in(servers);
        let head = format!(
            "GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            server.token
        );
        let answer = server.raw(head.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let missing = head.lines().find_map(|line| line.strip_prefix("cenote-unanswered: "));
        (missing.map(str::to_owned), serde_json::from_str::<Value>(body).expect("JSON"))
    };
    let (missing, jobs) = asked(vec!["here", "silent", "node-2"]);
    assert_eq!(missing.as_deref(), Some("silent"));
    assert_eq!(jobs.as_array().map(Vec::len), Some(1), "{jobs}");
    assert_eq!((&jobs[0]["id"], &jobs[0]["server"]), (&2_000_001.into(), &"node-2".into()));
    assert_eq!(asked(vec!["here", "node-2"]).0, None);
    assert_eq!(asked(Vec::new()), (None, Value::Array(Vec::new())), "a single server asks nobody");
}

#[test]
fn the_answer_to_a_change_of_accounts_names_servers_that_have_not_confirmed_it() {
    let asked = |servers, method: &str, path: &str, body: &str| {
        let server = server_in(servers);
        let head = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            server.token,
            body.len()
        );
        let answer = server.raw(head.as_bytes());
        let unconfirmed = answer.lines().find_map(|line| line.strip_prefix("cenote-unconfirmed: "));
        (answer[9..12].to_owned(), unconfirmed.map(str::to_owned))
    };
    let disable = r#"{"enabled":false}"#;
    let ok = |unconfirmed: Option<&str>| ("200".to_owned(), unconfirmed.map(str::to_owned));
    assert_eq!(asked(vec!["here", "node-2", "down"], "PATCH", "/users/ann", disable), ok(None));
    assert_eq!(asked(Vec::new(), "PATCH", "/users/ann", disable), ok(None), "a single server asks nobody");
    let servers = vec!["here", "silent", "node-2", "earlier version"];
    let began = Instant::now();
    assert_eq!(asked(servers, "DELETE", "/shares/s?confirm=s", ""), ok(Some("earlier version, silent")));
    assert!(began.elapsed() >= Duration::from_secs(2), "a server that cannot confirm yet may soon");
    assert_eq!(asked(vec!["here", "silent"], "POST", "/alerts/test", ""), ok(None), "no change of accounts");
}

#[test]
fn open_files_are_listed_in_parts_and_each_part_says_who_has_more() {
    let asked = |servers: Vec<&'static str>, query: &str| {
        let server =
            server_over(Daemon { servers, opens: vec![3, 5, 8], ..Daemon::default() }, Pages::default());
        let head = format!(
            "GET /api/v1/files{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            server.token
        );
        let answer = server.raw(head.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let more = head.lines().find_map(|line| line.strip_prefix("cenote-more: ")).map(str::to_owned);
        let files: Value = serde_json::from_str(body).expect("JSON");
        let of = |files: &Vec<Value>| files.iter().filter_map(|file| file["id"].as_u64()).collect::<Vec<_>>();
        (files.as_array().map(of), more)
    };
    assert_eq!(asked(Vec::new(), ""), (Some(vec![3, 5]), Some("-".into())));
    assert_eq!(asked(Vec::new(), "?after=5"), (Some(vec![8]), None));
    assert_eq!(asked(vec!["here", "silent"], ""), (Some(vec![3, 5]), Some("here".into())));
    assert_eq!(asked(vec!["here", "silent"], "?server=here&after=5"), (Some(vec![8]), None));
}

#[tokio::test]
async fn a_part_of_the_open_files_that_is_carried_says_that_there_is_more() {
    let management: Arc<dyn Management> = Arc::new(Daemon { opens: vec![3, 5, 8], ..Daemon::default() });
    let errands = Errands::new(&management);
    let peer = SocketAddr::from(([127, 0, 0, 2], 1));
    for (path, status) in [("/api/v1/files?local=true", 206), ("/api/v1/files?after=5&local=true", 200)] {
        let errand = Errand { method: "GET".into(), path: path.into(), body: String::new() };
        assert_eq!(errands.carry_out(peer, errand, Caller::of_token_file()).await.status, status, "{path}");
    }
}

#[test]
fn head_is_handed_on_as_get_and_leaves_no_line() {
    let server = server_in(vec!["here", "node-2"]);
    for path in ["/api/v1/volumes/far", "/api/v1/volumes/far/quotas", "/api/v1/jobs/2000001"] {
        let head = format!(
            "HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            server.token
        );
        let answer = server.raw(head.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    }
    assert_eq!(*server.daemon.audited.lock().unwrap(), Vec::new());
}

#[test]
fn every_server_of_a_cluster_does_its_part_of_a_rebalance_and_one_that_does_not_answer_makes_it_fail() {
    let ended = |servers: Vec<&'static str>| {
        let server = server_in(servers);
        let (status, started) = server.ask("POST", "/api/v1/pools/tank/rebalance", "");
        assert_eq!((status, &started["job"]), (200, &4.into()), "the job of all");
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(end) = server.done().into_iter().find(|done| done.starts_with("End")) {
                return (end, server.done());
            }
            assert!(Instant::now() < until, "it goes on for ever: {:?}", server.done());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let (end, done) = ended(vec!["here", "node-2"]);
    let parts = ["state: Completed", "here: 1 moves were planned", "node-2: 1 moves were planned"];
    assert!(parts.iter().all(|part| end.contains(part)), "{end}");
    assert!(done[0].starts_with("Begin") && done[1].starts_with("Own"), "{done:?}");
    let noted = done.iter().rfind(|done| done.starts_with("Note")).expect("progress");
    assert!(noted.contains("bytes: (14, 14)"), "{noted}");
    let (end, _) = ended(vec!["here", "silent", "node-2"]);
    let parts = ["state: Failed", "not done by silent", "node-2: 1 moves were planned"];
    assert!(parts.iter().all(|part| end.contains(part)), "{end}");
    // Another server requests the part of this one alone.
    let server = server_in(vec!["here", "node-2"]);
    let (_, started) = server.ask("POST", "/api/v1/pools/tank/rebalance?local=true", "");
    assert_eq!((&started["job"], server.done().len()), (&5.into(), 1), "{:?}", server.done());
}

#[tokio::test]
async fn an_errand_is_carried_out_and_never_handed_on_again() {
    let management: Arc<dyn Management> = Arc::new(Daemon::default());
    let errands = Errands::new(&management);
    let peer = SocketAddr::from(([127, 0, 0, 2], 1));
    let errand = |method: &str, path: &str, body: &str| Errand {
        method: method.into(),
        path: path.into(),
        body: body.into(),
    };
    let body = r#"{"size_bytes":1}"#;
    let carried =
        errands.carry_out(peer, errand("PATCH", "/api/v1/volumes/far", body), Caller::of_token_file()).await;
    assert_eq!(carried.status, 200, "{}", carried.body);
    for (bad, status) in [
        (errand("PATCH", "/api/v1/volumes/far", "rubbish"), 400),
        (errand("GET", "/api/v1/nothing", ""), 404),
        (errand("GET", "/metrics", ""), 404),
        // A server's certificate is not the administrator's token.
        (errand("POST", "/api/v1/users", r#"{"name":"a","password":"Long-enough-1"}"#), 404),
        (errand("NO METHOD", "/api/v1/volumes/far", ""), 400),
        (errand("GET", "not a path", ""), 400),
    ] {
        let carried = errands.carry_out(peer, bad, Caller::of_token_file()).await;
        assert_eq!(carried.status, status, "{}", carried.body);
    }
    // Another server's part of a list, and a job of that server.
    assert_eq!(
        errands.carry_out(peer, errand("GET", "/api/v1/jobs", ""), Caller::of_token_file()).await.body,
        "[]"
    );
    assert_eq!(
        errands
            .carry_out(peer, errand("POST", "/api/v1/jobs/2000001/resume", ""), Caller::of_token_file())
            .await
            .status,
        200
    );
    // Another server's dashboard requests this each second.
    let asked = || errands.carry_out(peer, errand("GET", "/api/v1/perf/second", ""), Caller::of_token_file());
    assert_eq!(asked().await.status, 503);
    for uptime_us in [1, 2] {
        management.seconds().note(Performance { uptime_us, ..Performance::default() }, Instant::now());
    }
    let second: LastSecond = serde_json::from_str(&asked().await.body).unwrap();
    assert_eq!((second.before.uptime_us, second.after.uptime_us), (1, 2));
    drop(management);
    let carried =
        errands.carry_out(peer, errand("PATCH", "/api/v1/volumes/far", body), Caller::of_token_file()).await;
    assert_eq!(carried.status, 503);
}

#[test]
fn bad_requests_get_a_json_error_and_change_nothing() {
    let server = server();
    for (method, path, body, expected) in [
        ("POST", "/api/v1/users", "", 400),
        ("POST", "/api/v1/users", "{", 400),
        ("POST", "/api/v1/users", r#"{"name":"a"}"#, 400),
        ("POST", "/api/v1/users", r#"{"name":"a","password":"b","admin":true}"#, 400),
        ("POST", "/api/v1/volumes", r#"{"name":"a","size_bytes":-1}"#, 400),
        ("POST", "/api/v1/disks/notauuid/retire", "null", 400),
        ("DELETE", "/api/v1/sessions/-1", "", 400),
        ("DELETE", "/api/v1/volumes/a?confirm=a&force=1", "", 400),
        ("GET", "/api/v1/nothing", "", 404),
        ("GET", "/elsewhere", "", 404),
        ("GET", "/api/v1/users", "", 503),
    ] {
        let (status, answer) = server.ask(method, path, body);
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        assert!(answer["message"].is_string(), "{method} {path}: {answer}");
    }
    assert!(server.done().is_empty());
}

#[test]
fn a_body_over_the_limit_is_refused_and_the_server_goes_on() {
    let server = server();
    let body = format!(r#"{{"name":"{}","password":"b"}}"#, "a".repeat(1 << 20));
    let (status, _) = server.ask("POST", "/api/v1/users", &body);
    assert_ne!(status, 200);
    assert!(server.done().is_empty());
    assert_eq!(server.ask("GET", "/api/v1/disks", "").0, 200);
}

#[test]
fn garbage_instead_of_http_ends_that_connection_only() {
    let server = server();
    for bytes in [&b"\xfeSMB@\0\0\0"[..], b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n", &[0; 70_000]] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(server.ask("GET", "/api/v1/disks", "").0, 200);
}

/// DNS rebinding: a page in a browser of this machine has its name resolve to this server, and sends
/// requests to it as if to its own server.
#[test]
fn what_needs_no_token_is_told_to_those_who_meant_this_machine_only() {
    let server = server();
    let status = |path: &str, host: &str, more: &str| {
        let answer = server.raw(
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n").as_bytes(),
        );
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or(0)
    };
    for path in ["/metrics", "/openapi.json"] {
        for host in ["127.0.0.1", "127.0.0.1:9445", "[::1]:9445", "[::1]", "localhost", "LOCALHOST:9445"] {
            assert_eq!(status(path, host, ""), 200, "{path} {host}");
        }
        for host in ["evil.example", "evil.example:9445", "192.0.2.1:9445", "localhost.evil.example", "x"] {
            assert_eq!(status(path, host, ""), 401, "{path} {host}");
        }
        let token = format!("Authorization: Bearer {}\r\n", server.token);
        assert_eq!(status(path, "filer.example", &token), 200, "{path}: with the token by any name");
    }
    assert_eq!(status("/healthz", "filer.example", ""), 200, "health is told to everybody");
}

#[test]
fn metrics_are_prometheus_text_with_labels_escaped() {
    let server = server();
    let (status, text) = server.request("GET", "/metrics", None, "");
    assert_eq!(status, 200);
    let line = text.lines().find(|line| line.starts_with("cenote_disk_info{")).unwrap();
    assert!(line.contains(r#"path="/dev/a \"b\"\n""#), "{line}");
    let line = text.lines().find(|line| line.starts_with("cenote_disk_corrupt_blocks_total{")).unwrap();
    assert_eq!(line, format!("cenote_disk_corrupt_blocks_total{{disk=\"{}\"}} 3", disk().id));
    assert!(text.contains("# TYPE cenote_disk_corrupt_blocks_total counter"));
    for (name, value) in [
        ("cenote_disk_medium_errors_total", "1"),
        ("cenote_disk_lost_writes_total", "4"),
        ("cenote_disk_device_used_ratio", "0.05"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).expect(name);
        assert!(line.ends_with(&format!(" {value}")), "{line}");
    }
    assert!(!text.contains("cenote_disk_device_spare_ratio"), "a device that does not say is left out");
    assert!(text.contains("\ncenote_health 1\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let known = name.starts_with("cenote_") || name.starts_with("process_");
        assert!(known && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn the_openapi_document_names_every_path_and_the_token() {
    let server = server();
    let (status, body) = server.request("GET", "/openapi.json", None, "");
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    for path in ["/api/v1/disks", "/api/v1/volumes/{name}", "/api/v1/shares/{name}/acl", "/api/v1/jobs/{id}"]
    {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert!(document["components"]["schemas"]["Disk"].is_object());
}

/// Each operation of the document: path, method, and description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of = |path: &String, item: &Value| {
        let item = item.as_object().unwrap().clone();
        item.into_iter()
            .map({
                let path = path.clone();
                move |(method, said)| (path.clone(), method, said)
            })
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(|(path, item)| of(path, item)).collect()
}

#[test]
fn every_operation_has_a_summary_a_tag_described_answers_and_errors_with_one_schema() {
    let document = serde_json::to_value(api::openapi()).unwrap();
    let tags: Vec<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let operations = operations(&document);
    assert!(operations.len() > 50);
    for (path, method, said) in &operations {
        let at = format!("{method} {path}");
        assert!(said["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{at}");
        assert!(tags.contains(&&said["tags"][0]) && said["tags"].as_array().unwrap().len() == 1, "{at}");
        let answers = said["responses"].as_object().unwrap();
        assert!(answers.contains_key("200"), "{at}");
        assert_eq!(answers.contains_key("401"), path != "/healthz", "{at}");
        assert_eq!(
            answers.contains_key("400"),
            !said["parameters"].is_null() || !said["requestBody"].is_null(),
            "{at}"
        );
        for (status, answer) in answers {
            assert!(answer["description"].as_str().is_some_and(|text| !text.is_empty()), "{at} {status}");
            let json = &answer["content"]["application/json"]["schema"];
            let is_error = !status.starts_with('2') && path != "/healthz";
            assert_eq!(json["$ref"] == "#/components/schemas/ApiError", is_error, "{at} {status}");
        }
    }
    let licence = &document["info"]["license"];
    assert_eq!(
        (&licence["name"], &licence["identifier"]),
        (&Value::from("Apache-2.0 OR MIT"), &licence["name"])
    );
    let ids: std::collections::BTreeSet<&str> =
        operations.iter().map(|(.., said)| said["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), operations.len(), "each has a name of its own");
}

#[test]
fn every_list_of_things_has_single_things_below_it() {
    let document = serde_json::to_value(api::openapi()).unwrap();
    for (list, one) in [
        ("disks", "{id}"),
        ("pools", "{name}"),
        ("volumes", "{name}"),
        ("shares", "{name}"),
        ("users", "{name}"),
        ("groups", "{name}"),
        ("sessions", "{id}"),
        ("files", "{id}"),
        ("jobs", "{id}"),
    ] {
        let schema = |path: String| {
            document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                .clone()
        };
        let (all, single) = (schema(format!("/api/v1/{list}")), schema(format!("/api/v1/{list}/{one}")));
        assert!(single["$ref"].is_string(), "{list}");
        assert_eq!(all["items"], single, "{list}");
    }
}

#[test]
fn every_schema_that_is_referred_to_is_there() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| match value.as_str() {
                Some(name) if key == "$ref" => found.push(name.to_owned()),
                _ => references(value, found),
            }),
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = serde_json::to_value(api::openapi()).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for name in found {
        assert!(document.pointer(name.trim_start_matches('#')).is_some(), "{name}");
    }
}

#[test]
fn single_things_are_shown_by_id_or_by_name_whatever_its_case() {
    let server = server();
    let (status, one) = server.ask("GET", &format!("/api/v1/disks/{}", disk().id), "");
    assert_eq!((status, &one["path"]), (200, &Value::from(disk().path)));
    let (status, group) = server.ask("GET", "/api/v1/groups/STAFF", "");
    assert_eq!((status, &group["name"]), (200, &Value::from("Staff")));
    for path in [
        "disks/00000000-0000-0000-0000-000000000000",
        "volumes/none",
        "groups/none",
        "sessions/1",
        "files/1",
        "jobs/1",
    ] {
        let (status, error) = server.ask("GET", &format!("/api/v1/{path}"), "");
        assert_eq!((status, &error["kind"]), (404, &Value::from("not_found")), "{path}");
    }
}

#[test]
fn what_is_made_is_answered_as_an_object_with_id_and_name() {
    let server = server();
    let (status, made) = server.ask("POST", "/api/v1/volumes", r#"{"name":"one","size_bytes":1073741824}"#);
    let id = VolumeId::from_bytes([1; 16]).to_string();
    assert_eq!((status, &made["id"], &made["name"]), (200, &Value::from(id), &Value::from("one")));
    let (_, made) = server.ask("POST", "/api/v1/pools", r#"{"name":"first","disks":[]}"#);
    assert_eq!(
        (&made["id"], &made["name"]),
        (&Value::from(PoolId::from_bytes([1; 16]).to_string()), &Value::from("first"))
    );
    let (_, made) = server.ask("POST", "/api/v1/disks", r#"{"path":"/dev/c"}"#);
    assert_eq!((&made["id"], &made["name"]), (&Value::from(disk().id.to_string()), &Value::from("/dev/c")));
}

#[test]
fn the_configuration_is_toml_or_json_as_the_client_wishes() {
    let server = server();
    let (status, text) = server.request("GET", "/api/v1/config", Some(&server.token), "");
    assert_eq!((status, text.as_str()), (200, "[smb]\n"));
    let answer = server.raw(
        format!(
            "GET /api/v1/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/json\r\n\
             Authorization: Bearer {}\r\n\r\n",
            server.token
        )
        .as_bytes(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    assert_eq!(serde_json::from_str::<Value>(body).unwrap()["smb"]["require_signing"], true);
}

#[test]
fn healthz_answers_without_a_token() {
    assert_eq!(server().request("GET", "/healthz", None, "").0, 200);
}

#[test]
fn those_who_ask_without_end_whether_it_is_alive_ask_the_data_plane_once_a_second() {
    let server = server();
    let began = std::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(server.request("GET", "/healthz", None, "").0, 200);
    }
    let (asked, seconds) = (server.daemon.snapshots.load(Ordering::Relaxed), began.elapsed().as_secs());
    assert!(asked <= 1 + seconds as usize, "{asked} times in {seconds} s");
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let server = server();
    let silent: Vec<TcpStream> =
        (0..api::CONNECTIONS_MAX + 40).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let began = std::time::Instant::now();
    assert_eq!(server.ask("GET", "/api/v1/disks", "").0, 200);
    assert!(began.elapsed() < Duration::from_secs(5), "it waited until they were given up");
    drop(silent);
}

#[test]
fn damage_is_listed_by_file_and_in_the_document() {
    let server = server();
    let (status, damage) = server.ask("GET", "/api/v1/volumes/projects/damage", "");
    assert_eq!(status, 200);
    assert_eq!(damage["files"][0]["path"], r"plans\a");
    assert_eq!(damage["files"][0]["ranges"][0]["offset_bytes"], 8192);
    let (_, document) = server.ask("GET", "/openapi.json", "");
    assert!(document["paths"]["/api/v1/volumes/{name}/damage"]["get"].is_object());
    let disk = &document["components"]["schemas"]["DiskCounters"]["properties"];
    assert!(disk["medium_errors"].is_object() && disk["lost_writes"].is_object());
}

#[test]
fn a_server_leaves_the_cluster_only_if_its_name_is_confirmed() {
    let server = server();
    let (status, _) = server.ask("DELETE", "/api/v1/nodes/node-2", "");
    assert_eq!(status, 428);
    let (status, _) = server.ask("DELETE", "/api/v1/nodes/node-2?confirm=node-2", "");
    assert_eq!(status, 200);
    let (status, body) = server.ask("GET", "/api/v1/nodes/node-2", "");
    assert_eq!(status, 404, "{body}");
}
