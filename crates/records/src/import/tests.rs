//! Disks whose records somebody made up, on a server that has things of its own.

use super::{FoundDisk, ImportError, Report, commit, plan};
use crate::accounts::{Accounts, Group, User, UserRecord};
use crate::image::PoolImage;
use crate::image_tests::{POOL, Server, VOLUME, disk, found, yes};
use crate::settings::ServerSettings;
use crate::shares::{Share, ShareAccess};
use crate::{
    DeletedVolume, DiskRecord, PoolRecord, Provisioning, Record, Resiliency, Stored, Typed, VolumeRecord,
};
use types::{DiskId, Epoch, PoolId, Sid, VolumeId};

pub(super) const OWN_POOL: PoolId = PoolId::from_bytes([7; 16]);
pub(super) const OWN_VOLUME: VolumeId = VolumeId::from_bytes([8; 16]);
pub(super) const OWN_DISK: DiskId = DiskId::from_bytes([9; 16]);

/// A server with a pool, a disk, a volume and the administrator adm.
pub(super) fn busy() -> (Server, User) {
    let server = Server::empty();
    let volume = VolumeRecord::new(
        OWN_VOLUME,
        OWN_POOL,
        "own",
        Resiliency::Simple,
        1 << 30,
        Provisioning::Thin,
        vec![OWN_DISK],
        1,
    );
    server.state.write(&PoolRecord::new(OWN_POOL, "own", 0, 1), 0).unwrap();
    server.state.write(&volume, 0).unwrap();
    server.state.write(&DiskRecord { id: OWN_DISK, pool: OWN_POOL, ..disk(9) }, 0).unwrap();
    let accounts = Accounts::new(&server.state, &server.key);
    let adm = accounts.add_user("adm", "", "secret", &["Administrators".into()], 1).unwrap();
    (server, adm)
}

fn put(image: &mut PoolImage, record: &impl Record) {
    image.entries.retain(|(key, _)| *key != record.key());
    image.entries.push((record.key(), record.encode()));
}

fn administrators(image: &PoolImage) -> Group {
    let groups = image.records::<Group>().unwrap();
    groups.into_iter().find(|group| group.sid == Sid::administrators()).unwrap()
}

fn on_three(image: &PoolImage) -> Vec<FoundDisk> {
    (1..=3).map(|number| found(number, image)).collect()
}

fn import(server: &Server, image: &PoolImage) -> Report {
    let plan = plan(&on_three(image), &yes(), "").unwrap();
    commit(&server.state, &server.key, None, &plan, 20).unwrap()
}

fn members(server: &Server, sid: &Sid) -> Vec<Sid> {
    let groups = Accounts::new(&server.state, &server.key).groups().unwrap();
    groups.into_iter().find(|group| group.sid == *sid).unwrap().members
}

#[test]
fn nobody_becomes_an_administrator_of_a_server_by_the_disks_that_it_imports() {
    let (server, adm) = busy();
    let mut image = Server::furnished().image();
    let mut group = administrators(&image);
    let ann = group.members[0].clone();
    group.members.push(Sid::everyone());
    put(&mut image, &group);
    let report = import(&server, &image);
    assert_eq!(members(&server, &Sid::administrators()), [adm.sid]);
    assert_eq!((report.users, report.administrators), (vec!["ann".into()], vec!["adm".into()]));
    let told = &report.notes[0];
    assert!(told.contains("ann") && told.contains("S-1-1-0") && told.contains("--add"), "{told}");
    assert!(members(&server, &Sid::users()).iter().all(|sid| *sid != ann));
}

