//! A change that one of two servers makes, at the other one.

use super::*;
use api::cluster::{
    Carried, ClusterView, CreateCluster, Errand, JoinCluster, Joined, NewToken, PreflightCheck, TestCluster,
};
use api::model::HealthIssue;
use api::{Caller, Errands, Pages, Token};
use records::{
    Answer as StateAnswer, BlockingState, EngineState, MemoryState, Request, StateDump, StateError,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use types::NodeId;

/// One server's way to the records that both have.
struct Way {
    records: MemoryState,
    is_cut: Arc<AtomicBool>,
}

impl BlockingState for Way {
    fn call(&self, request: Request) -> Result<StateAnswer, StateError> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(StateError::Unknown("no answer in time".into())),
            false => self.records.call(request),
        }
    }
}

impl EngineState for Way {
    fn revision(&self) -> u64 {
        self.records.revision()
    }
    fn trouble(&self) -> Option<records::StateTrouble> {
        None
    }
    fn dump(&self) -> Result<StateDump, StateError> {
        Ok(self.records.dump())
    }
}

/// The cluster in the view of the server that makes the changes.
#[derive(Default)]
struct TwoServers {
    /// Executes the requests to the other one.
    other: OnceLock<Errands>,
}

fn unasked<T: Send + 'static>() -> Answer<'static, T> {
    Box::pin(async { Err(ApiError::new(ErrorKind::Conflict, "no test asks for it")) })
}

impl ClusterManagement for TwoServers {
    fn own(&self) -> Option<NodeId> {
        Some(NodeId(1))
    }
    fn servers(&self) -> Vec<(NodeId, String)> {
        vec![(NodeId(1), "node-1".into()), (NodeId(2), "node-2".into())]
    }
    fn send_for(&self, name: String, errand: Errand, caller: Caller) -> Answer<'_, Carried> {
        assert_eq!(name, "node-2");
        let other = self.other.get().expect("the other server");
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        Box::pin(async move { Ok(other.carry_out(peer, errand, caller).await) })
    }
    fn view(&self) -> Answer<'_, ClusterView> {
        unasked()
    }
    fn create(&self, _: CreateCluster) -> Answer<'_, ClusterView> {
        unasked()
    }
    fn new_token(&self) -> Answer<'_, NewToken> {
        unasked()
    }
    fn join(&self, _: JoinCluster) -> Answer<'_, Joined> {
        unasked()
    }
    fn test(&self, _: TestCluster) -> Answer<'_, Vec<PreflightCheck>> {
        unasked()
    }
    fn remove_node(&self, _: String) -> Answer<'_, ()> {
        unasked()
    }
    fn set_draining(&self, _: String, _: bool) -> Answer<'_, ()> {
        unasked()
    }
    fn force_draining(&self, _: String) -> Answer<'_, ()> {
        unasked()
    }
    fn issues(&self) -> Vec<HealthIssue> {
        Vec::new()
    }
}

/// Two servers over the same records. Requests go to the first one's API.
struct Servers {
    first: SocketAddr,
    token: String,
    /// The second server never notices changes without a request here.
    second: Arc<Bench>,
    /// Whether the second server cannot reach the records.
    is_cut: Arc<AtomicBool>,
}

impl Servers {
    fn new() -> Self {
        let (records, is_cut) = (MemoryState::new(), Arc::new(AtomicBool::new(false)));
        let way =
            |is_cut: &Arc<AtomicBool>| State::new(Way { records: records.clone(), is_cut: is_cut.clone() });
        let key = tempfile::tempdir().unwrap();
        let key = Arc::new(SealKey::open_or_create(&key.path().join("secret.key")).unwrap());
        let two = Arc::new(TwoServers::default());
        let first = Bench::over(way(&Arc::default()), key.clone(), two.clone());
        let second = Arc::new(Bench::over(way(&is_cut), key, Arc::new(TwoServers::default())));
        let management: Arc<dyn Management> = second.manager.clone();
        assert!(two.other.set(Errands::new(&management)).is_ok());
        let token = Token::open_or_create(&first._directory.path().join("api.token")).unwrap();
        let text = token.as_str().to_owned();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = api::asynchronous(listener).unwrap();
                api::serve(listener, first.manager.clone(), Arc::new(token), Pages::default()).await;
            });
        });
        Self { first: address, token: text, second, is_cut }
    }

    /// Makes the first server change something. Returns the answer's status line and headers.
    fn change(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.first).unwrap();
        let request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.split("\r\n\r\n").next().unwrap().to_lowercase()
    }
}

#[test]
fn a_change_is_in_force_at_the_other_server_too_when_it_is_answered() {
    let servers = Servers::new();
    let directory = || servers.second.manager.accounts.directory.current();
    let done = |method: &str, path: &str, body: &str| {
        servers.second.in_force.store(false, Ordering::SeqCst);
        let head = servers.change(method, path, body);
        assert!(
            servers.second.in_force.load(Ordering::SeqCst),
            "{method} {path}: for those who are connected"
        );
        assert!(!head.contains("cenote-unconfirmed"), "{head}");
    };
    done("PATCH", "/users/ann", r#"{"enabled":false}"#);
    assert!(!directory().user("ann").unwrap().user.enabled);
    let before = *directory().user("ann").unwrap().nt_hash;
    done("PATCH", "/users/ann", r#"{"password":"second password"}"#);
    assert_ne!(*directory().user("ann").unwrap().nt_hash, before);
    done("POST", "/groups", r#"{"name":"staff"}"#);
    done("PATCH", "/groups/staff", r#"{"add":["ann"],"remove":[]}"#);
    assert!(directory().groups().iter().any(|group| group.name == "staff" && group.members.len() == 1));
    done("DELETE", "/users/ann?confirm=ann", "");
    assert!(directory().user("ann").is_none());
}

#[test]
fn a_server_that_cannot_read_a_change_is_named_and_knows_that_its_accounts_are_old() {
    let servers = Servers::new();
    servers.is_cut.store(true, Ordering::SeqCst);
    let head = servers.change("PATCH", "/users/ann", r#"{"enabled":false}"#);
    assert!(head.contains("cenote-unconfirmed: node-2"), "{head}");
    let directory = servers.second.manager.accounts.directory.clone();
    let is_enabled = || directory.current().user("ann").unwrap().user.enabled;
    assert!(is_enabled(), "nobody told how accounts have changed");
    let later = || std::time::Instant::now() + Duration::from_secs(6);
    let issue = directory.freshness().issue_at(later()).expect("it knows of a change");
    assert_eq!((&*issue.code, directory.freshness().is_behind_at(later())), ("accounts_behind", true));
    servers.is_cut.store(false, Ordering::SeqCst);
    // The failed reading is retried, on the runtime of the requested server.
    let began = std::time::Instant::now();
    while directory.freshness().is_behind_at(later()) {
        assert!(began.elapsed() < Duration::from_secs(60), "the records are not read");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_enabled());
}
