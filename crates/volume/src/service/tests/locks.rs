use super::*;

fn lock(open: OpenId, offset: u64, len_bytes: u64, exclusive: bool, fail_immediately: bool) -> Operation {
    let range = ByteRange { offset, len_bytes };
    let element = LockElement { range, exclusive: Some(exclusive), fail_immediately };
    Operation::Lock { open, elements: vec![element], sequence: None }
}

fn unlock(open: OpenId, offset: u64, len_bytes: u64) -> Operation {
    let range = ByteRange { offset, len_bytes };
    let element = LockElement { range, exclusive: None, fail_immediately: false };
    Operation::Lock { open, elements: vec![element], sequence: None }
}

fn two_opens(bench: &mut Bench) -> (OpenId, OpenId) {
    let first = bench.create(open_if(1, "file")).expect("made").open;
    let second = bench.create(open_if(2, "file")).expect("opened").open;
    bench.write(first, 0, b"0123456789").expect("written");
    (first, second)
}

#[test]
fn an_exclusive_lock_keeps_others_out_and_a_shared_one_writers() {
    let mut bench = Bench::new();
    let (first, second) = two_opens(&mut bench);
    bench.call(lock(first, 0, 4, true, true)).expect("locked");
    assert_eq!(bench.read(second, 3, 1), Err(NtStatus::FILE_LOCK_CONFLICT));
    assert_eq!(bench.read(second, 4, 1), Ok(b"4".to_vec()));
    bench.write(first, 0, b"x").expect("the owner writes");
    bench.call(lock(first, 6, 2, false, true)).expect("locked");
    assert_eq!(bench.write(first, 6, b"x").map(|_| ()), Err(NtStatus::FILE_LOCK_CONFLICT));
    assert_eq!(bench.read(second, 6, 1), Ok(b"6".to_vec()));
}

#[test]
fn conflicting_locks_fail_or_wait_as_asked() {
    let mut bench = Bench::new();
    let (first, second) = two_opens(&mut bench);
    bench.call(lock(first, 0, 4, true, true)).expect("locked");
    assert_eq!(bench.call(lock(second, 3, 1, false, true)).map(|_| ()), Err(NtStatus::LOCK_NOT_GRANTED));
    let waiting = bench.start(lock(second, 3, 1, false, false));
    assert!(bench.is_waiting(waiting));
    bench.call(unlock(first, 0, 4)).expect("unlocked");
    assert!(matches!(bench.answer(waiting), Some(Ok(Reply::Done))));
    assert_eq!(bench.call(unlock(first, 0, 4)).map(|_| ()), Err(NtStatus::RANGE_NOT_LOCKED));
}

#[test]
fn a_waiting_lock_ends_by_cancel_and_by_close() {
    let mut bench = Bench::new();
    let (first, second) = two_opens(&mut bench);
    bench.call(lock(first, 0, 4, true, true)).expect("locked");
    let waiting = bench.start(lock(second, 0, 4, true, false));
    bench.service.cancel(waiting);
    assert_eq!(bench.answer(waiting).map(|answer| answer.map(|_| ())), Some(Err(NtStatus::CANCELLED)));
    let waiting = bench.start(lock(second, 0, 4, true, false));
    bench.close(second).expect("closed");
    assert_eq!(bench.answer(waiting).map(|answer| answer.map(|_| ())), Some(Err(NtStatus::RANGE_NOT_LOCKED)));
}

#[test]
fn ranges_without_bytes_conflict_only_inside_others() {
    let mut bench = Bench::new();
    let (first, second) = two_opens(&mut bench);
    bench.call(lock(first, 10, 10, true, true)).expect("locked");
    for (offset, free) in [(9, true), (10, true), (11, false), (19, false), (20, true)] {
        let found = bench.call(lock(second, offset, 0, true, true)).map(|_| ());
        let expected = if free { Ok(()) } else { Err(NtStatus::LOCK_NOT_GRANTED) };
        assert_eq!(found, expected, "{offset}");
    }
    assert_eq!(
        bench.call(lock(first, u64::MAX, 2, true, true)).map(|_| ()),
        Err(NtStatus::INVALID_LOCK_RANGE)
    );
}

#[test]
fn a_repeated_lock_request_with_its_sequence_number_is_not_done_twice() {
    let mut bench = Bench::new();
    let (first, _) = two_opens(&mut bench);
    let range = ByteRange { offset: 0, len_bytes: 1 };
    let element = LockElement { range, exclusive: Some(true), fail_immediately: true };
    let request =
        |sequence| Operation::Lock { open: first, elements: vec![element], sequence: Some(sequence) };
    bench.call(request(0x11)).expect("locked");
    bench.call(request(0x11)).expect("answered as before");
    assert_eq!(bench.call(request(0x12)).map(|_| ()), Err(NtStatus::LOCK_NOT_GRANTED));
    assert_eq!(bench.call(request(0x11)).map(|_| ()), Err(NtStatus::LOCK_NOT_GRANTED));
}

#[test]
fn a_user_has_no_more_locks_of_a_volume_than_are_free_and_another_has_a_share() {
    let mut bench = Bench::with_locks(12);
    let refused = Err(NtStatus::INSUFFICIENT_RESOURCES);
    // Two sessions and two files of one user.
    let mine = [open_if(1, "one"), open_if(2, "two")].map(|create| bench.create(create).expect("made").open);
    for offset in 0..6 {
        bench.call(lock(mine[offset as usize % 2], offset, 1, true, true)).expect("within the share");
    }
    for open in mine {
        assert_eq!(bench.call(lock(open, 9, 1, true, true)).map(|_| ()), refused);
    }
    let other = Create { caller: Caller { token: user(2), ..caller(3) }, ..open_if(3, "other") };
    let other = bench.create(other).expect("made").open;
    for offset in 0..3 {
        bench.call(lock(other, offset, 1, true, true)).expect("another user finds some");
    }
    assert_eq!(bench.call(lock(other, 9, 1, true, true)).map(|_| ()), refused);
    // A waiting lock counts as a held one, and both are released: by CANCEL, by unlocking, and with the
    // open.
    let second = bench.create(open_if(1, "one")).expect("opened").open;
    bench.call(unlock(mine[0], 0, 1)).expect("unlocked");
    bench.call(unlock(mine[0], 2, 1)).expect("unlocked");
    bench.call(unlock(mine[1], 1, 1)).expect("unlocked");
    let waiting = bench.start(lock(second, 4, 1, true, false));
    assert!(bench.is_waiting(waiting));
    assert_eq!(bench.call(lock(second, 9, 1, true, true)).map(|_| ()), refused);
    bench.service.cancel(waiting);
    assert!(bench.answer(waiting).is_some());
    bench.call(lock(second, 9, 1, true, true)).expect("given back");
    for open in [mine[0], mine[1], second, other] {
        bench.close(open).expect("closed");
    }
    let last = bench.create(open_if(1, "one")).expect("opened").open;
    for offset in 0..6 {
        bench.call(lock(last, offset, 1, true, true)).expect("all is free again");
    }
}
