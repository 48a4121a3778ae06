//! `cenote smb`, as people type it.

use crate::fixture::{PASSWORD, Server, pattern};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// Runs `cenote smb ...` as ana; the password comes from the environment.
pub fn smb(directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("smb")
        .args(words)
        .current_dir(directory)
        .env("CENOTE_SMB_USER", "ana")
        .env("CENOTE_SMB_PASSWORD", PASSWORD)
        .output()
        .unwrap()
}

/// Starts the same, and does not wait.
fn begin(directory: &Path, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("smb")
        .args(words)
        .current_dir(directory)
        .env("CENOTE_SMB_USER", "ana")
        .env("CENOTE_SMB_PASSWORD", PASSWORD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn done(directory: &Path, words: &[&str]) -> String {
    let output = smb(directory, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    said(&output)
}

/// Whole seconds since 1970 in which it was written.
fn written(path: &Path) -> u64 {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn set_written(path: &Path, unix_s: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(unix_s);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// All files and directories below, from there.
fn tree(top: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            found.insert(entry.path().strip_prefix(top).unwrap().to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            }
        }
    }
    found
}

/// A server, a directory to work in, and the share's address.
fn started() -> (Server, TempDir, String) {
    let server = Server::start();
    let place = format!("smb://127.0.0.1:{}/demo", server.smb_port);
    (server, tempfile::tempdir().unwrap(), place)
}

/// Names in a directory of the share.
fn listed(here: &Path, place: &str) -> Vec<String> {
    let text = done(here, &["ls", place, "--transport", "tcp", "--json"]);
    let files: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    files.iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn files_go_there_and_back_over_either_transport() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let data = pattern(5, 3_000_001);
    std::fs::write(here.join("data.bin"), &data).unwrap();
    let rdma_port = server.rdma_port.to_string();
    let tcp = format!("smb://127.0.0.1:{}/demo", server.smb_port);
    let direct = format!("smb://127.0.0.1:{}/demo", server.rdma_port);
    for (place, words, transport) in [
        (tcp.as_str(), vec!["--transport", "tcp"], "TCP"),
        (direct.as_str(), vec!["--transport", "rdma", "--channels", "2"], "SMB Direct"),
        (tcp.as_str(), vec!["--rdma-port", rdma_port.as_str()], "SMB Direct"),
        (tcp.as_str(), vec!["--rdma-port", "1"], "TCP"),
        (direct.as_str(), vec!["--transport", "rdma", "--sign"], "SMB Direct"),
        (tcp.as_str(), vec!["--transport", "tcp", "--seal"], "TCP"),
    ] {
        // To the share's root the file keeps its name.
        let put = smb(here, &[&["put", "data.bin", place][..], words.as_slice()].concat());
        assert!(put.status.success() && said(&put).contains(&format!("over {transport}")), "{}", said(&put));
        let from = format!("{place}/data.bin");
        let get = smb(here, &[&["get", from.as_str(), "back.bin"][..], words.as_slice()].concat());
        assert!(get.status.success(), "{}", said(&get));
        assert!(std::fs::read(here.join("back.bin")).unwrap() == data);
    }
    let list = said(&smb(here, &["ls", &tcp, "--transport", "tcp"]));
    assert!(list.contains("data.bin") && list.contains("2.86 MiB"), "{list}");
    let stat = said(&smb(here, &["stat", &format!("{tcp}/data.bin"), "--transport", "tcp", "--json"]));
    assert!(stat.contains("\"size_bytes\": 3000001"), "{stat}");
}

#[test]
fn what_cannot_be_is_said_and_leaves_nothing_behind() {
    let (_server, directory, place) = started();
    let here = directory.path();
    let refused = |words: &[&str], why: &str| {
        let output = smb(here, words);
        assert!(!output.status.success(), "{words:?} was done");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    };
    let tcp = ["--transport", "tcp"];
    refused(
        &["get", &format!("{place}/nothing"), tcp[0], tcp[1]],
        "there is no file or directory of that name (STATUS_OBJECT_NAME_NOT_FOUND)",
    );
    refused(&["get", &place, tcp[0], tcp[1]], "names no file");
    refused(&["put", "missing", &place, tcp[0], tcp[1]], "missing");
    refused(&["put", ".", &place, tcp[0], tcp[1]], "is a directory: --recursive");
    refused(&["ls", "filer/demo"], "//SERVER/SHARE/PATH");
    refused(&["ls", "smb://ana:secret@filer/demo"], "command line");
    refused(
        &["ls", &place.replace("/demo", "/none"), tcp[0], tcp[1]],
        "the server has no share of that name",
    );
    refused(&["ls", &place, "--channels", "33"], "1 to 32");
    std::fs::write(here.join("credentials"), "username=ana\npassword=wrong\n").unwrap();
    std::fs::set_permissions(here.join("credentials"), Permissions::from_mode(0o600)).unwrap();
    refused(
        &["ls", &place, tcp[0], tcp[1], "--credentials", "credentials"],
        "user name or password is wrong",
    );
    std::fs::write(here.join("credentials"), "ana\n").unwrap();
    refused(&["ls", &place, "--credentials", "credentials"], "line 1");
    let left: Vec<_> = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["credentials"]);
}

#[test]
fn a_tree_goes_there_and_back_with_its_times() {
    let (_server, directory, place) = started();
    let here = directory.path();
    fs::create_dir_all(here.join("top/a/b/c")).unwrap();
    fs::create_dir(here.join("top/empty")).unwrap();
    let data = pattern(9, 2_500_000);
    fs::write(here.join("top/large"), &data).unwrap();
    fs::write(here.join("top/a/b/c/none"), "").unwrap();
    fs::write(here.join("top/a/größe ü.txt"), "x").unwrap();
    set_written(&here.join("top/large"), 1_000_000_007);
    set_written(&here.join("top/a/größe ü.txt"), 86_400);
    set_written(&here.join("top/a/b"), 1_111_111_111);
    set_written(&here.join("top"), 1_222_222_222);

    let text = done(here, &["put", "-r", "top", &place, "--transport", "tcp"]);
    assert!(text.contains("3 files, 5 directories"), "{text}");
    let stat = done(here, &["stat", &format!("{place}/top/large"), "--transport", "tcp", "--json"]);
    assert!(stat.contains("\"written_unix_s\": 1000000007"), "{stat}");
    // A second time it is replaced where it is, not put below.
    done(here, &["put", "--recursive", "top", &place, "--transport", "tcp"]);
    done(here, &["get", "-r", &format!("{place}/top"), "back", "--transport", "tcp"]);
    assert_eq!(tree(&here.join("back")), tree(&here.join("top")));
    assert!(fs::read(here.join("back/large")).unwrap() == data);
    for path in ["large", "a/größe ü.txt", "a/b", "."] {
        assert_eq!(written(&here.join("back").join(path)), written(&here.join("top").join(path)), "{path}");
    }
    // In an existing directory it gets its own name; a share's copy gets the share's.
    fs::create_dir(here.join("shelf")).unwrap();
    done(here, &["get", "-r", &place, "shelf", "--transport", "tcp"]);
    assert!(here.join("shelf/demo/top/a/b/c/none").is_file());

    let refused = smb(here, &["rm", &format!("{place}/top"), "--transport", "tcp"]);
    assert!(said(&refused).contains("the directory is not empty"), "{}", said(&refused));
    let refused = smb(here, &["rm", "-r", &format!("{place}/top"), "--transport", "tcp"]);
    assert!(said(&refused).contains("needs --yes 'top'"), "{}", said(&refused));
    let refused = smb(here, &["rm", "-r", &place, "--transport", "tcp", "--yes", "demo"]);
    assert!(said(&refused).contains("root"), "{}", said(&refused));
    let text = done(here, &["rm", "-r", &format!("{place}/top"), "--yes", "top", "--transport", "tcp"]);
    assert!(text.contains("3 files, 5 directories"), "{text}");
    assert_eq!(listed(here, &place), [""; 0]);
}

#[test]
fn directories_are_made_with_those_above_them_if_asked() {
    let (_server, directory, place) = started();
    let here = directory.path();
    let refused = smb(here, &["mkdir", &format!("{place}/a/b"), "--transport", "tcp"]);
    assert!(said(&refused).contains("a directory on the way does not exist"), "{}", said(&refused));
    for _ in 0..2 {
        done(here, &["mkdir", "-p", &format!("{place}/a/b"), "--transport", "tcp"]);
    }
    let refused = smb(here, &["mkdir", &format!("{place}/a/b"), "--transport", "tcp"]);
    assert!(said(&refused).contains("something of that name already"), "{}", said(&refused));
    done(here, &["rm", &format!("{place}/a/b"), "--transport", "tcp"]);
    fs::write(here.join("file"), "x").unwrap();
    done(here, &["put", "file", &format!("{place}/a"), "--transport", "tcp"]);
    let refused = smb(here, &["mkdir", "-p", &format!("{place}/a/file/c"), "--transport", "tcp"]);
    assert!(!refused.status.success(), "{}", said(&refused));
    done(here, &["rm", &format!("{place}/a/file"), "--transport", "tcp"]);
}

#[test]
fn names_that_differ_by_case_only_are_not_merged_and_what_cannot_be_copied_is_told() {
    let (_server, directory, place) = started();
    let here = directory.path();
    fs::create_dir_all(here.join("top/Dir")).unwrap();
    fs::create_dir(here.join("top/dir")).unwrap();
    for (name, text) in
        [("ip.h", "lower"), ("IP.h", "upper"), ("Dir/one", "1"), ("dir/two", "2"), ("a:b", "x")]
    {
        fs::write(here.join("top").join(name), text).unwrap();
    }
    symlink("ip.h", here.join("top/link")).unwrap();
    let output = smb(here, &["put", "-r", "top", &place, "--transport", "tcp"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for words in [
        "top/ip.h is not copied",
        "/demo/top/IP.h has the same name",
        "top/dir is not copied",
        "top/a:b: its name holds",
        "top/link: it is a symbolic link",
        "4 names were left out",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let top = format!("{place}/top");
    assert_eq!(listed(here, &top), ["Dir", "IP.h"]);
    assert_eq!(listed(here, &format!("{top}/Dir")), ["one"]);
    done(here, &["get", &format!("{top}/ip.h"), "back", "--transport", "tcp"]);
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "upper");

    // Nor with what an earlier copy left there.
    fs::create_dir(here.join("other")).unwrap();
    fs::write(here.join("other/Ip.H"), "third").unwrap();
    let output = smb(here, &["put", "-r", "other", &format!("{place}/top/other"), "--transport", "tcp"]);
    assert!(output.status.success(), "{}", said(&output));
    fs::rename(here.join("other"), here.join("top2")).unwrap();
    fs::rename(here.join("top"), here.join("old")).unwrap();
    fs::rename(here.join("top2"), here.join("top")).unwrap();
    let output = smb(here, &["put", "-r", "top", &place, "--transport", "tcp"]);
    assert!(said(&output).contains("top/Ip.H is not copied"), "{}", said(&output));
    done(here, &["get", &format!("{top}/ip.h"), "back", "--transport", "tcp"]);
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "upper");
}

#[test]
fn a_file_that_is_replaced_keeps_its_access_list() {
    let (server, directory, place) = started();
    let here = directory.path();
    fs::write(here.join("plan"), "first").unwrap();
    done(here, &["put", "plan", &place, "--transport", "tcp"]);
    server.cenote(&["acl", "set", "demo", "plan", "--deny", "Everyone:0x100"]);
    let before = server.cenote(&["acl", "show", "demo", "plan"]);
    fs::write(here.join("plan"), "second").unwrap();
    done(here, &["put", "plan", &place, "--transport", "tcp"]);
    assert_eq!(server.cenote(&["acl", "show", "demo", "plan"]), before);
    done(here, &["get", &format!("{place}/plan"), "back", "--transport", "tcp"]);
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "second");
}

/// Sends a signal as a shell does.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Puts over `plan` from a source without end, and sends a signal when that has begun. Returns how the command ended.
fn put_until(server: &Server, here: &Path, name: &str) -> Output {
    let place = format!("smb://127.0.0.1:{}/demo", server.smb_port);
    fs::write(here.join("plan"), "first").unwrap();
    done(here, &["put", "plan", &place, "--transport", "tcp"]);
    let child = begin(here, &["put", "/dev/zero", &format!("{place}/plan"), "--transport", "tcp"]);
    let until = Instant::now() + Duration::from_secs(30);
    while listed(here, &place).len() < 2 {
        assert!(Instant::now() < until, "the copy does not begin");
    }
    signal(&child, name);
    child.wait_with_output().unwrap()
}

#[test]
fn a_copy_whose_client_is_killed_leaves_nothing_when_the_server_has_given_it_up() {
    let (server, directory, place) = started();
    let here = directory.path();
    assert_eq!(put_until(&server, here, "KILL").status.code(), None);
    // The server keeps the handle for as long as the client would retry: 30 seconds.
    let until = Instant::now() + Duration::from_secs(50);
    while listed(here, &place) != ["plan"] {
        assert!(Instant::now() < until, "{:?}", listed(here, &place));
        std::thread::sleep(Duration::from_millis(500));
    }
    done(here, &["get", &format!("{place}/plan"), "back", "--transport", "tcp"]);
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "first");
}

#[test]
fn an_interrupted_copy_leaves_what_was_there_and_nothing_else() {
    let (server, directory, place) = started();
    let here = directory.path();
    for name in ["INT", "TERM"] {
        let output = put_until(&server, here, name);
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
        assert_eq!(listed(here, &place), ["plan"], "{name}");
    }
    done(here, &["get", &format!("{place}/plan"), "back", "--transport", "tcp"]);
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "first");

    // The other way: the reader is stopped while the file is under its other name.
    File::create(here.join("large")).unwrap().set_len(400 << 20).unwrap();
    done(here, &["put", "large", &place, "--transport", "tcp"]);
    fs::create_dir(here.join("to")).unwrap();
    fs::write(here.join("to/large"), "old").unwrap();
    let child = begin(&here.join("to"), &["get", &format!("{place}/large"), "--transport", "tcp"]);
    let until = Instant::now() + Duration::from_secs(30);
    while tree(&here.join("to")).len() < 2 {
        assert!(Instant::now() < until, "the copy does not begin");
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("interrupted"), "{}", said(&output));
    assert_eq!(tree(&here.join("to")).into_iter().collect::<Vec<_>>(), ["large"]);
    assert_eq!(fs::read_to_string(here.join("to/large")).unwrap(), "old");
}

