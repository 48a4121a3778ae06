//! The view of the cluster: servers with their holdings, and the losses if one more server died.

use crate::preflight::Seen;
use crate::surroundings::OwnServer;
use crate::wire::Facts;
use api::cluster::{CheckOutcome, NodeStatus, NodeView, PreflightCheck, StateEngine};
use records::{
    ClusterRecord, DiskRecord, DiskState, NodeRecord, NodeState, State, StateError, Typed, VolumeRecord,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use trust::authority::certificate_ends_unix_s;
use types::NodeId;

/// Disks and volumes by server, from the records.
pub struct Holdings {
    disks: Vec<DiskRecord>,
    volumes: Vec<VolumeRecord>,
}

/// Condition on which a server may be drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Every volume is served while the server is away.
    Service,
    /// No condition: the administrator knows which volumes are not served.
    Nothing,
}

/// The records that a view is made of, and when they were read.
#[derive(Clone)]
pub(crate) struct LastRead {
    /// The cluster's record; `None`: on a single server.
    pub cluster: Option<ClusterRecord>,
    pub members: Vec<NodeRecord>,
    pub holdings: Arc<Holdings>,
    pub at: Instant,
}

impl LastRead {
    /// # Errors
    /// Errors of the state.
    pub fn now(state: &State) -> Result<Self, StateError> {
        let members = records::nodes::members(state)?.into_iter().map(|node| node.value).collect();
        let cluster = ClusterRecord::find(state)?.map(|found| found.value);
        Ok(Self { cluster, members, holdings: Arc::new(Holdings::read(state)?), at: Instant::now() })
    }
}

impl Holdings {
    /// # Errors
    /// Errors of the state.
    pub fn read(state: &State) -> Result<Self, StateError> {
        let disks = state.list::<DiskRecord>()?.into_iter().map(|disk| disk.value);
        let volumes = state.list::<VolumeRecord>()?.into_iter().map(|volume| volume.value);
        Ok(Self { disks: disks.collect(), volumes: volumes.collect() })
    }

    fn disks_of<'a>(&'a self, node: &NodeRecord) -> impl Iterator<Item = &'a DiskRecord> {
        let id = node.id;
        self.disks.iter().filter(move |disk| disk.node == Some(id))
    }

    fn volumes_of(&self, node: &NodeRecord) -> Vec<&str> {
        let own = self.volumes.iter().filter(|volume| volume.owner == Some(node.id));
        own.map(|volume| volume.name.as_str()).collect()
    }

    /// Demands that no disk of the pool is on a server that is up, and that it has no volume, before it
    /// leaves.
    ///
    /// # Errors
    /// Its holdings, and the commands that move them away.
    pub fn demand_nothing_on(&self, node: &NodeRecord) -> Result<(), String> {
        let disks: Vec<&DiskRecord> = self.disks_of(node).collect();
        let volumes = self.volumes_of(node);
        if disks.is_empty() && volumes.is_empty() {
            return Ok(());
        }
        let name = &node.name;
        // The disks come first: a volume with one copy would not be served without them, and holds draining up.
        let mut steps: Vec<String> = disks.into_iter().map(emptying).collect();
        if node.state == NodeState::Up {
            steps.push(format!("`cenote node drain {name}`"));
        }
        if !volumes.is_empty() {
            steps.push(format!("wait until it has handed over {}", volumes.join(", ")));
        }
        Err(format!(
            "server '{name}' is up and holds data; nothing was changed. Move it away first: {}; then remove it",
            steps.join(", then ")
        ))
    }

    /// Checks, before the removal of a dead server, that no volume depends on its copies.
    ///
    /// # Errors
    /// The volumes that do.
    pub fn demand_nothing_counts_on(&self, node: &NodeRecord) -> Result<(), String> {
        let own: Vec<_> = self.disks_of(node).map(|disk| disk.id).collect();
        let counts = |volume: &&VolumeRecord| volume.in_sync.iter().any(|disk| own.contains(disk));
        let names: Vec<&str> =
            self.volumes.iter().filter(counts).map(|volume| volume.name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(format!(
            "server '{}' has copies that {} depend on. If another server is taking a volume over, wait (`cenote volume \
             list`). If a volume's last copies are there, start the server again, or delete the volume",
            node.name,
            names.join(", ")
        ))
    }

    /// A server may be drained only if every volume can be served while it is away.
    ///
    /// # Errors
    /// Which cannot.
    pub fn demand_served_without(&self, node: &NodeRecord) -> Result<(), String> {
        let own: Vec<_> = self.disks_of(node).map(|disk| disk.id).collect();
        let needs = |volume: &&VolumeRecord| {
            let has_some = volume.in_sync.iter().any(|disk| own.contains(disk));
            let elsewhere = volume.in_sync.iter().any(|disk| !own.contains(disk));
            // The only copies of some chunk may be on this server.
            has_some && (!elsewhere || (!volume.homes.is_empty() && volume.min_homes < 2))
        };
        let (single, others): (Vec<&VolumeRecord>, Vec<&VolumeRecord>) =
            self.volumes.iter().filter(needs).partition(|volume| volume.resiliency.copies() == 1);
        if single.is_empty() && others.is_empty() {
            return Ok(());
        }
        let mut ways = Vec::new();
        if !others.is_empty() {
            ways.push(format!(
                "copies of {} are on this server alone so far: wait until `cenote job list` shows no rebuild and no resync of them",
                names_of(&others)
            ));
        }
        if !single.is_empty() {
            let steps: Vec<String> = self.disks_of(node).map(emptying).collect();
            ways.push(format!(
                "{} has one copy only, and may have a part of it here: to move that part to the disks of other servers, {}",
                names_of(&single),
                steps.join(", then ")
            ));
        }
        Err(format!(
            "server '{0}' was not drained, and nothing was changed, since some volumes would not be served while it is away. {1}. To drain it \
             all the same, and have these volumes wait while it is stopped: `cenote node drain {0} --force`",
            node.name,
            ways.join("; ")
        ))
    }

    /// Servers that hold every acknowledged write of the volume, by the copies in sync.
    fn holders(&self, volume: &VolumeRecord) -> BTreeSet<Option<NodeId>> {
        let nodes = volume.in_sync.iter().filter_map(|id| self.disks.iter().find(|disk| disk.id == *id));
        nodes.map(|disk| disk.node).collect()
    }
}

