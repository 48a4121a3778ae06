//! Servers that found, join, ask and leave over real TLS, with an engine of the state that does nothing.

use crate::asking::{AskError, ask, ask_node};
use crate::engine::Engine;
use crate::identity::Facts;
use crate::join_token::JoinToken;
use crate::listener::serve;
use crate::wire::{Ask, Secret, Tell};
use crate::*;
use api::audit::Outcome;
use api::cluster::{
    BusPeer, Carried, CheckOutcome, CreateCluster, Errand, JoinCluster, NodeStatus, StateEngine, TestCluster,
};
use api::{Answer, Caller, ClusterManagement, ErrorKind, Role};
use etcd::TlsIdentity;
use etcd::members::{EtcdAlarm, EtcdStatus, MemberHealth};
use records::api_tokens;
use records::clock::unix_now_s;
use records::nodes;
use records::seal::SealKey;
use records::{
    DiskRecord, DiskState, EtcdMember, FaultDomain, MemoryState, NodeRecord, NodeState, Provisioning, Record,
    Resiliency, State, Typed, VolumeRecord,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trust::authority::Fingerprint;
use types::{DiskId, NodeId, PoolId, VolumeId};
use uuid::Uuid;

mod founding;
mod port;
mod removal;
mod seats;

const PATIENCE: Duration = Duration::from_secs(20);

/// An engine without members.
struct NoEngine;

impl Engine for NoEngine {
    fn view(&self, _: &Result<Vec<MemberHealth>, String>, _: &[EtcdAlarm]) -> StateEngine {
        StateEngine {
            name: "memory".into(),
            version: None,
            revision: 1,
            members: Vec::new(),
            members_down: Vec::new(),
            quorum: 1,
            notes: Vec::new(),
        }
    }
    fn demand_free(&self, _: &str) -> Result<(), EngineError> {
        Ok(())
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
    fn run_member(&self, _: &Identity) -> Result<(), String> {
        Ok(())
    }
    fn reconfigure(&self, _: Vec<String>, _: TlsIdentity) -> Result<(), String> {
        Ok(())
    }
    fn alarms(&self) -> Vec<EtcdAlarm> {
        Vec::new()
    }
    fn members(&self) -> Result<Vec<MemberHealth>, String> {
        Ok(Vec::new())
    }
    fn own_member(&self) -> OwnMember {
        OwnMember::Absent
    }
    fn end_member(&self) {}
    fn drop_member(&self, _: &MemberHealth) -> Result<(), String> {
        Ok(())
    }
    fn carry(&self, _: &Identity) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(Self))
    }
}

/// A server without pools; the test sets its neighbours' lives.
#[derive(Default)]
struct Rest {
    lives: Mutex<BTreeMap<NodeId, bool>>,
    /// Number of calls of `stay`.
    stays: AtomicUsize,
    /// Whether it cannot become a part of a cluster.
    joins_not: AtomicBool,
}

impl OwnServer for Rest {
    fn pools(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn bus(&self) -> Answer<'_, Vec<BusPeer>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn is_up(&self, node: NodeId) -> Option<bool> {
        self.lives.lock().unwrap().get(&node).copied()
    }
    fn ready_to_join(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn stay(&self) {
        self.stays.fetch_add(1, Ordering::SeqCst);
    }
    fn join(&self, _: Facts) -> Answer<'_, ()> {
        let joins_not = self.joins_not.load(Ordering::SeqCst);
        Box::pin(async move {
            match joins_not {
                true => Err(api::ApiError::new(ErrorKind::Unavailable, "no lease")),
                false => Ok(()),
            }
        })
    }
}

/// Status of a member of etcd that votes, and leads.
pub(crate) fn status(id: u64) -> EtcdStatus {
    EtcdStatus {
        id,
        version: "3.4.23".into(),
        leader: Some(id),
        revision: 1,
        applied: 1,
        file_bytes: 0,
        used_bytes: 0,
        is_learner: false,
        errors: Vec::new(),
    }
}

