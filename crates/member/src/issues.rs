//! Issues of the cluster, for health.
//!
//! Promises: heartbeats at the moment of the request say which servers are up; reports of etcd and the
//! records are as of the last check, for which no request waits.

use api::cluster::Unserved;
use api::model::{Health, HealthIssue};
use etcd::members::{EtcdAlarm, MemberHealth};
use records::nodes::ETCD_MEMBERS;
use records::{NodeRecord, NodeState};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use trust::authority::{authority_ends_unix_s, certificate_ends_unix_s};
use types::NodeId;

/// Days before the end of a certificate that was not renewed from which health warns.
const CERTIFICATE_WARNING_DAYS: u64 = 120;
/// Days before the end of the authority from which health warns: two years, in which a new cluster can
/// be planned.
const AUTHORITY_WARNING_DAYS: u64 = 730;
const DAY_S: u64 = 86_400;
/// A member of etcd that starts, or is replaced, has its vote sooner.
const MEMBER_PATIENCE_S: u64 = 15;
pub(crate) const MEMBER_CODE: &str = "cluster_state_member";

/// When each issue was first seen, by code and target.
type Since = BTreeMap<(String, String), u64>;

/// Findings of the last check of etcd.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looked {
    pub alarms: Vec<EtcdAlarm>,
    /// The present members of etcd; none if unknown.
    pub etcd: Vec<MemberHealth>,
    /// Time of the check; `None`: none yet.
    pub at: Option<Instant>,
}

/// Inputs of the issues, and the start of each.
#[derive(Default)]
pub(crate) struct Issues {
    looked: Mutex<Looked>,
    since: Mutex<Since>,
}

impl Issues {
    /// Notes the findings of a check.
    pub fn note(&self, looked: Looked) {
        *lock(&self.looked) = looked;
    }

    pub fn looked(&self) -> Looked {
        lock(&self.looked).clone()
    }

    /// Gives new issues their beginning; leaves out those that may pass by themselves.
    pub fn date(&self, mut found: Vec<HealthIssue>, now_unix_s: u64) -> Vec<HealthIssue> {
        let mut since = lock(&self.since);
        let before = std::mem::take(&mut *since);
        for issue in &mut found {
            let key = (issue.code.clone(), issue.target.clone());
            issue.since_unix_s = before.get(&key).copied().unwrap_or(now_unix_s);
            since.insert(key, issue.since_unix_s);
        }
        let is_lasting =
            |issue: &HealthIssue| now_unix_s.saturating_sub(issue.since_unix_s) >= MEMBER_PATIENCE_S;
        found.retain(|issue| issue.code != MEMBER_CODE || is_lasting(issue));
        found
    }
}

fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that a check sees.
pub(crate) struct Seen<'a> {
    pub cluster: &'a str,
    pub members: &'a [NodeRecord],
    pub own: NodeId,
    /// Why this server serves no volume, if it may not.
    pub unserved: Option<&'a Unserved>,
    pub is_down: &'a dyn Fn(NodeId) -> bool,
    pub looked: &'a Looked,
    pub certified_unix_s: u64,
    /// When the cluster's authority was made.
    pub founded_unix_s: u64,
    pub now_unix_s: u64,
}

impl Seen<'_> {
    fn own_name(&self) -> String {
        let own = self.members.iter().find(|node| node.id == self.own);
        own.map_or_else(|| self.own.to_string(), |node| node.name.clone())
    }
}

pub(crate) fn issue(health: Health, code: &str, target: String, texts: [String; 3]) -> HealthIssue {
    let [what, meaning, action] = texts;
    HealthIssue {
        health,
        code: code.to_owned(),
        target,
        since_unix_s: 0,
        what,
        meaning,
        action,
        server: None,
    }
}

