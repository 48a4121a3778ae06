//! Messages of `cenote smb put` and `get` for small files, seen by a relay that counts messages and cuts connections.

use crate::cli::smb;
use crate::fixture::Server;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A way to a server on which messages of clients are counted.
struct Relay {
    port: u16,
    messages: Arc<AtomicU64>,
    /// Number of the message at which the connection is cut; 0: none.
    cut_at: Arc<AtomicU64>,
}

impl Relay {
    /// Makes a relay. `cut_after`: the server gets the message before the connection is cut.
    fn to(server: &Server, cut_after: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = Self { port, messages: Arc::default(), cut_at: Arc::default() };
        let (messages, cut_at, smb_port) = (relay.messages.clone(), relay.cut_at.clone(), server.smb_port);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect(("127.0.0.1", smb_port)).unwrap();
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (messages, cut_at) = (messages.clone(), cut_at.clone());
                std::thread::spawn(move || carry(client, server, &messages, &cut_at, cut_after));
            }
        });
        relay
    }

    fn place(&self) -> String {
        format!("smb://127.0.0.1:{}/demo", self.port)
    }

    fn put(&self, here: &Path, words: &[&str]) -> Output {
        smb(here, &[&["put"], words, &[&self.place(), "--transport", "tcp"]].concat())
    }

    /// Counts messages of this put, which succeeds.
    fn count(&self, here: &Path, words: &[&str]) -> u64 {
        let before = self.messages.load(Ordering::SeqCst);
        self.done(self.put(here, words), before)
    }

    /// Counts messages of a get of this tree, which succeeds.
    fn count_got(&self, here: &Path, tree: &str) -> u64 {
        let before = self.messages.load(Ordering::SeqCst);
        let (from, to) = (format!("{}/{tree}", self.place()), format!("back-{tree}"));
        self.done(smb(here, &["get", "-r", &from, &to, "--transport", "tcp"]), before)
    }

    fn done(&self, output: Output, before: u64) -> u64 {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.messages.load(Ordering::SeqCst) - before
    }
}

fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    messages: &AtomicU64,
    cut_at: &AtomicU64,
    cut_after: bool,
) {
    let mut message = vec![0; 4];
    while client.read_exact(&mut message[..4]).is_ok() {
        let len = u32::from_be_bytes(message[..4].try_into().unwrap()) as usize;
        message.resize(4 + len, 0);
        if client.read_exact(&mut message[4..]).is_err() {
            break;
        }
        let is_cut = messages.fetch_add(1, Ordering::SeqCst) + 1 == cut_at.load(Ordering::SeqCst);
        if is_cut && !cut_after {
            break;
        }
        if server.write_all(&message).is_err() || is_cut {
            break;
        }
    }
    // The server may carry out requests that it has; its answer does not arrive.
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Write);
}

fn files(here: &Path, name: &str, count: usize, len: usize) {
    fs::create_dir(here.join(name)).unwrap();
    for number in 0..count {
        fs::write(here.join(name).join(format!("{number}")), vec![number as u8; len]).unwrap();
    }
}

#[test]
fn a_small_file_takes_one_message_either_way_and_three_if_it_takes_anothers_place() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let relay = Relay::to(&server, false);
    for len in [0, 1, 1000, 64 << 10] {
        let (few, many) = (format!("few-{len}"), format!("many-{len}"));
        files(here, &few, 3, len);
        files(here, &many, 13, len);
        for want in [1, 3] {
            let base = relay.count(here, &["-r", &few]);
            assert_eq!(relay.count(here, &["-r", &many]) - base, 10 * want, "{len} bytes");
        }
        let base = relay.count_got(here, &few);
        assert_eq!(relay.count_got(here, &many) - base, 10, "{len} bytes");
        for number in 0..13 {
            let path = |top: &str| here.join(format!("{top}{many}/{number}"));
            assert!(fs::read(path("back-")).unwrap() == fs::read(path("")).unwrap(), "{len} bytes");
        }
    }
}

