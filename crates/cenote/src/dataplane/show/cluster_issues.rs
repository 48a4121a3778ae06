//! Health issues that every server of a cluster derives from records and liveness: volumes without a
//! server, disks without one.

use super::SINCE_SEEN;
use api::model::{Health, HealthIssue};
use node::Node;
use records::{DiskRecord, VolumeRecord};

/// Reports volumes that no server serves.
pub(super) fn unserved_volumes(node: &Node) -> Vec<HealthIssue> {
    let unserved = node.unserved();
    unserved.iter().map(|record| unserved_volume(record, &node.peers.missing_of(record))).collect()
}

/// `missing`: the servers that are down and have copies that count.
fn unserved_volume(record: &VolumeRecord, missing: &[String]) -> HealthIssue {
    HealthIssue {
        health: Health::Unhealthy,
        code: "volume_unserved".to_owned(),
        target: format!("volume {}", record.name),
        server: None,
        since_unix_s: SINCE_SEEN,
        what: "no server serves it: its last server is down or gave it up, and no other server has taken it over".to_owned(),
        meaning: "Its files cannot be reached. Nothing on its disks is changed meanwhile.".to_owned(),
        action: match missing.is_empty() {
            true => "All servers with its copies are up: see the log of each for why it does not open the volume, and restart \
                     the service on a server whose log does not mention it."
                .to_owned(),
            false => format!(
                "Start {}: needed copies are there. The servers then open the volume by themselves.",
                missing.join(", ")
            ),
        },
    }
}

/// Reports disks whose recorded servers have left the cluster, as after a recovery from one server's copy.
pub(super) fn disks_left_behind(node: &Node) -> Vec<HealthIssue> {
    let left = node.peers.left_behind();
    let told = |record: &DiskRecord| {
        disk_left_behind(record, &node.pools.name(record.pool), node.peers.refusal(record.id).as_deref())
    };
    left.iter().map(told).collect()
}

/// `refusal`: why it was refused when it was to be added.
fn disk_left_behind(record: &DiskRecord, pool: &str, refusal: Option<&str>) -> HealthIssue {
    let (server, path, id) = (&record.fault_domain.node, &record.path, record.id);
    if let Some(why) = refusal {
        return HealthIssue {
            // Unhealthy wins when several servers' issues are merged: a refusal by one counts.
            health: Health::Unhealthy,
            code: "disk_left_behind".to_owned(),
            target: format!("disk {id}"),
            server: None,
            since_unix_s: SINCE_SEEN,
            what: format!("{path} of server '{server}' cannot come back: it {why}"),
            meaning: "Volumes that wait for this disk are not served; other volumes lack the data that only this disk has.".to_owned(),
            action: format!(
                "Do not erase it if you need its data: import the pool from the disks of the lost servers on another, single \
                 server (`cenote pool import`), and copy the data. Then `cenote disk retire {id}` on any server gives this disk up."
            ),
        };
    }
    HealthIssue {
        health: Health::Warning,
        code: "disk_left_behind".to_owned(),
        target: format!("disk {id}"),
        server: None,
        since_unix_s: SINCE_SEEN,
        what: format!("{path} of server '{server}' is missing: that server has left the cluster without it"),
        meaning: "Copies on it count until it is given up, so volumes may wait for it, and new data has one copy less.".to_owned(),
        action: format!(
            "Let its server join anew with an empty data directory, and add the disk there as it is: `cenote disk add {path} --pool {pool}`; do \
             not erase it. If it will never come back, `cenote disk retire {id}` on any server has its copies made on others."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::{Provisioning, Resiliency};
    use types::{PoolId, VolumeId};

    #[test]
    fn the_commands_of_an_issue_have_the_names_that_are_known() {
        let record = DiskRecord {
            id: types::DiskId::from_bytes([3; 16]),
            pool: PoolId::from_bytes([2; 16]),
            node: Some(types::NodeId(2)),
            path: "/dev/sdb".to_owned(),
            size_bytes: 1 << 40,
            slab_bytes: 1 << 28,
            fault_domain: records::FaultDomain { node: "node-2".to_owned(), ..Default::default() },
            state: records::DiskState::Missing,
            since_unix_s: 0,
            scrubbed_unix_s: 0,
        };
        let issue = disk_left_behind(&record, "tank", None);
        assert!(issue.action.contains("cenote disk add /dev/sdb --pool tank`"), "{issue:?}");
        assert!(!issue.action.contains("NAME"), "{issue:?}");
    }

    #[test]
    fn a_disk_that_was_refused_is_not_advised_to_be_added() {
        let record = DiskRecord {
            id: types::DiskId::from_bytes([3; 16]),
            pool: PoolId::from_bytes([2; 16]),
            node: None,
            path: "/dev/sdq".to_owned(),
            size_bytes: 1 << 30,
            slab_bytes: 1 << 20,
            fault_domain: records::FaultDomain::default(),
            state: records::DiskState::Healthy,
            since_unix_s: 0,
            scrubbed_unix_s: 0,
        };
        assert!(disk_left_behind(&record, "tank", None).action.contains("cenote disk add /dev/sdq"));
        let refused = disk_left_behind(&record, "tank", Some("has writes of volume plans"));
        assert!(refused.what.ends_with("it has writes of volume plans"), "{refused:?}");
        assert!(refused.health == Health::Unhealthy && !refused.action.contains("disk add"), "{refused:?}");
    }

    #[test]
    fn a_volume_that_nobody_serves_names_the_servers_that_are_to_be_started() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        let issue = unserved_volume(&record, &["node-2".to_owned(), "node-3".to_owned()]);
        assert_eq!((issue.health, issue.target.as_str()), (Health::Unhealthy, "volume plans"));
        assert!(issue.action.starts_with("Start node-2, node-3"), "{issue:?}");
        assert!(unserved_volume(&record, &[]).action.contains("see the log of each"));
    }
}
