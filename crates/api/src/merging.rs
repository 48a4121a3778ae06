//! Merges parts of an answer: pure functions of the parts, whose order does not depend on the server
//! that merges them.

use crate::model::{
    ClusterPerformance, Disk, Health, HealthIssue, HealthReport, Performance, Pool, Rdma, RdmaConnection,
    RdmaDevice, RdmaInterface, RdmaListener, ServerPerformance, VOLUME_UNREACHED, Volume,
};
use crate::seconds::{ClusterSecond, LastSecond, ServerSecond};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Prefixes of issues' targets that belong to the cluster, so that several servers may report the same
/// one.
const OF_THE_CLUSTER: [&str; 5] = ["cluster ", "server ", "volume ", "pool ", "disk "];

/// The parts of an answer, by the name of the server that gave each, and the servers that gave none; both in the order of names.
pub(crate) struct Parts {
    pub told: Vec<(String, Value)>,
    pub unanswered: Vec<String>,
    /// Servers that know more than their part contains.
    pub more: Vec<String>,
}

pub(crate) fn jobs(parts: Parts) -> Value {
    joined(parts, "id")
}

pub(crate) fn files(parts: Parts) -> Value {
    joined(parts, "server")
}

/// Times of each client at each server: percentiles of two cannot be added.
pub(crate) fn clients(parts: Parts) -> Value {
    joined(parts, "client")
}

/// Returns the parts that can be parsed, each with its server's name.
fn read<T: DeserializeOwned>(parts: Parts) -> impl Iterator<Item = (String, T)> {
    parts.told.into_iter().filter_map(|(server, part)| Some((server, serde_json::from_value(part).ok()?)))
}

pub(crate) fn performance(parts: Parts) -> ClusterPerformance {
    let mut whole = ClusterPerformance::default();
    for (server, performance) in read::<Performance>(parts) {
        whole.total.add(&performance);
        whole.servers.push(ServerPerformance { server, performance });
    }
    whole
}

pub(crate) fn last_second(parts: Parts) -> ClusterSecond {
    let mut whole = ClusterSecond::default();
    for (server, second) in read::<LastSecond>(parts) {
        whole.total.before.add(&second.before);
        whole.total.after.add(&second.after);
        whole.servers.push(ServerSecond { server, second });
    }
    whole
}

/// Merges interfaces, devices, listeners and connections of all servers, each with its server, and adds
/// up their counters.
pub(crate) fn rdma(parts: Parts) -> Rdma {
    let mut whole = Rdma::default();
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (server, part) in read::<Rdma>(parts) {
        let node = Some(server.clone()).filter(|server| !server.is_empty());
        let of = || node.clone();
        whole.interfaces.extend(part.interfaces.into_iter().map(|one| RdmaInterface { node: of(), ..one }));
        whole.devices.extend(part.devices.into_iter().map(|one| RdmaDevice { node: of(), ..one }));
        let (state, own) = (&mut whole.state, part.state);
        state.listeners.extend(own.listeners.into_iter().map(|one| RdmaListener { node: of(), ..one }));
        state.connections.extend(own.connections.into_iter().map(|one| RdmaConnection { node: of(), ..one }));
        state.activity.add(&own.activity);
        state.counters.add(&own.counters);
        reasons.entry(part.no_devices).or_default().push(server);
    }
    // Empty: that server can use one.
    if !reasons.contains_key("") {
        let told = |(why, servers): (&String, &Vec<String>)| match reasons.len() {
            1 => why.clone(),
            _ => format!("{}: {why}", servers.join(", ")),
        };
        whole.no_devices = reasons.iter().map(told).collect::<Vec<_>>().join("; ");
    }
    whole
}

/// Merges sessions, except for those of other servers, which are not clients.
pub(crate) fn sessions(parts: Parts) -> Value {
    let mut all = joined(parts, "server");
    if let Value::Array(all) = &mut all {
        all.retain(|session| !is_of_server(session));
    }
    all
}

pub(crate) fn disks(parts: Parts) -> Value {
    known_best(parts, "counters", true)
}

pub(crate) fn volumes(parts: Parts) -> Value {
    let mut all = known_best(parts, "used_bytes", false);
    sort_by_text(&mut all, "name");
    all
}

