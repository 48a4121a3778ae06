//! Data left after the next failure: of a disk, and in a cluster of a server or a rack.
//!
//! Promises: a pure function of the records and the reports of the volumes' servers; of the disks, the
//! servers and the racks it names each time the one whose loss costs most. Volumes' copies, the copies
//! that writes need, and the servers' majority count. Reports unknown facts as unknown.

use crate::disks::node_of;
use api::cluster::{ClusterView, NodeStatus, NodeView};
use api::model::{Disk, DiskStatus, Pool, Snapshot, Volume, VolumeStatus};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::size::show_size;

/// A pool, one failure later. Sizes are those of disks, all copies counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NextFailure {
    pub pool: String,
    /// The disk, the server or the rack whose loss costs most.
    pub lost: String,
    /// `null`: a disk's server did not report it.
    pub lost_bytes: Option<u64>,
    /// Free on the others when all that was lost has been made anew there; 0: not all of it can.
    pub left_bytes: Option<u64>,
    /// Bytes that find no space on the others.
    pub missing_bytes: Option<u64>,
    /// The least copies that a volume has left at first; `null`: no data is at stake, or it is not known.
    pub copies_left: Option<u8>,
    /// Volumes of which data may be lost.
    pub lost_volumes: Vec<String>,
    /// Volumes that can be read and not written until it is back: fewer copies are left than writes need.
    pub waiting_volumes: Vec<String>,
    /// Volumes whose state afterwards is unknown.
    pub unknown_volumes: Vec<String>,
    /// Most of the servers would be missing: no volume is served.
    pub ends_quorum: bool,
    /// The cluster's state would have no majority: nothing can be changed.
    pub ends_state: bool,
}

/// Disks and servers that fail together.
struct Unit<'a> {
    what: String,
    disks: Vec<&'a Disk>,
    /// Names of the servers that fail with it.
    servers: Vec<&'a str>,
}

/// State of a volume after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// No data of the volume is on the lost disks, or it has none.
    Untouched,
    /// Least number of copies of any piece.
    Copies(u8),
    /// A piece may have no other copy.
    Lost,
    Unknown,
}

/// The next failures of each pool.
pub fn next_failures(snapshot: &Snapshot, cluster: Option<&ClusterView>) -> Vec<NextFailure> {
    snapshot.pools.iter().flat_map(|pool| of_pool(pool, snapshot, cluster)).collect()
}