/// Finds the issues.
pub(crate) fn find(seen: &Seen<'_>) -> Vec<HealthIssue> {
    let mut found = Vec::new();
    found.extend(seen.unserved.map(|unserved| without_quorum(seen.cluster, unserved)));
    found.extend(without_witness(seen));
    found.extend(without_members(seen));
    found.extend(members_without_vote(seen));
    found.extend(
        seen.members
            .iter()
            .filter(|node| (seen.is_down)(node.id))
            .map(|node| down(node, seen.unserved.is_none())),
    );
    found.extend(seen.members.iter().filter(|node| node.state != NodeState::Up).map(drains));
    found.extend(seen.looked.alarms.iter().map(|alarm| alarm_issue(*alarm, seen)));
    found.extend(certificate(seen));
    found.extend(authority(seen));
    found
}

/// The majority of the servers is not heard.
fn without_quorum(cluster: &str, unserved: &Unserved) -> HealthIssue {
    issue(
        Health::Unhealthy,
        "cluster_without_quorum",
        format!("cluster {cluster}"),
        [
            unserved.sentence.clone(),
            "Clients wait, and nothing can be changed. Nothing on the disks is lost: the volumes are served again as soon as most of the \
             servers hear each other."
                .into(),
            format!(
                "Start {}, or see to the network between them and this server. If most of the servers are lost for good: docs/CLUSTER.md, Rescue.",
                unserved.missing.join(", ")
            ),
        ],
    )
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
                    "Install etcd (package etcd-server) on one of {}: that server then runs it by itself.",
                    names.join(", ")
                ),
            ],
        )
    })
}

/// Members that lack a due vote, on servers that are up: a server that is down is an issue of its own.
pub(crate) fn members_without_vote<'a>(seen: &'a Seen<'_>) -> impl Iterator<Item = HealthIssue> + 'a {
    let etcd = &seen.looked.etcd;
    let up = seen.members.iter().filter(|node| !etcd.is_empty() && !(seen.is_down)(node.id));
    up.filter_map(|node| {
        let recorded = node.etcd.as_ref()?;
        let listed = etcd.iter().find(|listed| listed.member.peer_urls.contains(&recorded.peer_url));
        let why = match listed {
            None => "etcd's other members do not have it: it was removed".to_owned(),
            Some(listed) => listed.trouble()?,
        };
        Some(without_vote(node, &why))
    })
}

fn without_vote(node: &NodeRecord, why: &str) -> HealthIssue {
    let name = &node.name;
    issue(
        Health::Warning,
        MEMBER_CODE,
        format!("server {name}"),
        [
            format!("server '{name}' is up, but its etcd does not vote on the cluster's state: {why}"),
            "Fewer servers may fail than usual: `cenote cluster status` says how many.".into(),
            format!(
                "If the member lost its data or was removed, the server makes it anew by itself when most of the others \
                 answer. If the issue stays, see the log of '{name}' for why etcd does not run there (a full disk, a missing \
                 program). If etcd's data are damaged, stop the server, remove DATA/cluster/etcd there, and start it."
            ),
        ],
    )
}

/// `is_served`: this server may answer for volumes.
fn down(node: &NodeRecord, is_served: bool) -> HealthIssue {
    let name = &node.name;
    let (what, meaning, action) = match node.is_witness {
        true => (
            format!("the witness '{name}' is down"),
            "If one of the servers dies as well, the other one has no majority.",
            format!(
                "Start it again; or remove it (`cenote node remove {name} --yes {name}`), and let another one join."
            ),
        ),
        false => (
            format!("server '{name}' is down"),
            match is_served {
                true => "Other servers serve its volumes, and new data have one copy less until it is back.",
                false => "Most servers of the cluster must be up, and this one is missing.",
            },
            format!(
                "Start it again: it brings its disks up to date by itself. If it is gone for good: `cenote node remove {name} --yes {name}`."
            ),
        ),
    };
    issue(Health::Warning, "node_down", format!("server {name}"), [what, meaning.into(), action])
}

fn drains(node: &NodeRecord) -> HealthIssue {
    let (what, action) = match node.state {
        NodeState::Drained => (
            format!("server '{}' is drained", node.name),
            format!("You can stop it now. `cenote node resume {}` ends the draining.", node.name),
        ),
        _ => (
            format!(
                "server '{}' drains: it serves volumes, which move to others as soon as these can have them",
                node.name
            ),
            format!(
                "Wait until it is drained: to stop it now stops what it serves (`cenote node list`). Or `cenote node resume {}`.",
                node.name
            ),
        ),
    };
    let meaning = "It takes over no volume when another server dies, unless no other server can.".to_owned();
    issue(Health::Warning, "node_drains", format!("server {}", node.name), [what, meaning, action])
}

