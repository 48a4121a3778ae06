use super::*;
use crate::state::tests::state;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

#[test]
fn passwords_are_long_and_differ() {
    let (one, two) = (password().unwrap(), password().unwrap());
    assert_eq!(one.len(), 24);
    assert_ne!(one, two);
}

#[test]
fn a_fleet_that_is_made_in_part_says_how_it_goes() {
    let why = half_made(Failure::new("node-2: connection lost"), Path::new("/srv/fleet"), "load");
    assert!(why.message.starts_with("node-2: connection lost"), "{why}");
    assert!(why.message.contains("fleet --fleet /srv/fleet remove --yes load"), "{why}");
}

/// Servers of a cluster, of which one connection is lost behind the request with this number: it was carried out, and nobody hears of it.
#[derive(Default)]
struct Servers {
    users: RefCell<BTreeMap<String, String>>,
    volumes: RefCell<BTreeMap<String, (Resiliency, u64)>>,
    shares: RefCell<BTreeMap<String, String>>,
    requests: Cell<u32>,
    lost_at: Cell<u32>,
}

impl Servers {
    fn done<T>(&self, answer: Result<T, String>) -> Result<T, String> {
        self.requests.set(self.requests.get() + 1);
        if self.requests.get() == self.lost_at.get() { Err("connection lost".into()) } else { answer }
    }

    fn create<T>(&self, all: &RefCell<BTreeMap<String, T>>, name: &str, made: T) -> Result<(), String> {
        let is_new = all.borrow_mut().insert(name.to_owned(), made).is_none();
        self.done(if is_new { Ok(()) } else { Err(format!("'{name}' is there already")) })
    }
}

impl Maker for &Servers {
    fn demand_free(&self, user: Option<&str>, volume: &str) -> Result<(), String> {
        let is_taken = user.is_some_and(|user| self.users.borrow().contains_key(user))
            || self.volumes.borrow().contains_key(volume)
            || self.shares.borrow().contains_key(volume);
        self.done(if is_taken { Err("it is taken".into()) } else { Ok(()) })
    }

    fn has_user(&self, name: &str) -> Result<bool, String> {
        self.done(Ok(self.users.borrow().contains_key(name)))
    }

    fn create_user(&self, name: &str, password: &str) -> Result<(), String> {
        self.create(&self.users, name, password.to_owned())
    }

    fn set_password(&self, user: &str, password: &str) -> Result<(), String> {
        self.users.borrow_mut().insert(user.to_owned(), password.to_owned());
        self.done(Ok(()))
    }

    fn volume(&self, name: &str) -> Result<Option<(Resiliency, u64)>, String> {
        self.done(Ok(self.volumes.borrow().get(name).copied()))
    }

    fn create_volume(&self, name: &str, size_bytes: u64, resiliency: Resiliency) -> Result<(), String> {
        self.create(&self.volumes, name, (resiliency, size_bytes))
    }

    fn shared(&self, name: &str) -> Result<Option<String>, String> {
        self.done(Ok(self.shares.borrow().get(name).cloned()))
    }

    fn create_share(&self, name: &str, volume: &str, _: &str) -> Result<(), String> {
        self.create(&self.shares, name, volume.to_owned())
    }
}

/// A requested fleet of two nodes of a cluster.
fn asked() -> State {
    let mut state = state();
    for node in &mut state.nodes {
        (node.volume, node.share) = (None, String::new());
    }
    let making = Some(Making { resiliency: Resiliency::TwoWayMirror, share: None });
    State { is_cluster: true, making, ..state }
}

#[test]
fn a_making_that_is_interrupted_at_any_step_goes_on_and_makes_everything_once() {
    let mut lost_at = 1;
    loop {
        let (directory, servers) = (tempfile::tempdir().unwrap(), Servers::default());
        servers.lost_at.set(lost_at);
        let first = make(directory.path(), &mut asked(), None, |_| Ok(&servers));
        if first.is_ok() {
            break;
        }
        let mut state = State::load(directory.path()).unwrap_or_else(|_| asked());
        assert_eq!(differences(&state, &asked()), Vec::<String>::new(), "request {lost_at}");
        make(directory.path(), &mut state, None, |_| Ok(&servers)).unwrap();
        let credentials = fs::read_to_string(directory.path().join(CREDENTIALS_FILE)).unwrap();
        let password = password_of(&credentials).unwrap();
        assert_eq!(*servers.users.borrow(), BTreeMap::from([("fleet".to_owned(), password)]));
        let names = ["fleet-one", "fleet-two"];
        assert!(servers.volumes.borrow().keys().eq(&names), "request {lost_at}");
        assert!(servers.shares.borrow().keys().eq(&names), "request {lost_at}");
        let described = State::load(directory.path()).unwrap();
        assert!(described.nodes.iter().map(|node| node.volume.as_deref().unwrap()).eq(names));
        lost_at += 1;
    }
    assert!(lost_at > 7, "requests of two nodes: {lost_at}");
}

#[test]
fn what_is_there_with_other_parameters_is_refused_with_the_difference() {
    let (directory, servers) = (tempfile::tempdir().unwrap(), Servers::default());
    make(directory.path(), &mut asked(), None, |_| Ok(&servers)).unwrap();
    let begun = State::load(directory.path()).unwrap();
    let other = State { workers_per_node: 8, qos: 5, nodes: asked().nodes[..1].to_vec(), ..asked() };
    let why = demand_same(&begun, &other, directory.path()).unwrap_err().message;
    for difference in ["workers_per_node was 44, and is 8", "qos was 0, and is 5", "node two was {"] {
        assert!(why.contains(difference), "{difference}: {why}");
    }
    assert!(!why.contains("node one") && !why.contains("volume"), "{why}");
    servers.volumes.borrow_mut().insert("fleet-two".into(), (Resiliency::ThreeWayMirror, 1 << 40));
    let why = make(directory.path(), &mut begun.clone(), None, |_| Ok(&servers)).unwrap_err().message;
    assert!(why.contains("1.00 TiB and 3 copies") && why.contains("952 MiB and 2"), "{why}");
    assert!(matches!(State::load_made(directory.path()), Err(StateError::Unfinished(_))));
}
