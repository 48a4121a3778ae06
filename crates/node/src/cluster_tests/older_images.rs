//! Older images of a server's disks.

use super::{Rig, two_way};
use crate::Beyond;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use types::{DiskId, NodeId, VolumeId};

fn behind(rig: &Rig, disk: DiskId) -> Vec<Beyond> {
    let promises = &rig.of(1).promises;
    promises.behind(disk, &promises.recorded())
}

const NAMES: [&str; 2] = ["disk-1", "disk-2"];

impl Rig {
    /// Ends the server and copies the files of its disks. Copies are used, since in one process nothing ends the use of those that were open.
    fn copy_disks(&mut self, from: &str, to: &str) {
        self.nodes.clear();
        let [from, to] = [from, to].map(|directory| self.directory.path().join(directory));
        std::fs::create_dir_all(&to).expect("a directory");
        for name in NAMES {
            let new = to.join("new");
            let copied = Command::new("cp").arg("--sparse=always").arg(from.join(name)).arg(&new).status();
            assert!(copied.expect("cp").success());
            std::fs::rename(new, to.join(name)).expect("a file");
        }
    }
}

/// Makes a single server that is off, with older images in place of its disks; the right ones are
/// in `right`.
fn with_older_images() -> (Rig, VolumeId, Vec<DiskId>) {
    let mut rig = Rig::empty();
    rig.start_as(NodeId(1), false);
    let (care, disks) = (rig.of(1).pool_care.clone(), NAMES.map(|name| rig.disk(name)).into());
    let made = rig.run(1, async move { care.create("pool".to_owned(), disks, Some(0)).await });
    let (pool, care) = (made.expect("a pool"), rig.of(1).volume_care.clone());
    let volume = rig.run(1, async move { care.create(two_way(pool)).await }).expect("a volume");
    rig.copy_disks(".", "old");
    let old = rig.record(volume).epoch;
    rig.copy_disks("old", ".");
    rig.start_as(NodeId(1), false);
    rig.until("the disks have promised a later epoch", |rig| rig.record(volume).promised > old);
    let disks = rig.of(1).disks.slots().keys().copied().collect();
    rig.copy_disks(".", "right");
    assert_eq!(rig.record(volume).in_sync.len(), 2);
    rig.copy_disks("old", ".");
    (rig, volume, disks)
}

#[test]
fn a_later_copy_of_a_disk_is_used_in_place_of_an_older_image_at_its_path() {
    let (mut rig, volume, disks) = with_older_images();
    let right = rig.directory.path().join("right");
    rig.search = vec![right.clone()];
    rig.start_as(NodeId(1), false);
    rig.until("it is served", |rig| rig.servers(volume) == [1]);
    for disk in disks {
        let path = PathBuf::from(&rig.of(1).disks.slots()[&disk].record.path);
        assert_eq!(path.parent(), Some(right.as_path()));
        assert!(behind(&rig, disk).is_empty());
    }
    assert_eq!(rig.record(volume).in_sync.len(), 2);
}

#[test]
fn older_images_alone_are_not_served_until_an_administrator_accepts_one() {
    let (mut rig, volume, disks) = with_older_images();
    for start in 1..=2 {
        rig.copy_disks("old", ".");
        rig.start_as(NodeId(1), false);
        rig.until("the disks are known for old", |rig| {
            disks.iter().all(|disk| behind(rig, *disk).len() == 1)
        });
        rig.pass(Duration::from_secs(1));
        assert_eq!(rig.servers(volume), [0; 0], "start {start}");
    }
    rig.copy_disks("old", ".");
    rig.start_as(NodeId(1), false);
    rig.until("a disk is known for old", |rig| !behind(rig, disks[0]).is_empty());
    let promises = rig.of(1).promises.clone();
    let disk = disks[0];
    rig.run(1, async move { promises.forget_beyond(disk, true).await }).expect("it is accepted");
    rig.until("it is served", |rig| rig.servers(volume) == [1]);
    rig.until("the other is brought up to date", |rig| {
        let is_behind = |disk: &DiskId| !behind(rig, *disk).is_empty();
        rig.record(volume).in_sync.len() == 2 && !disks.iter().any(is_behind)
    });
}
