//! Members of etcd that are lost, in clusters of real ones.

use super::founding::{Founder, RUNS, create, has_etcd};
use super::*;
use etcd::EtcdState;
use records::accounts::Accounts;
use records::clock::unix_now_s;
use trust::authority::{Authority, NodeKey, is_good};

/// For etcd's elections, and for a member that catches up, on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Runs blocking work on another thread, so that the servers continue meanwhile.
async fn off<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A server of a cluster, with its own member of etcd, that sees to its seat.
struct Running {
    founder: Founder,
    control: Arc<ClusterControl>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Running {
    async fn start(founder: Founder) -> Self {
        let (identity, places) = (open_identity(founder.data()).unwrap(), founder.places.clone());
        let opened = off(move || open_state(identity.as_ref(), &places));
        let (state, engine) = tokio::time::timeout(LONG, opened).await.expect("the state answers").unwrap();
        let control = founder.control(&state, engine);
        let tasks = vec![founder.server.serve(&control), tokio::spawn(keep(control.clone()))];
        Self { founder, control, tasks }
    }

    /// Ends it, and etcd with it.
    async fn stop(self) -> Founder {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        self.control.engine().end_member();
        for task in self.tasks {
            let _ = task.await;
        }
        self.founder
    }

    async fn view(&self) -> api::cluster::ClusterView {
        self.control.view().await.unwrap()
    }

    /// The number of the member of a server, once all three vote.
    async fn number_of(&self, name: &str) -> u64 {
        let mut found = None;
        let until = tokio::time::Instant::now() + LONG;
        while found.is_none() {
            let engine = self.control.engine();
            let members = off(move || engine.members()).await.unwrap_or_default();
            let voters = members.iter().filter(|member| member.trouble().is_none());
            if voters.count() == 3 {
                found = members.iter().find(|member| member.name() == name).map(|member| member.member.id);
            }
            assert!(tokio::time::Instant::now() < until, "three vote: {members:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        found.unwrap()
    }
}

/// Three servers of cluster C.
async fn three() -> Vec<Running> {
    let first = Founder::new(RUNS);
    let (state, engine) = first.open().unwrap();
    let control = first.control(&state, engine);
    create(&control, "C").await.unwrap();
    control.engine().end_member();
    drop((state, control));
    let mut servers = vec![Running::start(first).await];
    for name in ["node-2", "node-3"] {
        let token = servers[0].control.new_token().await.unwrap().token;
        let founder = Founder::named(name, RUNS);
        let (state, engine) = founder.open().unwrap();
        let request = JoinCluster { address: None, token };
        founder.control(&state, engine.clone()).join(request).await.unwrap();
        drop((state, engine));
        servers.push(Running::start(founder).await);
        // etcd has one learner at a time.
        let votes = async { while servers[0].view().await.engine.members.len() < servers.len() {} };
        tokio::time::timeout(LONG, votes).await.expect("it has its vote");
    }
    servers
}

#[tokio::test]
async fn a_member_that_lost_its_data_or_was_removed_is_made_anew_under_another_number() {
    if !has_etcd() {
        return;
    }
    let mut servers = three().await;
    let before = servers[0].number_of("node-2").await;
    let second = servers.remove(1).stop().await;
    // The answer of its process counts, and not a record of the member.
    let view = servers[0].view().await;
    assert_eq!(view.engine.members_down, ["node-2"]);
    assert!(view.at_risk.iter().any(|what| what.contains("one more of node-1, node-3")), "{view:?}");
    assert!(!view.nodes[1].runs_etcd && view.nodes[2].runs_etcd);
    std::fs::remove_dir_all(second.identity().unwrap().etcd_directory()).unwrap();
    let second = Running::start(second).await;
    let anew = servers[0].number_of("node-2").await;
    assert_ne!(before, anew, "Raft does not allow a number that has forgotten its votes");
    assert!(servers[0].view().await.at_risk.iter().all(|what| !what.contains("majority")));

    // Another one is removed from etcd, and its server is not.
    let third = servers[0].number_of("node-3").await;
    let state = servers[0].control.shared_state().unwrap();
    off(move || {
        let until = std::time::Instant::now() + LONG;
        // Refused while connections are younger than five seconds.
        while EtcdState::of(&state).unwrap().members().remove(third).is_err() {
            assert!(std::time::Instant::now() < until);
            std::thread::sleep(Duration::from_millis(100));
        }
    })
    .await;
    let until = tokio::time::Instant::now() + LONG;
    while servers[0].number_of("node-3").await == third {
        assert!(tokio::time::Instant::now() < until, "it is made anew");
    }

    // The founder, whose records of before the cluster are still there.
    let first = servers.remove(0).stop().await;
    let last = &servers[0];
    let key = first.identity().unwrap().seal_key().unwrap();
    let shared = last.control.shared_state().unwrap();
    let accounts = shared.clone();
    off(move || Accounts::new(&accounts, &key).create_builtin_groups().unwrap()).await;
    std::fs::remove_dir_all(first.identity().unwrap().etcd_directory()).unwrap();
    let first = Running::start(first).await;
    last.number_of("node-1").await;
    let own = first.control.shared_state().unwrap();
    let (ours, theirs) = off(move || (own.dump().unwrap(), shared.dump().unwrap())).await;
    assert_eq!(ours.entries, theirs.entries);
    for server in servers.into_iter().chain([first, second]) {
        server.stop().await;
    }
}

#[tokio::test]
async fn the_only_member_without_its_data_makes_no_cluster_of_what_was_before_it() {
    if !has_etcd() {
        return;
    }
    let founder = Founder::new(RUNS);
    let (state, engine) = founder.open().unwrap();
    let control = founder.control(&state, engine);
    create(&control, "C").await.unwrap();
    control.engine().end_member();
    drop((state, control));
    let etcd = founder.identity().unwrap().etcd_directory();
    std::fs::remove_dir_all(&etcd).unwrap();
    let (places, data) = (founder.places.clone(), founder.data().to_owned());
    let opening = std::thread::spawn(move || {
        let identity = Identity::open(&data).unwrap();
        let _ = open_state(identity.as_ref(), &places);
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!opening.is_finished(), "it waits for what it does not have, and says so");
    assert!(!etcd.exists(), "no member that knows nothing was started");
}

#[tokio::test]
async fn a_certificate_that_ended_while_the_server_was_off_is_made_anew_and_put_on_record() {
    if !has_etcd() {
        return;
    }
    let founder = Founder::new(RUNS);
    let (state, engine) = founder.open().unwrap();
    let control = founder.control(&state, engine);
    create(&control, "C").await.unwrap();
    control.engine().end_member();
    drop((state, control));
    let running = Running::start(founder).await;
    let keeps = async {
        while running.founder.identity().unwrap().known().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, keeps).await.expect("it keeps what it needs alone");
    let founder = running.stop().await;

    let mut identity = founder.identity().unwrap();
    let (now, known) = (unix_now_s(), identity.known().unwrap());
    let key = identity.seal_key().unwrap();
    let authority = Authority::open_sealed(identity.facts.id, &known.authority_key, &key).unwrap();
    let proven = NodeKey::from_pem(&identity.key).unwrap().prove("a test").unwrap();
    let then = now - 400 * 86_400;
    let issued = authority.issue("node-1", &known.addresses, &proven, "a test", then).unwrap();
    identity.replace_certificate(issued.pem, then, None).unwrap();

    // A start after more than a year: etcd takes nobody whose certificate has ended, so that it needs
    // another one first.
    let opened = open_identity(founder.data()).unwrap().unwrap();
    assert!(is_good(opened.facts.certified_unix_s, now));
    let running = Running::start(founder).await;
    let renewed = running.founder.identity().unwrap();
    assert!(is_good(renewed.facts.certified_unix_s, now) && !is_good(then, now));
    assert_eq!(
        (&renewed.key, renewed.facts.node),
        (&identity.key, identity.facts.node),
        "it is the server that it was"
    );
    let fingerprint = tls::fingerprint(&renewed.certificate).unwrap().to_string();
    let state = running.control.shared_state().unwrap();
    let recorded = off(move || {
        let until = std::time::Instant::now() + LONG;
        loop {
            let members = nodes::members(&state).unwrap_or_default();
            if members.iter().any(|node| node.value.has_certificate(&fingerprint)) {
                return;
            }
            assert!(std::time::Instant::now() < until, "it is on record");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    recorded.await;
    let view = running.view().await;
    assert!(view.nodes[0].certificate_ends_unix_s.unwrap() > now + 300 * 86_400, "{view:?}");
    assert!(view.authority_ends_unix_s.unwrap() > now + 29 * 365 * 86_400);
    running.stop().await;
}
