//! The whole data plane over files: commands in, volumes kept across a start.

use super::*;
use crate::control::{
    ClusterCommand, ClusterOptions, CommandErrorKind, ControlHandle, DiskCommand, NewDisk, NewVolume,
    SmbPolicy, StorageCommand,
};
use crate::directory::{Directory, SharedDirectory};
use crate::logon_lines::LogonLines;
use crate::pipe_queue::PipeChanges;
use api::model::{Health, Provisioning, Resiliency, VolumeStatus};
use heartbeat::shell::{HeartbeatLink, Heartbeats, Surroundings};
use heartbeat::{HeartbeatKey, Incarnation, Options, Timing};
use records::{FaultDomain, Typed};
use std::net::TcpListener;
use std::path::Path;
use types::{NodeId, PoolId, Sid, VolumeId};

const PATIENCE: Duration = Duration::from_secs(30);

fn start_in(directory: &Path) -> DataPlane {
    let path = directory.join("state.redb");
    // The thread that served the state for an earlier data plane may need a moment to let go of the file.
    let state = (0..500).find_map(|_| {
        let opened = records::State::open(&path).ok();
        if opened.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        opened
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    start_with(state.expect("a state"), listener, None, Default::default())
}

fn start_with(
    state: records::State,
    listener: TcpListener,
    cluster: Option<ClusterOptions>,
    accounts: ::bus::NodeAccounts,
) -> DataPlane {
    let domain = Sid::new(5, &[21, 1, 2, 3]).expect("a domain");
    let directory = Directory::new(domain, Vec::new(), Vec::new(), Vec::new());
    let options = DataPlaneOptions {
        smb_listeners: vec![listener],
        rdma_listeners: Vec::new(),
        rdma_devices: Default::default(),
        state,
        cluster,
        accounts,
        disk_paths: Vec::new(),
        server_guid: [7; 16],
        smb: SmbPolicy { server_name: "TEST".to_owned(), ..SmbPolicy::default() },
        limits: Limits { cache_bytes: 16 << 20, ..Limits::default() },
        directory: SharedDirectory::new(directory),
        logon_lines: LogonLines::nowhere(),
        pipe_changes: PipeChanges::new().0,
        pulse: Default::default(),
    };
    start(options, node::on_loop).expect("a data plane")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn drain(plane: DataPlane) {
    runtime().block_on(plane.control.drain(PATIENCE));
    plane.thread.join().expect("the thread").expect("an orderly end");
}

fn disks(directory: &Path, count: usize) -> Vec<NewDisk> {
    (0..count)
        .map(|number| NewDisk {
            path: directory.join(format!("disk-{number}")),
            create_size_bytes: Some(1 << 30),
            fault_domain: FaultDomain::default(),
        })
        .collect()
}

async fn make_pool(control: &ControlHandle, directory: &Path) -> PoolId {
    let disks = disks(directory, 2);
    control
        .call(|reply| StorageCommand::CreatePool {
            name: "pool".to_owned(),
            disks,
            reserve_disks: None,
            reply,
        })
        .await
        .expect("a pool")
}

async fn make_volume(
    control: &ControlHandle,
    pool: PoolId,
    resiliency: Resiliency,
) -> Result<VolumeId, CommandError> {
    let volume = NewVolume {
        name: "volume".to_owned(),
        pool,
        resiliency,
        provisioning: Provisioning::Thin,
        size_bytes: 256 << 20,
        warn_at_percent: None,
    };
    control.call(|reply| StorageCommand::CreateVolume { volume, reply }).await
}

#[test]
fn a_volume_is_made_kept_and_served_again_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    let made = runtime().block_on(async {
        let pool = make_pool(&plane.control, directory.path()).await;
        let too_many = make_volume(&plane.control, pool, Resiliency::ThreeWayMirror).await;
        assert_eq!(too_many.expect_err("two disks hold no three copies").kind, CommandErrorKind::Invalid);
        make_volume(&plane.control, pool, Resiliency::TwoWayMirror).await.expect("a volume")
    });
    drain(plane);
    let plane = start_in(directory.path());
    let snapshot = runtime().block_on(plane.control.figures()).expect("a snapshot");
    assert_eq!((snapshot.disks.len(), snapshot.health.health), (2, Health::Healthy));
    assert_eq!((snapshot.volumes[0].id, snapshot.volumes[0].status), (made, VolumeStatus::Ok));
    drain(plane);
}

#[test]
fn disks_that_hold_something_are_refused_and_stay_as_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    runtime().block_on(async {
        make_pool(&plane.control, directory.path()).await;
        let again = disks(directory.path(), 2);
        let refused = plane
            .control
            .call(|reply| StorageCommand::CreatePool {
                name: "other".to_owned(),
                disks: again,
                reserve_disks: None,
                reply,
            })
            .await;
        assert_eq!(refused.expect_err("the refusal").kind, CommandErrorKind::Conflict);
        let snapshot = plane.control.figures().await.expect("a snapshot");
        assert_eq!((snapshot.pools.len(), snapshot.health.health), (1, Health::Healthy));
    });
    drain(plane);
}

/// Damages the disk's copies of the volume's superblocks.
fn damage_superblocks(disk: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(disk).expect("the disk");
    let (mut block, mut at, mut damaged) = (vec![0; 1 << 20], 0, 0);
    while file.read_exact_at(&mut block, at).is_ok() {
        for inside in (0..block.len()).step_by(4096) {
            if block[inside..].starts_with(b"CENOTEFS") {
                file.write_all_at(&[0x55; 64], at + inside as u64 + 200).expect("a write");
                damaged += 1;
            }
        }
        at += block.len() as u64;
    }
    assert!(damaged > 0, "no superblock on {}", disk.display());
}

/// Polls until the snapshot fulfils a condition.
fn until_shown(plane: &DataPlane, what: &str, mut shown: impl FnMut(&api::model::Snapshot) -> bool) {
    let begun = std::time::Instant::now();
    loop {
        let snapshot = runtime().block_on(plane.control.figures()).expect("a snapshot");
        if shown(&snapshot) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {:#?} {:#?}", snapshot.health, snapshot.disks);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_was_found_wrong_with_a_disk_is_known_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    runtime().block_on(async {
        let pool = make_pool(&plane.control, directory.path()).await;
        make_volume(&plane.control, pool, Resiliency::TwoWayMirror).await.expect("a volume");
    });
    drain(plane);
    let bad = directory.path().join("disk-0");
    damage_superblocks(&bad);
    let repaired = |snapshot: &api::model::Snapshot| {
        let disk = snapshot.disks.iter().find(|disk| Path::new(&disk.path) == bad).expect("the disk");
        disk.counters.unwrap().repaired_blocks
    };
    // The opening of the volume finds the damage; the next start has nothing to find.
    for round in ["found", "known"] {
        let plane = start_in(directory.path());
        until_shown(&plane, round, |snapshot| repaired(snapshot) > 0);
        drain(plane);
    }
}

/// Changes the state while no data plane uses it.
fn with_state(directory: &Path, change: impl FnOnce(&records::State)) {
    let state = (0..500).find_map(|_| {
        let opened = records::State::open(&directory.join("state.redb")).ok();
        opened.or_else(|| {
            std::thread::sleep(Duration::from_millis(20));
            None
        })
    });
    change(&state.expect("the state"));
}

#[test]
fn errors_that_were_acknowledged_stay_counted_and_are_no_issue_after_a_restart_neither() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    runtime().block_on(make_pool(&plane.control, directory.path()));
    let disk = runtime().block_on(plane.control.figures()).expect("a snapshot").disks[0].id;
    drain(plane);
    with_state(directory.path(), |state| {
        let damage = records::DiskDamage { disk, corrupt_blocks: 3, ..records::DiskDamage::none(disk) };
        state.write(&damage, 0).expect("a record");
    });
    // An acknowledged block is counted, but is no issue any more, also after a restart.
    for round in ["acknowledged", "still acknowledged"] {
        let plane = start_in(directory.path());
        if round == "acknowledged" {
            until_shown(&plane, "health tells of it", |snapshot| {
                snapshot.health.issues.iter().any(|issue| issue.code == "disk_corrupt_blocks")
            });
            let done = plane.control.call(|reply| DiskCommand::Acknowledge { disk, reply });
            runtime().block_on(done).expect("a notice");
        }
        until_shown(&plane, round, |snapshot| {
            let disk = snapshot.disks.iter().find(|listed| listed.id == disk).expect("the disk");
            disk.counters.unwrap().corrupt_blocks == 3
                && disk.counters.unwrap().corrupt_blocks == disk.counters.unwrap().acknowledged_corrupt_blocks
                && snapshot.health.health == Health::Healthy
        });
        drain(plane);
    }
}

