//! Foundings that cannot complete, with a state in redb and a real etcd if there is one.

use super::*;
use etcd::{CarryError, EtcdState, Moved};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Prints its version, and does not run: as on a full disk, or without permission.
pub(super) const ENDS: &str =
    r#"if [ "$1" = --version ]; then echo "etcd Version: 3.4.23"; else echo no space >&2; exit 1; fi"#;
pub(super) const RUNS: &str = r#"exec etcd "$@""#;

/// A server whose state is in a file, and whose etcd is a script.
pub(super) struct Founder {
    pub server: Server,
    pub places: EnginePlaces,
}

impl Founder {
    pub(super) fn new(program: &str) -> Self {
        Self::named("node-1", program)
    }

    pub(super) fn named(name: &str, program: &str) -> Self {
        let server = Server::new(name);
        let data = server.data.path();
        let (file, script) = (data.join("state.redb"), data.join("etcd.sh"));
        let founder =
            Self { server, places: EnginePlaces { file, program: script, other: OtherEtcd::default() } };
        founder.has_program(program);
        founder
    }

    fn has_program(&self, program: &str) {
        let script = &self.places.program;
        std::fs::write(script, format!("#!/bin/sh\n{program}\n")).unwrap();
        std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) fn data(&self) -> &Path {
        self.server.data.path()
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        Identity::open(self.data()).unwrap()
    }

    pub(super) fn open(&self) -> Result<(State, Arc<dyn Engine>), EngineError> {
        open_state(self.identity().as_ref(), &self.places)
    }

    pub(super) fn control(&self, state: &State, engine: Arc<dyn Engine>) -> Arc<ClusterControl> {
        let uses_other_etcd = !self.places.other.endpoints.is_empty();
        let parts = ClusterParts {
            data: self.data().to_owned(),
            keys: ClusterKeys { uses_other_etcd, ..self.server.keys(Some(self.server.address())) },
            state: state.clone(),
            key: self.server.key.clone(),
            engine,
            server: self.server.rest.clone(),
        };
        ClusterControl::new(parts, self.identity()).unwrap()
    }

    fn stays(&self) -> usize {
        self.server.rest.stays.load(Ordering::SeqCst)
    }

    /// As if the server had died right after its identity was written.
    async fn dies_while_founding(&self, name: &str) {
        let (state, _) = self.open().unwrap();
        state.write(&disk(1, 1, DiskState::Healthy), 0).unwrap();
        let control = self.control(&state, Arc::new(NoEngine));
        control.create(CreateCluster { name: name.into() }).await.unwrap();
        assert!(self.identity().unwrap().is_founding());
    }

    /// Asserts the single server of before, with its disk on record and nothing of the founding.
    fn is_single(&self, state: &State, engine: &Arc<dyn Engine>) {
        assert!(self.identity().is_none());
        assert_eq!(
            (EtcdState::of(state).is_none(), engine.view(&Ok(Vec::new()), &[]).name),
            (true, "redb".into())
        );
        let keys: Vec<String> = state.dump().unwrap().entries.into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, [disk(1, 1, DiskState::Healthy).key()]);
        state.commit(records::Transaction::default()).unwrap();
    }
}

pub(super) fn create(
    control: &Arc<ClusterControl>,
    name: &str,
) -> impl Future<Output = Result<api::cluster::ClusterView, api::ApiError>> {
    let control = control.clone();
    let name = name.to_owned();
    async move { control.create(CreateCluster { name }).await }
}

pub(super) fn has_etcd() -> bool {
    let has = etcd::process::version_of(None).is_ok();
    if !has {
        eprintln!("left out: there is no etcd");
    }
    has
}

/// A cluster C in its own etcd, and a server configured with that as a foreign etcd.
pub(super) async fn with_anothers_etcd() -> (Founder, State, Arc<dyn Engine>, Founder) {
    let first = Founder::new(RUNS);
    let (state, engine) = first.open().unwrap();
    let control = first.control(&state, engine);
    create(&control, "C").await.unwrap();
    let engine = control.engine();
    let identity = first.identity().unwrap();
    let file = |name: &str| -> PathBuf { identity.directory.join(name) };
    let second = Founder::new(ENDS);
    let other = OtherEtcd {
        endpoints: identity.facts.endpoints.clone(),
        authority: file(crate::identity::AUTHORITY),
        certificate: file(crate::identity::CERTIFICATE),
        key: file(crate::identity::KEY),
    };
    let places = EnginePlaces { other, ..second.places.clone() };
    (first, state, engine, Founder { places, ..second })
}

