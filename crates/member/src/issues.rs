//! What is wrong with the cluster, for health. Found by looking now and then, and told from memory.

use api::model::{Health, HealthIssue};
use cluster::authority::CERTIFICATE_DAYS;
use cluster::etcd::members::EtcdAlarm;
use cluster::nodes::ETCD_MEMBERS;
use cluster::{NodeRecord, NodeState};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use types::NodeId;

/// Days before the end of a certificate that was not renewed from which on health tells of it.
const CERTIFICATE_WARNING_DAYS: u64 = 30;
const DAY_S: u64 = 86_400;

#[derive(Default)]
struct Known {
    issues: Vec<HealthIssue>,
    /// When each was first seen, by code and target.
    since: BTreeMap<(String, String), u64>,
}

/// The issues of the last look.
#[derive(Default)]
pub(crate) struct Issues(Mutex<Known>);

impl Issues {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn current(&self) -> Vec<HealthIssue> {
        self.known().issues.clone()
    }

    /// Takes what was found now.
    pub fn set(&self, mut found: Vec<HealthIssue>, now_unix_s: u64) {
        let mut known = self.known();
        let before = std::mem::take(&mut known.since);
        for issue in &mut found {
            let key = (issue.code.clone(), issue.target.clone());
            issue.since_unix_s = before.get(&key).copied().unwrap_or(now_unix_s);
            known.since.insert(key, issue.since_unix_s);
        }
        known.issues = found;
    }
}

/// What a look sees.
pub(crate) struct Seen<'a> {
    pub cluster: &'a str,
    pub members: &'a [NodeRecord],
    pub own: NodeId,
    pub is_down: &'a dyn Fn(NodeId) -> bool,
    pub alarms: &'a [EtcdAlarm],
    pub certified_unix_s: u64,
    pub now_unix_s: u64,
}

fn issue(health: Health, code: &str, target: String, texts: [String; 3]) -> HealthIssue {
    let [what, meaning, action] = texts;
    HealthIssue { health, code: code.to_owned(), target, since_unix_s: 0, what, meaning, action }
}

/// Says what is wrong.
pub(crate) fn find(seen: &Seen<'_>) -> Vec<HealthIssue> {
    let mut found = Vec::new();
    found.extend(without_witness(seen));
    found.extend(without_members(seen));
    found.extend(seen.members.iter().filter(|node| (seen.is_down)(node.id)).map(down));
    found.extend(seen.members.iter().filter(|node| node.state != NodeState::Up).map(drains));
    found.extend(seen.alarms.iter().map(|alarm| alarm_issue(*alarm, seen.cluster)));
    found.extend(certificate(seen));
    found
}

fn without_witness(seen: &Seen<'_>) -> Option<HealthIssue> {
    let servers = seen.members.iter().filter(|node| !node.is_witness).count();
    (servers == 2 && seen.members.len() == 2).then(|| {
        issue(
            Health::Warning,
            "cluster_without_witness",
            format!("cluster {}", seen.cluster),
            [
                "the cluster has two servers, and no witness".into(),
                "It does not survive the death of one of them: the other has no majority, takes over no volume, and can change nothing \
                 until both are up again."
                    .into(),
                "Run a witness on a third small machine: `cenote cluster token` here, then `cenote witness serve --join-token-file FILE --listen \
                 ADDRESS:9447` there; or let a third server join."
                    .into(),
            ],
        )
    })
}

fn without_members(seen: &Seen<'_>) -> Option<HealthIssue> {
    let seated = seen.members.iter().filter(|node| node.etcd.is_some()).count();
    (seated > 0 && seated < ETCD_MEMBERS && seen.members.len() >= ETCD_MEMBERS).then(|| {
        let names: Vec<&str> =
            seen.members.iter().filter(|node| node.etcd.is_none()).map(|node| node.name.as_str()).collect();
        issue(
            Health::Warning,
            "cluster_state_members",
            format!("cluster {}", seen.cluster),
            [
                format!("the cluster's state has {seated} members, and could have {ETCD_MEMBERS}"),
                "The state does not survive the death of one of the servers that run a member.".into(),
                format!(
                    "Install etcd (package etcd-server) on one of {}: its server runs a member then, by itself.",
                    names.join(", ")
                ),
            ],
        )
    })
}

fn down(node: &NodeRecord) -> HealthIssue {
    let (what, meaning, action) = match node.is_witness {
        true => (
            format!("the witness '{}' is down", node.name),
            "If one of the servers dies as well, the other one has no majority.",
            "Start it again; or remove it (`cenote node remove`), and let another one join.",
        ),
        false => (
            format!("server '{}' is down", node.name),
            "Its volumes are served by others, and what is written has a copy less until it is back.",
            "Start it again: it brings its disks up to date by itself. If it is gone for good: `cenote node remove NAME --yes NAME`.",
        ),
    };
    issue(
        Health::Warning,
        "node_down",
        format!("server {}", node.name),
        [what, meaning.into(), action.into()],
    )
}

