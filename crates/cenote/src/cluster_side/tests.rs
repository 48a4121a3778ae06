//! Servers that found, join, ask and leave over real TLS, with an engine of the state that does nothing.

use super::asking::{AskError, ask};
use super::engine::Engine;
use super::listener::serve;
use super::*;
use crate::config::Config;
use crate::control::{Command, channel_with};
use api::ClusterManagement;
use api::ErrorKind;
use api::cluster::{CheckOutcome, CreateCluster, JoinCluster, NodeStatus, StateEngine, TestCluster};
use api::model::Snapshot;
use cluster::authority::Fingerprint;
use cluster::join_token::JoinToken;
use cluster::nodes;
use cluster::seal::SealKey;
use cluster::wire::{Ask, Secret, Tell};
use cluster::{MemoryState, NodeRecord, State};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(20);

/// An engine without members.
struct NoEngine;

impl Engine for NoEngine {
    fn view(&self) -> StateEngine {
        StateEngine {
            name: "memory".into(),
            version: None,
            revision: 1,
            members: Vec::new(),
            quorum: 1,
            notes: Vec::new(),
        }
    }
    fn program_version(&self) -> Result<String, String> {
        Ok("3.4.23".into())
    }
    fn add_member(&self, node: &NodeRecord) -> Result<Vec<(String, String)>, String> {
        Ok(node.etcd.iter().map(|member| (member.name.clone(), member.peer_url.clone())).collect())
    }
    fn remove_member(&self, _: &NodeRecord) -> Result<(), String> {
        Ok(())
    }
}

/// A server, as its data directory makes it.
struct Server {
    data: tempfile::TempDir,
    state: State,
    key: Arc<SealKey>,
    name: String,
    /// Of SMB, so that others reach it.
    smb: TcpListener,
    port: TcpListener,
}

impl Server {
    fn new(name: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let key = Arc::new(SealKey::open_or_create(&data.path().join("secret.key")).unwrap());
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State::from(MemoryState::new());
        Self { data, state, key, name: name.into(), smb: listener(), port: listener() }
    }

    /// As it is after a start.
    fn start(&self) -> Arc<ClusterControl> {
        let identity = Identity::open(self.data.path()).unwrap();
        let (control, commands) = channel_with(Arc::new(|| {}));
        std::thread::spawn(move || {
            while let Ok(command) = commands.recv() {
                if let Command::Snapshot { reply, .. } = command {
                    let _ = reply.send(Box::new(Snapshot::default()));
                }
            }
        });
        let mut config = Config::default();
        config.server.name.clone_from(&self.name);
        let guid = Uuid::from_bytes([self.name.len() as u8; 16]);
        let parts = ClusterParts {
            data: self.data.path().to_owned(),
            keys: ClusterKeys {
                smb: vec![self.smb.local_addr().unwrap()],
                ..ClusterKeys::of(&config, Some(&self.port), guid)
            },
            state: self.state.clone(),
            key: self.key.clone(),
            engine: Arc::new(NoEngine),
            control,
            heartbeats: Shared::default(),
        };
        Arc::new(ClusterControl::new(parts, identity.as_ref()).unwrap())
    }

    /// Serves its cluster port; ends with the handle.
    fn serve(&self, control: &Arc<ClusterControl>) -> tokio::task::JoinHandle<()> {
        let identity = Identity::open(self.data.path()).unwrap().unwrap();
        let port = self.port.try_clone().unwrap();
        port.set_nonblocking(true).unwrap();
        let port = tokio::net::TcpListener::from_std(port).unwrap();
        tokio::spawn(serve(port, Arc::new(tls::listening(&identity).unwrap()), control.clone()))
    }

    fn address(&self) -> SocketAddr {
        self.port.local_addr().unwrap()
    }

    async fn found(&self, name: &str) -> Arc<ClusterControl> {
        self.start().create(CreateCluster { name: name.into() }).await.unwrap();
        let control = self.start();
        self.serve(&control);
        control
    }
}

async fn join(server: &Server, token: &str) -> Result<api::cluster::Joined, api::ApiError> {
    server.start().join(JoinCluster { address: None, token: token.into() }).await
}

async fn facts_asked(server: &Server, of: SocketAddr) -> Result<Tell, AskError> {
    let identity = Identity::open(server.data.path()).unwrap().unwrap();
    let tls = Arc::new(tls::asking(&identity).unwrap());
    ask(tls, of, &Ask::Facts, PATIENCE).await.map(|(told, _)| told)
}

#[tokio::test]
async fn a_server_joins_by_a_token_and_is_one_of_the_cluster() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    let joined = join(&second, &token).await.unwrap();
    assert_eq!((joined.name.as_str(), joined.id.0), ("node-2", 2));
    // It has the cluster's key, so that it reads what is sealed.
    let identity = Identity::open(second.data.path()).unwrap().unwrap();
    let sealed = first.key.seal("x", b"secret").unwrap();
    assert_eq!(*identity.seal_key().unwrap().open("x", &sealed).unwrap(), b"secret");
    // A second server on the same token is refused, and is still a single one.
    let third = Server::new("node-3");
    let error = join(&third, &token).await.unwrap_err();
    assert!(error.message.contains("used already, by server node-2"), "{error}");
    assert!(Identity::open(third.data.path()).unwrap().is_none());
    // Both see each other, and one that stops is down. The state is one.
    let second = Server { state: first.state.clone(), ..second };
    let other = second.start();
    let serving = second.serve(&other);
    let states = |view: api::cluster::ClusterView| -> Vec<_> {
        view.nodes.iter().map(|node| (node.name.clone(), node.state)).collect()
    };
    let both = states(control.view().await.unwrap());
    assert_eq!(both, [("node-1".into(), NodeStatus::Up), ("node-2".into(), NodeStatus::Up)]);
    serving.abort();
    let both = states(control.view().await.unwrap());
    assert_eq!(both[1], ("node-2".into(), NodeStatus::Down));
}