#[test]
fn accounts_with_sids_or_names_of_others_are_left_out_and_named() {
    let (server, adm) = busy();
    let accounts = Accounts::new(&server.state, &server.key);
    let gone = accounts.add_user("gone", "", "secret", &[], 1).unwrap();
    accounts.delete_user("gone").unwrap();
    let mut image = Server::furnished().image();
    let user = |name: &str, sid: &Sid| {
        let mut record = image.records::<UserRecord>().unwrap().remove(0);
        (record.user.name, record.user.sid) = (name.into(), sid.clone());
        record
    };
    let foreign: Sid = "S-1-5-21-1-2-3-1000".parse().unwrap();
    let made_up = [
        user("twin", &adm.sid),
        user("heir", &gone.sid),
        user("backup operators", &foreign),
        user("local", &Sid::local_system()),
        user("boss", &Sid::administrators()),
    ];
    let groups = [
        Group { name: "bosses".into(), sid: Sid::administrators(), members: vec![Sid::everyone()] },
        Group { name: "adm".into(), sid: foreign.clone(), members: Vec::new() },
        Group {
            name: "team".into(),
            sid: foreign.child(1).unwrap_or(foreign),
            members: vec![adm.sid.clone()],
        },
    ];
    made_up.iter().for_each(|record| put(&mut image, record));
    groups.iter().for_each(|record| put(&mut image, record));
    let report = import(&server, &image);
    assert_eq!(report.users, ["ann"]);
    let names = ["twin", "heir", "backup operators", "local", "boss", "bosses", "adm", "team"];
    let told =
        |name: &&str| report.notes.iter().any(|note| note.contains(&format!("\"{name}\" was left out")));
    assert!(names.iter().all(told), "{:?}", report.notes);
    assert_eq!(members(&server, &Sid::administrators()), [adm.sid]);
}

#[test]
fn a_server_that_lost_its_state_gets_its_administrators_back_and_says_who_they_are() {
    let server = Server::empty();
    let mut image = Server::furnished().image();
    let mut group = administrators(&image);
    let ann = group.members[0].clone();
    group.members.push(Sid::everyone());
    put(&mut image, &group);
    let report = import(&server, &image);
    assert_eq!(members(&server, &Sid::administrators()), std::slice::from_ref(&ann));
    assert_eq!(report.administrators, ["ann"]);
    assert!(report.notes[0].contains("S-1-1-0"), "{:?}", report.notes);
    let settings: Stored<ServerSettings> = server.state.read("server").unwrap().unwrap();
    assert!(settings.value.has_given(&ann), "nobody else gets the SID");
}

#[test]
fn records_of_a_disk_touch_nothing_of_another_pool() {
    let (server, _) = busy();
    let mut image = Server::furnished().image();
    put(&mut image, &Share::new("evil", OWN_VOLUME, vec![(Sid::everyone(), ShareAccess::Full)]));
    put(&mut image, &DeletedVolume { id: OWN_VOLUME, pool: OWN_POOL, freed: Vec::new() });
    put(&mut image, &DiskRecord { id: OWN_DISK, pool: OWN_POOL, ..disk(8) });
    let before: Stored<DiskRecord> = server.state.read(&OWN_DISK.to_string()).unwrap().unwrap();
    let report = import(&server, &image);
    assert_eq!(report.shares, ["docs"]);
    let told = |what: &str| report.notes.iter().any(|note| note.contains(what));
    assert!(told("evil") && told("deleted-volume/") && told("disk/"), "{:?}", report.notes);
    assert!(server.state.list::<DeletedVolume>().unwrap().is_empty());
    assert_eq!(server.state.read::<DiskRecord>(&OWN_DISK.to_string()).unwrap().unwrap(), before);
}

