use super::*;

const R: LeaseState = LeaseState::READ;
const RH: LeaseState = LeaseState::READ.union(LeaseState::HANDLE);
const RW: LeaseState = LeaseState::READ.union(LeaseState::WRITE);
const RWH: LeaseState = LeaseState::all();

fn leased(session: u64, path: &str, key: u8, state: LeaseState) -> Create {
    let lease = LeaseRequest { key: [key; 16], state, version_2: None };
    Create { cache: CacheRequest::Lease(lease), ..open_if(session, path) }
}

fn state(created: &Created) -> LeaseState {
    match created.cache {
        CacheGrant::Lease { state, .. } => state,
        CacheGrant::Oplock(_) => panic!("no lease"),
    }
}

fn lease_breaks(bench: &mut Bench) -> Vec<(LeaseState, LeaseState, bool)> {
    std::mem::take(&mut bench.told)
        .into_iter()
        .filter_map(|event| match event {
            Event::BreakLease { from, to, acknowledge, .. } => Some((from, to, acknowledge)),
            _ => None,
        })
        .collect()
}

fn acknowledge(bench: &mut Bench, session: u64, key: u8, state: LeaseState) -> Result<(), NtStatus> {
    let request = Operation::AcknowledgeLease { client: [session as u8; 16], key: [key; 16], state };
    bench.call(request).map(|_| ())
}

#[test]
fn a_second_client_takes_writing_back_and_waits_for_it() {
    let table = [(RWH, RH, RH), (RW, R, RH), (RH, RH, RH), (R, R, RH)];
    for (held, left, granted) in table {
        let mut bench = Bench::new();
        let first = bench.create(leased(1, "file", 1, held)).expect("made");
        assert_eq!(state(&first), held);
        let second = bench.create_later(leased(2, "file", 2, RWH));
        if held != left {
            assert!(bench.is_waiting(second));
            assert_eq!(lease_breaks(&mut bench), [(held, left, true)]);
            acknowledge(&mut bench, 1, 1, left).expect("acknowledged");
        }
        let Some(Ok(Reply::Created(second))) = bench.answer(second) else { panic!("no open") };
        assert_eq!(state(&second), granted, "{held:?}");
    }
}

#[test]
fn one_key_is_one_lease_and_does_not_break_itself() {
    let mut bench = Bench::new();
    bench.create(leased(1, "file", 1, R)).expect("made");
    let again = bench.create(leased(1, "file", 1, RWH)).expect("opened");
    assert_eq!(state(&again), RWH);
    let fewer = bench.create(leased(1, "file", 1, R)).expect("opened");
    assert_eq!(state(&fewer), RWH);
    bench.write(fewer.open, 0, b"x").expect("written");
    assert!(bench.told.is_empty());
    assert_eq!(bench.create(leased(1, "other", 1, R)).map(|_| ()), Err(NtStatus::INVALID_PARAMETER));
}

#[test]
fn a_break_that_is_not_acknowledged_ends_by_itself() {
    let mut bench = Bench::new();
    bench.create(leased(1, "file", 1, RWH)).expect("made");
    let second = bench.create_later(leased(2, "file", 2, RWH));
    assert!(bench.is_waiting(second));
    let at = bench.service.next_timeout().expect("a deadline");
    assert!(at <= bench.now.after(Duration::from_secs(35)));
    bench.pass(Duration::from_secs(36));
    assert!(matches!(bench.answer(second), Some(Ok(Reply::Created(_)))));
    assert_eq!(acknowledge(&mut bench, 1, 1, RH), Err(NtStatus::UNSUCCESSFUL));
}

#[test]
fn more_needed_during_a_break_is_asked_for_in_steps() {
    let mut bench = Bench::new();
    bench.create(leased(1, "file", 1, RWH)).expect("made");
    let second = bench.create_later(leased(2, "file", 2, R));
    let third = bench.create_later(Create { disposition: Disposition::Overwrite, ..open_if(3, "file") });
    assert_eq!(lease_breaks(&mut bench), [(RWH, RH, true)]);
    acknowledge(&mut bench, 1, 1, RH).expect("acknowledged");
    assert_eq!(lease_breaks(&mut bench), [(RH, R, true)]);
    assert_eq!(acknowledge(&mut bench, 1, 1, RH), Err(NtStatus::REQUEST_NOT_ACCEPTED));
    acknowledge(&mut bench, 1, 1, R).expect("acknowledged");
    assert_eq!(lease_breaks(&mut bench)[0], (R, LeaseState::empty(), false));
    assert!(bench.answer(second).is_some_and(|answer| answer.is_ok()));
    assert!(bench.answer(third).is_some_and(|answer| answer.is_ok()));
}

