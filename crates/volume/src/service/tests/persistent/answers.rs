//! An answer that waits to be durable reports its client's caching at the time of sending.

use super::*;

const WRITES: u32 = rights::FILE_GENERIC_READ | rights::FILE_GENERIC_WRITE;

/// Client 1 opens a file with all caching; its answer waits for the disk.
fn waiting(cache: CacheRequest) -> (Disk, Bench, OperationId) {
    let (disk, mut bench) = started();
    let made = bench.create(persistent("file", 3)).expect("made");
    bench.close(made.open).expect("closed");
    disk.closed.set(true);
    let create = bench.create_later(Create { cache, desired_access: WRITES, ..persistent("file", 1) });
    assert!(bench.answer(create).is_none(), "it waits to be durable");
    assert_eq!(bench.service.open_count(), 1);
    (disk, bench, create)
}

/// The open of another client that breaks others' caching.
fn beside() -> Create {
    Create { caller: continuous(2, 2), desired_access: rights::FILE_GENERIC_READ, ..open_if(2, "file") }
}

fn created(bench: &mut Bench, operation: OperationId) -> Box<Created> {
    match bench.answer(operation) {
        Some(Ok(Reply::Created(created))) => created,
        other => panic!("{other:?}"),
    }
}

fn told_epoch(bench: &Bench) -> u16 {
    match bench.told.last() {
        Some(Event::BreakLease { epoch, .. }) => *epoch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_a_break_has_overtaken_says_so() {
    for acknowledged in [false, true] {
        let (disk, mut bench, create) = waiting(lease(1, RWH));
        let other = bench.create_later(beside());
        let epoch = told_epoch(&bench);
        if acknowledged {
            let state = RH;
            bench.start(Operation::AcknowledgeLease { client: [1; 16], key: [1; 16], state });
        }
        disk.closed.set(false);
        let created = created(&mut bench, create);
        let CacheGrant::Lease { state, breaking, version_2, .. } = created.cache else { panic!("a lease") };
        assert_eq!(state, if acknowledged { RH } else { RWH });
        assert_eq!(breaking, !acknowledged, "it is being taken back");
        assert_eq!(version_2.map(|version| version.epoch), Some(epoch), "the epoch of the break");
        assert_eq!(bench.answer(other).is_some(), acknowledged);
    }
}

#[test]
fn an_acknowledgement_that_the_next_break_has_overtaken_shows_what_is_left() {
    let (disk, mut bench) = started();
    bench.create(leased("file", 1, RWH)).expect("made");
    bench.create_later(beside());
    let overwrite = Create { disposition: Disposition::OverwriteIf, desired_access: WRITES, ..beside() };
    bench.create_later(overwrite);
    let (client, key) = ([1; 16], [1; 16]);
    bench.call(Operation::AcknowledgeLease { client, key, state: RH }).expect("taken");
    disk.closed.set(true);
    let acknowledge = bench.start(Operation::AcknowledgeLease { client, key, state: R });
    assert!(bench.answer(acknowledge).is_none(), "it waits to be durable");
    let to = match bench.told.last() {
        Some(Event::BreakLease { to, acknowledge: false, .. }) => *to,
        other => panic!("{other:?}"),
    };
    disk.closed.set(false);
    let told = bench.answer(acknowledge);
    assert!(matches!(told, Some(Ok(Reply::Lease { state, .. })) if state == to), "{told:?}, and {to:?}");
}

#[test]
fn an_oplock_that_nobody_was_told_of_is_lowered_in_its_answer() {
    let (disk, mut bench, create) = waiting(CacheRequest::Oplock(OplockLevel::Batch));
    let other = bench.create_later(beside());
    assert!(!bench.is_waiting(other), "nothing is cached yet");
    assert!(bench.told.is_empty(), "the client knows of no oplock: {:?}", bench.told);
    disk.closed.set(false);
    assert_eq!(created(&mut bench, create).cache, CacheGrant::Oplock(OplockLevel::LevelII));
    assert!(matches!(bench.answer(other), Some(Ok(_))));
}
