use crate::accounts::{AccountError, Accounts};
use crate::image::{ImageError, ImageVersion, PoolImage, has_room_for, has_room_for_disk, parse_header};
use crate::import::{self, FoundDisk, ImportError, Wanted};
use crate::seal::SealKey;
use crate::settings::ServerSettings;
use crate::shares::{self, Share, ShareAccess};
use crate::{
    DiskRecord, DiskState, EngineState, FaultDomain, PoolRecord, Provisioning, Record, RedbState, Resiliency,
    StateError, Typed, VolumeRecord,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::{ChunkIndex, DiskId, Epoch, PoolId, Sid, VolumeId};

pub(crate) const POOL: PoolId = PoolId::from_bytes([1; 16]);
pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([2; 16]);
const ROOM: usize = 256 << 10;

pub(crate) fn disk(number: u8) -> DiskRecord {
    DiskRecord {
        id: DiskId::from_bytes([number; 16]),
        pool: POOL,
        node: None,
        path: format!("/old/{number}"),
        size_bytes: 1 << 30,
        slab_bytes: 1 << 26,
        fault_domain: FaultDomain::default(),
        state: DiskState::Healthy,
        since_unix_s: 0,
        scrubbed_unix_s: 0,
    }
}

/// A server with a pool of three disks, a volume, a share and the user ann.
pub(crate) struct Server {
    _directory: tempfile::TempDir,
    pub(crate) state: RedbState,
    pub(crate) key: SealKey,
}

impl Server {
    pub(crate) fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = RedbState::open(&directory.path().join("state.redb")).unwrap();
        let key = SealKey::open_or_create(&directory.path().join("key")).unwrap();
        ServerSettings::open_or_create(&state).unwrap();
        Accounts::new(&state, &key).create_builtin_groups().unwrap();
        Self { _directory: directory, state, key }
    }

    pub(crate) fn furnished() -> Self {
        let server = Self::empty();
        let disks: Vec<DiskRecord> = (1..=3).map(disk).collect();
        let ids = disks.iter().map(|disk| disk.id).collect();
        let pool = PoolRecord::new(POOL, "tank", 0, 7);
        let volume =
            VolumeRecord::new(VOLUME, POOL, "data", Resiliency::TwoWay, 1 << 30, Provisioning::Thin, ids, 7);
        server.state.write(&pool, 0).unwrap();
        server.state.write(&volume, 0).unwrap();
        disks.iter().for_each(|disk| assert!(server.state.write(disk, 0).is_ok()));
        let administrators = ["Administrators".to_owned()];
        let ann = Accounts::new(&server.state, &server.key)
            .add_user("ann", "", "secret", &administrators, 9)
            .unwrap();
        shares::create(&server.state, &Share::new("docs", VOLUME, vec![(ann.sid, ShareAccess::Full)]))
            .unwrap();
        server
    }

    pub(crate) fn image(&self) -> PoolImage {
        let image = PoolImage::of(&self.state.dump().unwrap(), POOL, "host-a", 11).unwrap();
        PoolImage::parse(&image.encode(ROOM).unwrap()).unwrap()
    }

    fn volume(&self) -> crate::Stored<VolumeRecord> {
        self.state.read(&VOLUME.to_string()).unwrap().unwrap()
    }

    /// Expels a disk, as the volume's coordinator does.
    fn expel(&self, number: u8) {
        let mut volume = self.volume();
        volume.value.in_sync.retain(|disk| *disk != DiskId::from_bytes([number; 16]));
        volume.value.epoch = volume.value.epoch.next();
        self.state.write(&volume.value, volume.revision).unwrap();
    }
}

pub(crate) fn found(number: u8, image: &PoolImage) -> FoundDisk {
    FoundDisk {
        path: format!("/new/{number}"),
        disk: DiskId::from_bytes([number; 16]),
        pool: POOL,
        image: Ok(image.clone()),
        promised: BTreeMap::from([(VOLUME, Epoch(u64::from(number) * 10))]),
    }
}

pub(crate) fn yes() -> Wanted {
    Wanted { confirm: Some("tank".into()), ..Wanted::default() }
}