#[test]
fn ids_of_the_servers_own_are_not_taken_over_under_the_imported_pool() {
    let own = |image: &mut PoolImage, volume: &VolumeRecord| {
        let deleted = DeletedVolume { id: OWN_VOLUME, pool: POOL, freed: Vec::new() };
        match volume.id == OWN_VOLUME {
            true => put(image, volume),
            false => put(image, &deleted),
        }
    };
    let (server, _) = busy();
    let furnished = Server::furnished();
    let volume: Stored<VolumeRecord> = furnished.state.read(&VOLUME.to_string()).unwrap().unwrap();
    let refused = |image: &PoolImage| {
        let plan = plan(&on_three(image), &yes(), "").unwrap();
        let refused = commit(&server.state, &server.key, None, &plan, 20).unwrap_err();
        assert!(server.state.read::<PoolRecord>(&POOL.to_string()).unwrap().is_none());
        refused.to_string()
    };
    let mut image = furnished.image();
    put(&mut image, &DiskRecord { id: OWN_DISK, ..disk(3) });
    assert!(refused(&image).contains(&OWN_DISK.to_string()));
    let mut image = furnished.image();
    own(&mut image, &VolumeRecord { id: OWN_VOLUME, ..volume.value.clone() });
    assert!(refused(&image).contains(&OWN_VOLUME.to_string()));
    let mut image = furnished.image();
    own(&mut image, &volume.value);
    let report = import(&server, &image);
    assert!(report.notes.iter().any(|note| note.contains(&OWN_VOLUME.to_string())), "{:?}", report.notes);
    assert!(server.state.list::<DeletedVolume>().unwrap().is_empty());
}

#[test]
fn records_that_no_server_writes_are_refused_by_their_name() {
    let server = Server::furnished();
    let volume: Stored<VolumeRecord> = server.state.read(&VOLUME.to_string()).unwrap().unwrap();
    let volume = volume.value;
    let pool: Stored<PoolRecord> = server.state.read(&POOL.to_string()).unwrap().unwrap();
    let settings: Stored<ServerSettings> = server.state.read("server").unwrap().unwrap();
    let refused = |key: String, value: Vec<u8>| {
        let mut image = server.image();
        image.entries.retain(|(other, _)| *other != key);
        image.entries.push((key.clone(), value));
        match plan(&on_three(&image), &yes(), "") {
            Err(ImportError::Impossible { record, .. }) => assert_eq!(record, key),
            other => panic!("{key}: {other:?}"),
        }
    };
    let disks = [
        DiskRecord { slab_bytes: 0, ..disk(1) },
        DiskRecord { slab_bytes: 3, size_bytes: 7, ..disk(1) },
        DiskRecord { slab_bytes: 3 << 20, ..disk(1) },
        DiskRecord { size_bytes: u64::MAX, ..disk(1) },
        DiskRecord { size_bytes: 0, ..disk(1) },
    ];
    let stale = crate::StaleDisk { disk: volume.in_sync[0], since: Epoch(0), promised: Epoch(0) };
    let foreign = crate::StaleDisk { disk: OWN_DISK, ..stale };
    let volumes = [
        VolumeRecord { min_holders: 255, ..volume.clone() },
        VolumeRecord { min_copies: 0, ..volume.clone() },
        VolumeRecord { min_homes: 1, ..volume.clone() },
        VolumeRecord { size_bytes: 1 << 63, ..volume.clone() },
        VolumeRecord { size_bytes: 0, ..volume.clone() },
        VolumeRecord { epoch: Epoch(u64::MAX), ..volume.clone() },
        VolumeRecord { epoch: Epoch(u64::from(u32::MAX) - 9), ..volume.clone() },
        VolumeRecord { settled: Epoch(u64::MAX), ..volume.clone() },
        VolumeRecord { promised: Epoch(9), ..volume.clone() },
        VolumeRecord { stale: vec![stale], ..volume.clone() },
        VolumeRecord { in_sync: [&volume.in_sync[..], &[OWN_DISK]].concat(), ..volume.clone() },
        VolumeRecord { stale: vec![foreign], ..volume.clone() },
        VolumeRecord { building: vec![(volume.in_sync[0], types::ChunkIndex(u32::MAX))], ..volume.clone() },
        VolumeRecord { building: vec![(OWN_DISK, types::ChunkIndex(0))], ..volume.clone() },
        VolumeRecord { name: "\u{1b}[2J".into(), ..volume.clone() },
        VolumeRecord { warn_at_percent: Some(255), ..volume },
    ];
    let pools = [
        PoolRecord { generation: u32::MAX, ..pool.value.clone() },
        PoolRecord { reserve_disks: u32::MAX, ..pool.value },
    ];
    let settings = [
        ServerSettings { next_relative_id: u32::MAX, ..settings.value.clone() },
        ServerSettings { domain_sid: "S-1-5-32".parse().unwrap(), ..settings.value },
    ];
    disks.iter().for_each(|record| refused(record.key(), record.encode()));
    volumes.iter().for_each(|record| refused(record.key(), record.encode()));
    pools.iter().for_each(|record| refused(record.key(), record.encode()));
    settings.iter().for_each(|record| refused(record.key(), record.encode()));
}

