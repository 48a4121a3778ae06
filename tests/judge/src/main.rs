//! Serves files that stand for disks and fail on command, for judging the built daemon from outside
//! (`tests/judge/run`).
//!
//! `faultfs MOUNTPOINT SOCKET NAME=MIB...` mounts the disks, all zeroes and kept in memory, prints `ready`, and ends when its standard
//! input does. Exit status 77 if this machine mounts no FUSE file system.

mod control;
mod disk;
mod filesystem;
mod random;
mod served;

use fuser::{Config, MountOption, SessionACL};
use served::Served;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mountpoint, socket, disks @ ..] = &arguments[..] else { return usage() };
    let Some(disks) = disks.iter().map(|disk| parse_disk(disk)).collect::<Option<Vec<_>>>() else {
        return usage();
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("faultfs".to_owned())];
    config.acl = SessionACL::Owner;
    let listener = match UnixListener::bind(socket) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("faultfs: {socket}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let filesystem = filesystem::Disks { disks: disks.clone() };
    let session = match fuser::spawn_mount(filesystem, mountpoint, &config) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("faultfs: FUSE cannot be mounted here: {error}");
            return ExitCode::from(77);
        }
    };
    std::thread::spawn({
        let disks = disks.clone();
        move || control::serve(&listener, &disks)
    });
    println!("ready");
    // Until the parent lets go, or ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for disk in &disks {
        disk.become_(served::Mood::Gone);
    }
    match session.umount_and_join() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faultfs: {mountpoint}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse_disk(text: &str) -> Option<Arc<Served>> {
    let (name, mib) = text.split_once('=')?;
    Some(Arc::new(Served::new(name, mib.parse::<u64>().ok()? << 20)))
}

fn usage() -> ExitCode {
    eprintln!("usage: faultfs MOUNTPOINT SOCKET NAME=MIB...\ncommands of the socket:\n{}", control::HELP);
    ExitCode::from(2)
}