#[test]
fn a_pool_comes_back_with_volumes_shares_users_and_sids() {
    let old = Server::furnished();
    let image = old.image();
    let disks: Vec<FoundDisk> = (1..=3).map(|number| found(number, &image)).collect();
    let plan = import::plan(&disks, &yes(), "").unwrap();
    let new = Server::empty();
    let report = import::commit(&new.state, &new.key, Some(&old.key), &plan, 20).unwrap();
    assert_eq!(
        (report.volumes, report.shares, report.users),
        (vec!["data".into()], vec!["docs".into()], vec!["ann".into()])
    );
    assert!(report.passwords_lost.is_empty() && report.notes.is_empty());
    let old_users = Accounts::new(&old.state, &old.key).users().unwrap();
    let users = Accounts::new(&new.state, &new.key).users().unwrap();
    assert_eq!((&users[0].user, &users[0].nt_hash), (&old_users[0].user, &old_users[0].nt_hash));
    let groups = Accounts::new(&new.state, &new.key).groups().unwrap();
    let administrators = groups.iter().find(|group| group.sid == Sid::administrators()).unwrap();
    assert_eq!(administrators.members, [users[0].user.sid.clone()]);
    let domain = |server: &Server| ServerSettings::open_or_create(&server.state).unwrap().value.domain_sid;
    assert_eq!(domain(&new), domain(&old));
    let record: crate::Stored<DiskRecord> = new.state.read(&disk(2).id.to_string()).unwrap().unwrap();
    assert_eq!(record.value.path, "/new/2");
    assert!(new.volume().value.epoch >= Epoch(30), "higher than what any disk has promised");
    let pool: crate::Stored<PoolRecord> = new.state.read(&POOL.to_string()).unwrap().unwrap();
    assert_eq!((pool.value.generation, pool.value.exported), (1, false));
}

#[test]
fn without_the_key_users_come_back_and_cannot_log_on_until_a_password_is_set() {
    let image = Server::furnished().image();
    let disks: Vec<FoundDisk> = (1..=3).map(|number| found(number, &image)).collect();
    let new = Server::empty();
    let plan = import::plan(&disks, &yes(), "").unwrap();
    let report = import::commit(&new.state, &new.key, None, &plan, 20).unwrap();
    assert_eq!(report.passwords_lost, ["ann"]);
    let accounts = Accounts::new(&new.state, &new.key);
    let hash = || accounts.users().unwrap()[0].nt_hash.clone();
    assert_ne!(hash(), hash(), "no password fits");
    accounts.set_password("ann", "another", 21).unwrap();
    assert_eq!(hash(), hash());
    assert!(!accounts.users().unwrap()[0].user.password_lost);
}

#[test]
fn the_newest_records_count_whichever_disk_carries_them() {
    let server = Server::furnished();
    let older = server.image();
    server.expel(3);
    let newer = server.image();
    assert!(!older.says_the_same(&newer));
    let plan = import::plan(&[found(1, &older), found(2, &newer), found(3, &older)], &yes(), "").unwrap();
    assert_eq!(plan.volumes[0].in_sync, [DiskId::from_bytes([1; 16]), DiskId::from_bytes([2; 16])]);
}

#[test]
fn of_a_cluster_disks_that_promised_less_than_others_are_not_believed_by_older_records() {
    let server = Server::furnished();
    let single = import::plan(&[found(1, &server.image()), found(2, &server.image())], &yes(), "").unwrap();
    assert_eq!(
        single.volumes[0].promised,
        Epoch(0),
        "on one server the disks carry every change of the members"
    );
    let volume = server.volume();
    let owned = VolumeRecord { owner: Some(types::NodeId(2)), ..volume.value };
    server.state.write(&owned, volume.revision).unwrap();
    // Disk 1 was expelled from the volume since: the other ones have promised a later epoch than the
    // record's.
    let image = server.image();
    let plan = import::plan(&[found(1, &image), found(2, &image), found(3, &image)], &yes(), "").unwrap();
    let record = &plan.volumes[0];
    assert_eq!((record.promised, record.epoch, record.owner), (Epoch(30), Epoch(30), None));
}

