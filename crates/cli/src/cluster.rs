//! `cenote cluster`, `cenote node`.

use crate::args;
use crate::output::{Align, Column, confirm, json, pairs, say, show_utc, table, word};
use crate::printable::println;
use api::cluster::{
    BusChannel, BusPeer, BusQueue, CheckOutcome, ClusterView, CreateCluster, JoinCluster, Joined, NewToken,
    NodeStatus, NodeView, PreflightCheck, TestCluster,
};
use api_client::{Client, Failure, escaped};
use owo_colors::OwoColorize;
use std::time::Duration;
use types::size::show_size;

/// Interval between checks of a server that drains.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn cluster(client: &Client, as_json: bool, command: args::Cluster) -> Result<(), Failure> {
    match command {
        args::Cluster::Create { name } => {
            let made: ClusterView = client.post("/cluster", &CreateCluster { name: name.clone() })?;
            if as_json {
                return json(&made);
            }
            println!(
                "cluster {name} is made, with this server; `cenote cluster token` lets the next one join"
            );
            Ok(())
        }
        args::Cluster::Token => {
            let made: NewToken = client.post("/cluster/tokens", &())?;
            if as_json {
                return json(&made);
            }
            println!("{}", made.token);
            Ok(())
        }
        args::Cluster::Join { address, token } => {
            let token = token.read().map_err(Failure::new)?.ok_or_else(|| {
                Failure::new(
                    "give the token that `cenote cluster token` prints on a server of the cluster: --join-token-file FILE, or - for standard input",
                )
            })?;
            let joined: Joined = client.post("/cluster/join", &JoinCluster { address, token })?;
            if as_json {
                return json(&joined);
            }
            println!(
                "{} is server {} of cluster {}, and starts again as a part of it",
                joined.name, joined.id, joined.cluster
            );
            Ok(())
        }
        args::Cluster::Test { address, token } => {
            let token = token.read().map_err(Failure::new)?;
            test(client, as_json, TestCluster { address, token })
        }
        // The caller has carried it out: no server runs.
        args::Cluster::Recover { .. } => Ok(()),
        args::Cluster::Status => {
            let view: ClusterView = client.get("/cluster")?;
            if as_json {
                return json(&view);
            }
            show(&view);
            Ok(())
        }
    }
}

/// Fails if a check failed.
fn test(client: &Client, as_json: bool, request: TestCluster) -> Result<(), Failure> {
    let checks: Vec<PreflightCheck> = client.post("/cluster/test", &request)?;
    if as_json {
        json(&checks)?;
    } else {
        let columns = ["CHECK", "SERVER", "RESULT", "FOUND"].map(|name| Column(name, Align::Left));
        let rows = checks.iter().map(|check| {
            let result = match check.outcome {
                CheckOutcome::Good => "good".green().to_string(),
                CheckOutcome::Warning => "warning".yellow().to_string(),
                CheckOutcome::Failed => "failed".red().bold().to_string(),
            };
            vec![check.check.clone(), check.subject.clone(), result, check.found.clone()]
        });
        table(&columns, rows.collect(), "nothing was looked at");
    }
    match checks.iter().filter(|check| check.outcome == CheckOutcome::Failed).count() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of {} checks failed; nothing was changed", checks.len()))),
    }
}

fn show(view: &ClusterView) {
    let engine = &view.engine;
    match &view.unserved {
        Some(unserved) => println!("{}", unserved.sentence.red().bold()),
        None if view.name.is_some() => println!("{}", what_may_fail(view).bold()),
        None => {}
    }
    let version = engine.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    pairs(&[
        ("cluster", view.name.clone().unwrap_or_else(|| "none: this is a single server".into())),
        ("state", format!("{}{version}, revision {}", engine.name, engine.revision)),
        (
            "quorum",
            match engine.members.as_slice() {
                [] => "this server alone".to_owned(),
                members => format!("{} of {} ({})", engine.quorum, members.len(), sorted(members.to_vec())),
            },
        ),
    ]);
    if view.name.is_some() {
        pairs(&servers(&view.nodes));
    }
    if view.authority_ends_unix_s.is_some() {
        pairs(&[("authority", show_end(view.authority_ends_unix_s))]);
        for node in by_name(&view.nodes) {
            pairs(&[("certificate", format!("{}: {}", node.name, show_end(node.certificate_ends_unix_s)))]);
        }
    }
    for note in engine.notes.iter().chain(&view.at_risk) {
        println!("note       {note}");
    }
    if view.name.is_some() {
        println!();
        list(&view.nodes);
    }
}

