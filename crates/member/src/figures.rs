//! Figures of the cluster for metrics.
//!
//! Promises: sends no requests. Each figure has one exporter: each server its own, and the first
//! server, by number, of those heard by a server with a majority, the whole cluster's.

use crate::identity::Facts;
use crate::issues::Looked;
use api::cluster::{ClusterFigures, EtcdFigures, SharedFigures};
use records::NodeRecord;
use trust::authority::{authority_ends_unix_s, certificate_ends_unix_s};
use types::NodeId;

/// Inputs of the figures.
pub(crate) struct Known<'a> {
    pub facts: &'a Facts,
    pub members: &'a [NodeRecord],
    /// `None`: heartbeats have not begun.
    pub has_majority: Option<bool>,
    pub is_up: &'a dyn Fn(NodeId) -> Option<bool>,
    pub looked: &'a Looked,
    pub etcd_member_votes: Option<bool>,
    /// Time of founding of the cluster's authority; `None`: unknown.
    pub founded_unix_s: Option<u64>,
}

/// Collects the figures that this server exports.
pub(crate) fn figures(known: &Known<'_>) -> ClusterFigures {
    let Known { facts, members, is_up, .. } = *known;
    let speaks = known.has_majority == Some(true) && is_first(members, facts.node, is_up);
    let shared = || SharedFigures {
        nodes: nodes(members, facts.node, is_up),
        etcd: etcd(known.looked),
        authority_ends_unix_s: known.founded_unix_s.map(authority_ends_unix_s),
    };
    ClusterFigures {
        cluster: facts.cluster.clone(),
        node: facts.name.clone(),
        has_majority: known.has_majority,
        certificate_ends_unix_s: (facts.certified_unix_s > 0)
            .then(|| certificate_ends_unix_s(facts.certified_unix_s)),
        etcd_member_votes: known.etcd_member_votes,
        shared: speaks.then(shared),
    }
}

/// Whether no server with a lower number is up. A witness has no metrics.
fn is_first(members: &[NodeRecord], own: NodeId, is_up: &dyn Fn(NodeId) -> Option<bool>) -> bool {
    let servers = || members.iter().filter(|node| !node.is_witness);
    servers().any(|node| node.id == own)
        && !servers().any(|node| node.id < own && is_up(node.id) == Some(true))
}

/// Returns the servers' states, as far as heartbeats tell.
fn nodes(members: &[NodeRecord], own: NodeId, is_up: &dyn Fn(NodeId) -> Option<bool>) -> Vec<(String, bool)> {
    let told = members.iter().filter_map(|node| {
        let is_up = if node.id == own { Some(true) } else { is_up(node.id) };
        Some((node.name.clone(), is_up?))
    });
    told.collect()
}

fn etcd(looked: &Looked) -> Option<EtcdFigures> {
    let voters = || looked.etcd.iter().filter(|member| !member.member.is_learner);
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    (voters().count() > 0).then(|| EtcdFigures {
        members: count(voters().count()),
        working: count(voters().filter(|member| member.trouble().is_none()).count()),
        needed: count(voters().count() / 2 + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record;

    #[test]
    fn the_first_server_that_is_up_speaks_for_all_and_no_other() {
        let members: Vec<NodeRecord> = (1..=3).map(|number| record(number, true)).collect();
        let speakers = |up: &[u32]| -> Vec<u32> {
            let is_up = |node: NodeId| Some(up.contains(&node.0));
            up.iter().copied().filter(|own| is_first(&members, NodeId(*own), &is_up)).collect()
        };
        assert_eq!(speakers(&[1, 2, 3]), [1]);
        assert_eq!(speakers(&[2, 3]), [2]);
        let with_witness = NodeRecord { is_witness: true, ..record(1, true) };
        let members = [with_witness, record(2, true)];
        assert!(is_first(&members, NodeId(2), &|_| Some(true)), "a witness has no metrics");
        assert!(!is_first(&[], NodeId(2), &|_| None), "of servers that are not known nobody tells");
    }

    #[test]
    fn who_is_up_is_absent_if_heartbeats_do_not_tell() {
        let members: Vec<NodeRecord> = (1..=3).map(|number| record(number, true)).collect();
        let told = nodes(&members, NodeId(1), &|node| (node.0 == 2).then_some(false));
        assert_eq!(told, [("node-1".to_owned(), true), ("node-2".to_owned(), false)]);
    }
}