#[test]
fn an_import_makes_all_earlier_records_old() {
    let old = Server::furnished();
    let image = old.image();
    let new = Server::empty();
    let plan = import::plan(&[found(1, &image), found(2, &image)], &yes(), "").unwrap();
    assert_eq!(plan.missing.len(), 1);
    import::commit(&new.state, &new.key, None, &plan, 20).unwrap();
    // The old state continues and reaches higher revisions.
    (0..20).for_each(|_| old.expel(9));
    let (stale, current) = (old.image(), new.image());
    assert!(stale.header.version.revision > current.header.version.revision);
    let plan = import::plan(&[found(1, &current), found(2, &current), found(3, &stale)], &yes(), "").unwrap();
    assert_eq!(plan.version, current.header.version);
}

#[test]
fn two_imports_apart_from_each_other_are_not_mixed() {
    let image = Server::furnished().image();
    let import = |numbers: [u8; 2]| {
        let server = Server::empty();
        let plan = import::plan(&numbers.map(|number| found(number, &image)), &yes(), "").unwrap();
        import::commit(&server.state, &server.key, None, &plan, 20).unwrap();
        server.image()
    };
    let (left, right) = (import([1, 2]), import([2, 3]));
    let refused = import::plan(&[found(1, &left), found(3, &right)], &yes(), "");
    assert!(matches!(refused, Err(ImportError::TwoHistories { .. })), "{refused:?}");
}

#[test]
fn a_minority_of_the_disks_is_refused_unless_the_administrator_goes_on() {
    let server = Server::furnished();
    let image = server.image();
    let refused = import::plan(&[found(1, &image)], &yes(), "").unwrap_err();
    assert!(matches!(&refused, ImportError::TooFewDisks { found: 1, all: 3, .. }));
    assert!(refused.to_string().contains("/old/2") && refused.to_string().contains("/old/3"));
    let unreadable = FoundDisk { image: Err("damaged".into()), ..found(2, &image) };
    assert!(import::plan(&[found(1, &image), unreadable.clone()], &yes(), "").is_err());
    let go_on = Wanted { accept_missing: true, ..yes() };
    let plan = import::plan(&[found(1, &image), unreadable], &go_on, "").unwrap();
    assert_eq!((plan.disks.len(), plan.missing.len()), (2, 1));
}

#[test]
fn a_pool_that_was_not_exported_needs_its_name() {
    let server = Server::furnished();
    let image = server.image();
    let disks = [found(1, &image), found(2, &image)];
    let refused = import::plan(&disks, &Wanted::default(), "").unwrap_err();
    assert!(refused.to_string().contains("host-a"), "{refused}");
    let mut pool: crate::Stored<PoolRecord> = server.state.read(&POOL.to_string()).unwrap().unwrap();
    pool.value.exported = true;
    server.state.write(&pool.value, pool.revision).unwrap();
    let image = server.image();
    assert!(import::plan(&[found(1, &image), found(2, &image)], &Wanted::default(), "").is_ok());
}

#[test]
fn what_is_there_already_is_kept_and_said() {
    let image = Server::furnished().image();
    let disks = [found(1, &image), found(2, &image)];
    let new = Server::empty();
    let accounts = Accounts::new(&new.state, &new.key);
    let own = accounts.add_user("Ann", "", "other", &[], 1).unwrap();
    shares::create(&new.state, &Share::new("DOCS", VolumeId::from_bytes([9; 16]), Vec::new())).unwrap();
    let plan = import::plan(&disks, &yes(), "").unwrap();
    let report = import::commit(&new.state, &new.key, None, &plan, 20).unwrap();
    assert!(report.users.is_empty() && report.shares.is_empty());
    assert_eq!(report.notes.len(), 3, "a user, a share and who was an administrator: {:?}", report.notes);
    assert_eq!(accounts.users().unwrap()[0].user.sid, own.sid);
    let again = import::commit(&new.state, &new.key, None, &plan, 20);
    assert!(again.is_err(), "the pool is here");
}