/// The record of a server, which may run a member of etcd.
pub(crate) fn record(number: u8, runs_etcd: bool) -> NodeRecord {
    let at = |port| SocketAddr::from(([10, 1, 0, number], port));
    let name = format!("node-{number}");
    let etcd = runs_etcd.then(|| EtcdMember {
        name: name.clone(),
        peer_url: format!("https://{}", at(1)),
        client_url: format!("https://{}", at(2)),
    });
    NodeRecord {
        id: NodeId(number.into()),
        name,
        server_guid: Uuid::from_bytes([number; 16]),
        addresses: vec![at(0).ip()],
        smb: at(445),
        rdma: None,
        api: at(9445),
        cluster: at(9447),
        heartbeat: at(9447),
        etcd,
        public_key: String::new(),
        certificate_sha256: String::new(),
        certificate_serial: String::new(),
        certified_unix_s: 0,
        earlier_certificates: Vec::new(),
        rack: String::new(),
        chassis: String::new(),
        version: "0.1.0".into(),
        joined_unix_s: 0,
        state: NodeState::Up,
        is_witness: false,
    }
}

/// A server, as its data directory makes it.
struct Server {
    data: tempfile::TempDir,
    state: State,
    key: Arc<SealKey>,
    name: String,
    /// SMB listener, by which others reach the server.
    smb: TcpListener,
    port: TcpListener,
    rest: Arc<Rest>,
    is_witness: bool,
}

impl Server {
    fn new(name: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let key = Arc::new(SealKey::open_or_create(&data.path().join("secret.key")).unwrap());
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let state = State::from(MemoryState::new());
        let (rest, is_witness) = (Arc::default(), false);
        Self { data, state, key, name: name.into(), smb: listener(), port: listener(), rest, is_witness }
    }

    fn witness(name: &str) -> Self {
        Self { is_witness: true, ..Self::new(name) }
    }

    /// As it is after a start.
    fn start(&self) -> Arc<ClusterControl> {
        let identity = Identity::open(self.data.path()).unwrap();
        let parts = ClusterParts {
            data: self.data.path().to_owned(),
            keys: self.keys(Some(self.address())),
            state: self.state.clone(),
            key: self.key.clone(),
            engine: Arc::new(NoEngine),
            server: self.rest.clone(),
        };
        ClusterControl::new(parts, identity).unwrap()
    }

    fn keys(&self, listen: Option<SocketAddr>) -> ClusterKeys {
        ClusterKeys {
            name: self.name.clone(),
            server_guid: Uuid::from_bytes([self.name.len() as u8; 16]),
            listen,
            addresses: Vec::new(),
            smb: if self.is_witness { Vec::new() } else { vec![self.smb.local_addr().unwrap()] },
            rdma: Vec::new(),
            api: SocketAddr::from(([127, 0, 0, 1], 9445)),
            rack: String::new(),
            chassis: String::new(),
            is_witness: self.is_witness,
            uses_other_etcd: false,
        }
    }