#[test]
fn blocks_without_an_intact_copy_are_known_after_a_restart_until_they_are_found_intact() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    let volume = runtime().block_on(async {
        let pool = make_pool(&plane.control, directory.path()).await;
        make_volume(&plane.control, pool, Resiliency::TwoWayMirror).await.expect("a volume")
    });
    drain(plane);
    with_state(directory.path(), |state| {
        let lost = records::LostBlocks { volume, since_unix_s: 77, ranges: vec![(50_000, 2)] };
        state.write(&lost, 0).expect("a record");
    });
    for _ in 0..2 {
        let plane = start_in(directory.path());
        until_shown(&plane, "the lost blocks are known", |snapshot| {
            let mut issues = snapshot.health.issues.iter();
            issues.any(|issue| {
                issue.code == "volume_lost_blocks"
                    && issue.since_unix_s == 77
                    && issue.what.starts_with("2 blocks")
                    && issue.what.contains("no file has these blocks")
            })
        });
        drain(plane);
    }
}

async fn make(
    control: &ControlHandle,
    pool: PoolId,
    name: &str,
    size_bytes: u64,
) -> Result<VolumeId, CommandError> {
    let volume = NewVolume {
        name: name.to_owned(),
        pool,
        resiliency: Resiliency::TwoWayMirror,
        provisioning: Provisioning::Thin,
        size_bytes,
        warn_at_percent: None,
    };
    control.call(|reply| StorageCommand::CreateVolume { volume, reply }).await
}