#[test]
fn epochs_may_be_older_on_disks_and_members_may_not() {
    let server = Server::furnished();
    let before = server.image();
    let mut volume = server.volume();
    volume.value.epoch = Epoch(77);
    volume.value.settled = Epoch(76);
    server.state.write(&volume.value, volume.revision).unwrap();
    assert!(before.says_the_same(&server.image()));
    let mut volume = server.volume();
    volume.value.building.push((DiskId::from_bytes([1; 16]), ChunkIndex(4)));
    server.state.write(&volume.value, volume.revision).unwrap();
    assert!(!before.says_the_same(&server.image()));
}

#[test]
fn accounts_without_room_are_counted_and_pool_and_volumes_are_kept() {
    let server = Server::furnished();
    let accounts = Accounts::new(&server.state, &server.key);
    (0..20).for_each(|number| assert!(accounts.add_user(&format!("user{number}"), "", "x", &[], 0).is_ok()));
    let image = PoolImage::of(&server.state.dump().unwrap(), POOL, "host", 0).unwrap();
    let whole = image.encode(ROOM).unwrap().len();
    let least = (400..whole).step_by(50).find(|room| image.encode(*room).is_some()).unwrap();
    let cut = image.encode(least).unwrap();
    assert!(cut.len() <= least);
    let cut = PoolImage::parse(&cut).unwrap();
    assert!(cut.header.omitted > 0);
    assert_eq!(cut.records::<VolumeRecord>().unwrap().len(), 1);
    assert_eq!(image.encode(400), None);
}

#[test]
fn bytes_that_are_no_copy_are_refused() {
    assert_eq!(parse_header(b""), Err(ImageError::Absent));
    assert!(matches!(parse_header(b"{\"form\":3}"), Err(ImageError::Newer(3))));
    let good = Server::furnished().image().encode(ROOM).unwrap();
    let mut bad = good.clone();
    bad.extend_from_slice(b"no tab\n");
    assert!(matches!(PoolImage::parse(&bad), Err(ImageError::Malformed(_))));
    assert!(ImageVersion { generation: 1, revision: 0 } > ImageVersion { generation: 0, revision: 9 });
}

/// Sixteen bytes that nothing compresses.
fn unlike(number: u64) -> [u8; 16] {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    std::array::from_fn(|_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word >> 32) as u8
    })
}

/// The records of sixteen nodes with 26 disks each and of `volumes` volumes; the third node has left,
/// and one copy is being made.
fn large(volumes: u64) -> crate::StateDump {
    let disks: Vec<DiskRecord> = (0..416)
        .map(|number| {
            let node = number / 26 + 1;
            DiskRecord {
                id: DiskId::from_bytes(unlike(number)),
                node: Some(types::NodeId(node as u32)),
                path: format!("/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_S64HNE0R{:06}", number * 7919),
                fault_domain: FaultDomain { node: format!("server-{node}"), ..FaultDomain::default() },
                ..disk(1)
            }
        })
        .collect();
    let home = |node: u32| {
        let own = disks.iter().filter(|disk| disk.node == Some(types::NodeId(node)));
        let disks = own.map(|disk| disk.id).collect();
        crate::Home { node: format!("server-{node}"), disks }
    };
    let volume = |number: u64| {
        let id = VolumeId::from_bytes(unlike(10_000 + number));
        let (away, there): (Vec<_>, Vec<_>) =
            disks.iter().partition(|disk| disk.node == Some(types::NodeId(3)));
        let mut in_sync: Vec<DiskId> = there.iter().map(|disk| disk.id).collect();
        in_sync.sort_unstable();
        let since = Epoch(1_000 + number * 13);
        let stale = away.iter().zip(0..).map(|(disk, at): (_, u64)| crate::StaleDisk {
            disk: disk.id,
            since,
            promised: Epoch(since.0 - at % 2),
        });
        VolumeRecord {
            epoch: Epoch(2_000 + number * 17),
            settled: Epoch(1_999 + number * 17),
            promised: Epoch(1_990 + number * 16),
            coordinator: u128::from_ne_bytes(unlike(20_000 + number)),
            owner: Some(types::NodeId(number as u32 % 16 + 1)),
            min_homes: 1,
            homes: (1..=16).filter(|node| *node != 3).map(home).collect(),
            stale: stale.collect(),
            building: vec![(in_sync[0], ChunkIndex(number as u32))],
            ..VolumeRecord::new(
                id,
                POOL,
                format!("vm-{number}"),
                Resiliency::TwoWay,
                1 << 40,
                Provisioning::Thin,
                in_sync,
                7,
            )
        }
    };
    let pool = PoolRecord::new(POOL, "tank", 0, 7);
    let mut entries = vec![(pool.key(), pool.encode())];
    entries.extend(disks.iter().map(|disk| (disk.key(), disk.encode())));
    entries.extend((0..volumes).map(volume).map(|volume| (volume.key(), volume.encode())));
    entries.sort();
    crate::StateDump { revision: 9, entries }
}

