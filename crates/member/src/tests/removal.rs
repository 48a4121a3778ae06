//! A server that was removed while it runs learns of it.

use super::founding::{ENDS, Founder, create, has_etcd, with_anothers_etcd};
use super::*;
use records::Fault;
use records::accounts::Accounts;

#[tokio::test]
async fn a_server_that_runs_learns_from_the_records_or_from_the_others_that_it_was_removed() {
    let (first, second) = (Server::new("node-1"), Server::new("node-2"));
    let control = first.found("C").await;
    let token = control.new_token().await.unwrap().token;
    join(&second, &token).await.unwrap();
    let second = Server { state: first.state.clone(), key: first.key.clone(), ..second };
    let reading = second.start();
    let keeping = tokio::spawn(crate::keep(reading.clone()));
    let credentials = reading.credentials().unwrap();
    let until_known = async {
        while Identity::open(second.data.path()).unwrap().unwrap().known().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, until_known).await.expect("it keeps its part");
    // The same server when its records do not answer: it asks the others.
    let silent = MemoryState::new();
    silent.set_fault_hook(Some(Box::new(|_| Fault::Lost)));
    let cut_off = Server { state: State::from(silent), ..second };
    for (server, asks) in [(&reading, true), (&cut_off.start(), true)] {
        assert!(!server.removal.learn(&server.state, &credentials, asks).await, "it is in the cluster");
    }
    control.remove_node("node-2".into()).await.unwrap();
    let asking = cut_off.start();
    assert!(!asking.removal.learn(&asking.state, &credentials, false).await, "nobody has said so");
    assert!(asking.removal.learn(&asking.state, &credentials, true).await);
    // It starts again, and its API gives the reason until then.
    let restart = reading.restart();
    tokio::time::timeout(PATIENCE, restart.notified()).await.expect("it is to start again");
    assert!(reading.removed().unwrap().contains("was removed from cluster C"), "{:?}", reading.removed());
    keeping.abort();
}

#[tokio::test]
async fn a_removed_server_changes_nothing_over_the_connection_to_etcd_that_it_has() {
    if !has_etcd() {
        return;
    }
    let (_first, _, _engine, founder) = with_anothers_etcd().await;
    let (state, engine) = founder.open().unwrap();
    let control = founder.control(&state, engine);
    create(&control, "D").await.unwrap();
    let _serving = founder.server.serve(&control);
    let token = control.new_token().await.unwrap().token;
    let second = Founder::named("node-2", ENDS);
    let places = EnginePlaces { other: founder.places.other.clone(), ..second.places.clone() };
    let second = Founder { places, ..second };
    let (alone, engine) = second.open().unwrap();
    second.control(&alone, engine).join(JoinCluster { address: None, token }).await.unwrap();
    drop(alone);
    // Nobody keeps its part in the cluster, so that it does not learn of its removal.
    let (own, engine) = second.open().unwrap();
    let running = second.control(&own, engine);
    let (key, now_unix_s) = (second.identity().unwrap().seal_key().unwrap(), unix_now_s());
    let add_user = |name: &str| Accounts::new(&own, &key).add_user(name, "", "Pa55 w%rd", &[], now_unix_s);
    add_user("ann").unwrap();
    control.remove_node("node-2".into()).await.unwrap();
    // One that could take the volumes of another.
    state.write(&record(3, false), 0).unwrap();
    let refusals = [
        add_user("evil").unwrap_err().to_string(),
        api_tokens::create(&own, "evil", Role::Administrator, None, now_unix_s).unwrap_err().to_string(),
        running.new_token().await.unwrap_err().message,
        running.set_draining("node-1".into(), true).await.unwrap_err().message,
    ];
    for refusal in refusals {
        assert!(refusal.contains("this server was removed from the cluster"), "{refusal}");
    }
    let users = Accounts::new(&state, &key).users().unwrap();
    assert_eq!(users.iter().map(|user| user.user.name.as_str()).collect::<Vec<_>>(), ["ann"]);
    assert_eq!(control.view().await.unwrap().nodes[0].state, NodeStatus::Up);
}
