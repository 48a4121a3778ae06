use super::*;
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

#[test]
fn a_pool_of_an_earlier_release_does_not_tell_whether_its_reserve_was_chosen() {
    let now = PoolRecord::new(PoolId::from_bytes([1; 16]), "pool", 0, 0);
    assert_eq!(now.reserve_is_set, Some(false));
    let mut fields: serde_json::Value = serde_json::from_slice(&now.encode()).unwrap();
    for (written, read) in [(Some(true), Some(true)), (Some(false), Some(false)), (None, None)] {
        let object = fields.as_object_mut().unwrap();
        match written {
            Some(chosen) => drop(object.insert("reserve_is_set".to_owned(), chosen.into())),
            None => drop(object.remove("reserve_is_set")),
        }
        let found = PoolRecord::decode("pool/1", &serde_json::to_vec(&fields).unwrap()).unwrap();
        assert_eq!(found.reserve_is_set, read);
    }
}

#[test]
fn redb_keeps_records_and_revisions_across_openings_and_refuses_a_second_opener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let state = RedbState::open(&path).unwrap();
    let revision = state.write(&volume("alpha"), 0).unwrap();
    assert!(matches!(RedbState::open(&path), Err(StateError::Open(_))));
    drop(state);
    let state = RedbState::open(&path).unwrap();
    assert_eq!(state.read::<VolumeRecord>(&volume("alpha").id()).unwrap().unwrap().revision, revision);
    assert!(state.write(&volume("beta"), 0).unwrap() > revision);
}

#[test]
fn a_client_answers_in_order_and_wakes_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let state = State::open(&directory.path().join("state.redb")).unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let mut client = state.client(move || wake.send(()).unwrap_or(())).unwrap();
    client.submit(1, Request::Commit(Transaction::default().when("a", 0).put("a", vec![1])));
    client.submit(2, Request::Commit(Transaction::default().when("a", 0).put("a", vec![2])));
    client.submit(3, Request::Get { key: "a".into() });
    for _ in 0..3 {
        woken.recv().unwrap();
    }
    let mut answers = Vec::new();
    client.poll(&mut answers);
    let answers: Vec<(u64, Answer)> = answers.into_iter().map(|done| (done.token, done.answer)).collect();
    let value = Versioned { revision: 1, value: vec![1] };
    assert_eq!(
        answers,
        [(1, Answer::Committed { revision: 1 }), (2, Answer::Conflict), (3, Answer::Value(Some(value)))]
    );
}

#[test]
fn a_lost_answer_leaves_the_commit_applied_and_a_lost_request_does_not() {
    let state = MemoryState::new();
    for (fault, applied) in [(Fault::Lost, false), (Fault::AnswerLost, true)] {
        let key = format!("{fault:?}");
        state.set_fault_hook(Some(Box::new(move |_| fault)));
        let commit = state.commit(Transaction::default().put(key.clone(), vec![1]));
        assert!(matches!(commit, Err(StateError::Unknown(_))));
        state.set_fault_hook(None);
        let found = state.call(Request::Get { key }).unwrap();
        assert_eq!(found != Answer::Value(None), applied);
    }
}

#[test]
fn a_value_that_does_not_parse_is_named() {
    let state = MemoryState::new();
    state.commit(Transaction::default().put("volume/x", b"{".to_vec())).unwrap();
    let error = state.read::<VolumeRecord>("x").unwrap_err();
    assert!(matches!(error, StateError::Malformed { key, .. } if key == "volume/x"));
}