/// The records with their disks in the order of the ids.
fn in_order(image: &PoolImage) -> Vec<VolumeRecord> {
    let mut volumes = image.records::<VolumeRecord>().unwrap();
    for volume in &mut volumes {
        volume.in_sync.sort_unstable();
        volume.stale.sort_by_key(|stale| stale.disk);
        volume.homes.iter_mut().for_each(|home| home.disks.sort_unstable());
    }
    volumes.sort_by_key(|volume| volume.id);
    volumes
}

#[test]
fn a_thousand_volumes_on_416_disks_fit_on_each_disk_while_a_node_is_away_and_come_back() {
    let image = PoolImage::of(&large(1_000), POOL, "host-a", 11).unwrap();
    let bytes = image.encode(ROOM).expect("they fit");
    assert_eq!(parse_header(&bytes).unwrap().form, 2);
    let found = PoolImage::parse(&bytes).unwrap();
    assert_eq!((found.header.version, found.header.omitted), (image.header.version, 0));
    assert_eq!(in_order(&found), in_order(&image));
    assert_eq!(found.records::<DiskRecord>().unwrap(), image.records::<DiskRecord>().unwrap());
    assert!(!found.is_ahead_of(&image) && !image.is_ahead_of(&found));
}

#[test]
fn a_volume_is_refused_while_the_records_of_those_that_are_there_still_fit() {
    let (few, many) = (large(20), large(60));
    let next = in_order(&PoolImage::of(&large(61), POOL, "", 0).unwrap()).remove(60);
    let room = PoolImage::of(&many, POOL, "", 0).unwrap().encode(ROOM).unwrap();
    let packed = |dump| PoolImage::of(dump, POOL, "", 0).unwrap().encode(ROOM >> 2).map(|bytes| bytes.len());
    let least = packed(&many).expect("60 fit into a quarter");
    assert!(room.len() >= least);
    assert!(has_room_for(&few, &next, least));
    assert!(!has_room_for(&many, &next, least), "nothing is left for what records grow by");
    assert!(PoolImage::of(&many, POOL, "", 0).unwrap().encode(least + 100).is_some());
}

#[test]
fn small_pools_are_written_as_programs_of_before_read_them() {
    let bytes = Server::furnished().image().encode(ROOM).unwrap();
    assert_eq!(parse_header(&bytes).unwrap().form, 1);
}