fn names_of(volumes: &[&VolumeRecord]) -> String {
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    names.join(", ")
}

/// The step by which the administrator has a disk emptied.
fn emptying(disk: &DiskRecord) -> String {
    match disk.state {
        DiskState::Retired => format!("wait until disk {} is empty (`cenote job list`)", disk.path),
        _ => format!("`cenote disk retire {}` ({})", disk.id, disk.path),
    }
}

/// Makes the servers' views. `seen`: the answers of servers other than `own`. Heartbeats decide about
/// life; if they do not know, an answer does.
pub fn nodes(
    members: &[NodeRecord],
    own: Option<NodeId>,
    seen: &[Seen],
    server: &dyn OwnServer,
    holdings: &Holdings,
) -> Vec<NodeView> {
    let view = |node: &NodeRecord| {
        let is_own = Some(node.id) == own;
        let told = seen.iter().find(|seen| seen.name == node.name).and_then(|seen| seen.told.as_ref().ok());
        let state = match node.state {
            _ if !is_own && !server.is_up(node.id).unwrap_or(told.is_some()) => NodeStatus::Down,
            NodeState::Up | NodeState::Removed => NodeStatus::Up,
            NodeState::Draining => NodeStatus::Draining,
            NodeState::Drained => NodeStatus::Drained,
        };
        let volumes = holdings.volumes.iter().filter(|volume| volume.owner == Some(node.id));
        // A process of this machine has a number that means something here.
        let is_local = node.cluster.ip().is_loopback();
        let pid =
            if is_own { Some(std::process::id()) } else { told.filter(|_| is_local).map(|facts| facts.pid) };
        NodeView {
            name: node.name.clone(),
            state,
            id: node.id,
            addresses: node.addresses.clone(),
            pid,
            smb: node.smb,
            rdma: node.rdma,
            cluster: node.cluster,
            runs_etcd: node.etcd.is_some(),
            is_witness: node.is_witness,
            rack: node.rack.clone(),
            chassis: node.chassis.clone(),
            version: told.map_or_else(|| node.version.clone(), |facts| facts.version.clone()),
            joined_unix_s: node.joined_unix_s,
            certificate_ends_unix_s: (node.certified_unix_s > 0)
                .then(|| certificate_ends_unix_s(node.certified_unix_s)),
            disks: u32::try_from(holdings.disks_of(node).count()).unwrap_or(u32::MAX),
            volumes: volumes.map(|volume| volume.name.clone()).collect(),
            false_deaths: if is_own { None } else { server.survived(node.id) },
            bus: None,
        }
    };
    members.iter().map(view).collect()
}