fn is_of_server(session: &Value) -> bool {
    let shares = session.get("shares").and_then(Value::as_array);
    let is_bus = |share: &Value| share.as_str().is_some_and(|name| name.eq_ignore_ascii_case("bus$"));
    shares.is_some_and(|shares| shares.iter().any(is_bus))
}

fn elements(part: Value) -> Vec<Value> {
    match part {
        Value::Array(all) => all,
        _ => Vec::new(),
    }
}

fn note_server(element: &mut Value, server: &str) {
    if let Some(object) = element.as_object_mut().filter(|_| !server.is_empty()) {
        object.insert("server".to_owned(), Value::String(server.to_owned()));
    }
}

/// All elements of all parts, each with its server.
fn joined(parts: Parts, first: &str) -> Value {
    let mut all = Vec::new();
    for (server, part) in parts.told {
        all.extend(elements(part).into_iter().map(|mut element| {
            note_server(&mut element, &server);
            element
        }));
    }
    let number = |element: &Value, key: &str| element.get(key).and_then(Value::as_u64);
    let text = |element: &Value, key: &str| element.get(key).and_then(Value::as_str).map(str::to_owned);
    all.sort_by_key(|element| (number(element, first), text(element, first), number(element, "id")));
    Value::Array(all)
}

/// Ranks a server's knowledge of an element: best is the server whose element has `key`, then the owner
/// by the records, then a server that can reach the owner.
fn knowledge(element: &Value, key: &str, server: &str) -> u8 {
    let text = |name: &str| element.get(name).and_then(Value::as_str);
    match () {
        () if element.get(key).is_some_and(|value| !value.is_null()) => 3,
        () if !server.is_empty() && text("owner") == Some(server) => 2,
        () if text("status") != Some("detached") => 1,
        () => 0,
    }
}

/// Takes each element from the best informed server ([`knowledge`]); of several, from the first by
/// name.
fn known_best(parts: Parts, key: &str, notes_server: bool) -> Value {
    let mut best: BTreeMap<String, (u8, Value)> = BTreeMap::new();
    for (server, part) in parts.told {
        for mut element in elements(part) {
            let Some(id) = element.get("id").and_then(Value::as_str).map(str::to_owned) else { continue };
            let knowledge = knowledge(&element, key, &server);
            if best.get(&id).is_some_and(|(known, _)| *known >= knowledge) {
                continue;
            }
            if notes_server && knowledge == 3 {
                note_server(&mut element, &server);
            }
            best.insert(id, (knowledge, element));
        }
    }
    Value::Array(best.into_values().map(|(_, element)| element).collect())
}

fn sort_by_text(all: &mut Value, key: &str) {
    if let Value::Array(all) = all {
        all.sort_by(|one, other| {
            let text = |element: &Value| element.get(key).and_then(Value::as_str).map(str::to_owned);
            text(one).cmp(&text(other))
        });
    }
}

/// Merges pools as the records have them, with the worst state that any server reports.
pub(crate) fn pools(parts: Parts, disks: &[Disk]) -> Value {
    let mut all: BTreeMap<String, Pool> = BTreeMap::new();
    for (_, part) in parts.told {
        for pool in elements(part).into_iter().filter_map(|pool| serde_json::from_value::<Pool>(pool).ok()) {
            match all.get_mut(&pool.name) {
                Some(known) => known.health = known.health.max(pool.health),
                None => drop(all.insert(pool.name.clone(), pool)),
            }
        }
    }
    let mut all: Vec<Pool> = all.into_values().collect();
    fill_pools(&mut all, disks);
    serde_json::to_value(all).unwrap_or_default()
}

/// Sums up the bytes that each pool's disks have given to volumes; absent if one does not report them.
pub(crate) fn fill_pools(pools: &mut [Pool], disks: &[Disk]) {
    for pool in pools {
        let own = disks.iter().filter(|disk| disk.pool == Some(pool.id));
        pool.allocated_bytes = own.map(|disk| disk.allocated_bytes).sum();
    }
}

