//! The records of a member whose majority is lost go into an etcd that is made anew.
//!
//! etcd's `--force-new-cluster` is trusted with reading only. A killed member has lost the newest
//! commit index of its log, which etcd does not sync, while its database may have the entries above
//! that already. The forced start drops such entries from the log, and the database keeps them and
//! their number: entries that get these numbers later are skipped by this member, as done already, and
//! done by every member that joins. Their states differ for good, and nothing in etcd tells. So nothing
//! is ever written to a member that was forced: the contents of its database are read, and written into
//! an etcd with data, a log and a cluster's number of its own, which each joining member has from the
//! first entry on.

use super::process::{EtcdProcess, EtcdProcessError, EtcdProcessOptions, EtcdStart};
use super::{EtcdOptions, EtcdState, FormError};
use records::{EngineState, StateDump, StateError};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(100);

/// Why the records were not saved. The old data have them still.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    #[error(transparent)]
    Process(#[from] EtcdProcessError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Form(#[from] FormError),
}

/// Asks until there is an answer.
fn patiently<T>(patience: Duration, mut ask: impl FnMut() -> Result<T, StateError>) -> Result<T, StateError> {
    let until = Instant::now() + patience;
    loop {
        match ask() {
            Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            answered => return answered,
        }
    }
}

/// All records of a member whose majority is lost; the member must not run. Forcing it leaves data
/// behind with which no member may continue: [`make_anew`]. May be repeated, also if it was cut off.
///
/// # Errors
/// [`RescueError`].
pub fn read_forced(
    process: EtcdProcessOptions,
    options: EtcdOptions,
    patience: Duration,
) -> Result<StateDump, RescueError> {
    // This client writes nothing there: it drops no history, and has no floor of seen revisions, of which
    // some are given up.
    let options = EtcdOptions { kept_revisions: None, floor_file: None, floor: 0, ..options };
    let running = EtcdProcess::start(EtcdProcessOptions { start: EtcdStart::ForceNew, ..process })?;
    let etcd = EtcdState::connect(options)?;
    let dump = patiently(patience, || etcd.dump())?;
    running.stop();
    Ok(dump)
}

/// Writes the records into an etcd of one member, whose directory does not exist yet, and ends it. They
/// are read back and compared.
///
/// # Errors
/// [`RescueError`]; the directory is to be removed then.
pub fn make_anew(
    process: EtcdProcessOptions,
    options: EtcdOptions,
    dump: StateDump,
    patience: Duration,
) -> Result<(), RescueError> {
    let options = EtcdOptions { kept_revisions: None, floor_file: None, floor: 0, ..options };
    let members = vec![(process.name.clone(), process.peer_url())];
    // A cluster's number of its own: members of the lost one are strangers to it.
    let token = format!("{}-{}", process.token, uuid::Uuid::new_v4());
    let start = EtcdStart::New { members };
    let running = EtcdProcess::start(EtcdProcessOptions { start, token, ..process })?;
    let etcd = EtcdState::connect(options)?;
    patiently(patience, || etcd.is_formed())?;
    etcd.form(dump)?;
    running.stop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{form, options, until};
    use crate::process::{EtcdProcessState, initial_members, version_of};
    use records::{State, Transaction, Typed};

    /// Kills etcd as a power cut does.
    fn kill(process: &EtcdProcess) {
        let EtcdProcessState::Running { pid } = process.state() else { panic!("it runs") };
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_member_that_joins_a_rescued_one_has_its_state() {
        if let Err(why) = version_of(None) {
            eprintln!("left out: {why}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut all = ["a", "b", "c"].map(|name| options(directory.path(), name, None));
        let members: Vec<_> = all.iter().map(|one| (one.name.clone(), one.peer_url())).collect();
        all.iter_mut().for_each(|one| one.start = EtcdStart::New { members: members.clone() });
        let processes = all.clone().map(|one| EtcdProcess::start(one).unwrap());
        let mut one = all[0].clone();
        let mut client = EtcdOptions::new("test", vec![one.client_url()], None);
        client.deadline = Duration::from_secs(5);
        let etcd = EtcdState::connect(client.clone()).unwrap();
        form(&etcd, StateDump::default());
        let state = State::from(etcd);
        for number in 0..20_u8 {
            state.commit(Transaction::default().put(format!("key/{number}"), vec![number])).unwrap();
        }
        let before = state.revision();
        drop(state);
        // The databases have the last entry by then, and no log says that they may.
        std::thread::sleep(Duration::from_millis(500));
        processes.iter().for_each(kill);
        drop(processes);

        let patience = Duration::from_secs(30);
        let dump = read_forced(one.clone(), client.clone(), patience).unwrap();
        assert_eq!(dump.entries.len(), 20);
        // Once more, as when the first one was cut off.
        let again = read_forced(one.clone(), client.clone(), patience).unwrap();
        assert_eq!(again.entries, dump.entries);
        one.directory = directory.path().join("anew");
        make_anew(one.clone(), client.clone(), dump, patience).unwrap();
        // The new member works as any other.
        one.start = EtcdStart::Existing { members: vec![(one.name.clone(), one.peer_url())] };
        let _alone = EtcdProcess::start(one.clone()).unwrap();
        let etcd = EtcdState::connect(client).unwrap();
        until("it answers", || etcd.dump().is_ok());
        let state = State::from(etcd.clone());
        for number in 0..10_u8 {
            let transaction = Transaction::default().when(format!("new/{number}"), 0);
            state.commit(transaction.put(format!("new/{number}"), vec![number])).unwrap();
        }
        assert!(etcd.revision() > before, "revisions go on rising");
        let mut two = options(directory.path(), "two", None);
        until("a member is added", || etcd.members().add_learner(&two.peer_url()).is_ok());
        let listed = etcd.members().list().unwrap();
        two.start = EtcdStart::Existing { members: initial_members(&listed, "two", &two.peer_url()) };
        let _joined = EtcdProcess::start(two.clone()).unwrap();
        let of = |url: &str| etcd.members().status(url).ok().map(|status| (status.applied, status.revision));
        let (first, second) = (one.client_url(), two.client_url());
        let applied = |url: &str| of(url).map(|of| of.0);
        until("it has all", || applied(&first).is_some() && applied(&first) == applied(&second));
        assert_eq!(of(&first), of(&second), "the same entries make the same state");
    }
}