#[test]
fn a_sharing_violation_asks_for_handles_first() {
    let mut bench = Bench::new();
    let first = bench.create(Create { share_access: 0, ..leased(1, "file", 1, RWH) }).expect("made");
    let second = bench.create_later(open_if(2, "file"));
    assert_eq!(lease_breaks(&mut bench), [(RWH, RW, true)]);
    bench.close(first.open).expect("the client closes what it kept");
    assert!(bench.answer(second).is_some_and(|answer| answer.is_ok()));
}

#[test]
fn a_batch_oplock_goes_down_to_level_two_for_a_second_open() {
    let mut bench = Bench::new();
    let batch =
        |session| Create { cache: CacheRequest::Oplock(OplockLevel::Batch), ..open_if(session, "file") };
    let first = bench.create(batch(1)).expect("made");
    assert_eq!(first.cache, CacheGrant::Oplock(OplockLevel::Batch));
    let second = bench.create_later(batch(2));
    assert!(bench.is_waiting(second));
    assert!(matches!(bench.told[..], [Event::BreakOplock { to: OplockLevel::LevelII, .. }]));
    let level = OplockLevel::LevelII;
    bench.call(Operation::AcknowledgeOplock { open: first.open, level }).expect("acknowledged");
    let Some(Ok(Reply::Created(second))) = bench.answer(second) else { panic!("no open") };
    assert_eq!(second.cache, CacheGrant::Oplock(OplockLevel::LevelII));
    bench.told.clear();
    bench.write(second.open, 0, b"x").expect("written");
    let broken = bench
        .told
        .iter()
        .filter(|event| matches!(event, Event::BreakOplock { to: OplockLevel::None, .. }))
        .count();
    assert_eq!(broken, 2, "a write ends every level II oplock");
}

#[test]
fn a_wrong_acknowledgment_ends_the_break_and_whoever_waits_goes_on_at_once() {
    for level in [OplockLevel::Exclusive, OplockLevel::Batch] {
        let mut bench = Bench::new();
        let batch = Create { cache: CacheRequest::Oplock(OplockLevel::Batch), ..open_if(1, "file") };
        let first = bench.create(batch.clone()).expect("made");
        let early = Operation::AcknowledgeOplock { open: first.open, level };
        assert_eq!(bench.call(early.clone()).map(|_| ()), Err(NtStatus::INVALID_PARAMETER), "nothing breaks");
        let second = bench.create_later(Create { caller: caller(2), ..batch });
        assert!(bench.is_waiting(second));
        assert_eq!(bench.call(early).map(|_| ()), Err(NtStatus::INVALID_PARAMETER));
        let Some(Ok(Reply::Created(second))) = bench.answer(second) else { panic!("{level:?}: it waits") };
        assert_eq!(second.cache, CacheGrant::Oplock(OplockLevel::LevelII), "the first has none any more");
    }
}

#[test]
fn a_lease_is_its_users_and_a_stranger_who_says_its_name_breaks_it() {
    let mut bench = Bench::new();
    let held = bench.create(leased(1, "file", 1, RWH)).expect("made");
    assert_eq!(state(&held), RWH);
    let mut stranger = leased(1, "file", 1, RWH);
    stranger.caller.token = user(2);
    stranger.desired_access = rights::READ_DATA;
    let waiting = bench.create_later(stranger);
    assert!(bench.is_waiting(waiting), "the lease stands in its way");
    assert_eq!(lease_breaks(&mut bench), [(RWH, RH, true)]);
    acknowledge(&mut bench, 1, 1, RH).expect("acknowledged");
    let Some(Ok(Reply::Created(opened))) = bench.answer(waiting) else { panic!("no open") };
    assert_eq!(opened.cache, CacheGrant::Oplock(OplockLevel::None));
}

#[test]
fn a_directory_lease_is_not_spared_a_change_by_a_stranger_who_names_it_as_his_parents() {
    let version_2 = |parent_key| Some(LeaseVersion2 { epoch: 0, parent_key });
    let mut bench = Bench::new();
    let root_lease = LeaseRequest { key: [1; 16], state: RH, version_2: version_2(None) };
    let held = bench.create(Create { cache: CacheRequest::Lease(root_lease), ..root(1) }).expect("opened");
    assert_eq!(state(&held), RH);
    let lease = LeaseRequest { key: [2; 16], state: R, version_2: version_2(Some([1; 16])) };
    let own = Create { cache: CacheRequest::Lease(lease), ..open_if(1, "own") };
    bench.create(own.clone()).expect("made");
    assert_eq!(lease_breaks(&mut bench), [], "its own change");
    let lease = LeaseRequest { key: [3; 16], ..lease };
    let mut stranger = Create { cache: CacheRequest::Lease(lease), ..open_if(1, "strange") };
    stranger.caller.token = user(2);
    bench.create(stranger).expect("made");
    assert_eq!(lease_breaks(&mut bench).len(), 1);
}

