//! Disks that come and go, or are refused.

use super::*;
use crate::error::ErrorKind;

#[test]
fn a_disk_stays_whose_room_was_promised_to_a_fixed_volume() {
    let mut rig = Rig::empty();
    rig.start_as(NodeId(1), false);
    let disks = (1..=3).map(|number| rig.disk(&format!("disk-{number}"))).collect();
    let care = rig.of(1).pool_care.clone();
    let made = rig.run(1, async move { care.create("pool".to_owned(), disks, Some(0)).await });
    let (pool, care) = (made.expect("a pool"), rig.of(1).volume_care.clone());
    // Two copies of 1 GiB: more than two disks of 1 GiB can hold beside their own tables.
    let new = NewVolume { provisioning: Provisioning::Fixed, size_bytes: 1 << 30, ..two_way(pool) };
    rig.run(1, async move { care.create(new).await }).expect("a volume");
    let disk = *rig.of(1).disks.slots().keys().next().expect("a disk");
    let care = rig.of(1).disk_admin.clone();
    let refused = rig.run(1, async move { care.retire(disk).await }).expect_err("there is no room");
    assert_eq!(refused.kind, ErrorKind::NoSpace, "{}", refused.message);
    let record = rig.state.read::<DiskRecord>(&disk.to_string()).expect("the state").expect("a record");
    assert_eq!(record.value.state, DiskState::Healthy);
}