#[tokio::test]
async fn the_preflight_before_a_join_changes_nothing_and_leaves_the_token_good() {
    let (first, second) = (Server::new("node-1"), Server::new("NODE-1"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    let before = first.state.dump().unwrap();
    let request = TestCluster { address: None, token: Some(token.clone()) };
    let checks = second.start().test(request).await.unwrap();
    assert_eq!(first.state.dump().unwrap(), before);
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check.outcome == CheckOutcome::Failed)
        .map(|check| check.check.as_str())
        .collect();
    assert_eq!(failed, ["name"], "{checks:?}");
    assert!(checks.iter().any(|check| check.check == "TCP" && check.outcome == CheckOutcome::Good));
    let error = join(&second, &token).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("number 1"), "{error}");
    join(&Server::new("node-2"), &token).await.unwrap();
}

#[tokio::test]
async fn strangers_and_removed_servers_are_told_nothing() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    assert!(matches!(facts_asked(&second, first.address()).await, Ok(Tell::Facts(_))));
    control.remove_node("node-2".into()).await.unwrap();
    let refused = facts_asked(&second, first.address()).await;
    assert!(matches!(refused, Err(AskError::Refused(_))), "{refused:?}");
    // Whoever has no certificate may only join.
    let parsed: JoinToken = token.parse().unwrap();
    let stranger = Arc::new(tls::joining(parsed.authority).unwrap());
    for question in [Ask::Facts, Ask::Probe { targets: Vec::new() }] {
        let told = ask(stranger.clone(), first.address(), &question, PATIENCE).await;
        assert!(matches!(told, Err(AskError::Refused(_))), "{told:?}");
    }
    let question = Ask::Examine { token: "0011223344556677".into(), secret: Secret("00".into()) };
    let told = ask(stranger, first.address(), &question, PATIENCE).await;
    assert!(matches!(told, Err(AskError::Refused(why)) if why.contains("not one of this cluster's")));
}

#[tokio::test]
async fn a_server_of_another_cluster_is_found_out_by_both_sides() {
    let (first, other) = (Server::new("node-1"), Server::new("node-2"));
    first.found("C").await;
    other.found("D").await;
    let asked = facts_asked(&other, first.address()).await;
    assert!(matches!(asked, Err(AskError::Stranger { .. } | AskError::Rubbish { .. })), "{asked:?}");
    // An impostor at the address that a token names.
    let tls = Arc::new(tls::joining(Fingerprint([1; 32])).unwrap());
    let question = Ask::Examine { token: String::new(), secret: Secret(String::new()) };
    let told = ask(tls, first.address(), &question, PATIENCE).await;
    assert!(matches!(told, Err(AskError::Stranger { .. })), "{told:?}");
    assert_eq!(join(&other, "rubbish").await.unwrap_err().kind, ErrorKind::Conflict, "it is in a cluster");
    assert_eq!(join(&Server::new("x"), "rubbish").await.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn connections_that_say_nothing_or_rubbish_keep_nobody_out() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let address = first.address();
    let crowd = tokio::task::spawn_blocking(move || {
        let silent: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(address).ok()).collect();
        let mut rubbish = TcpStream::connect(address).unwrap();
        rubbish.write_all(&[0xff; 4096]).unwrap();
        rubbish.set_read_timeout(Some(PATIENCE)).unwrap();
        // The end of the connection, and not a wait for it.
        let _ = rubbish.read(&mut [0; 1024]);
        silent
    });
    let _crowd = crowd.await.unwrap();
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    assert_eq!(nodes::members(&first.state).unwrap().len(), 2);
}

#[tokio::test]
async fn a_server_without_an_address_for_a_cluster_says_what_to_set() {
    let server = Server::new("node-1");
    let state = server.state.clone();
    let keys = ClusterKeys::of(&Config::default(), None, Uuid::nil());
    let (control, _commands) = channel_with(Arc::new(|| {}));
    let data = server.data.path().to_owned();
    let parts = ClusterParts {
        data,
        keys,
        state,
        key: server.key.clone(),
        engine: Arc::new(NoEngine),
        control,
        heartbeats: Shared::default(),
    };
    let control = ClusterControl::new(parts, None).unwrap();
    let error = control.create(CreateCluster { name: "C".into() }).await.unwrap_err();
    assert!(error.message.contains("cluster.listen"), "{error}");
    let error = control.new_token().await.unwrap_err();
    assert!(error.message.contains("in no cluster"), "{error}");
}

#[tokio::test]
async fn a_founding_that_was_cut_off_is_begun_again() {
    let server = Server::new("node-1");
    // As if it had ended behind the commit: the records are there, and DATA/cluster is not.
    server.start().create(CreateCluster { name: "C".into() }).await.unwrap();
    std::fs::remove_dir_all(server.data.path().join("cluster")).unwrap();
    server.start().create(CreateCluster { name: "D".into() }).await.unwrap();
    assert_eq!(Identity::open(server.data.path()).unwrap().unwrap().facts.cluster, "D");
    assert_eq!(nodes::members(&server.state).unwrap().len(), 1);
}