#[test]
fn packed_records_that_name_what_is_not_there_or_too_much_are_refused() {
    let header = large(1);
    let header = PoolImage::of(&header, POOL, "", 0).unwrap().header;
    let image = |lines: &str| {
        let mut bytes = serde_json::to_vec(&crate::image::ImageHeader { form: 2, ..header.clone() }).unwrap();
        bytes.push(b'\n');
        bytes.extend(miniz_oxide::deflate::compress_to_vec_zlib(lines.as_bytes(), 1));
        PoolImage::parse(&bytes)
    };
    let record = VolumeRecord {
        in_sync: vec![],
        ..in_order(&PoolImage::of(&large(1), POOL, "", 0).unwrap()).remove(0)
    };
    let record = VolumeRecord { homes: vec![], stale: vec![], building: vec![], ..record };
    let record = String::from_utf8(record.encode()).unwrap();
    let volume = |list: u32| {
        format!(
            "=volume/x\t{{\"in_sync\":{list},\"homes\":0,\"stale\":[],\"building\":[],\"volume\":{record}}}\n"
        )
    };
    let lists = format!("disks\t[\"{}\"]\nlist\t[0]\nhomes\t[]\n", DiskId::from_bytes([1; 16]));
    assert!(image(&format!("{lists}{}", volume(0))).is_ok());
    assert!(matches!(image(&format!("{lists}{}", volume(1))), Err(ImageError::Malformed(_))));
    let long = format!("list\t[{}0]\n", "0,".repeat(100_000));
    assert!(image(&format!("{lists}{long}{}", volume(1))).is_ok());
    let many = volume(1).repeat(30);
    assert!(matches!(image(&format!("{lists}{long}{many}")), Err(ImageError::Malformed(_))));
    assert!(matches!(image("list\t[\n"), Err(ImageError::Malformed(_))));
    // Nodes without disks, which each volume would name again.
    let homes =
        |nodes: usize| format!("disks\t[]\nlist\t[]\nhomes\t[{}[\"\",0]]\n", "[\"\",0],".repeat(nodes - 1));
    assert!(image(&format!("{}{}", homes(16), volume(0))).is_ok());
    assert!(matches!(image(&format!("{}{}", homes(2_000), volume(0))), Err(ImageError::Malformed(_))));
}

#[test]
fn a_disk_is_refused_while_the_records_of_those_that_are_there_still_fit() {
    let many = large(60);
    let packed = PoolImage::of(&many, POOL, "", 0).unwrap().encode(ROOM >> 2).expect("they fit").len();
    let path = "/dev/disk/by-id/nvme-one-more";
    assert!(has_room_for_disk(&many, POOL, path, ROOM));
    assert!(!has_room_for_disk(&many, POOL, path, packed), "nothing is left for what records grow by");
    assert!(has_room_for_disk(&many, POOL, path, packed + 60 * 32 + 400), "it takes room once");
}

#[test]
fn three_thousand_users_fit_beside_a_few_volumes_as_the_manual_says() {
    let with_users = |count: u64| {
        let mut dump = large(4);
        dump.entries.retain(|(key, _)| !key.starts_with(DiskRecord::PREFIX));
        let users = (0..count).map(|number| {
            // Nonce, sealed hash and tag do not compress.
            let random: Vec<u8> = (0..3).flat_map(|part| unlike(100_000 + 3 * number + part)).collect();
            let random: String = random[..44].iter().map(|byte| format!("{byte:02x}")).collect();
            let name = format!("{}.{}", random.get(3..9).unwrap(), number * 7919 % 10_007);
            let value = format!(
                "{{\"name\":\"{name}\",\"sid\":\"S-1-5-21-1234567890-2345678901-345678901-{}\",\"enabled\":true,\
                 \"full_name\":\"\",\"password_set_unix_s\":{},\"password_lost\":false,\"sealed_nt_hash\":\"{random}\"}}",
                1000 + number,
                1_790_000_000 + number * 7919 % 30_000_000,
            );
            (format!("user/{name}"), value.into_bytes())
        });
        dump.entries.extend(users);
        dump.entries.sort();
        PoolImage::of(&dump, POOL, "host-a", 11).unwrap().encode(ROOM).unwrap()
    };
    for (count, fit) in [(3_000, true), (4_000, false)] {
        let image = with_users(count);
        assert_eq!(parse_header(&image).unwrap().omitted == 0, fit, "{count} users");
    }
}