#[test]
fn opens_for_attributes_disturb_nobody() {
    let mut bench = Bench::new();
    bench.create(leased(1, "file", 1, RWH)).expect("made");
    let stat = Create { desired_access: rights::READ_ATTRIBUTES, ..open_if(2, "file") };
    bench.create(stat).expect("opened");
    assert!(bench.told.is_empty());
}

fn durable(session: u64, key: u8) -> Create {
    let request = DurableRequest::Version2 { create_guid: [key; 16], timeout: None, persistent: false };
    Create { durable: Some(request), ..leased(session, "file", key, RWH) }
}

fn reconnect(session: u64, client: u8, open: OpenId, key: u8) -> Operation {
    let mut caller = caller(session);
    caller.client = [client; 16];
    Operation::Reconnect(Box::new(Reconnect {
        caller,
        open,
        path: wide("file"),
        create_guid: Some([key; 16]),
        persistent: false,
        lease: Some(LeaseRequest { key: [key; 16], state: RWH, version_2: None }),
    }))
}

#[test]
fn a_durable_open_waits_for_its_client_and_no_longer() {
    let mut bench = Bench::new();
    let file = bench.create(durable(1, 1)).expect("made");
    assert_eq!(file.durable, Some(Duration::from_secs(60)));
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    assert_eq!(
        bench.call(reconnect(9, 2, file.open, 1)).map(|_| ()),
        Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        "another client"
    );
    bench.call(reconnect(9, 1, file.open, 1)).expect("taken up again");
    bench.write(file.open, 0, b"x").expect("written");
    bench.call(Operation::EndSession { session: SessionId(9) }).expect("ended");
    bench.pass(Duration::from_secs(61));
    assert_eq!(bench.service.open_count(), 0);
    assert!(bench.told.iter().any(|event| matches!(event, Event::Closed { .. })));
}

#[test]
fn a_conflicting_open_ends_a_durable_one_whose_client_is_away() {
    let mut bench = Bench::new();
    let file = bench.create(durable(1, 1)).expect("made");
    bench.call(Operation::EndSession { session: SessionId(1) }).expect("ended");
    bench.create(open_if(2, "file")).expect("opened at once");
    assert_eq!(bench.call(reconnect(9, 1, file.open, 1)).map(|_| ()), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn a_replayed_create_answers_as_before_until_the_open_is_used() {
    let mut bench = Bench::new();
    let file = bench.create(durable(1, 1)).expect("made");
    assert_eq!(bench.create(durable(1, 1)).map(|_| ()), Err(NtStatus::DUPLICATE_OBJECTID));
    let replay = || Create { replay: true, ..durable(1, 1) };
    let again = bench.create(replay()).expect("answered");
    assert_eq!((again.open, again.action), (file.open, CreateAction::Created));
    bench.write(file.open, 0, b"x").expect("written");
    let another = bench.create(replay()).expect("a create like any other");
    assert_ne!(another.open, file.open);
}

#[test]
fn a_directory_lease_ends_with_a_change_by_anyone_else() {
    let mut bench = Bench::new();
    let version_2 = Some(LeaseVersion2 { parent_key: None, epoch: 5 });
    let lease = LeaseRequest { key: [1; 16], state: RH, version_2 };
    let root = Create { cache: CacheRequest::Lease(lease), ..root(1) };
    let root = bench.create(root).expect("opened");
    assert_eq!(state(&root), RH);
    let own = LeaseVersion2 { parent_key: Some([1; 16]), epoch: 0 };
    let lease = LeaseRequest { key: [2; 16], state: RWH, version_2: Some(own) };
    let by_itself = Create { cache: CacheRequest::Lease(lease), ..open_if(1, "mine") };
    bench.create(by_itself).expect("made");
    assert!(lease_breaks(&mut bench).is_empty());
    bench.create(open_if(2, "theirs")).expect("made");
    assert_eq!(lease_breaks(&mut bench), [(RH, LeaseState::empty(), true)]);
}