    /// Serves its cluster port; ends with the handle.
    fn serve(&self, control: &Arc<ClusterControl>) -> tokio::task::JoinHandle<()> {
        let port = self.port.try_clone().unwrap();
        port.set_nonblocking(true).unwrap();
        let port = tokio::net::TcpListener::from_std(port).unwrap();
        tokio::spawn(serve(port, control.credentials().unwrap(), control.clone()))
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
    // The second server has the cluster's key, so that it reads sealed secrets.
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
async fn a_server_with_tokens_of_its_own_joins_once_they_are_deleted_and_is_told_which() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    let now_unix_s = unix_now_s();
    for (name, expires) in [("monitoring", None), ("backup", Some(now_unix_s + 3600)), ("old", Some(2))] {
        // The last one has long expired, and admits nobody even without a deletion.
        let made_unix_s = if name == "old" { 1 } else { now_unix_s };
        api_tokens::create(&second.state, name, Role::Reader, expires, made_unix_s).unwrap();
    }
    let error = join(&second, &token).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("(backup, monitoring)"), "{error}");
    assert!(Identity::open(second.data.path()).unwrap().is_none());
    for name in ["monitoring", "backup"] {
        api_tokens::delete(&second.state, name).unwrap();
    }
    // The refusal has not used up the token of the cluster.
    join(&second, &token).await.unwrap();
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
    // A server without a certificate may only join.
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
    let parts = ClusterParts {
        data: server.data.path().to_owned(),
        keys: server.keys(None),
        state: server.state.clone(),
        key: server.key.clone(),
        engine: Arc::new(NoEngine),
        server: server.rest.clone(),
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
    // As if it had ended after the commit: the records exist, and DATA/cluster does not.
    server.start().create(CreateCluster { name: "C".into() }).await.unwrap();
    std::fs::remove_dir_all(server.data.path().join("cluster")).unwrap();
    server.start().create(CreateCluster { name: "D".into() }).await.unwrap();
    assert_eq!(Identity::open(server.data.path()).unwrap().unwrap().facts.cluster, "D");
    assert_eq!(nodes::members(&server.state).unwrap().len(), 1);
}

#[tokio::test]
async fn a_witness_joins_as_one_and_another_one_is_refused() {
    let (first, witness) = (Server::new("node-1"), Server::witness("witness"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&witness, &token).await.unwrap();
    assert!(Identity::open(witness.data.path()).unwrap().unwrap().facts.is_witness);
    let nodes = control.view().await.unwrap().nodes;
    assert!(nodes[1].is_witness && nodes[1].runs_etcd && nodes[1].disks == 0);
    let token = control.new_token().await.unwrap().token;
    let error = join(&Server::witness("other"), &token).await.unwrap_err();
    assert!(error.message.contains("has a witness already, 'witness'"), "{error}");
    let error = control.set_draining("witness".into(), true).await.unwrap_err();
    assert!(error.message.contains("nothing to move away"), "{error}");
    // The token is still good for a server; of three members of etcd the witness is one, so that another one is not needed.
    join(&Server::new("node-2"), &token).await.unwrap();
    control.remove_node("witness".into()).await.unwrap();
    let token = control.new_token().await.unwrap().token;
    join(&Server::new("node-3"), &token).await.unwrap();
    let token = control.new_token().await.unwrap().token;
    let error = join(&Server::witness("other"), &token).await.unwrap_err();
    assert!(error.message.contains("needs no witness"), "{error}");
}

/// A disk of the node with that number, in the one pool.
fn disk(number: u8, node: u8, state: DiskState) -> DiskRecord {
    DiskRecord {
        id: DiskId::from_bytes([number; 16]),
        pool: PoolId::from_bytes([1; 16]),
        node: Some(NodeId(node.into())),
        path: format!("/dev/sd{number}"),
        size_bytes: 1 << 40,
        slab_bytes: 1 << 28,
        fault_domain: FaultDomain::default(),
        state,
        since_unix_s: 0,
        scrubbed_unix_s: 0,
    }
}

fn volume(owner: u8, in_sync: &[u8]) -> VolumeRecord {
    let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([1; 16]));
    let disks = in_sync.iter().map(|disk| DiskId::from_bytes([*disk; 16])).collect();
    let (two_way, thin) = (Resiliency::TwoWay, Provisioning::Thin);
    let record = VolumeRecord::new(id, pool, "data", two_way, 1 << 30, thin, disks, 0);
    VolumeRecord { owner: Some(NodeId(owner.into())), ..record }
}

/// A cluster of three, of which the first answers.
async fn three() -> (Server, Arc<ClusterControl>) {
    let first = Server::new("node-1");
    let control = first.found("C").await;
    for name in ["node-2", "node-3"] {
        let token = control.new_token().await.unwrap().token;
        join(&Server::new(name), &token).await.unwrap();
    }
    (first, control)
}

#[tokio::test]
async fn a_server_that_is_up_is_removed_only_when_nothing_is_on_it() {
    let (first, control) = three().await;
    first.rest.lives.lock().unwrap().extend([(NodeId(2), true), (NodeId(3), true)]);
    let on_two = disk(2, 2, DiskState::Healthy);
    let revision = first.state.write(&on_two, 0).unwrap();
    first.state.write(&volume(2, &[2, 3]), 0).unwrap();
    let before = first.state.dump().unwrap();
    let error = control.remove_node("node-2".into()).await.unwrap_err();
    for command in
        ["cenote node drain node-2", "handed over data", &format!("cenote disk retire {}", on_two.id)]
    {
        assert!(error.message.contains(command), "{error}");
    }
    assert_eq!(first.state.dump().unwrap(), before, "nothing was changed");
    first.state.remove::<DiskRecord>(&on_two.id(), revision).unwrap();
    let found = first.state.read::<VolumeRecord>(&volume(2, &[]).id()).unwrap().unwrap();
    first.state.write(&volume(1, &[3]), found.revision).unwrap();
    control.remove_node("node-2".into()).await.unwrap();
    assert_eq!(nodes::members(&first.state).unwrap().len(), 2);
}

#[tokio::test]
async fn a_dead_server_is_removed_unless_its_copies_count_and_its_disks_are_retired_with_it() {
    let (first, control) = three().await;
    first.rest.lives.lock().unwrap().extend([(NodeId(2), false), (NodeId(3), true)]);
    let on_two = disk(2, 2, DiskState::Missing);
    first.state.write(&on_two, 0).unwrap();
    let revision = first.state.write(&volume(2, &[2, 3]), 0).unwrap();
    let error = control.remove_node("node-2".into()).await.unwrap_err();
    assert!(error.message.contains("that data depend on"), "{error}");
    // Another server took it over, and expelled the dead one's disk.
    first.state.write(&volume(3, &[3]), revision).unwrap();
    control.remove_node("node-2".into()).await.unwrap();
    let left = first.state.read::<DiskRecord>(&on_two.id()).unwrap().unwrap();
    assert_eq!(left.value.state, DiskState::Retired);
}

#[tokio::test]
async fn draining_is_recorded_ended_and_taken_back() {
    let (first, control) = three().await;
    let state_of = |number| {
        let found = first.state.read::<NodeRecord>(&NodeRecord::id_of(NodeId(number))).unwrap();
        found.unwrap().value.state
    };
    let error = control.set_draining("nobody".into(), true).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let on = |number| disk(number, number, DiskState::Healthy);
    for number in 1..=3 {
        first.state.write(&on(number), 0).unwrap();
    }
    let revision = first.state.write(&volume(2, &[2]), 0).unwrap();
    let error = control.set_draining("node-2".into(), true).await.unwrap_err();
    for words in ["copies of data are on this server alone", "cenote job list", "node drain node-2 --force"] {
        assert!(error.message.contains(words), "{words}: {error}");
    }
    let revision = first.state.write(&volume(2, &[2, 3]), revision).unwrap();
    control.set_draining("node-2".into(), true).await.unwrap();
    assert_eq!(state_of(2), NodeState::Draining);
    assert!(!crate::admission::note_drained(&first.state, NodeId(2)).unwrap(), "it has a volume");
    let revision = first.state.write(&volume(3, &[2, 3]), revision).unwrap();
    assert!(crate::admission::note_drained(&first.state, NodeId(2)).unwrap());
    assert_eq!(state_of(2), NodeState::Drained);
    assert!(!crate::admission::note_serves_again(&first.state, NodeId(2)).unwrap(), "it has none");
    // No other server could take it over.
    let revision = first.state.write(&volume(2, &[2, 3]), revision).unwrap();
    assert!(crate::admission::note_serves_again(&first.state, NodeId(2)).unwrap());
    assert_eq!(state_of(2), NodeState::Draining, "it is not to be stopped");
    first.state.write(&volume(3, &[2, 3]), revision).unwrap();
    assert!(crate::admission::note_drained(&first.state, NodeId(2)).unwrap());
    control.set_draining("node-2".into(), false).await.unwrap();
    assert_eq!(state_of(2), NodeState::Up);
    control.set_draining("node-2".into(), true).await.unwrap();
    control.set_draining("node-3".into(), true).await.unwrap();
    let error = control.set_draining("node-1".into(), true).await.unwrap_err();
    assert!(error.message.contains("no other server"), "{error}");
}

#[tokio::test]
async fn a_volume_with_one_copy_holds_draining_up_and_the_refusal_names_both_ways_out() {
    let (first, control) = three().await;
    let own = disk(2, 2, DiskState::Healthy);
    let revision = first.state.write(&own, 0).unwrap();
    first.state.write(&disk(3, 3, DiskState::Healthy), 0).unwrap();
    let lone = VolumeRecord { resiliency: Resiliency::Simple, ..volume(2, &[2]) };
    let kept = first.state.write(&lone, 0).unwrap();
    let error = control.set_draining("node-2".into(), true).await.unwrap_err();
    let retire = format!("cenote disk retire {}", own.id);
    for words in ["data has one copy only", &retire, "cenote node drain node-2 --force"] {
        assert!(error.message.contains(words), "{words}: {error}");
    }
    let state_of =
        || first.state.read::<NodeRecord>(&NodeRecord::id_of(NodeId(2))).unwrap().unwrap().value.state;
    assert_eq!(state_of(), NodeState::Up, "nothing was changed");
    control.force_draining("node-2".into()).await.unwrap();
    assert_eq!(state_of(), NodeState::Draining);
    control.set_draining("node-2".into(), false).await.unwrap();
    // The disk was retired, and is empty: nothing holds the server up any more.
    first.state.remove::<DiskRecord>(&own.id(), revision).unwrap();
    let moved = VolumeRecord { in_sync: volume(3, &[3]).in_sync, ..lone };
    first.state.write(&moved, kept).unwrap();
    control.set_draining("node-2".into(), true).await.unwrap();
}

/// Answers every errand with the errand itself.
#[derive(Default)]
struct Echo {
    /// Lines of the audit log.
    lines: Mutex<Vec<String>>,
    carried: AtomicUsize,
}

impl ErrandRunner for Echo {
    fn carry_out(
        &self,
        _: SocketAddr,
        errand: Errand,
        caller: Caller,
    ) -> Pin<Box<dyn Future<Output = Carried> + Send + '_>> {
        self.carried.fetch_add(1, Ordering::Relaxed);
        let by = caller.token().map(|(name, role)| format!(" by {name}, {role}")).unwrap_or_default();
        let body = format!("{} {} {}{by}", errand.method, errand.path, errand.body);
        Box::pin(async move { Carried { status: 200, body } })
    }

