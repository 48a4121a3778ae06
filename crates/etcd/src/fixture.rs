//! etcd for tests: real members on loopback addresses, and a door before them that loses messages on
//! demand.

use super::process::{EtcdProcess, EtcdProcessOptions, EtcdStart, TlsFiles, free_ports};
use super::{EtcdOptions, EtcdState, TlsIdentity};
use records::{BlockingState, Request, StateDump};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Address on which tests listen.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 26, 1));

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn options(directory: &std::path::Path, name: &str, tls: Option<TlsFiles>) -> EtcdProcessOptions {
    let (peer, client) = free_ports(ADDRESS).expect("ports");
    EtcdProcessOptions {
        program: None,
        directory: directory.join(name),
        name: name.to_owned(),
        peer: SocketAddr::new(ADDRESS, peer),
        client: SocketAddr::new(ADDRESS, client),
        tls,
        token: "test".into(),
        start: EtcdStart::New { members: Vec::new() },
        quota_bytes: EtcdProcessOptions::QUOTA_BYTES,
    }
}

/// An authority and one certificate of it for the address of all tests, as files for etcd and as an identity for clients.
pub(crate) fn certificates(directory: &std::path::Path) -> (TlsFiles, TlsIdentity) {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    };
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().expect("a key");
    let ca_pem = ca.self_signed(&ca_key).expect("a certificate").pem();
    let issuer = Issuer::new(ca, ca_key);
    let mut node = CertificateParams::default();
    node.subject_alt_names = vec![SanType::IpAddress(ADDRESS)];
    node.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let pem = node.signed_by(&key, &issuer).expect("a certificate").pem();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let files = TlsFiles {
        ca: file("ca.pem", &ca_pem),
        certificate: file("node.pem", &pem),
        key: file("node.key", &key.serialize_pem()),
        revoked: None,
    };
    let identity = TlsIdentity {
        ca_pem: ca_pem.into_bytes(),
        certificate_pem: pem.into_bytes(),
        key_pem: key.serialize_pem().into_bytes().into(),
    };
    (files, identity)
}

/// One etcd.
pub(crate) struct One {
    _directory: tempfile::TempDir,
    pub options: EtcdProcessOptions,
    pub process: Option<EtcdProcess>,
}

impl One {
    /// `None`, with a word, on a machine without etcd.
    pub fn start() -> Option<Self> {
        if let Err(why) = super::process::version_of(None) {
            eprintln!("left out: {why}");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let mut options = options(directory.path(), "one", None);
        options.start = EtcdStart::New { members: vec![("one".into(), options.peer_url())] };
        let process = Some(EtcdProcess::start(options.clone()).expect("etcd"));
        Some(Self { _directory: directory, options, process })
    }

    pub fn client_options(&self) -> EtcdOptions {
        let mut options = EtcdOptions::new("test", vec![self.options.client_url()], None);
        options.deadline = Duration::from_secs(5);
        options
    }

    /// The state of a cluster that has no records.
    pub fn state(&self) -> EtcdState {
        let state = EtcdState::connect(self.client_options()).expect("options");
        form(&state, StateDump::default());
        state
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn restart(&mut self) {
        self.process = Some(EtcdProcess::start(self.options.clone()).expect("etcd"));
    }
}

/// Forms a cluster as soon as etcd answers.
pub(crate) fn form(state: &EtcdState, dump: StateDump) {
    until("etcd answers", || state.is_formed().is_ok());
    state.form(dump).expect("a cluster");
    until("the state answers", || state.call(Request::Get { key: "x".into() }).is_ok());
}

/// Treatment of bytes by the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Requests pass, answers are lost.
    LoseAnswers,
    /// Nothing passes.
    LoseAll,
    /// Each piece is late.
    Delay,
    /// Connections are cut, and new ones refused.
    Cut,
}

/// A TCP door before etcd. A connection on which bytes were lost is cut when the mode changes, as a real one would break.
pub(crate) struct Door {
    pub address: SocketAddr,
    mode: Arc<AtomicU8>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    pub accepted: Arc<AtomicU32>,
}

impl Door {
    pub fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (mode, connections) =
            (Arc::new(AtomicU8::new(Mode::Pass as u8)), Arc::new(Mutex::new(Vec::new())));
        let accepted = Arc::new(AtomicU32::new(0));
        let door = Self {
            address,
            mode: mode.clone(),
            connections: connections.clone(),
            accepted: accepted.clone(),
        };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if mode.load(Ordering::SeqCst) == Mode::Cut as u8 {
                    continue;
                }
                let Ok(server) = TcpStream::connect(target) else { continue };
                accepted.fetch_add(1, Ordering::SeqCst);
                let mut all = connections.lock().expect("the list");
                all.extend([client.try_clone().expect("a socket"), server.try_clone().expect("a socket")]);
                let (from, to) =
                    (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                let of_requests = mode.clone();
                std::thread::spawn(move || carry(from, to, &of_requests, false));
                let of_answers = mode.clone();
                std::thread::spawn(move || carry(server, client, &of_answers, true));
            }
        });
        door
    }

    pub fn set(&self, mode: Mode) {
        let before = self.mode.swap(mode as u8, Ordering::SeqCst);
        let lost = [Mode::LoseAnswers as u8, Mode::LoseAll as u8];
        if lost.contains(&before) || mode == Mode::Cut {
            for connection in self.connections.lock().expect("the list").drain(..) {
                let _ = connection.shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, mode: &AtomicU8, is_answer: bool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mode = mode.load(Ordering::SeqCst);
        if mode == Mode::LoseAll as u8 || (mode == Mode::LoseAnswers as u8 && is_answer) {
            continue;
        }
        if mode == Mode::Delay as u8 {
            std::thread::sleep(Duration::from_millis(30));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