/// Says in a sentence what may fail now.
fn what_may_fail(view: &ClusterView) -> String {
    let down: Vec<String> = view
        .nodes
        .iter()
        .filter(|node| node.state == NodeStatus::Down)
        .map(|node| node.name.clone())
        .collect();
    let now = match down.is_empty() {
        true => "all servers are up".to_owned(),
        false => format!(
            "{} of {} servers are up, {} is down",
            view.nodes.len() - down.len(),
            view.nodes.len(),
            sorted(down)
        ),
    };
    match view.at_risk.first() {
        None => format!("{now}; any one of them may fail, and all volumes stay served"),
        Some(first) => format!("{now}; no further server may fail: {first}"),
    }
}

/// The servers by their states.
fn servers(nodes: &[NodeView]) -> Vec<(&'static str, String)> {
    let named = |wanted: &dyn Fn(NodeStatus) -> bool| {
        let found = nodes.iter().filter(|node| wanted(node.state));
        found.map(|node| node.name.clone()).collect::<Vec<_>>()
    };
    let lines = [
        ("up", named(&|state| state == NodeStatus::Up)),
        ("drained", named(&|state| matches!(state, NodeStatus::Draining | NodeStatus::Drained))),
        ("down", named(&|state| state == NodeStatus::Down)),
    ];
    lines
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(key, names)| (key, sorted(names)))
        .collect()
}

fn sorted(mut names: Vec<String>) -> String {
    names.sort_unstable();
    names.join(", ")
}

fn by_name(nodes: &[NodeView]) -> Vec<&NodeView> {
    let mut nodes: Vec<&NodeView> = nodes.iter().collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}

fn list(nodes: &[NodeView]) {
    let columns = [
        Column("NAME", Align::Left),
        Column("STATE", Align::Left),
        Column("ADDRESSES", Align::Left),
        Column("DISKS", Align::Right),
        Column("VOLUMES", Align::Left),
        Column("PID", Align::Right),
        Column("VERSION", Align::Left),
    ];
    let rows = by_name(nodes).into_iter().map(|node| {
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        vec![
            node.name.clone(),
            if node.is_witness { format!("{}, witness", word(node.state)) } else { word(node.state) },
            addresses.join(", "),
            node.disks.to_string(),
            node.volumes.join(", "),
            node.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            node.version.clone(),
        ]
    });
    table(
        &columns,
        rows.collect(),
        "no servers: this is a single one; `cenote cluster create` makes it a cluster's first",
    );
}

pub fn node(client: &Client, as_json: bool, command: args::Node) -> Result<(), Failure> {
    match command {
        args::Node::List => {
            let nodes: Vec<NodeView> = client.get("/nodes")?;
            if as_json {
                return json(&nodes);
            }
            list(&nodes);
            Ok(())
        }
        args::Node::Show { name } => {
            let node: NodeView = client.get(&format!("/nodes/{}", escaped(&name)))?;
            if as_json {
                return json(&node);
            }
            show_node(&node);
            Ok(())
        }
        args::Node::Drain { name, watch, force, confirmation } => {
            let node: NodeView = client.get(&format!("/nodes/{}", escaped(&name)))?;
            let path = format!("/nodes/{}", escaped(&node.name));
            let forced = match force {
                false => String::new(),
                true => {
                    let what = format!(
                        "volumes whose only copies are on server '{}' are not served while it is stopped",
                        node.name
                    );
                    confirm(&what, &node.name, confirmation.yes.as_deref())?;
                    format!("?force=true&confirm={}", escaped(&node.name))
                }
            };
            let () = client.post(&format!("{path}/drain{forced}"), &())?;
            if watch {
                await_drained(client, &path)?;
                return say(as_json, format!("server '{}' is drained, and may be stopped", node.name));
            }
            let what = format!(
                "server '{}' drains; `cenote node show {}` says when it is drained",
                node.name, node.name
            );
            say(as_json, what)
        }
        args::Node::Resume { name } => {
            let node: NodeView = client.get(&format!("/nodes/{}", escaped(&name)))?;
            let () = client.post(&format!("/nodes/{}/resume", escaped(&node.name)), &())?;
            say(
                as_json,
                format!(
                    "server '{}' may serve volumes again: those that are made there, or that it takes over when another server dies",
                    node.name
                ),
            )
        }
        args::Node::Remove { name, confirmation } => {
            let node: NodeView = client.get(&format!("/nodes/{}", escaped(&name)))?;
            let what = format!("this removes server '{}' from the cluster for good", node.name);
            confirm(&what, &node.name, confirmation.yes.as_deref())?;
            let name = escaped(&node.name);
            client.delete(&format!("/nodes/{name}?confirm={name}"))?;
            say(as_json, format!("server '{}' is out of the cluster", node.name))
        }
    }
}