    fn audit(&self, peer: SocketAddr, action: &str, target: &str, outcome: Outcome, detail: &str) {
        let line = format!("{} {action} {target} {outcome:?} {detail}", peer.ip());
        self.lines.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn an_errand_reaches_the_server_it_is_for_and_only_servers_of_the_cluster_give_one() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    let second = Server { state: first.state.clone(), ..second };
    let other = second.start();
    other.set_runner(Arc::<Echo>::default());
    let _serving = second.serve(&other);
    let errand = |path: &str| Errand { method: "POST".into(), path: path.into(), body: "{}".into() };
    let carried = control.send("NODE-2".into(), errand("/api/v1/x")).await.unwrap();
    assert_eq!((carried.status, carried.body.as_str()), (200, "POST /api/v1/x {}"));
    let caller = Caller::of_token("backup", Role::Operator);
    let carried = control.send_for("node-2".into(), errand("/api/v1/x"), caller).await.unwrap();
    assert_eq!(carried.body, "POST /api/v1/x {} by backup, operator");
    let error = control.send("node-9".into(), errand("/")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    first.rest.lives.lock().unwrap().insert(NodeId(2), false);
    let error = control.send("node-2".into(), errand("/")).await.unwrap_err();
    assert!(error.message.contains("it is down"), "{error}");
    let question = || {
        let (method, path) = ("DELETE".into(), "/api/v1/volumes/data".into());
        Ask::Errand(crate::wire::Errand { method, path, body: Secret(String::new()), by: None })
    };
    // The record's address is that of another server of the cluster, which must not see the request.
    let echo = Arc::new(Echo::default());
    control.set_runner(echo.clone());
    let record = nodes::member_named(&first.state, "node-2").unwrap().unwrap().value;
    let elsewhere = NodeRecord { cluster: first.address(), ..record };
    let own = Arc::new(tls::asking(&Identity::open(first.data.path()).unwrap().unwrap()).unwrap());
    let told = ask_node(own, &elsewhere, &question(), PATIENCE).await;
    assert!(matches!(told, Err(AskError::Another(_))), "{told:?}");
    assert_eq!(echo.carried.load(Ordering::Relaxed), 0, "the errand was sent to another server");
    // A stranger with a token only, and a server that was removed.
    let parsed: JoinToken = token.parse().unwrap();
    let stranger = Arc::new(tls::joining(parsed.authority).unwrap());
    let told = ask(stranger, second.address(), &question(), PATIENCE).await;
    assert!(matches!(told, Err(AskError::Refused(_))), "{told:?}");
    control.remove_node("node-2".into()).await.unwrap();
    let removed = Arc::new(tls::asking(&Identity::open(second.data.path()).unwrap().unwrap()).unwrap());
    let told = ask(removed.clone(), first.address(), &question(), PATIENCE).await;
    assert!(matches!(told, Err(AskError::Refused(_))), "{told:?}");
    // The server learns that it was removed, and when.
    let told = ask(removed, first.address(), &Ask::Standing, PATIENCE).await;
    let Ok((Tell::Standing { is_member: false, removed_unix_s: Some(removed) }, _)) = told else {
        panic!("{told:?}")
    };
    assert!(records::clock::unix_now_s().abs_diff(removed) < 60, "{removed}");
    let waits = crate::waiting::Waits::Removed { by: "node-1".into(), unix_s: Some(1_795_824_000) };
    let words = waits.in_words(&Identity::open(second.data.path()).unwrap().unwrap());
    assert!(words.contains("'node-2', was removed from cluster C on 2026-11-28"), "{words}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_written_is_issued_once_and_written_later() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    let second = Server { state: first.state.clone(), key: first.key.clone(), ..second };
    let proof = second.start().credentials().unwrap();
    let now = proof.facts().certified_unix_s;
    proof.remember(Facts { certified_unix_s: now - 200 * 86_400, ..proof.facts() }).unwrap();
    let file = proof.directory().join(crate::identity::CERTIFICATE);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("in its way")).unwrap();
    let record = || nodes::member_named(&second.state, "node-2").unwrap().unwrap();
    for _ in 0..6 {
        assert!(renew_if_due(&proof, &second.state, &second.key, now).is_err());
    }
    let issued = record();
    assert!(renew_if_due(&proof, &second.state, &second.key, now).is_err());
    assert_eq!(record().revision, issued.revision, "it was issued once");
    assert!(records::ClusterRecord::find(&second.state).unwrap().unwrap().value.revoked.is_empty());
    std::fs::remove_dir_all(&file).unwrap();
    assert_eq!(renew_if_due(&proof, &second.state, &second.key, now), Ok(true));
    let shown = tls::fingerprint(&Identity::open(second.data.path()).unwrap().unwrap().certificate).unwrap();
    assert_eq!(record().value.certificate_sha256, shown.to_string());
}

#[tokio::test]
async fn a_certificate_is_renewed_while_the_server_runs_and_both_are_good_until_it_leaves() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    let second = Server { state: first.state.clone(), key: first.key.clone(), ..second };
    let other = second.start();
    let _serving = second.serve(&other);
    let before = Identity::open(second.data.path()).unwrap().unwrap();
    let (now, half_year) = (before.facts.certified_unix_s, 200 * 86_400);
    let proof = other.credentials().unwrap();
    assert_eq!(renew_if_due(&proof, &second.state, &second.key, now), Ok(false));
    proof.remember(Facts { certified_unix_s: now - half_year, ..proof.facts() }).unwrap();
    assert_eq!(renew_if_due(&proof, &second.state, &second.key, now), Ok(true));
    assert_eq!(renew_if_due(&proof, &second.state, &second.key, now), Ok(false));
    let after = Identity::open(second.data.path()).unwrap().unwrap();
    assert_ne!(after.certificate, before.certificate);
    // The server presents the new certificate without a restart, and the first server accepts it.
    let tls = Arc::new(tls::asking(&Identity::open(first.data.path()).unwrap().unwrap()).unwrap());
    let (_, shown) = ask(tls, second.address(), &Ask::Facts, PATIENCE).await.unwrap();
    assert_eq!(shown, tls::fingerprint(&after.certificate).unwrap());
    let states = control.view().await.unwrap().nodes;
    assert_eq!(states[1].state, NodeStatus::Up);
    // A connection of before, and one of after.
    for identity in [&before, &after] {
        let tls = Arc::new(tls::asking(identity).unwrap());
        assert!(ask(tls, first.address(), &Ask::Facts, PATIENCE).await.is_ok());
    }
    first.rest.lives.lock().unwrap().insert(NodeId(2), false);
    control.remove_node("node-2".into()).await.unwrap();
    for identity in [&before, &after] {
        let tls = Arc::new(tls::asking(identity).unwrap());
        let told = ask(tls, first.address(), &Ask::Facts, PATIENCE).await;
        assert!(matches!(told, Err(AskError::Refused(_))), "{told:?}");
    }
    assert!(renew_if_due(&proof, &second.state, &second.key, now + half_year).is_err(), "it is out");
}
