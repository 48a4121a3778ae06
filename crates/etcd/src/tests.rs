//! etcd as the state: real members, and faults between.

use super::fixture::{Door, Mode, One, form, until};
use super::protocol as wire;
use super::requests::Requests;
use super::{EtcdOptions, EtcdState};
use crate::{CarryError, Moved, carry};
use records::{
    Answer, BlockingState, ClusterState, EngineState, Record, Request, SharedEngine, State, StateDump,
    StateError, Transaction, Typed,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn get(state: &impl BlockingState, key: &str) -> Option<(u64, Vec<u8>)> {
    match state.call(Request::Get { key: key.into() }) {
        Ok(Answer::Value(found)) => found.map(|found| (found.revision, found.value)),
        other => panic!("{other:?}"),
    }
}

fn through(door: &Door) -> EtcdState {
    let mut options = EtcdOptions::new("test", vec![format!("http://{}", door.address)], None);
    options.deadline = Duration::from_millis(700);
    EtcdState::connect(options).unwrap()
}

#[test]
fn a_commit_whose_answer_is_lost_is_unknown_was_sent_once_and_may_be_there() {
    let Some(one) = One::start() else { return };
    let state = one.state();
    let door = Door::before(one.options.client);
    let behind = through(&door);
    until("it answers", || behind.call(Request::Get { key: "a".into() }).is_ok());
    for (mode, key, is_there) in [(Mode::LoseAnswers, "a", true), (Mode::LoseAll, "b", false)] {
        door.set(mode);
        let asked = Instant::now();
        let commit = behind.commit(Transaction::default().when(key, 0).put(key, vec![1]));
        assert!(matches!(commit, Err(StateError::Unknown(_))), "{mode:?}: {commit:?}");
        assert!(asked.elapsed() < Duration::from_secs(5));
        door.set(Mode::Pass);
        until("it answers again", || behind.call(Request::Get { key: "a".into() }).is_ok());
        assert_eq!(get(&behind, key).is_some(), is_there, "{mode:?}");
    }
    // A connection that breaks under a commit does not make it go out again on another one.
    door.set(Mode::LoseAnswers);
    let committing = std::thread::spawn({
        let behind = behind.clone();
        move || behind.commit(Transaction::default().put("d", vec![1]))
    });
    std::thread::sleep(Duration::from_millis(200));
    door.set(Mode::Pass);
    let commit = committing.join().unwrap();
    assert!(matches!(commit, Err(StateError::Unknown(_))), "{commit:?}");
    until("it answers again", || behind.call(Request::Get { key: "a".into() }).is_ok());
    // Each commit that arrived made one revision: the key has the first one, and nothing followed.
    let (revision, _) = get(&state, "d").unwrap();
    let next = state.commit(Transaction::default().put("c", vec![1])).unwrap();
    assert_eq!(next, revision + 1);
}

/// Counts a key up by compare-and-swap, as a coordinator does: after Unknown it reads whether its
/// change happened.
fn count(state: &EtcdState, key: &str, last: u8) -> u32 {
    let (mut unknown, mut not_applied) = (0, None);
    for number in 1..=last {
        loop {
            let Ok(Answer::Value(found)) = state.call(Request::Get { key: key.into() }) else { continue };
            let (revision, now) = found.map_or((0, 0), |found| (found.revision, found.value[0]));
            assert_ne!(not_applied.take(), Some(now), "a commit was applied that was told not to be");
            if now == number {
                break;
            }
            assert_eq!(now, number - 1, "nothing is applied twice or lost");
            match state
                .call(Request::Commit(Transaction::default().when(key, revision).put(key, vec![number])))
            {
                Ok(Answer::Committed { .. } | Answer::Conflict) => {}
                Err(StateError::Unknown(_)) => unknown += 1,
                // The next read shows whether it is true.
                Err(StateError::NotApplied(_)) => not_applied = Some(number),
                other => panic!("{other:?}"),
            }
        }
    }
    unknown
}

#[test]
fn behind_a_line_that_delays_loses_and_is_cut_every_change_is_applied_once() {
    let Some(one) = One::start() else { return };
    let _formed = one.state();
    let door = Door::before(one.options.client);
    let behind = through(&door);
    let counting = std::thread::spawn(move || count(&behind, "a", 40));
    let modes =
        [Mode::Delay, Mode::LoseAnswers, Mode::Pass, Mode::Cut, Mode::Pass, Mode::LoseAll, Mode::Delay];
    for mode in modes.into_iter().cycle().take(200) {
        if counting.is_finished() {
            break;
        }
        door.set(mode);
        std::thread::sleep(Duration::from_millis(120));
    }
    door.set(Mode::Pass);
    counting.join().unwrap();
    assert!(door.accepted.load(std::sync::atomic::Ordering::SeqCst) > 1, "nothing was cut");
}

#[test]
fn without_etcd_requests_are_unknown_in_time_the_trouble_is_told_and_its_return_needs_no_hand() {
    let Some(mut one) = One::start() else { return };
    drop(one.state());
    let mut options = one.client_options();
    options.deadline = Duration::from_millis(300);
    let state = State::from(EtcdState::connect(options).unwrap());
    until("it answers", || state.call(Request::Get { key: "a".into() }).is_ok());
    state.commit(Transaction::default().put("a", vec![1])).unwrap();
    one.kill();
    let asked = Instant::now();
    assert!(matches!(state.call(Request::Get { key: "a".into() }), Err(StateError::Unknown(_))));
    assert!(asked.elapsed() < Duration::from_secs(3));
    until("it is told", || state.trouble().is_some());
    assert!(state.trouble().unwrap().place.to_string().contains(&one.options.client_url()));
    one.restart();
    until("it answers again", || state.call(Request::Get { key: "a".into() }).is_ok());
    assert!(state.trouble().is_none());
    assert_eq!(get(&state, "a").unwrap().1, [1]);
}

#[test]
fn a_watch_tells_of_others_commits_resumes_over_a_lost_connection_and_says_when_it_cannot() {
    let Some(mut one) = One::start() else { return };
    let other = one.state();
    let state = State::from(EtcdState::connect(one.client_options()).unwrap());
    let watch = state.watch("user/");
    assert!(watch.take().unwrap().started_over);
    // Once more, when the watch at etcd stands.
    assert!(watch.wait(Duration::from_secs(30)).unwrap().started_over);
    let revision =
        other.commit(Transaction::default().put("user/a", vec![1]).put("share/a", vec![1])).unwrap();
    let told = watch.wait(Duration::from_secs(30)).unwrap();
    assert_eq!(
        (told.started_over, told.keys.into_iter().collect::<Vec<_>>()),
        (false, vec![("user/a".into(), revision)])
    );
    assert!(state.revision() >= revision);
    // While the connection is away nothing is missed.
    let door = Door::before(one.options.client);
    let far = State::from(through(&door));
    let watch = far.watch("user/");
    until("the watch stands", || {
        watch.take().is_some_and(|changes| changes.started_over) && far.revision() >= revision
    });
    watch.wait(Duration::from_millis(500));
    door.set(Mode::Cut);
    let revision = other.commit(Transaction::default().delete("user/a")).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    door.set(Mode::Pass);
    let told = watch.wait(Duration::from_secs(30)).unwrap();
    assert_eq!((told.started_over, told.keys.get("user/a")), (false, Some(&revision)));
    one.kill();
}

/// Drops all history before a revision of the state, but not the newest.
fn compact(state: &EtcdState, revision: u64) -> Result<(), StateError> {
    let shared = state.shared.clone();
    state.wait_for(async move {
        let base = shared.translation.borrow().as_ref().map_or(0, |known| known.base);
        let revision = i64::try_from(revision - base).unwrap();
        let request = wire::CompactionRequest { revision, physical: true };
        let requests = Requests::new(shared);
        requests.once(|mut client| async move { client.compact(request).await }).await?;
        Ok(())
    })
}

#[test]
fn a_watch_starts_over_when_the_history_it_missed_was_dropped() {
    let Some(one) = One::start() else { return };
    let other = one.state();
    let door = Door::before(one.options.client);
    let far = State::from(through(&door));
    let watch = far.watch("");
    watch.take();
    assert!(watch.wait(Duration::from_secs(30)).unwrap().started_over);
    door.set(Mode::Cut);
    let mut revision = 0;
    for number in 0..5 {
        revision = other.commit(Transaction::default().put("a", vec![number])).unwrap();
    }
    compact(&other, revision - 1).unwrap();
    door.set(Mode::Pass);
    until("it starts over", || watch.wait(Duration::from_secs(1)).is_some_and(|told| told.started_over));
    let next = other.commit(Transaction::default().put("a", vec![9])).unwrap();
    until("it goes on", || {
        watch.wait(Duration::from_secs(1)).is_some_and(|told| told.keys.get("a") == Some(&next))
    });
}

#[test]
fn old_history_is_dropped_and_the_newest_never() {
    let Some(one) = One::start() else { return };
    drop(one.state());
    let mut options = one.client_options();
    options.kept_revisions = std::num::NonZeroU32::new(20);
    let state = EtcdState::connect(options).unwrap();
    until("it answers", || state.call(Request::Get { key: "a".into() }).is_ok());
    let revisions: Vec<u64> =
        (0..100).map(|number| state.commit(Transaction::default().put("a", vec![number])).unwrap()).collect();
    // A refusal means that the history was dropped already.
    until("old history is dropped", || compact(&state, revisions[20]).is_err());
    assert_eq!(compact(&state, revisions[85]), Ok(()), "the newest was kept");
}

#[test]
fn an_etcd_that_is_empty_or_went_back_is_not_used() {
    let Some(one) = One::start() else { return };
    let mut options = one.client_options();
    options.deadline = Duration::from_millis(500);
    let empty = EtcdState::connect(options.clone()).unwrap();
    until("the reason is told", || {
        empty.trouble().is_some_and(|trouble| trouble.why.contains("no cluster 'test'"))
    });
    assert!(empty.call(Request::Get { key: "a".into() }).is_err());
    let state = one.state();
    let revision = state.commit(Transaction::default().put("a", vec![1])).unwrap();
    options.floor = revision + 1;
    let restored = EtcdState::connect(options.clone()).unwrap();
    until("the reason is told", || {
        restored.trouble().is_some_and(|trouble| trouble.why.contains("old backup"))
    });
    assert!(restored.call(Request::Get { key: "a".into() }).is_err());
    // The highest seen revision survives a restart of the server.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("etcd.seen");
    (options.floor, options.floor_file) = (0, Some(file.clone()));
    let server = EtcdState::connect(options.clone()).unwrap();
    until("it answers", || server.call(Request::Get { key: "a".into() }).is_ok());
    drop(server);
    until("it is written down", || std::fs::read_to_string(&file).is_ok());
    std::fs::write(&file, format!("{}\n", revision + 1)).unwrap();
    let restarted = EtcdState::connect(options.clone()).unwrap();
    until("the reason is told", || {
        restarted.trouble().is_some_and(|trouble| trouble.why.contains("old backup"))
    });
    assert!(restarted.call(Request::Get { key: "a".into() }).is_err());
    (options.floor, options.floor_file) = (revision, None);
    let same = EtcdState::connect(options).unwrap();
    until("it answers", || same.call(Request::Get { key: "a".into() }).is_ok());
}

#[test]
fn an_etcd_whose_data_were_made_anew_under_a_running_server_is_not_used() {
    let Some(mut one) = One::start() else { return };
    let mut options = one.client_options();
    options.deadline = Duration::from_millis(500);
    let state = one.state();
    let server = EtcdState::connect(options).unwrap();
    until("it answers", || server.call(Request::Get { key: "a".into() }).is_ok());
    server.commit(Transaction::default().put("a", vec![1])).unwrap();
    drop(state);
    one.kill();
    std::fs::remove_dir_all(&one.options.directory).unwrap();
    one.restart();
    // More revisions make no difference: it is another history.
    let other = one.state();
    for _ in 0..20 {
        other.commit(Transaction::default().put("a", vec![2])).unwrap();
    }
    until("it is told", || server.trouble().is_some_and(|trouble| trouble.why.contains("not used")));
    assert!(server.call(Request::Get { key: "a".into() }).is_err());
}

#[test]
fn a_cluster_is_formed_once_and_from_the_start_if_the_first_try_was_interrupted() {
    let Some(one) = One::start() else { return };
    let state = EtcdState::connect(one.client_options()).unwrap();
    let entries: Vec<_> = (0..350).map(|number| (format!("key/{number:04}"), vec![7; 2000])).collect();
    let dump = StateDump { revision: 900, entries };
    form(&state, dump.clone());
    assert_eq!(state.dump().unwrap().entries, dump.entries);
    assert!(state.revision() > 900);
    assert_eq!(state.form(StateDump::default()), Err(super::FormError::Exists));
    assert_eq!(state.dump().unwrap().entries, dump.entries);
}

/// Counts `key` up until told to stop, as often as it can; answers how often it did.
fn count_up(state: &State, key: &str, is_over: &AtomicBool) -> u64 {
    let mut count = 0_u64;
    while !is_over.load(Ordering::Acquire) {
        let (revision, value) = get(state, key).unwrap_or_default();
        assert_eq!(value, if count == 0 { Vec::new() } else { count.to_le_bytes().to_vec() }, "{key}");
        let next = count + 1;
        let commit = Transaction::default().when(key, revision).put(key, next.to_le_bytes().to_vec());
        match state.commit(commit) {
            Ok(_) => count = next,
            // A read before the move is not compared with the value after it.
            Err(StateError::Conflict) => {}
            Err(error) => panic!("{key}: {error}"),
        }
    }
    count
}

#[test]
fn no_commit_is_lost_or_done_twice_and_no_change_goes_unheard_while_the_records_move() {
    let Some(one) = One::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let state = State::open(&directory.path().join("state.redb")).unwrap();
    let etcd = EtcdState::connect(one.client_options()).unwrap();
    until("etcd answers", || etcd.is_formed().is_ok());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting: Vec<_> = ["a", "b", "c"]
            .map(|key| {
                scope.spawn({
                    let (state, is_over) = (&state, &is_over);
                    move || count_up(state, key, is_over)
                })
            })
            .into();
        // The listener reads the changed keys, and has the last value of each in the end.
        let heard = scope.spawn(|| {
            let watch = state.watch("");
            let mut values = BTreeMap::new();
            let mut read = |keys: &[&str]| {
                for key in keys {
                    values.insert((*key).to_owned(), get(&state, key).map(|found| found.1));
                }
            };
            let mut is_last = false;
            loop {
                let changes = watch.wait(Duration::from_secs(2));
                match &changes {
                    Some(changes) if changes.started_over => read(&["a", "b", "c"]),
                    Some(changes) => read(&changes.keys.keys().map(String::as_str).collect::<Vec<_>>()),
                    None if is_last => return values,
                    None => {}
                }
                is_last = changes.is_none() && is_over.load(Ordering::Acquire);
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        carry(&state, &etcd).unwrap();
        let revision = state.revision();
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Release);
        let counts: Vec<u64> = counting.into_iter().map(|thread| thread.join().unwrap()).collect();
        let heard = heard.join().unwrap();
        for (key, count) in ["a", "b", "c"].into_iter().zip(counts) {
            assert!(count > 10, "{key}: {count}");
            let last = Some(count.to_le_bytes().to_vec());
            assert_eq!(get(&state, key).map(|found| found.1), last, "{key}");
            assert_eq!(heard[key], last, "{key}");
        }
        assert!(state.revision() > revision && EtcdState::of(&state).is_some());
    });
}

#[test]
fn a_servers_records_move_to_etcd_while_it_runs_and_old_revisions_never_compare_again() {
    let Some(one) = One::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let state = State::open(&path).unwrap();
    for number in 0..20_u8 {
        state.commit(Transaction::default().put(format!("key/{number}"), vec![number])).unwrap();
    }
    let (old, _) = get(&state, "key/3").unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let mut client = state.client(move || wake.send(()).unwrap_or(())).unwrap();
    let watch = state.watch("key/");
    watch.take();
    let etcd = EtcdState::connect(one.client_options()).unwrap();
    until("etcd answers", || etcd.is_formed().is_ok());
    assert_eq!(carry(&state, &etcd), Ok(20));
    assert_eq!(carry(&state, &etcd), Err(CarryError::Done));
    assert!(watch.wait(Duration::from_secs(30)).unwrap().started_over);
    until("it answers", || state.call(Request::Get { key: "a".into() }).is_ok());
    assert!(state.revision() > 21);
    for number in 0..20_u8 {
        assert_eq!(get(&state, &format!("key/{number}")).unwrap().1, [number]);
    }
    client.submit(1, Request::Commit(Transaction::default().when("key/3", old).put("key/3", vec![99])));
    client.submit(
        2,
        Request::Commit(
            Transaction::default().when("new", 0).put("new", vec![1]).delete("new").put("new", vec![2]),
        ),
    );
    let mut answers = Vec::new();
    while answers.len() < 2 {
        woken.recv_timeout(Duration::from_secs(30)).unwrap();
        client.poll(&mut answers);
    }
    answers.sort_by_key(|answer| answer.token);
    assert_eq!(answers[0].answer, Answer::Conflict);
    assert!(matches!(answers[1].answer, Answer::Committed { .. }));
    assert_eq!(get(&state, "new").unwrap().1, [2]);
    drop((client, state));
    // The old engine says where the state went.
    let mut left = None;
    until("the file is free", || {
        left = State::open(&path).ok();
        left.is_some()
    });
    let moved = left.unwrap().read::<Moved>("state").unwrap().unwrap().value;
    assert_eq!(moved, Moved { cluster: "test".into() });
    assert_eq!(moved.key(), "moved/state");
}

/// Commits new keys, several at a time, until some are refused; returns the errors by key.
fn fill(state: &EtcdState) -> BTreeMap<String, StateError> {
    let mut refused = BTreeMap::new();
    for round in 0..200 {
        let (give, take) = std::sync::mpsc::channel();
        for number in 0..8 {
            let (key, give) = (format!("{round:03}-{number}"), give.clone());
            let commit = Transaction::default().when(key.as_str(), 0).put(key.as_str(), vec![7; 100 << 10]);
            state.submit(Request::Commit(commit), Box::new(move |answer| give.send((key, answer)).unwrap()));
        }
        drop(give);
        refused.extend(take.iter().filter_map(|(key, answer)| Some((key, answer.err()?))));
        if refused.len() >= 16 {
            break;
        }
    }
    refused
}

#[test]
fn without_space_a_commit_that_was_not_applied_says_so_and_the_one_that_filled_it_does_not() {
    let Some(mut one) = One::start() else { return };
    one.kill();
    one.options.quota_bytes = 4 << 20;
    one.restart();
    let state = one.state();
    let refused = fill(&state);
    assert!(refused.len() >= 16, "the quota was never reached");
    for (key, error) in &refused {
        match error {
            StateError::NotApplied(why) => {
                assert!(why.contains("database space exceeded") && why.contains("alarm disarm"), "{why}");
                assert_eq!(get(&state, key), None, "it was told that nothing was changed");
            }
            // etcd applies the transaction that fills the database, and refuses it.
            StateError::Unknown(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // The alarm is raised: each commit is refused before it changes anything, also one of a record that is there.
    let revision = get(&state, "000-0").unwrap().0;
    for commit in [
        Transaction::default().when("new", 0).put("new", vec![1]),
        Transaction::default().when("000-0", revision).put("000-0", vec![1]),
        Transaction::default().put("000-0", vec![1]),
    ] {
        let answer = state.commit(commit);
        assert!(matches!(answer, Err(StateError::NotApplied(_))), "{answer:?}");
    }
    assert_eq!(get(&state, "000-0").unwrap().0, revision);
}

#[test]
fn a_commit_that_never_reached_etcd_was_not_applied() {
    let nowhere = EtcdOptions::new("test", vec!["http://127.0.0.1:1".into()], None);
    let nowhere = EtcdOptions { deadline: Duration::from_millis(200), ..nowhere };
    let state = EtcdState::connect(nowhere).unwrap();
    let commit = state.commit(Transaction::default().put("a", vec![1]));
    assert!(matches!(commit, Err(StateError::NotApplied(_))), "{commit:?}");
    // A read has no such answer.
    assert!(matches!(state.call(Request::Get { key: "a".into() }), Err(StateError::Unknown(_))));
}