/// Waits as long as it takes; fails if the server is taken back, or dies.
fn await_drained(client: &Client, path: &str) -> Result<(), Failure> {
    loop {
        let node: NodeView = client.get(path)?;
        match node.state {
            NodeStatus::Drained => return Ok(()),
            NodeStatus::Draining => std::thread::sleep(LOOK_EVERY),
            state => {
                let left = node.volumes.join(", ");
                let why = format!("server '{}' is {} now, and has {left}", node.name, word(state));
                return Err(Failure::new(why));
            }
        }
    }
}

fn show_node(node: &NodeView) {
    let none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
    pairs(&[
        ("name", node.name.clone()),
        ("number", node.id.to_string()),
        ("state", word(node.state)),
        ("addresses", addresses.join(", ")),
        ("SMB", if node.is_witness { "none: it is the witness".to_owned() } else { node.smb.to_string() }),
        ("SMB Direct", node.rdma.map_or_else(|| "none".to_owned(), |address| address.to_string())),
        ("cluster", node.cluster.to_string()),
        ("etcd", if node.runs_etcd { "runs a member" } else { "runs none" }.to_owned()),
        ("rack", none(&node.rack)),
        ("chassis", none(&node.chassis)),
        ("disks", node.disks.to_string()),
        ("volumes", none(&node.volumes.join(", "))),
        ("version", node.version.clone()),
        ("joined", show_utc(i64::try_from(node.joined_unix_s).unwrap_or_default())),
        ("certificate", show_end(node.certificate_ends_unix_s)),
        ("held dead", node.false_deaths.map_or_else(|| "not known".to_owned(), show_false_deaths)),
    ]);
    if let Some(bus) = &node.bus {
        show_bus(bus);
    }
}

/// How often it was taken for dead without being so, and why that may be.
fn show_false_deaths(times: u64) -> String {
    match times {
        0 => "never while it ran, since the server that was asked started".to_owned(),
        1 => "once while it ran: it was paused, overloaded or cut off (OPERATIONS.md, Hyper-converged machines)".to_owned(),
        times => {
            format!("{times} times while it ran: it is paused, overloaded or cut off (OPERATIONS.md, Hyper-converged machines)")
        }
    }
}

/// Until when a certificate is good.
fn show_end(unix_s: Option<u64>) -> String {
    let end = unix_s.and_then(|end| i64::try_from(end).ok());
    end.map_or_else(|| "not known".to_owned(), |end| format!("good until {}", show_utc(end)))
}

/// Shows one priority's queue of requests to a node.
fn show_queue(queue: &BusQueue) -> (String, String) {
    let longest_ms = queue.longest_wait_us.div_ceil(1000);
    let line = format!(
        "{} left, {} waiting, {} under way, longest wait {longest_ms} ms",
        queue.requests,
        queue.waiting,
        show_size(queue.in_flight_bytes)
    );
    (format!("queue {}", word(queue.priority)), line)
}

/// Shows the load of one connection to a node.
fn show_channel(channel: &BusChannel) -> (String, String) {
    let state = if channel.is_up { "up" } else { "down" };
    let line = format!(
        "{state}, {} requests, {} moved, {} under way",
        channel.requests,
        show_size(channel.moved_bytes),
        show_size(channel.in_flight_bytes)
    );
    (format!("channel to {}", channel.address), line)
}