#[test]
fn a_pool_that_is_here_is_not_said_to_have_a_taken_name() {
    let server = Server::empty();
    let image = Server::furnished().image();
    import(&server, &image);
    let renamed = super::Wanted { rename: Some("other".into()), ..yes() };
    let plan = plan(&on_three(&image), &renamed, "").unwrap();
    let refused = commit(&server.state, &server.key, None, &plan, 20).unwrap_err().to_string();
    assert!(refused.contains("on this server already, as 'tank'") && !refused.contains("other"), "{refused}");
}

/// The disks of the server as they are, with the pool exported or not, copies of them at `place`.
fn copies(server: &Server, place: &str, epoch: u64) -> Vec<FoundDisk> {
    let image = server.image();
    let copy = |number: u8| FoundDisk {
        path: format!("/{place}/{number}"),
        promised: std::collections::BTreeMap::from([(VOLUME, Epoch(epoch))]),
        ..found(number, &image)
    };
    (1..=3).map(copy).collect()
}

#[test]
fn of_copies_of_one_disk_the_one_that_was_written_last_counts() {
    let server = Server::furnished();
    let old = copies(&server, "old", 4);
    let pool: Stored<PoolRecord> = server.state.read(&POOL.to_string()).unwrap().unwrap();
    server.state.write(&PoolRecord { exported: true, ..pool.value }, pool.revision).unwrap();
    let new = copies(&server, "new", 5);
    for found in [[&old[..], &new[..]].concat(), [&new[..], &old[..]].concat()] {
        // The older ones were not exported: they do not count.
        let plan = plan(&found, &super::Wanted::default(), "").unwrap();
        assert!(plan.disks.iter().all(|disk| disk.path.starts_with("/new/")), "{:?}", plan.disks);
        assert_eq!(plan.notes.len(), 3, "{:?}", plan.notes);
        assert!(
            plan.notes[0].starts_with("/old/1 (records of 1970-01-01 00:00 UTC, generation 0"),
            "{:?}",
            plan.notes
        );
    }
    // Clones of exported disks are all the same.
    let found = [&new[..], &copies(&server, "clone", 5)[..]].concat();
    assert!(plan(&found, &super::Wanted::default(), "").is_ok());
}

#[test]
fn copies_of_one_disk_of_which_nothing_says_which_was_written_last_are_refused() {
    let server = Server::furnished();
    let one = copies(&server, "one", 5);
    let refused = |found: &[FoundDisk]| match plan(found, &yes(), "") {
        Err(error @ ImportError::Copies { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let told = refused(&[&one[..], &copies(&server, "two", 5)[..]].concat());
    assert!(told.contains("/one/1 (records") && told.contains("/two/1 (records"), "{told}");
    // Later epochs beside the same records tell it; with older records they do not.
    let later = copies(&server, "two", 6);
    assert_eq!(plan(&[&one[..], &later[..]].concat(), &yes(), "").unwrap().disks[0].path, "/two/1");
    let volume: Stored<VolumeRecord> = server.state.read(&VOLUME.to_string()).unwrap().unwrap();
    server.state.write(&VolumeRecord { min_holders: 2, ..volume.value }, volume.revision).unwrap();
    refused(&[&copies(&server, "one", 5)[..], &later[..]].concat());
    let unread = FoundDisk { image: Err("damaged".into()), ..later[0].clone() };
    assert!(refused(&[one[0].clone(), unread]).contains("damaged"));
}