#[test]
fn a_volume_that_is_refused_leaves_nothing_and_one_of_the_stated_minimum_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    runtime().block_on(async {
        let control = &plane.control;
        let pool = make_pool(control, directory.path()).await;
        for (size_bytes, words) in [(128 << 20, "192 MiB"), (65 << 40, "64.0 TiB")] {
            let refused = make(control, pool, "volume", size_bytes).await.expect_err("a refusal");
            assert!(
                refused.kind == CommandErrorKind::Invalid && refused.message.contains(words),
                "{refused}"
            );
        }
        // The pool has 15 slabs on each disk, and a volume takes three of each. The first could grow: if
        // every volume has all of its slabs, a full pool refuses nothing, and health has no issue.
        make(control, pool, "grows", 1 << 30).await.expect("a volume");
        for number in 0..3 {
            let made = make(control, pool, &format!("volume {number}"), 192 << 20).await.expect("a volume");
            let snapshot = control.figures().await.expect("a snapshot");
            let shown = snapshot.volumes.iter().find(|volume| volume.id == made).expect("the volume");
            assert_eq!((shown.size_bytes, shown.in_sync_copies), (192 << 20, Some(2)));
        }
        let mut full = Ok(VolumeId::from_bytes([0; 16]));
        for number in 3..9 {
            full = make(control, pool, &format!("volume {number}"), 192 << 20).await;
            if full.is_err() {
                break;
            }
        }
        assert_eq!(full.expect_err("the pool is full").kind, CommandErrorKind::NoSpace);
        let snapshot = control.figures().await.expect("a snapshot");
        assert!(
            snapshot.volumes.iter().all(|volume| volume.status == VolumeStatus::Ok),
            "{:?}",
            snapshot.volumes
        );
        assert_ne!(snapshot.health.health, Health::Healthy, "a full pool is told of");
    });
    drain(plane);
}