/// How its disks are reached from here.
fn show_bus(bus: &BusPeer) {
    let transport = if bus.rdma { "SMB Direct" } else { "TCP" };
    let at = bus.address.map(|address| format!(", {transport} to {address}")).unwrap_or_default();
    let trouble = bus.trouble.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
    let latency = match (bus.latency_mean_us, bus.latency_p99_us) {
        (Some(mean), Some(bound)) => format!("{mean} us on average, 99 of 100 within {bound} us"),
        (Some(mean), None) => format!("{mean} us on average"),
        (None, _) => "nothing was asked".to_owned(),
    };
    pairs(&[
        ("bus", format!("{}{at}{trouble}", word(bus.state))),
        (
            "requests",
            format!(
                "{} asked, {} answered, {} lost, {} under way",
                bus.requests, bus.answers, bus.unreachable, bus.in_flight
            ),
        ),
        ("payload", format!("{} written, {} read", show_size(bus.written_bytes), show_size(bus.read_bytes))),
        ("latency", latency),
        (
            "late reads",
            format!(
                "{}, {} asked of another copy too, which answered first {} times",
                bus.late_reads, bus.hedged_reads, bus.hedges_won
            ),
        ),
        (
            "sessions",
            format!(
                "{}, {} channels lost, {} waits for credits",
                bus.connections, bus.channels_lost, bus.credit_stalls
            ),
        ),
    ]);
    let channels: Vec<(String, String)> = bus.channels.iter().map(show_channel).collect();
    pairs(&channels.iter().map(|(name, line)| (name.as_str(), line.clone())).collect::<Vec<_>>());
    let in_use = bus.queues.iter().filter(|queue| queue.requests > 0 || queue.waiting > 0);
    let queues: Vec<(String, String)> = in_use.map(show_queue).collect();
    pairs(&queues.iter().map(|(name, line)| (name.as_str(), line.clone())).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(states: &[(&str, &str)], at_risk: &[&str]) -> ClusterView {
        let node = |(name, state): &(&str, &str)| {
            json!({
                "name": name, "state": state, "id": 1, "addresses": [], "pid": null, "smb": "10.0.0.1:445", "rdma": null,
                "cluster": "10.0.0.1:9447", "runs_etcd": true, "is_witness": false, "rack": "", "chassis": "", "version": "1",
                "joined_unix_s": 1, "disks": 1, "volumes": [], "bus": null,
            })
        };
        let nodes: Vec<_> = states.iter().map(node).collect();
        serde_json::from_value(json!({
            "name": "C", "id": "1", "nodes": nodes, "at_risk": at_risk,
            "engine": {"name": "etcd", "version": null, "revision": 1, "members": [], "quorum": 2, "notes": []},
        }))
        .expect("a view")
    }

    #[test]
    fn the_first_line_says_who_is_up_and_what_may_fail_now() {
        let whole = view(&[("node-2", "up"), ("node-1", "up"), ("node-3", "up")], &[]);
        assert_eq!(
            what_may_fail(&whole),
            "all servers are up; any one of them may fail, and all volumes stay served"
        );
        let one_down =
            view(&[("node-2", "up"), ("node-1", "up"), ("node-3", "down")], &["with one more server ..."]);
        assert_eq!(
            what_may_fail(&one_down),
            "2 of 3 servers are up, node-3 is down; no further server may fail: with one more server ..."
        );
    }

    #[test]
    fn servers_are_named_by_state_and_in_order() {
        let view =
            view(&[("node-2", "up"), ("node-1", "up"), ("node-3", "drained"), ("node-4", "down")], &[]);
        let told = servers(&view.nodes);
        let told: Vec<(&str, &str)> = told.iter().map(|(key, names)| (*key, names.as_str())).collect();
        assert_eq!(told, [("up", "node-1, node-2"), ("drained", "node-3"), ("down", "node-4")]);
        let names: Vec<&str> = by_name(&view.nodes).iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["node-1", "node-2", "node-3", "node-4"]);
    }
}