pub(crate) fn health(parts: Parts) -> HealthReport {
    let Parts { told, unanswered, .. } = parts;
    let mut all: BTreeMap<(String, String, String), HealthIssue> = BTreeMap::new();
    let mut of_one: BTreeMap<(String, String, String), BTreeSet<String>> = BTreeMap::new();
    let all_told = told.len();
    for (server, part) in told {
        let report: HealthReport = serde_json::from_value(part).unwrap_or_default();
        for issue in report.issues {
            let is_shared = OF_THE_CLUSTER.iter().any(|prefix| issue.target.starts_with(prefix));
            let place = if is_shared { String::new() } else { server.clone() };
            let key = (issue.target.clone(), issue.code.clone(), place);
            of_one.entry(key.clone()).or_default().insert(server.clone());
            match all.get_mut(&key) {
                None => drop(all.insert(key, issue)),
                Some(known) => {
                    let since_unix_s = known.since_unix_s.min(issue.since_unix_s);
                    // A server is the best source of its own issues, and their remedies.
                    let is_own = issue.target == format!("server {server}");
                    if issue.health > known.health || issue.health == known.health && is_own {
                        *known = issue;
                    }
                    known.since_unix_s = since_unix_s;
                }
            }
        }
    }
    // A server that another one reaches, or that answers itself, serves its volumes.
    all.retain(|key, _| key.1 != VOLUME_UNREACHED || of_one.get(key).is_some_and(|by| by.len() == all_told));
    for (key, issue) in &mut all {
        // An issue that several servers report belongs to the cluster.
        issue.server = match of_one.get(key).map(|servers| servers.iter().collect::<Vec<_>>()).as_deref() {
            Some([one]) if !one.is_empty() => Some((*one).clone()),
            _ => None,
        };
    }
    let mut issues: Vec<HealthIssue> = all.into_values().collect();
    let is_told = |name: &String| {
        let target = format!("server {name}");
        issues.iter().any(|issue| issue.code == "node_down" && issue.target == target)
            || issues.iter().any(|issue| issue.code == "cluster_without_quorum")
    };
    let silent: Vec<HealthIssue> =
        unanswered.iter().filter(|name| !is_told(name)).map(unanswered_issue).collect();
    issues.extend(silent);
    issues.sort_by(|one, other| {
        let order =
            |issue: &HealthIssue| (std::cmp::Reverse(issue.health), issue.target.clone(), issue.code.clone());
        order(one).cmp(&order(other)).then_with(|| one.server.cmp(&other.server))
    });
    let health = issues.iter().map(|issue| issue.health).max().unwrap_or_default();
    HealthReport { health, issues, unanswered }
}

fn unanswered_issue(name: &String) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "server_unanswered".to_owned(),
        target: format!("server {name}"),
        // The start is unknown: this request has found the issue.
        since_unix_s: records::clock::unix_now_s(),
        what: format!("{name} did not answer within a second"),
        meaning: "Issues of its disks and of its part in the cluster are not known, and missing here."
            .to_owned(),
        action: format!(
            "Ask again. If {name} still does not answer, see `cenote node show {name}` and its log."
        ),
        server: None,
    }
}