#[tokio::test]
async fn etcd_that_does_not_run_leaves_the_single_server_and_the_next_founding_is_done() {
    let founder = Founder::new(ENDS);
    let (state, engine) = founder.open().unwrap();
    state.write(&disk(1, 1, DiskState::Healthy), 0).unwrap();
    let control = founder.control(&state, engine.clone());
    for tries in 1..=2 {
        let error = create(&control, "C").await.unwrap_err();
        assert!(
            error.message.contains("goes on as the single one") && error.message.contains("does not run"),
            "{error}"
        );
        assert_eq!(founder.stays(), tries);
        founder.is_single(&state, &engine);
        let told = tokio::time::timeout(Duration::from_millis(50), control.restart().notified_owned()).await;
        assert!(told.is_err(), "it serves on, and does not start again");
        // As an earlier founding may have left it.
        state.write(&Moved { cluster: "C".into() }, 0).unwrap();
    }
    if !has_etcd() {
        return;
    }
    founder.has_program(RUNS);
    let view = create(&control, "C").await.unwrap();
    assert_eq!((view.name.as_deref(), view.engine.name.as_str()), (Some("C"), "etcd"));
    assert!(EtcdState::of(&state).is_some() && !founder.identity().unwrap().is_founding());
    assert_eq!(state.list::<DiskRecord>().unwrap().len(), 1);
}

#[tokio::test]
async fn a_founding_behind_the_move_is_not_taken_back_and_is_not_told_to_be_done() {
    if !has_etcd() {
        return;
    }
    let founder = Founder::new(RUNS);
    let (state, engine) = founder.open().unwrap();
    state.write(&disk(1, 1, DiskState::Healthy), 0).unwrap();
    let control = founder.control(&state, engine);
    founder.server.rest.joins_not.store(true, Ordering::SeqCst);
    let restart = control.restart();
    let told = restart.notified();
    let error = create(&control, "C").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("not decided yet") && error.message.contains("cluster status"), "{error}");
    tokio::time::timeout(PATIENCE, told).await.expect("its parts start again");
    assert_eq!(founder.stays(), 0);
    drop((control, state));
    let (state, _engine) = founder.open().unwrap();
    assert!(EtcdState::of(&state).is_some() && founder.identity().is_some());
    assert_eq!(state.list::<DiskRecord>().unwrap().len(), 1);
}

#[tokio::test]
async fn a_start_while_founding_with_an_etcd_that_does_not_run_is_one_of_the_single_server() {
    let founder = Founder::new(ENDS);
    founder.dies_while_founding("C").await;
    let (state, engine) = founder.open().unwrap();
    founder.is_single(&state, &engine);
    drop((state, engine));
    let (state, engine) = founder.open().unwrap();
    founder.is_single(&state, &engine);
}

#[tokio::test]
async fn a_start_behind_the_beginning_of_the_move_does_not_take_the_founding_back() {
    let founder = Founder::new("exit 1");
    founder.dies_while_founding("C").await;
    let own = State::open(&founder.places.file).unwrap();
    own.write(&Moved { cluster: "C".into() }, 0).unwrap();
    drop(own);
    // etcd may have the records, and all that was acknowledged since.
    assert!(founder.open().is_err());
    assert!(founder.identity().unwrap().is_founding());
}

#[tokio::test]
async fn a_name_that_anothers_etcd_has_is_refused_and_nothing_is_changed() {
    if !has_etcd() {
        return;
    }
    let (_first, theirs, _engine, second) = with_anothers_etcd().await;
    let before = theirs.dump().unwrap().entries;
    let (state, engine) = second.open().unwrap();
    state.write(&disk(1, 1, DiskState::Healthy), 0).unwrap();
    let revision = state.revision();
    let control = second.control(&state, engine.clone());
    let error = create(&control, "C").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(
        error.message.contains("of this name already") && error.message.contains("choose another"),
        "{error}"
    );
    assert_eq!((state.revision(), second.stays()), (revision, 1));
    second.is_single(&state, &engine);
    assert_eq!(theirs.dump().unwrap().entries, before);
    // Another one is free, in the same etcd.
    create(&control, "D").await.unwrap();
    assert!(EtcdState::of(&state).is_some());
    assert_eq!(theirs.dump().unwrap().entries, before);
}

#[tokio::test]
async fn a_founder_never_takes_the_records_of_another_cluster_for_its_own() {
    if !has_etcd() {
        return;
    }
    let (_first, theirs, _engine, second) = with_anothers_etcd().await;
    let before = theirs.dump().unwrap().entries;
    for has_moved in [false, true] {
        let founder = Founder { places: second.places.clone(), server: Server::new("node-1") };
        let founder = Founder {
            places: EnginePlaces { file: founder.data().join("state.redb"), ..founder.places.clone() },
            ..founder
        };
        founder.dies_while_founding("C").await;
        if has_moved {
            State::open(&founder.places.file).unwrap().write(&Moved { cluster: "C".into() }, 0).unwrap();
        }
        let (state, engine) = founder.open().unwrap();
        founder.is_single(&state, &engine);
        assert_eq!(theirs.dump().unwrap().entries, before);
        drop((state, engine));
        // After the founding it cannot be undone: the server reports that, and writes nothing.
        let (state, _) = founder.open().unwrap();
        let control = founder.control(&state, Arc::new(NoEngine));
        create(&control, "C").await.unwrap();
        drop((state, control));
        founder.identity().unwrap().end_founding().unwrap();
        let refused = founder.open().err().unwrap();
        assert!(matches!(refused, EngineError::Carry(CarryError::Exists(_))), "{refused}");
        assert!(founder.identity().is_some());
        assert_eq!(theirs.dump().unwrap().entries, before);
    }
}