#[test]
fn a_user_that_is_renamed_keeps_what_it_has_and_loses_its_sessions() {
    let (server, directory, place) = started();
    let here = directory.path();
    fs::write(here.join("plan"), "first").unwrap();
    done(here, &["put", "plan", &place, "--transport", "tcp"]);
    let before = server.cenote(&["user", "list", "--json"]);
    let mut client = server.connect(crate::fixture::plain(smb_client::Transport::Tcp));
    let tree = client.tree_connect("demo").unwrap();
    client.stat(tree, "plan").unwrap();
    server.cenote(&["user", "rename", "ana", "ana.maria"]);
    assert!(client.stat(tree, "plan").is_err(), "the session goes on");
    assert_eq!(server.cenote(&["user", "list", "--json"]), before.replace("\"ana\"", "\"ana.maria\""));
    let old = smb(here, &["ls", &place, "--transport", "tcp"]);
    assert!(said(&old).contains("user name or password is wrong"), "{}", said(&old));
    let renamed = format!("smb://ana.maria@127.0.0.1:{}/demo", server.smb_port);
    done(here, &["get", &format!("{renamed}/plan"), "back", "--transport", "tcp"]);
    assert!(server.cenote(&["acl", "show", "demo", "plan"]).contains("ana.maria"));
    server.cenote(&["user", "rename", "ana.maria", "Ana.Maria"]);
}