fn alarm_issue(alarm: EtcdAlarm, seen: &Seen<'_>) -> HealthIssue {
    let target = format!("cluster {}", seen.cluster);
    let (served, files) = match seen.unserved {
        None => ("Files are served, and nothing is lost. ", "files are served."),
        Some(_) => ("", "no volume is served, as another issue says."),
    };
    match alarm {
        EtcdAlarm::NoSpace { .. } => issue(
            Health::Unhealthy,
            "cluster_state_full",
            target,
            [
                "etcd's database has reached its quota (NOSPACE), and takes no changes".into(),
                format!(
                    "{served}Changes to the cluster's records wait or are refused: taking a failed disk out of its volumes \
                     (writes to them wait meanwhile), opening volumes, changing accounts, shares and pools."
                ),
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
                format!("etcd takes no changes until that member is gone; {files}"),
                "Stop the server that runs it, remove DATA/cluster/etcd there, and start it: it runs a new member then, by itself.".into(),
            ],
        ),
    }
}

fn certificate(seen: &Seen<'_>) -> Option<HealthIssue> {
    let left = certificate_ends_unix_s(seen.certified_unix_s).saturating_sub(seen.now_unix_s) / DAY_S;
    (seen.certified_unix_s > 0 && left < CERTIFICATE_WARNING_DAYS).then(|| {
        issue(
            Health::Warning,
            "certificate_ends",
            format!("server {}", seen.own_name()),
            [
                format!("this server's certificate ends in {left} days, and could not be renewed"),
                "When it has expired, the other servers refuse this one until it has made a new certificate, which it does at once.".into(),
                "See the log for why it is not renewed: the cluster's state has to answer, and the clock has to be right.".into(),
            ],
        )
    })
}