#[test]
fn a_volume_that_was_being_made_when_the_server_ended_is_removed_by_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    let pool = runtime().block_on(make_pool(&plane.control, directory.path()));
    drain(plane);
    with_state(directory.path(), |state| {
        let disks = state
            .list::<records::DiskRecord>()
            .expect("disks")
            .into_iter()
            .map(|disk| disk.value.id)
            .collect();
        let (two, thin) = (records::Resiliency::TwoWay, records::Provisioning::Thin);
        let id = VolumeId::from_bytes([9; 16]);
        let mut record = records::VolumeRecord::new(id, pool, "volume", two, 1 << 30, thin, disks, 0);
        record.is_unfinished = true;
        state.write(&record, 0).expect("a record");
    });
    let plane = start_in(directory.path());
    until_shown(&plane, "it is gone", |snapshot| snapshot.volumes.is_empty());
    let begun = std::time::Instant::now();
    // The name is free as soon as the volume's record is gone.
    while runtime().block_on(make(&plane.control, pool, "volume", 256 << 20)).is_err() {
        assert!(begun.elapsed() < PATIENCE, "the name stays taken");
        std::thread::sleep(Duration::from_millis(50));
    }
    drain(plane);
    let plane = start_in(directory.path());
    until_shown(&plane, "it is served", |snapshot| {
        snapshot.volumes.len() == 1 && snapshot.volumes[0].status == VolumeStatus::Ok
    });
    drain(plane);
}

#[test]
fn volumes_made_grown_and_deleted_in_turn_leak_no_slab_and_are_no_issue_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    runtime().block_on(async {
        let control = &plane.control;
        let pool = make_pool(control, directory.path()).await;
        for round in 0..60 {
            let volume = make(control, pool, "volume", 192 << 20).await;
            let volume = volume.unwrap_or_else(|why| panic!("round {round}: {why}"));
            let size_bytes = 384 << 20;
            control
                .call(|reply| StorageCommand::ResizeVolume { volume, size_bytes, reply })
                .await
                .expect("more room");
            let snapshot = control.figures().await.expect("a snapshot");
            let shown = &snapshot.volumes[0];
            assert!(shown.size_bytes == 384 << 20 && shown.used_bytes <= Some(192 << 20), "{shown:?}");
            let deleting = control.call(|reply| StorageCommand::DeleteVolume { volume, reply });
            let looking = async {
                for _ in 0..5 {
                    let snapshot = control.figures().await.expect("a snapshot");
                    assert_eq!(snapshot.health.health, Health::Healthy, "{:?}", snapshot.health);
                }
            };
            let (deleted, ()) = tokio::join!(deleting, looking);
            deleted.expect("a deletion");
        }
        let snapshot = control.figures().await.expect("a snapshot");
        assert_eq!(snapshot.pools[0].allocated_bytes, Some(0));
    });
    drain(plane);
}

#[test]
fn the_job_of_a_retirement_ends_when_the_disk_has_left_with_the_data_of_all_volumes() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    let (pool, disk, job) = runtime().block_on(async {
        let control = &plane.control;
        let pool = make_pool(control, directory.path()).await;
        for number in 0..3 {
            make(control, pool, &format!("volume {number}"), 192 << 20).await.expect("a volume");
        }
        let retire = |disk| move |reply| DiskCommand::Retire { disk, reply };
        let disk = control.figures().await.expect("a snapshot").disks[0].id;
        let refused = control.call(retire(disk)).await.expect_err("two copies need two disks");
        assert_eq!(refused.kind, CommandErrorKind::Conflict);
        let new = disks(directory.path(), 3).pop().expect("a disk");
        control.call(|reply| DiskCommand::Add { pool, disk: new, reply }).await.expect("a third disk");
        (pool, disk, control.call(retire(disk)).await.expect("a job"))
    });
    until_shown(&plane, "the job ends", |snapshot| {
        let listed = snapshot.jobs.iter().find(|listed| listed.id == job).expect("the job");
        assert_eq!(listed.kind, api::model::JobKind::Retirement);
        let has_left = snapshot.disks.iter().all(|listed| listed.id != disk);
        let told = snapshot.health.issues.iter().any(|issue| issue.code == "disk_retiring");
        assert!(has_left || told, "health tells of a disk that leaves: {:?}", snapshot.health);
        if listed.state == api::model::JobState::Completed {
            assert!(has_left, "the job ended before the disk had left");
        }
        listed.state == api::model::JobState::Completed
    });
    runtime().block_on(async {
        let snapshot = plane.control.figures().await.expect("a snapshot");
        assert!(
            snapshot.volumes.iter().all(|volume| volume.status == VolumeStatus::Ok),
            "{:?}",
            snapshot.volumes
        );
        let refused = plane.control.call(|reply| StorageCommand::DeletePool { pool, reply }).await;
        assert_eq!(refused.expect_err("it holds volumes").kind, CommandErrorKind::Conflict);
        for volume in snapshot.volumes.iter().map(|volume| volume.id) {
            plane
                .control
                .call(|reply| StorageCommand::DeleteVolume { volume, reply })
                .await
                .expect("a deletion");
        }
        let labelled = plane.control.call(|reply| StorageCommand::DeletePool { pool, reply }).await;
        assert_eq!(labelled.expect("a deletion"), Vec::<String>::new());
        // The pool's disks hold nothing: they make another pool.
        make_pool(&plane.control, directory.path()).await;
    });
    drain(plane);
}

