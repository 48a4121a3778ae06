//! The whole data plane over files: commands in, volumes kept across a start.

use super::*;
use crate::control::{CommandErrorKind, ControlHandle, NewDisk, NewVolume, SmbPolicy, StorageCommand};
use crate::directory::{Directory, SharedDirectory};
use crate::logon_lines::LogonLines;
use api::model::{Health, Provisioning, Resiliency, VolumeStatus};
use cluster::{FaultDomain, Typed};
use std::net::TcpListener;
use std::path::Path;
use types::{PoolId, Sid, VolumeId};

const PATIENCE: Duration = Duration::from_secs(30);

fn start_in(directory: &Path) -> DataPlane {
    let path = directory.join("state.redb");
    // The thread that served the state for an earlier data plane may need a moment to let go of the file.
    let state = (0..500).find_map(|_| {
        let opened = RedbState::open(&path).ok();
        if opened.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        opened
    });
    let state = state.expect("a state");
    let domain = Sid::new(5, &[21, 1, 2, 3]).expect("a domain");
    let accounts = Directory::new(domain, Vec::new(), Vec::new(), Vec::new());
    start(DataPlaneOptions {
        smb_listeners: vec![TcpListener::bind("127.0.0.1:0").expect("a port")],
        rdma_listeners: Vec::new(),
        rdma_devices: Default::default(),
        state: Arc::new(state),
        disk_paths: Vec::new(),
        server_guid: [7; 16],
        smb: SmbPolicy { server_name: "TEST".to_owned(), ..SmbPolicy::default() },
        limits: Limits { cache_bytes: 16 << 20, ..Limits::default() },
        directory: SharedDirectory::new(accounts),
        logon_lines: LogonLines::nowhere(),
        pulse: Default::default(),
    })
    .expect("a data plane")
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
    let snapshot = runtime().block_on(plane.control.snapshot()).expect("a snapshot");
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
        let snapshot = plane.control.snapshot().await.expect("a snapshot");
        assert_eq!((snapshot.pools.len(), snapshot.health.health), (1, Health::Healthy));
    });
    drain(plane);
}

/// Damages what the disk holds of the volume's superblocks.
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

/// Looks until something is so.
fn until_shown(plane: &DataPlane, what: &str, mut shown: impl FnMut(&api::model::Snapshot) -> bool) {
    let begun = std::time::Instant::now();
    loop {
        let snapshot = runtime().block_on(plane.control.snapshot()).expect("a snapshot");
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
        disk.counters.repaired_blocks
    };
    // The opening of the volume finds the damage; the next start has nothing to find.
    for round in ["found", "known"] {
        let plane = start_in(directory.path());
        until_shown(&plane, round, |snapshot| repaired(snapshot) > 0);
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
    {
        let path = directory.path().join("state.redb");
        let state = (0..500).find_map(|_| {
            RedbState::open(&path).ok().or_else(|| {
                std::thread::sleep(Duration::from_millis(20));
                None
            })
        });
        let lost = cluster::LostBlocks { volume, since_unix_s: 77, ranges: vec![(50_000, 2)] };
        state.expect("the state").write(&lost, 0).expect("a record");
    }
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