fn drains(node: &NodeRecord) -> HealthIssue {
    let (what, action) = match node.state {
        NodeState::Drained => (
            format!("server '{}' is drained", node.name),
            format!("It may be stopped. `cenote node resume {}` lets it have volumes again.", node.name),
        ),
        _ => (
            format!("server '{}' drains: its volumes move to others", node.name),
            format!("Wait until it is drained, or `cenote node resume {}`.", node.name),
        ),
    };
    let meaning = "It takes over no volume when another server dies.".to_owned();
    issue(Health::Warning, "node_drains", format!("server {}", node.name), [what, meaning, action])
}

fn alarm_issue(alarm: EtcdAlarm, cluster: &str) -> HealthIssue {
    let target = format!("cluster {cluster}");
    match alarm {
        EtcdAlarm::NoSpace { .. } => issue(
            Health::Unhealthy,
            "cluster_state_full",
            target,
            [
                "etcd's database has reached its quota (NOSPACE), and takes no changes".into(),
                "Files are served, and nothing is lost. What needs the state waits or is refused: taking a failed disk out of its volumes \
                 (writes to them wait meanwhile), opening volumes, changes of accounts, shares and pools."
                    .into(),
                "See what else is in that etcd (`etcdctl get --prefix --keys-only ''`), delete it, then `etcdctl defrag` and `etcdctl alarm \
                 disarm`."
                    .into(),
            ],
        ),
        EtcdAlarm::Corrupt { member } => issue(
            Health::Unhealthy,
            "cluster_state_corrupt",
            target,
            [
                format!("the data of etcd's member {member:x} differ from those of the others (CORRUPT)"),
                "etcd takes no changes until that member is gone; files are served.".into(),
                "Remove the server that runs it (`cenote node remove`), and let it join anew with an empty data directory.".into(),
            ],
        ),
    }
}

fn certificate(seen: &Seen<'_>) -> Option<HealthIssue> {
    let ends = seen.certified_unix_s + CERTIFICATE_DAYS * DAY_S;
    let left = ends.saturating_sub(seen.now_unix_s) / DAY_S;
    (seen.certified_unix_s > 0 && left < CERTIFICATE_WARNING_DAYS).then(|| {
        issue(
            Health::Warning,
            "certificate_ends",
            format!("server {}", seen.own),
            [
                format!("this server's certificate ends in {left} days, and could not be renewed"),
                "When it has ended, no other server answers this one.".into(),
                "See the log for why it is not renewed: the cluster's state has to answer, and the clock has to be right.".into(),
            ],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record;

    fn codes(members: &[NodeRecord], down: &[u32], alarms: &[EtcdAlarm]) -> Vec<String> {
        let is_down = |node: NodeId| down.contains(&node.0);
        let seen = Seen {
            cluster: "C",
            members,
            own: NodeId(1),
            is_down: &is_down,
            alarms,
            certified_unix_s: 1000,
            now_unix_s: 1000,
        };
        find(&seen).into_iter().map(|issue| issue.code).collect()
    }

    #[test]
    fn two_servers_without_a_witness_are_told_of_and_with_one_they_are_not() {
        let two = [record(1, true), record(2, true)];
        assert_eq!(codes(&two, &[], &[]), ["cluster_without_witness"]);
        let witness = NodeRecord { is_witness: true, ..record(3, true) };
        let with = [two[0].clone(), two[1].clone(), witness];
        assert_eq!(codes(&with, &[], &[]), [] as [&str; 0]);
        assert_eq!(codes(&with, &[3], &[]), ["node_down"]);
        let three = [record(1, true), record(2, true), record(3, false)];
        assert_eq!(codes(&three, &[], &[]), ["cluster_state_members"]);
        assert_eq!(codes(&[record(1, true)], &[], &[]), [] as [&str; 0]);
    }

    #[test]
    fn a_full_etcd_and_a_server_that_drains_are_told_of() {
        let three = [record(1, true), record(2, true), record(3, true)];
        assert_eq!(codes(&three, &[], &[EtcdAlarm::NoSpace { member: 1 }]), ["cluster_state_full"]);
        let drained = NodeRecord { state: NodeState::Drained, ..record(3, true) };
        assert_eq!(codes(&[three[0].clone(), three[1].clone(), drained], &[], &[]), ["node_drains"]);
    }

    #[test]
    fn a_certificate_that_is_not_renewed_is_told_of_before_it_ends() {
        let members = [record(1, true)];
        let at = |now_unix_s| {
            let seen = Seen {
                cluster: "C",
                members: &members,
                own: NodeId(1),
                is_down: &|_| false,
                alarms: &[],
                certified_unix_s: 1000,
                now_unix_s,
            };
            find(&seen).len()
        };
        assert_eq!((at(1000 + 300 * DAY_S), at(1000 + 340 * DAY_S)), (0, 1));
    }

    #[test]
    fn an_issue_that_stays_keeps_its_beginning() {
        let issues = Issues::default();
        let found = || vec![down(&record(2, true))];
        issues.set(found(), 100);
        issues.set(found(), 200);
        assert_eq!(issues.current()[0].since_unix_s, 100);
        issues.set(Vec::new(), 300);
        issues.set(found(), 400);
        assert_eq!(issues.current()[0].since_unix_s, 400);
    }
}