#[test]
fn the_reserve_follows_the_number_of_disks_unless_it_was_chosen() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    let add = |number: usize| {
        let (control, pool) =
            (&plane.control, runtime().block_on(plane.control.figures()).expect("a snapshot").pools[0].id);
        let new = disks(directory.path(), number + 1).pop().expect("a disk");
        runtime()
            .block_on(control.call(|reply| DiskCommand::Add { pool, disk: new, reply }))
            .expect("a disk");
    };
    let pool = runtime().block_on(make_pool(&plane.control, directory.path()));
    add(2);
    until_shown(&plane, "a reserve of one disk", |snapshot| snapshot.pools[0].reserve_disks == 1);
    let reserve_disks = 0;
    let set = plane.control.call(|reply| StorageCommand::SetReserve { pool, reserve_disks, reply });
    runtime().block_on(set).expect("no reserve");
    add(3);
    std::thread::sleep(Duration::from_millis(2500));
    let snapshot = runtime().block_on(plane.control.figures()).expect("a snapshot");
    assert_eq!((snapshot.pools[0].reserve_disks, snapshot.health.health), (0, Health::Healthy));
    drain(plane);
}

#[test]
fn a_pool_of_an_earlier_release_that_grew_keeps_its_reserve_and_health_says_which_command_changes_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    let pool = runtime().block_on(make_pool(&plane.control, directory.path()));
    drain(plane);
    with_state(directory.path(), |state| {
        let found = state.read::<records::PoolRecord>(&pool.to_string()).expect("a read").expect("a pool");
        let old = records::PoolRecord { reserve_is_set: None, ..found.value };
        state.write(&old, found.revision).expect("a record that does not tell");
    });
    let plane = start_in(directory.path());
    let low = |snapshot: &api::model::Snapshot| {
        let mut issues = snapshot.health.issues.iter();
        issues.find(|issue| issue.code == "pool_reserve_low").map(|issue| issue.action.clone())
    };
    let new = disks(directory.path(), 3).pop().expect("a disk");
    let added = plane.control.call(|reply| DiskCommand::Add { pool, disk: new, reply });
    runtime().block_on(added).expect("a third disk");
    until_shown(&plane, "a warning", |snapshot| low(snapshot).is_some());
    // Longer than the interval of checks: the reserve stays.
    std::thread::sleep(Duration::from_millis(2500));
    let snapshot = runtime().block_on(plane.control.figures()).expect("a snapshot");
    assert_eq!((snapshot.pools[0].reserve_disks, snapshot.health.health), (0, Health::Warning));
    let action = low(&snapshot).expect("a warning");
    assert!(action.contains("cenote pool set pool --reserve-disks 1"), "{action}");
    let set = plane.control.call(|reply| StorageCommand::SetReserve { pool, reserve_disks: 1, reply });
    runtime().block_on(set).expect("a reserve");
    until_shown(&plane, "no warning", |snapshot| snapshot.health.health == Health::Healthy);
    drain(plane);
}