/// Names and sizes in the directory of the share, once nothing unfinished is there.
fn list_finished(server: &Server, here: &Path) -> Vec<(String, u64)> {
    let place = format!("smb://127.0.0.1:{}/demo/some", server.smb_port);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let output = smb(here, &["ls", &place, "--transport", "tcp", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let listed: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        let found: Vec<(String, u64)> = listed
            .iter()
            .map(|file| (file["name"].as_str().unwrap().to_owned(), file["size_bytes"].as_u64().unwrap()))
            .collect();
        if found.iter().all(|(name, _)| !name.ends_with(".part")) {
            return found;
        }
        assert!(Instant::now() < until, "something unfinished stays: {found:?}");
    }
}

#[test]
fn small_files_arrive_whole_and_leave_nothing_else_wherever_the_connection_is_cut() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    for cut_after in [false, true] {
        let relay = Relay::to(&server, cut_after);
        files(here, "some", 3, 500);
        // As it is when all of it is there already, which takes most messages.
        relay.count(here, &["-r", "some"]);
        let whole = relay.count(here, &["-r", "some"]);
        let mut complete = 0;
        for cut in 1..=whole {
            let (old, new) = (499 + cut, 500 + cut);
            for number in 0..3 {
                fs::write(here.join(format!("some/{number}")), vec![7; new as usize]).unwrap();
            }
            let cut_at = relay.messages.load(Ordering::SeqCst) + cut;
            relay.cut_at.store(cut_at, Ordering::SeqCst);
            let output = relay.put(here, &["-r", "some"]);
            assert!(relay.messages.load(Ordering::SeqCst) >= cut_at, "message {cut} was not cut");
            let found = list_finished(&server, here);
            let is_whole = |(_, len): &(String, u64)| *len == new || *len == old;
            assert!(found.len() == 3 && found.iter().all(is_whole), "message {cut}: {found:?}");
            if output.status.success() {
                assert!(found.iter().all(|(_, len)| *len == new), "message {cut}: {found:?}");
                complete += 1;
            } else {
                relay.count(here, &["-r", "some"]);
            }
        }
        // Both messages of each file are asked again, in another way.
        assert!(complete >= 6, "{complete} of {whole} puts went on");
        fs::remove_dir_all(here.join("some")).unwrap();
    }
}

#[test]
fn new_small_files_are_whole_or_not_there_wherever_the_connection_is_cut() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let share = format!("smb://127.0.0.1:{}/demo/some", server.smb_port);
    let remove = || smb(here, &["rm", "-r", &share, "--yes", "some", "--transport", "tcp"]);
    files(here, "some", 3, 500);
    for cut_after in [false, true] {
        let relay = Relay::to(&server, cut_after);
        let whole = relay.count(here, &["-r", "some"]);
        let mut complete = 0;
        for cut in 1..=whole {
            assert!(remove().status.success());
            let cut_at = relay.messages.load(Ordering::SeqCst) + cut;
            relay.cut_at.store(cut_at, Ordering::SeqCst);
            let is_done = relay.put(here, &["-r", "some"]).status.success();
            complete += u64::from(is_done);
            if is_done {
                let found = list_finished(&server, here);
                let is_whole = |(_, len): &(String, u64)| *len == 500;
                assert!(found.len() == 3 && found.iter().all(is_whole), "message {cut}: {found:?}");
            } else {
                relay.count(here, &["-r", "some"]);
            }
        }
        // The one message of each file is asked again, in another way, and so are those of their directory.
        assert!(complete >= 4, "{complete} of {whole} puts went on");
    }
}

#[test]
fn a_small_file_of_which_the_server_refuses_a_part_is_named_and_not_there() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    server.cenote(&["quota", "set", "demo", "--mode", "enforce"]);
    server.cenote(&["quota", "set", "demo", "ana", "--limit", "300KiB"]);
    let until = Instant::now() + Duration::from_secs(30);
    while server.cenote(&["quota", "list", "demo"]).contains("counted") {
        assert!(Instant::now() < until, "the volume is not counted");
        std::thread::sleep(Duration::from_millis(50));
    }
    files(here, "some", 12, 60_000);
    let place = format!("smb://127.0.0.1:{}/demo", server.smb_port);
    let output = smb(here, &["put", "-r", "some", &place, "--transport", "tcp"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    let found = list_finished(&server, here);
    assert!((1..=4).contains(&found.len()), "{found:?}");
    for number in 0..12 {
        let file = found.iter().find(|(name, _)| *name == number.to_string());
        let is_named = text.contains(&format!("some/{number}: "));
        assert!(is_named != file.is_some_and(|(_, len)| *len == 60_000), "{number}: {found:?}: {text}");
    }
}