fn authority(seen: &Seen<'_>) -> Option<HealthIssue> {
    let ends = authority_ends_unix_s(seen.founded_unix_s);
    let left = ends.saturating_sub(seen.now_unix_s) / DAY_S;
    (seen.founded_unix_s > 0 && left < AUTHORITY_WARNING_DAYS).then(|| {
        issue(
            Health::Warning,
            "authority_ends",
            format!("cluster {}", seen.cluster),
            [
                format!("the cluster's certificate authority ends in {left} days"),
                "It cannot be renewed. When it has expired, the servers refuse each other's certificates, and no volume is served.".into(),
                "Before that, make a new cluster, whose authority is good for another thirty years, and copy the data there.".into(),
            ],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{record, status};
    use etcd::members::{EtcdMember, EtcdStatus};

    fn codes(members: &[NodeRecord], down: &[u32], alarms: &[EtcdAlarm]) -> Vec<String> {
        let is_down = |node: NodeId| down.contains(&node.0);
        let seen = Seen {
            cluster: "C",
            members,
            own: NodeId(1),
            unserved: None,
            is_down: &is_down,
            looked: &Looked { alarms: alarms.to_vec(), ..Looked::default() },
            certified_unix_s: 1000,
            founded_unix_s: 1000,
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
    fn without_a_majority_no_text_says_that_files_are_served() {
        let members = [record(1, true), record(2, true), record(3, true)];
        let unserved = Unserved {
            sentence: "no volume is served: 1 of 3 servers is heard; start node-2 or node-3".into(),
            heard: vec!["node-1".into()],
            missing: vec!["node-2".into(), "node-3".into()],
        };
        let looked = Looked {
            alarms: vec![EtcdAlarm::NoSpace { member: 1 }, EtcdAlarm::Corrupt { member: 1 }],
            ..Looked::default()
        };
        let seen = Seen {
            cluster: "C",
            members: &members,
            own: NodeId(1),
            unserved: Some(&unserved),
            is_down: &|node| node.0 > 1,
            looked: &looked,
            certified_unix_s: 1000,
            founded_unix_s: 1000,
            now_unix_s: 1000,
        };
        let found = find(&seen);
        assert_eq!((found[0].code.as_str(), found[0].health), ("cluster_without_quorum", Health::Unhealthy));
        assert_eq!(found[0].what, unserved.sentence);
        for issue in &found {
            for text in [&issue.what, &issue.meaning, &issue.action] {
                let text = text.replace("no volume is served", "").replace("are served again", "");
                assert!(!text.contains("served") && !text.contains("NAME"), "{issue:?}");
            }
        }
    }

    #[test]
    fn a_full_etcd_and_a_server_that_drains_are_told_of() {
        let three = [record(1, true), record(2, true), record(3, true)];
        assert_eq!(codes(&three, &[], &[EtcdAlarm::NoSpace { member: 1 }]), ["cluster_state_full"]);
        let drained = NodeRecord { state: NodeState::Drained, ..record(3, true) };
        assert_eq!(codes(&[three[0].clone(), three[1].clone(), drained], &[], &[]), ["node_drains"]);
    }

    #[test]
    fn a_member_that_has_a_record_and_does_not_vote_is_told_of_when_that_lasts() {
        let members = [record(1, true), record(2, true), record(3, true)];
        let health = |number: u64, works: bool| {
            let found = members[number as usize - 1].etcd.clone().unwrap();
            let (peer_urls, client_urls) = (vec![found.peer_url], vec![found.client_url]);
            let member =
                EtcdMember { id: number, name: found.name, peer_urls, client_urls, is_learner: false };
            let status = EtcdStatus { leader: Some(1), ..status(number) };
            let status = if works { Ok(status) } else { Err("silence".into()) };
            MemberHealth { member, status, differs_from: None }
        };
        let told = |etcd: &[MemberHealth], down: &[u32]| -> Vec<String> {
            let seen = Seen {
                cluster: "C",
                members: &members,
                own: NodeId(1),
                unserved: None,
                is_down: &|node| down.contains(&node.0),
                looked: &Looked { etcd: etcd.to_vec(), ..Looked::default() },
                certified_unix_s: 1000,
                founded_unix_s: 1000,
                now_unix_s: 1000,
            };
            find(&seen).into_iter().map(|issue| issue.what).collect()
        };
        let all = [health(1, true), health(2, true), health(3, true)];
        assert_eq!(told(&all, &[]), [] as [&str; 0]);
        let removed = told(&all[..2], &[]);
        assert!(removed.len() == 1 && removed[0].contains("'node-3'") && removed[0].contains("was removed"));
        let silent = told(&[health(1, true), health(2, false), health(3, true)], &[]);
        assert!(silent.len() == 1 && silent[0].contains("'node-2'") && silent[0].contains("silence"));
        assert!(told(&all[..2], &[3]).iter().all(|what| what.contains("is down")));
        let issues = Issues::default();
        for (now, is_told) in [(100, false), (114, false), (115, true)] {
            let told = issues.date(vec![without_vote(&members[1], "it is silent")], now);
            assert_eq!(!told.is_empty(), is_told, "{now}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_renewed_is_told_of_before_it_ends() {
        let members = [record(1, true)];
        let at = |now_unix_s| {
            let seen = Seen {
                cluster: "C",
                members: &members,
                own: NodeId(1),
                unserved: None,
                is_down: &|_| false,
                looked: &Looked::default(),
                certified_unix_s: 1000,
                founded_unix_s: 1000,
                now_unix_s,
            };
            find(&seen).len()
        };
        assert_eq!((at(1000 + 200 * DAY_S), at(1000 + 250 * DAY_S)), (0, 1));
        // The authority's own end as well, two years before.
        assert_eq!(at(1000 + 28 * 365 * DAY_S + DAY_S), 2);
    }

    #[test]
    fn an_issue_that_stays_keeps_its_beginning() {
        let issues = Issues::default();
        let at = |now| issues.date(vec![down(&record(2, true), true)], now)[0].since_unix_s;
        assert_eq!((at(100), at(200)), (100, 100));
        issues.date(Vec::new(), 300);
        assert_eq!(at(400), 400);
    }
}