/// Volumes as all servers know them.
pub fn owner_names(volumes: &mut [Volume], servers: &[(types::NodeId, String)]) {
    for owner in volumes.iter_mut().filter_map(|volume| volume.owner.as_mut()) {
        // Volumes know a server without disks by its number only.
        if let Some((_, name)) = servers.iter().find(|(id, _)| id.to_string() == *owner) {
            owner.clone_from(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parts(told: &[(&str, Value)], unanswered: &[&str]) -> Parts {
        Parts {
            told: told.iter().map(|(name, part)| ((*name).to_owned(), part.clone())).collect(),
            unanswered: unanswered.iter().map(|name| (*name).to_owned()).collect(),
            more: Vec::new(),
        }
    }

    fn issue(health: &str, code: &str, target: &str, since: u64) -> Value {
        json!({"health": health, "code": code, "target": target, "since_unix_s": since, "what": code, "meaning": "", "action": ""})
    }

    fn report(issues: &[Value]) -> Value {
        json!({"health": "healthy", "issues": issues})
    }

    #[test]
    fn what_another_server_found_makes_the_whole_unhealthy_and_has_its_name() {
        let lost = issue("unhealthy", "disk_lost", "disk 7", 5);
        let whole = health(parts(&[("node-1", report(&[])), ("node-2", report(&[lost]))], &[]));
        assert_eq!((whole.health, whole.issues.len()), (Health::Unhealthy, 1));
        assert_eq!(whole.issues[0].server.as_deref(), Some("node-2"));
    }

    #[test]
    fn what_all_servers_tell_of_the_cluster_is_told_once_since_the_first_saw_it() {
        let down = |since| report(&[issue("warning", "node_down", "server node-3", since)]);
        let whole = health(parts(&[("node-1", down(7)), ("node-2", down(5))], &["node-3"]));
        assert_eq!(whole.issues.len(), 1, "{whole:?}");
        assert_eq!((whole.issues[0].since_unix_s, whole.issues[0].server.clone()), (5, None));
        assert_eq!(whole.unanswered, ["node-3"]);
        let audit = || report(&[issue("warning", "audit_log", "/data/audit.log", 5)]);
        let whole = health(parts(&[("node-1", audit()), ("node-2", audit())], &[]));
        let servers: Vec<_> = whole.issues.iter().map(|issue| issue.server.as_deref()).collect();
        assert_eq!(servers, [Some("node-1"), Some("node-2")], "each has a file of its own");
    }

    #[test]
    fn a_server_that_does_not_answer_is_never_taken_for_healthy() {
        let whole = health(parts(&[("node-1", report(&[]))], &["node-2"]));
        assert_eq!((whole.health, whole.issues[0].code.as_str()), (Health::Warning, "server_unanswered"));
    }

    #[test]
    fn each_disk_and_volume_is_told_by_the_server_that_knows_it() {
        let disk = |id: &str, counters: Value| json!({"id": id, "path": "/d", "counters": counters});
        let one = json!([disk("b", Value::Null), disk("a", json!({"reads": 1}))]);
        let two = json!([disk("b", json!({"reads": 2})), disk("a", Value::Null)]);
        let whole = disks(parts(&[("node-1", one), ("node-2", two)], &[]));
        let told: Vec<_> = elements(whole)
            .iter()
            .map(|disk| (disk["counters"]["reads"].clone(), disk["server"].clone()))
            .collect();
        assert_eq!(told, [(json!(1), json!("node-1")), (json!(2), json!("node-2"))]);
        let volume = |name: &str, used: Value| json!({"id": name, "name": name, "used_bytes": used});
        let one = json!([volume("v", Value::Null)]);
        let two = json!([volume("v", json!(7))]);
        let whole = volumes(parts(&[("node-1", one.clone()), ("node-2", two)], &[]));
        assert_eq!(whole[0]["used_bytes"], json!(7));
        let without = volumes(parts(&[("node-1", one)], &["node-2"]));
        assert_eq!(without[0]["used_bytes"], Value::Null, "what nobody knows is not 0");
    }

    #[test]
    fn of_a_server_its_own_word_counts_if_it_is_as_bad() {
        let issue = |what: &str, health: &str| {
            json!({"issues": [{"health": health, "code": "c", "target": "server node-2", "since_unix_s": 7,
                "what": what, "meaning": "", "action": ""}], "health": health})
        };
        let told = |one: Value| {
            let all =
                [("node-1", one), ("node-2", issue("own", "warning")), ("node-3", issue("other", "warning"))];
            health(parts(&all, &[])).issues.into_iter().map(|issue| issue.what).collect::<Vec<_>>()
        };
        assert_eq!(told(issue("other", "warning")), ["own"]);
        assert_eq!(told(issue("worse", "unhealthy")), ["worse"]);
    }

    #[test]
    fn totals_of_all_servers_are_added_and_each_ones_are_there() {
        let part = |operations: u64, uptime_us: u64| {
            let read = crate::model::OperationCounters { operations, ..Default::default() };
            serde_json::to_value(Performance { read, uptime_us, ..Performance::default() }).unwrap()
        };
        let whole = performance(parts(&[("node-1", part(3, 70)), ("node-2", part(4, 50))], &["node-3"]));
        assert_eq!((whole.total.read.operations, whole.total.uptime_us), (7, 70));
        let told = serde_json::to_value(&whole).unwrap();
        assert_eq!(told["servers"][1]["server"], json!("node-2"));
        assert_eq!(told["servers"][1]["read"]["operations"], json!(4));
        let second = |before: u64, after: u64| json!({"before": part(before, 1), "after": part(after, 2)});
        let whole = last_second(parts(&[("node-1", second(1, 3)), ("node-2", second(10, 14))], &[]));
        assert_eq!(whole.total.after.read.operations - whole.total.before.read.operations, 6);
    }

    #[test]
    fn rdma_of_all_servers_has_their_names_and_the_sums_of_their_counters() {
        let part = |no_devices: &str, sends: u64| {
            let mut part = Rdma { no_devices: no_devices.to_owned(), ..Rdma::default() };
            part.state.counters.sends = sends;
            let (address, transport, provider) = ("a:1".into(), "iWARP".into(), "software".into());
            part.state.listeners.push(RdmaListener { node: None, address, transport, provider });
            let mut part = serde_json::to_value(part).unwrap();
            let channel = json!({
                "connection": 1, "send_credits": 1, "receive_credits": 1, "crc": true, "inbound_read_depth": 1, "outbound_read_depth": 1,
                "counters": crate::rdma::SmbDirectCounters::default(),
            });
            part["connections"] =
                json!([{"client": "c:1", "server": "a:1", "transport": "iWARP", "rdma": channel}]);
            part["interfaces"] = json!([{"name": "eth0", "addresses": [], "speed_bits_s": null, "capable": true, "reason": ""}]);
            part["devices"] = json!([{"name": "siw0", "transport": "iWARP", "state": "active", "interface": null, "used": true, "reason": ""}]);
            part
        };
        let whole = rdma(parts(&[("node-1", part("none", 3)), ("node-2", part("none", 4))], &[]));
        assert_eq!((whole.state.counters.sends, whole.no_devices.as_str()), (7, "none"));
        let told = serde_json::to_value(&whole).unwrap();
        for list in ["listeners", "connections", "interfaces", "devices"] {
            let elements = told[list].as_array().unwrap();
            let names: Vec<_> = elements.iter().map(|element| element["node"].as_str().unwrap()).collect();
            assert_eq!(names, ["node-1", "node-2"], "{list}");
        }
        let whole = rdma(parts(&[("node-1", part("none", 0)), ("node-2", part("no driver", 0))], &[]));
        assert_eq!(whole.no_devices, "node-2: no driver; node-1: none");
        let whole = rdma(parts(&[("node-1", part("none", 0)), ("node-2", part("", 0))], &[]));
        assert_eq!(whole.no_devices, "");
    }

    #[test]
    fn a_volume_whose_server_no_other_one_reaches_is_told_so_and_one_bad_link_is_not_that() {
        let silent = || report(&[issue("unhealthy", VOLUME_UNREACHED, "volume v", 5)]);
        let both = health(parts(&[("node-1", silent()), ("node-2", silent())], &["node-3"]));
        assert_eq!((both.health, both.issues[0].target.as_str()), (Health::Unhealthy, "volume v"));
        let one = health(parts(&[("node-1", silent()), ("node-2", report(&[]))], &["node-3"]));
        assert!(one.issues.iter().all(|issue| issue.code != VOLUME_UNREACHED), "{one:?}");
        let volume = |status: &str| json!([{"id": "v", "name": "v", "status": status, "owner": "node-3", "used_bytes": null}]);
        let status = |told: &[(&str, Value)]| volumes(parts(told, &[]))[0]["status"].clone();
        assert_eq!(status(&[("node-1", volume("detached")), ("node-2", volume("detached"))]), "detached");
        assert_eq!(status(&[("node-1", volume("detached")), ("node-2", volume("ok"))]), "ok");
        assert_eq!(
            status(&[("node-1", volume("ok")), ("node-3", volume("detached"))]),
            "detached",
            "its own word"
        );
    }

    #[test]
    fn sessions_have_their_server_and_other_servers_are_no_clients() {
        let session = |id: u64, share: &str| json!({"id": id, "shares": [share]});
        let one = json!([session(2, "data"), session(1, "bus$")]);
        let two = json!([session(2, "data"), session(1, "data")]);
        let whole = sessions(parts(&[("node-1", one), ("node-2", two)], &[]));
        let told: Vec<_> =
            elements(whole).iter().map(|one| (one["server"].clone(), one["id"].clone())).collect();
        assert_eq!(
            told,
            [(json!("node-1"), json!(2)), (json!("node-2"), json!(1)), (json!("node-2"), json!(2))]
        );
    }
}