#[test]
fn a_file_that_is_removed_under_the_server_is_told_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let plane = start_in(directory.path());
    runtime().block_on(make_pool(&plane.control, directory.path()));
    let tells = |code: &'static str| {
        move |snapshot: &api::model::Snapshot| snapshot.health.issues.iter().any(|issue| issue.code == code)
    };
    let (path, other) = (directory.path().join("disk-0"), directory.path().join("other"));
    std::fs::rename(&path, &other).expect("a rename");
    until_shown(&plane, "it was renamed", tells("disk_file_renamed"));
    std::fs::rename(&other, &path).expect("a rename");
    until_shown(&plane, "it is back", |snapshot| snapshot.health.health == Health::Healthy);
    std::fs::remove_file(&path).expect("the file goes");
    until_shown(&plane, "it was removed", tells("disk_file_removed"));
    drain(plane);
}

/// Data planes of two nodes that know each other, on one state.
/// The heartbeats of a node that nobody else has a say on, for as long as they are kept.
fn leased(node: u32) -> (Heartbeats, HeartbeatLink) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let options = Options {
        me: NodeId(node),
        incarnation: Incarnation(1),
        cluster: 1,
        key: HeartbeatKey::derive(b"secret"),
        timing: Timing::default(),
    };
    let turns = std::sync::atomic::AtomicU64::new(0);
    let surroundings = Surroundings {
        turns: Box::new(move || turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
        poke: Box::new(|| {}),
        wake: Box::new(|| {}),
    };
    let link = HeartbeatLink::default();
    let heartbeats = Heartbeats::start(options, socket, link.clone(), Some(&[]), surroundings);
    (heartbeats.expect("a thread"), link)
}

fn start_two(directory: &Path) -> ([DataPlane; 2], [(Heartbeats, HeartbeatLink); 2]) {
    let state = records::State::open(&directory.join("state.redb")).expect("a state");
    let certificates = trust::node_trust::fixture::TestCluster::new(2, records::clock::unix_now_s());
    let listeners = [1, 2].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().expect("an address"));
    let mut number = 0;
    let links = [1, 2].map(leased);
    let planes = listeners.map(|listener| {
        number += 1;
        let accounts = ::bus::NodeAccounts::default();
        accounts.set(certificates.trust(NodeId(number)), false);
        let options = ClusterOptions {
            node: NodeId(number),
            name: format!("node-{number}"),
            lease: Duration::from_millis(500),
            bus: ::bus::RemoteOptions { nodes: accounts.clone(), ..::bus::RemoteOptions::default() },
            heartbeats: links[number as usize - 1].1.clone(),
        };
        start_with(state.clone(), listener, Some(options), accounts)
    });
    for (at, plane) in planes.iter().enumerate() {
        let other = 1 - at;
        let peer = ::bus::Peer {
            node: NodeId(other as u32 + 1),
            name: format!("node-{}", other + 1),
            addresses: vec![addresses[other]],
            rdma: Vec::new(),
        };
        assert!(plane.control.send(ClusterCommand::Peers(vec![peer]).into()));
        tell_life(plane, &[(1, true), (2, true)]);
    }
    (planes, links)
}

fn tell_life(plane: &DataPlane, nodes: &[(u32, bool)]) {
    let life = |is_up| node::NodeLife { is_up, is_reached: true, takes_volumes: true, incarnation: None };
    let nodes = nodes.iter().map(|(node, is_up)| (NodeId(*node), life(*is_up))).collect();
    assert!(plane.control.send(ClusterCommand::Nodes(nodes).into()));
}