/// Has the servers run a member only if that one votes.
pub fn note_members(nodes: &mut [NodeView], engine: &StateEngine) {
    // If etcd's majority did not answer, only the records are known.
    if engine.members.is_empty() {
        return;
    }
    for node in nodes {
        let votes = engine.members.contains(&node.name) && !engine.members_down.contains(&node.name);
        node.runs_etcd &= votes;
    }
}

/// Returns, in a sentence each, the losses if one more server died.
pub fn at_risk(nodes: &[NodeView], engine: &StateEngine, holdings: &Holdings) -> Vec<String> {
    let mut sentences = Vec::new();
    if nodes.is_empty() {
        return sentences;
    }
    // The members of a foreign etcd are no servers of the cluster. A record says that a server should run
    // a member: only the member says whether it does.
    let working: Vec<&str> = engine
        .members
        .iter()
        .filter(|name| !engine.members_down.contains(name))
        .map(String::as_str)
        .collect();
    let is_own = nodes.iter().any(|node| engine.members.contains(&node.name));
    let heard: Vec<&str> =
        nodes.iter().filter(|node| node.state != NodeStatus::Down).map(|node| node.name.as_str()).collect();
    if heard.len() <= nodes.len() / 2 + 1 {
        sentences.push(format!(
            "if one more of {} fails, no majority of the servers is left, and no volume is served until one is back",
            heard.join(", ")
        ));
    } else if is_own && working.len() <= engine.quorum as usize {
        let which = if working.is_empty() { engine.members.join(", ") } else { working.join(", ") };
        sentences.push(format!(
            "if one more of {which} fails, etcd has no majority, and files are served only until something changes"
        ));
    }
    for volume in &holdings.volumes {
        if holdings.holders(volume).len() < 2 {
            sentences.push(format!("volume '{}' has all its up-to-date copies on one server", volume.name));
        } else if !volume.homes.is_empty() && volume.min_homes < 2 {
            sentences.push(format!(
                "parts of volume '{}' have all their copies on one server so far",
                volume.name
            ));
        }
    }
    sentences
}

/// Checks that a joining server's name is free.
pub fn check_name(ours: &Facts, theirs: &Facts) -> PreflightCheck {
    let taken = theirs.members.iter().find(|member| member.name.eq_ignore_ascii_case(&ours.name));
    let (outcome, found) = match taken {
        Some(member) => (
            CheckOutcome::Failed,
            format!("the server at {} has that name: set another server.name", member.cluster),
        ),
        None => (CheckOutcome::Good, "nobody else has it".to_owned()),
    };
    PreflightCheck { check: "name".into(), subject: ours.name.clone(), outcome, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: NodeStatus) -> NodeView {
        NodeView { state, disks: 1, ..NodeView::of_test(name, 1) }
    }

    #[test]
    fn without_a_majority_beyond_the_next_failure_files_are_not_said_to_stay_served() {
        let members: Vec<String> = ["node-1", "node-2", "node-3"].map(str::to_owned).to_vec();
        let mut engine = StateEngine {
            name: "etcd".into(),
            version: None,
            revision: 1,
            members,
            members_down: Vec::new(),
            quorum: 2,
            notes: Vec::new(),
        };
        let none = Holdings { disks: Vec::new(), volumes: Vec::new() };
        let mut nodes = ["node-1", "node-2", "node-3"].map(|name| node(name, NodeStatus::Up)).to_vec();
        assert!(at_risk(&nodes, &engine, &none).is_empty());
        nodes[2].state = NodeStatus::Down;
        engine.members_down = vec!["node-3".into()];
        let told = at_risk(&nodes, &engine, &none);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("one more of node-1, node-2 fails"), "{told:?}");
        assert!(told[0].contains("no volume is served"), "{told:?}");
        // Of five servers two may be down; of etcd's three members one.
        nodes.extend(["node-4", "node-5"].map(|name| node(name, NodeStatus::Up)));
        let told = at_risk(&nodes, &engine, &none);
        assert!(told[0].contains("etcd has no majority"), "{told:?}");
    }
}