#[test]
fn a_user_or_share_that_the_disks_could_not_carry_is_refused_and_what_makes_room_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let key = SealKey::open_or_create(&directory.path().join("key")).unwrap();
    let state = crate::State::from(crate::MemoryState::new());
    let pool = PoolRecord::new(POOL, "tank", 0, 7);
    state.write(&pool, 0).unwrap();
    let volume = VolumeRecord::new(
        VOLUME,
        POOL,
        "data".to_owned(),
        Resiliency::TwoWay,
        1 << 30,
        Provisioning::Thin,
        Vec::new(),
        7,
    );
    state.write(&volume, 0).unwrap();
    let roomy = crate::RoomyState::new(state.clone(), 4096);
    let accounts = Accounts::new(&roomy, &key);
    accounts.create_builtin_groups().unwrap();
    let add = |number: usize| accounts.add_user(&format!("user-{number}"), "", "Pa55-w0rd!", &[], 1);
    let (refused, error) = (0..100).find_map(|number| Some((number, add(number).err()?))).expect("no room");
    assert!(matches!(&error, AccountError::State(StateError::NoRoom(pool)) if pool == "tank"), "{error:?}");
    let image = PoolImage::of(&state.dump().unwrap(), POOL, "", 0).unwrap();
    let carried = PoolImage::parse(&image.encode(4096).unwrap()).unwrap();
    assert_eq!((carried.header.omitted, accounts.users().unwrap().len()), (0, refused));
    let share = |name: String| shares::create(&roomy, &Share::new(name, VOLUME, Vec::new()));
    let refused = (0..100).find_map(|number| share(format!("share-{number}")).err()).expect("no room");
    assert!(matches!(refused, AccountError::State(StateError::NoRoom(_))), "{refused:?}");
    for number in 0..4 {
        accounts.delete_user(&format!("user-{number}")).expect("it makes room");
    }
    share("one-more".to_owned()).expect("there is room");
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = PoolImage::parse(&bytes);
    }

    #[test]
    fn unpacking_never_panics(lines in prop::collection::vec((0..5_usize, "[0-9a-z\\[\\]{}:,\"\\t]{0,60}"), 0..12)) {
        const KEYS: [&str; 5] = ["disks", "list", "homes", "=volume/x", "volume/x"];
        let lines: String = lines.iter().map(|(key, value)| format!("{}\t{value}\n", KEYS[*key])).collect();
        let _ = crate::packing::unpack(&miniz_oxide::deflate::compress_to_vec_zlib(lines.as_bytes(), 1));
        let _ = crate::packing::unpack(lines.as_bytes());
    }
}

#[test]
fn a_state_that_was_restored_is_behind_what_disks_carry_however_often_it_is_written_since() {
    let server = Server::furnished();
    let restored = server.image();
    server.expel(3);
    let carried = server.image();
    assert!(carried.is_ahead_of(&restored) && !restored.is_ahead_of(&carried));
    assert!(!carried.is_ahead_of(&carried));
    // The state counts its revisions on from the old one; nothing is claimed meanwhile.
    let mut later = restored.clone();
    later.header.version.revision = carried.header.version.revision + 10;
    assert!(carried.is_ahead_of(&later));
    // An import supersedes the copies on disks that it did not find.
    later.header.version.generation += 1;
    later.header.history = uuid::Uuid::from_u128(5);
    assert!(!carried.is_ahead_of(&later));
}

#[test]
fn a_server_that_went_on_from_an_older_copy_of_its_state_is_not_believed() {
    let server = Server::furnished();
    let mut forked = server.image();
    server.expel(3);
    forked.header.version.revision = server.image().header.version.revision + 10;
    let disks = [found(1, &server.image()), found(2, &server.image()), found(3, &forked)];
    let refused = import::plan(&disks, &yes(), "here");
    assert!(matches!(refused, Err(ImportError::TwoHistories { .. })), "{refused:?}");
    let plan = import::plan(&disks[..2], &yes(), "here").unwrap();
    assert_eq!(plan.volumes[0].in_sync.len(), 2);
}

#[test]
fn a_promise_that_no_owner_can_have_come_to_is_refused_with_the_disk_that_made_it() {
    let server = Server::furnished();
    let image = server.image();
    let beyond = FoundDisk { promised: BTreeMap::from([(VOLUME, Epoch(4_294_967_000))]), ..found(2, &image) };
    let refused = import::plan(&[found(1, &image), beyond.clone()], &yes(), "").unwrap_err();
    assert!(matches!(&refused, ImportError::Beyond { path, .. } if *path == beyond.path), "{refused:?}");
    // The other disks are imported without it.
    let plan = import::plan(&[found(1, &image), found(3, &image)], &yes(), "").unwrap();
    assert_eq!(plan.volumes[0].epoch, Epoch(30));
}
