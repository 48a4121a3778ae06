//! Every engine gives the same answers: memory, redb, and etcd if it is installed.

use crate::fixture::{One, until};
use records::{
    Answer, BlockingState, MemoryState, PoolRecord, Provisioning, Record, RedbState, Request, Resiliency,
    State, StateError, Stored, Transaction, Typed, Versioned, VolumeRecord,
};
use std::time::Duration;
use types::{DiskId, PoolId, VolumeId};

fn volume(name: &str) -> VolumeRecord {
    VolumeRecord::new(
        VolumeId::from_bytes([name.as_bytes()[0]; 16]),
        PoolId::from_bytes([1; 16]),
        name,
        Resiliency::TwoWay,
        1 << 30,
        Provisioning::Thin,
        vec![DiskId::from_bytes([1; 16]), DiskId::from_bytes([2; 16])],
        0,
    )
}

/// Resources that the engines need while they are used.
type Ground = (tempfile::TempDir, Option<One>);

/// All engines; etcd only if it is installed.
fn engines() -> (Ground, Vec<State>) {
    let directory = tempfile::tempdir().unwrap();
    let redb = RedbState::open(&directory.path().join("state.redb")).unwrap();
    let mut engines = vec![State::from(MemoryState::new()), State::from(redb)];
    let one = One::start();
    engines.extend(one.as_ref().map(|one| State::from(one.state())));
    ((directory, one), engines)
}

#[test]
fn a_record_reads_back_as_written_and_lists_by_kind() {
    let (_ground, engines) = engines();
    for state in engines {
        let revision = state.write(&volume("alpha"), 0).unwrap();
        state.write(&volume("beta"), 0).unwrap();
        let pool = PoolRecord::new(PoolId::from_bytes([1; 16]), "pool", 1, 0);
        state.write(&pool, 0).unwrap();
        let found = state.read::<VolumeRecord>(&volume("alpha").id()).unwrap().unwrap();
        assert_eq!(found, Stored { revision, value: volume("alpha") });
        let names: Vec<String> =
            state.list::<VolumeRecord>().unwrap().into_iter().map(|v| v.value.name).collect();
        assert_eq!(names, ["alpha", "beta"]);
    }
}

#[test]
fn a_write_that_compares_with_an_old_revision_changes_nothing() {
    let (_ground, engines) = engines();
    for state in engines {
        let first = state.write(&volume("alpha"), 0).unwrap();
        let mut changed = volume("alpha");
        changed.epoch = changed.epoch.next();
        let second = state.write(&changed, first).unwrap();
        assert!(second > first);
        assert_eq!(state.write(&volume("alpha"), first), Err(StateError::Conflict));
        assert_eq!(state.write(&volume("alpha"), 0), Err(StateError::Conflict));
        assert_eq!(state.read::<VolumeRecord>(&changed.id()).unwrap().unwrap().value, changed);
    }
}

#[test]
fn a_transaction_is_applied_whole_or_not_at_all() {
    let (_ground, engines) = engines();
    for state in engines {
        let revision = state.commit(Transaction::default().when("a", 0).put("a", vec![1])).unwrap();
        let refused =
            Transaction::default().when("a", revision).when("b", 7).put("a", vec![2]).put("b", vec![2]);
        assert_eq!(state.commit(refused), Err(StateError::Conflict));
        let listed = state.call(Request::List { prefix: String::new() }).unwrap();
        assert_eq!(listed, Answer::Listed(vec![("a".into(), Versioned { revision, value: vec![1] })]));
        let both = Transaction::default().when("a", revision).when("b", 0).delete("a").put("b", vec![3]);
        let revision = state.commit(both).unwrap();
        let listed = state.call(Request::List { prefix: String::new() }).unwrap();
        assert_eq!(listed, Answer::Listed(vec![("b".into(), Versioned { revision, value: vec![3] })]));
    }
}

#[test]
fn a_dump_has_every_record_of_one_revision_and_a_watch_hears_of_each_commit() {
    let (_ground, engines) = engines();
    for state in engines {
        let watch = state.watch("b/");
        watch.take();
        for number in 0..5_u8 {
            state.commit(Transaction::default().put(format!("a/{number}"), vec![number])).unwrap();
        }
        let revision = state.commit(Transaction::default().put("b/x", vec![1]).delete("a/4")).unwrap();
        let dump = state.dump().unwrap();
        assert_eq!(dump.revision, revision);
        assert_eq!(state.revision(), revision);
        let keys: Vec<&str> = dump.entries.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a/0", "a/1", "a/2", "a/3", "b/x"]);
        until("the watch tells", || {
            watch.wait(Duration::from_secs(1)).is_some_and(|told| told.keys.get("b/x") == Some(&revision))
        });
    }
}

#[test]
fn a_deleted_key_exists_no_more_and_one_made_anew_is_not_the_one_before() {
    let (_ground, engines) = engines();
    for state in engines {
        let first = state.commit(Transaction::default().put("a", vec![1])).unwrap();
        state.commit(Transaction::default().when("a", first).delete("a")).unwrap();
        assert_eq!(
            state.commit(Transaction::default().when("a", first).put("a", vec![2])),
            Err(StateError::Conflict)
        );
        let second = state.commit(Transaction::default().when("a", 0).put("a", vec![1])).unwrap();
        assert!(second > first);
        assert_eq!(
            state.commit(Transaction::default().when("a", first).delete("a")),
            Err(StateError::Conflict)
        );
        // The last change of a key in a transaction counts.
        state.commit(Transaction::default().when("a", second).delete("a").put("a", vec![3])).unwrap();
        let found = state.call(Request::Get { key: "a".into() }).unwrap();
        assert!(matches!(found, Answer::Value(Some(found)) if found.value == [3]));
    }
}

#[test]
fn a_prefix_lists_its_own_keys_only_however_many() {
    let (_ground, engines) = engines();
    for state in engines {
        for first in (0..2500).step_by(100) {
            let some = (first..first + 100)
                .fold(Transaction::default(), |all, number| all.put(format!("key/{number:05}"), vec![1]));
            state.commit(some).unwrap();
        }
        state
            .commit(Transaction::default().put("key", vec![1]).put("key0", vec![1]).put("kez/0", vec![1]))
            .unwrap();
        let Ok(Answer::Listed(listed)) = state.call(Request::List { prefix: "key/".into() }) else {
            panic!()
        };
        assert_eq!(listed.len(), 2500);
        assert!(listed.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
