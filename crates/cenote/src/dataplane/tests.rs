//! The whole data plane over files: commands in, volumes kept across a start.

use super::*;
use crate::control::{ControlHandle, NewDisk, NewVolume, SmbPolicy};
use crate::directory::{Directory, SharedDirectory};
use api::model::{Health, Provisioning, Resiliency, VolumeStatus};
use cluster::FaultDomain;
use std::net::TcpListener;
use std::path::Path;
use types::Sid;

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
        .call(|reply| Command::CreatePool { name: "pool".to_owned(), disks, reserve_disks: None, reply })
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
    control.call(|reply| Command::CreateVolume { volume, reply }).await
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
            .call(|reply| Command::CreatePool {
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