fn of_pool(pool: &Pool, snapshot: &Snapshot, cluster: Option<&ClusterView>) -> Vec<NextFailure> {
    // A disk that is away already cannot fail next.
    let here = |disk: &&Disk| disk.pool == Some(pool.id) && disk.status != DiskStatus::LostCommunication;
    let disks: Vec<&Disk> = snapshot.disks.iter().filter(here).collect();
    let is_at_stake = |volume: &&Volume| {
        volume.pool == pool.id && volume.copies > 0 && volume.status != VolumeStatus::Detached
    };
    let volumes: Vec<&Volume> = snapshot.volumes.iter().filter(is_at_stake).collect();
    let single = disks.iter().map(|disk| Unit {
        what: format!("disk {}", disk.path),
        disks: vec![*disk],
        servers: Vec::new(),
    });
    let mut nodes: BTreeMap<&str, Vec<&Disk>> = BTreeMap::new();
    for disk in disks.iter().filter(|disk| !node_of(&disk.fault_domain).is_empty()) {
        nodes.entry(node_of(&disk.fault_domain)).or_default().push(disk);
    }
    let mut racks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in cluster.iter().flat_map(|view| &view.nodes).filter(|node| !node.rack.is_empty()) {
        racks.entry(&node.rack).or_default().push(&node.name);
    }
    let servers = nodes.iter().filter(|_| nodes.len() > 1).map(|(name, disks)| Unit {
        what: format!("server {name}"),
        disks: disks.clone(),
        servers: vec![*name],
    });
    // A rack with one server fails as that does.
    let several = racks.iter().filter(|(_, servers)| racks.len() > 1 && servers.len() > 1);
    let of_rack = several.map(|(rack, servers)| Unit {
        what: format!("rack {rack}"),
        disks: servers.iter().filter_map(|server| nodes.get(server)).flatten().copied().collect(),
        servers: servers.clone(),
    });
    let kinds: [Vec<Unit<'_>>; 3] = [single.collect(), servers.collect(), of_rack.collect()];
    let worst = kinds.into_iter().filter_map(|units| {
        let found = units.into_iter().map(|unit| failure(pool, &disks, &volumes, unit, cluster));
        found.max_by_key(NextFailure::cost)
    });
    worst.collect()
}

fn failure(
    pool: &Pool,
    disks: &[&Disk],
    volumes: &[&Volume],
    unit: Unit<'_>,
    cluster: Option<&ClusterView>,
) -> NextFailure {
    let is_lost = |disk: &Disk| unit.disks.iter().any(|lost| lost.id == disk.id);
    let kept = disks.iter().filter(|disk| !is_lost(disk));
    let lost_bytes: Option<u64> = unit.disks.iter().map(|disk| disk.allocated_bytes).sum();
    let free = |disk: &&Disk| Some(disk.size_bytes.saturating_sub(disk.allocated_bytes?));
    let free_bytes: Option<u64> = kept.map(free).sum();
    let both = lost_bytes.zip(free_bytes);
    let (ends_quorum, ends_state) = cluster.map_or((false, false), |view| ends(view, &unit.servers));
    let mut found = NextFailure {
        pool: pool.name.clone(),
        lost: unit.what.clone(),
        lost_bytes,
        left_bytes: both.map(|(lost, free)| free.saturating_sub(lost)),
        missing_bytes: both.map(|(lost, free)| lost.saturating_sub(free)),
        copies_left: None,
        lost_volumes: Vec::new(),
        waiting_volumes: Vec::new(),
        unknown_volumes: Vec::new(),
        ends_quorum,
        ends_state,
    };
    for volume in volumes {
        let name = volume.name.clone();
        match left_of(volume, &unit, disks) {
            Left::Untouched => {}
            Left::Lost => found.lost_volumes.push(name),
            Left::Unknown => found.unknown_volumes.push(name),
            Left::Copies(copies) => {
                if copies < volume.min_copies {
                    found.waiting_volumes.push(name);
                }
                found.copies_left = Some(found.copies_left.map_or(copies, |least| least.min(copies)));
            }
        }
    }
    if !found.lost_volumes.is_empty() {
        found.copies_left = Some(0);
    }
    found
}

/// Judges by the record how many copies of each piece are left: each has `least_copies` on as many disks, and copies in `least_servers`.
fn left_of(volume: &Volume, unit: &Unit<'_>, disks: &[&Disk]) -> Left {
    if volume.held_bytes.as_ref().is_some_and(|held| held.values().all(|bytes| *bytes == 0)) {
        return Left::Untouched;
    }
    let holds = |disk: &Disk| {
        let has_slabs = volume.held_bytes.as_ref().is_none_or(|held| held.contains_key(&disk.id));
        has_slabs && volume.holders.contains(&disk.id)
    };
    let hit: Vec<&&Disk> = unit.disks.iter().filter(|disk| holds(disk)).collect();
    if hit.is_empty() {
        return Left::Untouched;
    }
    if volume.least_copies == 0 {
        return Left::Unknown;
    }
    let count = |all: usize| u8::try_from(all).unwrap_or(u8::MAX);
    let mut servers: Vec<&str> = hit.iter().map(|disk| node_of(&disk.fault_domain)).collect();
    servers.sort_unstable();
    servers.dedup();
    let by_disks = volume.least_copies.saturating_sub(count(hit.len()));
    let by_servers = volume.least_servers.map_or(0, |least| least.saturating_sub(count(servers.len())));
    match by_disks.max(by_servers) {
        0 => {
            let is_elsewhere =
                disks.iter().any(|disk| holds(disk) && !hit.iter().any(|lost| lost.id == disk.id));
            let may_have_one = volume.least_copies == 1 || volume.least_servers == Some(1) || hit.len() == 1;
            // Copies are in more servers than fail, or than are known: only the chunks know which pieces
            // these are.
            if is_elsewhere && !may_have_one { Left::Unknown } else { Left::Lost }
        }
        copies => Left::Copies(copies),
    }
}

/// Whether most of the servers, and most of the members of etcd, would be missing without these.
fn ends(view: &ClusterView, lost: &[&str]) -> (bool, bool) {
    if lost.is_empty() || view.nodes.is_empty() {
        return (false, false);
    }
    let is_left = |node: &&NodeView| node.state != NodeStatus::Down && !lost.contains(&node.name.as_str());
    let left = view.nodes.iter().filter(is_left).count();
    let engine = &view.engine;
    let works = |name: &&String| !engine.members_down.contains(name) && !lost.contains(&name.as_str());
    let is_own = engine.members.iter().any(|name| view.nodes.iter().any(|node| node.name == *name));
    let members = engine.members.iter().filter(works).count();
    (left * 2 <= view.nodes.len(), is_own && members < engine.quorum as usize)
}

impl NextFailure {
    /// Returns the cost for comparisons: the worst failure has the greatest.
    fn cost(&self) -> impl Ord + use<> {
        (
            self.lost_volumes.len(),
            self.ends_quorum,
            self.ends_state,
            self.waiting_volumes.len(),
            self.unknown_volumes.len(),
            Reverse(self.copies_left.unwrap_or(u8::MAX)),
            self.missing_bytes,
            self.lost_bytes,
            Reverse(self.lost.clone()),
        )
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        let Self { pool, lost, .. } = self;
        let fails = format!("If {lost} of pool {pool} fails next");
        if !self.lost_volumes.is_empty() {
            let names = self.lost_volumes.join(", ");
            return format!("{fails}, data of {names} may be lost: some of it may have no other copy.");
        }
        if self.ends_quorum {
            return format!(
                "{fails}, no volume is served until it is back: most of the servers would be missing."
            );
        }
        let mut clauses = vec![match self.copies_left {
            None if self.unknown_volumes.is_empty() => "no data is at stake".to_owned(),
            None => String::new(),
            Some(1) => "every block still has a copy".to_owned(),
            Some(copies) => format!("every block still has {copies} copies"),
        }];
        clauses.retain(|clause| !clause.is_empty());
        if !self.unknown_volumes.is_empty() {
            clauses.push(format!("what would be left of {} is not known", self.unknown_volumes.join(", ")));
        }
        if !self.waiting_volumes.is_empty() {
            clauses.push(format!(
                "writes to {} wait, since they need more copies than would be left",
                self.waiting_volumes.join(", ")
            ));
        }
        if self.ends_state {
            clauses.push("the cluster's state has no majority, so that nothing can be changed".to_owned());
        }
        let room = match (self.missing_bytes, self.left_bytes) {
            (Some(missing), _) if missing > 0 => {
                format!("; {} find no room on the others and wait for a new disk", show_size(missing))
            }
            (_, Some(left)) => format!("; when all copies are made anew, {} are left free", show_size(left)),
            _ => "; how much room the others have is not known".to_owned(),
        };
        format!("{fails}, {}{room}.", clauses.join(", and "))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::disks::tests::disk;
    use api::model::{Health, Provisioning, Resiliency};
    use types::VolumeId;

    pub fn pool() -> Pool {
        Pool {
            id: disk(1).pool.unwrap(),
            name: "pool".into(),
            health: Health::Healthy,
            disks: 3,
            slab_bytes: 64 << 20,
            size_bytes: 30 << 30,
            allocated_bytes: Some(6 << 30),
            reserve_bytes: 10 << 30,
            reserve_disks: 1,
            reserve_is_set: false,
        }
    }

    pub fn volume(name: &str, copies: u8, in_sync_copies: u8) -> Volume {
        Volume {
            id: VolumeId::from_bytes([copies; 16]),
            name: name.into(),
            pool: pool().id,
            owner: None,
            health: Health::Healthy,
            status: VolumeStatus::Ok,
            resiliency: Resiliency::TwoWayMirror,
            provisioning: Provisioning::Thin,
            size_bytes: 4 << 30,
            used_bytes: Some(1 << 30),
            available_bytes: Some(3 << 30),
            footprint_bytes: Some(2 << 30),
            warn_at_percent: 90,
            copies,
            in_sync_copies: Some(in_sync_copies),
            min_copies: 1,
            epoch: 1,
            stale_bytes: Some(0),
            cache_hit_bytes: Some(0),
            cache_miss_bytes: Some(0),
            least_copies: in_sync_copies,
            least_servers: None,
            holders: (1..=3).map(|number| disk(number).id).collect(),
            held_bytes: None,
        }
    }

    pub fn snapshot() -> Snapshot {
        Snapshot {
            disks: vec![disk(1), disk(2), disk(3)],
            pools: vec![pool()],
            volumes: vec![volume("data", 2, 2)],
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_others_take_what_was_lost() {
        let found = next_failures(&snapshot(), None);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].lost_bytes, found[0].left_bytes), (Some(2 << 30), Some(14 << 30)));
        assert_eq!(found[0].copies_left, Some(1));
        assert!(found[0].sentence().contains("14.0 GiB are left free"), "{}", found[0].sentence());
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let mut snapshot = snapshot();
        snapshot.disks.iter_mut().for_each(|disk| disk.allocated_bytes = Some(9 << 30));
        let found = next_failures(&snapshot, None);
        assert_eq!((found[0].left_bytes, found[0].missing_bytes), (Some(0), Some(7 << 30)));
        assert!(found[0].sentence().contains("7.00 GiB find no room"), "{}", found[0].sentence());
    }

    #[test]
    fn a_volume_with_one_copy_may_be_lost() {
        let mut snapshot = snapshot();
        snapshot.volumes.push(volume("scratch", 1, 1));
        snapshot.volumes.push(volume("half", 2, 1));
        assert_eq!(next_failures(&snapshot, None)[0].lost_volumes, ["scratch", "half"]);
    }

    #[test]
    fn in_a_cluster_a_server_may_fail_too() {
        let mut snapshot = snapshot();
        for (disk, node) in snapshot.disks.iter_mut().zip(["a", "b", "b"]) {
            disk.fault_domain = node.into();
        }
        let found = next_failures(&snapshot, None);
        assert_eq!(found[1].lost, "server b");
        assert_eq!((found[1].lost_bytes, found[1].left_bytes), (Some(4 << 30), Some(4 << 30)));
    }

    #[test]
    fn a_disk_that_is_away_cannot_fail_next() {
        let mut snapshot = snapshot();
        snapshot.disks[0].status = DiskStatus::LostCommunication;
        assert_eq!(next_failures(&snapshot, None)[0].left_bytes, Some(6 << 30));
    }

    /// Three servers with a disk each; `down` of them are away. A volume has its copies on the first ones, and those that are up are in sync.
    fn cluster(copies: u8, min_copies: u8, down: usize) -> (Snapshot, ClusterView) {
        let names = ["a", "b", "c"];
        let mut snapshot = snapshot();
        for (at, (disk, name)) in snapshot.disks.iter_mut().zip(names).enumerate() {
            disk.fault_domain = name.into();
            if at >= 3 - down {
                (disk.status, disk.allocated_bytes) = (DiskStatus::LostCommunication, None);
            }
        }
        // On the last servers, so that those that are away had some.
        let on: Vec<usize> = (3 - usize::from(copies)..3).filter(|at| *at < 3 - down).collect();
        let left = on.len() as u8;
        let mut volume = Volume { min_copies, least_servers: Some(left), ..volume("data", copies, left) };
        volume.holders = on.iter().map(|at| snapshot.disks[*at].id).collect();
        if left == 0 {
            volume.status = VolumeStatus::Detached;
        }
        snapshot.volumes = vec![volume];
        let node = |at: usize, name: &str| NodeView {
            state: if at >= 3 - down { NodeStatus::Down } else { NodeStatus::Up },
            disks: 1,
            ..NodeView::of_test(name, at as u32 + 1)
        };
        let nodes: Vec<NodeView> = names.iter().enumerate().map(|(at, name)| node(at, name)).collect();
        let down_names = names.iter().skip(3 - down).map(|name| (*name).to_owned());
        let engine = api::cluster::StateEngine {
            name: "etcd".into(),
            version: None,
            revision: 1,
            members: names.iter().map(|name| (*name).to_owned()).collect(),
            members_down: down_names.collect(),
            quorum: 2,
            notes: Vec::new(),
        };
        let view = ClusterView {
            name: Some("C".into()),
            id: None,
            nodes,
            engine,
            at_risk: Vec::new(),
            authority_ends_unix_s: None,
            unserved: None,
        };
        (snapshot, view)
    }

    #[test]
    fn every_resiliency_with_servers_down_is_judged_by_copies_least_copies_and_majority() {
        // Copies, those that writes need, servers down; then for the worst disk: copies left, lost, waits;
        // and whether a server's loss ends the majority.
        for (copies, min_copies, down, left, lost, waits, ends) in [
            (1, 1, 0, Some(0), true, false, false),
            (2, 1, 0, Some(1), false, false, false),
            (3, 2, 0, Some(2), false, false, false),
            (1, 1, 1, None, false, false, true),
            (2, 1, 1, Some(0), true, false, true),
            (3, 2, 1, Some(1), false, true, true),
            (1, 1, 2, None, false, false, true),
            (2, 1, 2, None, false, false, true),
            (3, 2, 2, Some(0), true, false, true),
        ] {
            let (snapshot, view) = cluster(copies, min_copies, down);
            let found = next_failures(&snapshot, Some(&view));
            let case = format!("{copies} copies, {down} down: {found:?}");
            let disk = &found[0];
            assert_eq!((disk.copies_left, !disk.lost_volumes.is_empty()), (left, lost), "{case}");
            assert_eq!((!disk.waiting_volumes.is_empty(), disk.ends_quorum), (waits, false), "{case}");
            if down < 2 {
                assert_eq!((found[1].ends_quorum, found[1].ends_state), (ends, ends), "{case}");
            }
        }
    }

    #[test]
    fn the_one_whose_loss_costs_most_is_named_and_not_the_one_with_most_bytes() {
        let mut snapshot = snapshot();
        snapshot.disks[0].allocated_bytes = Some(9 << 30);
        let mut lone = volume("lone", 1, 1);
        lone.holders = vec![disk(3).id];
        snapshot.volumes.push(lone);
        let found = next_failures(&snapshot, None);
        assert_eq!(
            (found[0].lost.as_str(), &found[0].lost_volumes[..]),
            ("disk /d/3", &["lone".to_owned()][..])
        );
    }

    #[test]
    fn a_volume_of_another_server_whose_figures_are_not_known_is_at_stake_all_the_same() {
        let mut snapshot = snapshot();
        (snapshot.volumes[0].footprint_bytes, snapshot.volumes[0].least_copies) = (None, 1);
        assert_eq!(next_failures(&snapshot, None)[0].lost_volumes, ["data"]);
        snapshot.volumes[0].least_copies = 0;
        let found = next_failures(&snapshot, None);
        assert_eq!(found[0].unknown_volumes, ["data"]);
        assert!(found[0].sentence().contains("is not known"), "{}", found[0].sentence());
    }

    #[test]
    fn a_rack_fails_with_its_servers() {
        let (snapshot, mut view) = cluster(3, 2, 0);
        for (node, rack) in view.nodes.iter_mut().zip(["left", "left", "right"]) {
            node.rack = rack.into();
        }
        let found = next_failures(&snapshot, Some(&view));
        assert_eq!(
            (found[2].lost.as_str(), found[2].ends_quorum, found[2].copies_left),
            ("rack left", true, Some(1))
        );
    }
}
