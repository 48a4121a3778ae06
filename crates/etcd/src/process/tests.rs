//! etcd as a child: it ends with us, comes back by itself, and its members come and go.

use super::super::fixture::{One, certificates, form, options, until};
use super::super::members::{EtcdMember, lacks_revision_fix};
use super::super::{EtcdOptions, EtcdState};
use super::*;
use records::{BlockingState, Request, StateDump, Transaction, Typed};
use std::time::Instant;

#[test]
fn a_missing_program_is_named_with_its_package() {
    let missing = std::path::Path::new("/nonexistent/etcd");
    let error = version_of(Some(missing)).unwrap_err().to_string();
    assert!(error.contains("etcd-server") && error.contains("/nonexistent/etcd"), "{error}");
    let other = version_of(Some(std::path::Path::new("/bin/true"))).unwrap_err();
    assert!(matches!(other, EtcdProcessError::Version { .. }));
}

#[test]
fn a_directory_without_a_log_has_no_member() {
    let directory = tempfile::tempdir().unwrap();
    assert!(!has_data(&directory.path().join("none")) && !has_data(directory.path()));
    let wal = directory.path().join("member/wal");
    std::fs::create_dir_all(&wal).unwrap();
    std::fs::create_dir(directory.path().join("member/snap")).unwrap();
    // etcd makes it before it has written anything.
    std::fs::write(wal.join("0.tmp"), "").unwrap();
    assert!(!has_data(directory.path()));
    std::fs::write(wal.join("0000000000000000-0000000000000000.wal"), "").unwrap();
    assert!(has_data(directory.path()));
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

#[test]
fn three_members_with_certificates_lose_their_leader_gain_a_learner_and_let_one_go() {
    if version_of(None).is_err() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (files, identity) = certificates(directory.path());
    let mut all: Vec<EtcdProcessOptions> = (1..=3)
        .map(|number| options(directory.path(), &format!("node-{number}"), Some(files.clone())))
        .collect();
    let members: Vec<(String, String)> = all.iter().map(|one| (one.name.clone(), one.peer_url())).collect();
    for one in &mut all {
        one.start = EtcdStart::New { members: members.clone() };
    }
    let mut processes: Vec<Option<EtcdProcess>> =
        all.iter().map(|one| Some(EtcdProcess::start(one.clone()).unwrap())).collect();
    let urls: Vec<String> = all.iter().map(EtcdProcessOptions::client_url).collect();
    let connect = |urls: Vec<String>, tls| {
        let mut options = EtcdOptions::new("test", urls, tls);
        options.deadline = Duration::from_millis(800);
        EtcdState::connect(options).unwrap()
    };
    let state = connect(urls.clone(), Some(identity.clone()));
    form(&state, StateDump::default());
    // A client without a certificate of this authority gets no answer.
    let (_, stranger) = certificates(&make(directory.path().join("other")));
    assert!(connect(urls.clone(), Some(stranger)).is_formed().is_err());

    // The leader dies: the state takes commits again after an election.
    state.commit(Transaction::default().put("a", vec![0])).unwrap();
    let leader =
        urls.iter().position(|url| state.members().status(url).is_ok_and(|status| status.is_leader()));
    let leader = leader.expect("somebody leads");
    processes[leader] = None;
    let died = Instant::now();
    until("a commit", || state.commit(Transaction::default().put("a", vec![1])).is_ok());
    eprintln!("a commit succeeded {} ms after the leader had stopped", died.elapsed().as_millis());
    processes[leader] = Some(EtcdProcess::start(all[leader].clone()).unwrap());

    // A fourth member learns, gets its vote, and one of the first leaves.
    let mut fourth = options(directory.path(), "node-4", Some(files));
    until("the members take a change", || state.members().add_learner(&fourth.peer_url()).is_ok());
    let listed = state.members().list().unwrap();
    let learner = listed.iter().find(|member| member.peer_urls == [fourth.peer_url()]).unwrap().id;
    fourth.start = EtcdStart::Existing { members: initial_members(&listed, "node-4", &fourth.peer_url()) };
    let added = EtcdProcess::start(fourth.clone()).unwrap();
    until("it is promoted", || state.members().promote(learner).is_ok());
    let leaving = |member: &&EtcdMember| member.name == "node-1";
    let id = state.members().list().unwrap().iter().find(leaving).unwrap().id;
    until("it is removed", || state.members().remove(id).is_ok());
    let left = processes[0].as_ref().unwrap();
    until("the removed one stays away", || left.state() == EtcdProcessState::Removed);
    let names: Vec<String> = state.members().list().unwrap().into_iter().map(|member| member.name).collect();
    assert_eq!(names.len(), 3);
    assert!(!names.contains(&"node-1".to_owned()) && names.contains(&"node-4".to_owned()));
    let fourth = connect(vec![added.options().client_url()], Some(identity));
    until("the new member answers", || fourth.call(Request::Get { key: "a".into() }).is_ok());
}

fn make(directory: PathBuf) -> PathBuf {
    std::fs::create_dir(&directory).unwrap();
    directory
}