/// Asks again until it succeeds: the other node first has to read the record.
async fn insist<T, F: Future<Output = Result<T, CommandError>>>(mut ask: impl FnMut() -> F) -> T {
    let begun = std::time::Instant::now();
    loop {
        match ask().await {
            Ok(done) => return done,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn while_the_server_becomes_a_node_disks_and_volumes_are_not_changed_and_after_that_they_are_the_nodes() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = records::State::open(&directory.path().join("state.redb")).expect("a state");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let plane = start_with(state.clone(), listener, None, Default::default());
    let (_heartbeats, link) = leased(1);
    let control = &plane.control;
    let refused = |done: Result<VolumeId, CommandError>, kind| {
        let error = done.expect_err("it is refused");
        assert_eq!(error.kind, kind, "{error}");
    };
    runtime().block_on(async {
        let pool = make_pool(control, directory.path()).await;
        let (first, second) = tokio::join!(
            make_volume(control, pool, Resiliency::TwoWayMirror),
            control.call(|reply| ClusterCommand::ReadyToJoin { reply })
        );
        let volume = first.expect("a volume");
        assert_eq!(second.expect_err("a volume is being made").kind, CommandErrorKind::Conflict);
        control.call(|reply| ClusterCommand::ReadyToJoin { reply }).await.expect("nothing is being changed");
        refused(make_volume(control, pool, Resiliency::Simple).await, CommandErrorKind::Unavailable);
        assert!(control.send(ClusterCommand::Stay.into()));
        let delete = |reply| StorageCommand::DeleteVolume { volume, reply };
        control.call(delete).await.expect("it stayed a single server");

        control.call(|reply| ClusterCommand::ReadyToJoin { reply }).await.expect("nothing is being changed");
        node::adopt_records(&state, NodeId(1), "node-1").expect("the state");
        let options = ClusterOptions {
            node: NodeId(1),
            name: "node-1".into(),
            lease: Duration::from_millis(500),
            bus: ::bus::RemoteOptions::default(),
            heartbeats: link,
        };
        let join = |reply| ClusterCommand::Join { options: Box::new(options), reply };
        control.call(join).await.expect("it has a lease");
        tell_life(&plane, &[(1, true)]);
        let again = control.call(|reply| ClusterCommand::ReadyToJoin { reply }).await;
        assert_eq!(again.expect_err("it is a node").kind, CommandErrorKind::Conflict);
        let volume = insist(|| make_volume(control, pool, Resiliency::TwoWayMirror)).await;
        let found = state.read::<records::VolumeRecord>(&volume.to_string()).expect("the state");
        assert_eq!(found.expect("a record").value.owner, Some(NodeId(1)));
    });
    drain(plane);
}

#[test]
fn a_volume_has_its_copies_on_two_nodes_and_outlives_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let ([first, second], _leases) = start_two(directory.path());
    let mut disks = disks(directory.path(), 2);
    let far = disks.pop().expect("a disk");
    runtime().block_on(async {
        let create =
            |reply| StorageCommand::CreatePool { name: "pool".to_owned(), disks, reserve_disks: None, reply };
        let pool = first.control.call(create).await.expect("a pool");
        insist(|| second.control.call(|reply| DiskCommand::Add { pool, disk: far.clone(), reply })).await;
        insist(|| make_volume(&first.control, pool, Resiliency::TwoWayMirror)).await;
        let (reply, told) = tokio::sync::oneshot::channel();
        assert!(first.control.send(ClusterCommand::Bus { reply }.into()));
        let peers = told.await.expect("the peers");
        assert_eq!(peers[0].0.state, ::bus::PeerState::Ready, "{peers:?}");
        assert!(peers[0].0.counters.written_bytes > 0, "a copy is there: {peers:?}");
    });
    let is_whole = |snapshot: &api::model::Snapshot| snapshot.volumes[0].status == VolumeStatus::Ok;
    until_shown(&first, "the volume is served", is_whole);
    // The copy was written over the bus, which is no client.
    until_shown(&second, "no client asked anything of the second", |snapshot| {
        let performance = &snapshot.performance;
        let disks_were_written = performance.disk_write_bytes > 0;
        let of_clients =
            performance.write.operations + performance.write.bytes + performance.write.measured_operations;
        disks_were_written && of_clients == 0 && snapshot.clients.is_empty() && snapshot.shares.is_empty()
    });
    drain(second);
    tell_life(&first, &[(1, true), (2, false)]);
    until_shown(&first, "the copy is missed", |snapshot| !is_whole(snapshot));
    drain(first);
}
