//! Figures of a cluster: its servers, its majority, the members of etcd, the ends of certificates.

use super::exposition::Families;
use super::{HEALTH, health};
use crate::cluster::{ClusterFigures, SharedFigures};
use crate::lists::Whole;

/// Figures that a server of a cluster exports beside its own snapshot.
#[derive(Debug, Clone)]
pub struct OfCluster {
    pub figures: ClusterFigures,
    /// The view of all servers together, on the one that exports it for all.
    pub whole: Option<Whole>,
}

/// Adds this server's own figures, and the shared ones if this server exports them.
pub(super) fn add(found: &OfCluster, families: &mut Families) {
    let figures = &found.figures;
    let labels = [("cluster", figures.cluster.as_str()), ("node", figures.node.as_str())];
    families.info("cenote_cluster_info", "The cluster that the server is in, and its name there.", &labels);
    let flags = [
        (
            "cenote_node_has_majority",
            "1: the server hears most of its cluster, and may serve.",
            figures.has_majority,
        ),
        (
            "cenote_etcd_member_votes",
            "1: the member of etcd that the server runs answers and votes.",
            figures.etcd_member_votes,
        ),
    ];
    for (name, help, is_so) in flags {
        if let Some(is_so) = is_so {
            families.gauge(name, help, &labels, f64::from(u8::from(is_so)));
        }
    }
    if let Some(ends) = figures.certificate_ends_unix_s {
        let help = "When the certificate ends by which the other servers know this one.";
        families.gauge("cenote_certificate_end_timestamp_seconds", help, &labels, ends as f64);
    }
    if let Some(shared) = &figures.shared {
        add_shared(&figures.cluster, shared, families);
        if let Some(whole) = &found.whole {
            add_whole(&figures.cluster, whole, families);
        }
    }
}

/// Adds the figures that one server exports for all.
fn add_shared(cluster: &str, shared: &SharedFigures, families: &mut Families) {
    for (node, is_up) in &shared.nodes {
        let labels = [("cluster", cluster), ("node", node.as_str())];
        families.gauge(
            "cenote_node_up",
            "1: heartbeats say that it lives.",
            &labels,
            f64::from(u8::from(*is_up)),
        );
    }
    let labels = [("cluster", cluster)];
    if let Some(etcd) = &shared.etcd {
        for (name, help, value) in [
            ("cenote_etcd_members", "Members of etcd that ought to vote.", etcd.members),
            ("cenote_etcd_members_working", "Of these, those that do.", etcd.working),
            ("cenote_etcd_members_needed", "So many have to.", etcd.needed),
        ] {
            families.gauge(name, help, &labels, value as f64);
        }
    }
    if let Some(ends) = shared.authority_ends_unix_s {
        let help = "When the certificate authority of the cluster ends.";
        families.gauge("cenote_authority_end_timestamp_seconds", help, &labels, ends as f64);
    }
}

/// Adds the view of all servers together.
fn add_whole(cluster: &str, whole: &Whole, families: &mut Families) {
    let labels = [("cluster", cluster)];
    families.gauge("cenote_cluster_health", HEALTH, &labels, health(whole.health.health));
    let issues = whole.health.issues.len() as f64;
    families.gauge("cenote_cluster_health_issues", "Things that are wrong in the cluster.", &labels, issues);
    let help = "Servers that were asked how they are, and did not answer within a second.";
    families.gauge("cenote_cluster_unanswered", help, &labels, whole.health.unanswered.len() as f64);
}
