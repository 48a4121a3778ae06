//! `cenote smb`, as people type it.

use crate::fixture::{PASSWORD, Server, pattern};
use std::path::Path;
use std::process::{Command, Output};

/// Runs `cenote smb ...` as ana; the password comes from the environment.
fn smb(directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cenote"))
        .arg("smb")
        .args(words)
        .current_dir(directory)
        .env("CENOTE_SMB_USER", "ana")
        .env("CENOTE_SMB_PASSWORD", PASSWORD)
        .output()
        .unwrap()
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
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let place = format!("smb://127.0.0.1:{}/demo", server.smb_port);
    let refused = |words: &[&str], why: &str| {
        let output = smb(here, words);
        assert!(!output.status.success(), "{words:?} was done");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    };
    let tcp = ["--transport", "tcp"];
    refused(&["get", &format!("{place}/nothing"), tcp[0], tcp[1]], "STATUS_OBJECT_NAME_NOT_FOUND");
    refused(&["get", &place, tcp[0], tcp[1]], "names no file");
    refused(&["put", "missing", &place, tcp[0], tcp[1]], "missing");
    refused(&["put", ".", &place, tcp[0], tcp[1]], "is a directory");
    refused(&["ls", "filer/demo"], "//SERVER/SHARE/PATH");
    refused(&["ls", "smb://ana:secret@filer/demo"], "command line");
    refused(&["ls", &place.replace("/demo", "/none"), tcp[0], tcp[1]], "STATUS_BAD_NETWORK_NAME");
    refused(&["ls", &place, "--channels", "33"], "1 to 32");
    std::fs::write(here.join("credentials"), "username=ana\npassword=wrong\n").unwrap();
    refused(&["ls", &place, tcp[0], tcp[1], "--credentials", "credentials"], "STATUS_LOGON_FAILURE");
    std::fs::write(here.join("credentials"), "ana\n").unwrap();
    refused(&["ls", &place, "--credentials", "credentials"], "line 1");
    let left: Vec<_> = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["credentials"]);
}
