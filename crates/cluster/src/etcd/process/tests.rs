//! etcd as a child: it ends with us, comes back by itself, and its members come and go.

use super::super::fixture::{One, until};
use super::super::members::lacks_revision_fix;
use super::*;

#[test]
fn a_missing_program_is_named_with_its_package() {
    let missing = std::path::Path::new("/nonexistent/etcd");
    let error = version_of(Some(missing)).unwrap_err().to_string();
    assert!(error.contains("etcd-server") && error.contains("/nonexistent/etcd"), "{error}");
    let other = version_of(Some(std::path::Path::new("/bin/true"))).unwrap_err();
    assert!(matches!(other, EtcdProcessError::Version { .. }));
}

#[test]
fn versions_without_the_fix_are_told() {
    for version in ["3.4.23", "3.4.31", "3.5.13", "3.3.10", "", "x.y.z"] {
        assert!(lacks_revision_fix(version), "{version}");
    }
    for version in ["3.4.32", "3.5.14", "3.5.21-rc.0", "3.6.0", "4.0.0"] {
        assert!(!lacks_revision_fix(version), "{version}");
    }
}

#[test]
fn etcd_that_is_killed_is_started_again_and_ends_when_it_is_stopped() {
    let Some(mut one) = One::start() else { return };
    let state = one.state();
    let process = one.process.as_ref().unwrap();
    let EtcdProcessState::Running { pid } = process.state() else { panic!("{:?}", process.state()) };
    let status = state.members().status(&one.options.client_url()).unwrap();
    assert!(status.is_leader() && status.version == process.version());
    assert!(status.revision > 0 && status.file_bytes > 0);
    assert_eq!(state.members().alarms().unwrap(), []);
    let killed = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    until(
        "another one runs",
        || matches!(process.state(), EtcdProcessState::Running { pid: other } if other != pid),
    );
    until("it serves", || state.is_formed().is_ok());
    let EtcdProcessState::Running { pid } = process.state() else { panic!("{:?}", process.state()) };
    one.kill();
    let gone = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    assert!(rustix::process::test_kill_process(gone).is_err());
}
