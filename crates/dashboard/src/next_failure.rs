//! What would be left after the next failure: of a disk, and in a cluster of a server.

use crate::disks::node_of;
use api::model::{Disk, DiskStatus, Pool, Snapshot, Volume, VolumeStatus};
use serde::Serialize;
use std::collections::BTreeMap;
use types::size::show_size;

/// A pool, one failure later. Sizes are those of disks, all copies counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NextFailure {
    pub pool: String,
    /// The disk, or the server, whose loss costs most.
    pub lost: String,
    pub lost_bytes: u64,
    /// Free on the others when all that was lost has been made anew there; 0: not all of it can.
    pub left_bytes: u64,
    /// What finds no room on the others.
    pub missing_bytes: u64,
    /// The least copies that a volume has left at first.
    pub copies_left: Option<u8>,
    /// Volumes of which data would be lost.
    pub lost_volumes: Vec<String>,
}

/// Of each pool.
pub fn next_failures(snapshot: &Snapshot) -> Vec<NextFailure> {
    snapshot.pools.iter().flat_map(|pool| of_pool(pool, snapshot)).collect()
}

fn of_pool(pool: &Pool, snapshot: &Snapshot) -> Vec<NextFailure> {
    // What is away already cannot fail next.
    let here = |disk: &&Disk| disk.pool == Some(pool.id) && disk.status != DiskStatus::LostCommunication;
    let disks: Vec<&Disk> = snapshot.disks.iter().filter(here).collect();
    let volumes: Vec<&Volume> =
        snapshot.volumes.iter().filter(|volume| volume.pool == pool.id && volume.copies > 0).collect();
    let mut nodes: BTreeMap<&str, Vec<&Disk>> = BTreeMap::new();
    for disk in disks.iter().filter(|disk| !node_of(&disk.fault_domain).is_empty()) {
        nodes.entry(node_of(&disk.fault_domain)).or_default().push(disk);
    }
    let largest_disk = disks.iter().max_by_key(|disk| (disk.allocated_bytes, disk.size_bytes));
    let of_disk = largest_disk
        .map(|disk| failure(pool, &disks, &volumes, format!("disk {}", disk.path), &[disk.id.to_string()]));
    let used = |disks: &[&Disk]| disks.iter().map(|disk| disk.allocated_bytes).sum::<u64>();
    let largest_node = nodes.iter().filter(|_| nodes.len() > 1).max_by_key(|(_, disks)| used(disks));
    let of_node = largest_node.map(|(name, lost)| {
        let ids: Vec<String> = lost.iter().map(|disk| disk.id.to_string()).collect();
        failure(pool, &disks, &volumes, format!("server {name}"), &ids)
    });
    of_disk.into_iter().chain(of_node).collect()
}

fn failure(pool: &Pool, disks: &[&Disk], volumes: &[&Volume], what: String, ids: &[String]) -> NextFailure {
    let (lost, kept): (Vec<&Disk>, Vec<&Disk>) =
        disks.iter().partition(|disk| ids.contains(&disk.id.to_string()));
    let lost_bytes: u64 = lost.iter().map(|disk| disk.allocated_bytes).sum();
    let free_bytes: u64 = kept.iter().map(|disk| disk.size_bytes.saturating_sub(disk.allocated_bytes)).sum();
    let after = |volume: &&&Volume| volume.in_sync_copies.saturating_sub(1);
    let is_used = |volume: &&&Volume| volume.footprint_bytes > 0 && volume.status != VolumeStatus::Detached;
    let at_stake: Vec<&&Volume> = volumes.iter().filter(is_used).collect();
    NextFailure {
        pool: pool.name.clone(),
        lost: what,
        lost_bytes,
        left_bytes: free_bytes.saturating_sub(lost_bytes),
        missing_bytes: lost_bytes.saturating_sub(free_bytes),
        copies_left: at_stake.iter().map(after).min(),
        lost_volumes: at_stake
            .iter()
            .filter(|volume| after(volume) == 0)
            .map(|volume| volume.name.clone())
            .collect(),
    }
}

impl NextFailure {
    /// In a sentence.
    pub fn sentence(&self) -> String {
        let Self { pool, lost, .. } = self;
        if !self.lost_volumes.is_empty() {
            return format!(
                "If {lost} of pool {pool} fails next, data of {} may be lost: it has no other copy.",
                self.lost_volumes.join(", ")
            );
        }
        let redundancy = match self.copies_left {
            None => "no data is at stake".to_owned(),
            Some(1) => "every block still has a copy".to_owned(),
            Some(copies) => format!("every block still has {copies} copies"),
        };
        if self.missing_bytes > 0 {
            return format!(
                "If {lost} of pool {pool} fails next, {redundancy}; {} find no room on the others and wait for a new disk.",
                show_size(self.missing_bytes)
            );
        }
        format!(
            "If {lost} of pool {pool} fails next, {redundancy}; when all copies are made anew, {} are left free.",
            show_size(self.left_bytes)
        )
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
            allocated_bytes: 6 << 30,
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
            used_bytes: 1 << 30,
            available_bytes: 3 << 30,
            footprint_bytes: 2 << 30,
            warn_at_percent: 90,
            copies,
            in_sync_copies,
            min_copies: 1,
            epoch: 1,
            stale_bytes: 0,
            cache_hit_bytes: 0,
            cache_miss_bytes: 0,
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
        let found = next_failures(&snapshot());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].lost_bytes, found[0].left_bytes), (2 << 30, 14 << 30));
        assert_eq!(found[0].copies_left, Some(1));
        assert!(found[0].sentence().contains("14.0 GiB are left free"), "{}", found[0].sentence());
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let mut snapshot = snapshot();
        snapshot.disks.iter_mut().for_each(|disk| disk.allocated_bytes = 9 << 30);
        let found = next_failures(&snapshot);
        assert_eq!((found[0].left_bytes, found[0].missing_bytes), (0, 7 << 30));
        assert!(found[0].sentence().contains("7.00 GiB find no room"), "{}", found[0].sentence());
    }

    #[test]
    fn a_volume_with_one_copy_may_be_lost() {
        let mut snapshot = snapshot();
        snapshot.volumes.push(volume("scratch", 1, 1));
        snapshot.volumes.push(volume("half", 2, 1));
        assert_eq!(next_failures(&snapshot)[0].lost_volumes, ["scratch", "half"]);
    }

    #[test]
    fn in_a_cluster_a_server_may_fail_too() {
        let mut snapshot = snapshot();
        for (disk, node) in snapshot.disks.iter_mut().zip(["a", "b", "b"]) {
            disk.fault_domain = node.into();
        }
        let found = next_failures(&snapshot);
        assert_eq!(found[1].lost, "server b");
        assert_eq!((found[1].lost_bytes, found[1].left_bytes), (4 << 30, 4 << 30));
    }

    #[test]
    fn a_disk_that_is_away_cannot_fail_next() {
        let mut snapshot = snapshot();
        snapshot.disks[0].status = DiskStatus::LostCommunication;
        assert_eq!(next_failures(&snapshot)[0].left_bytes, 6 << 30);
    }
}
