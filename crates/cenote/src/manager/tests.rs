use super::*;
use crate::config::Config;
use crate::control::channel_with;
use api::ErrorKind;
use records::accounts::Accounts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod followed;

/// A manager over an empty state with the user `ann`, beside a data plane that takes its time.
struct Bench {
    manager: Arc<Manager>,
    runtime: tokio::runtime::Runtime,
    in_force: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let state = State::open(&place.path().join("state.redb")).unwrap();
        let key = Arc::new(SealKey::open_or_create(&place.path().join("secret.key")).unwrap());
        let (data, records, its_key) = (place.path().to_owned(), state.clone(), key.clone());
        Self::at(place, state, key, |control| no_cluster(&data, &records, &its_key, control))
    }

    /// A server of a cluster, over these records.
    fn over(state: State, key: Arc<SealKey>, cluster: Arc<dyn ClusterManagement>) -> Self {
        Self::at(tempfile::tempdir().unwrap(), state, key, |_| cluster)
    }

    fn at(
        place: tempfile::TempDir,
        state: State,
        key: Arc<SealKey>,
        cluster: impl FnOnce(&ControlHandle) -> Arc<dyn ClusterManagement>,
    ) -> Self {
        let accounts = Accounts::new(&state, &key);
        if accounts.users().unwrap().is_empty() {
            accounts.add_user("ann", "", "first password", &[], 1).unwrap();
        }
        let directory = SharedDirectory::new(load(&state, &key).unwrap());
        let audit = Arc::new(AuditLog::open(&place.path().join("audit.log")).unwrap());
        let (control, commands) = channel_with(Arc::new(|| {}));
        let in_force = Arc::new(AtomicBool::new(false));
        let done = in_force.clone();
        std::thread::spawn(move || {
            while let Ok(command) = commands.recv() {
                if let Command::DirectoryChanged { reply } = command {
                    std::thread::sleep(Duration::from_millis(50));
                    done.store(true, Ordering::SeqCst);
                    let _ = reply.send(Ok(()));
                }
            }
        });
        let in_effect = InEffect::new(Config::default());
        let cluster = cluster(&control);
        let manager = Arc::new(Manager::new(state, key, directory, control, audit, in_effect, cluster));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { manager, runtime, in_force, _directory: place }
    }

    fn hash_of_ann(&self) -> [u8; 16] {
        *self.manager.accounts.directory.current().user("ann").unwrap().nt_hash
    }
}

/// The cluster side of a single server.
fn no_cluster(
    data: &std::path::Path,
    state: &State,
    key: &Arc<SealKey>,
    control: &ControlHandle,
) -> Arc<dyn ClusterManagement> {
    let places = member::EnginePlaces {
        file: data.join("other.redb"),
        program: Default::default(),
        other: member::OtherEtcd::default(),
    };
    let (_, engine) = member::open_state(None, &places).unwrap();
    let server = crate::cluster_side::DaemonServer::new(
        data.to_owned(),
        crate::cluster_side::ServerParts {
            control: control.clone(),
            state: state.clone(),
            key: key.clone(),
            pulse: Default::default(),
            heartbeats: crate::cluster_side::Shared::default(),
            listen: None,
            bus_by_rdma: false,
            bus_channels: 0,
        },
    );
    let config = Config::default();
    let parts = member::ClusterParts {
        data: data.to_owned(),
        keys: config.cluster.keys("CENOTE", config.api.listen, None, uuid::Uuid::nil()),
        state: state.clone(),
        key: key.clone(),
        engine,
        server: Arc::new(server),
    };
    member::ClusterControl::new(parts, None).unwrap()
}

#[test]
fn a_change_is_answered_when_it_is_in_force() {
    let bench = Bench::new();
    bench.runtime.block_on(bench.manager.add_group(AddGroup { name: "staff".into() })).unwrap();
    assert!(bench.in_force.load(Ordering::SeqCst));
}

#[test]
fn what_was_changed_before_a_failure_is_in_force_too() {
    let bench = Bench::new();
    let before = bench.hash_of_ann();
    let change = bench.manager.change(|book| -> Result<(), ApiError> {
        book.accounts().set_password("ann", "second password", 2).map_err(refused)?;
        Err(ApiError::new(ErrorKind::Conflict, "the second step"))
    });
    assert!(bench.runtime.block_on(change).is_err());
    assert_ne!(bench.hash_of_ann(), before);
    assert!(bench.in_force.load(Ordering::SeqCst));
}

#[test]
fn health_tells_of_a_state_that_cannot_be_read_and_what_was_changed_is_in_force_when_it_can_again() {
    let bench = Bench::new();
    let path = bench._directory.path().join("state.redb");
    let place = path.clone();
    let before = bench.hash_of_ann();
    let kept = path.with_extension("kept");
    let (state, moved) = (bench.manager.accounts.state.clone(), kept.clone());
    let change = bench.manager.change(move |book| -> Result<(), ApiError> {
        book.accounts().set_password("ann", "second password", 2).map_err(refused)?;
        // The file fails right after the commit, before the directory is read.
        std::fs::rename(&path, &moved).unwrap();
        book.state.fail("no room");
        Ok(())
    });
    let refused = bench.runtime.block_on(change).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused:?}");
    assert_eq!(bench.hash_of_ann(), before);
    let mut report = api::model::HealthReport::default();
    bench.manager.tell_files(&mut report, true);
    assert_eq!(report.health, api::model::Health::Unhealthy);
    assert_eq!(report.issues[0].code, "cluster_state");
    assert_eq!(state.trouble().unwrap().place.to_string(), place.display().to_string());
    std::fs::rename(&kept, place).unwrap();
    bench.runtime.block_on(async {
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if !bench.manager.accounts.is_behind() {
                return;
            }
        }
        panic!("the directory does not catch up");
    });
    assert_ne!(bench.hash_of_ann(), before);
    let mut report = api::model::HealthReport::default();
    bench.manager.tell_files(&mut report, true);
    assert!(report.issues.is_empty());
}

#[test]
fn a_key_file_that_cannot_be_used_is_the_callers_fault() {
    let bench = Bench::new();
    let place = bench._directory.path();
    let import = |key: &str| {
        let request = ImportPool {
            key_file: Some(key.to_owned()),
            search: vec![place.display().to_string()],
            ..ImportPool::default()
        };
        let error = bench.runtime.block_on(bench.manager.import_pool(request)).unwrap_err();
        (error.kind, error.message)
    };
    let absent = place.join("absent.key").display().to_string();
    let (kind, message) = import(&absent);
    assert!(kind == ErrorKind::NotFound && message.contains(&absent), "{message}");
    let short = place.join("short.key");
    std::fs::write(&short, "short").unwrap();
    std::fs::set_permissions(&short, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (kind, message) = import(&short.display().to_string());
    assert!(kind == ErrorKind::Invalid && message.contains("bytes long"), "{message}");
    let (kind, message) = import(&place.display().to_string());
    assert!(kind == ErrorKind::Invalid, "a directory: {message}");
    let (kind, message) = import("secret.key");
    assert!(kind == ErrorKind::Invalid && message.contains("absolute path"), "{message}");
}
